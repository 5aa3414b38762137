/* Heads, dimensions and states of the layers of a config.json, by their kinds. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "model/shape.h"

static bool is_family(const struct shape_config *c, const char *type)
{
    return strcmp(c->shape->family, type) == 0 || strcmp(c->family->type, type) == 0;
}

/* ---- states ---- */

/* Mamba 1 has no groups. */
static int mamba_state(struct shape_config *c, uint64_t *ret, struct error *err)
{
    static const struct {
        const char *family;
        uint32_t state, groups;
    } defaults[] = {
        {"jamba", 16, 0},       {"zamba", 16, 0},
        {"mamba", 16, 0},       {"falcon_mamba", 16, 0},
        {"bamba", 256, 1},      {"zamba2", 64, 1},
        {"falcon_h1", 256, 1},  {"granitemoehybrid", 256, 1},
        {"nemotron_h", 128, 8}, {"mamba2", 128, 8},
    };
    static const char *const conv[] = {"mamba_d_conv", "conv_kernel", "d_conv"};
    static const char *const state[] = {"mamba_d_state", "ssm_state_size", "state_size", "d_state"};
    static const char *const groups[] = {"mamba_n_groups", "mamba_ngroups", "n_groups", "ngroups"};
    static const char *const expand[] = {"mamba_expand", "expand"};
    static const char *const inner[] = {"mamba_d_ssm", "d_inner"};
    uint64_t times = 2, heads, dim;
    struct state_space p = {.conv_kernel = 4};
    bool known = false, grouped = false;
    for (size_t i = 0; i < ARRAY_LEN(defaults) && !known; i++)
        if (is_family(c, defaults[i].family)) {
            p.state = defaults[i].state;
            p.groups = defaults[i].groups;
            grouped = p.groups > 0;
            known = true;
        }
    if (config_number(c, c->at, conv, ARRAY_LEN(conv), 1, SHAPE_DIM_MAX, &p.conv_kernel, err) < 0 ||
        config_number(c, c->at, state, ARRAY_LEN(state), 1, SHAPE_DIM_MAX, &p.state, err) < 0 ||
        config_number(c, c->at, expand, ARRAY_LEN(expand), 1, SHAPE_DIM_MAX, &times, err) < 0 ||
        config_number_or(c, c->at, "mamba_num_heads", 0, SHAPE_HEADS_MAX, &heads, err) < 0 ||
        config_number_or(c, c->at, "mamba_head_dim", 0, SHAPE_DIM_MAX, &dim, err) < 0)
        return -1;
    if ((grouped || !known) &&
        config_number(c, c->at, groups, ARRAY_LEN(groups), 1, SHAPE_DIM_MAX, &p.groups, err) < 0)
        return -1;
    p.inner = heads && dim ? heads * dim : times * c->shape->hidden;
    if (config_number(c, c->at, inner, ARRAY_LEN(inner), 1, SHAPE_DIM_MAX, &p.inner, err) < 0)
        return -1;
    return p.state ? state_space_elements(&p, ret, err) : 0;
}

/* Gated delta nets: Qwen3-Next, Qwen3.5, Olmo Hybrid. */
static int delta_state(struct shape_config *c, uint64_t *ret, struct error *err)
{
    uint64_t key_heads, key_dim, value_heads, value_dim;
    struct state_space p;
    if (config_number_or(c, c->at, "linear_conv_kernel_dim", 4, SHAPE_DIM_MAX, &p.conv_kernel,
                         err) < 0 ||
        config_number_or(c, c->at, "linear_num_key_heads", 16, SHAPE_HEADS_MAX, &key_heads, err) <
            0 ||
        config_number_or(c, c->at, "linear_key_head_dim", 128, SHAPE_DIM_MAX, &key_dim, err) < 0 ||
        config_number_or(c, c->at, "linear_num_value_heads", 32, SHAPE_HEADS_MAX, &value_heads,
                         err) < 0 ||
        config_number_or(c, c->at, "linear_value_head_dim", 128, SHAPE_DIM_MAX, &value_dim, err) <
            0)
        return -1;
    p.inner = value_heads * value_dim;
    p.state = key_dim;
    p.groups = key_heads;
    return state_space_elements(&p, ret, err);
}

