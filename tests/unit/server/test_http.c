/* A whole server over stand-ins: every header rule, refusal and ending that can be shown without a
 * real upstream. */
#include <poll.h>

#include "http_case.h"

#define TYPE "application/vnd.oci.image.manifest.v1+json"

TestSuite(http, .init = set_up, .fini = tear_down, .timeout = 120);

Test(http, base)
{
    cr_expect_eq(request("GET", "/v2/"), 200);
    expect_common();
    expect_header("Content-Type", "application/json");
    expect_bytes("{}", 2);
    cr_expect_eq(request("GET", "/v2"), 200);
    cr_expect_eq(request("HEAD", "/v2/"), 200);
    cr_expect_eq(got.body_len, 0);
    cr_expect_eq(got.content_length, 2);
    request("POST", "/v2/");
    expect_error(405, "UNSUPPORTED");
    expect_header("Allow", "GET, HEAD");
    request("GET", "/nothing");
    expect_error(404, "UNSUPPORTED");
}

Test(http, manifest_by_tag_and_digest)
{
    char digest[DIGEST_TEXT_MAX], etag[DIGEST_TEXT_MAX + 2], header[256], path[256];
    struct digest d;
    digest_of(DIGEST_SHA256, fake_manifest, strlen(fake_manifest), &d, NULL);
    snprintf(etag, sizeof(etag), "\"%s\"", digest_format(&d, digest));
    snprintf(path, sizeof(path), "/v2/" REPO "/manifests/%s", digest);

    cr_expect_eq(request("GET", "/v2/" REPO "/manifests/v1"), 200);
    expect_bytes(fake_manifest, strlen(fake_manifest));
    expect_header("Content-Type", TYPE);
    expect_header("Docker-Content-Digest", digest);
    expect_header("ETag", etag);
    expect_header("Cache-Control", "no-cache");
    expect_header("Warning", "");
    expect_common();

    cr_expect_eq(request("GET", path), 200);
    expect_header("Cache-Control", "max-age=31536000, immutable");

    cr_expect_eq(request_h("HEAD", path, "Accept: text/plain\r\n"), 200);
    cr_expect_eq(got.content_length, strlen(fake_manifest));
    cr_expect_eq(got.body_len, 0);
    expect_header("Docker-Content-Digest", digest);
    expect_header("Content-Type", TYPE);

    snprintf(header, sizeof(header), "If-None-Match: \"x\", %s\r\n", etag);
    cr_expect_eq(request_h("GET", path, header), 304);
    cr_expect_eq(got.body_len, 0);
    expect_header("ETag", etag);
    snprintf(header, sizeof(header), "If-None-Match: %s\r\n", digest);
    cr_expect_eq(request_h("GET", path, header), 304, "unquoted is understood too");
}

Test(http, stale_manifest_warns)
{
    fake_warning = "the \"Hub\" is down\xff \\ since long";
    cr_expect_eq(request("GET", "/v2/" REPO "/manifests/v1"), 200);
    expect_header("Warning", "299 - \"the \\\"Hub\\\" is down? \\\\ since long\"");
    fake_warning = "";
    cr_expect_eq(request("GET", "/v2/" REPO "/manifests/v1"), 200);
    /* which is counted when the answer is behind us */
    static const char counted[] = "weighbridge_stale_answers_total{route=\"manifest\"} 1\n";
    for (uint64_t deadline = clock_monotonic_ms() + 20000; request("GET", "/metrics") == 200 &&
                                                           !strstr(got.body, counted) &&
                                                           clock_monotonic_ms() < deadline;)
        poll(NULL, 0, 20);
    cr_expect(strstr(got.body, counted), "%s", got.body);
}

Test(http, stale_lists_warn)
{
    char referrers[256];
    snprintf(referrers, sizeof(referrers), "/v2/" REPO "/referrers/%s", held_digest);
    const char *const lists[] = {"/v2/" REPO "/tags/list", referrers};
    for (unsigned i = 0; i < ARRAY_LEN(lists); i++) {
        fake_warning = "";
        cr_expect_eq(request("GET", lists[i]), 200);
        expect_header("Warning", "");
        fake_warning = "the registry is down";
        cr_expect_eq(request("GET", lists[i]), 200);
        expect_header("Warning", "299 - \"the registry is down\"");
    }
}

