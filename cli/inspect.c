#include "cli/inspect.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/escape.h"

#define SOURCES_MAX 256

/* What is no model, is not there, or was spelt wrong, as opposed to what did not work. */
static int status_of(enum err_code code)
{
    switch (code) {
    case ERR_NOT_FOUND:
    case ERR_INVALID:
    case ERR_TOO_LARGE:
    case ERR_UNSUPPORTED:
        return EXIT_USAGE;
    default:
        return EXIT_FAILED;
    }
}

int report_print(const struct strbuf *out)
{
    if (strbuf_failed(out))
        return command_failed(&(struct error){.text = "out of memory"});
    signal(SIGPIPE, SIG_DFL); /* it was ignored for the network's sake */
    fwrite(strbuf_str(out), 1, out->len, stdout);
    return finish_output();
}

/* A word of it, and not a part of another one: "." and "i" are in most texts. */
static bool names(const char *message, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = message; n && (p = strstr(p, text)); p++)
        if ((p == message || p[-1] == ' ') && (!p[n] || strchr(" ,:", p[n])))
            return true;
    return false;
}

/* Without what may be secret in a URL: a login before the host, a signature in the query. */
static void put_shown(struct strbuf *to, const char *text)
{
    const char *scheme = strstr(text, "://");
    const char *rest = scheme ? scheme + 3 : text;
    const char *login = scheme ? rest + strcspn(rest, "@/?#") : NULL;
    if (login && *login == '@') {
        strbuf_put(to, text, (size_t)(rest - text));
        rest = login + 1;
    } else {
        rest = text;
    }
    strbuf_put(to, rest, strncasecmp(text, "http", 4) == 0 ? strcspn(rest, "?") : strlen(rest));
}

int source_failed(const char *text, const struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT, shown = STRBUF_INIT;
    put_shown(&shown, text);
    if (!names(err->text, strbuf_str(&shown))) {
        put_plain(&b, strbuf_str(&shown), shown.len);
        strbuf_puts(&b, ": ");
    }
    put_plain(&b, err->text, strlen(err->text));
    fprintf(stderr, "weighbridge: %s\n", strbuf_str(&b));
    return status_of(err->code);
}

/* A tensor that was asked for and is nowhere. */
static int check_peek(const struct report *r)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (!r->options->peek)
        return EXIT_OK;
    for (size_t i = 0; i < r->n_models; i++)
        if (r->models[i].peeked)
            return EXIT_OK;
    put_plain(&b, r->options->peek, strlen(r->options->peek));
    fprintf(stderr, "weighbridge: no tensor is called '%s'; --tensors lists them\n",
            strbuf_str(&b));
    return EXIT_USAGE;
}

/* Its place among the others. */
static void put_failed(struct strbuf *out, const char *text, const struct error *err)
{
    if (out->data[out->len - 1] != '[')
        strbuf_putc(out, ',');
    strbuf_puts(out, "{\"source\":");
    put_json_text(out, text, strlen(text));
    strbuf_puts(out, ",\"error\":");
    put_json_text(out, err->text, strlen(err->text));
    strbuf_printf(out, ",\"code\":\"%s\"}", err_name(err->code));
}

static int inspect_one(const char *text, const struct inspect_options *o,
                       const struct source_options *so, struct strbuf *out, bool *ret_failed)
{
    _cleanup_source_ struct source *s = NULL;
    _cleanup_report_ struct report r = {0};
    struct error err = ERROR_INIT;
    if (source_open(text, so, &s, &err) < 0 || report_make(s, o, &r, &err) < 0) {
        if (o->json && !strbuf_failed(out))
            put_failed(out, text, &err);
        *ret_failed = true;
        return source_failed(text, &err);
    }
    if (o->json && !strbuf_failed(out)) {
        if (out->data[out->len - 1] != '[')
            strbuf_putc(out, ',');
        report_json(&r, out);
    } else {
        if (out->len)
            strbuf_putc(out, '\n');
        report_text(&r, out);
    }
    if (strbuf_failed(out))
        return command_failed(&(struct error){.text = "out of memory"});
    int peek = check_peek(&r);
    return peek ? peek : r.status;
}

static bool parse_values(const char *text, size_t *ret)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || n < 1 || n > PEEK_MAX)
        return false;
    *ret = (size_t)n;
    return true;
}

static int run(const char *const *sources, int n, const struct inspect_options *o,
               const struct source_options *so)
{
    _cleanup_strbuf_ struct strbuf out = STRBUF_INIT;
    int status = EXIT_OK;
    bool failed = false;
    signal(SIGPIPE, SIG_IGN); /* TLS writes to closed connections */
    if (o->json)
        strbuf_puts(&out, "{\"sources\":[");
    for (int i = 0; i < n; i++) {
        int one = inspect_one(sources[i], o, so, &out, &failed);
        status = one > status ? one : status;
    }
    if (o->json)
        strbuf_puts(&out, "]}\n");
    if (o->json && n == 1 && failed) /* there is nothing to say but the error */
        return status;
    int printed = report_print(&out);
    return status ? status : printed;
}

static int run_inspect(const struct command *self, int argc, char **argv)
{
    struct inspect_options o = {.values = PEEK_DEFAULT};
    struct source_options so = {0};
    const char *values = NULL, *sources[SOURCES_MAX];
    const struct option_spec specs[] = {
        {"tensors", NULL, "lists every tensor", NULL, &o.tensors},
        {"peek", "NAME", "shows the first values of this tensor", &o.peek, NULL},
        {"values", "N", "how many of them (default: 8)", &values, NULL},
        {"metadata", NULL, "lists the metadata of the header", NULL, &o.metadata},
        {"chat-template", NULL, "prints the chat template", NULL, &o.chat_template},
        {"json", NULL, "prints JSON", NULL, &o.json},
        {"plain-http", NULL, "asks a registry without TLS (loopback: always)", NULL,
         &so.plain_http},
    };
    int status,
        n = options_parse(self, argc, argv, specs, ARRAY_LEN(specs), sources, SOURCES_MAX, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the SOURCE to look into is missing: a file, a folder, a URL, "
                                 "hf://org/repo or a reference in a registry");
    if (values && !parse_values(values, &o.values))
        return usage_error(self, "--values must be a number from 1 to %u", PEEK_MAX);
    return run(sources, n, &o, &so);
}

const struct command command_inspect = {
    "inspect", "SOURCE... [--tensors] [--peek NAME] [--metadata] [--chat-template] [--json]",
    "Says what a model is made of: a file, a folder, a URL, hf://org/repo, host/name:tag.",
    run_inspect};
