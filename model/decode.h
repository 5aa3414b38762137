/* The values behind the bytes of a tensor: every safetensors dtype, and every ggml type with a
 * public definition (ggml-common.h, ggml-quants.c). */
#ifndef WB_MODEL_DECODE_H
#define WB_MODEL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum decoded_kind {
    DECODED_FLOAT,
    DECODED_UNSIGNED,
    DECODED_SIGNED,
    DECODED_BOOL,
    DECODED_COMPLEX
};

struct decoded {
    enum decoded_kind kind;
    union {
        double real; /* exact for every float type; ggml's float32 arithmetic for its blocks */
        uint64_t u;
        int64_t i;
    } v;
    double imaginary; /* C64 */
};

/* Whose names the types have; the exact spelling counts. NumPy's, PyTorch's and ONNX's go with
 * those of safetensors. */
enum decode_names { DECODE_SAFETENSORS, DECODE_GGML };
/* The bytes that hold the first n elements (whole blocks: two F4, four F6); 0 for a type that is
 * not known, UINT64_MAX where the product is greater. */
uint64_t decode_bytes(enum decode_names names, const char *type, uint64_t n);
/* Decodes the first n elements of the len bytes; big_endian: of a GGUF, NumPy or ONNX file in that
 * order. The first F4 of a byte lies in its low nibble, as PyTorch has it; F6, whose packing nobody
 * defines, follow one another from the low bits on as well. ERR_UNSUPPORTED: a type without a
 * decoder (the text says which), or a block type that has no agreed big-endian form; ERR_INVALID:
 * len is too short. */
int decode(enum decode_names names, const char *type, bool big_endian, const void *data, size_t len,
           size_t n, struct decoded *ret, struct error *err);

/* Text in the shortest form that reads back the same in the value's own precision (a block type's
 * is float32): "0.1", "-2", "1e+10", "nan", "inf", "true", "0.5-2i". */
#define DECODED_TEXT_MAX 64
void decoded_text(const struct decoded *d, const char *type, char ret[static DECODED_TEXT_MAX]);

#endif
