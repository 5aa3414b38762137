#include "helper.h"

#include <pthread.h>

TestSuite(repository, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define REPO "hf/org/model"

static struct digest layer(const char *seed)
{
    return digest_of_text(seed);
}

static void import_ok(struct store *s, const char *repository, const char *commit, const char *tag,
                      const char *manifest, const struct import_link *links, size_t n)
{
    struct error err = ERROR_INIT;
    cr_assert(import_one(s, repository, commit, tag, manifest, links, n, &err) == 0, "%s",
              err.text);
}

Test(repository, import_gives_manifest_tags_and_links)
{
    struct store *s = open_store();
    struct digest config = put_text(s, "{config}");
    struct import_link links[] = {{config, 8, NULL}, {layer("w"), 1000, "a/model.safetensors"}};
    import_ok(s, REPO, COMMIT_A, "main", "{manifest}", links, 2);
    import_ok(s, REPO, COMMIT_A, "main", "{manifest}", links, 2); /* idempotent */

    struct manifest m;
    struct digest md = digest_of_text("{manifest}"), other = digest_of_text("{other}");
    cr_assert(store_manifest_get(s, REPO, &md, &m, NULL) == 1);
    cr_assert(m.len == 10 && memcmp(m.bytes, "{manifest}", 10) == 0);
    cr_assert_str_eq(m.media_type, "application/vnd.oci.image.manifest.v1+json");
    manifest_done(&m);
    cr_assert(store_manifest_get(s, REPO, &other, &m, NULL) == 0);
    cr_assert(store_manifest_get(s, "hf/org/other", &md, &m, NULL) == 0);

    struct tag t;
    cr_assert(store_tag_get(s, REPO, "main", &t, NULL) == 1);
    cr_assert(digest_equal(&t.digest, &md));
    cr_assert_str_eq(t.commit, COMMIT_A);
    cr_assert(t.checked_at + 60 > clock_wall_s());
    cr_assert(store_tag_get(s, REPO, COMMIT_A, &t, NULL) == 1);
    cr_assert(store_tag_get(s, REPO, "none", &t, NULL) == 0);

    struct link l;
    cr_assert(store_link_get(s, REPO, &links[1].digest, &l, NULL) == 1);
    cr_assert(l.size == 1000 && !l.held && l.has_origin);
    cr_assert_str_eq(l.origin.upstream, "hf");
    cr_assert_str_eq(l.origin.repo_id, "Org/Model");
    cr_assert_str_eq(l.origin.commit, COMMIT_A);
    cr_assert_str_eq(l.origin.path, "a/model.safetensors");
    link_done(&l);
    cr_assert(store_link_get(s, REPO, &config, &l, NULL) == 1);
    cr_assert(l.size == 8 && l.held && !l.has_origin);
    link_done(&l);
    cr_assert(store_link_get(s, "hf/org/other", &config, &l, NULL) == 0, "a digest is no way in");

    struct repository_row row;
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 1);
    cr_assert_str_eq(row.upstream, "hf");
    cr_assert_str_eq(row.repo_id, "Org/Model");
    cr_assert(store_repository_get(s, "hf/org/other", &row, NULL) == 0);
    store_close(s);

    s = open_store();
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.repositories == 1 && st.manifests == 1 && st.tags == 2 && st.blobs == 1);
    cr_assert(store_manifest_get(s, REPO, &md, &m, NULL) == 1);
    manifest_done(&m);
    store_close(s);
}

Test(repository, a_link_without_origin_must_be_held)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct import_link links[] = {{layer("w"), 10, "w"}, {digest_of_text("{config}"), 8, NULL}};
    cr_assert(import_one(s, REPO, COMMIT_A, "main", "{m}", links, 2, &err) == -1);
    cr_assert(err.code == ERR_INTERNAL, "%s", err.text);
    struct link l;
    struct tag t;
    cr_assert(store_link_get(s, REPO, &links[0].digest, &l, NULL) == 0, "all or nothing");
    cr_assert(store_tag_get(s, REPO, "main", &t, NULL) == 0);
    /* a row whose file is gone does not count as held */
    put_text(s, "{config}");
    char path[600];
    blob_path(&links[1].digest, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    cr_assert(import_one(s, REPO, COMMIT_A, "main", "{m}", links, 2, &err) == -1);
    cr_assert(err.code == ERR_INTERNAL);
    store_close(s);
}

