/* GET and HEAD of a blob. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/content.h"
#include "server/names.h"
#include "server/request.h"

#define FOREVER "max-age=31536000"

struct blob_request {
    char digest[DIGEST_TEXT_MAX];
    char etag[DIGEST_TEXT_MAX + 2];
    char name[DIGEST_TEXT_MAX + 8];
    struct content content;
    bool again; /* its size was found out to be another one than was known at first */
};

/* ollama's client wants to be told where a blob is even when it is given the blob; the address is
 * the one that the client itself used. */
static bool put_location(struct MHD_Response *r, const struct request *q, const char *digest)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    request_base_url(q, &url);
    strbuf_printf(&url, "/v2/%s/blobs/%s", q->route.name, digest);
    names_put_ns(q, '?', &url);
    return !strbuf_failed(&url) && reply_put(r, "Location", strbuf_str(&url));
}

static enum MHD_Result send_blob(struct request *q, const struct blob_request *br, unsigned status,
                                 struct MHD_Response *r)
{
    bool ok = reply_put(r, "Docker-Content-Digest", br->digest) && reply_put(r, "ETag", br->etag) &&
              reply_put(r, "Cache-Control", FOREVER);
    if (status != 304)
        ok = ok && reply_put(r, "Accept-Ranges", "bytes") &&
             reply_put(r, "Content-Type", "application/octet-stream");
    if (status == 200)
        ok = ok && put_location(r, q, br->digest);
    if (status == 206)
        ok = ok && content_put_range(r, &br->content);
    if (!ok && r) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head || status == 304 ? 0 : br->content.length;
    return reply(q, status, r);
}

static enum MHD_Result send_unsatisfiable(struct request *q, const struct blob_request *br)
{
    char text[128];
    snprintf(text, sizeof(text), "the range lies outside the blob's %" PRIu64 " bytes",
             br->content.size);
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    error_body(&body, "SIZE_INVALID", text, q->id, NULL);
    q->body_length = body.len;
    struct MHD_Response *r = reply_from_text(&body);
    if (r &&
        (!content_put_unsatisfied(r, br->content.size) || !reply_put(r, "Accept-Ranges", "bytes") ||
         !reply_put(r, "Content-Type", "application/json"))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply(q, 416, r);
}

static void close_reader(struct reader **r)
{
    reader_close(*r);
}

static enum MHD_Result serve(struct request *q, struct blob_request *br);

static enum MHD_Result get_blob(struct request *q, struct blob_request *br)
{
    struct error err = ERROR_INIT;
    struct content *c = &br->content;
    _cleanup_(close_reader) struct reader *reader = NULL;
    if (reader_open(q->server->upstreams, q->route.ref.repository, &q->route.ref.digest, c->first,
                    c->first + c->length, &reader, &err) < 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    uint64_t size = reader_size(reader);
    q->cache = content_cache(reader_kind(reader));
    if (size != c->size && !br->again) {
        close_reader(&reader);
        reader = NULL;
        br->again = true;
        return serve(q, br);
    }
    if (size != c->size) {
        err_set(&err, ERR_BUSY,
                "blob %s: it was said to have %" PRIu64 " bytes, and now %" PRIu64 ": try again",
                br->digest, c->size, size);
        return reply_error(q, RESOURCE_BLOB, &err);
    }
    struct MHD_Response *r = content_response(q, c, &reader, &err);
    if (!r)
        return reply_error(q, RESOURCE_BLOB, &err);
    return send_blob(q, br, c->is_part ? 206 : 200, r);
}

static enum MHD_Result serve(struct request *q, struct blob_request *br)
{
    struct error err = ERROR_INIT;
    const struct reference *ref = &q->route.ref;
    struct content *c = &br->content;
    const char *none_match = request_header(q, "If-None-Match");
    *c = (struct content){.name = br->name};
    /* Always first, so that HEAD, a conditional GET and a ranged one say what a plain one says. */
    int found = reader_stat(q->server->upstreams, ref->repository, &ref->digest, &c->size, &err);
    if (found == 0)
        reader_no_blob(q->server->upstreams, ref->repository, &ref->digest, &err);
    if (found <= 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    if (none_match && etag_none_match(none_match, br->etag))
        return send_blob(q, br, 304, reply_empty(c->size));
    enum range_result asked = content_asked(q, br->etag, c);
    if (q->is_head)
        return send_blob(q, br, 200, reply_empty(c->size));
    return asked == RANGE_UNSATISFIABLE ? send_unsatisfiable(q, br) : get_blob(q, br);
}

enum MHD_Result blobs_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct blob_request br = {0};
    if (request_may_pull(q, &err) < 0)
        return reply_error(q, RESOURCE_BLOB, &err);
    digest_format(&q->route.ref.digest, br.digest);
    snprintf(br.etag, sizeof(br.etag), "\"%s\"", br.digest);
    snprintf(br.name, sizeof(br.name), "blob %s", br.digest);
    return serve(q, &br);
}
