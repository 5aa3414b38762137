/* What the store keeps for the Hub's own API (upstream/hub_mirror.h): which id a name means, which
 * commit a revision meant when, what the Hub said of a repository or a commit, and which bytes its
 * small files have. Part of storage/store.h, which has the rules.
 *
 * `id` is the Hub's own spelling with its kind: "org/name" or "name" of a model,
 * "datasets/org/name", "spaces/org/name". A `name` is the same as a client spelled it. Writes are
 * durable on return unless said otherwise. Look-ups return 1 found, 0 absent, -1. Thread-safe.
 */
#ifndef WB_STORAGE_HUB_H
#define WB_STORAGE_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/ref.h"
#include "base/strbuf.h"
#include "storage/repository.h"

struct store;

#define HUB_REVISION_MAX 255 /* bytes of a branch, tag or other ref, without the NUL */

/* What a name means, and since when (wall clock seconds) that is known. */
struct hub_name {
    char id[REPOSITORY_MAX + 1];
    uint64_t checked_at;
};
int store_hub_name_get(struct store *s, const char *upstream, const char *name,
                       struct hub_name *ret, struct error *err);

/* The commit that a revision of a repository meant when the Hub was last asked. */
struct hub_pin {
    char commit[41];
    uint64_t checked_at;
};
int store_hub_pin_get(struct store *s, const char *upstream, const char *id, const char *revision,
                      struct hub_pin *ret, struct error *err);
/* The Hub said so just now; in one transaction. name NULL: only the revision was asked about. */
int store_hub_pin_put(struct store *s, const char *upstream, const char *name, const char *id,
                      const char *revision, const char *commit, struct error *err);
/* The Hub says that there is no such revision (any more), or, with revision NULL, no such
 * repository under this name: what was known of it is forgotten. */
int store_hub_pin_drop(struct store *s, const char *upstream, const char *id, const char *revision,
                       struct error *err);

/* What the Hub said, as bytes that only the caller understands. commit "" = of the repository as
 * such. `what` names the document ("info", "refs", "file:config.json"), 4,500 bytes at most. to
 * NULL: only whether it is there, and since when, which costs no copy. */
int store_hub_document_get(struct store *s, const char *upstream, const char *id,
                           const char *commit, const char *what, struct strbuf *to,
                           uint64_t *ret_checked_at, struct error *err);
int store_hub_document_put(struct store *s, const char *upstream, const char *id,
                           const char *commit, const char *what, const void *data, size_t len,
                           struct error *err);

/* The complete file list of a commit that no import has stored yet; read with
 * store_commit_files_get(). What is stored already stays: it may know more. */
int store_hub_files_put(struct store *s, const char *upstream, const char *id, const char *commit,
                        const struct commit_file *files, size_t n, struct error *err);

/* The sha256 of a git object of this repository whose bytes were fetched and checked. A
 * repository's objects are its own: git's ids can be made to collide. */
int store_hub_object_get(struct store *s, const char *upstream, const char *id, const char *git_oid,
                         struct digest *ret, struct error *err);
int store_hub_object_put(struct store *s, const char *upstream, const char *id, const char *git_oid,
                         const struct digest *d, struct error *err);

/* The blob is, or is about to be, served as a file of this commit: a collection keeps it, and the
 * commit's list, until the commit is forgotten. Cheap when it is known already. */
int store_hub_keep(struct store *s, const char *upstream, const char *id, const char *commit,
                   const struct digest *d, struct error *err);

/* What an operator removes: as store_remove() with nothing immutable. Where the tag is a commit,
 * all that was stored of it for the Hub's API goes too, with the revisions that mean it; the git
 * objects with the repository's last commit. A file list that an import's manifest or tag needs
 * stays until a collection finds it without them. ERR_NOT_FOUND: there is neither. */
int store_hub_remove(struct store *s, const struct reference *r, const char *source,
                     struct error *err);

#endif
