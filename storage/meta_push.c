/* A pushed or fetched manifest, with all that hangs on it, in one transaction. */
#include "storage/meta_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "storage/fault.h"

struct push_args {
    const struct push_record *r;
    uint64_t now_s;
    struct tag_cause cause;
    struct push_need *needs; /* by digest */
    struct strbuf referrer_row;
    /* Begun anew by each check. Room for all needs; each digest once, in order. */
    struct digest *used, *missing;
    size_t n_used, n_missing;
};

static int need_order(const void *a, const void *b)
{
    return digest_order(&((const struct push_need *)a)->digest,
                        &((const struct push_need *)b)->digest);
}

/* A child of an index: 1 and its size, 0 when no manifest of the repository has the digest, -1. */
static int find_manifest(struct meta *m, MDB_txn *txn, const char *repository,
                         const struct digest *d, uint64_t *ret_size, struct error *err)
{
    struct key k = key_of_content(repository, d);
    struct manifest_row row;
    MDB_val v;
    int r = db_view(m, txn, DB_MANIFESTS, &k, &v, err);
    if (r <= 0)
        return r;
    if (manifest_row_decode(v.mv_data, v.mv_size, &row, NULL) < 0)
        return 0; /* damaged: pushing it again repairs it */
    *ret_size = row.len;
    return 1;
}

/* 1 and its size when the bytes are here, 0, -1. */
static int find_held(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t *ret_size,
                     struct error *err)
{
    struct key k = key_of_digest(d);
    MDB_val v;
    int r = db_view(m, txn, DB_BLOBS, &k, &v, err);
    if (r == 1 && blob_row_decode(v.mv_data, v.mv_size, ret_size, NULL) < 0)
        return 0; /* damaged: as good as not held */
    return r;
}

static int find_blob(struct meta *m, MDB_txn *txn, const struct push_record *r,
                     const struct digest *d, uint64_t *ret_size, struct error *err)
{
    struct key link = key_of_content(r->repository, d);
    struct link_row row;
    MDB_val v;
    int found = db_view(m, txn, DB_LINKS, &link, &v, err);
    if (found <= 0)
        return found;
    if (link_row_decode(v.mv_data, v.mv_size, &row, NULL) < 0)
        return 0;
    /* Bytes that were hashed know their size better than a link does. */
    found = find_held(m, txn, d, ret_size, err);
    if (found != 0)
        return found;
    if (!r->is_mirror || row.n_origins == 0)
        return 0;
    *ret_size = row.size; /* perhaps not known */
    return 1;
}

static int find_need(struct meta *m, MDB_txn *txn, const struct push_record *r,
                     const struct push_need *need, uint64_t *ret_size, struct error *err)
{
    if (need->kind == NEED_CHILD) {
        int found = find_manifest(m, txn, r->repository, &need->digest, ret_size, err);
        if (found != 0)
            return found;
    }
    return find_blob(m, txn, r, &need->digest, ret_size, err);
}

static void add_once(struct digest *list, size_t *n, const struct digest *d)
{
    if (*n == 0 || !digest_equal(&list[*n - 1], d))
        list[(*n)++] = *d;
}

static int missing_error(const struct push_args *a, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    digest_format(&a->missing[0], text);
    if (a->n_missing == 1)
        return err_set(err, ERR_NOT_FOUND,
                       "%s has no %s, which the manifest references: push it "
                       "first",
                       a->r->repository, text);
    return err_set(err, ERR_NOT_FOUND,
                   "%s has no %s, nor %zu others that the manifest references: "
                   "push them first",
                   a->r->repository, text, a->n_missing - 1);
}

/* What was fetched needs nothing to be here; but what is here knows its size better. */
static int check_fetched(struct meta *m, MDB_txn *txn, struct push_args *a, struct error *err)
{
    const struct push_record *r = a->r;
    a->n_used = a->n_missing = 0;
    for (size_t i = 0; i < r->n_needs; i++) {
        const struct push_need *need = &a->needs[i];
        uint64_t size = 0;
        int found = 0;
        if (need->kind == NEED_CHILD)
            found = find_manifest(m, txn, r->repository, &need->digest, &size, err);
        if (found == 0)
            found = find_held(m, txn, &need->digest, &size, err);
        if (found < 0)
            return -1;
        if (found == 1 && size != need->size) {
            char text[DIGEST_TEXT_MAX], of[DIGEST_TEXT_MAX];
            return err_set(err, ERR_UPSTREAM,
                           "%s has %" PRIu64 " bytes, but its descriptor in the upstream's %s says "
                           "%" PRIu64,
                           digest_format(&need->digest, text), size, digest_format(&r->digest, of),
                           need->size);
        }
        add_once(a->used, &a->n_used, &need->digest);
    }
    return 0;
}

