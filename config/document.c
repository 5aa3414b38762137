/* A parsed document into the structs: finds each member in the table, refuses what is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_private.h"

#define PATH_LIMIT 256

struct walk {
    struct config *c;
    const struct source *source;
    struct error *err;
};

/* The name that a key has directly under `parent` ("" = the root, "log.", "upstreams[]."), which
 * may be its section's; false when it is not below it. */
static bool child_name(const struct config_key *key, const char *parent, char name[static 64])
{
    size_t n = strlen(parent);
    if (strncmp(key->path, parent, n) != 0)
        return false;
    size_t len = strcspn(key->path + n, ".[");
    if (len >= 64)
        return false;
    memcpy(name, key->path + n, len);
    name[len] = '\0';
    return true;
}

/* The path of a key elsewhere in the table that ends in this name, NULL when there is none. */
static const char *find_elsewhere(const char *name)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const char *dot = strrchr(keys[i].path, '.');
        if (strcmp(dot ? dot + 1 : keys[i].path, name) == 0 || strcmp(keys[i].path, name) == 0)
            return keys[i].path;
    }
    return NULL;
}

static int unknown_key(const char *parent, const char *name, const struct place *at,
                       struct error *err)
{
    char best[64] = "", known[400] = "", child[64];
    unsigned best_distance = ~0u;
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (!child_name(&keys[i], parent, child))
            continue;
        unsigned distance = edit_distance(name, child);
        if (distance < best_distance) {
            best_distance = distance;
            strcpy(best, child);
        }
        size_t len = strlen(known);
        if (len < strlen(child) || strcmp(known + len - strlen(child), child) != 0)
            snprintf(known + len, sizeof(known) - len, "%s%s", len ? ", " : "", child);
    }
    if (edit_is_near(name, best_distance))
        return place_fail(at, err, "unknown key; did you mean \"%s\"?", best);
    const char *elsewhere = find_elsewhere(name);
    if (elsewhere)
        return place_fail(at, err, "unknown key; did you mean %s?", elsewhere);
    return place_fail(at, err, "unknown key; the nearest is \"%s\", and those known here are: %s",
                      best, known);
}

static int walk_object(const struct walk *w, const struct jsonc *object, const char *parent,
                       const char *path, void *base);

static int walk_member(const struct walk *w, const struct jsonc *m, const char *parent,
                       const char *path, void *base)
{
    char table_path[PATH_LIMIT], full[PATH_LIMIT];
    struct place at = {w->source, m->line, full};
    snprintf(full, sizeof(full), "%s%.100s", path, m->key);
    snprintf(table_path, sizeof(table_path), "%s%.100s", parent, m->key);
    /* A key that is spelled like a path ("log.level") would be found in the table. */
    if (strpbrk(m->key, ".[]") || strlen(m->key) > 100)
        return unknown_key(parent, m->key, &at, w->err);
    const struct config_key *key = config_key_find(table_path);
    if (key && key->type == KEY_LIST)
        return document_apply_list(w->c, key, m, &at, w->err);
    if (key) {
        if (value_set(base, key, m, &at, w->err) < 0)
            return -1;
        return origin_put(w->c, full, &at, w->err);
    }
    if (!config_key_is_section(table_path))
        return unknown_key(parent, m->key, &at, w->err);
    if (m->type != JSONC_OBJECT)
        return place_fail(&at, w->err, "must be an object, not %s", jsonc_type_name(m->type));
    strncat(full, ".", sizeof(full) - strlen(full) - 1);
    strncat(table_path, ".", sizeof(table_path) - strlen(table_path) - 1);
    return walk_object(w, m, table_path, full, base);
}

static int walk_object(const struct walk *w, const struct jsonc *object, const char *parent,
                       const char *path, void *base)
{
    for (const struct jsonc *m = object->first; m; m = m->next)
        if (walk_member(w, m, parent, path, base) < 0)
            return -1;
    return 0;
}

int document_apply(struct config *c, const struct jsonc *root, const struct source *source,
                   struct error *err)
{
    struct walk w = {c, source, err};
    struct place at = {source, root->line, ""};
    if (root->type != JSONC_OBJECT)
        return place_fail(&at, err, "the configuration must be an object, not %s",
                          jsonc_type_name(root->type));
    return walk_object(&w, root, "", "", c);
}

static int check_required(const struct config *c, const struct place *at, enum key_scope scope,
                          struct error *err)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char path[PATH_LIMIT];
        if (keys[i].use != USE_REQUIRED || config_key_scope(&keys[i]) != scope)
            continue;
        snprintf(path, sizeof(path), "%s.%s", at->path, config_key_name(&keys[i]));
        if (!origin_get(c, path))
            return place_fail(at, err, "has no \"%s\"", config_key_name(&keys[i]));
    }
    return 0;
}

/* One element of a list into `base`, which is zero. */
static int apply_element(const struct walk *w, const struct config_list *list,
                         const struct jsonc *node, size_t index, void *base)
{
    char path[64], member_path[80], parent[64];
    struct place at = {w->source, node->line, path};
    snprintf(path, sizeof(path), "%s[%zu]", list->path, index);
    snprintf(member_path, sizeof(member_path), "%s.", path);
    snprintf(parent, sizeof(parent), "%s[].", list->path);
    if (node->type != JSONC_OBJECT)
        return place_fail(&at, w->err, "must be an object, not %s", jsonc_type_name(node->type));
    if (value_set_defaults(base, list->scope, w->err) < 0 ||
        walk_object(w, node, parent, member_path, base) < 0)
        return -1;
    return check_required(w->c, &at, list->scope, w->err);
}

