/* File lists in memory: made once for all who want them, let go when there are too many. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define CLIENTS 16

static struct hub_rows_cache cache;

static void set_up(void)
{
    memset(&cache, 0, sizeof(cache));
    cr_assert_eq(hub_rows_cache_init(&cache, NULL), 0);
}

static void tear_down(void)
{
    hub_rows_cache_done(&cache);
}

TestSuite(hub_mirror_cache, .init = set_up, .fini = tear_down, .timeout = 60);

static struct hub_rows *make_rows(size_t bytes)
{
    struct commit_files list = {.files = calloc(1, sizeof(*list.files)), .n = 1};
    struct hub_rows *rows = NULL;
    cr_assert_not_null(list.files);
    list.files[0] = (struct commit_file){.path = "a/b", .size = 7};
    cr_assert_eq(hub_rows_make(&list, NULL, &rows, NULL), 0);
    if (bytes)
        rows->bytes = bytes;
    return rows;
}

/* What a loader does, and how often it was called. */
struct maker {
    pthread_mutex_t lock; /* guards: calls, failures */
    unsigned calls;
    unsigned failures; /* so many of them fail */
    bool finds_none;   /* when they do not */
    size_t bytes;
    unsigned waits_for; /* until so many clients have begun */
    atomic_uint begun;
};

static int load(void *ctx, struct hub_rows **ret, struct error *err)
{
    struct maker *m = ctx;
    while (atomic_load(&m->begun) < m->waits_for)
        sched_yield();
    pthread_mutex_lock(&m->lock);
    bool fails = m->calls++ < m->failures;
    pthread_mutex_unlock(&m->lock);
    if (fails)
        return err_set(err, ERR_IO, "the disk is broken");
    if (m->finds_none)
        return 0;
    *ret = make_rows(m->bytes);
    return 1;
}

#define MAKER(...) ((struct maker){.lock = PTHREAD_MUTEX_INITIALIZER, __VA_ARGS__})

static int get(struct maker *m, const char *id, struct hub_rows **ret)
{
    struct hub_rows_key k = {.id = id, .commit = COMMIT};
    struct error err = ERROR_INIT;
    return hub_rows_cache_get(&cache, &k, load, m, ret, &err);
}

static void want(struct maker *m, const char *id)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    cr_assert_eq(get(m, id, &rows), 1);
    cr_assert_str_eq(rows->list.files[0].path, "a/b");
    cr_assert_eq(rows->n_folders, 1);
}

static void *client(void *arg)
{
    struct maker *m = arg;
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    atomic_fetch_add(&m->begun, 1);
    return get(m, "Org/Name", &rows) == 1 && rows->list.n == 1 ? m : NULL;
}

static unsigned count_served(struct maker *m)
{
    pthread_t threads[CLIENTS];
    unsigned served = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, client, m), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        served += ok != NULL;
    }
    return served;
}

Test(hub_mirror_cache, is_made_once_for_all)
{
    struct maker m = MAKER(.waits_for = CLIENTS);
    cr_assert_eq(count_served(&m), CLIENTS);
    cr_assert_eq(m.calls, 1);
    want(&m, "Org/Name");
    cr_assert_eq(m.calls, 1);
    want(&m, "Org/Other");
    cr_assert_eq(m.calls, 2);
}

Test(hub_mirror_cache, who_waits_for_one_that_fails_tries_again)
{
    struct maker m = MAKER(.waits_for = CLIENTS, .failures = 3);
    cr_assert_eq(count_served(&m), CLIENTS - 3);
    cr_assert_eq(m.calls, 4);
}

Test(hub_mirror_cache, keeps_nothing_of_what_is_not_there)
{
    struct maker m = MAKER(.finds_none = true);
    struct hub_rows *rows = NULL;
    cr_assert_eq(get(&m, "Org/Name", &rows), 0);
    cr_assert_eq(get(&m, "Org/Name", &rows), 0);
    cr_assert_eq(m.calls, 2);
    m.finds_none = false;
    want(&m, "Org/Name");
}

Test(hub_mirror_cache, lets_go_of_the_oldest)
{
    struct maker m = MAKER(.bytes = HUB_ROWS_BYTES_MAX / 2);
    want(&m, "a");
    want(&m, "b");
    want(&m, "a");
    want(&m, "c"); /* b was wanted longest ago */
    cr_assert_eq(m.calls, 3);
    want(&m, "a");
    want(&m, "c");
    cr_assert_eq(m.calls, 3);
    want(&m, "b");
    cr_assert_eq(m.calls, 4);
    cr_assert_leq(cache.bytes, HUB_ROWS_BYTES_MAX);
}

Test(hub_mirror_cache, keeps_one_however_long)
{
    struct maker m = MAKER(.bytes = (size_t)2 * HUB_ROWS_BYTES_MAX);
    want(&m, "a");
    want(&m, "a");
    cr_assert_eq(m.calls, 1);
    want(&m, "b");
    want(&m, "b");
    cr_assert_eq(m.calls, 2);
    cr_assert_eq(cache.bytes, (size_t)2 * HUB_ROWS_BYTES_MAX);
}

Test(hub_mirror_cache, holds_so_many_and_no_more)
{
    struct maker m = MAKER(.bytes = 1);
    char id[16];
    for (unsigned i = 0; i <= HUB_ROWS_CACHED; i++) {
        snprintf(id, sizeof(id), "org/%u", i);
        want(&m, id);
    }
    cr_assert_eq(cache.bytes, HUB_ROWS_CACHED);
    want(&m, "org/1");
    cr_assert_eq(m.calls, HUB_ROWS_CACHED + 1);
    want(&m, "org/0");
    cr_assert_eq(m.calls, HUB_ROWS_CACHED + 2);
}

Test(hub_mirror_cache, tells_views_of_a_list_apart)
{
    struct maker m = MAKER(.bytes = 1);
    const struct config_policy policy = {.max_file = 1};
    struct hub_rows_key k = {.id = "a", .commit = COMMIT, .policies = {&policy, NULL}};
    _cleanup_hub_rows_ struct hub_rows *one = NULL, *two = NULL, *three = NULL;
    want(&m, "a");
    cr_assert_eq(hub_rows_cache_get(&cache, &k, load, &m, &one, NULL), 1);
    k.has_folders = true;
    cr_assert_eq(hub_rows_cache_get(&cache, &k, load, &m, &two, NULL), 1);
    cr_assert_eq(m.calls, 3);
    cr_assert_eq(hub_rows_cache_get(&cache, &k, load, &m, &three, NULL), 1);
    cr_assert_eq(three, two);
    cr_assert_neq(two, one);
}

Test(hub_mirror_cache, takes_a_newer_list)
{
    struct maker m = MAKER(.bytes = 1);
    _cleanup_hub_rows_ struct hub_rows *newer = make_rows(5), *got = NULL;
    want(&m, "a");
    hub_rows_cache_put(&cache, "a", COMMIT, newer);
    cr_assert_eq(get(&m, "a", &got), 1);
    cr_assert_eq(got, newer);
    cr_assert_eq(cache.bytes, 5);
}
