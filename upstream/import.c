/* A tag of a Hub repository, from its name to a stored row. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "upstream/hub_identity.h"

int importer_new(const struct config *c, struct store *s, struct importer **ret, struct error *err)
{
    struct importer *i = calloc(1, sizeof(*i));
    int made = 0;
    if (!i)
        return err_set(err, ERR_NOMEM, "out of memory");
    i->config = c;
    i->store = s;
    if (memory_init(&i->memory, err) == 0 && ++made && gate_init(&i->big_headers, err) == 0 &&
        ++made && flights_init(&i->tags, err) == 0 && ++made &&
        flights_init(&i->builds, err) == 0 && ++made && flights_init(&i->searches, err) == 0 &&
        ++made && config_table_init(&i->configs, err) == 0) {
        *ret = i;
        return 0;
    }
    if (made > 4)
        flights_done(&i->searches);
    if (made > 3)
        flights_done(&i->builds);
    if (made > 2)
        flights_done(&i->tags);
    if (made > 1)
        gate_done(&i->big_headers);
    if (made > 0)
        memory_done(&i->memory);
    free(i);
    return -1;
}

void importer_free(struct importer *i)
{
    if (!i)
        return;
    flights_done(&i->tags);
    flights_done(&i->builds);
    flights_done(&i->searches);
    gate_done(&i->big_headers);
    memory_done(&i->memory);
    config_table_done(&i->configs);
    free(i);
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool has_upper(const char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'Z')
            return true;
    return false;
}

static bool has_alias(const struct config_upstream *c, const char *name)
{
    for (size_t i = 0; i < c->n_aliases; i++)
        if (strcasecmp(c->aliases[i].name, name) == 0)
            return true;
    return false;
}

int asked_init(struct asked *a, struct importer *i, struct hub *h, const struct reference *r,
               struct error *err)
{
    const struct config_upstream *c = hub_config(h);
    size_t n = strlen(c->prefix);
    *a = (struct asked){.importer = i, .hub = h, .reference = r};
    if (strncmp(r->repository, c->prefix, n) != 0 || r->repository[n] != '/')
        return err_set(err, ERR_INTERNAL, "%s is not under the prefix %s", r->repository,
                       c->prefix);
    a->given = r->as_given + n + 1;
    snprintf(a->spelled, sizeof(a->spelled), "%s", a->given);
    int rc = store_repository_get(i->store, r->repository, &a->row, err);
    if (rc < 0)
        return -1;
    a->has_row = rc > 0 && strcmp(a->row.upstream, c->prefix) == 0;
    /* The Hub's own spelling spares its redirect. Only for another case of the same name: an old
     * name of a renamed repository may belong to another one by now, and the Hub knows. */
    if (a->has_row && !has_upper(a->given) && strcasecmp(a->row.repo_id, a->given) == 0 &&
        !has_alias(c, a->given))
        snprintf(a->spelled, sizeof(a->spelled), "%s", a->row.repo_id);
    return 0;
}

/* The Hub reports another case of the id that this repository stands for: either it was renamed so
 * (then the old spelling leads to the new one), or there are two. */
static int check_case(struct asked *a, const struct hub_revision *now, struct error *err)
{
    struct hub_revision other;
    const char *stored = a->row.repo_id;
    if (!a->has_row || strcmp(stored, now->id) == 0 || strcasecmp(stored, now->id) != 0)
        return 0;
    struct error ignored = ERROR_INIT;
    if (hub_resolve(a->hub, stored, NULL, &other, NULL, &ignored) < 0) {
        if (ignored.code == ERR_NOT_FOUND || ignored.code == ERR_UNAUTHORIZED)
            return 0; /* the other one is gone */
        *err = ignored;
        return -1;
    }
    if (strcmp(other.id, now->id) == 0)
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "%s stands for the Hub's \"%s\" here, and \"%s\" is another repository that "
                   "differs only in case: give one of them a name of its own in the aliases of "
                   "the upstream \"%s\"",
                   a->reference->repository, stored, now->id, hub_config(a->hub)->prefix);
}

int asked_resolve(struct asked *a, const char *revision, struct hub_revision *ret,
                  enum hub_missing *ret_missing, struct error *err)
{
    enum hub_missing missing = HUB_MISSING_NONE;
    const struct config_upstream *u = hub_config(a->hub);
    char identity[HUB_IDENTITY_MAX + 1];
    int rc = hub_resolve(a->hub, a->spelled, revision, ret, &missing, err);
    if (rc < 0 && err->code == ERR_NOT_FOUND && missing == HUB_MISSING_REPOSITORY &&
        strcmp(a->spelled, a->given) != 0) {
        snprintf(a->spelled, sizeof(a->spelled), "%s", a->given);
        missing = HUB_MISSING_NONE;
        rc = hub_resolve(a->hub, a->spelled, revision, ret, &missing, err);
    }
    *ret_missing = rc < 0 ? missing : HUB_MISSING_NONE;
    if (rc < 0 || check_case(a, ret, err) < 0 ||
        hub_identity_note(a->importer->store, u, a->spelled, ret, identity, err) < 0)
        return -1;
    return a->has_row ? hub_identity_check_name(a->importer->store, u, a->reference->repository,
                                                &a->row, ret, err)
                      : 0;
}

