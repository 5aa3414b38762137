/* What the Hub's own API asks of its client: ids of all kinds, heads of files, documents, tokens.
 */
#include "hub_env.h"

#define CDN "\r\nLocation: http://cdn.invalid/x?sig=s3cret"

Test(hub_api, knows_kinds)
{
    char id[REPOSITORY_MAX + 1];
    const char *rest;
    cr_assert(hub_id_kind("datasets/o/d", &rest) == HUB_DATASET && strcmp(rest, "o/d") == 0);
    cr_assert(hub_id_kind("spaces/s", &rest) == HUB_SPACE && strcmp(rest, "s") == 0);
    cr_assert(hub_id_kind("o/m", &rest) == HUB_MODEL && strcmp(rest, "o/m") == 0);
    cr_assert(hub_id_make(HUB_DATASET, "o/d", id) && strcmp(id, "datasets/o/d") == 0);
    cr_assert(hub_id_make(HUB_MODEL, "gpt2", id) && strcmp(id, "gpt2") == 0);
    cr_assert_not(hub_id_make(HUB_MODEL, "datasets/d", id));
    cr_assert_not(hub_id_make(HUB_DATASET, "spaces/d", id));
    cr_assert_not(hub_id_make(HUB_SPACE, "a/b/c", id));
    char *too_long = malloc(REPOSITORY_MAX);
    memset(too_long, 'a', REPOSITORY_MAX - 1);
    too_long[REPOSITORY_MAX - 1] = '\0';
    cr_assert_not(hub_id_make(HUB_DATASET, too_long, id));
    free(too_long);
}

Test(hub_api, reads_ids_from_urls)
{
    static const struct {
        const char *base, *url, *id;
        int rc;
    } cases[] = {
        {"https://h", "https://h/o/m/resolve/main/a", "o/m", 1},
        {"https://h", "https://h/gpt2/resolve/main/a/resolve/b", "gpt2", 1},
        {"https://h/hf", "https://h/hf/datasets/o/d/resolve/main/a?x=/resolve/", "datasets/o/d", 1},
        {"https://h/hf", "https://h/o/m/resolve/main/a", "o/m", 1},
        {"https://h", "https://h/api/resolve-cache/models/o/m/c/a/resolve/b", "", 0},
        {"https://h", "https://h/login?next=/o/m/resolve/main/a", "", 0},
        {"https://h", "https://h", "", 0},
        {"https://h", "https://h/resolve/main/a", "", -1},
        {"https://h", "https://h/a/b/c/resolve/main/a", "", -1},
        {"https://h", "https://h/../m/resolve/main/a", "", -1},
        {"https://h", "https://h/o%2Fm/resolve/main/a", "", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[REPOSITORY_MAX + 1] = "";
        cr_assert_eq(hub_id_of_url(cases[i].base, cases[i].url, id), cases[i].rc, "%s",
                     cases[i].url);
        cr_assert_str_eq(id, cases[i].id);
    }
}

/* ---- heads of files -------------------------------------------------------------------------- */

Test(hub_api, heads_a_large_file_in_one_request)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_head f;
    char hex[DIGEST_TEXT_MAX];
    script_reply(e->hub, "HEAD /datasets/o/d/resolve/refs%2Fpr%2F1/a%20dir/m.bin ", NULL,
                 "302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Size: 10\r\nX-Linked-ETag: \"" SHA
                 "\"" CDN);
    worked(e, hub_head_file(e->h, "datasets/o/d", "refs/pr/1", "a dir/m.bin", &f, NULL, &e->err));
    cr_assert_str_eq(f.id, "datasets/o/d");
    cr_assert_str_eq(f.commit, COMMIT);
    cr_assert(f.has_lfs && f.size == 10);
    cr_assert_str_eq(digest_format_hex(&f.sha256, hex), SHA);
    cr_assert_eq(script_count(e->hub), 1);
    /* another mirror, which gives the bytes itself */
    script_reply(e->hub, "HEAD " RESOLVE "m.bin ", "1234567890",
                 "200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: " SHA);
    worked(e, hub_head_file(e->h, "o/m", COMMIT, "m.bin", &f, NULL, &e->err));
    cr_assert(f.has_lfs && f.size == 10);
    env_free(e);
}

