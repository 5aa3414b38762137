#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <semaphore.h>

#include "base/clock.h"
#include "script_server.h"
#include "upstream/http_private.h"

/* ---- pure parts ------------------------------------------------------------------------------ */

Test(http, resolves_locations)
{
    static const struct {
        const char *location, *url;
        bool same;
    } cases[] = {
        {"/x%2Fy?q=%22a%22", "https://h.co/x%2Fy?q=%22a%22", true},
        {"//o.com/z", "https://o.com/z", false},
        {"?k=v", "https://h.co/a/b/c?k=v", true},
        {"rel", "https://h.co/a/b/rel", true},
        {"../up", "https://h.co/a/up", true},
        /* absolute URLs may be signed and go on byte for byte */
        {"https://h.co/a?S=%2f%2F&e=1~#f", "https://h.co/a?S=%2f%2F&e=1~", true},
        {"HTTPS://H.CO:443/../a", "HTTPS://H.CO:443/../a", true},
        {"https://h.co:8443/", "https://h.co:8443/", false},
        {"http://h.co/", "http://h.co/", false},
        {"https://h.co.evil/", "https://h.co.evil/", false},
        {"https://h.co@evil/", NULL, false},
        {"https://h.co\\@evil/", NULL, false},
        {"/\\evil.com/x", "https://h.co/\\evil.com/x", true},
        {"file:///etc/passwd", NULL, false},
        {"ftp://h.co/x", NULL, false},
        {"javascript:1", NULL, false},
        {"https://h.co:99999/", NULL, false},
        {"https://h.co/\r\nx", NULL, false},
        {"", NULL, false},
    };
    const char *base = "https://h.co/a/b/c?x=1#f";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *url = http_resolve_location(base, cases[i].location);
        if (!cases[i].url) {
            cr_assert_null(url, "%s -> %s", cases[i].location, url);
            continue;
        }
        cr_assert(url && strcmp(url, cases[i].url) == 0, "%s -> %s", cases[i].location, url);
        cr_assert_eq(http_same_origin(base, url), cases[i].same, "%s", url);
    }
    cr_assert_not(http_same_origin("file:///a", "file:///a"));
    cr_assert_not(http_same_origin("", ""));
    cr_assert(http_same_origin("http://[::1]:80/", "http://[::1]/x"));
}

