/* Which weight files of a selection are one model, and what they add up to.
 *
 * A set is the shards of one stem ("model-00001-of-00002", "model-00002-of-00002"). Safetensors
 * sets count; GGUF sets only where there are none. Left out are sets that repeat others:
 * consolidated*.safetensors and x.VARIANT.safetensors beside another set of their folder, GGUF
 * projectors and importance matrices. When the top folder has a safetensors set, only the top
 * folder counts, as on the Hub; otherwise the folders are the parts of a pipeline and add up. Two
 * sets left in one folder, and two GGUF sets anywhere (quantisations), are alternatives: only what
 * they agree on is known.
 */
#include "upstream/import_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/kv_cache.h"

struct set {
    const struct sum_file *files; /* of `n` files; its name is the first one's stem */
    size_t n;
    size_t stem, folder; /* lengths within files[0].path */
    bool left_out;
};

static size_t digits_before(const char *s, size_t end)
{
    size_t n = 0;
    while (n < end && s[end - n - 1] >= '0' && s[end - n - 1] <= '9')
        n++;
    return n;
}

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Length of a path without its extension and without a part number ("-00001-of-00003"). */
static size_t stem_length(const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t folder = folder_length(path);
    size_t whole = dot && (size_t)(dot - path) > folder ? (size_t)(dot - path) : strlen(path);
    size_t n = digits_before(path, whole), end = whole - n;
    if (n == 0 || end < folder + 4 || strncasecmp(path + end - 4, "-of-", 4) != 0)
        return whole;
    end -= 4;
    n = digits_before(path, end);
    end -= n;
    if (n == 0 || end <= folder + 1 || (path[end - 1] != '-' && path[end - 1] != '_'))
        return whole;
    return end - 1;
}

static int compare_spans(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : na < nb ? -1 : na > nb;
}

/* By folder, then by stem, then by the rest of the path. */
static int by_set(const void *pa, const void *pb)
{
    const char *a = ((const struct sum_file *)pa)->path, *b = ((const struct sum_file *)pb)->path;
    int c = compare_spans(a, folder_length(a), b, folder_length(b));
    if (c == 0)
        c = compare_spans(a, stem_length(a), b, stem_length(b));
    return c ? c : strcmp(a, b);
}

static bool same_set(const struct sum_file *a, const struct sum_file *b)
{
    return compare_spans(a->path, stem_length(a->path), b->path, stem_length(b->path)) == 0;
}

static bool same_folder(const struct set *a, const struct set *b)
{
    return compare_spans(a->files->path, a->folder, b->files->path, b->folder) == 0;
}

static size_t group(const struct sum_file *files, size_t n, struct set *sets)
{
    size_t n_sets = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && same_set(&files[i - 1], &files[i])) {
            sets[n_sets - 1].n++;
            continue;
        }
        sets[n_sets++] = (struct set){.files = &files[i],
                                      .n = 1,
                                      .stem = stem_length(files[i].path),
                                      .folder = folder_length(files[i].path)};
    }
    return n_sets;
}

/* ---- what is left out ------------------------------------------------------------------------ */

static bool is_consolidated(const struct set *s)
{
    return strncasecmp(s->files->path + s->folder, "consolidated", 12) == 0;
}

static bool is_side_file(const struct set *s)
{
    const char *name = s->files->path + s->folder;
    return strcasestr(name, "mmproj") || strcasestr(name, "imatrix") ||
           strcmp(s->files->facts->weights.architecture, "clip") == 0;
}

