#include "cli/cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/table.h"

#define OPTIONS_MAX 16

int usage_error(const struct command *command, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "weighbridge %s: %s; see weighbridge %s --help\n", command->name, text,
            command->name);
    return EXIT_USAGE;
}

int command_failed(const struct error *err)
{
    fprintf(stderr, "weighbridge: %s\n", err->text);
    return EXIT_FAILED;
}

int finish_output(void)
{
    if (fflush(stdout) != 0) {
        fprintf(stderr, "weighbridge: standard output cannot be written: %m\n");
        return EXIT_FAILED;
    }
    if (ferror(stdout)) { /* earlier: errno tells of it no more */
        fputs("weighbridge: not all of the output could be written\n", stderr);
        return EXIT_FAILED;
    }
    return EXIT_OK;
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL;
    unsigned best_distance = ~0u;
    for (size_t i = 0; i < n; i++) {
        unsigned distance = edit_distance(word, words[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = words[i];
        }
    }
    return best && edit_is_near(word, best_distance) ? best : NULL;
}

void config_options(struct config_flags *flags, struct option_spec specs[static CONFIG_OPTIONS])
{
    const struct option_spec all[CONFIG_OPTIONS] = {
        {"config", "FILE", "configuration file (default: WEIGHBRIDGE_CONFIG, else none)",
         &flags->file, NULL},
        {"listen", "ADDRESS:PORT", NULL, &flags->listen, NULL},
        {"data", "DIR", NULL, &flags->data, NULL},
        {"hub", "URL", NULL, &flags->hub, NULL},
        {"log-level", "LEVEL", NULL, &flags->log_level, NULL},
        {"external-url", "URL", NULL, &flags->external_url, NULL},
    };
    memcpy(specs, all, sizeof(all));
}

static void print_help(const struct command *command, const struct option_spec *specs, size_t n)
{
    bool from_table = false;
    printf("usage: weighbridge %s%s%s\n\n%s\n", command->name, command->usage[0] ? " " : "",
           command->usage, command->summary);
    printf("\noptions:\n");
    for (size_t i = 0; i < n; i++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", specs[i].name, specs[i].value ? " " : "",
                 specs[i].value ? specs[i].value : "");
        if (specs[i].doc)
            printf("  %-24s %s\n", left, specs[i].doc);
        else
            from_table = true;
    }
    if (from_table) {
        _cleanup_strbuf_ struct strbuf flags = STRBUF_INIT;
        config_flags_help(&flags);
        fputs(strbuf_str(&flags), stdout);
    }
    printf("  %-24s %s\n", "--help", "this text");
    if (from_table)
        printf("\nEvery other setting is a key of the configuration file and an environment\n"
               "variable: weighbridge config reference lists them.\n");
}

static int unknown_option(const struct command *command, const char *word,
                          const struct option_spec *specs, size_t n)
{
    const char *names[OPTIONS_MAX + 1];
    char name[80];
    for (size_t i = 0; i < n; i++)
        names[i] = specs[i].name;
    names[n] = "help";
    word += strspn(word, "-");
    size_t len = strcspn(word, "=");
    snprintf(name, sizeof(name), "%.*s", (int)len, word);
    for (size_t i = 0; i <= n; i++)
        if (strcmp(name, names[i]) == 0 && (i == n || !specs[i].value) && word[len])
            return usage_error(command, "--%s takes no value", name);
    const char *nearest = nearest_word(name, names, n + 1);
    for (size_t i = 0; i <= n && !nearest && len; i++) /* an abbreviation */
        if (strncmp(names[i], name, strlen(name)) == 0)
            nearest = names[i];
    if (nearest)
        return usage_error(command, "unknown option --%s, did you mean --%s?", name, nearest);
    return usage_error(command, "unknown option --%s", name);
}

/* The word on the command line is this option's whole name. */
static bool is_whole(const char *word, const char *name)
{
    size_t n = strlen(name);
    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n) == 0 &&
           (word[2 + n] == '\0' || word[2 + n] == '=');
}

struct parse {
    const struct command *command;
    const struct option_spec *specs;
    size_t n;
    const char **operands;
    int max, count;
};

static int take_operand(struct parse *p, const char *word)
{
    if (p->count == p->max)
        return usage_error(p->command, "one argument too many: \"%.100s\"", word);
    p->operands[p->count++] = word;
    return EXIT_OK;
}

/* One result of getopt_long. word: what stands on the command line. */
static int take_option(struct parse *p, int got, int index, const char *word)
{
    if (got == 1)
        return take_operand(p, optarg);
    if (got == ':')
        return usage_error(p->command, "%.80s needs a value", word);
    if (got != 0 || (size_t)index > p->n)
        return unknown_option(p->command, word, p->specs, p->n);
    const char *name = (size_t)index == p->n ? "help" : p->specs[index].name;
    if (!is_whole(word, name))
        return unknown_option(p->command, word, p->specs, p->n);
    if ((size_t)index == p->n) {
        print_help(p->command, p->specs, p->n);
        return -1;
    }
    const struct option_spec *spec = &p->specs[index];
    if (!spec->value) {
        *spec->given = true;
        return EXIT_OK;
    }
    if (*spec->text)
        return usage_error(p->command, "--%s is given twice", spec->name);
    if (!optarg[0])
        return usage_error(p->command, "--%s has an empty value", spec->name);
    *spec->text = optarg;
    return EXIT_OK;
}

int options_parse(const struct command *command, int argc, char **argv,
                  const struct option_spec *specs, size_t n_specs, const char **operands, int max,
                  int *ret_status)
{
    struct parse p = {command, specs, n_specs, operands, max, 0};
    struct option options[OPTIONS_MAX + 2] = {{0}};
    int status = EXIT_OK;
    for (size_t i = 0; i < n_specs; i++) {
        options[i].name = specs[i].name;
        options[i].has_arg = specs[i].value ? required_argument : no_argument;
    }
    options[n_specs].name = "help";
    optind = 0; /* glibc: start afresh */
    opterr = 0;
    while (status == EXIT_OK) {
        int index = -1;
        int at = optind > 0 ? optind : 1;
        /* "-": operands come in their place, so that argv[at] is what is being read; ":": a
         * missing value is told from an unknown name. */
        int got = getopt_long(argc, argv, "-:", options, &index);
        if (got == -1)
            break;
        status = take_option(&p, got, index, argv[at]);
    }
    while (status == EXIT_OK && optind < argc) /* behind "--" */
        status = take_operand(&p, argv[optind++]);
    if (status == EXIT_OK)
        return p.count;
    *ret_status = status < 0 ? finish_output() : status;
    return -1;
}
