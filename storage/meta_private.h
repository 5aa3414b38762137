/* Shared by the meta_*.c files only: the one place where LMDB's types are seen. */
#ifndef WB_STORAGE_META_PRIVATE_H
#define WB_STORAGE_META_PRIVATE_H

#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "storage/keys.h"
#include "storage/meta.h"

enum db {
    DB_STATE,         /* counters */
    DB_BLOBS,         /* digest -> blob */
    DB_INCOMING,      /* kind, id -> incoming */
    DB_LINKS,         /* repository, digest -> link */
    DB_USES,          /* blob, repository, manifest -> nothing; without a manifest: a hold */
    DB_MANIFESTS,     /* repository, digest -> manifest */
    DB_TAGS,          /* repository, tag -> tag */
    DB_REPOSITORIES,  /* repository -> repository */
    DB_COMMITS,       /* hash of upstream, id, commit -> file list */
    DB_MISMATCHES,    /* digest -> until */
    DB_REFERRERS,     /* repository, subject, manifest -> what the list of referrers says of it */
    DB_HISTORY,       /* repository, tag, sequence -> event */
    DB_HUB_NAMES,     /* hash of a name -> its id; hash of an id, hash of a name -> nothing */
    DB_HUB_PINS,      /* hash of an id, revision -> commit */
    DB_HUB_DOCUMENTS, /* hash of an id, commit, hash of what -> document */
    DB_HUB_OBJECTS,   /* hash of an id, git object id -> sha256 */
    DB_HUB_COMMITS,   /* hash of an id, commit -> names; and a digest -> nothing: its file */
    DB_HUB_USES,      /* blob, hash of an id, commit -> nothing */
    DB_COUNT,
};

/* One queued write. run() may be called again in another transaction when a neighbour failed, so it
 * changes nothing but rows and what it resets itself at its start. */
struct meta_op {
    int (*run)(struct meta *m, MDB_txn *txn, void *arg, struct error *err);
    void *arg;
    void (*free_arg)(void *arg); /* lazy ones: the queue owns op and arg */
    size_t bytes;                /* about what it writes, when that is much */
    bool lazy;
    bool done;
    int rc;
    struct error err;
    struct meta_op *next;
};

struct meta {
    MDB_env *env;
    MDB_dbi dbi[DB_COUNT];
    char *dir;
    uint64_t reserved; /* bytes of data.mdb that have their disk space; the writing thread's own */

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; /* guards: everything below, and done of queued operations */
    pthread_cond_t work;  /* something was queued, or stop */
    pthread_cond_t finished;
    struct meta_op *first, **last;
    size_t n_urgent, n_lazy; /* queued */
    bool stop;
};

/* meta_env.c */
int meta_failed(struct meta *m, int rc, const char *what, struct error *err);
/* Takes disk space ahead of what data.mdb has, so that rows can still be dropped (and so blobs be
 * collected) when the disk is full. On the writing thread, or before it runs. */
void meta_reserve(struct meta *m);
int meta_read_begin(struct meta *m, MDB_txn **ret, struct error *err);
static inline void mdb_txn_abort_p(MDB_txn **txn)
{
    if (*txn)
        mdb_txn_abort(*txn);
}
#define _cleanup_txn_ _cleanup_(mdb_txn_abort_p)
static inline void mdb_cursor_close_p(MDB_cursor **c)
{
    if (*c)
        mdb_cursor_close(*c);
}
#define _cleanup_cursor_ _cleanup_(mdb_cursor_close_p)

/* The value where it lies in the map: until the transaction ends or writes. 1, 0, -1. */
int db_view(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, MDB_val *ret,
            struct error *err);
/* Copies the value: 1, 0, -1. */
int db_get(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct strbuf *copy,
           struct error *err);
int db_has(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct error *err);
/* Whether a key begins with the prefix. */
int db_has_prefix(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                  struct error *err);
int db_put(struct meta *m, MDB_txn *txn, enum db db, const struct key *k,
           const struct strbuf *value, struct error *err);
/* 1 deleted, 0 was not there, -1. */
int db_delete(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct error *err);
/* Calls fn for every row whose key begins with prefix, from `from` (NULL = the prefix itself) on.
 * Key and value are the map's own bytes: fn must not write. It returns 0 to go on, 1 to stop, -1.
 */
typedef int db_visit(void *ctx, const MDB_val *k, const MDB_val *v, struct error *err);
int db_each(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
            const struct key *from, db_visit *fn, void *ctx, struct error *err);
/* The same from the last row to the first. */
int db_each_back(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix, db_visit *fn,
                 void *ctx, struct error *err);

/* Appends the keys that begin with the prefix. */
int db_pick(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix, struct key_list *to,
            struct error *err);
/* Deletes those that are there. */
int db_delete_list(struct meta *m, MDB_txn *txn, enum db db, const struct key_list *keys,
                   struct error *err);
/* Deletes all whose key begins with the prefix. */
int db_delete_prefix(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                     struct error *err);

