/* What a registry's answers mean when they are not its own, and when another host gives them. */
#include "oci_world.h"

static int confirm(struct world *w, struct manifest *ret)
{
    w->err = ERROR_INIT;
    return oci_confirm_manifest(w->o, NAME, "v1", 0, ret, &w->err);
}

static const struct {
    const char *header, *body;
    bool own;
} answers[] = {
    /* registries: distribution and Docker Hub, GHCR, Quay and ECR, ollama; Harbor; one that only
     * has the header */
    {"Docker-Distribution-Api-Version: registry/2.0",
     "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"manifest unknown\"}]}\n", true},
    {"Content-Type: application/json", UNKNOWN, true},
    {"Content-Type: text/plain", "{\"errors\":[{\"code\":\"NAME_UNKNOWN\",\"detail\":{}}]}", true},
    {"X: y", "{\"errors\":[{\"code\":\"NOT_FOUND\",\"message\":\"artifact x not found\"}]}", true},
    {"X: y", "{\"errors\":[{\"code\":\"UNAUTHORIZED\"}]}", true},
    {"docker-distribution-api-version: registry/2.0", "404 page not found", true},
    /* and all others */
    {"Content-Type: text/html", "<html>nginx</html>", false},
    {"Docker-Distribution-Api-Version: registry/2.0\r\nContent-Type: text/html; charset=x",
     "<html>a proxy that adds it to all that it says</html>", false},
    {"Content-Type: text/html", UNKNOWN, false},
    {"X: y", "", false},
    {"X: y", "404 page not found", false},
    {"X: y", "{\"errors\":[]}", false},
    {"X: y", "{\"errors\":[{\"message\":\"not found\"}]}", false},
    {"X: y", "{\"errors\":[{\"code\":404}]}", false},
    {"X: y", "{\"errors\":[{\"code\":\"404\"}]}", false},
    {"X: y", "{\"errors\":[{\"code\":\"\"}]}", false},
    {"X: y", "{\"errors\":{\"code\":7}}", false},
    {"X: y", "{\"errors\":\"NOT_FOUND\"}", false},
    {"X: y", "[{\"code\":\"NOT_FOUND\"}]", false},
    {"X: y", "{\"code\":\"NOT_FOUND\"}", false},
    {"X: y", "{\"errors\":[{\"code\":\"NOT_FOUND\"", false},
};

Test(oci_words, peer_bug_57_knows_a_registrys_own)
{
    struct manifest m;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct world *w = world();
        script_reply(w->s, "GET ", answers[i].body, "404 Not Found\r\n%s", answers[i].header);
        script_reply(w->s, "GET ", answers[i].body, "403 Forbidden\r\n%s", answers[i].header);
        script_reply(w->s, "GET ", answers[i].body, "404 Not Found\r\n%s", answers[i].header);
        int rc = confirm(w, &m);
        if (answers[i].own) {
            cr_assert_eq(rc, 0, "%s: %s", answers[i].body, w->err.text);
            expect(w, confirm(w, &m), ERR_DENIED, "answered 403");
        } else {
            expect(w, rc, ERR_UPSTREAM, "answered 404, but not in a registry's words");
            expect(w, confirm(w, &m), ERR_UPSTREAM, "answered 403, but not in a registry's words");
        }
        /* Where nothing is known that could be lost, a 404 is one. */
        cr_assert_eq(get(w, &m), 0, "%s", w->err.text);
        end(w);
    }
}

