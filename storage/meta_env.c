#include "storage/meta_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

_Static_assert(sizeof(size_t) == 8, "the memory map needs a 64-bit address space");

/* Address space, not memory or disk: the file grows with what is in it. A process under a limit
 * (ulimit -v, an odd kernel) gets the largest power of two that fits. */
#define MAP_SIZE_MAX ((size_t)256 << 30)
#define MAP_SIZE_MIN ((size_t)1 << 30)
#define READERS_DEFAULT (4096 + 64)

static const char *const db_names[DB_COUNT] = {
    [DB_STATE] = "state",
    [DB_BLOBS] = "blobs",
    [DB_INCOMING] = "incoming",
    [DB_LINKS] = "links",
    [DB_USES] = "uses",
    [DB_MANIFESTS] = "manifests",
    [DB_TAGS] = "tags",
    [DB_REPOSITORIES] = "repositories",
    [DB_COMMITS] = "commits",
    [DB_MISMATCHES] = "mismatches",
    [DB_REFERRERS] = "referrers",
    [DB_HISTORY] = "history",
    [DB_HUB_NAMES] = "hub_names",
    [DB_HUB_PINS] = "hub_pins",
    [DB_HUB_DOCUMENTS] = "hub_documents",
    [DB_HUB_OBJECTS] = "hub_objects",
    [DB_HUB_COMMITS] = "hub_commits",
    [DB_HUB_USES] = "hub_uses",
};

/* What is left when a write of several pages was cut off by the end of the space. */
#define FULL_BELOW ((uint64_t)1 << 20)

static bool disk_is_full(const struct meta *m)
{
    uint64_t left, total;
    return fs_space(m->dir, &left, &total, NULL) == 0 && left < FULL_BELOW;
}

int meta_failed(struct meta *m, int rc, const char *what, struct error *err)
{
    switch (rc) {
    case EIO: /* also LMDB's word for a write that came to less than it should */
        if (!disk_is_full(m))
            break;
        return err_set(err, ERR_NO_SPACE, "%s: %s: the disk is full", m->dir, what);
    case MDB_MAP_FULL:
        return err_set(err, ERR_NO_SPACE,
                       "%s: %s: the metadata has outgrown its address space; raise the process's "
                       "limit (ulimit -v) and restart",
                       m->dir, what);
    case MDB_READERS_FULL:
        return err_set(err, ERR_BUSY, "%s: %s: too many readers at once", m->dir, what);
    case MDB_PANIC:
        return err_set(err, ERR_IO,
                       "%s: %s: an earlier write to the disk failed; check the disk and restart",
                       m->dir, what);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
        return err_set(err, ERR_IO,
                       "%s: %s: the metadata is damaged (%s); check the disk and put back a backup "
                       "of the data directory",
                       m->dir, what, mdb_strerror(rc));
    case MDB_VERSION_MISMATCH:
        return err_set(err, ERR_UNSUPPORTED, "%s: %s: written by another version of LMDB", m->dir,
                       what);
    default:
        break;
    }
    if (rc > 0) {
        errno = rc;
        return err_errno(err, "%s: %s", m->dir, what);
    }
    return err_set(err, ERR_INTERNAL, "%s: %s: %s", m->dir, what, mdb_strerror(rc));
}

/* The table of readers is a shared map of a sparse file: touching a page of it that has no disk
 * space yet kills the process on a full disk (SIGBUS). So it gets its space before LMDB opens it;
 * LMDB takes a larger file as more slots. Not afterwards: closing a second descriptor of the file
 * would drop LMDB's locks. */
