/* config_load(): precedence of default, file, environment and flag; secrets; proxies; show. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "config/config.h"
#include "config/proxy.h"

static char dir[64];

static void setup(void)
{
    strcpy(dir, "/tmp/wb-config-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(load, .init = setup, .fini = teardown);

/* Writes a file into the test's folder and returns its path, good until the fourth call. */
static const char *file(const char *name, const char *text)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, 128, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    cr_assert_geq(fputs(text, f), 0);
    cr_assert_eq(fclose(f), 0);
    return path;
}

#define ENV(...) ((char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static struct config *load(struct config_flags flags, char **env)
{
    struct config *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(config_load(&flags, env, &c, &err), 0, "%s", err.text);
    return c;
}

static const char *refused(struct config_flags flags, char **env, const char *want)
{
    static struct error err;
    struct config *c = NULL;
    err = ERROR_INIT;
    cr_assert_lt(config_load(&flags, env, &c, &err), 0, "accepted, wanted: %s", want);
    cr_assert_null(c);
    cr_assert(strstr(err.text, want), "%s\n  wanted %s", err.text, want);
    return err.text;
}

static char *show(const struct config *c)
{
    struct strbuf b = STRBUF_INIT;
    struct error err = ERROR_INIT;
    cr_assert_eq(config_show(c, &b, &err), 0);
    return strbuf_take(&b);
}

static void shows(const struct config *c, const char *want)
{
    _cleanup_free_ char *text = show(c);
    cr_assert(strstr(text, want), "%s\n  wanted %s", text, want);
}

/* "NAME=dir/name" for ENV(). */
static char *variable(const char *name, const char *path)
{
    static char texts[4][200];
    static unsigned next;
    char *text = texts[next++ % 4];
    snprintf(text, 200, "%s=%s", name, path);
    return text;
}

Test(load, precedence)
{
    const char *f = file("c.json", "{\"data\":\"/file\",\"log\":{\"level\":\"warn\"},\n"
                                   "\"upstreams\":[{\"prefix\":\"hf\",\"url\":\"http://file\"}]}");
    struct config *c = load((struct config_flags){.file = f}, ENV());
    cr_assert_str_eq(c->data, "/file");
    cr_assert_str_eq(c->listen_host, "127.0.0.1");
    config_free(c);

    char **env =
        ENV("PATH=/bin", "WEIGHBRIDGE_DATA=/env", "WEIGHBRIDGE_LOG_LEVEL=error",
            "WEIGHBRIDGE_UPSTREAMS_HF_URL=http://env", "WEIGHBRIDGE_LIMITS_CLIENTS=7",
            "WEIGHBRIDGE_TRANSFERS_FINISH_ABANDONED=false", "WEIGHBRIDGE_UPSTREAMS_HF_TAG_TTL=5m",
            "WEIGHBRIDGE_UPSTREAMS_HF_INCLUDE=[\"*.json\"]",
            "WEIGHBRIDGE_UPSTREAMS_HF_ALIASES={\"a\":\"A\"}");
    c = load((struct config_flags){.file = f}, env);
    cr_assert_str_eq(c->data, "/env");
    cr_assert_str_eq(c->log_level, "error");
    cr_assert_str_eq(c->upstreams[0].url, "http://env");
    cr_assert_eq(c->max_clients, 7);
    cr_assert_not(c->finish_abandoned);
    cr_assert_eq(c->upstreams[0].tag_ttl_s, 300);
    cr_assert_eq(c->upstreams[0].include.n, 1);
    cr_assert_eq(c->upstreams[0].n_aliases, 1);
    config_free(c);

    c = load((struct config_flags){.file = f,
                                   .data = "/flag",
                                   .hub = "http://flag/",
                                   .log_level = "debug",
                                   .listen = "127.0.0.1:0",
                                   .external_url = "https://x"},
             env);
    cr_assert_str_eq(c->data, "/flag");
    cr_assert_str_eq(c->log_level, "debug");
    cr_assert_str_eq(c->upstreams[0].url, "http://flag");
    cr_assert_eq(c->listen_port, 0);
    cr_assert_str_eq(c->external_url, "https://x");
    shows(c, "\"data\": \"/flag\", // --data\n");
    shows(c, "\"url\": \"http://flag\", // --hub\n");
    shows(c, "\"clients\": 7, // WEIGHBRIDGE_LIMITS_CLIENTS\n");
    shows(c, "c.json:2\n");
    config_free(c);
}

Test(load, file_from_the_environment)
{
    const char *f = file("c.json", "{\"data\":\"/file\"}");
    struct config *c = load((struct config_flags){0}, ENV(variable("WEIGHBRIDGE_CONFIG", f)));
    cr_assert_str_eq(c->data, "/file");
    config_free(c);
    c = load((struct config_flags){.file = f}, ENV("WEIGHBRIDGE_CONFIG=/nonexistent"));
    config_free(c);
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_CONFIG=/nonexistent"),
            "the configuration cannot be read: open /nonexistent: No such file");
    refused((struct config_flags){.file = dir}, ENV(), "the configuration cannot be read");
}

