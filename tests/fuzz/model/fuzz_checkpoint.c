/* An index of any bytes, and files that have some of its tensors. */
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct checkpoint *c)
{
    const struct checkpoint_finding *f;
    const char *const *files;
    struct weights sum;
    size_t n;
    n = checkpoint_files(c, &files);
    for (size_t i = 0; i < n; i += 2) { /* the others are missing */
        const struct weights w = {.format = WEIGHTS_SAFETENSORS, .tensors = 1};
        const struct tensor_info t = {.name = "a", .name_len = 1};
        if (strstr(files[i], "..") || files[i][0] == '/')
            abort();
        if (checkpoint_file(c, files[i], i % 4 ? NULL : &w, NULL) < 0 ||
            checkpoint_tensor(c, &t, NULL) < 0)
            abort();
    }
    if (checkpoint_check(c, &f, &n, &sum, NULL) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!f[i].text[0])
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint *c;
    char *copy = malloc(size ? size : 1);
    if (!copy || checkpoint_new(&c, NULL) < 0)
        abort();
    if (size)
        memcpy(copy, data, size);
    if (checkpoint_index(c, copy, size, NULL) == 0)
        check(c);
    checkpoint_free(c);
    free(copy);
    return 0;
}
