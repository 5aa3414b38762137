#include "cli/source_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "model/weights.h"

/* ---- entries --------------------------------------------------------------------------------- */

int source_add(struct source *s, const char *path, uint64_t size, struct error *err)
{
    if (s->n == SOURCE_FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "%s has more than %u files", s->text, SOURCE_FILES_MAX);
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct source_entry *entries = reallocarray(s->entries, cap, sizeof(*entries));
        if (!entries)
            return err_set(err, ERR_NOMEM, "out of memory for a list of files");
        s->entries = entries;
        s->cap = cap;
    }
    char *copy = strdup(path);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory for a list of files");
    s->entries[s->n++] =
        (struct source_entry){.path = copy, .size = size, .has_size = size != UINT64_MAX};
    return 0;
}

static int compare_entries(const void *pa, const void *pb)
{
    const struct source_entry *a = pa, *b = pb;
    return strcmp(a->path, b->path);
}

void source_sort(struct source *s)
{
    if (s->n)
        qsort(s->entries, s->n, sizeof(*s->entries), compare_entries);
}

size_t source_files(const struct source *s, const struct source_entry **ret)
{
    *ret = s->entries;
    return s->n;
}

bool source_is_one_file(const struct source *s)
{
    return s->is_one;
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char *behind_scheme(const char *text, const char *scheme)
{
    size_t n = strlen(scheme);
    return strncasecmp(text, scheme, n) == 0 ? text + n : NULL;
}

/* "org/repo", as people write the Hub's repositories. */
static bool may_mean_the_hub(const char *text)
{
    const char *slash = strchr(text, '/');
    return slash && slash > text && slash[1] && !strchr(slash + 1, '/') && text[0] != '.' &&
           weights_format_of(text) == WEIGHTS_UNKNOWN;
}

static int open_any(struct source *s, const char *text, const struct source_options *o,
                    struct error *err)
{
    struct stat st;
    const char *rest;
    if (!text[0])
        return err_set(err, ERR_INVALID, "the name of the SOURCE is empty");
    if (behind_scheme(text, "http://") || behind_scheme(text, "https://"))
        return source_open_url(s, text, err);
    if ((rest = behind_scheme(text, "hf://")) || (rest = behind_scheme(text, "huggingface://")))
        return source_open_hub(s, rest, err);
    if ((rest = behind_scheme(text, "oci://")))
        return source_open_registry(s, rest, o->plain_http, err);
    if ((rest = behind_scheme(text, "file://")))
        return source_open_path(s, rest, err);
    if (strstr(text, "://"))
        return err_set(err, ERR_INVALID,
                       "%s: a scheme that is not known; legal are http, https, hf, oci and file",
                       text);
    if (stat(text, &st) < 0 && source_is_reference(text))
        return source_open_registry(s, text, o->plain_http, err);
    int rc = source_open_path(s, text, err);
    if (rc < 0 && err && err->code == ERR_NOT_FOUND && may_mean_the_hub(text))
        err_set(err, ERR_NOT_FOUND,
                "%s: no such file or folder; a repository of the Hub is written hf://%s", text,
                text);
    return rc;
}

int source_open(const char *text, const struct source_options *o, struct source **ret,
                struct error *err)
{
    _cleanup_source_ struct source *s = calloc(1, sizeof(*s));
    if (!s || !(s->text = strdup(text)))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (open_any(s, text, o, err) < 0)
        return -1;
    source_sort(s);
    *ret = TAKE_PTR(s);
    return 0;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    if (s->ops && s->ops->free)
        s->ops->free(s);
    for (size_t i = 0; i < s->n; i++)
        free(s->entries[i].path);
    free(s->entries);
    free(s->text);
    free(s);
}

const char *source_kind(const struct source *s)
{
    return s->ops->kind;
}

const char *source_text(const struct source *s)
{
    return s->text;
}

const char *source_revision(const struct source *s)
{
    return s->revision;
}

const char *source_note(const struct source *s)
{
    return s->note;
}

struct source_reads source_reads(const struct source *s)
{
    return s->ops->reads ? s->ops->reads(s) : s->reads;
}

/* ---- one file -------------------------------------------------------------------------------- */

static int read_window(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err);

int source_file_open(struct source *s, const char *path, struct source_file **ret,
                     struct error *err)
{
    struct source_file *f = calloc(1, sizeof(*f));
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    }
    f->source = s;
    f->step = SOURCE_STEP_MIN;
    int rc = s->ops->open(s, path, f, err);
    if (rc <= 0) {
        free(f->path);
        free(f);
        return rc;
    }
    f->bytes = (struct byte_source){.size = f->size, .read = read_window, .ctx = f};
    *ret = f;
    return 1;
}

