/* The one place where a struct error becomes an HTTP status and an OCI error code. docs/errors.md
 * is the operator's copy of this table. Pure; thread-safe. */
#ifndef WB_SERVER_ERRORS_H
#define WB_SERVER_ERRORS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/strbuf.h"

/* What the request was about: an absent manifest and an absent blob have different codes. */
enum resource {
    RESOURCE_NONE,
    RESOURCE_NAME, /* a repository as such */
    RESOURCE_MANIFEST,
    RESOURCE_BLOB,
    RESOURCE_DIGEST, /* a digest that could not be read */
    RESOURCE_UPLOAD, /* an upload session: BLOB_UPLOAD_UNKNOWN, BLOB_UPLOAD_INVALID; bytes that do
                        not hash to the client's digest are 400 DIGEST_INVALID */
    RESOURCE_PUSH,   /* a manifest being pushed: MANIFEST_INVALID; 400 DIGEST_INVALID likewise */
};

struct error_answer {
    unsigned status;
    const char *code;     /* OCI code, a constant */
    unsigned retry_after; /* seconds; 0 = no header */
    bool is_ours;         /* the server's own failure: the client gets no detail, the log does */
};
struct error_answer error_answer_of(const struct error *err, enum resource about);

/* {"errors":[{"code","message","detail":{"request":"<id>","error":"<name>"}}]}; what
 * is no UTF-8 in the message (it may have been cut) becomes U+FFFD. */
void error_body(struct strbuf *to, const char *code, const char *message, const char *request_id,
                const char *name);

#endif
