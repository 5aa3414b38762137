#include <criterion/criterion.h>

#include "model/numpy.h"
#include "tests/unit/model/memory_source.h"
#include "tests/unit/model/zip_builder.h"

#define FILES WB_SOURCE_DIR "/tests/unit/model/files/"

/* As a caller does: asks, reads what is needed, asks again. */
static int parse(const void *data, size_t size, struct numpy_array *a, struct error *err)
{
    uint64_t need = 0;
    size_t have = 0;
    for (;;) {
        _cleanup_free_ void *copy = malloc(have ? have : 1);
        cr_assert_not_null(copy);
        memcpy(copy, data, have);
        int r = numpy_parse(copy, have, size, a, &need, err);
        if (r != PREFIX_MORE)
            return r;
        cr_assert(need > have && need <= size);
        have = (size_t)need;
    }
}

/* ---- what NumPy itself wrote (tests/oracle/make_numpy.py) ---- */

static void check_reference(const char *data, size_t len, const char *name, const char *expected)
{
    struct error err = ERROR_INIT;
    struct numpy_array a;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    cr_assert_eq(parse(data, len, &a, &err), PREFIX_DONE, "%s: %s", name, err.text);
    strbuf_printf(&text, "%s\t%d\t%d\t", a.type, a.fortran_order, a.big_endian);
    for (size_t i = 0; i < a.n_dims; i++)
        strbuf_printf(&text, "%s%llu", i ? "," : "", (unsigned long long)a.dims[i]);
    strbuf_printf(&text, "\t%llu\t%llu\t%llu\t%llu", (unsigned long long)a.elements,
                  (unsigned long long)a.bytes, (unsigned long long)a.item,
                  (unsigned long long)a.header_bytes);
    cr_expect_str_eq(strbuf_str(&text), expected, "%s: %s, not %s", name, strbuf_str(&text),
                     expected);
    cr_expect_eq(a.header_bytes + a.bytes, len, "%s", name);
    /* A byte less is too short for all but objects, whose length nobody knows; one more is fine. */
    if (strcmp(a.type, "OBJECT") != 0 && a.bytes) {
        cr_expect_eq(parse(data, len - 1, &a, &err), -1, "%s", name);
        cr_expect(strstr(err.text, "cut short"), "%s", err.text);
    }
}

Test(numpy, agrees_with_numpy)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf table = STRBUF_INIT, data = STRBUF_INIT;
    unsigned n = 0;
    cr_assert_eq(fs_read_file(FILES "numpy.tsv", 1u << 20, &table, &err), 0, "%s", err.text);
    cr_assert_eq(fs_read_file(FILES "arrays.bin", 1u << 20, &data, &err), 0, "%s", err.text);
    char *rest = table.data;
    strsep(&rest, "\n"); /* the head */
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        char *name = strsep(&line, "\t");
        size_t at = strtoul(strsep(&line, "\t"), NULL, 10);
        size_t len = strtoul(strsep(&line, "\t"), NULL, 10);
        cr_assert(line && at <= data.len && len <= data.len - at);
        check_reference(data.data + at, len, name, line);
    }
    cr_assert_geq(n, 60);
}

/* ---- headers by hand ---- */

static void put_header(struct strbuf *b, unsigned version, const char *text)
{
    strbuf_puts(b, "\x93NUMPY");
    strbuf_putc(b, (char)version);
    strbuf_putc(b, 0);
    zip_put_int(b, strlen(text), version == 1 ? 2 : 4);
    strbuf_puts(b, text);
}

static int parse_header(unsigned version, const char *text, size_t behind, struct numpy_array *a,
                        struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    put_header(&b, version, text);
    for (size_t i = 0; i < behind; i++)
        strbuf_putc(&b, 0);
    *err = ERROR_INIT;
    return parse(b.data, b.len, a, err);
}

Test(numpy, headers_that_are_read)
{
    static const struct {
        const char *text;
        const char *type;
        uint64_t item, elements;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "F32", 4, 6},
        {"{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\"<f4\"}\n", "F32", 4, 6},
        {"{'descr':'<f4','fortran_order':False,'shape':()}", "F32", 4, 1},
        {"{'descr':'<f4','fortran_order':False,'shape':(5L,)}", "F32", 4, 5},
        {"{'descr':'=i8','fortran_order':False,'shape':(1,)}", "I64", 8, 1},
        {"{'descr':'?','fortran_order':False,'shape':(1,)}", "BOOL", 1, 1},
        {"{'descr':('<f4',(2,)),'fortran_order':False,'shape':(1,)}", "", 8, 1},
        {"{'descr':[('a','<f4',3)],'fortran_order':False,'shape':(1,)}", "", 12, 1},
        {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775807,2,0)}", "F32", 4, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        struct numpy_array a;
        cr_assert_eq(parse_header(1, cases[i].text, 64, &a, &err), 0, "%s: %s", cases[i].text,
                     err.text);
        cr_expect_str_eq(a.type, cases[i].type, "%s", cases[i].text);
        cr_expect_eq(a.item, cases[i].item, "%s", cases[i].text);
        cr_expect_eq(a.elements, cases[i].elements, "%s", cases[i].text);
    }
}

#define REST "'fortran_order':False,'shape':(1,)}"

