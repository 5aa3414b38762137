/* Tensors, as the calls of torch's rebuild functions describe them (torch/_utils.py,
 * torch/serialization.py). */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/parsers.h"
#include "model/pickle_private.h"

#define KEY_MAX 1024u

struct element {
    const char *name; /* of torch: a storage class without "Storage", or a dtype */
    const char *type; /* of safetensors */
    unsigned size;
};

static const struct element storage_classes[] = {
    {"DoubleStorage", "F64", 8},       {"FloatStorage", "F32", 4},
    {"HalfStorage", "F16", 2},         {"BFloat16Storage", "BF16", 2},
    {"LongStorage", "I64", 8},         {"IntStorage", "I32", 4},
    {"ShortStorage", "I16", 2},        {"CharStorage", "I8", 1},
    {"ByteStorage", "U8", 1},          {"BoolStorage", "BOOL", 1},
    {"ComplexFloatStorage", "C64", 8}, {"ComplexDoubleStorage", "C128", 16},
    {"QInt8Storage", "I8", 1},         {"QUInt8Storage", "U8", 1},
    {"QInt32Storage", "I32", 4},       {"UntypedStorage", "", 1},
    {"_UntypedStorage", "", 1},
};

static const struct element dtypes[] = {
    {"float64", "F64", 8},
    {"float32", "F32", 4},
    {"float16", "F16", 2},
    {"bfloat16", "BF16", 2},
    {"int64", "I64", 8},
    {"int32", "I32", 4},
    {"int16", "I16", 2},
    {"int8", "I8", 1},
    {"uint8", "U8", 1},
    {"uint16", "U16", 2},
    {"uint32", "U32", 4},
    {"uint64", "U64", 8},
    {"bool", "BOOL", 1},
    {"complex32", "C32", 4},
    {"complex64", "C64", 8},
    {"complex128", "C128", 16},
    {"float8_e4m3fn", "F8_E4M3", 1},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ", 1},
    {"float8_e5m2", "F8_E5M2", 1},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ", 1},
    {"float8_e8m0fnu", "F8_E8M0", 1},
};

