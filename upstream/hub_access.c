#include "upstream/hub_access.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "storage/hub.h"
#include "upstream/blame.h"
#include "upstream/caller.h"
#include "upstream/hub_identity.h"
#include "upstream/hub_private.h"

/* Verdicts of so many (token, repository) pairs are kept. The place of one follows from its
 * SHA-256, so that a client with many tokens can only push out others that share its sets. */
#define SETS 1024u
#define WAYS 8u
#define LEVELS 2u
#define REFUSAL_MAX 500u

enum answer { ANSWER_NONE, ANSWER_YES, ANSWER_NO };

struct verdict {
    enum answer answer;
    uint64_t at_ms;     /* monotonic */
    uint64_t at_s;      /* wall clock */
    enum err_code code; /* ANSWER_NO */
    enum hub_missing missing;
    char *text; /* ANSWER_NO; NULL = there was no memory for it */
};

/* What is being asked right now. */
struct question {
    unsigned users; /* who asks, and everybody who waits; the last one frees it */
    bool done;
    int rc;
    enum hub_missing missing;
    struct error error;
    struct strbuf text; /* of whoami */
    char identity[HUB_IDENTITY_MAX + 1];
};

struct entry {
    bool used;
    unsigned char key[32];
    uint64_t used_ms;
    struct verdict verdicts[LEVELS];
    struct question *running[LEVELS];
    char *who;                           /* of whoami */
    char identity[HUB_IDENTITY_MAX + 1]; /* of the repository that the verdicts are about... */
    uint64_t identified_ms;              /* ...as the Hub told this caller then */
};

struct hub_access {
    const struct config_upstream *config;
    struct store *store;
    bool is_offline;
    pthread_mutex_t lock; /* guards: entries and every question */
    pthread_cond_t answered;
    struct entry *entries; /* SETS * WAYS; NULL with `credentials: own` */
};

/* One check on its way. */
struct check {
    struct hub_access *access;
    struct hub *hub;
    const char *id; /* "" = who the caller is */
    enum hub_access_level level;
    const char *token;
    unsigned char key[32];
    char identity[HUB_IDENTITY_MAX + 1]; /* what the store has of the id; "" = nothing */
    bool is_allowed;                     /* and only the identity is to be asked for */
};

