#include "model/shape.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

int shape_layers_new(struct model_shape *s, uint64_t n, const char *what, struct error *err)
{
    if (n == 0 || n > SHAPE_LAYERS_MAX)
        return err_set(err, ERR_INVALID, "%s: %" PRIu64 " layers, and 1 to %u can be", what, n,
                       SHAPE_LAYERS_MAX);
    struct layer_shape *layers = calloc(n, sizeof(*layers));
    if (!layers)
        return err_set(err, ERR_NOMEM, "out of memory");
    free(s->layers);
    s->layers = layers;
    s->n_layers = (uint32_t)n;
    return 0;
}

void shape_done(struct model_shape *s)
{
    free(s->layers);
    s->layers = NULL;
    s->n_layers = 0;
}

void shape_note(struct model_shape *s, const char *format, ...)
{
    size_t used = strlen(s->notes);
    va_list args;
    if (used && used < sizeof(s->notes) - 3) {
        memcpy(s->notes + used, "; ", 3);
        used += 2;
    }
    va_start(args, format);
    vsnprintf(s->notes + used, sizeof(s->notes) - used, format, args);
    va_end(args);
}

int shape_products(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t *ret,
                   struct error *err)
{
    uint64_t first, second, sum;
    if (__builtin_mul_overflow(a, b, &first) || __builtin_mul_overflow(first, c, &first) ||
        __builtin_mul_overflow(d, e, &second) || __builtin_add_overflow(first, second, &sum))
        return err_set(err, ERR_INVALID, "the state of a layer has more than 2^64 elements");
    *ret = sum;
    return 0;
}

int state_space_elements(const struct state_space *p, uint64_t *ret, struct error *err)
{
    uint64_t channels = 0; /* that the convolution runs over */
    if (shape_products(2, p->groups, p->state, p->inner, 1, &channels, err) < 0)
        return -1;
    return shape_products(p->conv_kernel ? p->conv_kernel - 1 : 0, channels, 1, p->state, p->inner,
                          ret, err);
}

void shape_compress(struct layer_shape *l, uint32_t ratio, bool sparse, uint32_t index_dim)
{
    uint64_t row = l->key_dim;
    l->value_dim = 0;
    l->row_every = ratio;
    if (!ratio)
        return;
    /* The tokens of the row that is being made, and their gates: where windows overlap (sparse),
     * those of two rows in two series. */
    if (sparse)
        row += index_dim;
    l->row_dim = (uint32_t)row;
    l->state_elements = 2 * row * ratio * (sparse ? 4 : 1);
}

/* ---- the rule, for people ---- */

struct text {
    char *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    if (n > 0) {
        size_t used = (size_t)n < t->left ? (size_t)n : t->left - 1;
        t->at += used;
        t->left -= used;
    }
}

struct census {
    uint32_t kind[LAYER_NONE + 1];
    uint32_t with_state; /* attend and keep a state */
    uint32_t with_rows;
    const struct layer_shape *sample[LAYER_NONE + 1];
    bool heads_vary;
};

static void take_census(const struct model_shape *s, struct census *c)
{
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer_shape *l = &s->layers[i];
        const struct layer_shape *first = c->sample[LAYER_FULL];
        if (!c->kind[l->kind]++)
            c->sample[l->kind] = l;
        c->with_state += l->state_elements && l->kind != LAYER_RECURRENT && !l->row_every;
        c->with_rows += l->row_every > 0;
        c->heads_vary =
            c->heads_vary || (l->kind == LAYER_FULL && first &&
                              (first->kv_heads != l->kv_heads || first->key_dim != l->key_dim));
    }
}

static void put_attention(struct text *t, const struct model_shape *s, const struct census *c)
{
    const struct layer_shape *l = c->sample[LAYER_FULL], *latent = c->sample[LAYER_LATENT];
    if (!l)
        l = c->sample[LAYER_WINDOW] ? c->sample[LAYER_WINDOW] : c->sample[LAYER_CHUNKED];
    if (latent)
        put(t, "multi-head latent attention, one row of %" PRIu32 " elements a token",
            latent->key_dim);
    else if (!l)
        put(t, "no attention");
    else if (c->heads_vary)
        put(t, "attention with heads layer by layer");
    else if (l->kv_heads == 1)
        put(t, "multi-query attention: 1 KV head for %" PRIu64, s->heads);
    else if (s->heads > l->kv_heads)
        put(t, "grouped-query attention: %" PRIu32 " KV heads for %" PRIu64, l->kv_heads, s->heads);
    else
        put(t, "multi-head attention: %" PRIu32 " KV heads", l->kv_heads);
}

void shape_describe(struct model_shape *s)
{
    static const struct {
        enum layer_kind kind;
        const char *text;
    } table[] = {
        {LAYER_FULL, "over the whole context"}, {LAYER_LATENT, "over the whole context"},
        {LAYER_WINDOW, "over a window of"},     {LAYER_CHUNKED, "over chunks of"},
        {LAYER_RECURRENT, "with a state"},      {LAYER_SHARED, "with another's cache"},
        {LAYER_NONE, "without a cache"},
    };
    struct census c = {0};
    struct text t = {s->rule, sizeof(s->rule)};
    take_census(s, &c);
    put_attention(&t, s, &c);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct layer_shape *sample = c.sample[table[i].kind];
        if (!sample)
            continue;
        put(&t, "; %" PRIu32 " layer%s %s", c.kind[table[i].kind],
            c.kind[table[i].kind] == 1 ? "" : "s", table[i].text);
        if (sample->window)
            put(&t, " %" PRIu32, sample->window);
    }
    if (c.with_state)
        put(&t, "; %" PRIu32 " of them with a state too", c.with_state);
    if (c.with_rows)
        put(&t, "; %" PRIu32 " of them with compressed rows of the whole context too", c.with_rows);
    if (s->cross_layers)
        put(&t, "; %" PRIu32 " layer%s to an encoder", s->cross_layers,
            s->cross_layers == 1 ? " attends" : "s attend");
}
