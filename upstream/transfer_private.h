/* What the files of a transfer share:
 *
 *     transfer.c          states, the transfer's own thread
 *     transfer_table.c    who joins which
 *     transfer_read.c     readers, and what they want at once
 *     transfer_fill.c     the whole download, from the partial to the commit
 *     transfer_claim.c    which bytes are here, and who brings which
 *     transfer_fetch.c    one exchange with the upstream, for one claim
 *     transfer_place.c    where the bytes are: locating, redirects, credentials
 *     transfer_extra.c    further connections: for speed, and for readers that are far ahead
 *     transfer_through.c  no room for the file: passing it through
 *     transfer_part.c     no room for the file: a part of it, by itself
 */
#ifndef WB_UPSTREAM_TRANSFER_PRIVATE_H
#define WB_UPSTREAM_TRANSFER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/extents.h"
#include "upstream/lending.h"
#include "upstream/transfer.h"

#define TRANSFER_BUCKETS 256
#define TRANSFER_BUFFER (256u << 10) /* coalesces curl's 16 KiB pieces */
#define TRANSFER_STACK (1u << 20)
/* What a running connection will bring so soon is not asked for again. More than a buffer, so that
 * no connection writes where it has been told to end. */
#define TRANSFER_NEAR (1ull << 20)
#define TRANSFER_WANTS 16
#define TRANSFER_WINDOW (4ull << 20) /* of what is not kept */

/* A repository from which a digest could not be had. */
struct distrust {
    struct digest digest;
    uint64_t place; /* hash of upstream and repository */
    uint64_t until_ms;
};
#define TRANSFER_DISTRUSTS 64u

struct transfers {
    struct store *store;
    struct transfers_options options;
    transfer_ended_fn ended;
    void *ended_ctx;
    struct lendings lendings; /* of what is passed through; called with no lock held */

    pthread_mutex_t lock; /* guards: buckets, running, threads, stopping, distrusts */
    pthread_cond_t changed;
    struct transfer *buckets[TRANSFER_BUCKETS];
    unsigned running; /* of at most options.max_running */
    unsigned threads; /* not yet at their end, those that wait for a slot included */
    bool stopping;
    struct distrust distrusts[TRANSFER_DISTRUSTS];
    unsigned next_distrust;

    struct {
        atomic_uint_fast64_t readers, started, completed, failed, mismatches, uncached, bytes,
            resumed_bytes;
    } stats;
};

enum fetch_kind {
    FETCH_LEAD,   /* the transfer's thread: takes what is missing first, and is the last to give up
                   */
    FETCH_EXTRA,  /* for speed: gives its place up as soon as somebody else wants it */
    FETCH_WANTED, /* for a reader that is far ahead */
    FETCH_PART,   /* all that a transfer of a part is */
};

struct aim;

/* One connection's work. [at, end) is its claim while it is listed. */
struct fetch {
    struct transfer *x;
    enum fetch_kind kind;
    struct fetch *next; /* guarded by x->lock, as is `end`; `at` is written under it by its own
                           thread only */
    uint64_t at, end;

    /* its thread's own */
    const struct aim *aim; /* of the running exchange */
    char *buffer;
    size_t buffered;
    uint64_t buffered_since; /* monotonic ms of the oldest byte in it */
    uint64_t skip;           /* leading bytes of an answer that ignored our Range */
    uint64_t expected;       /* end of the range that the running exchange may bring */
    uint64_t flushed_us;     /* spent on writing and hashing what it brought */
    bool enough;             /* we ended the exchange ourselves, with all that was wanted of it */
    bool unfit;              /* the answer is of no use for a part of the file */
    bool give_way;           /* somebody else needs the place */
    bool asked_again;        /* this exchange has got a new credential */
};

/* How fast it goes with how many connections. */
struct meter {
    uint64_t since_ms, since_bytes, since_work_us, since_flushed_us;
    unsigned connections;      /* during this window */
    unsigned before;           /* connections before the last growth; 0 = none was tried */
    uint64_t before_rate;      /* and the bytes a second */
    uint64_t settled_until_ms; /* no further try before */
};

/* Lock order: transfers.lock before transfer.lock; transfer.writing before transfer.lock. */
struct transfer {
    struct transfers *table;
    struct transfer *next; /* guarded by table->lock */
    struct digest digest;
    uint64_t size;
    struct transfer_source source;
    atomic_bool cancel; /* nobody wants it any more; set under table->lock or lock */
    atomic_bool halt;   /* its connections are to end: cancelled, or broken */
    atomic_uint_fast64_t received;

    pthread_mutex_t writing; /* guards: writer_write(), which is for one thread at a time */

