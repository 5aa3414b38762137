/* A Hub's mirror, and what a client's question is about: which repository, by which name, whether
 * the policies and the caller's rights allow it, and how the Hub is asked for it. */
#include "upstream/hub_mirror.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/weights.h"
#include "upstream/hub_mirror_private.h"
#include "upstream/oci.h"

int hub_mirror_new(const struct config *c, const struct config_upstream *u, struct store *s,
                   struct hub *h, struct hub_mirror **ret, struct error *err)
{
    struct hub_mirror *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ERR_NOMEM, "out of memory for the mirror of a Hub");
    m->all = c;
    m->config = u;
    m->offline = config_is_offline(c, u);
    m->store = s;
    m->hub = h;
    if (inquiry_start(&m->questions, &hub_mirror_questions, u->prefix, err) < 0) {
        free(m);
        return -1;
    }
    if (hub_rows_cache_init(&m->rows, err) < 0) {
        inquiry_end(&m->questions);
        free(m);
        return -1;
    }
    if (hub_texts_init(&m->texts, err) < 0) {
        hub_rows_cache_done(&m->rows);
        inquiry_end(&m->questions);
        free(m);
        return -1;
    }
    pthread_mutex_init(&m->settling, NULL);
    if (notes_init(&m->negatives, err) < 0 || notes_init(&m->checked, err) < 0 ||
        hub_access_new(c, u, s, &m->access, err) < 0) {
        hub_mirror_free(m);
        return -1;
    }
    *ret = m;
    return 0;
}

void hub_mirror_stop(struct hub_mirror *m)
{
    inquiry_stop(&m->questions);
}

void hub_mirror_free(struct hub_mirror *m)
{
    if (!m)
        return;
    hub_mirror_stop(m);
    hub_access_free(m->access);
    hub_texts_done(&m->texts);
    hub_rows_cache_done(&m->rows);
    pthread_mutex_destroy(&m->settling);
    notes_done(&m->checked);
    notes_done(&m->negatives);
    inquiry_end(&m->questions);
    free(m);
}

void hub_mirror_forget(struct hub_mirror *m, const char *commit)
{
    hub_rows_cache_drop(&m->rows, commit);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* "hf/" and the id in lower case. */
static bool repository_of(const struct hub_mirror *m, const char *id,
                          char ret[static REPOSITORY_MAX + 1])
{
    char lower[REPOSITORY_MAX + 1];
    if (!ascii_lower(id, lower, sizeof(lower)))
        return false;
    int n = snprintf(ret, REPOSITORY_MAX + 1, "%s/%s", m->config->prefix, lower);
    return n > 0 && n <= REPOSITORY_MAX;
}

bool hub_mirror_repository(const struct hub_mirror *m, const struct hub_query *q,
                           char ret[static REPOSITORY_MAX + 1])
{
    char id[REPOSITORY_MAX + 1];
    return hub_id_make(q->kind, q->name, id) && repository_of(m, id, ret);
}

static void tell_id(struct hub_look *l)
{
    const char *rest = NULL;
    hub_id_kind(l->id, &rest);
    strcpy(l->at->id, rest);
}

/* ---- policies and rights --------------------------------------------------------------------- */

int hub_look_refuse(struct hub_look *l, enum hub_missing missing)
{
    static const enum hub_refused refused[] = {
        [HUB_MISSING_NONE] = HUB_REFUSED_NOT,
        [HUB_MISSING_REPOSITORY] = HUB_REFUSED_REPOSITORY,
        [HUB_MISSING_REVISION] = HUB_REFUSED_REVISION,
        [HUB_MISSING_ENTRY] = HUB_REFUSED_ENTRY,
        [HUB_MISSING_GATED] = HUB_REFUSED_GATED,
        [HUB_MISSING_TOKEN] = HUB_REFUSED_TOKEN,
    };
    l->at->refused = refused[missing];
    if (missing == HUB_MISSING_TOKEN && !l->forward) /* our own is no business of the client's */
        l->at->refused = HUB_REFUSED_NOT;
    return -1;
}

/* id: what the name means, NULL = not known. */
static int check_policy(struct hub_look *l, const char *id, const char *repository,
                        struct error *err)
{
    const char *revision = *l->revision && !l->is_about ? l->revision : NULL;
    if (config_policy_check(l->m->all, repository, revision, err) == 0)
        return 0;
    /* A policy may call the default branch by the other name. */
    if (l->is_default && config_policy_check(l->m->all, repository, "HEAD", NULL) == 0)
        return 0;
    if (id && l->is_commit && hub_commit_is_named(l->m, id, repository, l->revision))
        return 0;
    if (!err || err->code == ERR_DENIED)
        l->at->refused = HUB_REFUSED_POLICY;
    return -1;
}

/* The rules for what the name means: another name, from before it was renamed or of our own, is no
 * way round. */
static int check_meaning(struct hub_look *l, struct error *err)
{
    if (config_access_allows(l->m->all, l->repository, ACCESS_PULL))
        return check_policy(l, l->id, l->repository, err);
    l->at->refused = HUB_REFUSED_POLICY;
    return err_set(err, ERR_DENIED,
                   "no \"access\" rule of this server lets anonymous clients pull \"%s\"",
                   l->repository);
}

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
}

