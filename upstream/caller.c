#include "upstream/caller.h"

#include <stdbool.h>
#include <string.h>

static _Thread_local char current[CALLER_TOKEN_MAX + 1];
static _Thread_local unsigned length;

/* Nothing that could end a header or stand for something else in a log. */
static bool is_plain(const char *token, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)token[i] <= ' ' || (unsigned char)token[i] >= 0x7f)
            return false;
    return n > 0;
}

void caller_set(const char *token)
{
    size_t n = token ? strnlen(token, CALLER_TOKEN_MAX + 1) : 0;
    if (length)
        explicit_bzero(current, length);
    length = 0;
    if (n > CALLER_TOKEN_MAX || !is_plain(token, n))
        return;
    memcpy(current, token, n);
    current[n] = '\0';
    length = (unsigned)n;
}

const char *caller_token(void)
{
    return length ? current : NULL;
}
