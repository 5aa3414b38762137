/* One commit and one selection -> manifest, config blob, links, one transaction. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#include "model/kv_cache.h"
#include "upstream/hub_identity.h"

/* Everything that one build holds while it runs. */
struct work_set {
    const struct build *build;
    struct commit_files list; /* sorted by path */
    bool list_stored;
    struct select_file *selected; /* one for each of the list's files */
    size_t n_selected;
    struct want *wants;
    size_t n_wants;
    struct modelpack_file *files;
    struct modelpack_note *notes;
    size_t n_notes;
    struct import_link *links; /* config blob first */
    size_t n_links;
    struct strbuf config, manifest;
    struct digest config_digest, manifest_digest;
    bool is_old;    /* documents of an earlier packager: no tag leads to them */
    bool by_policy; /* see struct outcome */
};

static void work_set_done(struct work_set *w)
{
    commit_files_done(&w->list);
    free(w->selected);
    wants_free(w->wants, w->n_wants);
    free(w->files);
    free(w->notes);
    free(w->links);
    strbuf_done(&w->config);
    strbuf_done(&w->manifest);
}
#define _cleanup_work_set_ _cleanup_(work_set_done)

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory");
}

/* ---- which files ----------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct commit_file *)a)->path, ((const struct commit_file *)b)->path);
}

int build_select(const struct build *b, struct commit_files *list, struct select_file **ret,
                 struct error *err)
{
    const struct config_upstream *c = hub_config(b->hub);
    const struct select_policy policy = {
        .include = (const char *const *)c->include.items,
        .n_include = c->include.n,
        .exclude = (const char *const *)c->exclude.items,
        .n_exclude = c->exclude.n,
        .allow_pickle = c->allow_pickle,
    };
    if (list->n)
        qsort(list->files, list->n, sizeof(*list->files), by_path);
    _cleanup_free_ struct select_file *files = calloc(list->n ? list->n : 1, sizeof(*files));
    if (!files)
        return no_memory(err);
    for (size_t i = 0; i < list->n; i++) {
        files[i] = (struct select_file){.path = list->files[i].path, .size = list->files[i].size};
        if (i > 0 && strcmp(files[i - 1].path, files[i].path) == 0)
            return err_set(err, ERR_UPSTREAM, "%s at %.12s: the Hub lists %s twice",
                           b->revision->id, b->revision->commit, files[i].path);
    }
    if (select_files(files, list->n, &policy, b->quant, err) < 0 ||
        policy_apply(b, files, list->n, err) < 0)
        return err_wrap(err, "%s at %.12s", b->revision->id, b->revision->commit);
    *ret = TAKE_PTR(files);
    return 0;
}

static int load_list(struct work_set *w, struct error *err)
{
    const struct build *b = w->build;
    const char *id = b->revision->id, *commit = b->revision->commit;
    int rc = store_commit_files_get(b->importer->store, hub_config(b->hub)->prefix, id, commit,
                                    &w->list, err);
    if (rc < 0)
        return -1;
    w->list_stored = rc > 0;
    if (rc == 0 && hub_files(b->hub, id, commit, &w->list, err) < 0)
        return -1;
    if (build_select(b, &w->list, &w->selected, err) < 0) {
        w->by_policy = err->code != ERR_NOMEM;
        return -1;
    }
    for (size_t i = 0; i < w->list.n; i++)
        w->n_selected += w->selected[i].selected;
    return 0;
}

/* ---- a manifest that nobody would take ------------------------------------------------------- */

#define SURELY_SHORT 1000 /* so few files never make a manifest too long */

/* The manifest's length does not depend on what the files hold, so one that is too long can be told
 * before thousands of small files are asked for: by writing it with digests of nothing. */
