/* Names out of hostile headers: quoting them for an error text, and finding duplicates among very
 * many. Internal to model/. */
#ifndef WB_MODEL_NAMES_H
#define WB_MODEL_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Writes at most 100 bytes of the name, in single quotes, with everything that is not printable
 * UTF-8 as \xHH and "..." where it was cut; returns buf. */
#define NAME_QUOTED_MAX 512
char *name_quote(const void *name, size_t n, char buf[static NAME_QUOTED_MAX]);

/* Names borrowed from the parsed bytes. */
struct name {
    const char *text; /* not NUL terminated */
    size_t len;
    uint64_t at;    /* byte of the file at which it stands */
    uint64_t value; /* whatever the caller keeps with it */
};

struct seen_names {
    struct name *items; /* owned */
    size_t n, cap;
};

void seen_names_done(struct seen_names *l);
#define _cleanup_names_ _cleanup_(seen_names_done)
int seen_names_add(struct seen_names *l, struct name name, struct error *err);
/* Sorts the list (an order of its own, n log n whatever the names are) and returns the second of a
 * pair of equal names, the one that stands first in the file; NULL when all differ. */
const struct name *seen_names_sort(struct seen_names *l);
/* Looks a name up in a sorted list; NULL when absent. */
const struct name *seen_names_find(const struct seen_names *l, const char *text);

/* The order of seen_names_sort(), for lists that carry more. */
int name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
