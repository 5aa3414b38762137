/* Questions under way: each is asked once, however many clients wait for its answer, and a client
 * that has something better to do leaves it to a thread of its own.
 *
 *     known here      a thread of ours asks, the client waits for revalidate_timeout at most
 *     not known here  the client's own thread asks; those who come later wait for it
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "upstream/blame.h"
#include "upstream/loop.h"
#include "upstream/mirror_private.h"

#define CIRCLE_PATIENCE_MS 10000u
#define QUESTION_STACK (1u << 20)

struct flight {
    struct flight *next;
    struct mirror *mirror;
    struct question question;
    struct loop loop; /* of who asked first */
    char key[QUESTION_KEY_MAX];
    unsigned users; /* who asks and everybody who waits; the last one frees it */
    bool done;
    bool late;        /* somebody has given up on it */
    unsigned alone_n; /* the most servers that a question came through which went on by itself */
    int rc;
    struct outcome outcome;
    struct error error;
};

char *question_key(const struct question *q, char buf[static QUESTION_KEY_MAX])
{
    static const char kinds[] = {[ASK_TAG] = 't',  [ASK_MANIFEST] = 'm',  [ASK_BLOB] = 'b',
                                 [ASK_SIZE] = 's', [ASK_REFERRERS] = 'r', [ASK_TAGS] = 'l'};
    char digest[DIGEST_TEXT_MAX] = "";
    if (q->digest.alg != DIGEST_NONE)
        digest_format(&q->digest, digest);
    snprintf(buf, QUESTION_KEY_MAX, "%c %s %s%s", kinds[q->kind], q->name.full, q->tag, digest);
    return buf;
}

void question_copy(struct question *to, const struct question *from)
{
    *to = *from;
    to->name.name = to->name.full + (from->name.name - from->name.full);
}

int flights_start(struct flights *f, struct error *err)
{
    if (cond_init_monotonic(&f->landed))
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    pthread_mutex_init(&f->lock, NULL);
    return 0;
}

