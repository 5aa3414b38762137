#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void strbuf_done(struct strbuf *b)
{
    free(b->data);
    *b = STRBUF_INIT;
}

void strbuf_reset(struct strbuf *b)
{
    strbuf_truncate(b, 0);
}

void strbuf_truncate(struct strbuf *b, size_t len)
{
    if (len < b->len)
        b->len = len;
    if (b->data)
        b->data[b->len] = '\0';
}

void *strbuf_reserve(struct strbuf *b, size_t more)
{
    if (b->failed)
        return NULL;
    if (more >= SIZE_MAX / 2 || b->len >= SIZE_MAX / 2 - more) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + more + 1;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        char *data = realloc(b->data, cap);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    b->data[b->len] = '\0';
    return b->data + b->len;
}

void strbuf_advance(struct strbuf *b, size_t n)
{
    if (b->failed)
        return;
    b->len += n;
    b->data[b->len] = '\0';
}

void strbuf_put(struct strbuf *b, const void *data, size_t len)
{
    void *to = strbuf_reserve(b, len);
    if (!to)
        return;
    if (len)
        memcpy(to, data, len);
    strbuf_advance(b, len);
}

void strbuf_puts(struct strbuf *b, const char *s)
{
    strbuf_put(b, s, strlen(s));
}

void strbuf_putc(struct strbuf *b, char c)
{
    strbuf_put(b, &c, 1);
}

void strbuf_printf(struct strbuf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
    } else {
        char *to = strbuf_reserve(b, (size_t)n);
        if (to) {
            vsnprintf(to, (size_t)n + 1, format, again);
            strbuf_advance(b, (size_t)n);
        }
    }
    va_end(again);
}

char *strbuf_take(struct strbuf *b)
{
    if (!strbuf_reserve(b, 0)) {
        strbuf_done(b);
        return NULL;
    }
    char *data = b->data;
    *b = STRBUF_INIT;
    return data;
}

void strbuf_put_urlencoded(struct strbuf *b, const char *s, const char *keep)
{
    static const char unreserved[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *s; s++) {
        if (strchr(unreserved, *s) || (keep && strchr(keep, *s)))
            strbuf_putc(b, *s);
        else
            strbuf_printf(b, "%%%02X", (unsigned char)*s);
    }
}
