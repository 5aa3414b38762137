/* Files: what is taken, what is refused, and with which words. */
#include <criterion/criterion.h>
#include <string.h>

#include "config/config.h"

static struct config *parse(const char *text)
{
    struct config *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_eq(config_parse_text("f.json", text, strlen(text), &c, &err), 0, "%s: %s", text,
                 err.text);
    return c;
}

static void refused(const char *text, const char *want)
{
    struct config *c = NULL;
    struct error err = ERROR_INIT;
    cr_assert_lt(config_parse_text("f.json", text, strlen(text), &c, &err), 0, "accepted: %s",
                 text);
    cr_assert_null(c);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert(strstr(err.text, want), "%s\n  gives  %s\n  wanted %s", text, err.text, want);
    cr_assert_not(strchr(err.text, '\n'));
}

Test(values, defaults)
{
    struct config *c = parse("{}");
    cr_assert_str_eq(c->listen_host, "127.0.0.1");
    cr_assert_eq(c->listen_port, 5000);
    cr_assert_str_eq(c->data, "./weighbridge-data");
    cr_assert_null(c->external_url);
    cr_assert_str_eq(c->log_level, "info");
    cr_assert_eq(c->max_clients, 4096);
    cr_assert_eq(c->max_transfers, 16);
    cr_assert_eq(c->free_floor_percent, 5);
    cr_assert_eq(c->drain_s, 30);
    cr_assert_eq(c->client_timeout_s, 60);
    cr_assert(c->finish_abandoned);
    cr_assert_not(c->delete_denied);
    cr_assert_eq(c->max_uploads, 10000);
    cr_assert_eq(c->max_manifest, 4 * 1024 * 1024);
    cr_assert_eq(c->uploads_expire_s, 86400);
    cr_assert_eq(c->n_immutable_tags, 0);
    cr_assert_eq(c->n_access, 0);
    cr_assert_eq(c->n_upstreams, 1);
    const struct config_upstream *u = &c->upstreams[0];
    cr_assert_str_eq(u->prefix, "hf");
    cr_assert_eq(u->kind, UPSTREAM_HUGGINGFACE);
    cr_assert_str_eq(u->url, "https://huggingface.co");
    cr_assert(!u->token && !u->token_file && !u->ca_file && !u->proxy);
    cr_assert(!u->allow_pickle && !u->inspection_required);
    cr_assert_eq(u->tag_ttl_s, 60);
    cr_assert_eq(u->negative_ttl_s, 30);
    cr_assert_eq(u->connect_timeout_s, 10);
    cr_assert_eq(u->stall_timeout_s, 30);
    cr_assert_eq(u->retries, 5);
    cr_assert_eq(u->max_connections, 32);
    cr_assert_eq(u->header_connections, 8);
    cr_assert_eq(u->search_limit, 32);
    cr_assert_eq(u->n_aliases + u->include.n + u->exclude.n, 0);
    config_free(c);
}

