#include "server/hub_route.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

/* A part between two slashes, as it came. */
struct part {
    const char *s;
    size_t n;
};

static bool part_at(const char *path, unsigned i, struct part *ret)
{
    for (; i; i--) {
        path = strchr(path, '/');
        if (!path)
            return false;
        path++;
    }
    *ret = (struct part){path, strcspn(path, "/")};
    return true;
}

static bool part_is(const char *path, unsigned i, const char *word)
{
    struct part p;
    return part_at(path, i, &p) && p.n == strlen(word) && memcmp(p.s, word, p.n) == 0;
}

/* Clients that put "/" behind everything put it behind a folder, too. */
static bool ends_before(const char *path, unsigned i)
{
    struct part p;
    return !part_at(path, i, &p) || *p.s == '\0';
}

/* Puts the part behind what is in buf, with a slash between, decoded once. */
static int append(const struct part *p, const char *what, char *buf, size_t size, struct error *err)
{
    size_t used = strlen(buf);
    if (used && used + 1 < size)
        buf[used++] = '/';
    for (size_t i = 0; i < p->n; i++) {
        int c = (unsigned char)p->s[i];
        if (c == '%') {
            int high = p->n - i > 2 ? hex_digit(p->s[i + 1]) : -1;
            int low = high < 0 ? -1 : hex_digit(p->s[i + 2]);
            if (low < 0)
                return err_set(err, ERR_INVALID, "bad percent-encoding in the %s", what);
            c = high * 16 + low;
            i += 2;
        }
        if (c == 0)
            return err_set(err, ERR_INVALID, "a NUL in the %s", what);
        if (used + 1 >= size)
            return err_set(err, ERR_INVALID, "the %s is over %zu bytes", what, size - 1);
        buf[used++] = (char)c;
    }
    buf[used] = '\0';
    return 0;
}

/* No part of it leads anywhere but down, and all of it can be written in one line. */
static int check_parts(const char *path, const char *what, struct error *err)
{
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_INVALID, "a control character in the %s", what);
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n <= 2 && strncmp(p, "..", n) == 0))
            return err_set(err, ERR_INVALID, "the %s has a part that is empty, \".\" or \"..\"",
                           what);
        p += n;
        if (!*p)
            return 0;
    }
}

static int read_name(const char *path, unsigned i, unsigned n, struct hub_route *r,
                     struct error *err)
{
    char *name = r->query.name;
    for (; n; n--, i++) {
        struct part p;
        if (!part_at(path, i, &p) || p.n == 0 || memchr(p.s, '%', p.n))
            return err_set(err, ERR_INVALID,
                           "a repository's name is \"name\" or \"organisation/name\", without "
                           "escapes and empty parts");
        if (append(&p, "repository's name", name, sizeof(r->query.name), err) < 0)
            return -1;
    }
    return check_parts(name, "repository's name", err);
}

/* The revision that begins at part *i, which is moved behind it. */
static int read_revision(const char *path, unsigned *i, struct hub_route *r, struct error *err)
{
    static const char what[] = "revision";
    struct part p = {path, 0}, number;
    char *revision = r->query.revision;
    if (!part_at(path, (*i)++, &p) ||
        append(&p, what, revision, sizeof(r->query.revision), err) < 0)
        return -1;
    if (strcmp(revision, "refs") == 0 &&
        (part_is(path, *i, "pr") || part_is(path, *i, "convert")) &&
        part_at(path, *i + 1, &number) && number.n) {
        part_at(path, *i, &p);
        *i += 2;
        if (append(&p, what, revision, sizeof(r->query.revision), err) < 0 ||
            append(&number, what, revision, sizeof(r->query.revision), err) < 0)
            return -1;
    } else {
        r->may_be_longer = !memchr(p.s, '%', p.n) && !is_lower_hex(revision, 40);
    }
    return check_parts(revision, what, err);
}

/* All parts from i on; a slash at the end is nothing. */
static int read_rest(const char *path, unsigned i, const char *what, char *buf, size_t size,
                     struct error *err)
{
    struct part p = {path, 0};
    part_at(path, i, &p);
    for (;;) {
        if (p.n == 0)
            return err_set(err, ERR_INVALID, "the %s has an empty part", what);
        if (append(&p, what, buf, size, err) < 0)
            return -1;
        const char *end = p.s + p.n;
        if (end[0] == '\0' || end[1] == '\0')
            return check_parts(buf, what, err);
        p.s = end + 1;
        p.n = strcspn(p.s, "/");
    }
}

/* ---- files ------------------------------------------------------------------------------------
 */

static enum route_kind file_verb(const char *path, unsigned i)
{
    return part_is(path, i, "resolve") ? ROUTE_HUB_RESOLVE
           : part_is(path, i, "raw")   ? ROUTE_HUB_RAW
                                       : ROUTE_UNKNOWN;
}

