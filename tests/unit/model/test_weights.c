#include <criterion/criterion.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/parsers.h"

Test(weights, formats_by_name)
{
    static const struct {
        const char *path, *name;
        enum weights_format format;
    } table[] = {
        {"model.safetensors", "safetensors", WEIGHTS_SAFETENSORS},
        {"a/b/Model-Q4_K_M.GGUF", "gguf", WEIGHTS_GGUF},
        {"pytorch_model.bin", "pt", WEIGHTS_PICKLE},
        {"x.PT", "pt", WEIGHTS_PICKLE},
        {"x.pth", "pt", WEIGHTS_PICKLE},
        {"x.ckpt", "pt", WEIGHTS_PICKLE},
        {"x.pkl", "pt", WEIGHTS_PICKLE},
        {"model.safetensors.bin", "pt", WEIGHTS_PICKLE},
        {"onnx/model.onnx", "onnx", WEIGHTS_ONNX},
        {"tf_model.h5", "", WEIGHTS_OTHER},
        {"config.json", "", WEIGHTS_UNKNOWN},
        {"model.safetensors.index.json", "", WEIGHTS_UNKNOWN},
        {"dir.bin/README", "", WEIGHTS_UNKNOWN},
        {"gguf", "", WEIGHTS_UNKNOWN},
        {"", "", WEIGHTS_UNKNOWN},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        cr_expect_eq(weights_format_of(table[i].path), table[i].format, "%s", table[i].path);
        cr_expect_str_eq(weights_format_name(table[i].format), table[i].name, "%s", table[i].path);
    }
}

Test(weights, other_formats_have_no_parser)
{
    struct weights w;
    uint64_t need;
    struct error err = ERROR_INIT;
    cr_assert_lt(weights_parse(WEIGHTS_ONNX, "", 0, 0, &w, &need, &err), 0);
    cr_assert_eq(err.code, ERR_UNSUPPORTED);
    cr_assert_lt(weights_parse(WEIGHTS_GGUF, "GGUF", 4, 3, &w, &need, &err), 0);
    cr_assert_eq(err.code, ERR_INTERNAL);
}

static struct weights one_file(const char *type, uint64_t elements, uint64_t bytes)
{
    struct weights w = {.format = WEIGHTS_GGUF, .file_bytes = bytes + 10, .header_bytes = 10};
    cr_assert_eq(weights_count(&w, type, 1, elements, bytes, NULL), 0);
    return w;
}

Test(weights, parts_add_up)
{
    struct weights sum = {0}, a = one_file("Q8_0", 32, 34), b = one_file("F32", 2, 8);
    strcpy(b.architecture, "llama");
    strcpy(b.name, "tiny");
    b.has_file_type = true;
    b.file_type = 7;
    b.context_length = 4096;
    b.partial = true;
    a.split_count = b.split_count = 2;
    cr_assert_eq(weights_add(&sum, &a, NULL), 0);
    cr_assert_eq(weights_add(&sum, &b, NULL), 0);
    cr_assert_eq(weights_add(&sum, &a, NULL), 0);
    cr_assert_eq(sum.format, WEIGHTS_GGUF);
    cr_assert_eq(sum.tensors, 3);
    cr_assert_eq(sum.parameters, 66);
    cr_assert_eq(sum.tensor_bytes, 76);
    cr_assert_eq(sum.file_bytes, 106);
    cr_assert_eq(sum.header_bytes, 30);
    cr_assert_eq(sum.n_types, 2);
    cr_assert_str_eq(sum.types[0].name, "F32");
    cr_assert_str_eq(sum.types[1].name, "Q8_0");
    cr_assert_eq(sum.types[1].elements, 64);
    cr_assert_str_eq(sum.architecture, "llama");
    cr_assert_str_eq(sum.name, "tiny");
    cr_assert(sum.has_file_type && sum.file_type == 7 && sum.context_length == 4096);
    cr_assert(sum.partial);
    cr_assert_eq(sum.split_count, 0);
}

Test(weights, a_sum_that_overflows_is_left_as_it_was)
{
    struct weights sum = {0}, before, a = one_file("I8", UINT64_MAX - 1, 1);
    struct error err = ERROR_INIT;
    cr_assert_eq(weights_add(&sum, &a, NULL), 0);
    before = sum;
    cr_assert_lt(weights_add(&sum, &a, &err), 0);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(memcmp(&sum, &before, sizeof(sum)), 0);
    a = one_file("I8", 0, 0);
    a.file_bytes = UINT64_MAX;
    cr_assert_lt(weights_add(&sum, &a, &err), 0);
    cr_assert_eq(memcmp(&sum, &before, sizeof(sum)), 0);
}

Test(weights, the_table_of_types_is_bounded)
{
    struct weights w = {0};
    struct error err = ERROR_INIT;
    char name[16];
    for (int i = 0; i < WEIGHTS_MAX_TYPES; i++) {
        snprintf(name, sizeof(name), "T%d", i);
        cr_assert_eq(weights_count(&w, name, 1, 1, 1, &err), 0);
    }
    cr_assert_lt(weights_count(&w, "one more", 1, 1, 1, &err), 0);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    for (size_t i = 1; i < w.n_types; i++)
        cr_assert_lt(strcmp(w.types[i - 1].name, w.types[i].name), 0);
}

Test(weights, warnings_are_cut_at_a_character)
{
    struct weights w = {0};
    for (int i = 0; i < 40; i++)
        weights_warn(&w, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    cr_assert_lt(strlen(w.warning), sizeof(w.warning));
    cr_assert_eq(strncmp(w.warning, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac; ", 11), 0);
    cr_assert_neq((unsigned char)w.warning[strlen(w.warning) - 1], 0xe2);
}

Test(weights, file_types)
{
    cr_assert_str_eq(gguf_file_type_name(15), "Q4_K_M");
    cr_assert_str_eq(gguf_file_type_name(15 | 1024), "Q4_K_M");
    cr_assert_str_eq(gguf_file_type_name(0), "F32");
    cr_assert_str_eq(gguf_file_type_name(38), "MXFP4_MOE");
    cr_assert_str_eq(gguf_file_type_name(41), "Q2_0");
    cr_assert_null(gguf_file_type_name(42));
    cr_assert_null(gguf_file_type_name(UINT32_MAX));
}
