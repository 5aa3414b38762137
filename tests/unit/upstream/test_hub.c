#include "hub_env.h"

/* ---- pure parts ------------------------------------------------------------------------------ */

Test(hub, knows_names)
{
    static const char *const ids[] = {"gpt2",         "o/m",        "HuggingFaceTB/SmolLM2-135M",
                                      "datasets/o/m", "datasets/d", "spaces/o/s",
                                      "a_b/c.d-e",    "datasetsx/m"};
    static const char *const no_ids[] = {"datasets",
                                         "spaces/",
                                         "datasets/a/b/c",
                                         "Datasets/m",
                                         "api/models",
                                         "datasets/datasets/m",
                                         "kernels/o/k",
                                         "spaces/datasets/m",
                                         "datasets/.a",
                                         "",
                                         "/",
                                         "a/",
                                         "/a",
                                         "a/b/c",
                                         "a/../b",
                                         "..",
                                         "a/.b",
                                         ".a/b",
                                         "a b",
                                         "a?b",
                                         "a%2Fb/c",
                                         "a/b\n",
                                         "a//b",
                                         "a#b",
                                         "a/b..c"};
    static const char *const revisions[] = {"main",      "v1.0", "refs/pr/1",
                                            "feature/x", "a+b",  "\xc3\xa9"};
    static const char *const no_revisions[] = {"",   "..",   "a..b",  "/a",   "a/",    ".a",
                                               "a.", "a b",  "a~1",   "a^",   "a:b",   "a?b",
                                               "a*", "a\\b", "a\x7f", "\xff", "a@{1}", "a//b"};
    static const char *const paths[] = {
        "a", "a/b", ".gitattributes", "a b+c%2F.txt", "..a/b..", "\xc3\xa9", "a:b", "..."};
    static const char *const no_paths[] = {"",       "/a",   "a/",   "a//b",  ".",
                                           "..",     "a/..", "../a", "./a",   "a/./b",
                                           "a/../b", "a\\b", "a\nb", "a\x7f", "/"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        cr_assert(hub_id_is_valid(ids[i]), "%s", ids[i]);
    for (size_t i = 0; i < ARRAY_LEN(no_ids); i++)
        cr_assert_not(hub_id_is_valid(no_ids[i]), "%s", no_ids[i]);
    for (size_t i = 0; i < ARRAY_LEN(revisions); i++)
        cr_assert(hub_revision_is_valid(revisions[i]), "%s", revisions[i]);
    for (size_t i = 0; i < ARRAY_LEN(no_revisions); i++)
        cr_assert_not(hub_revision_is_valid(no_revisions[i]), "%s", no_revisions[i]);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        cr_assert(hub_path_is_valid(paths[i]), "%s", paths[i]);
    for (size_t i = 0; i < ARRAY_LEN(no_paths); i++)
        cr_assert_not(hub_path_is_valid(no_paths[i]), "%s", no_paths[i]);
    char part[98];
    memset(part, 'a', 97);
    part[97] = '\0';
    cr_assert_not(hub_id_is_valid(part));
    part[96] = '\0';
    cr_assert(hub_id_is_valid(part));
}

Test(hub, normalises_etags)
{
    char hex[65];
    static const char *const good[] = {SHA, "\"" SHA "\"", "W/\"" SHA "\"", "w/\"" SHA "\""};
    static const char *const bad[] = {"",
                                      "\"\"",
                                      "\"" SHA,
                                      SHA "\"",
                                      "\"" SHA "-gzip\"",
                                      "sha256:" SHA,
                                      SHA "a",
                                      "\"" HELLO_OID "\"",
                                      "W/",
                                      "\"" SHA "\"x"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_assert(hub_etag_hex(good[i], 64, hex) && strcmp(hex, SHA) == 0, "%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not(hub_etag_hex(bad[i], 64, hex), "%s", bad[i]);
    cr_assert(hub_etag_hex("\"ABCD\"", 4, hex) && strcmp(hex, "abcd") == 0);
}

Test(hub, finds_the_next_link)
{
    static const struct {
        const char *link, *url;
    } cases[] = {
        {"<https://h/a?cursor=b>; rel=\"next\"", "https://h/a?cursor=b"},
        {"<https://h/a,b;c>;rel=next", "https://h/a,b;c"},
        {"<x>; rel=\"prev\", <y>; title=\"a, <z>; rel=next\"; REL=\"Next\"", "y"},
        {"<x>; rel=\"next last\"", "x"},
        {"<x>; rel=\"nextish\"", NULL},
        {"<x>; xrel=\"next\"", NULL},
        {"<x>; rel=\"xet-auth\"", NULL},
        {"<x>", NULL},
        {"<x", NULL},
        {"rel=next", NULL},
        {"<>; rel=\"next\"", ""},
        {"", NULL},
        {"<x>;", NULL},
        {"<x>; rel=", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *url = http_link_next(cases[i].link);
        if (cases[i].url)
            cr_assert(url && strcmp(url, cases[i].url) == 0, "%s -> %s", cases[i].link, url);
        else
            cr_assert_null(url, "%s -> %s", cases[i].link, url);
    }
}

static enum err_code tree_page(const char *json, struct error *err)
{
    struct hub_tree t = {0};
    struct commit_files list = {0};
    *err = ERROR_INIT;
    if (hub_tree_page(&t, json, strlen(json), err) == 0 && hub_tree_finish(&t, &list, err) == 0)
        commit_files_done(&list);
    hub_tree_done(&t);
    return err->code;
}

Test(hub, refuses_broken_lists)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "JSON"},
        {"{}", "no JSON array of files"},
        {"[1]", "no \"type\""},
        {"[", "no JSON: "},
        {"[{]", "no JSON: "},
        {"[] []", "no JSON: "},
        {"[" FILE_JSON("a", ",\"size\":1") ",]", "no JSON: "},
        {"[" FILE_JSON("a", ",\"size\":1") " {}]", "no JSON: "},
        {"[" FILE_JSON("a", ",\"size\":1") ",{\"a\\u0000\":1}]", "entry 1: "},
        {"[" FILE_JSON("a", ",\"size\":1") ",{\"a\":\"\xff\"}]", "entry 1: "},
        {"[{\"type\":\"file\"}]", "no safe relative \"path\""},
        {"[" FILE_JSON("../a", ",\"size\":1") "]", "no safe relative \"path\""},
        {"[" FILE_JSON("a", "") "]", "a: \"size\" is no size"},
        {"[" FILE_JSON("a", ",\"size\":-1") "]", "a: \"size\" is no size"},
        {"[" FILE_JSON("a", ",\"size\":\"1\"") "]", "a: \"size\" is no size"},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"oid\":\"abc\"}]", "no git object id"},
        {"[" FILE_JSON("a", ",\"size\":1,\"lfs\":{\"oid\":\"" SHA "\",\"size\":2}") "]",
         "lfs.size"},
        {"[" FILE_JSON("a", ",\"size\":1,\"lfs\":true") "]", "lfs.size"},
        {"[" FILE_JSON("a", ",\"size\":1") "," FILE_JSON("a", ",\"size\":1") "]", "listed twice"},
        {"[" FILE_JSON("a", ",\"size\":1,\"size\":2") "]", "twice"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        cr_assert_eq(tree_page(cases[i].json, &err), ERR_UPSTREAM, "%s", cases[i].json);
        cr_assert(strstr(err.text, cases[i].why), "%s: %s", cases[i].json, err.text);
    }
    struct error err;
    cr_assert_eq(tree_page("[]", &err), ERR_NONE);
    cr_assert_eq(tree_page("[{\"type\":\"directory\",\"path\":\"/..\"}]", &err), ERR_NONE);
}

/* ---- against scripted servers ---------------------------------------------------------------- */

Test(hub, resolves_revisions)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_revision r;
    enum hub_missing missing;
    script_reply(e->hub, "GET /api/models/o/m/revision/refs%2Fpr%2F1 ", INFO("o/m", COMMIT),
                 "200 OK");
    worked(e, hub_resolve(e->h, "o/m", "refs/pr/1", &r, &missing, &e->err));
    cr_assert_str_eq(r.id, "o/m");
    cr_assert_str_eq(r.commit, COMMIT);
    cr_assert_eq(missing, HUB_MISSING_NONE);
    cr_assert(script_saw(e->hub, "Authorization: Bearer s3cret\r\n"));

    /* a bare name, and case that the Hub answers by its own spelling behind a redirect */
    script_reply(e->hub, "GET /api/models/gpt2 ", INFO("openai-community/gpt2", COMMIT), "200 OK");
    worked(e, hub_resolve(e->h, "gpt2", NULL, &r, NULL, &e->err));
    cr_assert_str_eq(r.id, "openai-community/gpt2");
    script_reply(e->hub, "GET /api/models/old/m ", "",
                 "307 Temporary Redirect\r\nLocation: /api/models/New/M?x=1");
    script_reply(e->hub, "GET /api/models/New/M?x=1 ", INFO("New/M", COMMIT), "200 OK");
    worked(e, hub_resolve(e->h, "old/m", NULL, &r, NULL, &e->err));
    cr_assert_str_eq(r.id, "New/M");

    struct config_alias alias = {.name = (char *)"a/b", .id = (char *)"A/B"};
    e->config.aliases = &alias;
    e->config.n_aliases = 1;
    script_reply(e->hub, "GET /api/models/A/B ", INFO("A/B", COMMIT), "200 OK");
    worked(e, hub_resolve(e->h, "A/b", NULL, &r, NULL, &e->err));
    cr_assert_str_eq(r.id, "A/B");

    script_reply(e->hub, "GET /api/models/o/m/revision/" COMMIT " ", INFO("o/m", OTHER_COMMIT),
                 "200 OK");
    failed(e, hub_resolve(e->h, "o/m", COMMIT, &r, NULL, &e->err), ERR_UPSTREAM, OTHER_COMMIT);
    static const char *const bad[] = {"[]",
                                      "{",
                                      "{\"id\":\"o/m\"}",
                                      "{\"id\":\"o/m\",\"sha\":\"main\"}",
                                      "{\"sha\":\"" COMMIT "\"}",
                                      INFO("../m", COMMIT)};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        script_reply(e->hub, "GET /api/models/o/m ", bad[i], "200 OK");
        failed(e, hub_resolve(e->h, "o/m", NULL, &r, NULL, &e->err), ERR_UPSTREAM,
               "/api/models/o/m: ");
    }
    env_free(e);
}

