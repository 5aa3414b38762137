/* What is in a repository: files, folders, refs. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

/* ---- the file list --------------------------------------------------------------------------- */

static int add_page(void *ctx, const struct hub_answer *a, struct error *err)
{
    const struct strbuf *body = http_body(a->r);
    return hub_tree_page(ctx, strbuf_str(body), body->len, err);
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

static int read_list(struct hub *h, const char *id, const char *commit, struct strbuf *folders,
                     struct commit_files *ret, struct error *err)
{
    _cleanup_(hub_tree_done) struct hub_tree tree = {.folders = folders};
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    if (!hub_id_is_valid(id) || !is_lower_hex(commit, 40))
        return err_set(err, ERR_INVALID, "no repository and commit: %.255s %.60s", id, commit);
    hub_put_api_url(h, id, &url);
    strbuf_printf(&url, "/tree/%s?recursive=true&expand=false", commit);
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {.method = "GET",
                             .url = strbuf_str(&url),
                             .id = id,
                             .revision = commit,
                             .max_body = HUB_JSON_MAX};
    struct commit_files list = {0};
    if (hub_read_pages(h, &q, "the file list", add_page, &tree, NULL, err) < 0)
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

int hub_files(struct hub *h, const char *id, const char *commit, struct commit_files *ret,
              struct error *err)
{
    return read_list(h, id, commit, NULL, ret, err);
}

int hub_files_and_folders(struct hub *h, const char *id, const char *commit,
                          struct commit_files *ret, struct strbuf *folders, struct error *err)
{
    _cleanup_strbuf_ struct strbuf found = STRBUF_INIT;
    struct commit_files list;
    if (read_list(h, id, commit, &found, &list, err) < 0)
        return -1;
    strbuf_put(folders, strbuf_str(&found), found.len);
    if (strbuf_failed(folders)) {
        commit_files_done(&list);
        return err_set(err, ERR_NOMEM, "out of memory for folder names");
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
    hub_put_api_url(h, id, &url);
    strbuf_printf(&url, "/refs%s", pull_requests ? "?include_prs=1" : "");
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    struct hub_question q = {
        .method = "GET", .url = strbuf_str(&url), .id = id, .max_body = HUB_JSON_MAX};
    if (hub_ask_200(h, &q, &a, NULL, err) < 0)
        return -1;
    const struct strbuf *body = http_body(a.r);
    if (hub_parse_refs(strbuf_str(body), body->len, pull_requests, ret, ret_n, err) < 0)
        return err_wrap(err, "%s", log_url(a.url, where, sizeof(where)));
    return 0;
}
