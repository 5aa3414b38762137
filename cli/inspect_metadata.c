/* Keys and values of a header, rendered while they are seen: arrays of a quarter of a million
 * strings are not kept. As JSON whole, for people in short. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cli/escape.h"
#include "cli/inspect.h"

#define SHOWN_TEXT 160
#define SHOWN_ELEMENTS 6

void put_real(struct strbuf *b, double value, bool single)
{
    const struct decoded d = {.kind = DECODED_FLOAT, .v.real = value};
    char text[DECODED_TEXT_MAX];
    decoded_text(&d, single ? "F32" : "F64", text);
    strbuf_puts(b, text);
}

/* Exactly what it is: who reads JSON has doubles. */
static void put_json_real(struct strbuf *b, double value)
{
    if (!isfinite(value))
        strbuf_putc(b, '"');
    put_real(b, value, false);
    if (!isfinite(value))
        strbuf_putc(b, '"');
}

static void put_json_value(struct strbuf *b, const struct metadata_info *i)
{
    switch (i->type) {
    case METADATA_STRING:
        put_json_text(b, i->string, i->string_len);
        break;
    case METADATA_BOOL:
        strbuf_puts(b, i->number ? "true" : "false");
        break;
    case METADATA_UNSIGNED:
        json_put_u64(b, i->number);
        break;
    case METADATA_SIGNED:
        strbuf_printf(b, "%" PRId64, (int64_t)i->number);
        break;
    case METADATA_FLOAT:
        put_json_real(b, i->real);
        break;
    case METADATA_ARRAY: /* in an array */
        strbuf_puts(b, "{\"element\":");
        json_put_string(b, i->element_name);
        json_put_key(b, "count");
        json_put_u64(b, i->count);
        strbuf_putc(b, '}');
        break;
    }
}

static int put_json_metadata(struct strbuf *b, const struct metadata_info *i, struct error *err)
{
    struct metadata_info e;
    int rc = 0;
    json_put_separator(b);
    strbuf_puts(b, "{\"key\":");
    put_json_text(b, i->key, i->key_len);
    json_put_key(b, "type");
    json_put_string(b, i->type_name);
    if (i->type != METADATA_ARRAY) {
        json_put_key(b, "value");
        put_json_value(b, i);
        strbuf_putc(b, '}');
        return 0;
    }
    json_put_key(b, "element");
    json_put_string(b, i->element_name);
    json_put_key(b, "count");
    json_put_u64(b, i->count);
    json_put_key(b, "values");
    strbuf_putc(b, '[');
    for (bool first = true; (rc = metadata_next(i->cursor, &e, err)) > 0; first = false) {
        if (!first) /* not json_put_separator(): an element may end in a bracket of its own */
            strbuf_putc(b, ',');
        put_json_value(b, &e);
    }
    strbuf_puts(b, "]}");
    return rc;
}

static void put_short_text(struct strbuf *b, const char *text, size_t n)
{
    size_t shown = n;
    if (n > SHOWN_TEXT)
        for (shown = SHOWN_TEXT; shown && ((unsigned char)text[shown] & 0xc0) == 0x80;)
            shown--;
    put_plain(b, text, shown);
    if (shown < n) {
        char size[GROUPED_MAX];
        strbuf_printf(b, "... (%s bytes)", format_grouped(n, size));
    }
}

static void put_value(struct strbuf *b, const struct metadata_info *i)
{
    char count[GROUPED_MAX];
    if (i->type == METADATA_FLOAT)
        put_real(b, i->real, strcmp(i->type_name, "f32") == 0);
    else if (i->type == METADATA_STRING)
        put_short_text(b, i->string, i->string_len);
    else if (i->type == METADATA_ARRAY)
        strbuf_printf(b, "%s[%s]", i->element_name, format_grouped(i->count, count));
    else
        put_json_value(b, i);
}

/* "key TAB type TAB value LF"; the text has none of these in it. */
static int put_line(struct strbuf *b, const struct metadata_info *i, struct error *err)
{
    struct metadata_info e;
    char count[GROUPED_MAX];
    int rc = 1;
    put_plain(b, i->key, i->key_len);
    strbuf_printf(b, "\t%s\t", i->type == METADATA_ARRAY ? i->element_name : i->type_name);
    if (i->type != METADATA_ARRAY) {
        put_value(b, i);
        strbuf_putc(b, '\n');
        return 0;
    }
    strbuf_printf(b, "[%s]", format_grouped(i->count, count));
    for (int n = 0; n < SHOWN_ELEMENTS && (rc = metadata_next(i->cursor, &e, err)) > 0; n++) {
        strbuf_putc(b, ' ');
        if (e.type == METADATA_STRING)
            strbuf_putc(b, '"');
        put_value(b, &e);
        if (e.type == METADATA_STRING)
            strbuf_putc(b, '"');
    }
    strbuf_puts(b, i->count > SHOWN_ELEMENTS ? " ...\n" : "\n");
    return rc < 0 ? -1 : 0;
}

int model_add_metadata(struct report *r, struct model_report *m, const struct metadata_info *i,
                       struct error *err)
{
    int rc =
        r->options->json ? put_json_metadata(&m->metadata, i, err) : put_line(&m->metadata, i, err);
    if (rc == 0 && strbuf_failed(&m->metadata))
        return err_set(err, ERR_NOMEM, "out of memory for the metadata");
    return rc;
}
