/* What each layer of a config.json does: attends to everything, to a window, keeps a state. */
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/shape.h"

/* Attention over the whole context, as this model has it. */
static enum layer_kind full(const struct shape_config *c)
{
    return c->latent ? LAYER_LATENT : LAYER_FULL;
}

static void set_all(struct shape_config *c, enum layer_kind kind)
{
    for (uint32_t i = 0; i < c->shape->n_layers; i++)
        c->shape->layers[i].kind = kind;
}

/* An attention layer that keeps a state as well; its size comes with the dimensions. */
static void set_hybrid(struct shape_config *c, uint32_t i)
{
    c->shape->layers[i].kind = full(c);
    c->shape->layers[i].state_elements = 1;
}

/* ---- windows ---- */

/* *ret: 0 = no window. */
static int read_window(struct shape_config *c, uint32_t *ret, struct error *err)
{
    static const char *const keys[] = {"sliding_window", "attention_window_size",
                                       "sliding_window_size"};
    uint64_t window = 0;
    int rc = config_number(c, c->at, keys, ARRAY_LEN(keys), 0, UINT32_MAX, &window, err);
    const struct json *used = json_get(c->at, "use_sliding_window");
    if (rc < 0)
        return -1;
    if (json_is_bool(used) && !json_is_true(used)) {
        window = 0;
    } else if (rc == 0 && !json_get(c->at, keys[0]) && c->family->window &&
               c->family->rule != WINDOW_CHUNKS &&
               (c->family->rule != WINDOW_UPPER || json_is_true(used))) {
        window = c->family->window;
        config_assume(c, keys[0], window);
    }
    *ret = (uint32_t)window;
    return 0;
}

static int read_chunk(struct shape_config *c, uint32_t *ret, struct error *err)
{
    static const char *const keys[] = {"attention_chunk_size"};
    uint64_t chunk = json_get(c->at, keys[0]) ? 0 : c->family->window; /* null: none */
    if (config_number(c, c->at, keys, 1, 0, UINT32_MAX, &chunk, err) < 0)
        return -1;
    *ret = (uint32_t)chunk;
    return 0;
}

/* A layer of which the configuration says that it is windowed or chunked. */
static void set_bounded(struct shape_config *c, uint32_t i, enum layer_kind kind, uint32_t window)
{
    struct layer_shape *l = &c->shape->layers[i];
    l->kind = window ? kind : full(c);
    l->window = window;
}

/* DeepSeek-V4's kinds; the rows get their dimension later. false: another kind. */
static bool set_compressed(struct shape_config *c, uint32_t i, const char *name, uint32_t window)
{
    static const char *const names[] = {"compressed_sparse_attention",
                                        "heavily_compressed_attention"};
    for (size_t k = 0; k < ARRAY_LEN(names); k++)
        if (strcmp(name, names[k]) == 0) {
            set_bounded(c, i, LAYER_WINDOW, window);
            c->shape->layers[i].row_every = c->ratios[k];
            return true;
        }
    return false;
}

static int read_ratios(struct shape_config *c, struct error *err)
{
    static const char *const sparse[] = {"compress_rates.compressed_sparse_attention",
                                         "compress_rate_csa"};
    static const char *const heavy[] = {"compress_rates.heavily_compressed_attention",
                                        "compress_rate_hca"};
    uint64_t a = 4, b = 128;
    if (config_number(c, c->at, sparse, ARRAY_LEN(sparse), 1, SHAPE_DIM_MAX, &a, err) < 0 ||
        config_number(c, c->at, heavy, ARRAY_LEN(heavy), 1, SHAPE_DIM_MAX, &b, err) < 0)
        return -1;
    c->ratios[0] = (uint32_t)a;
    c->ratios[1] = (uint32_t)b;
    return 0;
}

static int layers_new(const struct shape_config *c, uint64_t n, const char *key, struct error *err)
{
    char what[96], place[CONFIG_AT_MAX];
    snprintf(what, sizeof(what), "%s%s", key, config_at(&c->text, json_get(c->at, key), place));
    return shape_layers_new(c->shape, n, what, err);
}

