/* What a client of a Hub's mirror is told, and what that costs the Hub. */
#define SKEWS_WALL_CLOCK

#include "base/clock.h"
#include "hub_mirror_world.h"

/* ---- a snapshot ------------------------------------------------------------------------------ */

static void snapshot(struct world *w, const char *revision)
{
    struct hub_file f = {.size = 0};
    struct hub_listing l = {.rows = NULL};
    is_right(w, info(w, revision), C1, "");
    cr_assert(said(w, "\"sha\":\"" C1 "\""));
    cr_assert(said(w, "a.safetensors") && said(w, "config.json"));
    cr_assert_not(said(w, "xet"));
    cr_assert(said(w, "12345678901234567890"));
    is_right(w, list(w, C1, &l), C1, "");
    cr_assert_eq(l.list.n, 3);
    cr_assert_str_eq(l.list.files[2].path, "sub/b.bin");
    cr_assert_eq(l.n_folders, 1);
    cr_assert_str_eq(l.folders[0].path, "sub");
    cr_assert_str_eq(l.folders[0].git_oid, POINTER);
    hub_listing_done(&l);
    is_right(w, file(w, C1, "a.safetensors", &f), C1, "");
    cr_assert_str_eq(f.etag, SHA);
    cr_assert(f.has_lfs && f.size == 1000);
    is_right(w, file(w, C1, "config.json", &f), C1, "");
    cr_assert_str_eq(f.etag, OID);
    cr_assert(!f.has_lfs && f.size == 6 && f.sha256.alg == DIGEST_NONE);
    is_refused(w, file(w, C1, "generation_config.json", &f), HUB_REFUSED_ENTRY);
    cr_assert_str_eq(w->at.commit, C1);
}

Test(hub_mirror, a_snapshot_costs_an_info_and_a_tree_and_then_nothing)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    asked(w, 2);
    snapshot(w, "");
    snapshot(w, "HEAD");
    snapshot(w, C1);
    asked(w, 2);
    restart(w);
    snapshot(w, "main");
    asked(w, 2);
    end(w);
}

Test(hub_mirror, after_the_ttl_one_question_is_enough)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    later(100);
    says_info(w, MAIN, INFO(C1, ",\"likes\":7"));
    snapshot(w, "main");
    asked(w, 3);
    cr_assert_eq(info(w, "main"), 0);
    cr_assert(said(w, "\"likes\":7"));
    snapshot(w, "main");
    asked(w, 3);
    end(w);
}

Test(hub_mirror, a_commit_that_is_known_is_never_asked_again)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    later(1000000);
    w->config.offline = true;
    restart(w);
    snapshot(w, C1);
    strcpy(w->q.revision, C1);
    is_right(w, hub_mirror_revision(w->m, &w->q, &w->at, &w->err), C1, "");
    asked(w, 2);
    is_right(w, info(w, "main"), C1, "offline by configuration");
    cr_assert_eq(info(w, C2), -1);
    cr_assert_eq(w->err.code, ERR_NOT_FOUND);
    cr_assert_eq(info(w, "other"), -1);
    cr_assert_eq(refs(w), 0, "%s", w->err.text);
    cr_assert(said(w, "\"targetCommit\":\"" C1 "\"") && *w->at.warning);
    asked(w, 2);
    end(w);
}

