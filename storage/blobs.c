#include "storage/blobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "storage/fault.h"

void (*storage_fault)(const char *point);

struct blobs {
    char *dir;
    int blobs_fd, incoming_fd;
    int alg_fd[DIGEST_SHA512 + 1];
    /* Folders whose own name is known to be on disk: a file in one is only as durable as that. Not
     * remembered across starts, for a killed process may have made one without syncing. */
    _Atomic bool synced[DIGEST_SHA512 + 1][256];
};

/* "ab/abcd..." under its algorithm's folder */
struct blob_name {
    char folder[3];
    char path[DIGEST_TEXT_MAX + 4];
};

static struct blob_name name_of(const struct digest *d)
{
    struct blob_name n;
    char hex[DIGEST_TEXT_MAX];
    digest_format_hex(d, hex);
    memcpy(n.folder, hex, 2);
    n.folder[2] = '\0';
    memcpy(n.path, hex, 2);
    n.path[2] = '/';
    memcpy(n.path + 3, hex, strlen(hex) + 1);
    return n;
}

static int open_dir(int at, const char *name, int *ret, const char *dir, struct error *err)
{
    if (mkdirat(at, name, 0750) < 0 && errno != EEXIST)
        return err_errno(err, "mkdir %s/%s", dir, name);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "open %s/%s", dir, name);
    *ret = fd;
    return 0;
}

int blobs_open(const char *dir, struct blobs **ret, struct error *err)
{
    struct blobs *b = calloc(1, sizeof(*b));
    if (!b)
        return err_set(err, ERR_NOMEM, "out of memory");
    b->blobs_fd = b->incoming_fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(b->alg_fd); i++)
        b->alg_fd[i] = -1;
    _cleanup_close_ int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = 0;
    if (!(b->dir = strdup(dir)))
        r = err_set(err, ERR_NOMEM, "out of memory");
    else if (root < 0)
        r = err_errno(err, "open %s", dir);
    if (r == 0)
        r = open_dir(root, "incoming", &b->incoming_fd, dir, err);
    if (r == 0)
        r = open_dir(root, "blobs", &b->blobs_fd, dir, err);
    for (int alg = DIGEST_SHA256; r == 0 && alg <= DIGEST_SHA512; alg++)
        r = open_dir(b->blobs_fd, digest_alg_name((enum digest_alg)alg), &b->alg_fd[alg], dir, err);
    if (r == 0 && (fsync(b->blobs_fd) < 0 || fsync(root) < 0))
        r = err_errno(err, "fsync %s", dir);
    if (r < 0) {
        blobs_close(b);
        return -1;
    }
    *ret = b;
    return 0;
}

void blobs_close(struct blobs *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < ARRAY_LEN(b->alg_fd); i++)
        if (b->alg_fd[i] >= 0)
            close(b->alg_fd[i]);
    if (b->blobs_fd >= 0)
        close(b->blobs_fd);
    if (b->incoming_fd >= 0)
        close(b->incoming_fd);
    free(b->dir);
    free(b);
}

static int check_digest(const struct digest *d, struct error *err)
{
    if (digest_size(d->alg) == 0)
        return err_set(err, ERR_INVALID, "not a digest of a blob");
    return 0;
}

int blobs_stat(struct blobs *b, const struct digest *d, uint64_t *ret_size, struct error *err)
{
    if (check_digest(d, err) < 0)
        return -1;
    struct blob_name n = name_of(d);
    struct stat st;
    if (fstatat(b->alg_fd[d->alg], n.path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, "stat %s/blobs/%s/%s", b->dir, digest_alg_name(d->alg), n.path);
    }
    *ret_size = (uint64_t)st.st_size;
    return 1;
}

int blobs_open_file(struct blobs *b, const struct digest *d, int *ret_fd, uint64_t *ret_size,
                    struct error *err)
{
    if (check_digest(d, err) < 0)
        return -1;
    struct blob_name n = name_of(d);
    struct stat st;
    _cleanup_close_ int fd = openat(b->alg_fd[d->alg], n.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, "open %s/blobs/%s/%s", b->dir, digest_alg_name(d->alg), n.path);
    }
    if (fstat(fd, &st) < 0)
        return err_errno(err, "stat %s/blobs/%s/%s", b->dir, digest_alg_name(d->alg), n.path);
    *ret_size = (uint64_t)st.st_size;
    *ret_fd = TAKE_FD(fd);
    return 1;
}