Test(values, everything_set)
{
    struct config *c = parse(
        "{\"listen\":\"[::1]:0\",\"data\":\"/d\",\"external_url\":\"https://m.example/\","
        "\"log\":{\"level\":\"debug\"},\"limits\":{\"clients\":1,\"transfers\":2,"
        "\"free_percent\":0,\"uploads\":3,\"manifest\":1024},"
        "\"delete\":\"deny\",\"uploads\":{\"expire\":\"90m\"},"
        "\"immutable_tags\":[{\"repositories\":\"R/*\"},"
        "{\"repositories\":\"x\",\"tags\":\"v*\"}],\"timeouts\":{\"drain\":\"1m\",\"client\":7},"
        "\"transfers\":{\"finish_abandoned\":false},\"upstreams\":["
        "{\"prefix\":\"hub/a\",\"kind\":\"huggingface\",\"url\":\"http://[::1]:81/x//\","
        "\"token_file\":\"/t\",\"ca_file\":\"/c\",\"proxy\":\"socks5h://u:p@h:1\","
        "\"aliases\":{\"B/b\":\"B/B\",\"a\":\"A\"},\"include\":[\"*.json\",\"x/*\"],"
        "\"exclude\":[\"y\"],\"allow_pickle\":true,\"inspection\":\"required\","
        "\"tag_ttl\":\"2h\",\"negative_ttl\":\"0\",\"connect_timeout\":\"1s\","
        "\"stall_timeout\":\"1h\",\"retries\":0,\"max_connections\":1,"
        "\"header_connections\":64,\"search_limit\":1000},{\"prefix\":\"b\"}],"
        "\"access\":[{\"repositories\":\"a/*\",\"allow\":[\"pull\",\"admin\"]},"
        "{\"repositories\":\"**\",\"allow\":[]}]}");
    cr_assert_str_eq(c->listen_host, "::1");
    cr_assert_eq(c->listen_port, 0);
    cr_assert_str_eq(c->external_url, "https://m.example");
    cr_assert_eq(c->drain_s, 60);
    cr_assert_eq(c->client_timeout_s, 7);
    cr_assert_not(c->finish_abandoned);
    cr_assert(c->delete_denied);
    cr_assert_eq(c->max_uploads, 3);
    cr_assert_eq(c->max_manifest, 1024);
    cr_assert_eq(c->uploads_expire_s, 5400);
    cr_assert_eq(c->n_immutable_tags, 2);
    cr_assert_str_eq(c->immutable_tags[0].repositories, "R/*");
    cr_assert_str_eq(c->immutable_tags[0].tags, "*");
    cr_assert_str_eq(c->immutable_tags[1].tags, "v*");
    cr_assert_eq(c->n_upstreams, 2);
    const struct config_upstream *u = &c->upstreams[0];
    cr_assert_str_eq(u->url, "http://[::1]:81/x");
    cr_assert_str_eq(u->proxy, "socks5h://u:p@h:1");
    cr_assert_eq(u->n_aliases, 2);
    cr_assert_str_eq(u->aliases[0].name, "a");
    cr_assert_str_eq(u->aliases[1].name, "b/b");
    cr_assert_str_eq(u->aliases[1].id, "B/B");
    cr_assert_eq(u->include.n, 2);
    cr_assert_str_eq(u->include.items[1], "x/*");
    cr_assert_str_eq(u->exclude.items[0], "y");
    cr_assert(u->allow_pickle && u->inspection_required);
    cr_assert_eq(u->tag_ttl_s, 7200);
    cr_assert_eq(u->negative_ttl_s, 0);
    cr_assert_eq(u->search_limit, 1000);
    cr_assert_str_eq(c->upstreams[1].url, "https://huggingface.co");
    cr_assert_eq(c->n_access, 2);
    cr_assert_eq(c->access[0].allow, ACCESS_PULL | ACCESS_ADMIN);
    cr_assert_eq(c->access[1].allow, 0);
    config_free(c);
}

Test(values, no_upstreams_at_all)
{
    struct config *c = parse("{\"upstreams\":[]}");
    cr_assert_eq(c->n_upstreams, 0);
    config_free(c);
}

Test(values, unknown_keys)
{
    refused("{\n\"lisen\":1}", "f.json:2: lisen: unknown key; did you mean \"listen\"?");
    refused("{\"log\":{\n\n\"levle\":1}}",
            "f.json:3: log.levle: unknown key; did you mean \"level\"?");
    refused("{\"upstreams\":[\n{\"prefix\":\"a\"},\n{\"prefix\":\"b\",\n\"ulr\":\"x\"}]}",
            "f.json:4: upstreams[1].ulr: unknown key; did you mean \"url\"?");
    refused("{\"access\":[{\"repository\":\"a\"}]}", "did you mean \"repositories\"?");
    refused("{\"level\":1}", "level: unknown key; did you mean log.level?");
    refused("{\"log.level\":\"info\"}", "log.level: unknown key; did you mean log.level?");
    refused("{\"upstreams[].url\":\"x\"}", "unknown key");
    refused("{\"upstreams\":[{\"listen\":\"x\"}]}",
            "upstreams[0].listen: unknown key; did you mean listen?");
    refused("{\"zzzzzz\":1}", "those known here are: listen, data, external_url, delete, log, "
                              "limits, timeouts, transfers, uploads, upstreams, access, "
                              "immutable_tags");
    refused("{\"\":1}", "unknown key");
    refused("{\"Listen\":\"127.0.0.1:1\"}", "did you mean \"listen\"?");
    refused("{\"lis\\nten\":1}", "unknown key");
}

