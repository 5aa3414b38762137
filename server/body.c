/* Bodies of requests: collected for the sink that wants one, thrown away where nobody does. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/request.h"

/* The library hands out pieces of half its memory for a connection (16 KiB); hashing and writing
 * are cheaper in larger ones. */
#define BUFFER_FIRST ((size_t)64 * 1024)
#define BUFFER_LARGE ((size_t)256 * 1024)
#define LARGE_AFTER ((uint64_t)1024 * 1024)
#define LARGE_AT_ONCE 256u      /* of them in the server: 64 MiB */
#define BLOCKED_LONG_US 200000u /* worth resetting the connection's clock */

static bool make_buffer(struct request *q, size_t size)
{
    char *data = malloc(size);
    if (!data)
        return false;
    free(q->buffer);
    q->buffer = data;
    q->buffer_size = size;
    return true;
}

/* The buffer is empty when this is called. Without memory for a larger one the first will do. */
static bool size_buffer(struct request *q)
{
    size_t first = BUFFER_FIRST;
    if (q->framing.has_length && q->framing.length < first)
        first = (size_t)q->framing.length;
    if (!q->buffer)
        return make_buffer(q, first ? first : 1);
    if (q->received > LARGE_AFTER && !q->has_large_buffer) {
        atomic_uint *n = &q->server->large_buffers;
        q->has_large_buffer =
            atomic_fetch_add(n, 1) < LARGE_AT_ONCE && make_buffer(q, BUFFER_LARGE);
        if (!q->has_large_buffer)
            atomic_fetch_sub(n, 1);
    }
    return true;
}

void body_flush(struct request *q)
{
    if (!q->sink.write || q->body_failed || q->buffer_len == 0)
        return;
    uint64_t begun = clock_monotonic_us();
    connection_answers(q); /* the client waits for our disk: not its fault */
    q->body_failed = q->sink.write(q, q->buffer, q->buffer_len, &q->body_error) < 0;
    q->buffer_len = 0;
    connection_waits(q->connection);
    if (clock_monotonic_us() - begun > BLOCKED_LONG_US)
        request_reset_timeout(q);
}

static void collect(struct request *q, const char *data, size_t len)
{
    while (len && !q->body_failed) {
        if (q->buffer_len == 0 && !size_buffer(q)) {
            err_set(&q->body_error, ERR_NOMEM, "out of memory for a body");
            q->body_failed = true;
            return;
        }
        size_t n = q->buffer_size - q->buffer_len < len ? q->buffer_size - q->buffer_len : len;
        memcpy(q->buffer + q->buffer_len, data, n);
        q->buffer_len += n;
        data += n;
        len -= n;
        if (q->buffer_len == q->buffer_size)
            body_flush(q);
    }
}

/* Too much is still to come: the client is told now. */
static enum MHD_Result answer_in_mid_body(struct request *q)
{
    struct error err = ERROR_INIT;
    q->must_close = true;
    if (q->held) {
        struct MHD_Response *r = q->held;
        q->held = NULL;
        enum MHD_Result result = answer_raw(q, q->held_status, r, q->held_text, q->held_len);
        MHD_destroy_response(r);
        return result;
    }
    if (q->sink.end)
        return q->sink.end(q);
    err_set(&err, ERR_TOO_LARGE, "this request has no use for a body of over %u bytes",
            BODY_DISCARD_MAX);
    return reply_error(q, RESOURCE_NONE, &err);
}

enum MHD_Result body_piece(struct request *q, const char *data, size_t len)
{
    q->phase = PHASE_BODY;
    q->received += len;
    connection_brings(q, len);
    if (q->sink.write && !q->body_failed) {
        collect(q, data, len);
        if (!q->body_failed)
            return MHD_YES;
    } else {
        q->discarded += len;
    }
    uint64_t left = q->framing.chunked ? 0 : q->framing.length - q->received;
    return q->discarded + left > BODY_DISCARD_MAX ? answer_in_mid_body(q) : MHD_YES;
}

void body_release(struct request *q)
{
    if (q->sink.release)
        q->sink.release(q);
    q->sink = (struct body_sink){0};
    free(q->buffer);
    q->buffer = NULL;
    if (q->has_large_buffer)
        atomic_fetch_sub(&q->server->large_buffers, 1);
    if (q->held)
        MHD_destroy_response(q->held);
    q->held = NULL;
}
