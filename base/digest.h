/* Content digests (OCI image-spec "Digests") and the hashing behind them.
 *
 * A digest is a value: algorithm and raw bytes. It becomes text only at the edges. sha256 and
 * sha512 are the algorithms of content; git's object ids (sha1 over "blob <size>\0" + bytes) only
 * ever check what the Hub sends and are never content addresses.
 */
#ifndef WB_BASE_DIGEST_H
#define WB_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

enum digest_alg {
    DIGEST_NONE = 0,
    DIGEST_SHA256 = 1, /* these numbers are on disk: never change them */
    DIGEST_SHA512 = 2,
};

struct digest {
    enum digest_alg alg;
    unsigned char raw[64]; /* the first digest_size() bytes count, the rest is zero */
};

/* "sha512:" + 128 hex + NUL */
#define DIGEST_TEXT_MAX 136

size_t digest_size(enum digest_alg alg); /* bytes: 32, 64, 0 for none */
const char *digest_alg_name(enum digest_alg alg);
bool digest_equal(const struct digest *a, const struct digest *b);

/* Parses `alg:hex` with exactly the right number of lower-case hex digits. ERR_INVALID for another
 * form, ERR_UNSUPPORTED for a well-formed digest of an algorithm that we do not hold. */
int digest_parse(const char *text, struct digest *ret, struct error *err);
/* The same from bare hex of a known algorithm. */
int digest_parse_hex(enum digest_alg alg, const char *hex, struct digest *ret, struct error *err);
/* Writes `alg:hex` into buf (DIGEST_TEXT_MAX bytes) and returns buf. */
char *digest_format(const struct digest *d, char buf[static DIGEST_TEXT_MAX]);
/* Only the hex. */
char *digest_format_hex(const struct digest *d, char buf[static DIGEST_TEXT_MAX]);

/* A running hash. One owner at a time; hasher_peek() leaves it running. */
struct hasher;
int hasher_new(enum digest_alg alg, struct hasher **ret, struct error *err);
void hasher_free(struct hasher *h);
static inline void hasher_free_p(struct hasher **h)
{
    hasher_free(*h);
}
#define _cleanup_hasher_ _cleanup_(hasher_free_p)
int hasher_update(struct hasher *h, const void *data, size_t len, struct error *err);
/* The digest of what was fed so far; the hasher can be fed on. */
int hasher_peek(const struct hasher *h, struct digest *ret, struct error *err);
/* From now on a thread of the hasher's own does the work, beside whatever the owner does next: what
 * it is fed is copied, and a failure shows at the next call. For a lot of data only. Nothing
 * happens when no processor is to spare: all hashers together have one thread less than the process
 * has processors. */
void hasher_fork(struct hasher *h);
/* Ends that thread when it has done what there is; the hasher goes on without. */
void hasher_join(struct hasher *h);

int digest_of(enum digest_alg alg, const void *data, size_t len, struct digest *ret,
              struct error *err);

/* Git's object id of a file with these bytes, as 40 lower-case hex digits. */
#define GIT_OID_TEXT 41
int git_blob_oid(const void *data, size_t len, char ret[static GIT_OID_TEXT], struct error *err);

/* n bytes as 2n lower-case hex digits and a NUL into buf; returns buf. */
char *hex_format(const void *raw, size_t n, char *buf);
/* What a hexadecimal digit of either case stands for, -1 for any other character. */
int hex_digit(char c);
/* FNV-1a, for hash tables only: spares most of the comparisons, nothing is trusted to it. */
uint64_t text_hash(const char *s);

/* True for exactly n lower-case hex digits and nothing more. */
bool is_lower_hex(const char *s, size_t n);

#endif
