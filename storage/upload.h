/* Upload sessions: blobs that clients push, piece by piece, before anybody has checked their
 * digest. Part of storage/store.h, which has the rules.
 *
 *     upload_begin -> [upload_open -> upload_write* -> upload_ack -> upload_close]*
 *                  -> upload_open -> upload_write* -> upload_commit -> upload_close
 *                  \-> upload_cancel, or uploads_expire
 *
 * The offset of a session is what its client was told last (upload_ack): by a 202, by the answer to
 * a status question, by a 416. Bytes behind it, of a request that broke off, are kept on disk until
 * the next upload_open(), which cuts them off: a client that sends the same piece again is right,
 * and so is one that asks for the status first, because the answer acknowledges what is there.
 *
 * An acknowledged offset survives the death of the process, not that of the machine; after a
 * restart the offset is what is really there, which is at least what was acknowledged. A session
 * ends with its commit, its cancellation, or by being left alone for too long.
 *
 * Thread-safe, except that one struct upload belongs to one thread.
 */
#ifndef WB_STORAGE_UPLOAD_H
#define WB_STORAGE_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

struct store;

#define UPLOAD_ID_LEN 32 /* lower-case hex digits */

/* Begins an empty session for a blob of this repository. Durable on return. alg: what is hashed
 * while the bytes come (another one named at the commit costs a second read of them).
 * ERR_BUSY: max_uploads (store_options) are open, and none of them is one that was left alone for a
 * minute without a byte in it; such a one gives way. */
int upload_begin(struct store *s, const char *repository, enum digest_alg alg,
                 char ret_id[static UPLOAD_ID_LEN + 1], struct error *err);

/* How many bytes are there, which counts as telling the client (see above): the offset is this from
 * now on. 1 found, 0 no such session in that repository, -1. */
int upload_status(struct store *s, const char *repository, const char *id, uint64_t *ret_offset,
                  struct error *err);

/* One request's hold on a session. A newer one takes it over: the older one's next call fails with
 * ERR_CONFLICT and leaves nothing (its connection may be dead without anybody knowing). Waits for a
 * call of the older one that is under way (and fails with ERR_CONFLICT itself when a still newer
 * one comes meanwhile), then cuts the file to the acknowledged offset. 1, 0 no such session in that
 * repository, -1. */
struct upload;
int upload_open(struct store *s, const char *repository, const char *id, struct upload **ret,
                struct error *err);
uint64_t upload_offset(const struct upload *u); /* acknowledged, and where writing goes on */
uint64_t upload_size(const struct upload *u);   /* with what was written since */
/* So many bytes are about to come: there is room for them, and some of it is taken at once, the
 * rest as they come. ERR_NO_SPACE. */
int upload_expect(struct upload *u, uint64_t bytes, struct error *err);
/* Appends. Errors are sticky. */
int upload_write(struct upload *u, const void *data, size_t len, struct error *err);
/* What was written counts from now on; *ret_offset is what the client may be told. */
int upload_ack(struct upload *u, uint64_t *ret_offset, struct error *err);
/* The bytes become the blob and the repository gets its link; durable on return, and the session is
 * gone. A blob that is held already is stored once.
 * ERR_DIGEST_MISMATCH: they hash to something else; the session stays as it was at upload_open(),
 * and this hold can go on. After any other failure the session stays too, for a newer hold; when
 * only the rows could not be written any more, it is complete, takes nothing but the same commit
 * (ERR_CONFLICT for a write), and its offset is its size. */
int upload_commit(struct upload *u, const struct digest *d, struct error *err);
/* Lets go; what was not acknowledged does not count. NULL is fine. */
void upload_close(struct upload *u);

/* 1 gone with its bytes, 0 no such session in that repository, -1. */
int upload_cancel(struct store *s, const char *repository, const char *id, struct error *err);

/* Cancels sessions on which nothing has moved for idle_s seconds, also those from before a restart.
 * For a housekeeping thread; *ret_n counts them, *ret_bytes what they held. */
int uploads_expire(struct store *s, uint64_t idle_s, uint64_t *ret_n, uint64_t *ret_bytes,
                   struct error *err);

#endif
