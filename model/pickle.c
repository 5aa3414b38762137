/* One file, whatever it is, and the report over what was found in it. */
#include "model/pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/pickle_private.h"

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

/* What is no archive has to be a pickle, from its first byte on. In front of an archive there may
 * be one: loaders differ in what they look for first. */
static int inspect_from_start(struct pickle_scan *scan, const unsigned char *head, size_t n,
                              bool archive, struct error *err)
{
    const char *other = other_format(head, n, scan->source.size);
    struct pickle_place all = {.size = scan->source.size};
    uint64_t imports = scan->n_imports;
    bool any = false;
    if (pickle_inspect_place(scan, &all, archive || other ? POSSIBLE : BELIEVED, &any, err) < 0)
        return -1;
    if (archive || (other ? scan->n_imports > imports : any))
        return 0;
    if (other)
        return err_set(err, ERR_INVALID,
                       "it holds no pickle: by its first bytes, from byte 0, it is %s", other);
    return err_set(err, ERR_INVALID, "it holds no pickle%s%s", scan->report->broken ? "; " : "",
                   scan->report->broken_why);
}

/* Something of a zip within a file, without a directory at its end, makes no zip of the file. */
static bool is_zip(const struct zip *z, bool zip_first)
{
    bool listed = zip_first;
    for (size_t i = 0; i < z->n; i++)
        listed = listed || z->members[i].in_directory;
    return z->n && listed;
}

static int inspect_file(struct pickle_scan *scan, struct error *err)
{
    unsigned char head[TAR_BLOCK];
    uint64_t size = scan->source.size;
    size_t n = size < sizeof(head) ? (size_t)size : sizeof(head);
    if (n && scan->source.read(scan->source.ctx, 0, head, n, err) < 0)
        return -1;
    bool zip_first = n >= 4 && memcmp(head, "PK\3\4", 4) == 0;
    bool tar = n == sizeof(head) && pickle_is_tar(head);
    struct zip z = {0};
    struct error no_zip = ERROR_INIT;
    int r = zip_read(&scan->source, &z, &no_zip);
    bool zip = r == 0 && is_zip(&z, zip_first);
    if (r < 0 && no_zip.code != ERR_INVALID)
        r = err_set(err, no_zip.code, "%s", no_zip.text);
    else
        r = zip ? pickle_inspect_zip(scan, &z, err) : 0;
    if (r == 0 && tar)
        r = pickle_inspect_tar(scan, err);
    if (r == 0 && !zip_first)
        r = inspect_from_start(scan, head, n, tar || zip, err);
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
        if (is_loader(scan->imports[i]) && r->imports[i].verdict == PICKLE_UNKNOWN &&
            scan->loader_looks == scan->loader_uses && !scan->loader_changed)
            r->imports[i].verdict = PICKLE_EXTENDED;   /* what it loads was walked, every time */
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
    if (scan->report->bytes_read > PICKLE_TOTAL_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "more than %u MiB of it would have to be read, at byte %llu",
                       PICKLE_TOTAL_MAX >> 20, (unsigned long long)offset);
    return scan->file->read(scan->file->ctx, offset, buf, len, err);
}

int pickle_inspect(const struct byte_source *s, struct pickle_report *ret, struct error *err)
{
    struct pickle_scan scan = {.file = s, .report = ret};
    *ret = (struct pickle_report){.tensors_known = true};
    scan.source = (struct byte_source){.size = s->size, .read = counted_read, .ctx = &scan};
    scan.current = &scan.source;
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
