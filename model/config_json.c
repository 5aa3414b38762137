#include "model/config_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

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

int config_parse(const char *text, size_t len, struct json **ret, struct error *err)
{
    _cleanup_free_ char *copy = malloc(len + 1);
    _cleanup_json_ struct json *root = NULL;
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    memcpy(copy, text, len);
    copy[len] = '\0';
    blank_words(copy, len);
    if (json_parse(copy, len, &root, err) < 0)
        return -1;
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "the configuration is no JSON object");
    *ret = TAKE_PTR(root);
    return 0;
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
