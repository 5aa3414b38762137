#include "model/json_scan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A number that is skipped may be this long; the reference reader refuses what overflows a double,
 * which is near this length. */
#define NUMBER_MAX 400

void json_scan_start(struct json_scan *s, const void *text, size_t len, uint64_t base)
{
    *s = (struct json_scan){.start = text, .p = text, .base = base, .document = "the header"};
    s->end = s->start + len;
}

uint64_t json_scan_at(const struct json_scan *s)
{
    return s->base + (uint64_t)(s->p - s->start);
}

int json_scan_peek(struct json_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
    return s->p < s->end ? *s->p : -1;
}

static int unexpected(struct json_scan *s, const char *wanted, const char *what, struct error *err)
{
    int c = json_scan_peek(s);
    if (c < 0)
        return err_set(err, ERR_INVALID, "expected %s in %s at byte %" PRIu64 ", where %s ends",
                       wanted, what, json_scan_at(s), s->document);
    return err_set(err, ERR_INVALID, "expected %s in %s at byte %" PRIu64 ", not the byte 0x%02x",
                   wanted, what, json_scan_at(s), (unsigned)c);
}

int json_scan_expect(struct json_scan *s, char c, const char *what, struct error *err)
{
    if (json_scan_peek(s) != c)
        return unexpected(s, (char[]){'\'', c, '\'', '\0'}, what, err);
    s->p++;
    return 0;
}

int json_scan_open(struct json_scan *s, char c, const char *what, struct error *err)
{
    if (json_scan_expect(s, c, what, err) < 0)
        return -1;
    if (++s->depth > JSON_SCAN_DEPTH)
        return err_set(err, ERR_INVALID, "nested deeper than %d at byte %" PRIu64, JSON_SCAN_DEPTH,
                       json_scan_at(s) - 1);
    return 0;
}

int json_scan_more(struct json_scan *s, char close, bool first, const char *what, struct error *err)
{
    int c = json_scan_peek(s);
    if (c == close) {
        s->p++;
        s->depth--;
        return 0;
    }
    if (first)
        return c < 0 ? unexpected(s, close == '}' ? "'}'" : "']'", what, err) : 1;
    if (json_scan_expect(s, ',', what, err) < 0)
        return -1;
    if (json_scan_peek(s) == close)
        return err_set(err, ERR_INVALID, "a comma before the end of %s at byte %" PRIu64, what,
                       json_scan_at(s));
    return 1;
}

static int hex4(const unsigned char *p, unsigned *ret)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = p[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)c - '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (unsigned)(c | 0x20) - 'a' + 10;
        else
            return -1;
        value = value << 4 | digit;
    }
    *ret = value;
    return 0;
}

/* One escape at p (the backslash); its length, 0 when it is none. */
static size_t escape_length(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    unsigned high, low;
    if (left < 2)
        return 0;
    if (p[1] != 'u')
        return p[1] && strchr("\"\\/bfnrt", p[1]) ? 2 : 0;
    if (left < 6 || hex4(p + 2, &high) < 0)
        return 0;
    if (high < 0xd800 || high > 0xdfff)
        return 6;
    if (high > 0xdbff || left < 12 || p[6] != '\\' || p[7] != 'u' || hex4(p + 8, &low) < 0 ||
        low < 0xdc00 || low > 0xdfff)
        return 0; /* a surrogate without its other half */
    return 12;
}

int json_scan_string(struct json_scan *s, const char *what, struct json_span *ret,
                     struct error *err)
{
    if (json_scan_peek(s) != '"')
        return unexpected(s, "a string", what, err);
    struct json_span span = {.text = (const char *)s->p + 1, .at = json_scan_at(s) + 1};
    const unsigned char *p = s->p + 1;
    while (p < s->end && *p != '"') {
        size_t step = 1;
        if (*p < 0x20)
            return err_set(err, ERR_INVALID,
                           "a raw control character (0x%02x) in a string at byte %" PRIu64, *p,
                           s->base + (uint64_t)(p - s->start));
        if (*p == '\\') {
            span.escaped = true;
            step = escape_length(p, s->end);
            if (!step)
                return err_set(err, ERR_INVALID, "a wrong escape in a string at byte %" PRIu64,
                               s->base + (uint64_t)(p - s->start));
        }
        p += step;
    }
    if (p >= s->end)
        return err_set(err, ERR_INVALID, "the string at byte %" PRIu64 " does not end", span.at);
    span.len = (size_t)(p - s->p) - 1;
    s->p = p + 1;
    *ret = span;
    return 0;
}

