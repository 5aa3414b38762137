/* The Hub's own API over stand-ins: what its clients go by, on every answer. */
#include "http_case.h"

#define FILES "/org/name/resolve/main/"

TestSuite(hub_api, .init = set_up, .fini = tear_down, .timeout = 120);

static char held_hex[65];

/* As expect_common(), and nothing that leads clients elsewhere or makes them think of a registry.
 */
static void expect_hub(int status)
{
    static const char *const never[] = {"Location",         "Link",
                                        "Content-Encoding", "X-Xet-Hash",
                                        "X-Linked-Etag",    "X-Xet-Refresh-Route",
                                        "X-Linked-Size",    "Docker-Distribution-API-Version",
                                        "Transfer-Encoding"};
    cr_assert_eq(got.status, status, "%.900s", strbuf_str(&got.all));
    for (unsigned i = 0; i < ARRAY_LEN(never); i++)
        expect_header(never[i], "");
    expect_header("X-Content-Type-Options", "nosniff");
    cr_expect(is_lower_hex(answer_header(&got, "X-Request-Id"), 16));
    cr_expect(strstr(answer_header(&got, "Access-Control-Expose-Headers"), "X-Repo-Commit"));
    cr_expect_neq(answer_header(&got, "Content-Length")[0], '\0');
}

static void expect_file(int status, const char *etag)
{
    char quoted[80];
    expect_hub(status);
    snprintf(quoted, sizeof(quoted), "\"%s\"", etag);
    expect_header("ETag", quoted);
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    expect_header("X-Error-Code", "");
    if (status != 304)
        expect_header("Accept-Ranges", "bytes");
}

static void expect_refusal(int status, const char *code)
{
    struct error err = ERROR_INIT;
    _cleanup_json_ struct json *root = NULL;
    expect_hub(status);
    expect_header("X-Error-Code", code);
    cr_expect_neq(answer_header(&got, "X-Error-Message")[0], '\0');
    expect_header("Content-Type", "application/json; charset=utf-8");
    expect_header("Cache-Control", "no-store");
    cr_assert_eq(json_parse(got.body, got.body_len, &root, &err), 0, "%s", err.text);
    cr_expect_not_null(json_str(json_get(root, "error")));
    cr_expect_eq(got.body_len, got.content_length);
}

static void set_up_hub(void)
{
    set_up();
    hex_format(fake_held.digest.raw, 32, held_hex);
}

TestSuite(hub_files, .init = set_up_hub, .fini = tear_down, .timeout = 120);

/* ---- files ------------------------------------------------------------------------------------
 */

Test(hub_files, resolve)
{
    static const char *const paths[] = {FILES "held.bin",
                                        "/hf" FILES "held.bin",
                                        "/org/name/resolve/" FAKE_COMMIT "/held.bin",
                                        "/org/name/resolve/refs%2Fpr%2F1/held.bin",
                                        "/org/name/resolve/refs/pr/1/held.bin",
                                        "/api/resolve-cache/models/org/name/" FAKE_COMMIT
                                        "/held.bin?%2Fx=&etag=%22y%22"};
    for (unsigned i = 0; i < ARRAY_LEN(paths); i++) {
        cr_expect_eq(request("GET", paths[i]), 200);
        expect_file(200, held_hex);
        expect_bytes(fake_held.data, HELD_SIZE);
        expect_header("Content-Type", "application/octet-stream");
        cr_expect_eq(request("HEAD", paths[i]), 200);
        expect_file(200, held_hex);
        cr_expect_eq(got.content_length, HELD_SIZE);
        cr_expect_eq(got.body_len, 0);
    }
    cr_expect_eq(request("GET", FILES "config.json"), 200);
    expect_file(200, FAKE_OID);
    expect_header("Content-Type", "text/plain; charset=utf-8");
    expect_header("Content-Disposition", "inline; filename*=UTF-8''config.json");
}

