#include "model/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define SHOWN 100

char *name_quote(const void *name, size_t n, char buf[static NAME_QUOTED_MAX])
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = name;
    char *out = buf;
    size_t shown = 0;
    *out++ = '\'';
    while (shown < n && shown < SHOWN) {
        unsigned step = utf8_sequence(p + shown, n - shown);
        unsigned char c = p[shown];
        if (step == 0 || c < 0x20 || c == 0x7f || c == '\'' || c == '\\' ||
            (step == 2 && c == 0xc2 && p[shown + 1] < 0xa0)) { /* C1 controls */
            *out++ = '\\';
            *out++ = 'x';
            *out++ = hex[c >> 4];
            *out++ = hex[c & 15];
            step = 1;
        } else {
            memcpy(out, p + shown, step);
            out += step;
        }
        shown += step;
    }
    *out++ = '\'';
    strcpy(out, shown < n ? "..." : "");
    return buf;
}

void seen_names_done(struct seen_names *l)
{
    free(l->items);
    *l = (struct seen_names){0};
}

int seen_names_add(struct seen_names *l, struct name name, struct error *err)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct name *items = reallocarray(l->items, cap, sizeof(*items));
        if (!items)
            return err_set(err, ERR_NOMEM, "out of memory for %zu names", cap);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = name;
    return 0;
}

/* By length first: most comparisons end there. */
int name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len != b_len)
        return a_len < b_len ? -1 : 1;
    return a_len ? memcmp(a, b, a_len) : 0;
}

static int compare(const void *pa, const void *pb)
{
    const struct name *a = pa, *b = pb;
    int c = name_compare(a->text, a->len, b->text, b->len);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

const struct name *seen_names_sort(struct seen_names *l)
{
    const struct name *found = NULL;
    if (l->n)
        qsort(l->items, l->n, sizeof(*l->items), compare);
    for (size_t i = 1; i < l->n; i++) {
        const struct name *a = &l->items[i - 1], *b = &l->items[i];
        if (name_compare(a->text, a->len, b->text, b->len) == 0 && (!found || b->at < found->at))
            found = b;
    }
    return found;
}

const struct name *seen_names_find(const struct seen_names *l, const char *text)
{
    size_t len = strlen(text), low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct name *m = &l->items[middle];
        int c = name_compare(text, len, m->text, m->len);
        if (c == 0)
            return m;
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
