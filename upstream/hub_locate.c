#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_private.h"

/* Asks the resolve route by HEAD for what the Hub itself says about a file. */
static int ask_resolve(struct hub *h, const char *id, const char *commit, const char *path,
                       struct hub_answer *ret, struct error *err)
{
    if (!hub_id_is_valid(id) || !is_lower_hex(commit, 40) || !hub_path_is_valid(path))
        return err_set(err, ERR_INVALID, "no file of a commit: %.255s %.60s %.200s", id, commit,
                       path);
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    _cleanup_free_ char *url = hub_resolve_url(h, id, commit, path);
    struct hub_question q = {.method = "HEAD",
                             .url = url,
                             .id = id,
                             .revision = commit,
                             .path = path,
                             .commit = commit,
                             .stop_at_linked = true,
                             .foreign_is_fine = true};
    enum hub_missing missing;
    char where[512];
    if (hub_ask(h, &q, &a, err) < 0)
        return -1;
    if (!a.location && http_status(a.r) != 200)
        return hub_refusal(h, &q, &a, &missing, err);
    if (!http_header(a.r, "X-Repo-Commit"))
        return err_set(err, ERR_UPSTREAM, "%s: no X-Repo-Commit in the answer",
                       log_url(a.url, where, sizeof(where)));
    *ret = a;
    a = (struct hub_answer){0};
    return 0;
}

/* The sha256 and size that an answer of the resolve route promises. Behind a redirect only the
 * X-Linked-... headers speak of the file. A file that git itself keeps has an object id for an
 * ETag; it says nothing of the sha256 (DIGEST_NONE). */
static int read_promise(const struct hub_answer *a, struct digest *ret, uint64_t *ret_size,
                        struct error *err)
{
    char where[512], hex[65];
    bool is_git = false;
    log_url(a->url, where, sizeof(where));
    const char *name = "X-Linked-Etag";
    const char *etag = http_header(a->r, name);
    if (!etag && !a->location)
        etag = http_header(a->r, name = "ETag");
    if (!etag)
        return err_set(err, ERR_UPSTREAM, "%s: no X-Linked-Etag in the answer", where);
    if (strcmp(name, "ETag") == 0)
        is_git = hub_etag_hex(etag, 40, hex);
    if (!is_git && !hub_etag_hex(etag, 64, hex))
        return err_set(err, ERR_UPSTREAM, "%s: %s is no sha256: %.100s", where, name, etag);
    uint64_t size;
    const char *linked = http_header(a->r, "X-Linked-Size");
    if (linked ? !http_header_number(a->r, "X-Linked-Size", &size)
               : a->location || !http_content_length(a->r, &size))
        return err_set(err, ERR_UPSTREAM, "%s: %s X-Linked-Size in the answer%s%.40s", where,
                       linked ? "malformed" : "no", linked ? ": " : "", linked ? linked : "");
    *ret = (struct digest){.alg = DIGEST_NONE};
    *ret_size = size;
    return is_git ? 0 : digest_parse_hex(DIGEST_SHA256, hex, ret, err);
}

int hub_linked_digest(struct hub *h, const char *id, const char *commit, const char *path,
                      uint64_t size, struct digest *ret, struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    struct digest promised;
    uint64_t promised_size;
    char where[512];
    if (ask_resolve(h, id, commit, path, &a, err) < 0 ||
        read_promise(&a, &promised, &promised_size, err) < 0)
        return -1;
    if (promised.alg == DIGEST_NONE)
        return err_set(err, ERR_UPSTREAM, "%s: ETag is no sha256",
                       log_url(a.url, where, sizeof(where)));
    if (promised_size != size)
        return err_set(err, ERR_UPSTREAM,
                       "%s: X-Linked-Size is %" PRIu64 ", the file list says %" PRIu64,
                       log_url(a.url, where, sizeof(where)), promised_size, size);
    *ret = promised;
    return 0;
}

int hub_locate(struct hub *h, const char *id, const char *commit, const char *path,
               const struct digest *sha256, uint64_t size, struct http_location *ret,
               struct error *err)
{
    _cleanup_(hub_answer_done) struct hub_answer a = {0};
    _cleanup_(http_location_done) struct http_location l = {0};
    struct digest promised;
    uint64_t promised_size;
    char where[512], got[DIGEST_TEXT_MAX], want[DIGEST_TEXT_MAX];
    if (ask_resolve(h, id, commit, path, &a, err) < 0 ||
        read_promise(&a, &promised, &promised_size, err) < 0)
        return -1;
    log_url(a.url, where, sizeof(where));
    if (promised.alg != DIGEST_NONE && !digest_equal(&promised, sha256))
        return err_set(err, ERR_UPSTREAM, "%s: %s is %s, expected was %s", where,
                       http_header(a.r, "X-Linked-Etag") ? "X-Linked-Etag" : "ETag",
                       digest_format_hex(&promised, got), digest_format_hex(sha256, want));
    if (promised_size != size)
        return err_set(err, ERR_UPSTREAM, "%s: %s is %" PRIu64 ", expected was %" PRIu64, where,
                       http_header(a.r, "X-Linked-Size") ? "X-Linked-Size" : "Content-Length",
                       promised_size, size);
    l.url = a.location ? TAKE_PTR(a.location) : TAKE_PTR(a.url);
    if (h->config->token && http_same_origin(h->config->url, l.url) &&
        !(l.bearer = strdup(h->config->token)))
        return err_set(err, ERR_NOMEM, "out of memory for a location");
    *ret = l;
    l = (struct http_location){0};
    return 0;
}