Test(hub_files, ranges)
{
    static const struct {
        const char *header;
        int status;
        uint64_t first, length;
        const char *content_range;
    } ranges[] = {
        {"Range: bytes=0-0\r\n", 206, 0, 1, "bytes 0-0/5000"},
        {"Range: bytes=4990-\r\n", 206, 4990, 10, "bytes 4990-4999/5000"},
        {"Range: bytes=0-100000\r\n", 206, 0, 5000, "bytes 0-4999/5000"},
        {"Range: bytes=100-5000\r\n", 206, 100, 4900, "bytes 100-4999/5000"},
        {"Range: bytes=0-1,4-5\r\n", 200, 0, 5000, ""},
        {"Range: bytes=10-19\r\nIf-Range: \"other\"\r\n", 200, 0, 5000, ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(ranges); i++) {
        cr_expect_eq(request_h("GET", FILES "held.bin", ranges[i].header), ranges[i].status);
        expect_file(ranges[i].status, held_hex);
        expect_bytes(fake_held.data + ranges[i].first, ranges[i].length);
        expect_header("Content-Range", ranges[i].content_range);
    }
    request_h("GET", FILES "held.bin", "Range: bytes=5000-\r\n");
    expect_refusal(416, "");
    expect_header("Content-Range", "bytes */5000");
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    cr_expect_eq(request_h("HEAD", FILES "held.bin", "Range: bytes=0-0\r\n"), 200);
    cr_expect_eq(got.content_length, HELD_SIZE);
    expect_header("Content-Range", "");
}

Test(hub_files, empty_file)
{
    static const char *const headers[] = {"Range: bytes=0-0\r\n", "Range: bytes=0-\r\n",
                                          "Range: bytes=5-9\r\n", "Range: bytes=-1\r\n"};
    for (unsigned i = 0; i < ARRAY_LEN(headers); i++) {
        cr_expect_eq(request_h("GET", FILES "empty", headers[i]), 200);
        expect_file(200, FAKE_OID);
        expect_bytes("", 0);
        expect_header("Content-Range", "bytes */0");
    }
    cr_expect_eq(request("GET", FILES "empty"), 200);
    expect_header("Content-Length", "0");
    expect_header("Content-Range", "");
}

Test(hub_files, conditions)
{
    char header[128];
    snprintf(header, sizeof(header), "If-None-Match: \"%s\"\r\n", held_hex);
    static const char *const methods[] = {"GET", "HEAD"};
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(request_h(methods[i], FILES "held.bin", header), 304);
        expect_file(304, held_hex);
        cr_expect_eq(got.body_len, 0);
        cr_expect_eq(request_h(methods[i], FILES "config.json", header), 200);
    }
    snprintf(header, sizeof(header), "If-None-Match: \"%s\"\r\n", FAKE_OID);
    cr_expect_eq(request_h("GET", "/org/name/raw/main/config.json", header), 200);
    expect_bytes(fake_held.data, HELD_SIZE);
}

Test(hub_files, raw_pointer)
{
    char oid[GIT_OID_TEXT], quoted[48];
    static const char pointer[] = "pointer 5000\n";
    cr_assert_eq(git_blob_oid(pointer, strlen(pointer), oid, NULL), 0);
    snprintf(quoted, sizeof(quoted), "\"%s\"", oid);
    cr_expect_eq(request("GET", "/org/name/raw/main/held.bin"), 200);
    expect_bytes(pointer, strlen(pointer));
    expect_header("ETag", quoted);
    cr_expect_eq(request("HEAD", "/org/name/raw/main/held.bin"), 200);
    cr_expect_eq(got.content_length, strlen(pointer));
}

Test(hub_files, cold_file_streams)
{
    fake_grow(COLD_SIZE);
    cr_expect_eq(request("HEAD", FILES "dir/cold.bin"), 200);
    cr_expect_eq(got.content_length, COLD_SIZE);
    cr_expect_eq(fake_cold.readers, 0, "a HEAD reads nothing");
    cr_expect_eq(request("GET", FILES "dir/cold.bin"), 200);
    expect_bytes(fake_cold.data, COLD_SIZE);
    cr_expect_eq(request_h("GET", FILES "dir%2Fcold.bin", "Range: bytes=1000-1999\r\n"), 206);
    expect_bytes(fake_cold.data + 1000, 1000);
}

Test(hub_files, broken_off)
{
    fake_grow(1000);
    fake_fail(ERR_DIGEST_MISMATCH, "other bytes");
    cr_expect_eq(request("GET", FILES "dir/cold.bin"), 200);
    cr_expect_eq(got.content_length, COLD_SIZE);
    cr_expect_eq(got.body_len, 1000);
}