Test(hub_api, heads_a_small_file_in_two_requests)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_head f;
    script_reply(e->hub, "HEAD /o/m/resolve/main/config.json ", NULL,
                 "307 T\r\nLocation: /api/resolve-cache/models/o/m/" COMMIT "/config.json?a=b");
    script_reply(e->hub, "HEAD /api/resolve-cache/models/o/m/" COMMIT "/config.json?a=b ", NULL,
                 "200 OK\r\nContent-Length: 6\r\nX-Repo-Commit: " COMMIT "\r\nETag: W/\"" HELLO_OID
                 "\"");
    worked(e, hub_head_file(e->h, "o/m", NULL, "config.json", &f, NULL, &e->err));
    cr_assert_str_eq(f.id, "o/m");
    cr_assert_str_eq(f.commit, COMMIT);
    cr_assert_str_eq(f.git_oid, HELLO_OID);
    cr_assert(!f.has_lfs && f.size == 6 && f.sha256.alg == DIGEST_NONE);
    cr_assert_eq(script_count(e->hub), 2);
    /* private and bare repositories, and empty files: no redirect */
    script_reply(e->hub, "HEAD /gpt2/resolve/main/empty ", "",
                 "200 OK\r\nX-Repo-Commit: " COMMIT
                 "\r\nETag: \"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\"");
    worked(e, hub_head_file(e->h, "gpt2", "main", "empty", &f, NULL, &e->err));
    cr_assert_str_eq(f.id, "gpt2");
    cr_assert(!f.has_lfs && f.size == 0);
    env_free(e);
}

Test(hub_api, follows_a_rename)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_head f;
    script_reply(e->hub, "HEAD /old/m/resolve/main/m.bin ", NULL,
                 "307 T\r\nLocation: /New/M/resolve/main/m.bin");
    script_reply(e->hub, "HEAD /New/M/resolve/main/m.bin ", NULL,
                 "302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Size: 10\r\nX-Linked-ETag: \"" SHA
                 "\"" CDN);
    worked(e, hub_head_file(e->h, "old/m", "main", "m.bin", &f, NULL, &e->err));
    cr_assert_str_eq(f.id, "New/M");
    /* not into another kind, and not into nothing */
    static const char *const strange[] = {"/datasets/o/d", "/a/b/c", "/.."};
    for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
        char get[300];
        snprintf(get, sizeof(get), "HEAD %s/resolve/main/m.bin ", strange[i]);
        script_reply(e->hub, "HEAD /old/m/resolve/main/m.bin ", NULL,
                     "307 T\r\nLocation: %s/resolve/main/m.bin", strange[i]);
        script_reply(e->hub, get, "",
                     "200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"" HELLO_OID "\"");
        failed(e, hub_head_file(e->h, "old/m", "main", "m.bin", &f, NULL, &e->err), ERR_UPSTREAM,
               "a redirect leads to something that is no repository");
    }
    env_free(e);
}

Test(hub_api, names_the_header_that_is_wrong)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_head f;
    static const struct {
        const char *head, *why;
    } cases[] = {
        {"200 OK\r\nContent-Length: 6\r\nETag: \"" HELLO_OID "\"", "no X-Repo-Commit"},
        {"200 OK\r\nContent-Length: 6\r\nX-Repo-Commit: main\r\nETag: \"" HELLO_OID "\"",
         "X-Repo-Commit is no commit: main"},
        {"200 OK\r\nContent-Length: 6\r\nX-Repo-Commit: " OTHER_COMMIT "\r\nETag: \"" HELLO_OID
         "\"",
         "X-Repo-Commit is " OTHER_COMMIT ", asked was " COMMIT},
        {"200 OK\r\nContent-Length: 6\r\nX-Repo-Commit: " COMMIT, "no ETag in the answer"},
        {"200 OK\r\nContent-Length: 6\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"abc-gzip\"",
         "ETag is no sha256 and no git object id: \"abc-gzip\""},
        {"200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"" HELLO_OID "\"", "no X-Linked-Size"},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Size: 6\r\nX-Linked-Etag: \"" HELLO_OID
         "\"" CDN,
         "X-Linked-Etag is no sha256: "},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Size: -6\r\nX-Linked-Etag: \"" SHA
         "\"" CDN,
         "malformed X-Linked-Size"},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Etag: \"" SHA "\"" CDN,
         "no X-Linked-Size"},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"" SHA "\"" CDN, "no X-Linked-Etag"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        script_reply(e->hub, "HEAD " RESOLVE "f ", NULL, "%s", cases[i].head);
        failed(e, hub_head_file(e->h, "o/m", COMMIT, "f", &f, NULL, &e->err), ERR_UPSTREAM,
               cases[i].why);
    }
    env_free(e);
}

