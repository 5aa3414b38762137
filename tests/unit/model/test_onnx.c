#include <criterion/criterion.h>

#include "model/onnx.h"
#include "tests/unit/model/memory_source.h"

#define FILES WB_SOURCE_DIR "/tests/unit/model/files/"

/* ---- what the onnx package itself wrote (tests/oracle/make_onnx.py) ---- */

static void put_values(struct strbuf *b, const struct onnx_value *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%s:%s:%s", i ? ";" : "", v[i].name, v[i].type, v[i].shape);
}

/* As a line of onnx.tsv. */
static void describe(const struct onnx_model *m, struct strbuf *b)
{
    strbuf_printf(b, "%lld\t", (long long)m->ir_version);
    for (size_t i = 0; i < m->n_opsets; i++)
        strbuf_printf(b, "%s%s:%lld", i ? " " : "", m->opsets[i].domain,
                      (long long)m->opsets[i].version);
    strbuf_printf(b, "\t%llu\t%llu\t%llu\t%llu\t", (unsigned long long)m->nodes,
                  (unsigned long long)m->initialisers, (unsigned long long)m->constants,
                  (unsigned long long)m->external);
    for (size_t i = 0; i < m->weights.n_types; i++)
        strbuf_printf(b, "%s%s:%llu:%llu", i ? " " : "", m->weights.types[i].name,
                      (unsigned long long)m->weights.types[i].elements,
                      (unsigned long long)m->weights.types[i].bytes);
    strbuf_putc(b, '\t');
    put_values(b, m->inputs, m->n_inputs);
    strbuf_putc(b, '\t');
    put_values(b, m->outputs, m->n_outputs);
}

struct seen {
    uint64_t n, inside, external;
    uint64_t file_size;
};

static int see_tensor(void *ctx, const struct tensor_info *t, const char *external_file,
                      struct error *err)
{
    struct seen *s = ctx;
    (void)err;
    s->n++;
    cr_expect(t->name_len == strlen(t->name));
    if (external_file) {
        s->external++;
        cr_expect_str_eq(external_file, "external.onnx_data");
        cr_expect(t->sized);
    } else if (t->offset) {
        cr_expect(t->offset + t->bytes <= s->file_size);
        s->inside += t->bytes;
    }
    return 0;
}

static void check_reference(const char *file, const char *expected)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct onnx_model m;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT, text = STRBUF_INIT;
    snprintf(path, sizeof(path), FILES "%s", file);
    cr_assert_eq(fs_read_file(path, 16u << 20, &b, &err), 0, "%s", err.text);
    struct memory_source memory = {b.data, b.len, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct seen seen = {.file_size = b.len};
    cr_assert_eq(onnx_read(&s, see_tensor, &seen, &m, &err), 0, "%s: %s", file, err.text);
    describe(&m, &text);
    cr_expect_str_eq(strbuf_str(&text), expected, "%s: %s, not %s", file, strbuf_str(&text),
                     expected);
    cr_expect_str_eq(m.producer, "tests");
    cr_expect_str_eq(m.producer_version, "1.2");
    cr_expect_str_eq(m.weights.warning, "");
    cr_expect_eq(seen.n, m.initialisers + m.constants);
    cr_expect_eq(seen.n, m.weights.tensors);
    cr_expect_eq(seen.external, m.external);
    cr_expect_eq(m.n_external_files, m.external ? 1 : 0);
    cr_expect_not(m.weights.partial);
    cr_expect_leq(m.weights.header_bytes + seen.inside, b.len);
    onnx_done(&m);
}

Test(onnx, agrees_with_the_onnx_package)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf table = STRBUF_INIT;
    unsigned n = 0;
    cr_assert_eq(fs_read_file(FILES "onnx.tsv", 1u << 20, &table, &err), 0, "%s", err.text);
    char *rest = table.data;
    strsep(&rest, "\n"); /* the head */
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        char *file = strsep(&line, "\t");
        cr_assert_not_null(line);
        check_reference(file, line);
    }
    cr_assert_geq(n, 5);
}

/* ---- protobuf by hand ---- */

static void put_varint(struct strbuf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        strbuf_putc(b, (char)(v | 0x80));
    strbuf_putc(b, (char)v);
}

static void put_number(struct strbuf *b, unsigned field, uint64_t v)
{
    put_varint(b, field << 3);
    put_varint(b, v);
}

static void put_bytes(struct strbuf *b, unsigned field, const void *data, size_t len)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, len);
    strbuf_put(b, data, len);
}

/* Puts inner into outer as a field, and empties it. */
static void put_message(struct strbuf *outer, unsigned field, struct strbuf *inner)
{
    put_bytes(outer, field, strbuf_str(inner), inner->len);
    strbuf_done(inner);
}

