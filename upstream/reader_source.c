/* Where a transfer gets the bytes of a link: from a registry's repository, or a Hub's commit. */
#include <stdlib.h>
#include <string.h>

#include "upstream/callers.h"
#include "upstream/reader_private.h"

struct hub_source {
    struct hub *hub;
    struct link link; /* keeps the origin's strings */
    struct digest digest;
    struct callers callers;
    uint64_t connect_by_ms;
};

struct locating {
    struct hub_source *source;
    struct http_location *ret;
};

static int locate_as(void *ctx, struct hub *as, struct error *err)
{
    struct locating *l = ctx;
    const struct link *link = &l->source->link;
    return hub_locate(as, link->origin.repo_id, link->origin.commit, link->origin.path,
                      &l->source->digest, link->size, l->ret, err);
}

static int hub_source_locate(void *ctx, struct http_location *ret, struct error *err)
{
    struct hub_source *s = ctx;
    struct locating l = {.source = s, .ret = ret};
    return callers_ask(&s->callers, s->hub, s->connect_by_ms, locate_as, &l, err);
}

static void hub_source_add_caller(void *ctx, const char *token)
{
    struct hub_source *s = ctx;
    callers_add(&s->callers, token);
}

static void hub_source_release(void *ctx)
{
    struct hub_source *s = ctx;
    link_done(&s->link);
    callers_done(&s->callers);
    free(s);
}

/* Takes the link over on success. */
static int hub_source_make(struct hub *h, struct link *link, const struct digest *d,
                           const char *token, uint64_t connect_by_ms, struct transfer_source *ret,
                           struct error *err)
{
    struct hub_source *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    if (callers_init(&s->callers, err) < 0) {
        free(s);
        return -1;
    }
    callers_add(&s->callers, token);
    s->hub = h;
    s->link = *link;
    s->digest = *d;
    s->connect_by_ms = connect_by_ms;
    *link = (struct link){0};
    *ret = (struct transfer_source){
        .upstream = hub_config(h)->prefix,
        .repository = s->link.origin.repo_id,
        .pool = hub_pool(h),
        .retries = hub_config(h)->retries,
        .max_connections = hub_config(h)->connections_per_blob,
        .locate = hub_source_locate,
        .add_caller = hub_source_add_caller,
        .release = hub_source_release,
        .ctx = s,
        .connect_by_ms = connect_by_ms,
    };
    return 0;
}

int reader_source(struct upstreams *u, struct link *link, const struct digest *d, const char *token,
                  uint64_t connect_by_ms, struct transfer_source *ret, struct error *err)
{
    const struct config_upstream *c = upstreams_named(u, link->origin.upstream);
    if (!c)
        return err_set(err, ERR_NOT_FOUND,
                       "this blob comes from the upstream \"%s\", which is no longer configured",
                       link->origin.upstream);
    if (config_is_offline(u->config, c)) {
        char text[DIGEST_TEXT_MAX];
        return err_set(err, ERR_NOT_FOUND,
                       "blob %s is not here, and upstream %s is offline by configuration",
                       digest_format(d, text), c->prefix);
    }
    struct mirror *m = upstreams_mirror(u, c);
    if (m ? mirror_source(m, link, d, ret, err) < 0
          : hub_source_make(upstreams_hub(u, c), link, d, token, connect_by_ms, ret, err) < 0)
        return -1;
    ret->limiter = upstreams_limiter_of(u, c);
    return 0;
}

static char *put(char **at, const char *text)
{
    char *here = *at;
    size_t n = strlen(text) + 1;
    memcpy(here, text, n);
    *at += n;
    return here;
}

int link_of_origin(const struct origin *o, uint64_t size, struct link *ret, struct error *err)
{
    char *storage =
        malloc(strlen(o->upstream) + strlen(o->repo_id) + strlen(o->commit) + strlen(o->path) + 4);
    if (!storage)
        return err_set(err, ERR_NOMEM, "out of memory for an origin");
    char *at = storage;
    *ret = (struct link){.size = size, .has_origin = true, .storage = storage};
    ret->origin.upstream = put(&at, o->upstream);
    ret->origin.repo_id = put(&at, o->repo_id);
    ret->origin.commit = put(&at, o->commit);
    ret->origin.path = put(&at, o->path);
    return 0;
}
