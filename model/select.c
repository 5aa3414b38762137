#include "model/select.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "model/classify.h"
#include "model/modelpack.h"
#include "model/split.h"
#include "model/weights.h"

#define NAMED_MAX 3 /* files that an error names */
#define LABELS_MAX 64

static bool is_hidden(const char *path)
{
    return path[0] == '.' || strstr(path, "/.") != NULL;
}

static bool any_glob(const char *const *globs, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(globs[i], path, 0) == 0)
            return true;
    return false;
}

static bool policy_takes(const struct select_policy *p, const char *path)
{
    return !is_hidden(path) && (p->n_include == 0 || any_glob(p->include, p->n_include, path)) &&
           !any_glob(p->exclude, p->n_exclude, path);
}

/* ---- what a GGUF file is ---- */

enum gguf_role { ROLE_MODEL, ROLE_PROJECTOR, ROLE_MATRIX };

/* "imatrix" behind a model's name and beside a label ("m-imatrix-Q4_K_M.gguf") only says how that
 * model was quantised. */
static enum gguf_role role_of(const char *path)
{
    const char *base = base_name(path), *matrix = strcasestr(base, "imatrix");
    char label[QUANT_LABEL_MAX];
    if (matrix && (matrix == base || !quant_label_of(base, label)))
        return ROLE_MATRIX;
    return strcasestr(base, "mmproj") ? ROLE_PROJECTOR : ROLE_MODEL;
}

static bool is_gguf(const char *path)
{
    return weights_format_of(path) == WEIGHTS_GGUF;
}

/* A model's file (no projector, no importance matrix) that carries a label. */
static bool model_label(const char *path, char label[static QUANT_LABEL_MAX])
{
    return is_gguf(path) && !is_hidden(path) && role_of(path) == ROLE_MODEL &&
           quant_label_of(path, label);
}

static int compare_labels(const void *a, const void *b)
{
    return strcmp(a, b);
}

size_t select_quants(const struct select_file *files, size_t n, char (*labels)[QUANT_LABEL_MAX],
                     size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        char label[QUANT_LABEL_MAX];
        size_t k = 0;
        if (!model_label(files[i].path, label))
            continue;
        while (k < count && strcmp(labels[k], label) != 0)
            k++;
        if (k == count && count < max)
            memcpy(labels[count++], label, sizeof(label));
    }
    if (count)
        qsort(labels, count, sizeof(*labels), compare_labels);
    return count;
}

/* ---- the whole repository ---- */

/* Checkpoints of a training run that are pickles too, but no weights of the model. */
static bool is_training_state(const char *path)
{
    static const char *const patterns[] = {
        "training_args*.bin", "training_args*.pt", "optimizer*.pt",  "optimizer*.bin",
        "scheduler*.pt",      "scheduler*.bin",    "rng_state*.pth", "scaler*.pt",
    };
    return matches_any(base_name(path), patterns, ARRAY_LEN(patterns));
}

static bool is_pickle(const char *path)
{
    return weights_format_of(path) == WEIGHTS_PICKLE;
}

/* pytorch_model.bin.index.json: of no use without its shards. */
static bool is_pickle_index(const char *path)
{
    static const char suffix[] = ".index.json";
    char shard[1024];
    size_t n = strlen(path), k = strlen(suffix);
    if (n <= k || n >= sizeof(shard) || strcasecmp(path + n - k, suffix) != 0)
        return false;
    memcpy(shard, path, n - k);
    shard[n - k] = '\0';
    return is_pickle(shard);
}

static int refuse_pickles(const struct select_file *files, size_t n, struct error *err)
{
    _cleanup_strbuf_ struct strbuf names = STRBUF_INIT;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (files[i].selected && is_pickle(files[i].path) && !is_training_state(files[i].path) &&
            count++ < NAMED_MAX)
            strbuf_printf(&names, "%s%.200s", names.len ? ", " : "", files[i].path);
    if (count > NAMED_MAX)
        strbuf_printf(&names, " and %zu more", count - NAMED_MAX);
    return err_set(
        err, ERR_DENIED,
        "the weights are pickle checkpoints (%s), which can run code when they are loaded, "
        "with no safetensors or GGUF beside them; upstreams[].allow_pickle lets them in",
        strbuf_str(&names));
}

