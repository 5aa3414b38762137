#include <criterion/criterion.h>
#include <string.h>

#include "upstream/import_private.h"

#define FILES_MAX 8

static struct model_facts one(const char *path, uint64_t parameters)
{
    struct model_facts facts;
    struct weights w;
    memset(&w, 0, sizeof(w));
    w.format = weights_format_of(path);
    w.tensors = 1;
    w.parameters = parameters;
    w.tensor_bytes = parameters * 4;
    w.n_types = 1;
    w.types[0] = (struct dtype_total){
        .name = "F32", .tensors = 1, .elements = parameters, .bytes = parameters * 4};
    memset(&facts, 0, sizeof(facts));
    facts.weights = w;
    facts.parameters.stored = parameters;
    facts.parameters.logical = parameters * 2;
    return facts;
}

/* The sum over files of 10 parameters each, whatever their order. */
static int sum_of(const char *const *paths, size_t n, struct model_facts *ret)
{
    struct error err = ERROR_INIT;
    int rc = -1;
    for (int turn = 0; turn < 2; turn++) {
        struct sum_file files[FILES_MAX];
        struct model_facts each[FILES_MAX], sum;
        memset(&sum, 0, sizeof(sum));
        for (size_t i = 0; i < n; i++) {
            const char *path = paths[turn ? n - 1 - i : i];
            each[i] = one(path, 10);
            files[i] = (struct sum_file){.path = path, .facts = &each[i]};
        }
        rc = facts_sum(files, n, &sum, &err);
        cr_assert(rc >= 0, "%s", err.text);
        cr_assert(turn == 0 || sum.weights.parameters == ret->weights.parameters,
                  "the order matters");
        *ret = sum;
    }
    return rc;
}

static uint64_t parameters_of(const char *const *paths, size_t n)
{
    struct model_facts sum;
    if (sum_of(paths, n, &sum) <= 0)
        return 0;
    cr_assert_eq(sum.parameters.logical, sum.weights.parameters * 2);
    return sum.weights.parameters;
}

#define PARAMETERS(...)                                                                            \
    parameters_of((const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *[]){__VA_ARGS__})))

Test(sum, shards_of_one_set)
{
    cr_assert_eq(PARAMETERS("model.safetensors"), 10);
    cr_assert_eq(PARAMETERS("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
                 20);
    cr_assert_eq(PARAMETERS("x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf"), 20);
}

Test(sum, names_that_only_look_like_shards)
{
    cr_assert_eq(PARAMETERS("1-of-2.safetensors"), 10);
    cr_assert_eq(PARAMETERS("-of-2.safetensors"), 10);
    cr_assert_eq(PARAMETERS("x-of-2.safetensors"), 10);
    cr_assert_eq(PARAMETERS("a.b/-1-of-2.safetensors"), 10);
    cr_assert_eq(PARAMETERS(".safetensors"), 10);
}

Test(sum, copies_are_left_out)
{
    cr_assert_eq(PARAMETERS("consolidated.safetensors", "model-00001-of-00002.safetensors",
                            "model-00002-of-00002.safetensors"),
                 20);
    cr_assert_eq(PARAMETERS("consolidated.safetensors"), 10);
    cr_assert_eq(PARAMETERS("unet/m.fp16.safetensors", "unet/m.safetensors"), 10);
    cr_assert_eq(PARAMETERS("m-1-of-2.safetensors", "m-2-of-2.safetensors", "m.fp16.safetensors"),
                 20);
    cr_assert_eq(PARAMETERS("m.fp16.safetensors"), 10);
}

Test(sum, the_top_folder_or_a_pipeline)
{
    cr_assert_eq(PARAMETERS("text_encoder/model.safetensors", "unet/model.safetensors"), 20);
    cr_assert_eq(PARAMETERS("model.safetensors", "2_Dense/model.safetensors"), 10);
}

Test(sum, safetensors_before_gguf)
{
    cr_assert_eq(PARAMETERS("model.safetensors", "x-Q4_0.gguf", "x-Q8_0.gguf"), 10);
}

Test(sum, alternatives_that_agree)
{
    struct model_facts sum;
    static const char *const quants[] = {"x-Q4_K_M.gguf", "x-Q8_0.gguf"};
    cr_assert_eq(sum_of(quants, 2, &sum), 1);
    cr_assert_eq(sum.weights.parameters, 10);
    cr_assert_eq(sum.weights.n_types, 0, "which precision it has is not known");
    cr_assert_eq(PARAMETERS("Q4_K_M/x.gguf", "Q8_0/x.gguf"), 10);
    cr_assert_eq(PARAMETERS("a.safetensors", "b.safetensors"), 10);
}

Test(sum, alternatives_that_do_not_agree)
{
    struct model_facts a = one("a-Q4_0.gguf", 10), b = one("b-Q8_0.gguf", 20), sum;
    struct error err = ERROR_INIT;
    strcpy(a.weights.architecture, "llama");
    strcpy(b.weights.architecture, "llama");
    a.weights.has_file_type = b.weights.has_file_type = true;
    b.weights.file_type = 7;
    struct sum_file files[] = {{"a-Q4_0.gguf", &a}, {"b-Q8_0.gguf", &b}};
    cr_assert_eq(facts_sum(files, 2, &sum, &err), 1);
    cr_assert_eq(sum.weights.parameters, 0);
    cr_assert_eq(sum.parameters.logical, 0);
    cr_assert_not(sum.weights.has_file_type);
    cr_assert_str_eq(sum.weights.architecture, "llama");
    cr_assert_eq(sum.weights.format, WEIGHTS_GGUF);
}

Test(sum, alternatives_in_a_pipeline_are_too_much)
{
    cr_assert_eq(PARAMETERS("a/x.safetensors", "a/y.safetensors", "b/z.safetensors"), 0);
}

Test(sum, projectors_do_not_count)
{
    cr_assert_eq(PARAMETERS("x-Q8_0.gguf", "mmproj-x-F16.gguf"), 10);
    struct model_facts sum;
    static const char *const only[] = {"mmproj-F16.gguf"};
    cr_assert_eq(sum_of(only, 1, &sum), 0);
}

Test(sum, nothing_and_overflow)
{
    struct model_facts sum, huge = one("a.safetensors", UINT64_MAX / 4);
    struct error err = ERROR_INIT;
    struct sum_file files[] = {{"a-1-of-5.safetensors", &huge}, {"a-2-of-5.safetensors", &huge}};
    cr_assert_eq(facts_sum(NULL, 0, &sum, &err), 0);
    cr_assert_eq(facts_sum(files, 2, &sum, &err), 0);
}

Test(sum, the_shape_of_a_split_file_is_in_its_first_part)
{
    struct model_facts a = one("a-1-of-2.gguf", 1), b = one("a-2-of-2.gguf", 2), sum;
    struct error err = ERROR_INIT;
    a.cache.has_cache = true;
    a.cache.token_bytes = 77;
    struct sum_file files[] = {{"a-2-of-2.gguf", &b}, {"a-1-of-2.gguf", &a}};
    cr_assert_eq(facts_sum(files, 2, &sum, &err), 1);
    cr_assert_eq(sum.cache.token_bytes, 77);
    struct model_facts c = one("c.gguf", 3);
    struct sum_file others[] = {{"a-1-of-1.gguf", &a}, {"c.gguf", &c}};
    cr_assert_eq(facts_sum(others, 2, &sum, &err), 1);
    cr_assert_not(sum.cache.has_cache, "the two do not agree");
}
