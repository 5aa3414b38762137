/* `config show`: the effective configuration, valid as a configuration file again. Behind each
 * value a comment says where it came from; what is not set, and secrets, are comments altogether.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "config/config_private.h"

#define NO_COMMA SIZE_MAX

struct show {
    const struct config *c;
    struct strbuf *to;
    unsigned depth;
    size_t comma; /* where a comma goes once it is known that another member follows */
};

static void indent(struct show *s)
{
    for (unsigned i = 0; i < s->depth; i++)
        strbuf_puts(s->to, "  ");
}

/* Before each member or element: the comma behind the one before it, in front of its comment. */
static void begin_member(struct show *s)
{
    if (s->comma != NO_COMMA) {
        strbuf_putc(s->to, ',');
        if (!strbuf_failed(s->to)) {
            char *at = s->to->data + s->comma;
            memmove(at + 1, at, s->to->len - 1 - s->comma);
            *at = ',';
        }
    }
    indent(s);
}

static void open_bracket(struct show *s, char bracket)
{
    strbuf_putc(s->to, bracket);
    s->depth++;
    s->comma = NO_COMMA;
}

static void close_bracket(struct show *s, char bracket)
{
    s->depth--;
    indent(s);
    strbuf_putc(s->to, bracket);
    s->comma = s->to->len;
}

/* A comment up to the end of the line; a file's name must not end it early. */
static void put_comment(struct show *s, const char *text)
{
    for (; *text; text++) {
        bool control = (unsigned char)*text < 0x20 || *text == 0x7f;
        strbuf_put(s->to, control ? "?" : text, 1);
    }
    strbuf_putc(s->to, '\n');
}

static void put_from(struct show *s, const char *path)
{
    const char *from = origin_get(s->c, path);
    strbuf_puts(s->to, " // ");
    put_comment(s, from ? from : "default");
}

static void put_strings(struct strbuf *to, const struct config_strings *list)
{
    strbuf_putc(to, '[');
    for (size_t i = 0; i < list->n; i++) {
        strbuf_puts(to, i ? ", " : "");
        json_put_string(to, list->items[i]);
    }
    strbuf_putc(to, ']');
}

static void put_pair(struct strbuf *to, bool first, const char *key, const char *value)
{
    strbuf_puts(to, first ? "" : ", ");
    json_put_string(to, key);
    strbuf_puts(to, ": ");
    json_put_string(to, value);
}

static void put_aliases(struct strbuf *to, const struct config_upstream *u)
{
    strbuf_putc(to, '{');
    for (size_t i = 0; i < u->n_aliases; i++)
        put_pair(to, i == 0, u->aliases[i].name, u->aliases[i].id);
    strbuf_putc(to, '}');
}

/* The names of the files; what is in them is nowhere shown. */
static void put_tokens(struct strbuf *to, const struct config_upstream *u)
{
    strbuf_putc(to, '{');
    for (size_t i = 0; i < u->n_token_files; i++)
        put_pair(to, i == 0, u->token_files[i].repositories, u->token_files[i].file);
    strbuf_putc(to, '}');
}

static void put_choice(struct strbuf *to, const char *choices, unsigned index)
{
    while (index--)
        choices = strchr(choices, '|') + 1;
    strbuf_putc(to, '"');
    strbuf_put(to, choices, strcspn(choices, "|"));
    strbuf_putc(to, '"');
}

static void put_actions(struct strbuf *to, const char *choices, unsigned bits)
{
    const char *comma = "";
    strbuf_putc(to, '[');
    for (unsigned i = 0; i < 4; i++) {
        if (!(bits & 1u << i))
            continue;
        strbuf_puts(to, comma);
        put_choice(to, choices, i);
        comma = ", ";
    }
    strbuf_putc(to, ']');
}

static uint64_t load_number(const void *field, size_t size)
{
    if (size == sizeof(bool))
        return *(const bool *)field;
    if (size == sizeof(uint64_t))
        return *(const uint64_t *)field;
    return *(const unsigned *)field;
}

static void put_address(struct strbuf *to, const struct config *c)
{
    bool v6 = strchr(c->listen_host, ':') != NULL;
    strbuf_printf(to, "\"%s%s%s:%u\"", v6 ? "[" : "", c->listen_host, v6 ? "]" : "",
                  c->listen_port);
}

/* False: not set. */
static bool put_value(struct strbuf *to, const void *base, const struct config_key *key)
{
    const void *field = (const char *)base + key->offset;
    const char *text;
    switch (key->type) {
    case KEY_ADDRESS:
        put_address(to, base);
        return true;
    case KEY_TEXT:
    case KEY_URL:
    case KEY_PROXY:
    case KEY_PREFIX:
    case KEY_WORD:
        text = *(char *const *)field;
        if (!text && key->type == KEY_PROXY)
            text = "none";
        if (text)
            json_put_string(to, text);
        return text != NULL;
    case KEY_INDEX:
        put_choice(to, key->choices, (unsigned)load_number(field, key->size));
        return true;
    case KEY_BOOL:
        strbuf_puts(to, load_number(field, key->size) ? "true" : "false");
        return true;
    case KEY_NUMBER:
        strbuf_printf(to, "%" PRIu64, load_number(field, key->size));
        return true;
    case KEY_DURATION:
        strbuf_printf(to, "\"%" PRIu64 "s\"", load_number(field, key->size));
        return true;
    case KEY_GLOBS:
    case KEY_HOSTS:
    case KEY_WORDS:
        put_strings(to, field);
        return true;
    case KEY_TOKENS:
        put_tokens(to, base);
        return true;
    case KEY_ALIASES:
        put_aliases(to, base);
        return true;
    case KEY_ACTIONS:
        put_actions(to, key->choices, *(const unsigned *)field);
        return true;
    case KEY_SECRET:
    case KEY_LIST:
        break;
    }
    return false;
}