/* ---- a tag ----------------------------------------------------------------------------------- */

static int build_reading(struct asked *a, const struct tag_reading *reading,
                         const struct hub_revision *revision, struct outcome *ret,
                         struct error *err)
{
    const struct build build = {
        .importer = a->importer,
        .hub = a->hub,
        .repository = a->reference->repository,
        .revision = revision,
        .quant = reading->quant[0] ? reading->quant : NULL,
        .tag = a->reference->tag,
    };
    return build_run(&build, ret, err);
}

/* The refs of a repository that exists. Their lack takes nothing away from an error, only its
 * suggestions. */
static struct hub_ref *refs_to_suggest(struct asked *a, size_t *ret_n)
{
    struct hub_revision top;
    struct hub_ref *refs = NULL;
    const char *id = a->row.repo_id;
    struct error ignored = ERROR_INIT;
    if (!a->has_row) { /* what the name stands for is not known yet */
        if (hub_resolve(a->hub, a->spelled, NULL, &top, NULL, &ignored) < 0)
            return NULL;
        id = top.id;
    }
    return hub_refs(a->hub, id, false, &refs, ret_n, &ignored) < 0 ? NULL : refs;
}

/* The last reading's part of the tag is the most telling one: "feature-x" of
 * "feature-x--q4_k_m". */
static int no_reading(struct asked *a, const struct tag_reading *last, struct error *err)
{
    const struct reference *r = a->reference;
    size_t n = 0;
    char suffix[40] = "", text[sizeof(err->text)];
    const char *asked = last->spelled[0] ? last->spelled : r->tag;
    if (last->quant[0] && last->spelled[0])
        snprintf(suffix, sizeof(suffix), "--%s", last->quant);
    _cleanup_free_ struct hub_ref *refs = refs_to_suggest(a, &n);
    if (!refs)
        return err_set(err, ERR_NOT_FOUND, "%s has no revision \"%s\"", r->repository, asked);
    /* "x--bf16" may be meant for the branch x/bf16 and not for a quantisation of x. */
    for (size_t i = 0; i < n; i++)
        if (ref_distance(r->tag, refs[i].name) == 0) {
            asked = r->tag;
            suffix[0] = '\0';
        }
    missing_revision_text(r->repository, asked, suffix, refs, n, text, sizeof(text));
    return err_set(err, ERR_NOT_FOUND, "%s", text);
}

static int read_tag(void *ctx, struct outcome *ret, struct error *err)
{
    struct asked *a = ctx;
    struct tag_reading readings[TAG_READINGS_MAX];
    size_t n = tag_readings(a->reference->tag, readings);
    const char *spelled = a->reference->tag;
    for (size_t i = 0; i < n; i++) {
        struct hub_revision revision;
        enum hub_missing missing;
        const char *name = readings[i].is_default ? NULL : readings[i].revision;
        spelled = name ? name : spelled; /* the default branch goes by the name before */
        if (policy_check_revision(a, spelled, err) < 0) {
            if (i + 1 == n)
                return -1;
            continue;
        }
        if (asked_resolve(a, name, &revision, &missing, err) == 0) {
            if (policy_check_id(a, revision.id, spelled, err) < 0)
                return -1;
            policy_note_name(a, &revision, spelled);
            return build_reading(a, &readings[i], &revision, ret, err);
        }
        if (err->code != ERR_NOT_FOUND || missing != HUB_MISSING_REVISION)
            return -1;
    }
    return no_reading(a, &readings[n - 1], err);
}

/* What is shared and remembered is the answer to this spelling: on a Hub that does not redirect,
 * another case of the name has another one. */
static const char *tag_key(const struct reference *r, const struct hub *h,
                           char buf[static ASKED_KEY_MAX])
{
    char mark[CALLER_MARK_MAX];
    snprintf(buf, ASKED_KEY_MAX, "%s:%s%s", r->as_given, r->tag, caller_mark(h, mark));
    return buf;
}

static int read_tag_and_note(void *ctx, struct outcome *ret, struct error *err)
{
    struct asked *a = ctx;
    const struct config_upstream *c = hub_config(a->hub);
    char key[ASKED_KEY_MAX];
    int rc = read_tag(a, ret, err);
    if (rc < 0 && is_failure_for_all(a->hub, err))
        memory_note(&a->importer->memory, c->prefix, tag_key(a->reference, a->hub, key),
                    c->negative_ttl_s, err);
    return rc;
}

int import_tag(struct importer *i, struct hub *h, struct hub_mirror *m, const struct reference *r,
               struct import_result *ret, struct error *err)
{
    struct error local = ERROR_INIT;
    struct asked a;
    char key[ASKED_KEY_MAX];
    if (!err)
        err = &local;
    tag_key(r, h, key);
    if (memory_check(&i->memory, hub_config(h)->prefix, key, err) < 0 ||
        asked_init(&a, i, h, r, err) < 0)
        return -1;
    a.mirror = m;
    struct outcome outcome;
    if (flight_run(&i->tags, key, read_tag_and_note, &a, &outcome, err) < 0)
        return -1;
    *ret = outcome.result;
    return 0;
}
