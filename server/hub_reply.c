/* Answers of the Hub's API in the form that its clients read. They act on the headers: without an
 * X-Error-Code a missing file is a Hub that can not be reached, and the status says whether they
 * try again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "server/hub_api.h"
#include "upstream/caller.h"

#define MESSAGE_MAX 500u /* bytes of X-Error-Message; the body has all of it */
#define RETRY_S 5u       /* when nothing says better */
#define QUESTIONS_MAX ((size_t)64 * 1024 * 1024) /* of all bodies that are being received */
#define EXPOSED                                                                                    \
    "X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,Link,"             \
    "Accept-Ranges,Content-Range"

bool hub_reply_put(struct request *q, struct MHD_Response *r, const struct hub_at *at)
{
    bool ok = reply_put(r, "Access-Control-Expose-Headers", EXPOSED);
    if (!at)
        return ok;
    /* A commit that was asked for is none that is there. */
    if (*at->commit && (at->refused == HUB_REFUSED_NOT || at->refused == HUB_REFUSED_ENTRY)) {
        q->cache = at->asked ? "fill" : "hit";
        ok = ok && reply_put(r, "X-Repo-Commit", at->commit);
    }
    request_is_stale(q, at->warning);
    return ok && reply_put_warning(r, at->warning);
}

static enum MHD_Result send_json(struct request *q, const struct hub_at *at, struct MHD_Response *r,
                                 uint64_t n, uint64_t total)
{
    char number[24];
    snprintf(number, sizeof(number), "%" PRIu64, total);
    if (r && (!hub_reply_put(q, r, at) ||
              !reply_put(r, "Content-Type", "application/json; charset=utf-8") ||
              !reply_put(r, "Cache-Control", "no-cache") ||
              (total && !reply_put(r, "X-Total-Count", number)))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head ? 0 : n;
    return reply(q, 200, r);
}

enum MHD_Result hub_reply_json(struct request *q, const struct hub_at *at, struct strbuf *text,
                               uint64_t total)
{
    uint64_t n = text->len;
    return send_json(q, at, reply_from_text(text), n, total);
}

static void free_text(void *cls)
{
    hub_text_unref(cls);
}

enum MHD_Result hub_reply_text(struct request *q, const struct hub_at *at, struct hub_text *text)
{
    size_t n;
    const char *bytes = hub_text_bytes(text, &n);
    struct MHD_Response *r =
        MHD_create_response_from_buffer_with_free_callback_cls(n, (void *)bytes, free_text, text);
    if (!r)
        hub_text_unref(text);
    return send_json(q, at, r, n, 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

struct refusal {
    unsigned status;
    const char *code;    /* X-Error-Code, NULL = none */
    const char *message; /* of the header; the body has the text */
    unsigned retry_after;
    bool is_rate_limit;
};

/* Nobody's token is known to the Hub: with `credentials: forward` a token may change the answer. */
static bool wants_token(const struct request *q)
{
    const struct config *c = q->server->config;
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (strcmp(c->upstreams[i].prefix, q->hub->prefix) == 0)
            return c->upstreams[i].credentials == CREDENTIALS_FORWARD && !caller_token();
    return false;
}

static bool is_get_of_file(const struct request *q)
{
    enum route_kind kind = q->route.kind;
    return !q->is_head && (kind == ROUTE_HUB_RESOLVE || kind == ROUTE_HUB_RAW);
}

/* Clients try again: a GET of a file after 408 and 429 only, everything else after 5xx as well. */
static unsigned later_status(const struct request *q)
{
    return is_get_of_file(q) ? 429 : 503;
}

static struct refusal by_error(const struct request *q, const struct error *err)
{
    struct error_answer a = error_answer_of(err, RESOURCE_NONE);
    struct refusal f = {a.status, NULL, err->text, a.retry_after, false};
    if (a.is_ours)
        f.message = "the server failed; its log has the reason under this request id";
    f.is_rate_limit = err->code == ERR_RATE_LIMITED;
    /* Wrong bytes are an answer: who asks again may have a beginning of them. */
    if (err->code == ERR_DIGEST_MISMATCH || a.status < 502 || a.status > 504)
        return f;
    f.status = later_status(q);
    if (!f.retry_after)
        f.retry_after = RETRY_S;
    return f;
}

static struct refusal refusal_of(const struct request *q, const struct hub_at *at,
                                 const struct error *err)
{
    switch (at ? at->refused : HUB_REFUSED_NOT) {
    case HUB_REFUSED_REPOSITORY:
        return (struct refusal){wants_token(q) ? 401 : 404, "RepoNotFound", err->text, 0, false};
    case HUB_REFUSED_GATED:
        return (struct refusal){wants_token(q) ? 401 : 403, "GatedRepo", err->text, 0, false};
    case HUB_REFUSED_REVISION:
        return (struct refusal){404, "RevisionNotFound", err->text, 0, false};
    case HUB_REFUSED_ENTRY:
        return (struct refusal){404, "EntryNotFound", err->text, 0, false};
    case HUB_REFUSED_TOKEN: /* these very words: any other 401 is a missing repository to them */
        return (struct refusal){401, NULL, "Invalid credentials in Authorization header", 0, false};
    case HUB_REFUSED_POLICY:
        return (struct refusal){403, NULL, err->text, 0, false};
    case HUB_REFUSED_NOT:
        break;
    }
    return by_error(q, err);
}

/* Printable ASCII, with an end where it is too long. */
static bool put_message(struct MHD_Response *r, const char *text)
{
    char value[MESSAGE_MAX + 1];
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && n < MESSAGE_MAX; p++)
        value[n++] = (char)(*p >= 0x20 && *p < 0x7f ? *p : '?');
    value[n] = '\0';
    return reply_put(r, "X-Error-Message", value);
}

static bool put_refusal(struct MHD_Response *r, const struct refusal *f)
{
    char seconds[16], limit[48];
    snprintf(seconds, sizeof(seconds), "%u", f->retry_after);
    snprintf(limit, sizeof(limit), "\"api\";r=0;t=%u", f->retry_after);
    return put_message(r, f->message) && (!f->code || reply_put(r, "X-Error-Code", f->code)) &&
           (!f->retry_after || reply_put(r, "Retry-After", seconds)) &&
           (!f->is_rate_limit || reply_put(r, "RateLimit", limit)) &&
           (f->status != 401 || reply_put(r, "WWW-Authenticate", "Bearer"));
}

/* The crate hf-hub (1.0.0) looks at no status when it fetches a file that HEAD has told it of: what
 * we say of an error would be the file in its cache. It does look whether a body is whole. */
static bool takes_errors_for_files(const struct request *q)
{
    static const char agent[] = "hf-hub/1.";
    const char *by = is_get_of_file(q) ? request_header(q, "User-Agent") : NULL;
    return by && strncmp(by, agent, strlen(agent)) == 0;
}

struct unfinished {
    size_t len;
    char *text;
};

static ssize_t unfinished_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    const struct unfinished *u = cls;
    if (pos >= u->len)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = u->len - (size_t)pos;
    if (n > max)
        n = max;
    memcpy(buf, u->text + pos, n);
    return (ssize_t)n;
}

static void unfinished_free(void *cls)
{
    struct unfinished *u = cls;
    free(u->text);
    free(u);
}

/* Takes the text, for a body that breaks off one byte before its end. */
static struct MHD_Response *reply_unfinished(struct strbuf *text)
{
    size_t n = text->len;
    struct unfinished *u = malloc(sizeof(*u));
    if (!u)
        return NULL;
    *u = (struct unfinished){n, strbuf_take(text)};
    struct MHD_Response *r = NULL;
    if (u->text)
        r = MHD_create_response_from_callback(n + 1, n, unfinished_read, u, unfinished_free);
    if (!r)
        unfinished_free(u);
    return r;
}

static enum MHD_Result refuse(struct request *q, const struct hub_at *at, const struct refusal *f,
                              const char *text, const char *header, const char *value)
{
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_putc(&body, '{');
    json_put_key(&body, "error");
    json_put_string(&body, text);
    strbuf_puts(&body, "}\n");
    size_t n = body.len;
    const char *json = body.data; /* the response's from here on */
    const char *cache = q->cache;
    bool breaks_off = takes_errors_for_files(q);
    struct MHD_Response *r = breaks_off ? reply_unfinished(&body) : reply_from_text(&body);
    q->must_close = q->must_close || breaks_off;
    if (r &&
        (!hub_reply_put(q, r, at) || !put_refusal(r, f) ||
         !reply_put(r, "Content-Type", "application/json; charset=utf-8") ||
         !reply_put(r, "Cache-Control", "no-store") || (header && !reply_put(r, header, value)))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    if (f->status != 404 && !*q->warning)
        q->cache = cache; /* what failed was no hit */
    q->body_length = q->is_head ? 0 : n;
    return reply_known(q, f->status, r, json, n);
}

enum MHD_Result hub_reply_error(struct request *q, const struct hub_at *at, const struct error *err)
{
    struct refusal f = refusal_of(q, at, err);
    bool is_ours = error_answer_of(err, RESOURCE_NONE).is_ours;
    if (err != &q->error)
        q->error = *err;
    return refuse(q, at, &f, is_ours ? f.message : err->text, NULL, NULL);
}

enum MHD_Result hub_reply_with(struct request *q, const struct hub_at *at, unsigned status,
                               const char *header, const char *value, const char *message)
{
    struct refusal f = {status, NULL, message, 0, false};
    return refuse(q, at, &f, message, header, value);
}

enum MHD_Result hub_reply_refusal(struct request *q, unsigned status, const char *allow,
                                  const char *message)
{
    return hub_reply_with(q, NULL, status, allow ? "Allow" : NULL, allow, message);
}

/* ---- bodies of questions -----------------------------------------------------------------------
 */

struct question {
    struct strbuf text;
    size_t max;
    request_handler *then;
};

static int question_write(struct request *q, const void *data, size_t len, struct error *err)
{
    struct question *p = q->sink.ctx;
    if (len > p->max - p->text.len)
        return err_set(err, ERR_TOO_LARGE, "the body is over %zu bytes", p->max);
    size_t before = p->text.len;
    size_t all = atomic_fetch_add(&q->server->question_bytes, len) + len;
    strbuf_put(&p->text, data, len);
    if (!strbuf_failed(&p->text) && all <= QUESTIONS_MAX)
        return 0;
    atomic_fetch_sub(&q->server->question_bytes, len);
    if (strbuf_failed(&p->text))
        return err_set(err, ERR_NOMEM, "out of memory for a body");
    strbuf_truncate(&p->text, before);
    return err_set(err, ERR_BUSY, "the bodies that are being received at this moment fill %zu MiB",
                   QUESTIONS_MAX >> 20);
}

static enum MHD_Result question_end(struct request *q)
{
    const struct question *p = q->sink.ctx;
    return q->body_failed ? hub_reply_error(q, NULL, &q->body_error) : p->then(q);
}

static void question_release(struct request *q)
{
    struct question *p = q->sink.ctx;
    atomic_fetch_sub(&q->server->question_bytes, p->text.len);
    strbuf_done(&p->text);
    free(p);
}

enum MHD_Result hub_collect(struct request *q, size_t max, request_handler *then)
{
    struct error err = ERROR_INIT;
    struct question *p = NULL;
    if (q->framing.has_length && q->framing.length > max)
        err_set(&err, ERR_TOO_LARGE, "the body is over %zu bytes", max);
    else if (!(p = calloc(1, sizeof(*p))))
        err_set(&err, ERR_NOMEM, "out of memory for a body");
    if (!p)
        return hub_reply_error(q, NULL, &err);
    *p = (struct question){STRBUF_INIT, max, then};
    q->sink = (struct body_sink){question_write, question_end, question_release, p};
    return MHD_YES;
}

const struct strbuf *hub_body(const struct request *q)
{
    const struct question *p = q->sink.ctx;
    return &p->text;
}
