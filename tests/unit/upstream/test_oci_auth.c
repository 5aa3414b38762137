#include <criterion/criterion.h>

#include "base/clock.h"
#include "script_server.h"
#include "skewed_clock.h"
#include "upstream/http_private.h"
#include "upstream/oci_auth.h"
#include "upstream/oci_token.h"

#define SCOPE "repository:library/alpine:pull"

/* ---- one registry with its token server ------------------------------------------------------ */

struct world {
    struct script *s;
    struct http_pool *pool;
    struct oci_auth *auth;
    struct oci_auth_options o;
};

static unsigned stall_timeout_s = 30;

static struct world *world(struct oci_auth_options o)
{
    struct world *w = calloc(1, sizeof(*w));
    struct error err = ERROR_INIT;
    struct http_options h = {.stall_timeout_s = stall_timeout_s};
    cr_assert(w);
    w->s = script_start();
    w->o = o;
    w->o.url = o.url ? o.url : script_url(w->s, "");
    cr_assert_eq(http_pool_new(&h, &w->pool, &err), 0, "%s", err.text);
    w->o.pool = w->pool;
    cr_assert_eq(oci_auth_new(&w->o, &w->auth, &err), 0, "%s", err.text);
    return w;
}

static void end(struct world *w)
{
    oci_auth_free(w->auth);
    http_pool_free(w->pool);
    script_stop(w->s);
    free(w);
}

/* A 401 with these values of WWW-Authenticate, up to NULL. */
static struct http_response *answer_401(const char *const *values)
{
    struct http_response *r = calloc(1, sizeof(*r));
    cr_assert(r);
    cr_assert_eq(http_response_line(r, "HTTP/1.1 401 U\r\n", 16, NULL), 0);
    for (; *values; values++) {
        _cleanup_strbuf_ struct strbuf line = STRBUF_INIT;
        strbuf_printf(&line, "www-authenticate: %s\r\n", *values);
        cr_assert_eq(http_response_line(r, line.data, line.len, NULL), 0);
    }
    cr_assert_eq(http_response_line(r, "\r\n", 2, NULL), 1);
    return r;
}

static int challenged(struct world *w, const char *scope, const char *sent, const char *value,
                      char **ret, struct error *err)
{
    const char *values[] = {value, NULL};
    _cleanup_response_ struct http_response *r = answer_401(values);
    *ret = NULL;
    *err = ERROR_INIT;
    return oci_auth_challenged(w->auth, scope, sent, r, ret, err);
}

/* The usual challenge of the world's registry. */
static const char *bearer(struct world *w, const char *scope)
{
    static char text[512];
    snprintf(text, sizeof(text), "Bearer realm=\"%s\",service=\"svc\"%s%s%s",
             script_url(w->s, "/token"), *scope ? ",scope=\"" : "", scope, *scope ? "\"" : "");
    return text;
}

static void token_step(struct world *w, const char *match, const char *token, unsigned life)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"token\":\"%s\",\"expires_in\":%u}", token, life);
    script_reply(w->s, match, body, "200 OK\r\nContent-Type: application/json");
}

/* The 401 leads to this header. */
static void expect_answer(struct world *w, const char *sent, const char *challenge,
                          const char *want)
{
    _cleanup_free_ char *got = NULL;
    struct error err;
    cr_assert_eq(challenged(w, SCOPE, sent, challenge, &got, &err), 1, "%s", err.text);
    cr_assert_str_eq(got, want);
}

/* It is no use, and why: ERR_DENIED is an answer about the repository, ERR_UNAUTHORIZED is not. */
static struct error expect_no_use(struct world *w, const char *sent, const char *challenge,
                                  enum err_code code)
{
    _cleanup_free_ char *got = NULL;
    struct error err;
    cr_assert_eq(challenged(w, SCOPE, sent, challenge, &got, &err), 0, "%s", err.text);
    cr_assert_null(got);
    cr_assert_eq(err.code, code, "%s", err.text);
    return err;
}

