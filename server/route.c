#include "server/route.h"

#include <string.h>

#include "base/digest.h"

static const char *const names[ROUTE_COUNT] = {
    [ROUTE_UNKNOWN] = "unknown",
    [ROUTE_BASE] = "base",
    [ROUTE_MANIFEST] = "manifest",
    [ROUTE_BLOB] = "blob",
    [ROUTE_UPLOADS] = "uploads",
    [ROUTE_UPLOAD] = "upload",
    [ROUTE_TAGS] = "tags",
    [ROUTE_REFERRERS] = "referrers",
    [ROUTE_CATALOG] = "catalog",
    [ROUTE_HEALTH] = "healthz",
    [ROUTE_READY] = "readyz",
    [ROUTE_METRICS] = "metrics",
    [ROUTE_ADMIN_REFERENCE] = "admin_reference",
    [ROUTE_ADMIN_HISTORY] = "admin_history",
    [ROUTE_ADMIN_WARM] = "admin_warm",
    [ROUTE_HUB_RESOLVE] = "hub_resolve",
    [ROUTE_HUB_RAW] = "hub_raw",
    [ROUTE_HUB_INFO] = "hub_info",
    [ROUTE_HUB_TREE] = "hub_tree",
    [ROUTE_HUB_PATHS] = "hub_paths_info",
    [ROUTE_HUB_REFS] = "hub_refs",
    [ROUTE_HUB_COMMITS] = "hub_commits",
    [ROUTE_HUB_CHECK] = "hub_auth_check",
    [ROUTE_HUB_WHOAMI] = "hub_whoami",
    [ROUTE_HUB_LLAMA] = "hub_llama",
    [ROUTE_HUB_OTHER] = "hub_other",
};

const char *route_name(enum route_kind kind)
{
    return (unsigned)kind < ROUTE_COUNT ? names[kind] : names[ROUTE_UNKNOWN];
}

/* Copies n bytes of a reference, %3A decoded; anything else with a '%' is refused. Longer ones than
 * any tag or digest are refused by length before they are looked at. */
static int copy_reference(const char *s, size_t n, char *buf, size_t size, struct error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%') {
            if (n - i < 3 || s[i + 1] != '3' || (s[i + 2] != 'A' && s[i + 2] != 'a'))
                return err_set(
                    err, ERR_INVALID,
                    "of percent-encodings only %%3A is read in a tag or digest; a revision "
                    "that is no tag, such as one with '/', is pulled by its commit");
            c = ':';
            i += 2;
        }
        if (used + 1 >= size)
            return err_set(err, ERR_INVALID, "the tag or digest is over %zu bytes", size - 1);
        buf[used++] = c;
    }
    buf[used] = '\0';
    return 0;
}

static int parse_name(const char *s, size_t n, char name[static REPOSITORY_MAX + 1],
                      struct route *ret, struct error *err)
{
    ret->about = RESOURCE_NAME;
    if (n > REPOSITORY_MAX)
        return err_set(err, ERR_INVALID, "the repository name is over %d bytes", REPOSITORY_MAX);
    memcpy(name, s, n);
    name[n] = '\0';
    char lower[REPOSITORY_MAX + 1];
    if (!ascii_lower(name, lower, sizeof(lower)) || !repository_is_valid(lower))
        return err_set(err, ERR_INVALID,
                       "\"%.200s\" is not a repository name (lower-case letters, digits and "
                       "single separators '.', '_', '-', in parts joined by '/')",
                       name);
    memcpy(ret->ref.repository, lower, sizeof(lower));
    memcpy(ret->ref.as_given, name, n + 1);
    memcpy(ret->name, name, n + 1);
    return 0;
}

