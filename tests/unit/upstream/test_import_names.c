#include <criterion/criterion.h>
#include <string.h>

#include "upstream/import_private.h"

#define C40 "0123456789abcdef0123456789abcdef01234567"

/* "revision|quant" of each reading, "." for the default branch, joined by spaces. */
static const char *readings(const char *tag)
{
    static char text[1024];
    struct tag_reading r[TAG_READINGS_MAX];
    size_t n = tag_readings(tag, r), used = 0;
    cr_assert(n >= 1 && n <= TAG_READINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(r[i].is_default, r[i].revision[0] == '\0');
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s|%s", i ? " " : "",
                                 r[i].is_default ? "." : r[i].revision, r[i].quant);
    }
    return text;
}

static void check(const char *tag, const char *want)
{
    cr_assert_str_eq(readings(tag), want, "%s is read as %s, not as %s", tag, readings(tag), want);
}

Test(tag, plain)
{
    check("main", "main|");
    check("v1.0", "v1.0|");
    check("Feature_X", "Feature_X|");
}

Test(tag, latest_and_pull_requests)
{
    check("latest", "latest| .|");
    check("LATEST", "LATEST|");
    check("refs-pr-7", "refs-pr-7| refs/pr/7|");
    check("refs-pr-123456789", "refs-pr-123456789| refs/pr/123456789|");
    check("refs-pr-1234567890", "refs-pr-1234567890|");
    check("refs-pr-07", "refs-pr-07|");
    check("refs-pr-", "refs-pr-|");
    check("refs-pr-1a", "refs-pr-1a|");
}

Test(tag, commit_is_only_a_commit)
{
    check(C40, C40 "|");
    check(C40 "--Q4_K_M", C40 "|Q4_K_M");
    check(C40 "--q4_k_m", C40 "|Q4_K_M");
    check("0123456789abcdef0123456789abcdef0123456", "0123456789abcdef0123456789abcdef0123456|");
    check("0123456789ABCDEF0123456789ABCDEF01234567", "0123456789ABCDEF0123456789ABCDEF01234567|");
}

Test(tag, quant_labels)
{
    check("q4_k_m", "q4_k_m| .|Q4_K_M");
    check("IQ2_XXS", "IQ2_XXS| .|IQ2_XXS");
    check("bf16", "bf16| .|BF16");
}

Test(tag, revision_and_quant)
{
    check("main--q8_0", "main--q8_0| main|Q8_0");
    check("latest--q8_0", "latest--q8_0| latest|Q8_0 .|Q8_0");
    check("refs-pr-3--Q8_0", "refs-pr-3--Q8_0| refs-pr-3|Q8_0 refs/pr/3|Q8_0");
    check("a--b--q8_0", "a--b--q8_0| a--b|Q8_0"); /* the last "--" counts */
    check("main--nothing", "main--nothing|");
    check("main--", "main--|");
    check("a---q8_0", "a---q8_0| a-|Q8_0");
}

Test(tag, longest)
{
    char tag[TAG_MAX + 1];
    memset(tag, 'a', TAG_MAX);
    tag[TAG_MAX] = '\0';
    char want[TAG_MAX + 2];
    snprintf(want, sizeof(want), "%s|", tag);
    check(tag, want);
}

Test(refs, same_but_for_separators_and_case)
{
    static const char *const spellings[] = {"feature-x", "feature--x", "feature_x", "feature__x",
                                            "feature.x", "FEATURE-X",  "Feature_X"};
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++)
        cr_assert_eq(ref_distance(spellings[i], "feature/x"), 0, "%s", spellings[i]);
    cr_assert_eq(ref_distance("a-b-c", "a/b+c"), 0);
    cr_assert_eq(ref_distance("refs-convert-parquet", "refs/convert/parquet"), 0);
}

Test(refs, near_and_far)
{
    cr_assert_eq(ref_distance("featur-x", "feature/x"), 1);
    cr_assert_eq(ref_distance("feature-xy", "feature/x"), 1);
    cr_assert_eq(ref_distance("fetaure-x", "feature/x"), 2);
    cr_assert_eq(ref_distance("main", "mian"), REF_FAR); /* four letters allow one slip */
    cr_assert_eq(ref_distance("mai", "main"), 1);
    cr_assert_eq(ref_distance("v1", "v2"), REF_FAR);
    cr_assert_eq(ref_distance("something", "feature/x"), REF_FAR);
    cr_assert_eq(ref_distance("", "main"), REF_FAR);
    cr_assert_eq(ref_distance("-", "/"), REF_FAR);
}

Test(refs, long_names_stay_inside_the_buffers)
{
    char a[512], b[512];
    memset(a, 'a', sizeof(a) - 1);
    memset(b, 'b', sizeof(b) - 1);
    a[sizeof(a) - 1] = b[sizeof(b) - 1] = '\0';
    cr_assert_eq(ref_distance(a, b), REF_FAR);
    cr_assert_eq(ref_distance(a, a), 0);
}

static const struct hub_ref refs[] = {
    {.name = "main", .commit = C40},
    {.name = "feature/x", .commit = "89abcdef0123456789abcdef0123456789abcdef"},
    {.name = "v1.0", .commit = C40},
    {.name = "v1.1", .commit = C40},
    {.name = "v1.2", .commit = C40},
    {.name = "v1.3", .commit = C40},
    {.name = "v1.4", .commit = C40},
};

Test(missing, gives_the_commit_of_a_ref_that_is_no_tag)
{
    char text[512];
    missing_revision_text("hf/org/name", "feature-x", "", refs, ARRAY_LEN(refs), text,
                          sizeof(text));
    cr_assert_str_eq(text, "hf/org/name has no revision \"feature-x\"; the revision \"feature/x\" "
                           "is commit 89abcdef0123456789abcdef0123456789abcdef: pull "
                           "hf/org/name:89abcdef0123456789abcdef0123456789abcdef");
}

Test(missing, keeps_the_quant)
{
    char text[512];
    missing_revision_text("hf/org/name", "feature-x", "--Q8_0", refs, ARRAY_LEN(refs), text,
                          sizeof(text));
    cr_assert(strstr(text, "pull hf/org/name:89abcdef0123456789abcdef0123456789abcdef--Q8_0"));
}

Test(missing, offers_a_near_tag)
{
    char text[512];
    missing_revision_text("hf/org/name", "maim", "", refs, ARRAY_LEN(refs), text, sizeof(text));
    cr_assert_str_eq(text, "hf/org/name has no revision \"maim\"; did you mean \"main\"? pull "
                           "hf/org/name:main");
}

Test(missing, lists_five)
{
    char text[512];
    missing_revision_text("hf/org/name", "nothing-like-it", "", refs, ARRAY_LEN(refs), text,
                          sizeof(text));
    cr_assert_str_eq(text, "hf/org/name has no revision \"nothing-like-it\"; it has \"main\", "
                           "\"feature/x\", \"v1.0\", \"v1.1\", \"v1.2\" and 2 more");
    missing_revision_text("hf/org/name", "x", "", refs, 0, text, sizeof(text));
    cr_assert(strstr(text, "no branches and no tags"));
}