/* Of a list that an import stored no folders are known. */
Test(hub_mirror, folders_are_asked_for_or_else_derived)
{
    static const char *const paths[] = {"a-b/c", "a/b/c", "a/b/d", "a/e", "a0", "z/z/z/z"};
    static const char *const folders[] = {"a", "a-b", "a/b", "z", "z/z", "z/z/z"};
    struct world *w = world();
    struct hub_listing l = {.rows = NULL};
    struct commit_file files[ARRAY_LEN(paths)];
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        files[i] = (struct commit_file){.path = paths[i], .size = 6, .git_oid = OID};
    cr_assert_eq(store_hub_files_put(w->store, "hf", "o/m", C1, files, ARRAY_LEN(files), NULL), 0);
    cr_assert_eq(store_hub_pin_put(w->store, "hf", "o/m", "o/m", "main", C1, NULL), 0);
    fails(w, "GET /api/models/o/m/tree/");
    is_right(w, list(w, "main", &l), C1, "served from the store");
    cr_assert_eq(l.list.n, ARRAY_LEN(paths));
    cr_assert_eq(l.n_folders, ARRAY_LEN(folders));
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        cr_assert_str_eq(l.folders[i].path, folders[i]);
        cr_assert_str_eq(l.folders[i].git_oid, HUB_NO_OID);
    }
    hub_listing_done(&l);
    asked(w, 1);
    says_tree(w, C1);
    is_right(w, list(w, "main", &l), C1, "");
    cr_assert_eq(l.n_folders, 1);
    cr_assert_str_eq(l.folders[0].git_oid, POINTER);
    hub_listing_done(&l);
    is_right(w, list(w, "main", &l), C1, "");
    hub_listing_done(&l);
    asked(w, 2);
    end(w);
}

/* ---- files by themselves --------------------------------------------------------------------- */

Test(hub_mirror, the_first_file_costs_one_question_and_the_second_a_list)
{
    struct world *w = world();
    struct hub_file f = {.size = 0};
    says_lfs(w, "HEAD /o/m/resolve/main/a.safetensors ");
    is_right(w, file(w, "", "a.safetensors", &f), C1, "");
    cr_assert(f.has_lfs && f.size == 1000);
    asked(w, 1);
    is_right(w, file(w, "main", "a.safetensors", &f), C1, "");
    is_right(w, file(w, C1, "a.safetensors", &f), C1, "");
    asked(w, 1);
    says_tree(w, C1);
    is_right(w, file(w, "main", "config.json", &f), C1, "");
    is_right(w, file(w, "main", "sub/b.bin", &f), C1, "");
    is_refused(w, file(w, "main", "nothing", &f), HUB_REFUSED_ENTRY);
    asked(w, 2);
    strcpy(w->q.revision, C1);
    is_right(w, hub_mirror_revision(w->m, &w->q, &w->at, &w->err), C1, "");
    asked(w, 2);
    end(w);
}

Test(hub_mirror, what_is_not_there_is_remembered_for_the_commit)
{
    struct world *w = world();
    script_reply(w->s, "HEAD /o/m/resolve/main/x.json ", NULL,
                 "404 Not Found\r\nX-Error-Code: EntryNotFound\r\nX-Repo-Commit: " C1
                 "\r\nContent-Length: 0");
    is_refused(w, file(w, "main", "x.json", NULL), HUB_REFUSED_ENTRY);
    cr_assert_str_eq(w->at.commit, C1);
    later(40);
    is_refused(w, file(w, "main", "x.json", NULL), HUB_REFUSED_ENTRY);
    asked(w, 1);
    later(1000000);
    restart(w);
    is_refused(w, file(w, C1, "x.json", NULL), HUB_REFUSED_ENTRY);
    asked(w, 1);
    end(w);
}

Test(hub_mirror, a_file_is_had_without_the_list_when_that_does_not_come)
{
    struct world *w = world();
    struct hub_file f = {.size = 0};
    says_info(w, MAIN, INFO(C1, ""));
    script_add(w->s, "GET /api/models/o/m/tree/", "", SCRIPT_STALL);
    says_lfs(w, "HEAD /o/m/resolve/" C1 "/a.safetensors ");
    is_right(w, info(w, "main"), C1, "");
    is_right(w, file(w, "main", "a.safetensors", &f), C1, "");
    cr_assert_str_eq(f.etag, SHA);
    asked(w, 3);
    end(w);
}

