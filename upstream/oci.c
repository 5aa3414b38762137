/* Asking a registry: logged in, counted by the breaker, redirected by hand. */
#include "upstream/oci.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "config/proxy.h"
#include "upstream/blame.h"
#include "upstream/loop.h"
#include "upstream/oci_private.h"

/* ---- one registry ---------------------------------------------------------------------------- */

/* A url whose path begins with /v2 says where the API is, and what stands before every name there
 * (".../v2/docker.io", for an upstream that is a mirror itself); else the API is at its end. */
static int make_base(struct oci *o, struct error *err)
{
    _cleanup_strbuf_ struct strbuf base = STRBUF_INIT;
    const char *url = o->config->url;
    const char *host = strstr(url, "://");
    const char *path = host ? strchr(host + 3, '/') : NULL;
    bool has_api = path && strncmp(path, "/v2", 3) == 0 && (path[3] == '/' || path[3] == '\0');
    strbuf_puts(&base, url);
    strbuf_puts(&base, has_api ? "/" : "/v2/");
    o->base = strbuf_take(&base);
    if (!o->base)
        return err_set(err, ERR_NOMEM, "out of memory for a registry's URL");
    o->path = has_api ? o->base + (path - url) + 4 : o->base + strlen(o->base);
    return 0;
}

static int make_auth(struct oci *o, struct error *err)
{
    const struct config_upstream *c = o->config;
    struct oci_auth_options options = {.url = c->url,
                                       .username = c->username,
                                       .password = c->password,
                                       .password_file = c->password_file,
                                       .token_file = c->token_file,
                                       .docker_config = c->docker_config,
                                       .pool = o->pool};
    return oci_auth_new(&options, &o->auth, err);
}

/* The registry's API alone: a token server, or a place for bytes, speaks for itself. */
static void asked_to_wait(void *ctx, const char *url, const struct error *why)
{
    struct oci *o = ctx;
    struct error told = *why;
    if (!o->breaker || strncmp(url, o->base, strlen(o->base)) != 0)
        return;
    oci_clean_text(told.text);
    breaker_failure(o->breaker, clock_monotonic_ms(), &told);
}

int oci_new(const struct config_upstream *config, struct oci **ret, struct error *err)
{
    /* Also true for nothing but a http(s) URL with a host. */
    if (!config->url || !http_same_origin(config->url, config->url))
        return err_set(err, ERR_INVALID, "upstream %s: its url is no http or https URL",
                       config->prefix);
    struct oci *o = calloc(1, sizeof(*o));
    if (!o)
        return err_set(err, ERR_NOMEM, "out of memory for a registry's client");
    o->config = config;
    struct http_options options = {.max_connections = config->max_connections,
                                   .connect_timeout_s = config->connect_timeout_s,
                                   .stall_timeout_s = config->stall_timeout_s,
                                   .ca_file = config->ca_file,
                                   .client_cert = config->client_cert,
                                   .client_key = config->client_key,
                                   .proxy = config->proxy,
                                   .proxy_of =
                                       config->proxy_from_environment ? proxy_of_environment : NULL,
                                   .asked_to_wait = asked_to_wait,
                                   .ctx = o};
    if (make_base(o, err) < 0 || http_pool_new(&options, &o->pool, err) < 0 ||
        breaker_new(config->prefix, config->breaker_failures, &o->breaker, err) < 0 ||
        make_auth(o, err) < 0) {
        oci_free(o);
        return err_wrap(err, "upstream %s", config->prefix);
    }
    *ret = o;
    return 0;
}

void oci_free(struct oci *o)
{
    if (!o)
        return;
    oci_auth_free(o->auth);
    breaker_free(o->breaker);
    if (o->pool)
        http_pool_free(o->pool);
    free(o->base);
    free(o);
}

struct http_pool *oci_pool(struct oci *o)
{
    return o->pool;
}

uint64_t oci_refuted(const struct oci *o)
{
    return atomic_load(&o->refuted);
}

void oci_breaker_stats(struct oci *o, struct breaker_stats *ret)
{
    breaker_stats(o->breaker, clock_monotonic_ms(), ret);
}

char *oci_url(const struct oci *o, const char *name, const char *what, const char *reference)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_printf(&url, "%s%s/%s/%s", o->base, name, what, reference);
    return strbuf_take(&url);
}

