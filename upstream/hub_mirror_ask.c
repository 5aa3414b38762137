/* Asking the Hub, and bringing the store up to date with what it says. What the store cannot take
 * (the disk is full) is told to whoever waits for it all the same. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "upstream/hub_identity.h"
#include "upstream/hub_mirror_private.h"

void hub_result_done(struct hub_result *r)
{
    strbuf_done(&r->text);
    hub_rows_unref(r->rows);
    *r = (struct hub_result){.rc = 0};
}

/* One question, with the Hub as it is asked. */
struct asking {
    struct hub_mirror *m;
    const struct hub_task *t;
    struct hub *hub;
    struct hub_result *r;
};

static const char *prefix_of(const struct asking *a)
{
    return a->m->config->prefix;
}

/* ---- what the Hub says is not there ---------------------------------------------------------- */

int hub_negative_key(const struct hub_task *t, const char *revision, struct strbuf *to,
                     struct error *err)
{
    char who[DIGEST_TEXT_MAX];
    if (hub_task_who(t, who, err) < 0)
        return -1;
    strbuf_printf(to, "%s\n%s\n%s", who, t->name, revision);
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory for a question to a Hub") : 0;
}

static void remember(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf key = STRBUF_INIT;
    bool whole = a->r->missing == HUB_MISSING_REPOSITORY;
    if (hub_negative_key(a->t, whole ? "" : a->t->revision, &key, NULL) == 0)
        notes_put(&a->m->negatives, strbuf_str(&key), a->m->config->negative_ttl_s, &a->r->error,
                  true);
}

/* What is held was had with a login of our own. When that does not work any more, "there is no such
 * repository" says nothing about the repository. */
static bool login_fails(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf who = STRBUF_INIT;
    enum hub_missing missing = HUB_MISSING_NONE;
    const char *token = hub_token_of(a->m->hub, a->t->name);
    if (a->t->forward || !a->t->is_held || !token)
        return false;
    struct hub_asking how = {.has_token = true, .token = token, .spare = true};
    struct hub *as = hub_as(a->m->hub, &how);
    bool works = as && hub_whoami(as, &who, &missing, NULL) == 0;
    hub_free(as);
    if (works)
        return false;
    a->r->missing = HUB_MISSING_TOKEN;
    a->r->error.code = ERR_UNAUTHORIZED;
    return true;
}

/* Others' rights are others': what one caller is refused stays for the rest. */
static void drop(const struct asking *a)
{
    const struct hub_task *t = a->t;
    bool whole = a->r->missing == HUB_MISSING_REPOSITORY;
    if (t->forward && whole)
        return;
    struct hub_name known;
    if (store_hub_name_get(a->m->store, prefix_of(a), t->name, &known, NULL) == 1 &&
        strcmp(known.id, t->name) != 0)
        store_hub_pin_drop(a->m->store, prefix_of(a), known.id, whole ? NULL : t->revision, NULL);
    store_hub_pin_drop(a->m->store, prefix_of(a), t->name, whole ? NULL : t->revision, NULL);
}

static void settle_failure(const struct asking *a)
{
    if (a->r->missing == HUB_MISSING_REPOSITORY && login_fails(a))
        return;
    if (a->r->missing != HUB_MISSING_REPOSITORY && a->r->missing != HUB_MISSING_REVISION)
        return;
    remember(a);
    drop(a);
}

/* ---- what it says is ------------------------------------------------------------------------- */

static void keep_document(const struct asking *a, const char *commit, const char *what,
                          const struct strbuf *text)
{
    if (text->len <= HUB_DOCUMENT_MAX)
        store_hub_document_put(a->m->store, prefix_of(a), a->r->id, commit, what, strbuf_str(text),
                               text->len, NULL);
}

/* The revision is r->commit, unless it was found out to be another one a moment ago: that one has
 * been told to clients, and counts until it is old. */
static void keep_pin(const struct asking *a)
{
    struct hub_result *r = a->r;
    struct hub_pin pin;
    bool is_fresh = false;
    pthread_mutex_lock(&a->m->settling);
    int found = hub_pin_find(a->m, r->id, a->t->revision, &pin, &is_fresh, NULL);
    bool is_other = found == 1 && is_fresh && strcmp(pin.commit, r->commit) != 0;
    /* Of another one the name is still news. */
    store_hub_pin_put(a->m->store, prefix_of(a), a->t->name, r->id,
                      is_other ? r->commit : a->t->revision, r->commit, NULL);
    pthread_mutex_unlock(&a->m->settling);
    if (is_other)
        memcpy(r->commit, pin.commit, sizeof(r->commit));
}