/* compress_ratios: one number a layer, 0 or 1 a window alone; without it, as the class has it. */
static int read_compressed(struct shape_config *c, uint32_t window, struct error *err)
{
    const struct json *list = json_get(c->at, "compress_ratios");
    const struct json *j = json_is_array(list) ? json_first(list) : NULL;
    if (strcmp(c->family->type, "deepseek_v4") != 0) {
        if (j)
            shape_note(c->shape, "compress_ratios is not known of this model_type: all layers are "
                                 "counted without compression");
        return 0;
    }
    if (j && json_length(list) < c->shape->n_layers)
        return config_too_few(c, "compress_ratios", list, err);
    bool listed = j != NULL;
    char place[CONFIG_AT_MAX];
    for (uint32_t i = 0; i < c->shape->n_layers; i++, j = j ? json_next(j) : NULL) {
        uint64_t ratio = i < 2 || i % 2 == 0 ? c->ratios[1] : c->ratios[0];
        if (listed && (!json_u64(j, &ratio) || ratio > SHAPE_DIM_MAX))
            return err_set(err, ERR_INVALID, "compress_ratios%s has what is no ratio",
                           config_at(&c->text, j, place));
        set_bounded(c, i, LAYER_WINDOW, window);
        c->shape->layers[i].row_every = ratio == 1 ? 0 : (uint32_t)ratio;
    }
    return 1;
}

/* ---- lists by name ---- */

static void kind_of_name(struct shape_config *c, uint32_t i, const char *name, uint32_t window,
                         uint32_t chunk)
{
    static const char *const states[] = {"linear_attention", "mamba", "mamba2", "conv",
                                         "recurrent",        "kda"};
    static const char *const none[] = {"moe", "mlp", "dense", "sparse"};
    struct layer_shape *l = &c->shape->layers[i];
    l->kind = full(c);
    for (size_t k = 0; k < ARRAY_LEN(states); k++)
        if (strcmp(name, states[k]) == 0)
            l->kind = LAYER_RECURRENT;
    for (size_t k = 0; k < ARRAY_LEN(none); k++)
        if (strcmp(name, none[k]) == 0)
            l->kind = LAYER_NONE;
    if (set_compressed(c, i, name, window))
        return;
    if (strcmp(name, "sliding_attention") == 0)
        set_bounded(c, i, LAYER_WINDOW, window);
    else if (strcmp(name, "chunked_attention") == 0)
        set_bounded(c, i, LAYER_CHUNKED, chunk ? chunk : window);
    else if (strcmp(name, "hybrid") == 0)
        set_hybrid(c, i);
    else if (strcmp(name, "hybrid_sliding") == 0) {
        set_hybrid(c, i);
        set_bounded(c, i, LAYER_WINDOW, window);
    } else if (l->kind == full(c) && !strstr(name, "full_attention") &&
               strcmp(name, "attention") != 0 && !strstr(name, "sparse_attention") &&
               strcmp(name, "indexed_attention") != 0 && !strstr(c->shape->notes, "kind of layer"))
        shape_note(c->shape, "`%.40s` is no known kind of layer: counted as full attention", name);
}

/* layer_types, under its two names. 1: it is there. */
static int read_layer_types(struct shape_config *c, uint32_t window, uint32_t chunk,
                            struct error *err)
{
    const char *key = "layer_types";
    const struct json *list = json_get(c->at, key);
    char place[CONFIG_AT_MAX];
    uint32_t i = 0;
    if (!json_is_array(list)) {
        key = "layers_block_type";
        list = json_get(c->at, key);
    }
    if (!json_is_array(list))
        return 0;
    size_t n = json_length(list);
    bool counts = strcmp(c->family->type, "nemotron_h") == 0 || !c->shape->n_layers;
    if (counts && layers_new(c, n, key, err) < 0)
        return -1;
    if (n < c->shape->n_layers)
        return config_too_few(c, key, list, err);
    for (const struct json *j = json_first(list); i < c->shape->n_layers; j = json_next(j), i++) {
        if (!json_str(j))
            return err_set(err, ERR_INVALID, "%s%s has what is no text", key,
                           config_at(&c->text, j, place));
        kind_of_name(c, i, json_str(j), window, chunk);
    }
    return 1;
}