char *oci_scope(const struct oci *o, const char *name)
{
    _cleanup_strbuf_ struct strbuf scope = STRBUF_INIT;
    strbuf_printf(&scope, "repository:%s%s:pull", o->path, name);
    return strbuf_take(&scope);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Where a URL ends that stands in a text. */
static size_t url_length(const char *p)
{
    return strcspn(p, " \t\"'<>()[]{},;");
}

/* p is behind "://": the user goes, and everything from the query on. Returns what is left of it.
 */
static size_t cut_url(char *p)
{
    size_t len = url_length(p);
    size_t host = strcspn(p, "/?#");
    char *at = memrchr(p, '@', host < len ? host : len);
    if (at) {
        memmove(p, at + 1, strlen(at + 1) + 1);
        len -= (size_t)(at + 1 - p);
    }
    size_t keep = strcspn(p, "?#");
    if (keep >= len)
        return len;
    memmove(p + keep, p + len, strlen(p + len) + 1);
    return keep;
}

void oci_clean_text(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = ' ';
    /* What was cut in the middle of a character, or never was text. */
    for (char *p = text; *p;) {
        unsigned n = utf8_sequence((const unsigned char *)p, strlen(p));
        if (n == 0)
            *p = '?';
        p += n ? n : 1;
    }
    for (char *p = text; (p = strstr(p, "://"));) {
        p += 3;
        p += cut_url(p);
    }
}

int oci_broken(const struct oci_answer *a, struct error *err, const char *format, ...)
{
    char where[512], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    oci_clean_text(what);
    return err_set(err, ERR_UPSTREAM, "%s %s", log_url(a->url, where, sizeof(where)), what);
}

/* ---- one request ----------------------------------------------------------------------------- */

struct request {
    const struct oci_question *q;
    const char *url;
    const char *authorization;
    bool is_foreign; /* not the registry's, so that its failures do not count as the registry's */
    bool cut_off;    /* the rest of the body was not wanted */
};

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct request *x = ctx;
    uint64_t length = 0;
    if (http_content_length(r, &length) && length <= 1)
        return 0;
    x->cut_off = true;
    return err_set(err, ERR_CANCELLED, "the rest is not wanted");
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    (void)ctx, (void)data, (void)len, (void)err;
    return 0;
}

/* Whether the upstream is at fault, as opposed to the request. */
static bool is_failure(unsigned status)
{
    return status == 429 || (status >= 500 && status != 508);
}

static bool is_late(const struct request *x, uint64_t ms)
{
    return x->q->deadline_ms && clock_monotonic_ms() + ms >= x->q->deadline_ms;
}

static void count_failure(struct oci *o, const struct request *x, struct error *why)
{
    oci_clean_text(why->text);
    if (x->is_foreign)
        return;
    struct error told = *why;
    /* It may be the caller's time that was short, a login may have used it up: one such failure
     * among others. */
    if (told.code == ERR_TIMEOUT && is_late(x, 1))
        told.code = ERR_UPSTREAM;
    breaker_failure(o->breaker, clock_monotonic_ms(), &told);
}

static int out_of_time(const char *url, struct error *err)
{
    char where[512];
    return err_set(err, ERR_TIMEOUT, "%s: no time was left to ask",
                   log_url(url, where, sizeof(where)));
}

static int send_once(struct oci *o, struct request *x, struct http_response **ret,
                     struct error *err)
{
    const struct oci_question *q = x->q;
    const struct loop loop = loop_get();
    char way[LOOP_VALUE_MAX];
    struct http_request http = {.method = q->method,
                                .url = x->url,
                                .authorization = x->authorization,
                                .accept = q->accept,
                                .if_none_match = q->if_none_match,
                                .cdn_loop = x->is_foreign ? NULL : loop_value(&loop, way),
                                .max_body = q->max_body,
                                .deadline_ms = q->deadline_ms};
    if (q->only_header && strcmp(q->method, "GET") == 0) {
        http.has_range = true;
        http.on_headers = on_headers;
        http.on_data = on_data;
        http.ctx = x;
    }
    x->cut_off = false;
    if (is_late(x, 0))
        return out_of_time(x->url, err);
    if (!x->is_foreign && breaker_enter(o->breaker, clock_monotonic_ms(), err) < 0)
        return -1;
    struct error why = ERROR_INIT;
    int rc = http_perform(o->pool, &http, ret, &why);
    if (rc < 0 && x->cut_off && *ret)
        rc = 0;
    if (rc < 0) {
        http_response_free(TAKE_PTR(*ret));
        count_failure(o, x, &why);
        if (err)
            *err = why;
        return -1;
    }
    if (is_failure(http_status(*ret))) {
        http_status_error(*ret, x->url, &why);
        count_failure(o, x, &why);
    } else if (!x->is_foreign) {
        breaker_success(o->breaker);
    }
    return 0;
}

