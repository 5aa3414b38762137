#include "upstream/small.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "upstream/blame.h"
#include "upstream/caller.h"
#include "upstream/callers.h"
#include "upstream/lending.h"
#include "upstream/transfer.h"

#define SMALL_STACK (256u << 10)
/* An upstream that wants to be left alone for longer than a client waits: its answer is theirs. */
#define WAIT_MAX_S 5u
/* Before a client has to have an answer the Hub has to be connected, or has failed. */
#define CONNECT_MARGIN_MS 500u

struct smalls {
    struct store *store;
    struct lendings lendings;
    small_ended_fn ended;
    void *ended_ctx;

    pthread_mutex_t lock; /* guards: all below but the figures */
    pthread_cond_t changed;
    struct small *first; /* those that can be joined */
    unsigned running;    /* threads */
    uint64_t memory;     /* of all buffers */
    bool stopping;

    atomic_uint_fast64_t started, failed, mismatches, uncached;
};

enum small_state { /* only grows */
                   SMALL_RUNNING,
                   SMALL_DONE,
                   SMALL_FAILED,
};

/* Lock order: smalls.lock before small.lock. None of them is held over the lendings'. */
struct small {
    struct smalls *table;
    struct small *next; /* guarded by table->lock */
    struct hub *hub;
    char *id, *commit, *path;
    struct commit_file file; /* its path is the one above */
    struct callers callers;
    atomic_bool cancel;

    /* the fetch's own */
    uint64_t at;       /* where the running attempt is */
    uint64_t reached;  /* where the best one was */
    uint64_t received; /* over all attempts */

    pthread_mutex_t lock; /* guards: all below */
    pthread_cond_t cond;
    unsigned refs;
    enum small_state state;
    struct lending *lending; /* set once, by the fetch */
    uint64_t have;         /* only grows; what is below it in the buffer does not change any more */
    unsigned char *data;   /* the fetch writes behind `have` without the lock */
    struct blob *blob;     /* instead of data, once it is kept */
    struct error error;    /* FAILED: why; DONE: why it could not be kept, if it could not */
    struct error refused;  /* RUNNING: why nothing comes at the moment; its code NONE: it may */
    uint64_t answer_by_ms; /* of the last of its clients; 0 = there is one that can wait */
    bool begun;            /* the answer to a client, though there are no bytes */
};

static const char *prefix_of(const struct small *x)
{
    return hub_config(x->hub)->prefix;
}

/* ---- what clients may not resume ------------------------------------------------------------- */

/* Stands, among the digests that were got wrong, for a file whose digest is not known. */
static int stand_in(const char *upstream, const char *id, const char *git_oid, struct digest *ret,
                    struct error *err)
{
    char text[2 * REPOSITORY_MAX + 128];
    int n = snprintf(text, sizeof(text), "a git object: %s %s %s", upstream, id, git_oid);
    return digest_of(DIGEST_SHA256, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text), ret,
                     err);
}

static int barred(const char *repository, const char *path, uint64_t left, struct error *err)
{
    return err_set(err, ERR_DIGEST_MISMATCH,
                   "%s: bytes of %.400s that were sent out a short while ago were wrong, or were "
                   "lost here before they could be checked; what was received before must not be "
                   "resumed: delete the partial file and download it from byte 0 (ranges are "
                   "refused for another %" PRIu64 " s)",
                   repository, path, left);
}

int small_check_resume(struct small *x, const char *repository, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    while (!x->lending && x->state == SMALL_RUNNING)
        pthread_cond_wait(&x->cond, &x->lock);
    const struct lending *l = x->lending;
    pthread_mutex_unlock(&x->lock);
    uint64_t left = l ? lending_left(&x->table->lendings, l) : 0;
    return left ? barred(repository, x->path, left, err) : 0;
}

