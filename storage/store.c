#include "storage/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "storage/fault.h"
#include "storage/store_private.h"

/* Kept free even where no percentage is: removing content writes rows, and so takes space first. */
#define SPACE_RESERVE ((uint64_t)16 << 20)

/* ---- opening ---- */

const char *storage_boot_file = "/proc/sys/kernel/random/boot_id";

/* See OWNER_BOOT. A boot that cannot be told is told apart from every other. */
static int make_owner(struct store *s, struct error *err)
{
    _cleanup_strbuf_ struct strbuf boot = STRBUF_INIT;
    if (random_hex(s->owner, INCOMING_OWNER_MAX / 2, err) < 0)
        return -1;
    if (fs_read_file(storage_boot_file, 64, &boot, NULL) < 0)
        return 0;
    char digits[OWNER_BOOT];
    size_t n = 0;
    for (const char *p = strbuf_str(&boot); *p && n < OWNER_BOOT; p++)
        if (*p != '-')
            digits[n++] = *p;
    if (n == OWNER_BOOT && strspn(strbuf_str(&boot), "0123456789abcdef-") >= OWNER_BOOT)
        memcpy(s->owner, digits, OWNER_BOOT);
    return 0;
}

static int open_parts(struct store *s, const struct store_options *o, struct error *err)
{
    _cleanup_strbuf_ struct strbuf meta_dir = STRBUF_INIT;
    if (datadir_open(o->dir, &s->lock_fd, err) < 0 || make_owner(s, err) < 0)
        return -1;
    s->dir = realpath(o->dir, NULL); /* texts and figures stay right after a chdir */
    if (!s->dir)
        return err_errno(err, "%s", o->dir);
    strbuf_printf(&meta_dir, "%s/meta", s->dir);
    if (strbuf_failed(&meta_dir))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (blobs_open(s->dir, &s->blobs, err) < 0 ||
        meta_open(strbuf_str(&meta_dir), o->max_readers, &s->meta, err) < 0)
        return -1;
    return store_recover(s, err);
}

