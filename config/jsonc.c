#include "config/jsonc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/strbuf.h"

#define NUMBER_MAX 64 /* characters of a number */

struct parser {
    const char *p, *end;
    unsigned line;
    unsigned depth;
    struct error *err;
};

/* Every refusal leaves through here: the parser's line is where it happened. */
#define FAIL_AT(ps, at, ...) ((ps)->line = (at), err_set((ps)->err, ERR_INVALID, __VA_ARGS__))
#define FAIL(ps, ...) FAIL_AT(ps, (ps)->line, __VA_ARGS__)

static int parse_value(struct parser *ps, struct jsonc *to);

const char *jsonc_type_name(enum jsonc_type type)
{
    static const char *const names[] = {"null",     "true or false", "a number",
                                        "a string", "a list",        "an object"};
    return names[type];
}

void jsonc_free(struct jsonc *root)
{
    while (root) { /* the depth is bounded, the number of siblings is not worth a stack */
        struct jsonc *next = root->next;
        jsonc_free(root->first);
        free(root->key);
        free(root->text);
        free(root);
        root = next;
    }
}

static bool starts(const struct parser *ps, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(ps->end - ps->p) >= n && memcmp(ps->p, s, n) == 0;
}

static int skip_block_comment(struct parser *ps)
{
    unsigned opened = ps->line;
    for (ps->p += 2; ps->p < ps->end; ps->p++) {
        if (starts(ps, "*/")) {
            ps->p += 2;
            return 0;
        }
        if (*ps->p == '\n')
            ps->line++;
    }
    return FAIL_AT(ps, opened, "the comment that begins here is not closed");
}

/* White space and comments. */
static int skip_space(struct parser *ps)
{
    while (ps->p < ps->end) {
        if (*ps->p == '\n') {
            ps->line++;
            ps->p++;
        } else if (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\r') {
            ps->p++;
        } else if (starts(ps, "//")) {
            while (ps->p < ps->end && *ps->p != '\n')
                ps->p++;
        } else if (starts(ps, "/*")) {
            if (skip_block_comment(ps) < 0)
                return -1;
        } else {
            break;
        }
    }
    return 0;
}

