/* The list of manifests whose subject is a digest. What it says of each is a row of its own beside
 * the manifest's, so that a page of the list reads nothing else. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

struct referrers_ctx {
    const char *artifact_type; /* NULL = any */
    const struct digest *last;
    size_t skip; /* bytes of the key before the manifest's digest */
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
    size_t left = k->mv_size - c->skip;
    if (key_get_digest((const char *)k->mv_data + c->skip, left, &d) != left)
        return 0;
    if (c->last && digest_equal(c->last, &d))
        return 0;
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
