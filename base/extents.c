#include "base/extents.h"

#include <stdlib.h>
#include <string.h>

bool extents_add(struct extents *e, uint64_t first, uint64_t end)
{
    if (first >= end)
        return true;
    size_t at = 0;
    while (at < e->n && e->items[at].end < first)
        at++;
    size_t past = at; /* those that touch it */
    for (; past < e->n && e->items[past].first <= end; past++) {
        first = first < e->items[past].first ? first : e->items[past].first;
        end = end > e->items[past].end ? end : e->items[past].end;
    }
    if (past == at && e->n == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 8;
        struct span *items = reallocarray(e->items, cap, sizeof(*items));
        if (!items)
            return false;
        e->items = items;
        e->cap = cap;
    }
    if (past != at + 1)
        memmove(e->items + at + 1, e->items + past, (e->n - past) * sizeof(*e->items));
    e->n = e->n + 1 - (past - at);
    e->items[at] = (struct span){.first = first, .end = end};
    return true;
}

uint64_t extents_end(const struct extents *e, uint64_t at)
{
    for (size_t i = 0; i < e->n && e->items[i].first <= at; i++)
        if (at < e->items[i].end)
            return e->items[i].end;
    return at;
}

uint64_t extents_next(const struct extents *e, uint64_t at)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->items[i].first >= at)
            return e->items[i].first;
    return UINT64_MAX;
}

void extents_done(struct extents *e)
{
    free(e->items);
    *e = (struct extents){0};
}