/* One resolve of o/m (and revision) against one answer. */
static int refused(struct env *e, const char *revision, enum hub_missing *missing, const char *head,
                   const char *body)
{
    struct hub_revision r;
    script_reply(e->hub, "GET /api/models/o/m", body, "%s", head);
    return hub_resolve(e->h, "o/m", revision, &r, missing, &e->err);
}

Test(hub, explains_refusals)
{
    struct env *e = env_new(NULL, 0);
    enum hub_missing missing;
    const char *no_repo =
        "401 U\r\nX-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not found";
    failed(
        e, refused(e, NULL, &missing, no_repo, ""), ERR_NOT_FOUND,
        "hf/o/m does not exist on the Hub, or it is private and no token is configured (HF_TOKEN");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    failed(e, refused(e, "v9", &missing, "404 N\r\nX-Error-Code: RevisionNotFound", ""),
           ERR_NOT_FOUND, "hf/o/m has no revision v9");
    cr_assert_eq(missing, HUB_MISSING_REVISION);
    failed(e, refused(e, NULL, &missing, "401 U\r\nX-Error-Code: GatedRepo", ""), ERR_UNAUTHORIZED,
           "is gated and no token is configured: accept its terms");
    cr_assert_eq(missing, HUB_MISSING_GATED);
    failed(e, refused(e, NULL, &missing, "401 U", "{\"error\":\"Invalid username or password.\"}"),
           ERR_UNAUTHORIZED, "answered 401: Invalid username or password.; no token is configured");
    failed(e,
           refused(e, NULL, &missing,
                   "403 F\r\nX-Error-Message: Access to this resource is disabled.", ""),
           ERR_DENIED, "Access to this resource is disabled.");
    failed(e, refused(e, NULL, &missing, "500 E", "<html>s3cret</html>"), ERR_UPSTREAM,
           "answered 500");
    struct hub_revision r;

    /* no codes, as from some mirrors */
    failed(e, refused(e, NULL, &missing, "404 N", "{}"), ERR_NOT_FOUND,
           "does not exist on the Hub");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    script_reply(e->hub, "GET /api/models/o/m/revision/v9 ", "", "404 N");
    failed(e, refused(e, "v9", &missing, "200 OK", INFO("o/m", COMMIT)), ERR_NOT_FOUND,
           "no revision v9");
    cr_assert_eq(missing, HUB_MISSING_REVISION);
    script_reply(e->hub, "GET /api/models/o/m/revision/v9 ", "", "404 N");
    failed(e, refused(e, "v9", &missing, "404 N", ""), ERR_NOT_FOUND, "does not exist on the Hub");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);

    unsigned before = script_count(e->hub);
    failed(e, hub_resolve(e->h, "a/b/c", NULL, &r, &missing, &e->err), ERR_NOT_FOUND,
           "<organisation>/<name>");
    cr_assert_eq(missing, HUB_MISSING_REPOSITORY);
    failed(e, hub_resolve(e->h, "o/m", "a..b", &r, &missing, &e->err), ERR_NOT_FOUND,
           "no revision a..b");
    cr_assert_eq(missing, HUB_MISSING_REVISION);
    cr_assert_eq(script_count(e->hub), before);
    env_free(e);

    e = env_new("s3cret", 0);
    failed(e, refused(e, NULL, &missing, no_repo, ""), ERR_NOT_FOUND,
           "private and the token from HF_TOKEN has no access to it");
    failed(e, refused(e, NULL, &missing, "403 F\r\nX-Error-Code: GatedRepo", ""), ERR_DENIED,
           "is gated and the token from HF_TOKEN may not read it");
    failed(e, refused(e, NULL, &missing, "401 U\r\nX-Error-Message: Invalid credentials", ""),
           ERR_UNAUTHORIZED, "Invalid credentials; the token from HF_TOKEN was refused");
    cr_assert_eq(missing, HUB_MISSING_TOKEN);
    env_free(e);
}

