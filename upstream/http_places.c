/* Places for exchanges: so many of a pool, and so many of all pools together. Who finds none waits
 * in a line; what becomes free goes to the first in it who may have it, so that nobody who comes
 * later is quicker. A pool whose own places are taken holds up nobody behind it. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/http_private.h"

#define WAIT_SLICE_MS 500u /* how late a request's cancel flag is seen */

struct http_waiter {
    struct http_waiter *next;
    struct http_pool *pool;
    pthread_cond_t granted;
    bool has_place;
    bool asked_own, asked_common; /* counted in blocked of the pool, of all */
};

/* ---- all pools ---------------------------------------------------------------------------- */

void http_places_init(struct http_places *s, unsigned max, unsigned n_pools)
{
    *s = (struct http_places){.max = max ? max : UINT_MAX};
    pthread_mutex_init(&s->lock, NULL);
    cond_init_monotonic(&s->closed);
    if (max && n_pools && max / 2 >= n_pools)
        s->share = max / 4 >= n_pools ? max / 4 / n_pools : 1;
    s->reserved = s->share * n_pools;
}

void http_places_done(struct http_places *s)
{
    pthread_cond_destroy(&s->closed);
    pthread_mutex_destroy(&s->lock);
}

int http_places_new(unsigned max, unsigned n_pools, struct http_places **ret, struct error *err)
{
    struct http_places *s = malloc(sizeof(*s));
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for the connections to upstreams");
    http_places_init(s, max, n_pools);
    *ret = s;
    return 0;
}

void http_places_free(struct http_places *s)
{
    if (!s)
        return;
    http_places_done(s);
    free(s);
}

