/* A gguf header of any bytes: nothing is read beyond the prefix, and prefixes agree. */
#include "tests/unit/model/prefix_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prefix_fuzz(WEIGHTS_GGUF, data, size);
    return 0;
}
