/* One HTTP exchange with an upstream, blocking, on a pooled curl handle.
 *
 * Rules kept here for everybody: HTTP/1.1; no redirect is ever followed (callers look at Location
 * and decide); no content coding is asked for or decoded; a body shorter or longer than its
 * Content-Length is an error; only http and https; a proxy only when configured; a connection that
 * moves nothing for stall_timeout, or less than 1 KiB a second for four of them, is given up; there
 * is no limit on the total time. Credentials go into the one request they are given for. Error
 * texts name the host and path, never a query or a credential that the upstream repeated.
 *
 * Thread-safe: any number of threads may perform at once; at most max_connections run, and of all
 * pools that share places no more than there are. The others wait for a place, in the order in
 * which they came, for stall_timeout at most. The program has to ignore SIGPIPE: a TLS write to a
 * closed connection raises it.
 */
#ifndef WB_UPSTREAM_HTTP_H
#define WB_UPSTREAM_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

/* The longest that an upstream can have us stay away, whatever its Retry-After says: after a 429
 * the window in which Docker Hub counts pulls; after anything else, which tells of a moment and not
 * of a quota, five minutes, and then somebody tries. */
#define HTTP_WAIT_LIMITED_MAX_S 21600u
#define HTTP_WAIT_FAILED_MAX_S 300u

struct http_pool;

struct http_options {
    unsigned max_connections;   /* 0 = 16 */
    uint64_t connect_timeout_s; /* 0 = 10 */
    uint64_t stall_timeout_s;   /* 0 = 30 */
    /* PEM, trusted besides the system's authorities; NULL = only those. Read again when it changes;
     * while it cannot be, what was in it counts. */
    const char *ca_file;
    /* PEM, shown to servers that ask for one; NULL = none. Read for each connection. */
    const char *client_cert;
    const char *client_key; /* NULL = in client_cert */
    const char *proxy;      /* NULL = none */
    /* Instead of proxy, asked for the host and port of each URL: 1 and the URL of a proxy, owned by
     * the caller; 0 none; -1 (config/proxy.h). May be called by several threads at once. */
    int (*proxy_of)(bool is_https, const char *host, unsigned port, char **ret, struct error *err);
    /* Told of every answer from 400 on that asks us to stay away for a while, as why->retry_after
     * has it: downloads meet them too, and all others should know. NULL = nobody. */
    void (*asked_to_wait)(void *ctx, const char *url, const struct error *why);
    void *ctx;
};

int http_pool_new(const struct http_options *o, struct http_pool **ret, struct error *err);
/* No exchange may be running. */
void http_pool_free(struct http_pool *p);

/* Places that several pools share, beside each one's max_connections. A quarter of them, or at
 * least one for each pool while that is no more than half, is kept for pools that have few, each
 * its part, so that no upstream can hold them all. Connections that wait for their next use are
 * closed when another pool needs the place. */
struct http_places;
/* max: 0 = no bound */
int http_places_new(unsigned max, unsigned n_pools, struct http_places **ret, struct error *err);
/* After the pools that joined. */
void http_places_free(struct http_places *s);
unsigned http_places_taken(struct http_places *s);
/* Before the pool's first request. */
void http_pool_join(struct http_pool *p, struct http_places *places);

/* Makes every running and later exchange fail with ERR_CANCELLED (shutdown). */
void http_pool_cancel(struct http_pool *p);
/* How long a short exchange that gets nowhere takes at the most: for a place, for the connection,
 * and for an answer that hardly drips. */
uint64_t http_pool_patience_ms(const struct http_pool *p);
/* Waits before try number attempt (0, 1, ...) of something that failed: asked_s seconds when the
 * upstream asked for some, else 100 ms doubled each time up to 5 s, and up to half of that more, so
 * that many do not come back at once. ERR_CANCELLED as soon as the pool or the flag (may be NULL)
 * says so. */
int http_pool_backoff(struct http_pool *p, unsigned attempt, unsigned asked_s,
                      const atomic_bool *cancel, struct error *err);

/* Whether a place is there for a request that is `spare`. */
bool http_pool_has_spare(struct http_pool *p);
/* True for as many callers as requests wait for a place, of this pool's or of those that it shares:
 * such a caller is to end its own, which was a spare one. */
bool http_pool_is_wanted(struct http_pool *p);

struct http_response;

struct http_request {
    const char *method; /* "GET", "HEAD", "POST", "DELETE" */
    const char *url;
    const char *bearer; /* token, sent to this URL's host only; NULL = no Authorization */
    /* The whole value of Authorization ("Basic ...") instead of bearer, under the same rule. */
    const char *authorization;
    const char *accept;         /* NULL = any */
    const char *const *accepts; /* instead of accept: one header line each, up to NULL */
    bool has_range;
    uint64_t range_first;
    uint64_t range_last;       /* inclusive; UINT64_MAX = open end */
    const char *if_range;      /* strong ETag with quotes, NULL = none */
    const char *cdn_loop;      /* the servers that it came through (loop.h), NULL = not said */
    const char *if_none_match; /* ETag with quotes, NULL = none; 304 is an answer without a body */
    const void *body;          /* POST */
    size_t body_len;
    const char *content_type;

