/* One exchange with the upstream: asks for the open part of a claim, takes only what was asked for,
 * writes it where it belongs, and hashes it when it is next in line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "upstream/blame.h"
#include "upstream/limiter.h"
#include "upstream/transfer_private.h"

#define FLUSH_AFTER_MS 50           /* a slow upstream's bytes do not wait for a full buffer */
#define BOUNDED_ABOVE (32ull << 30) /* the Hub's CDN refuses an unranged GET above 50 GB */
#define BOUNDED_RANGE (1ull << 30)
#define REDIRECTS 5
#define CATCH_UP 16u /* buffers hashed between two of one's own: the connection waits meanwhile */

/* ---- bytes into the file ------------------------------------------------------------------ */

/* Under x->lock. */
static void wake(struct transfer *x)
{
    if (x->lead_waits || x->range_waits)
        pthread_cond_broadcast(&x->cond);
}

static int write_out(struct transfer *x, const char *data, size_t n, uint64_t at, struct error *err)
{
    pthread_mutex_lock(&x->writing);
    int rc = writer_write(x->writer, data, n, at, err);
    pthread_mutex_unlock(&x->writing);
    return rc;
}

/* Whether these bytes are the next ones to hash, which nobody else does then. */
static bool take_turn(struct transfer *x, uint64_t at)
{
    pthread_mutex_lock(&x->lock);
    bool ours = x->hashed == at && !x->hashing;
    x->hashing = x->hashing || ours;
    pthread_mutex_unlock(&x->lock);
    return ours;
}

/* Bytes are hashed and shown to readers when they are in the file. Those that are not next in line
 * are read from there again in their turn. */
static int put(struct fetch *f, size_t n, struct error *err)
{
    struct transfer *x = f->x;
    if (f->kind == FETCH_PART) {
        transfer_part_put(f, n);
        return 0;
    }
    if (x->through)
        return transfer_through_put(f, n, err);
    if (write_out(x, f->buffer, n, f->at, err) < 0)
        return -1;
    bool hashes = take_turn(x, f->at);
    int rc = hashes ? hasher_update(x->hasher, f->buffer, n, err) : 0;
    pthread_mutex_lock(&x->lock);
    if (rc == 0 && !extents_add(&x->here, f->at, f->at + n))
        rc = err_set(err, ERR_NOMEM, "out of memory for a transfer");
    if (rc == 0)
        f->at += n;
    if (hashes) {
        x->hashing = false;
        if (rc == 0) {
            x->hashed += n;
            transfer_publish(x);
        }
    }
    wake(x);
    pthread_mutex_unlock(&x->lock);
    return rc;
}

/* Somebody may have been given the rest of our claim meanwhile. */
uint64_t transfer_claim_end(struct fetch *f)
{
    pthread_mutex_lock(&f->x->lock);
    uint64_t end = f->end;
    pthread_mutex_unlock(&f->x->lock);
    return end;
}

static int flush(struct fetch *f, struct error *err)
{
    if (!f->buffered)
        return 0;
    uint64_t end = transfer_claim_end(f);
    size_t n = f->buffered;
    if (n > end - f->at)
        n = (size_t)(end - f->at);
    f->buffered = 0;
    uint64_t began_us = clock_monotonic_us();
    if (n && (put(f, n, err) < 0 || transfer_hash_on(f->x, f->buffer, CATCH_UP, err) < 0)) {
        transfer_break(f->x, err);
        return -1;
    }
    f->flushed_us += clock_monotonic_us() - began_us;
    if (f->at == end && end < f->expected) {
        f->enough = true;
        return err_set(err, ERR_CANCELLED, "the rest comes over another connection");
    }
    transfer_measure(f);
    return 0;
}

static bool must_give_way(struct fetch *f)
{
    return f->kind == FETCH_EXTRA && http_pool_is_wanted(f->x->source.pool);
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct fetch *f = ctx;
    struct transfer *x = f->x;
    const char *p = data;
    atomic_fetch_add_explicit(&x->table->stats.bytes, len, memory_order_relaxed);
    atomic_fetch_add_explicit(&x->received, len, memory_order_relaxed);
    if (x->source.limiter && limiter_take(x->source.limiter, len, &x->halt, err) < 0)
        return -1;
    if (f->skip) {
        size_t n = f->skip < len ? (size_t)f->skip : len;
        f->skip -= n;
        p += n;
        len -= n;
    }
    if (len > f->expected - f->at - f->buffered)
        return err_set(err, ERR_UPSTREAM,
                       "upstream %s sends more than the %" PRIu64 " bytes that it announced",
                       x->source.upstream, f->expected);
    while (len) {
        if (!f->buffered)
            f->buffered_since = clock_monotonic_ms();
        size_t n = TRANSFER_BUFFER - f->buffered < len ? TRANSFER_BUFFER - f->buffered : len;
        memcpy(f->buffer + f->buffered, p, n);
        f->buffered += n;
        p += n;
        len -= n;
        if (f->buffered == TRANSFER_BUFFER && flush(f, err) < 0)
            return -1;
    }
    if (must_give_way(f)) {
        f->enough = f->give_way = true;
        return err_set(err, ERR_CANCELLED, "another download needs the connection");
    }
    if (f->buffered && clock_monotonic_ms() - f->buffered_since >= FLUSH_AFTER_MS)
        return flush(f, err);
    return 0;
}

