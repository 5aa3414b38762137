#include "config/config.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "config/config_private.h"

#define FILE_MAX (1u << 20)

const char *origin_get(const struct config *c, const char *path)
{
    for (size_t i = 0; i < c->n_origins; i++)
        if (strcmp(c->origins[i].path, path) == 0)
            return c->origins[i].from;
    return NULL;
}

static int put_origin(struct config *c, const char *path, const char *from, struct error *err)
{
    _cleanup_free_ char *copy = strdup(from);
    _cleanup_free_ char *name = strdup(path);
    if (!copy || !name)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < c->n_origins; i++) {
        if (strcmp(c->origins[i].path, path) == 0) {
            free(c->origins[i].from);
            c->origins[i].from = TAKE_PTR(copy);
            return 0;
        }
    }
    struct config_origin *grown = realloc(c->origins, (c->n_origins + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory");
    c->origins = grown;
    c->origins[c->n_origins++] = (struct config_origin){TAKE_PTR(name), TAKE_PTR(copy)};
    return 0;
}

int origin_put(struct config *c, const char *path, const struct place *at, struct error *err)
{
    char from[300];
    if (at->source->kind == SOURCE_FILE)
        snprintf(from, sizeof(from), "%.280s:%u", at->source->name, at->line);
    else
        snprintf(from, sizeof(from), "%.290s", at->source->name);
    return put_origin(c, path, from, err);
}

void origin_drop_list(struct config *c, const char *list)
{
    size_t n = strlen(list), kept = 0;
    for (size_t i = 0; i < c->n_origins; i++) {
        struct config_origin *o = &c->origins[i];
        if (strncmp(o->path, list, n) == 0 && o->path[n] == '[') {
            free(o->path);
            free(o->from);
        } else {
            c->origins[kept++] = *o;
        }
    }
    c->n_origins = kept;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < c->n_upstreams; i++)
        free(c->upstreams[i].token_from);
    for (size_t i = 0; i < n; i++)
        if (keys[i].type == KEY_LIST)
            list_drop(c, config_key_list(&keys[i]));
    value_free_all(c, SCOPE_ROOT);
    for (size_t i = 0; i < c->n_origins; i++) {
        free(c->origins[i].path);
        free(c->origins[i].from);
    }
    free(c->origins);
    free(c);
}

static int new_config(struct config **ret, struct error *err)
{
    _cleanup_config_ struct config *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (value_set_defaults(c, SCOPE_ROOT, err) < 0)
        return -1;
    *ret = TAKE_PTR(c);
    return 0;
}

static int apply_text(struct config *c, const char *name, const char *text, size_t len,
                      struct error *err)
{
    _cleanup_jsonc_ struct jsonc *root = NULL;
    struct source source = {SOURCE_FILE, name};
    unsigned line = 0;
    if (jsonc_parse(text, len, &root, &line, err) < 0)
        return err_wrap(err, "%.200s:%u", name, line);
    return document_apply(c, root, &source, err);
}

static int apply_file(struct config *c, const struct config_flags *flags, char **environ_,
                      struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    const char *name = flags->file ? flags->file : environment_get(environ_, "WEIGHBRIDGE_CONFIG");
    if (!name)
        return 0;
    if (fs_read_file(name, FILE_MAX, &text, err) < 0)
        return err_wrap(err, "the configuration cannot be read");
    return apply_text(c, name, strbuf_str(&text), text.len, err);
}

static int apply_flag(struct config *c, const char *flag, const char *value, struct error *err)
{
    char name[32], path[64];
    const struct config_key *key = config_key_of_flag(flag);
    struct source source = {SOURCE_FLAG, name};
    struct place at = {&source, 0, path};
    void *base = c;
    if (!value)
        return 0;
    snprintf(name, sizeof(name), "--%s", flag);
    snprintf(path, sizeof(path), "%s", key->path);
    if (config_key_scope(key) == SCOPE_UPSTREAM) { /* --hub: the url of the upstream `hf` */
        size_t i = 0;
        while (i < c->n_upstreams && strcmp(c->upstreams[i].prefix, "hf") != 0)
            i++;
        if (i == c->n_upstreams)
            return err_set(err, ERR_INVALID,
                           "%s: the configuration has no upstream with the prefix \"hf\"", name);
        snprintf(path, sizeof(path), "upstreams[%zu].%s", i, config_key_name(key));
        base = &c->upstreams[i];
    }
    if (value_set_text(base, key, value, &at, err) < 0)
        return -1;
    return origin_put(c, path, &at, err);
}

static int apply_flags(struct config *c, const struct config_flags *f, struct error *err)
{
    if (apply_flag(c, "listen", f->listen, err) < 0 || apply_flag(c, "data", f->data, err) < 0 ||
        apply_flag(c, "hub", f->hub, err) < 0 || apply_flag(c, "log-level", f->log_level, err) < 0)
        return -1;
    return apply_flag(c, "external-url", f->external_url, err);
}