static int apply_pickle_rule(struct select_file *files, size_t n, struct error *err)
{
    bool has_safe = false, has_pickles = false;
    for (size_t i = 0; i < n; i++) {
        const char *path = files[i].path;
        if (!files[i].selected)
            continue;
        enum weights_format f = weights_format_of(path);
        has_safe = has_safe || f == WEIGHTS_SAFETENSORS || f == WEIGHTS_ONNX ||
                   (f == WEIGHTS_GGUF && role_of(path) == ROLE_MODEL);
        has_pickles = has_pickles || (f == WEIGHTS_PICKLE && !is_training_state(path));
    }
    if (has_pickles && !has_safe)
        return refuse_pickles(files, n, err);
    for (size_t i = 0; i < n; i++)
        if (is_pickle(files[i].path) || is_pickle_index(files[i].path))
            files[i].selected = false;
    return 0;
}

/* ---- one quantisation ---- */

/* Configuration, tokenizer and licence: what a runtime or a lawyer needs beside the weights. */
static bool is_companion(const char *path)
{
    static const char *const patterns[] = {"license*", "licence*",    "copying*",  "notice*",
                                           "*.jinja",  "use_policy*", "readme.md", "copyright*"};
    static const char *const indexes[] = {"*.index.json"};
    const char *base = base_name(path);
    if (matches_any(base, indexes, ARRAY_LEN(indexes)) || weights_format_of(path))
        return false;
    return matches_any(base, patterns, ARRAY_LEN(patterns)) ||
           modelpack_kind_of(path, 0) == MODELPACK_WEIGHT_CONFIG;
}

static bool has_label(const struct select_file *f, const struct select_policy *policy,
                      enum gguf_role role, const char *label)
{
    char own[QUANT_LABEL_MAX];
    return is_gguf(f->path) && role_of(f->path) == role && policy_takes(policy, f->path) &&
           quant_label_of(f->path, own) && strcmp(own, label) == 0;
}

static size_t mark_label(struct select_file *files, size_t n, const struct select_policy *policy,
                         enum gguf_role role, const char *label)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (has_label(&files[i], policy, role, label)) {
            files[i].selected = true;
            count++;
        }
    return count;
}

/* The projector of a multimodal model: the one of the same label, or the only one, or the nearest
 * to full precision that every runtime reads. */
static void mark_projector(struct select_file *files, size_t n, const struct select_policy *policy,
                           const char *label)
{
    static const char *const preference[] = {"F16", "BF16", "F32", "Q8_0"};
    struct select_file *only = NULL;
    size_t count = 0;
    if (mark_label(files, n, policy, ROLE_PROJECTOR, label))
        return;
    for (size_t i = 0; i < n; i++)
        if (is_gguf(files[i].path) && role_of(files[i].path) == ROLE_PROJECTOR &&
            policy_takes(policy, files[i].path)) {
            only = &files[i];
            count++;
        }
    if (count == 1)
        only->selected = true;
    for (size_t i = 0; count > 1 && i < ARRAY_LEN(preference); i++)
        if (mark_label(files, n, policy, ROLE_PROJECTOR, preference[i]))
            return;
}

static int no_such_quant(const struct select_file *files, size_t n, const char *label,
                         struct error *err)
{
    char labels[LABELS_MAX][QUANT_LABEL_MAX];
    _cleanup_strbuf_ struct strbuf list = STRBUF_INIT;
    size_t count = select_quants(files, n, labels, LABELS_MAX);
    if (count == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "no GGUF file of the quantisation %s is there, nor of any other", label);
    for (size_t i = 0; i < count; i++)
        strbuf_printf(&list, "%s%s", i ? ", " : "", labels[i]);
    return err_set(err, ERR_NOT_FOUND, "no GGUF file of the quantisation %s is there; there are %s",
                   label, strbuf_str(&list));
}

