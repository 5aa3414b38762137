/* The list of manifests whose subject is a digest. */
#include "push.h"

TestSuite(referrers, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define SIGNATURE "application/vnd.example.signature"
#define SBOM "application/spdx+json"

static struct digest refer(struct store *s, const char *repository, const char *text,
                           const struct digest *subject, const char *type, const char *annotations)
{
    struct push_record r = record_of(repository, text, NULL, 0, NULL);
    r.subject = subject;
    r.artifact_type = type;
    r.annotations = annotations;
    r.annotations_len = annotations ? strlen(annotations) : 0;
    push_record_ok(s, &r);
    return r.digest;
}

static struct referrer_list list(struct store *s, const char *repository,
                                 const struct digest *subject, const char *type,
                                 const struct digest *last, size_t limit, size_t max_bytes)
{
    struct error err = ERROR_INIT;
    struct referrer_list l;
    cr_assert(store_referrers(s, repository, subject, type, last, limit, max_bytes, &l, &err) == 0,
              "%s", err.text);
    for (size_t i = 1; i < l.n; i++)
        cr_assert(memcmp(l.items[i - 1].digest.raw, l.items[i].digest.raw, 32) < 0, "by digest");
    return l;
}

static size_t count(struct store *s, const char *repository, const struct digest *subject)
{
    struct referrer_list l = list(s, repository, subject, NULL, NULL, 1000, 1 << 20);
    size_t n = l.n;
    cr_assert(!l.more);
    referrer_list_done(&l);
    return n;
}

Test(referrers, are_listed_with_what_was_said_of_them)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}"); /* it need not be here */
    struct digest a = refer(s, LOCAL, "{signature}", &subject, SIGNATURE, "{\"a\":\"b\"}");
    refer(s, LOCAL, "{bare}", &subject, "", NULL);
    store_close(s);
    s = open_store();
    struct referrer_list l = list(s, LOCAL, &subject, NULL, NULL, 10, 1000);
    cr_assert(l.n == 2 && !l.more);
    for (size_t i = 0; i < 2; i++) {
        const struct referrer *r = &l.items[i];
        bool full = digest_equal(&r->digest, &a);
        cr_assert(r->size == (full ? 11 : 6));
        cr_assert_str_eq(r->media_type, IMAGE);
        cr_assert_str_eq(r->artifact_type, full ? SIGNATURE : "");
        cr_assert(full ? strcmp(r->annotations, "{\"a\":\"b\"}") == 0 : !r->annotations);
    }
    referrer_list_done(&l);
    cr_assert(!l.items && !l.storage);
    cr_assert(count(s, "team/other", &subject) == 0, "unknown repositories have none");
    cr_assert(count(s, LOCAL, &a) == 0);
    store_close(s);
}

Test(referrers, belong_to_their_repository_and_subject)
{
    struct store *s = open_store();
    struct digest one = digest_of_text("{1}"), two = digest_of_text("{2}"), wide;
    cr_assert(digest_of(DIGEST_SHA512, "{1}", 3, &wide, NULL) == 0);
    refer(s, "a", "{a1}", &one, SBOM, NULL);
    refer(s, "a/b", "{ab1}", &one, SBOM, NULL);
    refer(s, "a/b", "{ab1 more}", &one, SBOM, NULL);
    refer(s, "a", "{a2}", &two, SBOM, NULL);
    refer(s, "a", "{aw}", &wide, SBOM, NULL);
    cr_assert(count(s, "a", &one) == 1 && count(s, "a/b", &one) == 2);
    cr_assert(count(s, "a", &two) == 1 && count(s, "a/b", &two) == 0);
    cr_assert(count(s, "a", &wide) == 1);
    store_close(s);
}

Test(referrers, filter_and_pages)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}");
    for (int i = 0; i < 23; i++) {
        char text[32];
        snprintf(text, sizeof(text), "{%d}", i);
        refer(s, LOCAL, text, &subject, i % 3 ? SIGNATURE : SBOM, "{}");
    }
    static const char *const types[] = {NULL, SIGNATURE, SBOM, SIGNATURE "x", ""};
    static const size_t wants[] = {23, 15, 8, 0, 0};
    for (int t = 0; t < 5; t++)
        for (size_t limit = 1; limit < 30; limit += 4) {
            struct digest last;
            size_t seen = 0;
            bool more = true;
            while (more) {
                struct referrer_list l =
                    list(s, LOCAL, &subject, types[t], seen ? &last : NULL, limit, 1 << 20);
                seen += l.n;
                more = l.more;
                cr_assert(more ? l.n == limit : l.n <= limit);
                for (size_t i = 0; types[t] && i < l.n; i++)
                    cr_assert_str_eq(l.items[i].artifact_type, types[t]);
                if (l.n)
                    last = l.items[l.n - 1].digest;
                referrer_list_done(&l);
            }
            cr_assert(seen == wants[t], "%d: %zu", t, seen);
        }
    struct referrer_list l = list(s, LOCAL, &subject, NULL, NULL, 0, 1 << 20);
    cr_assert(l.n == 0 && l.more);
    referrer_list_done(&l);
    store_close(s);
}

