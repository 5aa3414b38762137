/* A model's shape from its config.json: the numbers of the whole model, and what is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/shape.h"

/* ---- numbers ---- */

/* A member, or a member of a member ("a.b"). */
static const struct json *member(const struct json *at, const char *key)
{
    const char *dot = strchr(key, '.');
    char first[32];
    if (!dot)
        return json_get(at, key);
    snprintf(first, sizeof(first), "%.*s", (int)(dot - key), key);
    return json_get(json_get(at, first), dot + 1);
}

int config_number(const struct shape_config *c, const struct json *at, const char *const *keys,
                  size_t n, uint64_t min, uint64_t max, uint64_t *ret, struct error *err)
{
    char place[CONFIG_AT_MAX];
    for (size_t i = 0; i < n; i++) {
        const struct json *j = member(at, keys[i]);
        uint64_t value;
        if (!j || json_is_null(j))
            continue;
        if (!json_u64(j, &value) || value < min || value > max)
            return err_set(err, ERR_INVALID,
                           "%s%s is no whole number between %" PRIu64 " and %" PRIu64, keys[i],
                           config_at(&c->text, j, place), min, max);
        *ret = value;
        return 1;
    }
    return 0;
}

int config_number_or(const struct shape_config *c, const struct json *at, const char *key,
                     uint64_t otherwise, uint64_t max, uint64_t *ret, struct error *err)
{
    uint64_t value = otherwise;
    if (config_number(c, at, &key, 1, 0, max, &value, err) < 0)
        return -1;
    *ret = value;
    return 0;
}

int config_too_few(const struct shape_config *c, const char *key, const struct json *list,
                   struct error *err)
{
    char place[CONFIG_AT_MAX];
    return err_set(err, ERR_INVALID, "%s%s has %zu entries for %" PRIu32 " layers", key,
                   config_at(&c->text, list, place), json_length(list), c->shape->n_layers);
}

const char *config_text(const struct json *at, const char *key)
{
    return json_str(json_get(at, key));
}

void config_assume(struct shape_config *c, const char *key, uint64_t value)
{
    size_t used = strlen(c->assumed);
    snprintf(c->assumed + used, sizeof(c->assumed) - used, "%s%s %" PRIu64, used ? ", " : "", key,
             value);
}

/* Numbers that are only shown: whatever is odd about them is no reason to refuse. */
static uint64_t shown_number(const struct shape_config *c, const char *const *keys, size_t n)
{
    const struct json *places[] = {c->at, c->root};
    for (size_t p = 0; p < ARRAY_LEN(places); p++)
        for (size_t i = 0; i < n; i++) {
            uint64_t value;
            if (json_u64(member(places[p], keys[i]), &value))
                return value;
        }
    return 0;
}

/* ---- which object, which family ---- */

static const char *const layer_keys[] = {"num_hidden_layers",
                                         "n_layer",
                                         "n_layers",
                                         "num_layers",
                                         "num_transformer_layers",
                                         "num_decoder_layers",
                                         "decoder_layers",
                                         "decoder_num_hidden_layers"};
static const char *const head_keys[] = {"num_attention_heads",
                                        "n_head",
                                        "n_heads",
                                        "num_heads",
                                        "decoder_attention_heads",
                                        "attention_heads",
                                        "decoder_num_attention_heads"};

static bool has_layers(const struct json *at)
{
    for (size_t i = 0; i < ARRAY_LEN(layer_keys); i++)
        if (member(at, layer_keys[i]) && !json_is_null(member(at, layer_keys[i])))
            return true;
    return json_get(at, "hybrid_override_pattern") || json_get(at, "layers_block_type");
}

static void set_place(struct shape_config *c, const struct json *at, const char *name)
{
    const char *type = config_text(at, "model_type");
    if (!type)
        type = config_text(c->root, "model_type");
    c->at = at;
    c->family = shape_family_of(type ? type : "");
    snprintf(c->shape->family, sizeof(c->shape->family), "%s", type ? type : "");
    snprintf(c->shape->source, sizeof(c->shape->source),
             name[0] ? "config.json (%s)" : "config.json", name);
}

