/* Rows of pushed content as a damaged disk would give them: everything may fail, nothing may crash,
 * no answer may be wrong, and pushing again mends it. */
#include "push.h"

TestSuite(push_damage, .init = dir_make, .fini = dir_remove, .timeout = 600);

#define ROWS_MAX 64

static const char *const dbs[] = {"blobs", "links",        "uses",      "manifests",
                                  "tags",  "repositories", "referrers", "history"};

static const struct digest *subject(void)
{
    static struct digest d;
    d = digest_of_text("{subject}");
    return &d;
}

static void push_all(struct store *s)
{
    const char *tag = "v1";
    struct push_need needs[] = {need_of("layer"), {NEED_CHILD, digest_of_text("{child}"), 7}};
    upload_text(s, LOCAL, "layer");
    upload_text(s, LOCAL, "held");
    push_ok(s, LOCAL, "{child}", needs, 1, "child");
    struct push_record r = record_of(LOCAL, "{m}", needs, 2, &tag);
    r.subject = subject();
    r.artifact_type = "a/b";
    r.annotations = "{\"a\":\"b\"}";
    r.annotations_len = strlen(r.annotations);
    push_record_ok(s, &r);
}

/* how: 0 empty, 1 cut by one, 2 random, else one bit flipped */
static size_t spoil(unsigned char *bytes, size_t len, int how)
{
    if (how == 0 || len == 0)
        return 0;
    if (how == 1)
        return len - 1;
    if (how != 2) {
        bytes[(size_t)rand() % len] ^= (unsigned char)(1 << (rand() % 8));
        return len;
    }
    len = (size_t)rand() % 64;
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)rand();
    return len;
}