static int read_file(const char *path, unsigned name, unsigned n, unsigned revision,
                     struct hub_route *r, struct error *err)
{
    struct part last;
    if (read_name(path, name, n, r, err) < 0 || read_revision(path, &revision, r, err) < 0)
        return -1;
    size_t len = strlen(path);
    if (!part_at(path, revision, &last) || path[len - 1] == '/')
        return err_set(err, ERR_INVALID, "the URL names no file behind the revision");
    return read_rest(path, revision, "path", r->path, sizeof(r->path), err) < 0 ? -1 : 1;
}

/* "[datasets/|spaces/]<repo>/resolve/<revision>/<path>" */
static int parse_file(const char *path, struct hub_route *r, struct error *err)
{
    struct part p;
    unsigned i = 0;
    if (part_is(path, 0, "datasets"))
        r->query.kind = HUB_DATASET;
    else if (part_is(path, 0, "spaces"))
        r->query.kind = HUB_SPACE;
    if (r->query.kind != HUB_MODEL)
        i = 1;
    /* A repository may be called "raw": the words say what they say where a revision and a file can
     * follow. */
    unsigned n = file_verb(path, i + 2) && part_at(path, i + 4, &p) ? 2 : 1;
    r->kind = file_verb(path, i + n);
    if (r->kind == ROUTE_UNKNOWN || !part_at(path, i + n + 2, &p))
        return 0;
    return read_file(path, i, n, i + n + 1, r, err);
}

/* ---- what is under /api/ ----------------------------------------------------------------------
 */

static bool kind_at(const char *path, unsigned i, enum hub_kind *ret)
{
    static const char *const words[] = {
        [HUB_MODEL] = "models", [HUB_DATASET] = "datasets", [HUB_SPACE] = "spaces"};
    for (unsigned k = 0; k < ARRAY_LEN(words); k++)
        if (part_is(path, i, words[k])) {
            *ret = (enum hub_kind)k;
            return true;
        }
    return false;
}

enum follows { NOTHING, REVISION, REVISION_AND_PATH, ANYTHING };

struct verb {
    const char *word;
    enum route_kind kind;
    enum follows follows;
};

/* What stands behind a repository. Those that are not served are here for bare names: "gpt2/refs"
 * is no repository. */
static const struct verb verbs[] = {
    {"revision", ROUTE_HUB_INFO, REVISION},
    {"tree", ROUTE_HUB_TREE, REVISION_AND_PATH},
    {"paths-info", ROUTE_HUB_PATHS, REVISION},
    {"commits", ROUTE_HUB_COMMITS, REVISION},
    {"refs", ROUTE_HUB_REFS, NOTHING},
    {"auth-check", ROUTE_HUB_CHECK, NOTHING},
    {"discussions", ROUTE_HUB_OTHER, ANYTHING},
    {"xet-read-token", ROUTE_HUB_OTHER, ANYTHING},
    {"xet-write-token", ROUTE_HUB_OTHER, ANYTHING},
    {"treesize", ROUTE_HUB_OTHER, ANYTHING},
};

static const struct verb *verb_at(const char *path, unsigned i)
{
    for (unsigned k = 0; k < ARRAY_LEN(verbs); k++) {
        const struct verb *v = &verbs[k];
        if (!part_is(path, i, v->word))
            continue;
        bool is_last = ends_before(path, i + 1);
        return v->follows == ANYTHING || (v->follows == NOTHING) == is_last ? v : NULL;
    }
    return NULL;
}

static int read_info(const char *path, const char *query, struct hub_route *r, struct error *err)
{
    unsigned n = ends_before(path, 2) ? 1 : 2;
    char *revision = r->query.revision;
    if (!ends_before(path, 3)) {
        r->kind = ROUTE_HUB_OTHER;
        return 1;
    }
    r->kind = ROUTE_HUB_INFO;
    if (read_name(path, 1, n, r, err) < 0)
        return -1;
    int given = query_get(query, "revision", revision, sizeof(r->query.revision), err);
    if (given > 0 && *revision)
        given = check_parts(revision, "revision", err);
    return given < 0 ? -1 : 1;
}

/* "<kind>/<repo>..." */
static int parse_repository(const char *path, const char *query, struct hub_route *r,
                            struct error *err)
{
    unsigned n = 2;
    const struct verb *v = verb_at(path, 3);
    if (ends_before(path, 1)) {
        r->kind = ROUTE_HUB_OTHER; /* a search */
        return 1;
    }
    if (!v) {
        n = 1;
        v = verb_at(path, 2);
    }
    if (!v)
        return read_info(path, query, r, err);
    r->kind = v->kind;
    if (v->kind == ROUTE_HUB_OTHER)
        return 1;
    unsigned i = n + 2;
    if (read_name(path, 1, n, r, err) < 0)
        return -1;
    if (v->follows == REVISION)
        return read_rest(path, i, "revision", r->query.revision, sizeof(r->query.revision), err) < 0
                   ? -1
                   : 1;
    if (v->follows == REVISION_AND_PATH) {
        if (read_revision(path, &i, r, err) < 0)
            return -1;
        if (!ends_before(path, i) &&
            read_rest(path, i, "folder", r->path, sizeof(r->path), err) < 0)
            return -1;
    }
    return 1;
}

