/* The collector. What no link names is found from the rows; the rows go first, leaving removal rows
 * behind, then the files, then the removal rows: a crash in between is settled at the next start.
 */
#include <stdlib.h>

#include "base/clock.h"
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

struct gc_run {
    struct store *s;
    bool dry_run;
    uint64_t cutoff_s; /* holds from then or before hold nothing */
    struct gc_result result;
};

static int collect_blobs(struct gc_run *g, struct error *err)
{
    struct dead_blobs dead = {.blobs = calloc(CHUNK, sizeof(*dead.blobs)), .limit = CHUNK};
    if (!dead.blobs)
        return err_set(err, ERR_NOMEM, "out of memory");
    struct digest after = {.alg = DIGEST_NONE};
    int more = 1;
    while (more == 1) {
        more = meta_dead_blobs(g->s->meta, after.alg ? &after : NULL, g->cutoff_s, &dead, err);
        if (more >= 0 && dead.n && !g->dry_run && remove_blobs(g->s, dead.blobs, dead.n, err) < 0)
            more = -1;
        for (size_t i = 0; more >= 0 && i < dead.n; i++) {
            g->result.blobs_removed++;
            g->result.bytes_removed += dead.blobs[i].size;
        }
        g->result.blobs_held += dead.held;
        after = dead.next;
    }
    free(dead.blobs);
    return more;
}

static int remove_partial(struct store *s, const struct incoming_row *row, struct error *err)
{
    if (staging_remove(s->blobs, row->file, err) < 0 || meta_incoming_delete(s->meta, row, err) < 0)
        return -1;
    atomic_fetch_sub(&s->partials, 1);
    atomic_fetch_sub(&s->partial_bytes, row->synced);
    return 0;
}

static int collect_partials(struct gc_run *g, struct error *err)
{
    struct incoming_list list = {0};
    if (meta_incoming_list(g->s->meta, &list, err) < 0)
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        const struct incoming_row *row = &list.rows[i];
        if (row->kind != INCOMING_TRANSFER || writer_is_open(g->s, &row->digest))
            continue;
        r = meta_is_needed(g->s->meta, &row->digest, g->cutoff_s, err);
        if (r != 0) {
            r = r < 0 ? -1 : 0;
            continue;
        }
        g->result.partials_removed++;
        if (!g->dry_run)
            r = remove_partial(g->s, row, err);
    }
    incoming_list_done(&list);
    return r;
}

/* A file without a row: a commit that failed after the rename, or a folder put back by hand. */
static int visit_file(void *arg, const struct digest *d, uint64_t size, struct error *err)
{
    struct gc_run *g = arg;
    uint64_t row_size;
    if (writer_is_open(g->s, d) || meta_blob_get(g->s->meta, d, &row_size, NULL) != 0)
        return 0;
    g->result.blobs_removed++;
    g->result.bytes_removed += size;
    return g->dry_run ? 0 : blobs_remove(g->s->blobs, d, err);
}

int store_gc(struct store *s, const struct gc_options *options, struct gc_result *ret,
             struct error *err)
{
    uint64_t now = clock_wall_s();
    struct gc_run g = {.s = s, .dry_run = options->dry_run};
    g.cutoff_s = now > options->grace_s ? now - options->grace_s : 0;
    /* Holds go first: what only they kept is dead. (A dry run leaves them out of its sums.) */
    if (!g.dry_run && meta_holds_expire(s->meta, g.cutoff_s, err) < 0)
        return -1;
    if (collect_blobs(&g, err) < 0 || collect_partials(&g, err) < 0 ||
        blobs_each(s->blobs, visit_file, &g, err) < 0)
        return -1;
    if (!g.dry_run && meta_tidy(s->meta, err) < 0)
        return -1;
    *ret = g.result;
    return 0;
}
