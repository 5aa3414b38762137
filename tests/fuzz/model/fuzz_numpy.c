/* Any bytes as a .npy, whole and in prefixes, and as a .npz. */
#include "model/numpy.h"
#include "base/cleanup.h"
#include "tests/unit/model/memory_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly `have` bytes, so that a sanitizer sees a read beyond them. */
static int parse(const uint8_t *data, size_t have, uint64_t file_size, struct numpy_array *a,
                 uint64_t *need)
{
    struct error err = ERROR_INIT;
    _cleanup_free_ void *copy = malloc(have ? have : 1);
    if (!copy)
        abort();
    if (have)
        memcpy(copy, data, have);
    memset(a, 0, sizeof(*a));
    int r = numpy_parse(copy, have, file_size, a, need, &err);
    if (r < 0 && (err.code == ERR_NONE || !err.text[0]))
        abort();
    return r;
}

static void check_prefixes(const uint8_t *data, size_t size, uint64_t file_size)
{
    static struct numpy_array whole, part;
    uint64_t need = 0;
    int last = parse(data, size, file_size, &whole, &need);
    if (last == PREFIX_DONE &&
        (whole.header_bytes > size || whole.bytes > file_size - whole.header_bytes))
        abort();
    size_t step = size / 40 + 1;
    for (size_t have = 0; have < size; have += step) {
        int r = parse(data, have, file_size, &part, &need);
        if (r == PREFIX_MORE ? need <= have || need > file_size
                             : r != last || memcmp(&part, &whole, sizeof(part)) != 0)
            abort();
    }
}

static int see_array(void *ctx, const struct tensor_info *t, struct error *err)
{
    uint64_t size = *(uint64_t *)ctx;
    (void)err;
    if (t->offset && (t->offset > size || t->bytes > size - t->offset))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_source memory = {data, size, 0, 0};
    struct byte_source s = memory_source(&memory);
    struct error err = ERROR_INIT;
    struct weights w;
    uint64_t file_size = size;
    check_prefixes(data, size, size);
    check_prefixes(data, size, size + (1u << 20));
    numpy_zip_read(&s, see_array, &file_size, &w, &err);
    return 0;
}
