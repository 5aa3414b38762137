/* What requests do with sessions. upload_table.c has what a session is, upload_commit.c its end. */
#include "storage/upload.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "storage/fault.h"
#include "storage/upload_private.h"

/* An empty session that nobody touched for so long makes room for another one. */
#define ABANDONED_MS 60000
/* More sessions than may be are those of a start with a lower limit: as many go with one request.
 */
#define ABANDONED_BATCH 16
/* Space for less is not worth a call of its own. */
#define ALLOCATE_MIN ((uint64_t)1 << 20)
#define AHEAD_MIN ((uint64_t)8 << 20)
#define AHEAD_MAX ((uint64_t)64 << 20)
/* From here on a thread beside the one that receives and writes is worth it. */
#define FORK_AFTER ((uint64_t)4 << 20)

/* Called with the table's lock, which is not held meanwhile. 0 gone (x may be freed), -1. */
static int end(struct uploads *t, struct session *x, struct error *err)
{
    x->holder = NULL;
    x->generation++;
    x->busy = true;
    pthread_mutex_unlock(&t->lock);
    int r = session_remove(x, err);
    pthread_mutex_lock(&t->lock);
    x->busy = false;
    if (r == 0)
        session_drop(t, x);
    pthread_cond_broadcast(&t->idle);
    return r;
}

/* ---- beginning ---- */

/* Row and file. The file's name need not be on disk yet: for a row without one, the next start
 * makes an empty one. */
static int make_files(struct store *s, struct incoming_row *row, struct error *err)
{
    _cleanup_close_ int fd = -1;
    if (random_hex(row->file, UPLOAD_ID_LEN / 2, err) < 0 ||
        staging_create(s->blobs, row->file, &fd, err) < 0)
        return -1;
    fault_point("upload.created");
    if (meta_incoming_put(s->meta, row, err) < 0) {
        staging_remove(s->blobs, row->file, NULL);
        return -1;
    }
    return 0;
}

/* Of the sessions that nobody holds and that never got a byte the one that was idle for longest, if
 * that is long enough. A client that died before its first byte must not keep others out until
 * expiry, and one that is only slow loses nothing but an address. */
static struct session *find_abandoned(struct uploads *t, int64_t now_ms)
{
    struct session *oldest = NULL;
    if (now_ms < t->abandoned_ms)
        return NULL;
    for (size_t i = 0; i < UPLOAD_BUCKETS; i++)
        for (struct session *x = t->buckets[i]; x; x = x->next)
            if (!x->busy && !x->holder && x->size == 0 && !x->renamed &&
                (!oldest || x->active_ms < oldest->active_ms))
                oldest = x;
    if (oldest && now_ms - oldest->active_ms >= ABANDONED_MS)
        return oldest;
    t->abandoned_ms = (oldest ? oldest->active_ms : now_ms) + ABANDONED_MS;
    return NULL;
}

/* A place among the most that may be. */
static int take_place(struct uploads *t, struct error *err)
{
    int r = 0;
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; r == 0 && t->n >= t->max && i < ABANDONED_BATCH; i++) {
        struct session *x = find_abandoned(t, (int64_t)clock_monotonic_ms());
        if (!x)
            break;
        r = end(t, x, err);
    }
    bool full = t->n >= t->max;
    if (r == 0 && !full)
        t->n++;
    pthread_mutex_unlock(&t->lock);
    if (r == 0 && full)
        return err_set(err, ERR_BUSY,
                       "%zu uploads are open, as many as limits.uploads allows: finish or "
                       "cancel some, wait until they expire, or raise the setting",
                       t->max);
    return r;
}