static int check_needs(struct meta *m, MDB_txn *txn, struct push_args *a, struct error *err)
{
    a->n_used = a->n_missing = 0;
    for (size_t i = 0; i < a->r->n_needs; i++) {
        const struct push_need *need = &a->needs[i];
        uint64_t size = 0;
        int found = find_need(m, txn, a->r, need, &size, err);
        if (found < 0)
            return -1;
        if (found == 0) {
            if (need->kind != NEED_OPTIONAL)
                add_once(a->missing, &a->n_missing, &need->digest);
            continue;
        }
        if (size != need->size && size != LINK_SIZE_UNKNOWN) {
            char text[DIGEST_TEXT_MAX];
            return err_set(err, ERR_INVALID,
                           "%s has %" PRIu64 " bytes, but its descriptor in the manifest says "
                           "%" PRIu64,
                           digest_format(&need->digest, text), size, need->size);
        }
        add_once(a->used, &a->n_used, &need->digest);
    }
    return a->n_missing ? missing_error(a, err) : 0;
}

static int check_tag(struct meta *m, MDB_txn *txn, const struct push_record *r, const char *tag,
                     struct error *err)
{
    struct key k = key_of_tag(r->repository, tag);
    struct tag now;
    MDB_val v;
    char text[DIGEST_TEXT_MAX];
    int found = db_view(m, txn, DB_TAGS, &k, &v, err);
    if (found <= 0)
        return found;
    if (tag_row_decode(v.mv_data, v.mv_size, &now, NULL) < 0 ||
        digest_equal(&now.digest, &r->digest))
        return 0;
    if (!r->guard->is_immutable(r->guard->ctx, r->repository, tag))
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "%s:%s is an immutable tag (immutable_tags) and points at %s: push under "
                   "another tag",
                   r->repository, tag, digest_format(&now.digest, text));
}

static int check_push(struct meta *m, MDB_txn *txn, struct push_args *a, struct error *err)
{
    for (size_t i = 0; a->r->guard && i < a->r->n_tags; i++)
        if (check_tag(m, txn, a->r, a->r->tags[i], err) < 0)
            return -1;
    return a->r->origin ? check_fetched(m, txn, a, err) : check_needs(m, txn, a, err);
}

/* What was fetched can be had where the manifest was. */
static int put_links(struct meta *m, MDB_txn *txn, const struct push_args *a, struct error *err)
{
    for (size_t i = 0; a->r->origin && i < a->r->n_needs; i++)
        if (a->needs[i].kind != NEED_CHILD &&
            link_put(m, txn, a->r->repository, &a->needs[i].digest, a->needs[i].size, a->r->origin,
                     true, err) < 0)
            return -1;
    return 0;
}

/* The manifest takes the place of the blobs' holds. */
static int put_uses(struct meta *m, MDB_txn *txn, const struct push_args *a, struct error *err)
{
    for (size_t i = 0; i < a->n_used; i++) {
        struct key use = key_of_use(&a->used[i], a->r->repository, &a->r->digest);
        if (db_put(m, txn, DB_USES, &use, NULL, err) < 0 ||
            hold_drop(m, txn, a->r->repository, &a->used[i], err) < 0)
            return -1;
    }
    return 0;
}

