#include "helper.h"

#include "storage/keys.h"
#include "storage/record.h"
#include "storage/rows.h"

Test(record, numbers)
{
    const uint64_t numbers[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        record_put_u64(&b, numbers[i]);
        cr_assert(b.len <= 10);
        struct record_reader r = record_reader_of(b.data, b.len);
        cr_assert(record_get_u64(&r) == numbers[i]);
        cr_assert(record_end(&r));
        r = record_reader_of(b.data, b.len - 1);
        cr_assert(record_get_u64(&r) == 0 && r.damaged && !record_end(&r), "cut");
    }
}

Test(record, numbers_that_are_none)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"", 0},
        {"\x80", 1},
        {"\x80\x00", 2},                                      /* a longer spelling of 0 */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},     /* over 64 bits */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* too long */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct record_reader r = record_reader_of(bad[i].bytes, bad[i].len);
        cr_assert(record_get_u64(&r) == 0 && r.damaged, "%zu", i);
    }
}

Test(record, strings)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    record_put_string(&b, "");
    record_put_string(&b, "hello");
    struct record_reader r = record_reader_of(b.data, b.len);
    cr_assert_str_eq(record_get_string(&r), "");
    const char *s = record_get_string(&r);
    cr_assert_str_eq(s, "hello");
    cr_assert(s > b.data && s < b.data + b.len, "borrowed");
    cr_assert(record_end(&r));
    char small[5];
    r = record_reader_of(b.data + 2, b.len - 2);
    record_get_string_into(&r, small, sizeof(small));
    cr_assert(r.damaged && small[0] == '\0', "does not fit");
    static const char *const bad[] = {"\x03"
                                      "ab\0c",
                                      "\x02xyz!!", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        r = record_reader_of(bad[i], i == 0 ? 5 : strlen(bad[i]));
        cr_assert_str_eq(record_get_string(&r), "");
        cr_assert(r.damaged);
    }
}

Test(record, counts_are_bounded_by_what_is_there)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    record_put_u64(&b, 1000000);
    strbuf_puts(&b, "0123456789");
    struct record_reader r = record_reader_of(b.data, b.len);
    cr_assert(record_get_count(&r, 1) == 0 && r.damaged);
}

Test(record, digests)
{
    struct digest d = digest_of_text("x"), none = {.alg = DIGEST_NONE}, got;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    record_put_digest(&b, &d);
    record_put_digest(&b, &none);
    struct record_reader r = record_reader_of(b.data, b.len);
    record_get_digest(&r, &got);
    cr_assert(digest_equal(&got, &d));
    record_get_digest(&r, &got);
    cr_assert(got.alg == DIGEST_NONE && record_end(&r));
    for (size_t cut = 1; cut < 33; cut++) {
        r = record_reader_of(b.data, cut);
        record_get_digest(&r, &got);
        cr_assert(r.damaged && got.alg == DIGEST_NONE);
    }
    r = record_reader_of("\x07garbage", 8);
    record_get_digest(&r, &got);
    cr_assert(r.damaged);
}

/* Every prefix of a good row is damaged, and so is one with a byte more. */
#define ASSERT_ONLY_WHOLE(decode)                                                                  \
    do {                                                                                           \
        for (size_t cut = 0; cut < b.len; cut++) {                                                 \
            size_t len = cut;                                                                      \
            cr_assert((decode) < 0, "cut at %zu", cut);                                            \
            cr_assert(err.code == ERR_IO && strstr(err.text, "damaged"), "%s", err.text);          \
        }                                                                                          \
        size_t len = b.len;                                                                        \
        cr_assert((decode) == 0, "%s", err.text);                                                  \
        len++;                                                                                     \
        cr_assert((decode) < 0);                                                                   \
    } while (0)

