/* Any text as a reference and as a digest: what is taken is valid and has one spelling. */
#include <assert.h>
#include <string.h>

#include "base/ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *text = malloc(size + 1);
    struct reference r, again;
    struct digest d;
    struct error err = ERROR_INIT;
    char out[REFERENCE_TEXT_MAX], digest[DIGEST_TEXT_MAX];
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    if (reference_parse(text, &r, &err) == 0) {
        assert(repository_is_valid(r.repository));
        assert(r.is_digest ? !r.tag[0] : tag_is_valid(r.tag));
        assert(reference_parse(reference_format(&r, out), &again, NULL) == 0);
        assert(strcmp(r.repository, again.repository) == 0 && strcmp(r.tag, again.tag) == 0);
        assert(r.is_digest == again.is_digest);
        assert(!r.is_digest || digest_equal(&r.digest, &again.digest));
    } else {
        assert(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    }
    if (digest_parse(text, &d, &err) == 0)
        assert(strcmp(digest_format(&d, digest), text) == 0);
    else
        assert(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    return 0;
}
