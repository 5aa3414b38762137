#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/proxy.h"
#include "upstream/hub_private.h"
#include "upstream/loop.h"

/* The breakers tell everybody why they are open. Where callers' tokens decide who may know of a
 * repository, one's URL is nothing for the others. */
static struct error as_told(const struct hub *h, const char *url, const struct error *why)
{
    char where[512], host[512];
    struct error told = *why;
    if (h->config->credentials != CREDENTIALS_FORWARD)
        return told;
    log_url(h->config->url, host, sizeof(host));
    const char *at = strstr(why->text, log_url(url, where, sizeof(where)));
    if (at)
        snprintf(told.text, sizeof(told.text), "%.*s%s%s", (int)(at - why->text), why->text, host,
                 at + strlen(where));
    else
        snprintf(told.text, sizeof(told.text), "a request to %s failed", host);
    return told;
}

/* A download meets it, too; the Hub's own host alone speaks for the Hub. A 429 is of one bucket and
 * one token: hub_limits.c has those. */
static void asked_to_wait(void *ctx, const char *url, const struct error *why)
{
    struct hub *h = ctx;
    if (!h->breaker || why->code != ERR_UPSTREAM || !http_same_origin(h->config->url, url))
        return;
    struct error told = as_told(h, url, why);
    breaker_failure(h->breaker, clock_monotonic_ms(), &told);
}

static int check_token(const struct config_upstream *c, const char *token, const char *from,
                       struct error *err)
{
    if (token && strpbrk(token, "\r\n"))
        return err_set(err, ERR_INVALID, "upstream %s: the token from %s has a line end in it",
                       c->prefix, from);
    return 0;
}

static int check_config(const struct config_upstream *c, struct error *err)
{
    /* Also true for nothing but a http(s) URL with a host. */
    if (!c->url || !http_same_origin(c->url, c->url))
        return err_set(err, ERR_INVALID, "upstream %s: its url is no http or https URL", c->prefix);
    if (check_token(c, c->token, c->token_from ? c->token_from : "the configuration", err) < 0)
        return -1;
    for (size_t i = 0; i < c->n_token_files; i++)
        if (check_token(c, c->token_files[i].token, c->token_files[i].file, err) < 0)
            return -1;
    return 0;
}

int hub_new(const struct config_upstream *config, struct hub **ret, struct error *err)
{
    if (check_config(config, err) < 0)
        return -1;
    struct hub *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory for a Hub client");
    h->config = config;
    struct http_options o = {.max_connections = config->max_connections,
                             .connect_timeout_s = config->connect_timeout_s,
                             .stall_timeout_s = config->stall_timeout_s,
                             .ca_file = config->ca_file,
                             .client_cert = config->client_cert,
                             .client_key = config->client_key,
                             .proxy = config->proxy,
                             .proxy_of =
                                 config->proxy_from_environment ? proxy_of_environment : NULL,
                             .asked_to_wait = asked_to_wait,
                             .ctx = h};
    h->limits = hub_limits_new();
    int rc = h->limits ? 0 : err_set(err, ERR_NOMEM, "out of memory for the Hub's quotas");
    if (rc < 0 || http_pool_new(&o, &h->pool, err) < 0 ||
        breaker_new(config->prefix, config->breaker_failures, &h->breaker, err) < 0 ||
        breaker_new(config->prefix, config->breaker_failures, &h->impatient, err) < 0) {
        hub_free(h);
        return err_wrap(err, "upstream %s", config->prefix);
    }
    *ret = h;
    return 0;
}

void hub_free(struct hub *h)
{
    if (h && !h->is_borrowed) {
        if (h->pool)
            http_pool_free(h->pool);
        breaker_free(h->breaker);
        breaker_free(h->impatient);
        hub_limits_free(h->limits);
    }
    free(h);
}

struct hub *hub_as(struct hub *h, const struct hub_asking *how)
{
    struct hub *as = malloc(sizeof(*as));
    if (!as)
        return NULL;
    *as = *h;
    as->is_borrowed = true;
    as->how = *how;
    return as;
}

struct http_pool *hub_pool(struct hub *h)
{
    return h->pool;
}

const struct config_upstream *hub_config(const struct hub *h)
{
    return h->config;
}

