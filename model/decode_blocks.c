/* ggml's block types. The layouts are those of ggml-common.h; the arithmetic is float32, in the
 * order of ggml's own dequantize functions, so that results are the same to the bit. */
#include <string.h>

#include "base/cleanup.h"
#include "model/decode_grids.h"
#include "model/decode_types.h"

/* ggml rounds after each operation. Inlined, a compiler for a machine with fused multiply-add
 * would join a product and the sum behind it, and round once. */
__attribute__((noinline)) static float times(float a, float b)
{
    return a * b;
}

static float load_half(const unsigned char *p, bool big)
{
    static const struct float_format half = {"F16", 16, 5, 10, 15, FLOAT_IEEE};
    return (float)float_decode(&half, bytes_load(p, 2, big));
}

static unsigned load16(const unsigned char *p, bool big)
{
    return (unsigned)bytes_load(p, 2, big);
}

static uint32_t load32(const unsigned char *p)
{
    return (uint32_t)bytes_load(p, 4, false);
}

/* The field of a byte or word that begins at bit `shift` and is as wide as the mask. */
static unsigned field(unsigned value, unsigned shift, unsigned mask)
{
    return value >> shift & mask;
}

/* Element i of a run of 2-bit numbers, from the lowest bits of the first byte on. */
static unsigned two_bits(const unsigned char *p, unsigned i)
{
    return field(p[i / 4], 2 * (i % 4), 3);
}

static unsigned one_bit(const unsigned char *p, unsigned i)
{
    return field(p[i / 8], i % 8, 1);
}

/* Element i of n, the first half of which lies in the low nibbles of n/2 bytes. */
static unsigned nibble(const unsigned char *p, unsigned i, unsigned n)
{
    return i < n / 2 ? field(p[i], 0, 15) : field(p[i - n / 2], 4, 15);
}

/* ---- one scale a block ---- */

static void decode_q1_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 128; i++)
        ret[i] = one_bit(b + 2, i) ? d : -d;
}

static void decode_q2_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 64; i++)
        ret[i] = times((float)((int)two_bits(b + 2, i) - 1), d);
}

static void decode_q4_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times((float)((int)nibble(b + 2, i, 32) - 8), d);
}

static void decode_q4_1(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big), m = load_half(b + 2, big);
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times((float)nibble(b + 4, i, 32), d) + m;
}

static void decode_q5_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++) {
        unsigned q = nibble(b + 6, i, 32) | one_bit(b + 2, i) << 4;
        ret[i] = times((float)((int)q - 16), d);
    }
}

static void decode_q5_1(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big), m = load_half(b + 2, big);
    for (unsigned i = 0; i < 32; i++) {
        unsigned q = nibble(b + 8, i, 32) | one_bit(b + 4, i) << 4;
        ret[i] = times((float)q, d) + m;
    }
}

static void decode_q8_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times((float)(int8_t)b[2 + i], d);
}

/* Behind the scale stands the scaled sum of the block, which is no weight. */
static void decode_q8_1(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times((float)(int8_t)b[4 + i], d);
}

static void decode_q8_k(const unsigned char *b, bool big, float *ret)
{
    uint32_t bits = (uint32_t)bytes_load(b, 4, big);
    float d;
    memcpy(&d, &bits, sizeof(d));
    for (unsigned i = 0; i < 256; i++)
        ret[i] = times(d, (float)(int8_t)b[4 + i]);
}

/* Three-valued digits, five to a byte: the byte is their fraction of 243, scaled to 256, so that
 * multiplying by powers of three brings each digit to the top. */
static int ternary(unsigned char byte, unsigned digit)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    return (int)((uint8_t)(byte * powers[digit]) * 3u >> 8) - 1;
}

