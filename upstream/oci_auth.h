/* Getting into a registry: credentials, and the tokens that they are exchanged for (distribution
 * spec, "Token Authentication": GET and OAuth2 POST).
 *
 * Tokens are kept per (realm, service, scope) until shortly before they run out; threads that need
 * the same one at the same time cause one exchange. Credentials go to the registry's own origin
 * (Basic) or to the realm that the registry named, over https only unless the registry itself is
 * http on a loopback address or explicitly configured as http; a realm on plain http for an https
 * registry is refused. Nothing here ever reaches a log or an error text: realm hosts and setting
 * names do, tokens, passwords and queries do not. Thread-safe.
 */
#ifndef WB_UPSTREAM_OCI_AUTH_H
#define WB_UPSTREAM_OCI_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "upstream/http.h"

struct oci_auth;

/* Where the user name and password come from; the first that is set counts. */
struct oci_auth_options {
    const char *url;      /* the registry's: scheme://host[:port][/path] */
    const char *username; /* with password, or password_file (re-read when it changes) */
    const char *password;
    const char *password_file; /* a file with the password or token, surrounding space removed */
    const char *token_file; /* a registry token sent as it is (Bearer); re-read when it changes */
    const char *docker_config; /* docker's config.json: "auths" (auth, identitytoken,
                                  registrytoken) of the registry's host, in docker's spellings of
                                  Docker Hub too; a "credsStore" or "credHelpers" that names a
                                  helper program gives ERR_UNSUPPORTED that says to store the
                                  credential in the file or in password_file instead */
    struct http_pool *pool;    /* the upstream's; borrowed */
};

int oci_auth_new(const struct oci_auth_options *o, struct oci_auth **ret, struct error *err);
void oci_auth_free(struct oci_auth *a); /* NULL is fine */

/* What an Authorization header for this scope ("repository:library/alpine:pull") holds now:
 * "Bearer ..." or "Basic ...", owned by the caller; NULL = ask without one. Never goes out to the
 * network unless a challenge is known whose token has run out or is about to: then it is exchanged
 * first. A scope that is new is taken to want its token from where the registry sent us for others,
 * which saves the request that would only bring its challenge; where that fails, NULL. */
int oci_auth_header(struct oci_auth *a, const char *scope, char **ret, struct error *err);

/* The registry answered 401 to a request that was sent with `sent` (NULL = none): reads its
 * challenges (the values of all WWW-Authenticate headers of r) and gets what it asks for. 1: *ret
 * is a new header to try once more. 0: it is no use, *err says what the operator can do:
 * ERR_DENIED when a token that the token server has just given was refused, so that it is an answer
 * about the repository; ERR_UNAUTHORIZED when our login did not get as far (it was refused, there
 * is none, or no challenge that we can answer). -1: the token server could not be asked
 * (ERR_UPSTREAM, ERR_TIMEOUT, ERR_RATE_LIMITED, ...).
 * When another thread has got a newer token meanwhile, that one is given. The scope that the
 * challenge names is used where it gives one, else `scope`. */
int oci_auth_challenged(struct oci_auth *a, const char *scope, const char *sent,
                        const struct http_response *r, char **ret, struct error *err);

/* The same, but with ERR_TIMEOUT when the token server has not answered by deadline_ms (monotonic;
 * 0 = none, and then the pool's own time limits count). */
int oci_auth_header_until(struct oci_auth *a, const char *scope, uint64_t deadline_ms, char **ret,
                          struct error *err);
int oci_auth_challenged_until(struct oci_auth *a, const char *scope, const char *sent,
                              const struct http_response *r, uint64_t deadline_ms, char **ret,
                              struct error *err);

/* The registry took this header: from now on a 401 to it means that it has been revoked, however
 * young it is, and not that it was no use from the start. */
void oci_auth_accepted(struct oci_auth *a, const char *scope, const char *sent);

#endif