int small_check_resume_held(struct store *s, const char *repository, const char *upstream,
                            const char *id, const struct commit_file *file, struct error *err)
{
    struct digest d;
    if (stand_in(upstream, id, file->git_oid, &d, err) < 0)
        return -1;
    uint64_t left = store_mismatch_left(s, &d, repository);
    return left ? barred(repository, file->path, left, err) : 0;
}

static int begin_lending(struct small *x, struct error *err)
{
    struct lending *l;
    struct digest d;
    if (stand_in(prefix_of(x), x->id, x->file.git_oid, &d, err) < 0 ||
        lending_begin(&x->table->lendings, &d, &l, err) < 0)
        return -1;
    pthread_mutex_lock(&x->lock);
    x->lending = l;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

/* From here on the file goes by its digest: who must not resume it must not do so that way. */
static int carry_over(struct small *x, const struct digest *real, struct error *err)
{
    uint64_t left = lending_left(&x->table->lendings, x->lending);
    return left ? store_mismatch_put(x->table->store, real, clock_wall_s() + left, err) : 0;
}

/* ---- the fetch ------------------------------------------------------------------------------- */

static uint64_t size_of(const struct small *x)
{
    return x->file.size;
}

/* So much may be read before the object id has matched. */
static uint64_t open_end(const struct small *x)
{
    uint64_t size = size_of(x);
    return size > SMALL_WITHHELD ? size - SMALL_WITHHELD : 0;
}

/* `have` moves on this thread alone. What can not be announced waits until it has been checked. */
static void publish(struct small *x)
{
    uint64_t end = x->at < open_end(x) ? x->at : open_end(x);
    if (end <= x->have || lending_announce(&x->table->lendings, x->lending, NULL) < 0)
        return;
    pthread_mutex_lock(&x->lock);
    x->have = end;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

static void note_refusal(struct small *x, const struct error *why)
{
    pthread_mutex_lock(&x->lock);
    x->refused = *why;
    pthread_mutex_unlock(&x->lock);
}

/* What is below `have` may have gone out. */
static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct small *x = ctx;
    if (atomic_load(&x->cancel))
        return err_set(err, ERR_CANCELLED, "the server is shutting down");
    if (len > size_of(x) - x->at)
        return err_set(err, ERR_UPSTREAM, "%s: more than its %" PRIu64 " bytes came", x->path,
                       size_of(x));
    uint64_t again = x->have > x->at ? x->have - x->at : 0;
    size_t same = again < len ? (size_t)again : len;
    if (same && memcmp(x->data + x->at, data, same) != 0)
        return err_set(err, ERR_DIGEST_MISMATCH,
                       "%s at %.12s: after a broken connection other bytes came than before",
                       x->path, x->commit);
    memcpy(x->data + x->at + same, (const char *)data + same, len - same);
    if (x->at == 0)
        note_refusal(x, &ERROR_INIT);
    x->at += len;
    x->received += len;
    publish(x);
    return 0;
}

static int stream_as(void *ctx, struct hub *as, struct error *err)
{
    struct small *x = ctx;
    x->at = 0;
    if (hub_small_stream(as, x->id, x->commit, &x->file, on_data, x, err) < 0)
        return -1;
    if (x->at < size_of(x))
        return err_set(err, ERR_UPSTREAM, "%s: %" PRIu64 " bytes came of %" PRIu64, x->path, x->at,
                       size_of(x));
    return 0;
}

static bool may_pass(const struct error *why)
{
    return (why->code == ERR_UPSTREAM || why->code == ERR_TIMEOUT ||
            why->code == ERR_RATE_LIMITED) &&
           why->retry_after <= WAIT_MAX_S;
}

/* Until when somebody waits for a status: 0 = nobody does who could not go on to. */
static uint64_t answer_by(struct small *x)
{
    pthread_mutex_lock(&x->lock);
    uint64_t ms = x->begun || x->reached ? 0 : x->answer_by_ms;
    pthread_mutex_unlock(&x->lock);
    return ms;
}

static uint64_t connect_by(struct small *x)
{
    uint64_t ms = answer_by(x);
    return ms > CONNECT_MARGIN_MS ? ms - CONNECT_MARGIN_MS : 0;
}

/* What comes of another attempt would come too late for everybody. */
static bool is_too_late(struct small *x, const struct error *why)
{
    uint64_t until_ms = answer_by(x);
    return until_ms && clock_monotonic_ms() + why->retry_after * 1000ull >= until_ms;
}

/* All bytes, whatever the connections do. */
static int receive(struct small *x, struct error *err)
{
    struct http_pool *pool = hub_pool(x->hub);
    for (unsigned attempt = 0;; attempt++) {
        struct error why = ERROR_INIT;
        if (callers_ask(&x->callers, x->hub, connect_by(x), stream_as, x, &why) == 0)
            return 0;
        if (x->at > x->reached) {
            x->reached = x->at;
            attempt = 0;
        }
        if (!may_pass(&why) || attempt >= hub_config(x->hub)->retries || is_too_late(x, &why)) {
            *err = why;
            return -1;
        }
        note_refusal(x, &why);
        if (http_pool_backoff(pool, attempt, why.retry_after, &x->cancel, err) < 0)
            return -1;
    }
}

static int verify(const struct small *x, struct error *err)
{
    char oid[GIT_OID_TEXT];
    if (git_blob_oid(x->data, (size_t)size_of(x), oid, err) < 0)
        return -1;
    if (strcmp(oid, x->file.git_oid) == 0)
        return 0;
    return err_set(err, ERR_DIGEST_MISMATCH,
                   "%s at %.12s: the bytes that came have the git object id %s, the file list says "
                   "%s",
                   x->path, x->commit, oid, x->file.git_oid);
}

/* Under its sha256, so that it is fetched once and serves registry clients as well. */
static int keep(struct small *x, struct blob **ret, struct error *err)
{
    struct store *s = x->table->store;
    struct digest d;
    if (store_has_room(s, size_of(x), err) < 0 ||
        store_blob_put(s, x->data, (size_t)size_of(x), &d, err) < 0 || carry_over(x, &d, err) < 0 ||
        store_hub_object_put(s, prefix_of(x), x->id, x->file.git_oid, &d, err) < 0 ||
        store_hub_keep(s, prefix_of(x), x->id, x->commit, &d, err) < 0)
        return -1;
    int rc = store_blob_open(s, &d, ret, err);
    return rc > 0 ? 0 : rc < 0 ? -1 : err_set(err, ERR_IO, "%s is gone at once", x->path);
}

/* Whether it is there already: another fetch of it may have ended since this one's reader looked.
 */
static bool find_kept(struct small *x, struct blob **ret)
{
    struct store *s = x->table->store;
    struct blob *blob = NULL;
    struct digest d;
    if (store_hub_object_get(s, prefix_of(x), x->id, x->file.git_oid, &d, NULL) <= 0 ||
        store_blob_open(s, &d, &blob, NULL) <= 0)
        return false;
    if (blob_size(blob) != size_of(x) ||
        store_hub_keep(s, prefix_of(x), x->id, x->commit, &d, NULL) < 0) {
        blob_close(blob);
        return false;
    }
    *ret = blob;
    return true;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void let_go_of_memory(struct smalls *t, uint64_t size)
{
    pthread_mutex_lock(&t->lock);
    t->memory -= size;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void unlist(struct small *x)
{
    struct smalls *t = x->table;
    pthread_mutex_lock(&t->lock);
    for (struct small **p = &t->first; *p; p = &(*p)->next)
        if (*p == x) {
            *p = x->next;
            break;
        }
    pthread_mutex_unlock(&t->lock);
}

/* Readers learn of it. blob: reading goes on from there. */
static void settle(struct small *x, enum small_state state, struct blob *blob,
                   const struct error *why)
{
    unsigned char *data = NULL;
    pthread_mutex_lock(&x->lock);
    if (state == SMALL_DONE)
        x->have = size_of(x);
    x->error = *why;
    x->blob = blob;
    if (blob || state == SMALL_FAILED)
        data = TAKE_PTR(x->data);
    x->state = state;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
    if (data)
        let_go_of_memory(x->table, size_of(x));
    free(data);
}

/* Its bytes, from wherever: they are right, and kept unless there was no room. */
static bool get(struct small *x, struct blob **ret, struct error *why)
{
    struct smalls *t = x->table;
    if (begin_lending(x, why) < 0)
        return false;
    if (find_kept(x, ret))
        return true;
    if ((size_of(x) && receive(x, why) < 0) || verify(x, why) < 0)
        return false;
    if (keep(x, ret, why) < 0)
        atomic_fetch_add(&t->uncached, 1);
    return true;
}

static void run(struct small *x, struct error *why)
{
    struct smalls *t = x->table;
    struct blob *blob = NULL;
    bool right = get(x, &blob, why);
    if (!right) {
        upstream_blame(why, prefix_of(x));
        atomic_fetch_add(&t->failed, 1);
        atomic_fetch_add(&t->mismatches, why->code == ERR_DIGEST_MISMATCH);
    }
    /* What was published may have gone out. */
    if (x->lending)
        lending_end(&t->lendings, x->lending, !right && x->have > 0);
    unlist(x); /* who comes from here on finds it kept, or starts afresh */
    settle(x, right ? SMALL_DONE : SMALL_FAILED, blob, why);
}

static void *thread_main(void *arg)
{
    struct small *x = arg;
    struct smalls *t = x->table;
    struct error why = ERROR_INIT;
    uint64_t began = clock_monotonic_ms();
    pthread_setname_np(pthread_self(), "small");
    run(x, &why);
    if (t->ended) {
        const struct small_ended what = {.upstream = prefix_of(x),
                                         .id = x->id,
                                         .commit = x->commit,
                                         .path = x->path,
                                         .size = size_of(x),
                                         .received = x->received,
                                         .ms = clock_monotonic_ms() - began};
        t->ended(t->ended_ctx, &what, why.code == ERR_NONE ? NULL : &why);
    }
    small_unref(x);
    pthread_mutex_lock(&t->lock);
    t->running--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool is_same(const struct small *x, const struct small_source *from)
{
    return x->hub == from->hub && x->file.size == from->file->size &&
           strcmp(x->path, from->file->path) == 0 && strcmp(x->commit, from->commit) == 0 &&
           strcmp(x->id, from->id) == 0 && strcmp(x->file.git_oid, from->file->git_oid) == 0;
}

/* Under t->lock. */
static struct small *find(struct smalls *t, const struct small_source *from)
{
    for (struct small *x = t->first; x; x = x->next)
        if (is_same(x, from)) {
            pthread_mutex_lock(&x->lock);
            x->refs++;
            if (!from->answer_by_ms || (x->answer_by_ms && x->answer_by_ms < from->answer_by_ms))
                x->answer_by_ms = from->answer_by_ms;
            pthread_mutex_unlock(&x->lock);
            return x;
        }
    return NULL;
}

static void small_free(struct small *x)
{
    lending_unref(&x->table->lendings, x->lending);
    free(x->id);
    free(x->commit);
    free(x->path);
    free(x->data);
    blob_close(x->blob);
    callers_done(&x->callers);
    pthread_cond_destroy(&x->cond);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static int small_init(struct small *x, struct error *err)
{
    if (pthread_mutex_init(&x->lock, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    if (cond_init_monotonic(&x->cond)) {
        pthread_mutex_destroy(&x->lock);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    if (callers_init(&x->callers, err) < 0) {
        pthread_cond_destroy(&x->cond);
        pthread_mutex_destroy(&x->lock);
        return -1;
    }
    return 0;
}

static struct small *small_new(struct smalls *t, const struct small_source *from, struct error *err)
{
    struct small *x = calloc(1, sizeof(*x));
    if (!x) {
        err_set(err, ERR_NOMEM, "out of memory for a file");
        return NULL;
    }
    if (small_init(x, err) < 0) {
        free(x);
        return NULL;
    }
    x->table = t;
    x->hub = from->hub;
    x->refs = 1;
    x->id = strdup(from->id);
    x->commit = strdup(from->commit);
    x->path = strdup(from->file->path);
    x->data = malloc(from->file->size ? (size_t)from->file->size : 1);
    if (!x->id || !x->commit || !x->path || !x->data) {
        err_set(err, ERR_NOMEM, "out of memory for a file");
        small_free(x);
        return NULL;
    }
    x->file = *from->file;
    x->file.path = x->path;
    x->answer_by_ms = from->answer_by_ms;
    return x;
}

static int too_large(const struct commit_file *f, struct error *err)
{
    return err_set(err, ERR_TOO_LARGE,
                   "%.400s has %" PRIu64 " bytes, and a file that is not kept in LFS may have %u",
                   f->path, f->size, HUB_SMALL_FILE_MAX);
}

static int busy(struct error *err)
{
    err_set(err, ERR_BUSY, "too many small files are being fetched at once: try again");
    if (err)
        err->retry_after = SMALL_BUSY_S;
    return -1;
}

/* Under t->lock, which is let go meanwhile: until the fetch can be joined or begun. */
static int find_or_wait(struct smalls *t, const struct small_source *from, struct small **ret,
                        struct error *err)
{
    uint64_t deadline_ms = caller_deadline(SMALL_PATIENCE_MS);
    for (;;) {
        if (t->stopping)
            return err_set(err, ERR_CANCELLED, "the server is shutting down");
        *ret = find(t, from);
        if (*ret ||
            (t->running < SMALL_THREADS_MAX && t->memory + from->file->size <= SMALL_MEMORY_MAX))
            return 0;
        if (!cond_wait_until(&t->changed, &t->lock, deadline_ms))
            return busy(err);
    }
}

/* Under t->lock. */
static struct small *start(struct smalls *t, const struct small_source *from, struct error *err)
{
    struct small *x = small_new(t, from, err);
    if (!x)
        return NULL;
    callers_add(&x->callers, from->token);
    x->refs = 2; /* the thread's, and the reader's */
    if (thread_detached(thread_main, x, SMALL_STACK)) {
        err_set(err, ERR_NOMEM, "no thread could be started for a file");
        small_free(x);
        return NULL;
    }
    x->next = t->first;
    t->first = x;
    t->running++;
    t->memory += size_of(x);
    return x;
}

int small_join(struct smalls *t, const struct small_source *from, struct small **ret,
               bool *ret_started, struct error *err)
{
    struct small *x = NULL;
    if (from->file->size > HUB_SMALL_FILE_MAX)
        return too_large(from->file, err);
    pthread_mutex_lock(&t->lock);
    int rc = find_or_wait(t, from, &x, err);
    bool joined = x != NULL;
    if (rc == 0 && !x)
        x = start(t, from, err);
    pthread_mutex_unlock(&t->lock);
    if (!x)
        return -1;
    if (joined)
        callers_add(&x->callers, from->token);
    else
        atomic_fetch_add(&t->started, 1);
    *ret = x;
    *ret_started = !joined;
    return 0;
}

void small_unref(struct small *x)
{
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    bool last = --x->refs == 0;
    bool has_data = x->data != NULL;
    pthread_mutex_unlock(&x->lock);
    if (!last)
        return;
    if (has_data) /* it could not be kept */
        let_go_of_memory(x->table, size_of(x));
    small_free(x);
}

/* ---- reading --------------------------------------------------------------------------------- */

int small_wait(struct small *x, uint64_t seen, uint64_t deadline_ms, uint64_t *ret_have,
               struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&x->lock);
    while (x->state == SMALL_RUNNING && x->have <= seen &&
           cond_wait_until(&x->cond, &x->lock, deadline_ms))
        ;
    if (x->have > seen || x->state == SMALL_DONE) {
        *ret_have = x->have;
        rc = 1;
    }
    if (x->state == SMALL_FAILED) {
        if (err)
            *err = x->error;
        rc = -1;
    }
    pthread_mutex_unlock(&x->lock);
    return rc;
}

int small_begin(struct small *x, uint64_t deadline_ms, struct error *err)
{
    struct error why = ERROR_INIT;
    uint64_t have;
    int rc = small_wait(x, 0, deadline_ms, &have, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    pthread_mutex_lock(&x->lock);
    if (x->state == SMALL_FAILED)
        why = x->error;
    else if (x->state == SMALL_RUNNING)
        why = x->refused;
    bool begins = why.code == ERR_NONE;
    x->begun = x->begun || begins;
    pthread_mutex_unlock(&x->lock);
    if (begins)
        return 0;
    upstream_blame(&why, prefix_of(x));
    if (err)
        *err = why;
    return -1;
}

int small_wait_kept(struct small *x, uint64_t deadline_ms, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    while (x->state == SMALL_RUNNING && cond_wait_until(&x->cond, &x->lock, deadline_ms))
        ;
    int rc = x->state == SMALL_RUNNING ? 0 : x->error.code == ERR_NONE ? 1 : -1;
    if (rc < 0 && err)
        *err = x->error;
    pthread_mutex_unlock(&x->lock);
    return rc;
}

ssize_t small_read(struct small *x, uint64_t offset, void *buf, size_t len, struct error *err)
{
    struct blob *blob = NULL;
    ssize_t n = 0;
    pthread_mutex_lock(&x->lock);
    if (x->state == SMALL_FAILED) {
        if (err)
            *err = x->error;
        n = -1;
    } else if (x->blob) {
        blob = x->blob; /* for as long as there is a reader */
    } else if (offset < x->have) {
        uint64_t there = x->have - offset;
        n = (ssize_t)(there < len ? there : len);
        memcpy(buf, x->data + offset, (size_t)n);
    }
    pthread_mutex_unlock(&x->lock);
    return blob ? blob_read(blob, offset, buf, len, err) : n;
}

/* ---- the table ------------------------------------------------------------------------------- */

int smalls_new(struct store *s, struct smalls **ret, struct error *err)
{
    struct smalls *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ERR_NOMEM, "out of memory for small files");
    t->store = s;
    if (lendings_init(&t->lendings, s, err) < 0) {
        free(t);
        return -1;
    }
    if (pthread_mutex_init(&t->lock, NULL)) {
        lendings_done(&t->lendings);
        free(t);
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    }
    if (cond_init_monotonic(&t->changed)) {
        pthread_mutex_destroy(&t->lock);
        lendings_done(&t->lendings);
        free(t);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    *ret = t;
    return 0;
}

void smalls_stop(struct smalls *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    for (struct small *x = t->first; x; x = x->next)
        atomic_store(&x->cancel, true);
    pthread_cond_broadcast(&t->changed);
    while (t->running)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void smalls_free(struct smalls *t)
{
    if (!t)
        return;
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    lendings_done(&t->lendings);
    free(t);
}

void smalls_on_end(struct smalls *t, small_ended_fn fn, void *ctx)
{
    t->ended = fn;
    t->ended_ctx = ctx;
}

void smalls_stats(struct smalls *t, struct small_stats *ret)
{
    pthread_mutex_lock(&t->lock);
    ret->running = t->running;
    pthread_mutex_unlock(&t->lock);
    ret->started = atomic_load(&t->started);
    ret->failed = atomic_load(&t->failed);
    ret->mismatches = atomic_load(&t->mismatches);
    ret->uncached = atomic_load(&t->uncached);
}