/* Puts the name that was asked for in the place of what it means. */
static void rename_in(struct error *err, const char *id, const char *name)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    const char *rest = err->text;
    size_t n = strlen(id);
    for (const char *p = strstr(rest, id); p; p = strstr(p + n, id)) {
        if (p == err->text || p[-1] != '/' || is_name_byte(p[n]))
            continue; /* part of something else */
        strbuf_put(&text, rest, (size_t)(p - rest));
        strbuf_puts(&text, name);
        rest = p + n;
    }
    strbuf_puts(&text, rest);
    snprintf(err->text, sizeof(err->text), "%s",
             strbuf_failed(&text) ? "this caller may not read it" : strbuf_str(&text));
}

/* Whoever may not have it is told nothing of it: not what the name means, either. */
static void tell_nothing(struct hub_look *l, struct error *err)
{
    *l->at->commit = '\0';
    *l->at->warning = '\0';
    if (err && strcmp(l->id, l->name) != 0)
        rename_in(err, l->id, l->name);
}

static int check_access(struct hub_look *l, struct error *err)
{
    enum hub_missing missing = HUB_MISSING_NONE;
    if (!l->forward ||
        hub_access_check(l->m->access, l->m->hub, l->id, l->level, l->token, &missing, err) == 0)
        return 0;
    tell_nothing(l, err);
    return hub_look_refuse(l, missing);
}

int hub_look_set_id(struct hub_look *l, const char *id, struct error *err)
{
    bool is_news = !l->knows_id || strcmp(l->id, id) != 0;
    if (!is_news)
        return 0;
    if (l->id != id)
        snprintf(l->id, sizeof(l->id), "%s", id);
    l->knows_id = true;
    if (check_access(l, err) < 0)
        return -1;
    tell_id(l);
    if (!repository_of(l->m, l->id, l->repository))
        return err_set(err, ERR_INVALID, "the name %s is too long for %s", l->id,
                       l->m->config->prefix);
    return strcmp(l->repository, l->asked_as) == 0 ? 0 : check_meaning(l, err);
}

int hub_look_is_id(struct hub_look *l, struct error *err)
{
    return l->knows_id ? 0 : hub_look_set_id(l, l->id, err);
}

/* Files that imports know nothing more of: a rule about formats has to know what they are. */
static const char *word_of_extension(const char *path)
{
    static const struct {
        const char *extension, *word;
    } table[] = {
        {".npy", "numpy"},         {".npz", "numpy"},       {".pickle", "pickle"},
        {".joblib", "pickle"},     {".dill", "pickle"},     {".p", "pickle"},
        {".pck", "pickle"},        {".pdparams", "pickle"}, {".pdopt", "pickle"},
        {".pt2", "other"},         {".pte", "other"},       {".ptl", "other"},
        {".torchscript", "other"}, {".ggml", "other"},      {".pb", "other"},
        {".hdf5", "other"},        {".engine", "other"},    {".trt", "other"},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < ARRAY_LEN(table); i++)
        if (strcasecmp(dot, table[i].extension) == 0)
            return table[i].word;
    return NULL;
}

