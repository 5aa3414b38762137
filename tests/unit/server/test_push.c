/* Manifests pushed, deletes, referrers and histories, over stand-ins for storage. */
#include <sched.h>

#include "http_case.h"
#include "model/oci_manifest.h"
#include "server/request.h"

#define PUSH "/v2/" REPO "/manifests/"
#define BLOB_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define BLOB_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define DESCRIPTOR(type, digest) "{\"mediaType\":\"" type "\",\"digest\":\"" digest "\",\"size\":7}"
#define IMAGE(more)                                                                                \
    "{\"schemaVersion\":2,\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"config\":" DESCRIPTOR(            \
        "application/x-config", BLOB_A) ",\"layers\":[" DESCRIPTOR("text/plain", BLOB_B) "]" more  \
                                                                                         "}"

static struct config_immutable immutable = {.repositories = "local/*", .tags = "v*"};

static void set_up_small(void)
{
    config.max_manifest = 200000;
    set_up();
}

TestSuite(push, .init = set_up_small, .fini = tear_down, .timeout = 120);

static void send_body(const char *method, const char *target, const char *headers, const void *body,
                      size_t len)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    answer_done(&got);
    strbuf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\n%s\r\n", method,
                  target, url_port(server), headers);
    strbuf_put(&b, body, len);
    ask_raw(server, strbuf_str(&b), b.len, &got);
}

static int put_typed(const char *target, const char *type, const void *body, size_t len)
{
    char headers[512];
    snprintf(headers, sizeof(headers), "%s%s%sContent-Length: %zu\r\n",
             type ? "Content-Type: " : "", type ? type : "", type ? "\r\n" : "", len);
    send_body("PUT", target, headers, body, len);
    return got.status;
}

static int put(const char *target, const char *body)
{
    return put_typed(target, OCI_IMAGE_TYPE, body, strlen(body));
}

static struct json *parse_body(void)
{
    struct error err = ERROR_INIT;
    struct json *root = NULL;
    cr_assert(got.body, "no answer");
    cr_assert_eq(json_parse(got.body, got.body_len, &root, &err), 0, "%s: %.800s", err.text,
                 strbuf_str(&got.all));
    return root;
}

static void expect_refusal(int status, const char *code, const char *text)
{
    expect_error(status, code);
    _cleanup_json_ struct json *root = parse_body();
    const char *message = json_str(json_get(json_first(json_get(root, "errors")), "message"));
    cr_expect(message && strstr(message, text), "\"%s\" is not in: %.800s", text, got.body);
}

static void digest_path(enum digest_alg alg, const char *repository, const char *body,
                        const char *query, char *buf, size_t size)
{
    char text[DIGEST_TEXT_MAX];
    struct digest d;
    digest_of(alg, body, strlen(body), &d, NULL);
    snprintf(buf, size, "/v2/%s/manifests/%s%s", repository, digest_format(&d, text), query);
}

/* ---- what is taken ----------------------------------------------------------------------------
 */

Test(push, by_tag)
{
    static const char body[] = IMAGE(",\"annotations\":{\"a\" : \"b\"}");
    char path[400], location[512];
    cr_expect_eq(put(PUSH "latest", body), 201, "%.800s", strbuf_str(&got.all));
    digest_path(DIGEST_SHA256, REPO, body, "", path, sizeof(path));
    snprintf(location, sizeof(location), "http://localhost:%u%s", url_port(server), path);
    expect_header("Location", location);
    expect_header("Docker-Content-Digest", strrchr(path, '/') + 1);
    expect_header("OCI-Subject", "");
    expect_header("OCI-Tag", "");
    expect_header("Content-Length", "0");

    cr_expect_eq(pushed.n, 1);
    cr_expect_str_eq(pushed.repository, REPO);
    cr_expect_not(pushed.is_mirror);
    cr_expect_str_eq(pushed.media_type, OCI_IMAGE_TYPE);
    cr_assert_eq(pushed.len, strlen(body));
    cr_expect_eq(memcmp(pushed.bytes, body, pushed.len), 0, "the very bytes");
    cr_assert_eq(pushed.n_needs, 2);
    cr_expect(pushed.needs[0].kind == NEED_BLOB && pushed.needs[1].kind == NEED_BLOB);
    cr_expect(pushed.needs[0].digest.raw[0] == 0xaa && pushed.needs[1].digest.raw[31] == 0xbb);
    cr_expect_eq(pushed.needs[1].size, 7);
    cr_expect_not(pushed.has_subject);
    cr_expect_str_eq(pushed.artifact_type, "application/x-config");
    cr_expect_str_eq(pushed.annotations, "{\"a\" : \"b\"}");
    cr_assert_eq(pushed.n_tags, 1);
    cr_expect_str_eq(pushed.tags[0], "latest");
    cr_expect_str_eq(pushed.source, "push 127.0.0.1");
}

