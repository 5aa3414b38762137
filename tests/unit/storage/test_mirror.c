/* Manifests that were fetched from a registry, links that it was asked for, and what it says are
 * the referrers of a manifest. */
#include "crash.h"
#include "push.h"

#include <inttypes.h>

TestSuite(mirror, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define REPO "docker.io/library/alpine"
#define SBOM "application/spdx+json"
#define SIGNATURE "application/vnd.example.signature"

static const struct origin hub = {
    .upstream = "docker.io", .repo_id = "library/alpine", .commit = "", .path = ""};

static struct push_record fetched(const char *text, const struct push_need *needs, size_t n,
                                  const char *const *tag)
{
    struct push_record r = record_of(REPO, text, needs, n, tag);
    r.is_mirror = true;
    r.origin = &hub;
    r.source = "mirror docker.io library/alpine";
    return r;
}

static struct digest fetch_ok(struct store *s, const char *text, const struct push_need *needs,
                              size_t n, const char *tag)
{
    struct push_record r = fetched(text, needs, n, tag ? &tag : NULL);
    push_record_ok(s, &r);
    return r.digest;
}

static int fetch_fails(struct store *s, const struct push_record *r, struct error *err)
{
    struct digest_list missing;
    *err = ERROR_INIT;
    int rc = store_manifest_push(s, r, &missing, err);
    cr_assert(missing.n == 0 && !missing.items);
    return rc;
}

static void record_ok(struct store *s, const char *text)
{
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text(text);
    cr_assert(store_link_record(s, REPO, &d, strlen(text), &hub, &err) == 0, "%s", err.text);
}

/* "" = no origin; NULL = no link. */
static const char *origin_of(struct store *s, const char *text)
{
    static char buf[600];
    struct error err = ERROR_INIT;
    struct link l;
    struct digest d = digest_of_text(text);
    int r = store_link_get(s, REPO, &d, &l, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 0)
        return NULL;
    cr_assert(l.size == strlen(text));
    buf[0] = '\0';
    if (l.has_origin)
        snprintf(buf, sizeof(buf), "%s %s %s %s", l.origin.upstream, l.origin.repo_id,
                 l.origin.commit, l.origin.path);
    link_done(&l);
    return buf;
}

/* ---- manifests ---- */

Test(mirror, a_fetched_manifest_links_what_it_needs)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct push_need needs[] = {need_of("config"),
                                need_of("layer"),
                                need_of("layer"),
                                {NEED_OPTIONAL, digest_of_text("foreign"), 7},
                                {NEED_CHILD, digest_of_text("{child}"), 7}};
    uint64_t before = clock_wall_s();
    struct digest d = fetch_ok(s, "{m}", needs, 5, "latest");
    cr_assert(has_manifest(s, REPO, &d));
    static const char *const linked[] = {"config", "layer", "foreign"};
    for (int i = 0; i < 3; i++) {
        cr_assert_str_eq(origin_of(s, linked[i]), "docker.io library/alpine  ");
        struct digest b = digest_of_text(linked[i]);
        cr_assert(!is_held(s, &b));
    }
    cr_assert_null(origin_of(s, "{child}"), "a manifest is asked for as one");
    struct repository_row row;
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 1);
    cr_assert(strcmp(row.upstream, "docker.io") == 0 && strcmp(row.repo_id, "library/alpine") == 0);
    struct tag t;
    cr_assert(store_tag_get(s, REPO, "latest", &t, NULL) == 1 && digest_equal(&t.digest, &d));
    cr_assert(!t.commit[0] && t.checked_at >= before && t.checked_at <= clock_wall_s());
    struct tag_history h;
    cr_assert(store_tag_history(s, REPO, "latest", 9, &h, &err) == 0 && h.n == 1, "%s", err.text);
    cr_assert_str_eq(h.events[0].source, "mirror docker.io library/alpine");
    tag_history_done(&h);
    fetch_ok(s, "{m}", needs, 5, "latest"); /* again */
    store_close(s);
    cr_assert(raw_count("uses") == 4 && raw_count("links") == 3, "no holds");
    struct digest child = digest_of_text("{child}");
    struct key use = key_of_use(&child, REPO, &d);
    cr_assert(raw_has("uses", &use));
    s = open_store();
    collect(s, false, 0);
    cr_assert(has_manifest(s, REPO, &d) && origin_of(s, "layer"));
    store_close(s);
}

