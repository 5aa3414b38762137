/* The Range and If-Range headers of a blob request (RFC 9110 section 14), and the Content-Range of
 * a piece of an upload. Pure; thread-safe. */
#ifndef WB_SERVER_RANGE_H
#define WB_SERVER_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum range_result {
    RANGE_WHOLE,         /* no range, another unit, several ranges, or not parsable: 200 */
    RANGE_PART,          /* 206 */
    RANGE_UNSATISFIABLE, /* 416 */
};

/* One range of a representation of `size` bytes: `a-b`, `a-`, `-n`, the end clamped. A first byte
 * behind the last one is unsatisfiable (clients and the conformance suite want 416, not 200).
 * For RANGE_PART *ret_first and *ret_length (never 0) lie inside the size; untouched otherwise. */
enum range_result range_parse(const char *header, uint64_t size, uint64_t *ret_first,
                              uint64_t *ret_length);

/* Whether If-Range lets the range through: it must be exactly our strong ETag (with its quotes, or
 * bare as some clients send it). A date or a weak tag never matches. */
bool range_if_range(const char *if_range, const char *etag);

/* Whether If-None-Match names this ETag: `*`, or a list with weak comparison, quoted or not. */
bool etag_none_match(const char *if_none_match, const char *etag);

/* Content-Range of a piece that is pushed: `first-last`, both counted from 0; `bytes ` before it
 * and
 * `/total` (or a star for it) behind it are taken as well, as some clients write it that way. False
 * when it is anything else; *ret_length is never 0. */
bool range_of_piece(const char *content_range, uint64_t *ret_first, uint64_t *ret_length);

#endif
