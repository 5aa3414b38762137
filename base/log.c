#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/strbuf.h"

static atomic_int threshold = LOG_INFO;

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *ret)
{
    for (unsigned i = 0; i < ARRAY_LEN(level_names); i++)
        if (strcmp(name, level_names[i]) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

static void put_value(struct strbuf *b, const char *text)
{
    bool plain = *text != '\0';
    for (const unsigned char *p = (const unsigned char *)text; *p && plain; p++)
        plain = *p > ' ' && *p < 0x7f && *p != '"' && *p != '=' && *p != '\\';
    if (plain) {
        strbuf_puts(b, text);
        return;
    }
    strbuf_putc(b, '"');
    const unsigned char *p = (const unsigned char *)text;
    for (size_t left = strlen(text); left;) {
        /* Terminals obey C1 controls (U+0080..U+009F) as well; collectors refuse invalid UTF-8. */
        unsigned step = utf8_sequence(p, left);
        bool control = *p < 0x20 || *p == 0x7f || (step == 2 && *p == 0xc2 && p[1] < 0xa0);
        if (*p == '"' || *p == '\\') {
            strbuf_printf(b, "\\%c", *p);
        } else if (*p == '\n') {
            strbuf_puts(b, "\\n");
        } else if (control || !step) {
            strbuf_printf(b, "\\x%02x", *p);
            step = 1;
        } else {
            strbuf_put(b, p, step);
        }
        p += step;
        left -= step;
    }
    strbuf_putc(b, '"');
}

/* By hand: a line of an access log has a few of them. */
static void put_number(struct strbuf *b, uint64_t n)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    strbuf_put(b, digits + at, sizeof(digits) - at);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    char now[32];
    strbuf_reserve(&b, 500); /* most lines fit */
    strbuf_puts(&b, "time=");
    strbuf_puts(&b, clock_format_now(now));
    strbuf_puts(&b, " level=");
    strbuf_puts(&b, level_names[level]);
    strbuf_puts(&b, " event=");
    strbuf_puts(&b, event);
    for (const struct log_field *f = fields; f && f->key; f++) {
        if (f->text && !*f->text)
            continue;
        strbuf_putc(&b, ' ');
        strbuf_puts(&b, f->key);
        strbuf_putc(&b, '=');
        if (f->text)
            put_value(&b, f->text);
        else
            put_number(&b, f->number);
    }
    strbuf_putc(&b, '\n');
    if (strbuf_failed(&b))
        return;
    size_t done = 0;
    while (done < b.len) {
        ssize_t n = write(STDERR_FILENO, b.data + done, b.len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere left to say it */
        done += (size_t)n;
    }
}

char *log_url(const char *url, char *buf, unsigned size)
{
    if (!size)
        return buf;
    /* A "://" behind the first of these is no scheme's: it may stand in the query. */
    const char *host = url + strcspn(url, ":/?#");
    host = strncmp(host, "://", 3) == 0 ? host + 3 : url;
    size_t authority = strcspn(host, "/?#");
    const char *at = NULL;
    for (size_t i = 0; i < authority; i++)
        if (host[i] == '@')
            at = host + i;
    const char *rest = at ? at + 1 : host;
    snprintf(buf, size, "%.*s%.*s", (int)(host - url), url, (int)strcspn(rest, "?#"), rest);
    return buf;
}
