/* Links without a manifest: unlinking, mounting, what removal leaves, and what the collector takes.
 */
#include "push.h"

TestSuite(hold, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define DAY (24u * 3600u)

/* ---- unlinking ---- */

Test(hold, unlinking_and_pushing_again)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest_list missing;
    struct digest layer = digest_of_text("layer"), never = digest_of_text("never");
    struct digest d = push_pair(s, LOCAL, "layer", "{m}", "v1");
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == 0, "%s", err.text);
    cr_assert(!has_link(s, LOCAL, &layer) && has_manifest(s, LOCAL, &d));
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(strstr(err.text, LOCAL), "%s", err.text);
    cr_assert(store_blob_unlink(s, LOCAL, &never, NULL, &err) == -1 && err.code == ERR_NOT_FOUND);
    cr_assert(store_blob_unlink(s, "team/other", &layer, NULL, &err) == -1 &&
              err.code == ERR_NOT_FOUND);
    collect(s, false, 0);
    cr_assert(is_held(s, &layer), "a manifest still names the bytes");

    struct push_need need = need_of("layer");
    struct push_record r = record_of(LOCAL, "{2}", &need, 1, NULL);
    cr_assert(store_manifest_push(s, &r, &missing, &err) == -1 && missing.n == 1, "no link");
    digest_list_done(&missing);
    upload_text(s, LOCAL, "layer");
    cr_assert(has_link(s, LOCAL, &layer));
    push_record_ok(s, &r);
    store_close(s);
    cr_assert(raw_count("uses") == 2, "no hold beside the manifests");
    s = open_store();
    cr_assert(remove_digest(s, LOCAL, &d, &err) == 0 &&
              remove_digest(s, LOCAL, &r.digest, &err) == 0);
    collect(s, false, 0);
    cr_assert(!is_held(s, &layer) && !has_link(s, LOCAL, &layer));
    store_close(s);
}

Test(hold, unlinking_what_no_manifest_needs)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = upload_text(s, LOCAL, "layer");
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == 0, "%s", err.text);
    cr_assert(collect(s, false, DAY).blobs_removed == 1, "the hold went with the link");
    store_close(s);
    cr_assert(raw_count("uses") == 0 && raw_count("links") == 0);
}

Test(hold, unlinking_and_then_removing_the_manifest)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = digest_of_text("layer");
    struct digest d = push_pair(s, LOCAL, "layer", "{m}", "v1");
    cr_assert(store_blob_unlink(s, LOCAL, &layer, NULL, &err) == 0, "%s", err.text);
    cr_assert(remove_digest(s, LOCAL, &d, &err) == 0, "%s", err.text);
    cr_assert(!has_link(s, LOCAL, &layer), "what was unlinked does not come back as a hold");
    cr_assert(collect(s, false, DAY).blobs_removed == 1);
    store_close(s);
}

/* ---- mounting ---- */

Test(hold, mounting)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = upload_text(s, "team/a", "layer"), never = digest_of_text("never");
    struct digest bare = put_text(s, "bare");
    struct import_link link = {digest_of_text("weights"), 7, "w"};
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    cr_assert(store_blob_mount(s, "team/b", &never, "team/a", &err) == 0);
    cr_assert(store_blob_mount(s, "team/b", &bare, "team/a", &err) == 0, "no link to it");
    cr_assert(store_blob_mount(s, "team/b", &layer, "team/c", &err) == 0);
    cr_assert(store_blob_mount(s, "team/b", &link.digest, "hf/org/model", &err) == 0,
              "an origin is no bytes");
    cr_assert(!has_link(s, "team/b", &layer) && !has_link(s, "team/b", &link.digest));
    cr_assert(store_blob_mount(s, "team/b", &layer, "team/a", &err) == 1, "%s", err.text);
    cr_assert(store_blob_mount(s, "team/b", &layer, "team/a", &err) == 1, "%s", err.text);
    cr_assert(has_link(s, "team/b", &layer));
    cr_assert(store_blob_mount(s, "Team/b", &layer, "team/a", &err) == -1);
    cr_assert(store_blob_mount(s, "team/b", &layer, "Team/a", &err) == -1);
    /* The link is its own: the other one may go. */
    cr_assert(store_blob_unlink(s, "team/a", &layer, NULL, &err) == 0, "%s", err.text);
    collect(s, false, DAY);
    struct push_need need = need_of("layer");
    push_ok(s, "team/b", "{m}", &need, 1, "v1");
    collect(s, false, 0);
    cr_assert(is_held(s, &layer));
    char path[600];
    blob_path(&layer, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    cr_assert(store_blob_mount(s, "team/a", &layer, "team/b", &err) == 0, "the file is gone");
    store_close(s);
}

