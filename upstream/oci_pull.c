/* Manifests and blobs: what a registry has, and the checks before it is believed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/oci_manifest.h"
#include "upstream/oci_private.h"

static const char manifest_types[] = OCI_INDEX_TYPE ", " OCI_IMAGE_TYPE ", " DOCKER_LIST_TYPE
                                                    ", " DOCKER_IMAGE_TYPE ", " OCI_ARTIFACT_TYPE;

/* Bounds what the caller has not bounded. */
static uint64_t bounded(struct oci *o, uint64_t deadline_ms)
{
    return deadline_ms ? deadline_ms : clock_monotonic_ms() + 2 * http_pool_patience_ms(o->pool);
}

int oci_answer_digest(const struct oci_answer *a, struct digest *ret, struct error *err)
{
    const char *text = http_header(a->r, "Docker-Content-Digest");
    struct digest d = {0};
    struct error why = ERROR_INIT;
    if (text && digest_parse(text, &d, &why) < 0 && why.code != ERR_UNSUPPORTED)
        return oci_broken(a, err, "gives a Docker-Content-Digest that is none: %.150s", text);
    *ret = d;
    return 0;
}

static bool is_html(const char *type)
{
    return type && strncasecmp(type, "text/html", 9) == 0;
}

/* ---- manifests ------------------------------------------------------------------------------- */

static void read_stale(const struct oci_answer *a, char ret[static OCI_STALE_MAX])
{
    static const char begin[] = "299 - \"", ours[] = STALE_TEXT;
    const char *p = http_header(a->r, "Warning");
    size_t n = 0;
    ret[0] = '\0';
    if (!p || strncmp(p, begin, strlen(begin)) != 0)
        return;
    p += strlen(begin);
    if (strncmp(p, ours, strlen(ours)) != 0)
        return;
    for (; *p && *p != '"' && n + 1 < OCI_STALE_MAX; p++) {
        if (*p == '\\' && p[1])
            p++;
        ret[n++] = *p;
    }
    ret[n] = '\0';
    oci_clean_text(ret);
}

/* A type that says nothing: then what the document says of itself counts. */
static bool is_vague(const char *type)
{
    static const char *const vague[] = {"application/json", "application/octet-stream",
                                        "text/plain"};
    size_t n = type ? strcspn(type, "; \t") : 0;
    if (n == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(vague); i++)
        if (strlen(vague[i]) == n && strncasecmp(type, vague[i], n) == 0)
            return true;
    return false;
}

/* The bytes hash to what was asked for, and to what the answer itself says. */
static int check_digest(const struct oci_answer *a, const struct digest *want, const char *whose,
                        const void *data, size_t len, struct error *err)
{
    struct digest got;
    char where[512], want_text[DIGEST_TEXT_MAX], got_text[DIGEST_TEXT_MAX];
    if (want->alg == DIGEST_NONE)
        return 0;
    if (digest_of(want->alg, data, len, &got, err) < 0)
        return -1;
    if (digest_equal(&got, want))
        return 0;
    return err_set(err, ERR_DIGEST_MISMATCH, "%s: the manifest hashes to %s, not to %s%s",
                   log_url(a->url, where, sizeof(where)), digest_format(&got, got_text), whose,
                   digest_format(want, want_text));
}

static int check_manifest(struct oci *o, const struct oci_answer *a, const struct digest *asked,
                          struct manifest *ret, struct error *err)
{
    const struct strbuf *body = http_body(a->r);
    const char *type = http_header(a->r, "Content-Type");
    struct digest said = {0}, digest;
    struct error why = ERROR_INIT;
    if (body->len == 0)
        return oci_broken(a, err, "answered 200 with nothing in it, where a manifest was due");
    if (is_html(type))
        return oci_broken(a, err, "answered with a page (%.60s), where a manifest was due", type);
    if (oci_answer_digest(a, &said, err) < 0)
        return -1;
    if (asked && check_digest(a, asked, "the ", body->data, body->len, err) < 0)
        return -1;
    if (check_digest(a, &said, "its Docker-Content-Digest ", body->data, body->len, err) < 0)
        return -1;
    if (asked)
        digest = *asked;
    else if (digest_of(DIGEST_SHA256, body->data, body->len, &digest, err) < 0)
        return -1;
    struct oci_manifest m = {0};
    if (oci_manifest_parse(is_vague(type) ? NULL : type, body->data, body->len, &m, &why) < 0) {
        oci_broken(a, err, "sent no manifest: %.300s", why.text);
        if (why.code == ERR_INVALID)
            atomic_fetch_add(&o->refuted, 1);
        else if (err) /* ours, or a type that is known and not done */
            err->code = why.code;
        return -1;
    }
    *ret =
        (struct manifest){.digest = digest, .media_type = strdup(m.media_type), .len = body->len};
    oci_manifest_done(&m);
    ret->bytes = malloc(body->len);
    if (!ret->media_type || !ret->bytes) {
        manifest_done(ret);
        return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu bytes", body->len);
    }
    memcpy(ret->bytes, body->data, body->len);
    return 1;
}

