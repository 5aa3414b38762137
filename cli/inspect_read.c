/* Reading the files of one model, each as its format wants it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "cli/inspect.h"

#define FIRST_READ (64u << 10)
#define STEP_MAX (8u << 20)

/* ---- what a visitor keeps -------------------------------------------------------------------- */

struct visit {
    struct report *report;
    struct model_report *model;
    size_t file;
};

static int keep_dims(struct model_report *m, const uint64_t *dims, size_t n, size_t *ret,
                     struct error *err)
{
    if (m->n_dims + n > m->cap_dims) {
        size_t cap = m->cap_dims ? m->cap_dims : 64;
        while (cap < m->n_dims + n)
            cap *= 2;
        uint64_t *more = reallocarray(m->dims, cap, sizeof(*more));
        if (!more)
            return err_set(err, ERR_NOMEM, "out of memory for %zu dimensions", cap);
        m->dims = more;
        m->cap_dims = cap;
    }
    *ret = m->n_dims;
    if (n)
        memcpy(m->dims + m->n_dims, dims, n * sizeof(*dims));
    m->n_dims += n;
    return 0;
}

static int keep_tensor(struct model_report *m, size_t file, const struct tensor_info *t,
                       struct report_tensor *ret, struct error *err)
{
    struct report_tensor r = {.name = m->text.len,
                              .name_len = (uint32_t)t->name_len,
                              .file = (uint32_t)file,
                              .sized = t->sized,
                              .n_dims = t->n_dims,
                              .elements = t->elements,
                              .offset = t->offset,
                              .bytes = t->bytes};
    snprintf(r.type, sizeof(r.type), "%s", t->type);
    strbuf_put(&m->text, t->name, t->name_len);
    if (strbuf_failed(&m->text))
        return err_set(err, ERR_NOMEM, "out of memory for the names of tensors");
    if (keep_dims(m, t->dims, t->n_dims, &r.dims, err) < 0)
        return -1;
    *ret = r;
    return 0;
}

static int list_tensor(struct model_report *m, size_t file, const struct tensor_info *t,
                       struct error *err)
{
    if (m->n_tensors == m->cap_tensors) {
        size_t cap = m->cap_tensors ? m->cap_tensors * 2 : 256;
        struct report_tensor *tensors = reallocarray(m->tensors, cap, sizeof(*tensors));
        if (!tensors)
            return err_set(err, ERR_NOMEM, "out of memory for %zu tensors", cap);
        m->tensors = tensors;
        m->cap_tensors = cap;
    }
    if (keep_tensor(m, file, t, &m->tensors[m->n_tensors], err) < 0)
        return -1;
    m->n_tensors++;
    return 0;
}

static int mark_peek(struct model_report *m, size_t file, const struct tensor_info *t,
                     struct error *err)
{
    if (!(m->peeked = calloc(1, sizeof(*m->peeked))))
        return err_set(err, ERR_NOMEM, "out of memory");
    return keep_tensor(m, file, t, &m->peeked->tensor, err);
}

static enum weights_format weights_of(enum model_format f)
{
    switch (f) {
    case MODEL_SAFETENSORS:
        return WEIGHTS_SAFETENSORS;
    case MODEL_GGUF:
        return WEIGHTS_GGUF;
    case MODEL_PICKLE:
        return WEIGHTS_PICKLE;
    case MODEL_ONNX:
        return WEIGHTS_ONNX;
    default:
        return WEIGHTS_OTHER;
    }
}

int model_add_tensor(struct report *r, struct model_report *m, size_t file,
                     const struct tensor_info *t, struct error *err)
{
    const struct inspect_options *o = r->options;
    if (parameters_add(&m->count, m->quantization.method[0] ? &m->quantization : NULL,
                       weights_of(m->format), t, err) < 0)
        return -1;
    if (m->checkpoint && checkpoint_tensor(m->checkpoint, t, err) < 0)
        return -1;
    if (o->tensors && list_tensor(m, file, t, err) < 0)
        return -1;
    bool wanted = o->peek && !m->peeked && strlen(o->peek) == t->name_len &&
                  memcmp(o->peek, t->name, t->name_len) == 0;
    return wanted ? mark_peek(m, file, t, err) : 0;
}