Test(repository, an_import_that_lies_about_size_or_digest_is_refused)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest held = put_text(s, "12345");
    struct import_link links[] = {{held, 6, "path"}};
    cr_assert(import_one(s, REPO, COMMIT_A, "main", "{m}", links, 1, &err) == -1);
    cr_assert(err.code == ERR_UPSTREAM, "%s", err.text);
    const char *tags[] = {"main"};
    struct import_record r = {.repository = REPO,
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = COMMIT_A,
                              .tags = tags,
                              .n_tags = 1,
                              .manifest_digest = digest_of_text("another"),
                              .media_type = "x",
                              .manifest = "{m}",
                              .manifest_len = 3};
    cr_assert(store_commit_import(s, &r, &err) == -1 && err.code == ERR_INTERNAL);
    r.manifest_digest = digest_of_text("{m}");
    r.commit = "main";
    cr_assert(store_commit_import(s, &r, &err) == -1 && err.code == ERR_INVALID);
    r.commit = COMMIT_A;
    r.repository = "Upper/Case";
    cr_assert(store_commit_import(s, &r, &err) == -1 && err.code == ERR_INVALID);
    r.repository = REPO;
    tags[0] = "-bad";
    cr_assert(store_commit_import(s, &r, &err) == -1 && err.code == ERR_INVALID);
    store_close(s);
}

Test(repository, the_newest_origin_wins_and_a_held_size_is_the_real_one)
{
    struct store *s = open_store();
    struct digest d = layer("12345");
    struct link l;
    char path[16];
    for (int i = 0; i < 7; i++) {
        snprintf(path, sizeof(path), "p%d", i);
        struct import_link links[] = {{d, 99, path}};
        import_ok(s, REPO, COMMIT_A, "main", "{m}", links, 1);
        cr_assert(store_link_get(s, REPO, &d, &l, NULL) == 1);
        cr_assert_str_eq(l.origin.path, path);
        cr_assert(l.size == 99);
        link_done(&l);
    }
    put_text(s, "12345");
    cr_assert(store_link_get(s, REPO, &d, &l, NULL) == 1);
    cr_assert(l.size == 5 && l.held && l.has_origin);
    link_done(&l);
    store_close(s);
}

Test(repository, boundary_names)
{
    struct store *s = open_store();
    char repo[REPOSITORY_MAX + 2], tag[TAG_MAX + 2];
    memset(repo, 'r', sizeof(repo));
    repo[REPOSITORY_MAX] = '\0';
    memset(tag, 'T', sizeof(tag));
    tag[TAG_MAX] = '\0';
    struct digest d512 = {.alg = DIGEST_SHA512};
    memset(d512.raw, 7, sizeof(d512.raw));
    struct import_link links[] = {{d512, 10, "path"}};
    import_ok(s, repo, COMMIT_A, tag, "{m}", links, 1);
    struct tag t;
    struct link l;
    cr_assert(store_tag_get(s, repo, tag, &t, NULL) == 1);
    cr_assert(store_link_get(s, repo, &d512, &l, NULL) == 1);
    link_done(&l);
    struct name_list names;
    cr_assert(store_tags(s, repo, NULL, 10, &names, NULL) == 0);
    cr_assert(names.n == 2 && strcmp(names.names[0], tag) == 0 && !names.more);
    name_list_done(&names);
    struct reference ref = {.is_digest = true, .digest = digest_of_text("{m}")};
    memcpy(ref.repository, repo, sizeof(ref.repository));
    cr_assert(store_remove(s, &ref, NULL, "test", NULL) == 0);

    struct error err = ERROR_INIT;
    repo[REPOSITORY_MAX] = 'r';
    repo[REPOSITORY_MAX + 1] = '\0';
    cr_assert(import_one(s, repo, COMMIT_A, NULL, "{m}", links, 1, &err) == -1);
    cr_assert(err.code == ERR_INVALID);
    cr_assert(store_link_get(s, repo, &d512, &l, &err) == -1 && err.code == ERR_INVALID);
    tag[TAG_MAX] = 'T';
    tag[TAG_MAX + 1] = '\0';
    cr_assert(store_tag_get(s, REPO, tag, &t, &err) == -1 && err.code == ERR_INVALID);
    store_close(s);
}

