/* The containers that pickles come in, and the report over all of them. */
#include "model/pickle.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "model/numpy.h"
#include "model/pickle_private.h"

#define HEAD_MAX 8u /* of a member: enough to tell what it is */

/* ---- pickles one behind the other ---- */

/* How sure we are that there is a pickle. */
enum belief {
    BELIEVED, /* it is named so, or it is the file: a walk that ends badly is a finding */
    LIKELY,   /* it starts with PROTO: what is imported before a bad end counts */
    POSSIBLE, /* some first opcode: counts when it reaches its STOP and imports something */
};

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

/* ---- members ---- */

/* A range of the file, or a packed member. */
struct place {
    const char *name; /* NULL = the file itself */
    uint64_t from, size;
    const struct zip_member *packed;
};

static int open_place(struct pickle_scan *scan, const struct place *p, struct pickle_input *in,
                      struct error *err)
{
    if (p->packed)
        return input_open_member(in, &scan->source, p->packed, err);
    return input_open_range(in, &scan->source, p->from, p->size, err);
}

static bool is_named_pickle(const char *name)
{
    static const char *const extensions[] = {"pkl", "pickle", "joblib", "p", "pck"};
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    for (size_t i = 0; dot && i < ARRAY_LEN(extensions); i++)
        if (strcasecmp(dot + 1, extensions[i]) == 0)
            return true;
    return false;
}

/* An array of objects: a pickle stands behind the header of NumPy. 1: the input stands there. */
static int pass_numpy_header(struct pickle_input *in, struct error *err)
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
    if (r != PREFIX_DONE || strcmp(a.type, "OBJECT") != 0)
        return 0;
    return input_skip(in, a.header_bytes, err);
}

