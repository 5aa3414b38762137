/* What is under way, what was not found a short while ago, and who asked us to wait. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PAUSE_MAX_S 300u

/* ---- flights --------------------------------------------------------------------------------- */

struct flight {
    struct flight *next; /* in the list while it runs */
    const char *key;     /* of the leader's caller, valid while it is in the list */
    unsigned users;      /* the leader and everybody who waits; the last one frees it */
    bool done;
    int rc;
    struct outcome outcome;
    struct error error;
};

int flights_init(struct flights *f, struct error *err)
{
    *f = (struct flights){0};
    if (pthread_mutex_init(&f->lock, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    if (cond_init_monotonic(&f->landed)) {
        pthread_mutex_destroy(&f->lock);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    return 0;
}

void flights_done(struct flights *f)
{
    pthread_cond_destroy(&f->landed);
    pthread_mutex_destroy(&f->lock);
}

/* Lock held. */
static void unlink_flight(struct flights *f, struct flight *x)
{
    struct flight **p = &f->first;
    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
}

/* Lock held. */
static int settle(struct flight *x, struct outcome *ret, struct error *err)
{
    int rc = x->rc;
    *ret = x->outcome;
    if (rc < 0)
        *err = x->error;
    if (--x->users == 0)
        free(x);
    return rc;
}

static struct flight *flight_new(const char *key, struct flight *next)
{
    struct flight *x = calloc(1, sizeof(*x));
    if (x) {
        x->key = key;
        x->users = 1;
        x->next = next;
    }
    return x;
}

int flight_run(struct flights *f, const char *key, flight_fn fn, void *ctx, struct outcome *ret,
               struct error *err)
{
    struct outcome outcome = {0};
    struct error error = ERROR_INIT;
    struct flight *x;
    pthread_mutex_lock(&f->lock);
    for (x = f->first; x && strcmp(x->key, key) != 0; x = x->next)
        ;
    if (x) {
        x->users++;
        while (!x->done)
            pthread_cond_wait(&f->landed, &f->lock);
        int rc = settle(x, ret, err);
        pthread_mutex_unlock(&f->lock);
        return rc;
    }
    x = flight_new(key, f->first);
    if (x)
        f->first = x;
    pthread_mutex_unlock(&f->lock);
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory");

    int rc = fn(ctx, &outcome, &error);

    pthread_mutex_lock(&f->lock);
    unlink_flight(f, x); /* who comes from here on starts afresh */
    x->rc = rc;
    x->outcome = outcome;
    x->error = error;
    x->done = true;
    pthread_cond_broadcast(&f->landed);
    rc = settle(x, ret, err);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- negatives and pauses -------------------------------------------------------------------- */

int memory_init(struct memory *m, struct error *err)
{
    *m = (struct memory){0};
    m->negatives = calloc(NEGATIVES_MAX, sizeof(*m->negatives));
    if (!m->negatives)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (pthread_mutex_init(&m->lock, NULL)) {
        free(m->negatives);
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    }
    return 0;
}

static void negative_clear(struct negative *n)
{
    free(n->key);
    free(n->text);
    *n = (struct negative){0};
}

void memory_done(struct memory *m)
{
    for (size_t i = 0; i < NEGATIVES_MAX; i++)
        negative_clear(&m->negatives[i]);
    free(m->negatives);
    while (m->pauses) {
        struct pause *next = m->pauses->next;
        free(m->pauses->prefix);
        free(m->pauses);
        m->pauses = next;
    }
    pthread_mutex_destroy(&m->lock);
}

/* Lock held. */
static struct negative *find_negative(struct memory *m, const char *key)
{
    uint64_t hash = text_hash(key);
    for (size_t i = 0; i < NEGATIVES_MAX; i++) {
        struct negative *n = &m->negatives[i];
        if (n->key && n->hash == hash && strcmp(n->key, key) == 0)
            return n;
    }
    return NULL;
}

/* Lock held. */
static struct pause *find_pause(struct memory *m, const char *prefix)
{
    struct pause *p = m->pauses;
    while (p && strcmp(p->prefix, prefix) != 0)
        p = p->next;
    return p;
}

static int check_pause(const struct pause *p, uint64_t now, struct error *err)
{
    if (!p || p->until_ms <= now)
        return 0;
    unsigned left = (unsigned)((p->until_ms - now + 999) / 1000);
    err_set(err, ERR_RATE_LIMITED, "%s (no further request for %u s)", p->text, left);
    err->retry_after = left;
    return -1;
}

int memory_check(struct memory *m, const char *prefix, const char *key, struct error *err)
{
    uint64_t now = clock_monotonic_ms();
    pthread_mutex_lock(&m->lock);
    int rc = check_pause(find_pause(m, prefix), now, err);
    struct negative *n = rc ? NULL : find_negative(m, key);
    if (n && n->until_ms > now)
        rc = err_set(err, ERR_NOT_FOUND, "%s", n->text);
    else if (n)
        negative_clear(n);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

/* Lock held. Running out of memory only means that the Hub is asked again. */
static void note_missing(struct memory *m, const char *key, uint64_t until_ms, const char *text)
{
    struct negative *n = find_negative(m, key);
    if (!n) {
        n = &m->negatives[m->oldest];
        m->oldest = (m->oldest + 1) % NEGATIVES_MAX;
    }
    negative_clear(n);
    n->key = strdup(key);
    n->text = strdup(text);
    if (!n->key || !n->text) {
        negative_clear(n);
        return;
    }
    n->hash = text_hash(key);
    n->until_ms = until_ms;
}

/* Lock held. */
static void note_pause(struct memory *m, const char *prefix, uint64_t until_ms, const char *text)
{
    struct pause *p = find_pause(m, prefix);
    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p || !(p->prefix = strdup(prefix))) {
            free(p);
            return;
        }
        p->next = m->pauses;
        m->pauses = p;
    }
    p->until_ms = until_ms;
    snprintf(p->text, sizeof(p->text), "%s", text);
}

void memory_note(struct memory *m, const char *prefix, const char *key, uint64_t ttl_s,
                 const struct error *failure)
{
    uint64_t now = clock_monotonic_ms();
    pthread_mutex_lock(&m->lock);
    if (failure->code == ERR_NOT_FOUND && ttl_s > 0) {
        note_missing(m, key, now + ttl_s * 1000u, failure->text);
    } else if (failure->code == ERR_RATE_LIMITED && failure->retry_after > 0) {
        unsigned s = failure->retry_after < PAUSE_MAX_S ? failure->retry_after : PAUSE_MAX_S;
        note_pause(m, prefix, now + (uint64_t)s * 1000, failure->text);
    }
    pthread_mutex_unlock(&m->lock);
}
