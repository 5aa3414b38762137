/* A model's shape from the metadata of a GGUF, by the rules of llama.cpp (llama-model.cpp and
 * src/models/). What llama.cpp does not do (windows of Mistral and Phi 3) is not counted either:
 * the file is for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/shape_keys.h"

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

/* How an architecture uses its windows. */
struct windows {
    const char *architecture;
    enum {
        IF_STATED, /* with attention.sliding_window over 0 */
        ALWAYS,    /* with the window below where none is stated */
        FIXED,     /* with the window below, when one is stated at all */
        CHUNKS,    /* chunks of the size below, unless 0 is stated */
        ALL,       /* every layer that attends, when one is stated */
    } when;
    uint32_t period;
    bool first_full;
    uint32_t window;
};

static const struct windows *windows_of(const char *architecture, uint32_t layers)
{
    static const struct windows table[] = {
        {"gemma2", ALWAYS, 2, false, 4096},      {"gemma3", IF_STATED, 6, false, 0},
        {"gemma3n", IF_STATED, 5, false, 0},     {"gemma4", IF_STATED, 6, false, 0},
        {"cohere2", IF_STATED, 4, false, 0},     {"cohere2moe", IF_STATED, 4, true, 0},
        {"gpt-oss", IF_STATED, 2, false, 0},     {"llama4", CHUNKS, 4, false, 8192},
        {"exaone4", ALWAYS, 4, false, 4096},     {"exaone-moe", ALWAYS, 4, false, 128},
        {"olmo2", IF_STATED, 4, false, 0},       {"smallthinker", FIXED, 4, true, 4096},
        {"afmoe", IF_STATED, 4, false, 0},       {"mellum", IF_STATED, 4, false, 0},
        {"plamo3", IF_STATED, 8, false, 0},      {"laguna", IF_STATED, 4, true, 0},
        {"mimo2", IF_STATED, 1, false, 0},       {"step35", IF_STATED, 1, false, 0},
        {"granite_swa", IF_STATED, 1, false, 0}, {"lfm2", ALL, 0, false, 0},
        {"deepseek4", ALL, 0, false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].architecture, architecture) == 0) {
            /* Only the larger EXAONE 4 has them. */
            bool small = strcmp(architecture, "exaone4") == 0 && layers != 64;
            return small ? NULL : &table[i];
        }
    return NULL;
}

/* ---- what keeps no cache ---- */

static int refuse(const struct shape_keys *k, struct error *err)
{
    static const char *const encoders[] = {
        "bert",     "nomic-bert",  "nomic-bert-moe",  "jina-bert-v2", "jina-bert-v3",    "neo-bert",
        "eurobert", "modern-bert", "gemma-embedding", "t5encoder",    "wavtokenizer-dec"};
    static const char *const diffusion[] = {"dream", "llada", "llada-moe", "rnd1"};
    const char *architecture = shape_keys_architecture(k), *type = shape_keys_type(k);
    if (strcmp(type, "adapter") == 0 || strcmp(type, "imatrix") == 0 ||
        strcmp(type, "mmproj") == 0 || strcmp(architecture, "clip") == 0)
        return err_set(
            err, ERR_UNSUPPORTED,
            "a GGUF of type %s has no cache of its own: ask for the model that it is for",
            type[0] ? type : architecture);
    if (!architecture[0])
        return err_set(err, ERR_UNSUPPORTED,
                       "the GGUF has no general.architecture: only the first part of a split file "
                       "describes the model");
    if (is_one_of(architecture, encoders, ARRAY_LEN(encoders)))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is an encoder: it reads its input at once and keeps no cache",
                       architecture);
    if (is_one_of(architecture, diffusion, ARRAY_LEN(diffusion)))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is a diffusion model: it keeps no cache from step to step",
                       architecture);
    return 0;
}

/* ---- which layers ---- */

static bool is_recurrent_only(const char *architecture)
{
    static const char *const list[] = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"};
    return is_one_of(architecture, list, ARRAY_LEN(list));
}

