#include <criterion/criterion.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "model/select.h"
#include "model/split.h"

static const struct select_policy open_policy;
static struct error last;

/* `list` and `expected` are paths with spaces between; expected in the list's order. NULL: the
 * selection must fail, with `last` set. */
static void select_is(const char *list, const struct select_policy *policy, const char *quant,
                      const char *expected)
{
    struct select_file files[64];
    size_t n = 0;
    _cleanup_free_ char *copy = strdup(list);
    _cleanup_strbuf_ struct strbuf got = STRBUF_INIT;
    last = ERROR_INIT;
    for (char *rest = copy, *path; (path = strsep(&rest, " "));)
        if (*path)
            files[n++] = (struct select_file){.path = path, .size = 1, .selected = true};
    int rc = select_files(files, n, policy, quant, &last);
    if (!expected) {
        cr_assert_lt(rc, 0, "%s", list);
        return;
    }
    cr_assert_eq(rc, 0, "%s: %s", list, last.text);
    for (size_t i = 0; i < n; i++)
        if (files[i].selected)
            strbuf_printf(&got, "%s%s", got.len ? " " : "", files[i].path);
    cr_assert_str_eq(strbuf_str(&got), expected);
}

static void refused(const char *list, const struct select_policy *policy, const char *quant,
                    enum err_code code, const char *why)
{
    select_is(list, policy, quant, NULL);
    cr_assert_eq(last.code, code, "%s", last.text);
    cr_assert_not_null(strstr(last.text, why), "%s, not %s", last.text, why);
}

Test(select, hidden_files_never)
{
    select_is(".gitattributes a/.cache/x config.json .x/model.safetensors a.b/c.txt", &open_policy,
              NULL, "config.json a.b/c.txt");
    refused(".gitattributes", &open_policy, NULL, ERR_NOT_FOUND, "none of the 1 files");
    refused("", &open_policy, NULL, ERR_NOT_FOUND, "none of the 0 files");
}

Test(select, globs)
{
    const char *const include[] = {"*.safetensors", "*.json"}, *const exclude[] = {"onnx/*"};
    const struct select_policy in = {.include = include, .n_include = 2},
                               ex = {.exclude = exclude, .n_exclude = 1},
                               both = {include, 2, exclude, 1, false};
    const char *list = "README.md config.json onnx/config.json unet/model.safetensors";
    select_is(list, &in, NULL, "config.json onnx/config.json unet/model.safetensors");
    select_is(list, &ex, NULL, "README.md config.json unet/model.safetensors");
    select_is(list, &both, NULL, "config.json unet/model.safetensors");
}

Test(select, pickles_beside_safe_weights_are_left_out)
{
    const struct select_policy allow = {.allow_pickle = true};
    const char *list = "model.safetensors model.safetensors.index.json pytorch_model.bin "
                       "pytorch_model.bin.index.json a/x.PT b.pth c.ckpt d.pkl training_args.bin";
    select_is(list, &open_policy, NULL, "model.safetensors model.safetensors.index.json");
    select_is(list, &allow, NULL, list);
    select_is("m-Q8_0.gguf pytorch_model.bin", &open_policy, NULL, "m-Q8_0.gguf");
    select_is("model.onnx training_args.bin pytorch_model.bin", &open_policy, NULL, "model.onnx");
}

Test(select, pickles_alone_are_refused)
{
    const struct select_policy allow = {.allow_pickle = true};
    refused("config.json pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin "
            "pytorch_model.bin.index.json",
            &open_policy, NULL, ERR_DENIED,
            "(pytorch_model-00001-of-00002.bin, pytorch_model-00002-of-00002.bin)");
    cr_assert_not_null(strstr(last.text, "upstreams[].allow_pickle"));
    refused("a.bin b.pt c.pth d.ckpt e.pkl", &open_policy, NULL, ERR_DENIED,
            "(a.bin, b.pt, c.pth and 2 more)");
    refused("a.bin mmproj-F16.gguf imatrix.gguf", &open_policy, NULL, ERR_DENIED, "(a.bin)");
    refused("a.bin tf_model.h5", &open_policy, NULL, ERR_DENIED, "(a.bin)");
    select_is("config.json a.bin", &allow, NULL, "config.json a.bin");
}

