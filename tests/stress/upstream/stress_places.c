/* Many threads of three pools that share places: short and long uses, spare ones that are given up
 * when they are wanted, waits that end by deadline or flag, and at last a pool that is cancelled.
 * For ThreadSanitizer; checked besides: no more are out than there are, nobody is forgotten in the
 * line, and a pool that hangs with all it can get does not stop the others. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "upstream/http_private.h"

#define POOLS 3u
#define ALL 8u /* two of them are kept, but one for each pool: three */
#define OF_EACH 6u
#define THREADS 18u
#define ROUNDS 600u

static struct http_places *places;
static struct http_pool *pools[POOLS];
static atomic_uint out, out_of[POOLS], most;
static atomic_bool wrong;

struct worker {
    pthread_t thread;
    unsigned number, taken, busy, cancelled;
    unsigned dice;
};

static unsigned roll(struct worker *w)
{
    w->dice = w->dice * 1103515245u + 12345u;
    return w->dice >> 16;
}

static void complain(const char *what)
{
    if (!atomic_exchange(&wrong, true)) /* the rest follows from the first */
        fprintf(stderr, "%s\n", what);
}

static void use(struct worker *w, unsigned pool, bool spare, CURL *curl)
{
    unsigned n = atomic_fetch_add(&out, 1) + 1, before = atomic_load(&most);
    if (n > ALL || atomic_fetch_add(&out_of[pool], 1) + 1 > OF_EACH)
        complain("more are out than there are");
    while (n > before && !atomic_compare_exchange_weak(&most, &before, n)) {
    }
    for (unsigned i = roll(w) % 8; i && !(spare && http_pool_is_wanted(pools[pool])); i--)
        usleep(roll(w) % 100);
    atomic_fetch_sub(&out_of[pool], 1);
    atomic_fetch_sub(&out, 1);
    http_pool_give(pools[pool], curl, roll(w) % 4);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct error err = ERROR_INIT;
        CURL *curl = NULL;
        unsigned pool = (w->number + (i % 7 == 0)) % POOLS;
        bool spare = roll(w) % 3 == 0 && http_pool_has_spare(pools[pool]);
        uint64_t deadline = roll(w) % 5 ? 0 : clock_monotonic_ms() + roll(w) % 3;
        if (http_pool_take_until(pools[pool], spare, deadline, NULL, &curl, &err) == 0) {
            w->taken++;
            use(w, pool, spare, curl);
        } else if (err.code == ERR_CANCELLED) {
            w->cancelled++;
        } else if (err.code == ERR_BUSY && (spare || deadline)) {
            w->busy++;
        } else {
            complain(err.text);
        }
    }
    return NULL;
}

static void begin(struct worker *workers, unsigned first)
{
    for (unsigned i = first; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .dice = i + 1};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
}

static unsigned end(struct worker *workers, unsigned first, const char *what)
{
    unsigned taken = 0, busy = 0, cancelled = 0;
    for (unsigned i = first; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        taken += workers[i].taken;
        busy += workers[i].busy;
        cancelled += workers[i].cancelled;
    }
    printf("%s: taken %u busy %u cancelled %u, %u at once\n", what, taken, busy, cancelled,
           atomic_load(&most));
    if (taken + busy + cancelled != (THREADS - first) * ROUNDS)
        complain("a round is missing");
    if (places->line || places->blocked || atomic_load(&places->wanted))
        complain("somebody is left in the line");
    return taken;
}

/* The first pool's upstream hangs: all that it can get is taken, and more of its requests wait. */
static void hang(void)
{
    struct worker workers[THREADS];
    struct error err = ERROR_INIT;
    CURL *hung[OF_EACH];
    unsigned n = 0;
    while (n < OF_EACH && http_pool_take_until(pools[0], false, 1, NULL, &hung[n], &err) == 0)
        n++;
    atomic_store(&out, n);
    atomic_store(&out_of[0], n);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .dice = i + 1};
        if (i % POOLS != 0 && pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    /* Those of other pools ask it as well, each seventh time: so they wait until it is cancelled.
     */
    usleep(200000);
    http_pool_cancel(pools[0]);
    unsigned taken = 0;
    for (unsigned i = 0; i < THREADS; i++)
        if (i % POOLS != 0) {
            pthread_join(workers[i].thread, NULL);
            taken += workers[i].taken;
        }
    printf("one hangs with %u: the others took %u\n", n, taken);
    if (taken < THREADS * ROUNDS / 4 || n >= ALL)
        complain("a pool that hangs stops the others");
    atomic_store(&out, 0);
    atomic_store(&out_of[0], 0);
    while (n)
        http_pool_give(pools[0], hung[--n], false);
}

int main(void)
{
    struct http_options o = {.max_connections = OF_EACH};
    struct error err = ERROR_INIT;
    struct worker workers[THREADS];
    signal(SIGPIPE, SIG_IGN);
    if (http_places_new(ALL, POOLS, &places, &err) < 0)
        abort();
    for (unsigned i = 0; i < POOLS; i++) {
        if (http_pool_new(&o, &pools[i], &err) < 0)
            abort();
        http_pool_join(pools[i], places);
    }
    begin(workers, 0);
    if (end(workers, 0, "together") < THREADS * ROUNDS / 4)
        complain("too few got one");
    hang();
    begin(workers, 0);
    http_pool_cancel(pools[1]);
    end(workers, 0, "two are cancelled");
    if (http_places_taken(places) || places->idle > ALL)
        complain("places are lost");
    for (unsigned i = 0; i < POOLS; i++)
        http_pool_free(pools[i]);
    http_places_free(places);
    return atomic_load(&wrong);
}
