#include "upstream/oci_auth.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "upstream/breaker.h"
#include "upstream/oci_challenge.h"
#include "upstream/oci_token.h"

/* Scopes that are remembered; the one that was not asked for longest is forgotten first. */
#define ASKERS_MAX 1024u
/* A token that was never taken is not exchanged again when it is refused while it is as young as
 * this: it is not age. A login that the token server refused is not tried again for as long: that
 * locks accounts. */
#define FRESH_MS 10000u
/* Renewed so long before it runs out, but within the last tenth of its life. */
#define SLACK_MAX_MS 10000u
/* After so many failures in a row the token server is left alone for a while. */
#define FAILURES 3u

/* What one (realm, service, scope) is granted. */
struct grant {
    struct grant *next;
    unsigned refs;                 /* askers and threads that hold it; without any it is gone */
    char *realm, *service, *scope; /* service and scope may be NULL; these never change */
    bool no_post;
    bool exchanging; /* a thread asks the token server; the others wait for `rounds` */
    uint64_t rounds; /* exchanges that have ended */
    bool hurried;    /* the last one was given up at its caller's deadline */
    int rc;          /* of the last one: 1 token, 0 refused, -1 failed; then *why says */
    struct error why;
    char *header;  /* "Bearer ...", NULL = none so far */
    bool accepted; /* the registry has taken it */
    uint64_t got_ms, renew_ms, end_ms;
    uint64_t hold_ms; /* until then the last exchange's refusal or failure stands */
};

/* A scope that our callers name, and the grant that the registry wanted for it. */
struct asker {
    struct asker *next;
    struct grant *grant;
    enum {
        ASKER_TOLD,    /* by its challenge */
        ASKER_GUESSED, /* as it wanted one for other scopes */
        ASKER_VAIN,    /* guessed, and the token server would not: the registry has to say */
    } how;
    char scope[];
};

struct oci_auth {
    char *url, *host;
    struct http_pool *pool;
    struct oci_credentials *credentials;
    struct breaker *breaker; /* the token server's: a dead one must not cost its time limits */

    pthread_mutex_t lock;   /* guards: all below, and what is in the grants */
    pthread_cond_t changed; /* a grant's rounds */
    struct grant *grants;
    struct asker *askers; /* the last used one first */
    unsigned n_askers;
    char *realm, *service; /* of the last challenge that others may be like; realm NULL: none,
                              service may be NULL */
    char *scope;           /* its scope; NULL: the one that was asked for */
    bool basic;            /* the registry wants Basic where it has not named a token server */
};

static int make_breaker(struct oci_auth *a, struct error *err)
{
    char name[300];
    snprintf(name, sizeof(name), "the token server of %s", a->host);
    return breaker_new(name, FAILURES, &a->breaker, err);
}

int oci_auth_new(const struct oci_auth_options *o, struct oci_auth **ret, struct error *err)
{
    struct oci_auth *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory for a registry's login");
    pthread_mutex_init(&a->lock, NULL);
    cond_init_monotonic(&a->changed);
    a->pool = o->pool;
    int rc = oci_credentials_new(o, &a->credentials, err);
    if (rc == 0 && (!(a->url = strdup(o->url)) || !(a->host = http_host(o->url))))
        rc = err_set(err, ERR_NOMEM, "out of memory for a registry's login");
    if (rc == 0)
        rc = make_breaker(a, err);
    if (rc < 0) {
        oci_auth_free(a);
        return -1;
    }
    *ret = a;
    return 0;
}

/* ---- grants and who asks for them; all under the lock ---------------------------------------- */

static void grant_free(struct grant *g)
{
    free(g->realm);
    free(g->service);
    free(g->scope);
    free(g->header);
    free(g);
}

static void grant_unref(struct oci_auth *a, struct grant *g)
{
    if (--g->refs)
        return;
    struct grant **at = &a->grants;
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
    grant_free(g);
}

