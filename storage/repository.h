/* The rows: repositories, manifests, tags, links and the file lists of commits. Part of
 * storage/store.h, which has the rules. */
#ifndef WB_STORAGE_REPOSITORY_H
#define WB_STORAGE_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/ref.h"

struct store;
struct tag_guard;

/* Where a blob that we know by digest can be had: a file of a Hub repository at a commit, or the
 * same digest in a registry's repository. */
struct origin {
    const char *upstream; /* the upstream's prefix */
    const char *repo_id;  /* the upstream's own spelling, "HuggingFaceTB/SmolLM2-135M" */
    const char *commit;   /* 40 hex; empty: a registry's */
    const char *path;     /* inside the repository; empty: a registry's */
};

#define LINK_SIZE_UNKNOWN UINT64_MAX

/* The row (repository, digest) without which a blob is 404 in that repository. */
struct link {
    uint64_t size; /* LINK_SIZE_UNKNOWN: of a claim, when manifests say different ones */
    bool held;     /* the bytes are here */
    bool named;    /* unless it is held: whether a manifest of the repository needs it */
    /* Only a manifest that was fetched says that the repository has it: until its upstream has
     * given or confirmed it there, bytes that came from elsewhere are not this repository's. */
    bool claimed;
    bool has_origin;
    struct origin origin; /* the newest one recorded; strings owned by the link */
    char *storage;        /* backs the strings */
};
void link_done(struct link *l);

/* 1 found, 0 no such row in that repository, -1. */
int store_link_get(struct store *s, const char *repository, const struct digest *d,
                   struct link *ret, struct error *err);

struct manifest {
    struct digest digest;
    char *media_type;
    char *bytes; /* exactly as imported or pushed */
    size_t len;
};
void manifest_done(struct manifest *m);

int store_manifest_get(struct store *s, const char *repository, const struct digest *d,
                       struct manifest *ret, struct error *err);

struct tag {
    struct digest digest;
    char commit[41];     /* what it resolved to; empty for tags that were pushed */
    uint64_t checked_at; /* wall clock seconds: when the upstream last confirmed it */
};
int store_tag_get(struct store *s, const char *repository, const char *tag, struct tag *ret,
                  struct error *err);
/* The upstream confirmed the tag just now. Cheap: may be written later, a crash may lose it. */
void store_tag_confirm(struct store *s, const char *repository, const char *tag);

struct name_list {
    char **names; /* sorted by bytes */
    size_t n;
    bool more; /* there are further ones behind the last */
};
void name_list_done(struct name_list *l);
/* Tags after `last` (exclusive, NULL = from the start), at most limit. 0 and an empty list for a
 * repository without tags; ERR_NOT_FOUND when the repository itself is unknown. */
int store_tags(struct store *s, const char *repository, const char *last, size_t limit,
               struct name_list *ret, struct error *err);
/* Repositories that hold at least one manifest. */
int store_repositories(struct store *s, const char *last, size_t limit, struct name_list *ret,
                       struct error *err);

/* A repository's own facts: which Hub id it stands for. */
struct repository_row {
    char upstream[REPOSITORY_MAX + 1];
    char repo_id[REPOSITORY_MAX + 1];
};
/* 1; 0 when it is unknown, or was only pushed to so far. */
int store_repository_get(struct store *s, const char *repository, struct repository_row *ret,
                         struct error *err);

/* One file of a commit's complete list. */
struct commit_file {
    const char *path;
    uint64_t size;
    char git_oid[41];     /* of the pointer when has_lfs */
    bool has_lfs;         /* sha256 known without bytes */
    struct digest sha256; /* LFS, or a small file that was fetched and checked; alg NONE unknown */
};

struct import_link {
    struct digest digest;
    uint64_t size;
    const char
        *path; /* origin = this import's repo_id, commit and this path; NULL = must be held */
};

/* All that one import writes, in one transaction: the manifest, the tag, every link with its
 * origin, the repository row, and the commit's complete file list. Links to blobs without an
 * origin must be held (ERR_INTERNAL otherwise): rule 3. The manifest's own bytes are kept in its
 * row. Idempotent. */
struct import_record {
    const char *repository; /* lower case */
    const char *upstream, *repo_id, *commit;
    const char *const *tags; /* tags that point here from now on; the commit itself among them */
    size_t n_tags;
    struct digest manifest_digest;
    const char *media_type;
    const void *manifest;
    size_t manifest_len;
    const struct import_link *links; /* config blob and layers */
    size_t n_links;
    const struct commit_file *files; /* NULL when the list is already stored */
    size_t n_files;
};
int store_commit_import(struct store *s, const struct import_record *r, struct error *err);
/* Points one more tag at a manifest that the repository has (a branch that moved to a commit that
 * was imported before). ERR_NOT_FOUND when it has no such manifest. */
int store_tag_put(struct store *s, const char *repository, const char *tag,
                  const struct digest *manifest, const char *commit, struct error *err);

struct commit_files {
    struct commit_file *files;
    size_t n;
    char *storage;
};
void commit_files_done(struct commit_files *f);
/* 1 found, 0 not stored, -1. */
int store_commit_files_get(struct store *s, const char *upstream, const char *repo_id,
                           const char *commit, struct commit_files *ret, struct error *err);

/* Removes a tag, or a manifest with every tag on it, its place among the referrers, and the links
 * that no other manifest of the repository needs (see push.h for what was pushed). guard: NULL =
 * nothing is immutable; else ERR_CONFLICT when the tag, or a tag on the manifest or on an index
 * that has it below, is. source: who, for the history. ERR_NOT_FOUND. Bytes go with a later gc. */
int store_remove(struct store *s, const struct reference *r, const struct tag_guard *guard,
                 const char *source, struct error *err);
/* Removes all manifests, tags and links: what is stored under this name is another repository's
 * than the one that has the name now. 0 also when there are none. */
int store_vacate(struct store *s, const char *repository, const char *source, struct error *err);

#endif
