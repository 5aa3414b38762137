/* weighbridge history: what a tag named, since when, and who moved it; from the running server, or
 * from a data directory that no server uses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "server/history.h"

#define LIMIT_DEFAULT 100

/* What is read from the server or the directory. */
struct answer {
    struct strbuf text; /* the JSON, one line */
    struct json *root;
};

static void answer_done(struct answer *a)
{
    json_free(a->root);
    strbuf_done(&a->text);
}

static int read_offline(const char *dir, const struct reference *r, size_t limit, struct answer *a,
                        struct error *err)
{
    _cleanup_(tag_history_done) struct tag_history history = {0};
    struct store *store = NULL;
    if (data_open(dir, &store, err) < 0)
        return -1;
    int rc = store_tag_history(store, r->repository, r->tag, limit, &history, err);
    store_close(store);
    if (rc < 0)
        return -1;
    if (history.n == 0)
        return err_set(err, ERR_NOT_FOUND, "%.300s: no event is recorded for %s:%s", dir,
                       r->repository, r->tag);
    history_write(r->repository, r->tag, &history, limit, &a->text);
    if (strbuf_failed(&a->text))
        return err_set(err, ERR_NOMEM, "out of memory");
    return json_parse(a->text.data, a->text.len, &a->root, err);
}

static bool is_event(const struct json *e)
{
    const struct json *commit = json_get(e, "commit");
    return json_str(json_get(e, "at")) && json_str(json_get(e, "source")) &&
           (json_str(json_get(e, "digest")) || json_is_true(json_get(e, "removed"))) &&
           (!commit || json_str(commit));
}

static int read_online(const char *server, const struct reference *r, size_t limit,
                       struct answer *a, struct error *err)
{
    _cleanup_strbuf_ struct strbuf path = STRBUF_INIT;
    strbuf_printf(&path, "/admin/v1/history/%s:%s?n=%zu", r->repository, r->tag, limit);
    if (strbuf_failed(&path))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (ask_json(server, "GET", path.data, &a->root, &a->text, err) < 0)
        return -1;
    if (strbuf_failed(&a->text))
        return err_set(err, ERR_NOMEM, "out of memory");
    const struct json *events = json_get(a->root, "events");
    if (!json_is_array(events))
        return ask_misunderstood(server, err);
    for (const struct json *e = json_first(events); e; e = json_next(e))
        if (!is_event(e))
            return ask_misunderstood(server, err);
    return 0;
}

enum column { COLUMN_AT, COLUMN_DIGEST, COLUMN_COMMIT, COLUMN_SOURCE, COLUMNS };

static void event_columns(const struct json *e, const char *columns[static COLUMNS])
{
    const char *digest = json_str(json_get(e, "digest"));
    const char *commit = json_str(json_get(e, "commit"));
    columns[COLUMN_AT] = json_str(json_get(e, "at"));
    columns[COLUMN_DIGEST] = digest ? digest : "removed";
    columns[COLUMN_COMMIT] = commit ? commit : "";
    columns[COLUMN_SOURCE] = json_str(json_get(e, "source"));
}

/* A terminal gets no control characters from a server, however they came to it. */
static void print_text(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_table(const struct json *events)
{
    size_t width[COLUMNS] = {0};
    const char *columns[COLUMNS];
    for (const struct json *e = json_first(events); e; e = json_next(e)) {
        event_columns(e, columns);
        for (int i = 0; i < COLUMNS; i++)
            if (strlen(columns[i]) > width[i])
                width[i] = strlen(columns[i]);
    }
    for (const struct json *e = json_first(events); e; e = json_next(e)) {
        event_columns(e, columns);
        for (int i = 0; i < COLUMNS; i++) {
            if (width[i] == 0) /* no event has a commit */
                continue;
            print_text(columns[i]);
            if (i + 1 < COLUMNS)
                printf("%*s", (int)(width[i] - strlen(columns[i])) + 2, "");
        }
        putchar('\n');
    }
}

static bool parse_limit(const char *text, size_t *ret)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 4 || text[n])
        return false;
    *ret = strtoul(text, NULL, 10);
    return *ret >= 1 && *ret <= TAG_HISTORY_MAX;
}

static int run_history(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *server = NULL, *dir = NULL, *limit_text = NULL, *text = NULL;
    bool as_json = false;
    size_t limit = LIMIT_DEFAULT;
    const struct option_spec specs[] = {
        {"server", "URL", SERVER_OPTION_DOC, &server, NULL},
        {"data", "DIR", "reads this data directory instead; no server may be running on it", &dir,
         NULL},
        {"limit", "N", "the newest N changes (default: 100, at most 1000)", &limit_text, NULL},
        {"json", NULL, "prints the JSON of the server's admin API", NULL, &as_json},
    };
    int status, n = options_parse(self, argc, argv, specs, 4, &text, 1, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the REFERENCE, repository:tag, is missing");
    if (server && dir)
        return usage_error(self, "--server and --data exclude each other");
    if (limit_text && !parse_limit(limit_text, &limit))
        return usage_error(self, "--limit must be a number from 1 to %d", TAG_HISTORY_MAX);
    struct reference reference;
    if (reference_parse(text, &reference, &err) < 0)
        return usage_error(self, "%s", err.text);
    if (reference.is_digest)
        return usage_error(self, "a digest never moves: name a tag, as repository:tag");
    umask(027);
    _cleanup_(answer_done) struct answer answer = {0};
    int rc = dir ? read_offline(dir, &reference, limit, &answer, &err)
                 : read_online(ask_server(server), &reference, limit, &answer, &err);
    if (rc < 0)
        return command_failed(&err);
    if (as_json)
        fputs(strbuf_str(&answer.text), stdout);
    else
        print_table(json_get(answer.root, "events"));
    return finish_output();
}

const struct command command_history = {
    "history", "REFERENCE [--server URL | --data DIR] [--json] [--limit N]",
    "Prints what a tag named, since when, and who moved it, the newest change first.", run_history};
