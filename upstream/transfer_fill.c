/* One download: locate, receive, hash, write, resume, verify, commit. Runs on the transfer's
 * thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "upstream/transfer_private.h"

#define BUFFER_SIZE (256u << 10)
#define FLUSH_AFTER_MS 50           /* a slow upstream's bytes do not wait for a full buffer */
#define BOUNDED_ABOVE (32ull << 30) /* the Hub's CDN refuses an unranged GET above 50 GB */
#define BOUNDED_RANGE (1ull << 30)
#define START_RETRIES 1 /* before the client has a status: fail soon, it can ask again */
#define START_PATIENCE_S 2
#define PROGRESS_MIN                                                                               \
    (64u << 10) /* fewer bytes from a connection are none: it must end some day                    \
                 */
#define RETRY_AFTER_MAX_S 30

/* ---- bytes into the file ------------------------------------------------------------------ */

static int flush(struct transfer *x, struct error *err)
{
    if (!x->buffered)
        return 0;
    size_t n = x->buffered;
    x->buffered = 0;
    if (hasher_update(x->hasher, x->buffer, n, err) < 0 ||
        writer_write(x->writer, x->buffer, n, x->written, err) < 0)
        return -1;
    x->written += n;
    transfer_publish(x, x->written);
    return 0;
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct transfer *x = ctx;
    const char *p = data;
    atomic_fetch_add_explicit(&x->table->stats.bytes, len, memory_order_relaxed);
    x->received += len;
    if (x->skip) {
        size_t n = x->skip < len ? (size_t)x->skip : len;
        x->skip -= n;
        p += n;
        len -= n;
    }
    if (len > x->expected - x->written - x->buffered)
        return err_set(err, ERR_UPSTREAM,
                       "the upstream sends more than the %" PRIu64 " bytes that it announced",
                       x->expected);
    while (len) {
        if (!x->buffered)
            x->buffered_since = clock_monotonic_ms();
        size_t n = BUFFER_SIZE - x->buffered < len ? BUFFER_SIZE - x->buffered : len;
        memcpy(x->buffer + x->buffered, p, n);
        x->buffered += n;
        p += n;
        len -= n;
        if (x->buffered == BUFFER_SIZE && flush(x, err) < 0)
            return -1;
    }
    if (x->buffered && clock_monotonic_ms() - x->buffered_since >= FLUSH_AFTER_MS)
        return flush(x, err);
    return 0;
}

/* What an earlier attempt left is believed only as far as it hashes to the right whole; readers get
 * it while it is hashed. */
static int take_over_partial(struct transfer *x, struct error *err)
{
    uint64_t resumed = writer_resumed(x->writer);
    while (x->written < resumed) {
        if (atomic_load(&x->cancel))
            return err_set(err, ERR_CANCELLED, "the transfer was stopped");
        uint64_t left = resumed - x->written;
        size_t n = left < BUFFER_SIZE ? (size_t)left : BUFFER_SIZE;
        ssize_t got = writer_read(x->writer, x->written, x->buffer, n, err);
        if (got < 0)
            return -1;
        if (got == 0)
            return err_set(err, ERR_IO, "a partial download is shorter than its record");
        if (hasher_update(x->hasher, x->buffer, (size_t)got, err) < 0)
            return -1;
        x->written += (uint64_t)got;
        transfer_publish(x, x->written);
    }
    atomic_fetch_add(&x->table->stats.resumed_bytes, resumed);
    return 0;
}

