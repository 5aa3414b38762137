/* Pushed manifests and the blobs that they need. */
#include "push.h"

#include <pthread.h>

TestSuite(push, .init = dir_make, .fini = dir_remove, .timeout = 240);

Test(push, gives_manifest_tag_and_uses)
{
    struct store *s = open_store();
    struct push_need needs[] = {need_of("layer"), need_of("config"), need_of("layer")};
    struct digest config = upload_text(s, LOCAL, "config"), layer = upload_text(s, LOCAL, "layer");
    struct digest d = push_ok(s, LOCAL, "{m}", needs, 3, "v1");
    struct manifest m;
    struct tag t;
    struct repository_row row;
    cr_assert(store_manifest_get(s, LOCAL, &d, &m, NULL) == 1);
    cr_assert(m.len == 3 && memcmp(m.bytes, "{m}", 3) == 0);
    cr_assert_str_eq(m.media_type, IMAGE);
    manifest_done(&m);
    cr_assert(store_tag_get(s, LOCAL, "v1", &t, NULL) == 1);
    cr_assert(digest_equal(&t.digest, &d) && t.commit[0] == '\0');
    cr_assert(store_repository_get(s, LOCAL, &row, NULL) == 0, "it stands for nothing elsewhere");
    struct name_list names;
    cr_assert(store_repositories(s, NULL, 9, &names, NULL) == 0 && names.n == 1);
    name_list_done(&names);
    cr_assert(store_tags(s, LOCAL, NULL, 9, &names, NULL) == 0 && names.n == 1);
    name_list_done(&names);
    cr_assert(has_link(s, LOCAL, &config) && has_link(s, LOCAL, &layer));
    store_close(s);

    struct key hold = hold_key(LOCAL, &layer), use = key_of_use(&layer, LOCAL, &d);
    cr_assert(raw_count("uses") == 2 && raw_has("uses", &use) && !raw_has("uses", &hold),
              "the manifest took the holds' places");
    s = open_store();
    cr_assert(has_manifest(s, LOCAL, &d) && is_held(s, &config) && is_held(s, &layer));
    struct gc_result gc = collect(s, false, 0);
    cr_assert(gc.blobs_removed == 0 && gc.blobs_held == 0);
    store_close(s);
}

/* ---- what is missing or wrong ---- */

Test(push, names_everything_that_is_missing)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    const char *tag = "v1";
    struct push_need needs[] = {need_of("here"),
                                need_of("one"),
                                need_of("two"),
                                need_of("two"),
                                need_of("three"),
                                {NEED_OPTIONAL, digest_of_text("foreign"), 7},
                                {NEED_CHILD, digest_of_text("{child}"), 7}};
    upload_text(s, LOCAL, "here");
    upload_text(s, "team/other", "one"); /* another repository's link is no link */
    put_text(s, "three");                /* nor are bytes without a link */
    struct push_record r = record_of(LOCAL, "{m}", needs, 7, &tag);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(missing.n == 4, "%zu", missing.n);
    const char *texts[] = {"one", "two", "three", "{child}"};
    for (int i = 0; i < 4; i++) {
        struct digest want = digest_of_text(texts[i]);
        bool found = false;
        for (size_t j = 0; j < missing.n; j++)
            found |= digest_equal(&missing.items[j], &want);
        cr_assert(found, "%s", texts[i]);
    }
    char text[DIGEST_TEXT_MAX];
    cr_assert(strstr(err.text, LOCAL) && strstr(err.text, digest_format(&missing.items[0], text)));
    digest_list_done(&missing);
    cr_assert(!missing.items && missing.n == 0);
    cr_assert(!has_manifest(s, LOCAL, &r.digest));
    struct name_list names;
    cr_assert(store_tags(s, LOCAL, NULL, 9, &names, &err) == -1 && err.code == ERR_NOT_FOUND,
              "nothing was stored");
    cr_assert(collect(s, true, 1000).blobs_held == 2);
    cr_assert(store_manifest_push(s, &r, &missing, NULL) == -1 && missing.n == 4,
              "also for who wants no text");
    digest_list_done(&missing);
    store_close(s);
}