Test(repository, a_manifest_may_be_sha512)
{
    struct store *s = open_store();
    struct digest md;
    cr_assert(digest_of(DIGEST_SHA512, "{m}", 3, &md, NULL) == 0);
    const char *tags[] = {"v1"};
    struct import_record r = {.repository = REPO,
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = COMMIT_A,
                              .tags = tags,
                              .n_tags = 1,
                              .manifest_digest = md,
                              .media_type = "x",
                              .manifest = "{m}",
                              .manifest_len = 3};
    struct manifest m;
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    cr_assert(store_manifest_get(s, REPO, &md, &m, NULL) == 1);
    manifest_done(&m);
    store_close(s);
}

static void assert_names(struct name_list *l, const char *const *want, size_t n, bool more)
{
    cr_assert(l->n == n, "%zu", l->n);
    for (size_t i = 0; i < n; i++)
        cr_assert_str_eq(l->names[i], want[i]);
    cr_assert(l->more == more);
    name_list_done(l);
}

Test(repository, tags_in_byte_order_page_by_page)
{
    struct store *s = open_store();
    import_ok(s, REPO, COMMIT_A, "b", "{m}", NULL, 0);
    import_ok(s, "hf/org/model2", COMMIT_A, "zzz", "{m}", NULL, 0);
    import_ok(s, "hf/org/mode", COMMIT_A, "zzz", "{m}", NULL, 0);
    struct digest md = digest_of_text("{m}");
    struct error err = ERROR_INIT;
    const char *more[] = {"B", "a", "_", "a.b", "a-b", "ab", "0"};
    for (size_t i = 0; i < 7; i++)
        cr_assert(store_tag_put(s, REPO, more[i], &md, "", &err) == 0, "%s", err.text);
    const char *const sorted[] = {"0", "B", "_", "a", "a-b", "a.b", COMMIT_A, "ab", "b"};
    struct name_list l;
    cr_assert(store_tags(s, REPO, NULL, 100, &l, NULL) == 0);
    assert_names(&l, sorted, 9, false);
    cr_assert(store_tags(s, REPO, NULL, 3, &l, NULL) == 0);
    assert_names(&l, sorted, 3, true);
    cr_assert(store_tags(s, REPO, "_", 3, &l, NULL) == 0);
    assert_names(&l, sorted + 3, 3, true);
    cr_assert(store_tags(s, REPO, "a.a", 100, &l, NULL) == 0, "last need not exist");
    assert_names(&l, sorted + 5, 4, false);
    cr_assert(store_tags(s, REPO, "b", 3, &l, NULL) == 0);
    assert_names(&l, NULL, 0, false);
    cr_assert(store_tags(s, REPO, NULL, 0, &l, NULL) == 0);
    assert_names(&l, NULL, 0, true);
    char huge[2000];
    memset(huge, 'a', sizeof(huge));
    huge[sizeof(huge) - 1] = '\0';
    cr_assert(store_tags(s, REPO, huge, 100, &l, NULL) == 0);
    cr_assert(l.n == 2, "only ab and b are behind it");
    name_list_done(&l);
    cr_assert(store_tags(s, "hf/org/none", NULL, 3, &l, &err) == -1 && err.code == ERR_NOT_FOUND);

    const char *const repos[] = {"hf/org/mode", REPO, "hf/org/model2"};
    cr_assert(store_repositories(s, NULL, 100, &l, NULL) == 0);
    assert_names(&l, repos, 3, false);
    cr_assert(store_repositories(s, "hf/org/mode", 1, &l, NULL) == 0);
    assert_names(&l, repos + 1, 1, true);
    store_close(s);
}

