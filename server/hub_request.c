/* What every request to a Hub's own API begins with. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/hub_api.h"

#define LONGER_MAX 3u /* readings of a revision that are asked about */

bool hub_is_llama(const struct request *q)
{
    static const char agent[] = "llama-cpp";
    if (strncmp(q->path, "/v2/", 4) != 0)
        return false;
    const char *by = request_header(q, "User-Agent");
    if (!by || strncmp(by, agent, strlen(agent)) != 0)
        return false;
    const char *accept = request_header(q, "Accept");
    if (!accept)
        return !request_has_header(q, "Accept");
    return !strcasestr(accept, "application/vnd.oci") &&
           !strcasestr(accept, "application/vnd.docker");
}

int hub_settle(struct request *q, struct hub_at *at, struct error *err)
{
    struct hub_route *h = q->hub;
    struct reference *ref = &q->route.ref;
    h->mirror = upstreams_hub_mirror(q->server->upstreams, h->prefix);
    if (!h->mirror)
        return err_set(err, ERR_INTERNAL, "there is no mirror of the upstream \"%s\"", h->prefix);
    if (!*h->query.name)
        return 0;
    if (!hub_mirror_repository(h->mirror, &h->query, ref->repository)) {
        at->refused = HUB_REFUSED_REPOSITORY;
        return err_set(err, ERR_NOT_FOUND, "\"%.200s\" is no name of a repository of the Hub",
                       h->query.name);
    }
    snprintf(ref->tag, sizeof(ref->tag), "%s", h->query.revision); /* for the log */
    return request_may(q, ACCESS_PULL, err);
}

bool hub_read_longer(struct request *q, const struct hub_at *at)
{
    struct hub_route *h = q->hub;
    if (at->refused != HUB_REFUSED_REVISION || !h->may_be_longer)
        return false;
    h->may_be_longer = false;
    struct hub_route longer = *h;
    for (unsigned i = 0; i < LONGER_MAX && hub_route_longer(&longer); i++) {
        struct hub_at there = {0};
        if (hub_mirror_revision(h->mirror, &longer.query, &there, NULL) == 0) {
            *h = longer;
            return true;
        }
        if (there.refused != HUB_REFUSED_REVISION)
            return false;
    }
    return false;
}
