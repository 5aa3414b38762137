/* What is changed in the Hub's own JSON. */
#include <criterion/criterion.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

#define COMMIT "cccccccccccccccccccccccccccccccccccccccc"

Test(hub_mirror_json, broken_answers_are_the_hubs_fault)
{
    static const char *const texts[] = {
        "", "{", "[]", "{\"a\":}", "{} x", "{\"a\":\"\xff\"}", "{\"siblings\":[1]}", "null"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_strbuf_ struct strbuf to = STRBUF_INIT;
        struct error err = ERROR_INIT;
        cr_assert_eq(hub_json_info_clean(texts[i], strlen(texts[i]), COMMIT, &to, &err), -1, "%s",
                     texts[i]);
        cr_assert_eq(err.code, ERR_UPSTREAM);
    }
}

static bool shows_all(void *ctx, const char *path, uint64_t size)
{
    (void)ctx, (void)path, (void)size;
    return true;
}

/* Clients join these names to a folder of theirs. */
Test(hub_mirror_json, names_that_lead_out_of_a_folder_are_refused)
{
    static const char *const paths[] = {
        "\"../x\"", "\"/etc/x\"", "\"a\\u0000b\"", "\"a\\\\b\"", "\"a//b\"",       "\"\"",
        "1",        "\"a/\"",     "\".\"",         "\"a\\nb\"",  "\"\\u002e./x\"", "null"};
    for (size_t i = 0; i < 2 * ARRAY_LEN(paths); i++) {
        _cleanup_strbuf_ struct strbuf rows = STRBUF_INIT, info = STRBUF_INIT, to = STRBUF_INIT;
        struct error err = ERROR_INIT;
        bool has;
        const char *path = paths[i / 2], *type = i % 2 ? "directory" : "file";
        strbuf_printf(&rows, "[{\"type\":\"file\",\"path\":\"a\"},{\"type\":\"%s\",\"path\":%s}]",
                      type, path);
        strbuf_printf(&info, "{\"siblings\":[{\"rfilename\":\"a\"},{\"rfilename\":%s}]}", path);
        cr_assert_eq(hub_json_rows_filter(rows.data, rows.len, NULL, NULL, &to, &err), -1, "%s",
                     rows.data);
        cr_assert(err.code == ERR_UPSTREAM && strstr(err.text, "entry 1 has no safe relative"),
                  "%s", err.text);
        cr_assert_eq(hub_json_info_filter(info.data, info.len, i % 2 ? shows_all : NULL, NULL, NULL,
                                          &has, &to, &err),
                     -1, "%s", info.data);
        cr_assert(err.code == ERR_UPSTREAM && strstr(err.text, "\"rfilename\""), "%s", err.text);
        /* What is said of the repository alone names no file; what is kept is looked at later. */
        strbuf_reset(&to);
        cr_assert_eq(hub_json_info_about(info.data, info.len, &to, &err), 0);
        cr_assert_str_eq(strbuf_str(&to), "{}");
        cr_assert_eq(hub_json_info_clean(info.data, info.len, COMMIT, &to, &err), 0);
        cr_assert_eq(hub_json_rows_clean(rows.data, rows.len, &to, &err), 0);
    }
}

Test(hub_mirror_json, escaped_keys_lead_to_xet_as_well)
{
    _cleanup_strbuf_ struct strbuf to = STRBUF_INIT;
    static const char json[] = "{\"\\u0078etX\":1, \"a\" : 1.50 ,\"XETS\":{},\"siblings\":null}";
    cr_assert_eq(hub_json_info_clean(json, strlen(json), COMMIT, &to, NULL), 0);
    cr_assert_str_eq(strbuf_str(&to), "{\"a\":1.50,\"sha\":\"" COMMIT "\"}");
}
