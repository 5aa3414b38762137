/* A Hub that limits, is down, or is slow. */
#include "base/clock.h"
#include "hub_env.h"

/* ---- pure parts ------------------------------------------------------------------------------ */

Test(hub_limits, reads_the_headers)
{
#define NO UINT64_MAX
    static const struct {
        const char *text;
        bool is_known;
        enum hub_bucket bucket;
        uint64_t left, ends_s, quota;
    } cases[] = {
        {"\"api\";r=12;t=30", true, HUB_API, 12, 30, NO},
        {"  \"resolvers\" ; r=0 ; t=300 ", true, HUB_RESOLVERS, 0, 300, NO},
        {"\"fixed window\";\"pages\";q=100;w=300", true, HUB_PAGES, NO, NO, 100},
        {"\"api\";t=5;r=1", true, HUB_API, 1, 5, NO},
        {"\"api\"", true, HUB_API, NO, NO, NO},
        {"\"api\";r=-1;t=30", true, HUB_API, NO, 30, NO},
        {"\"api\";r=1.5;t=", true, HUB_API, NO, NO, NO},
        {"\"api\";r=99999999999999999999999;t=1x", true, HUB_API, NO, NO, NO},
        {"\"other\";r=0;t=30", false, 0, 0, 0, 0},
        {"api;r=0;t=30", false, 0, 0, 0, 0},
        {"\"api;r=0;t=30", false, 0, 0, 0, 0},
        {"", false, 0, 0, 0, 0},
        {";;;", false, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *p = cases[i].text;
        struct hub_limit l;
        cr_assert_eq(hub_limit_parse(&p, &l), cases[i].is_known, "%s", cases[i].text);
        cr_assert_str_empty(p);
        if (cases[i].is_known)
            cr_assert(l.bucket == cases[i].bucket && l.left == cases[i].left &&
                          l.ends_s == cases[i].ends_s && l.quota == cases[i].quota,
                      "%s", cases[i].text);
    }
    struct hub_limit l;
    const char *list = "\"x\";r=0, \"api\";r=3;t=4,\"pages\";r=5;t=6";
    cr_assert_not(hub_limit_parse(&list, &l));
    cr_assert(hub_limit_parse(&list, &l) && l.bucket == HUB_API && l.left == 3 && l.ends_s == 4);
    cr_assert(hub_limit_parse(&list, &l) && l.bucket == HUB_PAGES && l.left == 5);
    cr_assert_str_empty(list);
}

Test(hub_limits, tells_buckets_apart)
{
    static const struct {
        const char *base, *url;
        enum hub_bucket bucket;
    } cases[] = {
        {"https://h", "https://h/api/models/o/m", HUB_API},
        {"https://h", "https://h/api/resolve-cache/models/o/m/c/f", HUB_RESOLVERS},
        {"https://h", "https://h/o/m/resolve/main/f", HUB_RESOLVERS},
        {"https://h", "https://h/o/m/raw/main/f", HUB_RESOLVERS},
        {"https://h", "https://h/o/m", HUB_PAGES},
        {"https://h/hf", "https://h/hf/api/models/o/m", HUB_API},
        {"https://h/hf", "https://h/api/resolve-cache/x", HUB_RESOLVERS},
        {"https://h", "https://h", HUB_PAGES},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_assert_eq(hub_bucket_of(cases[i].base, cases[i].url), cases[i].bucket, "%s",
                     cases[i].url);
}

/* ---- a Hub that limits ----------------------------------------------------------------------- */

/* One request for the refs of o/m, by whoever h asks for, against one answer. */
static int refs(struct env *e, struct hub *h, const char *answer)
{
    struct hub_ref *found = NULL;
    size_t n;
    if (answer)
        script_reply(e->hub, "GET /api/models/o/m/refs ", "{\"branches\":[]}", "%s", answer);
    int rc = hub_refs(h, "o/m", false, &found, &n, &e->err);
    free(found);
    return rc;
}

static int small(struct env *e, struct hub *h)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct commit_file f = {.path = "f", .size = 6, .git_oid = HELLO_OID};
    script_reply(e->hub, "GET " RESOLVE "f ", "hello\n", "200 OK\r\nX-Repo-Commit: " COMMIT);
    return hub_small_file(h, "o/m", COMMIT, &f, &b, &e->err);
}

Test(hub_limits, stops_before_the_hub_says_no)
{
    struct env *e = env_new("s3cret", 0);
    struct breaker_stats stats;
    worked(e, refs(e, e->h, "200 OK\r\nRateLimit: \"api\";r=0;t=55"));
    unsigned before = script_count(e->hub);
    cr_assert(refs(e, e->h, NULL) < 0);
    cr_assert(e->err.retry_after > 50 && e->err.retry_after <= 55, "%u", e->err.retry_after);
    failed(e, -1, ERR_RATE_LIMITED,
           "hf: no request of the kind \"api\" is left with the "
           "configured token; none is sent for the next 5");
    cr_assert_eq(script_count(e->hub), before);
    /* another bucket, and whoever else is asking, have their own */
    worked(e, small(e, e->h));
    struct hub *client = hub_as(e->h, &(struct hub_asking){.has_token = true, .token = "client1"});
    struct hub *nobody = hub_as(e->h, &(struct hub_asking){.has_token = true});
    worked(e, refs(e, client, "200 OK"));
    worked(e, refs(e, nobody, "200 OK\r\nRateLimit: \"api\";r=0;t=55"));
    failed(e, refs(e, nobody, NULL), ERR_RATE_LIMITED, "left without a token");
    worked(e, refs(e, client, "200 OK\r\nRateLimit: \"api\";r=0;t=0"));
    worked(e, refs(e, client, "200 OK"));
    hub_breaker_stats(e->h, &stats);
    cr_assert(stats.state == BREAKER_CLOSED && stats.opened == 0);
    hub_free(client);
    hub_free(nobody);
    env_free(e);
}

Test(hub_limits, obeys_a_429)
{
    struct env *e = env_new(NULL, 2);
    struct breaker_stats stats;
    cr_assert(refs(e, e->h, "429 T\r\nRetry-After: 44") < 0);
    cr_assert_eq(e->err.retry_after, 44);
    failed(e, -1, ERR_RATE_LIMITED, "answered 429, try again in 44 s");
    failed(e, refs(e, e->h, NULL), ERR_RATE_LIMITED,
           "until the Hub counts anew (an account's token has a larger quota)");
    cr_assert_eq(script_count(e->hub), 1);
    struct hub *client = hub_as(e->h, &(struct hub_asking){.has_token = true, .token = "client1"});
    failed(e, refs(e, client, "429 T\r\nRetry-After: 99999"), ERR_RATE_LIMITED, "429");
    cr_assert(refs(e, client, NULL) < 0);
    cr_assert(e->err.retry_after > HUB_LIMIT_WAIT_MAX_S - 20 &&
              e->err.retry_after <= HUB_LIMIT_WAIT_MAX_S);
    e->err = ERROR_INIT;
    hub_breaker_stats(e->h, &stats);
    cr_assert(stats.state == BREAKER_CLOSED && stats.opened == 0);
    hub_free(client);
    env_free(e);
}

Test(hub_limits, keeps_some_for_what_is_not_here)
{
    struct env *e = env_new(NULL, 0);
    struct hub *spare = hub_as(e->h, &(struct hub_asking){.spare = true});
    worked(e, refs(e, e->h,
                   "200 OK\r\nRateLimit: \"api\";r=26;t=55\r\nRateLimit-Policy: \"fixed "
                   "window\";\"api\";q=500;w=300"));
    worked(e, refs(e, spare, "200 OK\r\nRateLimit: \"api\";r=25;t=55"));
    failed(e, refs(e, spare, NULL), ERR_RATE_LIMITED,
           "hf: 25 requests of the kind \"api\" are left without a token for the next");
    worked(e, refs(e, e->h, "200 OK\r\nRateLimit: \"api\";r=24;t=54"));
    /* an older answer that was overtaken brings nothing back; the next window does */
    worked(e, refs(e, e->h, "200 OK\r\nRateLimit: \"api\";r=30;t=54"));
    failed(e, refs(e, spare, NULL), ERR_RATE_LIMITED, "24 requests");
    worked(e, refs(e, e->h, "200 OK\r\nRateLimit: \"api\";r=499;t=300"));
    worked(e, refs(e, spare, "200 OK"));
    hub_free(spare);
    env_free(e);
}

Test(hub_limits, forgets_clients_before_itself)
{
    struct hub_limits *l = hub_limits_new();
    struct http_response *none = NULL;
    struct env *e = env_new(NULL, 0);
    struct http_request q = {.method = "GET", .url = script_url(e->hub, "/x")};
    struct error err = ERROR_INIT;
    const struct hub_identity us = {.token = "ours", .is_ours = true}, anybody = {0};
    script_reply(e->hub, "GET /x ", "", "200 OK\r\nRateLimit: \"api\";r=0;t=100000000");
    cr_assert_eq(http_perform(hub_pool(e->h), &q, &none, &err), 0);
    hub_limits_note(l, &us, HUB_API, 1000, none);
    hub_limits_note(l, &anybody, HUB_API, 1001, none);
    for (unsigned i = 0; i < 500; i++) {
        char token[32];
        snprintf(token, sizeof(token), "client%u", i);
        const struct hub_identity client = {.token = token};
        hub_limits_note(l, &client, HUB_API, 1100 + i, none);
        cr_assert(hub_limits_check(l, &client, HUB_API, false, 1100 + i, "hf", &err) < 0);
        cr_assert_eq(err.retry_after, HUB_LIMIT_WAIT_MAX_S);
    }
    const struct hub_identity first = {.token = "client0"};
    cr_assert_eq(hub_limits_check(l, &first, HUB_API, false, 2000, "hf", &err), 0);
    cr_assert(hub_limits_check(l, &us, HUB_API, false, 2000, "hf", &err) < 0);
    cr_assert(hub_limits_check(l, &anybody, HUB_API, false, 2000, "hf", &err) < 0);
    cr_assert_eq(hub_limits_check(l, &us, HUB_PAGES, false, 2000, "hf", &err), 0);
    cr_assert_eq(
        hub_limits_check(l, &us, HUB_API, false, 1000 + HUB_LIMIT_WAIT_MAX_S * 1000, "hf", &err),
        0);
    http_response_free(none);
    hub_limits_free(l);
    env_free(e);
}

/* ---- a Hub that is down, or slow ------------------------------------------------------------- */

static enum breaker_state state(struct env *e)
{
    struct breaker_stats stats;
    hub_breaker_stats(e->h, &stats);
    return stats.state;
}

Test(hub_limits, leaves_a_broken_hub_alone)
{
    struct env *e = env_new(NULL, 0);
    for (unsigned i = 0; i < 5; i++)
        failed(e, refs(e, e->h, "500 E"), ERR_UPSTREAM, "answered 500");
    unsigned before = script_count(e->hub);
    cr_assert(refs(e, e->h, NULL) < 0);
    cr_assert_gt(e->err.retry_after, 0);
    failed(e, -1, ERR_UPSTREAM, "hf is not asked for the next");
    cr_assert_eq(script_count(e->hub), before);
    cr_assert_neq(state(e), BREAKER_CLOSED);
    env_free(e);

    e = env_new(NULL, 0); /* it says itself how long */
    failed(e, refs(e, e->h, "503 B\r\nRetry-After: 33"), ERR_UPSTREAM, "answered 503");
    cr_assert(refs(e, e->h, NULL) < 0);
    cr_assert(e->err.retry_after > 30 && e->err.retry_after <= 33);
    failed(e, -1, ERR_UPSTREAM, "answered 503");
    env_free(e);

    e = env_new(NULL, 0); /* refusals are answers, and so is what breaks a rule */
    for (unsigned i = 0; i < 20; i++)
        cr_assert(refs(e, e->h, i % 2 ? "404 N" : "302 F") < 0);
    cr_assert_eq(state(e), BREAKER_CLOSED);
    env_free(e);
}

Test(hub_limits, has_no_patience_where_none_is_left)
{
    struct env *e = env_new(NULL, 0);
    e->config.breaker_failures = 5;
    uint64_t now = clock_monotonic_ms();
    struct hub *late = hub_as(e->h, &(struct hub_asking){.deadline_ms = now ? now - 1 : 1});
    failed(e, refs(e, late, NULL), ERR_TIMEOUT, "no time was left");
    hub_free(late);
    cr_assert_eq(script_count(e->hub), 0);

    /* those who are in a hurry find it slow: they alone are kept away from it */
    for (unsigned i = 0; i < 5; i++)
        script_add(e->hub, "GET /api/models/o/m/refs ", "", SCRIPT_STALL);
    for (unsigned i = 0; i < 5; i++) {
        struct hub *hurried =
            hub_as(e->h, &(struct hub_asking){.deadline_ms = clock_monotonic_ms() + 30});
        failed(e, refs(e, hurried, NULL), ERR_TIMEOUT, "in the time that was left");
        hub_free(hurried);
    }
    cr_assert_eq(state(e), BREAKER_CLOSED);
    unsigned before = script_count(e->hub);
    struct hub *hurried =
        hub_as(e->h, &(struct hub_asking){.deadline_ms = clock_monotonic_ms() + 60000});
    failed(e, refs(e, hurried, NULL), ERR_UPSTREAM, "hf is not asked for the next");
    hub_free(hurried);
    cr_assert_eq(script_count(e->hub), before);
    worked(e, refs(e, e->h, "200 OK"));
    env_free(e);
}
