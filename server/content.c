#include "server/content.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Allocated for each answer that streams: 1,000 readers of a download hold 64 MiB of them. */
#define BLOCK_SIZE ((size_t)64 * 1024)
#define WAIT_MS 1000u /* between looks at the client and at the server's state */

struct body {
    struct request *q; /* valid while the content reader is called, not in body_free() */
    struct reader *reader;
    uint64_t first, length;
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
static struct MHD_Response *from_file(const struct content *c, int reader_fd, struct error *err)
{
    _cleanup_close_ int fd = fcntl(reader_fd, F_DUPFD_CLOEXEC, 3);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_errno(err, "open %s for sending", c->name);
        return NULL;
    }
    /* libmicrohttpd spins on a file that is shorter than it was told. */
    if ((uint64_t)st.st_size < c->first + c->length) {
        err_set(err, ERR_IO, "%s has %jd bytes on disk instead of %" PRIu64, c->name,
                (intmax_t)st.st_size, c->size);
        return NULL;
    }
    struct MHD_Response *r = MHD_create_response_from_fd_at_offset64(c->length, fd, c->first);
    if (r)
        TAKE_FD(fd);
    else
        err_set(err, ERR_NOMEM, "out of memory");
    return r;
}

static struct MHD_Response *from_reader(struct request *q, const struct content *c,
                                        struct reader **reader, struct error *err)
{
    struct body *b = calloc(1, sizeof(*b));
    struct MHD_Response *r = NULL;
    if (b) {
        *b = (struct body){.q = q, .first = c->first, .length = c->length};
        r = MHD_create_response_from_callback(c->length, BLOCK_SIZE, body_read, b, body_free);
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

struct MHD_Response *content_response(struct request *q, const struct content *c,
                                      struct reader **reader, struct error *err)
{
    int fd = reader_fd(*reader);
    if (c->length == 0) {
        struct MHD_Response *r = reply_empty(0);
        if (!r)
            err_set(err, ERR_NOMEM, "out of memory");
        return r;
    }
    return fd >= 0 ? from_file(c, fd, err) : from_reader(q, c, reader, err);
}

/* Ranges belong to GET only (RFC 9110, 14.2). */
enum range_result content_asked(const struct request *q, const char *etag, struct content *c)
{
    const char *range = q->is_head ? NULL : request_header(q, "Range");
    const char *if_range = range ? request_header(q, "If-Range") : NULL;
    enum range_result asked = RANGE_WHOLE;
    c->first = 0;
    c->length = c->size;
    if (range && (!if_range || range_if_range(if_range, etag)))
        asked = range_parse(range, c->size, &c->first, &c->length);
    c->is_part = asked == RANGE_PART;
    return asked;
}

bool content_put_range(struct MHD_Response *r, const struct content *c)
{
    char text[96];
    snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, c->first,
             c->first + c->length - 1, c->size);
    return reply_put(r, "Content-Range", text);
}

bool content_put_unsatisfied(struct MHD_Response *r, uint64_t size)
{
    char text[48];
    snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
    return reply_put(r, "Content-Range", text);
}

const char *content_cache(enum reader_kind kind)
{
    return kind == READER_HIT ? "hit" : kind == READER_FILL ? "fill" : "join";
}
