/* A config.json, or the metadata of a GGUF: what comes out makes sense, and its costs add up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/kv_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void check_layers(const struct model_shape *s)
{
    require(s->n_layers > 0 && s->n_layers <= SHAPE_LAYERS_MAX, "layers");
    require(s->rule[0], "no rule");
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer_shape *l = &s->layers[i];
        bool bounded = l->kind == LAYER_WINDOW || l->kind == LAYER_CHUNKED;
        bool attends = bounded || l->kind == LAYER_FULL || l->kind == LAYER_LATENT;
        require(l->kind <= LAYER_NONE, "kind");
        require(bounded == (l->window > 0), "a window where none is, or none where one is");
        require(!attends || (l->kv_heads && l->key_dim), "attention without heads");
    }
}

static uint64_t total(const struct model_shape *s, struct kv_request r, uint64_t context)
{
    struct kv_cost c;
    struct error err = ERROR_INIT;
    r.context = context;
    if (kv_cost(s, &r, &c, &err) == 0)
        return c.total;
    require(err.code == ERR_INVALID && err.text[0], "an error of another kind");
    return UINT64_MAX;
}

static void check_costs(const struct model_shape *s, const char *type, uint32_t devices)
{
    static const uint64_t sizes[] = {0, 1 << 20, UINT64_C(80) << 30, UINT64_MAX - 1};
    struct kv_request r = {.context = 4096, .sequences = 3, .tensor_parallel = devices};
    uint64_t tokens, sequences;
    struct error err = ERROR_INIT;
    require(kv_type_parse(type, &r.key, &err) == 0, err.text);
    r.value = r.key;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (kv_fit(s, &r, sizes[i], &tokens, &sequences, &err) < 0) {
            require(err.code == ERR_INVALID, "an error of another kind");
            return;
        }
        if (tokens > 0 && tokens < UINT64_MAX)
            require(total(s, r, tokens) <= sizes[i], "what fits does not");
        if (tokens < UINT64_MAX)
            require(total(s, r, tokens + 1) > sizes[i], "one more fits");
    }
}

static int from_gguf(const uint8_t *data, size_t size, struct model_shape *s, struct error *err)
{
    struct shape_keys *k = NULL;
    struct weights w;
    uint64_t need;
    *s = (struct model_shape){0};
    if (shape_keys_new(&k, err) < 0)
        return -1;
    struct weights_visitor v = {.metadata = shape_keys_add, .ctx = k};
    int rc = weights_visit(WEIGHTS_GGUF, data, size, size, &v, &w, &need, err);
    if (rc == PREFIX_DONE)
        rc = shape_from_gguf(k, s, err);
    shape_keys_free(k);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_shape s;
    struct error err = ERROR_INIT;
    bool is_gguf = size > 4 && memcmp(data, "GGUF", 4) == 0;
    int rc = is_gguf ? from_gguf(data, size, &s, &err)
                     : shape_from_config((const char *)data, size, &s, &err);
    if (rc == 0) {
        check_layers(&s);
        check_costs(&s, "f16", 1);
        check_costs(&s, "q4_0", 3);
    } else if (rc < 0) {
        require(err.text[0], "an error without text");
    }
    shape_done(&s);
    return 0;
}