/* Nemotron-H: "M-M-M*-": M a state, * attention, - and E feed-forward layers. */
static int read_pattern_text(struct shape_config *c, struct error *err)
{
    static const char key[] = "hybrid_override_pattern";
    const char *text = config_text(c->at, key);
    char place[CONFIG_AT_MAX];
    if (!text)
        return 0;
    if (layers_new(c, strlen(text), key, err) < 0)
        return -1;
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        if (!strchr("M*-E", text[i]))
            return err_set(err, ERR_INVALID, "%s%s has `%c`, which stands for nothing", key,
                           config_at(&c->text, json_get(c->at, key), place),
                           text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
        c->shape->layers[i].kind = text[i] == 'M'   ? LAYER_RECURRENT
                                   : text[i] == '*' ? full(c)
                                                    : LAYER_NONE;
    }
    return 1;
}

/* RecurrentGemma: a short list that is repeated; its attention is always windowed. */
static int read_block_types(struct shape_config *c, uint32_t window)
{
    const struct json *list = json_get(c->at, "block_types");
    bool is_family = strcmp(c->family->type, "recurrent_gemma") == 0;
    if (!is_family)
        return 0;
    const struct json *j = json_is_array(list) ? json_first(list) : NULL;
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        const char *name = j ? json_str(j) : i % 3 == 2 ? "attention" : "recurrent";
        if (name && strcmp(name, "attention") == 0)
            set_bounded(c, i, LAYER_WINDOW, window);
        else
            c->shape->layers[i].kind = LAYER_RECURRENT;
        if (j)
            j = json_next(j) ? json_next(j) : json_first(list);
    }
    return 1;
}

/* ---- lists of numbers ---- */

/* One number a layer: those equal to `marks` get the one kind, the others the other; window: of
 * whichever is bounded. 1: it is there. */
static int read_flags(struct shape_config *c, const char *key, uint64_t marks, enum layer_kind kind,
                      enum layer_kind other, uint32_t window, struct error *err)
{
    const struct json *list = json_get(c->at, key);
    if (!json_is_array(list) || !json_first(list))
        return 0;
    if (json_length(list) < c->shape->n_layers)
        return config_too_few(c, key, list, err);
    char place[CONFIG_AT_MAX];
    const struct json *j = json_first(list);
    for (uint32_t i = 0; i < c->shape->n_layers; j = json_next(j), i++) {
        uint64_t value;
        if (!json_u64(j, &value))
            return err_set(err, ERR_INVALID, "%s%s has what is no number", key,
                           config_at(&c->text, j, place));
        struct layer_shape *l = &c->shape->layers[i];
        l->kind = value == marks ? kind : other;
        l->window = l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED ? window : 0;
    }
    return 1;
}

/* Numbers of layers, counted from `base`, that get the kind. */
static int read_indices(struct shape_config *c, const struct json *list, const char *key,
                        uint64_t base, bool hybrid, struct error *err)
{
    char place[CONFIG_AT_MAX];
    set_all(c, LAYER_RECURRENT);
    for (const struct json *j = json_first(list); j; j = json_next(j)) {
        uint64_t at;
        if (!json_u64(j, &at) || at < base || at - base >= c->shape->n_layers)
            return err_set(err, ERR_INVALID, "%s%s names a layer that is not there", key,
                           config_at(&c->text, j, place));
        if (hybrid)
            set_hybrid(c, (uint32_t)(at - base));
        else
            c->shape->layers[at - base].kind = full(c);
    }
    return 1;
}

static int read_lists(struct shape_config *c, uint32_t window, struct error *err)
{
    static const struct {
        const char *key;
        uint64_t base;
        bool hybrid;
    } lists[] = {{"attn_layer_indices", 0, false},
                 {"full_attn_idxs", 0, false},
                 {"hybrid_layer_ids", 0, true}};
    const struct json *kda = json_get(json_get(c->at, "linear_attn_config"), "full_attn_layers");
    if (json_is_array(kda))
        return read_indices(c, kda, "linear_attn_config.full_attn_layers", 1, false, err);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const struct json *list = json_get(c->at, lists[i].key);
        if (json_is_array(list))
            return read_indices(c, list, lists[i].key, lists[i].base, lists[i].hybrid, err);
    }
    int rc = read_flags(c, "attn_type_list", 0, LAYER_RECURRENT, full(c), 0, err);
    if (rc == 0 && window)
        rc = read_flags(c, "hybrid_layer_pattern", 1, LAYER_WINDOW, full(c), window, err);
    if (rc == 0 && window)
        rc = read_flags(c, "sliding_window_layout", 1, LAYER_WINDOW, full(c), window, err);
    return rc;
}

