/* What the files of a reader share:
 *
 *     reader.c         one client being sent a blob
 *     reader_source.c  where a transfer gets the bytes of a link
 *     reader_refusal.c what clients are told that they do not get
 */
#ifndef WB_UPSTREAM_READER_PRIVATE_H
#define WB_UPSTREAM_READER_PRIVATE_H

#include "upstream/small.h"
#include "upstream/upstreams_private.h"

/* A link of its own memory that is only an origin. */
int link_of_origin(const struct origin *origin, uint64_t size, struct link *ret, struct error *err);

/* Takes the link over on success. token: the caller's, see reader_open_file(). ERR_NOT_FOUND: the
 * upstream is not configured any more, or offline. connect_by_ms: see struct transfer_source. */
int reader_source(struct upstreams *u, struct link *link, const struct digest *d, const char *token,
                  uint64_t connect_by_ms, struct transfer_source *ret, struct error *err);

/* Only an import makes such a blob, and it held it: somebody took its file away. */
int reader_bytes_gone(const char *repository, const struct digest *d, struct error *err);
/* The client may have bytes of a download that nobody has checked, or begin one with the end. */
int reader_not_checked(const char *repository, const struct digest *d, struct error *err);
/* It may have a wrong beginning. */
int reader_suspect(const char *repository, const struct digest *d, uint64_t left_s,
                   struct error *err);

#endif
