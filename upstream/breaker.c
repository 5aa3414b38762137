#include "upstream/breaker.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "upstream/http.h"

#define DEFAULT_THRESHOLD 5u
#define PAUSE_FIRST_MS 1000u
#define PAUSE_MAX_MS 60000u

struct breaker {
    char *name;
    unsigned threshold;

    pthread_mutex_t lock; /* guards: all below */
    bool open;
    bool asked;        /* open for as long as the upstream asked for, which only it can shorten */
    unsigned failures; /* in a row */
    uint64_t pause_ms; /* of the latest opening without jitter; 0 = the next one is the first */
    uint64_t until_ms; /* when a trial may pass */
    bool trying;       /* a trial is under way ... */
    uint64_t tried_ms; /* ... since then */
    uint64_t opened, refused;
    struct error why; /* the latest failure */
};

int breaker_new(const char *name, unsigned threshold, struct breaker **ret, struct error *err)
{
    struct breaker *b = calloc(1, sizeof(*b));
    if (!b || !(b->name = strdup(name))) {
        free(b);
        return err_set(err, ERR_NOMEM, "out of memory for a circuit breaker");
    }
    b->threshold = threshold ? threshold : DEFAULT_THRESHOLD;
    pthread_mutex_init(&b->lock, NULL);
    *ret = b;
    return 0;
}

void breaker_free(struct breaker *b)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->lock);
    free(b->name);
    free(b);
}

/* A quarter of it at the most is taken away, so that many instances do not try together. */
static uint64_t jittered(uint64_t ms)
{
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof(dice), 0) != (ssize_t)sizeof(dice))
        dice = 0;
    return ms - dice % (ms / 4 + 1);
}

/* The next pause is twice the last. */
static void open_for_a_pause(struct breaker *b, uint64_t now_ms)
{
    b->pause_ms = b->pause_ms == 0 ? PAUSE_FIRST_MS : b->pause_ms * 2;
    if (b->pause_ms > PAUSE_MAX_MS)
        b->pause_ms = PAUSE_MAX_MS;
    b->until_ms = now_ms + jittered(b->pause_ms);
    b->asked = false;
}

static int refuse(struct breaker *b, uint64_t now_ms, struct error *err)
{
    uint64_t left_ms = b->until_ms > now_ms ? b->until_ms - now_ms : 0;
    unsigned left_s = (unsigned)((left_ms + 999) / 1000);
    b->refused++;
    /* While a trial runs nobody knows; its end is worth a short wait. */
    if (left_s == 0)
        left_s = 1;
    err_set(err, ERR_UPSTREAM, "%s is not asked for the next %u s after this: %s", b->name, left_s,
            b->why.text);
    if (err)
        err->retry_after = left_s;
    return -1;
}

int breaker_enter(struct breaker *b, uint64_t now_ms, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    if (b->open) {
        /* A trial that has told nothing for so long must not keep everybody out for ever. */
        bool trying = b->trying && now_ms < b->tried_ms + PAUSE_MAX_MS;
        if (now_ms < b->until_ms || trying) {
            rc = refuse(b, now_ms, err);
        } else {
            b->trying = true;
            b->tried_ms = now_ms;
        }
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static void succeeded(struct breaker *b)
{
    /* Answers to requests that were sent before come in while it is open, too: that they come
     * proves that the upstream lives, but not that it wants more requests. */
    if (b->open && b->asked && !b->trying)
        return;
    b->open = b->trying = b->asked = false;
    b->failures = 0;
    b->pause_ms = 0;
}

/* Until when the upstream wants to be left alone; 0: it did not say. One answer must not shut it
 * out for a day. */
static uint64_t asked_until_ms(uint64_t now_ms, const struct error *why)
{
    unsigned longest =
        why->code == ERR_RATE_LIMITED ? HTTP_WAIT_LIMITED_MAX_S : HTTP_WAIT_FAILED_MAX_S;
    unsigned s = why->retry_after < longest ? why->retry_after : longest;
    return s ? now_ms + s * 1000ull : 0;
}

static void failed(struct breaker *b, uint64_t now_ms, const struct error *why)
{
    bool was_open = b->open;
    uint64_t asked_until = asked_until_ms(now_ms, why);
    b->why = *why;
    if (b->failures < b->threshold)
        b->failures++;
    if (was_open && !b->trying) {
        /* One that was sent before it opened: no news, unless it brings a longer wait. */
        if (asked_until > b->until_ms) {
            b->until_ms = asked_until;
            b->asked = true;
        }
        return;
    }
    if (!was_open && b->failures < b->threshold && why->code != ERR_TIMEOUT && !asked_until)
        return;
    b->open = true;
    b->trying = false;
    b->opened += !was_open;
    if (asked_until) {
        b->until_ms = asked_until;
        b->asked = true;
    } else {
        open_for_a_pause(b, now_ms);
    }
}

void breaker_success(struct breaker *b)
{
    pthread_mutex_lock(&b->lock);
    succeeded(b);
    pthread_mutex_unlock(&b->lock);
}

void breaker_failure(struct breaker *b, uint64_t now_ms, const struct error *why)
{
    pthread_mutex_lock(&b->lock);
    switch (why->code) {
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_RATE_LIMITED:
        failed(b, now_ms, why);
        break;
    case ERR_NOT_FOUND:
    case ERR_DENIED:
    case ERR_UNAUTHORIZED:
    case ERR_DIGEST_MISMATCH:
        succeeded(b); /* it was reached, and it answered */
        break;
    default: /* our own trouble says nothing about it */
        b->trying = false;
        break;
    }
    pthread_mutex_unlock(&b->lock);
}

void breaker_abandon(struct breaker *b)
{
    pthread_mutex_lock(&b->lock);
    b->trying = false;
    pthread_mutex_unlock(&b->lock);
}

void breaker_stats(struct breaker *b, uint64_t now_ms, struct breaker_stats *ret)
{
    pthread_mutex_lock(&b->lock);
    ret->state = !b->open               ? BREAKER_CLOSED
                 : now_ms < b->until_ms ? BREAKER_OPEN
                                        : BREAKER_HALF_OPEN;
    ret->opened = b->opened;
    ret->refused = b->refused;
    pthread_mutex_unlock(&b->lock);
}