/* ---- the answer's header ------------------------------------------------------------------ */

static int unfit(struct fetch *f, struct error *err, const char *why)
{
    f->unfit = true;
    return err_set(err, ERR_UPSTREAM, "no part of the file could be fetched by itself: %s", why);
}

/* Another size is another object, or what we were told of this one is wrong. */
static int contradict(struct transfer *x, uint64_t said, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    x->contradicted = true;
    x->said = said;
    pthread_mutex_unlock(&x->lock);
    return err_set(err, ERR_UPSTREAM,
                   "upstream \"%s\" has %" PRIu64 " bytes under this digest%s%s, where %" PRIu64
                   " are expected",
                   x->source.upstream, said, x->source.repository ? " in " : "",
                   x->source.repository ? x->source.repository : "", x->size);
}

static int check_span(struct fetch *f, const struct http_response *r, struct error *err)
{
    struct transfer *x = f->x;
    uint64_t first, last, size, length;
    unsigned status = http_status(r);
    if (status == 206) {
        if (!http_content_range(r, &first, &last, &size))
            return err_set(err, ERR_UPSTREAM, "the 206 of upstream %s has no valid Content-Range",
                           x->source.upstream);
        if (size != x->size)
            return contradict(x, size, err);
        if (first != f->at || last >= f->expected)
            return err_set(err, ERR_UPSTREAM,
                           "asked for bytes %" PRIu64 "-%" PRIu64 " of %" PRIu64
                           ", upstream %s sends %" PRIu64 "-%" PRIu64 " of %" PRIu64,
                           f->at, f->expected - 1, x->size, x->source.upstream, first, last, size);
        f->expected = last + 1;
        f->skip = 0;
        return 0;
    }
    if (status != 200)
        return err_set(err, ERR_UPSTREAM, "upstream %s answers %u to a download",
                       x->source.upstream, status);
    if (http_content_length(r, &length) && length != x->size)
        return contradict(x, length, err);
    if (f->kind != FETCH_LEAD)
        return unfit(f, err, "the upstream does not answer ranges");
    f->expected = x->size;
    f->skip = f->at; /* it ignored our Range; the object is the same, so count it off */
    return 0;
}

/* A registry may say what it sends. */
static int check_digest(const struct fetch *f, const struct http_response *r, struct error *err)
{
    const char *text = http_header(r, "Docker-Content-Digest");
    struct digest d;
    if (!text || digest_parse(text, &d, NULL) < 0 || d.alg != f->x->digest.alg ||
        digest_equal(&d, &f->x->digest))
        return 0;
    return err_set(err, ERR_UPSTREAM, "upstream %s answers with another blob, %.140s",
                   f->x->source.upstream, text);
}

static bool is_strong(const char *etag)
{
    return etag && *etag == '"' && strlen(etag) < sizeof(((struct transfer *)0)->etag);
}

/* The first answer says what the others have to agree with. A connection that must go on (the
 * lead's) is not bound: whether the bytes fit together is for the digest to say. */
static int check_validator(struct fetch *f, const struct http_response *r, struct error *err)
{
    struct transfer *x = f->x;
    const char *etag = http_header(r, "ETag"), *ranges = http_header(r, "Accept-Ranges");
    bool differs = false;
    pthread_mutex_lock(&x->lock);
    if (!x->answered && is_strong(etag))
        strcpy(x->etag, etag);
    else if (x->answered && f->kind != FETCH_LEAD)
        differs = x->etag[0] && is_strong(etag) && strcmp(etag, x->etag) != 0;
    x->answered = true;
    x->contradicted = false;
    x->ranges = x->ranges || http_status(r) == 206 || (ranges && strcasecmp(ranges, "bytes") == 0);
    pthread_mutex_unlock(&x->lock);
    return differs ? unfit(f, err, "the upstream's answers have different ETags") : 0;
}

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct fetch *f = ctx;
    if (check_span(f, r, err) < 0 || check_digest(f, r, err) < 0 || check_validator(f, r, err) < 0)
        return -1;
    transfer_accepted(f->x, f->aim);
    transfer_remember(f->x, f->aim);
    transfer_advance(f->x, TRANSFER_HEADERS);
    return 0;
}

/* ---- judging ------------------------------------------------------------------------------ */

