/* A range of a file, or a packed member of a zip file, byte after byte. */
#include <string.h>

#include "base/cleanup.h"
#include "model/pickle_private.h"

#define BUFFER_MAX 131072u /* twice INPUT_WANT_MAX */
#define CHUNK_MIN 512u

static int input_open(struct pickle_input *in, const struct byte_source *s, struct error *err)
{
    *in = (struct pickle_input){.s = s, .chunk = CHUNK_MIN};
    in->buf = malloc(BUFFER_MAX);
    return in->buf ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int input_open_range(struct pickle_input *in, const struct byte_source *s, uint64_t from,
                     uint64_t size, struct error *err)
{
    if (input_open(in, s, err) < 0)
        return -1;
    in->next = from < s->size ? from : s->size;
    in->from = in->next;
    in->left = size < s->size - in->next ? size : s->size - in->next;
    return 0;
}

int input_open_member(struct pickle_input *in, const struct byte_source *s,
                      const struct zip_member *m, struct error *err)
{
    if (m->in_file && m->method == ZIP_STORED) /* what is skipped need not be read */
        return input_open_range(in, s, m->data, m->packed, err);
    if (input_open(in, s, err) < 0)
        return -1;
    return zip_open(s, m, &in->z, err);
}

void input_done(struct pickle_input *in)
{
    zip_close(in->z);
    free(in->buf);
    *in = (struct pickle_input){0};
}

static int fill(struct pickle_input *in, size_t *ret_n, struct error *err)
{
    size_t n = BUFFER_MAX - in->have;
    bool torn = false;
    n = n < in->chunk ? n : in->chunk;
    if (in->z) {
        if (zip_stream_read(in->z, in->buf + in->have, n, &n, &torn, err) < 0)
            return -1;
    } else {
        n = in->left < n ? (size_t)in->left : n;
        if (n && in->s->read(in->s->ctx, in->next, in->buf + in->have, n, err) < 0)
            return -1;
        in->next += n;
        in->left -= n;
    }
    in->torn = in->torn || torn;
    in->have += n;
    in->got += n;
    in->chunk = in->chunk < INPUT_WANT_MAX ? 2 * in->chunk : INPUT_WANT_MAX;
    *ret_n = n;
    if (in->total && (*in->total += n) > PICKLE_TOTAL_MAX)
        return err_set(err, ERR_TOO_LARGE, "pickles of over %u MiB", PICKLE_TOTAL_MAX >> 20);
    if (in->got > PICKLE_READ_MAX)
        return err_set(err, ERR_TOO_LARGE, "a pickle of over %u MiB", PICKLE_READ_MAX >> 20);
    return 0;
}

int input_want(struct pickle_input *in, size_t n, struct error *err)
{
    while (in->have - in->start < n) {
        size_t got;
        if (in->start) {
            memmove(in->buf, in->buf + in->start, in->have - in->start);
            in->have -= in->start;
            in->start = 0;
        }
        if (fill(in, &got, err) < 0)
            return -1;
        if (got == 0)
            return 0;
    }
    return 1;
}

int input_skip(struct pickle_input *in, uint64_t n, struct error *err)
{
    while (n) {
        size_t here = in->have - in->start;
        if (here) {
            here = n < here ? (size_t)n : here;
            input_take(in, here);
            n -= here;
            continue;
        }
        if (!in->z) {
            if (n > in->left)
                return 0;
            in->next += n;
            in->left -= n;
            in->at += n;
            in->chunk = CHUNK_MIN;
            return 1;
        }
        int r = input_want(in, 1, err);
        if (r <= 0)
            return r;
    }
    return 1;
}
