/* Reading parts of a file over HTTP. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "cli/source_private.h"

#define REDIRECTS 5u
#define RETRIES 4u /* in a row, without getting on in between */
/* Fewer bytes an answer, and the rest of them is not waited for: a header of megabytes would be
 * hundreds of thousands of requests. */
#define PROGRESS_MIN 4096u

void web_file_done(struct web_file *w)
{
    free(w->base);
    free(w->direct);
    free(w->authorization);
}

/* One reading under way: [at, end) of the file is still missing. */
struct exchange {
    struct web_file *w;
    const char *url;
    uint64_t at, end;
    struct strbuf *to;
    bool refused; /* the answer broke a rule: asking again will not help */
};

static int refuse(struct exchange *x)
{
    x->refused = true;
    return -1;
}

static int ignores_range(struct exchange *x, unsigned status, struct error *err)
{
    char where[512];
    err_set(err, ERR_UNSUPPORTED,
            "%s answered %u to a Range request; download the file and inspect it locally",
            log_url(x->url, where, sizeof(where)), status);
    return refuse(x);
}

/* All the parts have to be parts of one file. */
static int check_same(struct exchange *x, const struct http_response *r, uint64_t size,
                      struct error *err)
{
    struct web_file *w = x->w;
    const char *etag = http_header(r, "ETag");
    bool strong = etag && etag[0] == '"' && strlen(etag) < sizeof(w->etag);
    bool other = strong && w->etag[0] && strcmp(etag, w->etag) != 0;
    char where[512];
    if ((w->has_size && size != w->size) || other) {
        err_set(err, ERR_CONFLICT, "%s changed while it was read: ask again",
                log_url(w->base, where, sizeof(where)));
        return refuse(x);
    }
    if (strong)
        strcpy(w->etag, etag);
    w->has_size = true;
    w->size = size;
    return 0;
}

/* An empty file has no range that could be asked for. */
static bool is_empty_file(struct web_file *w, const struct http_response *r)
{
    const char *range = http_header(r, "Content-Range");
    uint64_t length;
    bool empty = http_status(r) == 416 && range && strcasecmp(range, "bytes */0") == 0;
    if (http_status(r) == 200 && !w->has_size && http_content_length(r, &length))
        empty = length == 0;
    if (empty) {
        w->has_size = true;
        w->size = 0;
    }
    return empty;
}

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct exchange *x = ctx;
    uint64_t first, last, size;
    char where[512];
    if (is_empty_file(x->w, r)) {
        x->end = 0;
        return 0;
    }
    if (http_status(r) != 206)
        return ignores_range(x, http_status(r), err);
    log_url(x->url, where, sizeof(where));
    if (!http_content_range(r, &first, &last, &size)) {
        err_set(err, ERR_UPSTREAM, "%s answered 206 without a Content-Range that can be read",
                where);
        return refuse(x);
    }
    if (check_same(x, r, size, err) < 0)
        return -1;
    if (x->end > size)
        x->end = size;
    if (first == x->at && last < x->end)
        return 0;
    err_set(err, ERR_UPSTREAM,
            "%s: asked for bytes %" PRIu64 "-%" PRIu64 ", the answer has %" PRIu64 "-%" PRIu64,
            where, x->at, x->end - 1, first, last);
    return refuse(x);
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct exchange *x = ctx;
    if (len > x->end - x->at) {
        char where[512];
        err_set(err, ERR_UPSTREAM, "%s sends more bytes than were asked for",
                log_url(x->url, where, sizeof(where)));
        return refuse(x);
    }
    strbuf_put(x->to, data, len);
    if (strbuf_failed(x->to)) {
        err_set(err, ERR_NOMEM, "out of memory for %" PRIu64 " bytes", x->end);
        return refuse(x);
    }
    x->at += len;
    return 0;
}

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Where the answer sends us. Never from https to http. */
static int follow(const char *from, const struct http_response *r, char **ret, struct error *err)
{
    const char *location = http_header(r, "Location");
    char a[512], b[512];
    _cleanup_free_ char *url = location ? http_resolve_location(from, location) : NULL;
    log_url(from, a, sizeof(a));
    if (!url)
        return err_set(err, ERR_UPSTREAM, "%s: a redirect without a URL that can be followed", a);
    if (strncasecmp(from, "https:", 6) == 0 && strncasecmp(url, "https:", 6) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: a redirect from https to %s", a,
                       log_url(url, b, sizeof(b)));
    *ret = TAKE_PTR(url);
    return 0;
}

static int ask(struct exchange *x, const char *url, struct http_response **ret, struct error *err)
{
    struct web_file *w = x->w;
    x->url = url;
    const struct http_request q = {
        .method = "GET",
        .url = url,
        .authorization = http_same_origin(w->base, url) ? w->authorization : NULL,
        .has_range = true,
        .range_first = x->at,
        .range_last = x->end - 1,
        .on_headers = on_headers,
        .on_data = on_data,
        .ctx = x,
    };
    return http_perform(w->pool, &q, ret, err);
}