Test(push, refuses_another_size)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    upload_text(s, LOCAL, "layer");
    push_pair(s, LOCAL, "l", "{child}", NULL);
    enum need_kind kinds[] = {NEED_BLOB, NEED_OPTIONAL, NEED_CHILD};
    for (int i = 0; i < 3; i++) {
        struct push_need need = {kinds[i], digest_of_text(i == 2 ? "{child}" : "layer"), 4};
        struct push_record r = record_of(LOCAL, "{m}", &need, 1, NULL);
        cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && err.code == ERR_INVALID);
        cr_assert(missing.n == 0 && strstr(err.text, i == 2 ? " 7 " : " 5 ") &&
                      strstr(err.text, " 4"),
                  "%s", err.text);
        cr_assert(!has_manifest(s, LOCAL, &r.digest));
    }
    store_close(s);
}

Test(push, refuses_what_is_no_name_or_not_its_digest)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    const char *bad_tag = "-x";
    struct push_need none = {NEED_BLOB, {.alg = DIGEST_NONE}, 0};
    struct digest bad = {.alg = DIGEST_NONE};
    struct push_record good = record_of(LOCAL, "{m}", NULL, 0, NULL), r;
#define REFUSED(wanted)                                                                            \
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && err.code == (wanted), "%s",      \
              err.text)
    r = good, r.repository = "Team/Model";
    REFUSED(ERR_INVALID);
    r = good, r.tags = &bad_tag, r.n_tags = 1;
    REFUSED(ERR_INVALID);
    r = good, r.needs = &none, r.n_needs = 1;
    REFUSED(ERR_INVALID);
    r = good, r.subject = &bad;
    REFUSED(ERR_INVALID);
    r = good, r.annotations = "{\0}", r.annotations_len = 3;
    REFUSED(ERR_INVALID);
    r = good, r.digest = digest_of_text("{other}");
    REFUSED(ERR_INTERNAL);
    push_record_ok(s, &good);
    store_close(s);
}

Test(push, needs_bytes_and_not_only_rows)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    struct push_need need = need_of("layer");
    char path[600];
    upload_text(s, LOCAL, "layer");
    blob_path(&need.digest, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    struct push_record r = record_of(LOCAL, "{m}", &need, 1, NULL);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(missing.n == 1);
    digest_list_done(&missing);
    upload_text(s, LOCAL, "layer");
    push_record_ok(s, &r);
    store_close(s);
}

Test(push, an_origin_is_enough_only_under_an_upstream)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    struct import_link link = {digest_of_text("weights"), 7, "w"};
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    struct push_need need = need_of("weights");
    struct push_record r = record_of("hf/org/model", "{m}", &need, 1, NULL);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && missing.n == 1);
    digest_list_done(&missing);
    r.is_mirror = true;
    need.size = 8;
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && err.code == ERR_INVALID);
    need.size = 7;
    push_record_ok(s, &r);
    struct repository_row row;
    cr_assert(store_repository_get(s, "hf/org/model", &row, NULL) == 1);
    cr_assert_str_eq(row.upstream, "hf", "it still stands for what it stood for");
    cr_assert(has_link(s, "hf/org/model", &need.digest));
    store_close(s);
}

/* ---- kinds of needs ---- */

Test(push, optional_layers_count_when_they_are_here)
{
    struct store *s = open_store();
    struct push_need needs[] = {need_of("config"), {NEED_OPTIONAL, digest_of_text("foreign"), 7}};
    struct digest foreign = needs[1].digest;
    upload_text(s, LOCAL, "config");
    push_ok(s, LOCAL, "{m}", needs, 2, "v1");
    cr_assert(!has_link(s, LOCAL, &foreign));
    upload_text(s, LOCAL, "foreign");
    collect(s, false, 0);
    cr_assert(!is_held(s, &foreign), "nothing needed it");
    upload_text(s, LOCAL, "foreign");
    push_ok(s, LOCAL, "{m}", needs, 2, "v1");
    collect(s, false, 0);
    cr_assert(is_held(s, &foreign) && has_link(s, LOCAL, &foreign));
    /* Without its link it does not count any more, and its bytes may go. */
    cr_assert(store_blob_unlink(s, LOCAL, &foreign, NULL, NULL) == 0);
    push_ok(s, LOCAL, "{m}", needs, 2, "v1");
    collect(s, false, 0);
    cr_assert(!is_held(s, &foreign));
    store_close(s);
}

