/* safetensors: u64 little endian N, N bytes of JSON, the tensors' bytes. The rules are those of the
 * reference reader (safetensors/src/tensor.rs), and a few more: a tensor's name is given once, has
 * no NUL, and its entry is an object. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "model/json_scan.h"
#include "model/names.h"
#include "model/parsers.h"

#define HEADER_MAX 100000000u /* the reference reader's own */
#define ENTRIES_MAX 1000000u  /* tensors, and metadata keys: bounds the memory of a parse */
#define DIMS_MAX 1000000u     /* of one tensor; the reference reader has no limit */

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"BF16", 16},
    {"I32", 32}, {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
    {"I64", 64}, {"U64", 64},
};

struct tensor {
    const char *name; /* borrowed: the header, or the text without escapes */
    uint64_t begin, end;
    uint64_t elements;
    uint64_t at; /* byte of the file at which its name stands */
    uint32_t name_len;
    uint8_t dtype;
    bool overflow; /* elements do not fit 64 bits */
};

struct parse {
    struct json_scan scan;
    struct tensor *tensors; /* owned */
    size_t n, cap;
    char *text; /* owned: names without their escapes; never moves */
    size_t text_len, text_cap;
    struct seen_names metadata;
    bool has_metadata;
    uint64_t metadata_at; /* byte of the file at which its value stands */
    struct weights w;
};

static void parse_done(struct parse *p)
{
    free(p->tensors);
    free(p->text);
    seen_names_done(&p->metadata);
}
#define _cleanup_parse_ _cleanup_(parse_done)

/* The string without its escapes: the header's own bytes where it has none. */
static int plain_text(struct parse *p, const struct json_span *span, const char **ret,
                      size_t *ret_len, struct error *err)
{
    if (!span->escaped) {
        *ret = span->text;
        *ret_len = span->len;
        return 0;
    }
    if (!p->text) { /* a name is never longer than it is written, so the header's size is enough */
        p->text_cap = (size_t)(p->scan.end - p->scan.start);
        p->text = malloc(p->text_cap);
        if (!p->text)
            return err_set(err, ERR_NOMEM, "out of memory for %zu bytes of names", p->text_cap);
    }
    *ret = p->text + p->text_len;
    *ret_len = json_span_decode(span, p->text + p->text_len);
    p->text_len += *ret_len;
    return 0;
}

static int read_metadata(struct parse *p, struct error *err)
{
    static const char what[] = "__metadata__";
    struct json_scan *s = &p->scan;
    struct json_span key, value;
    int more;
    if (p->has_metadata)
        return err_set(err, ERR_INVALID, "__metadata__ is there twice, again before byte %" PRIu64,
                       json_scan_at(s));
    p->has_metadata = true;
    p->metadata_at = json_scan_at(s);
    if (json_scan_peek(s) == 'n')
        return json_scan_skip(s, err);
    if (json_scan_open(s, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, '}', first, what, err)) > 0; first = false) {
        struct name name = {0};
        if (json_scan_key(s, what, &key, err) < 0 || json_scan_string(s, what, &value, err) < 0)
            return -1;
        if (p->metadata.n == ENTRIES_MAX)
            return err_set(err, ERR_TOO_LARGE,
                           "__metadata__ has more than %u keys at byte %" PRIu64, ENTRIES_MAX,
                           key.at);
        name.at = key.at;
        if (plain_text(p, &key, &name.text, &name.len, err) < 0 ||
            seen_names_add(&p->metadata, name, err) < 0)
            return -1;
    }
    return more;
}

