/* A gguf header of any bytes: nothing is read beyond the prefix, and prefixes agree. */
#include "tests/unit/model/prefix_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size, uint64_t file_size)
{
    static struct prefix_outcome last;
    const char *wrong = prefix_check(WEIGHTS_GGUF, data, size, file_size, size / 48 + 1, &last);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size, size);
    check(data, size, size + (1u << 20)); /* the beginning of a longer file */
    return 0;
}
