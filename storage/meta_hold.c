/* Holds: a blob that was pushed stays for a while without a manifest that needs it. A hold is a row
 * among the uses with no manifest in the manifest's place, so whoever asks whether anybody needs a
 * blob counts it; its value is when it was made. storage/push.h says why there are any. */
#include "storage/meta_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static const struct digest no_manifest = {.alg = DIGEST_NONE};

int hold_put(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
             uint64_t now_s, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_use(d, repository, &no_manifest);
    number_row_encode(&row, ROW_HOLD, now_s);
    return db_put(m, txn, DB_USES, &k, &row, err);
}

int hold_drop(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              struct error *err)
{
    struct key k = key_of_use(d, repository, &no_manifest);
    return db_delete(m, txn, DB_USES, &k, err);
}

int link_hold(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
              uint64_t size, uint64_t now_s, struct error *err)
{
    _cleanup_strbuf_ struct strbuf old = STRBUF_INIT, row = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    struct link_row link = {0};
    int r = db_get(m, txn, DB_LINKS, &k, &old, err);
    if (r < 0)
        return -1;
    bool is_good = r == 1 && link_row_decode(old.data, old.len, &link, NULL) == 0;
    if (!is_good)
        link = (struct link_row){0}; /* damaged: its bytes are here now, which repairs it */
    if (!is_good || link.size != size || link.is_claimed) {
        link.size = size;
        link.is_claimed = false; /* whoever sent the bytes has them */
        link_row_encode(&row, &link);
        if (db_put(m, txn, DB_LINKS, &k, &row, err) < 0)
            return -1;
    }
    /* Also beside a manifest that needs it: that one may go before the client's own comes. */
    return hold_put(m, txn, repository, d, now_s, err);
}

/* ---- what an upstream's repository has ---- */

struct record_args {
    const char *repository;
    const struct digest *digest;
    uint64_t size;
    const struct origin *origin;
    uint64_t now_s;
};

/* 1 a link that can be read (its strings are the map's own), 0, -1. */
static int view_link(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                     struct link_row *ret, struct error *err)
{
    struct key k = key_of_content(repository, d);
    MDB_val v;
    int r = db_view(m, txn, DB_LINKS, &k, &v, err);
    return r == 1 && link_row_decode(v.mv_data, v.mv_size, ret, NULL) < 0 ? 0 : r;
}

/* The same link as before, for good. */
static int put_proved(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                      struct link_row *link, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_content(repository, d);
    link->is_claimed = false;
    link_row_encode(&row, link);
    return db_put(m, txn, DB_LINKS, &k, &row, err);
}

static int run_record(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct record_args *a = arg;
    struct link_row link = {0};
    int r = view_link(m, txn, a->repository, a->digest, &link, err);
    if (r == 1 && link.is_claimed) {
        if (link.size == LINK_SIZE_UNKNOWN)
            link.size = a->size;
        return put_proved(m, txn, a->repository, a->digest, &link, err);
    }
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (link_put(m, txn, a->repository, a->digest, a->size, a->origin, false, err) < 0)
        return -1;
    return hold_put(m, txn, a->repository, a->digest, a->now_s, err);
}

/* An upstream that gives a wrong size is found out from a snapshot first: on the writing thread it
 * would cost its neighbours their common transaction. */
static int check_record(struct meta *m, MDB_txn *txn, const struct record_args *a,
                        struct error *err)
{
    uint64_t held;
    char text[DIGEST_TEXT_MAX];
    struct link_row link = {0};
    int r = view_link(m, txn, a->repository, a->digest, &link, err);
    if (r != 0)
        return r < 0 ? -1 : !link.is_claimed;
    if (blob_get(m, txn, a->digest, &held, NULL) == 1 && held != a->size)
        return err_set(err, ERR_UPSTREAM,
                       "blob %s is said to have %" PRIu64 " bytes, but has %" PRIu64,
                       digest_format(a->digest, text), a->size, held);
    return 0;
}

