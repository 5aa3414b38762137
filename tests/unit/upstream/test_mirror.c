#define SKEWS_WALL_CLOCK

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "folder_store.h"
#include "script_server.h"
#include "skewed_clock.h"
#include "upstream/mirror_private.h"

#define LAYER "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define CONFIG "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define IMAGE(size)                                                                                \
    "{\"schemaVersion\":2,\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"config\":{\"mediaType\":"         \
    "\"a/config\",\"digest\":\"" CONFIG "\",\"size\":4},\"layers\":[{\"mediaType\":\"a/layer\","   \
    "\"digest\":\"" LAYER "\",\"size\":" size "}]}"
#define ONE IMAGE("3")
#define TWO "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX_TYPE "\",\"manifests\":[]}"
#define REPO "reg.test/library/app"

/* ---- a mirror of a scripted registry --------------------------------------------------------- */

struct world {
    char dir[FOLDER_STORE_MAX];
    struct script *s;
    struct store *store;
    struct config config;
    struct config_upstream c;
    struct mirror *m;
    struct manifest_answer a;
    struct error err;
};

static struct world *world(struct config_upstream c)
{
    struct world *w = calloc(1, sizeof(*w));
    cr_assert(w);
    w->store = folder_store_open(w->dir);
    w->s = script_start();
    w->c = c;
    w->c.prefix = (char *)"reg.test";
    w->c.single_names = (char *)"library";
    w->c.url = strdup(script_url(w->s, ""));
    w->c.stall_timeout_s = 30;
    w->c.revalidate_timeout_s = c.revalidate_timeout_s ? c.revalidate_timeout_s : 30;
    cr_assert_eq(mirror_new(&w->config, &w->c, w->store, &w->m, &w->err), 0, "%s", w->err.text);
    return w;
}

static void end(struct world *w)
{
    manifest_answer_done(&w->a);
    mirror_free(w->m);
    folder_store_close(w->store, w->dir);
    script_stop(w->s);
    free(w->c.url);
    free(w);
}

static int pull(struct world *w, const char *name, const char *what)
{
    struct reference r;
    cr_assert_eq(reference_make(name, what, &r, NULL), 0);
    manifest_answer_done(&w->a);
    w->err = ERROR_INIT;
    return mirror_manifest(w->m, &r, &w->a, &w->err);
}

static void pulls(struct world *w, const char *what, const char *bytes, const char *warning)
{
    cr_assert_eq(pull(w, REPO, what), 0, "%s", w->err.text);
    cr_assert(w->a.manifest.len == strlen(bytes) &&
              memcmp(w->a.manifest.bytes, bytes, strlen(bytes)) == 0);
    cr_assert(*warning ? strstr(w->a.warning, warning) != NULL : !*w->a.warning, "%s",
              w->a.warning);
}

static void fails(struct world *w, const char *what, enum err_code code, const char *text)
{
    cr_assert_eq(pull(w, REPO, what), -1);
    cr_assert_eq(w->err.code, code, "%s: %s", err_name(w->err.code), w->err.text);
    cr_assert(strstr(w->err.text, text), "\"%s\" is not in: %s", text, w->err.text);
}

static struct digest digest_at(const char *text)
{
    struct digest d;
    cr_assert_eq(digest_parse(text, &d, NULL), 0);
    return d;
}

static const char *digest_text(const char *bytes)
{
    static char text[4][DIGEST_TEXT_MAX];
    static unsigned next;
    struct digest d;
    cr_assert_eq(digest_of(DIGEST_SHA256, bytes, strlen(bytes), &d, NULL), 0);
    return digest_format(&d, text[next++ % 4]);
}

static void serve_head(struct world *w, const char *tag, const char *bytes)
{
    char match[128];
    snprintf(match, sizeof(match), "HEAD /v2/library/app/manifests/%s ", tag);
    script_reply(w->s, match, NULL, "200 OK\r\nContent-Length: %zu\r\nDocker-Content-Digest: %s",
                 strlen(bytes), digest_text(bytes));
}

static void serve_get(struct world *w, const char *what, const char *bytes)
{
    char match[256];
    snprintf(match, sizeof(match), "GET /v2/library/app/manifests/%s ", what);
    script_reply(w->s, match, bytes, "200 OK");
}

static struct world *with_v1(struct config_upstream c)
{
    struct world *w = world(c);
    serve_get(w, "v1", ONE);
    pulls(w, "v1", ONE, "");
    cr_assert(w->a.imported);
    cr_assert_eq(script_count(w->s), 1);
    return w;
}