/* ---- one exchange ------------------------------------------------------------------------- */

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct transfer *x = ctx;
    uint64_t first, last, size, length;
    unsigned status = http_status(r);
    if (status == 206) {
        if (!http_content_range(r, &first, &last, &size))
            return err_set(err, ERR_UPSTREAM, "the upstream's 206 has no valid Content-Range");
        if (first != x->written || size != x->size || last >= x->expected)
            return err_set(err, ERR_UPSTREAM,
                           "asked for bytes %" PRIu64 "-%" PRIu64 " of %" PRIu64
                           ", the upstream sends %" PRIu64 "-%" PRIu64 " of %" PRIu64,
                           x->written, x->expected - 1, x->size, first, last, size);
        x->expected = last + 1;
        x->skip = 0;
    } else if (status == 200) {
        if (http_content_length(r, &length) && length != x->size)
            return err_set(err, ERR_UPSTREAM,
                           "the upstream announces %" PRIu64 " bytes, the file has %" PRIu64,
                           length, x->size);
        x->expected = x->size;
        x->skip = x->written; /* it ignored our Range; the object is the same, so count it off */
    } else {
        return err_set(err, ERR_UPSTREAM, "the upstream answers %u to a download", status);
    }
    transfer_advance(x, TRANSFER_HEADERS);
    return 0;
}

enum outcome {
    OUT_PROGRESS, /* go on from where we are */
    OUT_RETRY,    /* the connection or the upstream failed: wait, then again */
    OUT_RELOCATE, /* the location went stale */
    OUT_FATAL,    /* no use in trying again */
};

static enum outcome judge_status(const struct http_response *r, const char *url, struct error *err)
{
    char shown[200];
    unsigned status = http_status(r);
    http_status_error(r, url, err);
    switch (status) {
    case 401:
    case 403:
    case 404:
    case 410:
        /* Our right to read it was just confirmed: it is the signed URL that is refused. */
        err->code = ERR_UPSTREAM;
        err_wrap(err, "%s refused a URL that the upstream had just given",
                 log_url(url, shown, sizeof(shown)));
        return OUT_RELOCATE;
    case 416:
        return OUT_FATAL;
    default:
        return status == 408 || status == 429 || status >= 500 ? OUT_RETRY : OUT_FATAL;
    }
}

static enum outcome judge_failure(const struct error *err)
{
    switch (err->code) {
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_RATE_LIMITED:
    case ERR_BUSY:
        return OUT_RETRY;
    default:
        return OUT_FATAL;
    }
}

static enum outcome exchange(struct transfer *x, const struct http_location *l, struct error *err)
{
    _cleanup_response_ struct http_response *r = NULL;
    bool bounded = x->size > BOUNDED_ABOVE;
    x->expected = x->size;
    if (bounded && x->size - x->written > BOUNDED_RANGE)
        x->expected = x->written + BOUNDED_RANGE;
    struct http_request q = {
        .method = "GET",
        .url = l->url,
        .bearer = l->bearer,
        .has_range = x->written > 0 || bounded,
        .range_first = x->written,
        .range_last = bounded ? x->expected - 1 : UINT64_MAX,
        .on_headers = on_headers,
        .on_data = on_data,
        .ctx = x,
        .cancel = &x->cancel,
    };
    int rc = http_perform(x->source.pool, &q, &r, err);
    struct error late = ERROR_INIT;
    if (flush(x, &late) < 0) { /* what came before the break is good */
        *err = late;
        return OUT_FATAL;
    }
    if (rc < 0)
        return judge_failure(err);
    if (http_status(r) / 100 != 2)
        return judge_status(r, l->url, err);
    if (x->written != x->expected) {
        err_set(err, ERR_UPSTREAM, "the upstream stopped at byte %" PRIu64 " of %" PRIu64,
                x->written, x->expected);
        return OUT_RETRY;
    }
    return OUT_PROGRESS;
}

/* ---- the whole of it ---------------------------------------------------------------------- */

static bool reached_headers(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    bool reached = x->state >= TRANSFER_HEADERS;
    pthread_mutex_unlock(&x->lock);
    return reached;
}

/* Waits before the next attempt; false when there is none, for the reason that err tells. */
static bool may_retry(struct transfer *x, unsigned *failures, struct error *err)
{
    bool started = reached_headers(x);
    unsigned patience_s = started ? RETRY_AFTER_MAX_S : START_PATIENCE_S;
    if (++*failures > (started ? x->source.retries : START_RETRIES) ||
        err->retry_after > patience_s)
        return false;
    return http_pool_backoff(x->source.pool, *failures - 1, err->retry_after, &x->cancel, err) == 0;
}

