#include "upstream/lending.h"

#include <stdlib.h>

#include "base/clock.h"
#include "upstream/transfer.h"

#define ANNOUNCED_S (TRANSFER_MISMATCH_S / 2) /* then the end is moved */

struct lending {
    struct lending *next;
    struct digest file;
    unsigned refs;         /* one of each fetch, until its last reader has left */
    unsigned running;      /* fetches that have not ended */
    uint64_t announced_at; /* 0: what the store has is `barred_until` */
    uint64_t barred_until; /* because of fetches that have ended, here or before a crash */
};

int lendings_init(struct lendings *t, struct store *s, struct error *err)
{
    *t = (struct lendings){.store = s};
    if (pthread_mutex_init(&t->lock, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    return 0;
}

void lendings_done(struct lendings *t)
{
    pthread_mutex_destroy(&t->lock);
}

/* The functions below down to lending_begin() are called with the lock held. */

static struct lending *find(struct lendings *t, const struct digest *file)
{
    struct lending *l = t->first;
    while (l && !digest_equal(&l->file, file))
        l = l->next;
    return l;
}

static struct lending *add(struct lendings *t, const struct digest *file)
{
    struct lending *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    /* What is there now was left by an end with suspicions, or by a crash. */
    uint64_t left = store_mismatch_left(t->store, file, "");
    l->file = *file;
    l->barred_until = left ? clock_wall_s() + left : 0;
    l->next = t->first;
    t->first = l;
    return l;
}

int lending_begin(struct lendings *t, const struct digest *file, struct lending **ret,
                  struct error *err)
{
    pthread_mutex_lock(&t->lock);
    struct lending *l = find(t, file);
    if (!l)
        l = add(t, file);
    if (l) {
        l->refs++;
        l->running++;
    }
    pthread_mutex_unlock(&t->lock);
    *ret = l;
    return l ? 0 : err_set(err, ERR_NOMEM, "out of memory for a file");
}

int lending_announce(struct lendings *t, struct lending *l, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    uint64_t now = clock_wall_s();
    if (now < l->announced_at || now - l->announced_at >= ANNOUNCED_S) {
        rc = store_mismatch_put(t->store, &l->file, now + TRANSFER_MISMATCH_S, err);
        if (rc == 0)
            l->announced_at = now;
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

void lending_end(struct lendings *t, struct lending *l, bool suspect)
{
    pthread_mutex_lock(&t->lock);
    uint64_t now = clock_wall_s();
    l->running--;
    if (suspect)
        l->barred_until = now + TRANSFER_MISMATCH_S;
    /* Where it can not be written, what is there refuses more than it has to. */
    if (suspect || (l->announced_at && !l->running))
        store_mismatch_put(t->store, &l->file, l->barred_until ? l->barred_until : now, NULL);
    if (!l->running)
        l->announced_at = 0;
    pthread_mutex_unlock(&t->lock);
}

/* Under t->lock. */
static uint64_t left_of(const struct lending *l)
{
    uint64_t now = clock_wall_s(), until = l->barred_until;
    if (until <= now)
        return 0;
    /* The clock may have been put back. */
    return until - now < TRANSFER_MISMATCH_S ? until - now : TRANSFER_MISMATCH_S;
}

uint64_t lending_left(struct lendings *t, const struct lending *l)
{
    pthread_mutex_lock(&t->lock);
    uint64_t left = left_of(l);
    pthread_mutex_unlock(&t->lock);
    return left;
}

uint64_t lendings_left(struct lendings *t, const struct digest *file, bool *ret_running)
{
    pthread_mutex_lock(&t->lock);
    const struct lending *l = find(t, file);
    uint64_t left = l ? left_of(l) : 0;
    bool is_known = l != NULL;
    *ret_running = l && l->running;
    pthread_mutex_unlock(&t->lock);
    return is_known ? left : store_mismatch_left(t->store, file, "");
}

void lending_unref(struct lendings *t, struct lending *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&t->lock);
    bool last = --l->refs == 0;
    struct lending **p = &t->first;
    while (last && *p != l)
        p = &(*p)->next;
    if (last)
        *p = l->next;
    pthread_mutex_unlock(&t->lock);
    if (last)
        free(l);
}
