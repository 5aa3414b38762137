/* Blobs that clients push. A session has one URL for all its life and no state in it, so that every
 * address that a client ever got of it works; what was acknowledged is told by Range, which counts
 * from 0 and names the last byte ("0-0" of an empty session too: clients fail on anything else).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/names.h"
#include "server/range.h"
#include "server/uploads.h"

/* One request's part of a session. */
struct piece {
    struct upload *upload;
    char id[UPLOAD_ID_LEN + 1];
    bool is_whole;     /* the session was made for this request alone, and ends with it */
    bool has_digest;   /* the session ends with this piece */
    bool is_committed; /* and is gone */
    struct digest digest;
    bool has_length; /* so many bytes have to come, no more and no fewer */
    uint64_t length, received;
};

/* ---- answers ----------------------------------------------------------------------------------
 */

static bool put_session(struct MHD_Response *r, const struct request *q, const char *id,
                        uint64_t offset)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    char range[32];
    request_base_url(q, &url);
    strbuf_printf(&url, "/v2/%s/blobs/uploads/%s", q->route.name, id);
    names_put_ns(q, '?', &url);
    snprintf(range, sizeof(range), "0-%" PRIu64, offset ? offset - 1 : 0);
    return !strbuf_failed(&url) && reply_put(r, "Location", strbuf_str(&url)) &&
           reply_put(r, "Range", range) && reply_put(r, "Docker-Upload-UUID", id);
}

enum MHD_Result uploads_reply_session(struct request *q, unsigned status, const char *id,
                                      uint64_t offset)
{
    struct MHD_Response *r = reply_empty(0);
    if (r && !put_session(r, q, id, offset)) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = 0;
    return reply(q, status, r);
}

enum MHD_Result uploads_reply_created(struct request *q, const struct digest *d)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    char text[DIGEST_TEXT_MAX];
    struct MHD_Response *r = reply_empty(0);
    digest_format(d, text);
    request_base_url(q, &url);
    strbuf_printf(&url, "/v2/%s/blobs/%s", q->route.name, text);
    names_put_ns(q, '?', &url);
    if (strbuf_failed(&url) || !reply_put(r, "Location", strbuf_str(&url)) ||
        !reply_put(r, "Docker-Content-Digest", text)) {
        if (r)
            MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = 0;
    return reply(q, 201, r);
}

