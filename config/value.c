/* One value into one field, by the type in the table. Error texts repeat the value only where it
 * can be no secret: never a URL (passwords), never a file name that may be a misplaced token. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "base/ref.h"
#include "config/config_private.h"

int place_fail(const struct place *at, struct error *err, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!at)
        return err_set(err, ERR_INTERNAL, "default of a configuration key: %s", text);
    const char *colon = at->path[0] ? ": " : ""; /* the document itself has no path */
    if (at->source->kind == SOURCE_FILE)
        return err_set(err, ERR_INVALID, "%.200s:%u: %.200s%s%s", at->source->name, at->line,
                       at->path, colon, text);
    return err_set(err, ERR_INVALID, "%.200s: %.200s%s%s", at->source->name, at->path, colon, text);
}

#ifdef __clang_analyzer__ /* see base/err.h */
#define place_fail(...) (place_fail(__VA_ARGS__), -1)
#endif

static int no_memory(struct error *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for the configuration");
}

static int replace_text(char **field, const char *text, size_t len, struct error *err)
{
    char *copy = strndup(text, len);
    if (!copy)
        return no_memory(err);
    free(*field);
    *field = copy;
    return 0;
}

static int wrong_type(const char *wanted, const struct jsonc *node, const struct place *at,
                      struct error *err)
{
    return place_fail(at, err, "must be %s, not %s", wanted, jsonc_type_name(node->type));
}

/* The text of a string that is neither empty, nor too long, nor has control characters. */
static int get_text(const struct config_key *key, const struct jsonc *node, const struct place *at,
                    const char **ret, struct error *err)
{
    if (node->type != JSONC_STRING)
        return wrong_type("a string", node, at, err);
    size_t n = strlen(node->text);
    if (n == 0)
        return place_fail(at, err, "must not be empty");
    if (key->max && n > key->max)
        return place_fail(at, err, "is longer than %" PRIu64 " bytes", key->max);
    for (const unsigned char *p = (const unsigned char *)node->text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return place_fail(at, err, "holds a control character");
    *ret = node->text;
    return 0;
}

static void store_number(void *field, size_t size, uint64_t n)
{
    if (size == sizeof(bool))
        *(bool *)field = n != 0;
    else if (size == sizeof(uint64_t))
        *(uint64_t *)field = n;
    else
        *(unsigned *)field = (unsigned)n;
}

static int set_number(void *field, const struct config_key *key, const struct jsonc *node,
                      const struct place *at, struct error *err)
{
    if (node->type != JSONC_NUMBER)
        return wrong_type("a number", node, at, err);
    if (!(node->number >= (double)key->min && node->number <= (double)key->max) ||
        node->number != (double)(uint64_t)node->number)
        return place_fail(at, err, "must be a whole number from %" PRIu64 " to %" PRIu64 "%s%s",
                          key->min, key->max, key->unit ? " " : "", key->unit ? key->unit : "");
    store_number(field, key->size, (uint64_t)node->number);
    return 0;
}

static int set_bool(void *field, const struct config_key *key, const struct jsonc *node,
                    const struct place *at, struct error *err)
{
    if (node->type != JSONC_BOOL)
        return wrong_type("true or false", node, at, err);
    store_number(field, key->size, node->truth);
    return 0;
}

bool config_duration_parse(const char *s, uint64_t *ret)
{
    static const struct {
        const char *unit;
        unsigned seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    uint64_t n = 0;
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || digits > 9)
        return false;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (unsigned)(s[i] - '0');
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(s + digits, units[i].unit) == 0) {
            *ret = n * units[i].seconds;
            return true;
        }
    }
    return false;
}

