#include "model/card.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/json.h"

/* ---- where the YAML is ---------------------------------------------------------------------- */

/* The line at p without its end; *next is behind the end. */
static size_t line_at(const char *p, const char *end, const char **next)
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    const char *stop = newline ? newline : end;
    *next = newline ? newline + 1 : end;
    while (stop > p && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    return (size_t)(stop - p);
}

static bool is_marker(const char *p, size_t n)
{
    return n == 3 && memcmp(p, "---", 3) == 0;
}

/* 1 and the text between the markers, 0 there is none. */
static int find_front_matter(const char *readme, size_t len, const char **ret, size_t *ret_len,
                             struct error *err)
{
    const char *end = readme + len, *p = readme, *next;
    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    if (!is_marker(p, line_at(p, end, &next)))
        return 0;
    *ret = next;
    for (p = next; p < end; p = next) {
        if ((size_t)(p - *ret) > CARD_FRONT_MATTER_MAX)
            return err_set(err, ERR_INVALID, "its front matter at byte %zu is over %u bytes",
                           (size_t)(*ret - readme), CARD_FRONT_MATTER_MAX);
        if (is_marker(p, line_at(p, end, &next))) {
            *ret_len = (size_t)(p - *ret);
            return 1;
        }
    }
    return err_set(err, ERR_INVALID, "its front matter at byte %zu has no end",
                   (size_t)(*ret - readme));
}

/* ---- members -------------------------------------------------------------------------------- */

static void list_done(struct card_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct card_list){0};
}

void model_card_done(struct model_card *c)
{
    list_done(&c->licenses);
    list_done(&c->languages);
    list_done(&c->tags);
    list_done(&c->base_models);
    free(c->license_name);
    free(c->pipeline_tag);
    free(c->library_name);
    *c = (struct model_card){0};
}

static int list_add(struct card_list *l, const char *text, struct error *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i], text) == 0)
            return 0;
    if (l->n == CARD_ITEMS_MAX)
        return 0;
    if (!l->items && !(l->items = calloc(CARD_ITEMS_MAX, sizeof(*l->items))))
        return err_set(err, ERR_NOMEM, "out of memory for a model card");
    l->items[l->n] = strdup(text);
    if (!l->items[l->n])
        return err_set(err, ERR_NOMEM, "out of memory for a model card");
    l->n++;
    return 0;
}

/* A member of the card: a list, or one text (the first that comes). */
struct member {
    const char *key;
    struct card_list *list;
    char **text;
};
#define MEMBERS 7

static void members_of(struct model_card *c, struct member ret[static MEMBERS])
{
    const struct member members[MEMBERS] = {
        {"license", &c->licenses, NULL},          {"license_name", NULL, &c->license_name},
        {"pipeline_tag", NULL, &c->pipeline_tag}, {"library_name", NULL, &c->library_name},
        {"language", &c->languages, NULL},        {"tags", &c->tags, NULL},
        {"base_model", &c->base_models, NULL},
    };
    memcpy(ret, members, sizeof(members));
}

static bool is_text(const char *s, size_t n)
{
    if (!n || n > CARD_TEXT_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return true;
}

/* What YAML 1.2 reads as null when it is not quoted. */
static bool is_null(const yaml_event_t *e)
{
    static const char *const nulls[] = {"~", "null", "Null", "NULL"};
    const char *s = (const char *)e->data.scalar.value;
    for (size_t i = 0; i < ARRAY_LEN(nulls); i++)
        if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && strcmp(s, nulls[i]) == 0)
            return true;
    return false;
}

