/* The data directory as a whole: who has it, and which format is in it. Both are settled before
 * anything in it is read, for an older program must not touch what it does not know. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "storage/store_private.h"

#define VERSION_PREFIX "weighbridge data format "

static char *path_in(const char *dir, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static int locked_by_other(const char *dir, int fd, struct error *err)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid <= 0)
        return err_set(err, ERR_CONFLICT, "the data directory %s is in use by another weighbridge",
                       dir);
    return err_set(err, ERR_CONFLICT, "the data directory %s is in use by process %ld", dir, pid);
}

/* The kernel lets go of the lock when the process ends, however it ends. */
static int take_lock(const char *dir, int *ret_fd, struct error *err)
{
    _cleanup_free_ char *path = path_in(dir, "lock");
    if (!path)
        return err_set(err, ERR_NOMEM, "out of memory");
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return err_errno(err, "open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return locked_by_other(dir, fd, err);
        return err_errno(err, "lock %s", path);
    }
    /* Always as long, so that a full disk does not stop a start: its block is there from before.
     * And when it cannot be written, the lock holds all the same. */
    char text[32];
    int n = snprintf(text, sizeof(text), "%-20ld\n", (long)getpid());
    fs_pwrite_all(fd, text, (size_t)n, 0, NULL);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int write_version(const char *dir, struct error *err)
{
    _cleanup_free_ char *path = path_in(dir, "VERSION"), *tmp = path_in(dir, "VERSION.tmp");
    if (!path || !tmp)
        return err_set(err, ERR_NOMEM, "out of memory");
    char text[64];
    int n = snprintf(text, sizeof(text), VERSION_PREFIX "%u\n", STORE_FORMAT);
    _cleanup_close_ int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return err_errno(err, "create %s", tmp);
    if (fs_pwrite_all(fd, text, (size_t)n, 0, err) < 0)
        return err_wrap(err, "%s", tmp);
    if (fsync(fd) < 0)
        return err_errno(err, "sync %s", tmp);
    if (rename(tmp, path) < 0)
        return err_errno(err, "rename %s", tmp);
    return fs_sync_dir(dir, err);
}

static int begin_format(const char *dir, struct error *err)
{
    _cleanup_free_ char *data = path_in(dir, "meta/data.mdb");
    struct stat st;
    if (!data)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (lstat(data, &st) == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s/VERSION is missing, but there is metadata: which format it has cannot "
                       "be told; put the file back from a backup",
                       dir);
    if (errno != ENOENT && errno != ENOTDIR)
        return err_errno(err, "stat %s", data);
    return write_version(dir, err);
}

static int check_format(const char *dir, bool *ret_is_old, struct error *err)
{
    _cleanup_free_ char *path = path_in(dir, "VERSION");
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    struct error problem = ERROR_INIT;
    if (!path)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (fs_read_file(path, 256, &text, &problem) < 0) {
        if (problem.code == ERR_NOT_FOUND)
            return begin_format(dir, err);
        if (err)
            *err = problem;
        return -1;
    }
    size_t prefix = strlen(VERSION_PREFIX);
    unsigned long long version = 0;
    char *end = NULL;
    if (text.len > prefix && memcmp(text.data, VERSION_PREFIX, prefix) == 0 &&
        text.data[prefix] >= '0' && text.data[prefix] <= '9')
        version = strtoull(text.data + prefix, &end, 10);
    if (!end || strcmp(end, "\n") != 0 || version == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s does not say which format the data has; put it back from a backup",
                       path);
    if (version > STORE_FORMAT)
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s has data format %llu, written by a newer weighbridge; this one (%s) knows "
            "format %u: run the newer program, or use another data directory",
            dir, version, WB_VERSION, STORE_FORMAT);
    *ret_is_old = version < STORE_FORMAT;
    return 0;
}

static bool has_entries(const char *path)
{
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = e->d_name[0] != '.';
    if (d)
        closedir(d);
    return found;
}

/* Blobs without rows would be taken for a new, empty store, and the next gc would remove them all.
 */
static int check_metadata(const char *dir, struct error *err)
{
    _cleanup_free_ char *data = path_in(dir, "meta/data.mdb");
    _cleanup_free_ char *sha256 = path_in(dir, "blobs/sha256");
    _cleanup_free_ char *sha512 = path_in(dir, "blobs/sha512");
    struct stat st;
    if (!data || !sha256 || !sha512)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (stat(data, &st) == 0 && st.st_size > 0)
        return 0;
    if (!has_entries(sha256) && !has_entries(sha512))
        return 0;
    return err_set(
        err, ERR_IO,
        "%s is missing or empty, but there are blobs: put it back from a backup, or move "
        "%s away and start with a new directory",
        data, dir);
}

int datadir_open(const char *dir, int *ret_lock_fd, struct error *err)
{
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *meta = path_in(dir, "meta");
    if (!meta)
        return err_set(err, ERR_NOMEM, "out of memory");
    bool is_old = false;
    if (fs_mkdir_p(dir, 0750, err) < 0 || take_lock(dir, &fd, err) < 0 ||
        check_format(dir, &is_old, err) < 0 || check_metadata(dir, err) < 0 ||
        fs_mkdir_p(meta, 0750, err) < 0 || fs_sync_dir(dir, err) < 0)
        return -1;
    /* Before anything is written that the older program would not know. */
    if (is_old && write_version(dir, err) < 0)
        return -1;
    *ret_lock_fd = TAKE_FD(fd);
    return 0;
}