Test(http, names_a_host)
{
    static const char *const cases[][2] = {
        {"https://Quay.IO/v2/x?y", "quay.io"},
        {"https://h:443", "h"},
        {"http://h:80/", "h"},
        {"http://h:443/", "h:443"},
        {"https://u:p@h:5000/", "h:5000"},
        {"http://[::1]:5000", "[::1]:5000"},
        {"ftp://h/", NULL},
        {"https://", NULL},
        {"https://h:99999/", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *host = http_host(cases[i][0]);
        cr_assert(host && cases[i][1] ? strcmp(host, cases[i][1]) == 0 : host == cases[i][1],
                  "%s: %s", cases[i][0], host);
    }
}

Test(http, parses_content_range)
{
    uint64_t a, b, n;
    cr_assert(http_parse_content_range("bytes 5-9/10", &a, &b, &n));
    cr_assert(a == 5 && b == 9 && n == 10);
    cr_assert(http_parse_content_range("Bytes 0-0/9223372036854775807", &a, &b, &n));
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 5-9",
                                      "bytes 5-9/*",
                                      "bytes */10",
                                      "bytes 9-5/10",
                                      "bytes 5-10/10",
                                      "bytes -5-9/10",
                                      "bytes 5-9/10 ",
                                      "bytes 5 -9/10",
                                      "octets 5-9/10",
                                      "bytes 5-9/10,20",
                                      "bytes 0-18446744073709551615/18446744073709551616",
                                      "bytes 0-9223372036854775807/9223372036854775808",
                                      "bytes  5-9/10",
                                      "bytes +5-9/10"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not(http_parse_content_range(bad[i], &a, &b, &n), "%s", bad[i]);
}

Test(http, parses_rate_limit)
{
    cr_assert_eq(http_parse_rate_limit("\"resolvers\";r=0;t=55"), 55);
    cr_assert_eq(http_parse_rate_limit("\"resolvers\"; r=0; t=55"), 55);
    cr_assert_eq(http_parse_rate_limit("\"api\";r=12;t=55"), 0);
    cr_assert_eq(http_parse_rate_limit("\"api\";r=12;t=9, \"resolvers\";r=0;t=7"), 7);
    cr_assert_eq(http_parse_rate_limit("\"a\";r=0;t=99999999999999999999"), HTTP_RETRY_AFTER_MAX);
    cr_assert_eq(http_parse_rate_limit("\"a\";r=0"), 0);
    cr_assert_eq(http_parse_rate_limit(";;;r=;t="), 0);
    cr_assert_eq(http_parse_rate_limit(""), 0);
}

/* Feeds a header line by line; what http_response_line() said last. */
static int feed(struct http_response *r, const char *text, struct error *err)
{
    int rc = 0;
    while (*text && rc == 0) {
        size_t n = strcspn(text, "\n") + 1;
        rc = http_response_line(r, text, n, err);
        text += n;
    }
    return rc;
}

Test(http, reads_the_final_header_only)
{
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    uint64_t n;
    cr_assert_eq(feed(r, "HTTP/1.1 100 Continue\r\nX-Repo-Commit: wrong\r\n\r\n", &err), 0);
    cr_assert_eq(feed(r,
                      "HTTP/1.1 200 OK\r\nx-repo-commit :  right \r\nX-Repo-Commit: second\r\n"
                      "Folded: a\r\n  b\r\nEmpty:\r\nno colon\r\nContent-Length: 12\r\n\r\n",
                      &err),
                 1);
    cr_assert_eq(feed(r, "X-Trailer: late\r\nX-Repo-Commit: late\r\n", &err), 0);
    cr_assert_eq(http_status(r), 200);
    cr_assert_str_eq(http_header(r, "X-Repo-Commit"), "right");
    const char *second = http_header_next(r, "X-Repo-Commit", http_header(r, "X-Repo-Commit"));
    cr_assert_str_eq(second, "second");
    cr_assert_null(http_header_next(r, "X-Repo-Commit", second));
    cr_assert_str_eq(http_header(r, "folded"), "a b");
    cr_assert_str_eq(http_header(r, "empty"), "");
    cr_assert_null(http_header(r, "X-Trailer"));
    cr_assert_null(http_header(r, "right"));
    cr_assert(http_content_length(r, &n) && n == 12);
    http_response_free(r);
}

Test(http, refuses_ambiguous_headers)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"HTTP/1.1 200\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "two Content-Lengths"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", "malformed Content-Length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "malformed Content-Length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "malformed"},
        {"HTTP/1.1 2000 OK\r\n", "status line"},
        {"HTTP/1.1 20\r\n", "status line"},
        {"HTTP/1.1 999 OK\r\n", "status line"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_response *r = calloc(1, sizeof(*r));
        struct error err = ERROR_INIT;
        cr_assert_eq(feed(r, cases[i].text, &err), -1, "%s", cases[i].text);
        cr_assert_eq(err.code, ERR_UPSTREAM);
        cr_assert(strstr(err.text, cases[i].why), "%s", err.text);
        http_response_free(r);
    }
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    uint64_t n;
    cr_assert_eq(http_response_line(r, "HTTP/1.1 200 OK", 15, &err), 0);
    cr_assert_eq(http_response_line(r, "A: b\0c", 6, &err), -1);
    cr_assert_eq(feed(r, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", &err), 1);
    cr_assert_not(http_content_length(r, &n));
    http_response_free(r);
}

static struct error status_error(const char *header, const char *body)
{
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    cr_assert_eq(feed(r, header, &err), 1);
    strbuf_puts(&r->body, body);
    cr_assert_eq(http_status_error(r, "https://u:secret@h.co/p?sig=secret#secret", &err), -1);
    http_response_free(r);
    cr_assert_null(strstr(err.text, "secret"), "%s", err.text);
    return err;
}

Test(http, hides_a_credential_that_is_repeated)
{
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    cr_assert_eq(feed(r, "HTTP/1.1 401 No\r\nX-Error-Message: no Bearer hf_secret1\r\n\r\n", &err),
                 1);
    strbuf_puts(&r->body, "hf_secret1{\"error\":\"hf_secret1hf_secret1\"}hf_secret1");
    http_response_hide(r, "hf_secret1");
    cr_assert_str_eq(http_header(r, "X-Error-Message"), "no Bearer **********");
    cr_assert_null(strstr(strbuf_str(&r->body), "secret"));
    cr_assert_eq(r->body.len, 52);
    http_response_free(r);

    r = calloc(1, sizeof(*r));
    cr_assert_eq(feed(r, "HTTP/1.1 302 Found\r\nLocation: /?t=hf_secret1\r\n\r\n", &err), 1);
    http_response_hide(r, "hf_secret1");
    cr_assert_str_eq(http_header(r, "Location"), "/?t=hf_secret1", "it has to be followed");
    http_response_free(r);
}

Test(http, hides_a_password_that_is_repeated)
{
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    cr_assert_eq(feed(r, "HTTP/1.1 401 No\r\nX-Error-Message: not s3:cret\r\n\r\n", &err), 1);
    strbuf_puts(&r->body, "bad dTpzMzpjcmV0 is u:s3:cret");
    http_response_hide_authorization(r, "Basic dTpzMzpjcmV0");
    cr_assert_str_eq(http_header(r, "X-Error-Message"), "not *******");
    cr_assert_str_eq(strbuf_str(&r->body), "bad ************ is u:*******");
    http_response_hide_authorization(r, "Basic no base64");
    http_response_hide_authorization(r, "Basic eHg=");
    http_response_hide_authorization(r, "bad");
    cr_assert_str_eq(strbuf_str(&r->body), "bad ************ is u:*******");
    http_response_free(r);
}

Test(http, turns_statuses_into_errors)
{
    struct error e = status_error("HTTP/1.1 401 U\r\nX-Error-Message: Go away\r\n\r\n", "");
    cr_assert_eq(e.code, ERR_UNAUTHORIZED);
    cr_assert_str_eq(e.text, "https://h.co/p answered 401: Go away");
    e = status_error("HTTP/1.1 403 F\r\n\r\n",
                     "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no\"}]}");
    cr_assert_eq(e.code, ERR_DENIED);
    cr_assert_str_eq(e.text, "https://h.co/p answered 403: no");
    e = status_error("HTTP/1.1 404 N\r\nX-Error-Code: EntryNotFound\r\n\r\n", "<html>");
    cr_assert_eq(e.code, ERR_NOT_FOUND);
    cr_assert_str_eq(e.text, "https://h.co/p answered 404: EntryNotFound");
    e = status_error("HTTP/1.1 429 T\r\nRetry-After: 17\r\n\r\n", "{\"error\":\"slow\\ndown\"}");
    cr_assert_eq(e.code, ERR_RATE_LIMITED);
    cr_assert_eq(e.retry_after, 17);
    cr_assert_str_eq(e.text, "https://h.co/p answered 429: slow down, try again in 17 s");
    e = status_error("HTTP/1.1 429 T\r\nRateLimit: \"api\";r=0;t=21\r\n\r\n", "");
    cr_assert_eq(e.retry_after, 21);
    e = status_error("HTTP/1.1 503 S\r\nRetry-After: Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\n", "{");
    cr_assert_eq(e.code, ERR_UPSTREAM);
    cr_assert_eq(e.retry_after, HTTP_WAIT_FAILED_MAX_S);
    cr_assert_str_eq(e.text, "https://h.co/p answered 503, try again in 300 s");
    e = status_error("HTTP/1.1 429 T\r\nRetry-After: 86400\r\n\r\n", "");
    cr_assert_eq(e.retry_after, HTTP_WAIT_LIMITED_MAX_S);
    cr_assert_str_eq(e.text, "https://h.co/p answered 429, try again in 21600 s");
    e = status_error("HTTP/1.1 302 F\r\nRetry-After: Thu, 01 Jan 1970 00:00:09 GMT\r\n\r\n", "");
    cr_assert_eq(e.retry_after, 0);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

struct seen {
    unsigned headers, status;
    struct strbuf data;
    int fail_headers, fail_data;
};

static int on_headers(void *ctx, const struct http_response *r, struct error *err)
{
    struct seen *s = ctx;
    s->headers++;
    s->status = http_status(r);
    return s->fail_headers ? err_set(err, ERR_CONFLICT, "not these headers") : 0;
}

static int on_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct seen *s = ctx;
    strbuf_put(&s->data, data, len);
    return s->fail_data ? err_set(err, ERR_NO_SPACE, "no room") : 0;
}

static struct http_pool *pool_new(unsigned connections, unsigned stall_s)
{
    struct http_pool *p = NULL;
    struct error err = ERROR_INIT;
    struct http_options o = {.max_connections = connections, .stall_timeout_s = stall_s};
    cr_assert_eq(http_pool_new(&o, &p, &err), 0, "%s", err.text);
    return p;
}

/* One GET of whatever the script plays; err.code is ERR_NONE when it went well. */
struct result {
    struct error err;
    struct seen seen;
    struct http_response *r;
    uint64_t ms, errors;
};

static struct result get(const char *bytes, enum script_after after, bool streamed,
                         unsigned stall_s)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(2, stall_s);
    struct result x = {.err = ERROR_INIT};
    script_add(s, "GET /f?sig=secret ", bytes, after);
    struct http_request q = {
        .method = "GET", .url = script_url(s, "/f?sig=secret"), .max_body = 1000};
    if (streamed) {
        q.on_headers = on_headers;
        q.on_data = on_data;
        q.ctx = &x.seen;
    }
    uint64_t start = clock_monotonic_ms();
    int rc = http_perform(p, &q, &x.r, &x.err);
    x.ms = clock_monotonic_ms() - start;
    x.errors = http_pool_errors(p);
    cr_assert_eq(rc < 0, x.err.code != ERR_NONE);
    cr_assert_eq(http_pool_requests(p), 1);
    cr_assert_null(strstr(x.err.text, "secret"), "%s", x.err.text);
    http_pool_free(p);
    script_stop(s);
    return x;
}

