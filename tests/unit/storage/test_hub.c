/* What is kept for the Hub's own API, and what the collector makes of it. */
#include "push.h"

#include "storage/hub.h"
#include "storage/store_private.h"

TestSuite(hub, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define UP "hf"
#define ID "Org/Model"
#define OID "0123456789abcdef0123456789abcdef01234567"
#define OID_2 "89abcdef0123456789abcdef0123456701234567"

/* ---- names and revisions ---- */

static void pin(struct store *s, const char *name, const char *id, const char *revision,
                const char *commit)
{
    struct error err = ERROR_INIT;
    cr_assert(store_hub_pin_put(s, UP, name, id, revision, commit, &err) == 0, "%s", err.text);
}

/* The commit that the revision means, "" = not known; good until the next call. */
static const char *pinned(struct store *s, const char *id, const char *revision)
{
    static struct hub_pin p;
    struct error err = ERROR_INIT;
    int r = store_hub_pin_get(s, UP, id, revision, &p, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 1)
        cr_assert(p.checked_at + 60 > clock_wall_s() && p.checked_at <= clock_wall_s());
    return r == 1 ? p.commit : "";
}

static const char *named(struct store *s, const char *name)
{
    static struct hub_name n;
    struct error err = ERROR_INIT;
    int r = store_hub_name_get(s, UP, name, &n, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 1)
        cr_assert(n.checked_at + 60 > clock_wall_s() && n.checked_at <= clock_wall_s());
    return r == 1 ? n.id : "";
}

Test(hub, names_and_revisions)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    cr_assert_str_eq(pinned(s, ID, "main"), "");
    cr_assert_str_eq(named(s, "org/model"), "");
    pin(s, "org/model", ID, "main", COMMIT_A);
    pin(s, ID, ID, "refs/pr/1", COMMIT_B);
    pin(s, NULL, ID, COMMIT_A, COMMIT_A);
    store_close(s);
    s = open_store();
    cr_assert_str_eq(named(s, "org/model"), ID);
    cr_assert_str_eq(named(s, ID), ID);
    cr_assert_str_eq(pinned(s, ID, "main"), COMMIT_A);
    cr_assert_str_eq(pinned(s, ID, "refs/pr/1"), COMMIT_B);
    cr_assert_str_eq(pinned(s, ID, COMMIT_A), COMMIT_A);
    cr_assert_str_eq(pinned(s, ID, "mai"), "", "a beginning is no revision");
    cr_assert_str_eq(pinned(s, "org/model", "main"), "", "the case counts");
    cr_assert_str_eq(pinned(s, "datasets/" ID, "main"), "", "so does the kind");
    struct hub_pin p;
    cr_assert(store_hub_pin_get(s, "other", ID, "main", &p, &err) == 0, "and the upstream");

    pin(s, "org/model", ID, "main", COMMIT_B);
    cr_assert_str_eq(pinned(s, ID, "main"), COMMIT_B);
    cr_assert(store_hub_pin_drop(s, UP, ID, "main", &err) == 0);
    cr_assert(store_hub_pin_drop(s, UP, ID, "main", &err) == 0, "there is none any more");
    cr_assert_str_eq(pinned(s, ID, "main"), "");
    cr_assert_str_eq(pinned(s, ID, "refs/pr/1"), COMMIT_B);
    cr_assert_str_eq(named(s, "org/model"), ID);
    store_close(s);
}

Test(hub, a_repository_that_is_gone)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    pin(s, "org/model", ID, "main", COMMIT_A);
    pin(s, "ORG/model", ID, "dev", COMMIT_B);
    pin(s, ID, ID, "main", COMMIT_A);
    pin(s, "org/model2", ID "2", "main", COMMIT_A);
    cr_assert(store_hub_document_put(s, UP, ID, "", "refs", "{}", 2, &err) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, "info", "{}", 2, &err) == 0);
    cr_assert(store_hub_pin_drop(s, UP, ID, NULL, &err) == 0, "%s", err.text);
    cr_assert(store_hub_pin_drop(s, UP, ID, NULL, &err) == 0, "%s", err.text);
    cr_assert_str_eq(named(s, "org/model"), "");
    cr_assert_str_eq(named(s, "ORG/model"), "");
    cr_assert_str_eq(named(s, ID), "");
    cr_assert_str_eq(pinned(s, ID, "main"), "");
    cr_assert_str_eq(pinned(s, ID, "dev"), "");
    cr_assert_str_eq(named(s, "org/model2"), ID "2");
    cr_assert_str_eq(pinned(s, ID "2", "main"), COMMIT_A);
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    cr_assert(store_hub_document_get(s, UP, ID, "", "refs", &b, NULL, &err) == 0);
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_A, "info", &b, NULL, &err) == 1,
              "whoever asks for the commit may still have it");
    store_close(s);
    cr_assert(raw_count("hub_names") == 2 && raw_count("hub_pins") == 1);
}