Test(values, syntax_errors_have_file_and_line)
{
    refused("{\n\"data\": \"x\",\n}", "f.json:2: JSON allows no comma before '}'");
    refused("{\n\"data\": \"x\",\n\"data\":\"y\"}", "f.json:3: the key \"data\" comes twice");
    refused("[]", "f.json:1: the configuration must be an object, not a list");
    refused("", "f.json:1: ");
}

Test(values, wrong_types)
{
    refused("{\"listen\":5000}", "f.json:1: listen: must be a string, not a number");
    refused("{\"log\":1}", "log: must be an object, not a number");
    refused("{\"limits\":{\"clients\":\"1\"}}", "limits.clients: must be a number, not a string");
    refused("{\"transfers\":{\"finish_abandoned\":1}}", "must be true or false, not a number");
    refused("{\"timeouts\":{\"drain\":true}}",
            "must be a duration such as \"90s\", not true or false");
    refused("{\"upstreams\":{}}", "upstreams: must be a list of objects, not an object");
    refused("{\"upstreams\":[\n1]}", "f.json:2: upstreams[0]: must be an object, not a number");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"include\":\"x\"}]}",
            "include: must be a list of strings");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"include\":[\"x\",\n1]}]}",
            "f.json:2: upstreams[0].include[1]: must be a string, not a number");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"aliases\":[]}]}",
            "must be an object of names and ids");
    refused("{\"access\":[{\"repositories\":\"a\",\"allow\":\"pull\"}]}",
            "must be a list of actions");
    refused("{\"data\":null}", "data: must be a string, not null");
}

