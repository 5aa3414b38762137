/* A type's name, a zero, a byte that chooses the naming and the byte order, and bytes of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/decode.h"

#define ELEMENTS_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(enum decode_names names, bool big, const char *type, const uint8_t *data,
                  size_t len)
{
    static struct decoded values[ELEMENTS_MAX];
    char text[DECODED_TEXT_MAX];
    struct error err = ERROR_INIT;
    for (size_t n = 0; n <= ELEMENTS_MAX; n += n < 2 ? 1 : n - 1) {
        uint64_t need = decode_bytes(names, type, n);
        int rc = decode(names, type, big, data, len, n, values, &err);
        bool fits = need <= len && (n == 0 || need > 0);
        if (rc < 0 ? !err.text[0] || (fits && n && err.code != ERR_UNSUPPORTED) : !fits) {
            fprintf(stderr, "%s: %zu elements in %zu bytes: %d %s\n", type, n, len, rc, err.text);
            abort();
        }
        for (size_t i = 0; rc == 0 && i < n; i++) {
            decoded_text(&values[i], type, text);
            if (!text[0])
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t len = strnlen((const char *)data, size);
    if (size - len < 2)
        return 0;
    /* A copy of the exact size, so that a read past the end is seen. */
    size_t rest = size - len - 2;
    _cleanup_free_ uint8_t *bytes = malloc(rest ? rest : 1);
    if (!bytes)
        return 0;
    memcpy(bytes, data + len + 2, rest);
    check(data[len + 1] & 1 ? DECODE_GGML : DECODE_SAFETENSORS, data[len + 1] & 2,
          (const char *)data, bytes, rest);
    return 0;
}