/* Whether a failure may have been a moment's. Every question asked here can be asked twice. */
static bool is_passing(int rc, const struct http_response *r, const struct error *why)
{
    unsigned status = rc < 0 ? 0 : http_status(r);
    if (rc < 0)
        return why->code == ERR_UPSTREAM && why->retry_after == 0;
    return status >= 502 && status <= 504 && http_retry_after(r) == 0;
}

static int send(struct oci *o, struct request *x, struct http_response **ret, struct error *err)
{
    unsigned retries = o->config->retries < OCI_RETRIES_MAX ? o->config->retries : OCI_RETRIES_MAX;
    for (unsigned attempt = 0;; attempt++) {
        struct error why = ERROR_INIT;
        int rc = send_once(o, x, ret, &why);
        if (attempt == retries || is_late(x, 200) || !is_passing(rc, *ret, &why)) {
            if (rc < 0 && err)
                *err = why;
            return rc;
        }
        http_response_free(TAKE_PTR(*ret));
        if (http_pool_backoff(o->pool, attempt, 0, NULL, err) < 0)
            return -1;
    }
}

/* ---- logging in ------------------------------------------------------------------------------ */

static bool has_login(const struct config_upstream *c)
{
    return c->username || c->password_file || c->token_file || c->docker_config;
}

/* Our own login is the operator's trouble, and says nothing of the repository. */
int oci_login_failed(struct oci *o, struct error *err)
{
    if (!err)
        return -1;
    oci_clean_text(err->text);
    if (err->code == ERR_DENIED)
        return -1;
    if (err->code == ERR_UNAUTHORIZED && has_login(o->config))
        err->code = ERR_UPSTREAM;
    return err_wrap(err, "login to upstream %s", o->config->prefix);
}

/* Some put what is wrong with the credential into a 403 (the Elastic Container Registry about one
 * that has run out). */
static bool is_login_trouble(const struct http_response *r)
{
    const struct strbuf *body = http_body(r);
    return strcasestr(strbuf_str(body), "expired") != NULL;
}

/* A request to the registry's own origin. A token that was kept may have run out, and the new one
 * may turn out to be for another scope: three requests settle it. */
