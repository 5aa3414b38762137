/* Sessions in memory, and what is done to one whoever asks for it. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "storage/fault.h"
#include "storage/upload_private.h"

#define UPLOADS_DEFAULT 10000u

int uploads_new(unsigned max, struct uploads **ret, struct error *err)
{
    struct uploads *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ERR_NOMEM, "out of memory");
    t->max = max ? max : UPLOADS_DEFAULT;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t);
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    }
    if (cond_init_monotonic(&t->idle) != 0) {
        pthread_mutex_destroy(&t->lock);
        free(t);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    *ret = t;
    return 0;
}

void uploads_free(struct uploads *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < UPLOAD_BUCKETS; i++)
        for (struct session *x = t->buckets[i], *next; x; x = next) {
            next = x->next;
            session_free(x);
        }
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

uint64_t uploads_count(struct uploads *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t n = t->n;
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* ---- the table ---- */

static struct session **bucket_of(struct uploads *t, const char *id)
{
    return &t->buckets[text_hash(id) % UPLOAD_BUCKETS];
}

struct session *session_find(struct uploads *t, const char *repository, const char *id)
{
    for (struct session *x = *bucket_of(t, id); x; x = x->next)
        if (strcmp(x->file.row.file, id) == 0)
            return strcmp(x->file.row.repository, repository) == 0 ? x : NULL;
    return NULL;
}

void session_insert(struct uploads *t, struct session *x)
{
    struct session **bucket = bucket_of(t, x->file.row.file);
    x->next = *bucket;
    *bucket = x;
}

void session_drop(struct uploads *t, struct session *x)
{
    struct session **at = bucket_of(t, x->file.row.file);
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    t->n--;
    x->gone = true;
    x->holder = NULL;
    x->generation++; /* whoever waits for it looks again */
    if (x->refs == 0)
        session_free(x);
}

void session_unref(struct session *x)
{
    if (--x->refs == 0 && x->gone)
        session_free(x);
}

void session_touch(struct session *x)
{
    x->active_ms = (int64_t)clock_monotonic_ms();
}

/* ---- one session ---- */

struct session *session_new(struct store *s, const struct incoming_row *row, struct error *err)
{
    struct session *x = calloc(1, sizeof(*x));
    if (!x) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    x->file = (struct staged){.store = s, .row = *row, .fd = -1};
    staged_plan_extent(&x->file);
    session_touch(x);
    return x;
}

static void close_file(struct session *x)
{
    if (x->file.fd >= 0)
        close(x->file.fd);
    x->file.fd = -1;
}

static void drop_hasher(struct session *x)
{
    hasher_free(x->hasher);
    x->hasher = NULL;
    x->hashed = 0;
}

void session_free(struct session *x)
{
    if (!x)
        return;
    close_file(x);
    drop_hasher(x);
    free(x);
}

int upload_adopt(struct store *s, const struct incoming_row *row, uint64_t length, uint64_t mtime_s,
                 struct error *err)
{
    struct session *x = session_new(s, row, err);
    if (!x)
        return -1;
    uint64_t now_s = clock_wall_s();
    uint64_t age_s = mtime_s < now_s ? now_s - mtime_s : 0; /* clocks are set back, too */
    x->active_ms -= (int64_t)age_s * 1000;
    x->size = x->acked = x->allocated = length;
    staged_set_length(&x->file, length);
    struct uploads *t = s->uploads;
    pthread_mutex_lock(&t->lock);
    session_insert(t, x);
    t->n++;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

int session_enter(struct upload *u, struct error *err)
{
    struct session *x = u->session;
    struct uploads *t = x->file.store->uploads;
    pthread_mutex_lock(&t->lock);
    bool gone = x->gone, stale = x->generation != u->generation;
    if (!gone && !stale) {
        x->busy = true;
        session_touch(x);
    }
    pthread_mutex_unlock(&t->lock);
    if (gone)
        return err_set(err, ERR_CONFLICT, "upload %s was ended by another request",
                       x->file.row.file);
    if (stale)
        return err_set(err, ERR_CONFLICT,
                       "upload %s was taken over by a newer request: ask it for its state (GET) "
                       "and go on from there, or begin a new one",
                       x->file.row.file);
    return 0;
}

void session_leave(struct session *x)
{
    struct uploads *t = x->file.store->uploads;
    pthread_mutex_lock(&t->lock);
    x->size = x->file.length;
    x->busy = false;
    session_touch(x);
    pthread_cond_broadcast(&t->idle);
    pthread_mutex_unlock(&t->lock);
}

int session_rewind(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    struct uploads *t = f->store->uploads;
    if (x->renamed)
        return 0; /* complete */
    /* From here on nobody is told of more. */
    pthread_mutex_lock(&t->lock);
    uint64_t to = x->size = x->acked;
    pthread_mutex_unlock(&t->lock);
    staged_set_length(f, to);
    if (x->hashed > to)
        drop_hasher(x);
    /* The row first: it must never promise bytes of which other ones have taken the place. */
    if (to < f->row.synced) {
        struct incoming_row row = f->row;
        row.synced = to;
        if (meta_incoming_put(f->store->meta, &row, err) < 0)
            return -1;
        f->row.synced = to;
    }
    if (ftruncate(f->fd, (off_t)to) < 0)
        return err_errno(err, "truncate %s/incoming/%s", f->store->dir, f->row.file);
    x->allocated = to; /* the cut gave back the rest */
    x->announced = 0;
    staged_plan_extent(f);
    /* As long as what is synced: the length says again what is there. */
    if (to <= f->row.synced && strncmp(f->row.owner, NO_BOOT, OWNER_BOOT) == 0) {
        memcpy(f->row.owner, f->store->owner, sizeof(f->row.owner));
        meta_incoming_put(f->store->meta, &f->row, NULL);
    }
    return 0;
}

/* What fails here fails again at the next opening of the session, or leaves what the owner in the
 * row says is not to be believed. */
void session_lose_unsynced(struct session *x)
{
    struct staged *f = &x->file;
    struct uploads *t = f->store->uploads;
    pthread_mutex_lock(&t->lock);
    if (x->acked > f->row.synced)
        x->acked = f->row.synced;
    pthread_mutex_unlock(&t->lock);
    f->sync_failed = false;
    staged_disown_length(f, NULL);
    session_rewind(x, NULL);
}

int session_remove(struct session *x, struct error *err)
{
    struct staged *f = &x->file;
    if (meta_incoming_delete(f->store->meta, &f->row, err) < 0)
        return -1;
    fault_point("upload.dropped");
    staged_set_length(f, 0);
    close_file(x);
    drop_hasher(x); /* may have to wait for its thread: here, where no lock is held */
    /* A file without a row goes at the next start, should this fail. */
    staging_remove(f->store->blobs, f->row.file, NULL);
    return 0;
}
