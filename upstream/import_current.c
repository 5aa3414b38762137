/* Whether what is stored for a commit and a selection is what a build would give now. It is not
 * when the policy selects other files, when the repository has been renamed (its id is part of the
 * documents), or when another packager version made it. Costs no request. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char *annotation(const struct json *object, const char *key)
{
    return json_str(json_get(json_get(object, "annotations"), key));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* 1 when the manifest's layers are exactly the selected files, 0 when not, -1. */
static int same_files(const struct json *manifest, const struct select_file *files, size_t n,
                      struct error *err)
{
    const struct json *layers = json_get(manifest, "layers");
    size_t n_layers = json_length(layers), i = 0, k = 0;
    _cleanup_free_ const char **paths = calloc(n_layers ? n_layers : 1, sizeof(*paths));
    if (!paths)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (const struct json *l = json_first(layers); l && i < n_layers; l = json_next(l)) {
        paths[i] = annotation(l, "org.cncf.model.filepath");
        if (!paths[i++])
            return 0;
    }
    qsort(paths, n_layers, sizeof(*paths), by_text);
    for (i = 0; i < n; i++)
        if (files[i].selected && (k == n_layers || strcmp(files[i].path, paths[k++]) != 0))
            return 0;
    return k == n_layers;
}

static bool says(const struct json *manifest, const char *key, const char *value)
{
    const char *text = annotation(manifest, key);
    return text && strcmp(text, value) == 0;
}

/* Whether a weight file could not be inspected. (A bad config.json is noted as well, and no matter
 * of the inspection policy.) */
static bool has_note(const struct json *manifest)
{
    static const char prefix[] = "org.weighbridge.uninspected.";
    const struct json *a = json_first(json_get(manifest, "annotations"));
    for (; a; a = json_next(a)) {
        const char *text = json_str(a);
        if (strncmp(json_key(a), prefix, sizeof(prefix) - 1) == 0 && text &&
            strncmp(text, "config.json: ", 13) != 0)
            return true;
    }
    return false;
}

/* alg is DIGEST_NONE when it names none. */
static struct digest config_of(const struct json *manifest)
{
    const char *text = json_str(json_get(json_get(manifest, "config"), "digest"));
    struct digest d;
    return text && digest_parse(text, &d, NULL) == 0 ? d : (struct digest){0};
}

static int config_is_held(struct store *s, const struct digest *config, struct error *err)
{
    uint64_t size;
    return config->alg != DIGEST_NONE ? store_blob_stat(s, config, &size, err) : 1;
}

/* ---- which config a manifest names ------------------------------------------------------------
 * Asked on every pull by tag, and parsing the manifest would take longer than all the rest of the
 * answer. A manifest's digest settles it for good, so what is remembered can not be out of date. */

int config_table_init(struct config_table *t, struct error *err)
{
    return pthread_mutex_init(&t->lock, NULL) == 0 ? 0
                                                   : err_set(err, ERR_NOMEM, "cannot make a lock");
}

void config_table_done(struct config_table *t)
{
    pthread_mutex_destroy(&t->lock);
}

static struct config_entry *entry_of(struct config_table *t, const struct digest *manifest)
{
    return &t->entries[manifest->raw[0]];
}

static bool recall(struct config_table *t, const struct digest *manifest, struct digest *ret)
{
    pthread_mutex_lock(&t->lock);
    const struct config_entry *e = entry_of(t, manifest);
    bool known = digest_equal(&e->manifest, manifest);
    if (known)
        *ret = e->config;
    pthread_mutex_unlock(&t->lock);
    return known;
}

static void remember(struct config_table *t, const struct digest *manifest,
                     const struct digest *config)
{
    pthread_mutex_lock(&t->lock);
    *entry_of(t, manifest) = (struct config_entry){.manifest = *manifest, .config = *config};
    pthread_mutex_unlock(&t->lock);
}

int import_is_whole(struct importer *i, const struct manifest *m, struct error *err)
{
    struct digest config = {0};
    if (!recall(&i->configs, &m->digest, &config)) {
        _cleanup_json_ struct json *document = NULL;
        if (json_parse(m->bytes, m->len, &document, NULL) < 0)
            return 1; /* none of ours: nothing to be made */
        config = config_of(document);
        remember(&i->configs, &m->digest, &config);
    }
    return config_is_held(i->store, &config, err);
}

static int is_current(const struct build *b, const struct manifest *m, struct error *err)
{
    struct store *s = b->importer->store;
    _cleanup_json_ struct json *document = NULL;
    if (json_parse(m->bytes, m->len, &document, NULL) < 0)
        return 0;
    if (!says(document, "org.weighbridge.packager", MODELPACK_PACKAGER) ||
        !says(document, "org.weighbridge.hub.repository", b->revision->id) ||
        !says(document, "org.weighbridge.hub.commit", b->revision->commit))
        return 0;
    if (hub_config(b->hub)->inspection_required && has_note(document))
        return 0; /* imported under another policy */
    struct digest config = config_of(document);
    int rc = config_is_held(s, &config, err);
    if (rc <= 0)
        return rc;
    struct commit_files list = {0};
    rc = store_commit_files_get(s, hub_config(b->hub)->prefix, b->revision->id, b->revision->commit,
                                &list, err);
    if (rc <= 0)
        return rc;
    struct select_file *selected = NULL;
    struct error refused = ERROR_INIT;
    /* What the policy refuses now is for the build to say. */
    rc = build_select(b, &list, &selected, &refused) < 0
             ? 0
             : same_files(document, selected, list.n, err);
    free(selected);
    commit_files_done(&list);
    return rc;
}

int build_find(const struct build *b, struct import_result *ret, struct error *err)
{
    struct store *s = b->importer->store;
    char commit_tag[COMMIT_TAG_MAX];
    struct tag tag;
    struct manifest manifest;
    build_commit_tag(b, commit_tag);
    int rc = store_tag_get(s, b->repository, commit_tag, &tag, err);
    if (rc <= 0)
        return rc;
    rc = store_manifest_get(s, b->repository, &tag.digest, &manifest, err);
    if (rc <= 0)
        return rc;
    rc = is_current(b, &manifest, err);
    manifest_done(&manifest);
    if (rc <= 0)
        return rc;
    ret->manifest = tag.digest;
    memcpy(ret->commit, b->revision->commit, sizeof(ret->commit));
    return 1;
}
