#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/parameters.h"

struct row {
    const char *name, *type;
    uint64_t elements, logical;
};

static void read_config(const char *config, struct quantization *q)
{
    struct error err = ERROR_INIT;
    cr_assert_eq(quantization_read(config, strlen(config), q, &err), 0, "%s: %s", config, err.text);
}

static void feed(struct parameter_count *c, const struct quantization *q, const struct row *r)
{
    struct error err = ERROR_INIT;
    struct tensor_info t = {.name = r->name,
                            .name_len = strlen(r->name),
                            .type = r->type,
                            .dims = &r->elements,
                            .n_dims = strstr(r->name, "scalar") == NULL,
                            .elements = r->elements};
    cr_assert_eq(parameters_add(c, q, WEIGHTS_SAFETENSORS, &t, &err), 0, "%s", err.text);
}

/* Each row by itself, then the rule of all. */
static void check(const char *config, const struct row *rows, size_t n, const char *rule)
{
    struct quantization q;
    struct parameter_count all = {0};
    read_config(config, &q);
    for (size_t i = 0; i < n; i++) {
        struct parameter_count one = {0};
        feed(&one, &q, &rows[i]);
        cr_expect_eq(one.logical, rows[i].logical, "%s: %s %s: %" PRIu64 ", not %" PRIu64, config,
                     rows[i].name, rows[i].type, one.logical, rows[i].logical);
        cr_expect_eq(one.stored, rows[i].elements);
        feed(&all, &q, &rows[i]);
    }
    parameters_end(&all, &q);
    cr_expect_str_eq(all.rule, rule, "%s: %s", config, all.rule);
    quantization_done(&q);
}

Test(parameters, plain)
{
    static const struct row rows[] = {
        {"model.embed_tokens.weight", "BF16", 28311552, 28311552},
        {"model.norm.weight", "BF16", 576, 576},
        {"model.a_scalar", "F32", 1, 0},
        {"a.weight_scale_inv", "F32", 10, 10}, /* without a configuration it is a weight */
        {"a.weight_scale", "F8_E8M0", 10, 0},
        {"ids", "U8", 7, 7},
    };
    check("{\"model_type\":\"llama\"}", rows, ARRAY_LEN(rows),
          "sum of the shapes; 1 scale and the like left out");
}

Test(parameters, gptq_and_awq)
{
    static const struct row four[] = {
        {"model.layers.0.self_attn.q_proj.qweight", "I32", 2097152, 16777216},
        {"model.layers.0.self_attn.q_proj.qzeros", "I32", 16384, 0},
        {"model.layers.0.self_attn.q_proj.scales", "F16", 131072, 0},
        {"model.layers.0.self_attn.q_proj.g_idx", "I32", 4096, 0},
        {"model.embed_tokens.weight", "F16", 1000, 1000},
        {"lm_head.qweight", "I32", 100, 100}, /* not converted */
        {"lm_head.scales", "F16", 10, 10},
    };
    static const struct row three[] = {{"a.qweight", "I32", 100, 1000}, {"b.u", "U8", 10, 10}};
    static const struct row eight[] = {{"a.qweight", "I32", 100, 400}};
    check("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
          "\"modules_to_not_convert\":[\"lm_head\"]}}",
          four, ARRAY_LEN(four), "gptq 4 bit: packed weights x 8; 3 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"AWQ\",\"modules_to_not_convert\":"
          "[\"lm_head.*\"]}}",
          four, ARRAY_LEN(four), "awq: packed weights x 8; 3 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}", three, 2,
          "gptq 3 bit: packed weights x 10");
    check("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}}", eight, 1,
          "gptq 8 bit: packed weights x 4");
    check("{\"text_config\":{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}}}",
          eight, 1, "gptq 8 bit: packed weights x 4");
    check("{\"bits\":8,\"group_size\":128,\"desc_act\":false}", eight, 1,
          "gptq 8 bit: packed weights x 4"); /* quantize_config.json */
    check("{\"w_bit\":4,\"q_group_size\":128,\"zero_point\":true}", four, 5,
          "awq 4 bit: packed weights x 8; 3 scales and the like left out"); /* quant_config.json */
}