/* A 404 or 403 of which nobody can tell who says it. */
static int not_its_own(struct oci *o, const struct oci_answer *a, struct error *err)
{
    unsigned status = http_status(a->r);
    oci_broken(a, err,
               "answered %u, but not in a registry's words: a proxy on the way is broken, or the "
               "upstream's url is wrong",
               status);
    return err_wrap(err, "upstream %s", o->config->prefix);
}

static int get_manifest(struct oci *o, const char *name, const char *tag,
                        const struct digest *digest, uint64_t deadline_ms, bool own_word,
                        struct manifest *ret, char *ret_stale, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    _cleanup_answer_ struct oci_answer a = {0};
    _cleanup_free_ char *url =
        oci_url(o, name, "manifests", digest ? digest_format(digest, text) : tag);
    struct oci_question q = {.method = "GET",
                             .url = url,
                             .name = name,
                             .accept = manifest_types,
                             .max_body = OCI_MANIFEST_MAX,
                             .deadline_ms = bounded(o, deadline_ms)};
    if (oci_ask(o, &q, &a, err) < 0)
        return -1;
    unsigned status = http_status(a.r);
    if (own_word && (status == 404 || status == 403) && !oci_is_own_word(&a))
        return not_its_own(o, &a, err);
    if (oci_is_absent(&a))
        return 0;
    if (status != 200)
        return oci_refusal(o, &a, err);
    struct manifest m = {0};
    int rc = check_manifest(o, &a, digest, &m, err);
    if (rc < 0 && err && err->code == ERR_DIGEST_MISMATCH)
        atomic_fetch_add(&o->refuted, 1);
    if (rc > 0)
        *ret = m;
    if (rc > 0 && ret_stale)
        read_stale(&a, ret_stale);
    return rc;
}

int oci_get_manifest(struct oci *o, const char *name, const char *tag, const struct digest *digest,
                     uint64_t deadline_ms, struct manifest *ret, struct error *err)
{
    return get_manifest(o, name, tag, digest, deadline_ms, false, ret, NULL, err);
}

int oci_get_tag(struct oci *o, const char *name, const char *tag, uint64_t deadline_ms,
                struct manifest *ret, char ret_stale[static OCI_STALE_MAX], struct error *err)
{
    return get_manifest(o, name, tag, NULL, deadline_ms, false, ret, ret_stale, err);
}

int oci_confirm_manifest(struct oci *o, const char *name, const char *tag, uint64_t deadline_ms,
                         struct manifest *ret, struct error *err)
{
    return get_manifest(o, name, tag, NULL, deadline_ms, true, ret, NULL, err);
}

/* For registries that know no HEAD here. */
static int head_by_get(struct oci *o, const char *name, const char *tag, uint64_t deadline_ms,
                       struct oci_head *ret, struct error *err)
{
    struct manifest m = {0};
    char stale[OCI_STALE_MAX];
    int rc = oci_get_tag(o, name, tag, deadline_ms, &m, stale, err);
    if (rc <= 0)
        return rc;
    *ret = (struct oci_head){.digest = m.digest, .size = m.len};
    memcpy(ret->stale, stale, sizeof(stale));
    snprintf(ret->media_type, sizeof(ret->media_type), "%s", m.media_type);
    manifest_done(&m);
    return 1;
}

static int read_head(const struct oci_answer *a, struct oci_head *ret, struct error *err)
{
    const char *type = http_header(a->r, "Content-Type");
    struct oci_head h = {.size = UINT64_MAX};
    if (is_html(type))
        return oci_broken(a, err, "answered with a page (%.60s), where a manifest was due", type);
    if (oci_answer_digest(a, &h.digest, err) < 0)
        return -1;
    if (http_content_length(a->r, &h.size) && h.size > OCI_MANIFEST_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "the upstream's manifest has %" PRIu64 " bytes, and %u are the most that is "
                       "taken",
                       h.size, OCI_MANIFEST_MAX);
    if (type && strlen(type) < sizeof(h.media_type))
        memcpy(h.media_type, type, strlen(type) + 1);
    h.media_type[strcspn(h.media_type, "; \t")] = '\0';
    read_stale(a, h.stale);
    *ret = h;
    return 1;
}

