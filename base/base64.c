#include "base/base64.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void strbuf_put_base64(struct strbuf *b, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (; len; p += 3) {
        size_t n = len < 3 ? len : 3;
        uint32_t bits = (uint32_t)p[0] << 16;
        if (n > 1)
            bits |= (uint32_t)p[1] << 8;
        if (n > 2)
            bits |= p[2];
        char four[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63], '=', '='};
        if (n > 1)
            four[2] = alphabet[bits >> 6 & 63];
        if (n > 2)
            four[3] = alphabet[bits & 63];
        strbuf_put(b, four, sizeof(four));
        len -= n;
    }
}

/* -1: no digit. */
static int digit(char c)
{
    const char *at = c ? strchr(alphabet, c) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

/* Four characters that stand for n bytes, 1 to 3. */
static bool decode_four(const char *text, unsigned n, unsigned char to[static 3])
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < 4; i++) {
        int d = i <= n ? digit(text[i]) : 0;
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
    }
    to[0] = (unsigned char)(bits >> 16);
    to[1] = (unsigned char)(bits >> 8);
    to[2] = (unsigned char)bits;
    /* Bits that no byte carries must be 0: else several texts would stand for the same bytes. */
    return n == 3 || (bits & (n == 2 ? 0xffu : 0xffffu)) == 0;
}

bool base64_decode(const char *text, size_t len, struct strbuf *b)
{
    size_t start = b->len;
    if (len % 4)
        return false;
    for (size_t i = 0; i < len; i += 4) {
        unsigned char bytes[3];
        unsigned n = 3;
        if (i + 4 == len && text[i + 3] == '=')
            n = text[i + 2] == '=' ? 1 : 2;
        if (!decode_four(text + i, n, bytes)) {
            strbuf_truncate(b, start);
            return false;
        }
        strbuf_put(b, bytes, n);
    }
    return true;
}
