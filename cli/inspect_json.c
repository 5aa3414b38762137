/* The report as JSON: docs/inspect.md has what the keys mean, and that none of them changes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cli/escape.h"
#include "cli/inspect.h"

static void put_bool(struct strbuf *b, const char *key, bool value)
{
    json_put_key(b, key);
    strbuf_puts(b, value ? "true" : "false");
}

static void put_dims(struct strbuf *b, const uint64_t *dims, size_t n)
{
    json_put_key(b, "shape");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%" PRIu64, i ? "," : "", dims[i]);
    strbuf_putc(b, ']');
}

/* Bits of one element; there is none where nothing has a size. */
static void put_bits(struct strbuf *b, uint64_t bytes, uint64_t elements)
{
    json_put_key(b, "bits_per_weight");
    if (elements)
        strbuf_printf(b, "%.4f", (double)bytes * 8 / (double)elements);
    else
        strbuf_puts(b, "null");
}

static void put_types(struct strbuf *b, const struct weights *w)
{
    json_put_key(b, "types");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < w->n_types; i++) {
        const struct dtype_total *t = &w->types[i];
        json_put_separator(b);
        strbuf_puts(b, "{\"name\":");
        put_json_text(b, t->name, strlen(t->name));
        json_put_number(b, "tensors", t->tensors);
        json_put_number(b, "elements", t->elements);
        json_put_number(b, "bytes", t->bytes);
        put_bits(b, t->bytes, t->elements);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

static void put_totals(struct strbuf *b, const struct model_report *m)
{
    const struct weights *w = &m->sum;
    uint64_t rest = w->file_bytes - w->header_bytes;
    json_put_key(b, "totals");
    strbuf_putc(b, '{');
    json_put_number(b, "tensors", w->tensors);
    json_put_number(b, "elements", w->parameters);
    json_put_number(b, "parameters", m->count.logical);
    put_json_member(b, "parameters_rule", m->count.rule);
    json_put_number(b, "file_bytes", w->file_bytes);
    json_put_number(b, "header_bytes", w->header_bytes);
    json_put_number(b, "tensor_bytes", w->tensor_bytes);
    json_put_number(b, "padding_bytes", rest > w->tensor_bytes ? rest - w->tensor_bytes : 0);
    put_bool(b, "partial", w->partial);
    put_bits(b, w->tensor_bytes, w->parameters);
    strbuf_putc(b, '}');
}

static void put_files(struct strbuf *b, const struct model_report *m)
{
    json_put_key(b, "files");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < m->n_files; i++) {
        const struct report_file *f = &m->files[i];
        json_put_separator(b);
        strbuf_puts(b, "{\"path\":");
        put_json_text(b, f->path, strlen(f->path));
        json_put_number(b, "size", f->size);
        if (f->sha256[0])
            put_json_member(b, "sha256", f->sha256);
        if (f->error) {
            put_json_member(b, "error", f->error);
        } else {
            json_put_number(b, "metadata_keys", f->keys);
            json_put_number(b, "tensors", f->w.tensors);
            json_put_number(b, "elements", f->w.parameters);
            json_put_number(b, "header_bytes", f->w.header_bytes);
            json_put_number(b, "tensor_bytes", f->w.tensor_bytes);
            put_bool(b, "big_endian", f->big_endian);
            if (f->w.warning[0])
                put_json_member(b, "warning", f->w.warning);
        }
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

static void put_gguf(struct strbuf *b, const struct weights *w)
{
    const char *type = w->has_file_type ? gguf_file_type_name(w->file_type) : NULL;
    json_put_number(b, "gguf_version", w->gguf_version);
    if (w->architecture[0])
        put_json_member(b, "architecture", w->architecture);
    if (w->name[0])
        put_json_member(b, "name", w->name);
    if (w->has_file_type)
        json_put_number(b, "file_type", w->file_type);
    if (type)
        put_json_member(b, "file_type_name", type);
}

/* The first layer that has heads stands for the others here; `memory` goes by each of them. */
static const struct layer_shape *attention(const struct model_shape *s)
{
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].kv_heads)
            return &s->layers[i];
    return NULL;
}

