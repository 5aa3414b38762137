#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "upstream/import_private.h"

static struct error missing(const char *text)
{
    struct error e = ERROR_INIT;
    err_set(&e, ERR_NOT_FOUND, "%s", text);
    return e;
}

Test(memory, remembers_what_was_not_found)
{
    struct memory m;
    struct error err = ERROR_INIT, e = missing("no such tag");
    cr_assert_eq(memory_init(&m, &err), 0);
    cr_assert_eq(memory_check(&m, "hf", "hf/a/b:x", &err), 0);
    memory_note(&m, "hf", "hf/a/b:x", 60, &e);
    cr_assert_eq(memory_check(&m, "hf", "hf/a/b:x", &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_str_eq(err.text, "no such tag");
    cr_assert_eq(memory_check(&m, "hf", "hf/a/b:y", &err), 0);
    memory_done(&m);
}

Test(memory, forgets_other_failures_and_a_ttl_of_nothing)
{
    struct memory m;
    struct error err = ERROR_INIT, e = missing("x");
    cr_assert_eq(memory_init(&m, &err), 0);
    memory_note(&m, "hf", "k", 0, &e);
    cr_assert_eq(memory_check(&m, "hf", "k", &err), 0);
    err_set(&e, ERR_UPSTREAM, "cut");
    memory_note(&m, "hf", "k", 60, &e);
    cr_assert_eq(memory_check(&m, "hf", "k", &err), 0);
    err_set(&e, ERR_RATE_LIMITED, "429 without a time");
    memory_note(&m, "hf", "k", 60, &e);
    cr_assert_eq(memory_check(&m, "hf", "k", &err), 0);
    memory_done(&m);
}

Test(memory, is_bounded)
{
    struct memory m;
    struct error err = ERROR_INIT, e = missing("x");
    char key[32];
    cr_assert_eq(memory_init(&m, &err), 0);
    for (int i = 0; i < NEGATIVES_MAX + 1; i++) {
        snprintf(key, sizeof(key), "key %d", i);
        memory_note(&m, "hf", key, 60, &e);
    }
    cr_assert_eq(memory_check(&m, "hf", "key 0", &err), 0, "the oldest goes first");
    cr_assert_eq(memory_check(&m, "hf", "key 1", &err), -1);
    cr_assert_eq(memory_check(&m, "hf", key, &err), -1);
    memory_done(&m);
}

Test(memory, waits_as_long_as_the_upstream_asked)
{
    struct memory m;
    struct error err = ERROR_INIT, e = ERROR_INIT;
    cr_assert_eq(memory_init(&m, &err), 0);
    err_set(&e, ERR_RATE_LIMITED, "the Hub said 429");
    e.retry_after = 100000;
    memory_note(&m, "hf", "k", 60, &e);
    cr_assert_eq(memory_check(&m, "hf", "another key", &err), -1);
    cr_assert_eq(err.code, ERR_RATE_LIMITED);
    cr_assert(err.retry_after > 290 && err.retry_after <= 300, "%u", err.retry_after);
    cr_assert_eq(memory_check(&m, "other", "k", &err), 0, "another upstream is free");
    memory_done(&m);
}

/* ---- flights ---- */

struct crowd {
    struct flights flights;
    pthread_mutex_t lock; /* guards: arrived, open */
    pthread_cond_t moved;
    int arrived;
    bool open;
    atomic_int runs;
    int rc;
};

static int fly(void *ctx, struct outcome *ret, struct error *err)
{
    struct crowd *c = ctx;
    atomic_fetch_add(&c->runs, 1);
    pthread_mutex_lock(&c->lock);
    while (!c->open)
        pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
    ret->by_policy = c->rc < 0;
    memcpy(ret->result.commit, "abc", 4);
    return c->rc < 0 ? err_set(err, ERR_DENIED, "refused") : 0;
}

static void *passenger(void *arg)
{
    struct crowd *c = arg;
    struct outcome o = {0};
    struct error err = ERROR_INIT;
    pthread_mutex_lock(&c->lock);
    c->arrived++;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
    int rc = flight_run(&c->flights, "key", fly, c, &o, &err);
    cr_assert_eq(rc, c->rc);
    cr_assert_eq(o.by_policy, c->rc < 0);
    cr_assert_str_eq(o.result.commit, "abc");
    cr_assert_eq(err.code, c->rc < 0 ? ERR_DENIED : ERR_NONE);
    return NULL;
}

static void crowd(int rc)
{
    struct crowd c = {.rc = rc};
    struct error err = ERROR_INIT;
    pthread_t threads[16];
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.moved, NULL);
    cr_assert_eq(flights_init(&c.flights, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, passenger, &c), 0);
    pthread_mutex_lock(&c.lock);
    while (c.arrived < (int)ARRAY_LEN(threads))
        pthread_cond_wait(&c.moved, &c.lock);
    c.open = true;
    pthread_cond_broadcast(&c.moved);
    pthread_mutex_unlock(&c.lock);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    cr_assert(c.runs >= 1);
    cr_assert_null(c.flights.first);
    flights_done(&c.flights);
    pthread_cond_destroy(&c.moved);
    pthread_mutex_destroy(&c.lock);
}

Test(flights, share_a_success)
{
    crowd(0);
}

Test(flights, share_a_failure)
{
    crowd(-1);
}

/* ---- work ---- */

struct tally {
    atomic_int seen[100];
    size_t fails; /* indexes from here on fail */
};

static int count(void *ctx, size_t i, struct error *err)
{
    struct tally *t = ctx;
    atomic_fetch_add(&t->seen[i], 1);
    return i >= t->fails ? err_set(err, ERR_UPSTREAM, "%zu", i) : 0;
}

Test(work, runs_each_once)
{
    static const unsigned widths[] = {1, 2, 8, 200};
    for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
        struct tally t = {.fails = 100};
        struct error err = ERROR_INIT;
        cr_assert_eq(work_run(widths[w], 100, count, &t, &err), 0);
        for (size_t i = 0; i < 100; i++)
            cr_assert_eq(t.seen[i], 1);
    }
    struct error err = ERROR_INIT;
    cr_assert_eq(work_run(4, 0, count, NULL, &err), 0);
}

Test(work, stops_at_the_first_failure_and_reports_the_lowest)
{
    for (int round = 0; round < 50; round++) {
        struct tally t = {.fails = 10};
        struct error err = ERROR_INIT;
        cr_assert_eq(work_run(4, 100, count, &t, &err), -1);
        cr_assert_str_eq(err.text, "10");
        int after = 0;
        for (size_t i = 10; i < 100; i++)
            after += t.seen[i];
        cr_assert(after >= 1 && after <= 4, "%d jobs were begun after the failure", after);
    }
}

/* ---- headers ---- */

Test(header, next_read)
{
    cr_assert_eq(header_next(100, 50), 50);
    cr_assert_eq(header_next(100, 200), 200);
    cr_assert_eq(header_next(100, UINT64_MAX), 100 + HEADER_SLACK);
    cr_assert_eq(header_next(UINT64_MAX, UINT64_MAX), UINT64_MAX);
    cr_assert_eq(header_next(UINT64_MAX - 1, UINT64_MAX), UINT64_MAX);
}
