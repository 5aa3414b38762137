#include "base/json.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 128
#define AS_CJSON(j) ((const cJSON *)(const void *)(j))
#define AS_JSON(c) ((const struct json *)(const void *)(c))

unsigned utf8_sequence(const unsigned char *s, size_t n)
{
    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    unsigned len;
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte: RFC 3629 table */
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        len = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        len = 3;
        if (s[0] == 0xe0)
            low = 0xa0;
        if (s[0] == 0xed)
            high = 0x9f;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        len = 4;
        if (s[0] == 0xf0)
            low = 0x90;
        if (s[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (n < len || s[1] < low || s[1] > high)
        return 0;
    for (unsigned i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return len;
}

bool utf8_is_valid(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    while (n) {
        unsigned step = utf8_sequence(p, n);
        if (!step)
            return false;
        p += step;
        n -= step;
    }
    return true;
}

/* Bytes of the JSON number at s (n bytes left), 0 when it is none: cJSON takes 01, 1. and 1-2. */
static size_t number_length(const unsigned char *s, size_t n)
{
    size_t i = n && s[0] == '-' ? 1 : 0;
    size_t digits = i;
    while (i < n && isdigit(s[i]))
        i++;
    if (i == digits || (s[digits] == '0' && i > digits + 1))
        return 0;
    if (i < n && s[i] == '.') {
        digits = ++i;
        while (i < n && isdigit(s[i]))
            i++;
        if (i == digits)
            return 0;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-'))
            i++;
        digits = i;
        while (i < n && isdigit(s[i]))
            i++;
        if (i == digits)
            return 0;
    }
    return i < n && strchr("0123456789.+-eE", s[i]) ? 0 : i;
}

/* Four hex digits that are not all zero. */
static bool hex4(const unsigned char *s, size_t n)
{
    if (n < 4)
        return false;
    for (unsigned i = 0; i < 4; i++)
        if (!isxdigit(s[i]))
            return false;
    return memcmp(s, "0000", 4) != 0;
}

/* What cJSON lets through: looked for before it sees the text. */
static int check_text(const char *text, size_t len, struct error *err)
{
    const unsigned char *p = (const unsigned char *)text;
    bool in_string = false;
    unsigned depth = 0;
    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        return err_set(err, ERR_INVALID, "JSON starts with a byte order mark");
    for (size_t i = 0; i < len;) {
        unsigned step = utf8_sequence(p + i, len - i);
        if (!step)
            return err_set(err, ERR_INVALID, "JSON has invalid UTF-8 at byte %zu", i);
        unsigned char c = p[i];
        if (c == '\0')
            return err_set(err, ERR_INVALID, "JSON has a NUL byte at %zu", i);
        if (in_string) {
            if (c < 0x20)
                return err_set(err, ERR_INVALID, "JSON has a raw control character at byte %zu", i);
            if (c == '\\') {
                /* cJSON reads malformed digits as 0000, and that as the end of the string. */
                if (i + 1 < len && p[i + 1] == 'u' && !hex4(p + i + 2, len - i - 2))
                    return err_set(err, ERR_INVALID,
                                   "JSON has \\u0000 or a malformed \\u escape at byte %zu", i);
                step = 2; /* the escaped byte can not end the string; cJSON checks it */
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return err_set(err, ERR_INVALID, "JSON is nested deeper than %d at byte %zu",
                               MAX_DEPTH, i);
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        } else if (c == '-' || isdigit(c)) {
            step = (unsigned)number_length(p + i, len - i);
            if (!step)
                return err_set(err, ERR_INVALID, "JSON has a malformed number at byte %zu", i);
        } else if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            return err_set(err, ERR_INVALID, "JSON has a control character at byte %zu", i);
        }
        i += step;
    }
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Duplicate keys of one object; sorted so that a large hostile object costs n log n. */
static int check_keys(const cJSON *object, struct error *err)
{
    size_t n = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        n++;
    if (n < 2)
        return 0;
    _cleanup_free_ const char **keys = calloc(n, sizeof(*keys));
    if (!keys)
        return err_set(err, ERR_NOMEM, "out of memory for %zu JSON keys", n);
    size_t i = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        keys[i++] = c->string ? c->string : "";
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (i = 1; i < n; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return err_set(err, ERR_INVALID, "JSON has the key \"%.100s\" twice", keys[i]);
    return 0;
}

static int check_tree(const cJSON *c, struct error *err)
{
    if (cJSON_IsObject(c) && check_keys(c, err) < 0)
        return -1;
    for (const cJSON *child = c->child; child; child = child->next)
        if (child->child && check_tree(child, err) < 0)
            return -1;
    return 0;
}

int json_parse(const char *text, size_t len, struct json **ret, struct error *err)
{
    if (check_text(text, len, err) < 0)
        return -1;
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, len, &end, 0);
    if (!root)
        return err_set(err, ERR_INVALID, "not JSON, from byte %zu on",
                       end && end >= text ? (size_t)(end - text) : 0);
    size_t at = (size_t)(end - text);
    while (at < len && strchr(" \t\r\n", text[at]))
        at++;
    if (at < len) {
        cJSON_Delete(root);
        return err_set(err, ERR_INVALID, "JSON is followed by other text at byte %zu", at);
    }
    if (check_tree(root, err) < 0) {
        cJSON_Delete(root);
        return -1;
    }
    *ret = (struct json *)(void *)root;
    return 0;
}

void json_free(struct json *root)
{
    cJSON_Delete((cJSON *)(void *)root);
}

bool json_is_object(const struct json *j)
{
    return cJSON_IsObject(AS_CJSON(j));
}

bool json_is_array(const struct json *j)
{
    return cJSON_IsArray(AS_CJSON(j));
}

bool json_is_string(const struct json *j)
{
    return cJSON_IsString(AS_CJSON(j));
}

bool json_is_number(const struct json *j)
{
    return cJSON_IsNumber(AS_CJSON(j));
}

bool json_is_bool(const struct json *j)
{
    return cJSON_IsBool(AS_CJSON(j));
}

bool json_is_null(const struct json *j)
{
    return cJSON_IsNull(AS_CJSON(j));
}

bool json_is_true(const struct json *j)
{
    return cJSON_IsTrue(AS_CJSON(j));
}

const struct json *json_get(const struct json *j, const char *key)
{
    return json_is_object(j) ? AS_JSON(cJSON_GetObjectItemCaseSensitive(AS_CJSON(j), key)) : NULL;
}

const struct json *json_first(const struct json *j)
{
    return json_is_object(j) || json_is_array(j) ? AS_JSON(AS_CJSON(j)->child) : NULL;
}

const struct json *json_next(const struct json *j)
{
    return j ? AS_JSON(AS_CJSON(j)->next) : NULL;
}

const char *json_key(const struct json *j)
{
    return j ? AS_CJSON(j)->string : NULL;
}

size_t json_length(const struct json *j)
{
    size_t n = 0;
    for (const struct json *c = json_first(j); c; c = json_next(c))
        n++;
    return n;
}

const char *json_str(const struct json *j)
{
    return json_is_string(j) ? AS_CJSON(j)->valuestring : NULL;
}

bool json_double(const struct json *j, double *ret)
{
    if (!json_is_number(j) || !isfinite(AS_CJSON(j)->valuedouble))
        return false;
    *ret = AS_CJSON(j)->valuedouble;
    return true;
}

bool json_u64(const struct json *j, uint64_t *ret)
{
    double d;
    /* 2^53 itself is what 2^53 + 1 is read as: the first value that cannot be trusted. */
    if (!json_double(j, &d) || !(d >= 0 && d < 9007199254740992.0) || d != floor(d))
        return false;
    *ret = (uint64_t)d;
    return true;
}

/* How many bytes at the beginning stand for themselves: most of nearly every string. */
static size_t count_plain(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\' && p[i] != '<' &&
           p[i] != '>' && p[i] != '&')
        i++;
    return i;
}

void json_put_string_n(struct strbuf *b, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    strbuf_putc(b, '"');
    while (n) {
        size_t plain = count_plain(p, n);
        strbuf_put(b, p, plain);
        p += plain;
        n -= plain;
        if (!n)
            break;
        unsigned step = utf8_sequence(p, n);
        if (!step) {
            strbuf_puts(b, "\\ufffd");
            step = 1;
        } else if (*p == '"' || *p == '\\') {
            strbuf_printf(b, "\\%c", *p);
        } else if (*p == '\n' || *p == '\r' || *p == '\t' || *p == '\b' || *p == '\f') {
            static const char names[] = {
                ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
            strbuf_printf(b, "\\%c", names[*p]);
        } else if (*p < 0x20 || *p == '<' || *p == '>' || *p == '&') {
            strbuf_printf(b, "\\u%04x", *p);
        } else if (step == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) {
            strbuf_puts(b, p[2] == 0xa8 ? "\\u2028" : "\\u2029");
        } else {
            strbuf_put(b, p, step);
        }
        p += step;
        n -= step;
    }
    strbuf_putc(b, '"');
}

void json_put_string(struct strbuf *b, const char *s)
{
    json_put_string_n(b, s, strlen(s));
}

void json_put_separator(struct strbuf *b)
{
    if (b->len && b->data[b->len - 1] != '{' && b->data[b->len - 1] != '[')
        strbuf_putc(b, ',');
}

void json_put_key(struct strbuf *b, const char *key)
{
    json_put_separator(b);
    json_put_string(b, key);
    strbuf_putc(b, ':');
}

void json_put_u64(struct strbuf *b, uint64_t n)
{
    strbuf_printf(b, "%" PRIu64, n);
}

void json_put_text(struct strbuf *b, const char *key, const char *text)
{
    json_put_key(b, key);
    json_put_string(b, text);
}

void json_put_number(struct strbuf *b, const char *key, uint64_t n)
{
    json_put_key(b, key);
    json_put_u64(b, n);
}