static void put_shape(struct strbuf *b, const struct model_shape *s)
{
    const struct layer_shape *l = attention(s);
    json_put_key(b, "model");
    strbuf_putc(b, '{');
    put_json_member(b, "family", s->family);
    put_json_member(b, "from", s->source);
    json_put_number(b, "layers", s->n_layers);
    json_put_number(b, "embedding", s->hidden);
    json_put_number(b, "heads", s->heads);
    if (l) {
        json_put_number(b, "kv_heads", l->kv_heads);
        json_put_number(b, "key_dim", l->key_dim);
        json_put_number(b, "value_dim", l->value_dim);
    }
    json_put_number(b, "context", s->context);
    json_put_number(b, "vocabulary", s->vocabulary);
    if (s->experts) {
        json_put_number(b, "experts", s->experts);
        json_put_number(b, "experts_used", s->experts_used);
    }
    strbuf_putc(b, '}');
}

static void put_tensors(struct strbuf *b, const struct model_report *m)
{
    json_put_key(b, "tensors");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct report_tensor *t = &m->tensors[i];
        if (i)
            strbuf_putc(b, ',');
        strbuf_puts(b, "{\"name\":");
        put_json_text(b, strbuf_str(&m->text) + t->name, t->name_len);
        json_put_number(b, "file", t->file);
        put_json_member(b, "type", t->type);
        put_dims(b, m->dims + t->dims, t->n_dims);
        json_put_number(b, "elements", t->elements);
        json_put_number(b, "offset", t->offset);
        if (t->sized)
            json_put_number(b, "bytes", t->bytes);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

/* Exactly what it is, and not what is short in the type's own precision: who reads JSON has
 * doubles. */
static void put_decoded(struct strbuf *b, const struct decoded *d)
{
    char text[DECODED_TEXT_MAX];
    bool quoted = d->kind == DECODED_COMPLEX || (d->kind == DECODED_FLOAT && !isfinite(d->v.real));
    decoded_text(d, "F64", text);
    strbuf_printf(b, "%s%s%s", quoted ? "\"" : "", text, quoted ? "\"" : "");
}

static void put_peeked(struct strbuf *b, const struct model_report *m)
{
    const struct peeked *p = m->peeked;
    json_put_key(b, "peek");
    strbuf_puts(b, "{\"name\":");
    put_json_text(b, strbuf_str(&m->text) + p->tensor.name, p->tensor.name_len);
    json_put_number(b, "file", p->tensor.file);
    put_json_member(b, "type", p->tensor.type);
    put_dims(b, m->dims + p->tensor.dims, p->tensor.n_dims);
    if (p->why_not[0]) {
        put_json_member(b, "error", p->why_not);
    } else {
        json_put_key(b, "values");
        strbuf_putc(b, '[');
        for (size_t i = 0; i < p->n; i++) {
            if (i)
                strbuf_putc(b, ',');
            put_decoded(b, &p->values[i]);
        }
        strbuf_putc(b, ']');
    }
    strbuf_putc(b, '}');
}

static void put_pickle(struct strbuf *b, const struct pickle_report *p)
{
    static const char *const containers[] = {[PICKLE_RAW] = "raw",
                                             [PICKLE_ZIP] = "zip",
                                             [PICKLE_LEGACY] = "legacy",
                                             [PICKLE_TAR] = "tar"};
    json_put_key(b, "pickle");
    strbuf_putc(b, '{');
    put_json_member(b, "container", containers[p->container]);
    put_json_member(b, "verdict", pickle_verdict_name(p->verdict));
    json_put_number(b, "pickles", p->pickles);
    put_bool(b, "torchscript", p->torchscript);
    put_bool(b, "tensors_known", p->tensors_known);
    if (p->broken)
        put_json_member(b, "broken", p->broken_why);
    if (p->warning[0])
        put_json_member(b, "warning", p->warning);
    json_put_key(b, "imports");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < p->n_imports; i++) {
        const struct pickle_import *m = &p->imports[i];
        json_put_separator(b);
        strbuf_putc(b, '{');
        put_json_member(b, "module", m->module);
        put_json_member(b, "name", m->name);
        put_json_member(b, "verdict", pickle_verdict_name(m->verdict));
        if (m->member)
            put_json_member(b, "member", m->member);
        json_put_number(b, "at", m->at);
        json_put_number(b, "count", m->count);
        put_bool(b, "called", m->called);
        strbuf_putc(b, '}');
    }
    strbuf_puts(b, "]}");
}

