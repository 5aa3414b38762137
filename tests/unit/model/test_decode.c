#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/decode.h"
#include "model/decode_types.h"
#include "model/parsers.h"

#define LINE_MAX_BYTES (1u << 16)
#define VALUES_MAX 1024

/* ---- every type, against values of the reference implementations ---- */

static size_t unhex(const char *text, unsigned char *ret)
{
    size_t n = 0;
    for (unsigned byte; sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
        ret[n] = (unsigned char)byte;
    return n;
}

/* Bits, so that minus zero and every last digit count; any NaN is one NaN. */
static uint64_t bits_of(const struct decoded *d, const char *kind)
{
    uint64_t ret;
    float f = (float)d->v.real;
    uint32_t narrow;
    if (kind[0] == 'u' || kind[0] == 'i')
        return d->v.u;
    if (isnan(d->v.real))
        return strcmp(kind, "f32") == 0 ? 0x7fc00000u : UINT64_C(0x7ff8000000000000);
    memcpy(&ret, &d->v.real, sizeof(ret));
    memcpy(&narrow, &f, sizeof(narrow));
    return strcmp(kind, "f32") == 0 ? narrow : ret;
}

static void check_line(const char *names, const char *type, bool big, const char *kind,
                       const char *hex_data, const char *hex_values)
{
    static unsigned char data[LINE_MAX_BYTES], expected[LINE_MAX_BYTES];
    static struct decoded values[VALUES_MAX];
    enum decode_names n = strcmp(names, "ggml") == 0 ? DECODE_GGML : DECODE_SAFETENSORS;
    unsigned width = strcmp(kind, "f32") == 0 ? 4 : 8;
    size_t len = unhex(hex_data, data), count = unhex(hex_values, expected) / width;
    struct error err = ERROR_INIT;
    cr_assert(count > 0 && count <= VALUES_MAX);
    cr_expect_eq(decode_bytes(n, type, count), len, "%s: %zu bytes", type, len);
    cr_assert_eq(decode(n, type, big, data, len, count, values, &err), 0, "%s", err.text);
    for (size_t i = 0; i < count; i++) {
        uint64_t want = bytes_load(expected + i * width, width, true);
        cr_assert_eq(bits_of(&values[i], kind), want,
                     "%s %s%s element %zu: %" PRIx64 ", not %" PRIx64, names, type,
                     big ? " big" : "", i, bits_of(&values[i], kind), want);
    }
    /* The same from a buffer of its exact size, which a sanitizer watches. */
    _cleanup_free_ unsigned char *exact = malloc(len);
    cr_assert(exact);
    memcpy(exact, data, len);
    cr_expect_eq(decode(n, type, big, exact, len, count, values, &err), 0);
    cr_expect_lt(decode(n, type, big, exact, len - 1, count, values, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
}

Test(decode, golden_values)
{
    _cleanup_fclose_ FILE *f = fopen(WB_SOURCE_DIR "/tests/unit/model/decode_golden.txt", "r");
    _cleanup_free_ char *line = NULL;
    size_t size = 0, lines = 0;
    bool seen[64] = {false};
    cr_assert(f);
    while (getline(&line, &size, f) > 0) {
        char *rest = line, *word[6];
        for (size_t i = 0; i < ARRAY_LEN(word); i++)
            cr_assert(word[i] = strsep(&rest, " \n"));
        check_line(word[0], word[1], strcmp(word[2], "big") == 0, word[3], word[4], word[5]);
        for (uint32_t id = 0; id < ARRAY_LEN(seen); id++)
            if (ggml_type_of(id) && strcmp(ggml_type_of(id)->name, word[1]) == 0)
                seen[id] = true;
        lines++;
    }
    cr_expect_gt(lines, 60);
    for (uint32_t id = 0; id < ARRAY_LEN(seen); id++)
        cr_expect(!ggml_type_of(id) || seen[id], "%s is not in the file", ggml_type_of(id)->name);
}

Test(decode, small_types_and_pairs)
{
    static const unsigned char bools[] = {0, 1, 2}, pair[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0};
    struct decoded d[3];
    struct error err = ERROR_INIT;
    cr_assert_eq(decode(DECODE_SAFETENSORS, "BOOL", false, bools, 3, 3, d, &err), 0);
    cr_expect(d[0].kind == DECODED_BOOL && !d[0].v.u && d[1].v.u && d[2].v.u);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "C64", false, pair, 8, 1, d, &err), 0);
    cr_expect(d[0].kind == DECODED_COMPLEX && d[0].v.real == 1 && d[0].imaginary == -2);
    /* The first of two lies in the low nibble. */
    cr_assert_eq(decode(DECODE_SAFETENSORS, "F4", false, "\x21", 1, 2, d, &err), 0);
    cr_expect(d[0].v.real == 0.5 && d[1].v.real == 1);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "F4", false, "\x21", 1, 1, d, &err), 0);
    cr_expect_eq(d[0].v.real, 0.5);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "F32", false, "", 0, 0, d, &err), 0);
    /* 0x9e = 10 01 11 10 */
    cr_assert_eq(decode(DECODE_SAFETENSORS, "I4", false, "\x9e", 1, 2, d, &err), 0);
    cr_expect(d[0].kind == DECODED_SIGNED && d[0].v.i == -2 && d[1].v.i == -7);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "U4", false, "\x9e", 1, 2, d, &err), 0);
    cr_expect(d[0].kind == DECODED_UNSIGNED && d[0].v.u == 14 && d[1].v.u == 9);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "I2", false, "\x9e", 1, 3, d, &err), 0);
    cr_expect(d[0].v.i == -2 && d[1].v.i == -1 && d[2].v.i == 1);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "U2", false, "\x9e", 1, 3, d, &err), 0);
    cr_expect(d[0].v.u == 2 && d[1].v.u == 3 && d[2].v.u == 1);
    cr_assert_eq(decode(DECODE_SAFETENSORS, "C32", true, "\x3c\0\xc0\0", 4, 1, d, &err), 0);
    cr_expect(d[0].kind == DECODED_COMPLEX && d[0].v.real == 1 && d[0].imaginary == -2);
}