static int check_length(struct work_set *w, struct error *err)
{
    const struct build *b = w->build;
    size_t n = 0;
    if (w->n_selected <= SURELY_SHORT)
        return 0;
    _cleanup_strbuf_ struct strbuf config = STRBUF_INIT, manifest = STRBUF_INIT;
    struct digest ignored[2];
    _cleanup_free_ struct modelpack_file *files = calloc(w->n_selected, sizeof(*files));
    if (!files)
        return no_memory(err);
    for (size_t i = 0; i < w->list.n; i++) {
        const struct commit_file *f = &w->list.files[i];
        if (w->selected[i].selected)
            files[n++] = (struct modelpack_file){.path = f->path,
                                                 .size = f->size,
                                                 .digest = {.alg = DIGEST_SHA256},
                                                 .kind = modelpack_kind_of(f->path, f->size)};
    }
    const struct modelpack_input in = {.repo_id = b->revision->id,
                                       .commit = b->revision->commit,
                                       .quant = b->quant,
                                       .files = files,
                                       .n_files = n};
    if (modelpack_build(&in, &config, &ignored[0], &manifest, &ignored[1], err) == 0)
        return 0;
    w->by_policy = err->code == ERR_TOO_LARGE;
    return err_wrap(err, "%s at %.12s", b->revision->id, b->revision->commit);
}

/* ---- what has to be read --------------------------------------------------------------------- */

static bool is_parsed_format(enum weights_format f)
{
    return f == WEIGHTS_SAFETENSORS || f == WEIGHTS_GGUF;
}

/* The configuration to the front: headers are counted by it. */
static void put_config_first(struct work_set *w)
{
    for (size_t i = 1; i < w->n_wants; i++)
        if (w->wants[i].is_config) {
            struct want config = w->wants[i];
            memmove(w->wants + 1, w->wants, i * sizeof(config));
            w->wants[0] = config;
        }
}

static int list_wants(struct work_set *w, struct error *err)
{
    w->wants = calloc(w->n_selected + 2, sizeof(*w->wants)); /* + what is wanted unselected */
    if (!w->wants)
        return no_memory(err);
    for (size_t i = 0; i < w->list.n; i++) {
        struct commit_file *f = &w->list.files[i];
        enum weights_format format = weights_format_of(f->path);
        bool is_layer = w->selected[i].selected;
        bool is_read = is_layer || f->size <= TEXT_MAX; /* else it would be thrown away */
        struct want want = {
            .file = f,
            .is_layer = is_layer,
            .is_config = is_read && strcmp(f->path, "config.json") == 0,
            .is_card = is_read && strcmp(f->path, "README.md") == 0,
            .inspect = is_layer && is_parsed_format(format) ? format : WEIGHTS_UNKNOWN,
        };
        if (want.is_config || want.is_card || want.inspect != WEIGHTS_UNKNOWN ||
            (want.is_layer && !f->has_lfs))
            w->wants[w->n_wants++] = want;
    }
    put_config_first(w);
    return 0;
}

static int check_policy(struct work_set *w, struct error *err)
{
    const struct build *b = w->build;
    if (!hub_config(b->hub)->inspection_required)
        return 0;
    for (size_t i = 0; i < w->n_wants; i++) {
        if (w->wants[i].inspection != INSPECTION_FAILED)
            continue;
        w->by_policy = true;
        return err_set(err, ERR_DENIED,
                       "%s at %.12s: %s cannot be inspected (%s), and the upstream \"%s\" has "
                       "inspection \"required\"; with inspection \"best-effort\" it is "
                       "imported with a note",
                       b->revision->id, b->revision->commit, w->wants[i].file->path,
                       w->wants[i].reason, hub_config(b->hub)->prefix);
    }
    return 0;
}

static int read_all(struct work_set *w, struct error *err)
{
    const struct build *b = w->build;
    if (list_wants(w, err) < 0)
        return -1;
    struct reading reading = {
        .store = b->importer->store,
        .hub = b->hub,
        .big_headers = &b->importer->big_headers,
        .repo_id = b->revision->id,
        .commit = b->revision->commit,
        .cache = b->cache,
        .wants = w->wants,
        .n = w->n_wants,
    };
    if (reading_run(&reading, err) < 0)
        return err_wrap(err, "import of %s at %.12s", b->revision->id, b->revision->commit);
    return check_policy(w, err);
}

