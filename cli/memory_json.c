/* The report as JSON: docs/inspect.md has what the keys mean, and that none of them changes. */
#include <string.h>

#include "base/json.h"
#include "cli/escape.h"
#include "cli/memory.h"

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
    strbuf_printf(b, "%.4f", w->parameters ? (double)w->bytes * 8 / (double)w->parameters : 0);
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
    json_put_number(b, "row_dim", l->row_dim);
    json_put_number(b, "row_every", l->row_every);
    json_put_number(b, "state_elements", l->state_elements);
    strbuf_putc(b, '}');
}

static bool same_layer(const struct layer_shape *a, const struct layer_shape *b)
{
    return a->kind == b->kind && a->kv_heads == b->kv_heads && a->key_dim == b->key_dim &&
           a->value_dim == b->value_dim && a->window == b->window && a->index_dim == b->index_dim &&
           a->row_dim == b->row_dim && a->row_every == b->row_every &&
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
        json_put_number(b, "total_bytes_per_device", r->total);
    strbuf_puts(b, "}\n");
}
