/* What config.json and the files beside it say about quantisation. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/config_json.h"
#include "model/parameters.h"

#define GROUPS_MAX 1024u

static void copy_lower(char *ret, size_t size, const char *text)
{
    size_t n = 0;
    for (; text && text[n] && n < size - 1; n++)
        ret[n] = (char)tolower((unsigned char)text[n]);
    ret[n] = '\0';
}

static unsigned small_number(const struct json *object, const char *key)
{
    uint64_t n;
    return json_u64(json_get(object, key), &n) && n <= 64 ? (unsigned)n : 0;
}

/* ---- lists ---- */

static bool is_expression(const char *text)
{
    return strncmp(text, "re:", 3) == 0;
}

/* modules_to_not_convert: parts of tensors' names, or globs. */
static int read_skipped(const struct json *array, struct quantization *ret, struct error *err)
{
    for (const struct json *j = json_is_array(array) ? json_first(array) : NULL; j;
         j = json_next(j)) {
        const char *text = json_str(j);
        int rc = !text ? 0
                 : strchr(text, '*')
                     ? module_list_add_glob(&ret->skipped, &ret->counts, text, 0, err)
                     : module_list_add_part(&ret->skipped, &ret->counts, text, 0, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ignore, exclude_modules: names, "re:" expressions, and with ModelOpt globs. */
static int read_ignored(const struct json *array, bool globs, struct quantization *ret,
                        struct error *err)
{
    for (const struct json *j = json_is_array(array) ? json_first(array) : NULL; j;
         j = json_next(j)) {
        const char *text = json_str(j);
        int rc = !text ? 0
                 : is_expression(text)
                     ? module_list_add_expression(&ret->ignored, &ret->counts, text + 3, 0, err)
                 : globs ? module_list_add_glob(&ret->ignored, &ret->counts, text, 0, err)
                         : module_list_add_name(&ret->ignored, &ret->counts, text, 0, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static struct quantization_group *add_group(struct quantization *ret, struct error *err)
{
    if (ret->n_groups >= GROUPS_MAX) {
        err_set(err, ERR_TOO_LARGE, "over %u groups of modules", GROUPS_MAX);
        return NULL;
    }
    struct quantization_group *grown =
        realloc(ret->groups, (ret->n_groups + 1) * sizeof(*ret->groups));
    if (!grown) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    ret->groups = grown;
    struct quantization_group *g = &ret->groups[ret->n_groups++];
    *g = (struct quantization_group){0};
    return g;
}

/* Of the group that was added last. */
static int add_target(struct quantization *ret, const char *text, struct error *err)
{
    uint32_t group = (uint32_t)ret->n_groups - 1;
    return is_expression(text)
               ? module_list_add_expression(&ret->targets, &ret->counts, text + 3, group, err)
               : module_list_add_name(&ret->targets, &ret->counts, text, group, err);
}

/* config_groups: {"group_0": {"format", "targets": [...], "weights": {"num_bits"}}, ...} */
static int read_groups(const struct json *groups, struct quantization *ret, struct error *err)
{
    for (const struct json *j = json_is_object(groups) ? json_first(groups) : NULL; j;
         j = json_next(j)) {
        const struct json *targets = json_get(j, "targets");
        struct quantization_group *g = add_group(ret, err);
        if (!g)
            return -1;
        g->bits = small_number(json_get(j, "weights"), "num_bits");
        copy_lower(g->format, sizeof(g->format), json_str(json_get(j, "format")));
        for (const struct json *t = json_is_array(targets) ? json_first(targets) : NULL; t;
             t = json_next(t))
            if (json_str(t) && add_target(ret, json_str(t), err) < 0)
                return -1;
    }
    return 0;
}

/* ---- the kinds of files ---- */

/* The width in a text such as "mxfp4-pack-quantized", "fp4", "NVFP4": 0 when it names none. */
static unsigned bits_in_format(const char *text)
{
    static const struct {
        const char *name;
        unsigned bits;
    } table[] = {{"fp4", 4}, {"int4", 4}, {"nf4", 4}, {"int2", 2}};
    char lower[64];
    copy_lower(lower, sizeof(lower), text);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strstr(lower, table[i].name))
            return table[i].bits;
    return 0;
}

/* torchao's quant_type: {"default": {"_type": "Int4WeightOnlyConfig", ...}}, or that name. */
static unsigned torchao_bits(const struct json *type)
{
    const struct json *first = json_get(type, "default");
    const char *name = json_str(first ? json_get(first, "_type") : type);
    return bits_in_format(name) == 4 ? 4 : 0;
}

static int read_quantization_config(const struct json *root, const struct json *q,
                                    struct quantization *ret, struct error *err)
{
    const char *method = json_str(json_get(q, "quant_method"));
    const struct json *format = json_get(q, "format");
    copy_lower(ret->method, sizeof(ret->method), method && *method ? method : "unstated");
    copy_lower(ret->format, sizeof(ret->format),
               json_str(json_str(format) ? format : json_get(q, "quant_algo")));
    ret->bits = small_number(q, "bits");
    ret->load_in_4bit = json_is_true(json_get(q, "load_in_4bit"));
    ret->load_in_8bit = json_is_true(json_get(q, "load_in_8bit"));
    const char *experts = json_str(config_find(root, "expert_dtype"));
    ret->expert_bits = bits_in_format(experts ? experts : json_str(json_get(q, "expert_dtype")));
    ret->packed_experts = ret->expert_bits && strcmp(ret->method, "fp8") == 0;
    if (strcmp(ret->method, "torchao") == 0)
        ret->bits = torchao_bits(json_get(q, "quant_type"));
    if (strcmp(ret->method, "mxfp4") == 0)
        ret->bits = 4;
    bool globs = strcmp(ret->method, "modelopt") == 0;
    if (read_skipped(json_get(q, "modules_to_not_convert"), ret, err) < 0 ||
        read_ignored(json_get(q, "ignore"), globs, ret, err) < 0)
        return -1;
    return read_groups(json_get(q, "config_groups"), ret, err);
}

/* MLX: {"group_size": 64, "bits": 4, "model.layers.0.mlp": {"bits": 8, ...}, "lm_head": false} */
static int read_mlx(const struct json *q, struct quantization *ret, struct error *err)
{
    copy_lower(ret->method, sizeof(ret->method), "mlx");
    ret->bits = small_number(q, "bits");
    for (const struct json *j = json_first(q); j; j = json_next(j)) {
        if (!json_is_object(j))
            continue;
        struct quantization_group *g = add_group(ret, err);
        if (!g)
            return -1;
        g->bits = small_number(j, "bits");
        if (add_target(ret, json_key(j), err) < 0)
            return -1;
    }
    return 0;
}

/* The whole of a quantize_config.json or quant_config.json. */
static bool read_old_file(const struct json *root, struct quantization *ret)
{
    if (small_number(root, "bits") &&
        (json_get(root, "group_size") || json_get(root, "desc_act"))) {
        const char *method = json_str(json_get(root, "quant_method"));
        copy_lower(ret->method, sizeof(ret->method), method && *method ? method : "gptq");
        ret->bits = small_number(root, "bits");
    } else if (small_number(root, "w_bit") && json_get(root, "q_group_size")) {
        copy_lower(ret->method, sizeof(ret->method), "awq");
        ret->bits = small_number(root, "w_bit");
    }
    return ret->method[0];
}

static int read_root(const struct json *root, struct quantization *ret, struct error *err)
{
    const struct json *q = config_find(root, "quantization_config");
    const struct json *short_form = config_find(root, "quantization");
    bool is_mlx = json_is_object(short_form) && small_number(short_form, "bits") &&
                  json_get(short_form, "group_size");
    if (json_is_object(q) && !(is_mlx && !json_str(json_get(q, "quant_method"))))
        return read_quantization_config(root, q, ret, err);
    if (is_mlx)
        return read_mlx(short_form, ret, err);
    const char *producer = json_str(json_get(json_get(root, "producer"), "name"));
    if (producer && strcmp(producer, "modelopt") == 0 && json_is_object(short_form)) {
        copy_lower(ret->method, sizeof(ret->method), producer);
        copy_lower(ret->format, sizeof(ret->format), json_str(json_get(short_form, "quant_algo")));
        return read_ignored(json_get(short_form, "exclude_modules"), true, ret, err);
    }
    read_old_file(root, ret);
    return 0;
}

static int wrong_config(const struct config_source *s, struct error *err)
{
    const struct json *q = config_find(s->root, "quantization_config");
    const char *key = q ? "quantization_config" : "quantization";
    char place[CONFIG_AT_MAX];
    return err_wrap(err, "%s%s", key, config_at(s, q ? q : config_find(s->root, key), place));
}

int quantization_read(const char *config_json, size_t len, struct quantization *ret,
                      struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    *ret = (struct quantization){0};
    if (config_parse(config_json, len, &root, err) < 0)
        return -1;
    if (read_root(root, ret, err) < 0)
        return wrong_config(&(struct config_source){config_json, len, root}, err);
    module_list_sort(&ret->skipped);
    module_list_sort(&ret->ignored);
    module_list_sort(&ret->targets);
    return 0;
}

void quantization_done(struct quantization *q)
{
    module_list_done(&q->skipped);
    module_list_done(&q->ignored);
    module_list_done(&q->targets);
    free(q->groups);
    *q = (struct quantization){0};
}
