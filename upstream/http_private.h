/* What http*.c share: the pool, and what an answer's header says. For them and their tests, and for
 * nobody else.
 */
#ifndef WB_UPSTREAM_HTTP_PRIVATE_H
#define WB_UPSTREAM_HTTP_PRIVATE_H

#include <curl/curl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "upstream/http.h"

/* All header bytes of one exchange, interim answers included. */
#define HTTP_HEADER_MAX (256u << 10)
/* Error bodies are only read for their text. */
#define HTTP_ERROR_BODY_MAX (64u << 10)
/* Longer waits are not told apart. */
#define HTTP_RETRY_AFTER_MAX 86400u
/* An answer that drips must not hold its place for ever: so many stall timeouts long, it has to
 * bring so many bytes a second. */
#define HTTP_DRIP_TIMEOUTS 4u
#define HTTP_DRIP_BYTES_PER_S 1024u

/* ---- certificates (http_ca.c) ---------------------------------------------------------------- */

/* The authorities that count; never changed once it is there. */
struct http_ca {
    unsigned refs;     /* under the pool's lock */
    struct stat was;   /* ca_file, before it was read */
    struct strbuf pem; /* the system's authorities and ca_file's */
};
/* With ca_file set; *ret is a reference of the caller's. */
int http_ca_read(const struct http_pool *p, struct http_ca **ret, struct error *err);
/* What counts now: ca_file is looked at once a second. NULL: no ca_file, the default counts. */
struct http_ca *http_ca_take(struct http_pool *p);
void http_ca_give(struct http_pool *p, struct http_ca *ca);

/* ---- places (http_places.c) ------------------------------------------------------------------ */

struct http_waiter;

/* Each pool has its own, without a bound, until it joins others. A pool may always have `share`
 * places, whatever the others do, so that an upstream that hangs takes nobody else's last ones. */
struct http_places {
    pthread_mutex_t lock; /* guards: all here, and of each pool what is said to be */
    unsigned max, share;
    unsigned taken;           /* exchanges that run */
    unsigned reserved;        /* free ones that are kept for pools below their share */
    unsigned idle;            /* handles of all pools that are kept for their next use */
    unsigned blocked;         /* who waits for a common place */
    atomic_uint wanted;       /* common places that holders of spare ones are to give up; changed
                                 under the lock, looked at without */
    struct http_waiter *line; /* in order of arrival */
    struct http_pool *pools;
    pthread_cond_t closed; /* a pool's closing went down */
};
/* max: 0 = no bound. For n_pools that will be added; 0 = nothing is reserved. */
void http_places_init(struct http_places *s, unsigned max, unsigned n_pools);
void http_places_done(struct http_places *s);
void http_places_add(struct http_places *s, struct http_pool *p);
void http_places_remove(struct http_pool *p);
/* Those who wait look at whether they are cancelled. */
void http_places_wake(struct http_pool *p);
/* With a used handle where there is one, else *ret is left as it is. */
int http_place_take(struct http_pool *p, bool spare, uint64_t end_ms, const atomic_bool *cancel,
                    CURL **ret, struct error *err);
void http_place_give(struct http_pool *p, CURL *reusable);

/* ---- the pool (http_pool.c) ------------------------------------------------------------------ */

struct http_pool {
    uint64_t connect_timeout_s, stall_timeout_s;
    char *proxy;
    int (*proxy_of)(bool is_https, const char *host, unsigned port, char **ret, struct error *err);
    void (*asked_to_wait)(void *ctx, const char *url, const struct error *why);
    void *ctx;
    char *ca_file, *client_cert, *client_key; /* each NULL = none */
    atomic_bool cancelled;
    atomic_uint_least64_t bytes, requests, errors;
    /* Name look-ups and TLS sessions; sharing connections between threads is not supported. */
    CURLSH *share;
    pthread_mutex_t share_locks[CURL_LOCK_DATA_LAST]; /* guards: what libcurl keeps in share */

    pthread_mutex_t lock; /* guards: ca, ca_looked_ms, ca's refs */
    struct http_ca *ca;   /* NULL = no ca_file */
    uint64_t ca_looked_ms;
    pthread_cond_t cancelling; /* cancelled */

    unsigned max;
    struct http_places own, *places;
    /* Under places->lock: */
    struct http_pool *next;
    unsigned running;
    unsigned blocked;   /* who waits for one of this pool's places */
    atomic_uint wanted; /* places of this pool, as those of all */
    CURL **idle;        /* handles keep their connections between uses */
    unsigned n_idle;
    unsigned closing; /* handles that are closed to make room for another pool's */
};

bool http_pool_is_cancelled(const struct http_pool *p, const atomic_bool *cancel);
/* Waits for a place, which downloads may hold for hours, and takes a handle, a used one if there is
 * one. ERR_BUSY: there was none for stall_timeout, or by deadline_ms (monotonic, 0 = none), or,
 * when only a spare one will do, now. */
int http_pool_take_until(struct http_pool *p, bool spare, uint64_t deadline_ms,
                         const atomic_bool *cancel, CURL **ret, struct error *err);
static inline int http_pool_take(struct http_pool *p, bool spare, const atomic_bool *cancel,
                                 CURL **ret, struct error *err)
{
    return http_pool_take_until(p, spare, 0, cancel, ret, err);
}
/* A handle whose exchange failed is not used again: libcurl 7.88 may leave its receive buffer
 * behind and then refuses CURLOPT_BUFFERSIZE. */
void http_pool_give(struct http_pool *p, CURL *curl, bool reusable);

/* What the request goes through, owned by the caller; "" = nothing. NULL: *err. */
char *http_proxy_for(const struct http_pool *p, const char *url, struct error *err);

/* ---- an answer (http_response.c) ------------------------------------------------------------- */

struct http_response {
    unsigned status;
    bool complete;        /* the final answer's header has ended; what follows is a trailer */
    size_t header_bytes;  /* over all answers of the exchange */
    struct strbuf fields; /* name NUL value NUL ..., of the latest answer only */
    struct strbuf body;
};

/* Takes the next header line, with or without its line end. 0: more lines follow; 1: this one ended
 * the final answer's header; -1: ERR_UPSTREAM, the answer breaks a rule. Interim (1xx) answers are
 * forgotten, lines after the end (trailers) are ignored. */
int http_response_line(struct http_response *r, const char *line, size_t len, struct error *err);

/* Some servers repeat the credential in what they say about it, and that is shown and logged. */
void http_response_hide(struct http_response *r, const char *secret);
/* The same for the value of an Authorization header: its token, or the password that it holds. */
void http_response_hide_authorization(struct http_response *r, const char *value);

/* `bytes a-b/size` and nothing else, with a <= b < size. */
bool http_parse_content_range(const char *text, uint64_t *ret_first, uint64_t *ret_last,
                              uint64_t *ret_size);
/* `"bucket";r=0;t=55`, a list of such: the largest t of an item with r=0; 0 when there is none. */
unsigned http_parse_rate_limit(const char *text);
/* Decimal digits and nothing else, at most INT64_MAX (what a file offset can be). */
bool http_parse_length(const char *text, uint64_t *ret);

#endif
