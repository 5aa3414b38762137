/* Bodies of requests, and the upload endpoints, over stand-ins for storage. */
#include <poll.h>

#include "http_case.h"

#define UPLOADS "/v2/" REPO "/blobs/uploads/"
#define MIB (1024u * 1024)

static char session[256]; /* the path of the session that open_session() made */

TestSuite(uploads, .init = set_up, .fini = tear_down, .timeout = 120);

static const char *path_of(const char *location)
{
    const char *p = strstr(location, "/v2/");
    return p ? p : "";
}

static void open_session(void)
{
    cr_assert_eq(request_h("POST", UPLOADS, "Content-Length: 0\r\n"), 202, "%s",
                 strbuf_str(&got.all));
    snprintf(session, sizeof(session), "%s", path_of(answer_header(&got, "Location")));
}

static int send_body(const char *method, const char *target, const char *headers, const void *body,
                     size_t len)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_printf(
        &b, "%s %s HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
        method, target, len, headers);
    strbuf_put(&b, body, len);
    answer_done(&got);
    ask_raw(server, strbuf_str(&b), b.len, &got);
    return got.status;
}

static void put_chunk(struct strbuf *b, const void *data, size_t len)
{
    strbuf_printf(b, "%zx\r\n", len);
    strbuf_put(b, data, len);
    strbuf_puts(b, "\r\n");
}

static int send_chunked(const char *method, const char *target, const char *headers,
                        const char *body, size_t len)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_printf(&b,
                  "%s %s HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n"
                  "Transfer-Encoding: chunked\r\n%s\r\n",
                  method, target, headers);
    for (size_t at = 0; at < len; at += 4096)
        put_chunk(&b, body + at, len - at < 4096 ? len - at : 4096);
    strbuf_puts(&b, "0\r\n\r\n");
    answer_done(&got);
    ask_raw(server, strbuf_str(&b), b.len, &got);
    return got.status;
}

static const char *closing_put(const struct digest *d)
{
    static char path[512];
    char digest[DIGEST_TEXT_MAX];
    snprintf(path, sizeof(path), "%s?digest=%s", session, digest_format(d, digest));
    return path;
}

static char *pattern(size_t len)
{
    char *data = malloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)((i * 2654435761u) >> 9);
    return data;
}

Test(uploads, a_session_begins_empty_at_one_url)
{
    open_session();
    expect_common();
    char want[256];
    snprintf(want, sizeof(want), "http://localhost:%u" UPLOADS "%032x", url_port(server), 1);
    if (strncmp(answer_header(&got, "Location"), "http://localhost", 16) == 0)
        expect_header("Location", want);
    cr_expect(strncmp(answer_header(&got, "Location"), "http://", 7) == 0, "ollama needs it whole");
    expect_header("Range", "0-0");
    expect_header("OCI-Chunk-Min-Length", "");
    snprintf(want, sizeof(want), "%032x", 1);
    expect_header("Docker-Upload-UUID", want);
    cr_expect_eq(got.body_len, 0);
    cr_expect_eq(request("GET", session), 204);
    expect_header("Range", "0-0");
    cr_expect_eq(request("HEAD", session), 204);
    expect_header("Range", "0-0");
    cr_expect_eq(request("DELETE", session), 204);
    request("GET", session);
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
    request("DELETE", session);
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
    cr_expect_eq(send_body("PATCH", session, "", "abc", 3), 404);
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
    request("GET", UPLOADS "nothing-of-ours");
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
}

Test(uploads, the_location_keeps_the_name_as_given)
{
    request_h("POST", "/v2/Local/Model/blobs/uploads/", "Content-Length: 0\r\n");
    cr_expect_eq(got.status, 202);
    cr_expect(strstr(answer_header(&got, "Location"), "/v2/Local/Model/blobs/uploads/"));
}

Test(uploads, pieces_in_order)
{
    struct digest d;
    char want[DIGEST_TEXT_MAX + 64], text[DIGEST_TEXT_MAX];
    digest_of(DIGEST_SHA256, "hello world", 11, &d, NULL);
    open_session();
    cr_expect_eq(send_body("PATCH", session, "Content-Range: 0-4\r\n", "hello", 5), 202);
    expect_header("Range", "0-4");
    cr_expect_str_eq(path_of(answer_header(&got, "Location")), session);
    cr_expect_eq(send_body("PATCH", session, "", " ", 1), 202);
    expect_header("Range", "0-5");
    cr_expect_eq(send_chunked("PATCH", session, "", "wor", 3), 202);
    expect_header("Range", "0-8");
    cr_expect_eq(send_body("PUT", closing_put(&d), "Content-Range: 9-10\r\n", "ld", 2), 201);
    expect_header("Docker-Content-Digest", digest_format(&d, text));
    snprintf(want, sizeof(want), "/v2/" REPO "/blobs/%s", text);
    cr_expect_str_eq(path_of(answer_header(&got, "Location")), want);
    cr_expect(fake_is_stored(&d));
    cr_expect_eq(request("GET", session), 404);
}

