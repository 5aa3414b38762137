#include "upstream/inquiry.h"

#include "base/clock.h"
#include "base/thread.h"

#define CIRCLE_PATIENCE_MS 10000u
#define THREAD_STACK (1u << 20)

int inquiry_start(struct inquiry_table *t, const struct inquiry_kind *kind, const char *upstream,
                  struct error *err)
{
    t->kind = kind;
    t->upstream = upstream;
    if (cond_init_monotonic(&t->landed))
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    pthread_mutex_init(&t->lock, NULL);
    return 0;
}

void inquiry_stop(struct inquiry_table *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    while (t->threads)
        pthread_cond_wait(&t->landed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void inquiry_end(struct inquiry_table *t)
{
    pthread_cond_destroy(&t->landed);
    pthread_mutex_destroy(&t->lock);
}

void inquiry_lock(struct inquiry_table *t)
{
    pthread_mutex_lock(&t->lock);
}

void inquiry_unlock(struct inquiry_table *t)
{
    pthread_mutex_unlock(&t->lock);
}

/* ---- one question ---------------------------------------------------------------------------- */

static void land(struct inquiry_table *t, struct inquiry *x)
{
    struct inquiry **at = &t->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->done = true;
    t->late -= x->late;
    pthread_cond_broadcast(&t->landed);
}

void inquiry_answer(struct inquiry *x)
{
    struct inquiry_table *t = x->table;
    pthread_mutex_unlock(&t->lock);
    t->kind->ask(x);
    pthread_mutex_lock(&t->lock);
    land(t, x);
}

void inquiry_leave(struct inquiry *x)
{
    if (--x->users == 0)
        x->table->kind->free(x);
}

static void *thread_main(void *arg)
{
    struct inquiry *x = arg;
    struct inquiry_table *t = x->table;
    pthread_setname_np(pthread_self(), t->kind->thread);
    loop_set(&x->loop);
    pthread_mutex_lock(&t->lock);
    inquiry_answer(x);
    t->any -= x->by_any;
    inquiry_leave(x);
    t->threads--;
    pthread_cond_broadcast(&t->landed); /* it may be the last that inquiry_stop() waits for */
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* False when it could not be started. The thread is a user of the question. */
static bool start_thread(struct inquiry_table *t, struct inquiry *x, bool by_any)
{
    bool started = thread_detached(thread_main, x, THREAD_STACK) == 0;
    x->users += started;
    t->threads += started;
    x->by_any = started && by_any;
    t->any += x->by_any;
    return started;
}

static struct inquiry *find(const struct inquiry_table *t, const void *question)
{
    struct inquiry *x = t->first;
    while (x && !t->kind->is_same(x, question))
        x = x->next;
    return x;
}

static struct inquiry *add(struct inquiry_table *t, const void *question, struct error *err)
{
    struct inquiry *x = t->kind->make(question);
    if (!x) {
        err_set(err, ERR_NOMEM, "out of memory for a question to %s", t->upstream);
        return NULL;
    }
    *x = (struct inquiry){
        .next = t->first, .table = t, .loop = loop_get(), .begun_ms = clock_monotonic_ms()};
    t->first = x;
    return x;
}

struct inquiry *inquiry_board(struct inquiry_table *t, const void *question, enum inquiry_by by,
                              bool *ret_mine, struct error *err)
{
    struct inquiry *x = find(t, question);
    unsigned most = t->late ? INQUIRY_THREADS_SLOW : INQUIRY_THREADS_MAX;
    bool by_any = by == INQUIRY_BY_ANYBODY && t->any < INQUIRY_THREADS_ANY;
    *ret_mine = false;
    if (t->stopping) {
        err_set(err, ERR_CANCELLED, "the server is stopping");
        return NULL;
    }
    if (x) {
        x->users++;
        return x;
    }
    if (by == INQUIRY_BY_THREAD && t->threads - t->any >= most) {
        err_set(err, ERR_BUSY, "%u questions to %s are under way already", t->threads - t->any,
                t->upstream);
        return NULL;
    }
    x = add(t, question, err);
    if (!x)
        return NULL;
    x->users = 1;
    *ret_mine = !((by == INQUIRY_BY_THREAD || by_any) && start_thread(t, x, by_any));
    return x;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int inquiry_wait(struct inquiry *x, uint64_t end_ms, bool gives_up, struct error *err)
{
    struct inquiry_table *t = x->table;
    if (gives_up && t->late)
        end_ms = 0; /* one client has found out for everybody that it takes too long */
    while (!x->done && clock_monotonic_ms() < end_ms)
        cond_wait_until(&t->landed, &t->lock, end_ms);
    if (x->done)
        return 0;
    if (gives_up) {
        t->late += !x->late;
        x->late = true;
    }
    return err_set(err, ERR_TIMEOUT, "%s has not answered in time%s", t->upstream,
                   gives_up ? " (revalidate_timeout)" : "");
}

bool inquiry_wait_long(struct inquiry *x)
{
    struct inquiry_table *t = x->table;
    uint64_t end_ms = clock_monotonic_ms() + CIRCLE_PATIENCE_MS;
    unsigned way = loop_get().n;
    while (!x->done) {
        if (way <= x->alone_n)
            pthread_cond_wait(&t->landed, &t->lock);
        else if (clock_monotonic_ms() < end_ms)
            cond_wait_until(&t->landed, &t->lock, end_ms);
        else
            return false;
    }
    return true;
}