Test(push, children_are_manifests_or_blobs_of_the_repository)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    struct digest child = push_pair(s, LOCAL, "layer", "{child}", NULL);
    struct push_need needs[] = {{NEED_CHILD, child, 7}, {NEED_CHILD, digest_of_text("{blob}"), 6}};
    struct push_record r = record_of(LOCAL, "{index}", needs, 2, NULL);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && missing.n == 1);
    cr_assert(digest_equal(&missing.items[0], &needs[1].digest));
    digest_list_done(&missing);
    upload_text(s, LOCAL, "{blob}");
    push_record_ok(s, &r);
    r.repository = "team/other";
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && missing.n == 2);
    digest_list_done(&missing);
    collect(s, false, 0);
    cr_assert(is_held(s, &needs[1].digest));
    /* A child may go before its index; what it needed goes with it. */
    cr_assert(remove_digest(s, LOCAL, &child, &err) == 0, "%s", err.text);
    cr_assert(has_manifest(s, LOCAL, &r.digest));
    collect(s, false, 0);
    struct digest layer = digest_of_text("layer");
    cr_assert(!is_held(s, &layer));
    cr_assert(remove_digest(s, LOCAL, &r.digest, &err) == 0, "%s", err.text);
    collect(s, false, 0);
    store_close(s);
    cr_assert(raw_count("uses") == 0 && raw_count("links") == 0 && raw_count("blobs") == 0);
}

/* ---- again, and larger ---- */

Test(push, again_with_another_media_type)
{
    struct store *s = open_store();
    struct push_need need = need_of("layer");
    const char *tag = "v1";
    upload_text(s, LOCAL, "layer");
    struct push_record r = record_of(LOCAL, "{m}", &need, 1, &tag);
    push_record_ok(s, &r);
    push_record_ok(s, &r);
    r.media_type = INDEX;
    push_record_ok(s, &r);
    struct manifest m;
    struct tag_history h;
    cr_assert(store_manifest_get(s, LOCAL, &r.digest, &m, NULL) == 1);
    cr_assert_str_eq(m.media_type, INDEX);
    manifest_done(&m);
    cr_assert(store_tag_history(s, LOCAL, "v1", 9, &h, NULL) == 0);
    cr_assert(h.n == 1, "nothing happened to the tag");
    tag_history_done(&h);
    store_close(s);
}

Test(push, of_what_was_imported_keeps_its_commit)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct commit_file file = {.path = "w", .size = 7};
    struct import_link link = {digest_of_text("weights"), 7, "w"};
    const char *tags[] = {COMMIT_A};
    struct import_record i = {.repository = "hf/org/model",
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = COMMIT_A,
                              .tags = tags,
                              .n_tags = 1,
                              .manifest_digest = digest_of_text("{m}"),
                              .media_type = IMAGE,
                              .manifest = "{m}",
                              .manifest_len = 3,
                              .links = &link,
                              .n_links = 1,
                              .files = &file,
                              .n_files = 1};
    cr_assert(store_commit_import(s, &i, &err) == 0, "%s", err.text);
    struct push_need need = need_of("weights");
    struct push_record r = record_of("hf/org/model", "{m}", &need, 1, NULL);
    r.is_mirror = true;
    r.media_type = INDEX;
    push_record_ok(s, &r);
    cr_assert(remove_tag(s, "hf/org/model", COMMIT_A, &err) == 0, "%s", err.text);
    cr_assert(store_blob_unlink(s, "hf/org/model", &need.digest, NULL, &err) == 0, "%s", err.text);
    collect(s, false, 0);
    struct commit_files files;
    cr_assert(store_commit_files_get(s, "hf", "Org/Model", COMMIT_A, &files, &err) == 1,
              "the manifest's row still names the commit");
    commit_files_done(&files);
    store_close(s);
}

Test(push, after_which_an_import_takes_the_repository)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct repository_row row;
    struct import_link link = {digest_of_text("weights"), 7, "w"};
    push_pair(s, "hf/org/model", "layer", "{m}", NULL);
    cr_assert(store_repository_get(s, "hf/org/model", &row, NULL) == 0);
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    cr_assert(store_repository_get(s, "hf/org/model", &row, NULL) == 1);
    cr_assert_str_eq(row.repo_id, "Org/Model");
    push_pair(s, "hf/org/model", "layer", "{m}", NULL);
    cr_assert(store_repository_get(s, "hf/org/model", &row, NULL) == 1);
    store_close(s);
}