Test(hold, mounting_keeps_the_origins_of_a_link)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest weights = upload_text(s, LOCAL, "weights");
    struct import_link link = {weights, 7, "w"};
    struct link l;
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", &link, 1, &err) == 0);
    cr_assert(store_blob_mount(s, "hf/org/model", &weights, LOCAL, &err) == 1);
    cr_assert(store_link_get(s, "hf/org/model", &weights, &l, &err) == 1);
    cr_assert(l.has_origin && l.held && strcmp(l.origin.path, "w") == 0);
    link_done(&l);
    store_close(s);
    s = open_store();
    collect(s, false, 0);
    cr_assert(has_link(s, "hf/org/model", &weights), "the hold is gone, the manifest is not");
    store_close(s);
}

/* ---- who has a blob ---- */

Test(hold, repositories_of_a_blob)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = digest_of_text("layer"), other = digest_of_text("other");
    static const char *const names[] = {"a", "a-b", "a/b", "a/b/c", "b"};
    struct push_need need = need_of("layer");
    for (int i = 4; i >= 0; i--) {
        upload_text(s, names[i], "layer");
        upload_text(s, names[i], "other");
        for (int j = 0; j < 40 && i == 1; j++) { /* many manifests that share it */
            char text[16];
            snprintf(text, sizeof(text), "{%d}", j);
            push_ok(s, names[i], text, &need, 1, NULL);
        }
    }
    push_ok(s, "b", "{m}", &need, 1, NULL);
    cr_assert(store_blob_unlink(s, "b", &layer, NULL, &err) == 0,
              "it stays needed, without a link");
    struct name_list l;
    cr_assert(store_blob_repositories(s, &layer, NULL, 10, &l, &err) == 0, "%s", err.text);
    cr_assert(l.n == 4 && !l.more);
    for (int i = 0; i < 4; i++)
        cr_assert_str_eq(l.names[i], names[i]);
    name_list_done(&l);
    cr_assert(store_blob_repositories(s, &other, NULL, 10, &l, &err) == 0 && l.n == 5);
    name_list_done(&l);
    char last[32] = "";
    for (size_t i = 0; i < 4; i++) {
        cr_assert(store_blob_repositories(s, &layer, i ? last : NULL, 1, &l, &err) == 0);
        cr_assert(l.n == 1 && l.more == (i < 3), "%zu", i);
        cr_assert_str_eq(l.names[0], names[i]);
        snprintf(last, sizeof(last), "%s", l.names[0]);
        name_list_done(&l);
    }
    cr_assert(store_blob_repositories(s, &layer, "zzz", 1, &l, &err) == 0 && l.n == 0 && !l.more);
    name_list_done(&l);
    struct digest never = digest_of_text("never");
    cr_assert(store_blob_repositories(s, &never, NULL, 9, &l, &err) == 0 && l.n == 0);
    name_list_done(&l);
    store_close(s);
}

/* ---- removing manifests ---- */