static int allocate_lock_file(struct meta *m, unsigned readers, struct error *err)
{
    _cleanup_free_ char *path = NULL;
    if (asprintf(&path, "%s/lock.mdb", m->dir) < 0) {
        path = NULL;
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return err_errno(err, "open %s", path);
    off_t size = ((off_t)readers + 64) * 64; /* a slot is a cache line; the head takes a few */
    if (fallocate(fd, 0, 0, size) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return err_errno(err, "allocate %s", path);
    return 0;
}

#define RESERVE ((uint64_t)4 << 20)
#define RESERVE_LOW ((uint64_t)1 << 20)

void meta_reserve(struct meta *m)
{
    MDB_envinfo info;
    MDB_stat st;
    mdb_filehandle_t fd;
    if (mdb_env_info(m->env, &info) != 0 || mdb_env_stat(m->env, &st) != 0 ||
        mdb_env_get_fd(m->env, &fd) != 0)
        return;
    uint64_t used = ((uint64_t)info.me_last_pgno + 1) * st.ms_psize;
    if (used + RESERVE_LOW <= m->reserved)
        return;
    /* When it fails there is nothing to reserve any more, and nothing to do about it here. */
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)used, (off_t)RESERVE) == 0)
        m->reserved = used + RESERVE;
}

/* A data.mdb that was cut short kills whoever touches what is missing (SIGBUS). Zeros in its place
 * are no page of LMDB's, so it says that the file is damaged instead. (Not refused here: the end
 * may rightly be missing, when the last pages were allocated and freed again unwritten.) */
static int fill_short_file(struct meta *m, struct error *err)
{
    MDB_envinfo info;
    MDB_stat st;
    mdb_filehandle_t fd;
    struct stat file;
    int rc = mdb_env_info(m->env, &info);
    if (rc == 0)
        rc = mdb_env_stat(m->env, &st);
    if (rc == 0)
        rc = mdb_env_get_fd(m->env, &fd);
    if (rc != 0)
        return meta_failed(m, rc, "info", err);
    uint64_t used = ((uint64_t)info.me_last_pgno + 1) * st.ms_psize;
    if (fstat(fd, &file) < 0)
        return err_errno(err, "%s/data.mdb", m->dir);
    if ((uint64_t)file.st_size < used && used <= info.me_mapsize && ftruncate(fd, (off_t)used) < 0)
        return err_errno(err, "%s/data.mdb", m->dir);
    return 0;
}

static int open_env(struct meta *m, unsigned readers, size_t map_size, int *ret_rc)
{
    int rc = mdb_env_create(&m->env);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(m->env, readers);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(m->env, DB_COUNT);
    if (rc == 0)
        rc = mdb_env_set_mapsize(m->env, map_size);
    /* Default flags: every commit is synced, and a crash at any point leaves the last one. NOTLS:
     * a reader's slot belongs to its transaction, not to a thread that lives long after it. */
    if (rc == 0)
        rc = mdb_env_open(m->env, m->dir, MDB_NOTLS, 0640);
    if (rc != 0 && m->env) {
        mdb_env_close(m->env);
        m->env = NULL;
    }
    *ret_rc = rc;
    return rc == 0 ? 0 : -1;
}

static int open_databases(struct meta *m, struct error *err)
{
    _cleanup_txn_ MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(m->env, NULL, 0, &txn);
    if (rc != 0) {
        txn = NULL;
        return meta_failed(m, rc, "begin", err);
    }
    for (int i = 0; i < DB_COUNT; i++) {
        rc = mdb_dbi_open(txn, db_names[i], MDB_CREATE, &m->dbi[i]);
        if (rc != 0)
            return meta_failed(m, rc, db_names[i], err);
    }
    rc = mdb_txn_commit(TAKE_PTR(txn));
    if (rc != 0)
        return meta_failed(m, rc, "commit", err);
    return 0;
}

