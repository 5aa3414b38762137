#include "model/kv_cache.h"

#include <inttypes.h>
#include <strings.h>

#include "base/cleanup.h"
#include "model/decode_types.h"

#define STATE_BYTES 4 /* of an element: states are kept in float32 */

int kv_type_parse(const char *text, struct kv_type *ret, struct error *err)
{
    static const struct kv_type table[] = {
        {"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},   {"fp8", 1, 1},    {"q8_0", 32, 34},
        {"q4_0", 32, 18}, {"q4_1", 32, 20}, {"q5_0", 32, 22}, {"q5_1", 32, 24}, {"iq4_nl", 32, 18},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcasecmp(text, table[i].name) == 0) {
            *ret = table[i];
            return 0;
        }
    return err_set(err, ERR_INVALID,
                   "no cache type `%.32s`: f32, f16, bf16, fp8, q8_0, q4_0, q4_1, q5_0, q5_1 or "
                   "iq4_nl",
                   text);
}

/* ---- one layer ---- */

/* Bytes on one device. */
struct layer_cost {
    uint64_t per_token, row, state; /* row: for every row_every tokens */
};

static int too_much(struct error *err)
{
    return err_set(err, ERR_INVALID, "the cache would take more than 2^64 bytes");
}

static int add(uint64_t *sum, uint64_t n, struct error *err)
{
    return __builtin_add_overflow(*sum, n, sum) ? too_much(err) : 0;
}

static int multiply(uint64_t *product, uint64_t n, struct error *err)
{
    return __builtin_mul_overflow(*product, n, product) ? too_much(err) : 0;
}

static uint64_t divide_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

static int add_row(uint64_t *sum, uint64_t heads, uint64_t dim, const struct kv_type *t,
                   const char *what, struct error *err)
{
    uint64_t elements = heads;
    if (multiply(&elements, dim, err) < 0)
        return -1;
    if (elements % t->block)
        return err_set(err, ERR_INVALID,
                       "%s: %" PRIu64 " x %" PRIu64 " elements are no multiple of the block of %s, "
                       "which is %" PRIu32,
                       what, heads, dim, t->name, t->block);
    elements /= t->block;
    if (multiply(&elements, t->bytes, err) < 0)
        return -1;
    return add(sum, elements, err);
}

static bool has_cache(enum layer_kind kind)
{
    return kind == LAYER_FULL || kind == LAYER_WINDOW || kind == LAYER_CHUNKED ||
           kind == LAYER_LATENT;
}

static int cost_of(const struct layer_shape *l, const struct kv_request *r, struct layer_cost *ret,
                   struct error *err)
{
    uint64_t devices = r->tensor_parallel ? r->tensor_parallel : 1;
    *ret = (struct layer_cost){0};
    if (has_cache(l->kind)) {
        uint64_t heads = l->kind == LAYER_LATENT ? l->kv_heads : divide_up(l->kv_heads, devices);
        if (add_row(&ret->per_token, heads, l->key_dim, &r->key, "keys", err) < 0 ||
            add_row(&ret->per_token, heads, l->value_dim, &r->value, "values", err) < 0 ||
            add_row(&ret->per_token, 1, l->index_dim, &r->key, "index keys", err) < 0 ||
            add_row(&ret->row, 1, l->row_dim, &r->key, "compressed rows", err) < 0)
            return -1;
    }
    ret->state = divide_up(l->state_elements, l->row_every ? 1 : devices);
    return multiply(&ret->state, STATE_BYTES, err);
}

/* ---- the model ---- */

static uint64_t encoder_tokens(const struct model_shape *s, const struct kv_request *r)
{
    if (r->encoder_tokens)
        return r->encoder_tokens;
    return s->cross_tokens ? s->cross_tokens : r->context;
}

static int add_cross(const struct model_shape *s, const struct kv_request *r, struct kv_cost *c,
                     uint64_t *sum, struct error *err)
{
    uint64_t devices = r->tensor_parallel ? r->tensor_parallel : 1;
    uint64_t heads = divide_up(s->cross_kv_heads, devices);
    if (add_row(&c->cross_per_token, heads, s->cross_dim, &r->key, "cross-attention keys", err) <
            0 ||
        add_row(&c->cross_per_token, heads, s->cross_dim, &r->value, "cross-attention values",
                err) < 0 ||
        multiply(&c->cross_per_token, s->cross_layers, err) < 0)
        return -1;
    uint64_t bytes = c->cross_per_token;
    if (multiply(&bytes, encoder_tokens(s, r), err) < 0)
        return -1;
    return add(sum, bytes, err);
}

static bool is_bounded(const struct layer_shape *l)
{
    return l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED;
}

/* Adds one layer's parts, and to *sum its bytes for one sequence. */
static int add_layer(const struct layer_shape *l, const struct kv_request *r, struct kv_cost *c,
                     uint64_t *sum, struct error *err)
{
    struct layer_cost one;
    if (cost_of(l, r, &one, err) < 0)
        return -1;
    uint64_t tokens = is_bounded(l) && l->window < r->context ? l->window : r->context;
    uint64_t rows = l->row_every ? divide_up(r->context, l->row_every) : 0;
    uint64_t shared_out = l->row_every ? divide_up(one.row, l->row_every) : 0;
    if (add(is_bounded(l) ? &c->window_per_token : &c->full_per_token, one.per_token, err) < 0 ||
        add(&c->full_per_token, shared_out, err) < 0 ||
        add(&c->state_per_sequence, one.state, err) < 0 ||
        multiply(&one.per_token, tokens, err) < 0 || add(sum, one.per_token, err) < 0 ||
        multiply(&one.row, rows, err) < 0)
        return -1;
    return add(sum, one.row, err);
}

int kv_cost(const struct model_shape *s, const struct kv_request *r, struct kv_cost *ret,
            struct error *err)
{
    struct kv_cost c = {0};
    uint64_t sum = 0; /* of one sequence */
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (add_layer(&s->layers[i], r, &c, &sum, err) < 0)
            return err_wrap(err, "layer %" PRIu32, i);
    if (add(&sum, c.state_per_sequence, err) < 0 || add_cross(s, r, &c, &sum, err) < 0)
        return -1;
    c.total = sum;
    if (multiply(&c.total, r->sequences, err) < 0)
        return -1;
    *ret = c;
    return 0;
}

/* ---- what fits ---- */

/* What is more than 2^64 bytes fits nowhere. */
static bool fits(const struct model_shape *s, const struct kv_request *r, uint64_t context,
                 uint64_t bytes)
{
    struct kv_request at = *r;
    struct kv_cost c;
    at.context = context;
    return kv_cost(s, &at, &c, NULL) == 0 && c.total <= bytes;
}

/* The context from which on nothing grows any more; UINT64_MAX when something always does. */
static uint64_t last_growth(const struct model_shape *s, const struct kv_request *r,
                            const struct kv_cost *c)
{
    uint64_t window = 0;
    if (c->full_per_token || (c->cross_per_token && !r->encoder_tokens && !s->cross_tokens))
        return UINT64_MAX;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (is_bounded(&s->layers[i]) && s->layers[i].window > window)
            window = s->layers[i].window;
    return window;
}

static uint64_t longest_context(const struct model_shape *s, const struct kv_request *r,
                                const struct kv_cost *c, uint64_t bytes)
{
    uint64_t end = last_growth(s, r, c), low = 0, high = end;
    if (fits(s, r, end, bytes))
        return UINT64_MAX; /* also of what grows so slowly that no number of tokens is too large */
    if (!fits(s, r, 0, bytes))
        return 0;
    while (high - low > 1) { /* low fits, high does not */
        uint64_t middle = low + (high - low) / 2;
        if (fits(s, r, middle, bytes))
            low = middle;
        else
            high = middle;
    }
    return low;
}

int kv_fit(const struct model_shape *s, const struct kv_request *r, uint64_t bytes,
           uint64_t *ret_tokens, uint64_t *ret_sequences, struct error *err)
{
    struct kv_request all = *r, one = *r, none = *r;
    struct kv_cost c, parts;
    uint64_t sequences = 0;
    all.sequences = r->sequences ? r->sequences : 1;
    one.sequences = 1;
    none.context = 0;
    none.sequences = 1;
    if (kv_cost(s, &none, &parts, err) < 0) /* a type that does not go with the model */
        return -1;
    if (kv_cost(s, &one, &c, NULL) == 0) /* else: too large for any memory */
        sequences = c.total ? bytes / c.total : UINT64_MAX;
    *ret_tokens = longest_context(s, &all, &parts, bytes);
    *ret_sequences = sequences;
    return 0;
}

/* ---- weights ---- */

int weights_as(uint64_t parameters, const char *type, uint64_t *ret, struct error *err)
{
    char upper[16];
    size_t n = 0;
    uint32_t elements, bytes;
    for (; type[n] && n < sizeof(upper) - 1; n++)
        upper[n] = (char)(type[n] >= 'a' && type[n] <= 'z' ? type[n] - 'a' + 'A' : type[n]);
    upper[n] = '\0';
    if (type[n] || (!type_block(DECODE_GGML, upper, &elements, &bytes) &&
                    !type_block(DECODE_SAFETENSORS, upper, &elements, &bytes)))
        return err_set(
            err, ERR_INVALID,
            "no weight type `%.32s`: a type of ggml (Q4_K, Q8_0, ...; Q4_K_M is a mix of "
            "them) or of safetensors (BF16, F8_E4M3, F4, ...)",
            type);
    uint64_t blocks = divide_up(parameters, elements);
    if (__builtin_mul_overflow(blocks, bytes, &blocks))
        return err_set(err, ERR_INVALID, "%" PRIu64 " weights of %s are more than 2^64 bytes",
                       parameters, upper);
    *ret = blocks;
    return 0;
}
