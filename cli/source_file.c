/* Files and folders of this machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/source_private.h"

#define DEPTH_MAX 32

struct place {
    char *folder;  /* owned; files are below it */
    size_t astray; /* links that lead nowhere */
};

static int not_there(const char *path, struct error *err)
{
    bool absent = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    err_errno(err, "%s", path);
    if (err && absent)
        err->code = ERR_NOT_FOUND;
    return -1;
}

static int open_file(struct source *s, const char *path, struct source_file *f, struct error *err)
{
    const struct place *p = s->backend;
    _cleanup_free_ char *full = NULL;
    struct stat st;
    if (asprintf(&full, "%s/%s", p->folder, path) < 0) {
        full = NULL;
        return err_set(err, ERR_NOMEM, "out of memory for a path");
    }
    _cleanup_close_ int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return not_there(full, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s is no regular file", full);
    int *kept = malloc(sizeof(*kept));
    if (!kept)
        return err_set(err, ERR_NOMEM, "out of memory for %s", full);
    *kept = TAKE_FD(fd);
    f->backend = kept;
    f->size = (uint64_t)st.st_size;
    return 1;
}

static int read_file(struct source_file *f, uint64_t offset, void *buf, size_t len,
                     struct error *err)
{
    int fd = *(int *)f->backend;
    char *to = buf;
    while (len) {
        ssize_t n = pread(fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, "read %s", f->path);
        if (n == 0)
            return err_set(err, ERR_CONFLICT,
                           "%s became shorter while it was read: it ends at byte %" PRIu64, f->path,
                           offset);
        f->source->reads.requests++;
        f->source->reads.bytes += (uint64_t)n;
        to += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static void close_file(struct source_file *f)
{
    int *fd = f->backend;
    close(*fd);
    free(fd);
}

static void free_place(struct source *s)
{
    struct place *p = s->backend;
    if (p)
        free(p->folder);
    free(p);
}

static const struct source_ops file_ops = {"file",     open_file,  read_file,
                                           close_file, free_place, NULL};
static const struct source_ops folder_ops = {"folder",   open_file,  read_file,
                                             close_file, free_place, NULL};

/* Links to files count (a Hub client's cache is made of them), links to folders do not, so that a
 * walk ends. Hidden folders hold no model. */
static int walk(struct source *s, const char *root, const char *below, unsigned depth,
                struct error *err)
{
    struct place *p = s->backend;
    _cleanup_free_ char *folder = NULL;
    if (asprintf(&folder, "%s%s%s", root, below[0] ? "/" : "", below) < 0) {
        folder = NULL;
        return err_set(err, ERR_NOMEM, "out of memory for a path");
    }
    DIR *dir = opendir(folder);
    if (!dir)
        return not_there(folder, err);
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(dir));) {
        _cleanup_free_ char *path = NULL;
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        if (asprintf(&path, "%s%s%s", below, below[0] ? "/" : "", e->d_name) < 0) {
            path = NULL;
            rc = err_set(err, ERR_NOMEM, "out of memory for a path");
        } else if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISDIR(st.st_mode)) {
            if (depth < DEPTH_MAX)
                rc = walk(s, root, path, depth + 1, err);
        } else if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            rc = source_add(s, path, (uint64_t)st.st_size, err);
        } else if (fstatat(dirfd(dir), e->d_name, &st, 0) < 0 &&
                   (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)) {
            p->astray++;
        }
    }
    closedir(dir);
    return rc;
}

int source_open_path(struct source *s, const char *path, struct error *err)
{
    struct stat st;
    struct place *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->backend = p;
    s->ops = &file_ops;
    if (stat(path, &st) < 0)
        return not_there(path, err);
    if (S_ISDIR(st.st_mode)) {
        s->ops = &folder_ops;
        if (!(p->folder = strdup(path)))
            return err_set(err, ERR_NOMEM, "out of memory for a path");
        int rc = walk(s, path, "", 0, err);
        if (p->astray)
            snprintf(s->note, sizeof(s->note),
                     "links that lead nowhere: %zu (of a download that is "
                     "not complete?)",
                     p->astray);
        return rc;
    }
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s is neither a file nor a folder", path);
    s->is_one = true;
    const char *slash = strrchr(path, '/');
    p->folder = slash == path ? strdup("/")
                : slash       ? strndup(path, (size_t)(slash - path))
                              : strdup(".");
    if (!p->folder)
        return err_set(err, ERR_NOMEM, "out of memory for a path");
    return source_add(s, slash ? slash + 1 : path, (uint64_t)st.st_size, err);
}
