/* A cursor over the prefix of a GGUF file. Internal to model/.
 *
 * Every step either has its bytes, or finds that the file itself is too short (an error), or that
 * only the prefix is: then `need` says how long a prefix is surely needed. What follows at least
 * (`rest`, kept by the parser) is counted in, so that a caller converges in a few rounds. */
#ifndef WB_MODEL_GGUF_READER_H
#define WB_MODEL_GGUF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/source.h"

#define GGUF_HEADER_MAX (256u << 20) /* header and metadata */
#define GGUF_NESTING_MAX 4           /* arrays in arrays */

enum gguf_value {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_TYPES
};

struct gguf_reader {
    const unsigned char *data;
    uint64_t have, file_size, pos;
    uint64_t rest; /* least bytes behind what is being read */
    uint64_t need; /* set with PREFIX_MORE */
    bool big_endian;
    bool nested;         /* an array in an array was seen */
    unsigned count_size; /* bytes of a length or count: 4 in version 1, then 8 */
    struct error *err;
};

/* All return PREFIX_DONE, PREFIX_MORE or negative. `what` names what is read, for the error. */
int gguf_take(struct gguf_reader *r, uint64_t n, const char *what, const unsigned char **ret);
int gguf_u32(struct gguf_reader *r, const char *what, uint32_t *ret);
int gguf_u64(struct gguf_reader *r, const char *what, uint64_t *ret);
/* A length or count. */
int gguf_count(struct gguf_reader *r, const char *what, uint64_t *ret);
int gguf_string(struct gguf_reader *r, const char *what, const char **ret, uint64_t *ret_len);
/* Walks over a value of the type, without keeping anything. */
int gguf_skip(struct gguf_reader *r, uint32_t type, unsigned nesting);
/* The integer of n bytes at p, in the file's byte order. */
uint64_t gguf_integer(const struct gguf_reader *r, const unsigned char *p, unsigned n);
/* Bytes of a value of a fixed size, 0 for strings and arrays. */
unsigned gguf_value_size(uint32_t type);

#endif
