/* The rows: a narrow seam, so that a later backend can keep them elsewhere. Whole operations only,
 * each atomic and durable on return unless its comment says otherwise; no transaction, cursor or
 * LMDB type is visible. Writes are queued to one thread that commits many at once; each caller
 * waits for the result of its own. Reads never wait for writes. Thread-safe.
 *
 * Look-ups return 1 found, 0 absent, -1 failed. Results are copies.
 */
#ifndef WB_STORAGE_META_H
#define WB_STORAGE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "storage/hub.h"
#include "storage/rows.h"
#include "storage/store.h"

struct meta;

/* dir exists. Only one process, and once in it: the caller holds the data directory's lock. */
int meta_open(const char *dir, unsigned max_readers, struct meta **ret, struct error *err);
/* Writes what is queued, then lets go. NULL is fine. */
void meta_close(struct meta *m);

/* ---- blobs and what is on its way in ---- */

int meta_blob_get(struct meta *m, const struct digest *d, uint64_t *ret_size, struct error *err);
/* The blob is held from now on, and the incoming row it came from (may be NULL) is done. */
int meta_blob_commit(struct meta *m, const struct digest *d, uint64_t size,
                     const struct incoming_row *from, struct error *err);
/* The blob's file is not what the row says. settle() runs on the writing thread, where no commit of
 * the same blob can pass it: 1 = it is so, drop the row; 0 = all is well by now; -1. */
int meta_blob_forget(struct meta *m, const struct digest *d,
                     int (*settle)(void *ctx, uint64_t size, struct error *err), void *ctx,
                     struct error *err);

int meta_incoming_transfer(struct meta *m, const struct digest *d, struct incoming_row *ret,
                           struct error *err);
int meta_incoming_put(struct meta *m, const struct incoming_row *row, struct error *err);
/* The same in two halves, between which the caller can sync the file. NULL: out of memory; else
 * meta_incoming_put_wait() has to follow. */
struct meta_put;
struct meta_put *meta_incoming_put_start(struct meta *m, const struct incoming_row *row,
                                         struct error *err);
int meta_incoming_put_wait(struct meta *m, struct meta_put *put, struct error *err);
int meta_incoming_delete(struct meta *m, const struct incoming_row *row, struct error *err);
/* The blob of an upload is held from now on and the row's repository has its link; the row is done.
 * row has digest and size. */
int meta_upload_publish(struct meta *m, const struct incoming_row *row, struct error *err);
/* The same without new bytes: 1 when the blob is held with the row's size, 0 when it is not
 * (nothing was changed), -1. */
int meta_upload_link(struct meta *m, const struct incoming_row *row, struct error *err);
/* Moves the synced extent of the row soon; lost when the process dies first, or when the row is
 * another one by then. */
void meta_incoming_synced_later(struct meta *m, const struct incoming_row *row);

struct incoming_list {
    struct incoming_row *rows;
    size_t n;
};
/* Damaged rows are left out (meta_settle drops them). */
int meta_incoming_list(struct meta *m, struct incoming_list *ret, struct error *err);
void incoming_list_done(struct incoming_list *l);

/* What opening decided about one incoming row. */
enum settle_action { SETTLE_KEEP, SETTLE_UPDATE, SETTLE_DROP, SETTLE_PUBLISH };
struct settlement {
    struct incoming_row row;
    enum settle_action action;
};
/* Carries them all out in one transaction, and drops incoming rows that are damaged. */
int meta_settle(struct meta *m, const struct settlement *s, size_t n, struct error *err);

/* ---- repositories ---- */

/* `held` is what the blob's row says. */
int meta_link_get(struct meta *m, const char *repository, const struct digest *d, struct link *ret,
                  struct error *err);
int meta_manifest_get(struct meta *m, const char *repository, const struct digest *d,
                      struct manifest *ret, struct error *err);
int meta_tag_get(struct meta *m, const char *repository, const char *tag, struct tag *ret,
                 struct error *err);
int meta_repository_get(struct meta *m, const char *repository, struct repository_row *ret,
                        struct error *err);
int meta_tags(struct meta *m, const char *repository, const char *last, size_t limit,
              struct name_list *ret, struct error *err);
int meta_repositories(struct meta *m, const char *last, size_t limit, struct name_list *ret,
                      struct error *err);
int meta_commit_files_get(struct meta *m, const char *upstream, const char *repo_id,
                          const char *commit, struct commit_files *ret, struct error *err);

int meta_commit_import(struct meta *m, const struct import_record *r, struct error *err);
int meta_tag_put(struct meta *m, const char *repository, const char *tag,
                 const struct digest *manifest, const char *commit, struct error *err);
/* A claimed link is the repository's own from now on. Soon, not durable on return. */
void meta_link_proved_later(struct meta *m, const char *repository, const struct digest *d);
int meta_link_resize(struct meta *m, const char *repository, const struct digest *d, uint64_t size,
                     struct error *err);
/* Soon, not durable on return. */
void meta_tag_confirm_later(struct meta *m, const char *repository, const char *tag);
int meta_remove_tag(struct meta *m, const char *repository, const char *tag,
                    const struct tag_guard *guard, const char *source, struct error *err);
int meta_repository_vacate(struct meta *m, const char *repository, const char *source,
                           struct error *err);
int meta_remove_manifest(struct meta *m, const char *repository, const struct digest *d,
                         const struct tag_guard *guard, const char *source, struct error *err);

/* ---- pushes: as in storage/push.h, with names and digests that were checked ---- */

int meta_manifest_push(struct meta *m, const struct push_record *r, struct digest_list *ret_missing,
                       struct error *err);
