/* Rule 4: what a crash left is settled before anything else happens. Looks at incoming/ and its
 * rows only, so it takes as long as there is work under way, not as long as there are blobs.
 *
 *     row and file       a partial: cut to what partial_read() finds, kept; small content: dropped
 *     row, no file       renamed just before the crash when blobs/ has that digest with the row's
 *                        size (only verified bytes are ever renamed): the commit is finished;
 *                        dropped otherwise
 *     upload and file    a session as before, of the bytes that partial_usable() believes
 *     upload, no file    as above when its commit had begun; else an empty session
 *     file, no row       removed
 *     removal row        the blob's file is removed if its row did not come back
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "storage/fault.h"
#include "storage/partial.h"

#define SUSPECT_S 600u

/* An orderly end leaves no owner in the row, and an exact extent. */
uint64_t partial_usable(const struct store *s, const struct incoming_row *row, uint64_t length,
                        bool *ret_lost)
{
    uint64_t usable = row->synced < length ? row->synced : length;
    *ret_lost = usable < row->synced;
    if (*row->owner && strncmp(row->owner, s->owner, OWNER_BOOT) == 0)
        usable = length; /* written in order, and the page cache has lived on */
    else if (*row->owner)
        *ret_lost = true;
    if (usable <= row->size)
        return usable;
    *ret_lost = true;
    return 0;
}

int partial_lost_to(struct store *s, const struct digest *d, const struct lent *to,
                    struct error *err)
{
    return store_mismatch_put_to(s, d, to, clock_wall_s() + SUSPECT_S, err);
}

int partial_lost(struct store *s, const struct digest *d, struct error *err)
{
    return store_mismatch_put(s, d, clock_wall_s() + SUSPECT_S, err);
}

/* 1 what is there of a download, 0 nothing of use, -1. */
static int find_partial(struct store *s, struct incoming_row *row, struct partial *ret,
                        struct error *err)
{
    _cleanup_close_ int fd = -1;
    uint64_t length;
    int r = staging_open(s->blobs, row->file, &fd, &length, err);
    if (r == 0)
        return err_set(err, ERR_IO, "%s/incoming/%s has gone", s->dir, row->file);
    if (r < 0 || partial_read(s, row, fd, length, ret, err) < 0)
        return -1;
    if (!ret->length && !ret->beyond.n)
        return 0;
    /* also gives back space that was allocated behind it */
    if (ret->sequence) /* a map, which says what is there also when all holes are filled */
        partial_give_back(fd, row->size, ret->length, &ret->beyond);
    else if (staging_truncate(s->blobs, row->file, ret->length, err) < 0)
        return -1;
    return 1;
}

static int settle_partial(struct store *s, struct settlement *t, struct error *err)
{
    struct incoming_row *row = &t->row;
    struct partial p = {0};
    int found = row->kind == INCOMING_TRANSFER ? find_partial(s, row, &p, err) : 0;
    extents_done(&p.beyond);
    if (found < 0 || (p.lost && partial_lost(s, &row->digest, err) < 0))
        return -1;
    if (found == 0) {
        t->action = SETTLE_DROP;
        return staging_remove(s->blobs, row->file, err);
    }
    t->action = SETTLE_KEEP;
    if (p.lost) {
        t->action = SETTLE_UPDATE;
        row->synced = p.length;
        row->owner[0] = '\0';
    }
    atomic_fetch_add(&s->partials, 1);
    atomic_fetch_add(&s->partial_bytes, p.length);
    return 0;
}

/* A session that goes on from what is left. What its commit had noted is of no use any more: the
 * next one may be of other bytes. */
static int settle_upload(struct store *s, struct settlement *t, uint64_t length, uint64_t mtime_s,
                         struct error *err)
{
    struct incoming_row *row = &t->row;
    bool same_boot = strncmp(row->owner, s->owner, OWNER_BOOT) == 0, lost;
    row->size = WRITER_SIZE_UNKNOWN;
    uint64_t keep = partial_usable(s, row, length, &lost);
    /* also gives back space that was allocated behind it */
    if (staging_truncate(s->blobs, row->file, keep, err) < 0)
        return -1;
    t->action = SETTLE_KEEP;
    if (!same_boot || lost || row->digest.alg != DIGEST_NONE) {
        t->action = SETTLE_UPDATE;
        row->digest = (struct digest){.alg = DIGEST_NONE};
        row->synced = keep < row->synced ? keep : row->synced;
        /* what is there is believed, and what is added from now on */
        memcpy(row->owner, s->owner, sizeof(row->owner));
    }
    return upload_adopt(s, row, keep, mtime_s, err);
}