Test(load, policies_from_the_environment)
{
    struct config *c =
        load((struct config_flags){.file = file("c.json", "{\"policies\":[]}")},
             ENV("WEIGHBRIDGE_POLICIES=[{\"repositories\":\"hf/*\",\"deny\":true}]"));
    cr_assert(c->n_policies == 1 && c->policies[0].deny);
    shows(c, "\"policies\": [ // WEIGHBRIDGE_POLICIES\n");
    config_free(c);
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_POLICIES=[{\"repositories\":\"x\"}]"),
            "WEIGHBRIDGE_POLICIES: policies[0].repositories: \"x\" matches no repository");
}

Test(load, lists_from_the_environment_replace_the_files)
{
    const char *f =
        file("c.json", "{\"upstreams\":[{\"prefix\":\"hf\",\"retries\":9},{\"prefix\":\"b\"}]}");
    struct config *c = load(
        (struct config_flags){.file = f},
        ENV("WEIGHBRIDGE_UPSTREAMS_X_Y_RETRIES=3", "WEIGHBRIDGE_UPSTREAMS=[{\"prefix\":\"x.y\"}]",
            "WEIGHBRIDGE_ACCESS=[{\"repositories\":\"**\",\"allow\":[\"pull\"]}]"));
    cr_assert_eq(c->n_upstreams, 1);
    cr_assert_str_eq(c->upstreams[0].prefix, "x.y");
    cr_assert_eq(c->upstreams[0].retries, 3);
    cr_assert_eq(c->n_access, 1);
    shows(c, "\"upstreams\": [ // WEIGHBRIDGE_UPSTREAMS\n");
    shows(c, "\"kind\": \"huggingface\", // default\n");
    config_free(c);
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS=[{\"prefix\":\"a\",\"ulr\":1}]"),
            "WEIGHBRIDGE_UPSTREAMS: upstreams[0].ulr: unknown key; did you mean \"url\"?");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS=[}"),
            "WEIGHBRIDGE_UPSTREAMS: upstreams: is not JSON");
}

Test(load, unknown_variables)
{
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LISTN=127.0.0.1:1"),
            "WEIGHBRIDGE_LISTN: unknown environment variable; the nearest known one is "
            "WEIGHBRIDGE_LISTEN");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LISTN="), "unknown environment variable");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_ULR=x"),
            "WEIGHBRIDGE_UPSTREAMS_HF_URL");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_OTHER_URL=http://x"),
            "unknown environment variable");
    /* Kubernetes puts these beside every Service called weighbridge. */
    config_free(load((struct config_flags){0},
                     ENV("WEIGHBRIDGE_PORT=tcp://10.0.0.1:5000",
                         "WEIGHBRIDGE_SERVICE_HOST=10.0.0.1", "WEIGHBRIDGE_SERVICE_PORT_HTTP=5000",
                         "WEIGHBRIDGE_PORT_5000_TCP_ADDR=10.0.0.1", "WEIGHBRIDGE_SERVER=http://x",
                         "WEIGHBRIDGE_BIN=x", "WEIGHBRIDGE_TEST_X=1", "WEIGHBRIDGE_DATA=")));
}

Test(load, variables_are_checked_like_the_file)
{
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LISTEN=5000"),
            "WEIGHBRIDGE_LISTEN: listen: \"5000\" is not address:port");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LIMITS_CLIENTS=0"),
            "WEIGHBRIDGE_LIMITS_CLIENTS: limits.clients: must be a whole number from 1 to 100000");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LIMITS_CLIENTS=many"),
            "WEIGHBRIDGE_LIMITS_CLIENTS: limits.clients: must be a number, not a string");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_ALLOW_PICKLE=yes"),
            "must be true or false, not a string");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_LIMITS_CLIENTS=[1"), "is not JSON");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_ALLOW_PICKLE=1"),
            "must be true or false, not a number");
    refused((struct config_flags){.listen = "x"}, ENV(), "--listen: listen: ");
    refused((struct config_flags){.hub = "x"}, ENV(), "--hub: upstreams[0].url: must begin with");
    refused((struct config_flags){.log_level = "loud"}, ENV(), "--log-level: log.level: \"loud\"");
}

Test(load, hub_flag_needs_the_upstream)
{
    const char *f = file("c.json", "{\"upstreams\":[{\"prefix\":\"other\"}]}");
    refused((struct config_flags){.file = f, .hub = "http://x"}, ENV(),
            "--hub: the configuration has no upstream with the prefix \"hf\"");
}

Test(load, prefixes_that_share_their_variables)
{
    const char *f = file("c.json", "{\"upstreams\":[{\"prefix\":\"a-b\"},{\"prefix\":\"a.b\"}]}");
    config_free(load((struct config_flags){.file = f}, ENV()));
    refused((struct config_flags){.file = f}, ENV("WEIGHBRIDGE_UPSTREAMS_A_B_URL=http://x"),
            "names the same key of several upstreams");
}

