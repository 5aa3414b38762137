/* Files as texts, taken and refused. Header-only: every test program is one source file. */
#ifndef WB_TESTS_CONFIG_TEXT_H
#define WB_TESTS_CONFIG_TEXT_H

#include <criterion/criterion.h>
#include <string.h>

#include "config/config.h"

static inline struct config *parse(const char *text)
{
    struct config *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(config_parse_text("f.json", text, strlen(text), &c, &err), 0, "%s: %s", text,
                 err.text);
    return c;
}

static inline void refused(const char *text, const char *want)
{
    struct config *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_lt(config_parse_text("f.json", text, strlen(text), &c, &err), 0, "accepted: %s",
                 text);
    cr_assert_null(c);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert(strstr(err.text, want), "%s\n  gives  %s\n  wanted %s", text, err.text, want);
    cr_assert_not(strchr(err.text, '\n'));
}

#endif
