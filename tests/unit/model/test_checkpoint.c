/* Indexes, and what they and the files say about each other. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/strbuf.h"
#include "model/checkpoint.h"

static struct checkpoint *make(const char *index)
{
    struct checkpoint *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(checkpoint_new(&c, &err), 0);
    if (index)
        cr_assert_eq(checkpoint_index(c, index, strlen(index), &err), 0, "%s", err.text);
    return c;
}

/* A file with these tensors, of 4 bytes each. */
static void file_with(struct checkpoint *c, const char *path, const struct weights *base,
                      const char *const *tensors)
{
    struct error err = ERROR_INIT;
    struct weights w = *base;
    for (size_t i = 0; tensors[i]; i++)
        w.tensors = i + 1;
    w.parameters = w.tensors;
    w.tensor_bytes = w.tensors * 4;
    w.n_types = 1;
    w.types[0] = (struct dtype_total){"F32", w.tensors, w.tensors, w.tensors * 4};
    cr_assert_eq(checkpoint_file(c, path, &w, &err), 0, "%s", err.text);
    for (size_t i = 0; tensors[i]; i++) {
        const struct tensor_info t = {.name = tensors[i], .name_len = strlen(tensors[i])};
        cr_assert_eq(checkpoint_tensor(c, &t, &err), 0, "%s", err.text);
    }
}

static const struct weights safetensors = {.format = WEIGHTS_SAFETENSORS};
#define TENSORS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* All findings, one line each, "!" before the serious ones. */
static void finds(struct checkpoint *c, const char *want)
{
    const struct checkpoint_finding *f;
    size_t n;
    struct weights sum;
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    cr_assert_eq(checkpoint_check(c, &f, &n, &sum, &err), 0, "%s", err.text);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&b, "%s%s\n", f[i].serious ? "!" : "", f[i].text);
    cr_assert_str_eq(strbuf_str(&b), want);
    checkpoint_free(c);
}

#define A "model-00001-of-00002.safetensors"
#define B "model-00002-of-00002.safetensors"

Test(checkpoint, that_is_whole_has_no_findings)
{
    struct checkpoint *c = make("{\"metadata\":{\"total_size\":12.00,\"total_parameters\":3,"
                                "\"x\":[{}]},\"weight_map\":{\"z\":\"" B "\",\"a\":\"" A
                                "\",\"\\u0062\":\"model-00001\\u002dof-00002.safetensors\"},"
                                "\"other\":null} ");
    const char *const *files;
    cr_assert_eq(checkpoint_files(c, &files), 2);
    cr_assert_str_eq(files[0], A);
    cr_assert_str_eq(files[1], B);
    file_with(c, A, &safetensors, TENSORS("a", "b"));
    file_with(c, B, &safetensors, TENSORS("z"));
    finds(c, "");
}

Test(checkpoint, every_disagreement_is_found)
{
    struct checkpoint *c =
        make("{\"metadata\":{\"total_size\":13,\"total_parameters\":\"3\"},\"weight_map\":{"
             "\"a\":\"" A "\",\"gone\":\"" A "\",\"moved\":\"" A "\",\"z\":\"" B "\",\"z\":\"" B
             "\",\"both\":\"" A "\",\"both\":\"" B "\"}}");
    file_with(c, A, &safetensors, TENSORS("a", "extra\n", "both"));
    file_with(c, B, &safetensors, TENSORS("z", "moved", "both"));
    finds(c, "!" A ": tensor 'gone' stands in the index and not in the file\n"
             "!" A ": tensor 'moved' stands in the index for this file, and is in " B "\n"
             "!tensor 'both' stands twice in the index, for " A " and for " B "\n"
             "a total in the index's metadata is no whole number\n"
             "metadata.total_size of the index is 13, the tensors have 24 bytes\n" A
             ": tensor 'extra\\x0a' is in the file and does not stand in the index\n" B
             ": tensor 'both' is also in " A "\n"
             "tensor 'z' stands twice in the index, for " B " and for " B "\n");
}

Test(checkpoint, missing_and_unread_files_are_named_once)
{
    struct error err = ERROR_INIT;
    struct checkpoint *c = make("{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"x\","
                                "\"b\":\"y\",\"c\":\"y\",\"d\":\"z\"}}");
    cr_assert_eq(checkpoint_missing(c, "x", &err), 0);
    cr_assert_eq(checkpoint_file(c, "z", NULL, &err), 0);
    file_with(c, "w", &safetensors, TENSORS("w"));
    finds(c, "!x is missing; the index puts 1 tensor into it\n"
             "!y could not be read; the index puts 2 tensors into it\n"
             "w does not stand in the index\n"
             "w: tensor 'w' is in the file and does not stand in the index\n");
}

Test(checkpoint, shards_are_counted_by_their_names)
{
    struct checkpoint *c = make(NULL);
    file_with(c, "m-00001-of-00003.safetensors", &safetensors, TENSORS("a"));
    file_with(c, "m-00001-of-00002.safetensors", &safetensors, TENSORS("b"));
    file_with(c, "m-00003-of-00003.safetensors", &safetensors, TENSORS("a"));
    file_with(c, "m-00002-of-00002.safetensors", &safetensors, TENSORS("c"));
    finds(c, "!m-00001-of-00003.safetensors: it is one of 3 parts by its name, and 2 are there\n"
             "!m-00003-of-00003.safetensors: tensor 'a' is also in m-00001-of-00003.safetensors\n");
}