Test(uploads, out_of_order_leaves_the_session)
{
    open_session();
    cr_expect_eq(send_body("PATCH", session, "Content-Range: 0-4\r\n", "hello", 5), 202);
    static const char *const ranges[] = {"Content-Range: 0-4\r\n", "Content-Range: 6-10\r\n"};
    for (unsigned i = 0; i < 2; i++) {
        send_body("PATCH", session, ranges[i], "xxxxx", 5);
        expect_error(416, "BLOB_UPLOAD_INVALID");
        expect_header("Range", "0-4");
        cr_expect_str_eq(path_of(answer_header(&got, "Location")), session);
        cr_expect_eq(strlen(answer_header(&got, "Docker-Upload-UUID")), UPLOAD_ID_LEN);
        struct digest d;
        digest_of(DIGEST_SHA256, "xxxxx", 5, &d, NULL);
        send_body("PUT", closing_put(&d), ranges[i], "xxxxx", 5);
        expect_error(416, "BLOB_UPLOAD_INVALID");
    }
    cr_expect_eq(request("GET", session), 204);
    expect_header("Range", "0-4");
    cr_expect_eq(send_body("PATCH", session, "Content-Range: 5-5\r\n", "!", 1), 202);
    expect_header("Range", "0-5");
}

Test(uploads, ranges_that_say_nothing)
{
    static const char *const bad[] = {
        "Content-Range: x\r\n",   "Content-Range: 4-0\r\n",
        "Content-Range: 0-9\r\n", "Content-Range: 0-3\r\n",
        "Content-Range:\r\n",     "Content-Range: 0-4\r\nContent-Range: 0-4\r\n"};
    open_session();
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        send_body("PATCH", session, bad[i], "hello", 5);
        expect_error(400, "BLOB_UPLOAD_INVALID");
    }
    cr_expect_eq(send_body("PATCH", session, "Content-Range: bytes 0-4/5\r\n", "hello", 5), 202);
}

/* A chunked body shows only at its end that it is not what the range said. */
Test(uploads, a_body_that_is_not_as_long_as_its_range_does_not_count)
{
    uint64_t acked, size;
    open_session();
    cr_expect_eq(send_body("PATCH", session, "", "ab", 2), 202);
    send_chunked("PATCH", session, "Content-Range: 2-5\r\n", "xyz", 3);
    expect_error(400, "BLOB_UPLOAD_INVALID");
    send_chunked("PATCH", session, "Content-Range: 2-5\r\n", "vwxyz", 5);
    expect_error(400, "BLOB_UPLOAD_INVALID");
    cr_expect_eq(fake_open_sessions(&acked, &size), 1);
    cr_expect_eq(acked, 2);
    cr_expect_eq(size, 2);
    cr_expect_eq(send_chunked("PATCH", session, "Content-Range: 2-5\r\n", "cdef", 4), 202);
    expect_header("Range", "0-5");
}

Test(uploads, digests_that_are_none)
{
    struct digest d;
    char path[512];
    static const char *const bad[] = {"",
                                      "?digest=",
                                      "?digest=sha256:abc",
                                      "?digest=x",
                                      "?digest=md5:d41d8cd98f00b204e9800998ecf8427e",
                                      "?digest=%00"};
    open_session();
    cr_expect_eq(send_body("PATCH", session, "", "hello", 5), 202);
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(path, sizeof(path), "%s%s", session, bad[i]);
        request_h("PUT", path, "Content-Length: 0\r\n");
        expect_error(400, "DIGEST_INVALID");
        if (!*bad[i])
            continue; /* a POST without one begins a session */
        snprintf(path, sizeof(path), UPLOADS "%s", bad[i]);
        send_body("POST", path, "", "hello", 5);
        expect_error(400, "DIGEST_INVALID");
    }
    digest_of(DIGEST_SHA256, "other", 5, &d, NULL);
    request_h("PUT", closing_put(&d), "Content-Length: 0\r\n");
    expect_error(400, "DIGEST_INVALID");
    cr_expect_eq(request("GET", session), 204);
    expect_header("Range", "0-4");
    cr_expect_eq(request_h("POST", UPLOADS "?digest-algorithm=md5", "Content-Length: 0\r\n"), 400);
    expect_error(400, "DIGEST_INVALID");
    cr_expect_eq(request_h("POST", UPLOADS "?digest-algorithm=sha512", "Content-Length: 0\r\n"),
                 202);
    cr_expect_eq(fake_sessions[1].alg, DIGEST_SHA512);
}