static int head(struct env *e, const char *revision, const char *answer, struct hub_head *f,
                enum hub_missing *missing)
{
    script_reply(e->hub, "HEAD /o/m/resolve/", "", "%s", answer);
    *missing = HUB_MISSING_NONE;
    return hub_head_file(e->h, "o/m", revision, "f", f, missing, &e->err);
}

Test(hub_api, says_what_is_missing)
{
    struct env *e = env_new(NULL, 0);
    struct hub_head f;
    enum hub_missing missing;
    failed(e,
           head(e, "main", "404 N\r\nX-Error-Code: EntryNotFound\r\nX-Repo-Commit: " COMMIT, &f,
                &missing),
           ERR_NOT_FOUND, "hf/o/m has no file f at main");
    cr_assert_eq(missing, HUB_MISSING_ENTRY);
    cr_assert_str_eq(f.commit, COMMIT);
    cr_assert_str_eq(f.id, "o/m");
    /* of a moment's commit, which nobody knows */
    failed(e, head(e, "main", "404 N\r\nX-Error-Code: EntryNotFound", &f, &missing), ERR_NOT_FOUND,
           "has no file");
    cr_assert_eq(missing, HUB_MISSING_ENTRY);
    cr_assert_str_empty(f.commit);
    failed(e, head(e, COMMIT, "404 N\r\nX-Error-Code: EntryNotFound", &f, &missing), ERR_NOT_FOUND,
           "has no file");
    cr_assert_str_eq(f.commit, COMMIT);
    failed(e, head(e, "v9", "404 N\r\nX-Error-Code: RevisionNotFound", &f, &missing), ERR_NOT_FOUND,
           "has no revision v9");
    cr_assert_eq(missing, HUB_MISSING_REVISION);
    failed(e, head(e, "main", "401 U\r\nX-Error-Code: RepoNotFound", &f, &missing), ERR_NOT_FOUND,
           "no token is configured");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    failed(e, head(e, "main", "401 U\r\nX-Error-Code: GatedRepo", &f, &missing), ERR_UNAUTHORIZED,
           "gated");
    cr_assert_eq(missing, HUB_MISSING_GATED);
    failed(e, head(e, "main", "404 N", &f, &missing), ERR_NOT_FOUND, "answered 404");
    cr_assert_eq(missing, HUB_MISSING_NONE);
    /* a proxy in between that repeats a code */
    failed(e, head(e, "main", "502 B\r\nX-Error-Code: EntryNotFound", &f, &missing), ERR_UPSTREAM,
           "answered 502");
    cr_assert_eq(missing, HUB_MISSING_NONE);

    unsigned before = script_count(e->hub);
    failed(e, hub_head_file(e->h, "o/m", "main", "../f", &f, &missing, &e->err), ERR_NOT_FOUND,
           "no file can have that name");
    cr_assert_eq(missing, HUB_MISSING_ENTRY);
    failed(e, hub_head_file(e->h, "o/m", "a..b", "f", &f, &missing, &e->err), ERR_NOT_FOUND,
           "no revision a..b");
    cr_assert_eq(missing, HUB_MISSING_REVISION);
    failed(e, hub_head_file(e->h, "datasets", "main", "f", &f, &missing, &e->err), ERR_NOT_FOUND,
           "can not be");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    cr_assert_eq(script_count(e->hub), before);
    env_free(e);
}

