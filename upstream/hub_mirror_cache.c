/* File lists in memory: a client asks for each of a list's files, and many clients at once ask for
 * the same list. A commit's list does not change, so all of them share one. */
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

/* A list that is being made. */
struct hub_rows_load {
    struct hub_rows_load *next;
    const struct hub_rows_key *key; /* of who makes it */
    unsigned users;                 /* who makes it and who waits; the last one frees it */
    bool done;
    bool is_old;           /* not to be kept */
    struct hub_rows *rows; /* NULL: it could not be had */
};

int hub_rows_cache_init(struct hub_rows_cache *c, struct error *err)
{
    if (pthread_cond_init(&c->loaded, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    pthread_mutex_init(&c->lock, NULL);
    return 0;
}

static bool is_same(const struct hub_rows_key *a, const struct hub_rows_key *b)
{
    return strcmp(a->commit, b->commit) == 0 && strcmp(a->id, b->id) == 0 &&
           a->policies[0] == b->policies[0] && a->policies[1] == b->policies[1] &&
           a->has_folders == b->has_folders;
}

/* The functions below down to finish() are called with the lock held. */

static void clear_entry(struct hub_rows_cache *c, struct hub_rows_entry *e)
{
    c->bytes -= e->bytes;
    free(e->texts);
    hub_rows_unref(e->rows);
    *e = (struct hub_rows_entry){.rows = NULL};
}

static struct hub_rows_entry *find_entry(struct hub_rows_cache *c, const struct hub_rows_key *k)
{
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        if (c->items[i].rows && is_same(&c->items[i].key, k))
            return &c->items[i];
    return NULL;
}

static struct hub_rows_entry *oldest_entry(struct hub_rows_cache *c, bool in_use)
{
    struct hub_rows_entry *e = NULL;
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        if ((!in_use || c->items[i].rows) && (!e || c->items[i].used < e->used))
            e = &c->items[i];
    return e;
}

/* However long it is: without it each of its files would cost reading it. Nothing is kept without
 * memory for its name. */
static void put(struct hub_rows_cache *c, const struct hub_rows_key *k, struct hub_rows *rows)
{
    struct hub_rows_entry *old, *e = find_entry(c, k);
    size_t id = strlen(k->id) + 1;
    char *texts = malloc(id + strlen(k->commit) + 1);
    if (!texts)
        return;
    strcpy(texts, k->id);
    strcpy(texts + id, k->commit);
    if (!e)
        e = oldest_entry(c, false);
    clear_entry(c, e);
    while (c->bytes && c->bytes + rows->bytes > HUB_ROWS_BYTES_MAX && (old = oldest_entry(c, true)))
        clear_entry(c, old);
    *e = (struct hub_rows_entry){.key = *k,
                                 .texts = texts,
                                 .used = ++c->clock,
                                 .bytes = rows->bytes,
                                 .rows = hub_rows_ref(rows)};
    e->key.id = texts;
    e->key.commit = texts + id;
    c->bytes += rows->bytes;
}

static struct hub_rows *get(struct hub_rows_cache *c, const struct hub_rows_key *k)
{
    struct hub_rows_entry *e = find_entry(c, k);
    if (!e)
        return NULL;
    e->used = ++c->clock;
    return hub_rows_ref(e->rows);
}

static struct hub_rows_load *find_load(struct hub_rows_cache *c, const struct hub_rows_key *k)
{
    struct hub_rows_load *x = c->loads;
    while (x && !is_same(x->key, k))
        x = x->next;
    return x;
}

static void leave(struct hub_rows_load *x)
{
    if (--x->users)
        return;
    hub_rows_unref(x->rows);
    free(x);
}

/* 1 with the list, 0: whoever made it could not. */
static int wait_for(struct hub_rows_cache *c, struct hub_rows_load *x, struct hub_rows **ret)
{
    x->users++;
    while (!x->done)
        pthread_cond_wait(&c->loaded, &c->lock);
    bool is_here = x->rows != NULL;
    if (is_here)
        *ret = hub_rows_ref(x->rows);
    leave(x);
    return is_here;
}

static void finish(struct hub_rows_cache *c, struct hub_rows_load *x, struct hub_rows *rows)
{
    struct hub_rows_load **at = &c->loads;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->done = true;
    if (rows) {
        x->rows = hub_rows_ref(rows);
        if (!x->is_old)
            put(c, x->key, rows);
    }
    pthread_cond_broadcast(&c->loaded);
    leave(x);
}

void hub_rows_cache_put(struct hub_rows_cache *c, const char *id, const char *commit,
                        struct hub_rows *rows)
{
    const struct hub_rows_key k = {.id = id, .commit = commit};
    pthread_mutex_lock(&c->lock);
    put(c, &k, rows);
    pthread_mutex_unlock(&c->lock);
}

void hub_rows_cache_drop(struct hub_rows_cache *c, const char *commit)
{
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        if (c->items[i].rows && strcmp(c->items[i].key.commit, commit) == 0)
            clear_entry(c, &c->items[i]);
    for (struct hub_rows_load *x = c->loads; x; x = x->next)
        x->is_old |= strcmp(x->key->commit, commit) == 0;
    pthread_mutex_unlock(&c->lock);
}

int hub_rows_cache_get(struct hub_rows_cache *c, const struct hub_rows_key *k, hub_rows_loader load,
                       void *ctx, struct hub_rows **ret, struct error *err)
{
    struct hub_rows *rows = NULL;
    struct hub_rows_load *x;
    pthread_mutex_lock(&c->lock);
    while (!(rows = get(c, k)) && (x = find_load(c, k)))
        if (wait_for(c, x, &rows))
            break;
    x = rows ? NULL : calloc(1, sizeof(*x));
    if (x) {
        *x = (struct hub_rows_load){.next = c->loads, .key = k, .users = 1};
        c->loads = x;
    }
    pthread_mutex_unlock(&c->lock);
    if (rows) {
        *ret = rows;
        return 1;
    }
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory for a file list");
    int found = load(ctx, &rows, err);
    pthread_mutex_lock(&c->lock);
    finish(c, x, found == 1 ? rows : NULL);
    pthread_mutex_unlock(&c->lock);
    if (found == 1)
        *ret = rows;
    return found;
}

void hub_rows_cache_done(struct hub_rows_cache *c)
{
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        clear_entry(c, &c->items[i]);
    pthread_cond_destroy(&c->loaded);
    pthread_mutex_destroy(&c->lock);
}

/* ---- from the store -------------------------------------------------------------------------- */

int hub_rows_read(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                  struct error *err)
{
    _cleanup_strbuf_ struct strbuf folders = STRBUF_INIT;
    struct commit_files list = {0};
    int found = store_commit_files_get(m->store, m->config->prefix, id, commit, &list, err);
    if (found != 1)
        return found;
    found = store_hub_document_get(m->store, m->config->prefix, id, commit, "folders", &folders,
                                   NULL, err);
    if (found < 0) {
        commit_files_done(&list);
        return -1;
    }
    return hub_rows_make(&list, found ? &folders : NULL, ret, err) < 0 ? -1 : 1;
}

struct reading {
    struct hub_mirror *mirror;
    const char *id, *commit;
};

static int load_stored(void *ctx, struct hub_rows **ret, struct error *err)
{
    const struct reading *r = ctx;
    return hub_rows_read(r->mirror, r->id, r->commit, ret, err);
}

int hub_rows_stored(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                    struct error *err)
{
    const struct hub_rows_key k = {.id = id, .commit = commit};
    struct reading r = {m, id, commit};
    return hub_rows_cache_get(&m->rows, &k, load_stored, &r, ret, err);
}
