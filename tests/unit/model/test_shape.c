#include "tests/unit/model/shape_check.h"

/* What transformers' own classes make of a hundred configurations. */
Test(shape, golden_configurations)
{
    _cleanup_fclose_ FILE *f = fopen(WB_SOURCE_DIR "/tests/unit/model/shape_golden.txt", "r");
    _cleanup_free_ char *line = NULL;
    size_t size = 0, lines = 0;
    cr_assert(f);
    while (getline(&line, &size, f) > 0) {
        char *rest = line, *name = strsep(&rest, "\t"), *config = strsep(&rest, "\t"),
             *layers = strsep(&rest, "\n");
        struct model_shape s;
        cr_assert(layers);
        shape_read(config, &s);
        shape_expect(name, &s, layers);
        cr_expect(s.rule[0], "%s", name);
        shape_done(&s);
        lines++;
    }
    cr_expect_gt(lines, 150);
}

static void expect_config(const char *config, const char *layers)
{
    struct model_shape s;
    shape_read(config, &s);
    shape_expect(config, &s, layers);
    shape_done(&s);
}

/* As the repositories of these models have them, shortened to fewer layers. */
Test(shape, families_with_ways_of_their_own)
{
    static const char *const table[][2] = {
        {"{\"model_type\":\"falcon\",\"num_hidden_layers\":2,\"num_attention_heads\":71,"
         "\"hidden_size\":4544,\"multi_query\":true,\"new_decoder_architecture\":false}",
         "F:1:64:64x2"},
        {"{\"model_type\":\"falcon\",\"num_hidden_layers\":2,\"num_attention_heads\":128,"
         "\"num_kv_heads\":8,\"hidden_size\":8192,\"multi_query\":true,"
         "\"new_decoder_architecture\":true}",
         "F:8:64:64x2"},
        {"{\"model_type\":\"RefinedWeb\",\"n_layer\":2,\"n_head\":128,\"n_head_kv\":8,"
         "\"hidden_size\":8192}",
         "F:8:64:64x2"},
        {"{\"model_type\":\"RefinedWebModel\",\"n_layer\":2,\"n_head\":71,\"hidden_size\":4544,"
         "\"multi_query\":true}",
         "F:1:64:64x2"},
        {"{\"model_type\":\"gpt_bigcode\",\"n_layer\":2,\"n_head\":48,\"n_embd\":6144,"
         "\"multi_query\":true}",
         "F:1:128:128x2"},
        {"{\"model_type\":\"chatglm\",\"num_layers\":2,\"num_attention_heads\":32,"
         "\"hidden_size\":4096,\"kv_channels\":128,\"multi_query_attention\":true,"
         "\"multi_query_group_num\":2,\"seq_length\":32768}",
         "F:2:128:128x2"},
        {"{\"model_type\":\"mpt\",\"n_layers\":2,\"n_heads\":32,\"d_model\":4096,"
         "\"attn_config\":{\"attn_type\":\"multihead_attention\"}}",
         "F:32:128:128x2"},
        {"{\"model_type\":\"dbrx\",\"n_layers\":2,\"n_heads\":48,\"d_model\":6144,"
         "\"attn_config\":{\"kv_n_heads\":8}}",
         "F:8:128:128x2"},
        {"{\"model_type\":\"openelm\",\"num_transformer_layers\":3,\"head_dim\":64,"
         "\"model_dim\":1280,\"num_query_heads\":[12,12,16],\"num_kv_heads\":[3,3,4]}",
         "F:3:64:64x2 F:4:64:64"},
        {"{\"model_type\":\"thing\",\"num_hidden_layers\":3,\"num_attention_heads\":16,"
         "\"hidden_size\":1024,\"num_key_value_heads\":[4,0,8]}",
         "F:4:64:64 N F:8:64:64"},
        {"{\"dim\":4096,\"n_layers\":2,\"head_dim\":128,\"n_heads\":32,\"n_kv_heads\":8}",
         "F:8:128:128x2"}, /* params.json */
        {"{\"model_type\":\"nemotron-nas\",\"num_hidden_layers\":3,\"num_attention_heads\":64,"
         "\"hidden_size\":8192,\"num_key_value_heads\":null,\"block_configs\":[{\"attention\":"
         "{\"n_heads_in_group\":8,\"no_op\":false}},{\"attention\":{\"n_heads_in_group\":null,"
         "\"no_op\":true}},{\"attention\":{\"n_heads_in_group\":16}}]}",
         "F:8:128:128 N F:4:128:128"},
        {"{\"model_type\":\"minimax_text_01\",\"num_hidden_layers\":4,\"num_attention_heads\":64,"
         "\"num_key_value_heads\":8,\"head_dim\":128,\"attn_type_list\":[0,0,0,1]}",
         "Rx3 F:8:128:128"},
        {"{\"model_type\":\"mimo_v2_flash\",\"num_hidden_layers\":3,\"num_attention_heads\":64,"
         "\"num_key_value_heads\":4,\"head_dim\":192,\"v_head_dim\":128,\"sliding_window\":128,"
         "\"swa_num_key_value_heads\":8,\"swa_head_dim\":192,\"swa_v_head_dim\":128,"
         "\"hybrid_layer_pattern\":[0,1,1]}",
         "F:4:192:128 W:8:192:128:128x2"},
        {"{\"model_type\":\"exaone4\",\"num_hidden_layers\":5,\"num_attention_heads\":40,"
         "\"num_key_value_heads\":8,\"head_dim\":128,\"sliding_window\":4096,"
         "\"sliding_window_pattern\":\"LLLG\"}",
         "W:8:128:128:4096x3 F:8:128:128x2"},
        {"{\"model_type\":\"llama4_text\",\"num_hidden_layers\":4,\"num_attention_heads\":40,"
         "\"num_key_value_heads\":8,\"head_dim\":128,\"attention_chunk_size\":8192,"
         "\"no_rope_layers\":[1,1,0,1]}",
         "C:8:128:128:8192x2 F:8:128:128 C:8:128:128:8192"},
        {"{\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"num_attention_heads\":28,"
         "\"num_key_value_heads\":4,\"hidden_size\":3584,\"sliding_window\":131072,"
         "\"use_sliding_window\":false,\"max_window_layers\":28}",
         "F:4:128:128x2"},
        {"{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"num_attention_heads\":32,"
         "\"num_key_value_heads\":8,\"hidden_size\":4096,\"sliding_window\":null}",
         "F:8:128:128x2"},
        {"{\"model_type\":\"phi3\",\"num_hidden_layers\":2,\"num_attention_heads\":32,"
         "\"hidden_size\":3072,\"sliding_window\":2047,\"use_sliding_window\":false}",
         "F:32:96:96x2"},
        {"{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":4,\"num_attention_heads\":32,"
         "\"hidden_size\":2304,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"
         "\"linear_attn_config\":{\"full_attn_layers\":[4],\"kda_layers\":[1,2,3],\"head_dim\":128,"
         "\"num_heads\":32,\"short_conv_kernel_size\":4}}",
         "Rx3 L:576"},
        {"{\"model_type\":\"minicpm3\",\"num_hidden_layers\":2,\"num_attention_heads\":40,"
         "\"num_key_value_heads\":40,\"hidden_size\":2560,\"kv_lora_rank\":256,"
         "\"qk_rope_head_dim\":32,\"qk_nope_head_dim\":64}",
         "F:40:96:64x2"},
        {"{\"model_type\":\"longcat_flash\",\"num_layers\":2,\"num_attention_heads\":64,"
         "\"hidden_size\":6144,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64}",
         "L:576x4"},
        {"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":6,\"num_attention_heads\":64,"
         "\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"index_head_dim\":128,"
         "\"index_topk_pattern\":\"FFSSFS\"}",
         "L:576:128x2 L:576x2 L:576:128 L:576"},
        {"{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":3,\"num_attention_heads\":64,"
         "\"num_key_value_heads\":1,\"hidden_size\":4096,\"head_dim\":512,\"sliding_window\":128,"
         "\"index_head_dim\":128,\"compress_ratios\":[128,4,1,0]}",
         "W:1:512:0:128/512:128 W:1:512:0:128/640:4 W:1:512:0:128"},
        {"{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":3,\"layer_types\":"
         "[\"sliding_attention\",\"compressed_sparse_attention\",\"heavily_compressed_attention\"]"
         "}",
         "W:1:512:0:128 W:1:512:0:128/640:4 W:1:512:0:128/512:128"},
        {"{\"model_type\":\"whisper\",\"num_hidden_layers\":32,\"decoder_layers\":4,"
         "\"encoder_layers\":32,\"decoder_attention_heads\":20,\"encoder_attention_heads\":20,"
         "\"d_model\":1280,\"is_encoder_decoder\":true,\"max_source_positions\":1500}",
         "F:20:64:64x4"},
        {"{\"model_type\":\"new_thing\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
         "\"hidden_size\":512,\"sliding_window\":4096}",
         "F:8:64:64x2"},
        {"{\"model_type\":\"new_thing\",\"num_hidden_layers\":4,\"num_attention_heads\":8,"
         "\"hidden_size\":512,\"sliding_window\":4096,\"sliding_window_pattern\":2}",
         "W:8:64:64:4096 F:8:64:64 W:8:64:64:4096 F:8:64:64"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        expect_config(table[i][0], table[i][1]);
}

static uint64_t state_of(const char *config)
{
    struct model_shape s;
    uint64_t ret = 0;
    shape_read(config, &s);
    for (uint32_t i = 0; i < s.n_layers; i++)
        if (s.layers[i].state_elements)
            ret = s.layers[i].state_elements;
    shape_done(&s);
    return ret;
}

/* Elements of one layer and sequence, worked out by hand from the shapes of the states. */
Test(shape, states)
{
    static const struct {
        const char *config;
        uint64_t elements;
    } table[] = {
        /* Jamba 1.5 Mini: 3 x 8192 + 16 x 8192 */
        {"{\"model_type\":\"jamba\",\"num_hidden_layers\":8,\"num_attention_heads\":32,"
         "\"num_key_value_heads\":8,\"hidden_size\":4096,\"mamba_d_state\":16,\"mamba_d_conv\":4,"
         "\"mamba_expand\":2}",
         155648},
        /* Nemotron-H 8B: heads 128 x 64 = 8192; 3 x (8192 + 2 x 8 x 128) + 128 x 8192 */
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M-*\","
         "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"hidden_size\":4096,"
         "\"attention_head_dim\":128,\"mamba_num_heads\":128,\"mamba_head_dim\":64,"
         "\"ssm_state_size\":128,\"n_groups\":8,\"conv_kernel\":4,\"time_step_limit\":"
         "[0.0,Infinity]}",
         1079296},
        /* Qwen3-Next: 3 x (4096 + 2 x 16 x 128) + 128 x 4096 */
        {"{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":4,\"num_attention_heads\":16,"
         "\"num_key_value_heads\":2,\"head_dim\":256,\"hidden_size\":2048,"
         "\"linear_conv_kernel_dim\":4,\"linear_num_value_heads\":32,\"linear_num_key_heads\":16,"
         "\"linear_key_head_dim\":128,\"linear_value_head_dim\":128}",
         548864},
        /* Kimi Linear: 3 x 3 x 4096 + 32 x 128 x 128 */
        {"{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":4,\"num_attention_heads\":32,"
         "\"hidden_size\":2304,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"
         "\"linear_attn_config\":{\"full_attn_layers\":[4],\"kda_layers\":[1,2,3],\"head_dim\":128,"
         "\"num_heads\":32,\"short_conv_kernel_size\":4}}",
         561152},
        /* LFM2 1.2B: 2048 x 2 */
        {"{\"model_type\":\"lfm2\",\"num_hidden_layers\":2,\"num_attention_heads\":32,"
         "\"num_key_value_heads\":8,\"hidden_size\":2048,\"conv_L_cache\":3,\"layer_types\":"
         "[\"conv\",\"full_attention\"]}",
         4096},
        /* MiniMax-Text-01: 64 heads x 128 x 128 */
        {"{\"model_type\":\"MiniMaxM1\",\"num_hidden_layers\":2,\"num_attention_heads\":64,"
         "\"num_key_value_heads\":8,\"head_dim\":128,\"attn_type_list\":[0,1]}",
         1048576},
        /* RecurrentGemma 2B: 2560 x 3 + 2560 */
        {"{\"model_type\":\"recurrent_gemma\",\"num_hidden_layers\":3,\"num_attention_heads\":10,"
         "\"num_key_value_heads\":1,\"hidden_size\":2560,\"lru_width\":2560,"
         "\"attention_window_size\":2048,\"conv1d_width\":4}",
         10240},
        /* Falcon-H1 1.5B: 3 x (3072 + 2 x 1 x 256) + 256 x 3072 */
        {"{\"model_type\":\"falcon_h1\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
         "\"num_key_value_heads\":2,\"head_dim\":128,\"hidden_size\":2048,\"mamba_d_ssm\":3072,"
         "\"mamba_d_state\":256,\"mamba_n_groups\":1,\"mamba_d_conv\":4}",
         797184},
        /* Mamba 2.8B: 3 x 5120 + 16 x 5120 */
        {"{\"model_type\":\"mamba\",\"num_hidden_layers\":2,\"hidden_size\":2560,\"state_size\":16,"
         "\"conv_kernel\":4,\"expand\":2}",
         97280},
        /* RWKV 6: 2 x 4096 + 4096 x 64 */
        {"{\"model_type\":\"rwkv6\",\"num_hidden_layers\":2,\"hidden_size\":4096,"
         "\"head_size\":64}",
         270336},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        cr_expect_eq(state_of(table[i].config), table[i].elements, "%s: %" PRIu64, table[i].config,
                     state_of(table[i].config));
}

Test(shape, nested_configurations)
{
    struct model_shape s;
    /* As gemma-3-4b-it has it: what is as the class has it is left out. */
    shape_read("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\","
               "\"text_config\":{\"hidden_size\":2560,\"model_type\":\"gemma3_text\","
               "\"num_hidden_layers\":34,\"sliding_window\":1024},\"torch_dtype\":\"bfloat16\","
               "\"vision_config\":{\"num_hidden_layers\":27,\"num_attention_heads\":16}}",
               &s);
    cr_expect_str_eq(s.source, "config.json (text_config)");
    cr_expect_str_eq(s.family, "gemma3_text");
    cr_expect_str_eq(s.dtype, "BF16");
    cr_expect_eq(s.n_layers, 34);
    cr_expect(s.layers[0].kind == LAYER_WINDOW && s.layers[0].kv_heads == 4 &&
              s.layers[0].key_dim == 256 && s.layers[0].window == 1024);
    cr_expect_eq(s.context, 131072);
    cr_expect_str_eq(s.notes,
                     "not stated, so as gemma3 has it by default: num_attention_heads 8, "
                     "num_key_value_heads 4, head_dim 256, max_position_embeddings 131072");
    shape_done(&s);
    shape_read("{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\","
               "\"max_position_embeddings\":4096,\"vocab_size\":32064}}",
               &s);
    shape_expect("llava", &s, "F:32:128:128x32");
    cr_expect_eq(s.context, 4096);
    cr_expect_eq(s.vocabulary, 32064);
    shape_done(&s);
    shape_read(
        "{\"model_type\":\"qwen2_5_omni\",\"thinker_config\":{\"text_config\":{\"model_type\":"
        "\"qwen2_5_omni_text\",\"num_hidden_layers\":2,\"num_attention_heads\":28,"
        "\"num_key_value_heads\":4,\"hidden_size\":3584}}}",
        &s);
    shape_expect("omni", &s, "F:4:128:128x2");
    shape_done(&s);
}

Test(shape, encoder_and_decoder)
{
    struct model_shape s;
    shape_read("{\"model_type\":\"t5\",\"is_encoder_decoder\":true,\"num_layers\":24,"
               "\"num_decoder_layers\":12,\"num_heads\":16,\"d_model\":1024,\"d_kv\":64}",
               &s);
    shape_expect("t5", &s, "F:16:64:64x12");
    cr_expect(s.cross_layers == 12 && s.cross_kv_heads == 16 && s.cross_dim == 64 &&
              !s.cross_tokens);
    shape_done(&s);
    shape_read("{\"model_type\":\"whisper\",\"decoder_layers\":32,\"decoder_attention_heads\":20,"
               "\"d_model\":1280,\"is_encoder_decoder\":true,\"max_source_positions\":1500,"
               "\"max_target_positions\":448}",
               &s);
    cr_expect(s.cross_layers == 32 && s.cross_kv_heads == 20 && s.cross_dim == 64 &&
              s.cross_tokens == 1500 && s.context == 448);
    shape_done(&s);
    /* Llama 3.2 11B Vision. */
    shape_read("{\"model_type\":\"mllama\",\"text_config\":{\"model_type\":\"mllama_text_model\","
               "\"num_hidden_layers\":5,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
               "\"hidden_size\":4096,\"cross_attention_layers\":[3]},\"vision_config\":"
               "{\"image_size\":560,\"patch_size\":14,\"max_num_tiles\":4}}",
               &s);
    shape_expect("mllama", &s, "F:8:128:128x3 N F:8:128:128");
    cr_expect(s.cross_layers == 1 && s.cross_kv_heads == 8 && s.cross_dim == 128 &&
              s.cross_tokens == 6404);
    shape_done(&s);
}

/* The byte of the value, whatever stands before it. */
Test(shape, what_is_refused_is_named_with_its_byte)
{
    static const struct {
        const char *config, *key, *value; /* the text of the value begins there */
    } table[] = {
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2.5}", "num_hidden_layers", "2.5"},
        {"{\"a\\\"{[\":[1,{\"b\":[ ]},[[]]],\"x\":{\"num_hidden_layers\":0},\"rope\":NaN,"
         "\"text_config\": {\"model_type\":\"llama\", \"num_hidden_layers\" : \t-7} }",
         "num_hidden_layers", "-7"},
        {"{\"time_step_limit\":[0.0, -Infinity],\"model_type\":\"llama\",\"num_hidden_layers\":2,"
         "\"num_attention_heads\":\"many\"}",
         "num_attention_heads", "\"many"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":3,\"layer_types\":"
         "[\"full_attention\"]}",
         "layer_types", "[\"full"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":2,\"layer_types\":"
         "[\"full_attention\",17]}",
         "layer_types", "17"},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MX\"}",
         "hybrid_override_pattern", "\"MX"},
        {"{\"model_type\":\"jamba\",\"attn_layer_offset\":88}", "attn_layer_offset", "88"},
        {"{\"model_type\":\"thing\",\"num_hidden_layers\":2,\"num_attention_heads\":2,"
         "\"hidden_size\":64,\"num_key_value_heads\":[1,\"x\"]}",
         "num_key_value_heads", "\"x\""},
        {"{\"model_type\":\"thing\",\"num_hidden_layers\":2,\"num_attention_heads\":2,"
         "\"hidden_size\":64,\"mamba_d_conv\":false,\"layer_types\":[\"mamba\",\"mamba\"]}",
         "mamba_d_conv", "false"},
        {"  [3]", "no JSON object", "[3]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct model_shape s;
        struct error err = ERROR_INIT;
        char says[96];
        const char *config = table[i].config;
        snprintf(says, sizeof(says), "%s at byte %zu", table[i].key,
                 (size_t)(strstr(config, table[i].value) - config));
        cr_expect_lt(shape_from_config(config, strlen(config), &s, &err), 0, "%s", config);
        cr_expect(strstr(err.text, says), "%s: %s, not %s", config, err.text, says);
        shape_done(&s);
    }
}

Test(shape, refusals)
{
    static const struct {
        const char *config;
        enum err_code code;
        const char *text;
    } table[] = {
        {"{\"model_type\":\"bert\",\"num_hidden_layers\":12,\"num_attention_heads\":12,"
         "\"hidden_size\":768}",
         ERR_UNSUPPORTED, "encoder"},
        {"{\"model_type\":\"t5\",\"architectures\":[\"T5EncoderModel\"],\"num_layers\":2,"
         "\"num_heads\":2,\"d_model\":64,\"d_kv\":32}",
         ERR_UNSUPPORTED, "encoder"},
        {"{\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true,"
         "\"num_hidden_layers\":24}",
         ERR_UNSUPPORTED, "encoder"},
        {"{\"model_type\":\"LLaDA\",\"n_layers\":32}", ERR_UNSUPPORTED, "diffusion"},
        {"{\"_class_name\":\"FluxTransformer2DModel\",\"num_layers\":19}", ERR_UNSUPPORTED,
         "FluxTransformer2DModel"},
        {"{\"peft_type\":\"LORA\",\"base_model_name_or_path\":\"org/base\"}", ERR_UNSUPPORTED,
         "org/base"},
        {"{}", ERR_UNSUPPORTED, "num_hidden_layers"},
        {"{\"model_type\":\"thing\",\"num_hidden_layers\":2}", ERR_UNSUPPORTED, "heads"},
        {"{\"model_type\":\"thing\",\"num_hidden_layers\":2,\"num_attention_heads\":2}",
         ERR_UNSUPPORTED, "head dimension"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":0}", ERR_INVALID, "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":4097}", ERR_INVALID, "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2.5}", ERR_INVALID, "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":0}",
         ERR_INVALID, "num_attention_heads"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_key_value_heads\":-1}",
         ERR_INVALID, "num_key_value_heads"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"head_dim\":1e12}", ERR_INVALID,
         "head_dim"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":3,\"layer_types\":"
         "[\"full_attention\"]}",
         ERR_INVALID, "layer_types"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":1,\"layer_types\":[1]}",
         ERR_INVALID, "layer_types"},
        {"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MX\"}", ERR_INVALID,
         "hybrid_override_pattern"},
        {"{\"model_type\":\"jamba\",\"attn_layer_offset\":8}", ERR_INVALID, "attn_layer_offset"},
        {"[]", ERR_INVALID, "object"},
        {"{", ERR_INVALID, "JSON"},
        {"", ERR_INVALID, "JSON"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct model_shape s;
        struct error err = ERROR_INIT;
        cr_expect_lt(shape_from_config(table[i].config, strlen(table[i].config), &s, &err), 0, "%s",
                     table[i].config);
        cr_expect_eq(err.code, table[i].code, "%s: %s", table[i].config, err.text);
        cr_expect(strstr(err.text, table[i].text), "%s: %s", table[i].config, err.text);
        shape_done(&s);
    }
}
