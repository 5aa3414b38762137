#include <criterion/criterion.h>

#include "server/range.h"

#define ETAG "\"sha256:abc\""

struct range_case {
    const char *header;
    uint64_t size;
    enum range_result want;
    uint64_t first, length;
};

static const struct range_case cases[] = {
    {NULL, 100, RANGE_WHOLE, 0, 0},
    {"", 100, RANGE_WHOLE, 0, 0},
    {"bytes=0-0", 100, RANGE_PART, 0, 1},
    {"bytes=0-99", 100, RANGE_PART, 0, 100},
    {"bytes=0-", 100, RANGE_PART, 0, 100},
    {"bytes=500-1499", 2048, RANGE_PART, 500, 1000},
    {"bytes=500-", 2048, RANGE_PART, 500, 1548},
    {"bytes=-500", 2048, RANGE_PART, 1548, 500},
    {"bytes=-5000", 2048, RANGE_PART, 0, 2048},
    {"bytes=2000-5000", 2048, RANGE_PART, 2000, 48},
    {"bytes=99-99", 100, RANGE_PART, 99, 1},
    {"bytes=100-100", 100, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=100-", 100, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=500-0", 2048, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=5000-10000", 2048, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-0", 100, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-18446744073709551615", 100, RANGE_PART, 0, 100},
    {"bytes=0-99999999999999999999999", 100, RANGE_PART, 0, 100},
    {"bytes=99999999999999999999999-", 100, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-99999999999999999999999", 100, RANGE_PART, 0, 100},
    {"bytes=18446744073709551615-", UINT64_MAX, RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=18446744073709551614-", UINT64_MAX, RANGE_PART, UINT64_MAX - 1, 1},
    {"BYTES=1-2", 100, RANGE_PART, 1, 2},
    {" bytes = 1-2 ", 100, RANGE_PART, 1, 2},
    {"bytes=0-1,3-4", 100, RANGE_WHOLE, 0, 0},
    {"bytes=0-1,", 100, RANGE_WHOLE, 0, 0},
    {"bytes=", 100, RANGE_WHOLE, 0, 0},
    {"bytes=-", 100, RANGE_WHOLE, 0, 0},
    {"bytes=1", 100, RANGE_WHOLE, 0, 0},
    {"bytes=a-b", 100, RANGE_WHOLE, 0, 0},
    {"bytes=1-b", 100, RANGE_WHOLE, 0, 0},
    {"bytes=+1-2", 100, RANGE_WHOLE, 0, 0},
    {"bytes=--1", 100, RANGE_WHOLE, 0, 0},
    {"bytes 1-2", 100, RANGE_WHOLE, 0, 0},
    {"items=1-2", 100, RANGE_WHOLE, 0, 0},
};

Test(range, table)
{
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct range_case *c = &cases[i];
        uint64_t first = 0, length = 0;
        enum range_result got = range_parse(c->header, c->size, &first, &length);
        cr_expect_eq(got, c->want, "%s of %ju: %d", c->header, (uintmax_t)c->size, got);
        cr_expect_eq(first, c->first, "%s: first %ju", c->header, (uintmax_t)first);
        cr_expect_eq(length, c->length, "%s: length %ju", c->header, (uintmax_t)length);
    }
}

Test(range, if_range)
{
    cr_expect(range_if_range(ETAG, ETAG));
    cr_expect(range_if_range("sha256:abc", ETAG));
    cr_expect(range_if_range("  \"sha256:abc\"  ", ETAG));
    cr_expect_not(range_if_range("W/\"sha256:abc\"", ETAG), "weak tags never match");
    cr_expect_not(range_if_range("\"sha256:abd\"", ETAG));
    cr_expect_not(range_if_range("Wed, 21 Oct 2015 07:28:00 GMT", ETAG));
    cr_expect_not(range_if_range("", ETAG));
    cr_expect_not(range_if_range("*", ETAG));
}

Test(range, none_match)
{
    cr_expect(etag_none_match(ETAG, ETAG));
    cr_expect(etag_none_match("sha256:abc", ETAG));
    cr_expect(etag_none_match("W/\"sha256:abc\"", ETAG));
    cr_expect(etag_none_match("*", ETAG));
    cr_expect(etag_none_match("\"x\", W/\"sha256:abc\" , \"y\"", ETAG));
    cr_expect(etag_none_match(",,\"sha256:abc\"", ETAG));
    cr_expect_not(etag_none_match("\"x\",\"y\"", ETAG));
    cr_expect_not(etag_none_match("sha256:ab", ETAG));
    cr_expect_not(etag_none_match("", ETAG));
    cr_expect_not(etag_none_match(",", ETAG));
    cr_expect_not(etag_none_match("\"\"", ETAG));
}

Test(range, of_a_piece)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t first, length;
    } pieces[] = {
        {"0-0", true, 0, 1},
        {"0-1023", true, 0, 1024},
        {"1024-2047", true, 1024, 1024},
        {" 5-6 ", true, 5, 2},
        {"bytes 0-9", true, 0, 10},
        {"bytes=0-9", true, 0, 10},
        {"Bytes 0-9/10", true, 0, 10},
        {"bytes 0-9/*", true, 0, 10},
        {"0-9/10", true, 0, 10},
        {"0-9223372036854775806", true, 0, 9223372036854775807u},
        {"", false, 0, 0},
        {"0", false, 0, 0},
        {"-", false, 0, 0},
        {"0-", false, 0, 0},
        {"-5", false, 0, 0},
        {"5-4", false, 0, 0},
        {"a-b", false, 0, 0},
        {"0 - 5", false, 0, 0},
        {"0-5x", false, 0, 0},
        {"0-5/", false, 0, 0},
        {"0-5/5", false, 0, 0},
        {"0-5/6/7", false, 0, 0},
        {"0-5,6-7", false, 0, 0},
        {"+0-5", false, 0, 0},
        {"0x0-0x5", false, 0, 0},
        {"bytes", false, 0, 0},
        {"byte 0-5", false, 0, 0},
        {"bytes0-5", false, 0, 0},
        {"0-9223372036854775807", false, 0, 0},
        {"0-18446744073709551616", false, 0, 0},
        {"18446744073709551615-18446744073709551615", false, 0, 0},
    };
    for (unsigned i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        uint64_t first = 0, length = 0;
        cr_expect_eq(range_of_piece(pieces[i].text, &first, &length), pieces[i].good, "\"%s\"",
                     pieces[i].text);
        cr_expect_eq(first, pieces[i].first, "\"%s\"", pieces[i].text);
        cr_expect_eq(length, pieces[i].length, "\"%s\"", pieces[i].text);
    }
}
