#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "upstream/http_private.h"

#define DEFAULT_CONNECTIONS 16u
#define DEFAULT_CONNECT_TIMEOUT_S 10u
#define DEFAULT_STALL_TIMEOUT_S 30u
#define TIMEOUT_MAX_S 86400u
#define BACKOFF_FIRST_MS 100u
#define BACKOFF_MAX_MS 5000u
#define WAIT_SLICE_MS 500u /* how late a request's cancel flag is seen */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready = CURLE_FAILED_INIT;

static void init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void share_lock(CURL *curl, curl_lock_data data, curl_lock_access access, void *ctx)
{
    struct http_pool *p = ctx;
    (void)curl;
    (void)access;
    pthread_mutex_lock(&p->share_locks[data]);
}

static void share_unlock(CURL *curl, curl_lock_data data, void *ctx)
{
    struct http_pool *p = ctx;
    (void)curl;
    pthread_mutex_unlock(&p->share_locks[data]);
}

static int share_new(struct http_pool *p, struct error *err)
{
    for (unsigned i = 0; i < CURL_LOCK_DATA_LAST; i++)
        pthread_mutex_init(&p->share_locks[i], NULL);
    p->share = curl_share_init();
    if (!p->share || curl_share_setopt(p->share, CURLSHOPT_LOCKFUNC, share_lock) != CURLSHE_OK ||
        curl_share_setopt(p->share, CURLSHOPT_UNLOCKFUNC, share_unlock) != CURLSHE_OK ||
        curl_share_setopt(p->share, CURLSHOPT_USERDATA, p) != CURLSHE_OK ||
        curl_share_setopt(p->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
        curl_share_setopt(p->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK)
        return err_set(err, ERR_NOMEM, "libcurl's share could not be set up");
    return 0;
}

static int copy(const char *text, char **to)
{
    return !text || (*to = strdup(text)) ? 0 : -1;
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    if (value == 0)
        return fallback;
    return value < TIMEOUT_MAX_S ? value : TIMEOUT_MAX_S;
}

int http_pool_new(const struct http_options *o, struct http_pool **ret, struct error *err)
{
    pthread_once(&curl_once, init_curl);
    if (curl_ready != CURLE_OK)
        return err_set(err, ERR_INTERNAL, "libcurl cannot start: %s",
                       curl_easy_strerror(curl_ready));
    struct http_pool *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ERR_NOMEM, "out of memory for a connection pool");
    pthread_mutex_init(&p->lock, NULL);
    cond_init_monotonic(&p->cancelling);
    http_places_init(&p->own, 0, 0);
    http_places_add(&p->own, p);
    p->max = o->max_connections ? o->max_connections : DEFAULT_CONNECTIONS;
    p->connect_timeout_s = or_default(o->connect_timeout_s, DEFAULT_CONNECT_TIMEOUT_S);
    p->stall_timeout_s = or_default(o->stall_timeout_s, DEFAULT_STALL_TIMEOUT_S);
    p->idle = calloc(p->max, sizeof(*p->idle));
    p->proxy = strdup(o->proxy ? o->proxy : "");
    p->proxy_of = o->proxy_of;
    p->asked_to_wait = o->asked_to_wait;
    p->ctx = o->ctx;
    int rc = share_new(p, err);
    if (rc == 0 &&
        (!p->idle || !p->proxy || copy(o->ca_file, &p->ca_file) < 0 ||
         copy(o->client_cert, &p->client_cert) < 0 || copy(o->client_key, &p->client_key) < 0))
        rc = err_set(err, ERR_NOMEM, "out of memory for a connection pool");
    if (rc == 0 && p->ca_file)
        rc = http_ca_read(p, &p->ca, err);
    if (rc < 0) {
        http_pool_free(p);
        return -1;
    }
    *ret = p;
    return 0;
}

void http_pool_free(struct http_pool *p)
{
    if (!p)
        return;
    http_places_remove(p);
    while (p->idle && p->n_idle)
        curl_easy_cleanup(p->idle[--p->n_idle]);
    if (p->ca)
        http_ca_give(p, p->ca);
    curl_share_cleanup(p->share);
    for (unsigned i = 0; i < CURL_LOCK_DATA_LAST; i++)
        pthread_mutex_destroy(&p->share_locks[i]);
    http_places_done(&p->own);
    pthread_cond_destroy(&p->cancelling);
    pthread_mutex_destroy(&p->lock);
    free(p->idle);
    free(p->proxy);
    free(p->ca_file);
    free(p->client_cert);
    free(p->client_key);
    free(p);
}

void http_pool_join(struct http_pool *p, struct http_places *places)
{
    http_places_remove(p);
    http_places_add(places, p);
}

void http_pool_cancel(struct http_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->cancelled, true);
    pthread_cond_broadcast(&p->cancelling);
    pthread_mutex_unlock(&p->lock);
    http_places_wake(p);
}

