#include <criterion/criterion.h>
#include <sched.h>

#include "skewed_clock.h"

#include "base/clock.h"
#include "script_server.h"
#include "storage/hub.h"
#include "upstream/hub_access.h"
#include "upstream/hub_identity.h"

#define INFO "{\"id\":\"o/m\",\"sha\":\"0123456789abcdef0123456789abcdef01234567\"}"
#define GET_INFO "GET /api/models/o/m "
#define GET_CHECK "GET /api/models/o/m/auth-check "
#define TOKEN "hf_secret1"
#define OTHER "hf_secret2"

struct world {
    char dir[64], url[64];
    struct script *s;
    struct store *store;
    struct config config;
    struct config_upstream c;
    struct hub *h;
    struct hub_access *a;
    enum hub_missing missing;
    struct error err;
};

static void world_new(struct world *w, enum credentials_mode mode)
{
    *w = (struct world){.s = script_start()};
    strcpy(w->dir, "/tmp/test-access-XXXXXX");
    cr_assert(mkdtemp(w->dir));
    struct store_options so = {.dir = w->dir};
    cr_assert_eq(store_open(&so, &w->store, &w->err), 0, "%s", w->err.text);
    snprintf(w->url, sizeof(w->url), "%s", script_url(w->s, ""));
    w->c = (struct config_upstream){.prefix = (char *)"hf",
                                    .url = w->url,
                                    .stall_timeout_s = 20,
                                    .revalidate_timeout_s = 20,
                                    .credentials = mode,
                                    .breaker_failures = 1000,
                                    .auth_ttl_s = 60};
    w->config = (struct config){.upstreams = &w->c, .n_upstreams = 1};
    cr_assert_eq(hub_new(&w->c, &w->h, &w->err), 0, "%s", w->err.text);
    cr_assert_eq(hub_access_new(&w->config, &w->c, w->store, &w->a, &w->err), 0);
}

static void world_free(struct world *w)
{
    char command[100];
    hub_access_free(w->a);
    hub_free(w->h);
    store_close(w->store);
    script_stop(w->s);
    snprintf(command, sizeof(command), "rm -r %s", w->dir);
    cr_assert_eq(system(command), 0);
}

static int check(struct world *w, enum hub_access_level level, const char *token)
{
    w->err = ERROR_INIT;
    int rc = hub_access_check(w->a, w->h, "o/m", level, token, &w->missing, &w->err);
    cr_assert_null(strstr(w->err.text, "secret"), "%s", w->err.text);
    return rc;
}

static void allowed(struct world *w, enum hub_access_level level, const char *token,
                    unsigned requests)
{
    cr_assert_eq(check(w, level, token), 0, "%s", w->err.text);
    cr_assert_eq(script_count(w->s), requests, "%u", script_count(w->s));
}

static void refused(struct world *w, enum hub_access_level level, const char *token,
                    enum err_code code, enum hub_missing missing, unsigned requests)
{
    cr_assert_lt(check(w, level, token), 0);
    cr_assert_eq(w->err.code, code, "%s: %s", err_name(w->err.code), w->err.text);
    cr_assert_eq(w->missing, missing, "%d", w->missing);
    cr_assert_eq(script_count(w->s), requests, "%u", script_count(w->s));
}

Test(hub_access, own_rights_are_nobodys_business)
{
    struct world w;
    world_new(&w, CREDENTIALS_OWN);
    cr_assert_not(hub_access_is_forward(w.a));
    allowed(&w, HUB_ACCESS_CONTENT, NULL, 0);
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 0);
    world_free(&w);
}

Test(hub_access, asks_once_for_each_token_and_level)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    cr_assert(hub_access_is_forward(w.a));
    script_reply(w.s, GET_INFO, INFO, "200 OK");
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_METADATA, TOKEN, 1);
    allowed(&w, HUB_ACCESS_METADATA, TOKEN, 1);
    cr_assert(script_saw(w.s, "Authorization: Bearer " TOKEN "\r\n"));
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 2);
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 2);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, OTHER, 3);
    cr_assert(script_saw(w.s, "Authorization: Bearer " OTHER "\r\n"));
    allowed(&w, HUB_ACCESS_METADATA, OTHER, 3); /* the files imply it */
    script_reply(w.s, GET_INFO, INFO, "200 OK");
    allowed(&w, HUB_ACCESS_METADATA, NULL, 4); /* none is a caller of its own */
    hub_access_allowed(w.a, "o/n", HUB_ACCESS_METADATA, TOKEN, NULL);
    cr_assert_eq(hub_access_check(w.a, w.h, "o/n", HUB_ACCESS_METADATA, TOKEN, NULL, &w.err), 0);
    cr_assert_eq(script_count(w.s), 4);
    atomic_store(&skew_s, 61);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 5);
    world_free(&w);
}

