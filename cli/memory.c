#include "cli/memory.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "model/split.h"

#define GIB 1073741824.0
#define CONFIG_MAX (32u << 20)

/* ---- weights --------------------------------------------------------------------------------- */

static const char *const other_types[] = {"F32",  "BF16", "F8_E4M3", "Q8_0", "Q6_K",
                                          "Q5_K", "Q4_K", "MXFP4",   "Q3_K", "Q2_K"};

static int count_as(struct memory_weights *w, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(other_types); i++) {
        w->as[w->n_as].type = other_types[i];
        if (weights_as(w->parameters, other_types[i], &w->as[w->n_as].bytes, err) < 0)
            return -1;
        w->n_as++;
    }
    return 0;
}

/* The one type, but for a few tensors (norms); else what the file calls its mixture. */
static void name_type(struct memory_weights *w, const struct weights *sum)
{
    const struct dtype_total *most = NULL;
    const char *mixture = sum->has_file_type ? gguf_file_type_name(sum->file_type) : NULL;
    for (size_t i = 0; i < sum->n_types; i++)
        if (!most || sum->types[i].bytes > most->bytes)
            most = &sum->types[i];
    bool is_one = most && sum->tensor_bytes - most->bytes <= sum->tensor_bytes / 50;
    snprintf(w->type, sizeof(w->type), "%s", is_one ? most->name : mixture ? mixture : "mixed");
}

static void set_type(struct memory_weights *w, const char *type)
{
    size_t i = 0;
    for (; type[i] && i + 1 < sizeof(w->type); i++)
        w->type[i] = (char)toupper((unsigned char)type[i]);
    w->type[i] = '\0';
}

/* The file's own, unless other ones are asked for. m: NULL where there is only a config.json;
 * dtype: what that says, "" nothing. */
static int count_weights(struct memory_weights *w, const struct model_report *m, const char *dtype,
                         const struct memory_options *o, struct error *err)
{
    if (m) {
        w->known = true;
        w->parameters = m->count.logical;
        w->bytes = m->sum.tensor_bytes;
        name_type(w, &m->sum);
        snprintf(w->from, sizeof(w->from), "the headers of %zu %s", m->n_files,
                 m->n_files == 1 ? "file" : "files");
    }
    if (o->has_params) {
        w->known = true;
        w->parameters = o->params;
        snprintf(w->from, sizeof(w->from), "--params");
    }
    if (!w->known)
        return 0;
    if (o->quant || o->has_params) {
        const char *type = o->quant ? o->quant : dtype[0] ? dtype : "BF16";
        if (weights_as(w->parameters, type, &w->bytes, err) < 0)
            return -1;
        set_type(w, type);
        if (o->quant && !o->has_params)
            strncat(w->from, ", as if all were of that type",
                    sizeof(w->from) - strlen(w->from) - 1);
    }
    w->per_device = w->bytes / o->tensor_parallel + (w->bytes % o->tensor_parallel != 0);
    return count_as(w, err);
}

/* ---- the cache, and what fits ---------------------------------------------------------------- */

static int count_gpu(struct memory_report *r, const struct kv_request *q, struct error *err)
{
    const struct memory_options *o = r->options;
    struct memory_gpu *g = &r->gpu;
    struct kv_request one = *q;
    uint64_t unused;
    g->budget = (uint64_t)(o->gpu_gib * GIB * o->utilization);
    g->fits = r->weights.known && r->weights.per_device <= g->budget;
    g->left = g->fits ? g->budget - r->weights.per_device : 0;
    if (!r->has_shape || !g->fits)
        return 0;
    one.sequences = 1;
    return kv_fit(r->shape, &one, g->left, &g->tokens, &unused, err) < 0 ||
                   kv_fit(r->shape, q, g->left, &g->tokens_each, &g->sequences, err) < 0
               ? -1
               : 0;
}