/* Through memcpy(): the array is of another type for each list. */
static void *list_items(const struct config *c, const struct config_list *list)
{
    void *items;
    memcpy(&items, (const char *)c + list->items, sizeof(items));
    return items;
}

static size_t *list_count(struct config *c, const struct config_list *list)
{
    return (size_t *)(void *)((char *)c + list->n);
}

size_t list_length(const struct config *c, const struct config_list *list)
{
    return *(const size_t *)(const void *)((const char *)c + list->n);
}

void *list_element(const struct config *c, const struct config_list *list, size_t index)
{
    return (char *)list_items(c, list) + index * list->size;
}

static void list_set(struct config *c, const struct config_list *list, void *items)
{
    memcpy((char *)c + list->items, &items, sizeof(items));
    *list_count(c, list) = 0;
}

void list_drop(struct config *c, const struct config_list *list)
{
    for (size_t i = 0; i < list_length(c, list); i++)
        value_free_all(list_element(c, list, i), list->scope);
    free(list_items(c, list));
    list_set(c, list, NULL);
}

int document_apply_list(struct config *c, const struct config_key *key, const struct jsonc *node,
                        const struct place *at, struct error *err)
{
    const struct config_list *list = config_key_list(key);
    struct walk w = {c, at->source, err};
    size_t n = 0;
    if (node->type != JSONC_ARRAY)
        return place_fail(at, err, "must be a list of objects, not %s",
                          jsonc_type_name(node->type));
    for (const struct jsonc *e = node->first; e; e = e->next)
        n++;
    /* An empty list of access rules would read like "nothing is allowed" and mean the contrary. */
    if (n == 0 && list->when_empty)
        return place_fail(at, err, "must not be empty: leave it out, or write a rule");
    origin_drop_list(c, list->path);
    list_drop(c, list);
    void *items = calloc(n + 1, list->size);
    if (!items)
        return err_set(err, ERR_NOMEM, "out of memory for the configuration");
    list_set(c, list, items);
    for (const struct jsonc *e = node->first; e; e = e->next) {
        size_t i = (*list_count(c, list))++;
        if (apply_element(&w, list, e, i, list_element(c, list, i)) < 0)
            return -1;
    }
    return origin_put(c, at->path, at, err);
}

static int default_upstream(struct config_upstream *u, const char *prefix, enum upstream_kind kind,
                            const char *url, struct error *err)
{
    if (value_set_defaults(u, SCOPE_UPSTREAM, err) < 0)
        return -1;
    free(u->url);
    u->kind = kind;
    u->prefix = strdup(prefix);
    u->url = strdup(url);
    return u->prefix && u->url ? 0 : err_set(err, ERR_NOMEM, "out of memory for the configuration");
}

int document_default_upstreams(struct config *c, struct error *err)
{
    static const struct {
        const char *prefix;
        enum upstream_kind kind;
        const char *url;
    } all[DEFAULT_UPSTREAMS] = {
        {"hf", UPSTREAM_HUGGINGFACE, "https://huggingface.co"},
        {"docker.io", UPSTREAM_OCI, "https://registry-1.docker.io"},
        {"ghcr.io", UPSTREAM_OCI, "https://ghcr.io"},
        {"quay.io", UPSTREAM_OCI, "https://quay.io"},
        {"registry.k8s.io", UPSTREAM_OCI, "https://registry.k8s.io"},
    };
    list_drop(c, config_key_list(config_key_find("upstreams")));
    c->upstreams = calloc(DEFAULT_UPSTREAMS, sizeof(*c->upstreams));
    if (!c->upstreams)
        return err_set(err, ERR_NOMEM, "out of memory for the configuration");
    for (size_t i = 0; i < DEFAULT_UPSTREAMS; i++) {
        c->n_upstreams = i + 1;
        if (default_upstream(&c->upstreams[i], all[i].prefix, all[i].kind, all[i].url, err) < 0)
            return -1;
    }
    return 0;
}

/* b begins with a and ends there or at a part's end. */
static bool lies_within(const char *b, const char *a)
{
    size_t n = strlen(a);
    return strncmp(a, b, n) == 0 && (b[n] == '\0' || b[n] == '/');
}

/* The prefix of upstream i clashes with that of upstream j. */
static int prefix_clash(const struct config *c, size_t i, size_t j, struct error *err)
{
    const char *outer = c->upstreams[j].prefix, *inner = c->upstreams[i].prefix;
    char path[PATH_LIMIT];
    snprintf(path, sizeof(path), "upstreams[%zu].prefix", i);
    const char *from = origin_get(c, path);
    if (strcmp(outer, inner) == 0)
        return err_set(err, ERR_INVALID, "%.200s: %s: \"%s\" is also upstreams[%zu].prefix",
                       from ? from : "default", path, inner, j);
    return err_set(err, ERR_INVALID, "%.200s: %s: \"%s\" lies within upstreams[%zu].prefix \"%s\"",
                   from ? from : "default", path, inner, j, outer);
}

int document_check(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        for (size_t j = 0; j < c->n_upstreams; j++) {
            const char *outer = c->upstreams[j].prefix, *inner = c->upstreams[i].prefix;
            bool is_first = j > i && strcmp(outer, inner) == 0; /* the later one is named */
            if (i != j && !is_first && lies_within(inner, outer))
                return prefix_clash(c, i, j, err);
        }
    }
    return 0;
}