static void done(struct result *x)
{
    http_response_free(x->r);
    strbuf_done(&x->seen.data);
}

static void expect(const char *bytes, enum script_after after, enum err_code code, const char *text)
{
    for (int streamed = 0; streamed < 2; streamed++) {
        struct result x = get(bytes, after, streamed, 30);
        cr_assert_eq(x.err.code, code, "%d %s: %s", streamed, bytes, x.err.text);
        cr_assert(strstr(x.err.text, text), "%d %s: %s", streamed, bytes, x.err.text);
        cr_assert_eq(x.errors, code != ERR_NONE);
        if (code != ERR_NONE && !streamed)
            cr_assert_null(x.r);
        done(&x);
    }
}

Test(http, collects_and_streams)
{
    const char *bytes = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    struct result x = get(bytes, SCRIPT_KEEP, false, 30);
    cr_assert_eq(x.err.code, ERR_NONE, "%s", x.err.text);
    cr_assert_str_eq(strbuf_str(http_body(x.r)), "hello");
    done(&x);
    x = get(bytes, SCRIPT_KEEP, true, 30);
    cr_assert_eq(x.err.code, ERR_NONE, "%s", x.err.text);
    cr_assert_str_eq(strbuf_str(&x.seen.data), "hello");
    cr_assert(x.seen.headers == 1 && x.seen.status == 200 && http_body(x.r)->len == 0);
    done(&x);
    /* what comes behind the length belongs to nobody */
    x = get("HTTP/1.1 206 OK\r\nContent-Length: 5\r\n\r\nhello, more", SCRIPT_KEEP, true, 30);
    cr_assert_str_eq(strbuf_str(&x.seen.data), "hello");
    done(&x);
    x = get("HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n"
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            SCRIPT_KEEP, true, 30);
    cr_assert_eq(x.err.code, ERR_NONE, "%s", x.err.text);
    cr_assert(x.seen.headers == 1 && x.seen.status == 200 && !http_header(x.r, "A"));
    done(&x);
    x = get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: late\r\n\r\n",
            SCRIPT_KEEP, true, 30);
    uint64_t n;
    cr_assert_eq(x.err.code, ERR_NONE, "%s", x.err.text);
    cr_assert_str_eq(strbuf_str(&x.seen.data), "abc");
    cr_assert(!http_content_length(x.r, &n) && !http_header(x.r, "T"));
    done(&x);
}

