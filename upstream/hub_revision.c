/* Which commit a revision is. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "upstream/hub_private.h"

const char *hub_look_up_alias(const struct hub *h, const char *name)
{
    const struct config_upstream *c = h->config;
    for (size_t i = 0; i < c->n_aliases; i++)
        if (strcasecmp(c->aliases[i].name, name) == 0)
            return c->aliases[i].id;
    return name;
}

static char *info_url(const struct hub *h, const char *id, const char *revision)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    hub_put_api_url(h, id, &url);
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
        return hub_no_revision(h, q->id, q->revision, err);
    }
    if (http_status(a.r) != 404)
        return hub_refusal(h, &whole, &a, ret, err);
    *ret = HUB_MISSING_REPOSITORY;
    return hub_no_repository(h, q->id, err);
}

static int refused(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                   enum hub_missing *ret_missing, struct error *err)
{
    if (http_status(a->r) != 404 || http_header(a->r, "X-Error-Code"))
        return hub_refusal(h, q, a, ret_missing, err);
    if (q->revision)
        return tell_missing(h, q, ret_missing, err);
    *ret_missing = HUB_MISSING_REPOSITORY;
    return hub_no_repository(h, q->id, err);
}

int hub_check_words(const struct hub *h, const char *id, const char *revision, bool any_kind,
                    enum hub_missing *ret_missing, struct error *err)
{
    if (!hub_id_is_valid(id) || (!any_kind && hub_id_kind(id, NULL) != HUB_MODEL)) {
        *ret_missing = HUB_MISSING_REPOSITORY;
        return err_set(err, ERR_NOT_FOUND,
                       "%s/%.255s can not be a %s: those are named <organisation>/<name>",
                       h->config->prefix, id, any_kind ? "Hub repository" : "model of the Hub");
    }
    if (revision && !hub_revision_is_valid(revision)) {
        *ret_missing = HUB_MISSING_REVISION;
        return err_set(err, ERR_NOT_FOUND,
                       "%s/%s has no revision %.255s: no branch or tag can have that name",
                       h->config->prefix, id, revision);
    }
    return 0;
}

static int ask_info(struct hub *h, const char *id, const char *revision, struct hub_answer *ret_a,
                    struct hub_revision *ret, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_free_ char *url = info_url(h, id, revision);
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    struct hub_question q = {
        .method = "GET", .url = url, .id = id, .revision = revision, .max_body = HUB_JSON_MAX};
    if (hub_ask(h, &q, &a, err) < 0)
        return -1;
    if (http_status(a.r) != 200)
        return refused(h, &q, &a, ret_missing, err);

    struct hub_revision found;
    const struct strbuf *body = http_body(a.r);
    char where[512];
    log_url(a.url, where, sizeof(where));
    if (hub_parse_revision(hub_id_kind(id, NULL), strbuf_str(body), body->len, &found, err) < 0)
        return err_wrap(err, "%s", where);
    if (revision && is_lower_hex(revision, 40) && strcmp(found.commit, revision) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: the commit %s was asked for and %s came", where,
                       revision, found.commit);
    *ret = found;
    *ret_a = a;
    a = (struct hub_answer){0};
    return 0;
}

int hub_resolve(struct hub *h, const char *name, const char *revision, struct hub_revision *ret,
                enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    enum hub_missing ignored;
    enum hub_missing *missing = ret_missing ? ret_missing : &ignored;
    const char *id = hub_look_up_alias(h, name);
    *missing = HUB_MISSING_NONE;
    if (hub_check_words(h, id, revision, false, missing, err) < 0)
        return -1;
    return ask_info(h, id, revision, &a, ret, missing, err);
}

int hub_info(struct hub *h, const char *id, const char *revision, struct strbuf *json,
             struct hub_revision *ret, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    enum hub_missing ignored;
    enum hub_missing *missing = ret_missing ? ret_missing : &ignored;
    struct hub_revision found;
    *missing = HUB_MISSING_NONE;
    bool is_model = hub_id_kind(id, NULL) == HUB_MODEL;
    if (is_model)
        id = hub_look_up_alias(h, id);
    if (hub_check_words(h, id, revision, !is_model, missing, err) < 0 ||
        ask_info(h, id, revision, &a, &found, missing, err) < 0)
        return -1;
    strbuf_put(json, strbuf_str(http_body(a.r)), http_body(a.r)->len);
    if (strbuf_failed(json))
        return err_set(err, ERR_NOMEM, "out of memory for what the Hub says of %.255s", id);
    *ret = found;
    return 0;
}
