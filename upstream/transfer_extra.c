/* Further connections of a transfer: for speed, as long as each raises the rate, and for readers
 * that want what the download would only get to later. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "upstream/transfer_private.h"

#define WORTH_LEFT (64ull << 20) /* less is done before it would pay */
#define WINDOW_MS 500u
#define TRIAL_MS 1000u   /* the new connections have to get going first */
#define GAIN_PERCENT 30u /* of what the new connections would bring at best */
#define SETTLED_MS 30000u
/* What is not held up by the wire is not helped by more of it: a connection whose thread works, or
 * waits for a processor, for so much of the time; whose bytes take so much of it to be written and
 * hashed; or that brings so many a second. */
#define BUSY_PERCENT 60u
#define FLUSH_PERCENT 40u
#define FAST (256ull << 20)
#define EXTRA_STRIKES 3u
#define PROGRESS_MIN (64u << 10)
#define WANTED_THREADS 4u
#define WANTED_TRIES 3u
#define NO_WANTS_MS 5000u

/* ---- threads ------------------------------------------------------------------------------ */

/* Under x->lock. The thread has the transfer for as long as it is counted. */
static bool start_thread(struct transfer *x, unsigned *kind, void *(*run)(void *))
{
    if (thread_detached(run, x, TRANSFER_STACK) != 0)
        return false;
    x->threads++;
    ++*kind;
    return true;
}