Test(values, each_number_has_its_limits)
{
    static const struct {
        const char *path; /* "limits" "clients", or an upstream's key */
        unsigned long min, max;
        bool upstream;
    } cases[] = {
        {"\"limits\":{\"clients\":%s}", 1, 100000, false},
        {"\"limits\":{\"transfers\":%s}", 1, 1024, false},
        {"\"limits\":{\"free_percent\":%s}", 0, 100, false},
        {"\"limits\":{\"uploads\":%s}", 1, 1000000, false},
        {"\"limits\":{\"manifest\":%s}", 1024, 67108864, false},
        {"\"uploads\":{\"expire\":%s}", 1, 31536000, false},
        {"\"timeouts\":{\"drain\":%s}", 0, 3600, false},
        {"\"timeouts\":{\"client\":%s}", 1, 86400, false},
        {"\"tag_ttl\":%s", 0, 2592000, true},
        {"\"negative_ttl\":%s", 0, 3600, true},
        {"\"connect_timeout\":%s", 1, 300, true},
        {"\"stall_timeout\":%s", 1, 3600, true},
        {"\"retries\":%s", 0, 100, true},
        {"\"max_connections\":%s", 1, 256, true},
        {"\"header_connections\":%s", 1, 64, true},
        {"\"search_limit\":%s", 0, 1000, true},
    };
    static const char *const odd[] = {"1.5", "-1", "1e300", "9007199254740993", "4294967297"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const frame[2] = {"{%s}", "{\"upstreams\":[{\"prefix\":\"a\",%s}]}"};
        char number[32], member[200], text[300];
        for (int step = 0; step < 4 + (int)ARRAY_LEN(odd); step++) {
            bool good = step < 2;
            if (step == 3 && cases[i].min == 0)
                continue;
            if (step < 4)
                snprintf(number, sizeof(number), "%lu",
                         (const unsigned long[]){cases[i].min, cases[i].max, cases[i].max + 1,
                                                 cases[i].min - 1}[step]);
            else
                snprintf(number, sizeof(number), "%s", odd[step - 4]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(member, sizeof(member), cases[i].path, number);
            snprintf(text, sizeof(text), frame[cases[i].upstream], member);
#pragma GCC diagnostic pop
            if (good)
                config_free(parse(text));
            else
                refused(text, "must be a whole number from");
        }
    }
}

Test(values, durations)
{
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {{"0", 0}, {"0s", 0}, {"90s", 90}, {"5m", 300}, {"1h", 3600}, {"60", 60}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        char text[100];
        snprintf(text, sizeof(text), "{\"timeouts\":{\"drain\":\"%s\"}}", good[i].text);
        struct config *c = parse(text);
        cr_assert_eq(c->drain_s, good[i].want);
        config_free(c);
    }
    static const char *const bad[] = {"",   "s",   "1 s",   "1.5s", "-1s", "1ms",
                                      "1S", "1s ", "1h30m", "1w",   "0x1", "1234567890"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[100];
        snprintf(text, sizeof(text), "{\"timeouts\":{\"drain\":\"%s\"}}", bad[i]);
        refused(text, "is no duration");
    }
    refused("{\"timeouts\":{\"drain\":\"61m\"}}", "must be from 0s to 3600s");
    refused("{\"timeouts\":{\"drain\":\"999999999d\"}}", "must be from 0s to 3600s");
    refused("{\"timeouts\":{\"client\":\"0s\"}}", "must be from 1s");
}

Test(values, addresses)
{
    static const struct {
        const char *text, *host;
        unsigned port;
    } good[] = {{"127.0.0.1:0", "127.0.0.1", 0},
                {"0.0.0.0:65535", "0.0.0.0", 65535},
                {"[::]:80", "::", 80},
                {"localhost:1", "127.0.0.1", 1}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        char text[100];
        snprintf(text, sizeof(text), "{\"listen\":\"%s\"}", good[i].text);
        struct config *c = parse(text);
        cr_assert_str_eq(c->listen_host, good[i].host);
        cr_assert_eq(c->listen_port, good[i].port);
        config_free(c);
    }
    static const char *const bad[] = {"5000",          ":5000",           "127.0.0.1",
                                      "127.0.0.1:",    "127.0.0.1:65536", "127.0.0.1:99999999999",
                                      "127.0.0.1:+1",  "127.0.0.1:1x",    "::1:5000",
                                      "[::1]",         "[::1]5000",       "[::1:5000",
                                      "[127.0.0.1]:1", "example.org:80",  "127.0.0.256:1",
                                      "127.1:1",       " 127.0.0.1:1",    "[::g]:1",
                                      "[]:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[100];
        snprintf(text, sizeof(text), "{\"listen\":\"%s\"}", bad[i]);
        refused(text, "f.json:1: listen: ");
    }
    refused("{\"listen\":\":5000\"}", "0.0.0.0 or [::] means every address");
}

Test(values, urls)
{
    static const struct {
        const char *url, *want;
    } bad[] = {
        {"huggingface.co", "must begin with http:// or https://"},
        {"ftp://h", "must begin with http:// or https://"},
        {"HTTP://h", "must begin with http:// or https://"},
        {"://h", "must begin with http:// or https://"},
        {"http://", "has no host name"},
        {"http:///x", "has no host name"},
        {"http://:80", "has no host name"},
        {"http://h:", "port that is no number"},
        {"http://h:x", "port that is no number"},
        {"http://h:80x/", "port that is no number"},
        {"http://h:0", "port outside"},
        {"http://h:65536", "port outside"},
        {"http://h?x", "query"},
        {"http://h/#x", "fragment"},
        {"http://h/a b", "character that no URL may hold"},
        {"http://h\\\\x", "character that no URL may hold"},
        {"http://h!x", "character in its host name"},
        {"http://[::1", "']'"},
        {"http://[::1]x", "character in its host name"},
        {"http://[::g]/", "invalid IPv6"},
        {"http://user:hunter2@h/", "user name or password"},
        {"", "must not be empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[200];
        snprintf(text, sizeof(text), "{\"upstreams\":[{\"prefix\":\"a\",\"url\":\"%s\"}]}",
                 bad[i].url);
        refused(text, bad[i].want);
        refused(text, "f.json:1: upstreams[0].url: ");
    }
    refused("{\"external_url\":\"x\"}", "external_url: must begin with");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"proxy\":\"ftp://x\"}]}",
            "proxy: must begin with http://, https://, socks5:// or socks5h://");
}

Test(values, texts)
{
    char text[6000] = "{\"data\":\"";
    size_t n = strlen(text);
    memset(text + n, 'x', 4097);
    strcpy(text + n + 4097, "\"}");
    refused(text, "data: is longer than 4096 bytes");
    memmove(text + n, text + n + 1, 4096 + 3);
    config_free(parse(text));
    refused("{\"data\":\"\"}", "data: must not be empty");
    refused("{\"data\":\"a\\nb\"}", "data: holds a control character");
    refused("{\"log\":{\"level\":\"trace\"}}", "\"trace\" is not one of error|warn|info|debug");
}

Test(values, upstreams)
{
    refused("{\"upstreams\":[\n{\"url\":\"http://h\"}]}",
            "f.json:2: upstreams[0]: has no \"prefix\"");
    refused("{\"upstreams\":[{\"prefix\":\"HF\"}]}", "\"HF\" can not begin a repository name");
    refused("{\"upstreams\":[{\"prefix\":\"a/\"}]}", "can not begin a repository name");
    refused("{\"upstreams\":[{\"prefix\":\"../a\"}]}", "can not begin a repository name");
    refused("{\"upstreams\":[{\"prefix\":\"a\"},\n{\"prefix\":\"a\"}]}",
            "f.json:2: upstreams[1].prefix: \"a\" is also upstreams[0].prefix");
    refused("{\"upstreams\":[{\"prefix\":\"a/b\"},\n{\"prefix\":\"a\"}]}",
            "f.json:1: upstreams[0].prefix: \"a/b\" lies within upstreams[1].prefix \"a\"");
    config_free(parse("{\"upstreams\":[{\"prefix\":\"a\"},{\"prefix\":\"ab\"}]}"));
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"oci\"}]}",
            "\"oci\" is not supported by this version");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"ftp\"}]}",
            "\"ftp\" is not one of huggingface");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"inspection\":\"no\"}]}",
            "is not one of best-effort|required");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"token\":\"hf_secret\"}]}",
            "f.json:1: upstreams[0].token: a secret does not belong in the configuration file");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"aliases\":{\"A/b\":\"x\",\"a/b\":\"y\"}}]}",
            "\"a/b\" comes twice");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"aliases\":{\"-a\":\"x\"}}]}",
            "\"-a\" is not a repository name");
    static const char *const ids[] = {"\"\"",      "\"/a\"",   "\"a/\"",  "\"a//b\"",
                                      "\"a/b/c\"", "\"a..b\"", "\"a b\"", "1"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        char text[200];
        snprintf(text, sizeof(text), "{\"upstreams\":[{\"prefix\":\"a\",\"aliases\":{\"x\":%s}}]}",
                 ids[i]);
        refused(text, "the alias of \"x\" must be an id");
    }
}

