/* The upstream's lists of tags, remembered for a while, and bounded. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/mirror_private.h"

static int add_name(struct name_list *l, const char *name, struct error *err)
{
    if (!(l->names[l->n] = strdup(name)))
        return err_set(err, ERR_NOMEM, "out of memory for a list of tags");
    l->n++;
    return 0;
}

int name_list_merge(const struct name_list *a, const struct name_list *b, struct name_list *ret,
                    struct error *err)
{
    struct name_list l = {.names = calloc(a->n + b->n + 1, sizeof(*l.names)),
                          .more = a->more || b->more};
    size_t i = 0, j = 0;
    int rc = l.names ? 0 : err_set(err, ERR_NOMEM, "out of memory for a list of tags");
    while (rc == 0 && (i < a->n || j < b->n)) {
        int order = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->names[i], b->names[j]);
        rc = add_name(&l, order <= 0 ? a->names[i] : b->names[j], err);
        i += order <= 0;
        j += order >= 0;
    }
    if (rc < 0) {
        name_list_done(&l);
        return -1;
    }
    *ret = l;
    return 0;
}

static void tag_list_clear(struct tag_list *t)
{
    free(t->repository);
    name_list_done(&t->list);
    *t = (struct tag_list){0};
}

void tag_lists_done(struct tag_lists *l)
{
    for (size_t i = 0; i < LISTS_MAX; i++)
        tag_list_clear(&l->items[i]);
}

/* Lock held. */
static struct tag_list *find_list(struct tag_lists *l, const char *repository)
{
    for (size_t i = 0; i < LISTS_MAX; i++)
        if (l->items[i].repository && strcmp(l->items[i].repository, repository) == 0)
            return &l->items[i];
    return NULL;
}

void tag_lists_put(struct tag_lists *l, const char *repository, uint64_t ttl_s,
                   struct name_list *list)
{
    pthread_mutex_lock(&l->lock);
    struct tag_list *t = find_list(l, repository);
    if (!t) {
        t = &l->items[0];
        for (size_t i = 1; i < LISTS_MAX; i++)
            if (l->items[i].used < t->used)
                t = &l->items[i];
    }
    tag_list_clear(t);
    t->repository = strdup(repository);
    t->until_ms = clock_monotonic_ms() + ttl_s * 1000u;
    t->used = ++l->clock;
    t->list = *list;
    pthread_mutex_unlock(&l->lock);
    *list = (struct name_list){0};
}

int tag_lists_get(struct tag_lists *l, const char *repository, struct name_list *ret,
                  bool *ret_fresh, struct error *err)
{
    static const struct name_list none = {0};
    pthread_mutex_lock(&l->lock);
    struct tag_list *t = find_list(l, repository);
    int rc = 0;
    if (t) {
        t->used = ++l->clock;
        *ret_fresh = clock_monotonic_ms() < t->until_ms;
        rc = name_list_merge(&t->list, &none, ret, err) < 0 ? -1 : 1;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}
