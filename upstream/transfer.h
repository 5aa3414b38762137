/* A transfer: one running download of one blob. There is at most one for a digest, however many
 * clients want it; its thread writes, readers follow the growing file.
 *
 *     STARTING   the writer is opened, the upstream is asked where the bytes are
 *     HEADERS    the upstream has answered for the right object: readers may be told 200/206
 *     RUNNING    bytes come; `have` grows
 *     DONE       the digest matched, the blob is committed; have == size
 *     FAILED     the error says why; readers are cut, and ask again
 * The state only grows.
 *
 * Never complete a wrong file: the last TRANSFER_WITHHELD bytes are kept back until the whole
 * file's digest has matched and the blob is committed (rule 2 of storage). Readers of the whole
 * file get what is hashed (`have`); a reader of a part also gets bytes that are here and not hashed
 * yet. A byte that is here is never written again, so what was handed out is what is hashed later.
 * So no set of ranges that covers the file can be completed before the match. On a mismatch the
 * bytes are dropped, the readers are cut short, and the store remembers the digest
 * (store_mismatch_put_to) so that no client of the repositories whose readers got some resumes into
 * other bytes; the same when bytes that a reader got are given up for another reason.
 *
 * One for a digest: of those who were told different sizes each has a transfer of its own, and so
 * has who joins no other (below); but there is one writer, and the others pass the bytes through
 * as when there is no room. They wait a moment first: most that are wrong end as soon as their
 * upstream has answered.
 *
 * Connections: the transfer's thread brings what is missing first. For a large file further ones
 * are added as long as each raises the rate, up to max_connections; they ask for segments, have to
 * be answered with 206 and the first answer's ETag, and go when another request needs their place
 * or the upstream refuses them. What a reader of a part wants far ahead of all of them is fetched
 * over a connection of its own at once, also while the transfer waits for its place.
 *
 * A broken connection resumes by Range from what is written; a 403 of a signed URL is located
 * again; both without end as long as there is progress, and `retries` times without (but once only
 * while clients still wait for a status). A partial left
 * by an earlier process is hashed again first, publishing `have` as it goes. One from another
 * source is not taken over (writer_open_from): whoever lies would have others begin with its bytes.
 *
 * No room: when the disk is full, below its floor, or fails, the bytes go through a window in
 * memory to the readers and are not kept, the end withheld as always. A reader that falls behind
 * the window is cut; who comes when the beginning is gone starts another transfer.
 * transfers_on_end() is told why, with an error, though the readers had everything. A reader of a
 * part that ends before the withheld end does not wait for the bytes before it: it has a transfer
 * of that part alone (transfer_begin_part), which nobody hashes. Its repository's clients do not
 * get the withheld end then, unless they read the whole file, for TRANSFER_MISMATCH_S.
 *
 * Lifecycle: transfer_join() gives a reference, transfer_unref() ends it. Thread-safe.
 */
#ifndef WB_UPSTREAM_TRANSFER_H
#define WB_UPSTREAM_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"
#include "storage/store.h"
#include "upstream/http.h"

#define TRANSFER_WITHHELD 65536u
#define TRANSFER_MISMATCH_S 600u

enum transfer_state { /* ordered; only grows */
                      TRANSFER_STARTING,
                      TRANSFER_HEADERS,
                      TRANSFER_RUNNING,
                      TRANSFER_DONE,
                      TRANSFER_FAILED,
};

/* Where the bytes come from. locate() is called on a thread of the transfer's at the start and
 * whenever a location has gone stale; a Hub's checks that it still has this very object. Redirects
 * of the location itself are followed by the transfer, without credentials to another origin. */
