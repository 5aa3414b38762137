/* What the walks over the pickles of one file have found so far. */
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/pickle_private.h"

struct import_node { /* in the tree */
    struct pickle_import *import;
    uint32_t index;
};

struct storage_node {
    struct pickle_storage *storage;
    uint32_t index;
};

static int compare_imports(const void *a, const void *b)
{
    const struct pickle_import *x = ((const struct import_node *)a)->import;
    const struct pickle_import *y = ((const struct import_node *)b)->import;
    int c = strcmp(x->module, y->module);
    return c ? c : strcmp(x->name, y->name);
}

static int compare_storages(const void *a, const void *b)
{
    return strcmp(((const struct storage_node *)a)->storage->key,
                  ((const struct storage_node *)b)->storage->key);
}

bool is_loader(const struct pickle_import *i)
{
    return strcmp(i->module, "torch.storage") == 0 && strcmp(i->name, "_load_from_bytes") == 0;
}

/* A copy of s that counts towards the budget. */
static char *copy_text(struct pickle_scan *scan, const char *s, struct error *err)
{
    size_t len = strlen(s) + 1;
    char *copy = NULL;
    if (scan->text + len > PICKLE_TEXT_MAX)
        err_set(err, ERR_TOO_LARGE, "the names in the pickles take more than %u MiB",
                PICKLE_TEXT_MAX >> 20);
    else if (!(copy = malloc(len)))
        err_set(err, ERR_NOMEM, "out of memory");
    if (copy) {
        memcpy(copy, s, len);
        scan->text += len;
    }
    return copy;
}

/* Room for one more in an array of elements of `size` bytes. */
static int grow(void **array, size_t n, size_t *cap, size_t size, struct error *err)
{
    if (n < *cap)
        return 0;
    size_t more = *cap ? 2 * *cap : 16;
    void *grown = realloc(*array, more * size);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory");
    *array = grown;
    *cap = more;
    return 0;
}

static void free_import(struct pickle_import *i)
{
    if (!i)
        return;
    free(i->module);
    free(i->name);
    free(i->member);
    free(i);
}

static void free_import_p(struct pickle_import **i)
{
    free_import(*i);
}