Test(hub_access, refusals_belong_to_their_token)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    script_reply(w.s, GET_CHECK, "", "404 Not Found\r\nX-Error-Code: RepoNotFound");
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 1);
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 1);
    refused(&w, HUB_ACCESS_METADATA, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 1);
    script_reply(w.s, GET_INFO, "", "401 Unauthorized\r\nX-Error-Code: RepoNotFound");
    refused(&w, HUB_ACCESS_METADATA, NULL, ERR_UNAUTHORIZED, HUB_MISSING_REPOSITORY, 2);
    refused(&w, HUB_ACCESS_METADATA, NULL, ERR_UNAUTHORIZED, HUB_MISSING_REPOSITORY, 2);
    script_reply(w.s, GET_CHECK, "", "403 Forbidden\r\nX-Error-Code: GatedRepo");
    refused(&w, HUB_ACCESS_CONTENT, OTHER, ERR_DENIED, HUB_MISSING_GATED, 3);
    script_reply(w.s, GET_INFO, INFO, "200 OK");
    allowed(&w, HUB_ACCESS_METADATA, OTHER, 4); /* a gated one's is public */
    script_reply(w.s, GET_INFO, "",
                 "401 Unauthorized\r\nX-Error-Message: Invalid credentials in Authorization "
                 "header");
    refused(&w, HUB_ACCESS_METADATA, "hf_secret3", ERR_UNAUTHORIZED, HUB_MISSING_TOKEN, 5);
    atomic_store(&skew_s, ACCESS_REFUSED_S + 1);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 6);
    world_free(&w);
}

static void down(struct world *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        script_reply(w->s, "GET /", "", "500 Internal Server Error");
}

Test(hub_access, what_was_allowed_is_believed_for_longer_while_the_hub_is_down)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 1);
    atomic_store(&skew_s, 70);
    down(&w, 4);
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 2);
    allowed(&w, HUB_ACCESS_METADATA, TOKEN, 3);
    refused(&w, HUB_ACCESS_CONTENT, OTHER, ERR_UPSTREAM, HUB_MISSING_NONE, 4);
    cr_assert(strstr(w.err.text, "hf/o/m could not be asked") && strstr(w.err.text, "500"), "%s",
              w.err.text);
    atomic_store(&skew_s, ACCESS_STALE_S + 1);
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_UPSTREAM, HUB_MISSING_NONE, 5);
    world_free(&w);
}

static void hub_said(struct world *w, const char *openness)
{
    cr_assert_eq(store_hub_document_put(w->store, "hf", "o/m", "", "info", openness,
                                        strlen(openness), &w->err),
                 0, "%s", w->err.text);
}

Test(hub_access, what_is_public_is_for_all_while_the_hub_is_down)
{
    static const char *const closed[] = {"{\"private\":true,\"gated\":false}",
                                         "{\"private\":false,\"gated\":\"auto\"}",
                                         "{\"private\":false,\"gated\":true}",
                                         "{\"private\":false}",
                                         "{\"private\":\"false\",\"gated\":false}",
                                         "{",
                                         "[]"};
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    down(&w, 3 + ARRAY_LEN(closed));
    for (unsigned i = 0; i < ARRAY_LEN(closed); i++) {
        hub_said(&w, closed[i]);
        refused(&w, HUB_ACCESS_METADATA, TOKEN, ERR_UPSTREAM, HUB_MISSING_NONE, i + 1);
    }
    hub_said(&w, "{\"private\":false,\"gated\":false}");
    allowed(&w, HUB_ACCESS_METADATA, TOKEN, ARRAY_LEN(closed) + 1);
    allowed(&w, HUB_ACCESS_CONTENT, NULL, ARRAY_LEN(closed) + 2);
    w.c.offline = true;
    hub_access_free(w.a);
    cr_assert_eq(hub_access_new(&w.config, &w.c, w.store, &w.a, &w.err), 0);
    allowed(&w, HUB_ACCESS_CONTENT, OTHER, ARRAY_LEN(closed) + 2);
    cr_assert_lt(hub_access_check(w.a, w.h, "o/other", HUB_ACCESS_METADATA, TOKEN, NULL, &w.err),
                 0);
    cr_assert(strstr(w.err.text, "offline"), "%s", w.err.text);
    world_free(&w);
}