/* Its file's name was not on disk yet when the machine stopped. */
static int settle_empty_upload(struct store *s, struct settlement *t, struct error *err)
{
    _cleanup_close_ int fd = -1;
    if (staging_create(s->blobs, t->row.file, &fd, err) < 0)
        return -1;
    return settle_upload(s, t, 0, clock_wall_s(), err);
}

static int settle_renamed(struct store *s, struct settlement *t, struct error *err)
{
    const struct digest *d = &t->row.digest;
    uint64_t size, row_size;
    t->action = SETTLE_DROP;
    int r = blobs_stat(s->blobs, d, &size, err);
    if (r < 0)
        return -1;
    if (r == 1 && size == t->row.size) {
        t->action = SETTLE_PUBLISH;
        return blobs_seal(s->blobs, d, err);
    }
    if (t->row.kind == INCOMING_TRANSFER && partial_lost(s, d, err) < 0)
        return -1;
    if (r == 0)
        return 0;
    /* Not what was renamed. Without a row of its own nobody vouches for it. */
    r = meta_blob_get(s->meta, d, &row_size, NULL);
    return r == 0 ? blobs_remove(s->blobs, d, err) : 0;
}

static int settle_removal(struct store *s, struct settlement *t, struct error *err)
{
    uint64_t size;
    t->action = SETTLE_DROP;
    int r = meta_blob_get(s->meta, &t->row.digest, &size, NULL);
    return r == 0 ? blobs_remove(s->blobs, &t->row.digest, err) : 0;
}

static int settle_row(struct store *s, struct settlement *t, struct error *err)
{
    uint64_t length, mtime_s;
    if (t->row.kind == INCOMING_REMOVAL)
        return settle_removal(s, t, err);
    int r = staging_stat(s->blobs, t->row.file, &length, &mtime_s, err);
    if (r < 0)
        return -1;
    if (t->row.kind == INCOMING_UPLOAD && r == 1)
        return settle_upload(s, t, length, mtime_s, err);
    if (t->row.kind == INCOMING_UPLOAD && t->row.digest.alg == DIGEST_NONE)
        return settle_empty_upload(s, t, err);
    return r == 1 ? settle_partial(s, t, err) : settle_renamed(s, t, err);
}

struct sweep_ctx {
    struct store *s;
    const struct settlement *kept; /* sorted by file */
    size_t n;
};

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct settlement *)a)->row.file,
                  ((const struct settlement *)b)->row.file);
}

static int sweep_file(void *arg, const char *file, struct error *err)
{
    struct sweep_ctx *c = arg;
    struct settlement key = {0};
    /* A name that we do not make is not ours to remove. */
    if (strlen(file) != 32 || strspn(file, "0123456789abcdef") != 32)
        return 0;
    memcpy(key.row.file, file, 33);
    const struct settlement *found =
        c->n ? bsearch(&key, c->kept, c->n, sizeof(key), compare_files) : NULL;
    if (found && (found->action == SETTLE_KEEP || found->action == SETTLE_UPDATE))
        return 0;
    return staging_remove(c->s->blobs, file, err);
}

int store_recover(struct store *s, struct error *err)
{
    struct incoming_list list = {0};
    if (meta_incoming_list(s->meta, &list, err) < 0)
        return -1;
    _cleanup_free_ struct settlement *all = calloc(list.n + 1, sizeof(*all));
    int r = all ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        all[i].row = list.rows[i];
        r = settle_row(s, &all[i], err);
    }
    if (r == 0) {
        qsort(all, list.n, sizeof(*all), compare_files);
        struct sweep_ctx c = {.s = s, .kept = all, .n = list.n};
        r = staging_each(s->blobs, sweep_file, &c, err);
    }
    if (r == 0)
        fault_point("recover.files");
    if (r == 0)
        r = meta_settle(s->meta, all, list.n, err);
    incoming_list_done(&list);
    return r < 0 ? err_wrap(err, "settling what was under way in %s", s->dir) : 0;
}
