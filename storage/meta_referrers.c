/* The list of manifests whose subject is a digest. What it says of each is a row of its own beside
 * the manifest's, so that a page of the list reads nothing else.
 *
 * What only an upstream told is a row with a key of its own ("told"), straight behind the one that
 * a manifest gets when it is here itself: that one is shown in its place, and when it goes, what
 * the upstream said is still there. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

#include "storage/fault.h"

struct referrers_ctx {
    const char *artifact_type; /* NULL = any */
    const struct digest *last;
    struct digest here; /* the newest row of a manifest that is here; told ones of it are passed */
    size_t skip;        /* bytes of the key before the manifest's digest */
    size_t limit, max_bytes, bytes;
    bool more;
    struct referrer *items; /* their texts lie in `texts` one behind the other */
    size_t n, cap;
    struct strbuf texts;
    char text[DIGEST_TEXT_MAX];
};

static int put_item(struct referrers_ctx *c, const struct digest *d, const struct referrer_row *row,
                    struct error *err)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        struct referrer *items = reallocarray(c->items, cap, sizeof(*items));
        if (!items)
            return err_set(err, ERR_NOMEM, "out of memory");
        c->items = items;
        c->cap = cap;
    }
    strbuf_put(&c->texts, row->media_type, strlen(row->media_type) + 1);
    strbuf_put(&c->texts, row->artifact_type, strlen(row->artifact_type) + 1);
    strbuf_put(&c->texts, row->annotations, row->annotations_len + 1);
    if (strbuf_failed(&c->texts))
        return err_set(err, ERR_NOMEM, "out of memory");
    c->items[c->n++] = (struct referrer){.digest = *d, .size = row->size};
    return 0;
}

static int visit_referrer(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct referrers_ctx *c = arg;
    struct digest d;
    struct referrer_row row;
    bool is_told;
    if (!key_get_referrer((const char *)k->mv_data + c->skip, k->mv_size - c->skip, &d, &is_told))
        return 0;
    if ((c->last && digest_equal(c->last, &d)) || (is_told && digest_equal(&c->here, &d)))
        return 0;
    if (!is_told)
        c->here = d;
    if (c->artifact_type && !referrer_row_may_be(v->mv_data, v->mv_size, c->artifact_type))
        return 0;
    if (referrer_row_decode(v->mv_data, v->mv_size, &row, err) < 0)
        return err_wrap(err, "referrer %s (remove it or push it again)",
                        digest_format(&d, c->text));
    size_t bytes = strlen(row.media_type) + strlen(row.artifact_type) + row.annotations_len;
    if (c->n == c->limit || (c->n && bytes > c->max_bytes - c->bytes)) {
        c->more = true;
        return 1;
    }
    c->bytes = bytes > c->max_bytes - c->bytes ? c->max_bytes : c->bytes + bytes;
    return put_item(c, &d, &row, err);
}

/* The texts stay where they are from now on. */
static void point_at_texts(struct referrers_ctx *c, char *storage)
{
    char *at = storage;
    for (size_t i = 0; i < c->n; i++) {
        struct referrer *r = &c->items[i];
        r->media_type = at;
        at += strlen(at) + 1;
        r->artifact_type = at;
        at += strlen(at) + 1;
        r->annotations = *at ? at : NULL;
        at += strlen(at) + 1;
    }
}

int meta_referrers(struct meta *m, const char *repository, const struct digest *subject,
                   const char *artifact_type, const struct digest *last, size_t limit,
                   size_t max_bytes, struct referrer_list *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key prefix = key_of_referrer(repository, subject, NULL);
    struct key from = last ? key_of_referrer(repository, subject, last) : prefix;
    struct referrers_ctx c = {.artifact_type = artifact_type,
                              .last = last,
                              .skip = prefix.len,
                              .limit = limit,
                              .max_bytes = max_bytes};
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    if (db_each(m, txn, DB_REFERRERS, &prefix, &from, visit_referrer, &c, err) < 0) {
        free(c.items);
        strbuf_done(&c.texts);
        return err_wrap(err, "%s: %s", m->dir, repository);
    }
    char *storage = strbuf_take(&c.texts);
    point_at_texts(&c, storage);
    *ret = (struct referrer_list){.items = c.items, .n = c.n, .more = c.more, .storage = storage};
    return 0;
}

/* ---- what an upstream says ---- */

