#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/json_scan.h"
#include "upstream/hub_private.h"

#define ID_PART_MAX 96u /* what the Hub's own client allows */

/* Each with the '/' behind it in an id; a model has none. */
static const char *const kind_words[] = {[HUB_DATASET] = "datasets/", [HUB_SPACE] = "spaces/"};

enum hub_kind hub_id_kind(const char *id, const char **ret_rest)
{
    enum hub_kind kind = HUB_MODEL;
    size_t n = 0;
    for (unsigned k = HUB_DATASET; k < ARRAY_LEN(kind_words); k++)
        if (strncmp(id, kind_words[k], strlen(kind_words[k])) == 0) {
            kind = (enum hub_kind)k;
            n = strlen(kind_words[k]);
        }
    if (ret_rest)
        *ret_rest = id + n;
    return kind;
}

bool hub_id_make(enum hub_kind kind, const char *rest, char ret[static REPOSITORY_MAX + 1])
{
    char id[REPOSITORY_MAX + 1];
    int n = snprintf(id, sizeof(id), "%s%s", kind == HUB_MODEL ? "" : kind_words[kind], rest);
    if (n < 0 || (size_t)n >= sizeof(id) || !hub_id_is_valid(id) || hub_id_kind(id, NULL) != kind)
        return false;
    memcpy(ret, id, (size_t)n + 1);
    return true;
}

/* Words that begin the Hub's other routes: no organisation or model has such a name. */
static bool is_route(const char *part, size_t n)
{
    static const char *const routes[] = {"api", "datasets", "spaces", "kernels", "buckets"};
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (n == strlen(routes[i]) && strncasecmp(part, routes[i], n) == 0)
            return true;
    return false;
}

bool hub_id_is_valid(const char *id)
{
    unsigned parts = 0;
    const char *rest;
    if (strlen(id) > REPOSITORY_MAX || strstr(id, ".."))
        return false;
    hub_id_kind(id, &rest);
    for (const char *p = rest;; p++) {
        size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
        if (n == 0 || n > ID_PART_MAX || *p == '.' || ++parts > 2 || (p == rest && is_route(p, n)))
            return false;
        p += n;
        if (!*p)
            return true;
        if (*p != '/')
            return false;
    }
}

static const char *path_of(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? host + 3 + strcspn(host + 3, "/?#") : "";
}

int hub_id_of_url(const char *base, const char *url, char ret[static REPOSITORY_MAX + 1])
{
    const char *prefix = path_of(base), *path = path_of(url);
    char id[REPOSITORY_MAX + 1];
    size_t n = strlen(prefix);
    path += strncmp(path, prefix, n) == 0 && path[n] == '/' ? n : 0;
    const char *end = strstr(path, "/resolve/");
    if (*path != '/' || strncmp(path, "/api/", 5) == 0 || !end || end > path + strcspn(path, "?#"))
        return 0;
    n = (size_t)(end - path);
    if (n < 2 || n > sizeof(id))
        return -1;
    memcpy(id, path + 1, n - 1);
    id[n - 1] = '\0';
    if (!hub_id_is_valid(id))
        return -1;
    memcpy(ret, id, n);
    return 1;
}

bool hub_revision_is_valid(const char *revision)
{
    size_t n = strlen(revision);
    if (n == 0 || n > 255 || strstr(revision, "..") || strstr(revision, "//") ||
        strstr(revision, "@{") || *revision == '/' || *revision == '.' || revision[n - 1] == '/' ||
        revision[n - 1] == '.' || !utf8_is_valid(revision, n))
        return false;
    for (const unsigned char *p = (const unsigned char *)revision; *p; p++)
        if (*p <= 0x20 || *p == 0x7f || strchr("~^:?*[\\", *p))
            return false;
    return true;
}

bool hub_path_is_valid(const char *path)
{
    size_t len = strlen(path);
    if (len == 0 || len > HUB_PATH_MAX)
        return false;
    for (const char *p = path;;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\')
                return false;
        if (!p[n])
            return true;
        p += n + 1;
    }
}

