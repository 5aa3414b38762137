/* What transformers' configuration classes take for granted, by model_type (transformers 5.24). */
#include <string.h>

#include "base/cleanup.h"
#include "model/shape.h"

static const struct shape_family families[] = {
    /* layers, heads, KV heads (0 = as heads), hidden, head dimension (0 = hidden / heads); rule,
     * period and size of windows; context */
    {"afmoe", 32, 16, 0, 2048, 128, WINDOW_LAST_FULL, 4, 1024, 16384},
    {"apertus", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 65536},
    {"arcee", 32, 32, 0, 2560, 0, WINDOW_NONE, 0, 0, 4096},
    {"bamba", 32, 32, 8, 4096, 0, WINDOW_NONE, 0, 0, 262144},
    {"bloom", 0, 0, 0, 0, 0, WINDOW_NONE, 0, 0, 0},
    {"cohere", 40, 64, 0, 8192, 0, WINDOW_NONE, 0, 0, 8192},
    {"cohere2", 40, 64, 0, 8192, 0, WINDOW_LAST_FULL, 4, 4096, 8192},
    {"deepseek_v2", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"deepseek_v3", 61, 128, 128, 7168, 0, WINDOW_NONE, 0, 0, 4096},
    {"deepseek_v32", 61, 128, 128, 7168, 0, WINDOW_NONE, 0, 0, 163840},
    {"deepseek_v4", 0, 64, 1, 4096, 512, WINDOW_NONE, 0, 128, 1048576},
    {"dots1", 62, 32, 32, 4608, 0, WINDOW_UPPER, 62, 4096, 2048},
    {"ernie4_5", 18, 16, 2, 1024, 128, WINDOW_NONE, 0, 0, 131072},
    {"ernie4_5_moe", 28, 20, 4, 2560, 0, WINDOW_NONE, 0, 0, 131072},
    {"exaone4", 32, 32, 32, 4096, 0, WINDOW_LAST_FULL, 4, 4096, 2048},
    {"falcon", 32, 71, 0, 4544, 0, WINDOW_NONE, 0, 0, 2048},
    {"falcon_h1", 32, 32, 8, 4096, 0, WINDOW_NONE, 0, 0, 8192},
    {"gemma", 28, 16, 16, 3072, 256, WINDOW_NONE, 0, 0, 8192},
    {"gemma2", 26, 8, 4, 2304, 256, WINDOW_LAST_FULL, 2, 4096, 8192},
    {"gemma3", 26, 8, 4, 2304, 256, WINDOW_LAST_FULL, 6, 4096, 131072},
    {"gemma3n", 35, 8, 2, 2048, 256, WINDOW_LAST_FULL, 5, 512, 32768},
    {"gemma4", 30, 8, 4, 2304, 256, WINDOW_LAST_FULL, 6, 512, 131072},
    {"glm", 40, 32, 2, 4096, 128, WINDOW_NONE, 0, 0, 131072},
    {"glm4", 40, 32, 2, 4096, 128, WINDOW_NONE, 0, 0, 131072},
    {"glm4_moe", 46, 96, 8, 4096, 0, WINDOW_NONE, 0, 0, 131072},
    {"glm4_moe_lite", 47, 20, 20, 2048, 0, WINDOW_NONE, 0, 0, 202752},
    {"glm4v", 40, 32, 2, 4096, 0, WINDOW_NONE, 0, 0, 32768},
    {"glm_moe_dsa", 78, 64, 64, 6144, 0, WINDOW_NONE, 0, 0, 202752},
    {"gpt2", 12, 12, 0, 768, 0, WINDOW_NONE, 0, 0, 1024},
    {"gpt_bigcode", 12, 12, 1, 768, 0, WINDOW_NONE, 0, 0, 1024},
    {"gpt_neo", 24, 16, 0, 2048, 0, WINDOW_NONE, 0, 0, 2048},
    {"gpt_neox", 44, 64, 0, 6144, 0, WINDOW_NONE, 0, 0, 2048},
    {"gpt_oss", 36, 64, 8, 2880, 64, WINDOW_LAST_FULL, 2, 128, 131072},
    {"gptj", 28, 16, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"granite", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"granitemoe", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"granitemoehybrid", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"helium", 24, 20, 20, 2560, 128, WINDOW_NONE, 0, 0, 4096},
    {"jamba", 32, 32, 8, 4096, 0, WINDOW_NONE, 0, 0, 262144},
    {"kimi_linear", 27, 32, 0, 2304, 0, WINDOW_NONE, 0, 0, 1048576},
    {"lfm2", 32, 32, 8, 2560, 0, WINDOW_NONE, 0, 0, 128000},
    {"lfm2_moe", 32, 32, 8, 2048, 0, WINDOW_NONE, 0, 0, 128000},
    {"llama", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"llama4", 48, 40, 8, 5120, 128, WINDOW_CHUNKS, 4, 8192, 131072},
    {"mimo_v2_flash", 48, 64, 4, 4096, 192, WINDOW_LAST_FULL, 6, 129, 131072},
    {"minimax", 32, 32, 8, 4096, 0, WINDOW_NONE, 0, 0, 131072},
    {"minimax_m2", 62, 48, 8, 3072, 128, WINDOW_NONE, 0, 0, 196608},
    {"ministral", 32, 32, 8, 4096, 0, WINDOW_ALL, 0, 4096, 131072},
    {"ministral3", 34, 32, 8, 4096, 128, WINDOW_ALL, 0, 0, 262144},
    {"mistral", 32, 32, 8, 4096, 0, WINDOW_ALL, 0, 4096, 131072},
    {"mistral4", 36, 32, 32, 4096, 0, WINDOW_NONE, 0, 0, 1048576},
    {"mixtral", 32, 32, 8, 4096, 0, WINDOW_ALL, 0, 0, 131072},
    {"mllama", 40, 32, 8, 4096, 0, WINDOW_NONE, 0, 0, 131072},
    {"modernbert-decoder", 22, 12, 0, 768, 0, WINDOW_FIRST_FULL, 3, 64, 8192},
    {"mpt", 24, 16, 0, 2048, 0, WINDOW_NONE, 0, 0, 2048},
    {"nemotron", 32, 48, 0, 6144, 0, WINDOW_NONE, 0, 0, 4096},
    {"nemotron_h", 0, 32, 8, 4096, 128, WINDOW_NONE, 0, 0, 4096},
    {"olmo", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"olmo2", 32, 32, 0, 4096, 0, WINDOW_NONE, 0, 0, 2048},
    {"olmo3", 32, 32, 0, 4096, 0, WINDOW_LAST_FULL, 4, 4096, 2048},
    {"olmoe", 16, 16, 0, 2048, 0, WINDOW_NONE, 0, 0, 4096},
    {"opt", 12, 12, 0, 768, 0, WINDOW_NONE, 0, 0, 2048},
    {"persimmon", 36, 64, 0, 4096, 0, WINDOW_NONE, 0, 0, 16384},
    {"phi", 24, 32, 0, 2048, 0, WINDOW_NONE, 0, 0, 2048},
    {"phi3", 32, 32, 0, 3072, 0, WINDOW_ALL, 0, 0, 4096},
    {"phimoe", 32, 32, 8, 4096, 0, WINDOW_ALL, 0, 0, 131072},
    {"qwen2", 32, 32, 32, 4096, 0, WINDOW_UPPER, 28, 4096, 32768},
    {"qwen2_5_vl", 80, 64, 8, 8192, 0, WINDOW_UPPER, 80, 4096, 32768},
    {"qwen2_moe", 24, 16, 16, 2048, 0, WINDOW_UPPER, 28, 4096, 32768},
    {"qwen2_vl", 80, 64, 8, 8192, 0, WINDOW_UPPER, 80, 4096, 32768},
    {"qwen3", 32, 32, 32, 4096, 128, WINDOW_UPPER, 28, 4096, 32768},
    {"qwen3_5", 32, 16, 4, 4096, 256, WINDOW_NONE, 0, 0, 32768},
    {"qwen3_5_moe", 40, 16, 2, 2048, 256, WINDOW_NONE, 0, 0, 32768},
    {"qwen3_moe", 24, 32, 4, 2048, 0, WINDOW_UPPER, 0, 4096, 32768},
    {"qwen3_next", 48, 16, 2, 2048, 256, WINDOW_NONE, 0, 0, 32768},
    {"qwen3_vl", 32, 32, 32, 4096, 128, WINDOW_NONE, 0, 0, 128000},
    {"qwen3_vl_moe", 24, 16, 16, 2048, 0, WINDOW_NONE, 0, 0, 128000},
    {"recurrent_gemma", 26, 10, 0, 2560, 0, WINDOW_NONE, 0, 2048, 0},
    {"seed_oss", 64, 80, 8, 4096, 128, WINDOW_NONE, 0, 0, 524288},
    {"smollm3", 36, 16, 4, 2048, 0, WINDOW_UPPER, 36, 0, 32768},
    {"stablelm", 32, 32, 32, 2560, 0, WINDOW_NONE, 0, 0, 4096},
    {"starcoder2", 30, 24, 2, 3072, 0, WINDOW_ALL, 0, 0, 4096},
    {"vaultgemma", 26, 8, 4, 2304, 256, WINDOW_LAST_FULL, 2, 4096, 8192},
    {"zamba", 76, 16, 16, 3712, 0, WINDOW_NONE, 0, 0, 4096},
    {"zamba2", 54, 32, 0, 2560, 0, WINDOW_NONE, 0, 0, 4096},
};

