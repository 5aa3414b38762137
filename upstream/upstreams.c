#include "upstream/upstreams.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/caller.h"
#include "upstream/import.h"
#include "upstream/limiter.h"
#include "upstream/upstreams_private.h"

static int make_limiters(struct upstreams *u, const struct config *c, struct error *err)
{
    u->limiters = calloc(c->n_upstreams + 1, sizeof(struct limiter *));
    if (!u->limiters)
        return err_set(err, ERR_NOMEM, "out of memory for the upstreams");
    if (c->max_bytes_per_s && limiter_new(c->max_bytes_per_s, NULL, &u->limiter, err) < 0)
        return -1;
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (c->upstreams[i].max_bytes_per_s &&
            limiter_new(c->upstreams[i].max_bytes_per_s, u->limiter, &u->limiters[i], err) < 0)
            return -1;
    return 0;
}

static void free_limiters(struct upstreams *u)
{
    for (size_t i = 0; u->limiters && i < u->config->n_upstreams; i++)
        limiter_free(u->limiters[i]);
    free(u->limiters);
    limiter_free(u->limiter);
}

struct limiter *upstreams_limiter_of(struct upstreams *u, const struct config_upstream *c)
{
    struct limiter *own = u->limiters[c - u->config->upstreams];
    return own ? own : u->limiter;
}

static struct http_pool *pool_of(struct upstreams *u, size_t i)
{
    return u->mirrors[i] ? oci_pool(mirror_oci(u->mirrors[i])) : hub_pool(u->hubs[i]);
}

static int share_places(struct upstreams *u, const struct config *c, struct error *err)
{
    if (http_places_new(c->max_upstream_connections, (unsigned)u->n, &u->places, err) < 0)
        return -1;
    for (size_t i = 0; i < u->n; i++)
        http_pool_join(pool_of(u, i), u->places);
    return 0;
}

static int make_hub(struct upstreams *u, size_t i, struct error *err)
{
    const struct config_upstream *c = &u->config->upstreams[i];
    if (hub_new(c, &u->hubs[i], err) < 0)
        return -1;
    return hub_mirror_new(u->config, c, u->store, u->hubs[i], &u->hub_mirrors[i], err);
}

static int make_upstreams(struct upstreams *u, const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        int rc = c->upstreams[i].kind == UPSTREAM_OCI
                     ? mirror_new(c, &c->upstreams[i], u->store, &u->mirrors[i], err)
                     : make_hub(u, i, err);
        if (rc < 0)
            return -1;
        u->n++;
    }
    return 0;
}

int upstreams_new(const struct config *c, struct store *s, struct upstreams **ret,
                  struct error *err)
{
    struct upstreams *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, ERR_NOMEM, "out of memory for the upstreams");
    u->config = c;
    u->store = s;
    struct transfers_options o = {.max_running = c->max_transfers,
                                  .finish_abandoned = c->finish_abandoned};
    u->hubs = calloc(c->n_upstreams + 1, sizeof(*u->hubs));
    u->hub_mirrors = calloc(c->n_upstreams + 1, sizeof(*u->hub_mirrors));
    u->mirrors = calloc(c->n_upstreams + 1, sizeof(*u->mirrors));
    int rc = u->hubs && u->hub_mirrors && u->mirrors
                 ? 0
                 : err_set(err, ERR_NOMEM, "out of memory for the upstreams");
    if (rc == 0)
        rc = transfers_new(s, &o, &u->transfers, err);
    if (rc == 0)
        rc = smalls_new(s, &u->smalls, err);
    if (rc == 0)
        rc = importer_new(c, s, &u->importer, err);
    if (rc == 0)
        rc = make_limiters(u, c, err);
    if (rc == 0)
        rc = make_upstreams(u, c, err);
    if (rc == 0)
        rc = share_places(u, c, err);
    if (rc < 0) {
        upstreams_free(u);
        return -1;
    }
    *ret = u;
    return 0;
}

