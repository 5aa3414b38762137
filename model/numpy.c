/* The header of a .npy: a Python literal, of which exactly what NumPy writes and reads is
 * understood. */
#include "model/numpy.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define HEADER_MAX (1u << 20) /* NumPy itself refuses over 10,000 unless it is told otherwise */
#define DEPTH_MAX 32u

struct literal {
    const char *p, *start, *end;
    uint64_t base; /* byte of the file at start */
    bool python2;  /* integers may have an L behind */
    unsigned depth;
    struct error *err;
};

struct dtype {
    uint64_t item;
    char type[16];
    bool big_endian, has_object;
};

static int bad(struct literal *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int bad(struct literal *l, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return err_set(l->err, ERR_INVALID, "NumPy header at byte %llu: %s",
                   (unsigned long long)(l->base + (uint64_t)(l->p - l->start)), text);
}

/* ---- tokens ---- */

static void skip_blanks(struct literal *l)
{
    while (l->p < l->end && (*l->p == ' ' || *l->p == '\t' || *l->p == '\n' || *l->p == '\r'))
        l->p++;
}

/* The next token starts with c? Then it is taken. */
static bool take(struct literal *l, char c)
{
    skip_blanks(l);
    if (l->p == l->end || *l->p != c)
        return false;
    l->p++;
    return true;
}

static bool take_word(struct literal *l, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(l);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n) != 0)
        return false;
    l->p += n;
    return true;
}

static bool peek(struct literal *l, char c)
{
    skip_blanks(l);
    return l->p < l->end && *l->p == c;
}

/* A string; what it holds goes into buf, cut where too long, escapes as they stand. */
static int take_string(struct literal *l, char *buf, size_t cap)
{
    size_t n = 0;
    skip_blanks(l);
    if (l->p < l->end && (*l->p == 'u' || *l->p == 'b')) /* Python 2 and 3 mixed */
        l->p++;
    if (l->p == l->end || (*l->p != '\'' && *l->p != '"'))
        return bad(l, "a string is expected");
    char quote = *l->p++;
    for (; l->p < l->end && *l->p != quote; l->p++) {
        if (*l->p == '\n' || *l->p == '\0')
            return bad(l, "a string is not closed");
        if (n + 1 < cap)
            buf[n++] = *l->p;
        if (*l->p == '\\' && l->end - l->p > 1 && *++l->p && n + 1 < cap)
            buf[n++] = *l->p;
    }
    if (l->p == l->end)
        return bad(l, "a string is not closed");
    l->p++;
    buf[n] = '\0';
    return 0;
}

static int take_count(struct literal *l, uint64_t *ret)
{
    uint64_t n = 0;
    skip_blanks(l);
    const char *first = l->p;
    for (; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*l->p - '0'), &n) || n > INT64_MAX)
            return bad(l, "a number is over 2^63");
    if (l->p == first)
        return bad(l, "a length is expected, which is not negative");
    if (l->p - first > 1 && *first == '0')
        return bad(l, "a number starts with 0");
    if (l->python2 && l->p < l->end && (*l->p == 'L' || *l->p == 'l'))
        l->p++;
    *ret = n;
    return 0;
}

/* (), (1,), (2, 3): up to max lengths; in a dtype a lone 3 is (3,) as well. */
static int take_shape(struct literal *l, bool lone, uint64_t *dims, size_t max, size_t *ret_n)
{
    size_t n = 0;
    char close = ')';
    if (lone && !peek(l, '(') && !peek(l, '[')) {
        *ret_n = 1;
        return take_count(l, &dims[0]);
    }
    if (lone && take(l, '['))
        close = ']';
    else if (!take(l, '('))
        return bad(l, "a tuple is expected");
    bool comma = true;
    while (!take(l, close)) {
        if (!comma)
            return bad(l, "a comma is expected");
        if (n == max)
            return bad(l, "over %zu dimensions", max);
        if (take_count(l, &dims[n]) < 0)
            return -1;
        n++;
        comma = take(l, ',');
    }
    if (close == ')' && n == 1 && !comma)
        return bad(l, "(n) is a number, not a tuple");
    *ret_n = n;
    return 0;
}

