/* Import: turning a Hub commit into a manifest, a config blob and blob origins, without moving a
 * weight.
 *
 *     resolve the revision -> list the files at the commit -> choose them -> fetch and check the
 * small ones -> read the weight headers by Range -> write config and manifest -> one transaction
 *
 * The manifest is a pure function of (repository id, commit, selection, policy, packager version).
 * A header that breaks its format's rules goes into a note (or fails the import under the policy
 * inspection: required); a network error fails the import and is never taken for that.
 * One import runs for a (repository, reference) however many ask; the others share its result.
 * Thread-safe.
 */
#ifndef WB_UPSTREAM_IMPORT_H
#define WB_UPSTREAM_IMPORT_H

#include "storage/store.h"
#include "upstream/hub.h"

struct importer;
struct hub_mirror;

/* Both outlive it. */
int importer_new(const struct config *c, struct store *s, struct importer **ret, struct error *err);
void importer_free(struct importer *i);

struct import_result {
    struct digest manifest;
    char commit[41];
};

/* Imports `<prefix>/<name>:<tag>` (r->repository, r->as_given, r->tag) from the Hub, or finds that
 * the commit it names now was imported already; stores the tag either way. How a tag is read, first
 * match wins:
 *   1. a Hub revision of that name (a 40-hex tag is a commit);
 *   2. refs-pr-N -> refs/pr/N;
 *   3. `latest` -> the default branch;
 *   4. a GGUF quant label of the default branch's files;
 *   5. <rev>--<quant>, the label at the last "--".
 * ERR_NOT_FOUND names the nearest spelling: when a revision that is no legal tag (feature/x)
 * resembles it, the text gives that revision's commit to pull by.
 * m: the Hub's, which knows the commits of revisions that policies allow by name. */
int import_tag(struct importer *i, struct hub *h, struct hub_mirror *m, const struct reference *r,
               struct import_result *ret, struct error *err);

/* Whether what only the import can make, the config blob, is still held: 1, 0 (import the commit
 * again), -1. */
int import_is_whole(struct importer *i, const struct manifest *m, struct error *err);

/* Whether the policies of today, for the name and for the repository that it means (repo_id, with
 * the upstream's prefix), let a file be given that was imported before: ERR_DENIED. */
int policy_check_given(const struct config *c, const char *repository, const char *prefix,
                       const char *repo_id, const char *path, uint64_t size, struct error *err);
/* The same of all the files of an imported manifest. */
int import_may_give(const struct config *c, const struct config_upstream *u, const char *repository,
                    const struct manifest *m, struct error *err);

/* Looks for a manifest by digest by importing the current branches and tags (at most the upstream's
 * search_limit commits; whole repository and each quant), newest knowledge wins. Coalesced, and a
 * failure is remembered for negative_ttl_s. ERR_NOT_FOUND lists the commits that were tried and
 * says that pulling :<commit> first makes it available. */
int import_search(struct importer *i, struct hub *h, const struct reference *r, struct error *err);

#endif
