/* One file on the web, and those beside it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/source_private.h"
#include "config/proxy.h"
#include "config/url.h"

#define CONNECT_TIMEOUT_S 15u
#define STALL_TIMEOUT_S 60u

struct site {
    struct http_pool *pool;
    char *folder; /* owned; the URL up to its last slash */
    char *query;  /* owned; "?..." of the URL that was given, for that file alone; NULL = none */
};

static char *url_of(const struct site *site, const struct source *s, const char *path)
{
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    strbuf_puts(&url, site->folder);
    if (strcmp(path, s->entries[0].path) == 0) { /* as it was given */
        strbuf_puts(&url, path);
        strbuf_puts(&url, site->query ? site->query : "");
    } else {
        strbuf_put_urlencoded(&url, path, "/");
    }
    return strbuf_take(&url);
}

static int open_url(struct source *s, const char *path, struct source_file *f, struct error *err)
{
    const struct site *site = s->backend;
    struct web_file *w = calloc(1, sizeof(*w));
    if (!w)
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    w->pool = site->pool;
    w->base = url_of(site, s, path);
    int rc = w->base ? web_file_read(w, 0, SOURCE_FIRST, &f->prefix, err)
                     : err_set(err, ERR_NOMEM, "out of memory for a URL");
    if (rc == 0) {
        f->backend = w;
        f->size = w->size;
        return 1;
    }
    web_file_done(w);
    free(w);
    strbuf_done(&f->prefix);
    bool beside = strcmp(path, s->entries[0].path) != 0;
    return beside && err && err->code == ERR_NOT_FOUND ? 0 : -1;
}

static void free_site(struct source *s)
{
    struct site *site = s->backend;
    if (!site)
        return;
    http_pool_free(site->pool);
    free(site->folder);
    free(site->query);
    free(site);
}

static struct source_reads reads_of_site(const struct source *s)
{
    const struct site *site = s->backend;
    return (struct source_reads){http_pool_bytes(site->pool), http_pool_requests(site->pool)};
}

static const struct source_ops url_ops = {
    "url", open_url, web_source_read, web_source_close, free_site, reads_of_site};

/* A scheme is the same in any case; whoever looks at a URL looks for small letters. */
static char *small_scheme(const char *url)
{
    char *copy = strdup(url);
    for (char *p = copy; p && *p && *p != ':'; p++)
        *p = (char)tolower((unsigned char)*p);
    return copy;
}

int source_open_url(struct source *s, const char *text, struct error *err)
{
    static const struct http_options options = {.max_connections = 2,
                                                .connect_timeout_s = CONNECT_TIMEOUT_S,
                                                .stall_timeout_s = STALL_TIMEOUT_S,
                                                .proxy_of = proxy_of_environment};
    _cleanup_free_ char *url = small_scheme(text);
    if (!url)
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    size_t end = strcspn(url, "?#");
    const char *host = strstr(url, "://") + 3, *slash = NULL;
    for (const char *p = host; p < url + end; p++)
        if (*p == '/')
            slash = p;
    for (const unsigned char *p = (const unsigned char *)url; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f)
            return err_set(err, ERR_INVALID, "the URL holds a character that no URL may hold");
    if (!slash || slash + 1 == url + end)
        return err_set(err, ERR_INVALID, "the URL names no file: %.200s", url);
    _cleanup_free_ char *origin = strndup(url, strcspn(host, "/?#") + (size_t)(host - url));
    const char *wrong = origin ? url_check(origin, "http|https", false) : NULL;
    if (wrong)
        return err_set(err, ERR_INVALID, "the URL %s", wrong);
    struct site *site = calloc(1, sizeof(*site));
    if (!site)
        return err_set(err, ERR_NOMEM, "out of memory");
    s->backend = site;
    s->ops = &url_ops;
    s->is_one = true;
    site->folder = strndup(url, (size_t)(slash + 1 - url));
    site->query = url[end] == '?' ? strndup(url + end, strcspn(url + end, "#")) : NULL;
    _cleanup_free_ char *name = strndup(slash + 1, (size_t)(url + end - slash - 1));
    if (!origin || !site->folder || !name || (url[end] == '?' && !site->query))
        return err_set(err, ERR_NOMEM, "out of memory for a URL");
    if (http_pool_new(&options, &site->pool, err) < 0)
        return -1;
    return source_add(s, name, UINT64_MAX, err);
}
