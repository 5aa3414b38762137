/* Texts that say which upstream it was. A text about a request names the host that was asked: that
 * may be one that the upstream redirects to, or a proxy on the way, and says little to whoever has
 * many upstreams.
 */
#ifndef WB_UPSTREAM_BLAME_H
#define WB_UPSTREAM_BLAME_H

#include <stdbool.h>

#include "base/err.h"
#include "upstream/http.h"

/* Puts `upstream PREFIX: ` before a text that does not have the prefix as a word; what our own
 * disk, memory or shutdown did is left alone. err may be NULL. */
void upstream_blame(struct error *err, const char *prefix);

/* The upstream's word on this caller: there is no such thing, or not for this one. */
bool upstream_refuses(const struct error *err);

/* A 401, or a 403 that names a way to log in. */
bool upstream_wants_login(const struct http_response *r);
/* ERR_UPSTREAM: the registry redirects to a host that wants to know who we are. It gets none of our
 * logins, as those are for the registry. Returns -1. */
int upstream_strange_login(struct error *err, const char *prefix, const char *url, unsigned status);

#endif
