/* The bytes: a narrow seam over files, so that a later backend can keep published blobs elsewhere.
 * Published files are DIR/blobs/ALG/ab/abcd..., read-only and immutable; what is on its way in is
 * DIR/incoming/FILE. Knows nothing of rows. Thread-safe.
 */
#ifndef WB_STORAGE_BLOBS_H
#define WB_STORAGE_BLOBS_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

struct blobs;

/* Makes the folders that are missing. */
int blobs_open(const char *dir, struct blobs **ret, struct error *err);
void blobs_close(struct blobs *b); /* NULL is fine */

/* 1 and the size, 0 no such file, -1. */
int blobs_stat(struct blobs *b, const struct digest *d, uint64_t *ret_size, struct error *err);
/* The same, opened for reading. */
int blobs_open_file(struct blobs *b, const struct digest *d, int *ret_fd, uint64_t *ret_size,
                    struct error *err);
/* Fine when it is gone already. Durable after blobs_sync_all(). */
int blobs_remove(struct blobs *b, const struct digest *d, struct error *err);
int blobs_sync_all(struct blobs *b, struct error *err);
/* Every file's digest and size, by folder listing; other names are passed over. fn may remove the
 * file it is called for. Not quick: for the collector only. */
int blobs_each(struct blobs *b,
               int (*fn)(void *ctx, const struct digest *d, uint64_t size, struct error *err),
               void *ctx, struct error *err);

/* ---- incoming/ ---- */

/* A new, empty file. */
int staging_create(struct blobs *b, const char *file, int *ret_fd, struct error *err);
/* 1 and an open file with its size, 0 no such file, -1. */
int staging_open(struct blobs *b, const char *file, int *ret_fd, uint64_t *ret_size,
                 struct error *err);
/* 1, its size and when it was last written to (wall clock; may be NULL), 0 no such file, -1. */
int staging_stat(struct blobs *b, const char *file, uint64_t *ret_size, uint64_t *ret_mtime_s,
                 struct error *err);
/* Does not count as writing to it. */
int staging_truncate(struct blobs *b, const char *file, uint64_t size, struct error *err);
int staging_remove(struct blobs *b, const char *file, struct error *err); /* absent is fine */
int staging_each(struct blobs *b, int (*fn)(void *ctx, const char *file, struct error *err),
                 void *ctx, struct error *err);
/* Whether the disk has space for bytes [from, to). ERR_NO_SPACE, ERR_TOO_LARGE. */
int staging_has_room(struct blobs *b, uint64_t from, uint64_t to, struct error *err);
/* Takes disk space for bytes [from, to) without changing the file's length. ERR_NO_SPACE. */
int staging_allocate(struct blobs *b, int fd, uint64_t from, uint64_t to, struct error *err);
/* Starts writing out what is dirty; does not wait for it. Only a hint: cannot fail. */
void staging_flush(int fd);
/* What was written is on disk. After a failure a later success says nothing of those bytes. */
int staging_sync(struct blobs *b, const char *file, int fd, struct error *err);
/* The file, which is synced, becomes the blob: renamed, read-only, folder synced. Descriptors stay
 * good. After a failure the file may have either name. */
int staging_publish(struct blobs *b, const char *file, const struct digest *d, struct error *err);
/* What is left to do for a file that was renamed before a crash. */
int blobs_seal(struct blobs *b, const struct digest *d, struct error *err);

#endif
