/* Request targets of a Hub's API; the first byte's lowest bit: asked by llama.cpp. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/hub_route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config_upstream upstreams[] = {
    {.prefix = "hf", .kind = UPSTREAM_HUGGINGFACE},
    {.prefix = "docker.io", .kind = UPSTREAM_OCI},
    {.prefix = "a/b", .kind = UPSTREAM_HUGGINGFACE},
};
static const struct config config = {.upstreams = upstreams, .n_upstreams = 3};

static void check_text(const char *s, size_t max)
{
    if (strlen(s) > max)
        abort();
    for (const char *p = s; *p; p++) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n <= 2 && strncmp(p, "..", n) == 0))
            abort();
        for (; n; n--, p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                abort();
        if (!*p)
            break;
        if (!p[1])
            abort();
    }
}

static void check(struct hub_route *r)
{
    if (r->kind < ROUTE_HUB_RESOLVE || r->kind > ROUTE_HUB_OTHER || !*r->prefix)
        abort();
    check_text(r->query.name, REPOSITORY_MAX);
    check_text(r->query.revision, HUB_REVISION_MAX);
    check_text(r->path, HUB_PATH_MAX);
    bool is_file = r->kind == ROUTE_HUB_RESOLVE || r->kind == ROUTE_HUB_RAW;
    bool has_path = is_file || r->kind == ROUTE_HUB_LLAMA || r->kind == ROUTE_HUB_TREE;
    bool has_revision = is_file || r->kind == ROUTE_HUB_TREE || r->kind == ROUTE_HUB_PATHS ||
                        r->kind == ROUTE_HUB_COMMITS;
    if ((is_file && !*r->path) || (!has_path && *r->path))
        abort();
    if (has_revision && !*r->query.revision)
        abort();
    bool is_none = r->kind == ROUTE_HUB_OTHER || r->kind == ROUTE_HUB_WHOAMI;
    if (is_none != (*r->query.name == '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_route *r = NULL;
    struct error err = ERROR_INIT;
    if (size == 0)
        return 0;
    char *target = malloc(size);
    if (!target)
        return 0;
    memcpy(target, data + 1, size - 1);
    target[size - 1] = '\0';
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    int got = hub_route_parse(&config, target, query, data[0] & 1, &r, &err);
    if ((got < 0) != (err.code != ERR_NONE) || (got == 0) != (r == NULL))
        abort();
    if (got > 0) {
        check(r);
        bool is_file = r->kind == ROUTE_HUB_RESOLVE || r->kind == ROUTE_HUB_RAW;
        while ((is_file || r->kind == ROUTE_HUB_TREE) && hub_route_longer(r))
            check(r);
    }
    free(r);
    free(target);
    return 0;
}