/* ---- dtypes ---- */

struct scalar {
    char kind;
    unsigned item;
    const char *type;
};

static const struct scalar scalars[] = {
    {'b', 1, "BOOL"},  {'i', 1, "I8"},  {'i', 2, "I16"}, {'i', 4, "I32"}, {'i', 8, "I64"},
    {'u', 1, "U8"},    {'u', 2, "U16"}, {'u', 4, "U32"}, {'u', 8, "U64"}, {'f', 2, "F16"},
    {'f', 4, "F32"},   {'f', 8, "F64"}, {'f', 12, ""},   {'f', 16, ""},   {'c', 8, "C64"},
    {'c', 16, "C128"}, {'c', 24, ""},   {'c', 32, ""},   {'M', 8, ""},    {'m', 8, ""},
};

static int scalar_dtype(struct literal *l, const char *s, struct dtype *ret)
{
    const char *p = s;
    uint64_t n = 0;
    bool big = *p == '>' || *p == '!', ordered = big || *p == '<' || *p == '=' || *p == '|';
    if (ordered)
        p++;
    char kind = *p;
    p += kind != '\0';
    bool digits = *p >= '0' && *p <= '9';
    for (; *p >= '0' && *p <= '9'; p++)
        if ((n = 10 * n + (uint64_t)(*p - '0')) > INT32_MAX)
            return bad(l, "the dtype '%.60s' is over 2 GiB", s);
    if ((kind == 'M' || kind == 'm') && *p == '[')
        p += strcspn(p, "]") + (strchr(p, ']') != NULL);
    *ret = (struct dtype){.big_endian = big};
    if (kind == 'O' && *p == '\0') {
        ret->has_object = true;
        ret->big_endian = false;
        strcpy(ret->type, "OBJECT");
        return 0;
    }
    if (kind == '?' && *p == '\0' && !digits) {
        kind = 'b';
        n = 1;
        digits = true;
    }
    if (*p || !digits)
        return bad(l, "the dtype '%.60s' is not known", s);
    if (kind == 'S' || kind == 'a' || kind == 'V' || kind == 'U') {
        ret->item = kind == 'U' ? 4 * n : n;
        ret->big_endian = big && kind == 'U';
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(scalars); i++) {
        if (scalars[i].kind != kind || scalars[i].item != n)
            continue;
        ret->item = n;
        ret->big_endian = big && n > 1;
        strcpy(ret->type, scalars[i].type);
        return 0;
    }
    return bad(l, "the dtype '%.60s' is not known", s);
}

static int take_dtype(struct literal *l, struct dtype *ret);