static int on_tensor(void *ctx, const struct tensor_info *t, struct error *err)
{
    struct visit *v = ctx;
    return model_add_tensor(v->report, v->model, v->file, t, err);
}

static bool key_is(const struct metadata_info *i, const char *key)
{
    return i->key_len == strlen(key) && memcmp(i->key, key, i->key_len) == 0;
}

/* tokenizer.chat_template, and tokenizer.chat_template.NAME */
static int take_template(struct model_report *m, const struct metadata_info *i, struct error *err)
{
    static const char key[] = "tokenizer.chat_template";
    size_t n = strlen(key);
    if (i->type != METADATA_STRING || i->key_len < n || memcmp(i->key, key, n) != 0 ||
        (i->key_len > n && i->key[n] != '.'))
        return 0;
    _cleanup_free_ char *name =
        i->key_len > n ? strndup(i->key + n + 1, i->key_len - n - 1) : strdup("");
    if (!name)
        return err_set(err, ERR_NOMEM, "out of memory");
    return model_add_template(m, name, i->string, i->string_len, err);
}

/* A key that no shape can be made of is no reason to refuse the file. */
static int take_shape_key(struct model_report *m, const struct metadata_info *i, struct error *err)
{
    struct error why = ERROR_INIT;
    if (m->no_shape[0] || shape_keys_add(m->shape_keys, i, &why) == 0)
        return 0;
    if (why.code != ERR_INVALID) {
        if (err)
            *err = why;
        return -1;
    }
    snprintf(m->no_shape, sizeof(m->no_shape), "%.*s (byte %" PRIu64 ")",
             (int)sizeof(m->no_shape) - 40, why.text, i->at);
    return 0;
}

static int on_metadata(void *ctx, const struct metadata_info *i, struct error *err)
{
    struct visit *v = ctx;
    struct model_report *m = v->model;
    m->files[v->file].keys++;
    m->keys++;
    if (m->checkpoint && checkpoint_metadata(m->checkpoint, i, err) < 0)
        return -1;
    if (m->format == MODEL_GGUF) {
        if (v->file == 0 && take_shape_key(m, i, err) < 0)
            return -1;
        if (key_is(i, "general.type") && i->type == METADATA_STRING && i->string_len == 7 &&
            memcmp(i->string, "adapter", 7) == 0)
            snprintf(m->adapter, sizeof(m->adapter), "a GGUF of an adapter");
        if (v->report->options->chat_template && take_template(m, i, err) < 0)
            return -1;
    }
    return v->report->options->metadata ? model_add_metadata(v->report, m, i, err) : 0;
}

/* ---- formats that stand in a prefix ---------------------------------------------------------- */

/* What a reading needs is asked for, and where that is only a lower bound, some more. */
static int read_header(struct visit *v, struct source_file *f, struct weights *ret,
                       struct error *err)
{
    const struct weights_visitor visitor = {on_metadata, on_tensor, v};
    enum weights_format format = weights_of(v->model->format);
    uint64_t need = FIRST_READ, slack = 0, size = source_file_size(f);
    size_t step = FIRST_READ, have = 0;
    const void *data;
    for (;;) {
        if (source_file_prefix(f, need, slack, &data, &have, err) < 0)
            return -1;
        int rc = weights_visit(format, data, have, size, &visitor, ret, &need, err);
        if (rc != PREFIX_MORE) {
            const unsigned char *p = data; /* a version in that order: 0, 0, 0, 3 */
            v->model->files[v->file].big_endian =
                rc == PREFIX_DONE && format == WEIGHTS_GGUF && p[4] == 0;
            return rc < 0 ? -1 : 0;
        }
        if (need <= have || need > size)
            return err_set(err, ERR_INVALID, "the file ends inside its header");
        if (format == WEIGHTS_GGUF)
            slack = step = step * 2 > STEP_MAX ? STEP_MAX : step * 2;
    }
}

