/* The bytes of one zip member. */
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "model/zip.h"

#define INPUT_MAX 65536u

struct zip_stream {
    const struct byte_source *s;
    uint64_t next, left; /* packed bytes of the file that were not read yet */
    bool deflated, over, broken;
    z_stream z;
    size_t chunk; /* grows, so that the beginning of a member costs little */
    unsigned char input[INPUT_MAX];
};

int zip_open(const struct byte_source *s, const struct zip_member *m, struct zip_stream **ret,
             struct error *err)
{
    if (!m->in_file || m->data > s->size)
        return err_set(err, ERR_UNSUPPORTED, "zip member '%s' has no local header at byte %llu",
                       m->name, (unsigned long long)m->header);
    if (m->method != ZIP_STORED && m->method != ZIP_DEFLATED)
        return err_set(err, ERR_UNSUPPORTED, "zip member '%s' at byte %llu is packed by method %u",
                       m->name, (unsigned long long)m->header, m->method);
    _cleanup_free_ struct zip_stream *z = calloc(1, sizeof(*z));
    if (!z)
        return err_set(err, ERR_NOMEM, "out of memory");
    z->s = s;
    z->next = m->data;
    z->left = m->packed < s->size - m->data ? m->packed : s->size - m->data;
    z->deflated = m->method == ZIP_DEFLATED;
    z->chunk = 512;
    if (z->deflated && inflateInit2(&z->z, -MAX_WBITS) != Z_OK)
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret = TAKE_PTR(z);
    return 0;
}

void zip_close(struct zip_stream *z)
{
    if (z && z->deflated)
        inflateEnd(&z->z);
    free(z);
}

static int read_packed(struct zip_stream *z, void *buf, size_t len, struct error *err)
{
    if (z->s->read(z->s->ctx, z->next, buf, len, err) < 0)
        return -1;
    z->next += len;
    z->left -= len;
    return 0;
}

static int refill(struct zip_stream *z, struct error *err)
{
    size_t len = z->left < z->chunk ? (size_t)z->left : z->chunk;
    if (len && read_packed(z, z->input, len, err) < 0)
        return -1;
    z->z.next_in = z->input;
    z->z.avail_in = (uInt)len;
    if (z->chunk < INPUT_MAX)
        z->chunk *= 2;
    return 0;
}

static int inflate_some(struct zip_stream *z, unsigned char *buf, size_t len, size_t *ret_n,
                        struct error *err)
{
    size_t room = len < (1u << 30) ? len : 1u << 30;
    z->z.next_out = buf;
    z->z.avail_out = (uInt)room;
    while (z->z.avail_out && !z->over) {
        if (z->z.avail_in == 0 && refill(z, err) < 0)
            return -1;
        int rc = inflate(&z->z, Z_NO_FLUSH);
        if (rc == Z_MEM_ERROR)
            return err_set(err, ERR_NOMEM, "out of memory");
        if (rc != Z_OK) { /* Z_BUF_ERROR: it wants input, and there is none */
            z->over = true;
            z->broken = rc != Z_STREAM_END;
        }
    }
    *ret_n = room - z->z.avail_out;
    return 0;
}

int zip_stream_read(struct zip_stream *z, void *buf, size_t len, size_t *ret_n, bool *ret_broken,
                    struct error *err)
{
    size_t n = 0;
    if (z->deflated) {
        if (inflate_some(z, buf, len, &n, err) < 0)
            return -1;
    } else {
        n = z->left < len ? (size_t)z->left : len;
        if (n && read_packed(z, buf, n, err) < 0)
            return -1;
    }
    *ret_n = n;
    *ret_broken = z->broken;
    return 0;
}
