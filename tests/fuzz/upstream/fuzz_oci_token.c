/* A token server's answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/oci_token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct oci_token t = {0};
    struct error err = ERROR_INIT;
    if (oci_token_parse((const char *)data, size, &t, &err) < 0) {
        if (t.text || err.code != ERR_UPSTREAM)
            abort();
        return 0;
    }
    size_t len = strlen(t.text);
    if (len == 0 || len > OCI_TOKEN_MAX || t.life_s == 0 || t.life_s > OCI_TOKEN_LIFE_MAX_S)
        abort();
    for (size_t i = 0; i < len; i++)
        if (t.text[i] < '!' || t.text[i] > '~')
            abort();
    free(t.text);
    return 0;
}
