#include <criterion/criterion.h>

#include "base/strbuf.h"
#include "model/parsers.h"
#include "tests/unit/model/prefix_check.h"

/* ---- a small writer ---- */

struct writer {
    struct strbuf b;
    bool big_endian;
    unsigned version;
};
#define _cleanup_writer_ _cleanup_(writer_done)

static void writer_done(struct writer *w)
{
    strbuf_done(&w->b);
}

static void put_int(struct writer *w, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        strbuf_putc(&w->b, (char)(value >> (8 * (w->big_endian ? n - 1 - i : i))));
}

static void put_count(struct writer *w, uint64_t n)
{
    put_int(w, n, w->version == 1 ? 4 : 8);
}

static void put_text_n(struct writer *w, const char *s, size_t n)
{
    put_count(w, n);
    strbuf_put(&w->b, s, n);
}

static void put_text(struct writer *w, const char *s)
{
    put_text_n(w, s, strlen(s));
}

static void begin(struct writer *w, uint64_t tensors, uint64_t keys)
{
    if (!w->version)
        w->version = 3;
    strbuf_puts(&w->b, "GGUF");
    put_int(w, w->version, 4);
    put_count(w, tensors);
    put_count(w, keys);
}

static void key_text(struct writer *w, const char *key, const char *value)
{
    put_text(w, key);
    put_int(w, 8, 4);
    put_text(w, value);
}

static void key_int(struct writer *w, const char *key, uint32_t type, uint64_t value, unsigned n)
{
    put_text(w, key);
    put_int(w, type, 4);
    put_int(w, value, n);
}

static void key_strings(struct writer *w, const char *key, unsigned n)
{
    char token[32];
    put_text(w, key);
    put_int(w, 9, 4);
    put_int(w, 8, 4);
    put_count(w, n);
    for (unsigned i = 0; i < n; i++) {
        snprintf(token, sizeof(token), "%.*s%u", (int)(i % 7), "tokentoken", i);
        put_text(w, token);
    }
}

static void key_numbers(struct writer *w, const char *key, uint32_t type, unsigned n, unsigned size)
{
    put_text(w, key);
    put_int(w, 9, 4);
    put_int(w, type, 4);
    put_count(w, n);
    for (unsigned i = 0; i < n; i++)
        put_int(w, i, size);
}

static void tensor(struct writer *w, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type,
                   uint64_t offset)
{
    put_text(w, name);
    put_int(w, 2, 4);
    put_count(w, ne0);
    put_count(w, ne1);
    put_int(w, type, 4);
    put_int(w, offset, 8);
}

static void finish(struct writer *w, uint64_t data)
{
    while (w->b.len % 32)
        strbuf_putc(&w->b, '\0');
    for (uint64_t i = 0; i < data; i++)
        strbuf_putc(&w->b, 'd');
}

static struct prefix_outcome last;

static void parse(const struct writer *w)
{
    const char *wrong = prefix_check(WEIGHTS_GGUF, w->b.data, w->b.len, w->b.len,
                                     w->b.len > 4096 ? 1009 : 1, &last);
    cr_assert_null(wrong, "%s", wrong);
}

static void accepts(const struct writer *w)
{
    parse(w);
    cr_assert_eq(last.rc, 0, "%s", last.err.text);
}

static void refuses(const struct writer *w, const char *why)
{
    parse(w);
    cr_assert_lt(last.rc, 0);
    cr_assert_not_null(strstr(last.err.text, why), "%s, not %s", last.err.text, why);
}

/* ---- tests ---- */

/* The keys and arrays of a small language model; 300 tensors. */
static void write_model(struct writer *w, unsigned vocabulary)
{
    char name[64];
    begin(w, 300, 9);
    key_int(w, "llama.context_length", 4, 8192, 4); /* before the key that names it */
    key_text(w, "general.architecture", "llama");
    key_text(w, "general.name", "Tiny");
    key_int(w, "general.file_type", 4, 7, 4);
    key_text(w, "tokenizer.ggml.model", "gpt2");
    key_strings(w, "tokenizer.ggml.tokens", vocabulary);
    key_numbers(w, "tokenizer.ggml.scores", 6, vocabulary, 4);
    key_numbers(w, "tokenizer.ggml.token_type", 5, vocabulary, 4);
    key_strings(w, "tokenizer.ggml.merges", vocabulary);
    for (unsigned i = 0; i < 299; i++) {
        snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", i);
        tensor(w, name, 64, 2, 8, i * 160); /* 128 elements, 136 bytes, padded to 160 */
    }
    tensor(w, "output_norm.weight", 64, 1, 0, 299 * 160);
    finish(w, 299 * 160 + 256);
}