static int put_manifest(struct meta *m, MDB_txn *txn, const struct push_args *a, struct error *err)
{
    const struct push_record *r = a->r;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_content(r->repository, &r->digest);
    struct manifest_row old, value = {.media_type = r->media_type,
                                      .commit = "",
                                      .bytes = r->manifest,
                                      .len = r->len,
                                      .n_needs = a->n_used};
    MDB_val v;
    int found = db_view(m, txn, DB_MANIFESTS, &k, &v, err);
    if (found < 0)
        return -1;
    /* What an import said of it stays true. */
    if (found == 1 && manifest_row_decode(v.mv_data, v.mv_size, &old, NULL) == 0)
        value.commit = old.commit;
    if (r->subject)
        value.subject = *r->subject;
    manifest_row_encode(&row, &value, a->used);
    return manifest_put(m, txn, r->repository, &r->digest, &row, a->used, a->n_used, err);
}

static int put_repository(struct meta *m, MDB_txn *txn, const struct push_record *p,
                          struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct repository_row repository = {{0}, {0}};
    struct key k = KEY_INIT;
    key_put_text(&k, p->repository);
    int r = p->origin ? 0 : db_has(m, txn, DB_REPOSITORIES, &k, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (p->origin) {
        memcpy(repository.upstream, p->origin->upstream, strlen(p->origin->upstream) + 1);
        memcpy(repository.repo_id, p->origin->repo_id, strlen(p->origin->repo_id) + 1);
    }
    repository_row_encode(&row, &repository);
    return db_put(m, txn, DB_REPOSITORIES, &k, &row, err);
}

static int run_push(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    struct push_args *a = arg;
    const struct push_record *r = a->r;
    if (check_push(m, txn, a, err) < 0 || put_links(m, txn, a, err) < 0 ||
        put_uses(m, txn, a, err) < 0 || put_manifest(m, txn, a, err) < 0 ||
        put_repository(m, txn, r, err) < 0)
        return -1;
    if (r->subject) {
        struct key k = key_of_referrer(r->repository, r->subject, &r->digest);
        if (db_put(m, txn, DB_REFERRERS, &k, &a->referrer_row, err) < 0)
            return -1;
    }
    struct tag tag = {.digest = r->digest, .checked_at = a->now_s};
    for (size_t i = 0; i < r->n_tags; i++)
        if (tag_move(m, txn, r->repository, r->tags[i], &tag, &a->cause, err) < 0)
            return -1;
    fault_point("push.rows");
    return 0;
}

static int push_prepare(struct push_args *a, struct error *err)
{
    const struct push_record *r = a->r;
    a->needs = calloc(r->n_needs + 1, sizeof(*a->needs));
    a->used = calloc(r->n_needs + 1, sizeof(*a->used));
    a->missing = calloc(r->n_needs + 1, sizeof(*a->missing));
    if (!a->needs || !a->used || !a->missing)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (r->n_needs) {
        memcpy(a->needs, r->needs, r->n_needs * sizeof(*a->needs));
        qsort(a->needs, r->n_needs, sizeof(*a->needs), need_order);
    }
    if (r->subject)
        referrer_row_encode(
            &a->referrer_row,
            &(struct referrer_row){.size = r->len,
                                   .media_type = r->media_type,
                                   .artifact_type = r->artifact_type,
                                   .annotations = r->annotations,
                                   .annotations_len = r->annotations ? r->annotations_len : 0});
    return 0;
}

/* A push that must fail is found out from a snapshot first: on the writing thread it would cost its
 * neighbours their common transaction. */
static int check_first(struct meta *m, struct push_args *a, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    return meta_read_begin(m, &txn, err) < 0 ? -1 : check_push(m, txn, a, err);
}

int meta_manifest_push(struct meta *m, const struct push_record *r, struct digest_list *ret_missing,
                       struct error *err)
{
    struct error local = ERROR_INIT;
    if (!err)
        err = &local; /* its code says whether there is something missing */
    struct push_args a = {
        .r = r,
        .now_s = clock_wall_s(),
        .cause = {.source = r->source, .at_ms = history_now_ms()},
    };
    int rc = push_prepare(&a, err);
    if (rc == 0)
        rc = check_first(m, &a, err);
    if (rc == 0)
        rc = meta_write_large(m, run_push, &a, r->len + a.referrer_row.len, err);
    if (rc < 0 && err->code == ERR_NOT_FOUND)
        *ret_missing = (struct digest_list){.items = TAKE_PTR(a.missing), .n = a.n_missing};
    free(a.needs);
    free(a.used);
    free(a.missing);
    strbuf_done(&a.referrer_row);
    return rc;
}
