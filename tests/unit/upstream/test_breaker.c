#include <criterion/criterion.h>
#include <string.h>

#include "upstream/breaker.h"
#include "upstream/http.h"

/* All times are made up; T is where they start. */
#define T 1000000u

static struct breaker *make(unsigned threshold)
{
    struct breaker *b = NULL;
    cr_assert_eq(breaker_new("docker.io", threshold, &b, NULL), 0);
    return b;
}

static void fail_with(struct breaker *b, uint64_t now, enum err_code code, unsigned retry_after)
{
    struct error why = {.code = code, .retry_after = retry_after};
    strcpy(why.text, "reg.example: it broke");
    breaker_failure(b, now, &why);
}

static bool passes(struct breaker *b, uint64_t now)
{
    struct error err = ERROR_INIT;
    if (breaker_enter(b, now, &err) == 0)
        return true;
    cr_assert_eq(err.code, ERR_UPSTREAM);
    cr_assert_geq(err.retry_after, 1);
    cr_assert(strstr(err.text, "docker.io") && strstr(err.text, "it broke"), "%s", err.text);
    return false;
}

static enum breaker_state state(struct breaker *b, uint64_t now)
{
    struct breaker_stats s;
    breaker_stats(b, now, &s);
    return s.state;
}

Test(breaker, opens_after_failures_in_a_row)
{
    struct breaker *b = make(3);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 2; i++) {
            cr_assert(passes(b, T));
            fail_with(b, T, ERR_UPSTREAM, 0);
        }
        cr_assert(passes(b, T));
        breaker_success(b);
    }
    cr_assert_eq(state(b, T), BREAKER_CLOSED);
    for (int i = 0; i < 3; i++) {
        cr_assert(passes(b, T));
        fail_with(b, T, ERR_UPSTREAM, 0);
    }
    cr_assert_eq(state(b, T), BREAKER_OPEN);
    cr_assert_not(passes(b, T));
    cr_assert_not(passes(b, T + 700));
    struct breaker_stats s;
    breaker_stats(b, T, &s);
    cr_assert_eq(s.opened, 1);
    cr_assert_eq(s.refused, 2);
    breaker_free(b);
}

Test(breaker, opens_at_once_when_a_time_limit_was_waited_out)
{
    struct breaker *b = make(5);
    cr_assert(passes(b, T));
    fail_with(b, T, ERR_TIMEOUT, 0);
    cr_assert_not(passes(b, T + 1));
    breaker_free(b);
}

Test(breaker, lets_one_trial_pass_after_the_pause)
{
    struct breaker *b = make(1);
    cr_assert(passes(b, T));
    fail_with(b, T, ERR_UPSTREAM, 0);
    cr_assert_not(passes(b, T + 749));
    cr_assert_eq(state(b, T + 1000), BREAKER_HALF_OPEN);
    cr_assert(passes(b, T + 1000));
    cr_assert_not(passes(b, T + 1000));
    cr_assert_not(passes(b, T + 5000));
    breaker_success(b);
    cr_assert_eq(state(b, T + 5000), BREAKER_CLOSED);
    cr_assert(passes(b, T + 5000));
    cr_assert(passes(b, T + 5000));
    breaker_free(b);
}

Test(breaker, doubles_the_pause_up_to_a_minute)
{
    static const uint64_t pauses[] = {1, 2, 4, 8, 16, 32, 60, 60};
    struct breaker *b = make(1);
    uint64_t now = T;
    cr_assert(passes(b, now));
    for (size_t i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
        uint64_t ms = pauses[i] * 1000;
        fail_with(b, now, ERR_UPSTREAM, 0);
        cr_assert_not(passes(b, now + ms * 3 / 4 - 1), "%zu", i);
        cr_assert(passes(b, now + ms), "%zu", i);
        now += ms;
    }
    /* one success, and the next pause is short again */
    breaker_success(b);
    cr_assert(passes(b, now));
    fail_with(b, now, ERR_UPSTREAM, 0);
    cr_assert(passes(b, now + 1000));
    struct breaker_stats s;
    breaker_stats(b, now, &s);
    cr_assert_eq(s.opened, 2);
    breaker_free(b);
}

Test(breaker, pauses_are_not_all_the_same)
{
    bool early = false, late = false;
    for (int i = 0; i < 200 && !(early && late); i++) {
        struct breaker *b = make(1);
        fail_with(b, T, ERR_UPSTREAM, 0);
        bool passed = passes(b, T + 875);
        early = early || passed;
        late = late || !passed;
        breaker_free(b);
    }
    cr_assert(early && late);
}