void upstreams_stop(struct upstreams *u)
{
    for (size_t i = 0; i < u->n; i++)
        http_pool_cancel(pool_of(u, i));
    for (size_t i = 0; i < u->n; i++)
        if (u->mirrors[i])
            mirror_stop(u->mirrors[i]);
        else
            hub_mirror_stop(u->hub_mirrors[i]);
    transfers_stop(u->transfers);
    if (u->smalls)
        smalls_stop(u->smalls);
}

void upstreams_free(struct upstreams *u)
{
    if (!u)
        return;
    if (u->transfers)
        upstreams_stop(u);
    transfers_free(u->transfers);
    smalls_free(u->smalls);
    importer_free(u->importer);
    /* One whose making failed half way is not among the n. */
    for (size_t i = 0; u->hubs && u->hub_mirrors && u->mirrors && i < u->config->n_upstreams; i++) {
        hub_mirror_free(u->hub_mirrors[i]);
        hub_free(u->hubs[i]);
        mirror_free(u->mirrors[i]);
    }
    free(u->hubs);
    free(u->hub_mirrors);
    free(u->mirrors);
    http_places_free(u->places);
    free_limiters(u);
    free(u);
}

struct hub *upstreams_hub_of(struct upstreams *u, const char *repository)
{
    const struct config_upstream *c = config_upstream_of(u->config, repository);
    return c ? upstreams_hub(u, c) : NULL;
}

struct mirror *upstreams_mirror_of(struct upstreams *u, const char *repository)
{
    const struct config_upstream *c = config_upstream_of(u->config, repository);
    return c ? upstreams_mirror(u, c) : NULL;
}

const struct config_upstream *upstreams_named(struct upstreams *u, const char *prefix)
{
    for (size_t i = 0; i < u->n; i++)
        if (strcmp(u->config->upstreams[i].prefix, prefix) == 0)
            return &u->config->upstreams[i];
    return NULL;
}

struct hub *upstreams_hub(struct upstreams *u, const struct config_upstream *c)
{
    return u->hubs[c - u->config->upstreams];
}

struct mirror *upstreams_mirror(struct upstreams *u, const struct config_upstream *c)
{
    return u->mirrors[c - u->config->upstreams];
}

struct hub_mirror *upstreams_hub_mirror(struct upstreams *u, const char *prefix)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->hub_mirrors[i] && (!prefix || strcmp(u->config->upstreams[i].prefix, prefix) == 0))
            return u->hub_mirrors[i];
    return NULL;
}

void manifest_answer_done(struct manifest_answer *a)
{
    manifest_done(&a->manifest);
    *a = (struct manifest_answer){0};
}

void manifest_answer_stale(struct manifest_answer *a, uint64_t checked_at, const char *why)
{
    uint64_t now = clock_wall_s(); /* may have been set back meanwhile */
    snprintf(a->warning, sizeof(a->warning), STALE_TEXT "last confirmed %" PRIu64 " s ago: %.400s",
             now > checked_at ? now - checked_at : 0, why);
}

/* ---- manifests ---------------------------------------------------------------------------- */

static int missing(const struct upstreams *u, const struct reference *r, struct error *err)
{
    char text[REFERENCE_TEXT_MAX];
    reference_format(r, text);
    if (config_upstream_of(u->config, r->repository) || u->config->n_upstreams == 0)
        return err_set(err, ERR_NOT_FOUND, "%s is not here", text);
    return err_set(
        err, ERR_NOT_FOUND,
        "%s is not here, and its name begins with no upstream's prefix (as \"%s/...\" does)", text,
        u->config->upstreams[0].prefix);
}

/* What is not here cannot be had. */
static int offline(const struct hub *h, struct error *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "it is not here, and upstream %s is offline by configuration",
                   hub_config(h)->prefix);
}

/* A policy may be newer than what is here. */
static int may_give(struct upstreams *u, const struct reference *r, const struct manifest_answer *a,
                    struct error *err)
{
    const struct config_upstream *c = config_upstream_of(u->config, r->repository);
    return c && c->kind == UPSTREAM_HUGGINGFACE
               ? import_may_give(u->config, c, r->repository, &a->manifest, err)
               : 0;
}

