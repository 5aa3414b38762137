/* A circuit breaker: keeps a dead upstream from costing every request its time limits.
 *
 *     CLOSED      requests pass
 *     OPEN        refused at once (ERR_UPSTREAM with what went wrong last, retry_after set)
 *     HALF-OPEN   after the pause one request passes as a trial; the others are refused still
 *
 * It opens after `threshold` failures in a row without a success, at once after a request that
 * waited for its whole time limit (ERR_TIMEOUT), and for as long as a 429 or 503 with Retry-After
 * says: of a 429 (ERR_RATE_LIMITED) for HTTP_WAIT_LIMITED_MAX_S at the most, else for
 * HTTP_WAIT_FAILED_MAX_S (upstream/http.h), and then a trial decides. The pause doubles with each
 * failed trial from 1 s to 60 s, less up to a quarter by chance. Only the upstream's own failures
 * count (refused, reset, timed out, TLS, 5xx, 429); an answer like 404 or 401 is a success of the
 * connection. Requests that passed before it opened may report later: a success closes it (unless
 * it was asked to wait), a failure does not lengthen the pause. Tell the outcome when the answer's
 * header is there: a trial keeps the others out until then, a minute at the most. Thread-safe; time
 * is clock_monotonic_ms().
 */
#ifndef WB_UPSTREAM_BREAKER_H
#define WB_UPSTREAM_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct breaker;
enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

/* name: the upstream's prefix, for texts; copied. threshold: 0 = 5. */
int breaker_new(const char *name, unsigned threshold, struct breaker **ret, struct error *err);
void breaker_free(struct breaker *b);

/* Before a request: 0 pass (then exactly one of the two below must follow), -1 refused. */
int breaker_enter(struct breaker *b, uint64_t now_ms, struct error *err);
void breaker_success(struct breaker *b);
/* why->code decides: ERR_UPSTREAM, ERR_TIMEOUT and ERR_RATE_LIMITED are failures, what can only
 * come from an answer (ERR_NOT_FOUND, ERR_DENIED, ...) is a success, the rest is as abandoned. */
void breaker_failure(struct breaker *b, uint64_t now_ms, const struct error *why);
/* The request ended without telling anything about the upstream (cancelled). */
void breaker_abandon(struct breaker *b);

struct breaker_stats {
    enum breaker_state state;
    uint64_t opened; /* times that it was closed and opened, since the start */
    uint64_t refused;
};
void breaker_stats(struct breaker *b, uint64_t now_ms, struct breaker_stats *ret);

#endif