int blobs_remove(struct blobs *b, const struct digest *d, struct error *err)
{
    if (check_digest(d, err) < 0)
        return -1;
    struct blob_name n = name_of(d);
    if (unlinkat(b->alg_fd[d->alg], n.path, 0) < 0 && errno != ENOENT)
        return err_errno(err, "remove %s/blobs/%s/%s", b->dir, digest_alg_name(d->alg), n.path);
    return 0;
}

int blobs_sync_all(struct blobs *b, struct error *err)
{
    if (syncfs(b->blobs_fd) < 0)
        return err_errno(err, "sync %s", b->dir);
    return 0;
}

/* fdopendir takes the descriptor */
static DIR *open_listing(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0) {
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return dir;
}

static int each_in_folder(struct blobs *b, enum digest_alg alg, const char *folder,
                          int (*fn)(void *ctx, const struct digest *d, uint64_t size,
                                    struct error *err),
                          void *ctx, struct error *err)
{
    DIR *dir = open_listing(b->alg_fd[alg], folder);
    if (!dir)
        return errno == ENOENT
                   ? 0
                   : err_errno(err, "list %s/blobs/%s/%s", b->dir, digest_alg_name(alg), folder);
    int r = 0;
    struct dirent *e;
    while (r == 0 && (errno = 0, e = readdir(dir))) {
        struct digest d;
        struct stat st;
        if (strncmp(e->d_name, folder, 2) != 0 || digest_parse_hex(alg, e->d_name, &d, NULL) < 0)
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        r = fn(ctx, &d, (uint64_t)st.st_size, err);
    }
    if (r == 0 && errno != 0)
        r = err_errno(err, "list %s/blobs/%s/%s", b->dir, digest_alg_name(alg), folder);
    closedir(dir);
    return r;
}

int blobs_each(struct blobs *b,
               int (*fn)(void *ctx, const struct digest *d, uint64_t size, struct error *err),
               void *ctx, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    for (int alg = DIGEST_SHA256; alg <= DIGEST_SHA512; alg++)
        for (unsigned i = 0; i < 256; i++) {
            char folder[3] = {digits[i / 16], digits[i % 16], '\0'};
            if (each_in_folder(b, (enum digest_alg)alg, folder, fn, ctx, err) < 0)
                return -1;
        }
    return 0;
}

/* ---- incoming/ ---- */

int staging_create(struct blobs *b, const char *file, int *ret_fd, struct error *err)
{
    int fd = openat(b->incoming_fd, file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0)
        return err_errno(err, "create %s/incoming/%s", b->dir, file);
    *ret_fd = fd;
    return 0;
}

int staging_open(struct blobs *b, const char *file, int *ret_fd, uint64_t *ret_size,
                 struct error *err)
{
    struct stat st;
    _cleanup_close_ int fd = openat(b->incoming_fd, file, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, "open %s/incoming/%s", b->dir, file);
    }
    if (fstat(fd, &st) < 0)
        return err_errno(err, "stat %s/incoming/%s", b->dir, file);
    *ret_size = (uint64_t)st.st_size;
    *ret_fd = TAKE_FD(fd);
    return 1;
}

