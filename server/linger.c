/* Answers to clients that are still sending. libmicrohttpd can answer at the headers and behind the
 * body, not in the middle of one; and it closes a connection with bytes unread, which makes the
 * kernel send a reset that overtakes the answer. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "server/request.h"

#define LINGER_MS 5000u
#define LINGER_BYTES ((uint64_t)256 << 20)
#define LOOK_MS 200u /* between looks at the server's state */

static enum MHD_Result put_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                  const char *value)
{
    (void)kind;
    strbuf_printf(cls, "%s: %s\r\n", key, value);
    return MHD_YES;
}

static void put_date(struct strbuf *to)
{
    char text[64];
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) && strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm))
        strbuf_printf(to, "Date: %s\r\n", text);
}

enum MHD_Result answer_raw(struct request *q, unsigned status, struct MHD_Response *r,
                           const char *text, size_t len)
{
    _cleanup_strbuf_ struct strbuf out = STRBUF_INIT;
    if (!text) {
        if (q->error.code == ERR_NONE)
            err_set(&q->error, ERR_TOO_LARGE, "a body without end: the connection was closed");
        return MHD_NO;
    }
    strbuf_printf(&out, "HTTP/1.1 %u %s\r\n", status, MHD_get_reason_phrase_for(status));
    put_date(&out);
    MHD_get_response_headers(r, put_header, &out);
    if (!MHD_get_response_header(r, "Connection")) /* it was made before this was known */
        strbuf_puts(&out, "Connection: close\r\n");
    strbuf_printf(&out, "Content-Length: %zu\r\n\r\n", len);
    if (!q->is_head)
        strbuf_put(&out, text, len);
    /* Nothing was sent since the last answer ended: the socket's buffer takes this whole. */
    if (!strbuf_failed(&out) && send(request_fd(q), strbuf_str(&out), out.len,
                                     MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)out.len) {
        q->status = status;
        q->is_raw = true;
    }
    return MHD_NO;
}

void linger(struct request *q)
{
    char unread[16384];
    int fd = request_fd(q);
    uint64_t deadline = clock_monotonic_ms() + LINGER_MS, taken = 0;
    shutdown(fd, SHUT_WR);
    while (taken < LINGER_BYTES && !atomic_load(&q->server->stopping)) {
        uint64_t now = clock_monotonic_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= deadline)
            return;
        if (poll(&p, 1, deadline - now < LOOK_MS ? (int)(deadline - now) : (int)LOOK_MS) <= 0)
            continue;
        ssize_t n = recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        taken += n > 0 ? (uint64_t)n : 0;
    }
}
