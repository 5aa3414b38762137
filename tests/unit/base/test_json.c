#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static struct json *parse(const char *text)
{
    struct json *j = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(json_parse(text, strlen(text), &j, &err), 0, "%s: %s", text, err.text);
    return j;
}

static void refused_n(const char *text, size_t len, const char *why)
{
    struct json *j = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(json_parse(text, len, &j, &err), -1, "%.200s", text);
    cr_assert_null(j);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_not_null(strstr(err.text, why), "%.200s: %s, not %s", text, err.text, why);
}

static void refused(const char *text, const char *why)
{
    refused_n(text, strlen(text), why);
}

Test(json, what_cjson_lets_through_is_refused)
{
    refused_n("\"a\0b\"", 5, "NUL byte at 2");
    refused_n("{}\0", 3, "NUL byte at 2");
    refused_n("\0", 1, "NUL byte at 0");
    refused("\"a\\u0000b\"", "\\u0000 or");
    refused("{\"\\u0000\":1}", "escape at byte 2");
    refused("\"\\u12g4\"", "malformed \\u escape at byte 1");
    refused("\"\\u12\"", "malformed \\u escape at byte 1");
    refused("\"\\u 123\"", "malformed \\u escape at byte 1");
    refused("\"\\u", "malformed \\u escape at byte 1");
    refused("\xef\xbb\xbf{}", "byte order mark");
    refused("\"a\nb\"", "raw control character at byte 2");
    refused("\"\x1f\"", "raw control character at byte 1");
    refused("{\x01}", "control character at byte 1");
    refused("[\f1]", "control character at byte 1");
    refused("{\"a\":1,\"a\":2}", "key \"a\" twice");
    refused("[[{\"x\":{\"k\":1,\"b\":2,\"k\":1}}]]", "key \"k\" twice");
    refused("{\"a\":1,\"\\u0061\":2}", "key \"a\" twice");
    refused("{\"\":1,\"\":2}", "key \"\" twice");
    refused("{} {}", "other text at byte 3");
    refused("{}x", "other text at byte 2");
    refused("1 2", "other text at byte 2");
    refused("null,", "other text at byte 4");
}

Test(json, what_is_no_json_is_refused)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "'a'",
                                      "[1",
                                      "\"a",
                                      "\"a\\",
                                      "\"\\x\"",
                                      "tru",
                                      "NaN",
                                      "Infinity",
                                      "[1 2]",
                                      "{\"a\" 1}",
                                      "// c\n1",
                                      "/**/1",
                                      "]",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "{\"a\":}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refused(bad[i], "not JSON");
}

Test(json, numbers_are_json_numbers)
{
    static const char *const bad[] = {"01",    "-01", "1.",     ".5",    "-",    "+1",
                                      "1e",    "1e+", "1-2",    "0x1",   "1.e3", "--1",
                                      "1.2.3", "[-]", "[1,02]", "1e5.5", "00"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct json *j = NULL;
        struct error err = ERROR_INIT;
        cr_assert_eq(json_parse(bad[i], strlen(bad[i]), &j, &err), -1, "%s", bad[i]);
    }
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},      {"-0", 0},     {"10", 10},  {"0.5", 0.5}, {"-1.25e2", -125},
                {"1E+2", 100}, {"1e-1", 0.1}, {"2e00", 2}, {" 7 ", 7},   {"0e0", 0}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        _cleanup_json_ struct json *j = parse(good[i].text);
        double d;
        cr_assert(json_double(j, &d));
        cr_assert_float_eq(d, good[i].value, 1e-12);
    }
}

Test(json, depth_is_bounded)
{
    char text[1000];
    for (int kind = 0; kind < 2; kind++) {
        for (int depth = 127; depth <= 129; depth++) {
            char *p = text;
            for (int i = 0; i < depth; i++)
                p = stpcpy(p, kind ? "[" : i == depth - 1 ? "{" : "{\"a\":");
            for (int i = 0; i < depth; i++)
                *p++ = kind ? ']' : '}';
            *p = '\0';
            struct json *j = NULL;
            cr_assert_eq(json_parse(text, strlen(text), &j, NULL), depth <= 128 ? 0 : -1);
            json_free(j);
        }
    }
    /* Brackets in strings, and closed ones, do not count. */
    _cleanup_json_ struct json *flat = parse("[\"[[[[\\\"[[[\",[],[],{}]");
    cr_assert_eq(json_length(flat), 4);
}

Test(json, a_million_brackets_do_not_overflow_the_stack)
{
    size_t n = 1000000;
    _cleanup_free_ char *text = malloc(n);
    memset(text, '[', n);
    refused_n(text, n, "nested deeper than 128 at byte 128");
}

Test(json, many_keys_stay_fast)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_putc(&b, '{');
    for (int i = 0; i < 100000; i++)
        strbuf_printf(&b, "%s\"k%d\":0", i ? "," : "", i);
    strbuf_putc(&b, '}');
    _cleanup_json_ struct json *j = parse(b.data);
    cr_assert_eq(json_length(j), 100000);
    b.data[--b.len] = '\0';
    strbuf_puts(&b, ",\"k5\":0}");
    refused(b.data, "key \"k5\" twice");
}

