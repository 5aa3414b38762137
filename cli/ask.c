#include "cli/ask.h"

#include <stdlib.h>
#include <string.h>

#include "config/url.h"
#include "upstream/http.h"

#define ANSWER_MAX (4u << 20)
#define CONNECT_TIMEOUT_S 10u
#define ANSWER_TIMEOUT_S 60u
/* The server works for as long as its upstreams' time limits allow before it says anything. It is
 * on this machine, so that one that ends is seen at once. */
#define LINES_TIMEOUT_S 86400u

const char *ask_server(const char *option)
{
    const char *server = option ? option : getenv("WEIGHBRIDGE_SERVER");
    return server && *server ? server : DEFAULT_SERVER;
}

int ask_misunderstood(const char *server, struct error *err)
{
    return err_set(err, ERR_UPSTREAM,
                   "%.200s does not answer as a weighbridge server: is --server right?", server);
}

/* The first error of an OCI error body, or just the status. */
static int answer_error(const struct http_response *response, const char *server, struct error *err)
{
    const struct strbuf *body = http_body(response);
    _cleanup_json_ struct json *root = NULL;
    const struct json *first = NULL;
    if (json_parse(strbuf_str(body), body->len, &root, NULL) == 0)
        first = json_first(json_get(root, "errors"));
    const char *code = json_str(json_get(first, "code"));
    const char *message = json_str(json_get(first, "message"));
    if (!code)
        return err_set(err, ERR_UPSTREAM,
                       "%.200s answered %u, not as a weighbridge server does: is --server right?",
                       server, http_status(response));
    return err_set(err, ERR_UPSTREAM, "%.200s: %s: %s", server, code, message ? message : "");
}

static int put_url(const char *server, const char *path, struct strbuf *url, struct error *err)
{
    size_t n = strlen(server);
    while (n && server[n - 1] == '/')
        n--;
    strbuf_put(url, server, n);
    strbuf_puts(url, path);
    return strbuf_failed(url) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int not_asked(struct error *err)
{
    return err_wrap(err, "the server cannot be asked");
}

static int ask(struct http_pool *pool, const char *server, const char *method, const char *path,
               struct json **ret, struct strbuf *body, struct error *err)
{
    _cleanup_response_ struct http_response *response = NULL;
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    if (put_url(server, path, &url, err) < 0)
        return -1;
    const struct http_request request = {
        .method = method,
        .url = url.data,
        .accept = "application/json",
        .max_body = ANSWER_MAX,
    };
    if (http_perform(pool, &request, &response, err) < 0)
        return err_wrap(err, "the server cannot be asked (without one, use --data DIR)");
    if (http_status(response) != 200)
        return answer_error(response, server, err);
    const struct strbuf *answer = http_body(response);
    if (json_parse(strbuf_str(answer), answer->len, ret, NULL) < 0)
        return ask_misunderstood(server, err);
    if (body)
        strbuf_put(body, strbuf_str(answer), answer->len);
    return 0;
}

static int pool_new(const char *server, unsigned timeout_s, struct http_pool **ret,
                    struct error *err)
{
    const struct http_options options = {
        .max_connections = 1,
        .connect_timeout_s = CONNECT_TIMEOUT_S,
        .stall_timeout_s = timeout_s,
    };
    const char *wrong = url_check(server, "http|https", false);
    if (wrong)
        return err_set(err, ERR_INVALID, "the server's URL %s", wrong);
    return http_pool_new(&options, ret, err);
}

int ask_json(const char *server, const char *method, const char *path, struct json **ret,
             struct strbuf *body, struct error *err)
{
    struct http_pool *pool = NULL;
    if (pool_new(server, ANSWER_TIMEOUT_S, &pool, err) < 0)
        return -1;
    int rc = ask(pool, server, method, path, ret, body, err);
    http_pool_free(pool);
    return rc;
}

/* ---- many lines ---- */

struct lines {
    const char *server;
    struct strbuf partial; /* a line without its end */
    int (*on_line)(void *ctx, const struct json *line, struct error *err);
    void *ctx;
};

static int take_line(struct lines *l, struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    if (json_parse(strbuf_str(&l->partial), l->partial.len, &root, NULL) < 0)
        return ask_misunderstood(l->server, err);
    strbuf_reset(&l->partial);
    return l->on_line(l->ctx, root, err);
}

static int take_data(void *ctx, const void *data, size_t len, struct error *err)
{
    struct lines *l = ctx;
    const char *p = data, *end = p + len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        strbuf_put(&l->partial, p, (size_t)((newline ? newline : end) - p));
        if (strbuf_failed(&l->partial))
            return err_set(err, ERR_NOMEM, "out of memory");
        if (l->partial.len > ANSWER_MAX)
            return ask_misunderstood(l->server, err);
        if (newline && take_line(l, err) < 0)
            return -1;
        p = newline ? newline + 1 : end;
    }
    return 0;
}

int ask_lines(const char *server, const char *method, const char *path, const char *token,
              int (*on_line)(void *ctx, const struct json *line, struct error *err), void *ctx,
              struct error *err)
{
    _cleanup_response_ struct http_response *response = NULL;
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    struct lines l = {.server = server, .on_line = on_line, .ctx = ctx};
    struct http_pool *pool = NULL;
    if (put_url(server, path, &url, err) < 0 || pool_new(server, LINES_TIMEOUT_S, &pool, err) < 0)
        return -1;
    const struct http_request request = {
        .method = method,
        .url = url.data,
        .bearer = token,
        .on_data = take_data,
        .ctx = &l,
    };
    int rc = http_perform(pool, &request, &response, err);
    if (rc < 0 && !response)
        rc = not_asked(err);
    else if (rc == 0 && http_status(response) != 200)
        rc = answer_error(response, server, err);
    else if (rc == 0 && l.partial.len)
        rc = ask_misunderstood(server, err);
    strbuf_done(&l.partial);
    http_pool_free(pool);
    return rc;
}