uint64_t http_pool_bytes(const struct http_pool *p)
{
    return atomic_load(&p->bytes);
}

uint64_t http_pool_requests(const struct http_pool *p)
{
    return atomic_load(&p->requests);
}

uint64_t http_pool_errors(const struct http_pool *p)
{
    return atomic_load(&p->errors);
}

uint64_t http_pool_patience_ms(const struct http_pool *p)
{
    return (p->connect_timeout_s + (1 + HTTP_DRIP_TIMEOUTS) * p->stall_timeout_s) * 1000u;
}

bool http_pool_is_cancelled(const struct http_pool *p, const atomic_bool *cancel)
{
    return atomic_load(&p->cancelled) || (cancel && atomic_load(cancel));
}

static uint64_t backoff_ms(unsigned attempt)
{
    uint64_t ms = attempt < 6 ? BACKOFF_FIRST_MS << attempt : BACKOFF_MAX_MS;
    if (ms > BACKOFF_MAX_MS)
        ms = BACKOFF_MAX_MS;
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof(dice), 0) != (ssize_t)sizeof(dice))
        dice = (uint32_t)clock_monotonic_us();
    return ms + dice % (ms / 2 + 1);
}

int http_pool_backoff(struct http_pool *p, unsigned attempt, unsigned asked_s,
                      const atomic_bool *cancel, struct error *err)
{
    uint64_t end = clock_monotonic_ms() + (asked_s ? asked_s * 1000ull : backoff_ms(attempt)), now;
    pthread_mutex_lock(&p->lock);
    while (!http_pool_is_cancelled(p, cancel) && (now = clock_monotonic_ms()) < end) {
        uint64_t slice = now + WAIT_SLICE_MS;
        cond_wait_until(&p->cancelling, &p->lock, slice < end ? slice : end);
    }
    bool cancelled = http_pool_is_cancelled(p, cancel);
    pthread_mutex_unlock(&p->lock);
    return cancelled ? err_set(err, ERR_CANCELLED, "cancelled") : 0;
}

int http_pool_take_until(struct http_pool *p, bool spare, uint64_t deadline_ms,
                         const atomic_bool *cancel, CURL **ret, struct error *err)
{
    CURL *curl = NULL;
    uint64_t end_ms = clock_monotonic_ms() + p->stall_timeout_s * 1000;
    if (deadline_ms && deadline_ms < end_ms)
        end_ms = deadline_ms;
    if (http_place_take(p, spare, end_ms, cancel, &curl, err) < 0)
        return -1;
    if (!curl && (curl = curl_easy_init()) &&
        curl_easy_setopt(curl, CURLOPT_SHARE, p->share) != CURLE_OK) {
        curl_easy_cleanup(curl);
        curl = NULL;
    }
    if (!curl) {
        http_place_give(p, NULL);
        return err_set(err, ERR_NOMEM, "out of memory for a connection");
    }
    *ret = curl;
    return 0;
}

void http_pool_give(struct http_pool *p, CURL *curl, bool reusable)
{
    if (reusable)
        curl_easy_reset(curl); /* forgets the request with its token, keeps the connections */
    else
        curl_easy_cleanup(curl);
    http_place_give(p, reusable ? curl : NULL);
}