static void decode_tq1_0(const unsigned char *b, bool big, float *ret)
{
    static const struct {
        uint8_t first, bytes, digits;
    } runs[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    float d = load_half(b + 52, big);
    for (size_t r = 0; r < ARRAY_LEN(runs); r++)
        for (unsigned digit = 0; digit < runs[r].digits; digit++)
            for (unsigned i = 0; i < runs[r].bytes; i++)
                *ret++ = times((float)ternary(b[runs[r].first + i], digit), d);
}

/* Byte i % 32 of each half holds elements i, i + 32, i + 64 and i + 96. */
static unsigned spread_two_bits(const unsigned char *p, unsigned i)
{
    return field(p[i / 128 * 32 + i % 32], 2 * (i % 128 / 32), 3);
}

static void decode_tq2_0(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b + 64, big);
    for (unsigned i = 0; i < 256; i++)
        ret[i] = times((float)((int)spread_two_bits(b, i) - 1), d);
}

/* ---- 4-bit floats and 4-bit tables ---- */

/* E2M1 doubled; the scales are halved for it. */
static const int8_t values_fp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static const int8_t values_iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

static void decode_mxfp4(const unsigned char *b, bool big, float *ret)
{
    /* 2^(b[0] - 128), which is no normal number for the two smallest. */
    uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
    float d;
    (void)big;
    memcpy(&d, &bits, sizeof(d));
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times(values_fp4[nibble(b + 1, i, 32)], d);
}

static void decode_nvfp4(const unsigned char *b, bool big, float *ret)
{
    static const struct float_format scale = {"UE4M3", 7, 4, 3, 7, FLOAT_FINITE};
    (void)big;
    for (unsigned sub = 0; sub < 4; sub++) {
        float d = b[sub] == 0x7f ? 0.0f : (float)(float_decode(&scale, b[sub] & 0x7f) / 2);
        for (unsigned i = 0; i < 16; i++)
            *ret++ = times(values_fp4[nibble(b + 4 + (size_t)sub * 8, i, 16)], d);
    }
}

static void decode_iq4_nl(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++)
        ret[i] = times(d, values_iq4[nibble(b + 2, i, 32)]);
}

static void decode_iq4_xs(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    unsigned high = load16(b + 2, big);
    for (unsigned sub = 0; sub < 8; sub++) {
        unsigned scale = field(b[4 + sub / 2], 4 * (sub % 2), 15) | field(high, 2 * sub, 3) << 4;
        float scaled = times(d, (float)((int)scale - 32));
        for (unsigned i = 0; i < 32; i++)
            *ret++ = times(scaled, values_iq4[nibble(b + 8 + (size_t)sub * 16, i, 32)]);
    }
}

/* ---- k-quants: blocks of 256 with scales of their sub-blocks ---- */

static void decode_q2_k(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b + 80, big), min = load_half(b + 82, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned scale = b[i / 16];
        float m = times(min, (float)(scale >> 4));
        ret[i] = times(times(d, (float)(scale & 15)), (float)spread_two_bits(b + 16, i)) - m;
    }
}

static void decode_q3_k(const unsigned char *b, bool big, float *ret)
{
    const unsigned char *high = b, *low = b + 32, *scales = b + 96;
    float d = load_half(b + 108, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned sub = i / 16;
        unsigned scale = field(scales[sub % 8], 4 * (sub / 8), 15) |
                         field(scales[8 + sub % 4], 2 * (sub / 4), 3) << 4;
        int q = (int)spread_two_bits(low, i) - (field(high[i % 32], i / 32, 1) ? 0 : 4);
        ret[i] = times(times(d, (float)((int)scale - 32)), (float)q);
    }
}

/* The 6-bit scale and minimum of sub-block j, of 8 of each in 12 bytes. */
static void load_scale_min(const unsigned char *p, unsigned j, unsigned *scale, unsigned *min)
{
    if (j < 4) {
        *scale = field(p[j], 0, 63);
        *min = field(p[j + 4], 0, 63);
    } else {
        *scale = field(p[j + 4], 0, 15) | field(p[j - 4], 6, 3) << 4;
        *min = field(p[j + 4], 4, 15) | field(p[j], 6, 3) << 4;
    }
}