/* Kimi Linear: three convolutions (queries, keys, values), and a square a head. */
static int kda_state(struct shape_config *c, uint64_t *ret, struct error *err)
{
    const struct json *at = json_get(c->at, "linear_attn_config");
    bool old = json_is_object(at);
    uint64_t heads, dim, kernel;
    at = old ? at : c->at;
    if (config_number_or(c, at, old ? "num_heads" : "linear_num_heads", 32, SHAPE_HEADS_MAX, &heads,
                         err) < 0 ||
        config_number_or(c, at, old ? "head_dim" : "linear_head_dim", 128, SHAPE_DIM_MAX, &dim,
                         err) < 0 ||
        config_number_or(c, at, old ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4,
                         SHAPE_DIM_MAX, &kernel, err) < 0)
        return -1;
    return shape_products(3 * (kernel ? kernel - 1 : 0), heads, dim, dim * dim, heads, ret, err);
}

static int rwkv_state(struct shape_config *c, uint64_t *ret, struct error *err)
{
    static const char *const sizes[] = {"head_size", "head_dim"};
    uint64_t hidden = c->shape->hidden, attention, head = 64;
    if (config_number_or(c, c->at, "attention_hidden_size", hidden, SHAPE_DIM_MAX, &attention,
                         err) < 0 ||
        config_number(c, c->at, sizes, ARRAY_LEN(sizes), 1, SHAPE_DIM_MAX, &head, err) < 0)
        return -1;
    /* Two token shifts; the first RWKV keeps three numbers a channel, the later ones matrices. */
    return shape_products(2, hidden, 1, attention, strcmp(c->shape->family, "rwkv") == 0 ? 3 : head,
                          ret, err);
}

int shape_config_state(struct shape_config *c, uint64_t *ret, struct error *err)
{
    uint64_t a, b;
    *ret = 0;
    if (json_get(c->at, "conv_L_cache") || strncmp(c->shape->family, "lfm2", 4) == 0) {
        if (config_number_or(c, c->at, "conv_L_cache", 3, SHAPE_DIM_MAX, &a, err) < 0)
            return -1;
        return shape_products(c->shape->hidden, a ? a - 1 : 0, 1, 0, 0, ret, err);
    }
    if (json_get(c->at, "linear_attn_config") || is_family(c, "kimi_linear"))
        return kda_state(c, ret, err);
    if (json_get(c->at, "linear_num_value_heads") || strncmp(c->family->type, "qwen3_", 6) == 0)
        return delta_state(c, ret, err);
    if (strncasecmp(c->shape->family, "minimax", 7) == 0)
        return shape_products(c->key_dim, c->key_dim, c->heads, 0, 0, ret, err);
    if (is_family(c, "recurrent_gemma")) {
        if (config_number_or(c, c->at, "lru_width", c->shape->hidden, SHAPE_DIM_MAX, &a, err) < 0 ||
            config_number_or(c, c->at, "conv1d_width", 4, SHAPE_DIM_MAX, &b, err) < 0)
            return -1;
        return shape_products(a, b, 1, 0, 0, ret, err); /* b - 1 inputs, and the state */
    }
    if (strncmp(c->shape->family, "rwkv", 4) == 0)
        return rwkv_state(c, ret, err);
    return mamba_state(c, ret, err);
}

static int set_states(struct shape_config *c, struct error *err)
{
    struct model_shape *s = c->shape;
    uint64_t state;
    bool any = false;
    for (uint32_t i = 0; i < s->n_layers; i++)
        any = any || s->layers[i].kind == LAYER_RECURRENT || s->layers[i].state_elements;
    if (!any)
        return 0;
    if (shape_config_state(c, &state, err) < 0)
        return -1;
    if (!state)
        shape_note(s, "the size of its recurrent state is not known: not counted");
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->layers[i].kind == LAYER_RECURRENT || s->layers[i].state_elements)
            s->layers[i].state_elements = state;
    return 0;
}

/* ---- attention ---- */

