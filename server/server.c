#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/housekeeping.h"
#include "server/request.h"

#define RESERVE_CLIENTS 64u /* above max_clients: they are told 503 instead of being reset */
/* Half of it is one piece of a body. Every connection that is idle or stalled has touched all of
 * it, and it is wiped between two requests: 64 KiB would take 5% off the CPU time of a push, and
 * add 16 to 32 MiB for each 1,000 clients; 128 KiB costs manifests 5% of their rate as well. */
#define CONNECTION_MEMORY (32u * 1024)

/* Only address space until it is touched; imports (curl, TLS, JSON) run on these threads. The
 * sanitizers need several times the stack. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define THREAD_STACK ((size_t)4 << 20)
#else
#define THREAD_STACK ((size_t)512 << 10)
#endif

/* Paths and queries are decoded by us, where it is legal. */
static size_t keep_escapes(void *cls, struct MHD_Connection *c, char *s)
{
    (void)cls;
    (void)c;
    return strlen(s);
}

__attribute__((format(printf, 2, 0))) static void library_log(void *cls, const char *format,
                                                              va_list args)
{
    char text[512];
    (void)cls;
    if (!log_enabled(LOG_DEBUG))
        return;
    vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\n")] = '\0';
    log_event(LOG_DEBUG, "http_library", LOG_S("text", text));
}

static struct MHD_Daemon *start_daemon(struct server *s, int fd)
{
    uint64_t timeout = s->config->client_timeout_s < 86400 ? s->config->client_timeout_s : 86400;
    const unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                           MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    /* The threads are not the ones that signals are for; what they inherit is set here so that it
     * does not depend on the caller. Faults stay open, for the sanitizers' handlers. */
    sigset_t all, before;
    sigfillset(&all);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (unsigned i = 0; i < ARRAY_LEN(faults); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, request_handle, s, /* the logger has to be the first option */
        MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, s->config->max_clients + RESERVE_CLIENTS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_THREAD_STACK_SIZE, THREAD_STACK,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_URI_LOG_CALLBACK,
        request_begin, s, MHD_OPTION_NOTIFY_COMPLETED, request_completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, connection_notify, s, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return d;
}

static void server_free(struct server *s)
{
    if (!s)
        return;
    metrics_free(s->metrics);
    pthread_cond_destroy(&s->pushes_less);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void server_free_p(struct server **s)
{
    server_free(*s);
}

static int make_locks(struct server *s)
{
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return -1;
    if (cond_init_monotonic(&s->idle) == 0) {
        if (cond_init_monotonic(&s->pushes_less) == 0)
            return 0;
        pthread_cond_destroy(&s->idle);
    }
    pthread_mutex_destroy(&s->lock);
    return -1;
}

static struct server *server_alloc(const struct config *c, struct store *store, struct upstreams *u)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s || make_locks(s) < 0) {
        free(s);
        return NULL;
    }
    if (getrandom(&s->first_id, sizeof(s->first_id), 0) != sizeof(s->first_id))
        s->first_id = clock_monotonic_us(); /* no entropy: unlike the last server's will do */
    s->config = c;
    s->store = store;
    s->upstreams = u;
    s->metrics = metrics_new();
    if (!s->metrics) {
        server_free(s);
        return NULL;
    }
    return s;
}

int server_start(const struct config *c, struct store *store, struct upstreams *u,
                 struct server **ret, struct error *err)
{
    _cleanup_(server_free_p) struct server *s = server_alloc(c, store, u);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for the server");
    _cleanup_close_ int fd = -1;
    if (listen_open(c, &fd, s->url, sizeof(s->url), err) < 0)
        return -1;
    upstreams_on_transfer_end(u, access_log_transfer, NULL);
    upstreams_on_small_end(u, access_log_small, NULL);
    if (connections_start(s, err) < 0)
        return -1;
    if (housekeeping_start(store, c->uploads_expire_s, &s->housekeeping, err) < 0) {
        connections_stop(s);
        return -1;
    }
    s->daemon = start_daemon(s, fd);
    if (!s->daemon) {
        housekeeping_stop(s->housekeeping);
        connections_stop(s);
        return err_set(err, ERR_INTERNAL,
                       "the HTTP library did not start on %s (log_level \"debug\" shows why)",
                       s->url);
    }
    s->listen_fd = TAKE_FD(fd);
    *ret = TAKE_PTR(s);
    return 0;
}

const char *server_url(const struct server *s)
{
    return s->url;
}

/* Once: libmicrohttpd would hand the descriptor out again. Shutting the socket down refuses clients
 * at once; it is closed when the library's thread can not be looking at it any more. */
static void stop_listening(struct server *s)
{
    if (s->is_quiesced)
        return;
    s->is_quiesced = true;
    MHD_quiesce_daemon(s->daemon);
    shutdown(s->listen_fd, SHUT_RDWR);
}

bool server_drain(struct server *s, uint64_t drain_s)
{
    uint64_t deadline = clock_monotonic_ms() + drain_s * 1000;
    /* Readiness first: a request that slips in before the listener closes is told the truth. */
    atomic_store(&s->draining, true);
    stop_listening(s);
    bool done;
    pthread_mutex_lock(&s->lock);
    while (s->active && cond_wait_until(&s->idle, &s->lock, deadline))
        ;
    done = s->active == 0;
    pthread_mutex_unlock(&s->lock);
    return done;
}

void server_stop(struct server *s)
{
    if (!s)
        return;
    atomic_store(&s->draining, true);
    atomic_store(&s->stopping, true);
    stop_listening(s);
    MHD_stop_daemon(s->daemon); /* joins the threads; content readers see `stopping` */
    connections_stop(s);
    housekeeping_stop(s->housekeeping);
    close(s->listen_fd);
    server_free(s);
}
