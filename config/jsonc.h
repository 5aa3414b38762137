/* JSON with comments, every value with the line it stands on.
 *
 * Configuration errors have to name a line. cJSON's tree (base/json.h) has no positions, and
 * cJSON_Minify(), which would remove the comments, also joins all lines into one; so the
 * configuration has this small strict reader of its own. Slash-slash comments and slash-star
 * comments are white space. Nothing else is added to RFC 8259: no trailing comma, no single quotes,
 * no bare key. Refused as well: keys that come twice, \u0000, invalid UTF-8, nesting over
 * JSONC_DEPTH. A byte order mark at the start is skipped.
 *
 * Thread-safe; a tree belongs to its caller.
 */
#ifndef WB_CONFIG_JSONC_H
#define WB_CONFIG_JSONC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

#define JSONC_DEPTH 16
#define JSONC_MEMBERS 10000 /* in one object or array */

enum jsonc_type {
    JSONC_NULL,
    JSONC_BOOL,
    JSONC_NUMBER,
    JSONC_STRING,
    JSONC_ARRAY,
    JSONC_OBJECT,
};

struct jsonc {
    enum jsonc_type type;
    unsigned line; /* from 1; a member's is its key's */
    char *key;     /* of a member; NULL otherwise */
    char *text;    /* JSONC_STRING */
    double number; /* JSONC_NUMBER */
    bool truth;    /* JSONC_BOOL */
    struct jsonc *first, *next;
};

/* Parses exactly one value. ERR_INVALID without file and line in its text: *ret_line is where. */
int jsonc_parse(const char *text, size_t len, struct jsonc **ret, unsigned *ret_line,
                struct error *err);
void jsonc_free(struct jsonc *root);
static inline void jsonc_free_p(struct jsonc **root)
{
    jsonc_free(*root);
}
#define _cleanup_jsonc_ _cleanup_(jsonc_free_p)

/* "a string", "an object", ... for error texts. */
const char *jsonc_type_name(enum jsonc_type type);

#endif