static void check_model(void)
{
    cr_assert_eq(last.w.tensors, 300);
    cr_assert_eq(last.w.parameters, 299 * 128 + 64);
    cr_assert_eq(last.w.tensor_bytes, 299 * 136 + 256);
    cr_assert_eq(last.w.n_types, 2);
    cr_assert_str_eq(last.w.types[0].name, "F32");
    cr_assert_str_eq(last.w.types[1].name, "Q8_0");
    cr_assert_eq(last.w.types[1].tensors, 299);
    cr_assert_str_eq(last.w.architecture, "llama");
    cr_assert_str_eq(last.w.name, "Tiny");
    cr_assert(last.w.has_file_type && last.w.file_type == 7);
    cr_assert_eq(last.w.context_length, 8192);
    cr_assert_str_empty(last.w.warning);
}

Test(gguf, a_header_like_a_real_one)
{
    _cleanup_writer_ struct writer w = {0};
    write_model(&w, 2000);
    accepts(&w);
    check_model();
    cr_assert_eq(last.w.gguf_version, 3);
    cr_assert_eq(last.w.file_bytes, w.b.len);
    cr_assert_eq(last.w.header_bytes, w.b.len - (299 * 160 + 256));
}

Test(gguf, big_endian_and_the_old_versions)
{
    _cleanup_writer_ struct writer be = {.big_endian = true}, v1 = {.version = 1},
                                   v2 = {.version = 2}, be2 = {.big_endian = true, .version = 2};
    write_model(&be, 50);
    accepts(&be);
    check_model();
    write_model(&v2, 50);
    accepts(&v2);
    check_model();
    write_model(&v1, 50);
    accepts(&v1);
    cr_assert_str_eq(last.w.warning, "GGUF version 1 is no longer read by llama.cpp");
    last.w.warning[0] = '\0';
    check_model();
    write_model(&be2, 50);
    refuses(&be2, "GGUF version 33554432 at byte 4 is not one of 1 to 3");
}

Test(gguf, a_caller_converges_without_reading_weights)
{
    _cleanup_writer_ struct writer w = {0};
    size_t read, header;
    write_model(&w, 150000);
    header = w.b.len - (299 * 160 + 256);
    cr_assert_gt(header, 6000000);
    unsigned rounds = prefix_rounds(WEIGHTS_GGUF, w.b.data, w.b.len, 65536, &last, &read);
    cr_assert_eq(last.rc, 0, "%s", last.err.text);
    check_model();
    cr_assert_leq(read, header, "%zu bytes for a header of %zu", read, header);
    cr_assert_lt(rounds, 60, "%u rounds", rounds);
    /* With a slack of 64 KiB a round it takes few. */
    size_t have = 65536;
    for (rounds = 1;; rounds++) {
        uint64_t need = prefix_run(WEIGHTS_GGUF, w.b.data, have, w.b.len, &last);
        if (last.rc != PREFIX_MORE)
            break;
        have = (size_t)need + 65536;
    }
    cr_assert_lt(rounds, 16, "%u rounds", rounds);
    cr_assert_leq(have, header + 65536);
}

Test(gguf, a_later_split_part_may_have_only_split_keys)
{
    _cleanup_writer_ struct writer w = {0}, first = {0};
    begin(&w, 1, 3);
    key_int(&w, "split.no", 2, 1, 2);
    key_int(&w, "split.count", 2, 3, 2);
    key_int(&w, "split.tensors.count", 5, 2, 4);
    tensor(&w, "a", 8, 1, 0, 0);
    finish(&w, 32);
    accepts(&w);
    cr_assert_eq(last.w.split_no, 1);
    cr_assert_eq(last.w.split_count, 3);
    cr_assert_str_empty(last.w.warning);
    begin(&first, 0, 2); /* written with --no-tensor-first-split */
    key_text(&first, "general.architecture", "llama");
    key_int(&first, "split.count", 2, 3, 2);
    accepts(&first);
    cr_assert_eq(last.w.tensors, 0);
    cr_assert_eq(last.w.header_bytes, first.b.len);
    cr_assert_str_empty(last.w.warning);
    finish(&first, 0);
    accepts(&first);
    cr_assert_str_empty(last.w.warning);
}

