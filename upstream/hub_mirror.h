/* Repositories of a Hub, as the Hub's own API has them: what of the store is still true, and what
 * has to be asked.
 *
 *   - A revision is one commit for tag_ttl, whatever it is asked for (info, tree, refs, a file).
 *     Then one request finds out anew, however many clients wait. Hub down, slow
 *     (revalidate_timeout), limiting or offline: the stored commit, with a warning.
 *   - A 40-hex commit that is known is never asked about again: its file list, info and first page
 *     of history are stored once.
 *   - A file's size and entity tag come from the stored list; without one from one HEAD, which
 *     tells the commit of the revision too. What is not there is remembered for the commit.
 *   - Its bytes, of an LFS file, are the blob of its sha256 (one copy, also for OCI pulls), held or
 *     from the one running transfer. A small (git) file's are checked against its git object id
 *     and kept under their sha256.
 *   - "There is no such repository" or revision is remembered for negative_ttl.
 *
 * Policies (config's policies[]) and, with `credentials: forward`, what the thread's caller
 * (upstream/caller.h) may read are looked at before anything is told or asked. N equal questions
 * are one request. RateLimit headers of the Hub are obeyed: what is held is not asked again while
 * few requests are left, and nothing is asked when none is. Thread-safe; functions block within the
 * upstream's time limits. err must not be NULL.
 */
#ifndef WB_UPSTREAM_HUB_MIRROR_H
#define WB_UPSTREAM_HUB_MIRROR_H

#include "config/config.h"
#include "storage/hub.h"
#include "storage/store.h"
#include "upstream/hub.h"
#include "upstream/upstreams.h"

struct hub_mirror;

int hub_mirror_new(const struct config *c, const struct config_upstream *u, struct store *s,
                   struct hub *h, struct hub_mirror **ret, struct error *err);
void hub_mirror_stop(struct hub_mirror *m);
void hub_mirror_free(struct hub_mirror *m);
/* The store has forgotten the commit (store_hub_remove()): what is in memory of it goes, too. */
void hub_mirror_forget(struct hub_mirror *m, const char *commit);

/* What a client asks about. */
struct hub_query {
    enum hub_kind kind;
    /* As the client spelled it, without the kind: "org/name", "gpt2". */
    char name[REPOSITORY_MAX + 1];
    char revision[HUB_REVISION_MAX + 1]; /* decoded; "" and "HEAD" = the default branch */
};

/* Why there is no answer, in the Hub's own terms (its X-Error-Code). */
enum hub_refused {
    HUB_REFUSED_NOT,        /* the struct error says all there is */
    HUB_REFUSED_REPOSITORY, /* RepoNotFound */
    HUB_REFUSED_GATED,      /* GatedRepo */
    HUB_REFUSED_REVISION,   /* RevisionNotFound */
    HUB_REFUSED_ENTRY,      /* EntryNotFound: commit says of which commit */
    HUB_REFUSED_TOKEN,      /* the caller's token is none that the Hub knows */
    HUB_REFUSED_POLICY,     /* our own rules; the text names them */
};

/* Beside every answer. Filled in on failure as far as it is known. */
struct hub_at {
    char id[REPOSITORY_MAX + 1];    /* the Hub's own spelling, without the kind */
    char commit[41];                /* "" = not known */
    char warning[WARNING_TEXT_MAX]; /* not empty: it is old, and why */
    bool asked;                     /* the Hub was asked (a miss), for the log's cache= field */
    enum hub_refused refused;
};

/* The repository's name for access rules and logs: "hf/org/name", "hf/datasets/org/name", lower
 * case. False: it does not fit or is no Hub name at all. */
bool hub_mirror_repository(const struct hub_mirror *m, const struct hub_query *q,
                           char ret[static REPOSITORY_MAX + 1]);

/* Which commit the revision is. */
int hub_mirror_revision(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                        struct error *err);

/* A text that all who are sent it at the same time may share: not to be changed. */
struct hub_text;
const char *hub_text_bytes(const struct hub_text *t, size_t *ret_len); /* with a NUL behind it */
void hub_text_unref(struct hub_text *t);                               /* NULL is fine */
static inline void hub_text_unref_p(struct hub_text **t)
{
    hub_text_unref(*t);
}
#define _cleanup_hub_text_ _cleanup_(hub_text_unref_p)
/* The Hub's info object at the revision (JSON), without what leads to Xet, `sha` the
 * commit of `at`, `siblings` without files that a policy hides. Without a revision, where policies
 * do not allow the default branch: without `sha`, `siblings` and a commit in `at`. */