Test(http, held_blob)
{
    char url[512], etag[DIGEST_TEXT_MAX + 2];
    cr_expect_eq(request("GET", held_path), 200);
    expect_bytes(fake_held.data, HELD_SIZE);
    expect_common();
    expect_header("Content-Type", "application/octet-stream");
    expect_header("Docker-Content-Digest", held_digest);
    expect_header("Accept-Ranges", "bytes");
    expect_header("Cache-Control", "max-age=31536000");
    snprintf(etag, sizeof(etag), "\"%s\"", held_digest);
    expect_header("ETag", etag);
    snprintf(url, sizeof(url), "http://localhost:%u%s", url_port(server), held_path);
    expect_header("Location", url);

    cr_expect_eq(request_h("HEAD", held_path, "Range: bytes=0-1\r\n"), 200);
    cr_expect_eq(got.content_length, HELD_SIZE);
    cr_expect_eq(got.body_len, 0);
    expect_header("Accept-Ranges", "bytes");
    expect_header("Location", url);
    cr_expect_eq(request_h("GET", held_path, "If-None-Match: *\r\n"), 304);
}

Test(http, external_url_starts_locations)
{
    char url[512];
    config.external_url = "https://models.example";
    snprintf(url, sizeof(url), "https://models.example%s", held_path);
    cr_expect_eq(request("GET", held_path), 200);
    expect_header("Location", url);
}

Test(http, ranges_of_a_held_blob)
{
    static const struct {
        const char *header;
        int status;
        uint64_t first, length;
        const char *content_range;
    } cases[] = {
        {"Range: bytes=0-0\r\n", 206, 0, 1, "bytes 0-0/5000"},
        {"Range: bytes=4990-\r\n", 206, 4990, 10, "bytes 4990-4999/5000"},
        {"Range: bytes=-10\r\n", 206, 4990, 10, "bytes 4990-4999/5000"},
        {"Range: bytes=100-99999\r\n", 206, 100, 4900, "bytes 100-4999/5000"},
        {"Range: bytes=0-\r\n", 206, 0, 5000, "bytes 0-4999/5000"},
        {"Range: bytes=0-1,4-5\r\n", 200, 0, 5000, ""},
        {"Range: lines=0-1\r\n", 200, 0, 5000, ""},
        {"Range: bytes=0-1\r\nRange: bytes=2-3\r\n", 200, 0, 5000, ""},
        {"Range: bytes=0-1\r\nIf-Range: \"other\"\r\n", 200, 0, 5000, ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        cr_expect_eq(request_h("GET", held_path, cases[i].header), cases[i].status, "%s",
                     cases[i].header);
        expect_header("Content-Range", cases[i].content_range);
        expect_bytes(fake_held.data + cases[i].first, cases[i].length);
    }
    char header[256];
    snprintf(header, sizeof(header), "Range: bytes=1-2\r\nIf-Range: \"%s\"\r\n", held_digest);
    cr_expect_eq(request_h("GET", held_path, header), 206);
    static const char *const bad[] = {"Range: bytes=5000-\r\n", "Range: bytes=500-0\r\n",
                                      "Range: bytes=-0\r\n"};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        request_h("GET", held_path, bad[i]);
        expect_error(416, "SIZE_INVALID");
        expect_header("Content-Range", "bytes */5000");
    }
}

Test(http, empty_blob)
{
    char path[256], digest[DIGEST_TEXT_MAX];
    snprintf(path, sizeof(path), "/v2/" REPO "/blobs/%s",
             digest_format(&fake_empty.digest, digest));
    cr_expect_eq(request("GET", path), 200);
    expect_bytes("", 0);
    expect_header("Content-Length", "0");
    cr_expect_eq(request("HEAD", path), 200);
    request_h("GET", path, "Range: bytes=0-\r\n");
    expect_error(416, "SIZE_INVALID");
}