/* The last part of a key's path. */
static const char *leaf(const struct config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot ? dot + 1 : key->path;
}

/* A proxy's URL with a password in it is shown as a comment, the password masked. True: done. */
static bool show_proxy_password(struct show *s, const struct config_upstream *u, const char *path)
{
    const char *authority = u->proxy ? strstr(u->proxy, "://") + 3 : NULL;
    const char *at = authority ? memrchr(authority, '@', strcspn(authority, "/")) : NULL;
    if (!at)
        return false;
    indent(s);
    strbuf_printf(s->to, "// \"proxy\": \"%.*s***%s\"", (int)(authority - u->proxy), u->proxy, at);
    strbuf_puts(s->to, " from ");
    const char *from = origin_get(s->c, path);
    put_comment(s, from ? from : "default");
    return true;
}

static void show_secret(struct show *s, const struct config_key *key,
                        const struct config_upstream *u, const char *path)
{
    bool is_token = strcmp(leaf(key), "token") == 0;
    const char *from = is_token ? u->token_from : origin_get(s->c, path);
    indent(s);
    if (is_token ? u->token : u->password) {
        strbuf_printf(s->to, "// \"%s\": \"***\" from ", leaf(key));
        put_comment(s, from ? from : "default");
    } else {
        bool is_anonymous = is_token && !u->username && !u->docker_config;
        strbuf_printf(s->to, "// \"%s\" is not set%s\n", leaf(key),
                      is_anonymous ? ": anonymous" : "");
    }
}

static void show_key(struct show *s, const struct config_key *key, const void *base,
                     const char *path)
{
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    if (key->type == KEY_SECRET) {
        show_secret(s, key, base, path);
        return;
    }
    if (key->type == KEY_PROXY && show_proxy_password(s, base, path))
        return;
    if (!put_value(&value, base, key)) {
        indent(s);
        strbuf_printf(s->to, "// \"%s\" is not set\n", leaf(key));
        return;
    }
    s->to->failed |= value.failed;
    begin_member(s);
    strbuf_printf(s->to, "\"%s\": %s", leaf(key), strbuf_str(&value));
    s->comma = s->to->len;
    put_from(s, path);
}

static void show_element(struct show *s, enum key_scope scope, const char *list, size_t index,
                         const void *base)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    begin_member(s);
    open_bracket(s, '{');
    strbuf_putc(s->to, '\n');
    for (size_t i = 0; i < n; i++) {
        char path[200];
        if (config_key_scope(&keys[i]) != scope)
            continue;
        if (scope == SCOPE_UPSTREAM &&
            !config_key_is_for(&keys[i], ((const struct config_upstream *)base)->kind))
            continue; /* it would be refused when what is shown is loaded */
        snprintf(path, sizeof(path), "%s[%zu].%s", list, index, config_key_name(&keys[i]));
        show_key(s, &keys[i], base, path);
    }
    close_bracket(s, '}');
    strbuf_putc(s->to, '\n');
}

static void show_list(struct show *s, const struct config_list *list)
{
    size_t n = list_length(s->c, list);
    if (n == 0 && list->when_empty) {
        indent(s);
        strbuf_printf(s->to, "// \"%s\" is not set: %s\n", list->path, list->when_empty);
        return;
    }
    begin_member(s);
    strbuf_printf(s->to, "\"%s\": ", list->path);
    open_bracket(s, '[');
    put_from(s, list->path);
    for (size_t i = 0; i < n; i++)
        show_element(s, list->scope, list->path, i, list_element(s->c, list, i));
    close_bracket(s, ']');
    strbuf_putc(s->to, '\n');
}

/* Opens and closes the objects that dotted paths stand in. */
static void change_section(struct show *s, char section[static 64], const char *path)
{
    const char *dot = strchr(path, '.');
    size_t n = dot ? (size_t)(dot - path) : 0;
    if (strlen(section) == n && strncmp(section, path, n) == 0)
        return;
    if (section[0]) {
        close_bracket(s, '}');
        strbuf_putc(s->to, '\n');
    }
    snprintf(section, 64, "%.*s", (int)n, path);
    if (n) {
        begin_member(s);
        strbuf_printf(s->to, "\"%s\": ", section);
        open_bracket(s, '{');
        strbuf_putc(s->to, '\n');
    }
}

int config_show(const struct config *c, struct strbuf *to, struct error *err)
{
    struct show s = {.c = c, .to = to, .comma = NO_COMMA};
    char section[64] = "";
    size_t n;
    const struct config_key *keys = config_keys(&n);
    open_bracket(&s, '{');
    strbuf_putc(to, '\n');
    for (size_t i = 0; i < n; i++) {
        if (config_key_scope(&keys[i]) != SCOPE_ROOT)
            continue;
        change_section(&s, section, keys[i].path);
        const struct config_list *list = config_key_list(&keys[i]);
        if (list)
            show_list(&s, list);
        else
            show_key(&s, &keys[i], c, keys[i].path);
    }
    change_section(&s, section, "");
    close_bracket(&s, '}');
    strbuf_putc(to, '\n');
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}
