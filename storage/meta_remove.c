/* Taking tags, manifests and links away. */
#include "storage/meta_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int link_release(struct meta *m, MDB_txn *txn, const char *repository,
                 const struct digest *manifest, const struct digest *blob, struct error *err)
{
    struct key use = key_of_use(blob, repository, manifest);
    struct key uses = key_of_uses(blob, repository);
    struct key link = key_of_content(repository, blob);
    if (db_delete(m, txn, DB_USES, &use, err) < 0)
        return -1;
    int r = db_has_prefix(m, txn, DB_USES, &uses, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return db_delete(m, txn, DB_LINKS, &link, err) < 0 ? -1 : 0;
}

struct pick_ctx {
    struct key_list keys;
    const struct digest *digest; /* only tags on it; NULL = every row */
};

static int visit_pick(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct pick_ctx *c = arg;
    struct tag tag;
    if (c->digest && (tag_row_decode(v->mv_data, v->mv_size, &tag, NULL) < 0 ||
                      !digest_equal(&tag.digest, c->digest)))
        return 0;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int delete_keys(struct meta *m, MDB_txn *txn, enum db db, const struct key_list *keys,
                       struct error *err)
{
    struct key k;
    for (size_t pos = 0; key_list_next(keys, &pos, &k);)
        if (db_delete(m, txn, db, &k, err) < 0)
            return -1;
    return 0;
}

static int drop_tags(struct meta *m, MDB_txn *txn, const char *repository,
                     const struct digest *only, struct error *err)
{
    struct pick_ctx c = {.keys = KEY_LIST_INIT, .digest = only};
    struct key prefix = key_of_repository(repository);
    int r = db_each(m, txn, DB_TAGS, &prefix, NULL, visit_pick, &c, err);
    if (r == 0)
        r = delete_keys(m, txn, DB_TAGS, &c.keys, err);
    key_list_done(&c.keys);
    return r;
}

/* The manifest's row is damaged, so it cannot say what it needed: ask every link. */
static int release_all(struct meta *m, MDB_txn *txn, const char *repository,
                       const struct digest *manifest, struct error *err)
{
    struct pick_ctx c = {.keys = KEY_LIST_INIT};
    struct key prefix = key_of_repository(repository), k;
    int r = db_each(m, txn, DB_LINKS, &prefix, NULL, visit_pick, &c, err);
    for (size_t pos = 0; r == 0 && key_list_next(&c.keys, &pos, &k);) {
        struct digest blob;
        if (key_get_digest(k.data + prefix.len, k.len - prefix.len, &blob) == 0)
            continue;
        r = link_release(m, txn, repository, manifest, &blob, err);
    }
    key_list_done(&c.keys);
    return r;
}

struct remove_args {
    const char *repository;
    const char *tag;
    const struct digest *digest;
};

static int not_found(const struct remove_args *a, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    if (a->tag)
        return err_set(err, ERR_NOT_FOUND, "%s has no tag %s", a->repository, a->tag);
    return err_set(err, ERR_NOT_FOUND, "%s has no manifest %s", a->repository,
                   digest_format(a->digest, text));
}

static int run_remove_tag(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct remove_args *a = arg;
    struct key k = key_of_tag(a->repository, a->tag);
    int r = db_delete(m, txn, DB_TAGS, &k, err);
    return r == 0 ? not_found(a, err) : r < 0 ? -1 : 0;
}

int meta_remove_tag(struct meta *m, const char *repository, const char *tag, struct error *err)
{
    struct remove_args a = {.repository = repository, .tag = tag};
    return meta_write(m, run_remove_tag, &a, err);
}

static int release_needs(struct meta *m, MDB_txn *txn, const struct remove_args *a,
                         const struct strbuf *row, struct error *err)
{
    struct manifest_row manifest;
    if (manifest_row_decode(row->data, row->len, &manifest, NULL) < 0)
        return release_all(m, txn, a->repository, a->digest, err);
    for (size_t i = 0; i < manifest.n_needs; i++) {
        struct digest blob;
        record_get_digest(&manifest.needs, &blob);
        if (link_release(m, txn, a->repository, a->digest, &blob, err) < 0)
            return -1;
    }
    return 0;
}

static int run_remove_manifest(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct remove_args *a = arg;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_content(a->repository, a->digest);
    struct key all = key_of_repository(a->repository), repository = KEY_INIT;
    int r = db_get(m, txn, DB_MANIFESTS, &k, &row, err);
    if (r <= 0)
        return r == 0 ? not_found(a, err) : -1;
    if (db_delete(m, txn, DB_MANIFESTS, &k, err) < 0 || release_needs(m, txn, a, &row, err) < 0 ||
        drop_tags(m, txn, a->repository, a->digest, err) < 0)
        return -1;
    r = db_has_prefix(m, txn, DB_MANIFESTS, &all, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    /* The last one: the repository is gone, with tags that were too damaged to be matched. */
    key_put_text(&repository, a->repository);
    if (drop_tags(m, txn, a->repository, NULL, err) < 0)
        return -1;
    return db_delete(m, txn, DB_REPOSITORIES, &repository, err) < 0 ? -1 : 0;
}

int meta_remove_manifest(struct meta *m, const char *repository, const struct digest *d,
                         struct error *err)
{
    struct remove_args a = {.repository = repository, .digest = d};
    return meta_write(m, run_remove_manifest, &a, err);
}
