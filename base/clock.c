#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t clock_monotonic_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t clock_monotonic_ms(void)
{
    return clock_monotonic_us() / 1000u;
}

uint64_t clock_wall_s(void)
{
    return (uint64_t)time(NULL);
}

/* "2026-01-02T03:04:05" of a second, kept for the next time it is asked for on this thread: every
 * log line asks, and the conversion takes a lock of the C library's. NULL: the year does not fit.
 */
static const char *format_second(time_t second)
{
    static _Thread_local char text[24];
    static _Thread_local time_t kept;
    struct tm tm = {0};
    if (*text && second == kept)
        return text;
    *text = '\0';
    if (!gmtime_r(&second, &tm) || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return NULL;
    kept = second;
    return text;
}

char *clock_format(uint64_t wall_ms, char buf[static 32])
{
    const char *second = format_second((time_t)(wall_ms / 1000u));
    unsigned ms = (unsigned)(wall_ms % 1000u);
    if (!second) {
        snprintf(buf, 32, "%ju", (uintmax_t)wall_ms);
        return buf;
    }
    char *end = stpcpy(buf, second);
    *end++ = '.';
    *end++ = (char)('0' + ms / 100);
    *end++ = (char)('0' + ms / 10 % 10);
    *end++ = (char)('0' + ms % 10);
    memcpy(end, "Z", 2);
    return buf;
}

char *clock_format_now(char buf[static 32])
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return clock_format((uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u, buf);
}

int cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc)
        return -rc;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return -rc;
}

bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ms)
{
    if (deadline_ms == CLOCK_FOREVER)
        return pthread_cond_wait(cond, lock) == 0;
    struct timespec t = {.tv_sec = (time_t)(deadline_ms / 1000u),
                         .tv_nsec = (long)(deadline_ms % 1000u) * 1000000L};
    return pthread_cond_timedwait(cond, lock, &t) != ETIMEDOUT;
}