static void set_attention(struct shape_config *c)
{
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        struct layer_shape *l = &c->shape->layers[i];
        if (l->kind == LAYER_LATENT) {
            l->kv_heads = 1;
            l->key_dim = c->latent;
        } else if (l->kind != LAYER_RECURRENT && l->kind != LAYER_NONE) {
            l->kv_heads = c->kv_heads;
            l->key_dim = c->key_dim;
            l->value_dim = c->value_dim;
        }
    }
}

/* Heads of their own for the layers with, or without, a window. */
static int set_other_heads(struct shape_config *c, struct error *err)
{
    bool gemma4 = strcmp(c->family->type, "gemma4") == 0;
    const struct json *same = json_get(c->at, "attention_k_eq_v");
    uint64_t window_heads, window_key, window_value, full_heads = 0, full_dim = 512;
    if (config_number_or(c, c->at, "swa_num_key_value_heads", c->kv_heads, SHAPE_HEADS_MAX,
                         &window_heads, err) < 0 ||
        config_number_or(c, c->at, "swa_head_dim", c->key_dim, SHAPE_DIM_MAX, &window_key, err) <
            0 ||
        config_number_or(c, c->at, "swa_v_head_dim", c->value_dim, SHAPE_DIM_MAX, &window_value,
                         err) < 0 ||
        config_number_or(c, c->at, "num_global_key_value_heads", 0, SHAPE_HEADS_MAX, &full_heads,
                         err) < 0 ||
        config_number_or(c, c->at, "global_head_dim", 512, SHAPE_DIM_MAX, &full_dim, err) < 0)
        return -1;
    if (!full_heads || (same && !json_is_true(same)))
        full_heads = c->kv_heads;
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        struct layer_shape *l = &c->shape->layers[i];
        if (l->kind == LAYER_WINDOW) {
            l->kv_heads = (uint32_t)window_heads;
            l->key_dim = (uint32_t)window_key;
            l->value_dim = (uint32_t)window_value;
        } else if (l->kind == LAYER_FULL && gemma4) {
            l->kv_heads = (uint32_t)full_heads;
            l->key_dim = l->value_dim = (uint32_t)full_dim;
        }
    }
    return 0;
}

/* KV heads one by one: OpenELM and DeciLM. */
static int set_listed_heads(struct shape_config *c, struct error *err)
{
    static const char *const keys[] = {"num_key_value_heads", "num_kv_heads",
                                       "num_key_value_heads_per_layer"};
    const struct json *list = NULL;
    const char *key = "";
    for (size_t i = 0; i < ARRAY_LEN(keys) && !json_is_array(list); i++) {
        key = keys[i];
        list = json_get(c->at, key);
    }
    if (!json_is_array(list))
        return 0;
    if (json_length(list) < c->shape->n_layers)
        return config_too_few(c, key, list, err);
    char place[CONFIG_AT_MAX];
    const struct json *j = json_first(list);
    for (uint32_t i = 0; i < c->shape->n_layers; i++, j = json_next(j)) {
        uint64_t heads;
        if (!json_u64(j, &heads) || heads > SHAPE_HEADS_MAX)
            return err_set(err, ERR_INVALID, "%s%s has what is no number of heads", key,
                           config_at(&c->text, j, place));
        c->shape->layers[i].kv_heads = (uint32_t)heads;
        c->shape->layers[i].key_dim = c->key_dim;
        c->shape->layers[i].value_dim = c->value_dim;
        if (!heads)
            c->shape->layers[i].kind = LAYER_NONE;
    }
    return 0;
}

