/* GET /api/models/<repo>/refs and .../commits/<revision>. */
#include "server/hub_api.h"
#include "server/hub_json.h"

enum MHD_Result hub_refs_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    _cleanup_(hub_options_done) struct hub_options o = {0};
    _cleanup_strbuf_ struct strbuf refs = STRBUF_INIT;
    if (hub_options_read(q->query, &o, &err) < 0 ||
        hub_mirror_refs(q->hub->mirror, &q->hub->query, o.pull_requests, &refs, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    return hub_reply_json(q, &at, &refs, 0);
}

/* The first page alone is kept: there is nothing on those behind it. */
enum MHD_Result hub_commits_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    uint64_t total = 0;
    _cleanup_(hub_options_done) struct hub_options o = {0};
    _cleanup_strbuf_ struct strbuf all = STRBUF_INIT, some = STRBUF_INIT;
    if (hub_options_read(q->query, &o, &err) < 0 ||
        hub_mirror_commits(q->hub->mirror, &q->hub->query, &all, &total, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    if (o.page == 0 && o.limit == UINT64_MAX)
        return hub_reply_json(q, &at, &all, total);
    if (hub_put_first(&some, strbuf_str(&all), all.len, o.page ? 0 : o.limit, &err) < 0)
        return hub_reply_error(q, &at, &err);
    return hub_reply_json(q, &at, &some, total);
}