Test(hub_mirror, a_file_is_had_without_the_list_when_that_is_refused)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    script_reply(w->s, "GET /api/models/o/m/tree/", "", "429 Slow down\r\nRetry-After: 100");
    says_lfs(w, "HEAD /o/m/resolve/" C1 "/a.safetensors ");
    is_right(w, info(w, "main"), C1, "");
    is_right(w, file(w, "main", "a.safetensors", NULL), C1, "");
    asked(w, 3);
    end(w);
}

/* ---- the Hub in trouble ---------------------------------------------------------------------- */

static void snapshot_is_stale(struct world *w, const char *why)
{
    struct hub_listing l = {.rows = NULL};
    is_right(w, info(w, "main"), C1, why);
    cr_assert(said(w, "a.safetensors"));
    is_right(w, list(w, "main", &l), C1, why);
    cr_assert_eq(l.list.n, 3);
    hub_listing_done(&l);
    is_right(w, file(w, "main", "a.safetensors", NULL), C1, why);
    is_right(w, file(w, "main", "config.json", NULL), C1, why);
}

Test(hub_mirror, what_is_stored_is_served_while_the_hub_fails)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    later(100);
    script_add(w->s, "GET /api", "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", SCRIPT_KEEP)
        ->forever = true;
    script_add(w->s, "HEAD ", "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", SCRIPT_KEEP)
        ->forever = true;
    snapshot_is_stale(w, "served from the store, last confirmed 10");
    restart(w);
    snapshot_is_stale(w, "500");
    snapshot(w, C1);
    end(w);
}

Test(hub_mirror, a_limit_is_no_reason_to_tell_nothing)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    later(100);
    script_reply(w->s, MAIN, "", "429 Slow down\r\nRetry-After: 1000");
    is_right(w, info(w, "main"), C1, "served from the store");
    is_right(w, info(w, "main"), C1, "served from the store");
    asked(w, 3);
    end(w);
}

Test(hub_mirror, one_client_finds_out_for_all_that_the_hub_is_slow)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    w->c.tag_ttl_s = 0; /* waits go by the real clock */
    w->c.revalidate_timeout_s = 1;
    script_add(w->s, MAIN, "", SCRIPT_STALL);
    uint64_t begin = clock_monotonic_ms();
    is_right(w, info(w, "main"), C1, "revalidate_timeout");
    uint64_t first = clock_monotonic_ms();
    cr_assert_geq(first - begin, 900);
    for (unsigned i = 0; i < 20; i++)
        is_right(w, info(w, "main"), C1, "revalidate_timeout");
    cr_assert_lt(clock_monotonic_ms() - first, 900);
    asked(w, 3);
    end(w);
}

Test(hub_mirror, what_is_gone_is_gone_for_a_while)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    later(100);
    refuses(w, MAIN, 404, "RevisionNotFound");
    refuses(w, "GET /api/models/o/m ", 404, "RepoNotFound");
    is_refused(w, info(w, "main"), HUB_REFUSED_REPOSITORY);
    unsigned n = script_count(w->s);
    is_refused(w, info(w, "main"), HUB_REFUSED_REPOSITORY);
    is_refused(w, file(w, "main", "config.json", NULL), HUB_REFUSED_REPOSITORY);
    asked(w, n);
    later(40);
    says_info(w, MAIN, INFO(C2, ""));
    is_right(w, info(w, "main"), C2, "");
    end(w);
}

Test(hub_mirror, a_revision_that_is_not_there_is_remembered)
{
    struct world *w = world();
    refuses(w, "GET /api/models/o/m/revision/v9 ", 404, "RevisionNotFound");
    is_refused(w, info(w, "v9"), HUB_REFUSED_REVISION);
    is_refused(w, info(w, "v9"), HUB_REFUSED_REVISION);
    asked(w, 1);
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    is_refused(w, info(w, "a..b"), HUB_REFUSED_REVISION);
    asked(w, 2);
    end(w);
}