/* ---- names and policies ---------------------------------------------------------------------- */

Test(mirror, peer_bug_82_knows_both_forms_of_a_name)
{
    static const struct {
        const char *repository, *full, *name;
    } cases[] = {
        {"reg.test/alpine", "reg.test/library/alpine", "library/alpine"},
        {"reg.test/library/alpine", "reg.test/library/alpine", "library/alpine"},
        {"reg.test/a/b", "reg.test/a/b", "a/b"},
    };
    struct config_upstream c = {.prefix = (char *)"reg.test", .single_names = (char *)"library"};
    struct mirror_name n;
    char long_name[REPOSITORY_MAX + 1];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cr_assert_eq(mirror_name_of(&c, cases[i].repository, &n, NULL), 0);
        cr_assert_str_eq(n.full, cases[i].full);
        cr_assert_str_eq(n.name, cases[i].name);
    }
    memset(long_name, 'a', sizeof(long_name));
    long_name[REPOSITORY_MAX] = '\0';
    memcpy(long_name, "reg.test/", 9);
    cr_assert_eq(mirror_name_of(&c, long_name, &n, NULL), -1);
    long_name[REPOSITORY_MAX - strlen("library/")] = '\0';
    cr_assert_eq(mirror_name_of(&c, long_name, &n, NULL), 0);
    c.single_names = NULL;
    cr_assert_eq(mirror_name_of(&c, "reg.test/alpine", &n, NULL), 0);
    cr_assert_str_eq(n.full, "reg.test/alpine");
    cr_assert_eq(mirror_name_of(&c, "reg.test/", &n, NULL), -1);
}

static int allows(const struct config_upstream *c, const char *repository, struct error *err)
{
    struct mirror_name n;
    cr_assert_eq(mirror_name_of(c, repository, &n, NULL), 0);
    *err = ERROR_INIT;
    return mirror_check_repository(c, &n, err);
}

Test(mirror, peer_bug_76_lets_through_what_the_globs_say)
{
    char *only[] = {(char *)"team/*", (char *)"alpine"}, *not [] = {(char *)"team/secret*"};
    struct config_upstream c = {.prefix = (char *)"reg.test",
                                .single_names = (char *)"library",
                                .repositories = {only, 2},
                                .exclude_repositories = {not, 1}};
    struct error err;
    cr_assert_eq(allows(&c, "reg.test/team/a/b", &err), 0);
    cr_assert_eq(allows(&c, "reg.test/alpine", &err), 0);
    cr_assert_eq(allows(&c, "reg.test/library/alpine", &err), 0);
    cr_assert_eq(allows(&c, "reg.test/busybox", &err), -1);
    cr_assert(err.code == ERR_DENIED && strstr(err.text, "not among the repositories of upstream"));
    cr_assert_eq(allows(&c, "reg.test/team/secret-a", &err), -1);
    cr_assert(err.code == ERR_DENIED && strstr(err.text, "exclude_repositories"));
    cr_assert(strstr(err.text, "team/secret*"));
    c.repositories.n = 0;
    cr_assert_eq(allows(&c, "reg.test/busybox", &err), 0);
}

Test(mirror, peer_bug_76_asks_nothing_about_what_is_denied)
{
    char * not [] = {(char *)"library/app"};
    struct world *w = world((struct config_upstream){.exclude_repositories = {not, 1}});
    struct digest d = digest_at(LAYER);
    struct link link;
    struct name_list tags;
    char warning[300], full[REPOSITORY_MAX + 1];
    fails(w, "v1", ERR_DENIED, "exclude_repositories");
    fails(w, LAYER, ERR_DENIED, "exclude_repositories");
    cr_assert_eq(mirror_link(w->m, REPO, &d, &link, &w->err), -1);
    cr_assert_eq(w->err.code, ERR_DENIED);
    cr_assert_eq(mirror_tags(w->m, REPO, &tags, warning, sizeof(warning), &w->err), -1);
    cr_assert_eq(w->err.code, ERR_DENIED);
    cr_assert_eq(mirror_resolve(w->m, "reg.test/app", full, &w->err), -1);
    cr_assert_eq(script_count(w->s), 0);
    end(w);
}