/* ---- info, lists, documents ------------------------------------------------------------------ */

Test(hub_api, hands_over_the_info)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_revision r;
    struct strbuf json = STRBUF_INIT;
    enum hub_missing missing;
    script_reply(e->hub, "GET /api/datasets/o/d/revision/v1 ", INFO("O/d", COMMIT), "200 OK");
    worked(e, hub_info(e->h, "datasets/o/d", "v1", &json, &r, &missing, &e->err));
    cr_assert_str_eq(r.id, "datasets/O/d");
    cr_assert_str_eq(r.commit, COMMIT);
    cr_assert_str_eq(strbuf_str(&json), INFO("O/d", COMMIT));
    strbuf_reset(&json);
    script_reply(e->hub, "GET /api/spaces/s ", INFO("datasets/s", COMMIT), "200 OK");
    failed(e, hub_info(e->h, "spaces/s", NULL, &json, &r, &missing, &e->err), ERR_UPSTREAM,
           "\"id\" is no repository's name: datasets/s");
    cr_assert_eq(json.len, 0);
    /* an import takes models alone */
    failed(e, hub_resolve(e->h, "datasets/o/d", NULL, &r, &missing, &e->err), ERR_NOT_FOUND,
           "can not be a model");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    failed(e, hub_resolve(e->h, "datasets/d", NULL, &r, &missing, &e->err), ERR_NOT_FOUND,
           "can not be a model");
    cr_assert_eq(script_count(e->hub), 2);
    strbuf_done(&json);
    env_free(e);
}

Test(hub_api, lists_folders)
{
    struct env *e = env_new(NULL, 0);
    struct commit_files list;
    struct strbuf folders = STRBUF_INIT;
    const char *get = "GET /api/datasets/o/d/tree/" COMMIT "?recursive=true&expand=false ";
#define FOLDER(path)                                                                               \
    "{\"type\":\"directory\",\"size\":0,\"path\":\"" path "\",\"oid\":\"" HELLO_OID "\"}"
    script_reply(e->hub, get, "[" FOLDER("z") "," FILE_JSON("z/b", ",\"size\":6") "]",
                 "200 OK\r\nLink: <?2>; rel=\"next\"");
    script_reply(e->hub, "GET /api/datasets/o/d/tree/" COMMIT "?2 ", "[" FOLDER("z/a") "]",
                 "200 OK");
    worked(e, hub_files_and_folders(e->h, "datasets/o/d", COMMIT, &list, &folders, &e->err));
    cr_assert_eq(list.n, 1);
    const char want[] = "z\0" HELLO_OID "\0z/a\0" HELLO_OID;
    cr_assert(folders.len == sizeof(want) && memcmp(folders.data, want, sizeof(want)) == 0);
    commit_files_done(&list);
    static const char *const bad[] = {FOLDER("../z"), "{\"type\":\"directory\",\"path\":\"z\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char body[256];
        snprintf(body, sizeof(body), "[%s]", bad[i]);
        script_reply(e->hub, get, body, "200 OK");
        failed(e, hub_files_and_folders(e->h, "datasets/o/d", COMMIT, &list, &folders, &e->err),
               ERR_UPSTREAM, i ? "z: \"oid\" is no" : "a folder has no safe");
    }
    cr_assert_eq(folders.len, sizeof(want));
    strbuf_done(&folders);
    env_free(e);
}

