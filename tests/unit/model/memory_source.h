/* Byte sources for tests: over memory, a file of the tests, and one that is mostly holes. */
#ifndef WB_TESTS_MEMORY_SOURCE_H
#define WB_TESTS_MEMORY_SOURCE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/strbuf.h"
#include "model/source.h"

struct memory_source {
    const void *data;
    uint64_t size;  /* bytes that are there; zeros follow, up to the source's size */
    uint64_t reads; /* calls */
    uint64_t bytes; /* that were asked for */
};

static inline int memory_read(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err)
{
    struct memory_source *m = ctx;
    (void)err;
    m->reads++;
    m->bytes += len;
    memset(buf, 0, len);
    if (offset < m->size)
        memcpy(buf, (const char *)m->data + offset,
               len < m->size - offset ? len : (size_t)(m->size - offset));
    return 0;
}

/* A read outside of the file is a fault of the caller's. */
static inline int checked_read(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err)
{
    struct memory_source *m = ctx;
    if (offset > m->size || len > m->size - offset)
        abort();
    return memory_read(ctx, offset, buf, len, err);
}

static inline struct byte_source memory_source(struct memory_source *m)
{
    return (struct byte_source){.size = m->size, .read = checked_read, .ctx = m};
}

#endif
