#include "upstream/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "upstream/blame.h"
#include "upstream/transfer_private.h"

/* ---- the table ---------------------------------------------------------------------------- */

int transfers_new(struct store *s, const struct transfers_options *o, struct transfers **ret,
                  struct error *err)
{
    struct transfers *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ERR_NOMEM, "out of memory for the transfer table");
    t->store = s;
    t->options = *o;
    if (!t->options.max_running)
        t->options.max_running = 1;
    if (lendings_init(&t->lendings, s, err) < 0) {
        free(t);
        return -1;
    }
    pthread_mutex_init(&t->lock, NULL);
    if (cond_init_monotonic(&t->changed) < 0) {
        lendings_done(&t->lendings);
        free(t);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    *ret = t;
    return 0;
}

void transfers_on_end(struct transfers *t, transfer_ended_fn fn, void *ctx)
{
    t->ended = fn;
    t->ended_ctx = ctx;
}

void transfers_stop(struct transfers *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    for (size_t i = 0; i < TRANSFER_BUCKETS; i++)
        for (struct transfer *x = t->buckets[i]; x; x = x->next)
            transfer_cancel(x);
    pthread_cond_broadcast(&t->changed);
    while (t->threads)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void transfers_free(struct transfers *t)
{
    if (!t)
        return;
    transfers_stop(t);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    lendings_done(&t->lendings);
    free(t);
}

void transfer_add_caller(struct transfer *x, const char *token)
{
    if (x->source.add_caller)
        x->source.add_caller(x->source.ctx, token);
}

void transfer_source_release(struct transfer_source *source)
{
    if (source->release)
        source->release(source->ctx);
    *source = (struct transfer_source){0};
}

static void destroy(struct transfer *x)
{
    transfer_source_release(&x->source);
    blob_close(x->blob);
    hasher_free(x->hasher);
    http_location_done(&x->location);
    free(x->direct);
    extents_done(&x->here);
    free(x->window);
    pthread_cond_destroy(&x->cond);
    pthread_mutex_destroy(&x->writing);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* Under x->lock. What nobody waits for does not wait for its turn either, or there would be no end
 * to the threads that clients can leave behind. */
static bool goes_on_abandoned(struct transfer *x)
{
    return x->table->options.finish_abandoned && !x->through && x->has_slot;
}

void transfer_drop(struct transfer *x, bool reader)
{
    pthread_mutex_lock(&x->lock);
    bool last = --x->refs == 0;
    if (reader && --x->readers == 0 && x->state < TRANSFER_DONE && !goes_on_abandoned(x))
        transfer_cancel(x);
    pthread_mutex_unlock(&x->lock);
    if (last)
        destroy(x);
}

void transfer_unref(struct transfer *x)
{
    if (!x)
        return;
    atomic_fetch_sub(&x->table->stats.readers, 1);
    transfer_drop(x, true);
}

static struct transfer *transfer_make(struct transfers *t, const struct digest *d, uint64_t size,
                                      struct error *err)
{
    struct transfer *x = calloc(1, sizeof(*x));
    if (!x || hasher_new(d->alg, &x->hasher, NULL) < 0 || cond_init_monotonic(&x->cond) < 0) {
        if (x)
            hasher_free(x->hasher);
        free(x);
        err_set(err, ERR_NOMEM, "out of memory for a transfer");
        return NULL;
    }
    x->table = t;
    x->digest = *d;
    x->size = size;
    x->refs = 2; /* the first reader's and the thread's */
    x->readers = 1;
    x->target = 1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_init(&x->writing, NULL);
    return x;
}

/* ---- states ------------------------------------------------------------------------------- */

void transfer_advance(struct transfer *x, enum transfer_state state)
{
    pthread_mutex_lock(&x->lock);
    if (x->state < state) {
        x->state = state;
        pthread_cond_broadcast(&x->cond);
    }
    pthread_mutex_unlock(&x->lock);
}

void transfer_publish(struct transfer *x)
{
    uint64_t limit = x->size > TRANSFER_WITHHELD ? x->size - TRANSFER_WITHHELD : 0;
    uint64_t have = x->hashed < limit ? x->hashed : limit;
    if (x->state >= TRANSFER_DONE || have <= x->have)
        return;
    x->have = have;
    if (x->state < TRANSFER_RUNNING)
        x->state = TRANSFER_RUNNING;
    pthread_cond_broadcast(&x->cond);
}

void transfer_cancel(struct transfer *x)
{
    atomic_store(&x->cancel, true);
    atomic_store(&x->halt, true);
}

/* Bytes that a reader was given, and that are not kept: what comes in their place another time can
 * not vouch for them. */
static void suspect(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    bool lost = x->through;
    pthread_mutex_unlock(&x->lock);
    struct error ignored;
    transfer_end_lending(x, lost && transfer_note_lent(x, &ignored) < 0);
}

int transfer_note_readers(struct transfer *x, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    struct lent lent = x->lent;
    pthread_mutex_unlock(&x->lock);
    return store_mismatch_put_to(x->table->store, &x->digest, &lent,
                                 clock_wall_s() + TRANSFER_MISMATCH_S, err);
}

int transfer_note_lent(struct transfer *x, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    x->judged = true;
    pthread_mutex_unlock(&x->lock);
    return transfer_note_readers(x, err);
}

/* The end, either way: readers first learn of it, then the writer goes (no read is in it any more),
 * then the table forgets it. */
static void finish(struct transfer *x, struct blob *blob, const struct error *error)
{
    if (!blob) {
        suspect(x);
        transfer_distrust(x, error);
    }
    pthread_mutex_lock(&x->lock);
    x->blob = blob;
    if (blob) {
        x->have = x->size;
        x->state = TRANSFER_DONE;
    } else {
        x->error = *error;
        x->state = TRANSFER_FAILED;
    }
    pthread_cond_broadcast(&x->cond);
    while (x->reads)
        pthread_cond_wait(&x->cond, &x->lock);
    struct blob_writer *writer = TAKE_PTR(x->writer);
    bool keep = !blob && error->code != ERR_DIGEST_MISMATCH && !x->through;
    if (writer && x->opened)
        writer_set_lent(writer, &x->lent);
    pthread_mutex_unlock(&x->lock);
    /* Also what was there before and was not looked at yet; an empty partial is not kept. */
    writer_close(writer, keep);
}

/* A slot is for the whole file. What a reader wants at once does not wait for one. */
int transfer_take_slot(struct transfer *x, struct error *err)
{
    struct transfers *t = x->table;
    bool wanted = false;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        bool free = t->running < t->options.max_running, cancelled = atomic_load(&x->cancel);
        pthread_mutex_lock(&x->lock);
        wanted = x->n_wants > 0;
        x->has_slot = free && !cancelled;
        if (x->has_slot)
            x->n_wants = 0; /* the readers see for themselves what comes too late */
        pthread_mutex_unlock(&x->lock);
        if (free || cancelled || wanted)
            break;
        cond_wait_until(&t->changed, &t->lock, clock_monotonic_ms() + 1000);
    }
    t->running += x->has_slot;
    pthread_mutex_unlock(&t->lock);
    return x->has_slot || (wanted && !atomic_load(&x->cancel))
               ? 0
               : err_set(err, ERR_CANCELLED, "the transfer was stopped before it began");
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Another transfer may have committed the blob between our caller's look and our start. */
static int already_held(struct transfer *x, struct blob **ret, struct error *err)
{
    struct blob *blob = NULL;
    int held = store_blob_open(x->table->store, &x->digest, &blob, err);
    if (held <= 0)
        return held;
    if (blob_size(blob) != x->size) {
        err_set(err, ERR_UPSTREAM,
                "upstream \"%s\" says that this digest belongs to %" PRIu64
                " bytes, and it belongs to %" PRIu64 ", which are here: try again",
                x->source.upstream, x->size, blob_size(blob));
        blob_close(blob);
        return -1;
    }
    *ret = blob;
    return 1;
}

/* 0 and the blob, 1 when it was passed through, -1. */
static int run(struct transfer *x, struct blob **ret_blob, struct error *err)
{
    if (x->of_part)
        return transfer_bring_part(x, err);
    if (transfer_take_slot(x, err) < 0)
        return -1;
    int held = already_held(x, ret_blob, err);
    if (held)
        return held < 0 ? -1 : 0;
    int rc = transfer_fill(x, err);
    if (rc)
        return rc;
    held = store_blob_open(x->table->store, &x->digest, ret_blob, err);
    if (held == 0)
        return err_set(err, ERR_INTERNAL, "a committed blob is not held");
    return held < 0 ? -1 : 0;
}

static void *thread_main(void *arg)
{
    struct transfer *x = arg;
    struct transfers *t = x->table;
    struct error error = ERROR_INIT;
    struct blob *blob = NULL;
    uint64_t began = clock_monotonic_ms();

    pthread_setname_np(pthread_self(), "transfer");
    int rc = run(x, &blob, &error);
    if (rc < 0)
        upstream_blame(&error, x->source.upstream);
    if (rc <= 0)
        atomic_fetch_add(rc < 0 ? &t->stats.failed : &t->stats.completed, 1);
    if (rc < 0 && error.code == ERR_DIGEST_MISMATCH)
        atomic_fetch_add(&t->stats.mismatches, 1);
    if (rc > 0) {
        error = x->why;
        transfer_end_lending(x, false); /* before anybody has the end */
        if (x->of_part)                 /* whose reader has the window for as long as it stays */
            transfer_advance(x, TRANSFER_DONE);
        else
            transfer_see_off(x);
    } else {
        finish(x, blob, &error);
    }
    transfer_unlist(x);
    if (t->ended)
        t->ended(t->ended_ctx, x->source.upstream, &x->digest, x->size, atomic_load(&x->received),
                 clock_monotonic_ms() - began, rc ? &error : NULL);
    transfer_drop(x, false);

    pthread_mutex_lock(&t->lock);
    t->threads--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void limit_to_part(struct transfer *x, const struct transfer_part *p)
{
    x->of_part = x->through = x->single = true;
    x->part = (struct span){.first = p->first, .end = p->end};
    x->hashed = p->first;
    x->no_wants_until_ms = UINT64_MAX;
    x->why = *p->why;
    atomic_store(&x->closed, true);
    atomic_fetch_add(&x->table->stats.uncached, 1);
}

struct transfer *transfer_start(struct transfers *t, const struct digest *d, uint64_t size,
                                struct transfer_source *source, const struct transfer_part *part,
                                struct error *err)
{
    struct transfer *x = transfer_make(t, d, size, err);
    if (!x)
        return NULL;
    if (part)
        limit_to_part(x, part);
    x->source = *source;
    *source = (struct transfer_source){0};
    int failed = thread_detached(thread_main, x, TRANSFER_STACK);
    if (failed) {
        destroy(x);
        errno = failed;
        err_set(err, ERR_BUSY, "cannot start a transfer thread: %m");
        return NULL;
    }
    transfer_list(x);
    t->threads++;
    atomic_fetch_add(&t->stats.started, 1);
    atomic_fetch_add(&t->stats.readers, 1);
    return x;
}

void transfers_stats(struct transfers *t, struct transfer_stats *ret)
{
    pthread_mutex_lock(&t->lock);
    ret->running = t->running;
    pthread_mutex_unlock(&t->lock);
    ret->readers = atomic_load(&t->stats.readers);
    ret->started = atomic_load(&t->stats.started);
    ret->completed = atomic_load(&t->stats.completed);
    ret->failed = atomic_load(&t->stats.failed);
    ret->mismatches = atomic_load(&t->stats.mismatches);
    ret->uncached = atomic_load(&t->stats.uncached);
    ret->bytes = atomic_load(&t->stats.bytes);
    ret->resumed_bytes = atomic_load(&t->stats.resumed_bytes);
}