/* ---- secrets ------------------------------------------------------------------------------- */

static void has_token(struct config *c, size_t i, const char *token, const char *from)
{
    cr_assert_not_null(c->upstreams[i].token);
    cr_assert_str_eq(c->upstreams[i].token, token);
    cr_assert(strstr(c->upstreams[i].token_from, from), "%s", c->upstreams[i].token_from);
    _cleanup_free_ char *text = show(c);
    cr_assert_not(strstr(text, token), "the token is shown");
    cr_assert(strstr(text, "\"***\" from "));
}

Test(load, token_order)
{
    const char *own = file("own", " hf_own\n"), *path = file("path", "hf_path\r\n");
    char hf_home[80], text[300];
    snprintf(hf_home, sizeof(hf_home), "HF_HOME=%s", dir);
    file("token", "hf_login");
    snprintf(text, sizeof(text), "{\"upstreams\":[{\"prefix\":\"hf\",\n\"token_file\":\"%s\"}]}",
             own);
    const char *f = file("c.json", text);
    char *path_variable = variable("HF_TOKEN_PATH", path);
    char *file_variable = variable("WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE", path);
    struct config_flags none = {0}, with_file = {.file = f};

    struct config *c = load(none, ENV(hf_home));
    has_token(c, 0, "hf_login", "/token");
    config_free(c);
    c = load(none, ENV(hf_home, path_variable));
    has_token(c, 0, "hf_path", "HF_TOKEN_PATH");
    config_free(c);
    c = load(none, ENV(hf_home, path_variable, "HF_TOKEN= hf_env "));
    has_token(c, 0, "hf_env", "HF_TOKEN");
    config_free(c);
    c = load(none, ENV(hf_home, path_variable, "HF_TOKEN="));
    has_token(c, 0, "hf_path", "HF_TOKEN_PATH");
    config_free(c);
    c = load(with_file, ENV(hf_home, path_variable, "HF_TOKEN=hf_env"));
    has_token(c, 0, "hf_own", "c.json:2: upstreams[0].token_file");
    config_free(c);
    c = load(with_file, ENV(hf_home, file_variable, "HF_TOKEN=hf_env"));
    has_token(c, 0, "hf_path", "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE");
    config_free(c);
    c = load(with_file, ENV(hf_home, file_variable, "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN=hf_best"));
    has_token(c, 0, "hf_best", "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN");
    config_free(c);
    c = load(none, ENV(hf_home, "HF_TOKEN=hf_env", "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE=none"));
    cr_assert_null(c->upstreams[0].token);
    config_free(c);
}

Test(load, login_file_of_the_home_directory)
{
    char path[128], cache[128];
    snprintf(path, sizeof(path), "%s/.cache/huggingface", dir);
    snprintf(cache, sizeof(cache), "%s/.cache", dir);
    cr_assert_eq(fs_mkdir_p(path, 0755, NULL), 0);
    file(".cache/huggingface/token", "hf_home\n");
    struct config *c = load((struct config_flags){0}, ENV(variable("HOME", dir)));
    has_token(c, 0, "hf_home", "/.cache/huggingface/token");
    config_free(c);
    c = load((struct config_flags){0}, ENV(variable("XDG_CACHE_HOME", cache), "HOME=/nonexistent"));
    has_token(c, 0, "hf_home", "/huggingface/token");
    config_free(c);
    c = load((struct config_flags){0}, ENV("HOME=/nonexistent"));
    cr_assert_null(c->upstreams[0].token);
    config_free(c);
    c = load((struct config_flags){0}, ENV("HF_TOKEN_PATH=/nonexistent", variable("HOME", dir)));
    cr_assert_null(c->upstreams[0].token, "HF_TOKEN_PATH names another login file");
    config_free(c);
}

/* The Hub's variables do not say which upstream they are for. */
Test(load, hub_credentials_do_not_reach_a_mirror)
{
    const char *f = file("c.json", "{\"upstreams\":[{\"prefix\":\"hf\"},"
                                   "{\"prefix\":\"mirror\",\"url\":\"https://mirror.example\"}]}");
    struct config *c = load((struct config_flags){.file = f}, ENV("HF_TOKEN=hf_env"));
    has_token(c, 0, "hf_env", "HF_TOKEN");
    cr_assert_null(c->upstreams[1].token);
    config_free(c);
    c = load((struct config_flags){.hub = "http://127.0.0.1:9"}, ENV("HF_TOKEN=hf_env"));
    has_token(c, 0, "hf_env", "HF_TOKEN");
    config_free(c);
}

