/* The manifests that name another one as their subject: signatures, SBOMs, whatever was attached.
 * Never 404: clients take that for a registry without the API. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/oci_manifest.h"
#include "server/names.h"
#include "server/request.h"

#define ENTRIES_MAX 1000u
#define PAGE_BYTES ((size_t)3 * 1024 * 1024) /* clients read up to 4 MiB; escapes need some */
#define TYPE_MAX 4096u

struct referrers_page {
    size_t limit;
    bool has_n; /* the client's own limit goes into the link */
    bool has_type, has_last;
    char type[TYPE_MAX];
    struct digest last;
};

static int read_page(const struct request *q, struct referrers_page *ret, struct error *err)
{
    char last[DIGEST_TEXT_MAX + 8];
    *ret = (struct referrers_page){.limit = ENTRIES_MAX};
    int r = query_get_count(q->query, ENTRIES_MAX, &ret->limit, err);
    if (r < 0)
        return -1;
    ret->has_n = r && ret->limit;
    if (!ret->limit) /* an empty list would say that there are none */
        ret->limit = ENTRIES_MAX;
    r = query_get(q->query, "artifactType", ret->type, sizeof(ret->type), err);
    if (r < 0)
        return -1;
    ret->has_type = r && *ret->type;
    r = query_get(q->query, "last", last, sizeof(last), err);
    if (r < 0)
        return -1;
    ret->has_last = r && *last;
    return ret->has_last ? digest_parse(last, &ret->last, err) : 0;
}

static void put_entry(struct strbuf *body, const struct referrer *e)
{
    char digest[DIGEST_TEXT_MAX];
    json_put_separator(body);
    strbuf_putc(body, '{');
    json_put_key(body, "mediaType");
    json_put_string(body, e->media_type);
    json_put_key(body, "digest");
    json_put_string(body, digest_format(&e->digest, digest));
    json_put_key(body, "size");
    json_put_u64(body, e->size);
    if (*e->artifact_type) {
        json_put_key(body, "artifactType");
        json_put_string(body, e->artifact_type);
    }
    if (e->annotations) {
        json_put_key(body, "annotations");
        strbuf_puts(body, e->annotations); /* as they stand in the manifest */
    }
    strbuf_putc(body, '}');
}

/* Returns how many entries fit; at least one, however large. */
static size_t put_entries(struct strbuf *body, const struct referrer_list *list)
{
    size_t n = 0;
    for (; n < list->n; n++) {
        size_t before = body->len;
        put_entry(body, &list->items[n]);
        if (n && body->len > PAGE_BYTES) {
            strbuf_truncate(body, before);
            break;
        }
    }
    return n;
}

/* Relative: clients follow a page only on the same origin. */
static void put_link(const struct request *q, const struct referrers_page *page,
                     const struct digest *last, struct strbuf *to)
{
    char digest[DIGEST_TEXT_MAX];
    strbuf_printf(to, "</v2/%s/referrers/%s?", q->route.name,
                  digest_format(&q->route.ref.digest, digest));
    if (page->has_type) {
        strbuf_puts(to, "artifactType=");
        strbuf_put_urlencoded(to, page->type, "/");
        strbuf_putc(to, '&');
    }
    if (page->has_n)
        strbuf_printf(to, "n=%zu&", page->limit);
    strbuf_printf(to, "last=%s", digest_format(last, digest));
    names_put_ns(q, '&', to);
    strbuf_puts(to, ">; rel=\"next\"");
}

static enum MHD_Result reply_list(struct request *q, const struct referrers_page *page,
                                  struct strbuf *body, const struct digest *last,
                                  const char *warning)
{
    _cleanup_strbuf_ struct strbuf link = STRBUF_INIT;
    uint64_t length = body->len;
    if (last)
        put_link(q, page, last, &link);
    struct MHD_Response *r = reply_from_text(body);
    bool ok = !strbuf_failed(&link) && reply_put(r, "Content-Type", OCI_INDEX_TYPE) &&
              reply_put(r, "Cache-Control", "no-cache") && reply_put_warning(r, warning) &&
              (!page->has_type || reply_put(r, "OCI-Filters-Applied", "artifactType")) &&
              (!last || reply_put(r, "Link", strbuf_str(&link)));
    if (r && !ok) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head ? 0 : length;
    return reply(q, 200, r);
}

enum MHD_Result referrers_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct referrers_page page;
    _cleanup_(referrer_list_done) struct referrer_list list = {0};
    const struct reference *ref = &q->route.ref;
    char warning[WARNING_TEXT_MAX];
    if (request_may_pull(q, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    if (read_page(q, &page, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    struct referrers_query query = {.artifact_type = page.has_type ? page.type : NULL,
                                    .last = page.has_last ? &page.last : NULL,
                                    .limit = page.limit,
                                    .max_bytes = PAGE_BYTES};
    if (upstreams_referrers(q->server->upstreams, ref->repository, &ref->digest, &query, &list,
                            warning, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    request_is_stale(q, warning);
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_puts(&body, "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX_TYPE "\",\"manifests\":[");
    size_t n = put_entries(&body, &list);
    strbuf_puts(&body, "]}");
    return reply_list(q, &page, &body,
                      n && (list.more || n < list.n) ? &list.items[n - 1].digest : NULL, warning);
}
