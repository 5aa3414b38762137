#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/hub_route.h"

#define C40 "0123456789abcdef0123456789abcdef01234567"

static struct config_upstream upstreams[] = {
    {.prefix = "docker.io", .kind = UPSTREAM_OCI},
    {.prefix = "hf", .kind = UPSTREAM_HUGGINGFACE},
    {.prefix = "mirrors/second", .kind = UPSTREAM_HUGGINGFACE},
};
static const struct config three = {.upstreams = upstreams, .n_upstreams = 3};
static const struct config no_hub = {.upstreams = upstreams, .n_upstreams = 1};

struct hub_case {
    const char *path;
    enum route_kind kind; /* ROUTE_UNKNOWN: not of the Hub's API */
    enum hub_kind repository;
    const char *name, *revision, *rest;
};

/* ---- what is understood -----------------------------------------------------------------------
 */

static const struct hub_case cases[] = {
    {"/", ROUTE_UNKNOWN, 0, "", "", ""},
    {"", ROUTE_UNKNOWN, 0, "", "", ""},
    {"*", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/v2/", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/v2/org/name/manifests/latest", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/v2/a/resolve/b/c", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/healthz", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/admin/v1/resolve/main/x", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/org/name", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/org/name/blob/main/x", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/org/name/resolve/main", ROUTE_UNKNOWN, 0, "", "", ""},
    {"/api", ROUTE_UNKNOWN, 0, "", "", ""},
    /* files */
    {"/org/name/resolve/main/config.json", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     "config.json"},
    {"/Org/Na.me_1-x/raw/v1.0/a/b/c.txt", ROUTE_HUB_RAW, HUB_MODEL, "Org/Na.me_1-x", "v1.0",
     "a/b/c.txt"},
    {"/gpt2/resolve/main/config.json", ROUTE_HUB_RESOLVE, HUB_MODEL, "gpt2", "main", "config.json"},
    {"/datasets/org/name/resolve/main/x", ROUTE_HUB_RESOLVE, HUB_DATASET, "org/name", "main", "x"},
    {"/datasets/squad/resolve/main/x", ROUTE_HUB_RESOLVE, HUB_DATASET, "squad", "main", "x"},
    {"/spaces/org/name/raw/main/x", ROUTE_HUB_RAW, HUB_SPACE, "org/name", "main", "x"},
    {"/org/name/resolve/refs%2Fpr%2F1/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "refs/pr/1",
     "x"},
    {"/org/name/resolve/refs/pr/12/a/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "refs/pr/12",
     "a/x"},
    {"/org/name/resolve/refs/convert/parquet/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name",
     "refs/convert/parquet", "x"},
    {"/org/name/resolve/refs/other/1/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "refs",
     "other/1/x"},
    {"/org/name/resolve/" C40 "/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", C40, "x"},
    {"/org/name/resolve/main/sub%20dir/a%2Bb.txt", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     "sub dir/a+b.txt"},
    {"/org/name/resolve/main/sub%20dir/a+b.txt", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     "sub dir/a+b.txt"},
    {"/org/name/resolve/main/a%2Fb.txt", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     "a/b.txt"},
    {"/org/name/resolve/main/a%252Fb", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main", "a%2Fb"},
    {"/org/name/resolve/main/%c3%a9", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main", "\xc3\xa9"},
    {"/org/name/resolve/main/.hidden/..x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     ".hidden/..x"},
    /* names and files of the very words */
    {"/org/raw/resolve/main/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/raw", "main", "x"},
    {"/org/resolve/raw/main/x", ROUTE_HUB_RAW, HUB_MODEL, "org/resolve", "main", "x"},
    {"/gpt2/resolve/main/resolve/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "gpt2", "main", "resolve/x"},
    {"/gpt2/resolve/resolve/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "gpt2", "resolve", "x"},
    {"/org/name/resolve/main/resolve/main/x", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name", "main",
     "resolve/main/x"},
    {"/api/resolve-cache/models/org/name/" C40 "/a/b", ROUTE_HUB_RESOLVE, HUB_MODEL, "org/name",
     C40, "a/b"},
    {"/api/resolve-cache/datasets/squad/" C40 "/b", ROUTE_HUB_RESOLVE, HUB_DATASET, "squad", C40,
     "b"},
    {"/api/resolve-cache/models/org/name/main/x", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/resolve-cache/models", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    /* info */
    {"/api/models/org/name", ROUTE_HUB_INFO, HUB_MODEL, "org/name", "", ""},
    {"/api/models/org/name/", ROUTE_HUB_INFO, HUB_MODEL, "org/name", "", ""},
    {"/api/models/gpt2", ROUTE_HUB_INFO, HUB_MODEL, "gpt2", "", ""},
    {"/api/models/gpt2/", ROUTE_HUB_INFO, HUB_MODEL, "gpt2", "", ""},
    {"/api/datasets/org/name", ROUTE_HUB_INFO, HUB_DATASET, "org/name", "", ""},
    {"/api/spaces/org/name", ROUTE_HUB_INFO, HUB_SPACE, "org/name", "", ""},
    {"/api/models/org/name/revision/main", ROUTE_HUB_INFO, HUB_MODEL, "org/name", "main", ""},
    {"/api/models/org/name/revision/feature/x", ROUTE_HUB_INFO, HUB_MODEL, "org/name", "feature/x",
     ""},
    {"/api/models/org/name/revision/refs%2Fpr%2F1", ROUTE_HUB_INFO, HUB_MODEL, "org/name",
     "refs/pr/1", ""},
    {"/api/models/gpt2/revision/HEAD", ROUTE_HUB_INFO, HUB_MODEL, "gpt2", "HEAD", ""},
    {"/api/models/org/tree", ROUTE_HUB_INFO, HUB_MODEL, "org/tree", "", ""},
    {"/api/models/org/tree/revision/main", ROUTE_HUB_INFO, HUB_MODEL, "org/tree", "main", ""},
    /* tree */
    {"/api/models/org/name/tree/main", ROUTE_HUB_TREE, HUB_MODEL, "org/name", "main", ""},
    {"/api/models/org/name/tree/main/", ROUTE_HUB_TREE, HUB_MODEL, "org/name", "main", ""},
    {"/api/models/org/name/tree/main/a%2Fb", ROUTE_HUB_TREE, HUB_MODEL, "org/name", "main", "a/b"},
    {"/api/models/org/name/tree/main/a/b/", ROUTE_HUB_TREE, HUB_MODEL, "org/name", "main", "a/b"},
    {"/api/models/gpt2/tree/main", ROUTE_HUB_TREE, HUB_MODEL, "gpt2", "main", ""},
    {"/api/models/gpt2/tree/refs/pr/1", ROUTE_HUB_TREE, HUB_MODEL, "gpt2", "refs/pr/1", ""},
    {"/api/models/org/name/tree/refs/pr/1/a", ROUTE_HUB_TREE, HUB_MODEL, "org/name", "refs/pr/1",
     "a"},
    {"/api/datasets/org/name/tree/refs%2Fconvert%2Fparquet", ROUTE_HUB_TREE, HUB_DATASET,
     "org/name", "refs/convert/parquet", ""},
    /* the rest */
    {"/api/models/org/name/paths-info/main", ROUTE_HUB_PATHS, HUB_MODEL, "org/name", "main", ""},
    {"/api/models/gpt2/paths-info/refs/pr/1", ROUTE_HUB_PATHS, HUB_MODEL, "gpt2", "refs/pr/1", ""},
    {"/api/models/org/name/refs", ROUTE_HUB_REFS, HUB_MODEL, "org/name", "", ""},
    {"/api/models/gpt2/refs", ROUTE_HUB_REFS, HUB_MODEL, "gpt2", "", ""},
    {"/api/models/org/name/commits/main", ROUTE_HUB_COMMITS, HUB_MODEL, "org/name", "main", ""},
    {"/api/models/org/name/auth-check", ROUTE_HUB_CHECK, HUB_MODEL, "org/name", "", ""},
    {"/api/models/gpt2/auth-check", ROUTE_HUB_CHECK, HUB_MODEL, "gpt2", "", ""},
    {"/api/whoami-v2", ROUTE_HUB_WHOAMI, HUB_MODEL, "", "", ""},
    /* never asked of the Hub */
    {"/api/models", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/telemetry/x/y", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/agent-harnesses", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/org/name/discussions", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/gpt2/discussions", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/org/name/xet-read-token/" C40, ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/org/name/treesize/main/", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/org/name/preupload/main", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/models/org/name/tree", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/kernels/org/name", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/repos/create", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
    {"/api/", ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""},
};

static void expect_route(const struct config *c, const struct hub_case *want, const char *path,
                         const char *prefix)
{
    _cleanup_free_ struct hub_route *r = NULL;
    struct error err = ERROR_INIT;
    int got = hub_route_parse(c, path, NULL, false, &r, &err);
    cr_assert_eq(got, want->kind != ROUTE_UNKNOWN, "%s: %d %s", path, got, err.text);
    if (got == 0) {
        cr_expect_null(r);
        return;
    }
    cr_expect_eq(r->kind, want->kind, "%s: %s", path, route_name(r->kind));
    cr_expect_str_eq(r->prefix, prefix, "%s", path);
    if (r->kind == ROUTE_HUB_OTHER)
        return;
    cr_expect_eq(r->query.kind, want->repository, "%s", path);
    cr_expect_str_eq(r->query.name, want->name, "%s", path);
    cr_expect_str_eq(r->query.revision, want->revision, "%s", path);
    cr_expect_str_eq(r->path, want->rest, "%s", path);
}

Test(hub_route, at_the_root_and_under_each_prefix)
{
    char path[512];
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        const struct hub_case *c = &cases[i];
        expect_route(&three, c, c->path, "hf");
        if (c->kind == ROUTE_UNKNOWN)
            continue;
        snprintf(path, sizeof(path), "/hf%s", c->path);
        expect_route(&three, c, path, "hf");
        snprintf(path, sizeof(path), "/mirrors/second%s", c->path);
        expect_route(&three, c, path, "mirrors/second");
    }
}

Test(hub_route, prefix_wins_over_organisation)
{
    static const struct hub_case want = {NULL, ROUTE_HUB_RESOLVE, HUB_MODEL, "name", "main", "x"};
    expect_route(&three, &want, "/hf/name/resolve/main/x", "hf");
    static const struct hub_case other = {NULL, ROUTE_HUB_RESOLVE, HUB_MODEL, "HF/name", "main",
                                          "x"};
    expect_route(&three, &other, "/HF/name/resolve/main/x", "hf");
}

Test(hub_route, under_a_prefix_nothing_is_a_registrys)
{
    static const char *const paths[] = {
        "/hf/",       "/hf/org/name", "/hf/v2/", "/hf/healthz", "/mirrors/second/v2/a/b/blobs/x",
        "/hf/admin/x"};
    static const struct hub_case want = {NULL, ROUTE_HUB_OTHER, HUB_MODEL, "", "", ""};
    for (unsigned i = 0; i < ARRAY_LEN(paths); i++)
        expect_route(&three, &want, paths[i], paths[i][1] == 'h' ? "hf" : "mirrors/second");
}

/* ---- what breaks a rule -----------------------------------------------------------------------
 */

Test(hub_route, refusals)
{
    static const struct {
        const char *path;
        enum route_kind kind;
    } bad[] = {
        {"/org/name/resolve/main/", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/a/", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main//a", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/a//b", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve//a", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/../x", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/%2e%2e/x", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/a%2F..%2Fx", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/a%2F%2Fx", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/%2Fx", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/./x", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%00", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%0a", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%7f", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%2", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/main/x%zz", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/x%2/a", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/../a", ROUTE_HUB_RESOLVE},
        {"/org/name/resolve/a%2F..%2Fb/x", ROUTE_HUB_RESOLVE},
        {"/org%2Fname/resolve/main/x", ROUTE_HUB_RESOLVE},
        {"//name/resolve/main/x", ROUTE_HUB_RESOLVE},
        {"/../name/resolve/main/x", ROUTE_HUB_RESOLVE},
        {"/api/models/../name", ROUTE_HUB_INFO},
        {"/api/models//name", ROUTE_HUB_INFO},
        {"/api/models/a%2Fb", ROUTE_HUB_INFO},
        {"/api/models/org/name/revision/a//b", ROUTE_HUB_INFO},
        {"/api/models/org/name/tree/main//", ROUTE_HUB_TREE},
        {"/api/models/org/name/tree/main/..", ROUTE_HUB_TREE},
        {"/api/models/org/name/commits/%00", ROUTE_HUB_COMMITS},
        {"/hf/v2/org/name/manifests/..", ROUTE_HUB_LLAMA},
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_free_ struct hub_route *r = NULL;
        struct error err = ERROR_INIT;
        cr_assert_eq(hub_route_parse(&three, bad[i].path, NULL, false, &r, &err), -1, "%s",
                     bad[i].path);
        cr_assert_not_null(r);
        cr_expect_eq(r->kind, bad[i].kind, "%s: %s", bad[i].path, route_name(r->kind));
        cr_expect_eq(err.code, ERR_INVALID, "%s", bad[i].path);
        cr_expect_neq(err.text[0], '\0');
    }
}

Test(hub_route, lengths)
{
    static char path[3 * HUB_PATH_MAX + 64];
    struct error err = ERROR_INIT;
    for (unsigned over = 0; over < 2; over++) {
        struct hub_route *r = NULL;
        strcpy(path, "/o/n/resolve/main/");
        size_t used = strlen(path);
        for (unsigned i = 0; i < HUB_PATH_MAX + over; i++)
            used += (size_t)sprintf(path + used, i % 2 ? "/" : "%%61");
        if (path[used - 1] == '/')
            path[used - 1] = 'a';
        cr_expect_eq(hub_route_parse(&three, path, NULL, false, &r, &err), over ? -1 : 1);
        cr_expect_eq(strlen(r->path) <= HUB_PATH_MAX, true);
        free(r);

        memset(path, 'r', sizeof(path));
        memcpy(path, "/o/n/resolve/", 13);
        strcpy(path + 13 + HUB_REVISION_MAX + over, "/x");
        cr_expect_eq(hub_route_parse(&three, path, NULL, false, &r, &err), over ? -1 : 1);
        free(r);

        memset(path, 'n', sizeof(path));
        path[0] = '/';
        strcpy(path + 1 + REPOSITORY_MAX + over, "/resolve/main/x");
        cr_expect_eq(hub_route_parse(&three, path, NULL, false, &r, &err), over ? -1 : 1);
        free(r);
    }
}

Test(hub_route, without_a_hub)
{
    struct error err = ERROR_INIT;
    _cleanup_free_ struct hub_route *r = NULL;
    cr_expect_eq(hub_route_parse(&no_hub, "/api/models/a/b", NULL, false, &r, &err), -1);
    cr_assert_not_null(r);
    cr_expect_eq(err.code, ERR_NOT_FOUND);
    struct hub_route *none = NULL;
    cr_expect_eq(hub_route_parse(&no_hub, "/a/b", NULL, false, &none, &err), 0);
    cr_expect_eq(hub_route_parse(&no_hub, "/v2/a/b/manifests/x", NULL, true, &none, &err), 0);
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

Test(hub_route, revision_in_the_query)
{
    static const struct {
        const char *path, *query, *want;
        int result;
    } queries[] = {
        {"/api/models/a/b", "revision=v1", "v1", 1},
        {"/api/models/a/b", "x=1&revision=refs%2Fpr%2F1", "refs/pr/1", 1},
        {"/api/models/a/b", "revision=", "", 1},
        {"/api/models/a/b", "revision", "", 1},
        {"/api/models/a/b/revision/v2", "revision=v1", "v2", 1},
        {"/api/models/a/b", "revision=%2e%2e", "", -1},
        {"/api/models/a/b", "revision=%00", "", -1},
        {"/api/models/a/b", "revision=a%0a", "", -1},
    };
    for (unsigned i = 0; i < ARRAY_LEN(queries); i++) {
        _cleanup_free_ struct hub_route *r = NULL;
        cr_expect_eq(hub_route_parse(&three, queries[i].path, queries[i].query, false, &r, NULL),
                     queries[i].result, "%s", queries[i].query);
        if (queries[i].result > 0)
            cr_expect_str_eq(r->query.revision, queries[i].want, "%s", queries[i].query);
    }
}

Test(hub_route, llama)
{
    static const struct {
        const char *path;
        bool is_llama;
        const char *name, *tag; /* NULL: the registry's */
    } paths[] = {
        {"/v2/org/Name-GGUF/manifests/Q4_K_M", true, "org/Name-GGUF", "Q4_K_M"},
        {"/v2/org/Name-GGUF/manifests/Q4_K_M", false, NULL, NULL},
        {"/hf/v2/org/Name-GGUF/manifests/latest", false, "org/Name-GGUF", "latest"},
        {"/v2/name/manifests/latest", true, "name", "latest"},
        {"/v2/org/manifests/manifests/latest", true, "org/manifests", "latest"},
        {"/v2/a/b/c/manifests/latest", true, NULL, NULL},
        {"/v2/org/name/blobs/sha256:00", true, NULL, NULL},
        {"/v2/", true, NULL, NULL},
        {"/v2/org/name/manifests/a/b", true, NULL, NULL},
    };
    for (unsigned i = 0; i < ARRAY_LEN(paths); i++) {
        _cleanup_free_ struct hub_route *r = NULL;
        struct error err = ERROR_INIT;
        int got = hub_route_parse(&three, paths[i].path, NULL, paths[i].is_llama, &r, &err);
        cr_assert_eq(got, paths[i].name != NULL, "%s: %s", paths[i].path, err.text);
        if (!got)
            continue;
        cr_expect_eq(r->kind, ROUTE_HUB_LLAMA);
        cr_expect_str_eq(r->query.name, paths[i].name);
        cr_expect_str_eq(r->path, paths[i].tag);
    }
}

static void expect_longer(const char *path, bool may, bool has, const char *revision,
                          const char *rest)
{
    _cleanup_free_ struct hub_route *r = NULL;
    cr_assert_eq(hub_route_parse(&three, path, NULL, false, &r, NULL), 1, "%s", path);
    cr_expect_eq(r->may_be_longer, may, "%s", path);
    cr_expect_eq(hub_route_longer(r), has, "%s", path);
    cr_expect_str_eq(r->query.revision, revision, "%s", path);
    cr_expect_str_eq(r->path, rest, "%s", path);
}

Test(hub_route, longer_revisions)
{
    expect_longer("/o/n/resolve/feature/x/a/b", true, true, "feature/x", "a/b");
    expect_longer("/o/n/resolve/feature/x", true, false, "feature", "x");
    expect_longer("/o/n/resolve/feature%2Fx/a/b", false, true, "feature/x/a", "b");
    expect_longer("/o/n/resolve/refs/pr/1/a/b", false, true, "refs/pr/1/a", "b");
    expect_longer("/o/n/resolve/" C40 "/a/b", false, true, C40 "/a", "b");
    expect_longer("/api/models/o/n/tree/feature/x", true, true, "feature/x", "");
    expect_longer("/api/models/o/n/tree/feature/x/a", true, true, "feature/x", "a");
    expect_longer("/api/models/o/n/tree/feature", true, false, "feature", "");
    char path[600];
    memset(path, 'a', sizeof(path));
    memcpy(path, "/o/n/resolve/r/", 15);
    strcpy(path + 15 + HUB_REVISION_MAX, "/x");
    _cleanup_free_ struct hub_route *r = NULL;
    cr_assert_eq(hub_route_parse(&three, path, NULL, false, &r, NULL), 1);
    cr_expect_not(hub_route_longer(r));
    cr_expect_str_eq(r->query.revision, "r");
}
