/* Rows of blobs and of what is on its way into (or out of) blobs/. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

static struct key blob_bytes_key(void)
{
    struct key k = KEY_INIT;
    key_put_text(&k, "blob_bytes");
    return k;
}

static int blob_bytes_get(struct meta *m, MDB_txn *txn, uint64_t *ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = blob_bytes_key();
    int r = db_get(m, txn, DB_STATE, &k, &row, err);
    if (r < 0)
        return -1;
    /* A damaged counter must not stop a commit: it starts over, and gc counts again. */
    if (r == 0 || number_row_decode(ROW_COUNTER, row.data, row.len, ret, NULL) < 0)
        *ret = 0;
    return 0;
}

int blob_bytes_set(struct meta *m, MDB_txn *txn, uint64_t n, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = blob_bytes_key();
    number_row_encode(&row, ROW_COUNTER, n);
    return db_put(m, txn, DB_STATE, &k, &row, err);
}

int blob_bytes_add(struct meta *m, MDB_txn *txn, uint64_t plus, uint64_t minus, struct error *err)
{
    uint64_t n;
    if (blob_bytes_get(m, txn, &n, err) < 0)
        return -1;
    n += plus;
    return blob_bytes_set(m, txn, n > minus ? n - minus : 0, err);
}

int blob_get(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t *ret_size,
             struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_digest(d);
    int r = db_get(m, txn, DB_BLOBS, &k, &row, err);
    if (r == 1 && blob_row_decode(row.data, row.len, ret_size, err) < 0) {
        char text[DIGEST_TEXT_MAX];
        return err_wrap(err, "%s: blob %s", m->dir, digest_format(d, text));
    }
    return r;
}

int meta_blob_get(struct meta *m, const struct digest *d, uint64_t *ret_size, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    return blob_get(m, txn, d, ret_size, err);
}

int blob_row_drop(struct meta *m, MDB_txn *txn, const struct digest *d, struct error *err)
{
    uint64_t size = 0;
    struct key k = key_of_digest(d);
    if (blob_get(m, txn, d, &size, NULL) < 0)
        size = 0; /* damaged: it was never worth more than its key */
    int r = db_delete(m, txn, DB_BLOBS, &k, err);
    if (r <= 0)
        return r;
    return blob_bytes_add(m, txn, 0, size, err);
}

int blob_row_set(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t size,
                 struct error *err)
{
    uint64_t old = 0;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_digest(d);
    if (blob_get(m, txn, d, &old, NULL) < 0)
        old = 0; /* damaged: written anew */
    blob_row_encode(&row, size);
    if (db_put(m, txn, DB_BLOBS, &k, &row, err) < 0)
        return -1;
    return blob_bytes_add(m, txn, size, old, err);
}

void incoming_key(const struct incoming_row *row, struct key *ret)
{
    unsigned char kind = (unsigned char)row->kind;
    *ret = KEY_INIT;
    key_put(ret, &kind, 1);
    if (row->kind == INCOMING_PUT || row->kind == INCOMING_UPLOAD)
        key_put_text(ret, row->file);
    else
        key_put_digest(ret, &row->digest);
}

static int incoming_set(struct meta *m, MDB_txn *txn, const struct incoming_row *row,
                        struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct key k;
    incoming_key(row, &k);
    incoming_row_encode(&b, row);
    return db_put(m, txn, DB_INCOMING, &k, &b, err);
}

int incoming_drop(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err)
{
    struct key k;
    incoming_key(row, &k);
    return db_delete(m, txn, DB_INCOMING, &k, err) < 0 ? -1 : 0;
}

int blob_publish(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err)
{
    return blob_row_set(m, txn, &row->digest, row->size, err) < 0 ? -1
                                                                  : incoming_drop(m, txn, row, err);
}

struct commit_args {
    const struct digest *digest;
    uint64_t size;
    const struct incoming_row *from;
};

static int run_commit(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct commit_args *a = arg;
    if (blob_row_set(m, txn, a->digest, a->size, err) < 0)
        return -1;
    return a->from ? incoming_drop(m, txn, a->from, err) : 0;
}

int meta_blob_commit(struct meta *m, const struct digest *d, uint64_t size,
                     const struct incoming_row *from, struct error *err)
{
    struct commit_args a = {.digest = d, .size = size, .from = from};
    return meta_write(m, run_commit, &a, err);
}

struct forget_args {
    const struct digest *digest;
    int (*settle)(void *ctx, uint64_t size, struct error *err);
    void *ctx;
};

static int run_forget(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct forget_args *a = arg;
    uint64_t size = 0;
    int r = blob_get(m, txn, a->digest, &size, err);
    if (r <= 0)
        return r;
    r = a->settle(a->ctx, size, err);
    return r <= 0 ? r : blob_row_drop(m, txn, a->digest, err);
}

int meta_blob_forget(struct meta *m, const struct digest *d,
                     int (*settle)(void *ctx, uint64_t size, struct error *err), void *ctx,
                     struct error *err)
{
    struct forget_args a = {.digest = d, .settle = settle, .ctx = ctx};
    return meta_write(m, run_forget, &a, err);
}

int meta_incoming_transfer(struct meta *m, const struct digest *d, struct incoming_row *ret,
                           struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k;
    incoming_key(&(struct incoming_row){.kind = INCOMING_TRANSFER, .digest = *d}, &k);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_INCOMING, &k, &row, err);
    if (r <= 0)
        return r;
    /* Only a partial: a damaged row is as good as none, and is written over. */
    if (incoming_row_decode(row.data, row.len, ret, NULL) < 0 || !digest_equal(&ret->digest, d))
        return 0;
    return 1;
}

