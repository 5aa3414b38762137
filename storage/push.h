/* What clients write: manifests with their tags, and links without a manifest yet. Also what hangs
 * on them: referrers, and the history of tags. Part of storage/store.h, which has the rules.
 *
 * A blob that was pushed or mounted is held for its repository by a row with the time ("hold"). The
 * first manifest that needs it takes the hold's place; when a pushed manifest goes, its blobs are
 * held again, so that a push that is under way and has seen or sent one does not lose it. The
 * collector drops holds of a certain age.
 */
#ifndef WB_STORAGE_PUSH_H
#define WB_STORAGE_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/ref.h"

struct store;
struct name_list;
struct origin;

/* Which tags must not be moved or removed once they are there. Called on any thread, the writing
 * one too: a pure function over constant data that does not block. */
struct tag_guard {
    bool (*is_immutable)(void *ctx, const char *repository, const char *tag);
    void *ctx;
};

enum need_kind {
    NEED_BLOB,     /* must be here */
    NEED_OPTIONAL, /* a layer that need not be distributed: counts when it is here */
    NEED_CHILD,    /* of an index: a manifest of the repository (or a blob of it) */
};

struct push_need {
    enum need_kind kind;
    struct digest digest;
    uint64_t size; /* as its descriptor says */
};

struct push_record {
    const char *repository; /* lower case */
    bool is_mirror;         /* under an upstream's prefix: there a blob with an origin is enough */
    struct digest digest;   /* the caller has checked that the bytes hash to it */
    const char *media_type;
    const void *manifest;
    size_t len;
    const struct push_need *needs;
    size_t n_needs;
    /* Not NULL: it was fetched, not pushed. Every blob that it needs then gets a link with this
     * origin (commit and path empty), in front of those that it has; children need not be here, and
     * the repository's row names upstream and id. */
    const struct origin *origin;
    const struct digest *subject; /* NULL = none. Need not be here */
    const char *artifact_type;    /* "" = none */
    const char *annotations;      /* a JSON object of strings, or NULL */
    size_t annotations_len;
    const char *const *tags; /* that point here from now on */
    size_t n_tags;
    const struct tag_guard *guard; /* NULL = every tag may move */
    const char *source;            /* who, for the history of the tags: "push 10.0.0.7" */
};

struct digest_list {
    struct digest *items;
    size_t n;
};
void digest_list_done(struct digest_list *l);

/* Stores the manifest, its links' uses, its place among the referrers of its subject, and its tags,
 * in one transaction; durable on return. Idempotent.
 * ERR_NOT_FOUND: *ret_missing are the needs that are not here (nothing was stored).
 * ERR_INVALID: a need has another size than its descriptor says (the text names both);
 * ERR_UPSTREAM in a manifest that was fetched.
 * ERR_CONFLICT: an immutable tag points at another manifest (the text names the tag). */
int store_manifest_push(struct store *s, const struct push_record *r,
                        struct digest_list *ret_missing, struct error *err);

/* Removes the repository's link: the blob is 404 there from now on, also where a manifest needs it.
 * ERR_NOT_FOUND. Bytes go with a later gc, and only when no repository needs them. guard: NULL =
 * nothing is immutable; else ERR_CONFLICT when a manifest with an immutable tag needs the blob, or
 * an index with one through its manifests. */
int store_blob_unlink(struct store *s, const char *repository, const struct digest *d,
                      const struct tag_guard *guard, struct error *err);
/* Gives `repository` a link to a blob that `from` has and whose bytes are held. 1 linked,
 * 0 not there or not held, -1. */
int store_blob_mount(struct store *s, const char *repository, const struct digest *d,
                     const char *from, struct error *err);
/* Repositories with a link to the digest, after `last` (NULL = from the start), at most limit. */
int store_blob_repositories(struct store *s, const struct digest *d, const char *last, size_t limit,
                            struct name_list *ret, struct error *err);

/* A blob of an upstream's repository, which says so: when no manifest here names it yet, its link
 * with the origin, and a hold. A claimed link (see struct link) is the repository's own from now
 * on; its size counts, unless that is not known. Another link stays as it is. ERR_UPSTREAM: the
 * bytes are here, with another size. */
int store_link_record(struct store *s, const char *repository, const struct digest *d,
                      uint64_t size, const struct origin *origin, struct error *err);

/* The upstream has begun to give the blob for this repository: a claimed link (see struct link) is
 * its own from now on. Cheap: is written soon, a crash may lose it. */
void store_link_proved(struct store *s, const char *repository, const struct digest *d);
/* The upstream itself says that the blob has another size than its link; or it has turned out to.
 * Durable on return. Nothing is done where there is no link; bytes that are here know it better. */
int store_link_resize(struct store *s, const char *repository, const struct digest *d,
                      uint64_t size, struct error *err);

struct referrer {
    struct digest digest;
    uint64_t size;
    const char *media_type;
    const char *artifact_type; /* "" = none */
    const char *annotations;   /* a JSON object, NULL = none */
};

struct referrer_list {
    struct referrer *items; /* by digest */
    size_t n;
    bool more;
    char *storage; /* backs the strings */
};
void referrer_list_done(struct referrer_list *l);

/* Manifests of the repository whose subject is this digest (which need not be here), behind `last`
 * (NULL = from the start), only those of an artifact type unless that is NULL: at most limit, and
 * no more than one when their texts go over max_bytes. An unknown repository has none. */
int store_referrers(struct store *s, const char *repository, const struct digest *subject,
                    const char *artifact_type, const struct digest *last, size_t limit,
                    size_t max_bytes, struct referrer_list *ret, struct error *err);

/* What an upstream says are the referrers of a subject, in place of what it said before; the first
 * of several of one digest counts. Manifests that are here themselves stay listed as they are, and
 * what the upstream says of one shows again when that one is removed. A gc drops what was said of
 * subjects that are not here. Nothing is written when it says the same as before. */
int store_referrers_replace(struct store *s, const char *repository, const struct digest *subject,
                            const struct referrer *items, size_t n, struct error *err);

#define TAG_HISTORY_MAX 1000 /* events that are kept of one tag */

struct tag_event {
    uint64_t at_ms;       /* wall clock */
    struct digest digest; /* what the tag names from then on; alg NONE: it was removed */
    char commit[41];      /* of a Hub import, else empty */
    const char *source;   /* "push 10.0.0.7", "import hf Org/Name", "delete 10.0.0.7", "rm" */
};

struct tag_history {
    struct tag_event *events; /* newest first; only changes: naming the same digest again is none */
    size_t n;
    char *storage; /* backs the strings */
};
void tag_history_done(struct tag_history *h);

/* The newest `limit` events; none for a tag that never was, or was there before events were
 * recorded. The history outlives the tag. */
int store_tag_history(struct store *s, const char *repository, const char *tag, size_t limit,
                      struct tag_history *ret, struct error *err);

#endif
