/* Protobuf's wire format, read through a byte source. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/onnx_private.h"

#define CHUNK_MIN 1024u

int field_bad(const struct message *m, const struct field *f, struct error *err, const char *format,
              ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return err_set(err, ERR_INVALID, "%s, field %u at byte %llu: %s", m->name, f->number,
                   (unsigned long long)f->tag, text);
}

/* Makes the bytes at `at` available, n of them (up to FIELD_CHUNK), which lie in the file. */
static const unsigned char *view(struct field_reader *r, uint64_t at, size_t n, struct error *err)
{
    uint64_t size = r->s->size;
    if (at >= r->at && at - r->at <= r->have && r->have - (at - r->at) >= n)
        return r->buf + (at - r->at);
    bool in_a_row = at >= r->at && at - r->at <= r->have;
    r->chunk = !in_a_row ? CHUNK_MIN : r->chunk < FIELD_CHUNK ? 2 * r->chunk : FIELD_CHUNK;
    size_t len = n > r->chunk ? n : r->chunk;
    len = len < size - at ? len : (size_t)(size - at);
    r->have = 0;
    if (r->s->read(r->s->ctx, at, r->buf, len, err) < 0)
        return NULL;
    r->at = at;
    r->have = len;
    return r->buf;
}

/* 1, 0: cut off or over 64 bits, -1 */
static int read_varint(struct field_reader *r, struct message *m, uint64_t *ret, struct error *err)
{
    uint64_t left = m->end - m->at, v = 0;
    size_t n = left < 10 ? (size_t)left : 10;
    if (n == 0)
        return 0;
    const unsigned char *p = view(r, m->at, n, err);
    if (!p)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (i == 9 && p[i] > 1)
            return 0;
        v |= (uint64_t)(p[i] & 0x7f) << 7 * i;
        if (!(p[i] & 0x80)) {
            m->at += i + 1;
            *ret = v;
            return 1;
        }
    }
    return 0;
}

int field_next(struct field_reader *r, struct message *m, struct field *ret, struct error *err)
{
    uint64_t tag = 0, len = 0;
    if (m->at == m->end)
        return 0;
    struct field f = {.tag = m->at};
    int rc = read_varint(r, m, &tag, err);
    if (rc < 0)
        return -1;
    f.number = (uint32_t)(tag >> 3);
    f.wire = (enum wire)(tag & 7);
    if (rc == 0 || tag > UINT32_MAX || f.number == 0)
        return err_set(err, ERR_INVALID, "%s at byte %llu: no tag of a field", m->name,
                       (unsigned long long)f.tag);
    switch (f.wire) {
    case WIRE_VARINT:
        rc = read_varint(r, m, &f.value, err);
        break;
    case WIRE_BYTES:
        rc = read_varint(r, m, &len, err);
        break;
    case WIRE_32:
    case WIRE_64:
        len = f.wire == WIRE_32 ? 4 : 8;
        break;
    default:
        return field_bad(m, &f, err, "wire type %u, which is not used", (unsigned)f.wire);
    }
    if (rc < 0)
        return -1;
    if (rc == 0)
        return field_bad(m, &f, err, "a number is cut off or over 64 bits");
    f.at = m->at;
    f.len = len;
    if (len > m->end - m->at)
        return field_bad(m, &f, err, "it takes %llu bytes, the %s has %llu left",
                         (unsigned long long)len, m->name, (unsigned long long)(m->end - m->at));
    m->at += len;
    *ret = f;
    return 1;
}

int field_string(struct field_reader *r, const struct field *f, const char *what, char *buf,
                 size_t cap, struct error *err)
{
    size_t len = f->len < cap - 1 ? (size_t)f->len : cap - 1;
    const struct message m = {.name = what};
    const unsigned char *p = (const unsigned char *)"";
    if (len && !(p = view(r, f->at, len, err)))
        return -1;
    if (memchr(p, 0, len))
        return field_bad(&m, f, err, "a NUL in a string");
    size_t whole = 0;
    for (unsigned n; whole < len && (n = utf8_sequence(p + whole, len - whole));)
        whole += n;
    if (whole < len && (f->len <= cap - 1 || len - whole > 3))
        return field_bad(&m, f, err, "a string that is not UTF-8");
    memcpy(buf, p, whole);
    buf[whole] = '\0';
    return 0;
}

int field_numbers(struct field_reader *r, const struct message *m, const struct field *f,
                  int (*put)(void *ctx, uint64_t v, struct error *err), void *ctx,
                  struct error *err)
{
    if (f->wire == WIRE_VARINT)
        return put(ctx, f->value, err);
    if (f->wire != WIRE_BYTES)
        return field_bad(m, f, err, "no number");
    for (struct message packed = field_message(f, m->name); packed.at < packed.end;) {
        uint64_t v;
        int rc = read_varint(r, &packed, &v, err);
        if (rc == 0)
            return field_bad(m, f, err, "a packed number is cut off or over 64 bits");
        if (rc < 0 || put(ctx, v, err) < 0)
            return -1;
    }
    return 0;
}