static int count(struct memory_report *r, const struct model_report *m, struct error *err)
{
    const struct memory_options *o = r->options;
    if (count_weights(&r->weights, m, r->has_shape ? r->shape->dtype : "", o, err) < 0)
        return -1;
    r->context = o->context ? o->context : r->has_shape ? r->shape->context : 0;
    const struct kv_request q = {.key = o->kv_type,
                                 .value = o->kv_type,
                                 .context = r->context,
                                 .sequences = o->sequences,
                                 .tensor_parallel = o->tensor_parallel};
    if (r->has_shape && r->context == 0)
        return err_set(err, ERR_INVALID, "the model does not say how long its context is: --ctx N");
    if (r->has_shape && kv_cost(r->shape, &q, &r->cost, err) < 0)
        return -1;
    if (__builtin_add_overflow(r->weights.per_device, r->cost.total, &r->total))
        return err_set(err, ERR_INVALID, "weights and cache together take more than 2^64 bytes");
    return o->has_gpu ? count_gpu(r, &q, err) : 0;
}

/* ---- where the numbers come from ------------------------------------------------------------- */

static bool is_config(const struct source *s)
{
    const struct source_entry *entries;
    size_t n = source_files(s, &entries);
    if (n != 1)
        return false;
    const char *dot = strrchr(entries[0].path, '.');
    return dot && strcasecmp(dot, ".json") == 0 && !strstr(entries[0].path, ".index.");
}

static bool is_readable(const struct model_report *m)
{
    for (size_t i = 0; i < m->n_files; i++)
        if (!m->files[i].read)
            return false;
    return m->n_files > 0;
}

/* A GGUF that lies beside the model's own: a projector, an importance matrix, what drafts tokens.
 */
static bool is_helper(const char *path)
{
    static const char *const begins[] = {"imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"};
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    for (size_t i = 0; i < ARRAY_LEN(begins); i++)
        if (strncasecmp(base, begins[i], strlen(begins[i])) == 0)
            return true;
    return strcasestr(base, "mmproj") || strcasestr(base, "-lora");
}

static int name_one(const struct source *s, size_t n, const char *path, struct error *err)
{
    return err_set(err, ERR_INVALID, "%s has %zu GGUF models: name one of them, as %.200s",
                   source_text(s), n, path);
}

/* Of a repository with several: the safetensors at its root before the rest, of these the largest.
 * Several GGUF files are the same model many times: which one is for the user to say. */
static int choose(const struct report *r, const struct model_report **ret, struct error *err)
{
    const struct model_report *best = NULL;
    size_t ggufs = 0;
    bool best_helps = false;
    for (size_t i = 0; i < r->n_models; i++) {
        const struct model_report *m = &r->models[i];
        if (!is_readable(m))
            continue;
        bool helper = m->format == MODEL_GGUF && (m->adapter[0] || is_helper(m->files[0].path));
        ggufs += m->format == MODEL_GGUF && !helper;
        bool better = !best;
        if (best && helper != best_helps)
            better = best_helps;
        else if (best && (m->folder[0] == '\0') != (best->folder[0] == '\0'))
            better = m->folder[0] == '\0';
        else if (best && m->format != best->format)
            better = m->format < best->format;
        else if (best)
            better = m->sum.tensor_bytes > best->sum.tensor_bytes;
        best_helps = better ? helper : best_helps;
        best = better ? m : best;
    }
    if (!best)
        return err_set(err, ERR_INVALID, "%s: none of its weight files can be read",
                       source_text(r->source));
    if (best->format == MODEL_GGUF && ggufs > 1)
        return name_one(r->source, ggufs, best->files[0].path, err);
    *ret = best;
    return 0;
}

static int print(const struct memory_report *r)
{
    _cleanup_strbuf_ struct strbuf out = STRBUF_INIT;
    if (r->options->json)
        memory_json(r, &out);
    else
        memory_text(r, &out);
    return report_print(&out);
}

