/* Files of a Hub's repositories: /resolve/ and /raw/. Bytes come from here, never by a redirect;
 * every answer has the commit, a strong ETag and the exact length, which is all that clients know
 * of a file before they name it in their caches. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/content.h"
#include "server/hub_api.h"

struct file_request {
    struct hub_file file;
    struct hub_at at;
    struct content content;
    bool is_raw; /* without conditions */
    char etag[sizeof(((struct hub_file *)0)->etag) + 2];
    char name[160]; /* for error texts */
};

/* ---- what it is --------------------------------------------------------------------------------
 */

static const char *extension(const char *path)
{
    const char *name = strrchr(path, '/');
    const char *dot = strrchr(name ? name : path, '.');
    return dot ? dot + 1 : "";
}

/* As the Hub has them. Never text that a browser would run: these are strangers' files, on the
 * address of this server. */
static const char *content_type(const char *path)
{
    static const char *const texts[] = {
        "txt",       "md",
        "json",      "jsonl",
        "yaml",      "yml",
        "toml",      "ini",
        "cfg",       "conf",
        "csv",       "tsv",
        "xml",       "html",
        "htm",       "css",
        "js",        "ts",
        "py",        "ipynb",
        "sh",        "c",
        "h",         "cpp",
        "cu",        "rs",
        "go",        "java",
        "jinja",     "tex",
        "log",       "lock",
        "svg",       "gitattributes",
        "gitignore",
    };
    static const struct {
        const char *extension, *type;
    } others[] = {
        {"png", "image/png"},       {"jpg", "image/jpeg"},  {"jpeg", "image/jpeg"},
        {"gif", "image/gif"},       {"webp", "image/webp"}, {"pdf", "application/pdf"},
        {"zip", "application/zip"}, {"wav", "audio/wav"},   {"mp3", "audio/mpeg"},
        {"flac", "audio/flac"},     {"mp4", "video/mp4"},
    };
    const char *e = extension(path);
    for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
        if (strcasecmp(e, texts[i]) == 0)
            return "text/plain; charset=utf-8";
    for (unsigned i = 0; i < ARRAY_LEN(others); i++)
        if (strcasecmp(e, others[i].extension) == 0)
            return others[i].type;
    return "application/octet-stream";
}

static bool put_disposition(struct MHD_Response *r, const char *path)
{
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    const char *name = strrchr(path, '/');
    strbuf_puts(&value, "inline; filename*=UTF-8''");
    strbuf_put_urlencoded(&value, name ? name + 1 : path, NULL);
    return !strbuf_failed(&value) && reply_put(r, "Content-Disposition", strbuf_str(&value));
}

/* ---- answers -----------------------------------------------------------------------------------
 */

/* Clients reckon with an answer to any range of an empty file that is none and tells the size. */
static bool put_range(const struct request *q, struct MHD_Response *r, const struct content *c)
{
    if (c->is_part)
        return content_put_range(r, c);
    return c->size || !request_has_header(q, "Range") || content_put_unsatisfied(r, 0);
}

static enum MHD_Result send_file(struct request *q, const struct file_request *fr, unsigned status,
                                 struct MHD_Response *r)
{
    const char *cache = q->cache;
    bool ok = !r || (hub_reply_put(q, r, &fr->at) && reply_put(r, "ETag", fr->etag) &&
                     reply_put(r, "Cache-Control", "no-cache"));
    if (cache && !*fr->at.warning)
        q->cache = cache; /* of the bytes */
    if (status != 304)
        ok = ok && reply_put(r, "Accept-Ranges", "bytes") &&
             reply_put(r, "Content-Type", content_type(q->hub->path)) &&
             reply_put(r, "Content-Security-Policy", "default-src 'none'; sandbox") &&
             put_disposition(r, q->hub->path) && put_range(q, r, &fr->content);
    if (!ok && r) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head || status == 304 ? 0 : fr->content.length;
    return reply(q, status, r);
}

static enum MHD_Result send_unsatisfiable(struct request *q, const struct file_request *fr)
{
    char range[48], text[128];
    snprintf(range, sizeof(range), "bytes */%" PRIu64, fr->content.size);
    snprintf(text, sizeof(text), "the range lies outside the file's %" PRIu64 " bytes",
             fr->content.size);
    return hub_reply_with(q, &fr->at, 416, "Content-Range", range, text);
}