static void put_text(struct strbuf *b, unsigned field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

static int read_bytes(const struct strbuf *b, struct onnx_model *m, struct error *err)
{
    struct memory_source memory = {strbuf_str(b), b->len, 0, 0};
    struct byte_source s = memory_source(&memory);
    *err = ERROR_INIT;
    return onnx_read(&s, NULL, NULL, m, err);
}

/* A model whose graph has this one initialiser. */
static int read_tensor(struct strbuf *tensor, struct onnx_model *m, struct error *err)
{
    _cleanup_strbuf_ struct strbuf graph = STRBUF_INIT, model = STRBUF_INIT;
    put_message(&graph, 5, tensor);
    put_number(&model, 1, 8);
    put_message(&model, 7, &graph);
    return read_bytes(&model, m, err);
}

static void put_float(struct strbuf *t, uint64_t dim, size_t raw)
{
    static const char zeros[64];
    put_number(t, 1, dim);
    put_number(t, 2, 1);
    put_text(t, 8, "w");
    put_bytes(t, 9, zeros, raw);
}

static void expect_refused(struct strbuf *tensor, const char *what)
{
    struct error err;
    struct onnx_model m;
    cr_expect_eq(read_tensor(tensor, &m, &err), -1, "%s", what);
    cr_expect_eq(err.code, ERR_INVALID, "%s", what);
    cr_expect(strstr(err.text, what), "'%s' in '%s'", what, err.text);
    onnx_done(&m);
}

Test(onnx, tensors_that_do_not_add_up_are_refused)
{
    struct strbuf t = STRBUF_INIT;
    put_float(&t, 3, 11);
    expect_refused(&t, "raw_data has 11 bytes, 3 F32 take 12");
    put_float(&t, 3, 13);
    expect_refused(&t, "raw_data has 13 bytes");
    put_float(&t, UINT64_MAX, 12);
    expect_refused(&t, "a negative dimension");
    put_number(&t, 1, 1ull << 62);
    put_float(&t, 4, 0);
    expect_refused(&t, "does not fit 64 bits");
    put_number(&t, 1, 3);
    put_number(&t, 2, 1);
    expect_refused(&t, "has no values");
    put_number(&t, 1, 0);
    put_bytes(&t, 9, "", 0);
    expect_refused(&t, "has no type");
    put_float(&t, 3, 12);
    put_bytes(&t, 4, "\0\0\0", 4);
    expect_refused(&t, "values twice");
    put_number(&t, 1, 3);
    put_number(&t, 2, 1);
    put_bytes(&t, 4, "\0\0\0\0\0\0\0", 8);
    expect_refused(&t, "2 values, its shape takes 3");
    put_bytes(&t, 4, "\0\0\0\0\0\0", 7);
    expect_refused(&t, "no whole number of values");
    put_text(&t, 3, "");
    expect_refused(&t, "segments");
    put_bytes(&t, 8, "a\0b", 3);
    expect_refused(&t, "NUL");
    put_text(&t, 8, "\xff");
    expect_refused(&t, "UTF-8");
    put_bytes(&t, 1, "\x80", 1);
    expect_refused(&t, "cut off");
    put_number(&t, 14, 1);
    put_number(&t, 2, 1);
    expect_refused(&t, "not said where");
    for (int i = 0; i < 65; i++)
        put_number(&t, 1, 1);
    expect_refused(&t, "more than 64 dimensions");
}

Test(onnx, dimensions_may_be_packed_and_a_zero_makes_nothing)
{
    struct error err;
    struct onnx_model m;
    struct strbuf t = STRBUF_INIT;
    put_bytes(&t, 1, "\2\3", 2);
    put_number(&t, 2, 2);
    put_bytes(&t, 9, "abcdef", 6);
    cr_assert_eq(read_tensor(&t, &m, &err), 0, "%s", err.text);
    cr_expect_eq(m.weights.parameters, 6);
    onnx_done(&m);
    put_number(&t, 1, INT64_MAX);
    put_number(&t, 1, INT64_MAX);
    put_float(&t, 0, 0);
    cr_assert_eq(read_tensor(&t, &m, &err), 0, "%s", err.text);
    cr_expect_eq(m.weights.parameters, 0);
    onnx_done(&m);
    put_number(&t, 1, 4);
    put_number(&t, 2, 99); /* a type of the future: its bytes are what is there */
    put_bytes(&t, 9, "abc", 3);
    cr_assert_eq(read_tensor(&t, &m, &err), 0, "%s", err.text);
    cr_expect_str_eq(m.weights.types[0].name, "UNKNOWN");
    cr_expect_eq(m.weights.tensor_bytes, 3);
    onnx_done(&m);
}

static void put_pair(struct strbuf *t, const char *key, const char *value)
{
    struct strbuf pair = STRBUF_INIT;
    put_text(&pair, 1, key);
    put_text(&pair, 2, value);
    put_message(t, 13, &pair);
}

Test(onnx, external_data_is_named_and_a_place_outside_is_told)
{
    static const struct {
        const char *location;
        bool outside;
    } places[] = {
        {"weights.bin", false}, {"a/b.bin", false},  {"a..b", false},       {"...", false},
        {"../w.bin", true},     {"a/../../w", true}, {"/etc/passwd", true}, {"a\\..\\w", true},
        {"C:w", true},          {"..", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct error err;
        struct onnx_model m;
        struct strbuf t = STRBUF_INIT;
        put_number(&t, 1, 3);
        put_number(&t, 2, 1);
        put_number(&t, 14, 1);
        put_pair(&t, "location", places[i].location);
        put_pair(&t, "offset", "4096");
        put_pair(&t, "length", "12");
        cr_assert_eq(read_tensor(&t, &m, &err), 0, "%s", err.text);
        cr_assert_eq(m.n_external_files, 1);
        cr_expect_str_eq(m.external_files[0], places[i].location);
        cr_expect_eq(m.weights.warning[0] != '\0', places[i].outside, "%s", places[i].location);
        cr_expect_eq(m.weights.tensor_bytes, 12);
        cr_expect_eq(m.weights.header_bytes, m.weights.file_bytes);
        onnx_done(&m);
    }
    struct strbuf t = STRBUF_INIT;
    put_pair(&t, "length", "-1");
    expect_refused(&t, "no number");
}

Test(onnx, what_is_no_model_is_refused)
{
    static const struct {
        const char *data;
        size_t len;
        const char *what;
    } cases[] = {
        {"", 0, "no graph"},
        {"\x08\x08", 2, "no graph"},
        {"\x3a\x00", 2, "no ir_version"},
        {"\x08\x08\x3a\x05", 4, "field 7 at byte 2: it takes 5 bytes, the ModelProto has 0"},
        {"\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 12, "field 7 at byte 2"},
        {"\x0a\x01x", 3, "ir_version"},
        {"\x00\x00", 2, "no tag"},
        {"\x0b\x0c", 2, "wire type 3"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11, "over 64 bits"},
        {"hello, this is a text", 21, "not an ONNX model"},
        {"\x08\x08\x38\x01", 4, "wire type 0, not 2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        struct onnx_model m;
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_put(&b, cases[i].data, cases[i].len);
        cr_expect_eq(read_bytes(&b, &m, &err), -1, "%zu", i);
        cr_expect_eq(err.code, ERR_INVALID);
        cr_expect(strstr(err.text, cases[i].what), "%s", err.text);
        onnx_done(&m);
    }
}

Test(onnx, graphs_within_graphs_end_somewhere)
{
    for (unsigned depth = 30; depth < 40; depth += 9) {
        struct error err;
        struct onnx_model m;
        struct strbuf graph = STRBUF_INIT, outer = STRBUF_INIT;
        put_text(&graph, 2, "innermost");
        for (unsigned i = 0; i < depth; i++) {
            struct strbuf attribute = STRBUF_INIT, node = STRBUF_INIT;
            put_message(&attribute, 6, &graph);
            put_message(&node, 5, &attribute);
            put_message(&graph, 1, &node);
        }
        put_number(&outer, 1, 8);
        put_message(&outer, 7, &graph);
        int rc = read_bytes(&outer, &m, &err);
        cr_expect_eq(rc, depth > 32 ? -1 : 0, "%s", err.text);
        cr_expect(rc < 0 ? strstr(err.text, "over 32 deep") != NULL : m.nodes == depth);
        strbuf_done(&outer);
        onnx_done(&m);
    }
}

Test(onnx, bytes_of_tensors_are_not_read)
{
    /* 1.5 GB in one tensor: a model of which all but the beginning is its bytes */
    const uint64_t raw = 1500000000;
    struct error err = ERROR_INIT;
    struct onnx_model m;
    _cleanup_strbuf_ struct strbuf tensor = STRBUF_INIT, head = STRBUF_INIT;
    put_number(&tensor, 1, raw);
    put_number(&tensor, 2, 3);
    put_varint(&tensor, 9 << 3 | 2);
    put_varint(&tensor, raw);
    put_number(&head, 1, 8);
    put_varint(&head, 7 << 3 | 2);
    put_varint(&head, raw + tensor.len + 6);
    put_varint(&head, 5 << 3 | 2);
    put_varint(&head, raw + tensor.len);
    strbuf_put(&head, tensor.data, tensor.len);
    struct memory_source memory = {head.data, head.len, 0, 0};
    struct byte_source s = {raw + head.len, memory_read, &memory};
    cr_assert_eq(onnx_read(&s, NULL, NULL, &m, &err), 0, "%s", err.text);
    cr_expect_eq(m.weights.parameters, raw);
    cr_expect_eq(m.weights.header_bytes, head.len);
    cr_expect_lt(memory.bytes, 4096);
    onnx_done(&m);
}
