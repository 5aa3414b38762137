/* GET /api/whoami-v2 and /api/models/<repo>/auth-check: who may do what. */
#include "server/hub_api.h"

enum MHD_Result hub_whoami_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {.refused = HUB_REFUSED_TOKEN};
    _cleanup_strbuf_ struct strbuf who = STRBUF_INIT;
    if (hub_mirror_whoami(q->hub->mirror, &who, &err) < 0)
        return hub_reply_error(q, err.code == ERR_UNAUTHORIZED ? &at : NULL, &err);
    return hub_reply_json(q, NULL, &who, 0);
}

enum MHD_Result hub_check_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    _cleanup_strbuf_ struct strbuf yes = STRBUF_INIT;
    if (hub_mirror_check(q->hub->mirror, &q->hub->query, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    strbuf_puts(&yes, "{}");
    return hub_reply_json(q, &at, &yes, 0);
}
