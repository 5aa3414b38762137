/* JSON that the Hub gives in one or more pages, and its answers about tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

/* ---- pages ----------------------------------------------------------------------------------- */

/* The next page's URL, NULL after the last one. */
static int next_page(struct hub *h, const struct hub_answer *a, char **ret, struct error *err)
{
    char where[512];
    _cleanup_free_ char *target = NULL;
    for (const char *link = http_header(a->r, "Link"); link && !target;
         link = http_header_next(a->r, "Link", link))
        target = http_link_next(link);
    *ret = NULL;
    if (!target)
        return 0;
    _cleanup_free_ char *url = http_resolve_location(a->url, target);
    log_url(a->url, where, sizeof(where));
    if (!url)
        return err_set(err, ERR_UPSTREAM, "%s: the next page is no http or https URL", where);
    if (!http_same_origin(h->config->url, url)) {
        char other[512];
        return err_set(err, ERR_UPSTREAM, "%s: the next page is on another host, %s", where,
                       log_url(url, other, sizeof(other)));
    }
    *ret = TAKE_PTR(url);
    return 0;
}

struct page_reading {
    struct hub *h;
    const char *what;
    int (*on_page)(void *ctx, const struct hub_answer *a, struct error *err);
    void *ctx;
    enum hub_missing *missing;
    uint64_t total; /* bytes so far */
};

/* Hands over the page at q->url; *ret_next is the following page's URL. */
static int read_page(struct page_reading *x, const struct hub_question *q, char **ret_next,
                     struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512];
    if (hub_ask_200(x->h, q, &a, x->missing, err) < 0)
        return -1;
    log_url(a.url, where, sizeof(where));
    x->total += http_body(a.r)->len;
    if (x->total > HUB_TREE_JSON_MAX)
        return err_set(err, ERR_UPSTREAM, "%s: %s is longer than %u bytes", where, x->what,
                       HUB_TREE_JSON_MAX);
    if (x->on_page(x->ctx, &a, err) < 0)
        return err_wrap(err, "%s", where);
    return next_page(x->h, &a, ret_next, err);
}

int hub_read_pages(struct hub *h, const struct hub_question *first, const char *what,
                   int (*on_page)(void *ctx, const struct hub_answer *a, struct error *err),
                   void *ctx, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_free_ uint64_t *seen = calloc(HUB_TREE_PAGES_MAX, sizeof(*seen));
    _cleanup_free_ char *page = first->url ? strdup(first->url) : NULL;
    struct page_reading x = {
        .h = h, .what = what, .on_page = on_page, .ctx = ctx, .missing = ret_missing};
    struct hub_question q = *first;
    char where[512];
    if (!seen || !page)
        return err_set(err, ERR_NOMEM, "out of memory for %s", what);
    for (unsigned n = 0; page; n++) {
        log_url(page, where, sizeof(where));
        if (n == HUB_TREE_PAGES_MAX)
            return err_set(err, ERR_UPSTREAM, "%s: more than %u pages", where, HUB_TREE_PAGES_MAX);
        seen[n] = text_hash(page);
        for (unsigned i = 0; i < n; i++)
            if (seen[i] == seen[n])
                return err_set(err, ERR_UPSTREAM, "%s: the pages of %s go in a circle", where,
                               what);
        char *next = NULL;
        q.url = page;
        if (read_page(&x, &q, &next, err) < 0)
            return -1;
        free(page);
        page = next;
    }
    return 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

struct document {
    struct strbuf *json;
    uint64_t total;
    bool has_total;
};

static void note_total(struct document *d, const struct http_response *r)
{
    if (!d->has_total)
        http_header_number(r, "X-Total-Count", &d->total);
    d->has_total = true;
}

/* The elements of one more page, which go into the array that has begun. */
static int add_page(void *ctx, const struct hub_answer *a, struct error *err)
{
    struct document *d = ctx;
    const struct strbuf *body = http_body(a->r);
    const char *inside;
    size_t len;
    note_total(d, a->r);
    if (hub_array_inside(strbuf_str(body), body->len, &inside, &len, err) < 0)
        return -1;
    if (len)
        json_put_separator(d->json);
    strbuf_put(d->json, inside, len);
    return strbuf_failed(d->json) ? err_set(err, ERR_NOMEM, "out of memory for a list") : 0;
}

static int read_document(struct hub *h, const struct hub_question *q, struct document *d,
                         enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    _cleanup_json_ struct json *root = NULL;
    struct error why = ERROR_INIT;
    char where[512];
    if (hub_ask_200(h, q, &a, ret_missing, err) < 0)
        return -1;
    const struct strbuf *body = http_body(a.r);
    note_total(d, a.r);
    if (json_parse(strbuf_str(body), body->len, &root, &why) < 0)
        return err_set(err, why.code == ERR_NOMEM ? ERR_NOMEM : ERR_UPSTREAM, "%s: %s",
                       log_url(a.url, where, sizeof(where)), why.text);
    strbuf_put(d->json, strbuf_str(body), body->len);
    return strbuf_failed(d->json) ? err_set(err, ERR_NOMEM, "out of memory for an answer") : 0;
}

int hub_document(struct hub *h, const char *id, const char *suffix, bool pages, struct strbuf *json,
                 uint64_t *ret_total, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT, whole = STRBUF_INIT;
    struct document d = {.json = &whole};
    if (ret_missing)
        *ret_missing = HUB_MISSING_NONE;
    if (!hub_id_is_valid(id))
        return err_set(err, ERR_INVALID, "no repository: %.255s", id);
    hub_put_api_url(h, id, &url);
    strbuf_puts(&url, suffix);
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {
        .method = "GET", .url = strbuf_str(&url), .id = id, .max_body = HUB_JSON_MAX};
    if (pages)
        strbuf_putc(&whole, '[');
    int rc = pages ? hub_read_pages(h, &q, "the list", add_page, &d, ret_missing, err)
                   : read_document(h, &q, &d, ret_missing, err);
    if (rc < 0)
        return rc;
    if (pages)
        strbuf_putc(&whole, ']');
    strbuf_put(json, strbuf_str(&whole), whole.len);
    if (strbuf_failed(&whole) || strbuf_failed(json))
        return err_set(err, ERR_NOMEM, "out of memory for an answer");
    if (ret_total)
        *ret_total = d.total;
    return 0;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

int hub_check(struct hub *h, const char *id, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    if (ret_missing)
        *ret_missing = HUB_MISSING_NONE;
    if (!hub_id_is_valid(id))
        return err_set(err, ERR_INVALID, "no repository: %.255s", id);
    hub_put_api_url(h, id, &url);
    strbuf_puts(&url, "/auth-check");
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {
        .method = "GET", .url = strbuf_str(&url), .id = id, .max_body = HUB_JSON_MAX};
    return hub_ask_200(h, &q, &a, ret_missing, err);
}

int hub_whoami(struct hub *h, struct strbuf *json, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    struct document d = {.json = json};
    if (ret_missing)
        *ret_missing = HUB_MISSING_NONE;
    strbuf_printf(&url, "%s/api/whoami-v2", h->config->url);
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {.method = "GET", .url = strbuf_str(&url), .max_body = HUB_JSON_MAX};
    return read_document(h, &q, &d, ret_missing, err);
}