static int set_duration(void *field, const struct config_key *key, const struct jsonc *node,
                        const struct place *at, struct error *err)
{
    uint64_t n = 0;
    if (node->type == JSONC_NUMBER)
        return set_number(field, key, node, at, err);
    if (node->type != JSONC_STRING)
        return wrong_type("a duration such as \"90s\"", node, at, err);
    if (!config_duration_parse(node->text, &n))
        return place_fail(at, err,
                          "\"%.40s\" is no duration: whole seconds, or a number with s, m, h or d",
                          node->text);
    if (n < key->min || n > key->max)
        return place_fail(at, err, "must be from %" PRIu64 "s to %" PRIu64 "s", key->min, key->max);
    store_number(field, key->size, n);
    return 0;
}

static int set_choice(void *field, const struct config_key *key, const struct jsonc *node,
                      const struct place *at, struct error *err)
{
    const char *text;
    if (get_text(key, node, at, &text, err) < 0)
        return -1;
    int index = config_choice(key->choices, text);
    if (index < 0)
        return place_fail(at, err, "\"%.40s\" is not one of %s", text, key->choices);
    if (key->type == KEY_WORD)
        return replace_text(field, text, strlen(text), err);
    store_number(field, key->size, (uint64_t)index);
    return 0;
}

/* host:port or [v6]:port, an address, no name: what is listened on should not depend on a
 * resolver. */
static int set_address(struct config *c, const struct config_key *key, const struct jsonc *node,
                       const struct place *at, struct error *err)
{
    const char *text;
    char host[64];
    unsigned char raw[16];
    if (get_text(key, node, at, &text, err) < 0)
        return -1;
    bool bracket = text[0] == '[';
    const char *end = bracket ? strstr(text, "]:") : strchr(text, ':');
    const char *begin = text + bracket;
    const char *port = end ? end + 1 + bracket : "";
    size_t n = end ? (size_t)(end - begin) : 0;
    unsigned number = 0;
    if (!end || n >= sizeof(host) || !port_parse(port, strlen(port), &number))
        return place_fail(at, err, "\"%.80s\" is not address:port or [v6-address]:port", text);
    memcpy(host, begin, n);
    host[n] = '\0';
    if (number > PORT_MAX)
        return place_fail(at, err, "port %s is over 65535", port);
    if (!bracket && strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (inet_pton(bracket ? AF_INET6 : AF_INET, host, raw) != 1)
        return place_fail(
            at, err, "\"%.63s\" is not an IP address (0.0.0.0 or [::] means every address)", host);
    if (replace_text(&c->listen_host, host, strlen(host), err) < 0)
        return -1;
    c->listen_port = (uint16_t)number;
    return 0;
}

static int set_url(char **field, const struct config_key *key, const struct jsonc *node,
                   const struct place *at, struct error *err)
{
    const char *text, *wrong;
    if (get_text(key, node, at, &text, err) < 0)
        return -1;
    bool proxy = key->type == KEY_PROXY;
    if (proxy && strcmp(text, "none") == 0)
        return replace_text(field, text, strlen(text), err);
    wrong = url_check(text, proxy ? PROXY_SCHEMES : "http|https", proxy);
    if (wrong)
        return place_fail(at, err, "%s", wrong);
    size_t n = strlen(text);
    while (text[n - 1] == '/')
        n--;
    return replace_text(field, text, n, err);
}

static int set_prefix(char **field, const struct config_key *key, const struct jsonc *node,
                      const struct place *at, struct error *err)
{
    const char *text;
    if (get_text(key, node, at, &text, err) < 0)
        return -1;
    if (!repository_is_valid(text))
        return place_fail(at, err,
                          "\"%.100s\" can not begin a repository name: lower-case letters, digits, "
                          "'.', '_', '-', parts joined by '/'",
                          text);
    return replace_text(field, text, strlen(text), err);
}

static void strings_free(struct config_strings *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->items[i]);
    free(s->items);
    *s = (struct config_strings){0};
}

static size_t count_children(const struct jsonc *node)
{
    size_t n = 0;
    for (const struct jsonc *c = node->first; c; c = c->next)
        n++;
    return n;
}

