/* The info object of a commit, and the refs of a repository. */
#include <string.h>

#include "upstream/hub_mirror_private.h"

/* ---- info ------------------------------------------------------------------------------------ */

struct siblings {
    const struct hub_look *look;
    const struct hub_rows *rows; /* knows sizes; NULL = they do not matter */
};

/* A policy that asks for sizes has a file that is not in the list as empty: there is none. */
static bool shows_sibling(void *ctx, const char *path, uint64_t size)
{
    const struct siblings *s = ctx;
    const struct commit_file *f = s->rows ? hub_rows_file(s->rows, path) : NULL;
    return hub_look_check_file(s->look, path, f ? f->size : size, NULL) == 0;
}

static int put_siblings(const struct hub_look *l, const struct hub_rows *rows, struct strbuf *to)
{
    strbuf_putc(to, '[');
    for (size_t i = 0; i < rows->list.n; i++) {
        const struct commit_file *f = &rows->list.files[i];
        if (hub_look_check_file(l, f->path, f->size, NULL) < 0)
            continue;
        json_put_separator(to);
        strbuf_putc(to, '{');
        json_put_text(to, "rfilename", f->path);
        strbuf_putc(to, '}');
    }
    strbuf_putc(to, ']');
    return strbuf_failed(to) ? -1 : 0;
}

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for an info object");
}

/* What an answer needs of the list, in *ret, which may be there already: 1 it is, 0 not in memory
 * or in the store, -1. ask: otherwise it is asked for. */
static int need_rows(struct hub_look *l, bool ask, struct hub_rows **ret, struct error *err)
{
    if (*ret)
        return 1;
    if (!ask)
        return hub_rows_stored(l->m, l->id, l->at->commit, ret, err);
    return hub_look_rows(l, false, ret, err) < 0 ? -1 : 1;
}

/* info as this server's rules have it, appended: 1; 0 without the list, -1. */
static int tell_info(struct hub_look *l, const struct strbuf *info, bool ask, struct strbuf *to,
                     struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    _cleanup_strbuf_ struct strbuf siblings = STRBUF_INIT;
    bool sizes, has, hides = hub_look_hides(l, &sizes);
    size_t was = to->len;
    int found = sizes ? need_rows(l, ask, &rows, err) : 1;
    if (found != 1)
        return found;
    struct siblings s = {.look = l, .rows = rows};
    if (hub_json_info_filter(strbuf_str(info), info->len, hides ? shows_sibling : NULL, &s, NULL,
                             &has, to, err) < 0)
        return err_wrap(err, "the info object of %s at %s", l->id, l->at->commit);
    if (has)
        return 1;
    strbuf_truncate(to, was);
    found = need_rows(l, ask, &rows, err);
    if (found != 1)
        return found;
    if (put_siblings(l, rows, &siblings) < 0)
        return no_memory(err);
    return hub_json_info_filter(strbuf_str(info), info->len, NULL, NULL, strbuf_str(&siblings),
                                &has, to, err) < 0
               ? -1
               : 1;
}

/* What can be said of a commit of which only the list is here. */
static int tell_list(struct hub_look *l, const struct hub_rows *rows, struct strbuf *to,
                     struct error *err)
{
    json_put_separator(to);
    strbuf_putc(to, '{');
    json_put_text(to, "id", l->at->id);
    if (l->kind == HUB_MODEL)
        json_put_text(to, "modelId", l->at->id);
    json_put_text(to, "sha", l->at->commit);
    json_put_key(to, "siblings");
    if (put_siblings(l, rows, to) < 0)
        return no_memory(err);
    strbuf_putc(to, '}');
    return strbuf_failed(to) ? no_memory(err) : 0;
}

static int info_is_missing(struct hub_look *l, struct strbuf *to, struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    struct error other = ERROR_INIT;
    if (!hub_look_may_be_stale(l, err) ||
        hub_rows_stored(l->m, l->id, l->at->commit, &rows, &other) != 1)
        return -1;
    hub_look_stale(l, 0, err->text);
    return tell_list(l, rows, to, err);
}

