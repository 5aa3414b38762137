/* Sorting the files of a source into models: the shards of an index, the parts of a split file, and
 * files that stand alone. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "model/split.h"

#define INDEX_MAX (250u << 20)

/* ---- lifetime -------------------------------------------------------------------------------- */

static void model_done(struct model_report *m)
{
    for (size_t i = 0; i < m->n_files; i++) {
        free(m->files[i].path);
        free(m->files[i].error);
    }
    for (size_t i = 0; i < m->n_templates; i++) {
        free(m->templates[i].name);
        free(m->templates[i].text);
    }
    if (m->peeked)
        free(m->peeked->values);
    free(m->peeked);
    free(m->templates);
    free(m->files);
    free(m->title);
    free(m->folder);
    free(m->index);
    free(m->dims);
    free(m->tensors);
    strbuf_done(&m->metadata);
    strbuf_done(&m->text);
    checkpoint_free(m->checkpoint);
    quantization_done(&m->quantization);
    shape_keys_free(m->shape_keys);
    if (m->has_shape)
        shape_done(&m->shape);
    if (m->has_pickle)
        pickle_report_done(&m->pickle);
    if (m->has_onnx)
        onnx_done(&m->onnx);
}

void report_done(struct report *r)
{
    for (size_t i = 0; i < r->n_models; i++)
        model_done(&r->models[i]);
    for (size_t i = 0; i < r->n_unread; i++)
        free(r->unread[i].path);
    free(r->models);
    free(r->unread);
}

static int out_of_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a report");
}

static int add_model(struct report *r, const char *title, enum model_format format,
                     struct model_report **ret, struct error *err)
{
    if (r->n_models == r->cap_models) {
        size_t cap = r->cap_models ? r->cap_models * 2 : 8;
        struct model_report *models = reallocarray(r->models, cap, sizeof(*models));
        if (!models)
            return out_of_memory(err);
        r->models = models;
        r->cap_models = cap;
    }
    struct model_report *m = &r->models[r->n_models];
    *m = (struct model_report){.format = format};
    r->n_models++;
    const char *slash = strrchr(title, '/');
    m->title = strdup(title);
    m->folder = strndup(title, slash ? (size_t)(slash + 1 - title) : 0);
    if (!m->title || !m->folder)
        return out_of_memory(err);
    *ret = m;
    return 0;
}

static int add_file(struct model_report *m, const char *path, const struct source_entry *e,
                    struct error *err)
{
    if (m->n_files == m->cap_files) {
        size_t cap = m->cap_files ? m->cap_files * 2 : 4;
        struct report_file *files = reallocarray(m->files, cap, sizeof(*files));
        if (!files)
            return out_of_memory(err);
        m->files = files;
        m->cap_files = cap;
    }
    struct report_file *f = &m->files[m->n_files];
    memset(f, 0, sizeof(*f));
    if (!(f->path = strdup(path)))
        return out_of_memory(err);
    m->n_files++;
    if (e) {
        f->size = e->has_size ? e->size : 0;
        memcpy(f->sha256, e->sha256, sizeof(f->sha256));
    }
    return 0;
}

static int add_unread(struct report *r, const char *path, const char *why, struct error *err)
{
    if (r->n_unread == r->cap_unread) {
        size_t cap = r->cap_unread ? r->cap_unread * 2 : 8;
        struct report_unread *unread = reallocarray(r->unread, cap, sizeof(*unread));
        if (!unread)
            return out_of_memory(err);
        r->unread = unread;
        r->cap_unread = cap;
    }
    char *copy = strdup(path);
    if (!copy)
        return out_of_memory(err);
    r->unread[r->n_unread++] = (struct report_unread){copy, why};
    return 0;
}

/* ---- grouping -------------------------------------------------------------------------------- */

struct candidate {
    const struct source_entry *entry;
    enum model_format format;
    struct split_name split;
    bool taken;
};

struct grouping {
    struct report *report;
    struct candidate *candidates; /* owned; sorted by path */
    size_t n;
};

/* model.safetensors.index.json, pytorch_model.bin.index.json, and with a variant's name:
 * model.safetensors.index.fp16.json */
static bool is_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    return fnmatch("*.index.json", base, 0) == 0 || fnmatch("*.index.*.json", base, 0) == 0;
}

