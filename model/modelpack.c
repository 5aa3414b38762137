#include "model/modelpack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/modelpack_config.h"
#include "model/select.h"

#define MANIFEST_MAX (4u << 20) /* registries and clients refuse larger ones */
#define NOTES_MAX 100           /* more than that are only counted */
#define REASON_MAX 400          /* bytes of a note's text */

static const char *media_type(enum modelpack_kind kind)
{
    switch (kind) {
    case MODELPACK_WEIGHT_CONFIG:
        return "application/vnd.cncf.model.weight.config.v1.raw";
    case MODELPACK_WEIGHT:
        return "application/vnd.cncf.model.weight.v1.raw";
    case MODELPACK_CODE:
        return "application/vnd.cncf.model.code.v1.raw";
    case MODELPACK_DOC:
        break;
    }
    return "application/vnd.cncf.model.doc.v1.raw";
}

/* ---- the input ---- */

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

/* Clients join the path to a folder of theirs, some without a look (modctl's raw codec). */
static int check_path(const char *path, struct error *err)
{
    const char *part = path;
    if (!path[0] || !utf8_is_valid(path, strlen(path)))
        return err_set(err, ERR_INVALID, "a path is empty or not UTF-8");
    for (const char *p = path; *p; p++)
        if (is_control((unsigned char)*p) || *p == '\\')
            return err_set(err, ERR_INVALID, "a path has a control character or a backslash");
    while (part) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && memcmp(part, "..", 2) == 0))
            return err_set(err, ERR_INVALID, "the path %.200s leads out of its folder", path);
        part = part[n] ? part + n + 1 : NULL;
    }
    return 0;
}

static int compare_layers(const void *pa, const void *pb)
{
    const struct modelpack_file *a = *(const struct modelpack_file *const *)pa;
    const struct modelpack_file *b = *(const struct modelpack_file *const *)pb;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return strcmp(a->path, b->path);
}

static int compare_paths(const void *pa, const void *pb)
{
    const struct modelpack_file *a = *(const struct modelpack_file *const *)pa;
    const struct modelpack_file *b = *(const struct modelpack_file *const *)pb;
    return strcmp(a->path, b->path);
}

/* The files in the order of the layers, every path checked and each there once. */
static int order_files(const struct modelpack_input *in, const struct modelpack_file **layers,
                       struct error *err)
{
    for (size_t i = 0; i < in->n_files; i++) {
        const struct modelpack_file *f = &in->files[i];
        if (check_path(f->path, err) < 0)
            return -1;
        if (f->digest.alg != DIGEST_SHA256)
            return err_set(err, ERR_INTERNAL, "%s has no sha256", f->path);
        layers[i] = f;
    }
    qsort(layers, in->n_files, sizeof(*layers), compare_paths);
    for (size_t i = 1; i < in->n_files; i++)
        if (strcmp(layers[i - 1]->path, layers[i]->path) == 0)
            return err_set(err, ERR_INVALID, "the file %.200s is there twice", layers[i]->path);
    qsort(layers, in->n_files, sizeof(*layers), compare_layers);
    return 0;
}

/* ---- the manifest ---- */

static void put_descriptor(struct strbuf *b, const char *type, const struct digest *digest,
                           uint64_t size)
{
    char text[DIGEST_TEXT_MAX];
    json_put_text(b, "mediaType", type);
    json_put_text(b, "digest", digest_format(digest, text));
    json_put_number(b, "size", size);
}

/* The file's attributes, the same for every file: there are none on the Hub. */
static void put_metadata(struct strbuf *b, const struct modelpack_file *f)
{
    const char *slash = strrchr(f->path, '/');
    _cleanup_strbuf_ struct strbuf m = STRBUF_INIT;
    strbuf_putc(&m, '{');
    json_put_text(&m, "name", slash ? slash + 1 : f->path);
    strbuf_puts(&m, ",\"mode\":420,\"uid\":0,\"gid\":0,\"size\":");
    json_put_u64(&m, f->size);
    strbuf_puts(&m, ",\"mtime\":\"1970-01-01T00:00:00Z\",\"typeflag\":0}");
    json_put_text(b, "org.cncf.model.file.metadata+json", strbuf_str(&m));
    b->failed = b->failed || m.failed;
}

static void put_layer(struct strbuf *b, const struct modelpack_file *f)
{
    json_put_separator(b);
    strbuf_putc(b, '{');
    put_descriptor(b, media_type(f->kind), &f->digest, f->size);
    json_put_key(b, "annotations");
    strbuf_putc(b, '{');
    json_put_text(b, "org.cncf.model.file.mediatype.untested", "false");
    put_metadata(b, f);
    json_put_text(b, "org.cncf.model.filepath", f->path);
    json_put_text(b, "org.opencontainers.image.title", f->path);
    strbuf_puts(b, "}}");
}