static enum MHD_Result reply_out_of_order(struct request *q, const char *id, uint64_t offset,
                                          uint64_t first)
{
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    char message[160];
    snprintf(message, sizeof(message),
             "the piece starts at byte %" PRIu64 ", but %" PRIu64
             " bytes are here: the next one has to start there",
             first, offset);
    err_set(&q->error, ERR_INVALID, "%s", message);
    error_body(&body, "BLOB_UPLOAD_INVALID", message, q->id, err_name(ERR_INVALID));
    size_t n = body.len;
    const char *text = body.data;
    q->body_length = n;
    struct MHD_Response *r = reply_from_text(&body);
    if (r && (!put_session(r, q, id, offset) || !reply_put(r, "Content-Type", "application/json") ||
              !reply_put(r, "Cache-Control", "no-store"))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply_known(q, 416, r, text, n);
}

static enum MHD_Result reply_unknown(struct request *q)
{
    struct error err = ERROR_INIT;
    err_set(
        &err, ERR_NOT_FOUND,
        "%s has no such upload: it was completed, cancelled or given up, or was idle for longer "
        "than \"uploads.expire\"",
        q->route.ref.repository);
    return reply_error(q, RESOURCE_UPLOAD, &err);
}

/* ---- a piece and its body ---------------------------------------------------------------------
 */

static void piece_free(struct request *q, struct piece *p)
{
    if (!p)
        return;
    upload_close(p->upload);
    /* Nobody was told of the session. If it can not be removed now, it expires. */
    if (p->is_whole && !p->is_committed)
        upload_cancel(q->server->store, q->route.ref.repository, p->id, NULL);
    free(p);
}

static int wrong_length(const struct piece *p, struct error *err)
{
    return err_set(err, ERR_INVALID,
                   "Content-Range announces %" PRIu64
                   " bytes, and %s came: the piece was not taken",
                   p->length, p->received > p->length ? "more" : "fewer");
}

static int piece_write(struct request *q, const void *data, size_t len, struct error *err)
{
    struct piece *p = q->sink.ctx;
    p->received += len;
    if (p->has_length && p->received > p->length)
        return wrong_length(p, err);
    return upload_write(p->upload, data, len, err);
}

/* What was written must not even be found by asking how much is there: opening cuts it off. Not
 * when a newer request has the session by now. */
static void take_back(struct request *q, struct piece *p)
{
    if (upload_write(p->upload, "", 0, NULL) < 0)
        return;
    upload_close(p->upload);
    p->upload = NULL;
    upload_open(q->server->store, q->route.ref.repository, p->id, &p->upload, NULL);
}

static enum MHD_Result piece_end(struct request *q)
{
    struct piece *p = q->sink.ctx;
    struct error err = ERROR_INIT;
    uint64_t offset;
    bool is_short = !q->body_failed && p->has_length && p->received < p->length;
    if (is_short)
        q->body_failed = wrong_length(p, &q->body_error) < 0;
    if (is_short || (p->has_length && p->received > p->length))
        take_back(q, p);
    if (q->body_failed)
        return reply_error(q, RESOURCE_UPLOAD, &q->body_error);
    if (!p->has_digest) {
        if (upload_ack(p->upload, &offset, &err) < 0)
            return reply_error(q, RESOURCE_UPLOAD, &err);
        return uploads_reply_session(q, 202, p->id, offset);
    }
    if (upload_commit(p->upload, &p->digest, &err) < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    p->is_committed = true;
    return uploads_reply_created(q, &p->digest);
}

static void piece_release(struct request *q)
{
    piece_free(q, q->sink.ctx);
}

static void want_body(struct request *q, struct piece *p)
{
    q->sink = (struct body_sink){
        .write = piece_write, .end = piece_end, .release = piece_release, .ctx = p};
}

/* Also for a body without a length: whether there is room at all is known before it comes. What is
 * only to be closed needs none. */
static int expect(struct request *q, struct piece *p, struct error *err)
{
    if (!q->framing.chunked && q->framing.length == 0)
        return 0;
    return upload_expect(p->upload, q->framing.length, err);
}

/* ---- PATCH and PUT ----------------------------------------------------------------------------
 */

/* 1 and the range, 0 none. */
static int content_range(const struct request *q, uint64_t *first, uint64_t *length,
                         struct error *err)
{
    const char *text = request_header(q, "Content-Range");
    if (!text && !request_has_header(q, "Content-Range"))
        return 0;
    if (!text || !range_of_piece(text, first, length))
        return err_set(err, ERR_INVALID,
                       "Content-Range is not <first byte>-<last byte> of the piece, counted in the "
                       "whole blob");
    if (q->framing.has_length && q->framing.length != *length)
        return err_set(err, ERR_INVALID,
                       "Content-Range announces %" PRIu64 " bytes, Content-Length %" PRIu64,
                       *length, q->framing.length);
    return 1;
}

/* Out of a PUT whose answer a crash or a broken connection ate: the session is gone because the
 * blob is here. Whoever may not pull is not told what is. */
static enum MHD_Result reply_gone(struct request *q, const struct digest *d)
{
    struct error err = ERROR_INIT;
    struct link link = {0};
    bool may_know = d && request_may_pull(q, NULL) == 0;
    int found =
        may_know ? store_link_get(q->server->store, q->route.ref.repository, d, &link, &err) : 0;
    if (found < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    bool is_held = found == 1 && link.held;
    link_done(&link);
    return is_held ? uploads_reply_created(q, d) : reply_unknown(q);
}

/* Takes a session over for one more piece; digest: of the whole blob when this is the last one. */
static enum MHD_Result begin_piece(struct request *q, const struct digest *digest)
{
    struct error err = ERROR_INIT;
    const char *repository = q->route.ref.repository;
    uint64_t first = 0, length = 0;
    int ranged = content_range(q, &first, &length, &err);
    if (ranged < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    if (!*q->route.upload)
        return reply_gone(q, digest);
    struct piece *p = calloc(1, sizeof(*p));
    if (!p) {
        err_set(&err, ERR_NOMEM, "out of memory");
        return reply_error(q, RESOURCE_UPLOAD, &err);
    }
    int found = upload_open(q->server->store, repository, q->route.upload, &p->upload, &err);
    enum MHD_Result r;
    snprintf(p->id, sizeof(p->id), "%s", q->route.upload);
    p->has_length = ranged == 1;
    p->length = length;
    p->has_digest = digest != NULL;
    if (digest)
        p->digest = *digest;
    if (found == 0) {
        r = reply_gone(q, digest);
    } else if (found == 1 && ranged == 1 && first != upload_offset(p->upload)) {
        r = reply_out_of_order(q, p->id, upload_offset(p->upload), first);
    } else if (found < 0 || expect(q, p, &err) < 0) {
        r = reply_error(q, RESOURCE_UPLOAD, &err);
    } else {
        want_body(q, p);
        return MHD_YES;
    }
    piece_free(q, p);
    return r;
}

static enum MHD_Result begin_put(struct request *q)
{
    struct error err = ERROR_INIT;
    char text[2 * DIGEST_TEXT_MAX];
    struct digest d;
    int found = query_get(q->query, "digest", text, sizeof(text), &err);
    if (found == 0)
        err_set(&err, ERR_INVALID, "the PUT that closes an upload names what it is: ?digest=");
    if (found <= 0 || digest_parse(text, &d, &err) < 0)
        return reply_error(q, RESOURCE_DIGEST, &err);
    q->route.ref.digest = d; /* for the log */
    return begin_piece(q, &d);
}

/* ---- a blob in one POST -----------------------------------------------------------------------
 */

enum MHD_Result uploads_begin_whole(struct request *q, const struct digest *digest)
{
    struct error err = ERROR_INIT;
    struct piece *p = calloc(1, sizeof(*p));
    if (!p) {
        err_set(&err, ERR_NOMEM, "out of memory");
        return reply_error(q, RESOURCE_UPLOAD, &err);
    }
    q->route.ref.digest = *digest; /* for the log */
    p->has_digest = true;
    p->digest = *digest;
    const char *repository = q->route.ref.repository;
    int r = upload_begin(q->server->store, repository, digest->alg, p->id, &err);
    if (r == 0) {
        p->is_whole = true;
        r = upload_open(q->server->store, repository, p->id, &p->upload, &err);
        if (r == 0)
            err_set(&err, ERR_INTERNAL, "upload %s was gone as soon as it was made", p->id);
        r = r == 1 ? expect(q, p, &err) : -1;
    }
    if (r < 0) {
        piece_free(q, p);
        return reply_error(q, RESOURCE_UPLOAD, &err);
    }
    want_body(q, p);
    return MHD_YES;
}

enum MHD_Result uploads_begin(struct request *q)
{
    struct error err = ERROR_INIT;
    if (request_may(q, ACCESS_PUSH, &err) < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    if (strcmp(q->method, "POST") == 0)
        return uploads_begin_session(q);
    return strcmp(q->method, "PUT") == 0 ? begin_put(q) : begin_piece(q, NULL);
}

/* ---- GET, HEAD, DELETE ------------------------------------------------------------------------
 */

enum MHD_Result uploads_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct store *s = q->server->store;
    const char *repository = q->route.ref.repository;
    uint64_t offset = 0;
    if (request_may(q, ACCESS_PUSH, &err) < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    if (!*q->route.upload)
        return reply_unknown(q);
    bool cancels = strcmp(q->method, "DELETE") == 0;
    int found = cancels ? upload_cancel(s, repository, q->route.upload, &err)
                        : upload_status(s, repository, q->route.upload, &offset, &err);
    if (found < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    if (found == 0)
        return reply_unknown(q);
    if (cancels)
        return reply(q, 204, reply_empty(0));
    return uploads_reply_session(q, 204, q->route.upload, offset);
}
