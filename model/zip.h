/* The members of a zip file, found leniently: what loaders of models accept is wider than what the
 * format allows, and a member that a scanner can not see is where something hides. So every entry
 * of every central directory that a loader could take counts, and so does every local header that
 * stands where no member is (before, between or behind them), whatever its flags, names and
 * checksums say. Reads through a byte source, never more than its budgets; Zip64 is understood.
 * Method 0 (stored) and 8 (deflate) are opened, others only listed.
 */
#ifndef WB_MODEL_ZIP_H
#define WB_MODEL_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/source.h"

#define ZIP_MEMBERS_MAX 100000u

enum {
    ZIP_STORED = 0,
    ZIP_DEFLATED = 8,
};

struct zip_member {
    char *name;        /* as the place where it was found says, NUL-terminated, NULs in it cut */
    uint64_t header;   /* byte of its local header */
    uint64_t data;     /* byte of its data; 0 = its local header is not there */
    uint64_t packed;   /* bytes in the file, the larger where two places disagree, never beyond the
                          file's end; of a member with a data descriptor that the central directory
                          does not know: up to the next header */
    uint64_t unpacked; /* as stated; not to be trusted */
    uint16_t method, flags;
    bool in_directory; /* named by the central directory */
    bool in_file;      /* has a local header */
    bool renamed;      /* the two give it different names */
};

struct zip {
    struct zip_member *members; /* by the byte of the header */
    size_t n;
    bool unsearched;   /* bytes that no member covers were too many to search for more of them */
    char warning[200]; /* what is odd about the file as a whole; empty = nothing */
};

/* ERR_INVALID: neither an end of central directory nor a local header in the first 64 KiB;
 * ERR_TOO_LARGE: more members than ZIP_MEMBERS_MAX or a directory over 64 MiB. zip_done() in any
 * case. */
int zip_read(const struct byte_source *s, struct zip *ret, struct error *err);
void zip_done(struct zip *z);

/* The bytes of a member, unpacked, from its beginning on: up to len, fewer at its end. A stream
 * that breaks gives what came before it and *ret_broken. The flag that it is encrypted is not
 * heeded (loaders differ there): such a member is read as if it were not. A member without a local
 * header, or of another method: -1, ERR_UNSUPPORTED. The source must outlive the stream. */
struct zip_stream;
int zip_open(const struct byte_source *s, const struct zip_member *m, struct zip_stream **ret,
             struct error *err);
int zip_stream_read(struct zip_stream *z, void *buf, size_t len, size_t *ret_n, bool *ret_broken,
                    struct error *err);
void zip_close(struct zip_stream *z);

#endif