Test(referrers, pages_by_bytes)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}");
    size_t len = 4 * MIB;
    char *large = malloc(len + 1);
    memset(large, 'x', len);
    memcpy(large, "{\"a\":\"", 6);
    memcpy(large + len - 2, "\"}", 3);
    for (int i = 0; i < 5; i++) {
        char text[32];
        snprintf(text, sizeof(text), "{%d}", i);
        refer(s, LOCAL, text, &subject, SBOM, large);
    }
    struct digest last;
    for (int i = 0; i < 5; i++) {
        struct referrer_list l =
            list(s, LOCAL, &subject, NULL, i ? &last : NULL, 100, i % 2 ? 0 : 4 * MIB);
        cr_assert(l.n == 1 && l.more == (i < 4), "at least one, or nobody gets on");
        cr_assert(strcmp(l.items[0].annotations, large) == 0);
        last = l.items[0].digest;
        referrer_list_done(&l);
    }
    struct referrer_list l = list(s, LOCAL, &subject, NULL, NULL, 100, 9 * MIB);
    cr_assert(l.n == 2 && l.more);
    referrer_list_done(&l);
    l = list(s, LOCAL, &subject, NULL, NULL, 100, SIZE_MAX);
    cr_assert(l.n == 5 && !l.more);
    referrer_list_done(&l);
    free(large);
    store_close(s);
}

Test(referrers, removing_one_and_removing_the_subject)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest subject = push_ok(s, LOCAL, "{subject}", NULL, 0, "v1");
    struct digest a = refer(s, LOCAL, "{a}", &subject, SBOM, NULL);
    struct digest b = refer(s, LOCAL, "{b}", &subject, SBOM, NULL);
    struct digest c = refer(s, LOCAL, "{c}", &b, SBOM, NULL);
    cr_assert(remove_digest(s, LOCAL, &a, &err) == 0, "%s", err.text);
    cr_assert(count(s, LOCAL, &subject) == 1);
    cr_assert(remove_digest(s, LOCAL, &subject, &err) == 0, "%s", err.text);
    cr_assert(count(s, LOCAL, &subject) == 1, "those of a subject that is gone stay");
    cr_assert(remove_digest(s, LOCAL, &b, &err) == 0, "%s", err.text);
    cr_assert(count(s, LOCAL, &subject) == 0 && count(s, LOCAL, &b) == 1);
    cr_assert(remove_digest(s, LOCAL, &c, &err) == 0, "%s", err.text);
    refer(s, LOCAL, "{a}", &subject, SBOM, NULL);
    cr_assert(count(s, LOCAL, &subject) == 1, "it came back");
    store_close(s);
    cr_assert(raw_count("referrers") == 1);
}

Test(referrers, the_newest_media_type_wins)
{
    struct store *s = open_store();
    struct digest subject = digest_of_text("{subject}");
    refer(s, LOCAL, "{a}", &subject, "", NULL);
    struct push_record r = record_of(LOCAL, "{a}", NULL, 0, NULL);
    r.subject = &subject;
    r.media_type = INDEX;
    push_record_ok(s, &r);
    struct referrer_list l = list(s, LOCAL, &subject, NULL, NULL, 10, 1000);
    cr_assert(l.n == 1);
    cr_assert_str_eq(l.items[0].media_type, INDEX);
    referrer_list_done(&l);
    store_close(s);
}

Test(referrers, a_damaged_row_is_named_and_mended)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct referrer_list l;
    struct digest subject = digest_of_text("{subject}");
    struct digest a = refer(s, LOCAL, "{a}", &subject, SBOM, NULL);
    store_close(s);
    struct key k = key_of_referrer(LOCAL, &subject, &a);
    raw_put("referrers", &k, "\x0b\x01", 2);
    s = open_store();
    cr_assert(store_referrers(s, LOCAL, &subject, NULL, NULL, 9, 999, &l, &err) == -1);
    char text[DIGEST_TEXT_MAX];
    cr_assert(err.code == ERR_IO && strstr(err.text, "damaged") && strstr(err.text, LOCAL) &&
                  strstr(err.text, digest_format(&a, text)),
              "%s", err.text);
    refer(s, LOCAL, "{a}", &subject, SBOM, NULL);
    cr_assert(count(s, LOCAL, &subject) == 1);
    store_close(s);
}

/* A manifest whose row is damaged cannot name its subject or its needs. */
Test(referrers, of_a_damaged_manifest_go_with_it)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest subject = digest_of_text("{subject}"), layer = digest_of_text("layer");
    struct digest child = push_ok(s, LOCAL, "{child}", NULL, 0, NULL);
    struct push_need needs[] = {need_of("layer"), {NEED_CHILD, child, 7}};
    upload_text(s, LOCAL, "layer");
    struct push_record r = record_of(LOCAL, "{a}", needs, 2, NULL);
    r.subject = &subject;
    push_record_ok(s, &r);
    refer(s, LOCAL, "{b}", &subject, SBOM, NULL);
    r.repository = "team/other";
    r.n_needs = 0;
    push_record_ok(s, &r);
    store_close(s);
    struct key k = key_of_content(LOCAL, &r.digest);
    raw_put("manifests", &k, "\x04", 1);
    s = open_store();
    cr_assert(remove_digest(s, LOCAL, &r.digest, &err) == 0, "%s", err.text);
    cr_assert(count(s, LOCAL, &subject) == 1 && count(s, "team/other", &subject) == 1);
    cr_assert(has_link(s, LOCAL, &layer), "as a hold");
    cr_assert(collect(s, false, 0).blobs_removed == 1);
    store_close(s);
    cr_assert(raw_count("uses") == 0);
}