Test(hub_mirror, a_login_that_fails_says_nothing_about_a_repository)
{
    struct world *w = world();
    w->c.token = (char *)"hf_old";
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    later(100);
    refuses(w, MAIN, 401, "RepoNotFound");
    script_reply(w->s, "GET /api/whoami-v2 ", "{\"error\":\"Invalid credentials\"}",
                 "401 Unauthorized");
    is_right(w, info(w, "main"), C1, "served from the store");
    later(100);
    refuses(w, MAIN, 401, "RepoNotFound");
    script_reply(w->s, "GET /api/whoami-v2 ", "{\"name\":\"me\"}", "200 OK");
    is_refused(w, info(w, "main"), HUB_REFUSED_REPOSITORY);
    end(w);
}

/* ---- names ----------------------------------------------------------------------------------- */

Test(hub_mirror, a_renamed_repository_has_its_new_name)
{
    struct world *w = world();
    strcpy(w->q.name, "Old/M");
    script_reply(w->s, "GET /api/models/Old/M/revision/main ", "",
                 "307 Moved\r\nLocation: /api/models/o/m/revision/main");
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    is_right(w, info(w, ""), C1, "");
    asked(w, 2);
    says_tree(w, C1);
    is_right(w, file(w, C1, "config.json", NULL), C1, "");
    strcpy(w->q.name, "o/m");
    is_right(w, file(w, C1, "config.json", NULL), C1, "");
    asked(w, 3);
    char repository[REPOSITORY_MAX + 1];
    strcpy(w->q.name, "Old/M");
    cr_assert(hub_mirror_repository(w->m, &w->q, repository));
    cr_assert_str_eq(repository, "hf/old/m");
    w->q.kind = HUB_DATASET;
    cr_assert(hub_mirror_repository(w->m, &w->q, repository));
    cr_assert_str_eq(repository, "hf/datasets/old/m");
    strcpy(w->q.name, "../m");
    cr_assert_not(hub_mirror_repository(w->m, &w->q, repository));
    is_refused(w, info(w, "main"), HUB_REFUSED_REPOSITORY);
    end(w);
}

Test(hub_mirror, another_name_of_the_same_does_not_move_its_revisions)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    strcpy(w->q.name, "O/M");
    says_info(w, "GET /api/models/O/M/revision/main ", INFO(C2, ""));
    is_right(w, info(w, "main"), C1, "");
    cr_assert(said(w, C1) && !said(w, C2));
    asked(w, 2);
    is_right(w, info(w, "main"), C1, "");
    asked(w, 2);
    end(w);
}

Test(hub_mirror, the_default_branch_need_not_be_main)
{
    struct world *w = world();
    refuses(w, MAIN, 404, "RevisionNotFound");
    says_info(w, "GET /api/models/o/m ", INFO(C1, ""));
    is_right(w, info(w, ""), C1, "");
    is_right(w, info(w, "main"), C1, "");
    asked(w, 2);
    end(w);
}

/* ---- many clients ---------------------------------------------------------------------------- */

struct crowd {
    struct world *w;
    atomic_uint right;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;
    struct hub_query q = {.kind = HUB_MODEL, .name = "o/m", .revision = "main"};
    struct hub_at at;
    struct hub_file f;
    struct error err = ERROR_INIT;
    _cleanup_hub_text_ struct hub_text *text = NULL;
    if (hub_mirror_info(c->w->m, &q, &text, &at, &err) == 0 &&
        hub_mirror_file(c->w->m, &q, "config.json", &f, &at, &err) == 0 &&
        strcmp(at.commit, C1) == 0)
        c->right++;
    return NULL;
}

Test(hub_mirror, equal_questions_are_one)
{
    struct world *w = world();
    struct crowd c = {.w = w};
    pthread_t threads[32];
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, one_of_many, &c), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(c.right, ARRAY_LEN(threads));
    asked(w, 2);
    end(w);
}