/* Whether the folder's sets (sorted by stem) have the one that `s` is named a variant of. */
static bool is_variant(const struct set *s, const struct set *sets, size_t n)
{
    const char *path = s->files->path;
    const char *dot = memrchr(path + s->folder, '.', s->stem - s->folder);
    size_t base = dot ? (size_t)(dot - path) : 0, low = 0, high = n;
    if (!dot || base == s->folder)
        return false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int c = compare_spans(path, base, sets[middle].files->path, sets[middle].stem);
        if (c == 0)
            return true;
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

static void leave_out_of_folder(struct set *sets, size_t n)
{
    size_t others = 0;
    for (size_t i = 0; i < n; i++)
        others += !is_consolidated(&sets[i]);
    for (size_t i = 0; i < n; i++)
        sets[i].left_out = (others && is_consolidated(&sets[i])) || is_variant(&sets[i], sets, n);
}

static void leave_out(struct set *sets, size_t n, enum weights_format format)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && same_folder(&sets[i], &sets[end]); end++)
            ;
        if (format == WEIGHTS_SAFETENSORS)
            leave_out_of_folder(&sets[i], end - i);
        else
            for (size_t k = i; k < end; k++)
                sets[k].left_out = is_side_file(&sets[k]);
        if (format == WEIGHTS_SAFETENSORS && i == 0 && sets[0].folder == 0) {
            for (size_t k = end; k < n; k++) /* the top folder comes first */
                sets[k].left_out = true;
            return;
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Of two alternatives only what both say is known. */
static void agree_on_weights(struct weights *with, const struct weights *other)
{
    if (with->parameters != other->parameters)
        with->parameters = 0;
    if (with->has_file_type != other->has_file_type || with->file_type != other->file_type)
        with->has_file_type = false;
    if (strcmp(with->architecture, other->architecture) != 0)
        with->architecture[0] = '\0';
    if (strcmp(with->name, other->name) != 0)
        with->name[0] = '\0';
    if (with->context_length != other->context_length)
        with->context_length = 0;
    with->n_types = 0;
    with->tensors = with->tensor_bytes = 0;
}

static bool same_cache(const struct modelpack_model *a, const struct modelpack_model *b)
{
    return a->has_cache == b->has_cache && a->context == b->context &&
           a->token_bytes == b->token_bytes && a->window_token_bytes == b->window_token_bytes &&
           a->window == b->window && a->sequence_bytes == b->sequence_bytes &&
           strcmp(a->cache_rule, b->cache_rule) == 0;
}

static void agree(struct model_facts *with, const struct model_facts *other)
{
    agree_on_weights(&with->weights, &other->weights);
    if (with->parameters.logical != other->parameters.logical)
        with->parameters.logical = 0;
    if (!same_cache(&with->cache, &other->cache))
        memset(&with->cache, 0, sizeof(with->cache));
}

/* Only the first part of a split file has the keys that tell a model's shape. */
static int add_facts(struct model_facts *to, const struct model_facts *one, struct error *err)
{
    struct model_facts sum = *to;
    if (weights_add(&sum.weights, &one->weights, err) < 0 ||
        parameters_merge(&sum.parameters, &one->parameters, err) < 0)
        return -1;
    if (!sum.cache.has_cache && !sum.cache.context)
        sum.cache = one->cache;
    *to = sum;
    return 0;
}

/* 1 added, 0 the totals overflow, -1. */
static int add_set(const struct set *s, struct model_facts *to, struct error *err)
{
    struct error e = ERROR_INIT;
    for (size_t i = 0; i < s->n; i++) {
        if (add_facts(to, s->files[i].facts, &e) == 0)
            continue;
        return e.code == ERR_INVALID ? 0 : err_set(err, e.code, "%s: %s", s->files[i].path, e.text);
    }
    return 1;
}

/* Sums sets that stand beside each other, and weighs alternatives against each other. */
static int add_sets(const struct set *sets, size_t n, bool alternatives, struct model_facts *ret,
                    struct error *err)
{
    struct model_facts one;
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        if (sets[i].left_out)
            continue;
        memset(&one, 0, sizeof(one));
        int rc = add_set(&sets[i], alternatives && !first ? &one : ret, err);
        if (rc <= 0)
            return rc;
        if (alternatives && !first)
            agree(ret, &one);
        first = false;
    }
    return !first;
}

static bool has_alternatives(const struct set *sets, size_t n, enum weights_format format,
                             bool *ret_one_folder)
{
    const struct set *last = NULL;
    bool found = false;
    *ret_one_folder = true;
    for (size_t i = 0; i < n; i++) {
        if (sets[i].left_out)
            continue;
        if (last && (format == WEIGHTS_GGUF || same_folder(last, &sets[i])))
            found = true;
        if (last && format != WEIGHTS_GGUF && !same_folder(last, &sets[i]))
            *ret_one_folder = false;
        last = &sets[i];
    }
    return found;
}

void facts_of_shape(const struct model_shape *shape, struct modelpack_model *ret)
{
    struct kv_request request = {.context = 1, .sequences = 1, .tensor_parallel = 1};
    struct kv_cost cost;
    memset(ret, 0, sizeof(*ret));
    ret->context = shape->context;
    if (kv_type_parse("f16", &request.key, NULL) < 0)
        return;
    request.value = request.key;
    if (kv_cost(shape, &request, &cost, NULL) < 0)
        return;
    ret->has_cache = true;
    ret->token_bytes = cost.full_per_token;
    ret->window_token_bytes = cost.window_per_token;
    ret->sequence_bytes = cost.state_per_sequence;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        if (shape->layers[i].kind == LAYER_WINDOW || shape->layers[i].kind == LAYER_CHUNKED)
            if (shape->layers[i].window > ret->window)
                ret->window = shape->layers[i].window;
    snprintf(ret->cache_rule, sizeof(ret->cache_rule), "%s", shape->rule);
}

int facts_sum(struct sum_file *files, size_t n, struct model_facts *ret, struct error *err)
{
    enum weights_format format = WEIGHTS_GGUF;
    size_t kept = 0;
    bool one_folder;
    struct model_facts sum;
    for (size_t i = 0; i < n; i++)
        if (files[i].facts->weights.format == WEIGHTS_SAFETENSORS)
            format = WEIGHTS_SAFETENSORS;
    for (size_t i = 0; i < n; i++)
        if (files[i].facts->weights.format == format)
            files[kept++] = files[i];
    if (kept == 0)
        return 0;
    _cleanup_free_ struct set *sets = calloc(kept, sizeof(*sets));
    if (!sets)
        return err_set(err, ERR_NOMEM, "out of memory");
    qsort(files, kept, sizeof(*files), by_set);
    size_t n_sets = group(files, kept, sets);
    leave_out(sets, n_sets, format);
    bool alternatives = has_alternatives(sets, n_sets, format, &one_folder);
    if (alternatives && !one_folder)
        return 0;
    memset(&sum, 0, sizeof(sum));
    int rc = add_sets(sets, n_sets, alternatives, &sum, err);
    if (rc > 0)
        *ret = sum;
    return rc;
}
