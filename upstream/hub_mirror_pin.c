/* Which commit a revision is: as the Hub said a short while ago, as it says now, or as it said when
 * it could still be asked. */
#include <string.h>

#include "base/clock.h"
#include "upstream/hub_identity.h"
#include "upstream/hub_mirror_private.h"

bool hub_is_fresh(const struct hub_mirror *m, uint64_t checked_at)
{
    uint64_t now = clock_wall_s();
    return checked_at <= now && now - checked_at < m->config->tag_ttl_s;
}

/* ---- where a commit is known from ------------------------------------------------------------ */

static void take_newer(struct hub_pin *best, bool *any, const struct hub_pin *pin)
{
    if (!*any || pin->checked_at > best->checked_at)
        *best = *pin;
    *any = true;
}

/* What the refs object says that was told to clients. best: what is known already, or NULL; an
 * older one does not count, unless it is fresh, and reading through it is what it costs. */
static int find_in_refs(struct hub_mirror *m, const char *id, const char *revision,
                        bool pull_requests, const struct hub_pin *best, struct hub_pin *ret,
                        struct error *err)
{
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    const char *what = hub_what_refs(pull_requests), *prefix = m->config->prefix;
    int found = store_hub_document_get(m->store, prefix, id, "", what, NULL, &ret->checked_at, err);
    if (found != 1)
        return found;
    if (best && ret->checked_at <= best->checked_at && !hub_is_fresh(m, ret->checked_at))
        return 0;
    found = store_hub_document_get(m->store, prefix, id, "", what, &json, &ret->checked_at, err);
    if (found != 1)
        return found;
    return hub_json_ref(strbuf_str(&json), json.len, revision, ret->commit);
}

/* What an import for the registry API found out. Of its tags only this one can be no quantisation,
 * and no other way to write a branch. */
static int find_in_tags(struct hub_mirror *m, const char *id, const char *revision,
                        struct hub_pin *ret, struct error *err)
{
    char repository[2 * REPOSITORY_MAX + 2], lower[REPOSITORY_MAX + 1];
    struct tag tag;
    if (hub_id_kind(id, NULL) != HUB_MODEL || strcmp(revision, "main") != 0 ||
        !ascii_lower(id, lower, sizeof(lower)))
        return 0;
    snprintf(repository, sizeof(repository), "%s/%s", m->config->prefix, lower);
    if (strlen(repository) > REPOSITORY_MAX)
        return 0;
    int found = store_tag_get(m->store, repository, "main", &tag, err);
    if (found != 1 || !is_lower_hex(tag.commit, 40))
        return found < 0 ? -1 : 0;
    memcpy(ret->commit, tag.commit, sizeof(ret->commit));
    ret->checked_at = tag.checked_at;
    return 1;
}

int hub_pin_find(struct hub_mirror *m, const char *id, const char *revision, struct hub_pin *ret,
                 bool *ret_fresh, struct error *err)
{
    struct hub_pin best = {.checked_at = 0};
    bool any = false;
    for (unsigned i = 0; i < 4; i++) {
        struct hub_pin pin = {.checked_at = 0};
        int found = i == 0 ? store_hub_pin_get(m->store, m->config->prefix, id, revision, &pin, err)
                    : i < 3 ? find_in_refs(m, id, revision, i == 2, any ? &best : NULL, &pin, err)
                            : find_in_tags(m, id, revision, &pin, err);
        if (found < 0)
            return -1;
        if (found == 0)
            continue;
        take_newer(&best, &any, &pin);
        if (hub_is_fresh(m, pin.checked_at)) { /* the first one that is: they need not agree */
            *ret = pin;
            *ret_fresh = true;
            return 1;
        }
    }
    *ret = best;
    *ret_fresh = false;
    return any;
}

int hub_look_find_pin(struct hub_look *l, struct error *err)
{
    int found = hub_pin_find(l->m, l->id, l->revision, &l->pin, &l->is_fresh, err);
    l->has_pin = found == 1;
    return found < 0 ? -1 : 0;
}

int hub_mirror_knows_commit(struct hub_mirror *m, const char *id, const char *commit,
                            struct error *err)
{
    _cleanup_strbuf_ struct strbuf info = STRBUF_INIT;
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    struct hub_pin pin;
    int found = store_hub_pin_get(m->store, m->config->prefix, id, commit, &pin, err);
    if (found == 0)
        found = store_hub_document_get(m->store, m->config->prefix, id, commit, "info", &info, NULL,
                                       err);
    return found ? found : hub_rows_stored(m, id, commit, &rows, err);
}

