/* The Hugging Face Hub, as a client (facts: its public API, huggingface_hub's sources).
 *
 * Knows revisions, file lists, small files, and where a large file's bytes can be read at a commit.
 * Everything that comes from the Hub is checked for form before it is believed: ids, commits, oids,
 * paths (no "..", no absolute path, no control character, no backslash), sizes. The token goes to
 * the configured endpoint's own origin only, never to a redirect's other host. Thread-safe.
 *
 * An id is the Hub's own spelling with its kind: "org/name" or "name" is a model,
 * "datasets/org/name" a dataset, "spaces/org/name" a space. hub_resolve() takes models only.
 */
#ifndef WB_UPSTREAM_HUB_H
#define WB_UPSTREAM_HUB_H

#include <stdatomic.h>

#include "config/config.h"
#include "storage/store.h"
#include "upstream/http.h"

#define HUB_PATH_MAX 4096u             /* bytes of a file's path, without the NUL */
#define HUB_SMALL_FILE_MAX (64u << 20) /* bytes of one that is not kept in LFS */

struct hub;

enum hub_kind { HUB_MODEL, HUB_DATASET, HUB_SPACE };

int hub_new(const struct config_upstream *config, struct hub **ret, struct error *err);
void hub_free(struct hub *h);
struct http_pool *hub_pool(struct hub *h);
const struct config_upstream *hub_config(const struct hub *h);

/* The same Hub, asked on behalf of somebody, or for a limited time. It borrows h and token, is
 * freed with hub_free(), and is good wherever a hub is. NULL when out of memory. */
struct hub_asking {
    bool has_token; /* token is sent instead of our own; NULL = none is sent */
    const char *token;
    /* Monotonic: a request that has not ended by then is ERR_TIMEOUT; 0 = none. */
    uint64_t deadline_ms;
    /* Monotonic: likewise one that has no connection by then; 0, or past: connect_timeout alone. */
    uint64_t connect_by_ms;
    /* For something that is held: not while few requests are left (RateLimit), then
     * ERR_RATE_LIMITED. */
    bool spare;
};
struct hub *hub_as(struct hub *h, const struct hub_asking *how);
/* Our own token for a repository (upstreams[].token_files, else upstreams[].token); NULL = none. */
const char *hub_token_of(const struct hub *h, const char *id);
struct breaker_stats;
void hub_breaker_stats(struct hub *h, struct breaker_stats *ret);

#define HUB_IDENTITY_MAX 24u
struct hub_revision {
    char id[REPOSITORY_MAX + 1]; /* the Hub's own spelling; renames and case resolved */
    char commit[41];
    /* 24 hex digits that no other repository has, whichever gets the name; "" = not told */
    char identity[HUB_IDENTITY_MAX + 1];
};

/* Resolves a revision (branch, tag, "refs/pr/1", 40-hex commit; NULL = the default branch) of a
 * repository to a commit. Follows the Hub's same-origin redirects (renames, case), uses the alias
 * table first. ERR_NOT_FOUND: the repository or the revision does not exist (*ret_missing, which
 * may be NULL, tells which); ERR_UNAUTHORIZED / ERR_DENIED: private or gated, the text says whether
 * a token was sent and which setting gives one. */
enum hub_missing {
    HUB_MISSING_NONE,
    HUB_MISSING_REPOSITORY,
    HUB_MISSING_REVISION,
    HUB_MISSING_ENTRY, /* of a file: the commit that was looked at is known */
    HUB_MISSING_GATED, /* it is there, and the token (or the lack of one) does not open it */
    HUB_MISSING_TOKEN, /* the token is none that the Hub knows */
};
int hub_resolve(struct hub *h, const char *name, const char *revision, struct hub_revision *ret,
                enum hub_missing *ret_missing, struct error *err);

/* hub_resolve() of an id of any kind that also hands over the info object as it came. missing may
 * be HUB_MISSING_GATED or HUB_MISSING_TOKEN too. */
int hub_info(struct hub *h, const char *id, const char *revision, struct strbuf *json,
             struct hub_revision *ret, enum hub_missing *ret_missing, struct error *err);

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

/* The same with the folders: "path" NUL "git oid" NUL of each, appended. */
int hub_files_and_folders(struct hub *h, const char *id, const char *commit,
                          struct commit_files *ret, struct strbuf *folders, struct error *err);

/* What a HEAD of the resolve route says of a file at a revision, in one request for an LFS file and
 * two for another one. ERR_NOT_FOUND with HUB_MISSING_ENTRY: ret has the id and the commit, which
 * is "" when the Hub did not say of which one it speaks: then it is true for this moment alone. */
struct hub_head {
    char id[REPOSITORY_MAX + 1]; /* the Hub's own spelling, with its kind */
    char commit[41];
    uint64_t size;
    bool has_lfs;
    struct digest sha256; /* has_lfs */
    char git_oid[41];     /* else */
};
int hub_head_file(struct hub *h, const char *id, const char *revision, const char *path,
                  struct hub_head *ret, enum hub_missing *ret_missing, struct error *err);

/* GET of {url}/api/{models|datasets|spaces}/{id}{suffix}: a JSON text, appended. pages: follows
 * Link rel=next over all pages of an array, which are joined to one. suffix begins with '/' or is
 * empty, and is already escaped. *ret_total (may be NULL): X-Total-Count, 0 without one. */
int hub_document(struct hub *h, const char *id, const char *suffix, bool pages, struct strbuf *json,
                 uint64_t *ret_total, enum hub_missing *ret_missing, struct error *err);
/* Whether the token opens the repository's files (its auth-check route). */
int hub_check(struct hub *h, const char *id, enum hub_missing *ret_missing, struct error *err);
/* /api/whoami-v2 with the token of `h`. */
int hub_whoami(struct hub *h, struct strbuf *json, enum hub_missing *ret_missing,
               struct error *err);

/* A small (git) file as it comes: on_data gets pieces; nothing is checked here but the commit and
 * the length. */
int hub_small_stream(struct hub *h, const char *id, const char *commit,
                     const struct commit_file *file,
                     int (*on_data)(void *ctx, const void *data, size_t len, struct error *err),
                     void *ctx, struct error *err);

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