static void close_reader(struct reader **r)
{
    reader_close(*r);
}

/* Lists of gated repositories are for everybody, and their files are not. */
static enum MHD_Result refuse_file(struct request *q, struct file_request *fr,
                                   const struct error *err)
{
    if (fr->at.refused == HUB_REFUSED_NOT &&
        (err->code == ERR_DENIED || err->code == ERR_UNAUTHORIZED))
        fr->at.refused = HUB_REFUSED_GATED;
    return hub_reply_error(q, &fr->at, err);
}

static enum MHD_Result get_file(struct request *q, struct file_request *fr)
{
    struct error err = ERROR_INIT;
    struct content *c = &fr->content;
    const struct hub_route *h = q->hub;
    _cleanup_(close_reader) struct reader *reader = NULL;
    if (hub_mirror_open(q->server->upstreams, h->mirror, &h->query, h->path, &fr->file, &fr->at,
                        c->first, c->first + c->length, &reader, &err) < 0)
        return refuse_file(q, fr, &err);
    q->cache = content_cache(reader_kind(reader));
    uint64_t size = reader_size(reader);
    if (size != c->size) {
        err_set(&err, ERR_DIGEST_MISMATCH,
                "%s has %" PRIu64 " bytes, and the Hub's list of files says %" PRIu64, fr->name,
                size, c->size);
        return hub_reply_error(q, &fr->at, &err);
    }
    struct MHD_Response *r = content_response(q, c, &reader, &err);
    if (!r)
        return hub_reply_error(q, &fr->at, &err);
    return send_file(q, fr, c->is_part ? 206 : 200, r);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static int find(struct request *q, struct file_request *fr, struct error *err)
{
    const struct hub_route *h = q->hub;
    int r = hub_mirror_file(h->mirror, &h->query, h->path, &fr->file, &fr->at, err);
    if (r < 0 && hub_read_longer(q, &fr->at)) {
        fr->at = (struct hub_at){0};
        r = hub_mirror_file(h->mirror, &h->query, h->path, &fr->file, &fr->at, err);
    }
    if (r < 0)
        return -1;
    q->route.ref.digest = fr->file.sha256; /* for the log */
    fr->content = (struct content){.name = fr->name, .size = fr->file.size};
    snprintf(fr->etag, sizeof(fr->etag), "\"%s\"", fr->file.etag);
    snprintf(fr->name, sizeof(fr->name), "file %s of commit %.12s", fr->file.etag, fr->at.commit);
    return 0;
}

static enum MHD_Result serve(struct request *q, struct file_request *fr)
{
    struct content *c = &fr->content;
    const char *none_match = fr->is_raw ? NULL : request_header(q, "If-None-Match");
    if (none_match && etag_none_match(none_match, fr->etag))
        return send_file(q, fr, 304, reply_empty(c->size));
    enum range_result asked = content_asked(q, fr->etag, c);
    if (q->is_head || c->size == 0)
        return send_file(q, fr, 200, reply_empty(c->size));
    return asked == RANGE_UNSATISFIABLE ? send_unsatisfiable(q, fr) : get_file(q, fr);
}

enum MHD_Result hub_resolve_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct file_request fr = {0};
    return find(q, &fr, &err) < 0 ? hub_reply_error(q, &fr.at, &err) : serve(q, &fr);
}

/* What git itself has of an LFS file: a few lines that name it. */
static enum MHD_Result send_pointer(struct request *q, struct file_request *fr)
{
    struct error err = ERROR_INIT;
    char text[200], oid[GIT_OID_TEXT];
    size_t n = hub_pointer_text(&fr->file, text, sizeof(text));
    if (git_blob_oid(text, n, oid, &err) < 0)
        return hub_reply_error(q, &fr->at, &err);
    snprintf(fr->etag, sizeof(fr->etag), "\"%s\"", oid);
    fr->content.size = fr->content.length = n;
    return send_file(q, fr, 200, MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_COPY));
}

enum MHD_Result hub_raw_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct file_request fr = {.is_raw = true};
    if (find(q, &fr, &err) < 0)
        return hub_reply_error(q, &fr.at, &err);
    return fr.file.has_lfs ? send_pointer(q, &fr) : serve(q, &fr);
}