void hub_breaker_stats(struct hub *h, struct breaker_stats *ret)
{
    breaker_stats(h->breaker, clock_monotonic_ms(), ret);
}

/* ---- tokens and URLs ------------------------------------------------------------------------- */

const struct config_token_file *hub_token_file_of(const struct hub *h, const char *id)
{
    const struct config_upstream *c = h->config;
    for (size_t i = 0; id && i < c->n_token_files; i++)
        if (fnmatch(c->token_files[i].repositories, id, FNM_CASEFOLD) == 0)
            return &c->token_files[i];
    return NULL;
}

const char *hub_token_of(const struct hub *h, const char *id)
{
    const struct config_token_file *f = hub_token_file_of(h, id);
    return f ? f->token : h->config->token;
}

struct hub_identity hub_identity_of(const struct hub *h, const char *id)
{
    if (h->how.has_token)
        return (struct hub_identity){.token = h->how.token};
    return (struct hub_identity){.token = hub_token_of(h, id), .is_ours = true};
}

void hub_put_api_url(const struct hub *h, const char *id, struct strbuf *url)
{
    static const char *const kinds[] = {
        [HUB_MODEL] = "models", [HUB_DATASET] = "datasets", [HUB_SPACE] = "spaces"};
    const char *rest;
    enum hub_kind kind = hub_id_kind(id, &rest);
    strbuf_printf(url, "%s/api/%s/", h->config->url, kinds[kind]);
    strbuf_put_urlencoded(url, rest, "/");
}

char *hub_resolve_url(const struct hub *h, const char *id, const char *revision, const char *path)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_printf(&url, "%s/", h->config->url);
    strbuf_put_urlencoded(&url, id, "/");
    strbuf_puts(&url, "/resolve/");
    strbuf_put_urlencoded(&url, revision, NULL);
    strbuf_putc(&url, '/');
    strbuf_put_urlencoded(&url, path, "/");
    return strbuf_take(&url);
}

/* ---- one request ----------------------------------------------------------------------------- */

void hub_answer_done(struct hub_answer *a)
{
    http_response_free(a->r);
    free(a->url);
    free(a->location);
    *a = (struct hub_answer){0};
}

/* One question for one URL, which is on the endpoint's origin. */
struct request {
    struct hub *h;
    const struct hub_question *q;
    const struct hub_answer *before;
    const char *url;
    struct hub_identity who;
    bool is_impatient; /* it has entered that breaker as well */
    bool has_told;     /* the breakers know the outcome */
    bool is_streaming; /* the body of a success has begun: asking again is too late */
};

static bool is_late(const struct hub *h, uint64_t ms)
{
    return h->how.deadline_ms && clock_monotonic_ms() + ms >= h->how.deadline_ms;
}

static int check_time_and_limits(const struct hub *h, const struct hub_identity *who,
                                 const char *url, struct error *err)
{
    char where[512];
    if (is_late(h, 0))
        return err_set(err, ERR_TIMEOUT, "%s: no time was left to ask",
                       log_url(url, where, sizeof(where)));
    if (!http_same_origin(h->config->url, url))
        return 0;
    return hub_limits_check(h->limits, who, hub_bucket_of(h->config->url, url), h->how.spare,
                            clock_monotonic_ms(), h->config->prefix, err);
}

static void note_limits(const struct hub *h, const struct hub_identity *who, const char *url,
                        const struct http_response *r)
{
    if (http_same_origin(h->config->url, url))
        hub_limits_note(h->limits, who, hub_bucket_of(h->config->url, url), clock_monotonic_ms(),
                        r);
}

int hub_may_ask(struct hub *h, const char *id, const char *url, struct error *err)
{
    const struct hub_identity who = hub_identity_of(h, id);
    return check_time_and_limits(h, &who, url, err);
}

void hub_asked(struct hub *h, const char *id, const char *url, const struct http_response *r)
{
    const struct hub_identity who = hub_identity_of(h, id);
    note_limits(h, &who, url, r);
}

static int enter(struct request *x, struct error *err)
{
    struct hub *h = x->h;
    uint64_t now_ms = clock_monotonic_ms();
    if (loop_check(h->config->prefix, err) < 0 ||
        check_time_and_limits(h, &x->who, x->url, err) < 0)
        return -1;
    bool is_impatient = h->how.deadline_ms;
    if (is_impatient && breaker_enter(h->impatient, now_ms, err) < 0)
        return -1;
    if (breaker_enter(h->breaker, now_ms, err) < 0) {
        if (is_impatient)
            breaker_abandon(h->impatient);
        return -1;
    }
    x->is_impatient = is_impatient;
    return 0;
}

