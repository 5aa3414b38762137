/* Counters and their Prometheus text. Counting is a relaxed atomic add; thread-safe. */
#ifndef WB_SERVER_METRICS_H
#define WB_SERVER_METRICS_H

#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "server/route.h"

struct metrics;
struct metrics *metrics_new(void); /* NULL = out of memory */
void metrics_free(struct metrics *m);

void metrics_count(struct metrics *m, enum route_kind route, unsigned status, uint64_t bytes);
/* An answer that carries a warning. */
void metrics_stale(struct metrics *m, enum route_kind route);
void metrics_received(struct metrics *m, enum route_kind route, uint64_t bytes);

/* `# HELP` and `# TYPE` of a family, then its samples. labels: `a="b"` already escaped, or "". */
void metrics_family(struct strbuf *to, const char *name, const char *type, const char *help);
void metrics_sample(struct strbuf *to, const char *name, const char *labels, uint64_t value);
/* A label value with backslash, quote and newline escaped. */
void metrics_label(struct strbuf *to, const char *key, const char *value);

/* The request counters. */
void metrics_write_requests(const struct metrics *m, struct strbuf *to);

#endif