Test(repository, tag_put_and_confirm)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest md = digest_of_text("{m}"), none = digest_of_text("{none}");
    struct tag t;
    import_ok(s, REPO, COMMIT_A, "main", "{m}", NULL, 0);
    cr_assert(store_tag_put(s, REPO, "dev", &md, COMMIT_B, &err) == 0, "%s", err.text);
    cr_assert(store_tag_get(s, REPO, "dev", &t, NULL) == 1);
    cr_assert_str_eq(t.commit, COMMIT_B);
    cr_assert(store_tag_put(s, REPO, "dev", &none, COMMIT_B, &err) == -1);
    cr_assert(err.code == ERR_NOT_FOUND);
    cr_assert(store_tag_put(s, "hf/org/none", "dev", &md, COMMIT_B, &err) == -1);
    cr_assert(store_tag_put(s, REPO, "dev", &md, "short", &err) == -1 && err.code == ERR_INVALID);

    uint64_t before = t.checked_at;
    while (clock_wall_s() <= before + 1)
        usleep(10000);
    store_tag_confirm(s, REPO, "dev");
    store_tag_confirm(s, REPO, "no-such-tag");
    store_tag_confirm(s, "NOT A NAME", "x");
    store_close(s); /* writes what is queued */
    s = open_store();
    cr_assert(store_tag_get(s, REPO, "dev", &t, NULL) == 1);
    cr_assert(t.checked_at > before);
    cr_assert(store_tag_get(s, REPO, "no-such-tag", &t, NULL) == 0);
    store_close(s);
}

Test(repository, commit_files)
{
    struct store *s = open_store();
    struct commit_file files[] = {
        {.path = "config.json", .size = 5, .git_oid = COMMIT_B, .sha256 = digest_of_text("c")},
        {.path = "dir/\xc3\xa9 weird name",
         .size = UINT64_MAX,
         .has_lfs = true,
         .sha256 = digest_of_text("w")},
        {.path = "README.md", .size = 0},
    };
    const char *tags[] = {COMMIT_A};
    struct import_record r = {.repository = REPO,
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = COMMIT_A,
                              .tags = tags,
                              .n_tags = 1,
                              .manifest_digest = digest_of_text("{m}"),
                              .media_type = "x",
                              .manifest = "{m}",
                              .manifest_len = 3,
                              .files = files,
                              .n_files = 3};
    struct commit_files f;
    cr_assert(store_commit_files_get(s, "hf", "Org/Model", COMMIT_A, &f, NULL) == 0);
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    r.files = NULL; /* stays as it was */
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    cr_assert(store_commit_files_get(s, "hf", "Org/Model", COMMIT_A, &f, NULL) == 1);
    cr_assert(f.n == 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_str_eq(f.files[i].path, files[i].path);
        cr_assert(f.files[i].size == files[i].size);
        cr_assert_str_eq(f.files[i].git_oid, files[i].git_oid);
        cr_assert(f.files[i].has_lfs == files[i].has_lfs);
        cr_assert(f.files[i].sha256.alg == files[i].sha256.alg);
        cr_assert(memcmp(f.files[i].sha256.raw, files[i].sha256.raw, 64) == 0);
    }
    commit_files_done(&f);
    cr_assert(store_commit_files_get(s, "hf", "Org/Model", COMMIT_B, &f, NULL) == 0);
    cr_assert(store_commit_files_get(s, "hf2", "Org/Model", COMMIT_A, &f, NULL) == 0);
    char repo_id[REPOSITORY_MAX + 1], upstream[REPOSITORY_MAX + 1];
    memset(repo_id, 'R', sizeof(repo_id));
    memset(upstream, 'u', sizeof(upstream));
    repo_id[REPOSITORY_MAX] = upstream[REPOSITORY_MAX] = '\0';
    r.repo_id = repo_id;
    r.upstream = upstream;
    r.files = files;
    r.n_files = 0; /* a commit without files is a list too */
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    cr_assert(store_commit_files_get(s, upstream, repo_id, COMMIT_A, &f, NULL) == 1);
    cr_assert(f.n == 0);
    commit_files_done(&f);
    store_close(s);
}

static struct reference ref_of(const char *text)
{
    struct reference r;
    struct error err = ERROR_INIT;
    cr_assert(reference_parse(text, &r, &err) == 0, "%s", err.text);
    return r;
}