const struct shape_family *shape_family_of(const char *model_type)
{
    static const struct shape_family unknown = {"", 0, 0, 0, 0, 0, WINDOW_UNKNOWN, 0, 0, 0};
    static const char *const ends[] = {"", "_text", "_text_model"};
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        size_t n = strlen(families[i].type);
        for (size_t e = 0; e < ARRAY_LEN(ends); e++)
            if (strncmp(model_type, families[i].type, n) == 0 &&
                strcmp(model_type + n, ends[e]) == 0)
                return &families[i];
    }
    return &unknown;
}

bool shape_is_encoder(const char *model_type)
{
    /* A space around each. */
    static const char list[] =
        " aimv2 albert align altclip audio-spectrogram-transformer autoformer beit bert"
        " big_bird bridgetower bros camembert canine chinese_clip clap clip clip_text_model"
        " clip_vision_model clipseg conditional_detr convbert convnext convnextv2 d_fine"
        " dab-detr data2vec-audio data2vec-text data2vec-vision deberta deberta-v2"
        " deformable_detr deit depth_anything detr dinov2 dinov2_with_registers dinov3_vit"
        " distilbert dpr dpt efficientnet electra embedding_gemma2 ernie esm esmc eurobert"
        " flaubert flava fnet funnel grounding-dino groupvit gte herbert hubert ibert ijepa"
        " informer jina_bert jina_embeddings_v3 layoutlm layoutlmv2 layoutlmv3 layoutxlm"
        " lightglue lilt longformer luke markuplm megatron-bert metaclip_2 mgp-str"
        " mm-grounding-dino mobilebert mobilenet_v2 mobilevit modernbert mpnet mra neobert new"
        " nezha nomic_bert nystromformer owlv2 owlvit patchtst pixio pixtral qdqbert rembert"
        " resnet roberta roberta-prelayernorm roc_bert roformer rt_detr rt_detr_v2 sam"
        " sapiens2 segformer sew sew-d siglip siglip2 siglip2_text_model siglip2_vision_model"
        " siglip_text_model siglip_vision_model splinter squeezebert swin swinv2 t5encoder"
        " table-transformer tapas time_series_transformer timesfm timesfm2_5 timesformer"
        " timm_wrapper tvp unispeech unispeech-sat videomae vilt visual_bert vit vit_mae"
        " vit_msn vitdet vitpose vivit vjepa2 wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm"
        " xclip xlm-roberta xlm-roberta-xl xmod yolos yoso"
        " ";
    static const char *const ends[] = {"_vision", "_vision_model", "_audio", "_encoder"};
    size_t len = strlen(model_type);
    for (const char *p = list + 1; len && (p = strstr(p, model_type)); p++)
        if (p[-1] == ' ' && p[len] == ' ')
            return true;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (len > strlen(ends[i]) && strcmp(model_type + len - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}
