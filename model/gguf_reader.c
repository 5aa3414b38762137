#include "model/gguf_reader.h"

#include <inttypes.h>

#define ARRAY_MAX (1ull << 30) /* ggml's own limit on elements */

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int gguf_take(struct gguf_reader *r, uint64_t n, const char *what, const unsigned char **ret)
{
    if (n > r->file_size - r->pos)
        return err_set(r->err, ERR_INVALID,
                       "%s at byte %" PRIu64 " takes %" PRIu64
                       " bytes, the file ends after %" PRIu64,
                       what, r->pos, n, r->file_size - r->pos);
    uint64_t end = r->pos + n;
    if (end > GGUF_HEADER_MAX)
        return err_set(r->err, ERR_TOO_LARGE,
                       "%s at byte %" PRIu64 " goes over the limit of %u bytes of metadata", what,
                       r->pos, GGUF_HEADER_MAX);
    if (end > r->have) {
        uint64_t all = least(add_capped(end, r->rest), r->file_size);
        r->need = all > GGUF_HEADER_MAX ? GGUF_HEADER_MAX : all;
        return PREFIX_MORE;
    }
    if (ret)
        *ret = r->data + r->pos;
    r->pos = end;
    return PREFIX_DONE;
}

uint64_t gguf_integer(const struct gguf_reader *r, const unsigned char *p, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++)
        value = value << 8 | p[r->big_endian ? i : n - 1 - i];
    return value;
}

int gguf_u32(struct gguf_reader *r, const char *what, uint32_t *ret)
{
    const unsigned char *p;
    int rc = gguf_take(r, 4, what, &p);
    if (rc == PREFIX_DONE)
        *ret = (uint32_t)gguf_integer(r, p, 4);
    return rc;
}

int gguf_u64(struct gguf_reader *r, const char *what, uint64_t *ret)
{
    const unsigned char *p;
    int rc = gguf_take(r, 8, what, &p);
    if (rc == PREFIX_DONE)
        *ret = gguf_integer(r, p, 8);
    return rc;
}

int gguf_count(struct gguf_reader *r, const char *what, uint64_t *ret)
{
    const unsigned char *p;
    int rc = gguf_take(r, r->count_size, what, &p);
    if (rc == PREFIX_DONE)
        *ret = gguf_integer(r, p, r->count_size);
    return rc;
}

int gguf_string(struct gguf_reader *r, const char *what, const char **ret, uint64_t *ret_len)
{
    uint64_t len;
    const unsigned char *p;
    int rc = gguf_count(r, what, &len);
    if (rc != PREFIX_DONE || (rc = gguf_take(r, len, what, &p)) != PREFIX_DONE)
        return rc;
    *ret = (const char *)p;
    *ret_len = len;
    return PREFIX_DONE;
}

unsigned gguf_value_size(uint32_t type)
{
    static const unsigned char sizes[GGUF_VALUE_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2,
        [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,  [GGUF_F32] = 4,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return type < GGUF_VALUE_TYPES ? sizes[type] : 0;
}

/* Strings or arrays, one by one; what is left of them is counted into `rest`. */
static int skip_elements(struct gguf_reader *r, uint32_t type, uint64_t n, unsigned nesting)
{
    uint64_t each = type == GGUF_STRING ? r->count_size : r->count_size + 4;
    uint64_t rest = r->rest;
    int rc = PREFIX_DONE;
    if (n > (r->file_size - r->pos) / each)
        return err_set(r->err, ERR_INVALID,
                       "an array of %" PRIu64 " elements at byte %" PRIu64
                       " does not fit into the file",
                       n, r->pos);
    while (rc == PREFIX_DONE && n--) {
        r->rest = add_capped(rest, n * each);
        rc = gguf_skip(r, type, nesting);
    }
    r->rest = rest;
    return rc;
}

static int skip_array(struct gguf_reader *r, unsigned nesting)
{
    uint32_t type;
    uint64_t n, at = r->pos;
    int rc = gguf_u32(r, "an array's type", &type);
    if (rc != PREFIX_DONE || (rc = gguf_count(r, "an array's length", &n)) != PREFIX_DONE)
        return rc;
    if (type >= GGUF_VALUE_TYPES)
        return err_set(r->err, ERR_INVALID,
                       "an array of the unknown value type %" PRIu32 " at byte %" PRIu64, type, at);
    if (n > ARRAY_MAX)
        return err_set(r->err, ERR_INVALID, "an array of %" PRIu64 " elements at byte %" PRIu64, n,
                       at);
    if (gguf_value_size(type))
        return gguf_take(r, n * gguf_value_size(type), "an array", NULL);
    if (type == GGUF_ARRAY) {
        r->nested = true;
        if (nesting == GGUF_NESTING_MAX)
            return err_set(r->err, ERR_INVALID, "arrays are nested deeper than %d at byte %" PRIu64,
                           GGUF_NESTING_MAX, at);
    }
    return skip_elements(r, type, n, nesting);
}

int gguf_skip(struct gguf_reader *r, uint32_t type, unsigned nesting)
{
    const char *text;
    uint64_t len;
    if (type >= GGUF_VALUE_TYPES)
        return err_set(r->err, ERR_INVALID,
                       "the unknown value type %" PRIu32 " before byte %" PRIu64, type, r->pos);
    if (type == GGUF_STRING)
        return gguf_string(r, "a string", &text, &len);
    if (type == GGUF_ARRAY)
        return skip_array(r, nesting + 1);
    return gguf_take(r, gguf_value_size(type), "a value", NULL);
}