/* The first place that has layers; else the first whose family has a default for them. */
static void find_place(struct shape_config *c)
{
    const struct json *decoder = json_get(c->root, "decoder");
    const char *name = "";
    if (json_is_object(decoder) && (has_layers(decoder) || config_text(decoder, "model_type"))) {
        set_place(c, decoder, "decoder");
        return;
    }
    for (size_t i = 0; i < CONFIG_PLACES; i++) {
        const struct json *at = config_place(c->root, i, &name);
        if (at && has_layers(at)) {
            set_place(c, at, name);
            return;
        }
    }
    for (size_t i = CONFIG_PLACES; i-- > 0;) {
        const struct json *at = config_place(c->root, i, &name);
        if (json_is_object(at) && config_text(at, "model_type")) {
            set_place(c, at, name);
            if (i > 0)
                return;
        }
    }
    if (!c->at)
        set_place(c, c->root, "");
}

/* ---- what keeps no cache ---- */

static bool is_encoder(const struct shape_config *c)
{
    /* The first also of families that have a decoder: T5EncoderModel. */
    static const char *const classes[] = {"EncoderModel",
                                          "ForMaskedLM",
                                          "ForImageClassification",
                                          "ForObjectDetection",
                                          "ForSemanticSegmentation",
                                          "ForCTC",
                                          "ForAudioClassification",
                                          "ForMaskGeneration",
                                          "VisionModel",
                                          "ForDepthEstimation",
                                          "ForVideoClassification"};
    const struct json *architectures = json_get(c->root, "architectures");
    /* Set in a nested configuration it is of the input alone (PaliGemma). */
    const struct json *both_ways = json_get(c->root, "use_bidirectional_attention");
    const char *first = json_is_array(architectures) ? json_str(json_first(architectures)) : NULL;
    if (json_is_true(json_get(c->at, "is_decoder")))
        return false;
    if (shape_is_encoder(c->shape->family) || json_is_true(both_ways))
        return true;
    for (size_t i = 0; first && i < ARRAY_LEN(classes); i++)
        if (strstr(first, classes[i]))
            return c->family->rule == WINDOW_UNKNOWN || i == 0;
    return false;
}