/* Walks what is there, if it is a pickle. */
static int inspect_place(struct pickle_scan *scan, const struct place *place, enum belief belief,
                         bool *ret_any, struct error *err)
{
    _cleanup_(input_done_p) struct pickle_input in = {0};
    *ret_any = false;
    if (open_place(scan, place, &in, err) < 0 || input_want(&in, HEAD_MAX, err) < 0)
        return -1;
    const unsigned char *p = input_bytes(&in);
    size_t have = in.have - in.start;
    if (have >= 6 && memcmp(p, "\x93NUMPY", 6) == 0) {
        int r = pass_numpy_header(&in, err);
        return r <= 0 ? r : walk_all(scan, &in, BELIEVED, ret_any, err);
    }
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

static int inspect_member(struct pickle_scan *scan, const struct place *place, bool named,
                          struct error *err)
{
    bool any;
    scan->member = place->name;
    int r = inspect_place(scan, place, named ? BELIEVED : POSSIBLE, &any, err);
    scan->member = NULL;
    return r < 0 && err ? err_wrap(err, "member '%s'", place->name) : r;
}

/* ---- zip ---- */

static void warn(struct pickle_report *r, const char *text)
{
    if (!r->warning[0])
        snprintf(r->warning, sizeof(r->warning), "%s", text);
}

/* Whether the member is a storage that a tensor uses, as long as it has to be. */
static void check_storage(struct pickle_scan *scan, const struct zip_member *m)
{
    char text[200];
    const char *slash = strrchr(m->name, '/');
    uint64_t bytes;
    if (!slash || slash - m->name < 4 || memcmp(slash - 4, "data", 4) != 0)
        return;
    struct pickle_storage *s = scan_find_storage(scan, slash + 1);
    if (!s)
        return;
    s->checked = true;
    if (!s->size || __builtin_mul_overflow(s->elements, s->size, &bytes) || bytes == m->unpacked)
        return;
    snprintf(text, sizeof(text), "member '%.60s' has %llu bytes, its storage takes %llu", m->name,
             (unsigned long long)m->unpacked, (unsigned long long)bytes);
    warn(scan->report, text);
}

static void check_storages(struct pickle_scan *scan, const struct zip *z)
{
    char text[200];
    for (size_t i = 0; i < z->n; i++)
        check_storage(scan, &z->members[i]);
    for (size_t i = 0; i < scan->n_storages; i++) {
        if (scan->storages[i]->checked)
            continue;
        snprintf(text, sizeof(text), "the storage 'data/%.80s' is not in the file",
                 scan->storages[i]->key);
        warn(scan->report, text);
        return;
    }
}

static int inspect_zip(struct pickle_scan *scan, const struct zip *z, struct error *err)
{
    struct pickle_report *r = scan->report;
    r->container = PICKLE_ZIP;
    warn(r, z->warning);
    if (z->unsearched)
        scan_broken(scan, 0, "%s", z->warning);
    for (size_t i = 0; i < z->n; i++) {
        const struct zip_member *m = &z->members[i];
        struct place place = {.name = m->name, .packed = m};
        const char *code = strstr(m->name, "code/");
        if (code && (code == m->name || code[-1] == '/'))
            r->torchscript = true;
        if (m->in_file && m->packed == 0)
            continue;
        if (!m->in_file || (m->method != ZIP_STORED && m->method != ZIP_DEFLATED)) {
            scan->member = m->name;
            if (!m->in_file)
                scan_broken(scan, m->header, "no local header of a zip member there");
            else
                scan_broken(scan, m->header, "packed by method %u", m->method);
            scan->member = NULL;
            continue;
        }
        if (inspect_member(scan, &place, is_named_pickle(m->name), err) < 0)
            return -1;
    }
    check_storages(scan, z);
    return 0;
}

/* ---- tar, as torch wrote before version 0.2 ---- */

#define TAR_BLOCK 512u

static bool parse_octal(const unsigned char *p, size_t n, uint64_t *ret)
{
    uint64_t v = 0;
    size_t i = 0;
    if (*p & 0x80) { /* GNU: binary, the highest bit aside */
        for (v = p[0] & 0x3f, i = 1; i < n; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | p[i];
        }
        *ret = v;
        return true;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        v = v << 3 | (uint64_t)(p[i] - '0'); /* at most 12 digits */
    *ret = v;
    return i == n || p[i] == ' ' || p[i] == '\0';
}

static bool is_tar_header(const unsigned char *p)
{
    uint64_t stated, sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : p[i];
    return *p && parse_octal(p + 148, 8, &stated) && stated == sum;
}

static int inspect_tar(struct pickle_scan *scan, struct error *err)
{
    unsigned char p[TAR_BLOCK];
    char name[101];
    uint64_t at = 0, size, blocks;
    scan->report->container = PICKLE_TAR;
    scan->report->tensors_known = false; /* they are not in the pickle */
    for (unsigned n = 0;; n++) {
        if (scan->source.size - at < TAR_BLOCK)
            return 0;
        if (scan->source.read(scan->source.ctx, at, p, sizeof(p), err) < 0)
            return -1;
        if (!is_tar_header(p))
            return 0;
        if (n == ZIP_MEMBERS_MAX)
            return err_set(err, ERR_TOO_LARGE, "the tar file has more than %u members",
                           ZIP_MEMBERS_MAX);
        snprintf(name, sizeof(name), "%.100s", (const char *)p);
        at += TAR_BLOCK;
        if (!parse_octal(p + 124, 12, &size) || size > scan->source.size - at) {
            scan_broken(scan, at - TAR_BLOCK, "the tar member '%.60s' ends beyond the file", name);
            return 0;
        }
        const char *base = strncmp(name, "./", 2) == 0 ? name + 2 : name;
        bool named = is_named_pickle(name) || strcmp(base, "pickle") == 0 ||
                     strcmp(base, "sys_info") == 0 || strcmp(base, "storages") == 0 ||
                     strcmp(base, "tensors") == 0;
        struct place place = {.name = name, .from = at, .size = size};
        if (size && inspect_member(scan, &place, named, err) < 0)
            return -1;
        blocks = size / TAR_BLOCK + (size % TAR_BLOCK != 0);
        at = blocks * TAR_BLOCK <= scan->source.size - at ? at + blocks * TAR_BLOCK
                                                          : scan->source.size;
    }
}

/* ---- the file ---- */

/* Why a file is something else, NULL when it may hold pickles. */
static const char *other_format(const unsigned char *p, size_t n, uint64_t size)
{
    uint64_t len = 0;
    if (n >= 4 && (memcmp(p, "GGUF", 4) == 0))
        return "a GGUF file";
    for (size_t i = 8; i-- > 0 && n >= 9;)
        len = len << 8 | p[i];
    if (n >= 9 && len >= 2 && len <= 100000000 && len <= size - 8 &&
        (p[8] == '{' || (strchr(" \t\r\n", p[8]) && p[8])))
        return "a safetensors file";
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b)
        return "compressed by gzip, and not looked into";
    if (n >= 6 && memcmp(p, "7z\xbc\xaf\x27\x1c", 6) == 0)
        return "a 7z archive, and not looked into";
    if (n >= 8 && memcmp(p, "\x89HDF\r\n\x1a\n", 8) == 0)
        return "an HDF5 file";
    return NULL;
}

static int inspect_file(struct pickle_scan *scan, struct error *err)
{
    unsigned char head[TAR_BLOCK];
    uint64_t size = scan->source.size;
    size_t n = size < sizeof(head) ? (size_t)size : sizeof(head);
    bool any = false;
    if (n && scan->source.read(scan->source.ctx, 0, head, n, err) < 0)
        return -1;
    bool zip_first = n >= 4 && memcmp(head, "PK\3\4", 4) == 0;
    bool tar = n == sizeof(head) && is_tar_header(head);
    struct zip z = {0};
    struct error no_zip = ERROR_INIT;
    int r = zip_read(&scan->source, &z, &no_zip);
    if (r < 0 && no_zip.code != ERR_INVALID)
        r = err_set(err, no_zip.code, "%s", no_zip.text);
    else
        r = r == 0 ? inspect_zip(scan, &z, err) : 0;
    if (r == 0 && tar)
        r = inspect_tar(scan, err);
    if (r == 0 && !zip_first) { /* something may stand in front of the archive */
        bool alone = !tar && no_zip.code == ERR_INVALID;
        const char *other = other_format(head, n, size);
        struct place all = {.size = size};
        uint64_t imports = scan->n_imports;
        r = inspect_place(scan, &all, alone && !other ? BELIEVED : POSSIBLE, &any, err);
        if (r == 0 && alone && (other ? scan->n_imports == imports : !any))
            r = err_set(err, ERR_INVALID, "it holds no pickle%s%s%s%s", other ? ": it is " : "",
                        other ? other : "", scan->report->broken ? "; " : "",
                        scan->report->broken ? scan->report->broken_why : "");
    }
    zip_done(&z);
    if (r == 0 && scan->report->pickles == 0 && scan->n_imports == 0 && !scan->report->broken)
        return err_set(err, ERR_INVALID, "it holds no pickle: no member of the archive is one");
    return r;
}

static int compare_imports(const void *a, const void *b)
{
    const struct pickle_import *x = a, *y = b;
    if (x->verdict != y->verdict)
        return x->verdict > y->verdict ? -1 : 1;
    int c = strcmp(x->module, y->module);
    return c ? c : strcmp(x->name, y->name);
}

/* Hands the imports over to the report. */
static int report_imports(struct pickle_scan *scan, struct error *err)
{
    struct pickle_report *r = scan->report;
    if (scan->n_imports == 0)
        return 0;
    r->imports = calloc(scan->n_imports, sizeof(*r->imports));
    if (!r->imports)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < scan->n_imports; i++) {
        r->imports[i] = *scan->imports[i];
        *scan->imports[i] = (struct pickle_import){0}; /* the strings have a new owner */
    }
    r->n_imports = scan->n_imports;
    qsort(r->imports, r->n_imports, sizeof(*r->imports), compare_imports);
    r->verdict = r->imports[0].verdict;
    return 0;
}

