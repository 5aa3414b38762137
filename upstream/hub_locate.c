#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

/* What the Hub's resolve route says of a file by HEAD. */
struct promise {
    struct digest sha256; /* NONE: git itself keeps the file ... */
    char git_oid[41];     /* ... as this */
    uint64_t size;
};

/* Behind a redirect only the X-Linked-... headers speak of the file. */
static int read_promise(const struct hub_answer *a, struct promise *ret, struct error *err)
{
    char where[512], hex[65];
    struct promise p = {0};
    bool is_git = false;
    log_url(a->url, where, sizeof(where));
    const char *name = "X-Linked-Etag";
    const char *etag = http_header(a->r, name);
    if (!etag && !a->location)
        etag = http_header(a->r, name = "ETag");
    if (!etag)
        return err_set(err, ERR_UPSTREAM, "%s: no %s in the answer", where,
                       a->location ? "X-Linked-Etag" : "X-Linked-Etag and no ETag");
    if (strcmp(name, "ETag") == 0)
        is_git = hub_etag_hex(etag, 40, p.git_oid);
    if (!is_git && !hub_etag_hex(etag, 64, hex))
        return err_set(err, ERR_UPSTREAM, "%s: %s is no sha256%s: %.100s", where, name,
                       strcmp(name, "ETag") == 0 ? " and no git object id" : "", etag);
    const char *linked = http_header(a->r, "X-Linked-Size");
    if (linked ? !http_header_number(a->r, "X-Linked-Size", &p.size)
               : a->location || !http_content_length(a->r, &p.size))
        return err_set(err, ERR_UPSTREAM, "%s: %s X-Linked-Size in the answer%s%.40s", where,
                       linked ? "malformed" : "no", linked ? ": " : "", linked ? linked : "");
    if (!is_git && digest_parse_hex(DIGEST_SHA256, hex, &p.sha256, err) < 0)
        return -1;
    *ret = p;
    return 0;
}

/* *ret_a is also there on a refusal by the Hub (with a->r set), for what it says besides. */
static int ask_head(struct hub *h, const char *id, const char *revision, const char *path,
                    struct hub_answer *ret_a, struct promise *ret, enum hub_missing *ret_missing,
                    struct error *err)
{
    _cleanup_free_ char *url = hub_resolve_url(h, id, revision, path);
    struct hub_question q = {.method = "HEAD",
                             .url = url,
                             .id = id,
                             .revision = revision,
                             .path = path,
                             .commit = is_lower_hex(revision, 40) ? revision : NULL,
                             .stop_at_linked = true,
                             .foreign_is_fine = true};
    char where[512];
    if (hub_ask(h, &q, ret_a, err) < 0)
        return -1;
    if (!ret_a->location && http_status(ret_a->r) != 200)
        return hub_refusal(h, &q, ret_a, ret_missing, err);
    if (!http_header(ret_a->r, "X-Repo-Commit"))
        return err_set(err, ERR_UPSTREAM, "%s: no X-Repo-Commit in the answer",
                       log_url(ret_a->url, where, sizeof(where)));
    return read_promise(ret_a, ret, err);
}

/* ---- a file at a commit ---------------------------------------------------------------------- */

static int ask_resolve(struct hub *h, const char *id, const char *commit, const char *path,
                       struct hub_answer *ret_a, struct promise *ret, struct error *err)
{
    enum hub_missing ignored;
    if (!hub_id_is_valid(id) || !is_lower_hex(commit, 40) || !hub_path_is_valid(path))
        return err_set(err, ERR_INVALID, "no file of a commit: %.255s %.60s %.200s", id, commit,
                       path);
    return ask_head(h, id, commit, path, ret_a, ret, &ignored, err);
}

int hub_linked_digest(struct hub *h, const char *id, const char *commit, const char *path,
                      uint64_t size, struct digest *ret, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    struct promise promised = {0};
    char where[512];
    if (ask_resolve(h, id, commit, path, &a, &promised, err) < 0)
        return -1;
    log_url(a.url, where, sizeof(where));
    if (promised.sha256.alg == DIGEST_NONE)
        return err_set(err, ERR_UPSTREAM, "%s: ETag is no sha256", where);
    if (promised.size != size)
        return err_set(err, ERR_UPSTREAM,
                       "%s: X-Linked-Size is %" PRIu64 ", the file list says %" PRIu64, where,
                       promised.size, size);
    *ret = promised.sha256;
    return 0;
}

