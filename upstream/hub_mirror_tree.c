/* What else the Hub says of a commit: its rows with what expand=true adds, and its history. */
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for what the Hub says of a commit");
}

/* ---- expanded rows --------------------------------------------------------------------------- */

const char *hub_what_expanded(const char *folder, bool recursive, char buf[static HUB_WHAT_MAX])
{
    snprintf(buf, HUB_WHAT_MAX, "expanded%s:%s", recursive ? "+" : "", folder);
    return buf;
}

static bool shows_row(void *ctx, const char *path, uint64_t size)
{
    return hub_look_check_file(ctx, path, size, NULL) == 0;
}

static int tell_rows(struct hub_look *l, const char *folder, const struct strbuf *json,
                     struct strbuf *to, struct error *err)
{
    bool sizes, hides = hub_look_hides(l, &sizes);
    if (hub_json_rows_filter(strbuf_str(json), json->len, hides ? shows_row : NULL, l, to, err) < 0)
        return err_wrap(err, "the files of %s%s%.200s at %s with their last commits", l->id,
                        *folder ? "/" : "", folder, l->at->commit);
    return 0;
}

/* Whether a path is among a folder's rows. */
static bool is_in(const char *path, const char *folder, bool recursive)
{
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) != 0 || path[n] != '/'))
        return false;
    return recursive || !strchr(path + n + (n > 0), '/');
}

/* The rows without what expand=true adds. */
static int tell_plain(struct hub_look *l, const struct hub_rows *rows, const char *folder,
                      bool recursive, struct strbuf *to, struct error *err)
{
    strbuf_putc(to, '[');
    for (size_t i = 0; i < rows->n_folders; i++)
        if (is_in(rows->folders[i].path, folder, recursive))
            hub_json_put_folder(to, &rows->folders[i]);
    for (size_t i = 0; i < rows->list.n; i++) {
        const struct commit_file *f = &rows->list.files[i];
        if (is_in(f->path, folder, recursive) &&
            hub_look_check_file(l, f->path, f->size, NULL) == 0)
            hub_json_put_file(to, f);
    }
    strbuf_putc(to, ']');
    return strbuf_failed(to) ? no_memory(err) : 0;
}

static int expanded_is_missing(struct hub_look *l, const char *folder, bool recursive,
                               struct strbuf *to, struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    struct error other = ERROR_INIT;
    if (!hub_look_may_be_stale(l, err) ||
        hub_rows_stored(l->m, l->id, l->at->commit, &rows, &other) != 1)
        return -1;
    struct error why = *err;
    hub_look_stale(l, 0, why.text);
    return tell_plain(l, rows, folder, recursive, to, err);
}

/* The list, where it is here, knows which folders there are. */
static int check_folder(struct hub_look *l, const char *folder, struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    if (!*folder)
        return 0;
    if (!hub_path_is_valid(folder) || strlen(folder) > HUB_PATH_MAX)
        return hub_look_no_entry(l, folder, err);
    int found = hub_rows_stored(l->m, l->id, l->at->commit, &rows, err);
    if (found < 0)
        return -1;
    return found && !hub_rows_has_folder(rows, folder) ? hub_look_no_entry(l, folder, err) : 0;
}

/* A document of at->commit that is asked for once: 0, or -1 with why it cannot be. */
static int find_document(struct hub_look *l, const char *what, struct hub_task *t,
                         struct strbuf *to, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    char text[REPOSITORY_MAX + 128];
    int found = store_hub_document_get(l->m->store, l->m->config->prefix, l->id, l->at->commit,
                                       what, to, NULL, err);
    if (found)
        return found < 0 ? -1 : 0;
    if (l->m->offline) {
        snprintf(text, sizeof(text), "what the Hub says of %s/%s at %s", l->m->config->prefix,
                 l->id, l->at->commit);
        return hub_look_is_offline(l, text, err);
    }
    if (hub_look_ask(l, t, false, &x, err) < 0)
        return -1;
    const struct strbuf *got = &hub_flight_result(x)->text;
    strbuf_put(to, strbuf_str(got), got->len);
    return strbuf_failed(to) ? no_memory(err) : 0;
}

int hub_mirror_expanded(struct hub_mirror *m, const struct hub_query *q, const char *folder,
                        bool recursive, struct strbuf *to, struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    char what[HUB_WHAT_MAX];
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0 || check_folder(&l, folder, err) < 0)
        return -1;
    struct hub_task t = hub_look_task(&l, HUB_TASK_EXPANDED, at->commit);
    t.path = folder;
    t.flag = recursive;
    if (find_document(&l, hub_what_expanded(folder, recursive, what), &t, &json, err) < 0)
        return expanded_is_missing(&l, folder, recursive, to, err);
    return tell_rows(&l, folder, &json, to, err);
}

/* ---- history --------------------------------------------------------------------------------- */

int hub_mirror_commits(struct hub_mirror *m, const struct hub_query *q, struct strbuf *to,
                       uint64_t *ret_total, struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0)
        return -1;
    struct hub_task t = hub_look_task(&l, HUB_TASK_COMMITS, at->commit);
    if (find_document(&l, "commits", &t, &text, err) < 0)
        return -1;
    const char *rows = memchr(strbuf_str(&text), '\n', text.len);
    if (!rows)
        return err_set(err, ERR_INTERNAL, "the stored history of %s at %s has no number", l.id,
                       at->commit);
    *ret_total = strtoull(text.data, NULL, 10);
    rows++;
    strbuf_put(to, rows, text.len - (size_t)(rows - text.data));
    return strbuf_failed(to) ? no_memory(err) : 0;
}
