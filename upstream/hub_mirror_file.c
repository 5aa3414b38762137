/* Files: what HEAD says of one, and the way to its bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/hub_mirror_private.h"
#include "upstream/small.h"

#define EMPTY_OID "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

const char *hub_what_file(const char *path, char buf[static HUB_WHAT_MAX])
{
    snprintf(buf, HUB_WHAT_MAX, "file:%s", path);
    return buf;
}

/* ---- as a document --------------------------------------------------------------------------- */

void hub_file_write(const struct hub_file *f, bool is_absent, struct strbuf *to)
{
    if (is_absent)
        strbuf_puts(to, "none");
    else
        strbuf_printf(to, "%s %" PRIu64 " %s", f->has_lfs ? "lfs" : "git", f->size, f->etag);
}

bool hub_file_read(const char *text, struct hub_file *ret, bool *ret_absent)
{
    *ret = (struct hub_file){.has_lfs = strncmp(text, "lfs ", 4) == 0};
    *ret_absent = strcmp(text, "none") == 0;
    if (*ret_absent)
        return true;
    if (!ret->has_lfs && strncmp(text, "git ", 4) != 0)
        return false;
    char *end;
    ret->size = strtoull(text + 4, &end, 10);
    if (*end != ' ' || !is_lower_hex(end + 1, ret->has_lfs ? 64 : 40))
        return false;
    strcpy(ret->etag, end + 1);
    return !ret->has_lfs || digest_parse_hex(DIGEST_SHA256, ret->etag, &ret->sha256, NULL) == 0;
}

static void file_of_row(const struct commit_file *f, struct hub_file *ret)
{
    char hex[DIGEST_TEXT_MAX];
    *ret = (struct hub_file){.size = f->size, .has_lfs = f->has_lfs, .sha256 = f->sha256};
    snprintf(ret->etag, sizeof(ret->etag), "%.64s",
             f->has_lfs ? digest_format_hex(&f->sha256, hex) : f->git_oid);
}

size_t hub_pointer_text(const struct hub_file *f, char *buf, size_t size)
{
    char hex[DIGEST_TEXT_MAX];
    if (!f->has_lfs)
        return 0;
    int n = snprintf(
        buf, size, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n",
        digest_format_hex(&f->sha256, hex), f->size);
    return n < 0 || (size_t)n >= size ? 0 : (size_t)n;
}

/* ---- what is known of a file ----------------------------------------------------------------- */

/* In what is stored: 1 and the file, or *ret_absent; 0, -1. */
static int find_stored(struct hub_look *l, const char *path, struct hub_file *ret, bool *ret_absent,
                       struct error *err)
{
    _cleanup_hub_rows_ struct hub_rows *rows = NULL;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    char what[HUB_WHAT_MAX];
    int found = hub_rows_stored(l->m, l->id, l->at->commit, &rows, err);
    if (found < 0)
        return -1;
    if (found) {
        const struct commit_file *f = hub_rows_file(rows, path);
        *ret_absent = !f;
        if (f)
            file_of_row(f, ret);
        return 1;
    }
    found = store_hub_document_get(l->m->store, l->m->config->prefix, l->id, l->at->commit,
                                   hub_what_file(path, what), &text, NULL, err);
    if (found != 1)
        return found;
    return hub_file_read(strbuf_str(&text), ret, ret_absent);
}

/* The list answers all files of the commit at once, so it is worth waiting for; not for as long as
 * a client waits for a HEAD. */
static int ask_for_list(struct hub_look *l, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_task t = hub_look_task(l, HUB_TASK_ROWS, l->at->commit);
    struct hub_patience patience = {.ms = HUB_LIST_PATIENCE_MS};
    if (hub_ask_once(l->m, &t, patience, &x, err) < 0)
        return -1;
    const struct hub_result *r = hub_flight_result(x);
    l->at->asked |= r->asked;
    if (r->rc < 0)
        *err = r->error;
    return r->rc;
}

static int ask_for_file(struct hub_look *l, const char *path, struct hub_file *ret,
                        bool *ret_absent, struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    struct hub_task t = hub_look_task(l, HUB_TASK_FILE, l->at->commit);
    t.name = l->id;
    t.path = path;
    if (hub_look_ask(l, &t, false, &x, err) < 0)
        return -1;
    const struct hub_result *r = hub_flight_result(x);
    *ret = r->file;
    *ret_absent = r->is_absent;
    return 0;
}

static int find_at_commit(struct hub_look *l, const char *path, struct hub_file *ret,
                          bool *ret_absent, struct error *err)
{
    char what[HUB_PATH_MAX + REPOSITORY_MAX + 64];
    int found = find_stored(l, path, ret, ret_absent, err);
    if (found)
        return found < 0 ? -1 : 0;
    if (l->m->offline) {
        snprintf(what, sizeof(what), "%.400s of %s/%s at %s", path, l->m->config->prefix, l->id,
                 l->at->commit);
        return hub_look_is_offline(l, what, err);
    }
    if (ask_for_list(l, err) == 0) {
        found = find_stored(l, path, ret, ret_absent, err);
        if (found)
            return found < 0 ? -1 : 0;
    } else if (err->code == ERR_LOOP || err->code == ERR_CANCELLED) {
        return -1;
    }
    return ask_for_file(l, path, ret, ret_absent, err);
}

/* The bytes of a git file have a sha256 as well, once they have been here. */
static int find_digest(struct hub_look *l, struct hub_file *f, struct error *err)
{
    if (f->has_lfs || f->sha256.alg != DIGEST_NONE)
        return 0;
    return store_hub_object_get(l->m->store, l->m->config->prefix, l->id, f->etag, &f->sha256,
                                err) < 0
               ? -1
               : 0;
}