Test(hub, keeps_to_its_own_origin)
{
    struct env *e = env_new("s3cret", 0);
    struct hub_revision r;
    char head[512];
    snprintf(head, sizeof(head), "302 F\r\nLocation: %s", script_url(e->cdn, "/x?sig=s3cret"));
    failed(e, refused(e, NULL, NULL, head, ""), ERR_UPSTREAM, "redirects to another host");
    failed(e, refused(e, NULL, NULL, "302 F\r\nLocation: file:///etc/passwd", ""), ERR_UPSTREAM,
           "no http or https URL");
    failed(e, refused(e, NULL, NULL, "302 F", ""), ERR_UPSTREAM, "without a Location");
    cr_assert_eq(script_count(e->cdn), 0);

    script_add(e->hub, "GET /api/models/l/l ",
               "HTTP/1.1 308 P\r\nLocation: /api/models/l/l\r\nContent-Length: 0\r\n\r\n",
               SCRIPT_KEEP)
        ->forever = true;
    unsigned before = script_count(e->hub);
    failed(e, hub_resolve(e->h, "l/l", NULL, &r, NULL, &e->err), ERR_UPSTREAM,
           "more than 5 redirects");
    cr_assert_eq(script_count(e->hub) - before, 6);
    env_free(e);
}

Test(hub, tries_again_what_failed_on_the_way)
{
    struct env *e = env_new(NULL, 5);
    struct hub_revision r;
    script_add(e->hub, "GET /api/models/o/m ", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
               SCRIPT_CLOSE);
    script_reply(e->hub, "GET /api/models/o/m ", "", "503 Busy");
    script_reply(e->hub, "GET /api/models/o/m ", INFO("o/m", COMMIT), "200 OK");
    worked(e, hub_resolve(e->h, "o/m", NULL, &r, NULL, &e->err));
    /* but it ends */
    unsigned before = script_count(e->hub);
    for (unsigned i = 0; i < 3; i++)
        script_reply(e->hub, "GET /api/models/o/m ", "", "502 Bad");
    failed(e, hub_resolve(e->h, "o/m", NULL, &r, NULL, &e->err), ERR_UPSTREAM, "answered 502");
    cr_assert_eq(script_count(e->hub) - before, 3);
    /* and it does not argue with a Hub that says when to come back */
    script_reply(e->hub, "GET /api/models/o/m ", "", "503 Busy\r\nRetry-After: 9");
    cr_assert(hub_resolve(e->h, "o/m", NULL, &r, NULL, &e->err) < 0);
    cr_assert_eq(e->err.retry_after, 9);
    failed(e, -1, ERR_UPSTREAM, "answered 503");
    env_free(e);
}