int hub_locate(struct hub *h, const char *id, const char *commit, const char *path,
               const struct digest *sha256, uint64_t size, struct http_location *ret,
               struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    _cleanup_(http_location_done) struct http_location l = {0};
    struct promise promised = {0};
    char where[512], got[DIGEST_TEXT_MAX], want[DIGEST_TEXT_MAX];
    if (ask_resolve(h, id, commit, path, &a, &promised, err) < 0)
        return -1;
    log_url(a.url, where, sizeof(where));
    if (promised.sha256.alg != DIGEST_NONE && !digest_equal(&promised.sha256, sha256))
        return err_set(err, ERR_UPSTREAM, "%s: %s is %s, expected was %s", where,
                       http_header(a.r, "X-Linked-Etag") ? "X-Linked-Etag" : "ETag",
                       digest_format_hex(&promised.sha256, got), digest_format_hex(sha256, want));
    if (promised.size != size)
        return err_set(err, ERR_UPSTREAM, "%s: %s is %" PRIu64 ", expected was %" PRIu64, where,
                       http_header(a.r, "X-Linked-Size") ? "X-Linked-Size" : "Content-Length",
                       promised.size, size);
    l.url = a.location ? TAKE_PTR(a.location) : TAKE_PTR(a.url);
    const char *token = hub_identity_of(h, id).token;
    if (token && http_same_origin(h->config->url, l.url) && !(l.bearer = strdup(token)))
        return err_set(err, ERR_NOMEM, "out of memory for a location");
    *ret = l;
    l = (struct http_location){0};
    return 0;
}

/* ---- a file at any revision ------------------------------------------------------------------ */

/* The Hub looked at a commit and did not find the file: which one. */
static void note_missing_entry(const char *id, const char *revision, const struct hub_answer *a,
                               struct hub_head *ret)
{
    *ret = (struct hub_head){0};
    snprintf(ret->id, sizeof(ret->id), "%s", a->id[0] ? a->id : id);
    if (a->has_commit)
        snprintf(ret->commit, sizeof(ret->commit), "%s", a->commit);
    else if (is_lower_hex(revision, 40))
        snprintf(ret->commit, sizeof(ret->commit), "%s", revision);
}

static int make_head(const struct hub_answer *a, const struct promise *p, struct hub_head *ret,
                     struct error *err)
{
    char where[512];
    struct hub_head head = {
        .size = p->size, .has_lfs = p->sha256.alg != DIGEST_NONE, .sha256 = p->sha256};
    if (!a->id[0])
        return err_set(err, ERR_UPSTREAM,
                       "%s: a redirect leads to something that is no repository of that kind",
                       log_url(a->url, where, sizeof(where)));
    memcpy(head.id, a->id, sizeof(head.id));
    memcpy(head.commit, a->commit, sizeof(head.commit));
    memcpy(head.git_oid, p->git_oid, sizeof(head.git_oid));
    *ret = head;
    return 0;
}

int hub_head_file(struct hub *h, const char *id, const char *revision, const char *path,
                  struct hub_head *ret, enum hub_missing *ret_missing, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    enum hub_missing ignored;
    enum hub_missing *missing = ret_missing ? ret_missing : &ignored;
    bool is_model = hub_id_kind(id, NULL) == HUB_MODEL;
    struct promise promised = {0};
    *missing = HUB_MISSING_NONE;
    if (is_model)
        id = hub_look_up_alias(h, id);
    if (!revision)
        revision = "main";
    if (hub_check_words(h, id, revision, !is_model, missing, err) < 0)
        return -1;
    if (!hub_path_is_valid(path)) {
        *missing = HUB_MISSING_ENTRY;
        *ret = (struct hub_head){0};
        return err_set(err, ERR_NOT_FOUND, "%s/%s has no file %.400s: no file can have that name",
                       h->config->prefix, id, path);
    }
    if (ask_head(h, id, revision, path, &a, &promised, missing, err) < 0) {
        if (*missing == HUB_MISSING_ENTRY)
            note_missing_entry(id, revision, &a, ret);
        return -1;
    }
    return make_head(&a, &promised, ret, err);
}
