/* Many threads over one pool, some of whose exchanges break, then a cancellation in the middle of
 * it. For ThreadSanitizer; what it checks besides is that nobody gets another one's answer. */
#include <signal.h>
#include <stdio.h>

#include "tests/unit/upstream/script_server.h"
#include "upstream/http.h"

#define THREADS 8
#define ROUNDS 40

struct worker {
    struct http_pool *pool;
    struct script *server;
    unsigned number;
    unsigned whole, broken, cancelled, wrong;
    struct strbuf got;
};

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct worker *w = ctx;
    strbuf_put(&w->got, data, len);
    return strbuf_failed(&w->got) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static void one_round(struct worker *w, unsigned round)
{
    _cleanup_response_ struct http_response *r = NULL;
    struct error err = ERROR_INIT;
    char url[128], want[32];
    snprintf(want, sizeof(want), "body %u", w->number);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/%s%u", w->server->port,
             round % 5 == 4 ? "cut" : "", w->number);
    struct http_request q = {.method = "GET", .url = url, .max_body = 100};
    strbuf_reset(&w->got);
    if (round % 2) {
        q.on_data = on_data;
        q.ctx = w;
    }
    if (http_perform(w->pool, &q, &r, &err) == 0) {
        const char *got = strbuf_str(round % 2 ? &w->got : http_body(r));
        w->whole++;
        w->wrong += strcmp(got, want) != 0;
    } else if (err.code == ERR_CANCELLED) {
        w->cancelled++;
    } else {
        w->broken++;
        w->wrong += err.code != ERR_UPSTREAM || round % 5 != 4;
    }
}

static void *work(void *ctx)
{
    struct worker *w = ctx;
    for (unsigned i = 0; i < ROUNDS; i++)
        one_round(w, i);
    return NULL;
}

static int run(bool cancel)
{
    struct script *s = script_start();
    struct http_pool *p = NULL;
    struct error err = ERROR_INIT;
    struct http_options o = {.max_connections = 3};
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    unsigned whole = 0, broken = 0, cancelled = 0, wrong = 0;
    if (http_pool_new(&o, &p, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        char match[32], bytes[128];
        snprintf(match, sizeof(match), "GET /%u ", i);
        snprintf(bytes, sizeof(bytes), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbody %u", i);
        script_add(s, match, bytes, SCRIPT_KEEP)->forever = true;
        snprintf(match, sizeof(match), "GET /cut%u ", i);
        script_add(s, match, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbo", SCRIPT_CLOSE)
            ->forever = true;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.pool = p, .server = s, .number = i};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    if (cancel) {
        script_wait(s, THREADS * ROUNDS / 4);
        http_pool_cancel(p);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        whole += workers[i].whole;
        broken += workers[i].broken;
        cancelled += workers[i].cancelled;
        wrong += workers[i].wrong;
        strbuf_done(&workers[i].got);
    }
    http_pool_free(p);
    script_stop(s);
    printf("whole %u broken %u cancelled %u wrong %u\n", whole, broken, cancelled, wrong);
    if (wrong || whole + broken + cancelled != THREADS * ROUNDS)
        return 1;
    return cancel ? cancelled == 0 : broken != THREADS * ROUNDS / 5;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return run(false) || run(true);
}