static struct link_row raw_link(const char *text, char buf[static 4096])
{
    struct digest d = digest_of_text(text);
    struct key key = key_of_content(REPO, &d);
    struct raw r = raw_open("links");
    MDB_val k = {key.len, key.data}, v;
    struct link_row row;
    cr_assert(mdb_get(r.txn, r.dbi, &k, &v) == 0 && v.mv_size <= 4096);
    memcpy(buf, v.mv_data, v.mv_size);
    cr_assert(link_row_decode(buf, v.mv_size, &row, NULL) == 0);
    raw_close(&r);
    return row;
}

Test(mirror, the_origin_comes_before_those_that_a_link_has)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    char buf[4096];
    struct import_link link = {digest_of_text("layer"), 5, "w"};
    struct push_need needs[] = {need_of("layer"), need_of("pushed")};
    cr_assert(import_one(s, REPO, COMMIT_A, NULL, "{1}", &link, 1, &err) == 0, "%s", err.text);
    upload_text(s, REPO, "pushed");
    fetch_ok(s, "{m}", needs, 2, NULL);
    fetch_ok(s, "{m2}", needs, 2, NULL);
    cr_assert_str_eq(origin_of(s, "layer"), "docker.io library/alpine  ");
    cr_assert_str_eq(origin_of(s, "pushed"), "docker.io library/alpine  ");
    store_close(s);
    struct link_row row = raw_link("layer", buf);
    cr_assert(row.n_origins == 2 && strcmp(row.origins[1].upstream, "hf") == 0);
    row = raw_link("pushed", buf);
    cr_assert(row.n_origins == 1);
    struct digest pushed = digest_of_text("pushed");
    struct key hold = hold_key(REPO, &pushed);
    cr_assert(!raw_has("uses", &hold), "the manifest took its place");
}

