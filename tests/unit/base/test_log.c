#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/strbuf.h"

/* The tests run each in a process of its own: standard error can be taken away. */
static int captured = -1;

static void capture(void)
{
    char path[] = "/tmp/weighbridge-log-XXXXXX";
    captured = mkstemp(path);
    cr_assert_geq(captured, 0);
    unlink(path);
    cr_assert_geq(dup2(captured, STDERR_FILENO), 0);
}

static const char *said(void)
{
    static char text[8192];
    ssize_t n = pread(captured, text, sizeof(text) - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = '\0';
    return text;
}

/* What stands behind `event=...` of the only line. */
static const char *fields(void)
{
    const char *at = strstr(said(), " event=e");
    cr_assert_not_null(at);
    return at + strlen(" event=e");
}

Test(log, a_line_is_logfmt, .init = capture)
{
    log_event(LOG_WARN, "e", LOG_S("s", "plain"), LOG_N("n", UINT64_MAX), LOG_S("u", "http://h/a"));
    cr_assert_eq(strncmp(said(), "time=2", 6), 0);
    cr_assert_not_null(strstr(said(), "Z level=warn event=e "));
    cr_assert_str_eq(fields(), " s=plain n=18446744073709551615 u=http://h/a\n");
}

Test(log, values_cannot_leave_their_field, .init = capture)
{
    log_event(LOG_ERROR, "e", LOG_S("a", "x y"), LOG_S("b", "q\"\\"),
              LOG_S("c", "1\n2\r\t\x1b\x7f"), LOG_S("d", "k=v"), LOG_S("e", "\xc3\xa9"));
    cr_assert_str_eq(fields(),
                     " a=\"x y\" b=\"q\\\"\\\\\" c=\"1\\n2\\x0d\\x09\\x1b\\x7f\" d=\"k=v\" "
                     "e=\"\xc3\xa9\"\n");
}

Test(log, terminals_and_collectors_are_safe, .init = capture)
{
    log_event(LOG_ERROR, "e", LOG_S("a", "\xff\xc2"),
              LOG_S("b", "\xc2\x9b"
                         "31m"),
              LOG_S("c", "\xc2\xa0"));
    cr_assert_str_eq(fields(), " a=\"\\xff\\xc2\" b=\"\\xc2\\x9b31m\" c=\"\xc2\xa0\"\n");
}

Test(log, empty_and_missing_texts_are_left_out, .init = capture)
{
    const char *none = NULL;
    log_event(LOG_INFO, "e", LOG_S("a", ""), LOG_S("b", none), LOG_N("c", 0));
    cr_assert_str_eq(fields(), " c=0\n");
}

Test(log, the_level_filters, .init = capture)
{
    log_event(LOG_DEBUG, "hidden", LOG_N("n", 1));
    cr_assert_str_eq(said(), "");
    log_set_level(LOG_DEBUG);
    cr_assert(log_enabled(LOG_DEBUG));
    log_event(LOG_DEBUG, "e", LOG_N("n", 1));
    cr_assert_str_eq(fields(), " n=1\n");
    log_set_level(LOG_ERROR);
    cr_assert_not(log_enabled(LOG_WARN));
    cr_assert(log_enabled(LOG_ERROR));
}

Test(log, levels_by_name)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    enum log_level level;
    for (int i = 0; i < 4; i++) {
        cr_assert(log_level_parse(names[i], &level));
        cr_assert_eq((int)level, i);
    }
    cr_assert_not(log_level_parse("WARN", &level));
    cr_assert_not(log_level_parse("", &level));
    cr_assert_eq(level, LOG_DEBUG);
}

static void url_is(const char *url, const char *expected)
{
    char buf[200];
    cr_assert_str_eq(log_url(url, buf, sizeof(buf)), expected);
}

Test(log, urls_lose_their_secrets)
{
    url_is("https://h/p", "https://h/p");
    url_is("https://user:pass@h:1/p?sig=S#f", "https://h:1/p");
    url_is("https://user:p@ss@h/p", "https://h/p");
    url_is("https://h?sig=S", "https://h");
    url_is("https://h#S", "https://h");
    url_is("https://h/a@b", "https://h/a@b");
    url_is("user:pass@h/p?x", "h/p");
    url_is("/p?sig=S&next=http://h/q", "/p");
    url_is("/p#http://u:S@h/", "/p");
    url_is("", "");
}

Test(log, urls_are_cut_to_the_buffer)
{
    char buf[8] = "#######";
    cr_assert_str_eq(log_url("https://host/path", buf, sizeof(buf)), "https:/");
    buf[0] = '#';
    log_url("https://host/", buf, 0);
    cr_assert_eq(buf[0], '#');
}
