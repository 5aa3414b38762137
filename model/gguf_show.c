#include "model/gguf_show.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/parsers.h"

static const struct {
    const char *name;
    enum metadata_type type;
} values[GGUF_VALUE_TYPES] = {
    [GGUF_U8] = {"u8", METADATA_UNSIGNED},    [GGUF_I8] = {"i8", METADATA_SIGNED},
    [GGUF_U16] = {"u16", METADATA_UNSIGNED},  [GGUF_I16] = {"i16", METADATA_SIGNED},
    [GGUF_U32] = {"u32", METADATA_UNSIGNED},  [GGUF_I32] = {"i32", METADATA_SIGNED},
    [GGUF_F32] = {"f32", METADATA_FLOAT},     [GGUF_BOOL] = {"bool", METADATA_BOOL},
    [GGUF_STRING] = {"str", METADATA_STRING}, [GGUF_ARRAY] = {"array", METADATA_ARRAY},
    [GGUF_U64] = {"u64", METADATA_UNSIGNED},  [GGUF_I64] = {"i64", METADATA_SIGNED},
    [GGUF_F64] = {"f64", METADATA_FLOAT},
};

struct metadata_cursor {
    struct gguf_reader r;
    uint32_t type;
    uint64_t left;
};

/* A prefix that was long enough a moment ago still is. */
static int here(struct gguf_reader *r, int rc)
{
    if (rc == PREFIX_MORE)
        return err_set(r->err, ERR_INTERNAL, "byte %" PRIu64 " is no longer there", r->pos);
    return rc;
}

static int64_t sign_extend(uint64_t value, unsigned size)
{
    unsigned shift = 64 - size * 8;
    return (int64_t)(value << shift) >> shift;
}

static double real_of(uint64_t bits, unsigned size)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    return size == sizeof(f) ? (double)f : d;
}

/* A value of a fixed size. */
static int read_scalar(struct gguf_reader *r, uint32_t type, struct metadata_info *m)
{
    unsigned size = gguf_value_size(type);
    const unsigned char *p;
    int rc = here(r, gguf_take(r, size, "a value", &p));
    if (rc != PREFIX_DONE)
        return rc;
    m->number = gguf_integer(r, p, size);
    if (m->type == METADATA_SIGNED)
        m->number = (uint64_t)sign_extend(m->number, size);
    else if (m->type == METADATA_BOOL)
        m->number = m->number != 0;
    else if (m->type == METADATA_FLOAT)
        m->real = real_of(m->number, size);
    return PREFIX_DONE;
}

/* The head of an array, with a cursor that is left before its first element. */
static int read_array(struct gguf_reader *r, struct metadata_info *m, struct metadata_cursor *c)
{
    int rc = gguf_u32(r, "an array's type", &c->type);
    if (rc == PREFIX_DONE)
        rc = gguf_count(r, "an array's length", &c->left);
    if (here(r, rc) != PREFIX_DONE)
        return -1;
    c->r = *r;
    m->element_name = values[c->type].name;
    m->element_type = values[c->type].type;
    m->count = c->left;
    return PREFIX_DONE;
}

/* Reads a value; of an array only its head. r stands behind it then. */
static int read_value(struct gguf_reader *r, uint32_t type, struct metadata_info *m,
                      struct metadata_cursor *c)
{
    m->type_name = values[type].name;
    m->type = values[type].type;
    if (type == GGUF_STRING) {
        uint64_t len = 0;
        int rc = here(r, gguf_string(r, "a string", &m->string, &len));
        m->string_len = (size_t)len;
        return rc;
    }
    if (type != GGUF_ARRAY)
        return read_scalar(r, type, m);
    struct gguf_reader head = *r;
    if (read_array(&head, m, c) < 0)
        return -1;
    return here(r, gguf_skip(r, type, 0));
}

int metadata_next(struct metadata_cursor *c, struct metadata_info *ret, struct error *err)
{
    struct metadata_info m = {0};
    struct metadata_cursor inner;
    if (!c->left)
        return 0;
    c->r.err = err;
    m.at = c->r.pos;
    if (read_value(&c->r, c->type, &m, &inner) < 0)
        return -1;
    c->left--;
    *ret = m;
    return 1;
}

static int show_key(struct gguf_contents *c)
{
    struct gguf_reader *r = &c->r;
    struct metadata_info m = {.at = r->pos};
    struct metadata_cursor cursor;
    uint64_t len = 0;
    uint32_t type;
    int rc = gguf_string(r, "a key", &m.key, &len);
    if (rc == PREFIX_DONE)
        rc = gguf_u32(r, "a value's type", &type);
    if (here(r, rc) != PREFIX_DONE || read_value(r, type, &m, &cursor) < 0)
        return -1;
    m.key_len = (size_t)len;
    if (m.type == METADATA_ARRAY)
        m.cursor = &cursor;
    return c->visitor->metadata ? c->visitor->metadata(c->visitor->ctx, &m, r->err) : 0;
}

static int show_tensor(struct gguf_contents *c)
{
    struct gguf_reader *r = &c->r;
    struct tensor_info t = {.type = "UNKNOWN", .elements = 1};
    uint64_t dims[4] = {0}, len = 0;
    uint32_t n_dims = 0;
    int rc = gguf_string(r, "a tensor's name", &t.name, &len);
    if (rc == PREFIX_DONE)
        rc = gguf_u32(r, "a tensor's number of dimensions", &n_dims);
    for (uint32_t i = 0; rc == PREFIX_DONE && i < n_dims && i < ARRAY_LEN(dims); i++) {
        rc = gguf_count(r, "a tensor's dimension", &dims[i]);
        t.elements *= dims[i];
    }
    if (rc == PREFIX_DONE)
        rc = gguf_u32(r, "a tensor's type", &t.type_id);
    if (rc == PREFIX_DONE)
        rc = gguf_u64(r, "a tensor's offset", &t.offset);
    if (here(r, rc) != PREFIX_DONE)
        return -1;
    t.name_len = (size_t)len;
    t.dims = dims;
    t.n_dims = n_dims;
    t.offset += c->data;
    const struct ggml_type *type = ggml_type_of(t.type_id);
    if (type) {
        t.type = type->name;
        t.sized = true;
        t.bytes = t.elements / type->block * type->bytes;
    }
    return c->visitor->tensor(c->visitor->ctx, &t, r->err);
}

int gguf_show(struct gguf_contents *c)
{
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < c->n_keys; i++)
        rc = show_key(c);
    for (uint64_t i = 0; rc == 0 && c->visitor->tensor && i < c->n_tensors; i++)
        rc = show_tensor(c);
    return rc < 0 ? -1 : PREFIX_DONE;
}