/* "<kind>/<repo>/<commit>/<path>": where the Hub redirects to. */
static int parse_resolve_cache(const char *path, struct hub_route *r, struct error *err)
{
    struct part p;
    r->kind = ROUTE_HUB_OTHER;
    if (!kind_at(path, 0, &r->query.kind))
        return 1;
    for (unsigned i = 2; i <= 3; i++) {
        if (!part_at(path, i, &p) || p.n != 40 || strspn(p.s, "0123456789abcdef") != 40)
            continue;
        r->kind = ROUTE_HUB_RESOLVE;
        return read_file(path, 1, i - 1, i, r, err);
    }
    return 1;
}

static int parse_api(const char *path, const char *query, struct hub_route *r, struct error *err)
{
    struct part rest;
    if (part_is(path, 0, "resolve-cache") && part_at(path, 1, &rest))
        return parse_resolve_cache(rest.s, r, err);
    if (kind_at(path, 0, &r->query.kind))
        return parse_repository(path, query, r, err);
    r->kind =
        part_is(path, 0, "whoami-v2") && ends_before(path, 1) ? ROUTE_HUB_WHOAMI : ROUTE_HUB_OTHER;
    return 1;
}

/* "<repo>/manifests/<tag>" */
static int parse_llama(const char *path, struct hub_route *r, struct error *err)
{
    unsigned n = part_is(path, 2, "manifests") ? 2 : 1;
    struct part p;
    if (!part_is(path, n, "manifests") || !part_at(path, n + 1, &p) || part_at(path, n + 2, &p))
        return 0;
    r->kind = ROUTE_HUB_LLAMA;
    part_at(path, n + 1, &p);
    if (read_name(path, 0, n, r, err) < 0 || append(&p, "tag", r->path, sizeof(r->path), err) < 0 ||
        check_parts(r->path, "tag", err) < 0)
        return -1;
    return 1;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* The upstream that the path names, with what follows its prefix; without one the first Hub. NULL:
 * there is no Hub. */
static const struct config_upstream *upstream_of(const struct config *c, const char *path,
                                                 const char **ret_rest, bool *ret_named)
{
    const struct config_upstream *first = NULL;
    *ret_rest = path + 1;
    *ret_named = false;
    for (size_t i = 0; i < c->n_upstreams; i++) {
        const struct config_upstream *u = &c->upstreams[i];
        size_t n = strlen(u->prefix);
        if (u->kind != UPSTREAM_HUGGINGFACE)
            continue;
        if (!first)
            first = u;
        if (strncmp(path + 1, u->prefix, n) == 0 && path[n + 1] == '/') {
            *ret_rest = path + n + 2;
            *ret_named = true;
            return u;
        }
    }
    return first;
}

static int parse(const char *rest, const char *query, bool is_named, bool is_llama,
                 struct hub_route *r, struct error *err)
{
    if (strncmp(rest, "api/", 4) == 0)
        return parse_api(rest + 4, query, r, err);
    if (strncmp(rest, "v2/", 3) == 0)
        return is_named || is_llama ? parse_llama(rest + 3, r, err) : 0;
    return parse_file(rest, r, err);
}

int hub_route_parse(const struct config *c, const char *path, const char *query, bool is_llama,
                    struct hub_route **ret, struct error *err)
{
    const char *rest = NULL;
    bool is_named = false;
    *ret = NULL;
    if (path[0] != '/' || strncmp(path, "/admin/", 7) == 0)
        return 0;
    const struct config_upstream *u = upstream_of(c, path, &rest, &is_named);
    if (!is_named && strncmp(path, "/v2/", 4) == 0 && !(is_llama && u))
        return 0;
    _cleanup_free_ struct hub_route *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory for a request");
    int is = parse(rest, query, is_named, is_llama, r, err);
    if (is == 0 && !is_named)
        return 0;
    if (is == 0) {
        r->kind = ROUTE_HUB_OTHER; /* who comes by this prefix speaks with a Hub */
        is = 1;
    }
    if (is > 0 && !u)
        is = err_set(err, ERR_NOT_FOUND,
                     "this is a path of the Hugging Face Hub's API, and no upstream of this server "
                     "is of the kind \"huggingface\"");
    r->prefix = u ? u->prefix : "";
    *ret = TAKE_PTR(r);
    return is;
}

bool hub_route_longer(struct hub_route *r)
{
    char *revision = r->query.revision;
    bool is_file = r->kind != ROUTE_HUB_TREE;
    size_t used = strlen(revision), n = strcspn(r->path, "/"), rest = n + (r->path[n] == '/');
    if (n == 0 || (is_file && !r->path[n]) || used + 1 + n >= sizeof(r->query.revision))
        return false;
    revision[used] = '/';
    memcpy(revision + used + 1, r->path, n);
    revision[used + 1 + n] = '\0';
    memmove(r->path, r->path + rest, strlen(r->path + rest) + 1);
    return true;
}