static int manifest_by_digest(struct upstreams *u, struct hub *h, const struct reference *r,
                              struct manifest_answer *a, struct error *err)
{
    int found = store_manifest_get(u->store, r->repository, &r->digest, &a->manifest, err);
    if (found)
        return found < 0 ? -1 : may_give(u, r, a, err);
    if (!h)
        return missing(u, r, err);
    if (config_is_offline(u->config, hub_config(h)))
        return offline(h, err);
    a->imported = true;
    if (import_search(u->importer, h, r, err) < 0)
        return -1;
    found = store_manifest_get(u->store, r->repository, &r->digest, &a->manifest, err);
    return found > 0 ? may_give(u, r, a, err) : found < 0 ? -1 : missing(u, r, err);
}

static int answer_tag(struct upstreams *u, const struct reference *r, const struct tag *tag,
                      struct manifest_answer *a, struct error *err)
{
    int found = store_manifest_get(u->store, r->repository, &tag->digest, &a->manifest, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return missing(u, r, err);
    memcpy(a->commit, tag->commit, sizeof(a->commit));
    return may_give(u, r, a, err);
}

/* A tag that is a commit, or a commit and a quantisation, can not move. */
static bool is_pinned(const struct tag *tag, const char *name)
{
    size_t n = strlen(tag->commit);
    return n == 40 && strncmp(name, tag->commit, n) == 0 &&
           (name[n] == '\0' || strncmp(name + n, "--", 2) == 0);
}

static bool is_fresh(const struct hub *h, const struct tag *tag, const char *name)
{
    uint64_t now = clock_wall_s();
    if (is_pinned(tag, name))
        return true;
    return tag->checked_at <= now && now - tag->checked_at < hub_config(h)->tag_ttl_s;
}

/* The upstream could not be asked: what we have is better than nothing, and says so. */
static bool may_serve_stale(const struct error *err)
{
    switch (err->code) {
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_RATE_LIMITED:
    case ERR_BUSY:
    case ERR_NO_SPACE:
        return true;
    default:
        return false;
    }
}

static int manifest_by_tag(struct upstreams *u, struct hub *h, const struct reference *r,
                           struct manifest_answer *a, struct error *err)
{
    struct tag tag;
    int known = store_tag_get(u->store, r->repository, r->tag, &tag, err);
    if (known < 0)
        return -1;
    if (!h)
        return known ? answer_tag(u, r, &tag, a, err) : missing(u, r, err);
    if (known && is_fresh(h, &tag, r->tag)) {
        struct error why = ERROR_INIT;
        int rc = answer_tag(u, r, &tag, a, &why);
        if (rc == 0)
            rc = import_is_whole(u->importer, &a->manifest, &why);
        else if (why.code == ERR_DENIED)
            rc = 0; /* as the policies are now, it is another one */
        if (rc < 0 && err)
            *err = why;
        if (rc)
            return rc < 0 ? -1 : 0;
        manifest_answer_done(a);
    }

    if (config_is_offline(u->config, hub_config(h))) {
        if (!known)
            return offline(h, err);
        manifest_answer_stale(a, tag.checked_at, "the upstream is offline by configuration");
        return answer_tag(u, r, &tag, a, err);
    }

