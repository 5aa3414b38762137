#include "upstream/oci_credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/fs.h"

#define SECRET_FILE_MAX (64u << 10)
#define DOCKER_CONFIG_MAX (1u << 20)
/* A file that changed as lately as this may change once more without its times changing. */
#define YOUNG_S 2u

enum source { SOURCE_NONE, SOURCE_INLINE, SOURCE_PASSWORD, SOURCE_TOKEN, SOURCE_DOCKER };

/* A file's state; what was read from it holds while this stays the same. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
    bool young;
};

struct oci_credentials {
    enum source source;
    char *path, *host, *username; /* path and username: NULL where the source has none */

    pthread_mutex_t lock; /* guards: all below */
    struct oci_credential now;
    struct stamp stamp;
    struct error problem; /* why the file could not be read again; ERR_NONE = it could */
};

void oci_credential_done(struct oci_credential *c)
{
    free(c->username);
    free(c->password);
    free(c->identity_token);
    free(c->registry_token);
    *c = (struct oci_credential){0};
}

void oci_credential_basic(const char *username, const char *password, struct strbuf *to)
{
    _cleanup_strbuf_ struct strbuf plain = STRBUF_INIT;
    strbuf_printf(&plain, "%s:%s", username, password);
    strbuf_puts(to, "Basic ");
    strbuf_put_base64(to, strbuf_str(&plain), plain.len);
    to->failed = to->failed || strbuf_failed(&plain);
}

