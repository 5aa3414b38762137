/* Blobs on their way in.
 *
 *     opened      incoming/FILE and its row ('t', digest) are there; a new row may still be on its
 *                 way to the disk, and is there before the first byte is
 *     written     the file grows; every step of 4..64 MiB the file is synced and the row's extent
 *                 follows, so that a killed process loses little
 *     commit      sync, rename into blobs/, sync of the folder, then the blob's row; the incoming
 *                 row goes in the same transaction. A crash after the rename finds the incoming row
 *                 with its file gone and the blob's file there, and finishes (recover.c)
 *     close       keep: sync, extent to the row; else file and row go
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "storage/fault.h"
#include "storage/partial.h"
#include "storage/staged.h"

struct blob_writer {
    struct blob_writer *next; /* guarded by the store's lock */
    struct staged file;       /* its row's digest stays: others read it, under the store's lock */
    uint64_t resumed;
    struct lent lent;      /* for the row, once the file is let go */
    struct meta_put *row;  /* being written: whoever opens has an upstream to ask meanwhile */
    bool unallocated;      /* space for the whole is taken before the first byte, too */
    struct extents beyond; /* written behind the first hole */
    uint64_t sequence;     /* of the map that the file has; 0 = none, it was written in order */
    bool renamed, committed;
    struct error failure; /* sticky */
};

/* ---- the table of open writers ---- */

static bool is_listed(struct store *s, const struct digest *d)
{
    for (struct blob_writer *w = s->writers; w; w = w->next)
        if (digest_equal(&w->file.row.digest, d))
            return true;
    return false;
}

bool writer_is_open(struct store *s, const struct digest *d)
{
    pthread_mutex_lock(&s->lock);
    bool open = is_listed(s, d);
    pthread_mutex_unlock(&s->lock);
    return open;
}

static int list_writer(struct blob_writer *w, struct error *err)
{
    struct store *s = w->file.store;
    pthread_mutex_lock(&s->lock);
    bool busy = is_listed(s, &w->file.row.digest);
    if (!busy) {
        w->next = s->writers;
        s->writers = w;
    }
    pthread_mutex_unlock(&s->lock);
    char text[DIGEST_TEXT_MAX];
    if (busy)
        return err_set(err, ERR_BUSY, "blob %s is being written already",
                       digest_format(&w->file.row.digest, text));
    return 0;
}

static void unlist_writer(struct blob_writer *w)
{
    struct store *s = w->file.store;
    pthread_mutex_lock(&s->lock);
    struct blob_writer **at = &s->writers;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    pthread_mutex_unlock(&s->lock);
}

static void writer_free(struct blob_writer *w)
{
    if (w->file.fd >= 0)
        close(w->file.fd);
    extents_done(&w->beyond);
    free(w);
}

/* ---- opening ---- */

/* Notes what there is, before anybody relies on it. */
static int write_map(struct blob_writer *w, enum map_kind kind, struct error *err)
{
    if (partial_write_map(w->file.store, &w->file.row, w->file.fd, kind, w->sequence + 1,
                          w->file.length, &w->beyond, err) < 0)
        return err_wrap(err, "%s/incoming/%s", w->file.store->dir, w->file.row.file);
    w->sequence++;
    return 0;
}

/* Takes over what was found; other bytes are cut off. */
static int take_over(struct blob_writer *w, const struct incoming_row *old, struct partial *p,
                     struct error *err)
{
    struct store *s = w->file.store;
    memcpy(w->file.row.file, old->file, sizeof(w->file.row.file));
    w->file.row.created = old->created;
    if (p->length || p->beyond.n)
        w->lent = old->lent;
    w->file.row.synced = p->length < old->synced ? p->length : old->synced;
    w->resumed = w->file.length = p->length;
    w->beyond = p->beyond;
    p->beyond = (struct extents){0};
    if (!w->beyond.n)
        return ftruncate(w->file.fd, (off_t)p->length) == 0
                   ? 0
                   : err_errno(err, "truncate %s/incoming/%s", s->dir, old->file);
    w->sequence = p->sequence;
    memcpy(w->file.row.owner, NO_BOOT, OWNER_BOOT);
    return write_map(w, MAP_WRITTEN, err);
}

static bool is_of_another_source(const struct incoming_row *a, const struct incoming_row *b)
{
    static const struct name_id none;
    return !name_id_equal(&a->source, &none) && !name_id_equal(&b->source, &none) &&
           !name_id_equal(&a->source, &b->source);
}