Test(gguf, keys_of_another_type_are_left_out)
{
    _cleanup_writer_ struct writer w = {0};
    begin(&w, 0, 5);
    key_int(&w, "general.architecture", 4, 1, 4);
    key_int(&w, "general.file_type", 5, UINT32_MAX, 4); /* i32 -1 */
    key_text(&w, "general.name", "n");
    key_int(&w, "split.count", 4, 70000, 4);
    key_int(&w, "split.no", 2, 4, 2);
    accepts(&w);
    cr_assert_str_empty(last.w.architecture);
    cr_assert(!last.w.has_file_type);
    cr_assert_eq(last.w.split_count, 0);
    cr_assert_not_null(strstr(last.w.warning, "general.architecture is not a text"));
    cr_assert_not_null(strstr(last.w.warning, "general.file_type is not a number"));
}

Test(gguf, long_texts)
{
    char text[300];
    _cleanup_writer_ struct writer w = {0};
    memset(text, 'x', sizeof(text));
    memcpy(text + 126, "\xc3\xa9", 2); /* would be cut in its middle */
    text[299] = '\0';
    begin(&w, 0, 2);
    key_text(&w, "general.name", text);
    key_text(&w, "general.architecture", text);
    accepts(&w);
    cr_assert_eq(strlen(last.w.name), 126);
    cr_assert_str_empty(last.w.architecture);
}

Test(gguf, names_must_be_single_and_short)
{
    _cleanup_writer_ struct writer keys = {0}, tensors = {0}, nul = {0}, longkey = {0};
    begin(&keys, 0, 3);
    key_int(&keys, "a", 0, 1, 1);
    key_int(&keys, "b", 0, 1, 1);
    key_int(&keys, "a", 0, 1, 1);
    refuses(&keys, "key 'a' is there twice, again at byte 52");
    begin(&tensors, 2, 0);
    tensor(&tensors, "a", 1, 1, 0, 0);
    tensor(&tensors, "a", 1, 1, 0, 32);
    finish(&tensors, 36);
    refuses(&tensors, "tensor 'a' is there twice");
    begin(&nul, 1, 0);
    put_text_n(&nul, "a\0b", 3);
    put_int(&nul, 0, 8); /* no dimensions, F32 */
    put_int(&nul, 0, 8);
    finish(&nul, 4);
    refuses(&nul, "'a\\x00b' at byte 24 has a NUL");
    static char name[70000];
    memset(name, 'k', sizeof(name) - 1);
    begin(&longkey, 0, 1);
    key_int(&longkey, name, 0, 1, 1);
    refuses(&longkey, "69999 bytes, legal are 1 to 65535");
}

static void counts(uint64_t tensors, uint64_t keys, enum err_code code)
{
    _cleanup_writer_ struct writer w = {0};
    begin(&w, tensors, keys);
    finish(&w, 100);
    parse(&w);
    cr_assert_lt(last.rc, 0);
    cr_assert_eq(last.err.code, code, "%s", last.err.text);
}

Test(gguf, counts_are_checked_before_anything_is_allocated)
{
    counts(1000001, 0, ERR_TOO_LARGE);
    counts(0, 100001, ERR_TOO_LARGE);
    counts(UINT64_MAX, 0, ERR_INVALID);
    counts(0, 1ull << 63, ERR_INVALID);
    counts(1000000, 100000, ERR_INVALID); /* not in a file of a hundred bytes */
    counts(100, 0, ERR_INVALID);
}

Test(gguf, a_budget_of_metadata)
{
    _cleanup_writer_ struct writer w = {0};
    struct prefix_outcome o;
    const uint64_t file = 1ull << 40;
    begin(&w, 0, 1);
    put_text(&w, "k");
    put_int(&w, 8, 4);
    put_count(&w, (256u << 20) - w.b.len - 8); /* ends right at the limit */
    cr_assert_eq(prefix_run(WEIGHTS_GGUF, w.b.data, w.b.len, file, &o), 256u << 20);
    cr_assert_eq(o.rc, PREFIX_MORE);
    w.b.data[37]++;
    prefix_run(WEIGHTS_GGUF, w.b.data, w.b.len, file, &o);
    cr_assert_eq(o.err.code, ERR_TOO_LARGE, "%s", o.err.text);
}

