#include <inttypes.h>
#include <string.h>

#include "cli/escape.h"
#include "cli/memory.h"

#define GIB 1073741824.0

/* ---- for people ------------------------------------------------------------------------------ */

static void put_grouped(struct strbuf *b, uint64_t n)
{
    char text[GROUPED_MAX];
    strbuf_puts(b, format_grouped(n, text));
}

static void put_plainly(struct strbuf *b, const char *text)
{
    put_plain(b, text, strlen(text));
}

static void put_gib(struct strbuf *b, uint64_t n)
{
    if (n < 1u << 20)
        strbuf_printf(b, "%.2f KiB", (double)n / 1024);
    else if (n < 1u << 30)
        strbuf_printf(b, "%.2f MiB", (double)n / 1048576);
    else
        strbuf_printf(b, "%.2f GiB", (double)n / GIB);
}

static double bits(uint64_t bytes, uint64_t parameters)
{
    return parameters ? (double)bytes * 8 / (double)parameters : 0;
}

static void put_weights(struct strbuf *b, const struct memory_report *r)
{
    const struct memory_weights *w = &r->weights;
    if (!w->known) {
        strbuf_puts(b, "weights  unknown: name the weights, or give --params N\n");
        return;
    }
    strbuf_puts(b, "weights  ");
    put_plainly(b, w->type);
    strbuf_putc(b, ' ');
    put_grouped(b, w->bytes);
    strbuf_puts(b, " bytes, ");
    put_gib(b, w->bytes);
    strbuf_printf(b, ", %.2f bits/weight, ", bits(w->bytes, w->parameters));
    put_grouped(b, w->parameters);
    strbuf_printf(b, " parameters (from %s)\n", w->from);
    if (r->options->tensor_parallel > 1) {
        strbuf_printf(b, "         on each of %u devices: ", r->options->tensor_parallel);
        put_grouped(b, w->per_device);
        strbuf_puts(b, " bytes, ");
        put_gib(b, w->per_device);
        strbuf_putc(b, '\n');
    }
    strbuf_puts(b, "         as");
    for (size_t i = 0; i < w->n_as; i++) {
        strbuf_printf(b, "%s %s ", i ? "," : "", w->as[i].type);
        put_gib(b, w->as[i].bytes);
    }
    strbuf_putc(b, '\n');
}

/* ---- the formula of the cache: it has to multiply out ---- */

#define KINDS_MAX 16u /* that are shown */

static bool has_cache(const struct layer_shape *l)
{
    return l->kind == LAYER_FULL || l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED ||
           l->kind == LAYER_LATENT;
}

/* One formula is both of theirs. */
static bool same_row(const struct layer_shape *a, const struct layer_shape *b)
{
    return (a->kind == LAYER_LATENT) == (b->kind == LAYER_LATENT) && a->kv_heads == b->kv_heads &&
           a->key_dim == b->key_dim && a->value_dim == b->value_dim &&
           a->index_dim == b->index_dim && a->row_dim == b->row_dim && a->row_every == b->row_every;
}

static bool same_kind(const struct layer_shape *a, const struct layer_shape *b)
{
    return same_row(a, b) && a->kind == b->kind && a->window == b->window;
}

/* The layers with a cache, when all of them have the same row for every token; else 0. */
static uint32_t alike(const struct model_shape *s, const struct layer_shape **ret)
{
    uint32_t n = 0;
    *ret = NULL;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer_shape *l = &s->layers[i];
        if (!has_cache(l))
            continue;
        if (l->row_dim || (*ret && !same_row(l, *ret)))
            return 0;
        *ret = l;
        n++;
    }
    return n;
}

