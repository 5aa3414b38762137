/* Reading rows of repositories. Each read is one short transaction; everything is copied out. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

static int row_failed(struct meta *m, const char *repository, const char *what, struct error *err)
{
    return err_wrap(err, "%s: %s%s%s", m->dir, repository, *what ? " " : "", what);
}

int meta_link_get(struct meta *m, const char *repository, const struct digest *d, struct link *ret,
                  struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT, blob_row = STRBUF_INIT;
    struct key k = key_of_content(repository, d), blob = key_of_digest(d);
    struct link_row link;
    char text[DIGEST_TEXT_MAX];
    uint64_t blob_size = 0;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_LINKS, &k, &row, err);
    if (r <= 0)
        return r;
    int held = db_get(m, txn, DB_BLOBS, &blob, &blob_row, err);
    int named = held ? 0 : link_has_manifest(m, txn, repository, d, err);
    if (held < 0 || named < 0)
        return -1;
    size_t len = row.len;
    _cleanup_free_ char *data = strbuf_take(&row); /* the link's strings point into it */
    if (link_row_decode(data, len, &link, err) < 0 ||
        (held && blob_row_decode(blob_row.data, blob_row.len, &blob_size, err) < 0))
        return row_failed(m, repository, digest_format(d, text), err);
    /* What was hashed knows its size; a link only knows what an upstream said. */
    *ret = (struct link){.size = held ? blob_size : link.size,
                         .held = held,
                         .named = named,
                         .claimed = link.is_claimed};
    if (link.n_origins) {
        ret->has_origin = true;
        ret->origin = link.origins[0];
        ret->storage = TAKE_PTR(data);
    }
    return 1;
}

static int copy_manifest(const struct manifest_row *row, const struct digest *d,
                         struct manifest *ret, struct error *err)
{
    /* One microsecond a manifest, and wrong bytes never leave. */
    struct digest real;
    if (digest_of(d->alg, row->bytes, row->len, &real, err) < 0)
        return -1;
    if (!digest_equal(&real, d))
        return err_set(err, ERR_IO,
                       "the stored manifest is damaged: its bytes hash to another "
                       "digest; remove it and fetch or push it again");
    _cleanup_free_ char *bytes = malloc(row->len + 1);
    char *media_type = strdup(row->media_type);
    if (!bytes || !media_type) {
        free(media_type);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    memcpy(bytes, row->bytes, row->len);
    bytes[row->len] = '\0';
    *ret = (struct manifest){
        .digest = *d, .media_type = media_type, .bytes = TAKE_PTR(bytes), .len = row->len};
    return 1;
}

int meta_manifest_get(struct meta *m, const char *repository, const struct digest *d,
                      struct manifest *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf copy = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    struct manifest_row row;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_MANIFESTS, &k, &copy, err);
    if (r <= 0)
        return r;
    mdb_txn_abort(TAKE_PTR(txn));
    if (manifest_row_decode(copy.data, copy.len, &row, err) < 0 ||
        copy_manifest(&row, d, ret, err) < 0) {
        char text[DIGEST_TEXT_MAX];
        return row_failed(m, repository, digest_format(d, text), err);
    }
    return 1;
}

int meta_tag_get(struct meta *m, const char *repository, const char *tag, struct tag *ret,
                 struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_tag(repository, tag);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_TAGS, &k, &row, err);
    if (r == 1 && tag_row_decode(row.data, row.len, ret, err) < 0)
        return row_failed(m, repository, tag, err);
    return r;
}

int repository_row_find(struct meta *m, MDB_txn *txn, const char *repository,
                        struct repository_row *ret, struct error *err)
{
    struct key k = KEY_INIT;
    MDB_val v;
    key_put_text(&k, repository);
    int r = db_view(m, txn, DB_REPOSITORIES, &k, &v, err);
    if (r != 1 || repository_row_decode(v.mv_data, v.mv_size, ret, NULL) < 0)
        *ret = (struct repository_row){{0}, {0}};
    return r < 0 ? -1 : 0;
}

int meta_repository_get(struct meta *m, const char *repository, struct repository_row *ret,
                        struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = KEY_INIT;
    struct repository_row found;
    key_put_text(&k, repository);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_REPOSITORIES, &k, &row, err);
    if (r <= 0)
        return r;
    if (repository_row_decode(row.data, row.len, &found, err) < 0)
        return row_failed(m, repository, "", err);
    if (!*found.upstream && !*found.repo_id)
        return 0; /* it stands for nothing elsewhere: it was only pushed to */
    *ret = found;
    return 1;
}

int name_list_add(struct name_list *l, size_t *cap, const char *name, size_t len, struct error *err)
{
    if (l->n == *cap) {
        size_t more = *cap ? *cap * 2 : 64;
        char **names = reallocarray(l->names, more, sizeof(*names));
        if (!names)
            return err_set(err, ERR_NOMEM, "out of memory");
        l->names = names;
        *cap = more;
    }
    char *copy = strndup(name, len);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    l->names[l->n++] = copy;
    return 0;
}

