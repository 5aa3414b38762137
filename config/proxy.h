/* The proxies that the environment names: http_proxy or HTTP_PROXY for http URLs, https_proxy or
 * HTTPS_PROXY for https ones, except for the hosts in no_proxy or NO_PROXY. The lower-case spelling
 * wins. Thread-safe as long as nobody changes the environment.
 */
#ifndef WB_CONFIG_PROXY_H
#define WB_CONFIG_PROXY_H

#include <stdbool.h>

#include "base/err.h"

/* Which one a request to this host and port goes through (a literal IPv6 address without brackets):
 * 1 and its URL, owned by the caller, which may hold a password; 0 none: nothing is set, the host
 * is excepted, or it is this machine's own loopback; -1: ERR_INVALID names the variable.
 *
 * NO_PROXY is a list with commas or spaces of `*`; a host; a domain, with or without a dot in
 * front, which covers all its hosts; an address; a network (`10.0.0.0/8`, `fd00::/8`), which covers
 * the addresses that stand in URLs, as no name is looked up for this. Any but the first and the
 * last may have a port behind it and then counts for that alone (`host:8443`, `[fd00::1]:443`). */
int proxy_of_environment(bool is_https, const char *host, unsigned port, char **ret,
                         struct error *err);

#endif