/* "32 layers x 8 KV heads x (128 + 128) dims", those on one device. */
static void put_formula(struct strbuf *b, const struct memory_report *r,
                        const struct layer_shape *l, uint32_t n)
{
    uint32_t devices = r->options->tensor_parallel;
    bool latent = l->kind == LAYER_LATENT;
    uint32_t heads = latent ? l->kv_heads : l->kv_heads / devices + (l->kv_heads % devices != 0);
    strbuf_printf(b, "%u layer%s x ", n, n == 1 ? "" : "s");
    if (latent && l->index_dim)
        strbuf_printf(b, "(%u latent + %u index) dims", l->key_dim, l->index_dim);
    else if (latent)
        strbuf_printf(b, "%u latent dims", l->key_dim);
    else {
        strbuf_printf(b, "%u ", heads);
        if (heads != l->kv_heads)
            strbuf_printf(b, "of %u ", l->kv_heads);
        strbuf_printf(b, "KV head%s x ", l->kv_heads == 1 ? "" : "s");
        if (l->value_dim)
            strbuf_printf(b, "(%u + %u) dims", l->key_dim, l->value_dim);
        else
            strbuf_printf(b, "%u dims", l->key_dim);
    }
}

static void put_bytes_a_token(struct strbuf *b, uint64_t n)
{
    strbuf_puts(b, " = ");
    put_grouped(b, n);
    strbuf_puts(b, " bytes/token");
}

/* Bytes of a token in one such layer. */
static uint64_t bytes_of(const struct memory_report *r, struct layer_shape l)
{
    const struct model_shape one = {.n_layers = 1, .layers = &l};
    const struct kv_request q = {.key = r->options->kv_type,
                                 .value = r->options->kv_type,
                                 .context = 1,
                                 .sequences = 1,
                                 .tensor_parallel = r->options->tensor_parallel};
    struct kv_cost c = {0}; /* cannot fail: the sum over all layers was fine */
    kv_cost(&one, &q, &c, NULL);
    return c.full_per_token + c.window_per_token;
}

/* What n layers like this one take. */
static void put_kind(struct strbuf *b, const struct memory_report *r, const struct layer_shape *l,
                     uint32_t n)
{
    struct layer_shape plain = *l;
    plain.row_dim = plain.row_every = 0;
    uint64_t bytes = bytes_of(r, plain);
    strbuf_puts(b, "         ");
    put_formula(b, r, l, n);
    put_bytes_a_token(b, n * bytes);
    if (l->window) {
        strbuf_puts(b, l->kind == LAYER_WINDOW ? " in a window of " : " in chunks of ");
        put_grouped(b, l->window);
    }
    if (l->row_dim) {
        strbuf_printf(b, ", and %u dims for every %u tokens", l->row_dim, l->row_every);
        put_bytes_a_token(b, n * (bytes_of(r, *l) - bytes));
    }
    strbuf_putc(b, '\n');
}

/* A line for each kind of layer, in the order in which they come. */
static void put_kinds(struct strbuf *b, const struct memory_report *r)
{
    const struct layer_shape *seen[KINDS_MAX] = {NULL};
    const struct model_shape *s = r->shape;
    size_t n_seen = 0;
    uint32_t others = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer_shape *l = &s->layers[i];
        size_t k = 0;
        while (k < n_seen && !same_kind(seen[k], l))
            k++;
        if (!has_cache(l) || k < n_seen)
            continue;
        if (n_seen == KINDS_MAX) {
            others++;
            continue;
        }
        uint32_t n = 0;
        for (uint32_t j = i; j < s->n_layers; j++)
            n += has_cache(&s->layers[j]) && same_kind(&s->layers[j], l);
        seen[n_seen++] = l;
        put_kind(b, r, l, n);
    }
    if (others)
        strbuf_printf(b, "         and %u layer%s of other kinds\n", others,
                      others == 1 ? "" : "s");
}

