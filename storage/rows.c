#include "storage/rows.h"

#include <string.h>

static int damaged(struct error *err, const char *what)
{
    return err_set(err, ERR_IO, "the %s row is damaged", what);
}

static struct record_reader open_record(const void *data, size_t len, enum row_type type)
{
    struct record_reader r = record_reader_of(data, len);
    if (record_get_u64(&r) != (uint64_t)type)
        r = (struct record_reader){.damaged = true};
    return r;
}

/* Flags are one number so that a later version can add one. */
static bool get_flag(struct record_reader *r)
{
    uint64_t n = record_get_u64(r);
    if (n > 1)
        *r = (struct record_reader){.damaged = true};
    return n == 1;
}

void blob_row_encode(struct strbuf *b, uint64_t size)
{
    number_row_encode(b, ROW_BLOB, size);
}

int blob_row_decode(const void *data, size_t len, uint64_t *ret_size, struct error *err)
{
    return number_row_decode(ROW_BLOB, data, len, ret_size, err);
}

void number_row_encode(struct strbuf *b, enum row_type type, uint64_t n)
{
    record_put_u64(b, (uint64_t)type);
    record_put_u64(b, n);
}

int number_row_decode(enum row_type type, const void *data, size_t len, uint64_t *ret,
                      struct error *err)
{
    struct record_reader r = open_record(data, len, type);
    uint64_t n = record_get_u64(&r);
    if (!record_end(&r))
        return damaged(err, type == ROW_BLOB       ? "blob"
                            : type == ROW_MISMATCH ? "mismatch"
                            : type == ROW_HOLD     ? "hold"
                                                   : "counter");
    *ret = n;
    return 0;
}

static const struct name_id no_source;

void incoming_row_encode(struct strbuf *b, const struct incoming_row *row)
{
    record_put_u64(b, ROW_INCOMING);
    record_put_u64(b, (uint64_t)row->kind);
    record_put_string(b, row->file);
    record_put_string(b, row->owner);
    record_put_digest(b, &row->digest);
    record_put_u64(b, row->size);
    record_put_u64(b, row->synced);
    record_put_u64(b, row->created);
    if (row->kind == INCOMING_UPLOAD) {
        record_put_string(b, row->repository);
        record_put_u64(b, (uint64_t)row->alg);
    } else if (row->kind == INCOMING_TRANSFER && !name_id_equal(&row->source, &no_source)) {
        record_put_bytes(b, row->source.raw, sizeof(row->source.raw));
        record_put_u64(b, row->lent.all);
        record_put_bytes(b, row->lent.to, row->lent.all ? 0 : row->lent.n * NAME_ID_SIZE);
    }
}

/* The name is used in incoming/: nothing but what we make ourselves. */
static bool file_is_valid(const char *file)
{
    size_t n = strspn(file, "0123456789abcdef");
    return file[n] == '\0';
}

/* What only uploads have, behind what all kinds do. */
static bool get_upload(struct record_reader *r, struct incoming_row *row)
{
    record_get_string_into(r, row->repository, sizeof(row->repository));
    uint64_t alg = record_get_u64(r);
    row->alg = (enum digest_alg)alg;
    return (alg == DIGEST_SHA256 || alg == DIGEST_SHA512) && is_lower_hex(row->file, 32) &&
           repository_is_valid(row->repository);
}

/* What only transfers have that know their source. */
static bool get_source(struct record_reader *r, struct incoming_row *row)
{
    size_t source_len, len;
    row->lent.all = r->left == 0;
    if (row->lent.all)
        return true;
    const unsigned char *source = record_get_bytes(r, &source_len);
    row->lent.all = get_flag(r);
    const unsigned char *lent = record_get_bytes(r, &len);
    if (r->damaged || source_len != NAME_ID_SIZE || len % NAME_ID_SIZE ||
        len > sizeof(row->lent.to) || (row->lent.all && len))
        return false;
    memcpy(row->source.raw, source, source_len);
    memcpy(row->lent.to, lent, len);
    row->lent.n = (unsigned)(len / NAME_ID_SIZE);
    return !name_id_equal(&row->source, &no_source);
}

