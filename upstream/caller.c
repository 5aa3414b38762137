#include "upstream/caller.h"

#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/strbuf.h"

#define PAIR_MAX ((size_t)4 * CALLER_TOKEN_MAX) /* bytes of a name and a token, in base64 */

static _Thread_local char current[CALLER_TOKEN_MAX + 1];
static _Thread_local unsigned length;
static _Thread_local uint64_t waiting_since_ms;

bool caller_token_is_plain(const char *token, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)token[i] <= ' ' || (unsigned char)token[i] >= 0x7f)
            return false;
    return n > 0;
}

static void set(const char *token, size_t n)
{
    if (length)
        explicit_bzero(current, length);
    length = 0;
    if (n > CALLER_TOKEN_MAX || !caller_token_is_plain(token, n))
        return;
    memcpy(current, token, n);
    current[n] = '\0';
    length = (unsigned)n;
}

void caller_set(const char *token)
{
    set(token, token ? strnlen(token, CALLER_TOKEN_MAX + 1) : 0);
}

const char *caller_token(void)
{
    return length ? current : NULL;
}

/* What follows the scheme, NULL when it is another one. */
static const char *behind(const char *value, const char *scheme)
{
    size_t n = strlen(scheme);
    if (strncasecmp(value, scheme, n) != 0 || value[n] != ' ')
        return NULL;
    return value + n + strspn(value + n, " ");
}

/* A client that can only be given a name and a password has the token for its password. */
static void set_password(const char *encoded, size_t n)
{
    _cleanup_strbuf_ struct strbuf pair = STRBUF_INIT;
    if (base64_decode(encoded, n, &pair) && !strbuf_failed(&pair) && pair.len) {
        const char *colon = memchr(pair.data, ':', pair.len);
        if (colon && !memchr(pair.data, '\0', pair.len))
            caller_set(colon + 1);
    }
    if (pair.len)
        explicit_bzero(pair.data, pair.len);
}

/* Spaces behind a header's value are none of it. */
static size_t length_of(const char *value)
{
    size_t n = strlen(value);
    while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        n--;
    return n;
}

void caller_set_authorization(const char *value)
{
    const char *token = value ? behind(value, "Bearer") : NULL;
    const char *pair = value ? behind(value, "Basic") : NULL;
    set(token, token ? length_of(token) : 0);
    /* Longer than that with any name before it is no token either way. */
    if (pair && length_of(pair) <= PAIR_MAX)
        set_password(pair, length_of(pair));
}

void caller_set_waiting(uint64_t since_ms)
{
    waiting_since_ms = since_ms;
}

uint64_t caller_deadline(uint64_t most_ms)
{
    return (waiting_since_ms ? waiting_since_ms : clock_monotonic_ms()) + most_ms;
}
