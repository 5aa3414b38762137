/* A store in a folder of its own, for one test. Header-only: every test program is one source file.
 */
#ifndef WB_TESTS_FOLDER_STORE_H
#define WB_TESTS_FOLDER_STORE_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "storage/store.h"

#define FOLDER_STORE_MAX 32

static inline struct store *folder_store_open(char ret_dir[static FOLDER_STORE_MAX])
{
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    strcpy(ret_dir, "/tmp/wb-store-XXXXXX");
    cr_assert(mkdtemp(ret_dir));
    struct store_options o = {.dir = ret_dir};
    cr_assert_eq(store_open(&o, &s, &err), 0, "%s", err.text);
    return s;
}

static inline int folder_store_remove(const char *path, const struct stat *st, int type,
                                      struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void folder_store_close(struct store *s, const char *dir)
{
    store_close(s);
    nftw(dir, folder_store_remove, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