static int compare_to_candidate(const void *key, const void *element)
{
    const struct candidate *c = element;
    return strcmp(key, c->entry->path);
}

static struct candidate *find_candidate(const struct grouping *g, const char *path)
{
    if (!g->n)
        return NULL;
    return bsearch(path, g->candidates, g->n, sizeof(*g->candidates), compare_to_candidate);
}

static int group_index(struct grouping *g, const struct candidate *c, struct error *err)
{
    const char *path = c->entry->path, *const * names;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    _cleanup_checkpoint_ struct checkpoint *checkpoint = NULL;
    struct model_report *m;
    int rc = source_read(g->report->source, path, INDEX_MAX, &text, err);
    if (rc <= 0)
        return rc < 0 ? -1 : err_set(err, ERR_NOT_FOUND, "%s is no longer there", path);
    if (checkpoint_new(&checkpoint, err) < 0)
        return -1;
    if (checkpoint_index(checkpoint, strbuf_str(&text), text.len, err) < 0)
        return err_wrap(err, "%s", path);
    size_t n = checkpoint_files(checkpoint, &names);
    enum model_format format = n ? model_format_of(names[0]) : MODEL_NONE;
    if (format >= MODEL_UNREAD)
        return add_unread(g->report, path, "an index of no weight files that are read", err);
    if (add_model(g->report, path, format, &m, err) < 0)
        return -1;
    m->checkpoint = TAKE_PTR(checkpoint);
    if (!(m->index = strdup(path)))
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        _cleanup_free_ char *full = NULL;
        if (asprintf(&full, "%s%s", m->folder, names[i]) < 0) {
            full = NULL;
            return out_of_memory(err);
        }
        struct candidate *shard = find_candidate(g, full);
        if (add_file(m, full, shard ? shard->entry : NULL, err) < 0)
            return -1;
        if (shard)
            shard->taken = true;
    }
    return 0;
}

/* A file that says of itself by its name that it is one of several. */
static bool same_set(const struct candidate *a, const struct candidate *b)
{
    return a->format == b->format && a->split.count == b->split.count &&
           a->split.stem == b->split.stem &&
           memcmp(a->entry->path, b->entry->path, a->split.stem) == 0;
}

static int group_parts(struct grouping *g, size_t first, struct error *err)
{
    struct candidate *c = &g->candidates[first];
    struct model_report *m;
    bool is_set = c->split.count > 0 && !source_is_one_file(g->report->source);
    _cleanup_free_ char *title =
        is_set ? strndup(c->entry->path, c->split.stem) : strdup(c->entry->path);
    if (!title)
        return out_of_memory(err);
    if (add_model(g->report, title, c->format, &m, err) < 0)
        return -1;
    for (size_t i = first; i < (is_set ? g->n : first + 1); i++) {
        struct candidate *other = &g->candidates[i];
        if (other->taken || (i != first && !same_set(c, other)))
            continue;
        other->taken = true;
        if (add_file(m, other->entry->path, other->entry, err) < 0)
            return -1;
    }
    if (c->split.count > 1 && !is_set)
        snprintf(m->note, sizeof(m->note), "by its name it is part %u of %u", c->split.no,
                 c->split.count);
    return is_set ? checkpoint_new(&m->checkpoint, err) : 0;
}

static int make_candidates(struct grouping *g, struct error *err)
{
    const struct source_entry *entries;
    size_t n = source_files(g->report->source, &entries);
    g->candidates = calloc(n + 1, sizeof(*g->candidates));
    if (!g->candidates)
        return out_of_memory(err);
    g->n = n;
    for (size_t i = 0; i < n; i++)
        g->candidates[i] = (struct candidate){.entry = &entries[i],
                                              .format = model_format_of(entries[i].path),
                                              .split = split_name_of(entries[i].path)};
    return 0;
}

/* A file whose name says nothing, and that is all there is: its first bytes may. */
static int look_inside(struct grouping *g, struct error *err)
{
    struct candidate *c = &g->candidates[0];
    _cleanup_source_file_ struct source_file *f = NULL;
    const void *data;
    size_t have;
    int rc = source_file_open(g->report->source, c->entry->path, &f, err);
    if (rc < 0 || (rc && source_file_prefix(f, 64, 0, &data, &have, err) < 0))
        return -1;
    if (rc)
        c->format = model_format_in(data, have, source_file_size(f));
    return 0;
}

