#include "model/modelpack_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/card.h"
#include "model/config_json.h"
#include "model/select.h"

#define SOURCE_URL                                                                                 \
    "https://huggingface.co/" /* never the configured endpoint: replicas must agree */
#define NAME_MAX_LEN 128      /* a model_type or quant_method that may be believed */

/* What the files say about the model; texts are borrowed, NULL = unknown. */
struct facts {
    const char *architecture, *family, *quantization;
    enum weights_format format;
    const struct model_card *card; /* NULL: packager 1 knows none */
    char size[MODELPACK_SIZE_MAX];
    char precision[256];
    char label[QUANT_LABEL_MAX];
};

char *modelpack_param_size(uint64_t parameters, char buf[static MODELPACK_SIZE_MAX])
{
    static const char units[] = "KMBTQ";
    uint64_t unit = 1000;
    buf[0] = '\0';
    if (parameters < 1000)
        return buf;
    for (size_t i = 0; i < strlen(units); i++, unit *= 1000) {
        /* Tenths, half up, without overflow near 2^64. */
        uint64_t tenth = unit / 10, tenths = parameters / tenth;
        if (parameters % tenth >= tenth - tenth / 2)
            tenths++;
        if (tenths >= 10000 && units[i + 1])
            continue;
        snprintf(buf, MODELPACK_SIZE_MAX, "%" PRIu64 ".%u%c", tenths / 10, (unsigned)(tenths % 10),
                 units[i]);
        break;
    }
    return buf;
}

/* ---- precision ---- */

/* The specification's name of a tensor type; NULL when it has none. */
static const char *precision_of(const char *type)
{
    static const struct {
        const char *type, *name;
    } table[] = {
        {"F32", "float32"},         {"F16", "float16"},
        {"BF16", "bfloat16"},       {"F64", "float64"},
        {"F8_E4M3", "float8_e4m3"}, {"F8_E5M2", "float8_e5m2"},
        {"C64", "complex64"},       {"I8", "int8"},
        {"I16", "int16"},           {"I32", "int32"},
        {"I64", "int64"},           {"U8", "uint8"},
        {"U16", "uint16"},          {"U32", "uint32"},
        {"U64", "uint64"},          {"BOOL", "bool"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].type, type) == 0)
            return table[i].name;
    return NULL;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct names, sorted, commas between. A GGUF with block types has no precision: the F32 of
 * its few norms would stand for the whole; `quantization` says what it is. */
static void find_precision(const struct weights *w, char *buf, size_t size)
{
    const char *names[WEIGHTS_MAX_TYPES];
    size_t n = 0, used = 0;
    for (size_t i = 0; i < w->n_types; i++) {
        const char *name = precision_of(w->types[i].name);
        if (name)
            names[n++] = name;
        else if (w->format == WEIGHTS_GGUF)
            return;
    }
    if (n)
        qsort(names, n, sizeof(*names), compare_texts);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? "," : "", names[i]);
}

/* ---- config.json ---- */

/* A member that is a text one can believe. */
static const char *text_of(const struct json *object, const char *key)
{
    const char *text = json_str(json_get(object, key));
    return text && text[0] && strlen(text) <= NAME_MAX_LEN ? text : NULL;
}

/* The member from the top, or from where multimodal models keep their language model. */
static const struct json *find_member(const struct json *root, const char *key,
                                      bool (*fits)(const struct json *))
{
    const struct json *places[] = {
        root,
        json_get(root, "text_config"),
        json_get(root, "llm_config"),
        json_get(root, "language_config"),
        json_get(json_get(root, "thinker_config"), "text_config"),
    };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const struct json *found = places[i] ? json_get(places[i], key) : NULL;
        if (found && fits(found))
            return found;
    }
    return NULL;
}

static bool is_short_text(const struct json *j)
{
    const char *text = json_str(j);
    return text && text[0] && strlen(text) <= NAME_MAX_LEN;
}

