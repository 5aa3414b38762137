/* Commits that a Hub's own API served: their file lists, and the blobs that are kept for them.
 *
 * A commit has a row of its own from the first that was stored of it, and one key for each blob
 * that it keeps; the same the other way round (hub_uses) tells the collector that the blob is
 * needed. Both are written, and go, together. They are no uses: those are for the manifests of
 * repositories, and this is about none. */
#include "storage/meta_private.h"

#include <stdio.h>
#include <string.h>

struct commit_args {
    const char *upstream, *id, *commit;
    const struct digest *digest;
    struct key repository, key; /* of the Hub's repository; of the commit */
    struct key list_key;
    struct strbuf row, list_row;
};

static int commit_args_make(struct commit_args *a, struct error *err)
{
    if (key_of_hub(a->upstream, a->id, &a->repository, err) < 0)
        return -1;
    a->key = a->repository;
    key_put_text(&a->key, a->commit);
    hub_commit_row_encode(&a->row, &(struct hub_commit_row){
                                       .upstream = a->upstream, .id = a->id, .commit = a->commit});
    return 0;
}

static void commit_args_done(struct commit_args *a)
{
    strbuf_done(&a->row);
    strbuf_done(&a->list_row);
}
#define _cleanup_commit_ _cleanup_(commit_args_done)

int hub_commit_is_known(struct meta *m, MDB_txn *txn, const char *upstream, const char *id,
                        const char *commit, struct error *err)
{
    struct key k;
    if (key_of_hub(upstream, id, &k, err) < 0)
        return -1;
    key_put_text(&k, commit);
    return db_has(m, txn, DB_HUB_COMMITS, &k, err);
}

static int put_commit(struct meta *m, MDB_txn *txn, const struct commit_args *a, struct error *err)
{
    int r = db_has(m, txn, DB_HUB_COMMITS, &a->key, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return db_put(m, txn, DB_HUB_COMMITS, &a->key, &a->row, err);
}

/* ---- file lists ---- */

/* 1 a list of this commit that can be read is stored, 0, -1. */
static int has_list(struct meta *m, MDB_txn *txn, const struct commit_args *a, struct error *err)
{
    struct commit_row row = {0};
    MDB_val v;
    int r = db_view(m, txn, DB_COMMITS, &a->list_key, &v, err);
    if (r <= 0)
        return r;
    return commit_row_decode(v.mv_data, v.mv_size, &row, NULL) == 0 &&
           strcmp(row.upstream, a->upstream) == 0 && strcmp(row.repo_id, a->id) == 0 &&
           strcmp(row.commit, a->commit) == 0;
}

static int run_files_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct commit_args *a = arg;
    int r = has_list(m, txn, a, err);
    if (r < 0 || (r == 0 && db_put(m, txn, DB_COMMITS, &a->list_key, &a->list_row, err) < 0))
        return -1;
    return put_commit(m, txn, a, err);
}

/* 1: nothing would be written. */
static int files_are_put(struct meta *m, const struct commit_args *a, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_has(m, txn, DB_HUB_COMMITS, &a->key, err);
    return r == 1 ? has_list(m, txn, a, err) : r;
}

