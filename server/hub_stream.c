/* Answers that are longer than what a client may cost in memory: the rows of a long list are
 * written while they are sent, out of the list that all who ask for it share. */
#include <stdlib.h>
#include <string.h>

#include "server/hub_api.h"
#include "server/hub_json.h"

#define ROWS_IN_MEMORY 4096u /* of an answer, which is under a MiB then, nearly always */
#define BLOCK_SIZE ((size_t)64 * 1024)

struct stream {
    struct request *q; /* valid while the content reader is called, not in stream_free() */
    struct hub_listing files;
    bool is_tree;
    struct hub_walk start, walk; /* of a tree */
    size_t next;                 /* of siblings */
    struct strbuf around; /* what is around the rows: they belong behind its first `where` bytes */
    size_t where;
    /* Its last byte is held back until all is there: a comma follows, or not. */
    struct strbuf block;
    size_t sent; /* of the block */
    bool has_all;
};

static void stream_free(void *cls)
{
    struct stream *s = cls;
    hub_listing_done(&s->files);
    strbuf_done(&s->around);
    strbuf_done(&s->block);
    free(s);
}

bool hub_is_long(const struct hub_listing *l)
{
    return l->list.n + l->n_folders > ROWS_IN_MEMORY;
}

static bool put_rows(struct stream *s)
{
    return s->is_tree ? hub_walk_rows(&s->walk, &s->block, BLOCK_SIZE)
                      : hub_put_some_siblings(&s->block, &s->files, &s->next, BLOCK_SIZE);
}

static void fill(struct stream *s)
{
    struct strbuf *b = &s->block;
    if (b->len) {
        char last = b->data[b->len - 1];
        strbuf_reset(b);
        strbuf_putc(b, last);
    } else {
        strbuf_put(b, strbuf_str(&s->around), s->where);
    }
    s->sent = 0;
    s->has_all = !put_rows(s);
    if (s->has_all)
        strbuf_put(b, strbuf_str(&s->around) + s->where, s->around.len - s->where);
}

/* How many bytes may be sent. */
static size_t count_ready(const struct stream *s)
{
    return s->block.len - s->sent - (s->block.len && !s->has_all);
}

static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct stream *s = cls;
    struct request *q = s->q;
    (void)pos;
    if (count_ready(s) == 0 && !s->has_all)
        fill(s);
    if (strbuf_failed(&s->block))
        err_set(&q->error, ERR_NOMEM, "out of memory for an answer");
    else if (atomic_load(&q->server->stopping))
        err_set(&q->error, ERR_CANCELLED, "the server is stopping");
    else {
        size_t ready = count_ready(s), n = ready < max ? ready : max;
        if (n == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        memcpy(buf, s->block.data + s->sent, n);
        s->sent += n;
        q->body_sent += n;
        return (ssize_t)n;
    }
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static void rewind_stream(struct stream *s)
{
    s->walk = s->start;
    s->next = 0;
    s->sent = 0;
    s->has_all = false;
    strbuf_reset(&s->block);
}

/* Clients are told how long it is: writing it twice costs less than having it in memory. */
static uint64_t measure(struct stream *s)
{
    uint64_t n = 0;
    rewind_stream(s);
    do {
        fill(s);
        n += count_ready(s);
    } while (!s->has_all && !strbuf_failed(&s->block));
    rewind_stream(s);
    return n;
}

/* Takes the stream over. */
static enum MHD_Result send_stream(struct request *q, const struct hub_at *at, struct stream *s)
{
    uint64_t length = measure(s);
    struct MHD_Response *r =
        MHD_create_response_from_callback(length, BLOCK_SIZE, stream_read, s, stream_free);
    if (!r) {
        stream_free(s);
    } else if (!hub_reply_put(q, r, at) ||
               !reply_put(r, "Content-Type", "application/json; charset=utf-8") ||
               !reply_put(r, "Cache-Control", "no-cache")) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->counts_body = !q->is_head;
    q->body_length = q->is_head ? 0 : length;
    return reply(q, 200, r);
}

static enum MHD_Result no_memory(struct request *q)
{
    q->body_length = 0;
    return reply(q, 200, NULL);
}

/* NULL: out of memory. Takes the listing over, also then. */
static struct stream *stream_new(struct request *q, struct hub_listing *files)
{
    struct stream *s = calloc(1, sizeof(*s));
    if (!s)
        hub_listing_done(files);
    else
        *s = (struct stream){.q = q, .files = *files};
    *files = (struct hub_listing){.rows = NULL};
    return s;
}

enum MHD_Result hub_stream_tree(struct request *q, const struct hub_at *at,
                                struct hub_listing *files, const struct hub_walk *from)
{
    struct stream *s = stream_new(q, files);
    if (!s)
        return no_memory(q);
    s->is_tree = true;
    s->start = *from;
    s->start.l = &s->files;
    strbuf_puts(&s->around, "[]");
    s->where = 1;
    if (!strbuf_failed(&s->around))
        return send_stream(q, at, s);
    stream_free(s);
    return no_memory(q);
}

enum MHD_Result hub_stream_siblings(struct request *q, const struct hub_at *at,
                                    struct hub_listing *files, struct strbuf *around, size_t where)
{
    struct stream *s = strbuf_failed(around) ? NULL : stream_new(q, files);
    if (!s)
        return no_memory(q);
    s->around = *around;
    *around = STRBUF_INIT;
    s->where = where;
    return send_stream(q, at, s);
}
