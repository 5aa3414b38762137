/* One download: locate, receive, hash, write, resume, verify, commit. Runs on the transfer's
 * thread, which is the lead of its connections. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/transfer_private.h"

#define START_RETRIES 1 /* before the client has a status: fail soon, it can ask again */
#define START_PATIENCE_S 2
#define PROGRESS_MIN                                                                               \
    (64u << 10) /* fewer bytes from a connection are none: it must end some day                    \
                 */
#define RETRY_AFTER_MAX_S 30
#define WAIT_SLICE_MS 500u
#define HASH_BLOCKS 64u          /* between two looks at what else there is to do */
#define FORK_ABOVE (16ull << 20) /* what is smaller is not worth a thread */

/* ---- what stops it ------------------------------------------------------------------------ */

void transfer_break(struct transfer *x, const struct error *why)
{
    pthread_mutex_lock(&x->lock);
    if (x->broken.code == ERR_NONE && why->code != ERR_CANCELLED)
        x->broken = *why;
    atomic_store(&x->halt, true);
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

/* The cause, where another thread knows it better. */
static int stopped(struct transfer *x, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    struct error broken = x->broken;
    pthread_mutex_unlock(&x->lock);
    if (broken.code == ERR_NONE)
        return err_set(err, ERR_CANCELLED, "the transfer was stopped");
    *err = broken;
    return -1;
}

/* ---- hashing what is in the file ------------------------------------------------------------ */

/* The next bytes to hash, which are ours then; 0 when there are none or somebody is at it. */
static size_t take_block(struct transfer *x, uint64_t *ret_at)
{
    pthread_mutex_lock(&x->lock);
    uint64_t n = x->hashing ? 0 : extents_end(&x->here, x->hashed) - x->hashed;
    if (n > TRANSFER_BUFFER)
        n = TRANSFER_BUFFER;
    x->hashing = x->hashing || n;
    *ret_at = x->hashed;
    pthread_mutex_unlock(&x->lock);
    return (size_t)n;
}

static int hash_block(struct transfer *x, char *buffer, size_t n, uint64_t at, struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = writer_read(x->writer, at + done, buffer + done, n - done, err);
        if (got < 0)
            return -1;
        if (got == 0)
            return err_set(err, ERR_IO, "a partial download is shorter than its record");
        done += (size_t)got;
    }
    return hasher_update(x->hasher, buffer, n, err);
}