/* The login that a 401 asks for. 1: ask again; 0, -1 */
static int log_in(struct web_file *w, const struct http_response *r, struct error *err)
{
    char *value = NULL;
    if (!w->challenged)
        return 0;
    int rc = w->challenged(w->ctx, w->authorization, r, &value, err);
    if (rc > 0) {
        free(w->authorization);
        w->authorization = value;
    }
    return rc;
}

/* From the URL that is known to the answer, over redirects. 0: *ret is it, or negative. */
static int reach(struct exchange *x, struct http_response **ret, struct error *err)
{
    struct web_file *w = x->w;
    _cleanup_free_ char *url = strdup(w->direct ? w->direct : w->base);
    bool logged_in = false;
    if (!url)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    for (unsigned hops = 0; hops <= REDIRECTS;) {
        http_response_free(TAKE_PTR(*ret));
        if (ask(x, url, ret, err) < 0)
            return -1;
        unsigned status = http_status(*ret);
        if (is_redirect(status)) {
            char *next = NULL;
            if (follow(url, *ret, &next, err) < 0)
                return refuse(x);
            free(url);
            url = next;
            hops++;
        } else if (status == 401 && !logged_in && http_same_origin(w->base, url)) {
            int rc = log_in(w, *ret, err);
            if (rc < 0 || (rc == 0 && w->challenged))
                return refuse(x);
            if (rc == 0)
                return 0;
            logged_in = true;
        } else {
            free(w->direct);
            w->direct = strcmp(url, w->base) ? TAKE_PTR(url) : NULL;
            return 0;
        }
    }
    char where[512];
    err_set(err, ERR_UPSTREAM, "%s: more than %u redirects", log_url(w->base, where, sizeof(where)),
            REDIRECTS);
    return refuse(x);
}

enum outcome { OUT_FAILED = -1, OUT_DONE, OUT_AGAIN };

static enum outcome read_once(struct exchange *x, struct error *err)
{
    struct web_file *w = x->w;
    _cleanup_response_ struct http_response *r = NULL;
    bool was_direct = w->direct;
    int rc = reach(x, &r, err);
    if (rc < 0) {
        bool passing = err->code == ERR_UPSTREAM || err->code == ERR_TIMEOUT;
        return passing && !x->refused ? OUT_AGAIN : OUT_FAILED;
    }
    unsigned status = http_status(r);
    if (status == 416 && is_empty_file(w, r))
        return OUT_DONE;
    if (status / 100 == 2 && x->at == x->end)
        return OUT_DONE;
    if (status / 100 == 2) {
        err_set(err, ERR_UPSTREAM, "%" PRIu64 " bytes of an answer are missing", x->end - x->at);
        return OUT_AGAIN;
    }
    http_status_error(r, w->direct ? w->direct : w->base, err);
    /* A signed URL runs out, sometimes before it is used: the first one gives another. */
    bool stale = (w->direct && (status == 401 || status == 403 || status == 410)) ||
                 (was_direct && status == 404);
    if (stale) {
        free(w->direct);
        w->direct = NULL;
    }
    return stale || status == 429 || status >= 500 ? OUT_AGAIN : OUT_FAILED;
}

int web_file_read(struct web_file *w, uint64_t first, size_t len, struct strbuf *to,
                  struct error *err)
{
    struct exchange x = {.w = w, .at = first, .end = first + len, .to = to};
    struct error why = ERROR_INIT;
    if (w->has_size && x.end > w->size)
        x.end = w->size;
    for (unsigned failures = 0; x.at < x.end;) {
        uint64_t before = x.at;
        enum outcome outcome = read_once(&x, &why);
        if (outcome == OUT_DONE)
            return 0;
        failures = x.at - before >= PROGRESS_MIN ? 0 : failures + 1;
        if (outcome == OUT_FAILED || failures > RETRIES ||
            http_pool_backoff(w->pool, failures, why.retry_after, NULL, &why) < 0) {
            if (err)
                *err = why;
            return -1;
        }
    }
    return 0;
}

int web_source_read(struct source_file *f, uint64_t offset, void *buf, size_t len,
                    struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (web_file_read(f->backend, offset, len, &b, err) < 0)
        return -1;
    if (b.len != len)
        return err_set(err, ERR_UPSTREAM, "%s: %zu bytes came where %zu were asked for", f->path,
                       b.len, len);
    memcpy(buf, strbuf_str(&b), len);
    return 0;
}

void web_source_close(struct source_file *f)
{
    web_file_done(f->backend);
    free(f->backend);
}
