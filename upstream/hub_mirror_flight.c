/* Questions under way: each is asked once, however many clients wait for its answer, and a client
 * that has something better to do leaves it to a thread of its own.
 *
 *     with patience     a thread of ours asks, the client waits a while
 *     without           the client's own thread asks; those who come later wait for it
 * Whose token goes with it is part of a question.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "upstream/blame.h"
#include "upstream/hub_mirror_private.h"

#define CIRCLE_PATIENCE_MS 10000u
#define QUESTION_STACK (1u << 20)

struct hub_flight {
    struct hub_flight *next;
    struct hub_mirror *mirror;
    struct hub_task task; /* points into key and token */
    char *key, *token;    /* owned */
    struct loop loop;     /* of who asked first */
    uint64_t begun_ms;
    unsigned users; /* who asks and everybody who waits; the last one frees it */
    bool done;
    bool late; /* somebody has given up on it */
    struct hub_result result;
};

int hub_flights_start(struct hub_flights *f, struct error *err)
{
    if (cond_init_monotonic(&f->landed))
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    pthread_mutex_init(&f->lock, NULL);
    return 0;
}

void hub_flights_stop(struct hub_flights *f)
{
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    while (f->threads)
        pthread_cond_wait(&f->landed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void hub_flights_end(struct hub_flights *f)
{
    pthread_cond_destroy(&f->landed);
    pthread_mutex_destroy(&f->lock);
}

/* ---- one question ---------------------------------------------------------------------------- */

/* "kind flag who" NUL name NUL revision NUL path NUL; the names are checked and have no NUL. The
 * token's digest stands for it: a key is compared, and may be looked at in a debugger. */
int hub_task_who(const struct hub_task *t, char ret[static DIGEST_TEXT_MAX], struct error *err)
{
    struct digest d;
    strcpy(ret, t->forward ? "none" : "own");
    if (!t->forward || !t->token)
        return 0;
    if (digest_of(DIGEST_SHA256, t->token, strlen(t->token), &d, err) < 0)
        return -1;
    digest_format_hex(&d, ret);
    return 0;
}

static int key_of(const struct hub_task *t, struct strbuf *to, size_t at[static 3],
                  struct error *err)
{
    char who[DIGEST_TEXT_MAX];
    if (hub_task_who(t, who, err) < 0)
        return -1;
    strbuf_printf(to, "%u %d %d %s", (unsigned)t->kind, t->flag, t->is_held, who);
    const char *const texts[] = {t->name, t->revision, t->path};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        strbuf_putc(to, '\0');
        at[i] = to->len;
        strbuf_puts(to, texts[i]);
    }
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory for a question to a Hub") : 0;
}

static void flight_free(struct hub_flight *x)
{
    if (!x)
        return;
    hub_result_done(&x->result);
    free(x->key);
    free(x->token);
    free(x);
}

struct sought_key {
    struct strbuf text;
    size_t at[3];
};

static struct hub_flight *flight_new(struct hub_mirror *m, const struct hub_task *t,
                                     const struct sought_key *k)
{
    struct hub_flight *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->key = malloc(k->text.len + 1);
    x->token = t->token ? strdup(t->token) : NULL;
    if (!x->key || (t->token && !x->token)) {
        flight_free(x);
        return NULL;
    }
    memcpy(x->key, strbuf_str(&k->text), k->text.len + 1);
    x->mirror = m;
    x->task = *t;
    x->task.name = x->key + k->at[0];
    x->task.revision = x->key + k->at[1];
    x->task.path = x->key + k->at[2];
    x->task.token = x->token;
    x->loop = loop_get();
    x->begun_ms = clock_monotonic_ms();
    return x;
}

/* All of the key but its first text, which is compared as one, begins at the same places. */
static bool is_same(const struct hub_flight *x, const struct sought_key *k)
{
    const struct hub_task *t = &x->task;
    return strcmp(x->key, strbuf_str(&k->text)) == 0 &&
           strcmp(t->name, strbuf_str(&k->text) + k->at[0]) == 0 &&
           strcmp(t->revision, strbuf_str(&k->text) + k->at[1]) == 0 &&
           strcmp(t->path, strbuf_str(&k->text) + k->at[2]) == 0;
}

/* The functions below down to thread_main() are called with the lock held. */

static struct hub_flight *find(struct hub_flights *f, const struct sought_key *k)
{
    struct hub_flight *x = f->first;
    while (x && !is_same(x, k))
        x = x->next;
    return x;
}

/* Out of the list: who comes from here on asks afresh. */
static void land(struct hub_flights *f, struct hub_flight *x)
{
    struct hub_flight **at = &f->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->done = true;
    f->late -= x->late;
    pthread_cond_broadcast(&f->landed);
}

static void leave(struct hub_flight *x)
{
    if (--x->users == 0)
        flight_free(x);
}

/* Gives the lock up meanwhile. */
static void answer(struct hub_flights *f, struct hub_flight *x)
{
    struct hub_result r = {.rc = 0};
    pthread_mutex_unlock(&f->lock);
    hub_task_run(x->mirror, &x->task, &r);
    if (r.rc < 0)
        upstream_blame(&r.error, x->mirror->config->prefix);
    pthread_mutex_lock(&f->lock);
    x->result = r;
    land(f, x);
}

static void *thread_main(void *arg)
{
    struct hub_flight *x = arg;
    struct hub_flights *f = &x->mirror->flights;
    pthread_setname_np(pthread_self(), "hub question");
    loop_set(&x->loop);
    pthread_mutex_lock(&f->lock);
    answer(f, x);
    leave(x);
    f->threads--;
    pthread_cond_broadcast(&f->landed); /* it may be the last that hub_flights_stop() waits for */
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* False when it could not be started. The thread is a user of the flight. */
static bool start_thread(struct hub_flights *f, struct hub_flight *x)
{
    bool started = thread_detached(thread_main, x, QUESTION_STACK) == 0;
    x->users += started;
    f->threads += started;
    return started;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* A question that came through other servers may wait for one that waits for it: by itself it finds
 * out (upstream/loop.h). */
static bool waits_in_a_circle(const struct hub_flight *x, uint64_t since_ms)
{
    return !x->done && loop_get().n && clock_monotonic_ms() - since_ms >= CIRCLE_PATIENCE_MS;
}

static int wait_long(struct hub_flights *f, struct hub_flight *x, struct error *err)
{
    uint64_t since_ms = clock_monotonic_ms();
    while (!x->done && !waits_in_a_circle(x, since_ms))
        if (loop_get().n)
            cond_wait_until(&f->landed, &f->lock, since_ms + CIRCLE_PATIENCE_MS);
        else
            pthread_cond_wait(&f->landed, &f->lock);
    return x->done ? 0
                   : err_set(err, ERR_LOOP,
                             "%s was asked for this through another server, which may wait for us",
                             x->mirror->config->prefix);
}

static int wait_for(struct hub_flights *f, struct hub_flight *x, struct hub_patience patience,
                    struct error *err)
{
    uint64_t end_ms = x->begun_ms + patience.ms;
    if (patience.gives_up && f->late)
        end_ms = 0; /* one client has found out for everybody that it takes too long */
    while (!x->done && clock_monotonic_ms() < end_ms)
        cond_wait_until(&f->landed, &f->lock, end_ms);
    if (x->done)
        return 0;
    if (patience.gives_up) {
        f->late += !x->late;
        x->late = true;
    }
    return err_set(err, ERR_TIMEOUT, "%s has not answered in time%s", x->mirror->config->prefix,
                   patience.gives_up ? " (revalidate_timeout)" : "");
}

/* A flight for the question, whose user the caller is; NULL with the error set. *ret_mine: nobody
 * answers it yet. */
static struct hub_flight *board(struct hub_mirror *m, const struct hub_task *t,
                                const struct sought_key *k, bool patient, bool *ret_mine,
                                struct error *err)
{
    struct hub_flights *f = &m->flights;
    struct hub_flight *x = find(f, k);
    unsigned most = f->late ? HUB_THREADS_SLOW : HUB_THREADS_MAX;
    *ret_mine = false;
    if (f->stopping) {
        err_set(err, ERR_CANCELLED, "the server is stopping");
        return NULL;
    }
    if (x) {
        x->users++;
        return x;
    }
    if (patient && f->threads >= most) {
        err_set(err, ERR_BUSY, "%u questions to %s are under way already", f->threads,
                m->config->prefix);
        return NULL;
    }
    x = flight_new(m, t, k);
    if (!x) {
        err_set(err, ERR_NOMEM, "out of memory for a question to a Hub");
        return NULL;
    }
    x->next = f->first;
    f->first = x;
    x->users = 1;
    *ret_mine = !(patient && start_thread(f, x));
    return x;
}

int hub_ask_once(struct hub_mirror *m, const struct hub_task *t, struct hub_patience patience,
                 struct hub_flight **ret, struct error *err)
{
    struct hub_flights *f = &m->flights;
    struct sought_key k = {.text = STRBUF_INIT};
    bool is_mine;
    int rc = loop_check(m->config->prefix, err);
    if (rc == 0)
        rc = key_of(t, &k.text, k.at, err);
    if (rc < 0) {
        strbuf_done(&k.text);
        return -1;
    }
    pthread_mutex_lock(&f->lock);
    struct hub_flight *x = board(m, t, &k, patience.ms > 0, &is_mine, err);
    rc = x ? 0 : -1;
    if (x && is_mine)
        answer(f, x);
    else if (x)
        rc = patience.ms ? wait_for(f, x, patience, err) : wait_long(f, x, err);
    if (x && rc < 0)
        leave(x);
    pthread_mutex_unlock(&f->lock);
    strbuf_done(&k.text);
    if (rc == 0)
        *ret = x;
    return rc;
}

const struct hub_result *hub_flight_result(const struct hub_flight *x)
{
    return &x->result;
}

void hub_flight_leave(struct hub_flight *x)
{
    if (!x)
        return;
    struct hub_flights *f = &x->mirror->flights;
    pthread_mutex_lock(&f->lock);
    leave(x);
    pthread_mutex_unlock(&f->lock);
}