    /* The answer's body: either collected (max_body bytes at most, ERR_TOO_LARGE above) ... */
    size_t max_body;
    /* ... or, when on_data is set, streamed. on_headers comes first, once, when status and headers
     * are there; a negative return from either stops the exchange and is http_perform's result,
     * with the error that the callback has set. Only called for 2xx answers: other bodies are
     * collected (64 KiB at most) for their error text. */
    int (*on_headers)(void *ctx, const struct http_response *r, struct error *err);
    int (*on_data)(void *ctx, const void *data, size_t len, struct error *err);
    void *ctx;

    /* Only while a quarter of the pool's places is free, and of those that it shares, and nobody
     * waits; else ERR_BUSY. */
    bool spare;
    /* Monotonic; when it has not ended by then ERR_TIMEOUT, or ERR_BUSY when there was no place for
     * it. 0 = none. */
    uint64_t deadline_ms;
    /* Monotonic; when there is no connection by then ERR_TIMEOUT. 0, or past: the pool's
     * connect_timeout alone. */
    uint64_t connect_by_ms;
    const atomic_bool *cancel; /* looked at about once a second and at each chunk; NULL = never */
};

/* 0: a whole, well-framed answer came, whatever its status. Negative: ERR_TIMEOUT, ERR_UPSTREAM
 * (refused, reset, cut short, TLS), ERR_BUSY (no place), ERR_CANCELLED, ERR_TOO_LARGE, or a
 * callback's error.
 * *ret is owned by the caller; with a streamed body that broke, *ret is set as well when the
 * headers had come (else NULL). */
int http_perform(struct http_pool *p, const struct http_request *q, struct http_response **ret,
                 struct error *err);
void http_response_free(struct http_response *r);
static inline void http_response_free_p(struct http_response **r)
{
    http_response_free(*r);
}
#define _cleanup_response_ _cleanup_(http_response_free_p)

unsigned http_status(const struct http_response *r);
/* First value of a header of the final answer (case-insensitive), NULL when absent. */
const char *http_header(const struct http_response *r, const char *name);
/* The next value of the same header behind `previous`, which came from these two functions. */
const char *http_header_next(const struct http_response *r, const char *name, const char *previous);
/* A header that is a decimal number up to INT64_MAX; false when it is absent or another text. */
bool http_header_number(const struct http_response *r, const char *name, uint64_t *ret);
/* Content-Length; false when the answer has none. */
bool http_content_length(const struct http_response *r, uint64_t *ret);
/* Content-Range of a 206: `bytes a-b/size`; false when absent or malformed. */
bool http_content_range(const struct http_response *r, uint64_t *ret_first, uint64_t *ret_last,
                        uint64_t *ret_size);
const struct strbuf *http_body(const struct http_response *r);
/* Retry-After in seconds or the t= of a RateLimit header with r=0; 0 when absent. At most
 * HTTP_WAIT_LIMITED_MAX_S of a 429, HTTP_WAIT_FAILED_MAX_S of another answer. */
unsigned http_retry_after(const struct http_response *r);

/* Turns a status that is no success into an error: 401 ERR_UNAUTHORIZED, 403 ERR_DENIED, 404
 * ERR_NOT_FOUND, 429 ERR_RATE_LIMITED, 5xx and the rest ERR_UPSTREAM; with X-Error-Message where
 * given, and retry_after. Returns -1. */
int http_status_error(const struct http_response *r, const char *url, struct error *err);

/* Resolves a Location against the URL it came from (absolute, //host, /path; query kept). NULL when
 * out of memory or when it is no http(s) URL. Caller frees. */
char *http_resolve_location(const char *base, const char *location);
/* The target of rel="next" in one Link header, NULL when it has none. Caller frees. */
char *http_link_next(const char *link);
/* Where bytes can be had for a while: often a signed URL. A secret: never logged whole. */
struct http_location {
    char *url;           /* owned */
    char *bearer;        /* owned; NULL unless the URL is on the upstream's own origin */
    char *authorization; /* the whole value instead of bearer, under the same rule; owned */
};
void http_location_done(struct http_location *l);
/* "host" or "host:port" of an http(s) URL, in lower case, without the scheme's own port: what a
 * registry is called. NULL when out of memory or when it is no http(s) URL. Caller frees. */
char *http_host(const char *url);
/* Same scheme, host and port. */
bool http_same_origin(const char *a, const char *b);

/* Bytes received over this pool since the start (bodies), and failed exchanges: for /metrics. */
uint64_t http_pool_bytes(const struct http_pool *p);
uint64_t http_pool_requests(const struct http_pool *p);
uint64_t http_pool_errors(const struct http_pool *p);

#endif
