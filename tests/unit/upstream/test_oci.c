#include "oci_world.h"

/* ---- texts ----------------------------------------------------------------------------------- */

Test(oci, cleans_texts)
{
    static const struct {
        const char *text, *clean;
    } cases[] = {
        {"plain", "plain"},
        {"a\nb\tc\x7f", "a b c "},
        {"https://h/p?X-Sig=abc&b=c then", "https://h/p then"},
        {"\"http://u:p@h/p#x\", https://h?q", "\"http://h/p\", https://h"},
        {"https://h?q@h/p", "https://h"},
        {"https://h/a@b", "https://h/a@b"},
        {"ssh://a?b://c?d", "ssh://a"},
        {"\xc3\xa9 \xff", "\xc3\xa9 ?"},
        {"cut \xe2\x82", "cut ??"},
        {"https://h\xff/p?q", "https://h"},
        {"://", "://"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[100];
        snprintf(text, sizeof(text), "%s", cases[i].text);
        oci_clean_text(text);
        cr_assert_str_eq(text, cases[i].clean, "%s", cases[i].text);
    }
}

Test(oci, finds_the_api_behind_the_url)
{
    static const struct {
        const char *path, *url, *scope;
    } cases[] = {
        {"", "/v2/team/app/manifests/v1", "repository:team/app:pull"},
        {"/registry", "/registry/v2/team/app/manifests/v1", "repository:team/app:pull"},
        {"/v2", "/v2/team/app/manifests/v1", "repository:team/app:pull"},
        {"/v2/docker.io", "/v2/docker.io/team/app/manifests/v1",
         "repository:docker.io/team/app:pull"},
        {"/v2x", "/v2x/v2/team/app/manifests/v1", "repository:team/app:pull"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world_at((struct config_upstream){.username = NULL}, cases[i].path);
        _cleanup_free_ char *url = oci_url(w->o, NAME, "manifests", "v1");
        _cleanup_free_ char *scope = oci_scope(w->o, NAME);
        cr_assert_str_eq(url, script_url(w->s, cases[i].url));
        cr_assert_str_eq(scope, cases[i].scope);
        end(w);
    }
}

/* ---- manifests ------------------------------------------------------------------------------- */

Test(oci, gets_a_manifest)
{
    struct world *w = world();
    struct manifest m;
    struct digest d = sha256_of(MANIFEST);
    char text[DIGEST_TEXT_MAX];
    digest_format(&d, text);
    script_reply(w->s, "GET /v2/team/app/manifests/v1 ", MANIFEST,
                 "200 OK\r\nContent-Type: " OCI_IMAGE_TYPE "; charset=utf-8\r\n"
                 "Docker-Content-Digest: %s",
                 text);
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    cr_assert(digest_equal(&m.digest, &d));
    cr_assert_str_eq(m.media_type, OCI_IMAGE_TYPE);
    cr_assert(m.len == strlen(MANIFEST) && memcmp(m.bytes, MANIFEST, m.len) == 0);
    manifest_done(&m);
    static const char *const types[] = {OCI_IMAGE_TYPE, OCI_INDEX_TYPE, OCI_ARTIFACT_TYPE,
                                        DOCKER_IMAGE_TYPE, DOCKER_LIST_TYPE};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        cr_assert(script_saw(w->s, types[i]), "%s", types[i]);

    /* No type, or one that says nothing: the document says it. By digest. */
    static const char *const vague[] = {"X: y", "Content-Type: application/json",
                                        "Content-Type: text/plain; charset=utf-8"};
    for (size_t i = 0; i < ARRAY_LEN(vague); i++) {
        script_reply(w->s, "GET /v2/team/app/manifests/sha256:", MANIFEST, "200 OK\r\n%s",
                     vague[i]);
        cr_assert_eq(oci_get_manifest(w->o, NAME, NULL, &d, 0, &m, &w->err), 1, "%s", w->err.text);
        cr_assert_str_eq(m.media_type, OCI_IMAGE_TYPE);
        manifest_done(&m);
    }
    script_reply(w->s, "GET ", "{}", "404 Not Found");
    cr_assert_eq(get(w, &m), 0);
    end(w);
}

Test(oci, refuses_a_manifest_that_is_none)
{
    static const struct {
        const char *status, *body;
        enum err_code code;
        const char *text;
        bool refuted; /* a lie, and counted */
    } cases[] = {
        {"200 OK", "", ERR_UPSTREAM, "nothing in it", false},
        {"200 OK\r\nContent-Type: text/html", "<html>", ERR_UPSTREAM, "a page (text/html)", false},
        {"200 OK\r\nContent-Type: " OCI_IMAGE_TYPE, "<html>", ERR_UPSTREAM, "sent no manifest",
         true},
        {"200 OK\r\nContent-Type: " OCI_INDEX_TYPE, MANIFEST, ERR_UPSTREAM, "sent no manifest",
         true},
        {"200 OK\r\nContent-Type: image/png", MANIFEST, ERR_UNSUPPORTED, "sent no manifest", false},
        {"200 OK\r\nContent-Type: application/vnd.docker.distribution.manifest.v1+prettyjws", "{}",
         ERR_UNSUPPORTED, "sent no manifest", false},
        {"200 OK\r\nDocker-Content-Digest: " CHILD, MANIFEST, ERR_DIGEST_MISMATCH,
         "not to its Docker-Content-Digest " CHILD, true},
        {"200 OK\r\nDocker-Content-Digest: sha256:zz", MANIFEST, ERR_UPSTREAM,
         "a Docker-Content-Digest that is none: sha256:zz", false},
        {"203 Hm", MANIFEST, ERR_UPSTREAM, "answered 203", false},
        {"206 Part", MANIFEST, ERR_UPSTREAM, "answered 206", false},
        {"307 Redirect", "", ERR_UPSTREAM, "answered 307 without a Location", false},
        {"307 Redirect\r\nLocation: ftp://h/x", "", ERR_UPSTREAM, "no http or https URL", false},
        {"400 Bad", "not JSON <b>", ERR_UPSTREAM, "answered 400", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world();
        struct manifest m;
        script_reply(w->s, "GET ", cases[i].body, "%s", cases[i].status);
        expect(w, get(w, &m), cases[i].code, cases[i].text);
        cr_assert_eq(oci_refuted(w->o), cases[i].refuted, "%s", cases[i].status);
        cr_assert_eq(script_count(w->s), 1);
        end(w);
    }
}

Test(oci, refuses_other_bytes_than_asked_for)
{
    struct world *w = world();
    struct manifest m;
    struct digest d = digest_at(CHILD);
    script_reply(w->s, "GET ", MANIFEST, "200 OK");
    expect(w, oci_get_manifest(w->o, NAME, NULL, &d, 0, &m, &w->err), ERR_DIGEST_MISMATCH,
           "not to the " CHILD);
    script_add(w->s, "GET ", "HTTP/1.1 204 No Content\r\n\r\n", SCRIPT_KEEP);
    expect(w, get(w, &m), ERR_UPSTREAM, "answered 204");
    end(w);
}

/* Distribution answers for sha512 with a sha256: another algorithm is no contradiction, as long as
 * it is right. */
Test(oci, knows_digests_of_both_algorithms)
{
    struct world *w = world();
    struct manifest m;
    struct digest d, sha256 = sha256_of(MANIFEST);
    char text[DIGEST_TEXT_MAX];
    cr_assert_eq(digest_of(DIGEST_SHA512, MANIFEST, strlen(MANIFEST), &d, NULL), 0);
    script_reply(w->s, "GET /v2/team/app/manifests/sha512:", MANIFEST,
                 "200 OK\r\nDocker-Content-Digest: %s", digest_format(&sha256, text));
    cr_assert_eq(oci_get_manifest(w->o, NAME, NULL, &d, 0, &m, &w->err), 1, "%s", w->err.text);
    cr_assert(digest_equal(&m.digest, &d));
    manifest_done(&m);
    script_reply(w->s, "GET /v2/team/app/manifests/v1", MANIFEST,
                 "200 OK\r\nDocker-Content-Digest: %s", digest_format(&d, text));
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    cr_assert(digest_equal(&m.digest, &sha256));
    manifest_done(&m);
    script_reply(w->s, "GET ", MANIFEST, "200 OK\r\nDocker-Content-Digest: blake3:abcd");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    end(w);
}

Test(oci, bounds_a_manifest)
{
    struct world *w = world();
    struct manifest m;
    struct oci_head h;
    script_add(w->s, "GET ", "HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n", SCRIPT_STALL);
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "HTTP/1.1 200 OK\r\n\r\n");
    size_t head_len = b.len;
    cr_assert(strbuf_reserve(&b, OCI_MANIFEST_MAX + 1));
    memset(b.data + head_len, ' ', OCI_MANIFEST_MAX + 1);
    strbuf_advance(&b, OCI_MANIFEST_MAX + 1);
    script_add_bytes(w->s, "GET ", b.data, b.len, SCRIPT_CLOSE);
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: %u", OCI_MANIFEST_MAX + 1);
    w->err = ERROR_INIT;
    uint64_t start = clock_monotonic_ms();
    expect(w, oci_get_manifest(w->o, NAME, "v1", NULL, start + 300, &m, &w->err), ERR_TIMEOUT,
           "in the time that was left");
    end(w);

    w = world();
    script_add_bytes(w->s, "GET ", b.data, b.len, SCRIPT_CLOSE);
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: %u", OCI_MANIFEST_MAX + 1);
    expect(w, get(w, &m), ERR_TOO_LARGE, "larger than");
    expect(w, head(w, &h), ERR_TOO_LARGE, "are the most");
    end(w);
}

Test(oci, asks_for_a_tag_by_head)
{
    struct world *w = world();
    struct oci_head h;
    struct digest d = digest_at(CHILD);
    script_reply(w->s, "HEAD /v2/team/app/manifests/v1 ", NULL,
                 "200 OK\r\nContent-Length: 17\r\nContent-Type: " OCI_INDEX_TYPE "; q=1\r\n"
                 "Docker-Content-Digest: " CHILD);
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    cr_assert(digest_equal(&h.digest, &d) && h.size == 17);
    cr_assert_str_eq(h.media_type, OCI_INDEX_TYPE);
    script_add(w->s, "HEAD ", "HTTP/1.1 304 Not Modified\r\n\r\n", SCRIPT_KEEP);
    cr_assert_eq(oci_head_manifest(w->o, NAME, "v1", &d, 0, &h, &w->err), 1, "%s", w->err.text);
    cr_assert(digest_equal(&h.digest, &d));
    cr_assert(script_saw(w->s, "If-None-Match: \"" CHILD "\"\r\n"));
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 5");
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    cr_assert_eq(h.digest.alg, DIGEST_NONE);
    script_reply(w->s, "HEAD ", NULL, "404 Not Found\r\nContent-Length: 5");
    cr_assert_eq(head(w, &h), 0);

    script_add(w->s, "HEAD ", "HTTP/1.1 304 Not Modified\r\n\r\n", SCRIPT_KEEP);
    expect(w, head(w, &h), ERR_UPSTREAM, "answered 304");
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 5\r\nContent-Type: text/html");
    expect(w, head(w, &h), ERR_UPSTREAM, "a page (text/html)");
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nDocker-Content-Digest: v1");
    expect(w, head(w, &h), ERR_UPSTREAM, "that is none");

    /* A registry that knows no HEAD. */
    script_reply(w->s, "HEAD ", NULL, "405 No\r\nContent-Length: 0");
    script_reply(w->s, "GET ", MANIFEST, "200 OK");
    d = sha256_of(MANIFEST);
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    cr_assert(digest_equal(&h.digest, &d) && h.size == strlen(MANIFEST));
    cr_assert_str_eq(h.media_type, OCI_IMAGE_TYPE);
    end(w);
}

/* ---- failures -------------------------------------------------------------------------------- */

Test(oci, says_what_the_registry_said)
{
    struct world *w = world();
    struct manifest m;
    script_reply(
        w->s, "GET ",
        "{\"errors\":[{\"code\":\"X\",\"message\":\"see\\n https://u:p@cdn/x?sig=abc now\"},"
        "{\"code\":\"Y\"}]}",
        "418 Teapot");
    expect(w, get(w, &m), ERR_UPSTREAM, "answered 418: see  https://cdn/x now");
    end(w);
}

Test(oci, tries_a_passing_failure_twice)
{
    struct config_upstream c = {.retries = 5};
    struct world *w = world_at(c, "");
    struct manifest m;
    script_add(w->s, "GET ", "", SCRIPT_RESET);
    script_reply(w->s, "GET ", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    script_reply(w->s, "GET ", "", "503 Later");
    script_reply(w->s, "GET ", "", "502 Bad");
    expect(w, get(w, &m), ERR_UPSTREAM, "answered 502");
    cr_assert_eq(script_count(w->s), 4);
    end(w);
}

Test(oci, peer_bug_63_asks_nothing_until_retry_after_has_passed)
{
    struct world *w = world();
    struct manifest m;
    struct oci_head h;
    struct http_location l;
    struct digest d = digest_at(CHILD);
    script_reply(w->s, "GET ", "{\"errors\":[{\"message\":\"slow down\"}]}",
                 "429 Too Many\r\nRetry-After: 90");
    expect(w, get(w, &m), ERR_RATE_LIMITED, "slow down");
    cr_assert_eq(w->err.retry_after, 90);
    expect(w, head(w, &h), ERR_UPSTREAM, "slow down");
    cr_assert_gt(w->err.retry_after, 80);
    expect(w, oci_blob_location(w->o, NAME, &d, &l, &w->err), ERR_UPSTREAM, "slow down");
    cr_assert_eq(script_count(w->s), 1);
    struct breaker_stats stats;
    oci_breaker_stats(w->o, &stats);
    cr_assert(stats.state == BREAKER_OPEN && stats.opened == 1 && stats.refused == 2);
    atomic_store(&skew_s, 91);
    script_reply(w->s, "GET ", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    end(w);
}

Test(oci, leaves_a_dead_upstream_alone)
{
    struct config_upstream c = {.breaker_failures = 2};
    struct world *w = world_at(c, "");
    struct manifest m;
    for (int i = 0; i < 2; i++) {
        script_reply(w->s, "GET ", "", "500 Oops");
        expect(w, get(w, &m), ERR_UPSTREAM, "answered 500");
    }
    expect(w, get(w, &m), ERR_UPSTREAM, "hub.test is not asked");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

/* ---- redirects ------------------------------------------------------------------------------- */

Test(oci, peer_bug_72_sends_no_credential_to_another_origin)
{
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    struct world *w = world_at(c, "");
    struct script *cdn = script_start();
    struct oci_head h;
    script_reply(w->s, "HEAD ", NULL,
                 "401 U\r\nContent-Length: 0\r\nWWW-Authenticate: Basic realm=\"x\"");
    script_reply(w->s, "HEAD ", NULL, "307 There\r\nContent-Length: 0\r\nLocation: %s",
                 script_url(cdn, "/signed?sig=a%2Fb"));
    script_reply(cdn, "HEAD /signed?sig=a%2Fb ", NULL, "200 OK\r\nContent-Length: 3");
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    cr_assert_eq(h.size, 3);
    cr_assert(script_saw(w->s, "Authorization: Basic "));
    cr_assert_not(script_saw(cdn, "uthorization"));

    /* What the other host refuses is no answer of the registry's. */
    static const char *const statuses[] = {"401 U", "403 F", "404 N"};
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        script_reply(w->s, "HEAD ", NULL, "307 There\r\nContent-Length: 0\r\nLocation: %s",
                     script_url(cdn, "/signed?sig=xyz"));
        script_reply(cdn, "HEAD ", NULL, "%s\r\nContent-Length: 0", statuses[i]);
        expect(w, head(w, &h), ERR_UPSTREAM, "answered 40");
        cr_assert_null(strstr(w->err.text, "xyz"), "%s", w->err.text);
    }
    /* But another registry's is, to which it leaves its API. */
    script_reply(w->s, "HEAD ", NULL, "307 There\r\nContent-Length: 0\r\nLocation: %s",
                 script_url(cdn, "/v2/prod/team/app/manifests/v1"));
    script_reply(cdn, "HEAD ", NULL, "404 N\r\nContent-Length: 0");
    cr_assert_eq(head(w, &h), 0);
    script_stop(cdn);
    end(w);
}

Test(oci, peer_bug_72_follows_five_redirects)
{
    struct world *w = world();
    struct oci_head h;
    for (int i = 0; i < 5; i++)
        script_reply(w->s, "HEAD ", NULL, "302 Found\r\nContent-Length: 0\r\nLocation: /hop%d", i);
    script_reply(w->s, "HEAD /hop4 ", NULL, "200 OK\r\nContent-Length: 3");
    cr_assert_eq(head(w, &h), 1, "%s", w->err.text);
    for (int i = 0; i < 6; i++)
        script_reply(w->s, "HEAD ", NULL, "302 Found\r\nContent-Length: 0\r\nLocation: /hop%d", i);
    expect(w, head(w, &h), ERR_UPSTREAM, "more than 5 redirects");
    end(w);
}

/* ---- logging in ------------------------------------------------------------------------------ */

Test(oci, peer_bug_66_gets_a_new_token_when_the_old_one_is_refused)
{
    struct world *w = world();
    struct manifest m;
    add_challenge(w, "GET", "");
    script_reply(w->s, "GET /token?", "{\"token\":\"one\",\"expires_in\":300}", "200 OK");
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    cr_assert(script_saw(w->s, "Authorization: Bearer one\r\n"));
    /* Peer bug 67: the challenge is known from here on. */
    unsigned before = script_count(w->s);
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    cr_assert_eq(script_count(w->s), before + 1);
    /* Revoked before its time, however young it is. */
    add_challenge(w, "GET", ",error=\"invalid_token\"");
    script_reply(w->s, "GET /token?", "{\"access_token\":\"two\",\"expires_in\":60}", "200 OK");
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    cr_assert(script_saw(w->s, "Authorization: Bearer two\r\n"));
    /* Peer bug 74: run out, so that it is not even tried. */
    atomic_store(&skew_s, 200);
    before = script_count(w->s);
    script_reply(w->s, "GET /token?", "{\"token\":\"three\"}", "200 OK");
    script_reply(w->s, "GET /v2/", MANIFEST, "200 OK");
    cr_assert_eq(get(w, &m), 1, "%s", w->err.text);
    manifest_done(&m);
    cr_assert_eq(script_count(w->s), before + 2);
    end(w);
}

Test(oci, tells_a_refused_repository_from_a_refused_login)
{
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    struct world *w = world_at(c, "");
    struct manifest m;
    /* The login worked, and the registry refuses its token. */
    add_challenge(w, "GET", "");
    script_reply(w->s, "GET /token?", "{\"token\":\"one\",\"expires_in\":300}", "200 OK");
    add_challenge(w, "GET", ",error=\"insufficient_scope\"");
    expect(w, get(w, &m), ERR_DENIED, "our login may not read it");
    script_reply(w->s, "GET /v2/", "{\"errors\":[{\"message\":\"not you\"}]}", "403 Forbidden");
    expect(w, get(w, &m), ERR_DENIED, "not you");
    /* A page that somebody on the way put up. */
    script_reply(w->s, "GET /v2/", "<html>", "403 Forbidden\r\nContent-Type: text/html");
    expect(w, get(w, &m), ERR_UPSTREAM, "answered 403");
    /* A credential that has run out, said with a 403. */
    script_reply(w->s, "GET /v2/", "Your Authorization Token has expired.", "403 Forbidden");
    expect(w, get(w, &m), ERR_UPSTREAM, "login to upstream hub.test");
    end(w);

    w = world_at(c, "");
    add_challenge(w, "GET", "");
    script_reply(w->s, "GET /token?", "{}", "401 No");
    expect(w, get(w, &m), ERR_UPSTREAM, "login to upstream hub.test");
    end(w);

    w = world_at(c, ""); /* Basic */
    for (int i = 0; i < 2; i++)
        script_reply(w->s, "GET ", "", "401 U\r\nWWW-Authenticate: Basic realm=\"x\"");
    expect(w, get(w, &m), ERR_UPSTREAM, "login to upstream hub.test");
    end(w);

    w = world_at(c, ""); /* a token server that is down */
    add_challenge(w, "GET", "");
    script_reply(w->s, "GET /token?", "", "500 Oops");
    expect(w, get(w, &m), ERR_UPSTREAM, "login to upstream hub.test");
    end(w);

    w = world(); /* nothing that could have been refused */
    add_challenge(w, "GET", "");
    script_reply(w->s, "GET /token?", "{}", "403 No");
    expect(w, get(w, &m), ERR_UNAUTHORIZED, "the token server");
    end(w);
}

Test(oci, gives_up_on_a_registry_that_is_never_content)
{
    struct world *w = world();
    struct manifest m;
    for (int i = 0; i < 4; i++) {
        script_reply(w->s, "GET /v2/", "{}",
                     "401 U\r\nWWW-Authenticate: Bearer realm=\"%s\",scope=\"s%d\"",
                     script_url(w->s, "/token"), i);
        script_reply(w->s, "GET /token?", "{\"token\":\"t\"}", "200 OK");
    }
    w->err = ERROR_INIT;
    int rc = get(w, &m);
    cr_assert_eq(rc, -1);
    cr_assert_leq(script_count(w->s), 6);
    end(w);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static int head_blob(struct world *w, uint64_t *ret)
{
    struct digest d = digest_at(CHILD);
    w->err = ERROR_INIT;
    return oci_head_blob(w->o, NAME, &d, ret, &w->err);
}

Test(oci, asks_for_a_blob)
{
    struct world *w = world();
    uint64_t size = 0;
    script_reply(w->s, "HEAD /v2/team/app/blobs/" CHILD " ", NULL,
                 "200 OK\r\nContent-Length: 8589934592");
    cr_assert_eq(head_blob(w, &size), 1, "%s", w->err.text);
    cr_assert_eq(size, 8589934592u);
    script_reply(w->s, "HEAD ", NULL, "404 Not Found\r\nContent-Length: 0");
    cr_assert_eq(head_blob(w, &size), 0);
    script_reply(w->s, "HEAD ", NULL,
                 "200 OK\r\nContent-Length: 1\r\nDocker-Content-Digest: "
                 "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(w, head_blob(w, &size), ERR_DIGEST_MISMATCH, "the answer is about sha256:ba78");
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 1\r\nContent-Type: text/html");
    expect(w, head_blob(w, &size), ERR_UPSTREAM, "a page");
    end(w);
}

Test(oci, asks_for_one_byte_where_head_says_nothing)
{
    static const struct {
        const char *answer;
        int rc;
        uint64_t size;
    } cases[] = {
        {"206 Part\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/1234", 1, 1234},
        {"200 OK\r\nContent-Length: 4294967296", 1, 4294967296},
        {"200 OK\r\nContent-Length: 1", 1, 1},
        {"416 No\r\nContent-Length: 0\r\nContent-Range: bytes */0", 1, 0},
        {"404 No\r\nContent-Length: 0", 0, 0},
        {"416 No\r\nContent-Length: 0\r\nContent-Range: bytes */5", -1, 0},
        {"206 Part\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/*", -1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world();
        uint64_t size = 0;
        char text[512];
        script_reply(w->s, "HEAD ", NULL, "405 No\r\nContent-Length: 0");
        snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n\r\n%s", cases[i].answer,
                 cases[i].answer[0] == '2' ? "x" : "");
        script_add(w->s, "GET /v2/team/app/blobs/" CHILD " ", text, SCRIPT_STALL);
        cr_assert_eq(head_blob(w, &size), cases[i].rc, "%s: %s", cases[i].answer, w->err.text);
        cr_assert_eq(size, cases[i].size);
        cr_assert(script_saw(w->s, "Range: bytes=0-0\r\n"));
        end(w);
    }
}

Test(oci, locates_a_blob_without_asking)
{
    struct config_upstream c = {.username = (char *)"me", .password = (char *)SECRET};
    struct world *w = world_at(c, "");
    struct http_location l = {0};
    struct digest d = digest_at(CHILD);
    cr_assert_eq(oci_blob_location(w->o, NAME, &d, &l, &w->err), 0, "%s", w->err.text);
    cr_assert_str_eq(l.url, script_url(w->s, "/v2/team/app/blobs/" CHILD));
    cr_assert(!l.authorization && !l.bearer);
    cr_assert_eq(script_count(w->s), 0);
    http_location_done(&l);

    uint64_t size;
    add_challenge(w, "HEAD", "");
    script_reply(w->s, "GET /token?", "{\"token\":\"one\",\"expires_in\":300}", "200 OK");
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 3");
    cr_assert_eq(head_blob(w, &size), 1, "%s", w->err.text);
    cr_assert_eq(oci_blob_location(w->o, NAME, &d, &l, &w->err), 0, "%s", w->err.text);
    cr_assert_str_eq(l.authorization, "Bearer one");
    http_location_done(&l);
    end(w);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void expect_tags(struct world *w, const char *const *want)
{
    struct name_list l = {0};
    size_t n = 0;
    w->err = ERROR_INIT;
    cr_assert_eq(oci_tags(w->o, NAME, &l, &w->err), 1, "%s", w->err.text);
    for (; want[n]; n++) {
        cr_assert_lt(n, l.n);
        cr_assert_str_eq(l.names[n], want[n]);
    }
    cr_assert_eq(l.n, n);
    name_list_done(&l);
}

Test(oci, lists_tags)
{
    struct world *w = world();
    struct name_list l;
    script_reply(w->s, "GET /v2/team/app/tags/list?n=1000 ",
                 "{\"name\":\"x\",\"tags\":[\"b\",\"a\",\"\\u00e9\",7,\"a\"]}",
                 "200 OK\r\nLink: </v2/team/app/tags/list?n=1000&last=b>; rel=\"next\"");
    script_reply(w->s, "GET /v2/team/app/tags/list?n=1000&last=b ", "{\"tags\":[\"B\"]}", "200 OK");
    expect_tags(w, (const char *const[]){"B", "a", "b", NULL});
    script_reply(w->s, "GET ", "{\"tags\":null}", "200 OK");
    expect_tags(w, (const char *const[]){NULL});
    script_reply(w->s, "GET ", "{}", "404 Not Found");
    cr_assert_eq(oci_tags(w->o, NAME, &l, &w->err), 0);

    static const struct {
        const char *status, *body, *text;
    } cases[] = {
        {"200 OK", "[]", "no list of tags"},
        {"200 OK", "{\"tags\":{}}", "no list of tags"},
        {"200 OK", "", "nothing in it"},
        {"200 OK", "{", "/v2/team/app/tags/list: "},
        {"200 OK\r\nContent-Type: text/html", "<html>", "a page"},
        {"200 OK\r\nLink: <http://127.0.0.1:1/x>; rel=next", "{}",
         "not its own, on http://127.0.0.1:1/x"},
        {"200 OK\r\nLink: <?n=1000>; rel=next", "{}", "in a circle: page 1 "},
        {"206 OK", "{}", "answered 206"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        script_reply(w->s, "GET ", cases[i].body, "%s", cases[i].status);
        w->err = ERROR_INIT;
        expect(w, oci_tags(w->o, NAME, &l, &w->err), ERR_UPSTREAM, cases[i].text);
    }
    end(w);
}

Test(oci, ends_a_list_that_does_not)
{
    struct world *w = world();
    struct name_list l;
    struct script_step *step;
    step = script_add(w->s, "GET /v2/team/app/tags/list?n=1000 ",
                      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLink: <?a>; rel=next\r\n\r\n{}",
                      SCRIPT_KEEP);
    step->forever = true;
    script_add(w->s, "GET /v2/team/app/tags/list?a ",
               "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLink: <?n=1000>; rel=next\r\n\r\n{}",
               SCRIPT_KEEP)
        ->forever = true;
    expect(w, oci_tags(w->o, NAME, &l, &w->err), ERR_UPSTREAM,
           "its pages lead in a circle: page 2 names one that was there before");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

#define REFERRER(digest, more)                                                                     \
    "{\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"size\":7,\"digest\":\"" digest "\"" more "}"
#define OTHER "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static int referrers(struct world *w, struct referrer_list *ret)
{
    struct digest d = digest_at(CHILD);
    w->err = ERROR_INIT;
    return oci_referrers(w->o, NAME, &d, ret, &w->err);
}

Test(oci, peer_bug_85_lists_referrers)
{
    struct world *w = world();
    struct referrer_list l = {0};
    script_reply(w->s, "GET /v2/team/app/referrers/" CHILD " ",
                 "{\"manifests\":[" REFERRER(
                     OTHER, ",\"artifactType\":\"a/b\",\"annotations\":"
                            "{\"k\":\"v\\\"\"}") ",{\"mediaType\":\"x/y\",\"size\":1,"
                                                 "\"digest\":\"blake3:00\"}]}",
                 "200 OK\r\nLink: <?last=x>; rel=next");
    script_reply(w->s, "GET /v2/team/app/referrers/" CHILD "?last=x ",
                 "{\"manifests\":[" REFERRER(CHILD, "") "," REFERRER(OTHER, "") "]}", "200 OK");
    cr_assert_eq(referrers(w, &l), 1, "%s", w->err.text);
    cr_assert_eq(l.n, 2);
    struct digest first = digest_at(CHILD), second = digest_at(OTHER);
    cr_assert(digest_equal(&l.items[0].digest, &first) && l.items[0].annotations == NULL);
    cr_assert(digest_equal(&l.items[1].digest, &second) && l.items[1].size == 7);
    cr_assert_str_eq(l.items[0].artifact_type, "");
    referrer_list_done(&l);

    script_reply(w->s, "GET ", "{\"manifests\":[]}", "200 OK");
    cr_assert_eq(referrers(w, &l), 0, "%s", w->err.text);
    referrer_list_done(&l);

    /* No such API: the tag that stands in for it. */
    script_reply(w->s, "GET /v2/team/app/referrers/", "404 page not found", "404 Not Found");
    script_reply(w->s,
                 "GET /v2/team/app/manifests/sha256-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822"
                 "cd15d6c15b0f00a08 ",
                 "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX_TYPE
                 "\",\"manifests\":[" REFERRER(OTHER, ",\"annotations\":{\"k\":\"v\\\"\"}") "]}",
                 "200 OK");
    cr_assert_eq(referrers(w, &l), 1, "%s", w->err.text);
    cr_assert_eq(l.n, 1);
    cr_assert_str_eq(l.items[0].annotations, "{\"k\":\"v\\\"\"}");
    referrer_list_done(&l);
    script_reply(w->s, "GET /v2/team/app/referrers/", "", "404 Not Found");
    script_reply(w->s, "GET /v2/team/app/manifests/", UNKNOWN, "404 Not Found");
    cr_assert_eq(referrers(w, &l), 0, "%s", w->err.text);
    /* Not the registry's word: what is known of them stays. */
    script_reply(w->s, "GET /v2/team/app/referrers/", "", "404 Not Found");
    script_reply(w->s, "GET /v2/team/app/manifests/", "", "404 Not Found");
    expect(w, referrers(w, &l), ERR_UPSTREAM, "not in a registry's words");
    end(w);
}

Test(oci, refuses_broken_referrers)
{
    static const char *const cases[] = {
        "7",
        "{}",
        "{\"manifests\":{}}",
        "{\"manifests\":[7]}",
        "{\"manifests\":[{}]}",
        "{\"manifests\":[" REFERRER("sha256:00", "") "]}",
        "{\"manifests\":[" REFERRER(OTHER, ",\"artifactType\":7") "]}",
        "{\"manifests\":[" REFERRER(OTHER, ",\"annotations\":{\"a\":7}") "]}",
        "{\"manifests\":[" REFERRER(OTHER, ",\"annotations\":\"a\"") "]}",
        "{\"manifests\":[{\"mediaType\":\"a b\",\"size\":1,\"digest\":\"" OTHER "\"}]}",
        "{\"manifests\":[{\"mediaType\":\"a/b\",\"size\":-1,\"digest\":\"" OTHER "\"}]}",
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct oci_referrers_build b = {0};
        struct error err = ERROR_INIT;
        cr_assert_eq(oci_referrers_page(&b, cases[i], strlen(cases[i]), &err), -1, "%s", cases[i]);
        cr_assert_eq(err.code, ERR_UPSTREAM, "%s", cases[i]);
        oci_referrers_build_done(&b);
    }
}