Test(push, long_names_and_other_digests)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    char repository[REPOSITORY_MAX + 1], tag[TAG_MAX + 1];
    memset(repository, 'r', sizeof(repository) - 1);
    memset(tag, 't', sizeof(tag) - 1);
    repository[sizeof(repository) - 1] = tag[sizeof(tag) - 1] = '\0';
    struct push_need need = {NEED_BLOB, upload_bytes(s, repository, DIGEST_SHA512, "layer", 5), 5};
    struct digest subject, d;
    const char *tags[] = {tag};
    cr_assert(digest_of(DIGEST_SHA512, "{s}", 3, &subject, NULL) == 0);
    cr_assert(digest_of(DIGEST_SHA512, "{m}", 3, &d, NULL) == 0);
    struct push_record r = record_of(repository, "{m}", &need, 1, tags);
    r.digest = d;
    r.subject = &subject;
    push_record_ok(s, &r);
    cr_assert(has_manifest(s, repository, &d) && has_link(s, repository, &need.digest));
    struct tag_history h;
    struct referrer_list l;
    cr_assert(store_tag_history(s, repository, tag, 9, &h, &err) == 0 && h.n == 1);
    tag_history_done(&h);
    cr_assert(store_referrers(s, repository, &subject, NULL, NULL, 9, 999, &l, &err) == 0);
    cr_assert(l.n == 1 && digest_equal(&l.items[0].digest, &d));
    referrer_list_done(&l);
    cr_assert(store_blob_mount(s, "team/model", &need.digest, repository, &err) == 1);
    struct name_list names;
    cr_assert(store_blob_repositories(s, &need.digest, NULL, 9, &names, &err) == 0);
    cr_assert(names.n == 2 && strcmp(names.names[0], repository) == 0);
    name_list_done(&names);
    cr_assert(remove_digest(s, repository, &d, &err) == 0, "%s", err.text);
    store_close(s);
}

Test(push, of_four_mebibytes_with_many_needs)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    const size_t n = 30000, len = 4 * MIB;
    struct push_need *needs = calloc(n, sizeof(*needs));
    char *bytes = malloc(len + 1);
    memset(bytes, 'x', len);
    bytes[len] = '\0';
    for (size_t i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof(text), "absent %zu", i / 2);
        needs[i] = need_of(text);
    }
    struct push_record r = record_of(LOCAL, bytes, needs, n, NULL);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && missing.n == n / 2);
    digest_list_done(&missing);
    upload_text(s, LOCAL, "present");
    for (size_t i = 0; i < n; i++)
        needs[i] = need_of("present");
    push_record_ok(s, &r);
    struct manifest m;
    cr_assert(store_manifest_get(s, LOCAL, &r.digest, &m, &err) == 1, "%s", err.text);
    cr_assert(m.len == len && memcmp(m.bytes, bytes, len) == 0);
    manifest_done(&m);
    free(needs);
    free(bytes);
    store_close(s);
}

struct large {
    struct store *s;
    unsigned i;
};

static char *large_text(unsigned i, size_t len)
{
    char *text = malloc(len + 1);
    cr_assert(text);
    memset(text, 'a' + (int)(i % 26), len);
    text[len] = '\0';
    return text;
}

static void *push_large(void *arg)
{
    struct large *l = arg;
    char *text = large_text(l->i, 4 * MIB);
    push_ok(l->s, LOCAL, text, NULL, 0, NULL);
    free(text);
    return NULL;
}

/* More than one transaction takes. */
Test(push, of_many_large_ones_at_once)
{
    struct store *s = open_store();
    struct large larges[24];
    pthread_t threads[24];
    for (unsigned i = 0; i < 24; i++) {
        larges[i] = (struct large){s, i};
        cr_assert(pthread_create(&threads[i], NULL, push_large, &larges[i]) == 0);
    }
    for (unsigned i = 0; i < 24; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 24; i++) {
        char *text = large_text(i, 4 * MIB);
        struct digest d = digest_of_text(text);
        cr_assert(has_manifest(s, LOCAL, &d));
        free(text);
    }
    store_close(s);
}

/* ---- immutable tags ---- */

static bool starts_with_v(void *ctx, const char *repository, const char *tag)
{
    cr_assert(ctx == &starts_with_v && repository_is_valid(repository));
    return tag[0] == 'v';
}