Test(breaker, keeps_away_for_as_long_as_it_was_asked_to)
{
    struct breaker *b = make(5);
    struct error err = ERROR_INIT;
    cr_assert(passes(b, T));
    cr_assert(passes(b, T));
    fail_with(b, T, ERR_RATE_LIMITED, 30);
    cr_assert_eq(breaker_enter(b, T + 500, &err), -1);
    cr_assert_eq(err.retry_after, 30);
    /* the answer to a request that was sent before changes nothing */
    breaker_success(b);
    cr_assert_not(passes(b, T + 29999));
    cr_assert(passes(b, T + 30000));
    /* the trial's does */
    breaker_success(b);
    cr_assert_eq(state(b, T + 30000), BREAKER_CLOSED);

    /* 503 with Retry-After as well, and a later one makes it longer, never shorter */
    fail_with(b, T, ERR_UPSTREAM, 10);
    fail_with(b, T + 1000, ERR_RATE_LIMITED, 20);
    fail_with(b, T + 2000, ERR_RATE_LIMITED, 2);
    fail_with(b, T + 2000, ERR_UPSTREAM, 0);
    cr_assert_not(passes(b, T + 20999));
    cr_assert(passes(b, T + 21000));
    breaker_free(b);
}

/* One answer must not shut an upstream out for a day. */
Test(breaker, peer_bug_63_keeps_away_for_a_bounded_time)
{
    static const struct {
        enum err_code code;
        unsigned asked, bound;
    } cases[] = {{ERR_UPSTREAM, 86400, HTTP_WAIT_FAILED_MAX_S},
                 {ERR_UPSTREAM, 299, 299},
                 {ERR_RATE_LIMITED, 86400, HTTP_WAIT_LIMITED_MAX_S},
                 {ERR_RATE_LIMITED, 21599, 21599}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct breaker *b = make(5);
        struct error err = ERROR_INIT;
        uint64_t end = T + cases[i].bound * 1000u;
        fail_with(b, T, cases[i].code, cases[i].asked);
        cr_assert_eq(breaker_enter(b, T, &err), -1);
        cr_assert_eq(err.retry_after, cases[i].bound, "the client is told when");
        cr_assert_not(passes(b, end - 1));
        /* Then one at a time. */
        cr_assert(passes(b, end));
        cr_assert_not(passes(b, end));
        fail_with(b, end, cases[i].code, cases[i].asked);
        cr_assert_not(passes(b, end + cases[i].bound * 1000u - 1));
        cr_assert(passes(b, end + cases[i].bound * 1000u));
        breaker_success(b);
        cr_assert_eq(state(b, end + cases[i].bound * 1000u), BREAKER_CLOSED);
        /* One that was sent before it opened makes it no longer either. */
        fail_with(b, T, ERR_UPSTREAM, 10);
        fail_with(b, T + 1000, cases[i].code, cases[i].asked);
        cr_assert(passes(b, T + 1000 + cases[i].bound * 1000u));
        breaker_free(b);
    }
}

Test(breaker, a_429_that_names_no_time_counts_as_one_failure)
{
    struct breaker *b = make(2);
    fail_with(b, T, ERR_RATE_LIMITED, 0);
    cr_assert(passes(b, T));
    fail_with(b, T, ERR_RATE_LIMITED, 0);
    cr_assert_not(passes(b, T));
    breaker_free(b);
}

Test(breaker, late_answers)
{
    struct breaker *b = make(2);
    /* failures of requests sent before it opened do not make the pause longer */
    for (int i = 0; i < 6; i++)
        fail_with(b, T + (unsigned)i, ERR_UPSTREAM, 0);
    cr_assert(passes(b, T + 1001));
    breaker_abandon(b);
    /* an answer proves life */
    breaker_success(b);
    cr_assert_eq(state(b, T + 1001), BREAKER_CLOSED);
    breaker_free(b);
}

Test(breaker, an_abandoned_trial_makes_room_for_another)
{
    struct breaker *b = make(1);
    fail_with(b, T, ERR_UPSTREAM, 0);
    cr_assert(passes(b, T + 1000));
    cr_assert_not(passes(b, T + 1000));
    breaker_abandon(b);
    cr_assert(passes(b, T + 1000));
    /* one that never tells anything does not shut everybody out for ever */
    cr_assert_not(passes(b, T + 60999));
    cr_assert(passes(b, T + 61000));
    cr_assert_not(passes(b, T + 61000));
    breaker_free(b);
}

Test(breaker, only_the_upstreams_own_failures_count)
{
    static const enum err_code ours[] = {ERR_CANCELLED, ERR_BUSY,      ERR_NOMEM,  ERR_IO,
                                         ERR_NO_SPACE,  ERR_TOO_LARGE, ERR_INVALID};
    static const enum err_code answers[] = {ERR_NOT_FOUND, ERR_DENIED, ERR_UNAUTHORIZED,
                                            ERR_DIGEST_MISMATCH};
    struct breaker *b = make(1);
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        fail_with(b, T, ours[i], 0);
        cr_assert_eq(state(b, T), BREAKER_CLOSED);
    }
    breaker_free(b);
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        b = make(1);
        fail_with(b, T, ERR_UPSTREAM, 0);
        cr_assert(passes(b, T + 1000));
        fail_with(b, T + 1000, answers[i], 0);
        cr_assert_eq(state(b, T + 1000), BREAKER_CLOSED);
        breaker_free(b);
    }
    b = make(1);
    fail_with(b, T, ERR_UPSTREAM, 0);
    cr_assert(passes(b, T + 1000));
    fail_with(b, T + 1000, ERR_CANCELLED, 0);
    cr_assert_eq(state(b, T + 1000), BREAKER_HALF_OPEN);
    cr_assert(passes(b, T + 1000));
    breaker_free(b);
}
