/* The byte form of rows: numbers as varints (7 bits a byte, low bits first, high bit = more
 * follows), strings and bytes behind their length. A string also carries its NUL, so that a decoded
 * record can point into the bytes it was decoded from.
 *
 * Reading never goes past the end and never believes a length: the first thing that does not fit
 * marks the reader as damaged, every later get gives zero, "" or NULL, and the caller checks once,
 * with record_end(). Not thread-safe, allocates nothing while reading.
 */
#ifndef WB_STORAGE_RECORD_H
#define WB_STORAGE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/strbuf.h"

void record_put_u64(struct strbuf *b, uint64_t n);
void record_put_bytes(struct strbuf *b, const void *data, size_t len);
void record_put_string(struct strbuf *b, const char *s);
void record_put_text(struct strbuf *b, const char *s,
                     size_t len); /* a string, without a NUL in it */
/* One byte for the algorithm, then the raw digest; DIGEST_NONE is the one byte 0. */
void record_put_digest(struct strbuf *b, const struct digest *d);

struct record_reader {
    const unsigned char *at;
    size_t left;
    bool damaged;
};

struct record_reader record_reader_of(const void *data, size_t len);
/* Shortest form only: a number has one spelling. */
uint64_t record_get_u64(struct record_reader *r);
/* Borrowed from the record. */
const unsigned char *record_get_bytes(struct record_reader *r, size_t *ret_len);
const char *record_get_string(struct record_reader *r);
/* Copies a string into buf; damaged when it does not fit. */
void record_get_string_into(struct record_reader *r, char *buf, size_t size);
void record_get_digest(struct record_reader *r, struct digest *ret);
/* A count of things that take at least `least` bytes each: damaged when they cannot all be there,
 * so that it is safe to allocate for them. */
size_t record_get_count(struct record_reader *r, size_t least);
/* True when everything fitted and nothing is left over. */
bool record_end(const struct record_reader *r);

#endif