/* ---- the documents --------------------------------------------------------------------------- */

/* The facts of the model, 0 when they are not known. Totals over a part of the files would be
 * wrong: a file that could not be inspected leaves them out. */
static int sum_up(struct work_set *w, struct model_facts *ret, struct error *err)
{
    size_t n = 0;
    _cleanup_free_ struct sum_file *files = calloc(w->n_wants ? w->n_wants : 1, sizeof(*files));
    if (!files)
        return no_memory(err);
    for (size_t i = 0; i < w->n_wants; i++) {
        const struct want *want = &w->wants[i];
        if (want->inspection == INSPECTION_FAILED)
            return 0;
        if (want->inspection == INSPECTION_DONE)
            files[n++] = (struct sum_file){.path = want->file->path, .facts = want->facts};
    }
    return facts_sum(files, n, ret, err);
}

static int list_files(struct work_set *w, struct error *err)
{
    w->files = calloc(w->n_selected ? w->n_selected : 1, sizeof(*w->files));
    w->notes = calloc(w->n_wants ? w->n_wants : 1, sizeof(*w->notes));
    if (!w->files || !w->notes)
        return no_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < w->list.n; i++) {
        const struct commit_file *f = &w->list.files[i];
        if (!w->selected[i].selected)
            continue;
        if (f->sha256.alg != DIGEST_SHA256)
            return err_set(err, ERR_INTERNAL, "%s: no sha256 after reading it", f->path);
        w->files[n++] = (struct modelpack_file){
            .path = f->path,
            .size = f->size,
            .digest = f->sha256,
            .kind = modelpack_kind_of(f->path, f->size),
        };
    }
    for (size_t i = 0; i < w->n_wants; i++)
        if (w->wants[i].inspection == INSPECTION_FAILED)
            w->notes[w->n_notes++] = (struct modelpack_note){.path = w->wants[i].file->path,
                                                             .reason = w->wants[i].reason};
    return 0;
}

static const struct strbuf *text_of(const struct work_set *w, bool config)
{
    for (size_t i = 0; i < w->n_wants; i++)
        if (w->wants[i].has_text && w->wants[i].is_config == config)
            return &w->wants[i].text;
    return NULL;
}

/* The rule by which the model's parameters were counted, over all files. */
static int put_parameters(const struct model_facts *sum, const struct strbuf *config,
                          struct modelpack_model *ret, struct error *err)
{
    struct quantization q = {0};
    struct error e = ERROR_INIT;
    struct parameter_count count = sum->parameters;
    bool readable = config && quantization_read(strbuf_str(config), config->len, &q, &e) == 0;
    parameters_end(&count, readable ? &q : NULL);
    quantization_done(&q);
    ret->parameters = count.logical;
    memcpy(ret->parameters_rule, count.rule, sizeof(ret->parameters_rule));
    return e.code == ERR_NOMEM ? err_set(err, e.code, "%s", e.text) : 0;
}

/* What weights and config.json say together. A safetensors file does not tell its model's shape,
 * and what a GGUF says of itself is nearer to it than a config.json beside it. */
static int describe(const struct model_facts *sum, const struct strbuf *config,
                    struct modelpack_model *ret, struct error *err)
{
    struct model_shape shape = {0};
    struct error e = ERROR_INIT;
    int rc = 0;
    memset(ret, 0, sizeof(*ret));
    if (sum)
        *ret = sum->cache;
    if (!ret->has_cache && config) {
        rc = shape_from_config(strbuf_str(config), config->len, &shape, &e);
        if (rc == 0)
            facts_of_shape(&shape, ret);
        shape_done(&shape);
        rc = rc < 0 && e.code == ERR_NOMEM ? err_set(err, e.code, "%s", e.text) : 0;
    }
    if (!ret->context && sum)
        ret->context = sum->weights.context_length;
    if (rc == 0 && sum && sum->parameters.logical)
        rc = put_parameters(sum, config, ret, err);
    return rc;
}

