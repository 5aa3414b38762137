/* The commands of the one program, and what they share. Each returns the exit status. */
#ifndef WB_CLI_CLI_H
#define WB_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum exit_status {
    EXIT_OK = 0,
    EXIT_FAILED = 1, /* it was understood and did not work */
    EXIT_USAGE = 2,  /* it was not understood */
};

struct command {
    const char *name;    /* "config check" */
    const char *usage;   /* "FILE": what stands behind the name */
    const char *summary; /* one line */
    int (*run)(const struct command *self, int argc, char **argv); /* argv[0]: the name */
};

extern const struct command command_serve, command_config_check, command_config_show,
    command_config_reference, command_rm, command_gc, command_history, command_warm,
    command_inspect, command_memory, command_digest, command_version;

/* ---- options ------------------------------------------------------------------------------- */

struct option_spec {
    const char *name;  /* "data" for --data */
    const char *value; /* "DIR"; NULL = a switch */
    const char *doc;   /* NULL: stands in the table of configuration keys */
    const char **text; /* where the value goes */
    bool *given;       /* where a switch goes */
};

/* Reads `--name value`, `--name=value` and operands, in any order; `--` ends the options. Names are
 * taken whole: an abbreviation that works today could mean something else tomorrow. Returns the
 * number of operands (at most max), or -1 with *ret_status when the command is to end: after --help
 * (EXIT_OK) or after a line on standard error (EXIT_USAGE). */
int options_parse(const struct command *command, int argc, char **argv,
                  const struct option_spec *specs, size_t n_specs, const char **operands, int max,
                  int *ret_status);
/* One line on standard error: what is wrong with the usage, and where help is. */
int usage_error(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* One line on standard error; returns EXIT_FAILED. */
int command_failed(const struct error *err);
/* Flushes standard output; a full disk or a closed pipe behind it is a failure of the command. */
int finish_output(void);

/* The flags of struct config_flags, for the commands that load a configuration. */
struct config_flags;
#define CONFIG_OPTIONS 6
void config_options(struct config_flags *flags, struct option_spec specs[static CONFIG_OPTIONS]);

/* The nearest word of a list to a misspelt one, NULL when none is near. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

#endif