const char *hub_format_word(const char *path)
{
    const char *word = word_of_extension(path);
    if (word)
        return word;
    switch (weights_format_of(path)) {
    case WEIGHTS_SAFETENSORS:
        return "safetensors";
    case WEIGHTS_GGUF:
        return "gguf";
    case WEIGHTS_PICKLE:
        return "pickle";
    case WEIGHTS_ONNX:
        return "onnx";
    case WEIGHTS_OTHER:
        return "other";
    case WEIGHTS_UNKNOWN:
        break;
    }
    return NULL;
}

int hub_look_check_file(const struct hub_look *l, const char *path, uint64_t size,
                        struct error *err)
{
    const struct config *c = l->m->all;
    const char *format = hub_format_word(path);
    if (config_policy_check_file(c, l->asked_as, path, format, size, err) < 0)
        return -1;
    if (strcmp(l->repository, l->asked_as) == 0)
        return 0;
    return config_policy_check_file(c, l->repository, path, format, size, err);
}

bool hub_look_shows_revision(const struct hub_look *l, const char *revision)
{
    const struct config *c = l->m->all;
    return config_policy_check(c, l->asked_as, revision, NULL) == 0 &&
           (strcmp(l->repository, l->asked_as) == 0 ||
            config_policy_check(c, l->repository, revision, NULL) == 0);
}

void hub_look_policies(const struct hub_look *l, const struct config_policy *ret[static 2])
{
    ret[0] = config_policy_of(l->m->all, l->asked_as);
    ret[1] = config_policy_of(l->m->all, l->repository);
}

bool hub_look_hides(const struct hub_look *l, bool *ret_sizes)
{
    const struct config_policy *policies[2];
    bool hides = false;
    hub_look_policies(l, policies);
    *ret_sizes = false;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        hides |= policies[i] && (policies[i]->formats.n || policies[i]->max_file);
        *ret_sizes |= policies[i] && policies[i]->max_file;
    }
    return hides;
}

/* ---- a question begins ----------------------------------------------------------------------- */

/* What the store knows of the name: 1, 0, -1. */
static int find_id(struct hub_look *l, char ret[static REPOSITORY_MAX + 1], struct error *err)
{
    struct hub_name known;
    struct repository_row row;
    int found = store_hub_name_get(l->m->store, l->m->config->prefix, l->name, &known, err);
    if (found == 1) {
        l->name_is_fresh = hub_is_fresh(l->m, known.checked_at);
        strcpy(ret, known.id);
    }
    if (found || l->kind != HUB_MODEL)
        return found;
    /* Imports for the registry API know models. */
    found = store_repository_get(l->m->store, l->asked_as, &row, err);
    if (found != 1 || strcmp(row.upstream, l->m->config->prefix) != 0 ||
        !hub_id_is_valid(row.repo_id))
        return found < 0 ? -1 : 0;
    strcpy(ret, row.repo_id);
    return 1;
}

static int read_words(struct hub_look *l, const struct hub_query *q, bool with_revision,
                      struct error *err)
{
    snprintf(l->at->id, sizeof(l->at->id), "%s", q->name);
    if (!hub_id_make(q->kind, q->name, l->name) || !repository_of(l->m, l->name, l->asked_as)) {
        err_set(err, ERR_NOT_FOUND,
                "%s/%.255s can not be a Hub repository: those are named <organisation>/<name>",
                l->m->config->prefix, q->name);
        return hub_look_refuse(l, HUB_MISSING_REPOSITORY);
    }
    strcpy(l->id, l->name);
    strcpy(l->repository, l->asked_as);
    if (!with_revision)
        return 0;
    l->is_default = !*q->revision || strcmp(q->revision, "HEAD") == 0;
    strcpy(l->revision, l->is_default ? "main" : q->revision);
    l->is_commit = is_lower_hex(l->revision, 40);
    if (hub_revision_is_valid(l->revision))
        return 0;
    err_set(err, ERR_NOT_FOUND, "%s/%s has no revision %.255s: no branch or tag can have that name",
            l->m->config->prefix, q->name, l->revision);
    return hub_look_refuse(l, HUB_MISSING_REVISION);
}