int scan_import(struct pickle_scan *scan, const char *module, const char *name, uint64_t at,
                uint32_t *ret_index, struct error *err)
{
    struct pickle_import probe = {.module = (char *)module, .name = (char *)name};
    struct import_node key = {.import = &probe};
    struct import_node **found = tfind(&key, &scan->import_tree, compare_imports);
    if (found) {
        (*found)->import->count++;
        *ret_index = (*found)->index;
        return 0;
    }
    if (scan->n_imports == PICKLE_IMPORTS_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %u imports", PICKLE_IMPORTS_MAX);
    _cleanup_(free_import_p) struct pickle_import *i = calloc(1, sizeof(*i));
    _cleanup_free_ struct import_node *node = calloc(1, sizeof(*node));
    if (!i || !node)
        return err_set(err, ERR_NOMEM, "out of memory");
    i->at = at;
    i->count = 1;
    i->verdict = pickle_judge(module, name);
    if (!(i->module = copy_text(scan, module, err)) || !(i->name = copy_text(scan, name, err)) ||
        (scan->member && !(i->member = copy_text(scan, scan->member, err))))
        return -1;
    if (grow((void **)&scan->imports, scan->n_imports, &scan->cap_imports, sizeof(i), err) < 0)
        return -1;
    node->import = i;
    node->index = (uint32_t)scan->n_imports;
    if (!tsearch(node, &scan->import_tree, compare_imports))
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret_index = node->index;
    node = NULL; /* the tree's */
    scan->imports[scan->n_imports++] = TAKE_PTR(i);
    return 0;
}

static void free_storage(struct pickle_storage *s)
{
    if (s)
        free(s->key);
    free(s);
}

static void free_storage_p(struct pickle_storage **s)
{
    free_storage(*s);
}

static struct storage_node *find_storage(const struct pickle_scan *scan, const char *key)
{
    struct pickle_storage probe = {.key = (char *)key};
    struct storage_node node = {.storage = &probe};
    struct storage_node **found = tfind(&node, &scan->storage_tree, compare_storages);
    return found ? *found : NULL;
}

struct pickle_storage *scan_find_storage(const struct pickle_scan *scan, const char *key)
{
    struct storage_node *node = find_storage(scan, key);
    return node ? node->storage : NULL;
}

int scan_storage(struct pickle_scan *scan, const char *key, const char *type, unsigned size,
                 uint64_t elements, uint32_t *ret_index, struct error *err)
{
    struct storage_node *found = find_storage(scan, key);
    if (found) {
        struct pickle_storage *s = found->storage;
        s->odd = s->odd || strcmp(s->type, type) != 0 || s->size != size || s->elements != elements;
        *ret_index = found->index;
        return 0;
    }
    if (scan->n_storages == PICKLE_TENSORS_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %u storages", PICKLE_TENSORS_MAX);
    _cleanup_(free_storage_p) struct pickle_storage *s = calloc(1, sizeof(*s));
    _cleanup_free_ struct storage_node *node = calloc(1, sizeof(*node));
    if (!s || !node)
        return err_set(err, ERR_NOMEM, "out of memory");
    *s = (struct pickle_storage){.type = type, .size = size, .elements = elements};
    if (!(s->key = copy_text(scan, key, err)) ||
        grow((void **)&scan->storages, scan->n_storages, &scan->cap_storages, sizeof(s), err) < 0)
        return -1;
    *node = (struct storage_node){s, (uint32_t)scan->n_storages};
    if (!tsearch(node, &scan->storage_tree, compare_storages))
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret_index = node->index;
    node = NULL; /* the tree's */
    scan->storages[scan->n_storages++] = TAKE_PTR(s);
    return 0;
}

int scan_tensor(struct pickle_scan *scan, const struct pickle_tensor *t, uint32_t *ret_index,
                struct error *err)
{
    struct pickle_report *r = scan->report;
    struct pickle_tensor copy = *t;
    if (r->n_tensors == PICKLE_TENSORS_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %u tensors", PICKLE_TENSORS_MAX);
    if (grow((void **)&r->tensors, r->n_tensors, &scan->cap_tensors, sizeof(copy), err) < 0)
        return -1;
    if (!(copy.name = copy_text(scan, t->name, err)))
        return -1;
    if (!(copy.storage = copy_text(scan, t->storage, err))) {
        free(copy.name);
        return -1;
    }
    *ret_index = (uint32_t)r->n_tensors;
    r->tensors[r->n_tensors++] = copy;
    return 0;
}

int scan_name_tensor(struct pickle_scan *scan, uint32_t index, const char *name, struct error *err)
{
    struct pickle_tensor *t = &scan->report->tensors[index];
    if (t->name[0]) { /* one tensor under two keys */
        struct pickle_tensor other = *t;
        other.name = (char *)name;
        return scan_tensor(scan, &other, &index, err);
    }
    char *copy = copy_text(scan, name, err);
    if (!copy)
        return -1;
    free(t->name);
    t->name = copy;
    return 0;
}

void scan_broken(struct pickle_scan *scan, uint64_t at, const char *format, ...)
{
    struct pickle_report *r = scan->report;
    char why[128];
    va_list args;
    if (r->broken)
        return; /* the first one says where to look */
    r->broken = true;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    snprintf(r->broken_why, sizeof(r->broken_why), "%s%.80s%sbyte %llu: %s",
             scan->member ? "member '" : "", scan->member ? scan->member : "",
             scan->member ? "', " : "", (unsigned long long)at, why);
}

void scan_done(struct pickle_scan *scan)
{
    for (size_t i = 0; i < scan->n_imports; i++)
        free_import(scan->imports[i]);
    for (size_t i = 0; i < scan->n_storages; i++)
        free_storage(scan->storages[i]);
    free(scan->imports);
    free(scan->storages);
    tdestroy(scan->import_tree, free);
    tdestroy(scan->storage_tree, free);
}
