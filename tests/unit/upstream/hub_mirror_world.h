/* A mirror of a scripted Hub, what the Hub says and what a client asks. Header-only: every test
 * program is one source file. */
#ifndef WB_TESTS_HUB_MIRROR_WORLD_H
#define WB_TESTS_HUB_MIRROR_WORLD_H

#include <criterion/criterion.h>
#include <stdatomic.h>

#include "folder_store.h"
#include "script_server.h"
#include "skewed_clock.h"
#include "upstream/hub_mirror_private.h"

#define C1 "0123456789abcdef0123456789abcdef01234567"
#define C2 "ffff456789abcdef0123456789abcdef01234567"
#define SHA "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define OID "ce013625030ba8dba906f756967f9e9ca394464a"
#define POINTER "1111111111111111111111111111111111111111"

/* ---- a mirror of a scripted Hub -------------------------------------------------------------- */

struct world {
    char dir[FOLDER_STORE_MAX];
    struct script *s;
    struct store *store;
    struct config config;
    struct config_upstream c;
    struct hub *hub;
    struct hub_mirror *m;
    struct hub_query q;
    struct hub_at at;
    struct error err;
    struct strbuf text;
};

static void start_mirror(struct world *w)
{
    cr_assert_eq(hub_new(&w->c, &w->hub, &w->err), 0, "%s", w->err.text);
    cr_assert_eq(hub_mirror_new(&w->config, &w->c, w->store, w->hub, &w->m, &w->err), 0, "%s",
                 w->err.text);
}

static void stop_mirror(struct world *w)
{
    http_pool_cancel(hub_pool(w->hub));
    hub_mirror_free(w->m);
    hub_free(w->hub);
}

static void restart(struct world *w)
{
    stop_mirror(w);
    start_mirror(w);
}

static struct world *world(void)
{
    struct world *w = calloc(1, sizeof(*w));
    cr_assert(w);
    w->store = folder_store_open(w->dir);
    w->s = script_start();
    w->c = (struct config_upstream){.prefix = (char *)"hf",
                                    .url = strdup(script_url(w->s, "")),
                                    .stall_timeout_s = 30,
                                    .revalidate_timeout_s = 30,
                                    .tag_ttl_s = 60,
                                    .negative_ttl_s = 30,
                                    .auth_ttl_s = 60,
                                    .max_connections = 8};
    w->config.upstreams = &w->c;
    w->config.n_upstreams = 1;
    w->q = (struct hub_query){.kind = HUB_MODEL, .name = "o/m"};
    start_mirror(w);
    return w;
}

static void end(struct world *w)
{
    stop_mirror(w);
    folder_store_close(w->store, w->dir);
    script_stop(w->s);
    free(w->c.url);
    strbuf_done(&w->text);
    free(w);
}

static void later(long seconds)
{
    atomic_fetch_add(&skew_s, seconds);
}

/* ---- what the Hub says ----------------------------------------------------------------------- */

#define INFO(commit, extra)                                                                        \
    "{\"_id\":\"1\",\"id\":\"o/m\",\"sha\":\"" commit "\",\"downloads\":12345678901234567890,"     \
    "\"xetEnabled\":true,\"siblings\":[{\"rfilename\":\"a.safetensors\",\"xetHash\":\"x\"},"       \
    "{\"rfilename\":\"config.json\"}]" extra "}"
#define TREE                                                                                       \
    "[{\"type\":\"directory\",\"path\":\"sub\",\"oid\":\"" POINTER "\",\"size\":0},"               \
    "{\"type\":\"file\",\"path\":\"a.safetensors\",\"oid\":\"" POINTER "\",\"size\":1000,"         \
    "\"lfs\":{\"oid\":\"" SHA "\",\"size\":1000,\"pointerSize\":135}},"                            \
    "{\"type\":\"file\",\"path\":\"config.json\",\"oid\":\"" OID "\",\"size\":6},"                 \
    "{\"type\":\"file\",\"path\":\"sub/b.bin\",\"oid\":\"" OID "\",\"size\":6}]"
#define MAIN "GET /api/models/o/m/revision/main "

static void says_info(struct world *w, const char *match, const char *body)
{
    script_reply(w->s, match, body, "200 OK\r\nContent-Type: application/json");
}

static void says_tree(struct world *w, const char *commit)
{
    char match[128];
    snprintf(match, sizeof(match), "GET /api/models/o/m/tree/%s?", commit);
    script_reply(w->s, match, TREE, "200 OK\r\nContent-Type: application/json");
}

static void says_lfs(struct world *w, const char *match)
{
    script_reply(w->s, match, "",
                 "302 Found\r\nLocation: http://127.0.0.1:1/x\r\nX-Repo-Commit: " C1
                 "\r\nX-Linked-Size: 1000\r\nX-Linked-Etag: \"" SHA "\"");
}

static void refuses(struct world *w, const char *match, unsigned status, const char *code)
{
    script_reply(w->s, match, "{\"error\":\"no\"}", "%u No\r\nX-Error-Code: %s", status, code);
}

static void fails(struct world *w, const char *match)
{
    script_reply(w->s, match, "", "500 Broken");
}

/* ---- what a client asks ---------------------------------------------------------------------- */

static int info(struct world *w, const char *revision)
{
    strbuf_reset(&w->text);
    w->err = ERROR_INIT;
    strcpy(w->q.revision, revision);
    _cleanup_hub_text_ struct hub_text *text = NULL;
    size_t n;
    int rc = hub_mirror_info(w->m, &w->q, &text, &w->at, &w->err);
    if (rc == 0)
        strbuf_puts(&w->text, hub_text_bytes(text, &n));
    return rc;
}

static int file(struct world *w, const char *revision, const char *path, struct hub_file *ret)
{
    struct hub_file ignored;
    w->err = ERROR_INIT;
    strcpy(w->q.revision, revision);
    return hub_mirror_file(w->m, &w->q, path, ret ? ret : &ignored, &w->at, &w->err);
}

static int list(struct world *w, const char *revision, struct hub_listing *ret)
{
    w->err = ERROR_INIT;
    strcpy(w->q.revision, revision);
    return hub_mirror_list(w->m, &w->q, ret, &w->at, &w->err);
}

static int refs(struct world *w)
{
    strbuf_reset(&w->text);
    w->err = ERROR_INIT;
    return hub_mirror_refs(w->m, &w->q, false, &w->text, &w->at, &w->err);
}

static bool said(const struct world *w, const char *what)
{
    return strstr(strbuf_str(&w->text), what) != NULL;
}

#define asked(w, n) cr_assert_eq(script_count((w)->s), (n), "%u", script_count((w)->s))

static void is_right(struct world *w, int rc, const char *commit, const char *warning)
{
    cr_assert_eq(rc, 0, "%s", w->err.text);
    cr_assert_str_eq(w->at.commit, commit);
    cr_assert_str_eq(w->at.id, "o/m");
    cr_assert_eq(w->at.refused, HUB_REFUSED_NOT);
    cr_assert(*warning ? strstr(w->at.warning, warning) != NULL : !*w->at.warning, "'%s'",
              w->at.warning);
}

static void is_refused(struct world *w, int rc, enum hub_refused refused)
{
    cr_assert_eq(rc, -1);
    cr_assert_eq(w->at.refused, refused, "%d: %s", w->at.refused, w->err.text);
}

#endif
