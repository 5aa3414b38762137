/* GGUF (ggml docs/gguf.md): counts, key/value pairs, tensor infos, padding, data. All that ggml's
 * reader checks is checked, and what it does not: the products of dimensions, that the data lies
 * inside the file, NUL in names, absurd alignments. Types that we do not know (forks add their own)
 * leave the file readable: `partial`. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/gguf_reader.h"
#include "model/gguf_show.h"
#include "model/names.h"
#include "model/parsers.h"

#define KEYS_MAX 100000u
#define TENSORS_MAX 1000000u
#define KEY_MAX 65535u /* of the specification */
#define TENSOR_NAME_MAX 63u
#define DIMS_MAX 4u
#define COUNTS_AT 8u /* the number of tensors, behind magic and version */
#define ALIGNMENT_DEFAULT 32u
#define ALIGNMENT_MAX (1u << 20)

struct gguf {
    struct gguf_reader r;
    uint64_t n_keys, n_tensors;
    uint64_t key_min, tensor_min; /* the least bytes that one takes */
    struct seen_names keys;       /* value: where its type stands */
    struct seen_names tensors;
    uint64_t alignment;
    uint64_t expected; /* the offset that the next tensor must have */
    bool gap;          /* `expected` is only a lower bound: a tensor of unknown size came before */
    uint64_t data_end; /* of the tensors, relative to the data's start */
    struct name last_name;
    struct weights w;
};

static void gguf_done(struct gguf *g)
{
    seen_names_done(&g->keys);
    seen_names_done(&g->tensors);
}
#define _cleanup_gguf_ _cleanup_(gguf_done)

static int read_version(struct gguf *g)
{
    struct gguf_reader *r = &g->r;
    const unsigned char *magic;
    uint32_t version;
    int rc;
    r->rest = 4 + 2 * 4; /* version and the counts of version 1 */
    if ((rc = gguf_take(r, 4, "the magic", &magic)) != PREFIX_DONE)
        return rc;
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(r->err, ERR_INVALID, "the magic at byte 0 is not GGUF");
    r->rest = 8; /* two counts of 4 bytes */
    if ((rc = gguf_u32(r, "the version", &version)) != PREFIX_DONE)
        return rc;
    if (version == __builtin_bswap32(3)) { /* big endian came with version 3 */
        r->big_endian = true;
        version = 3;
    }
    if (version < 1 || version > 3)
        return err_set(r->err, ERR_INVALID,
                       "GGUF version %" PRIu32 " at byte 4 is not one of 1 to 3", version);
    g->w.gguf_version = version;
    r->count_size = version == 1 ? 4 : 8;
    g->key_min = r->count_size + 1 + 4 + 1; /* a key of one byte, its type, a value of one byte */
    g->tensor_min = r->count_size + 4 + 4 + 8; /* no name, no dimensions */
    if (version == 1)
        weights_warn(&g->w, "GGUF version 1 is no longer read by llama.cpp");
    return PREFIX_DONE;
}

static int read_counts(struct gguf *g)
{
    struct gguf_reader *r = &g->r;
    int rc;
    r->rest = r->count_size;
    if ((rc = gguf_count(r, "the number of tensors", &g->n_tensors)) != PREFIX_DONE)
        return rc;
    r->rest = 0;
    if ((rc = gguf_count(r, "the number of keys", &g->n_keys)) != PREFIX_DONE)
        return rc;
    if (g->n_keys > KEYS_MAX)
        return err_set(r->err, g->n_keys > INT64_MAX ? ERR_INVALID : ERR_TOO_LARGE,
                       "the number of keys at byte %" PRIu64 " is %" PRIu64 ", more than %u",
                       r->pos - r->count_size, g->n_keys, KEYS_MAX);
    if (g->n_tensors > TENSORS_MAX)
        return err_set(r->err, g->n_tensors > INT64_MAX ? ERR_INVALID : ERR_TOO_LARGE,
                       "the number of tensors at byte %u is %" PRIu64 ", more than %u", COUNTS_AT,
                       g->n_tensors, TENSORS_MAX);
    if (g->n_keys * g->key_min + g->n_tensors * g->tensor_min > r->file_size - r->pos)
        return err_set(r->err, ERR_INVALID,
                       "%" PRIu64 " tensors and %" PRIu64
                       " keys, by the numbers at byte %u, do not fit into the file",
                       g->n_tensors, g->n_keys, COUNTS_AT);
    return PREFIX_DONE;
}