static int read_numpy(struct visit *v, struct source_file *f, struct weights *ret,
                      struct error *err)
{
    struct model_report *m = v->model;
    uint64_t need = 256, size = source_file_size(f);
    const void *data;
    size_t have;
    int rc;
    do {
        if (source_file_prefix(f, need, 0, &data, &have, err) < 0)
            return -1;
        rc = numpy_parse(data, have, size, &m->numpy, &need, err);
        if (rc == PREFIX_MORE && (need <= have || need > size))
            return err_set(err, ERR_INVALID, "the file ends inside its header");
    } while (rc == PREFIX_MORE);
    if (rc < 0)
        return -1;
    m->has_numpy = true;
    const struct numpy_array *a = &m->numpy;
    const struct tensor_info t = {.name = "array", /* it has no name of its own */
                                  .name_len = 5,
                                  .type = a->type[0] ? a->type : a->descr,
                                  .sized = true,
                                  .dims = a->dims,
                                  .n_dims = a->n_dims,
                                  .elements = a->elements,
                                  .offset = a->header_bytes,
                                  .bytes = a->bytes};
    *ret = (struct weights){.format = WEIGHTS_OTHER,
                            .file_bytes = size,
                            .header_bytes = a->header_bytes,
                            .tensors = 1,
                            .parameters = a->elements,
                            .tensor_bytes = a->bytes,
                            .n_types = 1};
    ret->types[0] = (struct dtype_total){.tensors = 1, .elements = a->elements, .bytes = a->bytes};
    snprintf(ret->types[0].name, sizeof(ret->types[0].name), "%.15s", t.type);
    m->files[v->file].big_endian = a->big_endian;
    return on_tensor(v, &t, err);
}

/* ---- formats that are read here and there ---------------------------------------------------- */

static int on_onnx_tensor(void *ctx, const struct tensor_info *t, const char *external_file,
                          struct error *err)
{
    struct visit *v = ctx;
    bool had = v->model->peeked;
    if (on_tensor(v, t, err) < 0)
        return -1;
    if (!had && v->model->peeked)
        v->model->peeked->external = external_file || !t->offset;
    return 0;
}

static int read_onnx(struct visit *v, struct source_file *f, struct weights *ret, struct error *err)
{
    struct model_report *m = v->model;
    m->has_onnx = true;
    if (onnx_read(source_file_bytes(f), on_onnx_tensor, v, &m->onnx, err) < 0)
        return -1;
    *ret = m->onnx.weights;
    return 0;
}

static const char *path_in_checkpoint(const struct visit *v)
{
    return v->model->files[v->file].path + strlen(v->model->folder);
}