Test(push, mixed_case_is_one_repository)
{
    cr_expect_eq(put("/v2/Local/MODEL/manifests/x", IMAGE("")), 201);
    cr_expect_str_eq(pushed.repository, REPO);
}

Test(push, by_digest_in_both_algorithms)
{
    static const char body[] = IMAGE("");
    char path[400];
    digest_path(DIGEST_SHA512, REPO, body, "", path, sizeof(path));
    cr_expect_eq(put(path, body), 201);
    expect_header("Docker-Content-Digest", strrchr(path, '/') + 1);
    cr_expect_eq(pushed.digest.alg, DIGEST_SHA512);
    cr_expect_eq(pushed.n_tags, 0);
    cr_expect_eq(put(path, IMAGE(" ")), 400);
    expect_refusal(400, "DIGEST_INVALID", "sha512:");
    digest_path(DIGEST_SHA256, REPO, body, "", path, sizeof(path));
    cr_expect_eq(put(path, body), 201);
    cr_expect_eq(pushed.digest.alg, DIGEST_SHA256);
    put(path, "");
    expect_refusal(400, "DIGEST_INVALID", "nothing was stored");
    put(PUSH "sha256:baddigeststring", body);
    expect_refusal(400, "DIGEST_INVALID", "");
    cr_expect_eq(pushed.n, 2);
}

Test(push, with_further_tags)
{
    static const char body[] = IMAGE("");
    char path[400];
    digest_path(DIGEST_SHA256, REPO, body, "?tag=v1&tag=1.2&tag=v1&tag=a%2Db", path, sizeof(path));
    cr_expect_eq(put(path, body), 201);
    cr_expect_eq(pushed.n_tags, 3, "one of them came twice");
    cr_expect_str_eq(pushed.tags[0], "v1");
    cr_expect_str_eq(pushed.tags[1], "1.2");
    cr_expect_str_eq(pushed.tags[2], "a-b");
    expect_header("OCI-Tag", "v1, 1.2, a-b");
    cr_expect_eq(put(PUSH "main?tag=main&tag=other", body), 201);
    cr_expect_eq(pushed.n_tags, 2);
    cr_expect_str_eq(pushed.tags[0], "main");
    cr_expect_str_eq(pushed.tags[1], "other");
    expect_header("OCI-Tag", "other");
    put(PUSH "main?tag=", body);
    expect_refusal(400, "MANIFEST_INVALID", "not a tag");
    put(PUSH "main?tag=a%2Fb", body);
    expect_refusal(400, "MANIFEST_INVALID", "not a tag");
    put(PUSH "main?tag=a%0", body);
    expect_refusal(400, "MANIFEST_INVALID", "percent-encoding");
    cr_expect_eq(pushed.n, 2);
}

static void many_tags(unsigned n, char *path, size_t size)
{
    size_t used = (size_t)snprintf(path, size, PUSH "first?x=y");
    for (unsigned i = 0; i < n; i++)
        used += (size_t)snprintf(path + used, size - used, "&tag=t%u", i);
}

Test(push, a_hundred_further_tags_and_no_more)
{
    char path[4096];
    many_tags(100, path, sizeof(path));
    cr_expect_eq(put(path, IMAGE("")), 201, "%.800s", strbuf_str(&got.all));
    cr_expect_eq(pushed.n_tags, 101);
    cr_expect_str_eq(pushed.tags[100], "t99");
    many_tags(101, path, sizeof(path));
    put(path, IMAGE(""));
    expect_refusal(400, "MANIFEST_INVALID", "100 tags");
}

Test(push, with_a_subject)
{
    static const char body[] =
        IMAGE(",\"artifactType\":\"text/x\",\"subject\":" DESCRIPTOR(OCI_IMAGE_TYPE, BLOB_B));
    cr_expect_eq(put(PUSH "latest", body), 201, "%.800s", strbuf_str(&got.all));
    expect_header("OCI-Subject", BLOB_B);
    cr_expect(pushed.has_subject && pushed.subject.raw[5] == 0xbb);
    cr_expect_str_eq(pushed.artifact_type, "text/x");
    cr_expect_eq(pushed.n_needs, 2, "the subject is none of them");
}

