/* The archives that pickles come in: zip, and tar as torch wrote before version 0.2. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "model/pickle_private.h"

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

int pickle_inspect_member(struct pickle_scan *scan, const struct pickle_place *place, bool named,
                          bool *ret_any, struct error *err)
{
    const char *outer = scan->member;
    _cleanup_free_ char *name = NULL; /* with those of the archives around it */
    if (asprintf(&name, "%s%s%s", outer ? outer : "", outer ? "/" : "", place->name) < 0) {
        name = NULL;
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    scan->member = name;
    int r = pickle_inspect_place(scan, place, named ? BELIEVED : POSSIBLE, ret_any, err);
    scan->member = outer;
    return r < 0 && err ? err_wrap(err, "member '%s'", place->name) : r;
}

/* Notes that a member was not looked into. */
static void pass_member(struct pickle_scan *scan, const struct zip_member *m)
{
    if (!m->in_file)
        scan_broken(scan, m->header, "zip member '%.60s' has no local header there", m->name);
    else
        scan_broken(scan, m->header, "zip member '%.60s' is packed by method %u", m->name,
                    m->method);
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
        if (scan->storages[i]->checked || *scan->storages[i]->key == '@')
            continue;
        snprintf(text, sizeof(text), "the storage 'data/%.80s' is not in the file",
                 scan->storages[i]->key);
        warn(scan->report, text);
        return;
    }
}

int pickle_inspect_zip(struct pickle_scan *scan, const struct zip *z, struct error *err)
{
    struct pickle_report *r = scan->report;
    if (!scan->member)
        r->container = PICKLE_ZIP;
    warn(r, z->warning);
    if (z->unsearched)
        scan_broken(scan, 0, "%s", z->warning);
    for (size_t i = 0; i < z->n; i++) {
        bool any;
        const struct zip_member *m = &z->members[i];
        struct pickle_place place = {.name = m->name, .packed = m};
        const char *code = strstr(m->name, "code/");
        if (code && (code == m->name || code[-1] == '/'))
            r->torchscript = true;
        if (m->in_file && m->packed == 0)
            continue;
        if (!m->in_file || (m->method != ZIP_STORED && m->method != ZIP_DEFLATED)) {
            pass_member(scan, m);
            continue;
        }
        if (pickle_inspect_member(scan, &place, is_named_pickle(m->name), &any, err) < 0)
            return -1;
    }
    check_storages(scan, z);
    return 0;
}

/* ---- tar ---- */

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

bool pickle_is_tar(const unsigned char *p)
{
    uint64_t stated, sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : p[i];
    return *p && parse_octal(p + 148, 8, &stated) && stated == sum;
}

int pickle_inspect_tar(struct pickle_scan *scan, struct error *err)
{
    unsigned char p[TAR_BLOCK];
    char name[101];
    bool any;
    uint64_t at = 0, size, blocks;
    if (!scan->member)
        scan->report->container = PICKLE_TAR;
    scan->report->tensors_known = false; /* they are not in the pickle */
    for (unsigned n = 0;; n++) {
        if (scan->current->size - at < TAR_BLOCK)
            return 0;
        if (scan->current->read(scan->current->ctx, at, p, sizeof(p), err) < 0)
            return -1;
        if (!pickle_is_tar(p))
            return 0;
        if (n == ZIP_MEMBERS_MAX)
            return err_set(err, ERR_TOO_LARGE, "the tar file has more than %u members at byte %llu",
                           ZIP_MEMBERS_MAX, (unsigned long long)at);
        snprintf(name, sizeof(name), "%.100s", (const char *)p);
        at += TAR_BLOCK;
        if (!parse_octal(p + 124, 12, &size) || size > scan->current->size - at) {
            scan_broken(scan, at - TAR_BLOCK, "the tar member '%.60s' ends beyond the file", name);
            return 0;
        }
        const char *base = strncmp(name, "./", 2) == 0 ? name + 2 : name;
        bool named = is_named_pickle(name) || strcmp(base, "pickle") == 0 ||
                     strcmp(base, "sys_info") == 0 || strcmp(base, "storages") == 0 ||
                     strcmp(base, "tensors") == 0;
        struct pickle_place place = {.name = name, .from = at, .size = size};
        if (size && pickle_inspect_member(scan, &place, named, &any, err) < 0)
            return -1;
        blocks = size / TAR_BLOCK + (size % TAR_BLOCK != 0);
        at = blocks * TAR_BLOCK <= scan->current->size - at ? at + blocks * TAR_BLOCK
                                                            : scan->current->size;
    }
}

/* ---- archives within archives ---- */

struct range {
    const struct byte_source *outer;
    uint64_t from;
};

static int read_range(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err)
{
    const struct range *r = ctx;
    return r->outer->read(r->outer->ctx, r->from + offset, buf, len, err);
}

int pickle_inspect_nested(struct pickle_scan *scan, const struct pickle_place *place, bool *ret_any,
                          struct error *err)
{
    const struct zip_member *m = place->packed;
    struct range range = {scan->current, m ? m->data : place->from};
    struct byte_source inner = {m ? m->packed : place->size, read_range, &range};
    struct zip z = {0};
    *ret_any = true;
    if (m && m->method != ZIP_STORED) {
        scan_broken(scan, 0, "a packed archive within the archive, which is not looked into");
        return 0;
    }
    if (scan->depth == PICKLE_NESTED_MAX) {
        scan_broken(scan, 0, "archives within archives, over %u deep", PICKLE_NESTED_MAX);
        return 0;
    }
    scan->depth++;
    scan->current = &inner;
    int r = zip_read(&inner, &z, err);
    if (r == 0)
        r = pickle_inspect_zip(scan, &z, err);
    zip_done(&z);
    scan->current = range.outer;
    scan->depth--;
    return r;
}
