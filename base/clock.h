/* Time. Deadlines and waits use the monotonic clock, records use the wall clock. Thread-safe. */
#ifndef WB_BASE_CLOCK_H
#define WB_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t clock_monotonic_ms(void);
uint64_t clock_monotonic_us(void);
uint64_t clock_wall_s(void); /* seconds since 1970 */

/* "2026-01-02T03:04:05.678Z" of a wall clock time in milliseconds; returns buf. */
char *clock_format(uint64_t wall_ms, char buf[static 32]);
char *clock_format_now(char buf[static 32]);

/* A condition variable that waits on the monotonic clock. */
int cond_init_monotonic(pthread_cond_t *cond);
/* Waits until signalled or until clock_monotonic_ms() reaches deadline_ms; false when it was
 * reached. Wake-ups may be spurious: always wait in a loop over the predicate. */
bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ms);

#define CLOCK_FOREVER UINT64_MAX

#endif