Test(http, names_what_broke)
{
    expect("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", SCRIPT_CLOSE, ERR_UPSTREAM,
           "answer 200 cut short at 3 of 10 bytes");
    expect("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", SCRIPT_RESET, ERR_UPSTREAM,
           "cut short at ");
    expect("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", SCRIPT_CLOSE,
           ERR_UPSTREAM, "answer 200 cut short after 3 bytes");
    expect("HTTP/1.1 200 OK\r\nContent-Le", SCRIPT_CLOSE, ERR_UPSTREAM, "");
    expect("", SCRIPT_CLOSE, ERR_UPSTREAM, "closed without an answer");
    expect("<html>no http</html>", SCRIPT_CLOSE, ERR_UPSTREAM, "HTTP/0.9");
    expect("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
           SCRIPT_KEEP, ERR_UPSTREAM, "Content-Encoding gzip");
    expect("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", SCRIPT_KEEP,
           ERR_UPSTREAM, "two Content-Lengths");
}

Test(http, gives_the_header_of_a_body_that_broke)
{
    struct result x =
        get("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 10\r\n\r\nabc", SCRIPT_CLOSE, true, 30);
    cr_assert_eq(x.err.code, ERR_UPSTREAM);
    cr_assert(x.r && strcmp(http_header(x.r, "a"), "b") == 0);
    cr_assert_str_eq(strbuf_str(&x.seen.data), "abc");
    done(&x);
}

