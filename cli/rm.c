/* weighbridge rm: asks the running server to forget a tag or a manifest, or does it itself in a
 * data directory that no server uses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "config/url.h"
#include "upstream/http.h"

#define DEFAULT_SERVER "http://127.0.0.1:5000"
#define ANSWER_MAX 65536u
#define CONNECT_TIMEOUT_S 10u
#define ANSWER_TIMEOUT_S 60u

static int remove_offline(const char *dir, const struct reference *r, struct error *err)
{
    struct store *store = NULL;
    if (data_open(dir, &store, err) < 0)
        return -1;
    int rc = store_remove(store, r, NULL, "rm", err);
    store_close(store);
    return rc;
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

static int ask(struct http_pool *pool, const char *server, const char *reference, struct error *err)
{
    _cleanup_response_ struct http_response *response = NULL;
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    size_t n = strlen(server);
    while (n && server[n - 1] == '/')
        n--;
    strbuf_put(&url, server, n);
    strbuf_puts(&url, "/admin/v1/references/");
    strbuf_put_urlencoded(&url, reference, "/:@");
    if (strbuf_failed(&url))
        return err_set(err, ERR_NOMEM, "out of memory");
    const struct http_request request = {
        .method = "DELETE",
        .url = url.data,
        .accept = "application/json",
        .max_body = ANSWER_MAX,
    };
    if (http_perform(pool, &request, &response, err) < 0)
        return err_wrap(err, "the server cannot be asked (without one, use --data DIR)");
    if (http_status(response) != 200)
        return answer_error(response, server, err);
    const struct strbuf *body = http_body(response);
    _cleanup_json_ struct json *root = NULL;
    if (json_parse(strbuf_str(body), body->len, &root, NULL) < 0 ||
        !json_str(json_get(root, "removed")))
        return err_set(err, ERR_UPSTREAM,
                       "%.200s does not answer as a weighbridge server: is --server right?",
                       server);
    return 0;
}

static int remove_online(const char *server, const char *reference, struct error *err)
{
    const struct http_options options = {
        .max_connections = 1,
        .connect_timeout_s = CONNECT_TIMEOUT_S,
        .stall_timeout_s = ANSWER_TIMEOUT_S,
    };
    struct http_pool *pool = NULL;
    const char *wrong = url_check(server, "http|https", false);
    if (wrong)
        return err_set(err, ERR_INVALID, "the server's URL %s", wrong);
    if (http_pool_new(&options, &pool, err) < 0)
        return -1;
    int rc = ask(pool, server, reference, err);
    http_pool_free(pool);
    return rc;
}

/* A name alone would mean `latest`: removing the wrong thing is not undone by typing more. */
static bool is_explicit(const char *text)
{
    const char *slash = strrchr(text, '/');
    return strchr(text, '@') || strchr(slash ? slash : text, ':');
}

static int run_rm(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *server = NULL, *dir = NULL, *text = NULL;
    const struct option_spec specs[] = {
        {"server", "URL", "the running server (default: WEIGHBRIDGE_SERVER or " DEFAULT_SERVER ")",
         &server, NULL},
        {"data", "DIR", "works on this data directory instead; no server may be running on it",
         &dir, NULL},
    };
    int status, n = options_parse(self, argc, argv, specs, 2, &text, 1, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the REFERENCE to remove is missing");
    if (server && dir)
        return usage_error(self, "--server and --data exclude each other");
    struct reference reference;
    char name[REFERENCE_TEXT_MAX];
    if (!is_explicit(text))
        return usage_error(self, "name what to remove as repository:tag or repository@digest");
    if (reference_parse(text, &reference, &err) < 0)
        return usage_error(self, "%s", err.text);
    reference_format(&reference, name);
    if (!server)
        server = getenv("WEIGHBRIDGE_SERVER");
    if (!server || !*server)
        server = DEFAULT_SERVER;
    umask(027);
    int rc = dir ? remove_offline(dir, &reference, &err) : remove_online(server, name, &err);
    if (rc < 0)
        return command_failed(&err);
    printf("removed %s\n", name);
    return finish_output();
}

const struct command command_rm = {
    "rm", "REFERENCE [--server URL | --data DIR]",
    "Removes repository:tag, or repository@digest with every tag on it.", run_rm};
