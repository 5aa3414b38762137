#include "upstream/notes.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"

int notes_init(struct notes *n, struct error *err)
{
    n->items = calloc(NOTES_MAX, sizeof(*n->items));
    if (!n->items)
        return err_set(err, ERR_NOMEM, "out of memory");
    pthread_mutex_init(&n->lock, NULL);
    return 0;
}

void notes_done(struct notes *n)
{
    if (!n->items)
        return;
    for (size_t i = 0; i < n->n; i++) {
        free(n->items[i].key);
        free(n->items[i].text);
    }
    free(n->items);
    pthread_mutex_destroy(&n->lock);
    n->items = NULL;
}

/* Lock held. */
static struct note *find(struct notes *n, const char *key)
{
    uint64_t hash = text_hash(key);
    for (size_t i = 0; i < n->n; i++) {
        struct note *x = &n->items[i];
        if (x->hash == hash && x->key && strcmp(x->key, key) == 0)
            return x;
    }
    return NULL;
}

/* Lock held. */
static struct note *place(struct notes *n)
{
    if (n->n < NOTES_MAX)
        return &n->items[n->n++];
    struct note *x = &n->items[n->oldest];
    n->oldest = (n->oldest + 1) % NOTES_MAX;
    free(TAKE_PTR(x->key));
    return x;
}

void notes_put(struct notes *n, const char *key, uint64_t ttl_s, const struct error *answer,
               bool is_gone)
{
    if (!ttl_s)
        return;
    pthread_mutex_lock(&n->lock);
    struct note *x = find(n, key);
    if (!x) {
        x = place(n);
        x->key = strdup(key);
        x->hash = text_hash(key);
    }
    x->until_ms = clock_monotonic_ms() + ttl_s * 1000u;
    free(x->text);
    x->text = answer ? strdup(answer->text) : NULL;
    x->code = answer ? answer->code : ERR_NONE;
    x->is_gone = is_gone;
    pthread_mutex_unlock(&n->lock);
}

bool notes_get(struct notes *n, const char *key, struct error *ret, bool *ret_gone)
{
    uint64_t now = clock_monotonic_ms();
    pthread_mutex_lock(&n->lock);
    const struct note *x = find(n, key);
    bool counts = x && now < x->until_ms;
    if (counts && ret)
        err_set(ret, x->code, "%s", x->text ? x->text : "");
    if (counts && ret_gone)
        *ret_gone = x->is_gone;
    pthread_mutex_unlock(&n->lock);
    return counts;
}
