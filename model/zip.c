/* Finding the members of a zip file. Loaders disagree about which directory counts where there is
 * more than one, and about where it starts in a file with something in front; we take them all. */
#include "model/zip.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/strbuf.h"

#define TAIL_MAX (22u + 65535u) /* where an end of central directory can stand */
#define END_MAX 8u              /* ends of central directory that are looked at */
#define DIRECTORY_MAX (64u << 20)
#define SEARCH_MAX (16u << 20)  /* bytes outside of members that are searched for headers */
#define HEAD_MAX 65536u         /* without a directory, a local header must stand in here */
#define UNLISTED_NAME_MAX 4096u /* of a local header that is no part of a directory */

#define LOCAL_LEN 30u
#define CENTRAL_LEN 46u
#define END_LEN 22u

struct reading {
    const struct byte_source *s;
    struct zip *z;
    size_t cap;
    uint64_t directory_bytes; /* read so far */
    uint64_t searched;
};

struct span {
    uint64_t from, to;
};

static uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const unsigned char *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static bool is_mark(const unsigned char *p, unsigned char a, unsigned char b)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

static void warn(struct zip *z, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn(struct zip *z, const char *format, ...)
{
    va_list args;
    if (z->warning[0])
        return; /* the first one says enough */
    va_start(args, format);
    vsnprintf(z->warning, sizeof(z->warning), format, args);
    va_end(args);
}

/* at: the byte of the file that tells of it. */
static struct zip_member *add_member(struct reading *r, const void *name, size_t name_len,
                                     uint64_t at, struct error *err)
{
    struct zip *z = r->z;
    if (z->n == ZIP_MEMBERS_MAX) {
        err_set(err, ERR_TOO_LARGE, "the zip file has more than %u members at byte %llu",
                ZIP_MEMBERS_MAX, (unsigned long long)at);
        return NULL;
    }
    if (z->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct zip_member *grown = realloc(z->members, cap * sizeof(*grown));
        if (!grown) {
            err_set(err, ERR_NOMEM, "out of memory");
            return NULL;
        }
        z->members = grown;
        r->cap = cap;
    }
    struct zip_member *m = &z->members[z->n];
    *m = (struct zip_member){.name = strndup(name, name_len)};
    if (!m->name) {
        err_set(err, ERR_NOMEM, "out of memory");
        return NULL;
    }
    z->n++;
    return m;
}

/* The 64-bit sizes of extra field 1, for those of the 32-bit ones that are all ones, in order. */
static void zip64_sizes(const unsigned char *extra, size_t len, uint64_t **values, size_t n)
{
    while (len >= 4) {
        size_t field = le16(extra + 2);
        if (field > len - 4)
            return;
        const unsigned char *p = extra + 4, *end = p + field;
        for (size_t i = 0; le16(extra) == 1 && i < n && end - p >= 8; i++) {
            if (*values[i] == UINT32_MAX) {
                *values[i] = le64(p);
                p += 8;
            }
        }
        if (le16(extra) == 1)
            return;
        extra += 4 + field;
        len -= 4 + field;
    }
}

/* ---- the central directory ---- */

/* Adds the entries that stand in data, one behind the other, from this byte of the file on.
 * *ret_used: the bytes they take. */
static int parse_directory(struct reading *r, const unsigned char *data, size_t len, uint64_t from,
                           uint64_t base, size_t *ret_used, struct error *err)
{
    size_t at = 0;
    while (len - at >= CENTRAL_LEN && is_mark(data + at, 1, 2)) {
        const unsigned char *p = data + at;
        size_t name = le16(p + 28), extra = le16(p + 30), comment = le16(p + 32);
        if (len - at - CENTRAL_LEN < name + extra)
            break;
        struct zip_member *m = add_member(r, p + CENTRAL_LEN, name, from + at, err);
        if (!m)
            return -1;
        m->in_directory = true;
        m->flags = le16(p + 8);
        m->method = le16(p + 10);
        m->packed = le32(p + 20);
        m->unpacked = le32(p + 24);
        m->header = le32(p + 42);
        uint64_t *sizes[] = {&m->unpacked, &m->packed, &m->header};
        zip64_sizes(p + CENTRAL_LEN + name, extra, sizes, ARRAY_LEN(sizes));
        m->header += base; /* modulo 2^64, as base is; what is beyond the file has no header */
        at += CENTRAL_LEN + name + extra;
        at += comment < len - at ? comment : len - at;
    }
    *ret_used = at;
    return 0;
}

static int read_range(struct reading *r, uint64_t from, uint64_t to, struct strbuf *b,
                      struct error *err)
{
    while (from < to) { /* in steps: a source that has less than it says fails first */
        size_t n = to - from < (1u << 20) ? (size_t)(to - from) : 1u << 20;
        void *p = strbuf_reserve(b, n);
        if (!p)
            return err_set(err, ERR_NOMEM, "out of memory");
        if (r->s->read(r->s->ctx, from, p, n, err) < 0)
            return -1;
        strbuf_advance(b, n);
        from += n;
    }
    return 0;
}

/* The directory that starts at from and ends before to, if there is one. */
static int read_directory(struct reading *r, uint64_t from, uint64_t to, uint64_t base,
                          struct span *ret_span, struct error *err)
{
    unsigned char mark[4];
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    size_t used = 0;
    *ret_span = (struct span){from, from};
    if (from > to || to - from < CENTRAL_LEN)
        return 0;
    if (r->s->read(r->s->ctx, from, mark, sizeof(mark), err) < 0)
        return -1;
    if (!is_mark(mark, 1, 2))
        return 0;
    r->directory_bytes += to - from;
    if (to - from > DIRECTORY_MAX || r->directory_bytes > DIRECTORY_MAX)
        return err_set(err, ERR_TOO_LARGE, "the zip directory at byte %llu is over %u MiB",
                       (unsigned long long)from, DIRECTORY_MAX >> 20);
    if (read_range(r, from, to, &b, err) < 0 ||
        parse_directory(r, (const unsigned char *)b.data, b.len, from, base, &used, err) < 0)
        return -1;
    ret_span->to = from + used;
    if (used < b.len)
        warn(r->z, "the zip directory at byte %llu is followed by %zu bytes that are none",
             (unsigned long long)from, b.len - used);
    return 0;
}

struct ending {
    uint64_t at;        /* byte of the record behind the directory */
    uint64_t size, off; /* of the directory, as stated */
};

/* What Zip64 records say of the directory that ends with the record at `at`: up to two, where the
 * locator says and, as in a file with something in front, right before the locator. */
static int find_zip64(struct reading *r, uint64_t at, struct ending *ret, size_t *ret_n,
                      struct error *err)
{
    unsigned char p[56];
    *ret_n = 0;
    if (at < 20)
        return 0;
    if (r->s->read(r->s->ctx, at - 20, p, 20, err) < 0)
        return -1;
    if (!is_mark(p, 6, 7))
        return 0;
    uint64_t places[] = {le64(p + 8), at >= 76 ? at - 76 : UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (places[i] > r->s->size || r->s->size - places[i] < sizeof(p) ||
            (i && places[i] == places[0]))
            continue;
        if (r->s->read(r->s->ctx, places[i], p, sizeof(p), err) < 0)
            return -1;
        if (is_mark(p, 6, 6))
            ret[(*ret_n)++] = (struct ending){places[i], le64(p + 40), le64(p + 48)};
    }
    return 0;
}

/* The directory that e tells of. It ends where the record starts, and offsets count from wherever
 * that puts byte 0; other loaders go by the offset that is stated. */
static int read_told(struct reading *r, const struct ending *e, struct span *spans, size_t *n_spans,
                     struct error *err)
{
    bool same = e->size <= e->at && e->at - e->size == e->off;
    if (e->size <= e->at) {
        uint64_t from = e->at - e->size;
        if (read_directory(r, from, e->at, from - e->off, &spans[(*n_spans)++], err) < 0)
            return -1;
    }
    size_t before = r->z->n;
    if (!same && e->off < e->at &&
        read_directory(r, e->off, e->at, 0, &spans[(*n_spans)++], err) < 0)
        return -1;
    if (r->z->n > before)
        warn(r->z, "two places of the file can be taken for its zip directory");
    return 0;
}

static int read_ending(struct reading *r, uint64_t at, const unsigned char *p, struct span *spans,
                       size_t *n_spans, struct error *err)
{
    struct ending e[3] = {{at, le32(p + 12), le32(p + 16)}}; /* not every loader knows Zip64 */
    size_t n;
    if (find_zip64(r, at, e + 1, &n, err) < 0)
        return -1;
    for (size_t i = 1; i <= n; i++) /* the directory ends before the first record behind it */
        e[0].at = e[i].at < e[0].at ? e[i].at : e[0].at;
    spans[(*n_spans)++] = (struct span){e[0].at, at + END_LEN};
    for (size_t i = 0; i <= n; i++) {
        bool again = i && e[i].at == e[0].at && e[i].size == e[0].size && e[i].off == e[0].off;
        if (!again && read_told(r, &e[i], spans, n_spans, err) < 0)
            return -1;
    }
    return 0;
}

static int read_endings(struct reading *r, struct span *spans, size_t *n_spans, bool *ret_any,
                        struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    uint64_t from = r->s->size > TAIL_MAX ? r->s->size - TAIL_MAX : 0;
    unsigned found = 0;
    if (read_range(r, from, r->s->size, &b, err) < 0)
        return -1;
    const unsigned char *p = (const unsigned char *)strbuf_str(&b);
    for (size_t at = b.len >= END_LEN ? b.len - END_LEN + 1 : 0; at-- > 0;) {
        if (!is_mark(p + at, 5, 6))
            continue;
        if (++found > END_MAX) {
            r->z->unsearched = true;
            warn(r->z, "the zip file has more than %u ends of central directory", END_MAX);
            break;
        }
        if (read_ending(r, from + at, p + at, spans, n_spans, err) < 0)
            return -1;
    }
    if (found > 1)
        warn(r->z, "the zip file has %u ends of central directory", found);
    *ret_any = found > 0;
    return 0;
}

/* ---- local headers ---- */

/* Fills in what the local header in head says; name (may be NULL) gets the local name. */
static int read_local(struct reading *r, struct zip_member *m, char **ret_name, struct error *err)
{
    unsigned char head[512];
    uint64_t rest = m->header < r->s->size ? r->s->size - m->header : 0;
    size_t have = rest < sizeof(head) ? (size_t)rest : sizeof(head);
    *ret_name = NULL;
    if (have < LOCAL_LEN)
        return 0;
    if (r->s->read(r->s->ctx, m->header, head, have, err) < 0)
        return -1;
    size_t name = le16(head + 26), extra = le16(head + 28);
    if (!is_mark(head, 3, 4) || rest - LOCAL_LEN < name + extra)
        return 0;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (LOCAL_LEN + name + extra > have) {
        if (read_range(r, m->header, m->header + LOCAL_LEN + name + extra, &b, err) < 0)
            return -1;
    } else {
        strbuf_put(&b, head, LOCAL_LEN + name + extra);
        if (strbuf_failed(&b))
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    const unsigned char *p = (const unsigned char *)b.data;
    uint64_t packed = le32(p + 18), unpacked = le32(p + 22);
    uint64_t *sizes[] = {&unpacked, &packed};
    zip64_sizes(p + LOCAL_LEN + name, extra, sizes, ARRAY_LEN(sizes));
    m->in_file = true;
    m->data = m->header + LOCAL_LEN + name + extra;
    if (!m->in_directory) {
        m->flags = le16(p + 6);
        m->method = le16(p + 8);
        m->unpacked = unpacked;
    }
    m->packed = packed > m->packed ? packed : m->packed;
    if (m->packed > r->s->size - m->data) {
        warn(r->z, "zip member '%.80s' ends beyond the file", m->name);
        m->packed = r->s->size - m->data;
    }
    *ret_name = strndup((const char *)p + LOCAL_LEN, name);
    return *ret_name ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int read_locals(struct reading *r, struct error *err)
{
    for (size_t i = 0; i < r->z->n; i++) {
        struct zip_member *m = &r->z->members[i];
        _cleanup_free_ char *name = NULL;
        if (read_local(r, m, &name, err) < 0)
            return -1;
        m->renamed = name && strcmp(name, m->name) != 0;
        if (m->renamed)
            warn(r->z, "zip member '%.80s' has another name in its local header", m->name);
        if (!m->in_file)
            warn(r->z, "zip member '%.80s' has no local header", m->name);
    }
    return 0;
}

/* A local header at `at`, where no directory told of one. Sets *ret_end to where the search goes
 * on, at most `to`. */
static int add_unlisted(struct reading *r, uint64_t at, uint64_t to, uint64_t *ret_end,
                        struct error *err)
{
    _cleanup_free_ char *name = NULL;
    *ret_end = at + 4;
    struct zip_member *m = add_member(r, "", 0, at, err);
    if (!m)
        return -1;
    m->header = at;
    if (read_local(r, m, &name, err) < 0)
        return -1;
    if (!m->in_file || m->data > to || !name || strlen(name) > UNLISTED_NAME_MAX) {
        free(m->name);
        r->z->n--;
        return 0;
    }
    free(m->name);
    m->name = TAKE_PTR(name);
    if (m->packed == 0 && (m->flags & 8)) { /* its length stands behind it: up to the next mark */
        m->packed = to - m->data;
        *ret_end = m->data;
    } else {
        *ret_end = m->packed <= to - m->data ? m->data + m->packed : m->data;
    }
    return 0;
}

/* Ends the member that was added last, if it is open-ended, at the mark that was found behind it.
 */
static void end_open_member(struct reading *r, size_t first, uint64_t at)
{
    if (r->z->n == first)
        return;
    struct zip_member *m = &r->z->members[r->z->n - 1];
    if ((m->flags & 8) && m->data <= at && m->packed > at - m->data)
        m->packed = at - m->data;
}

static int search_gap(struct reading *r, uint64_t from, uint64_t to, struct error *err)
{
    unsigned char buf[16384];
    size_t first = r->z->n;
    while (to - from >= 4) {
        size_t len = to - from < sizeof(buf) ? (size_t)(to - from) : sizeof(buf);
        uint64_t next = from + len - 3; /* a mark may straddle two reads */
        if (r->searched >= SEARCH_MAX) {
            r->z->unsearched = true;
            warn(r->z, "more than %u MiB of the zip file belong to no member", SEARCH_MAX >> 20);
            return 0;
        }
        r->searched += len;
        if (r->s->read(r->s->ctx, from, buf, len, err) < 0)
            return -1;
        for (size_t i = 0; i + 4 <= len; i++) {
            if (buf[i] != 'P' || buf[i + 1] != 'K')
                continue;
            if (is_mark(buf + i, 3, 4) || is_mark(buf + i, 7, 8) || is_mark(buf + i, 1, 2))
                end_open_member(r, first, from + i);
            if (!is_mark(buf + i, 3, 4))
                continue;
            size_t before = r->z->n;
            uint64_t end;
            if (add_unlisted(r, from + i, to, &end, err) < 0)
                return -1;
            if (r->z->n == before)
                continue;
            warn(r->z, "zip member '%.80s' is in no directory", r->z->members[before].name);
            next = end;
            break;
        }
        from = next;
    }
    return 0;
}

/* ---- all of it ---- */

static int compare_members(const void *a, const void *b)
{
    const struct zip_member *x = a, *y = b;
    if (x->header != y->header)
        return x->header < y->header ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Directories that were found twice name the same members. */
static void merge_members(struct zip *z)
{
    size_t n = 0;
    if (z->n)
        qsort(z->members, z->n, sizeof(*z->members), compare_members);
    for (size_t i = 0; i < z->n; i++) {
        struct zip_member *m = &z->members[i], *last = n ? &z->members[n - 1] : NULL;
        if (last && compare_members(m, last) == 0 && m->method == last->method &&
            m->packed == last->packed)
            free(m->name);
        else
            z->members[n++] = *m;
    }
    z->n = n;
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int search_gaps(struct reading *r, const struct span *records, size_t n_records,
                       uint64_t limit, struct error *err)
{
    size_t n = 0;
    uint64_t at = 0;
    _cleanup_free_ struct span *spans = calloc(r->z->n + n_records + 1, sizeof(*spans));
    if (!spans)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < r->z->n; i++) {
        const struct zip_member *m = &r->z->members[i];
        if (m->in_file)
            spans[n++] = (struct span){m->header, m->data + m->packed};
    }
    for (size_t i = 0; i < n_records; i++)
        spans[n++] = records[i];
    spans[n++] = (struct span){limit, limit};
    qsort(spans, n, sizeof(*spans), compare_spans);
    for (size_t i = 0; i < n && at < limit; i++) {
        uint64_t to = spans[i].from < limit ? spans[i].from : limit;
        if (to > at && search_gap(r, at, to, err) < 0)
            return -1;
        at = spans[i].to > at ? spans[i].to : at;
    }
    return 0;
}

int zip_read(const struct byte_source *s, struct zip *ret, struct error *err)
{
    struct reading r = {.s = s, .z = ret};
    struct span records[7 * END_MAX]; /* an end, and two for each directory it tells of */
    size_t n_records = 0;
    bool any = false;
    *ret = (struct zip){0};
    if (read_endings(&r, records, &n_records, &any, err) < 0)
        return -1;
    merge_members(ret);
    if (read_locals(&r, err) < 0)
        return -1;
    if (ret->n) {
        if (search_gaps(&r, records, n_records, s->size, err) < 0)
            return -1;
    } else { /* no directory that is one: is there any header at all? */
        uint64_t head = s->size < HEAD_MAX ? s->size : HEAD_MAX;
        if (search_gaps(&r, records, n_records, head, err) < 0 ||
            (ret->n && search_gaps(&r, records, n_records, s->size, err) < 0))
            return -1;
        if (!ret->n && !any)
            return err_set(err, ERR_INVALID,
                           "not a zip file: it has neither an end of central "
                           "directory nor, from byte 0 on, a local header");
        if (ret->n)
            warn(ret, "the zip file has no directory");
    }
    merge_members(ret);
    return 0;
}

void zip_done(struct zip *z)
{
    for (size_t i = 0; i < z->n; i++)
        free(z->members[i].name);
    free(z->members);
    *z = (struct zip){0};
}
