#include <criterion/criterion.h>
#include <string.h>

#include "base/extents.h"

#define SIZE 200u

static void expect(const struct extents *e, size_t n, const struct span *spans)
{
    cr_assert_eq(e->n, n, "%zu extents instead of %zu", e->n, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(e->items[i].first == spans[i].first && e->items[i].end == spans[i].end,
                  "extent %zu is [%llu, %llu)", i, (unsigned long long)e->items[i].first,
                  (unsigned long long)e->items[i].end);
}

Test(extents, keeps_apart_what_does_not_touch_and_joins_what_does)
{
    struct extents e = {0};
    cr_assert(extents_add(&e, 10, 20) && extents_add(&e, 40, 50) && extents_add(&e, 25, 30));
    expect(&e, 3, (struct span[]){{10, 20}, {25, 30}, {40, 50}});
    cr_assert(extents_add(&e, 20, 25));
    expect(&e, 2, (struct span[]){{10, 30}, {40, 50}});
    cr_assert(extents_add(&e, 12, 15) && extents_add(&e, 40, 50));
    expect(&e, 2, (struct span[]){{10, 30}, {40, 50}});
    cr_assert(extents_add(&e, 0, 1) && extents_add(&e, 60, 70) && extents_add(&e, 5, 65));
    expect(&e, 2, (struct span[]){{0, 1}, {5, 70}});
    cr_assert(extents_add(&e, 0, UINT64_MAX));
    expect(&e, 1, (struct span[]){{0, UINT64_MAX}});
    extents_done(&e);
    cr_assert(!e.items && !e.n && !e.cap);
}

Test(extents, an_empty_one_changes_nothing)
{
    struct extents e = {0};
    cr_assert(extents_add(&e, 5, 5) && extents_add(&e, 6, 5));
    cr_assert_eq(e.n, 0);
    cr_assert_eq(extents_end(&e, 5), 5);
    cr_assert_eq(extents_next(&e, 0), UINT64_MAX);
    cr_assert(extents_add(&e, 1, 3) && extents_add(&e, 5, 7) && extents_add(&e, 3, 3));
    expect(&e, 2, (struct span[]){{1, 3}, {5, 7}});
    extents_done(&e);
}

/* Against a map of bytes. */
Test(extents, says_of_every_byte_what_a_map_of_bytes_says)
{
    unsigned dice = 1;
    for (unsigned round = 0; round < 200; round++) {
        struct extents e = {0};
        char map[SIZE + 1] = {0};
        for (unsigned n = 0; n < 30; n++) {
            dice = dice * 1103515245u + 12345u;
            unsigned first = (dice >> 16) % SIZE;
            dice = dice * 1103515245u + 12345u;
            unsigned end = first + (dice >> 16) % 12;
            end = end < SIZE ? end : SIZE;
            cr_assert(extents_add(&e, first, end));
            memset(map + first, 1, end - first);
            for (unsigned at = 0; at < SIZE; at++) {
                unsigned stop = at;
                while (map[stop])
                    stop++;
                cr_assert_eq(extents_end(&e, at), stop);
                uint64_t next = UINT64_MAX;
                for (unsigned i = SIZE; i-- > at;)
                    if (map[i] && (i == 0 || !map[i - 1]))
                        next = i;
                cr_assert_eq(extents_next(&e, at), next);
            }
        }
        extents_done(&e);
    }
}