int upload_begin(struct store *s, const char *repository, enum digest_alg alg,
                 char ret_id[static UPLOAD_ID_LEN + 1], struct error *err)
{
    struct uploads *t = s->uploads;
    struct incoming_row row = {.kind = INCOMING_UPLOAD,
                               .size = WRITER_SIZE_UNKNOWN,
                               .created = clock_wall_s(),
                               .alg = alg};
    if (store_check_repository(repository, err) < 0)
        return -1;
    if (digest_size(alg) == 0)
        return err_set(err, ERR_UNSUPPORTED, "not an algorithm of digests");
    memcpy(row.repository, repository, strlen(repository) + 1);
    memcpy(row.owner, s->owner, sizeof(row.owner));
    if (take_place(t, err) < 0)
        return -1;
    struct session *x = NULL;
    int r = make_files(s, &row, err);
    if (r == 0)
        x = session_new(s, &row, err);
    if (r == 0 && !x) {
        meta_incoming_delete(s->meta, &row, NULL);
        staging_remove(s->blobs, row.file, NULL);
    }
    pthread_mutex_lock(&t->lock);
    if (x)
        session_insert(t, x);
    else
        t->n--;
    pthread_mutex_unlock(&t->lock);
    if (!x)
        return -1;
    fault_point("upload.begun");
    memcpy(ret_id, row.file, UPLOAD_ID_LEN + 1);
    return 0;
}

int upload_status(struct store *s, const char *repository, const char *id, uint64_t *ret_offset,
                  struct error *err)
{
    (void)err;
    struct uploads *t = s->uploads;
    pthread_mutex_lock(&t->lock);
    struct session *x = session_find(t, repository, id);
    if (x) {
        *ret_offset = x->acked = x->size;
        session_touch(x);
    }
    pthread_mutex_unlock(&t->lock);
    return x ? 1 : 0;
}

/* ---- one request's hold ---- */

/* Waits until nobody is busy with the session: 1 and it is the caller's, 0 it has ended, -1 a newer
 * hold came. Called with the table's lock. */
static int take_over(struct uploads *t, struct session *x, struct upload *u, struct error *err)
{
    x->refs++;
    x->holder = u;
    u->session = x;
    u->generation = ++x->generation;
    pthread_cond_broadcast(&t->idle); /* the one before does not get it any more */
    while (x->busy && x->generation == u->generation)
        pthread_cond_wait(&t->idle, &t->lock);
    if (x->generation == u->generation) {
        x->busy = true;
        session_touch(x);
        return 1;
    }
    if (x->gone)
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "upload %s was taken over by a newer request: ask it for its state (GET) and go "
                   "on from there, or begin a new one",
                   x->file.row.file);
}

/* 1 open and as long as what is acknowledged, 0 somebody removed the file, -1. */
static int resume(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    struct uploads *t = f->store->uploads;
    uint64_t there = f->length;
    if (x->renamed)
        return 1;
    int r = f->fd >= 0 ? 1 : staging_open(f->store->blobs, f->row.file, &f->fd, &there, err);
    if (r <= 0)
        return r;
    if (there < f->length) { /* somebody cut it */
        pthread_mutex_lock(&t->lock);
        x->acked = x->acked < there ? x->acked : there;
        pthread_mutex_unlock(&t->lock);
    }
    return session_rewind(x, err) < 0 ? -1 : 1;
}

/* Gives back what only a hold needs. */
static void let_go(struct session *x)
{
    struct staged *f = &x->file;
    if (x->hasher)
        hasher_join(x->hasher);
    if (f->fd < 0)
        return;
    if (x->allocated > f->length && ftruncate(f->fd, (off_t)f->length) == 0)
        x->allocated = f->length;
    close(f->fd);
    f->fd = -1;
}

/* The end of a hold; the caller has set busy. */
static void give_up(struct upload *u, bool gone)
{
    struct session *x = u->session;
    struct uploads *t = x->file.store->uploads;
    let_go(x);
    pthread_mutex_lock(&t->lock);
    if (x->holder == u)
        x->holder = NULL;
    x->busy = false;
    if (gone)
        session_drop(t, x);
    session_unref(x);
    pthread_cond_broadcast(&t->idle);
    pthread_mutex_unlock(&t->lock);
    free(u);
}

int upload_open(struct store *s, const char *repository, const char *id, struct upload **ret,
                struct error *err)
{
    struct uploads *t = s->uploads;
    struct upload *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, ERR_NOMEM, "out of memory");
    pthread_mutex_lock(&t->lock);
    struct session *x = session_find(t, repository, id);
    int r = x ? take_over(t, x, u, err) : 0;
    if (x && r <= 0)
        session_unref(x);
    pthread_mutex_unlock(&t->lock);
    if (r <= 0) {
        free(u);
        return r;
    }
    r = resume(x, err);
    if (r == 0) /* without its file it is nothing */
        r = session_remove(x, err) < 0 ? -1 : 0;
    if (r <= 0) {
        give_up(u, r == 0);
        return r;
    }
    u->acked = u->size = x->file.length;
    session_leave(x);
    *ret = u;
    return 1;
}