Test(http, does_not_follow_redirects)
{
    struct result x = get("HTTP/1.1 302 F\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
                          SCRIPT_KEEP, true, 30);
    cr_assert_eq(x.err.code, ERR_NONE);
    cr_assert(http_status(x.r) == 302 && x.seen.headers == 0);
    cr_assert_str_eq(http_header(x.r, "Location"), "/other");
    done(&x);
}

Test(http, bounds_what_it_reads)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "HTTP/1.1 200 OK\r\n");
    for (unsigned i = 0; i < 3000; i++)
        strbuf_printf(&b, "X-%u: %0100u\r\n", i, i);
    strbuf_puts(&b, "\r\n");
    expect(strbuf_str(&b), SCRIPT_CLOSE, ERR_UPSTREAM, "bytes of header");

    strbuf_reset(&b);
    strbuf_printf(&b, "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n%01001u", 0u);
    struct result x = get(strbuf_str(&b), SCRIPT_KEEP, false, 30);
    cr_assert_eq(x.err.code, ERR_TOO_LARGE);
    done(&x);
    x = get(strbuf_str(&b), SCRIPT_KEEP, true, 30);
    cr_assert_eq(x.err.code, ERR_NONE);
    cr_assert_eq(x.seen.data.len, 1001);
    done(&x);

    /* an error's body is read for its text only, and its status still counts */
    strbuf_reset(&b);
    strbuf_printf(&b, "HTTP/1.1 500 E\r\nContent-Length: 300000\r\n\r\n%0300000u", 0u);
    x = get(strbuf_str(&b), SCRIPT_KEEP, true, 30);
    cr_assert_eq(x.err.code, ERR_NONE, "%s", x.err.text);
    cr_assert(http_status(x.r) == 500 && x.seen.headers == 0 && x.seen.data.len == 0);
    cr_assert_eq(http_body(x.r)->len, HTTP_ERROR_BODY_MAX);
    done(&x);
}

Test(http, gives_up_a_stall)
{
    struct result x = get("", SCRIPT_STALL, true, 1);
    cr_assert_eq(x.err.code, ERR_TIMEOUT);
    cr_assert(strstr(x.err.text, "no answer came for 1 s, or only a part of its header"), "%s",
              x.err.text);
    cr_assert(x.ms >= 1000 && x.ms < 20000 && !x.r);
    done(&x);
    x = get("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", SCRIPT_STALL, true, 1);
    cr_assert_eq(x.err.code, ERR_TIMEOUT);
    cr_assert(strstr(x.err.text, "after 3 bytes"), "%s", x.err.text);
    cr_assert(x.r && x.errors == 1);
    done(&x);
}

