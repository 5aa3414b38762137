/* No room for the file, and a reader wants a part of it that ends before the withheld end: the part
 * is asked for by itself, in pieces that fit into the window, each when the reader has read so far
 * that there is room for it. No connection is held while a reader is slow.
 *
 * Every answer has to be a 206 of just these bytes of a file of the right size, with no other
 * strong ETag than the first one had; a Hub is asked where they are, of this commit and sha256,
 * before. Nobody can hash them. So the clients of that repository are not given what is missing to
 * a whole file: who has such bytes gets no range of the end, and who has the end gets no such
 * bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "upstream/transfer_private.h"

#define PIECE (1ull << 20) /* less room is not worth a request */
#define WAIT_MS 500u
#define NOTED_S (TRANSFER_MISMATCH_S / 2) /* then the note is renewed */

/* ---- what goes with it, and what does not ---------------------------------------------------- */

/* For those who have an end. Not the name of a repository. */
static void name_end(const char *repository, char ret[static REPOSITORY_MAX + 8])
{
    snprintf(ret, REPOSITORY_MAX + 8, "%.*s:end", (int)REPOSITORY_MAX, repository);
}

static int note(struct transfers *t, const struct digest *d, const char *name, struct error *err)
{
    struct lent lent = {.n = 0};
    lent_add(&lent, name);
    return store_mismatch_put_to(t->store, d, &lent, clock_wall_s() + TRANSFER_MISMATCH_S, err);
}

/* Of two that come at the same time, at most one is let go on: both note first, then look. */
static int may_have(struct transfers *t, const struct digest *d, const char *name,
                    const char *other, struct error *err)
{
    if (store_mismatch_left(t->store, d, other))
        return 0;
    if (note(t, d, name, err) < 0)
        return -1;
    return store_mismatch_left(t->store, d, other) == 0;
}

bool transfer_has_end(struct transfers *t, const struct digest *d, const char *repository)
{
    char end[REPOSITORY_MAX + 8];
    name_end(repository, end);
    return store_mismatch_left(t->store, d, end) > 0;
}

int transfer_may_part(struct transfers *t, const struct digest *d, const char *repository,
                      struct error *err)
{
    char end[REPOSITORY_MAX + 8];
    name_end(repository, end);
    return may_have(t, d, repository, end, err);
}

int transfer_may_end(struct transfers *t, const struct digest *d, const char *repository,
                     struct error *err)
{
    char end[REPOSITORY_MAX + 8];
    name_end(repository, end);
    return may_have(t, d, end, repository, err);
}

/* ---- the bytes ------------------------------------------------------------------------------- */

void transfer_part_put(struct fetch *f, size_t n)
{
    struct transfer *x = f->x;
    pthread_mutex_lock(&x->lock);
    transfer_window_put(x, f->buffer, n);
    f->at += n;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

/* How far the window reaches, with the reader where it is. */
static uint64_t window_end(const struct transfer *x)
{
    uint64_t from = x->places && x->places->at > x->part.first ? x->places->at : x->part.first;
    uint64_t end = from + TRANSFER_WINDOW;
    return end < x->part.end ? end : x->part.end;
}

/* Sets the next piece; false: it has been stopped. */
static bool next_piece(struct transfer *x, struct fetch *f)
{
    pthread_mutex_lock(&x->lock);
    for (;;) {
        uint64_t end = window_end(x);
        f->end = end > f->at ? end : f->at;
        if (atomic_load(&x->halt) || f->end - f->at >= PIECE || f->end == x->part.end)
            break;
        cond_wait_until(&x->cond, &x->lock, clock_monotonic_ms() + WAIT_MS);
    }
    pthread_mutex_unlock(&x->lock);
    return !atomic_load(&x->halt);
}

static int no_parts(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    x->no_parts = true;
    pthread_mutex_unlock(&x->lock);
    return -1;
}

static int renew(struct transfer *x, uint64_t *noted_ms, struct error *err)
{
    uint64_t now = clock_monotonic_ms();
    if (now - *noted_ms < NOTED_S * 1000ull)
        return 0;
    *noted_ms = now;
    return transfer_note_readers(x, err);
}

static int receive(struct transfer *x, struct lead *l, struct error *err)
{
    struct fetch *f = &l->f;
    uint64_t noted_ms = clock_monotonic_ms();
    while (f->at < x->part.end) {
        if (!next_piece(x, f))
            return err_set(err, ERR_CANCELLED, "the transfer was stopped");
        if (renew(x, &noted_ms, err) < 0)
            return -1;
        uint64_t before = f->at;
        unsigned number = transfer_location_number(x);
        enum outcome outcome = transfer_exchange(f, err);
        if (f->unfit)
            return no_parts(x);
        if (f->at == x->part.end)
            break; /* the reader may have left with it before the answer has ended */
        if (transfer_go_on(l, outcome, f->at - before, number, err) < 0)
            return -1;
    }
    return 0;
}

int transfer_bring_part(struct transfer *x, struct error *err)
{
    _cleanup_free_ char *buffer = malloc(TRANSFER_BUFFER), *window = malloc(TRANSFER_WINDOW);
    struct lead l = {
        .f = {
            .x = x, .kind = FETCH_PART, .buffer = buffer, .at = x->part.first, .end = x->part.end}};
    struct error ignored;
    if (!buffer || !window)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    pthread_mutex_lock(&x->lock);
    x->window = TAKE_PTR(window);
    pthread_mutex_unlock(&x->lock);
    if (transfer_locate(&l, 0, err) < 0)
        return -1;
    l.failures = 0;
    if (receive(x, &l, err) < 0)
        return -1; /* who ends a transfer that failed renews the note */
    transfer_note_lent(x, &ignored);
    return 1;
}

/* ---- who begins it --------------------------------------------------------------------------- */

int transfer_begin_part(struct transfers *t, const struct digest *d, uint64_t size,
                        struct transfer_source *source, const struct transfer_part *p,
                        struct transfer **ret, struct error *err)
{
    struct transfer *x = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->stopping)
        err_set(err, ERR_CANCELLED, "the server is shutting down");
    else
        x = transfer_start(t, d, size, source, p, err);
    pthread_mutex_unlock(&t->lock);
    transfer_source_release(source);
    *ret = x;
    return x ? 0 : -1;
}