Test(hub, a_repository_that_was_renamed)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    pin(s, "old/name", "old/name", "main", COMMIT_A);
    pin(s, "old/name", "new/name", "main", COMMIT_B);
    cr_assert_str_eq(named(s, "old/name"), "new/name");
    cr_assert(store_hub_pin_drop(s, UP, "other/name", NULL, &err) == 0);
    /* The old name leads nowhere any more; the new one is another's. */
    cr_assert(store_hub_pin_drop(s, UP, "old/name", NULL, &err) == 0, "%s", err.text);
    cr_assert_str_eq(named(s, "old/name"), "");
    cr_assert_str_eq(pinned(s, "old/name", "main"), "");
    cr_assert_str_eq(pinned(s, "new/name", "main"), COMMIT_B);
    pin(s, "old/name", "new/name", "main", COMMIT_B);
    cr_assert(store_hub_pin_drop(s, UP, "new/name", NULL, &err) == 0, "%s", err.text);
    cr_assert_str_eq(named(s, "old/name"), "");
    store_close(s);
    cr_assert(raw_count("hub_names") == 0 && raw_count("hub_pins") == 0, "nothing lingers");
}

Test(hub, names_that_are_refused)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct hub_pin p;
    struct hub_name n;
    struct digest d = digest_of_text("x"), none = {.alg = DIGEST_NONE};
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    char name[5000];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
#define REFUSED(call) cr_assert((call) == -1 && err.code == ERR_INVALID, "%s", err.text)
    REFUSED(store_hub_name_get(s, UP, name, &n, &err));
    REFUSED(store_hub_name_get(s, UP, "", &n, &err));
    REFUSED(store_hub_name_get(s, "", ID, &n, &err));
    REFUSED(store_hub_pin_get(s, UP, ID, "", &p, &err));
    REFUSED(store_hub_pin_get(s, UP, ID, name, &p, &err));
    REFUSED(store_hub_pin_put(s, UP, name, ID, "main", COMMIT_A, &err));
    REFUSED(store_hub_pin_put(s, UP, ID, ID, "main", "main", &err));
    REFUSED(store_hub_pin_put(s, UP, ID, ID, name, COMMIT_A, &err));
    REFUSED(store_hub_pin_drop(s, UP, name, NULL, &err));
    REFUSED(store_hub_document_get(s, UP, ID, "x", "info", &b, NULL, &err));
    REFUSED(store_hub_document_put(s, UP, ID, COMMIT_A, name, "", 0, &err));
    REFUSED(store_hub_document_put(s, UP, ID, COMMIT_A, "", "", 0, &err));
    REFUSED(store_hub_files_put(s, UP, ID, "", NULL, 0, &err));
    REFUSED(store_hub_object_get(s, UP, ID, "xyz", &d, &err));
    REFUSED(store_hub_object_put(s, UP, ID, OID, &none, &err));
    REFUSED(store_hub_keep(s, UP, ID, "main", &d, &err));
    REFUSED(store_hub_keep(s, UP, ID, COMMIT_A, &none, &err));
    name[HUB_REVISION_MAX] = '\0';
    cr_assert(store_hub_pin_put(s, name, name, name, name, COMMIT_A, &err) == 0, "%s", err.text);
    cr_assert(store_hub_pin_get(s, name, name, name, &p, &err) == 1, "%s", err.text);
    cr_assert(store_hub_keep(s, name, name, COMMIT_A, &d, &err) == 0, "%s", err.text);
    store_close(s);
}