static int send_logged_in(struct oci *o, struct request *x, struct http_response **ret,
                          struct error *err)
{
    _cleanup_free_ char *scope = oci_scope(o, x->q->name);
    _cleanup_free_ char *header = NULL;
    if (!scope)
        return err_set(err, ERR_NOMEM, "out of memory for a scope");
    uint64_t deadline_ms = x->q->deadline_ms;
    if (oci_auth_header_until(o->auth, scope, deadline_ms, &header, err) < 0)
        return oci_login_failed(o, err);
    for (unsigned attempt = 0;; attempt++) {
        char *next = NULL;
        x->authorization = header;
        int rc = send(o, x, ret, err);
        x->authorization = NULL;
        if (rc < 0)
            return -1;
        if (!upstream_wants_login(*ret))
            break;
        rc = oci_auth_challenged_until(o->auth, scope, header, *ret, deadline_ms, &next, err);
        if (rc > 0 && attempt == 2) {
            free(next);
            rc = err_set(err, ERR_UPSTREAM, "it refuses every token that it sends us for");
        }
        if (rc <= 0) {
            http_response_free(TAKE_PTR(*ret));
            return oci_login_failed(o, err);
        }
        http_response_free(TAKE_PTR(*ret));
        free(header);
        header = next;
    }
    if (header && (http_status(*ret) < 400 || http_status(*ret) == 404))
        oci_auth_accepted(o->auth, scope, header);
    if (http_status(*ret) != 403 || !is_login_trouble(*ret))
        return 0;
    http_status_error(*ret, x->url, err);
    if (err)
        err->code = ERR_UNAUTHORIZED;
    http_response_free(TAKE_PTR(*ret));
    return oci_login_failed(o, err);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void oci_answer_done(struct oci_answer *a)
{
    http_response_free(a->r);
    free(a->url);
    *a = (struct oci_answer){0};
}

static bool is_redirect(unsigned status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Where a redirect leads; NULL with an error when it may not be followed. */
static char *next_url(const struct oci_answer *a, struct error *err)
{
    char to[512];
    const char *location = http_header(a->r, "Location");
    if (!location) {
        oci_broken(a, err, "answered %u without a Location", http_status(a->r));
        return NULL;
    }
    _cleanup_free_ char *url = http_resolve_location(a->url, location);
    if (!url) {
        oci_broken(a, err, "redirects to something that is no http or https URL");
        return NULL;
    }
    if (strncasecmp(a->url, "https:", 6) == 0 && strncasecmp(url, "https:", 6) != 0) {
        oci_broken(a, err, "redirects from https to %s, which is refused",
                   log_url(url, to, sizeof(to)));
        return NULL;
    }
    return TAKE_PTR(url);
}

int oci_ask(struct oci *o, const struct oci_question *q, struct oci_answer *ret, struct error *err)
{
    _cleanup_answer_ struct oci_answer a = {.url = q->url ? strdup(q->url) : NULL};
    if (!a.url)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    for (unsigned hop = 0; hop <= OCI_REDIRECTS_MAX; hop++) {
        struct request x = {.q = q, .url = a.url};
        x.is_foreign = a.is_foreign = !http_same_origin(o->config->url, a.url);
        int rc = a.is_foreign ? send(o, &x, &a.r, err) : send_logged_in(o, &x, &a.r, err);
        if (rc < 0)
            return -1;
        if (!is_redirect(http_status(a.r))) {
            *ret = a;
            a = (struct oci_answer){0};
            return 0;
        }
        char *next = next_url(&a, err);
        if (!next)
            return -1;
        oci_answer_done(&a);
        a.url = next;
    }
    char where[512];
    return err_set(err, ERR_UPSTREAM, "%s: more than %u redirects",
                   log_url(q->url, where, sizeof(where)), OCI_REDIRECTS_MAX);
}

/* A registry may leave its API to another host, as registry.k8s.io does: what that one does not
 * have is not there. A place for bytes is no such host. */
static bool is_api(const char *url)
{
    const char *host = strstr(url, "://");
    const char *path = host ? strchr(host + 3, '/') : NULL;
    return path && strncmp(path, "/v2/", 4) == 0;
}

bool oci_is_absent(const struct oci_answer *a)
{
    return http_status(a->r) == 404 && (!a->is_foreign || is_api(a->url));
}

static bool is_page(const struct http_response *r)
{
    const char *type = http_header(r, "Content-Type");
    return type && strncasecmp(type, "text/html", 9) == 0;
}

/* The specification wants capital letters and underscores; "NOT_FOUND" is Harbor's, and so on. */
static bool is_error_code(const char *code)
{
    return code && *code && strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == strlen(code);
}

bool oci_is_own_word(const struct oci_answer *a)
{
    const struct strbuf *body = http_body(a->r);
    _cleanup_json_ struct json *root = NULL;
    if (is_page(a->r))
        return false;
    if (http_header(a->r, "Docker-Distribution-Api-Version"))
        return true;
    if (json_parse(strbuf_str(body), body->len, &root, NULL) < 0)
        return false;
    return is_error_code(json_str(json_get(json_first(json_get(root, "errors")), "code")));
}

int oci_refusal(struct oci *o, const struct oci_answer *a, struct error *err)
{
    struct error why = ERROR_INIT;
    unsigned status = http_status(a->r);
    if (a->is_foreign && upstream_wants_login(a->r))
        return upstream_strange_login(err, o->config->prefix, a->url, status);
    if (status < 400)
        return oci_broken(a, err, "answered %u, which is no answer to this question", status);
    http_status_error(a->r, a->url, &why);
    oci_clean_text(why.text);
    /* What another host says is not the registry's word about a repository; neither is a page for
     * people, which somebody on the way put up. */
    bool is_answer =
        why.code == ERR_DENIED || why.code == ERR_UNAUTHORIZED || why.code == ERR_NOT_FOUND;
    if (is_answer && (a->is_foreign || (status != 404 && is_page(a->r))))
        why.code = ERR_UPSTREAM;
    if (err)
        *err = why;
    return err_wrap(err, "upstream %s", o->config->prefix);
}