static int take_value(const struct member *m, const yaml_event_t *e, struct error *err)
{
    const char *s = (const char *)e->data.scalar.value;
    if (!is_text(s, e->data.scalar.length) || is_null(e))
        return 0;
    if (m->list)
        return list_add(m->list, s, err);
    if (!*m->text && !(*m->text = strdup(s)))
        return err_set(err, ERR_NOMEM, "out of memory for a model card");
    return 0;
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* The model-index of real cards is seven deep. Each token costs libyaml as much as there are levels
 * around it. */
#define DEPTH_MAX 100u

/* Events, not a tree: aliases are not followed, so nothing grows beyond the text itself. */
struct walk {
    const char *text;
    size_t len, from; /* byte of the file at which text stands */
    struct member members[MEMBERS];
    const struct member *member; /* whose value comes, NULL = of one that we do not want */
    unsigned depth;              /* 1: in the card's mapping */
    bool in_list;                /* depth 2 is a list that is the value of `member` */
    bool is_value;               /* at depth 1: the next node is a value */
    bool is_mapping;             /* the document's root has come, and was one */
    size_t root;                 /* at which character */
};

/* libyaml counts characters. */
static size_t byte_of(const struct walk *w, size_t characters)
{
    size_t at = 0;
    for (unsigned n; at < w->len && characters--; at += n)
        if (!(n = utf8_sequence((const unsigned char *)w->text + at, w->len - at)))
            break;
    return w->from + at;
}

static int node_begins(struct walk *w, const yaml_event_t *e, struct error *err)
{
    bool is_list = e->type == YAML_SEQUENCE_START_EVENT;
    if (w->depth == DEPTH_MAX)
        return err_set(err, ERR_INVALID, "its front matter is nested over %u deep at byte %zu",
                       DEPTH_MAX, byte_of(w, e->start_mark.index));
    w->in_list = w->depth == 1 && w->is_value && is_list;
    if (w->depth++ == 0) {
        w->is_mapping = !is_list;
        w->root = e->start_mark.index;
    }
    return 0;
}

/* A whole node is through at this depth. */
static void node_ended(struct walk *w)
{
    if (w->depth != 1)
        return;
    w->is_value = !w->is_value;
    if (!w->is_value)
        w->member = NULL;
}

static void take_key(struct walk *w, const yaml_event_t *e)
{
    w->member = NULL;
    for (size_t i = 0; i < MEMBERS; i++)
        if (strcmp((const char *)e->data.scalar.value, w->members[i].key) == 0)
            w->member = &w->members[i];
}

static int take_event(struct walk *w, const yaml_event_t *e, struct error *err)
{
    int rc = 0;
    switch (e->type) {
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        rc = node_begins(w, e, err);
        break;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        w->depth--;
        if (w->depth == 1)
            w->in_list = false;
        node_ended(w);
        break;
    case YAML_SCALAR_EVENT:
        if (w->depth == 0)
            w->root = e->start_mark.index;
        if (w->depth == 1 && !w->is_value)
            take_key(w, e);
        else if (w->member && ((w->depth == 1 && w->is_value) || (w->depth == 2 && w->in_list)))
            rc = take_value(w->member, e, err);
        node_ended(w);
        break;
    case YAML_ALIAS_EVENT:
        node_ended(w);
        break;
    default:
        break;
    }
    return rc;
}

static int no_yaml(const struct walk *w, const yaml_parser_t *parser, struct error *err)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return err_set(err, ERR_NOMEM, "out of memory for a model card");
    size_t at = parser->error == YAML_READER_ERROR ? w->from + parser->problem_offset
                                                   : byte_of(w, parser->problem_mark.index);
    return err_set(err, ERR_INVALID, "its front matter is no YAML at byte %zu", at);
}

static int walk(yaml_parser_t *parser, struct walk *w, struct error *err)
{
    for (bool more = true; more;) {
        yaml_event_t e;
        if (!yaml_parser_parse(parser, &e))
            return no_yaml(w, parser, err);
        int rc = take_event(w, &e, err);
        more = e.type != YAML_STREAM_END_EVENT && e.type != YAML_DOCUMENT_END_EVENT;
        yaml_event_delete(&e);
        if (rc < 0)
            return -1;
    }
    if (!w->is_mapping)
        return err_set(err, ERR_INVALID, "its front matter is no YAML mapping at byte %zu",
                       byte_of(w, w->root));
    return 0;
}

int model_card_read(const char *readme, size_t len, struct model_card *ret, struct error *err)
{
    const char *text = NULL;
    size_t n = 0;
    yaml_parser_t parser;
    *ret = (struct model_card){0};
    int rc = find_front_matter(readme, len, &text, &n, err);
    if (rc <= 0 || !n)
        return rc < 0 ? -1 : 0;
    struct walk w = {.text = text, .len = n, .from = (size_t)(text - readme)};
    if (!utf8_is_valid(text, n))
        return err_set(err, ERR_INVALID, "its front matter is not UTF-8 at byte %zu",
                       byte_of(&w, SIZE_MAX));
    members_of(ret, w.members);
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_NOMEM, "out of memory for a model card");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    rc = walk(&parser, &w, err);
    yaml_parser_delete(&parser);
    if (rc < 0)
        model_card_done(ret);
    return rc;
}
