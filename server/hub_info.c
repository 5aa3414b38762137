/* GET /api/models/<repo>[/revision/<revision>]: what the Hub says of a repository. */
#include <stdio.h>

#include "server/hub_api.h"

/* The sizes and ids of its files, of the very commit that the info is of. */
static int list_files(const struct request *q, const struct hub_at *at, struct hub_listing *ret,
                      struct error *err)
{
    struct hub_query pinned = q->hub->query;
    struct hub_at of_list = {0};
    snprintf(pinned.revision, sizeof(pinned.revision), "%s", at->commit);
    return hub_mirror_list(q->hub->mirror, &pinned, ret, &of_list, err);
}

/* Takes info as it is, or with what the options change of it. */
static enum MHD_Result send_info(struct request *q, const struct hub_options *o,
                                 const struct hub_at *at, const struct hub_text *info)
{
    struct error err = ERROR_INIT;
    _cleanup_(hub_listing_done) struct hub_listing files = {0};
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    size_t where = 0, len;
    const char *json = hub_text_bytes(info, &len);
    bool has_files = o->blobs && *at->commit; /* no commit is told where none may be had */
    if (has_files && list_files(q, at, &files, &err) < 0)
        return hub_reply_error(q, at, &err);
    bool is_long = has_files && hub_is_long(&files);
    int rc = is_long ? hub_put_info_around(&text, json, len, &o->expand, &where, &err)
                     : hub_put_info(&text, json, len, &o->expand, has_files ? &files : NULL, &err);
    if (rc < 0)
        return hub_reply_error(q, at, &err);
    return where ? hub_stream_siblings(q, at, &files, &text, where)
                 : hub_reply_json(q, at, &text, 0);
}

enum MHD_Result hub_info_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    _cleanup_(hub_options_done) struct hub_options o = {0};
    _cleanup_hub_text_ struct hub_text *info = NULL;
    if (hub_options_read(q->query, &o, &err) < 0 ||
        hub_mirror_info(q->hub->mirror, &q->hub->query, &info, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    if (!o.blobs && o.expand.n == 0)
        return hub_reply_text(q, &at, TAKE_PTR(info));
    return send_info(q, &o, &at, info);
}
