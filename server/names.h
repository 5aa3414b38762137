/* Which repository a request means. One repository can be asked for in several ways:
 *
 *     /v2/docker.io/library/alpine/...       by the prefix of its upstream (podman's mirrors)
 *     /v2/library/alpine/...?ns=docker.io    by the registry's own name for it, and its host
 *                                            (containerd's mirrors)
 *     /v2/library/alpine/...                 by that name alone: default_upstream (docker's
 * mirrors)
 *
 * and in each of them as `alpine` where its upstream has single_names. It has one name in the
 * store, the access rules and the log: the first one. What a client is given to use again
 * (Location, Link, the "name" of a list) is in the client's own words.
 *
 * Runs on the connection's thread, at the headers.
 */
#ifndef WB_SERVER_NAMES_H
#define WB_SERVER_NAMES_H

#include "base/err.h"
#include "base/ref.h"
#include "base/strbuf.h"

struct request;

/* Settles q->route.ref, and q->ns_upstream and q->ns where the query has an `ns`. Asks no upstream,
 * and dials nothing that a client named. ERR_NOT_FOUND: `ns` is no upstream's; ERR_INVALID. */
int names_settle(struct request *q, struct error *err);

/* What the request would call `given`, another repository beside its own (`from` of a mount).
 * False: it is no repository name. */
bool names_beside(const struct request *q, const char *given, char ret[static REPOSITORY_MAX + 1]);

/* The repository that pulls by this request's name mean while nothing is here under it. False:
 * there is none. */
bool names_default(const struct request *q, char ret[static REPOSITORY_MAX + 1]);

/* "?ns=docker.io" (first: '?' or '&') if the request had one: without it, the URL that it is put
 * behind would mean another repository. */
void names_put_ns(const struct request *q, char first, struct strbuf *to);

#endif
