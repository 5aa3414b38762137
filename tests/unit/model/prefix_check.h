/* What every prefix parser promises, checked on one input; for the unit tests and the fuzz targets:
 * prefixes that are long enough all give one result, shorter ones ask for more, never for more than
 * the file has, and no parse succeeds on less than an earlier one said it surely needs. */
#ifndef WB_TESTS_PREFIX_CHECK_H
#define WB_TESTS_PREFIX_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/weights.h"

struct prefix_outcome {
    int rc;
    struct weights w;
    struct error err;
};

/* Parses a copy of exactly `have` bytes, so that a sanitizer sees a read beyond them. */
static inline uint64_t prefix_run(enum weights_format format, const void *data, size_t have,
                                  uint64_t file_size, struct prefix_outcome *ret)
{
    uint64_t need = 0;
    _cleanup_free_ void *copy = calloc(1, have ? have : 1);
    memset(ret, 0, sizeof(*ret));
    if (!copy)
        abort();
    if (have)
        memcpy(copy, data, have);
    ret->rc = weights_parse(format, copy, have, file_size, &ret->w, &need, &ret->err);
    return need;
}

static inline bool prefix_same(const struct prefix_outcome *a, const struct prefix_outcome *b)
{
    return a->rc == b->rc && a->err.code == b->err.code && strcmp(a->err.text, b->err.text) == 0 &&
           memcmp(&a->w, &b->w, sizeof(a->w)) == 0;
}

/* Tries prefixes of 0, step, 2*step ... bytes and all `size` of them, of a file of file_size bytes.
 * NULL when the promises hold, else what is wrong. *last: the outcome of the longest prefix. */
static inline const char *prefix_check(enum weights_format format, const void *data, size_t size,
                                       uint64_t file_size, size_t step, struct prefix_outcome *last)
{
    static struct prefix_outcome first, now;
    bool finished = false;
    uint64_t least = 0;
    for (size_t have = 0;; have = size - have < step ? size : have + step) {
        uint64_t need = prefix_run(format, data, have, file_size, &now);
        if (now.rc == PREFIX_MORE) {
            if (need <= have || need > file_size)
                return "it needs no more than it has, or more than the file";
            if (finished)
                return "it asks for more after a shorter prefix was enough";
            least = need > least ? need : least;
        } else if (now.rc == PREFIX_DONE && have < least) { /* what is wrong may show earlier */
            return "it finishes on less than it said it needs";
        } else if (!finished) {
            finished = true;
            first = now;
        } else if (!prefix_same(&first, &now)) {
            return "two prefixes give two results";
        }
        if (have == size)
            break;
    }
    *last = now;
    return now.rc == PREFIX_MORE && size == file_size ? "the whole file is not enough" : NULL;
}

/* ---- what a visitor is shown ---- */

struct visit_sums {
    uint64_t tensors, elements, bytes, keys;
    const char *wrong;
};

static inline int visit_element(struct visit_sums *v, const struct metadata_info *m,
                                struct error *err)
{
    struct metadata_info e;
    uint64_t n = 0;
    int rc;
    while ((rc = metadata_next(m->cursor, &e, err)) > 0) {
        n++;
        if (e.type != m->element_type || (e.type == METADATA_ARRAY && e.cursor))
            v->wrong = "an element of another type than its array's";
    }
    if (rc < 0 || n != m->count)
        v->wrong = "an array does not have as many elements as it says";
    return rc;
}

static inline int visit_metadata(void *ctx, const struct metadata_info *m, struct error *err)
{
    struct visit_sums *v = ctx;
    v->keys++;
    if (!m->key || !m->type_name || (m->type == METADATA_STRING && !m->string))
        v->wrong = "metadata without a key, a type or its text";
    return m->type == METADATA_ARRAY ? visit_element(v, m, err) : 0;
}

static inline int visit_tensor(void *ctx, const struct tensor_info *t, struct error *err)
{
    struct visit_sums *v = ctx;
    uint64_t product = 1;
    (void)err;
    for (size_t i = 0; i < t->n_dims; i++)
        product *= t->dims[i];
    if (product != t->elements || (!t->sized && t->bytes) ||
        (t->name_len && memchr(t->name, '\0', t->name_len)))
        v->wrong = "a tensor whose dimensions, size or name are wrong";
    v->tensors++;
    v->elements += t->elements;
    v->bytes += t->bytes;
    return 0;
}

/* Shows a file that was found right: what is shown has to add up to what was summed. */
static inline const char *visit_check(enum weights_format format, const void *data, size_t size,
                                      uint64_t file_size, const struct weights *w)
{
    struct visit_sums sums = {0};
    const struct weights_visitor visitor = {visit_metadata, visit_tensor, &sums};
    struct weights again;
    struct error err = ERROR_INIT;
    uint64_t need = 0;
    memset(&again, 0, sizeof(again));
    if (weights_visit(format, data, size, file_size, &visitor, &again, &need, &err) != PREFIX_DONE)
        return "a right header can not be visited";
    if (memcmp(&again, w, sizeof(again)) != 0)
        return "a visit gives other sums than a parse";
    if (sums.tensors != w->tensors || sums.elements != w->parameters ||
        sums.bytes != w->tensor_bytes)
        return "what was shown does not add up to the sums";
    return sums.wrong;
}

/* For a fuzz target: the input as a whole file, and as the beginning of a longer one. */
static inline void prefix_fuzz(enum weights_format format, const void *data, size_t size)
{
    static struct prefix_outcome last;
    const uint64_t file_sizes[] = {size, size + (1u << 20)};
    for (size_t i = 0; i < ARRAY_LEN(file_sizes); i++) {
        const char *wrong = prefix_check(format, data, size, file_sizes[i], size / 48 + 1, &last);
        if (!wrong && last.rc == PREFIX_DONE)
            wrong = visit_check(format, data, size, file_sizes[i], &last.w);
        if (wrong) {
            fprintf(stderr, "%s\n", wrong);
            abort();
        }
    }
}

/* As an importer does: asks, reads what is needed, asks again. Gives the rounds and the bytes. */
static inline unsigned prefix_rounds(enum weights_format format, const void *data, size_t size,
                                     size_t first, struct prefix_outcome *ret, size_t *ret_read)
{
    size_t have = first < size ? first : size;
    unsigned rounds = 1;
    for (;; rounds++) {
        uint64_t need = prefix_run(format, data, have, size, ret);
        if (ret->rc != PREFIX_MORE || need <= have || need > size)
            break;
        have = (size_t)need;
    }
    *ret_read = have;
    return rounds;
}

#endif
