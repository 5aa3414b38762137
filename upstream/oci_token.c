#include "upstream/oci_token.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define CLIENT_ID "weighbridge"

/* ---- the answer ------------------------------------------------------------------------------ */

static bool is_token(const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || len > OCI_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f) /* negative ones are bytes above 0x7f */
            return false;
    return true;
}

/* Without a sensible number the specification's default; a server that says less than the least
 * that the specification allows is believed, else we would go on with a dead token. */
static uint64_t life_of(const struct json *j)
{
    uint64_t s = 0;
    double d;
    const char *text = json_str(j);
    if (text) /* some write the number as a string */
        s = strspn(text, "0123456789") == strlen(text) ? strtoull(text, NULL, 10) : 0;
    else if (!json_u64(j, &s) && json_double(j, &d) && d >= 1)
        s = d < OCI_TOKEN_LIFE_MAX_S ? (uint64_t)d : OCI_TOKEN_LIFE_MAX_S;
    if (s == 0)
        return OCI_TOKEN_LIFE_DEFAULT_S;
    return s < OCI_TOKEN_LIFE_MAX_S ? s : OCI_TOKEN_LIFE_MAX_S;
}

int oci_token_parse(const char *text, size_t len, struct oci_token *ret, struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    struct error why = ERROR_INIT; /* may quote the answer */
    if (json_parse(text, len, &root, &why) < 0)
        return err_set(err, why.code == ERR_NOMEM ? ERR_NOMEM : ERR_UPSTREAM,
                       why.code == ERR_NOMEM ? "out of memory for a token"
                                             : "the answer is no JSON");
    const char *token = json_str(json_get(root, "access_token"));
    if (!token || !*token)
        token = json_str(json_get(root, "token"));
    if (!token)
        return err_set(err, ERR_UPSTREAM, "the answer has no token in it");
    if (!is_token(token))
        return err_set(err, ERR_UPSTREAM, "the token is empty, over %u bytes, or no plain word",
                       OCI_TOKEN_MAX);
    struct oci_token got = {.text = strdup(token), .life_s = life_of(json_get(root, "expires_in"))};
    if (!got.text)
        return err_set(err, ERR_NOMEM, "out of memory for a token");
    *ret = got;
    return 0;
}

/* ---- the question ---------------------------------------------------------------------------- */

/* `name=value`, with what separates it from what is before it. */
static void put(struct strbuf *b, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    char last = '?';
    if (b->len)
        last = b->data[b->len - 1];
    if (last != '?' && last != '&')
        strbuf_putc(b, '&');
    strbuf_printf(b, "%s=", name);
    strbuf_put_urlencoded(b, value, NULL);
}

static int put_scopes(struct strbuf *b, const char *scope)
{
    for (const char *p = scope ? scope : ""; *p;) {
        size_t n = strcspn(p, " ");
        _cleanup_free_ char *word = strndup(p, n);
        if (!word)
            return -1;
        put(b, "scope", word);
        p += n + strspn(p + n, " ");
    }
    return 0;
}

static int ask(struct http_pool *p, struct http_request *q, uint64_t deadline_ms,
               struct http_response **ret, struct error *err)
{
    q->deadline_ms = deadline_ms;
    q->accept = "application/json";
    q->max_body = OCI_TOKEN_ANSWER_MAX;
    if (http_perform(p, q, ret, err) == 0)
        return 0;
    /* An answer that is too large is no fault of our client's request. */
    if (err && err->code == ERR_TOO_LARGE)
        err->code = ERR_UPSTREAM;
    return -1;
}

