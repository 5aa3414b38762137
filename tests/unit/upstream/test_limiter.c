#include <criterion/criterion.h>
#include <pthread.h>

#include "base/clock.h"
#include "upstream/limiter.h"

#define KB 1024u

struct taker {
    struct limiter *limiter;
    uint64_t bytes;
    uint64_t took_ms;
    atomic_bool *cancel;
    int rc;
};

static void *take(void *arg)
{
    struct taker *t = arg;
    struct error err = ERROR_INIT;
    uint64_t start = clock_monotonic_ms();
    for (uint64_t got = 0; got < t->bytes && t->rc == 0; got += 16 * KB)
        t->rc = limiter_take(t->limiter, 16 * KB, t->cancel, &err);
    t->took_ms = clock_monotonic_ms() - start;
    return NULL;
}

static struct limiter *limiter(uint64_t rate, struct limiter *above)
{
    struct limiter *l = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(limiter_new(rate, above, &l, &err), 0);
    return l;
}

Test(limiter, bytes_take_their_time)
{
    struct limiter *l = limiter(1024 * KB, NULL);
    struct taker t = {.limiter = l, .bytes = 512 * KB};
    take(&t);
    cr_assert_geq(t.took_ms, 400, "%lu", t.took_ms);
    limiter_free(l);
}

Test(limiter, what_was_not_used_is_not_saved_up)
{
    struct limiter *l = limiter(1024 * KB, NULL);
    struct error err;
    uint64_t end = clock_monotonic_ms() + 500;
    pthread_cond_t cond;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cond_init_monotonic(&cond);
    cr_assert_eq(limiter_take(l, 16 * KB, NULL, &err), 0);
    pthread_mutex_lock(&lock);
    while (cond_wait_until(&cond, &lock, end)) {
    }
    pthread_mutex_unlock(&lock);
    struct taker t = {.limiter = l, .bytes = 256 * KB};
    take(&t);
    cr_assert_geq(t.took_ms, 150, "%lu", t.took_ms);
    limiter_free(l);
}

Test(limiter, the_one_above_counts_for_all)
{
    struct limiter *all = limiter(512 * KB, NULL);
    struct limiter *a = limiter(10240 * KB, all), *b = limiter(10240 * KB, all);
    struct taker t[2] = {{.limiter = a, .bytes = 192 * KB}, {.limiter = b, .bytes = 192 * KB}};
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, take, &t[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    uint64_t longer = t[0].took_ms > t[1].took_ms ? t[0].took_ms : t[1].took_ms;
    uint64_t shorter = t[0].took_ms < t[1].took_ms ? t[0].took_ms : t[1].took_ms;
    cr_assert_geq(longer, 600);
    cr_assert_geq(shorter * 10, longer * 6, "in turns: %lu and %lu", shorter, longer);
    limiter_free(a);
    limiter_free(b);
    limiter_free(all);
}

Test(limiter, a_wait_can_be_cancelled)
{
    struct limiter *l = limiter(1, NULL);
    atomic_bool cancel = false;
    struct taker t = {.limiter = l, .bytes = 1024 * KB, .cancel = &cancel};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, take, &t), 0);
    atomic_store(&cancel, true);
    pthread_join(thread, NULL);
    cr_assert_lt(t.rc, 0);
    cr_assert_lt(t.took_ms, 2000);
    limiter_free(l);
}