static int refuse(const struct shape_config *c, struct error *err)
{
    static const char *const diffusion[] = {"llada", "dream", "Dream", "LLaDA", "rnd1"};
    const char *family = c->shape->family;
    const char *base = config_text(c->root, "base_model_name_or_path");
    const char *class_name = config_text(c->root, "_class_name");
    if (config_text(c->root, "peft_type"))
        return err_set(err, ERR_UNSUPPORTED,
                       "an adapter (%.40s) has no cache of its own: ask for its base model%s%.200s",
                       config_text(c->root, "peft_type"), base ? ", " : "", base ? base : "");
    if (class_name)
        return err_set(err, ERR_UNSUPPORTED,
                       "a part of a diffusers pipeline (%.80s) keeps no cache from step to step",
                       class_name);
    for (size_t i = 0; i < ARRAY_LEN(diffusion); i++)
        if (strcmp(family, diffusion[i]) == 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s is a diffusion model: it keeps no cache from step to step", family);
    if (is_encoder(c))
        return err_set(err, ERR_UNSUPPORTED,
                       "%.64s is an encoder: it reads its input at once and keeps no cache",
                       family[0] ? family : "this model");
    return 0;
}

/* ---- the numbers of attention ---- */

/* A key's number, else the default of the family, with a note. */
static int number_or_default(struct shape_config *c, const char *const *keys, size_t n,
                             uint64_t max, uint32_t otherwise, uint32_t *ret, struct error *err)
{
    uint64_t value = otherwise;
    int rc = config_number(c, c->at, keys, n, 1, max, &value, err);
    if (rc < 0)
        return -1;
    if (rc == 0 && otherwise)
        config_assume(c, keys[0], otherwise);
    *ret = (uint32_t)value;
    return 0;
}

/* Falcon, GPT-BigCode, ChatGLM and MPT say it in their own ways. 1: *ret is set. */
static int special_kv_heads(const struct shape_config *c, uint32_t *ret)
{
    const char *kind = json_str(member(c->at, "attn_config.attn_type"));
    const struct json *multi = json_get(c->at, "multi_query");
    const struct json *groups = json_get(c->at, "multi_query_attention");
    bool new_falcon = json_is_true(json_get(c->at, "new_decoder_architecture"));
    bool one = json_is_true(multi) && !new_falcon && !json_get(c->at, "n_head_kv");
    if (strcmp(c->family->type, "gpt_bigcode") == 0)
        one = !multi || json_is_true(multi);
    if (one || (kind && strcmp(kind, "multiquery_attention") == 0)) {
        *ret = 1;
        return 1;
    }
    if ((json_is_bool(groups) && !json_is_true(groups)) ||
        (json_is_bool(multi) && !json_is_true(multi) && !new_falcon &&
         !json_get(c->at, "num_key_value_heads"))) {
        *ret = c->heads;
        return 1;
    }
    return 0;
}

static int read_kv_heads(struct shape_config *c, struct error *err)
{
    static const char *const keys[] = {
        "num_key_value_heads", "num_kv_heads",          "n_kv_heads",
        "n_head_kv",           "multi_query_group_num", "attn_config.kv_n_heads"};
    uint64_t value = 0;
    if (json_is_array(json_get(c->at, "num_key_value_heads")) ||
        json_is_array(json_get(c->at, "num_kv_heads")) || special_kv_heads(c, &c->kv_heads))
        return 0; /* layer by layer, later */
    int rc = config_number(c, c->at, keys, ARRAY_LEN(keys), 1, SHAPE_HEADS_MAX, &value, err);
    if (rc < 0)
        return -1;
    if (rc == 0 && json_get(c->at, keys[0])) /* null: as many as heads */
        value = c->heads;
    else if (rc == 0 && c->family->kv_heads) {
        value = c->family->kv_heads;
        config_assume(c, keys[0], value);
    }
    c->kv_heads = value ? (uint32_t)value : c->heads;
    return 0;
}

static int read_head_dim(struct shape_config *c, struct error *err)
{
    static const char *const keys[] = {"head_dim", "attention_head_dim", "kv_channels", "d_kv",
                                       "head_size"};
    static const char *const values[] = {"v_head_dim"};
    bool is_zamba = strncmp(c->family->type, "zamba", 5) == 0;
    uint64_t dim = 0, value_dim;
    char place[CONFIG_AT_MAX];
    int rc = config_number(c, c->at, keys, ARRAY_LEN(keys), 0, SHAPE_DIM_MAX, &dim, err);
    if (rc < 0)
        return -1;
    rc = dim > 0;
    if (rc == 0 && c->family->head_dim && !json_get(c->at, keys[0])) {
        dim = c->family->head_dim;
        config_assume(c, keys[0], dim);
    } else if (rc == 0 && c->shape->hidden && c->heads) {
        dim = c->shape->hidden * (is_zamba ? 2 : 1) / c->heads;
    }
    value_dim = dim;
    if (config_number(c, c->at, values, 1, 1, SHAPE_DIM_MAX, &value_dim, err) < 0)
        return -1;
    if (dim > SHAPE_DIM_MAX)
        return err_set(err, ERR_INVALID, "hidden_size%s makes heads of %" PRIu64 " elements",
                       config_at(&c->text, json_get(c->at, "hidden_size"), place), dim);
    c->key_dim = (uint32_t)dim;
    c->value_dim = (uint32_t)value_dim;
    return 0;
}

/* DeepSeek's latent attention: one row a token, which is key and value. */
static int read_latent(struct shape_config *c, struct error *err)
{
    static const char *const rank_keys[] = {"kv_lora_rank"};
    static const char *const rope_keys[] = {"qk_rope_head_dim"};
    static const char *const nope_keys[] = {"qk_nope_head_dim"};
    uint64_t rank = 0, rope = 0, nope = 0;
    if (config_number(c, c->at, rank_keys, 1, 1, SHAPE_DIM_MAX, &rank, err) < 0 ||
        config_number(c, c->at, rope_keys, 1, 0, SHAPE_DIM_MAX, &rope, err) < 0 ||
        config_number(c, c->at, nope_keys, 1, 0, SHAPE_DIM_MAX, &nope, err) < 0)
        return -1;
    if (!rank)
        return 0;
    if (strcmp(c->shape->family, "minicpm3") == 0) {
        c->key_dim = (uint32_t)(nope + rope);
        if (!json_get(c->at, "v_head_dim") && c->heads)
            c->value_dim = (uint32_t)(c->shape->hidden / c->heads);
        shape_note(c->shape, "latent attention that engines cache as whole heads");
        return 0;
    }
    c->latent = (uint32_t)(rank + rope);
    return 0;
}

/* ---- the rest ---- */

static void read_dtype(struct shape_config *c)
{
    static const char *const names[][2] = {
        {"bfloat16", "BF16"},         {"float16", "F16"},         {"half", "F16"},
        {"float32", "F32"},           {"float", "F32"},           {"float64", "F64"},
        {"float8_e4m3fn", "F8_E4M3"}, {"float8_e5m2", "F8_E5M2"},
    };
    const struct json *places[] = {c->at, c->root};
    const char *text = NULL;
    for (size_t i = 0; i < ARRAY_LEN(places) && !text; i++) {
        text = config_text(places[i], "dtype");
        text = text ? text : config_text(places[i], "torch_dtype");
    }
    if (!text)
        return;
    text = strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(text, names[i][0]) == 0)
            snprintf(c->shape->dtype, sizeof(c->shape->dtype), "%s", names[i][1]);
}

