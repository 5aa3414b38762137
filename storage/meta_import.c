/* Writing a commit's manifest with everything it stands on, and tags. */
#include "storage/meta_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* "import" and the repository, when it stands for one. */
#define SOURCE_MAX (2 * REPOSITORY_MAX + 16)
static void import_source(char buf[static SOURCE_MAX], const char *upstream, const char *repo_id)
{
    snprintf(buf, SOURCE_MAX, "import%s%s%s%s", *upstream ? " " : "", upstream, *repo_id ? " " : "",
             repo_id);
}

/* What is the same however often run_import() runs is made before it is queued. */
struct import_args {
    const struct import_record *r;
    uint64_t now;
    char source[SOURCE_MAX];
    struct tag_cause cause;
    struct digest *needs; /* sorted */
    struct strbuf manifest_row, repository_row, commit_row;
    struct key commit_key;
};

static void import_args_done(struct import_args *a)
{
    free(a->needs);
    strbuf_done(&a->manifest_row);
    strbuf_done(&a->repository_row);
    strbuf_done(&a->commit_row);
}

static bool origin_equal(const struct origin *a, const struct origin *b)
{
    return strcmp(a->path, b->path) == 0 && strcmp(a->commit, b->commit) == 0 &&
           strcmp(a->repo_id, b->repo_id) == 0 && strcmp(a->upstream, b->upstream) == 0;
}

static void origin_put_first(struct link_row *row, const struct origin *o)
{
    size_t at = 0;
    while (at < row->n_origins && !origin_equal(&row->origins[at], o))
        at++;
    if (at == row->n_origins && at < LINK_ORIGINS_MAX)
        row->n_origins++;
    if (at == LINK_ORIGINS_MAX)
        at--; /* the oldest gives way */
    memmove(&row->origins[1], &row->origins[0], at * sizeof(row->origins[0]));
    row->origins[0] = *o;
}

/* Rule 3, and: bytes that were hashed know their size better than an upstream does. */
static int check_blob(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t said,
                      bool has_origin, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_digest(d);
    char text[DIGEST_TEXT_MAX];
    uint64_t size;
    int r = db_get(m, txn, DB_BLOBS, &k, &row, err);
    if (r < 0)
        return -1;
    if (r == 1 && blob_row_decode(row.data, row.len, &size, NULL) < 0)
        r = 0; /* damaged: as good as not held */
    if (r == 0 && !has_origin)
        return err_set(err, ERR_INTERNAL, "blob %s is not held and has no origin",
                       digest_format(d, text));
    if (r == 1 && size != said)
        return err_set(err, ERR_UPSTREAM,
                       "blob %s is said to have %" PRIu64 " bytes, but has %" PRIu64,
                       digest_format(d, text), said, size);
    return 0;
}

/* A manifest that was fetched says a size. Somebody else's word on it is as good until the upstream
 * has been asked, and what the upstream said itself is better. */
static uint64_t size_of_link(const struct link_row *link, uint64_t said, bool is_claim)
{
    if (!link || !is_claim || link->size == said)
        return said;
    return link->is_claimed ? LINK_SIZE_UNKNOWN : link->size;
}

int link_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
             uint64_t size, const struct origin *origin, bool is_claim, struct error *err)
{
    _cleanup_strbuf_ struct strbuf old = STRBUF_INIT, row = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    struct link_row link = {.is_claimed = is_claim};
    if (check_blob(m, txn, d, size, origin != NULL, err) < 0)
        return -1;
    int found = db_get(m, txn, DB_LINKS, &k, &old, err);
    if (found < 0)
        return -1;
    if (found && link_row_decode(old.data, old.len, &link, NULL) < 0) {
        link = (struct link_row){.is_claimed = is_claim}; /* damaged: this is what repairs it */
        found = 0;
    }
    link.size = size_of_link(found ? &link : NULL, size, is_claim);
    link.is_claimed = link.is_claimed && is_claim;
    if (origin)
        origin_put_first(&link, origin);
    link_row_encode(&row, &link);
    return db_put(m, txn, DB_LINKS, &k, &row, err);
}

static int put_link(struct meta *m, MDB_txn *txn, const struct import_record *r,
                    const struct import_link *l, struct error *err)
{
    struct key use = key_of_use(&l->digest, r->repository, &r->manifest_digest);
    struct origin origin = {
        .upstream = r->upstream, .repo_id = r->repo_id, .commit = r->commit, .path = l->path};
    if (link_put(m, txn, r->repository, &l->digest, l->size, l->path ? &origin : NULL, false, err) <
        0)
        return -1;
    return db_put(m, txn, DB_USES, &use, NULL, err);
}

/* The manifest was stored before: what it needed then and does not need now is let go. Only a
 * change of what counts as needed can make a difference, for its bytes are the same. */
static int release_old_needs(struct meta *m, MDB_txn *txn, const char *repository,
                             const struct digest *manifest, const struct strbuf *old,
                             const struct digest *needs, size_t n_needs, struct error *err)
{
    struct manifest_row row;
    if (manifest_row_decode(old->data, old->len, &row, NULL) < 0)
        return 0;
    for (size_t i = 0; i < row.n_needs; i++) {
        struct digest d;
        record_get_digest(&row.needs, &d);
        if (n_needs && bsearch(&d, needs, n_needs, sizeof(d), digest_order))
            continue;
        if (link_release(m, txn, repository, manifest, !*row.commit, &d, err) < 0)
            return -1;
    }
    return 0;
}