bool hub_etag_hex(const char *etag, size_t n, char *buf)
{
    if (strncasecmp(etag, "W/", 2) == 0)
        etag += 2;
    bool quoted = *etag == '"';
    etag += quoted;
    for (size_t i = 0; i < n; i++) {
        char c = etag[i];
        if (c >= 'A' && c <= 'F')
            c = (char)(c - 'A' + 'a');
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return false;
        buf[i] = c;
    }
    buf[n] = '\0';
    return strcmp(etag + n, quoted ? "\"" : "") == 0;
}

static int parse(const char *text, size_t len, struct json **ret, struct error *err)
{
    struct error why = ERROR_INIT;
    if (json_parse(text, len, ret, &why) == 0)
        return 0;
    return err_set(err, why.code == ERR_NOMEM ? ERR_NOMEM : ERR_UPSTREAM, "%s", why.text);
}

int hub_parse_revision(enum hub_kind kind, const char *json, size_t len, struct hub_revision *ret,
                       struct error *err)
{
    struct hub_revision found = {.identity = ""};
    _cleanup_json_ struct json *root = NULL;
    if (parse(json, len, &root, err) < 0)
        return -1;
    const char *id = json_str(json_get(root, "id"));
    const char *sha = json_str(json_get(root, "sha"));
    if (!id || !hub_id_make(kind, id, found.id))
        return err_set(err, ERR_UPSTREAM, "\"id\" is %s%.100s",
                       id ? "no repository's name: " : "missing", id ? id : "");
    if (!sha || !is_lower_hex(sha, 40))
        return err_set(err, ERR_UPSTREAM, "\"sha\" is %s%.100s", sha ? "no commit: " : "missing",
                       sha ? sha : "");
    snprintf(found.commit, sizeof(found.commit), "%s", sha);
    const char *identity = json_str(json_get(root, "_id"));
    if (identity && is_lower_hex(identity, HUB_IDENTITY_MAX))
        strcpy(found.identity, identity);
    *ret = found;
    return 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int hub_array_inside(const char *json, size_t len, const char **ret, size_t *ret_len,
                     struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    if (parse(json, len, &root, err) < 0)
        return -1;
    if (!json_is_array(root))
        return err_set(err, ERR_UPSTREAM, "no array");
    while (len && is_space(json[len - 1]))
        len--;
    for (; len && is_space(*json); len--)
        json++;
    for (json++, len -= 2; len && is_space(json[len - 1]);)
        len--;
    for (; len && is_space(*json); len--)
        json++;
    *ret = json;
    *ret_len = len;
    return 0;
}

/* ---- refs ------------------------------------------------------------------------------------ */

struct ref_list {
    struct hub_ref *refs;
    size_t n, cap;
};

static int add_ref(struct ref_list *l, const struct json *j, struct error *err)
{
    /* `ref` is what the Hub takes as a revision everywhere; heads and tags also without prefix. */
    const char *name = json_str(json_get(j, "ref"));
    const char *commit = json_str(json_get(j, "targetCommit"));
    if (!name)
        name = json_str(json_get(j, "name"));
    if (!name || !commit)
        return err_set(err, ERR_UPSTREAM, "a ref without \"%s\"", name ? "targetCommit" : "ref");
    if (!is_lower_hex(commit, 40))
        return err_set(err, ERR_UPSTREAM,
                       "the ref %.100s has a \"targetCommit\" that is none: %.100s", name, commit);
    if (strncmp(name, "refs/heads/", 11) == 0)
        name += 11;
    else if (strncmp(name, "refs/tags/", 10) == 0)
        name += 10;
    if (!hub_revision_is_valid(name))
        return 0; /* nobody could ask for it by this name */
    if (l->n == HUB_REFS_MAX)
        return err_set(err, ERR_UPSTREAM, "more than %u refs", HUB_REFS_MAX);
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct hub_ref *refs = realloc(l->refs, cap * sizeof(*refs));
        if (!refs)
            return err_set(err, ERR_NOMEM, "out of memory for %zu refs", cap);
        l->refs = refs;
        l->cap = cap;
    }
    struct hub_ref *r = &l->refs[l->n++];
    snprintf(r->name, sizeof(r->name), "%s", name);
    snprintf(r->commit, sizeof(r->commit), "%s", commit);
    return 0;
}

