/* Blobs on their way in. Part of storage/store.h, which has the rules. */
#ifndef WB_STORAGE_WRITER_H
#define WB_STORAGE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"
#include "storage/lent.h"

struct store;

/*     writer_open -> [writer_resumed bytes are there] -> writer_write* -> writer_commit -> close
 *                                                                      \-> writer_close(keep)
 *
 * One thread writes; any number may writer_read() what was written, also after the commit, until
 * the writer is closed. A write error is sticky. incoming/ is local staging in every backend; the
 * commit publishes. The row of a partial holds its synced extent, moved at most every 64 MiB and at
 * close; what was written behind a hole is noted in the file (storage/partial.h), when the size is
 * known. After a crash of the machine only what was synced is used again, after one of the process
 * all that was written; either way by who hashes it again. */
struct blob_writer;

#define WRITER_SIZE_UNKNOWN UINT64_MAX

/* The partial of this digest: resumed when one is there, begun when not. There is at most one open
 * writer for a digest (ERR_BUSY otherwise). size: the blob's whole size, the disk has to have
 * room for it when known (ERR_NO_SPACE up front). Does not wait for a new row to be on the disk,
 * nor for space to be allocated: the first write does, and fails where that does. */
int writer_open(struct store *s, const struct digest *d, uint64_t size, struct blob_writer **ret,
                struct error *err);
/* Likewise, of bytes that come from this source: a partial of another one is given up, and those
 * who were lent of it are noted (store_mismatch_put_to), for nobody vouches for its bytes. NULL, or
 * a partial that knows no source: as above. */
int writer_open_from(struct store *s, const struct digest *d, uint64_t size,
                     const struct name_id *source, struct blob_writer **ret, struct error *err);
/* Who was lent of what was there when it was opened; and of what is kept when it is closed. A
 * process that dies before that has lent to all. */
const struct lent *writer_lent(const struct blob_writer *w);
void writer_set_lent(struct blob_writer *w, const struct lent *lent);
/* Contiguous bytes from 0 that were there when it was opened. */
uint64_t writer_resumed(const struct blob_writer *w);
/* Bytes [*ret_first, *ret_end) behind them that were there as well, the first part with i = 0;
 * false when there are no more. Before the first write. */
bool writer_resumed_part(const struct blob_writer *w, size_t i, uint64_t *ret_first,
                         uint64_t *ret_end);
int writer_write(struct blob_writer *w, const void *data, size_t len, uint64_t offset,
                 struct error *err);
ssize_t writer_read(struct blob_writer *w, uint64_t offset, void *buf, size_t len,
                    struct error *err);
/* Forgets what was written (a mismatch, an upstream that has another object now). Start at 0. */
int writer_restart(struct blob_writer *w, struct error *err);
/* Publishes: sync, rename, sync of the folder, row. The caller has hashed every byte and found the
 * digest that the writer was opened for; size is the number of bytes. Durable on return. */
int writer_commit(struct blob_writer *w, uint64_t size, struct error *err);
/* Lets go. Without a commit before: keep = the bytes stay for the next writer_open of the digest
 * (synced), !keep = they are removed. NULL is fine. */
void writer_close(struct blob_writer *w, bool keep);

#endif