Test(mirror, another_size_than_that_of_held_bytes_is_refused)
{
    struct store *s = open_store();
    struct error err;
    struct push_need child = {NEED_CHILD, digest_of_text("{child}"), 8};
    struct push_need needs[] = {{NEED_BLOB, digest_of_text("layer"), 6},
                                {NEED_OPTIONAL, digest_of_text("layer"), 6},
                                child};
    put_text(s, "layer"); /* bytes are bytes, whose link ever they have */
    fetch_ok(s, "{child}", NULL, 0, NULL);
    for (int i = 0; i < 3; i++) {
        struct push_record r = fetched("{m}", &needs[i], 1, NULL);
        cr_assert(fetch_fails(s, &r, &err) == -1 && err.code == ERR_UPSTREAM, "%s", err.text);
        cr_assert(strstr(err.text, i == 2 ? " 7 bytes" : " 5 bytes"), "%s", err.text);
        cr_assert(strstr(err.text, i == 2 ? "says 8" : "says 6"), "%s", err.text);
        cr_assert(!has_manifest(s, REPO, &r.digest) && !origin_of(s, "layer"));
    }
    char path[600];
    struct digest layer = digest_of_text("layer");
    blob_path(&layer, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    struct push_record r = fetched("{m}", needs, 1, NULL);
    cr_assert(fetch_fails(s, &r, &err) == 0, "a row whose file is gone does not decide: %s",
              err.text);
    store_close(s);
}

static struct link link_of(struct store *s, const char *text)
{
    struct link l;
    struct digest d = digest_of_text(text);
    cr_assert(store_link_get(s, REPO, &d, &l, NULL) == 1);
    struct link copy = {.size = l.size, .claimed = l.claimed};
    link_done(&l);
    return copy;
}

Test(mirror, sizes_that_manifests_disagree_about)
{
    struct store *s = open_store();
    struct digest layer = digest_of_text("layer");
    struct push_need right = need_of("layer"), wrong = right, twice[2];
    wrong.size = 6;
    twice[0] = wrong;
    twice[1] = right;
    fetch_ok(s, "{1}", &wrong, 1, NULL);
    cr_assert(link_of(s, "layer").size == 6, "there is nothing better");
    fetch_ok(s, "{2}", &right, 1, NULL);
    cr_assert(link_of(s, "layer").size == LINK_SIZE_UNKNOWN && link_of(s, "layer").claimed);
    fetch_ok(s, "{3}", &right, 1, NULL);
    fetch_ok(s, "{4}", twice, 2, NULL);
    store_close(s);
    s = open_store();
    cr_assert(link_of(s, "layer").size == LINK_SIZE_UNKNOWN, "two against one prove nothing");
    /* A referrer that is pushed beside it names the true size. */
    struct push_record r = record_of(REPO, "{signature}", &right, 1, NULL);
    struct digest subject = digest_of_text("{1}");
    r.is_mirror = true;
    r.subject = &subject;
    push_record_ok(s, &r);
    record_ok(s, "layer");
    cr_assert(link_of(s, "layer").size == 5 && !link_of(s, "layer").claimed);
    fetch_ok(s, "{5}", &wrong, 1, NULL);
    cr_assert(link_of(s, "layer").size == 5, "the upstream's own word stays");
    cr_assert(store_link_resize(s, REPO, &layer, 7, NULL) == 0);
    cr_assert(link_of(s, "layer").size == 7);
    put_text(s, "layer");
    cr_assert(link_of(s, "layer").size == 5);
    cr_assert(store_link_resize(s, REPO, &layer, 7, NULL) == 0);
    store_close(s);
    char buf[4096];
    cr_assert(raw_link("layer", buf).size == 5, "bytes that are here know best");
    struct digest none = digest_of_text("none");
    s = open_store();
    cr_assert(store_link_resize(s, REPO, &none, 7, NULL) == 0 && !origin_of(s, "none"));
    store_close(s);
}

/* A claim keeps its manifest's size when its registry says that it has the blob: of HEADs that say
 * nothing of the length there are many. */
Test(mirror, a_claim_keeps_its_size)
{
    struct store *s = open_store();
    struct digest layer = digest_of_text("layer");
    struct push_need right = need_of("layer");
    fetch_ok(s, "{1}", &right, 1, NULL);
    cr_assert(store_link_record(s, REPO, &layer, 0, &hub, NULL) == 0);
    cr_assert(link_of(s, "layer").size == 5 && !link_of(s, "layer").claimed);
    store_close(s);
}

Test(mirror, bad_origins_are_refused)
{
    struct store *s = open_store();
    struct error err;
    char longer[REPOSITORY_MAX + 2];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    const struct origin bad[] = {
        {"", "a", "", ""},     {"a", "", "", ""},        {longer, "a", "", ""},
        {"a", longer, "", ""}, {"a", "b", COMMIT_A, ""}, {"a", "b", "", "w"},
    };
    struct digest d = digest_of_text("layer");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct push_record r = fetched("{m}", NULL, 0, NULL);
        r.origin = &bad[i];
        cr_assert(fetch_fails(s, &r, &err) == -1, "%zu", i);
        cr_assert(err.code == (i < 4 ? ERR_INVALID : ERR_INTERNAL));
        err = ERROR_INIT;
        cr_assert(store_link_record(s, REPO, &d, 5, &bad[i], &err) == -1);
        cr_assert(err.code == (i < 4 ? ERR_INVALID : ERR_INTERNAL));
    }
    cr_assert_null(origin_of(s, "layer"));
    store_close(s);
}

Test(mirror, removing_lets_go_at_once_and_fetching_brings_it_back)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct push_need needs[] = {need_of("own"), need_of("shared")}, *shared = &needs[1];
    struct digest own = put_text(s, "own"), both = put_text(s, "shared");
    struct digest a = fetch_ok(s, "{a}", needs, 2, "v1"), b = fetch_ok(s, "{b}", shared, 1, "v2");
    collect(s, false, 0);
    cr_assert(is_held(s, &own) && is_held(s, &both));
    cr_assert(remove_digest(s, REPO, &a, &err) == 0, "%s", err.text);
    cr_assert(!origin_of(s, "own") && origin_of(s, "shared"));
    struct gc_result gc = collect(s, false, 100000);
    cr_assert(gc.blobs_removed == 1 && gc.blobs_held == 0, "no grace for what can be had again");
    cr_assert(tag_digest(s, REPO, "v1").alg == DIGEST_NONE);
    cr_assert(remove_digest(s, REPO, &b, &err) == 0, "%s", err.text);
    struct repository_row row;
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 0);
    fetch_ok(s, "{a}", needs, 2, "v1");
    cr_assert(origin_of(s, "own") && store_repository_get(s, REPO, &row, NULL) == 1);
    store_close(s);
}