static int parse_reference(const char *name, const char *s, size_t n, struct route *ret,
                           struct error *err)
{
    char text[DIGEST_TEXT_MAX + 256];
    bool digest_wanted = ret->kind != ROUTE_MANIFEST;
    if (copy_reference(s, n, text, sizeof(text), err) < 0)
        return -1;
    bool is_digest = strchr(text, ':') != NULL;
    ret->about = is_digest || digest_wanted ? RESOURCE_DIGEST : RESOURCE_MANIFEST;
    if (digest_wanted && !is_digest)
        return err_set(err, ERR_INVALID, "\"%.160s\" is not a digest (algorithm:hex)", text);
    struct reference r;
    if (reference_make(name, text, &r, err) < 0)
        return -1;
    ret->ref = r;
    ret->about = ret->kind == ROUTE_MANIFEST ? RESOURCE_MANIFEST : RESOURCE_BLOB;
    return 0;
}

static bool segment_is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* `rest` is what follows "/v2/". */
static int parse_v2(const char *rest, struct route *ret, struct error *err)
{
    /* The last three segments, from the right. */
    const char *start[3];
    size_t length[3];
    const char *end = rest + strlen(rest);
    unsigned n = 0;
    for (const char *p = end; n < 3; p--) {
        if (p == rest || p[-1] == '/') {
            start[n] = p;
            length[n] = (size_t)(end - p);
            n++;
            if (p == rest)
                break;
            end = p - 1;
        }
    }
    const char *verb = NULL;
    if (n >= 2 && segment_is(start[1], length[1], "manifests")) {
        ret->kind = ROUTE_MANIFEST;
        verb = start[1];
    } else if (n >= 2 && segment_is(start[1], length[1], "blobs")) {
        ret->kind = segment_is(start[0], length[0], "uploads") ? ROUTE_UPLOADS : ROUTE_BLOB;
        verb = start[1];
    } else if (n >= 2 && segment_is(start[1], length[1], "referrers")) {
        ret->kind = ROUTE_REFERRERS;
        verb = start[1];
    } else if (n >= 2 && segment_is(start[1], length[1], "tags") &&
               segment_is(start[0], length[0], "list")) {
        ret->kind = ROUTE_TAGS;
        verb = start[1];
    } else if (n >= 3 && segment_is(start[1], length[1], "uploads") &&
               segment_is(start[2], length[2], "blobs")) {
        ret->kind = length[0] ? ROUTE_UPLOAD : ROUTE_UPLOADS;
        verb = start[2];
    }
    if (!verb || verb == rest || (!length[0] && ret->kind != ROUTE_UPLOADS)) {
        ret->kind = ROUTE_UNKNOWN; /* nothing asked for, or no name before it */
        return 0;
    }
    char name[REPOSITORY_MAX + 1];
    if (parse_name(rest, (size_t)(verb - 1 - rest), name, ret, err) < 0)
        return -1;
    if (ret->kind == ROUTE_UPLOADS || ret->kind == ROUTE_UPLOAD)
        ret->about = RESOURCE_UPLOAD;
    if (ret->kind == ROUTE_UPLOAD && is_lower_hex(start[0], UPLOAD_ID_LEN))
        memcpy(ret->upload, start[0], UPLOAD_ID_LEN);
    if (ret->kind == ROUTE_TAGS || ret->about == RESOURCE_UPLOAD)
        return 0;
    return parse_reference(name, start[0], length[0], ret, err);
}

/* These need an explicit tag or digest: `repository` alone never means `latest` here. */
static int parse_admin(const char *rest, struct route *ret, struct error *err)
{
    char text[REFERENCE_TEXT_MAX + 64];
    bool is_history = ret->kind == ROUTE_ADMIN_HISTORY;
    ret->about = RESOURCE_MANIFEST;
    if (copy_reference(rest, strlen(rest), text, sizeof(text), err) < 0)
        return -1;
    const char *slash = strrchr(text, '/');
    if (!strchr(text, '@') && !strchr(slash ? slash : text, ':'))
        return err_set(err, ERR_INVALID, "%s",
                       is_history ? "name the tag as repository:tag"
                       : ret->kind == ROUTE_ADMIN_WARM
                           ? "name what to warm as repository:tag or repository@digest"
                           : "name what to remove as repository:tag or repository@digest");
    if (reference_parse(text, &ret->ref, err) < 0)
        return -1;
    if (is_history && ret->ref.is_digest)
        return err_set(err, ERR_INVALID, "tags have a history, digests have none: name a tag");
    return 0;
}

