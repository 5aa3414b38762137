#include "tests/unit/model/gguf_text.h"
#include "tests/unit/model/shape_check.h"

static int read_gguf(const char *text, struct model_shape *s, struct error *err)
{
    struct shape_keys *k = NULL;
    struct weights w;
    uint64_t need;
    size_t len;
    _cleanup_free_ char *file = gguf_from_text(text, &len);
    cr_assert_eq(shape_keys_new(&k, err), 0);
    struct weights_visitor v = {.metadata = shape_keys_add, .ctx = k};
    int rc = weights_visit(WEIGHTS_GGUF, file, len, len, &v, &w, &need, err);
    if (rc >= 0) {
        cr_assert_eq(rc, PREFIX_DONE, "%s", text);
        rc = shape_from_gguf(k, s, err);
    } else {
        *s = (struct model_shape){0};
    }
    shape_keys_free(k);
    return rc;
}

static void expect(const char *text, const char *layers)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    cr_assert_eq(read_gguf(text, &s, &err), 0, "%s: %s", text, err.text);
    shape_expect(text, &s, layers);
    cr_expect(s.rule[0]);
    shape_done(&s);
}

/* As llama.cpp's converters write them, shortened to fewer layers. */
Test(shape_gguf, architectures)
{
    static const char *const table[][2] = {
        {"general.architecture=llama llama.block_count=32 llama.embedding_length=4096 "
         "llama.attention.head_count=32 llama.attention.head_count_kv=8",
         "F:8:128:128x32"},
        {"general.architecture=gpt2 gpt2.block_count=2 gpt2.embedding_length=768 "
         "gpt2.attention.head_count=12",
         "F:12:64:64x2"},
        {"general.architecture=qwen3 qwen3.block_count=28 qwen3.embedding_length=1024 "
         "qwen3.attention.head_count=16 qwen3.attention.head_count_kv=8 "
         "qwen3.attention.key_length=128 qwen3.attention.value_length=128",
         "F:8:128:128x28"},
        /* keys before the architecture, and those of another one */
        {"llama.block_count=2 llama.embedding_length=64 llama.attention.head_count=4 "
         "clip.block_count=9 general.architecture=llama",
         "F:4:16:16x2"},
        {"general.architecture=deci deci.block_count=3 deci.embedding_length=8192 "
         "deci.attention.head_count=[64,0,64] deci.attention.head_count_kv=[8,0,16]",
         "F:8:128:128 N F:16:128:128"},
        {"general.architecture=gemma2 gemma2.block_count=4 gemma2.embedding_length=2304 "
         "gemma2.attention.head_count=8 gemma2.attention.head_count_kv=4 "
         "gemma2.attention.key_length=256 gemma2.attention.value_length=256",
         "W:4:256:256:4096 F:4:256:256 W:4:256:256:4096 F:4:256:256"},
        {"general.architecture=gemma3 gemma3.block_count=7 gemma3.embedding_length=1152 "
         "gemma3.attention.head_count=4 gemma3.attention.head_count_kv=1 "
         "gemma3.attention.key_length=256 gemma3.attention.value_length=256 "
         "gemma3.attention.sliding_window=512",
         "W:1:256:256:512x5 F:1:256:256 W:1:256:256:512"},
        {"general.architecture=gemma4 gemma4.block_count=4 gemma4.embedding_length=1536 "
         "gemma4.attention.head_count=8 gemma4.attention.head_count_kv=[1,1,2,1] "
         "gemma4.attention.key_length=512 gemma4.attention.value_length=512 "
         "gemma4.attention.key_length_swa=256 gemma4.attention.value_length_swa=256 "
         "gemma4.attention.sliding_window=512 gemma4.attention.shared_kv_layers=1 "
         "gemma4.attention.sliding_window_pattern=[true,true,false,true]",
         "W:1:256:256:512x2 F:2:512:512 S"},
        {"general.architecture=gemma3n gemma3n.block_count=30 gemma3n.embedding_length=2048 "
         "gemma3n.attention.head_count=8 gemma3n.attention.head_count_kv=2 "
         "gemma3n.attention.key_length=256 gemma3n.attention.value_length=256 "
         "gemma3n.attention.sliding_window=512",
         "W:2:256:256:512x4 F:2:256:256 W:2:256:256:512x4 F:2:256:256 W:2:256:256:512x4 "
         "F:2:256:256 "
         "W:2:256:256:512x4 F:2:256:256 Sx10"},
        {"general.architecture=llama4 llama4.block_count=4 llama4.embedding_length=5120 "
         "llama4.attention.head_count=40 llama4.attention.head_count_kv=8",
         "C:8:128:128:8192x3 F:8:128:128"},
        {"general.architecture=smallthinker smallthinker.block_count=5 "
         "smallthinker.embedding_length=2560 smallthinker.attention.head_count=28 "
         "smallthinker.attention.head_count_kv=4 smallthinker.attention.key_length=128 "
         "smallthinker.attention.value_length=128 smallthinker.attention.sliding_window=2048",
         "F:4:128:128 W:4:128:128:4096x3 F:4:128:128"},
        {"general.architecture=phi3 phi3.block_count=2 phi3.embedding_length=3072 "
         "phi3.attention.head_count=32 phi3.attention.sliding_window=2047",
         "F:32:96:96x2"},
        {"general.architecture=deepseek2 deepseek2.block_count=61 deepseek2.embedding_length=7168 "
         "deepseek2.attention.head_count=128 deepseek2.attention.head_count_kv=1 "
         "deepseek2.attention.key_length=576 deepseek2.attention.value_length=512 "
         "deepseek2.attention.key_length_mla=192 deepseek2.attention.value_length_mla=128 "
         "deepseek2.attention.kv_lora_rank=512",
         "L:576x61"},
        {"general.architecture=deepseek2 deepseek2.block_count=61 deepseek2.embedding_length=7168 "
         "deepseek2.attention.head_count=128 deepseek2.attention.head_count_kv=128 "
         "deepseek2.attention.key_length=192 deepseek2.attention.value_length=128 "
         "deepseek2.attention.kv_lora_rank=512",
         "F:128:192:128x61"},
        {"general.architecture=glm-dsa glm-dsa.block_count=5 glm-dsa.nextn_predict_layers=1 "
         "glm-dsa.embedding_length=6144 glm-dsa.attention.head_count=64 "
         "glm-dsa.attention.head_count_kv=1 glm-dsa.attention.key_length=576 "
         "glm-dsa.attention.value_length=512 glm-dsa.attention.key_length_mla=256 "
         "glm-dsa.attention.value_length_mla=256 glm-dsa.attention.indexer.key_length=128 "
         "glm-dsa.attention.indexer.types=[1,0,0,1]",
         "L:576:128 L:576x2 L:576:128"},
        {"general.architecture=deepseek4 deepseek4.block_count=3 deepseek4.embedding_length=4096 "
         "deepseek4.attention.head_count=64 deepseek4.attention.head_count_kv=1 "
         "deepseek4.attention.key_length=512 deepseek4.attention.value_length=512 "
         "deepseek4.attention.sliding_window=128 deepseek4.attention.indexer.key_length=128 "
         "deepseek4.attention.compress_ratios=[128,4,0]",
         "W:1:512:0:128/512:128 W:1:512:0:128/640:4 W:1:512:0:128"},
        {"general.architecture=jamba jamba.block_count=4 jamba.embedding_length=4096 "
         "jamba.attention.head_count=32 jamba.attention.head_count_kv=[0,0,8,0] "
         "jamba.ssm.conv_kernel=4 jamba.ssm.inner_size=8192 jamba.ssm.state_size=16",
         "Rx2 F:8:128:128 R"},
        {"general.architecture=nemotron_h nemotron_h.block_count=4 "
         "nemotron_h.embedding_length=4096 nemotron_h.attention.head_count=32 "
         "nemotron_h.attention.head_count_kv=[0,0,8,0] nemotron_h.attention.key_length=128 "
         "nemotron_h.attention.value_length=128 nemotron_h.feed_forward_length=[0,21504,0,0] "
         "nemotron_h.ssm.conv_kernel=4 nemotron_h.ssm.inner_size=8192 "
         "nemotron_h.ssm.state_size=128 nemotron_h.ssm.group_count=8",
         "R N F:8:128:128 R"},
        {"general.architecture=falcon-h1 falcon-h1.block_count=2 falcon-h1.embedding_length=2048 "
         "falcon-h1.attention.head_count=8 falcon-h1.attention.head_count_kv=2 "
         "falcon-h1.attention.key_length=128 falcon-h1.attention.value_length=128 "
         "falcon-h1.ssm.conv_kernel=4 falcon-h1.ssm.inner_size=3072 falcon-h1.ssm.state_size=256 "
         "falcon-h1.ssm.group_count=1",
         "F:2:128:128+x2"},
        {"general.architecture=qwen3next qwen3next.block_count=8 qwen3next.embedding_length=2048 "
         "qwen3next.attention.head_count=16 qwen3next.attention.head_count_kv=2 "
         "qwen3next.attention.key_length=256 qwen3next.attention.value_length=256 "
         "qwen3next.ssm.conv_kernel=4 qwen3next.ssm.inner_size=4096 "
         "qwen3next.ssm.state_size=128 qwen3next.ssm.group_count=16",
         "Rx3 F:2:256:256 Rx3 F:2:256:256"},
        {"general.architecture=lfm2 lfm2.block_count=4 lfm2.embedding_length=2048 "
         "lfm2.attention.head_count=32 lfm2.attention.head_count_kv=[0,0,8,0] "
         "lfm2.shortconv.l_cache=3",
         "Rx2 F:8:64:64 R"},
        {"general.architecture=kimi-linear kimi-linear.block_count=4 "
         "kimi-linear.embedding_length=2304 kimi-linear.attention.head_count=32 "
         "kimi-linear.attention.head_count_kv=[0,0,0,1] kimi-linear.attention.key_length=576 "
         "kimi-linear.attention.value_length=512 kimi-linear.attention.key_length_mla=192 "
         "kimi-linear.attention.value_length_mla=128 kimi-linear.attention.kv_lora_rank=512 "
         "kimi-linear.ssm.conv_kernel=4 kimi-linear.kda.head_dim=128",
         "Rx3 L:576"},
        {"general.architecture=mamba mamba.block_count=3 mamba.embedding_length=2560 "
         "mamba.attention.head_count=0 mamba.ssm.conv_kernel=4 mamba.ssm.inner_size=5120 "
         "mamba.ssm.state_size=16",
         "Rx3"},
        {"general.architecture=t5 t5.block_count=24 t5.decoder_block_count=12 "
         "t5.embedding_length=1024 t5.attention.head_count=16 t5.attention.key_length=64 "
         "t5.attention.value_length=64",
         "F:16:64:64x12"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        expect(table[i][0], table[i][1]);
}

static uint64_t state_of(const char *text)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    uint64_t ret = 0;
    cr_assert_eq(read_gguf(text, &s, &err), 0, "%s", err.text);
    for (uint32_t i = 0; i < s.n_layers; i++)
        if (s.layers[i].state_elements)
            ret = s.layers[i].state_elements;
    shape_done(&s);
    return ret;
}

/* The same models as in test_shape.c: both files say the same of them. */
Test(shape_gguf, states)
{
    cr_expect_eq(state_of("general.architecture=jamba jamba.block_count=2 "
                          "jamba.embedding_length=4096 jamba.attention.head_count=32 "
                          "jamba.attention.head_count_kv=[0,8] jamba.ssm.conv_kernel=4 "
                          "jamba.ssm.inner_size=8192 jamba.ssm.state_size=16"),
                 155648);
    cr_expect_eq(state_of("general.architecture=qwen3next qwen3next.block_count=4 "
                          "qwen3next.embedding_length=2048 qwen3next.attention.head_count=16 "
                          "qwen3next.attention.head_count_kv=2 qwen3next.ssm.conv_kernel=4 "
                          "qwen3next.ssm.inner_size=4096 qwen3next.ssm.state_size=128 "
                          "qwen3next.ssm.group_count=16"),
                 548864);
    cr_expect_eq(state_of("general.architecture=kimi-linear kimi-linear.block_count=2 "
                          "kimi-linear.embedding_length=2304 kimi-linear.attention.head_count=32 "
                          "kimi-linear.attention.head_count_kv=[0,1] "
                          "kimi-linear.ssm.conv_kernel=4 kimi-linear.kda.head_dim=128"),
                 561152);
    cr_expect_eq(state_of("general.architecture=lfm2 lfm2.block_count=2 lfm2.embedding_length=2048 "
                          "lfm2.attention.head_count=32 lfm2.attention.head_count_kv=[0,8] "
                          "lfm2.shortconv.l_cache=3"),
                 4096);
    cr_expect_eq(state_of("general.architecture=minimax-01 minimax-01.block_count=8 "
                          "minimax-01.embedding_length=6144 minimax-01.attention.head_count=64 "
                          "minimax-01.attention.head_count_kv=8 "
                          "minimax-01.attention.key_length=128 "
                          "minimax-01.attention.value_length=128"),
                 1048576);
    cr_expect_eq(state_of("general.architecture=rwkv6 rwkv6.block_count=2 "
                          "rwkv6.embedding_length=4096 rwkv6.wkv.head_size=64"),
                 270336);
}

Test(shape_gguf, what_else_it_says)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    cr_assert_eq(read_gguf("general.architecture=qwen3moe qwen3moe.block_count=2 "
                           "qwen3moe.embedding_length=2048 qwen3moe.attention.head_count=32 "
                           "qwen3moe.attention.head_count_kv=4 qwen3moe.context_length=40960 "
                           "qwen3moe.expert_count=128 qwen3moe.expert_used_count=8 "
                           "tokenizer.ggml.tokens=[a,b,c]",
                           &s, &err),
                 0);
    cr_expect(s.context == 40960 && s.hidden == 2048 && s.heads == 32 && s.vocabulary == 3);
    cr_expect(s.experts == 128 && s.experts_used == 8);
    cr_expect_str_eq(s.source, "GGUF");
    cr_expect_str_eq(s.family, "qwen3moe");
    cr_expect_str_eq(s.rule,
                     "grouped-query attention: 4 KV heads for 32; 2 layers over the whole context");
    cr_expect_str_eq(s.notes, "");
    shape_done(&s);
    cr_assert_eq(read_gguf("general.architecture=llama llama.block_count=2 "
                           "llama.embedding_length=64 llama.attention.head_count=4 "
                           "llama.attention.sliding_window=4096",
                           &s, &err),
                 0);
    cr_expect(strstr(s.notes, "llama.cpp does not use it"), "%s", s.notes);
    shape_done(&s);
}