/* What a shape makes of a dtype: so many of them in an element. */
static int take_subarray(struct literal *l, struct dtype *d)
{
    uint64_t dims[64];
    size_t n;
    if (take_shape(l, true, dims, ARRAY_LEN(dims), &n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(d->item, dims[i], &d->item) || d->item > INT32_MAX)
            return bad(l, "an element is over 2 GiB");
    if (!d->has_object)
        d->type[0] = '\0';
    return 0;
}

/* ('name', dtype[, shape]), where the name may be ('title', 'name') */
static int take_field(struct literal *l, struct dtype *ret)
{
    char name[2];
    if (!take(l, '('))
        return bad(l, "a field, (name, dtype), is expected");
    if (take(l, '(')) {
        if (take_string(l, name, sizeof(name)) < 0)
            return -1;
        if (!take(l, ',') || take_string(l, name, sizeof(name)) < 0 ||
            (take(l, ','), !take(l, ')')))
            return bad(l, "a title and name are expected");
    } else if (take_string(l, name, sizeof(name)) < 0) {
        return -1;
    }
    if (!take(l, ','))
        return bad(l, "a field without a dtype");
    if (take_dtype(l, ret) < 0)
        return -1;
    if (take(l, ',') && !peek(l, ')')) {
        if (take_subarray(l, ret) < 0)
            return -1;
        take(l, ',');
    }
    return take(l, ')') ? 0 : bad(l, "a field has no end");
}

static int take_fields(struct literal *l, struct dtype *ret)
{
    bool comma = true;
    *ret = (struct dtype){0};
    while (!take(l, ']')) {
        struct dtype field = {0};
        if (!comma)
            return bad(l, "a comma is expected");
        if (take_field(l, &field) < 0)
            return -1;
        ret->item += field.item; /* each below 2^31 */
        if (ret->item > INT32_MAX)
            return bad(l, "an element is over 2 GiB");
        ret->big_endian = ret->big_endian || field.big_endian;
        ret->has_object = ret->has_object || field.has_object;
        comma = take(l, ',');
    }
    if (ret->has_object)
        strcpy(ret->type, "OBJECT");
    return 0;
}

static int take_dtype(struct literal *l, struct dtype *ret)
{
    char text[128];
    int r;
    if (++l->depth > DEPTH_MAX)
        return bad(l, "dtypes within dtypes, over %u deep", DEPTH_MAX);
    if (take(l, '[')) {
        r = take_fields(l, ret);
    } else if (take(l, '(')) { /* (dtype, shape) */
        r = take_dtype(l, ret);
        if (r == 0 && !take(l, ','))
            r = bad(l, "a comma is expected");
        if (r == 0)
            r = take_subarray(l, ret);
        if (r == 0 && (take(l, ','), !take(l, ')')))
            r = bad(l, "a dtype has no end");
    } else {
        r = take_string(l, text, sizeof(text));
        if (r == 0)
            r = scalar_dtype(l, text, ret);
    }
    l->depth--;
    return r;
}

/* ---- the dictionary ---- */

static int take_descr(struct literal *l, struct numpy_array *a, struct dtype *d)
{
    skip_blanks(l);
    const char *first = l->p;
    if (take_dtype(l, d) < 0)
        return -1;
    size_t n = (size_t)(l->p - first);
    if (n >= 2 && (*first == '\'' || *first == '"')) { /* without its quotes */
        first++;
        n -= 2;
    }
    n = n < sizeof(a->descr) - 1 ? n : sizeof(a->descr) - 1;
    memcpy(a->descr, first, n);
    return 0;
}

static int take_bool(struct literal *l, bool *ret)
{
    if (take_word(l, "True"))
        *ret = true;
    else if (take_word(l, "False"))
        *ret = false;
    else
        return bad(l, "fortran_order is neither True nor False");
    return 0;
}

static int take_dictionary(struct literal *l, struct numpy_array *a, struct dtype *d)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[ARRAY_LEN(keys)] = {0}, comma = true;
    if (!take(l, '{'))
        return bad(l, "it is no dictionary");
    while (!take(l, '}')) {
        char key[16];
        size_t i = 0;
        if (!comma)
            return bad(l, "a comma is expected");
        if (take_string(l, key, sizeof(key)) < 0)
            return -1;
        while (i < ARRAY_LEN(keys) && strcmp(key, keys[i]) != 0)
            i++;
        if (i == ARRAY_LEN(keys))
            return bad(l, "the key '%s' is none of descr, fortran_order, shape", key);
        if (seen[i])
            return bad(l, "the key %s stands there twice", key);
        seen[i] = true;
        if (!take(l, ':'))
            return bad(l, "a colon is expected");
        int r = i == 0   ? take_descr(l, a, d)
                : i == 1 ? take_bool(l, &a->fortran_order)
                         : take_shape(l, false, a->dims, ARRAY_LEN(a->dims), &a->n_dims);
        if (r < 0)
            return -1;
        comma = take(l, ',');
    }
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!seen[i])
            return bad(l, "the key %s is missing", keys[i]);
    skip_blanks(l);
    return l->p == l->end ? 0 : bad(l, "something stands behind the dictionary");
}