Test(hub_files, stale)
{
    fake_warning = "the Hub is down";
    cr_expect_eq(request("GET", FILES "held.bin"), 200);
    expect_file(200, held_hex);
    expect_header("Warning", "299 - \"the Hub is down\"");
}

Test(hub_files, revision_with_slashes)
{
    cr_expect_eq(request("GET", "/org/name/resolve/feature/x/held.bin"), 200);
    expect_bytes(fake_held.data, HELD_SIZE);
    cr_expect_str_eq(fake_query.revision, FAKE_BRANCH);
    atomic_store(&fake_hub_asked, 0);
    request("GET", "/org/name/resolve/no/such/branch/in/this/one/held.bin");
    expect_refusal(404, "RevisionNotFound");
    expect_header("X-Error-Message", "Invalid rev id: no");
    cr_expect_leq(atomic_load(&fake_hub_asked), 4);
    atomic_store(&fake_hub_asked, 0);
    request("GET", "/org/name/resolve/no%2Fsuch/branch/held.bin");
    expect_refusal(404, "RevisionNotFound");
    cr_expect_eq(atomic_load(&fake_hub_asked), 1, "a client that escapes means what it says");
}

/* ---- errors -----------------------------------------------------------------------------------
 */

Test(hub_api, not_found)
{
    request("GET", FILES "generation_config.json");
    expect_refusal(404, "EntryNotFound");
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    cr_expect_eq(request("HEAD", FILES "generation_config.json"), 404);
    expect_header("X-Error-Code", "EntryNotFound");
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    cr_expect_eq(got.body_len, 0);
    request("GET", "/org/other/resolve/main/x");
    expect_refusal(404, "RepoNotFound");
    request("GET", "/api/models/org/na--me");
    expect_refusal(404, "RepoNotFound");
    request("GET", "/org/name/resolve/nothing/x");
    expect_refusal(404, "RevisionNotFound");
    expect_header("X-Repo-Commit", "");
    request("GET", "/hf/org/name");
    expect_refusal(404, "");
}