static int set_strings(struct config_strings *field, const struct config_key *key,
                       const struct jsonc *node, const struct place *at, struct error *err)
{
    if (node->type != JSONC_ARRAY)
        return wrong_type("a list of strings", node, at, err);
    struct config_strings list = {0};
    list.items = calloc(count_children(node) + 1, sizeof(*list.items));
    if (!list.items)
        return no_memory(err);
    for (const struct jsonc *c = node->first; c; c = c->next) {
        char path[200];
        const char *text = NULL;
        snprintf(path, sizeof(path), "%s[%zu]", at->path, list.n);
        struct place here = {at->source, c->line, path};
        if (get_text(key, c, &here, &text, err) < 0 ||
            replace_text(&list.items[list.n], text, strlen(text), err) < 0) {
            strings_free(&list);
            return -1;
        }
        list.n++;
    }
    strings_free(field);
    *field = list;
    return 0;
}

/* host[:port], as it stands in a registry's URL and in what clients ask for. */
static int set_hosts(struct config_strings *field, const struct config_key *key,
                     const struct jsonc *node, const struct place *at, struct error *err)
{
    struct config_strings list = {0};
    if (set_strings(&list, key, node, at, err) < 0)
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        char url[300];
        snprintf(url, sizeof(url), "https://%.255s", list.items[i]);
        if (!strchr(list.items[i], '/') && !url_check(url, "http|https", false)) {
            for (char *p = list.items[i]; *p; p++)
                *p = (char)tolower((unsigned char)*p);
            continue;
        }
        place_fail(at, err, "\"%.100s\" is no host or host:port", list.items[i]);
        strings_free(&list);
        return -1;
    }
    strings_free(field);
    *field = list;
    return 0;
}

/* Words that are each one of the key's choices. */
static int set_words(struct config_strings *field, const struct config_key *key,
                     const struct jsonc *node, const struct place *at, struct error *err)
{
    struct config_strings list = {0};
    if (set_strings(&list, key, node, at, err) < 0)
        return -1;
    for (size_t i = 0; i < list.n; i++) {
        char path[200];
        struct place here = {at->source, at->line, path};
        snprintf(path, sizeof(path), "%s[%zu]", at->path, i);
        if (config_choice(key->choices, list.items[i]) >= 0)
            continue;
        place_fail(&here, err, "\"%.40s\" is not one of %s", list.items[i], key->choices);
        strings_free(&list);
        return -1;
    }
    strings_free(field);
    *field = list;
    return 0;
}

static void tokens_free(struct config_token_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(files[i].repositories);
        free(files[i].file);
        if (files[i].token)
            explicit_bzero(files[i].token, strlen(files[i].token));
        free(files[i].token);
    }
    free(files);
}

/* The text of a file's name is not repeated: it may be the token, put into the wrong place. */
static int set_tokens(struct config_upstream *u, const struct config_key *key,
                      const struct jsonc *node, const struct place *at, struct error *err)
{
    if (node->type != JSONC_OBJECT)
        return wrong_type("an object of globs and files", node, at, err);
    size_t n = 0;
    int r = 0;
    struct config_token_file *list = calloc(count_children(node) + 1, sizeof(*list));
    if (!list)
        return no_memory(err);
    for (const struct jsonc *c = node->first; r == 0 && c; c = c->next, n++) {
        struct place here = {at->source, c->line, at->path};
        if (!*c->key || strlen(c->key) > REPOSITORY_MAX)
            r = place_fail(&here, err, "a glob must have from 1 to %d bytes", REPOSITORY_MAX);
        else if (c->type != JSONC_STRING || !*c->text || strlen(c->text) > key->max)
            r = place_fail(&here, err, "\"%.100s\" must be the name of a file", c->key);
        else if (replace_text(&list[n].repositories, c->key, strlen(c->key), err) < 0 ||
                 replace_text(&list[n].file, c->text, strlen(c->text), err) < 0)
            r = -1;
    }
    if (r < 0) {
        tokens_free(list, n);
        return -1;
    }
    tokens_free(u->token_files, u->n_token_files);
    u->token_files = list;
    u->n_token_files = n;
    return 0;
}