/* ---- documents ---- */

Test(hub, documents)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    uint64_t at = 0;
    char what[4501];
    memset(what, 'w', sizeof(what) - 1);
    what[4500] = '\0';
    cr_assert(store_hub_document_get(s, UP, ID, "", "info", &b, &at, &err) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, "", "info", "now", 3, &err) == 0, "%s", err.text);
    cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, "info", "a\0a", 3, &err) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, what, "", 0, &err) == 0);
    strbuf_puts(&b, "before ");
    cr_assert(store_hub_document_get(s, UP, ID, "", "info", &b, &at, &err) == 1);
    cr_assert_str_eq(strbuf_str(&b), "before now", "it is appended");
    cr_assert(at + 60 > clock_wall_s() && at <= clock_wall_s());
    uint64_t since = 0;
    cr_assert(store_hub_document_get(s, UP, ID, "", "info", NULL, &since, &err) == 1);
    cr_assert(since == at);
    cr_assert(store_hub_document_get(s, UP, ID, "", "refs", NULL, &since, &err) == 0);
    strbuf_reset(&b);
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_A, "info", &b, &at, &err) == 1);
    cr_assert(b.len == 3 && memcmp(b.data, "a\0a", 3) == 0);
    strbuf_reset(&b);
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_A, what, &b, &at, &err) == 1 && b.len == 0);
    what[4499] = 'x';
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_A, what, &b, &at, &err) == 0);
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_B, "info", &b, &at, &err) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, "", "info", "later", 5, &err) == 0);
    cr_assert(store_hub_document_get(s, UP, ID, "", "info", &b, &at, &err) == 1);
    cr_assert_str_eq(strbuf_str(&b), "later");
    store_close(s);
}

Test(hub, a_large_document)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct digest d;
    unsigned char *bytes = make_bytes(40 * MIB, 3, &d);
    for (int i = 0; i < 3; i++)
        cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, "tree", bytes, 40 * MIB, &err) == 0,
                  "%s", err.text);
    store_close(s);
    s = open_store();
    cr_assert(store_hub_document_get(s, UP, ID, COMMIT_A, "tree", &b, NULL, &err) == 1);
    cr_assert(b.len == 40 * MIB && memcmp(b.data, bytes, b.len) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, "tree", bytes, SIZE_MAX, &err) == -1);
    cr_assert(err.code == ERR_TOO_LARGE && strstr(err.text, "tree of " ID), "%s", err.text);
    free(bytes);
    store_close(s);
}

/* ---- file lists and objects ---- */

static const struct commit_file hub_files[] = {
    {.path = "config.json", .size = 2, .git_oid = OID},
    {.path = "w", .size = 7, .git_oid = OID_2, .has_lfs = true},
};

static void put_files(struct store *s, const char *commit)
{
    struct error err = ERROR_INIT;
    cr_assert(store_hub_files_put(s, UP, ID, commit, hub_files, 2, &err) == 0, "%s", err.text);
}

static size_t count_files(struct store *s, const char *commit)
{
    struct error err = ERROR_INIT;
    struct commit_files f;
    int r = store_commit_files_get(s, UP, ID, commit, &f, &err);
    cr_assert(r >= 0, "%s", err.text);
    if (r == 0)
        return 0;
    size_t n = f.n;
    commit_files_done(&f);
    return n;
}

Test(hub, file_lists)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct commit_files f;
    cr_assert(count_files(s, COMMIT_A) == 0);
    put_files(s, COMMIT_A);
    put_files(s, COMMIT_A);
    cr_assert(store_commit_files_get(s, UP, ID, COMMIT_A, &f, &err) == 1 && f.n == 2);
    cr_assert_str_eq(f.files[0].path, "config.json");
    cr_assert_str_eq(f.files[1].git_oid, OID_2);
    cr_assert(f.files[1].has_lfs && f.files[0].sha256.alg == DIGEST_NONE);
    commit_files_done(&f);
    /* What is there may know more. */
    cr_assert(store_hub_files_put(s, UP, ID, COMMIT_A, hub_files, 1, &err) == 0);
    cr_assert(count_files(s, COMMIT_A) == 2);
    cr_assert(store_hub_files_put(s, UP, ID, COMMIT_B, NULL, 0, &err) == 0, "%s", err.text);
    cr_assert(store_commit_files_get(s, UP, ID, COMMIT_B, &f, &err) == 1 && f.n == 0);
    commit_files_done(&f);
    struct commit_file bad = {.path = "x"};
    memset(bad.git_oid, 'a', sizeof(bad.git_oid));
    cr_assert(store_hub_files_put(s, UP, ID, COMMIT_B, &bad, 1, &err) == -1);
    store_close(s);
    struct key k;
    cr_assert(key_of_commit(UP, ID, COMMIT_A, &k, &err) == 0);
    raw_put("commits", &k, "\x07\x05", 2);
    s = open_store();
    put_files(s, COMMIT_A);
    cr_assert(count_files(s, COMMIT_A) == 2, "a damaged one is written anew");
    store_close(s);
}