int manifest_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                 const struct strbuf *row, const struct digest *needs, size_t n_needs,
                 struct error *err)
{
    _cleanup_strbuf_ struct strbuf old = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    if (strbuf_failed(row))
        return err_set(err, ERR_NOMEM, "out of memory");
    int found = db_get(m, txn, DB_MANIFESTS, &k, &old, err);
    if (found < 0)
        return -1;
    if (found && old.len == row->len && memcmp(old.data, row->data, old.len) == 0)
        return 0;
    if (found && release_old_needs(m, txn, repository, d, &old, needs, n_needs, err) < 0)
        return -1;
    return db_put(m, txn, DB_MANIFESTS, &k, row, err);
}

static int run_import(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct import_args *a = arg;
    const struct import_record *r = a->r;
    for (size_t i = 0; i < r->n_links; i++)
        if (put_link(m, txn, r, &r->links[i], err) < 0)
            return -1;
    if (manifest_put(m, txn, r->repository, &r->manifest_digest, &a->manifest_row, a->needs,
                     r->n_links, err) < 0)
        return -1;
    struct tag tag = {.digest = r->manifest_digest, .checked_at = a->now};
    memcpy(tag.commit, r->commit, strlen(r->commit) + 1);
    for (size_t i = 0; i < r->n_tags; i++)
        if (tag_move(m, txn, r->repository, r->tags[i], &tag, &a->cause, err) < 0)
            return -1;
    struct key k = KEY_INIT;
    key_put_text(&k, r->repository);
    if (db_put(m, txn, DB_REPOSITORIES, &k, &a->repository_row, err) < 0)
        return -1;
    return r->files ? db_put(m, txn, DB_COMMITS, &a->commit_key, &a->commit_row, err) : 0;
}

static int import_encode(struct import_args *a, struct error *err)
{
    const struct import_record *r = a->r;
    a->needs = calloc(r->n_links + 1, sizeof(*a->needs));
    if (!a->needs)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < r->n_links; i++)
        a->needs[i] = r->links[i].digest;
    qsort(a->needs, r->n_links, sizeof(*a->needs), digest_order);
    import_source(a->source, r->upstream, r->repo_id);
    a->cause = (struct tag_cause){.source = a->source, .at_ms = history_now_ms()};
    manifest_row_encode(&a->manifest_row,
                        &(struct manifest_row){.media_type = r->media_type,
                                               .commit = r->commit,
                                               .bytes = r->manifest,
                                               .len = r->manifest_len,
                                               .n_needs = r->n_links},
                        a->needs);
    struct repository_row repository = {{0}, {0}};
    memcpy(repository.upstream, r->upstream, strlen(r->upstream) + 1);
    memcpy(repository.repo_id, r->repo_id, strlen(r->repo_id) + 1);
    repository_row_encode(&a->repository_row, &repository);
    if (!r->files)
        return 0;
    commit_row_encode(&a->commit_row, r->upstream, r->repo_id, r->commit, r->files, r->n_files);
    return key_of_commit(r->upstream, r->repo_id, r->commit, &a->commit_key, err);
}

int meta_commit_import(struct meta *m, const struct import_record *r, struct error *err)
{
    struct import_args a = {.r = r, .now = clock_wall_s()};
    int rc = import_encode(&a, err);
    if (rc == 0)
        rc = meta_write(m, run_import, &a, err);
    import_args_done(&a);
    return rc;
}

struct tag_args {
    char repository[REPOSITORY_MAX + 1];
    char name[TAG_MAX + 1];
    struct tag value;
    uint64_t at_ms;
};

static int run_tag_put(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct tag_args *a = arg;
    struct key k = key_of_content(a->repository, &a->value.digest);
    struct repository_row row;
    char source[SOURCE_MAX];
    int r = db_has(m, txn, DB_MANIFESTS, &k, err);
    if (r < 0)
        return -1;
    if (r == 0) {
        char text[DIGEST_TEXT_MAX];
        return err_set(err, ERR_NOT_FOUND, "%s has no manifest %s to tag as %s", a->repository,
                       digest_format(&a->value.digest, text), a->name);
    }
    if (repository_row_find(m, txn, a->repository, &row, err) < 0)
        return -1;
    import_source(source, row.upstream, row.repo_id);
    return tag_move(m, txn, a->repository, a->name, &a->value,
                    &(struct tag_cause){.source = source, .at_ms = a->at_ms}, err);
}

int meta_tag_put(struct meta *m, const char *repository, const char *tag,
                 const struct digest *manifest, const char *commit, struct error *err)
{
    struct tag_args a = {.value = {.digest = *manifest, .checked_at = clock_wall_s()},
                         .at_ms = history_now_ms()};
    snprintf(a.repository, sizeof(a.repository), "%s", repository);
    snprintf(a.name, sizeof(a.name), "%s", tag);
    snprintf(a.value.commit, sizeof(a.value.commit), "%s", commit);
    return meta_write(m, run_tag_put, &a, err);
}

static int run_tag_confirm(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct tag_args *a = arg;
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_tag(a->repository, a->name);
    struct tag tag;
    int r = db_get(m, txn, DB_TAGS, &k, &row, err);
    if (r <= 0)
        return r;
    if (tag_row_decode(row.data, row.len, &tag, NULL) < 0)
        return 0; /* reading it says so */
    if (tag.checked_at >= a->value.checked_at)
        return 0;
    tag.checked_at = a->value.checked_at;
    return tag_write(m, txn, a->repository, a->name, &tag, err);
}

void meta_tag_confirm_later(struct meta *m, const char *repository, const char *tag)
{
    struct tag_args *a = calloc(1, sizeof(*a));
    if (!a)
        return;
    snprintf(a->repository, sizeof(a->repository), "%s", repository);
    snprintf(a->name, sizeof(a->name), "%s", tag);
    a->value.checked_at = clock_wall_s();
    meta_write_later(m, run_tag_confirm, a, free);
}