/* The document of at->commit: stored, or asked for. */
static int find_info(struct hub_look *l, struct strbuf *info, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    char what[2 * REPOSITORY_MAX + 64];
    int found = store_hub_document_get(l->m->store, l->m->config->prefix, l->id, l->at->commit,
                                       "info", info, NULL, err);
    if (found)
        return found < 0 ? -1 : 0;
    if (l->m->offline) {
        snprintf(what, sizeof(what), "what the Hub says of %s/%s at %s", l->m->config->prefix,
                 l->id, l->at->commit);
        return hub_look_is_offline(l, what, err);
    }
    struct hub_task t = hub_look_task(l, HUB_TASK_INFO, l->at->commit);
    t.name = l->id;
    if (hub_look_ask(l, &t, false, &x, err) < 0)
        return -1;
    const struct strbuf *text = &hub_flight_result(x)->text;
    strbuf_put(info, strbuf_str(text), text->len);
    return strbuf_failed(info) ? no_memory(err) : 0;
}

/* The same; x: the question that told the commit, or NULL. */
static int take_info(struct hub_look *l, const struct hub_flight *x, struct strbuf *info,
                     struct error *err)
{
    const struct strbuf *text = x ? &hub_flight_result(x)->text : NULL;
    if (!text || !text->len)
        return find_info(l, info, err);
    strbuf_put(info, strbuf_str(text), text->len);
    return strbuf_failed(info) ? no_memory(err) : 0;
}

/* Out of what is stored: the same text for all who ask for it. */
static int make_told(void *ctx, struct strbuf *to, struct error *err)
{
    struct hub_look *l = ctx;
    _cleanup_strbuf_ struct strbuf info = STRBUF_INIT;
    int found = store_hub_document_get(l->m->store, l->m->config->prefix, l->id, l->at->commit,
                                       "info", &info, NULL, err);
    return found == 1 ? tell_info(l, &info, false, to, err) : found;
}

static int share_info(struct hub_look *l, struct hub_text **ret, struct error *err)
{
    char key[REPOSITORY_MAX + 128];
    const struct config_policy *policies[2];
    hub_look_policies(l, policies);
    snprintf(key, sizeof(key), "%s %p %p %s", l->at->commit, (const void *)policies[0],
             (const void *)policies[1], l->id);
    return hub_text_get(&l->m->texts, key, make_told, l, ret, err);
}

static int own_info(struct hub_look *l, const struct hub_flight *x, struct hub_text **ret,
                    struct error *err)
{
    _cleanup_strbuf_ struct strbuf info = STRBUF_INIT, text = STRBUF_INIT;
    int rc = take_info(l, x, &info, err) < 0 ? info_is_missing(l, &text, err)
                                             : tell_info(l, &info, true, &text, err);
    return rc < 0 ? -1 : hub_text_own(&text, ret, err);
}

static int info_of_revision(struct hub_mirror *m, const struct hub_query *q, struct hub_text **ret,
                            struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_look l;
    if (hub_look_begin(m, q, true, HUB_ACCESS_METADATA, &l, at, err) < 0 ||
        hub_look_commit(&l, NULL, &x, err) < 0)
        return -1;
    int rc = share_info(&l, ret, err);
    return rc ? (rc < 0 ? -1 : 0) : own_info(&l, x, ret, err);
}

/* Without a commit, or anything that there is of one. */
static int info_about(struct hub_mirror *m, const struct hub_query *q, struct hub_text **ret,
                      struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_strbuf_ struct strbuf info = STRBUF_INIT, text = STRBUF_INIT;
    struct hub_look l;
    if (hub_look_begin(m, q, false, HUB_ACCESS_METADATA, &l, at, err) < 0)
        return -1;
    strcpy(l.revision, "main");
    l.is_default = l.is_about = true;
    int r = hub_look_commit(&l, NULL, &x, err);
    if (r == 0)
        r = take_info(&l, x, &info, err);
    *at->commit = '\0';
    if (r == 0)
        r = hub_json_info_about(strbuf_str(&info), info.len, &text, err);
    return r < 0 ? -1 : hub_text_own(&text, ret, err);
}

/* Clients that have a commit ask without one as well, for the tags of a model, and
 * transformers 4.57 does not live with a refusal. Where the default branch may not be had they are
 * told of the repository, and nothing that they could ask for next. */
