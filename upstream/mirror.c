#include "upstream/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/loop.h"
#include "upstream/mirror_private.h"
#include "upstream/upstreams_private.h"

int mirror_new(const struct config *c, const struct config_upstream *u, struct store *s,
               struct mirror **ret, struct error *err)
{
    struct mirror *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ERR_NOMEM, "out of memory for upstream %s", u->prefix);
    m->config = u;
    m->offline = config_is_offline(c, u);
    m->store = s;
    if (inquiry_start(&m->questions, &mirror_questions, u->prefix, err) < 0) {
        free(m);
        return -1;
    }
    pthread_mutex_init(&m->tag_lists.lock, NULL);
    if (notes_init(&m->negatives, err) < 0 || notes_init(&m->asked, err) < 0 ||
        oci_new(u, &m->oci, err) < 0) {
        mirror_free(m);
        return -1;
    }
    *ret = m;
    return 0;
}

void mirror_stop(struct mirror *m)
{
    if (m->oci)
        http_pool_cancel(oci_pool(m->oci));
    inquiry_stop(&m->questions);
}

void mirror_free(struct mirror *m)
{
    if (!m)
        return;
    mirror_stop(m);
    inquiry_end(&m->questions);
    notes_done(&m->negatives);
    notes_done(&m->asked);
    tag_lists_done(&m->tag_lists);
    pthread_mutex_destroy(&m->tag_lists.lock);
    oci_free(m->oci);
    free(m);
}

struct oci *mirror_oci(struct mirror *m)
{
    return m->oci;
}

int mirror_resolve(struct mirror *m, const char *repository, char full[static REPOSITORY_MAX + 1],
                   struct error *err)
{
    struct mirror_name n;
    if (mirror_name_of(m->config, repository, &n, err) < 0 ||
        mirror_check_repository(m->config, &n, err) < 0)
        return -1;
    memcpy(full, n.full, sizeof(n.full));
    return 0;
}

static int question_of(struct mirror *m, enum question_kind kind, const char *repository,
                       struct question *ret, struct error *err)
{
    *ret = (struct question){.kind = kind};
    if (mirror_name_of(m->config, repository, &ret->name, err) < 0)
        return -1;
    return mirror_check_repository(m->config, &ret->name, err);
}

int mirror_is_offline(const struct mirror *m, const char *what, struct error *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "%s is not here, and upstream %s is offline by configuration", what,
                   m->config->prefix);
}

/* ---- manifests ------------------------------------------------------------------------------- */

bool mirror_may_be_stale(const struct error *err)
{
    switch (err->code) {
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_RATE_LIMITED:
    case ERR_UNAUTHORIZED:
    case ERR_DIGEST_MISMATCH:
    case ERR_BUSY:
    case ERR_NO_SPACE:
        return true;
    case ERR_LOOP: /* the upstream's trouble, unless the request has gone round already */
        return !loop_get().is_closed;
    default:
        return false;
    }
}

/* A confirmation is written some time later; until then a note of it counts. */
bool mirror_is_fresh(struct mirror *m, const struct question *q, const struct tag *tag)
{
    uint64_t now = clock_wall_s();
    char key[QUESTION_KEY_MAX];
    return (tag->checked_at <= now && now - tag->checked_at < m->config->tag_ttl_s) ||
           notes_get(&m->asked, question_key(q, key), NULL, NULL);
}

/* 1, 0 the manifest is gone from here, -1. */
static int from_store(struct mirror *m, const struct question *q, const struct digest *d,
                      struct manifest_answer *a, struct error *err)
{
    return store_manifest_get(m->store, q->name.full, d, &a->manifest, err);
}

/* It could not be stored. */
static int pass_through(struct outcome *o, struct manifest_answer *a)
{
    a->manifest = o->manifest;
    o->manifest = (struct manifest){0};
    return 0;
}

