#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/digest.h"

static int read_all(int fd, const char *path, size_t max, struct strbuf *to, struct error *err)
{
    size_t got = 0;
    for (;;) {
        char *at = strbuf_reserve(to, 65536);
        if (!at)
            return err_set(err, ERR_NOMEM, "out of memory reading %s", path);
        ssize_t n = read(fd, at, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "read %s", path);
        if (n == 0)
            return 0;
        got += (size_t)n;
        if (got > max)
            return err_set(err, ERR_TOO_LARGE, "%s is over the limit of %zu bytes", path, max);
        strbuf_advance(to, (size_t)n);
    }
}

int fs_read_file(const char *path, size_t max, struct strbuf *to, struct error *err)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return err_set(err, ERR_NOT_FOUND, "open %s: %m", path);
        return err_errno(err, "open %s", path);
    }
    size_t before = to->len;
    int rc = read_all(fd, path, max, to, err);
    if (rc < 0)
        strbuf_truncate(to, before);
    return rc;
}

int fs_mkdir_p(const char *path, unsigned mode, struct error *err)
{
    if (!*path)
        return err_set(err, ERR_INVALID, "the path of a folder is empty");
    _cleanup_free_ char *copy = strdup(path);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char saved = *p;
        *p = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return err_errno(err, "mkdir %s", copy);
        *p = saved;
        if (!saved)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_errno(err, "stat %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_IO, "%s exists and is not a directory", path);
    return 0;
}

int fs_sync_dir(const char *path, struct error *err)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "open %s", path);
    if (fsync(fd) < 0)
        return err_errno(err, "fsync %s", path);
    return 0;
}

int fs_pwrite_all(int fd, const void *data, size_t len, uint64_t offset, struct error *err)
{
    const char *p = data;
    while (len) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "write");
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int fs_space(const char *path, uint64_t *ret_free, uint64_t *ret_total, struct error *err)
{
    struct statvfs v;
    if (statvfs(path, &v) < 0)
        return err_errno(err, "statvfs %s", path);
    *ret_free = (uint64_t)v.f_bavail * v.f_frsize;
    *ret_total = (uint64_t)v.f_blocks * v.f_frsize;
    return 0;
}

int random_hex(char *buf, size_t n, struct error *err)
{
    unsigned char raw[64];
    if (n > sizeof(raw))
        return err_set(err, ERR_INTERNAL, "random_hex: at most %zu bytes", sizeof(raw));
    size_t got = 0;
    while (got < n) {
        ssize_t r = getrandom(raw + got, n - got, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_errno(err, "getrandom");
        got += (size_t)r;
    }
    hex_format(raw, n, buf);
    return 0;
}
