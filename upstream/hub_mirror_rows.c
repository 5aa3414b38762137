/* The complete file list of a commit, with its folders. */
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

/* ---- a list ---------------------------------------------------------------------------------- */

struct hub_rows *hub_rows_ref(struct hub_rows *r)
{
    atomic_fetch_add_explicit(&r->users, 1, memory_order_relaxed);
    return r;
}

void hub_rows_unref(struct hub_rows *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->users, 1, memory_order_acq_rel) != 1)
        return;
    commit_files_done(&r->list);
    if (r->whole) {
        hub_rows_unref(r->whole);
    } else {
        free(r->folders);
        free(r->folder_texts);
    }
    free(r);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct commit_file *)a)->path, ((const struct commit_file *)b)->path);
}

static int by_folder(const void *a, const void *b)
{
    return strcmp(((const struct hub_folder *)a)->path, ((const struct hub_folder *)b)->path);
}

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a file list");
}

/* text: "path" NUL "oid" NUL of each. What is not of that form is no list of folders. */
static int read_folders(struct hub_rows *r, const struct strbuf *text, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += text->data[i] == '\0';
    if (n % 2 || (text->len && text->data[text->len - 1]))
        return 0;
    r->folders = calloc(n / 2 + 1, sizeof(*r->folders));
    r->folder_texts = malloc(text->len + 1);
    if (!r->folders || !r->folder_texts)
        return no_memory(err);
    memcpy(r->folder_texts, strbuf_str(text), text->len + 1);
    const char *p = r->folder_texts;
    for (size_t i = 0; i < n / 2; i++) {
        const char *oid = p + strlen(p) + 1;
        if (!hub_path_is_valid(p) || !is_lower_hex(oid, 40))
            return 0;
        r->folders[i].path = p;
        strcpy(r->folders[i].git_oid, oid);
        p = oid + 41;
    }
    qsort(r->folders, n / 2, sizeof(*r->folders), by_folder);
    r->n_folders = n / 2;
    r->has_folders = true;
    return 0;
}

/* The folders that the paths name, for when the Hub's own are not known: "path" NUL "oid" NUL. */
static int name_folders(const struct commit_files *list, struct strbuf *to, struct error *err)
{
    const char *before = "";
    for (size_t i = 0; i < list->n; i++) {
        const char *path = list->files[i].path;
        size_t same = 0; /* up to here it is in folders of the file before */
        for (size_t k = 0; path[k] && path[k] == before[k]; k++)
            if (path[k] == '/')
                same = k + 1;
        for (const char *slash = strchr(path + same, '/'); slash; slash = strchr(slash + 1, '/')) {
            strbuf_put(to, path, (size_t)(slash - path));
            strbuf_put(to, "\0" HUB_NO_OID, 42);
        }
        before = path;
    }
    return strbuf_failed(to) ? no_memory(err) : 0;
}

static int derive_folders(struct hub_rows *r, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    free(TAKE_PTR(r->folders));
    free(TAKE_PTR(r->folder_texts));
    if (name_folders(&r->list, &text, err) < 0)
        return -1;
    return read_folders(r, &text, err);
}

static bool is_sorted(const struct commit_files *l)
{
    for (size_t i = 1; i < l->n; i++)
        if (strcmp(l->files[i - 1].path, l->files[i].path) > 0)
            return false;
    return true;
}

/* The paths alone, where they may stand among other things. Without memory for it they stay. */
static size_t keep_paths(struct commit_files *l)
{
    size_t n = 1;
    for (size_t i = 0; i < l->n; i++)
        n += strlen(l->files[i].path) + 1;
    char *texts = malloc(n), *p = texts;
    if (!texts)
        return n;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = p;
        p = stpcpy(p, l->files[i].path) + 1;
        l->files[i].path = path;
    }
    free(l->storage);
    l->storage = texts;
    return n;
}

int hub_rows_make(struct commit_files *list, const struct strbuf *folders, struct hub_rows **ret,
                  struct error *err)
{
    struct hub_rows *r = calloc(1, sizeof(*r));
    if (!r) {
        commit_files_done(list);
        return no_memory(err);
    }
    atomic_init(&r->users, 1);
    r->list = *list;
    *list = (struct commit_files){0};
    if (!is_sorted(&r->list))
        qsort(r->list.files, r->list.n, sizeof(*r->list.files), by_path);
    size_t texts = keep_paths(&r->list);
    int rc = folders ? read_folders(r, folders, err) : 0;
    bool asked = r->has_folders; /* there are Hubs that list files alone */
    if (rc == 0 && r->n_folders == 0)
        rc = derive_folders(r, err);
    r->has_folders = asked;
    if (rc < 0) {
        hub_rows_unref(r);
        return -1;
    }
    r->bytes = sizeof(*r) + texts + r->list.n * sizeof(*r->list.files) +
               r->n_folders * (sizeof(*r->folders) + 64);
    *ret = r;
    return 0;
}

