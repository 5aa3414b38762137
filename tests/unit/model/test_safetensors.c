#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/strbuf.h"
#include "tests/unit/model/prefix_check.h"

static struct prefix_outcome last;

/* A file with this header and `data` bytes behind it. Only the header is ever read. */
static void parse_n(const char *header, size_t len, uint64_t data)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    for (unsigned i = 0; i < 8; i++)
        strbuf_putc(&b, (char)(len >> (8 * i)));
    strbuf_put(&b, header, len);
    const char *wrong = prefix_check(WEIGHTS_SAFETENSORS, b.data, b.len, b.len + data,
                                     b.len > 4096 ? 997 : 1, &last);
    cr_assert_null(wrong, "%.200s: %s", header, wrong);
}

static void accepts(const char *header, uint64_t data)
{
    parse_n(header, strlen(header), data);
    cr_assert_eq(last.rc, 0, "%.200s: %s", header, last.err.text);
}

static void refuses(const char *header, uint64_t data, const char *why)
{
    parse_n(header, strlen(header), data);
    cr_assert_lt(last.rc, 0, "%.200s", header);
    cr_assert_not_null(strstr(last.err.text, why), "%.200s: %s, not %s", header, last.err.text,
                       why);
}

Test(safetensors, a_header_like_a_real_one)
{
    _cleanup_strbuf_ struct strbuf h = STRBUF_INIT;
    uint64_t at = 0;
    strbuf_puts(&h, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < 300; i++) { /* not in the order of the offsets */
        int layer = 299 - i;
        strbuf_printf(&h,
                      ",\"model.layers.%d.mlp.weight\":{\"dtype\":\"BF16\",\"shape\":[16,8],"
                      "\"data_offsets\":[%d,%d]}",
                      layer, layer * 256, layer * 256 + 256);
    }
    at = 300 * 256;
    strbuf_printf(&h,
                  ",\"norm\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[%" PRIu64
                  ",%" PRIu64 "]}}",
                  at, at + 256);
    while (h.len % 8)
        strbuf_putc(&h, ' ');
    accepts(h.data, at + 256);
    cr_assert_eq(last.w.format, WEIGHTS_SAFETENSORS);
    cr_assert_eq(last.w.tensors, 301);
    cr_assert_eq(last.w.parameters, 300 * 128 + 64);
    cr_assert_eq(last.w.tensor_bytes, at + 256);
    cr_assert_eq(last.w.header_bytes, h.len + 8);
    cr_assert_eq(last.w.file_bytes, h.len + 8 + at + 256);
    cr_assert_eq(last.w.n_types, 2);
    cr_assert_str_eq(last.w.types[0].name, "BF16");
    cr_assert_eq(last.w.types[0].tensors, 300);
    cr_assert_eq(last.w.types[0].elements, 300 * 128);
    cr_assert_eq(last.w.types[1].bytes, 256);
    cr_assert_str_empty(last.w.warning);
    cr_assert(!last.w.partial);
}

Test(safetensors, the_whole_header_is_asked_for_at_once)
{
    struct prefix_outcome o;
    const unsigned char n[8] = {0x10, 0x27}; /* 10,000 */
    cr_assert_eq(prefix_run(WEIGHTS_SAFETENSORS, n, 0, 1 << 20, &o), 8);
    cr_assert_eq(o.rc, PREFIX_MORE);
    cr_assert_eq(prefix_run(WEIGHTS_SAFETENSORS, n, 8, 1 << 20, &o), 10008);
    cr_assert_eq(o.rc, PREFIX_MORE);
}

Test(safetensors, sixty_gigabytes_cost_their_header_only)
{
    accepts(
        "{\"w\":{\"dtype\":\"F16\",\"shape\":[3,10737418240],\"data_offsets\":[0,64424509440]}}",
        64424509440u);
    cr_assert_eq(last.w.parameters, 32212254720u);
}

Test(safetensors, numbers_keep_all_64_bits)
{
    accepts("{\"w\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],"
            "\"data_offsets\":[0,9007199254740993]}}",
            9007199254740993u);
    cr_assert_eq(last.w.parameters, 9007199254740993u);
    refuses("{\"w\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],"
            "\"data_offsets\":[0,18446744073709551615]}}",
            4, "does not fit 64 bits");
}

Test(safetensors, what_the_reference_reader_takes_beside_the_plain_form)
{
    accepts("{ \"a\" : { \"\\u0064type\" : \"F\\u00332\" , \"shape\" : [ 1 ] ,\n\t"
            "\"data_offsets\" : [ 0 , 4 ] , \"x\" : [ { \"y\" : -1.5E+3 } , null , true ] } }\r\n",
            4);
    accepts("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],"
            "\"x\":\"\\u0000\\ud83d\\ude00\",\"x\":1}}",
            4);
    accepts("{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0);
    accepts("{\"\\u005f_metadata__\":null}", 0);
    accepts("{}", 0);
}

Test(safetensors, what_the_reference_reader_refuses)
{
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, "a comma");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]}}", 4, "a comma");
    refuses("{\"a\":null}", 0, "expected '{'");
    refuses("{\"a\":{}}", 0, "dtype is missing");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing");
    refuses("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is there twice");
    refuses("{\"__metadata__\":[]}", 0, "expected '{'");
    refuses("[]", 0, "expected '{'");
    refuses("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'f32'");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "cut short");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "too long");
    refuses("{\"a\tb\":1}", 0, "control character (0x09)");
    refuses("{\"a\\x\":1}", 0, "wrong escape");
    refuses("{\"a\\u12g4\":1}", 0, "wrong escape");
    refuses("{\"\\udc00\":1}", 0, "wrong escape");
    refuses("{\"\\ud800\\u0041\":1}", 0, "wrong escape");
    refuses("{\"a", 0, "does not end");
    refuses("{\"a\\", 0, "wrong escape");
    refuses("{1:2}", 0, "expected a string");
    refuses("{\"a\" 1}", 0, "expected ':'");
    refuses("\v{}", 0, "expected '{'");
}