static void aliases_free(struct config_alias *aliases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(aliases[i].name);
        free(aliases[i].id);
    }
    free(aliases);
}

/* The Hub's spelling: one or two parts of letters, digits, '.', '_', '-'. */
static bool is_hub_id(const char *id)
{
    unsigned slashes = 0;
    if (strlen(id) > REPOSITORY_MAX || strstr(id, ".."))
        return false;
    for (const char *p = id; *p; p++) {
        if (*p == '/' && (p == id || !p[1] || ++slashes > 1))
            return false;
        if (*p != '/' && !isalnum((unsigned char)*p) && !strchr("._-", *p))
            return false;
    }
    return id[0] != '\0';
}

static int parse_alias(const struct jsonc *node, const struct place *at, struct config_alias *ret,
                       struct error *err)
{
    char name[REPOSITORY_MAX + 1];
    if (!ascii_lower(node->key, name, sizeof(name)) || !repository_is_valid(name))
        return place_fail(at, err, "\"%.100s\" is not a repository name", node->key);
    if (node->type != JSONC_STRING || !is_hub_id(node->text))
        return place_fail(at, err, "the alias of \"%.100s\" must be an id such as \"Org/Name\"",
                          name);
    if (replace_text(&ret->name, name, strlen(name), err) < 0)
        return -1;
    return replace_text(&ret->id, node->text, strlen(node->text), err);
}

static int compare_aliases(const void *a, const void *b)
{
    return strcmp(((const struct config_alias *)a)->name, ((const struct config_alias *)b)->name);
}

static int set_aliases(struct config_upstream *u, const struct jsonc *node, const struct place *at,
                       struct error *err)
{
    if (node->type != JSONC_OBJECT)
        return wrong_type("an object of names and ids", node, at, err);
    size_t n = 0;
    struct config_alias *list = calloc(count_children(node) + 1, sizeof(*list));
    if (!list)
        return no_memory(err);
    for (const struct jsonc *c = node->first; c; c = c->next) {
        struct place here = {at->source, c->line, at->path};
        if (parse_alias(c, &here, &list[n++], err) < 0) {
            aliases_free(list, n);
            return -1;
        }
    }
    qsort(list, n, sizeof(*list), compare_aliases);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(list[i - 1].name, list[i].name) == 0) {
            place_fail(at, err, "\"%.100s\" comes twice (upper and lower case are the same here)",
                       list[i].name);
            aliases_free(list, n);
            return -1;
        }
    }
    aliases_free(u->aliases, u->n_aliases);
    u->aliases = list;
    u->n_aliases = n;
    return 0;
}

static int set_actions(unsigned *field, const struct config_key *key, const struct jsonc *node,
                       const struct place *at, struct error *err)
{
    unsigned bits = 0;
    if (node->type != JSONC_ARRAY)
        return wrong_type("a list of actions", node, at, err);
    for (const struct jsonc *c = node->first; c; c = c->next) {
        struct place here = {at->source, c->line, at->path};
        int index = c->type == JSONC_STRING ? config_choice(key->choices, c->text) : -1;
        if (index < 0 && c->type == JSONC_STRING)
            return place_fail(&here, err, "\"%.40s\" is not one of %s", c->text, key->choices);
        if (index < 0)
            return wrong_type("a list of strings", c, &here, err);
        bits |= 1u << index; /* the choices stand in the order of enum access_action */
    }
    *field = bits;
    return 0;
}