    pthread_mutex_t lock; /* guards: all down to the blank line */
    pthread_cond_t cond;
    enum transfer_state state; /* only grows */
    bool has_slot;             /* counted in table->running */
    uint64_t have;             /* only grows */
    struct error error;        /* once FAILED */
    unsigned refs, readers;
    unsigned reads; /* readers that are inside the writer now */
    struct blob_writer
        *writer;         /* set before `have` first grows, cleared by the thread at the end */
    struct blob *blob;   /* once DONE */
    struct extents here; /* what is in the file */
    uint64_t hashed;     /* from 0 on */
    bool hashing;        /* one thread hashes and moves `hashed` */
    bool lead_waits;     /* to be woken by everything that comes */
    unsigned range_waits;
    struct fetch *fetches;
    unsigned threads; /* besides the transfer's own */
    unsigned extras, wanted;
    struct span wants[TRANSFER_WANTS];
    unsigned n_wants;
    uint64_t no_wants_until_ms; /* the upstream does not give single ranges now */
    struct meter meter;
    unsigned target;      /* connections to have */
    bool ranges;          /* the upstream has shown that it answers them */
    bool single;          /* one connection only: it refused or contradicted a further one */
    bool answered;        /* the first answer has come: */
    char etag[128];       /* its strong validator, "" = none */
    bool contradicted;    /* an answer said: */
    uint64_t said;        /* the blob's size */
    struct lent lent;     /* whose readers have got a byte, of an earlier transfer too */
    bool judged;          /* lent is being noted: nobody is added before the end */
    struct error broken;  /* what stopped everything, from another thread */
    struct error refused; /* before HEADERS: the last failure; its code NONE: there was none */
    bool begun;           /* the answer to a client, before HEADERS */
    struct http_location location;
    unsigned location_number;
    bool locating;
    char *direct; /* where the location redirected to, while that is good */
    struct transfer_place *places;
    uint64_t unlisted_ms; /* waited for readers without a place */
    bool through;         /* the bytes are not kept: */
    struct error why;
    char *window;       /* the last ones that were hashed, each at its offset modulo the size */
    bool closing;       /* what was in the window and the file is gone */
    atomic_bool closed; /* nobody joins any more: the beginning is gone */
    bool no_parts;      /* the upstream does not answer ranges */

    bool of_part; /* set once: it brings these bytes alone, through the window, and `hashed` is how
                     far it is */
    struct span part;

    bool opened;      /* of the transfer's thread: the writer is there, with room for the file */
    bool has_partial; /* likewise: and with bytes from before */
    struct lending *lending; /* likewise: while nobody has checked what is passed through */

    struct hasher *hasher; /* of the thread that has `hashing` */
};

enum outcome {
    OUT_PROGRESS, /* go on from where we are */
    OUT_RETRY,    /* the connection or the upstream failed: wait, then again */
    OUT_RELOCATE, /* the location went stale */
    OUT_FATAL,    /* no use in trying again */
};

/* ---- transfer_table.c ------------------------------------------------------------------------ */

/* Under table->lock. */
void transfer_list(struct transfer *x);
/* Takes it out of the table; from here on the digest can be asked for afresh. */
void transfer_unlist(struct transfer *x);
/* It could not be had from its repository, for the reason given: readers from others are not to
 * depend on that one. Before they learn of the failure. */
void transfer_distrust(struct transfer *x, const struct error *why);

/* ---- transfer.c ------------------------------------------------------------------------------ */

/* Under t->lock. Takes the source over; NULL with an error when it could not be started. */
struct transfer *transfer_start(struct transfers *t, const struct digest *d, uint64_t size,
                                struct transfer_source *source, const struct transfer_part *part,
                                struct error *err);
/* Gives up a reference, a reader's or another one. */
void transfer_drop(struct transfer *x, bool reader);
void transfer_source_release(struct transfer_source *source);

void transfer_advance(struct transfer *x, enum transfer_state state);
/* Under x->lock: readers may have everything that is hashed, short of the withheld end. */
void transfer_publish(struct transfer *x);
/* Durably: who was lent of it so far must not resume. */
int transfer_note_readers(struct transfer *x, struct error *err);
/* The same at the end of it: nobody else is lent from here on. */
int transfer_note_lent(struct transfer *x, struct error *err);
/* Ends it early. */
void transfer_cancel(struct transfer *x);
/* Waits until it has a place among the running ones, or a reader wants something at once. */
int transfer_take_slot(struct transfer *x, struct error *err);

/* ---- transfer_fill.c ------------------------------------------------------------------------- */

/* Downloads, verifies, commits. 1: verified, but not stored. On failure the writer is left as it
 * is. */
