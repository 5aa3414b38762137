/* Which bytes of something are there. Not thread-safe. */
#ifndef WB_BASE_EXTENTS_H
#define WB_BASE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    uint64_t first, end; /* [first, end) */
};

/* Sorted, apart from each other: those that touch are one. All zeros is empty. */
struct extents {
    struct span *items; /* owned */
    size_t n, cap;
};

/* An empty one changes nothing. False when out of memory; all is as before then. */
bool extents_add(struct extents *e, uint64_t first, uint64_t end);
/* The end of the extent that `at` is in, `at` itself when it is in none. */
uint64_t extents_end(const struct extents *e, uint64_t at);
/* Where the first extent at or behind `at` begins; UINT64_MAX: there is none. */
uint64_t extents_next(const struct extents *e, uint64_t at);
void extents_done(struct extents *e);

#endif