#define UNHELD_SUBJECT                                                                             \
    IMAGE(",\"subject\":{\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"digest\":\"blake3:"                \
          "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\",\"size\":7}")

Test(push, a_subject_that_no_question_can_name_is_left_to_the_client)
{
    char path[400];
    cr_expect_eq(put(PUSH "latest", UNHELD_SUBJECT), 201, "%.800s", strbuf_str(&got.all));
    expect_header("OCI-Subject", "");
    cr_expect_not(pushed.has_subject);
    digest_path(DIGEST_SHA256, MIRRORED, UNHELD_SUBJECT, "", path, sizeof(path));
    put(path, UNHELD_SUBJECT);
    expect_refusal(403, "DENIED", "prefix \"hf\"");
}

Test(push, an_index)
{
    static const char body[] =
        "{\"schemaVersion\":2,\"manifests\":[" DESCRIPTOR(OCI_IMAGE_TYPE, BLOB_A) "]}";
    cr_expect_eq(put_typed(PUSH "latest", OCI_INDEX_TYPE "; charset=utf-8", body, strlen(body)),
                 201, "%.800s", strbuf_str(&got.all));
    cr_expect_str_eq(pushed.media_type, OCI_INDEX_TYPE);
    cr_assert_eq(pushed.n_needs, 1);
    cr_expect_eq(pushed.needs[0].kind, NEED_CHILD);
}

Test(push, layers_that_need_not_be_here)
{
    static const char body[] = "{\"schemaVersion\":2,\"config\":" DESCRIPTOR(
        "text/plain", BLOB_A) ",\"layers\":["
                              "{\"mediaType\":\"application/"
                              "vnd.oci.image.layer.nondistributable.v1.tar\",\"size\":1,"
                              "\"digest\":\"" BLOB_B "\",\"urls\":[\"http://x/\"]},"
                              "{\"mediaType\":\"application/"
                              "vnd.oci.image.layer.nondistributable.v1.tar\",\"size\":1,"
                              "\"digest\":\"blake3:"
                              "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\"}"
                              "]}";
    cr_expect_eq(put(PUSH "latest", body), 201, "%.800s", strbuf_str(&got.all));
    cr_assert_eq(pushed.n_needs, 2);
    cr_expect_eq(pushed.needs[1].kind, NEED_OPTIONAL);
}

/* ---- what is refused --------------------------------------------------------------------------
 */

Test(push, missing_parts_are_named_each)
{
    fake_missing[0] = fake_held.digest;
    fake_missing[1] = fake_cold.digest;
    fake_n_missing = 2;
    put(PUSH "latest", IMAGE(""));
    expect_refusal(404, "MANIFEST_BLOB_UNKNOWN", "push it to \"" REPO "\"");
    expect_header("Content-Type", "application/json");
    _cleanup_json_ struct json *root = parse_body();
    const struct json *e = json_first(json_get(root, "errors"));
    char digest[DIGEST_TEXT_MAX];
    for (unsigned i = 0; i < 2; i++, e = json_next(e)) {
        const struct json *detail = json_get(e, "detail");
        digest_format(&fake_missing[i], digest);
        cr_expect_str_eq(json_str(json_get(detail, "digest")), digest);
        cr_expect_str_eq(json_str(json_get(detail, "request")),
                         answer_header(&got, "X-Request-Id"));
        cr_expect(strstr(json_str(json_get(e, "message")), digest));
    }
    cr_expect_null(e);

    fake_n_missing = 150;
    for (unsigned i = 0; i < 150; i++)
        fake_missing[i] = fake_referrer_digest(i);
    put(PUSH "latest", IMAGE(""));
    _cleanup_json_ struct json *many = parse_body();
    cr_expect_eq(json_length(json_get(many, "errors")), 101);
    cr_expect(strstr(got.body, "and 50 more"));
}

Test(push, parts_of_an_algorithm_that_is_not_held)
{
    static const char body[] = "{\"schemaVersion\":2,\"config\":" DESCRIPTOR(
        "text/plain",
        BLOB_A) ",\"layers\":["
                "{\"mediaType\":\"text/plain\",\"size\":1,\"digest\":\"blake3:"
                "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\"}]}";
    put(PUSH "latest", body);
    expect_refusal(404, "MANIFEST_BLOB_UNKNOWN", "blake3:cccc");
    cr_expect(strstr(got.body, "only sha256 and sha512"));
    cr_expect_eq(pushed.n, 0);
}

