#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "upstream/http_private.h"
#include "upstream/loop.h"

/* One http_perform() under way. */
struct exchange {
    struct http_pool *pool;
    const struct http_request *q;
    CURL *curl;
    struct http_ca *ca; /* NULL = the default */
    struct http_response *r;
    struct error *err;
    uint64_t received;
    uint64_t connect_ms;          /* its connect timeout */
    uint64_t moved_ms;            /* when the last byte came; the stall clock */
    uint64_t pace_ms, pace_bytes; /* since when, and how many bytes came then; the drip clock */
    bool connected;               /* before this the connect timeout counts, not the stall clock */
    bool enough;                  /* an error body's rest was not wanted */
    bool reusable;                /* the handle ended its exchange in good order */
    bool from_caller; /* rc is a callback's, or the caller gave up: no failure of the upstream */
    int rc;           /* negative: stopped by us, *err says why */
    char where[512];
    char text[CURL_ERROR_SIZE];
};

/* ---- libcurl's callbacks --------------------------------------------------------------------- */

static void stop(struct exchange *x, int rc, bool from_caller)
{
    x->rc = rc < 0 ? rc : -1;
    x->from_caller = from_caller;
}

/* Looked at with every piece and about once a second in between. */
static bool may_go_on(struct exchange *x)
{
    if (x->rc < 0)
        return false;
    if (http_pool_is_cancelled(x->pool, x->q->cancel)) {
        stop(x, err_set(x->err, ERR_CANCELLED, "%s: cancelled", x->where), true);
        return false;
    }
    return true;
}

static bool keeps_pace(struct exchange *x)
{
    uint64_t now = clock_monotonic_ms(), limit = x->pool->stall_timeout_s * HTTP_DRIP_TIMEOUTS;
    if (!x->connected || now - x->pace_ms < limit * 1000u)
        return true;
    if (x->pace_bytes >= limit * HTTP_DRIP_BYTES_PER_S) {
        x->pace_ms = now;
        x->pace_bytes = 0;
        return true;
    }
    stop(x,
         err_set(x->err, ERR_TIMEOUT, "%s: only %" PRIu64 " bytes came in %" PRIu64 " s", x->where,
                 x->pace_bytes, limit),
         false);
    return false;
}

/* Bytes came, and we are back from what was done with them: our own time is not the upstream's. */
static void moved(struct exchange *x, size_t len, uint64_t came_ms)
{
    x->moved_ms = clock_monotonic_ms();
    x->pace_ms += x->moved_ms - came_ms;
    x->pace_bytes += len;
}

static int stalled(const struct exchange *x, uint64_t limit)
{
    return err_set(x->err, ERR_TIMEOUT,
                   "%s: nothing came for %" PRIu64 " s, after %" PRIu64 " bytes of the body",
                   x->where, limit, x->received);
}

/* We are shown whole lines only, so which of the two it was is not known. */
static int no_answer(const struct exchange *x, uint64_t limit)
{
    return err_set(x->err, ERR_TIMEOUT,
                   "%s: no answer came for %" PRIu64 " s, or only a part of its header", x->where,
                   limit);
}

static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    struct exchange *x = ctx;
    (void)down_total, (void)down, (void)up_total, (void)up;
    if (!may_go_on(x))
        return 1;
    uint64_t limit = x->pool->stall_timeout_s;
    if (x->connected && clock_monotonic_ms() - x->moved_ms >= limit * 1000u) {
        stop(x, x->r->complete ? stalled(x, limit) : no_answer(x, limit), false);
        return 1;
    }
    return keeps_pace(x) ? 0 : 1;
}

static int on_connected(void *ctx, char *remote, char *local, int remote_port, int local_port)
{
    struct exchange *x = ctx;
    (void)remote, (void)local, (void)remote_port, (void)local_port;
    x->connected = true;
    x->moved_ms = x->pace_ms = clock_monotonic_ms();
    return CURL_PREREQFUNC_OK;
}

static bool is_success(const struct http_response *r)
{
    return r->status >= 200 && r->status < 300;
}

/* We ask for the bytes as they are; coded ones would be taken for them. */
static int check_coding(struct exchange *x)
{
    const char *coding = http_header(x->r, "Content-Encoding");
    if (!coding || !*coding || strcasecmp(coding, "identity") == 0)
        return 0;
    return err_set(x->err, ERR_UPSTREAM,
                   "%s answered with Content-Encoding %.40s, though only identity is accepted",
                   x->where, coding);
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    uint64_t came_ms = clock_monotonic_ms();
    moved(x, size * n, came_ms);
    if (!may_go_on(x))
        return 0;
    int rc = http_response_line(x->r, data, size * n, x->err);
    if (rc < 0) {
        err_wrap(x->err, "%s", x->where);
        stop(x, rc, false);
        return 0;
    }
    if (rc == 0 || !is_success(x->r))
        return size * n;
    if (check_coding(x) < 0) {
        stop(x, -1, false);
        return 0;
    }
    if (x->q->on_headers && (rc = x->q->on_headers(x->q->ctx, x->r, x->err)) < 0) {
        stop(x, rc, true);
        return 0;
    }
    /* From where it was counted to above: a time that is counted twice puts the drip clock ahead of
     * what time it is, and then every answer drips. */
    moved(x, 0, x->moved_ms);
    return size * n;
}

