/* Questions to an upstream that are under way: each is asked once, however many clients wait for
 * its answer, and a client that has something better to do leaves it to a thread of ours.
 *
 *     with patience     a thread of ours asks, the client waits a while
 *     without           the client's own thread asks; those who come later wait for it
 *     with a deadline   a thread of ours asks while there are not too many of them; the client, who
 *                       has nothing better to do, needs an answer by then, and comes again
 *
 * For mirror_question.c and hub_mirror_flight.c: what they know of a question begins with a struct
 * inquiry. In between inquiry_lock() and inquiry_unlock():
 *
 *     x = inquiry_board(...)              one that is under way, or a new one
 *     inquiry_answer(x)                   where it is mine to answer
 *     inquiry_wait(x) or inquiry_wait_long(x)
 *     inquiry_leave(x)                    when its result is not needed any more
 */
#ifndef WB_UPSTREAM_INQUIRY_H
#define WB_UPSTREAM_INQUIRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "upstream/loop.h"

#define INQUIRY_THREADS_MAX 32u  /* questions that go on without a client's thread */
#define INQUIRY_THREADS_SLOW 4u  /* as many while answers are late */
#define INQUIRY_THREADS_ANY 128u /* besides: of clients with a deadline */

struct inquiry;

/* question: as it was given to inquiry_board(). */
struct inquiry_kind {
    const char *thread; /* what threads are called */
    bool (*is_same)(const struct inquiry *x, const void *question);
    struct inquiry *(*make)(const void *question); /* zeroed but for its own; NULL = no memory */
    /* Asks, without the lock. What is found out belongs to this thread until it is done, and does
     * not change any more from then on. */
    void (*ask)(struct inquiry *x);
    void (*free)(struct inquiry *x);
};

struct inquiry_table {
    const struct inquiry_kind *kind;
    const char *upstream; /* its prefix, for errors; borrowed */
    pthread_mutex_t lock; /* guards: all below, and the questions but for what is found out */
    pthread_cond_t landed;
    struct inquiry *first;
    unsigned threads; /* of our own that answer a question ... */
    unsigned any;     /* ... so many of them for INQUIRY_BY_ANYBODY */
    unsigned late;    /* questions that somebody has given up waiting for */
    bool stopping;
};

struct inquiry {
    struct inquiry *next;
    struct inquiry_table *table;
    struct loop loop; /* of who asked first */
    uint64_t begun_ms;
    unsigned users; /* who asks and everybody who waits; the last one frees it */
    bool done;
    bool late;        /* somebody has given up on it */
    bool by_any;      /* counted in table->any */
    unsigned alone_n; /* the most servers that a question came through which went on by itself */
};

/* t is zeroed. */
int inquiry_start(struct inquiry_table *t, const struct inquiry_kind *kind, const char *upstream,
                  struct error *err);
/* Waits for the threads: what they wait for has been cancelled. */
void inquiry_stop(struct inquiry_table *t);
/* After inquiry_stop(), when nobody waits any more. */
void inquiry_end(struct inquiry_table *t);

void inquiry_lock(struct inquiry_table *t);
void inquiry_unlock(struct inquiry_table *t);

/* The rest is called with the lock held. */

/* Who is to answer a question that is new: a thread of ours, the caller, or the caller where there
 * are too many threads. */
enum inquiry_by { INQUIRY_BY_THREAD, INQUIRY_BY_CALLER, INQUIRY_BY_ANYBODY };
/* A question whose user the caller is now; *ret_mine: nobody answers it yet. NULL: ERR_CANCELLED,
 * ERR_BUSY (too many threads), ERR_NOMEM. */
struct inquiry *inquiry_board(struct inquiry_table *t, const void *question, enum inquiry_by by,
                              bool *ret_mine, struct error *err);
/* Gives the lock up meanwhile. Whoever comes later asks afresh. */
void inquiry_answer(struct inquiry *x);
/* 0 when it is done; ERR_TIMEOUT at end_ms. gives_up: then others need not find out any more that
 * the upstream is slow. */
int inquiry_wait(struct inquiry *x, uint64_t end_ms, bool gives_up, struct error *err);
/* True when it is done. Who asks through other servers may be who it waits for itself, when two
 * clients have asked two servers of a circle at once: what came first at each waits for the other's
 * (upstream/loop.h). So it waits for a while only, unless a question that came through as many has
 * gone on by itself (alone_n). */
bool inquiry_wait_long(struct inquiry *x);
void inquiry_leave(struct inquiry *x);

#endif
