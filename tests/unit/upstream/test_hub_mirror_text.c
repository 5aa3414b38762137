/* Long texts: made once for all who are sent them at the same time, and not kept. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

#define CLIENTS 16
#define LONG ((size_t)100 * 1024)

static struct hub_texts texts;

static void set_up(void)
{
    memset(&texts, 0, sizeof(texts));
    cr_assert_eq(hub_texts_init(&texts, NULL), 0);
}

static void tear_down(void)
{
    cr_expect_null(texts.first);
    hub_texts_done(&texts);
}

TestSuite(hub_mirror_text, .init = set_up, .fini = tear_down, .timeout = 60);

struct maker {
    atomic_uint calls, begun, right;
    unsigned failures;  /* so many calls fail */
    unsigned waits_for; /* until so many clients have begun */
    bool finds_none;
    size_t len;
    pthread_barrier_t have; /* every client has its text */
};

static int make(void *ctx, struct strbuf *to, struct error *err)
{
    struct maker *m = ctx;
    while (atomic_load(&m->begun) < m->waits_for)
        sched_yield();
    if (atomic_fetch_add(&m->calls, 1) < m->failures)
        return err_set(err, ERR_IO, "the disk is broken");
    for (size_t i = 0; i < m->len; i++)
        strbuf_putc(to, 'x');
    return m->finds_none ? 0 : 1;
}

static int get(struct maker *m, const char *key, struct hub_text **ret)
{
    struct error err = ERROR_INIT;
    return hub_text_get(&texts, key, make, m, ret, &err);
}

static void *client(void *arg)
{
    struct maker *m = arg;
    _cleanup_hub_text_ struct hub_text *t = NULL;
    size_t n = 0;
    atomic_fetch_add(&m->begun, 1);
    if (get(m, "a", &t) == 1 && strlen(hub_text_bytes(t, &n)) == m->len && n == m->len)
        atomic_fetch_add(&m->right, 1);
    pthread_barrier_wait(&m->have);
    return NULL;
}

static void run_clients(struct maker *m)
{
    pthread_t threads[CLIENTS];
    pthread_barrier_init(&m->have, NULL, CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, client, m), 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&m->have);
}

Test(hub_mirror_text, is_made_once_for_all)
{
    struct maker m = {.waits_for = CLIENTS, .len = LONG};
    run_clients(&m);
    cr_expect_eq(m.right, CLIENTS);
    cr_expect_eq(m.calls, 1);
}

Test(hub_mirror_text, who_waits_for_one_that_fails_tries_again)
{
    struct maker m = {.waits_for = CLIENTS, .len = LONG, .failures = 3};
    run_clients(&m);
    cr_expect_eq(m.right, CLIENTS - 3);
    cr_expect_eq(m.calls, 4);
}

Test(hub_mirror_text, is_shared_as_long_as_somebody_has_it)
{
    struct maker m = {.len = LONG};
    struct hub_text *one = NULL, *two = NULL, *other = NULL;
    cr_assert_eq(get(&m, "a", &one), 1);
    cr_assert_eq(get(&m, "a", &two), 1);
    cr_assert_eq(get(&m, "b", &other), 1);
    cr_expect_eq(one, two);
    cr_expect_neq(one, other);
    hub_text_unref(one);
    one = NULL;
    cr_assert_eq(get(&m, "a", &one), 1);
    cr_expect_eq(one, two);
    cr_expect_eq(m.calls, 2);
    hub_text_unref(one);
    hub_text_unref(two);
    hub_text_unref(other);
    cr_assert_eq(get(&m, "a", &one), 1);
    cr_expect_eq(m.calls, 3);
    hub_text_unref(one);
}

Test(hub_mirror_text, short_ones_are_not_looked_for)
{
    struct maker m = {.len = 10};
    struct hub_text *one = NULL, *two = NULL;
    cr_assert_eq(get(&m, "a", &one), 1);
    cr_expect_null(texts.first);
    cr_assert_eq(get(&m, "a", &two), 1);
    cr_expect_neq(one, two);
    hub_text_unref(one);
    hub_text_unref(two);
}

Test(hub_mirror_text, nothing_is_kept_of_what_cannot_be_made)
{
    struct maker m = {.len = LONG, .finds_none = true};
    struct hub_text *t = NULL;
    cr_expect_eq(get(&m, "a", &t), 0);
    cr_expect_null(t);
    m.failures = 2;
    cr_expect_eq(get(&m, "a", &t), -1);
    cr_expect_null(t);
    cr_expect_null(texts.first);
}

Test(hub_mirror_text, one_of_its_own)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    _cleanup_hub_text_ struct hub_text *t = NULL, *none = NULL;
    size_t n;
    strbuf_puts(&b, "abc");
    cr_assert_eq(hub_text_own(&b, &t, NULL), 0);
    cr_expect_str_eq(hub_text_bytes(t, &n), "abc");
    cr_expect_eq(n, 3);
    b.failed = true;
    cr_expect_eq(hub_text_own(&b, &none, NULL), -1);
}
