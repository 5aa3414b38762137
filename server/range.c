#include "server/range.h"

#include <string.h>
#include <strings.h>

static const char *skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* Decimal digits from *p; false when there are none. Saturates, which a size never reaches. */
static bool number(const char **p, uint64_t *ret)
{
    uint64_t n = 0;
    const char *s = *p;
    if (*s < '0' || *s > '9')
        return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        unsigned digit = (unsigned)(*s - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    *p = s;
    *ret = n;
    return true;
}

enum range_result range_parse(const char *header, uint64_t size, uint64_t *ret_first,
                              uint64_t *ret_length)
{
    uint64_t first = 0, last = UINT64_MAX;
    const char *p = header ? skip_space(header) : "";
    if (strncasecmp(p, "bytes", 5) != 0)
        return RANGE_WHOLE;
    p = skip_space(p + 5);
    if (*p != '=')
        return RANGE_WHOLE;
    p = skip_space(p + 1);
    if (*p == '-') {
        uint64_t suffix;
        p++;
        if (!number(&p, &suffix) || *skip_space(p))
            return RANGE_WHOLE;
        if (suffix == 0 || size == 0)
            return RANGE_UNSATISFIABLE;
        *ret_length = suffix < size ? suffix : size;
        *ret_first = size - *ret_length;
        return RANGE_PART;
    }
    if (!number(&p, &first) || *p++ != '-')
        return RANGE_WHOLE;
    bool has_last = number(&p, &last);
    if (*skip_space(p)) /* a comma: several ranges, answered whole */
        return RANGE_WHOLE;
    if (first >= size || (has_last && first > last))
        return RANGE_UNSATISFIABLE;
    if (last > size - 1)
        last = size - 1;
    *ret_first = first;
    *ret_length = last - first + 1;
    return RANGE_PART;
}

/* `text` of n bytes is the ETag, with or without the quotes around it. */
static bool same_etag(const char *text, size_t n, const char *etag)
{
    size_t len = strlen(etag);
    if (n == len && memcmp(text, etag, n) == 0)
        return true;
    return len > 2 && n == len - 2 && memcmp(text, etag + 1, n) == 0;
}

static size_t trimmed(const char *p, size_t n)
{
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    return n;
}

bool range_if_range(const char *if_range, const char *etag)
{
    const char *p = skip_space(if_range);
    return same_etag(p, trimmed(p, strlen(p)), etag);
}

bool etag_none_match(const char *if_none_match, const char *etag)
{
    const char *p = if_none_match;
    while (*p) {
        p = skip_space(p);
        if (p[0] == 'W' && p[1] == '/')
            p += 2;
        /* Our ETags hold no comma, so a quoted tag with one in it can be cut there: it never
         * equals ours either way. */
        size_t n = strcspn(p, ",");
        size_t len = trimmed(p, n);
        if ((len == 1 && *p == '*') || same_etag(p, len, etag))
            return true;
        p += n;
        if (*p == ',')
            p++;
    }
    return false;
}

bool range_of_piece(const char *content_range, uint64_t *ret_first, uint64_t *ret_length)
{
    uint64_t first, last, total;
    const char *p = skip_space(content_range);
    if (strncasecmp(p, "bytes", 5) == 0 && (p[5] == ' ' || p[5] == '\t' || p[5] == '='))
        p = skip_space(p + 6);
    if (!number(&p, &first) || *p++ != '-' || !number(&p, &last))
        return false;
    if (*p == '/') {
        p++;
        if (*p == '*')
            p++;
        else if (!number(&p, &total) || total <= last)
            return false;
    }
    if (*skip_space(p) || first > last || last >= INT64_MAX)
        return false;
    *ret_first = first;
    *ret_length = last - first + 1;
    return true;
}
