/* What a model card says of a model: the YAML between the first two lines of "---" of a README.md,
 * as the Hub reads it. Only the members below, at the top of the mapping; all of it is text from
 * strangers. Pure; thread-safe. */
#ifndef WB_MODEL_CARD_H
#define WB_MODEL_CARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define CARD_FRONT_MATTER_MAX (256u << 10) /* bytes of YAML that are read */
#define CARD_ITEMS_MAX 64                  /* of one list; further ones are left out */
#define CARD_TEXT_MAX 200                  /* bytes of one text; longer ones are left out */

struct card_list {
    char **items; /* owned, in the card's own order, each once */
    size_t n;
};

struct model_card {
    struct card_list licenses; /* the Hub's identifiers: "apache-2.0", "llama3.1", "other" */
    char *license_name;        /* beside "other"; NULL = none, as below */
    char *pipeline_tag;        /* "text-generation" */
    char *library_name;
    struct card_list languages; /* "en", "zh", "multilingual", ... */
    struct card_list tags;
    struct card_list base_models; /* ids */
};

/* A README without front matter is an empty card. ERR_INVALID: front matter without its end, over
 * CARD_FRONT_MATTER_MAX, not UTF-8, no YAML, or no mapping; *ret is empty then. */
int model_card_read(const char *readme, size_t len, struct model_card *ret, struct error *err);
void model_card_done(struct model_card *c);

/* The SPDX expression for one of the Hub's license identifiers: "Apache-2.0" for "apache-2.0", and
 * LicenseRef-... for one that SPDX's list does not have (for "other": by license_name). Returns
 * ret,
 * "" for none. */
#define CARD_SPDX_MAX (CARD_TEXT_MAX + 16)
char *card_spdx(const char *license, const char *license_name, char ret[static CARD_SPDX_MAX]);

/* What a model takes and gives, by the Hub's task name: the specification's words ("text", "image",
 * "audio", "video", "embedding", "other"), up to 3, NULL behind them; false for a task that is not
 * known. */
bool card_task(const char *pipeline_tag, const char *inputs[static 4],
               const char *outputs[static 4]);

#endif