Test(select, a_repository_without_weights)
{
    select_is("tokenizer.json training_args.bin optimizer.pt", &open_policy, NULL,
              "tokenizer.json");
    /* The policy took the safe weights away: the pickles are then all that is left. */
    const char *const exclude[] = {"*.safetensors"};
    const struct select_policy p = {.exclude = exclude, .n_exclude = 1};
    refused("a.safetensors b.bin", &p, NULL, ERR_DENIED, "(b.bin)");
}

#define COMPANIONS                                                                                 \
    "LICENSE NOTICE.txt USE_POLICY.md README.md config.json generation_config.json "               \
    "tokenizer.model tokenizer.json vocab.txt merges.txt chat_template.jinja "                     \
    "preprocessor_config.json"

Test(select, one_quantisation)
{
    select_is(COMPANIONS " m-Q4_K_M.gguf m-Q8_0.gguf model.safetensors pytorch_model.bin "
                         "model.safetensors.index.json training_args.bin code.py pic.png "
                         ".gitattributes notes.txt",
              &open_policy, "q4_k_m", COMPANIONS " m-Q4_K_M.gguf");
    select_is("m-F16.gguf m-f16-Q8_0.gguf", &open_policy, "fp16", "m-F16.gguf");
    select_is("Q8_0/m.gguf Q4_0/m.gguf", &open_policy, "Q8_0", "Q8_0/m.gguf");
}

Test(select, a_label_may_be_meant_for_its_ud_form)
{
    select_is("m-UD-Q4_K_XL.gguf m-Q8_0.gguf", &open_policy, "Q4_K_XL", "m-UD-Q4_K_XL.gguf");
    select_is("m-UD-Q4_K_XL.gguf m-Q4_K_XL.gguf", &open_policy, "Q4_K_XL", "m-Q4_K_XL.gguf");
    refused("m-Q4_K_M.gguf", &open_policy, "UD-Q4_K_M", ERR_NOT_FOUND, "there are Q4_K_M");
}

Test(select, projectors)
{
    select_is("m-Q4_K_M.gguf mmproj-model-f16.gguf", &open_policy, "q4_k_m",
              "m-Q4_K_M.gguf mmproj-model-f16.gguf");
    select_is("m-Q8_0.gguf mmproj-Q8_0.gguf mmproj-F16.gguf", &open_policy, "q8_0",
              "m-Q8_0.gguf mmproj-Q8_0.gguf");
    select_is("m-Q4_K_M.gguf mmproj-F32.gguf mmproj-BF16.gguf mmproj-F16.gguf", &open_policy,
              "q4_k_m", "m-Q4_K_M.gguf mmproj-F16.gguf");
    select_is("m-Q4_K_M.gguf mmproj-a.gguf mmproj-b.gguf", &open_policy, "q4_k_m", "m-Q4_K_M.gguf");
    refused("m-Q4_K_M.gguf mmproj-F16.gguf", &open_policy, "F16", ERR_NOT_FOUND,
            "there are Q4_K_M");
}

Test(select, importance_matrices)
{
    select_is("m-Q4_K_M.gguf imatrix-Q4_K_M.gguf Q4_K_M/m.imatrix.gguf imatrix.gguf", &open_policy,
              "q4_k_m", "m-Q4_K_M.gguf");
    select_is("m-imatrix-Q4_K_M.gguf imatrix.gguf", &open_policy, "q4_k_m",
              "m-imatrix-Q4_K_M.gguf");
}

Test(select, no_such_quantisation)
{
    refused("m-Q8_0.gguf m-Q4_K_M.gguf n-Q8_0.gguf", &open_policy, "iq2_xxs", ERR_NOT_FOUND,
            "the quantisation IQ2_XXS is there; there are Q4_K_M, Q8_0");
    refused("model.safetensors", &open_policy, "q8_0", ERR_NOT_FOUND, "nor of any other");
    refused("m-Q8_0.gguf", &open_policy, "main", ERR_NOT_FOUND, "main is no quantisation");
    const char *const exclude[] = {"*Q8_0*"};
    const struct select_policy p = {.exclude = exclude, .n_exclude = 1};
    refused("m-Q8_0.gguf", &p, "q8_0", ERR_NOT_FOUND, "Q8_0");
}

