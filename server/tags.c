/* The two paged lists: tags of a repository, and the catalog of repositories. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "server/names.h"
#include "server/request.h"

#define PAGE_MAX 10000u
#define FILTERED_MIN 256u /* names read at once where rules may hide most of them */

struct page {
    size_t limit; /* names in an answer; 0 is legal and gives none */
    bool has_last;
    char last[REPOSITORY_MAX + 1]; /* exclusive */
};

static int read_page(const struct request *q, struct page *ret, struct error *err)
{
    *ret = (struct page){.limit = PAGE_MAX};
    if (query_get_count(q->query, PAGE_MAX, &ret->limit, err) < 0)
        return -1;
    int r = query_get(q->query, "last", ret->last, sizeof(ret->last), err);
    ret->has_last = r > 0 && *ret->last;
    return r < 0 ? -1 : 0;
}

static void put_names(struct strbuf *body, const char *key, char *const *names, size_t n)
{
    json_put_key(body, key);
    strbuf_putc(body, '[');
    for (size_t i = 0; i < n; i++) {
        json_put_separator(body);
        json_put_string(body, names[i]);
    }
    strbuf_puts(body, "]}");
}

/* Relative: clients follow a page only on the same origin. */
static enum MHD_Result reply_page(struct request *q, struct strbuf *body, const char *path,
                                  size_t limit, const char *last, const char *warning)
{
    _cleanup_strbuf_ struct strbuf link = STRBUF_INIT;
    if (last) {
        strbuf_printf(&link, "<%s?n=%zu&last=", path, limit);
        strbuf_put_urlencoded(&link, last, "/");
        names_put_ns(q, '&', &link);
        strbuf_puts(&link, ">; rel=\"next\"");
    }
    uint64_t n = body->len;
    struct MHD_Response *r = reply_from_text(body);
    if (r &&
        (strbuf_failed(&link) || !reply_put(r, "Content-Type", "application/json") ||
         !reply_put_warning(r, warning) || (last && !reply_put(r, "Link", strbuf_str(&link))))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head ? 0 : n;
    return reply(q, 200, r);
}

enum MHD_Result tags_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct page page;
    _cleanup_(name_list_done) struct name_list list = {0};
    const struct reference *ref = &q->route.ref;
    char path[REPOSITORY_MAX + 32], warning[WARNING_TEXT_MAX];
    if (request_may_pull(q, &err) < 0)
        return reply_error(q, RESOURCE_NAME, &err);
    if (read_page(q, &page, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    /* An empty page still says whether the repository is there. */
    if (upstreams_tags(q->server->upstreams, ref->repository, page.has_last ? page.last : NULL,
                       page.limit ? page.limit : 1, &list, warning, &err) < 0)
        return reply_error(q, RESOURCE_NAME, &err);
    request_is_stale(q, warning);
    size_t n = page.limit < list.n ? page.limit : list.n;
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_putc(&body, '{');
    json_put_key(&body, "name");
    json_put_string(&body, q->route.name); /* by which the client has to ask again */
    put_names(&body, "tags", list.names, n);
    snprintf(path, sizeof(path), "/v2/%s/tags/list", q->route.name);
    return reply_page(q, &body, path, page.limit,
                      n && (list.more || n < list.n) ? list.names[n - 1] : NULL, warning);
}

static bool hides_some(const struct config *c)
{
    bool hides = c->n_access || c->n_policies;
    for (size_t i = 0; i < c->n_upstreams; i++)
        hides = hides || c->upstreams[i].credentials == CREDENTIALS_FORWARD;
    return hides;
}

/* One page of repositories that this client may pull from: rules can hide any number of those that
 * are there, so it looks on until it has one more than it will show. */
static int visible(const struct request *q, const struct page *page, struct strbuf *names,
                   size_t *ret_n, bool *ret_more, char last[static REPOSITORY_MAX + 1],
                   struct error *err)
{
    char from[REPOSITORY_MAX + 1];
    size_t n = 0;
    snprintf(from, sizeof(from), "%s", page->last);
    for (bool more = true; more;) {
        _cleanup_(name_list_done) struct name_list list = {0};
        size_t want = page->limit - n + 1;
        if (hides_some(q->server->config) && want < FILTERED_MIN)
            want = FILTERED_MIN;
        if (store_repositories(q->server->store, *from ? from : NULL, want, &list, err) < 0)
            return -1;
        for (size_t i = 0; i < list.n; i++) {
            if (!request_may_see(q, list.names[i]))
                continue;
            if (n == page->limit) {
                *ret_n = n;
                *ret_more = true;
                return 0;
            }
            json_put_separator(names);
            json_put_string(names, list.names[i]);
            snprintf(last, REPOSITORY_MAX + 1, "%s", list.names[i]);
            n++;
        }
        more = list.more && list.n > 0;
        if (more)
            snprintf(from, sizeof(from), "%s", list.names[list.n - 1]);
    }
    *ret_n = n;
    *ret_more = false;
    return 0;
}

enum MHD_Result catalog_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct page page;
    size_t n = 0;
    bool more = false;
    char last[REPOSITORY_MAX + 1] = "";
    if (read_page(q, &page, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_puts(&body, "{\"repositories\":[");
    if (visible(q, &page, &body, &n, &more, last, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    strbuf_puts(&body, "]}");
    return reply_page(q, &body, "/v2/_catalog", page.limit, n && more ? last : NULL, "");
}