int incoming_row_decode(const void *data, size_t len, struct incoming_row *ret, struct error *err)
{
    struct incoming_row row = {0};
    struct record_reader r = open_record(data, len, ROW_INCOMING);
    uint64_t kind = record_get_u64(&r);
    record_get_string_into(&r, row.file, sizeof(row.file));
    record_get_string_into(&r, row.owner, sizeof(row.owner));
    record_get_digest(&r, &row.digest);
    row.size = record_get_u64(&r);
    row.synced = record_get_u64(&r);
    row.created = record_get_u64(&r);
    if ((kind == INCOMING_UPLOAD && !get_upload(&r, &row)) ||
        (kind == INCOMING_TRANSFER && !get_source(&r, &row)))
        return damaged(err, "incoming");
    if (!record_end(&r) || !file_is_valid(row.file))
        return damaged(err, "incoming");
    if (kind != INCOMING_TRANSFER && kind != INCOMING_PUT && kind != INCOMING_REMOVAL &&
        kind != INCOMING_UPLOAD)
        return damaged(err, "incoming");
    row.kind = (enum incoming_kind)kind;
    if ((row.file[0] == '\0') != (row.kind == INCOMING_REMOVAL))
        return damaged(err, "incoming");
    if (row.digest.alg == DIGEST_NONE && row.kind != INCOMING_UPLOAD)
        return damaged(err, "incoming");
    *ret = row;
    return 0;
}

void link_row_encode(struct strbuf *b, const struct link_row *row)
{
    record_put_u64(b, ROW_LINK);
    record_put_u64(b, row->size);
    record_put_u64(b, row->n_origins);
    for (size_t i = 0; i < row->n_origins; i++) {
        record_put_string(b, row->origins[i].upstream);
        record_put_string(b, row->origins[i].repo_id);
        record_put_string(b, row->origins[i].commit);
        record_put_string(b, row->origins[i].path);
    }
    if (row->is_claimed)
        record_put_u64(b, 1);
}

int link_row_decode(const void *data, size_t len, struct link_row *ret, struct error *err)
{
    struct link_row row = {0};
    struct record_reader r = open_record(data, len, ROW_LINK);
    row.size = record_get_u64(&r);
    size_t n = record_get_count(&r, 8);
    if (n > LINK_ORIGINS_MAX)
        return damaged(err, "link");
    for (size_t i = 0; i < n; i++) {
        struct origin *o = &row.origins[i];
        o->upstream = record_get_string(&r);
        o->repo_id = record_get_string(&r);
        o->commit = record_get_string(&r);
        o->path = record_get_string(&r);
    }
    row.n_origins = n;
    /* The flag is there only where it says something. */
    bool has_flag = r.left > 0;
    row.is_claimed = has_flag && get_flag(&r);
    if (!record_end(&r) || has_flag != row.is_claimed)
        return damaged(err, "link");
    *ret = row;
    return 0;
}

void manifest_row_encode(struct strbuf *b, const struct manifest_row *row,
                         const struct digest *needs)
{
    record_put_u64(b, ROW_MANIFEST);
    record_put_string(b, row->media_type);
    record_put_string(b, row->commit);
    record_put_bytes(b, row->bytes, row->len);
    record_put_u64(b, row->n_needs);
    for (size_t i = 0; i < row->n_needs; i++)
        record_put_digest(b, &needs[i]);
    if (row->subject.alg != DIGEST_NONE)
        record_put_digest(b, &row->subject);
}

int manifest_row_decode(const void *data, size_t len, struct manifest_row *ret, struct error *err)
{
    struct manifest_row row = {0};
    struct record_reader r = open_record(data, len, ROW_MANIFEST);
    row.media_type = record_get_string(&r);
    row.commit = record_get_string(&r);
    row.bytes = record_get_bytes(&r, &row.len);
    row.n_needs = record_get_count(&r, 33);
    row.needs = r;
    for (size_t i = 0; i < row.n_needs; i++) {
        struct digest d;
        record_get_digest(&r, &d);
        if (d.alg == DIGEST_NONE)
            return damaged(err, "manifest");
    }
    if (!record_end(&r)) { /* the subject is there only when there is one: so it was in format 1 */
        record_get_digest(&r, &row.subject);
        if (row.subject.alg == DIGEST_NONE)
            return damaged(err, "manifest");
    }
    if (!record_end(&r))
        return damaged(err, "manifest");
    *ret = row;
    return 0;
}

void referrer_row_encode(struct strbuf *b, const struct referrer_row *row)
{
    record_put_u64(b, ROW_REFERRER);
    record_put_u64(b, row->size);
    record_put_string(b, row->media_type);
    record_put_string(b, row->artifact_type);
    record_put_text(b, row->annotations, row->annotations_len);
}

static struct record_reader referrer_head(const void *data, size_t len, struct referrer_row *row)
{
    struct record_reader r = open_record(data, len, ROW_REFERRER);
    row->size = record_get_u64(&r);
    row->media_type = record_get_string(&r);
    row->artifact_type = record_get_string(&r);
    return r;
}

