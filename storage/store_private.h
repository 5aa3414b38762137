/* What the files that compose blobs and rows share. Not for other folders. */
#ifndef WB_STORAGE_STORE_PRIVATE_H
#define WB_STORAGE_STORE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "storage/blobs.h"
#include "storage/meta.h"
#include "storage/store.h"

/* The format that this program writes; docs/on-disk-format.md tells the history. */
#define STORE_FORMAT 1u

struct store {
    char *dir;
    int lock_fd;
    struct blobs *blobs;
    struct meta *meta;
    unsigned free_floor_percent;
    char owner[INCOMING_OWNER_MAX + 1]; /* this opening of the store */
    _Atomic uint64_t partials, partial_bytes;

    pthread_mutex_t lock;        /* guards: writers */
    struct blob_writer *writers; /* open ones, linked by `next` */
};

/* datadir.c: makes the directory, locks it, checks the format. *ret_lock_fd holds the lock until it
 * is closed. */
int datadir_open(const char *dir, int *ret_lock_fd, struct error *err);

/* recover.c: incoming/ against its rows. Nothing else uses the store yet. */
int store_recover(struct store *s, struct error *err);

/* writer.c */
bool writer_is_open(struct store *s, const struct digest *d);

/* store.c */
int store_check_digest(const struct digest *d, struct error *err);

#endif