static int by_digest(struct mirror *m, struct question *q, struct manifest_answer *a,
                     struct error *err)
{
    char key[QUESTION_KEY_MAX], what[REPOSITORY_MAX + DIGEST_TEXT_MAX + 2], text[DIGEST_TEXT_MAX];
    _cleanup_outcome_ struct outcome outcome = {0};
    int found = from_store(m, q, &q->digest, a, err);
    if (found)
        return found < 0 ? -1 : 0;
    snprintf(what, sizeof(what), "%s@%s", q->name.full, digest_format(&q->digest, text));
    if (m->offline)
        return mirror_is_offline(m, what, err);
    if (notes_get(&m->negatives, question_key(q, key), err, NULL))
        return -1;
    a->imported = true;
    if (mirror_ask(m, q, 0, &outcome, err) < 0)
        return -1;
    if (outcome.is_unstored)
        return pass_through(&outcome, a);
    found = from_store(m, q, &q->digest, a, err);
    return found ? (found < 0 ? -1 : 0)
                 : err_set(err, ERR_NOT_FOUND, "%s was removed while it was fetched", what);
}

/* What is here, and why there is nothing newer. err: why; another one when that fails, too. */
static int stale(struct mirror *m, const struct question *q, const struct tag *tag,
                 struct manifest_answer *a, struct error *err)
{
    struct error why = *err;
    manifest_answer_stale(a, tag->checked_at, why.text);
    int found = from_store(m, q, &tag->digest, a, err);
    if (found == 0)
        *err = why;
    return found > 0 ? 0 : -1;
}

static int ask_tag(struct mirror *m, const struct question *q, const struct tag *known,
                   struct manifest_answer *a, struct error *err)
{
    char key[QUESTION_KEY_MAX];
    _cleanup_outcome_ struct outcome outcome = {0};
    int rc = -1;
    if (!notes_get(&m->negatives, question_key(q, key), err, &outcome.is_gone))
        rc = mirror_ask(m, q, known ? m->config->revalidate_timeout_s * 1000u : 0, &outcome, err);
    if (rc < 0) {
        bool keep = outcome.is_gone && m->config->on_gone == GONE_KEEP;
        if (known && (keep || (!outcome.is_gone && mirror_may_be_stale(err))))
            return stale(m, q, known, a, err);
        return -1;
    }
    snprintf(a->warning, sizeof(a->warning), "%s", outcome.stale);
    if (outcome.is_unstored) {
        a->imported = true;
        return pass_through(&outcome, a);
    }
    a->imported = !known || !digest_equal(&known->digest, &outcome.digest);
    int found = from_store(m, q, &outcome.digest, a, err);
    return found ? (found < 0 ? -1 : 0)
                 : err_set(err, ERR_NOT_FOUND, "%s:%s was removed while it was fetched",
                           q->name.full, q->tag);
}

static int by_tag(struct mirror *m, struct question *q, struct manifest_answer *a,
                  struct error *err)
{
    struct tag tag;
    char what[REPOSITORY_MAX + TAG_MAX + 2];
    snprintf(what, sizeof(what), "%s:%s", q->name.full, q->tag);
    int known = store_tag_get(m->store, q->name.full, q->tag, &tag, err);
    if (known < 0)
        return -1;
    if (known && mirror_is_fresh(m, q, &tag)) {
        int found = from_store(m, q, &tag.digest, a, err);
        if (found)
            return found < 0 ? -1 : 0;
    }
    if (m->offline) {
        mirror_is_offline(m, what, err);
        if (!known)
            return -1;
        err_set(err, ERR_NOT_FOUND, "upstream %s is offline by configuration", m->config->prefix);
        return stale(m, q, &tag, a, err);
    }
    return ask_tag(m, q, known ? &tag : NULL, a, err);
}