static void decode_q4_k(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big), dmin = load_half(b + 2, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned scale, min, q = nibble(b + 16 + (size_t)(i / 64) * 32, i % 64, 64);
        load_scale_min(b + 4, i / 32, &scale, &min);
        ret[i] = times(times(d, (float)scale), (float)q) - times(dmin, (float)min);
    }
}

static void decode_q5_k(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big), dmin = load_half(b + 2, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned scale, min, q = nibble(b + 48 + (size_t)(i / 64) * 32, i % 64, 64);
        load_scale_min(b + 4, i / 32, &scale, &min);
        q |= field(b[16 + i % 32], i / 32, 1) << 4;
        ret[i] = times(times(d, (float)scale), (float)q) - times(dmin, (float)min);
    }
}

static void decode_q6_k(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b + 208, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned q = nibble(b + (size_t)(i / 128) * 64, i % 128, 128) | spread_two_bits(b + 128, i)
                                                                            << 4;
        float scaled = times(d, (float)(int8_t)b[192 + i / 16]);
        ret[i] = times(scaled, (float)((int)q - 32));
    }
}

/* ---- codebooks ---- */

/* Seven signs are stored; the eighth makes the number of minuses even. */
static unsigned even_signs(unsigned seven)
{
    return seven | ((unsigned)__builtin_popcount(seven) & 1) << 7;
}

static float sign(unsigned signs, unsigned i)
{
    return signs >> i & 1 ? -1.0f : 1.0f;
}

static void put_iq2(unsigned entry, float d, unsigned signs, float *ret)
{
    static const float values[] = {8, 25, 43, 0};
    for (unsigned i = 0; i < 8; i++)
        ret[i] = times(d, values[field(entry, 2 * i, 3)]) * sign(signs, i);
}

static float iq2_scale(float d, unsigned scale)
{
    return times(d, 0.5f + (float)scale) * 0.25f;
}

static void decode_iq2_xxs(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned sub = 0; sub < 8; sub++) {
        const unsigned char *p = b + 2 + (size_t)sub * 8;
        uint32_t rest = load32(p + 4);
        for (unsigned i = 0; i < 4; i++, ret += 8)
            put_iq2(grid_iq2_xxs[p[i]], iq2_scale(d, rest >> 28),
                    even_signs(field(rest, 7 * i, 127)), ret);
    }
}

static void decode_iq2_xs(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++, ret += 8) {
        unsigned q = load16(b + 2 + (size_t)i * 2, big), scales = b[66 + i / 4];
        put_iq2(grid_iq2_xs[q & 511], iq2_scale(d, field(scales, 4 * (i / 2 % 2), 15)),
                even_signs(q >> 9), ret);
    }
}

static void decode_iq2_s(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++, ret += 8) {
        unsigned q = b[2 + i] | field(b[66 + i / 4], 2 * (i % 4), 3) << 8;
        put_iq2(grid_iq2_s[q], iq2_scale(d, field(b[74 + i / 4], 4 * (i / 2 % 2), 15)), b[34 + i],
                ret);
    }
}

static void decode_iq3_xxs(const unsigned char *b, bool big, float *ret)
{
    static const float values[] = {4, 12, 20, 28, 36, 44, 52, 62};
    float d = load_half(b, big);
    for (unsigned i = 0; i < 256; i++) {
        uint32_t rest = load32(b + 66 + (size_t)(i / 32) * 4);
        float scaled = times(d, 0.5f + (float)(rest >> 28)) * 0.5f;
        unsigned signs = even_signs(field(rest, 7 * (i % 32 / 8), 127));
        unsigned entry = grid_iq3_xxs[b[2 + i / 4]];
        ret[i] = times(scaled, values[field(entry, 3 * (i % 4), 7)]) * sign(signs, i % 8);
    }
}

