/* The end of an upload: its blob is held, its repository has the link, its row is gone, all at
 * once.
 */
#include "storage/meta_private.h"

#include "base/clock.h"

int upload_publish(struct meta *m, MDB_txn *txn, const struct incoming_row *row, struct error *err)
{
    if (blob_publish(m, txn, row, err) < 0)
        return -1;
    return link_hold(m, txn, row->repository, &row->digest, row->size, clock_wall_s(), err);
}

static int run_publish(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    return upload_publish(m, txn, arg, err);
}

int meta_upload_publish(struct meta *m, const struct incoming_row *row, struct error *err)
{
    struct incoming_row copy = *row;
    return meta_write(m, run_publish, &copy, err);
}

struct link_args {
    struct incoming_row row;
    bool held;
};

static int run_link(struct meta *m, MDB_txn *txn, void *arg, struct error *err)
{
    struct link_args *a = arg;
    const struct incoming_row *row = &a->row;
    uint64_t size;
    /* A damaged row is as good as none: the caller's own bytes write it anew. */
    a->held = blob_get(m, txn, &row->digest, &size, NULL) == 1 && size == row->size;
    if (!a->held)
        return 0;
    if (incoming_drop(m, txn, row, err) < 0)
        return -1;
    return link_hold(m, txn, row->repository, &row->digest, row->size, clock_wall_s(), err);
}

int meta_upload_link(struct meta *m, const struct incoming_row *row, struct error *err)
{
    struct link_args a = {.row = *row};
    return meta_write(m, run_link, &a, err) < 0 ? -1 : a.held;
}
