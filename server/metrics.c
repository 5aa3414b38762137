#include "server/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#define STATUS_FIRST 100u
#define STATUS_COUNT 500u /* 100..599; anything else is counted as 599 */

struct metrics {
    atomic_uint_fast64_t requests[ROUTE_COUNT][STATUS_COUNT];
    atomic_uint_fast64_t bytes[ROUTE_COUNT], received[ROUTE_COUNT], stale[ROUTE_COUNT];
};

struct metrics *metrics_new(void)
{
    return calloc(1, sizeof(struct metrics));
}

void metrics_free(struct metrics *m)
{
    free(m);
}

void metrics_count(struct metrics *m, enum route_kind route, unsigned status, uint64_t bytes)
{
    unsigned r = (unsigned)route < ROUTE_COUNT ? (unsigned)route : ROUTE_UNKNOWN;
    unsigned s = status - STATUS_FIRST;
    if (s >= STATUS_COUNT)
        s = STATUS_COUNT - 1;
    atomic_fetch_add_explicit(&m->requests[r][s], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->bytes[r], bytes, memory_order_relaxed);
}

void metrics_stale(struct metrics *m, enum route_kind route)
{
    unsigned r = (unsigned)route < ROUTE_COUNT ? (unsigned)route : ROUTE_UNKNOWN;
    atomic_fetch_add_explicit(&m->stale[r], 1, memory_order_relaxed);
}

void metrics_received(struct metrics *m, enum route_kind route, uint64_t bytes)
{
    unsigned r = (unsigned)route < ROUTE_COUNT ? (unsigned)route : ROUTE_UNKNOWN;
    if (bytes)
        atomic_fetch_add_explicit(&m->received[r], bytes, memory_order_relaxed);
}

void metrics_family(struct strbuf *to, const char *name, const char *type, const char *help)
{
    strbuf_printf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_sample(struct strbuf *to, const char *name, const char *labels, uint64_t value)
{
    if (*labels)
        strbuf_printf(to, "%s{%s} %" PRIu64 "\n", name, labels, value);
    else
        strbuf_printf(to, "%s %" PRIu64 "\n", name, value);
}

void metrics_label(struct strbuf *to, const char *key, const char *value)
{
    if (to->len)
        strbuf_putc(to, ',');
    strbuf_printf(to, "%s=\"", key);
    for (; *value; value++) {
        if (*value == '\n')
            strbuf_puts(to, "\\n");
        else if (*value == '"' || *value == '\\')
            strbuf_printf(to, "\\%c", *value);
        else
            strbuf_putc(to, *value);
    }
    strbuf_putc(to, '"');
}

static void write_by_route(struct strbuf *to, const char *name, const char *help,
                           const atomic_uint_fast64_t *values)
{
    metrics_family(to, name, "counter", help);
    for (unsigned r = 0; r < ROUTE_COUNT; r++)
        strbuf_printf(to, "%s{route=\"%s\"} %" PRIu64 "\n", name, route_name((enum route_kind)r),
                      (uint64_t)atomic_load_explicit(&values[r], memory_order_relaxed));
}

void metrics_write_requests(const struct metrics *m, struct strbuf *to)
{
    metrics_family(to, "weighbridge_requests_total", "counter",
                   "Answered requests by route and status.");
    for (unsigned r = 0; r < ROUTE_COUNT; r++)
        for (unsigned s = 0; s < STATUS_COUNT; s++) {
            uint64_t n = atomic_load_explicit(&m->requests[r][s], memory_order_relaxed);
            if (n)
                strbuf_printf(
                    to, "weighbridge_requests_total{route=\"%s\",status=\"%u\"} %" PRIu64 "\n",
                    route_name((enum route_kind)r), s + STATUS_FIRST, n);
        }
    write_by_route(to, "weighbridge_stale_answers_total",
                   "Answers with a Warning: what is held, which the upstream did not confirm.",
                   m->stale);
    write_by_route(to, "weighbridge_response_bytes_total", "Body bytes sent to clients by route.",
                   m->bytes);
    write_by_route(to, "weighbridge_received_bytes_total",
                   "Body bytes that clients sent, by route.", m->received);
}