int store_open(const struct store_options *options, struct store **ret, struct error *err)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->lock_fd = -1;
    s->free_floor_percent = options->free_floor_percent;
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    }
    if (uploads_new(options->max_uploads, &s->uploads, err) < 0 ||
        open_parts(s, options, err) < 0) {
        store_close(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    uploads_free(s->uploads);
    meta_close(s->meta);
    blobs_close(s->blobs);
    if (s->lock_fd >= 0)
        close(s->lock_fd); /* last: the lock goes with it */
    pthread_mutex_destroy(&s->lock);
    free(s->dir);
    free(s);
}

/* ---- checks of names ---- */

int store_check_digest(const struct digest *d, struct error *err)
{
    if (d->alg != DIGEST_SHA256 && d->alg != DIGEST_SHA512)
        return err_set(err, ERR_INVALID, "not a digest of sha256 or sha512");
    return 0;
}

int store_check_repository(const char *repository, struct error *err)
{
    if (!repository_is_valid(repository))
        return err_set(err, ERR_INVALID, "'%.300s' is not a repository name", repository);
    return 0;
}

int store_check_tag(const char *repository, const char *tag, struct error *err)
{
    if (store_check_repository(repository, err) < 0)
        return -1;
    if (!tag_is_valid(tag))
        return err_set(err, ERR_INVALID, "'%.200s' is not a tag", tag);
    return 0;
}

int store_check_content(const char *repository, const struct digest *d, struct error *err)
{
    return store_check_repository(repository, err) < 0 ? -1 : store_check_digest(d, err);
}

/* ---- blobs that we hold ---- */

struct blob {
    int fd;
    uint64_t size;
};

struct gone_ctx {
    struct store *s;
    const struct digest *digest;
};

/* On the writing thread: whether the file is still not what its row says. */
static int is_gone(void *arg, uint64_t row_size, struct error *err)
{
    struct gone_ctx *c = arg;
    uint64_t size;
    int r = blobs_stat(c->s->blobs, c->digest, &size, err);
    /* A file of another length stays: a commit may have put it there just now, before its row, and
     * the row may be the one that is wrong. Without a row it is not believed; gc takes it. */
    return r < 0 ? -1 : r == 0 || size != row_size;
}

/* Somebody removed or cut a file behind our back. The blob is not held then, and can be fetched
 * again; when the row cannot be dropped now, that is found again next time. */
static void forget(struct store *s, const struct digest *d)
{
    struct gone_ctx c = {.s = s, .digest = d};
    meta_blob_forget(s->meta, d, is_gone, &c, NULL);
}

int store_blob_open(struct store *s, const struct digest *d, struct blob **ret, struct error *err)
{
    uint64_t row_size, size = 0;
    _cleanup_close_ int fd = -1;
    if (store_check_digest(d, err) < 0)
        return -1;
    int r = meta_blob_get(s->meta, d, &row_size, err);
    if (r <= 0)
        return r;
    r = blobs_open_file(s->blobs, d, &fd, &size, err);
    if (r < 0)
        return -1;
    if (r == 0 || size != row_size) {
        forget(s, d);
        return 0;
    }
    struct blob *b = malloc(sizeof(*b));
    if (!b)
        return err_set(err, ERR_NOMEM, "out of memory");
    *b = (struct blob){.fd = TAKE_FD(fd), .size = size};
    *ret = b;
    return 1;
}

int store_blob_stat(struct store *s, const struct digest *d, uint64_t *ret_size, struct error *err)
{
    uint64_t row_size, size = 0;
    if (store_check_digest(d, err) < 0)
        return -1;
    int r = meta_blob_get(s->meta, d, &row_size, err);
    if (r <= 0)
        return r;
    r = blobs_stat(s->blobs, d, &size, err);
    if (r < 0)
        return -1;
    if (r == 0 || size != row_size) {
        forget(s, d);
        return 0;
    }
    *ret_size = size;
    return 1;
}

uint64_t blob_size(const struct blob *b)
{
    return b->size;
}

int blob_fd(const struct blob *b)
{
    return b->fd;
}

ssize_t blob_read(struct blob *b, uint64_t offset, void *buf, size_t len, struct error *err)
{
    if (offset >= b->size)
        return 0;
    if (len > b->size - offset)
        len = (size_t)(b->size - offset);
    if (len == 0)
        return 0;
    ssize_t n;
    do {
        n = pread(b->fd, buf, len, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, "read a blob at %" PRIu64, offset);
    if (n == 0)
        return err_set(err, ERR_IO, "a blob's file ends at %" PRIu64 " instead of %" PRIu64, offset,
                       b->size);
    return n;
}

void blob_close(struct blob *b)
{
    if (!b)
        return;
    close(b->fd);
    free(b);
}

uint64_t store_missing(struct store *s, const struct digest *d, uint64_t size)
{
    struct incoming_row row;
    bool is_begun = store_check_digest(d, NULL) == 0 &&
                    meta_incoming_transfer(s->meta, d, &row, NULL) > 0 && row.size == size &&
                    row.synced <= size;
    return is_begun ? size - row.synced : size;
}

int store_has_room(struct store *s, uint64_t bytes, struct error *err)
{
    uint64_t left, total;
    if (fs_space(s->dir, &left, &total, err) < 0)
        return -1;
    uint64_t floor = total / 100 * s->free_floor_percent;
    uint64_t rest = left > bytes ? left - bytes : 0;
    if (left >= bytes && rest >= (floor > SPACE_RESERVE ? floor : SPACE_RESERVE))
        return 0;
    if (floor < SPACE_RESERVE)
        return err_set(err, ERR_NO_SPACE,
                       "%s: %" PRIu64 " of %" PRIu64 " bytes of the filesystem would stay free, "
                       "fewer than the %" PRIu64 " MiB without which nothing could be removed any "
                       "more, whatever limits.free_percent says: free some",
                       s->dir, rest, total, SPACE_RESERVE >> 20);
    return err_set(err, ERR_NO_SPACE,
                   "%s: %" PRIu64 " of %" PRIu64 " bytes of the filesystem would stay free, fewer "
                   "than the %u %% of limits.free_percent: free some, or lower the setting",
                   s->dir, rest, total, s->free_floor_percent);
}

/* ---- repositories ---- */

void link_done(struct link *l)
{
    free(l->storage);
    *l = (struct link){0};
}

int store_link_get(struct store *s, const char *repository, const struct digest *d,
                   struct link *ret, struct error *err)
{
    struct link l;
    uint64_t size = 0;
    if (store_check_content(repository, d, err) < 0)
        return -1;
    int r = meta_link_get(s->meta, repository, d, &l, err);
    if (r <= 0)
        return r;
    /* One stat, so that "held" is never said of bytes that opening would not find. */
    if (l.held) {
        r = blobs_stat(s->blobs, d, &size, err);
        if (r < 0) {
            link_done(&l);
            return -1;
        }
        if (r == 0 || size != l.size) {
            forget(s, d);
            l.held = false;
        }
    }
    *ret = l;
    return 1;
}

void manifest_done(struct manifest *m)
{
    free(m->media_type);
    free(m->bytes);
    *m = (struct manifest){0};
}

int store_manifest_get(struct store *s, const char *repository, const struct digest *d,
                       struct manifest *ret, struct error *err)
{
    if (store_check_content(repository, d, err) < 0)
        return -1;
    return meta_manifest_get(s->meta, repository, d, ret, err);
}

int store_tag_get(struct store *s, const char *repository, const char *tag, struct tag *ret,
                  struct error *err)
{
    if (store_check_tag(repository, tag, err) < 0)
        return -1;
    return meta_tag_get(s->meta, repository, tag, ret, err);
}

void store_tag_confirm(struct store *s, const char *repository, const char *tag)
{
    if (store_check_tag(repository, tag, NULL) == 0)
        meta_tag_confirm_later(s->meta, repository, tag);
}

void name_list_done(struct name_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    *l = (struct name_list){0};
}

int store_tags(struct store *s, const char *repository, const char *last, size_t limit,
               struct name_list *ret, struct error *err)
{
    if (store_check_repository(repository, err) < 0)
        return -1;
    return meta_tags(s->meta, repository, last, limit, ret, err);
}

int store_repositories(struct store *s, const char *last, size_t limit, struct name_list *ret,
                       struct error *err)
{
    return meta_repositories(s->meta, last, limit, ret, err);
}

int store_repository_get(struct store *s, const char *repository, struct repository_row *ret,
                         struct error *err)
{
    if (store_check_repository(repository, err) < 0)
        return -1;
    return meta_repository_get(s->meta, repository, ret, err);
}

/* ---- imports ---- */

static int check_texts(const struct import_record *r, struct error *err)
{
    if (store_check_repository(r->repository, err) < 0)
        return -1;
    if (strlen(r->upstream) > REPOSITORY_MAX || strlen(r->repo_id) > REPOSITORY_MAX)
        return err_set(err, ERR_INVALID, "an upstream's name or repository id is over %d bytes",
                       REPOSITORY_MAX);
    if (*r->commit && !is_lower_hex(r->commit, 40))
        return err_set(err, ERR_INVALID, "'%.80s' is not a commit", r->commit);
    for (size_t i = 0; i < r->n_tags; i++)
        if (store_check_tag(r->repository, r->tags[i], err) < 0)
            return -1;
    for (size_t i = 0; r->files && i < r->n_files; i++)
        if (!memchr(r->files[i].git_oid, '\0', sizeof(r->files[i].git_oid)))
            return err_set(err, ERR_INVALID, "the git object id of %s is too long",
                           r->files[i].path);
    if (r->files && r->n_files > COMMIT_FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "%s has %zu files at %s; the limit is %u", r->repo_id,
                       r->n_files, r->commit, COMMIT_FILES_MAX);
    return 0;
}

static int check_import(const struct import_record *r, struct error *err)
{
    struct digest real;
    if (check_texts(r, err) < 0 || store_check_digest(&r->manifest_digest, err) < 0 ||
        digest_of(r->manifest_digest.alg, r->manifest, r->manifest_len, &real, err) < 0)
        return -1;
    if (!digest_equal(&real, &r->manifest_digest))
        return err_set(err, ERR_INTERNAL, "the manifest of %s does not hash to its digest",
                       r->repository);
    for (size_t i = 0; i < r->n_links; i++)
        if (store_check_digest(&r->links[i].digest, err) < 0)
            return -1;
    return 0;
}

int store_commit_import(struct store *s, const struct import_record *r, struct error *err)
{
    uint64_t size;
    if (check_import(r, err) < 0)
        return -1;
    /* Where only the bytes can keep rule 3, look at the file too, not only at its row. */
    for (size_t i = 0; i < r->n_links; i++)
        if (!r->links[i].path && store_blob_stat(s, &r->links[i].digest, &size, err) < 0)
            return -1;
    return meta_commit_import(s->meta, r, err);
}

int store_tag_put(struct store *s, const char *repository, const char *tag,
                  const struct digest *manifest, const char *commit, struct error *err)
{
    if (store_check_tag(repository, tag, err) < 0 || store_check_digest(manifest, err) < 0)
        return -1;
    if (*commit && !is_lower_hex(commit, 40))
        return err_set(err, ERR_INVALID, "'%.80s' is not a commit", commit);
    return meta_tag_put(s->meta, repository, tag, manifest, commit, err);
}

void commit_files_done(struct commit_files *f)
{
    free(f->files);
    free(f->storage);
    *f = (struct commit_files){0};
}

int store_commit_files_get(struct store *s, const char *upstream, const char *repo_id,
                           const char *commit, struct commit_files *ret, struct error *err)
{
    return meta_commit_files_get(s->meta, upstream, repo_id, commit, ret, err);
}

int store_remove(struct store *s, const struct reference *r, const struct tag_guard *guard,
                 const char *source, struct error *err)
{
    if (r->is_digest)
        return store_check_content(r->repository, &r->digest, err) < 0
                   ? -1
                   : meta_remove_manifest(s->meta, r->repository, &r->digest, guard, source, err);
    return store_check_tag(r->repository, r->tag, err) < 0
               ? -1
               : meta_remove_tag(s->meta, r->repository, r->tag, guard, source, err);
}

int store_vacate(struct store *s, const char *repository, const char *source, struct error *err)
{
    return store_check_repository(repository, err) < 0
               ? -1
               : meta_repository_vacate(s->meta, repository, source, err);
}

/* ---- mismatches, figures ---- */

#define MISMATCH_MAX_S 3600u

bool store_has_failed(struct store *s, struct error *err)
{
    return meta_has_failed(s->meta, err);
}

int store_mismatch_put_to(struct store *s, const struct digest *d, const struct lent *to,
                          uint64_t until, struct error *err)
{
    if (store_check_digest(d, err) < 0)
        return -1;
    return meta_mismatch_put(s->meta, d, to, until, err);
}

int store_mismatch_put(struct store *s, const struct digest *d, uint64_t until, struct error *err)
{
    return store_mismatch_put_to(s, d, &(struct lent){.all = true}, until, err);
}

/* What one row says. */
static uint64_t mismatch_left(struct store *s, const struct digest *d,
                              const struct name_id *repository)
{
    uint64_t until = 0, now = clock_wall_s();
    int r = meta_mismatch_get(s->meta, d, repository, &until, NULL);
    /* Not known: refusing a resume is safe, joining a wrong beginning to a right end is not. */
    if (r < 0)
        return 60;
    if (r == 1 && until <= now) {
        meta_mismatch_expire_later(s->meta, d, repository);
        return 0;
    }
    if (r == 1 && until - now > MISMATCH_MAX_S) { /* the clock has been put back since */
        struct lent to = {.all = !repository, .n = repository != NULL};
        if (repository)
            to.to[0] = *repository;
        until = now + MISMATCH_MAX_S;
        meta_mismatch_put(s->meta, d, &to, until, NULL);
    }
    return r == 1 ? until - now : 0;
}

uint64_t store_mismatch_left(struct store *s, const struct digest *d, const char *repository)
{
    struct name_id id;
    if (store_check_digest(d, NULL) < 0)
        return 0;
    if (!name_id_of(repository, "", &id))
        return 60;
    uint64_t all = mismatch_left(s, d, NULL), own = mismatch_left(s, d, &id);
    return all > own ? all : own;
}

int store_stats(struct store *s, struct store_stats *ret, struct error *err)
{
    struct store_stats st = {.partials = atomic_load(&s->partials),
                             .partial_bytes = atomic_load(&s->partial_bytes),
                             .uploads = uploads_count(s->uploads)};
    if (meta_stats(s->meta, &st, err) < 0 ||
        fs_space(s->dir, &st.disk_free, &st.disk_total, err) < 0)
        return -1;
    *ret = st;
    return 0;
}
