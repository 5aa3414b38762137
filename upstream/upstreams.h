/* What a request handler asks: the configured upstreams, with the store behind them.
 *
 * Names under an upstream's prefix are answered from the store where it is fresh, from the upstream
 * where it is not, and stale from the store (with a warning) when the upstream cannot be reached.
 * Other names are local: the store alone. Thread-safe; functions may block for as long as the
 * upstream's time limits allow.
 */
#ifndef WB_UPSTREAM_UPSTREAMS_H
#define WB_UPSTREAM_UPSTREAMS_H

#include <stdatomic.h>

#include "config/config.h"
#include "storage/store.h"
#include "upstream/breaker.h"
#include "upstream/small.h"
#include "upstream/transfer.h"

struct upstreams;

/* config and store outlive it. No upstream is contacted: starting works while all are down. */
int upstreams_new(const struct config *c, struct store *s, struct upstreams **ret,
                  struct error *err);
/* Wakes and ends everything that runs (ERR_CANCELLED), keeps partial downloads. Idempotent. */
void upstreams_stop(struct upstreams *u);
void upstreams_free(struct upstreams *u);

/* Whether a repository may be pulled from: always, but for a Hub's, of which the policies are
 * looked at and, with `credentials: forward`, the rights of this thread's caller
 * (upstream/caller.h). tag: "" = the repository as such, or a digest. Asked before anything is told
 * of what is held; the functions below do not ask. The errors of hub_access_check(), ERR_DENIED. */
int upstreams_may_pull(struct upstreams *u, const char *repository, const char *tag,
                       struct error *err);
/* Whether the caller's token decides about this repository. */
bool upstreams_is_forward(struct upstreams *u, const char *repository);

#define WARNING_TEXT_MAX 500

struct manifest_answer {
    struct manifest manifest;
    char commit[41];                /* empty when it is not from the Hub or asked for by digest */
    char warning[WARNING_TEXT_MAX]; /* not empty: served stale, and why; for a `Warning: 299 -
                                       "..."` header */
    bool imported;                  /* an upstream was asked (a miss), for the log's cache= field */
};
void manifest_answer_done(struct manifest_answer *a);
/* ERR_NOT_FOUND and the errors of import.h. A tag within its TTL and every digest that is held cost
 * no upstream request. */
int upstreams_manifest(struct upstreams *u, const struct reference *r, struct manifest_answer *ret,
                       struct error *err);

/* ---- lists: those of the store, for a mirrored registry with what the upstream says ---- */

/* What the store calls a repository: of a mirrored registry, clients may leave out the part that
 * its single_names puts before names of one component. ERR_DENIED: policy. */
int upstreams_repository(struct upstreams *u, const char *repository,
                         char full[static REPOSITORY_MAX + 1], struct error *err);

struct referrers_query {
    const char *artifact_type; /* NULL = any */
    const struct digest *last; /* NULL = from the start */
    size_t limit, max_bytes;
};
/* As store_referrers(). A warning that is not empty says why some of the upstream's may be missing.
 */
int upstreams_referrers(struct upstreams *u, const char *repository, const struct digest *subject,
                        const struct referrers_query *q, struct referrer_list *ret,
                        char warning[static WARNING_TEXT_MAX], struct error *err);
/* As store_tags(). */
int upstreams_tags(struct upstreams *u, const char *repository, const char *last, size_t limit,
                   struct name_list *ret, char warning[static WARNING_TEXT_MAX], struct error *err);

/* One client being sent a blob: from a file that is held, or from a running transfer. */
struct reader;
enum reader_kind { READER_HIT, READER_FILL, READER_JOIN }; /* held; started or joined a transfer */

/* Opens a blob of a repository for one client, who will read [first, end) (a range that does not
 * begin at 0 is refused with ERR_DIGEST_MISMATCH while the digest is under suspicion, see
 * transfer.h). For a cold blob it returns when the upstream has answered for the right object,
 * so that a failure is still a status. The size may turn out to be another one than reader_stat()
 * said; reader_stat() says the same then. ERR_NOT_FOUND: no link in that repository. */