Test(hold, removal_leaves_a_hold_in_a_local_repository)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest own = digest_of_text("own"), shared = digest_of_text("shared");
    struct push_need needs[] = {need_of("own"), need_of("shared")};
    upload_text(s, LOCAL, "own");
    upload_text(s, LOCAL, "shared");
    struct digest one = push_ok(s, LOCAL, "{1}", needs, 2, "v1");
    struct digest two = push_ok(s, LOCAL, "{2}", &needs[1], 1, "v2");
    cr_assert(remove_digest(s, LOCAL, &one, &err) == 0, "%s", err.text);
    cr_assert(has_link(s, LOCAL, &own), "a push may have seen it");
    push_ok(s, LOCAL, "{3}", needs, 2, "v3");
    cr_assert(remove_digest(s, LOCAL, &two, &err) == 0, "%s", err.text);
    struct digest three = digest_of_text("{3}");
    cr_assert(remove_digest(s, LOCAL, &three, &err) == 0, "the last one, and the repository");
    cr_assert(has_link(s, LOCAL, &own) && has_link(s, LOCAL, &shared));
    struct gc_result gc = collect(s, false, DAY);
    cr_assert(gc.blobs_removed == 0 && gc.blobs_held == 2);
    gc = collect(s, false, 0);
    cr_assert(gc.blobs_removed == 2 && gc.blobs_held == 0 && gc.bytes_removed == 9);
    cr_assert(!has_link(s, LOCAL, &own));
    store_close(s);
    cr_assert(raw_count("links") == 0 && raw_count("uses") == 0);
}

Test(hold, removing_an_import_leaves_none)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest config = put_text(s, "config");
    struct import_link links[] = {{config, 6, NULL}, {digest_of_text("weights"), 7, "w"}};
    cr_assert(import_one(s, "hf/org/model", COMMIT_A, "main", "{1}", links, 2, &err) == 0);
    struct digest d = digest_of_text("{1}");
    cr_assert(remove_digest(s, "hf/org/model", &d, &err) == 0, "%s", err.text);
    cr_assert(!has_link(s, "hf/org/model", &config));
    cr_assert(collect(s, false, DAY).blobs_removed == 1, "importing again makes it again");
    store_close(s);
}

/* Somebody pushes a signature while somebody else removes theirs, with the same blob. */
Test(hold, what_was_sent_outlasts_the_removal_of_anything)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    const char *repo = "hf/org/model";
    struct digest config = put_text(s, "{}"), imported = digest_of_text("{import}");
    struct import_link link = {config, 2, NULL};
    cr_assert(import_one(s, repo, COMMIT_A, "main", "{import}", &link, 1, &err) == 0);
    struct push_need need = need_of("{}");
    upload_text(s, repo, "{}");
    cr_assert(remove_digest(s, repo, &imported, &err) == 0, "%s", err.text);
    cr_assert(has_link(s, repo, &config), "it was sent a moment ago");
    struct digest other = push_ok(s, repo, "{other}", &need, 1, NULL);
    cr_assert(import_one(s, repo, COMMIT_A, "main", "{import}", &link, 1, &err) == 0);
    cr_assert(remove_digest(s, repo, &other, &err) == 0, "%s", err.text);
    cr_assert(remove_digest(s, repo, &imported, &err) == 0, "%s", err.text);
    cr_assert(has_link(s, repo, &config), "whichever went first");
    push_ok(s, repo, "{mine}", &need, 1, NULL);
    store_close(s);
}

/* ---- collecting ---- */

static void age_hold(const char *repository, const struct digest *d, uint64_t seconds)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = hold_key(repository, d);
    number_row_encode(&row, ROW_HOLD, clock_wall_s() - seconds);
    raw_put("uses", &k, row.data, row.len);
}