static bool same(const char *x, const char *y)
{
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static bool copy(const char *text, char **to)
{
    return !text || (*to = strdup(text));
}

/* The one for these three, a new one if need be; a reference is the caller's. NULL: no memory. */
static struct grant *grant_for(struct oci_auth *a, const char *realm, const char *service,
                               const char *scope)
{
    for (struct grant *g = a->grants; g; g = g->next)
        if (same(g->scope, scope) && same(g->service, service) && same(g->realm, realm)) {
            g->refs++;
            return g;
        }
    struct grant *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    if (!copy(realm, &g->realm) || !copy(service, &g->service) || !copy(scope, &g->scope)) {
        grant_free(g);
        return NULL;
    }
    g->refs = 1;
    g->next = a->grants;
    a->grants = g;
    return g;
}

/* Takes the asker of this scope out of the list; NULL: none. */
static struct asker *take_asker(struct oci_auth *a, const char *scope)
{
    struct asker **at = &a->askers;
    while (*at && strcmp((*at)->scope, scope) != 0)
        at = &(*at)->next;
    struct asker *found = *at;
    if (found) {
        *at = found->next;
        a->n_askers--;
    }
    return found;
}

static void put_asker_first(struct oci_auth *a, struct asker *k)
{
    k->next = a->askers;
    a->askers = k;
    a->n_askers++;
}

static void drop_asker(struct oci_auth *a, struct asker *k)
{
    if (!k)
        return;
    grant_unref(a, k->grant);
    free(k);
}

static void drop_last_asker(struct oci_auth *a)
{
    struct asker **at = &a->askers;
    while (*at && (*at)->next)
        at = &(*at)->next;
    if (*at)
        drop_asker(a, take_asker(a, (*at)->scope));
}

/* From here on this scope is asked for with this grant. */
static int remember(struct oci_auth *a, const char *scope, struct grant *g, int how)
{
    struct asker *k = take_asker(a, scope);
    if (k) {
        grant_unref(a, k->grant);
    } else {
        size_t len = strlen(scope) + 1;
        if (!(k = malloc(sizeof(*k) + len)))
            return -1;
        memcpy(k->scope, scope, len);
    }
    k->grant = g;
    k->how = how;
    g->refs++;
    if (a->n_askers == ASKERS_MAX)
        drop_last_asker(a);
    put_asker_first(a, k);
    return 0;
}

void oci_auth_free(struct oci_auth *a)
{
    if (!a)
        return;
    while (a->askers)
        drop_asker(a, take_asker(a, a->askers->scope));
    oci_credentials_free(a->credentials);
    breaker_free(a->breaker);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a->realm);
    free(a->service);
    free(a->scope);
    free(a->url);
    free(a->host);
    free(a);
}

/* ---- using a grant --------------------------------------------------------------------------- */

static int give(const char *header, char **ret, struct error *err)
{
    char *text = strdup(header);
    if (!text)
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    *ret = text;
    return 1;
}

/* The registry refused what it has just been given: more of the same is no use. */
static int refused(struct oci_auth *a, const struct grant *g, const struct oci_credential *c,
                   struct error *err)
{
    char advice[768];
    bool anonymous = !c->username && !c->identity_token;
    oci_credentials_advice(a->credentials, advice, sizeof(advice));
    err_set(err, ERR_DENIED,
            "%s refuses the token that its token server gave for %.200s: it does not exist, or %s "
            "(%s)",
            a->host, g->scope ? g->scope : "this request",
            anonymous ? "needs a login" : "our login may not read it", advice);
    return 0;
}

static bool is_late(const struct oci_token_request *q)
{
    return q->deadline_ms && clock_monotonic_ms() + 1 >= q->deadline_ms;
}

/* As oci_token_exchange(), unless the token server is left alone; then *ret_alone is set. */
static int ask_server(struct oci_auth *a, const struct oci_token_request *q,
                      const struct oci_credential *c, struct oci_token *ret, bool *ret_no_post,
                      bool *ret_alone, struct error *why)
{
    *ret_alone = breaker_enter(a->breaker, clock_monotonic_ms(), why) < 0;
    if (*ret_alone)
        return -1;
    int rc = oci_token_exchange(a->pool, q, c, ret, ret_no_post, why);
    if (rc >= 0) {
        breaker_success(a->breaker);
        return rc;
    }
    struct error told = *why;
    if (is_late(q)) /* it may only be slow: one such failure among others */
        told.code = ERR_UPSTREAM;
    breaker_failure(a->breaker, clock_monotonic_ms(), &told);
    return rc;
}

