/* What the table says about each key, for people: docs/config.md and --help. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_private.h"

static void put_seconds(struct strbuf *to, uint64_t s)
{
    if (s && s % 86400 == 0)
        strbuf_printf(to, "%" PRIu64 "d", s / 86400);
    else if (s && s % 3600 == 0)
        strbuf_printf(to, "%" PRIu64 "h", s / 3600);
    else if (s && s % 60 == 0)
        strbuf_printf(to, "%" PRIu64 "m", s / 60);
    else
        strbuf_printf(to, "%" PRIu64 "s", s);
}

static void put_choices(struct strbuf *to, const char *choices)
{
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        strbuf_printf(to, "%s`%.*s`", p == choices ? "" : ", ", (int)n, p);
        p += n + (p[n] == '|');
    }
}

static void put_type(struct strbuf *to, const struct config_key *key)
{
    static const char *const names[] = {
        [KEY_ADDRESS] = "address:port",   [KEY_TEXT] = "string",
        [KEY_URL] = "http(s) URL",        [KEY_PROXY] = "http(s) or socks5(h) URL",
        [KEY_PREFIX] = "repository name", [KEY_BOOL] = "`true`, `false`",
        [KEY_GLOBS] = "list of globs",    [KEY_ALIASES] = "object",
        [KEY_SECRET] = "secret",          [KEY_LIST] = "list of objects",
        [KEY_HOSTS] = "list of hosts",    [KEY_TOKENS] = "object",
    };
    if (key->type == KEY_NUMBER) {
        strbuf_printf(to, "%" PRIu64 " to %" PRIu64, key->min, key->max);
        if (key->unit)
            strbuf_printf(to, " %s", key->unit);
    } else if (key->type == KEY_DURATION) {
        put_seconds(to, key->min);
        strbuf_puts(to, " to ");
        put_seconds(to, key->max);
    } else if (key->type == KEY_ACTIONS || key->type == KEY_WORDS) {
        strbuf_puts(to, "list of ");
        put_choices(to, key->choices);
    } else if (key->choices) {
        put_choices(to, key->choices);
    } else {
        strbuf_puts(to, names[key->type]);
    }
}

static void put_row(struct strbuf *to, const struct config_key *key)
{
    strbuf_printf(to, "| `%s` | ", key->path);
    put_type(to, key);
    strbuf_puts(to, " | ");
    if (key->fallback)
        strbuf_printf(to, "`%s`", key->fallback);
    else
        strbuf_puts(to, key->use == USE_REQUIRED ? "*required*" : "");
    strbuf_puts(to, " | ");
    _cleanup_strbuf_ struct strbuf name = STRBUF_INIT;
    if (config_key_variable(key, NULL, &name))
        strbuf_printf(to, "`%s`", strbuf_str(&name));
    if (key->flag)
        strbuf_printf(to, " `--%s`", key->flag);
    strbuf_printf(to, " | %s%s |\n",
                  key->use == USE_HUB   ? "kind `huggingface`: "
                  : key->use == USE_OCI ? "kind `oci`: "
                                        : "",
                  key->doc);
}

static void put_table(struct strbuf *to, const char *title, enum key_scope scope)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    strbuf_printf(to, "### %s\n\n| key | value | default | variable, flag | meaning |\n", title);
    strbuf_puts(to, "|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++)
        if (config_key_scope(&keys[i]) == scope)
            put_row(to, &keys[i]);
}

void config_reference(struct strbuf *to)
{
    put_table(to, "The server", SCOPE_ROOT);
    strbuf_putc(to, '\n');
    put_table(to, "Each upstream", SCOPE_UPSTREAM);
    strbuf_putc(to, '\n');
    put_table(to, "Each access rule", SCOPE_ACCESS);
    strbuf_putc(to, '\n');
    put_table(to, "Each rule of immutable tags", SCOPE_IMMUTABLE);
    strbuf_putc(to, '\n');
    put_table(to, "Each policy", SCOPE_POLICY);
}

/* Help texts are for a terminal: the marks of the reference's markdown go. */
static void put_plain(struct strbuf *to, const char *text)
{
    for (; *text; text++)
        if (*text != '`')
            strbuf_putc(to, *text);
}

void config_flags_help(struct strbuf *to)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (!keys[i].flag)
            continue;
        char flag[40];
        snprintf(flag, sizeof(flag), "--%s %s", keys[i].flag,
                 keys[i].type == KEY_ADDRESS ? "ADDRESS:PORT"
                 : keys[i].type == KEY_URL   ? "URL"
                 : keys[i].choices           ? "LEVEL"
                                             : "DIR");
        strbuf_printf(to, "  %-24s ", flag);
        if (config_key_scope(&keys[i]) == SCOPE_UPSTREAM)
            strbuf_puts(to, "of the upstream hf: ");
        put_plain(to, keys[i].doc);
        if (keys[i].fallback)
            strbuf_printf(to, " (default: %s)", keys[i].fallback);
        strbuf_putc(to, '\n');
    }
}
