/* To whose clients bytes were given before anybody could tell whether they are right: when they
 * turn out wrong, or are given up, those must not add the end of other ones to them, and nobody
 * else has to be refused for it. */
#ifndef WB_STORAGE_LENT_H
#define WB_STORAGE_LENT_H

#include <stdbool.h>

#define NAME_ID_SIZE 16
/* Stands for a name, or names, in a row; all zeros stand for none. */
struct name_id {
    unsigned char raw[NAME_ID_SIZE];
};

#define LENT_MAX 16u
struct lent {
    bool all; /* too many repositories, or nobody knows */
    unsigned n;
    struct name_id to[LENT_MAX];
};

/* The beginning of the SHA-256 of the two, each with its NUL. False when there is no memory. */
bool name_id_of(const char *name, const char *second, struct name_id *ret);
bool name_id_equal(const struct name_id *a, const struct name_id *b);

void lent_add(struct lent *l, const char *repository);
void lent_add_all(struct lent *l, const struct lent *others);
bool lent_is_empty(const struct lent *l);

#endif
