/* What of a request's framing is refused before anything is believed. libmicrohttpd takes several
 * ambiguous forms (two lengths, unknown codings, no Host) that a proxy in front may read
 * differently; whoever sees two requests where we see one can smuggle the second. */
#ifndef WB_SERVER_FRAMING_H
#define WB_SERVER_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct request;

/* Of a body that means nothing to us: so much is read, to keep the connection. */
#define BODY_DISCARD_MAX 1048576u

struct framing {
    bool chunked;
    bool has_length;
    uint64_t length;
};

/* Checks the headers of q->connection and fills q->host, q->path and q->query. ERR_INVALID: answer
 * 400 and close. */
int framing_check(struct request *q, const char *version, struct framing *ret, struct error *err);

/* host[:port], [v6][:port]; letters, digits, '.', '-', '_' only. */
bool host_is_valid(const char *host);
/* The host of "name:port" or "[::1]:port" is a loopback name: localhost, 127.x.x.x, ::1. */
bool host_is_loopback(const char *host);

#endif