static void put_values(struct strbuf *b, const char *key, const struct onnx_value *v, size_t n)
{
    json_put_key(b, key);
    strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++) {
        json_put_separator(b);
        strbuf_putc(b, '{');
        put_json_member(b, "name", v[i].name);
        put_json_member(b, "type", v[i].type);
        put_json_member(b, "shape", v[i].shape);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

static void put_onnx(struct strbuf *b, const struct onnx_model *o)
{
    json_put_key(b, "onnx");
    strbuf_printf(b, "{\"ir_version\":%" PRId64, o->ir_version);
    put_json_member(b, "producer", o->producer);
    put_json_member(b, "producer_version", o->producer_version);
    put_json_member(b, "graph", o->graph);
    json_put_number(b, "nodes", o->nodes);
    json_put_key(b, "opsets");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < o->n_opsets; i++) {
        json_put_separator(b);
        strbuf_putc(b, '{');
        put_json_member(b, "domain", o->opsets[i].domain);
        json_put_key(b, "version");
        strbuf_printf(b, "%" PRId64 "}", o->opsets[i].version);
    }
    strbuf_putc(b, ']');
    put_values(b, "inputs", o->inputs, o->n_inputs);
    put_values(b, "outputs", o->outputs, o->n_outputs);
    json_put_number(b, "external_tensors", o->external);
    json_put_key(b, "external_files");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < o->n_external_files; i++) {
        json_put_separator(b);
        put_json_text(b, o->external_files[i], strlen(o->external_files[i]));
    }
    strbuf_puts(b, "]}");
}

static void put_templates(struct strbuf *b, const struct model_report *m)
{
    json_put_key(b, "chat_templates");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < m->n_templates; i++) {
        json_put_separator(b);
        strbuf_putc(b, '{');
        put_json_member(b, "name", m->templates[i].name);
        json_put_key(b, "template");
        put_json_text(b, m->templates[i].text, m->templates[i].len);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

static void put_findings(struct strbuf *b, const struct model_report *m)
{
    json_put_key(b, "findings");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < m->n_findings; i++) {
        json_put_separator(b);
        strbuf_putc(b, '{');
        put_bool(b, "serious", m->findings[i].serious);
        put_json_member(b, "text", m->findings[i].text);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
}

static void put_optional(struct strbuf *b, const struct report *r, const struct model_report *m)
{
    if (m->has_shape)
        put_shape(b, &m->shape);
    else if (m->no_shape[0])
        put_json_member(b, "no_model", m->no_shape);
    if (m->quantization.method[0])
        put_json_member(b, "quantization", m->quantization.method);
    if (m->adapter[0])
        put_json_member(b, "adapter", m->adapter);
    if (m->note[0])
        put_json_member(b, "note", m->note);
    if (m->has_pickle)
        put_pickle(b, &m->pickle);
    if (m->has_onnx)
        put_onnx(b, &m->onnx);
    if (r->options->metadata) {
        json_put_key(b, "metadata");
        strbuf_printf(b, "[%s]", strbuf_str(&m->metadata));
    }
    if (r->options->chat_template)
        put_templates(b, m);
    if (m->peeked)
        put_peeked(b, m);
    if (r->options->tensors)
        put_tensors(b, m);
}

static void put_model(struct strbuf *b, const struct report *r, const struct model_report *m)
{
    strbuf_puts(b, "{\"title\":");
    put_json_text(b, m->title, strlen(m->title));
    put_json_member(b, "format", model_format_name(m->format));
    if (m->index)
        put_json_member(b, "index", m->index);
    if (m->format == MODEL_GGUF)
        put_gguf(b, &m->sum);
    put_files(b, m);
    put_types(b, &m->sum);
    put_totals(b, m);
    put_findings(b, m);
    put_optional(b, r, m);
    strbuf_putc(b, '}');
}

void report_json(const struct report *r, struct strbuf *b)
{
    struct source_reads reads = source_reads(r->source);
    strbuf_puts(b, "{\"source\":");
    put_json_text(b, source_text(r->source), strlen(source_text(r->source)));
    put_json_member(b, "kind", source_kind(r->source));
    if (source_revision(r->source)[0])
        put_json_member(b, "revision", source_revision(r->source));
    if (source_note(r->source)[0])
        put_json_member(b, "note", source_note(r->source));
    json_put_key(b, "models");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < r->n_models; i++) {
        if (i)
            strbuf_putc(b, ',');
        put_model(b, r, &r->models[i]);
    }
    strbuf_putc(b, ']');
    json_put_key(b, "unread");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < r->n_unread; i++) {
        json_put_separator(b);
        strbuf_puts(b, "{\"path\":");
        put_json_text(b, r->unread[i].path, strlen(r->unread[i].path));
        put_json_member(b, "why", r->unread[i].why);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, ']');
    json_put_number(b, "bytes_read", reads.bytes);
    json_put_number(b, "requests", reads.requests);
    strbuf_putc(b, '}');
}