static const char *setting_of(enum source source)
{
    switch (source) {
    case SOURCE_PASSWORD:
        return "upstreams[].password_file";
    case SOURCE_TOKEN:
        return "upstreams[].token_file";
    case SOURCE_DOCKER:
        return "upstreams[].docker_config";
    case SOURCE_NONE:
    case SOURCE_INLINE:
        break;
    }
    return "upstreams[].username and password";
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The one word or line of a password or token file. */
static int read_secret(const char *path, bool is_token, char **ret, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (fs_read_file(path, SECRET_FILE_MAX, &text, err) < 0)
        return -1;
    const char *start = strbuf_str(&text), *end = start + text.len;
    while (start < end && is_space(*start))
        start++;
    while (end > start && is_space(end[-1]))
        end--;
    if (start == end)
        return err_set(err, ERR_INVALID, "%s is empty", path);
    for (const char *p = start; p < end; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f || (is_token && (*p & 0x80 || *p == ' ')))
            return err_set(err, ERR_INVALID, "%s has to hold one %s and nothing else", path,
                           is_token ? "token" : "line");
    *ret = strndup(start, (size_t)(end - start));
    return *ret ? 0 : err_set(err, ERR_NOMEM, "out of memory for a credential");
}

static int read_docker(const struct oci_credentials *c, struct oci_credential *ret,
                       struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (fs_read_file(c->path, DOCKER_CONFIG_MAX, &text, err) < 0)
        return -1;
    if (oci_docker_config_find(strbuf_str(&text), text.len, c->host, ret, err) < 0)
        return err_wrap(err, "%s", c->path);
    return 0;
}

static int read_now(const struct oci_credentials *c, struct oci_credential *ret, struct error *err)
{
    if (c->source == SOURCE_DOCKER)
        return read_docker(c, ret, err);
    if (c->source == SOURCE_TOKEN)
        return read_secret(c->path, true, &ret->registry_token, err);
    if (read_secret(c->path, false, &ret->password, err) < 0)
        return -1;
    ret->username = strdup(c->username);
    return ret->username ? 0 : err_set(err, ERR_NOMEM, "out of memory for a credential");
}

static int stamp_of(const char *path, struct stamp *ret, struct error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_errno(err, "%s", path);
    *ret = (struct stamp){.device = st.st_dev,
                          .inode = st.st_ino,
                          .size = st.st_size,
                          .modified = st.st_mtim,
                          .changed = st.st_ctim};
    ret->young = (uint64_t)st.st_ctim.tv_sec + YOUNG_S > clock_wall_s();
    return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same(const struct stamp *a, const struct stamp *b)
{
    return !a->young && a->device == b->device && a->inode == b->inode && a->size == b->size &&
           same_time(&a->modified, &b->modified) && same_time(&a->changed, &b->changed);
}

/* Looks at the file and takes what is new. The stamp is from before the reading: a change in
 * between is seen the next time. */
static int refresh(struct oci_credentials *c, struct error *err)
{
    _cleanup_credential_ struct oci_credential fresh = {0};
    struct stamp stamp;
    if (stamp_of(c->path, &stamp, err) < 0)
        return -1;
    pthread_mutex_lock(&c->lock);
    bool same = is_same(&c->stamp, &stamp);
    if (same)
        c->problem = ERROR_INIT;
    pthread_mutex_unlock(&c->lock);
    if (same)
        return 0;
    if (read_now(c, &fresh, err) < 0)
        return -1;
    pthread_mutex_lock(&c->lock);
    struct oci_credential old = c->now;
    c->now = fresh;
    fresh = old;
    c->stamp = stamp;
    c->problem = ERROR_INIT;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

/* ---- the contract ---------------------------------------------------------------------------- */

static int check_username(const char *username, struct error *err)
{
    for (const unsigned char *p = (const unsigned char *)username; *p; p++)
        if (*p < ' ' || *p == 0x7f || *p == ':')
            return err_set(err, ERR_INVALID,
                           "upstreams[].username has a colon or a control character in it");
    return 0;
}

static int take_inline(struct oci_credentials *c, const struct oci_auth_options *o,
                       struct error *err)
{
    c->source = SOURCE_INLINE;
    c->now.username = strdup(o->username);
    c->now.password = strdup(o->password);
    return c->now.username && c->now.password
               ? 0
               : err_set(err, ERR_NOMEM, "out of memory for a credential");
}

/* The first option that is set counts. */
static int choose(struct oci_credentials *c, const struct oci_auth_options *o, struct error *err)
{
    const char *path = NULL;
    if (o->username) {
        if (check_username(o->username, err) < 0)
            return -1;
        if (o->password)
            return take_inline(c, o, err);
        if (!o->password_file)
            return err_set(err, ERR_INVALID,
                           "upstreams[].username needs password or password_file beside it");
        if (!(c->username = strdup(o->username)))
            return err_set(err, ERR_NOMEM, "out of memory for a credential");
        c->source = SOURCE_PASSWORD;
        path = o->password_file;
    } else if (o->token_file) {
        c->source = SOURCE_TOKEN;
        path = o->token_file;
    } else if (o->docker_config) {
        c->source = SOURCE_DOCKER;
        path = o->docker_config;
    }
    if (path && !(c->path = strdup(path)))
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    return 0;
}

int oci_credentials_new(const struct oci_auth_options *o, struct oci_credentials **ret,
                        struct error *err)
{
    struct oci_credentials *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    pthread_mutex_init(&c->lock, NULL);
    c->host = http_host(o->url);
    int rc = c->host ? choose(c, o, err)
                     : err_set(err, ERR_INVALID, "upstreams[].url is no http or https URL");
    if (rc == 0 && c->path && refresh(c, err) < 0)
        rc = err_wrap(err, "%s", setting_of(c->source));
    if (rc < 0) {
        oci_credentials_free(c);
        return -1;
    }
    *ret = c;
    return 0;
}

void oci_credentials_free(struct oci_credentials *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    oci_credential_done(&c->now);
    free(c->path);
    free(c->host);
    free(c->username);
    free(c);
}

static int copy(const char *text, char **to)
{
    return text && !(*to = strdup(text)) ? -1 : 0;
}

int oci_credentials_get(struct oci_credentials *c, struct oci_credential *ret, struct error *err)
{
    _cleanup_credential_ struct oci_credential got = {0};
    struct error why = ERROR_INIT;
    int failed = c->path ? refresh(c, &why) : 0;
    pthread_mutex_lock(&c->lock);
    if (failed < 0)
        c->problem = why;
    int rc = copy(c->now.username, &got.username) || copy(c->now.password, &got.password) ||
             copy(c->now.identity_token, &got.identity_token) ||
             copy(c->now.registry_token, &got.registry_token);
    pthread_mutex_unlock(&c->lock);
    if (rc != 0)
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    *ret = got;
    got = (struct oci_credential){0};
    return 0;
}

void oci_credentials_advice(struct oci_credentials *c, char *to, size_t size)
{
    if (c->source == SOURCE_NONE) {
        snprintf(to, size,
                 "set upstreams[].username and password_file, token_file or docker_config");
        return;
    }
    pthread_mutex_lock(&c->lock);
    bool anonymous = !c->now.username && !c->now.identity_token && !c->now.registry_token;
    if (c->problem.code)
        snprintf(to, size, "%s could not be read again: %.300s", setting_of(c->source),
                 c->problem.text);
    else if (anonymous)
        snprintf(to, size, "%s (%.200s) has no login for %.100s", setting_of(c->source), c->path,
                 c->host);
    else if (c->path)
        snprintf(to, size, "check %s (%.200s)", setting_of(c->source), c->path);
    else
        snprintf(to, size, "check %s", setting_of(c->source));
    pthread_mutex_unlock(&c->lock);
}