static const struct element *find_element(const struct element *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static const struct pickle_import *import_of(const struct pickle_machine *m, struct value v)
{
    return v.kind == VALUE_IMPORT ? m->scan->imports[v.n] : NULL;
}

static bool is_import(const struct pickle_import *i, const char *module, const char *name)
{
    return i && strcmp(i->module, module) == 0 && strcmp(i->name, name) == 0;
}

/* Item i of a tuple, a blank when there is none. */
static struct value item(const struct pickle_machine *m, struct value tuple, size_t i)
{
    return tuple.kind == VALUE_TUPLE && i < tuple.size ? m->items.v[tuple.n + i] : OTHER;
}

bool storage_key(const struct pickle_machine *m, struct value v, char *buf, size_t cap)
{
    size_t used = strlen(m->scan->key_prefix);
    memcpy(buf, m->scan->key_prefix, used);
    return machine_text(m, v, buf + used, cap - used);
}

/* ('storage', class, key, location, elements[, view]) */
int tensor_persistent(struct pickle_machine *m, struct value id, struct value *ret,
                      struct error *err)
{
    char word[16], key[KEY_MAX];
    uint32_t index;
    struct value count = item(m, id, 4), view = item(m, id, 5);
    const struct pickle_import *class = import_of(m, item(m, id, 1));
    *ret = OTHER;
    if (!machine_text(m, item(m, id, 0), word, sizeof(word)) || strcmp(word, "storage") != 0 ||
        !class || strncmp(class->module, "torch", 5) != 0 ||
        !storage_key(m, item(m, id, 2), key, sizeof(key)) || count.kind != VALUE_INT ||
        count.n > INT64_MAX)
        return 0;
    const struct element *e =
        find_element(storage_classes, ARRAY_LEN(storage_classes), class->name);
    if (scan_storage(m->scan, key, e ? e->type : "", e ? e->size : 0, count.n, &index, err) < 0)
        return -1;
    if (view.kind != VALUE_TUPLE) /* a part of it, as old files had: not understood */
        *ret = (struct value){VALUE_STORAGE, 0, index};
    return 0;
}

/* The size and stride that lie in two tuples; false when they are not plain or do not lie in the
 * storage. */
static bool read_shape(const struct pickle_machine *m, struct value size, struct value stride,
                       uint64_t room, struct pickle_tensor *t)
{
    uint64_t last = t->storage_offset;
    if (size.kind != VALUE_TUPLE || stride.kind != VALUE_TUPLE || size.size != stride.size ||
        size.size > ARRAY_LEN(t->dims))
        return false;
    t->n_dims = size.size;
    t->elements = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        struct value d = item(m, size, i), s = item(m, stride, i);
        if (d.kind != VALUE_INT || d.n > INT64_MAX || s.kind != VALUE_INT || s.n > INT64_MAX ||
            __builtin_mul_overflow(t->elements, d.n, &t->elements))
            return false;
        t->dims[i] = d.n;
    }
    for (size_t i = 0; t->elements && i < t->n_dims; i++) {
        uint64_t step;
        if (__builtin_mul_overflow(t->dims[i] - 1, item(m, stride, i).n, &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    return t->elements == 0 || last < room;
}

/* (storage, offset, size, stride, ...); with a type of its own, over bytes: dtype. */
static int rebuild(struct pickle_machine *m, struct value args, const struct element *dtype,
                   struct value *ret, struct error *err)
{
    struct value storage = item(m, args, 0), offset = item(m, args, 1);
    uint32_t index;
    *ret = OTHER;
    if (storage.kind != VALUE_STORAGE || offset.kind != VALUE_INT || offset.n > INT64_MAX)
        return 0;
    const struct pickle_storage *s = m->scan->storages[storage.n];
    unsigned size = dtype ? dtype->size : s->size;
    struct pickle_tensor t = {.name = (char *)"",
                              .type = dtype ? dtype->type : s->type,
                              .storage = s->key,
                              .storage_offset = offset.n};
    uint64_t room = dtype ? s->elements / dtype->size : s->elements;
    if (!size || !*t.type || (dtype && s->size != 1) ||
        !read_shape(m, item(m, args, 2), item(m, args, 3), room, &t) ||
        __builtin_mul_overflow(t.elements, size, &t.bytes))
        return 0;
    if (scan_tensor(m->scan, &t, &index, err) < 0)
        return -1;
    *ret = (struct value){VALUE_TENSOR, 0, index};
    return 0;
}

/* What torch._utils' functions give; 1 when `name` is one of those that make a tensor. */
static int call_torch_utils(struct pickle_machine *m, const char *name, struct value args,
                            struct value *ret, struct error *err)
{
    if (strcmp(name, "_rebuild_tensor") == 0 || strcmp(name, "_rebuild_tensor_v2") == 0 ||
        strcmp(name, "_rebuild_qtensor") == 0)
        return rebuild(m, args, NULL, ret, err) < 0 ? -1 : 1;
    if (strcmp(name, "_rebuild_tensor_v3") == 0) {
        const struct pickle_import *dtype = import_of(m, item(m, args, 6));
        const struct element *e = dtype && strcmp(dtype->module, "torch") == 0
                                      ? find_element(dtypes, ARRAY_LEN(dtypes), dtype->name)
                                      : NULL;
        return e && rebuild(m, args, e, ret, err) < 0 ? -1 : 1;
    }
    if (strcmp(name, "_rebuild_parameter") == 0 ||
        strcmp(name, "_rebuild_parameter_with_state") == 0) {
        *ret = item(m, args, 0);
        return 1;
    }
    return strncmp(name, "_rebuild", 8) == 0; /* sparse ones and wrappers: not known */
}

int tensor_call(struct pickle_machine *m, struct value callee, struct value args, struct value *ret,
                struct error *err)
{
    const struct pickle_import *i = import_of(m, callee);
    int r = 0;
    *ret = OTHER;
    if (i && is_loader(i)) /* called itself; through another function is not counted as known */
        return pickle_load_from_bytes(m, args, ret, err);
    if (is_import(i, "torch._tensor", "_rebuild_from_type_v2")) { /* (function, type, args, ...) */
        i = import_of(m, item(m, args, 0));
        args = item(m, args, 2);
        r = 1;
    }
    if (i && strcmp(i->module, "torch._utils") == 0)
        r = call_torch_utils(m, i->name, args, ret, err);
    else if (i && is_loader(i))
        r = 1;
    if (r < 0)
        return -1;
    if (ret->kind != VALUE_TENSOR) {
        *ret = OTHER;
        if (r)
            m->scan->report->tensors_known = false;
    }
    return 0;
}

int tensor_name(struct pickle_machine *m, struct value key, struct value v, struct error *err)
{
    char name[KEY_MAX];
    if (v.kind != VALUE_TENSOR || !machine_text(m, key, name, sizeof(name)) || !name[0])
        return 0;
    return scan_name_tensor(m->scan, (uint32_t)v.n, name, err);
}

/* ---- sums ---- */

static int compare_places(const void *a, const void *b)
{
    const struct pickle_tensor *x = *(struct pickle_tensor *const *)a;
    const struct pickle_tensor *y = *(struct pickle_tensor *const *)b;
    int c = strcmp(x->storage, y->storage);
    if (c)
        return c;
    if (x->storage_offset != y->storage_offset)
        return x->storage_offset < y->storage_offset ? -1 : 1;
    if (x->elements != y->elements)
        return x->elements > y->elements ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const struct pickle_tensor *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    if (c)
        return c;
    c = strcmp(x->storage, y->storage);
    if (c)
        return c;
    if (x->storage_offset != y->storage_offset)
        return x->storage_offset < y->storage_offset ? -1 : 1;
    return x->elements < y->elements ? -1 : x->elements > y->elements;
}

/* Counts the bytes of a storage once, however many tensors look at them: a tensor that starts
 * before the end of the one in front of it is an alias of it. */
static int count_tensors(struct pickle_report *r, struct pickle_tensor **order, struct error *err)
{
    const struct pickle_tensor *last = NULL;
    uint64_t end = 0;
    for (size_t i = 0; i < r->n_tensors; i++) {
        struct pickle_tensor *t = order[i];
        if (!last || strcmp(last->storage, t->storage) != 0)
            end = 0;
        t->alias = t->elements > 0 && t->storage_offset < end;
        if (!t->alias && weights_count(&r->weights, t->type, 1, t->elements, t->bytes, err) < 0)
            return err_wrap(err, "tensor '%.80s'", t->name);
        uint64_t to = t->storage_offset + t->elements; /* each below 2^63 */
        end = to > end ? to : end;
        last = t;
    }
    return 0;
}

int tensors_finish(struct pickle_scan *scan, struct error *err)
{
    struct pickle_report *r = scan->report;
    for (size_t i = 0; i < scan->n_storages; i++)
        if (scan->storages[i]->odd)
            r->tensors_known = false;
    if (r->n_tensors == 0)
        return 0;
    qsort(r->tensors, r->n_tensors, sizeof(*r->tensors), compare_names);
    _cleanup_free_ struct pickle_tensor **order =
        calloc(r->n_tensors, sizeof(struct pickle_tensor *));
    if (!order)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < r->n_tensors; i++)
        order[i] = &r->tensors[i];
    qsort(order, r->n_tensors, sizeof(struct pickle_tensor *), compare_places);
    return count_tensors(r, order, err);
}