struct transfer_source {
    const char *upstream;   /* its prefix, for metrics and logs; lives as long as the source */
    const char *repository; /* that the bytes are asked for in; likewise */
    const char
        *cdn_loop; /* for requests to the location's own origin (loop.h); likewise; or NULL */
    struct http_pool *pool;
    unsigned retries;
    unsigned max_connections; /* ranged ones at once for this blob; 0 or 1 = one */
    struct limiter *limiter;  /* the upstream's bandwidth; NULL = no limit */
    int (*locate)(void *ctx, struct http_location *ret, struct error *err);
    /* The location itself answered 401 to the Authorization value `sent` (NULL = none was): 1 and a
     * new value (owned), 0 no use, -1. NULL: a 401 is a stale location. */
    int (*challenged)(void *ctx, const char *sent, const struct http_response *r, char **ret,
                      struct error *err);
    /* It took that value: a later 401 to it means that it is no longer good. NULL: nobody asks. */
    void (*accepted)(void *ctx, const char *sent);
    /* A reader that joins brings a token of its own (NULL: none), for when those that are there are
     * refused. NULL: nobody's is used. */
    void (*add_caller)(void *ctx, const char *token);
    void (*release)(void *ctx);
    void *ctx;
    bool alone; /* joins no transfer from another repository: one has just failed */
    /* Monotonic: before the upstream has answered, a request that has no connection by then has
     * failed; 0 = connect_timeout alone. */
    uint64_t connect_by_ms;
};

struct transfers;
struct transfer;

struct transfers_options {
    unsigned max_running;  /* others wait in STARTING */
    bool finish_abandoned; /* go on when every reader has left; what has not begun ends anyway */
};

int transfers_new(struct store *s, const struct transfers_options *o, struct transfers **ret,
                  struct error *err);
/* Stops every transfer (their readers get ERR_CANCELLED), keeps the partials, waits for the
 * threads. */
void transfers_stop(struct transfers *t);
/* After transfers_stop(), when no reader is left. */
void transfers_free(struct transfers *t);

/* Finds the running transfer of this digest and size or starts one; takes the source over in any
 * case (releases it when not needed). *ret is a reference for one reader. A transfer from another
 * repository of which one of this digest has failed a short while ago is not joined.
 * ERR_CANCELLED after a stop. */
int transfer_join(struct transfers *t, const struct digest *d, uint64_t size,
                  struct transfer_source *source, struct transfer **ret, struct error *err);
/* The running transfer that a join with this source (of which upstream, repository and alone count)
 * would find: 1 and a reference, 0 none. */
int transfer_find(struct transfers *t, const struct digest *d, uint64_t size,
                  const struct transfer_source *like, struct transfer **ret);
/* Bytes [first, end) of a blob that is not stored, because of `why`, with end at most its size less
 * TRANSFER_WITHHELD: asked for by themselves, in pieces that fit into a window, as fast as the one
 * reader takes them, without waiting for a place. Takes the source over in any case. The reader
 * calls transfer_lend() and transfer_may_part() before the first byte goes out. */
struct transfer_part {
    uint64_t first, end;
    const struct error *why;
};
int transfer_begin_part(struct transfers *t, const struct digest *d, uint64_t size,
                        struct transfer_source *source, const struct transfer_part *p,
                        struct transfer **ret, struct error *err);
/* Bytes that no digest vouches for, and the end of the file, are not both given to one repository's
 * clients. Each is noted, durably, before the first byte: 1 noted, 0 the other one was given a
 * short while ago, -1. What gives no byte notes nothing. */
bool transfer_has_end(struct transfers *t, const struct digest *d, const char *repository);
int transfer_may_part(struct transfers *t, const struct digest *d, const char *repository,
                      struct error *err);
int transfer_may_end(struct transfers *t, const struct digest *d, const char *repository,
                     struct error *err);
/* Bytes of a file that are passed through are noted, durably, before the first goes out, for as
 * long as nobody has checked them: a crash takes the download away, and not what clients have of
 * it. How long, in seconds, nobody may resume what an earlier process has passed through.
 * *ret_running: one does so now, and others than its readers must not be given an end. */
uint64_t transfers_passed_left(struct transfers *t, const struct digest *d, bool *ret_running);
/* The upstream has answered with the whole file where a part was asked for. */
bool transfer_has_no_parts(struct transfer *x);
void transfer_unref(struct transfer *x); /* NULL is fine */
/* See transfer_source.add_caller. */
void transfer_add_caller(struct transfer *x, const char *token);