/* Whether it is open to everybody, for when the Hub cannot be asked (upstream/hub_access.h). */
static void keep_openness(const struct asking *a, const struct strbuf *info,
                          const struct hub_revision *found)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    char identity[HUB_IDENTITY_MAX + 1];
    const char *asked = hub_look_up_alias(a->m->hub, a->t->name);
    /* First: what was said of another repository goes. */
    if (hub_identity_note(a->m->store, a->m->config, asked, found, identity, NULL) < 0 ||
        !hub_access_is_forward(a->m->access))
        return;
    /* Spaces are never gated. */
    bool is_private = !hub_json_is_false(strbuf_str(info), info->len, "private");
    bool is_gated = hub_id_kind(a->r->id, NULL) == HUB_SPACE
                        ? hub_json_is_set(strbuf_str(info), info->len, "gated")
                        : !hub_json_is_false(strbuf_str(info), info->len, "gated");
    strbuf_printf(&text, "{\"private\":%s,\"gated\":%s}", is_private ? "true" : "false",
                  is_gated ? "true" : "false");
    if (!strbuf_failed(&text))
        keep_document(a, "", "info", &text);
    hub_access_allowed(a->m->access, a->r->id, HUB_ACCESS_METADATA, a->t->token, identity);
}

/* ---- info ------------------------------------------------------------------------------------ */

/* The default branch has the name main, nearly always; where it has not, asking for none gives it.
 */
static int ask_info(const struct asking *a, struct strbuf *json, struct hub_revision *found)
{
    struct hub_result *r = a->r;
    int rc = hub_info(a->hub, a->t->name, a->t->revision, json, found, &r->missing, &r->error);
    if (rc == 0 || r->missing != HUB_MISSING_REVISION || strcmp(a->t->revision, "main") != 0)
        return rc;
    struct error second = ERROR_INIT;
    enum hub_missing missing = HUB_MISSING_NONE;
    if (hub_info(a->hub, a->t->name, NULL, json, found, &missing, &second) == 0)
        return 0;
    if (missing != HUB_MISSING_REVISION) {
        r->missing = missing;
        r->error = second;
    }
    return -1;
}

