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

/* The bytes that hold the first n elements (whole blocks); 0 for a type that is not known. format
 * tells safetensors' names from ggml's. */
enum decode_names { DECODE_SAFETENSORS, DECODE_GGML };
uint64_t decode_bytes(enum decode_names names, const char *type, uint64_t n);
/* Decodes the first n elements of the len bytes; big_endian: of a GGUF or ONNX file in that order.
 * ERR_UNSUPPORTED: a type without a decoder (the text says which), ERR_INVALID: len is too short.
 */
int decode(enum decode_names names, const char *type, bool big_endian, const void *data, size_t len,
           size_t n, struct decoded *ret, struct error *err);

/* Text in the shortest form that reads back the same in the value's own precision. */
#define DECODED_TEXT_MAX 64
void decoded_text(const struct decoded *d, const char *type, char ret[static DECODED_TEXT_MAX]);

#endif
