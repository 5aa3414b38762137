#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/ref.h"

#define HEX64 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* n bytes of c, NUL terminated, in a buffer that the next call uses again. */
static char *of(char c, size_t n)
{
    static char buf[1024];
    memset(buf, c, n);
    buf[n] = '\0';
    return buf;
}

Test(ref, legal_repository_names)
{
    static const char *const good[] = {
        "a",   "0",       "a/b",         "hf/org/name", "a.b",     "a_b",       "a__b",
        "a-b", "a-----b", "a/b/c/d/e/f", "0/1",         "a.b_c-d", "x--y/z__w",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_assert(repository_is_valid(good[i]), "%s", good[i]);
}

Test(ref, illegal_repository_names)
{
    static const char *const bad[] = {
        "",     "/",     "a/",  "/a",    "a//b", "A",        "a/B",  ".a",   "a.",     "a..b",
        "a._b", "a___b", "_a",  "a_",    "-a",   "a-",       "a-/b", "a/-b", "a/../b", "a/./b",
        "a b",  "a:b",   "a@b", "a%2fb", "a\n",  "\xc3\xa9", "a.-b", "a-.b", "a_-b",   "a/..",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not(repository_is_valid(bad[i]), "%s", bad[i]);
}

Test(ref, repository_length_limit)
{
    cr_assert(repository_is_valid(of('a', REPOSITORY_MAX)));
    cr_assert_not(repository_is_valid(of('a', REPOSITORY_MAX + 1)));
}

Test(ref, tags)
{
    static const char *const good[] = {"a", "_", "0", "A.b-C_d", "latest", "q4_k_m", "_-.", "v1."};
    static const char *const bad[] = {"",    ".a",  "-a",  "a/b", "a:b",  "a b",
                                      "a+b", "a\n", "a@b", "%41", "a\xff"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_assert(tag_is_valid(good[i]), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not(tag_is_valid(bad[i]), "%s", bad[i]);
    cr_assert(tag_is_valid(of('a', TAG_MAX)), "128 bytes are legal");
    cr_assert_not(tag_is_valid(of('a', TAG_MAX + 1)));
}

Test(ref, lower_casing_is_ascii_and_bounded)
{
    char buf[6];
    cr_assert(ascii_lower("AzZ@[", buf, sizeof(buf)));
    cr_assert_str_eq(buf, "azz@[");
    cr_assert_not(ascii_lower("sixsix", buf, sizeof(buf)));
    cr_assert(ascii_lower("\xc3\x89", buf, sizeof(buf)), "other bytes stay as they are");
    cr_assert_str_eq(buf, "\xc3\x89");
    cr_assert_not(ascii_lower("", buf, 0));
}

Test(ref, upper_case_is_folded_and_remembered)
{
    struct reference r;
    cr_assert_eq(reference_make("hf/HuggingFaceTB/SmolLM2", "main", &r, NULL), 0);
    cr_assert_str_eq(r.repository, "hf/huggingfacetb/smollm2");
    cr_assert_str_eq(r.as_given, "hf/HuggingFaceTB/SmolLM2");
    cr_assert_str_eq(r.tag, "main");
    cr_assert_not(r.is_digest);
}

Test(ref, a_colon_decides_for_digest)
{
    struct reference r;
    struct error err;
    cr_assert_eq(reference_make("a", "sha256:" HEX64, &r, &err), 0);
    cr_assert(r.is_digest);
    cr_assert_str_eq(r.tag, "");
    cr_assert_eq(reference_make("a", "sha256:baddigest", &r, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID, "a malformed digest is no tag");
    cr_assert_eq(reference_make("a", "blake3:" HEX64, &r, &err), -1);
    cr_assert_eq(err.code, ERR_UNSUPPORTED);
}

Test(ref, failures_leave_the_result_alone)
{
    struct reference r, before;
    memset(&r, 0x5a, sizeof(r));
    before = r;
    struct error err;
    cr_assert_eq(reference_make("a//b", "main", &r, &err), -1);
    cr_assert_eq(reference_make("a", ".x", &r, &err), -1);
    cr_assert_eq(reference_make(of('a', 256), "x", &r, &err), -1);
    cr_assert_eq(reference_make("a", of('t', 129), &r, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(memcmp(&r, &before, sizeof(r)), 0);
}

static void parsed(const char *text, const char *expected)
{
    struct reference r;
    struct error err = ERROR_INIT;
    char out[REFERENCE_TEXT_MAX];
    cr_assert_eq(reference_parse(text, &r, &err), 0, "%s: %s", text, err.text);
    cr_assert_str_eq(reference_format(&r, out), expected);
}

Test(ref, parse_and_format)
{
    parsed("hf/Org/Name", "hf/org/name:latest");
    parsed("hf/org/name:Main", "hf/org/name:Main");
    parsed("gpt2", "gpt2:latest");
    parsed("gpt2:x", "gpt2:x");
    parsed("a/b@sha256:" HEX64, "a/b@sha256:" HEX64);
    parsed("a/b@sha512:" HEX64 HEX64, "a/b@sha512:" HEX64 HEX64);
}

Test(ref, parse_refuses)
{
    static const char *const bad[] = {
        "",
        ":",
        "@",
        "a:",
        "a@",
        "a@main",
        "a:b:c",
        ":tag",
        "host:5000/a",
        "a/b:/c",
        "a:x@sha256:" HEX64,
        "a@sha256:" HEX64 "@x",
        "a:sha256:" HEX64,
        "a/",
        "a/b:t/",
        "a@sha256",
    };
    struct reference r;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error err = ERROR_INIT;
        cr_assert_eq(reference_parse(bad[i], &r, &err), -1, "%s", bad[i]);
        cr_assert_eq(err.code, ERR_INVALID, "%s: %s", bad[i], err.text);
    }
}

Test(ref, parse_length_limits)
{
    char text[1024];
    struct reference r;
    snprintf(text, sizeof(text), "%s:", of('a', REPOSITORY_MAX));
    strcat(text, of('t', TAG_MAX));
    cr_assert_eq(reference_parse(text, &r, NULL), 0);
    char out[REFERENCE_TEXT_MAX];
    cr_assert_str_eq(reference_format(&r, out), text);
    snprintf(text, sizeof(text), "%s:t", of('a', REPOSITORY_MAX + 1));
    cr_assert_eq(reference_parse(text, &r, NULL), -1);
    cr_assert_eq(reference_parse(of('a', 1000), &r, NULL), -1);
}
