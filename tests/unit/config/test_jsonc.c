#include <criterion/criterion.h>
#include <string.h>

#include "base/strbuf.h"
#include "config/jsonc.h"

static struct jsonc *parse(const char *text)
{
    struct jsonc *root = NULL;
    struct error err = ERROR_INIT;
    unsigned line = 0;
    cr_assert_eq(jsonc_parse(text, strlen(text), &root, &line, &err), 0, "%s: line %u: %s", text,
                 line, err.text);
    return root;
}

static const struct jsonc *member(const struct jsonc *object, const char *key)
{
    for (const struct jsonc *c = object->first; c; c = c->next)
        if (strcmp(c->key, key) == 0)
            return c;
    return NULL;
}

Test(jsonc, values_and_lines)
{
    struct jsonc *root = parse("\xef\xbb\xbf// first\n{ /* two\n lines */ \"a\": 1.5e2,\n"
                               "\"b\" // behind the key\n : [true, false,\n null], \"c\":\"//\" }\n"
                               "// last");
    const struct jsonc *b = member(root, "b");
    cr_assert_eq(root->type, JSONC_OBJECT);
    cr_assert_eq(root->line, 2);
    cr_assert_eq(member(root, "a")->line, 3);
    cr_assert_eq(member(root, "a")->number, 150);
    cr_assert_eq(b->line, 4);
    cr_assert_eq(b->type, JSONC_ARRAY);
    cr_assert(b->first->type == JSONC_BOOL && b->first->truth);
    cr_assert(b->first->next->type == JSONC_BOOL && !b->first->next->truth);
    cr_assert_eq(b->first->next->next->type, JSONC_NULL);
    cr_assert_eq(b->first->next->next->line, 6);
    cr_assert_str_eq(member(root, "c")->text, "//");
    jsonc_free(root);
}

Test(jsonc, escapes)
{
    struct jsonc *root = parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"");
    cr_assert_str_eq(root->text, "\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001f600");
    jsonc_free(root);
}

Test(jsonc, whole_documents_of_any_type)
{
    static const char *const good[] = {"0",  "-0",  "1",    "-1.5E+3", "\"\"",      "[]",
                                       "{}", "[ ]", "null", "[1]",     "{\"\":{}}", " 1 /**/ // x"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        jsonc_free(parse(good[i]));
}

static void refused(const char *text, size_t len, unsigned want_line, const char *want)
{
    struct jsonc *root = NULL;
    struct error err = ERROR_INIT;
    unsigned line = 0;
    cr_assert_lt(jsonc_parse(text, len, &root, &line, &err), 0, "accepted: %s", text);
    cr_assert_null(root);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(line, want_line, "%s: line %u, not %u (%s)", text, line, want_line, err.text);
    cr_assert(strstr(err.text, want), "%s: %s", text, err.text);
}

Test(jsonc, refusals_name_the_line)
{
    static const struct {
        const char *text;
        unsigned line;
        const char *want;
    } bad[] = {
        {"", 1, "value is missing"},
        {"\n\n", 3, "value is missing"},
        {"{\n\"a\":1,\n}", 2, "no comma before '}'"},
        {"[\n1,\n]", 2, "no comma before ']'"},
        {"[\n1\n2]", 3, "comma or ']'"},
        {"{\"a\":1\n\"b\":2}", 2, "comma or '}'"},
        {"{\n\"a\" 1}", 2, "colon"},
        {"{\na:1}", 2, "key in double quotes"},
        {"{'a':1}", 1, "key in double quotes"},
        {"{,}", 1, "key in double quotes"},
        {"[,]", 1, "value is missing"},
        {"{\"a\":}", 1, "value is missing"},
        {"\n{\"a\":\n[1", 3, "not closed by ']'"},
        {"\n{\n\"a\":1", 2, "not closed by '}'"},
        {"\n{\n\"a\":1,", 2, "not closed by '}'"},
        {"{", 1, "not closed by '}'"},
        {"\n/* x\n\n", 2, "comment"},
        {"[1] 2", 1, "behind the end"},
        {"{\"a\":1,\n\n\"a\":2}", 3, "twice, first on line 1"},
        {"{\"a\":1,\"\\u0061\":2}", 1, "twice"},
        {"\"abc\n\"", 1, "not closed on its line"},
        {"\"abc", 1, "not closed on its line"},
        {"\"a\tb\"", 1, "control character"},
        {"\"\\q\"", 1, "backslash"},
        {"\"\\", 1, "backslash"},
        {"\"\\u12g4\"", 1, "four hex digits"},
        {"\"\\u12", 1, "four hex digits"},
        {"\"\\u0000\"", 1, "\\u0000"},
        {"\"\\ud800\"", 1, "surrogate"},
        {"\"\\udc00\\ud800\"", 1, "surrogate"},
        {"\"\\ud800\\u0041\"", 1, "surrogate"},
        {"\"\xc3\x28\"", 1, "UTF-8"},
        {"\"\xed\xa0\x80\"", 1, "UTF-8"},
        {"01", 1, "no number"},
        {"1.", 1, "no number"},
        {".5", 1, "no number"},
        {"+1", 1, "no number"},
        {"-", 1, "no number"},
        {"1e", 1, "no number"},
        {"0x10", 1, "no number"},
        {"NaN", 1, "no number"},
        {"True", 1, "no number"},
        {"1e999", 1, "too large"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1,
         "neither"},
        {"[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]", 1, "nested deeper than 16"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refused(bad[i].text, strlen(bad[i].text), bad[i].line, bad[i].want);
    refused("[1\0]", 4, 1, "comma or ']'");
    refused("\"a\0b\"", 5, 1, "control character");
    refused("1\0", 2, 1, "behind the end");
}

Test(jsonc, depth_and_members_at_their_limits)
{
    jsonc_free(parse("[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]"));
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_putc(&b, '[');
    for (unsigned i = 0; i < JSONC_MEMBERS; i++)
        strbuf_puts(&b, i ? ",0" : "0");
    size_t n = b.len;
    strbuf_putc(&b, ']');
    jsonc_free(parse(b.data));
    strbuf_truncate(&b, n);
    strbuf_puts(&b, ",0]");
    refused(b.data, b.len, 1, "more than 10000");
}