void flights_stop(struct flights *f)
{
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    while (f->threads)
        pthread_cond_wait(&f->landed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void flights_end(struct flights *f)
{
    pthread_cond_destroy(&f->landed);
    pthread_mutex_destroy(&f->lock);
}

/* ---- one question; all under the lock -------------------------------------------------------- */

static struct flight *find(struct flights *f, const char *key)
{
    struct flight *x = f->first;
    while (x && strcmp(x->key, key) != 0)
        x = x->next;
    return x;
}

static struct flight *add(struct mirror *m, const struct question *q, const char *key)
{
    struct flight *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->mirror = m;
    question_copy(&x->question, q);
    x->loop = loop_get();
    strcpy(x->key, key);
    x->next = m->flights.first;
    m->flights.first = x;
    return x;
}

static void leave(struct flight *x)
{
    if (--x->users)
        return;
    outcome_done(&x->outcome);
    free(x);
}

/* Out of the list: who comes from here on asks afresh. */
static void land(struct flights *f, struct flight *x)
{
    struct flight **at = &f->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->done = true;
    f->late -= x->late;
    pthread_cond_broadcast(&f->landed);
}

void outcome_done(struct outcome *o)
{
    manifest_done(&o->manifest);
    *o = (struct outcome){0};
}

static int settle(const struct flight *x, struct outcome *ret, struct error *err)
{
    const struct manifest *m = &x->outcome.manifest;
    struct outcome o = x->outcome;
    o.manifest = (struct manifest){.digest = m->digest, .len = m->len};
    if (m->bytes) {
        o.manifest.bytes = malloc(m->len);
        o.manifest.media_type = strdup(m->media_type);
        if (!o.manifest.bytes || !o.manifest.media_type) {
            outcome_done(&o);
            return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu bytes", m->len);
        }
        memcpy(o.manifest.bytes, m->bytes, m->len);
    }
    *ret = o;
    if (x->rc < 0 && err)
        *err = x->error;
    return x->rc;
}

static int put(struct mirror *m, const struct question *q, struct outcome *ret, struct error *err)
{
    int rc = mirror_answer(m, q, ret, err);
    if (rc < 0)
        upstream_blame(err, m->config->prefix);
    return rc;
}

/* Without the lock. */
static void answer(struct flight *x)
{
    struct flights *f = &x->mirror->flights;
    struct outcome outcome = {0};
    struct error error = ERROR_INIT;
    int rc = put(x->mirror, &x->question, &outcome, &error);
    pthread_mutex_lock(&f->lock);
    x->rc = rc;
    x->outcome = outcome;
    x->error = error;
    land(f, x);
    pthread_mutex_unlock(&f->lock);
}

static void *thread_main(void *arg)
{
    struct flight *x = arg;
    struct flights *f = &x->mirror->flights;
    pthread_setname_np(pthread_self(), "question");
    loop_set(&x->loop);
    answer(x);
    pthread_mutex_lock(&f->lock);
    leave(x);
    f->threads--;
    pthread_cond_broadcast(&f->landed); /* it may be the last that flights_stop() waits for */
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Under the lock; false when it could not be started. The thread is a user of the flight. */
static bool start_thread(struct flights *f, struct flight *x)
{
    bool started = thread_detached(thread_main, x, QUESTION_STACK) == 0;
    x->users += started;
    f->threads += started;
    return started;
}

/* Under the lock. Who asks through other servers may be who it waits for itself, when two clients
 * have asked two servers of a circle at once: what came first at each waits for the other's. By
 * itself, with its whole way in the header, the question is seen through. One for each length of
 * the way, so that a crowd behind a slow upstream does not become one in front of it. */
static bool goes_alone(const struct flight *x, uint64_t since_ms)
{
    return loop_get().n > x->alone_n && clock_monotonic_ms() - since_ms >= CIRCLE_PATIENCE_MS;
}

static int ask_alone(struct flights *f, struct flight *x, const struct question *q,
                     struct outcome *ret, struct error *err)
{
    x->alone_n = loop_get().n;
    pthread_mutex_unlock(&f->lock);
    int rc = put(x->mirror, q, ret, err);
    pthread_mutex_lock(&f->lock);
    return rc;
}

/* A question that is not known here waits for as long as it takes. */
static int wait_long(struct flights *f, struct flight *x, const struct question *q,
                     struct outcome *ret, struct error *err)
{
    uint64_t since_ms = clock_monotonic_ms();
    while (!x->done) {
        if (goes_alone(x, since_ms))
            return ask_alone(f, x, q, ret, err);
        if (loop_get().n > x->alone_n)
            cond_wait_until(&f->landed, &f->lock, since_ms + CIRCLE_PATIENCE_MS);
        else
            pthread_cond_wait(&f->landed, &f->lock);
    }
    return settle(x, ret, err);
}

static int wait_for(struct flights *f, struct flight *x, uint64_t patience_ms, struct outcome *ret,
                    struct error *err)
{
    uint64_t end_ms = clock_monotonic_ms() + patience_ms;
    if (f->late)
        end_ms = 0; /* one client has found out for everybody that it takes too long */
    while (!x->done && clock_monotonic_ms() < end_ms)
        cond_wait_until(&f->landed, &f->lock, end_ms);
    if (x->done)
        return settle(x, ret, err);
    f->late += !x->late;
    x->late = true;
    return err_set(err, ERR_TIMEOUT, "%s has not answered in time (revalidate_timeout)",
                   x->mirror->config->prefix);
}

static int too_many(struct mirror *m, struct error *err)
{
    return err_set(err, ERR_BUSY, "%u questions to %s are under way already", m->flights.threads,
                   m->config->prefix);
}

int mirror_ask(struct mirror *m, const struct question *q, uint64_t patience_ms,
               struct outcome *ret, struct error *err)
{
    struct flights *f = &m->flights;
    char key[QUESTION_KEY_MAX];
    int rc = 0;
    bool is_mine = false;
    if (loop_check(m->config->prefix, err) < 0)
        return -1;
    question_key(q, key);
    pthread_mutex_lock(&f->lock);
    struct flight *x = find(f, key);
    unsigned most = f->late ? MIRROR_THREADS_SLOW : MIRROR_THREADS_MAX;
    if (f->stopping) {
        rc = err_set(err, ERR_CANCELLED, "the server is stopping");
    } else if (!x && patience_ms && f->threads >= most) {
        rc = too_many(m, err);
    } else if (!x && !(x = add(m, q, key))) {
        rc = err_set(err, ERR_NOMEM, "out of memory for a question to an upstream");
    } else {
        /* Nobody is a user of a new one. */
        is_mine = x->users == 0 && !(patience_ms && start_thread(f, x));
        x->users++;
    }
    if (rc == 0 && is_mine) {
        pthread_mutex_unlock(&f->lock);
        answer(x);
        pthread_mutex_lock(&f->lock);
    }
    if (rc == 0) {
        rc = patience_ms ? wait_for(f, x, patience_ms, ret, err) : wait_long(f, x, q, ret, err);
        leave(x);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}