Test(mirror, refuses_parts_before_a_byte_moves)
{
    char *types[] = {(char *)"a/config", (char *)"*/tar"};
    struct world *w =
        world((struct config_upstream){.media_types = {types, 2}, .negative_ttl_s = 60});
    serve_get(w, "v1", ONE);
    fails(w, "v1", ERR_DENIED,
          "the layer " LAYER " of reg.test/library/app is of the type a/layer");
    fails(w, "v1", ERR_DENIED, "media_types of upstream reg.test");
    cr_assert_eq(script_count(w->s), 1, "a refusal costs no second pull");
    end(w);
    w = world((struct config_upstream){.max_blob = 10});
    serve_get(w, "v1", IMAGE("11"));
    fails(w, "v1", ERR_TOO_LARGE,
          "the layer " LAYER " of reg.test/library/app has 11 bytes, and "
          "max_blob of upstream reg.test is 10");
    end(w);
}

/* ---- tags ------------------------------------------------------------------------------------ */

Test(mirror, believes_a_tag_within_its_ttl)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    pulls(w, "v1", ONE, "");
    cr_assert_not(w->a.imported);
    pulls(w, digest_text(ONE), ONE, "");
    cr_assert_eq(pull(w, "reg.test/app", "v1"), 0, "%s", w->err.text);
    cr_assert_eq(script_count(w->s), 1);
    struct tag_history h = {0};
    cr_assert_eq(store_tag_history(w->store, REPO, "v1", 10, &h, NULL), 0);
    cr_assert_eq(h.n, 1);
    cr_assert_str_eq(h.events[0].source, "pull reg.test");
    tag_history_done(&h);
    end(w);
}

Test(mirror, peer_bug_64_revalidates_with_one_head)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    atomic_store(&skew_s, 61);
    script_add(w->s, "HEAD ", "HTTP/1.1 304 Not Modified\r\n\r\n", SCRIPT_KEEP);
    pulls(w, "v1", ONE, "");
    cr_assert_not(w->a.imported);
    cr_assert(script_saw(w->s, "If-None-Match: \"sha256:"));
    pulls(w, "v1", ONE, ""); /* confirmed: fresh again */
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

Test(mirror, peer_bug_56_sees_a_tag_that_moved)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 0});
    serve_head(w, "v1", TWO);
    serve_get(w, digest_text(TWO), TWO);
    pulls(w, "v1", TWO, "");
    cr_assert(w->a.imported);
    pulls(w, digest_text(ONE), ONE, ""); /* still there */
    /* Back to one that is here: no counted pull. */
    serve_head(w, "v1", ONE);
    pulls(w, "v1", ONE, "");
    /* A second tag of it: likewise. */
    serve_head(w, "v2", ONE);
    pulls(w, "v2", ONE, "");
    cr_assert_eq(script_count(w->s), 5);
    /* An upstream that says no digest. */
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 7");
    serve_get(w, "v1", TWO);
    pulls(w, "v1", TWO, "");
    /* It moves between our two requests. */
    serve_head(w, "v1", IMAGE("9"));
    script_reply(w->s, "GET /v2/library/app/manifests/sha256:", "{}", "404 Not Found");
    serve_get(w, "v1", ONE);
    pulls(w, "v1", ONE, "");
    end(w);
}

#define UNKNOWN "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\"}]}"
#define GONE "404 Not Found\r\nContent-Length: 0"

Test(mirror, peer_bug_57_drops_a_tag_that_is_gone)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60});
    script_reply(w->s, "HEAD ", NULL, GONE);
    script_reply(w->s, "GET ", UNKNOWN, "404 Not Found");
    fails(w, "v1", ERR_NOT_FOUND, "has no tag v1 of library/app");
    fails(w, "v1", ERR_NOT_FOUND, "has no tag v1 of library/app");
    cr_assert_eq(script_count(w->s), 3, "a negative answer is remembered");
    pulls(w, digest_text(ONE), ONE, "");
    struct tag tag;
    cr_assert_eq(store_tag_get(w->store, REPO, "v1", &tag, NULL), 0);
    struct tag_history h = {0};
    cr_assert_eq(store_tag_history(w->store, REPO, "v1", 10, &h, NULL), 0);
    cr_assert_str_eq(h.events[0].source, "gone reg.test");
    tag_history_done(&h);
    /* And comes back. */
    atomic_store(&skew_s, 61);
    serve_head(w, "v1", ONE);
    pulls(w, "v1", ONE, "");
    /* Forbidden is gone, too. */
    script_reply(w->s, "HEAD ", NULL, "403 Forbidden\r\nContent-Length: 0");
    script_reply(w->s, "GET ", "{\"errors\":[{\"code\":\"DENIED\"}]}", "403 Forbidden");
    fails(w, "v1", ERR_DENIED, "answered 403: DENIED");
    cr_assert_eq(store_tag_get(w->store, REPO, "v1", &tag, NULL), 0);
    end(w);
}