/* Nemotron's pruned models: block_configs[].attention has n_heads_in_group, or nothing. */
static int set_blocks(struct shape_config *c, struct error *err)
{
    const struct json *list = json_get(c->at, "block_configs");
    if (!json_is_array(list))
        return 0;
    if (json_length(list) < c->shape->n_layers)
        return config_too_few(c, "block_configs", list, err);
    const struct json *j = json_first(list);
    for (uint32_t i = 0; i < c->shape->n_layers; i++, j = json_next(j)) {
        const struct json *attention = json_get(j, "attention");
        struct layer_shape *l = &c->shape->layers[i];
        uint64_t group = 0, heads = 0;
        if (config_number_or(c, attention, "n_heads_in_group", 0, SHAPE_HEADS_MAX, &group, err) <
                0 ||
            config_number_or(c, attention, "num_key_value_heads", 0, SHAPE_HEADS_MAX, &heads, err) <
                0)
            return -1;
        if (!heads && group)
            heads = c->heads / group;
        if (heads)
            *l = (struct layer_shape){.kind = LAYER_FULL,
                                      .kv_heads = (uint32_t)heads,
                                      .key_dim = c->key_dim,
                                      .value_dim = c->value_dim};
        else
            *l = (struct layer_shape){.kind = LAYER_NONE};
    }
    return 0;
}

/* What single layers have otherwise, by their numbers: {"05": {"head_dim": 512}}. */
static int set_per_layer(struct shape_config *c, struct error *err)
{
    const struct json *list = json_get(c->at, "per_layer_config");
    for (const struct json *j = json_is_object(list) ? json_first(list) : NULL; j;
         j = json_next(j)) {
        char *end;
        unsigned long i = strtoul(json_key(j), &end, 10);
        uint64_t heads, dim;
        char place[CONFIG_AT_MAX];
        if (*end || end == json_key(j) || i >= c->shape->n_layers)
            return err_set(err, ERR_INVALID, "per_layer_config%s names a layer that is not there",
                           config_at(&c->text, j, place));
        struct layer_shape *l = &c->shape->layers[i];
        if (l->kind != LAYER_FULL && l->kind != LAYER_WINDOW && l->kind != LAYER_CHUNKED)
            continue;
        if (config_number_or(c, j, "num_key_value_heads", l->kv_heads, SHAPE_HEADS_MAX, &heads,
                             err) < 0 ||
            config_number_or(c, j, "head_dim", l->key_dim, SHAPE_DIM_MAX, &dim, err) < 0)
            return -1;
        if (dim != l->key_dim)
            l->key_dim = l->value_dim = (uint32_t)dim;
        l->kv_heads = (uint32_t)heads;
    }
    return 0;
}

/* Sparse attention over latent rows (DeepSeek 3.2, GLM 5): the indexer keeps a key a token, in the
 * layers that have one of their own. */
static int set_index_keys(struct shape_config *c, struct error *err)
{
    const struct json *types = json_get(c->at, "indexer_types");
    const char *pattern = config_text(c->at, "index_topk_pattern");
    uint64_t dim, frequency, offset;
    bool sparse = is_family(c, "deepseek_v32") || is_family(c, "glm_moe_dsa");
    if (config_number_or(c, c->at, "index_head_dim", sparse ? 128 : 0, SHAPE_DIM_MAX, &dim, err) <
            0 ||
        config_number_or(c, c->at, "index_topk_freq", 1, SHAPE_LAYERS_MAX, &frequency, err) < 0 ||
        config_number_or(c, c->at, "index_skip_topk_offset", 2, SHAPE_LAYERS_MAX, &offset, err) < 0)
        return -1;
    const struct json *j = json_is_array(types) ? json_first(types) : NULL;
    bool listed = j != NULL;
    size_t n = pattern ? strlen(pattern) : 0;
    for (uint32_t i = 0; i < c->shape->n_layers; i++, j = j ? json_next(j) : NULL) {
        uint64_t since = i + 1 > offset ? i + 1 - offset : 0;
        bool own = since % (frequency ? frequency : 1) == 0;
        if (listed)
            own = j && json_str(j) && strcmp(json_str(j), "full") == 0;
        else if (i < n)
            own = pattern[i] == 'F';
        if (c->shape->layers[i].kind == LAYER_LATENT && own)
            c->shape->layers[i].index_dim = (uint32_t)dim;
    }
    return 0;
}

static int set_compressed(struct shape_config *c, struct error *err)
{
    uint64_t index;
    if (!is_family(c, "deepseek_v4"))
        return 0;
    if (config_number_or(c, c->at, "index_head_dim", 128, SHAPE_DIM_MAX, &index, err) < 0)
        return -1;
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        struct layer_shape *l = &c->shape->layers[i];
        if (l->kind == LAYER_WINDOW || l->kind == LAYER_FULL)
            shape_compress(l, l->row_every, l->row_every == c->ratios[0], (uint32_t)index);
    }
    return 0;
}