Test(hub, lists_files_over_pages)
{
    struct env *e = env_new(NULL, 0);
    struct commit_files list;
    script_reply(
        e->hub, "GET " TREE "?recursive=true&expand=false ",
        "[" FILE_JSON("z/b.txt",
                      ",\"size\":6") ",{\"type\":\"directory\",\"path\":\"z\"}"
                                     "," FILE_JSON("m.safetensors",
                                                   ",\"size\":7,\"xetHash\":\"x\",\"lfs\":{"
                                                   "\"oid\":\"" SHA
                                                   "\",\"size\":7,\"pointerSize\":135}") "]",
        "200 OK\r\nLink: <%s>; rel=\"next\"", script_url(e->hub, TREE "?cursor=2"));
    script_reply(
        e->hub, "GET " TREE "?cursor=2 ",
        "[" FILE_JSON("masked", ",\"size\":9,\"lfs\":{\"oid\":\"****\",\"size\":9}") "," FILE_JSON(
            "empty", ",\"size\":0,\"lfs\":null") "]",
        "200 OK\r\nLink: <x>; rel=\"xet\"\r\nLink: <%s>; rel=\"next\"", TREE "?cursor=3");
    script_reply(e->hub, "GET " TREE "?cursor=3 ", "[]", "200 OK");
    script_reply(e->hub, "HEAD " RESOLVE "masked ", "",
                 "302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Etag: \"" OTHER_SHA
                 "\"\r\nX-Linked-Size: 9\r\nLocation: http://cdn.invalid/");
    worked(e, hub_files(e->h, "o/m", COMMIT, &list, &e->err));
    static const char *const paths[] = {"empty", "m.safetensors", "masked", "z/b.txt"};
    cr_assert_eq(list.n, 4);
    for (size_t i = 0; i < 4; i++)
        cr_assert_str_eq(list.files[i].path, paths[i]);
    char hex[DIGEST_TEXT_MAX];
    cr_assert(!list.files[0].has_lfs && list.files[0].sha256.alg == DIGEST_NONE);
    cr_assert_str_eq(list.files[0].git_oid, HELLO_OID);
    cr_assert(list.files[1].has_lfs && list.files[1].size == 7);
    cr_assert_str_eq(digest_format_hex(&list.files[1].sha256, hex), SHA);
    cr_assert_str_eq(digest_format_hex(&list.files[2].sha256, hex), OTHER_SHA);
    commit_files_done(&list);

    script_reply(e->hub, "GET " TREE, "[]", "200 OK\r\nLink: <%s?a>; rel=\"next\"", TREE);
    script_reply(e->hub, "GET " TREE "?a", "[]", "200 OK\r\nLink: <%s?b>; rel=\"next\"", TREE);
    script_reply(e->hub, "GET " TREE "?b", "[]", "200 OK\r\nLink: <%s?a>; rel=\"next\"", TREE);
    failed(e, hub_files(e->h, "o/m", COMMIT, &list, &e->err), ERR_UPSTREAM, "in a circle");
    script_reply(e->hub, "GET " TREE, "[]", "200 OK\r\nLink: <%s>; rel=\"next\"",
                 script_url(e->cdn, "/?s3cret"));
    failed(e, hub_files(e->h, "o/m", COMMIT, &list, &e->err), ERR_UPSTREAM,
           "the next page is on another host");
    cr_assert_eq(script_count(e->cdn), 0);
    script_reply(e->hub, "GET " TREE, "[" FILE_JSON("a", ",\"size\":1") "]",
                 "200 OK\r\nLink: <?2>; rel=\"next\"");
    script_reply(e->hub, "GET " TREE, "[" FILE_JSON("a", ",\"size\":1") "]", "200 OK");
    failed(e, hub_files(e->h, "o/m", COMMIT, &list, &e->err), ERR_UPSTREAM,
           "the file list of hf/o/m at " COMMIT ": a is listed twice");
    script_reply(e->hub, "GET " TREE, "[{}]", "200 OK");
    failed(e, hub_files(e->h, "o/m", COMMIT, &list, &e->err), ERR_UPSTREAM,
           TREE ": entry 0 has no \"type\"");
    env_free(e);
}