static int write_documents(struct work_set *w, unsigned packager, struct error *err)
{
    const struct build *b = w->build;
    struct model_facts sum;
    struct modelpack_model model;
    const struct strbuf *config = text_of(w, true), *card = text_of(w, false);
    int known = sum_up(w, &sum, err);
    if (known < 0 || (!w->files && list_files(w, err) < 0) ||
        describe(known ? &sum : NULL, config, &model, err) < 0)
        return -1;
    const struct modelpack_input in = {
        .packager = packager,
        .repo_id = b->revision->id,
        .commit = b->revision->commit,
        .quant = b->quant,
        .files = w->files,
        .n_files = w->n_selected,
        .weights = known ? &sum.weights : NULL,
        .model = &model,
        .config_json = config ? strbuf_str(config) : NULL,
        .config_json_len = config ? config->len : 0,
        .card = card ? strbuf_str(card) : NULL,
        .card_len = card ? card->len : 0,
        .notes = w->notes,
        .n_notes = w->n_notes,
    };
    strbuf_reset(&w->config);
    strbuf_reset(&w->manifest);
    if (modelpack_build(&in, &w->config, &w->config_digest, &w->manifest, &w->manifest_digest,
                        err) < 0) {
        w->by_policy = err->code == ERR_TOO_LARGE;
        return err_wrap(err, "%s at %.12s", b->revision->id, b->revision->commit);
    }
    return 0;
}

/* ---- the transaction ------------------------------------------------------------------------- */

static int by_digest(const void *a, const void *b)
{
    const struct import_link *x = a, *y = b;
    int c = memcmp(x->digest.raw, y->digest.raw, sizeof(x->digest.raw));
    return c ? c : strcmp(x->path, y->path);
}

/* Two paths with the same bytes are two layers and one link. */
static int list_links(struct work_set *w, struct error *err)
{
    w->links = calloc(w->n_selected + 1, sizeof(*w->links));
    if (!w->links)
        return no_memory(err);
    struct import_link *layers = w->links + 1;
    size_t n = 0;
    for (size_t i = 0; i < w->n_selected; i++)
        layers[i] = (struct import_link){
            .digest = w->files[i].digest, .size = w->files[i].size, .path = w->files[i].path};
    qsort(layers, w->n_selected, sizeof(*layers), by_digest);
    for (size_t i = 0; i < w->n_selected; i++) {
        if (n == 0 || !digest_equal(&layers[n - 1].digest, &layers[i].digest))
            layers[n++] = layers[i];
        else if (layers[n - 1].size != layers[i].size)
            return err_set(err, ERR_UPSTREAM,
                           "%s at %.12s: the Hub lists %s and %s with one sha256 and two sizes",
                           w->build->revision->id, w->build->revision->commit, layers[n - 1].path,
                           layers[i].path);
    }
    w->links[0] = (struct import_link){.digest = w->config_digest, .size = w->config.len};
    w->n_links = n + 1;
    return 0;
}

static int commit(struct work_set *w, struct error *err)
{
    const struct build *b = w->build;
    struct store *s = b->importer->store;
    struct digest stored;
    char commit_tag[COMMIT_TAG_MAX];
    build_commit_tag(b, commit_tag);
    const char *tags[2] = {commit_tag, b->tag};
    size_t n_tags = b->tag && strcmp(b->tag, commit_tag) != 0 ? 2 : 1;
    bool learned = false;
    for (size_t i = 0; i < w->n_wants; i++)
        learned = learned || w->wants[i].learned;
    if (list_links(w, err) < 0 ||
        store_blob_put(s, w->config.data, w->config.len, &stored, err) < 0)
        return -1;
    const struct import_record record = {
        .repository = b->repository,
        .upstream = hub_config(b->hub)->prefix,
        .repo_id = b->revision->id,
        .commit = b->revision->commit,
        .tags = tags,
        .n_tags = w->is_old ? 0 : n_tags,
        .manifest_digest = w->manifest_digest,
        .media_type = MODELPACK_MANIFEST_TYPE,
        .manifest = w->manifest.data,
        .manifest_len = w->manifest.len,
        .links = w->links,
        .n_links = w->n_links,
        .files = w->list_stored && !learned ? NULL : w->list.files,
        .n_files = w->list_stored && !learned ? 0 : w->list.n,
    };
    if (store_commit_import(s, &record, err) < 0)
        return -1;
    return hub_identity_check_import(s, hub_config(b->hub), b->repository, b->revision, err);
}