static void read_shown(struct shape_config *c)
{
    static const char *const context[] = {"max_position_embeddings",
                                          "n_positions",
                                          "n_ctx",
                                          "max_seq_len",
                                          "seq_length",
                                          "max_sequence_length",
                                          "max_target_positions",
                                          "max_context_length",
                                          "model_max_length"};
    static const char *const vocabulary[] = {"vocab_size", "padded_vocab_size"};
    static const char *const experts[] = {"num_local_experts", "n_routed_experts", "num_experts",
                                          "moe_num_experts", "ffn_config.moe_num_experts"};
    static const char *const used[] = {
        "num_experts_per_tok",  "moe_topk",     "moe_k", "num_experts_per_token",
        "ffn_config.moe_top_k", "top_k_experts"};
    uint64_t n = shown_number(c, experts, ARRAY_LEN(experts));
    uint64_t k = shown_number(c, used, ARRAY_LEN(used));
    c->shape->context = shown_number(c, context, ARRAY_LEN(context));
    if (!c->shape->context && c->family->context) {
        c->shape->context = c->family->context;
        config_assume(c, context[0], c->family->context);
    }
    c->shape->vocabulary = shown_number(c, vocabulary, ARRAY_LEN(vocabulary));
    c->shape->experts = n <= UINT32_MAX ? (uint32_t)n : 0;
    c->shape->experts_used = k <= n ? (uint32_t)k : 0;
    read_dtype(c);
}

static int read_sizes(struct shape_config *c, struct error *err)
{
    static const char *const hidden[] = {"hidden_size", "n_embd",  "d_model", "model_dim",
                                         "n_embed",     "emb_dim", "dim"};
    uint32_t layers, width;
    if (number_or_default(c, layer_keys, ARRAY_LEN(layer_keys), SHAPE_LAYERS_MAX, c->family->layers,
                          &layers, err) < 0 ||
        number_or_default(c, hidden, ARRAY_LEN(hidden), SHAPE_DIM_MAX, c->family->hidden, &width,
                          err) < 0 ||
        number_or_default(c, head_keys, ARRAY_LEN(head_keys), SHAPE_HEADS_MAX, c->family->heads,
                          &c->heads, err) < 0)
        return -1;
    if (strcmp(c->shape->family, "longcat_flash") == 0 && json_get(c->at, "num_layers")) {
        uint64_t pairs; /* two attentions in each layer */
        if (config_number_or(c, c->at, "num_layers", 0, SHAPE_LAYERS_MAX / 2, &pairs, err) < 0)
            return -1;
        layers = (uint32_t)pairs * 2;
    }
    c->shape->hidden = width;
    c->shape->heads = c->heads;
    return layers ? shape_layers_new(c->shape, layers, "num_hidden_layers", err) : 0;
}