Test(hub_access, nobody_who_was_refused_since_comes_in_that_way)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    hub_said(&w, "{\"private\":false,\"gated\":false}");
    uint64_t now = clock_wall_s();
    while (clock_wall_s() == now) /* the next second: that is as fine as it is told */
        sched_yield();
    script_reply(w.s, GET_CHECK, "", "404 Not Found\r\nX-Error-Code: RepoNotFound");
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 1);
    atomic_store(&skew_s, ACCESS_REFUSED_S + 1);
    down(&w, 2);
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_UPSTREAM, HUB_MISSING_NONE, 2);
    /* nor does anybody else: what the Hub hides from one is not public */
    refused(&w, HUB_ACCESS_CONTENT, OTHER, ERR_UPSTREAM, HUB_MISSING_NONE, 3);
    refused(&w, HUB_ACCESS_CONTENT, NULL, ERR_UPSTREAM, HUB_MISSING_NONE, 4);
    world_free(&w);
}

Test(hub_access, what_is_hidden_from_one_was_public_for_nobody)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, NULL, 1);
    script_reply(w.s, GET_CHECK, "", "404 Not Found\r\nX-Error-Code: RepoNotFound");
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 2);
    down(&w, 3);
    refused(&w, HUB_ACCESS_CONTENT, NULL, ERR_UPSTREAM, HUB_MISSING_NONE, 3);
    world_free(&w);
}

/* ---- whose name it is ------------------------------------------------------------------------ */

#define FIRST "0123456789abcdef01234567"
#define SECOND "76543210fedcba9876543210"
#define INFO_OF(identity)                                                                          \
    "{\"_id\":\"" identity "\",\"id\":\"o/"                                                        \
    "m\",\"sha\":\"0123456789abcdef0123456789abcdef01234567\"}"

static void is_identity(struct world *w, const char *commit, const char *wanted)
{
    char found[HUB_IDENTITY_MAX + 1];
    cr_assert_geq(hub_identity_get(w->store, "hf", "o/m", commit, found, &w->err), 0);
    cr_assert_str_eq(found, wanted);
}

static void noted(struct world *w, const char *identity)
{
    char now[HUB_IDENTITY_MAX + 1];
    struct hub_revision r = {.id = "o/m", .commit = "0123456789abcdef0123456789abcdef01234567"};
    snprintf(r.identity, sizeof(r.identity), "%s", identity);
    cr_assert_eq(hub_identity_note(w->store, &w->c, "o/m", &r, now, &w->err), 0);
}

Test(hub_access, the_rights_are_to_the_repository_that_has_the_name)
{
    struct world w;
    struct hub_pin pin;
    const char *commit = "0123456789abcdef0123456789abcdef01234567";
    world_new(&w, CREDENTIALS_FORWARD);
    noted(&w, FIRST);
    is_identity(&w, commit, FIRST);
    hub_said(&w, "{\"private\":false,\"gated\":false}");
    cr_assert_eq(store_hub_pin_put(w.store, "hf", NULL, "o/m", "main", commit, &w.err), 0);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    script_reply(w.s, GET_INFO, INFO_OF(FIRST), "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 2);
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 2);
    allowed(&w, HUB_ACCESS_METADATA, TOKEN, 2);
    cr_assert_eq(store_hub_pin_get(w.store, "hf", "o/m", "main", &pin, &w.err), 1);
    script_reply(w.s, GET_INFO, INFO_OF(SECOND), "200 OK");
    allowed(&w, HUB_ACCESS_METADATA, OTHER, 3);
    is_identity(&w, "", SECOND);
    is_identity(&w, commit, FIRST);
    cr_assert_eq(store_hub_pin_get(w.store, "hf", "o/m", "main", &pin, &w.err), 0);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, OTHER, 4);
    /* what the first caller was told was about another one */
    script_reply(w.s, GET_INFO, "", "404 Not Found\r\nX-Error-Code: RepoNotFound");
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_NOT_FOUND, HUB_MISSING_REPOSITORY, 5);
    world_free(&w);
}

