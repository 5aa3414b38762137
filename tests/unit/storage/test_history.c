/* What became of a tag over time. */
#include "push.h"

TestSuite(history, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define DAY_MS ((uint64_t)24 * 3600 * 1000)

static struct tag_history history(struct store *s, const char *repository, const char *tag,
                                  size_t limit)
{
    struct error err = ERROR_INIT;
    struct tag_history h;
    cr_assert(store_tag_history(s, repository, tag, limit, &h, &err) == 0, "%s", err.text);
    cr_assert(h.n <= limit);
    return h;
}

static size_t count(struct store *s, const char *repository, const char *tag)
{
    struct tag_history h = history(s, repository, tag, TAG_HISTORY_MAX + 1);
    size_t n = h.n;
    tag_history_done(&h);
    return n;
}

static void assert_event(const struct tag_event *e, const char *text, const char *commit,
                         const char *source)
{
    struct digest want = {.alg = DIGEST_NONE};
    uint64_t now = clock_wall_s();
    if (text)
        want = digest_of_text(text);
    cr_assert(e->digest.alg == want.alg && (!text || digest_equal(&e->digest, &want)));
    cr_assert_str_eq(e->commit, commit);
    cr_assert_str_eq(e->source, source);
    cr_assert(e->at_ms / 1000 <= now && e->at_ms / 1000 + 200 > now);
}

Test(history, of_pushes_and_removals)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    push_ok(s, LOCAL, "{1}", NULL, 0, "v1");
    push_ok(s, LOCAL, "{1}", NULL, 0, "v1");
    push_ok(s, LOCAL, "{2}", NULL, 0, "v1");
    push_ok(s, LOCAL, "{1}", NULL, 0, NULL);
    push_ok(s, LOCAL, "{1}", NULL, 0, "v1.0");
    cr_assert(remove_tag(s, LOCAL, "v1", &err) == 0, "%s", err.text);
    cr_assert(remove_tag(s, LOCAL, "v1", &err) == -1 && err.code == ERR_NOT_FOUND);
    push_ok(s, LOCAL, "{2}", NULL, 0, "v1");
    struct digest two = digest_of_text("{2}");
    cr_assert(remove_digest(s, LOCAL, &two, &err) == 0, "%s", err.text);
    for (int again = 0; again < 2; again++) {
        struct tag_history h = history(s, LOCAL, "v1", 100);
        cr_assert(h.n == 5, "%zu", h.n);
        assert_event(&h.events[0], NULL, "", "delete 10.0.0.8");
        assert_event(&h.events[1], "{2}", "", "push 10.0.0.7");
        assert_event(&h.events[2], NULL, "", "delete 10.0.0.8");
        assert_event(&h.events[3], "{2}", "", "push 10.0.0.7");
        assert_event(&h.events[4], "{1}", "", "push 10.0.0.7");
        tag_history_done(&h);
        cr_assert(!h.events && !h.storage);
        h = history(s, LOCAL, "v1", 2);
        cr_assert(h.n == 2);
        assert_event(&h.events[1], "{2}", "", "push 10.0.0.7");
        tag_history_done(&h);
        store_close(s);
        s = open_store();
    }
    cr_assert(count(s, LOCAL, "v1.0") == 1 && count(s, LOCAL, "v") == 0);
    cr_assert(count(s, "team", "v1") == 0 && count(s, "team/model/x", "v1") == 0);
    struct tag_history h = history(s, LOCAL, "v1", 0);
    cr_assert(h.n == 0);
    tag_history_done(&h);
    cr_assert(store_tag_history(s, LOCAL, "-", 1, &h, &err) == -1 && err.code == ERR_INVALID);
    store_close(s);
}

Test(history, outlives_the_repository)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = push_ok(s, LOCAL, "{1}", NULL, 0, "v1");
    cr_assert(remove_digest(s, LOCAL, &d, &err) == 0, "%s", err.text);
    collect(s, false, 0);
    cr_assert(count(s, LOCAL, "v1") == 2);
    push_ok(s, LOCAL, "{1}", NULL, 0, "v1");
    cr_assert(count(s, LOCAL, "v1") == 3);
    store_close(s);
}

Test(history, of_imports)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct import_link link = {digest_of_text("w"), 1, "w"};
    const char *repo = "hf/org/model";
    cr_assert(import_one(s, repo, COMMIT_A, "main", "{1}", &link, 1, &err) == 0, "%s", err.text);
    cr_assert(import_one(s, repo, COMMIT_A, "main", "{1}", &link, 1, &err) == 0, "%s", err.text);
    cr_assert(import_one(s, repo, COMMIT_B, "main", "{2}", &link, 1, &err) == 0, "%s", err.text);
    struct digest one = digest_of_text("{1}");
    cr_assert(store_tag_put(s, repo, "main", &one, COMMIT_A, &err) == 0, "%s", err.text);
    cr_assert(store_tag_put(s, repo, "main", &one, COMMIT_A, &err) == 0, "%s", err.text);
    store_tag_confirm(s, repo, "main");
    struct tag_history h = history(s, repo, "main", 100);
    cr_assert(h.n == 3, "%zu", h.n);
    assert_event(&h.events[0], "{1}", COMMIT_A, "import hf Org/Model");
    assert_event(&h.events[1], "{2}", COMMIT_B, "import hf Org/Model");
    assert_event(&h.events[2], "{1}", COMMIT_A, "import hf Org/Model");
    tag_history_done(&h);
    cr_assert(count(s, repo, COMMIT_A) == 1);
    store_close(s);
}

