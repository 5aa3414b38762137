/* Which GGUF file of a repository a client of the old kind means by a tag. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/select.h"
#include "model/weights.h"
#include "server/hub_json.h"

#define LABELS_MAX 64u

struct choice {
    const struct hub_listing *l;
    struct select_file *files; /* one for each of the listing's */
    char labels[LABELS_MAX][QUANT_LABEL_MAX];
    size_t n_labels;
};

static void choice_done(struct choice *c)
{
    free(c->files);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_projector(const char *path)
{
    return strcasestr(base_name(path), "mmproj") != NULL;
}

/* A model's own file; label: "" when its name has none. */
static bool is_model(const char *path, char label[static QUANT_LABEL_MAX])
{
    struct select_file f = {.path = path};
    *label = '\0';
    if (select_quants(&f, 1, (char(*)[QUANT_LABEL_MAX])label, 1))
        return true;
    return weights_format_of(path) == WEIGHTS_GGUF && !is_projector(path) &&
           !strcasestr(base_name(path), "imatrix");
}

static bool has_label(const struct choice *c, const char *label)
{
    for (size_t i = 0; i < c->n_labels; i++)
        if (strcmp(c->labels[i], label) == 0)
            return true;
    return false;
}

static int no_gguf(const struct choice *c, const char *tag, struct error *err)
{
    _cleanup_strbuf_ struct strbuf list = STRBUF_INIT;
    for (size_t i = 0; i < c->n_labels; i++)
        strbuf_printf(&list, "%s%s", i ? ", " : "", c->labels[i]);
    if (c->n_labels == 0)
        return err_set(err, ERR_NOT_FOUND, "no GGUF file is there");
    return err_set(err, ERR_NOT_FOUND,
                   "no GGUF file of the quantisation \"%.100s\" is there; there are %s", tag,
                   strbuf_str(&list));
}

/* The files that are sorted first: of a split set that is its first part. */
static int pick_label(struct choice *c, const char *label, struct hub_picked *ret,
                      struct error *err)
{
    static const struct select_policy everything = {.allow_pickle = true};
    struct hub_picked p = {0};
    if (select_files(c->files, c->l->list.n, &everything, label, err) < 0)
        return -1;
    for (size_t i = 0; i < c->l->list.n; i++) {
        const struct commit_file *f = &c->l->list.files[i];
        if (!c->files[i].selected || weights_format_of(f->path) != WEIGHTS_GGUF)
            continue;
        const struct commit_file **what = is_projector(f->path) ? &p.projector : &p.model;
        if (!*what)
            *what = f;
    }
    if (!p.model)
        return no_gguf(c, label, err);
    *ret = p;
    return 0;
}

/* A file whose name has no label, with the first projector that there is. */
static int pick_file(const struct choice *c, const struct commit_file *model,
                     struct hub_picked *ret)
{
    struct hub_picked p = {.model = model};
    for (size_t i = 0; i < c->l->list.n && !p.projector; i++) {
        const struct commit_file *f = &c->l->list.files[i];
        if (weights_format_of(f->path) == WEIGHTS_GGUF && is_projector(f->path))
            p.projector = f;
    }
    *ret = p;
    return 0;
}

static int pick_latest(struct choice *c, struct hub_picked *ret, struct error *err)
{
    static const char *const preferred[] = {"Q4_K_M", "Q8_0"};
    for (size_t i = 0; i < ARRAY_LEN(preferred); i++)
        if (has_label(c, preferred[i]))
            return pick_label(c, preferred[i], ret, err);
    for (size_t i = 0; i < c->l->list.n; i++) {
        const struct commit_file *f = &c->l->list.files[i];
        char label[QUANT_LABEL_MAX];
        if (is_model(f->path, label))
            return *label ? pick_label(c, label, ret, err) : pick_file(c, f, ret);
    }
    return no_gguf(c, "latest", err);
}

/* "q4" is what the Hub takes for any of Q4_K_M, Q4_K_S, Q4_0: the usual one first. */
static int pick_beginning(struct choice *c, const char *tag, struct hub_picked *ret,
                          struct error *err)
{
    static const char *const usual[] = {"_K_M", "_0", "_"};
    size_t n = strlen(tag);
    for (size_t k = 0; k < ARRAY_LEN(usual); k++)
        for (size_t i = 0; i < c->n_labels; i++)
            if (strncasecmp(c->labels[i], tag, n) == 0 &&
                strncmp(c->labels[i] + n, usual[k], strlen(usual[k])) == 0)
                return pick_label(c, c->labels[i], ret, err);
    return no_gguf(c, tag, err);
}

int hub_pick_gguf(const struct hub_listing *l, const char *tag, struct hub_picked *ret,
                  struct error *err)
{
    _cleanup_(choice_done) struct choice c = {.l = l};
    char label[QUANT_LABEL_MAX];
    c.files = calloc(l->list.n ? l->list.n : 1, sizeof(*c.files));
    if (!c.files)
        return err_set(err, ERR_NOMEM, "out of memory for %zu files", l->list.n);
    for (size_t i = 0; i < l->list.n; i++)
        c.files[i] =
            (struct select_file){.path = l->list.files[i].path, .size = l->list.files[i].size};
    c.n_labels = select_quants(c.files, l->list.n, c.labels, LABELS_MAX);
    if (!*tag || strcasecmp(tag, "latest") == 0)
        return pick_latest(&c, ret, err);
    for (size_t i = 0; i < l->list.n; i++)
        if (strcasecmp(base_name(l->list.files[i].path), tag) == 0 &&
            is_model(l->list.files[i].path, label))
            return pick_file(&c, &l->list.files[i], ret);
    if (quant_label_parse(tag, label))
        return pick_label(&c, label, ret, err);
    return pick_beginning(&c, tag, ret, err);
}
