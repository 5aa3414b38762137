#include "tests/unit/model/shape_check.h"

static const char smollm2[] =
    "{\"model_type\":\"llama\",\"num_hidden_layers\":30,\"num_attention_heads\":9,"
    "\"num_key_value_heads\":3,\"hidden_size\":576,\"max_position_embeddings\":8192}";
static const char llama8b[] =
    "{\"model_type\":\"llama\",\"num_hidden_layers\":32,\"num_attention_heads\":32,"
    "\"num_key_value_heads\":8,\"hidden_size\":4096,\"max_position_embeddings\":131072}";
static const char qwen3[] =
    "{\"model_type\":\"qwen3\",\"num_hidden_layers\":28,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":8,\"hidden_size\":1024,\"head_dim\":128,\"use_sliding_window\":false,"
    "\"sliding_window\":null,\"max_window_layers\":28}";
static const char deepseek[] =
    "{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"num_attention_heads\":128,"
    "\"num_key_value_heads\":128,\"hidden_size\":7168,\"kv_lora_rank\":512,"
    "\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":128,\"v_head_dim\":128}";
static const char gemma27b[] =
    "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"head_dim\":128,"
    "\"hidden_size\":5376,\"num_attention_heads\":32,\"num_hidden_layers\":62,"
    "\"num_key_value_heads\":16,\"sliding_window\":1024}}";
static const char gpt_oss[] =
    "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":24,\"num_attention_heads\":64,"
    "\"num_key_value_heads\":8,\"head_dim\":64,\"hidden_size\":2880,\"sliding_window\":128,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\"]}";
static const char whisper[] =
    "{\"model_type\":\"whisper\",\"decoder_layers\":32,\"decoder_attention_heads\":20,"
    "\"d_model\":1280,\"is_encoder_decoder\":true,\"max_source_positions\":1500}";
static const char mamba[] =
    "{\"model_type\":\"mamba\",\"num_hidden_layers\":64,\"hidden_size\":2560,\"state_size\":16,"
    "\"conv_kernel\":4,\"expand\":2}";

/* Four layers in the proportions of DeepSeek-V4: a window alone, and beside it rows for 4 tokens
 * (and index rows) or for 128. */
static const char deepseek_v4[] =
    "{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":4,\"num_attention_heads\":64,"
    "\"num_key_value_heads\":1,\"hidden_size\":4096,\"head_dim\":512,\"sliding_window\":128,"
    "\"index_head_dim\":128,\"compress_ratios\":[0,4,128,4]}";

static struct kv_request request(const char *type, uint64_t context, uint64_t sequences)
{
    struct kv_request r = {.context = context, .sequences = sequences, .tensor_parallel = 1};
    struct error err = ERROR_INIT;
    cr_assert_eq(kv_type_parse(type, &r.key, &err), 0, "%s", err.text);
    r.value = r.key;
    return r;
}

static struct kv_cost cost_of(const char *config, const struct kv_request *r)
{
    struct model_shape s;
    struct kv_cost c;
    struct error err = ERROR_INIT;
    shape_read(config, &s);
    cr_assert_eq(kv_cost(&s, r, &c, &err), 0, "%s", err.text);
    shape_done(&s);
    return c;
}

static void expect_cost(const char *config, const char *type, uint64_t context, uint64_t sequences,
                        struct kv_cost want)
{
    struct kv_request r = request(type, context, sequences);
    struct kv_cost c = cost_of(config, &r);
    cr_expect_eq(c.full_per_token, want.full_per_token, "%s %s: %" PRIu64, config, type,
                 c.full_per_token);
    cr_expect_eq(c.window_per_token, want.window_per_token, "%s: %" PRIu64, config,
                 c.window_per_token);
    cr_expect_eq(c.state_per_sequence, want.state_per_sequence, "%s: %" PRIu64, config,
                 c.state_per_sequence);
    cr_expect_eq(c.cross_per_token, want.cross_per_token, "%s: %" PRIu64, config,
                 c.cross_per_token);
    cr_expect_eq(c.total, want.total, "%s: %" PRIu64, config, c.total);
}

static void fit(const char *config, const struct kv_request *r, uint64_t bytes, uint64_t *tokens,
                uint64_t *sequences)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    shape_read(config, &s);
    cr_assert_eq(kv_fit(&s, r, bytes, tokens, sequences, &err), 0, "%s", err.text);
    shape_done(&s);
}

