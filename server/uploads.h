/* Inside server/uploads*.c: what the two halves of blob pushing share. */
#ifndef WB_SERVER_UPLOADS_H
#define WB_SERVER_UPLOADS_H

#include "server/request.h"

/* The session with its Location and Range: 202 or 204. */
enum MHD_Result uploads_reply_session(struct request *q, unsigned status, const char *id,
                                      uint64_t offset);
/* 201: the blob is in the repository. */
enum MHD_Result uploads_reply_created(struct request *q, const struct digest *d);
/* POST?digest=: the request's own body is the blob. */
enum MHD_Result uploads_begin_whole(struct request *q, const struct digest *digest);
/* POST: a session, a mounted blob, or the above. */
enum MHD_Result uploads_begin_session(struct request *q);

#endif
