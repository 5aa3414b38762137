/* An OCI registry, as a client (distribution spec 1.1, "Pull", "Content Discovery"; facts of Docker
 * Hub, GHCR, Quay). One for each upstream of that kind.
 *
 * Each function is one question: authorised (oci_auth.h), counted by the upstream's breaker and
 * rate limit, redirected at most 5 times (never to http from https, never with our credentials to
 * another origin), and checked for form before anything is believed. Errors are those of
 * http_status_error, except: 404 gives 0 ("absent") where a function has that result, and 401/403
 * after our own login worked give ERR_DENIED, while a login or token server that fails gives
 * ERR_UPSTREAM with `login` in its text (an upstream that is down, not an answer about the
 * repository), or ERR_UNAUTHORIZED where no login is configured. Thread-safe.
 *
 * Of a configured url the API is at {url}/v2/, or, where its path begins with /v2, at the url
 * itself: what follows then stands before every name ("http://root:5000/v2/docker.io").
 */
#ifndef WB_UPSTREAM_OCI_H
#define WB_UPSTREAM_OCI_H

#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "config/config.h"
#include "storage/store.h"
#include "upstream/breaker.h"
#include "upstream/http.h"

struct oci;

int oci_new(const struct config_upstream *config, struct oci **ret, struct error *err);
void oci_free(struct oci *o);
struct http_pool *oci_pool(struct oci *o);
/* Manifests that did not hash to their digest, or were not of the type they were said to be. */
uint64_t oci_refuted(const struct oci *o);
void oci_breaker_stats(struct oci *o, struct breaker_stats *ret);

/* `name` is the upstream's own ("library/alpine"). All the manifest types are always asked for,
 * whatever our client asked us for: one tag has one digest. */

/* A registry that is a server like this one says in a Warning when it could not ask its own
 * upstream: that text, without secrets; "" = it did not. */
#define OCI_STALE_MAX 500
#define STALE_TEXT "served from the store, " /* how it begins */

struct oci_head {
    struct digest digest; /* alg NONE: the upstream did not say */
    char media_type[256];
    uint64_t size; /* UINT64_MAX: not said */
    char stale[OCI_STALE_MAX];
};
/* What a tag names now. One HEAD, conditional when `known` is given. deadline_ms (monotonic, 0 =
 * none) bounds the whole of it. 1 and *ret, 0 no such tag or repository, -1. */
int oci_head_manifest(struct oci *o, const char *name, const char *tag, const struct digest *known,
                      uint64_t deadline_ms, struct oci_head *ret, struct error *err);

/* The bytes, checked: by digest they hash to it; by tag to the Docker-Content-Digest that came with
 * them, if one did (*ret's digest is of sha256 then or otherwise). At most 4 MiB + 64 KiB
 * (ERR_TOO_LARGE). ERR_DIGEST_MISMATCH names both digests. 1, 0 absent, -1. */
int oci_get_manifest(struct oci *o, const char *name, const char *tag, const struct digest *digest,
                     uint64_t deadline_ms, struct manifest *ret, struct error *err);

/* As oci_get_manifest() of a tag, with what the upstream says of its own. */
int oci_get_tag(struct oci *o, const char *name, const char *tag, uint64_t deadline_ms,
                struct manifest *ret, char ret_stale[static OCI_STALE_MAX], struct error *err);

/* As oci_get_manifest() of a tag, but 0, ERR_DENIED and ERR_NOT_FOUND only when it is recognisably
 * the registry that says so: what is known of a tag can go on the strength of that. Another 404 or
 * 403, of a proxy that broke or a url that leads elsewhere, is ERR_UPSTREAM. */
int oci_confirm_manifest(struct oci *o, const char *name, const char *tag, uint64_t deadline_ms,
                         struct manifest *ret, struct error *err);

/* Whether the repository has the blob: 1 and its size, 0, -1. */
int oci_head_blob(struct oci *o, const char *name, const struct digest *d, uint64_t *ret_size,
                  struct error *err);

/* The referrers of a subject: by the API, or where the registry has none (404) by the fallback tag;
 * over all its pages, at most 10,000. Descriptors are checked for form. 1, 0 none or unknown, as
 * the registry itself says (oci_confirm_manifest()), -1. */
int oci_referrers(struct oci *o, const char *name, const struct digest *subject,
                  struct referrer_list *ret, struct error *err);

/* Tags, for `tags/list` of a mirrored repository: all pages, at most 10,000, sorted by bytes. 1, 0
 * no such repository, -1. */
int oci_tags(struct oci *o, const char *name, struct name_list *ret, struct error *err);

/* ---- for transfers: the download itself is theirs ---- */

/* Where a blob's bytes are asked for, and the Authorization value to send there (owned, NULL =
 * none). Usually asks nothing of the network. */
int oci_blob_location(struct oci *o, const char *name, const struct digest *d,
                      struct http_location *ret, struct error *err);
/* The registry answered 401 to that: 1 and a new Authorization value, 0 no use (err says why), -1.
 */
int oci_blob_challenged(struct oci *o, const char *name, const char *sent,
                        const struct http_response *r, char **ret, struct error *err);
/* The registry took that Authorization value. */
void oci_blob_accepted(struct oci *o, const char *name, const char *sent);

#endif