/* Anything on the way can answer 404; only the registry's own word takes a tag away. */
Test(mirror, peer_bug_57_drops_nothing_for_a_404_that_nobody_owns)
{
    static const char *const statuses[] = {"404 Not Found", "403 Forbidden"};
    struct tag tag;
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60});
        script_reply(w->s, "HEAD ", NULL, "%s\r\nContent-Length: 0", statuses[i]);
        script_reply(w->s, "GET ", "<html>", "%s\r\nContent-Type: text/html", statuses[i]);
        pulls(w, "v1", ONE, "not in a registry's words");
        pulls(w, "v1", ONE, "not in a registry's words");
        cr_assert_eq(script_count(w->s), 3, "that is remembered for a while, too");
        cr_assert_eq(store_tag_get(w->store, REPO, "v1", &tag, NULL), 1);
        /* One that is not held is not there, whoever says so; a HEAD is enough. */
        script_reply(w->s, "HEAD ", NULL, GONE);
        fails(w, "v2", ERR_NOT_FOUND, "has no tag v2 of library/app");
        cr_assert_eq(script_count(w->s), 4);
        /* The proxy is well again. */
        atomic_fetch_add(&skew_s, 61);
        serve_head(w, "v1", ONE);
        pulls(w, "v1", ONE, "");
        end(w);
    }
}

/* A registry whose HEAD is 404 for everything. */
Test(mirror, peer_bug_57_drops_nothing_that_get_has)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60});
    script_reply(w->s, "HEAD ", NULL, GONE);
    serve_get(w, "v1", TWO);
    pulls(w, "v1", TWO, "");
    end(w);
}

Test(mirror, peer_bug_57_keeps_a_tag_that_is_gone)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60, .on_gone = GONE_KEEP});
    script_reply(w->s, "HEAD ", NULL, "404 Not Found\r\nContent-Length: 0");
    pulls(w, "v1", ONE, "upstream reg.test has no tag v1 of library/app");
    pulls(w, "v1", ONE, "upstream reg.test has no tag v1 of library/app");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

Test(mirror, leaves_alone_what_was_pushed)
{
    struct world *w = world((struct config_upstream){.negative_ttl_s = 60});
    const char *tags[] = {"v1"};
    struct digest d = digest_at(digest_text(TWO));
    struct digest_list missing;
    struct push_record r = {.repository = REPO,
                            .digest = d,
                            .media_type = OCI_INDEX_TYPE,
                            .manifest = TWO,
                            .len = strlen(TWO),
                            .artifact_type = "",
                            .tags = tags,
                            .n_tags = 1,
                            .source = "push 10.0.0.7"};
    cr_assert_eq(store_manifest_push(w->store, &r, &missing, &w->err), 0, "%s", w->err.text);
    script_reply(w->s, "HEAD ", NULL, "404 Not Found\r\nContent-Length: 0");
    script_reply(w->s, "GET ", NULL, "404 Not Found\r\nContent-Length: 0");
    pulls(w, "v1", TWO, "");
    end(w);
}

Test(mirror, peer_bug_53_serves_what_is_here_while_the_upstream_is_down)
{
    static const struct {
        const char *answer, *warning;
    } cases[] = {
        {"500 Oops\r\nContent-Length: 0", "answered 500"},
        {"429 Slow\r\nContent-Length: 0", "answered 429"},
        {"401 U\r\nContent-Length: 0", "login"},
        {"401 U\r\nContent-Length: 0\r\nWWW-Authenticate: Basic realm=\"x\"", "login"},
        {"200 OK\r\nContent-Type: text/html", "a page"},
        {"200 OK\r\nDocker-Content-Digest: sha256:00", "is none"},
        {"302 Found\r\nContent-Length: 0", "without a Location"},
    };
    struct world *w = with_v1((struct config_upstream){.breaker_failures = 100});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        script_reply(w->s, "HEAD ", NULL, "%s", cases[i].answer);
        pulls(w, "v1", ONE, cases[i].warning);
        cr_assert(strstr(w->a.warning, "served from the store, last confirmed 0 s ago"));
    }
    /* It lies about the bytes. */
    serve_head(w, "v1", TWO);
    serve_get(w, digest_text(TWO), "{}");
    pulls(w, "v1", ONE, "hashes to");
    script_add(w->s, "HEAD ", "", SCRIPT_RESET);
    pulls(w, "v1", ONE, "last confirmed 0 s ago");
    /* What is not here has no other answer than what went wrong. */
    script_reply(w->s, "HEAD ", NULL, "500 Oops\r\nContent-Length: 0");
    fails(w, "v2", ERR_UPSTREAM, "answered 500");
    pulls(w, digest_text(ONE), ONE, "");
    end(w);
}

