/* Clocks that a test can put forward: the monotonic one, and with SKEWS_WALL_CLOCK defined before
 * the other one with it. Header-only, for one file of a program. */
#ifndef WB_TESTS_SKEWED_CLOCK_H
#define WB_TESTS_SKEWED_CLOCK_H

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic long skew_s;

int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
#ifndef SKEWS_WALL_CLOCK
    if (id != CLOCK_MONOTONIC)
        return rc;
#endif
    t->tv_sec += atomic_load(&skew_s);
    return rc;
}

#ifdef SKEWS_WALL_CLOCK
time_t time(time_t *ret)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (ret)
        *ret = t.tv_sec;
    return t.tv_sec;
}
#endif

#endif
