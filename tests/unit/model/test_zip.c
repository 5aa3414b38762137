#include <criterion/criterion.h>

#include "model/zip.h"
#include "tests/unit/model/memory_source.h"
#include "tests/unit/model/zip_builder.h"

#define PLAIN ((struct zip_odd){0})

static void read_built(const struct zip_builder *b, struct zip *z)
{
    static struct memory_source memory;
    struct error err = ERROR_INIT;
    memory = (struct memory_source){strbuf_str(&b->b), b->b.len, 0, 0};
    struct byte_source s = memory_source(&memory);
    cr_assert_eq(zip_read(&s, z, &err), 0, "%s", err.text);
}

/* The members' names, and "!" for each that is in no directory, "?" for no header. */
static void check_names(const struct zip *z, const char *expected)
{
    char text[512] = "";
    for (size_t i = 0; i < z->n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s%s", i ? " " : "",
                 z->members[i].name, z->members[i].in_directory ? "" : "!",
                 z->members[i].in_file ? "" : "?");
    cr_expect_str_eq(text, expected, "%s, not %s", text, expected);
}

/* Reads a member in steps of `step` bytes. */
static bool unpack(const struct zip_builder *b, const struct zip_member *m, size_t step,
                   struct strbuf *out)
{
    struct memory_source memory = {strbuf_str(&b->b), b->b.len, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct error err = ERROR_INIT;
    struct zip_stream *z;
    bool broken = false;
    size_t n = 0;
    cr_assert_eq(zip_open(&s, m, &z, &err), 0, "%s", err.text);
    do {
        char *room = strbuf_reserve(out, step);
        cr_assert_eq(zip_stream_read(z, room, step, &n, &broken, &err), 0, "%s", err.text);
        strbuf_advance(out, n);
    } while (n == step);
    zip_close(z);
    return !broken;
}

static void expect_data(const struct zip_builder *b, const struct zip_member *m, const char *data)
{
    const size_t steps[] = {1, 7, 4096};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        _cleanup_strbuf_ struct strbuf out = STRBUF_INIT;
        cr_expect(unpack(b, m, steps[i], &out));
        cr_expect_str_eq(strbuf_str(&out), data, "%s", m->name);
    }
}

Test(zip, finds_stored_and_packed_members_and_reads_them)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    struct zip z;
    zip_add(&b, "a", "alpha", 5, PLAIN);
    zip_add(&b, "b", "beta beta beta beta", 19, (struct zip_odd){.deflate = true});
    zip_add(&b, "c", "", 0, PLAIN);
    zip_end(&b, false);
    read_built(&b, &z);
    check_names(&z, "a b c");
    cr_expect_str_eq(z.warning, "");
    expect_data(&b, &z.members[0], "alpha");
    expect_data(&b, &z.members[1], "beta beta beta beta");
    expect_data(&b, &z.members[2], "");
    zip_done(&z);
}

Test(zip, understands_zip64)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    struct zip z;
    zip_add(&b, "a", "alpha", 5, (struct zip_odd){.zip64 = true});
    zip_add(&b, "b", "beta", 4, (struct zip_odd){.zip64 = true, .deflate = true});
    zip_end(&b, true);
    read_built(&b, &z);
    check_names(&z, "a b");
    cr_expect_str_eq(z.warning, "");
    expect_data(&b, &z.members[0], "alpha");
    expect_data(&b, &z.members[1], "beta");
    zip_done(&z);
}

Test(zip, finds_what_stands_behind_other_bytes)
{
    for (int zip64 = 0; zip64 < 2; zip64++) {
        _cleanup_zip_builder_ struct zip_builder b = {0}, whole = {0};
        struct zip z;
        zip_add(&b, "a", "alpha", 5, PLAIN);
        zip_end(&b, zip64);
        strbuf_puts(&whole.b, "#!/bin/sh\n");
        strbuf_put(&whole.b, b.b.data, b.b.len);
        read_built(&whole, &z);
        check_names(&z, "a");
        expect_data(&whole, &z.members[0], "alpha");
        zip_done(&z);
    }
}

Test(zip, finds_members_that_the_directory_does_not_name)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    struct zip z;
    zip_add(&b, "first", "1", 1, (struct zip_odd){.unlisted = true});
    zip_add(&b, "a", "alpha", 5, PLAIN);
    zip_add(&b, "between", "2", 1, (struct zip_odd){.unlisted = true, .deflate = true});
    zip_add(&b, "open", "34", 2, (struct zip_odd){.unlisted = true, .descriptor = true});
    zip_add(&b, "b", "beta", 4, (struct zip_odd){.descriptor = true});
    zip_end(&b, false);
    zip_add(&b, "behind", "5", 1, (struct zip_odd){.unlisted = true});
    read_built(&b, &z);
    check_names(&z, "first! a between! open! b behind!");
    cr_expect(strstr(z.warning, "in no directory"), "%s", z.warning);
    expect_data(&b, &z.members[0], "1");
    expect_data(&b, &z.members[2], "2");
    expect_data(&b, &z.members[3], "34");
    expect_data(&b, &z.members[5], "5");
    zip_done(&z);
}

Test(zip, takes_both_directories_where_loaders_may_differ)
{
    _cleanup_zip_builder_ struct zip_builder one = {0}, two = {0};
    struct zip z;
    zip_add(&one, "old", "1", 1, PLAIN);
    zip_end(&one, false);
    strbuf_put(&two.b, one.b.data, one.b.len);
    zip_add(&two, "new", "2", 1, PLAIN);
    zip_end(&two, false);
    read_built(&two, &z);
    check_names(&z, "old new");
    cr_expect(strstr(z.warning, "2 ends"), "%s", z.warning);
    zip_done(&z);
}

