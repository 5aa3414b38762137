/* The range and entity-tag headers of blob requests, and the ranges of pieces that are pushed.
 * Input: 8 bytes of size, then the header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char etag[] = "\"sha256:0123\"";
    uint64_t whole = 0, first = 7, length = 9;
    if (size < sizeof(whole))
        return 0;
    memcpy(&whole, data, sizeof(whole));
    char *header = malloc(size - sizeof(whole) + 1);
    if (!header)
        return 0;
    memcpy(header, data + sizeof(whole), size - sizeof(whole));
    header[size - sizeof(whole)] = '\0';
    enum range_result r = range_parse(header, whole, &first, &length);
    if (r == RANGE_PART) {
        if (length == 0 || first >= whole || length > whole - first)
            abort();
    } else if (first != 7 || length != 9) {
        abort(); /* results are untouched otherwise */
    }
    first = 7;
    length = 9;
    if (range_of_piece(header, &first, &length)) {
        if (length == 0 || length > INT64_MAX || first > INT64_MAX - length)
            abort();
    } else if (first != 7 || length != 9) {
        abort();
    }
    if (range_if_range(header, etag) && !strstr(header, "sha256:0123"))
        abort();
    if (etag_none_match(header, etag) && !strstr(header, "sha256:0123") && !strchr(header, '*'))
        abort();
    free(header);
    return 0;
}
