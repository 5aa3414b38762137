/* A JSON tokenizer that builds nothing: the caller walks the text and takes what it knows. For
 * safetensors headers, which are up to 100 MB and hostile (a tree of them would be gigabytes), and
 * whose integers need all 64 bits; and for manifests, which are hostile as well. Follows RFC 8259
 * to the letter. For model/, and for what upstream/ and server/ cut out of a Hub's answers.
 *
 * Functions return 0, or -1 with the error set (ERR_INVALID, with the byte of the file). White
 * space before a token is skipped by every function.
 */
#ifndef WB_MODEL_JSON_SCAN_H
#define WB_MODEL_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

/* The deepest nesting that the reference reader of safetensors takes. */
#define JSON_SCAN_DEPTH 127

struct json_scan {
    const unsigned char *start, *p, *end;
    uint64_t base; /* byte of the file at which start stands */
    unsigned depth;
    const char *document; /* what the text is, for errors: "the header" unless the caller sets it */
};

/* A string as it stands between its quotes, escapes and all. */
struct json_span {
    const char *text;
    size_t len;
    bool escaped; /* has a backslash */
    uint64_t at;  /* byte of the file */
};

/* The text must be valid UTF-8 already. */
void json_scan_start(struct json_scan *s, const void *text, size_t len, uint64_t base);
uint64_t json_scan_at(const struct json_scan *s);
/* The next byte that is not white space; -1 at the end. */
int json_scan_peek(struct json_scan *s);
/* Takes exactly this punctuation; `what` says where we are, for the error. */
int json_scan_expect(struct json_scan *s, char c, const char *what, struct error *err);
/* Enter and leave an object or array; counts the depth. */
int json_scan_open(struct json_scan *s, char c, const char *what, struct error *err);
/* After an element (first = false) or the opening (first = true): 1 = another element follows,
 * 0 = the closing byte was taken. A trailing comma is an error. */
int json_scan_more(struct json_scan *s, char close, bool first, const char *what,
                   struct error *err);
int json_scan_string(struct json_scan *s, const char *what, struct json_span *ret,
                     struct error *err);
/* The string and the colon behind it. */
int json_scan_key(struct json_scan *s, const char *what, struct json_span *ret, struct error *err);
/* An integer in 0 .. 2^64-1 in its plain form: no sign, fraction or exponent. */
int json_scan_u64(struct json_scan *s, const char *what, uint64_t *ret, struct error *err);
/* Skips one value of any kind, checking its grammar. */
int json_scan_skip(struct json_scan *s, struct error *err);
/* Only white space may be left. */
int json_scan_end(struct json_scan *s, struct error *err);

bool json_span_equals(const struct json_span *span, const char *text);
/* Writes the string without its escapes; out holds at least span->len bytes. Returns the length,
 * which is never greater than span->len. */
size_t json_span_decode(const struct json_span *span, char *out);
/* The string without its escapes: the text itself where it has none, else in `copy`, which is
 * emptied first. Valid as long as both are. ERR_NOMEM. */
int json_span_plain(const struct json_span *span, struct strbuf *copy, const char **ret,
                    size_t *ret_len, struct error *err);

#endif