Test(history, keeps_the_newest_thousand)
{
    struct store *s = open_store();
    struct digest digests[2];
    digests[0] = push_ok(s, LOCAL, "{0}", NULL, 0, "v1");
    digests[1] = push_ok(s, LOCAL, "{1}", NULL, 0, "v1");
    for (int i = 2; i < TAG_HISTORY_MAX + 30; i++)
        cr_assert(store_tag_put(s, LOCAL, "v1", &digests[i % 2], "", NULL) == 0);
    struct tag_history h = history(s, LOCAL, "v1", SIZE_MAX);
    cr_assert(h.n == TAG_HISTORY_MAX, "%zu", h.n);
    for (size_t i = 0; i < h.n; i++) {
        cr_assert(digest_equal(&h.events[i].digest, &digests[(i + 1) % 2]));
        cr_assert_str_eq(h.events[i].source, "import");
        cr_assert(i == 0 || h.events[i].at_ms <= h.events[i - 1].at_ms + 1000);
    }
    tag_history_done(&h);
    store_close(s);
    cr_assert(raw_count("history") == TAG_HISTORY_MAX);
}

Test(history, a_damaged_event_hides_no_other)
{
    struct store *s = open_store();
    for (int i = 0; i < 3; i++) {
        char text[8];
        snprintf(text, sizeof(text), "{%d}", i);
        push_ok(s, LOCAL, text, NULL, 0, "v1");
    }
    store_close(s);
    struct key k = key_of_event(LOCAL, "v1", 1), odd = key_of_history(LOCAL, "v1");
    raw_put("history", &k, "\x0c", 1);
    key_put(&odd, "\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9);
    raw_put("history", &odd, "", 0);
    s = open_store();
    push_ok(s, LOCAL, "{3}", NULL, 0, "v1");
    struct tag_history h = history(s, LOCAL, "v1", 10);
    cr_assert(h.n == 3);
    assert_event(&h.events[0], "{3}", "", "push 10.0.0.7");
    assert_event(&h.events[1], "{2}", "", "push 10.0.0.7");
    assert_event(&h.events[2], "{0}", "", "push 10.0.0.7");
    tag_history_done(&h);
    store_close(s);
}

static void age_event(const char *tag, uint64_t sequence, uint64_t ms)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_event(LOCAL, tag, sequence);
    cr_assert(raw_has("history", &k));
    event_row_encode(&row,
                     &(struct tag_event){.at_ms = clock_wall_s() * 1000 - ms, .source = "aged"});
    raw_put("history", &k, row.data, row.len);
}

Test(history, of_tags_long_gone_is_collected)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    static const char *const tags[] = {"a-there", "b-gone", "c-gone-late", "d-gone", "z-gone"};
    for (int i = 0; i < 5; i++) {
        push_ok(s, LOCAL, "{1}", NULL, 0, tags[i]);
        if (i)
            cr_assert(remove_tag(s, LOCAL, tags[i], &err) == 0, "%s", err.text);
    }
    store_close(s);
    for (int i = 0; i < 5; i++) {
        age_event(tags[i], 0, 900 * DAY_MS);
        if (i)
            age_event(tags[i], 1, (i == 2 ? 399 : 401) * DAY_MS);
    }
    s = open_store();
    collect(s, true, 0);
    cr_assert(count(s, LOCAL, "b-gone") == 2, "a dry run takes nothing");
    collect(s, false, 0);
    static const size_t left[] = {1, 0, 2, 0, 0};
    for (int i = 0; i < 5; i++)
        cr_assert(count(s, LOCAL, tags[i]) == left[i], "%s", tags[i]);
    push_ok(s, LOCAL, "{1}", NULL, 0, "b-gone");
    cr_assert(count(s, LOCAL, "b-gone") == 1, "it begins anew");
    store_close(s);
}

Test(history, of_many_tags_of_one_manifest)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    enum { N = 3000 };
    char(*names)[16] = calloc(N, sizeof(*names));
    const char **tags = calloc(N, sizeof(*tags));
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "t%d", i);
        tags[i] = names[i];
    }
    struct push_record r = record_of(LOCAL, "{1}", NULL, 0, NULL);
    r.tags = tags;
    r.n_tags = N;
    push_record_ok(s, &r);
    struct digest other = push_ok(s, LOCAL, "{2}", NULL, 0, "t7");
    cr_assert(remove_digest(s, LOCAL, &r.digest, &err) == 0, "%s", err.text);
    for (int i = 0; i < N; i++) {
        struct digest at = tag_digest(s, LOCAL, tags[i]);
        cr_assert(i == 7 ? digest_equal(&at, &other) : at.alg == DIGEST_NONE, "%s", tags[i]);
        cr_assert(count(s, LOCAL, tags[i]) == 2, "%s", tags[i]);
    }
    free(names);
    free(tags);
    store_close(s);
}
