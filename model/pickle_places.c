/* Pickles one behind the other, in a file or in a member of an archive. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/numpy.h"
#include "model/pickle_private.h"

#define HEAD_MAX 8u /* of a member: enough to tell what it is */

static bool starts_with_proto(const unsigned char *p, size_t n)
{
    return n >= 2 && p[0] == 0x80 && p[1] <= 5;
}

static void machine_done_p(struct pickle_machine *m)
{
    machine_done(m);
}

static void input_done_p(struct pickle_input *in)
{
    input_done(in);
}

/* Of a legacy file, behind the list of keys: passes the storages. 1, 0: where they end is not
 * known, or they are cut off. */
static int skip_storages(struct pickle_scan *scan, struct pickle_machine *m,
                         struct pickle_input *in, struct error *err)
{
    uint64_t at = in->at;
    if (!m->keys_known)
        return 0;
    int r = input_skip(in, m->keys_bytes, err);
    if (r == 0)
        scan_broken(scan, at, "the storages take %llu bytes, the file ends before",
                    (unsigned long long)m->keys_bytes);
    return r;
}

/* The pickles from where the input stands up to its end. *ret_any: it was one, or imported
 * something. */
static int walk_all(struct pickle_scan *scan, struct pickle_input *in, enum belief belief,
                    bool *ret_any, struct error *err)
{
    _cleanup_(machine_done_p) struct pickle_machine m = {.scan = scan};
    bool legacy = false;
    uint64_t walked = 0;
    m.strict_names = belief != BELIEVED;
    *ret_any = false;
    for (;;) {
        int r = input_want(in, 1, err);
        if (r < 0)
            return -1;
        if (r == 0 && walked)
            return 0;
        m.sum_keys = legacy && walked == 4;
        if (m.sum_keys)
            m.keys_known = true;
        uint64_t imports = m.seen_imports;
        r = pickle_walk(&m, in, err);
        if (r < 0)
            return -1;
        if (r == WALK_STOP)
            scan->report->pickles++;
        *ret_any = *ret_any || r == WALK_STOP || m.seen_imports > imports || m.torn;
        if (r != WALK_STOP)
            return 0;
        legacy = legacy || (walked == 0 && m.result.kind == VALUE_MAGIC);
        if (legacy && !scan->member)
            scan->report->container = PICKLE_LEGACY;
        if (walked == (legacy ? 3 : 0))
            scan->result =
                m.result.kind == VALUE_STORAGE || m.result.kind == VALUE_TENSOR ? m.result : OTHER;
        walked++;
        if (m.sum_keys && (r = skip_storages(scan, &m, in, err)) <= 0)
            return r;
    }
}

/* Whether a walk reaches a STOP and meets an import on its way; nothing is noted. */
static int try_walk(struct pickle_input *in, bool *ret_stops, struct error *err)
{
    _cleanup_(machine_done_p) struct pickle_machine m = {.scan = NULL};
    m.strict_names = true;
    int r = pickle_walk(&m, in, err);
    if (r < 0)
        return -1;
    *ret_stops = r == WALK_STOP && m.seen_imports > 0;
    return 0;
}

static int open_place(struct pickle_scan *scan, const struct pickle_place *p,
                      struct pickle_input *in, struct error *err)
{
    int r = p->packed ? input_open_member(in, scan->current, p->packed, err)
                      : input_open_range(in, scan->current, p->from, p->size, err);
    in->total = &scan->walked;
    return r;
}

/* An array of objects: a pickle stands behind the header of NumPy. 1: the input stands there. */
static int pass_numpy_header(struct pickle_scan *scan, struct pickle_input *in, struct error *err)
{
    struct numpy_array a;
    uint64_t need = 0;
    size_t have = in->have - in->start;
    int r = numpy_parse(input_bytes(in), have, UINT64_MAX / 2, &a, &need, NULL);
    if (r == PREFIX_MORE && need <= INPUT_WANT_MAX) {
        if ((r = input_want(in, (size_t)need, err)) <= 0)
            return r;
        r = numpy_parse(input_bytes(in), in->have - in->start, UINT64_MAX / 2, &a, &need, NULL);
    }
    if (r != PREFIX_DONE) {
        scan_broken(scan, 0, "the header of a NumPy array that can not be read");
        return 0;
    }
    return strcmp(a.type, "OBJECT") == 0 ? input_skip(in, a.header_bytes, err) : 0;
}

/* Walks what is there, if it is a pickle. */
int pickle_inspect_place(struct pickle_scan *scan, const struct pickle_place *place,
                         enum belief belief, bool *ret_any, struct error *err)
{
    _cleanup_(input_done_p) struct pickle_input in = {0};
    *ret_any = false;
    if (open_place(scan, place, &in, err) < 0 || input_want(&in, HEAD_MAX, err) < 0)
        return -1;
    const unsigned char *p = input_bytes(&in);
    size_t have = in.have - in.start;
    if (have >= 6 && memcmp(p, "\x93NUMPY", 6) == 0) {
        int r = pass_numpy_header(scan, &in, err);
        return r <= 0 ? r : walk_all(scan, &in, BELIEVED, ret_any, err);
    }
    if (place->name && have >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        return pickle_inspect_nested(scan, place, ret_any, err);
    if (belief == POSSIBLE && starts_with_proto(p, have))
        belief = LIKELY;
    if (belief == BELIEVED)
        return walk_all(scan, &in, belief, ret_any, err);
    if (belief == LIKELY) {
        struct pickle_report before = *scan->report;
        if (walk_all(scan, &in, belief, ret_any, err) < 0)
            return -1;
        if (!*ret_any) { /* a tensor that happens to start like that */
            scan->report->broken = before.broken;
            memcpy(scan->report->broken_why, before.broken_why, sizeof(before.broken_why));
        }
        return 0;
    }
    bool stops = false;
    if (try_walk(&in, &stops, err) < 0)
        return -1;
    if (!stops)
        return 0;
    input_done(&in);
    return open_place(scan, place, &in, err) < 0 ? -1 : walk_all(scan, &in, BELIEVED, ret_any, err);
}

/* The tensors of a plain pickle: each storage is a file of its own, in the bytes. */
int pickle_load_from_bytes(struct pickle_machine *m, struct value args, struct value *ret,
                           struct error *err)
{
    struct pickle_scan *scan = m->scan;
    struct value bytes = args.kind == VALUE_TUPLE && args.size == 1 ? m->items.v[args.n] : OTHER;
    char outer[sizeof(scan->key_prefix)];
    bool any;
    *ret = OTHER;
    /* The range is of what is walked: an archive in there is that source's as well. */
    if (bytes.kind != VALUE_BYTES || scan->depth == PICKLE_NESTED_MAX) {
        scan->report->tensors_known = false;
        return 0;
    }
    struct pickle_place place = {"bytes", m->in->from + bytes.n, bytes.size, NULL};
    memcpy(outer, scan->key_prefix, sizeof(outer));
    snprintf(scan->key_prefix, sizeof(scan->key_prefix), "@%llu/", (unsigned long long)place.from);
    scan->result = OTHER;
    scan->depth++;
    int r = pickle_inspect_member(scan, &place, true, &any, err);
    scan->depth--;
    memcpy(scan->key_prefix, outer, sizeof(outer));
    if (r < 0)
        return -1;
    *ret = scan->result;
    if (ret->kind == VALUE_OTHER)
        scan->report->tensors_known = false;
    if (any)
        scan->loader_looks++;
    return 0;
}
