/* How a transfer gets to the bytes: redirects, credentials, locations that go stale; and its
 * bookkeeping. What it does under load is in tests/stress and tests/e2e. */
#include <criterion/criterion.h>
#include <sched.h>

#include "base/clock.h"
#include "script_server.h"
#include "storage/store.h"
#include "storage/writer.h"
#include "upstream/http_private.h"
#include "upstream/transfer_private.h"

static const char body[] = "the bytes of a blob";

struct world {
    char dir[64];
    struct store *store;
    struct http_pool *pool;
    struct transfers *transfers;
    struct digest digest;
    /* of the source */
    char *url;
    const char *authorization;
    const char *fresh; /* what a challenge gives; NULL = nothing */
    atomic_uint located, challenged;
    char sent[64], header[64]; /* what challenged() was told */
};

static void world_new(struct world *w)
{
    struct error err = ERROR_INIT;
    *w = (struct world){0};
    strcpy(w->dir, "/tmp/test-transfer-XXXXXX");
    cr_assert(mkdtemp(w->dir));
    struct store_options so = {.dir = w->dir};
    struct transfers_options to = {.max_running = 4};
    struct http_options ho = {.max_connections = 4, .stall_timeout_s = 5};
    cr_assert_eq(store_open(&so, &w->store, &err), 0, "%s", err.text);
    cr_assert_eq(http_pool_new(&ho, &w->pool, &err), 0, "%s", err.text);
    cr_assert_eq(transfers_new(w->store, &to, &w->transfers, &err), 0, "%s", err.text);
    cr_assert_eq(digest_of(DIGEST_SHA256, body, strlen(body), &w->digest, &err), 0);
}

static void world_free(struct world *w)
{
    char command[100];
    transfers_free(w->transfers);
    http_pool_free(w->pool);
    store_close(w->store);
    free(w->url);
    snprintf(command, sizeof(command), "rm -r %s", w->dir);
    cr_assert_eq(system(command), 0);
}