/* meta_writer.c */
int meta_writer_start(struct meta *m, struct error *err);
void meta_writer_stop(struct meta *m);
/* Queues; op (with run and arg) is the caller's, and stays where it is until meta_write_wait(). */
void meta_write_start(struct meta *m, struct meta_op *op);
/* Waits for the commit, gives its result. */
int meta_write_wait(struct meta *m, struct meta_op *op, struct error *err);
/* Both. */
int meta_write(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
               void *arg, struct error *err);
/* The same for what writes about so many bytes. */
int meta_write_large(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
                     void *arg, size_t bytes, struct error *err);
/* Queues and returns; arg belongs to the queue, free_arg frees it. Dropped when too many wait. */
void meta_write_later(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
                      void *arg, void (*free_arg)(void *));

/* meta_blobs.c: for other operations on the writing thread */
int blob_bytes_add(struct meta *m, MDB_txn *txn, uint64_t plus, uint64_t minus, struct error *err);
int blob_bytes_set(struct meta *m, MDB_txn *txn, uint64_t n, struct error *err);
int blob_row_drop(struct meta *m, MDB_txn *txn, const struct digest *d, struct error *err);
int blob_row_set(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t size,
                 struct error *err);
/* 1 and its size, 0, -1; a damaged row is an error, and names the blob. */
int blob_get(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t *ret_size,
             struct error *err);
/* What the row describes is the blob from now on; the row goes. */
int blob_publish(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err);
int incoming_drop(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err);
void incoming_key(const struct incoming_row *row, struct key *ret);

/* meta_hub_commit.c: whether the commit was asked for through the Hub's API: 1, 0, -1. */
int hub_commit_is_known(struct meta *m, MDB_txn *txn, const char *upstream, const char *id,
                        const char *commit, struct error *err);

/* meta_gc.c: whether an import needs the file list with this key_of_commit(): 1, 0, -1. */
int commit_is_used(struct meta *m, MDB_txn *txn, const struct key *list, struct error *err);

/* meta_upload.c: blob_publish() of an upload, whose repository gets its link. */
int upload_publish(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err);

/* meta_read.c */
/* All empty when there is no row, or a damaged one. */
int repository_row_find(struct meta *m, MDB_txn *txn, const char *repository,
                        struct repository_row *ret, struct error *err);
int name_list_add(struct name_list *l, size_t *cap, const char *name, size_t len,
                  struct error *err);

/* meta_hold.c */
/* The repository gets its link to a blob whose bytes are here (a link that is there keeps its
 * origins), and a hold as of now. */
int link_hold(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              uint64_t size, uint64_t now_s, struct error *err);
int hold_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
             uint64_t now_s, struct error *err);
/* Whether a manifest of the repository needs the blob: 1, 0, -1. */
int link_has_manifest(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                      struct error *err);
/* 1 dropped, 0 there was none, -1. */
int hold_drop(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              struct error *err);

enum blob_need {
    BLOB_DEAD, /* no manifest and no commit of a Hub needs it, no hold is younger than the cutoff */
    BLOB_HELD, /* only holds keep it */
    BLOB_USED,
};
int blob_needed(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t cutoff_s,
                enum blob_need *ret, struct error *err);

/* meta_history.c */
struct tag_cause {
    const char *source;
    uint64_t at_ms;
};
uint64_t history_now_ms(void);
/* Points the tag somewhere; its history gets an event when that is another manifest than before. */
int tag_move(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
             const struct tag *value, const struct tag_cause *cause, struct error *err);
/* 1 removed, with an event; 0 there was none, -1. */
int tag_remove(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
               const struct tag_cause *cause, struct error *err);
/* Writes a row that names the same manifest as before. */
int tag_write(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
              const struct tag *value, struct error *err);
/* Drops the histories of tags that have been gone for long. */
int history_sweep(struct meta *m, MDB_txn *txn, uint64_t now_ms, struct error *err);

/* meta_import.c: the repository's link to a blob of this size, which gets the origin in front of
 * those that it has (NULL: none, and the bytes must be here). ERR_UPSTREAM: the bytes are here and
 * have another size. */
int link_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
             uint64_t size, const struct origin *origin, bool is_claim, struct error *err);
/* Writes a manifest's row, whose needs must be in the order of digest_order(), and
 * releases what an older row of it needed besides. */
int manifest_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                 const struct strbuf *row, const struct digest *needs, size_t n_needs,
                 struct error *err);

/* meta_guard.c: ERR_CONFLICT when something that needs the digest in the repository, directly or
 * through others, has an immutable tag (not when only a manifest of this digest has one), or may
 * have one because there are too many to look at. guard: NULL = nothing is immutable. */
int guard_part(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
               const struct tag_guard *guard, struct error *err);

/* meta_remove.c: the manifest no longer needs the blob. The link goes when nothing else in the
 * repository needs it, or becomes a hold when the manifest was pushed. */
int link_release(struct meta *m, MDB_txn *txn, const char *repository,
                 const struct digest *manifest, bool is_pushed, const struct digest *blob,
                 struct error *err);

#endif
