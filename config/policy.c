/* What may be had of repositories under a Hub's prefix. Pure: each answer depends on the
 * configuration and the arguments alone. Texts say which policy it was, and what to do. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "config/config_private.h"

const struct config_policy *config_policy_of(const struct config *c, const char *repository)
{
    if (c->n_policies == 0)
        return NULL;
    const struct config_upstream *u = config_upstream_of(c, repository);
    if (!u || u->kind != UPSTREAM_HUGGINGFACE)
        return NULL;
    for (size_t i = 0; i < c->n_policies; i++)
        if (fnmatch(c->policies[i].repositories, repository, FNM_CASEFOLD) == 0)
            return &c->policies[i];
    return NULL;
}

static bool has_match(const struct config_strings *globs, const char *text)
{
    for (size_t i = 0; i < globs->n; i++)
        if (fnmatch(globs->items[i], text, 0) == 0)
            return true;
    return false;
}

static bool has_word(const struct config_strings *words, const char *word)
{
    for (size_t i = 0; i < words->n; i++)
        if (strcmp(words->items[i], word) == 0)
            return true;
    return false;
}

/* `a, b or c`, no more than fits. */
static void join(const struct config_strings *words, char *buf, size_t size)
{
    size_t len = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < words->n; i++) {
        bool is_last = i + 1 == words->n;
        const char *before = i == 0 ? "" : is_last ? " or " : ", ";
        if (len + strlen(before) + strlen(words->items[i]) + 6 > size) {
            snprintf(buf + len, size - len, ", ...");
            return;
        }
        len += (size_t)snprintf(buf + len, size - len, "%s%s", before, words->items[i]);
    }
}

/* `hf/acme/model: policies[1] ("hf/acme/...") ` and the rest. */
static int refuse(const struct config *c, const char *repository, const struct config_policy *p,
                  const char *text, struct error *err)
{
    return err_set(err, ERR_DENIED, "%.255s: policies[%zu] (\"%.120s\") %s", repository,
                   (size_t)(p - c->policies), p->repositories, text);
}

#ifdef __clang_analyzer__ /* see base/err.h */
#define refuse(...) (refuse(__VA_ARGS__), -1)
#endif

static int check_deny(const struct config *c, const char *repository, const struct config_policy *p,
                      struct error *err)
{
    if (!p->deny)
        return 0;
    return refuse(c, repository, p,
                  "allows nothing: ask for another repository, or whoever runs this server for a "
                  "policy that allows it",
                  err);
}

int config_policy_check(const struct config *c, const char *repository, const char *revision,
                        struct error *err)
{
    const struct config_policy *p = config_policy_of(c, repository);
    char text[600], allowed[300];
    if (!p)
        return 0;
    if (check_deny(c, repository, p, err) < 0)
        return -1;
    if (!revision)
        return 0;
    if (!*revision)
        revision = "HEAD"; /* what clients call the default branch */
    if (p->pinned_only && !is_lower_hex(revision, 40)) {
        snprintf(text, sizeof(text),
                 "allows only pinned revisions: ask for a 40-hex commit instead of \"%.100s\"",
                 revision);
        return refuse(c, repository, p, text, err);
    }
    if (p->revisions.n == 0 || has_match(&p->revisions, revision))
        return 0;
    join(&p->revisions, allowed, sizeof(allowed));
    snprintf(text, sizeof(text), "allows no revision \"%.100s\": ask for %s", revision, allowed);
    return refuse(c, repository, p, text, err);
}

int config_policy_check_file(const struct config *c, const char *repository, const char *path,
                             const char *format, uint64_t size, struct error *err)
{
    const struct config_policy *p = config_policy_of(c, repository);
    char text[600], allowed[200];
    if (!p)
        return 0;
    if (check_deny(c, repository, p, err) < 0)
        return -1;
    if (format && p->formats.n && !has_word(&p->formats, format)) {
        join(&p->formats, allowed, sizeof(allowed));
        snprintf(text, sizeof(text),
                 "allows no weight file of the format %.40s, as %.200s is: ask for a file of the "
                 "format %s",
                 format, path, allowed);
        return refuse(c, repository, p, text, err);
    }
    if (p->max_file && size > p->max_file) {
        snprintf(text, sizeof(text),
                 "allows no file over %" PRIu64 " bytes, and %.200s has %" PRIu64
                 ": ask for a smaller one, or whoever runs this server for a larger max_file",
                 p->max_file, path, size);
        return refuse(c, repository, p, text, err);
    }
    return 0;
}

/* Whether a name that begins with "prefix/" could match the glob, as far as the glob's beginning
 * without wildcards tells. */
static bool may_match(const char *glob, const char *prefix)
{
    size_t literal = strcspn(glob, "*?[\\"), n = strlen(prefix);
    if (strncasecmp(glob, prefix, literal < n ? literal : n) != 0)
        return false;
    return literal <= n ? glob[literal] != '\0' : glob[n] == '/';
}

int policies_check(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_policies; i++) {
        char path[80], hubs[300] = "";
        const char *glob = c->policies[i].repositories;
        bool may = false;
        for (size_t u = 0; u < c->n_upstreams; u++) {
            if (c->upstreams[u].kind != UPSTREAM_HUGGINGFACE)
                continue;
            size_t len = strlen(hubs);
            snprintf(hubs + len, sizeof(hubs) - len, "%s\"%s/\"", len ? ", " : "",
                     c->upstreams[u].prefix);
            may |= may_match(glob, c->upstreams[u].prefix);
        }
        if (may)
            continue;
        snprintf(path, sizeof(path), "policies[%zu].repositories", i);
        const char *from = origin_get(c, path);
        return err_set(err, ERR_INVALID,
                       "%.200s: %s: \"%.100s\" matches no repository of an upstream of the kind "
                       "\"huggingface\"; their names begin with: %s",
                       from ? from : "default", path, glob, *hubs ? hubs : "(there is none)");
    }
    return 0;
}
