/* Checks of URLs that come from the configuration: strict, because the rest of the program builds
 * requests by appending to them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <arpa/inet.h>

#include "config/config_private.h"

bool port_parse(const char *s, size_t n, unsigned *ret)
{
    unsigned port = 0;
    if (n == 0 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        port = port * 10 + (unsigned)(s[i] - '0');
    }
    *ret = port;
    return true;
}

static const char *check_port(const char *s)
{
    unsigned port;
    if (!port_parse(s, strcspn(s, "/"), &port))
        return "has a port that is no number";
    if (port < 1 || port > PORT_MAX)
        return "has a port outside 1 to 65535";
    return NULL;
}

/* host[:port][/path] or [v6][:port][/path] */
static const char *check_authority(const char *s)
{
    size_t n;
    if (*s == '[') {
        char host[64];
        unsigned char raw[16];
        n = strcspn(s, "]");
        if (!s[n] || n > sizeof(host))
            return "has an IPv6 address without ']'";
        memcpy(host, s + 1, n - 1);
        host[n - 1] = '\0';
        if (inet_pton(AF_INET6, host, raw) != 1)
            return "has an invalid IPv6 address";
        n++;
    } else {
        for (n = 0; isalnum((unsigned char)s[n]) || (s[n] && strchr(".-_", s[n]));)
            n++;
        if (n == 0)
            return "has no host name";
    }
    if (s[n] == ':')
        return check_port(s + n + 1);
    if (s[n] != '\0' && s[n] != '/')
        return "has a character in its host name that does not belong there";
    return NULL;
}

const char *url_check(const char *url, const char *schemes, bool may_have_user)
{
    char scheme[16];
    const char *colon = strstr(url, "://");
    size_t n = colon ? (size_t)(colon - url) : sizeof(scheme);
    if (n < sizeof(scheme)) {
        memcpy(scheme, url, n);
        scheme[n] = '\0';
    }
    if (n >= sizeof(scheme) || config_choice(schemes, scheme) < 0)
        return strcmp(schemes, "http|https") == 0
                   ? "must begin with http:// or https://"
                   : "must begin with http://, https://, socks5:// or socks5h://";
    if (strpbrk(url, "?#"))
        return "must have neither a query ('?') nor a fragment ('#')";
    for (const unsigned char *p = (const unsigned char *)url; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || strchr("\"<>\\^`{|}", *p))
            return "holds a character that no URL may hold";
    const char *authority = colon + 3;
    size_t len = strcspn(authority, "/");
    const char *at = memrchr(authority, '@', len);
    if (at && !may_have_user)
        return "must not hold a user name or password: use token_file or an environment variable";
    if (at)
        authority = at + 1;
    return check_authority(authority);
}

char *url_host(const char *url)
{
    const char *s = strstr(url, "://") + 3;
    const char *at = memrchr(s, '@', strcspn(s, "/"));
    if (at)
        s = at + 1;
    if (*s == '[')
        return strndup(s + 1, strcspn(s + 1, "]"));
    return strndup(s, strcspn(s, ":/"));
}

unsigned url_port(const char *url)
{
    const char *s = strstr(url, "://") + 3;
    size_t n = strcspn(s, "/");
    const char *colon = memrchr(s, ':', n), *bracket = memrchr(s, ']', n);
    unsigned port = strncmp(url, "https:", 6) == 0 ? 443 : 80;
    if (colon && (!bracket || colon > bracket))
        port_parse(colon + 1, n - (size_t)(colon + 1 - s), &port);
    return port;
}

bool url_host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}