bool referrer_row_may_be(const void *data, size_t len, const char *artifact_type)
{
    struct referrer_row row = {0};
    struct record_reader r = referrer_head(data, len, &row);
    return r.damaged || strcmp(row.artifact_type, artifact_type) == 0;
}

int referrer_row_decode(const void *data, size_t len, struct referrer_row *ret, struct error *err)
{
    struct referrer_row row = {0};
    struct record_reader r = referrer_head(data, len, &row);
    row.annotations = record_get_string(&r);
    if (!record_end(&r))
        return damaged(err, "referrer");
    row.annotations_len = strlen(row.annotations);
    *ret = row;
    return 0;
}

void event_row_encode(struct strbuf *b, const struct tag_event *row)
{
    record_put_u64(b, ROW_EVENT);
    record_put_u64(b, row->at_ms);
    record_put_digest(b, &row->digest);
    record_put_string(b, row->commit);
    record_put_string(b, row->source);
}

int event_row_decode(const void *data, size_t len, struct tag_event *ret, struct error *err)
{
    struct tag_event row = {0};
    struct record_reader r = open_record(data, len, ROW_EVENT);
    row.at_ms = record_get_u64(&r);
    record_get_digest(&r, &row.digest);
    record_get_string_into(&r, row.commit, sizeof(row.commit));
    row.source = record_get_string(&r);
    if (!record_end(&r))
        return damaged(err, "history");
    *ret = row;
    return 0;
}

void tag_row_encode(struct strbuf *b, const struct tag *row)
{
    record_put_u64(b, ROW_TAG);
    record_put_digest(b, &row->digest);
    record_put_string(b, row->commit);
    record_put_u64(b, row->checked_at);
}

int tag_row_decode(const void *data, size_t len, struct tag *ret, struct error *err)
{
    struct tag row = {0};
    struct record_reader r = open_record(data, len, ROW_TAG);
    record_get_digest(&r, &row.digest);
    record_get_string_into(&r, row.commit, sizeof(row.commit));
    row.checked_at = record_get_u64(&r);
    if (!record_end(&r) || row.digest.alg == DIGEST_NONE)
        return damaged(err, "tag");
    *ret = row;
    return 0;
}

void repository_row_encode(struct strbuf *b, const struct repository_row *row)
{
    record_put_u64(b, ROW_REPOSITORY);
    record_put_string(b, row->upstream);
    record_put_string(b, row->repo_id);
}

int repository_row_decode(const void *data, size_t len, struct repository_row *ret,
                          struct error *err)
{
    struct repository_row row;
    struct record_reader r = open_record(data, len, ROW_REPOSITORY);
    record_get_string_into(&r, row.upstream, sizeof(row.upstream));
    record_get_string_into(&r, row.repo_id, sizeof(row.repo_id));
    if (!record_end(&r))
        return damaged(err, "repository");
    *ret = row;
    return 0;
}

void commit_row_encode(struct strbuf *b, const char *upstream, const char *repo_id,
                       const char *commit, const struct commit_file *files, size_t n)
{
    record_put_u64(b, ROW_COMMIT);
    record_put_string(b, upstream);
    record_put_string(b, repo_id);
    record_put_string(b, commit);
    record_put_u64(b, n);
    for (size_t i = 0; i < n; i++) {
        record_put_string(b, files[i].path);
        record_put_u64(b, files[i].size);
        record_put_string(b, files[i].git_oid);
        record_put_u64(b, files[i].has_lfs);
        record_put_digest(b, &files[i].sha256);
    }
}

void commit_file_decode(struct record_reader *r, struct commit_file *ret)
{
    ret->path = record_get_string(r);
    ret->size = record_get_u64(r);
    record_get_string_into(r, ret->git_oid, sizeof(ret->git_oid));
    ret->has_lfs = get_flag(r);
    record_get_digest(r, &ret->sha256);
}

int commit_row_decode(const void *data, size_t len, struct commit_row *ret, struct error *err)
{
    struct commit_row row = {0};
    struct record_reader r = open_record(data, len, ROW_COMMIT);
    row.upstream = record_get_string(&r);
    row.repo_id = record_get_string(&r);
    row.commit = record_get_string(&r);
    row.n_files = record_get_count(&r, 7); /* path 2, size 1, oid 2, flag 1, digest 1 */
    row.files = r;
    for (size_t i = 0; i < row.n_files && !r.damaged; i++) {
        struct commit_file f;
        commit_file_decode(&r, &f);
    }
    if (!record_end(&r))
        return damaged(err, "commit");
    *ret = row;
    return 0;
}

