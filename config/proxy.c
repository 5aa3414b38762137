/* The proxy of each upstream: its own setting, else the variables that every other tool on the
 * machine follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config_private.h"

/* First of two spellings that is set; the lower-case one wins, as in curl. */
static const char *either(char **environ_, const char *lower, const char *upper, const char **ret)
{
    const char *value = environment_get(environ_, lower);
    *ret = value ? lower : upper;
    return value ? value : environment_get(environ_, upper);
}

/* One entry of NO_PROXY: "*", a host, or a domain whose hosts it covers, with or without the dot
 * in front. */
static bool entry_covers(const char *entry, size_t n, const char *host)
{
    size_t len = strlen(host);
    if (n == 1 && *entry == '*')
        return true;
    if (n && *entry == '[' && entry[n - 1] == ']') {
        entry++;
        n -= 2;
    }
    if (n && *entry == '.') {
        entry++;
        n--;
    }
    if (n == 0 || n > len || strncasecmp(host + len - n, entry, n) != 0)
        return false;
    return n == len || host[len - n - 1] == '.';
}

static bool is_excepted(const char *list, const char *host)
{
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ", \t");
        if (entry_covers(p, n, host))
            return true;
        p += n;
        p += strspn(p, ", \t");
    }
    return false;
}

static int take_from_environment(struct config *c, size_t i, char **environ_, struct error *err)
{
    struct config_upstream *u = &c->upstreams[i];
    const char *name, *unused;
    char path[64];
    const char *value = strncmp(u->url, "https:", 6) == 0
                            ? either(environ_, "https_proxy", "HTTPS_PROXY", &name)
                            : either(environ_, "http_proxy", "HTTP_PROXY", &name);
    if (!value)
        return 0;
    _cleanup_free_ char *host = url_host(u->url);
    _cleanup_strbuf_ struct strbuf proxy = STRBUF_INIT;
    if (!host)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (url_host_is_loopback(host) ||
        is_excepted(either(environ_, "no_proxy", "NO_PROXY", &unused), host))
        return 0;
    strbuf_printf(&proxy, "%s%s", strstr(value, "://") ? "" : "http://", value);
    if (strbuf_failed(&proxy))
        return err_set(err, ERR_NOMEM, "out of memory");
    snprintf(path, sizeof(path), "upstreams[%zu].proxy", i);
    struct source source = {SOURCE_VARIABLE, name};
    struct place at = {&source, 0, path};
    if (value_set_text(u, config_key_find("upstreams[].proxy"), strbuf_str(&proxy), &at, err) < 0)
        return -1;
    return origin_put(c, path, &at, err);
}

int proxies_resolve(struct config *c, char **environ_, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        struct config_upstream *u = &c->upstreams[i];
        if (!u->proxy) {
            if (take_from_environment(c, i, environ_, err) < 0)
                return -1;
        } else if (strcmp(u->proxy, "none") == 0) {
            free(u->proxy);
            u->proxy = NULL;
        }
    }
    return 0;
}