int reader_open(struct upstreams *u, const char *repository, const struct digest *d, uint64_t first,
                uint64_t end, struct reader **ret, struct error *err);
/* All of it, for nobody in particular: ERR_CANCELLED within a second or two of *halt. */
int reader_open_until(struct upstreams *u, const char *repository, const struct digest *d,
                      const atomic_bool *halt, struct reader **ret, struct error *err);
/* Size and presence without opening: 1 found, 0 no link, -1 (ERR_NOT_FOUND: a link, but its bytes
 * are gone and have no origin). */
int reader_stat(struct upstreams *u, const char *repository, const struct digest *d,
                uint64_t *ret_size, struct error *err);
/* ERR_NOT_FOUND of a repository without such a link: why that may be, and what to do. -1 */
int reader_no_blob(struct upstreams *u, const char *repository, const struct digest *d,
                   struct error *err);
/* A file of a Hub's commit that no link need say: bytes of this digest and size, which are had from
 * `origin` (as in struct link) when they are not held. token: the caller's own, for a Hub with
 * `credentials: forward`, else NULL. Otherwise as reader_open(). */
int reader_open_file(struct upstreams *u, const char *repository, const struct digest *d,
                     uint64_t size, const struct origin *origin, const char *token, uint64_t first,
                     uint64_t end, struct reader **ret, struct error *err);
/* A git file of a Hub's commit whose sha256 is not known: fetched through one running fetch, handed
 * out while it comes, but for its end, which waits until the bytes were checked against its git
 * object id; then it is kept (storage/hub.h). */
int reader_open_small(struct upstreams *u, const char *repository, const struct origin *origin,
                      const struct commit_file *file, const char *token, struct reader **ret,
                      struct error *err);
/* What its client will read, when that was not said at the start: of a small file, which may turn
 * out to be a held one. ERR_DIGEST_MISMATCH as reader_open(). */
int reader_aim(struct reader *r, uint64_t first, uint64_t end, struct error *err);
uint64_t reader_size(const struct reader *r);
enum reader_kind reader_kind(const struct reader *r);
int reader_fd(const struct reader *r); /* of a held blob, for sendfile (dup it); -1 otherwise */
/* Up to len bytes at offset. Blocks until there are some or wait_ms passed (then returns 0 and
 * *ret_waiting = true); 0 with *ret_waiting = false is the end of the blob. -1: cut the connection,
 * the error says why. */
ssize_t reader_read(struct reader *r, uint64_t offset, void *buf, size_t len, unsigned wait_ms,
                    bool *ret_waiting, struct error *err);
/* How far the blob is, for who wants it to be held and reads nothing: sleeps until more than `seen`
 * bytes from its beginning could be read, or wait_ms passed. 1 with *ret_have (the size: it is held
 * now), 0, or -1, also when it is only passed through. */
int reader_wait(struct reader *r, uint64_t seen, unsigned wait_ms, uint64_t *ret_have,
                struct error *err);
void reader_close(struct reader *r); /* NULL is fine */

struct upstream_stats {
    const char *prefix;
    uint64_t bytes, requests, errors;
    struct breaker_stats breaker;
};
/* The mirror of a Hub: of the upstream with that prefix, or of the first Hub there is (NULL). NULL:
 * none. */
struct hub_mirror;
struct hub_mirror *upstreams_hub_mirror(struct upstreams *u, const char *prefix);

size_t upstreams_count(const struct upstreams *u);
void upstreams_stats(struct upstreams *u, size_t i, struct upstream_stats *ret);
/* Requests that run, to all of them. */
unsigned upstreams_connections(struct upstreams *u);
void upstreams_transfer_stats(struct upstreams *u, struct transfer_stats *ret);
/* See transfers_on_end(). Set before the first request. */
void upstreams_on_transfer_end(struct upstreams *u, transfer_ended_fn fn, void *ctx);
/* See smalls_on_end(). Likewise. */
void upstreams_on_small_end(struct upstreams *u, small_ended_fn fn, void *ctx);

#endif