int meta_link_record(struct meta *m, const char *repository, const struct digest *d, uint64_t size,
                     const struct origin *origin, struct error *err)
{
    struct record_args a = {.repository = repository,
                            .digest = d,
                            .size = size,
                            .origin = origin,
                            .now_s = clock_wall_s()};
    {
        _cleanup_txn_ MDB_txn *txn = NULL;
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = check_record(m, txn, &a, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return meta_write(m, run_record, &a, err);
}

struct proved_args {
    char repository[REPOSITORY_MAX + 1];
    struct digest digest;
    uint64_t size; /* LINK_SIZE_UNKNOWN: as the link says */
};

static int run_proved(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct proved_args *a = arg;
    struct link_row link = {0};
    int r = view_link(m, txn, a->repository, &a->digest, &link, err);
    if (r <= 0)
        return r;
    bool is_right = a->size == LINK_SIZE_UNKNOWN || a->size == link.size;
    if (!link.is_claimed && is_right)
        return 0;
    if (!is_right)
        link.size = a->size;
    return put_proved(m, txn, a->repository, &a->digest, &link, err);
}

void meta_link_proved_later(struct meta *m, const char *repository, const struct digest *d)
{
    struct proved_args *a = calloc(1, sizeof(*a));
    if (!a)
        return;
    snprintf(a->repository, sizeof(a->repository), "%s", repository);
    a->digest = *d;
    a->size = LINK_SIZE_UNKNOWN;
    meta_write_later(m, run_proved, a, free);
}

/* Bytes that are here know their size better, and everybody asks them. */
static int run_resize(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    struct proved_args a = *(const struct proved_args *)arg;
    uint64_t held;
    if (blob_get(m, txn, &a.digest, &held, NULL) == 1)
        a.size = held;
    return run_proved(m, txn, &a, err);
}

int meta_link_resize(struct meta *m, const char *repository, const struct digest *d, uint64_t size,
                     struct error *err)
{
    struct proved_args a = {.digest = *d, .size = size};
    snprintf(a.repository, sizeof(a.repository), "%s", repository);
    return meta_write(m, run_resize, &a, err);
}

/* ---- unlinking and mounting ---- */

struct blob_args {
    const char *repository;
    const struct digest *digest;
    const char *from;
    const struct tag_guard *guard;
    uint64_t now_s;
    bool is_found; /* set by each run */
};

static int no_blob(const struct blob_args *a, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    return err_set(err, ERR_NOT_FOUND, "%s has no blob %s", a->repository,
                   digest_format(a->digest, text));
}

static int run_unlink(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct blob_args *a = arg;
    struct key k = key_of_content(a->repository, a->digest);
    int r = db_delete(m, txn, DB_LINKS, &k, err);
    if (r <= 0)
        return r == 0 ? no_blob(a, err) : -1;
    if (guard_part(m, txn, a->repository, a->digest, a->guard, err) < 0)
        return -1;
    /* The uses of manifests stay: they keep the bytes, and pushing the blob again mends them. */
    return hold_drop(m, txn, a->repository, a->digest, err) < 0 ? -1 : 0;
}

int meta_blob_unlink(struct meta *m, const char *repository, const struct digest *d,
                     const struct tag_guard *guard, struct error *err)
{
    struct blob_args a = {.repository = repository, .digest = d, .guard = guard};
    {
        /* What must fail is found out without the writing thread (see meta_push.c). */
        _cleanup_txn_ MDB_txn *txn = NULL;
        struct key k = key_of_content(repository, d);
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = db_has(m, txn, DB_LINKS, &k, err);
        if (r <= 0)
            return r == 0 ? no_blob(&a, err) : -1;
        if (guard_part(m, txn, repository, d, guard, err) < 0)
            return -1;
    }
    return meta_write(m, run_unlink, &a, err);
}

/* 1 and its size when `from` has the blob and the bytes are held, 0, -1. */
static int find_held(struct meta *m, MDB_txn *txn, const struct blob_args *a, uint64_t *ret_size,
                     struct error *err)
{
    struct key blob = key_of_digest(a->digest);
    struct link_row link = {0};
    MDB_val v;
    int r = view_link(m, txn, a->from, a->digest, &link, err);
    if (r == 1 && link.is_claimed)
        return 0;
    if (r == 1)
        r = db_view(m, txn, DB_BLOBS, &blob, &v, err);
    if (r == 1 && blob_row_decode(v.mv_data, v.mv_size, ret_size, NULL) < 0)
        r = 0; /* damaged: as good as not held */
    return r;
}

static int run_mount(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    struct blob_args *a = arg;
    uint64_t size = 0;
    int r = find_held(m, txn, a, &size, err);
    a->is_found = r == 1;
    if (r <= 0)
        return r;
    return link_hold(m, txn, a->repository, a->digest, size, a->now_s, err);
}

int meta_blob_mount(struct meta *m, const char *repository, const struct digest *d,
                    const char *from, struct error *err)
{
    struct blob_args a = {
        .repository = repository, .digest = d, .from = from, .now_s = clock_wall_s()};
    {
        /* Most that cannot be done need no write to find it out. */
        _cleanup_txn_ MDB_txn *txn = NULL;
        uint64_t size;
        if (meta_read_begin(m, &txn, err) < 0)
            return -1;
        int r = find_held(m, txn, &a, &size, err);
        if (r <= 0)
            return r;
    }
    if (meta_write(m, run_mount, &a, err) < 0)
        return -1;
    return a.is_found;
}

/* ---- who has a blob ---- */

#define REPOSITORIES_SCAN_MAX 10000u /* with and without a link: unlinking leaves uses */

struct next_ctx {
    char name[KEY_MAX + 1];
    bool found;
};

static int visit_next(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v, (void)err;
    struct next_ctx *c = arg;
    struct digest blob, manifest;
    const char *repository;
    if (!key_get_use(k->mv_data, k->mv_size, &blob, &repository, &manifest))
        return 0;
    memcpy(c->name, repository, strlen(repository) + 1);
    c->found = true;
    return 1;
}

static int list_repositories(struct meta *m, MDB_txn *txn, const struct digest *d, const char *last,
                             size_t limit, struct name_list *list, struct error *err)
{
    struct key prefix = key_of_digest(d);
    size_t cap = 0;
    struct next_ctx c = {.found = false};
    bool is_first = !last;
    snprintf(c.name, sizeof(c.name), "%s", last ? last : "");
    for (unsigned seen = 0;; seen++) {
        /* Straight behind all uses of the repository before: many manifests may share a blob. */
        struct key from = prefix;
        if (!is_first) {
            key_put_text(&from, c.name);
            key_put_text(&from, "\x01");
        }
        c.found = false;
        is_first = false;
        if (db_each(m, txn, DB_USES, &prefix, &from, visit_next, &c, err) < 0)
            return -1;
        if (!c.found)
            return 0;
        struct key link = key_of_content(c.name, d);
        int r = db_has(m, txn, DB_LINKS, &link, err);
        if (r < 0)
            return -1;
        if ((r == 1 && list->n == limit) || seen == REPOSITORIES_SCAN_MAX) {
            list->more = true;
            return 0;
        }
        if (r == 1 && name_list_add(list, &cap, c.name, strlen(c.name), err) < 0)
            return -1;
    }
}

int meta_blob_repositories(struct meta *m, const struct digest *d, const char *last, size_t limit,
                           struct name_list *ret, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    struct name_list list = {0};
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    if (list_repositories(m, txn, d, last, limit, &list, err) < 0) {
        name_list_done(&list);
        return -1;
    }
    *ret = list;
    return 0;
}

/* ---- collecting ---- */

/* A hold that cannot be read holds nothing: its bytes are pushed again, or were not wanted. */
static bool has_expired(const MDB_val *v, uint64_t cutoff_s)
{
    uint64_t made;
    return number_row_decode(ROW_HOLD, v->mv_data, v->mv_size, &made, NULL) < 0 || made <= cutoff_s;
}

struct needed_ctx {
    uint64_t cutoff_s;
    enum blob_need need;
};

static int visit_needed(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)err;
    struct needed_ctx *c = arg;
    struct digest blob, manifest;
    const char *repository;
    if (key_get_use(k->mv_data, k->mv_size, &blob, &repository, &manifest) &&
        manifest.alg == DIGEST_NONE) {
        if (!has_expired(v, c->cutoff_s))
            c->need = BLOB_HELD;
        return 0;
    }
    c->need = BLOB_USED; /* also by a key that nobody understands: bytes are worth more */
    return 1;
}

int blob_needed(struct meta *m, MDB_txn *txn, const struct digest *d, uint64_t cutoff_s,
                enum blob_need *ret, struct error *err)
{
    struct needed_ctx c = {.cutoff_s = cutoff_s, .need = BLOB_DEAD};
    struct key prefix = key_of_digest(d);
    if (db_each(m, txn, DB_USES, &prefix, NULL, visit_needed, &c, err) < 0)
        return -1;
    int kept = c.need == BLOB_USED ? 1 : db_has_prefix(m, txn, DB_HUB_USES, &prefix, err);
    if (kept < 0)
        return -1;
    *ret = kept ? BLOB_USED : c.need;
    return 0;
}

#define EXPIRE_SCAN 10000u /* rows that one read transaction looks at */

struct expire_args {
    uint64_t cutoff_s;
    struct key from; /* where the next look begins */
    size_t seen;
    bool more;
    struct key_list keys;
};

static int visit_hold(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct expire_args *a = arg;
    struct digest blob, manifest;
    const char *repository;
    if (a->seen++ == EXPIRE_SCAN) {
        a->from = KEY_INIT;
        key_put(&a->from, k->mv_data, k->mv_size);
        a->more = true;
        return 1;
    }
    if (!key_get_use(k->mv_data, k->mv_size, &blob, &repository, &manifest) ||
        manifest.alg != DIGEST_NONE || !has_expired(v, a->cutoff_s))
        return 0;
    key_list_add(&a->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&a->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

struct users_ctx {
    size_t prefix;
    bool any; /* a manifest */
};

static int visit_user(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v, (void)err;
    struct users_ctx *c = arg;
    struct digest manifest;
    if (key_get_digest((const char *)k->mv_data + c->prefix, k->mv_size - c->prefix, &manifest) ==
        0)
        return 0; /* the hold */
    c->any = true;
    return 1;
}

int link_has_manifest(struct meta *m, MDB_txn *txn, const char *repository, const struct digest *d,
                      struct error *err)
{
    struct key prefix = key_of_uses(d, repository);
    struct users_ctx c = {.prefix = prefix.len};
    if (db_each(m, txn, DB_USES, &prefix, NULL, visit_user, &c, err) < 0)
        return -1;
    return c.any;
}

/* Looks again at each: it may have been made anew, or a manifest may need the blob by now. */
static int run_expire(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    const struct expire_args *a = arg;
    struct key k;
    for (size_t pos = 0; key_list_next(&a->keys, &pos, &k);) {
        struct digest blob, manifest;
        const char *repository;
        MDB_val v;
        int r = db_view(m, txn, DB_USES, &k, &v, err);
        if (r < 0)
            return -1;
        if (r == 0 || !has_expired(&v, a->cutoff_s) ||
            !key_get_use(k.data, k.len, &blob, &repository, &manifest))
            continue;
        if (db_delete(m, txn, DB_USES, &k, err) < 0 ||
            (r = link_has_manifest(m, txn, repository, &blob, err)) < 0)
            return -1;
        struct key link = key_of_content(repository, &blob);
        if (r == 0 && db_delete(m, txn, DB_LINKS, &link, err) < 0)
            return -1;
    }
    return 0;
}

int meta_holds_expire(struct meta *m, uint64_t cutoff_s, struct error *err)
{
    struct expire_args a = {
        .cutoff_s = cutoff_s, .from = KEY_INIT, .more = true, .keys = KEY_LIST_INIT};
    struct key all = KEY_INIT;
    int r = 0;
    while (r == 0 && a.more) {
        MDB_txn *txn = NULL;
        a.more = false;
        a.seen = 0;
        strbuf_reset(&a.keys.data);
        r = meta_read_begin(m, &txn, err);
        if (r == 0) {
            struct key from = a.from;
            r = db_each(m, txn, DB_USES, &all, &from, visit_hold, &a, err);
            mdb_txn_abort(txn);
        }
        if (r == 0 && a.keys.data.len)
            r = meta_write(m, run_expire, &a, err);
    }
    key_list_done(&a.keys);
    return r;
}