static void expect_header(struct world *w, const char *scope, const char *want)
{
    _cleanup_free_ char *got = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(oci_auth_header(w->auth, scope, &got, &err), 0, "%s", err.text);
    if (want)
        cr_assert(got && strcmp(got, want) == 0, "%s", got);
    else
        cr_assert_null(got, "%s", got);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/wb-oci-auth-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void drop_folder(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/f", folder);
    unlink(path);
    rmdir(folder);
}

static const char *in_folder(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/f", folder);
    return path;
}

TestSuite(oci_auth, .init = make_folder, .fini = drop_folder);

/* ---- tokens ---------------------------------------------------------------------------------- */

Test(oci_auth, anonymous)
{
    struct world *w = world((struct oci_auth_options){0});
    expect_header(w, SCOPE, NULL);
    token_step(w,
               "GET /token?service=svc&scope=repository%3Alibrary%2Falpine%3Apull&"
               "client_id=weighbridge HTTP/1.1\r\n",
               "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    cr_assert_not(script_saw(w->s, "Authorization"));
    cr_assert(script_saw(w->s, "\r\nAccept: application/json\r\n"));
    /* from now on without asking anybody, for this scope */
    expect_header(w, SCOPE, "Bearer t1");
    cr_assert_eq(script_count(w->s), 1);
    end(w);
}

Test(oci_auth, login)
{
    struct world *w = world((struct oci_auth_options){.username = "us&r", .password = "pass word"});
    expect_header(w, SCOPE, NULL);
    token_step(w,
               "GET /token?service=svc&scope=repository%3Alibrary%2Falpine%3Apull&"
               "account=us%26r&client_id=weighbridge HTTP/1.1\r\n",
               "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    cr_assert(script_saw(w->s, "\r\nAuthorization: Basic dXMmcjpwYXNzIHdvcmQ=\r\n"));
    end(w);
}

Test(oci_auth, several_scopes_and_a_realm_with_a_query)
{
    struct world *w = world((struct oci_auth_options){0});
    char challenge[256];
    snprintf(challenge, sizeof(challenge),
             "Bearer realm=\"%s\",scope=\"repository:a:pull,push  registry:catalog:*\"",
             script_url(w->s, "/t?k=v#f"));
    token_step(w,
               "GET /t?k=v&scope=repository%3Aa%3Apull%2Cpush&scope=registry%3Acatalog%3A%2A&"
               "client_id=weighbridge HTTP/1.1\r\n",
               "t1", 300);
    expect_answer(w, NULL, challenge, "Bearer t1");
    /* the caller's own scope leads there */
    expect_header(w, SCOPE, "Bearer t1");
    end(w);
}

Test(oci_auth, the_callers_scope_where_the_challenge_has_none)
{
    struct world *w = world((struct oci_auth_options){0});
    token_step(w, "GET /token?service=svc&scope=repository%3Alibrary%2Falpine%3Apull&", "t1", 300);
    expect_answer(w, NULL, bearer(w, ""), "Bearer t1");
    end(w);
}

Test(oci_auth, picks_bearer_out_of_several_headers)
{
    struct world *w = world((struct oci_auth_options){.username = "u", .password = "p"});
    const char *values[] = {"Negotiate", "Basic realm=\"x\"", bearer(w, SCOPE), NULL};
    _cleanup_response_ struct http_response *r = answer_401(values);
    _cleanup_free_ char *got = NULL;
    struct error err = ERROR_INIT;
    token_step(w, "GET /token", "t1", 300);
    cr_assert_eq(oci_auth_challenged(w->auth, SCOPE, NULL, r, &got, &err), 1, "%s", err.text);
    cr_assert_str_eq(got, "Bearer t1");
    end(w);
}

Test(oci_auth, renews_before_the_token_runs_out)
{
    struct world *w = world((struct oci_auth_options){0});
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    skew_s = 285;
    expect_header(w, SCOPE, "Bearer t1");
    skew_s = 291;
    token_step(w, "GET /token", "t2", 300);
    expect_header(w, SCOPE, "Bearer t2");
    cr_assert_eq(script_count(w->s), 2);
    /* without a new one the old one does for its last seconds, and then no more */
    skew_s = 291 + 292;
    script_reply(w->s, "GET /token", "", "500 Oops");
    expect_header(w, SCOPE, "Bearer t2");
    skew_s = 291 + 301;
    script_reply(w->s, "GET /token", "", "503 Oops\r\nRetry-After: 7");
    _cleanup_free_ char *got = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(oci_auth_header(w->auth, SCOPE, &got, &err), -1);
    cr_assert_eq(err.code, ERR_UPSTREAM, "%s", err.text);
    cr_assert_eq(err.retry_after, 7);
    end(w);
}

Test(oci_auth, a_refused_token_is_exchanged_once)
{
    struct world *w = world((struct oci_auth_options){0});
    token_step(w, "GET /token", "t1", 3600);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    /* fresh: it is not the token's age */
    struct error err = expect_no_use(w, "Bearer t1", bearer(w, SCOPE), ERR_DENIED);
    cr_assert(strstr(err.text, SCOPE) && strstr(err.text, "needs a login"), "%s", err.text);
    cr_assert_eq(script_count(w->s), 1);
    /* somebody revoked it */
    skew_s = 100;
    token_step(w, "GET /token", "t2", 3600);
    expect_answer(w, "Bearer t1", bearer(w, SCOPE), "Bearer t2");
    /* one who comes late with the old one gets the new one */
    expect_answer(w, "Bearer t1", bearer(w, SCOPE), "Bearer t2");
    cr_assert_eq(script_count(w->s), 2);
    expect_header(w, SCOPE, "Bearer t2");
    /* the same one again is no new one */
    skew_s = 200;
    token_step(w, "GET /token", "t2", 3600);
    expect_no_use(w, "Bearer t2", bearer(w, SCOPE), ERR_DENIED);
    end(w);
}

Test(oci_auth, a_larger_scope_is_another_token)
{
    struct world *w = world((struct oci_auth_options){0});
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    token_step(w, "GET /token?service=svc&scope=repository%3Alibrary%2Falpine%3Apull%2Cpush&", "t2",
               300);
    expect_answer(w, "Bearer t1", bearer(w, SCOPE ",push"), "Bearer t2");
    expect_header(w, SCOPE, "Bearer t2");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

Test(oci_auth, forgets_the_scopes_that_nobody_asked_for_longest)
{
    struct world *w = world((struct oci_auth_options){0});
    struct error err;
    script_add(w->s, "GET /token",
               "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"token\":\"t1\"}", SCRIPT_KEEP)
        ->forever = true;
    for (unsigned i = 0; i <= 1024; i++) {
        _cleanup_free_ char *got = NULL;
        char scope[32];
        snprintf(scope, sizeof(scope), "repository:%u:pull", i);
        cr_assert_eq(challenged(w, scope, NULL, bearer(w, scope), &got, &err), 1, "%s", err.text);
        if (i == 1000)
            expect_header(w, "repository:0:pull", "Bearer t1");
    }
    unsigned before = script_count(w->s);
    expect_header(w, "repository:0:pull", "Bearer t1");
    expect_header(w, "repository:2:pull", "Bearer t1");
    cr_assert_eq(script_count(w->s), before);
    expect_header(w, "repository:1:pull", "Bearer t1");
    cr_assert_eq(script_count(w->s), before + 1);
    end(w);
}

/* ---- identity tokens ------------------------------------------------------------------------- */

static void identity_config(struct world **ret)
{
    write_file(in_folder(), "{\"auths\":{\"http://reg.example/v2/\":"
                            "{\"auth\":\"dXNlcjo=\",\"identitytoken\":\"id+en/1\"}}}");
    *ret =
        world((struct oci_auth_options){.url = "http://reg.example", .docker_config = in_folder()});
}

Test(oci_auth, an_identity_token_is_posted)
{
    struct world *w;
    identity_config(&w);
    script_reply(w->s, "POST /token HTTP/1.1\r\n",
                 "{\"access_token\":\"t1\",\"refresh_token\":\"x\",\"scope\":\"\"}", "200 OK");
    expect_answer(w, NULL, bearer(w, "a:b:c d:e:f"), "Bearer t1");
    cr_assert(script_saw(w->s, "\r\nContent-Type: application/x-www-form-urlencoded\r\n"));
    cr_assert(script_saw(w->s, "\r\n\r\ngrant_type=refresh_token&service=svc&client_id=weighbridge&"
                               "scope=a%3Ab%3Ac%20d%3Ae%3Af&refresh_token=id%2Ben%2F1"));
    cr_assert_not(script_saw(w->s, "Authorization"));
    end(w);
}

Test(oci_auth, falls_back_to_get)
{
    static const char *const statuses[] = {"404 N", "405 M", "401 U"};
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        struct world *w;
        identity_config(&w);
        script_reply(w->s, "POST /token ", "", "%s", statuses[i]);
        token_step(w, "GET /token?service=svc&scope=a%3Ab%3Ac&account=user&client_id=", "t1", 60);
        expect_answer(w, NULL, bearer(w, "a:b:c"), "Bearer t1");
        cr_assert(script_saw(w->s, "\r\nAuthorization: Basic dXNlcjppZCtlbi8x\r\n"));
        /* only the first two are for ever */
        skew_s += 100;
        if (i == 2)
            script_reply(w->s, "POST /token ", "{\"access_token\":\"t2\"}", "200 OK");
        else
            token_step(w, "GET /token", "t2", 60);
        expect_header(w, SCOPE, "Bearer t2");
        cr_assert_eq(script_count(w->s), 3);
        end(w);
    }
}

/* ---- Basic ----------------------------------------------------------------------------------- */

Test(oci_auth, basic_once_it_was_asked_for)
{
    struct world *w = world((struct oci_auth_options){.username = "user", .password = "pa:ss"});
    expect_header(w, SCOPE, NULL);
    expect_answer(w, NULL, "Basic realm=\"x\"", "Basic dXNlcjpwYTpzcw==");
    expect_header(w, SCOPE, "Basic dXNlcjpwYTpzcw==");
    expect_header(w, "repository:other:pull", "Basic dXNlcjpwYTpzcw==");
    struct error err =
        expect_no_use(w, "Basic dXNlcjpwYTpzcw==", "Basic realm=\"x\"", ERR_UNAUTHORIZED);
    cr_assert(strstr(err.text, "upstreams[].username and password"), "%s", err.text);
    cr_assert_null(strstr(err.text, "pa:ss"));
    /* the registry has changed its mind, and again */
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, "Basic dXNlcjpwYTpzcw==", bearer(w, SCOPE), "Bearer t1");
    expect_header(w, SCOPE, "Bearer t1");
    expect_answer(w, "Bearer t1", "Basic realm=\"x\"", "Basic dXNlcjpwYTpzcw==");
    expect_header(w, SCOPE, "Basic dXNlcjpwYTpzcw==");
    end(w);
}

Test(oci_auth, an_identity_token_is_no_password)
{
    struct world *w;
    identity_config(&w);
    expect_no_use(w, NULL, "Basic realm=\"x\"", ERR_UNAUTHORIZED);
    end(w);
}

Test(oci_auth, basic_without_a_login)
{
    struct world *w = world((struct oci_auth_options){0});
    struct error err = expect_no_use(w, NULL, "Basic realm=\"x\"", ERR_UNAUTHORIZED);
    cr_assert(strstr(err.text, "set upstreams[].username and password_file"), "%s", err.text);
    expect_header(w, SCOPE, NULL);
    expect_no_use(w, NULL, "Negotiate", ERR_UNAUTHORIZED);
    expect_no_use(w, NULL, "nonsense=", ERR_UNAUTHORIZED);
    end(w);
}

Test(oci_auth, a_token_from_a_file_is_sent_as_it_is)
{
    write_file(in_folder(), " tok-1\n");
    struct world *w = world((struct oci_auth_options){.token_file = in_folder()});
    expect_header(w, SCOPE, "Bearer tok-1");
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer tok-1");
    struct error err = expect_no_use(w, "Bearer tok-1", bearer(w, SCOPE), ERR_UNAUTHORIZED);
    cr_assert(strstr(err.text, "upstreams[].token_file"), "%s", err.text);
    cr_assert_null(strstr(err.text, "tok-1"));
    write_file(in_folder(), "tok-2\n");
    expect_answer(w, "Bearer tok-1", bearer(w, SCOPE), "Bearer tok-2");
    expect_header(w, SCOPE, "Bearer tok-2");
    cr_assert_eq(script_count(w->s), 0);
    end(w);
}

Test(oci_auth, a_new_password_is_used_from_the_next_exchange_on)
{
    write_file(in_folder(), "old");
    struct world *w =
        world((struct oci_auth_options){.username = "u", .password_file = in_folder()});
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    cr_assert(script_saw(w->s, "\r\nAuthorization: Basic dTpvbGQ=\r\n"));
    write_file(in_folder(), "new");
    skew_s += 301;
    token_step(w, "GET /token", "t2", 300);
    expect_header(w, SCOPE, "Bearer t2");
    cr_assert(script_saw(w->s, "\r\nAuthorization: Basic dTpuZXc=\r\n"));
    end(w);
}

/* ---- where a login may go -------------------------------------------------------------------- */

Test(oci_auth, no_login_goes_over_plain_http_for_an_https_registry)
{
    struct world *w = world((struct oci_auth_options){
        .url = "https://reg.example", .username = "user", .password = "secret-1"});
    struct error err = expect_no_use(w, NULL, bearer(w, SCOPE), ERR_UNAUTHORIZED);
    cr_assert(strstr(err.text, "127.0.0.1") && strstr(err.text, "https"), "%s", err.text);
    static const char *const realms[] = {"ftp://x/", "file:///etc/passwd", "https://u:p@x/",
                                         "https://", "HTTP://x/",          "//x y/"};
    for (size_t i = 0; i < ARRAY_LEN(realms); i++) {
        char challenge[128];
        snprintf(challenge, sizeof(challenge), "Bearer realm=\"%s\"", realms[i]);
        expect_no_use(w, NULL, challenge, ERR_UNAUTHORIZED);
    }
    cr_assert_eq(script_count(w->s), 0);
    end(w);
}

/* ---- token servers that fail ----------------------------------------------------------------- */

Test(oci_auth, a_refused_login_is_not_tried_again_at_once)
{
    static const char *const statuses[] = {"400 B", "401 U", "403 F"};
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        struct world *w = world((struct oci_auth_options){.username = "u", .password = "secret-1"});
        script_reply(w->s, "GET /token", "{\"details\":\"bad secret-1\"}", "%s", statuses[i]);
        struct error err = expect_no_use(w, NULL, bearer(w, SCOPE), ERR_UNAUTHORIZED);
        cr_assert(strstr(err.text, "127.0.0.1") && strstr(err.text, "upstreams[].username"), "%s",
                  err.text);
        expect_no_use(w, NULL, bearer(w, SCOPE), ERR_UNAUTHORIZED);
        cr_assert_eq(script_count(w->s), 1);
        skew_s += 11;
        token_step(w, "GET /token", "t1", 300);
        expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
        end(w);
    }
}

Test(oci_auth, failures_of_the_token_server)
{
    static const struct {
        const char *answer;
        enum err_code code;
        unsigned retry_after;
    } cases[] = {
        {"HTTP/1.1 500 E\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM, 0},
        {"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM, 0},
        {"HTTP/1.1 302 F\r\nLocation: /token2\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM, 0},
        {"HTTP/1.1 503 E\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM, 9},
        {"HTTP/1.1 429 T\r\nContent-Length: 0\r\n\r\n", ERR_RATE_LIMITED, 0},
        {"HTTP/1.1 429 T\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", ERR_RATE_LIMITED, 9},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ERR_UPSTREAM, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", ERR_UPSTREAM, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"to", ERR_UPSTREAM, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", ERR_UPSTREAM, 0},
        {"", ERR_UPSTREAM, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world((struct oci_auth_options){.username = "u", .password = "secret-1"});
        _cleanup_strbuf_ struct strbuf answer = STRBUF_INIT;
        _cleanup_free_ char *got = NULL;
        struct error err;
        strbuf_puts(&answer, cases[i].answer);
        if (strstr(cases[i].answer, "70000"))
            for (int j = 0; j < 70000; j++)
                strbuf_putc(&answer, ' ');
        script_add(w->s, "GET /token", strbuf_str(&answer), SCRIPT_CLOSE);
        cr_assert_eq(challenged(w, SCOPE, NULL, bearer(w, SCOPE), &got, &err), -1, "%zu", i);
        cr_assert_eq(err.code, cases[i].code, "%zu: %s", i, err.text);
        cr_assert_eq(err.retry_after, cases[i].retry_after, "%zu", i);
        cr_assert(strstr(err.text, "token server"), "%s", err.text);
        unsigned n = script_count(w->s);
        if (cases[i].retry_after) /* until then it stands */
            cr_assert_eq(challenged(w, SCOPE, NULL, bearer(w, SCOPE), &got, &err), -1);
        cr_assert_eq(script_count(w->s), n);
        skew_s += 10;
        token_step(w, "GET /token", "t1", 300);
        expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
        end(w);
    }
}

/* Its answer, for another scope each time: nothing is known of it. */
static enum err_code failed(struct world *w, unsigned n)
{
    _cleanup_free_ char *got = NULL;
    struct error err;
    char scope[32];
    snprintf(scope, sizeof(scope), "repository:%u:pull", n);
    cr_assert_eq(challenged(w, scope, NULL, bearer(w, scope), &got, &err), -1);
    return err.code;
}

Test(oci_auth, a_token_server_that_is_down_is_left_alone)
{
    stall_timeout_s = 1;
    struct world *w = world((struct oci_auth_options){0});
    script_add(w->s, "GET /token", "", SCRIPT_STALL);
    cr_assert_eq(failed(w, 0), ERR_TIMEOUT);
    /* half the shortest pause */
    uint64_t start = clock_monotonic_ms();
    unsigned n = 0;
    do
        n += failed(w, 1) == ERR_UPSTREAM;
    while (clock_monotonic_ms() < start + 300);
    cr_assert_gt(n, 1);
    cr_assert_eq(script_count(w->s), 1);
    skew_s += 2;
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

Test(oci_auth, gives_up_at_the_callers_deadline)
{
    struct world *w = world((struct oci_auth_options){0});
    const char *values[] = {bearer(w, SCOPE), NULL};
    _cleanup_response_ struct http_response *r = answer_401(values);
    _cleanup_free_ char *got = NULL;
    struct error err = ERROR_INIT;
    script_add(w->s, "GET /token", "", SCRIPT_STALL);
    cr_assert_eq(
        oci_auth_challenged_until(w->auth, SCOPE, NULL, r, clock_monotonic_ms() + 100, &got, &err),
        -1);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    /* one who has time is not kept away by that */
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    skew_s += 301;
    script_add(w->s, "GET /token", "", SCRIPT_STALL);
    cr_assert_eq(oci_auth_header_until(w->auth, SCOPE, clock_monotonic_ms() + 100, &got, &err), -1);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    end(w);
}

struct waiting {
    struct world *w;
    pthread_t thread;
    uint64_t for_ms;
    struct error err;
    int rc;
    char *got;
};

static void *wait_one(void *ctx)
{
    struct waiting *x = ctx;
    x->rc = oci_auth_header_until(
        x->w->auth, SCOPE, x->for_ms ? clock_monotonic_ms() + x->for_ms : 0, &x->got, &x->err);
    return NULL;
}

Test(oci_auth, one_who_has_time_outlasts_one_who_has_none)
{
    struct world *w = world((struct oci_auth_options){0});
    token_step(w, "GET /token", "t1", 300);
    expect_answer(w, NULL, bearer(w, SCOPE), "Bearer t1");
    skew_s += 301;
    script_add(w->s, "GET /token", "", SCRIPT_STALL);
    struct waiting first = {.w = w, .for_ms = 400}, second = {.w = w};
    cr_assert_eq(pthread_create(&first.thread, NULL, wait_one, &first), 0);
    script_wait(w->s, 2);
    token_step(w, "GET /token", "t2", 300);
    cr_assert_eq(pthread_create(&second.thread, NULL, wait_one, &second), 0);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    cr_assert_eq(first.rc, -1);
    cr_assert_eq(first.err.code, ERR_TIMEOUT, "%s", first.err.text);
    cr_assert_eq(second.rc, 0, "%s", second.err.text);
    cr_assert_str_eq(second.got, "Bearer t2");
    free(second.got);
    cr_assert_eq(script_count(w->s), 3);
    end(w);
}

Test(oci_auth, nothing_secret_gets_into_an_error)
{
    static const char *const answers[] = {
        "200 OK", "302 F\r\nLocation: /x",   "400 B", "401 U", "403 F", "404 N", "429 T",
        "500 E",  "503 E\r\nRetry-After: 3", "599 x"};
    static const char body[] = "{\"error\":\"secret-1 id-secret c2VjcmV0LTE= dTpzZWNyZXQtMQ==\","
                               "\"errors\":[{\"code\":\"secret-1\",\"message\":\"id-secret\"}],"
                               "\"id-secret\":1,\"id-secret\":\"secret-1\"}";
    for (size_t i = 0; i < 2 * ARRAY_LEN(answers); i++) {
        bool identity = i % 2;
        write_file(in_folder(), "{\"auths\":{\"docker.io\":{\"identitytoken\":\"id-secret\","
                                "\"auth\":\"dTpzZWNyZXQtMQ==\"}}}");
        struct world *w = world((struct oci_auth_options){.url = "http://index.docker.io",
                                                          .username = identity ? NULL : "u",
                                                          .password = "secret-1",
                                                          .docker_config = in_folder()});
        _cleanup_free_ char *got = NULL;
        struct error err;
        char challenge[512];
        /* it knows what we sent before, and names it in its realm */
        snprintf(challenge, sizeof(challenge),
                 "Bearer realm=\"%s\",service=\"s\",error=\"secret-1\"",
                 script_url(w->s, identity ? "/secret-1/id-secret?q=secret-1" : "/secret-1?q=x"));
        for (int j = 0; j < 2; j++) {
            script_reply(w->s, "GET ", body, "%s\r\nX-Error-Message: secret-1", answers[i / 2]);
            script_reply(w->s, "POST ", body, "%s\r\nX-Error-Message: id-secret", answers[i / 2]);
        }
        cr_assert_leq(challenged(w, SCOPE, NULL, challenge, &got, &err), 0);
        cr_assert_neq(err.code, ERR_NONE);
        cr_assert_null(strstr(err.text, "secret"), "%s", err.text);
        cr_assert_null(strstr(err.text, "dTpz"), "%s", err.text);
        /* nor when the connection breaks */
        script_stop(w->s);
        w->s = script_start();
        skew_s += 20;
        cr_assert_leq(challenged(w, SCOPE, NULL, challenge, &got, &err), 0);
        cr_assert_null(strstr(err.text, "secret"), "%s", err.text);
        end(w);
    }
}

/* ---- one exchange for all -------------------------------------------------------------------- */

struct asking {
    struct world *w;
    pthread_t thread;
    int rc;
    char *got;
    struct error err;
};

static void *ask_one(void *ctx)
{
    struct asking *a = ctx;
    a->rc =
        challenged(a->w, SCOPE, NULL, "Bearer realm=\"/token\",service=\"svc\"", &a->got, &a->err);
    return NULL;
}

Test(oci_auth, who_waits_for_an_exchange_shares_its_end)
{
    struct world *w = world((struct oci_auth_options){0});
    struct asking askers[6];
    script_add(w->s, "GET /token", "", SCRIPT_STALL);
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        askers[i] = (struct asking){.w = w};
        cr_assert_eq(pthread_create(&askers[i].thread, NULL, ask_one, &askers[i]), 0);
    }
    script_wait(w->s, 1);
    http_pool_cancel(w->pool);
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        pthread_join(askers[i].thread, NULL);
        cr_assert_eq(askers[i].rc, -1);
        cr_assert_eq(askers[i].err.code, ERR_CANCELLED, "%s", askers[i].err.text);
        cr_assert_null(askers[i].got);
    }
    cr_assert_eq(script_count(w->s), 1);
    end(w);
}

/* ---- token answers --------------------------------------------------------------------------- */

Test(oci_auth, reads_token_answers)
{
    static const struct {
        const char *text, *token;
        uint64_t life_s;
    } cases[] = {
        {"{\"token\":\"a\"}", "a", 60},
        {"{\"access_token\":\"a\",\"expires_in\":300}", "a", 300},
        {"{\"token\":\"a\",\"access_token\":\"a\",\"expires_in\":5}", "a", 5},
        {"{\"token\":\"a\",\"access_token\":\"\",\"expires_in\":0}", "a", 60},
        {"{\"token\":\"a\",\"access_token\":null,\"expires_in\":-5}", "a", 60},
        {"{\"token\":\"a\",\"expires_in\":\"3600\"}", "a", 3600},
        {"{\"token\":\"a\",\"expires_in\":\"1h\"}", "a", 60},
        {"{\"token\":\"a\",\"expires_in\":\"\"}", "a", 60},
        {"{\"token\":\"a\",\"expires_in\":\"99999999999999999999999\"}", "a", 86400},
        {"{\"token\":\"a\",\"expires_in\":1e300}", "a", 86400},
        {"{\"token\":\"a\",\"expires_in\":300.5}", "a", 300},
        {"{\"token\":\"a\",\"expires_in\":null}", "a", 60},
        {"{\"token\":\"a\",\"issued_at\":\"1970-01-01T00:00:00Z\",\"expires_in\":100}", "a", 100},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct oci_token t = {0};
        struct error err = ERROR_INIT;
        cr_assert_eq(oci_token_parse(cases[i].text, strlen(cases[i].text), &t, &err), 0, "%s: %s",
                     cases[i].text, err.text);
        cr_assert_str_eq(t.text, cases[i].token);
        cr_assert_eq(t.life_s, cases[i].life_s, "%s", cases[i].text);
        free(t.text);
    }
    static const char *const bad[] = {"",
                                      "[]",
                                      "\"a\"",
                                      "{\"token\":1}",
                                      "{\"token\":\"\"}",
                                      "{\"token\":\"a b\"}",
                                      "{\"token\":\"a\\r\\nX: y\"}",
                                      "{\"token\":\"\xc3\xa4\"}",
                                      "{\"token\":\"a\",\"token\":\"b\"}",
                                      "{\"token\":\"a\"}x",
                                      "{\"access_token\":\"\\u007f\"}",
                                      "{\"error\":\"invalid\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct oci_token t = {0};
        struct error err = ERROR_INIT;
        cr_assert_eq(oci_token_parse(bad[i], strlen(bad[i]), &t, &err), -1, "%s", bad[i]);
        cr_assert_eq(err.code, ERR_UPSTREAM);
        cr_assert_null(t.text);
    }
    _cleanup_strbuf_ struct strbuf longest = STRBUF_INIT;
    struct oci_token t = {0};
    strbuf_puts(&longest, "{\"token\":\"");
    for (unsigned i = 0; i < OCI_TOKEN_MAX; i++)
        strbuf_putc(&longest, 'x');
    strbuf_puts(&longest, "\"}");
    cr_assert_eq(oci_token_parse(longest.data, longest.len, &t, NULL), 0);
    free(t.text);
    strbuf_truncate(&longest, longest.len - 2);
    strbuf_puts(&longest, "x\"}");
    cr_assert_eq(oci_token_parse(longest.data, longest.len, &t, NULL), -1);
}
