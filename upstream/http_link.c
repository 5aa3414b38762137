#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "upstream/http.h"

/* Whether the value of rel, quoted or not, has `next` among its words. */
static bool has_next(const char *value, size_t len)
{
    for (size_t i = 0; i + 4 <= len; i++) {
        bool starts = i == 0 || strchr("\" \t", value[i - 1]);
        bool ends = i + 4 == len || strchr("\" \t", value[i + 4]);
        if (starts && ends && strncasecmp(value + i, "next", 4) == 0)
            return true;
    }
    return false;
}

/* Whether the parameters of one Link value (`; title="a"; rel="next"`) have rel next. */
static bool is_rel_next(const char *p, size_t len)
{
    const char *end = p + len;
    while (p < end) {
        const char *stop = p; /* of this parameter: a semicolon outside of quotes */
        for (bool quoted = false; stop < end && (quoted || *stop != ';'); stop++)
            if (*stop == '"')
                quoted = !quoted;
        while (p < stop && (*p == ' ' || *p == '\t'))
            p++;
        if (stop - p > 4 && strncasecmp(p, "rel=", 4) == 0)
            return has_next(p + 4, (size_t)(stop - p - 4));
        p = stop + 1;
    }
    return false;
}

char *http_link_next(const char *link)
{
    for (const char *p = link; (p = strchr(p, '<'));) {
        const char *url = p + 1;
        const char *close = strchr(url, '>');
        if (!close)
            return NULL;
        /* The value ends at a comma outside of quotes. */
        const char *end = close + 1;
        for (bool quoted = false; *end && (quoted || *end != ','); end++)
            if (*end == '"')
                quoted = !quoted;
        if (is_rel_next(close + 1, (size_t)(end - close - 1)))
            return strndup(url, (size_t)(close - url));
        p = end;
    }
    return NULL;
}