Test(mirror, a_signature_pushed_beside_needs_no_bytes_and_is_held_when_it_goes)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct push_need config = need_of("config"), needs[] = {config, need_of("signature")};
    struct digest sum = digest_of_text("signature"), m = fetch_ok(s, "{m}", &config, 1, "v1");
    upload_text(s, REPO, "signature");
    struct push_record r = record_of(REPO, "{signature}", needs, 2, NULL);
    r.is_mirror = true;
    r.subject = &m;
    push_record_ok(s, &r);
    struct repository_row row;
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 1);
    cr_assert(remove_digest(s, REPO, &r.digest, &err) == 0, "%s", err.text);
    cr_assert_str_eq(origin_of(s, "signature"), "");
    cr_assert(collect(s, false, 100000).blobs_held == 1 && is_held(s, &sum));
    cr_assert_str_eq(origin_of(s, "config"), "docker.io library/alpine  ");
    store_close(s);
}

/* A repository that clients pushed to first gets its upstream's name when something is fetched. */
Test(mirror, the_repository_learns_what_it_stands_for)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{m}");
    struct push_record r = record_of(REPO, "{signature}", NULL, 0, NULL);
    struct repository_row row;
    r.is_mirror = true;
    r.subject = &subject;
    push_record_ok(s, &r);
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 0);
    fetch_ok(s, "{m}", NULL, 0, NULL);
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 1);
    cr_assert_str_eq(row.repo_id, "library/alpine");
    push_record_ok(s, &r);
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 1, "and keeps it");
    store_close(s);
}

/* The collector's look at commits does not stumble over origins that have none. */
Test(mirror, file_lists_of_imports_stay)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct commit_file file = {.path = "w", .size = 5, .git_oid = COMMIT_B};
    struct import_link link = {digest_of_text("layer"), 5, "w"};
    struct import_record r = {.repository = "hf/org/model",
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = COMMIT_A,
                              .manifest_digest = digest_of_text("{1}"),
                              .media_type = IMAGE,
                              .manifest = "{1}",
                              .manifest_len = 3,
                              .links = &link,
                              .n_links = 1,
                              .files = &file,
                              .n_files = 1};
    struct push_need need = need_of("layer");
    struct commit_files files;
    cr_assert(store_commit_import(s, &r, &err) == 0, "%s", err.text);
    fetch_ok(s, "{m}", &need, 1, "latest");
    collect(s, false, 0);
    cr_assert(store_commit_files_get(s, "hf", "Org/Model", COMMIT_A, &files, &err) == 1);
    commit_files_done(&files);
    cr_assert(origin_of(s, "layer"));
    store_close(s);
}

/* ---- links ---- */

Test(mirror, a_recorded_link_is_held_for_a_while)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("layer");
    record_ok(s, "layer");
    record_ok(s, "layer");
    cr_assert_str_eq(origin_of(s, "layer"), "docker.io library/alpine  ");
    put_text(s, "layer");
    cr_assert(collect(s, false, 100000).blobs_held == 1 && is_held(s, &d));
    struct repository_row row;
    cr_assert(store_repository_get(s, REPO, &row, NULL) == 0, "a link makes no repository");
    cr_assert(store_blob_unlink(s, REPO, &d, NULL, &err) == 0, "%s", err.text);
    cr_assert_null(origin_of(s, "layer"));
    record_ok(s, "layer");
    cr_assert(origin_of(s, "layer"), "recorded anew");
    cr_assert(collect(s, false, 0).blobs_removed == 1);
    cr_assert_null(origin_of(s, "layer"));
    record_ok(s, "layer");
    struct push_need need = need_of("layer");
    fetch_ok(s, "{m}", &need, 1, NULL);
    store_close(s);
    struct key hold = hold_key(REPO, &d);
    cr_assert(!raw_has("uses", &hold) && raw_count("uses") == 1);
}

Test(mirror, a_link_that_is_there_stays_as_it_is)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct import_link link = {digest_of_text("layer"), 5, "w"};
    cr_assert(import_one(s, REPO, COMMIT_A, NULL, "{1}", &link, 1, &err) == 0, "%s", err.text);
    upload_text(s, REPO, "pushed");
    record_ok(s, "layer");
    record_ok(s, "pushed");
    cr_assert_str_eq(origin_of(s, "layer"), "hf Org/Model " COMMIT_A " w");
    cr_assert_str_eq(origin_of(s, "pushed"), "");
    store_close(s);
    struct digest layer = digest_of_text("layer");
    struct key hold = hold_key(REPO, &layer);
    cr_assert(!raw_has("uses", &hold));
}

