#include "cli/escape.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static unsigned decode_utf8(const unsigned char *p, unsigned step)
{
    if (step == 1)
        return p[0];
    unsigned code = p[0] & (0xffu >> (step + 1));
    for (unsigned i = 1; i < step; i++)
        code = code << 6 | (p[i] & 0x3fu);
    return code;
}

/* What moves the cursor, switches modes, or makes text look like other text. */
static bool is_steering(unsigned code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
           code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) ||
           (code >= 0xe0000 && code <= 0xe007f);
}

static void put_text(struct strbuf *b, const char *text, size_t n, const char *kept)
{
    const unsigned char *p = (const unsigned char *)text;
    while (n) {
        unsigned step = utf8_sequence(p, n);
        unsigned code = step ? decode_utf8(p, step) : 0;
        if (!step) {
            strbuf_printf(b, "\\x%02x", *p);
            step = 1;
        } else if (!is_steering(code) || (code && code < 0x80 && strchr(kept, (int)code))) {
            strbuf_put(b, p, step);
        } else if (code < 0x80) {
            strbuf_printf(b, "\\x%02x", code);
        } else {
            strbuf_printf(b, "\\u{%04x}", code);
        }
        p += step;
        n -= step;
    }
}

void put_plain(struct strbuf *b, const char *text, size_t n)
{
    put_text(b, text, n, "");
}

void put_plain_lines(struct strbuf *b, const char *text, size_t n)
{
    put_text(b, text, n, "\n\t");
}

void put_json_text(struct strbuf *b, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    strbuf_putc(b, '"');
    while (n) {
        unsigned step = utf8_sequence(p, n);
        unsigned code = step ? decode_utf8(p, step) : 0xfffd;
        if (code == '"' || code == '\\')
            strbuf_printf(b, "\\%c", (int)code);
        else if (code == '\n')
            strbuf_puts(b, "\\n");
        else if (code >= 0x10000 && is_steering(code))
            strbuf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                          0xdc00 + (code & 0x3ff));
        else if (!step || is_steering(code))
            strbuf_printf(b, "\\u%04x", code);
        else
            strbuf_put(b, p, step);
        p += step ? step : 1;
        n -= step ? step : 1;
    }
    strbuf_putc(b, '"');
}

void put_json_member(struct strbuf *b, const char *key, const char *text)
{
    json_put_key(b, key);
    put_json_text(b, text, strlen(text));
}

char *format_grouped(uint64_t n, char buf[static GROUPED_MAX])
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    char *out = buf;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return buf;
}