int value_set(void *base, const struct config_key *key, const struct jsonc *node,
              const struct place *at, struct error *err)
{
    void *field = (char *)base + key->offset;
    const char *text;
    if (!at && key->type >= KEY_GLOBS)
        return err_set(err, ERR_INTERNAL, "configuration key %s has a default", key->path);
    switch (key->type) {
    case KEY_ADDRESS:
        return set_address(base, key, node, at, err);
    case KEY_TEXT:
        if (get_text(key, node, at, &text, err) < 0)
            return -1;
        return replace_text(field, text, strlen(text), err);
    case KEY_URL:
    case KEY_PROXY:
        return set_url(field, key, node, at, err);
    case KEY_PREFIX:
        return set_prefix(field, key, node, at, err);
    case KEY_WORD:
    case KEY_INDEX:
        return set_choice(field, key, node, at, err);
    case KEY_BOOL:
        return set_bool(field, key, node, at, err);
    case KEY_NUMBER:
        return set_number(field, key, node, at, err);
    case KEY_DURATION:
        return set_duration(field, key, node, at, err);
    case KEY_GLOBS:
        return set_strings(field, key, node, at, err);
    case KEY_HOSTS:
        return set_hosts(field, key, node, at, err);
    case KEY_WORDS:
        return set_words(field, key, node, at, err);
    case KEY_ALIASES:
        return set_aliases(base, node, at, err);
    case KEY_TOKENS:
        return set_tokens(base, key, node, at, err);
    case KEY_ACTIONS:
        return set_actions(field, key, node, at, err);
    case KEY_SECRET:
        return place_fail(at, err,
                          "a secret does not belong in the configuration file: use %s_file or an "
                          "environment variable",
                          config_key_name(key));
    case KEY_LIST:
        break; /* lists of objects are document.c's */
    }
    return err_set(err, ERR_INTERNAL, "configuration key %s has no setter", key->path);
}

/* Types whose text form is not JSON. */
static bool is_plain(enum key_type type)
{
    return type <= KEY_INDEX || type == KEY_DURATION;
}

int value_set_text(void *base, const struct config_key *key, const char *text,
                   const struct place *at, struct error *err)
{
    _cleanup_jsonc_ struct jsonc *node = NULL;
    unsigned line = 0;
    if (!is_plain(key->type)) {
        struct error why = ERROR_INIT;
        if (jsonc_parse(text, strlen(text), &node, &line, &why) == 0)
            return value_set(base, key, node, at, err);
        /* A bare word: what the key wants is more use than what JSON makes of it. */
        if (key->type >= KEY_GLOBS || (*text != '\0' && strchr("[{\"", *text)))
            return place_fail(at, err, "is not JSON: %s", why.text);
    }
    node = calloc(1, sizeof(*node));
    if (!node || replace_text(&node->text, text, strlen(text), err) < 0)
        return no_memory(err);
    node->type = JSONC_STRING;
    return value_set(base, key, node, at, err);
}

int value_set_defaults(void *base, enum key_scope scope, struct error *err)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (config_key_scope(&keys[i]) == scope && keys[i].fallback &&
            value_set_text(base, &keys[i], keys[i].fallback, NULL, err) < 0)
            return -1;
    return 0;
}

void value_free_all(void *base, enum key_scope scope)
{
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        void *field = (char *)base + keys[i].offset;
        if (config_key_scope(&keys[i]) != scope)
            continue;
        switch (keys[i].type) {
        case KEY_ADDRESS:
        case KEY_TEXT:
        case KEY_URL:
        case KEY_PROXY:
        case KEY_PREFIX:
        case KEY_WORD:
            free(*(char **)field);
            break;
        case KEY_SECRET: /* gone from memory as well, not only from our sight */
            if (*(char **)field)
                explicit_bzero(*(char **)field, strlen(*(char **)field));
            free(*(char **)field);
            break;
        case KEY_GLOBS:
        case KEY_HOSTS:
        case KEY_WORDS:
            strings_free(field);
            break;
        case KEY_TOKENS:
            tokens_free(((struct config_upstream *)base)->token_files,
                        ((struct config_upstream *)base)->n_token_files);
            break;
        case KEY_ALIASES:
            aliases_free(((struct config_upstream *)base)->aliases,
                         ((struct config_upstream *)base)->n_aliases);
            break;
        default:
            break;
        }
    }
}
