/* Finding and dropping what nothing refers to, and digests that an upstream got wrong. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Rows that one read transaction looks at: it must not stay open for long. */
#define SCAN_MAX 10000u

struct dead_ctx {
    struct meta *m;
    MDB_txn *txn;
    struct dead_blobs *d;
    size_t seen;
    const struct digest *after;
    uint64_t cutoff_s;
    bool more;
};

static int visit_blob(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct dead_ctx *c = arg;
    struct digest d;
    enum blob_need need;
    if (key_get_digest(k->mv_data, k->mv_size, &d) != k->mv_size)
        return 0;
    if (c->after && digest_equal(c->after, &d))
        return 0;
    if (c->d->n == c->d->limit || c->seen == SCAN_MAX) {
        c->more = true;
        return 1;
    }
    c->seen++;
    c->d->next = d;
    if (blob_needed(c->m, c->txn, &d, c->cutoff_s, &need, err) < 0)
        return -1;
    if (need != BLOB_DEAD) {
        c->d->held += need == BLOB_HELD;
        return 0;
    }
    uint64_t size;
    if (blob_row_decode(v->mv_data, v->mv_size, &size, NULL) < 0)
        size = 0;
    c->d->blobs[c->d->n++] = (struct dead_blob){.digest = d, .size = size};
    return 0;
}

int meta_dead_blobs(struct meta *m, const struct digest *after, uint64_t cutoff_s,
                    struct dead_blobs *d, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key all = KEY_INIT, from = KEY_INIT;
    struct dead_ctx c = {.m = m, .d = d, .after = after, .cutoff_s = cutoff_s};
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    c.txn = txn;
    d->n = 0;
    d->held = 0;
    if (after)
        from = key_of_digest(after);
    if (db_each(m, txn, DB_BLOBS, &all, &from, visit_blob, &c, err) < 0)
        return -1;
    return c.more;
}

int meta_is_needed(struct meta *m, const struct digest *d, uint64_t cutoff_s, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    enum blob_need need;
    if (meta_read_begin(m, &txn, err) < 0 || blob_needed(m, txn, d, cutoff_s, &need, err) < 0)
        return -1;
    return need != BLOB_DEAD;
}

struct doom_args {
    const struct dead_blob *blobs;
    size_t n;
};

static struct incoming_row removal_of(const struct dead_blob *b)
{
    return (struct incoming_row){
        .kind = INCOMING_REMOVAL, .digest = b->digest, .size = b->size, .created = clock_wall_s()};
}

static int run_doom(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct doom_args *a = arg;
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    for (size_t i = 0; i < a->n; i++) {
        struct incoming_row row = removal_of(&a->blobs[i]);
        struct key k;
        incoming_key(&row, &k);
        strbuf_reset(&value);
        incoming_row_encode(&value, &row);
        if (blob_row_drop(m, txn, &a->blobs[i].digest, err) < 0 ||
            db_put(m, txn, DB_INCOMING, &k, &value, err) < 0)
            return -1;
    }
    return 0;
}

int meta_blobs_doom(struct meta *m, const struct dead_blob *blobs, size_t n, struct error *err)
{
    struct doom_args a = {.blobs = blobs, .n = n};
    return meta_write(m, run_doom, &a, err);
}

static int run_gone(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct doom_args *a = arg;
    for (size_t i = 0; i < a->n; i++) {
        struct incoming_row row = removal_of(&a->blobs[i]);
        struct key k;
        incoming_key(&row, &k);
        if (db_delete(m, txn, DB_INCOMING, &k, err) < 0)
            return -1;
    }
    return 0;
}

int meta_blobs_gone(struct meta *m, const struct dead_blob *blobs, size_t n, struct error *err)
{
    struct doom_args a = {.blobs = blobs, .n = n};
    return meta_write(m, run_gone, &a, err);
}

/* ---- tidying ---- */

struct tidy_ctx {
    struct meta *m;
    MDB_txn *txn;
    uint64_t now;
    uint64_t blob_bytes;
    struct digest *used; /* key hashes of commits that something refers to */
    size_t n_used, cap_used;
    struct key_list keys;
};

static int mark_commit(struct tidy_ctx *c, const char *upstream, const char *repo_id,
                       const char *commit, struct error *err)
{
    struct key k;
    if (!*commit)
        return 0;
    if (key_of_commit(upstream, repo_id, commit, &k, err) < 0)
        return -1;
    struct digest d = {.alg = DIGEST_SHA256};
    memcpy(d.raw, k.data, k.len);
    /* rows of one import lie beside each other: this keeps the list short */
    for (size_t i = c->n_used; i > 0 && i + 8 > c->n_used; i--)
        if (digest_equal(&c->used[i - 1], &d))
            return 0;
    if (c->n_used == c->cap_used) {
        size_t cap = c->cap_used ? c->cap_used * 2 : 64;
        struct digest *used = reallocarray(c->used, cap, sizeof(*used));
        if (!used)
            return err_set(err, ERR_NOMEM, "out of memory");
        c->used = used;
        c->cap_used = cap;
    }
    c->used[c->n_used++] = d;
    return 0;
}