void hub_name_row_encode(struct strbuf *b, const struct hub_name_row *row)
{
    record_put_u64(b, ROW_HUB_NAME);
    record_put_string(b, row->upstream);
    record_put_string(b, row->name);
    record_put_string(b, row->id);
    record_put_u64(b, row->checked_at);
}

int hub_name_row_decode(const void *data, size_t len, struct hub_name_row *ret, struct error *err)
{
    struct hub_name_row row = {0};
    struct record_reader r = open_record(data, len, ROW_HUB_NAME);
    row.upstream = record_get_string(&r);
    row.name = record_get_string(&r);
    row.id = record_get_string(&r);
    row.checked_at = record_get_u64(&r);
    if (!record_end(&r) || !*row.id || strlen(row.id) > REPOSITORY_MAX)
        return damaged(err, "Hub name");
    *ret = row;
    return 0;
}

void hub_pin_row_encode(struct strbuf *b, const struct hub_pin_row *row)
{
    record_put_u64(b, ROW_HUB_PIN);
    record_put_string(b, row->upstream);
    record_put_string(b, row->id);
    record_put_string(b, row->revision);
    record_put_string(b, row->commit);
    record_put_u64(b, row->checked_at);
}

int hub_pin_row_decode(const void *data, size_t len, struct hub_pin_row *ret, struct error *err)
{
    struct hub_pin_row row = {0};
    struct record_reader r = open_record(data, len, ROW_HUB_PIN);
    row.upstream = record_get_string(&r);
    row.id = record_get_string(&r);
    row.revision = record_get_string(&r);
    row.commit = record_get_string(&r);
    row.checked_at = record_get_u64(&r);
    if (!record_end(&r) || !is_lower_hex(row.commit, GIT_ID_LEN))
        return damaged(err, "Hub revision");
    *ret = row;
    return 0;
}

void hub_document_row_encode(struct strbuf *b, const struct hub_document_row *row)
{
    record_put_u64(b, ROW_HUB_DOCUMENT);
    record_put_string(b, row->upstream);
    record_put_string(b, row->id);
    record_put_string(b, row->commit);
    record_put_string(b, row->what);
    record_put_u64(b, row->checked_at);
    strbuf_reserve(b, row->len + 16); /* it may be large: no room that is doubled */
    record_put_bytes(b, row->bytes, row->len);
}

int hub_document_row_decode(const void *data, size_t len, struct hub_document_row *ret,
                            struct error *err)
{
    struct hub_document_row row = {0};
    struct record_reader r = open_record(data, len, ROW_HUB_DOCUMENT);
    row.upstream = record_get_string(&r);
    row.id = record_get_string(&r);
    row.commit = record_get_string(&r);
    row.what = record_get_string(&r);
    row.checked_at = record_get_u64(&r);
    row.bytes = record_get_bytes(&r, &row.len);
    if (!record_end(&r))
        return damaged(err, "Hub document");
    *ret = row;
    return 0;
}

void hub_object_row_encode(struct strbuf *b, const struct hub_object_row *row)
{
    record_put_u64(b, ROW_HUB_OBJECT);
    record_put_string(b, row->upstream);
    record_put_string(b, row->id);
    record_put_string(b, row->git_oid);
    record_put_digest(b, &row->digest);
}

int hub_object_row_decode(const void *data, size_t len, struct hub_object_row *ret,
                          struct error *err)
{
    struct hub_object_row row = {0};
    struct record_reader r = open_record(data, len, ROW_HUB_OBJECT);
    row.upstream = record_get_string(&r);
    row.id = record_get_string(&r);
    row.git_oid = record_get_string(&r);
    record_get_digest(&r, &row.digest);
    if (!record_end(&r) || row.digest.alg != DIGEST_SHA256)
        return damaged(err, "git object");
    *ret = row;
    return 0;
}

void hub_commit_row_encode(struct strbuf *b, const struct hub_commit_row *row)
{
    record_put_u64(b, ROW_HUB_COMMIT);
    record_put_string(b, row->upstream);
    record_put_string(b, row->id);
    record_put_string(b, row->commit);
}

int hub_commit_row_decode(const void *data, size_t len, struct hub_commit_row *ret,
                          struct error *err)
{
    struct hub_commit_row row = {0};
    struct record_reader r = open_record(data, len, ROW_HUB_COMMIT);
    row.upstream = record_get_string(&r);
    row.id = record_get_string(&r);
    row.commit = record_get_string(&r);
    if (!record_end(&r))
        return damaged(err, "Hub commit");
    *ret = row;
    return 0;
}