Test(hub, objects)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest a = digest_of_text("a"), b = digest_of_text("b"), got;
    cr_assert(store_hub_object_get(s, UP, ID, OID, &got, &err) == 0);
    cr_assert(store_hub_object_put(s, UP, ID, OID, &a, &err) == 0, "%s", err.text);
    cr_assert(store_hub_object_put(s, UP, "Org/Other", OID, &b, &err) == 0, "%s", err.text);
    cr_assert(store_hub_object_put(s, UP, ID, OID, &a, &err) == 0, "%s", err.text);
    cr_assert(store_hub_object_get(s, UP, ID, OID, &got, &err) == 1 && digest_equal(&got, &a));
    cr_assert(store_hub_object_get(s, UP, "Org/Other", OID, &got, &err) == 1);
    cr_assert(digest_equal(&got, &b), "a repository's objects are its own");
    cr_assert(store_hub_object_get(s, UP, ID, OID_2, &got, &err) == 0);
    cr_assert(store_hub_object_put(s, UP, ID, OID, &b, &err) == 0, "%s", err.text);
    cr_assert(store_hub_object_get(s, UP, ID, OID, &got, &err) == 1 && digest_equal(&got, &b));
    store_close(s);
}

/* ---- the collector ---- */

static void keep(struct store *s, const char *commit, const struct digest *d)
{
    struct error err = ERROR_INIT;
    cr_assert(store_hub_keep(s, UP, ID, commit, d, &err) == 0, "%s", err.text);
}

/* Of the Hub's API alone. */
static void forget(struct store *s, const char *commit)
{
    struct error err = ERROR_INIT;
    cr_assert(meta_hub_forget(s->meta, UP, ID, commit, &err) == 0, "%s", err.text);
}

static bool has_object(struct store *s, const char *oid)
{
    struct digest d;
    return store_hub_object_get(s, UP, ID, oid, &d, NULL) == 1;
}

static bool has_document(struct store *s, const char *commit)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    return store_hub_document_get(s, UP, ID, commit, "info", &b, NULL, NULL) == 1;
}

/* A commit with two files that clients have fetched, and one that is shared with other commits. */
static void serve_commit(struct store *s, const char *commit, const char *text)
{
    struct error err = ERROR_INIT;
    struct digest own = put_text(s, text), shared = put_text(s, "shared");
    pin(s, "org/model", ID, commit, commit);
    put_files(s, commit);
    cr_assert(store_hub_document_put(s, UP, ID, commit, "info", "{}", 2, &err) == 0);
    cr_assert(store_hub_object_put(s, UP, ID, OID, &shared, &err) == 0);
    keep(s, commit, &own);
    keep(s, commit, &shared);
}

