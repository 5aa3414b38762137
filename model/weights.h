/* The facts of one weight file, whatever its format, and their sum over a repository. */
#ifndef WB_MODEL_WEIGHTS_H
#define WB_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/source.h"

enum weights_format {
    WEIGHTS_UNKNOWN = 0, /* not a weight file that we read */
    WEIGHTS_SAFETENSORS,
    WEIGHTS_GGUF,
    WEIGHTS_PICKLE, /* .bin .pt .pth .ckpt .pkl: never read by an import */
    WEIGHTS_ONNX,   /* classified only */
    WEIGHTS_OTHER,
};

/* By the file's extension alone, in any case. */
enum weights_format weights_format_of(const char *path);
/* "safetensors", "gguf", "pt", "onnx", "" */
const char *weights_format_name(enum weights_format f);

#define WEIGHTS_MAX_TYPES 64

struct dtype_total {
    char name[16]; /* as the format names it: "BF16", "Q4_K", ... */
    uint64_t tensors;
    uint64_t elements;
    uint64_t bytes;
};

struct weights {
    enum weights_format format;
    uint64_t file_bytes;
    uint64_t header_bytes; /* everything before the first tensor byte */
    uint64_t tensors;
    uint64_t parameters; /* sum of the products of the shapes */
    uint64_t tensor_bytes;
    bool partial; /* a tensor of a type that we have no size for: tensor_bytes leaves it out */
    struct dtype_total types[WEIGHTS_MAX_TYPES]; /* sorted by name */
    size_t n_types;
    /* GGUF only; empty or 0 when absent */
    char architecture[64]; /* general.architecture */
    char name[128];        /* general.name */
    uint32_t gguf_version;
    bool has_file_type;
    uint32_t file_type; /* general.file_type */
    uint64_t context_length;
    uint16_t split_no, split_count; /* 0, 0 when not split */
    char warning[200];              /* legal but odd; empty when nothing */
};

/* Parses a prefix of a safetensors or GGUF file (see model/source.h). ERR_INVALID: the file breaks
 * a rule of its format; the text names the rule, the tensor or key and the byte. ERR_TOO_LARGE: a
 * budget. ERR_UNSUPPORTED: a format that has no prefix parser here.
 * These texts go into the manifest of an import (modelpack_note), so they are frozen with
 * MODELPACK_PACKAGER: changing one changes digests. tests/vectors/ours.tsv holds them to it.
 * Memory: at most a few hundred bytes a tensor that the given bytes describe. */
int weights_parse(enum weights_format format, const void *data, size_t have, uint64_t file_size,
                  struct weights *ret, uint64_t *ret_need, struct error *err);

/* ---- tensor by tensor ---- */

/* One tensor as its file describes it. Pointers are borrowed, for the length of the call. */
struct tensor_info {
    const char *name; /* without escapes; a GGUF's may be invalid UTF-8; no NUL in it */
    size_t name_len;
    const char *type;     /* as struct dtype_total; "UNKNOWN" for a ggml type that we do not know */
    uint32_t type_id;     /* GGUF: of ggml; else 0 */
    bool sized;           /* false: of an unknown type, bytes is 0 */
    const uint64_t *dims; /* in the file's own order: a GGUF's row length is the first, a
                             safetensors' the last */
    size_t n_dims;        /* 0: a scalar */
    uint64_t elements;
    uint64_t offset; /* byte of the file */
    uint64_t bytes;
};

enum metadata_type {
    METADATA_STRING,
    METADATA_BOOL,
    METADATA_UNSIGNED,
    METADATA_SIGNED,
    METADATA_FLOAT,
    METADATA_ARRAY,
};

/* One key of the header: a pair of __metadata__, or of GGUF's key/value pairs. */
struct metadata_info {
    const char *key;
    size_t key_len;
    const char *type_name; /* "str" (safetensors), or the GGUF name: "u32", "f32", "array", ... */
    enum metadata_type type;
    const char *string; /* STRING: without escapes, may hold NUL and (GGUF) invalid UTF-8 */
    size_t string_len;
    uint64_t number; /* BOOL, UNSIGNED; SIGNED: as int64_t */
    double real;     /* FLOAT: exact */
    /* ARRAY */
    const char *element_name;
    enum metadata_type element_type;
    uint64_t count;
    /* The first elements of an array, one at a time (number, real or string set as above; of an
     * array in an array only its type and count): 1, 0 past the end, -1. Works during the call. */
    struct metadata_cursor *cursor;
    uint64_t at; /* byte of the file at which the key stands */
};
/* The next element. *ret is set as a metadata_info without a key. */
int metadata_next(struct metadata_cursor *c, struct metadata_info *ret, struct error *err);

/* Either may be NULL. Called only once the whole header has been found right, in the file's own
 * order of metadata, then tensors in the order of their bytes. Non-zero ends the walk: negative
 * with the error set fails it. */
struct weights_visitor {
    int (*metadata)(void *ctx, const struct metadata_info *m, struct error *err);
    int (*tensor)(void *ctx, const struct tensor_info *t, struct error *err);
    void *ctx;
};

/* weights_parse(), showing what was parsed. visitor NULL: the same as weights_parse(). */
int weights_visit(enum weights_format format, const void *data, size_t have, uint64_t file_size,
                  const struct weights_visitor *visitor, struct weights *ret, uint64_t *ret_need,
                  struct error *err);

/* ---- sums ---- */

/* Adds the totals of one file to a sum that starts as {0}: for the shards or split parts of one
 * model (which files those are is the caller's to know). Keeps the first non-empty architecture,
 * name, file type, context length and warning; split_no and split_count stay 0. ERR_INVALID on
 * overflow; the sum is untouched then. */
int weights_add(struct weights *sum, const struct weights *one, struct error *err);

/* LLAMA_FTYPE name of general.file_type ("Q4_K_M"; the flag 1024 "guessed" is ignored), NULL when
 * unknown. */
const char *gguf_file_type_name(uint32_t file_type);

#endif
