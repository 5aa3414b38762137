/* One TensorProto: what it says, without its bytes. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/onnx_private.h"
#include "model/parsers.h"

#define DIMS_MAX 64u

/* TensorProto.DataType */
static const struct {
    const char *name;
    unsigned bits; /* packed without gaps, the last byte filled up */
} types[] = {
    [1] = {"F32", 32},     [2] = {"U8", 8},           [3] = {"I8", 8},
    [4] = {"U16", 16},     [5] = {"I16", 16},         [6] = {"I32", 32},
    [7] = {"I64", 64},     [8] = {"STRING", 0},       [9] = {"BOOL", 8},
    [10] = {"F16", 16},    [11] = {"F64", 64},        [12] = {"U32", 32},
    [13] = {"U64", 64},    [14] = {"C64", 64},        [15] = {"C128", 128},
    [16] = {"BF16", 16},   [17] = {"F8_E4M3", 8},     [18] = {"F8_E4M3FNUZ", 8},
    [19] = {"F8_E5M2", 8}, [20] = {"F8_E5M2FNUZ", 8}, [21] = {"U4", 4},
    [22] = {"I4", 4},      [23] = {"F4", 4},          [24] = {"F8_E8M0", 8},
    [25] = {"U2", 2},      [26] = {"I2", 2},          [27] = {"F6_E2M3", 6},
    [28] = {"F6_E3M2", 6},
};

enum { TYPE_STRING = 8 };

/* Numbers of the fields of TensorProto. */
enum {
    T_DIMS = 1,
    T_DATA_TYPE = 2,
    T_SEGMENT = 3,
    T_FLOAT = 4,
    T_INT32 = 5,
    T_STRING = 6,
    T_INT64 = 7,
    T_NAME = 8,
    T_RAW = 9,
    T_DOUBLE = 10,
    T_UINT64 = 11,
    T_EXTERNAL = 13,
    T_LOCATION = 14,
};

struct tensor {
    char name[ONNX_NAME_MAX];
    uint64_t type;
    uint64_t dims[DIMS_MAX];
    size_t n_dims;
    bool has_raw, external, typed;
    uint64_t raw_at, raw_len;
    uint64_t typed_bytes; /* of the typed fields, as they stand in the file */
    uint64_t floats;      /* 32-bit and 64-bit values among them */
    char location[ONNX_NAME_MAX];
    uint64_t offset, length;
    bool has_length;
    uint64_t elements, size; /* what the shape and type come to */
};

const char *onnx_type_name(uint64_t data_type)
{
    return data_type < ARRAY_LEN(types) && types[data_type].name ? types[data_type].name : "";
}

static int put_dim(void *ctx, uint64_t v, struct error *err)
{
    struct tensor *t = ctx;
    if (v > INT64_MAX)
        return err_set(err, ERR_INVALID, "a negative dimension, %lld", (long long)v);
    if (t->n_dims == DIMS_MAX)
        return err_set(err, ERR_INVALID, "more than %u dimensions", DIMS_MAX);
    t->dims[t->n_dims++] = v;
    return 0;
}

static int parse_u64(const char *s, uint64_t *ret)
{
    uint64_t n = 0;
    if (!*s)
        return -1;
    for (; *s; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
            return -1;
    *ret = n;
    return 0;
}

/* external_data: a StringStringEntryProto of location, offset, length or checksum */
static int read_external(struct onnx_reading *r, struct tensor *t, struct message m,
                         const struct field *entry, struct error *err)
{
    char key[16] = "", value[ONNX_NAME_MAX] = "";
    struct message e = field_message(entry, "StringStringEntryProto");
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &e, &f, err)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == 1 && field_string(&r->fields, &f, e.name, key, sizeof(key), err) < 0)
            return -1;
        if (f.number == 2 && f.len >= sizeof(value))
            return field_bad(&m, entry, err, "an external location of %llu bytes",
                             (unsigned long long)f.len);
        if (f.number == 2 && field_string(&r->fields, &f, e.name, value, sizeof(value), err) < 0)
            return -1;
    }
    if (rc < 0)
        return -1;
    if (strcmp(key, "location") == 0)
        memcpy(t->location, value, sizeof(value));
    else if (strcmp(key, "offset") == 0)
        rc = parse_u64(value, &t->offset);
    else if (strcmp(key, "length") == 0) {
        rc = parse_u64(value, &t->length);
        t->has_length = true;
    }
    return rc < 0 ? field_bad(&m, entry, err, "the external %s is '%.40s', no number", key, value)
                  : 0;
}

