#include <criterion/criterion.h>

#include "base/cleanup.h"
#include "model/select.h"

Test(quant, labels)
{
    static const char *const table[][2] = {
        {"Q4_K_M", "Q4_K_M"},
        {"q4_k_m", "Q4_K_M"},
        {"iq2_xxs", "IQ2_XXS"},
        {"bf16", "BF16"},
        {"UD-Q4_K_XL", "UD-Q4_K_XL"},
        {"ud-iq1_s", "UD-IQ1_S"},
        {"MXFP4", "MXFP4"},
        {"mxfp4_moe", "MXFP4_MOE"},
        {"TQ1_0", "TQ1_0"},
        {"f16", "F16"},
        {"fp16", "F16"},
        {"FP32", "F32"},
        {"q4_0_8_8", "Q4_0_8_8"},
        {"nvfp4", "NVFP4"},
        {"Q6_K_L", "Q6_K_L"},
        {"Q4_1_SOME_F16", "Q4_1_SOME_F16"},
    };
    static const char *const none[] = {"",        "main",   "latest",   "Q4",           "Q4_K_M ",
                                       " Q4_K_M", "Q4-K-M", "UD-",      "UD-UD-Q4_K_M", "Q9_K",
                                       "v1.0",    "F64",    "XUD-Q8_0", "Q4_K_MM",      "ud_q8_0"};
    char label[32];
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        cr_expect(quant_label_parse(table[i][0], label), "%s", table[i][0]);
        cr_expect_str_eq(label, table[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        cr_expect(!quant_label_parse(none[i], label), "'%s'", none[i]);
}

Test(quant, labels_in_names)
{
    static const char *const table[][2] = {
        {"model-Q4_K_M.gguf", "Q4_K_M"},
        {"model.Q4_K_M.gguf", "Q4_K_M"},
        {"model_q8_0.gguf", "Q8_0"},
        {"Q4_K_M.gguf", "Q4_K_M"},
        {"gemma-3-270m-it-q4_k_m-00001-of-00004.gguf", "Q4_K_M"},
        {"Model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
        {"UD-IQ1_S/Model-UD-IQ1_S-00001-of-00003.gguf", "UD-IQ1_S"},
        {"Q4_K_M/x-00001-of-00002.gguf", "Q4_K_M"},
        {"a/b/BF16/x.gguf", "BF16"},
        {"Qwen3-BF16-Q4_0.gguf", "Q4_0"},
        {"x-f16-Q4_K_M.gguf", "Q4_K_M"},
        {"x-Q4_K_M-f16.gguf", "Q4_K_M"},
        {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
        {"gpt-oss-20b-mxfp4_moe.gguf", "MXFP4_MOE"},
        {"model.i1-IQ2_XXS.gguf", "IQ2_XXS"},
        {"model-Q4_0_8_8.gguf", "Q4_0_8_8"},
        {"model-Q4_K.gguf", "Q4_K"},
        {"model-Q4_K_P.gguf", "Q4_K"},
        {"model-Q4_K_M.GGUF", "Q4_K_M"},
        {"qwen2-fp16.gguf", "F16"},
        {"tinyllama-1.1b-chat-v1.0.Q2_K.gguf", "Q2_K"},
        {"Q8_0/model-Q4_K_M.gguf", "Q4_K_M"},
    };
    static const char *const none[] = {
        "model.gguf",
        "modelQ4_K_M.gguf",
        "model-Q4_KMx.gguf",
        "model-Q4_K_M.bin",
        "Q4_K_M/a/x.gguf",
        "Q4_K_M",
        ".gguf",
        "gguf",
        "model-Q4_K_M",
        "x/y/z.gguf",
        "/model.gguf",
        "aQ8_0/x.gguf",
        "model-XF16.gguf",
        "model-00001-of-2.gguf",
        "",
    };
    char label[32];
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        cr_expect(quant_label_of(table[i][0], label), "%s", table[i][0]);
        cr_expect_str_eq(label, table[i][1], "%s: %s", table[i][0], label);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        cr_expect(!quant_label_of(none[i], label), "'%s'", none[i]);
}