static int locate(void *ctx, struct http_location *ret, struct error *err)
{
    struct world *w = ctx;
    atomic_fetch_add(&w->located, 1);
    ret->url = strdup(w->url);
    ret->authorization = w->authorization ? strdup(w->authorization) : NULL;
    return ret->url ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int challenged(void *ctx, const char *sent, const struct http_response *r, char **ret,
                      struct error *err)
{
    struct world *w = ctx;
    const char *header = http_header(r, "WWW-Authenticate");
    (void)err;
    atomic_fetch_add(&w->challenged, 1);
    snprintf(w->sent, sizeof(w->sent), "%s", sent ? sent : "");
    snprintf(w->header, sizeof(w->header), "%s", header ? header : "");
    if (!w->fresh)
        return 0;
    *ret = strdup(w->fresh);
    return 1;
}

static void aim_at(struct world *w, const char *url)
{
    free(w->url);
    w->url = strdup(url);
}

/* The transfer's end: 1 and the blob is held, or -1. */
static int transfer(struct world *w, struct error *err)
{
    struct transfer_source source = {.upstream = "test",
                                     .pool = w->pool,
                                     .retries = 1,
                                     .locate = locate,
                                     .challenged = challenged,
                                     .ctx = w};
    struct transfer *x = NULL;
    uint64_t have, size;
    cr_assert_eq(transfer_join(w->transfers, &w->digest, strlen(body), &source, &x, err), 0);
    int rc = transfer_wait(x, UINT64_MAX, TRANSFER_DONE, CLOCK_FOREVER, &have, err);
    transfer_unref(x);
    if (rc == 1)
        cr_assert_eq(store_blob_stat(w->store, &w->digest, &size, err), 1);
    return rc;
}

/* ---- before there is a status ---------------------------------------------------------------- */

struct down {
    struct world w;
    atomic_uint asked;
    atomic_bool held;
};

static int locate_nothing(void *ctx, struct http_location *ret, struct error *err)
{
    struct down *d = ctx;
    (void)ret;
    atomic_fetch_add(&d->asked, 1);
    while (atomic_load(&d->held))
        sched_yield();
    return err_set(err, ERR_UPSTREAM, "nothing listens there");
}

static struct transfer *start_down(struct down *d, unsigned retries)
{
    struct error err = ERROR_INIT;
    struct transfer_source source = {.upstream = "test",
                                     .pool = d->w.pool,
                                     .retries = retries,
                                     .locate = locate_nothing,
                                     .ctx = d};
    struct transfer *x = NULL;
    cr_assert_eq(transfer_join(d->w.transfers, &d->w.digest, strlen(body), &source, &x, &err), 0);
    while (!atomic_load(&d->asked))
        sched_yield();
    return x;
}

static void fails(struct transfer *x)
{
    struct error err = ERROR_INIT;
    uint64_t have;
    cr_assert_eq(transfer_wait(x, UINT64_MAX, TRANSFER_DONE, CLOCK_FOREVER, &have, &err), -1);
    cr_assert_str_eq(err.text, "upstream test: nothing listens there");
    err = ERROR_INIT;
    cr_assert_eq(transfer_begin(x, &err), -1);
    cr_assert_str_eq(err.text, "upstream test: nothing listens there");
    transfer_unref(x);
}

Test(transfer, is_retried_once_while_there_is_no_status)
{
    struct down d = {.asked = 0};
    world_new(&d.w);
    fails(start_down(&d, 3));
    cr_assert_eq(d.asked, 2);
    world_free(&d.w);
}

Test(transfer, is_retried_as_ever_when_an_answer_has_begun)
{
    struct down d = {.held = true};
    world_new(&d.w);
    struct transfer *x = start_down(&d, 3);
    cr_assert_eq(transfer_begin(x, NULL), 0, "it has not failed yet");
    atomic_store(&d.held, false);
    fails(x);
    cr_assert_eq(d.asked, 4);
    world_free(&d.w);
}

Test(transfer, who_cannot_wait_is_told_of_its_last_failure)
{
    struct down d = {.asked = 0};
    struct error err = ERROR_INIT;
    world_new(&d.w);
    struct transfer *x = start_down(&d, 100);
    while (atomic_load(&d.asked) < 2)
        sched_yield(); /* the first attempt has failed */
    cr_assert_eq(transfer_begin(x, &err), -1);
    cr_assert_str_eq(err.text, "upstream test: nothing listens there");
    fails(x);
    world_free(&d.w);
}

static void redirect(struct script *s, const char *match, const char *to)
{
    script_reply(s, match, "moved", "307 Temporary Redirect\r\nLocation: %s", to);
}

#define UNAUTHORIZED "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"x\""

Test(transfer, a_redirect_to_another_origin_gets_no_credential)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *registry = script_start(), *cdn = script_start();
    w.authorization = "Bearer secret1";
    aim_at(&w, script_url(registry, "/v2/a/blobs/x"));
    redirect(registry, "GET /v2/a/blobs/x ", "/other/place");
    redirect(registry, "GET /other/place ", script_url(cdn, "/signed?s=1"));
    script_reply(cdn, "GET /signed?s=1 ", body, "200 OK");
    cr_assert_eq(transfer(&w, &err), 1, "%s", err.text);
    cr_assert_eq(script_count(registry), 2);
    cr_assert(script_saw(registry, "Authorization: Bearer secret1"));
    cr_assert(script_saw(cdn, "GET /signed") && !script_saw(cdn, "Authorization"));
    cr_assert_eq(w.located, 1);
    script_stop(registry);
    script_stop(cdn);
    world_free(&w);
}

Test(transfer, redirects_have_an_end)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/a"));
    for (unsigned i = 0; i < 30; i++)
        redirect(s, "GET /a ", "/a");
    cr_assert(transfer(&w, &err) < 0 && err.code == ERR_UPSTREAM);
    cr_assert(strstr(err.text, "more than 5 redirects"), "%s", err.text);
    script_stop(s);
    world_free(&w);
}