Test(record, rows_are_whole_or_damaged)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    uint64_t n;
    blob_row_encode(&b, 300);
    ASSERT_ONLY_WHOLE(blob_row_decode(b.data, len, &n, &err));

    strbuf_reset(&b);
    struct incoming_row in = {.kind = INCOMING_TRANSFER,
                              .file = "0123456789abcdef",
                              .owner = "me",
                              .digest = digest_of_text("d"),
                              .size = WRITER_SIZE_UNKNOWN,
                              .synced = 5},
                        in2;
    incoming_row_encode(&b, &in);
    ASSERT_ONLY_WHOLE(incoming_row_decode(b.data, len, &in2, &err));
    cr_assert(in2.size == WRITER_SIZE_UNKNOWN && in2.synced == 5);

    cr_assert(in2.lent.all, "nobody knows");

    strbuf_reset(&b);
    cr_assert(name_id_of("hub", "team/app", &in.source));
    lent_add(&in.lent, "hub/team/app");
    lent_add(&in.lent, "hub/team/other");
    incoming_row_encode(&b, &in);
    for (size_t cut = 0; cut <= b.len; cut++) {
        int r = incoming_row_decode(b.data, cut, &in2, &err);
        /* without its end it is a row as they were before there were sources */
        cr_assert((r == 0) == (cut == b.len || (r == 0 && in2.lent.all)), "cut at %zu", cut);
    }
    cr_assert(name_id_equal(&in2.source, &in.source) && in2.lent.n == 2 && !in2.lent.all);
    cr_assert(memcmp(in2.lent.to, in.lent.to, 2 * sizeof(in.lent.to[0])) == 0);

    strbuf_reset(&b);
    struct link_row link = {.size = 7,
                            .n_origins = 2,
                            .origins = {{"u", "r", "c", "p"}, {"", "", "", ""}}},
                    link2;
    link_row_encode(&b, &link);
    ASSERT_ONLY_WHOLE(link_row_decode(b.data, len, &link2, &err));
    cr_assert_str_eq(link2.origins[0].path, "p");
    cr_assert(!link2.is_claimed);

    /* Its last field may be left out: such a link is no mere claim. */
    strbuf_reset(&b);
    link.is_claimed = true;
    link_row_encode(&b, &link);
    for (size_t len = 0; len <= b.len; len++)
        cr_assert((link_row_decode(b.data, len, &link2, NULL) == 0) ==
                      (len == b.len || len == b.len - 1),
                  "%zu", len);
    cr_assert(link2.is_claimed);

    strbuf_reset(&b);
    struct digest needs[] = {digest_of_text("1"), digest_of_text("2")};
    struct manifest_row m = {.media_type = "t",
                             .commit = "",
                             .bytes = (const unsigned char *)"{}",
                             .len = 2,
                             .n_needs = 2},
                        m2;
    manifest_row_encode(&b, &m, needs);
    ASSERT_ONLY_WHOLE(manifest_row_decode(b.data, len, &m2, &err));
    cr_assert(m2.len == 2 && m2.n_needs == 2 && m2.subject.alg == DIGEST_NONE);

    /* Its last field may be left out: such a row says that there is no subject. */
    strbuf_reset(&b);
    m.subject = needs[1];
    manifest_row_encode(&b, &m, needs);
    for (size_t len = 0; len <= b.len; len++)
        cr_assert((manifest_row_decode(b.data, len, &m2, NULL) == 0) ==
                      (len == b.len || len == b.len - 33),
                  "%zu", len);
    cr_assert(digest_equal(&m2.subject, &needs[1]));

    strbuf_reset(&b);
    struct referrer_row ref = {.size = 9,
                               .media_type = "t",
                               .artifact_type = "",
                               .annotations = "{}",
                               .annotations_len = 2},
                        ref2;
    referrer_row_encode(&b, &ref);
    ASSERT_ONLY_WHOLE(referrer_row_decode(b.data, len, &ref2, &err));
    cr_assert(ref2.size == 9 && ref2.annotations_len == 2);

    strbuf_reset(&b);
    struct tag_event e = {.at_ms = 1, .commit = COMMIT_A, .source = "import"}, e2;
    event_row_encode(&b, &e);
    ASSERT_ONLY_WHOLE(event_row_decode(b.data, len, &e2, &err));
    cr_assert(e2.digest.alg == DIGEST_NONE);
    cr_assert_str_eq(e2.source, "import");

    strbuf_reset(&b);
    struct tag t = {.digest = needs[0], .commit = COMMIT_A, .checked_at = 1}, t2;
    tag_row_encode(&b, &t);
    ASSERT_ONLY_WHOLE(tag_row_decode(b.data, len, &t2, &err));

    strbuf_reset(&b);
    struct repository_row repo = {.upstream = "hf", .repo_id = "A/b"}, repo2;
    repository_row_encode(&b, &repo);
    ASSERT_ONLY_WHOLE(repository_row_decode(b.data, len, &repo2, &err));

    strbuf_reset(&b);
    struct commit_file files[] = {{.path = "p", .size = 1, .has_lfs = true, .sha256 = needs[0]},
                                  {.path = "q", .git_oid = COMMIT_A}};
    struct commit_row c;
    commit_row_encode(&b, "hf", "A/b", COMMIT_A, files, 2);
    ASSERT_ONLY_WHOLE(commit_row_decode(b.data, len, &c, &err));
    cr_assert(c.n_files == 2);
}

Test(record, no_row_is_taken_for_another)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    uint64_t n;
    number_row_encode(&b, ROW_MISMATCH, 5);
    cr_assert(blob_row_decode(b.data, b.len, &n, NULL) < 0);
    cr_assert(number_row_decode(ROW_MISMATCH, b.data, b.len, &n, NULL) == 0 && n == 5);
}

Test(record, an_incoming_file_name_is_never_a_path)
{
    static const char *const bad[] = {"../../etc/passwd", "a/b", "", "..", "ABC"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct incoming_row in = {.kind = INCOMING_PUT, .digest = digest_of_text("d")}, out;
        snprintf(in.file, sizeof(in.file), "%s", bad[i]);
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        incoming_row_encode(&b, &in);
        cr_assert(incoming_row_decode(b.data, b.len, &out, NULL) < 0, "%s", bad[i]);
    }
}