int oci_head_manifest(struct oci *o, const char *name, const char *tag, const struct digest *known,
                      uint64_t deadline_ms, struct oci_head *ret, struct error *err)
{
    char text[DIGEST_TEXT_MAX], etag[DIGEST_TEXT_MAX + 2];
    _cleanup_answer_ struct oci_answer a = {0};
    _cleanup_free_ char *url = oci_url(o, name, "manifests", tag);
    if (known)
        snprintf(etag, sizeof(etag), "\"%s\"", digest_format(known, text));
    deadline_ms = bounded(o, deadline_ms);
    struct oci_question q = {.method = "HEAD",
                             .url = url,
                             .name = name,
                             .accept = manifest_types,
                             .if_none_match = known ? etag : NULL,
                             .deadline_ms = deadline_ms};
    if (oci_ask(o, &q, &a, err) < 0)
        return -1;
    unsigned status = http_status(a.r);
    if (oci_is_absent(&a))
        return 0;
    if (status == 405 || status == 501)
        return head_by_get(o, name, tag, deadline_ms, ret, err);
    if (status == 304 && known) {
        *ret = (struct oci_head){.digest = *known, .size = UINT64_MAX};
        read_stale(&a, ret->stale);
        return 1;
    }
    if (status != 200)
        return oci_refusal(o, &a, err);
    return read_head(&a, ret, err);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static int check_said(const struct oci_answer *a, const struct digest *d, struct error *err)
{
    struct digest said = {0};
    char where[512], said_text[DIGEST_TEXT_MAX], text[DIGEST_TEXT_MAX];
    if (oci_answer_digest(a, &said, err) < 0)
        return -1;
    if (said.alg != d->alg || digest_equal(&said, d))
        return 0;
    return err_set(err, ERR_DIGEST_MISMATCH, "%s: asked for the blob %s, the answer is about %s",
                   log_url(a->url, where, sizeof(where)), digest_format(d, text),
                   digest_format(&said, said_text));
}

/* Signed URLs are often for GET alone, and some answers to HEAD have no length: one byte is asked
 * for then, and the answer's header says how many there are. */
static int size_by_range(struct oci *o, struct oci_question *q, const struct digest *d,
                         uint64_t *ret_size, struct error *err)
{
    _cleanup_answer_ struct oci_answer a = {0};
    uint64_t first, last;
    q->method = "GET";
    q->only_header = true;
    if (oci_ask(o, q, &a, err) < 0)
        return -1;
    if (oci_is_absent(&a))
        return 0;
    unsigned status = http_status(a.r);
    const char *range = http_header(a.r, "Content-Range");
    if (status == 416 && range && strcasecmp(range, "bytes */0") == 0) {
        *ret_size = 0;
        return 1;
    }
    if (status != 200 && status != 206)
        return oci_refusal(o, &a, err);
    if (check_said(&a, d, err) < 0)
        return -1;
    if (status == 206 ? http_content_range(a.r, &first, &last, ret_size)
                      : http_content_length(a.r, ret_size))
        return 1;
    return oci_broken(&a, err, "does not say how large the blob is");
}

int oci_head_blob(struct oci *o, const char *name, const struct digest *d, uint64_t *ret_size,
                  struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    _cleanup_answer_ struct oci_answer a = {0};
    _cleanup_free_ char *url = oci_url(o, name, "blobs", digest_format(d, text));
    uint64_t size;
    struct oci_question q = {
        .method = "HEAD", .url = url, .name = name, .deadline_ms = bounded(o, 0)};
    if (oci_ask(o, &q, &a, err) < 0)
        return -1;
    unsigned status = http_status(a.r);
    if (oci_is_absent(&a))
        return 0;
    if (status == 405 || status == 501 || (a.is_foreign && status >= 400 && status < 500) ||
        (status == 200 && !http_content_length(a.r, &size)))
        return size_by_range(o, &q, d, ret_size, err);
    if (status != 200)
        return oci_refusal(o, &a, err);
    if (is_html(http_header(a.r, "Content-Type")))
        return oci_broken(&a, err, "answered with a page, where a blob was due");
    if (check_said(&a, d, err) < 0)
        return -1;
    *ret_size = size;
    return 1;
}

int oci_blob_location(struct oci *o, const char *name, const struct digest *d,
                      struct http_location *ret, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    _cleanup_(http_location_done) struct http_location l = {0};
    _cleanup_free_ char *scope = oci_scope(o, name);
    l.url = oci_url(o, name, "blobs", digest_format(d, text));
    if (!l.url || !scope)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    /* While it is left alone, downloads leave it alone, too. */
    if (breaker_enter(o->breaker, clock_monotonic_ms(), err) < 0)
        return -1;
    breaker_abandon(o->breaker);
    if (oci_auth_header_until(o->auth, scope, bounded(o, 0), &l.authorization, err) < 0)
        return oci_login_failed(o, err);
    *ret = l;
    l = (struct http_location){0};
    return 0;
}

int oci_blob_challenged(struct oci *o, const char *name, const char *sent,
                        const struct http_response *r, char **ret, struct error *err)
{
    _cleanup_free_ char *scope = oci_scope(o, name);
    if (!scope)
        return err_set(err, ERR_NOMEM, "out of memory for a scope");
    int rc = oci_auth_challenged_until(o->auth, scope, sent, r, bounded(o, 0), ret, err);
    if (rc <= 0)
        oci_login_failed(o, err);
    return rc;
}

void oci_blob_accepted(struct oci *o, const char *name, const char *sent)
{
    _cleanup_free_ char *scope = oci_scope(o, name);
    if (scope) /* else a revoked token costs this download, when we are out of memory anyway */
        oci_auth_accepted(o->auth, scope, sent);
}
