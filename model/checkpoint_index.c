/* {"metadata": {"total_size": N, ...}, "weight_map": {tensor: file, ...}}, token by token: an index
 * of half a million tensors has 60 MB. */
#include "model/checkpoint_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/json_scan.h"
#include "model/names.h"

struct index {
    struct checkpoint *c;
    struct json_scan scan;
    struct strbuf name, file;     /* without escapes */
    struct checkpoint_part *last; /* the file of the tensor before */
    bool has_map;
};

static void index_done(struct index *x)
{
    strbuf_done(&x->name);
    strbuf_done(&x->file);
}

/* "a//b", "./a", "a/.": another way to write the name of a file, which would then be two. */
static bool has_idle_part(const char *path, size_t len)
{
    for (size_t at = 0, n; at <= len; at += n + 1) {
        const char *slash = memchr(path + at, '/', len - at);
        n = slash ? (size_t)(slash - (path + at)) : len - at;
        if (n == 0 || (n == 1 && path[at] == '.'))
            return true;
    }
    return false;
}

/* The file's name goes into URLs and paths: it has to stay below the index. */
static int check_path(const char *path, size_t len, uint64_t at, struct error *err)
{
    char quoted[NAME_QUOTED_MAX];
    const char *wrong = NULL;
    if (len == 0)
        wrong = "is empty";
    else if (len > 4096)
        wrong = "is over 4,096 bytes long";
    else if (path[0] == '/')
        wrong = "begins with a slash";
    else if (memmem(path, len, "..", 2))
        wrong = "has .. in it";
    else if (memmem(path, len, "://", 3))
        wrong = "is a URL";
    else if (has_idle_part(path, len))
        wrong = "has a part that is empty or a dot";
    for (size_t i = 0; i < len && !wrong; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f || path[i] == '\\')
            wrong = "has a control character or backslash in it";
    if (!wrong)
        return 0;
    return err_set(err, ERR_INVALID, "the file name %s at byte %" PRIu64 " %s",
                   name_quote(path, len, quoted), at, wrong);
}

static int read_pair(struct index *x, struct error *err)
{
    struct json_span key, value;
    const char *name, *path;
    size_t name_len, path_len;
    if (json_scan_key(&x->scan, "weight_map", &key, err) < 0 ||
        json_scan_string(&x->scan, "weight_map", &value, err) < 0 ||
        json_span_plain(&key, &x->name, &name, &name_len, err) < 0 ||
        json_span_plain(&value, &x->file, &path, &path_len, err) < 0)
        return -1;
    if (x->c->n_map == MAP_MAX)
        return err_set(err, ERR_TOO_LARGE, "the index has more than %u tensors at byte %" PRIu64,
                       MAP_MAX, key.at);
    struct checkpoint_part *part = x->last;
    if (!part || strncmp(part->path, path, path_len) != 0 || part->path[path_len]) {
        if (check_path(path, path_len, value.at, err) < 0)
            return -1;
        if (checkpoint_file_of(x->c, path, path_len, &part, err) < 0)
            return err_wrap(err, "the file name at byte %" PRIu64, value.at);
        part->in_index = true;
        x->last = part;
    }
    if (checkpoint_add(x->c, name, name_len, true, part, err) < 0)
        return -1;
    x->c->n_map++;
    part->mapped++;
    return 0;
}

static int read_map(struct index *x, struct error *err)
{
    static const char what[] = "weight_map";
    int more;
    if (x->has_map)
        return err_set(err, ERR_INVALID, "weight_map is there twice, again before byte %" PRIu64,
                       json_scan_at(&x->scan));
    x->has_map = true;
    if (json_scan_open(&x->scan, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(&x->scan, '}', first, what, err)) > 0;
         first = false)
        if (read_pair(x, err) < 0)
            return -1;
    return more;
}

/* A whole number; some writers put ".0" behind it. Anything else is noted and not compared. */
static int read_total(struct index *x, bool *ret_has, uint64_t *ret, struct error *err)
{
    json_scan_peek(&x->scan);
    const unsigned char *p = x->scan.p;
    uint64_t value = 0;
    if (json_scan_skip(&x->scan, err) < 0)
        return -1;
    const unsigned char *digits = p, *end = x->scan.p;
    bool fits = true;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(*p - '0'), &value);
    bool whole = fits && p > digits;
    if (p < end && *p == '.')
        for (p++; p < end && *p == '0';)
            p++;
    if (whole && p == end) {
        *ret_has = true;
        *ret = value;
    } else {
        x->c->odd_total = true;
    }
    return 0;
}

static int read_metadata(struct index *x, struct error *err)
{
    static const char what[] = "metadata";
    struct json_scan *s = &x->scan;
    struct checkpoint *c = x->c;
    struct json_span key;
    int more;
    if (json_scan_peek(s) != '{') /* some indexes have null here */
        return json_scan_skip(s, err);
    if (json_scan_open(s, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, '}', first, what, err)) > 0; first = false) {
        int rc;
        if (json_scan_key(s, what, &key, err) < 0)
            return -1;
        if (json_span_equals(&key, "total_size"))
            rc = read_total(x, &c->has_total_size, &c->total_size, err);
        else if (json_span_equals(&key, "total_parameters"))
            rc = read_total(x, &c->has_total_parameters, &c->total_parameters, err);
        else
            rc = json_scan_skip(s, err);
        if (rc < 0)
            return -1;
    }
    return more;
}

static int read_index(struct index *x, struct error *err)
{
    struct json_scan *s = &x->scan;
    struct json_span key;
    int more;
    if (json_scan_open(s, '{', s->document, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, '}', first, s->document, err)) > 0;
         first = false) {
        int rc;
        if (json_scan_key(s, s->document, &key, err) < 0)
            return -1;
        if (json_span_equals(&key, "weight_map"))
            rc = read_map(x, err);
        else if (json_span_equals(&key, "metadata"))
            rc = read_metadata(x, err);
        else
            rc = json_scan_skip(s, err);
        if (rc < 0)
            return -1;
    }
    if (more < 0 || json_scan_end(s, err) < 0)
        return -1;
    if (!x->has_map)
        return err_set(err, ERR_INVALID, "the index has no weight_map before byte %" PRIu64,
                       json_scan_at(s));
    return 0;
}

int checkpoint_index(struct checkpoint *c, const char *json, size_t len, struct error *err)
{
    _cleanup_(index_done) struct index x = {.c = c};
    if (len > INDEX_MAX)
        return err_set(err, ERR_TOO_LARGE, "an index of %zu bytes, more than %u", len, INDEX_MAX);
    for (size_t at = 0; at < len;) {
        unsigned step = utf8_sequence((const unsigned char *)json + at, len - at);
        if (!step)
            return err_set(err, ERR_INVALID, "the index has invalid UTF-8 at byte %zu", at);
        at += step;
    }
    json_scan_start(&x.scan, json, len, 0);
    x.scan.document = "the index";
    c->has_index = true;
    return read_index(&x, err);
}
