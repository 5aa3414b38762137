#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

Test(clock, clocks_agree_with_the_system)
{
    uint64_t ms = clock_monotonic_ms(), us = clock_monotonic_us();
    cr_assert_geq(us / 1000, ms);
    cr_assert_leq(us / 1000 - ms, 1000);
    time_t now = time(NULL);
    uint64_t wall = clock_wall_s();
    cr_assert(wall >= (uint64_t)now && wall <= (uint64_t)now + 1);
}

Test(clock, now_as_text)
{
    char buf[32];
    cr_assert_eq(clock_format_now(buf), buf);
    int y, mo, d, h, mi, s, ms, end = 0;
    cr_assert_eq(sscanf(buf, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &y, &mo, &d, &h, &mi, &s, &ms, &end),
                 7);
    cr_assert_eq(end, 24);
    cr_assert_eq(strlen(buf), 24);
}

Test(clock, a_wait_ends_at_its_deadline)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    cr_assert_eq(cond_init_monotonic(&cond), 0);
    uint64_t deadline = clock_monotonic_ms() + 30;
    pthread_mutex_lock(&lock);
    while (cond_wait_until(&cond, &lock, deadline))
        ; /* spurious wake-ups are allowed */
    pthread_mutex_unlock(&lock);
    cr_assert_geq(clock_monotonic_ms(), deadline);
    pthread_mutex_lock(&lock);
    cr_assert_not(cond_wait_until(&cond, &lock, 0), "a deadline in the past is over at once");
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&cond);
}

struct shared {
    pthread_mutex_t lock; /* guards: ready */
    pthread_cond_t cond;
    bool ready;
};

static void *make_ready(void *arg)
{
    struct shared *s = arg;
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void wait_for_signal(uint64_t deadline)
{
    struct shared s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    cr_assert_eq(cond_init_monotonic(&s.cond), 0);
    pthread_mutex_lock(&s.lock);
    cr_assert_eq(pthread_create(&thread, NULL, make_ready, &s), 0);
    while (!s.ready)
        cr_assert(cond_wait_until(&s.cond, &s.lock, deadline));
    pthread_mutex_unlock(&s.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&s.cond);
}

Test(clock, a_wait_is_woken, .timeout = 60)
{
    wait_for_signal(clock_monotonic_ms() + 50000);
    wait_for_signal(CLOCK_FOREVER);
}

Test(clock, a_given_time_as_text)
{
    char buf[32];
    cr_expect_str_eq(clock_format(0, buf), "1970-01-01T00:00:00.000Z");
    cr_expect_str_eq(clock_format(1796036700123, buf), "2026-11-30T11:05:00.123Z");
    cr_expect_lt(strlen(clock_format(UINT64_MAX, buf)), sizeof(buf));
}