static int group(struct grouping *g, struct error *err)
{
    if (make_candidates(g, err) < 0)
        return -1;
    if (source_is_one_file(g->report->source) && g->candidates[0].format == MODEL_NONE &&
        !is_index(g->candidates[0].entry->path) && look_inside(g, err) < 0)
        return -1;
    for (size_t i = 0; i < g->n; i++)
        if (is_index(g->candidates[i].entry->path) && group_index(g, &g->candidates[i], err) < 0)
            return -1;
    for (size_t i = 0; i < g->n; i++) {
        const struct candidate *c = &g->candidates[i];
        int rc = 0;
        if (c->taken || c->format == MODEL_NONE)
            continue;
        if (c->format == MODEL_UNREAD)
            rc = add_unread(g->report, c->entry->path, why_unread(c->entry->path), err);
        else
            rc = group_parts(g, i, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A .bin that is no pickle is something else's (OpenVINO, a tokenizer): nobody said it was one. */
static bool is_no_model(const struct report *r, const struct model_report *m)
{
    const char *dot = strrchr(m->files[0].path, '.');
    return r->n_models > 1 && m->n_files == 1 && m->format == MODEL_PICKLE && m->files[0].error &&
           m->files[0].code == ERR_INVALID && dot && strcasecmp(dot, ".bin") == 0;
}

static int read_models(struct report *r, struct error *err)
{
    for (size_t i = 0; i < r->n_models; i++) {
        struct model_report *m = &r->models[i];
        if (model_read_beside(r, m, err) < 0 || model_read(r, m, err) < 0)
            return -1;
        if (!is_no_model(r, m))
            continue;
        if (add_unread(r, m->files[0].path, "neither a pickle nor a zip with one in it", err) < 0)
            return -1;
        model_done(m);
        memmove(m, m + 1, (r->n_models - i - 1) * sizeof(*m));
        r->n_models--;
        i--;
    }
    return 0;
}

static int failed(const struct report *r, const struct report_file *f, struct error *err)
{
    const struct source_entry *entries;
    source_files(r->source, &entries);
    if (source_is_one_file(r->source) && strcmp(entries[0].path, f->path) == 0)
        return err_set(err, f->code, "%s", f->error); /* the caller names it */
    return err_set(err, f->code, "%s: %s", f->path, f->error);
}

/* Nothing was read: then the first thing that went wrong is what the command has to say. */
static int judge(struct report *r, struct error *err)
{
    bool any = false;
    for (size_t i = 0; i < r->n_models; i++) {
        const struct model_report *m = &r->models[i];
        bool bad = m->has_pickle && m->pickle.verdict >= PICKLE_UNREADABLE;
        for (size_t j = 0; j < m->n_findings; j++)
            bad = bad || m->findings[j].serious;
        for (size_t j = 0; j < m->n_files; j++) {
            any = any || m->files[j].read;
            bad = bad || m->files[j].error;
        }
        if (bad)
            r->status = EXIT_FAILED;
    }
    if (any)
        return 0;
    for (size_t i = 0; i < r->n_models; i++)
        for (size_t j = 0; j < r->models[i].n_files; j++)
            if (r->models[i].files[j].error)
                return failed(r, &r->models[i].files[j], err);
    if (r->n_unread == 1)
        return err_set(err, ERR_UNSUPPORTED, "%s is %s", r->unread[0].path, r->unread[0].why);
    if (r->n_models || r->n_unread)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has only weights of formats that are not read (%s)",
                       source_text(r->source), r->n_unread ? r->unread[0].path : "an empty index");
    return err_set(err, ERR_INVALID,
                   "%s is no model, and has none: no safetensors, GGUF, PyTorch, "
                   "ONNX or NumPy file",
                   source_text(r->source));
}

int report_make(struct source *s, const struct inspect_options *o, struct report *ret,
                struct error *err)
{
    struct grouping g = {.report = ret};
    *ret = (struct report){.source = s, .options = o};
    int rc = group(&g, err);
    free(g.candidates);
    if (rc == 0)
        rc = read_models(ret, err);
    return rc == 0 ? judge(ret, err) : -1;
}