Test(hub, lists_refs)
{
    struct env *e = env_new(NULL, 0);
    struct hub_ref *refs;
    size_t n;
    const char *body =
        "{\"tags\":[{\"name\":\"v1\",\"ref\":\"refs/tags/v1\",\"targetCommit\":\"" COMMIT "\"}],"
        "\"branches\":[{\"name\":\"feature/x\",\"ref\":\"refs/heads/feature/"
        "x\",\"targetCommit\":\"" COMMIT
        "\"}],\"converts\":[{\"name\":\"parquet\",\"ref\":\"refs/convert/parquet\","
        "\"targetCommit\":\"" COMMIT "\"}],\"pullRequests\":[{\"name\":\"1\",\"ref\":\"refs/pr/1\","
        "\"targetCommit\":\"" OTHER_COMMIT "\"},{\"ref\":\"bad name\",\"targetCommit\":\"" COMMIT
        "\"}]}";
    script_reply(e->hub, "GET /api/models/o/m/refs?include_prs=1 ", body, "200 OK");
    worked(e, hub_refs(e->h, "o/m", true, &refs, &n, &e->err));
    static const char *const names[] = {"feature/x", "v1", "refs/convert/parquet", "refs/pr/1"};
    cr_assert_eq(n, 4);
    for (size_t i = 0; i < n; i++)
        cr_assert_str_eq(refs[i].name, names[i]);
    cr_assert_str_eq(refs[3].commit, OTHER_COMMIT);
    free(refs);
    script_reply(e->hub, "GET /api/models/o/m/refs ", body, "200 OK");
    worked(e, hub_refs(e->h, "o/m", false, &refs, &n, &e->err));
    cr_assert_eq(n, 3);
    free(refs);
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "{\"branches\":{}}",
                                      "{\"branches\":[],\"tags\":1}",
                                      "{\"branches\":[{\"name\":\"a\"}]}",
                                      "{\"branches\":[{\"name\":\"a\",\"targetCommit\":\"b\"}]}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        script_reply(e->hub, "GET /api/models/o/m/refs ", bad[i], "200 OK");
        failed(e, hub_refs(e->h, "o/m", false, &refs, &n, &e->err), ERR_UPSTREAM, "/refs: ");
    }
    env_free(e);
}

Test(hub, checks_small_files)
{
    struct env *e = env_new("s3cret", 0);
    struct strbuf b = STRBUF_INIT;
    struct commit_file f = {.path = "sub dir/a+b.txt", .size = 6, .git_oid = HELLO_OID};
    const char *get = "GET " RESOLVE "sub%20dir/a%2Bb.txt ";
    /* as the Hub does it: a relative redirect that only means something with its query */
    script_reply(e->hub, get, "",
                 "307 T\r\nLocation: /api/resolve-cache/models/o/m/x?%%2Fo=&etag=1");
    script_reply(e->hub, "GET /api/resolve-cache/models/o/m/x?%2Fo=&etag=1 ", "hello\n",
                 "200 OK\r\nX-Repo-Commit: " COMMIT);
    worked(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err));
    cr_assert_str_eq(strbuf_str(&b), "hello\n");
    strbuf_reset(&b);

    script_reply(e->hub, get, "hell0\n", "200 OK\r\nX-Repo-Commit: " COMMIT);
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_DIGEST_MISMATCH, HELLO_OID);
    script_reply(e->hub, get, "", "200 OK\r\nX-Repo-Commit: " COMMIT);
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_DIGEST_MISMATCH,
           "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 of 0 bytes");
    script_reply(e->hub, get, "hello\n", "200 OK\r\nX-Repo-Commit: " OTHER_COMMIT);
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_UPSTREAM,
           "X-Repo-Commit is " OTHER_COMMIT);
    script_reply(e->hub, get, "hello\n", "200 OK");
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_UPSTREAM,
           "no X-Repo-Commit");
    script_reply(e->hub, get, "hello\n",
                 "200 OK\r\nContent-Encoding: gzip\r\nX-Repo-Commit: " COMMIT);
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_UPSTREAM, "gzip");
    script_reply(e->hub, get, "", "302 F\r\nLocation: %s", script_url(e->cdn, "/?s3cret"));
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_UPSTREAM, "another host");
    script_reply(e->hub, get, "", "404 N\r\nX-Error-Code: EntryNotFound");
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_NOT_FOUND,
           "hf/o/m has no file sub dir/a+b.txt at " COMMIT);
    f.size = HUB_SMALL_FILE_MAX + 1u;
    failed(e, hub_small_file(e->h, "o/m", COMMIT, &f, &b, &e->err), ERR_TOO_LARGE, "the limit is");
    cr_assert_eq(b.len, 0);
    strbuf_done(&b);
    cr_assert_eq(script_count(e->cdn), 0);
    env_free(e);
}