Test(parameters, fp8)
{
    static const struct row rows[] = {
        {"model.layers.3.mlp.experts.0.w1.weight", "I8", 1000, 2000},
        {"model.layers.3.mlp.experts.0.w1.scale", "F8_E8M0", 50, 0},
        {"model.layers.3.mlp.shared_experts.w1.weight", "I8", 1000, 1000},
        {"model.layers.3.self_attn.q_proj.weight", "F8_E4M3", 1000, 1000},
        {"model.layers.3.self_attn.q_proj.weight_scale_inv", "F32", 50, 0},
    };
    check("{\"expert_dtype\":\"fp4\",\"quantization_config\":{\"quant_method\":\"fp8\"}}", rows,
          ARRAY_LEN(rows), "fp8: packed weights x 2; 2 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"fp8\",\"expert_dtype\":\"fp4\"}}", rows,
          ARRAY_LEN(rows), "fp8: packed weights x 2; 2 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"fp8\"}}", rows + 2, 3,
          "fp8: sum of the shapes; 1 scale and the like left out");
}

Test(parameters, bitsandbytes_and_mxfp4)
{
    static const struct row four[] = {
        {"model.layers.0.mlp.up_proj.weight", "U8", 1000, 2000},
        {"model.layers.0.mlp.up_proj.weight.absmax", "U8", 31, 0},
        {"model.layers.0.mlp.up_proj.weight.nested_absmax", "F32", 31, 0},
        {"model.layers.0.mlp.up_proj.weight.quant_map", "F32", 16, 0},
        {"model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4", "U8", 90, 0},
        {"model.norm.weight", "BF16", 64, 64},
    };
    static const struct row eight[] = {{"a.weight", "I8", 1000, 1000}, {"a.SCB", "F32", 10, 10}};
    static const struct row mxfp4[] = {
        {"model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", 1000, 2000},
        {"model.layers.0.mlp.experts.gate_up_proj_scales", "U8", 62, 0},
        {"model.layers.0.mlp.experts.gate_up_proj_bias", "BF16", 10, 10},
    };
    check("{\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}}",
          four, ARRAY_LEN(four),
          "bitsandbytes: packed weights x 2; 4 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}}",
          eight, 2, "bitsandbytes: sum of the shapes");
    check("{\"quantization_config\":{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":"
          "[\"model.layers.*.self_attn\",\"lm_head\"]}}",
          mxfp4, ARRAY_LEN(mxfp4),
          "mxfp4 4 bit: packed weights x 2; 1 scale and the like left out");
}

Test(parameters, compressed_tensors)
{
    static const struct row mixed[] = {
        {"model.layers.0.mlp.up_proj.weight_packed", "I32", 1000, 8000},
        {"model.layers.0.mlp.up_proj.weight_scale", "BF16", 100, 0},
        {"model.layers.0.mlp.up_proj.weight_shape", "I64", 2, 0},
        {"model.layers.0.mlp.up_proj.weight_g_idx", "I32", 2, 0},
        {"model.layers.0.mlp.down_proj.weight_packed", "I32", 1000, 4000},
        {"model.layers.1.mlp.down_proj.weight_packed", "I32", 1000, 10667}, /* 3 bit */
        {"lm_head.weight", "BF16", 1000, 1000},
        {"model.router.weight_packed", "I32", 1000, 1000},
        {"visual.blocks.1.weight", "I32", 1000, 1000},
    };
    static const struct row nvfp4[] = {
        {"a.weight_packed", "U8", 1000, 2000},  {"a.weight_scale", "F8_E4M3", 62, 0},
        {"a.weight_global_scale", "F32", 1, 0}, {"a.input_global_scale", "F32", 1, 0},
        {"b.weight", "F8_E4M3", 62, 62},
    };
    static const struct row ints[] = {{"a.weight", "I8", 1000, 1000}};
    check("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
          "\"pack-quantized\",\"ignore\":[\"z\",\"model.router\",\"lm_head\",\"b\",\"a\",\"re:"
          "visual.*\",\"re:(x)\"],"
          "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4}},"
          "\"group_1\":{\"targets\":[\"re:.*layers\\\\.0\\\\..*down_proj$\"],\"weights\":"
          "{\"num_bits\":8}},\"group_2\":{\"targets\":[\"model.layers.1.mlp.down_proj\"],"
          "\"weights\":{\"num_bits\":3}}}}}",
          mixed, ARRAY_LEN(mixed),
          "compressed-tensors: packed weights unpacked, each by its width; 3 scales and the like "
          "left "
          "out");
    check("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
          "\"nvfp4-pack-quantized\"}}",
          nvfp4, ARRAY_LEN(nvfp4),
          "compressed-tensors: packed weights x 2; 3 scales and the like left out");
    check("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
          "\"int-quantized\",\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4}}}}}",
          ints, 1, "compressed-tensors: sum of the shapes");
}

