/* What weights_visit() shows of a header, key by key and tensor by tensor. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/strbuf.h"
#include "tests/unit/model/prefix_check.h"

/* Everything that was shown, one line each. */
static int note_value(struct strbuf *b, const struct metadata_info *m)
{
    switch (m->type) {
    case METADATA_STRING:
        strbuf_putc(b, '"');
        for (size_t i = 0; i < m->string_len; i++)
            strbuf_putc(b, m->string[i] ? m->string[i] : '0');
        strbuf_putc(b, '"');
        break;
    case METADATA_SIGNED:
        strbuf_printf(b, "%" PRId64, (int64_t)m->number);
        break;
    case METADATA_FLOAT:
        strbuf_printf(b, "%.17g", m->real);
        break;
    case METADATA_ARRAY:
        strbuf_printf(b, "%s[%" PRIu64 "]", m->element_name, m->count);
        break;
    case METADATA_BOOL:
    case METADATA_UNSIGNED:
        strbuf_printf(b, "%" PRIu64, m->number);
        break;
    }
    return 0;
}

static int note_metadata(void *ctx, const struct metadata_info *m, struct error *err)
{
    struct strbuf *b = ctx;
    struct metadata_info e;
    int rc = 0;
    strbuf_printf(b, "%.*s %s ", (int)m->key_len, m->key, m->type_name);
    note_value(b, m);
    for (int i = 0; m->cursor && i < 3 && (rc = metadata_next(m->cursor, &e, err)) > 0; i++) {
        strbuf_putc(b, ' ');
        note_value(b, &e);
    }
    strbuf_putc(b, '\n');
    return rc < 0 ? -1 : 0;
}

static int note_tensor(void *ctx, const struct tensor_info *t, struct error *err)
{
    struct strbuf *b = ctx;
    (void)err;
    strbuf_printf(b, "%.*s %s%s (", (int)t->name_len, t->name, t->type, t->sized ? "" : "?");
    for (size_t i = 0; i < t->n_dims; i++)
        strbuf_printf(b, "%s%" PRIu64, i ? "," : "", t->dims[i]);
    strbuf_printf(b, ") %" PRIu64 " @%" PRIu64 "+%" PRIu64 "\n", t->elements, t->offset, t->bytes);
    return 0;
}

static void shows(enum weights_format format, const struct strbuf *file, uint64_t size,
                  const char *want)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    const struct weights_visitor v = {note_metadata, note_tensor, &b};
    struct weights w;
    struct error err = ERROR_INIT;
    uint64_t need = 0;
    int rc = weights_visit(format, file->data, file->len, size, &v, &w, &need, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_str_eq(strbuf_str(&b), want);
}

/* ---- safetensors ---- */

static void safetensors(struct strbuf *b, const char *header)
{
    uint64_t n = strlen(header);
    for (unsigned i = 0; i < 8; i++)
        strbuf_putc(b, (char)(n >> (8 * i)));
    strbuf_puts(b, header);
}

#define MANY                                                                                       \
    "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1," \
    "1,1"

Test(visit, safetensors_in_the_order_of_the_bytes)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    safetensors(&b, " {\"b\":{\"data_offsets\":[4,10],\"x\":{\"shape\":[9]},\"shape\":[ 3 ,1],"
                    "\"dtype\":\"BF16\"},"
                    "\"__metadata__\":{\"f\\u006frmat\":\"p\\u0000\\\"t\",\"z\":\"\",\"z\":\"2\"},"
                    "\"a\\n\\u0061\":{\"dtype\":\"F32\",\"sh\\u0061pe\":[],\"data_offsets\":[0,4]},"
                    "\"many\":{\"dtype\":\"U8\",\"shape\":[" MANY "],\"data_offsets\":[10,11]}}");
    uint64_t data = b.len;
    _cleanup_strbuf_ struct strbuf want = STRBUF_INIT;
    strbuf_printf(&want,
                  "format str \"p0\"t\"\nz str \"\"\nz str \"2\"\n"
                  "a\na F32 () 1 @%" PRIu64 "+4\nb BF16 (3,1) 3 @%" PRIu64 "+6\nmany U8 (" MANY
                  ") 1 @%" PRIu64 "+1\n",
                  data, data + 4, data + 10);
    shows(WEIGHTS_SAFETENSORS, &b, data + 11, want.data);
}

Test(visit, nothing_is_shown_of_a_header_that_is_wrong)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT, shown = STRBUF_INIT;
    const struct weights_visitor v = {note_metadata, note_tensor, &shown};
    struct weights w;
    uint64_t need = 0;
    safetensors(&b, "{\"__metadata__\":{\"a\":\"b\"},\"x\":{\"dtype\":\"U8\",\"shape\":[1],"
                    "\"data_offsets\":[0,1]}}");
    cr_assert_lt(weights_visit(WEIGHTS_SAFETENSORS, b.data, b.len, b.len + 2, &v, &w, &need, NULL),
                 0);
    cr_assert_eq(
        weights_visit(WEIGHTS_SAFETENSORS, b.data, b.len - 1, b.len + 1, &v, &w, &need, NULL),
        PREFIX_MORE);
    cr_assert_eq(shown.len, 0);
}

static int stop_at(void *ctx, const struct tensor_info *t, struct error *err)
{
    int *left = ctx;
    (void)t;
    if (--*left == 0)
        return 1;
    return *left < -1 ? err_set(err, ERR_CONFLICT, "enough") : 0;
}

