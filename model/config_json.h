/* config.json as Python's json module reads it: NaN, Infinity and -Infinity may stand for numbers
 * (time_step_limit of the Mamba families); they become null. Internal to model/. */
#ifndef WB_MODEL_CONFIG_JSON_H
#define WB_MODEL_CONFIG_JSON_H

#include "base/json.h"

/* ERR_INVALID: not a JSON object. */
int config_parse(const char *text, size_t len, struct json **ret, struct error *err);

/* The text and what it was parsed into; borrowed. */
struct config_source {
    const char *text;
    size_t len;
    const struct json *root;
};

/* " at byte N", to be put behind a key's name in an error: where its value stands in the text. ""
 * when there is no such value (NULL) or memory is short. Reads the text once more. */
#define CONFIG_AT_MAX 40
const char *config_at(const struct config_source *t, const struct json *value,
                      char buf[static CONFIG_AT_MAX]);

/* Where multimodal models keep their language model: text_config, llm_config, ... . NULL where
 * there is none; 0 is the root itself. *ret_name: "", "text_config", ... */
#define CONFIG_PLACES 5
const struct json *config_place(const struct json *root, size_t i, const char **ret_name);

/* A member that is not null, from the top or else from the first of those places that has it. */
const struct json *config_find(const struct json *root, const char *key);

#endif