int mirror_manifest(struct mirror *m, const struct reference *r, struct manifest_answer *ret,
                    struct error *err)
{
    struct manifest_answer a = {0};
    struct question q;
    struct error why = ERROR_INIT;
    int rc = question_of(m, r->is_digest ? ASK_MANIFEST : ASK_TAG, r->repository, &q, &why);
    if (rc == 0 && r->is_digest) {
        q.digest = r->digest;
        rc = by_digest(m, &q, &a, &why);
    } else if (rc == 0) {
        memcpy(q.tag, r->tag, sizeof(q.tag));
        rc = by_tag(m, &q, &a, &why);
    }
    if (rc < 0) {
        manifest_answer_done(&a);
        if (err)
            *err = why;
        return -1;
    }
    *ret = a;
    return 0;
}

/* ---- blobs ----------------------------------------------------------------------------------- */

/* A link that could not be recorded. */
static int passing_link(struct mirror *m, const struct question *q, uint64_t size, struct link *ret,
                        struct error *err)
{
    char *id = strdup(q->name.name);
    if (!id)
        return err_set(err, ERR_NOMEM, "out of memory for a link");
    *ret = (struct link){
        .size = size,
        .has_origin = true,
        .origin = {.upstream = m->config->prefix, .repo_id = id, .commit = "", .path = ""},
        .storage = id};
    return 1;
}

/* Whether the upstream's repository has the blob: 1 and its link is recorded where that can be, 0
 * it has not, -1. */
static int ask_blob(struct mirror *m, const struct question *q, struct outcome *ret,
                    struct error *err)
{
    struct error why = ERROR_INIT;
    char key[QUESTION_KEY_MAX];
    if (!notes_get(&m->negatives, question_key(q, key), &why, &ret->is_gone) &&
        mirror_ask(m, q, 0, ret, &why) == 0)
        return 1;
    if (ret->is_gone && why.code == ERR_NOT_FOUND)
        return 0;
    if (err)
        *err = why;
    return -1;
}

int mirror_link(struct mirror *m, const char *repository, const struct digest *d, struct link *ret,
                struct error *err)
{
    struct question q;
    _cleanup_outcome_ struct outcome outcome = {0};
    char text[DIGEST_TEXT_MAX];
    if (question_of(m, ASK_BLOB, repository, &q, err) < 0)
        return -1;
    q.digest = *d;
    int found = store_link_get(m->store, q.name.full, d, ret, err);
    if (found < 0 || (found && ret->size != LINK_SIZE_UNKNOWN))
        return found;
    if (found)
        link_done(ret);
    if (m->offline)
        return found ? mirror_is_offline(m, digest_format(d, text), err) : 0;
    found = ask_blob(m, &q, &outcome, err);
    if (found <= 0)
        return found;
    return outcome.is_unstored ? passing_link(m, &q, outcome.size, ret, err)
                               : store_link_get(m->store, q.name.full, d, ret, err);
}

int mirror_ask_size(struct mirror *m, const char *repository, const struct digest *d,
                    uint64_t *ret_size, struct error *err)
{
    struct question q;
    _cleanup_outcome_ struct outcome outcome = {0};
    char key[QUESTION_KEY_MAX], text[DIGEST_TEXT_MAX];
    if (m->offline)
        return mirror_is_offline(m, digest_format(d, text), err);
    if (question_of(m, ASK_SIZE, repository, &q, err) < 0)
        return -1;
    q.digest = *d;
    if (notes_get(&m->negatives, question_key(&q, key), err, NULL))
        return -1;
    int rc = mirror_ask(m, &q, m->config->revalidate_timeout_s * 1000u, &outcome, err);
    if (rc < 0)
        return outcome.is_gone ? 0 : -1;
    *ret_size = outcome.size;
    return 1;
}

void mirror_size_refuted(struct mirror *m, const char *repository, const struct digest *d,
                         const struct error *why)
{
    struct question q;
    char key[QUESTION_KEY_MAX];
    if (question_of(m, ASK_SIZE, repository, &q, NULL) < 0)
        return;
    q.digest = *d;
    notes_put(&m->negatives, question_key(&q, key), m->config->negative_ttl_s, why, false);
}

int mirror_resize(struct mirror *m, const char *repository, const struct digest *d, uint64_t size,
                  struct error *err)
{
    struct mirror_name n;
    if (mirror_name_of(m->config, repository, &n, err) < 0)
        return -1;
    return store_link_resize(m->store, n.full, d, size, err);
}

