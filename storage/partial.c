#include "storage/partial.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/strbuf.h"

/* Two places take turns for what was written, so that one that was being written when the process
 * died does not matter; the third is for what was synced. */
#define SLOT ((uint64_t)64 << 10)
#define SLOTS 3u
#define SLOT_HEAD (4u + 32u) /* the record's length, the record's sha256 */
#define PAGE ((uint64_t)4096)
#define EXTENTS_MAX 3000u /* of at most 20 bytes each */

/* ---- the map -------------------------------------------------------------------------------- */

static uint64_t map_start(uint64_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

bool partial_can_have_map(uint64_t size)
{
    return size <= INT64_MAX - PAGE - SLOTS * SLOT;
}

static void encode(struct strbuf *b, const struct store *s, const struct incoming_row *row,
                   enum map_kind kind, uint64_t sequence, uint64_t length,
                   const struct extents *beyond)
{
    size_t n = beyond->n < EXTENTS_MAX ? beyond->n : EXTENTS_MAX;
    record_put_u64(b, ROW_MAP);
    record_put_u64(b, (uint64_t)kind);
    record_put_u64(b, sequence);
    record_put_text(b, s->owner, OWNER_BOOT);
    record_put_string(b, row->file);
    record_put_u64(b, row->size);
    record_put_u64(b, n < beyond->n); /* there is more than it tells */
    record_put_u64(b, length);
    record_put_u64(b, n);
    for (size_t i = 0; i < n; i++) {
        record_put_u64(b, beyond->items[i].first);
        record_put_u64(b, beyond->items[i].end);
    }
}

int partial_write_map(const struct store *s, const struct incoming_row *row, int fd,
                      enum map_kind kind, uint64_t sequence, uint64_t length,
                      const struct extents *beyond, struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    static const char head[SLOT_HEAD];
    struct digest sum;
    strbuf_put(&b, head, sizeof(head));
    encode(&b, s, row, kind, sequence, length, beyond);
    if (strbuf_failed(&b))
        return err_set(err, ERR_NOMEM, "out of memory for the map of a partial file");
    uint32_t len = htole32((uint32_t)(b.len - SLOT_HEAD));
    if (digest_of(DIGEST_SHA256, b.data + SLOT_HEAD, b.len - SLOT_HEAD, &sum, err) < 0)
        return -1;
    memcpy(b.data, &len, sizeof(len));
    memcpy(b.data + sizeof(len), sum.raw, 32);
    uint64_t slot = kind == MAP_SYNCED ? 2 : sequence % 2;
    return fs_pwrite_all(fd, b.data, b.len, map_start(row->size) + slot * SLOT, err);
}

struct map {
    enum map_kind kind;
    uint64_t sequence, length;
    char boot[OWNER_BOOT + 1];
    bool is_short;
    struct extents beyond;
};

static bool decode(const unsigned char *data, size_t len, const struct incoming_row *row,
                   struct map *ret)
{
    char file[INCOMING_FILE_MAX + 1];
    struct map m = {0};
    struct record_reader r = record_reader_of(data, len);
    uint64_t type = record_get_u64(&r), kind = record_get_u64(&r);
    m.sequence = record_get_u64(&r);
    record_get_string_into(&r, m.boot, sizeof(m.boot));
    record_get_string_into(&r, file, sizeof(file));
    uint64_t size = record_get_u64(&r);
    m.is_short = record_get_u64(&r) != 0;
    m.length = record_get_u64(&r);
    size_t n = record_get_count(&r, 2);
    m.kind = (enum map_kind)kind;
    bool ok = !r.damaged && type == ROW_MAP && (kind == MAP_WRITTEN || kind == MAP_SYNCED) &&
              m.sequence && size == row->size && strcmp(file, row->file) == 0 && m.length <= size;
    for (uint64_t last = m.length; ok && n; n--) {
        uint64_t first = record_get_u64(&r), end = record_get_u64(&r);
        ok = !r.damaged && first > last && first < end && end <= size &&
             extents_add(&m.beyond, first, end);
        last = end;
    }
    ok = ok && record_end(&r);
    if (ok)
        *ret = m;
    else
        extents_done(&m.beyond);
    return ok;
}

/* False: there is no map that can be read. */
static bool read_slot(const struct incoming_row *row, int fd, unsigned slot, struct map *ret)
{
    unsigned char head[SLOT_HEAD];
    uint64_t at = map_start(row->size) + slot * SLOT;
    uint32_t len;
    struct digest sum;
    if (pread(fd, head, sizeof(head), (off_t)at) != (ssize_t)sizeof(head))
        return false;
    memcpy(&len, head, sizeof(len));
    len = le32toh(len);
    if (len == 0 || len > SLOT - SLOT_HEAD)
        return false;
    _cleanup_free_ unsigned char *data = malloc(len);
    return data && pread(fd, data, len, (off_t)(at + SLOT_HEAD)) == (ssize_t)len &&
           digest_of(DIGEST_SHA256, data, len, &sum, NULL) == 0 &&
           memcmp(sum.raw, head + sizeof(len), 32) == 0 && decode(data, len, row, ret);
}

static bool is_of_this_boot(const struct store *s, const struct map *m)
{
    return strncmp(m->boot, s->owner, OWNER_BOOT) == 0;
}

/* The newest of those that count: what a process of this boot wrote, or what was synced. */
static bool read_map(const struct store *s, const struct incoming_row *row, int fd, struct map *ret)
{
    bool found = false;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        struct map m;
        if (!read_slot(row, fd, slot, &m))
            continue;
        bool counts = m.kind == MAP_SYNCED || is_of_this_boot(s, &m);
        if (!counts || (found && m.sequence <= ret->sequence)) {
            extents_done(&m.beyond);
            continue;
        }
        if (found)
            extents_done(&ret->beyond);
        *ret = m;
        found = true;
    }
    return found;
}

