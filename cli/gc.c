/* weighbridge gc: frees what neither a manifest nor a Hub's commit needs any more. Offline. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/data.h"
#include "config/config.h"

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#define GRACE_DEFAULT "24h"
#define GRACE_MAX_S (UINT64_C(365) * 86400)

static void print_result(const struct gc_result *r, bool dry_run, const char *grace)
{
    char size[32];
    printf("%s %" PRIu64 " blob%s and %" PRIu64 " unfinished download%s: %" PRIu64 " bytes",
           dry_run ? "would remove" : "removed", r->blobs_removed, plural(r->blobs_removed),
           r->partials_removed, plural(r->partials_removed), r->bytes_removed);
    if (r->bytes_removed >= 1024)
        printf(" (%s)", format_bytes(r->bytes_removed, size));
    printf("\n");
    if (r->blobs_held)
        printf("%s %" PRIu64 " blob%s that no manifest needs, pushed or let go in the last %s%s: "
               "a push may be under way; --grace 0 takes %s\n",
               dry_run ? "would keep" : "kept", r->blobs_held, plural(r->blobs_held), grace,
               strspn(grace, "0123456789") == strlen(grace) ? "s" : "",
               r->blobs_held == 1 ? "it" : "them");
}

static int run_gc(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    const char *dir = NULL, *grace = NULL;
    struct gc_options options = {0};
    const struct option_spec specs[] = {
        {"data", "DIR", "the data directory; no server may be running on it", &dir, NULL},
        {"dry-run", NULL, "only says what would be removed", NULL, &options.dry_run},
        {"grace", "DURATION",
         "keep what was pushed in this time and has no manifest yet (default: " GRACE_DEFAULT ")",
         &grace, NULL},
    };
    int status;
    if (options_parse(self, argc, argv, specs, 3, NULL, 0, &status) < 0)
        return status;
    if (!dir)
        return usage_error(self, "--data DIR is missing");
    if (!grace)
        grace = GRACE_DEFAULT;
    if (!config_duration_parse(grace, &options.grace_s) || options.grace_s > GRACE_MAX_S)
        return usage_error(self, "--grace %.40s is no duration up to 365d, such as 90s, 12h or 2d",
                           grace);
    umask(027);
    struct store *store = NULL;
    struct gc_result result;
    if (data_open(dir, &store, &err) < 0)
        return command_failed(&err);
    int rc = store_gc(store, &options, &result, &err);
    store_close(store);
    if (rc < 0)
        return command_failed(&err);
    print_result(&result, options.dry_run, grace);
    return finish_output();
}

const struct command command_gc = {
    "gc", "--data DIR [--dry-run] [--grace DURATION]",
    "Removes blobs that nothing needs from a data directory that no server uses.", run_gc};