Test(hub_access, a_right_that_nobody_knows_what_to_counts_for_nothing)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    noted(&w, FIRST);
    hub_access_allowed(w.a, "o/m", HUB_ACCESS_CONTENT, TOKEN, NULL);
    hub_access_allowed(w.a, "o/m", HUB_ACCESS_CONTENT, OTHER, FIRST);
    down(&w, 2);
    allowed(&w, HUB_ACCESS_CONTENT, OTHER, 0);
    refused(&w, HUB_ACCESS_CONTENT, TOKEN, ERR_UPSTREAM, HUB_MISSING_NONE, 1);
    atomic_store(&skew_s, 61);
    allowed(&w, HUB_ACCESS_CONTENT, OTHER, 2);
    /* the info alone does not renew the right to the files */
    atomic_store(&skew_s, 0);
    hub_access_allowed(w.a, "o/m", HUB_ACCESS_CONTENT, NULL, NULL);
    atomic_store(&skew_s, 59);
    script_reply(w.s, GET_INFO, INFO_OF(FIRST), "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, NULL, 3);
    atomic_store(&skew_s, 61);
    script_reply(w.s, GET_CHECK, "", "403 Forbidden\r\nX-Error-Code: GatedRepo");
    refused(&w, HUB_ACCESS_CONTENT, NULL, ERR_UNAUTHORIZED, HUB_MISSING_GATED, 4);
    world_free(&w);
}

Test(hub_access, a_hub_without_identities_is_not_asked_for_them)
{
    struct world w;
    world_new(&w, CREDENTIALS_FORWARD);
    noted(&w, "");
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    allowed(&w, HUB_ACCESS_CONTENT, TOKEN, 1);
    noted(&w, FIRST);
    is_identity(&w, "", FIRST);
    noted(&w, ""); /* a server between that leaves it out is no news */
    is_identity(&w, "", FIRST);
    world_free(&w);
}

static void import_as(struct world *w, const char *name, const char *id)
{
    struct digest d = {0};
    const char *tags[] = {"main"};
    cr_assert_eq(digest_of(DIGEST_SHA256, "{}", 2, &d, NULL), 0);
    const struct import_record r = {.repository = name,
                                    .upstream = "hf",
                                    .repo_id = id,
                                    .commit = "0123456789abcdef0123456789abcdef01234567",
                                    .tags = tags,
                                    .n_tags = 1,
                                    .manifest_digest = d,
                                    .media_type = "application/json",
                                    .manifest = "{}",
                                    .manifest_len = 2};
    cr_assert_eq(store_commit_import(w->store, &r, &w->err), 0, "%s", w->err.text);
}

static bool has_import(struct world *w, const char *name)
{
    struct tag tag;
    return store_tag_get(w->store, name, "main", &tag, NULL) == 1;
}

Test(hub_access, imports_of_the_first_repository_go)
{
    struct world w;
    struct hub_revision r = {.id = "o/m", .identity = FIRST}, moved = {.id = "o/moved"};
    struct repository_row row = {.upstream = "hf", .repo_id = "o/m"};
    char now[HUB_IDENTITY_MAX + 1];
    world_new(&w, CREDENTIALS_FORWARD);
    noted(&w, FIRST);
    import_as(&w, "hf/o/m", "o/m");
    import_as(&w, "hf/friend", "o/m");
    import_as(&w, "hf/o/n", "o/n");
    cr_assert_eq(hub_identity_check_import(w.store, &w.c, "hf/o/m", &r, &w.err), 0);
    /* renamed, it is the same one */
    strcpy(moved.identity, FIRST);
    cr_assert_eq(hub_identity_note(w.store, &w.c, "o/m", &moved, now, &w.err), 0);
    cr_assert_eq(hub_identity_check_name(w.store, &w.c, "hf/o/m", &row, &moved, &w.err), 0);
    cr_assert(has_import(&w, "hf/o/m") && has_import(&w, "hf/friend"));
    noted(&w, SECOND);
    cr_assert(!has_import(&w, "hf/o/m") && !has_import(&w, "hf/friend") &&
              has_import(&w, "hf/o/n"));
    /* one that was under way */
    import_as(&w, "hf/o/m", "o/m");
    cr_assert_lt(hub_identity_check_import(w.store, &w.c, "hf/o/m", &r, &w.err), 0);
    cr_assert_eq(w.err.code, ERR_UPSTREAM);
    cr_assert_not(has_import(&w, "hf/o/m"));
    /* what the name was before is another one */
    import_as(&w, "hf/o/m", "o/moved");
    strcpy(row.repo_id, "o/moved");
    cr_assert_eq(hub_identity_check_name(w.store, &w.c, "hf/o/m", &row, &r, &w.err), 0);
    cr_assert_not(has_import(&w, "hf/o/m"));
    world_free(&w);
}