/* The published figures. */
Test(kv_cache, golden_figures)
{
    expect_cost(smollm2, "f16", 8192, 1,
                (struct kv_cost){.full_per_token = 23040, .total = 188743680});
    expect_cost(smollm2, "q8_0", 1, 1, (struct kv_cost){.full_per_token = 12240, .total = 12240});
    expect_cost(smollm2, "q4_0", 1, 1, (struct kv_cost){.full_per_token = 6480, .total = 6480});
    expect_cost(llama8b, "f16", 32768, 16,
                (struct kv_cost){.full_per_token = 131072, .total = 68719476736});
    expect_cost(llama8b, "q8_0", 1, 1, (struct kv_cost){.full_per_token = 69632, .total = 69632});
    expect_cost(qwen3, "f16", 40960, 1,
                (struct kv_cost){.full_per_token = 114688, .total = 4697620480});
    expect_cost(deepseek, "f16", 1, 1, (struct kv_cost){.full_per_token = 70272, .total = 70272});
    expect_cost(deepseek, "bf16", 1000, 3,
                (struct kv_cost){.full_per_token = 70272, .total = 210816000});
    /* 10 of 62 layers see everything, the others 1024 tokens. */
    expect_cost(gemma27b, "f16", 131072, 1,
                (struct kv_cost){.full_per_token = 81920,
                                 .window_per_token = 425984,
                                 .total = 81920 * 131072ull + 425984 * 1024ull});
    expect_cost(gpt_oss, "f16", 131072, 1,
                (struct kv_cost){.full_per_token = 24576,
                                 .window_per_token = 24576,
                                 .total = 24576 * 131072ull + 24576 * 128ull});
    expect_cost(gpt_oss, "f16", 100, 2,
                (struct kv_cost){
                    .full_per_token = 24576, .window_per_token = 24576, .total = 2 * 100 * 49152});
}

Test(kv_cache, states_and_encoders)
{
    /* 64 layers x 97,280 elements x 4 bytes, whatever the context. */
    expect_cost(mamba, "f16", 100000, 2,
                (struct kv_cost){.state_per_sequence = 24903680, .total = 49807360});
    /* 32 layers x 20 heads x 64 x 2 sides x 2 bytes; the encoder always gives 1,500. */
    expect_cost(whisper, "f16", 448, 1,
                (struct kv_cost){.full_per_token = 163840,
                                 .cross_per_token = 163840,
                                 .total = 163840 * 448ull + 163840 * 1500ull});
    struct kv_request r = request("f16", 448, 1);
    r.encoder_tokens = 10;
    cr_expect_eq(cost_of(whisper, &r).total, 163840 * 458ull);
}

Test(kv_cache, compressed_rows)
{
    /* A key of 512 in a window; (512 + 128) / 4 and 512 / 128 elements a token of the context. */
    uint64_t states = 4 * (2 * (32 * 640) + 256 * 512);
    expect_cost(deepseek_v4, "f16", 100, 1,
                (struct kv_cost){.full_per_token = 2 * 320 + 8,
                                 .window_per_token = 4096,
                                 .state_per_sequence = states,
                                 .total = 4096 * 100 + 2 * 25 * 1280 + 1024 + states});
    expect_cost(deepseek_v4, "f16", 1048576, 2,
                (struct kv_cost){.full_per_token = 648,
                                 .window_per_token = 4096,
                                 .state_per_sequence = states,
                                 .total = 2 * (4096 * 128 + 648 * 1048576ull + states)});
    struct kv_request r = request("f16", 1, 1);
    uint64_t tokens, sequences;
    r.tensor_parallel = 8; /* all of it on every device */
    cr_expect_eq(cost_of(deepseek_v4, &r).full_per_token, 648);
    cr_expect_eq(cost_of(deepseek_v4, &r).state_per_sequence, states);
    for (uint64_t bytes = states; bytes < states + 3000000; bytes += 99991) {
        fit(deepseek_v4, &r, bytes, &tokens, &sequences);
        r.context = tokens;
        cr_expect_leq(cost_of(deepseek_v4, &r).total, bytes);
        r.context = tokens + 1;
        cr_expect_gt(cost_of(deepseek_v4, &r).total, bytes);
    }
}