static void free_refs(struct ref_list *l)
{
    free(l->refs);
}

int hub_parse_refs(const char *json, size_t len, bool pull_requests, struct hub_ref **ret,
                   size_t *ret_n, struct error *err)
{
    static const char *const kinds[] = {"branches", "tags", "converts", "pullRequests"};
    _cleanup_json_ struct json *root = NULL;
    _cleanup_(free_refs) struct ref_list list = {0};
    if (parse(json, len, &root, err) < 0)
        return -1;
    for (unsigned i = 0; i < ARRAY_LEN(kinds) - !pull_requests; i++) {
        const struct json *refs = json_get(root, kinds[i]);
        /* Hubs of other makes leave out kinds that they do not have. */
        if ((i == 0 || (refs && !json_is_null(refs))) && !json_is_array(refs))
            return err_set(err, ERR_UPSTREAM, "\"%s\" is no array", kinds[i]);
        for (const struct json *j = json_first(refs); j; j = json_next(j))
            if (add_ref(&list, j, err) < 0)
                return -1;
    }
    *ret = TAKE_PTR(list.refs);
    *ret_n = list.n;
    return 0;
}

/* ---- the tree -------------------------------------------------------------------------------- */

void hub_tree_done(struct hub_tree *t)
{
    free(t->files);
    free(t->offsets);
    strbuf_done(&t->paths);
    *t = (struct hub_tree){0};
}

static int grow_tree(struct hub_tree *t, struct error *err)
{
    if (t->n == HUB_TREE_FILES_MAX)
        return err_set(err, ERR_UPSTREAM, "more than %u files", HUB_TREE_FILES_MAX);
    if (t->n < t->cap)
        return 0;
    size_t cap = t->cap ? t->cap * 2 : 64;
    struct commit_file *files = realloc(t->files, cap * sizeof(*files));
    if (files)
        t->files = files;
    size_t *offsets = files ? realloc(t->offsets, cap * sizeof(*offsets)) : NULL;
    if (!offsets)
        return err_set(err, ERR_NOMEM, "out of memory for %zu files", cap);
    t->offsets = offsets;
    t->cap = cap;
    return 0;
}

static int read_lfs(const struct json *lfs, const char *path, struct commit_file *f,
                    struct error *err)
{
    uint64_t size;
    f->has_lfs = true;
    if (!json_u64(json_get(lfs, "size"), &size) || size != f->size)
        return err_set(err, ERR_UPSTREAM,
                       "%.200s: \"lfs.size\" is missing or another one than \"size\"", path);
    const char *oid = json_str(json_get(lfs, "oid"));
    /* A masked oid ("****...") stays NONE and is asked for by HEAD. */
    if (oid && is_lower_hex(oid, 64))
        return digest_parse_hex(DIGEST_SHA256, oid, &f->sha256, err);
    return 0;
}

static int add_folder(struct hub_tree *t, const struct json *j, struct error *err)
{
    const char *path = json_str(json_get(j, "path"));
    const char *oid = json_str(json_get(j, "oid"));
    if (!path || !hub_path_is_valid(path))
        return err_set(err, ERR_UPSTREAM, "a folder has no safe relative \"path\": %.200s",
                       path ? path : "missing");
    if (!oid || !is_lower_hex(oid, 40))
        return err_set(err, ERR_UPSTREAM, "%.200s: \"oid\" is no git object id", path);
    if (t->n_folders++ == HUB_TREE_FILES_MAX)
        return err_set(err, ERR_UPSTREAM, "more than %u folders", HUB_TREE_FILES_MAX);
    strbuf_put(t->folders, path, strlen(path) + 1);
    strbuf_put(t->folders, oid, strlen(oid) + 1);
    return strbuf_failed(t->folders) ? err_set(err, ERR_NOMEM, "out of memory for folder names")
                                     : 0;
}

