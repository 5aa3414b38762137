#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

#define PROGRESS_MIN (64u << 10)

/* One hub_read_range() under way: [at, end) of the file is still missing. */
struct reading {
    struct hub *h;
    const char *id;
    const struct http_location *location;
    uint64_t at, end, size;
    uint64_t promised; /* bytes of the body under way, by its header */
    struct strbuf *to;
    bool refused; /* the answer broke a rule: asking again will not help */
};

static int refuse(struct reading *x)
{
    x->refused = true;
    return -1;
}

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct reading *x = ctx;
    uint64_t first, last, size, length;
    char where[512];
    log_url(x->location->url, where, sizeof(where));
    x->promised = x->end - x->at;
    if (http_content_length(r, &length) && length != x->promised &&
        (http_status(r) == 206 || x->promised == x->size)) {
        err_set(err, ERR_UPSTREAM,
                "%s answered %u with Content-Length %" PRIu64 ", asked were %" PRIu64 " bytes",
                where, http_status(r), length, x->promised);
        return refuse(x);
    }
    if (http_status(r) == 200 && x->at == 0 && x->end == x->size)
        return 0;
    if (http_status(r) != 206) {
        err_set(err, ERR_UPSTREAM,
                "%s ignores Range: it answered %u to a request for bytes %" PRIu64 "-%" PRIu64,
                where, http_status(r), x->at, x->end - 1);
        return refuse(x);
    }
    if (!http_content_range(r, &first, &last, &size)) {
        const char *text = http_header(r, "Content-Range");
        err_set(err, ERR_UPSTREAM, "%s answered 206 with %s Content-Range %.80s", where,
                text ? "a malformed" : "no", text ? text : "");
        return refuse(x);
    }
    if (first == x->at && last == x->end - 1 && size == x->size)
        return 0;
    err_set(err, ERR_UPSTREAM,
            "%s: Content-Range is %" PRIu64 "-%" PRIu64 "/%" PRIu64 ", asked was %" PRIu64
            "-%" PRIu64 "/%" PRIu64,
            where, first, last, size, x->at, x->end - 1, x->size);
    return refuse(x);
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct reading *x = ctx;
    if (len > x->end - x->at) {
        char where[512];
        err_set(err, ERR_UPSTREAM, "%s sends more bytes than were asked for",
                log_url(x->location->url, where, sizeof(where)));
        return refuse(x);
    }
    strbuf_put(x->to, data, len);
    if (strbuf_failed(x->to)) {
        err_set(err, ERR_NOMEM, "out of memory for %zu bytes of a file", x->to->len + len);
        return refuse(x);
    }
    x->at += len;
    return 0;
}

enum outcome { READ_FAILED = -1, READ_DONE, READ_STALE, READ_AGAIN };

/* One request for what is missing. READ_STALE: the location is no longer good; READ_AGAIN: it broke
 * on the way. Both with *err set, in case that nothing else helps. */
static enum outcome read_once(struct reading *x, struct error *err)
{
    _cleanup_response_ struct http_response *r = NULL;
    struct http_request q = {.method = "GET",
                             .url = x->location->url,
                             .bearer = x->location->bearer,
                             .has_range = true,
                             .range_first = x->at,
                             .range_last = x->end - 1,
                             .on_headers = on_headers,
                             .on_data = on_data,
                             .ctx = x,
                             .deadline_ms = x->h->how.deadline_ms};
    if (hub_may_ask(x->h, x->id, q.url, err) < 0)
        return READ_FAILED;
    int rc = http_perform(x->h->pool, &q, &r, err);
    if (r)
        hub_asked(x->h, x->id, q.url, r);
    if (rc < 0) {
        bool passing = err->code == ERR_UPSTREAM || err->code == ERR_TIMEOUT;
        return passing && !x->refused ? READ_AGAIN : READ_FAILED;
    }
    unsigned status = http_status(r);
    if (status >= 200 && status < 300) {
        if (x->at == x->end)
            return READ_DONE;
        err_set(err, ERR_UPSTREAM, "%" PRIu64 " bytes of an answer are missing", x->end - x->at);
        return READ_AGAIN;
    }
    http_status_error(r, x->location->url, err);
    if (status == 401 || status == 403 || status == 404 || status == 410)
        return READ_STALE;
    return status >= 500 ? READ_AGAIN : READ_FAILED;
}

int hub_read_range(struct hub *h, const char *id, const char *commit, const char *path,
                   const struct digest *sha256, uint64_t size, struct http_location *location,
                   uint64_t first, size_t len, struct strbuf *to, struct error *err)
{
    struct error why = ERROR_INIT;
    if (len == 0)
        return 0;
    if (first >= size)
        return err_set(err, ERR_INVALID, "%.200s has %" PRIu64 " bytes, none at %" PRIu64, path,
                       size, first);
    size_t start = to->len;
    struct reading x = {.h = h,
                        .id = id,
                        .location = location,
                        .at = first,
                        .end = len < size - first ? first + len : size,
                        .size = size,
                        .to = to};
    /* A connection that brings less has brought nothing: it must end some day. */
    uint64_t least = (x.end - x.at) / 16 < PROGRESS_MIN ? (x.end - x.at) / 16 : PROGRESS_MIN;
    unsigned failures = 0; /* in a row, without progress in between */
    bool fresh = false;    /* located again since there was progress */
    for (;;) {
        uint64_t before = x.at;
        if (!location->url) {
            if (hub_locate(h, id, commit, path, sha256, size, location, &why) < 0)
                break;
            fresh = true;
        }
        enum outcome outcome = read_once(&x, &why);
        if (outcome == READ_DONE)
            return 0;
        if (x.at - before > least) {
            failures = 0;
            fresh = false;
        }
        if (outcome == READ_STALE && fresh) {
            err_wrap(&why, "the location that the Hub gave a moment ago is refused");
            break;
        }
        if (outcome == READ_FAILED || (outcome == READ_AGAIN && failures >= h->config->retries))
            break;
        if (outcome == READ_STALE)
            http_location_done(location);
        else if (http_pool_backoff(h->pool, failures++, 0, NULL, &why) < 0)
            break;
    }
    strbuf_truncate(to, start);
    if (err)
        *err = why;
    return -1;
}
