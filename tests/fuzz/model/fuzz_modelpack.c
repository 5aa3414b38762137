/* A config.json, a NUL, and paths, one a line; the documents must be JSON, and the same whatever
 * the order of the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/modelpack.h"

#define FILES_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static size_t split_paths(char *rest, struct modelpack_file *files)
{
    size_t n = 0;
    for (char *path; n < FILES_MAX && (path = strsep(&rest, "\n"));) {
        struct modelpack_file *f = &files[n++];
        *f = (struct modelpack_file){.path = path, .size = strlen(path) << 20};
        f->digest.alg = DIGEST_SHA256;
        f->digest.raw[0] = (unsigned char)n;
        f->kind = modelpack_kind_of(path, f->size);
    }
    return n;
}

static void check_documents(const struct modelpack_input *in, const struct strbuf *config,
                            const struct strbuf *manifest)
{
    _cleanup_json_ struct json *c = NULL, *m = NULL;
    struct error err = ERROR_INIT;
    require(json_parse(config->data, config->len, &c, &err) == 0, err.text);
    require(json_parse(manifest->data, manifest->len, &m, &err) == 0, err.text);
    require(json_length(json_get(json_get(c, "modelfs"), "diffIds")) == in->n_files, "diffIds");
    require(json_length(json_get(m, "layers")) == in->n_files, "layers");
}

static void check(struct modelpack_input *in, struct modelpack_file *files)
{
    _cleanup_strbuf_ struct strbuf config = STRBUF_INIT, manifest = STRBUF_INIT,
                                   again_c = STRBUF_INIT, again_m = STRBUF_INIT;
    struct digest cd, md, again_cd, again_md;
    struct error err = ERROR_INIT;
    int rc = modelpack_build(in, &config, &cd, &manifest, &md, &err);
    require(rc == 0 || err.code == ERR_INVALID, err.text);
    for (size_t i = 0; i < in->n_files / 2; i++) {
        struct modelpack_file f = files[i];
        files[i] = files[in->n_files - 1 - i];
        files[in->n_files - 1 - i] = f;
    }
    require(modelpack_build(in, &again_c, &again_cd, &again_m, &again_md, &err) == rc, "order");
    if (rc < 0)
        return;
    require(digest_equal(&md, &again_md) && digest_equal(&cd, &again_cd), "another order");
    check_documents(in, &config, &manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct modelpack_file files[FILES_MAX];
    static const struct weights weights = {.format = WEIGHTS_GGUF, .parameters = 1234567};
    _cleanup_free_ char *text = calloc(1, size + 1);
    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    size_t json = strlen(text);
    const struct modelpack_note notes[] = {{json < size ? text + json + 1 : "x", text}};
    char *paths = strdup(json < size ? text + json + 1 : "model.gguf");
    if (!paths)
        abort();
    static const struct modelpack_model model = {
        .parameters = 1234567,
        .parameters_rule = "a rule",
        .context = 8192,
        .has_cache = true,
        .token_bytes = 1024,
        .window_token_bytes = 512,
        .window = 128,
        .cache_rule = "another",
    };
    struct modelpack_input in = {
        .packager = (unsigned)size % 3,
        .model = size % 5 ? &model : NULL,
        .card = text,
        .card_len = json,
        .repo_id = "org/name",
        .commit = "0123456789012345678901234567890123456789",
        .quant = size % 2 ? "q4_k_m" : NULL,
        .files = files,
        .n_files = split_paths(paths, files),
        .weights = size % 3 ? &weights : NULL,
        .config_json = text,
        .config_json_len = json,
        .notes = notes,
        .n_notes = 1,
    };
    check(&in, files);
    free(paths);
    return 0;
}