static struct digest sha(void)
{
    struct digest d;
    cr_assert_eq(digest_parse_hex(DIGEST_SHA256, SHA, &d, NULL), 0);
    return d;
}

static int locate(struct env *e, struct http_location *l)
{
    struct digest d = sha();
    return hub_locate(e->h, "o/m", COMMIT, "m.bin", &d, 10, l, &e->err);
}

#define HEAD_FILE "HEAD " RESOLVE "m.bin "
#define LINKED(commit, etag, size)                                                                 \
    "302 F\r\nX-Repo-Commit: " commit "\r\nX-Linked-Etag: " etag "\r\nX-Linked-Size: " size

Test(hub, locates_files)
{
    struct env *e = env_new("s3cret", 0);
    struct http_location l;
    const char *cdn = script_url(e->cdn, "/x?Signature=s3cret%2f");
    script_reply(e->hub, HEAD_FILE, NULL,
                 LINKED(COMMIT, "\"" SHA "\"", "10") "\r\nETag: \"xet\"\r\nLocation: %s", cdn);
    worked(e, locate(e, &l));
    cr_assert_str_eq(l.url, cdn);
    cr_assert_null(l.bearer);
    http_location_done(&l);
    /* a renamed repository first */
    script_reply(e->hub, HEAD_FILE, NULL, "307 T\r\nLocation: /n/m/resolve/" COMMIT "/m.bin");
    script_reply(e->hub, "HEAD /n/m/resolve/" COMMIT "/m.bin ", NULL,
                 LINKED(COMMIT, "W/\"" SHA "\"", "10") "\r\nLocation: %s", cdn);
    worked(e, locate(e, &l));
    cr_assert_null(l.bearer);
    http_location_done(&l);
    /* a mirror that has the bytes itself, at once or behind a redirect of its own */
    script_reply(e->hub, HEAD_FILE, NULL,
                 "200 OK\r\nContent-Length: 10\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"" SHA "\"");
    worked(e, locate(e, &l));
    cr_assert_str_eq(l.url, script_url(e->hub, RESOLVE "m.bin"));
    cr_assert_str_eq(l.bearer, "s3cret");
    http_location_done(&l);
    script_reply(e->hub, HEAD_FILE, NULL, LINKED(COMMIT, SHA, "10") "\r\nLocation: /own?x");
    worked(e, locate(e, &l));
    cr_assert_str_eq(l.url, script_url(e->hub, "/own?x"));
    cr_assert_str_eq(l.bearer, "s3cret");
    http_location_done(&l);
    cr_assert_eq(script_count(e->cdn), 0);
    env_free(e);
}

/* A small file that was held and is gone. Its sha256 is known, so its bytes can still be told. */
Test(hub, locates_what_git_itself_keeps)
{
    struct env *e = env_new(NULL, 0);
    struct http_location l;
    script_reply(e->hub, HEAD_FILE, NULL,
                 "200 OK\r\nContent-Length: 10\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"%.40s\"",
                 SHA);
    cr_assert_eq(locate(e, &l), 0, "%s", e->err.text);
    http_location_done(&l);
    script_reply(e->hub, HEAD_FILE, NULL,
                 "200 OK\r\nContent-Length: 9\r\nX-Repo-Commit: " COMMIT "\r\nETag: \"%.40s\"",
                 SHA);
    failed(e, locate(e, &l), ERR_UPSTREAM, "Content-Length is 9");
    script_reply(e->hub, HEAD_FILE, NULL,
                 "302 F\r\nLocation: %s\r\nX-Repo-Commit: " COMMIT
                 "\r\nX-Linked-Size: 10\r\nX-Linked-Etag: \"%.40s\"",
                 script_url(e->cdn, "/x"), SHA);
    failed(e, locate(e, &l), ERR_UPSTREAM, "X-Linked-Etag is no sha256");
    env_free(e);
}

