/* Writes zip files for tests, good ones and odd ones. */
#ifndef WB_TESTS_ZIP_BUILDER_H
#define WB_TESTS_ZIP_BUILDER_H

#include <string.h>
#include <zlib.h>

#include "base/strbuf.h"

struct zip_builder {
    struct strbuf b, directory;
    unsigned entries;
};

/* How a member differs from a plain one. */
struct zip_odd {
    bool deflate;
    bool descriptor; /* sizes stand behind the data, not in the local header */
    bool unlisted;   /* in no directory */
    bool headless;   /* the directory points at something that is no local header */
    bool zip64;
    unsigned flags, method;
    const char *local_name;
};

static inline void zip_put_int(struct strbuf *b, uint64_t v, unsigned n)
{
    while (n--) {
        strbuf_putc(b, (char)v);
        v >>= 8;
    }
}

static inline void zip_pack(struct strbuf *out, const void *data, size_t len)
{
    z_stream z = {0};
    char *room = strbuf_reserve(out, len + 256);
    deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)len;
    z.next_out = (Bytef *)room;
    z.avail_out = (uInt)len + 256;
    deflate(&z, Z_FINISH);
    strbuf_advance(out, z.total_out);
    deflateEnd(&z);
}

static inline void zip_add(struct zip_builder *z, const char *name, const void *data, size_t len,
                           struct zip_odd odd)
{
    struct strbuf packed = STRBUF_INIT;
    const char *local = odd.local_name ? odd.local_name : name;
    uint64_t at = z->b.len;
    unsigned flags = odd.flags | (odd.descriptor ? 8 : 0);
    unsigned method = odd.method ? odd.method : odd.deflate ? 8 : 0;
    if (odd.deflate)
        zip_pack(&packed, data, len);
    else
        strbuf_put(&packed, data, len);
    zip_put_int(&z->b, odd.headless ? 0 : 0x04034b50, 4);
    zip_put_int(&z->b, 20, 2);
    zip_put_int(&z->b, flags, 2);
    zip_put_int(&z->b, method, 2);
    zip_put_int(&z->b, 0, 8); /* time, checksum */
    zip_put_int(&z->b, odd.descriptor ? 0 : odd.zip64 ? UINT32_MAX : packed.len, 4);
    zip_put_int(&z->b, odd.descriptor ? 0 : odd.zip64 ? UINT32_MAX : len, 4);
    zip_put_int(&z->b, strlen(local), 2);
    zip_put_int(&z->b, odd.zip64 ? 20 : 0, 2);
    strbuf_puts(&z->b, local);
    if (odd.zip64) {
        zip_put_int(&z->b, 1, 2);
        zip_put_int(&z->b, 16, 2);
        zip_put_int(&z->b, len, 8);
        zip_put_int(&z->b, packed.len, 8);
    }
    strbuf_put(&z->b, strbuf_str(&packed), packed.len);
    if (odd.descriptor) {
        zip_put_int(&z->b, 0x08074b50, 4);
        zip_put_int(&z->b, 0, 4);
        zip_put_int(&z->b, packed.len, 4);
        zip_put_int(&z->b, len, 4);
    }
    if (!odd.unlisted) {
        struct strbuf *d = &z->directory;
        zip_put_int(d, 0x02014b50, 4);
        zip_put_int(d, 20, 2);
        zip_put_int(d, 20, 2);
        zip_put_int(d, flags, 2);
        zip_put_int(d, method, 2);
        zip_put_int(d, 0, 8);
        zip_put_int(d, odd.zip64 ? UINT32_MAX : packed.len, 4);
        zip_put_int(d, odd.zip64 ? UINT32_MAX : len, 4);
        zip_put_int(d, strlen(name), 2);
        zip_put_int(d, odd.zip64 ? 28 : 0, 2);
        zip_put_int(d, 0, 2);
        zip_put_int(d, 0, 8); /* disk, attributes */
        zip_put_int(d, odd.zip64 ? UINT32_MAX : at, 4);
        strbuf_puts(d, name);
        if (odd.zip64) {
            zip_put_int(d, 1, 2);
            zip_put_int(d, 24, 2);
            zip_put_int(d, len, 8);
            zip_put_int(d, packed.len, 8);
            zip_put_int(d, at, 8);
        }
        z->entries++;
    }
    strbuf_done(&packed);
}

/* Appends the directory and its end; with zip64, the records of that as well. */
static inline void zip_end(struct zip_builder *z, bool zip64)
{
    uint64_t at = z->b.len, size = z->directory.len;
    strbuf_put(&z->b, strbuf_str(&z->directory), size);
    if (zip64) {
        uint64_t record = z->b.len;
        zip_put_int(&z->b, 0x06064b50, 4);
        zip_put_int(&z->b, 44, 8);
        zip_put_int(&z->b, 45, 2);
        zip_put_int(&z->b, 45, 2);
        zip_put_int(&z->b, 0, 8);
        zip_put_int(&z->b, z->entries, 8);
        zip_put_int(&z->b, z->entries, 8);
        zip_put_int(&z->b, size, 8);
        zip_put_int(&z->b, at, 8);
        zip_put_int(&z->b, 0x07064b50, 4);
        zip_put_int(&z->b, 0, 4);
        zip_put_int(&z->b, record, 8);
        zip_put_int(&z->b, 1, 4);
    }
    zip_put_int(&z->b, 0x06054b50, 4);
    zip_put_int(&z->b, 0, 4);
    zip_put_int(&z->b, z->entries, 2);
    zip_put_int(&z->b, z->entries, 2);
    zip_put_int(&z->b, zip64 ? UINT32_MAX : size, 4);
    zip_put_int(&z->b, zip64 ? UINT32_MAX : at, 4);
    zip_put_int(&z->b, 0, 2);
}

static inline void zip_builder_done(struct zip_builder *z)
{
    strbuf_done(&z->b);
    strbuf_done(&z->directory);
}
#define _cleanup_zip_builder_ _cleanup_(zip_builder_done)

#endif
