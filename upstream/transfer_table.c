/* Who joins which transfer. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/transfer_private.h"

/* A transfer that can not be joined has this long to be refused by its upstream, so that the next
 * one is the only one. */
#define UNDECIDED_MS 5000u
#define DISTRUST_MS (TRANSFER_MISMATCH_S * 1000ull)

static struct transfer **bucket_of(struct transfers *t, const struct digest *d)
{
    return &t->buckets[d->raw[0] % TRANSFER_BUCKETS];
}

void transfer_list(struct transfer *x)
{
    struct transfer **bucket = bucket_of(x->table, &x->digest);
    x->next = *bucket;
    *bucket = x;
}

void transfer_unlist(struct transfer *x)
{
    struct transfers *t = x->table;
    pthread_mutex_lock(&t->lock);
    for (struct transfer **p = bucket_of(t, &x->digest); *p; p = &(*p)->next)
        if (*p == x) {
            *p = x->next;
            break;
        }
    if (x->has_slot)
        t->running--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* ---- repositories that do not have what they say ------------------------------------------- */

static const char *text_of(const char *text)
{
    return text ? text : "";
}

static bool is_place(const struct transfer_source *s, const char *upstream, const char *repository)
{
    return strcmp(s->upstream, upstream) == 0 &&
           strcmp(text_of(s->repository), text_of(repository)) == 0;
}

bool transfer_is_of(const struct transfer *x, const char *upstream, const char *repository)
{
    return is_place(&x->source, upstream, repository);
}

/* FNV-1a, with the NUL. */
static uint64_t hash_on(uint64_t hash, const char *text)
{
    for (const char *p = text;; p++) {
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
        if (!*p)
            return hash;
    }
}

/* Two places with one hash share their reputation, for a while. */
static uint64_t hash_of(const struct transfer_source *s)
{
    return hash_on(hash_on(0xcbf29ce484222325u, s->upstream), text_of(s->repository));
}

static bool is_of_the_source(const struct error *why)
{
    switch (why->code) {
    case ERR_CANCELLED:
    case ERR_IO:
    case ERR_NO_SPACE:
    case ERR_NOMEM:
    case ERR_INTERNAL:
    case ERR_LOOP:
        return false;
    default:
        return true;
    }
}

void transfer_distrust(struct transfer *x, const struct error *why)
{
    struct transfers *t = x->table;
    if (!is_of_the_source(why))
        return;
    pthread_mutex_lock(&t->lock);
    t->distrusts[t->next_distrust++ % TRANSFER_DISTRUSTS] =
        (struct distrust){.digest = x->digest,
                          .place = hash_of(&x->source),
                          .until_ms = clock_monotonic_ms() + DISTRUST_MS};
    pthread_mutex_unlock(&t->lock);
}

/* Under t->lock. */
static bool is_distrusted(const struct transfers *t, const struct transfer *x)
{
    uint64_t now = clock_monotonic_ms(), place = hash_of(&x->source);
    for (unsigned i = 0; i < TRANSFER_DISTRUSTS; i++) {
        const struct distrust *p = &t->distrusts[i];
        if (p->until_ms > now && p->place == place && digest_equal(&p->digest, &x->digest))
            return true;
    }
    return false;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* Under t->lock. */
static bool is_joinable(const struct transfers *t, const struct transfer *x, uint64_t size,
                        const struct transfer_source *like)
{
    return x->size == size && (is_place(&x->source, like->upstream, like->repository) ||
                               (!like->alone && !is_distrusted(t, x)));
}

/* Under t->lock. A transfer that has been told to stop is not joined: it will end without its
 * bytes. Nor is one that has passed them all through. */
static bool try_reference(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    bool usable = x->state != TRANSFER_FAILED && !atomic_load(&x->cancel) &&
                  !(x->through && x->state == TRANSFER_DONE);
    if (usable) {
        x->refs++;
        x->readers++;
    }
    pthread_mutex_unlock(&x->lock);
    if (usable)
        atomic_fetch_add(&x->table->stats.readers, 1);
    return usable;
}

/* Under t->lock. *ret_dying: there is one that is on its way out. */
static struct transfer *find_joinable(struct transfers *t, const struct digest *d, uint64_t size,
                                      const struct transfer_source *like, bool *ret_dying)
{
    *ret_dying = false;
    for (struct transfer *x = *bucket_of(t, d); x; x = x->next) {
        if (!digest_equal(&x->digest, d) || atomic_load(&x->closed))
            continue;
        if (is_joinable(t, x, size, like) && try_reference(x))
            return x;
        pthread_mutex_lock(&x->lock);
        *ret_dying = *ret_dying || x->state == TRANSFER_FAILED || atomic_load(&x->cancel);
        pthread_mutex_unlock(&x->lock);
    }
    return NULL;
}

/* Under t->lock. A reference to one whose upstream has not answered yet, which makes no reader. */
static struct transfer *find_undecided(struct transfers *t, const struct digest *d)
{
    for (struct transfer *x = *bucket_of(t, d); x; x = x->next) {
        if (!digest_equal(&x->digest, d) || x->of_part)
            continue;
        pthread_mutex_lock(&x->lock);
        bool undecided = x->state < TRANSFER_HEADERS;
        x->refs += undecided;
        pthread_mutex_unlock(&x->lock);
        if (undecided)
            return x;
    }
    return NULL;
}

/* Under t->lock, which is let go meanwhile. */
static void wait_for_decision(struct transfers *t, struct transfer *x, uint64_t deadline_ms)
{
    uint64_t have;
    pthread_mutex_unlock(&t->lock);
    transfer_wait(x, UINT64_MAX, TRANSFER_HEADERS, deadline_ms, &have, NULL);
    transfer_drop(x, false);
    pthread_mutex_lock(&t->lock);
}

/* Under t->lock. NULL: there is none, and none to wait for. */
static struct transfer *find_or_wait(struct transfers *t, const struct digest *d, uint64_t size,
                                     const struct transfer_source *like)
{
    uint64_t deadline_ms = clock_monotonic_ms() + UNDECIDED_MS;
    while (!t->stopping) {
        bool dying;
        struct transfer *x = find_joinable(t, d, size, like, &dying), *other;
        if (x)
            return x;
        if (dying)
            pthread_cond_wait(&t->changed, &t->lock);
        else if (clock_monotonic_ms() < deadline_ms && (other = find_undecided(t, d)))
            wait_for_decision(t, other, deadline_ms);
        else
            return NULL;
    }
    return NULL;
}

int transfer_join(struct transfers *t, const struct digest *d, uint64_t size,
                  struct transfer_source *source, struct transfer **ret, struct error *err)
{
    pthread_mutex_lock(&t->lock);
    struct transfer *x = find_or_wait(t, d, size, source);
    if (!x && t->stopping)
        err_set(err, ERR_CANCELLED, "the server is shutting down");
    else if (!x)
        x = transfer_start(t, d, size, source, NULL, err);
    pthread_mutex_unlock(&t->lock);
    transfer_source_release(source);
    *ret = x;
    return x ? 0 : -1;
}

int transfer_find(struct transfers *t, const struct digest *d, uint64_t size,
                  const struct transfer_source *like, struct transfer **ret)
{
    bool dying;
    pthread_mutex_lock(&t->lock);
    struct transfer *x = find_joinable(t, d, size, like, &dying);
    pthread_mutex_unlock(&t->lock);
    if (x)
        *ret = x;
    return x != NULL;
}
