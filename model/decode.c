#include "model/decode.h"

#include <string.h>

#include "base/cleanup.h"
#include "model/decode_types.h"
#include "model/parsers.h"

#define GGML_TYPE_IDS 256 /* more than there are */

struct plain_type {
    const char *name;
    enum decoded_kind kind;
    uint8_t bits;
    bool safetensors, ggml; /* who has it */
};

static const struct plain_type *plain_type_of(enum decode_names names, const char *type)
{
    static const struct plain_type table[] = {
        {"BOOL", DECODED_BOOL, 8, true, false},
        {"U2", DECODED_UNSIGNED, 2, true, false}, /* these four are ONNX's */
        {"I2", DECODED_SIGNED, 2, true, false},
        {"U4", DECODED_UNSIGNED, 4, true, false},
        {"I4", DECODED_SIGNED, 4, true, false},
        {"U8", DECODED_UNSIGNED, 8, true, false},
        {"I8", DECODED_SIGNED, 8, true, true},
        {"U16", DECODED_UNSIGNED, 16, true, false},
        {"I16", DECODED_SIGNED, 16, true, true},
        {"U32", DECODED_UNSIGNED, 32, true, false},
        {"I32", DECODED_SIGNED, 32, true, true},
        {"U64", DECODED_UNSIGNED, 64, true, false},
        {"I64", DECODED_SIGNED, 64, true, true},
        {"F4", DECODED_FLOAT, 4, true, false},
        {"F6_E2M3", DECODED_FLOAT, 6, true, false},
        {"F6_E3M2", DECODED_FLOAT, 6, true, false},
        {"F8_E4M3", DECODED_FLOAT, 8, true, false},
        {"F8_E5M2", DECODED_FLOAT, 8, true, false},
        {"F8_E4M3FNUZ", DECODED_FLOAT, 8, true, false},
        {"F8_E5M2FNUZ", DECODED_FLOAT, 8, true, false},
        {"F8_E8M0", DECODED_FLOAT, 8, true, false},
        {"F16", DECODED_FLOAT, 16, true, true},
        {"BF16", DECODED_FLOAT, 16, true, true},
        {"F32", DECODED_FLOAT, 32, true, true},
        {"F64", DECODED_FLOAT, 64, true, true},
        {"C32", DECODED_COMPLEX, 32, true, false}, /* PyTorch's */
        {"C64", DECODED_COMPLEX, 64, true, false},
        {"C128", DECODED_COMPLEX, 128, true, false}, /* NumPy's and ONNX's */
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, type) == 0 &&
            (names == DECODE_SAFETENSORS ? table[i].safetensors : table[i].ggml))
            return &table[i];
    return NULL;
}

bool type_block(enum decode_names names, const char *type, uint32_t *ret_elements,
                uint32_t *ret_bytes)
{
    const struct plain_type *plain = plain_type_of(names, type);
    if (plain) {
        *ret_elements = plain->bits == 4 ? 2 : plain->bits < 8 ? 4 : 1;
        *ret_bytes = *ret_elements * plain->bits / 8;
        return true;
    }
    for (uint32_t id = 0; names == DECODE_GGML && id < GGML_TYPE_IDS; id++) {
        const struct ggml_type *t = ggml_type_of(id);
        if (t && strcmp(t->name, type) == 0) {
            *ret_elements = t->block;
            *ret_bytes = t->bytes;
            return true;
        }
    }
    return false;
}

uint64_t decode_bytes(enum decode_names names, const char *type, uint64_t n)
{
    uint32_t elements, bytes;
    uint64_t ret;
    if (!type_block(names, type, &elements, &bytes))
        return 0;
    uint64_t blocks = n / elements + (n % elements != 0);
    return __builtin_mul_overflow(blocks, bytes, &ret) ? UINT64_MAX : ret;
}

uint64_t bytes_load(const unsigned char *p, unsigned n, bool big)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++)
        value = value << 8 | p[big ? i : n - 1 - i];
    return value;
}