Test(mirror, a_recorded_link_must_have_the_size_of_the_bytes)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = put_text(s, "layer");
    cr_assert(store_link_record(s, REPO, &d, 6, &hub, &err) == -1 && err.code == ERR_UPSTREAM);
    cr_assert(strstr(err.text, "said to have 6 bytes, but has 5"), "%s", err.text);
    cr_assert_null(origin_of(s, "layer"));
    record_ok(s, "layer");
    cr_assert(store_link_record(s, "Bad", &d, 5, &hub, &err) == -1);
    store_close(s);
}

Test(mirror, damaged_links_are_mended)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct link l;
    struct digest d = digest_of_text("layer");
    struct key k = key_of_content(REPO, &d);
    struct push_need need = need_of("layer");
    for (int i = 0; i < 2; i++) {
        store_close(s);
        raw_put("links", &k, "\x03\xff", 2);
        s = open_store();
        cr_assert(store_link_get(s, REPO, &d, &l, &err) == -1 && err.code == ERR_IO);
        if (i)
            record_ok(s, "layer");
        else
            fetch_ok(s, "{m}", &need, 1, NULL);
        cr_assert_str_eq(origin_of(s, "layer"), "docker.io library/alpine  ");
    }
    store_close(s);
}

/* ---- what an upstream says are the referrers ---- */

static struct referrer said(const char *text, const char *type, const char *annotations)
{
    return (struct referrer){.digest = digest_of_text(text),
                             .size = strlen(text),
                             .media_type = IMAGE,
                             .artifact_type = type,
                             .annotations = annotations};
}

static void say(struct store *s, const struct digest *subject, const struct referrer *items,
                size_t n)
{
    struct error err = ERROR_INIT;
    cr_assert(store_referrers_replace(s, REPO, subject, items, n, &err) == 0, "%s", err.text);
}

static struct digest refer(struct store *s, const char *text, const struct digest *subject,
                           const char *type)
{
    struct push_record r = record_of(REPO, text, NULL, 0, NULL);
    r.is_mirror = true;
    r.subject = subject;
    r.artifact_type = type;
    push_record_ok(s, &r);
    return r.digest;
}

/* The artifact types of the list, in a string, page by page; every page size gives the same. */
static const char *types_of(struct store *s, const struct digest *subject, const char *type)
{
    static char first[2000], now[2000];
    for (size_t limit = 1; limit < 8; limit++) {
        struct digest last;
        bool more = true, is_first = true;
        now[0] = '\0';
        while (more) {
            struct error err = ERROR_INIT;
            struct referrer_list l;
            cr_assert(store_referrers(s, REPO, subject, type, is_first ? NULL : &last, limit,
                                      SIZE_MAX, &l, &err) == 0,
                      "%s", err.text);
            cr_assert(l.n <= limit && (!l.more || l.n == limit));
            for (size_t i = 0; i < l.n; i++) {
                cr_assert(is_first || digest_order(&last, &l.items[i].digest) < 0, "each once");
                last = l.items[i].digest;
                is_first = false;
                snprintf(now + strlen(now), sizeof(now) - strlen(now), "%s;",
                         l.items[i].artifact_type);
            }
            more = l.more;
            referrer_list_done(&l);
        }
        if (limit == 1)
            strcpy(first, now);
        cr_assert_str_eq(first, now, "pages of %zu", limit);
    }
    return first;
}

static size_t count_of(const char *types)
{
    size_t n = 0;
    for (; *types; types++)
        n += *types == ';';
    return n;
}