/* What this name meant is refused, and it was asked about a while ago: by now it may be the name of
 * a repository that the caller may have. */
static bool is_perhaps_another(const struct hub_look *l)
{
    return !l->m->offline && !l->name_is_fresh && strcmp(l->id, l->name) != 0 &&
           (l->at->refused == HUB_REFUSED_REPOSITORY || l->at->refused == HUB_REFUSED_POLICY);
}

/* What the caller says, and who that is. */
static int start_look(struct hub_mirror *m, const struct hub_query *q, bool with_revision,
                      enum hub_access_level level, struct hub_look *ret, struct hub_at *at,
                      struct error *err)
{
    *at = (struct hub_at){.asked = false};
    *ret = (struct hub_look){.m = m,
                             .at = at,
                             .kind = q->kind,
                             .level = level,
                             .forward = hub_access_is_forward(m->access)};
    if (ret->forward)
        ret->token = caller_token();
    return read_words(ret, q, with_revision, err);
}

int hub_look_begin(struct hub_mirror *m, const struct hub_query *q, bool with_revision,
                   enum hub_access_level level, struct hub_look *ret, struct hub_at *at,
                   struct error *err)
{
    char id[REPOSITORY_MAX + 1];
    if (start_look(m, q, with_revision, level, ret, at, err) < 0)
        return -1;
    int found = find_id(ret, id, err);
    if (found < 0 || check_policy(ret, found ? id : NULL, ret->asked_as, err) < 0)
        return -1;
    if (!found)
        return 0;
    int rc = hub_look_set_id(ret, id, err);
    if (rc == 0 || !is_perhaps_another(ret))
        return rc;
    ret->knows_id = false;
    at->refused = HUB_REFUSED_NOT;
    strcpy(ret->id, ret->name);
    strcpy(ret->repository, ret->asked_as);
    snprintf(at->id, sizeof(at->id), "%s", q->name);
    if (err)
        *err = ERROR_INIT;
    return 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct hub_task hub_look_task(const struct hub_look *l, enum hub_task_kind kind,
                              const char *revision)
{
    /* By a name that was looked up a while ago it is asked for again: it may mean another one. */
    bool by_id = l->knows_id &&
                 (l->name_is_fresh || kind == HUB_TASK_ROWS || kind == HUB_TASK_REFS ||
                  kind == HUB_TASK_EXPANDED || kind == HUB_TASK_COMMITS || kind == HUB_TASK_CHECK);
    return (struct hub_task){.kind = kind,
                             .name = by_id ? l->id : l->name,
                             .revision = revision,
                             .path = "",
                             .may_look = !l->forward || l->knows_id,
                             .forward = l->forward,
                             .token = l->token};
}

/* What the Hub said a short while ago. */
static int check_negatives(struct hub_look *l, const struct hub_task *t, struct error *err)
{
    const char *const revisions[] = {"", t->revision};
    for (size_t i = 0; i < ARRAY_LEN(revisions); i++) {
        _cleanup_strbuf_ struct strbuf key = STRBUF_INIT;
        if (hub_negative_key(t, revisions[i], &key, err) < 0)
            return -1;
        if (notes_get(&l->m->negatives, strbuf_str(&key), err, NULL))
            return hub_look_refuse(l,
                                   *revisions[i] ? HUB_MISSING_REVISION : HUB_MISSING_REPOSITORY);
    }
    return 0;
}

int hub_look_ask(struct hub_look *l, struct hub_task *t, bool held, struct hub_flight **ret,
                 struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_patience patience = {.until_ms = l->until_ms};
    if (held)
        patience = (struct hub_patience){.ms = l->m->config->revalidate_timeout_s * 1000u,
                                         .gives_up = true};
    t->is_held = held;
    if (check_negatives(l, t, err) < 0 || hub_ask_once(l->m, t, patience, &x, err) < 0)
        return -1;
    const struct hub_result *r = hub_flight_result(x);
    l->at->asked |= r->asked;
    if (r->rc < 0) {
        if (err)
            *err = r->error;
        return hub_look_refuse(l, r->missing);
    }
    *ret = TAKE_PTR(x);
    return 0;
}

bool hub_look_may_be_stale(const struct hub_look *l, const struct error *err)
{
    switch (l->at->refused) {
    case HUB_REFUSED_REPOSITORY:
    case HUB_REFUSED_REVISION:
    case HUB_REFUSED_ENTRY:
    case HUB_REFUSED_POLICY:
    case HUB_REFUSED_TOKEN:
        return false;
    case HUB_REFUSED_GATED:
        return !l->forward;
    case HUB_REFUSED_NOT:
        break;
    }
    switch (err->code) {
    case ERR_UNAUTHORIZED: /* trouble with our own login, or a proxy's */
    case ERR_DENIED:
        return !l->forward;
    case ERR_UPSTREAM:
    case ERR_TIMEOUT:
    case ERR_RATE_LIMITED:
    case ERR_DIGEST_MISMATCH:
    case ERR_BUSY:
    case ERR_NO_SPACE:
    case ERR_NOT_FOUND: /* and not in the Hub's words */
        return true;
    case ERR_LOOP: /* the upstream's trouble, unless the request has gone round already */
        return !loop_get().is_closed;
    default:
        return false;
    }
}

void hub_look_stale(struct hub_look *l, uint64_t checked_at, const char *why)
{
    char *to = l->at->warning;
    uint64_t now = clock_wall_s(); /* may have been set back meanwhile */
    l->at->refused = HUB_REFUSED_NOT;
    if (*to)
        return;
    if (checked_at)
        snprintf(to, WARNING_TEXT_MAX, STALE_TEXT "last confirmed %" PRIu64 " s ago: %.400s",
                 now > checked_at ? now - checked_at : 0, why);
    else
        snprintf(to, WARNING_TEXT_MAX, STALE_TEXT "as far as it goes: %.400s", why);
}

int hub_look_is_offline(const struct hub_look *l, const char *what, struct error *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "%.600s is not here, and upstream %s is offline by "
                   "configuration",
                   what, l->m->config->prefix);
}

