/* What the tests of pushed content share: blobs and manifests as a client would push them, and a
 * look at the rows behind the store's back (while it is closed). */
#ifndef WB_TESTS_STORAGE_PUSH_H
#define WB_TESTS_STORAGE_PUSH_H

#include "helper.h"

#include <lmdb.h>

#include "storage/keys.h"
#include "storage/rows.h"

#define IMAGE "application/vnd.oci.image.manifest.v1+json"
#define INDEX "application/vnd.oci.image.index.v1+json"
#define LOCAL "team/model"

static UNUSED struct digest upload_bytes(struct store *s, const char *repository,
                                         enum digest_alg alg, const void *data, size_t len)
{
    struct error err = ERROR_INIT;
    struct digest d;
    char id[UPLOAD_ID_LEN + 1];
    struct upload *u = NULL;
    cr_assert(digest_of(alg, data, len, &d, &err) == 0, "%s", err.text);
    cr_assert(upload_begin(s, repository, alg, id, &err) == 0, "%s", err.text);
    cr_assert(upload_open(s, repository, id, &u, &err) == 1, "%s", err.text);
    cr_assert(upload_write(u, data, len, &err) == 0, "%s", err.text);
    cr_assert(upload_commit(u, &d, &err) == 0, "%s", err.text);
    upload_close(u);
    return d;
}

static UNUSED struct digest upload_text(struct store *s, const char *repository, const char *text)
{
    return upload_bytes(s, repository, DIGEST_SHA256, text, strlen(text));
}

static UNUSED struct push_need need_of(const char *text)
{
    return (struct push_need){NEED_BLOB, digest_of_text(text), strlen(text)};
}

/* A manifest that is just a text; tag may be NULL. */
static UNUSED struct push_record record_of(const char *repository, const char *text,
                                           const struct push_need *needs, size_t n,
                                           const char *const *tag)
{
    return (struct push_record){.repository = repository,
                                .digest = digest_of_text(text),
                                .media_type = IMAGE,
                                .manifest = text,
                                .len = strlen(text),
                                .needs = needs,
                                .n_needs = n,
                                .artifact_type = "",
                                .tags = tag,
                                .n_tags = tag ? 1 : 0,
                                .source = "push 10.0.0.7"};
}

static UNUSED void push_record_ok(struct store *s, const struct push_record *r)
{
    struct error err = ERROR_INIT;
    struct digest_list missing;
    cr_assert(store_manifest_push(s, r, &missing, &err) == 0, "%s", err.text);
    cr_assert(missing.n == 0 && !missing.items);
}

static UNUSED struct digest push_ok(struct store *s, const char *repository, const char *text,
                                    const struct push_need *needs, size_t n, const char *tag)
{
    struct push_record r = record_of(repository, text, needs, n, tag ? &tag : NULL);
    push_record_ok(s, &r);
    return r.digest;
}

/* Uploads a blob of this text and pushes a manifest of the other that needs it. */
static UNUSED struct digest push_pair(struct store *s, const char *repository, const char *blob,
                                      const char *manifest, const char *tag)
{
    struct push_need need = need_of(blob);
    upload_text(s, repository, blob);
    return push_ok(s, repository, manifest, &need, 1, tag);
}

static UNUSED bool has_link(struct store *s, const char *repository, const struct digest *d)
{
    struct error err = ERROR_INIT;
    struct link l;
    int r = store_link_get(s, repository, d, &l, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 1)
        link_done(&l);
    return r == 1;
}

static UNUSED bool has_manifest(struct store *s, const char *repository, const struct digest *d)
{
    struct error err = ERROR_INIT;
    struct manifest m;
    int r = store_manifest_get(s, repository, d, &m, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 1)
        manifest_done(&m);
    return r == 1;
}

static UNUSED struct digest tag_digest(struct store *s, const char *repository, const char *tag)
{
    struct error err = ERROR_INIT;
    struct tag t = {.digest = {.alg = DIGEST_NONE}};
    cr_assert(store_tag_get(s, repository, tag, &t, &err) >= 0, "%s", err.text);
    return t.digest;
}

static UNUSED int remove_digest(struct store *s, const char *repository, const struct digest *d,
                                struct error *err)
{
    struct reference r = {.is_digest = true, .digest = *d};
    snprintf(r.repository, sizeof(r.repository), "%s", repository);
    return store_remove(s, &r, NULL, "delete 10.0.0.8", err);
}

static UNUSED int remove_tag(struct store *s, const char *repository, const char *tag,
                             struct error *err)
{
    struct reference r = {.is_digest = false};
    snprintf(r.repository, sizeof(r.repository), "%s", repository);
    snprintf(r.tag, sizeof(r.tag), "%s", tag);
    return store_remove(s, &r, NULL, "delete 10.0.0.8", err);
}

static UNUSED struct gc_result collect(struct store *s, bool dry_run, uint64_t grace_s)
{
    struct error err = ERROR_INIT;
    struct gc_result gc;
    struct gc_options o = {.dry_run = dry_run, .grace_s = grace_s};
    cr_assert(store_gc(s, &o, &gc, &err) == 0, "%s", err.text);
    return gc;
}

/* ---- rows, while the store is closed ---- */

struct raw {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
};

static UNUSED struct raw raw_open(const char *db)
{
    char path[400];
    struct raw r;
    snprintf(path, sizeof(path), "%s/meta", data_dir());
    cr_assert(mdb_env_create(&r.env) == 0);
    mdb_env_set_maxdbs(r.env, 16);
    mdb_env_set_mapsize(r.env, (size_t)1 << 30);
    cr_assert(mdb_env_open(r.env, path, MDB_NOTLS, 0640) == 0);
    cr_assert(mdb_txn_begin(r.env, NULL, 0, &r.txn) == 0);
    cr_assert(mdb_dbi_open(r.txn, db, 0, &r.dbi) == 0);
    return r;
}

static UNUSED void raw_close(struct raw *r)
{
    cr_assert(mdb_txn_commit(r->txn) == 0);
    mdb_env_close(r->env);
}

static UNUSED void raw_put(const char *db, const struct key *key, const void *data, size_t len)
{
    struct raw r = raw_open(db);
    MDB_val k = {key->len, (void *)(uintptr_t)key->data}, v = {len, (void *)(uintptr_t)data};
    cr_assert(mdb_put(r.txn, r.dbi, &k, &v, 0) == 0);
    raw_close(&r);
}

static UNUSED bool raw_has(const char *db, const struct key *key)
{
    struct raw r = raw_open(db);
    MDB_val k = {key->len, (void *)(uintptr_t)key->data}, v;
    int rc = mdb_get(r.txn, r.dbi, &k, &v);
    raw_close(&r);
    return rc == 0;
}

static UNUSED size_t raw_count(const char *db)
{
    struct raw r = raw_open(db);
    MDB_stat st;
    cr_assert(mdb_stat(r.txn, r.dbi, &st) == 0);
    raw_close(&r);
    return st.ms_entries;
}

static UNUSED struct key hold_key(const char *repository, const struct digest *d)
{
    static const struct digest none = {.alg = DIGEST_NONE};
    return key_of_use(d, repository, &none);
}

#endif
