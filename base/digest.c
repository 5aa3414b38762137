#include "base/digest.h"

#include <openssl/evp.h>
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

static unsigned char hex_value(char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

int digest_parse_hex(enum digest_alg alg, const char *hex, struct digest *ret, struct error *err)
{
    size_t size = digest_size(alg);
    if (!size || !is_lower_hex(hex, 2 * size))
        return err_set(err, ERR_INVALID, "a %s digest is %zu lower-case hex digits, not \"%.160s\"",
                       digest_alg_name(alg), 2 * size, hex);
    struct digest d = {.alg = alg};
    for (size_t i = 0; i < size; i++)
        d.raw[i] = (unsigned char)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
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

struct hasher {
    EVP_MD_CTX *ctx;
    enum digest_alg alg;
};

static const EVP_MD *evp_of(enum digest_alg alg)
{
    switch (alg) {
    case DIGEST_SHA256:
        return EVP_sha256();
    case DIGEST_SHA512:
        return EVP_sha512();
    default:
        return NULL;
    }
}

int hasher_new(enum digest_alg alg, struct hasher **ret, struct error *err)
{
    const EVP_MD *md = evp_of(alg);
    if (!md)
        return err_set(err, ERR_UNSUPPORTED, "no such digest algorithm");
    struct hasher *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory for a hash");
    h->alg = alg;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, md, NULL) != 1) {
        hasher_free(h);
        return err_set(err, ERR_NOMEM, "cannot set up a %s hash", digest_alg_name(alg));
    }
    *ret = h;
    return 0;
}

void hasher_free(struct hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

int hasher_update(struct hasher *h, const void *data, size_t len, struct error *err)
{
    if (EVP_DigestUpdate(h->ctx, data, len) != 1)
        return err_set(err, ERR_INTERNAL, "%s update failed", digest_alg_name(h->alg));
    return 0;
}

int hasher_peek(const struct hasher *h, struct digest *ret, struct error *err)
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    struct digest d = {.alg = h->alg};
    unsigned n = 0;
    int ok = copy && EVP_MD_CTX_copy_ex(copy, h->ctx) == 1 &&
             EVP_DigestFinal_ex(copy, d.raw, &n) == 1 && n == digest_size(h->alg);
    EVP_MD_CTX_free(copy);
    if (!ok)
        return err_set(err, ERR_NOMEM, "cannot finish a %s hash", digest_alg_name(h->alg));
    *ret = d;
    return 0;
}

int digest_of(enum digest_alg alg, const void *data, size_t len, struct digest *ret,
              struct error *err)
{
    const EVP_MD *md = evp_of(alg);
    struct digest d = {.alg = alg};
    unsigned n = 0;
    if (!md)
        return err_set(err, ERR_UNSUPPORTED, "no such digest algorithm");
    if (EVP_Digest(data, len, d.raw, &n, md, NULL) != 1 || n != digest_size(alg))
        return err_set(err, ERR_NOMEM, "cannot compute a %s hash", digest_alg_name(alg));
    *ret = d;
    return 0;
}

int git_blob_oid(const void *data, size_t len, char ret[static GIT_OID_TEXT], struct error *err)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %zu", len);
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) == 1 &&
             EVP_DigestUpdate(ctx, head, (size_t)n + 1) == 1 &&
             EVP_DigestUpdate(ctx, data, len) == 1 && EVP_DigestFinal_ex(ctx, raw, &size) == 1 &&
             size == 20;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return err_set(err, ERR_NOMEM, "cannot compute a git object id");
    hex_format(raw, size, ret);
    return 0;
}
