/* The body of a paths-info request. Input: one byte of kind (form, JSON, not said), then the body.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/hub_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct hub_words *w)
{
    const char *word = NULL;
    size_t bytes = 0;
    if (w->n > HUB_PATHS_MAX)
        abort();
    for (size_t i = 0; i < w->n; i++) {
        word = hub_words_next(w, word);
        size_t n = strlen(word);
        if (n && (word[0] == '/' || word[n - 1] == '/'))
            abort();
        bytes += n + 1;
    }
    if (bytes != w->text.len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"application/x-www-form-urlencoded", "application/json",
                                        NULL};
    struct hub_words w = {0};
    struct error err = ERROR_INIT;
    if (size == 0)
        return 0;
    char *body = malloc(size > 1 ? size - 1 : 1); /* ends where the input ends */
    if (!body)
        return 0;
    memcpy(body, data + 1, size - 1);
    if (hub_paths_read(types[data[0] % 3], body, size - 1, &w, &err) == 0)
        check(&w);
    else if (w.text.data || err.code != ERR_INVALID)
        abort();
    hub_words_done(&w);
    free(body);
    return 0;
}