struct part {
    const char *path;
    struct split_name name;
};

static int compare_parts(const void *pa, const void *pb)
{
    const struct part *a = pa, *b = pb;
    size_t n = a->name.stem < b->name.stem ? a->name.stem : b->name.stem;
    int c = memcmp(a->path, b->path, n);
    if (c == 0 && a->name.stem != b->name.stem)
        c = a->name.stem < b->name.stem ? -1 : 1;
    if (c == 0 && a->name.count != b->name.count)
        c = a->name.count < b->name.count ? -1 : 1;
    if (c == 0 && a->name.no != b->name.no)
        c = a->name.no < b->name.no ? -1 : 1;
    return c ? c : strcmp(a->path, b->path);
}

static bool same_set(const struct part *a, const struct part *b)
{
    return a->name.stem == b->name.stem && a->name.count == b->name.count &&
           memcmp(a->path, b->path, a->name.stem) == 0;
}

/* The parts of one set, sorted, must be numbered 1 .. count. */
static int check_set(const struct part *parts, size_t n, struct error *err)
{
    const struct split_name *name = &parts[0].name;
    size_t i = 0;
    while (i < n && parts[i].name.no == i + 1)
        i++;
    if (i == n && n == name->count)
        return 0;
    if (i < name->count && (i == n || parts[i].name.no > i + 1))
        return err_set(err, ERR_INVALID,
                       "part %zu of %u of %.*s is not there, or left out by the policy", i + 1,
                       name->count, (int)name->stem, parts[0].path);
    return err_set(err, ERR_INVALID, "%s is not one of the parts 1 to %u, or a second one of them",
                   parts[i].path, name->count);
}

static int check_splits(const struct select_file *files, size_t n, struct error *err)
{
    _cleanup_free_ struct part *parts = calloc(n ? n : 1, sizeof(*parts));
    size_t count = 0;
    if (!parts)
        return err_set(err, ERR_NOMEM, "out of memory for %zu files", n);
    for (size_t i = 0; i < n; i++) {
        struct part part = {files[i].path, split_name_of(files[i].path)};
        if (files[i].selected && is_gguf(files[i].path) && part.name.count)
            parts[count++] = part;
    }
    if (count)
        qsort(parts, count, sizeof(*parts), compare_parts);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && same_set(&parts[i], &parts[end]);)
            end++;
        if (check_set(&parts[i], end - i, err) < 0)
            return -1;
    }
    return 0;
}

static int select_quant(struct select_file *files, size_t n, const struct select_policy *policy,
                        const char *quant, struct error *err)
{
    char label[QUANT_LABEL_MAX], ud[QUANT_LABEL_MAX + sizeof(QUANT_UD)];
    if (!quant_label_parse(quant, label))
        return err_set(err, ERR_NOT_FOUND, "%.100s is no quantisation that we know", quant);
    const char *found = label;
    if (!mark_label(files, n, policy, ROLE_MODEL, label)) {
        snprintf(ud, sizeof(ud), "%s%s", QUANT_UD, label);
        found = ud;
        if (!mark_label(files, n, policy, ROLE_MODEL, ud))
            return no_such_quant(files, n, label, err);
    }
    mark_projector(files, n, policy, found);
    for (size_t i = 0; i < n; i++)
        if (policy_takes(policy, files[i].path) && is_companion(files[i].path))
            files[i].selected = true;
    return check_splits(files, n, err);
}

int select_files(struct select_file *files, size_t n, const struct select_policy *policy,
                 const char *quant, struct error *err)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        files[i].selected = false;
    if (quant)
        return select_quant(files, n, policy, quant, err);
    for (size_t i = 0; i < n; i++)
        files[i].selected = policy_takes(policy, files[i].path);
    if (!policy->allow_pickle && apply_pickle_rule(files, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        any = any || files[i].selected;
    if (!any)
        return err_set(err, ERR_NOT_FOUND,
                       "the policy (include, exclude, pickles, hidden files) leaves none of the "
                       "%zu files",
                       n);
    return 0;
}
