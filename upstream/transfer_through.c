/* No room for the file: its bytes go through a window in memory to the readers and are not kept.
 * There is one connection, in order, and every byte is hashed, so that the end is withheld as
 * always. The window waits for the slowest reader, each for so long in all; whoever needed more is
 * cut, so that it holds up nobody. What had been written before is read from the file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/transfer_private.h"

#define PATIENCE_MS 10000u
#define SLICE_MS 100u

static bool is_ours(const struct error *why)
{
    return why->code == ERR_NO_SPACE || why->code == ERR_IO;
}

/* Under x->lock. */
static void begin(struct transfer *x, const struct error *why)
{
    x->through = true;
    x->why = *why;
    err_wrap(&x->why, "not stored, only passed through");
    x->broken = ERROR_INIT;
    x->target = 1;
    atomic_store(&x->halt, false);
    if (atomic_load(&x->cancel))
        atomic_store(&x->halt, true);
    atomic_fetch_add(&x->table->stats.uncached, 1);
}

/* What stands for the passed bytes of a file among the digests that were got wrong. */
static int stand_in(const struct digest *d, struct digest *ret, struct error *err)
{
    static const char what[] = "passed through ";
    char text[sizeof(what) + DIGEST_TEXT_MAX], digest[DIGEST_TEXT_MAX];
    int n = snprintf(text, sizeof(text), "%s%s", what, digest_format(d, digest));
    return digest_of(DIGEST_SHA256, text, (size_t)n, ret, err);
}

uint64_t transfers_passed_left(struct transfers *t, const struct digest *d, bool *ret_running)
{
    struct digest passed;
    *ret_running = false;
    return stand_in(d, &passed, NULL) < 0 ? TRANSFER_MISMATCH_S
                                          : lendings_left(&t->lendings, &passed, ret_running);
}

void transfer_end_lending(struct transfer *x, bool suspect)
{
    struct lendings *t = &x->table->lendings;
    if (x->lending)
        lending_end(t, x->lending, suspect);
    lending_unref(t, TAKE_PTR(x->lending));
}

static int begin_lending(struct transfer *x)
{
    struct lendings *t = &x->table->lendings;
    struct digest passed;
    struct error ignored;
    if (stand_in(&x->digest, &passed, &ignored) < 0 ||
        lending_begin(t, &passed, &x->lending, &ignored) < 0)
        return -1;
    if (lending_announce(t, x->lending, &ignored) == 0)
        return 0;
    transfer_end_lending(x, false);
    return -1;
}

bool transfer_pass_through(struct transfer *x, const struct error *why)
{
    bool opening = !x->opened;
    if (!(is_ours(why) || (opening && why->code == ERR_BUSY)) || x->through)
        return false;
    if (begin_lending(x) < 0)
        return false; /* a crash would leave nothing that tells whom it went to */
    char *window = malloc(TRANSFER_WINDOW);
    pthread_mutex_lock(&x->lock);
    bool wanted = window && x->readers && !atomic_load(&x->cancel);
    /* What was opened without room for more holds the room of the whole file. */
    struct blob_writer *writer = wanted && opening ? TAKE_PTR(x->writer) : NULL;
    if (wanted) {
        x->window = TAKE_PTR(window);
        begin(x, why);
    }
    pthread_mutex_unlock(&x->lock);
    free(window);
    writer_close(writer, true);
    if (!wanted)
        transfer_end_lending(x, false);
    return wanted;
}

