/* Rows as a damaged disk would give them: the first byte picks the kind. What decodes must encode
 * to the very same bytes, for a row has one spelling. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "storage/keys.h"
#include "storage/rows.h"

static void same(const struct strbuf *b, const uint8_t *data, size_t size)
{
    if (strbuf_failed(b) || b->len != size || memcmp(b->data, data, size) != 0)
        abort();
}

static void manifest_row(struct strbuf *b, const uint8_t *data, size_t size, struct error *err)
{
    struct manifest_row row;
    if (manifest_row_decode(data, size, &row, err) < 0)
        return;
    struct digest *needs = calloc(row.n_needs + 1, sizeof(*needs));
    if (!needs)
        abort();
    struct record_reader r = row.needs;
    for (size_t i = 0; i < row.n_needs; i++)
        record_get_digest(&r, &needs[i]);
    if (row.subject.alg == DIGEST_NONE && !record_end(&r))
        abort();
    manifest_row_encode(b, &row, needs);
    free(needs);
    same(b, data, size);
}

static void commit_row(struct strbuf *b, const uint8_t *data, size_t size, struct error *err)
{
    struct commit_row row;
    if (commit_row_decode(data, size, &row, err) < 0)
        return;
    struct commit_file *files = calloc(row.n_files + 1, sizeof(*files));
    if (!files)
        abort();
    struct record_reader r = row.files;
    for (size_t i = 0; i < row.n_files; i++)
        commit_file_decode(&r, &files[i]);
    if (!record_end(&r))
        abort();
    commit_row_encode(b, row.upstream, row.repo_id, row.commit, files, row.n_files);
    free(files);
    same(b, data, size);
}

static void pushed_rows(struct strbuf *b, int kind, const uint8_t *data, size_t size,
                        struct error *err)
{
    uint64_t n;
    struct referrer_row referrer;
    struct tag_event event;
    int r;
    if (kind == 8) {
        if ((r = number_row_decode(ROW_HOLD, data, size, &n, err)) == 0)
            number_row_encode(b, ROW_HOLD, n);
    } else if (kind == 9) {
        if ((r = referrer_row_decode(data, size, &referrer, err)) == 0)
            referrer_row_encode(b, &referrer);
    } else {
        if ((r = event_row_decode(data, size, &event, err)) == 0)
            event_row_encode(b, &event);
    }
    if (r == 0)
        same(b, data, size);
}

static void hub_rows(struct strbuf *b, int kind, const uint8_t *data, size_t size,
                     struct error *err)
{
    struct hub_name_row name;
    struct hub_pin_row pin;
    struct hub_document_row document;
    struct hub_object_row object;
    struct hub_commit_row commit;
    int r;
    if (kind == 12) {
        if ((r = hub_name_row_decode(data, size, &name, err)) == 0)
            hub_name_row_encode(b, &name);
    } else if (kind == 13) {
        if ((r = hub_pin_row_decode(data, size, &pin, err)) == 0)
            hub_pin_row_encode(b, &pin);
    } else if (kind == 14) {
        if ((r = hub_document_row_decode(data, size, &document, err)) == 0)
            hub_document_row_encode(b, &document);
    } else if (kind == 15) {
        if ((r = hub_object_row_decode(data, size, &object, err)) == 0)
            hub_object_row_encode(b, &object);
    } else {
        if ((r = hub_commit_row_decode(data, size, &commit, err)) == 0)
            hub_commit_row_encode(b, &commit);
    }
    if (r == 0)
        same(b, data, size);
}

/* A key that comes apart goes together again. */
static void use_key(const uint8_t *data, size_t size)
{
    struct digest blob, manifest;
    const char *repository;
    if (size > KEY_MAX || !key_get_use(data, size, &blob, &repository, &manifest))
        return;
    struct key k = key_of_use(&blob, repository, &manifest);
    if (k.overflow || k.len != size || memcmp(k.data, data, size) != 0)
        abort();
}

static void small_rows(struct strbuf *b, int kind, const uint8_t *data, size_t size,
                       struct error *err)
{
    uint64_t n;
    struct incoming_row incoming;
    struct link_row link;
    struct tag tag;
    struct repository_row repository;
    struct digest digest;
    int r = -1;
    switch (kind) {
    case 0:
        if ((r = blob_row_decode(data, size, &n, err)) == 0)
            blob_row_encode(b, n);
        break;
    case 1:
        if ((r = incoming_row_decode(data, size, &incoming, err)) == 0)
            incoming_row_encode(b, &incoming);
        break;
    case 2:
        if ((r = link_row_decode(data, size, &link, err)) == 0)
            link_row_encode(b, &link);
        break;
    case 3:
        if ((r = tag_row_decode(data, size, &tag, err)) == 0)
            tag_row_encode(b, &tag);
        break;
    case 4:
        if ((r = repository_row_decode(data, size, &repository, err)) == 0)
            repository_row_encode(b, &repository);
        break;
    default:
        if (key_get_digest(data, size, &digest) > size)
            abort();
        break;
    }
    if (r == 0)
        same(b, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct strbuf b = STRBUF_INIT;
    if (size == 0)
        return 0;
    /* a copy of its own, so that a read past the end is seen */
    uint8_t *copy = malloc(size - 1 ? size - 1 : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    int kind = data[0] % 17;
    if (kind == 6)
        manifest_row(&b, copy, size - 1, &err);
    else if (kind == 7)
        commit_row(&b, copy, size - 1, &err);
    else if (kind == 11)
        use_key(copy, size - 1);
    else if (kind >= 12)
        hub_rows(&b, kind, copy, size - 1, &err);
    else if (kind >= 8)
        pushed_rows(&b, kind, copy, size - 1, &err);
    else
        small_rows(&b, kind, copy, size - 1, &err);
    free(copy);
    strbuf_done(&b);
    return 0;
}
