/* The Hugging Face Hub, as a client (facts: its public API, huggingface_hub's sources).
 *
 * Knows revisions, file lists, small files, and where a large file's bytes can be read at a commit.
 * Everything that comes from the Hub is checked for form before it is believed: ids, commits, oids,
 * paths (no "..", no absolute path, no control character, no backslash), sizes. The token goes to
 * the configured endpoint's own origin only, never to a redirect's other host. Thread-safe.
 */
#ifndef WB_UPSTREAM_HUB_H
#define WB_UPSTREAM_HUB_H

#include <stdatomic.h>

#include "config/config.h"
#include "storage/store.h"
#include "upstream/http.h"

struct hub;

int hub_new(const struct config_upstream *config, struct hub **ret, struct error *err);
void hub_free(struct hub *h);
struct http_pool *hub_pool(struct hub *h);
const struct config_upstream *hub_config(const struct hub *h);

struct hub_revision {
    char id[REPOSITORY_MAX + 1]; /* the Hub's own spelling; renames and case resolved */
    char commit[41];
};

/* Resolves a revision (branch, tag, "refs/pr/1", 40-hex commit; NULL = the default branch) of a
 * repository to a commit. Follows the Hub's same-origin redirects (renames, case), uses the alias
 * table first. ERR_NOT_FOUND: the repository or the revision does not exist (*ret_missing, which
 * may be NULL, tells which); ERR_UNAUTHORIZED / ERR_DENIED: private or gated, the text says whether
 * a token was sent and which setting gives one. */
enum hub_missing { HUB_MISSING_NONE, HUB_MISSING_REPOSITORY, HUB_MISSING_REVISION };
int hub_resolve(struct hub *h, const char *name, const char *revision, struct hub_revision *ret,
                enum hub_missing *ret_missing, struct error *err);

struct hub_ref {
    char name[256]; /* "main", "feature/x", "refs/pr/3" */
    char commit[41];
};
/* Branches, tags and converts, then pull requests when asked for. Caller frees *ret. */
int hub_refs(struct hub *h, const char *id, bool pull_requests, struct hub_ref **ret, size_t *ret_n,
             struct error *err);

/* The complete file list at a commit, over all pages. ERR_UPSTREAM when the Hub's answer breaks a
 * rule (named). An LFS file whose oid is masked or absent is asked for by HEAD. */
int hub_files(struct hub *h, const char *id, const char *commit, struct commit_files *ret,
              struct error *err);

/* A small (git) file, whole, checked against its size and git object id. ERR_DIGEST_MISMATCH when
 * the bytes are others (both ids in the text). */
int hub_small_file(struct hub *h, const char *id, const char *commit,
                   const struct commit_file *file, struct strbuf *ret, struct error *err);

/* Where a file's bytes can be read now. Asks the Hub's resolve route without following its redirect
 * and checks, on the Hub's own answer: X-Repo-Commit == commit, X-Linked-Etag (or, unredirected,
 * the ETag) == sha256, X-Linked-Size == size. ERR_UPSTREAM names the header and both values. */
int hub_locate(struct hub *h, const char *id, const char *commit, const char *path,
               const struct digest *sha256, uint64_t size, struct http_location *ret,
               struct error *err);

/* Bytes [first, first+len) of a located file, cut off at its end, exactly (206 and a right
 * Content-Range, or a 200 of the whole file when that is what was asked for), appended to `to`.
 * Resumes and re-locates like a transfer does; *location may be empty and is kept current. A
 * network error is never mistaken for content: on failure nothing has been appended. */
int hub_read_range(struct hub *h, const char *id, const char *commit, const char *path,
                   const struct digest *sha256, uint64_t size, struct http_location *location,
                   uint64_t first, size_t len, struct strbuf *to, struct error *err);

#endif
