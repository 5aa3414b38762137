/* Files that git itself keeps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

static int check_file(const char *id, const char *commit, const struct commit_file *file,
                      struct error *err)
{
    if (hub_id_is_valid(id) && is_lower_hex(commit, 40) && hub_path_is_valid(file->path))
        return 0;
    return err_set(err, ERR_INVALID, "no file of a commit: %.255s %.60s %.200s", id, commit,
                   file->path);
}

static int no_commit(const char *url, struct error *err)
{
    char where[512];
    return err_set(err, ERR_UPSTREAM, "%s: no X-Repo-Commit in the answer",
                   log_url(url, where, sizeof(where)));
}

/* ---- as it comes ----------------------------------------------------------------------------- */

struct stream {
    const struct commit_file *file;
    const char *commit, *url;
    uint64_t at;
    int (*on_data)(void *ctx, const void *data, size_t len, struct error *err);
    void *ctx;
};

static int on_headers(void *ctx, const struct http_response *r, const struct hub_answer *before,
                      struct error *err)
{
    struct stream *x = ctx;
    const char *commit = http_header(r, "X-Repo-Commit");
    char where[512];
    uint64_t length;
    log_url(before->url, where, sizeof(where));
    if (http_status(r) != 200)
        return err_set(err, ERR_UPSTREAM, "%s answered %u where 200 was due", where,
                       http_status(r));
    if (!commit && !before->has_commit)
        return no_commit(before->url, err);
    if (commit && strcmp(commit, x->commit) != 0)
        return err_set(err, ERR_UPSTREAM, "%s: X-Repo-Commit is %.60s, asked was %s", where, commit,
                       x->commit);
    if (http_content_length(r, &length) && length != x->file->size)
        return err_set(err, ERR_UPSTREAM,
                       "%s: Content-Length is %" PRIu64 ", the file list says %" PRIu64, where,
                       length, x->file->size);
    return 0;
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct stream *x = ctx;
    char where[512];
    if (len > x->file->size - x->at)
        return err_set(err, ERR_UPSTREAM, "%s: more bytes come than the %" PRIu64 " of the file",
                       log_url(x->url, where, sizeof(where)), x->file->size);
    x->at += len;
    return x->on_data(x->ctx, data, len, err);
}

int hub_small_stream(struct hub *h, const char *id, const char *commit,
                     const struct commit_file *file,
                     int (*consume)(void *ctx, const void *data, size_t len, struct error *err),
                     void *ctx, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512];
    if (check_file(id, commit, file, err) < 0)
        return -1;
    _cleanup_free_ char *url = hub_resolve_url(h, id, commit, file->path);
    struct stream x = {.file = file, .commit = commit, .url = url, .on_data = consume, .ctx = ctx};
    struct hub_question q = {.method = "GET",
                             .url = url,
                             .id = id,
                             .revision = commit,
                             .path = file->path,
                             .commit = commit,
                             .on_headers = on_headers,
                             .on_data = on_data,
                             .ctx = &x};
    if (hub_ask_200(h, &q, &a, NULL, err) < 0)
        return -1;
    if (x.at != file->size)
        return err_set(err, ERR_UPSTREAM, "%s: %" PRIu64 " bytes came, the file has %" PRIu64,
                       log_url(a.url, where, sizeof(where)), x.at, file->size);
    return 0;
}

/* ---- whole ----------------------------------------------------------------------------------- */

int hub_small_file(struct hub *h, const char *id, const char *commit,
                   const struct commit_file *file, struct strbuf *ret, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512], oid[GIT_OID_TEXT];
    if (check_file(id, commit, file, err) < 0)
        return -1;
    if (file->size > HUB_SMALL_FILE_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "%s/%s: %.200s is a git file of %" PRIu64 " bytes; the limit is %u",
                       h->config->prefix, id, file->path, file->size, HUB_SMALL_FILE_MAX);
    _cleanup_free_ char *url = hub_resolve_url(h, id, commit, file->path);
    struct hub_question q = {.method = "GET",
                             .url = url,
                             .id = id,
                             .revision = commit,
                             .path = file->path,
                             .max_body = HUB_SMALL_FILE_MAX,
                             .commit = commit};
    if (hub_ask_200(h, &q, &a, NULL, err) < 0)
        return -1;
    if (!a.has_commit)
        return no_commit(a.url, err);
    log_url(a.url, where, sizeof(where));
    const struct strbuf *body = http_body(a.r);
    if (git_blob_oid(strbuf_str(body), body->len, oid, err) < 0)
        return -1;
    if (body->len != file->size || strcmp(oid, file->git_oid) != 0)
        return err_set(err, ERR_DIGEST_MISMATCH,
                       "%s: git object %s of %zu bytes came, %s of %" PRIu64 " bytes was promised",
                       where, oid, body->len, file->git_oid, file->size);
    strbuf_put(ret, strbuf_str(body), body->len);
    return strbuf_failed(ret) ? err_set(err, ERR_NOMEM, "out of memory for %.200s", file->path) : 0;
}