Test(load, bad_tokens_are_refused)
{
    _cleanup_strbuf_ struct strbuf big = STRBUF_INIT;
    for (int i = 0; i < 16385; i++)
        strbuf_putc(&big, 'x');
    const struct {
        const char *name, *content; /* content NULL: the folder */
        const char *want;
    } files[] = {
        {"two", "hf_a\nhf_b\n", "HF_TOKEN_PATH: the token in the file holds a space"},
        {"blank", " \n", "HF_TOKEN_PATH: the token in the file is empty"},
        {"empty", "", "HF_TOKEN_PATH: the token in the file is empty"},
        {"big", big.data, "HF_TOKEN_PATH: the token file cannot be read: it is too large"},
        {"", NULL, "HF_TOKEN_PATH: the token file cannot be read: Is a directory"},
    };
    struct config_flags none = {0};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const char *path = files[i].content ? file(files[i].name, files[i].content) : dir;
        refused(none, ENV(variable("HF_TOKEN_PATH", path)), files[i].want);
    }
    refused(none, ENV("HF_TOKEN=hf_a\x01"), "HF_TOKEN: the token holds");
    refused(none, ENV("HF_TOKEN=hf_a b"), "HF_TOKEN: the token holds");
    refused(none, ENV("WEIGHBRIDGE_UPSTREAMS_HF_TOKEN=hf_\xc3\xa9"), "the token holds");
    refused(none, ENV("WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE=/nonexistent"),
            "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE: upstreams[0].token_file: there is no such file");
}

static const char *tokens_of(const char *name, const char *members)
{
    char text[1000];
    snprintf(text, sizeof(text), "{\"upstreams\":[{\"prefix\":\"hf\",\n\"token_files\":{%s}}]}",
             members);
    return file(name, text);
}

Test(load, tokens_for_some_repositories)
{
    char members[600];
    snprintf(members, sizeof(members), "\"Acme/*\":\"%s\",\"public/*\":\"none\",\n\"*\":\"%s\"",
             file("acme", " hf_s3cret1\n"), file("rest", "hf_s3cret2"));
    struct config *c =
        load((struct config_flags){.file = tokens_of("c.json", members)}, ENV("HF_TOKEN=hf_env"));
    const struct config_upstream *u = &c->upstreams[0];
    cr_assert_eq(u->n_token_files, 3);
    cr_assert_str_eq(u->token_files[0].repositories, "Acme/*");
    cr_assert_str_eq(u->token_files[0].token, "hf_s3cret1");
    cr_assert_null(u->token_files[1].token);
    cr_assert_str_eq(u->token_files[2].repositories, "*", "in the order of the file");
    cr_assert_str_eq(u->token_files[2].token, "hf_s3cret2");
    cr_assert_str_eq(u->token, "hf_env");
    _cleanup_free_ char *text = show(c);
    cr_assert_not(strstr(text, "s3cret"), "%s", text);
    cr_assert(strstr(text, "\"token_files\": {\"Acme/*\": \"/"), "%s", text);
    config_free(c);

    c = load((struct config_flags){.file = tokens_of("d.json", "")},
             ENV("WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILES={\"a\":\"none\"}"));
    cr_assert_eq(c->upstreams[0].n_token_files, 1);
    config_free(c);
}

Test(load, bad_token_files_are_refused)
{
    char members[300];
    static const char *const cases[][2] = {
        {"\"org/*\":\"/nonexistent/t\"", "c.json:2: upstreams[0].token_files: \"org/*\": "
                                         "/nonexistent/t: there is no such file"},
        {"\"org/*\":\"hf_s3cret\"", "upstreams[0].token_files: \"org/*\": there is no such file"},
        {"\"org/*\":7", "upstreams[0].token_files: \"org/*\" must be the name of a file"},
        {"\"org/*\":\"\"", "upstreams[0].token_files: \"org/*\" must be the name of a file"},
        {"\"\":\"/x\"", "upstreams[0].token_files: a glob must have from 1 to 255 bytes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *text = refused((struct config_flags){.file = tokens_of("c.json", cases[i][0])},
                                   ENV(), cases[i][1]);
        cr_assert_not(strstr(text, "s3cret"), "%s", text);
    }
    snprintf(members, sizeof(members), "\"a\":\"%s\"", file("two", "hf_s3cret\nx"));
    const char *text = refused((struct config_flags){.file = tokens_of("c.json", members)}, ENV(),
                               "/two: the token in the file holds a space");
    cr_assert_not(strstr(text, "s3cret"), "%s", text);
    snprintf(members, sizeof(members), "\"a\":\"%s\"", dir);
    refused((struct config_flags){.file = tokens_of("c.json", members)}, ENV(),
            ": the token file cannot be read: Is a directory");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILES=[]"),
            "must be an object of globs and files");
}

