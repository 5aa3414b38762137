/* What the readers of config.json and of GGUF metadata share. Internal to model/. */
#ifndef WB_MODEL_SHAPE_H
#define WB_MODEL_SHAPE_H

#include "model/config_json.h"
#include "model/kv_cache.h"

#define SHAPE_HEADS_MAX (1u << 20)
#define SHAPE_DIM_MAX (1u << 24)

/* Allocates n zeroed layers; what: the key that says how many, for the error. */
int shape_layers_new(struct model_shape *s, uint64_t n, const char *what, struct error *err);
/* Appends to s->notes, "; " between; what does not fit is cut. */
void shape_note(struct model_shape *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes s->rule from the layers. */
void shape_describe(struct model_shape *s);

/* Sizes of recurrent layers, in elements a sequence. */
struct state_space {
    uint64_t conv_kernel, inner, state, groups;
};
/* Mamba, Mamba 2 and gated delta nets: the last inputs of the convolution, and the state. */
int state_space_elements(const struct state_space *p, uint64_t *ret, struct error *err);
/* a x b x c + d x e, with overflow as ERR_INVALID. */
int shape_products(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t *ret,
                   struct error *err);

/* DeepSeek-V4's layers, once the head dimension is known: a window whose keys are the values, and
 * rows for every `ratio` tokens (0: none; a sparse layer's index has rows of its own), with the
 * state of the compressor. */
void shape_compress(struct layer_shape *l, uint32_t ratio, bool sparse, uint32_t index_dim);

/* ---- what a model_type stands for ---- */

/* Which layers look at a window only, where the configuration does not list it layer by layer. */
enum window_rule {
    WINDOW_NONE,       /* none of them, whatever sliding_window says */
    WINDOW_ALL,        /* all, when there is a sliding_window */
    WINDOW_LAST_FULL,  /* all but the last of each period */
    WINDOW_FIRST_FULL, /* all but the first of each period */
    WINDOW_UPPER,      /* with use_sliding_window, those from max_window_layers on */
    WINDOW_CHUNKS,     /* chunks, where no_rope_layers is not 0 */
    WINDOW_UNKNOWN,    /* a model_type that we do not know */
};

/* Numbers are the class defaults of transformers, which leave out of a nested configuration what
 * is as the default; 0: none, or derived from the others. */
struct shape_family {
    const char *type;
    uint32_t layers, heads, kv_heads, hidden, head_dim;
    enum window_rule rule;
    uint32_t period, window, context;
};
/* By model_type, without "_text" at its end. Never NULL: an unknown type gets a row of zeros and
 * WINDOW_UNKNOWN. */
const struct shape_family *shape_family_of(const char *model_type);
/* Models that read their input once and keep nothing. */
bool shape_is_encoder(const char *model_type);

/* ---- config.json ---- */

struct shape_config {
    struct config_source text;
    const struct json *root, *at; /* at: the object of the language model */
    const struct shape_family *family;
    struct model_shape *shape;
    uint32_t heads, kv_heads, key_dim, value_dim;
    uint32_t latent;    /* elements of a latent row; 0 = no latent attention */
    char assumed[256];  /* "key value, ..." that the configuration does not state */
    uint32_t ratios[2]; /* tokens of a compressed row: sparse layers, heavily compressed ones */
};

/* The first of the keys (n of them; "a.b" is a member of a member) that has a number. 1, 0: none,
 * or null; -1: ERR_INVALID, not an integer of min .. max. */
int config_number(const struct shape_config *c, const struct json *at, const char *const *keys,
                  size_t n, uint64_t min, uint64_t max, uint64_t *ret, struct error *err);
/* One key, and what to take where it is absent. */
int config_number_or(const struct shape_config *c, const struct json *at, const char *key,
                     uint64_t otherwise, uint64_t max, uint64_t *ret, struct error *err);
/* ERR_INVALID: a list that should have an entry for each layer. */
int config_too_few(const struct shape_config *c, const char *key, const struct json *list,
                   struct error *err);
const char *config_text(const struct json *at, const char *key);

/* Notes that a key is absent, and that the family's default stands for it. */
void config_assume(struct shape_config *c, const char *key, uint64_t value);

/* Sets kind and window of each layer. */
int shape_config_kinds(struct shape_config *c, struct error *err);
/* Sets heads, dimensions and states by the kinds. */
int shape_config_dims(struct shape_config *c, struct error *err);
/* Elements of the state of one recurrent layer, by what the configuration has keys for. */
int shape_config_state(struct shape_config *c, uint64_t *ret, struct error *err);

#endif
