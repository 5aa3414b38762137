/* server: HTTP in front of storage and upstream. libmicrohttpd with a thread a connection; routing,
 * the OCI distribution API, health, metrics, the admin API, the access rules, and the one place
 * where errors become status codes and log lines.
 *
 * Lifecycle: server_start() -> [server_drain()] -> server_stop(). The config, store and
 * upstreams outlive it.
 */
#ifndef WB_SERVER_SERVER_H
#define WB_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "storage/store.h"
#include "upstream/upstreams.h"

struct server;

/* Listens and serves. ERR_DENIED: a non-loopback address without an access rule (the text names the
 * setting that allows it). ERR_IO: the address is taken or not ours. */
int server_start(const struct config *c, struct store *s, struct upstreams *u, struct server **ret,
                 struct error *err);
/* "http://127.0.0.1:5000" with the real port; borrowed. */
const char *server_url(const struct server *s);
/* Refuses new connections (closed, not black-holed) and answers /readyz with 503; what runs goes
 * on. Returns when nothing is being answered any more or drain_s has passed: true = all done.
 * May be called again to go on waiting. Only one thread drains and stops. */
bool server_drain(struct server *s, uint64_t drain_s);
/* Cuts what is left (of an upload all that came is kept) and waits for the threads. Stop the
 * upstreams first, so that nobody waits. */
void server_stop(struct server *s);

#endif
