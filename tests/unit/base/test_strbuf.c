#include <criterion/criterion.h>
#include <string.h>

#include "base/strbuf.h"

Test(strbuf, starts_as_an_empty_string)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    cr_assert_str_eq(strbuf_str(&b), "");
    strbuf_reset(&b);
    strbuf_truncate(&b, 10);
    cr_assert_eq(b.len, 0);
    strbuf_put(&b, NULL, 0);
    cr_assert_str_eq(strbuf_str(&b), "");
    cr_assert_not(strbuf_failed(&b));
}

Test(strbuf, grows_and_stays_terminated)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    for (int i = 0; i < 1000; i++) {
        strbuf_putc(&b, 'x');
        cr_assert_eq(b.data[b.len], '\0');
    }
    cr_assert_eq(strlen(b.data), 1000);
    strbuf_puts(&b, "yz");
    strbuf_printf(&b, "%d-%s", 42, "end");
    cr_assert_str_eq(b.data + 1000, "yz42-end");
    strbuf_truncate(&b, 3);
    cr_assert_str_eq(b.data, "xxx");
    strbuf_truncate(&b, 30); /* never grows */
    cr_assert_eq(b.len, 3);
    strbuf_reset(&b);
    cr_assert_str_eq(b.data, "");
}

Test(strbuf, keeps_nul_bytes)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_put(&b, "a\0b", 3);
    cr_assert_eq(b.len, 3);
    cr_assert_eq(memcmp(b.data, "a\0b", 4), 0);
}

Test(strbuf, printf_of_exactly_what_is_left)
{
    for (size_t n = 0; n < 200; n++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_printf(&b, "%*s", (int)n, "");
        strbuf_printf(&b, "%s", "tail");
        cr_assert_eq(b.len, n + 4);
        cr_assert_str_eq(b.data + n, "tail");
    }
}

Test(strbuf, reserve_then_advance)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    char *at = strbuf_reserve(&b, 100);
    memset(at, 'q', 100);
    strbuf_advance(&b, 60);
    cr_assert_eq(b.len, 60);
    cr_assert_eq(strlen(b.data), 60);
}

Test(strbuf, overflow_is_sticky)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "kept");
    cr_assert_null(strbuf_reserve(&b, SIZE_MAX));
    cr_assert(strbuf_failed(&b));
    strbuf_puts(&b, "more");
    strbuf_printf(&b, "%d", 1);
    strbuf_advance(&b, 4);
    cr_assert_eq(b.len, 4);
    cr_assert_str_eq(b.data, "kept");
    cr_assert_null(strbuf_take(&b));
    cr_assert_not(strbuf_failed(&b));
    cr_assert_null(strbuf_reserve(&b, SIZE_MAX / 2));
    cr_assert(strbuf_failed(&b));
}

Test(strbuf, take_hands_over)
{
    struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "mine");
    _cleanup_free_ char *text = strbuf_take(&b);
    cr_assert_str_eq(text, "mine");
    cr_assert_null(b.data);
    cr_assert_eq(b.len, 0);
    _cleanup_free_ char *empty = strbuf_take(&b);
    cr_assert_str_eq(empty, "");
}

Test(strbuf, urlencoding)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_put_urlencoded(&b, "aZ09-._~", NULL);
    cr_assert_str_eq(b.data, "aZ09-._~");
    strbuf_reset(&b);
    strbuf_put_urlencoded(&b, "a/b c%2F+\xc3\xa9?\x01\xff", "/");
    cr_assert_str_eq(b.data, "a/b%20c%252F%2B%C3%A9%3F%01%FF");
    strbuf_reset(&b);
    strbuf_put_urlencoded(&b, "a/b", NULL);
    cr_assert_str_eq(b.data, "a%2Fb");
}