/* The SOURCE may be a folder or repository, or the file itself, whose name it then ends with. */
static int read_config(const char *source, const char *path, const struct strbuf *text,
                       struct model_shape *ret, struct error *err)
{
    size_t len = strlen(source), n = strlen(path);
    if (shape_from_config(strbuf_str(text), text->len, ret, err) == 0)
        return 0;
    return len >= n && strcmp(source + len - n, path) == 0 ? -1 : err_wrap(err, "%s", path);
}

static int from_config(struct source *s, struct memory_report *r, struct error *err)
{
    const struct source_entry *entries;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    struct model_shape shape = {0};
    int status = EXIT_OK;
    source_files(s, &entries);
    int rc = source_read(s, entries[0].path, CONFIG_MAX, &text, err);
    if (rc == 0)
        rc = err_set(err, ERR_NOT_FOUND, "it is no longer there");
    if (rc > 0)
        rc = read_config(r->source, entries[0].path, &text, &shape, err);
    if (rc == 0) {
        r->has_shape = true;
        r->shape = &shape;
        rc = count(r, NULL, err);
    }
    if (rc == 0)
        status = print(r);
    r->shape = NULL;
    shape_done(&shape);
    return rc < 0 ? -1 : status;
}

/* Which of several GGUF files is meant need not be asked only once all their headers have been
 * read: where they are all that there is. */
static int check_many(const struct source *s, struct error *err)
{
    const struct source_entry *entries, *first = NULL;
    size_t n = source_files(s, &entries), stem = 0, models = 0;
    for (size_t i = 0; i < n; i++) {
        enum model_format format = model_format_of(entries[i].path);
        if (format == MODEL_NONE || format == MODEL_UNREAD || is_helper(entries[i].path))
            continue;
        if (format != MODEL_GGUF)
            return 0;
        struct split_name split = split_name_of(entries[i].path);
        if (first && split.stem == stem && strncmp(first->path, entries[i].path, stem) == 0)
            continue; /* another part of it */
        first = first ? first : &entries[i];
        stem = first == &entries[i] ? split.stem : stem;
        models++;
    }
    return models > 1 ? name_one(s, models, first->path, err) : 0;
}

static int from_weights(struct source *s, struct memory_report *r, struct error *err)
{
    const struct inspect_options o = {0};
    const struct model_report *m = NULL;
    _cleanup_report_ struct report report = {0};
    if (check_many(s, err) < 0 || report_make(s, &o, &report, err) < 0 ||
        choose(&report, &m, err) < 0)
        return -1;
    r->has_shape = m->has_shape;
    r->shape = &m->shape;
    r->no_shape = m->no_shape[0] ? m->no_shape : "there is no config.json beside the weights";
    return count(r, m, err) < 0 ? -1 : print(r);
}

static int run(const char *text, const struct memory_options *o)
{
    _cleanup_source_ struct source *s = NULL;
    const struct source_options so = {.plain_http = o->plain_http};
    struct memory_report r = {.source = text, .options = o};
    struct error err = ERROR_INIT;
    signal(SIGPIPE, SIG_IGN); /* TLS writes to closed connections */
    if (source_open(text, &so, &s, &err) < 0)
        return source_failed(text, &err);
    int status = is_config(s) ? from_config(s, &r, &err) : from_weights(s, &r, &err);
    return status < 0 ? source_failed(text, &err) : status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* "8.03e9", "8.03B", "8030000000" */
static bool parse_amount(const char *text, uint64_t *ret)
{
    static const char units[] = "KMBT";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value))
        return false;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit || end[1])
            return false;
        for (const char *u = units; u <= unit; u++)
            value *= 1000;
    }
    if (value < 1 || value >= 18446744073709551616.0)
        return false;
    /* llround's range ends before that of 64 bits */
    *ret = value < 9007199254740992.0 ? (uint64_t)llround(value) : (uint64_t)value;
    return true;
}