static int run_info(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    struct hub_result *r = a->r;
    struct hub_revision found;
    if (ask_info(a, &json, &found) < 0)
        return -1;
    if (json.len > HUB_DOCUMENT_MAX)
        return err_set(&r->error, ERR_UPSTREAM, "the info object of %s has %zu bytes; at most %u",
                       found.id, json.len, HUB_DOCUMENT_MAX);
    if (hub_json_info_clean(strbuf_str(&json), json.len, found.commit, &r->text, &r->error) < 0)
        return -1;
    strcpy(r->id, found.id);
    strcpy(r->commit, found.commit);
    keep_openness(a, &json, &found);
    keep_document(a, found.commit, "info", &r->text);
    keep_pin(a);
    if (strcmp(r->commit, found.commit) != 0)
        strbuf_reset(&r->text); /* of another commit than the one that counts */
    return 0;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static int ask_head(const struct asking *a, struct hub_head *head)
{
    struct hub_result *r = a->r;
    return hub_head_file(a->hub, a->t->name, a->t->revision, a->t->path, head, &r->missing,
                         &r->error);
}

/* There may be no branch main: which commit is meant, then? */
static int ask_head_of_default(const struct asking *a, struct hub_head *head)
{
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    struct hub_result *r = a->r;
    struct hub_revision found;
    if (r->missing != HUB_MISSING_REVISION || strcmp(a->t->revision, "main") != 0 ||
        hub_info(a->hub, a->t->name, NULL, &json, &found, &r->missing, &r->error) < 0)
        return -1;
    return hub_head_file(a->hub, found.id, found.commit, a->t->path, head, &r->missing, &r->error);
}

static int run_file(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    char what[HUB_WHAT_MAX], hex[DIGEST_TEXT_MAX];
    struct hub_result *r = a->r;
    struct hub_head head = {.size = 0};
    char identity[HUB_IDENTITY_MAX + 1]; /* before it is asked */
    hub_identity_get(a->m->store, prefix_of(a), a->t->name, "", identity, NULL);
    int rc = ask_head(a, &head);
    if (rc < 0 && r->missing != HUB_MISSING_ENTRY)
        rc = ask_head_of_default(a, &head);
    r->is_absent = rc < 0 && r->missing == HUB_MISSING_ENTRY && head.commit[0] && head.id[0];
    if (rc < 0 && !r->is_absent)
        return -1;
    r->missing = HUB_MISSING_NONE;
    strcpy(r->id, head.id);
    strcpy(r->commit, head.commit);
    r->file = (struct hub_file){.size = head.size, .has_lfs = head.has_lfs};
    if (head.has_lfs) {
        r->file.sha256 = head.sha256;
        snprintf(r->file.etag, sizeof(r->file.etag), "%.64s", digest_format_hex(&head.sha256, hex));
    } else {
        snprintf(r->file.etag, sizeof(r->file.etag), "%s", head.git_oid);
    }
    hub_file_write(&r->file, r->is_absent, &text);
    keep_document(a, head.commit, hub_what_file(a->t->path, what), &text);
    if (strcmp(a->t->revision, head.commit) != 0) /* the commit as such is known from now on */
        store_hub_pin_put(a->m->store, prefix_of(a), NULL, r->id, head.commit, head.commit, NULL);
    /* The Hub may show a file of a gated repository to everybody, or say of one that it is not
     * there: the weights are what nobody gets without a right to all of it. */
    if (a->t->forward)
        hub_access_allowed(a->m->access, r->id,
                           head.has_lfs ? HUB_ACCESS_CONTENT : HUB_ACCESS_METADATA, a->t->token,
                           NULL);
    if (*identity && strcmp(a->t->name, r->id) == 0)
        hub_identity_confirm(a->m->store, prefix_of(a), r->id, r->commit, identity);
    keep_pin(a);
    r->has_file = strcmp(r->commit, head.commit) == 0;
    return 0;
}

/* ---- a list ---------------------------------------------------------------------------------- */

/* Why there is no list: whether it is the commit, the repository or only the list. */
static int explain(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    struct hub_revision found;
    enum err_code code = a->r->error.code;
    if (code == ERR_NOT_FOUND || code == ERR_DENIED || code == ERR_UNAUTHORIZED)
        hub_info(a->hub, a->t->name, a->t->revision, &json, &found, &a->r->missing, NULL);
    return -1;
}

static int run_rows(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf folders = STRBUF_INIT;
    struct hub_result *r = a->r;
    const char *id = a->t->name, *commit = a->t->revision;
    struct commit_files list = {0};
    struct hub_rows *had = NULL;
    if (hub_files_and_folders(a->hub, id, commit, &list, &folders, &r->error) < 0)
        return explain(a);
    strcpy(r->id, id);
    strcpy(r->commit, commit);
    /* Who finds the files finds their folders, too, and need not ask for them. */
    keep_document(a, commit, "folders", &folders);
    store_hub_files_put(a->m->store, prefix_of(a), id, commit, list.files, list.n, NULL);
    /* What an import has stored of the files knows more. */
    if (hub_rows_read(a->m, id, commit, &had, NULL) == 1 && had->has_folders) {
        commit_files_done(&list);
        hub_rows_cache_put(&a->m->rows, id, commit, had);
        r->rows = had;
        return 0;
    }
    hub_rows_unref(had);
    if (hub_rows_make(&list, &folders, &r->rows, &r->error) < 0)
        return -1;
    hub_rows_cache_put(&a->m->rows, id, commit, r->rows);
    return 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

static int ask_document(const struct asking *a, const struct strbuf *suffix, bool pages,
                        struct strbuf *json, uint64_t *total)
{
    struct hub_result *r = a->r;
    if (strbuf_failed(suffix))
        return err_set(&r->error, ERR_NOMEM, "out of memory for a question to a Hub");
    if (hub_document(a->hub, a->t->name, strbuf_str(suffix), pages, json, total, &r->missing,
                     &r->error) < 0)
        return -1;
    strcpy(r->id, a->t->name);
    strcpy(r->commit, a->t->revision);
    if (json->len > HUB_DOCUMENT_MAX)
        return err_set(&r->error, ERR_UPSTREAM, "%s%.200s has %zu bytes; at most %u are taken",
                       a->t->name, strbuf_str(suffix), json->len, HUB_DOCUMENT_MAX);
    return 0;
}

static enum hub_ref_shown is_never_pinned(void *ctx, const char *revision, char commit[static 41])
{
    (void)ctx;
    (void)revision;
    (void)commit;
    return HUB_REF_AS_IT_IS;
}

/* As keep_pin(): what another question has found out a moment ago has been told to clients. */
static void settle_refs(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf told = STRBUF_INIT;
    const char *what = hub_what_refs(a->t->flag);
    struct hub_result *r = a->r;
    uint64_t checked_at = 0;
    pthread_mutex_lock(&a->m->settling);
    bool is_told = store_hub_document_get(a->m->store, prefix_of(a), r->id, "", what, &told,
                                          &checked_at, NULL) == 1 &&
                   hub_is_fresh(a->m, checked_at);
    if (!is_told)
        keep_document(a, "", what, &r->text);
    pthread_mutex_unlock(&a->m->settling);
    if (is_told) {
        struct strbuf late = r->text;
        r->text = told;
        told = late;
    }
}

static int run_refs(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf suffix = STRBUF_INIT, json = STRBUF_INIT;
    struct hub_result *r = a->r;
    strbuf_puts(&suffix, a->t->flag ? "/refs?include_prs=1" : "/refs");
    if (ask_document(a, &suffix, false, &json, NULL) < 0 ||
        hub_json_refs(strbuf_str(&json), json.len, is_never_pinned, NULL, &r->text, &r->error) < 0)
        return -1;
    settle_refs(a);
    return 0;
}

static int run_expanded(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf suffix = STRBUF_INIT, json = STRBUF_INIT;
    char what[HUB_WHAT_MAX];
    struct hub_result *r = a->r;
    strbuf_printf(&suffix, "/tree/%s", a->t->revision);
    if (*a->t->path) {
        strbuf_putc(&suffix, '/');
        strbuf_put_urlencoded(&suffix, a->t->path, NULL);
    }
    strbuf_printf(&suffix, "?recursive=%s&expand=true", a->t->flag ? "true" : "false");
    if (ask_document(a, &suffix, true, &json, NULL) < 0 ||
        hub_json_rows_clean(strbuf_str(&json), json.len, &r->text, &r->error) < 0)
        return -1;
    keep_document(a, a->t->revision, hub_what_expanded(a->t->path, a->t->flag, what), &r->text);
    return 0;
}

/* "total" LF rows */
static int run_commits(const struct asking *a)
{
    _cleanup_strbuf_ struct strbuf suffix = STRBUF_INIT, json = STRBUF_INIT;
    struct hub_result *r = a->r;
    uint64_t total = 0;
    strbuf_printf(&suffix, "/commits/%s", a->t->revision);
    if (ask_document(a, &suffix, false, &json, &total) < 0)
        return -1;
    strbuf_printf(&r->text, "%" PRIu64 "\n", total);
    if (hub_json_rows_clean(strbuf_str(&json), json.len, &r->text, &r->error) < 0)
        return -1;
    keep_document(a, a->t->revision, "commits", &r->text);
    return 0;
}

/* ---- one task -------------------------------------------------------------------------------- */

static int run(const struct asking *a)
{
    switch (a->t->kind) {
    case HUB_TASK_INFO:
        return run_info(a);
    case HUB_TASK_FILE:
        return run_file(a);
    case HUB_TASK_ROWS:
        return run_rows(a);
    case HUB_TASK_REFS:
        return run_refs(a);
    case HUB_TASK_EXPANDED:
        return run_expanded(a);
    case HUB_TASK_COMMITS:
        return run_commits(a);
    case HUB_TASK_CHECK:
        strcpy(a->r->id, a->t->name);
        return hub_check(a->hub, a->t->name, &a->r->missing, &a->r->error);
    }
    return err_set(&a->r->error, ERR_INTERNAL, "no such question to a Hub");
}

/* What was asked for has come since the asker looked: it came too late for the flight that brought
 * it, and would make another. */
static bool is_here(struct hub_mirror *m, const struct hub_task *t, struct hub_result *r)
{
    struct hub_name name;
    struct hub_pin pin;
    bool is_fresh = false;
    const char *prefix = m->config->prefix;
    if (t->kind == HUB_TASK_ROWS) {
        if (hub_rows_stored(m, t->name, t->revision, &r->rows, NULL) == 1 && r->rows->has_folders)
            return true;
        hub_rows_unref(TAKE_PTR(r->rows));
        return false;
    }
    if (t->kind != HUB_TASK_INFO || store_hub_name_get(m->store, prefix, t->name, &name, NULL) != 1)
        return false;
    strcpy(r->id, name.id);
    if (is_lower_hex(t->revision, 40) && !t->revision[40]) {
        strcpy(r->commit, t->revision);
    } else {
        if (!hub_is_fresh(m, name.checked_at) ||
            hub_pin_find(m, name.id, t->revision, &pin, &is_fresh, NULL) != 1 || !is_fresh)
            return false;
        strcpy(r->commit, pin.commit);
    }
    return store_hub_document_get(m->store, prefix, r->id, r->commit, "info", &r->text, NULL,
                                  NULL) == 1;
}

void hub_task_run(struct hub_mirror *m, const struct hub_task *t, struct hub_result *ret)
{
    struct asking a = {.m = m, .t = t, .hub = m->hub, .r = ret};
    *ret = (struct hub_result){.error = ERROR_INIT};
    if (t->may_look && !t->flag && is_here(m, t, ret))
        return;
    hub_result_done(ret);
    ret->asked = true;
    if (t->forward || t->is_held) {
        struct hub_asking how = {.has_token = t->forward, .token = t->token, .spare = t->is_held};
        a.hub = hub_as(m->hub, &how);
    }
    ret->rc = a.hub ? run(&a) : err_set(&ret->error, ERR_NOMEM, "out of memory for a Hub client");
    if (ret->rc < 0 && a.hub)
        settle_failure(&a);
    if (a.hub != m->hub)
        hub_free(a.hub);
}