int meta_open(const char *dir, unsigned max_readers, struct meta **ret, struct error *err)
{
    struct meta *m = calloc(1, sizeof(*m));
    if (!m || !(m->dir = strdup(dir))) {
        free(m);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    unsigned readers = max_readers ? max_readers : READERS_DEFAULT;
    int rc = 0, r = allocate_lock_file(m, readers, err);
    for (size_t size = MAP_SIZE_MAX; r == 0 && size >= MAP_SIZE_MIN; size /= 2)
        if (open_env(m, readers, size, &rc) == 0 || rc != ENOMEM)
            break;
    if (r == 0 && !m->env)
        r = meta_failed(m, rc, "open", err);
    /* Slots of a command that was killed while it read would keep old pages alive. */
    int dead = 0;
    if (r == 0 && (rc = mdb_reader_check(m->env, &dead)) != 0)
        r = meta_failed(m, rc, "reader check", err);
    if (r == 0)
        r = fill_short_file(m, err);
    if (r == 0)
        r = open_databases(m, err);
    if (r == 0)
        meta_reserve(m);
    if (r == 0)
        r = meta_writer_start(m, err);
    if (r < 0) {
        meta_close(m);
        return -1;
    }
    *ret = m;
    return 0;
}

void meta_close(struct meta *m)
{
    if (!m)
        return;
    if (m->thread_runs)
        meta_writer_stop(m);
    if (m->env)
        mdb_env_close(m->env);
    free(m->dir);
    free(m);
}

bool meta_has_failed(struct meta *m, struct error *err)
{
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(m->env, NULL, MDB_RDONLY, &txn);
    if (rc == 0)
        mdb_txn_abort(txn);
    if (rc == MDB_PANIC)
        meta_failed(m, rc, "read", err);
    return rc == MDB_PANIC; /* other failures pass, or stay after a restart */
}

int meta_read_begin(struct meta *m, MDB_txn **ret, struct error *err)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(m->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return meta_failed(m, rc, "read", err);
    *ret = txn;
    return 0;
}

static MDB_val val_of_key(const struct key *k)
{
    return (MDB_val){.mv_size = k->len, .mv_data = (void *)(uintptr_t)k->data};
}

static int check_key(const struct key *k, struct error *err)
{
    if (k->overflow || k->len == 0)
        return err_set(err, ERR_INVALID, "a name is too long to be stored");
    return 0;
}

int db_view(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, MDB_val *ret,
            struct error *err)
{
    if (check_key(k, err) < 0)
        return -1;
    MDB_val key = val_of_key(k);
    int rc = mdb_get(txn, m->dbi[db], &key, ret);
    if (rc == MDB_NOTFOUND)
        return 0;
    return rc == 0 ? 1 : meta_failed(m, rc, db_names[db], err);
}

int db_get(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct strbuf *copy,
           struct error *err)
{
    MDB_val value;
    int r = db_view(m, txn, db, k, &value, err);
    if (r == 1 && copy) {
        strbuf_reset(copy);
        strbuf_put(copy, value.mv_data, value.mv_size);
        if (strbuf_failed(copy))
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    return r;
}

int db_has(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct error *err)
{
    return db_get(m, txn, db, k, NULL, err);
}

int db_put(struct meta *m, MDB_txn *txn, enum db db, const struct key *k,
           const struct strbuf *value, struct error *err)
{
    if (check_key(k, err) < 0)
        return -1;
    if (value && strbuf_failed(value))
        return err_set(err, ERR_NOMEM, "out of memory");
    MDB_val key = val_of_key(k), data = {0};
    if (value)
        data = (MDB_val){.mv_size = value->len, .mv_data = value->data};
    int rc = mdb_put(txn, m->dbi[db], &key, &data, 0);
    return rc == 0 ? 0 : meta_failed(m, rc, db_names[db], err);
}

int db_delete(struct meta *m, MDB_txn *txn, enum db db, const struct key *k, struct error *err)
{
    if (check_key(k, err) < 0)
        return -1;
    MDB_val key = val_of_key(k);
    int rc = mdb_del(txn, m->dbi[db], &key, NULL);
    if (rc == MDB_NOTFOUND)
        return 0;
    return rc == 0 ? 1 : meta_failed(m, rc, db_names[db], err);
}

int db_each(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
            const struct key *from, db_visit *fn, void *ctx, struct error *err)
{
    _cleanup_cursor_ MDB_cursor *cursor = NULL;
    int rc = mdb_cursor_open(txn, m->dbi[db], &cursor);
    if (rc != 0) {
        cursor = NULL;
        return meta_failed(m, rc, db_names[db], err);
    }
    const struct key *start = from ? from : prefix;
    if (start->overflow || prefix->overflow)
        return err_set(err, ERR_INVALID, "a name is too long to be stored");
    MDB_val k = val_of_key(start), v;
    rc = mdb_cursor_get(cursor, &k, &v, start->len ? MDB_SET_RANGE : MDB_FIRST);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) {
        if (k.mv_size < prefix->len || memcmp(k.mv_data, prefix->data, prefix->len) != 0)
            return 0;
        int r = fn(ctx, &k, &v, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return rc == MDB_NOTFOUND ? 0 : meta_failed(m, rc, db_names[db], err);
}

/* The cursor to the last key that begins with the prefix; an LMDB result. */
static int seek_last(MDB_cursor *cursor, const struct key *prefix, MDB_val *k, MDB_val *v)
{
    struct key behind = *prefix; /* the least key that is greater than all of them */
    while (behind.len && behind.data[behind.len - 1] == 0xff)
        behind.len--;
    if (behind.len == 0)
        return mdb_cursor_get(cursor, k, v, MDB_LAST);
    behind.data[behind.len - 1]++;
    *k = val_of_key(&behind);
    int rc = mdb_cursor_get(cursor, k, v, MDB_SET_RANGE);
    if (rc != 0 && rc != MDB_NOTFOUND)
        return rc;
    return mdb_cursor_get(cursor, k, v, rc == 0 ? MDB_PREV : MDB_LAST);
}

int db_each_back(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix, db_visit *fn,
                 void *ctx, struct error *err)
{
    _cleanup_cursor_ MDB_cursor *cursor = NULL;
    if (prefix->overflow)
        return err_set(err, ERR_INVALID, "a name is too long to be stored");
    int rc = mdb_cursor_open(txn, m->dbi[db], &cursor);
    if (rc != 0) {
        cursor = NULL;
        return meta_failed(m, rc, db_names[db], err);
    }
    MDB_val k, v;
    for (rc = seek_last(cursor, prefix, &k, &v); rc == 0;
         rc = mdb_cursor_get(cursor, &k, &v, MDB_PREV)) {
        if (k.mv_size < prefix->len || memcmp(k.mv_data, prefix->data, prefix->len) != 0)
            return 0;
        int r = fn(ctx, &k, &v, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
    }
    return rc == MDB_NOTFOUND ? 0 : meta_failed(m, rc, db_names[db], err);
}

static int visit_any(void *ctx, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)k, (void)v, (void)err;
    *(bool *)ctx = true;
    return 1;
}

int db_has_prefix(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                  struct error *err)
{
    bool any = false;
    if (db_each(m, txn, db, prefix, NULL, visit_any, &any, err) < 0)
        return -1;
    return any;
}

static int visit_key(void *ctx, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v;
    struct key_list *to = ctx;
    key_list_add(to, k->mv_data, k->mv_size);
    return strbuf_failed(&to->data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

int db_pick(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix, struct key_list *to,
            struct error *err)
{
    return db_each(m, txn, db, prefix, NULL, visit_key, to, err);
}

int db_delete_list(struct meta *m, MDB_txn *txn, enum db db, const struct key_list *keys,
                   struct error *err)
{
    struct key k;
    for (size_t pos = 0; key_list_next(keys, &pos, &k);)
        if (db_delete(m, txn, db, &k, err) < 0)
            return -1;
    return 0;
}

int db_delete_prefix(struct meta *m, MDB_txn *txn, enum db db, const struct key *prefix,
                     struct error *err)
{
    _cleanup_key_list_ struct key_list keys = KEY_LIST_INIT;
    if (db_pick(m, txn, db, prefix, &keys, err) < 0)
        return -1;
    return db_delete_list(m, txn, db, &keys, err);
}