/* ---- a partial ------------------------------------------------------------------------------ */

/* The row may have followed a sync that the map did not. */
static bool take_synced(struct map *m, uint64_t synced)
{
    if (synced <= m->length)
        return true;
    if (!extents_add(&m->beyond, 0, synced))
        return false;
    m->length = m->beyond.items[0].end;
    memmove(m->beyond.items, m->beyond.items + 1, --m->beyond.n * sizeof(*m->beyond.items));
    return true;
}

int partial_read(const struct store *s, const struct incoming_row *row, int fd,
                 uint64_t file_length, struct partial *ret, struct error *err)
{
    struct map m = {0};
    *ret = (struct partial){0};
    if (!partial_can_have_map(row->size) || file_length <= map_start(row->size) ||
        !read_map(s, row, fd, &m)) {
        ret->length = partial_usable(s, row, file_length, &ret->lost);
        return 0;
    }
    if (!take_synced(&m, row->synced <= row->size ? row->synced : 0)) {
        extents_done(&m.beyond);
        return err_set(err, ERR_NOMEM, "out of memory for a partial file");
    }
    /* Of whichever kind: as long as the machine runs, what was written later is in a later map. */
    bool is_all = !m.is_short && (is_of_this_boot(s, &m) || !*row->owner);
    *ret = (struct partial){
        .length = m.length, .beyond = m.beyond, .sequence = m.sequence, .lost = !is_all};
    return 0;
}

static void punch(int fd, uint64_t from, uint64_t to)
{
    if (from < to)
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                         (off_t)(to - from));
}

void partial_give_back(int fd, uint64_t size, uint64_t length, const struct extents *beyond)
{
    for (size_t i = 0; i < beyond->n; i++) {
        punch(fd, length, beyond->items[i].first);
        length = beyond->items[i].end;
    }
    punch(fd, length, size);
}