static void succeeded(struct request *x)
{
    if (x->has_told)
        return;
    x->has_told = true;
    breaker_success(x->h->breaker);
    if (x->is_impatient)
        breaker_success(x->h->impatient);
}

static void failed(struct request *x, const struct error *why)
{
    uint64_t now_ms = clock_monotonic_ms();
    struct error told = as_told(x->h, x->url, why);
    if (x->has_told)
        return;
    x->has_told = true;
    bool is_hurried = told.code == ERR_TIMEOUT && is_late(x->h, 1);
    /* One failure among others: what hung alone is mended by asking again, and a breaker that opens
     * at once would not let it. */
    if (told.code == ERR_TIMEOUT)
        told.code = ERR_UPSTREAM;
    if (x->is_impatient)
        breaker_failure(x->h->impatient, now_ms, &told);
    if (x->is_impatient && is_hurried)
        breaker_abandon(x->h->breaker);
    else
        breaker_failure(x->h->breaker, now_ms, &told);
}

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct request *x = ctx;
    x->is_streaming = true;
    succeeded(x);
    return x->q->on_headers(x->q->ctx, r, x->before, err);
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct request *x = ctx;
    return x->q->on_data(x->q->ctx, data, len, err);
}

/* What failed on the way is tried again: every question asked here is idempotent. */
static int send(struct request *x, const struct http_request *http, struct http_response **ret,
                struct error *err)
{
    struct hub *h = x->h;
    unsigned retries =
        h->config->retries < HUB_METADATA_RETRIES ? h->config->retries : HUB_METADATA_RETRIES;
    for (unsigned attempt = 0;; attempt++) {
        struct error why = ERROR_INIT;
        int rc = http_perform(h->pool, http, ret, &why);
        unsigned status = rc < 0 ? 0 : http_status(*ret);
        bool passing = rc < 0 ? why.code == ERR_UPSTREAM
                              : status >= 502 && status <= 504 && http_retry_after(*ret) == 0;
        if (*ret)
            note_limits(h, &x->who, x->url, *ret);
        if (!passing || attempt == retries || x->is_streaming || is_late(h, 200)) {
            if (rc < 0)
                http_response_free(TAKE_PTR(*ret));
            if (rc < 0 && err)
                *err = why;
            return rc;
        }
        http_response_free(TAKE_PTR(*ret));
        if (http_pool_backoff(h->pool, attempt, 0, NULL, err) < 0)
            return -1;
    }
}

