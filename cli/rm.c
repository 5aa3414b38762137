/* weighbridge rm: asks the running server to forget a tag or a manifest, or does it itself in a
 * data directory that no server uses. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/data.h"

static int remove_offline(const char *dir, const struct reference *r, struct error *err)
{
    struct store *store = NULL;
    if (data_open(dir, &store, err) < 0)
        return -1;
    int rc = store_hub_remove(store, r, "rm", err);
    store_close(store);
    return rc;
}

static int remove_online(const char *server, const char *reference, struct error *err)
{
    _cleanup_strbuf_ struct strbuf path = STRBUF_INIT;
    _cleanup_json_ struct json *answer = NULL;
    strbuf_puts(&path, "/admin/v1/references/");
    strbuf_put_urlencoded(&path, reference, "/:@");
    if (strbuf_failed(&path))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (ask_json(server, "DELETE", path.data, &answer, NULL, err) < 0)
        return -1;
    return json_str(json_get(answer, "removed")) ? 0 : ask_misunderstood(server, err);
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
        {"server", "URL", SERVER_OPTION_DOC, &server, NULL},
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
    umask(027);
    int rc =
        dir ? remove_offline(dir, &reference, &err) : remove_online(ask_server(server), name, &err);
    if (rc < 0)
        return command_failed(&err);
    printf("removed %s\n", name);
    return finish_output();
}

const struct command command_rm = {
    "rm", "REFERENCE [--server URL | --data DIR]",
    "Removes repository:tag, or repository@digest with every tag on it.", run_rm};
