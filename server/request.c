/* Between libmicrohttpd and the handlers. Its traps that are handled here: paths are decoded before
 * the handler sees them (server.c installs an identity callback, and the target is kept as it
 * came); ambiguous framing is accepted (framing.c); time blocked in a handler counts as idle; a
 * client that leaves a blocked handler is not noticed; an answer given at the headers of a request
 * with a body closes the connection, also one with no more than a few bytes to come. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/digest.h"
#include "server/framing.h"
#include "server/hub_api.h"
#include "server/names.h"
#include "server/request.h"
#include "upstream/caller.h"
#include "upstream/loop.h"

#define ACKED_WORTH 65536u      /* smaller answers leave in one piece */
#define BLOCKED_LONG_US 200000u /* worth resetting the connection's clock */
/* A head and the answer to it share the connection's memory (server.c); without room for the
 * answer's headers the library closes the connection, whatever was done by then. */
#define HEAD_MAX ((size_t)16 * 1024)
#define FIELD_SIZE 64u /* what the library notes of each header and each member of the query */

/* Unlike every other one of this server, and unlike its neighbours to the eye: steps of an odd
 * number come round to the first only after 2^64. */
static void make_id(struct server *s, char id[static 17])
{
    uint64_t n = s->first_id + atomic_fetch_add(&s->begun, 1) * 0x9e3779b97f4a7c15u;
    hex_format(&n, sizeof(n), id);
}

/* The request line is there; the headers are not yet. */
void *request_begin(void *cls, const char *target, struct MHD_Connection *c)
{
    struct request *q = calloc(1, sizeof(*q));
    if (!q)
        return NULL;
    q->server = cls;
    q->connection = c;
    q->started_us = clock_monotonic_us();
    q->target = strdup(target ? target : "");
    q->path = q->target;
    if (!q->target) {
        free(q);
        return NULL;
    }
    make_id(q->server, q->id);
    return q;
}

int request_fd(const struct request *q)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

void request_is_stale(struct request *q, const char *warning)
{
    if (!*warning)
        return;
    q->cache = "stale";
    snprintf(q->warning, sizeof(q->warning), "%s", warning);
}