Test(transfer, a_redirect_that_leads_nowhere)
{
    static const char *const answers[] = {"302 Found", "302 Found\r\nLocation: file:///etc/passwd",
                                          "302 Found\r\nLocation: http://user@127.0.0.1/"};
    for (unsigned i = 0; i < 3; i++) {
        struct world w;
        struct error err = ERROR_INIT;
        world_new(&w);
        struct script *s = script_start();
        aim_at(&w, script_url(s, "/a"));
        for (unsigned k = 0; k < 4; k++)
            script_reply(s, "GET /a ", "", "%s", answers[i]);
        cr_assert(transfer(&w, &err) < 0 && err.code == ERR_UPSTREAM, "%s", answers[i]);
        script_stop(s);
        world_free(&w);
    }
}

Test(transfer, from_https_to_http_is_refused)
{
    struct http_response r = {0};
    struct error err = ERROR_INIT;
    struct aim a = {.url = strdup("https://registry/v2/"), .base = strdup("https://registry/v2/")};
    static const char *const lines[] = {"HTTP/1.1 302 Found", "Location: http://registry/v2/", ""};
    for (unsigned i = 0; i < 3; i++)
        cr_assert_geq(http_response_line(&r, lines[i], strlen(lines[i]), &err), 0);
    cr_assert(transfer_follow(&a, &r, &err) < 0);
    cr_assert(strstr(err.text, "from https to http"), "%s", err.text);
    cr_assert_str_eq(a.url, "https://registry/v2/");
    strbuf_done(&r.fields);
    aim_done(&a);
}

Test(transfer, a_challenge_is_answered_once)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/b"));
    w.fresh = "Bearer fresh1";
    script_reply(s, "GET /b ", "no", UNAUTHORIZED);
    script_reply(s, "GET /b ", body, "200 OK");
    cr_assert_eq(transfer(&w, &err), 1, "%s", err.text);
    cr_assert_eq(w.challenged, 1);
    cr_assert_str_eq(w.sent, "");
    cr_assert_str_eq(w.header, "Bearer realm=\"x\"");
    cr_assert(script_saw(s, "Authorization: Bearer fresh1"));
    cr_assert_eq(script_count(s), 2);
    script_stop(s);
    world_free(&w);
}

Test(transfer, a_credential_that_is_refused)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/b"));
    w.authorization = "Bearer old-one";
    script_reply(s, "GET /b ", "no", UNAUTHORIZED);
    cr_assert(transfer(&w, &err) < 0 && err.code == ERR_UNAUTHORIZED, "%s", err.text);
    cr_assert_str_eq(w.sent, "Bearer old-one");
    cr_assert(!strstr(err.text, "old-one"));
    w.fresh = "Bearer new-one"; /* and that one is refused, too */
    script_reply(s, "GET /b ", "no", UNAUTHORIZED);
    script_reply(s, "GET /b ", "no", UNAUTHORIZED);
    cr_assert(transfer(&w, &err) < 0 && err.code == ERR_UNAUTHORIZED, "%s", err.text);
    cr_assert_eq(script_count(s), 3);
    script_stop(s);
    world_free(&w);
}

Test(transfer, what_a_registry_says_is_an_answer)
{
    static const struct {
        const char *answer;
        enum err_code code;
    } rows[] = {{"404 Not Found", ERR_NOT_FOUND}, {"403 Forbidden", ERR_DENIED}};
    for (unsigned i = 0; i < 2; i++) {
        struct world w;
        struct error err = ERROR_INIT;
        world_new(&w);
        struct script *s = script_start();
        aim_at(&w, script_url(s, "/b"));
        script_reply(s, "GET /b ", "no", "%s", rows[i].answer);
        cr_assert(transfer(&w, &err) < 0 && err.code == rows[i].code, "%s", err.text);
        cr_assert_eq(script_count(s), 1);
        script_stop(s);
        world_free(&w);
    }
}

Test(transfer, a_token_that_runs_out_on_the_way)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/b"));
    w.authorization = "Bearer short";
    w.fresh = "Bearer longer";
    script_add(s, "GET /b ", "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\nthe bytes",
               SCRIPT_CLOSE);
    script_reply(s, "GET /b ", "no", UNAUTHORIZED);
    script_reply(s, "GET /b ", body + 9, "206 Partial Content\r\nContent-Range: bytes 9-18/19");
    cr_assert_eq(transfer(&w, &err), 1, "%s", err.text);
    cr_assert(script_saw(s, "Range: bytes=9-"));
    cr_assert_str_eq(w.sent, "Bearer short");
    script_stop(s);
    world_free(&w);
}

