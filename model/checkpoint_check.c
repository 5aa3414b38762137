/* The findings: what the index and the files of a checkpoint say about each other. */
#include "model/checkpoint_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/names.h"
#include "model/split.h"

static int find(struct checkpoint *c, bool serious, struct error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int find(struct checkpoint *c, bool serious, struct error *err, const char *format, ...)
{
    va_list args;
    if (c->n_findings == FINDINGS_MAX) {
        c->left_out++;
        c->left_out_serious = c->left_out_serious || serious;
        return 0;
    }
    if (!c->findings && /* one more: for the count of what is left out */
        !(c->findings = calloc(FINDINGS_MAX + 1, sizeof(*c->findings))))
        return err_set(err, ERR_NOMEM, "out of memory for findings");
    struct checkpoint_finding *f = &c->findings[c->n_findings];
    va_start(args, format);
    int n = vasprintf(&f->text, format, args);
    va_end(args);
    if (n < 0) {
        f->text = NULL;
        return err_set(err, ERR_NOMEM, "out of memory for findings");
    }
    f->serious = serious;
    c->n_findings++;
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int compare_entries(const void *pa, const void *pb, void *names)
{
    const struct checkpoint_entry *a = pa, *b = pb;
    const char *text = names;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    int order = name_compare(text + a->at, a->len, text + b->at, b->len);
    if (order == 0 && a->in_map != b->in_map)
        order = a->in_map ? -1 : 1;
    return order ? order : (a->at > b->at) - (a->at < b->at); /* as they were given */
}

/* All the entries of one name: those of the index first. */
static int check_name(struct checkpoint *c, const struct checkpoint_entry *e, size_t n,
                      struct error *err)
{
    char name[NAME_QUOTED_MAX];
    size_t maps = 0, seen = n;
    while (maps < n && e[maps].in_map)
        maps++;
    name_quote(strbuf_str(&c->names) + e->at, e->len, name);
    for (size_t i = 1; i < maps; i++)
        if (find(c, e[i].file != e[0].file, err,
                 "tensor %s stands twice in the index, for %s and for %s", name, e[0].file->path,
                 e[i].file->path) < 0)
            return -1;
    for (size_t i = maps + 1; i < n; i++)
        if (find(c, !c->has_index, err, "%s: tensor %s is also in %s", e[i].file->path, name,
                 e[maps].file->path) < 0)
            return -1;
    if (!c->has_index)
        return 0;
    if (maps == 0)
        return find(c, false, err, "%s: tensor %s is in the file and does not stand in the index",
                    e[0].file->path, name);
    const struct checkpoint_part *due = e[maps - 1].file; /* loaders take the last one */
    for (size_t i = maps; i < n; i++)
        if (e[i].file == due)
            seen = i;
    if (seen < n || !due->known) /* of a file that was not read nothing can be said */
        return 0;
    if (maps < n)
        return find(c, true, err, "%s: tensor %s stands in the index for this file, and is in %s",
                    due->path, name, e[maps].file->path);
    return find(c, true, err, "%s: tensor %s stands in the index and not in the file", due->path,
                name);
}

static int check_names(struct checkpoint *c, struct error *err)
{
    char *names = c->names.data;
    if (c->n)
        qsort_r(c->entries, c->n, sizeof(*c->entries), compare_entries, names);
    for (size_t i = 0, n; i < c->n; i += n) {
        const struct checkpoint_entry *e = &c->entries[i];
        for (n = 1; i + n < c->n && e[n].hash == e->hash && e[n].len == e->len; n++)
            if (e->len && memcmp(names + e[n].at, names + e->at, e->len) != 0)
                break;
        if (check_name(c, e, n, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int check_presence(struct checkpoint *c, bool *ret_all, struct error *err)
{
    *ret_all = true;
    for (size_t i = 0; i < c->n_files; i++) {
        const struct checkpoint_part *f = c->files[i];
        int rc = 0;
        if (!f->known)
            *ret_all = false;
        if (!f->read && !f->in_index)
            rc = find(c, true, err, "%s is missing", f->path);
        else if (!f->read)
            rc = find(c, true, err, "%s %s; the index puts %" PRIu64 " tensor%s into it", f->path,
                      f->missing ? "is missing" : "could not be read", f->mapped,
                      f->mapped == 1 ? "" : "s");
        else if (c->has_index && !f->in_index)
            rc = find(c, false, err, "%s does not stand in the index", f->path);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* A file that is a part by its name: model-00002-of-00003.safetensors. */
struct part_name {
    struct split_name split;
    const struct checkpoint_part *file;
};

static int compare_parts(const void *pa, const void *pb)
{
    const struct part_name *a = pa, *b = pb;
    int order = name_compare(a->file->path, a->split.stem, b->file->path, b->split.stem);
    if (order == 0)
        order = (a->split.count > b->split.count) - (a->split.count < b->split.count);
    return order ? order : strcmp(a->file->path, b->file->path);
}

static bool same_set(const struct part_name *a, const struct part_name *b)
{
    return a->split.count == b->split.count &&
           name_compare(a->file->path, a->split.stem, b->file->path, b->split.stem) == 0;
}

/* Each set of parts has as many as its names say. Loaders that have an index look at that alone. */
static int check_part_names(struct checkpoint *c, struct error *err)
{
    _cleanup_free_ struct part_name *parts = calloc(c->n_files + 1, sizeof(*parts));
    size_t n = 0;
    if (!parts)
        return err_set(err, ERR_NOMEM, "out of memory for %zu files", c->n_files);
    for (size_t i = 0; i < c->n_files; i++) {
        parts[n] = (struct part_name){split_name_of(c->files[i]->path), c->files[i]};
        n += parts[n].split.count > 0;
    }
    if (n)
        qsort(parts, n, sizeof(*parts), compare_parts);
    for (size_t i = 0, set; i < n; i += set) {
        const struct part_name *p = &parts[i];
        for (set = 1; i + set < n && same_set(p, p + set);)
            set++;
        if (set != p->split.count &&
            find(c, !c->has_index, err, "%s: it is one of %u parts by its name, and %zu are there",
                 p->file->path, p->split.count, set) < 0)
            return -1;
    }
    return 0;
}

/* The parts of a split GGUF: numbers from 0 on in the order of the names, one count for all. */
static int check_splits(struct checkpoint *c, struct error *err)
{
    uint64_t tensors = 0;
    const struct checkpoint_part *counted = NULL;
    bool whole = true;
    for (size_t i = 0; i < c->n_files; i++) {
        const struct checkpoint_part *f = c->files[i];
        struct split_name name = split_name_of(f->path);
        int rc = 0;
        tensors += f->tensors;
        whole = whole && f->known;
        if (f->has_split_tensors && !counted)
            counted = f;
        if (f->known && name.count && f->split_count &&
            (f->split_count != name.count || f->split_no + 1 != name.no))
            rc = find(c, true, err,
                      "%s: by its name it is part %u of %u, by split.no and split.count %u of %u",
                      f->path, name.no, name.count, f->split_no + 1, f->split_count);
        else if (f->known && f->split_count && f->split_count != c->n_files)
            rc = find(c, true, err, "%s: split.count is %u, and %zu files are there", f->path,
                      f->split_count, c->n_files);
        else if (f->known && name.count && !f->split_count)
            rc = find(c, true, err, "%s: by its name it is a part, but it has no split.count",
                      f->path);
        if (rc < 0)
            return -1;
    }
    if (whole && counted && counted->split_tensors != tensors)
        return find(c, true, err,
                    "%s: split.tensors.count is %" PRIu64 ", the files have %" PRIu64 " tensors",
                    counted->path, counted->split_tensors, tensors);
    return 0;
}

static int check_totals(struct checkpoint *c, struct error *err)
{
    const struct weights *w = &c->sum;
    if (c->odd_total &&
        find(c, false, err, "a total in the index's metadata is no whole number") < 0)
        return -1;
    if (c->has_total_size && !w->partial && c->total_size != w->tensor_bytes &&
        find(c, false, err,
             "metadata.total_size of the index is %" PRIu64 ", the tensors have %" PRIu64 " bytes",
             c->total_size, w->tensor_bytes) < 0)
        return -1;
    if (c->has_total_parameters && c->total_parameters != w->parameters)
        return find(c, false, err,
                    "metadata.total_parameters of the index is %" PRIu64
                    ", the tensors have %" PRIu64 " elements",
                    c->total_parameters, w->parameters);
    return 0;
}

static int compare_findings(const void *pa, const void *pb)
{
    const struct checkpoint_finding *a = pa, *b = pb;
    if (a->serious != b->serious)
        return a->serious ? -1 : 1;
    return strcmp(a->text, b->text);
}

/* What was left out goes last, and is as serious as the worst of it. */
static int count_rest(struct checkpoint *c, struct error *err)
{
    struct checkpoint_finding *f;
    if (!c->left_out)
        return 0;
    f = &c->findings[c->n_findings];
    if (asprintf(&f->text, "and %" PRIu64 " more", c->left_out) < 0) {
        f->text = NULL;
        return err_set(err, ERR_NOMEM, "out of memory for findings");
    }
    f->serious = c->left_out_serious;
    c->n_findings++;
    return 0;
}

int checkpoint_check(struct checkpoint *c, const struct checkpoint_finding **ret, size_t *ret_n,
                     struct weights *ret_sum, struct error *err)
{
    bool all = true;
    if (check_presence(c, &all, err) < 0 || check_part_names(c, err) < 0 ||
        (c->sum.format == WEIGHTS_GGUF && check_splits(c, err) < 0) ||
        (all && check_totals(c, err) < 0) || check_names(c, err) < 0)
        return -1;
    if (c->n_findings)
        qsort(c->findings, c->n_findings, sizeof(*c->findings), compare_findings);
    if (count_rest(c, err) < 0)
        return -1;
    *ret = c->findings;
    *ret_n = c->n_findings;
    *ret_sum = c->sum;
    return 0;
}
