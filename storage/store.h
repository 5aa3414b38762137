/* storage: what we hold. Blobs on disk, named by their digest, and the rows (LMDB) that say which
 * repository may read which blob, which tag names which manifest, and where a blob that we do not
 * hold can be had. No HTTP, no curl.
 *
 * The blob store (storage/blobs.h) and the metadata store (storage/meta.h) are two narrow seams;
 * this header is what the rest of the program uses. Every operation is whole and atomic; no
 * transaction, path or LMDB handle ever leaves the folder. All functions are thread-safe unless
 * said otherwise. Results are owned copies: nothing returned depends on an open transaction.
 *
 * Rules that never break (docs/on-disk-format.md):
 *   1. A file under blobs/ hashes to its name.
 *   2. What was acknowledged survives a crash one instruction later.
 *   3. A row never points at nothing: the content is held, or it has an origin.
 *   4. Opening settles what a crash left, without reading file contents.
 *   5. One batching writer; readers never wait for it and never hold a read transaction while
 *      waiting for a disk or a network.
 */
#ifndef WB_STORAGE_STORE_H
#define WB_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/ref.h"
#include "storage/hub.h"
#include "storage/lent.h"
#include "storage/push.h"
#include "storage/repository.h"
#include "storage/upload.h"
#include "storage/writer.h"

struct store;

struct store_options {
    const char *dir;             /* made when missing, with meta/, blobs/ and incoming/ */
    unsigned max_readers;        /* threads that may read at once; 0 = 4096 + 64 */
    unsigned free_floor_percent; /* see store_has_room() */
    unsigned max_uploads;        /* upload sessions at once; 0 = 10000 */
};

/* Opens or makes a data directory, takes its lock and settles what a crash left.
 * ERR_CONFLICT: another process holds the directory (the text names its pid and what to do).
 * ERR_UNSUPPORTED: a newer version of the program wrote it (the text names both versions). */
int store_open(const struct store_options *options, struct store **ret, struct error *err);
/* No operation may be running. Everything acknowledged is on disk already; this only lets go. */
void store_close(struct store *s);

/* ---- blobs that we hold ------------------------------------------------------------------- */

struct blob;
/* 1 and an open blob, 0 not held, -1. An open blob stays readable when it is removed. */
int store_blob_open(struct store *s, const struct digest *d, struct blob **ret, struct error *err);
int store_blob_stat(struct store *s, const struct digest *d, uint64_t *ret_size, struct error *err);
uint64_t blob_size(const struct blob *b);
int blob_fd(const struct blob *b); /* for sendfile, borrowed; -1 when the backend has none */
/* Reads up to len bytes at offset; 0 only at or behind the end. Thread-safe. */
ssize_t blob_read(struct blob *b, uint64_t offset, void *buf, size_t len, struct error *err);
void blob_close(struct blob *b); /* NULL is fine */

/* Stores len bytes under their sha256 (or finds them held) and returns the digest. For small
 * content: durable on return. */
int store_blob_put(struct store *s, const void *data, size_t len, struct digest *ret,
                   struct error *err);

/* Whether `bytes` more may be stored: free space stays above free_floor_percent of the filesystem,
 * and above 16 MiB in any case. ERR_NO_SPACE with the figures and the setting's name when not. */
int store_has_room(struct store *s, uint64_t bytes, struct error *err);
/* How many of a blob's bytes would have to be stored, at most: all but what an earlier download has
 * left from 0 on. */
uint64_t store_missing(struct store *s, const struct digest *d, uint64_t size);

/* ---- digests that an upstream got wrong ------------------------------------------------------ */

/* Remembers, across restarts, that wrong bytes were sent out for this digest until the given wall
 * clock second, an hour ahead at most: ranges that do not begin at 0 are refused until then. To the
 * clients of those repositories: all, or those of a list. */
int store_mismatch_put(struct store *s, const struct digest *d, uint64_t until, struct error *err);
int store_mismatch_put_to(struct store *s, const struct digest *d, const struct lent *to,
                          uint64_t until, struct error *err);
/* Seconds that are left for this repository's clients, 0 when none. */
uint64_t store_mismatch_left(struct store *s, const struct digest *d, const char *repository);

/* ---- housekeeping ---------------------------------------------------------------------------- */

/* Whether a write to the disk failed in such a way that nothing works until the store is opened
 * again; the text says so. Cheap. */
bool store_has_failed(struct store *s, struct error *err);

struct store_stats {
    uint64_t blobs, blob_bytes; /* complete, held */
    uint64_t partials, partial_bytes;
    uint64_t uploads; /* open sessions; their bytes are among partial_bytes */
    uint64_t repositories, manifests, tags;
    uint64_t disk_free, disk_total;
};
/* Cheap (counters and one statvfs), for /metrics. */
int store_stats(struct store *s, struct store_stats *ret, struct error *err);

struct gc_options {
    bool dry_run;
    uint64_t grace_s; /* blobs that nothing needs are kept so long after they were pushed or
                         let go: a push may be under way */
};
struct gc_result {
    uint64_t blobs_removed, bytes_removed, partials_removed;
    uint64_t blobs_held; /* kept only because of the grace */
};
/* Removes blobs and partials that neither a manifest nor a Hub's commit (hub.h) needs and no hold
 * (push.h) keeps, and holds that are older than the grace. Only while nothing else uses the store
 * (the offline command): not yet safe beside running transfers. */
int store_gc(struct store *s, const struct gc_options *options, struct gc_result *ret,
             struct error *err);

#endif