int hub_access_new(const struct config *c, const struct config_upstream *u, struct store *s,
                   struct hub_access **ret, struct error *err)
{
    struct hub_access *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory for access checks");
    a->config = u;
    a->store = s;
    a->is_offline = config_is_offline(c, u);
    if (u->credentials == CREDENTIALS_FORWARD) {
        a->entries = calloc((size_t)SETS * WAYS, sizeof(*a->entries));
        if (!a->entries) {
            free(a);
            return err_set(err, ERR_NOMEM, "out of memory for access checks");
        }
    }
    if (pthread_mutex_init(&a->lock, NULL)) {
        free(a->entries);
        free(a);
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    }
    if (cond_init_monotonic(&a->answered)) {
        pthread_mutex_destroy(&a->lock);
        free(a->entries);
        free(a);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    *ret = a;
    return 0;
}

static void entry_clear(struct entry *e)
{
    for (unsigned i = 0; i < LEVELS; i++)
        free(e->verdicts[i].text);
    free(e->who);
    *e = (struct entry){0};
}

void hub_access_free(struct hub_access *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->entries && i < (size_t)SETS * WAYS; i++)
        entry_clear(&a->entries[i]);
    free(a->entries);
    pthread_cond_destroy(&a->answered);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

bool hub_access_is_forward(const struct hub_access *a)
{
    return a->entries != NULL;
}

/* ---- entries: all under a->lock -------------------------------------------------------------- */

static bool is_busy(const struct entry *e)
{
    return e->running[HUB_ACCESS_METADATA] || e->running[HUB_ACCESS_CONTENT];
}

/* The one that is missed least: an empty one, else the one that was used longest ago. */
static bool is_lesser(const struct entry *e, const struct entry *than)
{
    if (!than || !e->used)
        return true;
    return than->used && e->used_ms < than->used_ms;
}

/* NULL: there is none; make: nor a place for it. */
static struct entry *find_entry(struct hub_access *a, const unsigned char key[static 32], bool make)
{
    struct entry *set = &a->entries[(((size_t)key[0] << 8 | key[1]) % SETS) * WAYS];
    struct entry *lesser = NULL, *found = NULL;
    for (unsigned i = 0; i < WAYS && !found; i++) {
        if (set[i].used && memcmp(set[i].key, key, sizeof(set[i].key)) == 0)
            found = &set[i];
        else if (!is_busy(&set[i]) && is_lesser(&set[i], lesser))
            lesser = &set[i];
    }
    if (!found && make && lesser) {
        entry_clear(lesser);
        memcpy(lesser->key, key, sizeof(lesser->key));
        lesser->used = true;
        found = lesser;
    }
    if (found)
        found->used_ms = clock_monotonic_ms();
    return found;
}

static void make_key(const char *token, const char *id, unsigned char ret[static 32])
{
    char text[CALLER_TOKEN_MAX + REPOSITORY_MAX + 8];
    struct digest d = {0};
    int n = snprintf(text, sizeof(text), "%c%s %s", token ? '+' : '-', token ? token : "", id);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    digest_of(DIGEST_SHA256, text, len, &d, NULL);
    explicit_bzero(text, sizeof(text));
    memcpy(ret, d.raw, 32);
}

static uint64_t age_s(const struct verdict *v)
{
    return (clock_monotonic_ms() - v->at_ms) / 1000;
}

/* The right to the files is one to the metadata. */
static bool has_yes(const struct entry *e, enum hub_access_level level, uint64_t max_age_s)
{
    for (unsigned i = level; i < LEVELS; i++)
        if (e->verdicts[i].answer == ANSWER_YES && age_s(&e->verdicts[i]) < max_age_s)
            return true;
    return false;
}

/* What is here is of the repository that the verdicts are about. Nothing that is here is of another
 * one, either, when no identity is known (hub_look_commit() asks for commits then). */
static bool is_identified(const struct check *c, const struct entry *e, uint64_t max_age_s)
{
    return !*c->identity || strcmp(c->identity, HUB_IDENTITY_NONE) == 0 ||
           (strcmp(e->identity, c->identity) == 0 &&
            (clock_monotonic_ms() - e->identified_ms) / 1000 < max_age_s);
}

static void identify(struct entry *e, const char *identity)
{
    strcpy(e->identity, identity);
    e->identified_ms = clock_monotonic_ms();
}

static void set_verdict(struct entry *e, enum hub_access_level level, int rc,
                        enum hub_missing missing, const struct error *why)
{
    struct verdict *v = &e->verdicts[level];
    free(v->text);
    *v = (struct verdict){.answer = rc < 0 ? ANSWER_NO : ANSWER_YES,
                          .at_ms = clock_monotonic_ms(),
                          .at_s = clock_wall_s()};
    if (rc == 0)
        return;
    v->code = why->code;
    v->missing = missing;
    v->text = strndup(why->text, REFUSAL_MAX);
}

/* What is said of one level can settle both: who may have the files may have the metadata, and who
 * is told that there is no such repository, or no such token, may have neither. */
static void note(struct entry *e, enum hub_access_level level, const struct question *q)
{
    if (q->rc < 0 && !upstream_refuses(&q->error))
        return;
    bool both = q->rc < 0 ? q->missing != HUB_MISSING_GATED : level == HUB_ACCESS_CONTENT;
    for (unsigned i = 0; i < LEVELS; i++)
        if (both || i == level)
            set_verdict(e, i, q->rc, q->missing, &q->error);
}

static int refuse(const struct verdict *v, enum hub_missing *ret_missing, struct error *err)
{
    *ret_missing = v->missing;
    return err_set(err, v->code, "%s", v->text ? v->text : "the Hub refuses this to this caller");
}

/* 1 allowed, 0 not known, -1 refused. */
static int look_up(struct check *c, const struct entry *e, enum hub_missing *ret_missing,
                   struct error *err)
{
    uint64_t ttl = c->access->config->auth_ttl_s;
    const struct verdict *v = &e->verdicts[c->level];
    c->is_allowed = has_yes(e, c->level, ttl);
    if (c->is_allowed)
        return is_identified(c, e, ttl);
    if (v->answer == ANSWER_NO && age_s(v) < (ttl < ACCESS_REFUSED_S ? ttl : ACCESS_REFUSED_S))
        return refuse(v, ret_missing, err);
    return 0;
}

/* ---- when the Hub cannot be asked ------------------------------------------------------------ */

static bool is_false(const struct json *object, const char *key)
{
    const struct json *j = json_get(object, key);
    return j && json_is_bool(j) && !json_is_true(j);
}

/* The Hub has said so, and has not refused this caller since. */
static bool is_public(const struct check *c, uint64_t refused_at_s)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    _cleanup_json_ struct json *info = NULL;
    uint64_t said_at_s;
    return *c->id &&
           store_hub_document_get(c->access->store, c->access->config->prefix, c->id, "", "info",
                                  &text, &said_at_s, NULL) > 0 &&
           said_at_s >= refused_at_s && json_parse(strbuf_str(&text), text.len, &info, NULL) == 0 &&
           is_false(info, "private") && is_false(info, "gated");
}

