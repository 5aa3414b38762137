/* How a session becomes a blob.
 *
 *     hashed     as it came, or read again here
 *     held       the blob is here already: link and end in one transaction, then the file goes
 *     else       digest and size to the row and, meanwhile, sync; rename, sync of the folder, then
 * blob, link and end in one transaction. A crash after the rename finds the row with its file gone
 *                and the blob's file there, and finishes (recover.c)
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fault.h"
#include "storage/upload_private.h"

#define READ_SIZE ((size_t)256 << 10)

static int feed(const struct staged *f, struct hasher *h, uint64_t at, struct error *err)
{
    if (at == f->length)
        return 0;
    _cleanup_free_ void *buf = malloc(READ_SIZE);
    if (!buf)
        return err_set(err, ERR_NOMEM, "out of memory");
    while (at < f->length) {
        size_t want = f->length - at < READ_SIZE ? (size_t)(f->length - at) : READ_SIZE;
        ssize_t n = pread(f->fd, buf, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "read %s/incoming/%s", f->store->dir, f->row.file);
        if (n == 0)
            return err_set(err, ERR_IO, "%s/incoming/%s ends at %" PRIu64 " instead of %" PRIu64,
                           f->store->dir, f->row.file, at, f->length);
        if (hasher_update(h, buf, (size_t)n, err) < 0)
            return -1;
        at += (uint64_t)n;
    }
    return 0;
}

/* Of exactly the bytes that are to be committed. */
static int hash_all(struct session *x, enum digest_alg alg, struct digest *ret, struct error *err)
{
    struct staged *f = &x->file;
    _cleanup_hasher_ struct hasher *h = NULL;
    bool along = alg == f->row.alg;
    uint64_t at = 0;
    if (along && x->hasher) {
        h = TAKE_PTR(x->hasher);
        at = x->hashed;
        x->hashed = 0;
    } else if (hasher_new(alg, &h, err) < 0) {
        return -1;
    }
    if (feed(f, h, at, err) < 0 || hasher_peek(h, ret, err) < 0)
        return -1;
    if (along) { /* for another commit after a mismatch */
        x->hasher = TAKE_PTR(h);
        x->hashed = f->length;
    }
    return 0;
}

static int mismatch(const struct session *x, uint64_t size, const struct digest *real,
                    const struct digest *d, struct error *err)
{
    char real_text[DIGEST_TEXT_MAX], text[DIGEST_TEXT_MAX];
    return err_set(err, ERR_DIGEST_MISMATCH,
                   "the %" PRIu64 " bytes of upload %s hash to %s, not to %s", size,
                   x->file.row.file, digest_format(real, real_text), digest_format(d, text));
}

static int check_digest(struct session *x, const struct digest *d, struct error *err)
{
    struct staged *f = &x->file;
    struct digest real;
    struct stat st;
    /* Somebody else's hand in the file must not end in a blob of another length. */
    if (fstat(f->fd, &st) < 0)
        return err_errno(err, "stat %s/incoming/%s", f->store->dir, f->row.file);
    if ((uint64_t)st.st_size != f->length)
        return err_set(err, ERR_IO, "%s/incoming/%s has %jd bytes instead of %" PRIu64,
                       f->store->dir, f->row.file, (intmax_t)st.st_size, f->length);
    if (hash_all(x, d->alg, &real, err) < 0)
        return -1;
    if (digest_equal(&real, d))
        return 0;
    uint64_t size = f->length;
    if (session_rewind(x, err) < 0)
        return -1;
    return mismatch(x, size, &real, d, err);
}

/* The file gets its name in blobs/. */
static int publish(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    struct store *s = f->store;
    fault_point("upload.verified");
    if (x->allocated > f->length && ftruncate(f->fd, (off_t)f->length) < 0)
        return err_errno(err, "truncate %s/incoming/%s", s->dir, f->row.file);
    x->allocated = f->length;
    struct meta_put *intent = meta_incoming_put_start(s->meta, &f->row, err);
    if (!intent)
        return -1;
    struct error problem = ERROR_INIT; /* what comes first is told */
    bool synced = staged_sync(f, &problem) == 0;
    int r = meta_incoming_put_wait(s->meta, intent, synced ? err : NULL);
    if (!synced) {
        session_lose_unsynced(x);
        if (err)
            *err = problem;
        return -1;
    }
    f->row.synced = f->length;
    if (r < 0)
        return -1;
    fault_point("upload.intent");
    if (staging_publish(s->blobs, f->row.file, &f->row.digest, err) < 0) {
        uint64_t unused;
        x->renamed = staging_stat(s->blobs, f->row.file, &unused, NULL, NULL) == 0;
        return -1;
    }
    x->renamed = true;
    return 0;
}

/* An earlier commit came as far as the rename: what is left of it. */
static int finish_renamed(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    struct store *s = f->store;
    uint64_t size = 0;
    int r = blobs_stat(s->blobs, &f->row.digest, &size, err);
    if (r < 0)
        return -1;
    if (r == 0 || size != f->row.size)
        return err_set(err, ERR_IO,
                       "%s: the bytes of upload %s were removed from blobs/; begin a new one",
                       s->dir, f->row.file);
    return blobs_seal(s->blobs, &f->row.digest, err);
}

static int store_verified(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    struct store *s = f->store;
    uint64_t size;
    if (!x->renamed && store_blob_stat(s, &f->row.digest, &size, NULL) == 1 &&
        size == f->row.size) {
        int r = meta_upload_link(s->meta, &f->row, err);
        if (r < 0)
            return -1;
        if (r == 1) {
            fault_point("upload.linked");
            /* A file without a row goes at the next start, should this fail. */
            staging_remove(s->blobs, f->row.file, NULL);
            return 0;
        }
    }
    if ((x->renamed ? finish_renamed(x, err) : publish(x, err)) < 0)
        return -1;
    return meta_upload_publish(s->meta, &f->row, err);
}

int session_commit(struct session *x, const struct digest *d, struct error *err)
{
    struct staged *f = &x->file;
    if (x->hasher)
        hasher_join(x->hasher); /* its thread has nothing more to do, and no lock is held here */
    if (x->renamed && !digest_equal(&f->row.digest, d))
        return mismatch(x, f->length, &f->row.digest, d, err);
    if (!x->renamed && check_digest(x, d, err) < 0)
        return -1;
    f->row.digest = *d;
    f->row.size = f->length;
    if (store_verified(x, err) < 0) {
        if (!x->renamed) { /* a session like any other */
            f->row.digest = (struct digest){.alg = DIGEST_NONE};
            f->row.size = WRITER_SIZE_UNKNOWN;
        }
        return -1;
    }
    staged_set_length(f, 0);
    if (f->fd >= 0)
        close(f->fd); /* here, where no lock is held: of a removed file it frees the space */
    f->fd = -1;
    return 0;
}
