/* Request targets: the path up to the first '?', and the query behind it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    struct route r;
    struct error err = ERROR_INIT;
    int ok = route_parse(path, &r, &err);
    if ((unsigned)r.kind >= ROUTE_COUNT || (ok < 0) != (err.code != ERR_NONE))
        abort();
    if (ok < 0)
        return;
    if (*r.ref.repository && !repository_is_valid(r.ref.repository))
        abort();
    if (*r.ref.tag && !tag_is_valid(r.ref.tag))
        abort();
    bool names_one = r.kind == ROUTE_MANIFEST || r.kind == ROUTE_BLOB ||
                     r.kind == ROUTE_REFERRERS || r.kind == ROUTE_ADMIN_REFERENCE ||
                     r.kind == ROUTE_ADMIN_HISTORY;
    if (names_one && (!*r.ref.repository || (r.ref.is_digest == (*r.ref.tag != '\0'))))
        abort();
    if (r.kind == ROUTE_ADMIN_HISTORY && r.ref.is_digest)
        abort();
    bool is_upload = r.kind == ROUTE_UPLOADS || r.kind == ROUTE_UPLOAD;
    if (is_upload ? !*r.ref.repository || r.about != RESOURCE_UPLOAD : *r.upload != '\0')
        abort();
    if (*r.upload && (r.kind != ROUTE_UPLOAD || !is_lower_hex(r.upload, UPLOAD_ID_LEN)))
        abort();
    if ((r.kind == ROUTE_BLOB || r.kind == ROUTE_REFERRERS) && !r.ref.is_digest)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *target = malloc(size + 1);
    if (!target)
        return 0;
    memcpy(target, data, size);
    target[size] = '\0';
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    check_path(target);
    char last[64];
    size_t n = 0;
    query_get(query, "last", last, sizeof(last), NULL);
    unsigned values = 0, parts = 1;
    for (const char *q = query; q && *q; q++)
        parts += *q == '&';
    while (query_get_nth(query, "last", values, last, sizeof(last), NULL) != 0)
        if (++values > parts)
            abort();
    if (query_get_count(query, 100, &n, NULL) == 1 && n > 100)
        abort();
    free(target);
    return 0;
}