uint64_t upload_offset(const struct upload *u)
{
    return u->acked;
}

uint64_t upload_size(const struct upload *u)
{
    return u->size;
}

static int fail(const struct upload *u, struct error *err)
{
    if (err)
        *err = u->failure;
    return -1;
}

/* session_enter() for a call that may follow a failed one. */
static int enter(struct upload *u, struct error *err)
{
    if (u->failure.code != ERR_NONE || session_enter(u, &u->failure) < 0)
        return fail(u, err);
    if (!u->session->renamed)
        return 0;
    session_leave(u->session);
    err_set(&u->failure, ERR_CONFLICT,
            "upload %s is complete and waits for its commit to be sent again",
            u->session->file.row.file);
    return fail(u, err);
}

int upload_expect(struct upload *u, uint64_t bytes, struct error *err)
{
    struct session *x = u->session;
    struct staged *f = &x->file;
    if (bytes > INT64_MAX - u->size)
        return err_set(err, ERR_TOO_LARGE,
                       "%" PRIu64 " bytes behind the %" PRIu64 " of upload %s are more than a "
                       "file can hold",
                       bytes, u->size, f->row.file);
    if (enter(u, err) < 0)
        return -1;
    int r = store_has_room(f->store, bytes, err);
    if (r == 0 && bytes >= ALLOCATE_MIN) {
        uint64_t step = bytes < AHEAD_MAX ? bytes : AHEAD_MAX;
        x->announced = f->length + bytes;
        r = staging_allocate(f->store->blobs, f->fd, f->length, f->length + step, err);
        /* also after a failure, which may have taken a part */
        x->allocated = f->length + step;
    }
    session_leave(x);
    return r;
}

/* Without a hasher that has seen all, the commit reads the file. */
static void hash_along(struct session *x, const void *data, size_t len)
{
    if (x->file.length == 0 && !x->hasher) {
        x->hashed = 0;
        if (hasher_new(x->file.row.alg, &x->hasher, NULL) < 0)
            x->hasher = NULL;
    }
    if (!x->hasher || x->hashed != x->file.length)
        return;
    if (x->hashed >= FORK_AFTER)
        hasher_fork(x->hasher);
    if (hasher_update(x->hasher, data, len, NULL) < 0) {
        hasher_free(x->hasher);
        x->hasher = NULL;
        x->hashed = 0;
        return;
    }
    x->hashed += len;
}

/* Space is taken ahead of the body, which is cheaper than block by block: as much again as there
 * is, or what was announced, but never so much that a promise keeps others from the disk. What is
 * left over is given back with the hold. Where there is too little, the writes find out themselves.
 */
static void allocate_ahead(struct session *x)
{
    struct staged *f = &x->file;
    uint64_t step = x->announced > f->length ? x->announced - f->length : f->length;
    if (step > AHEAD_MAX)
        step = AHEAD_MAX;
    if (store_has_room(f->store, step, NULL) < 0)
        return;
    /* A failure may have taken a part. */
    if (staging_allocate(f->store->blobs, f->fd, f->length, f->length + step, NULL) == 0 ||
        ftruncate(f->fd, (off_t)f->length) < 0)
        x->allocated = f->length + step;
}

static int append(struct session *x, const void *data, size_t len, struct error *err)
{
    struct staged *f = &x->file;
    if (len > INT64_MAX - f->length)
        return err_set(err, ERR_TOO_LARGE, "upload %s is longer than a file can be", f->row.file);
    /* Of a body without a length the free space is looked at as it grows, once for every step of
     * writing out. */
    if (f->unflushed == 0 && f->length + len > x->allocated &&
        store_has_room(f->store, len, err) < 0)
        return -1;
    if ((f->length >= AHEAD_MIN || x->announced > x->allocated) && f->length + len > x->allocated)
        allocate_ahead(x);
    if (fs_pwrite_all(f->fd, data, len, f->length, err) < 0)
        return err_wrap(err, "%s/incoming/%s", f->store->dir, f->row.file);
    hash_along(x, data, len);
    staged_set_length(f, f->length + len);
    if (staged_written(f, len, err) < 0) {
        session_lose_unsynced(x);
        return -1;
    }
    return 0;
}

