/* The one thread that writes rows.
 *
 * What is queued while a commit is running goes into the next one together, so many callers share
 * one sync of the disk. When an operation of a batch fails (a tag that is not there, a full disk),
 * the batch is given up and its operations run again, each in a transaction of its own: nobody pays
 * for a neighbour, and no result is based on rows that were never committed.
 *
 * Lazy operations wake the thread after LAZY_DELAY_MS at most. The queue keeps its order, so a lazy
 * operation is never overtaken by a later one.
 */
#include "storage/meta_private.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define BATCH_MAX 512
#define BATCH_BYTES                                                                                \
    ((size_t)64 << 20) /* what a transaction writes is in memory until it commits                  \
                        */
#define LAZY_MAX 4096
#define LAZY_DELAY_MS 20

static int commit_ops(struct meta *m, struct meta_op *first, const struct meta_op *end,
                      struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(m->env, NULL, 0, &txn);
    if (rc != 0) {
        txn = NULL;
        return meta_failed(m, rc, "begin", err);
    }
    for (struct meta_op *op = first; op != end; op = op->next)
        if (op->run(m, txn, op->arg, err) < 0)
            return -1;
    rc = mdb_txn_commit(TAKE_PTR(txn));
    return rc == 0 ? 0 : meta_failed(m, rc, "commit", err);
}

static void run_batch(struct meta *m, struct meta_op *batch)
{
    struct error err = ERROR_INIT;
    if (commit_ops(m, batch, NULL, &err) == 0) {
        for (struct meta_op *op = batch; op; op = op->next)
            op->rc = 0;
        return;
    }
    if (!batch->next) {
        batch->rc = -1;
        batch->err = err;
        return;
    }
    for (struct meta_op *op = batch; op; op = op->next)
        op->rc = commit_ops(m, op, op->next, &op->err);
}

/* Called with the lock held; NULL when stopped and empty. */
static struct meta_op *take_batch(struct meta *m)
{
    uint64_t lazy_deadline = 0;
    while (m->n_urgent == 0 && !m->stop) {
        if (m->n_lazy == 0) {
            lazy_deadline = 0;
            pthread_cond_wait(&m->work, &m->lock);
            continue;
        }
        if (lazy_deadline == 0)
            lazy_deadline = clock_monotonic_ms() + LAZY_DELAY_MS;
        if (!cond_wait_until(&m->work, &m->lock, lazy_deadline))
            break;
    }
    struct meta_op *batch = m->first;
    struct meta_op **end = &m->first;
    size_t bytes = 0;
    for (size_t n = 0; *end && n < BATCH_MAX && bytes < BATCH_BYTES; n++) {
        bytes += (*end)->bytes;
        if ((*end)->lazy)
            m->n_lazy--;
        else
            m->n_urgent--;
        end = &(*end)->next;
    }
    m->first = *end;
    *end = NULL;
    if (!m->first)
        m->last = &m->first;
    return batch;
}

static void *writer_thread(void *arg)
{
    struct meta *m = arg;
    pthread_setname_np(pthread_self(), "meta-writer");
    pthread_mutex_lock(&m->lock);
    for (;;) {
        struct meta_op *batch = take_batch(m);
        if (!batch) {
            if (m->stop)
                break;
            continue;
        }
        pthread_mutex_unlock(&m->lock);
        run_batch(m, batch);
        meta_reserve(m);
        pthread_mutex_lock(&m->lock);
        while (batch) {
            struct meta_op *op = batch;
            batch = op->next; /* op is its caller's again once done is set and the lock released */
            if (op->lazy) {
                op->free_arg(op->arg);
                free(op);
            } else {
                op->done = true;
            }
        }
        pthread_cond_broadcast(&m->finished);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int meta_writer_start(struct meta *m, struct error *err)
{
    m->last = &m->first;
    if (pthread_mutex_init(&m->lock, NULL) != 0)
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    if (cond_init_monotonic(&m->work) != 0) {
        pthread_mutex_destroy(&m->lock);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    sigset_t all, old;
    sigfillset(&all);
    int rc = cond_init_monotonic(&m->finished);
    if (rc == 0) {
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = pthread_create(&m->thread, NULL, writer_thread, m);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc != 0)
            pthread_cond_destroy(&m->finished);
    }
    if (rc != 0) {
        pthread_cond_destroy(&m->work);
        pthread_mutex_destroy(&m->lock);
        return err_set(err, ERR_NOMEM, "cannot start the metadata writer: %s", strerror(abs(rc)));
    }
    m->thread_runs = true;
    return 0;
}

void meta_writer_stop(struct meta *m)
{
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->thread_runs = false;
    pthread_cond_destroy(&m->finished);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
}

static void enqueue(struct meta *m, struct meta_op *op)
{
    *m->last = op;
    m->last = &op->next;
    if (op->lazy)
        m->n_lazy++;
    else
        m->n_urgent++;
    pthread_cond_signal(&m->work);
}

void meta_write_start(struct meta *m, struct meta_op *op)
{
    pthread_mutex_lock(&m->lock);
    enqueue(m, op);
    pthread_mutex_unlock(&m->lock);
}

int meta_write_wait(struct meta *m, struct meta_op *op, struct error *err)
{
    pthread_mutex_lock(&m->lock);
    while (!op->done)
        pthread_cond_wait(&m->finished, &m->lock);
    pthread_mutex_unlock(&m->lock);
    if (op->rc < 0 && err)
        *err = op->err;
    return op->rc;
}

int meta_write(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
               void *arg, struct error *err)
{
    return meta_write_large(m, run, arg, 0, err);
}

int meta_write_large(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
                     void *arg, size_t bytes, struct error *err)
{
    struct meta_op op = {.run = run, .arg = arg, .bytes = bytes};
    meta_write_start(m, &op);
    return meta_write_wait(m, &op, err);
}

void meta_write_later(struct meta *m, int (*run)(struct meta *, MDB_txn *, void *, struct error *),
                      void *arg, void (*free_arg)(void *))
{
    struct meta_op *op = calloc(1, sizeof(*op));
    if (!op) {
        free_arg(arg);
        return;
    }
    *op = (struct meta_op){.run = run, .arg = arg, .free_arg = free_arg, .lazy = true};
    pthread_mutex_lock(&m->lock);
    bool full = m->n_lazy >= LAZY_MAX;
    if (!full)
        enqueue(m, op);
    pthread_mutex_unlock(&m->lock);
    if (full) {
        free_arg(arg);
        free(op);
    }
}