Test(shape_gguf, refusals)
{
    static const struct {
        const char *file;
        enum err_code code;
        const char *text;
    } table[] = {
        {"general.architecture=bert bert.block_count=2", ERR_UNSUPPORTED, "encoder"},
        {"general.architecture=dream dream.block_count=2", ERR_UNSUPPORTED, "diffusion"},
        {"general.type=adapter general.architecture=llama", ERR_UNSUPPORTED, "adapter"},
        {"general.type=mmproj general.architecture=clip", ERR_UNSUPPORTED, "mmproj"},
        {"split.no=1", ERR_UNSUPPORTED, "general.architecture"},
        {"general.architecture=llama", ERR_UNSUPPORTED, "llama.block_count"},
        {"general.architecture=llama llama.block_count=2", ERR_UNSUPPORTED, "head_count"},
        {"general.architecture=llama llama.block_count=2 llama.attention.head_count=4",
         ERR_UNSUPPORTED, "embedding_length"},
        {"general.architecture=llama llama.block_count=0", ERR_INVALID, "llama.block_count"},
        {"general.architecture=llama llama.block_count=5000", ERR_INVALID, "llama.block_count"},
        {"general.architecture=llama llama.block_count=-2", ERR_INVALID, "block_count"},
        {"general.architecture=llama llama.block_count=two", ERR_INVALID, "block_count"},
        {"general.architecture=llama llama.block_count=2 llama.attention.head_count=0", ERR_INVALID,
         "head_count at byte 102 is 0"},
        {"general.architecture=llama llama.block_count=3 llama.attention.head_count=[4,4]",
         ERR_INVALID, "head_count at byte 102 has 2 elements for 3 layers"},
        {"general.architecture=llama llama.block_count=1 llama.attention.head_count=4294967295",
         ERR_INVALID, "head_count"},
        {"general.architecture=llama llama.block_count=1 llama.embedding_length=64 "
         "llama.attention.head_count=4 llama.attention.key_length=4294967295",
         ERR_INVALID, "llama.attention.key_length at byte 182: heads of 4294967295"},
        {"general.architecture=gemma4 gemma4.block_count=1 gemma4.embedding_length=64 "
         "gemma4.attention.head_count=4 gemma4.attention.shared_kv_layers=2",
         ERR_INVALID, "shared_kv_layers"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct model_shape s;
        struct error err = ERROR_INIT;
        cr_expect_lt(read_gguf(table[i].file, &s, &err), 0, "%s", table[i].file);
        cr_expect_eq(err.code, table[i].code, "%s: %s", table[i].file, err.text);
        cr_expect(strstr(err.text, table[i].text), "%s: %s", table[i].file, err.text);
        shape_done(&s);
    }
}

/* Keys of many prefixes can not take memory without end. */
Test(shape_gguf, too_many_keys)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    cr_assert(f);
    fputs("general.architecture=llama", f);
    for (int i = 0; i < 300; i++)
        fprintf(f, " a%d.block_count=1", i);
    fclose(f);
    cr_expect_lt(read_gguf(text, &s, &err), 0);
    cr_expect_eq(err.code, ERR_INVALID);
    shape_done(&s);
}