Test(values, access)
{
    refused("{\"access\":[]}", "access: must not be empty");
    refused("{\"access\":[{\"allow\":[]}]}", "access[0]: has no \"repositories\"");
    refused("{\"access\":[{\"repositories\":\"a\"}]}", "access[0]: has no \"allow\"");
    refused("{\"access\":[{\"repositories\":\"a\",\"allow\":[\n\"write\"]}]}",
            "f.json:2: access[0].allow: \"write\" is not one of pull|push|delete|admin");
    struct config *c = parse("{\"access\":[{\"repositories\":\"secret/*\",\"allow\":[]},"
                             "{\"repositories\":\"team/x\",\"allow\":[\"pull\",\"push\"]},"
                             "{\"repositories\":\"hf/**\",\"allow\":[\"pull\"]}]}");
    cr_assert(config_access_allows(c, "hf/org/name", ACCESS_PULL));
    cr_assert_not(config_access_allows(c, "hf/org/name", ACCESS_PUSH));
    cr_assert(config_access_allows(c, "team/x", ACCESS_PUSH));
    cr_assert_not(config_access_allows(c, "team/x", ACCESS_DELETE));
    cr_assert_not(config_access_allows(c, "team/xy", ACCESS_PULL));
    cr_assert_not(config_access_allows(c, "secret/a/b", ACCESS_PULL));
    cr_assert_not(config_access_allows(c, "other", ACCESS_PULL));
    cr_assert_not(config_access_allows(c, "team/x", ACCESS_PULL | ACCESS_DELETE));
    config_free(c);
    c = parse("{\"access\":[{\"repositories\":\"hf/Org/*\",\"allow\":[]},"
              "{\"repositories\":\"**\",\"allow\":[\"pull\"]}]}");
    cr_assert_not(config_access_allows(c, "hf/org/name", ACCESS_PULL));
    cr_assert(config_access_allows(c, "hf/other/name", ACCESS_PULL));
    config_free(c);
    c = parse("{}");
    cr_assert(config_access_allows(c, "anything", ACCESS_ADMIN));
    config_free(c);
    c = parse("{\"access\":[{\"repositories\":\"**\",\"allow\":[\"pull\"]}]}");
    cr_assert(config_access_allows(c, "a/b/c", ACCESS_PULL));
    config_free(c);
}

