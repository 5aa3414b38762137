#include "upstream/limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

/* What was not used is not saved up for longer than this: a burst must not fill the line. */
#define BURST_US 50000u
/* Waiting for less than this is left to the next one who takes. */
#define WORTH_US 2000u
#define SLICE_MS 250u /* how late a cancel flag is seen */

/* A bucket of tokens, turned round: instead of counting tokens, it knows when the bytes that were
 * taken so far have all been paid for. Who takes gets the next stretch of that line, so that all
 * are served in the order in which they came, and asks nobody while it waits. */
struct limiter {
    uint64_t bytes_per_s;
    struct limiter *above;
    pthread_mutex_t lock; /* guards: paid_ns */
    pthread_cond_t never; /* only ever waited on with a deadline */
    uint64_t paid_ns;     /* monotonic */
};

int limiter_new(uint64_t bytes_per_s, struct limiter *above, struct limiter **ret,
                struct error *err)
{
    struct limiter *l = calloc(1, sizeof(*l));
    if (!l || cond_init_monotonic(&l->never) < 0) {
        free(l);
        return err_set(err, ERR_NOMEM, "out of memory for a bandwidth limit");
    }
    pthread_mutex_init(&l->lock, NULL);
    l->bytes_per_s = bytes_per_s ? bytes_per_s : 1;
    l->above = above;
    *ret = l;
    return 0;
}

void limiter_free(struct limiter *l)
{
    if (!l)
        return;
    pthread_cond_destroy(&l->never);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* When the n bytes may be taken, in monotonic microseconds. */
static uint64_t reserve(struct limiter *l, uint64_t n)
{
    uint64_t cost_ns = (uint64_t)((double)n * 1e9 / (double)l->bytes_per_s);
    uint64_t floor_ns = (clock_monotonic_us() - BURST_US) * 1000u;
    pthread_mutex_lock(&l->lock);
    if (l->paid_ns < floor_ns)
        l->paid_ns = floor_ns;
    l->paid_ns += cost_ns;
    uint64_t paid_us = l->paid_ns / 1000u;
    pthread_mutex_unlock(&l->lock);
    return paid_us;
}

int limiter_take(struct limiter *l, uint64_t n, const atomic_bool *cancel, struct error *err)
{
    uint64_t until_us = 0, now_us;
    for (struct limiter *each = l; each; each = each->above) {
        uint64_t us = reserve(each, n);
        if (us > until_us)
            until_us = us;
    }
    while ((now_us = clock_monotonic_us()) + WORTH_US < until_us) {
        if (cancel && atomic_load(cancel))
            return err_set(err, ERR_CANCELLED, "cancelled while it waited for bandwidth");
        uint64_t ms = (until_us - now_us) / 1000u;
        pthread_mutex_lock(&l->lock);
        cond_wait_until(&l->never, &l->lock,
                        clock_monotonic_ms() + (ms < SLICE_MS ? ms + 1 : SLICE_MS));
        pthread_mutex_unlock(&l->lock);
    }
    return 0;
}
