#include "model/shape_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* A file has a few dozen at most. The architecture may come after its keys, so that those of all
 * are kept. */
#define VALUES_MAX 256

struct value {
    uint64_t at; /* byte of the file at which the key stands */
    char prefix[64];
    enum shape_key key;
    bool is_array;
    uint64_t number;
    uint64_t *elements; /* owned */
    uint32_t n_elements;
};

struct shape_keys {
    char architecture[64], type[32];
    uint64_t tokens;
    struct value values[VALUES_MAX];
    size_t n_values;
};

static const char *const names[KEY_COUNT] = {
    [KEY_CONTEXT] = "context_length",
    [KEY_EMBEDDING] = "embedding_length",
    [KEY_BLOCKS] = "block_count",
    [KEY_DECODER_BLOCKS] = "decoder_block_count",
    [KEY_NEXTN] = "nextn_predict_layers",
    [KEY_VOCABULARY] = "vocab_size",
    [KEY_EXPERTS] = "expert_count",
    [KEY_EXPERTS_USED] = "expert_used_count",
    [KEY_FEED_FORWARD] = "feed_forward_length",
    [KEY_FULL_INTERVAL] = "full_attention_interval",
    [KEY_HEADS] = "attention.head_count",
    [KEY_KV_HEADS] = "attention.head_count_kv",
    [KEY_KEY_LENGTH] = "attention.key_length",
    [KEY_VALUE_LENGTH] = "attention.value_length",
    [KEY_KEY_LENGTH_MLA] = "attention.key_length_mla",
    [KEY_KEY_LENGTH_SWA] = "attention.key_length_swa",
    [KEY_VALUE_LENGTH_SWA] = "attention.value_length_swa",
    [KEY_KV_LORA_RANK] = "attention.kv_lora_rank",
    [KEY_WINDOW] = "attention.sliding_window",
    [KEY_WINDOW_PATTERN] = "attention.sliding_window_pattern",
    [KEY_SHARED] = "attention.shared_kv_layers",
    [KEY_RECURRENT] = "attention.recurrent_layers",
    [KEY_INDEX_LENGTH] = "attention.indexer.key_length",
    [KEY_INDEX_TYPES] = "attention.indexer.types",
    [KEY_COMPRESS_RATIOS] = "attention.compress_ratios",
    [KEY_SSM_CONV] = "ssm.conv_kernel",
    [KEY_SSM_INNER] = "ssm.inner_size",
    [KEY_SSM_STATE] = "ssm.state_size",
    [KEY_SSM_GROUPS] = "ssm.group_count",
    [KEY_KDA_HEAD] = "kda.head_dim",
    [KEY_WKV_HEAD] = "wkv.head_size",
    [KEY_TOKEN_SHIFTS] = "token_shift_count",
    [KEY_SHORTCONV] = "shortconv.l_cache",
};

int shape_keys_new(struct shape_keys **ret, struct error *err)
{
    struct shape_keys *k = calloc(1, sizeof(*k));
    if (!k)
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret = k;
    return 0;
}

void shape_keys_free(struct shape_keys *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n_values; i++)
        free(k->values[i].elements);
    free(k);
}

/* ---- what comes in ---- */

static bool is_key(const struct metadata_info *m, const char *key)
{
    return m->key_len == strlen(key) && memcmp(m->key, key, m->key_len) == 0;
}

static void copy_text(char *ret, size_t size, const struct metadata_info *m)
{
    if (m->type == METADATA_STRING && m->string_len < size) {
        memcpy(ret, m->string, m->string_len);
        ret[m->string_len] = '\0';
    }
}

/* A number that a shape can be made of; false: text, or a fraction. */
static int take_number(const struct metadata_info *m, const char *key, uint64_t *ret,
                       struct error *err)
{
    switch (m->type) {
    case METADATA_BOOL:
    case METADATA_UNSIGNED:
        *ret = m->number;
        return 0;
    case METADATA_SIGNED:
        if ((int64_t)m->number >= 0) {
            *ret = m->number;
            return 0;
        }
        break;
    case METADATA_FLOAT:
        if (m->real >= 0 && m->real <= (double)(UINT64_C(1) << 53) &&
            m->real == (double)(uint64_t)m->real) {
            *ret = (uint64_t)m->real;
            return 0;
        }
        break;
    case METADATA_STRING:
    case METADATA_ARRAY:
        break;
    }
    return err_set(err, ERR_INVALID, "%s is no whole number", key);
}

