/* What is in a partial: the file of a download in incoming/, which several connections fill at
 * once. Not for other folders.
 *
 * As long as it is written in order, its length says it. From the first write behind a hole on, a
 * map says it, in the file itself behind the blob's last byte (docs/on-disk-format.md). Each write
 * is noted there before anybody may rely on it, so that a killed process loses nothing; and what
 * was synced is noted by itself, for when the machine stops. A map only ever adds to the one
 * before, and bytes that are there are not written again, so an older one is true as well.
 */
#ifndef WB_STORAGE_PARTIAL_H
#define WB_STORAGE_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/extents.h"
#include "storage/store_private.h"

struct partial {
    uint64_t length;       /* bytes from 0 that may be used */
    struct extents beyond; /* others, behind the first hole */
    uint64_t sequence;     /* of the map that says so; 0 = there is none */
    bool lost;             /* readers may have been given bytes that are not among these */
};
/* Of a transfer's file of so many bytes. Nothing of the result is in need of freeing on failure. */
int partial_read(const struct store *s, const struct incoming_row *row, int fd,
                 uint64_t file_length, struct partial *ret, struct error *err);

/* Whether a blob of this size can have a map. */
bool partial_can_have_map(uint64_t size);
enum map_kind {                  /* on disk: never change a value */
                MAP_WRITTEN = 1, /* good as long as the machine runs */
                MAP_SYNCED = 2,  /* good for ever */
};
/* Notes what there is of the row's file now. sequence: one more than that of the map before. */
int partial_write_map(const struct store *s, const struct incoming_row *row, int fd,
                      enum map_kind kind, uint64_t sequence, uint64_t length,
                      const struct extents *beyond, struct error *err);
/* Gives back the room between the extents and behind them. Only a hint: can not fail. */
void partial_give_back(int fd, uint64_t size, uint64_t length, const struct extents *beyond);

#endif