Test(uploads, a_blob_in_one_post)
{
    struct digest d;
    char path[512], text[DIGEST_TEXT_MAX];
    uint64_t acked, size;
    digest_of(DIGEST_SHA512, "hello", 5, &d, NULL);
    snprintf(path, sizeof(path), UPLOADS "?digest=%s", digest_format(&d, text));
    cr_expect_eq(send_body("POST", path, "", "hello", 5), 201);
    expect_header("Docker-Content-Digest", text);
    cr_expect(fake_is_stored(&d));
    send_body("POST", path, "", "jello", 5);
    expect_error(400, "DIGEST_INVALID");
    cr_expect_eq(fake_open_sessions(&acked, &size), 0, "nobody knows of its session");
    digest_of(DIGEST_SHA256, "", 0, &d, NULL);
    snprintf(path, sizeof(path), UPLOADS "?digest=%s", digest_format(&d, text));
    cr_expect_eq(request_h("POST", path, "Content-Length: 0\r\n"), 201);
    cr_expect(fake_is_stored(&d));
}

Test(uploads, a_post_that_only_says_which_blob_will_come)
{
    struct digest d;
    char path[512], text[DIGEST_TEXT_MAX];
    digest_of(DIGEST_SHA512, "hello", 5, &d, NULL);
    snprintf(path, sizeof(path), UPLOADS "?digest=%s", digest_format(&d, text));
    cr_expect_eq(request_h("POST", path, "Content-Length: 0\r\n"), 202);
    expect_header("Range", "0-0");
    snprintf(session, sizeof(session), "%s", path_of(answer_header(&got, "Location")));
    cr_expect_eq(send_body("PUT", closing_put(&d), "", "hello", 5), 201);
    cr_expect(fake_is_stored(&d));
    cr_expect_eq(fake_sessions[0].alg, DIGEST_SHA512, "so that nothing is hashed twice");
    send_chunked("POST", path, "", "", 0);
    expect_error(400, "DIGEST_INVALID");
}

Test(uploads, a_body_that_nobody_asked_for_is_no_part_of_the_blob)
{
    uint64_t acked, size;
    cr_expect_eq(send_body("POST", UPLOADS, "", "hello", 5), 202);
    expect_header("Range", "0-0");
    cr_expect_eq(fake_open_sessions(&acked, &size), 1);
    cr_expect_eq(size, 0);
}

Test(uploads, a_put_whose_answer_was_lost_succeeds_again)
{
    struct digest other;
    snprintf(session, sizeof(session), UPLOADS "%032x", 77);
    cr_expect_eq(request_h("PUT", closing_put(&fake_held.digest), "Content-Length: 0\r\n"), 201);
    expect_header("Docker-Content-Digest", held_digest);
    digest_of(DIGEST_SHA256, "none", 4, &other, NULL);
    request_h("PUT", closing_put(&other), "Content-Length: 0\r\n");
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
}

Test(uploads, no_room)
{
    open_session();
    fake_full = true;
    request_h("POST", UPLOADS, "Content-Length: 0\r\n");
    expect_error(507, "UNAVAILABLE");
    send_body("PATCH", session, "", "hello", 5);
    expect_error(507, "UNAVAILABLE");
    cr_expect_eq(request("GET", session), 204);
    fake_full = false;
    cr_expect_eq(send_body("PATCH", session, "", "hello", 5), 202);
    cr_expect_eq(fake_expected, 5);
}

Test(uploads, too_many_sessions)
{
    for (unsigned i = 0; i < FAKE_SESSIONS; i++)
        open_session();
    request_h("POST", UPLOADS, "Content-Length: 0\r\n");
    expect_error(503, "UNAVAILABLE");
    cr_expect_gt(atoi(answer_header(&got, "Retry-After")), 0);
}

static struct config_access push_only[] = {{.repositories = "**", .allow = ACCESS_PUSH}};

