/* Any bytes as a zip file: nothing outside of it is read, members lie in it, and their streams
 * end. */
#include "model/zip.h"
#include "tests/unit/model/memory_source.h"

#define UNPACK_MAX (1u << 20) /* of one member: a small one may unpack to gigabytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack(const struct byte_source *s, const struct zip_member *m)
{
    static char buf[4096];
    struct error err = ERROR_INIT;
    struct zip_stream *z;
    bool broken = false;
    size_t n = 0, total = 0;
    if (zip_open(s, m, &z, &err) < 0)
        return;
    do {
        if (zip_stream_read(z, buf, sizeof(buf), &n, &broken, &err) < 0)
            abort();
        total += n;
    } while (n == sizeof(buf) && total < UNPACK_MAX);
    zip_close(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_source memory = {data, size, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct error err = ERROR_INIT;
    struct zip z;
    if (zip_read(&s, &z, &err) == 0) {
        for (size_t i = 0; i < z.n; i++) {
            const struct zip_member *m = &z.members[i];
            if (m->in_file && (m->data > size || m->packed > size - m->data))
                abort();
            if (i < 16)
                unpack(&s, m);
        }
    }
    zip_done(&z);
    return 0;
}