Test(decode, sizes)
{
    static const struct {
        enum decode_names names;
        const char *type;
        uint64_t n, bytes;
    } table[] = {
        {DECODE_SAFETENSORS, "F4", 3, 2},
        {DECODE_SAFETENSORS, "F6_E2M3", 1, 3},
        {DECODE_SAFETENSORS, "F6_E3M2", 5, 6},
        {DECODE_SAFETENSORS, "C64", 2, 16},
        {DECODE_SAFETENSORS, "I2", 5, 2},
        {DECODE_SAFETENSORS, "Q4_0", 32, 0},
        {DECODE_SAFETENSORS, "f32", 1, 0},
        {DECODE_GGML, "Q4_K", 1, 144},
        {DECODE_GGML, "Q4_K", 257, 288},
        {DECODE_GGML, "U8", 1, 0},
        {DECODE_GGML, "UNKNOWN", 1, 0},
        {DECODE_GGML, "Q8_1", 32, 36},
        {DECODE_GGML, "F64", UINT64_MAX, UINT64_MAX},
        {DECODE_SAFETENSORS, "U8", UINT64_MAX, UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        cr_expect_eq(decode_bytes(table[i].names, table[i].type, table[i].n), table[i].bytes,
                     "%s %" PRIu64, table[i].type, table[i].n);
}

Test(decode, refusals)
{
    unsigned char block[256] = {0};
    struct decoded d[256];
    struct error err = ERROR_INIT;
    cr_expect_lt(decode(DECODE_GGML, "Q4_2", false, block, 256, 1, d, &err), 0);
    cr_expect_eq(err.code, ERR_UNSUPPORTED);
    cr_expect(strstr(err.text, "Q4_2"));
    cr_expect_lt(decode(DECODE_SAFETENSORS, "OBJECT", false, block, 256, 1, d, &err), 0);
    cr_expect_eq(err.code, ERR_UNSUPPORTED);
    cr_expect_lt(decode(DECODE_GGML, "Q3_K", true, block, 256, 1, d, &err), 0);
    cr_expect_eq(err.code, ERR_UNSUPPORTED);
    cr_expect_lt(decode(DECODE_GGML, "Q4_K", false, block, 143, 1, d, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect(strstr(err.text, "144"));
    cr_expect_lt(decode(DECODE_GGML, "F64", false, block, 256, SIZE_MAX, d, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
}

/* ---- text ---- */

Test(decode, text)
{
    static const struct {
        const char *type;
        double value;
        const char *text;
    } table[] = {
        {"F32", 0.1f, "0.1"},
        {"F64", 0.1, "0.1"},
        {"F64", 0.1f, "0.10000000149011612"},
        {"F64", 1.7976931348623157e308, "1.7976931348623157e+308"},
        {"F64", 5e-324, "5e-324"},
        {"F32", 1e-45f, "1e-45"},
        {"F32", 3.40282347e38f, "3.4028235e+38"},
        {"F16", 65504, "65504"},
        {"F16", 0.0999755859375, "0.1"},
        {"F16", 5.960464477539063e-08, "6e-08"},
        {"BF16", 3.140625, "3.14"},
        {"BF16", -0.0, "-0"},
        {"F8_E4M3", 448, "448"},
        {"F8_E4M3", 0.0625, "0.062"},
        {"F8_E5M2", 57344, "6e+04"},
        {"F8_E8M0", 1024, "1024"},
        {"F4", -1.5, "-1.5"},
        {"F6_E3M2", 28, "28"},
        {"Q4_K", 0.1f, "0.1"},
        {"F32", INFINITY, "inf"},
        {"F32", -INFINITY, "-inf"},
        {"F32", NAN, "nan"},
        {"F32", -NAN, "nan"},
        {"F32", 16777216, "16777216"},
        {"F32", 1e10f, "1e+10"},
    };
    char text[DECODED_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct decoded d = {.kind = DECODED_FLOAT, .v.real = table[i].value};
        decoded_text(&d, table[i].type, text);
        cr_expect_str_eq(text, table[i].text, "%s: %s, not %s", table[i].type, text, table[i].text);
    }
}

Test(decode, text_of_other_kinds)
{
    char text[DECODED_TEXT_MAX];
    struct decoded d = {.kind = DECODED_COMPLEX, .v.real = 0.1f, .imaginary = -2};
    decoded_text(&d, "C64", text);
    cr_expect_str_eq(text, "0.1-2i");
    d = (struct decoded){
        .kind = DECODED_COMPLEX, .v.real = -1.7976931348623157e308, .imaginary = NAN};
    decoded_text(&d, "C128", text);
    cr_expect_str_eq(text, "-1.7976931348623157e+308+nani");
    d = (struct decoded){.kind = DECODED_SIGNED, .v.i = INT64_MIN};
    decoded_text(&d, "I64", text);
    cr_expect_str_eq(text, "-9223372036854775808");
    d = (struct decoded){.kind = DECODED_UNSIGNED, .v.u = UINT64_MAX};
    decoded_text(&d, "U64", text);
    cr_expect_str_eq(text, "18446744073709551615");
    d = (struct decoded){.kind = DECODED_BOOL, .v.u = 1};
    decoded_text(&d, "BOOL", text);
    cr_expect_str_eq(text, "true");
}

/* Every value of the small formats reads back from its text as the nearest one to it. */
Test(decode, text_reads_back)
{
    static const char *const types[] = {"F16",         "BF16",        "F8_E4M3", "F8_E5M2",
                                        "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"};
    char text[DECODED_TEXT_MAX];
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        const struct float_format *f = float_format_of(types[t]);
        uint64_t last = (UINT64_C(1) << (f->bits - (f->specials != FLOAT_SCALE))) - 1;
        for (uint64_t raw = 1; raw < last; raw++) {
            double x = float_decode(f, raw), below = float_decode(f, raw - 1),
                   above = float_decode(f, raw + 1);
            struct decoded d = {.kind = DECODED_FLOAT, .v.real = x};
            if (!isfinite(x))
                continue;
            decoded_text(&d, types[t], text);
            double back = strtod(text, NULL);
            cr_expect(fabs(back - x) <= fabs(back - below), "%s %s", types[t], text);
            cr_expect(!isfinite(above) || fabs(back - x) <= fabs(back - above), "%s %s", types[t],
                      text);
        }
    }
}