/* ---- the commit of a question ---------------------------------------------------------------- */

/* Asks which commit it is. It costs least to ask for what the client wants to know; of a git file
 * that is known already, the resolve route takes two requests. */
static int ask(struct hub_look *l, const char *path, struct hub_flight **ret, struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    if (path && l->has_pin && hub_rows_stored(l->m, l->id, l->pin.commit, &rows, err) < 0)
        return -1;
    const struct commit_file *f = rows ? hub_rows_file(rows, path) : NULL;
    bool by_info = !path || (rows && (!f || !f->has_lfs));
    struct hub_task t = hub_look_task(l, by_info ? HUB_TASK_INFO : HUB_TASK_FILE, l->revision);
    if (!by_info)
        t.path = path;
    return hub_look_ask(l, &t, l->has_pin, ret, err);
}

static int offline_commit(struct hub_look *l, struct error *err)
{
    char what[2 * REPOSITORY_MAX + 64];
    if (l->has_pin) {
        hub_look_stale(l, l->pin.checked_at, "the upstream is offline by configuration");
        memcpy(l->at->commit, l->pin.commit, sizeof(l->pin.commit));
        return 0;
    }
    snprintf(what, sizeof(what), "%s/%s at %s", l->m->config->prefix, l->id, l->revision);
    return hub_look_is_offline(l, what, err);
}

static int ask_for_commit(struct hub_look *l, const char *path, struct hub_flight **ret,
                          struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    if (l->m->offline)
        return offline_commit(l, err);
    if (ask(l, path, &x, err) < 0) {
        if (!l->has_pin || !hub_look_may_be_stale(l, err))
            return -1;
        hub_look_stale(l, l->pin.checked_at, err->text);
        memcpy(l->at->commit, l->pin.commit, sizeof(l->pin.commit));
        return 0;
    }
    const struct hub_result *r = hub_flight_result(x);
    memcpy(l->at->commit, r->commit, sizeof(r->commit));
    if (hub_look_set_id(l, r->id, err) < 0)
        return -1;
    *ret = TAKE_PTR(x);
    return 0;
}

static int find_commit(struct hub_look *l, const char *path, struct hub_flight **ret,
                       struct error *err)
{
    if (l->is_commit) {
        int known = 1;
        memcpy(l->at->commit, l->revision, 41);
        if (!l->knows_id)
            known = hub_mirror_knows_commit(l->m, l->id, l->revision, err);
        return known ? (known < 0 ? -1 : 0) : ask_for_commit(l, path, ret, err);
    }
    if (hub_look_find_pin(l, err) < 0)
        return -1;
    if (!l->has_pin || !l->is_fresh || !(l->name_is_fresh || l->m->offline))
        return ask_for_commit(l, path, ret, err);
    memcpy(l->at->commit, l->pin.commit, sizeof(l->pin.commit));
    return 0;
}

/* ---- commits of revisions that are allowed by name ------------------------------------------- */

#define NAMES_DOCUMENT "revisions" /* lines: the revisions that have meant the commit */
#define NAMES_MAX 65536u           /* bytes of it */

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (strncmp(p, line, n) == 0 && p[n] == '\n')
            return true;
    return false;
}

static bool names_revisions(const struct hub_mirror *m, const char *repository)
{
    const struct config_policy *p = config_policy_of(m->all, repository);
    return p && p->revisions.n;
}

void hub_commit_note_name(struct hub_mirror *m, const char *id, const char *revision,
                          const char *commit)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    const char *prefix = m->config->prefix;
    if (store_hub_document_get(m->store, prefix, id, commit, NAMES_DOCUMENT, &text, NULL, NULL) <
            0 ||
        has_line(strbuf_str(&text), revision) || text.len > NAMES_MAX)
        return;
    strbuf_printf(&text, "%s\n", revision);
    if (!strbuf_failed(&text))
        store_hub_document_put(m->store, prefix, id, commit, NAMES_DOCUMENT, text.data, text.len,
                               NULL);
}

