/* Texts that many clients are sent at once: each is made once, and is in memory as long as somebody
 * is sent it. */
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

#define SHARED_MIN ((size_t)64 * 1024) /* bytes; shorter ones are made anew sooner than found */

struct hub_text {
    struct hub_text *next;
    struct hub_texts *home; /* NULL: it is one client's own */
    char *key;              /* owned */
    unsigned users;         /* who makes it, waits for it or has it; the last one frees it */
    bool is_done;
    bool is_listed;
    bool is_made; /* else whoever made it could not */
    struct strbuf text;
};

int hub_texts_init(struct hub_texts *h, struct error *err)
{
    if (pthread_cond_init(&h->made, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    pthread_mutex_init(&h->lock, NULL);
    return 0;
}

void hub_texts_done(struct hub_texts *h)
{
    pthread_cond_destroy(&h->made);
    pthread_mutex_destroy(&h->lock);
}

static void text_free(struct hub_text *t)
{
    strbuf_done(&t->text);
    free(t->key);
    free(t);
}

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for an answer");
}

/* ---- with the lock held ---------------------------------------------------------------------- */

static void unlist(struct hub_text *t)
{
    struct hub_text **at = &t->home->first;
    if (!t->is_listed)
        return;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->is_listed = false;
}

/* True: nobody is left. */
static bool leave(struct hub_text *t)
{
    if (--t->users)
        return false;
    unlist(t);
    return true;
}

static struct hub_text *find(struct hub_texts *h, const char *key)
{
    struct hub_text *t = h->first;
    while (t && strcmp(t->key, key) != 0)
        t = t->next;
    return t;
}

/* Waits for what another makes. NULL: it could not. */
static struct hub_text *wait_for(struct hub_texts *h, struct hub_text *t)
{
    t->users++;
    while (!t->is_done)
        pthread_cond_wait(&h->made, &h->lock);
    if (t->is_made)
        return t;
    if (leave(t))
        text_free(t);
    return NULL;
}

static struct hub_text *list_new(struct hub_texts *h, const char *key)
{
    struct hub_text *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->key = strdup(key);
    if (!t->key) {
        free(t);
        return NULL;
    }
    t->home = h;
    t->users = 1;
    t->is_listed = true;
    t->next = h->first;
    h->first = t;
    return t;
}

/* ---- for everybody --------------------------------------------------------------------------- */

int hub_text_get(struct hub_texts *h, const char *key, hub_text_maker make, void *ctx,
                 struct hub_text **ret, struct error *err)
{
    struct hub_text *t, *found = NULL;
    pthread_mutex_lock(&h->lock);
    while (!found && (t = find(h, key)))
        found = wait_for(h, t);
    t = found ? NULL : list_new(h, key);
    pthread_mutex_unlock(&h->lock);
    if (found) {
        *ret = found;
        return 1;
    }
    if (!t)
        return no_memory(err);
    int rc = make(ctx, &t->text, err);
    if (rc > 0 && strbuf_failed(&t->text))
        rc = no_memory(err);
    pthread_mutex_lock(&h->lock);
    t->is_done = true;
    t->is_made = rc > 0;
    if (!t->is_made || t->text.len < SHARED_MIN)
        unlist(t); /* those who wait have it all the same */
    pthread_cond_broadcast(&h->made);
    bool is_last = !t->is_made && leave(t);
    pthread_mutex_unlock(&h->lock);
    if (is_last)
        text_free(t);
    else if (rc > 0)
        *ret = t;
    return rc;
}

int hub_text_own(struct strbuf *text, struct hub_text **ret, struct error *err)
{
    struct hub_text *t = strbuf_failed(text) ? NULL : calloc(1, sizeof(*t));
    if (!t)
        return no_memory(err);
    t->users = 1;
    t->text = *text;
    *text = STRBUF_INIT;
    *ret = t;
    return 0;
}

void hub_text_unref(struct hub_text *t)
{
    if (!t)
        return;
    struct hub_texts *h = t->home;
    if (h)
        pthread_mutex_lock(&h->lock);
    bool is_last = h ? leave(t) : true;
    if (h)
        pthread_mutex_unlock(&h->lock);
    if (is_last)
        text_free(t);
}

const char *hub_text_bytes(const struct hub_text *t, size_t *ret_len)
{
    *ret_len = t->text.len;
    return strbuf_str(&t->text);
}