int transfer_fill(struct transfer *x, struct error *err);
/* The connection that does not give up easily. */
struct lead {
    struct fetch f;
    unsigned failures; /* since there was progress */
    bool relocated;
};
int transfer_locate(struct lead *l, unsigned number, struct error *err);
/* After an exchange that brought `got` bytes: 0 to go on. */
int transfer_go_on(struct lead *l, enum outcome outcome, uint64_t got, unsigned number,
                   struct error *err);
/* Something that no further attempt mends (the disk, memory): everything ends with this error. */
void transfer_break(struct transfer *x, const struct error *why);
/* Hashes what follows the hashed part without a hole, `blocks` buffers of it at most. */
int transfer_hash_on(struct transfer *x, char *buffer, unsigned blocks, struct error *err);

/* ---- transfer_claim.c ------------------------------------------------------------------------ */
/* All under x->lock. */

enum claim {
    CLAIM_NONE, /* nothing for this kind of connection */
    CLAIM_SOME, /* f->at and f->end are set, f is listed */
    CLAIM_WAIT, /* others bring the rest */
    CLAIM_ALL,  /* every byte is here */
};
enum claim transfer_claim(struct transfer *x, struct fetch *f);
/* Takes f off the list: what it did not bring is open again. */
void transfer_unclaim(struct transfer *x, struct fetch *f);
/* Nobody will bring what was taken from the lead's claim: it may go on over the connection that it
 * has, if that was asked for it. */
void transfer_give_back(struct transfer *x);
/* How many bytes the connection that has `at` in its claim has to bring before it gets there: 0
 * when it is here, UINT64_MAX when nobody is on the way. */
uint64_t transfer_distance(const struct transfer *x, uint64_t at);

/* ---- transfer_fetch.c ------------------------------------------------------------------------ */

/* Brings what it can of [f->at, f->end). */
enum outcome transfer_exchange(struct fetch *f, struct error *err);
/* Takes the lock: others may have been given the rest of the claim. */
uint64_t transfer_claim_end(struct fetch *f);
enum outcome transfer_judge(const struct error *err);

/* ---- transfer_place.c ------------------------------------------------------------------------ */

/* Where to ask, and with what. */
struct aim {
    char *url;
    char *base;          /* the location that it comes from */
    char *authorization; /* for the location's own origin */
    unsigned number;
    bool direct;
};
void aim_done(struct aim *a);
int transfer_aim(struct transfer *x, struct aim *ret, struct error *err);
/* The answer redirects: moves the aim. */
int transfer_follow(struct aim *a, const struct http_response *r, struct error *err);
/* 401: 1 when there is another credential to try. */
int transfer_challenge(struct transfer *x, struct aim *a, const struct http_response *r,
                       struct error *err);
/* The location's own origin took the credential. */
void transfer_accepted(struct transfer *x, const struct aim *a);
/* The aim was good. */
void transfer_remember(struct transfer *x, const struct aim *a);
/* The aim was refused: asks the source again, or only the location where it redirects to. Somebody
 * else may have done so meanwhile. */
int transfer_relocate(struct transfer *x, unsigned number, struct error *err);
unsigned transfer_location_number(struct transfer *x);

/* ---- transfer_through.c ---------------------------------------------------------------------- */

/* No room, for the reason given: true when the download goes on without keeping what comes. No
 * other thread works on it. */
bool transfer_pass_through(struct transfer *x, const struct error *why);
/* The whole file is there and right, and can not be kept: its readers get it all the same. */
void transfer_deliver(struct transfer *x, const struct error *why);
/* What has been passed through is checked; suspect: it is not, and that could not be noted. */
void transfer_end_lending(struct transfer *x, bool suspect);
int transfer_through_put(struct fetch *f, size_t n, struct error *err);
/* Under x->lock: the next n bytes. */
void transfer_window_put(struct transfer *x, const char *data, size_t n);
/* Under x->lock: bytes that are hashed, and not in the file. */
ssize_t transfer_window_read(struct transfer *x, uint64_t offset, void *buf, size_t len,
                             struct error *err);
/* The digest has matched: DONE, and waits until the readers have the rest. */
void transfer_see_off(struct transfer *x);

/* ---- transfer_part.c ------------------------------------------------------------------------- */

/* All of a transfer of a part. 1 when it is there, -1. */
int transfer_bring_part(struct transfer *x, struct error *err);
void transfer_part_put(struct fetch *f, size_t n);

/* ---- transfer_extra.c ------------------------------------------------------------------------ */

/* Called with each buffer of bytes: whether further connections are worth it. */
void transfer_measure(struct fetch *f);
/* Under x->lock: a reader waits for [first, end). */
void transfer_want(struct transfer *x, uint64_t first, uint64_t end);
/* Under x->lock: sees to it that somebody fetches what readers want. */
void transfer_serve_wants(struct transfer *x);
/* Waits until no other thread works on it. */
void transfer_settle(struct transfer *x);

#endif
