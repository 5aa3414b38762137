/* The tokens of the callers who wait for one and the same thing of a Hub with `credentials:
 * forward`: it is asked for with that of the first, and with the next one when that is refused, so
 * that nobody fails for another's lack of rights. Each was checked (upstream/hub_access.h) before
 * it came here. Copies, in memory alone, wiped at the end. Thread-safe.
 */
#ifndef WB_UPSTREAM_CALLERS_H
#define WB_UPSTREAM_CALLERS_H

#include <pthread.h>

#include "upstream/caller.h"
#include "upstream/hub.h"

#define CALLERS_MAX 8u

struct callers {
    pthread_mutex_t lock; /* guards: all below */
    char *tokens[CALLERS_MAX];
    unsigned n;
    unsigned refused; /* so many of the first ones */
};

int callers_init(struct callers *c, struct error *err);
void callers_done(struct callers *c);
/* token NULL: a caller without one. Left out when it is there already, or there are enough. */
void callers_add(struct callers *c, const char *token);

/* Asks the Hub on behalf of one of them, of each that was not refused before until one is not. With
 * `credentials: own` that is the Hub as it is. ERR_UNAUTHORIZED, ERR_DENIED and ERR_NOT_FOUND are
 * refusals. connect_by_ms: see struct hub_asking. */
int callers_ask(struct callers *c, struct hub *h, uint64_t connect_by_ms,
                int (*ask)(void *ctx, struct hub *as, struct error *err), void *ctx,
                struct error *err);

#endif