/* float_data and its like: bytes that are not read. */
static int note_typed(struct tensor *t, const struct message *m, const struct field *f,
                      struct error *err)
{
    unsigned width = f->number == T_FLOAT ? 4 : f->number == T_DOUBLE ? 8 : 0;
    if (f->number == T_STRING
            ? f->wire != WIRE_BYTES
            : width && f->wire != WIRE_BYTES && f->wire != (width == 4 ? WIRE_32 : WIRE_64))
        return field_bad(m, f, err, "values of another wire type");
    if (width && f->len % width)
        return field_bad(m, f, err, "%llu bytes are no whole number of values",
                         (unsigned long long)f->len);
    t->typed = true;
    t->typed_bytes += f->len; /* within the file */
    t->floats += width ? f->len / width : 0;
    return 0;
}

static int read_field(struct onnx_reading *r, struct tensor *t, const struct message *m,
                      const struct field *f, struct error *err)
{
    switch (f->number) {
    case T_DIMS:
        if (field_numbers(&r->fields, m, f, put_dim, t, err) < 0)
            return err_wrap(err, "byte %llu", (unsigned long long)f->tag);
        return 0;
    case T_DATA_TYPE:
    case T_LOCATION:
        if (f->wire != WIRE_VARINT)
            return field_bad(m, f, err, "no number");
        if (f->number == T_DATA_TYPE)
            t->type = f->value;
        else
            t->external = f->value == 1;
        return 0;
    case T_SEGMENT:
        return field_bad(m, f, err, "a tensor in segments, which nothing reads");
    case T_NAME:
        if (f->wire != WIRE_BYTES)
            return field_bad(m, f, err, "no string");
        return field_string(&r->fields, f, m->name, t->name, sizeof(t->name), err);
    case T_RAW:
        if (f->wire != WIRE_BYTES)
            return field_bad(m, f, err, "no bytes");
        t->has_raw = true;
        t->raw_at = f->at;
        t->raw_len = f->len;
        return 0;
    case T_FLOAT:
    case T_INT32:
    case T_STRING:
    case T_INT64:
    case T_DOUBLE:
    case T_UINT64:
        return note_typed(t, m, f, err);
    case T_EXTERNAL:
        if (f->wire != WIRE_BYTES)
            return field_bad(m, f, err, "no message");
        return read_external(r, t, *m, f, err);
    default:
        return 0;
    }
}

/* What the shape comes to; a length of 0 anywhere makes it nothing. */
static int measure(struct tensor *t, uint64_t at, struct error *err)
{
    unsigned bits = t->type < ARRAY_LEN(types) ? types[t->type].bits : 0;
    bool none = false, huge = false;
    uint64_t n = 1, total;
    for (size_t i = 0; i < t->n_dims; i++) {
        none = none || t->dims[i] == 0;
        huge = huge || __builtin_mul_overflow(n, t->dims[i], &n);
    }
    t->elements = none ? 0 : n;
    if ((huge && !none) || __builtin_mul_overflow(t->elements, bits ? bits : 8, &total))
        return err_set(err, ERR_INVALID,
                       "tensor '%.80s' (byte %llu): its shape does not fit 64 bits", t->name,
                       (unsigned long long)at);
    t->size = bits ? total / 8 + (total % 8 != 0) : 0;
    return 0;
}

static int check_data(const struct tensor *t, uint64_t at, struct error *err)
{
    const char *type = onnx_type_name(t->type);
    unsigned bits = *type ? types[t->type].bits : 0;
    uint64_t values = t->type == 14 || t->type == 15 ? 2 * t->elements : t->elements;
    if (t->external && !t->location[0])
        return err_set(err, ERR_INVALID,
                       "tensor '%.80s' (byte %llu) is external, and not said "
                       "where",
                       t->name, (unsigned long long)at);
    if (t->external)
        return 0;
    if (t->has_raw && t->typed)
        return err_set(err, ERR_INVALID, "tensor '%.80s' (byte %llu) has its values twice", t->name,
                       (unsigned long long)at);
    if (t->has_raw && t->type == TYPE_STRING)
        return err_set(err, ERR_INVALID, "tensor '%.80s' (byte %llu): raw_data of strings", t->name,
                       (unsigned long long)at);
    if (t->has_raw && bits && t->raw_len != t->size)
        return err_set(err, ERR_INVALID,
                       "tensor '%.80s' (byte %llu): raw_data has %llu bytes, %llu %s take %llu",
                       t->name, (unsigned long long)at, (unsigned long long)t->raw_len,
                       (unsigned long long)t->elements, type, (unsigned long long)t->size);
    if (t->floats && (t->type == 1 || t->type == 11 || t->type == 14 || t->type == 15) &&
        t->floats != values)
        return err_set(err, ERR_INVALID,
                       "tensor '%.80s' (byte %llu): %llu values, its shape takes %llu", t->name,
                       (unsigned long long)at, (unsigned long long)t->floats,
                       (unsigned long long)values);
    if (!t->has_raw && !t->typed && t->elements)
        return err_set(err, ERR_INVALID, "tensor '%.80s' (byte %llu) has no values", t->name,
                       (unsigned long long)at);
    return 0;
}

