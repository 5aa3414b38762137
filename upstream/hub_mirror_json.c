/* What is changed in the Hub's own JSON on its way to a client. Values that are not changed are
 * copied as they stand: a number stays the number that it is. */
#include <ctype.h>
#include <string.h>

#include "base/json.h"
#include "model/json_scan.h"
#include "upstream/hub_mirror_private.h"

/* A value as it stands in the text. */
struct part {
    const char *text;
    size_t len;
};

static int broken(struct error *err)
{
    if (err)
        err->code = err->code == ERR_NOMEM ? ERR_NOMEM : ERR_UPSTREAM;
    return -1;
}

static int start(struct json_scan *s, const char *what, const char *json, size_t len,
                 struct error *err)
{
    json_scan_start(s, json, len, 0);
    s->document = what;
    return utf8_is_valid(json, len) ? 0 : err_set(err, ERR_UPSTREAM, "%s is not valid UTF-8", what);
}

static int skip(struct json_scan *s, struct part *ret, struct error *err)
{
    (void)json_scan_peek(s);
    ret->text = (const char *)s->p;
    if (json_scan_skip(s, err) < 0)
        return -1;
    ret->len = (size_t)((const char *)s->p - ret->text);
    return 0;
}

static int enough_memory(const struct strbuf *b, struct error *err)
{
    return strbuf_failed(b) ? err_set(err, ERR_NOMEM, "out of memory for an answer") : 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool leads_to_xet(const char *key, size_t len)
{
    for (size_t i = 0; i + 3 <= len; i++)
        if (tolower((unsigned char)key[i]) == 'x' && tolower((unsigned char)key[i + 1]) == 'e' &&
            tolower((unsigned char)key[i + 2]) == 't')
            return true;
    return false;
}

/* The next member of an object: 1, 0 at its end, -1. *key is good until the next one; span is the
 * key as it stands. */
struct member {
    struct strbuf copy;
    const char *key;
    size_t len;
    struct json_span span;
};

static void member_done(struct member *m)
{
    strbuf_done(&m->copy);
}

static int next_member(struct json_scan *s, bool first, struct member *m, struct error *err)
{
    int more = json_scan_more(s, '}', first, "an object", err);
    if (more <= 0)
        return more;
    if (json_scan_key(s, "an object", &m->span, err) < 0 ||
        json_span_plain(&m->span, &m->copy, &m->key, &m->len, err) < 0)
        return -1;
    return 1;
}

static bool is_key(const struct member *m, const char *key)
{
    return m->len == strlen(key) && memcmp(m->key, key, m->len) == 0;
}

static void put_separator(struct strbuf *to, size_t begin)
{
    if (to->len > begin)
        strbuf_putc(to, ',');
}

/* ,"key": as it stands; begin: where the object's inside does. */
static void put_key(struct strbuf *to, size_t begin, const struct member *m)
{
    put_separator(to, begin);
    strbuf_putc(to, '"');
    strbuf_put(to, m->span.text, m->span.len);
    strbuf_puts(to, "\":");
}

/* Reads an object: parts[i] is the value of keys[i] (text NULL: none). copy (may be NULL) gets it
 * without what leads to Xet. */
static int read_object(struct json_scan *s, const char *const *keys, struct part *parts, size_t n,
                       struct strbuf *copy, struct error *err)
{
    _cleanup_(member_done) struct member m = {.key = NULL};
    struct part value;
    int more;
    if (json_scan_open(s, '{', "a list", err) < 0)
        return -1;
    if (copy)
        strbuf_putc(copy, '{');
    size_t begin = copy ? copy->len : 0;
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct part){0};
    for (bool first = true; (more = next_member(s, first, &m, err)) > 0; first = false) {
        if (skip(s, &value, err) < 0)
            return -1;
        for (size_t i = 0; i < n; i++)
            if (is_key(&m, keys[i]))
                parts[i] = value;
        if (copy && !leads_to_xet(m.key, m.len)) {
            put_key(copy, begin, &m);
            strbuf_put(copy, value.text, value.len);
        }
    }
    if (copy)
        strbuf_putc(copy, '}');
    return more;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The text of a string: false for anything else, or one with a NUL. */
static bool text_of(const struct part *p, struct strbuf *ret)
{
    struct json_scan s;
    struct json_span span;
    const char *plain;
    size_t len;
    _cleanup_strbuf_ struct strbuf copy = STRBUF_INIT;
    if (!p->text)
        return false;
    json_scan_start(&s, p->text, p->len, 0);
    if (json_scan_string(&s, "a string", &span, NULL) < 0 ||
        json_span_plain(&span, &copy, &plain, &len, NULL) < 0 || memchr(plain, 0, len))
        return false;
    strbuf_reset(ret);
    strbuf_put(ret, plain, len);
    return !strbuf_failed(ret);
}

static uint64_t number_of(const struct part *p)
{
    struct json_scan s;
    uint64_t n;
    if (!p->text)
        return 0;
    json_scan_start(&s, p->text, p->len, 0);
    return json_scan_u64(&s, "a number", &n, NULL) < 0 ? 0 : n;
}

static bool is_word(const struct part *p, const char *word)
{
    return p->text && p->len == strlen(word) && memcmp(p->text, word, p->len) == 0;
}

/* ---- arrays of objects ----------------------------------------------------------------------- */

/* What is asked of rows that name files. */
struct row_rule {
    const char *path_key;
    hub_json_shows shows; /* NULL = all */
    void *ctx;
};

/* 1, 0 it is not shown, -1. */
static int check_row(const struct part parts[static 3], const struct row_rule *rule, size_t n,
                     struct error *err)
{
    _cleanup_strbuf_ struct strbuf path = STRBUF_INIT;
    bool is_text = text_of(&parts[0], &path);
    if (strbuf_failed(&path))
        return err_set(err, ERR_NOMEM, "out of memory for a path");
    if (!is_text || !hub_path_is_valid(strbuf_str(&path)))
        return err_set(err, ERR_UPSTREAM, "entry %zu has no safe relative \"%s\": %.200s", n,
                       rule->path_key, is_text ? strbuf_str(&path) : "missing");
    return !rule->shows || is_word(&parts[2], "\"directory\"") ||
           rule->shows(rule->ctx, strbuf_str(&path), number_of(&parts[1]));
}

/* The n-th of an array, without what leads to Xet: 1, 0 it is not shown, -1. */
static int copy_row(struct json_scan *s, const struct row_rule *rule, size_t n, struct strbuf *to,
                    struct error *err)
{
    const char *const keys[] = {rule ? rule->path_key : "", "size", "type"};
    struct part parts[ARRAY_LEN(keys)];
    if (read_object(s, keys, parts, ARRAY_LEN(keys), to, err) < 0)
        return -1;
    return rule ? check_row(parts, rule, n, err) : 1;
}

/* Copies an array of objects. rule NULL: whatever they are. */
static int copy_rows(struct json_scan *s, const struct row_rule *rule, struct strbuf *to,
                     struct error *err)
{
    int more;
    if (json_scan_open(s, '[', "a list", err) < 0)
        return -1;
    strbuf_putc(to, '[');
    size_t begin = to->len, n = 0;
    for (; (more = json_scan_more(s, ']', n == 0, "a list", err)) > 0; n++) {
        size_t was = to->len;
        put_separator(to, begin);
        int shown = copy_row(s, rule, n, to, err);
        if (shown < 0)
            return -1;
        if (!shown)
            strbuf_truncate(to, was);
    }
    strbuf_putc(to, ']');
    return more;
}

static int rows_copy(const char *json, size_t len, const struct row_rule *rule, struct strbuf *to,
                     struct error *err)
{
    struct json_scan s;
    if (start(&s, "the list of files", json, len, err) < 0)
        return -1;
    if (copy_rows(&s, rule, to, err) < 0 || json_scan_end(&s, err) < 0)
        return broken(err);
    return enough_memory(to, err);
}

int hub_json_rows_clean(const char *json, size_t len, struct strbuf *to, struct error *err)
{
    return rows_copy(json, len, NULL, to, err);
}

int hub_json_rows_filter(const char *json, size_t len, hub_json_shows shows, void *ctx,
                         struct strbuf *to, struct error *err)
{
    const struct row_rule rule = {.path_key = "path", .shows = shows, .ctx = ctx};
    return rows_copy(json, len, &rule, to, err);
}

/* ---- info ------------------------------------------------------------------------------------ */

struct info_change {
    const char *commit;          /* NULL = sha stays */
    bool is_about;               /* without sha and siblings */
    const char *siblings;        /* put when there are none; NULL = nothing */
    const struct row_rule *rule; /* of its siblings; NULL = whatever they are */
    bool has_siblings;           /* found out */
};

static int info_member(struct json_scan *s, const struct member *m, struct info_change *c,
                       size_t begin, struct strbuf *to, struct error *err)
{
    struct part value;
    bool is_list = is_key(m, "siblings") && json_scan_peek(s) == '[';
    if (is_list && !c->has_siblings && !c->is_about) {
        c->has_siblings = true;
        put_key(to, begin, m);
        return copy_rows(s, c->rule, to, err);
    }
    if (skip(s, &value, err) < 0)
        return -1;
    if (leads_to_xet(m->key, m->len) || is_key(m, "siblings") ||
        ((c->commit || c->is_about) && is_key(m, "sha")))
        return 0;
    put_key(to, begin, m);
    strbuf_put(to, value.text, value.len);
    return 0;
}

static int info_object(struct json_scan *s, struct info_change *c, struct strbuf *to,
                       struct error *err)
{
    _cleanup_(member_done) struct member m = {.key = NULL};
    int more;
    if (json_scan_open(s, '{', "the info object", err) < 0)
        return -1;
    strbuf_putc(to, '{');
    size_t begin = to->len;
    for (bool first = true; (more = next_member(s, first, &m, err)) > 0; first = false)
        if (info_member(s, &m, c, begin, to, err) < 0)
            return -1;
    if (more < 0)
        return -1;
    if (c->commit) {
        put_separator(to, begin);
        strbuf_printf(to, "\"sha\":\"%s\"", c->commit);
    }
    if (!c->has_siblings && c->siblings) {
        put_separator(to, begin);
        strbuf_printf(to, "\"siblings\":%s", c->siblings);
    }
    strbuf_putc(to, '}');
    return json_scan_end(s, err);
}

static int info_copy(const char *json, size_t len, struct info_change *c, struct strbuf *to,
                     struct error *err)
{
    struct json_scan s;
    if (start(&s, "the info object", json, len, err) < 0)
        return -1;
    return info_object(&s, c, to, err) < 0 ? broken(err) : enough_memory(to, err);
}

int hub_json_info_clean(const char *json, size_t len, const char *commit, struct strbuf *to,
                        struct error *err)
{
    struct info_change c = {.commit = commit};
    return info_copy(json, len, &c, to, err);
}

int hub_json_info_about(const char *json, size_t len, struct strbuf *to, struct error *err)
{
    struct info_change c = {.is_about = true};
    return info_copy(json, len, &c, to, err);
}

int hub_json_info_filter(const char *json, size_t len, hub_json_shows shows, void *ctx,
                         const char *siblings, bool *ret_has_siblings, struct strbuf *to,
                         struct error *err)
{
    const struct row_rule rule = {.path_key = "rfilename", .shows = shows, .ctx = ctx};
    struct info_change c = {.siblings = siblings, .rule = &rule};
    if (info_copy(json, len, &c, to, err) < 0)
        return -1;
    *ret_has_siblings = c.has_siblings;
    return 0;
}

/* Its text is NULL when there is none. */
static struct part member(const char *json, size_t len, const char *key)
{
    struct json_scan s;
    struct part value = {0};
    if (start(&s, "the object", json, len, NULL) < 0 ||
        read_object(&s, &key, &value, 1, NULL, NULL) < 0)
        return (struct part){0};
    return value;
}

bool hub_json_is_set(const char *json, size_t len, const char *key)
{
    struct part value = member(json, len, key);
    return value.text && !is_word(&value, "false") && !is_word(&value, "null");
}

bool hub_json_is_false(const char *json, size_t len, const char *key)
{
    struct part value = member(json, len, key);
    return value.text && is_word(&value, "false");
}

/* ---- refs ------------------------------------------------------------------------------------ */

/* "refs/heads/x" and "refs/tags/x" are asked for as x, all others as they are. */
static const char *revision_of(const char *ref)
{
    if (strncmp(ref, "refs/heads/", 11) == 0)
        return ref + 11;
    return strncmp(ref, "refs/tags/", 10) == 0 ? ref + 10 : ref;
}

static void put_pinned(const struct part *target, const char *commit, const struct part *whole,
                       struct strbuf *to)
{
    size_t before = (size_t)(target->text - whole->text);
    strbuf_put(to, whole->text, before);
    strbuf_printf(to, "\"%s\"", commit);
    strbuf_put(to, target->text + target->len, whole->len - before - target->len);
}

/* 1, 0 it is not shown, -1. */
static int copy_ref(struct json_scan *s, hub_json_pinned pinned, void *ctx, struct strbuf *to,
                    struct error *err)
{
    static const char *const keys[] = {"ref", "targetCommit"};
    struct part parts[ARRAY_LEN(keys)], whole;
    char commit[41];
    _cleanup_strbuf_ struct strbuf ref = STRBUF_INIT;
    (void)json_scan_peek(s);
    whole.text = (const char *)s->p;
    if (read_object(s, keys, parts, ARRAY_LEN(keys), NULL, err) < 0)
        return -1;
    whole.len = (size_t)((const char *)s->p - whole.text);
    bool is_named = parts[1].text && text_of(&parts[0], &ref);
    switch (pinned(ctx, is_named ? revision_of(strbuf_str(&ref)) : "", commit)) {
    case HUB_REF_PINNED:
        if (is_named) {
            put_pinned(&parts[1], commit, &whole, to);
            return 1;
        }
        break;
    case HUB_REF_HIDDEN:
        return 0;
    case HUB_REF_AS_IT_IS:
        break;
    }
    strbuf_put(to, whole.text, whole.len);
    return 1;
}

static int copy_refs(struct json_scan *s, hub_json_pinned pinned, void *ctx, struct strbuf *to,
                     struct error *err)
{
    int more;
    if (json_scan_open(s, '[', "a list of refs", err) < 0)
        return -1;
    strbuf_putc(to, '[');
    size_t begin = to->len;
    for (bool first = true; (more = json_scan_more(s, ']', first, "a list of refs", err)) > 0;
         first = false) {
        size_t before = to->len;
        put_separator(to, begin);
        int shown = copy_ref(s, pinned, ctx, to, err);
        if (shown < 0)
            return -1;
        if (!shown)
            strbuf_truncate(to, before);
    }
    strbuf_putc(to, ']');
    return more;
}

static const char *const ref_lists[] = {"branches", "tags", "converts", "pullRequests"};
#define REF_LISTS_NEEDED 3u /* of them: no client can do without */

/* Which list of refs a member is, ARRAY_LEN(ref_lists) for anything else. */
static unsigned list_of(struct json_scan *s, const struct member *m)
{
    unsigned which = 0;
    while (which < ARRAY_LEN(ref_lists) && !is_key(m, ref_lists[which]))
        which++;
    return json_scan_peek(s) == '[' ? which : ARRAY_LEN(ref_lists);
}

static bool is_needed(const struct member *m)
{
    for (unsigned i = 0; i < REF_LISTS_NEEDED; i++)
        if (is_key(m, ref_lists[i]))
            return true;
    return false;
}

static int copy_ref_list(struct json_scan *s, const struct member *m, size_t begin,
                         hub_json_pinned pinned, void *ctx, unsigned *seen, struct strbuf *to,
                         struct error *err)
{
    struct part value;
    unsigned which = list_of(s, m);
    if (which < ARRAY_LEN(ref_lists)) {
        *seen |= 1u << which;
        put_key(to, begin, m);
        return copy_refs(s, pinned, ctx, to, err);
    }
    if (skip(s, &value, err) < 0)
        return -1;
    if (is_needed(m)) /* null, or another thing that no client can read */
        return 0;
    put_key(to, begin, m);
    strbuf_put(to, value.text, value.len);
    return 0;
}

static int copy_refs_object(struct json_scan *s, hub_json_pinned pinned, void *ctx,
                            struct strbuf *to, struct error *err)
{
    _cleanup_(member_done) struct member m = {.key = NULL};
    unsigned seen = 0;
    int more;
    if (json_scan_open(s, '{', "the refs object", err) < 0)
        return -1;
    strbuf_putc(to, '{');
    size_t begin = to->len;
    for (bool first = true; (more = next_member(s, first, &m, err)) > 0; first = false)
        if (copy_ref_list(s, &m, begin, pinned, ctx, &seen, to, err) < 0)
            return -1;
    if (more < 0)
        return -1;
    for (unsigned i = 0; i < REF_LISTS_NEEDED; i++)
        if (!(seen & 1u << i)) {
            put_separator(to, begin);
            strbuf_printf(to, "\"%s\":[]", ref_lists[i]);
        }
    strbuf_putc(to, '}');
    return json_scan_end(s, err);
}

int hub_json_refs(const char *json, size_t len, hub_json_pinned pinned, void *ctx,
                  struct strbuf *to, struct error *err)
{
    struct json_scan s;
    if (start(&s, "the refs object", json, len, err) < 0)
        return -1;
    return copy_refs_object(&s, pinned, ctx, to, err) < 0 ? broken(err) : enough_memory(to, err);
}

struct sought {
    const char *revision;
    struct strbuf commit;
    bool found;
};

static int seek_in_list(struct json_scan *s, struct sought *x)
{
    static const char *const keys[] = {"ref", "targetCommit"};
    struct part parts[ARRAY_LEN(keys)];
    _cleanup_strbuf_ struct strbuf ref = STRBUF_INIT;
    int more;
    if (json_scan_open(s, '[', "a list of refs", NULL) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, ']', first, "a list of refs", NULL)) > 0;
         first = false) {
        if (read_object(s, keys, parts, ARRAY_LEN(keys), NULL, NULL) < 0)
            return -1;
        if (!x->found && text_of(&parts[0], &ref) &&
            strcmp(revision_of(strbuf_str(&ref)), x->revision) == 0)
            x->found = text_of(&parts[1], &x->commit) && is_lower_hex(strbuf_str(&x->commit), 40) &&
                       x->commit.len == 40;
    }
    return more;
}

