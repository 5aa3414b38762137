/* What the upload_*.c files share: the table of sessions, and who may work on one.
 *
 * A session is one file of incoming/ and its row. Whoever set `busy` works on the file, without any
 * lock; everybody else sees the figures that were true when it was last idle. A request's hold
 * (struct upload) is good as long as its generation is the session's: a newer one makes it stale,
 * waits until nobody is busy, and goes on from what was acknowledged.
 *
 *     begun or found at the start -> idle <-> held by a request, busy during each of its calls
 *     committed, cancelled, expired -> gone from the table; freed with the last stale hold
 */
#ifndef WB_STORAGE_UPLOAD_PRIVATE_H
#define WB_STORAGE_UPLOAD_PRIVATE_H

#include <pthread.h>

#include "storage/staged.h"
#include "storage/upload.h"

struct session {
    struct session *next; /* in its bucket; this and the next ones: guarded by the table's lock */
    unsigned refs;        /* holds, stale ones too, and those who wait to end it */
    uint64_t generation;
    struct upload *holder; /* the newest hold, NULL when it let go */
    bool busy, gone;
    uint64_t size;     /* what is written and has its place in the file */
    uint64_t acked;    /* what the client was told */
    int64_t active_ms; /* monotonic; before 0 when that was before the machine's start */

    struct staged
        file; /* this and the next ones: of whoever set busy. Its row's names never change */
    uint64_t allocated;    /* disk space is taken up to here */
    uint64_t announced;    /* the hold's request says that it ends here; 0 = not known */
    struct hasher *hasher; /* of the row's algorithm; NULL: to be read again */
    uint64_t hashed;
    bool renamed; /* it has its name in blobs/ already, but the rows could not be written */
};

struct upload {
    struct session *session;
    uint64_t generation;
    uint64_t acked, size; /* as this hold last saw them */
    struct error failure; /* sticky */
};

#define UPLOAD_BUCKETS 1024u

struct uploads {
    pthread_mutex_t lock; /* guards: what follows, and what struct session says */
    pthread_cond_t idle;  /* a session is not busy any more, or has another generation */
    size_t n, max;
    int64_t abandoned_ms; /* when it is worth looking for an empty one that was left alone */
    struct session *buckets[UPLOAD_BUCKETS];
};

/* ---- the table; all called with its lock held ---- */

/* NULL unless it is of that repository. */
struct session *session_find(struct uploads *t, const char *repository, const char *id);
void session_insert(struct uploads *t, struct session *x);
/* Nobody finds it any more. */
void session_drop(struct uploads *t, struct session *x);
void session_unref(struct session *x);
void session_touch(struct session *x);

/* ---- work on a session ---- */

struct session *session_new(struct store *s, const struct incoming_row *row, struct error *err);
void session_free(struct session *x);
/* Sets busy for the holder; ERR_CONFLICT when it is stale. */
int session_enter(struct upload *u, struct error *err);
/* Ends that: others see the file's length from now on. */
void session_leave(struct session *x);

/* The rest is for whoever set busy. */

/* Back to what is acknowledged. The file is open. */
int session_rewind(struct session *x, struct error *err);
/* A sync failed: nothing behind the synced extent is to be believed. */
void session_lose_unsynced(struct session *x);
/* Row and file go. Fails only when both stay. */
int session_remove(struct session *x, struct error *err);
/* upload_commit.c; nothing but the table's entry is left to be dropped. */
int session_commit(struct session *x, const struct digest *d, struct error *err);

#endif
