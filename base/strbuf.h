/* A growable byte buffer. Always NUL terminated (the NUL is not counted), so `data` can be used as
 * a string when the content has no NUL of its own.
 *
 * Running out of memory is sticky: later appends do nothing and strbuf_failed() says so; check once
 * at the end. Not thread-safe; zero-initialise with STRBUF_INIT, free with strbuf_done().
 */
#ifndef WB_BASE_STRBUF_H
#define WB_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct strbuf {
    char *data; /* owned; never NULL after the first append; use strbuf_str() before that */
    size_t len;
    size_t cap;
    bool failed;
};

#define STRBUF_INIT ((struct strbuf){0})
#define _cleanup_strbuf_ _cleanup_(strbuf_done)

void strbuf_done(struct strbuf *b);
void strbuf_reset(struct strbuf *b); /* empties, keeps the memory */
void strbuf_truncate(struct strbuf *b, size_t len);
void strbuf_put(struct strbuf *b, const void *data, size_t len);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for `more` further bytes and returns where to write them, NULL when out of memory. */
void *strbuf_reserve(struct strbuf *b, size_t more);
void strbuf_advance(struct strbuf *b, size_t n); /* after writing into what was reserved */
static inline bool strbuf_failed(const struct strbuf *b)
{
    return b->failed;
}
static inline const char *strbuf_str(const struct strbuf *b)
{
    return b->data ? b->data : "";
}
/* Hands the memory to the caller (free() it) and leaves the buffer empty. NULL if it failed. */
char *strbuf_take(struct strbuf *b);

/* Appends s with every byte outside RFC 3986 "unreserved" percent-encoded; bytes in `keep` (may be
 * NULL) stay as they are. */
void strbuf_put_urlencoded(struct strbuf *b, const char *s, const char *keep);

#endif