Test(parameters, where_the_hub_counts_bytes)
{
    static const struct row modelopt[] = {
        {"model.layers.0.mlp.up_proj.weight", "U8", 1000, 2000},
        {"model.layers.0.mlp.up_proj.weight_scale", "F8_E4M3", 62, 0},
        {"model.layers.0.mlp.up_proj.weight_scale_2", "F32", 1, 0},
        {"model.layers.0.self_attn.q_proj.weight", "BF16", 10, 10},
    };
    static const struct row mlx[] = {
        {"model.layers.0.mlp.up_proj.weight", "U32", 1000, 8000},
        {"model.layers.0.mlp.up_proj.scales", "F16", 62, 0},
        {"model.layers.0.mlp.up_proj.biases", "F16", 62, 0},
        {"lm_head.weight", "U32", 1000, 4000},
        {"model.norm.weight", "F16", 64, 64},
    };
    static const struct row torchao[] = {
        {"model.layers.0.mlp.up_proj._weight_qdata", "I8", 1000, 2000},
        {"model.layers.0.mlp.up_proj._weight_scale", "BF16", 62, 0},
        {"model.layers.0.mlp.up_proj._weight_zero_point", "BF16", 62, 0},
        {"model.norm.weight", "BF16", 64, 64},
    };
    static const struct row bitnet[] = {{"a.weight", "U8", 100, 400},
                                        {"a.weight_scale", "BF16", 1, 0}};
    check("{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\","
          "\"ignore\":[\"model.layers.*.self_attn*\"]}}",
          modelopt, ARRAY_LEN(modelopt),
          "modelopt: packed weights x 2; 2 scales and the like left out (the Hub shows stored)");
    check("{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\","
          "\"exclude_modules\":[\"lm_head\"]}}",
          modelopt, ARRAY_LEN(modelopt),
          "modelopt: packed weights x 2; 2 scales and the like left out (the Hub shows stored)");
    check("{\"quantization\":{\"group_size\":64,\"bits\":4,\"lm_head\":{\"bits\":8,"
          "\"group_size\":64}},\"quantization_config\":{\"group_size\":64,\"bits\":4}}",
          mlx, ARRAY_LEN(mlx),
          "mlx 4 bit: packed weights unpacked, each by its width; 2 scales and the like left out "
          "(the "
          "Hub shows stored)");
    check(
        "{\"quantization_config\":{\"quant_method\":\"torchao\",\"quant_type\":{\"default\":"
        "{\"_type\":\"Int4WeightOnlyConfig\"}}}}",
        torchao, ARRAY_LEN(torchao),
        "torchao 4 bit: packed weights x 2; 2 scales and the like left out (the Hub shows stored)");
    check("{\"quantization_config\":{\"quant_method\":\"bitnet\"}}", bitnet, 2,
          "bitnet: packed weights x 4; 1 scale and the like left out (the Hub shows stored)");
    check("{\"quantization_config\":{\"bits\":4}}", bitnet + 1, 1,
          "unstated 4 bit: sum of the shapes; 1 scale and the like left out");
}

Test(parameters, other_formats_count_elements)
{
    struct parameter_count c = {0};
    struct quantization q;
    struct error err = ERROR_INIT;
    struct tensor_info t = {
        .name = "token_embd.weight", .name_len = 17, .type = "Q4_K", .elements = 1000};
    read_config("{\"quantization_config\":{\"quant_method\":\"gptq\"}}", &q);
    cr_assert_eq(parameters_add(&c, &q, WEIGHTS_GGUF, &t, &err), 0);
    cr_assert_eq(parameters_add(&c, NULL, WEIGHTS_GGUF, &t, &err), 0);
    parameters_end(&c, NULL);
    cr_expect(c.stored == 2000 && c.logical == 2000);
    cr_expect_str_eq(c.rule, "sum of the shapes");
    quantization_done(&q);
}