static int read_dtype(struct json_scan *s, struct tensor *t, struct error *err)
{
    struct json_span span;
    char quoted[NAME_QUOTED_MAX];
    if (json_scan_string(s, "dtype", &span, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        if (json_span_equals(&span, dtypes[i].name)) {
            t->dtype = (uint8_t)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "the dtype %s at byte %" PRIu64 " is unknown",
                   name_quote(span.text, span.len, quoted), span.at);
}

static int read_shape(struct json_scan *s, struct tensor *t, struct error *err)
{
    uint32_t n = 0;
    int more;
    t->elements = 1;
    if (json_scan_open(s, '[', "shape", err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, ']', first, "shape", err)) > 0;
         first = false) {
        uint64_t dim;
        if (n++ == DIMS_MAX)
            return err_set(err, ERR_TOO_LARGE,
                           "its shape has more than %u dimensions at byte "
                           "%" PRIu64,
                           DIMS_MAX, json_scan_at(s));
        if (json_scan_u64(s, "shape", &dim, err) < 0)
            return -1;
        if (__builtin_mul_overflow(t->elements, dim, &t->elements))
            t->overflow = true;
    }
    return more;
}

static int read_offsets(struct json_scan *s, struct tensor *t, struct error *err)
{
    static const char what[] = "data_offsets";
    if (json_scan_open(s, '[', what, err) < 0 || json_scan_u64(s, what, &t->begin, err) < 0 ||
        json_scan_expect(s, ',', what, err) < 0 || json_scan_u64(s, what, &t->end, err) < 0 ||
        json_scan_expect(s, ']', what, err) < 0)
        return -1;
    s->depth--;
    return 0;
}

static int read_field(struct parse *p, struct tensor *t, unsigned *seen, struct error *err)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    struct json_span key;
    unsigned i = 0;
    if (json_scan_key(&p->scan, "a tensor's entry", &key, err) < 0)
        return -1;
    while (i < ARRAY_LEN(fields) && !json_span_equals(&key, fields[i]))
        i++;
    if (i == ARRAY_LEN(fields))
        return json_scan_skip(&p->scan, err);
    if (*seen & 1u << i)
        return err_set(err, ERR_INVALID, "%s is there twice, again at byte %" PRIu64, fields[i],
                       key.at);
    *seen |= 1u << i;
    if (i == 0)
        return read_dtype(&p->scan, t, err);
    return i == 1 ? read_shape(&p->scan, t, err) : read_offsets(&p->scan, t, err);
}

static int read_entry(struct parse *p, struct tensor *t, struct error *err)
{
    unsigned seen = 0;
    int more;
    if (json_scan_open(&p->scan, '{', "a tensor's entry", err) < 0)
        return -1;
    for (bool first = true;
         (more = json_scan_more(&p->scan, '}', first, "a tensor's entry", err)) > 0; first = false)
        if (read_field(p, t, &seen, err) < 0)
            return -1;
    if (more == 0 && seen != 7)
        return err_set(err, ERR_INVALID, "%s is missing before byte %" PRIu64,
                       !(seen & 1)   ? "dtype"
                       : !(seen & 2) ? "shape"
                                     : "data_offsets",
                       json_scan_at(&p->scan));
    return more;
}

static int read_tensor(struct parse *p, const struct json_span *key, struct error *err)
{
    struct tensor t = {.at = key->at};
    char quoted[NAME_QUOTED_MAX];
    size_t len = 0;
    if (p->n == ENTRIES_MAX)
        return err_set(err, ERR_TOO_LARGE, "the header has more than %u tensors at byte %" PRIu64,
                       ENTRIES_MAX, t.at);
    if (plain_text(p, key, &t.name, &len, err) < 0)
        return -1;
    t.name_len = (uint32_t)len;
    if (len && memchr(t.name, '\0', len))
        return err_set(err, ERR_INVALID, "the tensor name %s at byte %" PRIu64 " has a NUL in it",
                       name_quote(t.name, len, quoted), t.at);
    if (read_entry(p, &t, err) < 0)
        return err_wrap(err, "tensor %s", name_quote(t.name, len, quoted));
    if (!len)
        weights_warn(&p->w, "a tensor has an empty name (byte %" PRIu64 ")", t.at);
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 256;
        struct tensor *more = reallocarray(p->tensors, cap, sizeof(*more));
        if (!more)
            return err_set(err, ERR_NOMEM, "out of memory for %zu tensors", cap);
        p->tensors = more;
        p->cap = cap;
    }
    p->tensors[p->n++] = t;
    return 0;
}

