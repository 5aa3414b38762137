/* A server on a loopback port that plays answers byte for byte, for tests of what real servers
 * rarely do. Header-only: every test program is one source file.
 *
 *     struct script *s = script_start();
 *     script_add(s, "GET /a ", "HTTP/1.1 200 OK\r\n...", SCRIPT_CLOSE);
 *     ... ask script_url(s, "/a") ...
 *     script_requests(s)          // everything that was received, as text
 *     script_stop(s);
 *
 * Each request takes the first unused step whose `match` begins the request, or gets 599. No step
 * waits for time: SCRIPT_STALL holds the connection open until script_stop() or until the client
 * leaves.
 */
#ifndef WB_TESTS_SCRIPT_SERVER_H
#define WB_TESTS_SCRIPT_SERVER_H

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include "base/strbuf.h"

enum script_after { SCRIPT_KEEP, SCRIPT_CLOSE, SCRIPT_RESET, SCRIPT_STALL };

struct script_step {
    char match[256];
    char *bytes;
    size_t len;
    enum script_after after;
    bool forever; /* answers any number of requests */
    bool used;
};

#define SCRIPT_STEPS 64
#define SCRIPT_CONNECTIONS 1024

struct script {
    int listener;
    int stop[2];
    uint16_t port;
    pthread_t acceptor;
    pthread_mutex_t lock; /* guards: all below */
    pthread_cond_t changed;
    struct script_step steps[SCRIPT_STEPS];
    unsigned n_steps;
    struct strbuf requests;
    unsigned n_requests, n_connections;
    pthread_t threads[SCRIPT_CONNECTIONS];
};

struct script_connection {
    struct script *s;
    int fd;
};

static inline bool script_readable(struct script *s, int fd)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = s->stop[0], .events = POLLIN}};
    while (poll(p, 2, -1) < 0) {
    }
    return p[0].revents != 0;
}

/* The header has come, and as much of a body as it names. */
static inline bool script_is_whole(const struct strbuf *request)
{
    const char *end = strstr(strbuf_str(request), "\r\n\r\n");
    const char *length = strstr(strbuf_str(request), "\r\nContent-Length: ");
    size_t body = end && length && length < end ? strtoul(length + 18, NULL, 10) : 0;
    return end && request->len >= (size_t)(end + 4 - request->data) + body;
}

static inline bool script_read_request(struct script *s, int fd, struct strbuf *to)
{
    while (!script_is_whole(to)) {
        char buf[4096];
        if (!script_readable(s, fd))
            return false;
        ssize_t n = recv(fd, buf, sizeof(buf), 0);
        if (n <= 0)
            return false;
        strbuf_put(to, buf, (size_t)n);
    }
    return true;
}

