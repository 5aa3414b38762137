/* The rows themselves: what each holds and how it becomes bytes. Every record begins with its
 * type, so that a row can never be taken for another kind.
 *
 * Decoding borrows: strings and bytes point into the record that was given and live as long as it
 * does. A record that breaks any rule gives ERR_IO with "damaged" in its text, never more.
 */
#ifndef WB_STORAGE_ROWS_H
#define WB_STORAGE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "storage/lent.h"
#include "storage/record.h"
#include "storage/store.h"

enum row_type { /* on disk: never change a number */
                ROW_BLOB = 1,
                ROW_INCOMING = 2,
                ROW_LINK = 3,
                ROW_MANIFEST = 4,
                ROW_TAG = 5,
                ROW_REPOSITORY = 6,
                ROW_COMMIT = 7,
                ROW_MISMATCH = 8,
                ROW_COUNTER = 9,
                ROW_HOLD = 10,
                ROW_REFERRER = 11,
                ROW_EVENT = 12,
                ROW_MAP = 13, /* no row: in the file of a partial, see storage/partial.h */
                ROW_HUB_NAME = 14,
                ROW_HUB_PIN = 15,
                ROW_HUB_DOCUMENT = 16,
                ROW_HUB_OBJECT = 17,
                ROW_HUB_COMMIT = 18,
};

/* A file in incoming/, or a file in blobs/ that is about to go. */
enum incoming_kind {                          /* on disk: never change a value */
                     INCOMING_TRANSFER = 't', /* the partial of a digest; key: the digest */
                     INCOMING_PUT = 'p',      /* small content of a running put; key: the file */
                     INCOMING_REMOVAL = 'r',  /* the blob's row is gone, its file has to follow */
                     INCOMING_UPLOAD = 'u', /* an upload session; key: the file, which is its id */
};

#define GIT_ID_LEN 40 /* hex digits of a commit or object */
#define INCOMING_FILE_MAX 40
#define INCOMING_OWNER_MAX 32

struct incoming_row {
    enum incoming_kind kind;
    char file[INCOMING_FILE_MAX + 1];   /* name inside incoming/; empty for a removal */
    char owner[INCOMING_OWNER_MAX + 1]; /* the process that holds it */
    struct digest digest;               /* of an upload: none until its commit */
    uint64_t size;                      /* WRITER_SIZE_UNKNOWN: not known yet */
    uint64_t synced;                    /* bytes from 0 that are known to be on disk */
    uint64_t created;
    char repository[REPOSITORY_MAX + 1]; /* this and the next only of an upload */
    enum digest_alg alg;                 /* what is hashed while the bytes come */
    struct name_id source;               /* this and the next only of a transfer that has one */
    struct lent lent;                    /* of a transfer that has none: all */
};

#define LINK_ORIGINS_MAX 4

struct link_row {
    uint64_t size;
    bool is_claimed; /* see struct link */
    size_t n_origins;
    struct origin origins[LINK_ORIGINS_MAX]; /* newest first */
};

struct manifest_row {
    const char *media_type;
    const char *commit; /* the newest that gave it, "" when pushed */
    const unsigned char *bytes;
    size_t len;
    size_t n_needs;             /* the blobs it references */
    struct record_reader needs; /* decoding: record_get_digest() n_needs times */
    struct digest subject;      /* alg NONE: it has none */
};

/* What the list of referrers says of a manifest. */
struct referrer_row {
    uint64_t size;
    const char *media_type, *artifact_type;
    const char *annotations; /* a JSON object; empty: none */
    size_t annotations_len;
};

struct commit_row {
    const char *upstream, *repo_id, *commit;
    size_t n_files;
    struct record_reader files; /* commit_file_decode() n_files times */
};

/* Of the Hub's own API, see storage/hub.h. Keys are hashes, so these rows repeat the names. */
struct hub_name_row {
    const char *upstream, *name, *id;
    uint64_t checked_at;
};
struct hub_pin_row {
    const char *upstream, *id, *revision, *commit;
    uint64_t checked_at;
};
struct hub_document_row {
    const char *upstream, *id, *commit, *what;
    uint64_t checked_at;
    const unsigned char *bytes;
    size_t len;
};
struct hub_object_row {
    const char *upstream, *id, *git_oid;
    struct digest digest;
};
struct hub_commit_row {
    const char *upstream, *id, *commit;
};

void blob_row_encode(struct strbuf *b, uint64_t size);
int blob_row_decode(const void *data, size_t len, uint64_t *ret_size, struct error *err);

void incoming_row_encode(struct strbuf *b, const struct incoming_row *row);
int incoming_row_decode(const void *data, size_t len, struct incoming_row *ret, struct error *err);

void link_row_encode(struct strbuf *b, const struct link_row *row);
int link_row_decode(const void *data, size_t len, struct link_row *ret, struct error *err);

void manifest_row_encode(struct strbuf *b, const struct manifest_row *row,
                         const struct digest *needs);
int manifest_row_decode(const void *data, size_t len, struct manifest_row *ret, struct error *err);

void referrer_row_encode(struct strbuf *b, const struct referrer_row *row);
int referrer_row_decode(const void *data, size_t len, struct referrer_row *ret, struct error *err);
/* Whether it may be of this artifact type; looks at the beginning only (annotations may be large).
 * True when that is damaged: decoding says so. */
bool referrer_row_may_be(const void *data, size_t len, const char *artifact_type);

void event_row_encode(struct strbuf *b, const struct tag_event *row);
int event_row_decode(const void *data, size_t len, struct tag_event *ret, struct error *err);

void tag_row_encode(struct strbuf *b, const struct tag *row);
int tag_row_decode(const void *data, size_t len, struct tag *ret, struct error *err);

void repository_row_encode(struct strbuf *b, const struct repository_row *row);
int repository_row_decode(const void *data, size_t len, struct repository_row *ret,
                          struct error *err);

void commit_row_encode(struct strbuf *b, const char *upstream, const char *repo_id,
                       const char *commit, const struct commit_file *files, size_t n);
int commit_row_decode(const void *data, size_t len, struct commit_row *ret, struct error *err);
/* Only on what commit_row_decode() accepted: cannot fail there. */
void commit_file_decode(struct record_reader *r, struct commit_file *ret);

void hub_name_row_encode(struct strbuf *b, const struct hub_name_row *row);
int hub_name_row_decode(const void *data, size_t len, struct hub_name_row *ret, struct error *err);

void hub_pin_row_encode(struct strbuf *b, const struct hub_pin_row *row);
int hub_pin_row_decode(const void *data, size_t len, struct hub_pin_row *ret, struct error *err);

void hub_document_row_encode(struct strbuf *b, const struct hub_document_row *row);
int hub_document_row_decode(const void *data, size_t len, struct hub_document_row *ret,
                            struct error *err);

void hub_object_row_encode(struct strbuf *b, const struct hub_object_row *row);
int hub_object_row_decode(const void *data, size_t len, struct hub_object_row *ret,
                          struct error *err);

void hub_commit_row_encode(struct strbuf *b, const struct hub_commit_row *row);
int hub_commit_row_decode(const void *data, size_t len, struct hub_commit_row *ret,
                          struct error *err);

/* A single number: a mismatch's end, a counter, when a hold was made. */
void number_row_encode(struct strbuf *b, enum row_type type, uint64_t n);
int number_row_decode(enum row_type type, const void *data, size_t len, uint64_t *ret,
                      struct error *err);

#endif