static const struct tag_guard guard = {starts_with_v, (void *)&starts_with_v};

static int push_guarded(struct store *s, const char *text, const char *const *tags, size_t n,
                        struct error *err)
{
    struct digest_list missing;
    struct push_record r = record_of(LOCAL, text, NULL, 0, NULL);
    r.tags = tags;
    r.n_tags = n;
    r.guard = &guard;
    return store_manifest_push(s, &r, &missing, err);
}

Test(push, immutable_tags_do_not_move)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    const char *both[] = {"latest", "v1"}, *more[] = {"v2", "latest"};
    struct digest one = digest_of_text("{1}"), two = digest_of_text("{2}"), at;
    cr_assert(push_guarded(s, "{1}", both, 2, &err) == 0, "%s", err.text);
    cr_assert(push_guarded(s, "{1}", both, 2, &err) == 0, "the same manifest again");
    cr_assert(push_guarded(s, "{2}", both, 2, &err) == -1 && err.code == ERR_CONFLICT);
    char text[DIGEST_TEXT_MAX];
    cr_assert(strstr(err.text, "v1") && strstr(err.text, digest_format(&one, text)) &&
                  strstr(err.text, "immutable_tags"),
              "%s", err.text);
    at = tag_digest(s, LOCAL, "latest");
    cr_assert(digest_equal(&at, &one), "all or nothing");
    cr_assert(!has_manifest(s, LOCAL, &two));
    cr_assert(push_guarded(s, "{2}", more, 2, &err) == 0, "%s", err.text);
    at = tag_digest(s, LOCAL, "latest");
    cr_assert(digest_equal(&at, &two));
    store_close(s);
}

