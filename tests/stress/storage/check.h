/* What the stress programs of the store share: they count what is wrong, and go on. Header-only:
 * every program is one source file. */
#ifndef WB_TESTS_CHECK_H
#define WB_TESTS_CHECK_H

#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic unsigned long bad;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                             \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            atomic_fetch_add(&bad, 1);                                                             \
        }                                                                                          \
    } while (0)

static inline int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void remove_folder(const char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
