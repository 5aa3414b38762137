#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/route.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHA "sha256:" HEX64

struct route_case {
    const char *path;
    int want; /* 0 or -1 */
    enum route_kind kind;
    const char *repository, *tag_or_digest; /* for want 0; NULL = none */
    enum resource about;                    /* for want -1 */
};

static const struct route_case cases[] = {
    {"/v2/", 0, ROUTE_BASE, NULL, NULL, 0},
    {"/v2", 0, ROUTE_BASE, NULL, NULL, 0},
    {"/v2/_catalog", 0, ROUTE_CATALOG, NULL, NULL, 0},
    {"/healthz", 0, ROUTE_HEALTH, NULL, NULL, 0},
    {"/readyz", 0, ROUTE_READY, NULL, NULL, 0},
    {"/metrics", 0, ROUTE_METRICS, NULL, NULL, 0},
    {"/", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"*", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/healthz/", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/b", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2//", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/manifests/x", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/manifests/", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/manifests", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/tags/other", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/manifests/latest", 0, ROUTE_MANIFEST, "a", "latest", 0},
    {"/v2/hf/Org/Name/manifests/Main", 0, ROUTE_MANIFEST, "hf/org/name", "Main", 0},
    {"/v2/a/manifests/" SHA, 0, ROUTE_MANIFEST, "a", SHA, 0},
    {"/v2/a/manifests/sha256%3A" HEX64, 0, ROUTE_MANIFEST, "a", SHA, 0},
    {"/v2/a/manifests/sha256%3a" HEX64, 0, ROUTE_MANIFEST, "a", SHA, 0},
    {"/v2/a/blobs/" SHA, 0, ROUTE_BLOB, "a", SHA, 0},
    {"/v2/a/referrers/" SHA, 0, ROUTE_REFERRERS, "a", SHA, 0},
    {"/v2/a/tags/list", 0, ROUTE_TAGS, "a", NULL, 0},
    {"/v2/a/blobs/uploads", 0, ROUTE_UPLOADS, "a", NULL, 0},
    {"/v2/a/blobs/uploads/", 0, ROUTE_UPLOADS, "a", NULL, 0},
    {"/v2/a/blobs/uploads/5c0d", 0, ROUTE_UPLOAD, "a", NULL, 0},
    {"/v2/a/blobs/uploads/5c0d/", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/blobs/uploads/uploads", 0, ROUTE_UPLOAD, "a", NULL, 0},
    {"/v2/blobs/uploads/", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/blobs/uploads", 0, ROUTE_UNKNOWN, NULL, NULL, 0},
    {"/v2/a/blobs/uploads/blobs/uploads/", 0, ROUTE_UPLOADS, "a/blobs/uploads", NULL, 0},
    {"/v2/-a/blobs/uploads/", -1, ROUTE_UPLOADS, NULL, NULL, RESOURCE_NAME},
    /* names with our own words in them */
    {"/v2/blobs/manifests/tags/manifests/x", 0, ROUTE_MANIFEST, "blobs/manifests/tags", "x", 0},
    {"/v2/a/manifests/tags/list", 0, ROUTE_TAGS, "a/manifests", NULL, 0},
    {"/v2/a/blobs/blobs/" SHA, 0, ROUTE_BLOB, "a/blobs", SHA, 0},
    {"/v2/a/tags/list/manifests/x", 0, ROUTE_MANIFEST, "a/tags/list", "x", 0},
    {"/v2/v2/a/manifests/x", 0, ROUTE_MANIFEST, "v2/a", "x", 0},
    /* rules of names */
    {"/v2//a/manifests/x", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a//b/manifests/x", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/../b/manifests/x", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/../a/manifests/x", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a%2Fb/manifests/x", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a%2fb/tags/list", -1, ROUTE_TAGS, NULL, NULL, RESOURCE_NAME},
    {"/v2/a%00/tags/list", -1, ROUTE_TAGS, NULL, NULL, RESOURCE_NAME},
    {"/v2/%61/tags/list", -1, ROUTE_TAGS, NULL, NULL, RESOURCE_NAME},
    {"/v2/a b/tags/list", -1, ROUTE_TAGS, NULL, NULL, RESOURCE_NAME},
    {"/v2/-a/tags/list", -1, ROUTE_TAGS, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/manifests/%2e%2e", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/manifests/..", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_MANIFEST},
    {"/v2/a/manifests/x%00", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/manifests/x%", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/manifests/sha256%253A" HEX64, -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_NAME},
    {"/v2/a/manifests/sha256:", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_DIGEST},
    {"/v2/a/manifests/sha256:baddigeststring", -1, ROUTE_MANIFEST, NULL, NULL, RESOURCE_DIGEST},
    {"/v2/a/blobs/latest", -1, ROUTE_BLOB, NULL, NULL, RESOURCE_DIGEST},
    {"/v2/a/blobs/sha256:0", -1, ROUTE_BLOB, NULL, NULL, RESOURCE_DIGEST},
    {"/v2/a/blobs/md5:00112233445566778899aabbccddeeff", -1, ROUTE_BLOB, NULL, NULL,
     RESOURCE_DIGEST},
    {"/v2/a/referrers/latest", -1, ROUTE_REFERRERS, NULL, NULL, RESOURCE_DIGEST},
    /* admin */
    {"/admin/v1/references/a/b:v1", 0, ROUTE_ADMIN_REFERENCE, "a/b", "v1", 0},
    {"/admin/v1/references/a/b@" SHA, 0, ROUTE_ADMIN_REFERENCE, "a/b", SHA, 0},
    {"/admin/v1/references/a/b%3Av1", 0, ROUTE_ADMIN_REFERENCE, "a/b", "v1", 0},
    {"/admin/v1/references/a/b", -1, ROUTE_ADMIN_REFERENCE, NULL, NULL, RESOURCE_MANIFEST},
    {"/admin/v1/references/", -1, ROUTE_ADMIN_REFERENCE, NULL, NULL, RESOURCE_MANIFEST},
    {"/admin/v1/references/a/b@v1", -1, ROUTE_ADMIN_REFERENCE, NULL, NULL, RESOURCE_MANIFEST},
    {"/admin/v1/references/../b:v1", -1, ROUTE_ADMIN_REFERENCE, NULL, NULL, RESOURCE_MANIFEST},
    {"/admin/v1/history/a/b:v1", 0, ROUTE_ADMIN_HISTORY, "a/b", "v1", 0},
    {"/admin/v1/history/a/b", -1, ROUTE_ADMIN_HISTORY, NULL, NULL, RESOURCE_MANIFEST},
    {"/admin/v1/history/a/b@" SHA, -1, ROUTE_ADMIN_HISTORY, NULL, NULL, RESOURCE_MANIFEST},
};

Test(route, table)
{
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct route_case *c = &cases[i];
        struct route r;
        struct error err = ERROR_INIT;
        int got = route_parse(c->path, &r, &err);
        cr_expect_eq(got, c->want, "%s: %d %s", c->path, got, err.text);
        cr_expect_eq(r.kind, c->kind, "%s: kind %s", c->path, route_name(r.kind));
        if (got < 0) {
            cr_expect_eq(r.about, c->about, "%s: about %d", c->path, r.about);
            cr_expect(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED, "%s", c->path);
            cr_expect_neq(err.text[0], '\0');
            continue;
        }
        cr_expect_str_eq(r.ref.repository, c->repository ? c->repository : "", "%s", c->path);
        char text[DIGEST_TEXT_MAX] = "";
        if (r.ref.is_digest)
            digest_format(&r.ref.digest, text);
        else
            strcpy(text, r.ref.tag);
        cr_expect_str_eq(text, c->tag_or_digest ? c->tag_or_digest : "", "%s", c->path);
    }
}

Test(route, upload_ids)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    static const struct {
        const char *last, *want;
    } ids[] = {
        {id, id},
        {"0123456789abcdef0123456789abcde", ""},
        {"0123456789abcdef0123456789abcdef0", ""},
        {"0123456789ABCDEF0123456789ABCDEF", ""},
        {"0123456789abcdef0123456789abcde%30", ""},
        {"..", ""},
    };
    char path[256];
    for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct route r;
        snprintf(path, sizeof(path), "/v2/a/b/blobs/uploads/%s", ids[i].last);
        cr_expect_eq(route_parse(path, &r, NULL), 0);
        cr_expect_eq(r.kind, ROUTE_UPLOAD);
        cr_expect_eq(r.about, RESOURCE_UPLOAD);
        cr_expect_str_eq(r.upload, ids[i].want);
    }
}

Test(route, keeps_the_case_as_given)
{
    struct route r;
    cr_assert_eq(route_parse("/v2/hf/Org/Name/tags/list", &r, NULL), 0);
    cr_expect_str_eq(r.ref.as_given, "hf/Org/Name");
    cr_expect_str_eq(r.ref.repository, "hf/org/name");
}

Test(route, long_names)
{
    char path[4096], name[REPOSITORY_MAX + 2];
    struct route r;
    struct error err = ERROR_INIT;
    memset(name, 'a', sizeof(name));
    name[REPOSITORY_MAX] = '\0';
    snprintf(path, sizeof(path), "/v2/%s/tags/list", name);
    cr_expect_eq(route_parse(path, &r, &err), 0);
    name[REPOSITORY_MAX] = 'a';
    name[REPOSITORY_MAX + 1] = '\0';
    snprintf(path, sizeof(path), "/v2/%s/tags/list", name);
    cr_expect_eq(route_parse(path, &r, &err), -1);
    cr_expect_eq(r.about, RESOURCE_NAME);

    char tag[2000];
    memset(tag, 'a', sizeof(tag));
    tag[TAG_MAX] = '\0';
    snprintf(path, sizeof(path), "/v2/x/manifests/%s", tag);
    cr_expect_eq(route_parse(path, &r, &err), 0, "128 is the longest legal tag");
    tag[TAG_MAX] = 'a';
    tag[TAG_MAX + 1] = '\0';
    snprintf(path, sizeof(path), "/v2/x/manifests/%s", tag);
    cr_expect_eq(route_parse(path, &r, &err), -1);
    memset(tag, 'a', sizeof(tag));
    tag[sizeof(tag) - 1] = '\0';
    snprintf(path, sizeof(path), "/v2/x/manifests/%s", tag);
    cr_expect_eq(route_parse(path, &r, &err), -1);
}

Test(route, names_of_routes)
{
    for (int i = 0; i < ROUTE_COUNT; i++)
        cr_expect_neq(route_name((enum route_kind)i), NULL);
    cr_expect_str_eq(route_name((enum route_kind)99), "unknown");
}

struct query_case {
    const char *query, *key;
    int want;
    const char *value;
};

Test(query, get)
{
    static const struct query_case q[] = {
        {NULL, "n", 0, NULL},
        {"", "n", 0, NULL},
        {"n=5", "n", 1, "5"},
        {"x=1&n=5", "n", 1, "5"},
        {"n=5&n=6", "n", 1, "5"},
        {"n", "n", 1, ""},
        {"n=", "n", 1, ""},
        {"nn=5", "n", 0, NULL},
        {"last=v%2E1&x", "last", 1, "v.1"},
        {"last=a%2Fb", "last", 1, "a/b"},
        {"last=a+b", "last", 1, "a+b"},
        {"last=a=b", "last", 1, "a=b"},
        {"last=%00", "last", -1, NULL},
        {"last=%4", "last", -1, NULL},
        {"last=%4&x", "last", -1, NULL},
        {"last=%zz", "last", -1, NULL},
        {"last=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "last", -1, NULL},
        {"&&&n=1", "n", 1, "1"},
        {"ns=docker.io&n=3", "n", 1, "3"},
    };
    for (unsigned i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
        char buf[16] = "";
        struct error err = ERROR_INIT;
        int got = query_get(q[i].query, q[i].key, buf, sizeof(buf), &err);
        cr_expect_eq(got, q[i].want, "%s: %d", q[i].query, got);
        if (got > 0)
            cr_expect_str_eq(buf, q[i].value, "%s", q[i].query);
    }
}

Test(query, get_nth)
{
    char buf[16] = "";
    struct error err = ERROR_INIT;
    static const char q[] = "tag=a&x=1&tag=b&tag=%zz&tag";
    cr_expect_eq(query_get_nth(q, "tag", 0, buf, sizeof(buf), &err), 1);
    cr_expect_str_eq(buf, "a");
    cr_expect_eq(query_get_nth(q, "tag", 1, buf, sizeof(buf), &err), 1);
    cr_expect_str_eq(buf, "b");
    cr_expect_eq(query_get_nth(q, "tag", 2, buf, sizeof(buf), &err), -1);
    cr_expect_eq(query_get_nth(q, "tag", 3, buf, sizeof(buf), &err), 1);
    cr_expect_str_eq(buf, "");
    cr_expect_eq(query_get_nth(q, "tag", 4, buf, sizeof(buf), &err), 0);
    cr_expect_eq(query_get_nth(NULL, "tag", 0, buf, sizeof(buf), &err), 0);
}

Test(query, count)
{
    size_t n = 7;
    struct error err = ERROR_INIT;
    cr_expect_eq(query_get_count(NULL, 100, &n, &err), 0);
    cr_expect_eq(n, 7);
    cr_expect_eq(query_get_count("n=0", 100, &n, &err), 1);
    cr_expect_eq(n, 0);
    cr_expect_eq(query_get_count("n=99", 100, &n, &err), 1);
    cr_expect_eq(n, 99);
    cr_expect_eq(query_get_count("n=99999999999999999999999999", 100, &n, &err), 1);
    cr_expect_eq(n, 100);
    static const char *const bad[] = {"n=",
                                      "n=-1",
                                      "n=+1",
                                      "n=1x",
                                      "n=x",
                                      "n=%00",
                                      "n=1.0",
                                      "n=0x1",
                                      "n",
                                      "n=%2D1",
                                      "n=111111111111111111111111111111111111111"};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_eq(query_get_count(bad[i], 100, &n, &err), -1, "%s", bad[i]);
        cr_expect_eq(err.code, ERR_UNSUPPORTED, "%s", bad[i]);
    }
}
