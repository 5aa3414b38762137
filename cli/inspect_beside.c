/* The small files beside the weights: config.json, adapter_config.json, chat templates. None of
 * them has to be there, and one that is broken is as good as none. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/inspect.h"

#define SMALL_MAX (32u << 20)

/* 1 and the text, 0, -1 for what ends the command. */
static int read_beside(struct report *r, const struct model_report *m, const char *name,
                       struct strbuf *to, struct error *err)
{
    _cleanup_free_ char *path = NULL;
    struct error why = ERROR_INIT;
    if (asprintf(&path, "%s%s", m->folder, name) < 0) {
        path = NULL;
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = source_read(r->source, path, SMALL_MAX, to, &why);
    if (rc >= 0 || why.code == ERR_TOO_LARGE || why.code == ERR_UNSUPPORTED)
        return rc > 0;
    if (err)
        *err = why;
    return err_wrap(err, "%s", path);
}

static int read_quantization(struct report *r, struct model_report *m, struct error *err)
{
    static const char *const names[] = {"config.json", "quantize_config.json"};
    if (m->format == MODEL_GGUF) /* it says all of that itself; what lies beside is another's */
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(names) && !m->quantization.method[0]; i++) {
        _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
        int rc = read_beside(r, m, names[i], &text, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        quantization_done(&m->quantization);
        memset(&m->quantization, 0, sizeof(m->quantization));
        struct error why = ERROR_INIT;
        if (quantization_read(strbuf_str(&text), text.len, &m->quantization, &why) < 0) {
            quantization_done(&m->quantization);
            memset(&m->quantization, 0, sizeof(m->quantization));
            if (why.code == ERR_TOO_LARGE)
                snprintf(m->note, sizeof(m->note), "%s: %.100s: parameters are counted as stored",
                         names[i], why.text);
        }
        if (i > 0)
            continue;
        m->has_shape = shape_from_config(strbuf_str(&text), text.len, &m->shape, &why) == 0;
        if (!m->has_shape) {
            shape_done(&m->shape);
            memset(&m->shape, 0, sizeof(m->shape));
            snprintf(m->no_shape, sizeof(m->no_shape), "config.json: %s", why.text);
        }
    }
    return 0;
}

static int read_adapter(struct report *r, struct model_report *m, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    _cleanup_json_ struct json *root = NULL;
    const char *base = strrchr(m->title, '/');
    uint64_t rank;
    if (strncmp(base ? base + 1 : m->title, "adapter", 7) != 0)
        return 0;
    int rc = read_beside(r, m, "adapter_config.json", &text, err);
    if (rc <= 0 || json_parse(strbuf_str(&text), text.len, &root, NULL) < 0)
        return rc < 0 ? -1 : 0;
    const char *type = json_str(json_get(root, "peft_type"));
    const char *model = json_str(json_get(root, "base_model_name_or_path"));
    int n = snprintf(m->adapter, sizeof(m->adapter), "%.40s adapter", type ? type : "an");
    if (json_u64(json_get(root, "r"), &rank))
        n += snprintf(m->adapter + n, sizeof(m->adapter) - (size_t)n, " of rank %" PRIu64, rank);
    snprintf(m->adapter + n, sizeof(m->adapter) - (size_t)n, " for %.150s",
             model ? model : "a model that it does not name");
    return 0;
}

int model_add_template(struct model_report *m, const char *name, const char *text, size_t len,
                       struct error *err)
{
    struct named_text *templates =
        reallocarray(m->templates, m->n_templates + 1, sizeof(*templates));
    if (!templates)
        return err_set(err, ERR_NOMEM, "out of memory for a chat template");
    m->templates = templates;
    struct named_text t = {.name = strdup(name), .text = malloc(len + 1), .len = len};
    if (!t.name || !t.text) {
        free(t.name);
        free(t.text);
        return err_set(err, ERR_NOMEM, "out of memory for a chat template");
    }
    memcpy(t.text, text, len);
    t.text[len] = '\0';
    m->templates[m->n_templates++] = t;
    return 0;
}

/* A text, or several with names. */
static int take_templates(struct model_report *m, const struct json *j, struct error *err)
{
    const char *text = json_str(j);
    if (text)
        return model_add_template(m, "", text, strlen(text), err);
    for (const struct json *e = json_first(j); e; e = json_next(e)) {
        const char *name = json_str(json_get(e, "name"));
        text = json_str(json_get(e, "template"));
        if (name && text && model_add_template(m, name, text, strlen(text), err) < 0)
            return -1;
    }
    return 0;
}

static int read_templates(struct report *r, struct model_report *m, struct error *err)
{
    static const char *const documents[] = {"tokenizer_config.json", "chat_template.json"};
    _cleanup_strbuf_ struct strbuf jinja = STRBUF_INIT;
    int rc = read_beside(r, m, "chat_template.jinja", &jinja, err);
    if (rc < 0)
        return -1;
    if (rc > 0) /* the newer place; it wins over the others */
        return model_add_template(m, "", strbuf_str(&jinja), jinja.len, err);
    for (size_t i = 0; i < ARRAY_LEN(documents) && !m->n_templates; i++) {
        _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
        _cleanup_json_ struct json *root = NULL;
        rc = read_beside(r, m, documents[i], &text, err);
        if (rc < 0)
            return -1;
        if (rc > 0 && json_parse(strbuf_str(&text), text.len, &root, NULL) == 0 &&
            take_templates(m, json_get(root, "chat_template"), err) < 0)
            return -1;
    }
    return 0;
}

int model_read_beside(struct report *r, struct model_report *m, struct error *err)
{
    /* Of a URL to one file nobody asked for others. */
    if (strcmp(source_kind(r->source), "url") == 0 && !m->index)
        return 0;
    if (read_quantization(r, m, err) < 0 || read_adapter(r, m, err) < 0)
        return -1;
    if (!r->options->chat_template || m->format == MODEL_GGUF)
        return 0;
    return read_templates(r, m, err);
}