static size_t collect(struct exchange *x, const char *data, size_t len)
{
    struct strbuf *body = &x->r->body;
    if (!is_success(x->r)) {
        size_t room = HTTP_ERROR_BODY_MAX - body->len;
        x->enough = len > room;
        strbuf_put(body, data, x->enough ? room : len);
    } else if (len > x->q->max_body || body->len > x->q->max_body - len) {
        stop(x,
             err_set(x->err, ERR_TOO_LARGE, "%s: the answer is larger than %zu bytes", x->where,
                     x->q->max_body),
             false);
        return 0;
    } else {
        strbuf_put(body, data, len);
    }
    if (strbuf_failed(body)) {
        stop(x, err_set(x->err, ERR_NOMEM, "out of memory for an answer"), true);
        return 0;
    }
    return x->enough ? 0 : len;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    size_t len = size * n;
    uint64_t came_ms = clock_monotonic_ms();
    x->received += len;
    atomic_fetch_add_explicit(&x->pool->bytes, len, memory_order_relaxed);
    if (!may_go_on(x))
        return 0;
    if (x->q->on_data && is_success(x->r)) {
        int rc = x->q->on_data(x->q->ctx, data, len, x->err);
        if (rc < 0) {
            stop(x, rc, true);
            return 0;
        }
    } else if (len && collect(x, data, len) == 0) {
        return 0;
    }
    moved(x, len, came_ms);
    return len;
}

/* ---- one exchange ---------------------------------------------------------------------------- */

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (code == CURLE_OK)                                                                      \
            code = curl_easy_setopt(curl, option, value);                                          \
    } while (0)

static CURLcode set_certificates(CURL *curl, const struct http_pool *p, const struct http_ca *ca)
{
    CURLcode code = CURLE_OK;
    if (ca) {
        struct curl_blob pem = {
            .data = ca->pem.data, .len = ca->pem.len, .flags = CURL_BLOB_NOCOPY};
        SET(CURLOPT_CAINFO_BLOB, &pem);
        SET(CURLOPT_PROXY_CAINFO_BLOB, &pem);
    }
    if (p->client_cert) {
        SET(CURLOPT_SSLCERT, p->client_cert);
        SET(CURLOPT_SSLKEY, p->client_key ? p->client_key : p->client_cert);
        SET(CURLOPT_KEYPASSWD, ""); /* else the terminal is asked for one */
    }
    return code;
}

static uint64_t connect_timeout_ms(const struct exchange *x)
{
    uint64_t now = clock_monotonic_ms(), ms = x->pool->connect_timeout_s * 1000u;
    uint64_t left = x->q->connect_by_ms > now ? x->q->connect_by_ms - now : ms;
    return left < ms ? left : ms;
}

static CURLcode set_transport(CURL *curl, struct exchange *x, const char *proxy)
{
    CURLcode code = CURLE_OK;
    x->connect_ms = connect_timeout_ms(x);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's header is not the upstream's */
    SET(CURLOPT_PROXY, proxy);                 /* "" = none, whatever the environment says */
    SET(CURLOPT_NOPROXY, "");                  /* likewise */
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)x->connect_ms);
    SET(CURLOPT_BUFFERSIZE, 131072L);
    SET(CURLOPT_MAXCONNECTS, 4L);
    /* Else giving up, or being cancelled, waits for a name server that does not answer; so the
     * look-up is left to end by itself. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    return code;
}

static CURLcode set_exchange(CURL *curl, struct exchange *x)
{
    const struct http_request *q = x->q;
    CURLcode code = CURLE_OK;
    SET(CURLOPT_URL, q->url);
    SET(CURLOPT_USERAGENT, "weighbridge/" WB_VERSION);
    SET(CURLOPT_ERRORBUFFER, x->text);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, x);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, x);
    SET(CURLOPT_NOPROGRESS, 0L);
    if (q->deadline_ms) {
        uint64_t now = clock_monotonic_ms();
        uint64_t left = q->deadline_ms > now ? q->deadline_ms - now : 1;
        SET(CURLOPT_TIMEOUT_MS, (long)(left < INT32_MAX ? left : INT32_MAX));
    }
    if (strcmp(q->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (strcmp(q->method, "POST") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_len);
        SET(CURLOPT_POSTFIELDS, q->body ? q->body : "");
    } else {
        SET(CURLOPT_HTTPGET, 1L);
        if (strcmp(q->method, "DELETE") == 0)
            SET(CURLOPT_CUSTOMREQUEST, "DELETE");
    }
    return code;
}

static void free_list_p(struct curl_slist **list)
{
    curl_slist_free_all(*list);
}

/* Appends `name: value`; a value that could start a new header line is refused. */
static int put_header(struct curl_slist **list, const char *name, const char *value,
                      struct error *err)
{
    if (strpbrk(value, "\r\n"))
        return err_set(err, ERR_INVALID, "the %s header's value has a line end in it", name);
    _cleanup_strbuf_ struct strbuf line = STRBUF_INIT;
    strbuf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer =
        strbuf_failed(&line) ? NULL : curl_slist_append(*list, strbuf_str(&line));
    if (!longer)
        return err_set(err, ERR_NOMEM, "out of memory for a request header");
    *list = longer;
    return 0;
}