static bool parse_count(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || n < 1 || n > max)
        return false;
    *ret = n;
    return true;
}

static bool parse_real(const char *text, double max, double *ret)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0) || value > max)
        return false;
    *ret = value;
    return true;
}

struct memory_texts {
    const char *ctx, *seqs, *kv_type, *gpu, *utilization, *parallel, *quant, *params;
};

static int read_options(const struct command *self, const struct memory_texts *t,
                        struct memory_options *o)
{
    struct error err = ERROR_INIT;
    uint64_t parallel = 1;
    if (t->ctx && !parse_count(t->ctx, 1u << 30, &o->context))
        return usage_error(self, "--ctx must be a number of tokens");
    if (t->seqs && !parse_count(t->seqs, 1u << 30, &o->sequences))
        return usage_error(self, "--seqs must be a number of sequences");
    if (t->parallel && !parse_count(t->parallel, 1024, &parallel))
        return usage_error(self, "--tensor-parallel must be a number of devices");
    if (t->gpu && !parse_real(t->gpu, 1e6, &o->gpu_gib))
        return usage_error(self, "--gpu-gib must be a number of GiB");
    if (t->utilization && !parse_real(t->utilization, 1, &o->utilization))
        return usage_error(self, "--utilization must be above 0 and at most 1");
    if (t->params && !parse_amount(t->params, &o->params))
        return usage_error(self, "--params must be a number, as 8.03e9 or 8.03B");
    if (kv_type_parse(t->kv_type ? t->kv_type : "f16", &o->kv_type, &err) < 0)
        return usage_error(self, "--kv-type: %s", err.text);
    uint64_t unused;
    if (t->quant && weights_as(1, t->quant, &unused, &err) < 0)
        return usage_error(self, "--quant: %s", err.text);
    o->tensor_parallel = (uint32_t)parallel;
    o->has_gpu = t->gpu != NULL;
    o->has_params = t->params != NULL;
    o->quant = t->quant;
    return EXIT_OK;
}

static int run_memory(const struct command *self, int argc, char **argv)
{
    struct memory_options o = {.sequences = 1, .utilization = 0.9};
    struct memory_texts t = {0};
    const char *source = NULL;
    const struct option_spec specs[] = {
        {"ctx", "N", "tokens of each sequence (default: the model's context)", &t.ctx, NULL},
        {"seqs", "N", "sequences at once (default: 1)", &t.seqs, NULL},
        {"kv-type", "T", "of the cache: f32 f16 bf16 fp8 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl (f16)",
         &t.kv_type, NULL},
        {"gpu-gib", "G", "memory of one device: what fits into it", &t.gpu, NULL},
        {"utilization", "U", "the share of it that may be used (default: 0.9)", &t.utilization,
         NULL},
        {"tensor-parallel", "N", "devices that share the weights and the heads", &t.parallel, NULL},
        {"quant", "T", "the weights as if they were all of this type", &t.quant, NULL},
        {"params", "N", "so many parameters instead of the file's: 8.03e9, 8.03B", &t.params, NULL},
        {"json", NULL, "prints JSON", NULL, &o.json},
        {"plain-http", NULL, "asks a registry without TLS (loopback: always)", NULL, &o.plain_http},
    };
    int status, n = options_parse(self, argc, argv, specs, ARRAY_LEN(specs), &source, 1, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the SOURCE is missing: weights or a config.json, as a file, a "
                                 "folder, a URL, hf://org/repo or a reference in a registry");
    status = read_options(self, &t, &o);
    return status ? status : run(source, &o);
}

const struct command command_memory = {
    "memory",
    "SOURCE|config.json [--ctx N] [--seqs N] [--kv-type T] [--gpu-gib G] [--quant T] [--json]",
    "Counts what serving a model takes: its weights, its KV cache, and what fits on a GPU.",
    run_memory};