static enum outcome judge_status(const struct transfer *x, const struct aim *a,
                                 const struct http_response *r, struct error *err)
{
    char shown[200];
    unsigned status = http_status(r);
    http_status_error(r, a->url, err);
    switch (status) {
    case 401:
    case 403:
    case 404:
    case 410:
        /* A registry's own answer: it does not have the blob, or not for us. */
        if (x->source.challenged && !a->direct && strcmp(a->url, a->base) == 0)
            return OUT_FATAL;
        /* Our right to read it was just confirmed: it is the signed URL that is refused. */
        err->code = ERR_UPSTREAM;
        if (x->source.challenged && upstream_wants_login(r) && !http_same_origin(a->base, a->url))
            upstream_strange_login(err, x->source.upstream, a->url, status);
        else
            err_wrap(err, "%s refused a URL that the upstream had just given",
                     log_url(a->url, shown, sizeof(shown)));
        return OUT_RELOCATE;
    case 416:
        return OUT_FATAL;
    default:
        return status == 408 || status == 429 || (status >= 500 && status != 508) ? OUT_RETRY
                                                                                  : OUT_FATAL;
    }
}

enum outcome transfer_judge(const struct error *err)
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

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* ---- the exchange ------------------------------------------------------------------------- */

static uint64_t connect_by(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    uint64_t ms = x->state < TRANSFER_HEADERS && !x->begun ? x->source.connect_by_ms : 0;
    pthread_mutex_unlock(&x->lock);
    return ms;
}

static int perform(struct fetch *f, const struct aim *a, struct http_response **ret,
                   struct error *err)
{
    struct transfer *x = f->x;
    uint64_t end = transfer_claim_end(f);
    bool bounded = x->size > BOUNDED_ABOVE;
    if (bounded && end - f->at > BOUNDED_RANGE)
        end = f->at + BOUNDED_RANGE;
    bool closed = bounded || end < x->size;
    f->expected = end;
    bool is_own = http_same_origin(a->base, a->url);
    struct http_request q = {
        .method = "GET",
        .url = a->url,
        .authorization = is_own ? a->authorization : NULL,
        .cdn_loop = is_own ? x->source.cdn_loop : NULL,
        .has_range = f->at > 0 || closed,
        .range_first = f->at,
        .range_last = closed ? end - 1 : UINT64_MAX,
        .on_headers = on_headers,
        .on_data = on_data,
        .ctx = f,
        .spare = f->kind == FETCH_EXTRA,
        .connect_by_ms = connect_by(x),
        .cancel = &x->halt,
    };
    return http_perform(x->source.pool, &q, ret, err);
}

/* The whole way to the bytes: redirects, and once another credential. */
static int reach(struct fetch *f, struct aim *a, struct http_response **ret, struct error *err)
{
    struct transfer *x = f->x;
    for (unsigned hops = 0;;) {
        http_response_free(TAKE_PTR(*ret));
        int rc = perform(f, a, ret, err);
        if (rc < 0)
            return rc;
        unsigned status = http_status(*ret);
        if (is_redirect(status)) {
            char shown[512];
            transfer_accepted(x, a);
            if (++hops > REDIRECTS)
                return err_set(err, ERR_UPSTREAM, "%s: more than %u redirects",
                               log_url(a->url, shown, sizeof(shown)), REDIRECTS);
            if (transfer_follow(a, *ret, err) < 0)
                return -1;
        } else if (status == 401 && x->source.challenged && !f->asked_again &&
                   http_same_origin(a->base, a->url)) {
            f->asked_again = true;
            rc = transfer_challenge(x, a, *ret, err);
            if (rc <= 0)
                return rc;
        } else {
            return 0;
        }
    }
}

static enum outcome conclude(struct fetch *f, int rc, const struct aim *a,
                             const struct http_response *r, struct error *err)
{
    struct error late = ERROR_INIT;
    if (flush(f, &late) < 0 && !f->enough) { /* what came before the break is good */
        *err = late;
        return OUT_FATAL;
    }
    if (f->enough)
        return OUT_PROGRESS;
    if (rc < 0)
        return transfer_judge(err);
    if (http_status(r) / 100 != 2)
        return judge_status(f->x, a, r, err);
    if (f->at < f->expected) {
        err_set(err, ERR_UPSTREAM, "upstream %s stopped at byte %" PRIu64 " of %" PRIu64,
                f->x->source.upstream, f->at, f->expected);
        return OUT_RETRY;
    }
    return OUT_PROGRESS;
}

enum outcome transfer_exchange(struct fetch *f, struct error *err)
{
    _cleanup_(aim_done) struct aim a = {0};
    _cleanup_response_ struct http_response *r = NULL;
    f->enough = f->unfit = f->give_way = f->asked_again = false;
    f->skip = 0;
    if (transfer_aim(f->x, &a, err) < 0)
        return OUT_FATAL;
    f->aim = &a;
    int rc = reach(f, &a, &r, err);
    f->aim = NULL;
    return conclude(f, rc, &a, r, err);
}
