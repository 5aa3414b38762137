/* What decode*.c and kv_cache*.c know of a type by its name. Internal to model/. */
#ifndef WB_MODEL_DECODE_TYPES_H
#define WB_MODEL_DECODE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "model/decode.h"

/* The smallest number of elements that fills whole bytes, and those bytes. false: not a type of
 * that naming (its spelling is exact). */
bool type_block(enum decode_names names, const char *type, uint32_t *ret_elements,
                uint32_t *ret_bytes);

/* A float format of up to 64 bits. */
enum float_specials {
    FLOAT_IEEE,   /* the highest exponent: infinity and NaN */
    FLOAT_FN,     /* all bits set: NaN; no infinity */
    FLOAT_FNUZ,   /* minus zero: NaN; no infinity */
    FLOAT_FINITE, /* neither */
    FLOAT_SCALE,  /* E8M0: a power of two, 255: NaN */
};

struct float_format {
    const char *name;
    uint8_t bits, exponent, mantissa;
    int16_t bias;
    enum float_specials specials;
};
/* NULL: not a float type. */
const struct float_format *float_format_of(const char *type);
double float_decode(const struct float_format *f, uint64_t raw);

/* The least significant byte is first, or last where big is set. n <= 8. */
uint64_t bytes_load(const unsigned char *p, unsigned n, bool big);

/* Decodes blocks of a ggml type. */
#define BLOCK_MAX 256
struct block_decoder {
    const char *name;
    /* A field of several bytes is read as bytes as well, or by copying it to an integer: ggml does
     * not say what a big-endian file holds. */
    bool little_only;
    void (*decode)(const unsigned char *block, bool big, float *ret);
};
const struct block_decoder *block_decoder_of(const char *type);

#endif