static int run_incoming_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    return incoming_set(m, txn, arg, err);
}

int meta_incoming_put(struct meta *m, const struct incoming_row *row, struct error *err)
{
    struct incoming_row copy = *row;
    return meta_write(m, run_incoming_put, &copy, err);
}

struct meta_put {
    struct meta_op op;
    struct incoming_row row;
};

struct meta_put *meta_incoming_put_start(struct meta *m, const struct incoming_row *row,
                                         struct error *err)
{
    struct meta_put *put = malloc(sizeof(*put));
    if (!put) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    put->row = *row;
    put->op = (struct meta_op){.run = run_incoming_put, .arg = &put->row};
    meta_write_start(m, &put->op);
    return put;
}

int meta_incoming_put_wait(struct meta *m, struct meta_put *put, struct error *err)
{
    int r = meta_write_wait(m, &put->op, err);
    free(put);
    return r;
}

static int run_incoming_delete(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    return incoming_drop(m, txn, arg, err);
}

int meta_incoming_delete(struct meta *m, const struct incoming_row *row, struct error *err)
{
    struct incoming_row copy = *row;
    return meta_write(m, run_incoming_delete, &copy, err);
}

static int run_incoming_synced(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct incoming_row *want = arg;
    struct incoming_row now;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k;
    incoming_key(want, &k);
    int r = db_get(m, txn, DB_INCOMING, &k, &row, err);
    if (r <= 0)
        return r;
    if (incoming_row_decode(row.data, row.len, &now, NULL) < 0 || strcmp(now.file, want->file) != 0)
        return 0;
    now.synced = want->synced;
    return incoming_set(m, txn, &now, err);
}

void meta_incoming_synced_later(struct meta *m, const struct incoming_row *row)
{
    struct incoming_row *copy = malloc(sizeof(*copy));
    if (!copy)
        return;
    *copy = *row;
    meta_write_later(m, run_incoming_synced, copy, free);
}

void incoming_list_done(struct incoming_list *l)
{
    free(l->rows);
    *l = (struct incoming_list){0};
}

struct list_ctx {
    struct incoming_list list;
    size_t cap;
};

static int visit_incoming(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct list_ctx *c = arg;
    struct incoming_row row;
    struct key expected;
    if (incoming_row_decode(v->mv_data, v->mv_size, &row, NULL) < 0)
        return 0;
    incoming_key(&row, &expected);
    if (expected.len != k->mv_size || memcmp(expected.data, k->mv_data, k->mv_size) != 0)
        return 0;
    if (c->list.n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        struct incoming_row *rows = reallocarray(c->list.rows, cap, sizeof(*rows));
        if (!rows)
            return err_set(err, ERR_NOMEM, "out of memory");
        c->list.rows = rows;
        c->cap = cap;
    }
    c->list.rows[c->list.n++] = row;
    return 0;
}

int meta_incoming_list(struct meta *m, struct incoming_list *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct list_ctx c = {0};
    struct key all = KEY_INIT;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    if (db_each(m, txn, DB_INCOMING, &all, NULL, visit_incoming, &c, err) < 0) {
        incoming_list_done(&c.list);
        return -1;
    }
    *ret = c.list;
    return 0;
}

/* The first row whose bytes or key cannot be right. */
static int visit_damaged(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)err;
    struct key *bad = arg;
    struct incoming_row row;
    struct key expected;
    if (incoming_row_decode(v->mv_data, v->mv_size, &row, NULL) == 0) {
        incoming_key(&row, &expected);
        if (expected.len == k->mv_size && memcmp(expected.data, k->mv_data, k->mv_size) == 0)
            return 0;
    }
    *bad = KEY_INIT;
    key_put(bad, k->mv_data, k->mv_size);
    return 1;
}

static int drop_damaged(struct meta *m, MDB_txn *txn, struct error *err)
{
    struct key all = KEY_INIT, from = KEY_INIT;
    for (;;) {
        struct key bad = KEY_INIT;
        if (db_each(m, txn, DB_INCOMING, &all, &from, visit_damaged, &bad, err) < 0)
            return -1;
        if (bad.len == 0)
            return 0;
        if (db_delete(m, txn, DB_INCOMING, &bad, err) < 0)
            return -1;
        from = bad;
    }
}

struct settle_args {
    const struct settlement *s;
    size_t n;
};

static int run_settle(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct settle_args *a = arg;
    if (drop_damaged(m, txn, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n; i++) {
        const struct incoming_row *row = &a->s[i].row;
        int r = 0;
        switch (a->s[i].action) {
        case SETTLE_KEEP:
            break;
        case SETTLE_UPDATE:
            r = incoming_set(m, txn, row, err);
            break;
        case SETTLE_PUBLISH:
            r = row->kind == INCOMING_UPLOAD ? upload_publish(m, txn, row, err)
                                             : blob_publish(m, txn, row, err);
            break;
        case SETTLE_DROP:
            r = incoming_drop(m, txn, row, err);
            break;
        }
        if (r < 0)
            return -1;
    }
    return 0;
}

int meta_settle(struct meta *m, const struct settlement *s, size_t n, struct error *err)
{
    struct settle_args a = {.s = s, .n = n};
    return meta_write(m, run_settle, &a, err);
}
