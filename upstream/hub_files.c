#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

char *hub_resolve_url(const struct hub *h, const char *id, const char *commit, const char *path)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_printf(&url, "%s/", h->config->url);
    strbuf_put_urlencoded(&url, id, "/");
    strbuf_printf(&url, "/resolve/%s/", commit);
    strbuf_put_urlencoded(&url, path, "/");
    return strbuf_take(&url);
}

/* ---- the file list --------------------------------------------------------------------------- */

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

/* Adds the page at q->url to the tree; *ret_next is the following page's URL. */
static int read_page(struct hub *h, const struct hub_question *q, struct hub_tree *tree,
                     uint64_t *total, char **ret_next, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512];
    if (hub_ask_200(h, q, &a, err) < 0)
        return -1;
    const struct strbuf *body = http_body(a.r);
    log_url(a.url, where, sizeof(where));
    *total += body->len;
    if (*total > HUB_TREE_JSON_MAX)
        return err_set(err, ERR_UPSTREAM, "%s: the file list is longer than %u bytes", where,
                       HUB_TREE_JSON_MAX);
    if (hub_tree_page(tree, strbuf_str(body), body->len, err) < 0)
        return err_wrap(err, "%s", where);
    return next_page(h, &a, ret_next, err);
}

static int read_pages(struct hub *h, struct hub_question *q, char *url, struct hub_tree *tree,
                      struct error *err)
{
    _cleanup_free_ uint64_t *seen = calloc(HUB_TREE_PAGES_MAX, sizeof(*seen));
    _cleanup_free_ char *page = url;
    uint64_t total = 0;
    char where[512];
    if (!seen || !page)
        return err_set(err, ERR_NOMEM, "out of memory for a file list");
    for (unsigned n = 0; page; n++) {
        log_url(page, where, sizeof(where));
        if (n == HUB_TREE_PAGES_MAX)
            return err_set(err, ERR_UPSTREAM, "%s: more than %u pages", where, HUB_TREE_PAGES_MAX);
        seen[n] = text_hash(page);
        for (unsigned i = 0; i < n; i++)
            if (seen[i] == seen[n])
                return err_set(err, ERR_UPSTREAM, "%s: the pages of the file list go in a circle",
                               where);
        char *next = NULL;
        q->url = page;
        if (read_page(h, q, tree, &total, &next, err) < 0)
            return -1;
        free(page);
        page = next;
    }
    return 0;
}

static int ask_for_masked(struct hub *h, const char *id, const char *commit,
                          struct commit_files *list, struct error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        struct commit_file *f = &list->files[i];
        if (f->has_lfs && f->sha256.alg == DIGEST_NONE &&
            hub_linked_digest(h, id, commit, f->path, f->size, &f->sha256, err) < 0)
            return -1;
    }
    return 0;
}

int hub_files(struct hub *h, const char *id, const char *commit, struct commit_files *ret,
              struct error *err)
{
    _cleanup_(hub_tree_done) struct hub_tree tree = {0};
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    if (!hub_id_is_valid(id) || !is_lower_hex(commit, 40))
        return err_set(err, ERR_INVALID, "no repository and commit: %.255s %.60s", id, commit);
    strbuf_printf(&url, "%s/api/models/", h->config->url);
    strbuf_put_urlencoded(&url, id, "/");
    strbuf_printf(&url, "/tree/%s?recursive=true&expand=false", commit);
    struct hub_question q = {
        .method = "GET", .id = id, .revision = commit, .max_body = HUB_JSON_MAX};
    struct commit_files list = {0};
    if (read_pages(h, &q, strbuf_take(&url), &tree, err) < 0)
        return -1;
    if (hub_tree_finish(&tree, &list, err) < 0)
        return err_wrap(err, "the file list of %s/%s at %s", h->config->prefix, id, commit);
    if (ask_for_masked(h, id, commit, &list, err) < 0) {
        commit_files_done(&list);
        return -1;
    }
    *ret = list;
    return 0;
}

/* ---- refs ------------------------------------------------------------------------------------ */

int hub_refs(struct hub *h, const char *id, bool pull_requests, struct hub_ref **ret, size_t *ret_n,
             struct error *err)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512];
    if (!hub_id_is_valid(id))
        return err_set(err, ERR_INVALID, "no repository: %.255s", id);
    strbuf_printf(&url, "%s/api/models/", h->config->url);
    strbuf_put_urlencoded(&url, id, "/");
    strbuf_printf(&url, "/refs%s", pull_requests ? "?include_prs=1" : "");
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {
        .method = "GET", .url = strbuf_str(&url), .id = id, .max_body = HUB_JSON_MAX};
    if (hub_ask_200(h, &q, &a, err) < 0)
        return -1;
    const struct strbuf *body = http_body(a.r);
    if (hub_parse_refs(strbuf_str(body), body->len, pull_requests, ret, ret_n, err) < 0)
        return err_wrap(err, "%s", log_url(a.url, where, sizeof(where)));
    return 0;
}

/* ---- small files ----------------------------------------------------------------------------- */

int hub_small_file(struct hub *h, const char *id, const char *commit,
                   const struct commit_file *file, struct strbuf *ret, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    char where[512], oid[GIT_OID_TEXT];
    if (!hub_id_is_valid(id) || !is_lower_hex(commit, 40) || !hub_path_is_valid(file->path))
        return err_set(err, ERR_INVALID, "no file of a commit: %.255s %.60s %.200s", id, commit,
                       file->path);
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
    if (hub_ask_200(h, &q, &a, err) < 0)
        return -1;
    log_url(a.url, where, sizeof(where));
    if (!a.has_commit)
        return err_set(err, ERR_UPSTREAM, "%s: no X-Repo-Commit in the answer", where);
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
