/* Base64 as in RFC 4648, section 4: `+` and `/`, padded. Thread-safe. */
#ifndef WB_BASE_BASE64_H
#define WB_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

void strbuf_put_base64(struct strbuf *b, const void *data, size_t len);

/* Appends what text stands for. False, and nothing appended, when it is no base64: other
 * characters, white space, padding that is missing or stands in the middle, bits left over. Running
 * out of memory shows in strbuf_failed(b). */
bool base64_decode(const char *text, size_t len, struct strbuf *b);

#endif