Test(mirror, peer_bug_54_does_not_wait_for_a_silent_upstream)
{
    struct world *w = with_v1((struct config_upstream){.revalidate_timeout_s = 1});
    script_add(w->s, "HEAD ", "", SCRIPT_STALL);
    uint64_t start = clock_monotonic_ms();
    pulls(w, "v1", ONE, "has not answered in time (revalidate_timeout)");
    uint64_t first = clock_monotonic_ms();
    cr_assert(first - start >= 1000, "%ju", (uintmax_t)(first - start));
    /* From here on it is known that it takes too long. */
    pulls(w, "v1", ONE, "has not answered in time");
    cr_assert(clock_monotonic_ms() - first < 500);
    cr_assert_eq(script_count(w->s), 2, "one question at a time");
    end(w);
}

Test(mirror, goes_on_asking_when_nobody_waits)
{
    struct world *w = with_v1((struct config_upstream){.revalidate_timeout_s = 1});
    struct script *slow = script_start();
    script_reply(w->s, "HEAD ", NULL, "307 There\r\nContent-Length: 0\r\nLocation: %s",
                 script_url(slow, "/"));
    script_add(slow, "HEAD ", "", SCRIPT_STALL);
    pulls(w, "v1", ONE, "has not answered in time");
    /* The connection ends, and with it the question. */
    script_stop(slow);
    struct tag_history h;
    for (bool late = true; late;) {
        pthread_mutex_lock(&w->m->questions.lock);
        late = w->m->questions.late > 0;
        if (late)
            pthread_cond_wait(&w->m->questions.landed, &w->m->questions.lock);
        pthread_mutex_unlock(&w->m->questions.lock);
    }
    serve_head(w, "v1", TWO);
    serve_get(w, digest_text(TWO), TWO);
    pulls(w, "v1", TWO, "");
    cr_assert_eq(store_tag_history(w->store, REPO, "v1", 10, &h, NULL), 0);
    cr_assert_eq(h.n, 2);
    tag_history_done(&h);
    end(w);
}

Test(mirror, offline_answers_from_the_store_alone)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    struct digest d = digest_at(LAYER), other = digest_at(digest_text("other"));
    struct link link = {0};
    struct name_list tags = {0};
    struct transfer_source source;
    char warning[300];
    mirror_free(w->m);
    w->config.offline = true;
    cr_assert_eq(mirror_new(&w->config, &w->c, w->store, &w->m, &w->err), 0);
    pulls(w, "v1", ONE, "");
    atomic_store(&skew_s, 100);
    pulls(w, "v1", ONE, "upstream reg.test is offline by configuration");
    cr_assert(strstr(w->a.warning, "last confirmed 100 s ago") ||
                  strstr(w->a.warning, "last confirmed 101 s ago"),
              "%s", w->a.warning);
    pulls(w, digest_text(ONE), ONE, "");
    fails(w, "v2", ERR_NOT_FOUND, "offline by configuration");
    fails(w, LAYER, ERR_NOT_FOUND, "offline by configuration");
    cr_assert_eq(mirror_link(w->m, REPO, &d, &link, &w->err), 1, "%s", w->err.text);
    cr_assert_eq(mirror_source(w->m, &link, &d, &source, &w->err), -1);
    cr_assert_eq(w->err.code, ERR_NOT_FOUND);
    link_done(&link);
    cr_assert_eq(mirror_link(w->m, REPO, &other, &link, &w->err), 0);
    cr_assert_eq(mirror_tags(w->m, REPO, &tags, warning, sizeof(warning), &w->err), 1);
    cr_assert(tags.n == 1 && strstr(warning, "offline"));
    name_list_done(&tags);
    cr_assert_eq(mirror_tags(w->m, "reg.test/no/where", &tags, warning, 300, &w->err), 0);
    mirror_referrers(w->m, REPO, &d, warning, sizeof(warning));
    cr_assert(strstr(warning, "offline"));
    cr_assert_eq(script_count(w->s), 1);
    end(w);
}

/* ---- manifests by digest --------------------------------------------------------------------- */

