#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

Test(err, set_fills_code_and_text_and_returns_minus_one)
{
    struct error err = {.retry_after = 7};
    cr_assert_eq(err_set(&err, ERR_DENIED, "no %s for %d", "cake", 3), -1);
    cr_assert_eq(err.code, ERR_DENIED);
    cr_assert_str_eq(err.text, "no cake for 3");
    cr_assert_eq(err.retry_after, 0);
}

Test(err, null_is_a_caller_who_does_not_care)
{
    cr_assert_eq(err_set(NULL, ERR_IO, "x"), -1);
    cr_assert_eq(err_wrap(NULL, "x"), -1);
    errno = ENOSPC;
    cr_assert_eq(err_errno(NULL, "x"), -1);
}

Test(err, text_is_one_printable_line)
{
    struct error err;
    err_set(&err, ERR_UPSTREAM, "a\r\nX-Evil: 1\x1b[31m\x7f%c", 0x01);
    cr_assert_str_eq(err.text, "a  X-Evil: 1 [31m  ");
}

Test(err, long_text_is_cut_and_terminated)
{
    char big[5000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    struct error err;
    err_set(&err, ERR_IO, "%s", big);
    cr_assert_eq(strlen(err.text), sizeof(err.text) - 1);
}

Test(err, wrap_keeps_code_and_retry_after)
{
    struct error err = {.code = ERR_RATE_LIMITED, .retry_after = 30, .text = "429"};
    cr_assert_eq(err_wrap(&err, "list %s", "org/x"), -1);
    cr_assert_eq(err.code, ERR_RATE_LIMITED);
    cr_assert_eq(err.retry_after, 30);
    cr_assert_str_eq(err.text, "list org/x: 429");
}

Test(err, wrap_cuts_the_inner_text_not_the_context)
{
    struct error err;
    char big[sizeof(err.text)];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    err_set(&err, ERR_IO, "%s", big);
    err_wrap(&err, "read header");
    cr_assert_eq(strlen(err.text), sizeof(err.text) - 1);
    cr_assert_eq(strncmp(err.text, "read header: xxx", 16), 0);
    /* A context that fills everything leaves no room for more, and nothing is overrun. */
    err_wrap(&err, "%s", big);
    cr_assert_eq(strlen(err.text), sizeof(err.text) - 1);
    cr_assert_str_eq(err.text, big);
}

Test(err, arguments_may_be_the_text_itself)
{
    struct error err;
    err_set(&err, ERR_IO, "inner");
    err_set(&err, ERR_UPSTREAM, "outer of %s", err.text);
    cr_assert_str_eq(err.text, "outer of inner");
    err_wrap(&err, "twice %s", err.text);
    cr_assert_str_eq(err.text, "twice outer of inner: outer of inner");
}

Test(err, errno_decides_the_code)
{
    static const struct {
        int number;
        enum err_code code;
    } rows[] = {{ENOSPC, ERR_NO_SPACE}, {EDQUOT, ERR_NO_SPACE}, {ENOMEM, ERR_NOMEM}, {EIO, ERR_IO}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        errno = rows[i].number;
        cr_assert_eq(err_errno(&err, "write %s", "f"), -1);
        cr_assert_eq(err.code, rows[i].code);
        char expected[200];
        snprintf(expected, sizeof(expected), "write f: %s", strerror(rows[i].number));
        cr_assert_str_eq(err.text, expected);
    }
}

Test(err, every_code_has_its_own_name)
{
    for (enum err_code a = ERR_NONE; a <= ERR_INTERNAL; a++)
        for (enum err_code b = ERR_NONE; b < a; b++)
            cr_assert_str_neq(err_name(a), err_name(b));
    cr_assert_str_eq(err_name(ERR_DIGEST_MISMATCH), "digest_mismatch");
    cr_assert_str_eq(err_name((enum err_code)999), "internal");
    cr_assert_str_eq(err_name((enum err_code) - 1), "internal");
}
