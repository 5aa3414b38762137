/* Which weight files add up to one model. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A file's name without its extension and without the part number of a set
 * ("model-00001-of-00003.safetensors" -> "model"). Length of what counts. */
static size_t stem_length(const char *path)
{
    size_t n = strlen(path);
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    if (dot && (!slash || dot > slash))
        n = (size_t)(dot - path);
    size_t end = n, digits = 0;
    while (end > 0 && path[end - 1] >= '0' && path[end - 1] <= '9')
        end--, digits++;
    if (digits == 0 || end < 4 || strncasecmp(path + end - 4, "-of-", 4) != 0)
        return n;
    end -= 4;
    digits = 0;
    while (end > 0 && path[end - 1] >= '0' && path[end - 1] <= '9')
        end--, digits++;
    if (digits == 0 || end == 0 || (path[end - 1] != '-' && path[end - 1] != '_'))
        return n;
    return end - 1;
}

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static bool same_prefix(const char *a, size_t na, const char *b, size_t nb)
{
    return na == nb && memcmp(a, b, na) == 0;
}

static bool same_set(const char *a, const char *b)
{
    return same_prefix(a, stem_length(a), b, stem_length(b));
}

static bool same_folder(const char *a, const char *b)
{
    return same_prefix(a, folder_length(a), b, folder_length(b));
}

/* What the whole is called: safetensors before GGUF before what is only classified. */
static enum weights_format leading_format(const struct sum_file *files, size_t n)
{
    static const enum weights_format order[] = {WEIGHTS_SAFETENSORS, WEIGHTS_GGUF, WEIGHTS_PICKLE,
                                                WEIGHTS_ONNX};
    for (size_t k = 0; k < ARRAY_LEN(order); k++)
        for (size_t i = 0; i < n; i++)
            if (files[i].format == order[k])
                return order[k];
    return WEIGHTS_UNKNOWN;
}

static bool is_parsed_format(enum weights_format f)
{
    return f == WEIGHTS_SAFETENSORS || f == WEIGHTS_GGUF;
}

static int by_folder(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t nx = folder_length(x), ny = folder_length(y), n = nx < ny ? nx : ny;
    int c = memcmp(x, y, n);
    if (c == 0 && nx != ny)
        return nx < ny ? -1 : 1;
    return c ? c : strcmp(x + n, y + n);
}

/* Whether any two files of the leading format stand for the same weights. In GGUF repositories the
 * sets are quantisations of one model, wherever they are; safetensors sets of different folders are
 * parts of a pipeline, two sets in one folder are two copies. */
static bool has_rivals(const char **paths, size_t n, enum weights_format leading)
{
    qsort(paths, n, sizeof(*paths), by_folder);
    for (size_t i = 1; i < n; i++)
        if (!same_set(paths[i - 1], paths[i]) &&
            (leading == WEIGHTS_GGUF || same_folder(paths[i - 1], paths[i])))
            return true;
    return false;
}

/* 1 or 0; -1 out of memory, which must never look like a property of the files. */
static int adds_up(const struct sum_file *files, size_t n, enum weights_format leading,
                   struct error *err)
{
    size_t parsed = 0;
    if (!is_parsed_format(leading))
        return 0;
    _cleanup_free_ const char **paths = calloc(n, sizeof(*paths));
    if (!paths)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (!is_parsed_format(files[i].format))
            continue;
        if (files[i].format != leading || !files[i].weights)
            return 0;
        paths[parsed++] = files[i].path;
    }
    return !has_rivals(paths, parsed, leading);
}

/* A name that every parsed file gives alike is known even when the totals are not. */
static void common_architecture(const struct sum_file *files, size_t n, enum weights_format leading,
                                struct weights *to)
{
    const char *name = NULL;
    for (size_t i = 0; i < n; i++) {
        if (files[i].format != leading)
            continue;
        if (!files[i].weights || (name && strcmp(name, files[i].weights->architecture) != 0))
            return;
        name = files[i].weights->architecture;
    }
    if (name)
        memcpy(to->architecture, name, sizeof(to->architecture));
}

/* 1 added, 0 the totals overflow, -1. */
static int add_up(const struct sum_file *files, size_t n, enum weights_format leading,
                  struct weights *to, struct error *err)
{
    struct error e = ERROR_INIT;
    for (size_t i = 0; i < n; i++) {
        if (files[i].format != leading || weights_add(to, files[i].weights, &e) == 0)
            continue;
        if (e.code == ERR_INVALID)
            return 0;
        return err_set(err, e.code, "%s: %s", files[i].path, e.text);
    }
    return 1;
}

int weights_sum(const struct sum_file *files, size_t n, struct weights *ret, struct error *err)
{
    struct weights sum;
    enum weights_format leading = leading_format(files, n);
    if (leading == WEIGHTS_UNKNOWN)
        return 0;
    memset(&sum, 0, sizeof(sum));
    int totals = adds_up(files, n, leading, err);
    if (totals > 0)
        totals = add_up(files, n, leading, &sum, err);
    if (totals < 0)
        return -1;
    if (totals == 0) {
        memset(&sum, 0, sizeof(sum));
        if (is_parsed_format(leading))
            common_architecture(files, n, leading, &sum);
    }
    sum.format = leading;
    *ret = sum;
    return 1;
}