Test(push, what_storage_refuses)
{
    err_set(&fake_push_error, ERR_INVALID, "the layer is of 8 bytes, not of 7");
    put(PUSH "latest", IMAGE(""));
    expect_refusal(400, "MANIFEST_INVALID", "of 8 bytes");
    err_set(&fake_push_error, ERR_NO_SPACE, "disk full");
    put(PUSH "latest", IMAGE(""));
    expect_refusal(507, "UNAVAILABLE", "disk full");
    err_set(&fake_push_error, ERR_IO, "secret path");
    put(PUSH "latest", IMAGE(""));
    expect_refusal(500, "UNKNOWN", "log");
    cr_expect_null(strstr(got.body, "secret"));
}

Test(push, bodies_that_are_no_manifest)
{
    static const char index[] =
        "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX_TYPE "\",\"manifests\":[]}";
    static const struct {
        const char *type, *body;
        size_t len; /* 0 = of the string */
    } cases[] = {
        {OCI_IMAGE_TYPE, "", 0},
        {OCI_IMAGE_TYPE, "[]", 0},
        {OCI_IMAGE_TYPE, "{\"schemaVersion\":2}", 0},
        {OCI_IMAGE_TYPE, IMAGE("") "x", 0},
        {OCI_IMAGE_TYPE, IMAGE(""), sizeof(IMAGE(""))}, /* with its NUL */
        {OCI_IMAGE_TYPE, "\0\0\0\0", 4},
        {OCI_IMAGE_TYPE, "\xff\xfe{\0}\0", 6},
        {OCI_IMAGE_TYPE, index, 0},
        {OCI_INDEX_TYPE, IMAGE(""), 0},
        {"text/plain", IMAGE(""), 0},
        {"application/vnd.docker.distribution.manifest.v1+prettyjws", IMAGE(""), 0},
        {OCI_IMAGE_TYPE "\r\nContent-Type: " OCI_IMAGE_TYPE, IMAGE(""), 0},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        put_typed(PUSH "latest", cases[i].type, cases[i].body,
                  cases[i].len ? cases[i].len : strlen(cases[i].body));
        cr_expect_eq(got.status, 400, "case %u: %.600s", i, strbuf_str(&got.all));
        expect_refusal(400, "MANIFEST_INVALID", "");
    }
    cr_expect_eq(pushed.n, 0);
    cr_expect_eq(put_typed(PUSH "latest", NULL, IMAGE(""), strlen(IMAGE(""))), 201,
                 "the document itself says what it is: %.600s", strbuf_str(&got.all));
}

Test(push, deep_nesting)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "{\"schemaVersion\":2,\"x\":");
    for (unsigned i = 0; i < 190000; i++)
        strbuf_putc(&b, '[');
    cr_expect_eq(put(PUSH "latest", strbuf_str(&b)), 400);
    expect_refusal(400, "MANIFEST_INVALID", "");
}

/* An image of exactly this many bytes. */
static void padded(struct strbuf *b, size_t size)
{
    static const char head[] =
        IMAGE(",\"annotations\":{\"p\":\"0\"}"); /* the pad goes before its last three bytes */
    strbuf_put(b, head, strlen(head) - 3);
    while (b->len < size - 3)
        strbuf_putc(b, '0');
    strbuf_puts(b, "\"}}");
    cr_assert_eq(b->len, size);
}

static void put_chunked(const struct strbuf *body, size_t chunk)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    for (size_t at = 0; at < body->len; at += chunk) {
        size_t n = body->len - at < chunk ? body->len - at : chunk;
        strbuf_printf(&b, "%zx\r\n", n);
        strbuf_put(&b, body->data + at, n);
        strbuf_puts(&b, "\r\n");
    }
    strbuf_puts(&b, "0\r\n\r\n");
    send_body("PUT", PUSH "latest",
              "Content-Type: " OCI_IMAGE_TYPE "\r\nTransfer-Encoding: chunked\r\n", b.data, b.len);
}