Test(kv_cache, types_of_their_own_for_keys_and_values)
{
    struct kv_request r = request("q8_0", 1, 1);
    struct error err = ERROR_INIT;
    cr_assert_eq(kv_type_parse("Q4_0", &r.value, &err), 0);
    cr_expect_str_eq(r.value.name, "q4_0");
    cr_expect_eq(cost_of(llama8b, &r).full_per_token, 32 * (1024 / 32 * 34 + 1024 / 32 * 18));
    cr_expect_lt(kv_type_parse("int4", &r.key, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect(strstr(err.text, "int4") && strstr(err.text, "iq4_nl"), "%s", err.text);
}

Test(kv_cache, tensor_parallel)
{
    static const struct {
        const char *config;
        uint32_t devices;
        uint64_t per_token;
    } table[] = {
        {llama8b, 0, 131072}, {llama8b, 1, 131072}, {llama8b, 2, 65536},
        {llama8b, 8, 16384},  {llama8b, 16, 16384}, /* fewer heads than devices: copied */
        {llama8b, 3, 49152},                        /* the device with the most: 3 of 8 heads */
        {smollm2, 2, 15360},  {deepseek, 8, 70272}, /* on every device */
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kv_request r = request("f16", 1, 1);
        r.tensor_parallel = table[i].devices;
        cr_expect_eq(cost_of(table[i].config, &r).full_per_token, table[i].per_token,
                     "%s on %" PRIu32, table[i].config, table[i].devices);
    }
    struct kv_request r = request("f16", 1, 1);
    r.tensor_parallel = 2;
    cr_expect_eq(cost_of(mamba, &r).state_per_sequence, 12451840);
}

Test(kv_cache, blocks_that_do_not_fit_the_heads)
{
    struct model_shape s;
    struct kv_cost c;
    struct error err = ERROR_INIT;
    struct kv_request r = request("q4_0", 1, 1);
    shape_read("{\"model_type\":\"thing\",\"num_hidden_layers\":2,\"num_attention_heads\":1,"
               "\"hidden_size\":80}",
               &s);
    cr_expect_lt(kv_cost(&s, &r, &c, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect(strstr(err.text, "layer 0") && strstr(err.text, "80") && strstr(err.text, "q4_0"),
              "%s", err.text);
    uint64_t tokens, sequences;
    cr_expect_lt(kv_fit(&s, &r, 1000, &tokens, &sequences, &err), 0);
    shape_done(&s);
}

Test(kv_cache, sums_past_all_memory_are_errors)
{
    struct model_shape s;
    struct kv_cost c;
    struct error err = ERROR_INIT;
    struct kv_request r = request("f32", UINT64_MAX, 1);
    shape_read(llama8b, &s);
    cr_expect_lt(kv_cost(&s, &r, &c, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    r.context = 1 << 20;
    r.sequences = UINT64_MAX / 2;
    cr_expect_lt(kv_cost(&s, &r, &c, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    s.layers[3].state_elements = UINT64_MAX / 2;
    r.sequences = 1;
    cr_expect_lt(kv_cost(&s, &r, &c, &err), 0);
    cr_expect(strstr(err.text, "layer 3"), "%s", err.text);
    shape_done(&s);
}

/* ---- what fits ---- */

Test(kv_cache, what_fits)
{
    struct kv_request r = request("f16", 32768, 1);
    uint64_t tokens, sequences, weights;
    struct error err = ERROR_INIT;
    /* 24 GiB, 90 % of it, less Llama 3.1 8B in Q4_K. */
    cr_assert_eq(weights_as(8030000000, "Q4_K", &weights, &err), 0);
    cr_expect_eq(weights, 4516875072);
    fit(llama8b, &r, 24ull * (1 << 30) / 10 * 9 - weights, &tokens, &sequences);
    cr_expect_eq(tokens, 142486);
    cr_expect_eq(sequences, 4);
    r.sequences = 4;
    fit(llama8b, &r, 131072ull * 4 * 1000 + 131071, &tokens, &sequences);
    cr_expect_eq(tokens, 1000);
    fit(llama8b, &r, 131072ull * 4 - 1, &tokens, &sequences);
    cr_expect_eq(tokens, 0);
    cr_expect_eq(sequences, 0);
    fit(llama8b, &r, 0, &tokens, &sequences);
    cr_expect_eq(tokens, 0);
    fit(llama8b, &r, UINT64_MAX, &tokens, &sequences);
    cr_expect_eq(tokens, UINT64_MAX / 131072 / 4);
}

/* At every boundary: what fits does, and one more does not. */
Test(kv_cache, what_fits_with_windows)
{
    static const uint64_t sizes[] = {1,          1015807,    1015808,    1 << 30,
                                     1040187391, 1040187392, 1040351232, 40000000000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (uint64_t n = 1; n <= 3; n++) {
            struct kv_request r = request("f16", 4096, n);
            uint64_t tokens, sequences;
            fit(gemma27b, &r, sizes[i], &tokens, &sequences);
            r.context = tokens;
            cr_expect_leq(cost_of(gemma27b, &r).total, sizes[i]);
            r.context = tokens + 1;
            cr_expect_gt(cost_of(gemma27b, &r).total, sizes[i]);
            r.context = 4096;
            r.sequences = sequences + 1;
            cr_expect_gt(cost_of(gemma27b, &r).total, sizes[i]);
        }
}

Test(kv_cache, caches_that_do_not_grow)
{
    static const char windowed[] =
        "{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"num_attention_heads\":32,"
        "\"num_key_value_heads\":8,\"hidden_size\":4096,\"sliding_window\":4096}";
    struct kv_request r = request("f16", 100000, 2);
    uint64_t tokens, sequences;
    fit(mamba, &r, 24903680 * 2, &tokens, &sequences);
    cr_expect_eq(tokens, UINT64_MAX);
    cr_expect_eq(sequences, 2);
    fit(mamba, &r, 24903680 * 2 - 1, &tokens, &sequences);
    cr_expect_eq(tokens, 0);
    fit(windowed, &r, 8192ull * 4096 * 2, &tokens, &sequences);
    cr_expect_eq(tokens, UINT64_MAX);
    cr_expect_eq(sequences, 2);
    fit(windowed, &r, 8192ull * 4096 * 2 - 1, &tokens, &sequences);
    cr_expect_eq(tokens, 4095);
    cr_expect_eq(sequences, 1);
}

Test(kv_cache, weights_in_another_type)
{
    static const struct {
        uint64_t parameters;
        const char *type;
        uint64_t bytes;
    } table[] = {
        {8030000000, "Q4_K", 4516875072},
        {256, "q4_k", 144},
        {257, "Q4_K", 288},
        {3, "F4", 2},
        {1000, "bf16", 2000},
        {32, "Q8_0", 34},
        {5, "f8_e4m3", 5},
        {0, "F32", 0},
        {64, "nvfp4", 36},
    };
    uint64_t bytes = 7;
    struct error err = ERROR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        cr_assert_eq(weights_as(table[i].parameters, table[i].type, &bytes, &err), 0, "%s",
                     err.text);
        cr_expect_eq(bytes, table[i].bytes, "%s: %" PRIu64, table[i].type, bytes);
    }
    cr_expect_lt(weights_as(1, "Q4_K_M", &bytes, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect(strstr(err.text, "Q4_K_M"), "%s", err.text);
    cr_expect_lt(weights_as(1, "F32F32F32F32F32F32", &bytes, &err), 0);
    cr_expect_lt(weights_as(UINT64_MAX, "F32", &bytes, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
}

Test(kv_cache, rules_for_people)
{
    static const char *const table[][2] = {
        {smollm2, "grouped-query attention: 3 KV heads for 9; 30 layers over the whole context"},
        {deepseek,
         "multi-head latent attention, one row of 576 elements a token; 61 layers over the "
         "whole context"},
        {gemma27b, "grouped-query attention: 16 KV heads for 32; 10 layers over the whole context; "
                   "52 layers over a window of 1024"},
        {mamba, "no attention; 64 layers with a state"},
        {whisper, "multi-head attention: 20 KV heads; 32 layers over the whole context; 32 layers "
                  "attend to an encoder"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct model_shape s;
        shape_read(table[i][0], &s);
        cr_expect_str_eq(s.rule, table[i][1], "%s", s.rule);
        shape_done(&s);
    }
}
