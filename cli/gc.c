/* weighbridge gc: frees what no manifest needs any more. Offline. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/data.h"

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static int run_gc(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *dir = NULL;
    bool dry_run = false;
    const struct option_spec specs[] = {
        {"data", "DIR", "the data directory; no server may be running on it", &dir, NULL},
        {"dry-run", NULL, "only says what would be removed", NULL, &dry_run},
    };
    int status;
    if (options_parse(self, argc, argv, specs, 2, NULL, 0, &status) < 0)
        return status;
    if (!dir)
        return usage_error(self, "--data DIR is missing");
    umask(027);
    struct store *store = NULL;
    struct gc_result result;
    char size[32];
    if (data_open(dir, &store, &err) < 0)
        return command_failed(&err);
    int rc = store_gc(store, &(struct gc_options){.dry_run = dry_run}, &result, &err);
    store_close(store);
    if (rc < 0)
        return command_failed(&err);
    printf("%s %" PRIu64 " blob%s and %" PRIu64 " unfinished download%s: %" PRIu64 " bytes",
           dry_run ? "would remove" : "removed", result.blobs_removed, plural(result.blobs_removed),
           result.partials_removed, plural(result.partials_removed), result.bytes_removed);
    if (result.bytes_removed >= 1024)
        printf(" (%s)", format_bytes(result.bytes_removed, size));
    printf("\n");
    return finish_output();
}

const struct command command_gc = {
    "gc", "--data DIR [--dry-run]",
    "Removes blobs that no manifest needs from a data directory that no server uses.", run_gc};