Test(push, up_to_the_limit_and_no_byte_more)
{
    _cleanup_strbuf_ struct strbuf fits = STRBUF_INIT, over = STRBUF_INIT;
    padded(&fits, config.max_manifest);
    padded(&over, config.max_manifest + 1);
    cr_expect_eq(put(PUSH "latest", fits.data), 201, "%.600s", strbuf_str(&got.all));
    cr_expect_eq(pushed.len, config.max_manifest);
    put_chunked(&fits, 1000);
    cr_expect_eq(got.status, 201, "%.600s", strbuf_str(&got.all));
    put(PUSH "latest", over.data);
    expect_refusal(413, "SIZE_INVALID", "\"limits.manifest\"");
    put_chunked(&over, 70000);
    expect_refusal(413, "SIZE_INVALID", "\"limits.manifest\"");
    put_chunked(&over, 1);
    expect_refusal(413, "SIZE_INVALID", "\"limits.manifest\"");
    cr_expect_eq(pushed.n, 2);
}

/* The server lets go of a body after its answer. */
static void expect_memory(size_t want)
{
    uint64_t deadline = clock_monotonic_ms() + 60000;
    while (atomic_load(&server->pushed_memory) != want && clock_monotonic_ms() < deadline)
        sched_yield();
    cr_expect_eq(atomic_load(&server->pushed_memory), want);
}

Test(push, memory_for_bodies_is_bounded)
{
    const size_t others = ((size_t)128 << 20) - 100000;
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    padded(&body, config.max_manifest);
    atomic_store(&server->pushed_memory, others);
    put(PUSH "latest", body.data);
    expect_refusal(503, "UNAVAILABLE", "128 MiB");
    cr_expect(atoi(answer_header(&got, "Retry-After")) > 0);
    expect_memory(others);
    put_chunked(&body, 5000);
    expect_refusal(503, "UNAVAILABLE", "128 MiB");
    expect_memory(others);
    cr_expect_eq(put(PUSH "latest", IMAGE("")), 201, "a small one fits");
    expect_memory(others);
    atomic_store(&server->pushed_memory, (size_t)128 << 20);
    cr_expect_eq(put(PUSH "latest", IMAGE("")), 201, "it needs none of it");
    expect_memory((size_t)128 << 20);
    atomic_store(&server->pushed_memory, 0);
    cr_expect_eq(put(PUSH "latest", body.data), 201);
    expect_memory(0);
}

Test(push, a_client_that_leaves_gives_its_memory_back)
{
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    char head[256];
    padded(&body, config.max_manifest);
    snprintf(head, sizeof(head),
             "PUT " PUSH "latest HTTP/1.1\r\nHost: localhost\r\nContent-Type: " OCI_IMAGE_TYPE
             "\r\nContent-Length: %zu\r\n\r\n",
             body.len);
    int fd = client_connect(url_port(server));
    client_send(fd, head, strlen(head));
    client_send(fd, body.data, body.len - 1);
    uint64_t deadline = clock_monotonic_ms() + 60000;
    while (!atomic_load(&server->pushed_memory) && clock_monotonic_ms() < deadline)
        sched_yield();
    cr_expect(atomic_load(&server->pushed_memory) > 0);
    close(fd);
    expect_memory(0);
    cr_expect_eq(pushed.n, 0);
}

Test(push, a_full_disk)
{
    fake_full = true;
    put(PUSH "latest", IMAGE(""));
    expect_refusal(507, "UNAVAILABLE", "free_floor_percent");
    cr_expect_eq(pushed.n, 0);
}

static struct config_access rules[] = {{"open/**", ACCESS_PUSH | ACCESS_DELETE},
                                       {"*", ACCESS_PULL}};

static void with_rules(void)
{
    config.access = rules;
    config.n_access = ARRAY_LEN(rules);
    start();
}

Test(push, rules, .init = with_rules)
{
    put(PUSH "latest", IMAGE(""));
    expect_refusal(403, "DENIED", "push to \"" REPO "\"");
    request("DELETE", PUSH "latest");
    expect_refusal(403, "DENIED", "delete from \"" REPO "\"");
    request("DELETE", "/v2/" REPO "/blobs/" BLOB_A);
    expect_refusal(403, "DENIED", "delete from");
    request("GET", "/admin/v1/history/" REPO ":v1");
    expect_refusal(403, "DENIED", "admin");
    cr_expect_eq(pushed.n + atomic_load(&fake_removed), 0);
}

/* ---- names under an upstream's prefix ---------------------------------------------------------
 */

#define WITH_SUBJECT IMAGE(",\"subject\":" DESCRIPTOR(OCI_IMAGE_TYPE, BLOB_B))

