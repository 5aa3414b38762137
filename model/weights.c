#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/parsers.h"

enum weights_format weights_format_of(const char *path)
{
    static const struct {
        const char *extension;
        enum weights_format format;
    } table[] = {
        {"safetensors", WEIGHTS_SAFETENSORS},
        {"gguf", WEIGHTS_GGUF},
        {"bin", WEIGHTS_PICKLE},
        {"pt", WEIGHTS_PICKLE},
        {"pth", WEIGHTS_PICKLE},
        {"ckpt", WEIGHTS_PICKLE},
        {"pkl", WEIGHTS_PICKLE},
        {"onnx", WEIGHTS_ONNX},
        {"h5", WEIGHTS_OTHER},
        {"msgpack", WEIGHTS_OTHER},
        {"ot", WEIGHTS_OTHER},
        {"tflite", WEIGHTS_OTHER},
        {"keras", WEIGHTS_OTHER},
        {"npz", WEIGHTS_OTHER},
        {"nemo", WEIGHTS_OTHER},
        {"mar", WEIGHTS_OTHER},
        {"llamafile", WEIGHTS_OTHER},
        {"dduf", WEIGHTS_OTHER},
        {"mlmodel", WEIGHTS_OTHER},
        {"onnx_data", WEIGHTS_OTHER},
    };
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    for (size_t i = 0; dot && i < ARRAY_LEN(table); i++)
        if (strcasecmp(dot + 1, table[i].extension) == 0)
            return table[i].format;
    return WEIGHTS_UNKNOWN;
}

const char *weights_format_name(enum weights_format f)
{
    switch (f) {
    case WEIGHTS_SAFETENSORS:
        return "safetensors";
    case WEIGHTS_GGUF:
        return "gguf";
    case WEIGHTS_PICKLE:
        return "pt";
    case WEIGHTS_ONNX:
        return "onnx";
    case WEIGHTS_UNKNOWN:
    case WEIGHTS_OTHER:
        break;
    }
    return "";
}

void weights_warn(struct weights *w, const char *format, ...)
{
    size_t used = strlen(w->warning);
    va_list args;
    if (used + 3 >= sizeof(w->warning))
        return;
    if (used) {
        strcpy(w->warning + used, "; ");
        used += 2;
    }
    va_start(args, format);
    vsnprintf(w->warning + used, sizeof(w->warning) - used, format, args);
    va_end(args);
    /* Cut in the middle of a character? Then leave that character out. */
    for (used = strlen(w->warning); used && !utf8_is_valid(w->warning, used); used--)
        w->warning[used - 1] = '\0';
}

int weights_count(struct weights *w, const char *type, uint64_t tensors, uint64_t elements,
                  uint64_t bytes, struct error *err)
{
    size_t i = 0;
    while (i < w->n_types && strcmp(w->types[i].name, type) < 0)
        i++;
    if (i == w->n_types || strcmp(w->types[i].name, type) != 0) {
        if (w->n_types == WEIGHTS_MAX_TYPES)
            return err_set(err, ERR_TOO_LARGE, "more than %d tensor types", WEIGHTS_MAX_TYPES);
        memmove(&w->types[i + 1], &w->types[i], (w->n_types - i) * sizeof(w->types[0]));
        w->types[i] = (struct dtype_total){0};
        snprintf(w->types[i].name, sizeof(w->types[i].name), "%s", type);
        w->n_types++;
    }
    struct dtype_total *t = &w->types[i];
    if (__builtin_add_overflow(t->tensors, tensors, &t->tensors) ||
        __builtin_add_overflow(t->elements, elements, &t->elements) ||
        __builtin_add_overflow(t->bytes, bytes, &t->bytes) ||
        __builtin_add_overflow(w->tensors, tensors, &w->tensors) ||
        __builtin_add_overflow(w->parameters, elements, &w->parameters) ||
        __builtin_add_overflow(w->tensor_bytes, bytes, &w->tensor_bytes))
        return err_set(err, ERR_INVALID, "the sum over the %s tensors does not fit 64 bits", type);
    return 0;
}

int weights_parse(enum weights_format format, const void *data, size_t have, uint64_t file_size,
                  struct weights *ret, uint64_t *ret_need, struct error *err)
{
    return weights_visit(format, data, have, file_size, NULL, ret, ret_need, err);
}

int weights_visit(enum weights_format format, const void *data, size_t have, uint64_t file_size,
                  const struct weights_visitor *visitor, struct weights *ret, uint64_t *ret_need,
                  struct error *err)
{
    if (have > file_size)
        return err_set(err, ERR_INTERNAL, "a prefix of %zu bytes of a file of %llu", have,
                       (unsigned long long)file_size);
    if (format == WEIGHTS_SAFETENSORS)
        return safetensors_parse(data, have, file_size, visitor, ret, ret_need, err);
    if (format == WEIGHTS_GGUF)
        return gguf_parse(data, have, file_size, visitor, ret, ret_need, err);
    return err_set(err, ERR_UNSUPPORTED, "only safetensors and GGUF headers are read");
}

int weights_add(struct weights *sum, const struct weights *one, struct error *err)
{
    struct weights s = *sum;
    if (__builtin_add_overflow(s.file_bytes, one->file_bytes, &s.file_bytes) ||
        __builtin_add_overflow(s.header_bytes, one->header_bytes, &s.header_bytes))
        return err_set(err, ERR_INVALID, "the sum over the weight files does not fit 64 bits");
    for (size_t i = 0; i < one->n_types; i++) {
        const struct dtype_total *t = &one->types[i];
        if (weights_count(&s, t->name, t->tensors, t->elements, t->bytes, err) < 0)
            return -1;
    }
    if (s.format == WEIGHTS_UNKNOWN)
        s.format = one->format;
    s.partial = s.partial || one->partial;
    if (!s.architecture[0])
        memcpy(s.architecture, one->architecture, sizeof(s.architecture));
    if (!s.name[0])
        memcpy(s.name, one->name, sizeof(s.name));
    if (!s.warning[0])
        memcpy(s.warning, one->warning, sizeof(s.warning));
    if (!s.gguf_version)
        s.gguf_version = one->gguf_version;
    if (!s.context_length)
        s.context_length = one->context_length;
    if (!s.has_file_type && one->has_file_type) {
        s.has_file_type = true;
        s.file_type = one->file_type;
    }
    *sum = s;
    return 0;
}
