/* From a raw request target to what it asks for. Pure functions over strings; thread-safe.
 *
 * The path is parsed as it came over the wire, from the right: a repository name contains slashes
 * and may contain `blobs`, `manifests` or `tags` as components. Nothing is percent-decoded but %3A
 * in a tag or digest, once; a name needs no escapes, so any other '%' is refused. `..`, `//` and
 * the like fall to the grammar of names.
 */
#ifndef WB_SERVER_ROUTE_H
#define WB_SERVER_ROUTE_H

#include "base/err.h"
#include "base/ref.h"
#include "server/errors.h"
#include "storage/upload.h"

enum route_kind {
    ROUTE_UNKNOWN,
    ROUTE_BASE, /* /v2/ */
    ROUTE_MANIFEST,
    ROUTE_BLOB,
    ROUTE_UPLOADS, /* .../blobs/uploads/ */
    ROUTE_UPLOAD,  /* .../blobs/uploads/<id> */
    ROUTE_TAGS,
    ROUTE_REFERRERS,
    ROUTE_CATALOG,
    ROUTE_HEALTH,
    ROUTE_READY,
    ROUTE_METRICS,
    ROUTE_ADMIN_REFERENCE,
    ROUTE_ADMIN_HISTORY,
    ROUTE_ADMIN_WARM,
    /* Of a Hub's own API, found by hub_route.h. */
    ROUTE_HUB_RESOLVE,
    ROUTE_HUB_RAW,
    ROUTE_HUB_INFO,
    ROUTE_HUB_TREE,
    ROUTE_HUB_PATHS,
    ROUTE_HUB_REFS,
    ROUTE_HUB_COMMITS,
    ROUTE_HUB_CHECK,
    ROUTE_HUB_WHOAMI,
    ROUTE_HUB_LLAMA,
    ROUTE_HUB_OTHER, /* what is not served here */
    ROUTE_COUNT,
};

/* A short stable name for logs and metrics. */
const char *route_name(enum route_kind kind);

struct route {
    enum route_kind kind;           /* set even when the rest could not be read */
    enum resource about;            /* for the error table */
    struct reference ref;           /* tag or digest only for the kinds that have one */
    char name[REPOSITORY_MAX + 1];  /* the repository in the URL, as the client wrote it: names.c
                                       may find that it means another one, in `ref` */
    char upload[UPLOAD_ID_LEN + 1]; /* ROUTE_UPLOAD; empty: no id that we could have given */
};

/* path has no query. 0 and a kind (ROUTE_UNKNOWN for a path that names nothing), or ERR_INVALID /
 * ERR_UNSUPPORTED for a known shape with a name, tag or digest that breaks the rules. */
int route_parse(const char *path, struct route *ret, struct error *err);

/* The value of `key` in a raw query ("n=10&last=v1"), percent-decoded ('+' stays '+': no value of
 * ours has a space). 1 found (the first one), 0 absent, ERR_INVALID: bad escape, NUL, too long. */
int query_get(const char *query, const char *key, char *buf, size_t size, struct error *err);

/* The i-th value (0 first) of a key that may come several times, as query_get(). */
int query_get_nth(const char *query, const char *key, unsigned i, char *buf, size_t size,
                  struct error *err);

/* The `n` of a paged list: digits only. 1 found, 0 absent, ERR_UNSUPPORTED for anything else.
 * Clamped to max. */
int query_get_count(const char *query, size_t max, size_t *ret, struct error *err);

#endif