static void split_tensors(struct checkpoint *c, uint64_t n)
{
    const struct metadata_info m = {.key = "split.tensors.count",
                                    .key_len = strlen("split.tensors.count"),
                                    .type = METADATA_SIGNED,
                                    .number = n};
    cr_assert_eq(checkpoint_metadata(c, &m, NULL), 0);
}

Test(checkpoint, a_split_gguf)
{
    struct weights w = {.format = WEIGHTS_GGUF, .split_count = 2, .architecture = "llama"};
    struct checkpoint *c = make(NULL);
    file_with(c, "m-00001-of-00002.gguf", &w, (const char *const[]){NULL});
    split_tensors(c, 2);
    w.split_no = 1;
    file_with(c, "m-00002-of-00002.gguf", &w, TENSORS("a", "b"));
    finds(c, "");
    c = make(NULL);
    file_with(c, "m-00001-of-00002.gguf", &w, TENSORS("a"));
    split_tensors(c, 5);
    file_with(c, "m-00002-of-00002.gguf", &w, TENSORS("b", "a"));
    finds(c, "!m-00001-of-00002.gguf: by its name it is part 1 of 2, by split.no and split.count 2 "
             "of 2\n"
             "!m-00001-of-00002.gguf: split.tensors.count is 5, the files have 3 tensors\n"
             "!m-00002-of-00002.gguf: tensor 'a' is also in m-00001-of-00002.gguf\n");
    c = make(NULL);
    file_with(c, "m-00001-of-00002.gguf", &(struct weights){.format = WEIGHTS_GGUF}, TENSORS("a"));
    file_with(c, "other.gguf", &w, TENSORS("b"));
    w.split_count = 3;
    file_with(c, "third.gguf", &w, TENSORS("c"));
    finds(c, "!m-00001-of-00002.gguf: by its name it is a part, but it has no split.count\n"
             "!m-00001-of-00002.gguf: it is one of 2 parts by its name, and 1 are there\n"
             "!other.gguf: split.count is 2, and 3 files are there\n");
}

Test(checkpoint, a_flood_of_findings_is_counted)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    const struct checkpoint_finding *f;
    struct error err = ERROR_INIT;
    struct weights sum;
    size_t n;
    strbuf_puts(&b, "{\"weight_map\":{");
    for (int i = 0; i < 1500; i++)
        strbuf_printf(&b, "%s\"t%d\":\"x\"", i ? "," : "", i);
    strbuf_puts(&b, "}}");
    struct checkpoint *c = make(b.data);
    file_with(c, "x", &safetensors, TENSORS("t0"));
    cr_assert_eq(checkpoint_check(c, &f, &n, &sum, &err), 0, "%s", err.text);
    cr_assert_eq(n, 1001);
    cr_assert_str_eq(f[1000].text, "and 499 more");
    cr_assert(f[1000].serious);
    cr_assert_eq(sum.tensors, 1);
    checkpoint_free(c);
}

Test(checkpoint, a_wrong_index_is_refused)
{
    static const struct {
        const char *index, *why;
    } cases[] = {
        {"", "where the index ends"},
        {"[]", "expected '{' in the index at byte 0"},
        {"{}", "the index has no weight_map before byte 2"},
        {"{\"weight_map\":[]}", "expected '{' in weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "expected a string in weight_map"},
        {"{\"weight_map\":{}}x", "follows the index's object"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "weight_map is there twice"},
        {"{\"weight_map\":{\"a\":\"../x\"}}", "'../x' at byte 20 has .. in it"},
        {"{\"weight_map\":{\"a\":\"/x\"}}", "begins with a slash"},
        {"{\"weight_map\":{\"a\":\"http:\\u002f/x\"}}", "is a URL"},
        {"{\"weight_map\":{\"a\":\"\"}}", "is empty"},
        {"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", "has a control character"},
        {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", "backslash"},
        {"{\"weight_map\":{\"a\xff\":\"x\"}}", "invalid UTF-8 at byte 17"},
        {"{\"metadata\":{\"total_size\":1,},\"weight_map\":{}}", "a comma before the end"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = ERROR_INIT;
        struct checkpoint *c = make(NULL);
        cr_assert_lt(checkpoint_index(c, cases[i].index, strlen(cases[i].index), &err), 0, "%s",
                     cases[i].index);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert_not_null(strstr(err.text, cases[i].why), "%s: %s", cases[i].index, err.text);
        checkpoint_free(c);
    }
}

Test(checkpoint, a_file_comes_once)
{
    struct error err = ERROR_INIT;
    struct checkpoint *c = make(NULL);
    file_with(c, "x", &safetensors, TENSORS("a"));
    cr_assert_lt(checkpoint_file(c, "x", &safetensors, &err), 0);
    cr_assert_str_eq(err.text, "x is there twice");
    checkpoint_free(c);
}
