/* What serving a model costs in memory besides its weights: the shape of a model, from its
 * config.json or its GGUF, and from it the bytes of the KV cache and of recurrent state. */
#ifndef WB_MODEL_KV_CACHE_H
#define WB_MODEL_KV_CACHE_H

#include "model/weights.h"

#define SHAPE_LAYERS_MAX 4096u

enum layer_kind {
    LAYER_FULL,      /* attention over the whole context */
    LAYER_WINDOW,    /* over the last `window` tokens */
    LAYER_CHUNKED,   /* over the current chunk of `window` tokens */
    LAYER_LATENT,    /* multi-head latent attention: one compressed row a token */
    LAYER_RECURRENT, /* state-space, linear attention, convolution: a state a sequence */
    LAYER_SHARED,    /* uses another layer's cache */
    LAYER_NONE,      /* neither: a feed-forward layer, an encoder's layer */
};

struct layer_shape {
    enum layer_kind kind;
    uint32_t kv_heads, key_dim, value_dim; /* LATENT: 1, kv_lora_rank + rope dim, 0 */
    uint32_t window;
    uint32_t index_dim; /* a further key a token, of a sparse attention's indexer; 0 = none */
    /* Compressed rows of the whole context beside a window: row_dim elements for every row_every
     * tokens (DeepSeek-V4); 0 = none. */
    uint32_t row_dim, row_every;
    uint64_t state_elements; /* RECURRENT, and layers that attend and keep a state as well: of one
                                sequence, kept in 32 bit floats */
};

struct model_shape {
    char family[64]; /* model_type, or general.architecture */
    char source[48]; /* "config.json", "config.json (text_config)", "GGUF" */
    uint32_t n_layers;
    struct layer_shape *layers; /* owned; n_layers of them */
    uint64_t hidden, heads, vocabulary, context;
    uint32_t experts, experts_used;
    uint32_t cross_layers, cross_kv_heads, cross_dim; /* encoder-decoder: for each encoder token */
    uint64_t cross_tokens; /* the encoder always gives as many (Whisper, an image); 0 = it varies */
    char dtype[16];        /* "BF16"; "" unknown */
    char rule[200];        /* which rule was applied, for people */
    char notes[400];       /* what was assumed or is not known; "" = nothing */
};

/* ERR_INVALID: not JSON, or a number that can not be (0 heads, more than SHAPE_LAYERS_MAX layers);
 * the text names the key and the byte of its value. ERR_UNSUPPORTED: a model that keeps no cache
 * (an encoder, a diffusion model, an adapter) or keys that are not there: which. shape_done() in
 * any case. */
int shape_from_config(const char *config_json, size_t len, struct model_shape *ret,
                      struct error *err);
/* From a GGUF's metadata: feed each key to shape_keys_add() as a weights_visitor's metadata, then
 * ask. */
struct shape_keys;
int shape_keys_new(struct shape_keys **ret, struct error *err);
void shape_keys_free(struct shape_keys *k);
int shape_keys_add(void *keys, const struct metadata_info *m, struct error *err);
int shape_from_gguf(const struct shape_keys *k, struct model_shape *ret, struct error *err);
void shape_done(struct model_shape *s);

/* "f32", "f16", "bf16", "fp8", and the ggml types that llama.cpp takes ("q8_0", "q4_0", "q4_1",
 * "q5_0", "q5_1", "iq4_nl"), in any case. ERR_INVALID names the choices. */
struct kv_type {
    char name[16];
    uint32_t block, bytes;
};
int kv_type_parse(const char *text, struct kv_type *ret, struct error *err);

struct kv_request {
    struct kv_type key, value;
    uint64_t context; /* tokens of each sequence */
    uint64_t sequences;
    uint64_t encoder_tokens; /* encoder-decoder; 0: the model's cross_tokens, else the context */
    /* 1 = one device (0 too). KV heads are split, and copied where there are fewer; states are
     * split; latent and compressed rows and index keys are on every device. */
    uint32_t tensor_parallel;
};

struct kv_cost {
    uint64_t full_per_token;   /* bytes a token of each sequence costs as long as there is context;
                                  rows for several tokens are shared out, rounded up */
    uint64_t window_per_token; /* only up to the window (or the chunk) */
    uint64_t state_per_sequence;
    uint64_t cross_per_token; /* encoder token */
    uint64_t total;           /* bytes of the request, on one device */
};

/* ERR_INVALID: heads x dimension is no multiple of the type's block, or a sum overflows. The parts
 * are bytes on one device as well. */
int kv_cost(const struct model_shape *s, const struct kv_request *r, struct kv_cost *ret,
            struct error *err);

/* What fits in `bytes` for the cache on each device: *ret_tokens, the longest context of
 * r->sequences sequences (0 = none; UINT64_MAX = any number does), and *ret_sequences, the
 * most sequences of r->context tokens. */
int kv_fit(const struct model_shape *s, const struct kv_request *r, uint64_t bytes,
           uint64_t *ret_tokens, uint64_t *ret_sequences, struct error *err);

/* Bytes of `parameters` weights as a type (ggml's and safetensors' names, any case), rounded up to
 * a whole block. ERR_INVALID: no such type, or more than 2^64 bytes. */
int weights_as(uint64_t parameters, const char *type, uint64_t *ret, struct error *err);

#endif