static void end_thread(struct transfer *x, unsigned *kind)
{
    pthread_mutex_lock(&x->lock);
    x->threads--;
    --*kind;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

void transfer_settle(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    x->n_wants = 0;
    x->no_wants_until_ms = UINT64_MAX;
    x->single = true;
    while (x->threads)
        pthread_cond_wait(&x->cond, &x->lock);
    pthread_mutex_unlock(&x->lock);
}

static bool claim(struct transfer *x, struct fetch *f)
{
    pthread_mutex_lock(&x->lock);
    bool some = !atomic_load(&x->halt) && transfer_claim(x, f) == CLAIM_SOME;
    pthread_mutex_unlock(&x->lock);
    return some;
}

static void unclaim(struct transfer *x, struct fetch *f)
{
    pthread_mutex_lock(&x->lock);
    transfer_unclaim(x, f);
    pthread_mutex_unlock(&x->lock);
}

/* ---- for speed ---------------------------------------------------------------------------- */

static void stay_single(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    x->single = true;
    transfer_give_back(x);
    pthread_mutex_unlock(&x->lock);
}

/* Whether to go on after what became of an exchange. The lead is the one who does not give up; here
 * an upstream that refuses is taken at its word. */
static bool extra_goes_on(struct fetch *f, enum outcome outcome, unsigned number, unsigned *strikes,
                          const struct error *err)
{
    struct transfer *x = f->x;
    if (outcome == OUT_PROGRESS && !f->unfit && !f->give_way) {
        *strikes = 0;
        return true;
    }
    if (f->unfit || outcome == OUT_FATAL || err->code == ERR_RATE_LIMITED || err->retry_after) {
        stay_single(x);
        return false;
    }
    if (f->give_way || err->code == ERR_BUSY || ++*strikes >= EXTRA_STRIKES)
        return false;
    struct error why = ERROR_INIT;
    if (outcome == OUT_RELOCATE)
        return transfer_relocate(x, number, &why) == 0;
    return http_pool_backoff(x->source.pool, *strikes - 1, 0, &x->halt, &why) == 0;
}

static void *extra_main(void *arg)
{
    struct transfer *x = arg;
    struct fetch f = {.x = x, .kind = FETCH_EXTRA, .buffer = malloc(TRANSFER_BUFFER)};
    unsigned strikes = 0;
    pthread_setname_np(pthread_self(), "extra");
    for (bool go_on = f.buffer != NULL; go_on && claim(x, &f);) {
        struct error err = ERROR_INIT;
        unsigned number = transfer_location_number(x);
        uint64_t before = f.at;
        enum outcome outcome = transfer_exchange(&f, &err);
        unclaim(x, &f);
        if (outcome == OUT_PROGRESS && f.at - before < PROGRESS_MIN && f.at < f.end)
            outcome = OUT_RETRY; /* an upstream that feeds us crumbs */
        go_on = extra_goes_on(&f, outcome, number, &strikes, &err);
    }
    free(f.buffer);
    pthread_mutex_lock(&x->lock);
    if (x->target > x->extras && x->extras) /* whoever ended was not wanted, or not worth it */
        x->target = x->extras;
    pthread_mutex_unlock(&x->lock);
    end_thread(x, &x->extras);
    return NULL;
}

/* How long this thread has worked, or could have, had it been given a processor: on a crowded
 * machine everything is slow, and looks like a slow wire. */
static uint64_t thread_work_us(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    uint64_t work_us = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
    _cleanup_close_ int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[80], *waited_ns = text; /* behind how long it ran; not every kernel has it */
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    (void)strtoull(text, &waited_ns, 10);
    return work_us + strtoull(waited_ns, NULL, 10) / 1000u;
}

/* Under x->lock. */
static void begin_window(struct transfer *x, const struct fetch *f, uint64_t now, uint64_t work_us)
{
    struct meter *m = &x->meter;
    m->since_ms = now;
    m->since_bytes = atomic_load_explicit(&x->received, memory_order_relaxed);
    m->since_work_us = work_us;
    m->since_flushed_us = f->flushed_us;
    m->connections = 1 + x->extras;
}

/* Under x->lock. True when the last growth did not pay: fewer from here on, for a while. */
static bool shrink(struct transfer *x, uint64_t rate, uint64_t now)
{
    struct meter *m = &x->meter;
    unsigned before = m->before;
    m->before = 0;
    if (!before || m->connections <= before)
        return false;
    uint64_t best = m->before_rate / before * (m->connections - before);
    if (rate >= m->before_rate + best * GAIN_PERCENT / 100)
        return false;
    x->target = before;
    m->settled_until_ms = now + SETTLED_MS;
    return true;
}

/* Under x->lock. As many again, so that a few windows are enough. */
static void grow(struct transfer *x, uint64_t rate)
{
    unsigned running = 1 + x->extras, more = running;
    if (more > x->source.max_connections - running)
        more = x->source.max_connections - running;
    x->meter.before = running;
    x->meter.before_rate = rate;
    if (running == 1)
        for (struct fetch *f = x->fetches; f; f = f->next)
            if (f->kind == FETCH_LEAD && f->end - f->at > WORTH_LEFT / 2)
                f->end = f->at + WORTH_LEFT / 4; /* it had asked for everything */
    while (more--)
        if (!start_thread(x, &x->extras, extra_main))
            break;
    x->target = 1 + x->extras;
}

/* Under x->lock. */
static bool may_grow(const struct transfer *x, uint64_t now)
{
    unsigned running = 1 + x->extras;
    return x->ranges && !x->single && x->has_slot && running < x->source.max_connections &&
           running >= x->target && now >= x->meter.settled_until_ms &&
           x->size - x->hashed > WORTH_LEFT && x->state < TRANSFER_DONE && !atomic_load(&x->halt) &&
           http_pool_has_spare(x->source.pool);
}

enum window { WINDOW_NONE, WINDOW_OPEN, WINDOW_OVER };

/* Under x->lock. */
static enum window look_at_window(const struct transfer *x, uint64_t now)
{
    const struct meter *m = &x->meter;
    if (!m->since_ms || m->connections != 1 + x->extras)
        return WINDOW_NONE;
    return now - m->since_ms < (m->before ? TRIAL_MS : WINDOW_MS) ? WINDOW_OPEN : WINDOW_OVER;
}

/* Under x->lock, at the end of a window. */
static void judge_window(struct transfer *x, const struct fetch *f, uint64_t now, uint64_t work_us)
{
    struct meter *m = &x->meter;
    uint64_t took = now - m->since_ms, percent_us = took * 10u;
    uint64_t rate =
        (atomic_load_explicit(&x->received, memory_order_relaxed) - m->since_bytes) * 1000u / took;
    bool busy = work_us - m->since_work_us >= percent_us * BUSY_PERCENT ||
                f->flushed_us - m->since_flushed_us >= percent_us * FLUSH_PERCENT;
    bool fast = rate / (1 + x->extras) >= FAST;
    if (!shrink(x, rate, now) && !busy && !fast && may_grow(x, now))
        grow(x, rate);
}

void transfer_measure(struct fetch *f)
{
    struct transfer *x = f->x;
    if (f->kind != FETCH_LEAD || x->source.max_connections < 2 || x->size <= WORTH_LEFT)
        return;
    uint64_t now = clock_monotonic_ms();
    pthread_mutex_lock(&x->lock);
    enum window window = look_at_window(x, now);
    pthread_mutex_unlock(&x->lock);
    if (window == WINDOW_OPEN)
        return;
    uint64_t work_us = thread_work_us();
    pthread_mutex_lock(&x->lock);
    if (look_at_window(x, now) == WINDOW_OVER)
        judge_window(x, f, now, work_us);
    begin_window(x, f, now, work_us);
    pthread_mutex_unlock(&x->lock);
}

/* ---- for readers -------------------------------------------------------------------------- */

/* 0 when the claim has been brought. */
static int bring(struct fetch *f)
{
    struct transfer *x = f->x;
    for (unsigned tries = 0; tries < WANTED_TRIES && f->at < transfer_claim_end(f); tries++) {
        struct error err = ERROR_INIT;
        unsigned number = transfer_location_number(x);
        enum outcome outcome = transfer_exchange(f, &err);
        if (f->unfit || outcome == OUT_FATAL)
            return -1;
        if (outcome == OUT_PROGRESS)
            continue;
        if (outcome == OUT_RELOCATE && transfer_relocate(x, number, &err) < 0)
            return -1;
        if (outcome == OUT_RETRY && http_pool_backoff(x->source.pool, tries, 0, &x->halt, &err) < 0)
            return -1;
    }
    return f->at < transfer_claim_end(f) ? -1 : 0;
}

static void *wanted_main(void *arg)
{
    struct transfer *x = arg;
    struct fetch f = {.x = x, .kind = FETCH_WANTED, .buffer = malloc(TRANSFER_BUFFER)};
    pthread_setname_np(pthread_self(), "wanted");
    while (f.buffer && claim(x, &f)) {
        int rc = bring(&f);
        unclaim(x, &f);
        if (rc < 0) { /* the readers get it from the lead */
            pthread_mutex_lock(&x->lock);
            x->no_wants_until_ms = clock_monotonic_ms() + NO_WANTS_MS;
            x->n_wants = 0;
            pthread_mutex_unlock(&x->lock);
        }
    }
    free(f.buffer);
    end_thread(x, &x->wanted);
    return NULL;
}

void transfer_serve_wants(struct transfer *x)
{
    /* Without a slot the transfer's own thread has nothing else to do. */
    if (x->n_wants && x->has_slot && x->writer && x->wanted < WANTED_THREADS &&
        !atomic_load(&x->halt))
        start_thread(x, &x->wanted, wanted_main);
}

void transfer_want(struct transfer *x, uint64_t first, uint64_t end)
{
    if (x->state >= TRANSFER_DONE || clock_monotonic_ms() < x->no_wants_until_ms ||
        x->n_wants == TRANSFER_WANTS)
        return;
    for (unsigned i = 0; i < x->n_wants; i++)
        if (x->wants[i].first <= first && first < x->wants[i].end)
            return;
    x->wants[x->n_wants++] = (struct span){.first = first, .end = end};
    transfer_serve_wants(x);
}