static bool is_kept_back(enum hub_missing missing)
{
    return missing == HUB_MISSING_REPOSITORY || missing == HUB_MISSING_GATED;
}

/* The Hub keeps it back from somebody, so it is not for everybody any more. */
static void note_hidden(const struct check *c, enum hub_missing missing)
{
    static const char hidden[] = "{\"private\":true,\"gated\":true}";
    if (is_kept_back(missing) && is_public(c, 0))
        store_hub_document_put(c->access->store, c->access->config->prefix, c->id, "", "info",
                               hidden, strlen(hidden), NULL);
}

/* Nor for who sends no token. Under the lock. */
static void forget_nobody(const struct check *c, enum hub_missing missing)
{
    unsigned char key[32];
    if (!is_kept_back(missing))
        return;
    make_key(NULL, c->id, key);
    struct entry *e = find_entry(c->access, key, false);
    for (unsigned i = 0; e && i < LEVELS; i++)
        if (e->verdicts[i].answer == ANSWER_YES &&
            (missing == HUB_MISSING_REPOSITORY || i == HUB_ACCESS_CONTENT))
            e->verdicts[i].answer = ANSWER_NONE;
}

/* Whether what is known would do for now. */
static bool has_fallback(const struct check *c)
{
    uint64_t refused_at_s = 0;
    pthread_mutex_lock(&c->access->lock);
    const struct entry *e = find_entry(c->access, c->key, false);
    bool yes = e && has_yes(e, c->level, ACCESS_STALE_S) && is_identified(c, e, ACCESS_STALE_S) &&
               (*c->id || e->who);
    if (e && e->verdicts[c->level].answer == ANSWER_NO)
        refused_at_s = e->verdicts[c->level].at_s;
    pthread_mutex_unlock(&c->access->lock);
    return yes || is_public(c, refused_at_s);
}