/* Among them a token where the name of a file belongs. */
Test(load, no_error_repeats_a_secret)
{
    static const char *const variables[] = {
        "HF_TOKEN=s3cret\x01",
        "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN=s3cret x",
        "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILE=s3cret",
        "WEIGHBRIDGE_UPSTREAMS_HF_TOKEN_FILES={\"*\":\"s3cret\"}",
        "WEIGHBRIDGE_UPSTREAMS_HF_URL=https://u:s3cret@h/",
        "WEIGHBRIDGE_UPSTREAMS_HF_URL=https://h/?token=s3cret",
        "WEIGHBRIDGE_UPSTREAMS_HF_PROXY=htp://u:s3cret@h/",
        "WEIGHBRIDGE_UPSTREAMS_HF_PROXY=http://u:s3cret@h:x/",
        "WEIGHBRIDGE_EXTERNAL_URL=http://u:s3cret@h/",
        "https_proxy=http://u:s3cret@h:x/",
        "WEIGHBRIDGE_UPSTREAMS=[{\"prefix\":\"a\",\"token\":\"s3cret\"}]",
        "WEIGHBRIDGE_UPSTREAMS_HF_TOKN=s3cret",
    };
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *text =
            refused((struct config_flags){0}, ENV((char *)(uintptr_t)variables[i]), ":");
        cr_assert_not(strstr(text, "s3cret"), "%s", text);
    }
}

#define OCI                                                                                        \
    "{\"upstreams\":[{\"prefix\":\"reg.example\",\"kind\":\"oci\","                                \
    "\"url\":\"https://reg.example\"%s}]}"

Test(load, registry_logins)
{
    char text[400];
    snprintf(text, sizeof(text), OCI, ",\n\"username\":\"me\"");
    struct config_flags f = {.file = file("c.json", text)};
    refused(f, ENV(),
            "c.json:2: upstreams[0].username: needs \"password_file\" beside it, or the "
            "variable WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD");
    struct config *c = load(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD= p\xc3\xa4ss: w"));
    cr_assert_str_eq(c->upstreams[0].password, " p\xc3\xa4ss: w", "a password is no word");
    shows(c, "\"username\": \"me\", // ");
    shows(c, "// \"password\": \"***\" from WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD\n");
    _cleanup_free_ char *shown = show(c);
    cr_assert_not(strstr(shown, "p\xc3\xa4ss"));
    config_free(c);
    c = load(f, ENV(variable("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD_FILE",
                             file("pw", "s3cret\n"))));
    cr_assert_null(c->upstreams[0].password, "the file is read when it is needed");
    shows(c, "// \"password\" is not set\n");
    config_free(c);
    refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD=s3\ncret"),
            "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD: the password holds a control character");
    const char *why = refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD_FILE=/no/s3cret"),
                              "upstreams[0].password_file: the file cannot be read: No such file");
    cr_assert_not(strstr(why, "s3cret"));

    snprintf(text, sizeof(text), OCI, "");
    f.file = file("c.json", text);
    refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_PASSWORD=x"),
            "upstreams[0].password: needs \"username\" beside it, or the variable "
            "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_USERNAME");
    refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_DOCKER_CONFIG=/nonexistent/config.json"),
            "docker_config: /nonexistent/config.json cannot be read: No such file");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_PASSWORD=s3cret"),
            "WEIGHBRIDGE_UPSTREAMS_HF_PASSWORD: upstreams[0].password: is for upstreams of the "
            "kind \"oci\"");
}

/* A registry's token is a file's: it is read again when it changes. The Hub's own variables are
 * nothing to a registry. */
Test(load, registry_tokens)
{
    char text[400], hf_home[80];
    snprintf(hf_home, sizeof(hf_home), "HF_HOME=%s", dir);
    file("token", "hf_login");
    char *path = variable("HF_TOKEN_PATH", file("path", "hf_path"));
    snprintf(text, sizeof(text), OCI, "");
    struct config_flags f = {.file = file("c.json", text)};
    struct config *c = load(f, ENV(hf_home, "HF_TOKEN=hf_env", path));
    cr_assert_null(c->upstreams[0].token);
    config_free(c);
    c = load(f, ENV("HF_TOKEN=hf_env", variable("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_TOKEN_FILE",
                                                file("t", "registry\n"))));
    cr_assert_str_eq(c->upstreams[0].token, "registry");
    _cleanup_free_ char *shown = show(c);
    cr_assert_not(strstr(shown, "\"registry\""));
    config_free(c);
    c = load(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_TOKEN_FILE=none", "HF_TOKEN=x"));
    cr_assert(!c->upstreams[0].token && !c->upstreams[0].token_file);
    config_free(c);
    refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_TOKEN_FILE=/nonexistent"),
            "upstreams[0].token_file: there is no such file");
    const char *why =
        refused(f, ENV("WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_TOKEN=s3cret"),
                "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_TOKEN: a registry's token is read from a file");
    cr_assert_not(strstr(why, "s3cret"));
}