Test(transfer, a_redirect_that_expires_is_asked_for_again)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *registry = script_start(), *cdn = script_start();
    aim_at(&w, script_url(registry, "/b"));
    redirect(registry, "GET /b ", script_url(cdn, "/one"));
    redirect(registry, "GET /b ", script_url(cdn, "/two"));
    script_add(cdn, "GET /one ", "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\nthe bytes",
               SCRIPT_CLOSE);
    script_reply(cdn, "GET /one ", "expired", "403 Forbidden");
    script_reply(cdn, "GET /two ", body + 9, "206 Partial Content\r\nContent-Range: bytes 9-18/19");
    cr_assert_eq(transfer(&w, &err), 1, "%s", err.text);
    script_stop(registry);
    script_stop(cdn);
    world_free(&w);
}

Test(transfer, another_blob_is_refused_before_its_bytes)
{
    struct world w;
    struct error err = ERROR_INIT;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/b"));
    for (unsigned i = 0; i < 4; i++)
        script_reply(s, "GET /b ", body,
                     "200 OK\r\nDocker-Content-Digest: "
                     "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_assert(transfer(&w, &err) < 0 && err.code == ERR_UPSTREAM);
    cr_assert(strstr(err.text, "another blob"), "%s", err.text);
    script_stop(s);
    world_free(&w);
}

/* ---- what an earlier download left ---------------------------------------------------------- */

static void leave_partial(struct world *w, size_t len)
{
    struct error err = ERROR_INIT;
    struct blob_writer *writer = NULL;
    cr_assert_eq(writer_open(w->store, &w->digest, strlen(body), &writer, &err), 0, "%s", err.text);
    cr_assert_eq(writer_write(writer, body, len, 0, &err), 0, "%s", err.text);
    writer_close(writer, true);
}

static void leave_partial_from(struct world *w, size_t len, const char *upstream)
{
    struct error err = ERROR_INIT;
    struct blob_writer *writer = NULL;
    struct name_id source;
    cr_assert(name_id_of(upstream, "", &source));
    cr_assert_eq(writer_open_from(w->store, &w->digest, strlen(body), &source, &writer, &err), 0);
    cr_assert_eq(writer_write(writer, body, len, 0, &err), 0, "%s", err.text);
    writer_close(writer, true);
}

/* An upstream has one object for a digest, whatever repository it is asked for in; what another one
 * gave may be something else. */
Test(transfer, goes_on_with_what_the_same_upstream_left, .timeout = 60)
{
    for (int same = 0; same < 2; same++) {
        struct world w;
        struct error err = ERROR_INIT;
        struct transfer_stats stats;
        struct transfer *x = NULL;
        uint64_t have;
        world_new(&w);
        struct script *s = script_start();
        aim_at(&w, script_url(s, "/x"));
        leave_partial_from(&w, 5, same ? "test" : "other");
        script_reply(s, "GET /x ", same ? body + 5 : body, "%s",
                     same ? "206 Partial Content\r\nContent-Range: bytes 5-18/19" : "200 OK");
        struct transfer_source source = {
            .upstream = "test", .repository = "b", .pool = w.pool, .locate = locate, .ctx = &w};
        cr_assert_eq(transfer_join(w.transfers, &w.digest, strlen(body), &source, &x, &err), 0);
        cr_assert_eq(transfer_wait(x, UINT64_MAX, TRANSFER_DONE, CLOCK_FOREVER, &have, &err), 1,
                     "%s", err.text);
        transfer_unref(x);
        transfers_stats(w.transfers, &stats);
        cr_assert_eq(stats.resumed_bytes, same ? 5 : 0);
        script_stop(s);
        world_free(&w);
    }
}

/* From the moment that readers are let in, what is here is known to be here: or else it would be
 * fetched for them, and written over bytes that were hashed already. */
Test(transfer, a_partial_is_known_before_readers_come, .timeout = 60)
{
    struct world w;
    struct error err = ERROR_INIT;
    struct transfer_stats stats;
    world_new(&w);
    struct script *s = script_start();
    aim_at(&w, script_url(s, "/x"));
    script_add(s, "GET /x ", "", SCRIPT_STALL);
    s->steps[0].forever = true;
    uint64_t end_ms = clock_monotonic_ms() + 20000; /* a busy machine has fewer rounds */
    for (unsigned round = 0; round < 300 && clock_monotonic_ms() < end_ms; round++) {
        struct transfer_source source = {
            .upstream = "test", .pool = w.pool, .locate = locate, .ctx = &w};
        struct transfer *x = NULL;
        bool let_in = false;
        leave_partial(&w, 5);
        cr_assert_eq(transfer_join(w.transfers, &w.digest, strlen(body), &source, &x, &err), 0);
        while (!let_in) { /* no wait on the condition: that would be too late */
            pthread_mutex_lock(&x->lock);
            let_in = x->state >= TRANSFER_HEADERS;
            bool known = extents_end(&x->here, 0) == 5;
            pthread_mutex_unlock(&x->lock);
            cr_assert(!let_in || known, "round %u", round);
        }
        transfer_unref(x);
        do {
            sched_yield();
            transfers_stats(w.transfers, &stats);
        } while (stats.running);
    }
    script_stop(s);
    world_free(&w);
}

/* ---- bookkeeping -------------------------------------------------------------------------- */

static bool is_here(const struct extents *e, uint64_t at)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->items[i].first <= at && at < e->items[i].end)
            return true;
    return false;
}