/* What an earlier writer left. 1 resumed, 0 nothing, -1. */
static int resume(struct blob_writer *w, const struct incoming_row *old, uint64_t *ret_counted,
                  struct error *err)
{
    struct store *s = w->file.store;
    uint64_t length = 0;
    struct partial p;
    int r = staging_open(s->blobs, old->file, &w->file.fd, &length, err);
    if (r < 0)
        return -1;
    *ret_counted = old->synced;
    if (r == 0) /* somebody removed it behind our back */
        return partial_lost(s, &w->file.row.digest, err);
    if (partial_read(s, old, w->file.fd, length, &p, err) < 0)
        return -1;
    *ret_counted = p.length;
    struct lent lost = {.all = p.lost};
    bool is_empty = !p.length && !p.beyond.n;
    if ((!is_empty && is_of_another_source(&w->file.row, old)) ||
        (w->file.row.size != old->size && (p.beyond.n || p.length > w->file.row.size))) {
        lent_add_all(&lost, &old->lent);
        extents_done(&p.beyond);
        p = (struct partial){0};
    }
    r = partial_lost_to(s, &w->file.row.digest, &lost, err);
    if (r == 0)
        r = take_over(w, old, &p, err);
    extents_done(&p.beyond);
    return r < 0 ? -1 : 1;
}

static int prepare(struct blob_writer *w, struct error *err)
{
    struct store *s = w->file.store;
    struct incoming_row old = {0};
    int had_row = meta_incoming_transfer(s->meta, &w->file.row.digest, &old, err);
    if (had_row < 0)
        return -1;
    uint64_t counted = 0;
    int r = had_row ? resume(w, &old, &counted, err) : 0;
    if (r < 0)
        return -1;
    if (r == 0) {
        if (random_hex(w->file.row.file, 16, err) < 0 ||
            staging_create(s->blobs, w->file.row.file, &w->file.fd, err) < 0)
            return -1;
        w->file.row.created = clock_wall_s();
        w->row = meta_incoming_put_start(s->meta, &w->file.row, err);
        if (!w->row) {
            staging_remove(s->blobs, w->file.row.file, NULL);
            return -1;
        }
    } else if (meta_incoming_put(s->meta, &w->file.row, err) < 0) {
        return -1;
    }
    if (!had_row)
        atomic_fetch_add(&s->partials, 1);
    atomic_fetch_add(&s->partial_bytes, w->file.length - counted); /* may wrap: it is a sum */
    return 0;
}

int writer_open(struct store *s, const struct digest *d, uint64_t size, struct blob_writer **ret,
                struct error *err)
{
    return writer_open_from(s, d, size, NULL, ret, err);
}

int writer_open_from(struct store *s, const struct digest *d, uint64_t size,
                     const struct name_id *source, struct blob_writer **ret, struct error *err)
{
    if (store_check_digest(d, err) < 0)
        return -1;
    struct blob_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(err, ERR_NOMEM, "out of memory");
    w->file.store = s;
    w->file.fd = -1;
    w->file.row = (struct incoming_row){.kind = INCOMING_TRANSFER, .digest = *d, .size = size};
    memcpy(w->file.row.owner, s->owner, sizeof(w->file.row.owner));
    if (source)
        w->file.row.source = *source;
    w->file.row.lent.all = true;
    if (list_writer(w, err) < 0) {
        writer_free(w);
        return -1;
    }
    if (prepare(w, err) < 0) {
        unlist_writer(w);
        writer_free(w);
        return -1;
    }
    if (size != WRITER_SIZE_UNKNOWN && staging_has_room(s->blobs, w->file.length, size, err) < 0) {
        writer_close(w, w->file.length > 0 || w->beyond.n > 0);
        return -1;
    }
    w->unallocated = size != WRITER_SIZE_UNKNOWN;
    staged_plan_extent(&w->file);
    *ret = w;
    return 0;
}

uint64_t writer_resumed(const struct blob_writer *w)
{
    return w->resumed;
}

const struct lent *writer_lent(const struct blob_writer *w)
{
    return &w->lent;
}

void writer_set_lent(struct blob_writer *w, const struct lent *lent)
{
    w->lent = *lent;
}