int json_scan_key(struct json_scan *s, const char *what, struct json_span *ret, struct error *err)
{
    struct json_span key;
    if (json_scan_string(s, what, &key, err) < 0 || json_scan_expect(s, ':', what, err) < 0)
        return -1;
    *ret = key;
    return 0;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static int byte_at(const struct json_scan *s, const unsigned char *p)
{
    return p < s->end ? *p : -1;
}

int json_scan_u64(struct json_scan *s, const char *what, uint64_t *ret, struct error *err)
{
    if (!is_digit(json_scan_peek(s)))
        return unexpected(s, "a whole number", what, err);
    const unsigned char *p = s->p;
    uint64_t value = 0;
    for (; p < s->end && is_digit(*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return err_set(err, ERR_INVALID,
                           "the number in %s at byte %" PRIu64 " does not fit 64 bits", what,
                           json_scan_at(s));
    int next = byte_at(s, p);
    if ((*s->p == '0' && p - s->p > 1) || next == '.' || next == 'e' || next == 'E')
        return err_set(err, ERR_INVALID,
                       "the number in %s at byte %" PRIu64 " is not a plain whole number", what,
                       json_scan_at(s));
    s->p = p;
    *ret = value;
    return 0;
}

static const unsigned char *skip_digits(const struct json_scan *s, const unsigned char *p)
{
    while (is_digit(byte_at(s, p)))
        p++;
    return p;
}

static int skip_number(struct json_scan *s, struct error *err)
{
    const unsigned char *p = s->p, *digits;
    if (byte_at(s, p) == '-')
        p++;
    digits = p;
    p = skip_digits(s, p);
    bool ok = p > digits && (*digits != '0' || p - digits == 1);
    if (ok && byte_at(s, p) == '.') {
        digits = ++p;
        p = skip_digits(s, p);
        ok = p > digits;
    }
    if (ok && (byte_at(s, p) == 'e' || byte_at(s, p) == 'E')) {
        p++;
        if (byte_at(s, p) == '+' || byte_at(s, p) == '-')
            p++;
        digits = p;
        p = skip_digits(s, p);
        ok = p > digits;
    }
    char text[NUMBER_MAX];
    size_t n = (size_t)(p - s->p);
    if (ok && n < sizeof(text)) {
        memcpy(text, s->p, n);
        text[n] = '\0';
        ok = isfinite(strtod(text, NULL));
    } else {
        ok = false;
    }
    if (!ok)
        return err_set(err, ERR_INVALID, "a wrong number at byte %" PRIu64, json_scan_at(s));
    s->p = p;
    return 0;
}

static int skip_word(struct json_scan *s, const char *word, struct error *err)
{
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return err_set(err, ERR_INVALID, "not a JSON value at byte %" PRIu64, json_scan_at(s));
    s->p += n;
    return 0;
}

static int skip_nested(struct json_scan *s, bool object, struct error *err)
{
    const char *what = object ? "an object" : "an array";
    struct json_span key;
    int more;
    if (json_scan_open(s, object ? '{' : '[', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, object ? '}' : ']', first, what, err)) > 0;
         first = false)
        if ((object && json_scan_key(s, what, &key, err) < 0) || json_scan_skip(s, err) < 0)
            return -1;
    return more;
}

int json_scan_skip(struct json_scan *s, struct error *err)
{
    struct json_span string;
    int c = json_scan_peek(s);
    switch (c) {
    case '"':
        return json_scan_string(s, "a value", &string, err);
    case '{':
    case '[':
        return skip_nested(s, c == '{', err);
    case 't':
        return skip_word(s, "true", err);
    case 'f':
        return skip_word(s, "false", err);
    case 'n':
        return skip_word(s, "null", err);
    default:
        if (c == '-' || is_digit(c))
            return skip_number(s, err);
        return unexpected(s, "a value", s->document, err);
    }
}

int json_scan_end(struct json_scan *s, struct error *err)
{
    int c = json_scan_peek(s);
    if (c >= 0)
        return err_set(err, ERR_INVALID, "the byte 0x%02x follows %s's object at byte %" PRIu64,
                       (unsigned)c, s->document, json_scan_at(s));
    return 0;
}

static unsigned put_utf8(unsigned code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Decodes the character at *p (a checked string) into out (4 bytes); returns its length. */
static unsigned next_char(const unsigned char **p, char out[static 4])
{
    const unsigned char *s = *p;
    unsigned high, low = 0;
    if (*s != '\\') {
        out[0] = (char)*s;
        *p = s + 1;
        return 1;
    }
    if (s[1] != 'u') {
        static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
        const char *at = strchr(from, s[1]);
        out[0] = (char)s[1];
        if (at)
            out[0] = to[at - from];
        *p = s + 2;
        return 1;
    }
    if (hex4(s + 2, &high) < 0) /* cannot be: the scanner has checked it */
        high = 0xfffd;
    *p = s + 6;
    if (high >= 0xd800 && high <= 0xdbff && hex4(s + 8, &low) == 0) {
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        *p = s + 12;
    }
    return put_utf8(high, out);
}

size_t json_span_decode(const struct json_span *span, char *out)
{
    const unsigned char *p = (const unsigned char *)span->text, *end = p + span->len;
    size_t n = 0;
    char text[4];
    while (p < end) {
        unsigned step = next_char(&p, text);
        memcpy(out + n, text, step);
        n += step;
    }
    return n;
}

bool json_span_equals(const struct json_span *span, const char *text)
{
    const unsigned char *p = (const unsigned char *)span->text, *end = p + span->len;
    size_t left = strlen(text);
    char piece[4];
    if (!span->escaped)
        return left == span->len && memcmp(span->text, text, left) == 0;
    while (p < end) {
        unsigned step = next_char(&p, piece);
        if (step > left || memcmp(piece, text, step) != 0)
            return false;
        text += step;
        left -= step;
    }
    return left == 0;
}

int json_span_plain(const struct json_span *span, struct strbuf *copy, const char **ret,
                    size_t *ret_len, struct error *err)
{
    *ret = span->text;
    *ret_len = span->len;
    if (!span->escaped)
        return 0;
    strbuf_reset(copy);
    char *out = strbuf_reserve(copy, span->len);
    if (!out)
        return err_set(err, ERR_NOMEM, "out of memory for a text of %zu bytes", span->len);
    *ret = out;
    *ret_len = json_span_decode(span, out);
    return 0;
}