/* The tensors as far as the pickle says what they are. */
static int show_pickled(struct visit *v, struct error *err)
{
    const struct pickle_report *p = &v->model->pickle;
    struct checkpoint *c = v->model->checkpoint;
    if (c &&
        checkpoint_file(c, path_in_checkpoint(v), p->tensors_known ? &p->weights : NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct pickle_tensor *t = &p->tensors[i];
        const struct tensor_info info = {.name = t->name,
                                         .name_len = strlen(t->name),
                                         .type = t->type[0] ? t->type : "UNKNOWN",
                                         .sized = t->type[0] != '\0',
                                         .dims = t->dims,
                                         .n_dims = t->n_dims,
                                         .elements = t->elements,
                                         .bytes = t->bytes};
        bool listed = v->report->options->tensors;
        /* What shares another one's storage has a name of its own, and is in no sum. */
        if (!t->alias && on_tensor(v, &info, err) < 0)
            return -1;
        if (t->alias && ((c && checkpoint_tensor(c, &info, err) < 0) ||
                         (listed && list_tensor(v->model, v->file, &info, err) < 0)))
            return -1;
    }
    return 0;
}

static void merge_pickle(struct pickle_report *to, struct pickle_report *from)
{
    if (from->verdict > to->verdict) {
        struct pickle_report keep = *to;
        *to = *from;
        *from = keep;
    }
}

/* Of several files the worst is shown. */
static int read_pickle(struct visit *v, struct source_file *f, struct weights *ret,
                       struct error *err)
{
    struct model_report *m = v->model;
    struct pickle_report before = m->pickle;
    bool had = m->has_pickle;
    memset(&m->pickle, 0, sizeof(m->pickle));
    m->has_pickle = true;
    int rc = pickle_inspect(source_file_bytes(f), &m->pickle, err);
    if (rc == 0) {
        *ret = m->pickle.weights;
        rc = show_pickled(v, err);
    }
    if (had) {
        merge_pickle(&m->pickle, &before);
        pickle_report_done(&before);
    }
    return rc;
}

static int read_numpy_zip(struct visit *v, struct source_file *f, struct weights *ret,
                          struct error *err)
{
    return numpy_zip_read(source_file_bytes(f), on_tensor, v, ret, err);
}

/* ---- one model ------------------------------------------------------------------------------- */

/* A name can be wrong, and what a loader would make of the content is what counts. */
static int check_content(struct model_report *m, struct source_file *f, struct error *err)
{
    const void *data;
    size_t have;
    if (source_file_prefix(f, FIRST_READ, 0, &data, &have, err) < 0)
        return -1;
    enum model_format is = model_format_in(data, have, source_file_size(f));
    bool clear = is == MODEL_GGUF || is == MODEL_SAFETENSORS || is == MODEL_NUMPY;
    if (m->n_files != 1 || !clear || is == m->format)
        return 0;
    snprintf(m->note, sizeof(m->note), "by its name it is %s, by its content %s",
             model_format_name(m->format), model_format_name(is));
    m->format = is;
    return 0;
}

static int read_content(struct visit *v, struct source_file *f, struct weights *ret,
                        struct error *err)
{
    if (check_content(v->model, f, err) < 0)
        return -1;
    switch (v->model->format) {
    case MODEL_SAFETENSORS:
    case MODEL_GGUF:
        return read_header(v, f, ret, err);
    case MODEL_PICKLE:
        return read_pickle(v, f, ret, err);
    case MODEL_ONNX:
        return read_onnx(v, f, ret, err);
    case MODEL_NUMPY:
        return read_numpy(v, f, ret, err);
    case MODEL_NUMPY_ZIP:
        return read_numpy_zip(v, f, ret, err);
    case MODEL_UNREAD:
    case MODEL_NONE:
        break;
    }
    return err_set(err, ERR_UNSUPPORTED, "not a format that is read");
}

/* A checkpoint is told of a file before its tensors, which a visitor is shown only once the header
 * has been summed: so it is read twice, the second time from memory. */
static int announce(struct visit *v, struct source_file *f, struct error *err)
{
    struct model_report *m = v->model;
    const char *path = path_in_checkpoint(v);
    struct weights w;
    uint64_t need = FIRST_READ, size = source_file_size(f);
    size_t have;
    const void *data;
    int rc;
    if (m->format == MODEL_PICKLE) /* it says so itself */
        return 0;
    if (m->format != MODEL_SAFETENSORS && m->format != MODEL_GGUF)
        return checkpoint_file(m->checkpoint, path, NULL, err);
    do {
        if (source_file_prefix(f, need, 0, &data, &have, err) < 0)
            return -1;
        rc = weights_parse(weights_of(m->format), data, have, size, &w, &need, err);
        if (rc == PREFIX_MORE && (need <= have || need > size))
            return err_set(err, ERR_INVALID, "the file ends inside its header");
    } while (rc == PREFIX_MORE);
    return rc < 0 ? -1 : checkpoint_file(m->checkpoint, path, &w, err);
}

/* A file that has been read whole anyway is held to its sha256, where the source says one. */
static int check_digest(const struct report_file *file, struct source_file *f, struct error *err)
{
    struct digest want, got;
    char text[DIGEST_TEXT_MAX];
    const void *data;
    size_t have;
    if (!file->sha256[0] || source_file_prefix(f, 0, 0, &data, &have, err) < 0 ||
        have != source_file_size(f))
        return 0;
    if (digest_parse_hex(DIGEST_SHA256, file->sha256, &want, err) < 0 ||
        digest_of(DIGEST_SHA256, data, have, &got, err) < 0)
        return -1;
    return digest_equal(&want, &got)
               ? 0
               : err_set(err, ERR_DIGEST_MISMATCH, "its bytes hash to %s, the source says %s",
                         digest_format_hex(&got, text), file->sha256);
}

static int read_one(struct visit *v, struct error *err)
{
    struct report *r = v->report;
    struct model_report *m = v->model;
    struct report_file *file = &m->files[v->file];
    _cleanup_source_file_ struct source_file *f = NULL;
    int rc = source_file_open(r->source, file->path, &f, err);
    if (rc < 0)
        return -1;
    if (rc == 0) {
        if (m->checkpoint && checkpoint_missing(m->checkpoint, path_in_checkpoint(v), err) < 0)
            return -1;
        return err_set(err, ERR_NOT_FOUND, "it is missing");
    }
    file->size = source_file_size(f);
    if (m->checkpoint && announce(v, f, err) < 0)
        return -1;
    if (read_content(v, f, &file->w, err) < 0 || check_digest(file, f, err) < 0 ||
        weights_add(&m->sum, &file->w, err) < 0)
        return -1;
    file->read = true;
    if (m->peeked && m->peeked->tensor.file == v->file && !m->peeked->values &&
        !m->peeked->why_not[0])
        return model_peek(r, m, f, err);
    return 0;
}

/* What is wrong with one file does not keep the others from being looked at; what is wrong with the
 * machine or the network does. */
static bool is_about_the_file(const struct error *e)
{
    return e->code == ERR_INVALID || e->code == ERR_TOO_LARGE || e->code == ERR_UNSUPPORTED ||
           e->code == ERR_NOT_FOUND;
}

static int finish(struct model_report *m, struct error *err)
{
    struct weights sum;
    struct error why = ERROR_INIT;
    parameters_end(&m->count, m->quantization.method[0] ? &m->quantization : NULL);
    if (m->checkpoint &&
        checkpoint_check(m->checkpoint, &m->findings, &m->n_findings, &sum, err) < 0)
        return -1;
    if (m->has_shape || m->format != MODEL_GGUF || !m->keys || m->no_shape[0])
        return 0;
    m->has_shape = true;
    if (shape_from_gguf(m->shape_keys, &m->shape, &why) < 0) {
        shape_done(&m->shape);
        m->has_shape = false;
        snprintf(m->no_shape, sizeof(m->no_shape), "%s", why.text);
    }
    return 0;
}

int model_read(struct report *r, struct model_report *m, struct error *err)
{
    if (shape_keys_new(&m->shape_keys, err) < 0)
        return -1;
    for (size_t i = 0; i < m->n_files; i++) {
        struct visit v = {r, m, i};
        struct error why = ERROR_INIT;
        if (read_one(&v, &why) == 0)
            continue;
        if (!is_about_the_file(&why)) {
            if (err)
                *err = why;
            return err_wrap(err, "%s", m->files[i].path);
        }
        m->files[i].code = why.code;
        if (!(m->files[i].error = strdup(why.text)))
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    return finish(m, err);
}