int upload_write(struct upload *u, const void *data, size_t len, struct error *err)
{
    struct session *x = u->session;
    if (enter(u, err) < 0)
        return -1;
    int r = len ? append(x, data, len, &u->failure) : 0;
    u->size = x->file.length;
    session_leave(x);
    if (r < 0)
        return fail(u, err);
    fault_point("upload.written");
    return 0;
}

int upload_ack(struct upload *u, uint64_t *ret_offset, struct error *err)
{
    struct session *x = u->session;
    struct uploads *t = x->file.store->uploads;
    if (u->failure.code != ERR_NONE || session_enter(u, &u->failure) < 0)
        return fail(u, err);
    pthread_mutex_lock(&t->lock);
    x->acked = x->file.length;
    pthread_mutex_unlock(&t->lock);
    *ret_offset = u->acked = u->size = x->file.length;
    session_leave(x);
    return 0;
}

int upload_commit(struct upload *u, const struct digest *d, struct error *err)
{
    struct session *x = u->session;
    struct uploads *t = x->file.store->uploads;
    if (store_check_digest(d, err) < 0)
        return -1;
    if (u->failure.code != ERR_NONE || session_enter(u, &u->failure) < 0)
        return fail(u, err);
    struct error problem = ERROR_INIT;
    if (session_commit(x, d, &problem) < 0) {
        u->size = x->file.length;
        if (problem.code != ERR_DIGEST_MISMATCH)
            u->failure = problem;
        else
            u->acked = u->size;
        session_leave(x);
        if (err)
            *err = problem;
        return -1;
    }
    pthread_mutex_lock(&t->lock);
    x->busy = false;
    session_drop(t, x);
    pthread_cond_broadcast(&t->idle);
    pthread_mutex_unlock(&t->lock);
    fault_point("upload.done");
    return 0;
}

void upload_close(struct upload *u)
{
    if (!u)
        return;
    struct session *x = u->session;
    struct uploads *t = x->file.store->uploads;
    if (session_enter(u, NULL) == 0) {
        give_up(u, false);
        return;
    }
    /* A newer hold has the file, or nobody has it any more. */
    pthread_mutex_lock(&t->lock);
    session_unref(x);
    pthread_mutex_unlock(&t->lock);
    free(u);
}

/* ---- ending without a blob ---- */

int upload_cancel(struct store *s, const char *repository, const char *id, struct error *err)
{
    struct uploads *t = s->uploads;
    pthread_mutex_lock(&t->lock);
    int r = 0;
    struct session *x = session_find(t, repository, id);
    if (x) {
        x->refs++;
        while (x->busy)
            pthread_cond_wait(&t->idle, &t->lock);
        if (!x->gone)
            r = end(t, x, err) < 0 ? -1 : 1;
        session_unref(x);
    }
    pthread_mutex_unlock(&t->lock);
    return r;
}

static struct session *find_idle(struct session *x, int64_t now_ms, uint64_t idle_s)
{
    for (; x; x = x->next)
        if (!x->busy && !x->holder && now_ms >= x->active_ms &&
            (uint64_t)(now_ms - x->active_ms) / 1000 >= idle_s)
            return x;
    return NULL;
}

int uploads_expire(struct store *s, uint64_t idle_s, uint64_t *ret_n, uint64_t *ret_bytes,
                   struct error *err)
{
    struct uploads *t = s->uploads;
    uint64_t n = 0, bytes = 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < UPLOAD_BUCKETS; i++) {
        struct session *x;
        pthread_mutex_lock(&t->lock);
        while (r == 0 && (x = find_idle(t->buckets[i], (int64_t)clock_monotonic_ms(), idle_s))) {
            uint64_t size = x->size;
            r = end(t, x, err);
            if (r == 0) {
                n++;
                bytes += size;
            }
        }
        pthread_mutex_unlock(&t->lock);
    }
    if (r < 0)
        return -1;
    *ret_n = n;
    *ret_bytes = bytes;
    return 0;
}
