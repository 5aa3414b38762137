#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

#define SIZE ((size_t)3 << 20)

static unsigned char *bytes(void)
{
    unsigned char *b = malloc(SIZE);
    cr_assert_not_null(b);
    for (size_t i = 0; i < SIZE; i++)
        b[i] = (unsigned char)(i * 2654435761u >> 13);
    return b;
}

static struct hasher *new_hasher(void)
{
    struct hasher *h = NULL;
    cr_assert_eq(hasher_new(DIGEST_SHA256, &h, NULL), 0);
    return h;
}

static void expect(const struct hasher *h, const unsigned char *b, size_t len)
{
    struct digest got, want;
    cr_assert_eq(hasher_peek(h, &got, NULL), 0);
    cr_assert_eq(digest_of(DIGEST_SHA256, b, len, &want, NULL), 0);
    cr_assert(digest_equal(&got, &want), "after %zu bytes", len);
}

/* In pieces of odd sizes, larger than the thread's own block too, with a look after each. */
Test(hasher, forked_gives_what_a_plain_one_gives)
{
    static const size_t pieces[] = {1, 4095, 262144, 262145, 700001, 0, 64, 524288};
    unsigned char *b = bytes();
    struct hasher *h = new_hasher();
    size_t at = 0;
    hasher_fork(h);
    hasher_fork(h); /* once is enough */
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        cr_assert_eq(hasher_update(h, b + at, pieces[i], NULL), 0);
        at += pieces[i];
        if (i % 2)
            expect(h, b, at);
    }
    expect(h, b, at);
    hasher_free(h); /* with its thread */
    free(b);
}

Test(hasher, goes_on_after_a_join)
{
    unsigned char *b = bytes();
    struct hasher *h = new_hasher();
    hasher_join(h); /* nothing to be joined */
    cr_assert_eq(hasher_update(h, b, 1000, NULL), 0);
    for (size_t at = 1000; at < SIZE; at += 300000) {
        size_t n = SIZE - at < 300000 ? SIZE - at : 300000;
        hasher_fork(h);
        memset(b + at, (int)at, n);
        unsigned char *copy = malloc(n);
        cr_assert_not_null(copy);
        memcpy(copy, b + at, n);
        cr_assert_eq(hasher_update(h, copy, n, NULL), 0);
        memset(copy, 0, n); /* the caller may do what it wants with its bytes */
        free(copy);
        hasher_join(h);
        expect(h, b, at + n);
    }
    hasher_free(h);
    free(b);
}

/* More than there can be threads: those without one hash on their own. */
Test(hasher, many_at_once)
{
    enum { MANY = 300 };
    unsigned char *b = bytes();
    struct hasher *h[MANY];
    for (size_t i = 0; i < MANY; i++) {
        h[i] = new_hasher();
        hasher_fork(h[i]);
        cr_assert_eq(hasher_update(h[i], b + i, 5000, NULL), 0);
    }
    for (size_t i = 0; i < MANY; i++) {
        expect(h[i], b + i, 5000);
        hasher_free(h[i]);
    }
    free(b);
}
