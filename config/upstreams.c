/* What can only be judged, or found, with all the upstreams at hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/strbuf.h"
#include "config/config_private.h"

#define DOCKER_HUB "registry-1.docker.io"

/* The names that Docker Hub goes by. */
static const char *const hub_names[] = {"docker.io", "index.docker.io", DOCKER_HUB};

static int fail(const struct config *c, const char *path, struct error *err, const char *text)
{
    const char *from = origin_get(c, path);
    return err_set(err, ERR_INVALID, "%.200s: %s: %s", from ? from : "default", path, text);
}

#ifdef __clang_analyzer__ /* see base/err.h */
#define fail(...) (fail(__VA_ARGS__), -1)
#endif

static void path_of(size_t i, const char *name, char path[static 80])
{
    snprintf(path, 80, "upstreams[%zu].%s", i, name);
}

/* No key that is set would be without effect. */
static int check_keys(const struct config *c, size_t i, struct error *err)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    enum upstream_kind kind = c->upstreams[i].kind;
    char path[80];
    for (size_t k = 0; k < n; k++) {
        if (config_key_scope(&keys[k]) != SCOPE_UPSTREAM || config_key_is_for(&keys[k], kind))
            continue;
        path_of(i, config_key_name(&keys[k]), path);
        if (!origin_get(c, path))
            continue;
        return fail(c, path, err,
                    kind == UPSTREAM_OCI
                        ? "is for upstreams of the kind \"huggingface\", and this one is \"oci\""
                        : "is for upstreams of the kind \"oci\", and this one is \"huggingface\"");
    }
    return 0;
}

/* host[:port] of a URL, as it is written there. */
static const char *authority_of(const char *url, size_t *ret_n)
{
    const char *s = strstr(url, "://") + 3;
    *ret_n = strcspn(s, "/");
    return s;
}

static bool is_default_port(const char *url, const char *port, size_t n)
{
    const char *want = strncmp(url, "https:", 6) == 0 ? ":443" : ":80";
    return n == 0 || (n == strlen(want) && memcmp(port, want, n) == 0);
}

/* Whether host[:port] is that of the URL; the scheme's own port may be written or not. */
static bool url_has_host(const char *url, const char *host)
{
    size_t n, m = strlen(host);
    const char *at = authority_of(url, &n);
    size_t common = n < m ? n : m;
    return strncasecmp(at, host, common) == 0 && is_default_port(url, at + common, n - common) &&
           is_default_port(url, host + common, m - common);
}

static int settle_oci(struct config *c, size_t i, struct error *err)
{
    struct config_upstream *u = &c->upstreams[i];
    char path[80];
    path_of(i, "url", path);
    if (!u->url || (!origin_get(c, path) && origin_get(c, "upstreams"))) {
        path_of(i, "kind", path);
        return fail(
            c, path, err,
            "an upstream of the kind \"oci\" needs an \"url\", such as \"https://ghcr.io\"");
    }
    if (u->token) /* from its variable: files are read later */
        return err_set(err, ERR_INVALID,
                       "%.200s: a registry's token is read from a file: use token_file",
                       u->token_from);
    path_of(i, "username", path);
    if (u->username && strchr(u->username, ':'))
        return fail(c, path, err, "must not hold a ':'");
    path_of(i, "token_file", path);
    if (u->username && u->token_file)
        return fail(c, path, err, "stands beside \"username\": set one of them");
    if (u->token_file && strcmp(u->token_file, "none") == 0) {
        free(u->token_file);
        u->token_file = NULL;
    }
    if (!u->single_names && url_has_host(u->url, DOCKER_HUB) &&
        !(u->single_names = strdup("library")))
        return err_set(err, ERR_NOMEM, "out of memory for the configuration");
    return 0;
}

