/* Bytes that are lent: given to clients before all of the file has been checked, and kept nowhere.
 * Whoever has some of what turns out to be wrong, or was never checked, must not be given the rest:
 * it would have a complete wrong file.
 *
 * That bytes are going to be lent is durable before the first one is: a crash takes the fetch away,
 * and not what clients have of it. Several fetches may run for one file (at two commits). Part of
 * upstream/small.c, and of upstream/transfer_through.c. Thread-safe.
 */
#ifndef WB_UPSTREAM_LENDING_H
#define WB_UPSTREAM_LENDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "storage/store.h"

struct lending;

struct lendings {
    struct store *store;
    pthread_mutex_t lock; /* guards: all below, and what is in them; held over the store's writes of
                             them, which must not overtake each other */
    struct lending *first;
};
int lendings_init(struct lendings *t, struct store *s, struct error *err);
void lendings_done(struct lendings *t);

/* A fetch of the file begins; `file` stands for it among the digests that were got wrong. */
int lending_begin(struct lendings *t, const struct digest *file, struct lending **ret,
                  struct error *err);
/* Bytes of it are about to go out. Costs a write now and then. -1: none may. */
int lending_announce(struct lendings *t, struct lending *l, struct error *err);
/* The fetch has ended; suspect: somebody has bytes of it that were wrong, or not checked. */
void lending_end(struct lendings *t, struct lending *l, bool suspect);
/* How long, in seconds, nobody may resume what an earlier fetch lent. */
uint64_t lending_left(struct lendings *t, const struct lending *l);
/* The same when perhaps no fetch is running; *ret_running: one is, and may have lent. */
uint64_t lendings_left(struct lendings *t, const struct digest *file, bool *ret_running);
/* After lending_end(). NULL is fine. */
void lending_unref(struct lendings *t, struct lending *l);

#endif