/* For when the revision means another one. */
static void note_name(const struct hub_look *l)
{
    if (!l->is_commit && !l->is_about &&
        (names_revisions(l->m, l->asked_as) || names_revisions(l->m, l->repository)))
        hub_commit_note_name(l->m, l->id, l->revision, l->at->commit);
}

static bool is_allowed(const struct hub_mirror *m, const char *repository, const char *revision)
{
    return config_policy_check(m->all, repository, revision, NULL) == 0 ||
           (strcmp(revision, "main") == 0 &&
            config_policy_check(m->all, repository, "HEAD", NULL) == 0);
}

static bool was_named(struct hub_mirror *m, const char *id, const char *repository,
                      const char *commit)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    char *rest = NULL;
    if (store_hub_document_get(m->store, m->config->prefix, id, commit, NAMES_DOCUMENT, &text, NULL,
                               NULL) != 1 ||
        strbuf_failed(&text) || !text.len)
        return false;
    for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (is_allowed(m, repository, line))
            return true;
    return false;
}

bool hub_commit_is_named(struct hub_mirror *m, const char *id, const char *repository,
                         const char *commit)
{
    const struct config_policy *p = config_policy_of(m->all, repository);
    if (!p || p->revisions.n == 0)
        return false;
    for (size_t i = 0; i < p->revisions.n; i++) {
        const char *name = p->revisions.items[i];
        struct hub_pin pin;
        bool is_fresh;
        if (strcmp(name, "HEAD") == 0)
            name = "main";
        if (hub_revision_is_valid(name) && is_allowed(m, repository, name) &&
            hub_pin_find(m, id, name, &pin, &is_fresh, NULL) == 1 &&
            strcmp(pin.commit, commit) == 0)
            return true;
    }
    return was_named(m, id, repository, commit);
}

/* ---- whose commit it is ---------------------------------------------------------------------- */

/* The Hub has said so: 1, 0 that is not known, -1. */
static int is_of_repository(const struct hub_look *l, struct error *err)
{
    const char *prefix = l->m->config->prefix;
    char now[HUB_IDENTITY_MAX + 1], then[HUB_IDENTITY_MAX + 1];
    int found = hub_identity_get(l->m->store, prefix, l->id, "", now, err);
    if (found == 1)
        found = hub_identity_get(l->m->store, prefix, l->id, l->at->commit, then, err);
    return found == 1 ? strcmp(now, then) == 0 : found;
}

/* The name may have been another repository's when the commit was stored, and this caller's rights
 * are to the one that has it now: the Hub is asked, with the caller's token, and that is kept. */
static int check_repository(struct hub_look *l, const struct hub_flight *asked, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    const struct hub_result *r = asked ? hub_flight_result(asked) : NULL;
    char what[2 * REPOSITORY_MAX + 64];
    if (!l->forward || (r && r->asked && (r->has_file || r->text.len)))
        return 0; /* the Hub has just answered with this commit */
    int found = is_of_repository(l, err);
    if (found)
        return found < 0 ? -1 : 0;
    if (l->m->offline) {
        snprintf(what, sizeof(what), "%s/%s at %s", l->m->config->prefix, l->id, l->at->commit);
        return hub_look_is_offline(l, what, err);
    }
    struct hub_task t = hub_look_task(l, HUB_TASK_INFO, l->at->commit);
    t.name = l->id;
    t.flag = true;
    return hub_look_ask(l, &t, false, &x, err);
}

/* ---- what a question is about ---------------------------------------------------------------- */

/* What is stored may have been asked for by another name: then this one is an id that nobody has
 * been checked for yet. */
int hub_look_commit(struct hub_look *l, const char *path, struct hub_flight **ret,
                    struct error *err)
{
    *ret = NULL;
    if (find_commit(l, path, ret, err) < 0) {
        l->at->commit[0] = '\0'; /* asked for, and not found */
        return -1;
    }
    if (hub_look_is_id(l, err) < 0)
        return -1;
    if (check_repository(l, *ret, err) < 0) {
        l->at->commit[0] = '\0';
        return -1;
    }
    note_name(l);
    return 0;
}

int hub_mirror_revision(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                        struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL, *second = NULL;
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0)
        return -1;
    if (!l.is_commit || x)
        return 0;
    int known = hub_mirror_knows_commit(m, l.id, at->commit, err);
    return known ? (known < 0 ? -1 : 0) : ask_for_commit(&l, NULL, &second, err);
}
