#include <criterion/criterion.h>
#include <string.h>

#include "base/fs.h"
#include "config/config.h"
#include "config/table.h"

Test(table, paths_and_variables_are_unique)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    cr_assert_gt(n, 20);
    for (size_t i = 0; i < n; i++) {
        _cleanup_strbuf_ struct strbuf a = STRBUF_INIT;
        cr_assert_eq(config_key_find(keys[i].path), &keys[i], "%s comes twice", keys[i].path);
        bool has = config_key_variable(&keys[i], "hf", &a);
        for (size_t j = 0; has && j < i; j++) {
            _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
            if (config_key_variable(&keys[j], "hf", &b))
                cr_assert_str_neq(a.data, b.data);
        }
        cr_assert(keys[i].doc && keys[i].doc[0]);
        cr_assert(keys[i].max >= keys[i].min);
    }
}

Test(table, variable_names)
{
    static const struct {
        const char *path, *prefix, *want;
    } cases[] = {
        {"listen", NULL, "WEIGHBRIDGE_LISTEN"},
        {"log.level", NULL, "WEIGHBRIDGE_LOG_LEVEL"},
        {"upstreams", NULL, "WEIGHBRIDGE_UPSTREAMS"},
        {"upstreams[].url", "hf", "WEIGHBRIDGE_UPSTREAMS_HF_URL"},
        {"upstreams[].token", "my-hub.example/a_b",
         "WEIGHBRIDGE_UPSTREAMS_MY_HUB_EXAMPLE_A_B_TOKEN"},
        {"upstreams[].url", NULL, "WEIGHBRIDGE_UPSTREAMS_<PREFIX>_URL"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        cr_assert(config_key_variable(config_key_find(cases[i].path), cases[i].prefix, &b));
        cr_assert_str_eq(b.data, cases[i].want);
    }
    _cleanup_strbuf_ struct strbuf none = STRBUF_INIT;
    cr_assert_not(config_key_variable(config_key_find("access[].allow"), NULL, &none));
    cr_assert_not(config_key_variable(config_key_find("immutable_tags[].tags"), NULL, &none));
    cr_assert_not(config_key_variable(config_key_find("upstreams[].prefix"), "hf", &none));
    cr_assert_eq(none.len, 0);
}

Test(table, edit_distance)
{
    static const struct {
        const char *a, *b;
        unsigned want;
    } cases[] = {
        {"", "", 0},         {"", "abc", 3},        {"abc", "", 3},           {"url", "ulr", 1},
        {"url", "URL", 0},   {"ulr", "uri", 2},     {"kitten", "sitting", 3}, {"ab", "ba", 1},
        {"abcd", "bacd", 1}, {"listen", "listn", 1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_assert_eq(edit_distance(cases[i].a, cases[i].b), cases[i].want, "%s %s", cases[i].a,
                     cases[i].b);
    char longer[200];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    cr_assert_gt(edit_distance(longer, "a"), 70);
}

Test(table, choices)
{
    cr_assert_eq(config_choice("a|bc|d", "a"), 0);
    cr_assert_eq(config_choice("a|bc|d", "bc"), 1);
    cr_assert_eq(config_choice("a|bc|d", "d"), 2);
    cr_assert_eq(config_choice("a|bc|d", "b"), -1);
    cr_assert_eq(config_choice("a|bc|d", "a|bc"), -1);
    cr_assert_eq(config_choice("a|bc|d", ""), -1);
}

/* docs/config.md holds the reference between two marks; it is never edited by hand. */
Test(table, documentation_is_up_to_date)
{
    static const char begin[] = "<!-- begin: weighbridge config reference -->\n";
    static const char end[] = "<!-- end -->\n";
    _cleanup_strbuf_ struct strbuf file = STRBUF_INIT, want = STRBUF_INIT;
    struct error err = ERROR_INIT;
    cr_assert_eq(fs_read_file(WB_SOURCE_DIR "/docs/config.md", 1u << 20, &file, &err), 0, "%s",
                 err.text);
    config_reference(&want);
    char *from = strstr(file.data, begin);
    cr_assert_not_null(from);
    from += strlen(begin);
    char *to = strstr(from, end);
    cr_assert_not_null(to);
    *to = '\0';
    cr_assert_str_eq(from, want.data,
                     "docs/config.md differs: replace the part between the marks by the output of "
                     "`weighbridge config reference`");
}

Test(table, help_names_every_flag)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    config_flags_help(&b);
    static const char *const flags[] = {"--listen ADDRESS:PORT", "--data DIR", "--hub URL",
                                        "--log-level LEVEL", "--external-url URL"};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        cr_assert(strstr(b.data, flags[i]), "%s", flags[i]);
    cr_assert_not(strchr(b.data, '`'));
}