Test(hub_access, with_own_rights_the_first_repository_stays)
{
    struct world w;
    world_new(&w, CREDENTIALS_OWN);
    noted(&w, FIRST);
    noted(&w, SECOND);
    is_identity(&w, "", FIRST);
    is_identity(&w, "0123456789abcdef0123456789abcdef01234567", SECOND);
    world_free(&w);
}

struct asker {
    struct world *w;
    int rc;
    struct error err;
};

static void *ask(void *ctx)
{
    struct asker *a = ctx;
    a->rc = hub_access_check(a->w->a, a->w->h, "o/m", HUB_ACCESS_CONTENT, TOKEN, NULL, &a->err);
    return NULL;
}

Test(hub_access, many_ask_once)
{
    struct world w;
    struct asker askers[8];
    pthread_t threads[8];
    world_new(&w, CREDENTIALS_FORWARD);
    script_reply(w.s, GET_CHECK, "{}", "200 OK");
    for (unsigned i = 0; i < 8; i++) {
        askers[i] = (struct asker){.w = &w, .rc = 1};
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(askers[i].rc, 0, "%s", askers[i].err.text);
    }
    cr_assert_eq(script_count(w.s), 1);
    world_free(&w);
}

Test(hub_access, knows_who_it_is)
{
    struct world w;
    struct strbuf json = STRBUF_INIT;
    world_new(&w, CREDENTIALS_FORWARD);
    script_reply(w.s, "GET /api/whoami-v2 ", "{\"name\":\"x\"}", "200 OK");
    for (unsigned i = 0; i < 2; i++) {
        strbuf_reset(&json);
        cr_assert_eq(hub_access_whoami(w.a, w.h, TOKEN, &json, &w.missing, &w.err), 0, "%s",
                     w.err.text);
        cr_assert_str_eq(strbuf_str(&json), "{\"name\":\"x\"}");
    }
    cr_assert_eq(script_count(w.s), 1);
    cr_assert_lt(hub_access_whoami(w.a, w.h, NULL, &json, &w.missing, &w.err), 0);
    cr_assert(w.err.code == ERR_UNAUTHORIZED && w.missing == HUB_MISSING_TOKEN);
    script_reply(w.s, "GET /api/whoami-v2 ", "", "401 Unauthorized");
    cr_assert_lt(hub_access_whoami(w.a, w.h, OTHER, &json, &w.missing, &w.err), 0);
    cr_assert_eq(w.err.code, ERR_UNAUTHORIZED, "%s", w.err.text);
    strbuf_done(&json);
    world_free(&w);
}

/* More callers than it keeps: the newest are known, and nothing is mixed up. */
Test(hub_access, forgets_when_there_are_too_many)
{
    struct world w;
    char token[32];
    world_new(&w, CREDENTIALS_FORWARD);
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(token, sizeof(token), "hf_secret%u", i);
        hub_access_allowed(w.a, "o/m", HUB_ACCESS_CONTENT, token, NULL);
    }
    allowed(&w, HUB_ACCESS_CONTENT, token, 0);
    down(&w, 1);
    refused(&w, HUB_ACCESS_CONTENT, "hf_secretx", ERR_UPSTREAM, HUB_MISSING_NONE, 1);
    world_free(&w);
}
