/* The messages of an ONNX model: graphs, nodes, functions. */
#include "model/onnx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/onnx_private.h"
#include "model/parsers.h"

#define GRAPHS_DEEP_MAX 32u /* protobuf itself stops at 100 messages within each other */

static int read_graph(struct onnx_reading *r, struct message m, unsigned depth, struct error *err);

/* A field that is a message or string, as its number says. */
static int want_bytes(const struct message *m, const struct field *f, struct error *err)
{
    return f->wire == WIRE_BYTES ? 0 : field_bad(m, f, err, "wire type %u, not 2", f->wire);
}

/* ---- nodes ---- */

static int read_sparse(struct onnx_reading *r, struct message m, const char *fallback,
                       char *ret_name, struct error *err)
{
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 1) /* the indices and the shape are no weights */
            continue;
        if (want_bytes(&m, &f, err) < 0 ||
            onnx_tensor(r, field_message(&f, "TensorProto"), fallback, ret_name, err) < 0)
            return -1;
    }
    return rc;
}

static int read_attribute(struct onnx_reading *r, struct message m, const char *output,
                          unsigned depth, struct error *err)
{
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        bool tensor = f.number == 5 || f.number == 10, graph = f.number == 6 || f.number == 11;
        bool sparse = f.number == 22 || f.number == 23;
        if (!tensor && !graph && !sparse)
            continue;
        if (want_bytes(&m, &f, err) < 0)
            return -1;
        uint64_t before = r->model->weights.tensors;
        if (graph)
            rc = read_graph(r, field_message(&f, "GraphProto"), depth + 1, err);
        else if (tensor)
            rc = onnx_tensor(r, field_message(&f, "TensorProto"), output, NULL, err);
        else
            rc = read_sparse(r, field_message(&f, "SparseTensorProto"), output, NULL, err);
        if (rc < 0)
            return -1;
        r->model->constants += graph ? 0 : r->model->weights.tensors - before;
    }
    return rc;
}

static int read_node(struct onnx_reading *r, struct message m, unsigned depth, struct error *err)
{
    char output[256] = ""; /* names the tensor of a Constant; writers put it in front */
    struct field f;
    int rc;
    r->model->nodes++;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 2 && f.number != 5)
            continue;
        if (want_bytes(&m, &f, err) < 0)
            return -1;
        if (f.number == 2 && !output[0])
            rc = field_string(&r->fields, &f, m.name, output, sizeof(output), err);
        else if (f.number == 5)
            rc = read_attribute(r, field_message(&f, "AttributeProto"), output, depth, err);
        if (rc < 0)
            return -1;
    }
    return rc;
}

/* ---- inputs and outputs ---- */

static void append(char *buf, size_t cap, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What does not fit is cut, at a whole character. */
static void append(char *buf, size_t cap, const char *format, ...)
{
    size_t used = strlen(buf);
    va_list args;
    va_start(args, format);
    vsnprintf(buf + used, cap - used, format, args);
    va_end(args);
    for (used = strlen(buf); used && !utf8_is_valid(buf, used); used--)
        buf[used - 1] = '\0';
}

static int read_dimension(struct onnx_reading *r, struct message m, struct onnx_value *v,
                          bool first, struct error *err)
{
    char text[64] = "?";
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number == 1 && f.wire == WIRE_VARINT)
            snprintf(text, sizeof(text), "%lld", (long long)f.value);
        else if (f.number == 2 && f.wire == WIRE_BYTES && f.len &&
                 field_string(&r->fields, &f, m.name, text, sizeof(text), err) < 0)
            return -1;
    }
    append(v->shape, sizeof(v->shape), "%s%s", first ? "" : " x ", text);
    return rc;
}

static int read_shape(struct onnx_reading *r, struct message m, struct onnx_value *v,
                      struct error *err)
{
    bool first = true;
    struct field f;
    int rc;
    v->shape[0] = '\0';
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 1)
            continue;
        if (want_bytes(&m, &f, err) < 0 ||
            read_dimension(r, field_message(&f, "Dimension"), v, first, err) < 0)
            return -1;
        first = false;
    }
    return rc;
}

/* TypeProto.Tensor or SparseTensor */
static int read_tensor_type(struct onnx_reading *r, struct message m, struct onnx_value *v,
                            struct error *err)
{
    struct field f;
    int rc;
    strcpy(v->shape, "?");
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number == 1 && f.wire == WIRE_VARINT) {
            const char *type = onnx_type_name(f.value);
            snprintf(v->type, sizeof(v->type), "%s", *type ? type : "UNKNOWN");
        } else if (f.number == 2) {
            if (want_bytes(&m, &f, err) < 0 ||
                read_shape(r, field_message(&f, "TensorShapeProto"), v, err) < 0)
                return -1;
        }
    }
    return rc;
}