Test(oci_words, gives_what_is_there_after_all)
{
    struct world *w = world();
    struct manifest m;
    script_reply(w->s, "GET /v2/team/app/manifests/v1 ", MANIFEST, "200 OK");
    cr_assert_eq(confirm(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    script_reply(w->s, "GET ", "", "500 Oops");
    expect(w, confirm(w, &m), ERR_UPSTREAM, "answered 500");
    end(w);
}

/* ---- another host that wants a login --------------------------------------------------------- */

Test(oci_words, says_that_another_host_wants_a_login)
{
    static const char *const methods[] = {"GET", "HEAD"};
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct script *other = script_start();
        struct world *w = world_at(c, "");
        struct manifest m;
        struct oci_head h;
        char said[200];
        script_reply(w->s, methods[i], i ? NULL : "", "307 Moved\r\n%sLocation: %s",
                     i ? "Content-Length: 0\r\n" : "", script_url(other, "/v2/x?sig=" SECRET));
        script_reply(other, methods[i], i ? NULL : "{}",
                     "401 U\r\n%sWWW-Authenticate: Bearer realm=\"%s\"",
                     i ? "Content-Length: 0\r\n" : "", script_url(other, "/token"));
        snprintf(said, sizeof(said),
                 "redirects to 127.0.0.1:%u, which answered 401 and wants a login of its own",
                 other->port);
        expect(w, i ? head(w, &h) : get(w, &m), ERR_UPSTREAM, said);
        cr_assert(strstr(w->err.text, "an upstream with its own login"), "%s", w->err.text);
        cr_assert_eq(script_count(other), 1, "no token is asked for there");
        cr_assert_not(script_saw(other, "Authorization"));
        end(w);
        script_stop(other);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Downloads are none of oci.c's requests. */
static unsigned download(struct world *w, const char *path)
{
    struct http_response *r = NULL;
    struct http_request q = {.method = "GET", .url = script_url(w->s, path)};
    cr_assert_eq(http_perform(oci_pool(w->o), &q, &r, &w->err), 0, "%s", w->err.text);
    unsigned status = http_status(r);
    http_response_free(r);
    return status;
}

Test(oci_words, peer_bug_63_what_a_download_was_told_counts_for_all)
{
    struct world *w = world();
    struct manifest m;
    /* Not the registry's word. */
    script_reply(w->s, "GET /token ", "", "429 Slow\r\nRetry-After: 60");
    cr_assert_eq(download(w, "/token"), 429);
    /* It names no time. */
    script_reply(w->s, "GET /v2/a/blobs/b ", "", "429 Slow");
    cr_assert_eq(download(w, "/v2/a/blobs/b"), 429);
    script_reply(w->s, "GET /v2/team", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    script_reply(w->s, "GET /v2/a/blobs/b?sig=" SECRET " ", "", "429 Slow\r\nRetry-After: 60");
    cr_assert_eq(download(w, "/v2/a/blobs/b?sig=" SECRET), 429);
    expect(w, get(w, &m), ERR_UPSTREAM, "is not asked for the next 60 s");
    cr_assert_eq(w->err.retry_after, 60);
    atomic_fetch_add(&skew_s, 61);
    script_reply(w->s, "GET /v2/team", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    end(w);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static int head_within(struct world *w, uint64_t ms, uint64_t *ret_ms)
{
    struct oci_head h;
    uint64_t start = clock_monotonic_ms();
    w->err = ERROR_INIT;
    int rc = oci_head_manifest(w->o, NAME, "v1", NULL, start + ms, &h, &w->err);
    *ret_ms = clock_monotonic_ms() - start;
    return rc;
}

Test(oci_words, a_deadline_bounds_the_token_server_as_well)
{
    struct config_upstream c = {.breaker_failures = 2};
    struct world *w = world_at(c, "");
    struct manifest m;
    uint64_t took;
    add_challenge(w, "HEAD", "");
    script_add(w->s, "GET /token?", "", SCRIPT_STALL);
    expect(w, head_within(w, 300, &took), ERR_TIMEOUT, "token server");
    cr_assert(took >= 300 && took < 2000, "%lu ms", (unsigned long)took);
    /* The registry itself is not to blame. */
    script_reply(w->s, "GET /token?", "{\"token\":\"one\",\"expires_in\":300}", "200 OK");
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    end(w);
}

Test(oci_words, a_short_deadline_is_one_failure_among_others)
{
    struct config_upstream c = {.breaker_failures = 2};
    struct world *w = world_at(c, "");
    struct oci_head h;
    uint64_t took;
    script_add(w->s, "HEAD ", "", SCRIPT_STALL);
    expect(w, head_within(w, 200, &took), ERR_TIMEOUT, "no whole answer");
    cr_assert_lt(took, 2000);
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 5");
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    /* And one that has passed costs nothing, and says nothing of the upstream. */
    for (int i = 0; i < 3; i++)
        expect(w, head_within(w, 0, &took), ERR_TIMEOUT, "no time was left");
    cr_assert_eq(script_count(w->s), 2);
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 5");
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    end(w);
}

/* ---- tokens for scopes that are new ---------------------------------------------------------- */

static int get_of(struct world *w, const char *name, struct manifest *ret)
{
    w->err = ERROR_INIT;
    return oci_get_manifest(w->o, name, "v1", NULL, 0, ret, &w->err);
}

static void gets(struct world *w, const char *name)
{
    struct manifest m;
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get_of(w, name, &m), 1, "%s", w->err.text);
    manifest_done(&m);
}

static void challenge_for(struct world *w, const char *realm, const char *scope)
{
    script_reply(w->s, "GET /v2/", "{}",
                 "401 U\r\nWWW-Authenticate: Bearer realm=\"%s\",service=\"s\",scope=\"%s\"",
                 script_url(w->s, realm), scope);
}

static void token(struct world *w, const char *match, const char *text)
{
    char body[100];
    snprintf(body, sizeof(body), "{\"token\":\"%s\",\"expires_in\":300}", text);
    script_reply(w->s, match, body, "200 OK");
}

/* One pull of team/app, after which the token server is known. */
static struct world *with_a_token(struct config_upstream c)
{
    struct world *w = world_at(c, "");
    add_challenge(w, "GET", "");
    token(w, "GET /token?", "one");
    gets(w, NAME);
    cr_assert_eq(script_count(w->s), 3);
    return w;
}

Test(oci_words, peer_bug_67_asks_for_a_token_first)
{
    struct world *w = with_a_token((struct config_upstream){.username = NULL});
    token(w, "GET /token?service=s&scope=repository%3Aother%3Apull&", "two");
    gets(w, "other");
    cr_assert(script_saw(w->s, "GET /v2/other/manifests/v1 "));
    cr_assert(script_saw(w->s, "Authorization: Bearer two\r\n"));
    cr_assert_eq(script_count(w->s), 5);
    gets(w, "other");
    cr_assert_eq(script_count(w->s), 6);
    end(w);
}

Test(oci_words, peer_bug_67_a_guess_may_be_wrong)
{
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    struct world *w = with_a_token(c);
    struct manifest m;
    /* Another token server for this one. */
    token(w, "GET /token?", "vain");
    challenge_for(w, "/elsewhere", "repository:b:pull");
    token(w, "GET /elsewhere?", "b");
    gets(w, "b");
    cr_assert_eq(script_count(w->s), 7);
    /* The latest one is asked from then on. A refusal there says nothing of the registry, which may
     * want no token at all ... */
    script_reply(w->s, "GET /elsewhere?", "{}", "401 No");
    gets(w, "open");
    cr_assert_eq(script_count(w->s), 9);
    gets(w, "open");
    cr_assert_eq(script_count(w->s), 10, "it is not guessed again");
    /* ... or another one. A token server that is down is no reason not to ask either. */
    script_reply(w->s, "GET /elsewhere?", "", "500 Oops");
    challenge_for(w, "/token", "repository:d:pull");
    token(w, "GET /token?", "d");
    gets(w, "d");
    /* Refused by the registry with a token that it wanted. */
    token(w, "GET /token?", "e");
    challenge_for(w, "/token", "repository:e:pull");
    expect(w, get_of(w, "e", &m), ERR_DENIED, "refuses the token");
    end(w);
}

Test(oci_words, peer_bug_67_a_refused_login_is_not_tried_twice)
{
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    struct world *w = with_a_token(c);
    struct manifest m;
    script_reply(w->s, "GET /token?", "{}", "401 No");
    challenge_for(w, "/token", "repository:b:pull");
    expect(w, get_of(w, "b", &m), ERR_UPSTREAM, "login to upstream");
    cr_assert_eq(script_count(w->s), 5);
    end(w);
}

/* As the public Elastic Container Registry has it. */
Test(oci_words, peer_bug_67_one_scope_for_all)
{
    struct world *w = world();
    challenge_for(w, "/token", "aws");
    token(w, "GET /token?service=s&scope=aws&", "one");
    gets(w, NAME);
    gets(w, "other");
    cr_assert_eq(script_count(w->s), 4, "the token does for all");
    /* Until the registry wants another one for one of them. */
    challenge_for(w, "/token", "repository:third:pull");
    token(w, "GET /token?service=s&scope=repository%3Athird%3Apull&", "three");
    gets(w, "third");
    token(w, "GET /token?service=s&scope=repository%3Afourth%3Apull&", "four");
    gets(w, "fourth");
    cr_assert_eq(script_count(w->s), 9);
    end(w);
}

Test(oci_words, peer_bug_67_no_guess_from_an_odd_scope)
{
    struct world *w = world();
    challenge_for(w, "/token", "repository:team/app:pull,push");
    token(w, "GET /token?", "one");
    gets(w, NAME);
    gets(w, "other");
    cr_assert_eq(script_count(w->s), 4);
    end(w);
}
