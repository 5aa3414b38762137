/* Queries and bodies of the Hub's own API. Its clients write booleans as true, True and 1, and
 * lists as a=1&a=2 and as a[]=1. */
#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "base/json.h"
#include "server/hub_json.h"

static int decode(const char *p, const char *end, bool is_form, struct strbuf *to,
                  struct error *err)
{
    strbuf_reset(to);
    for (; p < end; p++) {
        int c = (unsigned char)*p;
        if (c == '%') {
            int high = end - p > 2 ? hex_digit(p[1]) : -1;
            int low = high < 0 ? -1 : hex_digit(p[2]);
            if (low < 0)
                return err_set(err, ERR_INVALID, "a '%%' without two hexadecimal digits behind it");
            c = high * 16 + low;
            p += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        if (c == '\0')
            return err_set(err, ERR_INVALID, "a NUL byte in a parameter");
        strbuf_putc(to, (char)c);
    }
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory for a parameter") : 0;
}

int form_next(const char **at, const char *end, bool is_form, struct strbuf *key,
              struct strbuf *value, struct error *err)
{
    while (*at < end && **at == '&')
        ++*at;
    if (*at == end)
        return 0;
    const char *p = *at;
    const char *stop = memchr(p, '&', (size_t)(end - p));
    if (!stop)
        stop = end;
    const char *equals = memchr(p, '=', (size_t)(stop - p));
    if (decode(p, equals ? equals : stop, is_form, key, err) < 0 ||
        decode(equals ? equals + 1 : stop, stop, is_form, value, err) < 0)
        return -1;
    *at = stop;
    return 1;
}

/* ---- lists of words -------------------------------------------------------------------------- */

void hub_words_done(struct hub_words *w)
{
    strbuf_done(&w->text);
    *w = (struct hub_words){0};
}

const char *hub_words_next(const struct hub_words *w, const char *before)
{
    return before ? before + strlen(before) + 1 : strbuf_str(&w->text);
}

static int add_word(struct hub_words *w, const char *word, size_t len, struct error *err)
{
    strbuf_put(&w->text, word, len);
    strbuf_putc(&w->text, '\0');
    w->n++;
    return strbuf_failed(&w->text) ? err_set(err, ERR_NOMEM, "out of memory for parameters") : 0;
}

/* ---- queries --------------------------------------------------------------------------------- */

static bool is_yes(const char *value)
{
    return strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static bool is_boolean(const char *value)
{
    return is_yes(value) || !*value || strcasecmp(value, "false") == 0 || strcmp(value, "0") == 0;
}

static bool is_key(const struct strbuf *key, const char *name)
{
    return strcmp(strbuf_str(key), name) == 0;
}

static int read_number(const char *key, const char *value, uint64_t *ret, struct error *err)
{
    uint64_t n = 0;
    for (const char *p = value; *p; p++) {
        if (*p < '0' || *p > '9')
            return err_set(err, ERR_INVALID, "\"%s\" must be a whole number", key);
        uint64_t digit = (uint64_t)(*p - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    if (!*value)
        return err_set(err, ERR_INVALID, "\"%s\" is empty", key);
    *ret = n;
    return 0;
}

static int read_option(struct hub_options *o, const struct strbuf *key, const struct strbuf *value,
                       struct error *err)
{
    const char *text = strbuf_str(value);
    if (is_key(key, "expand") || is_key(key, "expand[]")) {
        o->is_expanded = o->is_expanded || is_yes(text);
        return is_boolean(text) ? 0 : add_word(&o->expand, text, value->len, err);
    }
    if (is_key(key, "recursive"))
        o->recursive = is_yes(text);
    else if (is_key(key, "blobs"))
        o->blobs = is_yes(text);
    else if (is_key(key, "include_prs"))
        o->pull_requests = is_yes(text);
    else if (is_key(key, "p"))
        return read_number("p", text, &o->page, err);
    else if (is_key(key, "limit"))
        return read_number("limit", text, &o->limit, err);
    else if (is_key(key, "cursor")) {
        strbuf_reset(&o->cursor);
        strbuf_put(&o->cursor, text, value->len);
    }
    return strbuf_failed(&o->cursor) ? err_set(err, ERR_NOMEM, "out of memory for parameters") : 0;
}

void hub_options_done(struct hub_options *o)
{
    hub_words_done(&o->expand);
    strbuf_done(&o->cursor);
    *o = (struct hub_options){0};
}

int hub_options_read(const char *query, struct hub_options *ret, struct error *err)
{
    _cleanup_(hub_options_done) struct hub_options o = {.limit = UINT64_MAX};
    _cleanup_strbuf_ struct strbuf key = STRBUF_INIT, value = STRBUF_INIT;
    const char *at = query ? query : "", *end = at + strlen(at);
    int r;
    while ((r = form_next(&at, end, false, &key, &value, err)) > 0)
        if (read_option(&o, &key, &value, err) < 0)
            return -1;
    if (r == 0 && o.limit == 0)
        return err_set(err, ERR_INVALID, "\"limit\" must be 1 or more");
    if (r == 0) {
        *ret = o;
        o = (struct hub_options){0};
    }
    return r;
}

/* ---- the body of paths-info ------------------------------------------------------------------ */

static int add_path(struct hub_words *w, const char *path, size_t len, struct error *err)
{
    if (w->n == HUB_PATHS_MAX)
        return err_set(err, ERR_INVALID, "over %u paths in one request; ask for fewer at a time",
                       HUB_PATHS_MAX);
    for (; len && *path == '/'; len--)
        path++;
    while (len && path[len - 1] == '/')
        len--;
    return add_word(w, path, len, err);
}

static int read_json(const char *body, size_t len, struct hub_words *w, struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    if (json_parse(body, len, &root, err) < 0)
        return err_wrap(err, "the body");
    const struct json *paths = json_get(root, "paths");
    if (!json_is_object(root) || (paths && !json_is_array(paths) && !json_is_string(paths)))
        return err_set(err, ERR_INVALID,
                       "the body must be an object, its \"paths\" an array of strings or a string");
    const char *one = json_str(paths);
    if (one)
        return add_path(w, one, strlen(one), err);
    for (const struct json *j = json_first(paths); j; j = json_next(j)) {
        const char *path = json_str(j);
        if (!path)
            return err_set(err, ERR_INVALID, "an element of \"paths\" is no string");
        if (add_path(w, path, strlen(path), err) < 0)
            return -1;
    }
    return 0;
}

static int read_form(const char *body, size_t len, struct hub_words *w, struct error *err)
{
    _cleanup_strbuf_ struct strbuf key = STRBUF_INIT, value = STRBUF_INIT;
    const char *at = body, *end = body + len;
    int r;
    while ((r = form_next(&at, end, true, &key, &value, err)) > 0)
        if ((is_key(&key, "paths") || is_key(&key, "paths[]")) &&
            add_path(w, strbuf_str(&value), value.len, err) < 0)
            return -1;
    return r;
}

int hub_paths_read(const char *content_type, const char *body, size_t len, struct hub_words *ret,
                   struct error *err)
{
    _cleanup_(hub_words_done) struct hub_words w = {0};
    bool is_json = content_type ? strcasestr(content_type, "json") != NULL
                                : len > 0 && (*body == '{' || *body == ' ' || *body == '\n');
    if ((is_json ? read_json(body, len, &w, err) : read_form(body, len, &w, err)) < 0)
        return -1;
    *ret = w;
    w = (struct hub_words){0};
    return 0;
}
