/* A file in incoming/ that grows from its start, and its row: what transfers and uploads share. Not
 * for other folders. One thread at a time works on one of them. */
#ifndef WB_STORAGE_STAGED_H
#define WB_STORAGE_STAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "storage/store_private.h"

struct staged {
    struct store *store;
    struct incoming_row row;
    int fd;
    uint64_t length; /* bytes from 0 without a hole; they count among the store's partial_bytes */
    uint64_t unflushed, next_extent;
    bool sync_failed; /* the disk may lack bytes behind the row's extent */
};

/* Bytes came, or were cut off. */
void staged_set_length(struct staged *f, uint64_t length);
/* To be called when the row's extent was set otherwise than by staged_written(). */
void staged_plan_extent(struct staged *f);
/* After every write of len bytes: starts write-back, and every step of 4..64 MiB syncs the file and
 * lets the row's extent follow. */
int staged_written(struct staged *f, size_t len, struct error *err);
/* All that was written is on disk. */
int staged_sync(struct staged *f, struct error *err);
/* From now on the file's length does not say what is in it, should the process die. */
int staged_disown_length(struct staged *f, struct error *err);

#endif