static int counted_read(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err)
{
    struct pickle_scan *scan = ctx;
    scan->report->bytes_read += len;
    return scan->file->read(scan->file->ctx, offset, buf, len, err);
}

int pickle_inspect(const struct byte_source *s, struct pickle_report *ret, struct error *err)
{
    struct pickle_scan scan = {.file = s, .report = ret};
    *ret = (struct pickle_report){.tensors_known = true};
    scan.source = (struct byte_source){.size = s->size, .read = counted_read, .ctx = &scan};
    int r = inspect_file(&scan, err);
    if (r == 0)
        r = tensors_finish(&scan, err);
    if (r == 0)
        r = report_imports(&scan, err);
    scan_done(&scan);
    if (r < 0)
        return -1;
    if (ret->broken && ret->verdict < PICKLE_UNREADABLE)
        ret->verdict = PICKLE_UNREADABLE;
    ret->weights.format = WEIGHTS_PICKLE;
    ret->weights.file_bytes = s->size;
    ret->weights.header_bytes =
        s->size > ret->weights.tensor_bytes ? s->size - ret->weights.tensor_bytes : 0;
    return 0;
}

void pickle_report_done(struct pickle_report *r)
{
    for (size_t i = 0; i < r->n_imports; i++) {
        free(r->imports[i].module);
        free(r->imports[i].name);
        free(r->imports[i].member);
    }
    for (size_t i = 0; i < r->n_tensors; i++) {
        free(r->tensors[i].name);
        free(r->tensors[i].storage);
    }
    free(r->imports);
    free(r->tensors);
    *r = (struct pickle_report){0};
}