static int take_array(const struct metadata_info *m, struct value *v, struct error *err)
{
    if (m->count > SHAPE_LAYERS_MAX)
        return err_set(err, ERR_INVALID, "%s has %" PRIu64 " elements, and %u layers can be",
                       names[v->key], m->count, SHAPE_LAYERS_MAX);
    v->is_array = true;
    v->elements = calloc(m->count ? m->count : 1, sizeof(*v->elements));
    if (!v->elements)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (uint64_t i = 0; i < m->count; i++) {
        struct metadata_info element = {0};
        int rc = metadata_next(m->cursor, &element, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            break;
        if (take_number(&element, names[v->key], &v->elements[i], err) < 0)
            return -1;
        v->n_elements++;
    }
    return 0;
}

/* The key behind "<architecture>.", and where the dot is. */
static enum shape_key find_key(const struct metadata_info *m, size_t *ret_dot)
{
    const char *dot = memchr(m->key, '.', m->key_len);
    if (!dot || (size_t)(dot - m->key) >= sizeof(((struct value *)0)->prefix))
        return KEY_COUNT;
    size_t at = (size_t)(dot - m->key) + 1, len = m->key_len - at;
    *ret_dot = at - 1;
    for (enum shape_key key = 0; key < KEY_COUNT; key++)
        if (strlen(names[key]) == len && memcmp(m->key + at, names[key], len) == 0)
            return key;
    return KEY_COUNT;
}

int shape_keys_add(void *keys, const struct metadata_info *m, struct error *err)
{
    struct shape_keys *k = keys;
    size_t dot;
    if (is_key(m, "general.architecture"))
        copy_text(k->architecture, sizeof(k->architecture), m);
    else if (is_key(m, "general.type"))
        copy_text(k->type, sizeof(k->type), m);
    else if (is_key(m, "tokenizer.ggml.tokens") && m->type == METADATA_ARRAY)
        k->tokens = m->count;
    enum shape_key key = find_key(m, &dot);
    if (key == KEY_COUNT)
        return 0;
    if (k->n_values == VALUES_MAX)
        return err_set(err, ERR_INVALID, "over %d keys that describe a model's shape", VALUES_MAX);
    struct value v = {.key = key, .at = m->at};
    memcpy(v.prefix, m->key, dot);
    if (m->type == METADATA_ARRAY ? take_array(m, &v, err) < 0
                                  : take_number(m, names[key], &v.number, err) < 0) {
        free(v.elements);
        return err_wrap(err, "%.64s", v.prefix);
    }
    k->values[k->n_values++] = v;
    return 0;
}

/* ---- what is asked for ---- */

const char *shape_keys_architecture(const struct shape_keys *k)
{
    return k->architecture;
}

const char *shape_keys_type(const struct shape_keys *k)
{
    return k->type;
}

uint64_t shape_keys_tokens(const struct shape_keys *k)
{
    return k->tokens;
}

static const struct value *find(const struct shape_keys *k, enum shape_key key)
{
    for (size_t i = 0; i < k->n_values; i++)
        if (k->values[i].key == key && strcmp(k->values[i].prefix, k->architecture) == 0)
            return &k->values[i];
    return NULL;
}

bool shape_keys_has(const struct shape_keys *k, enum shape_key key)
{
    return find(k, key);
}

bool shape_keys_is_array(const struct shape_keys *k, enum shape_key key)
{
    const struct value *v = find(k, key);
    return v && v->is_array;
}

const char *shape_keys_name(const struct shape_keys *k, enum shape_key key,
                            char buf[static SHAPE_KEY_NAME_MAX])
{
    const struct value *v = find(k, key);
    int n = snprintf(buf, SHAPE_KEY_NAME_MAX, "%s.%s", k->architecture, names[key]);
    if (v)
        snprintf(buf + n, SHAPE_KEY_NAME_MAX - (size_t)n, " at byte %" PRIu64, v->at);
    return buf;
}

uint64_t shape_keys_at(const struct shape_keys *k, enum shape_key key, uint32_t i,
                       uint64_t otherwise)
{
    const struct value *v = find(k, key);
    if (!v)
        return otherwise;
    if (!v->is_array)
        return v->number;
    return i < v->n_elements ? v->elements[i] : otherwise;
}

int shape_keys_check_length(const struct shape_keys *k, enum shape_key key, uint32_t n,
                            struct error *err)
{
    const struct value *v = find(k, key);
    if (v && v->is_array && v->n_elements < n)
        return err_set(err, ERR_INVALID,
                       "%s.%s at byte %" PRIu64 " has %" PRIu32 " elements for %" PRIu32 " layers",
                       k->architecture, names[key], v->at, v->n_elements, n);
    return 0;
}