Test(http, returns_the_callbacks_error)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 30);
    script_add(s, "GET ", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", SCRIPT_KEEP)->forever =
        true;
    for (int i = 0; i < 2; i++) {
        struct seen seen = {.fail_headers = i == 0, .fail_data = i == 1};
        struct http_request q = {.method = "GET",
                                 .url = script_url(s, "/"),
                                 .on_headers = on_headers,
                                 .on_data = on_data,
                                 .ctx = &seen};
        struct http_response *r;
        struct error err = ERROR_INIT;
        cr_assert(http_perform(p, &q, &r, &err) < 0);
        cr_assert_eq(err.code, i == 0 ? ERR_CONFLICT : ERR_NO_SPACE);
        http_response_free(r);
        strbuf_done(&seen.data);
    }
    cr_assert_eq(http_pool_errors(p), 0, "our own refusals are no upstream errors");
    http_pool_free(p);
    script_stop(s);
}

Test(http, sends_what_was_asked_and_no_more)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 30);
    struct http_response *r;
    struct error err = ERROR_INIT;
    script_add(s, "GET /a/../b ", "HTTP/1.1 206 P\r\nContent-Length: 0\r\n\r\n", SCRIPT_KEEP);
    script_add(s, "HEAD /h ", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", SCRIPT_KEEP);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* must not count */
    struct http_request q = {.method = "GET",
                             .url = script_url(s, "/a/../b#f"),
                             .bearer = "t0ken",
                             .accept = "application/json",
                             .has_range = true,
                             .range_first = 5,
                             .range_last = 9,
                             .if_range = "\"x\""};
    cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
    http_response_free(r);
    cr_assert(script_saw(s, "\r\nAuthorization: Bearer t0ken\r\n"));
    cr_assert(script_saw(s, "\r\nAccept: application/json\r\n"));
    cr_assert(script_saw(s, "\r\nAccept-Encoding: identity\r\n"));
    cr_assert(script_saw(s, "\r\nRange: bytes=5-9\r\n"));
    cr_assert(script_saw(s, "\r\nIf-Range: \"x\"\r\n"));
    cr_assert(script_saw(s, "\r\nUser-Agent: weighbridge/" WB_VERSION "\r\n"));

    strbuf_reset(&s->requests);
    q = (struct http_request){.method = "HEAD", .url = script_url(s, "/h")};
    uint64_t n;
    cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
    cr_assert(http_content_length(r, &n) && n == 77);
    http_response_free(r);
    /* the same handle has forgotten all of the last request */
    cr_assert(!script_saw(s, "Authorization") && !script_saw(s, "Range") && !script_saw(s, "json"));

    unsigned before = script_count(s);
    q.bearer = "a\r\nX-Evil: b";
    cr_assert(http_perform(p, &q, &r, &err) < 0);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(script_count(s), before);
    q = (struct http_request){.method = "GET", .url = "file:///etc/passwd", .max_body = 100};
    cr_assert(http_perform(p, &q, &r, &err) < 0 && !r);
    http_pool_free(p);
    script_stop(s);
}

Test(http, sends_other_credentials_several_accepts_and_a_form)
{
    static const char *const accepts[] = {"application/a", "application/b;q=0.5", NULL};
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 30);
    struct http_response *r;
    struct error err = ERROR_INIT;
    script_reply(s, "POST /t ", "no: c2VjcmV0OnNlY3JldA==, secret", "401 No");
    struct http_request q = {.method = "POST",
                             .url = script_url(s, "/t"),
                             .authorization = "Basic c2VjcmV0OnNlY3JldA==",
                             .accepts = accepts,
                             .body = "a=b&c=d",
                             .body_len = 7,
                             .content_type = "application/x-www-form-urlencoded",
                             .max_body = 100};
    cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
    cr_assert_str_eq(strbuf_str(http_body(r)), "no: ********************, ******");
    http_response_free(r);
    cr_assert(script_saw(s, "\r\nAuthorization: Basic c2VjcmV0OnNlY3JldA==\r\n"));
    cr_assert(script_saw(s, "\r\nAccept: application/a\r\nAccept: application/b;q=0.5\r\n"));
    cr_assert(script_saw(s, "\r\nContent-Type: application/x-www-form-urlencoded\r\n"));
    cr_assert(script_saw(s, "\r\nContent-Length: 7\r\n"));
    cr_assert(script_saw(s, "\r\n\r\na=b&c=d"));
    cr_assert_not(script_saw(s, "Expect"));

    unsigned before = script_count(s);
    q.authorization = "Basic a\nX-Evil: b";
    cr_assert(http_perform(p, &q, &r, &err) < 0);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_null(strstr(err.text, "Evil"));
    cr_assert_eq(script_count(s), before);
    http_pool_free(p);
    script_stop(s);
}