struct names_ctx {
    struct name_list list;
    size_t cap, limit, skip; /* skip: bytes of the key before the name */
    const char *last;
};

static int visit_name(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct names_ctx *c = arg;
    const char *name = (const char *)k->mv_data + c->skip;
    size_t len = k->mv_size - c->skip;
    if (c->last && strlen(c->last) == len && memcmp(c->last, name, len) == 0)
        return 0;
    if (c->list.n == c->limit) {
        c->list.more = true;
        return 1;
    }
    return name_list_add(&c->list, &c->cap, name, len, err);
}

static int list_names(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                      const char *last, size_t limit, struct name_list *ret, struct error *err)
{
    struct names_ctx c = {.limit = limit, .skip = prefix->len, .last = last};
    struct key from = *prefix;
    if (last)
        key_put_text(&from, last);
    /* A `last` that no key can hold (hostile query) still sorts somewhere: cut, it is smaller. */
    if (from.overflow && !prefix->overflow) {
        from.overflow = false;
        key_put(&from, last, KEY_MAX - from.len);
    }
    if (db_each(m, txn, db, prefix, &from, visit_name, &c, err) < 0) {
        name_list_done(&c.list);
        return -1;
    }
    *ret = c.list;
    return 0;
}

int meta_tags(struct meta *m, const char *repository, const char *last, size_t limit,
              struct name_list *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key repo = KEY_INIT, prefix = key_of_repository(repository);
    key_put_text(&repo, repository);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_has(m, txn, DB_REPOSITORIES, &repo, err);
    if (r < 0)
        return -1;
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "repository %s is not known here", repository);
    return list_names(m, txn, DB_TAGS, &prefix, last, limit, ret, err);
}

int meta_repositories(struct meta *m, const char *last, size_t limit, struct name_list *ret,
                      struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct key prefix = KEY_INIT;
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    return list_names(m, txn, DB_REPOSITORIES, &prefix, last, limit, ret, err);
}

int meta_commit_files_get(struct meta *m, const char *upstream, const char *repo_id,
                          const char *commit, struct commit_files *ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf copy = STRBUF_INIT;
    struct key k;
    struct commit_row row;
    if (key_of_commit(upstream, repo_id, commit, &k, err) < 0)
        return -1;
    {
        _cleanup_txn_ MDB_txn *txn = NULL;
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = db_get(m, txn, DB_COMMITS, &k, &copy, err);
        if (r <= 0)
            return r;
    }
    size_t len = copy.len;
    _cleanup_free_ char *data = strbuf_take(&copy); /* the paths point into it */
    if (commit_row_decode(data, len, &row, err) < 0)
        return err_wrap(err, "%s: file list of %s at %s", m->dir, repo_id, commit);
    if (strcmp(row.upstream, upstream) != 0 || strcmp(row.repo_id, repo_id) != 0 ||
        strcmp(row.commit, commit) != 0)
        return err_set(err, ERR_IO, "%s: the file list of %s at %s is another one's", m->dir,
                       repo_id, commit);
    _cleanup_free_ struct commit_file *files = calloc(row.n_files + 1, sizeof(*files));
    if (!files)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < row.n_files; i++)
        commit_file_decode(&row.files, &files[i]);
    *ret = (struct commit_files){
        .files = TAKE_PTR(files), .n = row.n_files, .storage = TAKE_PTR(data)};
    return 1;
}

int meta_mismatch_get(struct meta *m, const struct digest *d, const struct name_id *repository,
                      uint64_t *ret_until, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_mismatch(d, repository);
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    int r = db_get(m, txn, DB_MISMATCHES, &k, &row, err);
    if (r == 1 && number_row_decode(ROW_MISMATCH, row.data, row.len, ret_until, err) < 0)
        return -1;
    return r;
}

int meta_stats(struct meta *m, struct store_stats *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = KEY_INIT;
    MDB_stat st[DB_COUNT];
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    for (int i = 0; i < DB_COUNT; i++) {
        int rc = mdb_stat(txn, m->dbi[i], &st[i]);
        if (rc != 0)
            return meta_failed(m, rc, "stat", err);
    }
    key_put_text(&k, "blob_bytes");
    int r = db_get(m, txn, DB_STATE, &k, &row, err);
    uint64_t bytes = 0;
    if (r < 0 || (r == 1 && number_row_decode(ROW_COUNTER, row.data, row.len, &bytes, err) < 0))
        return -1;
    ret->blobs = st[DB_BLOBS].ms_entries;
    ret->blob_bytes = bytes;
    ret->repositories = st[DB_REPOSITORIES].ms_entries;
    ret->manifests = st[DB_MANIFESTS].ms_entries;
    ret->tags = st[DB_TAGS].ms_entries;
    return 0;
}
