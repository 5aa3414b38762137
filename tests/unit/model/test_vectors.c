/* Every safetensors and GGUF file of tests/vectors against our verdict and our text (ours.tsv). The
 * texts of errors stand in manifests, so they are part of what a packager version promises. */
#include <criterion/criterion.h>
#include <dirent.h>

#include "base/fs.h"
#include "tests/unit/model/prefix_check.h"

static void check_vector(const char *file, const char *verdict, const char *text)
{
    static struct prefix_outcome last;
    char path[512];
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    snprintf(path, sizeof(path), "%s/%s", WB_VECTORS, file);
    cr_assert_eq(fs_read_file(path, 1u << 20, &b, &err), 0, "%s", err.text);
    const char *wrong =
        prefix_check(weights_format_of(file), strbuf_str(&b), b.len, b.len, 1, &last);
    if (!wrong && last.rc == PREFIX_DONE)
        wrong = visit_check(weights_format_of(file), strbuf_str(&b), b.len, b.len, &last.w);
    cr_assert_null(wrong, "%s: %s", file, wrong);
    const char *got = last.rc < 0 ? err_name(last.err.code) : last.w.partial ? "partial" : "ok";
    cr_expect_str_eq(got, verdict, "%s: %s (%s), not %s", file, got, last.err.text, verdict);
    cr_expect_str_eq(last.rc < 0 ? last.err.text : last.w.warning, text, "%s", file);
}

static unsigned vectors_on_disk(void)
{
    unsigned n = 0;
    DIR *dir = opendir(WB_VECTORS);
    cr_assert_not_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        enum weights_format f = weights_format_of(e->d_name);
        n += f == WEIGHTS_SAFETENSORS || f == WEIGHTS_GGUF;
    }
    closedir(dir);
    return n;
}

Test(vectors, have_our_verdicts_whole_and_in_prefixes)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf table = STRBUF_INIT;
    unsigned n = 0;
    cr_assert_eq(fs_read_file(WB_VECTORS "/ours.tsv", 1u << 20, &table, &err), 0, "%s", err.text);
    char *rest = table.data;
    strsep(&rest, "\n"); /* the head */
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        char *file = strsep(&line, "\t"), *verdict = strsep(&line, "\t");
        cr_assert(verdict && line, "a line of ours.tsv has less than three fields: %s", file);
        check_vector(file, verdict, line);
    }
    cr_assert_eq(n, vectors_on_disk(), "ours.tsv has %u files", n);
    cr_assert_gt(n, 100);
}
