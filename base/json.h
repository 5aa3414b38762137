/* JSON in and out.
 *
 * Reading wraps cJSON and closes its holes (it truncates strings at \u0000, takes duplicate keys,
 * invalid UTF-8, a BOM, raw control characters and malformed numbers, and turns every number into a
 * double). A parsed
 * document is a tree of `struct json` nodes borrowed from its root; json_free() the root only.
 * Not for huge hostile files (a safetensors header is read by model/'s own tokenizer).
 *
 * Writing appends to a strbuf, compact, escaped the way Go's encoding/json escapes (`<` `>` `&`
 * U+2028 U+2029 as \u003c ...), because clients re-marshal our documents and compare digests.
 * Thread-safe as long as one tree is used by one thread.
 */
#ifndef WB_BASE_JSON_H
#define WB_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

struct json;

/* Parses exactly one JSON text of len bytes. Refuses: NUL bytes and \u0000, invalid UTF-8, lone
 * surrogates, raw control characters in strings, a BOM, anything but white space behind the value,
 * nesting over 128, malformed numbers, duplicate keys in an object. ERR_INVALID says what and at
 * which byte. */
int json_parse(const char *text, size_t len, struct json **ret, struct error *err);
void json_free(struct json *root);
static inline void json_free_p(struct json **root)
{
    json_free(*root);
}
#define _cleanup_json_ _cleanup_(json_free_p)

bool json_is_object(const struct json *j);
bool json_is_array(const struct json *j);
bool json_is_string(const struct json *j);
bool json_is_number(const struct json *j);
bool json_is_bool(const struct json *j);
bool json_is_null(const struct json *j);
bool json_is_true(const struct json *j);

/* Member by exact key, NULL when j is no object or has none. Linear: iterate for big objects. */
const struct json *json_get(const struct json *j, const char *key);
/* First child of an array or object, next sibling; key of a member. NULL at the end. */
const struct json *json_first(const struct json *j);
const struct json *json_next(const struct json *j);
const char *json_key(const struct json *j);
size_t json_length(const struct json *j);

/* Borrowed text of a string, NULL for anything else. */
const char *json_str(const struct json *j);
/* True and *ret only for an integral number in 0..2^53-1, the range that is surely exact. */
bool json_u64(const struct json *j, uint64_t *ret);
/* True and *ret only for a number that a double can hold. */
bool json_double(const struct json *j, double *ret);

/* `"..."` with escapes; s is UTF-8 (invalid bytes become U+FFFD, as Go does). */
void json_put_string(struct strbuf *b, const char *s);
void json_put_string_n(struct strbuf *b, const char *s, size_t n);
/* `"key":` preceded by a comma unless the byte before it is `{` `[` or the buffer is empty. */
void json_put_key(struct strbuf *b, const char *key);
/* The comma between array elements, under the same rule. */
void json_put_separator(struct strbuf *b);
void json_put_u64(struct strbuf *b, uint64_t n);
/* A member, key and value. */
void json_put_text(struct strbuf *b, const char *key, const char *text);
void json_put_number(struct strbuf *b, const char *key, uint64_t n);

/* Number of bytes of the valid UTF-8 sequence at s (n bytes left), 0 when invalid. */
unsigned utf8_sequence(const unsigned char *s, size_t n);
bool utf8_is_valid(const char *s, size_t n);

#endif