static int compare_notes(const void *pa, const void *pb)
{
    const struct modelpack_note *a = pa, *b = pb;
    int c = strcmp(a->path, b->path);
    return c ? c : strcmp(a->reason, b->reason);
}

/* Files that could not be inspected, by path: org.weighbridge.uninspected.001 and on. */
static int put_notes(struct strbuf *b, const struct modelpack_input *in,
                     const struct modelpack_unread *unread, struct error *err)
{
    size_t n = in->n_notes + unread->n;
    if (!n)
        return 0;
    _cleanup_free_ struct modelpack_note *notes = calloc(n, sizeof(*notes));
    if (!notes)
        return err_set(err, ERR_NOMEM, "out of memory for %zu notes", n);
    if (in->n_notes)
        memcpy(notes, in->notes, in->n_notes * sizeof(*notes));
    if (unread->n)
        memcpy(notes + in->n_notes, unread->notes, unread->n * sizeof(*notes));
    qsort(notes, n, sizeof(*notes), compare_notes);
    for (size_t i = 0; i < n && i < NOTES_MAX; i++) {
        _cleanup_strbuf_ struct strbuf key = STRBUF_INIT, text = STRBUF_INIT;
        strbuf_printf(&key, "org.weighbridge.uninspected.%03zu", i + 1);
        strbuf_printf(&text, "%s: %s", notes[i].path, notes[i].reason);
        size_t len = text.len < REASON_MAX ? text.len : REASON_MAX;
        while (len < text.len && ((unsigned char)text.data[len] & 0xc0) == 0x80)
            len--; /* not in the middle of a character */
        json_put_key(b, strbuf_str(&key));
        json_put_string_n(b, strbuf_str(&text), len);
        b->failed = b->failed || key.failed || text.failed;
    }
    if (n > NOTES_MAX) {
        json_put_key(b, "org.weighbridge.uninspected.more");
        strbuf_printf(b, "\"%zu\"", n - NOTES_MAX);
    }
    return 0;
}

/* ---- what schedulers read: packager 2 ---- */

#define NAMESPACE "org.weighbridge.model."

static void put_count(struct strbuf *b, const char *key, uint64_t n)
{
    if (!n)
        return;
    json_put_key(b, key);
    strbuf_printf(b, "\"%" PRIu64 "\"", n);
}

static void put_document(struct strbuf *b, const char *key, struct strbuf *text)
{
    json_put_text(b, key, strbuf_str(text));
    b->failed = b->failed || text->failed;
}

static void put_types(struct strbuf *b, const struct weights *w)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (!w->n_types)
        return;
    strbuf_putc(&text, '{');
    for (size_t i = 0; i < w->n_types; i++) {
        const struct dtype_total *t = &w->types[i];
        json_put_key(&text, t->name);
        strbuf_putc(&text, '{');
        json_put_number(&text, "tensors", t->tensors);
        json_put_number(&text, "elements", t->elements);
        json_put_number(&text, "bytes", t->bytes);
        strbuf_putc(&text, '}');
    }
    strbuf_putc(&text, '}');
    put_document(b, NAMESPACE "dtypes+json", &text);
}

static void put_cache(struct strbuf *b, const struct modelpack_model *m)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    strbuf_putc(&text, '{');
    json_put_text(&text, "type", "f16");
    json_put_number(&text, "tokenBytes", m->token_bytes);
    if (m->window_token_bytes) {
        json_put_number(&text, "windowTokenBytes", m->window_token_bytes);
        json_put_number(&text, "window", m->window);
    }
    if (m->sequence_bytes)
        json_put_number(&text, "sequenceBytes", m->sequence_bytes);
    json_put_text(&text, "rule", m->cache_rule);
    strbuf_putc(&text, '}');
    put_document(b, NAMESPACE "kv-cache+json", &text);
}

static void put_model(struct strbuf *b, const struct modelpack_input *in)
{
    static const struct modelpack_model nothing;
    const struct modelpack_model *m = in->model ? in->model : &nothing;
    put_count(b, NAMESPACE "context-length", m->context);
    if (in->weights)
        put_types(b, in->weights);
    if (m->has_cache) {
        put_count(b, NAMESPACE "kv-bytes-per-token", m->token_bytes + m->window_token_bytes);
        put_cache(b, m);
    }
    put_count(b, NAMESPACE "parameters", m->parameters);
    if (m->parameters)
        json_put_text(b, NAMESPACE "parameters-rule", m->parameters_rule);
    if (in->weights) {
        put_count(b, NAMESPACE "tensor-bytes", in->weights->tensor_bytes);
        put_count(b, NAMESPACE "tensors", in->weights->tensors);
    }
}