static void refuses_value(const char *value, const char *why)
{
    char header[1024];
    snprintf(header, sizeof(header),
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":%s}}", value);
    refuses(header, 4, why);
}

Test(safetensors, values_that_are_skipped_must_be_json)
{
    char digits[401] = {0};
    const char *numbers[] = {"01", "1.", ".5", "-", "1e", "1e+", "1e999", "-1e999", "--1", "0x1"};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        refuses_value(numbers[i], numbers[i][0] == '.' ? "expected a value" : " at byte ");
    memset(digits, '1', 400);
    refuses_value(digits, "wrong number");
    refuses_value("nul", "not a JSON value");
    refuses_value("truth", "not a JSON value");
    refuses_value("", "expected a value");
    refuses_value("[1 2]", "expected ','");
    refuses_value("{\"a\"}", "expected ':'");
    refuses_value("[", "expected a value");
}

static void parse_depth(unsigned arrays)
{
    _cleanup_strbuf_ struct strbuf h = STRBUF_INIT;
    strbuf_puts(&h, "{\"a\":{\"x\":");
    for (unsigned i = 0; i < arrays; i++)
        strbuf_putc(&h, '[');
    for (unsigned i = 0; i < arrays; i++)
        strbuf_putc(&h, ']');
    strbuf_puts(&h, ",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    parse_n(h.data, h.len, 4);
}

Test(safetensors, nesting_is_bounded_as_in_the_reference_reader)
{
    parse_depth(125);
    cr_assert_eq(last.rc, 0, "%s", last.err.text);
    parse_depth(126);
    cr_assert_not_null(strstr(last.err.text, "nested deeper than 127"));
    parse_depth(100000);
    cr_assert_not_null(strstr(last.err.text, "nested deeper than 127"));
}

Test(safetensors, dimensions_are_bounded)
{
    _cleanup_strbuf_ struct strbuf h = STRBUF_INIT;
    struct prefix_outcome o;
    for (unsigned n = 1000000; n <= 1000001; n++) {
        strbuf_reset(&h);
        strbuf_puts(&h, "12345678{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
        for (unsigned i = 1; i < n; i++)
            strbuf_puts(&h, ",1");
        strbuf_puts(&h, "]}}");
        for (unsigned i = 0; i < 8; i++)
            h.data[i] = (char)((h.len - 8) >> (8 * i));
        prefix_run(WEIGHTS_SAFETENSORS, h.data, h.len, h.len + 1, &o);
        cr_assert_eq(o.err.code, n == 1000000 ? ERR_NONE : ERR_TOO_LARGE, "%s", o.err.text);
    }
    cr_assert(strstr(o.err.text, "tensor 'a': its shape has more than 1000000 dimensions at byte"),
              "%s", o.err.text);
}

Test(safetensors, names_in_errors_are_short_and_printable)
{
    _cleanup_strbuf_ struct strbuf h = STRBUF_INIT;
    strbuf_puts(&h, "{\"evil\\n\\u001b[2J\\u009b'\\\\\":{\"dtype\":\"Q\"}}");
    refuses(h.data, 0, "tensor 'evil\\x0a\\x1b[2J\\xc2\\x9b\\x27\\x5c': the dtype 'Q'");
    strbuf_reset(&h);
    strbuf_puts(&h, "{\"");
    for (int i = 0; i < 5000; i++)
        strbuf_puts(&h, "\xc3\xa9");
    strbuf_puts(&h, "\":0}");
    refuses(h.data, 0, "\xc3\xa9'...");
    cr_assert_lt(strlen(last.err.text), 250);
}

Test(safetensors, many_tensors_with_like_names)
{
    _cleanup_strbuf_ struct strbuf h = STRBUF_INIT;
    struct prefix_outcome o;
    const unsigned n = 50000;
    strbuf_puts(&h, "12345678{");
    for (unsigned i = 0; i < n; i++)
        strbuf_printf(&h, "%s\"%.*s%05u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%u,%u]}",
                      i ? "," : "", 60,
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", i, i,
                      i + 1);
    strbuf_putc(&h, '}');
    for (unsigned i = 0; i < 8; i++)
        h.data[i] = (char)((h.len - 8) >> (8 * i));
    prefix_run(WEIGHTS_SAFETENSORS, h.data, h.len, h.len + n, &o);
    cr_assert_eq(o.rc, 0, "%s", o.err.text);
    cr_assert_eq(o.w.tensors, n);
    prefix_run(WEIGHTS_SAFETENSORS, h.data, h.len, h.len + n - 1, &o);
    cr_assert_eq(o.err.code, ERR_INVALID);
}
