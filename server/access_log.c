#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/request.h"

void peer_text(const struct request *q, char *buf, size_t size)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    buf[0] = '\0';
    if (a && a->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, buf,
                  (socklen_t)size);
    } else if (a && a->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in6))
            inet_ntop(AF_INET, &in6->s6_addr[12], buf, (socklen_t)size);
        else
            inet_ntop(AF_INET6, in6, buf, (socklen_t)size);
    }
}

static const char *ending(enum MHD_RequestTerminationCode code)
{
    switch (code) {
    case MHD_REQUEST_TERMINATED_COMPLETED_OK:
        return ""; /* nothing to say */
    case MHD_REQUEST_TERMINATED_TIMEOUT_REACHED:
        return "client_timeout";
    case MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN:
        return "shutdown";
    case MHD_REQUEST_TERMINATED_READ_ERROR:
    case MHD_REQUEST_TERMINATED_CLIENT_ABORT:
        return "client_closed";
    case MHD_REQUEST_TERMINATED_WITH_ERROR:
        break;
    }
    return "cut";
}

/* A body that was cut for a reason of ours, and every answer that says we could not, are worth a
 * look; a client that goes away is not. */
static enum log_level level_of(const struct request *q)
{
    if (q->status >= 500)
        return LOG_WARN;
    if (q->status < 400 && q->error.code != ERR_NONE && q->error.code != ERR_CANCELLED)
        return LOG_WARN;
    return LOG_INFO;
}

void access_log_write(struct request *q, enum MHD_RequestTerminationCode code, uint64_t bytes)
{
    enum log_level level = level_of(q);
    if (!log_enabled(level))
        return;
    char peer[INET6_ADDRSTRLEN], digest[DIGEST_TEXT_MAX] = "", path[1024], agent[160],
                                 received[24] = "";
    const struct reference *ref = &q->route.ref;
    const char *user_agent = q->is_active ? request_header(q, "User-Agent") : NULL;
    peer_text(q, peer, sizeof(peer));
    log_url(q->path, path, sizeof(path)); /* a refused one may be a whole URL with a password */
    snprintf(agent, sizeof(agent), "%s", user_agent ? user_agent : "");
    if (ref->digest.alg != DIGEST_NONE)
        digest_format(&ref->digest, digest);
    if (q->received)
        snprintf(received, sizeof(received), "%" PRIu64, q->received);
    const struct log_field fields[] = {
        LOG_S("req", q->id),
        LOG_S("method", q->method),
        LOG_S("path", path),
        LOG_N("status", q->status),
        LOG_N("bytes", bytes),
        LOG_S("received", received),
        LOG_N("ms", (clock_monotonic_us() - q->started_us) / 1000),
        LOG_S("peer", peer),
        LOG_S("agent", agent),
        LOG_S("route", route_name(q->route.kind)),
        LOG_S("repo", ref->repository),
        LOG_S("tag", ref->tag),
        LOG_S("digest", digest),
        LOG_S("cache", q->cache),
        LOG_S("warning", q->warning),
        LOG_S("end", ending(code)),
        LOG_S("error", q->error.code != ERR_NONE ? err_name(q->error.code) : ""),
        LOG_S("text", q->error.text),
        {.key = NULL},
    };
    log_write(level, "request", fields);
}

static enum log_level level_of_end(const struct error *error)
{
    if (error && error->code == ERR_DIGEST_MISMATCH)
        return LOG_ERROR;
    return error && error->code != ERR_CANCELLED ? LOG_WARN : LOG_INFO;
}

void access_log_small(void *ctx, const struct small_ended *what, const struct error *error)
{
    (void)ctx;
    log_event(level_of_end(error), "small_file", LOG_S("upstream", what->upstream),
              LOG_S("id", what->id), LOG_S("commit", what->commit), LOG_S("file", what->path),
              LOG_N("size", what->size), LOG_N("received", what->received), LOG_N("ms", what->ms),
              LOG_S("error", error ? err_name(error->code) : ""),
              LOG_S("text", error ? error->text : ""));
}

void access_log_transfer(void *ctx, const char *upstream, const struct digest *d, uint64_t size,
                         uint64_t received, uint64_t ms, const struct error *error)
{
    char digest[DIGEST_TEXT_MAX];
    (void)ctx;
    log_event(level_of_end(error), "transfer", LOG_S("upstream", upstream),
              LOG_S("digest", digest_format(d, digest)), LOG_N("size", size),
              LOG_N("received", received), LOG_N("ms", ms),
              LOG_S("error", error ? err_name(error->code) : ""),
              LOG_S("text", error ? error->text : ""));
}