/* The last layers that use the cache of earlier ones; all of them do in an assistant model, which
 * has the cache of the one that it assists. */
static int set_shared(struct shape_config *c, struct error *err)
{
    uint64_t n;
    bool gemma3n = strcmp(c->family->type, "gemma3n") == 0;
    char place[CONFIG_AT_MAX];
    if (config_number_or(c, c->at, "num_kv_shared_layers", gemma3n ? 15 : 0, SHAPE_LAYERS_MAX, &n,
                         err) < 0)
        return -1;
    if (gemma3n && !json_get(c->at, "num_kv_shared_layers"))
        config_assume(c, "num_kv_shared_layers", 15);
    if (n > c->shape->n_layers)
        return err_set(err, ERR_INVALID,
                       "num_kv_shared_layers%s is %" PRIu64 " of %" PRIu32 " layers",
                       config_at(&c->text, json_get(c->at, "num_kv_shared_layers"), place), n,
                       c->shape->n_layers);
    for (uint32_t i = c->shape->n_layers - (uint32_t)n; i < c->shape->n_layers; i++)
        c->shape->layers[i] = (struct layer_shape){.kind = LAYER_SHARED};
    return 0;
}

/* Llama 3.2 Vision: some layers attend to an image, and to nothing else. */
static int set_cross_layers(struct shape_config *c, struct error *err)
{
    const struct json *list = json_get(c->at, "cross_attention_layers");
    const struct json *vision = json_get(c->root, "vision_config");
    uint64_t size, patch, tiles;
    char place[CONFIG_AT_MAX];
    if (!json_is_array(list))
        return 0;
    for (const struct json *j = json_first(list); j; j = json_next(j)) {
        uint64_t i;
        if (!json_u64(j, &i) || i >= c->shape->n_layers)
            return err_set(err, ERR_INVALID,
                           "cross_attention_layers%s names a layer that is not there",
                           config_at(&c->text, j, place));
        c->shape->layers[i] = (struct layer_shape){.kind = LAYER_NONE};
    }
    c->shape->cross_layers = 0;
    for (const struct json *j = json_first(list); j; j = json_next(j))
        c->shape->cross_layers++;
    if (c->shape->cross_layers > c->shape->n_layers)
        return err_set(err, ERR_INVALID, "cross_attention_layers%s names layers twice",
                       config_at(&c->text, list, place));
    if (config_number_or(c, vision, "image_size", 448, 65536, &size, err) < 0 ||
        config_number_or(c, vision, "patch_size", 14, 65536, &patch, err) < 0 ||
        config_number_or(c, vision, "max_num_tiles", 4, 1024, &tiles, err) < 0)
        return -1;
    if (patch && vision) {
        c->shape->cross_tokens = ((size / patch) * (size / patch) + 1) * tiles;
        shape_note(c->shape, "cross-attention counted for one image of %" PRIu64 " tiles", tiles);
    }
    return 0;
}

int shape_config_dims(struct shape_config *c, struct error *err)
{
    static const char *const next[] = {"num_nextn_predict_layers", "mtp_num_hidden_layers"};
    uint64_t n = 0;
    set_attention(c);
    if (set_other_heads(c, err) < 0 || set_listed_heads(c, err) < 0 || set_blocks(c, err) < 0 ||
        set_per_layer(c, err) < 0 || set_index_keys(c, err) < 0 || set_states(c, err) < 0 ||
        set_compressed(c, err) < 0 || set_shared(c, err) < 0 || set_cross_layers(c, err) < 0 ||
        config_number(c, c->at, next, ARRAY_LEN(next), 0, SHAPE_LAYERS_MAX, &n, err) < 0)
        return -1;
    if (n)
        shape_note(c->shape,
                   "%" PRIu64 " layers that predict further tokens are not counted: they have a "
                   "cache only while an engine uses them",
                   n);
    return 0;
}