Test(hub_api, joins_pages)
{
    struct env *e = env_new("s3cret", 0);
    struct strbuf json = STRBUF_INIT;
    enum hub_missing missing;
    uint64_t total = 99;
    script_reply(e->hub, "GET /api/models/o/m/commits/main ", " [1,\"]\" ] \n",
                 "200 OK\r\nX-Total-Count: 7\r\nLink: <?2>; rel=\"next\"");
    script_reply(e->hub, "GET /api/models/o/m/commits/main?2 ", "[ ]",
                 "200 OK\r\nLink: <?3>; rel=\"next\"");
    script_reply(e->hub, "GET /api/models/o/m/commits/main?3 ", "[{}]", "200 OK");
    strbuf_puts(&json, "x:");
    worked(e, hub_document(e->h, "o/m", "/commits/main", true, &json, &total, &missing, &e->err));
    cr_assert_str_eq(strbuf_str(&json), "x:[1,\"]\",{}]");
    cr_assert_eq(total, 7);
    strbuf_reset(&json);

    script_reply(e->hub, "GET /api/models/o/m ", " {\"a\":1}", "200 OK\r\nX-Total-Count: x");
    worked(e, hub_document(e->h, "o/m", "", false, &json, &total, NULL, &e->err));
    cr_assert_str_eq(strbuf_str(&json), " {\"a\":1}");
    cr_assert_eq(total, 0);
    strbuf_reset(&json);

    script_reply(e->hub, "GET /api/models/o/m/tree/main/x ", "",
                 "404 N\r\nX-Error-Code: EntryNotFound");
    failed(e, hub_document(e->h, "o/m", "/tree/main/x", true, &json, NULL, &missing, &e->err),
           ERR_NOT_FOUND, "has nothing at");
    cr_assert_eq(missing, HUB_MISSING_ENTRY);
    script_reply(e->hub, "GET /api/models/o/m/x ", "[1]", "200 OK\r\nLink: <?a>; rel=next");
    script_reply(e->hub, "GET /api/models/o/m/x?a ", "{}", "200 OK");
    failed(e, hub_document(e->h, "o/m", "/x", true, &json, NULL, NULL, &e->err), ERR_UPSTREAM,
           "no array");
    script_reply(e->hub, "GET /api/models/o/m/x ", "[1]", "200 OK\r\nLink: <%s>; rel=next",
                 script_url(e->cdn, "/"));
    failed(e, hub_document(e->h, "o/m", "/x", true, &json, NULL, NULL, &e->err), ERR_UPSTREAM,
           "another host");
    script_reply(e->hub, "GET /api/models/o/m/x ", "{\"a\":1,}", "200 OK");
    failed(e, hub_document(e->h, "o/m", "/x", false, &json, NULL, NULL, &e->err), ERR_UPSTREAM,
           "/api/models/o/m/x: ");
    cr_assert_eq(json.len, 0);
    cr_assert_eq(script_count(e->cdn), 0);
    strbuf_done(&json);
    env_free(e);
}

/* ---- whose token ----------------------------------------------------------------------------- */

Test(hub_api, sends_the_token_of_the_repository)
{
    struct config_token_file files[] = {
        {.repositories = (char *)"acme/*", .file = (char *)"/run/acme", .token = (char *)"acmetok"},
        {.repositories = (char *)"datasets/*",
         .file = (char *)"/run/d",
         .token = (char *)"datatok"}};
    struct env *e = env_new("s3cret", 0);
    enum hub_missing missing;
    e->config.token_files = files;
    e->config.n_token_files = 2;
    cr_assert_str_eq(hub_token_of(e->h, "Acme/x"), "acmetok");
    cr_assert_str_eq(hub_token_of(e->h, "datasets/acme/x"), "datatok");
    cr_assert_str_eq(hub_token_of(e->h, "o/m"), "s3cret");
    script_reply(e->hub, "GET /api/models/Acme/x/auth-check ", "",
                 "403 F\r\nX-Error-Code: GatedRepo");
    failed(e, hub_check(e->h, "Acme/x", &missing, &e->err), ERR_DENIED,
           "the token from /run/acme may not read it");
    cr_assert_eq(missing, HUB_MISSING_GATED);
    cr_assert(script_saw(e->hub, "Bearer acmetok\r\n"));
    cr_assert_not(script_saw(e->hub, "s3cret"));
    /* and with what is to be downloaded */
    struct http_location l = {0};
    struct digest d;
    cr_assert_eq(digest_parse_hex(DIGEST_SHA256, SHA, &d, NULL), 0);
    script_reply(e->hub, "HEAD /acme/x/resolve/" COMMIT "/m.bin ", "1234567890",
                 "200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: " SHA);
    worked(e, hub_locate(e->h, "acme/x", COMMIT, "m.bin", &d, 10, &l, &e->err));
    cr_assert_str_eq(l.bearer, "acmetok");
    http_location_done(&l);
    env_free(e);
}