Test(http, absent_blobs)
{
    char path[512];
    snprintf(path, sizeof(path), "/v2/other/repo/blobs/%s", held_digest);
    request("GET", path);
    expect_error(404, "BLOB_UNKNOWN");
    cr_expect_eq(request("HEAD", path), 404, "another repository's link never stands in");
    cr_expect_eq(got.body_len, 0);
    request_h("GET", path, "Range: bytes=0-1\r\n");
    expect_error(404, "BLOB_UNKNOWN");
}

Test(http, a_file_that_shrank_is_not_sent)
{
    char path[256], digest[DIGEST_TEXT_MAX];
    snprintf(path, sizeof(path), "/v2/" REPO "/blobs/%s",
             digest_format(&fake_damaged.digest, digest));
    request("GET", path);
    expect_error(500, "UNKNOWN");
    cr_expect_eq(strstr(got.body, "on disk"), NULL, "our own troubles stay in our log");
}

/* ---- blobs that are on their way ------------------------------------------------------------- */

static int send_cold_get(const char *headers)
{
    int fd = client_connect(url_port(server));
    char text[512];
    int n =
        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n%s\r\n",
                 cold_path, headers);
    client_send(fd, text, (size_t)n);
    return fd;
}

/* Reads until at least n bytes of body are here. */
static void read_body(int fd, size_t n)
{
    while (got.body_len < n) {
        char *to = strbuf_reserve(&got.all, 65536);
        ssize_t r = recv(fd, to, 65536, 0);
        if (r <= 0)
            return;
        strbuf_advance(&got.all, (size_t)r);
        answer_parse(&got);
    }
}

Test(http, cold_blob_follows_the_growing_file)
{
    fake_grow(1);
    int fd = send_cold_get("");
    read_body(fd, 1);
    cr_expect_eq(got.status, 200);
    cr_expect_eq(got.body_len, 1, "the first byte does not wait for the others");
    for (uint64_t have = 1000; have < COLD_SIZE; have += 99999) {
        fake_grow(have);
        read_body(fd, have);
        cr_expect_eq(got.body_len, have);
    }
    fake_grow(COLD_SIZE);
    answer_read(fd, &got);
    expect_bytes(fake_cold.data, COLD_SIZE);
    close(fd);
}

Test(http, range_of_a_cold_blob)
{
    fake_grow(600000);
    int fd = send_cold_get("Range: bytes=500000-500099\r\n");
    answer_read(fd, &got);
    cr_expect_eq(got.status, 206);
    expect_header("Content-Range", "bytes 500000-500099/1048576");
    expect_bytes(fake_cold.data + 500000, 100);
    close(fd);
}

Test(http, peer_bug_5_a_failure_cuts_the_body_and_adds_nothing)
{
    fake_grow(300000);
    int fd = send_cold_get("");
    read_body(fd, 300000);
    fake_fail(ERR_DIGEST_MISMATCH, "sha256:aa instead of sha256:bb");
    answer_read(fd, &got);
    cr_expect_eq(got.status, 200);
    cr_expect_eq(got.content_length, COLD_SIZE);
    cr_expect_eq(got.body_len, 300000, "%zu", got.body_len);
    cr_expect_eq(memcmp(got.body, fake_cold.data, 300000), 0);
    close(fd);
}

/* The reader that waits notices that its client is gone, and lets go. */
Test(http, a_client_that_leaves_is_noticed_while_it_waits)
{
    fake_grow(10);
    int fd = send_cold_get("");
    read_body(fd, 10);
    struct linger reset = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fd);
    unsigned readers = 1;
    for (uint64_t deadline = clock_monotonic_ms() + 20000;
         readers && clock_monotonic_ms() < deadline; poll(NULL, 0, 20)) {
        pthread_mutex_lock(&fake_cold.lock);
        readers = fake_cold.readers;
        pthread_mutex_unlock(&fake_cold.lock);
    }
    cr_expect_eq(readers, 0);
}

Test(http, a_half_closed_client_still_reads)
{
    fake_grow(10);
    int fd = send_cold_get("");
    read_body(fd, 10);
    shutdown(fd, SHUT_WR);
    poll(NULL, 0, 1500); /* longer than a look at the client takes to come round */
    fake_grow(COLD_SIZE);
    answer_read(fd, &got);
    expect_bytes(fake_cold.data, COLD_SIZE);
    close(fd);
}