static void array_in_array(struct writer *w, unsigned depth)
{
    begin(w, 0, 1);
    put_text(w, "k");
    put_int(w, 9, 4);
    for (unsigned i = 1; i < depth; i++) {
        put_int(w, 9, 4);
        put_count(w, 1);
    }
    put_int(w, 0, 4);
    put_count(w, 1);
    put_int(w, 7, 1);
}

Test(gguf, arrays)
{
    _cleanup_writer_ struct writer four = {0}, five = {0}, huge = {0}, many = {0};
    array_in_array(&four, 4);
    accepts(&four);
    array_in_array(&five, 5);
    refuses(&five, "nested deeper than 4");
    begin(&huge, 0, 1);
    put_text(&huge, "k");
    put_int(&huge, 9, 4);
    put_int(&huge, 10, 4);
    put_count(&huge, 1ull << 61);
    refuses(&huge, "an array of 2305843009213693952 elements");
    begin(&many, 0, 1);
    put_text(&many, "k");
    put_int(&many, 9, 4);
    put_int(&many, 8, 4);
    put_count(&many, 1u << 30);
    finish(&many, 1000);
    refuses(&many, "does not fit into the file");
}

Test(gguf, an_unknown_type_leaves_the_rest_readable)
{
    _cleanup_writer_ struct writer w = {0}, back = {0}, odd = {0};
    begin(&w, 3, 1);
    key_text(&w, "general.architecture", "llama");
    tensor(&w, "a", 32, 1, 2, 0);
    tensor(&w, "b", 32, 4, 150, 32); /* of a fork */
    tensor(&w, "c", 8, 1, 0, 320);
    finish(&w, 352);
    accepts(&w);
    cr_assert(last.w.partial);
    cr_assert_eq(last.w.tensors, 3);
    cr_assert_eq(last.w.parameters, 32 + 128 + 8);
    cr_assert_eq(last.w.tensor_bytes, 18 + 32);
    cr_assert_str_eq(last.w.types[2].name, "UNKNOWN");
    begin(&back, 2, 0);
    tensor(&back, "b", 32, 1, 150, 0);
    tensor(&back, "c", 8, 1, 0, 30);
    finish(&back, 64);
    refuses(&back, "an aligned one from 0 is due");
    begin(&odd, 1, 0);
    tensor(&odd, "b", 32, 1, 150, 64);
    finish(&odd, 64);
    refuses(&odd, "its offset is 64, 0 is due");
}

Test(gguf, data_must_lie_in_the_file)
{
    _cleanup_writer_ struct writer w = {0}, nopad = {0};
    begin(&w, 1, 0);
    tensor(&w, "a", 8, 1, 0, 0);
    finish(&w, 31);
    refuses(&w, "tensor 'a' ends 32 bytes behind byte 96, the file 31 behind it: it is cut short");
    begin(&nopad, 1, 0);
    tensor(&nopad, "a", 0, 1, 0, 0);
    refuses(&nopad, "the data begins at byte 96, the file has 65");
}

Test(gguf, bytes_behind_the_data_are_warned_of)
{
    _cleanup_writer_ struct writer w = {0};
    begin(&w, 1, 1);
    key_text(&w, "general.architecture", "llama");
    tensor(&w, "a", 4, 1, 0, 0);
    finish(&w, 32); /* 16 and padding */
    accepts(&w);
    cr_assert_str_empty(last.w.warning);
    finish(&w, 3);
    accepts(&w);
    cr_assert_str_eq(last.w.warning, "3 bytes follow the last tensor");
}

/* Block sizes and bytes of ggml.c. */
Test(gguf, the_table_of_types)
{
    static const struct {
        uint32_t id;
        const char *name;
        unsigned block, bytes;
    } table[] = {
        {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
        {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
        {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
        {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
        {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
        {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
        {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
        {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
        {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
        {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
        {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
    };
    size_t known = 0;
    for (uint32_t id = 0; id < 1000; id++)
        known += ggml_type_of(id) != NULL;
    cr_assert_eq(known, ARRAY_LEN(table));
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct ggml_type *t = ggml_type_of(table[i].id);
        cr_assert_str_eq(t->name, table[i].name);
        cr_assert(t->block == table[i].block && t->bytes == table[i].bytes, "%s", t->name);
    }
}
