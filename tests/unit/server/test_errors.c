#include <criterion/criterion.h>
#include <string.h>

#include "base/json.h"
#include "server/errors.h"

static struct error_answer answer(enum err_code code, enum resource about, unsigned retry_after)
{
    struct error err = {.code = code, .retry_after = retry_after, .text = "x"};
    return error_answer_of(&err, about);
}

static void expect(enum err_code code, enum resource about, unsigned status, const char *oci)
{
    struct error_answer a = answer(code, about, 0);
    cr_expect_eq(a.status, status, "%s: %u", err_name(code), a.status);
    cr_expect_str_eq(a.code, oci, "%s: %s", err_name(code), a.code);
}

Test(errors, table)
{
    expect(ERR_NOT_FOUND, RESOURCE_MANIFEST, 404, "MANIFEST_UNKNOWN");
    expect(ERR_NOT_FOUND, RESOURCE_BLOB, 404, "BLOB_UNKNOWN");
    expect(ERR_NOT_FOUND, RESOURCE_NAME, 404, "NAME_UNKNOWN");
    expect(ERR_INVALID, RESOURCE_NAME, 400, "NAME_INVALID");
    expect(ERR_INVALID, RESOURCE_DIGEST, 400, "DIGEST_INVALID");
    expect(ERR_UNSUPPORTED, RESOURCE_DIGEST, 400, "DIGEST_INVALID");
    expect(ERR_INVALID, RESOURCE_MANIFEST, 400, "MANIFEST_INVALID");
    expect(ERR_UNSUPPORTED, RESOURCE_MANIFEST, 400, "UNSUPPORTED");
    expect(ERR_INVALID, RESOURCE_NONE, 400, "UNSUPPORTED");
    expect(ERR_DENIED, RESOURCE_BLOB, 403, "DENIED");
    expect(ERR_UNAUTHORIZED, RESOURCE_MANIFEST, 403, "DENIED");
    expect(ERR_DIGEST_MISMATCH, RESOURCE_BLOB, 502, "UNAVAILABLE");
    expect(ERR_UPSTREAM, RESOURCE_BLOB, 502, "UNAVAILABLE");
    expect(ERR_TIMEOUT, RESOURCE_BLOB, 504, "UNAVAILABLE");
    expect(ERR_NO_SPACE, RESOURCE_BLOB, 507, "UNAVAILABLE");
    expect(ERR_TOO_LARGE, RESOURCE_MANIFEST, 413, "SIZE_INVALID");
    expect(ERR_CONFLICT, RESOURCE_MANIFEST, 409, "DENIED");
    expect(ERR_NOT_FOUND, RESOURCE_UPLOAD, 404, "BLOB_UPLOAD_UNKNOWN");
    expect(ERR_INVALID, RESOURCE_UPLOAD, 400, "BLOB_UPLOAD_INVALID");
    expect(ERR_DIGEST_MISMATCH, RESOURCE_UPLOAD, 400, "DIGEST_INVALID");
    expect(ERR_UNSUPPORTED, RESOURCE_UPLOAD, 400, "DIGEST_INVALID");
    expect(ERR_CONFLICT, RESOURCE_UPLOAD, 409, "BLOB_UPLOAD_INVALID");
    expect(ERR_NO_SPACE, RESOURCE_UPLOAD, 507, "UNAVAILABLE");
    expect(ERR_BUSY, RESOURCE_UPLOAD, 503, "UNAVAILABLE");
    expect(ERR_INVALID, RESOURCE_PUSH, 400, "MANIFEST_INVALID");
    expect(ERR_UNSUPPORTED, RESOURCE_PUSH, 400, "MANIFEST_INVALID");
    expect(ERR_DIGEST_MISMATCH, RESOURCE_PUSH, 400, "DIGEST_INVALID");
    expect(ERR_TOO_LARGE, RESOURCE_PUSH, 413, "SIZE_INVALID");
    expect(ERR_CONFLICT, RESOURCE_PUSH, 409, "DENIED");
    expect(ERR_IO, RESOURCE_BLOB, 500, "UNKNOWN");
    expect(ERR_NOMEM, RESOURCE_BLOB, 500, "UNKNOWN");
    expect(ERR_INTERNAL, RESOURCE_BLOB, 500, "UNKNOWN");
    expect((enum err_code)999, RESOURCE_BLOB, 500, "UNKNOWN");
}

Test(errors, retry_after)
{
    cr_expect_eq(answer(ERR_RATE_LIMITED, RESOURCE_MANIFEST, 0).status, 429);
    cr_expect_str_eq(answer(ERR_RATE_LIMITED, RESOURCE_MANIFEST, 0).code, "TOOMANYREQUESTS");
    cr_expect_eq(answer(ERR_RATE_LIMITED, RESOURCE_MANIFEST, 17).retry_after, 17);
    cr_expect_gt(answer(ERR_RATE_LIMITED, RESOURCE_MANIFEST, 0).retry_after, 0);
    cr_expect_eq(answer(ERR_BUSY, RESOURCE_BLOB, 0).status, 503);
    cr_expect_gt(answer(ERR_BUSY, RESOURCE_BLOB, 0).retry_after, 0);
    cr_expect_eq(answer(ERR_CANCELLED, RESOURCE_BLOB, 0).status, 503);
    cr_expect_gt(answer(ERR_CANCELLED, RESOURCE_BLOB, 0).retry_after, 0);
    cr_expect_eq(answer(ERR_NOT_FOUND, RESOURCE_BLOB, 0).retry_after, 0);
}

Test(errors, own_failures_tell_the_client_nothing)
{
    cr_expect(answer(ERR_IO, RESOURCE_BLOB, 0).is_ours);
    cr_expect(answer(ERR_NOMEM, RESOURCE_BLOB, 0).is_ours);
    cr_expect(answer(ERR_INTERNAL, RESOURCE_BLOB, 0).is_ours);
    cr_expect_not(answer(ERR_UPSTREAM, RESOURCE_BLOB, 0).is_ours);
    cr_expect_not(answer(ERR_NO_SPACE, RESOURCE_BLOB, 0).is_ours);
}

/* Every error has an answer of its own, so that none falls to an empty row of the table. */
Test(errors, every_code_is_mapped)
{
    for (int code = ERR_NOT_FOUND; code <= ERR_INTERNAL; code++)
        for (int about = RESOURCE_NONE; about <= RESOURCE_PUSH; about++) {
            struct error_answer a = answer((enum err_code)code, (enum resource)about, 0);
            cr_expect_geq(a.status, 400);
            cr_expect_leq(a.status, 599);
            cr_expect_neq(a.code, NULL);
        }
}

Test(errors, body_is_json_whatever_the_text)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    error_body(&b, "DENIED", "say \"no\" \\ \x01 \xff <b>", "0123456789abcdef", "denied");
    struct error err = ERROR_INIT;
    _cleanup_json_ struct json *root = NULL;
    cr_assert_eq(json_parse(strbuf_str(&b), b.len, &root, &err), 0, "%s: %s", err.text,
                 strbuf_str(&b));
    const struct json *first = json_first(json_get(root, "errors"));
    cr_expect_str_eq(json_str(json_get(first, "code")), "DENIED");
    cr_expect_str_eq(json_str(json_get(first, "message")), "say \"no\" \\ \x01 \xef\xbf\xbd <b>");
    const struct json *detail = json_get(first, "detail");
    cr_expect_str_eq(json_str(json_get(detail, "request")), "0123456789abcdef");
    cr_expect_str_eq(json_str(json_get(detail, "error")), "denied");
}
