/* A manifest digest that nobody here has: sought by importing what the Hub's branches and tags name
 * now, whole and by quantisation. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#define QUANTS_MAX 64
#define SHOWN_COMMITS 8

struct search {
    struct asked asked;
    struct hub_revision top;
    char (*commits)[41]; /* the default branch's first, each once */
    size_t n;
    struct header_cache *cache;
    bool earlier;         /* the documents of earlier packagers are tried */
    struct error passing; /* the first failure that may be gone next time */
};

/* 1 when the repository has the manifest now. */
static int arrived(const struct search *s, struct error *err)
{
    struct manifest m;
    const struct reference *r = s->asked.reference;
    int rc = store_manifest_get(s->asked.importer->store, r->repository, &r->digest, &m, err);
    if (rc > 0)
        manifest_done(&m);
    return rc;
}

/* Whether the search can go on after this failure. What the commit has is no reason to stop, and a
 * failure of the Hub is none either; but that one the client has to hear, when nothing is found. */
static bool goes_on(struct search *s, bool by_policy, const struct error *e)
{
    if (by_policy)
        return true;
    switch (e->code) {
    case ERR_NOT_FOUND: /* moved or removed between two questions */
        return true;
    case ERR_DENIED:
    case ERR_UNAUTHORIZED:
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_DIGEST_MISMATCH:
        if (s->passing.code == ERR_NONE)
            s->passing = *e;
        return true;
    default:
        return false;
    }
}

/* 1 found, 0 not this one, -1 no use to go on. */
static int try_selection(struct search *s, const struct hub_revision *revision, const char *quant,
                         struct error *err)
{
    const struct build build = {
        .importer = s->asked.importer,
        .hub = s->asked.hub,
        .repository = s->asked.reference->repository,
        .revision = revision,
        .quant = quant,
        .cache = s->cache,
    };
    struct outcome outcome;
    struct error e = ERROR_INIT;
    outcome = (struct outcome){0};
    if (s->earlier) {
        int rc = build_earlier(&build, &s->asked.reference->digest, &outcome, &e);
        if (rc >= 0)
            return rc;
    } else if (build_run(&build, &outcome, &e) == 0) {
        return arrived(s, err);
    }
    if (goes_on(s, outcome.by_policy, &e))
        return 0;
    *err = e;
    return -1;
}

/* The labels that the commit's list has; the whole import that came first has stored it. */
static int commit_quants(struct search *s, const struct hub_revision *revision,
                         char (*labels)[QUANT_LABEL_MAX], size_t *ret_n, struct error *err)
{
    struct commit_files list = {0};
    *ret_n = 0;
    int rc = store_commit_files_get(s->asked.importer->store, hub_config(s->asked.hub)->prefix,
                                    revision->id, revision->commit, &list, err);
    if (rc == 0) /* the whole repository could not be imported: ask for the list alone */
        rc = hub_files(s->asked.hub, revision->id, revision->commit, &list, err) < 0 ? -1 : 1;
    if (rc < 0)
        return -1;
    struct select_file *files = calloc(list.n ? list.n : 1, sizeof(*files));
    for (size_t i = 0; files && i < list.n; i++)
        files[i] = (struct select_file){.path = list.files[i].path, .size = list.files[i].size};
    if (files)
        *ret_n = select_quants(files, list.n, labels, QUANTS_MAX);
    rc = files ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    free(files);
    commit_files_done(&list);
    return rc;
}

static int try_commit(struct search *s, const char *commit, struct error *err)
{
    struct hub_revision revision = s->top;
    char labels[QUANTS_MAX][QUANT_LABEL_MAX];
    size_t n;
    memcpy(revision.commit, commit, sizeof(revision.commit));
    int rc = try_selection(s, &revision, NULL, err);
    if (rc)
        return rc;
    struct error e = ERROR_INIT;
    if (commit_quants(s, &revision, labels, &n, &e) < 0) {
        if (goes_on(s, false, &e))
            return 0;
        *err = e;
        return -1;
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = try_selection(s, &revision, labels[i], err);
    return rc;
}

static void add_commit(struct search *s, const char *commit)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->commits[i], commit) == 0)
            return;
    memcpy(s->commits[s->n++], commit, sizeof(s->commits[0]));
}

