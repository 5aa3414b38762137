/* The query of a request for a Hub's own API. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/hub_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_options o = {0};
    struct error err = ERROR_INIT;
    char *query = malloc(size + 1);
    if (!query)
        return 0;
    memcpy(query, data, size);
    query[size] = '\0';
    if (hub_options_read(query, &o, &err) == 0) {
        const char *word = NULL;
        for (size_t i = 0; i < o.expand.n; i++)
            word = hub_words_next(&o.expand, word);
        if (o.limit == 0 ||
            (word && word + strlen(word) + 1 != o.expand.text.data + o.expand.text.len))
            abort();
    } else if (o.limit || o.cursor.data || err.code != ERR_INVALID) {
        abort();
    }
    hub_options_done(&o);
    free(query);
    return 0;
}