static int read_key(struct gguf *g, uint64_t i)
{
    struct gguf_reader *r = &g->r;
    struct name key = {.at = r->pos};
    char quoted[NAME_QUOTED_MAX];
    uint64_t len;
    uint32_t type;
    int rc = gguf_string(r, "a key", &key.text, &len);
    if (rc != PREFIX_DONE)
        return rc;
    if (len == 0 || len > KEY_MAX)
        return err_set(r->err, ERR_INVALID,
                       "the name of key %" PRIu64 " at byte %" PRIu64 " has %" PRIu64
                       " bytes, legal are 1 to %u",
                       i, key.at, len, KEY_MAX);
    key.len = (size_t)len;
    name_quote(key.text, key.len, quoted);
    if (memchr(key.text, '\0', key.len))
        return err_set(r->err, ERR_INVALID, "the key %s at byte %" PRIu64 " has a NUL in it",
                       quoted, key.at);
    if (!utf8_is_valid(key.text, key.len))
        weights_warn(&g->w, "the key %s is not UTF-8", quoted);
    key.value = r->pos;
    if ((rc = gguf_u32(r, "a value's type", &type)) == PREFIX_DONE)
        rc = gguf_skip(r, type, 0);
    if (rc == PREFIX_DONE)
        rc = seen_names_add(&g->keys, key, r->err);
    return rc < 0 ? err_wrap(r->err, "key %s", quoted) : rc;
}

static int read_keys(struct gguf *g)
{
    uint64_t tensors = g->n_tensors * g->tensor_min;
    char quoted[NAME_QUOTED_MAX];
    for (uint64_t i = 0; i < g->n_keys; i++) {
        g->r.rest = (g->n_keys - i - 1) * g->key_min + tensors;
        int rc = read_key(g, i);
        if (rc != PREFIX_DONE)
            return rc;
    }
    const struct name *twice = seen_names_sort(&g->keys);
    if (twice)
        return err_set(g->r.err, ERR_INVALID, "key %s is there twice, again at byte %" PRIu64,
                       name_quote(twice->text, twice->len, quoted), twice->at);
    return PREFIX_DONE;
}

/* The type of a key that is there and where its value begins; false when it is absent. */
static bool find_value(const struct gguf *g, const char *key, uint32_t *ret_type,
                       const unsigned char **ret)
{
    const struct name *found = seen_names_find(&g->keys, key);
    if (!found)
        return false;
    *ret_type = (uint32_t)gguf_integer(&g->r, g->r.data + found->value, 4);
    *ret = g->r.data + found->value + 4;
    return true;
}

/* A key that should be a whole number of 0..max. Another value is warned of and left out. */
static bool get_number(struct gguf *g, const char *key, uint64_t max, uint64_t *ret)
{
    uint32_t type;
    const unsigned char *p;
    if (!find_value(g, key, &type, &p))
        return false;
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    bool is_number =
        is_signed || type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
    unsigned size = gguf_value_size(type);
    uint64_t value = is_number ? gguf_integer(&g->r, p, size) : 0;
    if (!is_number || value > max || (is_signed && value >> (size * 8 - 1))) {
        weights_warn(&g->w, "%.100s is not a number of 0 to %" PRIu64, key, max);
        return false;
    }
    *ret = value;
    return true;
}

/* A key that should be a text, into buf of `size` bytes: cut where it is too long and may be. */
static void get_text(struct gguf *g, const char *key, char *buf, size_t size, bool may_cut)
{
    uint32_t type;
    const unsigned char *p;
    if (!find_value(g, key, &type, &p))
        return;
    uint64_t len = type == GGUF_STRING ? gguf_integer(&g->r, p, g->r.count_size) : 0;
    const char *text = (const char *)p + g->r.count_size;
    if (type != GGUF_STRING || (len >= size && !may_cut) || memchr(text, '\0', (size_t)len) ||
        !utf8_is_valid(text, (size_t)len)) {
        weights_warn(&g->w, "%.100s is not a text of less than %zu bytes", key, size);
        return;
    }
    if (len >= size)
        for (len = size - 1; !utf8_is_valid(text, (size_t)len);)
            len--;
    memcpy(buf, text, (size_t)len);
    buf[len] = '\0';
}

static int read_alignment(struct gguf *g)
{
    uint32_t type;
    const unsigned char *p;
    g->alignment = ALIGNMENT_DEFAULT;
    if (!find_value(g, "general.alignment", &type, &p))
        return PREFIX_DONE;
    uint64_t at = (uint64_t)(p - g->r.data);
    if (type != GGUF_U32)
        return err_set(g->r.err, ERR_INVALID,
                       "general.alignment at byte %" PRIu64 " is of type %" PRIu32 ", not u32", at,
                       type);
    g->alignment = gguf_integer(&g->r, p, 4);
    if (g->alignment == 0 || (g->alignment & (g->alignment - 1)) || g->alignment > ALIGNMENT_MAX)
        return err_set(g->r.err, ERR_INVALID,
                       "general.alignment at byte %" PRIu64 " is %" PRIu64
                       ", not a power of two up to %u",
                       at, g->alignment, ALIGNMENT_MAX);
    if (g->alignment < 8)
        weights_warn(&g->w, "general.alignment is %" PRIu64 ", less than 8", g->alignment);
    return PREFIX_DONE;
}

