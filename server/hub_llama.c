/* GET /v2/<repo>/manifests/<tag> of llama.cpp before 2026: which file of a repository a label
 * means. It reads "ggufFile" and "mmprojFile" and asks the resolve route for them by name. */
#include <stdio.h>

#include "base/json.h"
#include "server/hub_api.h"
#include "server/hub_json.h"
#include "server/range.h"

static void put_picked(struct strbuf *to, const struct hub_picked *p)
{
    strbuf_putc(to, '{');
    json_put_key(to, "ggufFile");
    hub_put_named_file(to, p->model);
    if (p->projector) {
        json_put_key(to, "mmprojFile");
        hub_put_named_file(to, p->projector);
    }
    strbuf_putc(to, '}');
}

/* The tag of what is answered: it moves with the commit, and with nothing else. */
static int make_etag(const struct strbuf *body, char *buf, size_t size, struct error *err)
{
    struct digest d;
    char hex[DIGEST_TEXT_MAX];
    if (digest_of(DIGEST_SHA256, strbuf_str(body), body->len, &d, err) < 0)
        return -1;
    snprintf(buf, size, "\"%s\"", digest_format_hex(&d, hex));
    return 0;
}

static enum MHD_Result reply_picked(struct request *q, const struct hub_at *at, struct strbuf *body,
                                    const char *etag)
{
    const char *none_match = request_header(q, "If-None-Match");
    bool unchanged = none_match && etag_none_match(none_match, etag);
    uint64_t n = body->len;
    struct MHD_Response *r = unchanged ? reply_empty(n) : reply_from_text(body);
    if (r && (!reply_put(r, "ETag", etag) || !reply_put(r, "Cache-Control", "no-cache") ||
              !hub_reply_put(q, r, at) ||
              (!unchanged && !reply_put(r, "Content-Type", "application/json; charset=utf-8")))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = unchanged || q->is_head ? 0 : n;
    return reply(q, unchanged ? 304 : 200, r);
}

enum MHD_Result hub_llama_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    struct hub_picked picked;
    char etag[DIGEST_TEXT_MAX + 2];
    _cleanup_(hub_listing_done) struct hub_listing files = {0};
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    if (hub_mirror_list(q->hub->mirror, &q->hub->query, &files, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    if (hub_pick_gguf(&files, q->hub->path, &picked, &err) < 0) {
        if (err.code == ERR_NOT_FOUND)
            at.refused = HUB_REFUSED_ENTRY;
        err_wrap(&err, "%s", at.id);
        return hub_reply_error(q, &at, &err);
    }
    put_picked(&body, &picked);
    if (make_etag(&body, etag, sizeof(etag), &err) < 0)
        return hub_reply_error(q, &at, &err);
    return reply_picked(q, &at, &body, etag);
}
