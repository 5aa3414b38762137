/* One line an event, logfmt, on standard error:
 *
 *     time=2026-01-02T03:04:05.678Z level=info event=request req=4f2a… method=GET status=200 …
 *
 * The library folders (storage, upstream, model) never log above debug: they return a struct error,
 * and the edge logs it once. Values are quoted and escaped where needed, so a value can never start
 * a new field or a new line. Lines are written with one write(2). Thread-safe.
 *
 * Never pass a credential or a URL's query string: log_url() gives a URL that may be logged.
 */
#ifndef WB_BASE_LOG_H
#define WB_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
/* "error", "warn", "info", "debug" -> level; false for anything else. */
bool log_level_parse(const char *name, enum log_level *ret);

struct log_field {
    const char *key;  /* NULL ends the list */
    const char *text; /* NULL: `number` is meant; a field with text "" is left out */
    uint64_t number;
};
/* A function, so that arrays and NULL both pass without a warning. */
static inline struct log_field log_string(const char *key, const char *text)
{
    return (struct log_field){.key = key, .text = text ? text : ""};
}
#define LOG_S(k, v) log_string((k), (v))
#define LOG_N(k, v) ((struct log_field){.key = (k), .number = (uint64_t)(v)})

void log_write(enum log_level level, const char *event, const struct log_field *fields);
/* log_event(LOG_INFO, "started", LOG_S("listen", address), LOG_N("port", port)); */
#define log_event(level, event, ...)                                                               \
    do {                                                                                           \
        if (log_enabled(level))                                                                    \
            log_write((level), (event), (const struct log_field[]){__VA_ARGS__, {.key = NULL}});   \
    } while (0)

/* scheme://host[:port]/path of url, without user info, query and fragment; buf of size bytes. */
char *log_url(const char *url, char *buf, unsigned size);

#endif
