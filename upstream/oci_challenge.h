/* The WWW-Authenticate header of a registry (RFC 9110, 11.6.1; distribution spec, "Token
 * Authentication"). Pure functions over hostile text; thread-safe.
 */
#ifndef WB_UPSTREAM_OCI_CHALLENGE_H
#define WB_UPSTREAM_OCI_CHALLENGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum oci_scheme { OCI_SCHEME_OTHER, OCI_SCHEME_BASIC, OCI_SCHEME_BEARER };

#define OCI_CHALLENGES_MAX 8

struct oci_challenge {
    enum oci_scheme scheme;
    char *realm; /* Bearer: the token server's URL; never NULL for BASIC and BEARER */
    char *service, *scope, *error; /* NULL = not given */
};

struct oci_challenges {
    struct oci_challenge items[OCI_CHALLENGES_MAX];
    size_t n;
};
void oci_challenges_done(struct oci_challenges *c);

/* Adds the challenges of one header value; several may stand in one, and there may be several
 * headers. Schemes and parameter names in any case, values as tokens or quoted strings with
 * backslashes, any order, unknown parameters and schemes passed over, a comma inside a quoted scope
 * kept. What cannot be read ends the reading of this value: the challenges before it stand.
 * ERR_NOMEM only. More than OCI_CHALLENGES_MAX, or a value over 4 KiB: the rest is ignored. */
int oci_challenges_add(struct oci_challenges *c, const char *value, struct error *err);

/* The one to answer: Bearer before Basic; NULL when there is none that we can answer. */
const struct oci_challenge *oci_challenge_best(const struct oci_challenges *c);

#endif
