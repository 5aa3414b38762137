/* GET /admin/v1/history/NAME:TAG: what a tag named, since when, and who moved it. */
#include "server/history.h"

#include "base/clock.h"
#include "base/json.h"
#include "server/request.h"

#define EVENTS_DEFAULT 100u

static void put_event(struct strbuf *body, const struct tag_event *e)
{
    char at[32], digest[DIGEST_TEXT_MAX];
    json_put_separator(body);
    strbuf_putc(body, '{');
    json_put_text(body, "at", clock_format(e->at_ms, at));
    if (e->digest.alg == DIGEST_NONE) {
        json_put_key(body, "removed");
        strbuf_puts(body, "true");
    } else {
        json_put_text(body, "digest", digest_format(&e->digest, digest));
    }
    if (*e->commit)
        json_put_text(body, "commit", e->commit);
    json_put_text(body, "source", e->source);
    strbuf_putc(body, '}');
}

void history_write(const char *repository, const char *tag, const struct tag_history *h,
                   size_t limit, struct strbuf *to)
{
    strbuf_putc(to, '{');
    json_put_text(to, "repository", repository);
    json_put_text(to, "tag", tag);
    json_put_key(to, "events");
    strbuf_putc(to, '[');
    for (size_t i = 0; i < h->n && i < limit; i++)
        put_event(to, &h->events[i]);
    strbuf_puts(to, "]}\n");
}

enum MHD_Result history_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    _cleanup_(tag_history_done) struct tag_history history = {0};
    const struct reference *ref = &q->route.ref;
    size_t limit = EVENTS_DEFAULT;
    if (admin_check_caller(q, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    if (query_get_count(q->query, TAG_HISTORY_MAX, &limit, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    /* With n=0 it still says whether there is one. */
    if (store_tag_history(q->server->store, ref->repository, ref->tag, limit ? limit : 1, &history,
                          &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    if (!history.n) {
        err_set(&err, ERR_NOT_FOUND, "no event is recorded for %s:%s", ref->repository, ref->tag);
        return reply_error(q, RESOURCE_MANIFEST, &err);
    }
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    history_write(ref->repository, ref->tag, &history, limit, &body);
    return reply_text(q, 200, "application/json", &body);
}
