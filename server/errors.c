#include "server/errors.h"

#include "base/json.h"

#define RETRY_RATE_LIMITED_S 60u /* when the upstream gave no time itself */
#define RETRY_BUSY_S 2u
#define RETRY_CANCELLED_S 5u

/* Codes that the OCI list does not have ("UNAVAILABLE", "UNKNOWN") are the ones that the docker
 * registry uses for 5xx; clients take any. */
static const struct error_answer table[] = {
    [ERR_NONE] = {500, "UNKNOWN", 0, true},
    [ERR_NOT_FOUND] = {404, "NAME_UNKNOWN", 0, false},
    [ERR_DENIED] = {403, "DENIED", 0, false},
    /* The upstream refused *our* credential. A 401 would be a challenge to the client, which has
     * nothing to answer it with. */
    [ERR_UNAUTHORIZED] = {403, "DENIED", 0, false},
    [ERR_INVALID] = {400, "UNSUPPORTED", 0, false},
    [ERR_DIGEST_MISMATCH] = {502, "UNAVAILABLE", 0, false},
    [ERR_TOO_LARGE] = {413, "SIZE_INVALID", 0, false},
    [ERR_NO_SPACE] = {507, "UNAVAILABLE", 0, false},
    [ERR_UPSTREAM] = {502, "UNAVAILABLE", 0, false},
    [ERR_TIMEOUT] = {504, "UNAVAILABLE", 0, false},
    [ERR_BUSY] = {503, "UNAVAILABLE", RETRY_BUSY_S, false},
    [ERR_RATE_LIMITED] = {429, "TOOMANYREQUESTS", RETRY_RATE_LIMITED_S, false},
    [ERR_CONFLICT] = {409, "DENIED", 0, false},
    [ERR_LOOP] = {508, "UNAVAILABLE", 0, false},
    [ERR_UNSUPPORTED] = {400, "UNSUPPORTED", 0, false},
    [ERR_CANCELLED] = {503, "UNAVAILABLE", RETRY_CANCELLED_S, false},
    [ERR_IO] = {500, "UNKNOWN", 0, true},
    [ERR_NOMEM] = {500, "UNKNOWN", 0, true},
    [ERR_INTERNAL] = {500, "UNKNOWN", 0, true},
};

static const char *not_found_code(enum resource about)
{
    switch (about) {
    case RESOURCE_MANIFEST:
        return "MANIFEST_UNKNOWN";
    case RESOURCE_BLOB:
    case RESOURCE_DIGEST:
        return "BLOB_UNKNOWN";
    case RESOURCE_UPLOAD:
        return "BLOB_UPLOAD_UNKNOWN";
    case RESOURCE_PUSH:
    case RESOURCE_NONE:
    case RESOURCE_NAME:
        break;
    }
    return "NAME_UNKNOWN";
}

static const char *invalid_code(enum resource about)
{
    switch (about) {
    case RESOURCE_NAME:
        return "NAME_INVALID";
    case RESOURCE_MANIFEST:
        return "MANIFEST_INVALID";
    case RESOURCE_BLOB:
    case RESOURCE_DIGEST:
        return "DIGEST_INVALID";
    case RESOURCE_UPLOAD:
        return "BLOB_UPLOAD_INVALID";
    case RESOURCE_PUSH:
        return "MANIFEST_INVALID";
    case RESOURCE_NONE:
        break;
    }
    return "UNSUPPORTED";
}

/* Bytes that a client sent are the client's to get right; the same code about bytes that we went
 * for is our failure. */
static void answer_to_push(const struct error *err, enum resource about, struct error_answer *a)
{
    if (err->code == ERR_DIGEST_MISMATCH) {
        a->status = 400;
        a->code = "DIGEST_INVALID";
    } else if (about == RESOURCE_UPLOAD && err->code == ERR_UNSUPPORTED) { /* an algorithm */
        a->code = "DIGEST_INVALID";
    } else if (about == RESOURCE_PUSH && err->code == ERR_UNSUPPORTED) {
        a->code = "MANIFEST_INVALID"; /* podman tries another type of manifest then */
    } else if (about == RESOURCE_UPLOAD && err->code == ERR_CONFLICT) { /* taken over */
        a->code = "BLOB_UPLOAD_INVALID";
    }
}

struct error_answer error_answer_of(const struct error *err, enum resource about)
{
    unsigned code = (unsigned)err->code;
    struct error_answer a = table[code < ARRAY_LEN(table) ? code : ERR_INTERNAL];
    if (about == RESOURCE_UPLOAD || about == RESOURCE_PUSH)
        answer_to_push(err, about, &a);
    if (err->code == ERR_NOT_FOUND)
        a.code = not_found_code(about);
    else if (err->code == ERR_INVALID || (err->code == ERR_UNSUPPORTED && about == RESOURCE_DIGEST))
        a.code = invalid_code(about);
    if (err->retry_after)
        a.retry_after = err->retry_after;
    return a;
}

void error_body(struct strbuf *to, const char *code, const char *message, const char *request_id,
                const char *name)
{
    strbuf_puts(to, "{\"errors\":[{");
    json_put_key(to, "code");
    json_put_string(to, code);
    json_put_key(to, "message");
    json_put_string(to, message);
    json_put_key(to, "detail");
    strbuf_putc(to, '{');
    json_put_key(to, "request");
    json_put_string(to, request_id);
    if (name) {
        json_put_key(to, "error");
        json_put_string(to, name);
    }
    strbuf_puts(to, "}}]}\n");
}
