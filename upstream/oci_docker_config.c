#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/json.h"
#include "upstream/oci_credentials.h"

/* What Docker Hub is called in images, in the file of `docker login`, and on the wire. */
static bool is_docker_hub(const char *host, size_t len)
{
    static const char *const names[] = {"docker.io", "index.docker.io", "registry-1.docker.io"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (len == strlen(names[i]) && strncasecmp(host, names[i], len) == 0)
            return true;
    return false;
}

static bool is_key_of(const char *key, const char *host)
{
    static const char *const paths[] = {"", "/", "/v1", "/v1/", "/v2", "/v2/"};
    if (strncasecmp(key, "https://", 8) == 0)
        key += 8;
    else if (strncasecmp(key, "http://", 7) == 0)
        key += 7;
    size_t len = strcspn(key, "/"), host_len = strlen(host);
    bool known_path = false;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        known_path = known_path || strcmp(key + len, paths[i]) == 0;
    if (!known_path)
        return false;
    return (len == host_len && strncasecmp(key, host, len) == 0) ||
           (is_docker_hub(key, len) && is_docker_hub(host, host_len));
}

/* NULL for "" as well: docker writes members that it does not use so. */
static const char *text_of(const struct json *entry, const char *key)
{
    const char *text = json_str(json_get(entry, key));
    return text && *text ? text : NULL;
}

static int copy(const char *text, char **to, struct error *err)
{
    if (text && !(*to = strdup(text)))
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    return 0;
}

/* base64 of user:password, where docker may have NULs behind the password. */
static int decode_auth(const char *auth, const char *host, struct oci_credential *to,
                       struct error *err)
{
    _cleanup_strbuf_ struct strbuf plain = STRBUF_INIT;
    bool good = base64_decode(auth, strlen(auth), &plain);
    if (strbuf_failed(&plain))
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    while (plain.len && plain.data[plain.len - 1] == '\0')
        strbuf_truncate(&plain, plain.len - 1);
    const char *text = strbuf_str(&plain);
    const char *colon = strchr(text, ':');
    if (!good || !colon || strlen(text) != plain.len)
        return err_set(err, ERR_INVALID, "the \"auth\" of %s is no base64 of user:password", host);
    if (!(to->username = strndup(text, (size_t)(colon - text))))
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    return copy(colon + 1, &to->password, err);
}

/* 1: the entry holds a credential; 0: it is empty. */
static int read_entry(const struct json *entry, const char *host, struct oci_credential *to,
                      struct error *err)
{
    const char *auth = text_of(entry, "auth");
    const char *username = text_of(entry, "username"), *password = text_of(entry, "password");
    if (copy(text_of(entry, "registrytoken"), &to->registry_token, err) < 0 ||
        copy(text_of(entry, "identitytoken"), &to->identity_token, err) < 0)
        return -1;
    if (to->registry_token)
        return 1;
    if (auth) {
        if (decode_auth(auth, host, to, err) < 0)
            return -1;
    } else if (username && password) {
        if (copy(username, &to->username, err) < 0 || copy(password, &to->password, err) < 0)
            return -1;
    }
    if (to->identity_token)
        return 1;
    if (to->username && !*to->username)
        return err_set(err, ERR_INVALID, "the \"auth\" of %s has no user name", host);
    return to->username ? 1 : 0;
}

/* The helper program that keeps the host's credential; NULL when there is none. */
static const char *helper_of(const struct json *root, const char *host)
{
    const struct json *helpers = json_get(root, "credHelpers");
    for (const struct json *h = json_first(helpers); h; h = json_next(h))
        if (json_key(h) && is_key_of(json_key(h), host) && json_str(h) && *json_str(h))
            return json_str(h);
    return text_of(root, "credsStore");
}

int oci_docker_config_find(const char *text, size_t len, const char *host,
                           struct oci_credential *ret, struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    _cleanup_credential_ struct oci_credential found = {0};
    if (json_parse(text, len, &root, err) < 0)
        return -1;
    const struct json *auths = json_get(root, "auths");
    if (!json_is_object(root) || (auths && !json_is_object(auths)))
        return err_set(err, ERR_INVALID, "it is not docker's config.json: no object \"auths\"");
    for (const struct json *a = json_first(auths); a; a = json_next(a)) {
        if (!is_key_of(json_key(a), host))
            continue;
        int rc = read_entry(a, host, &found, err);
        if (rc < 0)
            return -1;
        if (rc == 1) {
            *ret = found;
            found = (struct oci_credential){0};
            return 1;
        }
        oci_credential_done(&found);
    }
    const char *helper = helper_of(root, host);
    if (helper)
        return err_set(err, ERR_UNSUPPORTED,
                       "the login of %s is kept by the helper program docker-credential-%.60s, "
                       "which is not run here: put it into the file's \"auths\", or set "
                       "upstreams[].username and password_file instead",
                       host, helper);
    return 0;
}
