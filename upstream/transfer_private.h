/* What transfer.c (table, states, readers) and transfer_fill.c (one download) share. */
#ifndef WB_UPSTREAM_TRANSFER_PRIVATE_H
#define WB_UPSTREAM_TRANSFER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "upstream/transfer.h"

#define TRANSFER_BUCKETS 256

struct transfers {
    struct store *store;
    struct transfers_options options;
    transfer_ended_fn ended;
    void *ended_ctx;

    pthread_mutex_t lock; /* guards: buckets, running, threads, stopping */
    pthread_cond_t changed;
    struct transfer *buckets[TRANSFER_BUCKETS];
    unsigned running; /* of at most options.max_running */
    unsigned threads; /* not yet at their end, those that wait for a slot included */
    bool stopping;

    struct {
        atomic_uint_fast64_t readers, started, completed, failed, mismatches, bytes, resumed_bytes;
    } stats;
};

/* Lock order: transfers.lock before transfer.lock. */
struct transfer {
    struct transfers *table;
    struct transfer *next; /* guarded by table->lock */
    struct digest digest;
    uint64_t size;
    struct transfer_source source;
    atomic_bool cancel; /* set under table->lock or lock; the thread looks from time to time */

    pthread_mutex_t lock; /* guards: all down to the blank line */
    pthread_cond_t cond;
    enum transfer_state state; /* only grows */
    bool has_slot;             /* counted in table->running */
    uint64_t have;             /* only grows */
    struct error error;        /* once FAILED */
    unsigned refs, readers;
    unsigned reads; /* readers that are inside the writer now */
    struct blob_writer
        *writer;       /* set before `have` first grows, cleared by the thread at the end */
    struct blob *blob; /* once DONE */

    /* the thread's own */
    struct hasher *hasher;
    uint64_t written; /* hashed and in the file */
    uint64_t received;
    char *buffer; /* coalesces curl's 16 KiB pieces */
    size_t buffered;
    uint64_t buffered_since; /* monotonic ms of the oldest byte in it */
    uint64_t skip;           /* leading bytes of an answer that ignored our Range */
    uint64_t expected;       /* end of the range that the running exchange may bring */
};

/* Downloads, verifies, commits. On failure the writer is left as it is. */
int transfer_fill(struct transfer *x, struct error *err);

void transfer_advance(struct transfer *x, enum transfer_state state);
void transfer_publish(struct transfer *x, uint64_t hashed);

#endif