static int add_file(struct hub_tree *t, const struct json *j, struct error *err)
{
    const char *type = json_str(json_get(j, "type"));
    if (!type)
        return err_set(err, ERR_UPSTREAM, "entry %zu has no \"type\"", t->n);
    if (strcmp(type, "directory") == 0 && t->folders)
        return add_folder(t, j, err);
    if (strcmp(type, "file") != 0)
        return 0;
    const char *path = json_str(json_get(j, "path"));
    if (!path || !hub_path_is_valid(path))
        return err_set(err, ERR_UPSTREAM, "entry %zu has no safe relative \"path\": %.200s", t->n,
                       path ? path : "missing");
    struct commit_file f = {0};
    if (!json_u64(json_get(j, "size"), &f.size))
        return err_set(err, ERR_UPSTREAM, "%.200s: \"size\" is no size", path);
    const char *oid = json_str(json_get(j, "oid"));
    if (!oid || !is_lower_hex(oid, 40))
        return err_set(err, ERR_UPSTREAM, "%.200s: \"oid\" is no git object id", path);
    memcpy(f.git_oid, oid, sizeof(f.git_oid));
    const struct json *lfs = json_get(j, "lfs");
    if (lfs && !json_is_null(lfs) && read_lfs(lfs, path, &f, err) < 0)
        return -1;
    if (grow_tree(t, err) < 0)
        return -1;
    t->offsets[t->n] = t->paths.len;
    t->files[t->n++] = f;
    strbuf_put(&t->paths, path, strlen(path) + 1);
    return strbuf_failed(&t->paths) ? err_set(err, ERR_NOMEM, "out of memory for file names") : 0;
}

/* A row alone is parsed into a tree: a list may be 200,000 of them. */
static int add_row(struct hub_tree *t, const char *json, size_t len, struct error *err)
{
    _cleanup_json_ struct json *row = NULL;
    if (parse(json, len, &row, err) < 0)
        return err_wrap(err, "entry %zu", t->n);
    return add_file(t, row, err);
}

/* The next row's text: 1, 0 at the end of the array, -1. */
static int next_row(struct json_scan *s, bool first, const char **ret, size_t *ret_len,
                    struct error *err)
{
    int more = json_scan_more(s, ']', first, s->document, err);
    if (more <= 0)
        return more < 0 ? -1 : json_scan_end(s, err);
    (void)json_scan_peek(s); /* past the white space */
    *ret = (const char *)s->p;
    if (json_scan_skip(s, err) < 0)
        return -1;
    *ret_len = (size_t)((const char *)s->p - *ret);
    return 1;
}

int hub_tree_page(struct hub_tree *t, const char *json, size_t len, struct error *err)
{
    struct json_scan s;
    struct error why = ERROR_INIT;
    const char *row = NULL;
    size_t row_len = 0;
    int more;
    json_scan_start(&s, json, len, 0);
    s.document = "the file list";
    if (json_scan_peek(&s) != '[')
        return err_set(err, ERR_UPSTREAM, "no JSON array of files");
    if (json_scan_open(&s, '[', s.document, &why) < 0)
        return err_set(err, ERR_UPSTREAM, "no JSON: %s", why.text);
    for (bool first = true; (more = next_row(&s, first, &row, &row_len, &why)) > 0; first = false)
        if (add_row(t, row, row_len, err) < 0)
            return -1;
    return more < 0 ? err_set(err, ERR_UPSTREAM, "no JSON: %s", why.text) : 0;
}

static int compare_files(const void *a, const void *b)
{
    const struct commit_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

int hub_tree_finish(struct hub_tree *t, struct commit_files *ret, struct error *err)
{
    for (size_t i = 0; i < t->n; i++)
        t->files[i].path = t->paths.data + t->offsets[i];
    if (t->n)
        qsort(t->files, t->n, sizeof(*t->files), compare_files);
    for (size_t i = 1; i < t->n; i++)
        if (strcmp(t->files[i - 1].path, t->files[i].path) == 0)
            return err_set(err, ERR_UPSTREAM, "%.200s is listed twice", t->files[i].path);
    *ret = (struct commit_files){
        .files = TAKE_PTR(t->files), .n = t->n, .storage = TAKE_PTR(t->paths.data)};
    t->paths = STRBUF_INIT;
    hub_tree_done(t);
    return 0;
}
