/* Threads that share flights, remember failures and split work, with no network: for TSan. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "upstream/import_private.h"

#define THREADS 8
#define ROUNDS 2000

static struct flights flights;
static struct memory memory;
static atomic_int running[4], failures;

static int fly(void *ctx, struct outcome *ret, struct error *err)
{
    int k = *(int *)ctx;
    /* The promise of a flight: one at a time for a key. */
    if (atomic_fetch_add(&running[k], 1) != 0)
        atomic_fetch_add(&failures, 1);
    snprintf(ret->result.commit, sizeof(ret->result.commit), "%d", k);
    ret->by_policy = k == 3;
    atomic_fetch_sub(&running[k], 1);
    return k == 3 ? err_set(err, ERR_NOT_FOUND, "key %d", k) : 0;
}

static void check(int k, int rc, const struct outcome *o, const struct error *err)
{
    char want[8];
    snprintf(want, sizeof(want), "%d", k);
    if (rc != (k == 3 ? -1 : 0) || strcmp(o->result.commit, want) != 0 ||
        o->by_policy != (k == 3) || (k == 3 && err->code != ERR_NOT_FOUND))
        atomic_fetch_add(&failures, 1);
}

static void *clients(void *arg)
{
    int seed = *(int *)arg;
    char key[32];
    for (int i = 0; i < ROUNDS; i++) {
        int k = (i + seed) % 4;
        struct outcome o = {0};
        struct error err = ERROR_INIT;
        snprintf(key, sizeof(key), "key %d", k);
        check(k, flight_run(&flights, key, fly, &k, &o, &err), &o, &err);
        err_set(&err, ERR_NOT_FOUND, "round %d", i);
        memory_note(&memory, "hf", key, 1, &err);
        memory_check(&memory, "hf", key, &err);
        if (i % 100 == 0) {
            err_set(&err, ERR_RATE_LIMITED, "slow down");
            err.retry_after = 1;
            memory_note(&memory, "other", key, 1, &err);
            memory_check(&memory, "other", key, &err);
        }
    }
    return NULL;
}

static int count(void *ctx, size_t i, struct error *err)
{
    atomic_int *seen = ctx;
    atomic_fetch_add(&seen[i], 1);
    return i == 90 ? err_set(err, ERR_UPSTREAM, "the last but nine") : 0;
}

static void split_work(void)
{
    for (unsigned width = 1; width <= 16; width++) {
        atomic_int seen[100] = {0};
        struct error err = ERROR_INIT;
        if (work_run(width, 100, count, seen, &err) != -1 || err.code != ERR_UPSTREAM)
            atomic_fetch_add(&failures, 1);
        for (size_t i = 0; i <= 90; i++)
            if (seen[i] != 1)
                atomic_fetch_add(&failures, 1);
    }
}

int main(void)
{
    struct error err = ERROR_INIT;
    pthread_t threads[THREADS];
    int seeds[THREADS];
    if (flights_init(&flights, &err) < 0 || memory_init(&memory, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = i;
        if (pthread_create(&threads[i], NULL, clients, &seeds[i]))
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    split_work();
    if (flights.first)
        atomic_fetch_add(&failures, 1);
    flights_done(&flights);
    memory_done(&memory);
    if (failures)
        fprintf(stderr, "%d promises were broken\n", failures);
    return failures ? 1 : 0;
}