Test(load, registry_variables)
{
    char text[400];
    snprintf(text, sizeof(text), OCI, "");
    struct config_flags f = {.file = file("c.json", text)};
    struct config *c =
        load(f, ENV("WEIGHBRIDGE_DEFAULT_UPSTREAM=reg.example", "WEIGHBRIDGE_OFFLINE=true",
                    "WEIGHBRIDGE_LIMITS_BYTES_PER_SECOND=5",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_URL=http://h:1",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_HOSTS=[\"A.example\"]",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_SINGLE_NAMES=library",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_ON_GONE=keep",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_MAX_BLOB=1000",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_OFFLINE=true",
                    "WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_MEDIA_TYPES=[\"x/*\"]"));
    cr_assert_str_eq(c->default_upstream, "reg.example");
    cr_assert(c->offline && c->upstreams[0].offline);
    cr_assert_eq(c->max_bytes_per_s, 5);
    cr_assert_str_eq(c->upstreams[0].url, "http://h:1");
    cr_assert_str_eq(c->upstreams[0].hosts.items[0], "a.example");
    cr_assert_str_eq(c->upstreams[0].single_names, "library");
    cr_assert_eq(c->upstreams[0].on_gone, GONE_KEEP);
    cr_assert_eq(c->upstreams[0].max_blob, 1000);
    cr_assert_eq(c->upstreams[0].media_types.n, 1);
    shows(c, "\"hosts\": [\"a.example\"], // WEIGHBRIDGE_UPSTREAMS_REG_EXAMPLE_HOSTS\n");
    _cleanup_free_ char *shown = show(c);
    cr_assert_not(strstr(shown, "\"aliases\""), "a key that the kind does not have");
    config_free(c);
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_DEFAULT_UPSTREAM=x"),
            "WEIGHBRIDGE_DEFAULT_UPSTREAM: default_upstream: \"x\" is not the prefix");
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_ON_GONE=drop"),
            "WEIGHBRIDGE_UPSTREAMS_HF_ON_GONE: upstreams[0].on_gone: is for upstreams of the kind");
    /* --hub is for the Hub alone. */
    snprintf(text, sizeof(text),
             "{\"upstreams\":[{\"prefix\":\"hf\"},{\"prefix\":\"r\","
             "\"kind\":\"oci\",\"url\":\"https://r\"}]}");
    f = (struct config_flags){.file = file("c.json", text), .hub = "http://flag"};
    c = load(f, ENV());
    cr_assert_str_eq(c->upstreams[0].url, "http://flag");
    cr_assert_str_eq(c->upstreams[1].url, "https://r");
    config_free(c);
}

/* ---- proxies ------------------------------------------------------------------------------- */

static void proxy_is(const char *hub, char **env, const char *want)
{
    struct config *c = load((struct config_flags){.hub = hub}, env);
    const char *got = c->upstreams[0].proxy;
    if (want)
        cr_assert(got && strcmp(got, want) == 0, "%s: %s, not %s", hub, got ? got : "none", want);
    else
        cr_assert_null(got, "%s: %s", hub, got);
    config_free(c);
}

Test(load, proxies_of_the_environment)
{
    proxy_is("https://h.example", ENV("https_proxy=http://a:1", "HTTPS_PROXY=http://b:1"),
             "http://a:1");
    proxy_is("https://h.example", ENV("HTTPS_PROXY=http://b:1/", "HTTP_PROXY=http://c:1"),
             "http://b:1");
    proxy_is("http://h.example", ENV("HTTPS_PROXY=http://b:1", "http_proxy=c:1"), "http://c:1");
    proxy_is("http://h.example", ENV("HTTP_PROXY=c:1"), "http://c:1");
    proxy_is("https://h.example", ENV("http_proxy=c:1"), NULL);
    proxy_is("https://h.example", ENV("https_proxy="), NULL);
    static const char *const excepting[] = {
        "*", "h.example", ".example", "example", "x, H.Example", "x,,h.example", "x .example"};
    static const char *const other[] = {"x", "ample", "a.h.example", ".", "", "h.exampl", "*.org"};
    for (size_t i = 0; i < ARRAY_LEN(excepting); i++)
        proxy_is("https://h.example:8443/x",
                 ENV("https_proxy=a:1", variable("no_proxy", excepting[i])), NULL);
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        proxy_is("https://h.example", ENV("https_proxy=a:1", variable("NO_PROXY", other[i])),
                 "http://a:1");
    proxy_is("http://[fd00::1]:80", ENV("http_proxy=a:1", "no_proxy=[fd00::1]"), NULL);
    static const char *const loopback[] = {"http://127.0.0.1:1", "http://localhost",
                                           "http://[::1]:1", "http://127.9.9.9"};
    for (size_t i = 0; i < ARRAY_LEN(loopback); i++)
        proxy_is(loopback[i], ENV("http_proxy=a:1"), NULL);
    refused((struct config_flags){0}, ENV("https_proxy=ftp://x"),
            "https_proxy: upstreams[0].proxy: must begin with");
}

/* Whether NO_PROXY excepts the URL. */
static void excepts(const char *url, const char *list, bool wanted)
{
    proxy_is(url,
             ENV("http_proxy=http://a:1", "https_proxy=http://a:1", variable("NO_PROXY", list)),
             wanted ? NULL : "http://a:1");
}