static int locate(struct transfer *x, struct http_location *l, unsigned *failures,
                  struct error *err)
{
    http_location_done(l);
    while (x->source.locate(x->source.ctx, l, err) < 0)
        if (judge_failure(err) != OUT_RETRY || !may_retry(x, failures, err))
            return -1;
    return 0;
}

static int receive(struct transfer *x, struct http_location *l, struct error *err)
{
    unsigned failures = 0; /* since there was progress */
    bool relocated = false;
    while (x->written < x->size) {
        uint64_t before = x->written;
        if (atomic_load(&x->cancel))
            return err_set(err, ERR_CANCELLED, "the transfer was stopped");
        enum outcome outcome = exchange(x, l, err);
        if (x->written - before >= PROGRESS_MIN || x->written == x->size) {
            failures = 0;
            relocated = false;
        } else if (outcome == OUT_PROGRESS) {
            err_set(err, ERR_UPSTREAM, "the upstream gave only %" PRIu64 " of %" PRIu64 " bytes",
                    x->written - before, x->size - before);
            outcome = OUT_RETRY;
        }
        if (outcome == OUT_PROGRESS)
            continue;
        if (outcome == OUT_FATAL)
            return -1;
        if (outcome == OUT_RELOCATE) {
            if (relocated)
                return -1;
            relocated = true;
        } else if (!may_retry(x, &failures, err)) {
            return -1;
        }
        /* A new connection gets a fresh location: the old one may be what broke, and the upstream
         * is asked again whether it still has this very object. */
        if (locate(x, l, &failures, err) < 0)
            return -1;
    }
    return 0;
}

static int verify(struct transfer *x, struct error *err)
{
    struct digest got;
    char want_text[DIGEST_TEXT_MAX], got_text[DIGEST_TEXT_MAX];
    if (hasher_peek(x->hasher, &got, err) < 0)
        return -1;
    if (digest_equal(&got, &x->digest))
        return 0;
    /* First make it known, durably: from now on nobody may join a wrong beginning to a right end.
     */
    struct error ignored;
    int noted = store_mismatch_put(x->table->store, &x->digest,
                                   clock_wall_s() + TRANSFER_MISMATCH_S, &ignored);
    err_set(err, ERR_DIGEST_MISMATCH,
            "the bytes from upstream \"%s\" hash to %s, not to the %s that it promised: nothing of "
            "them is kept%s",
            x->source.upstream, digest_format(&got, got_text), digest_format(&x->digest, want_text),
            noted < 0 ? " (and that could not be recorded)" : "");
    return -1;
}

static int open_writer(struct transfer *x, struct error *err)
{
    struct blob_writer *w = NULL;
    if (writer_open(x->table->store, &x->digest, x->size, &w, err) < 0)
        return -1;
    pthread_mutex_lock(&x->lock);
    x->writer = w;
    pthread_mutex_unlock(&x->lock);
    /* The whole file has been allocated by now, so what is free is what would be left. */
    return store_has_room(x->table->store, 0, err);
}

static int fill_located(struct transfer *x, struct http_location *l, struct error *err)
{
    unsigned failures = 0;
    if (locate(x, l, &failures, err) < 0 || open_writer(x, err) < 0)
        return -1;
    if (writer_resumed(x->writer)) {
        /* The upstream has confirmed the object: what is here can be read while it is hashed. */
        transfer_advance(x, TRANSFER_HEADERS);
        if (take_over_partial(x, err) < 0)
            return -1;
    }
    if (receive(x, l, err) < 0 || verify(x, err) < 0)
        return -1;
    return writer_commit(x->writer, x->size, err);
}

int transfer_fill(struct transfer *x, struct error *err)
{
    x->buffer = malloc(BUFFER_SIZE);
    if (!x->buffer)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    struct http_location l = {0};
    int rc = fill_located(x, &l, err);
    http_location_done(&l);
    free(TAKE_PTR(x->buffer));
    return rc;
}