/* Layers without KV heads keep a state instead; elsewhere they have no attention at all. */
static bool is_hybrid(const char *architecture)
{
    static const char *const list[] = {"jamba",          "plamo2",      "granitehybrid", "lfm2",
                                       "lfm2moe",        "nemotron_h",  "kimi-linear",   "kimi-k3",
                                       "nemotron_h_moe", "bailingmoe3", "glm5-next"};
    return is_one_of(architecture, list, ARRAY_LEN(list));
}

/* The interval of architectures in which every n-th layer attends; 0 = another kind. */
static uint64_t attention_interval(const struct shape_keys *k)
{
    static const char *const four[] = {"qwen3next", "qwen35", "qwen35moe", "qwen4exp"};
    const char *architecture = shape_keys_architecture(k);
    if (is_one_of(architecture, four, ARRAY_LEN(four)))
        return shape_keys_at(k, KEY_FULL_INTERVAL, 0, 4);
    if (strcmp(architecture, "minimax-01") == 0)
        return shape_keys_at(k, KEY_FULL_INTERVAL, 0, 8);
    return 0;
}

static enum layer_kind kind_of(const struct shape_keys *k, uint32_t i, uint64_t heads)
{
    const char *architecture = shape_keys_architecture(k);
    uint64_t interval = attention_interval(k);
    bool nemotron = strncmp(architecture, "nemotron_h", 10) == 0;
    if (is_recurrent_only(architecture))
        return LAYER_RECURRENT;
    if (interval && shape_keys_has(k, KEY_RECURRENT))
        return shape_keys_at(k, KEY_RECURRENT, i, 0) ? LAYER_RECURRENT : LAYER_FULL;
    if (interval)
        return (i + 1) % interval ? LAYER_RECURRENT : LAYER_FULL;
    if (nemotron && shape_keys_at(k, KEY_FEED_FORWARD, i, 0))
        return LAYER_NONE;
    if (!heads)
        return is_hybrid(architecture) ? LAYER_RECURRENT : LAYER_NONE;
    return LAYER_FULL;
}

/* Elements of a state, as llama.cpp allocates them. */
static int state_of(const struct shape_keys *k, const struct model_shape *s, uint64_t head_dim,
                    uint64_t *ret, struct error *err)
{
    uint64_t hidden = s->hidden, kernel = shape_keys_at(k, KEY_SSM_CONV, 0, 0);
    uint64_t wkv = shape_keys_at(k, KEY_WKV_HEAD, 0, 0), kda = shape_keys_at(k, KEY_KDA_HEAD, 0, 0);
    uint64_t short_conv = shape_keys_at(k, KEY_SHORTCONV, 0, 0);
    struct state_space p = {.conv_kernel = kernel,
                            .inner = shape_keys_at(k, KEY_SSM_INNER, 0, 0),
                            .state = shape_keys_at(k, KEY_SSM_STATE, 0, 0),
                            .groups = shape_keys_at(k, KEY_SSM_GROUPS, 0, 0)};
    uint64_t square;
    char name[SHAPE_KEY_NAME_MAX];
    if (wkv)
        return shape_products(shape_keys_at(k, KEY_TOKEN_SHIFTS, 0, 2), hidden, 1, hidden, wkv, ret,
                              err);
    if (short_conv)
        return shape_products(short_conv - 1, hidden, 1, 0, 0, ret, err);
    if (strcmp(shape_keys_architecture(k), "minimax-01") == 0)
        return shape_products(head_dim, head_dim, s->heads, 0, 0, ret, err);
    if (!kda)
        return state_space_elements(&p, ret, err);
    if (kda > SHAPE_DIM_MAX || kernel > SHAPE_DIM_MAX)
        return err_set(err, ERR_INVALID, "%s can not be so large",
                       shape_keys_name(k, kda > SHAPE_DIM_MAX ? KEY_KDA_HEAD : KEY_SSM_CONV, name));
    square = kda * kda;
    return shape_products(3 * (kernel ? kernel - 1 : 3), s->heads, kda, square, s->heads, ret, err);
}

