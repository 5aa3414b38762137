#include <inttypes.h>
#include <string.h>

#include "base/json.h"
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

/* All layers that attend alike: the formula in one line. 0 when they differ. */
static uint32_t alike(const struct model_shape *s, const struct layer_shape **ret)
{
    uint32_t n = 0;
    *ret = NULL;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer_shape *l = &s->layers[i];
        if (!l->kv_heads || l->kind == LAYER_SHARED || l->kind == LAYER_NONE ||
            l->kind == LAYER_RECURRENT)
            continue;
        if (*ret && (l->kv_heads != (*ret)->kv_heads || l->key_dim != (*ret)->key_dim ||
                     l->value_dim != (*ret)->value_dim))
            return 0;
        *ret = l;
        n++;
    }
    return n;
}

static void put_cache(struct strbuf *b, const struct memory_report *r)
{
    const struct kv_cost *c = &r->cost;
    const struct layer_shape *l;
    uint32_t layers = alike(r->shape, &l);
    strbuf_printf(b, "kv cache %s: ", r->options->kv_type.name);
    if (layers && l->kind == LAYER_LATENT)
        strbuf_printf(b, "%u layers x %u latent dims", layers, l->key_dim);
    else if (layers)
        strbuf_printf(b, "%u layers x %u KV head%s x (%u + %u) dims", layers, l->kv_heads,
                      l->kv_heads == 1 ? "" : "s", l->key_dim, l->value_dim);
    else
        strbuf_puts(b, "layers that differ");
    strbuf_puts(b, " = ");
    put_grouped(b, c->full_per_token + c->window_per_token);
    strbuf_puts(b, " bytes/token");
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
            put_grouped(b, r->weights.per_device + r->cost.total);
            strbuf_puts(b, " bytes, ");
            put_gib(b, r->weights.per_device + r->cost.total);
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

/* ---- JSON ------------------------------------------------------------------------------------ */

/* null: without end */
static void json_limit(struct strbuf *b, const char *key, uint64_t n)
{
    if (n != UINT64_MAX) {
        json_put_number(b, key, n);
        return;
    }
    json_put_key(b, key);
    strbuf_puts(b, "null");
}

static void json_weights(struct strbuf *b, const struct memory_weights *w)
{
    json_put_key(b, "weights");
    if (!w->known) {
        strbuf_puts(b, "null");
        return;
    }
    strbuf_putc(b, '{');
    put_json_member(b, "type", w->type);
    put_json_member(b, "from", w->from);
    json_put_number(b, "parameters", w->parameters);
    json_put_number(b, "bytes", w->bytes);
    json_put_key(b, "bits_per_weight");
    strbuf_printf(b, "%.4f", bits(w->bytes, w->parameters));
    json_put_number(b, "bytes_per_device", w->per_device);
    json_put_key(b, "as");
    strbuf_putc(b, '{');
    for (size_t i = 0; i < w->n_as; i++)
        json_put_number(b, w->as[i].type, w->as[i].bytes);
    strbuf_puts(b, "}}");
}

static const char *const kinds[] = {
    [LAYER_FULL] = "full",     [LAYER_WINDOW] = "window",       [LAYER_CHUNKED] = "chunked",
    [LAYER_LATENT] = "latent", [LAYER_RECURRENT] = "recurrent", [LAYER_SHARED] = "shared",
    [LAYER_NONE] = "none",
};

static void json_layer(struct strbuf *b, const struct layer_shape *l, uint32_t n)
{
    json_put_separator(b);
    strbuf_puts(b, "{\"kind\":");
    json_put_string(b, kinds[l->kind]);
    json_put_number(b, "layers", n);
    json_put_number(b, "kv_heads", l->kv_heads);
    json_put_number(b, "key_dim", l->key_dim);
    json_put_number(b, "value_dim", l->value_dim);
    json_put_number(b, "window", l->window);
    json_put_number(b, "index_dim", l->index_dim);
    json_put_number(b, "state_elements", l->state_elements);
    strbuf_putc(b, '}');
}

static bool same_layer(const struct layer_shape *a, const struct layer_shape *b)
{
    return a->kind == b->kind && a->kv_heads == b->kv_heads && a->key_dim == b->key_dim &&
           a->value_dim == b->value_dim && a->window == b->window && a->index_dim == b->index_dim &&
           a->state_elements == b->state_elements;
}

static void json_cache(struct strbuf *b, const struct memory_report *r)
{
    const struct model_shape *s = r->shape;
    const struct kv_cost *c = &r->cost;
    json_put_key(b, "kv_cache");
    if (!r->has_shape) {
        strbuf_puts(b, "null");
        put_json_member(b, "no_kv_cache", r->no_shape);
        return;
    }
    strbuf_putc(b, '{');
    put_json_member(b, "type", r->options->kv_type.name);
    put_json_member(b, "family", s->family);
    put_json_member(b, "from", s->source);
    put_json_member(b, "rule", s->rule);
    put_json_member(b, "notes", s->notes);
    json_put_number(b, "context", r->context);
    json_put_number(b, "sequences", r->options->sequences);
    json_put_number(b, "full_bytes_per_token", c->full_per_token);
    json_put_number(b, "window_bytes_per_token", c->window_per_token);
    json_put_number(b, "state_bytes_per_sequence", c->state_per_sequence);
    json_put_number(b, "cross_bytes_per_token", c->cross_per_token);
    json_put_number(b, "bytes", c->total);
    json_put_key(b, "layers");
    strbuf_putc(b, '[');
    for (uint32_t i = 0, n; i < s->n_layers; i += n) { /* runs of equal ones */
        for (n = 1; i + n < s->n_layers && same_layer(&s->layers[i], &s->layers[i + n]);)
            n++;
        json_layer(b, &s->layers[i], n);
    }
    strbuf_puts(b, "]}");
}

static void json_gpu(struct strbuf *b, const struct memory_report *r)
{
    const struct memory_gpu *g = &r->gpu;
    json_put_key(b, "gpu");
    strbuf_puts(b, "{\"budget_bytes\":");
    json_put_u64(b, g->budget);
    json_put_key(b, "weights_fit");
    strbuf_puts(b, !r->weights.known ? "null" : g->fits ? "true" : "false");
    if (g->fits) {
        json_put_number(b, "left_bytes", g->left);
        if (r->has_shape) {
            json_limit(b, "longest_context", g->tokens);
            json_limit(b, "longest_context_of_all", g->tokens_each);
            json_limit(b, "most_sequences", g->sequences);
        }
    }
    strbuf_putc(b, '}');
}

void memory_json(const struct memory_report *r, struct strbuf *b)
{
    strbuf_puts(b, "{\"source\":");
    put_json_text(b, r->source, strlen(r->source));
    json_put_number(b, "tensor_parallel", r->options->tensor_parallel);
    json_weights(b, &r->weights);
    json_cache(b, r);
    if (r->options->has_gpu)
        json_gpu(b, r);
    if (r->has_shape && r->weights.known)
        json_put_number(b, "total_bytes_per_device", r->weights.per_device + r->cost.total);
    strbuf_puts(b, "}\n");
}