/* Keys in their order of bytes, as Go writes a map. */
static int put_annotations(struct strbuf *b, const struct modelpack_input *in,
                           const struct modelpack_unread *unread, struct error *err)
{
    char label[QUANT_LABEL_MAX], packager[16];
    json_put_key(b, "annotations");
    strbuf_putc(b, '{');
    json_put_text(b, "org.weighbridge.hub.commit", in->commit);
    json_put_text(b, "org.weighbridge.hub.repository", in->repo_id);
    if (in->packager > 1)
        put_model(b, in);
    snprintf(packager, sizeof(packager), "%u", in->packager);
    json_put_text(b, "org.weighbridge.packager", packager);
    if (in->quant) /* in one spelling: q4_k_m and Q4_K_M are the same selection */
        json_put_text(b, "org.weighbridge.selection",
                      quant_label_parse(in->quant, label) ? label : in->quant);
    if (put_notes(b, in, unread, err) < 0)
        return -1;
    strbuf_putc(b, '}');
    return 0;
}

static int put_manifest(struct strbuf *b, const struct modelpack_input *in,
                        const struct modelpack_file *const *layers, const struct digest *config,
                        uint64_t config_size, const struct modelpack_unread *unread,
                        struct error *err)
{
    strbuf_puts(b, "{\"schemaVersion\":2");
    json_put_text(b, "mediaType", MODELPACK_MANIFEST_TYPE);
    json_put_text(b, "artifactType", MODELPACK_ARTIFACT_TYPE);
    json_put_key(b, "config");
    strbuf_putc(b, '{');
    put_descriptor(b, MODELPACK_CONFIG_TYPE, config, config_size);
    strbuf_putc(b, '}');
    json_put_key(b, "layers");
    strbuf_putc(b, '[');
    for (size_t i = 0; i < in->n_files; i++)
        put_layer(b, layers[i]);
    strbuf_putc(b, ']');
    if (put_annotations(b, in, unread, err) < 0)
        return -1;
    strbuf_putc(b, '}');
    if (strbuf_failed(b))
        return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu files", in->n_files);
    if (b->len > MANIFEST_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "the manifest of %zu files has %zu bytes, clients take at most %u: choose "
                       "fewer files with the include and exclude globs of the upstream",
                       in->n_files, b->len, MANIFEST_MAX);
    return 0;
}

static int build(const struct modelpack_input *in, struct strbuf *ret_config,
                 struct digest *ret_config_digest, struct strbuf *ret_manifest,
                 struct digest *ret_manifest_digest, struct error *err)
{
    _cleanup_strbuf_ struct strbuf config = STRBUF_INIT, manifest = STRBUF_INIT;
    struct digest config_digest, manifest_digest;
    struct modelpack_unread unread;
    if (in->n_files == 0 || !in->repo_id[0] || in->repo_id[strlen(in->repo_id) - 1] == '/')
        return err_set(err, ERR_INVALID, "a manifest needs a repository's name and one file");
    _cleanup_free_ const struct modelpack_file **layers = calloc(in->n_files, sizeof(*layers));
    if (!layers)
        return err_set(err, ERR_NOMEM, "out of memory for %zu layers", in->n_files);
    if (order_files(in, layers, err) < 0 ||
        modelpack_put_config(in, layers, &config, &unread, err) < 0)
        return -1;
    if (strbuf_failed(&config))
        return err_set(err, ERR_NOMEM, "out of memory for the config of %zu files", in->n_files);
    if (digest_of(DIGEST_SHA256, config.data, config.len, &config_digest, err) < 0 ||
        put_manifest(&manifest, in, layers, &config_digest, config.len, &unread, err) < 0 ||
        digest_of(DIGEST_SHA256, manifest.data, manifest.len, &manifest_digest, err) < 0)
        return -1;
    strbuf_put(ret_config, config.data, config.len);
    strbuf_put(ret_manifest, manifest.data, manifest.len);
    if (strbuf_failed(ret_config) || strbuf_failed(ret_manifest))
        return err_set(err, ERR_NOMEM, "out of memory for the documents of %zu files", in->n_files);
    *ret_config_digest = config_digest;
    *ret_manifest_digest = manifest_digest;
    return 0;
}

int modelpack_build(const struct modelpack_input *in, struct strbuf *ret_config,
                    struct digest *ret_config_digest, struct strbuf *ret_manifest,
                    struct digest *ret_manifest_digest, struct error *err)
{
    struct modelpack_input one = *in;
    if (!one.packager)
        one.packager = MODELPACK_PACKAGERS;
    if (one.packager > MODELPACK_PACKAGERS)
        return err_set(err, ERR_INTERNAL, "there is no packager %u", one.packager);
    return build(&one, ret_config, ret_config_digest, ret_manifest, ret_manifest_digest, err);
}