bool writer_resumed_part(const struct blob_writer *w, size_t i, uint64_t *ret_first,
                         uint64_t *ret_end)
{
    if (i >= w->beyond.n)
        return false;
    *ret_first = w->beyond.items[i].first;
    *ret_end = w->beyond.items[i].end;
    return true;
}

/* ---- writing ---- */

static int wait_for_row(struct blob_writer *w)
{
    struct meta_put *row = TAKE_PTR(w->row);
    return row ? meta_incoming_put_wait(w->file.store->meta, row, &w->failure) : 0;
}

/* What opening did not wait for. */
static int get_ready(struct blob_writer *w)
{
    if (wait_for_row(w) < 0)
        return -1;
    if (!w->unallocated)
        return 0;
    w->unallocated = false;
    return staging_allocate(w->file.store->blobs, w->file.fd, w->file.length, w->file.row.size,
                            &w->failure);
}

static int fail(struct blob_writer *w, struct error *err)
{
    if (err)
        *err = w->failure;
    return -1;
}

/* Notes [start, end) as written. Ranges arrive in order on each of a few connections, so the list
 * stays short. */
static int note_extent(struct blob_writer *w, uint64_t start, uint64_t end)
{
    struct extents *l = &w->beyond;
    if (start > w->file.length)
        return extents_add(l, start, end) ? 0 : err_set(&w->failure, ERR_NOMEM, "out of memory");
    if (end <= w->file.length)
        return 0;
    size_t joined = 0;
    for (; joined < l->n && l->items[joined].first <= end; joined++)
        end = end > l->items[joined].end ? end : l->items[joined].end;
    if (joined) {
        l->n -= joined;
        memmove(l->items, l->items + joined, l->n * sizeof(*l->items));
    }
    staged_set_length(&w->file, end);
    return 0;
}

/* Before the first write behind a hole: from now on the map says what is there. */
static int begin_map(struct blob_writer *w)
{
    if (w->sequence)
        return 0;
    if (partial_can_have_map(w->file.row.size) && write_map(w, MAP_WRITTEN, &w->failure) < 0)
        return -1;
    return staged_disown_length(&w->file, &w->failure);
}

static int note_written(struct blob_writer *w, size_t len, uint64_t offset)
{
    uint64_t synced = w->file.row.synced;
    if (note_extent(w, offset, offset + len) < 0 ||
        (w->sequence && write_map(w, MAP_WRITTEN, &w->failure) < 0) ||
        staged_written(&w->file, len, &w->failure) < 0)
        return -1;
    return w->sequence && w->file.row.synced != synced ? write_map(w, MAP_SYNCED, &w->failure) : 0;
}

int writer_write(struct blob_writer *w, const void *data, size_t len, uint64_t offset,
                 struct error *err)
{
    if (w->failure.code != ERR_NONE || get_ready(w) < 0)
        return fail(w, err);
    uint64_t limit = w->file.row.size != WRITER_SIZE_UNKNOWN ? w->file.row.size : INT64_MAX;
    char text[DIGEST_TEXT_MAX];
    if (w->renamed)
        err_set(&w->failure, ERR_INTERNAL, "blob %s is written to after its commit",
                digest_format(&w->file.row.digest, text));
    else if (offset > limit || len > limit - offset)
        err_set(&w->failure, ERR_INVALID,
                "blob %s: %zu bytes at %" PRIu64 " go beyond its size of %" PRIu64,
                digest_format(&w->file.row.digest, text), len, offset, limit);
    else if (offset > w->file.length && begin_map(w) < 0)
        return fail(w, err);
    else if (fs_pwrite_all(w->file.fd, data, len, offset, &w->failure) < 0)
        err_wrap(&w->failure, "%s/incoming/%s", w->file.store->dir, w->file.row.file);
    else if (len == 0 || note_written(w, len, offset) == 0)
        return 0;
    return fail(w, err);
}

