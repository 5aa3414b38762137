/* The report for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/escape.h"
#include "cli/inspect.h"

static void put(struct strbuf *b, const char *text)
{
    put_plain(b, text, strlen(text));
}

static void put_grouped(struct strbuf *b, uint64_t n)
{
    char text[GROUPED_MAX];
    strbuf_puts(b, format_grouped(n, text));
}

static void put_count(struct strbuf *b, uint64_t n, const char *what)
{
    put_grouped(b, n);
    strbuf_printf(b, " %s%s", what, n == 1 ? "" : "s");
}

/* "134.5M" */
static void put_short(struct strbuf *b, uint64_t n)
{
    static const char units[] = {'K', 'M', 'B', 'T', 'Q'};
    double value = (double)n;
    int unit = -1;
    while (value >= 999.95 && unit + 1 < (int)sizeof(units)) {
        value /= 1000;
        unit++;
    }
    if (unit >= 0)
        strbuf_printf(b, " (%.1f%c)", value, units[unit]);
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define COLUMNS 6
struct table {
    struct strbuf cells; /* each ends in a NUL; COLUMNS a row, fewer are left empty */
    unsigned columns;
    bool right[COLUMNS]; /* aligned to the right */
};

static void cell(struct table *t, const char *text)
{
    strbuf_put(&t->cells, text, strlen(text) + 1);
}

static void cell_number(struct table *t, uint64_t n)
{
    char text[GROUPED_MAX];
    cell(t, format_grouped(n, text));
}

/* Columns on the screen: what is no continuation byte. */
static size_t width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void put_table(struct strbuf *b, struct table *t)
{
    size_t widths[COLUMNS] = {0};
    const char *end = t->cells.data + t->cells.len, *p = t->cells.data;
    for (unsigned i = 0; p && p < end; p += strlen(p) + 1, i++) {
        size_t n = width(p), *w = &widths[i % t->columns];
        *w = n > *w ? n : *w;
    }
    p = t->cells.data;
    for (unsigned i = 0; p && p < end; p += strlen(p) + 1, i++) {
        unsigned column = i % t->columns;
        size_t pad = widths[column] - width(p);
        bool last = column + 1 == t->columns;
        strbuf_puts(b, "  ");
        if (t->right[column])
            strbuf_printf(b, "%*s", (int)pad, "");
        strbuf_puts(b, p);
        if (!t->right[column] && !last)
            strbuf_printf(b, "%*s", (int)pad, "");
        if (last)
            strbuf_putc(b, '\n');
    }
    strbuf_done(&t->cells);
}

static void cell_bits(struct table *t, uint64_t bytes, uint64_t elements)
{
    char text[32] = "-";
    if (elements)
        snprintf(text, sizeof(text), "%.2f", (double)bytes * 8 / (double)elements);
    cell(t, text);
}

static int compare_types(const void *pa, const void *pb)
{
    const struct dtype_total *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void put_types(struct strbuf *b, const struct weights *w)
{
    struct table t = {.columns = 5, .right = {false, true, true, true, true}};
    struct dtype_total types[WEIGHTS_MAX_TYPES];
    memcpy(types, w->types, sizeof(types));
    if (w->n_types)
        qsort(types, w->n_types, sizeof(types[0]), compare_types);
    static const char *const heads[] = {"dtype", "tensors", "parameters", "bytes", "bits/weight"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cell(&t, heads[i]);
    for (size_t i = 0; i < w->n_types; i++) {
        _cleanup_strbuf_ struct strbuf name = STRBUF_INIT;
        put(&name, types[i].name);
        cell(&t, strbuf_str(&name));
        cell_number(&t, types[i].tensors);
        cell_number(&t, types[i].elements);
        cell_number(&t, types[i].bytes);
        cell_bits(&t, types[i].bytes, types[i].elements);
    }
    cell(&t, "total");
    cell_number(&t, w->tensors);
    cell_number(&t, w->parameters);
    cell_number(&t, w->tensor_bytes);
    cell_bits(&t, w->tensor_bytes, w->parameters);
    put_table(b, &t);
}

static void put_dims(struct strbuf *b, const uint64_t *dims, size_t n)
{
    strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%" PRIu64, i ? ", " : "", dims[i]);
    strbuf_putc(b, ']');
}

static void put_tensors(struct strbuf *b, const struct model_report *m)
{
    struct table t = {.columns = 5, .right = {false, false, false, true, true}};
    static const char *const heads[] = {"tensor", "dtype", "shape", "byte", "bytes"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cell(&t, heads[i]);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct report_tensor *x = &m->tensors[i];
        _cleanup_strbuf_ struct strbuf name = STRBUF_INIT, dims = STRBUF_INIT, type = STRBUF_INIT;
        put_plain(&name, strbuf_str(&m->text) + x->name, x->name_len);
        put(&type, x->type);
        put_dims(&dims, m->dims + x->dims, x->n_dims);
        cell(&t, strbuf_str(&name));
        cell(&t, strbuf_str(&type));
        cell(&t, strbuf_str(&dims));
        cell_number(&t, x->offset);
        cell_number(&t, x->bytes);
    }
    put_table(b, &t);
}

static void put_metadata(struct strbuf *b, const struct model_report *m)
{
    struct table t = {.columns = 3};
    _cleanup_free_ char *copy = strdup(strbuf_str(&m->metadata));
    char *rest = copy;
    for (char *line; rest && (line = strsep(&rest, "\n")) && *line;)
        for (unsigned i = 0; i < 3; i++) {
            char *field = strsep(&line, "\t");
            cell(&t, field ? field : "");
        }
    put_table(b, &t);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_title(struct strbuf *b, const struct model_report *m)
{
    const struct weights *w = &m->sum;
    put(b, m->title);
    strbuf_printf(b, ": %s", model_format_name(m->format));
    if (m->format == MODEL_GGUF && w->gguf_version)
        strbuf_printf(b, " v%" PRIu32 "%s", w->gguf_version,
                      m->files[0].big_endian ? ", big endian" : "");
    if (m->n_files > 1) {
        strbuf_puts(b, ", ");
        put_count(b, m->n_files, m->index ? "shard" : "part");
    }
    if (m->format == MODEL_GGUF || m->format == MODEL_SAFETENSORS) {
        strbuf_puts(b, ", ");
        put_count(b, m->keys, "metadata key");
    }
    strbuf_puts(b, ", ");
    put_count(b, w->tensors, "tensor");
    if (m->n_files == 1 && (m->format == MODEL_GGUF || m->format == MODEL_SAFETENSORS)) {
        strbuf_puts(b, ", data at byte ");
        put_grouped(b, w->header_bytes);
    }
    strbuf_putc(b, '\n');
}

static void put_gguf(struct strbuf *b, const struct weights *w)
{
    const char *type = w->has_file_type ? gguf_file_type_name(w->file_type) : NULL;
    strbuf_puts(b, "  model   ");
    put(b, w->architecture[0] ? w->architecture : "of no architecture");
    if (w->name[0]) {
        strbuf_puts(b, " '");
        put(b, w->name);
        strbuf_puts(b, "'");
    }
    if (type)
        strbuf_printf(b, ", file type %s%s%s", strcmp(type, "F32") ? "MOSTLY_" : "ALL_", type,
                      w->file_type & 1024 ? " (guessed)" : "");
    else if (w->has_file_type)
        strbuf_printf(b, ", file type %" PRIu32 " (unknown)", w->file_type);
    strbuf_putc(b, '\n');
}

static void put_shape(struct strbuf *b, const struct model_shape *s)
{
    const struct layer_shape *l = NULL;
    for (uint32_t i = 0; i < s->n_layers && !l; i++)
        l = s->layers[i].kv_heads ? &s->layers[i] : NULL;
    strbuf_puts(b, "  shape   ");
    put_count(b, s->n_layers, "layer");
    strbuf_puts(b, ", embedding ");
    put_grouped(b, s->hidden);
    strbuf_puts(b, ", ");
    put_count(b, s->heads, "head");
    if (l) {
        strbuf_puts(b, ", ");
        put_count(b, l->kv_heads, "KV head");
        strbuf_puts(b, ", head dim ");
        put_grouped(b, l->key_dim);
    }
    if (s->experts)
        strbuf_printf(b, ", %u experts (%u used)", s->experts, s->experts_used);
    strbuf_puts(b, ", context ");
    put_grouped(b, s->context);
    strbuf_puts(b, ", vocab ");
    put_grouped(b, s->vocabulary);
    strbuf_puts(b, " (");
    put(b, s->source);
    strbuf_puts(b, ")\n");
}

static void put_parameters(struct strbuf *b, const struct parameter_count *c)
{
    strbuf_puts(b, "  params  ");
    put_grouped(b, c->logical);
    put_short(b, c->logical);
    if (c->logical != c->stored) {
        strbuf_puts(b, ", stored as ");
        put_grouped(b, c->stored);
        strbuf_puts(b, " elements");
    }
    if (c->rule[0]) {
        strbuf_puts(b, ": ");
        put(b, c->rule);
    }
    strbuf_putc(b, '\n');
}

static void put_sizes(struct strbuf *b, const struct model_report *m)
{
    const struct weights *w = &m->sum;
    uint64_t rest = w->file_bytes - w->header_bytes;
    strbuf_printf(b, "  %s ", m->n_files == 1 ? "file" : "files");
    put_grouped(b, w->file_bytes);
    strbuf_puts(b, " bytes = ");
    put_grouped(b, w->header_bytes);
    strbuf_puts(b,
                m->format == MODEL_PICKLE || m->format == MODEL_ONNX ? " other + " : " header + ");
    put_grouped(b, w->tensor_bytes);
    strbuf_puts(b, " tensors + ");
    put_grouped(b, rest > w->tensor_bytes ? rest - w->tensor_bytes : 0);
    strbuf_puts(b, w->partial ? " padding and tensors of unknown types\n" : " padding\n");
}

static void put_pickle(struct strbuf *b, const struct pickle_report *p)
{
    struct table t = {.columns = 3};
    strbuf_printf(b, "  pickle  %s: ", pickle_verdict_name(p->verdict));
    put_count(b, p->pickles, "pickle");
    strbuf_puts(b, ", ");
    put_count(b, p->n_imports, "import");
    strbuf_puts(b, p->torchscript ? ", TorchScript: its code runs by design\n" : "\n");
    if (p->broken) {
        strbuf_puts(b, "  not all of it could be read: ");
        put(b, p->broken_why);
        strbuf_putc(b, '\n');
    }
    if (p->warning[0]) {
        strbuf_puts(b, "  odd: ");
        put(b, p->warning);
        strbuf_putc(b, '\n');
    }
    for (size_t i = 0; i < p->n_imports; i++) {
        const struct pickle_import *m = &p->imports[i];
        _cleanup_strbuf_ struct strbuf name = STRBUF_INIT, where = STRBUF_INIT;
        put(&name, m->module);
        strbuf_putc(&name, '.');
        put(&name, m->name);
        if (m->member)
            put(&where, m->member);
        strbuf_printf(&where, "%sbyte %" PRIu64 "%s", m->member ? ", " : "", m->at,
                      m->called ? ", called" : "");
        cell(&t, pickle_verdict_name(m->verdict));
        cell(&t, strbuf_str(&name));
        cell(&t, strbuf_str(&where));
    }
    put_table(b, &t);
    if (!p->tensors_known)
        strbuf_puts(b, "  its tensors are not all known without loading it\n");
}

static void put_values(struct strbuf *b, const char *what, const struct onnx_value *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        strbuf_printf(b, "  %-7s ", what);
        put(b, v[i].name);
        strbuf_putc(b, ' ');
        put(b, v[i].type);
        strbuf_puts(b, " [");
        put(b, v[i].shape);
        strbuf_puts(b, "]\n");
    }
}

static void put_onnx(struct strbuf *b, const struct onnx_model *o)
{
    strbuf_printf(b, "  model   IR version %" PRId64 ", ", o->ir_version);
    put_count(b, o->nodes, "node");
    if (o->producer[0]) {
        strbuf_puts(b, ", by ");
        put(b, o->producer);
        strbuf_putc(b, ' ');
        put(b, o->producer_version);
    }
    strbuf_putc(b, '\n');
    for (size_t i = 0; i < o->n_opsets; i++) {
        strbuf_puts(b, "  opset   ");
        put(b, o->opsets[i].domain[0] ? o->opsets[i].domain : "ai.onnx");
        strbuf_printf(b, " %" PRId64 "\n", o->opsets[i].version);
    }
    put_values(b, "input", o->inputs, o->n_inputs);
    put_values(b, "output", o->outputs, o->n_outputs);
    if (o->external) {
        strbuf_puts(b, "  external ");
        put_count(b, o->external, "tensor");
        for (size_t i = 0; i < o->n_external_files; i++) {
            strbuf_puts(b, i ? ", " : " in ");
            put(b, o->external_files[i]);
        }
        strbuf_putc(b, '\n');
    }
}

static void put_peeked(struct strbuf *b, const struct model_report *m)
{
    const struct peeked *p = m->peeked;
    char text[DECODED_TEXT_MAX];
    strbuf_puts(b, "  peek    ");
    put_plain(b, strbuf_str(&m->text) + p->tensor.name, p->tensor.name_len);
    strbuf_putc(b, ' ');
    put(b, p->tensor.type);
    strbuf_putc(b, ' ');
    put_dims(b, m->dims + p->tensor.dims, p->tensor.n_dims);
    strbuf_putc(b, ':');
    if (p->why_not[0]) {
        strbuf_putc(b, ' ');
        put(b, p->why_not);
    }
    /* Of the smallest floats the short forms would be far from what they are. */
    const char *type = p->tensor.type;
    bool tiny = type[0] == 'F' && strchr("468", type[1]) && strcmp(type, "F64") != 0;
    for (size_t i = 0; i < p->n; i++) {
        decoded_text(&p->values[i], tiny ? "F32" : type, text);
        strbuf_printf(b, " %s", text);
    }
    strbuf_puts(b, p->n && p->n < p->tensor.elements ? " ...\n" : "\n");
}

static void put_line(struct strbuf *b, const char *what, const char *text)
{
    if (!text[0])
        return;
    strbuf_printf(b, "  %s", what);
    put(b, text);
    strbuf_putc(b, '\n');
}

static void put_findings(struct strbuf *b, const struct model_report *m)
{
    for (size_t i = 0; i < m->n_files; i++) {
        const struct report_file *f = &m->files[i];
        if ((!f->error && !f->w.warning[0]) || (m->checkpoint && f->code == ERR_NOT_FOUND))
            continue; /* that it is missing is a finding */
        strbuf_puts(b, f->error ? "  ERROR   " : "  odd     ");
        if (m->n_files > 1) {
            put(b, f->path);
            strbuf_puts(b, ": ");
        }
        put(b, f->error ? f->error : f->w.warning);
        strbuf_putc(b, '\n');
    }
    for (size_t i = 0; i < m->n_findings; i++)
        put_line(b, m->findings[i].serious ? "ERROR   " : "warning ", m->findings[i].text);
}

static void put_templates(struct strbuf *b, const struct model_report *m)
{
    if (!m->n_templates)
        strbuf_puts(b, "  it has no chat template\n");
    for (size_t i = 0; i < m->n_templates; i++) {
        const struct named_text *t = &m->templates[i];
        strbuf_puts(b, "  chat template");
        if (t->name[0]) {
            strbuf_putc(b, ' ');
            put(b, t->name);
        }
        strbuf_puts(b, ":\n");
        put_plain_lines(b, t->text, t->len);
        if (t->len == 0 || t->text[t->len - 1] != '\n')
            strbuf_putc(b, '\n');
    }
}

static void put_model(struct strbuf *b, const struct report *r, const struct model_report *m)
{
    bool any = false;
    for (size_t i = 0; i < m->n_files; i++)
        any = any || m->files[i].read;
    put_title(b, m);
    put_line(b, "note    ", m->note);
    put_line(b, "adapter ", m->adapter);
    if (any && m->format == MODEL_GGUF)
        put_gguf(b, &m->sum);
    if (m->has_onnx)
        put_onnx(b, &m->onnx);
    if (m->has_shape)
        put_shape(b, &m->shape);
    else if (any)
        put_line(b, "shape   not known: ", m->no_shape);
    if (m->has_pickle)
        put_pickle(b, &m->pickle);
    if (any) {
        if (m->sum.tensors) {
            put_parameters(b, &m->count);
            put_types(b, &m->sum);
        }
        put_sizes(b, m);
    }
    put_findings(b, m);
    if (m->peeked)
        put_peeked(b, m);
    if (r->options->metadata)
        put_metadata(b, m);
    if (r->options->tensors && m->n_tensors)
        put_tensors(b, m);
    if (r->options->chat_template)
        put_templates(b, m);
}

void report_text(const struct report *r, struct strbuf *b)
{
    struct source_reads reads = source_reads(r->source);
    const char *revision = source_revision(r->source);
    if (revision[0]) {
        put(b, source_text(r->source));
        strbuf_printf(b, " is %s\n", revision);
    }
    put_line(b, "note    ", source_note(r->source));
    for (size_t i = 0; i < r->n_models; i++) {
        if (i || revision[0])
            strbuf_putc(b, '\n');
        put_model(b, r, &r->models[i]);
    }
    if (r->n_unread)
        strbuf_putc(b, '\n');
    for (size_t i = 0; i < r->n_unread; i++) {
        put(b, r->unread[i].path);
        strbuf_printf(b, ": %s\n", r->unread[i].why);
    }
    strbuf_puts(b, "read ");
    put_grouped(b, reads.bytes);
    strbuf_puts(b, " bytes in ");
    put_count(b, reads.requests, "request");
    strbuf_putc(b, '\n');
}
