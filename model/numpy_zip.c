/* The arrays of a .npz: each in a member of its own. */
#include <string.h>

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "model/numpy.h"
#include "model/parsers.h"
#include "model/zip.h"

struct npz {
    const struct byte_source *s;
    int (*tensor)(void *ctx, const struct tensor_info *t, struct error *err);
    void *ctx;
    struct weights *w;
    size_t others; /* members that are no arrays */
};

static void close_stream(struct zip_stream **z)
{
    zip_close(*z);
}

/* The header of an array, read as far as needed; 0: the member holds none. */
static int read_header(struct npz *n, const struct zip_member *m, struct numpy_array *ret,
                       struct error *err)
{
    _cleanup_(close_stream) struct zip_stream *z = NULL;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    uint64_t need = 128; /* most headers */
    bool broken = false;
    uint64_t size = m->method == ZIP_STORED ? m->packed : m->unpacked;
    if (zip_open(n->s, m, &z, err) < 0)
        return -1;
    need = need < size ? need : size;
    for (;;) {
        size_t got = 0, want = (size_t)(need - b.len);
        void *room = strbuf_reserve(&b, want);
        if (!room)
            return err_set(err, ERR_NOMEM, "out of memory");
        if (zip_stream_read(z, room, want, &got, &broken, err) < 0)
            return -1;
        strbuf_advance(&b, got);
        if (b.len < 6 || memcmp(b.data, "\x93NUMPY", 6) != 0)
            return 0;
        if (got < want)
            return err_set(err, ERR_INVALID, "the array ends at byte %zu, in its header", b.len);
        int r = numpy_parse(b.data, b.len, size, ret, &need, err);
        if (r != PREFIX_MORE)
            return r == PREFIX_DONE ? 1 : -1;
    }
}

static int add_array(struct npz *n, const struct zip_member *m, const struct numpy_array *a,
                     struct error *err)
{
    size_t len = strlen(m->name);
    const char *type = a->type[0] ? a->type : "UNKNOWN";
    if (len > 4 && strcmp(m->name + len - 4, ".npy") == 0)
        len -= 4;
    struct tensor_info t = {
        .name = m->name,
        .name_len = len,
        .type = type,
        .sized = true,
        .dims = a->dims,
        .n_dims = a->n_dims,
        .elements = a->elements,
        .offset = m->method == ZIP_STORED ? m->data + a->header_bytes : 0,
        .bytes = a->bytes,
    };
    if (weights_count(n->w, type, 1, a->elements, a->bytes, err) < 0)
        return -1;
    int r = n->tensor ? n->tensor(n->ctx, &t, err) : 0;
    return r < 0 ? -1 : 0;
}

static int read_members(struct npz *n, const struct zip *z, struct error *err)
{
    for (size_t i = 0; i < z->n; i++) {
        const struct zip_member *m = &z->members[i];
        struct numpy_array a;
        int r = 0;
        if (m->in_file && (m->method == ZIP_STORED || m->method == ZIP_DEFLATED))
            r = read_header(n, m, &a, err);
        if (r == 0)
            n->others++;
        if (r < 0 || (r > 0 && add_array(n, m, &a, err) < 0))
            return err_wrap(err, "member '%s'", m->name);
    }
    return 0;
}

int numpy_zip_read(const struct byte_source *s,
                   int (*tensor)(void *ctx, const struct tensor_info *t, struct error *err),
                   void *ctx, struct weights *ret, struct error *err)
{
    struct weights w = {.format = WEIGHTS_OTHER, .file_bytes = s->size};
    struct npz n = {.s = s, .tensor = tensor, .ctx = ctx, .w = &w};
    struct zip z = {0};
    int r = zip_read(s, &z, err);
    if (r == 0)
        r = read_members(&n, &z, err);
    if (r == 0 && w.tensors == 0)
        r = err_set(err, ERR_INVALID, "no member of the zip file is a NumPy array");
    if (r == 0 && z.warning[0])
        weights_warn(&w, "%s", z.warning);
    if (r == 0 && n.others)
        weights_warn(&w, "%zu of %zu members are no arrays", n.others, z.n);
    zip_done(&z);
    if (r < 0)
        return -1;
    w.header_bytes = s->size > w.tensor_bytes ? s->size - w.tensor_bytes : 0;
    *ret = w;
    return 0;
}