    struct import_result result;
    a->imported = true;
    if (import_tag(u->importer, h, upstreams_hub_mirror(u, hub_config(h)->prefix), r, &result,
                   err) < 0) {
        if (!known || !may_serve_stale(err))
            return -1;
        manifest_answer_stale(a, tag.checked_at, err->text);
        a->imported = false;
        return answer_tag(u, r, &tag, a, err);
    }
    struct tag now = {.digest = result.manifest};
    memcpy(now.commit, result.commit, sizeof(now.commit));
    return answer_tag(u, r, &now, a, err);
}

int upstreams_manifest(struct upstreams *u, const struct reference *r, struct manifest_answer *ret,
                       struct error *err)
{
    struct manifest_answer a = {0};
    struct mirror *m = upstreams_mirror_of(u, r->repository);
    if (m)
        return mirror_manifest(m, r, ret, err);
    struct hub *h = upstreams_hub_of(u, r->repository), *as = NULL;
    if (h && hub_config(h)->credentials == CREDENTIALS_FORWARD) {
        const struct hub_asking how = {.has_token = true, .token = caller_token()};
        h = as = hub_as(h, &how);
        if (!as)
            return err_set(err, ERR_NOMEM, "out of memory for a Hub client");
    }
    int rc =
        r->is_digest ? manifest_by_digest(u, h, r, &a, err) : manifest_by_tag(u, h, r, &a, err);
    hub_free(as);
    if (rc < 0) {
        manifest_answer_done(&a);
        return -1;
    }
    *ret = a;
    return 0;
}

/* ---- lists -------------------------------------------------------------------------------- */

int upstreams_repository(struct upstreams *u, const char *repository,
                         char full[static REPOSITORY_MAX + 1], struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    if (m)
        return mirror_resolve(m, repository, full, err);
    snprintf(full, REPOSITORY_MAX + 1, "%s", repository);
    return 0;
}

int upstreams_referrers(struct upstreams *u, const char *repository, const struct digest *subject,
                        const struct referrers_query *q, struct referrer_list *ret,
                        char warning[static WARNING_TEXT_MAX], struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    char full[REPOSITORY_MAX + 1];
    *warning = '\0';
    if (upstreams_repository(u, repository, full, err) < 0)
        return -1;
    if (m)
        mirror_referrers(m, full, subject, warning, WARNING_TEXT_MAX);
    return store_referrers(u->store, full, subject, q->artifact_type, q->last, q->limit,
                           q->max_bytes, ret, err);
}

/* The names behind `last`, at most limit of them; the others are freed. */
static void take_page(struct name_list *l, const char *last, size_t limit)
{
    size_t from = 0, n = 0;
    while (last && from < l->n && strcmp(l->names[from], last) <= 0)
        from++;
    for (size_t i = 0; i < l->n; i++) {
        if (i >= from && n < limit) {
            char *name = l->names[i];
            l->names[n++] = name;
        } else {
            l->more |= i >= from;
            free(l->names[i]);
        }
    }
    l->n = n;
}

int upstreams_tags(struct upstreams *u, const char *repository, const char *last, size_t limit,
                   struct name_list *ret, char warning[static WARNING_TEXT_MAX], struct error *err)
{
    struct mirror *m = upstreams_mirror_of(u, repository);
    struct name_list list = {0};
    *warning = '\0';
    if (!m)
        return store_tags(u->store, repository, last, limit, ret, err);
    int rc = mirror_tags(m, repository, &list, warning, WARNING_TEXT_MAX, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "repository %s is not known", repository);
    if (rc < 0)
        return -1;
    take_page(&list, last, limit);
    *ret = list;
    return 0;
}

/* ---- figures ------------------------------------------------------------------------------ */

size_t upstreams_count(const struct upstreams *u)
{
    return u->n;
}

void upstreams_stats(struct upstreams *u, size_t i, struct upstream_stats *ret)
{
    struct http_pool *p = pool_of(u, i);
    *ret = (struct upstream_stats){.prefix = u->config->upstreams[i].prefix,
                                   .bytes = http_pool_bytes(p),
                                   .requests = http_pool_requests(p),
                                   .errors = http_pool_errors(p)};
    if (u->mirrors[i])
        oci_breaker_stats(mirror_oci(u->mirrors[i]), &ret->breaker);
    else
        hub_breaker_stats(u->hubs[i], &ret->breaker);
}

unsigned upstreams_connections(struct upstreams *u)
{
    return http_places_taken(u->places);
}

void upstreams_transfer_stats(struct upstreams *u, struct transfer_stats *ret)
{
    struct small_stats small;
    transfers_stats(u->transfers, ret);
    smalls_stats(u->smalls, &small);
    ret->mismatches += small.mismatches;
    ret->uncached += small.uncached;
    for (size_t i = 0; i < u->n; i++)
        if (u->mirrors[i])
            ret->mismatches += oci_refuted(mirror_oci(u->mirrors[i]));
}

void upstreams_on_small_end(struct upstreams *u, small_ended_fn fn, void *ctx)
{
    smalls_on_end(u->smalls, fn, ctx);
}

void upstreams_on_transfer_end(struct upstreams *u, transfer_ended_fn fn, void *ctx)
{
    transfers_on_end(u->transfers, fn, ctx);
}