static int read_header(struct parse *p, struct error *err)
{
    struct json_scan *s = &p->scan;
    int more;
    if (json_scan_peek(s) >= 0 && s->p > s->start)
        weights_warn(&p->w, "white space before the header's object");
    if (json_scan_open(s, '{', "the header", err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, '}', first, "the header", err)) > 0;
         first = false) {
        struct json_span key;
        if (json_scan_key(s, "the header", &key, err) < 0)
            return -1;
        if (json_span_equals(&key, "__metadata__")) {
            if (read_metadata(p, err) < 0)
                return -1;
        } else if (read_tensor(p, &key, err) < 0) {
            return -1;
        }
    }
    return more < 0 ? -1 : json_scan_end(s, err);
}

/* Names are sorted by a hash first, so that little is moved and compared; equal hashes by the names
 * themselves, so that no choice of names makes it slow. */
struct hashed {
    uint64_t hash;
    const struct tensor *tensor;
};

static uint64_t hash_of(const struct tensor *t)
{
    uint64_t h = t->name_len;
    for (uint32_t i = 0; i < t->name_len; i++)
        h = (h ^ (unsigned char)t->name[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static int compare_names(const void *pa, const void *pb)
{
    const struct hashed *x = pa, *y = pb;
    const struct tensor *a = x->tensor, *b = y->tensor;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int c = name_compare(a->name, a->name_len, b->name, b->name_len);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

/* Of the names that are there again, the one that comes first in the file. */
static int find_twice(const struct parse *p, const struct tensor **ret, struct error *err)
{
    _cleanup_free_ struct hashed *all = calloc(p->n + 1, sizeof(*all));
    if (!all)
        return err_set(err, ERR_NOMEM, "out of memory for %zu names", p->n);
    for (size_t i = 0; i < p->n; i++)
        all[i] = (struct hashed){hash_of(&p->tensors[i]), &p->tensors[i]};
    if (p->n)
        qsort(all, p->n, sizeof(*all), compare_names);
    for (size_t i = 1; i < p->n; i++) {
        const struct tensor *a = all[i - 1].tensor, *b = all[i].tensor;
        if (all[i - 1].hash == all[i].hash &&
            name_compare(a->name, a->name_len, b->name, b->name_len) == 0 &&
            (!*ret || b->at < (*ret)->at))
            *ret = b;
    }
    return 0;
}

static int compare_offsets(const void *pa, const void *pb)
{
    const struct tensor *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static int check_names(struct parse *p, struct error *err)
{
    const struct tensor *twice = NULL;
    char quoted[NAME_QUOTED_MAX];
    if (find_twice(p, &twice, err) < 0)
        return -1;
    if (twice)
        return err_set(err, ERR_INVALID, "tensor %s is there twice, again at byte %" PRIu64,
                       name_quote(twice->name, twice->name_len, quoted), twice->at);
    const struct name *key = seen_names_sort(&p->metadata);
    if (key)
        weights_warn(&p->w, "__metadata__ has the key %s twice (byte %" PRIu64 ")",
                     name_quote(key->text, key->len, quoted), key->at);
    return 0;
}

/* Its name is quoted only when something is wrong with it. */
static int wrong_tensor(const struct tensor *t, struct error *err)
{
    char quoted[NAME_QUOTED_MAX];
    return err_wrap(err, "tensor %s (byte %" PRIu64 ")", name_quote(t->name, t->name_len, quoted),
                    t->at);
}

/* A tensor's size against its place: it begins where the one before it ended. */
static int check_size(const struct tensor *t, uint64_t place, struct error *err)
{
    uint64_t bits;
    if (t->begin != place || t->end < t->begin)
        return err_set(err, ERR_INVALID,
                       "data_offsets [%" PRIu64 ", %" PRIu64
                       "] do not follow the tensor before it, which ends at %" PRIu64,
                       t->begin, t->end, place);
    if (t->overflow || __builtin_mul_overflow(t->elements, dtypes[t->dtype].bits, &bits))
        return err_set(err, ERR_INVALID, "its shape does not fit 64 bits");
    if (bits % 8)
        return err_set(err, ERR_INVALID, "%" PRIu64 " elements of %s do not fill whole bytes",
                       t->elements, dtypes[t->dtype].name);
    if (bits / 8 != t->end - t->begin)
        return err_set(err, ERR_INVALID,
                       "its shape takes %" PRIu64 " bytes, its data_offsets %" PRIu64, bits / 8,
                       t->end - t->begin);
    return 0;
}

static int check_tensor(struct parse *p, const struct tensor *t, uint64_t place, struct error *err)
{
    if (check_size(t, place, err) < 0 ||
        weights_count(&p->w, dtypes[t->dtype].name, 1, t->elements, t->end - t->begin, err) < 0)
        return wrong_tensor(t, err);
    return 0;
}

static int check_tensors(struct parse *p, uint64_t file_size, struct error *err)
{
    uint64_t place = 0, data = file_size - p->w.header_bytes;
    size_t sorted = 1; /* most writers keep them in their order */
    while (sorted < p->n && compare_offsets(&p->tensors[sorted - 1], &p->tensors[sorted]) < 0)
        sorted++;
    if (sorted < p->n)
        qsort(p->tensors, p->n, sizeof(*p->tensors), compare_offsets);
    for (size_t i = 0; i < p->n; i++) {
        if (check_tensor(p, &p->tensors[i], place, err) < 0)
            return -1;
        place = p->tensors[i].end;
    }
    if (place != data)
        return err_set(err, ERR_INVALID,
                       "the tensors take %" PRIu64 " bytes behind byte %" PRIu64
                       ", the file has %" PRIu64 " there: it is %s",
                       place, p->w.header_bytes, data, place > data ? "cut short" : "too long");
    return 0;
}

static int check_utf8(const unsigned char *p, size_t n, struct error *err)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= sizeof(eight)) { /* nearly all of a header is ASCII */
            memcpy(&eight, p + i, sizeof(eight));
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof(eight);
                continue;
            }
        }
        unsigned step = utf8_sequence(p + i, n - i);
        if (!step)
            return err_set(err, ERR_INVALID, "the header has invalid UTF-8 at byte %zu", i + 8);
        i += step;
    }
    return 0;
}

/* ---- showing what was found right ------------------------------------------------------------ */

/* The header from this byte of the file on. */
static void scan_from(const struct parse *p, uint64_t at, struct json_scan *ret)
{
    const unsigned char *from = p->scan.start + (at - p->scan.base);
    json_scan_start(ret, from, (size_t)(p->scan.end - from), at);
}

static int show_metadata(const struct parse *p, const struct weights_visitor *v, struct error *err)
{
    static const char what[] = "__metadata__";
    _cleanup_strbuf_ struct strbuf key_copy = STRBUF_INIT, value_copy = STRBUF_INIT;
    struct json_scan s;
    struct json_span key, value;
    int more;
    if (!p->metadata.n)
        return 0;
    scan_from(p, p->metadata_at, &s);
    if (json_scan_open(&s, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(&s, '}', first, what, err)) > 0; first = false) {
        struct metadata_info m = {.type_name = "str", .type = METADATA_STRING};
        if (json_scan_key(&s, what, &key, err) < 0 || json_scan_string(&s, what, &value, err) < 0 ||
            json_span_plain(&key, &key_copy, &m.key, &m.key_len, err) < 0 ||
            json_span_plain(&value, &value_copy, &m.string, &m.string_len, err) < 0)
            return -1;
        m.at = key.at;
        int rc = v->metadata(v->ctx, &m, err);
        if (rc)
            return rc;
    }
    return more;
}

/* A parse keeps no dimensions, as there may be any number of them: they are read once more. */
struct dims {
    uint64_t *items; /* owned */
    size_t n, cap;
};

static void dims_done(struct dims *d)
{
    free(d->items);
}

static int dims_read(struct json_scan *s, struct dims *d, struct error *err)
{
    int more;
    d->n = 0;
    if (json_scan_open(s, '[', "shape", err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, ']', first, "shape", err)) > 0;
         first = false) {
        if (d->n == d->cap) {
            size_t cap = d->cap ? d->cap * 2 : 8;
            uint64_t *items = reallocarray(d->items, cap, sizeof(*items));
            if (!items)
                return err_set(err, ERR_NOMEM, "out of memory for %zu dimensions", cap);
            d->items = items;
            d->cap = cap;
        }
        if (json_scan_u64(s, "shape", &d->items[d->n++], err) < 0)
            return -1;
    }
    return more;
}