/* A file that is named and cannot be read is better found now than at the first request. The name
 * of a password's file is not repeated: it may be the password, put into the wrong key. */
static int check_file(const struct config *c, size_t i, const char *name, const char *file,
                      struct error *err)
{
    char path[80];
    bool may_be_secret = strcmp(name, "password_file") == 0;
    if (!file || access(file, R_OK) == 0)
        return 0;
    snprintf(path, sizeof(path), "upstreams[%zu].%s", i, name);
    const char *from = origin_get(c, path);
    return err_set(err, ERR_INVALID, "%.200s: %s: %.300s cannot be read: %s",
                   from ? from : "default", path, may_be_secret ? "the file" : file,
                   strerror(errno));
}

static int check_files(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        const struct config_upstream *u = &c->upstreams[i];
        if (check_file(c, i, "ca_file", u->ca_file, err) < 0 ||
            check_file(c, i, "client_cert", u->client_cert, err) < 0 ||
            check_file(c, i, "client_key", u->client_key, err) < 0 ||
            check_file(c, i, "password_file", u->password_file, err) < 0 ||
            check_file(c, i, "docker_config", u->docker_config, err) < 0)
            return -1;
        if (u->client_key && !u->client_cert)
            return err_set(err, ERR_INVALID,
                           "upstreams[%zu].client_key: there is no client_cert that it belongs to",
                           i);
    }
    return 0;
}

int config_load(const struct config_flags *flags, char **environ_, struct config **ret,
                struct error *err)
{
    _cleanup_config_ struct config *c = NULL;
    if (new_config(&c, err) < 0 || apply_file(c, flags, environ_, err) < 0 ||
        environment_apply_lists(c, environ_, err) < 0)
        return -1;
    if (!origin_get(c, "upstreams") && document_default_upstreams(c, err) < 0)
        return -1;
    if (document_check(c, err) < 0 || environment_apply_keys(c, environ_, err) < 0 ||
        apply_flags(c, flags, err) < 0 || upstreams_settle(c, err) < 0 ||
        secrets_resolve(c, environ_, err) < 0 || proxies_resolve(c, environ_, err) < 0 ||
        check_files(c, err) < 0)
        return -1;
    *ret = TAKE_PTR(c);
    return 0;
}

int config_parse_text(const char *name, const char *text, size_t len, struct config **ret,
                      struct error *err)
{
    static char *nothing[] = {NULL};
    _cleanup_config_ struct config *c = NULL;
    if (new_config(&c, err) < 0 || apply_text(c, name, text, len, err) < 0)
        return -1;
    if (!origin_get(c, "upstreams") && document_default_upstreams(c, err) < 0)
        return -1;
    if (document_check(c, err) < 0 || upstreams_settle(c, err) < 0 ||
        proxies_resolve(c, nothing, err) < 0)
        return -1;
    *ret = TAKE_PTR(c);
    return 0;
}

int config_check_access(const struct config *c, struct error *err)
{
    if (c->n_access > 0 || url_host_is_loopback(c->listen_host))
        return 0;
    bool is_v6 = strchr(c->listen_host, ':') != NULL;
    return err_set(err, ERR_DENIED,
                   "refusing to listen on %s%s%s:%u without access rules: anyone could read and "
                   "delete; add \"access\": [{\"repositories\": \"**\", \"allow\": [\"pull\"]}] "
                   "to the configuration (or WEIGHBRIDGE_ACCESS), or listen on 127.0.0.1",
                   is_v6 ? "[" : "", c->listen_host, is_v6 ? "]" : "", c->listen_port);
}

bool config_access_allows(const struct config *c, const char *repository, enum access_action action)
{
    if (c->n_access == 0)
        return true;
    /* Names reach us in lower case; a rule that is written as the Hub spells them ("hf/Org/...")
     * has to hold all the same, most of all when it forbids something. */
    for (size_t i = 0; i < c->n_access; i++)
        if (fnmatch(c->access[i].repositories, repository, FNM_CASEFOLD) == 0)
            return (c->access[i].allow & (unsigned)action) == (unsigned)action;
    return false;
}

/* tag: NULL = any */
static bool is_immutable(const struct config *c, const char *repository, const char *tag)
{
    if (c->n_immutable_tags == 0 || config_upstream_of(c, repository))
        return false;
    for (size_t i = 0; i < c->n_immutable_tags; i++)
        if (fnmatch(c->immutable_tags[i].repositories, repository, FNM_CASEFOLD) == 0 &&
            (!tag || fnmatch(c->immutable_tags[i].tags, tag, 0) == 0))
            return true;
    return false;
}

bool config_tag_is_immutable(const struct config *c, const char *repository, const char *tag)
{
    return is_immutable(c, repository, tag);
}

bool config_has_immutable_tags(const struct config *c, const char *repository)
{
    return is_immutable(c, repository, NULL);
}
