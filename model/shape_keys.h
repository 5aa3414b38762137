/* The metadata of a GGUF that a shape is made of. Internal to model/. */
#ifndef WB_MODEL_SHAPE_KEYS_H
#define WB_MODEL_SHAPE_KEYS_H

#include "model/shape.h"

/* Of "<architecture>.<name>"; the names are in shape_keys.c, in this order. */
enum shape_key {
    KEY_CONTEXT,
    KEY_EMBEDDING,
    KEY_BLOCKS,
    KEY_DECODER_BLOCKS,
    KEY_NEXTN,
    KEY_VOCABULARY,
    KEY_EXPERTS,
    KEY_EXPERTS_USED,
    KEY_FEED_FORWARD,
    KEY_FULL_INTERVAL,
    KEY_HEADS,
    KEY_KV_HEADS,
    KEY_KEY_LENGTH,
    KEY_VALUE_LENGTH,
    KEY_KEY_LENGTH_MLA,
    KEY_KEY_LENGTH_SWA,
    KEY_VALUE_LENGTH_SWA,
    KEY_KV_LORA_RANK,
    KEY_WINDOW,
    KEY_WINDOW_PATTERN,
    KEY_SHARED,
    KEY_RECURRENT,
    KEY_INDEX_LENGTH,
    KEY_INDEX_TYPES,
    KEY_COMPRESS_RATIOS,
    KEY_SSM_CONV,
    KEY_SSM_INNER,
    KEY_SSM_STATE,
    KEY_SSM_GROUPS,
    KEY_KDA_HEAD,
    KEY_WKV_HEAD,
    KEY_TOKEN_SHIFTS,
    KEY_SHORTCONV,
    KEY_COUNT,
};

const char *shape_keys_architecture(const struct shape_keys *k);
const char *shape_keys_type(const struct shape_keys *k); /* general.type, "" */
uint64_t shape_keys_tokens(const struct shape_keys *k);  /* length of the vocabulary, 0 */

/* For an error: "llama.block_count at byte 120", without the byte where there is none. */
#define SHAPE_KEY_NAME_MAX 160
const char *shape_keys_name(const struct shape_keys *k, enum shape_key key,
                            char buf[static SHAPE_KEY_NAME_MAX]);

/* What the file has for the key of its own architecture. */
bool shape_keys_has(const struct shape_keys *k, enum shape_key key);
bool shape_keys_is_array(const struct shape_keys *k, enum shape_key key);
/* The number, or element i of an array; otherwise where there is none. */
uint64_t shape_keys_at(const struct shape_keys *k, enum shape_key key, uint32_t i,
                       uint64_t otherwise);
/* As long as the layers, or not there at all. ERR_INVALID otherwise. */
int shape_keys_check_length(const struct shape_keys *k, enum shape_key key, uint32_t n,
                            struct error *err);

#endif
