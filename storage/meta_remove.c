/* Taking tags, manifests and links away. */
#include "storage/meta_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* What was pushed nobody makes again: a client that is pushing just now may have seen that the blob
 * is here, or have sent it. So it stays for a while, as a hold. What an import wrote goes at once,
 * for importing makes it again; and so does what can be had elsewhere. */
int link_release(struct meta *m, MDB_txn *txn, const char *repository,
                 const struct digest *manifest, bool is_pushed, const struct digest *blob,
                 struct error *err)
{
    struct key use = key_of_use(blob, repository, manifest);
    struct key uses = key_of_uses(blob, repository), k = key_of_content(repository, blob);
    struct link_row link;
    MDB_val v;
    if (db_delete(m, txn, DB_USES, &use, err) < 0)
        return -1;
    int r = db_view(m, txn, DB_LINKS, &k, &v, err);
    if (r <= 0)
        return r; /* it was unlinked, or is a manifest */
    if (is_pushed && link_row_decode(v.mv_data, v.mv_size, &link, NULL) == 0 && link.n_origins == 0)
        return hold_put(m, txn, repository, blob, clock_wall_s(), err);
    r = db_has_prefix(m, txn, DB_USES, &uses, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return db_delete(m, txn, DB_LINKS, &k, err) < 0 ? -1 : 0;
}

struct remove_args {
    const char *repository;
    const char *tag;
    const struct digest *digest;
    const struct tag_guard *guard;
    struct tag_cause cause;
};

struct pick_ctx {
    struct key_list keys;
    const struct digest *digest; /* only tags on it; NULL = every row */
    size_t told_behind;          /* of referrers' keys: their repository's part; 0 = no such keys */
};

/* A row that only an upstream told, of a repository whose name takes so much of the key. */
static bool is_told_referrer(const MDB_val *k, size_t repository)
{
    struct digest subject, manifest;
    bool is_told;
    const char *at = (const char *)k->mv_data + repository;
    size_t len = k->mv_size - repository, n = key_get_digest(at, len, &subject);
    return n && key_get_referrer(at + n, len - n, &manifest, &is_told) && is_told;
}

static int visit_pick(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct pick_ctx *c = arg;
    struct tag tag;
    if (c->digest && (tag_row_decode(v->mv_data, v->mv_size, &tag, NULL) < 0 ||
                      !digest_equal(&tag.digest, c->digest)))
        return 0;
    if (c->told_behind && is_told_referrer(k, c->told_behind))
        return 0;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int check_guard(const struct remove_args *a, const char *tag, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    if (!a->guard || !a->guard->is_immutable(a->guard->ctx, a->repository, tag))
        return 0;
    if (a->tag)
        return err_set(err, ERR_CONFLICT,
                       "%s:%s is an immutable tag (immutable_tags): only \"weighbridge rm\" on the "
                       "server's machine removes it",
                       a->repository, tag);
    return err_set(err, ERR_CONFLICT,
                   "%s of %s cannot be removed: its tag %s is immutable (immutable_tags), only "
                   "\"weighbridge rm\" on the server's machine removes it",
                   digest_format(a->digest, text), a->repository, tag);
}

static int not_found(const struct remove_args *a, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    if (a->tag)
        return err_set(err, ERR_NOT_FOUND, "%s has no tag %s", a->repository, a->tag);
    return err_set(err, ERR_NOT_FOUND, "%s has no manifest %s", a->repository,
                   digest_format(a->digest, text));
}

static void tag_of_key(const struct key *k, size_t prefix, char buf[static KEY_MAX + 1])
{
    snprintf(buf, KEY_MAX + 1, "%.*s", (int)(k->len - prefix), (const char *)k->data + prefix);
}

/* The tags on the manifest, which the guard must let go. */
static int pick_tags(struct meta *m, MDB_txn *txn, const struct remove_args *a,
                     struct key_list *ret, struct error *err)
{
    struct pick_ctx c = {.keys = KEY_LIST_INIT, .digest = a->digest};
    struct key prefix = key_of_repository(a->repository), k;
    int r = db_each(m, txn, DB_TAGS, &prefix, NULL, visit_pick, &c, err);
    for (size_t pos = 0; r == 0 && key_list_next(&c.keys, &pos, &k);) {
        char tag[KEY_MAX + 1];
        tag_of_key(&k, prefix.len, tag);
        r = check_guard(a, tag, err);
    }
    if (r == 0)
        *ret = c.keys;
    else
        key_list_done(&c.keys);
    return r;
}

static int drop_tags(struct meta *m, MDB_txn *txn, const struct remove_args *a,
                     const struct key_list *keys, struct error *err)
{
    struct key k;
    size_t prefix = strlen(a->repository) + 1;
    for (size_t pos = 0; key_list_next(keys, &pos, &k);) {
        char tag[KEY_MAX + 1];
        tag_of_key(&k, prefix, tag);
        if (tag_remove(m, txn, a->repository, tag, &a->cause, err) < 0)
            return -1;
    }
    return 0;
}

static int drop_prefix(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                       struct error *err)
{
    struct pick_ctx c = {.keys = KEY_LIST_INIT,
                         .told_behind = db == DB_REFERRERS ? prefix->len : 0};
    int r = db_each(m, txn, db, prefix, NULL, visit_pick, &c, err);
    if (r == 0)
        r = db_delete_list(m, txn, db, &c.keys, err);
    key_list_done(&c.keys);
    return r;
}

struct of_manifest_ctx {
    struct key_list keys;
    const char *repository;
    const struct digest *manifest;
};

static int visit_use(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct of_manifest_ctx *c = arg;
    struct digest blob, manifest;
    const char *repository;
    if (!key_get_use(k->mv_data, k->mv_size, &blob, &repository, &manifest) ||
        !digest_equal(&manifest, c->manifest) || strcmp(repository, c->repository) != 0)
        return 0;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int visit_referrer(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct of_manifest_ctx *c = arg;
    struct key own = key_of_digest(c->manifest);
    if (k->mv_size < own.len ||
        memcmp((const char *)k->mv_data + k->mv_size - own.len, own.data, own.len) != 0)
        return 0;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

/* The manifest's row is damaged, so it can say neither what it needed nor what its subject was: ask
 * all that could be. */
static int release_all(struct meta *m, MDB_txn *txn, const struct remove_args *a, struct error *err)
{
    struct of_manifest_ctx c = {
        .keys = KEY_LIST_INIT, .repository = a->repository, .manifest = a->digest};
    struct key all = KEY_INIT, prefix = key_of_repository(a->repository), k;
    struct repository_row repo;
    int r = repository_row_find(m, txn, a->repository, &repo, err);
    bool is_pushed = !*repo.upstream; /* most likely */
    if (r == 0)
        r = db_each(m, txn, DB_USES, &all, NULL, visit_use, &c, err);
    for (size_t pos = 0; r == 0 && key_list_next(&c.keys, &pos, &k);) {
        struct digest blob;
        key_get_digest(k.data, k.len, &blob);
        r = link_release(m, txn, a->repository, a->digest, is_pushed, &blob, err);
    }
    strbuf_reset(&c.keys.data);
    if (r == 0)
        r = db_each(m, txn, DB_REFERRERS, &prefix, NULL, visit_referrer, &c, err);
    if (r == 0)
        r = db_delete_list(m, txn, DB_REFERRERS, &c.keys, err);
    key_list_done(&c.keys);
    return r;
}

/* A removal that must fail is found out from a snapshot first: on the writing thread it would cost
 * its neighbours their common transaction. */
static int check_first(struct meta *m, const struct remove_args *a, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_key_list_ struct key_list tags = KEY_LIST_INIT;
    struct key k =
        a->tag ? key_of_tag(a->repository, a->tag) : key_of_content(a->repository, a->digest);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_has(m, txn, a->tag ? DB_TAGS : DB_MANIFESTS, &k, err);
    if (r <= 0)
        return r == 0 ? not_found(a, err) : -1;
    if (a->tag)
        return check_guard(a, a->tag, err);
    if (!a->guard)
        return 0;
    if (pick_tags(m, txn, a, &tags, err) < 0)
        return -1;
    return guard_part(m, txn, a->repository, a->digest, a->guard, err);
}

static int remove_checked(struct meta *m, struct remove_args *a,
                          int (*run)(struct meta *, MDB_txn *, void *, struct error *),
                          struct error *err)
{
    return check_first(m, a, err) < 0 ? -1 : meta_write(m, run, a, err);
}

static int run_remove_tag(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct remove_args *a = arg;
    int r = tag_remove(m, txn, a->repository, a->tag, &a->cause, err);
    if (r <= 0)
        return r == 0 ? not_found(a, err) : -1;
    return check_guard(a, a->tag, err);
}

int meta_remove_tag(struct meta *m, const char *repository, const char *tag,
                    const struct tag_guard *guard, const char *source, struct error *err)
{
    struct remove_args a = {.repository = repository,
                            .tag = tag,
                            .guard = guard,
                            .cause = {.source = source, .at_ms = history_now_ms()}};
    return remove_checked(m, &a, run_remove_tag, err);
}

static int release_needs(struct meta *m, MDB_txn *txn, const struct remove_args *a,
                         const struct strbuf *row, struct error *err)
{
    struct manifest_row manifest;
    if (manifest_row_decode(row->data, row->len, &manifest, NULL) < 0)
        return release_all(m, txn, a, err);
    for (size_t i = 0; i < manifest.n_needs; i++) {
        struct digest blob;
        record_get_digest(&manifest.needs, &blob);
        if (link_release(m, txn, a->repository, a->digest, !*manifest.commit, &blob, err) < 0)
            return -1;
    }
    if (manifest.subject.alg == DIGEST_NONE)
        return 0;
    struct key k = key_of_referrer(a->repository, &manifest.subject, a->digest);
    return db_delete(m, txn, DB_REFERRERS, &k, err) < 0 ? -1 : 0;
}

/* The last manifest went: the repository goes, with rows that were too damaged to be matched. What
 * an upstream told of it stays, for it is still true. */
static int drop_repository(struct meta *m, MDB_txn *txn, const struct remove_args *a,
                           struct error *err)
{
    struct key all = key_of_repository(a->repository), k = KEY_INIT;
    key_put_text(&k, a->repository);
    if (drop_prefix(m, txn, DB_TAGS, &all, err) < 0 ||
        drop_prefix(m, txn, DB_REFERRERS, &all, err) < 0)
        return -1;
    return db_delete(m, txn, DB_REPOSITORIES, &k, err) < 0 ? -1 : 0;
}

static int run_remove_manifest(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct remove_args *a = arg;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    _cleanup_key_list_ struct key_list tags = KEY_LIST_INIT;
    struct key k = key_of_content(a->repository, a->digest);
    struct key all = key_of_repository(a->repository);
    int r = db_get(m, txn, DB_MANIFESTS, &k, &row, err);
    if (r <= 0)
        return r == 0 ? not_found(a, err) : -1;
    if (pick_tags(m, txn, a, &tags, err) < 0 ||
        guard_part(m, txn, a->repository, a->digest, a->guard, err) < 0 ||
        drop_tags(m, txn, a, &tags, err) < 0 || db_delete(m, txn, DB_MANIFESTS, &k, err) < 0 ||
        release_needs(m, txn, a, &row, err) < 0)
        return -1;
    r = db_has_prefix(m, txn, DB_MANIFESTS, &all, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return drop_repository(m, txn, a, err);
}

int meta_remove_manifest(struct meta *m, const char *repository, const struct digest *d,
                         const struct tag_guard *guard, const char *source, struct error *err)
{
    struct remove_args a = {.repository = repository,
                            .digest = d,
                            .guard = guard,
                            .cause = {.source = source, .at_ms = history_now_ms()}};
    return remove_checked(m, &a, run_remove_manifest, err);
}

/* ---- all of a repository ---- */

static int run_vacate(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    struct remove_args *a = arg;
    _cleanup_key_list_ struct key_list manifests = KEY_LIST_INIT;
    struct key all = key_of_repository(a->repository), k;
    if (db_pick(m, txn, DB_MANIFESTS, &all, &manifests, err) < 0)
        return -1;
    for (size_t pos = 0; key_list_next(&manifests, &pos, &k);) {
        struct digest d;
        struct remove_args one = *a;
        one.digest = &d;
        if (key_get_digest(k.data + all.len, k.len - all.len, &d) &&
            run_remove_manifest(m, txn, &one, err) < 0)
            return -1;
    }
    /* What no manifest needed: files that were asked for by their names. */
    if (db_delete_prefix(m, txn, DB_LINKS, &all, err) < 0)
        return -1;
    return drop_repository(m, txn, a, err);
}

int meta_repository_vacate(struct meta *m, const char *repository, const char *source,
                           struct error *err)
{
    struct remove_args a = {.repository = repository,
                            .cause = {.source = source, .at_ms = history_now_ms()}};
    {
        _cleanup_txn_ MDB_txn *txn = NULL;
        struct key all = key_of_repository(repository);
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = db_has_prefix(m, txn, DB_MANIFESTS, &all, err);
        if (r == 0)
            r = db_has_prefix(m, txn, DB_LINKS, &all, err);
        if (r <= 0)
            return r;
    }
    return meta_write(m, run_vacate, &a, err);
}
