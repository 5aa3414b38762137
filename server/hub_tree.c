/* GET /api/models/<repo>/tree/<revision>[/<folder>] and POST .../paths-info/<revision>.
 *
 * A tree is one answer, however large: clients keep what they get for good, and some never ask for
 * the next page. Only who names a limit gets pages. */
#include <string.h>

#include "server/hub_api.h"
#include "server/hub_json.h"

#define PAGE_MAX 10000u /* rows; the Hub's own pages have a tenth of it */

static int read_listing(struct request *q, struct hub_listing *ret, struct hub_at *at,
                        struct error *err)
{
    if (hub_mirror_list(q->hub->mirror, &q->hub->query, ret, at, err) == 0)
        return 0;
    if (!hub_read_longer(q, at))
        return -1;
    *at = (struct hub_at){0};
    *err = ERROR_INIT;
    return hub_mirror_list(q->hub->mirror, &q->hub->query, ret, at, err);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* A cursor is the last path of the page before. */
static int check_cursor(const char *cursor, const char *folder, struct error *err)
{
    size_t n = strlen(folder);
    bool ok = strlen(cursor) <= HUB_PATH_MAX &&
              (n == 0 || (strncmp(cursor, folder, n) == 0 && cursor[n] == '/'));
    for (const unsigned char *p = (const unsigned char *)cursor; ok && *p; p++)
        ok = *p >= 0x20 && *p != 0x7f;
    if (ok || !*cursor)
        return 0;
    return err_set(err, ERR_INVALID,
                   "the cursor is not one of this folder's: take the URL of the Link header as it "
                   "is");
}

static bool is_cursor(const char *pair, size_t n)
{
    static const char key[] = "cursor=";
    return n >= strlen(key) && memcmp(pair, key, strlen(key)) == 0;
}

/* Absolute: Python's client takes no other, and JavaScript's takes it for the end. */
static void put_link(const struct request *q, const char *last, struct strbuf *to)
{
    strbuf_putc(to, '<');
    request_base_url(q, to);
    strbuf_printf(to, "%s?", q->path);
    for (const char *p = q->query; p && *p;) {
        size_t n = strcspn(p, "&");
        if (n && !is_cursor(p, n)) {
            strbuf_put(to, p, n);
            strbuf_putc(to, '&');
        }
        p += n + (p[n] == '&');
    }
    strbuf_puts(to, "cursor=");
    strbuf_put_urlencoded(to, last, "/");
    strbuf_puts(to, ">; rel=\"next\"");
}

static enum MHD_Result reply_page(struct request *q, const struct hub_at *at, struct strbuf *rows,
                                  const char *last)
{
    _cleanup_strbuf_ struct strbuf link = STRBUF_INIT;
    put_link(q, last, &link);
    uint64_t n = rows->len;
    struct MHD_Response *r = reply_from_text(rows);
    if (r &&
        (strbuf_failed(&link) || !reply_put(r, "Content-Type", "application/json; charset=utf-8") ||
         !reply_put(r, "Cache-Control", "no-cache") || !reply_put(r, "Link", strbuf_str(&link)) ||
         !hub_reply_put(q, r, at))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->body_length = q->is_head ? 0 : n;
    return reply(q, 200, r);
}

/* A page's Link needs to say where we are; who came without a Host gets all at once. */
static uint64_t page_limit(const struct request *q, const struct hub_options *o)
{
    _cleanup_strbuf_ struct strbuf base = STRBUF_INIT;
    request_base_url(q, &base);
    if (!base.len || o->limit == UINT64_MAX)
        return UINT64_MAX;
    return o->limit < PAGE_MAX ? o->limit : PAGE_MAX;
}

/* ---- a tree ---------------------------------------------------------------------------------- */

static enum MHD_Result no_folder(struct request *q, struct hub_at *at)
{
    struct error err = ERROR_INIT;
    at->refused = HUB_REFUSED_ENTRY;
    err_set(&err, ERR_NOT_FOUND, "there is no folder \"%.300s\" in %.200s at %s", q->hub->path,
            at->id, at->commit);
    return hub_reply_error(q, at, &err);
}

static enum MHD_Result serve_rows(struct request *q, const struct hub_options *o)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    _cleanup_(hub_listing_done) struct hub_listing files = {0};
    _cleanup_strbuf_ struct strbuf rows = STRBUF_INIT;
    struct hub_page page = {.after = strbuf_str(&o->cursor), .limit = page_limit(q, o)};
    if (read_listing(q, &files, &at, &err) < 0 || check_cursor(page.after, q->hub->path, &err) < 0)
        return hub_reply_error(q, &at, &err);
    if (page.limit == UINT64_MAX && hub_is_long(&files)) {
        struct hub_walk walk;
        return hub_walk_begin(&walk, &files, q->hub->path, o->recursive, page.after)
                   ? hub_stream_tree(q, &at, &files, &walk)
                   : no_folder(q, &at);
    }
    if (!hub_put_tree(&rows, &files, q->hub->path, o->recursive, &page))
        return no_folder(q, &at);
    return page.last ? reply_page(q, &at, &rows, page.last) : hub_reply_json(q, &at, &rows, 0);
}

static int expanded(struct request *q, bool recursive, struct strbuf *to, struct hub_at *at,
                    struct error *err)
{
    const struct hub_route *h = q->hub;
    if (hub_mirror_expanded(h->mirror, &h->query, h->path, recursive, to, at, err) == 0)
        return 0;
    if (!hub_read_longer(q, at))
        return -1;
    strbuf_reset(to);
    *at = (struct hub_at){0};
    *err = ERROR_INIT;
    return hub_mirror_expanded(h->mirror, &h->query, h->path, recursive, to, at, err);
}

/* With who changed each file last, and what scanners found: only the Hub knows. Never in pages. */
static enum MHD_Result serve_expanded(struct request *q, bool recursive)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    _cleanup_strbuf_ struct strbuf rows = STRBUF_INIT;
    if (expanded(q, recursive, &rows, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    return hub_reply_json(q, &at, &rows, 0);
}

enum MHD_Result hub_tree_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    _cleanup_(hub_options_done) struct hub_options o = {0};
    if (hub_options_read(q->query, &o, &err) < 0)
        return hub_reply_error(q, NULL, &err);
    return o.is_expanded ? serve_expanded(q, o.recursive) : serve_rows(q, &o);
}

/* ---- some paths ------------------------------------------------------------------------------ */

static enum MHD_Result serve_paths(struct request *q)
{
    struct error err = ERROR_INIT;
    struct hub_at at = {0};
    const struct strbuf *body = hub_body(q);
    _cleanup_(hub_words_done) struct hub_words paths = {0};
    _cleanup_(hub_listing_done) struct hub_listing files = {0};
    _cleanup_strbuf_ struct strbuf rows = STRBUF_INIT;
    if (hub_paths_read(request_header(q, "Content-Type"), strbuf_str(body), body->len, &paths,
                       &err) < 0 ||
        hub_mirror_list(q->hub->mirror, &q->hub->query, &files, &at, &err) < 0)
        return hub_reply_error(q, &at, &err);
    hub_put_paths(&rows, &files, &paths);
    return hub_reply_json(q, &at, &rows, 0);
}

/* What `expand` would add is not worth a request to the Hub for every file. */
enum MHD_Result hub_paths_begin(struct request *q)
{
    return hub_collect(q, HUB_PATHS_BODY_MAX, serve_paths);
}