/* ---- build_run ------------------------------------------------------------------------------- */

void build_commit_tag(const struct build *b, char ret[static COMMIT_TAG_MAX])
{
    snprintf(ret, COMMIT_TAG_MAX, "%s%s%s", b->revision->commit, b->quant ? "--" : "",
             b->quant ? b->quant : "");
}

static int prepare(struct work_set *w, struct error *err)
{
    return load_list(w, err) < 0 || check_length(w, err) < 0 || read_all(w, err) < 0 ? -1 : 0;
}

static int try_earlier(struct work_set *w, const struct digest *wanted, struct error *err)
{
    if (prepare(w, err) < 0)
        return -1;
    for (unsigned packager = MODELPACK_PACKAGERS; --packager > 0;) {
        if (write_documents(w, packager, err) < 0)
            return -1;
        if (digest_equal(&w->manifest_digest, wanted))
            return commit(w, err) < 0 ? -1 : 1;
    }
    return 0;
}

int build_earlier(const struct build *b, const struct digest *wanted, struct outcome *ret,
                  struct error *err)
{
    _cleanup_work_set_ struct work_set w = {.build = b, .is_old = true};
    int rc = try_earlier(&w, wanted, err);
    ret->by_policy = w.by_policy;
    return rc;
}

struct led_build {
    const struct build *build;
    bool committed; /* with the build's own tag */
};

static int lead(void *ctx, struct outcome *ret, struct error *err)
{
    struct led_build *l = ctx;
    /* Another one may have finished between our look and our turn. */
    int rc = build_find(l->build, &ret->result, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    _cleanup_work_set_ struct work_set w = {.build = l->build};
    rc = prepare(&w, err) < 0 || write_documents(&w, MODELPACK_PACKAGERS, err) < 0 ||
                 commit(&w, err) < 0
             ? -1
             : 0;
    ret->by_policy = w.by_policy;
    if (rc < 0)
        return -1;
    l->committed = true;
    ret->result.manifest = w.manifest_digest;
    memcpy(ret->result.commit, l->build->revision->commit, sizeof(ret->result.commit));
    return 0;
}

/* A tag that points there already is only confirmed, which waits for no disk. */
static int point_tag(const struct build *b, const struct import_result *at, struct error *err)
{
    struct store *s = b->importer->store;
    struct tag tag;
    int rc = store_tag_get(s, b->repository, b->tag, &tag, err);
    if (rc < 0)
        return -1;
    if (rc == 0 || !digest_equal(&tag.digest, &at->manifest) || strcmp(tag.commit, at->commit) != 0)
        return store_tag_put(s, b->repository, b->tag, &at->manifest, at->commit, err);
    store_tag_confirm(s, b->repository, b->tag);
    return 0;
}

int build_run(const struct build *b, struct outcome *ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf key = STRBUF_INIT;
    char mark[CALLER_MARK_MAX];
    struct led_build l = {.build = b};
    char commit_tag[COMMIT_TAG_MAX];
    *ret = (struct outcome){0};
    int rc = build_find(b, &ret->result, err);
    if (rc < 0)
        return -1;
    build_commit_tag(b, commit_tag);
    strbuf_printf(&key, "%s %s %s%s", b->repository, b->revision->id, commit_tag,
                  caller_mark(b->hub, mark));
    if (strbuf_failed(&key))
        return no_memory(err);
    if (rc == 0 && flight_run(&b->importer->builds, key.data, lead, &l, ret, err) < 0)
        return -1;
    return l.committed || !b->tag ? 0 : point_tag(b, &ret->result, err);
}
