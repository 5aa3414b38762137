/* POST /admin/v1/warm/NAME:TAG or NAME@DIGEST: brings everything that the reference needs, and says
 * how far it is while it works, a line of JSON at a time. The work is done on a thread of its own;
 * it ends when the client goes, so that whoever asked can also stop it.
 *
 *     {"repository":…,"manifest":…,"manifests":…,"blobs":…,"bytes":…,"missing_bytes":…}
 *     {"blob":…,"bytes":…,"state":"held"}           or "fetched"
 *     {"fetched_bytes":…}                           about every second
 *     {"done":true}                                 or {"error":{"code":…,"message":…}}
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "server/request.h"
#include "upstream/caller.h"
#include "upstream/warm.h"

#define BLOCK_SIZE ((size_t)16 * 1024)
#define STEP_MS 1000u

struct warming {
    struct request *q; /* valid while the content reader is called, not in warming_free() */
    struct upstreams *upstreams;
    char token[CALLER_TOKEN_MAX + 1]; /* the caller's, "" = none */
    struct warm_plan plan;
    struct warm_progress progress;
    atomic_bool halt;
    pthread_t thread;
    bool started;
    uint64_t began_ms;

    pthread_mutex_t lock; /* guards: lines, ended, rc, error */
    pthread_cond_t cond;
    struct strbuf lines; /* to be sent */
    bool ended;
    int rc;
    struct error error;

    /* the connection's thread's own */
    size_t sent; /* of lines */
    uint64_t told_ms;
    bool closing; /* the last line is among the lines */
};

static void put_digest(struct strbuf *to, const char *key, const struct digest *d)
{
    char text[DIGEST_TEXT_MAX];
    json_put_text(to, key, digest_format(d, text));
}

static void put_plan(const struct warm_plan *p, struct strbuf *to)
{
    strbuf_putc(to, '{');
    json_put_text(to, "repository", p->repository);
    put_digest(to, "manifest", &p->manifest);
    json_put_number(to, "manifests", p->manifests);
    json_put_number(to, "blobs", p->n_blobs);
    if (p->left_out)
        json_put_number(to, "left_out", p->left_out);
    json_put_number(to, "bytes", p->bytes);
    json_put_number(to, "missing_bytes", p->missing_bytes);
    if (*p->warning) {
        json_put_text(to, "warning", p->warning);
    }
    strbuf_puts(to, "}\n");
}

