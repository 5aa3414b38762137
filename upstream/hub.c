#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "config/proxy.h"
#include "upstream/hub_private.h"

int hub_new(const struct config_upstream *config, struct hub **ret, struct error *err)
{
    /* Also true for nothing but a http(s) URL with a host. */
    if (!config->url || !http_same_origin(config->url, config->url))
        return err_set(err, ERR_INVALID, "upstream %s: its url is no http or https URL",
                       config->prefix);
    if (config->token && strpbrk(config->token, "\r\n"))
        return err_set(err, ERR_INVALID, "upstream %s: the token from %s has a line end in it",
                       config->prefix,
                       config->token_from ? config->token_from : "the configuration");
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
                                 config->proxy_from_environment ? proxy_of_environment : NULL};
    if (http_pool_new(&o, &h->pool, err) < 0) {
        free(h);
        return err_wrap(err, "upstream %s", config->prefix);
    }
    *ret = h;
    return 0;
}

void hub_free(struct hub *h)
{
    if (!h)
        return;
    http_pool_free(h->pool);
    free(h);
}

struct http_pool *hub_pool(struct hub *h)
{
    return h->pool;
}

const struct config_upstream *hub_config(const struct hub *h)
{
    return h->config;
}

/* ---- asking ---------------------------------------------------------------------------------- */

void hub_answer_done(struct hub_answer *a)
{
    http_response_free(a->r);
    free(a->url);
    free(a->location);
    *a = (struct hub_answer){0};
}

/* One request with the token, if it stays on the endpoint's origin. What failed on the way is tried
 * again: every question asked here is idempotent. */
static int request(struct hub *h, const struct hub_question *q, const char *url,
                   struct http_response **ret, struct error *err)
{
    struct http_request request = {
        .method = q->method,
        .url = url,
        .bearer = http_same_origin(h->config->url, url) ? h->config->token : NULL,
        .max_body = q->max_body,
    };
    unsigned retries =
        h->config->retries < HUB_METADATA_RETRIES ? h->config->retries : HUB_METADATA_RETRIES;
    for (unsigned attempt = 0;; attempt++) {
        struct error why = ERROR_INIT;
        int rc = http_perform(h->pool, &request, ret, &why);
        unsigned status = rc < 0 ? 0 : http_status(*ret);
        bool passing = rc < 0 ? why.code == ERR_UPSTREAM
                              : status >= 502 && status <= 504 && http_retry_after(*ret) == 0;
        if (!passing || attempt == retries) {
            if (rc < 0 && err)
                *err = why;
            return rc;
        }
        http_response_free(TAKE_PTR(*ret));
        if (http_pool_backoff(h->pool, attempt, 0, NULL, err) < 0)
            return -1;
    }
}

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int check_commit(const struct hub_question *q, struct hub_answer *a, struct error *err)
{
    const char *commit = http_header(a->r, "X-Repo-Commit");
    char where[512];
    if (!q->commit || !commit)
        return 0;
    if (strcmp(commit, q->commit) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: X-Repo-Commit is %.60s, asked was %s",
                       log_url(a->url, where, sizeof(where)), commit, q->commit);
    a->has_commit = true;
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
    _cleanup_(hub_answer_done) struct hub_answer a = {.url = q->url ? strdup(q->url) : NULL};
    if (!a.url)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    for (unsigned hop = 0; hop <= HUB_REDIRECTS_MAX; hop++) {
        if (request(h, q, a.url, &a.r, err) < 0)
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
    }
    char where[512];
    return err_set(err, ERR_UPSTREAM, "%s: more than %u redirects",
                   log_url(q->url, where, sizeof(where)), HUB_REDIRECTS_MAX);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const char *token_from(const struct hub *h)
{
    return h->config->token_from ? h->config->token_from : "the configuration";
}

#define HOW_TO_GIVE_A_TOKEN "HF_TOKEN or upstreams[].token_file"

static int no_repository(struct hub *h, const struct hub_question *q, struct error *err)
{
    if (h->config->token)
        return err_set(err, ERR_NOT_FOUND,
                       "%s/%s does not exist on the Hub, or it is private and the token from %s "
                       "has no access to it",
                       h->config->prefix, q->id, token_from(h));
    return err_set(err, ERR_NOT_FOUND,
                   "%s/%s does not exist on the Hub, or it is private and no token is configured "
                   "(" HOW_TO_GIVE_A_TOKEN ")",
                   h->config->prefix, q->id);
}

static int gated(struct hub *h, const struct hub_question *q, struct error *err)
{
    if (h->config->token)
        return err_set(err, ERR_DENIED,
                       "%s/%s is gated and the token from %s may not read it: accept its terms on "
                       "the Hub with that token's account, or give weighbridge a token that may "
                       "read it (" HOW_TO_GIVE_A_TOKEN ")",
                       h->config->prefix, q->id, token_from(h));
    return err_set(
        err, ERR_UNAUTHORIZED,
        "%s/%s is gated and no token is configured: accept its terms on the Hub and give "
        "weighbridge a token that may read it (" HOW_TO_GIVE_A_TOKEN ")",
        h->config->prefix, q->id);
}

static int unauthorized(struct hub *h, const struct hub_answer *a, struct error *err)
{
    struct error said = ERROR_INIT;
    http_status_error(a->r, a->url, &said);
    if (h->config->token)
        return err_set(err, ERR_UNAUTHORIZED, "%.600s; the token from %s was refused", said.text,
                       token_from(h));
    return err_set(err, ERR_UNAUTHORIZED,
                   "%.600s; no token is configured (" HOW_TO_GIVE_A_TOKEN ")", said.text);
}

int hub_refusal(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                enum hub_missing *ret_missing, struct error *err)
{
    const char *code = http_header(a->r, "X-Error-Code");
    unsigned status = http_status(a->r);
    if (!code)
        code = "";
    if (strcmp(code, "RepoNotFound") == 0) {
        *ret_missing = HUB_MISSING_REPOSITORY;
        return no_repository(h, q, err);
    }
    if (strcmp(code, "RevisionNotFound") == 0) {
        *ret_missing = HUB_MISSING_REVISION;
        return err_set(err, ERR_NOT_FOUND, "%s/%s has no revision %.255s", h->config->prefix, q->id,
                       q->revision ? q->revision : "main");
    }
    if (strcmp(code, "EntryNotFound") == 0 && q->path)
        return err_set(err, ERR_NOT_FOUND, "%s/%s has no file %.400s at %s", h->config->prefix,
                       q->id, q->path, q->revision);
    if (strcmp(code, "GatedRepo") == 0)
        return gated(h, q, err);
    if (status == 401)
        return unauthorized(h, a, err);
    return http_status_error(a->r, a->url, err);
}

int hub_ask_200(struct hub *h, const struct hub_question *q, struct hub_answer *ret,
                struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    enum hub_missing missing = HUB_MISSING_NONE;
    if (hub_ask(h, q, &a, err) < 0)
        return -1;
    if (http_status(a.r) != 200)
        return hub_refusal(h, q, &a, &missing, err);
    *ret = a;
    a = (struct hub_answer){0};
    return 0;
}

/* ---- revisions ------------------------------------------------------------------------------- */

static const char *look_up_alias(const struct config_upstream *c, const char *name)
{
    for (size_t i = 0; i < c->n_aliases; i++)
        if (strcasecmp(c->aliases[i].name, name) == 0)
            return c->aliases[i].id;
    return name;
}

static char *info_url(const struct hub *h, const char *id, const char *revision)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_printf(&url, "%s/api/models/", h->config->url);
    strbuf_put_urlencoded(&url, id, "/");
    if (revision) {
        strbuf_puts(&url, "/revision/");
        strbuf_put_urlencoded(&url, revision, NULL);
    }
    return strbuf_take(&url);
}