static void put_cache(struct strbuf *b, const struct memory_report *r)
{
    const struct kv_cost *c = &r->cost;
    const struct layer_shape *l;
    uint32_t layers = alike(r->shape, &l);
    strbuf_printf(b, "kv cache %s: ", r->options->kv_type.name);
    if (layers)
        put_formula(b, r, l, layers);
    else
        strbuf_puts(b, l ? "layers that differ" : "no layers with attention");
    put_bytes_a_token(b, c->full_per_token + c->window_per_token);
    if (r->options->tensor_parallel > 1)
        strbuf_puts(b, " on each device");
    strbuf_putc(b, '\n');
    if (c->window_per_token) {
        strbuf_puts(b, "         ");
        put_grouped(b, c->window_per_token);
        strbuf_puts(b, " of them only up to the window, ");
        put_grouped(b, c->full_per_token);
        strbuf_puts(b, " without end\n");
    }
    if (!layers)
        put_kinds(b, r);
    if (c->state_per_sequence) {
        strbuf_puts(b, "         and a state of ");
        put_grouped(b, c->state_per_sequence);
        strbuf_puts(b, " bytes for each sequence\n");
    }
    if (c->cross_per_token) {
        strbuf_puts(b, "         and ");
        put_grouped(b, c->cross_per_token);
        strbuf_puts(b, " bytes for each token of the encoder\n");
    }
    strbuf_puts(b, "         ");
    put_grouped(b, r->context);
    strbuf_puts(b, " tokens x ");
    put_grouped(b, r->options->sequences);
    strbuf_printf(b, " sequence%s = ", r->options->sequences == 1 ? "" : "s");
    put_grouped(b, c->total);
    strbuf_puts(b, " bytes (");
    put_gib(b, c->total);
    strbuf_puts(b, ")\n");
}

static void put_rule(struct strbuf *b, const struct model_shape *s)
{
    strbuf_puts(b, "rule     ");
    put_plainly(b, s->rule);
    strbuf_puts(b, " (");
    put_plainly(b, s->family);
    strbuf_puts(b, ", from ");
    put_plainly(b, s->source);
    strbuf_puts(b, ")\n");
    if (s->notes[0]) {
        strbuf_puts(b, "note     ");
        put_plainly(b, s->notes);
        strbuf_putc(b, '\n');
    }
}

static void put_tokens(struct strbuf *b, uint64_t n)
{
    if (n == UINT64_MAX)
        strbuf_puts(b, "any number of");
    else
        put_grouped(b, n);
}

static void put_gpu(struct strbuf *b, const struct memory_report *r)
{
    const struct memory_options *o = r->options;
    const struct memory_gpu *g = &r->gpu;
    strbuf_printf(b, "gpu      %.1f GiB x %.2f: ", o->gpu_gib, o->utilization);
    if (!r->weights.known) {
        strbuf_puts(b, "what fits is not known without the weights\n");
        return;
    }
    if (!g->fits) {
        strbuf_puts(b, "the weights do not fit, they take ");
        put_gib(b, r->weights.per_device - g->budget);
        strbuf_puts(b, " more\n");
        return;
    }
    put_gib(b, g->left);
    strbuf_puts(b, " left for KV");
    if (r->has_shape) {
        strbuf_puts(b, " = ");
        put_tokens(b, g->tokens);
        strbuf_puts(b, " tokens = ");
        put_tokens(b, g->sequences);
        strbuf_printf(b, " sequence%s of ", g->sequences == 1 ? "" : "s");
        put_grouped(b, r->context);
        if (o->sequences > 1) {
            strbuf_puts(b, ", or ");
            put_grouped(b, o->sequences);
            strbuf_puts(b, " of ");
            put_tokens(b, g->tokens_each);
        }
    }
    strbuf_putc(b, '\n');
}

void memory_text(const struct memory_report *r, struct strbuf *b)
{
    put_weights(b, r);
    if (r->has_shape) {
        put_cache(b, r);
        put_rule(b, r->shape);
        if (r->weights.known) {
            strbuf_puts(b, "total    ");
            put_grouped(b, r->total);
            strbuf_puts(b, " bytes, ");
            put_gib(b, r->total);
            strbuf_puts(b, r->options->tensor_parallel > 1 ? " on each device" : "");
            strbuf_puts(b, ", without what the server itself takes\n");
        }
    } else {
        strbuf_puts(b, "kv cache unknown: ");
        put_plainly(b, r->no_shape);
        strbuf_putc(b, '\n');
    }
    if (r->options->has_gpu)
        put_gpu(b, r);
}