Test(hub, what_was_served_survives_a_collection)
{
    struct store *s = open_store();
    struct digest a = digest_of_text("a"), b = digest_of_text("b"),
                  shared = digest_of_text("shared");
    put_text(s, "nobody's");
    serve_commit(s, COMMIT_A, "a");
    serve_commit(s, COMMIT_B, "b");
    struct gc_result gc = collect(s, true, 0);
    cr_assert(gc.blobs_removed == 1 && gc.blobs_held == 0, "they are needed, and no holds");
    gc = collect(s, false, 0);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 8 && gc.blobs_held == 0);
    store_close(s);
    s = open_store();
    collect(s, false, 0);
    cr_assert(is_held(s, &a) && is_held(s, &b) && is_held(s, &shared));
    cr_assert(count_files(s, COMMIT_A) == 2 && count_files(s, COMMIT_B) == 2);
    cr_assert(has_document(s, COMMIT_A) && has_object(s, OID));
    cr_assert_str_eq(pinned(s, ID, COMMIT_A), COMMIT_A);

    forget(s, COMMIT_A);
    cr_assert(is_held(s, &a), "bytes go with the collector");
    cr_assert(!has_document(s, COMMIT_A) && has_document(s, COMMIT_B));
    cr_assert(count_files(s, COMMIT_A) == 0 && count_files(s, COMMIT_B) == 2, "nobody else's");
    cr_assert_str_eq(pinned(s, ID, COMMIT_A), "");
    cr_assert(collect(s, true, 0).blobs_removed == 1);
    cr_assert(collect(s, false, 0).blobs_removed == 1, "no grace: it can be fetched again");
    cr_assert(!is_held(s, &a) && is_held(s, &b) && is_held(s, &shared));
    cr_assert(count_files(s, COMMIT_A) == 0 && count_files(s, COMMIT_B) == 2);
    cr_assert(has_object(s, OID), "the other commit may have it");

    forget(s, COMMIT_B);
    forget(s, COMMIT_B);
    cr_assert(collect(s, false, 24u * 3600u).blobs_removed == 2);
    cr_assert(!has_object(s, OID) && count_files(s, COMMIT_B) == 0);
    store_close(s);
    static const char *const dbs[] = {"hub_pins",    "hub_documents", "hub_objects",
                                      "hub_commits", "hub_uses",      "commits"};
    for (size_t i = 0; i < ARRAY_LEN(dbs); i++)
        cr_assert(raw_count(dbs[i]) == 0, "%s", dbs[i]);
}

Test(hub, a_download_that_is_under_way_is_kept)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest kept, other;
    unsigned char *a = make_bytes(MIB, 1, &kept), *b = make_bytes(MIB, 2, &other);
    struct blob_writer *w = NULL;
    keep(s, COMMIT_A, &kept); /* before the first byte */
    for (int i = 0; i < 2; i++) {
        cr_assert(writer_open(s, i ? &other : &kept, MIB, &w, &err) == 0, "%s", err.text);
        cr_assert(writer_write(w, i ? b : a, MIB / 2, 0, &err) == 0, "%s", err.text);
        writer_close(w, true);
    }
    struct gc_result gc = collect(s, false, 0);
    cr_assert(gc.partials_removed == 1 && count_incoming() == 1);
    forget(s, COMMIT_A);
    cr_assert(collect(s, false, 0).partials_removed == 1 && count_incoming() == 0);
    store_close(s);
    free(a);
    free(b);
}

Test(hub, beside_an_import)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest weights = put_text(s, "weights");
    struct import_link link = {weights, 7, "w"};
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    put_files(s, COMMIT_A);
    keep(s, COMMIT_A, &weights);
    /* Neither is taken for the other. */
    struct name_list names;
    cr_assert(store_blob_repositories(s, &weights, NULL, 9, &names, &err) == 0 && names.n == 1);
    name_list_done(&names);
    forget(s, COMMIT_A);
    cr_assert(collect(s, false, 0).blobs_removed == 0, "the manifest needs it");
    cr_assert(count_files(s, COMMIT_A) == 2, "so does its tag the list");

    put_files(s, COMMIT_A);
    keep(s, COMMIT_A, &weights);
    struct digest m = digest_of_text("{1}");
    cr_assert(remove_digest(s, "hf/org/model", &m, &err) == 0, "%s", err.text);
    cr_assert(!has_link(s, "hf/org/model", &weights));
    cr_assert(collect(s, false, 0).blobs_removed == 0, "the commit needs it");
    cr_assert(count_files(s, COMMIT_A) == 2);
    forget(s, COMMIT_A);
    cr_assert(collect(s, false, 0).blobs_removed == 1);
    cr_assert(count_files(s, COMMIT_A) == 0);
    store_close(s);
    cr_assert(raw_count("uses") == 0);
}