static void put_utf8(struct strbuf *b, unsigned c)
{
    if (c < 0x80) {
        strbuf_putc(b, (char)c);
    } else if (c < 0x800) {
        strbuf_putc(b, (char)(0xc0 | c >> 6));
        strbuf_putc(b, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        strbuf_putc(b, (char)(0xe0 | c >> 12));
        strbuf_putc(b, (char)(0x80 | (c >> 6 & 0x3f)));
        strbuf_putc(b, (char)(0x80 | (c & 0x3f)));
    } else {
        strbuf_putc(b, (char)(0xf0 | c >> 18));
        strbuf_putc(b, (char)(0x80 | (c >> 12 & 0x3f)));
        strbuf_putc(b, (char)(0x80 | (c >> 6 & 0x3f)));
        strbuf_putc(b, (char)(0x80 | (c & 0x3f)));
    }
}

/* The four hex digits at p, -1 when they are not there. */
static int hex4(const struct parser *ps, const char *p)
{
    int value = 0;
    if (ps->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Behind "\u". */
static int parse_unicode(struct parser *ps, struct strbuf *to)
{
    int c = hex4(ps, ps->p);
    if (c < 0)
        return FAIL(ps, "\\u wants four hex digits");
    ps->p += 4;
    if (c == 0)
        return FAIL(ps, "\\u0000 is not allowed in a string");
    if (c >= 0xd800 && c <= 0xdfff) {
        int low = starts(ps, "\\u") ? hex4(ps, ps->p + 2) : -1;
        if (c >= 0xdc00 || low < 0xdc00 || low > 0xdfff)
            return FAIL(ps, "\\u%04x is half of a surrogate pair", (unsigned)c);
        ps->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(to, (unsigned)c);
    return 0;
}

/* Behind the backslash. */
static int parse_escape(struct parser *ps, struct strbuf *to)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    char c = '\0';
    if (ps->p < ps->end)
        c = *ps->p;
    if (c == 'u') {
        ps->p++;
        return parse_unicode(ps, to);
    }
    const char *at = c ? strchr(names, c) : NULL;
    if (!at)
        return FAIL(ps, "a backslash in a string is followed by none of \" \\ / b f n r t u");
    ps->p++;
    strbuf_putc(to, bytes[at - names]);
    return 0;
}

static int parse_string(struct parser *ps, char **ret)
{
    _cleanup_strbuf_ struct strbuf to = STRBUF_INIT;
    ps->p++;
    for (;;) {
        if (ps->p >= ps->end || *ps->p == '\n')
            return FAIL(ps, "the string is not closed on its line");
        unsigned char c = (unsigned char)*ps->p;
        unsigned step = utf8_sequence((const unsigned char *)ps->p, (size_t)(ps->end - ps->p));
        if (c == '"')
            break;
        if (c < 0x20)
            return FAIL(ps, "a string holds a control character");
        if (step == 0)
            return FAIL(ps, "a string is not valid UTF-8");
        if (c == '\\') {
            ps->p++;
            if (parse_escape(ps, &to) < 0)
                return -1;
            continue;
        }
        strbuf_put(&to, ps->p, step);
        ps->p += step;
    }
    ps->p++;
    char *text = strbuf_take(&to);
    if (!text)
        return err_set(ps->err, ERR_NOMEM, "out of memory");
    *ret = text;
    return 0;
}

static const char *digits(const char *s)
{
    while (*s >= '0' && *s <= '9')
        s++;
    return s;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? and nothing more. */
static bool is_number(const char *s)
{
    if (*s == '-')
        s++;
    const char *behind = digits(s);
    if (behind == s || (*s == '0' && behind > s + 1))
        return false;
    s = behind;
    if (*s == '.') {
        behind = digits(s + 1);
        if (behind == s + 1)
            return false;
        s = behind;
    }
    if (*s == 'e' || *s == 'E') {
        s += s[1] == '+' || s[1] == '-' ? 2 : 1;
        behind = digits(s);
        if (behind == s)
            return false;
        s = behind;
    }
    return *s == '\0';
}

/* true, false, null, a number, or something that is none of them. */
static int parse_word(struct parser *ps, struct jsonc *to)
{
    char word[NUMBER_MAX + 1];
    size_t n = 0;
    while (ps->p < ps->end && *ps->p && !strchr(" \t\r\n,:{}[]\"/", *ps->p)) {
        if (n == NUMBER_MAX)
            return FAIL(ps, "a value is neither a string in double quotes nor a number");
        word[n++] = *ps->p++;
    }
    word[n] = '\0';
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        to->type = JSONC_BOOL;
        to->truth = word[0] == 't';
    } else if (strcmp(word, "null") == 0) {
        to->type = JSONC_NULL;
    } else if (is_number(word)) {
        to->type = JSONC_NUMBER;
        to->number = strtod(word, NULL);
        if (!isfinite(to->number))
            return FAIL(ps, "a number is too large");
    } else if (n == 0) {
        return FAIL(ps, "a value is missing here");
    } else {
        return FAIL(ps, "a text must stand in double quotes, and this is no number");
    }
    return 0;
}

static int parse_key(struct parser *ps, const struct jsonc *object, struct jsonc *member)
{
    if (*ps->p != '"')
        return FAIL(ps, "a key in double quotes is expected here");
    member->line = ps->line;
    if (parse_string(ps, &member->key) < 0)
        return -1;
    for (const struct jsonc *c = object->first; c; c = c->next)
        if (c != member && strcmp(c->key, member->key) == 0)
            return FAIL(ps, "the key \"%.100s\" comes twice, first on line %u", member->key,
                        c->line);
    if (skip_space(ps) < 0)
        return -1;
    if (ps->p >= ps->end || *ps->p != ':')
        return FAIL(ps, "a colon is missing behind the key \"%.100s\"", member->key);
    ps->p++;
    return skip_space(ps);
}

/* Behind one member: the comma before the next one (1), or the end (0). */
static int parse_comma(struct parser *ps, char close, unsigned opened)
{
    if (skip_space(ps) < 0)
        return -1;
    if (ps->p >= ps->end)
        return FAIL_AT(ps, opened, "the bracket opened here is not closed by '%c'", close);
    if (*ps->p == close)
        return 0;
    if (*ps->p != ',')
        return FAIL(ps, "a comma or '%c' is expected here", close);
    ps->p++;
    unsigned comma = ps->line;
    if (skip_space(ps) < 0)
        return -1;
    if (ps->p < ps->end && *ps->p == close)
        return FAIL_AT(ps, comma, "JSON allows no comma before '%c': remove it", close);
    if (ps->p >= ps->end)
        return FAIL_AT(ps, opened, "the bracket opened here is not closed by '%c'", close);
    return 1;
}

/* The members of an object or the elements of an array. */
static int parse_children(struct parser *ps, struct jsonc *to)
{
    const char close = to->type == JSONC_OBJECT ? '}' : ']';
    const unsigned opened = ps->line;
    struct jsonc **last = &to->first;
    unsigned n = 0;
    if (++ps->depth > JSONC_DEPTH)
        return FAIL(ps, "nested deeper than %d", JSONC_DEPTH);
    ps->p++;
    if (skip_space(ps) < 0)
        return -1;
    int more = ps->p >= ps->end || *ps->p != close;
    if (more && ps->p >= ps->end)
        return FAIL_AT(ps, opened, "the bracket opened here is not closed by '%c'", close);
    while (more) {
        if (++n > JSONC_MEMBERS)
            return FAIL_AT(ps, opened, "more than %d members", JSONC_MEMBERS);
        struct jsonc *child = calloc(1, sizeof(*child));
        if (!child)
            return err_set(ps->err, ERR_NOMEM, "out of memory");
        *last = child; /* owned by the tree from here on, so that a failure frees it */
        last = &child->next;
        child->line = ps->line;
        if (to->type == JSONC_OBJECT && parse_key(ps, to, child) < 0)
            return -1;
        if (parse_value(ps, child) < 0)
            return -1;
        more = parse_comma(ps, close, opened);
        if (more < 0)
            return -1;
    }
    ps->p++;
    ps->depth--;
    return 0;
}

static int parse_value(struct parser *ps, struct jsonc *to)
{
    char c = '\0';
    if (ps->p < ps->end)
        c = *ps->p;
    if (c == '{' || c == '[') {
        to->type = c == '{' ? JSONC_OBJECT : JSONC_ARRAY;
        return parse_children(ps, to);
    }
    if (c == '"') {
        to->type = JSONC_STRING;
        return parse_string(ps, &to->text);
    }
    return parse_word(ps, to);
}

static int parse_document(struct parser *ps, struct jsonc *root)
{
    if (starts(ps, "\xef\xbb\xbf"))
        ps->p += 3;
    if (skip_space(ps) < 0)
        return -1;
    root->line = ps->line;
    if (parse_value(ps, root) < 0 || skip_space(ps) < 0)
        return -1;
    if (ps->p < ps->end)
        return FAIL(ps, "there is text behind the end of the value");
    return 0;
}

int jsonc_parse(const char *text, size_t len, struct jsonc **ret, unsigned *ret_line,
                struct error *err)
{
    struct parser ps = {.p = text, .end = text + len, .line = 1, .err = err};
    _cleanup_jsonc_ struct jsonc *root = calloc(1, sizeof(*root));
    if (!root)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (parse_document(&ps, root) < 0) {
        *ret_line = ps.line;
        return -1;
    }
    *ret = TAKE_PTR(root);
    return 0;
}
