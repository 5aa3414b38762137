/* weighbridge warm: has the running server bring everything that references need, before a client
 * asks for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ref.h"
#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/hub_token.h"

#define REFERENCES_MAX 256
#define MIB (1024.0 * 1024.0)

struct progress {
    const char *reference;
    bool quiet, done;
    bool on_terminal; /* one line is written over and over */
    uint64_t missing;
};

static uint64_t number(const struct json *line, const char *key)
{
    uint64_t n = 0;
    return json_u64(json_get(line, key), &n) ? n : 0;
}

static void end_progress(const struct progress *p)
{
    if (p->on_terminal && !p->quiet)
        fputs("\r\033[K", stderr);
}

static void show_plan(struct progress *p, const struct json *line)
{
    const char *manifest = json_str(json_get(line, "manifest"));
    const char *warning = json_str(json_get(line, "warning"));
    uint64_t manifests = number(line, "manifests"), blobs = number(line, "blobs");
    p->missing = number(line, "missing_bytes");
    if (warning)
        fprintf(stderr, "%s: %s\n", p->reference, warning);
    if (!p->quiet)
        printf("%s: %s, %" PRIu64 " manifest%s, %" PRIu64 " blob%s, %" PRIu64 " bytes, %" PRIu64
               " to come\n",
               p->reference, manifest ? manifest : "?", manifests, manifests == 1 ? "" : "s", blobs,
               blobs == 1 ? "" : "s", number(line, "bytes"), p->missing);
}

static void show_blob(const struct progress *p, const struct json *line)
{
    const char *state = json_str(json_get(line, "state"));
    end_progress(p);
    if (!p->quiet)
        printf("%s %s %" PRIu64 " bytes\n", state ? state : "?", json_str(json_get(line, "blob")),
               number(line, "bytes"));
}

static void show_progress(const struct progress *p, const struct json *line)
{
    if (p->quiet || !p->on_terminal)
        return;
    fprintf(stderr, "\r\033[K%.1f of %.1f MiB", (double)number(line, "fetched_bytes") / MIB,
            (double)p->missing / MIB);
}

static int on_line(void *ctx, const struct json *line, struct error *err)
{
    struct progress *p = ctx;
    const struct json *failure = json_get(line, "error");
    if (failure) {
        const char *code = json_str(json_get(failure, "code"));
        const char *message = json_str(json_get(failure, "message"));
        end_progress(p);
        return err_set(err, ERR_UPSTREAM, "%s: %s: %s", p->reference, code ? code : "UNKNOWN",
                       message ? message : "");
    }
    if (json_get(line, "manifest"))
        show_plan(p, line);
    else if (json_str(json_get(line, "blob")))
        show_blob(p, line);
    else if (json_get(line, "fetched_bytes"))
        show_progress(p, line);
    else if (json_is_true(json_get(line, "done")))
        p->done = true;
    fflush(stdout);
    return 0;
}

static int warm(const char *server, const struct reference *r, const char *token, bool quiet,
                struct error *err)
{
    char name[REFERENCE_TEXT_MAX];
    _cleanup_strbuf_ struct strbuf path = STRBUF_INIT;
    struct progress p = {.reference = reference_format(r, name), .quiet = quiet};
    p.on_terminal = isatty(STDERR_FILENO) == 1;
    strbuf_puts(&path, "/admin/v1/warm/");
    strbuf_put_urlencoded(&path, name, "/:@");
    if (strbuf_failed(&path))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (ask_lines(server, "POST", path.data, token, on_line, &p, err) < 0)
        return -1;
    return p.done ? 0 : ask_misunderstood(server, err);
}

/* How many of them failed. */
static int warm_all(const char *server, const char *const *texts, int n, const char *token,
                    bool quiet)
{
    struct reference reference;
    int failed = 0;
    for (int i = 0; i < n; i++) {
        struct error err = ERROR_INIT;
        if (reference_parse(texts[i], &reference, &err) < 0 ||
            warm(server, &reference, token, quiet, &err) < 0) {
            command_failed(&err);
            failed++;
        }
    }
    return failed;
}

static int run_warm(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *server = NULL, *texts[REFERENCES_MAX];
    bool quiet = false;
    const struct option_spec specs[] = {
        {"server", "URL", SERVER_OPTION_DOC, &server, NULL},
        {"quiet", NULL, "says only what fails", NULL, &quiet},
    };
    _cleanup_strbuf_ struct strbuf token = STRBUF_INIT;
    struct reference reference;
    int status;
    int n = options_parse(self, argc, argv, specs, 2, texts, REFERENCES_MAX, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the REFERENCE to warm is missing");
    for (int i = 0; i < n; i++)
        if (reference_parse(texts[i], &reference, &err) < 0)
            return usage_error(self, "%s", err.text);
    if (hub_token_find(&token, &err) < 0)
        return command_failed(&err);
    int failed =
        warm_all(ask_server(server), texts, n, token.len ? strbuf_str(&token) : NULL, quiet);
    if (token.data)
        explicit_bzero(token.data, token.len);
    return failed ? EXIT_FAILED : finish_output();
}

const struct command command_warm = {
    "warm", "REFERENCE... [--server URL]",
    "Has the server bring all that repository:tag or repository@digest needs, before it is pulled.",
    run_warm};