static int request(struct request *x, struct http_response **ret, struct error *err)
{
    const struct loop loop = loop_get();
    char way[LOOP_VALUE_MAX];
    struct http_request http = {.method = x->q->method,
                                .url = x->url,
                                .bearer = x->who.token,
                                .cdn_loop = loop_value(&loop, way),
                                .max_body = x->q->max_body,
                                .deadline_ms = x->h->how.deadline_ms,
                                .connect_by_ms = x->h->how.connect_by_ms};
    struct error why = ERROR_INIT;
    if (x->q->on_data) {
        http.on_headers = on_headers;
        http.on_data = on_data;
        http.ctx = x;
    }
    if (enter(x, err) < 0)
        return -1;
    int rc = send(x, &http, ret, &why);
    if (rc < 0) {
        failed(x, &why);
        if (err)
            *err = why;
    } else if (http_status(*ret) >= 500 && http_status(*ret) != 508) {
        http_status_error(*ret, x->url, &why);
        failed(x, &why);
    } else {
        succeeded(x);
    }
    return rc;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Of a file: which commit the answers speak of. */
static int check_commit(const struct hub_question *q, struct hub_answer *a, struct error *err)
{
    const char *commit = http_header(a->r, "X-Repo-Commit");
    char where[512];
    if (!q->path || !commit)
        return 0;
    log_url(a->url, where, sizeof(where));
    if (!is_lower_hex(commit, 40))
        return err_set(err, ERR_UPSTREAM, "%s: X-Repo-Commit is no commit: %.60s", where, commit);
    if (q->commit && strcmp(commit, q->commit) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: X-Repo-Commit is %s, asked was %s", where, commit,
                       q->commit);
    if (a->has_commit && strcmp(commit, a->commit) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: X-Repo-Commit is %s, and %s before a redirect",
                       where, commit, a->commit);
    a->has_commit = true;
    snprintf(a->commit, sizeof(a->commit), "%s", commit);
    return 0;
}

/* Of a file: which repository it is of, which is another one behind the redirect of a rename. */
static void note_id(struct hub *h, const struct hub_question *q, struct hub_answer *a)
{
    char id[REPOSITORY_MAX + 1];
    int rc = q->path ? hub_id_of_url(h->config->url, a->url, id) : 0;
    if (rc > 0 && hub_id_kind(id, NULL) == hub_id_kind(q->id, NULL))
        snprintf(a->id, sizeof(a->id), "%s", id);
    else if (rc)
        a->id[0] = '\0';
}

static int begin(const struct hub_question *q, struct hub_answer *a, struct error *err)
{
    *a = (struct hub_answer){.url = q->url ? strdup(q->url) : NULL};
    if (!a->url)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    if (q->path)
        snprintf(a->id, sizeof(a->id), "%s", q->id);
    return 0;
}

/* Looks at an answer: 1 when it is the one, 0 when a->location has to be asked next. */
static int judge(struct hub *h, const struct hub_question *q, struct hub_answer *a,
                 struct error *err)
{
    char from[512], to[512];
    const char *location = http_header(a->r, "Location");
    if (check_commit(q, a, err) < 0)
        return -1;
    if (!is_redirect(http_status(a->r)))
        return 1;
    log_url(a->url, from, sizeof(from));
    if (!location)
        return err_set(err, ERR_UPSTREAM, "%s answered %u without a Location", from,
                       http_status(a->r));
    a->location = http_resolve_location(a->url, location);
    if (!a->location)
        return err_set(err, ERR_UPSTREAM, "%s redirects to something that is no http or https URL",
                       from);
    log_url(a->location, to, sizeof(to));
    if (strncasecmp(a->url, "https:", 6) == 0 && strncasecmp(a->location, "https:", 6) != 0)
        return err_set(err, ERR_UPSTREAM, "%s redirects from https to %s, which is refused", from,
                       to);
    if (q->stop_at_linked && http_header(a->r, "X-Linked-Etag"))
        return 1;
    if (http_same_origin(h->config->url, a->location))
        return 0;
    if (q->foreign_is_fine)
        return 1;
    return err_set(err, ERR_UPSTREAM, "%s redirects to another host, %s, which is refused here",
                   from, to);
}

int hub_ask(struct hub *h, const struct hub_question *q, struct hub_answer *ret, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    if (begin(q, &a, err) < 0)
        return -1;
    for (unsigned hop = 0; hop <= HUB_REDIRECTS_MAX; hop++) {
        struct request x = {.h = h, .q = q, .before = &a, .url = a.url};
        if (http_same_origin(h->config->url, a.url))
            x.who = hub_identity_of(h, q->id);
        if (request(&x, &a.r, err) < 0)
            return -1;
        int rc = judge(h, q, &a, err);
        if (rc < 0)
            return rc;
        if (rc > 0) {
            *ret = a;
            a = (struct hub_answer){0};
            return 0;
        }
        http_response_free(TAKE_PTR(a.r));
        free(a.url);
        a.url = TAKE_PTR(a.location);
        note_id(h, q, &a);
    }
    char where[512];
    return err_set(err, ERR_UPSTREAM, "%s: more than %u redirects",
                   log_url(q->url, where, sizeof(where)), HUB_REDIRECTS_MAX);
}

int hub_ask_200(struct hub *h, const struct hub_question *q, struct hub_answer *ret,
                enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    enum hub_missing missing = HUB_MISSING_NONE;
    int rc = hub_ask(h, q, &a, err);
    if (rc == 0 && http_status(a.r) != 200)
        rc = hub_refusal(h, q, &a, &missing, err);
    if (ret_missing)
        *ret_missing = missing;
    if (rc < 0)
        return rc;
    *ret = a;
    a = (struct hub_answer){0};
    return 0;
}