static bool is_out_of_reach(const struct error *err)
{
    return err->code == ERR_UPSTREAM || err->code == ERR_TIMEOUT || err->code == ERR_RATE_LIMITED ||
           err->code == ERR_BUSY;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Which repository has the id, as this caller is told. It may be another one than the store has
 * things of: those are not to be given by the rights to it. */
static int ask_identity(const struct check *c, struct hub *as, struct question *q)
{
    struct hub_revision found;
    _cleanup_strbuf_ struct strbuf info = STRBUF_INIT;
    if (hub_info(as, c->id, NULL, &info, &found, &q->missing, &q->error) < 0)
        return -1;
    *found.commit = '\0';
    return hub_identity_note(c->access->store, c->access->config, c->id, &found, q->identity,
                             &q->error);
}

static bool is_lately_identified(const struct check *c)
{
    pthread_mutex_lock(&c->access->lock);
    const struct entry *e = find_entry(c->access, c->key, false);
    bool is = e ? is_identified(c, e, c->access->config->auth_ttl_s) : !*c->identity;
    pthread_mutex_unlock(&c->access->lock);
    return is;
}

static int ask_hub(const struct check *c, struct hub *as, struct question *q)
{
    if (!*c->id)
        return hub_whoami(as, &q->text, &q->missing, &q->error);
    if (c->level == HUB_ACCESS_METADATA || c->is_allowed)
        return ask_identity(c, as, q);
    if (hub_check(as, c->id, &q->missing, &q->error) < 0)
        return -1;
    return is_lately_identified(c) ? 0 : ask_identity(c, as, q);
}

static void ask(const struct check *c, struct question *q)
{
    const struct config_upstream *u = c->access->config;
    bool is_known = has_fallback(c);
    struct hub_asking how = {.has_token = true, .token = c->token};
    if (is_known)
        how.deadline_ms = clock_monotonic_ms() + u->revalidate_timeout_s * 1000u;
    struct hub *as = c->access->is_offline ? NULL : hub_as(c->hub, &how);
    if (as)
        q->rc = ask_hub(c, as, q);
    else if (c->access->is_offline)
        q->rc =
            err_set(&q->error, ERR_UPSTREAM, "upstream %s is offline by configuration", u->prefix);
    else
        q->rc = err_set(&q->error, ERR_NOMEM, "out of memory for a Hub client");
    hub_free(as);
    if (q->rc < 0 && is_out_of_reach(&q->error)) {
        if (is_known)
            q->rc = 1; /* as it was, and nothing to be noted */
        else
            err_wrap(&q->error,
                     "whether this caller may read %s/%s could not be asked, and nothing here says "
                     "that everybody may",
                     u->prefix, c->id);
    }
    if (q->rc < 0)
        note_hidden(c, q->missing);
    if (q->rc < 0 && c->access->is_offline)
        q->error.code = ERR_DENIED; /* nor does it pass by itself */
    /* The Hub does not tell the two apart either. */
    if (q->rc < 0 && !c->token && q->missing == HUB_MISSING_REPOSITORY)
        q->error.code = ERR_UNAUTHORIZED;
}

/* Under the lock. */
static int take_answer(struct question *q, enum hub_missing *ret_missing, struct strbuf *text,
                       struct error *err)
{
    int rc = q->rc < 0 ? -1 : 0;
    *ret_missing = q->missing;
    if (rc < 0 && err)
        *err = q->error;
    if (rc == 0 && text)
        strbuf_put(text, strbuf_str(&q->text), q->text.len);
    if (--q->users == 0) {
        strbuf_done(&q->text);
        free(q);
    }
    return rc;
}

/* Under the lock, which is let go meanwhile. */
static void lead(const struct check *c, struct question *q)
{
    struct hub_access *a = c->access;
    pthread_mutex_unlock(&a->lock);
    ask(c, q);
    pthread_mutex_lock(&a->lock);
    struct entry *e = find_entry(a, c->key, false); /* busy ones stay */
    q->done = true;
    if (q->rc < 0)
        forget_nobody(c, q->missing);
    if (e && e->running[c->level] == q) {
        e->running[c->level] = NULL;
        if (q->rc <= 0) /* the info of a repository says nothing of its files */
            note(e, c->is_allowed ? HUB_ACCESS_METADATA : c->level, q);
        if (q->rc == 0 && *q->identity)
            identify(e, q->identity);
        if (q->rc == 0 && !*c->id) {
            free(e->who);
            e->who = strdup(strbuf_str(&q->text));
        } else if (q->rc > 0 && e->who) {
            strbuf_puts(&q->text, e->who); /* as it was */
        }
    }
    pthread_cond_broadcast(&a->answered);
}

/* Under the lock. */
static int ask_or_wait(const struct check *c, struct entry *e, enum hub_missing *ret_missing,
                       struct strbuf *text, struct error *err)
{
    struct question *q = e ? e->running[c->level] : NULL;
    if (q) {
        q->users++;
        while (!q->done)
            pthread_cond_wait(&c->access->answered, &c->access->lock);
        return take_answer(q, ret_missing, text, err);
    }
    q = calloc(1, sizeof(*q));
    if (!q)
        return err_set(err, ERR_NOMEM, "out of memory for an access check");
    q->users = 1;
    if (e)
        e->running[c->level] = q;
    lead(c, q);
    return take_answer(q, ret_missing, text, err);
}

static int run(struct check *c, enum hub_missing *ret_missing, struct strbuf *text,
               struct error *err)
{
    enum hub_missing ignored;
    enum hub_missing *missing = ret_missing ? ret_missing : &ignored;
    struct hub_access *a = c->access;
    *missing = HUB_MISSING_NONE;
    if (*c->id && hub_identity_get(a->store, a->config->prefix, c->id, "", c->identity, err) < 0)
        return -1;
    make_key(c->token, c->id, c->key);
    pthread_mutex_lock(&a->lock);
    struct entry *e = find_entry(a, c->key, true);
    int rc = e ? look_up(c, e, missing, err) : 0;
    if (rc > 0 && text && e->who)
        strbuf_puts(text, e->who);
    if (rc == 0 || (rc > 0 && text && !e->who))
        rc = ask_or_wait(c, e, missing, text, err);
    pthread_mutex_unlock(&a->lock);
    return rc < 0 ? -1 : 0;
}

int hub_access_check(struct hub_access *a, struct hub *h, const char *id,
                     enum hub_access_level level, const char *token, enum hub_missing *ret_missing,
                     struct error *err)
{
    struct check c = {
        .access = a, .hub = h, .id = hub_look_up_alias(h, id), .level = level, .token = token};
    if (!a->entries) {
        if (ret_missing)
            *ret_missing = HUB_MISSING_NONE;
        return 0;
    }
    return run(&c, ret_missing, NULL, err);
}

void hub_access_allowed(struct hub_access *a, const char *id, enum hub_access_level level,
                        const char *token, const char *identity)
{
    unsigned char key[32];
    if (!a->entries)
        return;
    make_key(token, id, key);
    pthread_mutex_lock(&a->lock);
    struct entry *e = find_entry(a, key, true);
    if (e)
        note(e, level, &(struct question){.rc = 0});
    if (e && identity)
        identify(e, identity);
    pthread_mutex_unlock(&a->lock);
}

int hub_access_whoami(struct hub_access *a, struct hub *h, const char *token, struct strbuf *json,
                      enum hub_missing *ret_missing, struct error *err)
{
    struct check c = {.access = a, .hub = h, .id = "", .token = token};
    if (!token) {
        if (ret_missing)
            *ret_missing = HUB_MISSING_TOKEN;
        return err_set(err, ERR_UNAUTHORIZED, "no token was sent");
    }
    if (!a->entries) {
        const struct hub_asking how = {.has_token = true, .token = token};
        enum hub_missing ignored;
        struct hub *as = hub_as(h, &how);
        int rc = as ? hub_whoami(as, json, ret_missing ? ret_missing : &ignored, err)
                    : err_set(err, ERR_NOMEM, "out of memory for a Hub client");
        hub_free(as);
        return rc;
    }
    return run(&c, ret_missing, json, err);
}
