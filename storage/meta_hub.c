/* What a Hub said, for its own API: what names and revisions mean, documents, git objects. A row
 * that is damaged, or another one's, is as good as none: asking the Hub writes it anew. */
#include "storage/meta_private.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static bool same(const char *of_row, const char *wanted)
{
    return of_row && strcmp(of_row, wanted) == 0;
}

/* ---- what a name means ---- */

/* 1 the row of this name (its strings are the map's own), 0, -1. */
static int view_name(struct meta *m, MDB_txn *txn, const struct key *k, struct hub_name_row *ret,
                     struct error *err)
{
    MDB_val v;
    int r = db_view(m, txn, DB_HUB_NAMES, k, &v, err);
    return r == 1 && hub_name_row_decode(v.mv_data, v.mv_size, ret, NULL) < 0 ? 0 : r;
}

int meta_hub_name_get(struct meta *m, const char *upstream, const char *name, struct hub_name *ret,
                      struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct hub_name_row row = {0};
    struct key k;
    if (key_of_hub(upstream, name, &k, err) < 0 || meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = view_name(m, txn, &k, &row, err);
    if (r <= 0)
        return r;
    if (!same(row.upstream, upstream) || !same(row.name, name))
        return 0;
    ret->checked_at = row.checked_at;
    snprintf(ret->id, sizeof(ret->id), "%s", row.id); /* decoding has seen to its length */
    return 1;
}

/* From an id to its names: so dropping a repository finds them. Begins with the id's own key. */
static struct key key_of_named(const struct key *id, const struct key *name)
{
    struct key k = *id;
    key_put(&k, name->data, name->len);
    return k;
}

/* The other way round: which name such a key is about. */
static bool get_named(const struct key *k, const struct key *id, struct key *ret_name)
{
    if (k->len <= id->len)
        return false;
    *ret_name = KEY_INIT;
    key_put(ret_name, k->data + id->len, k->len - id->len);
    return true;
}

/* ---- what a revision means ---- */

/* 1 the row of this revision (its strings are the map's own), 0, -1. */
static int view_pin(struct meta *m, MDB_txn *txn, const struct key *k, struct hub_pin_row *ret,
                    struct error *err)
{
    MDB_val v;
    int r = db_view(m, txn, DB_HUB_PINS, k, &v, err);
    return r == 1 && hub_pin_row_decode(v.mv_data, v.mv_size, ret, NULL) < 0 ? 0 : r;
}

static int key_of_pin(const char *upstream, const char *id, const char *revision, struct key *ret,
                      struct error *err)
{
    if (key_of_hub(upstream, id, ret, err) < 0)
        return -1;
    key_put_text(ret, revision);
    return 0;
}

int meta_hub_pin_get(struct meta *m, const char *upstream, const char *id, const char *revision,
                     struct hub_pin *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct hub_pin_row row = {0};
    struct key k;
    if (key_of_pin(upstream, id, revision, &k, err) < 0 || meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = view_pin(m, txn, &k, &row, err);
    if (r <= 0)
        return r;
    if (!same(row.upstream, upstream) || !same(row.id, id) || !same(row.revision, revision))
        return 0;
    ret->checked_at = row.checked_at;
    snprintf(ret->commit, sizeof(ret->commit), "%s", row.commit);
    return 1;
}

struct pin_args {
    const char *upstream, *id;
    struct key id_key, name_key, pin_key; /* name_key.len 0: no name */
    struct strbuf name_row, pin_row;
};

static int put_name(struct meta *m, MDB_txn *txn, const struct pin_args *a, struct error *err)
{
    struct hub_name_row old = {0};
    struct key old_id, named = key_of_named(&a->id_key, &a->name_key);
    int r = view_name(m, txn, &a->name_key, &old, err);
    if (r < 0)
        return -1;
    if (r == 1 && !same(old.id, a->id)) {
        if (key_of_hub(a->upstream, old.id, &old_id, err) < 0)
            return -1;
        struct key old_named = key_of_named(&old_id, &a->name_key);
        if (db_delete(m, txn, DB_HUB_NAMES, &old_named, err) < 0)
            return -1;
    }
    if (db_put(m, txn, DB_HUB_NAMES, &a->name_key, &a->name_row, err) < 0)
        return -1;
    return db_put(m, txn, DB_HUB_NAMES, &named, NULL, err);
}

static int run_pin_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct pin_args *a = arg;
    if (a->name_key.len && put_name(m, txn, a, err) < 0)
        return -1;
    return db_put(m, txn, DB_HUB_PINS, &a->pin_key, &a->pin_row, err);
}

static int pin_encode(struct pin_args *a, const char *name, const char *revision,
                      const char *commit, struct error *err)
{
    uint64_t now = clock_wall_s();
    if (key_of_hub(a->upstream, a->id, &a->id_key, err) < 0)
        return -1;
    a->pin_key = a->id_key;
    key_put_text(&a->pin_key, revision);
    hub_pin_row_encode(&a->pin_row, &(struct hub_pin_row){.upstream = a->upstream,
                                                          .id = a->id,
                                                          .revision = revision,
                                                          .commit = commit,
                                                          .checked_at = now});
    if (!name)
        return 0;
    hub_name_row_encode(&a->name_row,
                        &(struct hub_name_row){
                            .upstream = a->upstream, .name = name, .id = a->id, .checked_at = now});
    return key_of_hub(a->upstream, name, &a->name_key, err);
}

int meta_hub_pin_put(struct meta *m, const char *upstream, const char *name, const char *id,
                     const char *revision, const char *commit, struct error *err)
{
    struct pin_args a = {.upstream = upstream, .id = id, .name_key = KEY_INIT};
    int r = pin_encode(&a, name, revision, commit, err);
    if (r == 0)
        r = meta_write(m, run_pin_put, &a, err);
    strbuf_done(&a.name_row);
    strbuf_done(&a.pin_row);
    return r;
}

static int run_pin_drop(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    return db_delete(m, txn, DB_HUB_PINS, arg, err) < 0 ? -1 : 0;
}

int meta_hub_pin_drop(struct meta *m, const char *upstream, const char *id, const char *revision,
                      struct error *err)
{
    struct key k;
    if (key_of_pin(upstream, id, revision, &k, err) < 0)
        return -1;
    {
        /* Clients may ask for any number of revisions that there are not. */
        _cleanup_txn_ MDB_txn *txn = NULL;
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = db_has(m, txn, DB_HUB_PINS, &k, err);
        if (r <= 0)
            return r;
    }
    return meta_write(m, run_pin_drop, &k, err);
}

/* ---- a repository that is gone ---- */

struct repository_args {
    const char *upstream, *id;
    struct key key;
};

/* One key that begins with the id's: what the id means as a name, or one of its names. */
static int drop_name(struct meta *m, MDB_txn *txn, const struct repository_args *a,
                     const struct key *k, struct error *err)
{
    struct hub_name_row row = {0};
    struct key name, id;
    bool is_reverse = get_named(k, &a->key, &name);
    int r = view_name(m, txn, is_reverse ? &name : k, &row, err);
    if (r < 0)
        return -1;
    if (r == 1 && !is_reverse) { /* it may mean another id, which stays */
        if (key_of_hub(a->upstream, row.id, &id, err) < 0)
            return -1;
        struct key named = key_of_named(&id, k);
        if (db_delete(m, txn, DB_HUB_NAMES, &named, err) < 0)
            return -1;
    }
    if (is_reverse && (r == 0 || same(row.id, a->id)) &&
        db_delete(m, txn, DB_HUB_NAMES, &name, err) < 0)
        return -1;
    return db_delete(m, txn, DB_HUB_NAMES, k, err) < 0 ? -1 : 0;
}

static int drop_names(struct meta *m, MDB_txn *txn, const struct repository_args *a,
                      struct error *err)
{
    _cleanup_key_list_ struct key_list keys = KEY_LIST_INIT;
    struct key k;
    if (db_pick(m, txn, DB_HUB_NAMES, &a->key, &keys, err) < 0)
        return -1;
    for (size_t pos = 0; key_list_next(&keys, &pos, &k);)
        if (drop_name(m, txn, a, &k, err) < 0)
            return -1;
    return 0;
}

static int run_repository_drop(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct repository_args *a = arg;
    struct key documents = key_of_documents(&a->key, "");
    if (drop_names(m, txn, a, err) < 0 || db_delete_prefix(m, txn, DB_HUB_PINS, &a->key, err) < 0)
        return -1;
    return db_delete_prefix(m, txn, DB_HUB_DOCUMENTS, &documents, err);
}

/* Whether anything would be dropped: clients may ask for any number of names that there are not. */
static int is_known(struct meta *m, const struct repository_args *a, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key documents = key_of_documents(&a->key, "");
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_has_prefix(m, txn, DB_HUB_NAMES, &a->key, err);
    if (r == 0)
        r = db_has_prefix(m, txn, DB_HUB_PINS, &a->key, err);
    return r != 0 ? r : db_has_prefix(m, txn, DB_HUB_DOCUMENTS, &documents, err);
}

int meta_hub_repository_drop(struct meta *m, const char *upstream, const char *id,
                             struct error *err)
{
    struct repository_args a = {.upstream = upstream, .id = id};
    if (key_of_hub(upstream, id, &a.key, err) < 0)
        return -1;
    int r = is_known(m, &a, err);
    return r <= 0 ? r : meta_write(m, run_repository_drop, &a, err);
}

/* ---- documents ---- */

static int document_key(const char *upstream, const char *id, const char *commit, const char *what,
                        struct key *ret, struct error *err)
{
    struct key repository;
    if (key_of_hub(upstream, id, &repository, err) < 0)
        return -1;
    return key_of_document(&repository, commit, what, ret, err);
}

int meta_hub_document_get(struct meta *m, const char *upstream, const char *id, const char *commit,
                          const char *what, struct strbuf *to, uint64_t *ret_checked_at,
                          struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct hub_document_row row = {0};
    struct key k;
    MDB_val v;
    if (document_key(upstream, id, commit, what, &k, err) < 0 || meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_view(m, txn, DB_HUB_DOCUMENTS, &k, &v, err);
    if (r <= 0)
        return r;
    if (hub_document_row_decode(v.mv_data, v.mv_size, &row, NULL) < 0 ||
        !same(row.upstream, upstream) || !same(row.id, id) || !same(row.commit, commit) ||
        !same(row.what, what))
        return 0;
    if (to)
        strbuf_put(to, row.bytes, row.len);
    if (to && strbuf_failed(to))
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret_checked_at = row.checked_at;
    return 1;
}

struct put_args {
    enum db db;
    struct key key;
    struct strbuf row;
};

static int run_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct put_args *a = arg;
    return db_put(m, txn, a->db, &a->key, &a->row, err);
}

static int put_row(struct meta *m, struct put_args *a, struct error *err)
{
    int r = strbuf_failed(&a->row) ? err_set(err, ERR_NOMEM, "out of memory")
                                   : meta_write_large(m, run_put, a, a->row.len, err);
    strbuf_done(&a->row);
    return r;
}

int meta_hub_document_put(struct meta *m, const char *upstream, const char *id, const char *commit,
                          const char *what, const void *data, size_t len, struct error *err)
{
    struct put_args a = {.db = DB_HUB_DOCUMENTS};
    if (document_key(upstream, id, commit, what, &a.key, err) < 0)
        return -1;
    hub_document_row_encode(&a.row, &(struct hub_document_row){.upstream = upstream,
                                                               .id = id,
                                                               .commit = commit,
                                                               .what = what,
                                                               .checked_at = clock_wall_s(),
                                                               .bytes = data,
                                                               .len = len});
    return put_row(m, &a, err);
}

/* ---- git objects ---- */

static int object_key(const char *upstream, const char *id, const char *git_oid, struct key *ret,
                      struct error *err)
{
    if (key_of_hub(upstream, id, ret, err) < 0)
        return -1;
    key_put_text(ret, git_oid);
    return 0;
}

int meta_hub_object_get(struct meta *m, const char *upstream, const char *id, const char *git_oid,
                        struct digest *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct hub_object_row row = {0};
    struct key k;
    MDB_val v;
    if (object_key(upstream, id, git_oid, &k, err) < 0 || meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_view(m, txn, DB_HUB_OBJECTS, &k, &v, err);
    if (r <= 0)
        return r;
    if (hub_object_row_decode(v.mv_data, v.mv_size, &row, NULL) < 0 ||
        !same(row.upstream, upstream) || !same(row.id, id) || !same(row.git_oid, git_oid))
        return 0;
    *ret = row.digest;
    return 1;
}

int meta_hub_object_put(struct meta *m, const char *upstream, const char *id, const char *git_oid,
                        const struct digest *d, struct error *err)
{
    struct put_args a = {.db = DB_HUB_OBJECTS};
    struct digest known;
    int r = meta_hub_object_get(m, upstream, id, git_oid, &known, err);
    if (r < 0 || (r == 1 && digest_equal(&known, d)))
        return r < 0 ? -1 : 0;
    if (object_key(upstream, id, git_oid, &a.key, err) < 0)
        return -1;
    hub_object_row_encode(
        &a.row,
        &(struct hub_object_row){.upstream = upstream, .id = id, .git_oid = git_oid, .digest = *d});
    return put_row(m, &a, err);
}
