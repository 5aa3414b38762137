/* Small file helpers: whole files, folders, random names. Thread-safe. */
#ifndef WB_BASE_FS_H
#define WB_BASE_FS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

/* Reads a whole file of at most `max` bytes and appends it to `to`, which is left as it was on
 * failure. ERR_NOT_FOUND when it does not exist, ERR_TOO_LARGE above max. */
int fs_read_file(const char *path, size_t max, struct strbuf *to, struct error *err);

/* mkdir -p with the given mode for what has to be made. */
int fs_mkdir_p(const char *path, unsigned mode, struct error *err);

/* fsync of the folder itself: what was renamed into it survives a crash from here on. */
int fs_sync_dir(const char *path, struct error *err);

/* pwrite of all len bytes. */
int fs_pwrite_all(int fd, const void *data, size_t len, uint64_t offset, struct error *err);

/* Bytes that an unprivileged writer can still use and the size of the filesystem that holds path.
 */
int fs_space(const char *path, uint64_t *ret_free, uint64_t *ret_total, struct error *err);

/* n random bytes (getrandom) as 2n lower-case hex digits and a NUL. */
int random_hex(char *buf, size_t n, struct error *err);

#endif