/* A 404 without X-Error-Code, as some mirrors send it: is it the revision or the repository? */
static int tell_missing(struct hub *h, const struct hub_question *q, enum hub_missing *ret,
                        struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    _cleanup_free_ char *url = info_url(h, q->id, NULL);
    struct hub_question whole = *q;
    whole.url = url;
    if (hub_ask(h, &whole, &a, err) < 0)
        return -1;
    if (http_status(a.r) == 200) {
        *ret = HUB_MISSING_REVISION;
        return err_set(err, ERR_NOT_FOUND, "%s/%s has no revision %.255s", h->config->prefix, q->id,
                       q->revision);
    }
    if (http_status(a.r) != 404)
        return hub_refusal(h, &whole, &a, ret, err);
    *ret = HUB_MISSING_REPOSITORY;
    return no_repository(h, q, err);
}

static int resolve_refused(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                           enum hub_missing *ret_missing, struct error *err)
{
    if (http_status(a->r) != 404 || http_header(a->r, "X-Error-Code"))
        return hub_refusal(h, q, a, ret_missing, err);
    if (q->revision)
        return tell_missing(h, q, ret_missing, err);
    *ret_missing = HUB_MISSING_REPOSITORY;
    return no_repository(h, q, err);
}

int hub_resolve(struct hub *h, const char *name, const char *revision, struct hub_revision *ret,
                enum hub_missing *ret_missing, struct error *err)
{
    enum hub_missing ignored;
    enum hub_missing *missing = ret_missing ? ret_missing : &ignored;
    const char *id = look_up_alias(h->config, name);
    *missing = HUB_MISSING_NONE;
    if (!hub_id_is_valid(id)) {
        *missing = HUB_MISSING_REPOSITORY;
        return err_set(err, ERR_NOT_FOUND,
                       "%s/%.255s can not be a Hub repository: those are named "
                       "<organisation>/<name>",
                       h->config->prefix, id);
    }
    if (revision && !hub_revision_is_valid(revision)) {
        *missing = HUB_MISSING_REVISION;
        return err_set(err, ERR_NOT_FOUND,
                       "%s/%s has no revision %.255s: no branch or tag can have "
                       "that name",
                       h->config->prefix, id, revision);
    }
    _cleanup_free_ char *url = info_url(h, id, revision);
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    struct hub_question q = {
        .method = "GET", .url = url, .id = id, .revision = revision, .max_body = HUB_JSON_MAX};
    if (hub_ask(h, &q, &a, err) < 0)
        return -1;
    if (http_status(a.r) != 200)
        return resolve_refused(h, &q, &a, missing, err);

    struct hub_revision found;
    const struct strbuf *body = http_body(a.r);
    char where[512];
    log_url(a.url, where, sizeof(where));
    if (hub_parse_revision(strbuf_str(body), body->len, &found, err) < 0)
        return err_wrap(err, "%s", where);
    if (revision && is_lower_hex(revision, 40) && strcmp(found.commit, revision) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: the commit %s was asked for and %s came", where,
                       revision, found.commit);
    *ret = found;
    return 0;
}