Test(extents, behave_like_a_row_of_flags)
{
    bool flags[200] = {0};
    struct extents e = {0};
    srandom(1);
    for (unsigned round = 0; round < 400; round++) {
        uint64_t first = (uint64_t)random() % 200;
        uint64_t end = first + (uint64_t)random() % (round % 7 == 0 ? 20 : 4);
        end = end < 200 ? end : 200;
        cr_assert(extents_add(&e, first, end));
        for (uint64_t i = first; i < end; i++)
            flags[i] = true;
        for (size_t i = 1; i < e.n; i++)
            cr_assert_gt(e.items[i].first, e.items[i - 1].end, "apart from each other");
        for (uint64_t at = 0; at < 200; at++) {
            uint64_t stop = at, next = at;
            while (stop < 200 && flags[stop])
                stop++;
            cr_assert_eq(is_here(&e, at), flags[at]);
            cr_assert_eq(extents_end(&e, at), stop);
            while (next < 200 && !(flags[next] && (next == 0 || !flags[next - 1])))
                next++;
            cr_assert_eq(extents_next(&e, at), next == 200 ? UINT64_MAX : next);
        }
        if (round % 50 == 49) {
            memset(flags, 0, sizeof(flags));
            e.n = 0;
        }
    }
    free(e.items);
}

#define MB (1ull << 20)

/* A transfer as the claims see it. */
static struct transfer claims_of(uint64_t size)
{
    return (struct transfer){.size = size,
                             .target = 1,
                             .has_slot = true,
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .cond = PTHREAD_COND_INITIALIZER};
}

Test(claims, one_connection_takes_all)
{
    struct transfer x = claims_of(100 * MB);
    struct fetch lead = {.x = &x, .kind = FETCH_LEAD}, extra = {.x = &x, .kind = FETCH_EXTRA};
    cr_assert_eq(transfer_claim(&x, &lead), CLAIM_SOME);
    cr_assert(lead.at == 0 && lead.end == 100 * MB);
    cr_assert_eq(transfer_claim(&x, &extra), CLAIM_NONE);
    transfer_unclaim(&x, &lead);
    cr_assert(extents_add(&x.here, 0, 100 * MB));
    cr_assert_eq(transfer_claim(&x, &lead), CLAIM_ALL);
    free(x.here.items);
}