static int set_windows(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    const struct windows *w = windows_of(s->family, s->n_layers);
    bool implied = w && (w->when == ALWAYS || w->when == CHUNKS);
    uint64_t window = shape_keys_at(k, KEY_WINDOW, 0, implied ? w->window : 0);
    uint64_t period = w ? w->period : 0;
    bool listed = shape_keys_is_array(k, KEY_WINDOW_PATTERN);
    char name[SHAPE_KEY_NAME_MAX];
    if (!w && window)
        shape_note(s,
                   "attention.sliding_window %" PRIu64 " is stated, and llama.cpp does not use "
                   "it for %s",
                   window, s->family);
    if (!w || !window)
        return 0;
    if (w->when == FIXED || w->when == CHUNKS)
        window = w->window;
    if (window > UINT32_MAX)
        return err_set(err, ERR_INVALID, "%s: %" PRIu64 " can not be",
                       shape_keys_name(k, KEY_WINDOW, name), window);
    if (shape_keys_check_length(k, KEY_WINDOW_PATTERN, s->n_layers, err) < 0)
        return -1;
    if (!listed)
        period = shape_keys_at(k, KEY_WINDOW_PATTERN, 0, period);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        uint64_t place = period ? i % period : 0;
        bool bounded = listed          ? shape_keys_at(k, KEY_WINDOW_PATTERN, i, 0) != 0
                       : period == 0   ? true
                       : w->first_full ? place != 0
                                       : place + 1 < period;
        if (!bounded || s->layers[i].kind != LAYER_FULL)
            continue;
        s->layers[i].kind = w->when == CHUNKS ? LAYER_CHUNKED : LAYER_WINDOW;
        s->layers[i].window = (uint32_t)window;
    }
    return 0;
}

/* ---- dimensions ---- */

static int set_heads(const struct shape_keys *k, struct model_shape *s, uint64_t key,
                     uint64_t value, struct error *err)
{
    static const enum shape_key stated[] = {KEY_KEY_LENGTH, KEY_VALUE_LENGTH, KEY_KEY_LENGTH_SWA,
                                            KEY_VALUE_LENGTH_SWA, KEY_INDEX_LENGTH};
    char name[SHAPE_KEY_NAME_MAX];
    uint64_t window_key = shape_keys_at(k, KEY_KEY_LENGTH_SWA, 0, key);
    uint64_t window_value = shape_keys_at(k, KEY_VALUE_LENGTH_SWA, 0, value);
    uint64_t index = shape_keys_at(k, KEY_INDEX_LENGTH, 0, 0);
    bool latent = shape_keys_at(k, KEY_KEY_LENGTH_MLA, 0, 0) > 0;
    const uint64_t sizes[] = {key, value, window_key, window_value, index};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (sizes[i] > SHAPE_DIM_MAX)
            return err_set(err, ERR_INVALID, "%s: heads of %" PRIu64 " elements can not be",
                           shape_keys_name(k, stated[i], name), sizes[i]);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct layer_shape *l = &s->layers[i];
        bool bounded = l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED;
        if (l->kind != LAYER_FULL && !bounded) {
            l->kv_heads = 0;
            continue;
        }
        l->key_dim = (uint32_t)(bounded ? window_key : key);
        l->value_dim = (uint32_t)(bounded ? window_value : value);
        if (latent && !bounded) {
            l->kind = LAYER_LATENT;
            l->value_dim = 0;
            if (shape_keys_at(k, KEY_INDEX_TYPES, i, 1))
                l->index_dim = (uint32_t)index;
        }
    }
    if (!latent && shape_keys_has(k, KEY_KV_LORA_RANK))
        shape_note(s, "no attention.key_length_mla: the file keeps whole heads where the model has "
                      "latent rows");
    return 0;
}