static void with_push_only(void)
{
    config.access = push_only;
    config.n_access = ARRAY_LEN(push_only);
    start();
}

Test(uploads, a_lost_put_tells_nothing_to_who_may_not_pull, .init = with_push_only)
{
    snprintf(session, sizeof(session), UPLOADS "%032x", 77);
    request_h("PUT", closing_put(&fake_held.digest), "Content-Length: 0\r\n");
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
}

/* ---- mounts -----------------------------------------------------------------------------------
 */

static struct config_access rules[] = {
    {.repositories = "local/**", .allow = ACCESS_PULL | ACCESS_PUSH},
    {.repositories = "readable/**", .allow = ACCESS_PULL},
    {.repositories = "[de]*", .allow = ACCESS_PULL}};

static void with_rules(void)
{
    config.access = rules;
    config.n_access = ARRAY_LEN(rules);
    start();
}

static int mount(const char *from)
{
    char path[512];
    snprintf(path, sizeof(path), UPLOADS "?mount=%s%s", held_digest, from);
    return request_h("POST", path, "Content-Length: 0\r\n");
}

Test(uploads, mounts, .init = with_rules)
{
    fake_mount_from = "readable/x";
    cr_expect_eq(mount("&from=readable/x"), 201);
    expect_header("Docker-Content-Digest", held_digest);
    cr_expect_str_eq(path_of(answer_header(&got, "Location")), held_path);
    cr_expect_eq(mount("&from=Readable%2FX"), 201);
    static const char *const not [] = {"&from=readable/y", "&from=..", "&from=", "&from=%zz", ""};
    for (unsigned i = 0; i < ARRAY_LEN(not ); i++) {
        cr_expect_eq(mount(not [i]), 202, "%s", not [i]);
        expect_header("Range", "0-0");
    }
    cr_expect_eq(request_h("POST", UPLOADS "?mount=sha256:0", "Content-Length: 0\r\n"), 202);
}

Test(uploads, a_mount_is_no_way_into_what_must_not_be_read, .init = with_rules)
{
    fake_mount_from = "secret/x";
    cr_expect_eq(mount("&from=secret/x"), 202);
    fake_mount_from = "c.1";
    *fake_looked_at = '\0';
    cr_expect_eq(mount(""), 202);
    cr_expect_str_eq(fake_looked_at, REPO " d_2 e ");
    fake_mount_from = "d_2";
    cr_expect_eq(mount(""), 201);
    request_h("POST", "/v2/readable/x/blobs/uploads/", "Content-Length: 0\r\n");
    expect_error(403, "DENIED");
    request("GET", "/v2/readable/x/blobs/uploads/00000000000000000000000000000001");
    expect_error(403, "DENIED");
    request("DELETE", "/v2/readable/x/blobs/uploads/00000000000000000000000000000001");
    expect_error(403, "DENIED");
}

/* ---- bodies -----------------------------------------------------------------------------------
 */

Test(uploads, large_bodies_come_in_large_pieces)
{
    size_t len = 5 * MIB + 17;
    char *data = pattern(len);
    struct digest d;
    digest_of(DIGEST_SHA256, data, len, &d, NULL);
    open_session();
    cr_expect_eq(send_chunked("PATCH", session, "", data, len), 202);
    cr_expect_eq(fake_write_max, 256 * 1024);
    cr_expect_eq(request_h("PUT", closing_put(&d), "Content-Length: 0\r\n"), 201);
    open_session();
    cr_expect_eq(send_body("PUT", closing_put(&d), "", data, len), 201);
    cr_expect_eq(fake_expected, len);
    free(data);
}

/* Sends a request with a long body on a thread of its own, so that the answer can be read while it
 * is still going out, or after all of it went. */
struct sender {
    int fd;
    const char *head;
    size_t length;
    bool chunked;
    size_t sent;
};

static void *send_long(void *arg)
{
    struct sender *s = arg;
    static char block[65536];
    client_send(s->fd, s->head, strlen(s->head));
    for (; s->sent < s->length; s->sent += sizeof(block)) {
        if (s->chunked)
            client_send(s->fd, "10000\r\n", 7);
        size_t done = 0;
        while (done < sizeof(block)) {
            ssize_t n = send(s->fd, block + done, sizeof(block) - done, MSG_NOSIGNAL);
            if (n <= 0)
                return NULL;
            done += (size_t)n;
        }
        if (s->chunked)
            client_send(s->fd, "\r\n", 2);
    }
    return NULL;
}

