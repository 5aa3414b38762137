/* The proxy of each upstream: its own setting, else the variables that every other tool on the
 * machine follows. */
#include "config/proxy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/config_private.h"

/* First of two spellings that is set; the lower-case one wins, as in curl. */
static const char *either(char **environ_, const char *lower, const char *upper, const char **ret)
{
    const char *value = environment_get(environ_, lower);
    *ret = value ? lower : upper;
    return value ? value : environment_get(environ_, upper);
}

/* ---- NO_PROXY -------------------------------------------------------------------------------- */

struct address {
    unsigned char raw[16];
    unsigned bits; /* 32 or 128; 0: it is none */
};

static struct address address_of(const char *text)
{
    struct address a = {.bits = 0};
    if (inet_pton(AF_INET, text, a.raw) == 1)
        a.bits = 32;
    else if (inet_pton(AF_INET6, text, a.raw) == 1)
        a.bits = 128;
    return a;
}

static bool same_bits(const struct address *a, const struct address *b, unsigned bits)
{
    unsigned char mask = (unsigned char)(0xff00u >> bits % 8);
    if (memcmp(a->raw, b->raw, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (a->raw[bits / 8] & mask) == (b->raw[bits / 8] & mask);
}

/* "10.0.0.0/8", "fd00::1" */
static bool network_covers(const char *entry, const char *host)
{
    char text[INET6_ADDRSTRLEN + 1];
    size_t n = strcspn(entry, "/");
    unsigned bits;
    if (n >= sizeof(text))
        return false;
    memcpy(text, entry, n);
    text[n] = '\0';
    struct address network = address_of(text), address = address_of(host);
    if (!network.bits || network.bits != address.bits)
        return false;
    bits = network.bits;
    if (entry[n] &&
        (!port_parse(entry + n + 1, strlen(entry + n + 1), &bits) || bits > network.bits))
        return false;
    return same_bits(&network, &address, bits);
}

/* A host, or a domain whose hosts it covers, with or without the dot in front. */
static bool domain_covers(const char *entry, const char *host)
{
    if (*entry == '.')
        entry++;
    size_t n = strlen(entry), len = strlen(host);
    if (n == 0 || n > len || strcasecmp(host + len - n, entry) != 0)
        return false;
    return n == len || host[len - n - 1] == '.';
}

/* Cuts a port off an entry; false when it has one that is another, or is none. The colons of a bare
 * IPv6 address are its own. */
static bool port_fits(char *entry, unsigned port)
{
    char *colon = strrchr(entry, ':'), *bracket = strrchr(entry, ']');
    unsigned wanted = port;
    bool has_port = colon && (bracket ? colon == bracket + 1 : strchr(entry, ':') == colon);
    if (has_port) {
        if (!port_parse(colon + 1, strlen(colon + 1), &wanted))
            return false;
        *colon = '\0';
    }
    return wanted == port;
}

static bool entry_covers(const char *start, size_t n, const char *host, unsigned port)
{
    char text[256], *entry = text;
    if (n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, start, n);
    text[n] = '\0';
    if (strcmp(entry, "*") == 0)
        return true;
    if (!port_fits(entry, port))
        return false;
    n = strlen(entry);
    if (n > 1 && *entry == '[' && entry[n - 1] == ']') {
        entry[n - 1] = '\0';
        entry++;
    }
    return network_covers(entry, host) || domain_covers(entry, host);
}

static bool is_excepted(const char *list, const char *host, unsigned port)
{
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ", \t");
        if (entry_covers(p, n, host, port))
            return true;
        p += n;
        p += strspn(p, ", \t");
    }
    return false;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* 1, 0, -1; *ret_name is the variable that counts. */
static int find(char **environ_, bool is_https, const char *host, unsigned port, char **ret,
                const char **ret_name, struct error *err)
{
    const char *unused;
    const char *value = is_https ? either(environ_, "https_proxy", "HTTPS_PROXY", ret_name)
                                 : either(environ_, "http_proxy", "HTTP_PROXY", ret_name);
    if (!value || url_host_is_loopback(host) ||
        is_excepted(either(environ_, "no_proxy", "NO_PROXY", &unused), host, port))
        return 0;
    _cleanup_strbuf_ struct strbuf proxy = STRBUF_INIT;
    strbuf_printf(&proxy, "%s%s", strstr(value, "://") ? "" : "http://", value);
    if (strbuf_failed(&proxy))
        return err_set(err, ERR_NOMEM, "out of memory");
    *ret = strbuf_take(&proxy);
    return 1;
}

int proxy_of_environment(bool is_https, const char *host, unsigned port, char **ret,
                         struct error *err)
{
    _cleanup_free_ char *proxy = NULL;
    const char *name;
    int rc = find(environ, is_https, host, port, &proxy, &name, err);
    if (rc <= 0)
        return rc;
    const char *wrong = url_check(proxy, PROXY_SCHEMES, true);
    if (wrong)
        return err_set(err, ERR_INVALID, "%s %s", name, wrong);
    *ret = TAKE_PTR(proxy);
    return 1;
}

static int take_from_environment(struct config *c, size_t i, char **environ_, struct error *err)
{
    struct config_upstream *u = &c->upstreams[i];
    bool is_https = strncmp(u->url, "https:", 6) == 0;
    const char *name;
    char path[64];
    _cleanup_free_ char *proxy = NULL;
    _cleanup_free_ char *host = url_host(u->url);
    if (!host)
        return err_set(err, ERR_NOMEM, "out of memory");
    unsigned port = url_port(u->url);
    int rc = find(environ_, is_https, host, port, &proxy, &name, err);
    if (rc <= 0)
        return rc;
    snprintf(path, sizeof(path), "upstreams[%zu].proxy", i);
    struct source source = {SOURCE_VARIABLE, name};
    struct place at = {&source, 0, path};
    if (value_set_text(u, config_key_find("upstreams[].proxy"), proxy, &at, err) < 0)
        return -1;
    return origin_put(c, path, &at, err);
}

int proxies_resolve(struct config *c, char **environ_, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        struct config_upstream *u = &c->upstreams[i];
        u->proxy_from_environment = !u->proxy;
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
