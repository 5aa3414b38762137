/* Readers of a transfer: what they may have, and what is fetched for them at once. */
#include <string.h>

#include "base/clock.h"
#include "upstream/blame.h"
#include "upstream/transfer_private.h"

/* So far ahead of a connection, a reader's bytes are asked for at once; otherwise after a while, if
 * they have not come by themselves. */
#define FAR (16ull << 20)
#define PATIENCE_MS 500u
/* A reader that goes on in a part of its own finds the next bytes there. */
#define READ_AHEAD (2ull << 20)

uint64_t transfer_size(const struct transfer *x)
{
    return x->size;
}

bool transfer_is_answered(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    bool answered = x->answered;
    pthread_mutex_unlock(&x->lock);
    return answered;
}

bool transfer_has_no_parts(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    bool none = x->no_parts;
    pthread_mutex_unlock(&x->lock);
    return none;
}

bool transfer_is_contradicted(struct transfer *x, uint64_t *ret_size)
{
    pthread_mutex_lock(&x->lock);
    bool contradicted = x->state == TRANSFER_FAILED && x->contradicted;
    *ret_size = x->said;
    pthread_mutex_unlock(&x->lock);
    return contradicted;
}

static int failed(const struct transfer *x, struct error *err)
{
    if (err)
        *err = x->error;
    return -1;
}

int transfer_wait(struct transfer *x, uint64_t seen, enum transfer_state state,
                  uint64_t deadline_ms, uint64_t *ret_have, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&x->lock);
    for (;;) {
        if (x->state == TRANSFER_FAILED) {
            rc = failed(x, err);
            break;
        }
        if (x->have > seen || x->state >= state) {
            rc = 1;
            *ret_have = x->have;
            break;
        }
        if (clock_monotonic_ms() >= deadline_ms)
            break;
        cond_wait_until(&x->cond, &x->lock, deadline_ms);
    }
    pthread_mutex_unlock(&x->lock);
    return rc;
}

int transfer_begin(struct transfer *x, struct error *err)
{
    struct error why = ERROR_INIT;
    pthread_mutex_lock(&x->lock);
    if (x->state == TRANSFER_FAILED)
        why = x->error;
    else if (x->state == TRANSFER_STARTING)
        why = x->refused;
    bool begins = why.code == ERR_NONE;
    x->begun = x->begun || begins;
    pthread_mutex_unlock(&x->lock);
    if (begins)
        return 0;
    upstream_blame(&why, x->source.upstream);
    if (err)
        *err = why;
    return -1;
}

/* ---- parts -------------------------------------------------------------------------------- */

/* Under x->lock: up to where bytes can be had from `at` on. What is not hashed yet is good enough,
 * short of the withheld end. */
static uint64_t readable_end(const struct transfer *x, uint64_t at)
{
    if (x->of_part)
        return x->hashed;
    if (x->state == TRANSFER_DONE)
        return x->size;
    uint64_t end = extents_end(&x->here, at);
    uint64_t limit = x->size > TRANSFER_WITHHELD ? x->size - TRANSFER_WITHHELD : 0;
    if (end > limit)
        end = limit;
    return end > x->have ? end : x->have;
}

/* Under x->lock, which is let go for a moment where the transfer's thread waits for its slot: it
 * then waits on the table's condition. */
static void ask(struct transfer *x, uint64_t first, uint64_t end)
{
    struct transfers *t = x->table;
    if (first + TRANSFER_WITHHELD >= x->size || x->of_part)
        return; /* would be withheld, or comes anyway */
    transfer_want(x, first, end);
    if (x->has_slot || x->state >= TRANSFER_DONE)
        return;
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_lock(&x->lock);
}

void transfer_hurry(struct transfer *x, uint64_t first, uint64_t end)
{
    pthread_mutex_lock(&x->lock);
    if (!x->has_slot)
        ask(x, first, end);
    pthread_mutex_unlock(&x->lock);
}

int transfer_wait_part(struct transfer *x, uint64_t at, uint64_t end, uint64_t deadline_ms,
                       uint64_t *ret_end, struct error *err)
{
    int rc = 0;
    uint64_t impatient_ms = clock_monotonic_ms() + PATIENCE_MS, readable, far;
    pthread_mutex_lock(&x->lock);
    x->range_waits++;
    for (;;) {
        if (x->state == TRANSFER_FAILED) {
            rc = failed(x, err);
            break;
        }
        uint64_t now = clock_monotonic_ms();
        readable = readable_end(x, at);
        if (readable > at || x->state == TRANSFER_DONE) {
            rc = 1;
            *ret_end = readable;
            if (readable < end && readable - at < READ_AHEAD &&
                transfer_distance(x, readable) > FAR)
                ask(x, readable, end);
            break;
        }
        if (now >= deadline_ms)
            break;
        far = transfer_distance(x, at);
        if (far > FAR || (far > TRANSFER_NEAR && now >= impatient_ms))
            ask(x, at, end);
        cond_wait_until(&x->cond, &x->lock,
                        now < impatient_ms && impatient_ms < deadline_ms ? impatient_ms
                                                                         : deadline_ms);
    }
    x->range_waits--;
    pthread_mutex_unlock(&x->lock);
    return rc;
}

/* ---- bytes -------------------------------------------------------------------------------- */

static ssize_t read_file(struct transfer *x, struct blob_writer *w, uint64_t offset, void *buf,
                         size_t len, struct error *err)
{
    ssize_t n = writer_read(w, offset, buf, len, err);
    pthread_mutex_lock(&x->lock);
    if (--x->reads == 0)
        pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
    return n;
}

int transfer_lend(struct transfer *x, const char *repository, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    while (x->judged && x->state < TRANSFER_DONE)
        pthread_cond_wait(&x->cond, &x->lock);
    int rc = x->state == TRANSFER_FAILED ? failed(x, err) : 0;
    if (rc == 0)
        lent_add(&x->lent, repository);
    pthread_mutex_unlock(&x->lock);
    return rc;
}

/* Under x->lock. */
static void note_reader(struct transfer *x)
{
    if (lent_is_empty(&x->lent))
        x->lent.all = true;
}

/* The writer is read without the lock; `reads` keeps it open meanwhile. */
static ssize_t read_bytes(struct transfer *x, bool part, uint64_t offset, void *buf, size_t len,
                          struct error *err)
{
    ssize_t n = 0;
    pthread_mutex_lock(&x->lock);
    uint64_t end = part ? readable_end(x, offset) : x->have;
    uint64_t left = end > offset ? end - offset : 0, file = extents_end(&x->here, offset) - offset;
    struct blob *blob = x->blob;
    struct blob_writer *writer = NULL;
    if (len > left)
        len = (size_t)left;
    if (x->state == TRANSFER_FAILED) {
        n = failed(x, err);
    } else if (len && x->through && (!file || x->closing)) {
        note_reader(x);
        n = transfer_window_read(x, offset, buf, len, err);
    } else if (len && !blob) {
        writer = x->writer;
        len = len < file ? len : (size_t)file;
        x->reads++;
        note_reader(x);
    }
    pthread_mutex_unlock(&x->lock);
    if (n || !len)
        return n;
    return blob ? blob_read(blob, offset, buf, len, err)
                : read_file(x, writer, offset, buf, len, err);
}

ssize_t transfer_read(struct transfer *x, uint64_t offset, void *buf, size_t len, struct error *err)
{
    return read_bytes(x, false, offset, buf, len, err);
}

ssize_t transfer_read_part(struct transfer *x, uint64_t offset, void *buf, size_t len,
                           struct error *err)
{
    return read_bytes(x, true, offset, buf, len, err);
}
