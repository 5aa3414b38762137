/* Some members of the info object, and the first elements of a list, byte for byte as the Hub wrote
 * them: numbers and the order of members are its own. */
#include <string.h>

#include "base/json.h"
#include "model/json_scan.h"
#include "server/hub_json.h"

static void start(struct json_scan *s, const char *text, size_t len)
{
    json_scan_start(s, text, len, 0);
    s->document = "what the Hub said";
}

/* What it said was checked when it came. */
static int broken(const struct error *why, struct error *err)
{
    return err_set(err, ERR_UPSTREAM, "%s", why->text);
}

static bool is_named(const struct hub_words *words, const struct json_span *key)
{
    const char *word = NULL;
    if (json_span_equals(key, "_id") || json_span_equals(key, "id"))
        return true;
    for (size_t i = 0; i < words->n; i++) {
        word = hub_words_next(words, word);
        if (json_span_equals(key, word))
            return true;
    }
    return false;
}

static void put_member(struct strbuf *to, const struct json_span *key, const char *value,
                       size_t len)
{
    json_put_separator(to);
    strbuf_putc(to, '"');
    strbuf_put(to, key->text, key->len);
    strbuf_puts(to, "\":");
    strbuf_put(to, value, len);
}

/* l NULL: as they are. ret_where: they follow later, and belong there. */
static void put_files(struct strbuf *to, const struct hub_listing *l, size_t *ret_where)
{
    json_put_key(to, "siblings");
    if (ret_where) {
        strbuf_putc(to, '[');
        *ret_where = to->len;
        strbuf_putc(to, ']');
    } else {
        hub_put_siblings(to, l);
    }
}

static int put_members(struct json_scan *s, struct strbuf *to, const struct hub_words *expand,
                       const struct hub_listing *l, size_t *ret_where, struct error *err)
{
    static const char what[] = "the info object";
    bool has_siblings = false, first = true;
    int more;
    if (json_scan_open(s, '{', what, err) < 0)
        return -1;
    for (; (more = json_scan_more(s, '}', first, what, err)) > 0; first = false) {
        struct json_span key;
        if (json_scan_key(s, what, &key, err) < 0)
            return -1;
        json_scan_peek(s); /* past the white space */
        const char *value = (const char *)s->p;
        if (json_scan_skip(s, err) < 0)
            return -1;
        if (expand->n && !is_named(expand, &key))
            continue;
        if (l && json_span_equals(&key, "siblings")) {
            has_siblings = true;
            put_files(to, l, ret_where);
        } else {
            put_member(to, &key, value, (size_t)((const char *)s->p - value));
        }
    }
    if (more == 0 && l && !has_siblings && expand->n == 0)
        put_files(to, l, ret_where);
    return more < 0 ? -1 : json_scan_end(s, err);
}

static int put_info(struct strbuf *to, const char *info, size_t len, const struct hub_words *expand,
                    const struct hub_listing *l, size_t *ret_where, struct error *err)
{
    struct error why = ERROR_INIT;
    struct json_scan s;
    start(&s, info, len);
    strbuf_putc(to, '{');
    if (put_members(&s, to, expand, l, ret_where, &why) < 0)
        return broken(&why, err);
    strbuf_putc(to, '}');
    return 0;
}

int hub_put_info(struct strbuf *to, const char *info, size_t len, const struct hub_words *expand,
                 const struct hub_listing *l, struct error *err)
{
    return put_info(to, info, len, expand, l, NULL, err);
}

int hub_put_info_around(struct strbuf *to, const char *info, size_t len,
                        const struct hub_words *expand, size_t *ret_where, struct error *err)
{
    static const struct hub_listing later;
    *ret_where = 0;
    return put_info(to, info, len, expand, &later, ret_where, err);
}

int hub_put_first(struct strbuf *to, const char *array, size_t len, uint64_t limit,
                  struct error *err)
{
    static const char what[] = "a list";
    struct error why = ERROR_INIT;
    struct json_scan s;
    bool first = true;
    int more;
    start(&s, array, len);
    if (json_scan_open(&s, '[', what, &why) < 0)
        return broken(&why, err);
    strbuf_putc(to, '[');
    for (uint64_t n = 0; (more = json_scan_more(&s, ']', first, what, &why)) > 0; n++) {
        json_scan_peek(&s);
        const char *value = (const char *)s.p;
        if (json_scan_skip(&s, &why) < 0)
            return broken(&why, err);
        if (n < limit) {
            json_put_separator(to);
            strbuf_put(to, value, (size_t)((const char *)s.p - value));
        }
        first = false;
    }
    if (more < 0 || json_scan_end(&s, &why) < 0)
        return broken(&why, err);
    strbuf_putc(to, ']');
    return 0;
}