unsigned http_places_taken(struct http_places *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = s->taken;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void http_places_add(struct http_places *s, struct http_pool *p)
{
    pthread_mutex_lock(&s->lock);
    p->places = s;
    p->next = s->pools;
    s->pools = p;
    pthread_mutex_unlock(&s->lock);
}

void http_places_remove(struct http_pool *p)
{
    struct http_places *s = p->places;
    pthread_mutex_lock(&s->lock);
    while (p->closing)
        pthread_cond_wait(&s->closed, &s->lock);
    s->idle -= p->n_idle;
    for (struct http_pool **at = &s->pools; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&s->lock);
}

/* ---- who may have one (under the lock) ---------------------------------------------------- */

enum lack { LACK_NOTHING, LACK_OWN, LACK_COMMON };

static enum lack lack_of(const struct http_pool *p)
{
    const struct http_places *s = p->places;
    if (p->running >= p->max)
        return LACK_OWN;
    if (p->running < s->share)
        return LACK_NOTHING; /* what is reserved is free */
    return s->taken + s->reserved < s->max ? LACK_NOTHING : LACK_COMMON;
}

static void occupy(struct http_pool *p)
{
    struct http_places *s = p->places;
    s->taken++;
    if (++p->running <= s->share)
        s->reserved--;
}

/* Has one of those who have a spare place give it up, once for each that waits. */
static void ask(struct http_waiter *w, enum lack lack)
{
    struct http_pool *p = w->pool;
    if (lack == LACK_OWN && !w->asked_own) {
        w->asked_own = true;
        p->blocked++;
        atomic_fetch_add(&p->wanted, 1);
    } else if (lack == LACK_COMMON && !w->asked_common) {
        w->asked_common = true;
        p->places->blocked++;
        atomic_fetch_add(&p->places->wanted, 1);
    }
}

static void one_less(unsigned *blocked, atomic_uint *wanted)
{
    --*blocked;
    if (atomic_load(wanted) > *blocked) /* else somebody gives one up for it */
        atomic_store(wanted, *blocked);
}

static void leave_line(struct http_waiter *w)
{
    struct http_places *s = w->pool->places;
    for (struct http_waiter **at = &s->line; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    if (w->asked_own)
        one_less(&w->pool->blocked, &w->pool->wanted);
    if (w->asked_common)
        one_less(&s->blocked, &s->wanted);
}

/* After every change that may let somebody in. */
static void hand_out(struct http_places *s)
{
    for (struct http_waiter *w = s->line, *next; w; w = next) {
        next = w->next;
        enum lack lack = lack_of(w->pool);
        if (lack != LACK_NOTHING) {
            ask(w, lack);
            continue;
        }
        leave_line(w);
        occupy(w->pool);
        w->has_place = true;
        pthread_cond_signal(&w->granted);
    }
}

static void vacate(struct http_pool *p)
{
    struct http_places *s = p->places;
    s->taken--;
    if (p->running-- <= s->share)
        s->reserved++;
    hand_out(s);
}

static bool has_spare(const struct http_pool *p)
{
    const struct http_places *s = p->places;
    return lack_of(p) == LACK_NOTHING && !p->blocked && !s->blocked &&
           p->max - p->running > p->max / 4 && s->max - s->taken > s->max / 4;
}

static bool wait_in_line(struct http_pool *p, const atomic_bool *cancel, uint64_t end)
{
    struct http_places *s = p->places;
    struct http_waiter w = {.pool = p}, **at = &s->line;
    uint64_t now;
    cond_init_monotonic(&w.granted);
    while (*at)
        at = &(*at)->next;
    *at = &w;
    ask(&w, lack_of(p));
    while (!w.has_place && !http_pool_is_cancelled(p, cancel) && (now = clock_monotonic_ms()) < end)
        cond_wait_until(&w.granted, &s->lock,
                        end - now > WAIT_SLICE_MS ? now + WAIT_SLICE_MS : end);
    if (!w.has_place)
        leave_line(&w);
    pthread_cond_destroy(&w.granted);
    return w.has_place;
}

/* ---- taking and giving -------------------------------------------------------------------- */

/* The oldest handle of the pool that has most of those that wait for their next use. */
static CURL *take_idle(struct http_places *s, struct http_pool **ret)
{
    struct http_pool *most = s->pools;
    for (struct http_pool *p = s->pools; p; p = p->next)
        if (p->n_idle > most->n_idle)
            most = p;
    if (!most || !most->n_idle)
        return NULL;
    CURL *curl = most->idle[0];
    memmove(most->idle, most->idle + 1, --most->n_idle * sizeof(CURL *));
    s->idle--;
    most->closing++; /* it uses what the pool's handles share */
    *ret = most;
    return curl;
}

static void close_idle(CURL *curl, struct http_pool *of)
{
    struct http_places *s = of->places;
    curl_easy_cleanup(curl);
    pthread_mutex_lock(&s->lock);
    of->closing--;
    pthread_cond_broadcast(&s->closed);
    pthread_mutex_unlock(&s->lock);
}

static int none_free(const struct http_pool *p, enum lack lack, uint64_t waited_ms,
                     struct error *err)
{
    uint64_t s = waited_ms / 1000, tenth = waited_ms % 1000 / 100;
    if (lack == LACK_COMMON)
        return err_set(err, ERR_BUSY,
                       "no connection became free within %" PRIu64 ".%" PRIu64
                       " s: all %u to all upstreams together are in use or kept for other "
                       "upstreams (limits.upstream_connections)",
                       s, tenth, p->places->max);
    return err_set(err, ERR_BUSY,
                   "no connection became free within %" PRIu64 ".%" PRIu64
                   " s: all %u are in use (upstreams[].max_connections)",
                   s, tenth, p->max);
}

int http_place_take(struct http_pool *p, bool spare, uint64_t end_ms, const atomic_bool *cancel,
                    CURL **ret, struct error *err)
{
    struct http_places *s = p->places;
    struct http_pool *other = NULL;
    CURL *too_many = NULL;
    uint64_t start_ms = clock_monotonic_ms();
    pthread_mutex_lock(&s->lock);
    if (spare && !has_spare(p)) {
        pthread_mutex_unlock(&s->lock);
        return err_set(err, ERR_BUSY, "no connection is to spare");
    }
    bool has_place = lack_of(p) == LACK_NOTHING; /* then nobody waits for the same */
    if (has_place)
        occupy(p);
    else
        has_place = wait_in_line(p, cancel, end_ms);
    if (has_place && http_pool_is_cancelled(p, cancel)) {
        vacate(p);
        has_place = false;
    }
    if (has_place && p->n_idle) {
        *ret = p->idle[--p->n_idle];
        s->idle--;
    } else if (has_place && s->taken + s->idle > s->max) {
        too_many = take_idle(s, &other);
    }
    enum lack lack = has_place ? LACK_NOTHING : lack_of(p);
    pthread_mutex_unlock(&s->lock);
    if (too_many)
        close_idle(too_many, other);
    if (has_place)
        return 0;
    if (http_pool_is_cancelled(p, cancel))
        return err_set(err, ERR_CANCELLED, "cancelled");
    return none_free(p, lack, clock_monotonic_ms() - start_ms, err);
}

void http_place_give(struct http_pool *p, CURL *reusable)
{
    struct http_places *s = p->places;
    pthread_mutex_lock(&s->lock);
    if (reusable) {
        p->idle[p->n_idle++] = reusable; /* never more than max handles are out */
        s->idle++;
    }
    vacate(p);
    pthread_mutex_unlock(&s->lock);
}

void http_places_wake(struct http_pool *p)
{
    pthread_mutex_lock(&p->places->lock);
    for (struct http_waiter *w = p->places->line; w; w = w->next)
        if (w->pool == p)
            pthread_cond_signal(&w->granted);
    pthread_mutex_unlock(&p->places->lock);
}

bool http_pool_has_spare(struct http_pool *p)
{
    pthread_mutex_lock(&p->places->lock);
    bool spare = has_spare(p);
    pthread_mutex_unlock(&p->places->lock);
    return spare;
}

bool http_pool_is_wanted(struct http_pool *p)
{
    struct http_places *s = p->places;
    bool wanted = true;
    if (!atomic_load_explicit(&p->wanted, memory_order_relaxed) &&
        !atomic_load_explicit(&s->wanted, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&p->wanted))
        atomic_fetch_sub(&p->wanted, 1);
    else if (atomic_load(&s->wanted) && p->running > s->share)
        atomic_fetch_sub(&s->wanted, 1); /* below its share it would only be kept for the pool */
    else
        wanted = false;
    pthread_mutex_unlock(&s->lock);
    return wanted;
}
