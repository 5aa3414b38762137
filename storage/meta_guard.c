/* Whether something is part of what an immutable tag names: a layer or config of its manifest, a
 * child of its index, whatever lies between. Such a part must stay as the tag must. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>

/* As many manifests are looked at on the way up. A real part has a handful above it; what has more
 * is kept, for nobody knows what it would break, and the writing thread is not to be held up. */
#define USERS_MAX ((size_t)10000)

struct users {
    struct digest *items;
    size_t n, cap;
    size_t prefix; /* bytes of the key before the manifest's digest */
    bool too_many;
};

static int visit_user(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct users *u = arg;
    struct digest manifest;
    if (key_get_digest((const char *)k->mv_data + u->prefix, k->mv_size - u->prefix, &manifest) ==
        0)
        return 0; /* a hold */
    if (u->n == USERS_MAX) {
        u->too_many = true;
        return 1;
    }
    if (u->n == u->cap) {
        size_t cap = u->cap ? u->cap * 2 : 16;
        struct digest *items = reallocarray(u->items, cap, sizeof(*items));
        if (!items)
            return err_set(err, ERR_NOMEM, "out of memory");
        u->items = items;
        u->cap = cap;
    }
    u->items[u->n++] = manifest;
    return 0;
}

static void sort_and_unify(struct users *u, size_t from)
{
    size_t n = from;
    if (u->n == from)
        return;
    qsort(u->items + from, u->n - from, sizeof(*u->items), digest_order);
    for (size_t i = from; i < u->n; i++)
        if (n == from || !digest_equal(&u->items[n - 1], &u->items[i]))
            u->items[n++] = u->items[i];
    u->n = n;
}

/* All that need the digest in the repository, directly or not, in the order of digest_order().
 * Level by level, each digest once a level: no index has itself below it, so there is a last one.
 */
static int find_users(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                      struct users *u, struct error *err)
{
    struct digest of = *d;
    size_t next = 0, level = 0; /* of which users are looked for; where the level being built is */
    for (;;) {
        struct key prefix = key_of_uses(&of, repository);
        u->prefix = prefix.len;
        if (db_each(m, txn, DB_USES, &prefix, NULL, visit_user, u, err) < 0)
            return -1;
        if (next == level) { /* that was the last of the level below */
            sort_and_unify(u, level);
            level = u->n;
        }
        if (u->too_many || next == u->n)
            break;
        of = u->items[next++];
    }
    sort_and_unify(u, 0);
    return 0;
}

struct tags_ctx {
    const struct users *users;
    const struct tag_guard *guard;
    const char *repository;
    size_t prefix;
    char immutable[TAG_MAX + 1]; /* the first one that is; "" = none */
};

static int visit_tag(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)err;
    struct tags_ctx *c = arg;
    struct tag tag;
    size_t len = k->mv_size - c->prefix;
    if (len > TAG_MAX || tag_row_decode(v->mv_data, v->mv_size, &tag, NULL) < 0 ||
        !bsearch(&tag.digest, c->users->items, c->users->n, sizeof(tag.digest), digest_order))
        return 0;
    char name[TAG_MAX + 1];
    memcpy(name, (const char *)k->mv_data + c->prefix, len);
    name[len] = '\0';
    if (!c->guard->is_immutable(c->guard->ctx, c->repository, name))
        return 0;
    memcpy(c->immutable, name, len + 1);
    return 1;
}

static int check_users(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                       const struct tag_guard *guard, const struct users *u, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    struct key prefix = key_of_repository(repository);
    struct tags_ctx c = {
        .users = u, .guard = guard, .repository = repository, .prefix = prefix.len};
    if (u->too_many)
        return err_set(err, ERR_CONFLICT,
                       "%s of %s cannot be removed: over %zu manifests need it, and some may have "
                       "an immutable tag (immutable_tags)",
                       digest_format(d, text), repository, USERS_MAX);
    if (u->n == 0)
        return 0;
    if (db_each(m, txn, DB_TAGS, &prefix, NULL, visit_tag, &c, err) < 0)
        return -1;
    if (!*c.immutable)
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "%s of %s cannot be removed: it is part of the immutable tag %s "
                   "(immutable_tags)",
                   digest_format(d, text), repository, c.immutable);
}

int guard_part(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
               const struct tag_guard *guard, struct error *err)
{
    struct users u = {0};
    if (!guard)
        return 0;
    int r = find_users(m, txn, repository, d, &u, err);
    if (r == 0)
        r = check_users(m, txn, repository, d, guard, &u, err);
    free(u.items);
    return r;
}