/* One auth-check on a client's behalf. */
static int check_as(struct env *e, const char *token, const char *answer, enum hub_missing *missing)
{
    struct hub *as = hub_as(e->h, &(struct hub_asking){.has_token = true, .token = token});
    script_reply(e->hub, "GET /api/models/o/m/auth-check ", "{}", "%s", answer);
    *missing = HUB_MISSING_NONE;
    int rc = hub_check(as, "o/m", missing, &e->err);
    hub_free(as);
    return rc;
}

Test(hub_api, asks_on_behalf_of_a_client)
{
    struct env *e = env_new("s3cret", 0);
    enum hub_missing missing;
    worked(e, check_as(e, "client1", "200 OK", &missing));
    cr_assert(script_saw(e->hub, "Bearer client1\r\n"));
    worked(e, check_as(e, NULL, "200 OK", &missing));
    failed(e, check_as(e, NULL, "401 U\r\nX-Error-Code: GatedRepo", &missing), ERR_UNAUTHORIZED,
           "is gated and the client sent no token: accept its terms on the Hub and log in (`hf "
           "auth login`");
    cr_assert_eq(missing, HUB_MISSING_GATED);
    failed(e, check_as(e, "client1", "403 F\r\nX-Error-Code: GatedRepo", &missing), ERR_DENIED,
           "the token that the client sent may not read it");
    cr_assert_eq(missing, HUB_MISSING_GATED);
    failed(e, check_as(e, NULL, "401 U\r\nX-Error-Code: RepoNotFound", &missing), ERR_NOT_FOUND,
           "private and the client sent no token");
    failed(e, check_as(e, "client1", "404 N\r\nX-Error-Code: RepoNotFound", &missing),
           ERR_NOT_FOUND, "the token that the client sent has no access to it");
    failed(e,
           check_as(e, "client1",
                    "401 U\r\nX-Error-Message: Invalid credentials in Authorization header",
                    &missing),
           ERR_UNAUTHORIZED, "the token that the client sent was refused");
    cr_assert_eq(missing, HUB_MISSING_TOKEN);
    failed(e,
           check_as(e, NULL, "401 U\r\nX-Error-Message: Invalid username or password.", &missing),
           ERR_UNAUTHORIZED, "the client sent no token");
    cr_assert_eq(missing, HUB_MISSING_NONE);
    failed(e, check_as(e, "bad\r\nX: y", "200 OK", &missing), ERR_INVALID, "line end");
    cr_assert_not(script_saw(e->hub, "s3cret"));
    env_free(e);
}

Test(hub_api, says_who_somebody_is)
{
    struct env *e = env_new("s3cret", 0);
    struct strbuf json = STRBUF_INIT;
    enum hub_missing missing;
    script_reply(e->hub, "GET /api/whoami-v2 ", "{\"name\":\"ann\"}", "200 OK");
    struct hub *as = hub_as(e->h, &(struct hub_asking){.has_token = true, .token = "client1"});
    worked(e, hub_whoami(as, &json, &missing, &e->err));
    cr_assert_str_eq(strbuf_str(&json), "{\"name\":\"ann\"}");
    cr_assert(script_saw(e->hub, "Bearer client1\r\n"));
    script_reply(e->hub, "GET /api/whoami-v2 ", "{\"error\":\"Invalid username or password.\"}",
                 "401 U");
    failed(e, hub_whoami(as, &json, &missing, &e->err), ERR_UNAUTHORIZED, "was refused");
    cr_assert_eq(missing, HUB_MISSING_TOKEN);
    hub_free(as);
    strbuf_done(&json);
    env_free(e);
}