Test(json, navigation)
{
    _cleanup_json_ struct json *j = parse(" {\"s\":\"t\\u00e9\\ud83d\\ude00\",\"n\":3,\"a\":[1,"
                                          "true,null,false],\"S\":{},\"o\":{\"x\":\"\"}} \r\n\t");
    cr_assert(json_is_object(j));
    cr_assert_eq(json_length(j), 5);
    cr_assert_str_eq(json_str(json_get(j, "s")), "t\xc3\xa9\xf0\x9f\x98\x80");
    cr_assert(json_is_object(json_get(j, "S")), "keys are case-sensitive");
    cr_assert_null(json_get(j, "N"));
    cr_assert_null(json_get(json_get(j, "a"), "x"));
    cr_assert_null(json_get(NULL, "x"));
    cr_assert_str_eq(json_str(json_get(json_get(j, "o"), "x")), "");
    const struct json *e = json_first(json_get(j, "a"));
    cr_assert(json_is_number(e));
    cr_assert_null(json_key(e));
    e = json_next(e);
    cr_assert(json_is_bool(e) && json_is_true(e));
    e = json_next(e);
    cr_assert(json_is_null(e) && !json_is_bool(e));
    e = json_next(e);
    cr_assert(json_is_bool(e) && !json_is_true(e));
    cr_assert_null(json_next(e));
    cr_assert_str_eq(json_key(json_first(j)), "s");
    cr_assert_null(json_first(json_get(j, "n")));
    cr_assert_null(json_str(json_get(j, "n")));
    cr_assert_null(json_str(NULL));
    cr_assert_null(json_next(NULL));
    cr_assert_null(json_key(NULL));
    cr_assert_eq(json_length(NULL), 0);
    cr_assert(json_is_array(json_get(j, "a")) && json_is_string(json_get(j, "s")));
    json_free(NULL);
}

Test(json, u64_takes_only_what_is_exact)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"1", true, 1},
        {"1e3", true, 1000},
        {"9007199254740991", true, 9007199254740991u},
        {"9007199254740992", false, 0},
        {"9007199254740993", false, 0},
        {"18446744073709551615", false, 0},
        {"1e400", false, 0},
        {"-1", false, 0},
        {"0.5", false, 0},
        {"1.5", false, 0},
        {"\"1\"", false, 0},
        {"true", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_json_ struct json *j = parse(rows[i].text);
        uint64_t n = 77;
        cr_assert_eq(json_u64(j, &n), rows[i].ok, "%s", rows[i].text);
        cr_assert_eq(n, rows[i].ok ? rows[i].value : 77u, "%s", rows[i].text);
    }
    uint64_t n;
    cr_assert_not(json_u64(NULL, &n));
}

Test(json, double_is_finite)
{
    _cleanup_json_ struct json *huge = parse("-1e999");
    double d = 5;
    cr_assert_not(json_double(huge, &d));
    cr_assert_eq(d, 5);
}

/* What Go's encoding/json prints for the same string. */
Test(json, strings_are_escaped_as_go_does)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", "\"\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"<a>&b", "\"\\u003ca\\u003e\\u0026b\""},
        {"\b\t\n\f\r", "\"\\b\\t\\n\\f\\r\""},
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\x7f\""},
        {"\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa", "\"\\u2028\\u2029\xe2\x80\xaa\""},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {"a\xff"
         "b\xc3",
         "\"a\\ufffdb\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        json_put_string(&b, rows[i].in);
        cr_assert_str_eq(b.data, rows[i].out);
    }
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    json_put_string_n(&b, "a\0b", 3);
    cr_assert_str_eq(b.data, "\"a\\u0000b\"");
}

Test(json, commas_come_where_they_belong)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_putc(&b, '{');
    json_put_key(&b, "a");
    json_put_u64(&b, UINT64_MAX);
    json_put_key(&b, "b{");
    json_put_string(&b, "ends with [");
    json_put_key(&b, "c");
    strbuf_putc(&b, '[');
    json_put_separator(&b);
    json_put_u64(&b, 0);
    json_put_separator(&b);
    json_put_u64(&b, 1);
    strbuf_puts(&b, "]}");
    cr_assert_str_eq(b.data, "{\"a\":18446744073709551615,\"b{\":\"ends with [\",\"c\":[0,1]}");
}

Test(json, utf8_sequences_at_every_boundary)
{
    static const struct {
        const char *s;
        unsigned len;
    } rows[] = {
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0}, /* overlong */
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xc2\x7f", 0},
        {"\xc2", 0},
        {"\xe0\x9f\xbf", 0}, /* overlong */
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0}, /* surrogate */
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xe2\x82", 0},
        {"\xe2\x82\x41", 0},
        {"\xf0\x8f\xbf\xbf", 0}, /* overlong */
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\xf0\x90\x80", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t n = strlen(rows[i].s);
        cr_assert_eq(utf8_sequence((const unsigned char *)rows[i].s, n), rows[i].len, "row %zu", i);
        cr_assert_eq(utf8_is_valid(rows[i].s, n), rows[i].len == n, "row %zu", i);
        char text[16];
        snprintf(text, sizeof(text), "\"%s\"", rows[i].s);
        struct json *j = NULL;
        cr_assert_eq(json_parse(text, strlen(text), &j, NULL), rows[i].len == n ? 0 : -1);
        json_free(j);
    }
    cr_assert_eq(utf8_sequence((const unsigned char *)"", 0), 0);
    cr_assert(utf8_is_valid("", 0));
    cr_assert_not(utf8_is_valid("ok\xff", 3));
}