Test(http, reuses_connections)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(4, 30);
    struct http_response *r;
    struct error err = ERROR_INIT;
    struct http_request q = {.method = "GET", .url = script_url(s, "/")};
    for (int i = 0; i < 3; i++) {
        script_add(s, "GET ", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                   i < 2 ? SCRIPT_KEEP : SCRIPT_CLOSE);
        cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
        http_response_free(r);
    }
    /* the server closed the kept connection without saying so: the next one must not fail */
    script_add(s, "GET ", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", SCRIPT_KEEP);
    cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
    http_response_free(r);
    cr_assert_eq(http_pool_errors(p), 0);
    cr_assert_eq(script_connections(s), 2);
    http_pool_free(p);
    script_stop(s);
}

struct ask {
    struct http_pool *p;
    struct http_request q;
    struct error err;
    struct http_response *r;
    int rc;
};

static void *ask(void *ctx)
{
    struct ask *a = ctx;
    a->rc = http_perform(a->p, &a->q, &a->r, &a->err);
    return NULL;
}

Test(http, can_be_cancelled)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 3600);
    atomic_bool flags[2] = {false, false};
    struct ask asks[2];
    pthread_t threads[2];
    script_add(s, "GET ", "", SCRIPT_STALL);
    for (int i = 0; i < 2; i++) {
        /* the second one waits for the only place */
        asks[i] = (struct ask){
            .p = p,
            .q = {.method = "GET", .url = script_url(s, i ? "/b" : "/a"), .cancel = &flags[i]}};
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &asks[i]), 0);
        script_wait(s, 1);
    }
    atomic_store(&flags[1], true);
    pthread_join(threads[1], NULL);
    cr_assert(asks[1].rc < 0 && asks[1].err.code == ERR_CANCELLED && !asks[1].r);
    atomic_store(&flags[0], true);
    pthread_join(threads[0], NULL);
    cr_assert(asks[0].rc < 0 && asks[0].err.code == ERR_CANCELLED && !asks[0].r);
    cr_assert_eq(script_count(s), 1);
    cr_assert_eq(http_pool_errors(p), 0);
    http_pool_free(p);
    script_stop(s);
}

Test(http, pool_cancel_stops_everything)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 3600);
    struct error err = ERROR_INIT;
    struct ask a[2];
    pthread_t threads[2];
    script_add(s, "GET ", "", SCRIPT_STALL);
    for (int i = 0; i < 2; i++) {
        a[i] = (struct ask){.p = p, .q = {.method = "GET", .url = script_url(s, "/")}};
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &a[i]), 0);
        script_wait(s, 1);
    }
    cr_assert_eq(http_pool_backoff(p, 0, 0, NULL, &err), 0);
    http_pool_cancel(p);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_assert(a[i].rc < 0 && a[i].err.code == ERR_CANCELLED);
    }
    cr_assert(http_pool_backoff(p, 20, 0, NULL, &err) < 0 && err.code == ERR_CANCELLED);
    struct http_request q = {.method = "GET", .url = script_url(s, "/")};
    struct http_response *r;
    cr_assert(http_perform(p, &q, &r, &err) < 0 && err.code == ERR_CANCELLED);
    http_pool_free(p);
    script_stop(s);
}