Test(hub, beside_a_push)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = upload_text(s, LOCAL, "layer");
    keep(s, COMMIT_A, &layer);
    struct gc_result gc = collect(s, false, 3600);
    cr_assert(gc.blobs_removed == 0 && gc.blobs_held == 0, "more than a hold keeps it");
    cr_assert(has_link(s, LOCAL, &layer));
    collect(s, false, 0);
    cr_assert(!has_link(s, LOCAL, &layer) && is_held(s, &layer), "the hold was only the link's");
    upload_text(s, LOCAL, "layer");
    forget(s, COMMIT_A);
    gc = collect(s, false, 3600);
    cr_assert(gc.blobs_held == 1 && has_link(s, LOCAL, &layer));
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == 0, "%s", err.text);
    store_close(s);
}

static int rm(struct store *s, const char *repository, const char *tag, struct error *err)
{
    struct reference r = {.is_digest = false};
    snprintf(r.repository, sizeof(r.repository), "%s", repository);
    snprintf(r.tag, sizeof(r.tag), "%s", tag);
    return store_hub_remove(s, &r, "rm", err);
}

Test(hub, removed_by_an_operator)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest a = digest_of_text("a"), shared = digest_of_text("shared");
    struct import_link link = {a, 1, "w"};
    serve_commit(s, COMMIT_A, "a");
    serve_commit(s, COMMIT_B, "b");
    cr_assert(rm(s, "hf/org/model", "main", &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "hf/org/model has no tag main"), "%s", err.text);
    cr_assert(rm(s, "hf/org/mode", COMMIT_A, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(rm(s, "org/model", COMMIT_A, &err) == -1 && err.code == ERR_NOT_FOUND);
    err = ERROR_INIT;
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == 0, "%s", err.text);
    cr_assert(collect(s, false, 0).blobs_removed == 1 && !is_held(s, &a));
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == -1 && err.code == ERR_NOT_FOUND);

    /* Of one that was only asked about. */
    cr_assert(store_hub_document_put(s, UP, ID, COMMIT_A, "info", "{}", 2, &err) == 0);
    cr_assert(store_hub_document_put(s, UP, ID, "", "info", "{}", 2, &err) == 0);
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == 0, "%s", err.text);
    cr_assert(!has_document(s, COMMIT_A) && has_document(s, ""));
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == -1 && err.code == ERR_NOT_FOUND);

    /* Both APIs have it, under two spellings of the name. */
    put_text(s, "a");
    serve_commit(s, COMMIT_A, "a");
    cr_assert(store_hub_keep(s, UP, "org/MODEL", COMMIT_A, &shared, &err) == 0);
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == 0, "%s", err.text);
    struct digest none = tag_digest(s, "hf/org/model", COMMIT_A);
    cr_assert(none.alg == DIGEST_NONE && !has_document(s, COMMIT_A));
    collect(s, false, 0);
    cr_assert(is_held(s, &a), "of another tag");
    cr_assert(rm(s, "hf/org/model", COMMIT_B, &err) == 0, "%s", err.text);
    cr_assert(collect(s, false, 0).blobs_removed == 2 && !is_held(s, &shared));
    store_close(s);
}

static size_t last_transaction(void)
{
    struct raw r = raw_open("state");
    MDB_envinfo info;
    cr_assert(mdb_env_info(r.env, &info) == 0);
    mdb_txn_abort(r.txn);
    mdb_env_close(r.env);
    return info.me_last_txnid;
}

Test(hub, what_is_known_is_not_written)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("a");
    serve_commit(s, COMMIT_A, "a");
    store_close(s);
    size_t before = last_transaction();
    store_close(open_store());
    size_t opening = last_transaction() - before;
    before = last_transaction();
    s = open_store();
    for (int i = 0; i < 10; i++) {
        keep(s, COMMIT_A, &d);
        put_files(s, COMMIT_A);
        d = digest_of_text("shared");
        cr_assert(store_hub_object_put(s, UP, ID, OID, &d, &err) == 0);
        cr_assert(store_hub_pin_drop(s, UP, "no/such", NULL, &err) == 0);
        cr_assert(store_hub_pin_drop(s, UP, ID, "no-such", &err) == 0);
    }
    store_close(s);
    cr_assert(last_transaction() - before == opening);
}

