#include "model/split.h"

#include <stdlib.h>
#include <string.h>

/* Digits right before `end`, not before `start`. */
static size_t digits_before(const char *start, const char *end)
{
    const char *p = end;
    while (p > start && p[-1] >= '0' && p[-1] <= '9')
        p--;
    return (size_t)(end - p);
}

struct split_name split_name_of(const char *path)
{
    static const char of[] = "-of-";
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    const char *end = dot ? dot : base + strlen(base);
    struct split_name whole = {.stem = (size_t)(end - path)};
    size_t count = digits_before(base, end);
    if (count < 5 || count > 6 || (size_t)(end - base) < count + strlen(of))
        return whole;
    const char *mark = end - count - strlen(of);
    if (memcmp(mark, of, strlen(of)) != 0)
        return whole;
    size_t no = digits_before(base, mark);
    const char *separator = mark - no - 1;
    if (no != count || separator < base || (*separator != '-' && *separator != '_'))
        return whole;
    return (struct split_name){
        .stem = (size_t)(separator - path),
        .no = (unsigned)strtoul(mark - no, NULL, 10),
        .count = (unsigned)strtoul(end - count, NULL, 10),
    };
}