bool request_client_gone(const struct request *q)
{
    struct pollfd p = {.fd = request_fd(q)};
    /* POLLHUP is both directions closed, POLLERR a reset. Not POLLRDHUP: a client may close its
     * sending half and still read. */
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

void request_reset_timeout(const struct request *q)
{
    uint64_t s = q->server->config->client_timeout_s;
    MHD_set_connection_option(q->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(q->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                              s < 86400 ? (unsigned)s : 86400u);
}

/* What the peer has acknowledged so far on this connection: for the bytes of an answer that
 * sendfile was cut short in. 0 when the kernel does not say. */
static uint64_t acknowledged(const struct request *q)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (getsockopt(request_fd(q), IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 0;
    return info.tcpi_bytes_acked;
}

struct header_search {
    const char *name, *value;
    unsigned n;
};

static enum MHD_Result match_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct header_search *s = cls;
    (void)kind;
    if (strcasecmp(key, s->name) == 0) {
        s->value = value ? value : "";
        s->n++;
    }
    return MHD_YES;
}

const char *request_header(const struct request *q, const char *name)
{
    struct header_search s = {.name = name};
    MHD_get_connection_values(q->connection, MHD_HEADER_KIND, match_header, &s);
    return s.n == 1 ? s.value : NULL;
}

bool request_has_header(const struct request *q, const char *name)
{
    return MHD_lookup_connection_value_n(q->connection, MHD_HEADER_KIND, name, strlen(name), NULL,
                                         NULL) == MHD_YES;
}

int request_may(const struct request *q, enum access_action action, struct error *err)
{
    const char *repository = q->route.ref.repository;
    if (config_access_allows(q->server->config, repository, action))
        return 0;
    const char *verb = action == ACCESS_PULL     ? "pull"
                       : action == ACCESS_PUSH   ? "push to"
                       : action == ACCESS_DELETE ? "delete from"
                                                 : "administer";
    return err_set(err, ERR_DENIED,
                   "no \"access\" rule of this server lets anonymous clients %s \"%s\"", verb,
                   repository);
}

void request_base_url(const struct request *q, struct strbuf *to)
{
    if (q->server->config->external_url)
        strbuf_puts(to, q->server->config->external_url);
    else if (*q->host)
        strbuf_printf(to, "http://%s", q->host);
}

void request_source(const struct request *q, const char *verb, char *buf, size_t size)
{
    char peer[64];
    peer_text(q, peer, sizeof(peer));
    snprintf(buf, size, "%s %s", verb, peer);
}

/* ---- from the headers to the answer ---------------------------------------------------------- */

static bool is_operator_route(enum route_kind kind)
{
    return kind == ROUTE_HEALTH || kind == ROUTE_READY || kind == ROUTE_METRICS;
}

static bool head_is_too_large(const struct request *q)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    int n = MHD_get_connection_values(
        q->connection, MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND, NULL, NULL);
    return (info ? info->header_size : 0) + (n > 0 ? (size_t)n : 0) * FIELD_SIZE > HEAD_MAX;
}

static int parse(struct request *q, struct error *err)
{
    int is_hub =
        hub_route_parse(q->server->config, q->path, q->query, hub_is_llama(q), &q->hub, err);
    if (is_hub == 0)
        return route_parse(q->path, &q->route, err);
    if (q->hub)
        q->route.kind = q->hub->kind;
    return is_hub;
}

/* What can be said at the headers: refusals, and where a wanted body goes. */
static enum MHD_Result route(struct request *q)
{
    struct error err = ERROR_INIT;
    if (head_is_too_large(q))
        return reply_refusal(q, 431, "UNSUPPORTED", NULL,
                             "the request line and the headers are too large: together they may "
                             "have 16 KiB, in which every header and every member of the query "
                             "counts 64 bytes more; send fewer tags at once, or fewer cookies");
    int parsed = parse(q, &err);
    /* Probes and metrics stay reachable: they are how an operator finds out. */
    if (!is_operator_route(q->route.kind) && connection_is_over_limit(q)) {
        q->must_close = true;
        err_set(&err, ERR_BUSY,
                "all %u client connections are in use; raise \"limits.clients\" if "
                "the machine can carry more",
                q->server->config->max_clients);
        return reply_error(q, RESOURCE_NONE, &err);
    }
    if (parsed < 0) {
        /* What is no tag can only be wrong in a push; whoever asks for it finds nothing there. The
         * conformance suite of the specification's 1.1 wants 404. */
        if (q->route.kind == ROUTE_MANIFEST && q->route.about == RESOURCE_MANIFEST &&
            strcmp(q->method, "PUT") != 0)
            err.code = ERR_NOT_FOUND;
        return reply_error(q, q->route.about, &err);
    }
    q->does = dispatch_find(q->route.kind, q->method);
    if (!q->does)
        return dispatch_refuse(q);
    struct hub_at at = {0};
    if (q->hub && hub_settle(q, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    if (!q->hub && names_settle(q, &err) < 0)
        return reply_error(q, RESOURCE_NAME, &err);
    if (q->does->takes_body)
        return q->does->handle(q);
    if (q->framing.length > BODY_DISCARD_MAX) {
        err_set(&err, ERR_TOO_LARGE, "this request has no use for a body of over %u bytes",
                BODY_DISCARD_MAX);
        return reply_error(q, RESOURCE_NONE, &err);
    }
    return MHD_YES; /* served when the body is through */
}

static enum MHD_Result finish(struct request *q)
{
    q->phase = PHASE_END;
    body_flush(q);
    if (q->held) {
        struct MHD_Response *r = q->held;
        q->held = NULL;
        return reply_queue(q, q->held_status, r);
    }
    if (q->sink.end)
        return q->sink.end(q);
    if (!q->does->takes_body)
        return q->does->handle(q);
    err_set(&q->error, ERR_INTERNAL, "a handler neither answered nor wanted the body");
    return MHD_NO;
}

static enum MHD_Result add_way(void *cls, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    (void)kind;
    if (value && strcasecmp(name, LOOP_HEADER) == 0)
        loop_add(cls, value);
    return MHD_YES;
}

/* Runs a step that may answer, and may block. */
static enum MHD_Result run(struct request *q, enum MHD_Result (*step)(struct request *q))
{
    uint64_t begun = clock_monotonic_us();
    struct loop loop = {0};
    MHD_get_connection_values(q->connection, MHD_HEADER_KIND, add_way, &loop);
    connection_answers(q);
    loop_set(&loop);
    caller_set_authorization(request_header(q, "Authorization"));
    caller_set_waiting(begun / 1000);
    enum MHD_Result r = step(q);
    caller_set_waiting(0);
    caller_set(NULL);
    loop_set(NULL);
    if (!q->counts_body && q->body_length > ACKED_WORTH)
        q->acked_before = acknowledged(q);
    if (clock_monotonic_us() - begun > BLOCKED_LONG_US)
        request_reset_timeout(q);
    return r;
}

static void enter(struct request *q)
{
    pthread_mutex_lock(&q->server->lock);
    q->server->active++;
    pthread_mutex_unlock(&q->server->lock);
    q->is_active = true;
}

static void leave(struct request *q)
{
    if (!q->is_active)
        return;
    pthread_mutex_lock(&q->server->lock);
    if (--q->server->active == 0)
        pthread_cond_broadcast(&q->server->idle);
    pthread_mutex_unlock(&q->server->lock);
}

static bool waits_for_leave(const struct request *q)
{
    const char *expect = request_header(q, "Expect");
    return expect && strcasecmp(expect, "100-continue") == 0;
}

static enum MHD_Result handle_headers(struct request *q, const char *method, const char *version)
{
    struct error err = ERROR_INIT;
    enter(q);
    q->method = method; /* lives as long as the request */
    q->is_head = strcmp(method, "HEAD") == 0;
    if (framing_check(q, version, &q->framing, &err) < 0) {
        q->must_close = q->answers_now = true;
        return reply_error(q, RESOURCE_NONE, &err);
    }
    bool has_body = q->framing.chunked || q->framing.length > 0;
    q->answers_now = has_body && (q->framing.length > BODY_DISCARD_MAX || waits_for_leave(q));
    enum MHD_Result r = run(q, route);
    if (!q->status) /* else the answer is on its way */
        connection_waits(q->connection);
    return r;
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *c, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **con_cls)
{
    struct request *q = *con_cls;
    (void)cls;
    (void)c;
    (void)url;
    if (!q)
        return MHD_NO; /* out of memory at its request line */
    if (!q->is_active)
        return handle_headers(q, method, version);
    if (*upload_data_size) {
        size_t n = *upload_data_size;
        *upload_data_size = 0;
        return body_piece(q, upload_data, n);
    }
    return run(q, finish);
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static uint64_t body_bytes(const struct request *q, enum MHD_RequestTerminationCode code)
{
    if (q->counts_body)
        return q->body_sent;
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK || q->body_length == 0)
        return q->body_length;
    uint64_t acked = acknowledged(q); /* with the answer's headers */
    acked -= acked < q->acked_before ? acked : q->acked_before;
    return acked < q->body_length ? acked : q->body_length;
}

/* An answer went out, or is about to be lost, before the client had sent its whole body. */
static bool is_early(const struct request *q)
{
    return q->status && q->phase != PHASE_END &&
           (q->answers_now || q->framing.chunked || q->framing.length > q->received);
}

void request_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                       enum MHD_RequestTerminationCode code)
{
    struct request *q = *con_cls;
    (void)cls;
    connection_waits(c);
    if (!q)
        return;
    if (q->is_raw)
        code = MHD_REQUEST_TERMINATED_COMPLETED_OK; /* the library does not know of it */
    if (q->phase == PHASE_BODY)
        body_flush(q); /* what came of a body that broke off can be gone on with */
    body_release(q);
    if (!q->status) { /* answered by libmicrohttpd itself: a malformed or too large head */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_HTTP_STATUS);
        q->status = info ? info->http_status : 0;
    }
    uint64_t bytes = q->status ? body_bytes(q, code) : 0;
    if (q->status) /* else the client left before there was an answer to count */
        metrics_count(q->server->metrics, q->route.kind, q->status, bytes);
    if (q->status && *q->warning)
        metrics_stale(q->server->metrics, q->route.kind);
    metrics_received(q->server->metrics, q->route.kind, q->received);
    access_log_write(q, code, bytes);
    if (is_early(q))
        linger(q);
    connection_waits(c);
    leave(q);
    free(q->hub);
    free(q->target);
    free(q);
    *con_cls = NULL;
}
