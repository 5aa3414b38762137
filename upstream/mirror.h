/* Names under an OCI upstream's prefix: what of the store is still true, and what has to be asked.
 *
 *     by tag      fresh within tag_ttl: the store. Else one HEAD, however many clients wait for it;
 *                 a digest that is not held is fetched by that digest and recorded with its tag.
 *                 Upstream down, slow (revalidate_timeout), limiting, breaker open, offline: the
 *                 stored answer with a warning
 *     by digest   the store, else fetched; never revalidated
 *     404         the tag is dropped (or kept, on_gone) and the answer remembered for negative_ttl;
 *                 401/403 with a login that works: the same
 *     blobs       a link of this very repository, else HEAD there, recorded
 * Manifests are kept byte for byte. Policies (repositories, media_types, max_blob) are looked at
 * before anything is asked. Thread-safe; functions block within the upstream's time limits.
 */
#ifndef WB_UPSTREAM_MIRROR_H
#define WB_UPSTREAM_MIRROR_H

#include "config/config.h"
#include "storage/store.h"
#include "upstream/oci.h"
#include "upstream/transfer.h"
#include "upstream/upstreams.h"

struct mirror;

int mirror_new(const struct config *c, const struct config_upstream *u, struct store *s,
               struct mirror **ret, struct error *err);
/* Wakes and ends what runs; idempotent. */
void mirror_stop(struct mirror *m);
void mirror_free(struct mirror *m);
struct oci *mirror_oci(struct mirror *m);

/* As upstreams_manifest(). */
int mirror_manifest(struct mirror *m, const struct reference *r, struct manifest_answer *ret,
                    struct error *err);
/* As store_link_get(), asking the upstream for what the repository does not have here, and for the
 * size of what manifests give different ones. */
int mirror_link(struct mirror *m, const char *repository, const struct digest *d, struct link *ret,
                struct error *err);
/* The upstream's answer to a download contradicted the link's size. What the upstream says of it
 * when it is asked for nothing else: 1 and the size, 0 it has no such blob, -1; also when
 * mirror_size_refuted() has been called a short while ago. */
int mirror_ask_size(struct mirror *m, const char *repository, const struct digest *d,
                    uint64_t *ret_size, struct error *err);
/* The bytes of the size that the upstream said are not the blob, for the reason given. */
void mirror_size_refuted(struct mirror *m, const char *repository, const struct digest *d,
                         const struct error *why);
/* The link's size is this one from now on. */
int mirror_resize(struct mirror *m, const char *repository, const struct digest *d, uint64_t size,
                  struct error *err);
/* A link that is only claimed (storage/repository.h) gives no right to bytes that came from
 * elsewhere. Whether the upstream's own repository has the blob, asked unless it was just seen: 1,
 * 0 it has not, -1. */
int mirror_prove(struct mirror *m, const char *repository, const struct digest *d,
                 struct error *err);
/* Whether a transfer asks for its bytes in this very repository; once it has its answer, that is
 * the proof. */
bool mirror_feeds(struct mirror *m, const char *repository, const struct transfer *x);
void mirror_proved(struct mirror *m, const char *repository, const struct digest *d);
/* Where a transfer gets the bytes of a link with an origin of this upstream. Takes the link over on
 * success. ERR_TOO_LARGE: over max_blob; ERR_NOT_FOUND: offline. */
int mirror_source(struct mirror *m, struct link *link, const struct digest *d,
                  struct transfer_source *ret, struct error *err);
/* What the store calls a repository: clients may leave out the part that single_names puts before
 * names of one component. ERR_DENIED: policy. */
int mirror_resolve(struct mirror *m, const char *repository, char full[static REPOSITORY_MAX + 1],
                   struct error *err);
/* Brings the stored list of a subject's referrers up to date, at most once in tag_ttl; what fails
 * is no error of the caller's (warning, 300 bytes, "" = none: the stored list may be old). */
void mirror_referrers(struct mirror *m, const char *repository, const struct digest *subject,
                      char *warning, size_t size);
/* The same for tags/list: adds the upstream's tags to the ones that are here. 1 and the list, 0 no
 * such repository, -1. */
int mirror_tags(struct mirror *m, const char *repository, struct name_list *ret, char *warning,
                size_t size, struct error *err);

#endif
