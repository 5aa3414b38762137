/* What the files that compose blobs and rows share. Not for other folders. */
#ifndef WB_STORAGE_STORE_PRIVATE_H
#define WB_STORAGE_STORE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "storage/blobs.h"
#include "storage/meta.h"
#include "storage/store.h"

/* The format that this program writes; docs/on-disk-format.md tells the history. */
#define STORE_FORMAT 2u

#define COMMIT_FILES_MAX 1000000u

/* So many digits of an owner name the boot of the machine, the others are random: what a killed
 * process wrote is still in its file as long as the machine runs. NO_BOOT: the file may have holes
 * or a failed sync behind the synced extent, so nothing else is to be believed. */
#define OWNER_BOOT 16
#define NO_BOOT "0000000000000000"

struct store {
    char *dir;
    int lock_fd;
    struct blobs *blobs;
    struct meta *meta;
    unsigned free_floor_percent;
    char owner[INCOMING_OWNER_MAX + 1]; /* this opening of the store, see OWNER_BOOT */
    _Atomic uint64_t partials, partial_bytes;

    pthread_mutex_t lock;        /* guards: writers */
    struct blob_writer *writers; /* open ones, linked by `next` */

    struct uploads *uploads; /* has a lock of its own */
};

/* datadir.c: makes the directory, locks it, checks the format. *ret_lock_fd holds the lock until it
 * is closed. */
int datadir_open(const char *dir, int *ret_lock_fd, struct error *err);

/* recover.c: incoming/ against its rows. Nothing else uses the store yet. */
int store_recover(struct store *s, struct error *err);
/* How much of a partial's file of this length may be used. *ret_lost: readers may have been given
 * bytes that are not among these. */
uint64_t partial_usable(const struct store *s, const struct incoming_row *row, uint64_t length,
                        bool *ret_lost);
/* Lost bytes will be fetched again, and may then be other ones: whoever has the first ones must not
 * add the end of the second to them. Call it before the loss can be forgotten. */
int partial_lost(struct store *s, const struct digest *d, struct error *err);
int partial_lost_to(struct store *s, const struct digest *d, const struct lent *to,
                    struct error *err);

/* writer.c */
bool writer_is_open(struct store *s, const struct digest *d);

/* upload_table.c */
struct uploads;
int uploads_new(unsigned max, struct uploads **ret, struct error *err);
void uploads_free(struct uploads *t); /* NULL is fine */
uint64_t uploads_count(struct uploads *t);
/* A session from before the start, of so many bytes. */
int upload_adopt(struct store *s, const struct incoming_row *row, uint64_t length, uint64_t mtime_s,
                 struct error *err);

/* store.c: what nothing below checks again. ERR_INVALID */
int store_check_digest(const struct digest *d, struct error *err);
int store_check_repository(const char *repository, struct error *err);
int store_check_tag(const char *repository, const char *tag, struct error *err);
int store_check_content(const char *repository, const struct digest *d, struct error *err);

#endif