Test(mirror, fetches_by_digest_once)
{
    struct world *w = world((struct config_upstream){.negative_ttl_s = 60});
    serve_get(w, digest_text(ONE), ONE);
    pulls(w, digest_text(ONE), ONE, "");
    cr_assert(w->a.imported);
    pulls(w, digest_text(ONE), ONE, "");
    cr_assert_not(w->a.imported);
    cr_assert_eq(script_count(w->s), 1);
    serve_get(w, digest_text(TWO), ONE);
    fails(w, digest_text(TWO), ERR_DIGEST_MISMATCH, "hashes to");
    script_reply(w->s, "GET ", "{}", "404 Not Found");
    fails(w, digest_text(TWO), ERR_NOT_FOUND, "has no manifest sha256:");
    fails(w, digest_text(TWO), ERR_NOT_FOUND, "has no manifest sha256:");
    cr_assert_eq(script_count(w->s), 3);
    end(w);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

Test(mirror, links_blobs_to_the_upstream)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60, .max_blob = 100});
    struct digest d = digest_at(LAYER), other = digest_at(digest_text("other"));
    struct link link = {0};
    cr_assert_eq(mirror_link(w->m, "reg.test/app", &d, &link, &w->err), 1, "%s", w->err.text);
    cr_assert(link.size == 3 && !link.held && link.has_origin);
    cr_assert_str_eq(link.origin.upstream, "reg.test");
    cr_assert_str_eq(link.origin.repo_id, "library/app");
    link_done(&link);
    cr_assert_eq(script_count(w->s), 1);
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "200 OK\r\nContent-Length: 5");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(mirror_link(w->m, REPO, &other, &link, &w->err), 1, "%s", w->err.text);
        cr_assert(link.size == 5 && link.has_origin);
        link_done(&link);
    }
    /* Another repository's link is none here. */
    script_reply(w->s, "HEAD /v2/team/b/blobs/", NULL, "404 No\r\nContent-Length: 0");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(mirror_link(w->m, "reg.test/team/b", &other, &link, &w->err), 0);
    cr_assert_eq(script_count(w->s), 3);
    script_reply(w->s, "HEAD /v2/team/c/blobs/", NULL, "200 OK\r\nContent-Length: 101");
    for (int i = 0; i < 2; i++) {
        w->err = ERROR_INIT;
        cr_assert_eq(mirror_link(w->m, "reg.test/team/c", &other, &link, &w->err), -1);
        cr_assert(w->err.code == ERR_TOO_LARGE && strstr(w->err.text, "101 bytes"), "%s",
                  w->err.text);
    }
    cr_assert_eq(script_count(w->s), 4);
    end(w);
}

static uint64_t size_of(struct world *w, const struct digest *d)
{
    struct link link = {0};
    cr_assert_eq(mirror_link(w->m, REPO, d, &link, &w->err), 1, "%s", w->err.text);
    cr_assert(link.has_origin);
    uint64_t size = link.size;
    link_done(&link);
    return size;
}

Test(mirror, takes_a_wrong_size_back)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 60});
    struct digest other = digest_at(digest_text("other"));
    uint64_t size;
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "200 OK\r\nContent-Length: 0");
    cr_assert_eq(size_of(w, &other), 0);
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "200 OK\r\nContent-Length: 5");
    cr_assert_eq(mirror_ask_size(w->m, REPO, &other, &size, &w->err), 1, "%s", w->err.text);
    cr_assert(size == 5 && size_of(w, &other) == 0, "it only asks");
    cr_assert_eq(mirror_resize(w->m, REPO, &other, size, &w->err), 0, "%s", w->err.text);
    cr_assert_eq(size_of(w, &other), 5);
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "404 No\r\nContent-Length: 0");
    cr_assert_eq(mirror_ask_size(w->m, REPO, &other, &size, &w->err), 0);
    /* What turned out to be of no use is not asked for again at once. */
    unsigned before = script_count(w->s);
    struct error why = ERROR_INIT;
    err_set(&why, ERR_DIGEST_MISMATCH, "other bytes");
    mirror_size_refuted(w->m, REPO, &other, &why);
    w->err = ERROR_INIT;
    cr_assert_eq(mirror_ask_size(w->m, REPO, &other, &size, &w->err), -1);
    cr_assert(w->err.code == ERR_DIGEST_MISMATCH && strstr(w->err.text, "other bytes"));
    cr_assert_eq(script_count(w->s), before);
    end(w);
}