/* ---- refs, rows and history ------------------------------------------------------------------ */

static void says_refs(struct world *w, const char *commit)
{
    char body[200];
    snprintf(body, sizeof(body),
             "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\","
             "\"targetCommit\":\"%s\"}]}",
             commit);
    says_info(w, "GET /api/models/o/m/refs ", body);
}

/* Whoever looked before others had asked asks again: what those were told counts. */
Test(hub_mirror, refs_that_come_late)
{
    struct world *w = world();
    struct hub_task late = {.kind = HUB_TASK_REFS, .name = "o/m", .revision = "", .path = ""};
    struct hub_result r;
    says_info(w, MAIN, INFO(C1, ""));
    says_refs(w, C1);
    cr_assert_eq(refs(w), 0, "%s", w->err.text);
    says_refs(w, C2);
    hub_task_run(w->m, &late, &r);
    cr_assert_eq(r.rc, 0, "%s", r.error.text);
    cr_assert(strstr(strbuf_str(&r.text), C1) && !strstr(strbuf_str(&r.text), C2));
    hub_result_done(&r);
    later(61);
    says_refs(w, C2);
    hub_task_run(w->m, &late, &r);
    cr_assert_eq(r.rc, 0, "%s", r.error.text);
    cr_assert(strstr(strbuf_str(&r.text), C2) && !strstr(strbuf_str(&r.text), C1));
    hub_result_done(&r);
    end(w);
}

Test(hub_mirror, of_what_is_old_the_newer_one_counts)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    later(100);
    says_refs(w, C2);
    cr_assert_eq(refs(w), 0, "%s", w->err.text);
    later(100);
    fails(w, MAIN);
    says_info(w, "GET /api/models/o/m/revision/" C2 " ", INFO(C2, ""));
    is_right(w, info(w, "main"), C2, "served from the store");
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    later(100);
    fails(w, MAIN);
    is_right(w, info(w, "main"), C1, "served from the store");
    end(w);
}

Test(hub_mirror, refs_say_what_revisions_mean_here)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    is_right(w, info(w, "main"), C1, "");
    says_info(w, "GET /api/models/o/m/refs ",
              "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\",\"targetCommit\":\"" C2
              "\",\"x\":1},{\"name\":\"dev\",\"ref\":\"refs/heads/dev\",\"targetCommit\":\"" C2
              "\"}],\"tags\":null,\"other\":[1]}");
    cr_assert_eq(refs(w), 0, "%s", w->err.text);
    cr_assert_str_eq(
        strbuf_str(&w->text),
        "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\",\"targetCommit\":\"" C1
        "\",\"x\":1},{\"name\":\"dev\",\"ref\":\"refs/heads/dev\",\"targetCommit\":\"" C2
        "\"}],\"other\":[1],\"tags\":[],\"converts\":[]}");
    cr_assert_eq(refs(w), 0);
    asked(w, 2);
    strcpy(w->q.revision, "dev"); /* the refs have said so */
    is_right(w, hub_mirror_revision(w->m, &w->q, &w->at, &w->err), C2, "");
    asked(w, 2);
    later(100);
    fails(w, "GET /api/models/o/m/refs ");
    cr_assert_eq(refs(w), 0, "%s", w->err.text);
    cr_assert(*w->at.warning && said(w, C2));
    end(w);
}