/* Keeps the distinct locations sorted. */
static int note_file(struct onnx_reading *r, const char *location, struct error *err)
{
    struct onnx_model *m = r->model;
    size_t low = 0, high = m->n_external_files;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int c = strcmp(m->external_files[mid], location);
        if (c == 0)
            return 0;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (m->n_external_files == ONNX_FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "external data in more than %u files", ONNX_FILES_MAX);
    if (m->n_external_files == r->cap_files) {
        size_t cap = r->cap_files ? 2 * r->cap_files : 8;
        char **grown = realloc(m->external_files, cap * sizeof(*grown));
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory");
        m->external_files = grown;
        r->cap_files = cap;
    }
    char *copy = strdup(location);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    memmove(m->external_files + low + 1, m->external_files + low,
            (m->n_external_files - low) * sizeof(copy));
    m->external_files[low] = copy;
    m->n_external_files++;
    return 0;
}

static bool leaves_folder(const char *location)
{
    if (location[0] == '/' || location[0] == '\\' || strchr(location, ':'))
        return true;
    for (const char *p = location; p; p = strpbrk(p, "/\\")) {
        p += *p == '/' || *p == '\\';
        if (strncmp(p, "..", 2) == 0 && (p[2] == '\0' || p[2] == '/' || p[2] == '\\'))
            return true;
    }
    return false;
}

static int count_tensor(struct onnx_reading *r, const struct tensor *t, struct error *err)
{
    struct weights *w = &r->model->weights;
    const char *type = onnx_type_name(t->type);
    bool sized = *type && types[t->type].bits;
    struct tensor_info info = {
        .name = t->name,
        .name_len = strlen(t->name),
        .type = *type ? type : "UNKNOWN",
        .sized = sized || t->external || t->has_raw || t->type == TYPE_STRING,
        .dims = t->dims,
        .n_dims = t->n_dims,
        .elements = t->elements,
        .offset = t->external  ? t->offset
                  : t->has_raw ? t->raw_at
                               : 0,
        .bytes = t->external && t->has_length ? t->length
                 : t->has_raw                 ? t->raw_len
                 : sized                      ? t->size
                                              : t->typed_bytes,
    };
    w->partial = w->partial || !info.sized;
    if (!t->external)
        r->tensor_bytes += t->has_raw ? t->raw_len : t->typed_bytes;
    if (w->tensors == ONNX_TENSORS_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %u tensors", ONNX_TENSORS_MAX);
    if (t->external) {
        r->model->external++;
        if (note_file(r, t->location, err) < 0)
            return -1;
        if (leaves_folder(t->location))
            weights_warn(w, "external data outside of the model's folder: '%.80s'", t->location);
        if (t->has_length && sized && t->length != t->size)
            weights_warn(w, "tensor '%.60s' takes %llu bytes, its external data has %llu", t->name,
                         (unsigned long long)t->size, (unsigned long long)t->length);
    }
    if (weights_count(w, info.type, 1, info.elements, info.bytes, err) < 0)
        return -1;
    int rc = r->tensor ? r->tensor(r->ctx, &info, t->external ? t->location : NULL, err) : 0;
    return rc < 0 ? -1 : 0;
}

int onnx_tensor(struct onnx_reading *r, struct message m, const char *fallback_name, char *ret_name,
                struct error *err)
{
    uint64_t at = m.at;
    struct field f;
    int rc;
    _cleanup_free_ struct tensor *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ERR_NOMEM, "out of memory");
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0)
        if (read_field(r, t, &m, &f, err) < 0)
            return -1;
    if (rc < 0)
        return -1;
    if (ret_name)
        memcpy(ret_name, t->name, sizeof(t->name));
    if (!t->name[0])
        snprintf(t->name, sizeof(t->name), "%s", fallback_name);
    if (t->type == 0)
        return err_set(err, ERR_INVALID, "tensor '%.80s' (byte %llu) has no type", t->name,
                       (unsigned long long)at);
    if (measure(t, at, err) < 0 || check_data(t, at, err) < 0)
        return -1;
    if (count_tensor(r, t, err) < 0)
        return err_wrap(err, "tensor '%.80s' (byte %llu)", t->name, (unsigned long long)at);
    return 0;
}