Test(repository, removing_tags_and_manifests)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest shared = layer("shared"), own = layer("own"), other = layer("other");
    struct import_link one[] = {{shared, 6, "s"}, {own, 3, "o"}};
    struct import_link two[] = {{shared, 6, "s"}, {other, 5, "x"}};
    import_ok(s, REPO, COMMIT_A, "main", "{1}", one, 2);
    import_ok(s, REPO, COMMIT_B, "dev", "{2}", two, 2);
    import_ok(s, "hf/org/copy", COMMIT_A, "main", "{1}", one, 2);

    struct reference r = ref_of(REPO ":main");
    struct tag t;
    struct link l;
    cr_assert(store_remove(s, &r, NULL, "test", &err) == 0, "%s", err.text);
    cr_assert(store_tag_get(s, REPO, "main", &t, NULL) == 0);
    cr_assert(store_tag_get(s, REPO, COMMIT_A, &t, NULL) == 1);
    cr_assert(store_remove(s, &r, NULL, "test", &err) == -1 && err.code == ERR_NOT_FOUND);

    r = (struct reference){.repository = REPO, .is_digest = true, .digest = digest_of_text("{1}")};
    cr_assert(store_remove(s, &r, NULL, "test", &err) == 0, "%s", err.text);
    cr_assert(store_remove(s, &r, NULL, "test", &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(store_tag_get(s, REPO, COMMIT_A, &t, NULL) == 0, "its tags go with it");
    cr_assert(store_tag_get(s, REPO, "dev", &t, NULL) == 1);
    cr_assert(store_link_get(s, REPO, &own, &l, NULL) == 0);
    cr_assert(store_link_get(s, REPO, &shared, &l, NULL) == 1, "the other manifest needs it");
    link_done(&l);
    cr_assert(store_link_get(s, "hf/org/copy", &own, &l, NULL) == 1, "another repository's");
    link_done(&l);

    r.digest = digest_of_text("{2}");
    cr_assert(store_remove(s, &r, NULL, "test", &err) == 0, "%s", err.text);
    cr_assert(store_link_get(s, REPO, &shared, &l, NULL) == 0);
    struct name_list names;
    cr_assert(store_tags(s, REPO, NULL, 9, &names, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(store_repositories(s, NULL, 9, &names, NULL) == 0);
    cr_assert(names.n == 1);
    name_list_done(&names);
    store_close(s);
}

Test(repository, all_of_a_name_that_is_anothers_now)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest config = put_text(s, "{config}"), weights = layer("w"), d = digest_of_text("{1}");
    struct import_link links[] = {{config, 8, NULL}, {weights, 1000, "w"}};
    static const char *const others[] = {"hf/org/mode", "hf/org/model2", "hf/org/model/part"};
    import_ok(s, REPO, COMMIT_A, "main", "{1}", links, 2);
    import_ok(s, REPO, COMMIT_B, "dev", "{2}", links, 2);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        import_ok(s, others[i], COMMIT_A, "main", "{1}", links, 2);

    struct tag t;
    struct link l;
    struct manifest m;
    struct name_list names;
    struct repository_row row;
    for (unsigned i = 0; i < 2; i++) { /* the second time there is nothing */
        cr_assert(store_vacate(s, REPO, "test", &err) == 0, "%s", err.text);
        cr_assert(store_tag_get(s, REPO, "main", &t, NULL) == 0);
        cr_assert(store_tag_get(s, REPO, COMMIT_B, &t, NULL) == 0);
        cr_assert(store_manifest_get(s, REPO, &d, &m, NULL) == 0);
        cr_assert(store_link_get(s, REPO, &config, &l, NULL) == 0);
        cr_assert(store_link_get(s, REPO, &weights, &l, NULL) == 0);
        cr_assert(store_repository_get(s, REPO, &row, NULL) == 0);
    }
    cr_assert(store_tags(s, REPO, NULL, 9, &names, &err) == -1 && err.code == ERR_NOT_FOUND);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        cr_assert(store_tag_get(s, others[i], "main", &t, NULL) == 1);
        cr_assert(store_link_get(s, others[i], &weights, &l, NULL) == 1);
        link_done(&l);
    }
    import_ok(s, REPO, COMMIT_A, "main", "{1}", links, 2);
    cr_assert(store_link_get(s, REPO, &weights, &l, NULL) == 1);
    link_done(&l);
    store_close(s);
}

Test(repository, gc_keeps_what_links_name)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest kept = put_text(s, "kept"), dead = put_text(s, "dead!");
    struct import_link one[] = {{kept, 4, NULL}};
    import_ok(s, REPO, COMMIT_A, "main", "{1}", one, 1);
    struct gc_result gc;
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = true}, &gc, &err) == 0, "%s", err.text);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 5);
    cr_assert(is_held(s, &dead), "a dry run removes nothing");
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 5);
    cr_assert(is_held(s, &kept) && !is_held(s, &dead));
    struct reference r = {.repository = REPO, .is_digest = true, .digest = digest_of_text("{1}")};
    cr_assert(store_remove(s, &r, NULL, "test", NULL) == 0);
    cr_assert(is_held(s, &kept), "bytes go with the next gc");
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.blobs_removed == 1 && !is_held(s, &kept));
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.blobs == 0 && st.blob_bytes == 0 && st.tags == 0 && st.repositories == 0);
    store_close(s);
}