static int find_file(struct hub_look *l, const char *path, struct hub_file *ret, bool *ret_absent,
                     struct error *err)
{
    _cleanup_hub_flight_ struct hub_flight *x = NULL;
    if (hub_look_commit(l, path, &x, err) < 0)
        return -1;
    const struct hub_result *r = x ? hub_flight_result(x) : NULL;
    if (!r || !r->has_file || strcmp(r->commit, l->at->commit) != 0)
        return find_at_commit(l, path, ret, ret_absent, err);
    *ret = r->file;
    *ret_absent = r->is_absent;
    return 0;
}

int hub_mirror_file(struct hub_mirror *m, const struct hub_query *q, const char *path,
                    struct hub_file *ret, struct hub_at *at, struct error *err)
{
    struct hub_look l;
    struct hub_file f = {.size = 0};
    bool is_absent = false;
    if (hub_look_begin(m, q, true, HUB_ACCESS_CONTENT, &l, at, err) < 0)
        return -1;
    l.until_ms = caller_deadline(HUB_FILE_PATIENCE_MS);
    if (!hub_path_is_valid(path) || strlen(path) > HUB_PATH_MAX)
        return hub_look_no_entry(&l, path, err);
    if (find_file(&l, path, &f, &is_absent, err) < 0)
        return -1;
    if (is_absent)
        return hub_look_no_entry(&l, path, err);
    if (hub_look_check_file(&l, path, f.size, err) < 0) {
        if (err->code == ERR_DENIED)
            at->refused = HUB_REFUSED_POLICY;
        return -1;
    }
    if (find_digest(&l, &f, err) < 0)
        return -1;
    *ret = f;
    return 0;
}

/* ---- its bytes ------------------------------------------------------------------------------- */

/* What is opened. */
struct opening {
    struct upstreams *upstreams;
    struct hub_mirror *m;
    const struct hub_file *file;
    const char *repository, *token;
    struct origin origin;
};

/* Of a sha256 that is known, and, where only git knows it, held. */
static int open_digest(const struct opening *o, const struct digest *d, uint64_t first,
                       uint64_t end, struct reader **ret, struct error *err)
{
    if (store_hub_keep(o->m->store, o->origin.upstream, o->origin.repo_id, o->origin.commit, d,
                       err) < 0)
        return -1;
    return reader_open_file(o->upstreams, o->repository, d, o->file->size, &o->origin, o->token,
                            first, end, ret, err);
}

static struct commit_file git_file(const struct opening *o)
{
    struct commit_file f = {.path = o->origin.path, .size = o->file->size};
    snprintf(f.git_oid, sizeof(f.git_oid), "%.40s", o->file->etag);
    return f;
}

/* A client may hold a beginning that nobody vouches for, of a fetch before the one that is held. */
static int check_resume(const struct opening *o, uint64_t first, struct error *err)
{
    const struct commit_file f = git_file(o);
    return first ? small_check_resume_held(o->m->store, o->repository, o->origin.upstream,
                                           o->origin.repo_id, &f, err)
                 : 0;
}

static int open_small(const struct opening *o, uint64_t first, uint64_t end, struct reader **ret,
                      struct error *err)
{
    struct reader *r;
    const struct commit_file f = git_file(o);
    if (reader_open_small(o->upstreams, o->repository, &o->origin, &f, o->token, &r, err) < 0)
        return -1;
    if ((reader_kind(r) == READER_HIT && check_resume(o, first, err) < 0) ||
        reader_aim(r, first, end, err) < 0) {
        reader_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

static int open_git(const struct opening *o, uint64_t first, uint64_t end, struct reader **ret,
                    struct error *err)
{
    struct digest d = o->file->sha256;
    uint64_t size;
    if (o->file->size == 0 && strcmp(o->file->etag, EMPTY_OID) == 0) {
        if (store_blob_put(o->m->store, "", 0, &d, err) < 0)
            return -1;
        return open_digest(o, &d, first, end, ret, err);
    }
    int held = d.alg == DIGEST_NONE ? 0 : store_blob_stat(o->m->store, &d, &size, err);
    if (held < 0)
        return -1;
    if (!held)
        return open_small(o, first, end, ret, err);
    return check_resume(o, first, err) < 0 ? -1 : open_digest(o, &d, first, end, ret, err);
}

int hub_mirror_open(struct upstreams *u, struct hub_mirror *m, const struct hub_query *q,
                    const char *path, const struct hub_file *f, const struct hub_at *at,
                    uint64_t first, uint64_t end, struct reader **ret, struct error *err)
{
    char id[REPOSITORY_MAX + 1], repository[REPOSITORY_MAX + 1];
    struct hub_query canonical = {.kind = q->kind};
    strcpy(canonical.name, at->id);
    if (!hub_id_make(q->kind, at->id, id) || !hub_mirror_repository(m, &canonical, repository))
        return err_set(err, ERR_INTERNAL, "%s is no repository of a Hub", at->id);
    struct opening o = {
        .upstreams = u,
        .m = m,
        .file = f,
        .repository = repository,
        .token = hub_access_is_forward(m->access) ? caller_token() : NULL,
        .origin = {
            .upstream = m->config->prefix, .repo_id = id, .commit = at->commit, .path = path}};
    return f->has_lfs ? open_digest(&o, &f->sha256, first, end, ret, err)
                      : open_git(&o, first, end, ret, err);
}
