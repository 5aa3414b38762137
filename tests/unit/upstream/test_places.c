#include <criterion/criterion.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "upstream/http_private.h"

/* Several pools that share places. Nothing is sent anywhere: places are taken and given. */
struct world {
    struct http_places *places;
    struct http_pool *pools[3];
    unsigned n;
};

static struct world world(unsigned max, unsigned n, unsigned of_each, unsigned stall_s)
{
    struct world w = {.n = n};
    struct error err = ERROR_INIT;
    struct http_options o = {.max_connections = of_each, .stall_timeout_s = stall_s};
    cr_assert_eq(http_places_new(max, n, &w.places, &err), 0, "%s", err.text);
    for (unsigned i = 0; i < n; i++) {
        cr_assert_eq(http_pool_new(&o, &w.pools[i], &err), 0, "%s", err.text);
        http_pool_join(w.pools[i], w.places);
    }
    return w;
}

static void end(struct world *w)
{
    cr_assert_eq(http_places_taken(w->places), 0);
    for (unsigned i = 0; i < w->n; i++)
        http_pool_free(w->pools[i]);
    cr_assert(!w->places->idle && !w->places->pools && !w->places->line);
    http_places_free(w->places);
}

static CURL *take(struct http_pool *p)
{
    struct error err = ERROR_INIT;
    CURL *curl = NULL;
    cr_assert_eq(http_pool_take(p, false, NULL, &curl, &err), 0, "%s", err.text);
    return curl;
}

/* Waits no time. */
static bool cannot_take(struct http_pool *p, struct error *err)
{
    CURL *curl = NULL;
    if (http_pool_take_until(p, false, 1, NULL, &curl, err) == 0) {
        http_pool_give(p, curl, true);
        return false;
    }
    return err->code == ERR_BUSY;
}

struct taker {
    pthread_t thread;
    struct http_pool *pool;
    uint64_t deadline_ms;
    atomic_bool cancel;
    CURL *curl;
    struct error err;
};

static void *taker_main(void *arg)
{
    struct taker *t = arg;
    http_pool_take_until(t->pool, false, t->deadline_ms, &t->cancel, &t->curl, &t->err);
    return NULL;
}

static unsigned waiting(struct http_places *s)
{
    unsigned n = 0;
    pthread_mutex_lock(&s->lock);
    for (const void *const *w = (const void *)s->line; w; w = *w) /* next comes first */
        n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Returns when it waits. */
static void begin(struct world *w, struct taker *t, unsigned pool)
{
    unsigned before = waiting(w->places);
    t->pool = w->pools[pool];
    cr_assert_eq(pthread_create(&t->thread, NULL, taker_main, t), 0);
    while (waiting(w->places) == before)
        sched_yield();
}

static void finish(struct taker *t)
{
    pthread_join(t->thread, NULL);
    cr_assert(t->curl, "%s", t->err.text);
}

Test(places, bound_all_pools_together, .timeout = 30)
{
    struct world w = world(4, 3, 4, 30);
    struct error err = ERROR_INIT;
    CURL *a[2], *b;
    cr_assert_eq(w.places->share, 0, "too few to keep some");
    a[0] = take(w.pools[0]);
    a[1] = take(w.pools[0]);
    b = take(w.pools[1]);
    CURL *c = take(w.pools[2]);
    cr_assert_eq(http_places_taken(w.places), 4);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert(cannot_take(w.pools[i], &err));
        cr_assert(strstr(err.text, "all 4 to all upstreams together are in use") &&
                      strstr(err.text, "(limits.upstream_connections)"),
                  "%s", err.text);
    }
    http_pool_give(w.pools[1], b, true);
    c = (http_pool_give(w.pools[2], c, false), take(w.pools[0]));
    http_pool_give(w.pools[0], c, true);
    http_pool_give(w.pools[0], a[0], true);
    http_pool_give(w.pools[0], a[1], true);
    end(&w);
}

