/* Which method of which route is served by what: one table, from which the Allow header of a 405
 * comes too. */
#include <stdio.h>
#include <string.h>

#include "server/hub_api.h"
#include "server/request.h"

enum MHD_Result base_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    if (request_check_login(q, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    struct strbuf body = STRBUF_INIT;
    strbuf_puts(&body, "{}");
    return reply_text(q, 200, "application/json", &body);
}

static const struct route_method table[] = {
    {ROUTE_BASE, "GET", base_serve, false},
    {ROUTE_BASE, "HEAD", base_serve, false},
    {ROUTE_MANIFEST, "GET", manifests_serve, false},
    {ROUTE_MANIFEST, "HEAD", manifests_serve, false},
    {ROUTE_MANIFEST, "PUT", manifests_begin, true},
    {ROUTE_MANIFEST, "DELETE", deletes_serve, false},
    {ROUTE_BLOB, "GET", blobs_serve, false},
    {ROUTE_BLOB, "HEAD", blobs_serve, false},
    {ROUTE_BLOB, "DELETE", deletes_serve, false},
    {ROUTE_UPLOADS, "POST", uploads_begin, true},
    {ROUTE_UPLOAD, "PATCH", uploads_begin, true},
    {ROUTE_UPLOAD, "PUT", uploads_begin, true},
    {ROUTE_UPLOAD, "GET", uploads_serve, false},
    {ROUTE_UPLOAD, "HEAD", uploads_serve, false},
    {ROUTE_UPLOAD, "DELETE", uploads_serve, false},
    {ROUTE_TAGS, "GET", tags_serve, false},
    {ROUTE_TAGS, "HEAD", tags_serve, false},
    {ROUTE_REFERRERS, "GET", referrers_serve, false},
    {ROUTE_REFERRERS, "HEAD", referrers_serve, false},
    {ROUTE_CATALOG, "GET", catalog_serve, false},
    {ROUTE_CATALOG, "HEAD", catalog_serve, false},
    {ROUTE_HEALTH, "GET", health_serve, false},
    {ROUTE_HEALTH, "HEAD", health_serve, false},
    {ROUTE_READY, "GET", ready_serve, false},
    {ROUTE_READY, "HEAD", ready_serve, false},
    {ROUTE_METRICS, "GET", metrics_serve, false},
    {ROUTE_METRICS, "HEAD", metrics_serve, false},
    {ROUTE_ADMIN_REFERENCE, "DELETE", admin_serve, false},
    {ROUTE_ADMIN_HISTORY, "GET", history_serve, false},
    {ROUTE_ADMIN_WARM, "POST", warm_serve, false},
    {ROUTE_HUB_RESOLVE, "GET", hub_resolve_serve, false},
    {ROUTE_HUB_RESOLVE, "HEAD", hub_resolve_serve, false},
    {ROUTE_HUB_RAW, "GET", hub_raw_serve, false},
    {ROUTE_HUB_RAW, "HEAD", hub_raw_serve, false},
    {ROUTE_HUB_INFO, "GET", hub_info_serve, false},
    {ROUTE_HUB_INFO, "HEAD", hub_info_serve, false},
    {ROUTE_HUB_TREE, "GET", hub_tree_serve, false},
    {ROUTE_HUB_TREE, "HEAD", hub_tree_serve, false},
    {ROUTE_HUB_REFS, "GET", hub_refs_serve, false},
    {ROUTE_HUB_REFS, "HEAD", hub_refs_serve, false},
    {ROUTE_HUB_COMMITS, "GET", hub_commits_serve, false},
    {ROUTE_HUB_COMMITS, "HEAD", hub_commits_serve, false},
    {ROUTE_HUB_CHECK, "GET", hub_check_serve, false},
    {ROUTE_HUB_CHECK, "HEAD", hub_check_serve, false},
    {ROUTE_HUB_WHOAMI, "GET", hub_whoami_serve, false},
    {ROUTE_HUB_WHOAMI, "HEAD", hub_whoami_serve, false},
    {ROUTE_HUB_LLAMA, "GET", hub_llama_serve, false},
    {ROUTE_HUB_LLAMA, "HEAD", hub_llama_serve, false},
    {ROUTE_HUB_PATHS, "POST", hub_paths_begin, true},
};

const struct route_method *dispatch_find(enum route_kind kind, const char *method)
{
    for (unsigned i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].kind == kind && strcmp(table[i].method, method) == 0)
            return &table[i];
    return NULL;
}

enum MHD_Result dispatch_refuse(struct request *q)
{
    char allow[64] = "", text[160];
    size_t used = 0;
    for (unsigned i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].kind == q->route.kind && used < sizeof(allow))
            used += (size_t)snprintf(allow + used, sizeof(allow) - used, "%s%s", used ? ", " : "",
                                     table[i].method);
    if (q->route.kind == ROUTE_HUB_OTHER)
        return hub_reply_refusal(q, 404, NULL,
                                 "this server has no such part of the Hub's API: it serves files, "
                                 "file lists, refs and what there is to know of a repository");
    if (!*allow)
        return reply_refusal(q, 404, "UNSUPPORTED", NULL, "there is nothing at this path");
    snprintf(text, sizeof(text), "%.32s is nothing that this path takes; it takes %s", q->method,
             allow);
    return reply_refusal(q, 405, "UNSUPPORTED", allow, text);
}