/* ---- claimed links ---- */

#define PROVED_S 60u /* by then it is in the store */

static char *proved_key(const struct mirror_name *n, const struct digest *d,
                        char buf[static QUESTION_KEY_MAX])
{
    char text[DIGEST_TEXT_MAX];
    snprintf(buf, QUESTION_KEY_MAX, "p %s %s", n->full, digest_format(d, text));
    return buf;
}

int mirror_prove(struct mirror *m, const char *repository, const struct digest *d,
                 struct error *err)
{
    struct question q;
    _cleanup_outcome_ struct outcome outcome = {0};
    char key[QUESTION_KEY_MAX], text[DIGEST_TEXT_MAX];
    if (question_of(m, ASK_BLOB, repository, &q, err) < 0)
        return -1;
    q.digest = *d;
    if (notes_get(&m->asked, proved_key(&q.name, d, key), NULL, NULL))
        return 1;
    if (m->offline)
        return mirror_is_offline(m, digest_format(d, text), err);
    return ask_blob(m, &q, &outcome, err);
}

bool mirror_feeds(struct mirror *m, const char *repository, const struct transfer *x)
{
    struct mirror_name n;
    return mirror_name_of(m->config, repository, &n, NULL) == 0 &&
           transfer_is_of(x, m->config->prefix, n.name);
}

void mirror_proved(struct mirror *m, const char *repository, const struct digest *d)
{
    struct mirror_name n;
    char key[QUESTION_KEY_MAX];
    if (mirror_name_of(m->config, repository, &n, NULL) < 0)
        return;
    /* The note counts at once, also before the row is written. */
    notes_put(&m->asked, proved_key(&n, d, key), PROVED_S, NULL, false);
    store_link_proved(m->store, n.full, d);
}

/* ---- sources ---- */

struct mirror_source {
    struct mirror *mirror;
    struct link link; /* keeps the origin's strings */
    struct digest digest;
    char way[LOOP_VALUE_MAX];
};

static int source_locate(void *ctx, struct http_location *ret, struct error *err)
{
    struct mirror_source *s = ctx;
    return oci_blob_location(s->mirror->oci, s->link.origin.repo_id, &s->digest, ret, err);
}

static int source_challenged(void *ctx, const char *sent, const struct http_response *r, char **ret,
                             struct error *err)
{
    struct mirror_source *s = ctx;
    return oci_blob_challenged(s->mirror->oci, s->link.origin.repo_id, sent, r, ret, err);
}

static void source_accepted(void *ctx, const char *sent)
{
    struct mirror_source *s = ctx;
    oci_blob_accepted(s->mirror->oci, s->link.origin.repo_id, sent);
}

static void source_release(void *ctx)
{
    struct mirror_source *s = ctx;
    link_done(&s->link);
    free(s);
}

int mirror_source(struct mirror *m, struct link *link, const struct digest *d,
                  struct transfer_source *ret, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    struct mirror_name n = {.name = link->origin.repo_id};
    snprintf(n.full, sizeof(n.full), "%.100s/%.150s", m->config->prefix, link->origin.repo_id);
    if (m->offline)
        return mirror_is_offline(m, digest_format(d, text), err);
    if (mirror_check_size(m->config, &n, d, link->size, err) < 0)
        return -1;
    struct mirror_source *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    s->mirror = m;
    s->link = *link;
    s->digest = *d;
    const struct loop loop = loop_get();
    *link = (struct link){0};
    *ret = (struct transfer_source){
        .upstream = m->config->prefix,
        .repository = s->link.origin.repo_id,
        .cdn_loop = loop_value(&loop, s->way),
        .pool = oci_pool(m->oci),
        .retries = m->config->retries,
        .max_connections = m->config->connections_per_blob,
        .locate = source_locate,
        .challenged = source_challenged,
        .accepted = source_accepted,
        .release = source_release,
        .ctx = s,
    };
    return 0;
}
