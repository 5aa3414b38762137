#include "model/module_list.h"

#include <stdlib.h>
#include <string.h>

/* Real lists have a few hundred entries, or one name for each module; globs that are more than the
 * beginning of a name are a few dozen. */
#define NAMES_MAX 200000u
#define PARTS_MAX 4096u
#define GLOBS_MAX 256u

#define EXPRESSION_MAX 512u /* a longer one matches nothing */

static const char parts_name[] = "parts of modules' names";

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* ---- filling --------------------------------------------------------------------------------- */

static int add(struct module_texts *t, uint32_t *count, uint32_t limit, const char *what,
               const struct module_text *one, size_t len, struct error *err)
{
    if (*count >= limit)
        return err_set(err, ERR_TOO_LARGE, "lists of over %u %s", limit, what);
    if ((t->n & (t->n - 1)) == 0) { /* a power of two: full */
        struct module_text *grown = reallocarray(t->items, t->n ? t->n * 2 : 1, sizeof(*grown));
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory");
        t->items = grown;
    }
    struct module_text copy = {strndup(one->text, len), one->group};
    if (!copy.text)
        return err_set(err, ERR_NOMEM, "out of memory");
    t->items[t->n++] = copy;
    ++*count;
    return 0;
}

int module_list_add_name(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err)
{
    const struct module_text one = {(char *)text, group};
    return add(&l->names, &c->names, NAMES_MAX, "modules", &one, strlen(text), err);
}

int module_list_add_part(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err)
{
    const struct module_text one = {(char *)text, group};
    return add(&l->parts, &c->parts, PARTS_MAX, parts_name, &one, strlen(text), err);
}

int module_list_add_glob(struct module_list *l, struct module_counts *c, const char *text,
                         uint32_t group, struct error *err)
{
    const struct module_text one = {(char *)text, group};
    size_t len = strcspn(text, "*"), stars = strspn(text + len, "*");
    if (!text[len])
        return module_list_add_name(l, c, text, group, err);
    if (group == 0 && len == 0) { /* "*part*" */
        size_t part = strcspn(text + stars, "*");
        const char *rest = text + stars + part;
        if (*rest && !rest[strspn(rest, "*")]) {
            const struct module_text inner = {(char *)text + stars, group};
            return add(&l->parts, &c->parts, PARTS_MAX, parts_name, &inner, part, err);
        }
    }
    if (group == 0 && !text[len + stars])
        return add(&l->starts, &c->parts, PARTS_MAX, parts_name, &one, len, err);
    return add(&l->globs, &c->globs, GLOBS_MAX, "expressions", &one, strlen(text), err);
}

int module_list_add_expression(struct module_list *l, struct module_counts *c, const char *text,
                               uint32_t group, struct error *err)
{
    char glob[EXPRESSION_MAX];
    size_t n = 0;
    const char *p = text + (text[0] == '^');
    for (; *p && n < sizeof(glob) - 2; p++) {
        if (p[0] == '.' && p[1] == '*') {
            glob[n++] = '*';
            p++;
        } else if (p[0] == '\\' && p[1] == '.') {
            glob[n++] = '.';
            p++;
        } else if (p[0] == '$' && !p[1]) {
            break;
        } else if (strchr("\\+?()[]{}|^$", p[0])) {
            return 0;
        } else {
            glob[n++] = *p;
        }
    }
    if (*p && *p != '$')
        return 0;
    if (!*p)
        glob[n++] = '*'; /* re.match: open at the end */
    glob[n] = '\0';
    return module_list_add_glob(l, c, glob, group, err);
}

/* ---- sorting --------------------------------------------------------------------------------- */

static int compare(const void *pa, const void *pb)
{
    const struct module_text *a = pa, *b = pb;
    int c = strcmp(a->text, b->text);
    return c ? c : (a->group > b->group) - (a->group < b->group);
}

static void sort(struct module_texts *t)
{
    if (t->n)
        qsort(t->items, t->n, sizeof(*t->items), compare);
}

/* Leaves out what begins with another one: the shorter matches wherever it does. Of what is left
 * only the last that is not behind a text can be the beginning of it. */
static void drop_longer(struct module_texts *t)
{
    size_t n = 0;
    sort(t);
    for (size_t i = 0; i < t->n; i++)
        if (n && starts_with(t->items[i].text, t->items[n - 1].text))
            free(t->items[i].text);
        else
            t->items[n++] = t->items[i];
    t->n = n;
}

void module_list_sort(struct module_list *l)
{
    sort(&l->names);
    drop_longer(&l->starts);
    drop_longer(&l->parts);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* How many of the sorted texts are not behind this one. */
static size_t not_behind(const struct module_texts *t, const char *text, uint64_t *work)
{
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        ++*work;
        if (strcmp(t->items[mid].text, text) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool has_start(const struct module_texts *t, const char *text, uint64_t *work)
{
    size_t n = not_behind(t, text, work);
    return n && starts_with(text, t->items[n - 1].text);
}

static bool has_part(const struct module_texts *t, const char *text, uint64_t *work)
{
    if (t->n == 0)
        return false;
    do
        if (has_start(t, text, work))
            return true;
    while (*text++);
    return false;
}

/* Where a name is there several times, they are sorted by their groups. */
static uint32_t group_of_name(const struct module_texts *t, const char *name, uint64_t *work)
{
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        ++*work;
        if (strcmp(t->items[mid].text, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->n && strcmp(t->items[low].text, name) == 0 ? t->items[low].group : MODULE_NONE;
}

/* "*" stands for any text; everything else is literal. Linear: the earliest place that fits a
 * middle part leaves the most for those behind it. */
static bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t len)
{
    const char *star = strchr(pattern, '*');
    const char *last = strrchr(pattern, '*') + 1;
    size_t head = (size_t)(star - pattern), tail = (size_t)(pattern + pattern_len - last);
    if (len < head + tail || memcmp(pattern, text, head) != 0 ||
        memcmp(text + len - tail, last, tail) != 0)
        return false;
    const char *at = text + head, *end = text + len - tail;
    for (const char *part = star + 1; part < last;) {
        size_t n = strcspn(part, "*");
        const char *found = n ? memmem(at, (size_t)(end - at), part, n) : at;
        if (!found)
            return false;
        at = found + n;
        part += n + 1;
    }
    return true;
}

uint32_t module_list_find(const struct module_list *l, const char *name, uint64_t *work)
{
    size_t len = strlen(name);
    uint32_t group = group_of_name(&l->names, name, work);
    if (group != 0 && (has_start(&l->starts, name, work) || has_part(&l->parts, name, work)))
        group = 0;
    for (size_t i = 0; i < l->globs.n && l->globs.items[i].group < group; i++) {
        const char *glob = l->globs.items[i].text;
        size_t n = strlen(glob);
        *work += n + len;
        if (glob_match(glob, n, name, len))
            return l->globs.items[i].group;
    }
    return group;
}

static void texts_done(struct module_texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->items[i].text);
    free(t->items);
}

void module_list_done(struct module_list *l)
{
    texts_done(&l->names);
    texts_done(&l->starts);
    texts_done(&l->parts);
    texts_done(&l->globs);
    *l = (struct module_list){0};
}