Test(mirror, referrers_that_an_upstream_told_are_merged)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}"), other = digest_of_text("{other}");
    struct referrer told[] = {said("{a}", SBOM, "{\"x\":\"y\"}"), said("{b}", SIGNATURE, NULL),
                              said("{a}", "second", NULL), said("{c}", SBOM, NULL)};
    say(s, &subject, told, 4);
    say(s, &other, told, 1);
    cr_assert(count_of(types_of(s, &subject, NULL)) == 3);
    cr_assert(count_of(types_of(s, &subject, SBOM)) == 2);
    cr_assert(count_of(types_of(s, &subject, "second")) == 0, "the first of a digest counts");
    struct referrer_list l;
    cr_assert(store_referrers(s, REPO, &other, NULL, NULL, 9, 999, &l, NULL) == 0 && l.n == 1);
    cr_assert(l.items[0].size == 3 && strcmp(l.items[0].annotations, "{\"x\":\"y\"}") == 0);
    cr_assert_str_eq(l.items[0].media_type, IMAGE);
    referrer_list_done(&l);

    /* What is here itself is shown as it is here, whatever is asked for. */
    refer(s, "{a}", &subject, "own");
    refer(s, "{d}", &subject, SIGNATURE);
    cr_assert(count_of(types_of(s, &subject, NULL)) == 4);
    cr_assert_str_eq(types_of(s, &subject, "own"), "own;");
    cr_assert_str_eq(types_of(s, &subject, SBOM), SBOM ";", "not what was told of {a}");
    cr_assert(count_of(types_of(s, &subject, SIGNATURE)) == 2);

    /* A new list takes the old one's place, and that of nothing else. */
    say(s, &subject, &told[3], 1);
    cr_assert(count_of(types_of(s, &subject, NULL)) == 3, "own {a}, own {d}, {c}");
    cr_assert(count_of(types_of(s, &other, NULL)) == 1);
    say(s, &subject, NULL, 0);
    cr_assert(count_of(types_of(s, &subject, NULL)) == 2);
    store_close(s);
    cr_assert(raw_count("referrers") == 3);
}

Test(mirror, removing_a_referrer_shows_again_what_was_told)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest subject = digest_of_text("{subject}");
    struct referrer told = said("{a}", "told", NULL);
    struct digest a = refer(s, "{a}", &subject, "own");
    say(s, &subject, &told, 1);
    cr_assert_str_eq(types_of(s, &subject, NULL), "own;");
    cr_assert(remove_digest(s, REPO, &a, &err) == 0, "%s", err.text);
    cr_assert_str_eq(types_of(s, &subject, NULL), "told;",
                     "also when it was the repository's last manifest");
    store_close(s);
    /* The same where the manifest's row can no longer say what its subject was. */
    s = open_store();
    refer(s, "{a}", &subject, "own");
    store_close(s);
    struct key k = key_of_content(REPO, &a);
    raw_put("manifests", &k, "\x04\x01", 2);
    s = open_store();
    cr_assert(remove_digest(s, REPO, &a, &err) == 0, "%s", err.text);
    cr_assert_str_eq(types_of(s, &subject, NULL), "told;");
    store_close(s);
}

Test(mirror, the_collector_drops_what_was_told_of_absent_subjects)
{
    struct store *s = open_store();
    struct digest absent = digest_of_text("{absent}"), here = fetch_ok(s, "{here}", NULL, 0, NULL);
    struct referrer told[] = {said("{a}", SBOM, NULL), said("{b}", SBOM, NULL)};
    say(s, &absent, told, 2);
    say(s, &here, told, 2);
    refer(s, "{own}", &absent, "own");
    collect(s, true, 0);
    cr_assert(count_of(types_of(s, &absent, NULL)) == 3);
    collect(s, false, 0);
    cr_assert_str_eq(types_of(s, &absent, NULL), "own;");
    cr_assert(count_of(types_of(s, &here, NULL)) == 2);
    store_close(s);
}

static size_t last_write(void)
{
    struct raw r = raw_open("referrers");
    MDB_envinfo info;
    cr_assert(mdb_env_info(r.env, &info) == 0);
    mdb_txn_abort(r.txn);
    mdb_env_close(r.env);
    return info.me_last_txnid;
}

Test(mirror, the_same_list_again_writes_nothing)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}");
    struct referrer told[] = {said("{a}", SBOM, NULL), said("{b}", SBOM, "{}"),
                              said("{c}", SBOM, NULL)};
    say(s, &subject, told, 3);
    store_close(s);
    size_t at = last_write();
    s = open_store();
    store_close(s);
    size_t opening = last_write() - at;
    at += opening;
    s = open_store();
    struct referrer other[] = {told[2], told[0], told[1]};
    say(s, &subject, told, 3);
    say(s, &subject, other, 3);
    store_close(s);
    cr_assert(last_write() == at + opening);
    at = last_write();
    s = open_store();
    other[0].annotations = "{}";
    say(s, &subject, other, 3);
    store_close(s);
    cr_assert(last_write() > at + opening);
}

