/* Layers as text, for tests: "F:8:128:128x30 R S". */
#ifndef WB_TESTS_SHAPE_CHECK_H
#define WB_TESTS_SHAPE_CHECK_H

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/kv_cache.h"

static inline void shape_read(const char *config, struct model_shape *s)
{
    struct error err = ERROR_INIT;
    cr_assert_eq(shape_from_config(config, strlen(config), s, &err), 0, "%s: %s", config, err.text);
}

/* As make_shape_golden.py writes it, without the run length. */
static inline void shape_put_layer(const struct layer_shape *l, char *ret, size_t size)
{
    static const char kinds[] = "FWCLRSN";
    char kind = kinds[l->kind];
    if (l->kind == LAYER_LATENT && l->index_dim)
        snprintf(ret, size, "L:%" PRIu32 ":%" PRIu32, l->key_dim, l->index_dim);
    else if (l->kind == LAYER_LATENT)
        snprintf(ret, size, "L:%" PRIu32, l->key_dim);
    else if (l->kind == LAYER_FULL)
        snprintf(ret, size, "F:%" PRIu32 ":%" PRIu32 ":%" PRIu32 "%s", l->kv_heads, l->key_dim,
                 l->value_dim, l->state_elements ? "+" : "");
    else if (l->row_every)
        snprintf(ret, size,
                 "%c:%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu32 "/%" PRIu32 ":%" PRIu32, kind,
                 l->kv_heads, l->key_dim, l->value_dim, l->window, l->row_dim, l->row_every);
    else if (l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED)
        snprintf(ret, size, "%c:%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu32, kind, l->kv_heads,
                 l->key_dim, l->value_dim, l->window);
    else
        snprintf(ret, size, "%c", kind);
}

static inline void shape_put_layers(const struct model_shape *s, FILE *f)
{
    char one[80], next[80] = "";
    for (uint32_t i = 0, run = 0; i < s->n_layers; i++) {
        shape_put_layer(&s->layers[i], one, sizeof(one));
        next[0] = '\0';
        if (i + 1 < s->n_layers)
            shape_put_layer(&s->layers[i + 1], next, sizeof(next));
        run++;
        if (strcmp(one, next) == 0)
            continue;
        fprintf(f, run > 1 ? "%s%sx%" PRIu32 : "%s%s", ftell(f) ? " " : "", one, run);
        run = 0;
    }
}

static inline void shape_expect(const char *name, const struct model_shape *s, const char *expected)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    cr_assert(f);
    shape_put_layers(s, f);
    fclose(f);
    cr_expect_str_eq(text, expected, "%s: %s, not %s", name, text, expected);
}

#endif