/* Time blocked in the content reader must not count as the client's idleness. */
static void short_timeout(void)
{
    config.client_timeout_s = 1;
    start();
}

Test(http, an_upstream_slower_than_the_client_timeout, .init = short_timeout)
{
    fake_grow(10);
    int fd = send_cold_get("");
    read_body(fd, 10);
    poll(NULL, 0, 2500);
    fake_grow(20);
    read_body(fd, 20);
    poll(NULL, 0, 2500);
    fake_grow(COLD_SIZE);
    answer_read(fd, &got);
    expect_bytes(fake_cold.data, COLD_SIZE);
    close(fd);
}

/* ---- errors ------------------------------------------------------------------------------------
 */

Test(http, upstream_errors_become_statuses)
{
    static const struct {
        enum err_code code;
        int status;
        const char *oci, *retry;
    } cases[] = {
        {ERR_NOT_FOUND, 404, "MANIFEST_UNKNOWN", ""},
        {ERR_DENIED, 403, "DENIED", ""},
        {ERR_UNAUTHORIZED, 403, "DENIED", ""},
        {ERR_UPSTREAM, 502, "UNAVAILABLE", ""},
        {ERR_TIMEOUT, 504, "UNAVAILABLE", ""},
        {ERR_RATE_LIMITED, 429, "TOOMANYREQUESTS", "7"},
        {ERR_NO_SPACE, 507, "UNAVAILABLE", ""},
        {ERR_BUSY, 503, "UNAVAILABLE", "7"},
        {ERR_DIGEST_MISMATCH, 502, "UNAVAILABLE", ""},
        {ERR_INTERNAL, 500, "UNKNOWN", ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        err_set(&fake_error, cases[i].code, "it went \"wrong\"");
        fake_error.retry_after = *cases[i].retry ? 7 : 0;
        request("GET", "/v2/" REPO "/manifests/v1");
        expect_error(cases[i].status, cases[i].oci);
        expect_header("Retry-After", cases[i].retry);
        expect_header("WWW-Authenticate", "");
        cr_expect_eq(strstr(got.body, "wrong") != NULL, cases[i].code != ERR_INTERNAL);
        cr_expect_eq(request("HEAD", "/v2/" REPO "/manifests/v1"), cases[i].status);
        cr_expect_eq(got.body_len, 0);
        cr_expect_gt(got.content_length, 0);
    }
}

Test(http, bad_names_and_digests)
{
    request("GET", "/v2/a%2Fb/manifests/x");
    expect_error(400, "NAME_INVALID");
    request("GET", "/v2/a/../b/manifests/x");
    expect_error(400, "NAME_INVALID");
    request("GET", "/v2/a%00/manifests/x");
    expect_error(400, "NAME_INVALID");
    request("GET", "/v2/" REPO "/manifests/sha256:totallywrong");
    expect_error(400, "DIGEST_INVALID");
    request_h("GET", "/v2/" REPO "/manifests/sha256:totallywrong",
              "Content-Length: 3\r\n\r\nabc"); /* a suite sends a body along */
    cr_expect_eq(got.status, 400);
    request("GET", "/v2/" REPO "/blobs/md5:d41d8cd98f00b204e9800998ecf8427e");
    expect_error(400, "DIGEST_INVALID");
    cr_expect_eq(atomic_load(&fake_asked), 0);
}

Test(http, every_path_says_what_it_takes)
{
    static const struct {
        const char *method, *path, *allow;
    } cases[] = {
        {"PUT", "/v2/_catalog", "GET, HEAD"},
        {"DELETE", "/v2/a/tags/list", "GET, HEAD"},
        {"POST", "/v2/a/manifests/v1", "GET, HEAD, PUT, DELETE"},
        {"PUT",
         "/v2/a/blobs/sha256:0000000000000000000000000000000000000000000000000000000000000000",
         "GET, HEAD, DELETE"},
        {"GET", "/v2/a/blobs/uploads/", "POST"},
        {"PUT", "/v2/a/blobs/uploads", "POST"},
        {"POST", "/v2/a/blobs/uploads/00000000000000000000000000000000",
         "PATCH, PUT, GET, HEAD, DELETE"},
        {"POST", "/admin/v1/history/a:v1", "GET"},
        {"BREW", "/healthz", "GET, HEAD"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        request_h(cases[i].method, cases[i].path, "Content-Length: 0\r\n");
        expect_error(405, "UNSUPPORTED");
        expect_header("Allow", cases[i].allow);
        cr_expect(strstr(got.body, cases[i].allow), "%s", got.body);
    }
}

static struct config_access rules[] = {{.repositories = "open/**", .allow = ACCESS_PULL},
                                       {.repositories = "[abc]*", .allow = ACCESS_PULL}};

static void with_rules(void)
{
    config.access = rules;
    config.n_access = ARRAY_LEN(rules);
    start();
}

Test(http, peer_bug_68_rules_come_before_everything, .init = with_rules)
{
    request("GET", "/v2/" REPO "/manifests/v1");
    expect_error(403, "DENIED");
    request("GET", held_path);
    expect_error(403, "DENIED");
    cr_expect_eq(request_h("HEAD", held_path, "If-None-Match: *\r\n"), 403);
    request("GET", "/v2/" REPO "/tags/list");
    expect_error(403, "DENIED");
    char path[256];
    snprintf(path, sizeof(path), "/v2/" REPO "/referrers/%s", held_digest);
    request("GET", path);
    expect_error(403, "DENIED");
    cr_expect_eq(atomic_load(&fake_asked), 0, "nobody was asked");
    request("GET", "/v2/open/x/manifests/v1");
    expect_error(404, "MANIFEST_UNKNOWN");
    cr_expect_eq(request("GET", "/v2/"), 200);
    cr_expect_eq(request("GET", "/v2/_catalog"), 200);
    expect_bytes("{\"repositories\":[\"a\",\"b\",\"c.1\"]}", 32);
    cr_expect_eq(request("GET", "/v2/_catalog?n=2"), 200);
    expect_bytes("{\"repositories\":[\"a\",\"b\"]}", 26);
    expect_header("Link", "</v2/_catalog?n=2&last=b>; rel=\"next\"");
    cr_expect_eq(request("GET", "/v2/_catalog?n=3"), 200);
    expect_header("Link", "");
    request("DELETE", "/admin/v1/references/" REPO ":v1");
    expect_error(403, "DENIED");
    cr_expect_eq(atomic_load(&fake_removed), 0);
}

Test(http, a_public_address_needs_rules)
{
    struct config open = config;
    struct server *other = NULL;
    struct error err = ERROR_INIT;
    open.listen_host = "0.0.0.0";
    cr_expect_eq(server_start(&open, NULL, NULL, &other, &err), -1);
    cr_expect_eq(err.code, ERR_DENIED);
    cr_expect(strstr(err.text, "\"access\"") && strstr(err.text, "WEIGHBRIDGE_ACCESS"));
    open.access = rules;
    open.n_access = 1;
    cr_assert_eq(server_start(&open, NULL, NULL, &other, &err), 0, "%s", err.text);
    server_stop(other);
    open.listen_host = "::1";
    open.n_access = 0;
    if (server_start(&open, NULL, NULL, &other, &err) == 0) { /* machines without IPv6 exist */
        cr_expect_eq(strncmp(server_url(other), "http://[::1]:", 13), 0);
        server_stop(other);
    }
}

Test(http, an_address_that_is_taken)
{
    struct config same = config;
    struct server *other = NULL;
    struct error err = ERROR_INIT;
    same.listen_port = (uint16_t)url_port(server);
    cr_expect_eq(server_start(&same, NULL, NULL, &other, &err), -1);
    cr_expect_eq(err.code, ERR_IO);
    cr_expect(strstr(err.text, "127.0.0.1:") && strstr(err.text, "WEIGHBRIDGE_LISTEN"), "%s",
              err.text);
    same.listen_host = "192.0.2.1"; /* TEST-NET, nobody's */
    same.access = rules;
    same.n_access = 1;
    cr_expect_eq(server_start(&same, NULL, NULL, &other, &err), -1);
    cr_expect(strstr(err.text, "no such address"), "%s", err.text);
}

/* ---- lists -------------------------------------------------------------------------------------
 */

Test(http, tags_and_pages)
{
    static const char all[] =
        "{\"name\":\"" REPO "\",\"tags\":[\"a\",\"b\",\"c.1\",\"d_2\",\"e\"]}";
    cr_expect_eq(request("GET", "/v2/" REPO "/tags/list"), 200);
    expect_header("Content-Type", "application/json");
    expect_header("Link", "");
    expect_bytes(all, sizeof(all) - 1);
    cr_expect_eq(request("GET", "/v2/" REPO "/tags/list?n=2&last=a"), 200);
    expect_header("Link", "</v2/" REPO "/tags/list?n=2&last=c.1>; rel=\"next\"");
    cr_expect(strstr(got.body, "\"tags\":[\"b\",\"c.1\"]"));
    cr_expect_eq(request("GET", "/v2/" REPO "/tags/list?n=2&last=c.1"), 200);
    expect_header("Link", "");
    cr_expect(strstr(got.body, "\"tags\":[\"d_2\",\"e\"]"));
    cr_expect_eq(request("GET", "/v2/" REPO "/tags/list?n=0"), 200);
    expect_header("Link", "");
    cr_expect(strstr(got.body, "\"tags\":[]"));
    cr_expect_eq(request("GET", "/v2/" REPO "/tags/list?last=zzz"), 200);
    cr_expect(strstr(got.body, "\"tags\":[]"));
    cr_expect_eq(request("HEAD", "/v2/" REPO "/tags/list"), 200);
    cr_expect_eq(got.content_length, sizeof(all) - 1);
    request("GET", "/v2/" REPO "/tags/list?n=x");
    expect_error(400, "UNSUPPORTED");
    request("GET", "/v2/" REPO "/tags/list?n=-1");
    expect_error(400, "UNSUPPORTED");
    request("GET", "/v2/no/such/tags/list?n=0");
    expect_error(404, "NAME_UNKNOWN");
}

Test(http, referrers_are_empty)
{
    static const char index[] = "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image."
                                "index.v1+json\",\"manifests\":[]}";
    cr_expect_eq(request("GET", "/v2/no/such/referrers/sha256:"
                                "0000000000000000000000000000000000000000000000000000000000000000"),
                 200);
    expect_header("Content-Type", "application/vnd.oci.image.index.v1+json");
    expect_bytes(index, sizeof(index) - 1);
    request("GET", "/v2/no/such/referrers/sha256:0");
    expect_error(400, "DIGEST_INVALID");
}

/* ---- framing -----------------------------------------------------------------------------------
 */

static void expect_refused(const char *text)
{
    answer_done(&got);
    ask_raw(server, text, strlen(text), &got);
    cr_expect_eq(got.status, 400, "%s -> %.300s", text, strbuf_str(&got.all));
    cr_expect_eq(strstr(strbuf_str(&got.all) + 1, "HTTP/1.1 "), NULL, "one answer, then closed: %s",
                 text);
}

Test(http, ambiguous_framing)
{
    static const char *const bad[] = {
        "POST /v2/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nGET /",
        "GET /v2/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET http://evil/v2/ HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
        expect_refused(bad[i]);
}

Test(http, legal_but_rare_requests)
{
    cr_expect_eq(raw("GET http://Some.Host:80/v2/?x HTTP/1.1\r\nHost: some.host:80\r\n"
                     "Connection: close\r\n\r\n"),
                 200);
    cr_expect_eq(raw("GET /v2/ HTTP/1.0\r\n\r\n"), 200);
    cr_expect_eq(raw("GET /v2/ HTTP/1.1\r\nHost: [::1]:5000\r\nConnection: close\r\n\r\n"), 200);
    cr_expect_eq(raw("GET /v2/ HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"), 200);
    cr_expect_eq(raw("GET /v2/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
                 200);
    cr_expect_eq(raw("GET /v2/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\n"), 413);
    expect_header("Connection", "close");
    cr_expect_eq(raw("OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), 404);
}

Test(http, an_endless_body_is_answered_in_the_middle)
{
    int fd = client_connect(url_port(server));
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "GET /v2/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 300; i++) {
        strbuf_puts(&b, "1000\r\n");
        memset(strbuf_reserve(&b, 4096), 'x', 4096);
        strbuf_advance(&b, 4096);
        strbuf_puts(&b, "\r\n");
    }
    client_send(fd, b.data, b.len);
    answer_read(fd, &got); /* ends: the server closed */
    expect_error(413, "SIZE_INVALID");
    expect_header("Connection", "close");
    close(fd);
}

Test(http, keep_alive_serves_several)
{
    int fd = client_connect(url_port(server));
    static const char text[] = "GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n"
                               "POST /v2/a/blobs/uploads/ HTTP/1.1\r\nHost: h\r\n"
                               "Content-Length: 3\r\n\r\nabc"
                               "GET /v2/%2f/tags/list HTTP/1.1\r\nHost: h\r\n\r\n"
                               "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    client_send(fd, text, sizeof(text) - 1);
    answer_read(fd, &got);
    const char *p = strbuf_str(&got.all);
    static const char *const lines[] = {"HTTP/1.1 200", "HTTP/1.1 202", "HTTP/1.1 400",
                                        "HTTP/1.1 200"};
    for (unsigned i = 0; i < ARRAY_LEN(lines); i++) {
        p = strstr(p, "HTTP/1.1 ");
        cr_assert_neq(p, NULL, "answer %u", i);
        cr_expect_eq(strncmp(p, lines[i], 12), 0, "answer %u: %.20s", i, p);
        p += 12;
    }
    close(fd);
}

/* ---- operations
 * ---------------------------------------------------------------------------------- */

Test(http, health_and_metrics)
{
    cr_expect_eq(request("GET", "/healthz"), 200);
    cr_expect_eq(request("GET", "/readyz"), 200);
    cr_expect(strstr(got.body, "\"status\":\"ready\""));
    fake_full = true;
    cr_expect_eq(request("GET", "/readyz"), 200, "hits are still served");
    cr_expect(strstr(got.body, "\"status\":\"degraded\"") && strstr(got.body, "free_floor"));
    fake_unreadable = true;
    cr_expect_eq(request("GET", "/readyz"), 503, "nothing is served");
    cr_expect(strstr(got.body, "\"status\":\"failed\"") && strstr(got.body, "restart"));
    cr_expect_eq(request("GET", "/healthz"), 200, "no restart would help");
    fake_failed = true;
    cr_expect_eq(request("GET", "/healthz"), 503);
    cr_expect_str_eq(got.body, "a write failed: restart\n");
    fake_failed = fake_unreadable = false;
    request("GET", held_path);
    cr_expect_eq(request("GET", "/metrics"), 200);
    expect_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    static const char *const lines[] = {
        "weighbridge_requests_total{route=\"blob\",status=\"200\"} 1\n",
        "weighbridge_response_bytes_total{route=\"blob\"} 5000\n",
        "weighbridge_upstream_bytes_total{upstream=\"hf\"} 11\n",
        "weighbridge_upstream_requests_total{upstream=\"hf\"} 22\n",
        "weighbridge_upstream_errors_total{upstream=\"hf\"} 33\n",
        "weighbridge_upstream_connections 9\n",
        "weighbridge_upstream_connections_max 256\n",
        "weighbridge_transfers_running 1\n",
        "weighbridge_transfer_readers 2\n",
        "weighbridge_verification_failures_total 44\n",
        "weighbridge_store_blobs 5\n",
        "weighbridge_store_uploads 3\n",
        "weighbridge_received_bytes_total{route=\"upload\"} 0\n",
        "weighbridge_store_disk_free_bytes 66\n",
        "weighbridge_build_info{version=\"",
    };
    for (unsigned i = 0; i < ARRAY_LEN(lines); i++)
        cr_expect(strstr(got.body, lines[i]), "%s in\n%s", lines[i], got.body);
}

Test(http, admin_is_for_this_machine_and_no_browser)
{
    static const char path[] = "/admin/v1/references/" REPO ":v1";
    cr_expect_eq(request("DELETE", path), 200);
    cr_expect_eq(atomic_load(&fake_removed), 1);
    cr_expect_gt(atomic_load(&fake_forgotten), 0, "what is in memory goes with it");
    request_h("DELETE", path, "Origin: http://localhost:5000\r\n");
    expect_error(403, "DENIED");
    request_h("DELETE", path, "Origin: a\r\nOrigin: b\r\n");
    expect_error(403, "DENIED");
    request_h("DELETE", path, "X-Forwarded-For: 192.0.2.1\r\n");
    expect_error(403, "DENIED");
    cr_expect_eq(raw("DELETE /admin/v1/references/" REPO ":v1 HTTP/1.1\r\nHost: evil.example\r\n"
                     "Connection: close\r\n\r\n"),
                 403);
    request("DELETE", "/admin/v1/references/no/such:v1");
    expect_error(404, "MANIFEST_UNKNOWN");
    request("DELETE", "/admin/v1/references/" REPO);
    expect_error(400, "MANIFEST_INVALID");
    request("GET", path);
    expect_error(405, "UNSUPPORTED");
    expect_header("Allow", "DELETE");
    cr_expect_eq(atomic_load(&fake_removed), 1);
}

static void few_clients(void)
{
    config.max_clients = 2;
    start();
}

/* Returns once the server has counted n connections. */
static void await_clients(unsigned n)
{
    char line[64];
    snprintf(line, sizeof(line), "weighbridge_clients %u\n", n + 1); /* and the one that asks */
    for (;;) {
        request("GET", "/metrics");
        if (got.body && strstr(got.body, line))
            return;
        poll(NULL, 0, 10);
    }
}

Test(http, above_max_clients_503, .init = few_clients)
{
    int first = client_connect(url_port(server)), second = client_connect(url_port(server));
    await_clients(2);
    request("GET", "/v2/");
    expect_error(503, "UNAVAILABLE");
    cr_expect(strstr(got.body, "limits.clients"));
    cr_expect_gt(atoi(answer_header(&got, "Retry-After")), 0);
    cr_expect_eq(request("GET", "/healthz"), 200, "probes are still answered");
    close(second);
    while (request("GET", "/v2/") != 200) /* a connection counts until the library let go of it */
        expect_error(503, "UNAVAILABLE");
    close(first);
}

static void *drain(void *arg)
{
    static bool done;
    (void)arg;
    done = server_drain(server, 0) || server_drain(server, 60); /* in slices, as main does */
    return &done;
}

Test(http, peer_bug_81_drain_finishes_what_runs_and_refuses_the_rest)
{
    fake_grow(10);
    int idle = client_connect(url_port(server)), fd = send_cold_get("");
    read_body(fd, 10);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, drain, NULL), 0);
    int refused;
    while ((refused = client_connect(url_port(server))) >= 0)
        close(refused);
    /* A connection that was there before learns the truth, and is closed. */
    static const char ready[] = "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n";
    struct http_answer a = {0};
    client_send(idle, ready, sizeof(ready) - 1);
    answer_read(idle, &a);
    cr_expect_eq(a.status, 503);
    cr_expect(strstr(strbuf_str(&a.all), "draining"));
    cr_expect_str_eq(answer_header(&a, "Connection"), "close");
    answer_done(&a);
    close(idle);
    fake_grow(COLD_SIZE);
    answer_read(fd, &got);
    expect_bytes(fake_cold.data, COLD_SIZE);
    close(fd);
    void *done;
    pthread_join(thread, &done);
    cr_expect(*(bool *)done);
}

Test(http, drain_has_an_end_and_stop_cuts)
{
    fake_grow(10);
    int fd = send_cold_get("");
    read_body(fd, 10);
    cr_expect_not(server_drain(server, 0));
    server_stop(server); /* the reader is waiting: it must not hold this up */
    server = NULL;
    answer_read(fd, &got);
    cr_expect_eq(got.body_len, 10);
    close(fd);
}

Test(http, an_idle_keep_alive_connection_does_not_hold_up_a_drain)
{
    int fd = client_connect(url_port(server));
    static const char text[] = "GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n";
    client_send(fd, text, sizeof(text) - 1);
    read_body(fd, 2);
    cr_expect(server_drain(server, 30));
    close(fd);
}