Test(load, peer_bug_91_no_proxy_has_networks_and_ports)
{
    static const struct {
        const char *url, *excepting, *other;
    } cases[] = {
        {"http://10.1.2.3", "10.0.0.0/8", "11.0.0.0/8"},
        {"http://10.1.2.3", "x, 10.1.2.0/23", "10.1.4.0/23"},
        {"http://10.1.2.3", "10.1.2.3/32", "10.1.2.2/32"},
        {"http://10.1.2.3", "0.0.0.0/0", "::/0"},
        {"http://10.1.2.3", "10.1.2.3", "10.1.2.3/33"},
        {"http://10.1.2.3", "10.1.2.2/31", "10.0.0.0/"},
        {"http://[fd00::12]:5000", "fd00::/8", "fe00::/8"},
        {"http://[fd00::12]:5000", "fd00:0::12", "fd00::13"},
        {"http://[fd00::12]:5000", "[fd00::12]:5000", "[fd00::12]:80"},
        {"http://[fd00::12]:5000", "fd00::10/124", "fd00::/128"},
        {"http://[fd00::12]:5000", "fd00::/10", "fd00::/129"},
        {"https://h.example:8443", "h.example:8443", "h.example:443"},
        {"https://h.example", "h.example:443", "h.example:80"},
        {"http://h.example/x:443", "h.example:80", "h.example:443"},
        {"https://a.h.example:8443", ".h.example:8443", ".h.example:"},
        {"https://a.h.example:8443", "a, example:8443", "h.example:x"},
        {"http://10.1.2.3:81", "10.0.0.0/8 x", "10.1.2.3:80"},
        {"http://10.1.2.3:81", "10.1.2.3:81", "[10.1.2.3]:80"},
        {"https://h.example", "*", "[h.example"},
        {"https://h.example", "[h.example]", "[]"},
        {"https://h.example", "h.example", "0.0.0.0/0,:443"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        excepts(cases[i].url, cases[i].excepting, true);
        excepts(cases[i].url, cases[i].other, false);
    }
}

static void environment_gives(bool is_https, const char *host, unsigned port, int rc,
                              const char *want)
{
    _cleanup_free_ char *got = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(proxy_of_environment(is_https, host, port, &got, &err), rc, "%s: %s", host,
                 err.text);
    cr_assert(rc < 0 ? strstr(err.text, want) != NULL
              : want ? strcmp(got, want) == 0
                     : !got,
              "%s: %s %s", host, got, err.text);
}

/* Where a registry redirects to, and its token server, are other hosts than itself. */
Test(load, peer_bug_91_each_host_has_its_own_proxy)
{
    cr_assert(setenv("HTTPS_PROXY", "http://u:p@a:1", 1) == 0 &&
              setenv("http_proxy", "b:2", 1) == 0);
    cr_assert_eq(setenv("NO_PROXY", "in.example,10.0.0.0/8,[fd00::1]:81", 1), 0);
    environment_gives(true, "h.example", 443, 1, "http://u:p@a:1");
    environment_gives(false, "h.example", 80, 1, "http://b:2");
    environment_gives(true, "r.in.example", 443, 0, NULL);
    environment_gives(true, "10.9.9.9", 443, 0, NULL);
    environment_gives(false, "fd00::1", 81, 0, NULL);
    environment_gives(false, "fd00::1", 80, 1, "http://b:2");
    environment_gives(false, "127.0.0.1", 80, 0, NULL);
    cr_assert_eq(setenv("https_proxy", "gopher://x", 1), 0);
    environment_gives(true, "h.example", 443, -1, "https_proxy must begin with http://");
    cr_assert_eq(setenv("https_proxy", "", 1), 0);
    environment_gives(true, "h.example", 443, 1, "http://u:p@a:1");
    /* What the configuration says counts for all. */
    struct config *c = load((struct config_flags){.hub = "https://h.example"}, ENV("x=y"));
    cr_assert(c->upstreams[0].proxy_from_environment);
    config_free(c);
    c = load((struct config_flags){.hub = "https://h.example"},
             ENV("WEIGHBRIDGE_UPSTREAMS_HF_PROXY=none"));
    cr_assert(!c->upstreams[0].proxy_from_environment && !c->upstreams[0].proxy);
    config_free(c);
}

Test(load, proxy_of_the_configuration_wins)
{
    char **env = ENV("https_proxy=http://e:1", "WEIGHBRIDGE_UPSTREAMS_HF_PROXY=http://u:pa55@c:1");
    proxy_is("https://h.example", env, "http://u:pa55@c:1");
    proxy_is("https://h.example",
             ENV("https_proxy=http://e:1", "WEIGHBRIDGE_UPSTREAMS_HF_PROXY=none"), NULL);
    struct config *c = load((struct config_flags){0}, env);
    shows(c, "// \"proxy\": \"http://***@c:1\" from WEIGHBRIDGE_UPSTREAMS_HF_PROXY\n");
    _cleanup_free_ char *text = show(c);
    cr_assert_not(strstr(text, "pa55"));
    config_free(c);
    c = load((struct config_flags){0}, ENV("https_proxy=http://e:1"));
    shows(c, "\"proxy\": \"http://e:1\", // https_proxy\n");
    config_free(c);
}

Test(load, ca_file_must_be_readable)
{
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_CA_FILE=/nonexistent/ca"),
            "WEIGHBRIDGE_UPSTREAMS_HF_CA_FILE: upstreams[0].ca_file: /nonexistent/ca cannot be "
            "read: No such file");
    struct config *c = load((struct config_flags){0},
                            ENV(variable("WEIGHBRIDGE_UPSTREAMS_HF_CA_FILE", file("ca.pem", "x"))));
    cr_assert_not_null(c->upstreams[0].ca_file);
    config_free(c);
    refused((struct config_flags){0}, ENV("WEIGHBRIDGE_UPSTREAMS_HF_CLIENT_CERT=/nonexistent/c"),
            "client_cert: /nonexistent");
    refused((struct config_flags){0},
            ENV(variable("WEIGHBRIDGE_UPSTREAMS_HF_CLIENT_KEY", file("key.pem", "x"))),
            "client_key: there is no client_cert that it belongs to");
}

