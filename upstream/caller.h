/* Whose request a thread is working on: the token that the client sent, for upstreams with
 * `credentials: forward`, and since when the client has waited for its answer.
 *
 * It belongs to the thread that serves the request, like the way it came (upstream/loop.h); other
 * threads that work for it are given a copy. It is sent to its upstream's own origin alone, is
 * never logged or stored, and is compared, never looked up, by anything but its SHA-256.
 */
#ifndef WB_UPSTREAM_CALLER_H
#define WB_UPSTREAM_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CALLER_TOKEN_MAX 1024u /* bytes, without the NUL; longer ones are none */

/* Borrowed until the next call; NULL = the client sent none. */
void caller_set(const char *token);
/* Likewise, from the value of an Authorization header (NULL = there is none): the token of
 * `Bearer`, or the password of `Basic`, which is how a registry's clients are given one. */
void caller_set_authorization(const char *value);
/* NULL = none. */
const char *caller_token(void);
/* Whether n bytes are some of printable ASCII without spaces: nothing that could end a header or
 * stand for something else in a log. */
bool caller_token_is_plain(const char *token, size_t n);

/* CLOCK_MONOTONIC, in milliseconds; 0 = nobody waits. */
void caller_set_waiting(uint64_t since_ms);
/* Until when something may be waited for so that the client, who has to have an answer within
 * `most_ms`, has one; nobody waits: from now on. */
uint64_t caller_deadline(uint64_t most_ms);

#endif
