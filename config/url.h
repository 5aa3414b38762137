/* Checks of URLs that people write. Pure; thread-safe. */
#ifndef WB_CONFIG_URL_H
#define WB_CONFIG_URL_H

#include <stdbool.h>
#include <stddef.h>

#define PORT_MAX 65535u
#define PROXY_SCHEMES "http|https|socks5|socks5h"

/* NULL when fine, else what is wrong with it, to be read behind the name of the setting. Never
 * repeats the URL, which may hold a password. schemes: "http|https". Neither query nor fragment;
 * user information only for a proxy. */
const char *url_check(const char *url, const char *schemes, bool may_have_user);
/* The host of a URL that url_check() took, without brackets; NULL when out of memory. */
char *url_host(const char *url);
/* Its port, or else the scheme's own. */
unsigned url_port(const char *url);
/* The host is localhost or an address of this machine's own loopback network. */
bool url_host_is_loopback(const char *host);

/* The n digits at s, at most five; they may be over PORT_MAX. */
bool port_parse(const char *s, size_t n, unsigned *ret);

#endif