void transfer_deliver(struct transfer *x, const struct error *why)
{
    pthread_mutex_lock(&x->lock);
    begin(x, why);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the window ----------------------------------------------------------------------------- */

/* Under x->lock. Whether a reader still has to read something before `limit`; it is charged for
 * the time that it is waited for. Those that have not said where they are have yet to begin. */
static bool is_held_up(struct transfer *x, uint64_t limit, uint64_t charged_ms)
{
    bool held_up = false;
    unsigned listed = 0;
    for (struct transfer_place *p = x->places; p; p = p->next) {
        listed++;
        if (p->at >= limit || p->late)
            continue;
        p->waited_ms += charged_ms;
        p->late = p->waited_ms > PATIENCE_MS;
        held_up = held_up || !p->late;
    }
    if (listed < x->readers && x->unlisted_ms <= PATIENCE_MS) {
        x->unlisted_ms += charged_ms;
        held_up = true;
    }
    return held_up;
}

/* Under x->lock. Returns when nobody that counts needs what is before `limit`. */
static void wait_for_readers(struct transfer *x, uint64_t limit)
{
    uint64_t before = clock_monotonic_ms(), now = before;
    while (!atomic_load(&x->halt) && is_held_up(x, limit, now - before)) {
        before = now;
        cond_wait_until(&x->cond, &x->lock, now + SLICE_MS);
        now = clock_monotonic_ms();
    }
}

void transfer_window_put(struct transfer *x, const char *data, size_t n)
{
    size_t at = (size_t)(x->hashed % TRANSFER_WINDOW);
    size_t first = n < TRANSFER_WINDOW - at ? n : (size_t)(TRANSFER_WINDOW - at);
    memcpy(x->window + at, data, first);
    memcpy(x->window, data + first, n - first);
    x->hashed += n;
}

int transfer_through_put(struct fetch *f, size_t n, struct error *err)
{
    struct transfer *x = f->x;
    if (hasher_update(x->hasher, f->buffer, n, err) < 0 ||
        lending_announce(&x->table->lendings, x->lending, err) < 0)
        return -1;
    pthread_mutex_lock(&x->lock);
    uint64_t end = x->hashed + n, limit = end > TRANSFER_WINDOW ? end - TRANSFER_WINDOW : 0;
    if (limit > extents_end(&x->here, 0))
        atomic_store(&x->closed, true); /* who comes now does not find the beginning */
    wait_for_readers(x, limit);
    transfer_window_put(x, f->buffer, n);
    f->at += n;
    transfer_publish(x);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

ssize_t transfer_window_read(struct transfer *x, uint64_t offset, void *buf, size_t len,
                             struct error *err)
{
    if (!x->window || offset + TRANSFER_WINDOW < x->hashed) {
        if (err)
            *err = x->why;
        return err_wrap(err, "this client was too slow to go on without the file");
    }
    size_t at = (size_t)(offset % TRANSFER_WINDOW);
    if (len > TRANSFER_WINDOW - at)
        len = (size_t)(TRANSFER_WINDOW - at);
    uint64_t file = extents_next(&x->here, offset);
    if (len > file - offset)
        len = (size_t)(file - offset);
    memcpy(buf, x->window + at, len);
    return (ssize_t)len;
}

int transfer_is_kept(struct transfer *x, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    bool through = x->through;
    if (through && err)
        *err = x->why;
    pthread_mutex_unlock(&x->lock);
    return through ? -1 : 0;
}

/* ---- its readers ---------------------------------------------------------------------------- */

void transfer_move(struct transfer *x, struct transfer_place *p, uint64_t at)
{
    pthread_mutex_lock(&x->lock);
    if (!p->listed) {
        p->next = x->places;
        x->places = p;
        p->listed = true;
    }
    p->at = at;
    if (x->through)
        pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

void transfer_leave(struct transfer *x, struct transfer_place *p)
{
    pthread_mutex_lock(&x->lock);
    for (struct transfer_place **at = &x->places; p->listed && *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    p->listed = false;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

void transfer_see_off(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    x->have = x->size;
    x->state = TRANSFER_DONE;
    pthread_cond_broadcast(&x->cond);
    wait_for_readers(x, x->size);
    free(TAKE_PTR(x->window)); /* from here on nothing more is given */
    x->closing = true;
    while (x->reads)
        pthread_cond_wait(&x->cond, &x->lock);
    struct blob_writer *writer = TAKE_PTR(x->writer);
    /* A file that could be written to its end needs no more than its name. A part of one was given
     * up by the disk, and would be for ever in its way. */
    bool whole = extents_end(&x->here, 0) == x->size;
    pthread_mutex_unlock(&x->lock);
    writer_close(writer, whole);
}