Test(push, to_a_mirrored_name)
{
    char path[400];
    put("/v2/" MIRRORED "/manifests/latest", WITH_SUBJECT);
    expect_refusal(403, "DENIED", "\"local/org/model\"");
    digest_path(DIGEST_SHA256, MIRRORED, IMAGE(""), "", path, sizeof(path));
    put(path, IMAGE(""));
    expect_refusal(403, "DENIED", "prefix \"hf\"");
    digest_path(DIGEST_SHA256, MIRRORED, WITH_SUBJECT, "?tag=a", path, sizeof(path));
    put(path, WITH_SUBJECT);
    expect_refusal(403, "DENIED", "without tags");
    cr_expect_eq(pushed.n, 0);
    digest_path(DIGEST_SHA256, MIRRORED, WITH_SUBJECT, "", path, sizeof(path));
    cr_expect_eq(put(path, WITH_SUBJECT), 201, "%.600s", strbuf_str(&got.all));
    cr_expect(pushed.is_mirror && pushed.has_subject && pushed.n_tags == 0);
}

Test(push, blobs_of_an_upstream_are_not_deleted)
{
    request("DELETE", "/v2/" MIRRORED "/blobs/" BLOB_A);
    expect_refusal(403, "DENIED", "delete the manifest");
    cr_expect_eq(fake_unlinked.alg, DIGEST_NONE);
}

/* ---- immutable tags, deletes ------------------------------------------------------------------
 */

static void with_immutable(void)
{
    config.immutable_tags = &immutable;
    config.n_immutable_tags = 1;
    fake_taken_tag = "v1";
    start();
}

Test(push, immutable_tags, .init = with_immutable)
{
    put(PUSH "v1", IMAGE(""));
    expect_refusal(409, "DENIED", "v1 (immutable_tags) points at sha256:1234");
    put(PUSH "v2?tag=v1", IMAGE(""));
    expect_refusal(409, "DENIED", "v1");
    cr_expect_eq(put(PUSH "v2", IMAGE("")), 201);
    request("DELETE", PUSH "v1");
    expect_refusal(409, "DENIED", "immutable_tags");
    request("DELETE", PUSH BLOB_A);
    expect_refusal(409, "DENIED", "immutable_tags");
    cr_expect_eq(request("DELETE", PUSH "latest"), 202);
    cr_expect_eq(atomic_load(&fake_removed), 1);
    char path[400], digest[DIGEST_TEXT_MAX];
    snprintf(path, sizeof(path), "/v2/" REPO "/blobs/%s", digest_format(&fake_held.digest, digest));
    request("DELETE", path);
    expect_refusal(409, "DENIED", "immutable_tags");
    cr_expect(fake_has_guard);
    immutable.repositories = "another/*";
    cr_expect_eq(request("DELETE", path), 202);
    cr_expect(!fake_has_guard, "no rule can hold: nothing is looked up");
    immutable.repositories = "local/*";
}

Test(push, deletes)
{
    char path[400], digest[DIGEST_TEXT_MAX];
    cr_expect_eq(request("DELETE", PUSH "latest"), 202);
    cr_expect_eq(got.body_len, 0);
    expect_header("Content-Length", "0");
    cr_expect_str_eq(fake_removed_by, "delete 127.0.0.1");
    cr_expect_eq(request("DELETE", PUSH BLOB_A), 202);
    cr_expect_eq(atomic_load(&fake_removed), 2);
    snprintf(path, sizeof(path), "/v2/" REPO "/blobs/%s", digest_format(&fake_held.digest, digest));
    cr_expect_eq(request("DELETE", path), 202);
    cr_expect(digest_equal(&fake_unlinked, &fake_held.digest));
    request("DELETE", "/v2/" REPO "/blobs/" BLOB_A);
    expect_refusal(404, "BLOB_UNKNOWN", BLOB_A);
    request("DELETE", "/v2/no/such/manifests/latest");
    expect_refusal(404, "MANIFEST_UNKNOWN", "");
    request("DELETE", "/v2/" REPO "/blobs/sha256:short");
    expect_refusal(400, "DIGEST_INVALID", "");
}

Test(push, deletes_can_be_switched_off)
{
    config.delete_denied = true;
    start();
    request("DELETE", PUSH "latest");
    expect_refusal(405, "UNSUPPORTED", "\"delete\" is \"deny\"");
    expect_header("Allow", "GET, HEAD, PUT");
    request("DELETE", "/v2/" REPO "/blobs/" BLOB_A);
    expect_refusal(405, "UNSUPPORTED", "\"delete\" is \"deny\"");
    expect_header("Allow", "GET, HEAD");
    cr_expect_eq(atomic_load(&fake_removed), 0);
}

/* ---- referrers --------------------------------------------------------------------------------
 */