Test(claims, several_take_segments_that_do_not_meet)
{
    struct transfer x = claims_of(1000 * MB);
    struct fetch f[8];
    x.target = 8;
    bool *taken = calloc(1000, 1);
    for (unsigned i = 0; i < 8; i++) {
        f[i] = (struct fetch){.x = &x, .kind = i ? FETCH_EXTRA : FETCH_LEAD};
        cr_assert_eq(transfer_claim(&x, &f[i]), CLAIM_SOME);
        x.extras += i < 7;
    }
    for (unsigned round = 0; round < 400; round++) {
        struct fetch *g = &f[round % 8];
        for (uint64_t at = g->at; at < g->end; at += MB) {
            cr_assert(!taken[at / MB], "brought twice");
            taken[at / MB] = true;
        }
        cr_assert(extents_add(&x.here, g->at, g->end));
        transfer_unclaim(&x, g);
        if (transfer_claim(&x, g) != CLAIM_SOME)
            g->at = g->end = 0;
    }
    cr_assert_eq(extents_end(&x.here, 0), 1000 * MB);
    free(taken);
    free(x.here.items);
}

Test(claims, what_is_wanted_is_cut_out_of_another_claim)
{
    struct transfer x = claims_of(100 * MB);
    struct fetch lead = {.x = &x, .kind = FETCH_LEAD}, wanted = {.x = &x, .kind = FETCH_WANTED};
    struct fetch extra = {.x = &x, .kind = FETCH_EXTRA};
    cr_assert_eq(transfer_claim(&x, &lead), CLAIM_SOME);
    x.wants[x.n_wants++] = (struct span){.first = 50 * MB, .end = 50 * MB + 10};
    cr_assert_eq(transfer_claim(&x, &wanted), CLAIM_SOME);
    cr_assert(wanted.at == 50 * MB && wanted.end > 50 * MB + 10 && wanted.end < 52 * MB);
    cr_assert_eq(lead.end, 50 * MB);
    /* What is behind is open, what is near the lead is not asked for. */
    x.target = 2;
    cr_assert_eq(transfer_claim(&x, &extra), CLAIM_SOME);
    cr_assert_eq(extra.at, wanted.end);
    struct fetch second = {.x = &x, .kind = FETCH_WANTED};
    x.wants[x.n_wants++] = (struct span){.first = MB / 2, .end = 2 * MB};
    cr_assert_eq(transfer_claim(&x, &second), CLAIM_NONE);
    cr_assert_eq(x.n_wants, 0);
}

/* ---- places in the pool ------------------------------------------------------------------- */

static void *take_place(void *arg)
{
    struct error err = ERROR_INIT;
    CURL *curl = NULL;
    cr_assert_eq(http_pool_take(arg, false, NULL, &curl, &err), 0, "%s", err.text);
    return curl;
}

Test(pool, spare_places_are_given_up_to_those_who_wait, .timeout = 30)
{
    struct http_options o = {.max_connections = 4};
    struct http_pool *p = NULL;
    struct error err = ERROR_INIT;
    CURL *places[4];
    pthread_t thread;
    void *got;
    cr_assert_eq(http_pool_new(&o, &p, &err), 0);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert(http_pool_has_spare(p), "%u are taken", i);
        places[i] = take_place(p);
    }
    cr_assert(!http_pool_has_spare(p), "the last quarter is kept");
    cr_assert(http_pool_take(p, true, NULL, &places[3], &err) < 0 && err.code == ERR_BUSY);
    places[3] = take_place(p);
    cr_assert(!http_pool_is_wanted(p));
    cr_assert_eq(pthread_create(&thread, NULL, take_place, p), 0);
    while (!http_pool_is_wanted(p))
        sched_yield();
    cr_assert(!http_pool_is_wanted(p), "one waits, one is asked");
    http_pool_give(p, places[0], true);
    pthread_join(thread, &got);
    cr_assert(!http_pool_is_wanted(p));
    http_pool_give(p, got, true);
    for (unsigned i = 1; i < 4; i++)
        http_pool_give(p, places[i], true);
    cr_assert(http_pool_has_spare(p));
    http_pool_free(p);
}