static int put_accept(const struct http_request *q, struct curl_slist **list, struct error *err)
{
    if (!q->accepts)
        return put_header(list, "Accept", q->accept ? q->accept : "*/*", err);
    for (const char *const *a = q->accepts; *a; a++)
        if (put_header(list, "Accept", *a, err) < 0)
            return -1;
    return 0;
}

static int put_authorization(const struct http_request *q, struct curl_slist **list,
                             struct error *err)
{
    if (q->authorization)
        return put_header(list, "Authorization", q->authorization, err);
    if (!q->bearer)
        return 0;
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    strbuf_printf(&value, "Bearer %s", q->bearer);
    if (strbuf_failed(&value))
        return err_set(err, ERR_NOMEM, "out of memory for a request header");
    return put_header(list, "Authorization", strbuf_str(&value), err);
}

static int put_headers(const struct http_request *q, struct curl_slist **list, struct error *err)
{
    if (put_accept(q, list, err) < 0 || put_header(list, "Accept-Encoding", "identity", err) < 0 ||
        put_authorization(q, list, err) < 0)
        return -1;
    if (q->has_range) {
        char range[64];
        if (q->range_last == UINT64_MAX)
            snprintf(range, sizeof(range), "bytes=%" PRIu64 "-", q->range_first);
        else
            snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, q->range_first,
                     q->range_last);
        if (put_header(list, "Range", range, err) < 0)
            return -1;
    }
    if (q->if_range && put_header(list, "If-Range", q->if_range, err) < 0)
        return -1;
    if (q->if_none_match && put_header(list, "If-None-Match", q->if_none_match, err) < 0)
        return -1;
    if (q->cdn_loop && put_header(list, LOOP_HEADER, q->cdn_loop, err) < 0)
        return -1;
    if (strcmp(q->method, "POST") == 0) {
        /* Without this, libcurl waits a second for a 100 that many servers never send. */
        struct curl_slist *longer = curl_slist_append(*list, "Expect:");
        if (!longer)
            return err_set(err, ERR_NOMEM, "out of memory for a request header");
        *list = longer;
        if (put_header(list, "Content-Type",
                       q->content_type ? q->content_type : "application/octet-stream", err) < 0)
            return -1;
    }
    return 0;
}

static int curl_failed(struct exchange *x, CURLcode code)
{
    const char *text = x->text[0] ? x->text : curl_easy_strerror(code);
    uint64_t length;
    /* Once connected, the second code means HTTP/0.9. */
    if (code == CURLE_URL_MALFORMAT || (code == CURLE_UNSUPPORTED_PROTOCOL && !x->connected))
        return err_set(x->err, ERR_UPSTREAM, "%s is no http or https URL", x->where);
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        if (x->connected && !x->r->complete) /* libcurl's word for it, up to version 8 */
            return err_set(x->err, ERR_UPSTREAM,
                           "%s: the answer has a header line of over 100 KiB (or libcurl is out of "
                           "memory)",
                           x->where);
        return err_set(x->err, ERR_NOMEM, "%s: libcurl is out of memory", x->where);
    case CURLE_OPERATION_TIMEDOUT:
        if (x->q->deadline_ms && clock_monotonic_ms() + 1 >= x->q->deadline_ms)
            return err_set(x->err, ERR_TIMEOUT, "%s: no whole answer in the time that was left",
                           x->where);
        return err_set(x->err, ERR_TIMEOUT, "%s: no connection within %" PRIu64 " s", x->where,
                       (x->connect_ms + 999) / 1000);
    case CURLE_GOT_NOTHING:
        return err_set(x->err, ERR_UPSTREAM, "%s: the connection was closed without an answer",
                       x->where);
    case CURLE_SSL_CERTPROBLEM:
        return err_set(x->err, ERR_UPSTREAM,
                       "%s: %s (client_cert and client_key of the upstream; a key must have no "
                       "passphrase)",
                       x->where, text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return err_set(x->err, ERR_UPSTREAM,
                       "%s: %s (a private certificate authority is set with ca_file)", x->where,
                       text);
    default:
        break;
    }
    if (!x->r->complete)
        return err_set(x->err, ERR_UPSTREAM, "%s: %s", x->where, text);
    if (http_content_length(x->r, &length))
        return err_set(x->err, ERR_UPSTREAM,
                       "%s: answer %u cut short at %" PRIu64 " of %" PRIu64 " bytes (%s)", x->where,
                       x->r->status, x->received, length, text);
    return err_set(x->err, ERR_UPSTREAM, "%s: answer %u cut short after %" PRIu64 " bytes (%s)",
                   x->where, x->r->status, x->received, text);
}

