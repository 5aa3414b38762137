/* Connections that never come to the point. libmicrohttpd's time limit starts anew with every byte,
 * so a client that drips a request could keep its place for ever; here a connection that has not
 * brought a whole request within the time limit is shut down, however busy it looks. A body may
 * take as long as it likes as long as it comes on; one that only drips is as bad as none. What is
 * being answered is left alone: a slow reader may take as long as it likes, too. */
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "server/request.h"

#define LOOK_MS 1000u           /* between two looks at all connections */
#define OVER_LIMIT_TIMEOUT_S 5u /* who is not let in must not sit in the reserve */

struct connection {
    struct connection *next, **at;    /* guarded by the server's connections_lock */
    int fd;                           /* open as long as this is listed */
    bool is_late;                     /* came when max_clients were there already */
    atomic_uint_fast64_t waits_since; /* monotonic ms; 0 while a request is being answered */
    uint64_t brought;                 /* of a body since then; the connection's own thread only */
};

static struct connection *connection_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static uint64_t patience_ms(const struct server *s, const struct connection *n)
{
    uint64_t limit = s->config->client_timeout_s;
    if (n->is_late && atomic_load(&s->clients) > s->config->max_clients)
        limit = OVER_LIMIT_TIMEOUT_S;
    return limit * 1000u + LOOK_MS; /* libmicrohttpd's own clock comes first where it works */
}

/* Out of memory: the connection is not watched, which is no reason to refuse it. */
static void *add(struct server *s, struct MHD_Connection *c, bool is_late)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *n = info ? calloc(1, sizeof(*n)) : NULL;
    if (!n)
        return NULL;
    n->fd = info->connect_fd;
    n->is_late = is_late;
    atomic_store(&n->waits_since, clock_monotonic_ms());
    pthread_mutex_lock(&s->connections_lock);
    n->next = s->connections;
    n->at = &s->connections;
    if (n->next)
        n->next->at = &n->next;
    s->connections = n;
    pthread_mutex_unlock(&s->connections_lock);
    return n;
}

static void take_out(struct server *s, struct connection *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&s->connections_lock);
    *n->at = n->next;
    if (n->next)
        n->next->at = n->at;
    pthread_mutex_unlock(&s->connections_lock);
    free(n);
}

void connection_notify(void *cls, struct MHD_Connection *c, void **socket_context,
                       enum MHD_ConnectionNotificationCode code)
{
    struct server *s = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        bool is_late = atomic_fetch_add(&s->clients, 1) + 1 > s->config->max_clients;
        *socket_context = add(s, c, is_late);
        if (is_late)
            MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, OVER_LIMIT_TIMEOUT_S);
    } else { /* before the socket is closed */
        take_out(s, *socket_context);
        *socket_context = NULL;
        atomic_fetch_sub(&s->clients, 1);
    }
}

bool connection_is_over_limit(const struct request *q)
{
    const struct connection *n = connection_of(q->connection);
    if (!n || !n->is_late)
        return false;
    if (atomic_load(&q->server->clients) > q->server->config->max_clients)
        return true;
    request_reset_timeout(q); /* let in after all: with everybody's time limit */
    return false;
}

void connection_answers(const struct request *q)
{
    struct connection *n = connection_of(q->connection);
    if (n)
        atomic_store(&n->waits_since, 0);
}

void connection_waits(struct MHD_Connection *c)
{
    struct connection *n = connection_of(c);
    if (!n)
        return;
    n->brought = 0;
    atomic_store(&n->waits_since, clock_monotonic_ms());
}

void connection_brings(const struct request *q, uint64_t bytes)
{
    struct connection *n = connection_of(q->connection);
    if (!n)
        return;
    n->brought += bytes;
    if (n->brought >= BODY_PROGRESS_MIN)
        connection_waits(q->connection);
}

static void look(struct server *s)
{
    uint64_t now = clock_monotonic_ms();
    for (struct connection *n = s->connections; n; n = n->next) {
        uint64_t since = atomic_load(&n->waits_since);
        if (since && now > since && now - since > patience_ms(s, n))
            shutdown(n->fd, SHUT_RDWR); /* its own thread wakes up and closes it */
    }
}

static void *watch(void *arg)
{
    struct server *s = arg;
    pthread_setname_np(pthread_self(), "connections");
    pthread_mutex_lock(&s->connections_lock);
    while (!atomic_load(&s->stopping)) {
        cond_wait_until(&s->connections_stop, &s->connections_lock, clock_monotonic_ms() + LOOK_MS);
        look(s);
    }
    pthread_mutex_unlock(&s->connections_lock);
    return NULL;
}

int connections_start(struct server *s, struct error *err)
{
    if (pthread_mutex_init(&s->connections_lock, NULL) != 0)
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    int rc = cond_init_monotonic(&s->connections_stop);
    if (rc == 0) {
        rc = pthread_create(&s->connections_watch, NULL, watch, s);
        if (rc != 0)
            pthread_cond_destroy(&s->connections_stop);
    }
    if (rc == 0)
        return 0;
    pthread_mutex_destroy(&s->connections_lock);
    return err_set(err, ERR_NOMEM, "cannot start the thread that watches connections");
}

void connections_stop(struct server *s)
{
    pthread_mutex_lock(&s->connections_lock);
    atomic_store(&s->stopping, true);
    pthread_cond_signal(&s->connections_stop);
    pthread_mutex_unlock(&s->connections_lock);
    pthread_join(s->connections_watch, NULL);
    pthread_cond_destroy(&s->connections_stop);
    pthread_mutex_destroy(&s->connections_lock);
}