static void early_answer(const char *method, const char *target, size_t length, bool chunked)
{
    char head[1024], how[64] = "Transfer-Encoding: chunked";
    if (!chunked)
        snprintf(how, sizeof(how), "Content-Length: %zu", length);
    snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", method, target, how);
    struct sender s = {
        .fd = client_connect(url_port(server)), .head = head, .length = length, .chunked = chunked};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, send_long, &s), 0);
    pthread_join(thread, NULL); /* a client that reads nothing before it has sent all */
    cr_expect_geq(s.sent, length, "only %zu of the body could be sent", s.sent);
    answer_done(&got);
    answer_read(s.fd, &got);
    close(s.fd);
}

Test(uploads, a_refusal_reaches_a_client_that_is_still_sending)
{
    for (int chunked = 0; chunked < 2; chunked++) {
        early_answer("PATCH", UPLOADS "00000000000000000000000000000009", 50 * MIB, chunked);
        expect_error(404, "BLOB_UPLOAD_UNKNOWN");
        expect_header("Connection", "close");
        early_answer("PUT", "/v2/-/blobs/uploads/00000000000000000000000000000009", 50 * MIB,
                     chunked);
        expect_error(400, "NAME_INVALID");
        early_answer("BREW", "/v2/", 50 * MIB, chunked);
        expect_error(405, "UNSUPPORTED");
    }
}

Test(uploads, a_failed_write_is_told_in_the_middle_of_a_long_body)
{
    uint64_t acked, size;
    err_set(&fake_write_error, ERR_NO_SPACE, "the disk is full");
    fake_write_limit = 2 * MIB;
    open_session();
    for (int chunked = 0; chunked < 2; chunked++) {
        early_answer("PATCH", session, 50 * MIB, chunked);
        expect_error(507, "UNAVAILABLE");
        expect_header("Connection", "close");
        cr_expect(strlen(answer_header(&got, "Date")) > 20);
    }
    cr_expect_eq(fake_open_sessions(&acked, &size), 1);
    cr_expect_eq(acked, 0);
    fake_write_limit = 10;
    char *data = pattern(100000);
    cr_expect_eq(send_body("PATCH", session, "", data, 100000), 507, "a short one is read whole");
    expect_error(507, "UNAVAILABLE");
    free(data);
}

Test(uploads, short_refused_bodies_keep_the_connection)
{
    static const char text[] =
        "PATCH " UPLOADS "x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        "PUT " UPLOADS "x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n0\r\n\r\n"
        "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    static const char *const lines[] = {"HTTP/1.1 404", "HTTP/1.1 400", "HTTP/1.1 200"};
    raw(text);
    const char *p = strbuf_str(&got.all);
    for (unsigned i = 0; i < ARRAY_LEN(lines); i++) {
        p = strstr(p, "HTTP/1.1 ");
        cr_assert_neq(p, NULL, "answer %u", i);
        cr_expect_eq(strncmp(p, lines[i], 12), 0, "answer %u: %.20s", i, p);
        p += 12;
    }
}

