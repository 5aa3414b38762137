/* Names as the OCI distribution spec writes them ("Pulling manifests"): repository names, tags,
 * references. Pure functions over strings; thread-safe.
 */
#ifndef WB_BASE_REF_H
#define WB_BASE_REF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"
#include "base/err.h"

#define REPOSITORY_MAX 255 /* what clients cap a name at, in bytes */
#define TAG_MAX 128

/* [a-z0-9]+((\.|_|__|-+)[a-z0-9]+)* joined by '/', at most REPOSITORY_MAX bytes. */
bool repository_is_valid(const char *name);
/* [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127} */
bool tag_is_valid(const char *tag);

/* Lower-cases ASCII into buf (size bytes); false when it does not fit. */
bool ascii_lower(const char *s, char *buf, size_t size);

/* What `repository[:tag|@digest]` names. */
struct reference {
    char repository[REPOSITORY_MAX + 1]; /* lower case, valid */
    char as_given[REPOSITORY_MAX + 1];   /* the same name in the caller's own case */
    bool is_digest;
    char tag[TAG_MAX + 1]; /* empty when is_digest */
    struct digest digest;
};

/* The repository and the `<reference>` of a URL: a tag or a digest. Upper case in the repository is
 * folded (Hub names are mixed case, OCI names are not). "Has a colon" decides digest against tag;
 * a malformed digest is never taken for a tag. ERR_INVALID / ERR_UNSUPPORTED (unknown algorithm).
 */
int reference_make(const char *repository, const char *tag_or_digest, struct reference *ret,
                   struct error *err);

/* `repository:tag`, `repository@digest`, or `repository` alone (tag `latest`). */
int reference_parse(const char *text, struct reference *ret, struct error *err);

/* Writes the text form into buf and returns it. */
#define REFERENCE_TEXT_MAX (REPOSITORY_MAX + DIGEST_TEXT_MAX + 2)
char *reference_format(const struct reference *r, char buf[static REFERENCE_TEXT_MAX]);

#endif