int meta_blob_unlink(struct meta *m, const char *repository, const struct digest *d,
                     const struct tag_guard *guard, struct error *err);
int meta_blob_mount(struct meta *m, const char *repository, const struct digest *d,
                    const char *from, struct error *err);
int meta_blob_repositories(struct meta *m, const struct digest *d, const char *last, size_t limit,
                           struct name_list *ret, struct error *err);
int meta_referrers(struct meta *m, const char *repository, const struct digest *subject,
                   const char *artifact_type, const struct digest *last, size_t limit,
                   size_t max_bytes, struct referrer_list *ret, struct error *err);
int meta_link_record(struct meta *m, const char *repository, const struct digest *d, uint64_t size,
                     const struct origin *origin, struct error *err);
int meta_referrers_replace(struct meta *m, const char *repository, const struct digest *subject,
                           const struct referrer *items, size_t n, struct error *err);
int meta_tag_history(struct meta *m, const char *repository, const char *tag, size_t limit,
                     struct tag_history *ret, struct error *err);

/* ---- the Hub's own API: as in storage/hub.h, with names that were checked ---- */

int meta_hub_name_get(struct meta *m, const char *upstream, const char *name, struct hub_name *ret,
                      struct error *err);
int meta_hub_pin_get(struct meta *m, const char *upstream, const char *id, const char *revision,
                     struct hub_pin *ret, struct error *err);
int meta_hub_pin_put(struct meta *m, const char *upstream, const char *name, const char *id,
                     const char *revision, const char *commit, struct error *err);
int meta_hub_pin_drop(struct meta *m, const char *upstream, const char *id, const char *revision,
                      struct error *err);
int meta_hub_repository_drop(struct meta *m, const char *upstream, const char *id,
                             struct error *err);
int meta_hub_document_get(struct meta *m, const char *upstream, const char *id, const char *commit,
                          const char *what, struct strbuf *to, uint64_t *ret_checked_at,
                          struct error *err);
int meta_hub_document_put(struct meta *m, const char *upstream, const char *id, const char *commit,
                          const char *what, const void *data, size_t len, struct error *err);
int meta_hub_files_put(struct meta *m, const char *upstream, const char *id, const char *commit,
                       const struct commit_file *files, size_t n, struct error *err);
int meta_hub_object_get(struct meta *m, const char *upstream, const char *id, const char *git_oid,
                        struct digest *ret, struct error *err);
int meta_hub_object_put(struct meta *m, const char *upstream, const char *id, const char *git_oid,
                        const struct digest *d, struct error *err);
int meta_hub_keep(struct meta *m, const char *upstream, const char *id, const char *commit,
                  const struct digest *d, struct error *err);
int meta_hub_forget(struct meta *m, const char *upstream, const char *id, const char *commit,
                    struct error *err);
struct hub_commit {
    char upstream[REPOSITORY_MAX + 1], id[REPOSITORY_MAX + 1];
};
/* One that is called so in the registry API: the prefix and the id, in lower case. */
int meta_hub_find(struct meta *m, const char *repository, const char *commit,
                  struct hub_commit *ret, struct error *err);

/* ---- mismatches ---- */

/* One row for everybody, or one for each repository, in one transaction. */
int meta_mismatch_put(struct meta *m, const struct digest *d, const struct lent *to, uint64_t until,
                      struct error *err);
/* repository: NULL = the row that is for everybody. */
int meta_mismatch_get(struct meta *m, const struct digest *d, const struct name_id *repository,
                      uint64_t *ret_until, struct error *err);
/* Drops the row soon when it has run out. */
void meta_mismatch_expire_later(struct meta *m, const struct digest *d,
                                const struct name_id *repository);

/* ---- counting and collecting ---- */

/* See store_has_failed(). */
bool meta_has_failed(struct meta *m, struct error *err);
/* Fills in blobs, blob_bytes, repositories, manifests, tags. */
int meta_stats(struct meta *m, struct store_stats *ret, struct error *err);

struct dead_blob {
    struct digest digest;
    uint64_t size; /* 0 when its row is damaged */
};
/* Drops holds that were made at cutoff_s or before, with the links that they were for. */
int meta_holds_expire(struct meta *m, uint64_t cutoff_s, struct error *err);
struct dead_blobs {
    struct dead_blob *blobs; /* room for `limit` of them, the caller's */
    size_t limit, n;
    uint64_t held;      /* others that only younger holds keep */
    struct digest next; /* where to go on */
};
/* Blobs behind `after` (NULL = from the start) that no manifest and no commit of a Hub needs and no
 * hold that was made after cutoff_s keeps, looking at a bounded number of rows. Returns 1 when
 * there may be more, 0 at the end, -1. */
int meta_dead_blobs(struct meta *m, const struct digest *after, uint64_t cutoff_s,
                    struct dead_blobs *d, struct error *err);
/* Drops their rows and leaves removal rows: a crash before the files are gone is settled later. */
int meta_blobs_doom(struct meta *m, const struct dead_blob *blobs, size_t n, struct error *err);
/* Their files are gone. */
int meta_blobs_gone(struct meta *m, const struct dead_blob *blobs, size_t n, struct error *err);
/* Whether a manifest or a commit of a Hub needs it, or a hold that was made after cutoff_s: 1, 0,
 * -1. */
int meta_is_needed(struct meta *m, const struct digest *d, uint64_t cutoff_s, struct error *err);
/* Drops file lists of commits that nothing refers to and the Hub's API did not serve, mismatches
 * that ran out, histories of tags that have been gone for long, what upstreams said are referrers
 * of subjects that are not here, and counts the bytes of all blobs again. */
int meta_tidy(struct meta *m, struct error *err);

#endif