static int list_commits(struct search *s, size_t *ret_left_out, struct error *err)
{
    struct hub_ref *refs = NULL;
    size_t n = 0, limit = hub_config(s->asked.hub)->search_limit;
    enum hub_missing missing;
    if (asked_resolve(&s->asked, NULL, &s->top, &missing, err) < 0 ||
        policy_check_id(&s->asked, s->top.id, NULL, err) < 0 ||
        hub_refs(s->asked.hub, s->top.id, false, &refs, &n, err) < 0)
        return -1;
    s->commits = calloc(n + 1, sizeof(*s->commits));
    if (s->commits) {
        add_commit(s, s->top.commit);
        for (size_t i = 0; i < n; i++)
            add_commit(s, refs[i].commit);
    }
    free(refs);
    if (!s->commits)
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret_left_out = s->n > limit ? s->n - limit : 0;
    s->n -= *ret_left_out;
    return 0;
}

static int not_found(const struct search *s, size_t left_out, struct error *err)
{
    _cleanup_strbuf_ struct strbuf tried = STRBUF_INIT;
    for (size_t i = 0; i < s->n && i < SHOWN_COMMITS; i++)
        strbuf_printf(&tried, "%s%.12s", i ? ", " : "", s->commits[i]);
    if (s->n > SHOWN_COMMITS)
        strbuf_printf(&tried, " and %zu more", s->n - SHOWN_COMMITS);
    if (left_out)
        strbuf_printf(&tried, " (search_limit left out %zu)", left_out);
    if (strbuf_failed(&tried))
        return err_set(err, ERR_NOMEM, "out of memory");
    return err_set(err, ERR_NOT_FOUND,
                   "no current branch or tag of %s gives this manifest; tried commits: %s. Pulling "
                   "%s:<commit> first makes an older one available",
                   s->top.id, tried.len ? strbuf_str(&tried) : "none",
                   s->asked.reference->repository);
}

static int run(struct search *s, struct error *err)
{
    size_t left_out = 0;
    int rc = list_commits(s, &left_out, err);
    for (size_t i = 0; i < s->n && rc == 0; i++)
        rc = try_commit(s, s->commits[i], err);
    /* Only when none of the newest is the one: pinned by what an earlier version gave. */
    s->earlier = true;
    for (size_t i = 0; i < s->n && rc == 0; i++)
        rc = try_commit(s, s->commits[i], err);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (s->passing.code != ERR_NONE) {
        *err = s->passing;
        return err_wrap(err, "the search for a manifest of %s is not complete", s->top.id);
    }
    return not_found(s, left_out, err);
}

/* A search that found nothing has imported all that there is: it answers for every digest of the
 * repository, for as long as it is remembered. So it is shared and remembered by repository, in the
 * spelling that was asked for (see tag_key()). */
static const char *search_key(const struct reference *r, const struct hub *h,
                              char buf[static ASKED_KEY_MAX])
{
    char mark[CALLER_MARK_MAX];
    snprintf(buf, ASKED_KEY_MAX, "%s@%s", r->as_given, caller_mark(h, mark));
    return buf;
}

static int search_and_note(void *ctx, struct outcome *ret, struct error *err)
{
    struct search *s = ctx;
    const struct config_upstream *c = hub_config(s->asked.hub);
    char key[ASKED_KEY_MAX];
    (void)ret;
    if (header_cache_new(&s->cache, err) < 0)
        return -1;
    int rc = run(s, err);
    header_cache_free(s->cache);
    free(s->commits);
    if (rc < 0 && is_failure_for_all(s->asked.hub, err))
        memory_note(&s->asked.importer->memory, c->prefix,
                    search_key(s->asked.reference, s->asked.hub, key), c->negative_ttl_s, err);
    return rc;
}

int import_search(struct importer *i, struct hub *h, const struct reference *r, struct error *err)
{
    char key[ASKED_KEY_MAX];
    search_key(r, h, key);
    for (;;) {
        struct search s = {0};
        struct outcome ignored;
        struct error e = ERROR_INIT;
        int rc = asked_init(&s.asked, i, h, r, &e);
        if (rc == 0)
            rc = memory_check(&i->memory, hub_config(h)->prefix, key, &e);
        if (rc == 0)
            rc = flight_run(&i->searches, key, search_and_note, &s, &ignored, &e);
        /* A search that we shared was after another digest: it may have brought ours and not its
         * own, or have ended with its own before it came to ours. Then it is our turn. */
        int found = rc == 0 || e.code == ERR_NOT_FOUND ? arrived(&s, err) : 0;
        if (found)
            return found < 0 ? -1 : 0;
        if (rc < 0) {
            if (err)
                *err = e;
            return -1;
        }
    }
}
