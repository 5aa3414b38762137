#include "model/config_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/json_scan.h"

/* Overwrites the words that are no JSON, outside of strings. */
static void blank_words(char *text, size_t len)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        for (size_t w = 0; !in_string && w < ARRAY_LEN(words) && i < len; w++) {
            size_t n = strlen(words[w]);
            if (n > len - i || memcmp(text + i, words[w], n) != 0)
                continue;
            if (n < 4) /* "null" is longer than "NaN": a number will do */
                memcpy(text + i, "-1 ", n);
            else {
                memset(text + i, ' ', n);
                memcpy(text + i, "null", 4);
            }
        }
    }
}

static char *plain_json(const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    blank_words(copy, len);
    return copy;
}

int config_parse(const char *text, size_t len, struct json **ret, struct error *err)
{
    _cleanup_free_ char *copy = plain_json(text, len);
    _cleanup_json_ struct json *root = NULL;
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (json_parse(copy, len, &root, err) < 0)
        return -1;
    if (!json_is_object(root)) {
        struct json_scan s;
        json_scan_start(&s, copy, len, 0);
        json_scan_peek(&s);
        return err_set(err, ERR_INVALID, "the configuration is no JSON object at byte %" PRIu64,
                       json_scan_at(&s));
    }
    *ret = TAKE_PTR(root);
    return 0;
}

/* Walks text and tree side by side: both have the members in the same order. 1: the text is at the
 * value; 0: it is not in `tree`, and the text is behind that; -1. */
static int seek(struct json_scan *s, const struct json *tree, const struct json *value)
{
    bool object = json_is_object(tree);
    char close = object ? '}' : ']';
    int more = 0, rc = 0;
    json_scan_peek(s);
    if (tree == value)
        return 1;
    if (!object && !json_is_array(tree))
        return json_scan_skip(s, NULL);
    if (json_scan_open(s, object ? '{' : '[', "", NULL) < 0)
        return -1;
    const struct json *child = json_first(tree);
    for (bool first = true;
         rc == 0 && (more = json_scan_more(s, close, first, "", NULL)) > 0 && child;
         first = false) {
        struct json_span key;
        if (object && json_scan_key(s, "", &key, NULL) < 0)
            return -1;
        rc = seek(s, child, value);
        child = json_next(child);
    }
    return more < 0 ? -1 : rc;
}

const char *config_at(const struct config_source *t, const struct json *value,
                      char buf[static CONFIG_AT_MAX])
{
    struct json_scan s;
    _cleanup_free_ char *copy = value ? plain_json(t->text, t->len) : NULL;
    buf[0] = '\0';
    if (!copy)
        return buf;
    json_scan_start(&s, copy, t->len, 0);
    if (seek(&s, t->root, value) > 0)
        snprintf(buf, CONFIG_AT_MAX, " at byte %" PRIu64, json_scan_at(&s));
    return buf;
}

const struct json *config_place(const struct json *root, size_t i, const char **ret_name)
{
    static const char *const names[CONFIG_PLACES] = {"", "text_config", "llm_config",
                                                     "language_config", "thinker_config"};
    if (i >= CONFIG_PLACES)
        return NULL;
    const struct json *place = i ? json_get(root, names[i]) : root;
    if (strcmp(names[i], "thinker_config") == 0)
        place = json_get(place, "text_config");
    *ret_name = names[i];
    return place;
}

const struct json *config_find(const struct json *root, const char *key)
{
    const char *name;
    for (size_t i = 0; i < CONFIG_PLACES; i++) {
        const struct json *place = config_place(root, i, &name);
        const struct json *found = place ? json_get(place, key) : NULL;
        if (found && !json_is_null(found))
            return found;
    }
    return NULL;
}
