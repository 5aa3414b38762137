#include <criterion/criterion.h>
#include <string.h>

#include "base/base64.h"

Test(base64, both_ways)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"user:p\xc3\xa4ss", "dXNlcjpww6Rzcw=="},
        {"\xff\xfb\xef\xbe", "//vvvg=="},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_strbuf_ struct strbuf text = STRBUF_INIT, bytes = STRBUF_INIT;
        strbuf_put_base64(&text, cases[i].bytes, strlen(cases[i].bytes));
        cr_assert_str_eq(strbuf_str(&text), cases[i].text);
        cr_assert(base64_decode(cases[i].text, strlen(cases[i].text), &bytes));
        cr_assert_str_eq(strbuf_str(&bytes), cases[i].bytes);
    }
    unsigned char all[256];
    for (unsigned i = 0; i < sizeof(all); i++)
        all[i] = (unsigned char)i;
    for (size_t n = 0; n <= sizeof(all); n++) {
        _cleanup_strbuf_ struct strbuf text = STRBUF_INIT, bytes = STRBUF_INIT;
        strbuf_put_base64(&text, all, n);
        cr_assert(base64_decode(strbuf_str(&text), text.len, &bytes));
        cr_assert(bytes.len == n && memcmp(strbuf_str(&bytes), all, n) == 0);
    }
}

Test(base64, refuses_what_is_none)
{
    static const char *const bad[] = {
        "Z",      "Zg",    "Zg=",  "Zg===", "=",    "====", "Z===",     "Zg==Zg==", "Zm=v",
        "Zm9v\n", "Zm9\n", "Zm 9", "Zh==",  "Zm9=", "-_==", "Zm9vZ===", "Zm9v=",    "\xc3\xa4=="};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_puts(&b, "kept");
        cr_assert_not(base64_decode(bad[i], strlen(bad[i]), &b), "%s", bad[i]);
        cr_assert_str_eq(strbuf_str(&b), "kept");
    }
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    cr_assert_not(base64_decode("Zm9\0", 4, &b));
}