void source_file_close(struct source_file *f)
{
    if (!f)
        return;
    f->source->ops->close(f);
    strbuf_done(&f->prefix);
    strbuf_done(&f->window);
    free(f->path);
    free(f);
}

uint64_t source_file_size(const struct source_file *f)
{
    return f->size;
}

const struct byte_source *source_file_bytes(struct source_file *f)
{
    return &f->bytes;
}

static int read_into(struct source_file *f, uint64_t offset, size_t len, struct strbuf *to,
                     struct error *err)
{
    if (!len)
        return 0;
    void *at = strbuf_reserve(to, len);
    if (!at)
        return err_set(err, ERR_NOMEM, "%s: out of memory for %zu bytes", f->path, len);
    if (f->source->ops->read(f, offset, at, len, err) < 0)
        return -1;
    strbuf_advance(to, len);
    return 0;
}

int source_file_prefix(struct source_file *f, uint64_t need, uint64_t slack, const void **ret,
                       size_t *ret_have, struct error *err)
{
    uint64_t want = need > f->size ? f->size : need;
    if (want > f->prefix.len) {
        if (slack > f->size - want)
            slack = f->size - want;
        want += slack;
        if (read_into(f, f->prefix.len, (size_t)(want - f->prefix.len), &f->prefix, err) < 0)
            return -1;
    }
    *ret = strbuf_str(&f->prefix);
    *ret_have = f->prefix.len;
    return 0;
}

void source_file_forget(struct source_file *f)
{
    strbuf_done(&f->prefix);
}

/* What lies in a buffer that begins at byte `at` of the file. */
static bool copy_from(const struct strbuf *b, uint64_t at, uint64_t offset, void *buf, size_t len)
{
    if (offset < at || offset - at > b->len || len > b->len - (size_t)(offset - at))
        return false;
    memcpy(buf, b->data + (offset - at), len);
    return true;
}

/* Reading on makes the window larger, up to 8 MiB; a jump makes it small again. */
static int move_window(struct source_file *f, uint64_t offset, size_t len, struct error *err)
{
    uint64_t end = f->window_at + f->window.len;
    bool on = f->window.len && offset >= f->window_at && offset <= end + SOURCE_STEP_MIN;
    f->step = on ? f->step * 2 : SOURCE_STEP_MIN;
    if (f->step > SOURCE_STEP_MAX)
        f->step = SOURCE_STEP_MAX;
    uint64_t n = len > f->step ? len : f->step;
    if (n > f->size - offset)
        n = f->size - offset;
    strbuf_reset(&f->window);
    f->window_at = offset;
    return read_into(f, offset, (size_t)n, &f->window, err);
}

static int read_window(void *ctx, uint64_t offset, void *buf, size_t len, struct error *err)
{
    struct source_file *f = ctx;
    if (!len || copy_from(&f->prefix, 0, offset, buf, len) ||
        copy_from(&f->window, f->window_at, offset, buf, len))
        return 0;
    if (offset > f->size || len > f->size - offset)
        return err_set(err, ERR_INVALID,
                       "truncated or corrupt: wants %zu bytes at byte %" PRIu64 " but only %" PRIu64
                       " remain",
                       len, offset, offset > f->size ? 0 : f->size - offset);
    if (len > SOURCE_STEP_MAX) /* nothing to keep */
        return f->source->ops->read(f, offset, buf, len, err);
    if (move_window(f, offset, len, err) < 0)
        return -1;
    memcpy(buf, f->window.data, len);
    return 0;
}

int source_read(struct source *s, const char *path, size_t max, struct strbuf *to,
                struct error *err)
{
    _cleanup_source_file_ struct source_file *f = NULL;
    int rc = source_file_open(s, path, &f, err);
    if (rc <= 0)
        return rc;
    if (f->size > max)
        return err_set(err, ERR_TOO_LARGE, "%s has %" PRIu64 " bytes, more than %zu", path, f->size,
                       max);
    return read_into(f, 0, (size_t)f->size, to, err) < 0 ? -1 : 1;
}