static int visit_origins(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)k;
    struct link_row row;
    if (link_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    for (size_t i = 0; i < row.n_origins; i++)
        if (mark_commit(arg, row.origins[i].upstream, row.origins[i].repo_id, row.origins[i].commit,
                        err) < 0)
            return -1;
    return 0;
}

/* Manifests and tags name their commit, the repository's row says whose it is. */
static int mark_of_repository(struct tidy_ctx *c, const MDB_val *k, const char *commit,
                              struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct repository_row repository;
    struct key repo = KEY_INIT;
    const char *name = k->mv_data;
    key_put(&repo, name, strnlen(name, k->mv_size));
    int r = db_get(c->m, c->txn, DB_REPOSITORIES, &repo, &row, err);
    if (r < 0)
        return -1;
    if (r == 0 || repository_row_decode(row.data, row.len, &repository, NULL) < 0)
        return 0;
    return mark_commit(c, repository.upstream, repository.repo_id, commit, err);
}

static int visit_manifest(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct manifest_row row;
    if (manifest_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    return mark_of_repository(arg, k, row.commit, err);
}

static int visit_tag(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct tag row;
    if (tag_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    return mark_of_repository(arg, k, row.commit, err);
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(((const struct digest *)a)->raw, ((const struct digest *)b)->raw,
                  digest_size(DIGEST_SHA256));
}

static bool is_used(const struct tidy_ctx *c, const struct digest *key)
{
    return c->n_used && bsearch(key, c->used, c->n_used, sizeof(*key), compare_digests);
}

static int pick(struct tidy_ctx *c, const MDB_val *k, struct error *err)
{
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int visit_commit(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct tidy_ctx *c = arg;
    struct digest d = {.alg = DIGEST_SHA256};
    if (k->mv_size == digest_size(DIGEST_SHA256)) {
        memcpy(d.raw, k->mv_data, k->mv_size);
        if (is_used(c, &d))
            return 0;
    }
    struct commit_row row;
    if (commit_row_decode(v->mv_data, v->mv_size, &row, NULL) == 0) {
        int r = hub_commit_is_known(c->m, c->txn, row.upstream, row.repo_id, row.commit, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return pick(c, k, err);
}

static int visit_mismatch(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct tidy_ctx *c = arg;
    uint64_t until;
    if (number_row_decode(ROW_MISMATCH, v->mv_data, v->mv_size, &until, NULL) == 0 &&
        until > c->now)
        return 0;
    return pick(c, k, err);
}

/* What an upstream told of a subject that is not here: asking for it again brings it back. */
static int visit_told(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct tidy_ctx *c = arg;
    struct digest subject, manifest;
    bool is_told;
    const char *at = memchr(k->mv_data, '\0', k->mv_size);
    size_t left = at ? k->mv_size - (size_t)(at + 1 - (const char *)k->mv_data) : 0;
    size_t n = at ? key_get_digest(++at, left, &subject) : 0;
    if (!n || !key_get_referrer(at + n, left - n, &manifest, &is_told) || !is_told)
        return 0;
    struct key subject_key = key_of_content(k->mv_data, &subject);
    int r = db_has(c->m, c->txn, DB_MANIFESTS, &subject_key, err);
    return r != 0 ? (r < 0 ? -1 : 0) : pick(c, k, err);
}

static int visit_size(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)k, (void)err;
    struct tidy_ctx *c = arg;
    uint64_t size;
    if (blob_row_decode(v->mv_data, v->mv_size, &size, NULL) == 0)
        c->blob_bytes += size;
    return 0;
}

/* Picks rows of one kind and deletes them. */
static int sweep(struct tidy_ctx *c, enum db db, const struct key *prefix, db_visit *visit,
                 struct error *err)
{
    strbuf_reset(&c->keys.data);
    if (db_each(c->m, c->txn, db, prefix, NULL, visit, c, err) < 0)
        return -1;
    return db_delete_list(c->m, c->txn, db, &c->keys, err);
}

/* The commits whose file lists imports need. */
static int find_used(struct tidy_ctx *c, struct error *err)
{
    struct key all = KEY_INIT;
    if (db_each(c->m, c->txn, DB_LINKS, &all, NULL, visit_origins, c, err) < 0 ||
        db_each(c->m, c->txn, DB_MANIFESTS, &all, NULL, visit_manifest, c, err) < 0 ||
        db_each(c->m, c->txn, DB_TAGS, &all, NULL, visit_tag, c, err) < 0)
        return -1;
    if (c->n_used)
        qsort(c->used, c->n_used, sizeof(*c->used), compare_digests);
    return 0;
}

static int tidy(struct tidy_ctx *c, struct error *err)
{
    struct key all = KEY_INIT;
    if (find_used(c, err) < 0 || sweep(c, DB_COMMITS, &all, visit_commit, err) < 0 ||
        sweep(c, DB_MISMATCHES, &all, visit_mismatch, err) < 0 ||
        sweep(c, DB_REFERRERS, &all, visit_told, err) < 0)
        return -1;
    if (history_sweep(c->m, c->txn, history_now_ms(), err) < 0 ||
        db_each(c->m, c->txn, DB_BLOBS, &all, NULL, visit_size, c, err) < 0)
        return -1;
    return blob_bytes_set(c->m, c->txn, c->blob_bytes, err);
}

static int run_tidy(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    (void)arg;
    struct tidy_ctx c = {.m = m, .txn = txn, .now = clock_wall_s(), .keys = KEY_LIST_INIT};
    int r = tidy(&c, err);
    free(c.used);
    key_list_done(&c.keys);
    return r;
}

int commit_is_used(struct meta *m, MDB_txn *txn, const struct key *list, struct error *err)
{
    struct tidy_ctx c = {.m = m, .txn = txn};
    struct digest d = {.alg = DIGEST_SHA256};
    memcpy(d.raw, list->data, list->len);
    int r = find_used(&c, err) < 0 ? -1 : is_used(&c, &d);
    free(c.used);
    return r;
}

int meta_tidy(struct meta *m, struct error *err)
{
    return meta_write(m, run_tidy, NULL, err);
}

/* ---- mismatches ---- */

struct mismatch_args {
    struct digest digest;
    struct lent to;
    uint64_t until;
};

static const struct name_id *repository_of(const struct mismatch_args *a, unsigned i)
{
    return a->to.all ? NULL : &a->to.to[i];
}

/* Those of this digest that have run out: the repositories may never ask again. */
static int drop_old_mismatches(struct meta *m, MDB_txn *txn, const struct digest *d,
                               struct error *err)
{
    struct tidy_ctx c = {.m = m, .txn = txn, .now = clock_wall_s(), .keys = KEY_LIST_INIT};
    struct key prefix = key_of_digest(d);
    int r = sweep(&c, DB_MISMATCHES, &prefix, visit_mismatch, err);
    key_list_done(&c.keys);
    return r;
}

static int run_mismatch_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct mismatch_args *a = arg;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    if (drop_old_mismatches(m, txn, &a->digest, err) < 0)
        return -1;
    number_row_encode(&row, ROW_MISMATCH, a->until);
    for (unsigned i = 0; i < (a->to.all ? 1 : a->to.n); i++) {
        struct key k = key_of_mismatch(&a->digest, repository_of(a, i));
        if (db_put(m, txn, DB_MISMATCHES, &k, &row, err) < 0)
            return -1;
    }
    return 0;
}

int meta_mismatch_put(struct meta *m, const struct digest *d, const struct lent *to, uint64_t until,
                      struct error *err)
{
    struct mismatch_args a = {.digest = *d, .to = *to, .until = until};
    return lent_is_empty(to) ? 0 : meta_write(m, run_mismatch_put, &a, err);
}

/* Looks again: a new mismatch may have moved the end meanwhile. */
static int run_mismatch_expire(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct mismatch_args *a = arg;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_mismatch(&a->digest, repository_of(a, 0));
    uint64_t until;
    int r = db_get(m, txn, DB_MISMATCHES, &k, &row, err);
    if (r <= 0)
        return r;
    if (number_row_decode(ROW_MISMATCH, row.data, row.len, &until, NULL) == 0 &&
        until > clock_wall_s())
        return 0;
    return db_delete(m, txn, DB_MISMATCHES, &k, err) < 0 ? -1 : 0;
}

void meta_mismatch_expire_later(struct meta *m, const struct digest *d,
                                const struct name_id *repository)
{
    struct mismatch_args *a = calloc(1, sizeof(*a));
    if (!a)
        return;
    a->digest = *d;
    a->to.all = !repository;
    if (repository)
        a->to.to[0] = *repository;
    meta_write_later(m, run_mismatch_expire, a, free);
}
