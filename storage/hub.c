/* What is kept for the Hub's own API: the names are checked here, and nowhere below. */
#include "storage/hub.h"

#include <string.h>

#include "storage/store_private.h"

#define WHAT_MAX 4500u
#define DOCUMENT_MAX ((size_t)256 << 20)

static int check_name(const char *name, const char *what, size_t max, struct error *err)
{
    if (!*name)
        return err_set(err, ERR_INVALID, "%s of a Hub is empty", what);
    if (strlen(name) > max)
        return err_set(err, ERR_INVALID, "%s of a Hub is over %zu bytes: '%.80s...'", what, max,
                       name);
    return 0;
}

static int check_id(const char *upstream, const char *id, struct error *err)
{
    if (check_name(upstream, "the prefix", REPOSITORY_MAX, err) < 0)
        return -1;
    return check_name(id, "a repository's name", REPOSITORY_MAX, err);
}

static int check_revision(const char *upstream, const char *id, const char *revision,
                          struct error *err)
{
    if (check_id(upstream, id, err) < 0)
        return -1;
    return check_name(revision, "a revision", HUB_REVISION_MAX, err);
}

static int check_commit(const char *upstream, const char *id, const char *commit, struct error *err)
{
    if (check_id(upstream, id, err) < 0)
        return -1;
    if (!is_lower_hex(commit, GIT_ID_LEN))
        return err_set(err, ERR_INVALID, "'%.80s' is not a commit", commit);
    return 0;
}

static int check_object(const char *upstream, const char *id, const char *git_oid,
                        struct error *err)
{
    if (check_id(upstream, id, err) < 0)
        return -1;
    if (!is_lower_hex(git_oid, GIT_ID_LEN))
        return err_set(err, ERR_INVALID, "'%.80s' is not a git object id", git_oid);
    return 0;
}

static int check_document(const char *upstream, const char *id, const char *commit,
                          const char *what, struct error *err)
{
    if (*commit ? check_commit(upstream, id, commit, err) < 0 : check_id(upstream, id, err) < 0)
        return -1;
    return check_name(what, "a document's name", WHAT_MAX, err);
}

int store_hub_name_get(struct store *s, const char *upstream, const char *name,
                       struct hub_name *ret, struct error *err)
{
    if (check_id(upstream, name, err) < 0)
        return -1;
    return meta_hub_name_get(s->meta, upstream, name, ret, err);
}

int store_hub_pin_get(struct store *s, const char *upstream, const char *id, const char *revision,
                      struct hub_pin *ret, struct error *err)
{
    if (check_revision(upstream, id, revision, err) < 0)
        return -1;
    return meta_hub_pin_get(s->meta, upstream, id, revision, ret, err);
}

int store_hub_pin_put(struct store *s, const char *upstream, const char *name, const char *id,
                      const char *revision, const char *commit, struct error *err)
{
    if (check_revision(upstream, id, revision, err) < 0 ||
        check_commit(upstream, name ? name : id, commit, err) < 0)
        return -1;
    return meta_hub_pin_put(s->meta, upstream, name, id, revision, commit, err);
}

int store_hub_pin_drop(struct store *s, const char *upstream, const char *id, const char *revision,
                       struct error *err)
{
    if (!revision)
        return check_id(upstream, id, err) < 0
                   ? -1
                   : meta_hub_repository_drop(s->meta, upstream, id, err);
    if (check_revision(upstream, id, revision, err) < 0)
        return -1;
    return meta_hub_pin_drop(s->meta, upstream, id, revision, err);
}

int store_hub_document_get(struct store *s, const char *upstream, const char *id,
                           const char *commit, const char *what, struct strbuf *to,
                           uint64_t *ret_checked_at, struct error *err)
{
    uint64_t checked_at;
    if (check_document(upstream, id, commit, what, err) < 0)
        return -1;
    return meta_hub_document_get(s->meta, upstream, id, commit, what, to,
                                 ret_checked_at ? ret_checked_at : &checked_at, err);
}

int store_hub_document_put(struct store *s, const char *upstream, const char *id,
                           const char *commit, const char *what, const void *data, size_t len,
                           struct error *err)
{
    if (check_document(upstream, id, commit, what, err) < 0)
        return -1;
    if (len > DOCUMENT_MAX)
        return err_set(err, ERR_TOO_LARGE, "%.100s of %s has %zu bytes; the limit is %zu", what, id,
                       len, DOCUMENT_MAX);
    return meta_hub_document_put(s->meta, upstream, id, commit, what, data, len, err);
}

int store_hub_files_put(struct store *s, const char *upstream, const char *id, const char *commit,
                        const struct commit_file *files, size_t n, struct error *err)
{
    if (check_commit(upstream, id, commit, err) < 0)
        return -1;
    if (n > COMMIT_FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "%s has %zu files at %s; the limit is %u", id, n, commit,
                       COMMIT_FILES_MAX);
    for (size_t i = 0; i < n; i++)
        if (!memchr(files[i].git_oid, '\0', sizeof(files[i].git_oid)))
            return err_set(err, ERR_INVALID, "the git object id of %.200s is too long",
                           files[i].path);
    return meta_hub_files_put(s->meta, upstream, id, commit, files, n, err);
}

int store_hub_object_get(struct store *s, const char *upstream, const char *id, const char *git_oid,
                         struct digest *ret, struct error *err)
{
    if (check_object(upstream, id, git_oid, err) < 0)
        return -1;
    return meta_hub_object_get(s->meta, upstream, id, git_oid, ret, err);
}

int store_hub_object_put(struct store *s, const char *upstream, const char *id, const char *git_oid,
                         const struct digest *d, struct error *err)
{
    if (check_object(upstream, id, git_oid, err) < 0)
        return -1;
    if (d->alg != DIGEST_SHA256)
        return err_set(err, ERR_INVALID, "the bytes of a git object are known by their sha256");
    return meta_hub_object_put(s->meta, upstream, id, git_oid, d, err);
}

int store_hub_keep(struct store *s, const char *upstream, const char *id, const char *commit,
                   const struct digest *d, struct error *err)
{
    if (check_commit(upstream, id, commit, err) < 0 || store_check_digest(d, err) < 0)
        return -1;
    return meta_hub_keep(s->meta, upstream, id, commit, d, err);
}

/* 1 forgotten, 0 there was nothing, -1. Spellings of one name may have several ids. */
static int forget_all(struct store *s, const char *repository, const char *commit,
                      struct error *err)
{
    struct hub_commit c;
    int r, any = 0;
    while ((r = meta_hub_find(s->meta, repository, commit, &c, err)) == 1) {
        if (meta_hub_forget(s->meta, c.upstream, c.id, commit, err) < 0)
            return -1;
        any = 1;
    }
    return r < 0 ? -1 : any;
}

int store_hub_remove(struct store *s, const struct reference *r, const char *source,
                     struct error *err)
{
    struct error why = ERROR_INIT;
    int removed = store_remove(s, r, NULL, source, &why);
    int forgotten = 0;
    if (!r->is_digest && is_lower_hex(r->tag, GIT_ID_LEN) &&
        (removed == 0 || why.code == ERR_NOT_FOUND))
        forgotten = forget_all(s, r->repository, r->tag, err);
    if (forgotten < 0)
        return -1;
    if (removed < 0 && !forgotten && err)
        *err = why;
    return removed == 0 || forgotten ? 0 : -1;
}