int route_parse(const char *path, struct route *ret, struct error *err)
{
    static const struct {
        const char *path;
        enum route_kind kind;
    } fixed[] = {
        {"/v2", ROUTE_BASE},        {"/v2/", ROUTE_BASE},     {"/v2/_catalog", ROUTE_CATALOG},
        {"/healthz", ROUTE_HEALTH}, {"/readyz", ROUTE_READY}, {"/metrics", ROUTE_METRICS},
    };
    static const struct {
        const char *prefix;
        enum route_kind kind;
    } admin[] = {
        {"/admin/v1/references/", ROUTE_ADMIN_REFERENCE},
        {"/admin/v1/history/", ROUTE_ADMIN_HISTORY},
        {"/admin/v1/warm/", ROUTE_ADMIN_WARM},
    };
    *ret = (struct route){0};
    for (unsigned i = 0; i < ARRAY_LEN(fixed); i++)
        if (strcmp(path, fixed[i].path) == 0) {
            ret->kind = fixed[i].kind;
            return 0;
        }
    if (strncmp(path, "/v2/", 4) == 0)
        return parse_v2(path + 4, ret, err);
    for (unsigned i = 0; i < ARRAY_LEN(admin); i++)
        if (strncmp(path, admin[i].prefix, strlen(admin[i].prefix)) == 0) {
            ret->kind = admin[i].kind;
            return parse_admin(path + strlen(admin[i].prefix), ret, err);
        }
    return 0;
}

/* The value from v to end, percent-decoded. */
static int copy_value(const char *key, const char *v, const char *end, char *buf, size_t size,
                      struct error *err)
{
    size_t used = 0;
    for (; v < end; v++) {
        int c = (unsigned char)*v;
        if (c == '%') {
            int high = hex_digit(v[1]);
            int low = high < 0 ? -1 : hex_digit(v[2]);
            if (low < 0 || high * 16 + low == 0)
                return err_set(err, ERR_INVALID, "bad percent-encoding in \"%s\"", key);
            c = high * 16 + low;
            v += 2;
        }
        if (used + 1 >= size)
            return err_set(err, ERR_INVALID, "\"%s\" is over %zu bytes", key, size - 1);
        buf[used++] = (char)c;
    }
    buf[used] = '\0';
    return 1;
}

int query_get_nth(const char *query, const char *key, unsigned i, char *buf, size_t size,
                  struct error *err)
{
    size_t key_len = strlen(key);
    for (const char *p = query; p && *p;) {
        const char *end = p + strcspn(p, "&");
        if (strncmp(p, key, key_len) == 0 && (p[key_len] == '=' || p + key_len == end) && i-- == 0)
            return copy_value(key, p + key_len + (p[key_len] == '='), end, buf, size, err);
        p = *end ? end + 1 : end;
    }
    return 0;
}

int query_get(const char *query, const char *key, char *buf, size_t size, struct error *err)
{
    return query_get_nth(query, key, 0, buf, size, err);
}

int query_get_count(const char *query, size_t max, size_t *ret, struct error *err)
{
    char text[32];
    int r = query_get(query, "n", text, sizeof(text), err);
    if (r == 0)
        return 0;
    if (r < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "the page size \"n\" must be a whole number, 0 or more");
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9')
            return err_set(err, ERR_UNSUPPORTED,
                           "the page size \"n\" must be a whole number, 0 or more");
        n = n >= max ? max : n * 10 + (size_t)(*p - '0');
    }
    if (!*text)
        return err_set(err, ERR_UNSUPPORTED, "the page size \"n\" is empty");
    *ret = n < max ? n : max;
    return 1;
}
