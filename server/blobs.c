/* GET and HEAD of a blob: from a held file with sendfile, or from a running transfer with a content
 * reader that waits for bytes.
 *
 * What leaves on a 200 or 206 is always a prefix of the range that was promised; a failure after
 * the status line is shown by closing the connection short of Content-Length and by nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "server/names.h"
#include "server/range.h"
#include "server/request.h"

/* Allocated for each answer that streams: 1,000 readers of a download hold 64 MiB of them. */
#define BLOCK_SIZE ((size_t)64 * 1024)
#define WAIT_MS 1000u /* between looks at the client and at the server's state */
#define FOREVER "max-age=31536000"

struct body {
    struct request *q; /* valid while the content reader is called, not in body_free() */
    struct reader *reader;
    uint64_t first, length;
};

struct blob_request {
    char digest[DIGEST_TEXT_MAX];
    char etag[DIGEST_TEXT_MAX + 2];
    uint64_t size, first, length;
    bool is_part;
    bool again; /* its size was found out to be another one than was known at first */
};

static void body_free(void *cls)
{
    struct body *b = cls;
    reader_close(b->reader);
    free(b);
}

/* Waits for bytes in steps. An error ends the connection, whatever was promised before. */
static ssize_t body_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct body *b = cls;
    struct request *q = b->q;
    uint64_t left = pos < b->length ? b->length - pos : 0;
    bool waited = false;
    if (left == 0)
        return MHD_CONTENT_READER_END_OF_STREAM;
    for (;;) {
        bool waiting = false;
        ssize_t n = reader_read(b->reader, b->first + pos, buf, left < max ? (size_t)left : max,
                                WAIT_MS, &waiting, &q->error);
        if (n > 0) {
            if (waited)
                request_reset_timeout(q);
            q->body_sent += (uint64_t)n;
            return n;
        }
        if (n < 0)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (!waiting) {
            err_set(&q->error, ERR_INTERNAL,
                    "the blob ends at byte %" PRIu64 ", %" PRIu64 " short of its size",
                    b->first + pos, left);
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        waited = true;
        if (atomic_load(&q->server->stopping)) {
            err_set(&q->error, ERR_CANCELLED, "the server is stopping");
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (request_client_gone(q)) {
            err_set(&q->error, ERR_CANCELLED, "the client left while it waited for bytes");
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
}

/* A descriptor of its own for each answer: libmicrohttpd closes it, and one shared between clients
 * would serialise them. NULL with an error when the file is not what its row says. */
static struct MHD_Response *from_file(const struct blob_request *br, int reader_fd,
                                      struct error *err)
{
    _cleanup_close_ int fd = fcntl(reader_fd, F_DUPFD_CLOEXEC, 3);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_errno(err, "open blob %s for sending", br->digest);
        return NULL;
    }
    /* libmicrohttpd spins on a file that is shorter than it was told. */
    if ((uint64_t)st.st_size < br->first + br->length) {
        err_set(err, ERR_IO, "blob %s has %jd bytes on disk instead of %" PRIu64, br->digest,
                (intmax_t)st.st_size, br->size);
        return NULL;
    }
    struct MHD_Response *r = MHD_create_response_from_fd_at_offset64(br->length, fd, br->first);
    if (r)
        TAKE_FD(fd);
    else
        err_set(err, ERR_NOMEM, "out of memory");
    return r;
}

static struct MHD_Response *from_reader(struct request *q, const struct blob_request *br,
                                        struct reader **reader, struct error *err)
{
    struct body *b = calloc(1, sizeof(*b));
    struct MHD_Response *r = NULL;
    if (b) {
        *b = (struct body){.q = q, .first = br->first, .length = br->length};
        r = MHD_create_response_from_callback(br->length, BLOCK_SIZE, body_read, b, body_free);
    }
    if (!r) {
        free(b);
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    b->reader = TAKE_PTR(*reader);
    q->counts_body = true;
    return r;
}

/* ollama's client wants to be told where a blob is even when it is given the blob; the address is
 * the one that the client itself used. */
static bool put_location(struct MHD_Response *r, const struct request *q, const char *digest)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    request_base_url(q, &url);
    strbuf_printf(&url, "/v2/%s/blobs/%s", q->route.name, digest);
    names_put_ns(q, '?', &url);
    return !strbuf_failed(&url) && reply_put(r, "Location", strbuf_str(&url));
}

static enum MHD_Result send_blob(struct request *q, const struct blob_request *br, unsigned status,
                                 struct MHD_Response *r)
{
    char text[96];
    bool ok = reply_put(r, "Docker-Content-Digest", br->digest) && reply_put(r, "ETag", br->etag) &&
              reply_put(r, "Cache-Control", FOREVER);
    if (status != 304)
        ok = ok && reply_put(r, "Accept-Ranges", "bytes") &&
             reply_put(r, "Content-Type", "application/octet-stream");
    if (status == 200)
        ok = ok && put_location(r, q, br->digest);
    if (status == 206) {
        snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, br->first,
                 br->first + br->length - 1, br->size);
        ok = ok && reply_put(r, "Content-Range", text);
    }
    if (!ok && r) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head || status == 304 ? 0 : br->length;
    return reply(q, status, r);
}

static enum MHD_Result send_unsatisfiable(struct request *q, const struct blob_request *br)
{
    char range[48], text[128];
    snprintf(range, sizeof(range), "bytes */%" PRIu64, br->size);
    snprintf(text, sizeof(text), "the range lies outside the blob's %" PRIu64 " bytes", br->size);
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    error_body(&body, "SIZE_INVALID", text, q->id, NULL);
    q->body_length = body.len;
    struct MHD_Response *r = reply_from_text(&body);
    if (!reply_put(r, "Content-Range", range) || !reply_put(r, "Accept-Ranges", "bytes") ||
        !reply_put(r, "Content-Type", "application/json")) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply(q, 416, r);
}

static const char *cache_word(enum reader_kind kind)
{
    return kind == READER_HIT ? "hit" : kind == READER_FILL ? "fill" : "join";
}

static void close_reader(struct reader **r)
{
    reader_close(*r);
}

static enum MHD_Result serve(struct request *q, struct blob_request *br);

static enum MHD_Result get_blob(struct request *q, struct blob_request *br)
{
    struct error err = ERROR_INIT;
    _cleanup_(close_reader) struct reader *reader = NULL;
    if (reader_open(q->server->upstreams, q->route.ref.repository, &q->route.ref.digest, br->first,
                    br->first + br->length, &reader, &err) < 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    uint64_t size = reader_size(reader);
    q->cache = cache_word(reader_kind(reader));
    if (size != br->size && !br->again) {
        close_reader(&reader);
        reader = NULL;
        br->again = true;
        return serve(q, br);
    }
    if (size != br->size) {
        err_set(&err, ERR_BUSY,
                "blob %s: it was said to have %" PRIu64 " bytes, and now %" PRIu64 ": try again",
                br->digest, br->size, size);
        return reply_error(q, RESOURCE_BLOB, &err);
    }
    int fd = reader_fd(reader);
    struct MHD_Response *r;
    if (br->length == 0)
        r = reply_empty(0);
    else if (fd >= 0)
        r = from_file(br, fd, &err);
    else
        r = from_reader(q, br, &reader, &err);
    if (!r)
        return reply_error(q, RESOURCE_BLOB, &err);
    return send_blob(q, br, br->is_part ? 206 : 200, r);
}

/* Ranges belong to GET only (RFC 9110, 14.2). */
static enum range_result asked_range(const struct request *q, struct blob_request *br)
{
    const char *range = q->is_head ? NULL : request_header(q, "Range");
    const char *if_range = range ? request_header(q, "If-Range") : NULL;
    if (!range || (if_range && !range_if_range(if_range, br->etag)))
        return RANGE_WHOLE;
    return range_parse(range, br->size, &br->first, &br->length);
}

static enum MHD_Result serve(struct request *q, struct blob_request *br)
{
    struct error err = ERROR_INIT;
    const struct reference *ref = &q->route.ref;
    const char *none_match = request_header(q, "If-None-Match");
    /* Always first, so that HEAD, a conditional GET and a ranged one say what a plain one says. */
    int found = reader_stat(q->server->upstreams, ref->repository, &ref->digest, &br->size, &err);
    if (found == 0)
        reader_no_blob(q->server->upstreams, ref->repository, &ref->digest, &err);
    if (found <= 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    br->first = 0;
    br->length = br->size;
    if (none_match && etag_none_match(none_match, br->etag))
        return send_blob(q, br, 304, reply_empty(br->size));
    if (q->is_head)
        return send_blob(q, br, 200, reply_empty(br->size));
    enum range_result range = asked_range(q, br);
    if (range == RANGE_UNSATISFIABLE)
        return send_unsatisfiable(q, br);
    br->is_part = range == RANGE_PART;
    return get_blob(q, br);
}

enum MHD_Result blobs_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct blob_request br = {0};
    if (request_may(q, ACCESS_PULL, &err) < 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    digest_format(&q->route.ref.digest, br.digest);
    snprintf(br.etag, sizeof(br.etag), "\"%s\"", br.digest);
    return serve(q, &br);
}
