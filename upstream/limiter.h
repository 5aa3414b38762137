/* A bandwidth limit that several downloads share fairly: a token bucket with a queue. Thread-safe.
 */
#ifndef WB_UPSTREAM_LIMITER_H
#define WB_UPSTREAM_LIMITER_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

struct limiter;

/* bytes_per_s > 0. `above` (NULL = none) is taken from as well: the limit of all upstreams. */
int limiter_new(uint64_t bytes_per_s, struct limiter *above, struct limiter **ret,
                struct error *err);
void limiter_free(struct limiter *l);
/* Waits until n bytes (at most 1 MiB) may be taken; who came first is served first. ERR_CANCELLED
 * within a second of *cancel (may be NULL) being set. */
int limiter_take(struct limiter *l, uint64_t n, const atomic_bool *cancel, struct error *err);

#endif