Test(hub_mirror, expanded_rows_are_the_hubs_or_plain_ones)
{
    struct world *w = world();
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    snapshot(w, "main");
    says_info(w, "GET /api/models/o/m/tree/" C1 "/sub?recursive=false&expand=true ",
              "[{\"type\":\"file\",\"path\":\"sub/b.bin\",\"xetHash\":\"h\",\"size\":6,"
              "\"lastCommit\":{\"id\":\"x\"}}]");
    for (unsigned i = 0; i < 2; i++) {
        strbuf_reset(&w->text);
        cr_assert_eq(hub_mirror_expanded(w->m, &w->q, "sub", false, &w->text, &w->at, &w->err), 0,
                     "%s", w->err.text);
        cr_assert_str_eq(strbuf_str(&w->text), "[{\"type\":\"file\",\"path\":\"sub/b.bin\","
                                               "\"size\":6,\"lastCommit\":{\"id\":\"x\"}}]");
    }
    asked(w, 3);
    cr_assert_eq(hub_mirror_expanded(w->m, &w->q, "none", false, &w->text, &w->at, &w->err), -1);
    cr_assert_eq(w->at.refused, HUB_REFUSED_ENTRY);
    asked(w, 3);
    fails(w, "GET /api/models/o/m/tree/" C1 "?recursive=false&expand=true ");
    strbuf_reset(&w->text);
    cr_assert_eq(hub_mirror_expanded(w->m, &w->q, "", false, &w->text, &w->at, &w->err), 0, "%s",
                 w->err.text);
    cr_assert(*w->at.warning);
    cr_assert_str_eq(strbuf_str(&w->text),
                     "[{\"type\":\"directory\",\"oid\":\"" POINTER
                     "\",\"size\":0,\"path\":\"sub\"},{\"type\":\"file\",\"oid\":\"" POINTER
                     "\",\"size\":1000,\"lfs\":{\"oid\":\"" SHA
                     "\",\"size\":1000,\"pointerSize\":129},\"path\":\"a.safetensors\"},"
                     "{\"type\":\"file\",\"oid\":\"" OID
                     "\",\"size\":6,\"path\":\"config.json\"}]");
    end(w);
}

Test(hub_mirror, history_is_asked_for_once)
{
    struct world *w = world();
    uint64_t total = 0;
    says_info(w, MAIN, INFO(C1, ""));
    script_reply(w->s, "GET /api/models/o/m/commits/" C1 " ", "[{\"id\":\"" C1 "\"}]",
                 "200 OK\r\nX-Total-Count: 12");
    for (unsigned i = 0; i < 2; i++) {
        strbuf_reset(&w->text);
        total = 0;
        is_right(w, hub_mirror_commits(w->m, &w->q, &w->text, &total, &w->at, &w->err), C1, "");
        cr_assert_str_eq(strbuf_str(&w->text), "[{\"id\":\"" C1 "\"}]");
        cr_assert_eq(total, 12);
    }
    asked(w, 2);
    end(w);
}

/* ---- policies -------------------------------------------------------------------------------- */

Test(hub_mirror, policies_hide_files_and_refuse_repositories)
{
    struct world *w = world();
    char *formats[] = {(char *)"safetensors"};
    struct config_policy policies[] = {
        {.repositories = (char *)"hf/o/*", .formats = {.items = formats, .n = 1}},
        {.repositories = (char *)"hf/*/*", .deny = true}};
    struct hub_listing l = {.rows = NULL};
    w->config.policies = policies;
    w->config.n_policies = ARRAY_LEN(policies);
    says_info(w, MAIN, INFO(C1, ""));
    says_tree(w, C1);
    is_right(w, list(w, "main", &l), C1, "");
    cr_assert_eq(l.list.n, 2);
    hub_listing_done(&l);
    is_refused(w, file(w, "main", "sub/b.bin", NULL), HUB_REFUSED_POLICY);
    cr_assert_eq(w->err.code, ERR_DENIED);
    policies[0].max_file = 100;
    is_right(w, info(w, "main"), C1, "");
    cr_assert(said(w, "config.json") && !said(w, "a.safetensors"));
    is_refused(w, file(w, "main", "a.safetensors", NULL), HUB_REFUSED_POLICY);
    strcpy(w->q.name, "other/m");
    is_refused(w, info(w, "main"), HUB_REFUSED_POLICY);
    asked(w, 2);
    end(w);
}

