/* weighbridge config check | show | reference */
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "config/config.h"
#include "upstream/hub.h"
#include "upstream/oci.h"

/* What is in the files that upstreams name is read by their clients, at the start. */
static int check_clients(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        const struct config_upstream *u = &c->upstreams[i];
        struct hub *hub = NULL;
        struct oci *oci = NULL;
        int rc = u->kind == UPSTREAM_OCI ? oci_new(u, &oci, err) : hub_new(u, &hub, err);
        oci_free(oci);
        hub_free(hub);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int run_check(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *file = NULL;
    int status, n = options_parse(self, argc, argv, NULL, 0, &file, 1, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the FILE to check is missing");
    _cleanup_config_ struct config *c = NULL;
    struct config_flags flags = {.file = file};
    if (config_load(&flags, environ, &c, &err) < 0)
        return command_failed(&err);
    if (config_check_access(c, &err) < 0 || check_clients(c, &err) < 0) {
        err_wrap(&err, "%s", file);
        return command_failed(&err);
    }
    printf("%s: ok\n", file);
    return finish_output();
}

const struct command command_config_check = {
    "config check", "FILE", "Checks a configuration file, with the environment, as serve would.",
    run_check};

static int run_show(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct config_flags flags = {0};
    struct option_spec specs[CONFIG_OPTIONS];
    config_options(&flags, specs);
    int status;
    if (options_parse(self, argc, argv, specs, CONFIG_OPTIONS, NULL, 0, &status) < 0)
        return status;
    _cleanup_config_ struct config *c = NULL;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (config_load(&flags, environ, &c, &err) < 0 || config_show(c, &text, &err) < 0)
        return command_failed(&err);
    fputs(strbuf_str(&text), stdout);
    return finish_output();
}

const struct command command_config_show = {
    "config show", "[options]", "Prints the effective configuration and where each value is from.",
    run_show};

static int run_reference(const struct command *self, int argc, char **argv)
{
    int status;
    if (options_parse(self, argc, argv, NULL, 0, NULL, 0, &status) < 0)
        return status;
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    struct error err = ERROR_INIT;
    config_reference(&text);
    if (strbuf_failed(&text)) {
        err_set(&err, ERR_NOMEM, "out of memory");
        return command_failed(&err);
    }
    fputs(strbuf_str(&text), stdout);
    return finish_output();
}

const struct command command_config_reference = {
    "config reference", "", "Prints every configuration key, as Markdown.", run_reference};
