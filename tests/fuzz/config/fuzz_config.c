/* A configuration file: whatever is taken is shown, and what is shown is taken again and shown the
 * same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

/* Without the comments, which name other lines the second time. */
static void strip(struct strbuf *b)
{
    char *to = b->data;
    bool in_string = false;
    for (const char *p = b->data; p && *p; p++) {
        if (in_string && *p == '\\') {
            *to++ = *p++;
        } else if (*p == '"') {
            in_string = !in_string;
        } else if (!in_string && p[0] == '/' && p[1] == '/') {
            p += strcspn(p, "\n");
        }
        *to++ = *p;
    }
    strbuf_truncate(b, (size_t)(to - b->data));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_config_ struct config *first = NULL, *second = NULL;
    _cleanup_strbuf_ struct strbuf a = STRBUF_INIT, b = STRBUF_INIT;
    struct error err = ERROR_INIT;
    if (config_parse_text("fuzz", (const char *)data, size, &first, &err) < 0) {
        if (err.code == ERR_NONE || !err.text[0])
            abort();
        return 0;
    }
    if (config_show(first, &a, &err) < 0 ||
        config_parse_text("shown", a.data, a.len, &second, &err) < 0 ||
        config_show(second, &b, &err) < 0)
        abort();
    for (size_t i = 0; i < first->n_upstreams; i++)
        if (first->upstreams[i].proxy && strchr(first->upstreams[i].proxy, '@'))
            return 0; /* a password is not shown, so it cannot come back */
    strip(&a);
    strip(&b);
    if (strcmp(a.data, b.data) != 0)
        abort();
    return 0;
}
