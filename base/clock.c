#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
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

char *clock_format(uint64_t wall_ms, char buf[static 32])
{
    time_t seconds = (time_t)(wall_ms / 1000u);
    struct tm tm = {0};
    if (!gmtime_r(&seconds, &tm)) { /* a year that does not fit */
        snprintf(buf, 32, "%ju", (uintmax_t)wall_ms);
        return buf;
    }
    size_t n = strftime(buf, 24, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, 32 - n, ".%03uZ", (unsigned)(wall_ms % 1000u));
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
