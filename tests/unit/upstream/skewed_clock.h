/* A monotonic clock that a test can put forward. Header-only, for one file of a program. */
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
    if (id == CLOCK_MONOTONIC)
        t->tv_sec += atomic_load(&skew_s);
    return rc;
}

#endif