int hub_mirror_info(struct hub_mirror *m, const struct hub_query *q, struct hub_text **ret,
                    struct hub_at *at, struct error *err)
{
    if (info_of_revision(m, q, ret, at, err) == 0)
        return 0;
    if (at->refused != HUB_REFUSED_POLICY || *q->revision)
        return -1;
    *err = ERROR_INIT;
    return info_about(m, q, ret, at, err);
}

/* ---- refs ------------------------------------------------------------------------------------ */

const char *hub_what_refs(bool pull_requests)
{
    return pull_requests ? "refs?include_prs=1" : "refs";
}

/* A revision that has a commit for now has it here as well. One that may not be asked for is not to
 * be had by way of its commit. */
static enum hub_ref_shown pinned(void *ctx, const char *revision, char commit[static 41])
{
    const struct hub_look *l = ctx;
    struct hub_pin pin;
    if (!hub_look_shows_revision(l, revision))
        return HUB_REF_HIDDEN;
    if (!*revision || strlen(revision) > HUB_REVISION_MAX ||
        store_hub_pin_get(l->m->store, l->m->config->prefix, l->id, revision, &pin, NULL) != 1 ||
        !hub_is_fresh(l->m, pin.checked_at))
        return HUB_REF_AS_IT_IS;
    memcpy(commit, pin.commit, sizeof(pin.commit));
    return HUB_REF_PINNED;
}

static int tell_refs(struct hub_look *l, const struct strbuf *json, struct strbuf *to,
                     struct error *err)
{
    return hub_json_refs(strbuf_str(json), json->len, pinned, l, to, err);
}

/* There is no refs object, but the default branch is known. */
static int tell_main(struct hub_look *l, struct strbuf *to, struct error *err)
{
    strcpy(l->revision, "main");
    if (!hub_look_may_be_stale(l, err))
        return -1;
    struct error why = *err;
    if (hub_look_find_pin(l, err) < 0)
        return -1;
    *err = why;
    if (!l->has_pin || !hub_look_shows_revision(l, "main"))
        return -1;
    hub_look_stale(l, l->pin.checked_at, why.text);
    strbuf_printf(to,
                  "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\","
                  "\"targetCommit\":\"%s\"}],\"tags\":[],\"converts\":[]}",
                  l->pin.commit);
    return strbuf_failed(to) ? no_memory(err) : 0;
}

/* The id has to be known before anything can be stored under it. */
static int need_id(struct hub_look *l, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    if (l->knows_id || l->m->offline)
        return hub_look_is_id(l, err);
    struct hub_task t = hub_look_task(l, HUB_TASK_INFO, "main");
    if (hub_look_ask(l, &t, false, &x, err) < 0)
        return -1;
    return hub_look_set_id(l, hub_flight_result(x)->id, err);
}

int hub_mirror_refs(struct hub_mirror *m, const struct hub_query *q, bool pull_requests,
                    struct strbuf *to, struct hub_at *at, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    struct hub_look l;
    uint64_t checked_at = 0;
    if (hub_look_begin(m, q, false, HUB_ACCESS_METADATA, &l, at, err) < 0 || need_id(&l, err) < 0)
        return -1;
    int found = store_hub_document_get(m->store, m->config->prefix, l.id, "",
                                       hub_what_refs(pull_requests), &json, &checked_at, err);
    if (found < 0)
        return -1;
    if (found && hub_is_fresh(m, checked_at))
        return tell_refs(&l, &json, to, err);
    struct hub_task t = hub_look_task(&l, HUB_TASK_REFS, "");
    t.flag = pull_requests;
    if (m->offline)
        err_set(err, ERR_NOT_FOUND,
                "the refs of %s/%s are not here, and the upstream is offline by "
                "configuration",
                m->config->prefix, l.id);
    else if (hub_look_ask(&l, &t, found == 1, &x, err) == 0)
        return tell_refs(&l, &hub_flight_result(x)->text, to, err);
    if (!found)
        return tell_main(&l, to, err);
    if (!hub_look_may_be_stale(&l, err))
        return -1;
    hub_look_stale(&l, checked_at,
                   m->offline ? "the upstream is offline by configuration" : err->text);
    return tell_refs(&l, &json, to, err);
}