static int check_whole(struct exchange *x)
{
    uint64_t length;
    bool has_body = strcmp(x->q->method, "HEAD") != 0 && x->r->status != 204 && x->r->status != 304;
    if (!x->r->complete)
        return err_set(x->err, ERR_UPSTREAM, "%s: the answer has no complete header", x->where);
    if (has_body && http_content_length(x->r, &length) && length != x->received)
        return err_set(x->err, ERR_UPSTREAM,
                       "%s: answer %u cut short at %" PRIu64 " of %" PRIu64 " bytes", x->where,
                       x->r->status, x->received, length);
    return 0;
}

static int run(struct exchange *x)
{
    _cleanup_(free_list_p) struct curl_slist *headers = NULL;
    CURL *curl = x->curl;
    _cleanup_free_ char *proxy = http_proxy_for(x->pool, x->q->url, x->err);
    if (!proxy)
        return -1;
    if (put_headers(x->q, &headers, x->err) < 0) {
        x->from_caller = true;
        return -1;
    }
    CURLcode code = set_transport(curl, x, proxy);
    if (code == CURLE_OK)
        code = set_certificates(curl, x->pool, x->ca);
    if (code == CURLE_OK)
        code = set_exchange(curl, x);
    SET(CURLOPT_HTTPHEADER, headers);
    if (code != CURLE_OK)
        return err_set(x->err, ERR_INTERNAL, "%s: libcurl refuses an option: %s", x->where,
                       curl_easy_strerror(code));
    code = curl_easy_perform(curl);
    x->reusable = code == CURLE_OK;
    if (x->rc < 0)
        return x->rc;
    if (x->enough)
        return 0;
    return code == CURLE_OK ? check_whole(x) : curl_failed(x, code);
}

static void pass_on_wait(const struct exchange *x)
{
    const struct http_response *r = x->r;
    struct error why = ERROR_INIT;
    if (!x->pool->asked_to_wait || !r || !r->complete || r->status < 400 || !http_retry_after(r))
        return;
    http_status_error(r, x->q->url, &why);
    x->pool->asked_to_wait(x->pool->ctx, x->q->url, &why);
}

int http_perform(struct http_pool *p, const struct http_request *q, struct http_response **ret,
                 struct error *err)
{
    struct exchange x = {.pool = p, .q = q, .err = err, .moved_ms = clock_monotonic_ms()};
    *ret = NULL;
    if (strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0 &&
        strcmp(q->method, "POST") != 0 && strcmp(q->method, "DELETE") != 0)
        return err_set(err, ERR_INTERNAL, "no method %.20s", q->method);
    log_url(q->url, x.where, sizeof(x.where));
    if (http_pool_take_until(p, q->spare, q->deadline_ms, q->cancel, &x.curl, err) < 0)
        return err_wrap(err, "%s", x.where);
    _cleanup_response_ struct http_response *r = calloc(1, sizeof(*r));
    int rc;
    if (!r) {
        x.from_caller = true;
        rc = err_set(err, ERR_NOMEM, "out of memory for an answer");
    } else {
        x.r = r;
        x.ca = http_ca_take(p);
        atomic_fetch_add(&p->requests, 1);
        rc = run(&x);
    }
    http_pool_give(p, x.curl, x.reusable);
    http_ca_give(p, x.ca);
    if (r && q->bearer)
        http_response_hide(r, q->bearer);
    if (r && q->authorization)
        http_response_hide_authorization(r, q->authorization);
    pass_on_wait(&x);
    if (rc < 0 && !x.from_caller)
        atomic_fetch_add(&p->errors, 1);
    if (rc == 0 || (q->on_data && r && r->complete))
        *ret = TAKE_PTR(r);
    return rc;
}