/* The first file whose path is not before this one. */
static size_t lower_bound(const struct commit_files *l, const char *path)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(l->files[mid].path, path) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct commit_file *hub_rows_file(const struct hub_rows *r, const char *path)
{
    size_t i = lower_bound(&r->list, path);
    return i < r->list.n && strcmp(r->list.files[i].path, path) == 0 ? &r->list.files[i] : NULL;
}

bool hub_rows_has_folder(const struct hub_rows *r, const char *folder)
{
    _cleanup_strbuf_ struct strbuf inside = STRBUF_INIT;
    if (!*folder)
        return true;
    strbuf_printf(&inside, "%s/", folder);
    if (strbuf_failed(&inside))
        return true; /* then the Hub finds out */
    size_t i = lower_bound(&r->list, strbuf_str(&inside));
    return i < r->list.n && strncmp(r->list.files[i].path, strbuf_str(&inside), inside.len) == 0;
}

/* ---- stored, or asked for -------------------------------------------------------------------- */

static int ask_for_rows(struct hub_look *l, bool held, struct hub_rows **ret, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_task t = hub_look_task(l, HUB_TASK_ROWS, l->at->commit);
    if (hub_look_ask(l, &t, held, &x, err) < 0)
        return -1;
    struct hub_rows *rows = hub_flight_result(x)->rows;
    if (!rows)
        return err_set(err, ERR_INTERNAL, "a file list of %s was asked for, and nothing came",
                       l->id);
    *ret = hub_rows_ref(rows);
    return 0;
}

int hub_look_rows(struct hub_look *l, bool folders, struct hub_rows **ret, struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    char what[REPOSITORY_MAX + 128];
    int found = hub_rows_stored(l->m, l->id, l->at->commit, &rows, err);
    if (found < 0)
        return -1;
    if (rows && (rows->has_folders || !folders)) {
        *ret = TAKE_PTR(rows);
        return 0;
    }
    snprintf(what, sizeof(what), "the file list of %s/%s at %s", l->m->config->prefix, l->id,
             l->at->commit);
    if (!rows && l->m->offline) {
        hub_look_is_offline(l, what, err);
        return -1;
    }
    if (!l->m->offline && ask_for_rows(l, rows != NULL, ret, err) == 0)
        return 0;
    if (!rows)
        return -1;
    hub_look_stale(l, 0, l->m->offline ? "the upstream is offline by configuration" : err->text);
    *ret = TAKE_PTR(rows);
    return 0;
}

/* ---- as clients get it ----------------------------------------------------------------------- */

void hub_listing_done(struct hub_listing *l)
{
    hub_rows_unref(l->rows);
    *l = (struct hub_listing){.rows = NULL};
}

/* The list without what the policies hide. */
static int make_shown(const struct hub_look *l, struct hub_rows *whole, struct hub_rows **ret,
                      struct error *err)
{
    struct hub_rows *r = calloc(1, sizeof(*r));
    struct commit_file *files = calloc(whole->list.n + 1, sizeof(*files));
    if (!r || !files) {
        free(r);
        free(files);
        return no_memory(err);
    }
    atomic_init(&r->users, 1);
    r->list.files = files;
    for (size_t i = 0; i < whole->list.n; i++) {
        const struct commit_file *f = &whole->list.files[i];
        if (hub_look_check_file(l, f->path, f->size, NULL) == 0)
            files[r->list.n++] = *f;
    }
    r->has_folders = whole->has_folders;
    r->folders = whole->folders;
    r->n_folders = whole->n_folders;
    r->bytes = sizeof(*r) + r->list.n * sizeof(*files);
    r->whole = hub_rows_ref(whole);
    *ret = r;
    return 0;
}

struct showing {
    const struct hub_look *look;
    struct hub_rows *whole;
};

static int load_shown(void *ctx, struct hub_rows **ret, struct error *err)
{
    const struct showing *s = ctx;
    return make_shown(s->look, s->whole, ret, err) < 0 ? -1 : 1;
}

/* What the policies leave of a list is shared as the list is: many clients ask for it at once. */
static int find_shown(const struct hub_look *l, struct hub_rows *whole, struct hub_rows **ret,
                      struct error *err)
{
    bool sizes;
    if (!hub_look_hides(l, &sizes)) {
        *ret = hub_rows_ref(whole);
        return 0;
    }
    struct showing s = {.look = l, .whole = whole};
    struct hub_rows_key k = {
        .id = l->id, .commit = l->at->commit, .has_folders = whole->has_folders};
    hub_look_policies(l, k.policies);
    return hub_rows_cache_get(&l->m->rows, &k, load_shown, &s, ret, err) < 0 ? -1 : 0;
}

int hub_mirror_list(struct hub_mirror *m, const struct hub_query *q, struct hub_listing *ret,
                    struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_hub_rows_ struct hub_rows *rows = NULL, *shown = NULL;
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0 || hub_look_rows(&l, true, &rows, err) < 0 ||
        find_shown(&l, rows, &shown, err) < 0)
        return -1;
    *ret = (struct hub_listing){.list = shown->list,
                                .folders = shown->folders,
                                .n_folders = shown->n_folders,
                                .rows = shown};
    shown = NULL;
    return 0;
}