static void read_facts(struct gguf *g)
{
    struct weights *w = &g->w;
    char key[sizeof(w->architecture) + 32];
    uint64_t number;
    if (g->r.nested)
        weights_warn(w, "it has arrays in arrays, which llama.cpp does not read");
    get_text(g, "general.architecture", w->architecture, sizeof(w->architecture), false);
    get_text(g, "general.name", w->name, sizeof(w->name), true);
    if (get_number(g, "general.file_type", UINT32_MAX, &number)) {
        w->has_file_type = true;
        w->file_type = (uint32_t)number;
    }
    if (get_number(g, "split.no", UINT16_MAX, &number))
        w->split_no = (uint16_t)number;
    if (get_number(g, "split.count", UINT16_MAX, &number))
        w->split_count = (uint16_t)number;
    if (w->split_no && w->split_no >= w->split_count)
        weights_warn(w, "split.no is %u of split.count %u", w->split_no, w->split_count);
    if (w->architecture[0]) {
        snprintf(key, sizeof(key), "%s.context_length", w->architecture);
        if (get_number(g, key, UINT64_MAX, &number))
            w->context_length = number;
    } else if (!w->split_no) { /* a later part of a split set may have only split.* keys */
        weights_warn(w, "it has no general.architecture");
    }
}

/* Elements of a tensor and its bytes; a type that we do not know has no bytes. */
static int tensor_size(struct gguf *g, const char *quoted, const struct ggml_type *type,
                       const uint64_t *dims, uint64_t *ret_elements, uint64_t *ret_bytes)
{
    uint64_t elements = 1, bytes = 0;
    for (unsigned i = 0; i < DIMS_MAX; i++)
        if (dims[i] > INT64_MAX || __builtin_mul_overflow(elements, dims[i], &elements) ||
            elements > INT64_MAX)
            return err_set(g->r.err, ERR_INVALID,
                           "tensor %s: its dimensions (%" PRIu64 ", %" PRIu64 ", %" PRIu64
                           ", %" PRIu64 ") are too large or negative",
                           quoted, dims[0], dims[1], dims[2], dims[3]);
    if (type && dims[0] % type->block)
        return err_set(g->r.err, ERR_INVALID,
                       "tensor %s: a row of %" PRIu64 " elements is no whole number of %s blocks "
                       "of %u",
                       quoted, dims[0], type->name, type->block);
    if (type && __builtin_mul_overflow(elements / type->block, type->bytes, &bytes))
        return err_set(g->r.err, ERR_INVALID, "tensor %s: its size does not fit 64 bits", quoted);
    *ret_elements = elements;
    *ret_bytes = bytes;
    return 0;
}

/* The tensor's place: right behind the one before it, padded. */
static int place_tensor(struct gguf *g, const struct name *name, const char *quoted, bool sized,
                        uint64_t offset, uint64_t bytes)
{
    uint64_t mask = g->alignment - 1, end;
    if (g->gap ? offset < g->expected || offset & mask : offset != g->expected)
        return err_set(g->r.err, ERR_INVALID,
                       "tensor %s: its offset is %" PRIu64 ", %s%" PRIu64 " is due", quoted, offset,
                       g->gap ? "an aligned one from " : "", g->expected);
    if (__builtin_add_overflow(offset, bytes, &end) || end > UINT64_MAX - mask)
        return err_set(g->r.err, ERR_INVALID, "tensor %s: its end does not fit 64 bits", quoted);
    g->expected = (end + mask) & ~mask;
    g->gap = !sized;
    if (bytes || !sized) {
        g->data_end = end;
        g->last_name = *name;
    }
    return 0;
}