static int read_type(struct onnx_reading *r, struct message m, struct onnx_value *v,
                     struct error *err)
{
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 1 && f.number != 8) /* sequences, maps and others are no tensors */
            continue;
        if (want_bytes(&m, &f, err) < 0 ||
            read_tensor_type(r, field_message(&f, "TypeProto.Tensor"), v, err) < 0)
            return -1;
    }
    return rc;
}

static uint64_t hash_name(const char *s)
{
    uint64_t h = 0xcbf29ce484222325;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    return h;
}

/* A ValueInfoProto, appended to the values. */
static int read_value(struct onnx_reading *r, struct message m, struct onnx_value **values,
                      size_t *n, size_t *cap, struct error *err)
{
    char name[ONNX_NAME_MAX] = "";
    struct field f;
    int rc;
    if (*n == ONNX_VALUES_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %u inputs or outputs at byte %llu",
                       ONNX_VALUES_MAX, (unsigned long long)m.at);
    if (*n == *cap) {
        size_t more = *cap ? 2 * *cap : 8;
        struct onnx_value *grown = realloc(*values, more * sizeof(*grown));
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory");
        *values = grown;
        *cap = more;
    }
    struct onnx_value *v = &(*values)[*n];
    *v = (struct onnx_value){0};
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 1 && f.number != 2)
            continue;
        if (want_bytes(&m, &f, err) < 0)
            return -1;
        if (f.number == 1)
            rc = field_string(&r->fields, &f, m.name, name, sizeof(name), err);
        else
            rc = read_type(r, field_message(&f, "TypeProto"), v, err);
        if (rc < 0)
            return -1;
    }
    append(v->name, sizeof(v->name), "%s", name);
    v->hash = hash_name(name);
    (*n)++;
    return rc;
}

/* ---- graphs ---- */

static int note_name(struct onnx_reading *r, const char *name, struct error *err)
{
    if (r->n_names == r->cap_names) {
        size_t cap = r->cap_names ? 2 * r->cap_names : 64;
        uint64_t *grown = realloc(r->names, cap * sizeof(*grown));
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory");
        r->names = grown;
        r->cap_names = cap;
    }
    r->names[r->n_names++] = hash_name(name);
    return 0;
}

static int read_initialiser(struct onnx_reading *r, const struct field *f, bool main_graph,
                            struct error *err)
{
    char name[ONNX_NAME_MAX] = "";
    int rc = f->number == 15 ? read_sparse(r, field_message(f, "SparseTensorProto"), "", name, err)
                             : onnx_tensor(r, field_message(f, "TensorProto"), "", name, err);
    if (rc < 0)
        return -1;
    r->model->initialisers++;
    return main_graph ? note_name(r, name, err) : 0;
}

static int read_graph_field(struct onnx_reading *r, const struct message *m, const struct field *f,
                            unsigned depth, struct error *err)
{
    struct onnx_model *model = r->model;
    bool main_graph = depth == 0;
    if (f->number != 1 && f->number != 2 && f->number != 5 && f->number != 11 && f->number != 12 &&
        f->number != 15)
        return 0;
    if (want_bytes(m, f, err) < 0)
        return -1;
    switch (f->number) {
    case 1:
        return read_node(r, field_message(f, "NodeProto"), depth, err);
    case 2:
        return main_graph
                   ? field_string(&r->fields, f, m->name, model->graph, sizeof(model->graph), err)
                   : 0;
    case 11:
        return main_graph ? read_value(r, field_message(f, "ValueInfoProto"), &model->inputs,
                                       &model->n_inputs, &r->cap_inputs, err)
                          : 0;
    case 12:
        return main_graph ? read_value(r, field_message(f, "ValueInfoProto"), &model->outputs,
                                       &model->n_outputs, &r->cap_outputs, err)
                          : 0;
    default:
        return read_initialiser(r, f, main_graph, err);
    }
}

static int read_graph(struct onnx_reading *r, struct message m, unsigned depth, struct error *err)
{
    struct field f;
    int rc;
    if (depth > GRAPHS_DEEP_MAX)
        return err_set(err, ERR_INVALID, "byte %llu: graphs within graphs, over %u deep",
                       (unsigned long long)m.at, GRAPHS_DEEP_MAX);
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0)
        if (read_graph_field(r, &m, &f, depth, err) < 0)
            return -1;
    return rc;
}

/* ---- the model ---- */

static int read_function(struct onnx_reading *r, struct message m, struct error *err)
{
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 7)
            continue;
        if (want_bytes(&m, &f, err) < 0 || read_node(r, field_message(&f, "NodeProto"), 1, err) < 0)
            return -1;
    }
    return rc;
}