/* ---- damage ---- */

static size_t spoil(unsigned char *bytes, size_t len, int how)
{
    if (how == 0 || len == 0)
        return 0;
    if (how == 1)
        return len - 1;
    for (size_t i = 0; how == 2 && i < len; i++)
        bytes[i] = (unsigned char)rand();
    if (how > 2)
        bytes[(size_t)rand() % len] ^= (unsigned char)(1 << (rand() % 8));
    return len;
}

/* Spoils every value of a database, or its keys. */
static void damage(const char *db, int how, bool of_keys)
{
    struct raw r = raw_open(db);
    unsigned char keys[32][KEY_MAX], values[32][1024];
    size_t key_len[32], value_len[32], n = 0;
    MDB_cursor *c;
    MDB_val k, v;
    cr_assert(mdb_cursor_open(r.txn, r.dbi, &c) == 0);
    for (int rc = mdb_cursor_get(c, &k, &v, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(c, &k, &v, MDB_NEXT), n++) {
        cr_assert(n < 32 && v.mv_size <= sizeof(values[n]));
        memcpy(keys[n], k.mv_data, key_len[n] = k.mv_size);
        memcpy(values[n], v.mv_data, value_len[n] = v.mv_size);
    }
    mdb_cursor_close(c);
    for (size_t i = 0; i < n; i++) {
        k = (MDB_val){key_len[i], keys[i]};
        if (of_keys) {
            cr_assert(mdb_del(r.txn, r.dbi, &k, NULL) == 0);
            k.mv_size = spoil(keys[i], key_len[i], how);
        } else {
            value_len[i] = spoil(values[i], value_len[i], how);
        }
        v = (MDB_val){value_len[i], values[i]};
        if (k.mv_size)
            cr_assert(mdb_put(r.txn, r.dbi, &k, &v, 0) == 0);
    }
    raw_close(&r);
}

static void use_and_mend(void)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    named(s, "org/model");
    pinned(s, ID, COMMIT_A);
    has_document(s, COMMIT_A);
    has_object(s, OID);
    serve_commit(s, COMMIT_A, "a");
    cr_assert_str_eq(named(s, "org/model"), ID);
    cr_assert_str_eq(pinned(s, ID, COMMIT_A), COMMIT_A);
    cr_assert(has_document(s, COMMIT_A) && has_object(s, OID) && count_files(s, COMMIT_A) == 2);
    struct digest a = digest_of_text("a");
    collect(s, false, 0);
    cr_assert(is_held(s, &a), "it was kept again");
    forget(s, COMMIT_A);
    cr_assert(store_hub_pin_drop(s, UP, ID, NULL, &err) == 0, "%s", err.text);
    cr_assert_str_eq(named(s, "org/model"), "");
    cr_assert(!has_document(s, COMMIT_A));
    store_close(s);
}

Test(hub, a_commit_under_a_damaged_key_is_not_sought_for_ever, .timeout = 60)
{
    struct error err = ERROR_INIT;
    struct store *s = open_store();
    serve_commit(s, COMMIT_A, "a");
    store_close(s);
    damage("hub_commits", 1, true);
    s = open_store();
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == 0, "its document names it: %s", err.text);
    serve_commit(s, COMMIT_A, "a");
    store_close(s);
    damage("hub_commits", 1, true);
    damage("hub_documents", 2, true);
    s = open_store();
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) < 0 && err.code == ERR_NOT_FOUND, "%s",
              err.text);
    serve_commit(s, COMMIT_A, "a");
    cr_assert(rm(s, "hf/org/model", COMMIT_A, &err) == 0 && !has_document(s, COMMIT_A));
    store_close(s);
}

Test(hub, damaged_rows)
{
    static const char *const dbs[] = {"hub_names",   "hub_pins",    "hub_documents",
                                      "hub_objects", "hub_commits", "hub_uses"};
    for (size_t db = 0; db < ARRAY_LEN(dbs); db++) {
        for (int how = 0; how < 12; how++) {
            struct store *s = open_store();
            serve_commit(s, COMMIT_A, "a");
            store_close(s);
            damage(dbs[db], how % 6, how >= 6);
            use_and_mend();
        }
    }
}
