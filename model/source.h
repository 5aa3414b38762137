/* model: what a weight file says about itself, and the documents that we derive from it. Pure
 * functions over bytes: no file, no network, no clock; the same input gives the same output on
 * every machine. Everything in a weight file is hostile: every length is checked against the bytes
 * that are there, and against a budget, before it is used. Thread-safe (no state).
 *
 * Weight formats whose facts stand in a prefix of the file are parsed from that prefix: the parser
 * is handed the first `have` bytes and the file's whole size, and either finishes, fails, or says
 * how long a prefix it surely still needs. The caller then fetches that much (or a little more) and
 * calls again, so that over a network only the header moves.
 *
 * Formats whose facts stand in several places (zip, protobuf) are read through a byte source.
 */
#ifndef WB_MODEL_SOURCE_H
#define WB_MODEL_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Results of a prefix parser; negative = failed, with the error set. */
enum prefix_result {
    PREFIX_DONE = 0,
    PREFIX_MORE = 1, /* *ret_need > have: the least total prefix that it needs to get on */
};

/* A file of a known size, read anywhere. */
struct byte_source {
    uint64_t size;
    /* Fills buf with the len bytes at offset, all of them (offset + len <= size is the caller's to
     * see to), or fails: -1 with the error set. */
    int (*read)(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err);
    void *ctx;
};

#endif