static int dims_of(const struct parse *p, const struct tensor *t, struct dims *d, struct error *err)
{
    static const char what[] = "a tensor's entry";
    struct json_scan s;
    struct json_span key;
    int more;
    scan_from(p, t->at - 1, &s); /* from its name's quote */
    if (json_scan_key(&s, what, &key, err) < 0 || json_scan_open(&s, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(&s, '}', first, what, err)) > 0; first = false) {
        if (json_scan_key(&s, what, &key, err) < 0)
            return -1;
        if (json_span_equals(&key, "shape"))
            return dims_read(&s, d, err);
        if (json_scan_skip(&s, err) < 0)
            return -1;
    }
    return err_set(err, ERR_INTERNAL, "the shape before byte %" PRIu64 " is no longer there",
                   json_scan_at(&s));
}

static int show_tensors(const struct parse *p, const struct weights_visitor *v, struct error *err)
{
    _cleanup_(dims_done) struct dims d = {0};
    for (size_t i = 0; i < p->n; i++) {
        const struct tensor *t = &p->tensors[i];
        if (dims_of(p, t, &d, err) < 0)
            return -1;
        const struct tensor_info info = {
            .name = t->name,
            .name_len = t->name_len,
            .type = dtypes[t->dtype].name,
            .sized = true,
            .dims = d.items,
            .n_dims = d.n,
            .elements = t->elements,
            .offset = p->w.header_bytes + t->begin,
            .bytes = t->end - t->begin,
        };
        int rc = v->tensor(v->ctx, &info, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int show(const struct parse *p, const struct weights_visitor *v, struct error *err)
{
    int rc = v->metadata ? show_metadata(p, v, err) : 0;
    return rc == 0 && v->tensor ? show_tensors(p, v, err) : rc;
}

int safetensors_parse(const void *data, size_t have, uint64_t file_size,
                      const struct weights_visitor *visitor, struct weights *ret,
                      uint64_t *ret_need, struct error *err)
{
    const unsigned char *bytes = data;
    uint64_t n = 0;
    if (file_size < 8)
        return err_set(err, ERR_INVALID,
                       "a file of %" PRIu64 " bytes has no room for the header's length at byte 0",
                       file_size);
    if (have < 8) {
        *ret_need = 8;
        return PREFIX_MORE;
    }
    for (int i = 7; i >= 0; i--)
        n = n << 8 | bytes[i];
    if (n > HEADER_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "the header's length at byte 0 is %" PRIu64 " bytes, more than %u", n,
                       HEADER_MAX);
    if (n > file_size - 8)
        return err_set(err, ERR_INVALID,
                       "the header's length at byte 0 is %" PRIu64 " bytes, the file has %" PRIu64
                       " behind it",
                       n, file_size - 8);
    if (have < n + 8) {
        *ret_need = n + 8;
        return PREFIX_MORE;
    }
    if (check_utf8(bytes + 8, (size_t)n, err) < 0)
        return -1;
    _cleanup_parse_ struct parse p = {.w = {.format = WEIGHTS_SAFETENSORS}};
    p.w.file_bytes = file_size;
    p.w.header_bytes = n + 8;
    json_scan_start(&p.scan, bytes + 8, (size_t)n, 8);
    if (read_header(&p, err) < 0 || check_names(&p, err) < 0 ||
        check_tensors(&p, file_size, err) < 0 || (visitor && show(&p, visitor, err) < 0))
        return -1;
    *ret = p.w;
    return PREFIX_DONE;
}