struct replace_args {
    const char *repository;
    const struct digest *subject;
    size_t n;
    const struct referrer **items; /* by digest, each once */
    struct strbuf *rows;           /* of each */
    size_t bytes;
};

static int by_digest(const void *a, const void *b)
{
    const struct referrer *const *x = a, *const *y = b;
    int order = digest_order(&(*x)->digest, &(*y)->digest);
    return order ? order : *x < *y ? -1 : *x > *y;
}

static int replace_prepare(struct replace_args *a, const struct referrer *items, size_t n,
                           struct error *err)
{
    a->items = calloc(n + 1, sizeof(*a->items));
    a->rows = calloc(n + 1, sizeof(*a->rows));
    if (!a->items || !a->rows)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        a->items[i] = &items[i];
    qsort(a->items, n, sizeof(*a->items), by_digest);
    for (size_t i = 0; i < n; i++) {
        const struct referrer *r = a->items[i];
        if (a->n && digest_equal(&a->items[a->n - 1]->digest, &r->digest))
            continue;
        struct strbuf *row = &a->rows[a->n];
        *row = STRBUF_INIT;
        referrer_row_encode(
            row,
            &(struct referrer_row){.size = r->size,
                                   .media_type = r->media_type,
                                   .artifact_type = r->artifact_type,
                                   .annotations = r->annotations ? r->annotations : "",
                                   .annotations_len = r->annotations ? strlen(r->annotations) : 0});
        a->items[a->n++] = r;
        a->bytes += row->len;
        if (strbuf_failed(row))
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    return 0;
}

static void replace_done(struct replace_args *a)
{
    for (size_t i = 0; a->rows && i < a->n; i++)
        strbuf_done(&a->rows[i]);
    free(a->items);
    free(a->rows);
}

struct told_ctx {
    const struct replace_args *a;
    size_t skip, at; /* at: how many of the rows are as they should be */
    bool differs;
    struct key_list keys; /* of what was told before */
};

static int visit_told(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct told_ctx *c = arg;
    const struct replace_args *a = c->a;
    struct digest d;
    bool is_told;
    if (!key_get_referrer((const char *)k->mv_data + c->skip, k->mv_size - c->skip, &d, &is_told) ||
        !is_told)
        return 0;
    if (c->at < a->n && digest_equal(&a->items[c->at]->digest, &d) &&
        a->rows[c->at].len == v->mv_size &&
        memcmp(a->rows[c->at].data, v->mv_data, v->mv_size) == 0)
        c->at++;
    else
        c->differs = true;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int find_told(struct meta *m, MDB_txn *txn, const struct replace_args *a, struct told_ctx *c,
                     struct error *err)
{
    struct key prefix = key_of_referrer(a->repository, a->subject, NULL);
    *c = (struct told_ctx){.a = a, .skip = prefix.len, .keys = KEY_LIST_INIT};
    int r = db_each(m, txn, DB_REFERRERS, &prefix, NULL, visit_told, c, err);
    c->differs |= c->at < a->n;
    return r;
}

static int run_replace(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct replace_args *a = arg;
    struct told_ctx c;
    struct key k;
    int r = find_told(m, txn, a, &c, err);
    for (size_t pos = 0; r == 0 && key_list_next(&c.keys, &pos, &k);)
        r = db_delete(m, txn, DB_REFERRERS, &k, err) < 0 ? -1 : 0;
    for (size_t i = 0; r == 0 && i < a->n; i++) {
        k = key_of_told_referrer(a->repository, a->subject, &a->items[i]->digest);
        r = db_put(m, txn, DB_REFERRERS, &k, &a->rows[i], err);
    }
    key_list_done(&c.keys);
    if (r == 0)
        fault_point("referrers.rows");
    return r;
}

/* Most often it says what it said before: then nothing is written. 1 it differs, 0, -1. */
static int is_news(struct meta *m, const struct replace_args *a, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct told_ctx c;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = find_told(m, txn, a, &c, err);
    key_list_done(&c.keys);
    return r < 0 ? -1 : c.differs;
}

int meta_referrers_replace(struct meta *m, const char *repository, const struct digest *subject,
                           const struct referrer *items, size_t n, struct error *err)
{
    struct replace_args a = {.repository = repository, .subject = subject};
    int rc = replace_prepare(&a, items, n, err);
    if (rc == 0)
        rc = is_news(m, &a, err);
    if (rc == 1)
        rc = meta_write_large(m, run_replace, &a, a.bytes, err);
    replace_done(&a);
    return rc;
}