/* Of manifests that say different sizes none is believed; the registry itself is asked, once. */
Test(mirror, asks_for_a_size_that_manifests_disagree_about)
{
    struct world *w = with_v1((struct config_upstream){.negative_ttl_s = 0});
    struct digest d = digest_at(LAYER);
    static const char bad[] = IMAGE("4"), worse[] = IMAGE("5");
    cr_assert_eq(size_of(w, &d), 3);
    serve_head(w, "v2", bad);
    serve_get(w, digest_text(bad), bad);
    pulls(w, "v2", bad, "");
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "200 OK\r\nContent-Length: 3");
    unsigned before = script_count(w->s);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(size_of(w, &d), 3);
    cr_assert_eq(script_count(w->s), before + 1);
    serve_head(w, "v3", worse);
    serve_get(w, digest_text(worse), worse);
    pulls(w, "v3", worse, "");
    before = script_count(w->s);
    cr_assert_eq(size_of(w, &d), 3, "its own word stays");
    cr_assert_eq(script_count(w->s), before);
    end(w);
}

Test(mirror, passes_layers_through_that_need_not_be_distributed)
{
    static const char image[] =
        "{\"schemaVersion\":2,\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"config\":{\"mediaType\":"
        "\"a/config\",\"digest\":\"" CONFIG "\",\"size\":4},\"layers\":[{\"mediaType\":"
        "\"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip\",\"digest\":\"" LAYER
        "\",\"size\":3,\"urls\":[\"https://x.test/l\"]}]}";
    struct world *w = world((struct config_upstream){.negative_ttl_s = 0});
    struct digest d = digest_at(LAYER);
    struct link link = {0};
    serve_get(w, "v1", image);
    pulls(w, "v1", image, "");
    script_reply(w->s, "HEAD ", NULL, "404 No\r\nContent-Length: 0");
    cr_assert_eq(mirror_link(w->m, REPO, &d, &link, &w->err), 0);
    script_reply(w->s, "HEAD ", NULL, "200 OK\r\nContent-Length: 3");
    cr_assert_eq(mirror_link(w->m, REPO, &d, &link, &w->err), 1, "%s", w->err.text);
    link_done(&link);
    end(w);
}

Test(mirror, peer_bug_36_passes_through_what_can_not_be_stored)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    struct digest d = digest_at(digest_text("other"));
    struct rlimit none = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY}, before;
    struct link link = {0};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    serve_head(w, "v2", TWO);
    serve_get(w, digest_text(TWO), TWO);
    pulls(w, "v2", TWO, "");
    cr_assert(w->a.imported);
    serve_get(w, digest_text(TWO), TWO);
    pulls(w, digest_text(TWO), TWO, "");
    script_reply(w->s, "HEAD /v2/library/app/blobs/", NULL, "200 OK\r\nContent-Length: 5");
    cr_assert_eq(mirror_link(w->m, REPO, &d, &link, &w->err), 1, "%s", w->err.text);
    cr_assert(link.size == 5 && link.has_origin && !link.held);
    cr_assert_str_eq(link.origin.repo_id, "library/app");
    link_done(&link);
    pulls(w, "v1", ONE, "");
    struct tag tag;
    cr_assert_eq(store_tag_get(w->store, REPO, "v2", &tag, NULL), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    end(w);
}

/* ---- lists ----------------------------------------------------------------------------------- */

Test(mirror, merges_lists)
{
    static char *a[] = {(char *)"a", (char *)"b", (char *)"d"},
                *b[] = {(char *)"b", (char *)"c", (char *)"d", (char *)"e"};
    struct name_list x = {.names = a, .n = 3}, y = {.names = b, .n = 4}, l;
    cr_assert_eq(name_list_merge(&x, &y, &l, NULL), 0);
    cr_assert_eq(l.n, 5);
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(l.names[i][0], "abcde"[i]);
    name_list_done(&l);
}

static size_t tags_of(struct world *w, const char *repository, const char *warning)
{
    struct name_list l = {0};
    char said[300];
    w->err = ERROR_INIT;
    int rc = mirror_tags(w->m, repository, &l, said, sizeof(said), &w->err);
    cr_assert_eq(rc, 1, "%d %s", rc, w->err.text);
    cr_assert(*warning ? strstr(said, warning) != NULL : !*said, "%s", said);
    size_t n = l.n;
    name_list_done(&l);
    return n;
}