/* The lengths times each other, as NumPy counts: a 0 anywhere makes it nothing. */
static int count_elements(const struct numpy_array *a, uint64_t item, uint64_t base,
                          uint64_t *ret_elements, uint64_t *ret_bytes, struct error *err)
{
    uint64_t n = 1, bytes;
    bool none = false, huge = false;
    for (size_t i = 0; i < a->n_dims; i++) {
        none = none || a->dims[i] == 0;
        huge = huge || __builtin_mul_overflow(n, a->dims[i], &n);
    }
    n = none ? 0 : n;
    if ((huge && !none) || __builtin_mul_overflow(n, item, &bytes) || bytes > INT64_MAX)
        return err_set(err, ERR_INVALID,
                       "NumPy header at byte %llu: the shape does not fit 63 bits",
                       (unsigned long long)base);
    *ret_elements = n;
    *ret_bytes = bytes;
    return 0;
}

static int parse_header(struct numpy_array *a, const char *text, size_t len, uint64_t base,
                        bool python2, uint64_t file_size, struct error *err)
{
    struct literal l = {text, text, text + len, base, python2, 0, err};
    struct dtype d = {0};
    if (take_dictionary(&l, a, &d) < 0 ||
        count_elements(a, d.item, base, &a->elements, &a->bytes, err) < 0)
        return -1;
    memcpy(a->type, d.type, sizeof(a->type));
    a->item = d.has_object ? 0 : d.item;
    a->big_endian = d.big_endian;
    a->header_bytes = base + len;
    uint64_t room = file_size - a->header_bytes;
    if (d.has_object)
        a->bytes = room;
    if (a->bytes > room)
        return err_set(err, ERR_INVALID,
                       "the array takes %llu bytes behind byte %llu, the file has %llu there: it "
                       "is cut short",
                       (unsigned long long)a->bytes, (unsigned long long)a->header_bytes,
                       (unsigned long long)room);
    return 0;
}

static int want(uint64_t need, uint64_t file_size, uint64_t *ret_need, struct error *err)
{
    if (need > file_size)
        return err_set(err, ERR_INVALID,
                       "the NumPy header at byte 0 takes %llu bytes, the file has %llu",
                       (unsigned long long)need, (unsigned long long)file_size);
    *ret_need = need;
    return PREFIX_MORE;
}

int numpy_parse(const void *data, size_t have, uint64_t file_size, struct numpy_array *ret,
                uint64_t *ret_need, struct error *err)
{
    const unsigned char *p = data;
    size_t seen = have < 6 ? have : 6;
    if (seen && memcmp(p, "\x93NUMPY", seen) != 0)
        return err_set(err, ERR_INVALID, "not a NumPy array: byte 0 is not its magic");
    if (have < 8)
        return want(8, file_size, ret_need, err);
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return err_set(err, ERR_INVALID, "NumPy format %u.%u at byte 6, known are 1.0, 2.0 and 3.0",
                       p[6], p[7]);
    size_t start = p[6] == 1 ? 10 : 12;
    if (have < start)
        return want(start, file_size, ret_need, err);
    uint64_t len = p[8] | (uint64_t)p[9] << 8;
    if (p[6] > 1)
        len |= (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
    if (len > HEADER_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "a NumPy header of %llu bytes, as byte 8 has it, the limit is %u",
                       (unsigned long long)len, HEADER_MAX);
    if (have < start + len)
        return want(start + len, file_size, ret_need, err);
    struct numpy_array a = {0};
    if (parse_header(&a, (const char *)p + start, (size_t)len, start, p[6] < 3, file_size, err) < 0)
        return -1;
    *ret = a;
    return PREFIX_DONE;
}
