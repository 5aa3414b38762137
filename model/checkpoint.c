/* Collecting what a checkpoint's index and files say; checkpoint_check.c compares it. */
#include "model/checkpoint_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

int checkpoint_new(struct checkpoint **ret, struct error *err)
{
    struct checkpoint *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ERR_NOMEM, "out of memory for a checkpoint");
    *ret = c;
    return 0;
}

void checkpoint_free(struct checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_files; i++) {
        free(c->files[i]->path);
        free(c->files[i]);
    }
    for (size_t i = 0; i < c->n_findings; i++)
        free(c->findings[i].text);
    free(c->findings);
    free(c->files);
    free(c->paths);
    free(c->entries);
    strbuf_done(&c->names);
    free(c);
}

/* Where the path stands among the sorted files, or belongs. */
static bool find_file(const struct checkpoint *c, const char *path, size_t len, size_t *ret)
{
    size_t low = 0, high = c->n_files;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *there = c->files[middle]->path;
        int order = strncmp(path, there, len);
        if (order == 0 && there[len])
            order = -1;
        if (order == 0) {
            *ret = middle;
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    *ret = low;
    return false;
}

static int make_room(struct checkpoint *c, struct error *err)
{
    struct checkpoint_part **files = reallocarray(c->files, c->n_files + 1, sizeof(*files));
    if (files)
        c->files = files;
    const char **paths = reallocarray(c->paths, c->n_files + 1, sizeof(*paths));
    if (paths)
        c->paths = paths;
    return files && paths ? 0 : err_set(err, ERR_NOMEM, "out of memory for a list of files");
}

int checkpoint_file_of(struct checkpoint *c, const char *path, size_t len,
                       struct checkpoint_part **ret, struct error *err)
{
    size_t at;
    if (find_file(c, path, len, &at)) {
        *ret = c->files[at];
        return 0;
    }
    if (c->n_files == FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "a checkpoint of more than %u files", FILES_MAX);
    if (make_room(c, err) < 0)
        return -1;
    struct checkpoint_part *part = calloc(1, sizeof(*part));
    if (!part || !(part->path = strndup(path, len))) {
        free(part);
        return err_set(err, ERR_NOMEM, "out of memory for a file of a checkpoint");
    }
    memmove(c->files + at + 1, c->files + at, (c->n_files - at) * sizeof(*c->files));
    c->files[at] = part;
    c->n_files++;
    *ret = part;
    return 0;
}

/* FNV-1a. Only speeds up the sorting. */
static uint64_t hash_of(const char *name, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 0x100000001b3u;
    return h;
}

int checkpoint_add(struct checkpoint *c, const char *name, size_t len, bool in_map,
                   struct checkpoint_part *file, struct error *err)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 1024;
        struct checkpoint_entry *entries = reallocarray(c->entries, cap, sizeof(*entries));
        if (!entries)
            return err_set(err, ERR_NOMEM, "out of memory for %zu tensors", cap);
        c->entries = entries;
        c->cap = cap;
    }
    c->entries[c->n] = (struct checkpoint_entry){
        .hash = hash_of(name, len),
        .at = c->names.len,
        .len = (uint32_t)len,
        .in_map = in_map,
        .file = file,
    };
    strbuf_put(&c->names, name, len);
    if (strbuf_failed(&c->names))
        return err_set(err, ERR_NOMEM, "out of memory for the names of %zu tensors", c->n);
    c->n++;
    return 0;
}

int checkpoint_file(struct checkpoint *c, const char *path, const struct weights *w,
                    struct error *err)
{
    struct checkpoint_part *part;
    c->current = NULL;
    if (checkpoint_file_of(c, path, strlen(path), &part, err) < 0)
        return -1;
    if (part->read)
        return err_set(err, ERR_INVALID, "%s is there twice", path);
    if (w && weights_add(&c->sum, w, err) < 0)
        return err_wrap(err, "%s", path);
    part->read = true;
    part->missing = false;
    c->current = part;
    if (!w)
        return 0;
    part->known = true;
    part->tensors = w->tensors;
    part->split_no = w->split_no;
    part->split_count = w->split_count;
    return 0;
}

int checkpoint_metadata(void *checkpoint, const struct metadata_info *m, struct error *err)
{
    static const char key[] = "split.tensors.count";
    struct checkpoint *c = checkpoint;
    (void)err;
    bool is_number = m->type == METADATA_UNSIGNED ||
                     (m->type == METADATA_SIGNED && m->number <= (uint64_t)INT64_MAX);
    if (c->current && is_number && m->key_len == strlen(key) &&
        memcmp(m->key, key, strlen(key)) == 0) {
        c->current->has_split_tensors = true;
        c->current->split_tensors = m->number;
    }
    return 0;
}

int checkpoint_tensor(void *checkpoint, const struct tensor_info *t, struct error *err)
{
    struct checkpoint *c = checkpoint;
    char quoted[NAME_QUOTED_MAX];
    if (!c->current)
        return err_set(err, ERR_INTERNAL, "a tensor without a file");
    if (c->n - c->n_map == TENSORS_MAX)
        return err_set(err, ERR_TOO_LARGE, "tensor %s: a checkpoint of more than %u tensors",
                       name_quote(t->name, t->name_len, quoted), TENSORS_MAX);
    return checkpoint_add(c, t->name, t->name_len, false, c->current, err);
}

int checkpoint_missing(struct checkpoint *c, const char *path, struct error *err)
{
    struct checkpoint_part *part;
    if (checkpoint_file_of(c, path, strlen(path), &part, err) < 0)
        return -1;
    part->missing = !part->read;
    return 0;
}

size_t checkpoint_files(const struct checkpoint *c, const char *const **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_files; i++)
        if (c->files[i]->in_index)
            c->paths[n++] = c->files[i]->path;
    *ret = c->paths;
    return n;
}