static inline bool script_answer(struct script *s, int fd, const struct strbuf *request)
{
    static const struct script_step none = {
        .bytes = (char *)"HTTP/1.1 599 No step\r\nContent-Length: 0\r\n\r\n", .len = 43};
    struct script_step step = none;
    pthread_mutex_lock(&s->lock);
    strbuf_put(&s->requests, request->data, request->len);
    s->n_requests++;
    for (unsigned i = 0; i < s->n_steps; i++)
        if (!s->steps[i].used &&
            strncmp(request->data, s->steps[i].match, strlen(s->steps[i].match)) == 0) {
            step = s->steps[i];
            s->steps[i].used = !step.forever;
            break;
        }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    for (size_t at = 0; at < step.len;) {
        ssize_t n = send(fd, step.bytes + at, step.len - at, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    if (step.after == SCRIPT_STALL)
        script_readable(s, fd);
    if (step.after == SCRIPT_RESET) {
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    return step.after == SCRIPT_KEEP;
}

static inline void *script_serve(void *ctx)
{
    struct script_connection *c = ctx;
    bool go_on = true;
    while (go_on) {
        _cleanup_strbuf_ struct strbuf request = STRBUF_INIT;
        go_on = script_read_request(c->s, c->fd, &request) && script_answer(c->s, c->fd, &request);
    }
    close(c->fd);
    free(c);
    return NULL;
}

static inline void *script_accept(void *ctx)
{
    struct script *s = ctx;
    while (script_readable(s, s->listener)) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            continue;
        struct script_connection *c = malloc(sizeof(*c));
        assert(c);
        *c = (struct script_connection){.s = s, .fd = fd};
        pthread_mutex_lock(&s->lock);
        assert(s->n_connections < SCRIPT_CONNECTIONS);
        int rc = pthread_create(&s->threads[s->n_connections++], NULL, script_serve, c);
        pthread_mutex_unlock(&s->lock);
        assert(rc == 0);
        (void)rc;
    }
    return NULL;
}

static inline struct script *script_start(void)
{
    struct script *s = calloc(1, sizeof(*s));
    assert(s);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    int rc = bind(s->listener, (struct sockaddr *)&a, sizeof(a)) || listen(s->listener, 64) ||
             getsockname(s->listener, (struct sockaddr *)&a, &len) || pipe(s->stop) ||
             pthread_mutex_init(&s->lock, NULL) || pthread_cond_init(&s->changed, NULL) ||
             pthread_create(&s->acceptor, NULL, script_accept, s);
    assert(rc == 0);
    (void)rc;
    s->port = ntohs(a.sin_port);
    return s;
}

static inline struct script_step *script_add_bytes(struct script *s, const char *match,
                                                   const void *bytes, size_t len,
                                                   enum script_after after)
{
    pthread_mutex_lock(&s->lock);
    assert(s->n_steps < SCRIPT_STEPS && strlen(match) < sizeof(s->steps[0].match));
    struct script_step *step = &s->steps[s->n_steps++];
    strcpy(step->match, match);
    step->bytes = malloc(len + 1);
    assert(step->bytes);
    memcpy(step->bytes, bytes, len);
    step->len = len;
    step->after = after;
    pthread_mutex_unlock(&s->lock);
    return step;
}

static inline struct script_step *script_add(struct script *s, const char *match, const char *text,
                                             enum script_after after)
{
    return script_add_bytes(s, match, text, strlen(text), after);
}

/* An answer put together by printf, with Content-Length added for body (NULL = no such header). */
static inline void script_reply(struct script *s, const char *match, const char *body,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));
static inline void script_reply(struct script *s, const char *match, const char *body,
                                const char *format, ...)
{
    char head[4096];
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof(head), format, args);
    va_end(args);
    strbuf_printf(&b, "HTTP/1.1 %s\r\n", head);
    if (body)
        strbuf_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    strbuf_printf(&b, "\r\n%s", body ? body : "");
    script_add_bytes(s, match, b.data, b.len, SCRIPT_KEEP);
}

/* Waits until n requests have come. */
static inline void script_wait(struct script *s, unsigned n)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_requests < n)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static inline unsigned script_connections(struct script *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = s->n_connections;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static inline unsigned script_count(struct script *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = s->n_requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Whether any request so far has this text in it. */
static inline bool script_saw(struct script *s, const char *text)
{
    pthread_mutex_lock(&s->lock);
    bool saw = strstr(strbuf_str(&s->requests), text) != NULL;
    pthread_mutex_unlock(&s->lock);
    return saw;
}

/* In one of a few static buffers, good until four more calls. */
static inline const char *script_url(struct script *s, const char *path)
{
    static char urls[4][1024];
    static unsigned next;
    char *url = urls[next++ % 4];
    snprintf(url, sizeof(urls[0]), "http://127.0.0.1:%u%s", s->port, path);
    return url;
}

static inline void script_stop(struct script *s)
{
    close(s->stop[1]); /* the other end becomes readable for everybody */
    pthread_join(s->acceptor, NULL);
    for (unsigned i = 0; i < s->n_connections; i++)
        pthread_join(s->threads[i], NULL);
    for (unsigned i = 0; i < s->n_steps; i++)
        free(s->steps[i].bytes);
    close(s->stop[0]);
    close(s->listener);
    strbuf_done(&s->requests);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

#endif