/* ---- periods ---- */

/* Qwen3-Next and its like, and Ling's groups: every n-th layer attends. 1: it is so. */
static int read_interval(struct shape_config *c, struct error *err)
{
    static const char *const keys[] = {"full_attention_interval", "layer_group_size"};
    static const char *const families[] = {"qwen3_next", "qwen3_5", "qwen3_5_moe"};
    uint64_t n = 0;
    if (config_number(c, c->at, keys, ARRAY_LEN(keys), 1, SHAPE_LAYERS_MAX, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(families) && !n; i++)
        n = strcmp(c->family->type, families[i]) == 0 ? 4 : 0;
    for (uint32_t i = 0; n && i < c->shape->n_layers; i++)
        c->shape->layers[i].kind = (i + 1) % n ? LAYER_RECURRENT : full(c);
    if (!n && strcmp(c->family->type, "minimax") == 0) {
        for (uint32_t i = 0; i < c->shape->n_layers; i++)
            c->shape->layers[i].kind = i % 2 ? LAYER_RECURRENT : full(c);
        return 1;
    }
    return n > 0;
}

/* Jamba and Zamba. */
static int read_offset(struct shape_config *c, struct error *err)
{
    bool jamba = strcmp(c->family->type, "jamba") == 0,
         zamba = strcmp(c->family->type, "zamba") == 0;
    uint64_t period, offset;
    char place[CONFIG_AT_MAX];
    if (!jamba && !zamba && !json_get(c->at, "attn_layer_period"))
        return 0;
    if (config_number_or(c, c->at, "attn_layer_period", zamba ? 6 : 8, SHAPE_LAYERS_MAX, &period,
                         err) < 0 ||
        config_number_or(c, c->at, "attn_layer_offset", 4, SHAPE_LAYERS_MAX, &offset, err) < 0)
        return -1;
    if (!period || offset >= period)
        return err_set(err, ERR_INVALID,
                       "attn_layer_offset%s is %" PRIu64 ", not below attn_layer_period %" PRIu64,
                       config_at(&c->text, json_get(c->at, "attn_layer_offset"), place), offset,
                       period);
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        /* Zamba's first three are a state, a state, both; then the period begins. */
        bool attends = zamba ? (i < 3 ? i == 2 : (i - 3) % period == offset) : i % period == offset;
        c->shape->layers[i].kind = LAYER_RECURRENT;
        if (attends && zamba)
            set_hybrid(c, i);
        else if (attends)
            c->shape->layers[i].kind = full(c);
    }
    return 1;
}

/* Zamba 2 without a list: the layout of its own default. */
static int read_zamba2(struct shape_config *c)
{
    if (strcmp(c->family->type, "zamba2") != 0)
        return 0;
    for (uint32_t i = 0; i < c->shape->n_layers; i++) {
        c->shape->layers[i].kind = LAYER_RECURRENT;
        if ((i && i % 6 == 0 && i < 43) || i == 47 || i == 51)
            set_hybrid(c, i);
    }
    shape_note(c->shape, "hybrid_layer_ids is not stated: the default of zamba2");
    return 1;
}

static int read_all_recurrent(struct shape_config *c)
{
    static const char *const families[] = {
        "mamba", "mamba2", "falcon_mamba",     "rwkv", "rwkv5", "rwkv6",
        "rwkv7", "xlstm",  "granitemoehybrid", "bamba"};
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strcmp(c->shape->family, families[i]) == 0) {
            set_all(c, LAYER_RECURRENT);
            return 1;
        }
    if (strcmp(c->shape->family, "falcon_h1") != 0)
        return 0;
    for (uint32_t i = 0; i < c->shape->n_layers; i++)
        set_hybrid(c, i);
    return 1;
}

/* ---- windows by rule ---- */