Test(hub_api, statuses)
{
    static const struct {
        enum err_code code;
        enum hub_refused refused;
        unsigned retry_after;
        int head, get, info;
        const char *error_code, *wait;
    } rows[] = {
        {ERR_DENIED, HUB_REFUSED_GATED, 0, 403, 403, 403, "GatedRepo", ""},
        {ERR_DENIED, HUB_REFUSED_POLICY, 0, 403, 403, 403, "", ""},
        {ERR_NOT_FOUND, HUB_REFUSED_REPOSITORY, 0, 404, 404, 404, "RepoNotFound", ""},
        {ERR_UNAUTHORIZED, HUB_REFUSED_TOKEN, 0, 401, 401, 401, "", ""},
        {ERR_UPSTREAM, HUB_REFUSED_NOT, 0, 503, 429, 503, "", "5"},
        {ERR_TIMEOUT, HUB_REFUSED_NOT, 7, 503, 429, 503, "", "7"},
        {ERR_BUSY, HUB_REFUSED_NOT, 0, 503, 429, 503, "", "2"},
        {ERR_RATE_LIMITED, HUB_REFUSED_NOT, 55, 429, 429, 429, "", "55"},
        {ERR_DIGEST_MISMATCH, HUB_REFUSED_NOT, 0, 502, 502, 502, "", ""},
        {ERR_IO, HUB_REFUSED_NOT, 0, 500, 500, 500, "", ""},
        {ERR_NO_SPACE, HUB_REFUSED_NOT, 0, 507, 507, 507, "", ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
        err_set(&fake_error, rows[i].code, "the \xc3\xa9 cause of %d", (int)i);
        fake_error.retry_after = rows[i].retry_after;
        fake_refused = rows[i].refused;
        cr_expect_eq(request("HEAD", FILES "held.bin"), rows[i].head, "%u: %d", i, got.status);
        expect_header("X-Error-Code", rows[i].error_code);
        expect_header("Retry-After", rows[i].wait);
        request("GET", "/api/models/org/name");
        expect_refusal(rows[i].info, rows[i].error_code);
        request("GET", FILES "held.bin");
        expect_refusal(rows[i].get, rows[i].error_code);
        expect_header("Retry-After", rows[i].wait);
        if (rows[i].code == ERR_IO)
            cr_expect_not(strstr(got.body, "cause"), "our own failures are for the log");
        else if (rows[i].refused == HUB_REFUSED_TOKEN)
            expect_header("X-Error-Message", "Invalid credentials in Authorization header");
        else
            cr_expect(strncmp(answer_header(&got, "X-Error-Message"), "the ?? cause of ", 16) == 0);
    }
}

Test(hub_api, rate_limit)
{
    err_set(&fake_error, ERR_RATE_LIMITED, "too many");
    fake_error.retry_after = 55;
    request("GET", FILES "held.bin");
    expect_header("RateLimit", "\"api\";r=0;t=55");
    err_set(&fake_error, ERR_BUSY, "busy");
    request("GET", FILES "held.bin");
    expect_header("RateLimit", "");
}

Test(hub_api, tokens_are_wanted_where_they_are_forwarded)
{
    upstream.credentials = CREDENTIALS_FORWARD;
    err_set(&fake_error, ERR_DENIED, "gated");
    fake_refused = HUB_REFUSED_GATED;
    request("GET", FILES "held.bin");
    expect_refusal(401, "GatedRepo");
    expect_header("WWW-Authenticate", "Bearer");
    request_h("GET", FILES "held.bin", "Authorization: Bearer hf_x\r\n");
    expect_refusal(403, "GatedRepo");
    expect_header("WWW-Authenticate", "");
    fake_refused = HUB_REFUSED_REPOSITORY;
    request("GET", "/api/models/org/name");
    expect_refusal(401, "RepoNotFound");
    request_h("GET", "/api/models/org/name", "Authorization: Bearer hf_x\r\n");
    expect_refusal(404, "RepoNotFound");
}

Test(hub_api, a_file_that_will_not_open)
{
    err_set(&fake_open_error, ERR_DIGEST_MISMATCH, "it did not hash to its name");
    request_h("GET", FILES "held.bin", "Range: bytes=100-\r\n");
    expect_refusal(502, "");
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    err_set(&fake_open_error, ERR_UPSTREAM, "cut");
    request("GET", FILES "held.bin");
    expect_refusal(429, "");
    err_set(&fake_open_error, ERR_DENIED, "the Hub wants an agreement");
    request("GET", FILES "held.bin");
    expect_refusal(403, "GatedRepo");
    fake_open_error = ERROR_INIT;
    request("GET", FILES "damaged.bin");
    expect_refusal(500, "");
}

Test(hub_api, long_messages)
{
    char text[1000];
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    err_set(&fake_error, ERR_DENIED, "%s", text);
    fake_refused = HUB_REFUSED_POLICY;
    request("GET", "/api/models/org/name");
    expect_refusal(403, "");
    cr_expect_eq(strlen(answer_header(&got, "X-Error-Message")), 500);
    cr_expect_gt(got.body_len, 990);
}

Test(hub_api, access_rules)
{
    struct config_access rules[] = {{.repositories = (char *)"hf/org/*", .allow = 0},
                                    {.repositories = (char *)"*", .allow = ACCESS_PULL}};
    config.access = rules;
    config.n_access = 2;
    start();
    request("GET", FILES "held.bin");
    expect_refusal(403, "");
    cr_expect(strstr(got.body, "access"), "%s", got.body);
    cr_expect_eq(atomic_load(&fake_hub_asked), 0);
    request("GET", "/datasets/org/name/resolve/main/held.bin");
    expect_file(200, held_hex[0] ? held_hex : (hex_format(fake_held.digest.raw, 32, held_hex)));
    config.n_access = 0;
}

static void one_client(void)
{
    config.max_clients = 1;
    start();
}

Test(hub_api, too_many_clients, .init = one_client)
{
    int first = client_connect(url_port(server));
    while (request("HEAD", FILES "held.bin") != 503) /* until it is counted */
        ;
    expect_header("Retry-After", "2");
    request("GET", FILES "held.bin");
    expect_refusal(429, "");
    expect_header("Retry-After", "2");
    request("GET", "/api/models/org/name");
    expect_refusal(503, "");
    close(first);
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

Test(hub_api, never_asked)
{
    static const char *const paths[] = {
        "/api/telemetry/hf_hub",
        "/api/agent-harnesses",
        "/api/models?search=x",
        "/api/models/org/name/discussions?p=0",
        "/api/models/gpt2/xet-read-token/main",
    };
    for (unsigned i = 0; i < ARRAY_LEN(paths); i++) {
        request("GET", paths[i]);
        expect_refusal(404, "");
        cr_expect_eq(request("HEAD", paths[i]), 404);
    }
    request_h("POST", "/api/repos/create", "Content-Length: 2\r\n");
    cr_expect_eq(atomic_load(&fake_hub_asked), 0);
    cr_expect_eq(raw("POST /api/repos/create HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Length: 2\r\n\r\n{}"),
                 404);
    expect_refusal(404, "");
}

Test(hub_api, methods_and_forms)
{
    request("DELETE", "/api/models/org/name");
    expect_refusal(405, "");
    expect_header("Allow", "GET, HEAD");
    request("GET", FILES "a/../b");
    expect_refusal(400, "");
    request("GET", FILES "a%00");
    expect_refusal(400, "");
    request("GET", "/org/name/nothing");
    expect_error(404, "UNSUPPORTED");
}

Test(hub_api, documents)
{
    static const struct {
        const char *path, *body;
    } documents[] = {
        {"/api/models/org/name/refs", "{\"branches\":[],\"tags\":[],\"converts\":[]}"},
        {"/api/models/org/name/tree/main?expand=true", "[]"},
        {"/api/models/org/name/commits/main", "[]"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(documents); i++) {
        cr_expect_eq(request("GET", documents[i].path), 200);
        expect_hub(200);
        expect_header("Content-Type", "application/json; charset=utf-8");
        expect_header("X-Repo-Commit", FAKE_COMMIT);
        expect_bytes(documents[i].body, strlen(documents[i].body));
    }
    expect_header("X-Total-Count", "3");
    cr_expect_eq(request("GET", "/api/whoami-v2"), 401);
}

Test(hub_api, bodies)
{
    static const char form[] = "POST /api/models/org/name/paths-info/main HTTP/1.1\r\nHost: x\r\n"
                               "Connection: close\r\nContent-Type: "
                               "application/x-www-form-urlencoded\r\n";
    char text[1024];
    snprintf(text, sizeof(text), "%sContent-Length: 7\r\n\r\npaths=a", form);
    cr_expect_eq(raw(text), 200);
    expect_hub(200);
    expect_bytes("[]", 2);
    snprintf(text, sizeof(text),
             "%sTransfer-Encoding: chunked\r\n\r\n3\r\npat\r\n4\r\nhs=a\r\n0\r\n\r\n", form);
    cr_expect_eq(raw(text), 200);
    snprintf(text, sizeof(text), "%sContent-Length: 200000000\r\n\r\n", form);
    raw(text);
    expect_refusal(413, "");
}

Test(hub_api, llama_and_registry_clients_do_not_meet)
{
    static const char path[] = "/v2/local/model/manifests/latest";
    cr_expect_eq(request_h("GET", path,
                           "User-Agent: llama-cpp/b5000\r\nAccept: "
                           "application/json\r\n"),
                 404);
    expect_refusal(404, "RepoNotFound");
    cr_expect_eq(request_h("GET", path, "User-Agent: llama-cpp\r\n"), 404);
    expect_refusal(404, "RepoNotFound");
    cr_expect_eq(request_h("GET", path,
                           "User-Agent: llama-cpp\r\nAccept: "
                           "application/vnd.oci.image.manifest.v1+json\r\n"),
                 200);
    cr_expect_eq(request_h("GET", path, "User-Agent: oras\r\nAccept: application/json\r\n"), 200);
    cr_expect_eq(request_h("GET", path, "Accept: */*\r\n"), 200);
    request("GET", "/hf/v2/org/other/manifests/latest");
    expect_refusal(404, "RepoNotFound");
}

Test(hub_api, a_text_that_was_sent_is_given_back)
{
    static const char *const queries[] = {"", "?blobs=true", "?expand=sha"};
    for (unsigned i = 0; i < ARRAY_LEN(queries); i++) {
        char path[64];
        snprintf(path, sizeof(path), "/api/models/org/name%s", queries[i]);
        cr_expect_eq(request("GET", path), 200);
        expect_hub(200);
        if (i == 0)
            expect_bytes(FAKE_INFO, strlen(FAKE_INFO));
        cr_expect_eq(request("HEAD", path), 200);
    }
    start(); /* anew, when all answers are through */
    cr_expect_eq(fake_texts, 0);
}

/* ---- long lists -------------------------------------------------------------------------------
 */

#define LONG_N 6000u

static char long_names[LONG_N][32];

static void has_long_list(void)
{
    static struct commit_file files[LONG_N];
    for (unsigned i = 0; i < LONG_N; i++) {
        snprintf(long_names[i], sizeof(long_names[i]), "data/%08u.bin", i);
        files[i] = (struct commit_file){.path = long_names[i], .size = i, .git_oid = FAKE_OID};
    }
    static struct hub_folder folder = {.path = "data", .git_oid = FAKE_OID};
    fake_listing = (struct hub_listing){
        .list = {.files = files, .n = LONG_N}, .folders = &folder, .n_folders = 1};
}

static void expect_long_list(const struct json *rows, const char *key)
{
    size_t n = 0;
    uint64_t size;
    for (const struct json *j = json_first(rows); j; j = json_next(j), n++) {
        cr_assert_lt(n, LONG_N);
        cr_assert_str_eq(json_str(json_get(j, key)), long_names[n]);
        cr_assert(json_u64(json_get(j, "size"), &size) && size == n);
    }
    cr_expect_eq(n, LONG_N);
}

static struct json *get_long(const char *path)
{
    struct error err = ERROR_INIT;
    struct json *root = NULL;
    cr_expect_eq(request("HEAD", path), 200);
    expect_hub(200);
    uint64_t length = got.content_length;
    cr_expect_eq(request("GET", path), 200);
    expect_hub(200);
    expect_header("X-Repo-Commit", FAKE_COMMIT);
    cr_expect_eq(got.content_length, length);
    cr_expect_eq(got.body_len, length);
    cr_assert_eq(json_parse(got.body, got.body_len, &root, &err), 0, "%s", err.text);
    return root;
}

Test(hub_api, a_long_list_is_whole)
{
    has_long_list();
    _cleanup_json_ struct json *tree = get_long("/api/models/org/name/tree/main?recursive=true");
    cr_assert_str_eq(json_str(json_get(json_first(tree), "type")), "directory");
    cr_assert_eq(json_length(tree), LONG_N + 1);
    _cleanup_json_ struct json *below = get_long("/api/models/org/name/tree/main/data");
    expect_long_list(below, "path");
    _cleanup_json_ struct json *root = get_long("/api/models/org/name/tree/main");
    cr_expect_eq(json_length(root), 1);
    cr_expect_eq(request("GET", "/api/models/org/name/tree/main/none"), 404);
    expect_refusal(404, "EntryNotFound");
}

Test(hub_api, info_of_a_long_list_is_whole)
{
    has_long_list();
    _cleanup_json_ struct json *info = get_long("/api/models/org/name?blobs=true");
    cr_expect_str_eq(json_str(json_get(info, "id")), "org/name");
    expect_long_list(json_get(info, "siblings"), "rfilename");
    _cleanup_json_ struct json *part = get_long("/api/models/org/name?blobs=true&expand=sha");
    cr_expect_null(json_get(part, "siblings"));
    cr_expect_str_eq(json_str(json_get(part, "sha")), FAKE_COMMIT);
}

Test(hub_api, a_page_is_never_longer_than_memory_has_room_for)
{
    has_long_list();
    cr_expect_eq(request("GET", "/api/models/org/name/tree/main/data?limit=6000"), 200);
    expect_header("Link", "");
    cr_expect_eq(request("GET", "/api/models/org/name/tree/main/data?limit=5999"), 200);
    cr_expect(strstr(answer_header(&got, "Link"), "rel=\"next\""));
}