Test(mirror, lists_tags_of_both)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    script_reply(w->s, "GET /v2/library/app/tags/list?", "{\"tags\":[\"a\",\"v1\",\"z\"]}",
                 "200 OK");
    cr_assert_eq(tags_of(w, REPO, ""), 3);
    cr_assert_eq(tags_of(w, "reg.test/app", ""), 3);
    cr_assert_eq(script_count(w->s), 2, "a list counts for a while");
    atomic_store(&skew_s, 61);
    script_reply(w->s, "GET ", "", "500 Oops");
    cr_assert_eq(tags_of(w, REPO, "answered 500"), 3);
    script_reply(w->s, "GET ", "{}", "404 Not Found");
    struct name_list l;
    char warning[300];
    cr_assert_eq(mirror_tags(w->m, "reg.test/no/where", &l, warning, 300, &w->err), 0);
    script_reply(w->s, "GET ", "", "500 Oops");
    cr_assert_eq(mirror_tags(w->m, "reg.test/some/where", &l, warning, 300, &w->err), -1);
    cr_assert_eq(w->err.code, ERR_UPSTREAM);
    end(w);
}

Test(mirror, peer_bug_85_brings_referrers_up_to_date)
{
    struct world *w = with_v1((struct config_upstream){.tag_ttl_s = 60});
    struct digest d = digest_at(digest_text(ONE));
    struct referrer_list l = {0};
    char warning[300];
    script_reply(w->s, "GET /v2/library/app/referrers/sha256:",
                 "{\"manifests\":[{\"mediaType\":\"" OCI_IMAGE_TYPE
                 "\",\"size\":7,\"digest\":\"" LAYER
                 "\",\"artifactType\":\"a/sig\",\"annotations\":{\"k\":\"v\"}}]}",
                 "200 OK");
    for (int i = 0; i < 2; i++) {
        mirror_referrers(w->m, REPO, &d, warning, sizeof(warning));
        cr_assert_str_eq(warning, "");
    }
    cr_assert_eq(script_count(w->s), 2);
    atomic_store(&skew_s, 61);
    script_reply(w->s, "GET ", "", "500 Oops");
    mirror_referrers(w->m, REPO, &d, warning, sizeof(warning));
    cr_assert(strstr(warning, "answered 500"), "%s", warning);
    cr_assert_eq(store_referrers(w->store, REPO, &d, NULL, NULL, 10, 1 << 20, &l, &w->err), 0);
    cr_assert_eq(l.n, 1);
    cr_assert_str_eq(l.items[0].artifact_type, "a/sig");
    referrer_list_done(&l);
    end(w);
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define CLIENTS 64

struct client {
    struct world *w;
    pthread_barrier_t *ready;
    const char *what;
    int rc;
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    struct reference r;
    struct manifest_answer a = {0};
    struct error err = ERROR_INIT;
    reference_make(REPO, c->what, &r, NULL);
    pthread_barrier_wait(c->ready);
    c->rc = mirror_manifest(c->w->m, &r, &a, &err);
    manifest_answer_done(&a);
    return NULL;
}

static void crowd(struct world *w, const char *what)
{
    pthread_barrier_t ready;
    pthread_t threads[CLIENTS];
    struct client clients[CLIENTS];
    pthread_barrier_init(&ready, NULL, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .ready = &ready, .what = what};
        cr_assert_eq(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(clients[i].rc, 0);
    }
    pthread_barrier_destroy(&ready);
}

Test(mirror, peer_bug_20_asks_once_for_a_crowd)
{
    struct world *w = world((struct config_upstream){.tag_ttl_s = 60});
    serve_get(w, "v1", ONE);
    crowd(w, "v1");
    cr_assert_eq(script_count(w->s), 1);
    atomic_store(&skew_s, 61);
    serve_head(w, "v1", ONE);
    crowd(w, "v1");
    cr_assert_eq(script_count(w->s), 2);
    end(w);
}

/* ---- what is remembered ---------------------------------------------------------------------- */

Test(mirror, forgets_the_oldest_note)
{
    struct notes n = {0};
    struct error answer = {.code = ERR_NOT_FOUND, .text = "no"}, got = ERROR_INIT;
    char key[32];
    bool gone = false;
    cr_assert_eq(notes_init(&n, NULL), 0);
    for (unsigned i = 0; i <= NOTES_MAX; i++) {
        snprintf(key, sizeof(key), "%u", i);
        notes_put(&n, key, 60, &answer, true);
    }
    cr_assert_not(notes_get(&n, "0", &got, &gone));
    cr_assert(notes_get(&n, "1", &got, &gone) && gone && got.code == ERR_NOT_FOUND);
    cr_assert(notes_get(&n, key, NULL, NULL));
    atomic_store(&skew_s, 60);
    cr_assert_not(notes_get(&n, key, NULL, NULL));
    notes_put(&n, key, 0, &answer, true); /* not at all */
    cr_assert_not(notes_get(&n, key, NULL, NULL));
    notes_done(&n);
}
