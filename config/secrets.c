/* Tokens and passwords. Of an upstream's token, in this order:
 * WEIGHBRIDGE_UPSTREAMS_<PREFIX>_TOKEN, token_file (or its variable), and for the Hub's own
 * credentials what its tools use: HF_TOKEN, HF_TOKEN_PATH, the file that its login command writes.
 * No error text repeats a token, or what may be one that was put in the place of a file's name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "config/config_private.h"

#define TOKEN_FILE_MAX 16384

/* Trims; NULL when fine, else what is wrong with it. */
static const char *secret_check(char *text)
{
    size_t begin = strspn(text, " \t\r\n"), n = strlen(text);
    while (n > begin && strchr(" \t\r\n", text[n - 1]))
        n--;
    memmove(text, text + begin, n - begin);
    text[n - begin] = '\0';
    if (!text[0])
        return "is empty";
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f)
            return "holds a space, a control character or a letter outside ASCII";
    return NULL;
}

static int give(struct config_upstream *u, const char *text, const char *from, struct error *err)
{
    char *token = strdup(text), *origin = strdup(from);
    if (!token || !origin) {
        free(token);
        free(origin);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    free(u->token);
    free(u->token_from);
    u->token = token;
    u->token_from = origin;
    return 0;
}

static int take_token(struct config_upstream *u, const char *token, const char *name,
                      struct error *err)
{
    _cleanup_free_ char *copy = strdup(token);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *wrong = secret_check(copy);
    int rc = wrong ? err_set(err, ERR_INVALID, "%.200s: the token %s", name, wrong)
                   : give(u, copy, name, err);
    explicit_bzero(copy, strlen(token));
    return rc;
}

/* A password may hold anything but control characters, and is taken as it stands. */
static int take_password(struct config *c, size_t i, const char *password, const char *name,
                         struct error *err)
{
    struct source source = {SOURCE_VARIABLE, name};
    char path[64];
    struct place at = {&source, 0, path};
    snprintf(path, sizeof(path), "upstreams[%zu].password", i);
    for (const unsigned char *p = (const unsigned char *)password; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_INVALID, "%.200s: the password holds a control character",
                           name);
    char *copy = strdup(password);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    free(c->upstreams[i].password);
    c->upstreams[i].password = copy;
    return origin_put(c, path, &at, err);
}

int secret_take(struct config *c, size_t upstream, const struct config_key *key, const char *value,
                const char *name, struct error *err)
{
    if (strcmp(config_key_name(key), "password") == 0)
        return take_password(c, upstream, value, name, err);
    return take_token(&c->upstreams[upstream], value, name, err);
}

/* The token in a file, which the caller frees. 1 found, 0 no such file, -1. `what` names the
 * setting in errors. */
static int read_token(const char *path, const char *what, char **ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct error why = ERROR_INIT;
    if (fs_read_file(path, TOKEN_FILE_MAX, &b, &why) < 0) {
        if (why.code == ERR_NOT_FOUND)
            return 0;
        const char *reason =
            why.code == ERR_TOO_LARGE ? "it is too large for a token" : strrchr(why.text, ':');
        return err_set(err, why.code == ERR_TOO_LARGE ? ERR_INVALID : why.code,
                       "%.600s: the token file cannot be read: %s", what,
                       reason ? reason + strspn(reason, ": ") : "input/output error");
    }
    int rc = 1;
    const char *wrong = strlen(strbuf_str(&b)) != b.len ? "holds a NUL byte" : NULL;
    if (!wrong && b.len)
        wrong = secret_check(b.data);
    if (wrong || !b.len)
        rc = err_set(err, ERR_INVALID, "%.600s: the token in the file %s", what,
                     wrong ? wrong : "is empty");
    else if (!(*ret = strdup(b.data)))
        rc = err_set(err, ERR_NOMEM, "out of memory");
    if (b.data)
        explicit_bzero(b.data, b.cap);
    return rc;
}

static int take_file(struct config_upstream *u, const char *path, const char *what,
                     struct error *err)
{
    char *token = NULL;
    int rc = read_token(path, what, &token, err);
    if (rc == 1) {
        rc = give(u, token, what, err) < 0 ? -1 : 1;
        explicit_bzero(token, strlen(token));
        free(token);
    }
    return rc;
}

/* The file that the Hub's login command writes. 1 path, 0 no home directory, -1. */
static int login_file(char **environ_, struct strbuf *to)
{
    const char *hf_home = environment_get(environ_, "HF_HOME");
    const char *cache = environment_get(environ_, "XDG_CACHE_HOME");
    const char *home = environment_get(environ_, "HOME");
    if (hf_home)
        strbuf_printf(to, "%s/token", hf_home);
    else if (cache)
        strbuf_printf(to, "%s/huggingface/token", cache);
    else if (home)
        strbuf_printf(to, "%s/.cache/huggingface/token", home);
    return !strbuf_failed(to) && to->len;
}

static int take_hub_credentials(struct config_upstream *u, char **environ_, struct error *err)
{
    const char *token = environment_get(environ_, "HF_TOKEN");
    const char *path = environment_get(environ_, "HF_TOKEN_PATH");
    if (token)
        return take_token(u, token, "HF_TOKEN", err);
    if (path) { /* the Hub's tools take a file that is not there for "not logged in" */
        int rc = take_file(u, path, "HF_TOKEN_PATH", err);
        return rc < 0 ? -1 : 0;
    }
    _cleanup_strbuf_ struct strbuf login = STRBUF_INIT;
    if (!login_file(environ_, &login))
        return strbuf_failed(&login) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
    /* Nobody asked for this file: when it cannot be read (another user's home), there is none. */
    if (access(login.data, R_OK) < 0)
        return 0;
    return take_file(u, login.data, login.data, err) < 0 ? -1 : 0;
}

/* The Hub's own variables say nothing of an upstream, so they must not reach a wrong one (a mirror
 * of somebody else's): they are for the Hub itself, or for the one endpoint that stands for it. */
static bool may_have_hub_credentials(const struct config *c, const struct config_upstream *u)
{
    size_t hubs = 0;
    for (size_t i = 0; i < c->n_upstreams; i++)
        hubs += c->upstreams[i].kind == UPSTREAM_HUGGINGFACE;
    if (u->kind != UPSTREAM_HUGGINGFACE)
        return false;
    return hubs == 1 || strcmp(u->url, "https://huggingface.co") == 0;
}

static int resolve(struct config *c, size_t i, char **environ_, struct error *err)
{
    struct config_upstream *u = &c->upstreams[i];
    char path[64], what[400];
    if (u->token) /* its own variable */
        return 0;
    if (!u->token_file)
        return may_have_hub_credentials(c, u) ? take_hub_credentials(u, environ_, err) : 0;
    if (strcmp(u->token_file, "none") == 0)
        return 0;
    snprintf(path, sizeof(path), "upstreams[%zu].token_file", i);
    const char *from = origin_get(c, path);
    snprintf(what, sizeof(what), "%.250s: %s", from ? from : "default", path);
    int rc = take_file(u, u->token_file, what, err);
    if (rc == 0)
        return err_set(err, ERR_INVALID, "%s: there is no such file", what);
    return rc < 0 ? -1 : 0;
}

/* Whether the text says by its look that it is a file's name, and no token in its place. */
static bool is_path(const char *text)
{
    return text[0] == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0;
}

/* The tokens for some repositories; "none" stays without. */
static int resolve_some(struct config *c, size_t i, struct error *err)
{
    struct config_upstream *u = &c->upstreams[i];
    char path[64], what[800];
    snprintf(path, sizeof(path), "upstreams[%zu].token_files", i);
    const char *from = origin_get(c, path);
    for (size_t t = 0; t < u->n_token_files; t++) {
        struct config_token_file *f = &u->token_files[t];
        if (strcmp(f->file, "none") == 0)
            continue;
        snprintf(what, sizeof(what), "%.200s: %s: \"%.100s\"%s%.180s", from ? from : "default",
                 path, f->repositories, is_path(f->file) ? ": " : "",
                 is_path(f->file) ? f->file : "");
        int rc = read_token(f->file, what, &f->token, err);
        if (rc == 0)
            return err_set(err, ERR_INVALID, "%s: there is no such file", what);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* A user name needs a password, and the other way round. */
static int check_login(const struct config *c, size_t i, struct error *err)
{
    const struct config_upstream *u = &c->upstreams[i];
    bool has_password = u->password || u->password_file;
    if ((u->username != NULL) == has_password)
        return 0;
    char path[64];
    snprintf(path, sizeof(path), "upstreams[%zu].%s", i,
             u->username   ? "username"
             : u->password ? "password"
                           : "password_file");
    const char *from = origin_get(c, path);
    _cleanup_strbuf_ struct strbuf variable = STRBUF_INIT;
    config_key_variable(
        config_key_find(u->username ? "upstreams[].password" : "upstreams[].username"), u->prefix,
        &variable);
    return err_set(err, ERR_INVALID, "%.200s: %s: needs %s beside it, or the variable %.200s",
                   from ? from : "default", path,
                   u->username ? "\"password_file\"" : "\"username\"", strbuf_str(&variable));
}

int secrets_resolve(struct config *c, char **environ_, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (resolve(c, i, environ_, err) < 0 || resolve_some(c, i, err) < 0 ||
            check_login(c, i, err) < 0)
            return -1;
    return 0;
}
