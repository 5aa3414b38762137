/* The collector. What no link names is found from the rows; the rows go first, leaving removal rows
 * behind, then the files, then the removal rows: a crash in between is settled at the next start.
 */
#include <stdlib.h>

#include "storage/fault.h"
#include "storage/store_private.h"

#define CHUNK 1024u

static int remove_blobs(struct store *s, const struct dead_blob *dead, size_t n, struct error *err)
{
    if (meta_blobs_doom(s->meta, dead, n, err) < 0)
        return -1;
    fault_point("gc.doomed");
    for (size_t i = 0; i < n; i++)
        if (blobs_remove(s->blobs, &dead[i].digest, err) < 0)
            return -1;
    /* The names must be gone for good before what remembers them is. */
    if (blobs_sync_all(s->blobs, err) < 0)
        return -1;
    fault_point("gc.unlinked");
    return meta_blobs_gone(s->meta, dead, n, err);
}

static int collect_blobs(struct store *s, bool dry_run, struct gc_result *result, struct error *err)
{
    struct dead_blob *dead = calloc(CHUNK, sizeof(*dead));
    if (!dead)
        return err_set(err, ERR_NOMEM, "out of memory");
    struct digest after = {.alg = DIGEST_NONE};
    int more = 1;
    while (more == 1) {
        size_t n = 0;
        struct digest next = after;
        more = meta_dead_blobs(s->meta, after.alg ? &after : NULL, dead, CHUNK, &n, &next, err);
        if (more >= 0 && n && !dry_run && remove_blobs(s, dead, n, err) < 0)
            more = -1;
        for (size_t i = 0; more >= 0 && i < n; i++) {
            result->blobs_removed++;
            result->bytes_removed += dead[i].size;
        }
        after = next;
    }
    free(dead);
    return more;
}

static int collect_partials(struct store *s, bool dry_run, struct gc_result *result,
                            struct error *err)
{
    struct incoming_list list = {0};
    if (meta_incoming_list(s->meta, &list, err) < 0)
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        const struct incoming_row *row = &list.rows[i];
        if (row->kind != INCOMING_TRANSFER || writer_is_open(s, &row->digest))
            continue;
        r = meta_is_linked(s->meta, &row->digest, err);
        if (r != 0) {
            r = r < 0 ? -1 : 0;
            continue;
        }
        result->partials_removed++;
        if (dry_run)
            continue;
        r = staging_remove(s->blobs, row->file, err);
        if (r == 0)
            r = meta_incoming_delete(s->meta, row, err);
        if (r == 0) {
            atomic_fetch_sub(&s->partials, 1);
            atomic_fetch_sub(&s->partial_bytes, row->synced);
        }
    }
    incoming_list_done(&list);
    return r;
}

struct orphan_ctx {
    struct store *s;
    bool dry_run;
    struct gc_result *result;
};

/* A file without a row: a commit that failed after the rename, or a folder put back by hand. */
static int visit_file(void *arg, const struct digest *d, uint64_t size, struct error *err)
{
    struct orphan_ctx *c = arg;
    uint64_t row_size;
    if (writer_is_open(c->s, d) || meta_blob_get(c->s->meta, d, &row_size, NULL) != 0)
        return 0;
    c->result->blobs_removed++;
    c->result->bytes_removed += size;
    return c->dry_run ? 0 : blobs_remove(c->s->blobs, d, err);
}

int store_gc(struct store *s, const struct gc_options *options, struct gc_result *ret,
             struct error *err)
{
    bool dry_run = options->dry_run;
    struct gc_result result = {0};
    struct orphan_ctx orphans = {.s = s, .dry_run = dry_run, .result = &result};
    if (collect_blobs(s, dry_run, &result, err) < 0 ||
        collect_partials(s, dry_run, &result, err) < 0 ||
        blobs_each(s->blobs, visit_file, &orphans, err) < 0)
        return -1;
    if (!dry_run && meta_tidy(s->meta, err) < 0)
        return -1;
    *ret = result;
    return 0;
}
