/* The complete file list of a commit, with its folders: stored once, and kept in memory while it is
 * used, because a client asks for each of its files. */
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
    free(r->folders);
    free(r->folder_texts);
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
    if (name_folders(&r->list, &text, err) < 0 || read_folders(r, &text, err) < 0)
        return -1;
    r->has_folders = false;
    return 0;
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
    if (r->list.n > 1)
        qsort(r->list.files, r->list.n, sizeof(*r->list.files), by_path);
    int rc = folders ? read_folders(r, folders, err) : 0;
    if (rc == 0 && !r->has_folders)
        rc = derive_folders(r, err);
    if (rc < 0) {
        hub_rows_unref(r);
        return -1;
    }
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

/* ---- lists in memory ------------------------------------------------------------------------- */

static char *cache_key(const char *id, const char *commit)
{
    _cleanup_strbuf_ struct strbuf key = STRBUF_INIT;
    strbuf_printf(&key, "%s %s", commit, id);
    return strbuf_take(&key);
}

/* Near enough. */
static size_t bytes_of(const struct hub_rows *r)
{
    return r->list.n * (sizeof(struct commit_file) + 64) +
           r->n_folders * (sizeof(struct hub_folder) + 64);
}

/* The functions with the word entry are called with the lock held. */

static void clear_entry(struct hub_rows_cache *c, struct hub_rows_entry *e)
{
    c->bytes -= e->bytes;
    free(e->key);
    hub_rows_unref(e->rows);
    *e = (struct hub_rows_entry){0};
}

static struct hub_rows_entry *find_entry(struct hub_rows_cache *c, const char *key)
{
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        if (c->items[i].key && strcmp(c->items[i].key, key) == 0)
            return &c->items[i];
    return NULL;
}

static struct hub_rows_entry *oldest_entry(struct hub_rows_cache *c, bool in_use)
{
    struct hub_rows_entry *e = NULL;
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        if ((!in_use || c->items[i].key) && (!e || c->items[i].used < e->used))
            e = &c->items[i];
    return e;
}

void hub_rows_cache_put(struct hub_rows_cache *c, const char *id, const char *commit,
                        struct hub_rows *rows)
{
    char *key = cache_key(id, commit);
    if (!key)
        return;
    pthread_mutex_lock(&c->lock);
    struct hub_rows_entry *e = find_entry(c, key);
    if (!e)
        e = oldest_entry(c, false);
    clear_entry(c, e);
    /* However long it is: without it each of its files would cost reading it. */
    struct hub_rows_entry *old;
    size_t bytes = bytes_of(rows);
    while (c->bytes && c->bytes + bytes > HUB_ROWS_BYTES_MAX && (old = oldest_entry(c, true)))
        clear_entry(c, old);
    *e = (struct hub_rows_entry){
        .key = key, .used = ++c->clock, .bytes = bytes, .rows = hub_rows_ref(rows)};
    c->bytes += bytes;
    pthread_mutex_unlock(&c->lock);
}

static struct hub_rows *cache_get(struct hub_rows_cache *c, const char *id, const char *commit)
{
    _cleanup_free_ char *key = cache_key(id, commit);
    if (!key)
        return NULL;
    pthread_mutex_lock(&c->lock);
    struct hub_rows_entry *e = find_entry(c, key);
    if (e)
        e->used = ++c->clock;
    struct hub_rows *rows = e ? hub_rows_ref(e->rows) : NULL;
    pthread_mutex_unlock(&c->lock);
    return rows;
}

void hub_rows_cache_done(struct hub_rows_cache *c)
{
    for (size_t i = 0; i < HUB_ROWS_CACHED; i++)
        clear_entry(c, &c->items[i]);
    pthread_mutex_destroy(&c->lock);
}

/* ---- stored, or asked for -------------------------------------------------------------------- */

int hub_rows_read(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                  struct error *err)
{
    _cleanup_strbuf_ struct strbuf folders = STRBUF_INIT;
    struct commit_files list = {0};
    struct hub_rows *rows = NULL;
    int found = store_commit_files_get(m->store, m->config->prefix, id, commit, &list, err);
    if (found != 1)
        return found;
    found = store_hub_document_get(m->store, m->config->prefix, id, commit, "folders", &folders,
                                   NULL, err);
    if (found < 0) {
        commit_files_done(&list);
        return -1;
    }
    if (hub_rows_make(&list, found ? &folders : NULL, &rows, err) < 0)
        return -1;
    hub_rows_cache_put(&m->rows, id, commit, rows);
    *ret = rows;
    return 1;
}

int hub_rows_stored(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                    struct error *err)
{
    struct hub_rows *rows = cache_get(&m->rows, id, commit);
    if (!rows)
        return hub_rows_read(m, id, commit, ret, err);
    *ret = rows;
    return 1;
}

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
    commit_files_done(&l->list);
    free(l->folders);
    free(l->storage);
    *l = (struct hub_listing){.storage = NULL};
}

struct copying {
    struct hub_listing *to;
    char *p; /* where the next text goes */
};

static const char *copy_text(struct copying *c, const char *s)
{
    char *to = c->p;
    c->p = stpcpy(to, s) + 1;
    return to;
}

static size_t text_bytes(const struct hub_rows *r)
{
    size_t n = 1;
    for (size_t i = 0; i < r->list.n; i++)
        n += strlen(r->list.files[i].path) + 1;
    for (size_t i = 0; i < r->n_folders; i++)
        n += strlen(r->folders[i].path) + 1;
    return n;
}

static int copy_rows(const struct hub_look *l, const struct hub_rows *r, struct hub_listing *to,
                     struct error *err)
{
    bool sizes, hides = hub_look_hides(l, &sizes);
    to->list.files = calloc(r->list.n + 1, sizeof(*to->list.files));
    to->folders = calloc(r->n_folders + 1, sizeof(*to->folders));
    to->storage = malloc(text_bytes(r));
    if (!to->list.files || !to->folders || !to->storage)
        return no_memory(err);
    struct copying c = {.to = to, .p = to->storage};
    for (size_t i = 0; i < r->list.n; i++) {
        const struct commit_file *f = &r->list.files[i];
        if (hides && hub_look_check_file(l, f->path, f->size, NULL) < 0)
            continue;
        to->list.files[to->list.n] = *f;
        to->list.files[to->list.n++].path = copy_text(&c, f->path);
    }
    for (size_t i = 0; i < r->n_folders; i++) {
        to->folders[i] = r->folders[i];
        to->folders[i].path = copy_text(&c, r->folders[i].path);
    }
    to->n_folders = r->n_folders;
    return 0;
}

int hub_mirror_list(struct hub_mirror *m, const struct hub_query *q, struct hub_listing *ret,
                    struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    _cleanup_(hub_listing_done) struct hub_listing list = {.storage = NULL};
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0 || hub_look_rows(&l, true, &rows, err) < 0 ||
        copy_rows(&l, rows, &list, err) < 0)
        return -1;
    *ret = list;
    list = (struct hub_listing){.storage = NULL};
    return 0;
}