int transfer_hash_on(struct transfer *x, char *buffer, unsigned blocks, struct error *err)
{
    uint64_t at;
    for (size_t n; blocks && (n = take_block(x, &at)); blocks--) {
        int rc = hash_block(x, buffer, n, at, err);
        pthread_mutex_lock(&x->lock);
        x->hashing = false;
        if (rc == 0) {
            x->hashed += n;
            transfer_publish(x);
        }
        if (x->lead_waits)
            pthread_cond_broadcast(&x->cond);
        pthread_mutex_unlock(&x->lock);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* What an earlier attempt left. Before readers are let in: what one of them wants, and what seems
 * not to be here, would be fetched and written over bytes that may have been hashed by then. */
static int note_partial(struct transfer *x, struct error *err)
{
    uint64_t resumed = writer_resumed(x->writer), all = resumed, first, end;
    pthread_mutex_lock(&x->lock);
    bool ok = extents_add(&x->here, 0, resumed);
    lent_add_all(&x->lent, writer_lent(x->writer));
    for (size_t i = 0; ok && writer_resumed_part(x->writer, i, &first, &end); i++) {
        ok = extents_add(&x->here, first, end);
        all += end - first;
    }
    pthread_mutex_unlock(&x->lock);
    if (!ok)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    x->has_partial = all > 0;
    atomic_fetch_add(&x->table->stats.resumed_bytes, all);
    return 0;
}

/* It is believed only as far as it hashes to the right whole; readers get it while it is hashed. */
static int hash_partial(struct transfer *x, char *buffer, struct error *err)
{
    uint64_t resumed = writer_resumed(x->writer);
    for (uint64_t hashed = 0; hashed < resumed;) {
        if (atomic_load(&x->halt))
            return stopped(x, err);
        if (transfer_hash_on(x, buffer, HASH_BLOCKS, err) < 0)
            return -1;
        pthread_mutex_lock(&x->lock);
        hashed = x->hashed;
        pthread_mutex_unlock(&x->lock);
    }
    return 0;
}

/* ---- the lead ------------------------------------------------------------------------------- */

/* Whether clients have a status already. Those who have none are told of this failure. */
static bool have_status(struct transfer *x, const struct error *why)
{
    pthread_mutex_lock(&x->lock);
    bool have = x->state >= TRANSFER_HEADERS || x->begun;
    if (x->state < TRANSFER_HEADERS)
        x->refused = *why;
    pthread_mutex_unlock(&x->lock);
    return have;
}

/* Waits before the next attempt; false when there is none, for the reason that err tells. */
static bool may_retry(struct transfer *x, unsigned *failures, struct error *err)
{
    bool started = have_status(x, err);
    unsigned patience_s = started ? RETRY_AFTER_MAX_S : START_PATIENCE_S;
    if (++*failures > (started ? x->source.retries : START_RETRIES) ||
        err->retry_after > patience_s)
        return false;
    return http_pool_backoff(x->source.pool, *failures - 1, err->retry_after, &x->halt, err) == 0;
}

int transfer_locate(struct lead *l, unsigned number, struct error *err)
{
    struct transfer *x = l->f.x;
    while (transfer_relocate(x, number, err) < 0)
        if (transfer_judge(err) != OUT_RETRY || !may_retry(x, &l->failures, err))
            return -1;
    return 0;
}

/* Under x->lock: others bring the rest, or hash it. */
static void wait_for_others(struct transfer *x)
{
    if (!x->hashing && extents_end(&x->here, x->hashed) > x->hashed)
        return; /* there is something to hash */
    x->lead_waits = true;
    cond_wait_until(&x->cond, &x->lock, clock_monotonic_ms() + WAIT_SLICE_MS);
    x->lead_waits = false;
}

/* 1: something to bring, 0: all is here and hashed, -1. */
static int next_claim(struct transfer *x, struct fetch *f, struct error *err)
{
    for (;;) {
        if (transfer_hash_on(x, f->buffer, HASH_BLOCKS, err) < 0)
            return -1;
        if (atomic_load(&x->halt))
            return stopped(x, err);
        pthread_mutex_lock(&x->lock);
        transfer_serve_wants(x);
        enum claim claim = transfer_claim(x, f);
        bool done = claim == CLAIM_ALL && x->hashed == x->size;
        if (!done && (claim == CLAIM_ALL || claim == CLAIM_WAIT))
            wait_for_others(x);
        pthread_mutex_unlock(&x->lock);
        if (claim == CLAIM_SOME)
            return 1;
        if (done)
            return 0;
        if (claim == CLAIM_NONE && transfer_take_slot(x, err) < 0)
            return -1;
    }
}

int transfer_go_on(struct lead *l, enum outcome outcome, uint64_t got, unsigned number,
                   struct error *err)
{
    struct transfer *x = l->f.x;
    bool enough = l->f.at == transfer_claim_end(&l->f);
    if (got >= PROGRESS_MIN || enough) {
        l->failures = 0;
        l->relocated = false;
    } else if (outcome == OUT_PROGRESS) {
        err_set(err, ERR_UPSTREAM, "upstream %s gave only %" PRIu64 " of %" PRIu64 " bytes",
                x->source.upstream, got, transfer_claim_end(&l->f) - l->f.at + got);
        outcome = OUT_RETRY;
    }
    if (outcome == OUT_PROGRESS)
        return 0;
    if (atomic_load(&x->halt))
        return stopped(x, err);
    if (outcome == OUT_FATAL)
        return -1;
    if (outcome == OUT_RELOCATE) {
        if (l->relocated)
            return -1;
        l->relocated = true;
    } else if (!may_retry(x, &l->failures, err)) {
        return atomic_load(&x->halt) ? stopped(x, err) : -1;
    }
    /* A new connection gets a fresh location: the old one may be what broke, and the upstream is
     * asked again whether it still has this very object. */
    return transfer_locate(l, number, err);
}

static int receive(struct transfer *x, struct lead *l, struct error *err)
{
    for (;;) {
        int rc = next_claim(x, &l->f, err);
        if (rc <= 0)
            return rc;
        uint64_t before = l->f.at;
        unsigned number = transfer_location_number(x);
        enum outcome outcome = transfer_exchange(&l->f, err);
        pthread_mutex_lock(&x->lock);
        transfer_unclaim(x, &l->f);
        pthread_mutex_unlock(&x->lock);
        if (transfer_go_on(l, outcome, l->f.at - before, number, err) < 0)
            return -1;
    }
}

/* ---- the whole of it ---------------------------------------------------------------------- */

static int verify(struct transfer *x, struct error *err)
{
    struct digest got;
    char want_text[DIGEST_TEXT_MAX], got_text[DIGEST_TEXT_MAX];
    if (hasher_peek(x->hasher, &got, err) < 0)
        return -1;
    if (digest_equal(&got, &x->digest))
        return 0;
    /* First make it known, durably: from now on nobody may join a wrong beginning to a right end.
     */
    struct error ignored;
    int noted = transfer_note_lent(x, &ignored);
    err_set(err, ERR_DIGEST_MISMATCH,
            "the bytes from upstream \"%s\" hash to %s, not to the %s that it promised: nothing of "
            "them is kept%s",
            x->source.upstream, digest_format(&got, got_text), digest_format(&x->digest, want_text),
            noted < 0 ? " (and that could not be recorded)" : "");
    return -1;
}

static int open_writer(struct transfer *x, struct error *err)
{
    struct blob_writer *w = NULL;
    struct name_id source;
    if (!name_id_of(x->source.upstream, "", &source))
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    if (writer_open_from(x->table->store, &x->digest, x->size, &source, &w, err) < 0)
        return -1;
    pthread_mutex_lock(&x->lock);
    x->writer = w;
    pthread_mutex_unlock(&x->lock);
    uint64_t missing = x->size - writer_resumed(w), first, end;
    for (size_t i = 0; writer_resumed_part(w, i, &first, &end); i++)
        missing -= end - first;
    return store_has_room(x->table->store, missing, err);
}

static int fill_located(struct transfer *x, struct lead *l, struct error *err)
{
    if (transfer_locate(l, 0, err) < 0 || open_writer(x, err) < 0)
        return -1;
    x->opened = true;
    if (note_partial(x, err) < 0)
        return -1;
    l->failures = 0;
    if (x->has_partial) {
        /* The upstream has confirmed the object: what is here can be read while it is hashed. */
        transfer_advance(x, TRANSFER_HEADERS);
        if (hash_partial(x, l->f.buffer, err) < 0)
            return -1;
    }
    return receive(x, l, err);
}

/* 0 stored, 1 not; the readers get the end either way. */
static int store(struct transfer *x, struct error *err)
{
    if (x->through)
        return 1;
    if (writer_commit(x->writer, x->size, err) == 0)
        return 0;
    if (err->code != ERR_NO_SPACE && err->code != ERR_IO)
        return -1;
    transfer_deliver(x, err);
    return 1;
}

int transfer_fill(struct transfer *x, struct error *err)
{
    struct lead l = {.f = {.x = x, .kind = FETCH_LEAD, .buffer = malloc(TRANSFER_BUFFER)}};
    if (!l.f.buffer)
        return err_set(err, ERR_NOMEM, "out of memory for a transfer");
    if (x->size > FORK_ABOVE)
        hasher_fork(x->hasher);
    int rc = fill_located(x, &l, err);
    if (rc < 0)
        atomic_store(&x->halt, true);
    transfer_settle(x);
    if (rc < 0 && x->location.url && transfer_pass_through(x, err))
        rc = receive(x, &l, err);
    if (rc == 0)
        rc = verify(x, err);
    hasher_join(x->hasher);
    if (rc == 0)
        rc = store(x, err);
    free(l.f.buffer);
    return rc;
}