/* A download has the only place, and keeps it. */
Test(http, says_that_no_place_is_free)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(1, 1);
    struct error err = ERROR_INIT;
    CURL *held = NULL;
    struct http_request q = {.method = "GET", .url = script_url(s, "/f?sig=secret")};
    struct http_response *r;
    cr_assert_eq(http_pool_take(p, false, NULL, &held, &err), 0);
    cr_assert(http_perform(p, &q, &r, &err) < 0 && err.code == ERR_BUSY && !r, "%s", err.text);
    cr_assert(strstr(err.text, "within 1.0 s: all 1 are in use (upstreams[].max_connections)"),
              "%s", err.text);
    uint64_t start = clock_monotonic_ms();
    q.deadline_ms = start + 200;
    cr_assert(http_perform(p, &q, &r, &err) < 0 && err.code == ERR_BUSY, "%s", err.text);
    cr_assert(strstr(err.text, "within 0.2 s: "), "%s", err.text);
    cr_assert_lt(clock_monotonic_ms() - start, 900, "the deadline bounds the wait for a place");
    q.deadline_ms = 0;
    http_pool_give(p, held, true);
    script_reply(s, "GET ", NULL, "204 N");
    cr_assert_eq(http_perform(p, &q, &r, &err), 0, "%s", err.text);
    http_response_free(r);
    http_pool_free(p);
    script_stop(s);
}

/* More threads than places: all get their own answer. */
Test(http, shares_places_between_threads)
{
    struct script *s = script_start();
    struct http_pool *p = pool_new(3, 30);
    struct ask a[24];
    pthread_t threads[ARRAY_LEN(a)];
    for (unsigned i = 0; i < ARRAY_LEN(a); i++) {
        char path[32], body[32], match[40];
        snprintf(path, sizeof(path), "/%u", i);
        snprintf(match, sizeof(match), "GET /%u ", i);
        snprintf(body, sizeof(body), "body %u", i);
        script_reply(s, match, body, "200 OK");
        char *url = strdup(script_url(s, path));
        a[i] = (struct ask){.p = p, .q = {.method = "GET", .url = url, .max_body = 100}};
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &a[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_LEN(a); i++) {
        char body[32];
        pthread_join(threads[i], NULL);
        snprintf(body, sizeof(body), "body %u", i);
        cr_assert_eq(a[i].rc, 0, "%s", a[i].err.text);
        cr_assert_str_eq(strbuf_str(http_body(a[i].r)), body);
        http_response_free(a[i].r);
        free((char *)a[i].q.url);
    }
    cr_assert_eq(http_pool_requests(p), ARRAY_LEN(a));
    http_pool_free(p);
    unsigned connections = script_connections(s);
    script_stop(s);
    cr_assert(connections <= 3, "%u connections", connections);
}

/* ---- a name server that does not answer ------------------------------------------------------ */

static sem_t asked, answer;

/* Stands in front of the C library's: `stuck.test` is looked up until the test posts `answer`. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (node && strcmp(node, "stuck.test") == 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 20; /* far more than a failing test needs to fail */
        sem_post(&asked);
        while (sem_timedwait(&answer, &until) < 0 && errno == EINTR) {
        }
        return EAI_AGAIN;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, ret);
}

Test(http, does_not_wait_for_a_name)
{
    struct http_pool *p = NULL;
    struct error err = ERROR_INIT;
    struct http_options o = {.connect_timeout_s = 1};
    struct ask a = {.q = {.method = "GET", .url = "http://stuck.test/"}};
    pthread_t thread;
    uint64_t start = clock_monotonic_ms();
    sem_init(&asked, 0, 0);
    sem_init(&answer, 0, 0);
    cr_assert_eq(http_pool_new(&o, &p, &err), 0, "%s", err.text);
    struct http_response *r;
    cr_assert(http_perform(p, &a.q, &r, &err) < 0 && err.code == ERR_TIMEOUT, "%s", err.text);
    http_pool_free(p);

    o.connect_timeout_s = 3600;
    cr_assert_eq(http_pool_new(&o, &p, &err), 0, "%s", err.text);
    a.p = p;
    sem_wait(&asked);
    cr_assert_eq(pthread_create(&thread, NULL, ask, &a), 0);
    sem_wait(&asked);
    http_pool_cancel(p);
    pthread_join(thread, NULL);
    cr_assert(a.rc < 0 && a.err.code == ERR_CANCELLED, "%s", a.err.text);
    cr_assert_lt(clock_monotonic_ms() - start, 10000);
    http_pool_free(p);
    sem_post(&answer);
    sem_post(&answer);
}
