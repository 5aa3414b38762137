/* WEIGHBRIDGE_... variables: every key has one (table.c), all others of that name are refused, so
 * that a misspelt one is not silently without effect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_private.h"

#define OURS "WEIGHBRIDGE_"

const char *environment_get(char **environ_, const char *name)
{
    size_t n = strlen(name);
    for (char **e = environ_; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return (*e)[n + 1] ? *e + n + 1 : NULL;
    return NULL;
}

/* Names that are not keys: read elsewhere in the program or its tests, or put there by Kubernetes
 * into every pod beside a Service that is called "weighbridge". */
static bool is_foreign(const char *name)
{
    static const char *const names[] = {
        "WEIGHBRIDGE_CONFIG",      "WEIGHBRIDGE_SERVER",      "WEIGHBRIDGE_PORT",
        "WEIGHBRIDGE_BIN",         "WEIGHBRIDGE_RELEASE_BIN", "WEIGHBRIDGE_BUILD",
        "WEIGHBRIDGE_SUITE_LIMIT", "WEIGHBRIDGE_FUZZ_S",
    };
    static const char *const prefixes[] = {"WEIGHBRIDGE_TEST_", "WEIGHBRIDGE_BENCH_",
                                           "WEIGHBRIDGE_SERVICE_", "WEIGHBRIDGE_PORT_"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* What one variable may set. */
struct target {
    const struct config_key *key;
    struct config_upstream *upstream; /* NULL: the root */
    size_t index;
    unsigned found; /* how many keys have this name */
    char nearest[200];
    unsigned distance;
};

/* Compares the variable's name with that of one key. */
static int try_key(struct target *t, const char *name, const struct config_key *key,
                   struct config_upstream *u, size_t index, struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (!config_key_variable(key, u ? u->prefix : NULL, &b))
        return 0;
    if (strbuf_failed(&b))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (strcmp(strbuf_str(&b), name) == 0) {
        t->key = key;
        t->upstream = u;
        t->index = index;
        t->found++;
    }
    unsigned distance = edit_distance(strbuf_str(&b), name);
    if (distance < t->distance) {
        t->distance = distance;
        snprintf(t->nearest, sizeof(t->nearest), "%s", strbuf_str(&b));
    }
    return 0;
}

static int find_target(struct config *c, const char *name, struct target *t, struct error *err)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    *t = (struct target){.distance = ~0u};
    for (size_t i = 0; i < n; i++) {
        enum key_scope scope = config_key_scope(&keys[i]);
        if (scope == SCOPE_ROOT && try_key(t, name, &keys[i], NULL, 0, err) < 0)
            return -1;
        for (size_t u = 0; scope == SCOPE_UPSTREAM && u < c->n_upstreams; u++)
            if (try_key(t, name, &keys[i], &c->upstreams[u], u, err) < 0)
                return -1;
    }
    if (t->found > 1)
        return err_set(
            err, ERR_INVALID,
            "%.200s: names the same key of several upstreams, whose prefixes differ only "
            "in punctuation: set it in the configuration file",
            name);
    if (t->found == 0)
        return err_set(err, ERR_INVALID,
                       "%.200s: unknown environment variable; the nearest known one is %s", name,
                       t->nearest);
    return 0;
}

static int apply(struct config *c, const char *name, const char *value, struct error *err)
{
    struct target t;
    char path[200];
    if (find_target(c, name, &t, err) < 0)
        return -1;
    if (t.key->type == KEY_LIST)
        return 0; /* environment_apply_lists() has taken these before */
    struct source source = {SOURCE_VARIABLE, name};
    struct place at = {&source, 0, path};
    if (t.upstream)
        snprintf(path, sizeof(path), "upstreams[%zu].%s", t.index, config_key_name(t.key));
    else
        snprintf(path, sizeof(path), "%s", t.key->path);
    if (t.key->type == KEY_SECRET && t.upstream)
        return secret_take(c, t.index, t.key, value, name, err);
    void *base = t.upstream ? (void *)t.upstream : (void *)c;
    if (value_set_text(base, t.key, value, &at, err) < 0)
        return -1;
    return origin_put(c, path, &at, err);
}

int environment_apply_keys(struct config *c, char **environ_, struct error *err)
{
    for (char **e = environ_; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        if (!equals || strncmp(*e, OURS, strlen(OURS)) != 0)
            continue;
        _cleanup_free_ char *name = strndup(*e, (size_t)(equals - *e));
        if (!name)
            return err_set(err, ERR_NOMEM, "out of memory");
        if (is_foreign(name))
            continue;
        if (equals[1] == '\0') { /* as good as not set, but a wrong name is still wrong */
            struct target t;
            if (find_target(c, name, &t, err) < 0)
                return -1;
            continue;
        }
        if (apply(c, name, equals + 1, err) < 0)
            return -1;
    }
    return 0;
}

static int apply_list(struct config *c, char **environ_, const struct config_key *key,
                      struct error *err)
{
    _cleanup_strbuf_ struct strbuf name = STRBUF_INIT;
    _cleanup_jsonc_ struct jsonc *list = NULL;
    struct error why = ERROR_INIT;
    unsigned line;
    config_key_variable(key, NULL, &name);
    const char *value = environment_get(environ_, strbuf_str(&name));
    if (!value)
        return 0;
    struct source source = {SOURCE_VARIABLE, strbuf_str(&name)};
    struct place at = {&source, 0, key->path};
    if (jsonc_parse(value, strlen(value), &list, &line, &why) < 0)
        return place_fail(&at, err, "is not JSON: %s", why.text);
    return document_apply_list(c, key, list, &at, err);
}

int environment_apply_lists(struct config *c, char **environ_, struct error *err)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (keys[i].type == KEY_LIST && apply_list(c, environ_, &keys[i], err) < 0)
            return -1;
    return 0;
}
