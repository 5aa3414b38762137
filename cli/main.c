/* weighbridge: one binary, the server and its tools. This file only finds the command. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"

static const struct command *const commands[] = {
    &command_serve,   &command_config_check, &command_config_show, &command_config_reference,
    &command_rm,      &command_gc,           &command_history,     &command_warm,
    &command_inspect, &command_memory,       &command_digest,      &command_version,
};

static int run_version(const struct command *self, int argc, char **argv)
{
    int status;
    if (options_parse(self, argc, argv, NULL, 0, NULL, 0, &status) < 0)
        return status;
    printf("weighbridge %s\n", WB_VERSION);
    return finish_output();
}

const struct command command_version = {"version", "", "Prints the version.", run_version};

static void print_commands(FILE *to)
{
    fprintf(to, "usage: weighbridge COMMAND [options]\n\n"
                "A caching registry proxy for models.\n\ncommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(to, "  %-18s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\nweighbridge COMMAND --help says more.\n");
}

static int unknown_command(const char *word, const char *second)
{
    const char *names[ARRAY_LEN(commands)];
    char both[80];
    snprintf(both, sizeof(both), "%.38s%s%.38s", word, second ? " " : "", second ? second : "");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        names[i] = commands[i]->name;
    const char *nearest = nearest_word(both, names, ARRAY_LEN(names));
    if (!nearest)
        nearest = nearest_word(word, names, ARRAY_LEN(names));
    /* "config" alone, or with a word that is none of its commands. */
    if (!nearest && strcmp(word, "config") == 0) {
        fprintf(stderr, "weighbridge: config is followed by check, show or reference; "
                        "see weighbridge --help\n");
    } else if (nearest) {
        fprintf(stderr, "weighbridge: unknown command \"%s\", did you mean \"%s\"?\n", both,
                nearest);
    } else {
        fprintf(stderr, "weighbridge: unknown command \"%.80s\"; see weighbridge --help\n", word);
    }
    return EXIT_USAGE;
}

/* How many words of the command line are this command's name: 0, 1 or 2. */
static int match(const struct command *c, int argc, char **argv)
{
    const char *space = strchr(c->name, ' ');
    if (!space)
        return strcmp(argv[1], c->name) == 0;
    size_t n = (size_t)(space - c->name);
    bool first = strlen(argv[1]) == n && strncmp(argv[1], c->name, n) == 0;
    return first && argc > 2 && strcmp(argv[2], space + 1) == 0 ? 2 : 0;
}

/* A program that is started without 0, 1 or 2 would get a database or a socket under that number,
 * and write its messages into it. */
static int open_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    if (open_standard_descriptors() < 0)
        return EXIT_FAILED;
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return finish_output();
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("weighbridge %s\n", WB_VERSION);
        return finish_output();
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        int words = match(commands[i], argc, argv);
        if (words)
            return commands[i]->run(commands[i], argc - words, argv + words);
    }
    return unknown_command(argv[1], argc > 2 && argv[2][0] != '-' ? argv[2] : NULL);
}