Test(parameters, overflow_leaves_the_sum_alone)
{
    struct parameter_count c = {.stored = 5, .logical = 5};
    struct quantization q;
    struct error err = ERROR_INIT;
    uint64_t dim = UINT64_MAX / 4;
    struct tensor_info t = {.name = "a.qweight",
                            .name_len = 9,
                            .type = "I32",
                            .dims = &dim,
                            .n_dims = 1,
                            .elements = dim};
    read_config("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", &q);
    cr_expect_lt(parameters_add(&c, &q, WEIGHTS_SAFETENSORS, &t, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    t.elements = UINT64_MAX;
    cr_expect_lt(parameters_add(&c, NULL, WEIGHTS_SAFETENSORS, &t, &err), 0);
    cr_expect(c.stored == 5 && c.logical == 5);
    quantization_done(&q);
}

Test(parameters, what_configurations_say)
{
    struct quantization q;
    struct error err = ERROR_INIT;
    read_config("{}", &q);
    cr_expect_str_eq(q.method, "");
    read_config("{\"quantization_config\":null,\"text_config\":{\"quantization_config\":"
                "{\"quant_method\":\"FP8\"}},\"time_step_limit\":[0.0, Infinity]}",
                &q);
    cr_expect_str_eq(q.method, "fp8");
    quantization_done(&q);
    read_config("{\"quantization_config\":[],\"quantization\":\"x\"}", &q);
    cr_expect_str_eq(q.method, "");
    cr_expect_lt(quantization_read("[]", 2, &q, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    quantization_done(&q);
    cr_expect_lt(quantization_read("{", 1, &q, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    quantization_done(&q);
}

static void must_be_too_large(const char *text, size_t len, const char *says)
{
    struct quantization q;
    struct error err = ERROR_INIT;
    cr_expect_lt(quantization_read(text, len, &q, &err), 0);
    cr_expect_eq(err.code, ERR_TOO_LARGE, "%s", err.text);
    cr_expect(strstr(err.text, says), "%s", err.text);
    quantization_done(&q);
}

/* `n` entries by the format, the first with the number 0. */
static char *config_of(const char *before, const char *format, unsigned n, const char *behind)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    cr_assert(f);
    fputs(before, f);
    for (unsigned i = 0; i < n; i++) {
        if (i)
            putc(',', f);
        for (const char *p = format; *p; p++)
            if (*p == '#')
                fprintf(f, "%u", i);
            else
                putc(*p, f);
    }
    fputs(behind, f);
    fclose(f);
    return text;
}

#define SKIPS "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,"

Test(parameters, lists_without_end_are_refused)
{
    static const struct {
        const char *before, *format;
        unsigned n;
        const char *behind, *says;
    } table[] = {
        {SKIPS "\"modules_to_not_convert\":[", "\"a#\"", 4097, "]}}",
         "quantization_config at byte 23: lists of over 4096 parts of modules' names"},
        {SKIPS "\"modules_to_not_convert\":[", "\"a#*\"", 4097, "]}}", "over 4096 parts"},
        {SKIPS "\"modules_to_not_convert\":[\"x\",\"y*\"],\"ignore\":[", "\"re:a#\"", 4095, "]}}",
         "over 4096 parts"},
        {SKIPS "\"modules_to_not_convert\":[", "\"a#*b\"", 257, "]}}", "over 256 expressions"},
        {SKIPS "\"ignore\":[", "\"re:.*a#.*b$\"", 257, "]}}", "over 256 expressions"},
        {SKIPS "\"ignore\":[", "\"a#\"", 200001, "]}}", "over 200000 modules"},
        {SKIPS "\"config_groups\":{", "\"g#\":{}", 1025, "}}}", "over 1024 groups"},
        {SKIPS "\"config_groups\":{\"g\":{},\"h\":{\"targets\":[", "\"re:a#\"", 257, "]}}}}",
         "over 256 expressions"},
        {" {\"quantization\":{\"bits\":4,\"group_size\":64,", "\"m#\":{\"bits\":8}", 1025, "}}",
         "quantization at byte 17: over 1024 groups"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct quantization q;
        struct error err = ERROR_INIT;
        _cleanup_free_ char *text =
            config_of(table[i].before, table[i].format, table[i].n, table[i].behind);
        must_be_too_large(text, strlen(text), table[i].says);
        free(text);
        text = config_of(table[i].before, table[i].format, table[i].n - 1, table[i].behind);
        cr_expect_eq(quantization_read(text, strlen(text), &q, &err), 0, "%zu: %s", i, err.text);
        quantization_done(&q);
    }
}

static struct parameter_count count_one(const struct quantization *q, const char *name,
                                        uint64_t elements)
{
    struct parameter_count c = {0};
    feed(&c, q, &(struct row){name, "I32", elements, 0});
    return c;
}

/* One by one they would be 4,096 comparisons; halving takes 13 for each byte at most. */
Test(parameters, parts_of_names_are_not_tried_one_by_one)
{
    static const char *const formats[] = {"\"part.#.\"", "\"blocks.#.up*\"", "\"*layer#.*\""};
    static const struct {
        const char *name;
        bool is_left[ARRAY_LEN(formats)];
    } names[] = {
        {"model.part.7.qweight", {true, false, false}},
        {"blocks.4094.up_proj.qweight", {false, true, false}},
        {"model.blocks.4094.up_proj.qweight", {false, false, false}},
        {"x.layer4095.qweight", {false, false, true}},
        {"x.layer4096.qweight", {false, false, false}},
        {"part.00.qweight", {false, false, false}},
    };
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        struct quantization q;
        _cleanup_free_ char *text =
            config_of(SKIPS "\"modules_to_not_convert\":[", formats[f], 4096, "]}}");
        read_config(text, &q);
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            struct parameter_count c = count_one(&q, names[i].name, 10);
            cr_expect_eq(c.logical, names[i].is_left[f] ? 10 : 80, "%s, %s", formats[f],
                         names[i].name);
            cr_expect_leq(c.work, 13 * (strlen(names[i].name) + 1), "%" PRIu64, c.work);
        }
        quantization_done(&q);
    }
}

/* The shorter of two that begin alike stands for both; the empty one for all. */
Test(parameters, parts_that_begin_alike)
{
    struct quantization q;
    read_config(
        SKIPS "\"modules_to_not_convert\":[\"ab\",\"abc\",\"abcd\",\"b\",\"abd*\",\"a*\"]}}", &q);
    cr_expect_eq(count_one(&q, "xab.qweight", 1).logical, 1);
    cr_expect_eq(count_one(&q, "xb.qweight", 1).logical, 1);
    cr_expect_eq(count_one(&q, "a.qweight", 1).logical, 1);
    cr_expect_eq(count_one(&q, "xa.qweight", 1).logical, 8);
    quantization_done(&q);
    read_config(SKIPS "\"modules_to_not_convert\":[\"z\",\"\"]}}", &q);
    cr_expect_eq(count_one(&q, "a.qweight", 1).logical, 1);
    quantization_done(&q);
}

/* The first group that has a target for it, whether by its name or by an expression. */
Test(parameters, the_first_of_several_groups)
{
    struct quantization q;
    read_config("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
                "\"pack-quantized\",\"config_groups\":{"
                "\"a\":{\"targets\":[\"Linear\",\"m.z\"],\"weights\":{\"num_bits\":8}},"
                "\"b\":{\"targets\":[\"re:m\\\\.[xy]\",\"re:m.*x$\"],\"weights\":{\"num_bits\":4}},"
                "\"c\":{\"targets\":[\"m.x\",\"m.y\",\"m.z\"],\"weights\":{\"num_bits\":2}}}}}",
                &q);
    cr_expect_eq(count_one(&q, "m.x.weight_packed", 1).logical, 8); /* "m.x.weight_packed" has no
                                                                       module of its own */
    cr_expect_eq(count_one(&q, "m.x.weight", 1).logical, 8);
    cr_expect_eq(count_one(&q, "m.y.weight", 1).logical, 16);
    cr_expect_eq(count_one(&q, "m.z.weight", 1).logical, 4);
    quantization_done(&q);
}

/* What is left to be tried one by one is bounded by what it takes, and the answer says so. */
Test(parameters, lists_that_take_too_long_are_not_applied)
{
    struct quantization q;
    struct parameter_count c = {0}, other = {.stored = 5,
                                             .logical = 40,
                                             .unpacked = 1,
                                             .times = {8, 1},
                                             .left_out = 2};
    uint64_t tensors = 0, before = 0;
    char name[1000];
    struct error err = ERROR_INIT;
    _cleanup_free_ char *text =
        config_of(SKIPS "\"modules_to_not_convert\":[", "\"*a#*b#*c#*d\"", 256, "]}}");
    read_config(text, &q);
    memset(name, 'a', sizeof(name));
    strcpy(name + sizeof(name) - sizeof(".qweight"), ".qweight");
    const struct row row = {name, "I32", 1, 0};
    feed(&c, &q, &row);
    cr_assert(!c.unread && c.logical == 8);
    cr_expect_geq(c.work, 256 * (sizeof(name) - 1));
    const uint64_t each = c.work;
    c.work = PARAMETERS_WORK_MAX - 10 * each; /* as if there had been many thousands before */
    while (!c.unread && tensors < 100) {
        before = c.work;
        feed(&c, &q, &row);
        tensors++;
    }
    cr_expect_eq(tensors, 11);
    cr_expect(before <= PARAMETERS_WORK_MAX && c.work <= PARAMETERS_WORK_MAX + each);
    before = c.work;
    for (unsigned i = 0; i < 1000; i++)
        feed(&c, &q, &row);
    cr_expect_eq(c.work, before, "nothing is tried any more");
    cr_expect(c.stored == 1012 && c.logical == c.stored);
    cr_assert_eq(parameters_merge(&other, &c, &err), 0);
    cr_expect(other.unread && other.stored == 1017 && other.logical == 1017);
    parameters_end(&other, &q);
    cr_expect_str_eq(other.rule, "awq 4 bit: counted as stored: its lists of modules are too long");
    quantization_done(&q);
}