Test(zip, takes_what_either_end_says_where_zip64_and_the_plain_one_differ)
{
    _cleanup_zip_builder_ struct zip_builder one = {0}, two = {0};
    struct zip z;
    zip_add(&one, "plain", "1", 1, PLAIN);
    uint64_t directory = one.b.len, size = one.directory.len;
    strbuf_put(&one.b, one.directory.data, one.directory.len);
    strbuf_put(&two.b, one.b.data, one.b.len);
    zip_add(&two, "in zip64", "2", 1, PLAIN);
    zip_end(&two, true);
    char *end = two.b.data + two.b.len - 22; /* the plain end names the first directory */
    memcpy(end + 12, &(uint32_t){(uint32_t)size}, 4);
    memcpy(end + 16, &(uint32_t){(uint32_t)directory}, 4);
    read_built(&two, &z);
    check_names(&z, "plain in zip64");
    cr_expect(z.members[0].in_directory && z.members[1].in_directory);
    zip_done(&z);
}

Test(zip, without_a_directory_goes_by_the_local_headers)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    struct zip z;
    zip_add(&b, "a", "alpha", 5, PLAIN);
    zip_add(&b, "b", "beta", 4, (struct zip_odd){.deflate = true});
    read_built(&b, &z);
    check_names(&z, "a! b!");
    cr_expect(z.warning[0]);
    expect_data(&b, &z.members[1], "beta");
    zip_done(&z);
}

Test(zip, tells_of_names_that_differ_and_headers_that_are_not_there)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    struct error err = ERROR_INIT;
    struct zip_stream *stream;
    struct zip z;
    zip_add(&b, "a", "alpha", 5, (struct zip_odd){.local_name = "data.pkl", .flags = 1});
    zip_add(&b, "b", "beta", 4, (struct zip_odd){.headless = true});
    zip_add(&b, "c", "beta", 4, (struct zip_odd){.method = 12});
    zip_end(&b, false);
    read_built(&b, &z);
    check_names(&z, "a b? c");
    cr_expect(z.members[0].renamed);
    expect_data(&b, &z.members[0], "alpha"); /* the flag "encrypted" is not heeded */
    struct memory_source memory = {b.b.data, b.b.len, 0, 0};
    struct byte_source s = memory_source(&memory);
    for (size_t i = 1; i < 3; i++) {
        cr_expect_eq(zip_open(&s, &z.members[i], &stream, &err), -1);
        cr_expect_eq(err.code, ERR_UNSUPPORTED);
    }
    zip_done(&z);
}

Test(zip, a_stream_that_breaks_gives_what_came_before)
{
    _cleanup_zip_builder_ struct zip_builder b = {0};
    _cleanup_strbuf_ struct strbuf out = STRBUF_INIT;
    char text[3000];
    struct zip z;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * i * 2654435761u >> 13);
    zip_add(&b, "a", text, sizeof(text), (struct zip_odd){.deflate = true});
    zip_end(&b, false);
    read_built(&b, &z);
    z.members[0].packed /= 2;
    cr_expect_not(unpack(&b, &z.members[0], 100, &out));
    cr_expect(out.len > 0 && out.len < sizeof(text));
    cr_expect_eq(memcmp(out.data, text, out.len), 0);
    zip_done(&z);
}

Test(zip, what_is_none_is_refused_and_what_is_huge_costs_nothing)
{
    struct error err = ERROR_INIT;
    struct zip z;
    const char none[] = "this is no archive, and it is long enough to be one";
    struct memory_source memory = {none, sizeof(none), 0, 0};
    struct byte_source s = memory_source(&memory);
    cr_expect_eq(zip_read(&s, &z, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    zip_done(&z);

    /* 10 TB of zeros behind a local header that says so too */
    _cleanup_zip_builder_ struct zip_builder b = {0};
    zip_add(&b, "a", "alpha", 5, (struct zip_odd){.zip64 = true});
    memset(b.b.data + 35, 0x7f, 6);
    memory = (struct memory_source){b.b.data, b.b.len, 0, 0};
    s = (struct byte_source){10000000000000u, memory_read, &memory};
    cr_expect_eq(zip_read(&s, &z, &err), 0, "%s", err.text);
    cr_expect_lt(memory.bytes, 64u << 20);
    cr_expect(z.n == 1 && z.unsearched);
    zip_done(&z);
}

Test(zip, a_directory_that_claims_too_much_is_refused)
{
    struct error err = ERROR_INIT;
    struct zip z;
    _cleanup_strbuf_ struct strbuf end = STRBUF_INIT;
    zip_put_int(&end, 0x06054b50, 4);
    zip_put_int(&end, 0, 8);
    zip_put_int(&end, 70u << 20, 4);
    zip_put_int(&end, 0, 6);
    size_t size = (70u << 20) + end.len;
    _cleanup_free_ char *file = calloc(1, size);
    cr_assert_not_null(file);
    memcpy(file, "PK\1\2", 4);
    memcpy(file + size - end.len, end.data, end.len);
    struct memory_source memory = {file, size, 0, 0};
    struct byte_source s = memory_source(&memory);
    cr_expect_eq(zip_read(&s, &z, &err), -1);
    cr_expect_eq(err.code, ERR_TOO_LARGE, "%s", err.text);
    zip_done(&z);
}