/* A host that means two upstreams would mean the one or the other by their order. */
static int check_hosts(const struct config *c, size_t i, struct error *err)
{
    for (size_t h = 0; h < c->upstreams[i].hosts.n; h++) {
        const char *host = c->upstreams[i].hosts.items[h];
        for (size_t j = 0; j < i; j++) {
            for (size_t k = 0; k < c->upstreams[j].hosts.n; k++) {
                char path[80], text[400];
                if (strcmp(host, c->upstreams[j].hosts.items[k]) != 0)
                    continue;
                path_of(i, "hosts", path);
                snprintf(text, sizeof(text), "\"%.255s\" is also among upstreams[%zu].hosts", host,
                         j);
                return fail(c, path, err, text);
            }
        }
    }
    return 0;
}

static int check_default(const struct config *c, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (!c->default_upstream)
        return 0;
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (strcmp(c->upstreams[i].prefix, c->default_upstream) == 0)
            return 0;
    strbuf_printf(&text, "\"%s\" is not the prefix of an upstream", c->default_upstream);
    for (size_t i = 0; i < c->n_upstreams; i++)
        strbuf_printf(&text, "%s%s", i ? ", " : "; there are: ", c->upstreams[i].prefix);
    return fail(c, "default_upstream", err, strbuf_str(&text));
}

int upstreams_settle(struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        if (check_keys(c, i, err) < 0)
            return -1;
        if (c->upstreams[i].kind == UPSTREAM_OCI && settle_oci(c, i, err) < 0)
            return -1;
        if (check_hosts(c, i, err) < 0)
            return -1;
    }
    return check_default(c, err) < 0 ? -1 : policies_check(c, err);
}

/* One of the names that an upstream was given, by the operator, for this purpose. */
static bool has_name(const struct config_upstream *u, const char *host)
{
    if (strcasecmp(u->prefix, host) == 0)
        return true;
    for (size_t i = 0; i < u->hosts.n; i++)
        if (strcasecmp(u->hosts.items[i], host) == 0)
            return true;
    return false;
}

/* A name that was given goes before the host of a URL, which several upstreams may share. */
static const struct config_upstream *find_host(const struct config *c, const char *host)
{
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (has_name(&c->upstreams[i], host))
            return &c->upstreams[i];
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (url_has_host(c->upstreams[i].url, host))
            return &c->upstreams[i];
    return NULL;
}

const struct config_upstream *config_upstream_of_host(const struct config *c, const char *host)
{
    const struct config_upstream *u = find_host(c, host);
    bool is_docker_hub = false;
    for (size_t i = 0; i < ARRAY_LEN(hub_names); i++)
        is_docker_hub |= strcasecmp(host, hub_names[i]) == 0;
    for (size_t i = 0; !u && is_docker_hub && i < ARRAY_LEN(hub_names); i++)
        u = find_host(c, hub_names[i]);
    return u;
}

const struct config_upstream *config_upstream_of(const struct config *c, const char *repository)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        size_t n = strlen(c->upstreams[i].prefix);
        if (strncmp(repository, c->upstreams[i].prefix, n) == 0 && repository[n] == '/')
            return &c->upstreams[i];
    }
    return NULL;
}

static bool has_prefix(const struct config_upstream *u, const char *name)
{
    size_t n = strlen(u->prefix);
    return strncasecmp(name, u->prefix, n) == 0 && name[n] == '/';
}

bool config_full_name(const struct config *c, const struct config_upstream *in, const char *name,
                      char *buf, size_t size)
{
    for (size_t i = 0; !in && i < c->n_upstreams; i++)
        if (has_prefix(&c->upstreams[i], name))
            in = &c->upstreams[i];
    int n;
    if (!in) {
        n = snprintf(buf, size, "%s", name);
    } else {
        const char *behind = has_prefix(in, name) ? name + strlen(in->prefix) + 1 : name;
        const char *single = in->single_names && !strchr(behind, '/') ? in->single_names : "";
        n = snprintf(buf, size, "%.*s/%s%s%s", (int)strlen(in->prefix),
                     behind == name ? in->prefix : name, single, *single ? "/" : "", behind);
    }
    return n >= 0 && (size_t)n < size;
}

bool config_is_offline(const struct config *c, const struct config_upstream *u)
{
    return c->offline || u->offline;
}