uint64_t transfer_size(const struct transfer *x);
/* Whether its bytes are asked for in this repository of this upstream. */
bool transfer_is_of(const struct transfer *x, const char *upstream, const char *repository);
/* Whether its upstream has answered with bytes of it. The state does not tell: what an earlier
 * transfer has left is read before. */
bool transfer_is_answered(struct transfer *x);
/* It failed because the upstream's answer is about so many bytes, and not about its size. */
bool transfer_is_contradicted(struct transfer *x, uint64_t *ret_size);

/* Sleeps until `have` > seen, or the state is at least `state`, or it is final, or the deadline
 * (clock_monotonic_ms). Returns 1 with *ret_have when there is more than seen or the state was
 * reached, 0 at the deadline, -1 with the transfer's error once it has failed. */
int transfer_wait(struct transfer *x, uint64_t seen, enum transfer_state state,
                  uint64_t deadline_ms, uint64_t *ret_have, struct error *err);
/* The answer to a client can wait no longer. 0: it may begin though the upstream has not answered;
 * `retries` count from now on. -1: the transfer has failed, or the last thing that came of the
 * upstream was a failure, and the client had better be told. */
int transfer_begin(struct transfer *x, struct error *err);
/* -1 with the reason when its bytes are only passed through, so that the blob will not be held. */
int transfer_is_kept(struct transfer *x, struct error *err);
/* Comes before a reader's first bytes: should they turn out wrong, or be given up, the clients of
 * this repository can not resume. A reader that does not say where it belongs is of all. -1 with
 * the transfer's error once it has failed. */
int transfer_lend(struct transfer *x, const char *repository, struct error *err);
/* Bytes that have been published (offset < have), up to len. Never blocks on the network. */
ssize_t transfer_read(struct transfer *x, uint64_t offset, void *buf, size_t len,
                      struct error *err);

/* Where a reader is. A download that can not keep what comes waits for those behind, for a while:
 * see "No room" above. Zero it; transfer_move() says what is read next, and transfer_leave()
 * comes before transfer_unref(). */
struct transfer_place {
    struct transfer_place *next;
    uint64_t at;
    uint64_t waited_ms;
    bool listed, late;
};
void transfer_move(struct transfer *x, struct transfer_place *p, uint64_t at);
void transfer_leave(struct transfer *x, struct transfer_place *p);

/* ---- readers of a part ---- */

/* This reader will want [first, end): what waits for its place fetches that now. */
void transfer_hurry(struct transfer *x, uint64_t first, uint64_t end);
/* Sleeps until there is a byte at `at`, hashed or not, or the deadline; has bytes up to `end`
 * fetched at once when they would take long to come. 1 with the end of what is there, 0, or -1 with
 * the transfer's error. */
int transfer_wait_part(struct transfer *x, uint64_t at, uint64_t end, uint64_t deadline_ms,
                       uint64_t *ret_end, struct error *err);
/* Of what transfer_wait_part() has found. */
ssize_t transfer_read_part(struct transfer *x, uint64_t offset, void *buf, size_t len,
                           struct error *err);

struct transfer_stats {
    uint64_t running, readers;
    uint64_t started, completed, failed;
    uint64_t mismatches;    /* verification failures since the start */
    uint64_t uncached;      /* passed through without being stored */
    uint64_t bytes;         /* received from upstreams */
    uint64_t resumed_bytes; /* taken over from partials */
};
void transfers_stats(struct transfers *t, struct transfer_stats *ret);

/* Called on the transfer's thread when one ends, for the edge's log: error NULL = done. */
typedef void (*transfer_ended_fn)(void *ctx, const char *upstream, const struct digest *d,
                                  uint64_t size, uint64_t received, uint64_t ms,
                                  const struct error *error);
void transfers_on_end(struct transfers *t, transfer_ended_fn fn, void *ctx);

#endif