Test(select, split_sets_must_be_whole)
{
    const char *const exclude[] = {"*-00002-of-*"};
    const struct select_policy p = {.exclude = exclude, .n_exclude = 1};
    const char *whole = "m-q8_0-00003-of-00003.gguf m-q8_0-00001-of-00003.gguf "
                        "m-q8_0-00002-of-00003.gguf";
    select_is(whole, &open_policy, "q8_0", whole);
    refused(whole, &p, "q8_0", ERR_INVALID, "part 2 of 3 of m-q8_0 is not there");
    refused("m-q8_0-00001-of-00003.gguf m-q8_0-00002-of-00003.gguf", &open_policy, "q8_0",
            ERR_INVALID, "part 3 of 3 of m-q8_0 is not there");
    refused("m-q8_0-00002-of-00002.gguf", &open_policy, "q8_0", ERR_INVALID, "part 1 of 2");
    refused("m-q8_0-00001-of-00001.gguf m-q8_0-00007-of-00001.gguf", &open_policy, "q8_0",
            ERR_INVALID, "m-q8_0-00007-of-00001.gguf is not one of the parts 1 to 1");
    refused("m-q8_0-00000-of-00001.gguf m-q8_0-00001-of-00001.gguf", &open_policy, "q8_0",
            ERR_INVALID, "m-q8_0-00000-of-00001.gguf is not one of the parts");
    /* Another set beside it, whole, and one of another label, broken. */
    select_is("a-q8_0-00001-of-00001.gguf b-q8_0-00001-of-00001.gguf c-q4_0-00002-of-00002.gguf",
              &open_policy, "q8_0", "a-q8_0-00001-of-00001.gguf b-q8_0-00001-of-00001.gguf");
    /* The whole repository is taken as it is. */
    select_is("m-q8_0-00002-of-00002.gguf", &open_policy, NULL, "m-q8_0-00002-of-00002.gguf");
}

Test(select, quants_of_a_repository)
{
    struct select_file files[] = {
        {.path = "m-Q8_0.gguf"},
        {.path = "m-Q4_K_M-00001-of-00002.gguf"},
        {.path = "m-q4_k_m-00002-of-00002.gguf"},
        {.path = "mmproj-F16.gguf"},
        {.path = "imatrix-F32.gguf"},
        {.path = ".x/m-Q2_K.gguf"},
        {.path = "m.gguf"},
        {.path = "Q5_0/m.gguf"},
        {.path = "x-Q5_1.bin"},
    };
    char labels[8][32];
    cr_assert_eq(select_quants(files, ARRAY_LEN(files), labels, 8), 3);
    cr_assert_str_eq(labels[0], "Q4_K_M");
    cr_assert_str_eq(labels[1], "Q5_0");
    cr_assert_str_eq(labels[2], "Q8_0");
    cr_assert_eq(select_quants(files, ARRAY_LEN(files), labels, 2), 2);
    cr_assert_eq(select_quants(files, 0, labels, 2), 0);
}

Test(select, split_names)
{
    static const struct {
        const char *path;
        size_t stem;
        unsigned no, count;
    } table[] = {
        {"m-00001-of-00004.gguf", 1, 1, 4},
        {"a/m_00002-of-00004.safetensors", 3, 2, 4},
        {"m-000001-of-100000.safetensors", 1, 1, 100000},
        {"m-1-of-4.gguf", 8, 0, 0},
        {"m-00001-of-000004.gguf", 17, 0, 0},
        {"m00001-of-00004.gguf", 15, 0, 0},
        {"-00001-of-00004.gguf", 0, 1, 4},
        {"00001-of-00004.gguf", 14, 0, 0},
        {"x.y/m", 5, 0, 0},
        {"m.gguf", 1, 0, 0},
        {"a-00001-of-00004/m.gguf", 18, 0, 0},
        {"", 0, 0, 0},
        {"-of-00004.gguf", 9, 0, 0},
        {"00004.gguf", 5, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct split_name s = split_name_of(table[i].path);
        cr_expect(s.no == table[i].no && s.count == table[i].count, "%s: %u of %u", table[i].path,
                  s.no, s.count);
        cr_expect_eq(s.stem, table[i].stem, "%s: %zu", table[i].path, s.stem);
    }
}