Test(hub, locates_nothing_else)
{
    struct env *e = env_new("s3cret", 0);
    const char *cdn = script_url(e->cdn, "/x?Signature=s3cret");
    static const struct {
        const char *head, *why;
        bool redirect;
    } cases[] = {
        {LINKED(OTHER_COMMIT, SHA, "10"), "X-Repo-Commit is " OTHER_COMMIT, true},
        {LINKED(COMMIT, "\"" OTHER_SHA "\"", "10"),
         "X-Linked-Etag is " OTHER_SHA ", expected was " SHA, true},
        {LINKED(COMMIT, "\"" SHA "\"", "11"), "X-Linked-Size is 11, expected was 10", true},
        {LINKED(COMMIT, "\"" SHA "\"", "ten"), "malformed X-Linked-Size", true},
        {LINKED(COMMIT, "\"xet\"", "10"), "X-Linked-Etag is no sha256", true},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nX-Linked-Etag: " SHA, "no X-Linked-Size", true},
        {"302 F\r\nX-Repo-Commit: " COMMIT "\r\nETag: " SHA "\r\nX-Linked-Size: 10",
         "no X-Linked-Etag", true},
        {"302 F\r\nX-Linked-Etag: " SHA "\r\nX-Linked-Size: 10", "no X-Repo-Commit", true},
        {"200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: " SHA "\r\nContent-Length: 9",
         "Content-Length is 9", false},
        {"200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: " SHA, "no X-Linked-Size", false},
        {"200 OK\r\nX-Repo-Commit: " COMMIT "\r\nETag: " OTHER_SHA "\r\nContent-Length: 10",
         "ETag is " OTHER_SHA, false},
        {"200 OK\r\nX-Repo-Commit: " COMMIT "\r\nContent-Length: 10", "no X-Linked-Etag", false},
        {"200 OK\r\nETag: " SHA "\r\nContent-Length: 10", "no X-Repo-Commit", false},
        {"302 F\r\nLocation: file:///etc/passwd", "no http or https URL", false},
        {"503 S", "answered 503", false},
    };
    struct http_location l;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        script_reply(e->hub, HEAD_FILE, NULL, "%s%s%s", cases[i].head,
                     cases[i].redirect ? "\r\nLocation: " : "", cases[i].redirect ? cdn : "");
        failed(e, locate(e, &l), ERR_UPSTREAM, cases[i].why);
    }
    script_reply(e->hub, HEAD_FILE, NULL, "403 F\r\nX-Error-Code: GatedRepo");
    failed(e, locate(e, &l), ERR_DENIED, "gated");
    cr_assert_eq(script_count(e->cdn), 0);
    env_free(e);
}

static void put_location(struct env *e, const char *path)
{
    script_reply(e->hub, HEAD_FILE, NULL, LINKED(COMMIT, SHA, "10") "\r\nLocation: %s",
                 script_url(e->cdn, path));
}

static int read_range(struct env *e, struct http_location *l, uint64_t first, size_t len,
                      struct strbuf *b)
{
    struct digest d = sha();
    return hub_read_range(e->h, "o/m", COMMIT, "m.bin", &d, 10, l, first, len, b, &e->err);
}

Test(hub, reads_ranges)
{
    struct env *e = env_new("s3cret", 3);
    struct http_location l = {0};
    struct strbuf b = STRBUF_INIT;
    put_location(e, "/1");
    script_reply(e->cdn, "GET /1 ", "2345", "206 P\r\nContent-Range: bytes 2-5/10");
    worked(e, read_range(e, &l, 2, 4, &b));
    cr_assert_str_eq(strbuf_str(&b), "2345");
    cr_assert(script_saw(e->cdn, "\r\nRange: bytes=2-5\r\n"));

    /* cut off at the end of the file; the same location; appended */
    script_reply(e->cdn, "GET /1 ", "89", "206 P\r\nContent-Range: bytes 8-9/10");
    worked(e, read_range(e, &l, 8, 100, &b));
    cr_assert_str_eq(strbuf_str(&b), "234589");
    strbuf_reset(&b);
    script_reply(e->cdn, "GET /1 ", "0123456789", "200 OK");
    worked(e, read_range(e, &l, 0, 10, &b));
    cr_assert_str_eq(strbuf_str(&b), "0123456789");
    strbuf_reset(&b);
    worked(e, read_range(e, &l, 3, 0, &b));
    failed(e, read_range(e, &l, 10, 1, &b), ERR_INVALID, "none at 10");

    /* expired: located again once; broken: goes on at the byte reached, any number of times */
    script_reply(e->cdn, "GET /1 ", "<Error>s3cret</Error>", "403 Expired");
    put_location(e, "/2");
    for (unsigned i = 2; i < 7; i++) {
        char bytes[128];
        snprintf(bytes, sizeof(bytes),
                 "HTTP/1.1 206 P\r\nContent-Range: bytes %u-7/10\r\nContent-Length: %u\r\n\r\n%u",
                 i, 8 - i, i);
        script_add(e->cdn, "GET /2 ", bytes, SCRIPT_CLOSE);
    }
    script_reply(e->cdn, "GET /2 ", "7", "206 P\r\nContent-Range: bytes 7-7/10");
    worked(e, read_range(e, &l, 2, 6, &b));
    cr_assert_str_eq(strbuf_str(&b), "234567");
    cr_assert(!script_saw(e->cdn, "Authorization") && !script_saw(e->cdn, "s3cret"));
    http_location_done(&l);
    strbuf_done(&b);
    env_free(e);
}