int hub_mirror_info(struct hub_mirror *m, const struct hub_query *q, struct hub_text **ret,
                    struct hub_at *at, struct error *err);

struct hub_folder {
    const char *path;
    char git_oid[41];
};
/* Shared by all who ask for it: not to be changed. */
struct hub_listing {
    struct commit_files list;   /* every file, sorted by path, but those that a policy hides */
    struct hub_folder *folders; /* sorted by path */
    size_t n_folders;
    struct hub_rows *rows; /* owns the above */
};
void hub_listing_done(struct hub_listing *l);
/* The complete list at the revision's commit. */
int hub_mirror_list(struct hub_mirror *m, const struct hub_query *q, struct hub_listing *ret,
                    struct hub_at *at, struct error *err);
/* Tree rows as the Hub gives them with expand=true (a JSON array, all pages, appended), without
 * what leads to Xet. folder "" = the root. Stored for the commit. ERR_NOT_FOUND/ENTRY. */
int hub_mirror_expanded(struct hub_mirror *m, const struct hub_query *q, const char *folder,
                        bool recursive, struct strbuf *to, struct hub_at *at, struct error *err);
/* A file or folder as one of those rows, in an array that is being written. Pure. */
void hub_json_put_file(struct strbuf *to, const struct commit_file *f);
void hub_json_put_folder(struct strbuf *to, const struct hub_folder *f);
/* The refs object (JSON, appended); a branch or tag whose revision has a commit for now names that
 * one. */
int hub_mirror_refs(struct hub_mirror *m, const struct hub_query *q, bool pull_requests,
                    struct strbuf *to, struct hub_at *at, struct error *err);
/* The first page of the commit's history (a JSON array, appended); *ret_total: of X-Total-Count, 0
 * = not told. */
int hub_mirror_commits(struct hub_mirror *m, const struct hub_query *q, struct strbuf *to,
                       uint64_t *ret_total, struct hub_at *at, struct error *err);

struct hub_file {
    uint64_t size;
    char etag[65]; /* hex: the sha256 of an LFS file, else its git object id */
    bool has_lfs;
    struct digest sha256; /* DIGEST_NONE: a git file whose bytes were never here */
};
/* A file without its bytes: what HEAD says. */
int hub_mirror_file(struct hub_mirror *m, const struct hub_query *q, const char *path,
                    struct hub_file *ret, struct hub_at *at, struct error *err);
/* The pointer file that git itself has of an LFS file (what /raw gives), or nothing for a git file.
 * buf: 200 bytes; returns its length. Pure. */
size_t hub_pointer_text(const struct hub_file *f, char *buf, size_t size);
/* Opens the file of `at` (as hub_mirror_file() filled it in) for one client who will read
 * [first, end); see reader_open(). */
int hub_mirror_open(struct upstreams *u, struct hub_mirror *m, const struct hub_query *q,
                    const char *path, const struct hub_file *f, const struct hub_at *at,
                    uint64_t first, uint64_t end, struct reader **ret, struct error *err);

/* Whether the repository's files may be read: the Hub's auth-check, of the caller with
 * `credentials: forward`, else of our own token. */
int hub_mirror_check(struct hub_mirror *m, const struct hub_query *q, struct hub_at *at,
                     struct error *err);
/* Who the caller's token is (JSON, appended). With our own credentials only the token that this
 * server was given for the upstream is known. ERR_UNAUTHORIZED. */
int hub_mirror_whoami(struct hub_mirror *m, struct strbuf *to, struct error *err);

/* ---- for OCI names under a Hub's prefix (upstreams.c, reader.c, import) ---- */

/* Policies and the caller's rights for an OCI name "hf/org/name"; revision NULL: a digest, or a
 * blob (its repository's rules only). The name is that of a model. */
int hub_mirror_may_pull(struct hub_mirror *m, const char *repository, const char *revision,
                        struct error *err);

#endif
