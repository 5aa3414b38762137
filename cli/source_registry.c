/* host[:port]/name[:tag|@digest]: the layers of a model's manifest in a registry, by the names that
 * the manifest gives them (ModelPack, and those that Docker Model Runner and Ollama push). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/log.h"
#include "base/ref.h"
#include "cli/source_private.h"
#include "config/url.h"
#include "model/oci_manifest.h"
#include "model/weights.h"
#include "upstream/oci.h"

struct layer {
    char *path; /* owned */
    struct digest digest;
    uint64_t size;
};

struct artifact {
    struct config *config; /* owned */
    struct oci *oci;       /* owned */
    char name[REPOSITORY_MAX + 1];
    struct layer *layers; /* owned */
    size_t n;
    size_t packed, unnamed;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int challenged(void *ctx, const char *sent, const struct http_response *r, char **ret,
                      struct error *err)
{
    struct artifact *a = ctx;
    return oci_blob_challenged(a->oci, a->name, sent, r, ret, err);
}

static int open_layer(struct source *s, const char *path, struct source_file *f, struct error *err)
{
    struct artifact *a = s->backend;
    const struct layer *layer = NULL;
    struct http_location l = {0};
    for (size_t i = 0; i < a->n && !layer; i++)
        if (strcmp(a->layers[i].path, path) == 0)
            layer = &a->layers[i];
    if (!layer)
        return 0;
    if (oci_blob_location(a->oci, a->name, &layer->digest, &l, err) < 0)
        return -1;
    struct web_file *w = calloc(1, sizeof(*w));
    if (!w) {
        http_location_done(&l);
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    }
    *w = (struct web_file){
        .pool = oci_pool(a->oci),
        .base = TAKE_PTR(l.url),
        .authorization = TAKE_PTR(l.authorization),
        .challenged = challenged,
        .ctx = a,
        .has_size = true,
        .size = layer->size,
    };
    http_location_done(&l);
    f->backend = w;
    f->size = layer->size;
    return 1;
}

static void free_artifact(struct source *s)
{
    struct artifact *a = s->backend;
    if (!a)
        return;
    for (size_t i = 0; i < a->n; i++)
        free(a->layers[i].path);
    free(a->layers);
    oci_free(a->oci);
    config_free(a->config);
    free(a);
}

static struct source_reads reads_of_registry(const struct source *s)
{
    const struct artifact *a = s->backend;
    struct http_pool *pool = oci_pool(a->oci);
    return (struct source_reads){http_pool_bytes(pool), http_pool_requests(pool)};
}

static const struct source_ops registry_ops = {"registry",       open_layer,    web_source_read,
                                               web_source_close, free_artifact, reads_of_registry};

/* ---- the manifest ---------------------------------------------------------------------------- */

/* A path that stays below the artifact: it is printed, and looked up by what stands beside it. */
static bool path_is_safe(const char *path)
{
    size_t n = strlen(path);
    if (n == 0 || n > 4096 || path[0] == '/' || path[n - 1] == '/')
        return false;
    for (const char *p = path; *p;) {
        size_t part = strcspn(p, "/");
        if (part == 0 || (part == 1 && p[0] == '.') || (part == 2 && strncmp(p, "..", 2) == 0))
            return false;
        p += part + (p[part] == '/');
    }
    return true;
}

/* What a layer is called; NULL when nothing says it. buf is used for those that are only known by
 * their media type. */
static const char *layer_name(const struct json *layer, const char *media_type, size_t at,
                              char buf[static 64])
{
    static const char *const keys[] = {"org.cncf.model.filepath", "org.cnai.model.filepath",
                                       "org.opencontainers.image.title"};
    const struct json *annotations = json_get(layer, "annotations");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *name = json_str(json_get(annotations, keys[i]));
        if (name)
            return name;
    }
    if (strstr(media_type, "gguf") || strcmp(media_type, "application/vnd.ollama.image.model") == 0)
        snprintf(buf, 64, "layer-%zu.gguf", at);
    else if (strstr(media_type, "safetensors"))
        snprintf(buf, 64, "layer-%zu.safetensors", at);
    else
        return NULL;
    return buf;
}