int staging_stat(struct blobs *b, const char *file, uint64_t *ret_size, uint64_t *ret_mtime_s,
                 struct error *err)
{
    struct stat st;
    if (fstatat(b->incoming_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_errno(err, "stat %s/incoming/%s", b->dir, file);
    }
    *ret_size = (uint64_t)st.st_size;
    if (ret_mtime_s)
        *ret_mtime_s = st.st_mtime > 0 ? (uint64_t)st.st_mtime : 0;
    return 1;
}

int staging_truncate(struct blobs *b, const char *file, uint64_t size, struct error *err)
{
    struct stat st;
    _cleanup_close_ int fd = openat(b->incoming_fd, file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || ftruncate(fd, (off_t)size) < 0)
        return err_errno(err, "truncate %s/incoming/%s", b->dir, file);
    (void)futimens(fd, (struct timespec[]){{.tv_nsec = UTIME_OMIT}, st.st_mtim});
    return 0;
}

int staging_remove(struct blobs *b, const char *file, struct error *err)
{
    if (unlinkat(b->incoming_fd, file, 0) < 0 && errno != ENOENT)
        return err_errno(err, "remove %s/incoming/%s", b->dir, file);
    return 0;
}

int staging_each(struct blobs *b, int (*fn)(void *ctx, const char *file, struct error *err),
                 void *ctx, struct error *err)
{
    DIR *dir = open_listing(b->incoming_fd, ".");
    if (!dir)
        return err_errno(err, "list %s/incoming", b->dir);
    int r = 0;
    struct dirent *e;
    while (r == 0 && (errno = 0, e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        r = fn(ctx, e->d_name, err);
    }
    if (r == 0 && errno != 0)
        r = err_errno(err, "list %s/incoming", b->dir);
    closedir(dir);
    return r;
}

static int no_room(const struct blobs *b, uint64_t bytes, uint64_t left, uint64_t total,
                   struct error *err)
{
    return err_set(err, ERR_NO_SPACE,
                   "%s: no room for %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " are free", b->dir,
                   bytes, left, total);
}

int staging_has_room(struct blobs *b, uint64_t from, uint64_t to, struct error *err)
{
    if (to <= from)
        return 0;
    if (to > INT64_MAX)
        return err_set(err, ERR_TOO_LARGE, "%" PRIu64 " bytes are more than a file can hold", to);
    uint64_t left = 0, total = 0;
    if (fs_space(b->dir, &left, &total, err) < 0)
        return -1;
    return left < to - from ? no_room(b, to - from, left, total, err) : 0;
}

int staging_allocate(struct blobs *b, int fd, uint64_t from, uint64_t to, struct error *err)
{
    /* What can not be had is not tried: it would take all there is from everybody for a moment. */
    if (to <= from || staging_has_room(b, from, to, err) < 0)
        return to <= from ? 0 : -1;
    /* The size stays what was written: it says how far a reader may go. */
    int rc;
    do {
        rc = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
    } while (rc < 0 && errno == EINTR);
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return 0;
    if (errno != ENOSPC && errno != EDQUOT)
        return err_errno(err, "allocate %" PRIu64 " bytes in %s/incoming", to - from, b->dir);
    uint64_t left = 0, total = 0;
    return fs_space(b->dir, &left, &total, err) < 0 ? -1 : no_room(b, to - from, left, total, err);
}

void staging_flush(int fd)
{
    (void)!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static int open_folder(struct blobs *b, const struct digest *d, const char *folder, int *ret,
                       struct error *err)
{
    int at = b->alg_fd[d->alg];
    _Atomic bool *synced = &b->synced[d->alg][d->raw[0]];
    const char *alg = digest_alg_name(d->alg);
    bool made = mkdirat(at, folder, 0750) == 0;
    if (!made && errno != EEXIST)
        return err_errno(err, "mkdir %s/blobs/%s/%s", b->dir, alg, folder);
    if (made || !atomic_load(synced)) { /* somebody may have removed one that we knew */
        if (fsync(at) < 0)
            return err_errno(err, "sync %s/blobs/%s", b->dir, alg);
        atomic_store(synced, true);
    }
    int fd = openat(at, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "open %s/blobs/%s/%s", b->dir, alg, folder);
    *ret = fd;
    return 0;
}

/* Read-only from here on. Not before the rename: what is still incoming must stay writable for
 * whoever resumes or cuts it. */
static int seal(struct blobs *b, const struct digest *d, const struct blob_name *n, int folder,
                struct error *err)
{
    if (fchmodat(folder, n->path + 3, 0440, 0) < 0 || fsync(folder) < 0)
        return err_errno(err, "seal %s/blobs/%s/%s", b->dir, digest_alg_name(d->alg), n->path);
    return 0;
}

int staging_sync(struct blobs *b, const char *file, int fd, struct error *err)
{
    int rc;
    do {
        rc = fdatasync(fd);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? err_errno(err, "sync %s/incoming/%s", b->dir, file) : 0;
}

int staging_publish(struct blobs *b, const char *file, const struct digest *d, struct error *err)
{
    if (check_digest(d, err) < 0)
        return -1;
    struct blob_name n = name_of(d);
    _cleanup_close_ int folder = -1;
    fault_point("put.synced");
    if (open_folder(b, d, n.folder, &folder, err) < 0)
        return -1;
    if (renameat(b->incoming_fd, file, folder, n.path + 3) < 0)
        return err_errno(err, "rename %s/incoming/%s to blobs/%s/%s", b->dir, file,
                         digest_alg_name(d->alg), n.path);
    fault_point("publish.renamed");
    if (seal(b, d, &n, folder, err) < 0)
        return -1;
    fault_point("publish.synced");
    return 0;
}

int blobs_seal(struct blobs *b, const struct digest *d, struct error *err)
{
    if (check_digest(d, err) < 0)
        return -1;
    struct blob_name n = name_of(d);
    _cleanup_close_ int folder = -1;
    return open_folder(b, d, n.folder, &folder, err) < 0 ? -1 : seal(b, d, &n, folder, err);
}