/* Spoils every value of a database, or its keys. */
static void damage(const char *db, int how, bool of_keys)
{
    struct raw r = raw_open(db);
    struct {
        unsigned char key[KEY_MAX], value[4096];
        size_t key_len, value_len;
    } rows[ROWS_MAX];
    size_t n = 0;
    MDB_cursor *c;
    MDB_val k, v;
    cr_assert(mdb_cursor_open(r.txn, r.dbi, &c) == 0);
    for (int rc = mdb_cursor_get(c, &k, &v, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(c, &k, &v, MDB_NEXT), n++) {
        cr_assert(n < ROWS_MAX && v.mv_size < sizeof(rows[n].value));
        memcpy(rows[n].key, k.mv_data, rows[n].key_len = k.mv_size);
        memcpy(rows[n].value, v.mv_data, rows[n].value_len = v.mv_size);
    }
    mdb_cursor_close(c);
    for (size_t i = 0; i < n; i++) {
        k = (MDB_val){rows[i].key_len, rows[i].key};
        if (of_keys) {
            cr_assert(mdb_del(r.txn, r.dbi, &k, NULL) == 0);
            k.mv_size = spoil(rows[i].key, rows[i].key_len, how);
        } else {
            rows[i].value_len = spoil(rows[i].value, rows[i].value_len, how);
        }
        v = (MDB_val){rows[i].value_len, rows[i].value};
        if (k.mv_size)
            cr_assert(mdb_put(r.txn, r.dbi, &k, &v, 0) == 0);
    }
    raw_close(&r);
}

static int checked(int r, struct error *err)
{
    if (r < 0) {
        cr_assert(err->code != ERR_NONE && err->text[0]);
        *err = ERROR_INIT;
    }
    return r;
}

static void use_all(struct store *s)
{
    struct error err = ERROR_INIT;
    struct digest m = digest_of_text("{m}"), layer = digest_of_text("layer");
    struct manifest man;
    struct link l;
    struct referrer_list refs;
    struct tag_history h;
    struct name_list names;
    struct gc_result gc;
    if (checked(store_manifest_get(s, LOCAL, &m, &man, &err), &err) == 1) {
        cr_assert(man.len == 3 && memcmp(man.bytes, "{m}", 3) == 0, "never wrong bytes");
        manifest_done(&man);
    }
    if (checked(store_link_get(s, LOCAL, &layer, &l, &err), &err) == 1)
        link_done(&l);
    if (checked(store_referrers(s, LOCAL, subject(), NULL, NULL, 9, 99, &refs, &err), &err) == 0)
        referrer_list_done(&refs);
    if (checked(store_referrers(s, LOCAL, subject(), "a/b", NULL, 9, 99, &refs, &err), &err) == 0)
        referrer_list_done(&refs);
    if (checked(store_tag_history(s, LOCAL, "v1", 9, &h, &err), &err) == 0)
        tag_history_done(&h);
    if (checked(store_blob_repositories(s, &layer, NULL, 9, &names, &err), &err) == 0)
        name_list_done(&names);
    checked(store_blob_mount(s, "team/other", &layer, LOCAL, &err), &err);
    checked(store_gc(s, &(struct gc_options){.dry_run = true}, &gc, &err), &err);
}

static void mended(struct store *s)
{
    struct error err = ERROR_INIT;
    struct digest m = digest_of_text("{m}"), layer = digest_of_text("layer");
    struct digest child = digest_of_text("{child}"), at;
    push_all(s);
    cr_assert(has_manifest(s, LOCAL, &m) && has_manifest(s, LOCAL, &child));
    cr_assert(has_link(s, LOCAL, &layer) && is_held(s, &layer));
    at = tag_digest(s, LOCAL, "v1");
    cr_assert(digest_equal(&at, &m));
    struct tag_history h; /* an event is never mended; the next ones are right */
    push_ok(s, LOCAL, "{m}", NULL, 0, "v2");
    push_ok(s, LOCAL, "{child}", NULL, 0, "v2");
    cr_assert(store_tag_history(s, LOCAL, "v2", 1, &h, &err) == 0 && h.n == 1, "%s", err.text);
    cr_assert(digest_equal(&h.events[0].digest, &child));
    tag_history_done(&h);
    push_all(s);
    struct referrer_list refs;
    bool found = false;
    cr_assert(store_referrers(s, LOCAL, subject(), NULL, NULL, 9, 9999, &refs, &err) == 0, "%s",
              err.text);
    for (size_t i = 0; i < refs.n; i++)
        found |= digest_equal(&refs.items[i].digest, &m);
    cr_assert(found);
    referrer_list_done(&refs);
    collect(s, false, 3600);
    cr_assert(has_link(s, LOCAL, &layer) && is_held(s, &layer));
    cr_assert(remove_digest(s, LOCAL, &m, &err) == 0, "%s", err.text);
    cr_assert(remove_digest(s, LOCAL, &child, &err) == 0, "%s", err.text);
}

static void each_damage(bool of_keys)
{
    for (size_t db = 0; db < sizeof(dbs) / sizeof(dbs[0]); db++)
        for (int how = 0; how < 7; how++) {
            struct store *s = open_store();
            push_all(s);
            store_close(s);
            srand((unsigned)db * 100 + (unsigned)how);
            damage(dbs[db], how, of_keys);
            s = open_store();
            use_all(s);
            mended(s);
            store_close(s);
            char cmd[400];
            snprintf(cmd, sizeof(cmd), "rm -rf %s", data_dir());
            cr_assert(system(cmd) == 0);
        }
}

Test(push_damage, of_values)
{
    each_damage(false);
}

Test(push_damage, of_keys)
{
    each_damage(true);
}

/* What cannot be read can still be taken away. */
Test(push_damage, of_everything_can_be_removed)
{
    static const char *const worst[] = {"manifests", "tags", "referrers", "links", "repositories"};
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    push_all(s);
    store_close(s);
    for (int i = 0; i < 5; i++)
        damage(worst[i], 0, false);
    s = open_store();
    struct digest m = digest_of_text("{m}"), child = digest_of_text("{child}");
    cr_assert(remove_digest(s, LOCAL, &m, &err) == 0, "%s", err.text);
    cr_assert(remove_digest(s, LOCAL, &child, &err) == 0, "%s", err.text);
    cr_assert(collect(s, false, 0).blobs_removed == 2);
    struct store_stats st;
    cr_assert(store_stats(s, &st, &err) == 0);
    cr_assert(st.manifests == 0 && st.tags == 0 && st.repositories == 0 && st.blobs == 0);
    store_close(s);
    cr_assert(raw_count("uses") == 0 && raw_count("links") == 0 && raw_count("referrers") == 0);
}
