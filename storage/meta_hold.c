/* Holds: links to blobs that no manifest of their repository needs (yet, or any more). A hold is a
 * row among the uses with no manifest in the manifest's place, so whoever asks whether anybody
 * needs a blob counts it; its value is when it was made. storage/push.h says why there are any. */
#include "storage/meta_private.h"

static const struct digest no_manifest = {.alg = DIGEST_NONE};

int hold_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
             uint64_t now_s, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_use(d, repository, &no_manifest);
    number_row_encode(&row, ROW_HOLD, now_s);
    return db_put(m, txn, DB_USES, &k, &row, err);
}

int hold_drop(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              struct error *err)
{
    struct key k = key_of_use(d, repository, &no_manifest);
    return db_delete(m, txn, DB_USES, &k, err);
}

struct users_ctx {
    size_t prefix;
    bool any; /* a manifest */
};

static int visit_user(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v, (void)err;
    struct users_ctx *c = arg;
    struct digest manifest;
    if (key_get_digest((const char *)k->mv_data + c->prefix, k->mv_size - c->prefix, &manifest) ==
        0)
        return 0; /* the hold */
    c->any = true;
    return 1;
}

int link_has_manifest(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                      struct error *err)
{
    struct key prefix = key_of_uses(d, repository);
    struct users_ctx c = {.prefix = prefix.len};
    if (db_each(m, txn, DB_USES, &prefix, NULL, visit_user, &c, err) < 0)
        return -1;
    return c.any;
}

int link_hold(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              uint64_t size, uint64_t now_s, struct error *err)
{
    _cleanup_strbuf_ struct strbuf old = STRBUF_INIT, row = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    struct link_row link = {0};
    int r = db_get(m, txn, DB_LINKS, &k, &old, err);
    if (r < 0)
        return -1;
    bool is_good = r == 1 && link_row_decode(old.data, old.len, &link, NULL) == 0;
    if (!is_good)
        link = (struct link_row){0}; /* damaged: its bytes are here now, which repairs it */
    if (!is_good || link.size != size) {
        link.size = size;
        link_row_encode(&row, &link);
        if (db_put(m, txn, DB_LINKS, &k, &row, err) < 0)
            return -1;
    }
    r = link_has_manifest(m, txn, repository, d, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return hold_put(m, txn, repository, d, now_s, err);
}