#define REFERRERS "/v2/" REPO "/referrers/" BLOB_A

Test(push, no_referrers)
{
    static const char *const targets[] = {REFERRERS, "/v2/no/such/referrers/" BLOB_A};
    fake_referrers = 0;
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(request("GET", targets[i]), 200);
        expect_header("Content-Type", OCI_INDEX_TYPE);
        expect_header("Link", "");
        expect_header("OCI-Filters-Applied", "");
        cr_expect_str_eq(got.body, "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX_TYPE
                                   "\",\"manifests\":[]}");
    }
    request("GET", "/v2/" REPO "/referrers/sha256:short");
    expect_refusal(400, "DIGEST_INVALID", "");
    request("GET", "/v2/" REPO "/referrers/latest");
    expect_refusal(400, "DIGEST_INVALID", "");
}

/* Follows the pages and returns how many entries there were in all. */
static unsigned walk(const char *first, unsigned *pages, size_t *largest)
{
    char target[1024];
    unsigned n = 0, last = 0;
    snprintf(target, sizeof(target), "%s", first);
    for (*pages = 0; *target; (*pages)++) {
        cr_assert_eq(request("GET", target), 200, "%.600s", strbuf_str(&got.all));
        _cleanup_json_ struct json *root = parse_body();
        const struct json *e = json_first(json_get(root, "manifests"));
        for (; e; e = json_next(e), n++) {
            uint64_t size = 0;
            cr_assert(json_u64(json_get(e, "size"), &size));
            cr_assert(size > last, "in order, none twice");
            last = (unsigned)size;
        }
        *largest = got.body_len > *largest ? got.body_len : *largest;
        const char *link = answer_header(&got, "Link");
        cr_assert(!*link || link[0] == '<');
        const char *end = strstr(link, ">; rel=\"next\"");
        cr_assert(!*link || end);
        snprintf(target, sizeof(target), "%.*s", *link ? (int)(end - link - 1) : 0, link + !!*link);
    }
    return n;
}

Test(push, referrers_in_pages)
{
    unsigned pages;
    size_t largest = 0;
    fake_referrers = 2001;
    cr_expect_eq(walk(REFERRERS, &pages, &largest), 2001);
    cr_expect_eq(pages, 3);
    cr_expect_eq(walk(REFERRERS "?n=1000000", &pages, &largest), 2001);
    cr_expect_eq(pages, 3);
    fake_referrers = 700;
    cr_expect_eq(walk(REFERRERS, &pages, &largest), 700);
    cr_expect_eq(pages, 1);
    cr_expect_eq(walk(REFERRERS "?n=100", &pages, &largest), 700);
    cr_expect_eq(pages, 7);
    cr_expect_eq(walk(REFERRERS "?n=0", &pages, &largest), 700);
    fake_annotation_size = 100000;
    cr_expect_eq(walk(REFERRERS, &pages, &largest), 700);
    cr_expect(largest < 4u << 20, "%zu bytes", largest);
    cr_expect(pages >= 700 / 40);
    fake_referrers = 3;
    fake_annotation_size = 4000000;
    largest = 0;
    cr_expect_eq(walk(REFERRERS, &pages, &largest), 3);
    cr_expect_eq(pages, 3);
}

Test(push, referrers_of_a_type)
{
    unsigned pages;
    size_t largest = 0;
    fake_referrers = 300;
    cr_expect_eq(walk(REFERRERS "?artifactType=application%2Fvnd.test.signature.v1%2Bjson&n=30",
                      &pages, &largest),
                 100);
    cr_expect_eq(pages, 4);
    expect_header("OCI-Filters-Applied", "artifactType");
    cr_expect_eq(walk(REFERRERS "?artifactType=text/%3Csbom%3E&n=99", &pages, &largest), 100);
    cr_expect_eq(pages, 2);
    cr_expect_eq(walk(REFERRERS "?artifactType=no/such", &pages, &largest), 0);
    cr_expect_eq(walk(REFERRERS "?artifactType=", &pages, &largest), 300);
    expect_header("OCI-Filters-Applied", "");
    fake_annotation_size = 1;
    cr_expect_eq(request("GET", REFERRERS "?n=2&artifactType=text/%3Csbom%3E"), 200);
    char want[700], digest[DIGEST_TEXT_MAX];
    struct digest d = fake_referrer_digest(1);
    snprintf(want, sizeof(want),
             "{\"mediaType\":\"application/x-test\",\"digest\":\"%s\",\"size\":1001,"
             "\"artifactType\":\"text/\\u003csbom\\u003e\",\"annotations\":{\"k\":\"x\"}},{",
             digest_format(&d, digest));
    cr_expect(strstr(got.body, want), "%s is not in %.900s", want, got.body);
    d = fake_referrer_digest(4);
    snprintf(want, sizeof(want),
             "<" REFERRERS "?artifactType=text/%%3Csbom%%3E&n=2&last=%s>; rel=\"next\"",
             digest_format(&d, digest));
    expect_header("Link", want);
    cr_expect_eq(request("HEAD", REFERRERS), 200);
    expect_header("Content-Type", OCI_INDEX_TYPE);
    cr_expect_eq(got.body_len, 0);
    cr_expect(got.content_length > 0);
}