/* One exchange; the caller has set g->exchanging and does not hold the lock. */
static void exchange(struct oci_auth *a, struct grant *g, bool no_post,
                     const struct oci_credential *c, uint64_t deadline_ms)
{
    uint64_t start_ms = clock_monotonic_ms();
    struct oci_token_request q = {.realm = g->realm,
                                  .service = g->service,
                                  .scope = g->scope,
                                  .no_post = no_post,
                                  .deadline_ms = deadline_ms};
    struct oci_token token = {0};
    struct error why = ERROR_INIT;
    char *header = NULL;
    bool alone;
    int rc = ask_server(a, &q, c, &token, &no_post, &alone, &why);
    if (rc == 0) {
        char advice[768];
        oci_credentials_advice(a->credentials, advice, sizeof(advice));
        err_set(&why, ERR_UNAUTHORIZED, "%.200s: %s", why.text, advice);
    }
    if (rc == 1 && asprintf(&header, "Bearer %s", token.text) < 0) {
        header = NULL;
        rc = err_set(&why, ERR_NOMEM, "out of memory for a token");
    }
    free(token.text);

    pthread_mutex_lock(&a->lock);
    g->exchanging = false;
    g->rounds++;
    g->rc = rc;
    g->why = why;
    g->no_post = no_post;
    g->hurried = rc < 0 && why.code == ERR_TIMEOUT && is_late(&q);
    g->hold_ms = 0;
    if (rc == 0)
        g->hold_ms = clock_monotonic_ms() + FRESH_MS;
    else if (rc < 0 && !alone)
        g->hold_ms = clock_monotonic_ms() + why.retry_after * 1000ull;
    if (rc == 1) {
        uint64_t life_ms = token.life_s * 1000u;
        uint64_t slack_ms = life_ms / 10 < SLACK_MAX_MS ? life_ms / 10 : SLACK_MAX_MS;
        free(g->header);
        g->header = header;
        g->accepted = false;
        g->got_ms = clock_monotonic_ms();
        g->end_ms = start_ms + life_ms;
        g->renew_ms = g->end_ms - slack_ms;
    }
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

/* What the last exchange means for one who waited for it, or came while it stands. Under the lock.
 */
static int outcome(struct oci_auth *a, const struct grant *g, const char *sent,
                   const struct oci_credential *c, char **ret, struct error *err)
{
    if (g->rc == 1)
        return same(g->header, sent) ? refused(a, g, c, err) : give(g->header, ret, err);
    /* The old one has a little time left. */
    if (!sent && g->header && clock_monotonic_ms() < g->end_ms)
        return give(g->header, ret, err);
    if (err) {
        uint64_t now = clock_monotonic_ms();
        *err = g->why;
        if (err->retry_after && now < g->hold_ms)
            err->retry_after = (unsigned)((g->hold_ms - now + 999) / 1000);
    }
    return g->rc;
}

/* Sees to it that an exchange ends, this thread's or the one that is under way. Under the lock. */
static int ask(struct oci_auth *a, struct grant *g, const struct oci_credential *c,
               uint64_t deadline_ms, struct error *err)
{
    uint64_t start_ms = clock_monotonic_ms();
    uint64_t end_ms = start_ms + 2 * http_pool_patience_ms(a->pool); /* POST and GET */
    if (deadline_ms && deadline_ms < end_ms)
        end_ms = deadline_ms;
    while (g->exchanging) {
        uint64_t round = g->rounds, now;
        while (g->rounds == round && (now = clock_monotonic_ms()) < end_ms)
            cond_wait_until(&a->changed, &a->lock, end_ms);
        if (g->rounds == round)
            return err_set(err, ERR_TIMEOUT, "no token for %s within %" PRIu64 " ms", a->host,
                           now - start_ms);
        if (!g->hurried) /* else that one's time was up, not ours */
            return 0;
    }
    bool no_post = g->no_post;
    g->exchanging = true;
    pthread_mutex_unlock(&a->lock);
    exchange(a, g, no_post, c, deadline_ms);
    pthread_mutex_lock(&a->lock);
    return 0;
}

/* sent: what the registry has refused, NULL = nothing. 1, 0 (no use), -1 as oci_auth_challenged().
 * The grant is referenced by the caller. */
static int use(struct oci_auth *a, struct grant *g, const char *sent,
               const struct oci_credential *c, uint64_t deadline_ms, char **ret, struct error *err)
{
    pthread_mutex_lock(&a->lock);
    uint64_t now = clock_monotonic_ms();
    bool holds = g->header && now < g->renew_ms;
    int rc;
    if (holds && !same(g->header, sent)) {
        rc = give(g->header, ret, err);
    } else if (holds && !g->accepted && now - g->got_ms < FRESH_MS) {
        rc = refused(a, g, c, err);
    } else if (!g->exchanging && g->rc <= 0 && now < g->hold_ms) {
        rc = outcome(a, g, sent, c, ret, err);
    } else {
        rc = ask(a, g, c, deadline_ms, err);
        if (rc == 0)
            rc = outcome(a, g, sent, c, ret, err);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* An identity token's user name comes without a password. */
static bool has_password(const struct oci_credential *c)
{
    return c->password && (*c->password || !c->identity_token);
}

static int give_basic(const struct oci_credential *c, char **ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    oci_credential_basic(c->username, c->password, &value);
    if (strbuf_failed(&value))
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    *ret = strbuf_take(&value);
    return 1;
}

static int give_bearer(const char *token, char **ret, struct error *err)
{
    char *text;
    if (asprintf(&text, "Bearer %s", token) < 0)
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    *ret = text;
    return 1;
}

/* The grant to ask with, which is referenced then: what the registry wanted for this scope, or else
 * what it may want, going by others. NULL: nothing is known, or no memory, and then the registry
 * will say. */
static struct grant *grant_of(struct oci_auth *a, const char *scope, bool *ret_guessed)
{
    pthread_mutex_lock(&a->lock);
    struct asker *k = take_asker(a, scope);
    struct grant *g = NULL;
    *ret_guessed = false;
    if (k) {
        put_asker_first(a, k);
        *ret_guessed = k->how == ASKER_GUESSED;
        g = k->how == ASKER_VAIN ? NULL : k->grant;
        if (g)
            g->refs++;
    } else if (a->realm && (g = grant_for(a, a->realm, a->service, a->scope ? a->scope : scope))) {
        *ret_guessed = true;
        remember(a, scope, g, ASKER_GUESSED);
    }
    pthread_mutex_unlock(&a->lock);
    return g;
}

/* A guess was wrong. */
static void give_up_guess(struct oci_auth *a, const char *scope)
{
    pthread_mutex_lock(&a->lock);
    for (struct asker *k = a->askers; k; k = k->next)
        if (k->how == ASKER_GUESSED && strcmp(k->scope, scope) == 0)
            k->how = ASKER_VAIN;
    pthread_mutex_unlock(&a->lock);
}

/* 1 got one, 0 go on without, -1. */
static int header_of_grant(struct oci_auth *a, const char *scope, const struct oci_credential *c,
                           uint64_t deadline_ms, char **ret, struct error *err)
{
    bool guessed;
    struct grant *g = grant_of(a, scope, &guessed);
    if (!g)
        return 0;
    struct error why = ERROR_INIT;
    int rc = use(a, g, NULL, c, deadline_ms, ret, &why);
    pthread_mutex_lock(&a->lock);
    grant_unref(a, g);
    pthread_mutex_unlock(&a->lock);
    if (rc == 1)
        return 1;
    if (guessed && rc == 0)
        give_up_guess(a, scope);
    bool no_time = deadline_ms && clock_monotonic_ms() >= deadline_ms;
    if (guessed && !no_time && why.code != ERR_NOMEM && why.code != ERR_CANCELLED)
        return 0; /* nobody has said that it takes a token */
    if (err)
        *err = why;
    return -1;
}

int oci_auth_header_until(struct oci_auth *a, const char *scope, uint64_t deadline_ms, char **ret,
                          struct error *err)
{
    _cleanup_credential_ struct oci_credential c = {0};
    if (oci_credentials_get(a->credentials, &c, err) < 0)
        return -1;
    if (c.registry_token)
        return give_bearer(c.registry_token, ret, err) < 0 ? -1 : 0;
    int rc = header_of_grant(a, scope, &c, deadline_ms, ret, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    pthread_mutex_lock(&a->lock);
    bool basic = a->basic;
    pthread_mutex_unlock(&a->lock);
    if (basic && has_password(&c))
        return give_basic(&c, ret, err) < 0 ? -1 : 0;
    *ret = NULL;
    return 0;
}

int oci_auth_header(struct oci_auth *a, const char *scope, char **ret, struct error *err)
{
    return oci_auth_header_until(a, scope, 0, ret, err);
}

/* ---- challenges ------------------------------------------------------------------------------ */

/* err_set() for "no use". */
static int no_use(struct oci_auth *a, struct error *err, const char *what)
{
    char advice[768];
    oci_credentials_advice(a->credentials, advice, sizeof(advice));
    err_set(err, ERR_UNAUTHORIZED, "%s %s: %s", a->host, what, advice);
    return 0;
}

static int answer_basic(struct oci_auth *a, const char *scope, const char *sent,
                        const struct oci_credential *c, char **ret, struct error *err)
{
    _cleanup_free_ char *header = NULL;
    if (!has_password(c))
        return no_use(a, err, "wants a user name and a password");
    if (give_basic(c, &header, err) < 0)
        return -1;
    if (same(header, sent))
        return no_use(a, err, "refuses the user name or the password");
    pthread_mutex_lock(&a->lock);
    a->basic = true;
    free(TAKE_PTR(a->realm));
    drop_asker(a, take_asker(a, scope));
    pthread_mutex_unlock(&a->lock);
    *ret = TAKE_PTR(header);
    return 1;
}

/* Whether the repository's name is in it: "repository:NAME:pull". */
static bool names_repository_of(const char *text, const char *scope)
{
    const char *first = strchr(scope, ':'), *last = strrchr(scope, ':');
    if (!first || first == last)
        return true;
    return memmem(text, strlen(text), first + 1, (size_t)(last - first - 1)) != NULL;
}

/* Other scopes will want their tokens from there, for the scope that is asked for, or for one that
 * is the same for all ("aws" of the public Elastic Container Registry). A wrong guess costs one
 * request, so running out of memory is none of the caller's business. Under the lock. */
static void learn(struct oci_auth *a, const struct grant *g, const char *scope)
{
    char *realm = strdup(g->realm), *service = NULL, *fixed = NULL;
    bool is_own = strcmp(g->scope, scope) == 0;
    if ((!is_own && names_repository_of(g->scope, scope)) || !realm ||
        !copy(g->service, &service) || !copy(is_own ? NULL : g->scope, &fixed)) {
        free(realm);
        free(service);
        return;
    }
    free(a->realm);
    free(a->service);
    free(a->scope);
    a->realm = realm;
    a->service = service;
    a->scope = fixed;
}

/* The registry does not say that the token gives too little: to it this is no token at all. Then it
 * and its token server do not agree on keys or clocks, which says nothing of the repository. */
static void refused_as_invalid(struct oci_auth *a, const struct oci_challenge *b,
                               const struct grant *g, struct error *err)
{
    if (!b->error || strcasecmp(b->error, "invalid_token") != 0)
        return;
    _cleanup_free_ char *host = http_host(g->realm);
    err_set(err, ERR_UNAUTHORIZED,
            "%s calls the token invalid that its token server %s has just given: the two do not "
            "agree on keys, clocks or names, which is for whoever runs them to mend",
            a->host, host ? host : "");
}

static int answer_bearer(struct oci_auth *a, const char *scope, const char *sent,
                         const struct oci_challenge *b, const struct oci_credential *c,
                         uint64_t deadline_ms, char **ret, struct error *err)
{
    _cleanup_free_ char *realm = http_resolve_location(a->url, b->realm);
    if (!realm) {
        err_set(err, ERR_UNAUTHORIZED, "%s names a token server that is no http or https URL",
                a->host);
        return 0;
    }
    if (strncasecmp(a->url, "https:", 6) == 0 && strncasecmp(realm, "https:", 6) != 0) {
        _cleanup_free_ char *host = http_host(realm);
        err_set(err, ERR_UNAUTHORIZED,
                "%s names the token server %s on plain http, which would show logins and tokens to "
                "everybody on the way: the registry has to name an https URL",
                a->host, host ? host : "");
        return 0;
    }
    const char *wanted = b->scope && *b->scope ? b->scope : scope;
    pthread_mutex_lock(&a->lock);
    struct grant *g = grant_for(a, realm, b->service, wanted);
    int rc = g && remember(a, scope, g, ASKER_TOLD) == 0 ? 0 : -1;
    if (g && rc < 0)
        grant_unref(a, g);
    pthread_mutex_unlock(&a->lock);
    if (rc < 0)
        return err_set(err, ERR_NOMEM, "out of memory for a token");
    struct error why = ERROR_INIT;
    rc = use(a, g, sent, c, deadline_ms, ret, &why);
    if (rc == 0 && why.code == ERR_DENIED)
        refused_as_invalid(a, b, g, &why);
    if (rc <= 0 && err)
        *err = why;
    pthread_mutex_lock(&a->lock);
    if (rc == 1)
        learn(a, g, scope);
    grant_unref(a, g);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

static int answer_registry_token(struct oci_auth *a, const char *sent,
                                 const struct oci_credential *c, char **ret, struct error *err)
{
    _cleanup_free_ char *header = NULL;
    if (give_bearer(c->registry_token, &header, err) < 0)
        return -1;
    if (same(header, sent))
        return no_use(a, err, "refuses our token");
    *ret = TAKE_PTR(header);
    return 1;
}

int oci_auth_challenged_until(struct oci_auth *a, const char *scope, const char *sent,
                              const struct http_response *r, uint64_t deadline_ms, char **ret,
                              struct error *err)
{
    _cleanup_credential_ struct oci_credential c = {0};
    _cleanup_(oci_challenges_done) struct oci_challenges challenges = {0};
    static const char name[] = "WWW-Authenticate";
    for (const char *v = http_header(r, name); v; v = http_header_next(r, name, v))
        if (oci_challenges_add(&challenges, v, err) < 0)
            return -1;
    if (oci_credentials_get(a->credentials, &c, err) < 0)
        return -1;
    if (c.registry_token)
        return answer_registry_token(a, sent, &c, ret, err);
    const struct oci_challenge *best = oci_challenge_best(&challenges);
    if (!best) {
        err_set(err, ERR_UNAUTHORIZED,
                "%s answered 401 and asks for nothing that we could answer (Bearer or Basic)",
                a->host);
        return 0;
    }
    if (best->scheme == OCI_SCHEME_BASIC)
        return answer_basic(a, scope, sent, &c, ret, err);
    return answer_bearer(a, scope, sent, best, &c, deadline_ms, ret, err);
}

int oci_auth_challenged(struct oci_auth *a, const char *scope, const char *sent,
                        const struct http_response *r, char **ret, struct error *err)
{
    return oci_auth_challenged_until(a, scope, sent, r, 0, ret, err);
}

void oci_auth_accepted(struct oci_auth *a, const char *scope, const char *sent)
{
    pthread_mutex_lock(&a->lock);
    struct asker *k = a->askers;
    while (k && strcmp(k->scope, scope) != 0)
        k = k->next;
    if (k && same(k->grant->header, sent))
        k->grant->accepted = true;
    pthread_mutex_unlock(&a->lock);
}
