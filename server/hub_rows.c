/* Files and folders of a commit, as tree, paths-info and info have them. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/hub_json.h"

/* ---- siblings -------------------------------------------------------------------------------- */

static void put_lfs(struct strbuf *to, const struct commit_file *f)
{
    struct hub_file file = {.size = f->size, .has_lfs = true, .sha256 = f->sha256};
    char hex[DIGEST_TEXT_MAX], pointer[200];
    json_put_key(to, "lfs");
    strbuf_putc(to, '{');
    json_put_text(to, "sha256", digest_format_hex(&f->sha256, hex)); /* "oid" in a tree */
    json_put_number(to, "size", f->size);
    json_put_number(to, "pointerSize", hub_pointer_text(&file, pointer, sizeof(pointer)));
    strbuf_putc(to, '}');
}

static void put_blob(struct strbuf *to, const struct commit_file *f)
{
    json_put_number(to, "size", f->size);
    json_put_text(to, "blobId", f->git_oid);
    if (f->has_lfs)
        put_lfs(to, f);
    strbuf_putc(to, '}');
}

void hub_put_named_file(struct strbuf *to, const struct commit_file *f)
{
    strbuf_puts(to, "{\"rfilename\":\"");
    for (const char *p = f->path; *p; p++) {
        if (*p == '"' || *p == '\\')
            strbuf_putc(to, '\\');
        strbuf_putc(to, *p); /* paths have no control characters */
    }
    strbuf_putc(to, '"');
    put_blob(to, f);
}

/* ---- looking things up ----------------------------------------------------------------------- */

static int compare_file(const void *path, const void *file)
{
    return strcmp(path, ((const struct commit_file *)file)->path);
}

static int compare_folder(const void *path, const void *folder)
{
    return strcmp(path, ((const struct hub_folder *)folder)->path);
}

static const struct hub_folder *find_folder(const struct hub_listing *l, const char *path)
{
    if (l->n_folders == 0)
        return NULL;
    return bsearch(path, l->folders, l->n_folders, sizeof(*l->folders), compare_folder);
}

static const struct commit_file *find_file(const struct hub_listing *l, const char *path)
{
    if (l->list.n == 0)
        return NULL;
    return bsearch(path, l->list.files, l->list.n, sizeof(*l->list.files), compare_file);
}

void hub_put_paths(struct strbuf *to, const struct hub_listing *l, const struct hub_words *paths)
{
    const char *path = NULL;
    strbuf_putc(to, '[');
    for (size_t i = 0; i < paths->n; i++) {
        path = hub_words_next(paths, path);
        const struct commit_file *file = find_file(l, path);
        const struct hub_folder *folder = file ? NULL : find_folder(l, path);
        if (file)
            hub_json_put_file(to, file);
        else if (folder)
            hub_json_put_folder(to, folder);
    }
    strbuf_putc(to, ']');
}

/* ---- a folder -------------------------------------------------------------------------------- */

/* Whether the path is one of the folder's that is to be shown. */
static bool is_shown(const struct hub_walk *w, const char *path)
{
    if (w->folder_len) {
        if (strncmp(path, w->folder, w->folder_len) != 0 || path[w->folder_len] != '/')
            return false;
        path += w->folder_len + 1;
    }
    return w->recursive || !strchr(path, '/');
}

/* How many of n sorted paths are not behind `path`; at(l, i) is one of them. */
static size_t count_until(const struct hub_listing *l, size_t n, const char *path,
                          const char *(*at)(const struct hub_listing *l, size_t i))
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(at(l, middle), path) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const char *file_at(const struct hub_listing *l, size_t i)
{
    return l->list.files[i].path;
}

static const char *folder_at(const struct hub_listing *l, size_t i)
{
    return l->folders[i].path;
}

/* What is below a folder is behind the folder's own path, though not at once ("a-b" is between "a"
 * and "a/b"), and ends before the first path that is greater than all that begin with it. */
static bool is_past(const struct hub_walk *w, const char *path)
{
    int c = strncmp(path, w->folder, w->folder_len);
    return c > 0 || (c == 0 && w->folder_len && (unsigned char)path[w->folder_len] > '/');
}

/* The next row that is shown: at most one of both is set. False at the end. */
static bool next_row(struct hub_walk *w, const struct commit_file **file,
                     const struct hub_folder **folder)
{
    for (;;) {
        *file = w->file < w->l->list.n ? &w->l->list.files[w->file] : NULL;
        *folder = w->dir < w->l->n_folders ? &w->l->folders[w->dir] : NULL;
        if (*file && *folder) {
            if (strcmp((*folder)->path, (*file)->path) < 0)
                *file = NULL;
            else
                *folder = NULL;
        }
        if (!*file && !*folder)
            return false;
        const char *path = *file ? (*file)->path : (*folder)->path;
        if (is_past(w, path))
            return false;
        if (*file)
            w->file++;
        else
            w->dir++;
        if (is_shown(w, path))
            return true;
    }
}

bool hub_walk_begin(struct hub_walk *w, const struct hub_listing *l, const char *folder,
                    bool recursive, const char *after)
{
    *w = (struct hub_walk){.l = l, .folder = folder, .recursive = recursive};
    w->folder_len = strlen(folder);
    if (w->folder_len && !find_folder(l, folder))
        return false;
    const char *start = strcmp(after, folder) > 0 ? after : folder;
    w->file = count_until(l, l->list.n, start, file_at);
    w->dir = count_until(l, l->n_folders, start, folder_at);
    return true;
}

/* NULL: there is none. Else its path. */
static const char *put_row(struct hub_walk *w, struct strbuf *to)
{
    const struct commit_file *file;
    const struct hub_folder *dir;
    if (!next_row(w, &file, &dir))
        return NULL;
    if (file)
        hub_json_put_file(to, file);
    else
        hub_json_put_folder(to, dir);
    return file ? file->path : dir->path;
}

bool hub_walk_rows(struct hub_walk *w, struct strbuf *to, size_t enough)
{
    while (to->len < enough && !strbuf_failed(to))
        if (!put_row(w, to))
            return false;
    return true;
}

bool hub_put_tree(struct strbuf *to, const struct hub_listing *l, const char *folder,
                  bool recursive, struct hub_page *page)
{
    struct hub_walk w;
    const struct commit_file *file;
    const struct hub_folder *dir;
    const char *last = NULL, *path;
    if (!hub_walk_begin(&w, l, folder, recursive, page->after))
        return false;
    page->last = NULL;
    strbuf_putc(to, '[');
    for (uint64_t n = 0; n < page->limit && (path = put_row(&w, to)); n++)
        last = path;
    if (last && next_row(&w, &file, &dir))
        page->last = last;
    strbuf_putc(to, ']');
    return true;
}

bool hub_put_some_siblings(struct strbuf *to, const struct hub_listing *l, size_t *at,
                           size_t enough)
{
    for (; *at < l->list.n && to->len < enough; ++*at) {
        json_put_separator(to);
        strbuf_putc(to, '{');
        json_put_text(to, "rfilename", l->list.files[*at].path);
        put_blob(to, &l->list.files[*at]);
    }
    return *at < l->list.n;
}

void hub_put_siblings(struct strbuf *to, const struct hub_listing *l)
{
    size_t at = 0;
    strbuf_putc(to, '[');
    hub_put_some_siblings(to, l, &at, SIZE_MAX);
    strbuf_putc(to, ']');
}