/* A file inside an archive has no place of its own in the layer. */
static bool is_packed(const char *media_type)
{
    size_t n = strlen(media_type);
    static const char *const ends[] = {".tar", "+gzip", "+zstd", ".gzip"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(media_type + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static int take_layer(struct source *s, const struct json *layer, size_t at, struct error *err)
{
    struct artifact *a = s->backend;
    const char *media_type = json_str(json_get(layer, "mediaType"));
    const char *digest = json_str(json_get(layer, "digest"));
    struct layer l = {0};
    char made[64], hex[DIGEST_TEXT_MAX];
    if (!media_type || !digest || !json_u64(json_get(layer, "size"), &l.size) ||
        digest_parse(digest, &l.digest, err) < 0)
        return err_set(err, ERR_UPSTREAM, "layer %zu of the manifest is no descriptor", at);
    const char *name = layer_name(layer, media_type, at, made);
    if (!name || is_packed(media_type)) {
        a->unnamed += !name;
        a->packed += name != NULL;
        return 0;
    }
    if (!path_is_safe(name))
        return err_set(err, ERR_UPSTREAM, "layer %zu of the manifest has a path that leads astray",
                       at);
    if (!(l.path = strdup(name)))
        return err_set(err, ERR_NOMEM, "out of memory for a list of layers");
    a->layers[a->n++] = l;
    if (source_add(s, name, l.size, err) < 0)
        return -1;
    if (l.digest.alg == DIGEST_SHA256)
        strcpy(s->entries[s->n - 1].sha256, digest_format_hex(&l.digest, hex));
    return 0;
}

static int take_layers(struct source *s, const struct json *root, struct error *err)
{
    struct artifact *a = s->backend;
    const struct json *layers = json_get(root, "layers");
    size_t at = 0;
    if (!json_is_array(layers))
        return err_set(err, ERR_INVALID, "%s: its manifest has no layers", s->text);
    a->layers = calloc(json_length(layers) + 1, sizeof(*a->layers));
    if (!a->layers)
        return err_set(err, ERR_NOMEM, "out of memory for a list of layers");
    for (const struct json *l = json_first(layers); l; l = json_next(l))
        if (take_layer(s, l, at++, err) < 0)
            return -1;
    if (a->packed || a->unnamed)
        snprintf(s->note, sizeof(s->note),
                 "layers that are archives: %zu, that have no name: %zu; pull the model to look "
                 "into them",
                 a->packed, a->unnamed);
    if (a->n == 0)
        return err_set(err, ERR_INVALID,
                       "%s: none of its %zu layers is a file of a model that can be read in place",
                       s->text, at);
    return 0;
}

/* The one manifest of an index, or which there are. */
static int take_child(const struct source *s, const struct oci_manifest *m, struct digest *ret,
                      struct error *err)
{
    _cleanup_strbuf_ struct strbuf list = STRBUF_INIT;
    if (m->n_parts == 1) {
        *ret = m->parts[0].digest;
        return 0;
    }
    for (size_t i = 0; i < m->n_parts && i < 4; i++)
        strbuf_printf(&list, "%s%s", i ? ", " : "", m->parts[i].digest_text);
    return err_set(err, ERR_INVALID, "%s is an index of %zu manifests, name one of them: %.600s%s",
                   s->text, m->n_parts, strbuf_str(&list), m->n_parts > 4 ? ", ..." : "");
}

static int get_manifest(struct source *s, const struct reference *r, struct error *err)
{
    struct artifact *a = s->backend;
    struct digest wanted = r->digest;
    const char *tag = r->is_digest ? NULL : r->tag;
    for (unsigned depth = 0; depth < 2; depth++) {
        _cleanup_(manifest_done) struct manifest m = {0};
        _cleanup_(oci_manifest_done) struct oci_manifest parsed = {0};
        _cleanup_json_ struct json *root = NULL;
        int rc = oci_get_manifest(a->oci, a->name, tag, tag ? NULL : &wanted, 0, &m, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return err_set(err, ERR_NOT_FOUND, "%s: the registry has no such manifest", s->text);
        if (depth == 0)
            digest_format(&m.digest, s->revision);
        if (oci_manifest_parse(m.media_type, m.bytes, m.len, &parsed, err) < 0)
            return err_wrap(err, "%s: its manifest", s->text);
        if (!parsed.is_index) {
            if (json_parse(m.bytes, m.len, &root, err) < 0)
                return err_wrap(err, "%s: its manifest", s->text);
            return take_layers(s, root, err);
        }
        if (take_child(s, &parsed, &wanted, err) < 0)
            return -1;
        tag = NULL;
    }
    return err_set(err, ERR_INVALID, "%s is an index of an index", s->text);
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* Where docker keeps logins; "" when there is no such file. */
static int docker_config(struct strbuf *to)
{
    const char *folder = getenv("DOCKER_CONFIG"), *home = getenv("HOME");
    if (folder && *folder)
        strbuf_printf(to, "%s/config.json", folder);
    else if (home && *home)
        strbuf_printf(to, "%s/.docker/config.json", home);
    if (!strbuf_failed(to) && to->len && access(to->data, R_OK) < 0)
        strbuf_reset(to);
    return strbuf_failed(to) ? -1 : 0;
}

static int make_client(struct artifact *a, const char *host, bool plain, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT, url = STRBUF_INIT, login = STRBUF_INIT;
    strbuf_printf(&url, "%s://%s", plain ? "http" : "https", host);
    if (strbuf_failed(&url) || docker_config(&login) < 0)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *wrong = url_check(url.data, "http|https", false);
    if (wrong)
        return err_set(err, ERR_INVALID, "the registry %.200s %s", host, wrong);
    strbuf_puts(&text, "{\"upstreams\":[{\"prefix\":\"registry\",\"kind\":\"oci\",\"url\":");
    json_put_string(&text, url.data);
    if (login.len) {
        json_put_key(&text, "docker_config");
        json_put_string(&text, login.data);
    }
    strbuf_puts(&text, "}]}");
    if (strbuf_failed(&text))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (config_parse_text("the registry", text.data, text.len, &a->config, err) < 0)
        return -1;
    for (size_t i = 0; i < a->config->n_upstreams; i++) {
        struct config_upstream *u = &a->config->upstreams[i];
        if (strcmp(u->prefix, "registry") != 0)
            continue;
        u->proxy_from_environment = true;
        return oci_new(u, &a->oci, err);
    }
    return err_set(err, ERR_INTERNAL, "the registry's own settings are gone");
}

/* A host's name before a repository's. Docker's short names are left out: docker.io/library/x is
 * written in full. A file that is not there, in a folder with a dot in its name, is not meant. */
bool source_is_reference(const char *text)
{
    const char *slash = strchr(text, '/');
    struct reference r;
    char host[300];
    bool is_exact = strchr(text, '@') || strrchr(text, ':') > slash;
    if (!slash || slash == text || text[0] == '.' || (size_t)(slash - text) >= sizeof(host))
        return false;
    memcpy(host, text, (size_t)(slash - text));
    host[slash - text] = '\0';
    if (!strpbrk(host, ".:") && strcasecmp(host, "localhost") != 0)
        return false;
    if (is_exact || strchr(host, ':')) /* whatever is wrong with the rest of it */
        return true;
    return weights_format_of(text) == WEIGHTS_UNKNOWN && reference_parse(slash + 1, &r, NULL) == 0;
}

int source_open_registry(struct source *s, const char *text, bool plain_http, struct error *err)
{
    const char *slash = strchr(text, '/');
    struct reference reference;
    struct artifact *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->backend = a;
    s->ops = &registry_ops;
    if (!slash || slash == text)
        return err_set(err, ERR_INVALID, "%.200s: expected host[:port]/name[:tag|@digest]", text);
    if (reference_parse(slash + 1, &reference, err) < 0)
        return err_wrap(err, "%.200s", text);
    _cleanup_free_ char *host = strndup(text, (size_t)(slash - text));
    if (!host)
        return err_set(err, ERR_NOMEM, "out of memory");
    /* "http://" before it makes it a URL as far as the host goes. */
    _cleanup_free_ char *url = NULL;
    if (asprintf(&url, "http://%s", host) < 0) {
        url = NULL;
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    const char *wrong = url_check(url, "http|https", false);
    if (wrong)
        return err_set(err, ERR_INVALID, "the registry's name %.200s %s", host, wrong);
    _cleanup_free_ char *bare = url_host(url);
    bool plain = plain_http || (bare && url_host_is_loopback(bare));
    strcpy(a->name, reference.repository);
    if (make_client(a, host, plain, err) < 0)
        return -1;
    return get_manifest(s, &reference, err);
}