static int get(struct http_pool *p, const struct oci_token_request *q,
               const struct oci_credential *c, struct http_response **ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT, basic = STRBUF_INIT;
    /* Those who know only GET take the refresh token for a password. */
    const char *secret = c->identity_token ? c->identity_token : c->password;
    const char *username = c->username ? c->username : "";
    strbuf_puts(&url, q->realm);
    if (!strchr(q->realm, '?'))
        strbuf_putc(&url, '?');
    put(&url, "service", q->service);
    int rc = put_scopes(&url, q->scope);
    if (secret) {
        put(&url, "account", username);
        oci_credential_basic(username, secret, &basic);
    }
    put(&url, "client_id", CLIENT_ID);
    if (rc < 0 || strbuf_failed(&url) || strbuf_failed(&basic))
        return err_set(err, ERR_NOMEM, "out of memory for a token request");
    struct http_request http = {
        .method = "GET", .url = url.data, .authorization = secret ? basic.data : NULL};
    return ask(p, &http, q->deadline_ms, ret, err);
}

static int post(struct http_pool *p, const struct oci_token_request *q,
                const struct oci_credential *c, struct http_response **ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf form = STRBUF_INIT;
    strbuf_puts(&form, "grant_type=refresh_token");
    put(&form, "service", q->service);
    put(&form, "client_id", CLIENT_ID);
    put(&form, "scope", q->scope);
    put(&form, "refresh_token", c->identity_token);
    if (strbuf_failed(&form))
        return err_set(err, ERR_NOMEM, "out of memory for a token request");
    struct http_request http = {.method = "POST",
                                .url = q->realm,
                                .body = form.data,
                                .body_len = form.len,
                                .content_type = "application/x-www-form-urlencoded"};
    return ask(p, &http, q->deadline_ms, ret, err);
}

/* A status that brings no token. What the server says about it is left out: it may hold anything
 * that we sent. */
static int no_token(const struct http_response *r, const char *host, struct error *err)
{
    unsigned status = http_status(r), wait = http_retry_after(r);
    if (status == 400 || status == 401 || status == 403) {
        err_set(err, ERR_UNAUTHORIZED, "the token server %s answered %u", host, status);
        return 0;
    }
    if (status >= 300 && status < 400)
        return err_set(err, ERR_UPSTREAM,
                       "the token server %s answered %u: redirects are not followed with a login",
                       host, status);
    if (wait)
        err_set(err, status == 429 ? ERR_RATE_LIMITED : ERR_UPSTREAM,
                "the token server %s answered %u, try again in %u s", host, status, wait);
    else
        err_set(err, status == 429 ? ERR_RATE_LIMITED : ERR_UPSTREAM,
                "the token server %s answered %u", host, status);
    if (err)
        err->retry_after = wait;
    return -1;
}

/* The realm's path is the registry's, which may have put there what it knows of us. */
static void hide(struct error *err, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;
    if (!err || len < 4)
        return;
    for (char *p = err->text; (p = strstr(p, secret)); p += len)
        memset(p, '*', len);
}

int oci_token_exchange(struct http_pool *p, const struct oci_token_request *q,
                       const struct oci_credential *c, struct oci_token *ret, bool *ret_no_post,
                       struct error *err)
{
    _cleanup_response_ struct http_response *r = NULL;
    _cleanup_free_ char *host = http_host(q->realm);
    if (!host)
        return err_set(err, ERR_UPSTREAM, "the token server has no http or https URL");
    int rc = c->identity_token && !q->no_post ? post(p, q, c, &r, err) : get(p, q, c, &r, err);
    unsigned status = rc == 0 ? http_status(r) : 0;
    if (c->identity_token && !q->no_post && (status == 404 || status == 405 || status == 401)) {
        *ret_no_post = status != 401; /* that one may have been about the token */
        http_response_free(TAKE_PTR(r));
        rc = get(p, q, c, &r, err);
    }
    if (rc < 0) {
        hide(err, c->password);
        hide(err, c->identity_token);
        return err_wrap(err, "token server");
    }
    if (http_status(r) < 200 || http_status(r) >= 300)
        return no_token(r, host, err);
    if (oci_token_parse(strbuf_str(http_body(r)), http_body(r)->len, ret, err) < 0)
        return err_wrap(err, "the token server %s", host);
    return 1;
}
