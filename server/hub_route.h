/* From a raw request target to what it asks of a Hub's own API. Pure; thread-safe.
 *
 *     [/<prefix>][/datasets|/spaces]/<repo>/resolve/<revision>/<path>     raw likewise
 *     [/<prefix>]/api/resolve-cache/<kind>/<repo>/<commit>/<path>
 *     [/<prefix>]/api/<kind>/<repo>[/revision/<revision>]
 *     [/<prefix>]/api/<kind>/<repo>/{tree/<revision>[/<folder>]|paths-info/<revision>|refs|
 *                                    commits/<revision>|auth-check}
 *     [/<prefix>]/api/whoami-v2
 *     [/<prefix>]/api/..., /<prefix>/...     nothing that is served here
 *     [/<prefix>]/v2/<repo>/manifests/<tag>  of llama.cpp before 2026
 *
 * <kind> is models, datasets or spaces. <repo> is "org/name" or a bare "name": what stands behind
 * it says which. <prefix> is that of an upstream of the kind huggingface, and wins over an
 * organisation of that name; without one the first such upstream is meant. The path is cut at its
 * slashes as it came and every part is percent-decoded once: %2F is a slash inside a revision, a
 * folder or a path, and '+' is a plus.
 */
#ifndef WB_SERVER_HUB_ROUTE_H
#define WB_SERVER_HUB_ROUTE_H

#include "base/err.h"
#include "config/config.h"
#include "server/route.h"
#include "upstream/hub_mirror.h"

struct hub_route {
    enum route_kind kind;
    const char *prefix;     /* of the upstream, borrowed from the configuration */
    struct hub_query query; /* name "" for the kinds without a repository */
    /* Of a file or, with ROUTE_HUB_TREE, a folder ("" = the root); of ROUTE_HUB_LLAMA the tag. No
     * part of it is empty, "." or "..", and no byte a control character. */
    char path[HUB_PATH_MAX + 1];
    /* The revision may be one with slashes that the client left as they are. */
    bool may_be_longer;
    struct hub_mirror *mirror; /* NULL until the server has found it */
};

/* path has no query. is_llama: /v2/ without a prefix is llama.cpp's as well.
 * 1: of the Hub's API; *ret is owned by the caller (free()). 0: not. -1 and *ret: of the Hub's API,
 * but breaks a rule (ERR_INVALID), or there is no such upstream (ERR_NOT_FOUND). -1 and NULL:
 * ERR_NOMEM. */
int hub_route_parse(const struct config *c, const char *path, const char *query, bool is_llama,
                    struct hub_route **ret, struct error *err);

/* Moves the first part of the path to the end of the revision. False, and nothing changed: there is
 * none to spare, or it does not fit. */
bool hub_route_longer(struct hub_route *r);

#endif