/* T5's own names for the decoder come second to its encoder's, when there are both. */
static int read_decoder(struct shape_config *c, struct error *err)
{
    static const char *const layers[] = {"num_decoder_layers", "decoder_layers",
                                         "decoder_num_hidden_layers"};
    static const char *const heads[] = {"decoder_attention_heads", "num_decoder_attention_heads",
                                        "decoder_num_attention_heads"};
    uint64_t n = 0, h = 0, tokens = 0;
    bool both =
        json_is_true(json_get(c->root, "is_encoder_decoder")) || json_get(c->at, "decoder_layers");
    if (!both)
        return 0;
    int rc = config_number(c, c->at, layers, ARRAY_LEN(layers), 1, SHAPE_LAYERS_MAX, &n, err);
    if (rc < 0 || config_number(c, c->at, heads, ARRAY_LEN(heads), 1, SHAPE_HEADS_MAX, &h, err) < 0)
        return -1;
    if (rc && shape_layers_new(c->shape, n, "decoder_layers", err) < 0)
        return -1;
    if (h)
        c->heads = (uint32_t)h;
    c->shape->heads = c->heads;
    c->shape->cross_layers = c->shape->n_layers;
    if (config_number_or(c, c->at, "max_source_positions", 0, SHAPE_DIM_MAX, &tokens, err) < 0)
        return -1;
    c->shape->cross_tokens = tokens;
    return 0;
}

static int check_known(const struct shape_config *c, struct error *err)
{
    const struct model_shape *s = c->shape;
    if (!s->n_layers)
        return err_set(err, ERR_UNSUPPORTED,
                       "no number of layers is stated (num_hidden_layers, n_layer, n_layers, "
                       "num_layers), and model_type `%.64s` has none that is known",
                       s->family);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        enum layer_kind kind = s->layers[i].kind;
        bool plain = kind == LAYER_FULL || kind == LAYER_WINDOW || kind == LAYER_CHUNKED;
        if (plain && (!s->layers[i].kv_heads || !s->layers[i].key_dim))
            return err_set(err, ERR_UNSUPPORTED, "its attention's %s not stated (%s)",
                           c->heads ? "head dimension is" : "heads are",
                           c->heads ? "head_dim, or hidden_size" : "num_attention_heads, n_head");
    }
    return 0;
}

static int read_shape(struct shape_config *c, struct error *err)
{
    find_place(c);
    if (refuse(c, err) < 0 || read_sizes(c, err) < 0 || read_decoder(c, err) < 0 ||
        read_kv_heads(c, err) < 0 || read_head_dim(c, err) < 0 || read_latent(c, err) < 0 ||
        shape_config_kinds(c, err) < 0)
        return -1;
    if (c->shape->n_layers && shape_config_dims(c, err) < 0)
        return -1;
    read_shown(c);
    if (check_known(c, err) < 0)
        return -1;
    if (c->shape->cross_layers && !c->shape->cross_dim) {
        c->shape->cross_kv_heads = c->kv_heads;
        c->shape->cross_dim = c->key_dim;
    }
    if (c->assumed[0])
        shape_note(c->shape, "not stated, so as %s has it by default: %s", c->family->type,
                   c->assumed);
    shape_describe(c->shape);
    return 0;
}

int shape_from_config(const char *config_json, size_t len, struct model_shape *ret,
                      struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    *ret = (struct model_shape){0};
    if (config_parse(config_json, len, &root, err) < 0)
        return -1;
    struct shape_config c = {
        .text = {config_json, len, root},
        .root = root,
        .shape = ret,
    };
    return read_shape(&c, err);
}