Test(numpy, headers_that_are_refused)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"", "no dictionary"},
        {"[]", "no dictionary"},
        {"{}", "descr is missing"},
        {"{'descr':'<f4','shape':(1,)}", "fortran_order is missing"},
        {"{'descr':'<f4','descr':'<f4'," REST, "twice"},
        {"{'descr':'<f4','other':1," REST, "'other' is none of"},
        {"{'descr':'<f4'," REST "x", "behind the dictionary"},
        {"{'descr':'<f4'," REST "__import__('os')", "behind the dictionary"},
        {"{'descr':'<f4','fortran_order':0,'shape':(1,)}", "neither True nor False"},
        {"{'descr':'<f4','fortran_order':False,'shape':[1]}", "a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1)}", "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(-1,)}", "not negative"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1.0,)}", "comma"},
        {"{'descr':'<f4','fortran_order':False,'shape':(01,)}", "starts with 0"},
        {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775808,)}", "over 2^63"},
        {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775807,)}", "63 bits"},
        {"{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}", "63 bits"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1 2,)}", "comma"},
        {"{'descr':'<f3'," REST, "not known"},
        {"{'descr':'<f4x'," REST, "not known"},
        {"{'descr':'<q'," REST, "not known"},
        {"{'descr':''," REST, "not known"},
        {"{'descr':'|V99999999999'," REST, "2 GiB"},
        {"{'descr':[('a','|V2000000000'),('b','|V2000000000')]," REST, "2 GiB"},
        {"{'descr':('<f4',(65536,65536))," REST, "2 GiB"},
        {"{'descr':[('a','<f4'" REST, "no end"},
        {"{'descr':[('a')]," REST, "without a dtype"},
        {"{'descr':'<f4" REST, "comma"},
        {"{'descr':'<f4", "not closed"},
        {"{'descr':os.system('id')," REST, "a string is expected"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        struct numpy_array a;
        cr_expect_eq(parse_header(1, cases[i].text, 64, &a, &err), -1, "%s", cases[i].text);
        cr_expect_eq(err.code, ERR_INVALID, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].what), "%s: %s", cases[i].text, err.text);
    }
}

Test(numpy, depth_and_length_have_limits)
{
    struct error err;
    struct numpy_array a;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "{'descr':");
    for (int i = 0; i < 5000; i++)
        strbuf_puts(&b, "[('a',");
    cr_expect_eq(parse_header(2, b.data, 0, &a, &err), -1);
    cr_expect(strstr(err.text, "over 32 deep"), "%s", err.text);
    /* the header claims 4 GB: nothing is asked for, whatever the file's size */
    uint64_t need = 0;
    cr_expect_eq(numpy_parse("\x93NUMPY\2\0\xff\xff\xff\xff", 12, 1ull << 40, &a, &need, &err), -1);
    cr_expect_eq(err.code, ERR_TOO_LARGE);
    cr_expect_eq(numpy_parse("\x93NUMPY\4\0\xff\xff", 10, 100, &a, &need, &err), -1);
    cr_expect(strstr(err.text, "4.0"), "%s", err.text);
    cr_expect_eq(numpy_parse("\x93NUMPX", 6, 100, &a, &need, &err), -1);
    cr_expect_eq(numpy_parse("\x93NUMPY\1\0\xff\xff", 10, 100, &a, &need, &err), -1);
    cr_expect(strstr(err.text, "the file has 100"), "%s", err.text);
}

/* ---- .npz ---- */

static int list_array(void *ctx, const struct tensor_info *t, struct error *err)
{
    struct strbuf *b = ctx;
    (void)err;
    strbuf_printf(b, "%.*s:%s:%llu:%s ", (int)t->name_len, t->name, t->type,
                  (unsigned long long)t->elements, t->offset ? "placed" : "packed");
    return 0;
}

static void check_npz(const char *file, const char *expected)
{
    struct error err = ERROR_INIT;
    struct weights w;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT, list = STRBUF_INIT;
    cr_assert_eq(fs_read_file(file, 1u << 20, &b, &err), 0, "%s", err.text);
    struct memory_source memory = {b.data, b.len, 0, 0};
    struct byte_source s = memory_source(&memory);
    cr_assert_eq(numpy_zip_read(&s, list_array, &list, &w, &err), 0, "%s", err.text);
    cr_expect_str_eq(strbuf_str(&list), expected, "%s: %s", file, strbuf_str(&list));
    cr_expect_eq(w.tensors, 3);
    cr_expect_eq(w.parameters, 307);
    cr_expect_str_eq(w.warning, "");
}

Test(numpy, reads_the_arrays_of_a_zip)
{
    check_npz(FILES "stored.npz", "a:F32:6:placed b/c:I64:300:placed o:OBJECT:1:placed ");
    check_npz(FILES "packed.npz", "a:F32:6:packed b/c:I64:300:packed o:OBJECT:1:packed ");
}

Test(numpy, a_zip_without_arrays_or_with_broken_ones_is_refused)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"no array", "no member"},
        {"\x93NUMPY\1", "member 'x.npy': the NumPy header at byte 0 takes 8 bytes"},
        {"\x93NUMPY\5\1\1\1\1\1\1", "member 'x.npy': NumPy format 5.1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_zip_builder_ struct zip_builder z = {0};
        struct error err = ERROR_INIT;
        struct weights w;
        zip_add(&z, "x.npy", cases[i].text, strlen(cases[i].text), (struct zip_odd){0});
        zip_end(&z, false);
        struct memory_source memory = {z.b.data, z.b.len, 0, 0};
        struct byte_source s = memory_source(&memory);
        cr_expect_eq(numpy_zip_read(&s, NULL, NULL, &w, &err), -1);
        cr_expect(strstr(err.text, cases[i].what), "%s", err.text);
    }
}