static void on_blob(void *ctx, const struct warm_blob *b)
{
    struct warming *w = ctx;
    pthread_mutex_lock(&w->lock);
    strbuf_putc(&w->lines, '{');
    put_digest(&w->lines, "blob", &b->digest);
    json_put_number(&w->lines, "bytes", b->size);
    json_put_text(&w->lines, "state", b->held ? "held" : "fetched");
    strbuf_puts(&w->lines, "}\n");
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void *warm_main(void *arg)
{
    struct warming *w = arg;
    struct error err = ERROR_INIT;
    pthread_setname_np(pthread_self(), "warm");
    caller_set(w->token);
    int rc = warm_run(w->upstreams, &w->plan, &w->progress, &w->halt, &err);
    caller_set(NULL);
    pthread_mutex_lock(&w->lock);
    w->rc = rc;
    w->error = err;
    w->ended = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void log_end(const struct warming *w)
{
    char text[DIGEST_TEXT_MAX];
    log_event(w->rc < 0 ? LOG_WARN : LOG_INFO, "warmed", LOG_S("repository", w->plan.repository),
              LOG_S("manifest", digest_format(&w->plan.manifest, text)),
              LOG_N("blobs", w->plan.n_blobs), LOG_N("bytes", w->plan.bytes),
              LOG_N("fetched", atomic_load(&w->progress.bytes)),
              LOG_N("ms", clock_monotonic_ms() - w->began_ms),
              LOG_S("error", w->rc < 0 ? err_name(w->error.code) : ""),
              LOG_S("detail", w->rc < 0 ? w->error.text : ""));
}

static void warming_free(void *cls)
{
    struct warming *w = cls;
    atomic_store(&w->halt, true);
    if (w->started) {
        pthread_join(w->thread, NULL);
        log_end(w);
    }
    explicit_bzero(w->token, sizeof(w->token));
    warm_plan_done(&w->plan);
    strbuf_done(&w->lines);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Under w->lock: what is to be said without a blob being through. */
static void put_rest(struct warming *w)
{
    uint64_t now = clock_monotonic_ms();
    if (w->ended) {
        if (w->rc == 0) {
            strbuf_puts(&w->lines, "{\"done\":true}\n");
        } else {
            strbuf_puts(&w->lines, "{\"error\":{");
            json_put_text(&w->lines, "code", error_answer_of(&w->error, RESOURCE_BLOB).code);
            json_put_text(&w->lines, "message", w->error.text);
            strbuf_puts(&w->lines, "}}\n");
        }
        w->closing = true;
    } else if (now - w->told_ms >= STEP_MS) {
        w->told_ms = now;
        strbuf_putc(&w->lines, '{');
        json_put_number(&w->lines, "fetched_bytes", atomic_load(&w->progress.bytes));
        strbuf_puts(&w->lines, "}\n");
    }
}

/* Under w->lock. */
static ssize_t take_lines(struct warming *w, char *buf, size_t max)
{
    size_t n = w->lines.len - w->sent;
    if (strbuf_failed(&w->lines))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    n = n < max ? n : max;
    memcpy(buf, w->lines.data + w->sent, n);
    w->sent += n;
    if (w->sent == w->lines.len) {
        strbuf_reset(&w->lines);
        w->sent = 0;
    }
    w->q->body_sent += n;
    return (ssize_t)n;
}

static ssize_t warm_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct warming *w = cls;
    ssize_t n = 0;
    (void)pos;
    pthread_mutex_lock(&w->lock);
    while (!n) {
        if (!w->lines.len && !w->closing)
            put_rest(w);
        if (w->lines.len) {
            n = take_lines(w, buf, max);
        } else if (w->closing) {
            n = MHD_CONTENT_READER_END_OF_STREAM;
        } else if (request_client_gone(w->q)) {
            err_set(&w->q->error, ERR_CANCELLED, "the client left before all was here");
            n = MHD_CONTENT_READER_END_WITH_ERROR;
        } else {
            cond_wait_until(&w->cond, &w->lock, clock_monotonic_ms() + STEP_MS);
        }
    }
    pthread_mutex_unlock(&w->lock);
    request_reset_timeout(w->q);
    return n;
}

static struct warming *warming_new(struct request *q)
{
    struct warming *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    if (pthread_mutex_init(&w->lock, NULL)) {
        free(w);
        return NULL;
    }
    if (cond_init_monotonic(&w->cond)) {
        pthread_mutex_destroy(&w->lock);
        free(w);
        return NULL;
    }
    w->q = q;
    w->upstreams = q->server->upstreams;
    if (caller_token())
        snprintf(w->token, sizeof(w->token), "%s", caller_token());
    w->progress.on_blob = on_blob;
    w->progress.ctx = w;
    w->began_ms = w->told_ms = clock_monotonic_ms();
    return w;
}

static enum MHD_Result no_memory(struct request *q, struct warming *w)
{
    struct error err = ERROR_INIT;
    if (w)
        warming_free(w);
    err_set(&err, ERR_NOMEM, "out of memory");
    return reply_error(q, RESOURCE_NONE, &err);
}

enum MHD_Result warm_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    if (admin_check_caller(q, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    struct warming *w = warming_new(q);
    if (!w)
        return no_memory(q, NULL);
    const struct reference *ref = &q->route.ref;
    if (upstreams_may_pull(w->upstreams, ref->repository, ref->is_digest ? "" : ref->tag, &err) <
            0 ||
        warm_plan(w->upstreams, &q->route.ref, &w->plan, &err) < 0) {
        warming_free(w);
        return reply_error(q, RESOURCE_MANIFEST, &err);
    }
    put_plan(&w->plan, &w->lines);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, warm_read, w, warming_free);
    if (!r)
        return no_memory(q, w);
    w->started = pthread_create(&w->thread, NULL, warm_main, w) == 0;
    if (!w->started || !reply_put(r, "Content-Type", "application/x-ndjson") ||
        !reply_put(r, "Cache-Control", "no-store")) {
        MHD_destroy_response(r); /* frees w */
        return no_memory(q, NULL);
    }
    q->counts_body = true;
    return reply(q, 200, r);
}