/* ---- small files as they come ---------------------------------------------------------------- */

static int collect(void *ctx, const void *data, size_t len, struct error *err)
{
    struct strbuf *b = ctx;
    if (b->cap == 1) /* a reader that has gone */
        return err_set(err, ERR_CANCELLED, "nobody wants it");
    strbuf_put(b, data, len);
    return 0;
}

Test(hub_api, streams_small_files)
{
    struct env *e = env_new("s3cret", 2);
    struct strbuf b = STRBUF_INIT;
    struct commit_file f = {.path = "f", .size = 6, .git_oid = HELLO_OID};
    const char *get = "GET " RESOLVE "f ";
    script_reply(e->hub, get, "",
                 "307 T\r\nX-Repo-Commit: " COMMIT "\r\nLocation: /api/resolve-cache/x?a");
    script_reply(e->hub, "GET /api/resolve-cache/x?a ", "hello\n", "200 OK");
    worked(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err));
    cr_assert_str_eq(strbuf_str(&b), "hello\n");
    cr_assert(script_saw(e->hub, "Accept-Encoding: identity\r\n"));
    strbuf_reset(&b);
    /* what has failed before a byte came is tried again, what broke later is the caller's matter */
    script_reply(e->hub, get, "", "503 Busy");
    script_reply(e->hub, get, "hello\n", "200 OK\r\nX-Repo-Commit: " COMMIT);
    worked(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err));
    cr_assert_str_eq(strbuf_str(&b), "hello\n");
    strbuf_reset(&b);
    unsigned before = script_count(e->hub);
    script_add(e->hub, get,
               "HTTP/1.1 200 OK\r\nX-Repo-Commit: " COMMIT "\r\nContent-Length: 6\r\n\r\nhel",
               SCRIPT_CLOSE);
    failed(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err), ERR_UPSTREAM,
           "cut short");
    cr_assert_str_eq(strbuf_str(&b), "hel");
    cr_assert_eq(script_count(e->hub), before + 1);
    strbuf_reset(&b);

    static const struct {
        const char *head, *body, *why;
    } cases[] = {
        {"200 OK", "hello\n", "no X-Repo-Commit"},
        {"200 OK\r\nX-Repo-Commit: " OTHER_COMMIT, "hello\n", "X-Repo-Commit is " OTHER_COMMIT},
        {"200 OK\r\nX-Repo-Commit: " COMMIT, "hello\n!", "Content-Length is 7"},
        {"206 P\r\nX-Repo-Commit: " COMMIT, "hello\n", "answered 206"},
        {"200 OK\r\nContent-Encoding: gzip\r\nX-Repo-Commit: " COMMIT, "hello\n", "gzip"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (unsigned n = 0; n < 3; n++) /* the last one is tried again */
            if (n == 0 || i == ARRAY_LEN(cases) - 1)
                script_reply(e->hub, get, cases[i].body, "%s", cases[i].head);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        failed(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err), ERR_UPSTREAM,
               cases[i].why);
    cr_assert_eq(b.len, 0);
    /* without a length */
    script_add(e->hub, get, "HTTP/1.1 200 OK\r\nX-Repo-Commit: " COMMIT "\r\n\r\nhello\n!",
               SCRIPT_CLOSE);
    failed(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err), ERR_UPSTREAM,
           "more bytes come than the 6");
    strbuf_reset(&b);
    script_add(e->hub, get, "HTTP/1.1 200 OK\r\nX-Repo-Commit: " COMMIT "\r\n\r\nhell",
               SCRIPT_CLOSE);
    failed(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &b, &e->err), ERR_UPSTREAM,
           "4 bytes came, the file has 6");
    strbuf_done(&b);
    struct strbuf gone = {.cap = 1};
    script_reply(e->hub, get, "hello\n", "200 OK\r\nX-Repo-Commit: " COMMIT);
    failed(e, hub_small_stream(e->h, "o/m", COMMIT, &f, collect, &gone, &e->err), ERR_CANCELLED,
           "nobody wants it");
    env_free(e);
}
