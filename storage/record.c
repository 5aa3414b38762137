#include "storage/record.h"

#include <string.h>

void record_put_u64(struct strbuf *b, uint64_t n)
{
    unsigned char out[10];
    size_t len = 0;
    do {
        out[len] = (unsigned char)(n & 0x7f);
        n >>= 7;
        if (n)
            out[len] |= 0x80;
        len++;
    } while (n);
    strbuf_put(b, out, len);
}

void record_put_bytes(struct strbuf *b, const void *data, size_t len)
{
    record_put_u64(b, len);
    strbuf_put(b, data, len);
}

void record_put_text(struct strbuf *b, const char *s, size_t len)
{
    record_put_u64(b, len);
    strbuf_put(b, s, len);
    strbuf_putc(b, '\0');
}

void record_put_string(struct strbuf *b, const char *s)
{
    record_put_text(b, s, strlen(s));
}

void record_put_digest(struct strbuf *b, const struct digest *d)
{
    strbuf_putc(b, (char)d->alg);
    strbuf_put(b, d->raw, digest_size(d->alg));
}

struct record_reader record_reader_of(const void *data, size_t len)
{
    return (struct record_reader){.at = data, .left = len};
}

static void damage(struct record_reader *r)
{
    r->damaged = true;
    r->left = 0;
}

static const unsigned char *take(struct record_reader *r, uint64_t len)
{
    if (r->damaged || len > r->left) {
        damage(r);
        return NULL;
    }
    const unsigned char *at = r->at;
    r->at += len;
    r->left -= len;
    return at;
}

uint64_t record_get_u64(struct record_reader *r)
{
    uint64_t n = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const unsigned char *p = take(r, 1);
        if (!p)
            return 0;
        uint64_t bits = *p & 0x7f;
        if (shift == 63 && bits > 1)
            break;
        n |= bits << shift;
        if (!(*p & 0x80)) {
            if (bits == 0 && shift > 0)
                break;
            return n;
        }
    }
    damage(r);
    return 0;
}

const unsigned char *record_get_bytes(struct record_reader *r, size_t *ret_len)
{
    uint64_t len = record_get_u64(r);
    const unsigned char *at = take(r, len);
    *ret_len = at ? (size_t)len : 0;
    return at;
}

const char *record_get_string(struct record_reader *r)
{
    uint64_t len = record_get_u64(r);
    /* len + 1 cannot wrap: a length that large fails here first */
    if (r->damaged || len >= r->left) {
        damage(r);
        return "";
    }
    const char *s = (const char *)take(r, len + 1);
    if (!s || memchr(s, '\0', (size_t)len + 1) != s + len) {
        damage(r);
        return "";
    }
    return s;
}

void record_get_string_into(struct record_reader *r, char *buf, size_t size)
{
    const char *s = record_get_string(r);
    size_t len = strlen(s);
    if (len >= size) {
        damage(r);
        s = "";
        len = 0;
    }
    memcpy(buf, s, len + 1);
}

void record_get_digest(struct record_reader *r, struct digest *ret)
{
    *ret = (struct digest){.alg = DIGEST_NONE};
    const unsigned char *alg = take(r, 1);
    if (!alg || *alg == DIGEST_NONE)
        return;
    size_t size = digest_size((enum digest_alg) * alg);
    const unsigned char *raw = size ? take(r, size) : NULL;
    if (!raw) {
        damage(r);
        return;
    }
    ret->alg = (enum digest_alg) * alg;
    memcpy(ret->raw, raw, size);
}

size_t record_get_count(struct record_reader *r, size_t least)
{
    uint64_t n = record_get_u64(r);
    if (n > r->left / least) {
        damage(r);
        return 0;
    }
    return (size_t)n;
}

bool record_end(const struct record_reader *r)
{
    return !r->damaged && r->left == 0;
}
