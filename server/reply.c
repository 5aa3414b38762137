#include <stdio.h>
#include <string.h>

#include "server/hub_api.h"
#include "server/request.h"

#define WARNING_MAX 4096 /* bytes, what the specification allows */

bool reply_put(struct MHD_Response *r, const char *name, const char *value)
{
    return !r || MHD_add_response_header(r, name, value) == MHD_YES;
}

/* The text as a quoted string of printable ASCII, with an end where it is too long. */
bool reply_put_warning(struct MHD_Response *r, const char *text)
{
    char value[WARNING_MAX];
    size_t used = (size_t)snprintf(value, sizeof(value), "299 - \"");
    if (!*text)
        return true;
    for (const unsigned char *p = (const unsigned char *)text; *p && used + 4 < sizeof(value);
         p++) {
        if (*p == '"' || *p == '\\')
            value[used++] = '\\';
        value[used++] = (char)(*p >= 0x20 && *p < 0x7f ? *p : '?');
    }
    value[used++] = '"';
    value[used] = '\0';
    return reply_put(r, "Warning", value);
}

/* Never called by libmicrohttpd for HEAD and 304; if it ever is, nothing may be made up. */
static ssize_t no_content(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)cls;
    (void)pos;
    (void)buf;
    (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

struct MHD_Response *reply_empty(uint64_t length)
{
    static char nothing[1];
    if (length == 0)
        return MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_callback(length, 16, no_content, NULL, NULL);
}

struct MHD_Response *reply_from_text(struct strbuf *text)
{
    size_t n = text->len;
    char *data = strbuf_take(text); /* NULL when it failed: half a text is no answer */
    if (!data)
        return NULL;
    struct MHD_Response *r = MHD_create_response_from_buffer(n, data, MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(data);
    return r;
}

static void hold(struct request *q, unsigned status, struct MHD_Response *r, const char *text,
                 size_t len)
{
    q->held = r;
    q->held_status = status;
    q->held_text = text;
    q->held_len = len;
}

enum MHD_Result reply_queue(struct request *q, unsigned status, struct MHD_Response *r)
{
    enum MHD_Result queued = MHD_queue_response(q->connection, status, r);
    if (queued == MHD_YES)
        q->status = status;
    else if (q->error.code == ERR_NONE)
        err_set(&q->error, ERR_INTERNAL, "the answer could not be queued");
    MHD_destroy_response(r);
    return queued;
}

enum MHD_Result reply_known(struct request *q, unsigned status, struct MHD_Response *r,
                            const char *text, size_t len)
{
    if (!r) {
        err_set(&q->error, ERR_NOMEM, "out of memory for an answer");
        return MHD_NO;
    }
    if (q->phase == PHASE_HEADERS && q->answers_now)
        q->must_close = true;
    bool ok = (q->hub || reply_put(r, "Docker-Distribution-API-Version", "registry/2.0")) &&
              reply_put(r, "X-Request-Id", q->id) &&
              reply_put(r, "X-Content-Type-Options", "nosniff") &&
              (!q->ns_upstream || reply_put(r, "OCI-Namespace", q->ns));
    if (q->must_close || atomic_load(&q->server->draining))
        ok = reply_put(r, "Connection", "close") && ok;
    if (!ok || q->held) { /* a second answer would be a fault of ours */
        MHD_destroy_response(r);
        return err_set(&q->error, ERR_INTERNAL, "the answer could not be made"), MHD_NO;
    }
    if (q->phase == PHASE_HEADERS && !q->answers_now)
        return hold(q, status, r, text, len), MHD_YES;
    if (q->phase != PHASE_BODY)
        return reply_queue(q, status, r);
    answer_raw(q, status, r, text, len);
    MHD_destroy_response(r);
    return MHD_NO;
}

enum MHD_Result reply(struct request *q, unsigned status, struct MHD_Response *r)
{
    return reply_known(q, status, r, q->body_length ? NULL : "", 0);
}

enum MHD_Result reply_text(struct request *q, unsigned status, const char *type,
                           struct strbuf *text)
{
    uint64_t n = text->len;
    struct MHD_Response *r = reply_from_text(text);
    if (r && !reply_put(r, "Content-Type", type)) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head ? 0 : n;
    return reply(q, status, r);
}

static enum MHD_Result reply_json_error(struct request *q, unsigned status, const char *code,
                                        const char *name, const char *message,
                                        const char *extra_header, const char *extra_value)
{
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    error_body(&body, code, message, q->id, name);
    size_t n = body.len;
    const char *text = body.data; /* the response's from here on */
    q->body_length = q->is_head ? 0 : n;
    struct MHD_Response *r = reply_from_text(&body);
    if (r && (!reply_put(r, "Content-Type", "application/json") ||
              !reply_put(r, "Cache-Control", "no-store") ||
              (extra_header && !reply_put(r, extra_header, extra_value)))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply_known(q, status, r, text, n);
}

enum MHD_Result reply_error(struct request *q, enum resource about, const struct error *err)
{
    struct error_answer a = error_answer_of(err, about);
    char seconds[16];
    if (q->hub)
        return hub_reply_error(q, NULL, err);
    if (err != &q->error)
        q->error = *err;
    if (request_is_challenged(q, err))
        return reply_json_error(q, 401, "UNAUTHORIZED", err_name(err->code), err->text,
                                "WWW-Authenticate", "Basic realm=\"weighbridge\"");
    snprintf(seconds, sizeof(seconds), "%u", a.retry_after);
    return reply_json_error(q, a.status, a.code, err_name(err->code),
                            a.is_ours ? "the server failed; its log has the reason under this "
                                        "request id"
                                      : err->text,
                            a.retry_after ? "Retry-After" : NULL, seconds);
}

enum MHD_Result reply_refusal(struct request *q, unsigned status, const char *code,
                              const char *allow, const char *message)
{
    if (q->hub)
        return hub_reply_refusal(q, status, allow, message);
    return reply_json_error(q, status, code, NULL, message, allow ? "Allow" : NULL, allow);
}
