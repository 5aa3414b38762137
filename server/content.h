/* Bytes of a file in an answer: from a held file with sendfile, or from a running transfer with a
 * content reader that waits for bytes.
 *
 * What leaves on a 200 or 206 is always a prefix of the range that was promised; a failure after
 * the status line is shown by closing the connection short of Content-Length and by nothing else.
 */
#ifndef WB_SERVER_CONTENT_H
#define WB_SERVER_CONTENT_H

#include "server/range.h"
#include "server/request.h"

struct content {
    const char *name;       /* for error texts: "blob sha256:..." */
    uint64_t size;          /* of the whole */
    uint64_t first, length; /* what is asked for of it */
    bool is_part;           /* a 206 */
};

/* Sets what the request's Range asks for of `size` bytes (all of it without one, for HEAD, and
 * where If-Range names another etag). */
enum range_result content_asked(const struct request *q, const char *etag, struct content *c);
/* The answer's body: [first, first + length) of the reader, which is taken over where it goes on
 * being read (*reader is NULL then). NULL with an error when it could not be made. */
struct MHD_Response *content_response(struct request *q, const struct content *c,
                                      struct reader **reader, struct error *err);
/* Content-Range of a part. */
bool content_put_range(struct MHD_Response *r, const struct content *c);
/* The one that tells the size alone, of a 416. */
bool content_put_unsatisfied(struct MHD_Response *r, uint64_t size);
/* For the log: "hit", "fill", "join". */
const char *content_cache(enum reader_kind kind);

#endif