static int seek_in_refs(struct json_scan *s, struct sought *x)
{
    _cleanup_(member_done) struct member m = {.key = NULL};
    struct part value;
    int more;
    if (json_scan_open(s, '{', "the refs object", NULL) < 0)
        return -1;
    for (bool first = true; (more = next_member(s, first, &m, NULL)) > 0; first = false)
        if ((list_of(s, &m) < ARRAY_LEN(ref_lists) ? seek_in_list(s, x) : skip(s, &value, NULL)) <
            0)
            return -1;
    return more;
}

int hub_json_ref(const char *json, size_t len, const char *revision, char commit[static 41])
{
    struct json_scan s;
    struct sought x = {.revision = revision};
    int found =
        start(&s, "the refs object", json, len, NULL) == 0 && seek_in_refs(&s, &x) == 0 && x.found;
    if (found)
        memcpy(commit, strbuf_str(&x.commit), 41);
    strbuf_done(&x.commit);
    return found;
}

/* ---- rows of our own ------------------------------------------------------------------------- */

void hub_json_put_file(struct strbuf *to, const struct commit_file *f)
{
    char hex[DIGEST_TEXT_MAX], pointer[200];
    struct hub_file file = {.size = f->size, .has_lfs = f->has_lfs, .sha256 = f->sha256};
    json_put_separator(to);
    strbuf_puts(to, "{\"type\":\"file\"");
    json_put_text(to, "oid", f->git_oid);
    json_put_number(to, "size", f->size);
    if (f->has_lfs) {
        json_put_key(to, "lfs");
        strbuf_putc(to, '{');
        json_put_text(to, "oid", digest_format_hex(&f->sha256, hex));
        json_put_number(to, "size", f->size);
        json_put_number(to, "pointerSize", hub_pointer_text(&file, pointer, sizeof(pointer)));
        strbuf_putc(to, '}');
    }
    json_put_text(to, "path", f->path);
    strbuf_putc(to, '}');
}

void hub_json_put_folder(struct strbuf *to, const struct hub_folder *f)
{
    json_put_separator(to);
    strbuf_puts(to, "{\"type\":\"directory\"");
    json_put_text(to, "oid", f->git_oid);
    json_put_number(to, "size", 0);
    json_put_text(to, "path", f->path);
    strbuf_putc(to, '}');
}