#define MANY 1100u /* more than the collector takes at once */

struct putter {
    struct store *s;
    struct digest *all;
    unsigned from;
};

static void *put_many(void *arg)
{
    struct putter *p = arg;
    char text[32];
    for (unsigned i = p->from; i < MANY; i += 16) {
        snprintf(text, sizeof(text), "blob number %u", i);
        if (store_blob_put(p->s, text, strlen(text), &p->all[i], NULL) < 0)
            abort();
    }
    return NULL;
}

Test(repository, gc_many_chunks)
{
    struct store *s = open_store();
    struct digest *all = calloc(MANY, sizeof(*all));
    pthread_t threads[16];
    struct putter p[16];
    for (unsigned i = 0; i < 16; i++) {
        p[i] = (struct putter){.s = s, .all = all, .from = i};
        cr_assert(pthread_create(&threads[i], NULL, put_many, &p[i]) == 0);
    }
    for (unsigned i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < MANY; i += 100) {
        char text[32], m[32];
        snprintf(text, sizeof(text), "blob number %u", i);
        snprintf(m, sizeof(m), "{%u}", i);
        struct import_link l[] = {{all[i], strlen(text), NULL}};
        import_ok(s, REPO, COMMIT_A, NULL, m, l, 1);
    }
    struct gc_result gc;
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.blobs_removed == MANY - MANY / 100);
    for (unsigned i = 0; i < MANY; i += 50)
        cr_assert(is_held(s, &all[i]) == (i % 100 == 0));
    free(all);
    store_close(s);
}

Test(repository, gc_drops_partials_orphans_and_file_lists)
{
    struct store *s = open_store();
    struct digest linked = layer("linked"), loose = layer("loose");
    struct import_link links[] = {{linked, 100, "p"}};
    struct blob_writer *w = NULL;
    import_ok(s, REPO, COMMIT_A, NULL, "{1}", links, 1);
    cr_assert(writer_open(s, &linked, 100, &w, NULL) == 0);
    cr_assert(writer_write(w, "12345", 5, 0, NULL) == 0);
    writer_close(w, true);
    cr_assert(writer_open(s, &loose, 100, &w, NULL) == 0);
    cr_assert(writer_write(w, "1234567", 7, 0, NULL) == 0);
    writer_close(w, true);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 2 && st.partial_bytes == 12);
    /* a file that no row knows */
    struct digest orphan = digest_of_text("orphan");
    char path[600], folder[600];
    blob_path(&orphan, path, sizeof(path));
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
    mkdir(folder, 0750);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs("orphan", f);
    fclose(f);
    struct commit_file files[] = {{.path = "p", .size = 100}};
    const char *tags[] = {COMMIT_B};
    struct import_record r = {.repository = "hf/org/gone",
                              .upstream = "hf",
                              .repo_id = "Org/Gone",
                              .commit = COMMIT_B,
                              .tags = tags,
                              .n_tags = 1,
                              .manifest_digest = digest_of_text("{m}"),
                              .media_type = "x",
                              .manifest = "{m}",
                              .manifest_len = 3,
                              .files = files,
                              .n_files = 1};
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    struct gc_result gc;
    struct commit_files list;
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.partials_removed == 1 && gc.blobs_removed == 1 && gc.bytes_removed == 6);
    cr_assert(access(path, F_OK) < 0);
    cr_assert(store_commit_files_get(s, "hf", "Org/Gone", COMMIT_B, &list, NULL) == 1);
    commit_files_done(&list);
    struct reference ref = {
        .repository = "hf/org/gone", .is_digest = true, .digest = digest_of_text("{m}")};
    cr_assert(store_remove(s, &ref, NULL, "test", NULL) == 0);
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(store_commit_files_get(s, "hf", "Org/Gone", COMMIT_B, &list, NULL) == 0);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 1 && st.partial_bytes == 5);
    store_close(s);
}