static int set_states(const struct shape_keys *k, struct model_shape *s, uint64_t head_dim,
                      struct error *err)
{
    bool both = strcmp(s->family, "falcon-h1") == 0, any = both;
    uint64_t state;
    for (uint32_t i = 0; i < s->n_layers; i++)
        any = any || s->layers[i].kind == LAYER_RECURRENT;
    if (!any)
        return 0;
    if (state_of(k, s, head_dim, &state, err) < 0)
        return -1;
    if (!state)
        shape_note(s, "the size of its recurrent state is not stated: not counted");
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (both || s->layers[i].kind == LAYER_RECURRENT)
            s->layers[i].state_elements = state;
    return 0;
}

#define SPARSE_RATIO 4 /* the one at which layers have an index as well */

static int set_compressed(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    uint64_t index = shape_keys_at(k, KEY_INDEX_LENGTH, 0, 0);
    char name[SHAPE_KEY_NAME_MAX];
    if (strcmp(s->family, "deepseek4") != 0)
        return 0;
    if (!shape_keys_is_array(k, KEY_COMPRESS_RATIOS))
        return err_set(err, ERR_UNSUPPORTED, "the GGUF has no %s.attention.compress_ratios",
                       s->family);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        uint64_t ratio = shape_keys_at(k, KEY_COMPRESS_RATIOS, i, 0);
        if (ratio > SHAPE_DIM_MAX)
            return err_set(err, ERR_INVALID, "%s: %" PRIu64 " can not be",
                           shape_keys_name(k, KEY_COMPRESS_RATIOS, name), ratio);
        shape_compress(&s->layers[i], ratio == 1 ? 0 : (uint32_t)ratio, ratio == SPARSE_RATIO,
                       (uint32_t)index);
    }
    return 0;
}

static int set_shared(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    uint64_t n = shape_keys_at(k, KEY_SHARED, 0, 0);
    char name[SHAPE_KEY_NAME_MAX];
    if (n > s->n_layers)
        return err_set(err, ERR_INVALID, "%s: %" PRIu64 " of %" PRIu32 " layers",
                       shape_keys_name(k, KEY_SHARED, name), n, s->n_layers);
    if (strcmp(s->family, "gemma3n") == 0 && !shape_keys_has(k, KEY_SHARED) && s->n_layers > 20) {
        n = s->n_layers - 20;
        shape_note(s,
                   "attention.shared_kv_layers is not stated: all but the first 20, as llama.cpp "
                   "has it");
    }
    for (uint32_t i = s->n_layers - (uint32_t)n; i < s->n_layers; i++)
        s->layers[i] = (struct layer_shape){.kind = LAYER_SHARED};
    return 0;
}

/* ---- the whole ---- */