Test(mirror, a_damaged_referrer_goes_with_the_next_list)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct referrer_list l;
    struct digest subject = digest_of_text("{subject}"), bad = {.alg = DIGEST_NONE};
    struct referrer told = said("{a}", SBOM, NULL), wrong = told;
    say(s, &subject, &told, 1);
    store_close(s);
    struct key k = key_of_told_referrer(REPO, &subject, &told.digest);
    raw_put("referrers", &k, "\x0b\x01", 2);
    s = open_store();
    cr_assert(store_referrers(s, REPO, &subject, NULL, NULL, 9, 999, &l, &err) == -1);
    cr_assert(err.code == ERR_IO);
    say(s, &subject, &told, 1);
    cr_assert_str_eq(types_of(s, &subject, NULL), SBOM ";");
    wrong.digest = bad;
    cr_assert(store_referrers_replace(s, REPO, &subject, &wrong, 1, &err) == -1);
    cr_assert_str_eq(types_of(s, &subject, NULL), SBOM ";");
    store_close(s);
}

Test(mirror, keys_of_referrers)
{
    struct digest d = digest_of_text("a"), got;
    bool told;
    struct key prefix = key_of_referrer(REPO, &d, NULL), own = key_of_referrer(REPO, &d, &d);
    struct key k = key_of_told_referrer(REPO, &d, &d);
    cr_assert(k.len == own.len + 1 && memcmp(k.data, own.data, own.len) == 0, "straight behind");
    cr_assert(key_get_referrer(k.data + prefix.len, k.len - prefix.len, &got, &told) && told);
    cr_assert(digest_equal(&got, &d));
    cr_assert(key_get_referrer(own.data + prefix.len, own.len - prefix.len, &got, &told) && !told);
    cr_assert(!key_get_referrer(own.data + prefix.len, own.len - prefix.len - 1, &got, &told));
    k.data[k.len - 1] = 2;
    cr_assert(!key_get_referrer(k.data + prefix.len, k.len - prefix.len, &got, &told));
    cr_assert(!key_get_referrer("", 0, &got, &told));
    char repo[REPOSITORY_MAX + 1];
    memset(repo, 'r', sizeof(repo));
    repo[REPOSITORY_MAX] = '\0';
    struct digest wide = {.alg = DIGEST_SHA512};
    k = key_of_told_referrer(repo, &wide, &wide);
    cr_assert(!k.overflow);
}

/* ---- crashes ---- */

static void do_fetch(struct store *s)
{
    struct push_need needs[] = {need_of("config"), need_of("layer")};
    fetch_ok(s, "{m}", needs, 2, "latest");
}

static void do_say(struct store *s)
{
    struct digest subject = digest_of_text("{subject}");
    struct referrer old = said("{old}", "old", NULL);
    struct referrer told[] = {said("{a}", "new", NULL), said("{b}", "new", NULL)};
    /* The first list gets there, or there is no second one. */
    void (*fault)(const char *) = storage_fault;
    storage_fault = NULL;
    say(s, &subject, &old, 1);
    storage_fault = fault;
    say(s, &subject, told, 2);
}

Test(mirror, a_crash_leaves_all_or_nothing)
{
    static const char *const points[] = {"push.rows", "push.done"};
    static const char *const list_points[] = {"referrers.rows", "referrers.done"};
    struct digest m = digest_of_text("{m}"), subject = digest_of_text("{subject}");
    for (int i = 0; i < 2; i++) {
        run_killed(points[i], do_fetch);
        struct store *s = open_store();
        struct repository_row row;
        cr_assert(has_manifest(s, REPO, &m) == (i == 1), "%s", points[i]);
        cr_assert((origin_of(s, "config") != NULL) == (i == 1));
        cr_assert((origin_of(s, "layer") != NULL) == (i == 1));
        cr_assert((tag_digest(s, REPO, "latest").alg != DIGEST_NONE) == (i == 1));
        cr_assert(store_repository_get(s, REPO, &row, NULL) == i);
        do_fetch(s);
        cr_assert(has_manifest(s, REPO, &m) && origin_of(s, "layer"));
        store_close(s);
        clear_data();
        run_killed(list_points[i], do_say);
        s = open_store();
        cr_assert_str_eq(types_of(s, &subject, NULL), i ? "new;new;" : "old;", "%s",
                         list_points[i]);
        do_say(s);
        cr_assert_str_eq(types_of(s, &subject, NULL), "new;new;");
        store_close(s);
        clear_data();
    }
}
