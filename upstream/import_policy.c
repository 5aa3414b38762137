/* What the policies for a repository (policies[] of the configuration) let an import take, and
 * whose import it is where the caller's token is forwarded. */
#include "upstream/import_private.h"

#include <stdio.h>
#include <string.h>

#include "upstream/caller.h"
#include "upstream/hub_mirror_private.h"

/* The name that stands for the id under the upstream's prefix; an alias, or a name from before a
 * renaming, must not be a way around its policies. */
static void own_name(const char *prefix, const char *id, char ret[static REPOSITORY_MAX + 1])
{
    char full[2 * REPOSITORY_MAX + 2];
    snprintf(full, sizeof(full), "%s/%s", prefix, id);
    if (!ascii_lower(full, ret, REPOSITORY_MAX + 1))
        *ret = '\0';
}

static int check_file(const struct build *b, const char *own, const struct select_file *f,
                      const char *format, uint64_t size, struct error *err)
{
    const struct config *c = b->importer->config;
    if (config_policy_check_file(c, b->repository, f->path, format, size, err) < 0)
        return -1;
    return config_policy_check_file(c, own, f->path, format, size, err);
}

/* Formats leave files out, as the pickle rule does; a size refuses. */
int policy_apply(const struct build *b, struct select_file *files, size_t n, struct error *err)
{
    char own[REPOSITORY_MAX + 1];
    struct error first = ERROR_INIT;
    size_t left = 0;
    own_name(hub_config(b->hub)->prefix, b->revision->id, own);
    for (size_t i = 0; i < n; i++) {
        struct error why = ERROR_INIT;
        const char *format = files[i].selected ? hub_format_word(files[i].path) : NULL;
        if (!format)
            continue;
        files[i].selected = check_file(b, own, &files[i], format, 0, &why) == 0;
        left += files[i].selected;
        if (!files[i].selected && first.code == ERR_NONE)
            first = why;
    }
    if (first.code != ERR_NONE && left == 0) {
        *err = first;
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (files[i].selected && check_file(b, own, &files[i], NULL, files[i].size, err) < 0)
            return -1;
    return 0;
}

int policy_check_revision(const struct asked *a, const char *revision, struct error *err)
{
    const char *repository = a->reference->repository;
    if (config_policy_check(a->importer->config, repository, revision, err) == 0)
        return 0;
    return a->mirror && is_lower_hex(revision, 40) &&
                   hub_registry_commit_is_named(a->mirror, repository, revision)
               ? 0
               : -1;
}

int policy_check_id(const struct asked *a, const char *id, const char *revision, struct error *err)
{
    char own[REPOSITORY_MAX + 1];
    own_name(hub_config(a->hub)->prefix, id, own);
    if (strcmp(own, a->reference->repository) != 0 &&
        !config_access_allows(a->importer->config, own, ACCESS_PULL))
        return err_set(err, ERR_DENIED,
                       "no \"access\" rule of this server lets anonymous clients pull \"%s\"", own);
    if (config_policy_check(a->importer->config, own, revision, err) == 0)
        return 0;
    return a->mirror && revision && is_lower_hex(revision, 40) &&
                   hub_commit_is_named(a->mirror, id, own, revision)
               ? 0
               : -1;
}

static bool names_revisions(const struct asked *a, const char *repository)
{
    const struct config_policy *p = config_policy_of(a->importer->config, repository);
    return p && p->revisions.n;
}

void policy_note_name(const struct asked *a, const struct hub_revision *revision, const char *name)
{
    char own[REPOSITORY_MAX + 1];
    own_name(hub_config(a->hub)->prefix, revision->id, own);
    if (a->mirror && !is_lower_hex(name, 40) &&
        (names_revisions(a, a->reference->repository) || names_revisions(a, own)))
        hub_commit_note_name(a->mirror, revision->id, name, revision->commit);
}

/* ---- what is here already -------------------------------------------------------------------- */

int policy_check_given(const struct config *c, const char *repository, const char *prefix,
                       const char *repo_id, const char *path, uint64_t size, struct error *err)
{
    const char *format = hub_format_word(path);
    char own[REPOSITORY_MAX + 1];
    if (c->n_policies == 0)
        return 0;
    if (config_policy_check_file(c, repository, path, format, size, err) < 0)
        return -1;
    own_name(prefix, repo_id, own);
    return config_policy_check_file(c, own, path, format, size, err);
}

static const char *annotation(const struct json *object, const char *name)
{
    return json_str(json_get(json_get(object, "annotations"), name));
}

/* Manifests need not be read where there is none. */
static bool has_file_rules(const struct config *c)
{
    for (size_t i = 0; i < c->n_policies; i++)
        if (c->policies[i].formats.n || c->policies[i].max_file)
            return true;
    return false;
}

int import_may_give(const struct config *c, const struct config_upstream *u, const char *repository,
                    const struct manifest *m, struct error *err)
{
    _cleanup_json_ struct json *document = NULL;
    if (!has_file_rules(c) || json_parse(m->bytes, m->len, &document, NULL) < 0)
        return 0;
    const char *id = annotation(document, "org.weighbridge.hub.repository");
    const struct json *layers = json_get(document, "layers");
    for (const struct json *l = json_first(layers); l; l = json_next(l)) {
        const char *path = annotation(l, "org.cncf.model.filepath");
        uint64_t size = 0;
        json_u64(json_get(l, "size"), &size);
        if (path && policy_check_given(c, repository, u->prefix, id ? id : "", path, size, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- whose import it is ---------------------------------------------------------------------- */

const char *caller_mark(const struct hub *h, char buf[static CALLER_MARK_MAX])
{
    const char *token = caller_token();
    struct digest d;
    buf[0] = '\0';
    if (hub_config(h)->credentials != CREDENTIALS_FORWARD)
        return buf;
    if (!token)
        return strcpy(buf, " -");
    if (digest_of(DIGEST_SHA256, token, strlen(token), &d, NULL) < 0)
        d = (struct digest){0};
    buf[0] = ' ';
    hex_format(d.raw, 32, buf + 1);
    return buf;
}

bool is_failure_for_all(const struct hub *h, const struct error *err)
{
    return err->code != ERR_RATE_LIMITED || hub_config(h)->credentials != CREDENTIALS_FORWARD;
}