Test(values, immutable_tags)
{
    refused("{\"immutable_tags\":[{\"tags\":\"v*\"}]}",
            "immutable_tags[0]: has no \"repositories\"");
    refused("{\"immutable_tags\":[{\"repositories\":\"a\",\n\"tag\":\"v*\"}]}",
            "f.json:2: immutable_tags[0].tag: unknown key; did you mean \"tags\"?");
    refused("{\"immutable_tags\":[\"a\"]}", "immutable_tags[0]: must be an object, not a string");
    refused("{\"immutable_tags\":{}}", "immutable_tags: must be a list of objects");
    refused("{\"immutable_tags\":[{\"repositories\":\"\"}]}", "must not be empty");
    refused("{\"delete\":\"never\"}", "\"never\" is not one of allow|deny");
    refused("{\"delete\":false}", "delete: must be a string, not true or false");
    config_free(parse("{\"immutable_tags\":[]}"));

    struct config *c = parse("{\"immutable_tags\":[{\"repositories\":\"Team/*\",\"tags\":\"v*\"},"
                             "{\"repositories\":\"frozen\"},"
                             "{\"repositories\":\"**\",\"tags\":\"Final-[0-9]\"}]}");
    static const struct {
        const char *repository, *tag;
        bool want;
    } cases[] = {
        {"team/x", "v1", true},        {"team/x/y", "v1.0", true}, {"team/x", "V1", false},
        {"team/x", "latest", false},   {"team", "v1", false},      {"frozen", "latest", true},
        {"frozen/x", "latest", false}, {"any", "Final-1", true},   {"any", "final-1", false},
        {"any", "Final-12", false},    {"hf/team/x", "v1", false}, {"hf/any", "Final-1", false},
        {"hfx/any", "Final-1", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_assert_eq(config_tag_is_immutable(c, cases[i].repository, cases[i].tag), cases[i].want,
                     "%s:%s", cases[i].repository, cases[i].tag);
    config_free(c);
    c = parse("{}");
    cr_assert_not(config_tag_is_immutable(c, "frozen", "latest"));
    config_free(c);
}

Test(values, upstream_of)
{
    struct config *c = parse("{\"upstreams\":[{\"prefix\":\"hf\"},{\"prefix\":\"m/hub\"}]}");
    cr_assert_eq(config_upstream_of(c, "hf/org/name"), &c->upstreams[0]);
    cr_assert_eq(config_upstream_of(c, "m/hub/x"), &c->upstreams[1]);
    cr_assert_null(config_upstream_of(c, "hf"));
    cr_assert_null(config_upstream_of(c, "hfx/a"));
    cr_assert_null(config_upstream_of(c, "m/hubx/a"));
    cr_assert_null(config_upstream_of(c, "local"));
    config_free(c);
}