Test(hold, the_collector_takes_old_ones)
{
    struct store *s = open_store();
    struct digest old = upload_text(s, LOCAL, "old"), young = upload_text(s, LOCAL, "young");
    struct digest both = upload_text(s, LOCAL, "both"), used = digest_of_text("used");
    upload_text(s, "team/other", "both");
    push_pair(s, "team/other", "used", "{m}", NULL);
    upload_text(s, LOCAL, "used");
    store_close(s);
    age_hold(LOCAL, &old, DAY + 10);
    age_hold(LOCAL, &both, DAY + 10);
    age_hold(LOCAL, &used, DAY + 10);
    age_hold(LOCAL, &young, DAY - 60);
    s = open_store();
    for (int dry = 1; dry >= 0; dry--) {
        struct gc_result gc = collect(s, dry, DAY);
        cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 3 && gc.blobs_held == 2,
                  "dry %d: %zu %zu %zu", dry, (size_t)gc.blobs_removed, (size_t)gc.bytes_removed,
                  (size_t)gc.blobs_held);
        cr_assert(has_link(s, LOCAL, &old) == (dry == 1));
    }
    cr_assert(!is_held(s, &old));
    cr_assert(is_held(s, &both) && !has_link(s, LOCAL, &both) && has_link(s, "team/other", &both));
    cr_assert(is_held(s, &used) && !has_link(s, LOCAL, &used) && has_link(s, "team/other", &used));
    cr_assert(is_held(s, &young) && has_link(s, LOCAL, &young));
    struct digest again = upload_text(s, LOCAL, "old");
    cr_assert(collect(s, false, DAY).blobs_removed == 0 && is_held(s, &again), "a new hold");
    cr_assert(collect(s, false, UINT64_MAX).blobs_removed == 0);
    store_close(s);
}

Test(hold, pushing_again_renews_it)
{
    struct store *s = open_store();
    struct digest layer = upload_text(s, LOCAL, "layer");
    store_close(s);
    age_hold(LOCAL, &layer, DAY + 10);
    s = open_store();
    upload_text(s, LOCAL, "layer");
    cr_assert(collect(s, false, DAY).blobs_held == 1 && has_link(s, LOCAL, &layer));
    store_close(s);
}

/* A hold beside a manifest's use is not made, but were it there, its end must not take the link. */
Test(hold, an_old_one_beside_a_manifest_takes_no_link)
{
    struct store *s = open_store();
    struct digest layer = digest_of_text("layer");
    push_pair(s, LOCAL, "layer", "{m}", "v1");
    store_close(s);
    age_hold(LOCAL, &layer, DAY);
    s = open_store();
    collect(s, false, 0);
    cr_assert(has_link(s, LOCAL, &layer) && is_held(s, &layer));
    store_close(s);
    struct key hold = hold_key(LOCAL, &layer);
    cr_assert(!raw_has("uses", &hold));
}

Test(hold, a_damaged_one_holds_nothing)
{
    struct store *s = open_store();
    struct digest layer = upload_text(s, LOCAL, "layer");
    store_close(s);
    struct key hold = hold_key(LOCAL, &layer);
    raw_put("uses", &hold, "\x0a\xff", 2);
    s = open_store();
    cr_assert(collect(s, true, DAY).blobs_removed == 1);
    cr_assert(collect(s, false, DAY).blobs_removed == 1);
    cr_assert(!has_link(s, LOCAL, &layer));
    store_close(s);
    cr_assert(raw_count("uses") == 0);
}

Test(hold, many)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest layer = upload_text(s, LOCAL, "layer");
    store_close(s);
    /* more than one look of the collector's; as one transaction, to be quick */
    struct raw uses = raw_open("uses");
    for (unsigned i = 0; i < 25000; i++) {
        char name[32];
        _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
        snprintf(name, sizeof(name), "many/r%05u", i);
        struct key k = hold_key(name, &layer);
        number_row_encode(&row, ROW_HOLD, i % 2 ? 1000 : clock_wall_s());
        MDB_val key = {k.len, k.data}, v = {row.len, row.data};
        cr_assert(mdb_put(uses.txn, uses.dbi, &key, &v, 0) == 0);
    }
    raw_close(&uses);
    s = open_store();
    struct gc_result gc = collect(s, false, DAY);
    cr_assert(gc.blobs_removed == 0 && gc.blobs_held == 1);
    struct name_list l;
    cr_assert(store_blob_repositories(s, &layer, LOCAL, 10, &l, &err) == 0);
    cr_assert(l.n == 0, "none of them has a link");
    name_list_done(&l);
    store_close(s);
    cr_assert(raw_count("uses") == 12501);
}