static bool in_list(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

/* Families whose config.json looks like a transformer's and that are none (or only in part). */
static bool is_other_family(const char *family)
{
    static const char *const list[] = {
        "mamba",    "mamba2", "falcon_mamba", "rwkv",         "rwkv5",        "rwkv6",
        "rwkv7",    "resnet", "convnext",     "convnextv2",   "regnet",       "efficientnet",
        "hgnet_v2", "vgg",    "mobilenet_v1", "mobilenet_v2", "timm_wrapper", "xlstm"};
    return family && in_list(family, list, ARRAY_LEN(list));
}

static void read_config_json(const struct json *root, struct facts *f)
{
    const struct json *architectures = json_get(root, "architectures");
    f->family = json_str(find_member(root, "model_type", is_short_text));
    if ((text_of(root, "transformers_version") ||
         (json_is_array(architectures) && json_first(architectures))) &&
        !is_other_family(f->family))
        f->architecture = "transformer";
    const struct json *q = find_member(root, "quantization_config", json_is_object);
    f->quantization = q ? text_of(q, "quant_method") : NULL;
}

/* ---- GGUF ---- */

/* general.architecture of language models that are transformers throughout: llama.cpp's list
 * without its recurrent and hybrid ones. */
static const char *const transformers[] = {"apertus",
                                           "arcee",
                                           "arctic",
                                           "baichuan",
                                           "bailingmoe",
                                           "bailingmoe2",
                                           "bert",
                                           "bitnet",
                                           "bloom",
                                           "chameleon",
                                           "chatglm",
                                           "codeshell",
                                           "cogvlm",
                                           "cohere2",
                                           "command-r",
                                           "dbrx",
                                           "deci",
                                           "deepseek",
                                           "deepseek2",
                                           "dots1",
                                           "dream",
                                           "ernie4_5",
                                           "ernie4_5-moe",
                                           "exaone",
                                           "exaone4",
                                           "falcon",
                                           "gemma",
                                           "gemma-embedding",
                                           "gemma2",
                                           "gemma3",
                                           "gemma3n",
                                           "glm4",
                                           "glm4moe",
                                           "gpt-oss",
                                           "gpt2",
                                           "gptj",
                                           "gptneox",
                                           "granite",
                                           "granitemoe",
                                           "grok",
                                           "grovemoe",
                                           "hunyuan-dense",
                                           "hunyuan-moe",
                                           "internlm2",
                                           "jais",
                                           "jina-bert-v2",
                                           "jina-bert-v3",
                                           "llada",
                                           "llada-moe",
                                           "llama",
                                           "llama4",
                                           "minicpm",
                                           "minicpm3",
                                           "minimax-m2",
                                           "mistral3",
                                           "modern-bert",
                                           "mpt",
                                           "nemotron",
                                           "neo-bert",
                                           "nomic-bert",
                                           "nomic-bert-moe",
                                           "olmo",
                                           "olmo2",
                                           "olmoe",
                                           "openelm",
                                           "orion",
                                           "pangu-embedded",
                                           "phi2",
                                           "phi3",
                                           "phimoe",
                                           "plamo",
                                           "qwen",
                                           "qwen2",
                                           "qwen2moe",
                                           "qwen2vl",
                                           "qwen3",
                                           "qwen3moe",
                                           "qwen3vl",
                                           "qwen3vlmoe",
                                           "refact",
                                           "seed_oss",
                                           "smallthinker",
                                           "smollm3",
                                           "stablelm",
                                           "starcoder",
                                           "starcoder2",
                                           "t5",
                                           "t5encoder",
                                           "xverse"};

static bool is_transformer(const char *architecture)
{
    return in_list(architecture, transformers, ARRAY_LEN(transformers));
}

static bool is_float_label(const char *label)
{
    return strcmp(label, "F32") == 0 || strcmp(label, "F16") == 0 || strcmp(label, "BF16") == 0;
}

static void read_weights(const struct weights *w, struct facts *f)
{
    modelpack_param_size(w->parameters, f->size);
    find_precision(w, f->precision, sizeof(f->precision));
    if (w->format != WEIGHTS_GGUF)
        return;
    if (!f->family && w->architecture[0])
        f->family = w->architecture;
    if (!f->architecture && is_transformer(w->architecture))
        f->architecture = "transformer";
    if (!f->quantization && w->has_file_type)
        f->quantization = gguf_file_type_name(w->file_type);
}

/* By the names of the files, where no sum says it: the first of the order that there is. */
static enum weights_format format_of(const struct modelpack_input *in)
{
    bool seen[WEIGHTS_OTHER + 1] = {false};
    if (in->weights && in->weights->format != WEIGHTS_UNKNOWN)
        return in->weights->format;
    for (size_t i = 0; i < in->n_files; i++)
        if (in->files[i].kind == MODELPACK_WEIGHT)
            seen[weights_format_of(in->files[i].path)] = true;
    for (enum weights_format f = WEIGHTS_SAFETENSORS; f <= WEIGHTS_ONNX; f++)
        if (seen[f])
            return f;
    return WEIGHTS_UNKNOWN;
}

/* ---- the document ---- */

static void put_member(struct strbuf *b, const char *key, const char *text)
{
    if (!text || !text[0])
        return;
    json_put_key(b, key);
    json_put_string(b, text);
}

/* ---- from the model card: packager 2 ---- */

static void put_texts(struct strbuf *b, const char *key, const char *const *texts)
{
    if (!texts[0])
        return;
    json_put_key(b, key);
    strbuf_putc(b, '[');
    for (size_t i = 0; texts[i]; i++) {
        json_put_separator(b);
        json_put_string(b, texts[i]);
    }
    strbuf_putc(b, ']');
}

/* The specification has room for two letters only. */
static bool is_language(const char *s)
{
    return strlen(s) == 2 && s[0] >= 'a' && s[0] <= 'z' && s[1] >= 'a' && s[1] <= 'z';
}

static bool has_tag(const struct model_card *c, const char *const *tags, size_t n)
{
    for (size_t i = 0; i < c->tags.n; i++)
        if (in_list(c->tags.items[i], tags, n))
            return true;
    return false;
}

static void put_true(struct strbuf *b, const char *key, bool value)
{
    if (!value)
        return;
    json_put_key(b, key);
    strbuf_puts(b, "true");
}

static void put_capabilities(const struct model_card *c, struct strbuf *b)
{
    static const char *const reasoning[] = {"reasoning", "thinking", "chain-of-thought"};
    static const char *const tools[] = {"tool-use", "tool-calling", "function-calling", "tool_use",
                                        "function_calling"};
    static const char *const reward[] = {"reward-model", "reward_model"};
    const char *inputs[4] = {NULL}, *outputs[4] = {NULL}, *languages[CARD_ITEMS_MAX + 1];
    size_t n = 0;
    for (size_t i = 0; i < c->languages.n; i++)
        if (is_language(c->languages.items[i]))
            languages[n++] = c->languages.items[i];
    languages[n] = NULL;
    if (c->pipeline_tag)
        card_task(c->pipeline_tag, inputs, outputs);
    put_texts(b, "inputTypes", inputs);
    put_texts(b, "languages", languages);
    put_texts(b, "outputTypes", outputs);
    put_true(b, "reasoning", has_tag(c, reasoning, ARRAY_LEN(reasoning)));
    put_true(b, "reward", has_tag(c, reward, ARRAY_LEN(reward)));
    put_true(b, "toolUsage", has_tag(c, tools, ARRAY_LEN(tools)));
}

static void put_licenses(const struct model_card *c, struct strbuf *b)
{
    char spdx[CARD_SPDX_MAX];
    bool first = true;
    for (size_t i = 0; i < c->licenses.n; i++) {
        if (!card_spdx(c->licenses.items[i], c->license_name, spdx)[0])
            continue;
        if (first) {
            json_put_key(b, "licenses");
            strbuf_putc(b, '[');
        }
        first = false;
        json_put_separator(b);
        json_put_string(b, spdx);
    }
    if (!first)
        strbuf_putc(b, ']');
}

static void put_config(const struct facts *f, struct strbuf *b)
{
    _cleanup_strbuf_ struct strbuf capabilities = STRBUF_INIT;
    strbuf_putc(&capabilities, '{');
    if (f->card)
        put_capabilities(f->card, &capabilities);
    json_put_key(b, "config");
    strbuf_putc(b, '{');
    put_member(b, "architecture", f->architecture);
    if (capabilities.len > 1) {
        json_put_key(b, "capabilities");
        strbuf_put(b, capabilities.data, capabilities.len);
        strbuf_putc(b, '}');
    }
    b->failed = b->failed || capabilities.failed;
    put_member(b, "format", weights_format_name(f->format));
    put_member(b, "paramSize", f->size);
    put_member(b, "precision", f->precision);
    put_member(b, "quantization", f->quantization);
    strbuf_putc(b, '}');
}

static void put_descriptor(const struct modelpack_input *in, const struct facts *f,
                           struct strbuf *b)
{
    const char *slash = strrchr(in->repo_id, '/');
    json_put_key(b, "descriptor");
    strbuf_putc(b, '{');
    put_member(b, "family", f->family);
    if (f->card)
        put_licenses(f->card, b);
    put_member(b, "name", slash ? slash + 1 : in->repo_id);
    put_member(b, "revision", in->commit);
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_printf(&url, "%s%s", SOURCE_URL, in->repo_id);
    put_member(b, "sourceURL", strbuf_str(&url));
    if (slash) {
        json_put_key(b, "vendor");
        json_put_string_n(b, in->repo_id, (size_t)(slash - in->repo_id));
    }
    strbuf_putc(b, '}');
    b->failed = b->failed || url.failed;
}

static void put_modelfs(const struct modelpack_file *const *layers, size_t n, struct strbuf *b)
{
    char digest[DIGEST_TEXT_MAX];
    json_put_key(b, "modelfs");
    strbuf_puts(b, "{\"diffIds\":[");
    for (size_t i = 0; i < n; i++) {
        json_put_separator(b);
        json_put_string(b, digest_format(&layers[i]->digest, digest));
    }
    strbuf_puts(b, "],\"type\":\"layers\"}");
}

static int read_json(const struct modelpack_input *in, struct json **root, struct facts *f,
                     struct modelpack_unread *unread, struct error *err)
{
    struct error e = ERROR_INIT;
    if (!in->config_json)
        return 0;
    /* What counts as JSON is part of a packager version. */
    int rc = in->packager > 1 ? config_parse(in->config_json, in->config_json_len, root, &e)
                              : json_parse(in->config_json, in->config_json_len, root, &e);
    if (rc < 0 && e.code == ERR_NOMEM)
        return err_set(err, e.code, "config.json: %s", e.text);
    if (json_is_object(*root)) {
        read_config_json(*root, f);
        return 0;
    }
    snprintf(unread->config_reason, sizeof(unread->config_reason), "%s",
             in->packager > 1 ? e.text : "it is not a JSON object");
    unread->notes[unread->n++] = (struct modelpack_note){"config.json", unread->config_reason};
    return 0;
}

static int read_card(const struct modelpack_input *in, struct model_card *card, struct facts *f,
                     struct modelpack_unread *unread, struct error *err)
{
    struct error e = ERROR_INIT;
    if (!in->card || in->packager < 2)
        return 0;
    if (model_card_read(in->card, in->card_len, card, &e) == 0) {
        f->card = card;
        return 0;
    }
    if (e.code == ERR_NOMEM)
        return err_set(err, e.code, "README.md: %s", e.text);
    snprintf(unread->card_reason, sizeof(unread->card_reason), "%s", e.text);
    unread->notes[unread->n++] = (struct modelpack_note){"README.md", unread->card_reason};
    return 0;
}

static void put_all(const struct modelpack_input *in, const struct modelpack_file *const *layers,
                    struct facts *f, struct strbuf *b)
{
    if (in->weights)
        read_weights(in->weights, f);
    if (in->packager > 1)
        modelpack_param_size(in->model ? in->model->parameters : 0, f->size);
    if (in->quant && quant_label_parse(in->quant, f->label))
        f->quantization = f->label;
    if (f->quantization && is_float_label(f->quantization))
        f->quantization = NULL; /* not quantised: `precision` says it */
    strbuf_putc(b, '{');
    put_config(f, b);
    put_descriptor(in, f, b);
    put_modelfs(layers, in->n_files, b);
    strbuf_putc(b, '}');
}

int modelpack_put_config(const struct modelpack_input *in,
                         const struct modelpack_file *const *layers, struct strbuf *b,
                         struct modelpack_unread *ret_unread, struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    _cleanup_(model_card_done) struct model_card card = {0};
    struct facts f = {.format = format_of(in)};
    *ret_unread = (struct modelpack_unread){0};
    if (read_json(in, &root, &f, ret_unread, err) < 0 ||
        read_card(in, &card, &f, ret_unread, err) < 0)
        return -1;
    put_all(in, layers, &f, b);
    return 0;
}
