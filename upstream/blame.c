#include "upstream/blame.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"

/* Dots and dashes join: "docker.io" is not a word of "registry-1.docker.io". */
static bool joins(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

static bool names(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);
    if (!len)
        return true;
    for (const char *p = text; (p = strstr(p, prefix)); p++) {
        const char *behind = p + len;
        /* A dot that ends a sentence joins nothing. */
        if ((p == text || !joins(p[-1])) &&
            (!joins(*behind) || (*behind == '.' && !joins(behind[1]))))
            return true;
    }
    return false;
}

static bool is_ours(enum err_code code)
{
    return code == ERR_NO_SPACE || code == ERR_IO || code == ERR_NOMEM || code == ERR_INTERNAL ||
           code == ERR_CANCELLED;
}

void upstream_blame(struct error *err, const char *prefix)
{
    if (err && !is_ours(err->code) && !names(err->text, prefix))
        err_wrap(err, "upstream %s", prefix);
}

bool upstream_refuses(const struct error *err)
{
    return err->code == ERR_UNAUTHORIZED || err->code == ERR_DENIED || err->code == ERR_NOT_FOUND;
}

bool upstream_wants_login(const struct http_response *r)
{
    unsigned status = http_status(r);
    return status == 401 || (status == 403 && http_header(r, "WWW-Authenticate"));
}

int upstream_strange_login(struct error *err, const char *prefix, const char *url, unsigned status)
{
    _cleanup_free_ char *host = http_host(url);
    return err_set(err, ERR_UPSTREAM,
                   "upstream %s redirects to %s, which answered %u and wants a login of its own; "
                   "ours is for %s only: make %s an upstream with its own login, or have the "
                   "registry redirect to signed URLs",
                   prefix, host ? host : "another host", status, prefix, host ? host : "it");
}
