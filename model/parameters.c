#include "model/parameters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/names.h"

#define NAME_LEN_MAX 1024 /* longer names match nothing */

/* A tensor's name, cut to what the rules look at. */
struct names {
    char tensor[NAME_LEN_MAX];
    char module[NAME_LEN_MAX]; /* up to the last ".weight" */
    const char *suffix;        /* behind the last dot */
};

static void names_set(struct names *n, const struct tensor_info *t)
{
    size_t len = t->name_len < NAME_LEN_MAX ? t->name_len : NAME_LEN_MAX - 1;
    memcpy(n->tensor, t->name, len);
    n->tensor[len] = '\0';
    memcpy(n->module, n->tensor, len + 1);
    char *last = NULL;
    for (char *p = n->module; (p = strstr(p, ".weight")); p++)
        last = p;
    if (last)
        *last = '\0';
    const char *dot = strrchr(n->tensor, '.');
    n->suffix = dot ? dot + 1 : n->tensor;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

static bool is_method(const struct quantization *q, const char *method)
{
    return strcmp(q->method, method) == 0;
}

/* GPTQ's layout, which auto-round writes as well. */
static bool is_gptq_like(const struct quantization *q)
{
    return is_method(q, "gptq") || is_method(q, "awq") || is_method(q, "auto-round");
}

/* ---- which modules ---- */

static bool is_quantized(const struct quantization *q, const struct names *n, uint64_t *work)
{
    return module_list_find(&q->ignored, n->module, work) == MODULE_NONE &&
           module_list_find(&q->skipped, n->tensor, work) == MODULE_NONE;
}

static const struct quantization_group *group_of(const struct quantization *q, const char *module,
                                                 uint64_t *work)
{
    uint32_t group = module_list_find(&q->targets, module, work);
    return group == MODULE_NONE ? NULL : &q->groups[group];
}

/* ---- what is no parameter ---- */

static bool is_torchao_extra(const char *suffix)
{
    static const char *const ends[] = {"_scale_and_zero", "_scale", "_zero_point",
                                       "_act_pre_scale"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (starts_with(suffix, "_weight_") && ends_with(suffix, ends[i]))
            return true;
    return false;
}

static bool is_left_out(const struct quantization *q, const struct names *n, const char *type,
                        uint64_t *work)
{
    static const char *const scales[] = {
        "weight_scale",      "weight_scale_inv", "weight_scale_2",     "weight_global_scale",
        "weight_zero_point", "input_scale",      "input_global_scale", "input_zero_point",
        "zero_point",        "weight_shape",     "weight_g_idx"};
    static const char *const gptq[] = {"qzeros", "g_idx", "scales"};
    static const char *const bnb[] = {"absmax", "quant_map", "nested_absmax", "nested_quant_map"};
    static const char *const mlx[] = {"scales", "biases"};
    if (strcmp(type, "F8_E8M0") == 0) /* holds nothing but scales */
        return true;
    if (!q || !q->method[0])
        return false;
    if (is_one_of(n->suffix, scales, ARRAY_LEN(scales)))
        return true;
    if (is_method(q, "mxfp4"))
        return strcmp(type, "U8") == 0 && ends_with(n->suffix, "_scales");
    if (is_method(q, "bitsandbytes"))
        return is_one_of(n->suffix, bnb, ARRAY_LEN(bnb)) ||
               starts_with(n->suffix, "bitsandbytes__");
    if (is_gptq_like(q))
        return is_one_of(n->suffix, gptq, ARRAY_LEN(gptq)) && is_quantized(q, n, work);
    if (is_method(q, "mlx"))
        return is_one_of(n->suffix, mlx, ARRAY_LEN(mlx));
    return is_method(q, "torchao") && is_torchao_extra(n->suffix);
}

/* ---- how many parameters an element holds ---- */

struct ratio {
    unsigned times, of;
};

static unsigned container_bits(const char *type)
{
    static const struct {
        const char *type;
        unsigned bits;
    } table[] = {{"U8", 8}, {"I8", 8}, {"U16", 16}, {"I16", 16}, {"U32", 32}, {"I32", 32}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(type, table[i].type) == 0)
            return table[i].bits;
    return 0;
}

/* Packed without gaps: three bits in 32 are 10 2/3 to a word. */
static struct ratio packing(const char *type, unsigned bits)
{
    unsigned container = container_bits(type);
    if (!container || !bits || bits >= container)
        return (struct ratio){1, 1};
    return (struct ratio){container, bits};
}

static struct ratio packing_of_groups(const struct quantization *q, const struct names *n,
                                      const char *type, uint64_t *work)
{
    const struct quantization_group *g = group_of(q, n->module, work);
    const char *format = g && g->format[0] ? g->format : q->format;
    unsigned bits = g ? g->bits : 0;
    if (!ends_with(format, "pack-quantized"))
        return (struct ratio){1, 1};
    for (size_t i = 0; !bits && q->groups && i < q->n_groups; i++)
        bits = q->groups[i].bits;
    if (!bits) /* the text may carry it: int2 is the only one that is not 4 */
        bits = strstr(format, "int2") ? 2 : 4;
    return packing(type, bits);
}

/* ModelOpt packs two 4-bit weights (NVFP4, or AWQ's integers) into a byte of `weight`. */
static bool is_modelopt_packed(const struct quantization *q, const struct names *n)
{
    static const char *const algorithms[] = {"fp4", "w4", "int4", "mixed"};
    for (size_t i = 0; i < ARRAY_LEN(algorithms); i++)
        if (strstr(q->format, algorithms[i]))
            return strcmp(n->suffix, "weight") == 0 || ends_with(n->suffix, "_proj");
    return false;
}

static bool is_routed_expert(const char *tensor)
{
    return strstr(tensor, ".experts.") && !strstr(tensor, "shared_experts");
}

static struct ratio ratio_of(const struct quantization *q, const struct names *n, const char *type,
                             uint64_t *work)
{
    static const struct ratio one = {1, 1};
    bool u8 = strcmp(type, "U8") == 0;
    if (is_method(q, "mxfp4"))
        return u8 && strstr(n->tensor, "_blocks") ? (struct ratio){2, 1} : one;
    if (is_gptq_like(q)) {
        if (strcmp(n->suffix, "qweight") == 0)
            return (struct ratio){q->bits && q->bits <= 32 ? 32 / q->bits : q->bits ? 1 : 8, 1};
        return u8 && (q->bits == 4 || q->bits == 2) ? (struct ratio){8 / q->bits, 1} : one;
    }
    if (is_method(q, "compressed-tensors"))
        return packing_of_groups(q, n, type, work);
    if (is_method(q, "fp8"))
        return is_routed_expert(n->tensor) ? packing(type, q->expert_bits) : one;
    if (is_method(q, "bitsandbytes"))
        return u8 && q->load_in_4bit ? (struct ratio){2, 1} : one;
    if (is_method(q, "modelopt") && u8 && is_modelopt_packed(q, n))
        return (struct ratio){2, 1};
    if (is_method(q, "mlx") && strcmp(type, "U32") == 0 && strcmp(n->suffix, "weight") == 0) {
        const struct quantization_group *g = group_of(q, n->module, work);
        return packing(type, g && g->bits ? g->bits : q->bits);
    }
    if (is_method(q, "torchao") && ends_with(n->suffix, "_qdata"))
        return packing(type, q->bits);
    if (is_method(q, "bitnet") && u8)
        return (struct ratio){4, 1}; /* four ternary digits, two bits each */
    return u8 && (q->load_in_4bit || q->bits == 4) ? (struct ratio){2, 1} : one;
}

/* ---- sums ---- */

static int add(uint64_t *sum, uint64_t n, struct error *err)
{
    if (__builtin_add_overflow(*sum, n, sum))
        return err_set(err, ERR_INVALID, "the tensors have more than 2^64 elements");
    return 0;
}

static int add_packed(struct parameter_count *c, struct ratio r, uint64_t elements,
                      struct error *err)
{
    /* The nearest whole number, half up. */
    unsigned __int128 halves = (unsigned __int128)elements * r.times * 2, of = r.of;
    unsigned __int128 n = (halves + of) / (2 * of);
    if (n > UINT64_MAX)
        return err_set(err, ERR_INVALID, "the tensors hold more than 2^64 parameters");
    if (!c->unpacked) {
        c->times[0] = r.times;
        c->times[1] = r.of;
    }
    c->mixed = c->mixed || c->times[0] * r.of != c->times[1] * r.times;
    c->unpacked++;
    return add(&c->logical, (uint64_t)n, err);
}

/* Counts one tensor by the rules of its quantisation. */
static int add_by_rules(struct parameter_count *c, const struct quantization *q,
                        const struct tensor_info *t, struct error *err)
{
    struct ratio r = {1, 1};
    struct names n;
    names_set(&n, t);
    if (is_left_out(q, &n, t->type, &c->work)) {
        c->left_out++;
        return 0;
    }
    if (t->n_dims == 0) /* the Hub counts no scalar */
        return 0;
    if (q && q->method[0])
        r = ratio_of(q, &n, t->type, &c->work);
    if (r.times != r.of && !is_quantized(q, &n, &c->work))
        r = (struct ratio){1, 1};
    return r.times != r.of ? add_packed(c, r, t->elements, err)
                           : add(&c->logical, t->elements, err);
}

int parameters_add(struct parameter_count *c, const struct quantization *q,
                   enum weights_format format, const struct tensor_info *t, struct error *err)
{
    struct parameter_count sum = *c;
    bool by_rules = format == WEIGHTS_SAFETENSORS || format == WEIGHTS_PICKLE;
    int rc = add(&sum.stored, t->elements, err);
    if (rc == 0 && !sum.unread)
        rc = by_rules ? add_by_rules(&sum, q, t, err) : add(&sum.logical, t->elements, err);
    if (rc < 0) {
        char quoted[NAME_QUOTED_MAX];
        return err_wrap(err, "tensor %s", name_quote(t->name, t->name_len, quoted));
    }
    sum.unread = sum.unread || sum.work > PARAMETERS_WORK_MAX;
    if (sum.unread)
        sum.logical = sum.stored;
    *c = sum;
    return 0;
}

static bool hub_differs(const struct quantization *q)
{
    return is_method(q, "modelopt") || is_method(q, "mlx") || is_method(q, "torchao") ||
           is_method(q, "bitnet") || is_method(q, "auto-round");
}

int parameters_merge(struct parameter_count *c, const struct parameter_count *one,
                     struct error *err)
{
    struct parameter_count sum = *c;
    if (__builtin_add_overflow(sum.stored, one->stored, &sum.stored) ||
        __builtin_add_overflow(sum.logical, one->logical, &sum.logical))
        return err_set(err, ERR_INVALID, "the model's parameters do not fit 64 bits");
    sum.left_out += one->left_out;
    if (one->unpacked) {
        if (!sum.unpacked)
            memcpy(sum.times, one->times, sizeof(sum.times));
        sum.mixed =
            sum.mixed || one->mixed ||
            (uint64_t)sum.times[0] * one->times[1] != (uint64_t)sum.times[1] * one->times[0];
        sum.unpacked += one->unpacked;
    }
    sum.work += one->work; /* for whoever looks; each file has its own limit */
    sum.unread = sum.unread || one->unread;
    if (sum.unread)
        sum.logical = sum.stored;
    *c = sum;
    return 0;
}

void parameters_end(struct parameter_count *c, const struct quantization *q)
{
    char method[48] = "", packed[64] = "", left[48] = "";
    bool quantized = q && q->method[0];
    if (quantized && q->bits)
        snprintf(method, sizeof(method), "%s %u bit: ", q->method, q->bits);
    else if (quantized)
        snprintf(method, sizeof(method), "%s: ", q->method);
    if (c->unread)
        snprintf(packed, sizeof(packed), "counted as stored: its lists of modules are too long");
    else if (c->unpacked && c->mixed)
        snprintf(packed, sizeof(packed), "packed weights unpacked, each by its width");
    else if (c->unpacked)
        snprintf(packed, sizeof(packed), "packed weights x %.4g",
                 (double)c->times[0] / c->times[1]);
    else
        snprintf(packed, sizeof(packed), "sum of the shapes");
    if (c->left_out && !c->unread)
        snprintf(left, sizeof(left), "; %" PRIu64 " scale%s and the like left out", c->left_out,
                 c->left_out == 1 ? "" : "s");
    snprintf(c->rule, sizeof(c->rule), "%s%s%s%s", method, packed, left,
             quantized && c->unpacked && !c->unread && hub_differs(q) ? " (the Hub shows stored)"
                                                                      : "");
}
