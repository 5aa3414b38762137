/* Servers that have each other for an upstream, in a circle.
 *
 * A server that is asked mostly asks on, and a question that comes back to it would wait for
 * itself. So each request to a registry says through which servers of ours it has come, in CDN-Loop
 * (RFC 8586): `weighbridge; id=0123456789abcdef`, once for each, where the id is a process's own
 * and random. Whoever finds itself there answers from its store and asks nobody.
 *
 * Two clients that ask two servers of a circle for the same thing at once are the exception: their
 * questions meet and wait for each other, until one goes on by itself some seconds later. Downloads
 * that meet so wait until stall_timeout ends them.
 *
 * The way belongs to the thread that serves the request; other threads that work for it are given
 * a copy. Of what a client sent only entries of that form are passed on, the last LOOP_SERVERS_MAX
 * of them: it cannot put words into our mouth, nor make an upstream of ours refuse others.
 */
#ifndef WB_UPSTREAM_LOOP_H
#define WB_UPSTREAM_LOOP_H

#include <stdbool.h>

#include "base/err.h"

#define LOOP_HEADER "CDN-Loop"
#define LOOP_SERVERS_MAX 8u
#define LOOP_ID_LEN 16u
#define LOOP_VALUE_MAX 400u /* an own entry and LOOP_SERVERS_MAX others */

/* Zeroed: the request began here. */
struct loop {
    unsigned n;
    bool is_closed; /* it has been here before */
    char ids[LOOP_SERVERS_MAX][LOOP_ID_LEN + 1];
};

/* The id of this process. */
const char *loop_own_id(void);
/* Adds the servers of one header line. */
void loop_add(struct loop *l, const char *value);
/* From here on, what this thread asks is asked for a request that came this way; NULL = that began
 * here. */
void loop_set(const struct loop *l);
/* A copy of the thread's. */
struct loop loop_get(void);
/* What a request that came this way says to the upstream, this server last. */
const char *loop_value(const struct loop *l, char buf[static LOOP_VALUE_MAX]);
/* ERR_LOOP when the thread's request has been here before, so that nothing may be asked for it. */
int loop_check(const char *upstream, struct error *err);

#endif