int hub_look_no_entry(struct hub_look *l, const char *path, struct error *err)
{
    err_set(err, ERR_NOT_FOUND, "%s/%s has no file %.400s at %s", l->m->config->prefix, l->id, path,
            *l->at->commit ? l->at->commit : l->revision);
    return hub_look_refuse(l, HUB_MISSING_ENTRY);
}

/* ---- rights, asked for as such --------------------------------------------------------------- */

static int check_own(struct hub_look *l, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_mirror *m = l->m;
    struct hub_task t = hub_look_task(l, HUB_TASK_CHECK, "");
    if (notes_get(&m->checked, t.name, NULL, NULL))
        return 0;
    if (m->offline) {
        if (!l->knows_id)
            return hub_look_is_offline(l, l->name, err);
        hub_look_stale(l, 0, "the upstream is offline by configuration");
        return 0;
    }
    if (hub_look_ask(l, &t, l->knows_id, &x, err) == 0) {
        notes_put(&m->checked, t.name, m->config->auth_ttl_s, NULL, false);
        return 0;
    }
    if (!l->knows_id || l->at->refused != HUB_REFUSED_NOT || !hub_look_may_be_stale(l, err))
        return -1;
    hub_look_stale(l, 0, err->text);
    return 0;
}

int hub_mirror_check(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                     struct error *err)
{
    struct hub_look l;
    if (hub_look_begin(m, q, false, HUB_ACCESS_CONTENT, &l, at, err) < 0)
        return -1;
    if (!l.forward)
        return check_own(&l, err);
    return l.knows_id ? 0 : check_access(&l, err);
}