/* ---- show ---------------------------------------------------------------------------------- */

/* What is shown, without the comments that say where it is from. */
static char *values_of(const struct config *c)
{
    char *text = show(c), *to = text;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        const char *comment = memmem(line, n, "// ", 3);
        size_t keep = comment ? (size_t)(comment - line) : n;
        memmove(to, line, keep);
        to += keep;
        *to++ = '\n';
        line += n + (line[n] == '\n');
    }
    *to = '\0';
    return text;
}

Test(load, what_is_shown_can_be_loaded)
{
    char text[2000];
    snprintf(text, sizeof(text),
             "{\"listen\":\"[::1]:0\",\"data\":\"a\\\"b\\\\ <&> "
             "\\u00e9\",\"external_url\":\"https://m.example\","
             "\"log\":{\"level\":\"debug\"},\"limits\":{\"clients\":1},\"delete\":\"deny\","
             "\"timeouts\":{\"drain\":\"1m\"},"
             "\"transfers\":{\"finish_abandoned\":false},\"upstreams\":[{\"prefix\":\"a\","
             "\"proxy\":\"socks5://h:1\",\"ca_file\":\"%s\",\"token_file\":\"none\","
             "\"aliases\":{\"b/b\":\"B/B\",\"a\":\"A\"},\"include\":[\"*.json\",\"x/*\"],"
             "\"token_files\":{\"x/*\":\"none\",\"*\":\"%s\"},\"credentials\":\"forward\","
             "\"auth_ttl\":7,\"inspection\":\"required\",\"allow_pickle\":true},{\"prefix\":\"b\"},"
             "{\"prefix\":\"c\",\"kind\":\"oci\",\"url\":\"http://c\",\"hosts\":[\"c2\"],"
             "\"single_names\":\"l\",\"max_blob\":1,\"repositories\":[\"*\"],\"on_gone\":\"keep\"},"
             "{\"prefix\":\"d\",\"kind\":\"oci\",\"url\":\"https://registry-1.docker.io\"}],"
             "\"default_upstream\":\"c\",\"offline\":true,"
             "\"access\":[{\"repositories\":\"a/*\",\"allow\":[\"pull\",\"admin\"]},"
             "{\"repositories\":\"**\",\"allow\":[]}],"
             "\"policies\":[{\"repositories\":\"a/Org/*\",\"deny\":true},"
             "{\"repositories\":\"**\",\"pinned_only\":true,\"revisions\":[\"v*\"],"
             "\"formats\":[\"gguf\",\"other\"],\"max_file\":1}],"
             "\"immutable_tags\":[{\"repositories\":\"A/*\",\"tags\":\"v*\"}]}",
             file("ca.pem", "x"), file("token", "hf_x"));
    const char *const files[] = {file("a.json", text), file("b.json", "{}"),
                                 file("c.json", "{\"upstreams\":[]}")};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct config *c = load((struct config_flags){.file = files[i]}, ENV());
        _cleanup_free_ char *shown = show(c), *first = values_of(c);
        config_free(c);
        c = load((struct config_flags){.file = file("shown.json", shown)}, ENV());
        _cleanup_free_ char *second = values_of(c);
        config_free(c);
        cr_assert_str_eq(first, second);
    }
}

Test(load, a_file_name_cannot_leave_its_comment)
{
    const char *f = file("x\n\"data\":\"evil\",", "{\"data\":\"good\"}");
    struct config *c = load((struct config_flags){.file = f}, ENV());
    _cleanup_free_ char *shown = show(c);
    config_free(c);
    c = load((struct config_flags){.file = file("shown.json", shown)}, ENV());
    cr_assert_str_eq(c->data, "good");
    config_free(c);
}