Test(push, immutable_tags_are_not_removed)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    const char *tags[] = {"latest", "v1"};
    struct digest one = digest_of_text("{1}");
    cr_assert(push_guarded(s, "{1}", tags, 2, &err) == 0, "%s", err.text);
    struct reference r = {.repository = LOCAL, .tag = "v1"};
    cr_assert(store_remove(s, &r, &guard, "x", &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(strstr(err.text, "v1") && strstr(err.text, "immutable_tags"), "%s", err.text);
    r = (struct reference){.repository = LOCAL, .tag = "v9"};
    cr_assert(store_remove(s, &r, &guard, "x", &err) == -1 && err.code == ERR_NOT_FOUND);
    r = (struct reference){.repository = LOCAL, .is_digest = true, .digest = one};
    cr_assert(store_remove(s, &r, &guard, "x", &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(strstr(err.text, "v1"), "%s", err.text);
    struct digest at = tag_digest(s, LOCAL, "v1");
    cr_assert(digest_equal(&at, &one) && has_manifest(s, LOCAL, &one));
    at = tag_digest(s, LOCAL, "latest");
    cr_assert(digest_equal(&at, &one), "all or nothing");
    struct reference l = {.repository = LOCAL, .tag = "latest"};
    cr_assert(store_remove(s, &l, &guard, "x", &err) == 0, "%s", err.text);
    cr_assert(store_remove(s, &r, NULL, "x", &err) == 0, "who manages the server may");
    store_close(s);
}

static int remove_guarded(struct store *s, const struct digest *d, struct error *err)
{
    struct reference r = {.repository = LOCAL, .is_digest = true, .digest = *d};
    return store_remove(s, &r, &guard, "x", err);
}

static struct push_need child_of(const char *text)
{
    return (struct push_need){NEED_CHILD, digest_of_text(text), strlen(text)};
}

static void refused_as_part(int r, const struct digest *d, const char *tag, const struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    cr_assert(r == -1 && err->code == ERR_CONFLICT, "%d %s", r, err->text);
    cr_assert(strstr(err->text, digest_format(d, text)) && strstr(err->text, tag) &&
                  strstr(err->text, "immutable_tags"),
              "%s", err->text);
}

/* The tag names an index of an index of a manifest with a layer: none of them can be taken out. */
Test(push, what_an_immutable_tag_names_stays_whole)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = digest_of_text("layer"), other = digest_of_text("other");
    struct digest image = push_pair(s, LOCAL, "layer", "{image}", NULL);
    struct push_need below[] = {child_of("{image}"), child_of("{inner}")};
    struct digest inner = push_ok(s, LOCAL, "{inner}", &below[0], 1, "latest");
    struct digest top = push_ok(s, LOCAL, "{top}", below, 2, "v1");
    push_pair(s, LOCAL, "other", "{free}", "main");
    refused_as_part(store_blob_unlink(s, LOCAL, &layer, &guard, &err), &layer, "v1", &err);
    refused_as_part(remove_guarded(s, &image, &err), &image, "v1", &err);
    refused_as_part(remove_guarded(s, &inner, &err), &inner, "v1", &err);
    cr_assert(has_link(s, LOCAL, &layer) && has_manifest(s, LOCAL, &image) &&
              has_manifest(s, LOCAL, &inner));
    struct digest at = tag_digest(s, LOCAL, "latest");
    cr_assert(digest_equal(&at, &inner), "all or nothing");
    /* Other things of the repository go, and the same content in another one. */
    cr_assert(store_blob_unlink(s, LOCAL, &other, &guard, &err) == 0, "%s", err.text);
    push_pair(s, "team/other", "layer", "{image}", "v1x");
    cr_assert(remove_tag(s, "team/other", "v1x", &err) == 0, "%s", err.text);
    cr_assert(store_blob_unlink(s, "team/other", &layer, &guard, &err) == 0, "%s", err.text);
    /* Once nothing immutable needs them, so do they. */
    cr_assert(remove_tag(s, LOCAL, "v1", &err) == 0, "%s", err.text);
    cr_assert(remove_guarded(s, &inner, &err) == 0, "%s", err.text);
    cr_assert(remove_guarded(s, &top, &err) == 0, "%s", err.text);
    cr_assert(store_blob_unlink(s, LOCAL, &layer, &guard, &err) == 0, "%s", err.text);
    cr_assert(remove_guarded(s, &image, &err) == 0, "%s", err.text);
    store_close(s);
}

/* So many manifests need it that nobody goes through them all: it is kept. */
Test(push, what_too_many_need_is_kept_where_tags_can_be_immutable)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = digest_of_text("layer"), user = {.alg = DIGEST_SHA256};
    push_pair(s, LOCAL, "layer", "{image}", "latest");
    store_close(s);
    struct raw r = raw_open("uses");
    for (unsigned i = 0; i < 10000; i++) {
        memcpy(user.raw, &i, sizeof(i));
        struct key use = key_of_use(&layer, LOCAL, &user);
        MDB_val k = {use.len, use.data}, v = {0, NULL};
        cr_assert(mdb_put(r.txn, r.dbi, &k, &v, 0) == 0);
    }
    raw_close(&r);
    s = open_store();
    cr_assert(store_blob_unlink(s, LOCAL, &layer, &guard, &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(strstr(err.text, "immutable_tags"), "%s", err.text);
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == 0, "%s", err.text);
    store_close(s);
}

struct racer {
    struct store *s;
    unsigned i;
    int rc;
    enum err_code code;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct error err = ERROR_INIT;
    const char *tags[] = {"v1"};
    char text[16];
    snprintf(text, sizeof(text), "{%u}", r->i);
    r->rc = push_guarded(r->s, text, tags, 1, &err);
    r->code = err.code;
    return NULL;
}

/* The rule holds inside the transaction, also when the neighbours of one batch break it. */
Test(push, of_an_immutable_tag_by_many_at_once)
{
    struct store *s = open_store();
    struct racer racers[24];
    pthread_t threads[24];
    unsigned won = 24;
    for (unsigned i = 0; i < 24; i++) {
        racers[i] = (struct racer){.s = s, .i = i};
        cr_assert(pthread_create(&threads[i], NULL, race, &racers[i]) == 0);
    }
    for (unsigned i = 0; i < 24; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 24; i++) {
        cr_assert(racers[i].rc == 0 || racers[i].code == ERR_CONFLICT);
        cr_assert(racers[i].rc < 0 || won == 24, "only one");
        if (racers[i].rc == 0)
            won = i;
    }
    cr_assert(won < 24);
    char text[16];
    snprintf(text, sizeof(text), "{%u}", won);
    struct digest want = digest_of_text(text), at = tag_digest(s, LOCAL, "v1");
    cr_assert(digest_equal(&want, &at));
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0 && st.manifests == 1);
    store_close(s);
}