#define SESSION_FILE "0123456789abcdef0123456789abcdef"

Test(record, uploads_have_more_in_their_row)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct incoming_row in = {.kind = INCOMING_UPLOAD,
                              .file = SESSION_FILE,
                              .owner = "me",
                              .size = WRITER_SIZE_UNKNOWN,
                              .repository = "team/model",
                              .alg = DIGEST_SHA512},
                        out;
    incoming_row_encode(&b, &in);
    ASSERT_ONLY_WHOLE(incoming_row_decode(b.data, len, &out, &err));
    cr_assert(out.alg == DIGEST_SHA512 && out.digest.alg == DIGEST_NONE);
    cr_assert_str_eq(out.repository, "team/model");
}

/* The names are used as they are: in a path, in a key, in the link of the blob. */
Test(record, uploads_with_names_that_we_do_not_make)
{
    const struct incoming_row good = {.kind = INCOMING_UPLOAD,
                                      .file = SESSION_FILE,
                                      .repository = "team/model",
                                      .alg = DIGEST_SHA256};
    struct incoming_row bad[7], out;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].file[31] = '\0';
    bad[1].file[3] = '/';
    bad[2].file[0] = '\0';
    bad[3].repository[0] = '\0';
    bad[4].repository[0] = '.';
    bad[5].alg = DIGEST_NONE;
    bad[6].alg = (enum digest_alg)3;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        incoming_row_encode(&b, &bad[i]);
        cr_assert(incoming_row_decode(b.data, b.len, &out, NULL) < 0, "%zu", i);
    }
    /* only an upload may lack a digest */
    struct incoming_row put = {.kind = INCOMING_PUT, .file = SESSION_FILE};
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    incoming_row_encode(&b, &put);
    cr_assert(incoming_row_decode(b.data, b.len, &out, NULL) < 0);
}

Test(record, keys)
{
    char repo[REPOSITORY_MAX + 1], tag[TAG_MAX + 1];
    memset(repo, 'r', sizeof(repo));
    memset(tag, 't', sizeof(tag));
    repo[REPOSITORY_MAX] = tag[TAG_MAX] = '\0';
    struct digest d = {.alg = DIGEST_SHA512}, got;
    struct key k = key_of_tag(repo, tag);
    cr_assert(!k.overflow && k.len == REPOSITORY_MAX + 1 + TAG_MAX);
    k = key_of_use(&d, repo, &d);
    cr_assert(!k.overflow && k.len == 65 + REPOSITORY_MAX + 1 + 65 && k.len <= KEY_MAX);
    cr_assert(key_get_digest(k.data, k.len, &got) == 65 && digest_equal(&got, &d));
    cr_assert(key_get_digest(k.data, 64, &got) == 0);
    cr_assert(key_get_digest("\x09", 1, &got) == 0);
    cr_assert(key_get_digest("", 0, &got) == 0);
    key_put(&k, k.data, 200);
    cr_assert(k.overflow);
    struct digest blob, manifest;
    const char *name;
    static const struct digest none = {.alg = DIGEST_NONE};
    k = key_of_use(&d, repo, &d);
    cr_assert(key_get_use(k.data, k.len, &blob, &name, &manifest) && strcmp(name, repo) == 0);
    cr_assert(digest_equal(&blob, &d) && digest_equal(&manifest, &d));
    cr_assert(!key_get_use(k.data, k.len - 1, &blob, &name, &manifest));
    cr_assert(!key_get_use(k.data, k.len - 65, &blob, &name, &manifest), "a prefix is no use");
    cr_assert(!key_get_use(k.data, 66, &blob, &name, &manifest));
    k = key_of_use(&d, repo, &none);
    cr_assert(key_get_use(k.data, k.len, &blob, &name, &manifest) && manifest.alg == DIGEST_NONE);
    k = key_of_referrer(repo, &d, &d);
    cr_assert(!k.overflow && k.len == REPOSITORY_MAX + 1 + 130);
    uint64_t sequence = 0;
    k = key_of_event(repo, tag, 0x0102030405060708u);
    struct key prefix = key_of_history(repo, tag), before = key_of_event(repo, tag, 0xffu);
    cr_assert(!k.overflow && key_get_sequence(k.data, k.len, &prefix, &sequence));
    cr_assert(sequence == 0x0102030405060708u);
    cr_assert(!key_get_sequence(k.data, k.len - 1, &prefix, &sequence));
    cr_assert(memcmp(before.data, k.data, k.len) < 0);
    /* a name cannot run into the next part */
    struct key a = key_of_tag("ab", "c"), b = key_of_tag("a", "bc");
    cr_assert(a.len != b.len || memcmp(a.data, b.data, a.len) != 0);
    cr_assert(key_of_commit("a", "bc", "d", &a, NULL) == 0);
    cr_assert(key_of_commit("ab", "c", "d", &b, NULL) == 0);
    cr_assert(memcmp(a.data, b.data, a.len) != 0);
}