Test(places, a_pool_that_takes_all_it_can_leaves_others_their_share, .timeout = 30)
{
    struct world w = world(24, 3, 100, 30); /* 6 are kept, 2 for each */
    struct error err = ERROR_INIT;
    CURL *a[20], *b[2], *c[2];
    for (unsigned i = 0; i < 20; i++)
        a[i] = take(w.pools[0]);
    cr_assert(cannot_take(w.pools[0], &err));
    cr_assert(strstr(err.text, "kept for other upstreams"), "%s", err.text);
    for (unsigned i = 0; i < 2; i++) {
        b[i] = take(w.pools[1]);
        c[i] = take(w.pools[2]);
    }
    cr_assert(cannot_take(w.pools[1], &err) && cannot_take(w.pools[2], &err));
    cr_assert_eq(http_places_taken(w.places), 24);
    http_pool_give(w.pools[1], b[1], true);
    cr_assert(cannot_take(w.pools[0], &err), "it is kept for the one that gave it");
    b[1] = take(w.pools[1]);
    http_pool_give(w.pools[0], a[19], true);
    a[19] = take(w.pools[2]); /* what was nobody's share */
    http_pool_give(w.pools[2], a[19], true);
    for (unsigned i = 0; i < 19; i++)
        http_pool_give(w.pools[0], a[i], true);
    for (unsigned i = 0; i < 2; i++) {
        http_pool_give(w.pools[1], b[i], true);
        http_pool_give(w.pools[2], c[i], true);
    }
    cr_assert_eq(w.places->reserved, 6);
    end(&w);
}

Test(places, go_to_who_came_first, .timeout = 30)
{
    struct world w = world(1, 2, 4, 30);
    struct taker t[4] = {0};
    CURL *held = take(w.pools[0]);
    begin(&w, &t[0], 1);
    begin(&w, &t[1], 0);
    begin(&w, &t[2], 1);
    begin(&w, &t[3], 0);
    http_pool_give(w.pools[0], held, true);
    for (unsigned i = 0; i < 4; i++) {
        finish(&t[i]);
        cr_assert_eq(waiting(w.places), 3 - i);
        http_pool_give(t[i].pool, t[i].curl, true);
    }
    end(&w);
}

Test(places, who_waits_for_its_own_pool_holds_up_nobody, .timeout = 30)
{
    struct world w = world(8, 2, 1, 30);
    struct taker t = {0};
    CURL *held = take(w.pools[0]);
    begin(&w, &t, 0);
    http_pool_give(w.pools[1], take(w.pools[1]), true);
    cr_assert_eq(waiting(w.places), 1);
    http_pool_give(w.pools[0], held, true);
    finish(&t);
    http_pool_give(w.pools[0], t.curl, true);
    end(&w);
}

Test(places, waits_end_by_deadline_and_cancel, .timeout = 30)
{
    struct world w = world(1, 2, 4, 30);
    struct taker late = {.deadline_ms = clock_monotonic_ms() + 200}, flagged = {0}, ended = {0};
    CURL *held = take(w.pools[0]);
    begin(&w, &late, 1);
    pthread_join(late.thread, NULL);
    cr_assert(!late.curl && late.err.code == ERR_BUSY && strstr(late.err.text, "within 0."), "%s",
              late.err.text);
    begin(&w, &flagged, 1);
    begin(&w, &ended, 1);
    atomic_store(&flagged.cancel, true);
    pthread_join(flagged.thread, NULL);
    cr_assert(!flagged.curl && flagged.err.code == ERR_CANCELLED);
    http_pool_cancel(w.pools[1]);
    pthread_join(ended.thread, NULL);
    cr_assert(!ended.curl && ended.err.code == ERR_CANCELLED);
    cr_assert(!w.places->blocked && !atomic_load(&w.places->wanted) && !waiting(w.places));
    http_pool_give(w.pools[0], held, true);
    http_pool_give(w.pools[0], take(w.pools[0]), true);
    end(&w);
}

