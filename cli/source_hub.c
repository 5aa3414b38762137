/* hf://org/repo[@revision][/path]: a repository of the Hub, at one commit. */
#include <stdlib.h>
#include <string.h>

#include "cli/source_private.h"
#include "upstream/hub.h"

extern char **environ;

struct repository {
    struct config *config; /* owned */
    struct hub *hub;       /* owned */
    char id[REPOSITORY_MAX + 1];
    char commit[41];
    char *folder; /* owned; "" or "path/": what entries are below */
    struct commit_files files;
};

struct hub_file {
    const struct commit_file *file; /* the repository's */
    struct http_location location;
    struct strbuf whole; /* of a file that git itself keeps */
};

static const struct commit_file *find(const struct repository *r, const char *path)
{
    for (size_t i = 0; i < r->files.n; i++)
        if (strcmp(r->files.files[i].path, path) == 0)
            return &r->files.files[i];
    return NULL;
}

static void close_file(struct source_file *f)
{
    struct hub_file *h = f->backend;
    http_location_done(&h->location);
    strbuf_done(&h->whole);
    free(h);
}

static int open_file(struct source *s, const char *path, struct source_file *f, struct error *err)
{
    struct repository *r = s->backend;
    _cleanup_free_ char *full = NULL;
    if (asprintf(&full, "%s%s", r->folder, path) < 0) {
        full = NULL;
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    }
    const struct commit_file *file = find(r, full);
    if (!file)
        return 0;
    struct hub_file *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    h->file = file;
    f->backend = h;
    f->size = file->size;
    /* Only large files are in a store that is read by range. */
    if (file->has_lfs || hub_small_file(r->hub, r->id, r->commit, file, &h->whole, err) == 0)
        return 1;
    close_file(f);
    return -1;
}

static int read_file(struct source_file *f, uint64_t offset, void *buf, size_t len,
                     struct error *err)
{
    struct repository *r = f->source->backend;
    struct hub_file *h = f->backend;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (!h->file->has_lfs) {
        memcpy(buf, h->whole.data + offset, len);
        return 0;
    }
    struct error why = ERROR_INIT;
    if (hub_read_range(r->hub, r->id, r->commit, h->file->path, &h->file->sha256, h->file->size,
                       &h->location, offset, len, &b, &why) < 0) {
        if (strstr(why.text, "ignores Range")) {
            err_wrap(&why, "download the file and inspect it locally");
            why.code = ERR_UNSUPPORTED; /* as of any other source: nothing is broken */
        }
        if (err)
            *err = why;
        return -1;
    }
    memcpy(buf, b.data, len);
    return 0;
}

static void free_repository(struct source *s)
{
    struct repository *r = s->backend;
    if (!r)
        return;
    hub_free(r->hub);
    config_free(r->config);
    commit_files_done(&r->files);
    free(r->folder);
    free(r);
}

static struct source_reads reads_of_hub(const struct source *s)
{
    const struct repository *r = s->backend;
    struct http_pool *pool = hub_pool(r->hub);
    return (struct source_reads){http_pool_bytes(pool), http_pool_requests(pool)};
}

static const struct source_ops hub_ops = {"hub",      open_file,       read_file,
                                          close_file, free_repository, reads_of_hub};

/* The Hub's own variables (HF_ENDPOINT, HF_TOKEN, the login command's file) count, and none of the
 * server's. */
static int load_config(struct repository *r, struct error *err)
{
    static const char ours[] = "WEIGHBRIDGE_";
    const char *endpoint = getenv("HF_ENDPOINT");
    const struct config_flags flags = {.hub = endpoint && *endpoint ? endpoint : NULL};
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    _cleanup_free_ char **variables = calloc(n + 1, sizeof(*variables));
    if (!variables)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], ours, strlen(ours)) != 0)
            variables[kept++] = environ[i];
    if (config_load(&flags, variables, &r->config, err) < 0)
        return flags.hub ? err_wrap(err, "HF_ENDPOINT") : -1;
    for (size_t i = 0; i < r->config->n_upstreams; i++)
        if (r->config->upstreams[i].kind == UPSTREAM_HUGGINGFACE)
            return hub_new(&r->config->upstreams[i], &r->hub, err);
    return err_set(err, ERR_INTERNAL, "no Hub is configured by default");
}

/* The files below a path, or the one that it is. */
static int choose(struct source *s, const char *path, struct error *err)
{
    struct repository *r = s->backend;
    const struct commit_file *one = path[0] ? find(r, path) : NULL;
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    s->is_one = one;
    if (one) {
        const char *slash = strrchr(path, '/');
        r->folder = strndup(path, slash ? (size_t)(slash + 1 - path) : 0);
    } else if (asprintf(&r->folder, "%.*s%s", (int)n, path, n ? "/" : "") < 0) {
        r->folder = NULL;
    }
    if (!r->folder)
        return err_set(err, ERR_NOMEM, "out of memory for a path");
    size_t below = strlen(r->folder);
    for (size_t i = 0; i < r->files.n; i++) {
        const struct commit_file *f = &r->files.files[i];
        if (one ? f != one : strncmp(f->path, r->folder, below) != 0)
            continue;
        if (source_add(s, f->path + below, f->size, err) < 0)
            return -1;
        if (f->has_lfs && f->sha256.alg == DIGEST_SHA256) {
            char hex[DIGEST_TEXT_MAX];
            strcpy(s->entries[s->n - 1].sha256, digest_format_hex(&f->sha256, hex));
        }
    }
    if (s->n == 0)
        return err_set(err, ERR_NOT_FOUND, "%s has no %s at %s", r->id, path[0] ? path : "files",
                       r->commit);
    return 0;
}

/* org/repo, then @revision (up to the next slash, with %2F for a slash in it), then the path. */
static int take_apart(const char *text, char id[static REPOSITORY_MAX + 1], char **ret_revision,
                      const char **ret_path, struct error *err)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) + 1 + strcspn(slash + 1, "/@") : 0;
    if (!slash || slash == text || text[n - 1] == '/' || n > REPOSITORY_MAX)
        return err_set(err, ERR_INVALID, "invalid repository \"%.200s\": expected hf://org/repo",
                       text);
    memcpy(id, text, n);
    id[n] = '\0';
    *ret_revision = NULL;
    const char *rest = text + n;
    if (*rest == '@') {
        size_t len = strcspn(++rest, "/");
        if (len == 0)
            return err_set(err, ERR_INVALID, "the revision behind @ is empty in hf://%.200s", text);
        if (!(*ret_revision = strndup(rest, len)))
            return err_set(err, ERR_NOMEM, "out of memory");
        for (char *p; (p = strcasestr(*ret_revision, "%2f"));) {
            *p = '/';
            memmove(p + 1, p + 3, strlen(p + 3) + 1);
        }
        rest += len;
    }
    *ret_path = rest + (*rest == '/');
    return 0;
}

int source_open_hub(struct source *s, const char *text, struct error *err)
{
    _cleanup_free_ char *revision = NULL;
    const char *path = "";
    char id[REPOSITORY_MAX + 1];
    struct hub_revision resolved;
    struct repository *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->backend = r;
    s->ops = &hub_ops;
    if (take_apart(text, id, &revision, &path, err) < 0 || load_config(r, err) < 0 ||
        hub_resolve(r->hub, id, revision, &resolved, NULL, err) < 0)
        return -1;
    strcpy(r->id, resolved.id);
    strcpy(r->commit, resolved.commit);
    strcpy(s->revision, resolved.commit);
    if (hub_files(r->hub, r->id, r->commit, &r->files, err) < 0)
        return -1;
    return choose(s, path, err);
}