Test(visit, a_visitor_ends_the_walk)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct weights w = {0};
    struct error err = ERROR_INIT;
    uint64_t need = 0;
    int left = 2;
    const struct weights_visitor v = {.tensor = stop_at, .ctx = &left};
    safetensors(&b, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
                    "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}");
    cr_assert_eq(weights_visit(WEIGHTS_SAFETENSORS, b.data, b.len, b.len + 3, &v, &w, &need, &err),
                 0);
    cr_assert_eq(left, 0, "the third was shown");
    cr_assert_eq(w.tensors, 3);
    left = 0; /* fails at the second */
    w = (struct weights){0};
    cr_assert_lt(weights_visit(WEIGHTS_SAFETENSORS, b.data, b.len, b.len + 3, &v, &w, &need, &err),
                 0);
    cr_assert_eq(left, -2);
    cr_assert_eq(err.code, ERR_CONFLICT);
    cr_assert_eq(w.tensors, 0, "a failed walk leaves the result alone");
}

/* ---- GGUF ---- */

struct writer {
    struct strbuf b;
    bool big_endian;
    unsigned count_size;
};

static void put(struct writer *w, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        strbuf_putc(&w->b, (char)(value >> (8 * (w->big_endian ? n - 1 - i : i))));
}

static void put_text(struct writer *w, const char *s)
{
    put(w, strlen(s), w->count_size);
    strbuf_puts(&w->b, s);
}

static void put_value(struct writer *w, const char *key, uint32_t type, uint64_t value, unsigned n)
{
    put_text(w, key);
    put(w, type, 4);
    put(w, value, n);
}

static void put_array(struct writer *w, const char *key, uint32_t type, uint64_t n)
{
    put_value(w, key, 9, type, 4);
    put(w, n, w->count_size);
}

static void write_all_types(struct writer *w, unsigned version)
{
    w->count_size = version == 1 ? 4 : 8;
    strbuf_puts(&w->b, "GGUF");
    put(w, version, 4);
    put(w, 2, w->count_size);
    put(w, 17, w->count_size);
    put_value(w, "z", 0, 200, 1);
    put_value(w, "i8", 1, 0x80, 1);
    put_value(w, "u16", 2, 65535, 2);
    put_value(w, "i16", 3, 0xfffe, 2);
    put_value(w, "u32", 4, 4000000000, 4);
    put_value(w, "i32", 5, 0x80000000, 4);
    put_value(w, "f32", 6, 0x3dcccccd, 4);
    put_value(w, "bool", 7, 2, 1);
    put_value(w, "u64", 10, UINT64_MAX, 8);
    put_value(w, "i64", 11, UINT64_MAX, 8);
    put_value(w, "f64", 12, 0x3fb999999999999a, 8);
    put_text(w, "str");
    put(w, 8, 4);
    put_text(w, "h\xff");
    put_array(w, "numbers", 5, 4);
    for (unsigned i = 0; i < 4; i++)
        put(w, (uint64_t)-1 - i, 4);
    put_array(w, "strings", 8, 2);
    put_text(w, "");
    put_text(w, "yes");
    put_array(w, "nested", 9, 2);
    put(w, 4, 4);
    put(w, 1, w->count_size);
    put(w, 7, 4);
    put(w, 8, 4);
    put(w, 1, w->count_size);
    put_text(w, "in");
    put_array(w, "none", 12, 0);
    put_text(w, "general.architecture");
    put(w, 8, 4);
    put_text(w, "t");
    put_text(w, "blk.weight");
    put(w, 2, 4);
    put(w, 32, w->count_size);
    put(w, 3, w->count_size);
    put(w, 8, 4); /* Q8_0 */
    put(w, 0, 8);
    put_text(w, "odd");
    put(w, 1, 4);
    put(w, 5, w->count_size);
    put(w, 99, 4);
    put(w, 128, 8);
    while (w->b.len % 32)
        strbuf_putc(&w->b, '\0');
}

static const char all_types[] =
    "z u8 200\ni8 i8 -128\nu16 u16 65535\ni16 i16 -2\nu32 u32 4000000000\ni32 i32 -2147483648\n"
    "f32 f32 0.10000000149011612\nbool bool 1\nu64 u64 18446744073709551615\ni64 i64 -1\n"
    "f64 f64 0.10000000000000001\nstr str \"h\xff\"\nnumbers array i32[4] -1 -2 -3\n"
    "strings array str[2] \"\" \"yes\"\nnested array array[2] u32[1] str[1]\nnone array f64[0]\n"
    "general.architecture str \"t\"\n";

Test(visit, gguf_shows_every_type_in_both_byte_orders)
{
    static const struct {
        unsigned version;
        bool big_endian;
    } cases[] = {{1, false}, {2, false}, {3, false}, {3, true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct writer w = {.big_endian = cases[i].big_endian};
        _cleanup_strbuf_ struct strbuf want = STRBUF_INIT;
        write_all_types(&w, cases[i].version);
        strbuf_puts(&want, all_types);
        strbuf_printf(&want, "blk.weight Q8_0 (32,3) 96 @%zu+102\nodd UNKNOWN? (5) 5 @%zu+0\n",
                      w.b.len, w.b.len + 128);
        shows(WEIGHTS_GGUF, &w.b, w.b.len + 160, want.data);
        strbuf_done(&w.b);
    }
}