static int read_tensor(struct gguf *g)
{
    struct gguf_reader *r = &g->r;
    struct name name = {.at = r->pos};
    char quoted[NAME_QUOTED_MAX];
    uint64_t len, dims[DIMS_MAX] = {1, 1, 1, 1}, offset, elements = 0, bytes = 0;
    uint32_t n_dims, id;
    int rc = gguf_string(r, "a tensor's name", &name.text, &len);
    if (rc != PREFIX_DONE)
        return rc;
    name.len = (size_t)len;
    name_quote(name.text, name.len, quoted);
    if (len > TENSOR_NAME_MAX || (len && memchr(name.text, '\0', name.len)))
        return err_set(r->err, ERR_INVALID, "the tensor name %s at byte %" PRIu64 " %s", quoted,
                       name.at, len > TENSOR_NAME_MAX ? "is over 63 bytes" : "has a NUL in it");
    if ((rc = gguf_u32(r, "a tensor's number of dimensions", &n_dims)) != PREFIX_DONE)
        return rc;
    if (n_dims > DIMS_MAX)
        return err_set(r->err, ERR_INVALID,
                       "tensor %s (byte %" PRIu64 ") has %" PRIu32
                       " dimensions, legal are up to %u",
                       quoted, name.at, n_dims, DIMS_MAX);
    for (uint32_t i = 0; i < n_dims; i++)
        if ((rc = gguf_count(r, "a tensor's dimension", &dims[i])) != PREFIX_DONE)
            return rc;
    if ((rc = gguf_u32(r, "a tensor's type", &id)) != PREFIX_DONE ||
        (rc = gguf_u64(r, "a tensor's offset", &offset)) != PREFIX_DONE)
        return rc;
    const struct ggml_type *type = ggml_type_of(id);
    if (!type) {
        g->w.partial = true;
        weights_warn(&g->w, "tensor %s is of the unknown type %" PRIu32, quoted, id);
    }
    if (tensor_size(g, quoted, type, dims, &elements, &bytes) < 0 ||
        place_tensor(g, &name, quoted, type != NULL, offset, bytes) < 0 ||
        weights_count(&g->w, type ? type->name : "UNKNOWN", 1, elements, bytes, r->err) < 0)
        return err_wrap(r->err, "tensor info at byte %" PRIu64, name.at);
    return seen_names_add(&g->tensors, name, r->err);
}

static int read_tensors(struct gguf *g)
{
    char quoted[NAME_QUOTED_MAX];
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        g->r.rest = (g->n_tensors - i - 1) * g->tensor_min;
        int rc = read_tensor(g);
        if (rc != PREFIX_DONE)
            return rc;
    }
    const struct name *twice = seen_names_sort(&g->tensors);
    if (twice)
        return err_set(g->r.err, ERR_INVALID, "tensor %s is there twice, again at byte %" PRIu64,
                       name_quote(twice->text, twice->len, quoted), twice->at);
    return PREFIX_DONE;
}

/* The data: behind the infos, padded when there are tensors at all, and inside the file. */
static int check_data(struct gguf *g)
{
    struct gguf_reader *r = &g->r;
    uint64_t start = r->pos, mask = g->alignment - 1;
    char quoted[NAME_QUOTED_MAX];
    if (g->n_tensors)
        start = (start + mask) & ~mask; /* far from overflow: pos is below GGUF_HEADER_MAX */
    if (start > r->file_size)
        return err_set(r->err, ERR_INVALID,
                       "the data begins at byte %" PRIu64 ", the file has %" PRIu64, start,
                       r->file_size);
    uint64_t room = r->file_size - start;
    if (g->data_end > room)
        return err_set(r->err, ERR_INVALID,
                       "tensor %s ends %" PRIu64 " bytes behind byte %" PRIu64 ", the file %" PRIu64
                       " behind it: it is cut short",
                       name_quote(g->last_name.text, g->last_name.len, quoted), g->data_end, start,
                       room);
    /* Without tensors some writers pad all the same. */
    uint64_t used = g->n_tensors ? g->expected : ((start + mask) & ~mask) - start;
    if (!g->gap && room > g->expected && room != used)
        weights_warn(&g->w, "%" PRIu64 " bytes follow the %s", room - g->expected,
                     g->n_tensors ? "last tensor" : "metadata");
    g->w.header_bytes = start;
    return PREFIX_DONE;
}

int gguf_parse(const void *data, size_t have, uint64_t file_size,
               const struct weights_visitor *visitor, struct weights *ret, uint64_t *ret_need,
               struct error *err)
{
    struct gguf_contents contents = {.visitor = visitor};
    _cleanup_gguf_ struct gguf g = {
        .r = {.data = data, .have = have, .file_size = file_size, .err = err},
        .w = {.format = WEIGHTS_GGUF, .file_bytes = file_size},
    };
    int rc = read_version(&g);
    if (rc == PREFIX_DONE)
        rc = read_counts(&g);
    if (rc == PREFIX_DONE) {
        contents.r = g.r;
        rc = read_keys(&g);
    }
    if (rc == PREFIX_DONE)
        rc = read_alignment(&g);
    if (rc == PREFIX_DONE) {
        read_facts(&g);
        rc = read_tensors(&g);
    }
    if (rc == PREFIX_DONE)
        rc = check_data(&g);
    if (rc == PREFIX_DONE && visitor) {
        contents.n_keys = g.n_keys;
        contents.n_tensors = g.n_tensors;
        contents.data = g.w.header_bytes;
        rc = gguf_show(&contents);
    }
    if (rc == PREFIX_DONE)
        *ret = g.w;
    if (rc == PREFIX_MORE)
        *ret_need = g.r.need;
    return rc;
}