/* A pattern of the configuration's own: a period, or letters, L a window and G everything. */
static int read_own_pattern(struct shape_config *c, uint64_t *period, const char **letters,
                            struct error *err)
{
    static const char *const keys[] = {"sliding_window_pattern", "_sliding_window_pattern",
                                       "global_attn_every_n_layers"};
    *letters = config_text(c->at, keys[0]);
    if (*letters && (*letters)[0])
        return 1;
    *letters = NULL;
    return config_number(c, c->at, keys, ARRAY_LEN(keys), 0, SHAPE_LAYERS_MAX, period, err);
}

static bool is_windowed(const struct shape_config *c, uint32_t i, uint64_t period,
                        const char *letters, uint64_t upper)
{
    uint32_t last = c->shape->n_layers - 1;
    if (letters)
        return letters[i % strlen(letters)] == 'L' && i != last;
    switch (c->family->rule) {
    case WINDOW_ALL:
        return true;
    case WINDOW_FIRST_FULL:
        return period == 0 || i % period != 0;
    case WINDOW_UPPER:
        return i >= upper;
    case WINDOW_LAST_FULL:
    case WINDOW_UNKNOWN:
        /* Gemma 4 lets the last layer see everything, and MiMo the first. */
        if ((strcmp(c->family->type, "gemma4") == 0 && i == last) ||
            (strcmp(c->family->type, "mimo_v2_flash") == 0 && i == 0))
            return false;
        return period == 0 || (i + 1) % period != 0;
    case WINDOW_NONE:
    case WINDOW_CHUNKS:
        break;
    }
    return false;
}

static int apply_windows(struct shape_config *c, uint32_t window, struct error *err)
{
    uint64_t period = c->family->period, upper;
    const char *letters;
    const struct json *used = json_get(c->at, "use_sliding_window");
    int own = read_own_pattern(c, &period, &letters, err);
    if (own < 0 ||
        config_number_or(c, c->at, "max_window_layers", period, SHAPE_LAYERS_MAX, &upper, err) < 0)
        return -1;
    if (!window || (c->family->rule == WINDOW_UPPER && !json_is_true(used)))
        return 0;
    if (c->family->rule == WINDOW_UNKNOWN && !own) {
        shape_note(c->shape,
                   "sliding_window %" PRIu32
                   " is stated, but not for which layers: all are counted "
                   "over the whole context",
                   window);
        return 0;
    }
    for (uint32_t i = 0; i < c->shape->n_layers; i++)
        if (is_windowed(c, i, period, letters, upper))
            set_bounded(c, i, LAYER_WINDOW, window);
    return 0;
}

/* Llama 4: layers with rotary embeddings attend within chunks. */
static int apply_chunks(struct shape_config *c, uint32_t chunk, struct error *err)
{
    uint64_t interval;
    if (!chunk)
        return 0;
    int rc = read_flags(c, "no_rope_layers", 0, full(c), LAYER_CHUNKED, chunk, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (config_number_or(c, c->at, "no_rope_layer_interval", c->family->period, SHAPE_LAYERS_MAX,
                         &interval, err) < 0)
        return -1;
    for (uint32_t i = 0; interval && i < c->shape->n_layers; i++)
        if ((i + 1) % interval)
            set_bounded(c, i, LAYER_CHUNKED, chunk);
    return 0;
}

int shape_config_kinds(struct shape_config *c, struct error *err)
{
    uint32_t window, chunk = 0;
    int rc = read_window(c, &window, err);
    if (rc == 0)
        rc = read_chunk(c, &chunk, err);
    if (rc == 0)
        rc = read_ratios(c, err);
    if (rc == 0)
        rc = read_pattern_text(c, err);
    if (rc == 0)
        rc = read_layer_types(c, window, chunk, err);
    if (rc || !c->shape->n_layers)
        return rc < 0 ? -1 : 0;
    set_all(c, full(c));
    rc = read_compressed(c, window, err);
    if (rc == 0)
        rc = read_block_types(c, window);
    if (rc == 0)
        rc = read_lists(c, window, err);
    if (rc == 0)
        rc = read_interval(c, err);
    if (rc == 0)
        rc = read_offset(c, err);
    if (rc == 0)
        rc = read_zamba2(c);
    if (rc == 0)
        rc = read_all_recurrent(c);
    if (rc)
        return rc < 0 ? -1 : 0;
    return c->family->rule == WINDOW_CHUNKS ? apply_chunks(c, chunk, err)
                                            : apply_windows(c, window, err);
}