Test(places, spare_ones_are_given_up_to_who_waits_for_any, .timeout = 30)
{
    struct world w = world(8, 2, 8, 30); /* one is kept for each */
    struct error err = ERROR_INIT;
    struct taker t = {0};
    CURL *a[7], *none = NULL;
    for (unsigned i = 0; i < 6; i++) {
        cr_assert(http_pool_has_spare(w.pools[0]), "%u are taken", i);
        a[i] = take(w.pools[0]);
    }
    cr_assert(!http_pool_has_spare(w.pools[0]), "a quarter of all is free");
    cr_assert(!http_pool_has_spare(w.pools[1]), "a quarter of all is free");
    cr_assert(http_pool_take(w.pools[1], true, NULL, &none, &err) < 0 && err.code == ERR_BUSY);
    a[6] = take(w.pools[0]);
    CURL *b = take(w.pools[1]);
    begin(&w, &t, 1);
    cr_assert(!http_pool_is_wanted(w.pools[1]), "its only place would only be kept for it");
    cr_assert(http_pool_is_wanted(w.pools[0]));
    cr_assert(!http_pool_is_wanted(w.pools[0]), "one waits, one is asked");
    http_pool_give(w.pools[0], a[6], true);
    finish(&t);
    cr_assert(!http_pool_is_wanted(w.pools[0]) && !http_pool_has_spare(w.pools[0]));
    http_pool_give(w.pools[1], t.curl, true);
    http_pool_give(w.pools[1], b, true);
    for (unsigned i = 0; i < 6; i++)
        http_pool_give(w.pools[0], a[i], true);
    cr_assert(http_pool_has_spare(w.pools[0]) && http_pool_has_spare(w.pools[1]));
    end(&w);
}

/* A place given up for one may go to another who came first; then one more is asked for. */
Test(places, who_comes_away_empty_asks_again, .timeout = 30)
{
    struct world w = world(3, 2, 2, 30);
    struct taker first = {0}, second = {0};
    CURL *a[2] = {take(w.pools[0]), take(w.pools[0])}, *b = take(w.pools[1]);
    begin(&w, &first, 1);  /* wants any */
    begin(&w, &second, 0); /* wants one of its pool's */
    cr_assert(http_pool_is_wanted(w.pools[0]), "for the second");
    http_pool_give(w.pools[0], a[0], true); /* the first has it */
    finish(&first);
    cr_assert_eq(waiting(w.places), 1);
    cr_assert(http_pool_is_wanted(w.pools[1]), "any would do now");
    cr_assert(!http_pool_is_wanted(w.pools[1]) && !http_pool_is_wanted(w.pools[0]));
    http_pool_give(w.pools[1], b, true);
    finish(&second);
    http_pool_give(w.pools[1], first.curl, true);
    http_pool_give(w.pools[0], second.curl, true);
    http_pool_give(w.pools[0], a[1], true);
    end(&w);
}

Test(places, connections_that_wait_make_room, .timeout = 30)
{
    struct world w = world(4, 2, 4, 30); /* one is kept for each */
    CURL *a[3], *b[3];
    for (unsigned i = 0; i < 3; i++)
        a[i] = take(w.pools[0]);
    for (unsigned i = 0; i < 3; i++)
        http_pool_give(w.pools[0], a[i], true);
    cr_assert_eq(w.pools[0]->n_idle, 3);
    for (unsigned i = 0; i < 3; i++) {
        b[i] = take(w.pools[1]);
        cr_assert_leq(w.places->taken + w.places->idle, 4);
    }
    cr_assert_eq(w.pools[0]->n_idle, 1);
    cr_assert_eq(w.pools[0]->idle[0], a[2], "the oldest went first");
    for (unsigned i = 0; i < 3; i++)
        http_pool_give(w.pools[1], b[i], true);
    cr_assert_eq(w.places->idle, 4);
    cr_assert_eq(take(w.pools[1]), b[2], "its own are used again");
    http_pool_give(w.pools[1], b[2], false);
    cr_assert_eq(w.places->idle, 3);
    end(&w);
}

Test(places, are_without_a_bound_for_a_pool_by_itself)
{
    struct http_options o = {.max_connections = 3};
    struct error err = ERROR_INIT;
    struct http_pool *p = NULL;
    CURL *places[3];
    cr_assert_eq(http_pool_new(&o, &p, &err), 0);
    for (unsigned i = 0; i < 3; i++)
        places[i] = take(p);
    cr_assert(cannot_take(p, &err) && strstr(err.text, "upstreams[].max_connections"));
    for (unsigned i = 0; i < 3; i++)
        http_pool_give(p, places[i], true);
    cr_assert_eq(p->n_idle, 3);
    http_pool_free(p);
}
