/* What the stress programs of the store share: they count what is wrong, and go on. Header-only:
 * every program is one source file. */
#ifndef WB_TESTS_CHECK_H
#define WB_TESTS_CHECK_H

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "storage/store.h"

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

/* A store in a new folder; dir: a template. */
static inline bool open_new(char *dir, const struct store_options *o, struct store **ret)
{
    struct error err = ERROR_INIT;
    if (mkdtemp(dir) && store_open(o, ret, &err) == 0)
        return true;
    fprintf(stderr, "%s: %s\n", dir, err.text);
    return false;
}

/* When the threads stop: WB_STRESS_SECONDS from now. */
static inline uint64_t stress_end_ms(void)
{
    const char *seconds = getenv("WB_STRESS_SECONDS");
    return clock_monotonic_ms() + UINT64_C(1000) * (seconds ? strtoul(seconds, NULL, 10) : 4);
}

#define THREADS_MAX 64u

/* n threads of one kind and m of another; each is told its number, from 0 on in its kind. */
static inline void run_threads(unsigned n, void *(*one)(void *), unsigned m, void *(*other)(void *))
{
    pthread_t threads[THREADS_MAX];
    unsigned numbers[THREADS_MAX];
    if (n + m > THREADS_MAX)
        abort();
    for (unsigned i = 0; i < n + m; i++) {
        numbers[i] = i < n ? i : i - n;
        if (pthread_create(&threads[i], NULL, i < n ? one : other, &numbers[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < n + m; i++)
        pthread_join(threads[i], NULL);
}

#endif
