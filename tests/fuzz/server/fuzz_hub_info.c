/* Members of an info object and elements of a list, cut out of what a Hub said. Input: one byte of
 * kind, then the text. What is well formed must stay so. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/hub_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct strbuf *out, const struct hub_words *expand)
{
    struct error err = ERROR_INIT;
    struct json *root = NULL;
    if (json_parse(strbuf_str(out), out->len, &root, &err) < 0)
        abort();
    for (const struct json *j = json_first(root); j && expand->n; j = json_next(j))
        if (strcmp(json_key(j), "_id") != 0 && strcmp(json_key(j), "id") != 0 &&
            strcmp(json_key(j), "sha") != 0 && strcmp(json_key(j), "siblings") != 0)
            abort();
    json_free(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_options o = {0};
    struct hub_listing none = {0};
    struct strbuf out = STRBUF_INIT;
    struct json *root = NULL;
    struct error err = ERROR_INIT;
    if (size == 0 ||
        hub_options_read(data[0] & 1 ? "expand=sha&expand=siblings" : "", &o, &err) < 0)
        return 0;
    const char *text = (const char *)data + 1;
    /* Only what was parsed when it came gets there. */
    if (json_parse(text, size - 1, &root, &err) == 0) {
        if (json_is_object(root)) {
            if (hub_put_info(&out, text, size - 1, &o.expand, data[0] & 2 ? &none : NULL, &err) ==
                0)
                check(&out, &o.expand);
        } else if (hub_put_first(&out, text, size - 1, data[0] >> 4, &err) == 0) {
            struct hub_words all = {0};
            check(&out, &all);
        }
    }
    json_free(root);
    strbuf_done(&out);
    hub_options_done(&o);
    return 0;
}
