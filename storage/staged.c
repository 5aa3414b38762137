#include "storage/staged.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define FLUSH_STEP (8 * MIB)       /* start write-back, so that the last sync is short */
#define EXTENT_STEP_MIN (4 * MIB)  /* a young partial would lose everything at 64 MiB ... */
#define EXTENT_STEP_MAX (64 * MIB) /* ... an old one need not write rows more often */

void staged_set_length(struct staged *f, uint64_t length)
{
    atomic_fetch_add(&f->store->partial_bytes, length - f->length); /* may wrap: it is a sum */
    f->length = length;
}

void staged_plan_extent(struct staged *f)
{
    uint64_t step = f->row.synced;
    if (step < EXTENT_STEP_MIN)
        step = EXTENT_STEP_MIN;
    if (step > EXTENT_STEP_MAX)
        step = EXTENT_STEP_MAX;
    f->next_extent = f->row.synced + step;
}

int staged_sync(struct staged *f, struct error *err)
{
    int r = staging_sync(f->store->blobs, f->row.file, f->fd, err);
    if (r < 0)
        f->sync_failed = true;
    return r;
}

int staged_written(struct staged *f, size_t len, struct error *err)
{
    f->unflushed += len;
    if (f->unflushed >= FLUSH_STEP) {
        staging_flush(f->fd);
        f->unflushed = 0;
    }
    if (f->length < f->next_extent)
        return 0;
    if (staged_sync(f, err) < 0)
        return -1;
    f->row.synced = f->length;
    meta_incoming_synced_later(f->store->meta, &f->row);
    staged_plan_extent(f);
    return 0;
}

int staged_disown_length(struct staged *f, struct error *err)
{
    if (strncmp(f->row.owner, NO_BOOT, OWNER_BOOT) == 0)
        return 0;
    memcpy(f->row.owner, NO_BOOT, OWNER_BOOT);
    return meta_incoming_put(f->store->meta, &f->row, err);
}
