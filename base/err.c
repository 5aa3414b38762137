#define WB_BASE_ERR_C
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One line in a log and in a JSON body: whatever a peer smuggled into the text is made harmless. */
static void flatten(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = ' ';
}

int err_set(struct error *err, enum err_code code, const char *format, ...)
{
    if (!err)
        return -1;
    /* The arguments may point into err->text itself, so build elsewhere first. */
    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    flatten(text);
    memcpy(err->text, text, sizeof(text));
    err->code = code;
    err->retry_after = 0;
    return -1;
}

int err_wrap(struct error *err, const char *format, ...)
{
    if (!err)
        return -1;
    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n < 0)
        return -1;
    size_t used = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    snprintf(text + used, sizeof(text) - used, ": %s", err->text);
    flatten(text);
    memcpy(err->text, text, sizeof(text));
    return -1;
}

int err_errno(struct error *err, const char *format, ...)
{
    int saved = errno;
    if (!err)
        return -1;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    enum err_code code = ERR_IO;
    if (saved == ENOSPC || saved == EDQUOT)
        code = ERR_NO_SPACE;
    else if (saved == ENOMEM)
        code = ERR_NOMEM;
    errno = saved;
    return err_set(err, code, "%s: %m", text);
}

const char *err_name(enum err_code code)
{
    static const char *const names[] = {
        [ERR_NONE] = "none",           [ERR_NOT_FOUND] = "not_found",
        [ERR_DENIED] = "denied",       [ERR_UNAUTHORIZED] = "unauthorized",
        [ERR_INVALID] = "invalid",     [ERR_DIGEST_MISMATCH] = "digest_mismatch",
        [ERR_TOO_LARGE] = "too_large", [ERR_NO_SPACE] = "no_space",
        [ERR_UPSTREAM] = "upstream",   [ERR_TIMEOUT] = "timeout",
        [ERR_BUSY] = "busy",           [ERR_RATE_LIMITED] = "rate_limited",
        [ERR_CONFLICT] = "conflict",   [ERR_UNSUPPORTED] = "unsupported",
        [ERR_CANCELLED] = "cancelled", [ERR_IO] = "io",
        [ERR_NOMEM] = "nomem",         [ERR_INTERNAL] = "internal",
        [ERR_LOOP] = "loop",
    };
    return (unsigned)code < sizeof(names) / sizeof(names[0]) && names[code] ? names[code]
                                                                            : "internal";
}
