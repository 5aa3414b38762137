/* Small files of a Hub's commit, as git itself keeps them: what is known of one before its bytes
 * are here is its git object id, not its sha256, so that it can not be a transfer (transfer.h).
 *
 *     RUNNING    bytes come, into memory of exactly the file's size; `have` grows
 *     DONE       all of them hash to the object id, and are kept under their sha256
 *                (store_hub_object_put), unless there was no room for that
 *     FAILED     the error says why; readers are cut, and who comes now starts afresh
 *
 * One fetch runs for a file, however many want it, on a thread of its own; it goes on to its end
 * when its readers have left. Readers get bytes while they come, but for the last SMALL_WITHHELD
 * ones (the whole of a shorter file): those wait until the object id has matched. A connection that
 * breaks is tried again, from the file's beginning, and what was published already has to come
 * again byte for byte. While nothing has come, and no client's answer has begun, that ends when the
 * last of the clients has to have an answer (answer_by_ms), so that it is a status. After a
 * mismatch, when bytes that readers got are given up, and when a crash took a fetch away that they
 * had some of (upstream/lending.h), nobody may resume for TRANSFER_MISMATCH_S:
 * small_check_resume().
 *
 * Bounds: HUB_SMALL_FILE_MAX for a file, SMALL_MEMORY_MAX for all, SMALL_THREADS_MAX at once; who
 * comes when they are reached waits SMALL_PATIENCE_MS (of the client's waiting), then ERR_BUSY.
 * Thread-safe.
 */
#ifndef WB_UPSTREAM_SMALL_H
#define WB_UPSTREAM_SMALL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "storage/hub.h"
#include "storage/store.h"
#include "upstream/hub.h"

#define SMALL_MEMORY_MAX (256u << 20)
#define SMALL_THREADS_MAX 128u
#define SMALL_WITHHELD 65536u
#define SMALL_PATIENCE_MS 5000u
#define SMALL_BUSY_S 5u /* until one who was turned away comes again */

struct smalls;
struct small;

int smalls_new(struct store *s, struct smalls **ret, struct error *err);
/* Ends every fetch (ERR_CANCELLED), waits for the threads. The Hubs' pools were cancelled before.
 */
void smalls_stop(struct smalls *t);
/* After smalls_stop(), when no reader is left. NULL is fine. */
void smalls_free(struct smalls *t);

struct small_source {
    struct hub *hub;         /* outlives the fetch */
    const char *id, *commit; /* id: with its kind */
    const struct commit_file *file;
    const char *token; /* the caller's, for `credentials: forward`; NULL = none */
    /* CLOCK_MONOTONIC: until when its client has to have an answer, see small_begin(); 0 = it can
     * wait. */
    uint64_t answer_by_ms;
};
/* Finds the running fetch or starts one. *ret is a reference for one reader; *ret_started: there
 * was none. ERR_TOO_LARGE, ERR_BUSY, ERR_CANCELLED after a stop. */
int small_join(struct smalls *t, const struct small_source *from, struct small **ret,
               bool *ret_started, struct error *err);
void small_unref(struct small *x); /* NULL is fine */

/* Sleeps until more than `seen` bytes may be read, or all that there are, or the deadline. 1 with
 * *ret_have, 0, or -1 with the fetch's error. */
int small_wait(struct small *x, uint64_t seen, uint64_t deadline_ms, uint64_t *ret_have,
               struct error *err);
/* Waits until the client's answer may begin: there is something to read, or the deadline has come
 * and the Hub has not failed yet, or not since bytes came. -1: it has, and the client had better be
 * told why it takes so long. */
int small_begin(struct small *x, uint64_t deadline_ms, struct error *err);
/* Sleeps until it has ended: 1 it is right and kept, 0 at the deadline, -1; also when it could not
 * be kept, for the reason given. */
int small_wait_kept(struct small *x, uint64_t deadline_ms, struct error *err);
/* Of what may be read, up to len bytes; never blocks on the network. */
ssize_t small_read(struct small *x, uint64_t offset, void *buf, size_t len, struct error *err);

/* For who will not read from byte 0. ERR_DIGEST_MISMATCH: bytes of this file that were sent out a
 * short while ago, by another fetch, were wrong, or were given up before they could be checked.
 * repository: for the text. */
int small_check_resume(struct small *x, const char *repository, struct error *err);
/* The same for a file that is held: it may have come some other way since. */
int small_check_resume_held(struct store *s, const char *repository, const char *upstream,
                            const char *id, const struct commit_file *file, struct error *err);

struct small_stats {
    uint64_t running, started, failed;
    uint64_t mismatches;
    uint64_t uncached; /* right, and not kept */
};
void smalls_stats(struct smalls *t, struct small_stats *ret);

/* Told on the fetch's thread when one ends, for the edge's log: error NULL = all is well. Set
 * before the first fetch. */
struct small_ended {
    const char *upstream, *id, *commit, *path;
    uint64_t size, received, ms;
};
typedef void (*small_ended_fn)(void *ctx, const struct small_ended *what,
                               const struct error *error);
void smalls_on_end(struct smalls *t, small_ended_fn fn, void *ctx);

#endif
