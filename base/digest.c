#include "base/digest.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} algs[] = {
    [DIGEST_NONE] = {"none", 0},
    [DIGEST_SHA256] = {"sha256", 32},
    [DIGEST_SHA512] = {"sha512", 64},
};

size_t digest_size(enum digest_alg alg)
{
    return (unsigned)alg < ARRAY_LEN(algs) ? algs[alg].size : 0;
}

const char *digest_alg_name(enum digest_alg alg)
{
    return (unsigned)alg < ARRAY_LEN(algs) ? algs[alg].name : "none";
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return a->alg == b->alg && a->alg != DIGEST_NONE &&
           memcmp(a->raw, b->raw, digest_size(a->alg)) == 0;
}

bool is_lower_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    return s[n] == '\0';
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int digest_parse_hex(enum digest_alg alg, const char *hex, struct digest *ret, struct error *err)
{
    size_t size = digest_size(alg);
    if (!size || !is_lower_hex(hex, 2 * size))
        return err_set(err, ERR_INVALID, "a %s digest is %zu lower-case hex digits, not \"%.160s\"",
                       digest_alg_name(alg), 2 * size, hex);
    struct digest d = {.alg = alg};
    for (size_t i = 0; i < size; i++)
        d.raw[i] = (unsigned char)(hex_digit(hex[2 * i]) * 16 + hex_digit(hex[2 * i + 1]));
    *ret = d;
    return 0;
}

/* image-spec: algorithm = [a-z0-9]+([+._-][a-z0-9]+)*, encoded = [a-zA-Z0-9=_-]+ */
static bool is_digest_grammar(const char *text)
{
    const char *p = text;
    bool after_separator = true;
    for (; *p && *p != ':'; p++) {
        bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9');
        if (!alnum && (after_separator || !strchr("+._-", *p)))
            return false;
        after_separator = !alnum;
    }
    if (*p != ':' || after_separator || p[1] == '\0')
        return false;
    for (p++; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
              strchr("=_-", *p)))
            return false;
    return true;
}

int digest_parse(const char *text, struct digest *ret, struct error *err)
{
    for (enum digest_alg alg = DIGEST_SHA256; alg <= DIGEST_SHA512; alg++) {
        size_t n = strlen(algs[alg].name);
        if (strncmp(text, algs[alg].name, n) == 0 && text[n] == ':')
            return digest_parse_hex(alg, text + n + 1, ret, err);
    }
    if (is_digest_grammar(text))
        return err_set(err, ERR_UNSUPPORTED,
                       "digest algorithm of \"%.160s\" is not supported: use sha256 or sha512",
                       text);
    return err_set(err, ERR_INVALID, "\"%.160s\" is not a digest (algorithm:hex)", text);
}

char *hex_format(const void *raw, size_t n, char *buf)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = raw;
    for (size_t i = 0; i < n; i++) {
        buf[2 * i] = digits[p[i] >> 4];
        buf[2 * i + 1] = digits[p[i] & 15];
    }
    buf[2 * n] = '\0';
    return buf;
}

uint64_t text_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

char *digest_format_hex(const struct digest *d, char buf[static DIGEST_TEXT_MAX])
{
    return hex_format(d->raw, digest_size(d->alg), buf);
}

char *digest_format(const struct digest *d, char buf[static DIGEST_TEXT_MAX])
{
    char hex[DIGEST_TEXT_MAX];
    snprintf(buf, DIGEST_TEXT_MAX, "%s:%.128s", digest_alg_name(d->alg), digest_format_hex(d, hex));
    return buf;
}