ssize_t writer_read(struct blob_writer *w, uint64_t offset, void *buf, size_t len,
                    struct error *err)
{
    if (offset > INT64_MAX)
        return 0;
    ssize_t n;
    do {
        n = pread(w->file.fd, buf, len, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, "read %s/incoming/%s", w->file.store->dir, w->file.row.file);
    return n;
}

int writer_restart(struct blob_writer *w, struct error *err)
{
    struct store *s = w->file.store;
    char text[DIGEST_TEXT_MAX];
    if (w->renamed)
        return err_set(err, ERR_INTERNAL, "blob %s is restarted after its commit",
                       digest_format(&w->file.row.digest, text));
    wait_for_row(w); /* when it failed: here it is written again */
    w->unallocated = false;
    /* The row first: it must never promise bytes of which other ones have taken the place. */
    w->file.row.synced = 0;
    if (meta_incoming_put(s->meta, &w->file.row, err) < 0)
        return -1;
    /* Nor must a map, which would come back with the file's old length. */
    if (ftruncate(w->file.fd, 0) < 0 || (w->sequence && fdatasync(w->file.fd) < 0))
        return err_errno(err, "truncate %s/incoming/%s", s->dir, w->file.row.file);
    staged_set_length(&w->file, 0);
    w->resumed = 0;
    w->beyond.n = 0;
    w->sequence = 0;
    w->file.unflushed = 0;
    w->failure = ERROR_INIT;
    staged_plan_extent(&w->file);
    if (w->file.row.size == WRITER_SIZE_UNKNOWN)
        return 0;
    return staging_allocate(s->blobs, w->file.fd, 0, w->file.row.size, err);
}

/* ---- ending ---- */

static int check_complete(struct blob_writer *w, uint64_t size, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    digest_format(&w->file.row.digest, text);
    if (w->failure.code != ERR_NONE || wait_for_row(w) < 0)
        return fail(w, err);
    if (w->renamed)
        return err_set(err, ERR_INTERNAL, "blob %s is committed twice", text);
    if (w->file.row.size != WRITER_SIZE_UNKNOWN && w->file.row.size != size)
        return err_set(err, ERR_INTERNAL,
                       "blob %s is committed with %" PRIu64 " bytes, but was opened for %" PRIu64,
                       text, size, w->file.row.size);
    if (w->file.length != size || w->beyond.n)
        return err_set(err, ERR_INTERNAL,
                       "blob %s is committed with %" PRIu64 " bytes, but %" PRIu64
                       " were written without a hole",
                       text, size, w->file.length);
    return 0;
}

/* Once the file has no holes, and before its map goes: its length says again what is there, to
 * whoever looks after this process was killed. */
static int own_length(struct blob_writer *w, struct error *err)
{
    struct store *s = w->file.store;
    if (!w->sequence)
        return 0;
    memcpy(w->file.row.owner, s->owner, sizeof(w->file.row.owner));
    return meta_incoming_put(s->meta, &w->file.row, err);
}

/* The file ends with the bytes from 0. */
static int drop_map(struct blob_writer *w, struct error *err)
{
    w->beyond.n = 0;
    w->sequence = 0;
    return ftruncate(w->file.fd, (off_t)w->file.length) == 0
               ? 0
               : err_errno(err, "truncate %s/incoming/%s", w->file.store->dir, w->file.row.file);
}

int writer_commit(struct blob_writer *w, uint64_t size, struct error *err)
{
    struct store *s = w->file.store;
    if (check_complete(w, size, err) < 0)
        return -1;
    fault_point("put.written");
    /* Recovery believes a renamed file only when its size is the one in the row. */
    if (w->file.row.size == WRITER_SIZE_UNKNOWN) {
        w->file.row.size = size;
        if (meta_incoming_put(s->meta, &w->file.row, err) < 0)
            return -1;
    }
    if (own_length(w, &w->failure) < 0 || drop_map(w, &w->failure) < 0 ||
        staged_sync(&w->file, &w->failure) < 0)
        return fail(w, err);
    if (staging_publish(s->blobs, w->file.row.file, &w->file.row.digest, &w->failure) < 0) {
        uint64_t unused;
        w->renamed = staging_stat(s->blobs, w->file.row.file, &unused, NULL, NULL) == 0;
        return fail(w, err);
    }
    w->renamed = true;
    if (meta_blob_commit(s->meta, &w->file.row.digest, size, &w->file.row, &w->failure) < 0)
        return fail(w, err);
    w->committed = true;
    atomic_fetch_sub(&s->partials, 1);
    atomic_fetch_sub(&s->partial_bytes, w->file.length);
    fault_point("commit.done");
    return 0;
}

/* Everything is on disk, and the file says so by itself. */
static bool settle(struct blob_writer *w)
{
    struct staged *f = &w->file;
    if (!w->sequence)
        return ftruncate(f->fd, (off_t)f->length) == 0 && staged_sync(f, &w->failure) == 0;
    partial_give_back(f->fd, f->row.size, f->length, &w->beyond);
    return staged_sync(f, &w->failure) == 0 && write_map(w, MAP_SYNCED, &w->failure) == 0 &&
           staged_sync(f, &w->failure) == 0;
}

static void keep_partial(struct blob_writer *w)
{
    struct store *s = w->file.store;
    uint64_t usable = w->file.length;
    if (w->sequence && !w->beyond.n && (w->file.sync_failed || own_length(w, NULL) == 0))
        drop_map(w, &w->failure);
    /* Also gives back the space that was allocated behind it. What a failed sync leaves is unknown:
     * then the row keeps the extent it has, and a map says nothing. */
    struct incoming_row row = w->file.row;
    row.lent = w->lent;
    if (!w->file.sync_failed && settle(w)) {
        row.synced = w->file.length;
        row.owner[0] = '\0';
    } else {
        if (w->file.sync_failed && w->sequence)
            drop_map(w, &w->failure);
        memcpy(row.owner, NO_BOOT, OWNER_BOOT);
        usable = row.synced;
    }
    if (meta_incoming_put(s->meta, &row, NULL) == 0) {
        w->file.row.synced = row.synced;
        memcpy(w->file.row.owner, row.owner, sizeof(row.owner));
    }
    atomic_fetch_add(&s->partial_bytes, usable - w->file.length);
}

/* The row stays without the file, and counts as what it says until it is settled. */
static void leave_row(struct blob_writer *w)
{
    atomic_fetch_add(&w->file.store->partial_bytes, w->file.row.synced - w->file.length);
}

static void drop_partial(struct blob_writer *w)
{
    struct store *s = w->file.store;
    /* Whatever fails here is settled at the next start. */
    staging_remove(s->blobs, w->file.row.file, NULL);
    if (meta_incoming_delete(s->meta, &w->file.row, NULL) < 0) {
        leave_row(w);
        return;
    }
    atomic_fetch_sub(&s->partials, 1);
    atomic_fetch_sub(&s->partial_bytes, w->file.length);
}

void writer_close(struct blob_writer *w, bool keep)
{
    if (!w)
        return;
    wait_for_row(w);
    /* Renamed but not committed: the file is right and has its name; the row stays, so that the
     * next start finishes it. */
    if (w->renamed && !w->committed)
        leave_row(w);
    if (!w->renamed) {
        if (keep && (w->file.length > 0 || w->beyond.n > 0))
            keep_partial(w);
        else
            drop_partial(w);
    }
    unlist_writer(w);
    writer_free(w);
}

/* ---- small content ---- */

static int put_new(struct store *s, const struct incoming_row *row, int fd, const void *data,
                   size_t len, struct error *err)
{
    if (meta_incoming_put(s->meta, row, err) < 0)
        return -1;
    if (fs_pwrite_all(fd, data, len, 0, err) < 0)
        return err_wrap(err, "%s/incoming/%s", s->dir, row->file);
    fault_point("put.written");
    if (staging_sync(s->blobs, row->file, fd, err) < 0 ||
        staging_publish(s->blobs, row->file, &row->digest, err) < 0)
        return -1;
    if (meta_blob_commit(s->meta, &row->digest, len, row, err) < 0)
        return -1;
    fault_point("commit.done");
    return 0;
}

int store_blob_put(struct store *s, const void *data, size_t len, struct digest *ret,
                   struct error *err)
{
    struct digest d;
    uint64_t size;
    if (digest_of(DIGEST_SHA256, data, len, &d, err) < 0)
        return -1;
    int held = store_blob_stat(s, &d, &size, err);
    if (held < 0)
        return -1;
    if (held == 1) {
        *ret = d;
        return 0;
    }
    struct incoming_row row = {
        .kind = INCOMING_PUT, .digest = d, .size = len, .created = clock_wall_s()};
    memcpy(row.owner, s->owner, sizeof(row.owner));
    _cleanup_close_ int fd = -1;
    if (random_hex(row.file, 16, err) < 0 || staging_create(s->blobs, row.file, &fd, err) < 0)
        return -1;
    if (put_new(s, &row, fd, data, len, err) < 0) {
        uint64_t unused;
        /* still under its first name: nothing of it is worth keeping */
        if (staging_stat(s->blobs, row.file, &unused, NULL, NULL) == 1) {
            staging_remove(s->blobs, row.file, NULL);
            meta_incoming_delete(s->meta, &row, NULL);
        }
        return -1;
    }
    *ret = d;
    return 0;
}