int meta_hub_files_put(struct meta *m, const char *upstream, const char *id, const char *commit,
                       const struct commit_file *files, size_t n, struct error *err)
{
    _cleanup_commit_ struct commit_args a = {.upstream = upstream, .id = id, .commit = commit};
    if (commit_args_make(&a, err) < 0 || key_of_commit(upstream, id, commit, &a.list_key, err) < 0)
        return -1;
    int r = files_are_put(m, &a, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    commit_row_encode(&a.list_row, upstream, id, commit, files, n);
    if (strbuf_failed(&a.list_row))
        return err_set(err, ERR_NOMEM, "out of memory");
    return meta_write_large(m, run_files_put, &a, a.list_row.len, err);
}

/* ---- blobs ---- */

static int run_keep(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct commit_args *a = arg;
    struct key file = key_of_hub_file(&a->key, a->digest), use = key_of_hub_use(a->digest, &a->key);
    if (put_commit(m, txn, a, err) < 0 || db_put(m, txn, DB_HUB_COMMITS, &file, NULL, err) < 0)
        return -1;
    return db_put(m, txn, DB_HUB_USES, &use, NULL, err);
}

int meta_hub_keep(struct meta *m, const char *upstream, const char *id, const char *commit,
                  const struct digest *d, struct error *err)
{
    _cleanup_commit_ struct commit_args a = {
        .upstream = upstream, .id = id, .commit = commit, .digest = d};
    if (commit_args_make(&a, err) < 0)
        return -1;
    {
        _cleanup_txn_ MDB_txn *txn = NULL;
        struct key file = key_of_hub_file(&a.key, d), use = key_of_hub_use(d, &a.key);
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = db_has(m, txn, DB_HUB_USES, &use, err);
        if (r == 1)
            r = db_has(m, txn, DB_HUB_COMMITS, &file, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return meta_write(m, run_keep, &a, err);
}

/* ---- forgetting ---- */

static int drop_files(struct meta *m, MDB_txn *txn, const struct commit_args *a, struct error *err)
{
    _cleanup_key_list_ struct key_list keys = KEY_LIST_INIT;
    struct digest d;
    struct key k;
    if (db_pick(m, txn, DB_HUB_COMMITS, &a->key, &keys, err) < 0)
        return -1;
    for (size_t pos = 0; key_list_next(&keys, &pos, &k);) {
        if (key_get_digest(k.data + a->key.len, k.len - a->key.len, &d) == 0)
            continue; /* the commit's own row */
        struct key use = key_of_hub_use(&d, &a->key);
        if (db_delete(m, txn, DB_HUB_USES, &use, err) < 0)
            return -1;
    }
    return db_delete_list(m, txn, DB_HUB_COMMITS, &keys, err);
}

struct pins_ctx {
    const char *commit;
    struct key_list keys;
};

static int visit_pin(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct pins_ctx *c = arg;
    struct hub_pin_row row = {0};
    if (hub_pin_row_decode(v->mv_data, v->mv_size, &row, NULL) == 0 &&
        strcmp(row.commit, c->commit) != 0)
        return 0;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int drop_pins(struct meta *m, MDB_txn *txn, const struct commit_args *a, struct error *err)
{
    struct pins_ctx c = {.commit = a->commit, .keys = KEY_LIST_INIT};
    int r = db_each(m, txn, DB_HUB_PINS, &a->repository, NULL, visit_pin, &c, err);
    if (r == 0)
        r = db_delete_list(m, txn, DB_HUB_PINS, &c.keys, err);
    key_list_done(&c.keys);
    return r;
}

static int drop_documents(struct meta *m, MDB_txn *txn, const struct commit_args *a,
                          struct error *err)
{
    struct key prefix = key_of_documents(&a->repository, a->commit);
    return db_delete_prefix(m, txn, DB_HUB_DOCUMENTS, &prefix, err);
}

/* Objects are the repository's, whatever commits have them: they go with its last one. */
static int drop_objects(struct meta *m, MDB_txn *txn, const struct commit_args *a,
                        struct error *err)
{
    int r = db_has_prefix(m, txn, DB_HUB_COMMITS, &a->repository, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return db_delete_prefix(m, txn, DB_HUB_OBJECTS, &a->repository, err);
}

/* The file list may be an import's: then a collection takes it when the import has gone. */
static int drop_list(struct meta *m, MDB_txn *txn, const struct commit_args *a, struct error *err)
{
    int r = commit_is_used(m, txn, &a->list_key, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return db_delete(m, txn, DB_COMMITS, &a->list_key, err) < 0 ? -1 : 0;
}

static int run_forget(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct commit_args *a = arg;
    if (drop_files(m, txn, a, err) < 0 || drop_list(m, txn, a, err) < 0 ||
        drop_documents(m, txn, a, err) < 0 || drop_pins(m, txn, a, err) < 0)
        return -1;
    return drop_objects(m, txn, a, err);
}

int meta_hub_forget(struct meta *m, const char *upstream, const char *id, const char *commit,
                    struct error *err)
{
    _cleanup_commit_ struct commit_args a = {.upstream = upstream, .id = id, .commit = commit};
    if (commit_args_make(&a, err) < 0 || key_of_commit(upstream, id, commit, &a.list_key, err) < 0)
        return -1;
    return meta_write(m, run_forget, &a, err);
}

/* ---- by the registry's name ---- */

struct find_ctx {
    const char *repository, *commit;
    struct hub_commit *ret;
    bool is_found;
};

/* 1: this row is of the commit, and its key begins as all of that repository do, which
 * meta_hub_forget() takes away; 0, -1. */
static int is_sought(const struct find_ctx *c, const struct hub_commit_row *row, struct key *ret,
                     struct error *err)
{
    char name[2 * REPOSITORY_MAX + 2], lower[REPOSITORY_MAX + 1];
    if (strcmp(row->commit, c->commit) != 0 || strlen(row->upstream) > REPOSITORY_MAX ||
        strlen(row->id) > REPOSITORY_MAX)
        return 0;
    snprintf(name, sizeof(name), "%s/%s", row->upstream, row->id);
    if (!ascii_lower(name, lower, sizeof(lower)) || strcmp(lower, c->repository) != 0)
        return 0;
    return key_of_hub(row->upstream, row->id, ret, err) < 0 ? -1 : 1;
}

static int take(struct find_ctx *c, const struct hub_commit_row *row)
{
    snprintf(c->ret->upstream, sizeof(c->ret->upstream), "%s", row->upstream);
    snprintf(c->ret->id, sizeof(c->ret->id), "%s", row->id);
    c->is_found = true;
    return 1;
}

static bool begins_with(const MDB_val *k, const struct key *prefix)
{
    return k->mv_size >= prefix->len && memcmp(k->mv_data, prefix->data, prefix->len) == 0;
}

static int visit_commit(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct find_ctx *c = arg;
    struct hub_commit_row row = {0};
    struct key own;
    if (v->mv_size == 0 || hub_commit_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    int r = is_sought(c, &row, &own, err);
    if (r <= 0)
        return r;
    key_put_text(&own, row.commit);
    return k->mv_size == own.len && begins_with(k, &own) ? take(c, &row) : 0;
}

/* Of a commit that was only asked about, nothing else may be stored. */
static int visit_document(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct find_ctx *c = arg;
    struct hub_document_row row = {0};
    struct key repository;
    if (hub_document_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    const struct hub_commit_row commit = {
        .upstream = row.upstream, .id = row.id, .commit = row.commit};
    int r = is_sought(c, &commit, &repository, err);
    if (r <= 0)
        return r;
    const struct key own = key_of_documents(&repository, row.commit);
    return begins_with(k, &own) ? take(c, &commit) : 0;
}

int meta_hub_find(struct meta *m, const char *repository, const char *commit,
                  struct hub_commit *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key all = KEY_INIT;
    struct find_ctx c = {.repository = repository, .commit = commit, .ret = ret};
    if (meta_read_begin(m, &txn, err) < 0 ||
        db_each(m, txn, DB_HUB_COMMITS, &all, NULL, visit_commit, &c, err) < 0 ||
        (!c.is_found && db_each(m, txn, DB_HUB_DOCUMENTS, &all, NULL, visit_document, &c, err) < 0))
        return -1;
    return c.is_found;
}
