/* Float formats, from F64 down to the 4-bit ones of the OCP microscaling specification. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/decode_types.h"

const struct float_format *float_format_of(const char *type)
{
    static const struct float_format table[] = {
        {"F64", 64, 11, 52, 1023, FLOAT_IEEE},    {"F32", 32, 8, 23, 127, FLOAT_IEEE},
        {"F16", 16, 5, 10, 15, FLOAT_IEEE},       {"BF16", 16, 8, 7, 127, FLOAT_IEEE},
        {"F8_E5M2", 8, 5, 2, 15, FLOAT_IEEE},     {"F8_E4M3", 8, 4, 3, 7, FLOAT_FN},
        {"F8_E5M2FNUZ", 8, 5, 2, 16, FLOAT_FNUZ}, {"F8_E4M3FNUZ", 8, 4, 3, 8, FLOAT_FNUZ},
        {"F8_E8M0", 8, 8, 0, 127, FLOAT_SCALE},   {"F6_E2M3", 6, 2, 3, 1, FLOAT_FINITE},
        {"F6_E3M2", 6, 3, 2, 3, FLOAT_FINITE},    {"F4", 4, 2, 1, 1, FLOAT_FINITE},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, type) == 0)
            return &table[i];
    return NULL;
}

double float_decode(const struct float_format *f, uint64_t raw)
{
    if (f->specials == FLOAT_SCALE)
        return raw == 255 ? (double)NAN : ldexp(1, (int)raw - f->bias);
    uint64_t mantissa = raw & ((UINT64_C(1) << f->mantissa) - 1);
    unsigned top = (1u << f->exponent) - 1, exponent = (unsigned)(raw >> f->mantissa) & top;
    bool minus = raw >> (f->exponent + f->mantissa) & 1;
    if (f->specials == FLOAT_IEEE && exponent == top)
        return mantissa ? (double)NAN : minus ? -(double)INFINITY : (double)INFINITY;
    if (f->specials == FLOAT_FN && exponent == top && mantissa + 1 == UINT64_C(1) << f->mantissa)
        return (double)NAN;
    if (f->specials == FLOAT_FNUZ && minus && !exponent && !mantissa)
        return (double)NAN;
    if (exponent) /* else subnormal: no hidden bit, and the scale of exponent 1 */
        mantissa |= UINT64_C(1) << f->mantissa;
    double value = ldexp((double)mantissa, (int)(exponent ? exponent : 1) - f->bias - f->mantissa);
    return minus ? -value : value;
}

/* ---- text ---- */

/* The nearest value of the format (the even one of two). Past the largest it goes on, which does
 * not matter to a comparison with a value that the format has. */
static double round_to(const struct float_format *f, double x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent); /* 0.5 <= x < 1 times 2^exponent */
    int unit = exponent - 1, least = (f->specials == FLOAT_SCALE ? 0 : 1) - f->bias;
    unit = (unit < least ? least : unit) - f->mantissa;
    return ldexp(rint(ldexp(x, -unit)), unit);
}

/* Writes x with the fewest bytes that read back as x in the format. */
static void put_float(const struct float_format *f, double x, char *ret, size_t size)
{
    char text[40];
    ret[0] = '\0';
    if (isnan(x)) {
        snprintf(ret, size, "nan");
        return;
    }
    for (int digits = 1; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (round_to(f, strtod(text, NULL)) == x && (!ret[0] || strlen(text) < strlen(ret)))
            snprintf(ret, size, "%s", text);
    }
}

void decoded_text(const struct decoded *d, const char *type, char ret[static DECODED_TEXT_MAX])
{
    static const char *const complex_types[][2] = {{"C32", "F16"}, {"C64", "F32"}, {"C128", "F64"}};
    const struct float_format *f = float_format_of(type);
    char real[28], imaginary[28];
    for (size_t i = 0; i < ARRAY_LEN(complex_types); i++)
        if (strcmp(type, complex_types[i][0]) == 0)
            f = float_format_of(complex_types[i][1]);
    if (!f) /* a block type: its values are float32 */
        f = float_format_of("F32");
    switch (d->kind) {
    case DECODED_FLOAT:
        put_float(f, d->v.real, ret, DECODED_TEXT_MAX);
        break;
    case DECODED_COMPLEX:
        put_float(f, d->v.real, real, sizeof(real));
        put_float(f, d->imaginary, imaginary, sizeof(imaginary));
        snprintf(ret, DECODED_TEXT_MAX, "%s%s%si", real, imaginary[0] == '-' ? "" : "+", imaginary);
        break;
    case DECODED_UNSIGNED:
        snprintf(ret, DECODED_TEXT_MAX, "%" PRIu64, d->v.u);
        break;
    case DECODED_SIGNED:
        snprintf(ret, DECODED_TEXT_MAX, "%" PRId64, d->v.i);
        break;
    case DECODED_BOOL:
        snprintf(ret, DECODED_TEXT_MAX, "%s", d->v.u ? "true" : "false");
        break;
    }
}
