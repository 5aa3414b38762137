/* GET and HEAD of a manifest. Bytes and media type are exactly what was
 * imported or pushed, whatever Accept says: a digest that depends on headers helps nobody. */
#include <stdio.h>
#include <string.h>

#include "server/range.h"
#include "server/request.h"

static bool put_headers(const struct request *q, struct MHD_Response *r,
                        const struct manifest_answer *a, const char *digest, const char *etag,
                        bool has_body)
{
    /* By digest the answer can never change; a tag can move at any time. */
    const char *cache = q->route.ref.is_digest ? "max-age=31536000, immutable" : "no-cache";
    bool ok = reply_put(r, "Docker-Content-Digest", digest) && reply_put(r, "ETag", etag) &&
              reply_put(r, "Cache-Control", cache);
    if (has_body)
        ok = ok && reply_put(r, "Content-Type", a->manifest.media_type);
    return ok && reply_put_warning(r, a->warning);
}

enum MHD_Result manifests_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    _cleanup_(manifest_answer_done) struct manifest_answer a = {0};
    char digest[DIGEST_TEXT_MAX], etag[DIGEST_TEXT_MAX + 2];
    if (request_may_pull(q, &err) < 0 ||
        upstreams_manifest(q->server->upstreams, &q->route.ref, &a, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    q->cache = a.imported ? "fill" : "hit";
    request_is_stale(q, a.warning);
    digest_format(&a.manifest.digest, digest);
    snprintf(etag, sizeof(etag), "\"%s\"", digest);
    q->route.ref.digest = a.manifest.digest; /* for the log: what the tag named */
    const char *none_match = request_header(q, "If-None-Match");
    bool unchanged = none_match && etag_none_match(none_match, etag);
    struct MHD_Response *r;
    if (unchanged) {
        r = reply_empty(a.manifest.len);
    } else {
        /* libmicrohttpd takes the bytes over and frees them. */
        r = MHD_create_response_from_buffer(a.manifest.len, a.manifest.bytes,
                                            MHD_RESPMEM_MUST_FREE);
        if (r)
            TAKE_PTR(a.manifest.bytes);
    }
    if (r && !put_headers(q, r, &a, digest, etag, !unchanged)) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = unchanged || q->is_head ? 0 : a.manifest.len;
    return reply(q, unchanged ? 304 : 200, r);
}