/* Compares in a time that does not tell how much is equal. */
static bool is_same_token(const char *a, const char *b)
{
    size_t n = strlen(a);
    unsigned char diff = 0;
    if (strlen(b) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i] ^ b[i]);
    return diff == 0;
}

/* Whether it is one that this server was given itself. */
static bool is_own_token(const struct config_upstream *c, const char *token)
{
    bool is = c->token && is_same_token(c->token, token);
    for (size_t i = 0; i < c->n_token_files; i++)
        is |= c->token_files[i].token && is_same_token(c->token_files[i].token, token);
    return is;
}

int hub_mirror_whoami(struct hub_mirror *m, struct strbuf *to, struct error *err)
{
    const char *token = caller_token();
    enum hub_missing missing = HUB_MISSING_NONE;
    if (!token)
        return err_set(err, ERR_UNAUTHORIZED, "no token was sent");
    if (hub_access_is_forward(m->access))
        return hub_access_whoami(m->access, m->hub, token, to, &missing, err);
    if (!is_own_token(m->config, token))
        return err_set(err, ERR_UNAUTHORIZED,
                       "the token is none that this server knows: with credentials: own it asks "
                       "upstream %s with its own alone",
                       m->config->prefix);
    if (m->offline)
        return err_set(err, ERR_NOT_FOUND, "upstream %s is offline by configuration",
                       m->config->prefix);
    struct hub *h = hub_as(m->hub, &(struct hub_asking){.has_token = true, .token = token});
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory for a Hub client");
    int rc = hub_whoami(h, to, &missing, err);
    hub_free(h);
    return rc;
}

/* What imports have stored under the name may be another id's than the one that it means now. */
static int check_row(struct hub_look *l, struct error *err)
{
    struct repository_row row;
    int found = store_repository_get(l->m->store, l->asked_as, &row, err);
    if (found != 1 || strcmp(row.upstream, l->m->config->prefix) != 0 ||
        !hub_id_is_valid(row.repo_id))
        return found < 0 ? -1 : 0;
    return hub_look_set_id(l, row.repo_id, err);
}

static int look_by_registry(struct hub_mirror *m, const char *repository, struct hub_at *at,
                            struct hub_look *ret, struct error *err)
{
    struct hub_query q = {.kind = HUB_MODEL};
    size_t n = strlen(m->config->prefix);
    bool is_ours = strncmp(repository, m->config->prefix, n) == 0 && repository[n] == '/';
    snprintf(q.name, sizeof(q.name), "%s", is_ours ? repository + n + 1 : repository);
    return start_look(m, &q, false, HUB_ACCESS_CONTENT, ret, at, err);
}

bool hub_registry_commit_is_named(struct hub_mirror *m, const char *repository, const char *commit)
{
    struct hub_at at;
    struct hub_look l;
    char id[REPOSITORY_MAX + 1];
    if (look_by_registry(m, repository, &at, &l, NULL) < 0)
        return false;
    int found = find_id(&l, id, NULL);
    return found >= 0 && hub_commit_is_named(m, found ? id : hub_look_up_alias(m->hub, l.name),
                                             repository, commit);
}

int hub_mirror_may_pull(struct hub_mirror *m, const char *repository, const char *revision,
                        struct error *err)
{
    struct hub_at at;
    struct hub_look l;
    char id[REPOSITORY_MAX + 1];
    bool is_commit = revision && is_lower_hex(revision, 40);
    if (config_policy_check(m->all, repository, revision, err) < 0 &&
        !(is_commit && hub_registry_commit_is_named(m, repository, revision)))
        return -1;
    if (look_by_registry(m, repository, &at, &l, err) < 0)
        return -1;
    snprintf(l.revision, sizeof(l.revision), "%s", revision ? revision : "");
    l.is_commit = is_commit;
    int found = find_id(&l, id, err);
    if (found)
        return found < 0 || hub_look_set_id(&l, id, err) < 0 ? -1 : check_row(&l, err);
    const char *alias = hub_look_up_alias(m->hub, l.name);
    return alias == l.name ? check_access(&l, err) : hub_look_set_id(&l, alias, err);
}
