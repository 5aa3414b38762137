#include "server/names.h"

#include <string.h>
#include <strings.h>

#include "server/request.h"

/* ---- ?ns= ------------------------------------------------------------------------------------ */

/* The host, as it was given to us to be reached by. */
static bool is_own_host(const struct request *q, const char *host)
{
    const char *url = q->server->config->external_url;
    if (*q->host && strcasecmp(host, q->host) == 0)
        return true;
    const char *own = url ? strstr(url, "://") : NULL;
    size_t n = own ? strcspn(own + 3, "/") : 0;
    return n && strlen(host) == n && strncasecmp(host, own + 3, n) == 0;
}

static int unknown_host(const struct config *c, const char *host, struct error *err)
{
    _cleanup_strbuf_ struct strbuf known = STRBUF_INIT;
    for (size_t i = 0; i < c->n_upstreams; i++)
        strbuf_printf(&known, "%s%s", i ? ", " : "", c->upstreams[i].prefix);
    return err_set(err, ERR_NOT_FOUND,
                   "ns=%.100s: no upstream of this server has that host; there are: %s", host,
                   c->n_upstreams ? strbuf_str(&known) : "none");
}

/* A key to look an upstream up by, and never an address. */
static int read_ns(struct request *q, struct error *err)
{
    const struct config *c = q->server->config;
    char host[sizeof(q->ns)];
    int r = query_get(q->query, "ns", host, sizeof(host), err);
    if (r < 0)
        return -1;
    if (r == 0 || !*host || is_own_host(q, host))
        return 0;
    const struct config_upstream *u = host_is_valid(host) ? config_upstream_of_host(c, host) : NULL;
    if (!u)
        return unknown_host(c, host, err);
    memcpy(q->ns, host, strlen(host) + 1);
    q->ns_upstream = u;
    return 0;
}

void names_put_ns(const struct request *q, char first, struct strbuf *to)
{
    if (!q->ns_upstream)
        return;
    strbuf_putc(to, first);
    strbuf_puts(to, "ns=");
    strbuf_put_urlencoded(to, q->ns, ":");
}

/* ---- default_upstream ------------------------------------------------------------------------ */

static bool is_read(const struct request *q)
{
    switch (q->route.kind) {
    case ROUTE_MANIFEST:
    case ROUTE_BLOB:
    case ROUTE_TAGS:
    case ROUTE_REFERRERS:
        return q->is_head || strcmp(q->method, "GET") == 0;
    case ROUTE_ADMIN_WARM: /* what will be pulled under this name */
        return true;
    default:
        return false;
    }
}

static int is_known(const struct request *q, const char *repository, struct error *err)
{
    _cleanup_(name_list_done) struct name_list list = {0};
    struct error why = ERROR_INIT;
    if (store_tags(q->server->store, repository, NULL, 1, &list, &why) == 0)
        return 1;
    if (why.code == ERR_NOT_FOUND)
        return 0;
    *err = why;
    return -1;
}

/* Whether the name is a repository's of our own. One that this client may not pull is none, so that
 * it gets the same answer whether it is there or not. */
static int is_local(const struct request *q, struct error *err)
{
    const struct reference *ref = &q->route.ref;
    if (!config_access_allows(q->server->config, ref->repository, ACCESS_PULL))
        return 0;
    int r = is_known(q, ref->repository, err);
    if (r || q->route.kind != ROUTE_BLOB)
        return r;
    /* Of a first push: blobs come before the manifest that makes the repository. */
    _cleanup_(link_done) struct link link = {0};
    return store_link_get(q->server->store, ref->repository, &ref->digest, &link, err);
}

/* NULL: there is none, or the name says which upstream it is of. */
static const struct config_upstream *default_of(const struct request *q)
{
    const struct config *c = q->server->config;
    if (!c->default_upstream || config_upstream_of(c, q->route.ref.repository))
        return NULL;
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (strcmp(c->upstreams[i].prefix, c->default_upstream) == 0)
            return &c->upstreams[i];
    return NULL;
}

bool names_default(const struct request *q, char ret[static REPOSITORY_MAX + 1])
{
    const struct config_upstream *u = default_of(q);
    return u &&
           config_full_name(q->server->config, u, q->route.ref.repository, ret, REPOSITORY_MAX + 1);
}

/* A client that wants to know whether a blob is there, and has not pulled the manifest that has it,
 * is about to push. It has to be told what is in the repository that it pushes to; and the names of
 * local repositories are nothing to tell an upstream. */
static int is_asked_by_push(const struct request *q, struct error *err)
{
    char full[REPOSITORY_MAX + 1];
    if (q->route.kind != ROUTE_BLOB || !q->is_head)
        return 0;
    int r = names_default(q, full) ? is_known(q, full, err) : 0;
    return r < 0 ? -1 : !r;
}

/* The upstream where this request's repository is looked for although it does not say so. */
static int find_default(const struct request *q, const struct config_upstream **ret,
                        struct error *err)
{
    const struct config_upstream *u = is_read(q) ? default_of(q) : NULL;
    if (!u)
        return 0;
    int r = is_local(q, err);
    if (r == 0)
        r = is_asked_by_push(q, err);
    if (r == 0)
        *ret = u;
    return r < 0 ? -1 : 0;
}

/* ---- all together ---------------------------------------------------------------------------- */

int names_settle(struct request *q, struct error *err)
{
    struct reference *ref = &q->route.ref;
    const struct config_upstream *u = NULL;
    char full[REPOSITORY_MAX + 1];
    if (!*ref->repository)
        return 0;
    if (*q->route.name && read_ns(q, err) < 0) /* of the registry API */
        return -1;
    u = q->ns_upstream;
    if (!u && find_default(q, &u, err) < 0)
        return -1;
    if (!config_full_name(q->server->config, u, ref->as_given, full, sizeof(full)))
        return err_set(err, ERR_INVALID, "the repository name is over %d bytes, with \"%s/\"",
                       REPOSITORY_MAX, u ? u->prefix : ref->as_given);
    memcpy(ref->as_given, full, strlen(full) + 1);
    return ascii_lower(full, ref->repository, sizeof(ref->repository))
               ? 0
               : err_set(err, ERR_INTERNAL, "%s does not fit", full);
}

bool names_beside(const struct request *q, const char *given, char ret[static REPOSITORY_MAX + 1])
{
    char full[REPOSITORY_MAX + 1];
    return config_full_name(q->server->config, q->ns_upstream, given, full, sizeof(full)) &&
           ascii_lower(full, ret, REPOSITORY_MAX + 1) && repository_is_valid(ret);
}
