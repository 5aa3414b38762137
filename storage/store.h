/* storage: what we hold. Blobs on disk, named by their digest, and the rows (LMDB) that say which
 * repository may read which blob, which tag names which manifest, and where a blob that we do not
 * hold can be had. No HTTP, no curl.
 *
 * The blob store (storage/blobs.h) and the metadata store (storage/meta.h) are two narrow seams;
 * this header is what the rest of the program uses. Every operation is whole and atomic; no
 * transaction, path or LMDB handle ever leaves the folder. All functions are thread-safe unless
 * said otherwise. Results are owned copies: nothing returned depends on an open transaction.
 *
 * Rules that never break (docs/on-disk-format.md):
 *   1. A file under blobs/ hashes to its name.
 *   2. What was acknowledged survives a crash one instruction later.
 *   3. A row never points at nothing: the content is held, or it has an origin.
 *   4. Opening settles what a crash left, without reading file contents.
 *   5. One batching writer; readers never wait for it and never hold a read transaction while
 *      waiting for a disk or a network.
 */
#ifndef WB_STORAGE_STORE_H
#define WB_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/ref.h"

struct store;

struct store_options {
    const char *dir;             /* made when missing, with meta/, blobs/ and incoming/ */
    unsigned max_readers;        /* threads that may read at once; 0 = 4096 + 64 */
    unsigned free_floor_percent; /* see store_has_room() */
};

/* Opens or makes a data directory, takes its lock and settles what a crash left.
 * ERR_CONFLICT: another process holds the directory (the text names its pid and what to do).
 * ERR_UNSUPPORTED: a newer version of the program wrote it (the text names both versions). */
int store_open(const struct store_options *options, struct store **ret, struct error *err);
/* No operation may be running. Everything acknowledged is on disk already; this only lets go. */
void store_close(struct store *s);

/* ---- blobs that we hold ------------------------------------------------------------------- */

struct blob;
/* 1 and an open blob, 0 not held, -1. An open blob stays readable when it is removed. */
int store_blob_open(struct store *s, const struct digest *d, struct blob **ret, struct error *err);
int store_blob_stat(struct store *s, const struct digest *d, uint64_t *ret_size, struct error *err);
uint64_t blob_size(const struct blob *b);
int blob_fd(const struct blob *b); /* for sendfile, borrowed; -1 when the backend has none */
/* Reads up to len bytes at offset; 0 only at or behind the end. Thread-safe. */
ssize_t blob_read(struct blob *b, uint64_t offset, void *buf, size_t len, struct error *err);
void blob_close(struct blob *b); /* NULL is fine */

/* Stores len bytes under their sha256 (or finds them held) and returns the digest. For small
 * content: durable on return. */
int store_blob_put(struct store *s, const void *data, size_t len, struct digest *ret,
                   struct error *err);

/* ---- blobs on their way in ----------------------------------------------------------------- *
 *
 *     writer_open -> [writer_resumed bytes are there] -> writer_write* -> writer_commit -> close
 *                                                                      \-> writer_close(keep)
 *
 * One thread writes; any number may writer_read() what was written, also after the commit, until
 * the writer is closed. A write error is sticky. incoming/ is local staging in every backend; the
 * commit publishes. The row of a partial holds its synced extent, moved at most every 64 MiB and
 * at close: only those bytes are believed after a crash, and only by who hashes them again. */
struct blob_writer;

#define WRITER_SIZE_UNKNOWN UINT64_MAX

/* The partial of this digest: resumed when one is there, begun when not. There is at most one open
 * writer for a digest (ERR_BUSY otherwise). size: the blob's whole size, space for it is allocated
 * at once when known (ERR_NO_SPACE up front). */
int writer_open(struct store *s, const struct digest *d, uint64_t size, struct blob_writer **ret,
                struct error *err);
/* Contiguous bytes from 0 that were there when it was opened. */
uint64_t writer_resumed(const struct blob_writer *w);
int writer_write(struct blob_writer *w, const void *data, size_t len, uint64_t offset,
                 struct error *err);
ssize_t writer_read(struct blob_writer *w, uint64_t offset, void *buf, size_t len,
                    struct error *err);
/* Forgets what was written (a mismatch, an upstream that has another object now). Start at 0. */
int writer_restart(struct blob_writer *w, struct error *err);
/* Publishes: sync, rename, sync of the folder, row. The caller has hashed every byte and found the
 * digest that the writer was opened for; size is the number of bytes. Durable on return. */
int writer_commit(struct blob_writer *w, uint64_t size, struct error *err);
/* Lets go. Without a commit before: keep = the bytes stay for the next writer_open of the digest
 * (extent synced), !keep = they are removed. NULL is fine. */
void writer_close(struct blob_writer *w, bool keep);

/* Whether `bytes` more may be stored: free space stays above free_floor_percent of the filesystem.
 * ERR_NO_SPACE with the figures and the setting's name when not. */
int store_has_room(struct store *s, uint64_t bytes, struct error *err);

/* ---- repositories, manifests, tags, links --------------------------------------------------- */

/* Where a blob that we know by digest can be had: a file of a Hub repository at a commit. */
struct origin {
    const char *upstream; /* the upstream's prefix */
    const char *repo_id;  /* the Hub's own spelling, "HuggingFaceTB/SmolLM2-135M" */
    const char *commit;   /* 40 hex */
    const char *path;     /* inside the repository */
};

/* The row (repository, digest) without which a blob is 404 in that repository. */
struct link {
    uint64_t size;
    bool held; /* the bytes are here */
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

/* Removes a tag, or a manifest with every tag on it and the links that no other manifest of the
 * repository needs. ERR_NOT_FOUND. Bytes go with the next gc. */
int store_remove(struct store *s, const struct reference *r, struct error *err);

/* ---- digests that an upstream got wrong ------------------------------------------------------ */

/* Remembers, across restarts, that wrong bytes were sent out for this digest until the given wall
 * clock second: ranges that do not begin at 0 are refused until then. */
int store_mismatch_put(struct store *s, const struct digest *d, uint64_t until, struct error *err);
/* Seconds that are left, 0 when none. */
uint64_t store_mismatch_left(struct store *s, const struct digest *d);

/* ---- housekeeping ---------------------------------------------------------------------------- */

struct store_stats {
    uint64_t blobs, blob_bytes; /* complete, held */
    uint64_t partials, partial_bytes;
    uint64_t repositories, manifests, tags;
    uint64_t disk_free, disk_total;
};
/* Cheap (counters and one statvfs), for /metrics. */
int store_stats(struct store *s, struct store_stats *ret, struct error *err);

struct gc_result {
    uint64_t blobs_removed, bytes_removed, partials_removed;
};
/* Removes blobs that no link names and partials that no link names. Only while nothing else uses
 * the store (the offline command): not yet safe beside running transfers. */
int store_gc(struct store *s, bool dry_run, struct gc_result *ret, struct error *err);

#endif