/* `bits` bits from bit `at` on, counted from the lowest of the first byte: the first of two F4
 * lies in the low nibble (as torch.float4_e2m1fn_x2 has it), so do ONNX's small integers, and the
 * F6 follow one another in the same way. */
static unsigned load_bits(const unsigned char *p, size_t at, unsigned bits)
{
    unsigned value = p[at / 8], shift = (unsigned)(at % 8);
    if (shift + bits > 8)
        value |= (unsigned)p[at / 8 + 1] << 8;
    return value >> shift & ((1u << bits) - 1);
}

static uint64_t load_one(const struct plain_type *t, bool big, const unsigned char *data, size_t i)
{
    if (t->bits < 8)
        return load_bits(data, i * t->bits, t->bits);
    unsigned bytes = t->bits / 8u;
    return bytes_load(data + i * bytes, bytes, big);
}

static void decode_one(const struct plain_type *t, const struct float_format *f, bool big,
                       const unsigned char *data, size_t i, struct decoded *ret)
{
    *ret = (struct decoded){.kind = t->kind};
    switch (t->kind) {
    case DECODED_FLOAT:
        ret->v.real = float_decode(f, load_one(t, big, data, i));
        break;
    case DECODED_COMPLEX: {
        unsigned half = t->bits / 16u;
        const unsigned char *p = data + i * 2 * half;
        ret->v.real = float_decode(f, bytes_load(p, half, big));
        ret->imaginary = float_decode(f, bytes_load(p + half, half, big));
        break;
    }
    case DECODED_SIGNED: { /* the sign is the top bit: move it there and back */
        unsigned shift = 64u - t->bits;
        ret->v.i = (int64_t)(load_one(t, big, data, i) << shift) >> shift;
        break;
    }
    case DECODED_BOOL:
    case DECODED_UNSIGNED:
        ret->v.u = load_one(t, big, data, i);
        break;
    }
}

static void decode_plain(const struct plain_type *t, bool big, const unsigned char *data, size_t n,
                         struct decoded *ret)
{
    const struct float_format *f = NULL;
    if (t->kind == DECODED_COMPLEX)
        f = float_format_of(t->bits == 32 ? "F16" : t->bits == 64 ? "F32" : "F64");
    else if (t->kind == DECODED_FLOAT)
        f = float_format_of(t->name);
    for (size_t i = 0; i < n; i++)
        decode_one(t, f, big, data, i, &ret[i]);
}

static void decode_blocks(const struct block_decoder *d, uint32_t elements, uint32_t bytes,
                          bool big, const unsigned char *data, size_t n, struct decoded *ret)
{
    float values[BLOCK_MAX];
    for (size_t i = 0; i < n; i++) {
        if (i % elements == 0)
            d->decode(data + i / elements * bytes, big, values);
        ret[i] = (struct decoded){.kind = DECODED_FLOAT, .v.real = (double)values[i % elements]};
    }
}

int decode(enum decode_names names, const char *type, bool big_endian, const void *data, size_t len,
           size_t n, struct decoded *ret, struct error *err)
{
    const struct plain_type *plain = plain_type_of(names, type);
    const struct block_decoder *blocks = names == DECODE_GGML ? block_decoder_of(type) : NULL;
    uint64_t need = decode_bytes(names, type, n);
    uint32_t elements, bytes;
    if (!type_block(names, type, &elements, &bytes) || (!plain && !blocks))
        return err_set(err, ERR_UNSUPPORTED, "values of type %s are not known here", type);
    if (blocks && big_endian && blocks->little_only)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has no agreed byte order in a big-endian file: its values are not shown",
                       type);
    if (need > len)
        return err_set(err, ERR_INVALID, "%zu elements of %s are %ju bytes, and here are %zu", n,
                       type, (uintmax_t)need, len);
    if (plain)
        decode_plain(plain, big_endian, data, n, ret);
    else
        decode_blocks(blocks, elements, bytes, big_endian, data, n, ret);
    return 0;
}