static int read_layers(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    static const enum shape_key lists[] = {KEY_HEADS,     KEY_KV_HEADS,    KEY_FEED_FORWARD,
                                           KEY_RECURRENT, KEY_INDEX_TYPES, KEY_COMPRESS_RATIOS};
    uint64_t blocks = shape_keys_at(k, KEY_BLOCKS, 0, 0), next = shape_keys_at(k, KEY_NEXTN, 0, 0);
    char what[SHAPE_KEY_NAME_MAX];
    if (!shape_keys_has(k, KEY_BLOCKS))
        return err_set(err, ERR_UNSUPPORTED, "the GGUF has no %s.block_count", s->family);
    if (strcmp(s->family, "t5") == 0)
        blocks = shape_keys_at(k, KEY_DECODER_BLOCKS, 0, blocks);
    if (next && next < blocks) {
        blocks -= next;
        shape_note(s,
                   "%" PRIu64 " layers that predict further tokens are not counted: they have a "
                   "cache only while an engine uses them",
                   next);
    }
    shape_keys_name(k, KEY_BLOCKS, what);
    if (shape_layers_new(s, blocks, what, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (shape_keys_check_length(k, lists[i], s->n_layers, err) < 0)
            return -1;
    return 0;
}

static int set_kinds(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    char name[SHAPE_KEY_NAME_MAX];
    for (uint32_t i = 0; i < s->n_layers; i++) {
        uint64_t heads = shape_keys_at(k, KEY_HEADS, i, 0);
        uint64_t kv_heads = shape_keys_at(k, KEY_KV_HEADS, i, heads);
        if (heads > SHAPE_HEADS_MAX || kv_heads > SHAPE_HEADS_MAX)
            return err_set(err, ERR_INVALID, "%s: %" PRIu64 " can not be",
                           shape_keys_name(k, heads > kv_heads ? KEY_HEADS : KEY_KV_HEADS, name),
                           heads > kv_heads ? heads : kv_heads);
        s->heads = heads > s->heads ? heads : s->heads;
        s->layers[i].kv_heads = (uint32_t)kv_heads;
        s->layers[i].kind = kind_of(k, i, kv_heads);
        if (s->layers[i].kind == LAYER_FULL && !kv_heads)
            return err_set(err, ERR_INVALID, "%s: 0 in layer %" PRIu32,
                           shape_keys_name(k, KEY_KV_HEADS, name), i);
    }
    return 0;
}

static int read_dims(const struct shape_keys *k, struct model_shape *s, struct error *err)
{
    char name[SHAPE_KEY_NAME_MAX];
    bool any = false;
    uint64_t even = s->heads ? s->hidden / s->heads : 0;
    uint64_t key = shape_keys_at(k, KEY_KEY_LENGTH, 0, even);
    uint64_t value = shape_keys_at(k, KEY_VALUE_LENGTH, 0, even);
    for (uint32_t i = 0; i < s->n_layers; i++)
        any = any || s->layers[i].kind == LAYER_FULL;
    if (!shape_keys_has(k, KEY_HEADS) && !is_recurrent_only(s->family))
        return err_set(err, ERR_UNSUPPORTED, "the GGUF has no %s.attention.head_count", s->family);
    if (!s->heads && !is_recurrent_only(s->family))
        return err_set(err, ERR_INVALID, "%s is 0 in every layer",
                       shape_keys_name(k, KEY_HEADS, name));
    if (any && (!key || !value))
        return err_set(err, ERR_UNSUPPORTED,
                       "the GGUF has neither %s.attention.key_length nor %s.embedding_length",
                       s->family, s->family);
    if (set_windows(k, s, err) < 0 || set_heads(k, s, key, value, err) < 0 ||
        set_states(k, s, key, err) < 0 || set_compressed(k, s, err) < 0)
        return -1;
    if (strcmp(s->family, "t5") == 0) {
        s->cross_layers = s->n_layers;
        s->cross_kv_heads = s->layers[0].kv_heads;
        s->cross_dim = s->layers[0].key_dim;
    }
    return set_shared(k, s, err);
}

int shape_from_gguf(const struct shape_keys *k, struct model_shape *ret, struct error *err)
{
    char name[SHAPE_KEY_NAME_MAX];
    *ret = (struct model_shape){0};
    if (refuse(k, err) < 0)
        return -1;
    snprintf(ret->family, sizeof(ret->family), "%s", shape_keys_architecture(k));
    snprintf(ret->source, sizeof(ret->source), "GGUF");
    ret->hidden = shape_keys_at(k, KEY_EMBEDDING, 0, 0);
    ret->context = shape_keys_at(k, KEY_CONTEXT, 0, 0);
    ret->vocabulary = shape_keys_at(k, KEY_VOCABULARY, 0, shape_keys_tokens(k));
    uint64_t experts = shape_keys_at(k, KEY_EXPERTS, 0, 0);
    uint64_t used = shape_keys_at(k, KEY_EXPERTS_USED, 0, 0);
    ret->experts = experts <= UINT32_MAX ? (uint32_t)experts : 0;
    ret->experts_used = used <= experts ? (uint32_t)used : 0;
    if (ret->hidden > SHAPE_DIM_MAX)
        return err_set(err, ERR_INVALID, "%s: %" PRIu64 " can not be",
                       shape_keys_name(k, KEY_EMBEDDING, name), ret->hidden);
    if (read_layers(k, ret, err) < 0 || set_kinds(k, ret, err) < 0 || read_dims(k, ret, err) < 0)
        return -1;
    shape_describe(ret);
    return 0;
}