Test(hub, believes_no_other_range)
{
    static const struct {
        const char *head, *body, *why;
    } cases[] = {
        {"206 P\r\nContent-Range: bytes 1-4/10", "1234",
         "Content-Range is 1-4/10, asked was 2-5/10"},
        {"206 P\r\nContent-Range: bytes 2-5/11", "2345", "Content-Range is 2-5/11"},
        {"206 P\r\nContent-Range: bytes 2-4/10", "234", "Content-Length 3, asked were 4 bytes"},
        {"206 P\r\nContent-Range: bytes 2-5/*", "2345", "malformed Content-Range"},
        {"206 P", "2345", "no Content-Range"},
        {"200 OK", "0123456789", "ignores Range"},
        {"204 N", NULL, "ignores Range"},
        {"206 P\r\nContent-Range: bytes 2-5/10\r\nContent-Encoding: gzip", "2345", "gzip"},
        {"206 P\r\nContent-Range: bytes 2-5/10\r\nTransfer-Encoding: chunked", NULL, "more bytes"},
        {"302 F\r\nLocation: /elsewhere", "", "answered 302"},
        {"416 R", "", "answered 416"},
        {"429 T\r\nRetry-After: 5", "", "try again in 5 s"},
    };
    struct env *e = env_new("s3cret", 0);
    struct http_location l = {0};
    struct strbuf b = STRBUF_INIT;
    put_location(e, "/1?s3cret");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (strstr(cases[i].head, "chunked"))
            script_add(e->cdn, "GET /1",
                       "HTTP/1.1 206 P\r\nContent-Range: bytes 2-5/10\r\nTransfer-Encoding: "
                       "chunked\r\n\r\n5\r\n23456\r\n0\r\n\r\n",
                       SCRIPT_KEEP);
        else
            script_reply(e->cdn, "GET /1", cases[i].body, "%s", cases[i].head);
        failed(e, read_range(e, &l, 2, 4, &b),
               strstr(cases[i].head, "429") ? ERR_RATE_LIMITED : ERR_UPSTREAM, cases[i].why);
        cr_assert_eq(b.len, 0);
    }
    http_location_done(&l);
    strbuf_done(&b);
    env_free(e);
}

/* Every connection brings a byte: as good as none, when many were asked for. */
Test(hub, gives_up_a_range_that_drips)
{
    struct env *e = env_new(NULL, 2);
    struct http_location l = {0};
    struct strbuf b = STRBUF_INIT;
    struct digest d = sha();
    script_reply(e->hub, HEAD_FILE, NULL, LINKED(COMMIT, SHA, "100") "\r\nLocation: %s",
                 script_url(e->cdn, "/1"));
    for (unsigned i = 0; i < 4; i++) {
        char bytes[128];
        snprintf(bytes, sizeof(bytes),
                 "HTTP/1.1 206 P\r\nContent-Range: bytes %u-99/100\r\nContent-Length: %u\r\n\r\nx",
                 i, 100 - i);
        script_add(e->cdn, "GET /1", bytes, SCRIPT_CLOSE);
    }
    failed(e, hub_read_range(e->h, "o/m", COMMIT, "m.bin", &d, 100, &l, 0, 100, &b, &e->err),
           ERR_UPSTREAM, "cut short");
    cr_assert_eq(script_count(e->cdn), 3);
    cr_assert_eq(b.len, 0);
    http_location_done(&l);
    strbuf_done(&b);
    env_free(e);
}

Test(hub, gives_up_a_range_that_does_not_come)
{
    struct env *e = env_new(NULL, 2);
    struct http_location l = {0};
    struct strbuf b = STRBUF_INIT;
    put_location(e, "/1");
    for (unsigned i = 0; i < 3; i++)
        script_add(e->cdn, "GET /1", "", SCRIPT_CLOSE);
    failed(e, read_range(e, &l, 2, 4, &b), ERR_UPSTREAM, "closed without an answer");
    cr_assert_eq(script_count(e->cdn), 3);

    /* refused again at the fresh location */
    script_reply(e->cdn, "GET /1", "", "403 F");
    put_location(e, "/2");
    script_reply(e->cdn, "GET /2", "", "403 F");
    failed(e, read_range(e, &l, 2, 4, &b), ERR_DENIED,
           "the location that the Hub gave a moment ago is refused: ");
    /* and when the Hub itself does not give another one, that is the reason to tell */
    script_reply(e->cdn, "GET /2", "", "403 F");
    script_reply(e->hub, HEAD_FILE, NULL, "401 U\r\nX-Error-Code: GatedRepo");
    failed(e, read_range(e, &l, 2, 4, &b), ERR_UNAUTHORIZED, "gated");
    cr_assert_eq(b.len, 0);
    http_location_done(&l);
    strbuf_done(&b);
    env_free(e);
}

Test(hub, refuses_a_useless_configuration)
{
    struct hub *h;
    struct error err = ERROR_INIT;
    struct config_upstream c = {.prefix = (char *)"hf", .url = (char *)"file:///tmp"};
    cr_assert(hub_new(&c, &h, &err) < 0 && err.code == ERR_INVALID);
    c.url = (char *)"http://127.0.0.1";
    c.token = (char *)"a\nb";
    cr_assert(hub_new(&c, &h, &err) < 0 && err.code == ERR_INVALID);
    cr_assert(strstr(err.text, "line end"));
    hub_free(NULL);
}