Test(uploads, who_waits_for_leave_is_told_at_once)
{
    char text[512];
    open_session();
    raw("PATCH " UPLOADS "x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
        "Expect: 100-continue\r\n\r\n");
    expect_error(404, "BLOB_UPLOAD_UNKNOWN");
    int fd = client_connect(url_port(server));
    snprintf(text, sizeof(text),
             "PATCH %s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n"
             "Expect: 100-Continue\r\n\r\n",
             session);
    client_send(fd, text, strlen(text));
    char leave[26] = "";
    cr_expect_eq(recv(fd, leave, 25, MSG_WAITALL), 25);
    cr_expect_str_eq(leave, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(fd, "abc", 3);
    answer_done(&got);
    answer_read(fd, &got);
    cr_expect_eq(got.status, 202);
    expect_header("Range", "0-2");
    close(fd);
}

static void await_size(uint64_t want)
{
    uint64_t acked, size = 0;
    for (fake_open_sessions(&acked, &size); size != want; fake_open_sessions(&acked, &size))
        poll(NULL, 0, 5);
}

Test(uploads, what_came_of_a_broken_piece_can_be_gone_on_with)
{
    char text[512];
    open_session();
    int fd = client_connect(url_port(server));
    int n = snprintf(text, sizeof(text),
                     "PATCH %s HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\nabc", session);
    client_send(fd, text, (size_t)n);
    shutdown(fd, SHUT_WR);
    await_size(3);
    close(fd);
    cr_expect_eq(request("GET", session), 204);
    expect_header("Range", "0-2");
}

Test(uploads, a_newer_request_takes_a_session_over)
{
    char text[512];
    open_session();
    int fd = client_connect(url_port(server));
    int n = snprintf(text, sizeof(text),
                     "PATCH %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", session);
    client_send(fd, text, (size_t)n);
    unsigned holder;
    do {
        pthread_mutex_lock(&fake_upload_lock);
        holder = fake_sessions[0].holder;
        pthread_mutex_unlock(&fake_upload_lock);
    } while (holder == 0);
    cr_expect_eq(send_body("PATCH", session, "", "hello", 5), 202);
    client_send(fd, "3\r\nabc\r\n0\r\n\r\n", 13);
    shutdown(fd, SHUT_WR);
    answer_done(&got);
    answer_read(fd, &got);
    expect_error(409, "BLOB_UPLOAD_INVALID");
    close(fd);
    cr_expect_eq(request("GET", session), 204);
    expect_header("Range", "0-4");
}

static void impatient(void)
{
    config.client_timeout_s = 1;
    start();
}

/* 1 KiB in a second is enough for as long as it takes; a few bytes are not. */
Test(uploads, a_slow_body_is_left_alone_and_a_dripping_one_cut, .init = impatient)
{
    char text[512], block[512] = {0};
    open_session();
    int fd = client_connect(url_port(server));
    int n = snprintf(
        text, sizeof(text),
        "PATCH %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 9216\r\n\r\n",
        session);
    client_send(fd, text, (size_t)n);
    for (int i = 0; i < 18; i++) { /* 4.5 s, over twice what a connection may take otherwise */
        client_send(fd, block, sizeof(block));
        poll(NULL, 0, 250);
    }
    answer_done(&got);
    answer_read(fd, &got);
    cr_expect_eq(got.status, 202, "%s", strbuf_str(&got.all));
    close(fd);

    fd = client_connect(url_port(server));
    client_send(fd, text, (size_t)n);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int drops = 0;
    while (drops < 200 && poll(&p, 1, 100) == 0) {
        client_send(fd, block, 1);
        drops++;
    }
    cr_expect_lt(drops, 200, "it was cut");
    close(fd);
}

static void *drain(void *arg)
{
    static bool done;
    (void)arg;
    done = server_drain(server, 60);
    return &done;
}

Test(uploads, a_drain_lets_a_running_piece_finish)
{
    char text[512];
    open_session();
    int fd = client_connect(url_port(server));
    int n = snprintf(
        text, sizeof(text),
        "PATCH %s HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        session);
    client_send(fd, text, (size_t)n);
    cr_expect_eq(recv(fd, text, 25, MSG_WAITALL), 25, "it has begun");
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, drain, NULL), 0);
    int refused;
    while ((refused = client_connect(url_port(server))) >= 0)
        close(refused);
    client_send(fd, "abc", 3);
    answer_done(&got);
    answer_read(fd, &got);
    cr_expect_eq(got.status, 202);
    expect_header("Connection", "close");
    close(fd);
    void *done;
    pthread_join(thread, &done);
    cr_expect(*(bool *)done);
}

Test(uploads, a_stop_cuts_a_piece_and_keeps_what_came)
{
    char text[512];
    uint64_t acked, size;
    open_session();
    int fd = client_connect(url_port(server));
    int n = snprintf(text, sizeof(text),
                     "PATCH %s HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n", session);
    client_send(fd, text, (size_t)n);
    char *data = pattern(MIB);
    client_send(fd, data, MIB);
    free(data);
    while (fake_open_sessions(&acked, &size) && size == 0)
        poll(NULL, 0, 5);
    server_stop(server);
    server = NULL;
    cr_expect_eq(fake_open_sessions(&acked, &size), 1);
    cr_expect_gt(size, 0);
    close(fd);
}

Test(uploads, housekeeping_looks_at_idle_sessions)
{
    config.uploads_expire_s = 1;
    start();
    unsigned before = atomic_load(&fake_expire_calls);
    while (atomic_load(&fake_expire_calls) < before + 2)
        poll(NULL, 0, 10);
}

Test(uploads, what_came_is_counted)
{
    open_session();
    cr_expect_eq(send_body("PATCH", session, "", "hello", 5), 202);
    request("GET", "/metrics");
    cr_expect(strstr(got.body, "weighbridge_received_bytes_total{route=\"upload\"} 5\n"), "%s",
              got.body);
}