/* The two graphs of a TrainingInfoProto. */
static int read_training(struct onnx_reading *r, struct message m, struct error *err)
{
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number != 1 && f.number != 2)
            continue;
        if (want_bytes(&m, &f, err) < 0 ||
            read_graph(r, field_message(&f, "GraphProto"), 1, err) < 0)
            return -1;
    }
    return rc;
}

static int read_opset(struct onnx_reading *r, struct message m, struct error *err)
{
    struct onnx_model *model = r->model;
    struct onnx_opset o = {0};
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0) {
        if (f.number == 1) {
            if (want_bytes(&m, &f, err) < 0 ||
                field_string(&r->fields, &f, m.name, o.domain, sizeof(o.domain), err) < 0)
                return -1;
        } else if (f.number == 2 && f.wire == WIRE_VARINT) {
            o.version = (int64_t)f.value;
        }
    }
    if (rc == 0 && model->n_opsets < ARRAY_LEN(model->opsets))
        model->opsets[model->n_opsets++] = o;
    return rc;
}

static int read_model_field(struct onnx_reading *r, const struct message *m, const struct field *f,
                            struct error *err)
{
    struct onnx_model *model = r->model;
    if (f->number == 1) {
        if (f->wire != WIRE_VARINT)
            return field_bad(m, f, err, "ir_version is no number");
        model->ir_version = (int64_t)f->value;
        return 0;
    }
    if (f->number != 2 && f->number != 3 && f->number != 7 && f->number != 8 && f->number != 20 &&
        f->number != 25)
        return 0;
    if (want_bytes(m, f, err) < 0)
        return -1;
    switch (f->number) {
    case 2:
        return field_string(&r->fields, f, m->name, model->producer, sizeof(model->producer), err);
    case 3:
        return field_string(&r->fields, f, m->name, model->producer_version,
                            sizeof(model->producer_version), err);
    case 7:
        r->has_graph = true;
        return read_graph(r, field_message(f, "GraphProto"), 0, err);
    case 8:
        return read_opset(r, field_message(f, "OperatorSetIdProto"), err);
    case 20:
        return read_training(r, field_message(f, "TrainingInfoProto"), err);
    default:
        return read_function(r, field_message(f, "FunctionProto"), err);
    }
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Inputs that have a value in the file are none that somebody has to give. */
static void drop_initialised(struct onnx_reading *r)
{
    struct onnx_model *m = r->model;
    size_t n = 0;
    if (r->n_names)
        qsort(r->names, r->n_names, sizeof(*r->names), compare_hashes);
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!r->n_names ||
            !bsearch(&m->inputs[i].hash, r->names, r->n_names, sizeof(*r->names), compare_hashes))
            m->inputs[n++] = m->inputs[i];
    m->n_inputs = n;
}

static int read_model(struct onnx_reading *r, struct error *err)
{
    struct onnx_model *model = r->model;
    struct message m = {0, r->fields.s->size, "ModelProto"};
    struct field f;
    int rc;
    while ((rc = field_next(&r->fields, &m, &f, err)) > 0)
        if (read_model_field(r, &m, &f, err) < 0)
            return -1;
    if (rc < 0)
        return -1;
    if (!r->has_graph)
        return err_set(err, ERR_INVALID, "no graph in it before byte %llu, its end",
                       (unsigned long long)m.end);
    if (model->ir_version < 1)
        return err_set(err, ERR_INVALID, "no ir_version in it before byte %llu, its end",
                       (unsigned long long)m.end);
    drop_initialised(r);
    model->weights.header_bytes = r->fields.s->size - r->tensor_bytes;
    if (r->fields.s->size > INT32_MAX)
        weights_warn(&model->weights, "over 2 GiB, which protobuf does not read");
    return 0;
}

int onnx_read(const struct byte_source *s,
              int (*tensor)(void *ctx, const struct tensor_info *t, const char *external_file,
                            struct error *err),
              void *ctx, struct onnx_model *ret, struct error *err)
{
    *ret = (struct onnx_model){.weights = {.format = WEIGHTS_ONNX, .file_bytes = s->size}};
    _cleanup_free_ struct onnx_reading *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory");
    r->fields.s = s;
    r->model = ret;
    r->tensor = tensor;
    r->ctx = ctx;
    int rc = read_model(r, err);
    free(r->names);
    if (rc < 0 && err && err->code == ERR_INVALID)
        return err_wrap(err, "not an ONNX model that can be read");
    return rc < 0 ? -1 : 0;
}

void onnx_done(struct onnx_model *m)
{
    for (size_t i = 0; i < m->n_external_files; i++)
        free(m->external_files[i]);
    free(m->external_files);
    free(m->inputs);
    free(m->outputs);
    *m = (struct onnx_model){0};
}
