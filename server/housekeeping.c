#include "server/housekeeping.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "storage/store.h"

#define EVERY_MS 60000u /* at most; sooner where sessions expire sooner */
#define PER_EXPIRY 4u   /* rounds in the time that a session may be idle */

struct housekeeping {
    struct store *store;
    uint64_t expire_s, every_ms;
    pthread_t thread;
    pthread_mutex_t lock; /* guards: stopping */
    pthread_cond_t stop;
    bool stopping;
};

static void expire_uploads(struct housekeeping *h)
{
    struct error err = ERROR_INIT;
    uint64_t n = 0, bytes = 0;
    if (uploads_expire(h->store, h->expire_s, &n, &bytes, &err) < 0)
        log_event(LOG_WARN, "uploads_expired", LOG_S("error", err_name(err.code)),
                  LOG_S("text", err.text));
    else if (n)
        log_event(LOG_INFO, "uploads_expired", LOG_N("uploads", n), LOG_N("bytes", bytes),
                  LOG_N("idle_s", h->expire_s));
}

static void *keep_house(void *arg)
{
    struct housekeeping *h = arg;
    pthread_setname_np(pthread_self(), "housekeeping");
    pthread_mutex_lock(&h->lock);
    while (!h->stopping) {
        pthread_mutex_unlock(&h->lock);
        expire_uploads(h);
        uint64_t deadline = clock_monotonic_ms() + h->every_ms;
        pthread_mutex_lock(&h->lock);
        while (!h->stopping && cond_wait_until(&h->stop, &h->lock, deadline))
            ;
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void release(struct housekeeping *h)
{
    pthread_cond_destroy(&h->stop);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

int housekeeping_start(struct store *s, uint64_t uploads_expire_s, struct housekeeping **ret,
                       struct error *err)
{
    struct housekeeping *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory");
    h->store = s;
    h->expire_s = uploads_expire_s;
    h->every_ms = EVERY_MS;
    if (uploads_expire_s * 1000 / PER_EXPIRY < EVERY_MS)
        h->every_ms = uploads_expire_s ? uploads_expire_s * 1000 / PER_EXPIRY : 1000 / PER_EXPIRY;
    if (pthread_mutex_init(&h->lock, NULL) != 0) {
        free(h);
        return err_set(err, ERR_NOMEM, "make a lock");
    }
    if (cond_init_monotonic(&h->stop) < 0) {
        pthread_mutex_destroy(&h->lock);
        free(h);
        return err_set(err, ERR_NOMEM, "make a condition variable");
    }
    if (pthread_create(&h->thread, NULL, keep_house, h) != 0) {
        release(h);
        return err_set(err, ERR_NOMEM, "start the housekeeping thread");
    }
    *ret = h;
    return 0;
}

void housekeeping_stop(struct housekeeping *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_cond_broadcast(&h->stop);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    release(h);
}