Test(push, questions_about_referrers_that_make_no_sense)
{
    request("GET", REFERRERS "?n=-1");
    expect_refusal(400, "UNSUPPORTED", "page size");
    request("GET", REFERRERS "?last=v1");
    expect_refusal(400, "UNSUPPORTED", "");
    request("GET", REFERRERS "?artifactType=%zz");
    expect_refusal(400, "UNSUPPORTED", "percent");
}

/* ---- history, catalog -------------------------------------------------------------------------
 */

Test(push, history)
{
    cr_expect_eq(request("GET", "/admin/v1/history/" REPO ":v1"), 200, "%.600s",
                 strbuf_str(&got.all));
    char want[1024], one[DIGEST_TEXT_MAX], two[DIGEST_TEXT_MAX];
    struct digest a = fake_referrer_digest(1), b = fake_referrer_digest(2);
    snprintf(want, sizeof(want),
             "{\"repository\":\"" REPO "\",\"tag\":\"v1\",\"events\":["
             "{\"at\":\"2026-11-30T11:05:00.123Z\",\"removed\":true,\"source\":\"delete "
             "10.0.0.9\"},"
             "{\"at\":\"2026-11-30T11:03:20.000Z\",\"digest\":\"%s\",\"commit\":"
             "\"0123456789012345678901234567890123456789\",\"source\":\"import hf Org/Name\"},"
             "{\"at\":\"1970-01-01T00:00:00.000Z\",\"digest\":\"%s\",\"source\":\"push "
             "10.0.0.7\"}]}\n",
             digest_format(&a, one), digest_format(&b, two));
    cr_expect_str_eq(got.body, want);
    cr_expect_eq(request("GET", "/admin/v1/history/" REPO ":v1?n=1"), 200);
    _cleanup_json_ struct json *root = parse_body();
    cr_expect_eq(json_length(json_get(root, "events")), 1);
    cr_expect_eq(request("GET", "/admin/v1/history/" REPO ":v1?n=0"), 200);
    cr_expect(strstr(got.body, "\"events\":[]"));
    request("GET", "/admin/v1/history/" REPO ":v2");
    expect_refusal(404, "MANIFEST_UNKNOWN", "no event is recorded for " REPO ":v2");
    request("GET", "/admin/v1/history/" REPO ":v1?n=x");
    expect_refusal(400, "UNSUPPORTED", "");
    request("GET", "/admin/v1/history/" REPO "@" BLOB_A);
    cr_expect_eq(got.status, 400);
    request("GET", "/admin/v1/history/" REPO);
    cr_expect_eq(got.status, 400);
}

Test(push, history_is_not_for_web_pages)
{
    answer_done(&got);
    ask(server, "GET", "/admin/v1/history/" REPO ":v1", "Origin: http://x.example\r\n", &got);
    expect_refusal(403, "DENIED", "web pages");
}

Test(push, a_page_of_the_catalog_asks_for_no_more_than_it_needs)
{
    cr_expect_eq(request("GET", "/v2/_catalog?n=1"), 200);
    cr_expect_eq(fake_asked_names, 2);
    cr_expect_str_eq(got.body, "{\"repositories\":[\"a\"]}");
    expect_header("Link", "</v2/_catalog?n=1&last=a>; rel=\"next\"");
    cr_expect_eq(request("GET", "/v2/_catalog?n=0"), 200);
    cr_expect_str_eq(got.body, "{\"repositories\":[]}");
    expect_header("Link", "");
    cr_expect_eq(request("GET", "/v2/_catalog?n=5"), 200);
    cr_expect_str_eq(got.body, "{\"repositories\":[\"a\",\"b\",\"c.1\",\"d_2\",\"e\"]}");
    expect_header("Link", "");
}
