/* A whole server over stand-ins, for suites of tests: one request after the other, and what every
 * answer has to look like. */
#ifndef WB_TESTS_SERVER_HTTP_CASE_H
#define WB_TESTS_SERVER_HTTP_CASE_H

#include <criterion/criterion.h>

#include "base/json.h"
#include "base/log.h"
#include "fakes.h"

static struct config_upstream upstream = {.prefix = "hf"};
static struct config config = {.listen_host = "127.0.0.1",
                               .max_clients = 100,
                               .max_upstream_connections = 256,
                               .client_timeout_s = 30,
                               .uploads_expire_s = 60,
                               .max_manifest = 4 << 20,
                               .upstreams = &upstream,
                               .n_upstreams = 1};
static struct server *server;
static struct http_answer got;
static char held_path[256], cold_path[256], held_digest[DIGEST_TEXT_MAX];

/* Also for tests that change the config: they stop the suite's server and start another. */
static void start(void)
{
    struct error err = ERROR_INIT;
    server_stop(server);
    cr_assert_eq(server_start(&config, NULL, NULL, &server, &err), 0, "%s", err.text);
}

static void set_up(void)
{
    char digest[DIGEST_TEXT_MAX];
    log_set_level(LOG_ERROR);
    fake_init();
    start();
    digest_format(&fake_held.digest, held_digest);
    snprintf(held_path, sizeof(held_path), "/v2/" REPO "/blobs/%s", held_digest);
    snprintf(cold_path, sizeof(cold_path), "/v2/" REPO "/blobs/%s",
             digest_format(&fake_cold.digest, digest));
}

static void tear_down(void)
{
    answer_done(&got);
    server_stop(server);
    fake_done();
}

__attribute__((unused)) static int request_h(const char *method, const char *target,
                                             const char *headers)
{
    answer_done(&got);
    ask(server, method, target, headers, &got);
    return got.status;
}

__attribute__((unused)) static int request(const char *method, const char *target)
{
    return request_h(method, target, "");
}

__attribute__((unused)) static void expect_header(const char *name, const char *want)
{
    cr_expect_str_eq(answer_header(&got, name), want, "%s: \"%s\" instead of \"%s\"\n%.600s", name,
                     answer_header(&got, name), want, strbuf_str(&got.all));
}

/* What every answer carries. */
__attribute__((unused)) static void expect_common(void)
{
    expect_header("Docker-Distribution-API-Version", "registry/2.0");
    expect_header("X-Content-Type-Options", "nosniff");
    cr_expect(is_lower_hex(answer_header(&got, "X-Request-Id"), 16));
}

__attribute__((unused)) static void expect_error(int status, const char *code)
{
    struct error err = ERROR_INIT;
    _cleanup_json_ struct json *root = NULL;
    cr_expect_eq(got.status, status, "%.800s", strbuf_str(&got.all));
    expect_common();
    expect_header("Content-Type", "application/json");
    cr_assert_eq(json_parse(got.body ? got.body : "", got.body_len, &root, &err), 0, "%s: %.800s",
                 err.text, strbuf_str(&got.all));
    const struct json *first = json_first(json_get(root, "errors"));
    cr_expect_str_eq(json_str(json_get(first, "code")), code, "%.800s", strbuf_str(&got.all));
    cr_expect_str_eq(json_str(json_get(json_get(first, "detail"), "request")),
                     answer_header(&got, "X-Request-Id"));
    cr_expect_eq(got.body_len, got.content_length);
}

__attribute__((unused)) static void expect_bytes(const char *data, uint64_t len)
{
    cr_expect_eq(got.content_length, len, "Content-Length %ju", (uintmax_t)got.content_length);
    cr_assert_eq(got.body_len, len, "%zu bytes of body", got.body_len);
    cr_expect_eq(memcmp(got.body, data, len), 0, "the bytes are right");
}

/* A request with everything that belongs to it, as it goes over the wire. */
__attribute__((unused)) static int raw(const char *text)
{
    answer_done(&got);
    ask_raw(server, text, strlen(text), &got);
    return got.status;
}

#endif