static void decode_iq3_s(const unsigned char *b, bool big, float *ret)
{
    const unsigned char *low = b + 2, *high = b + 66, *signs = b + 74, *scales = b + 106;
    float d = load_half(b, big);
    for (unsigned i = 0; i < 256; i++) {
        unsigned scale = field(scales[i / 64], 4 * (i / 32 % 2), 15);
        unsigned entry = grid_iq3_s[low[i / 4] | one_bit(high, i / 4) << 8];
        float value = (float)(2 * field(entry, 3 * (i % 4), 7) + 1);
        ret[i] = times(times(d, (float)(1 + 2 * scale)), value) * sign(signs[i / 8], i % 8);
    }
}

#define IQ1_DELTA 0.125f

static void put_iq1(unsigned entry, float d, bool minus, float *ret)
{
    for (unsigned i = 0; i < 8; i++) {
        float value = (float)((int)field(entry, 2 * i, 3) - 1);
        ret[i] = times(d, value + (minus ? -IQ1_DELTA : IQ1_DELTA));
    }
}

static void decode_iq1_s(const unsigned char *b, bool big, float *ret)
{
    float d = load_half(b, big);
    for (unsigned i = 0; i < 32; i++, ret += 8) {
        unsigned high = load16(b + 34 + (size_t)(i / 4) * 2, big);
        unsigned q = b[2 + i] | field(high, 3 * (i % 4), 7) << 8;
        put_iq1(grid_iq1_s[q], times(d, (float)(2 * field(high, 12, 7) + 1)), field(high, 15, 1),
                ret);
    }
}

/* The block's own scale is scattered over the top nibbles of the four words of sub-scales. */
static void decode_iq1_m(const unsigned char *b, bool big, float *ret)
{
    const unsigned char *low = b, *high = b + 32, *scales = b + 48;
    unsigned char half[2] = {(unsigned char)(scales[1] >> 4 | (scales[3] & 0xf0)),
                             (unsigned char)(scales[5] >> 4 | (scales[7] & 0xf0))};
    float d = load_half(half, false);
    (void)big;
    for (unsigned i = 0; i < 32; i++, ret += 8) {
        unsigned h = field(high[i / 2], 4 * (i % 2), 15);
        unsigned scale = field(load16(scales + (size_t)(i / 8) * 2, false), 3 * (i / 2 % 4), 7);
        put_iq1(grid_iq1_s[low[i] | (h & 7) << 8], times(d, (float)(2 * scale + 1)), h & 8, ret);
    }
}

const struct block_decoder *block_decoder_of(const char *type)
{
    static const struct block_decoder table[] = {
        {"Q4_0", false, decode_q4_0},      {"Q4_1", false, decode_q4_1},
        {"Q5_0", true, decode_q5_0},       {"Q5_1", true, decode_q5_1},
        {"Q8_0", false, decode_q8_0},      {"Q8_1", false, decode_q8_1},
        {"Q2_K", false, decode_q2_k},      {"Q3_K", true, decode_q3_k},
        {"Q4_K", false, decode_q4_k},      {"Q5_K", false, decode_q5_k},
        {"Q6_K", false, decode_q6_k},      {"Q8_K", false, decode_q8_k},
        {"IQ2_XXS", true, decode_iq2_xxs}, {"IQ2_XS", false, decode_iq2_xs},
        {"IQ3_XXS", true, decode_iq3_xxs}, {"IQ1_S", false, decode_iq1_s},
        {"IQ4_NL", false, decode_iq4_nl},  {"IQ3_S", false, decode_iq3_s},
        {"IQ2_S", false, decode_iq2_s},    {"IQ4_XS", false, decode_iq4_xs},
        {"IQ1_M", true, decode_iq1_m},     {"TQ1_0", false, decode_tq1_0},
        {"TQ2_0", false, decode_tq2_0},    {"MXFP4", false, decode_mxfp4},
        {"NVFP4", false, decode_nvfp4},    {"Q1_0", false, decode_q1_0},
        {"Q2_0", false, decode_q2_0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, type) == 0)
            return &table[i];
    return NULL;
}