/* ---- whose token it is ----------------------------------------------------------------------- */

Test(hub_mirror, whoami_knows_the_tokens_of_this_server_alone)
{
    struct world *w = world();
    w->c.token = (char *)"hf_own";
    cr_assert_eq(hub_mirror_whoami(w->m, &w->text, &w->err), -1);
    caller_set("hf_other");
    cr_assert_eq(hub_mirror_whoami(w->m, &w->text, &w->err), -1);
    cr_assert_eq(w->err.code, ERR_UNAUTHORIZED);
    asked(w, 0);
    caller_set("hf_own");
    says_info(w, "GET /api/whoami-v2 ", "{\"name\":\"me\"}");
    cr_assert_eq(hub_mirror_whoami(w->m, &w->text, &w->err), 0, "%s", w->err.text);
    cr_assert(said(w, "me"));
    caller_set(NULL);
    end(w);
}

Test(hub_mirror, forwarded_callers_do_not_share_what_they_may_see)
{
    struct world *w = world();
    stop_mirror(w);
    w->c.credentials = CREDENTIALS_FORWARD;
    start_mirror(w);
    caller_set("hf_one");
    says_info(w, MAIN, INFO(C1, ",\"private\":true"));
    is_right(w, info(w, "main"), C1, "");
    is_right(w, info(w, "main"), C1, "");
    asked(w, 1);
    caller_set("hf_two");
    refuses(w, "GET /api/models/o/m", 404, "RepoNotFound");
    is_refused(w, info(w, "main"), HUB_REFUSED_REPOSITORY);
    asked(w, 2);
    caller_set("hf_one");
    is_right(w, info(w, "main"), C1, "");
    asked(w, 2);
    caller_set(NULL);
    end(w);
}

/* ---- documents ------------------------------------------------------------------------------- */

Test(hub_mirror, a_files_document)
{
    struct hub_file f;
    bool absent;
    cr_assert(hub_file_read("none", &f, &absent) && absent);
    cr_assert(hub_file_read("git 5 " OID, &f, &absent) && !absent && f.size == 5);
    cr_assert(hub_file_read("lfs 5 " SHA, &f, &absent) && f.has_lfs);
    cr_assert_not(hub_file_read("lfs 5 " OID, &f, &absent));
    cr_assert_not(hub_file_read("git x", &f, &absent));
    cr_assert_not(hub_file_read("", &f, &absent));
}

/* As it may have come before such names were looked at. */
Test(hub_mirror, what_is_stored_is_looked_at_as_well)
{
    static const char stored[] =
        "{\"id\":\"o/m\",\"sha\":\"" C1 "\",\"siblings\":[{\"rfilename\":\"../x\"}]}";
    static const char rows[] = "[{\"type\":\"file\",\"path\":\"../x\",\"size\":1}]";
    struct world *w = world();
    cr_assert_eq(store_hub_pin_put(w->store, "hf", "o/m", "o/m", "main", C1, NULL), 0);
    cr_assert_eq(
        store_hub_document_put(w->store, "hf", "o/m", C1, "info", stored, strlen(stored), NULL), 0);
    cr_assert_eq(
        store_hub_document_put(w->store, "hf", "o/m", C1, "expanded:", rows, strlen(rows), NULL),
        0);
    cr_assert_eq(info(w, "main"), -1);
    cr_assert(w->err.code == ERR_UPSTREAM && strstr(w->err.text, "o/m at " C1) &&
                  strstr(w->err.text, "../x"),
              "%s", w->err.text);
    w->err = ERROR_INIT;
    cr_assert_eq(hub_mirror_expanded(w->m, &w->q, "", false, &w->text, &w->at, &w->err), -1);
    cr_assert(w->err.code == ERR_UPSTREAM && strstr(w->err.text, "../x"), "%s", w->err.text);
    asked(w, 0);
    end(w);
}
