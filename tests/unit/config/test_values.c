/* Files: what is taken, what is refused, and with which words. */
#include "config_text.h"
#include "config/config_private.h"

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
    cr_assert_eq(c->max_upstream_connections, 256);
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
    cr_assert_null(c->default_upstream);
    cr_assert_not(c->offline);
    cr_assert_eq(c->max_bytes_per_s, 0);
    cr_assert_eq(c->n_upstreams, DEFAULT_UPSTREAMS);
    const struct config_upstream *u = &c->upstreams[0];
    cr_assert_str_eq(u->prefix, "hf");
    cr_assert_eq(u->kind, UPSTREAM_HUGGINGFACE);
    cr_assert_not(u->offline);
    cr_assert_eq(u->revalidate_timeout_s, 2);
    cr_assert_eq(u->max_bytes_per_s, 0);
    cr_assert_eq(u->connections_per_blob, 8);
    cr_assert_eq(u->breaker_failures, 5);
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

/* Those that there are when nothing is configured. */
Test(values, default_upstreams)
{
    static const char *const want[][2] = {
        {"hf", "https://huggingface.co"},
        {"docker.io", "https://registry-1.docker.io"},
        {"ghcr.io", "https://ghcr.io"},
        {"quay.io", "https://quay.io"},
        {"registry.k8s.io", "https://registry.k8s.io"},
    };
    struct config *c = parse("{}");
    cr_assert_eq(c->n_upstreams, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct config_upstream *u = &c->upstreams[i];
        cr_assert_str_eq(u->prefix, want[i][0]);
        cr_assert_str_eq(u->url, want[i][1]);
        cr_assert_eq(u->kind, i ? UPSTREAM_OCI : UPSTREAM_HUGGINGFACE);
        cr_assert_eq(u->single_names != NULL, i == 1);
        cr_assert_eq(u->tag_ttl_s, 60);
        cr_assert_eq(u->max_connections, 32);
        cr_assert_eq(u->on_gone, GONE_DROP);
        cr_assert_eq(u->max_blob, 0);
    }
    cr_assert_str_eq(c->upstreams[1].single_names, "library");
    config_free(c);
}

Test(values, oci_everything_set)
{
    struct config *c = parse(
        "{\"default_upstream\":\"hub\",\"offline\":true,\"limits\":{\"bytes_per_second\":7},"
        "\"upstreams\":[{\"prefix\":\"hub\",\"kind\":\"oci\",\"url\":\"https://r.example:5/\","
        "\"username\":\"me\",\"password_file\":\"/p\",\"docker_config\":\"/d\","
        "\"single_names\":\"a/b\",\"hosts\":[\"R2.Example\",\"[::1]:5000\"],"
        "\"repositories\":[\"team/*\"],\"exclude_repositories\":[\"team/x\",\"y\"],"
        "\"media_types\":[\"application/*\"],\"max_blob\":9007199254740991,\"on_gone\":\"keep\","
        "\"offline\":true,\"revalidate_timeout\":\"1m\",\"max_bytes_per_second\":1000000000000,"
        "\"connections_per_blob\":64,\"breaker_failures\":1}]}");
    cr_assert_str_eq(c->default_upstream, "hub");
    cr_assert(c->offline);
    cr_assert_eq(c->max_bytes_per_s, 7);
    const struct config_upstream *u = &c->upstreams[0];
    cr_assert_eq(u->kind, UPSTREAM_OCI);
    cr_assert_str_eq(u->url, "https://r.example:5");
    cr_assert_str_eq(u->username, "me");
    cr_assert_str_eq(u->password_file, "/p");
    cr_assert_str_eq(u->docker_config, "/d");
    cr_assert_str_eq(u->single_names, "a/b");
    cr_assert_eq(u->hosts.n, 2);
    cr_assert_str_eq(u->hosts.items[0], "r2.example");
    cr_assert_str_eq(u->hosts.items[1], "[::1]:5000");
    cr_assert_str_eq(u->repositories.items[0], "team/*");
    cr_assert_eq(u->exclude_repositories.n, 2);
    cr_assert_str_eq(u->media_types.items[0], "application/*");
    cr_assert_eq(u->max_blob, 9007199254740991);
    cr_assert_eq(u->on_gone, GONE_KEEP);
    cr_assert(u->offline);
    cr_assert_eq(u->revalidate_timeout_s, 60);
    cr_assert_eq(u->max_bytes_per_s, 1000000000000);
    cr_assert_eq(u->connections_per_blob, 64);
    cr_assert_eq(u->breaker_failures, 1);
    cr_assert_null(u->token_file);
    config_free(c);
}

Test(values, oci_refusals)
{
    refused("{\"upstreams\":[{\"prefix\":\"a\",\n\"kind\":\"oci\"}]}",
            "f.json:2: upstreams[0].kind: an upstream of the kind \"oci\" needs an \"url\"");
    static const struct {
        const char *member, *want;
    } cases[] = {
        {"\"username\":\"a:b\"", "upstreams[0].username: must not hold a ':'"},
        {"\"username\":\"a\",\"token_file\":\"x\"",
         "upstreams[0].token_file: stands beside \"username\""},
        {"\"password\":\"x\"",
         "upstreams[0].password: a secret does not belong in the configuration file: use "
         "password_file or"},
        {"\"hosts\":\"x\"", "must be a list of strings"},
        {"\"hosts\":[\"https://x\"]", "\"https://x\" is no host or host:port"},
        {"\"hosts\":[\"x/y\"]", "\"x/y\" is no host or host:port"},
        {"\"hosts\":[\"x\",\"u@y\"]", "\"u@y\" is no host or host:port"},
        {"\"hosts\":[\"x:0\"]", "\"x:0\" is no host or host:port"},
        {"\"hosts\":[\"\"]", "hosts[0]: must not be empty"},
        {"\"single_names\":\"Library\"", "single_names: \"Library\" can not begin"},
        {"\"single_names\":\"library/\"", "can not begin"},
        {"\"max_blob\":9007199254740992", "from 0 to 9007199254740991 bytes"},
        {"\"max_blob\":1.5", "must be a whole number"},
        {"\"on_gone\":\"forget\"", "\"forget\" is not one of drop|keep"},
        {"\"revalidate_timeout\":\"0s\"", "must be from 1s to 60s"},
        {"\"revalidate_timeout\":\"61s\"", "must be from 1s to 60s"},
        {"\"aliases\":{}", "upstreams[0].aliases: is for upstreams of the kind \"huggingface\""},
        {"\"include\":[]", "upstreams[0].include: is for"},
        {"\"exclude\":[]", "upstreams[0].exclude: is for"},
        {"\"allow_pickle\":false", "upstreams[0].allow_pickle: is for"},
        {"\"inspection\":\"required\"", "upstreams[0].inspection: is for"},
        {"\"header_connections\":1", "upstreams[0].header_connections: is for"},
        {"\"search_limit\":1", "upstreams[0].search_limit: is for"},
    };
    char text[400];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof(text),
                 "{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"oci\",\"url\":\"https://h\",%s}]}",
                 cases[i].member);
        refused(text, cases[i].want);
    }
    refused("{\"limits\":{\"bytes_per_second\":1000000000001}}", "from 0 to 1000000000000 bytes");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"max_bytes_per_second\":-1}]}",
            "from 0 to 1000000000000 bytes");
    static const char *const only_oci[] = {
        "\"username\":\"x\"",
        "\"password_file\":\"x\"",
        "\"docker_config\":\"x\"",
        "\"single_names\":\"x\"",
        "\"hosts\":[]",
        "\"repositories\":[]",
        "\"media_types\":[]",
        "\"exclude_repositories\":[]",
        "\"max_blob\":0",
        "\"on_gone\":\"drop\"",
    };
    for (size_t i = 0; i < ARRAY_LEN(only_oci); i++) {
        snprintf(text, sizeof(text), "{\"upstreams\":[{\"prefix\":\"a\",%s}]}", only_oci[i]);
        refused(text, ": is for upstreams of the kind \"oci\", and this one is \"huggingface\"");
    }
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"oci\",\"url\":\"https://h\","
            "\"hosts\":[\"x\"]},{\"prefix\":\"b\",\"kind\":\"oci\",\"url\":\"https://i\",\n"
            "\"hosts\":[\"y\",\"X\"]}]}",
            "f.json:2: upstreams[1].hosts: \"x\" is also among upstreams[0].hosts");
    refused("{\n\"default_upstream\":\"b\",\"upstreams\":[{\"prefix\":\"a\"},{\"prefix\":\"c\"}]}",
            "f.json:2: default_upstream: \"b\" is not the prefix of an upstream; there are: a, c");
    refused("{\"default_upstream\":\"b\",\"upstreams\":[]}", "is not the prefix of an upstream");
    config_free(parse("{\"default_upstream\":\"hf\"}"));
}

Test(values, names_of_one_part)
{
    static const struct {
        const char *url, *want;
    } cases[] = {
        {"https://registry-1.docker.io", "library"},
        {"https://Registry-1.Docker.IO:443/", "library"},
        {"https://registry-1.docker.io:444", NULL},
        {"https://registry-1.docker.io.example", NULL},
        {"https://registry-1.docker.i", NULL},
        {"https://ghcr.io", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[300];
        snprintf(text, sizeof(text),
                 "{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"oci\",\"url\":\"%s\"}]}",
                 cases[i].url);
        struct config *c = parse(text);
        const char *got = c->upstreams[0].single_names;
        cr_assert_eq(got != NULL, cases[i].want != NULL, "%s", cases[i].url);
        if (got)
            cr_assert_str_eq(got, cases[i].want);
        config_free(c);
    }
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
    refused("{\"zzzzzz\":1}", "those known here are: listen, data, external_url, "
                              "default_upstream, offline, delete, log, limits, timeouts, "
                              "transfers, uploads, upstreams, access, "
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
        {"\"limits\":{\"upstream_connections\":%s}", 1, 4096, false},
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
        {"\"revalidate_timeout\":%s", 1, 60, true},
        {"\"connections_per_blob\":%s", 1, 64, true},
        {"\"breaker_failures\":%s", 1, 1000, true},
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
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"ftp\"}]}",
            "\"ftp\" is not one of huggingface|oci");
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
    c = parse("{\"immutable_tags\":[{\"repositories\":\"Team/*\",\"tags\":\"v*\"}]}");
    cr_assert(config_has_immutable_tags(c, "team/x"));
    cr_assert_not(config_has_immutable_tags(c, "team"));
    config_free(c);
    c = parse("{\"immutable_tags\":[{\"repositories\":\"**\"}]}");
    cr_assert_not(config_has_immutable_tags(c, "hf/team/x"), "under an upstream's prefix");
    config_free(c);
    c = parse("{}");
    cr_assert_not(config_has_immutable_tags(c, "team/x"));
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

Test(values, upstream_of_host)
{
    struct config *c =
        parse("{\"upstreams\":[{\"prefix\":\"hf\"},"
              "{\"prefix\":\"quay\",\"kind\":\"oci\",\"url\":\"https://quay.io\"},"
              "{\"prefix\":\"r\",\"kind\":\"oci\",\"url\":\"http://r.example:5000/x\","
              "\"hosts\":[\"Old.example\",\"quay2.io:443\"]},"
              "{\"prefix\":\"own.example\",\"kind\":\"oci\",\"url\":\"http://r.example:5000\"},"
              "{\"prefix\":\"v6\",\"kind\":\"oci\",\"url\":\"http://[::1]\"},"
              "{\"prefix\":\"hub\",\"kind\":\"oci\",\"url\":\"https://index.docker.io\"}]}");
    static const struct {
        const char *host;
        int want; /* -1 = none */
    } cases[] = {
        {"huggingface.co", 0},
        {"hf", 0},
        {"quay.io", 1},
        {"QUAY.io", 1},
        {"quay.io:443", 1},
        {"quay.io:80", -1},
        {"quay.io:", -1},
        {"quay.i", -1},
        {"quay.io.example", -1},
        {"quay", 1},
        {"https://quay.io", -1},
        {"quay.io/", -1},
        {"r.example:5000", 2}, /* the first of two */
        {"r.example", -1},
        {"r.example:5000/x", -1},
        {"old.example", 2},
        {"OLD.example", 2},
        {"old.example:443", -1},
        {"quay2.io:443", 2},
        {"quay2.io", -1},
        {"own.example", 3},
        {"[::1]", 4},
        {"[::1]:80", 4},
        {"[::1]:81", -1},
        {"::1", -1},
        {"docker.io", 5},
        {"registry-1.docker.io", 5},
        {"index.docker.io", 5},
        {"Docker.IO", 5},
        {"registry.docker.io", -1},
        {"", -1},
        {"169.254.169.254", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct config_upstream *u = config_upstream_of_host(c, cases[i].host);
        cr_assert_eq(u ? u - c->upstreams : -1, cases[i].want, "%s", cases[i].host);
    }
    config_free(c);

    /* Docker Hub by its prefix, and by `hosts` of a mirror of it. */
    c = parse(
        "{\"upstreams\":[{\"prefix\":\"docker.io\",\"kind\":\"oci\",\"url\":\"http://m:1\"}]}");
    cr_assert_eq(config_upstream_of_host(c, "registry-1.docker.io"), &c->upstreams[0]);
    config_free(c);
    c = parse("{\"upstreams\":[{\"prefix\":\"m\",\"kind\":\"oci\",\"url\":\"http://m:1\","
              "\"hosts\":[\"docker.io\"]}]}");
    cr_assert_eq(config_upstream_of_host(c, "index.docker.io"), &c->upstreams[0]);
    config_free(c);
    c = parse("{\"upstreams\":[]}");
    cr_assert_null(config_upstream_of_host(c, "docker.io"));
    config_free(c);
}

Test(values, one_name_for_a_repository)
{
    struct config *c =
        parse("{\"upstreams\":["
              "{\"prefix\":\"hf\"},"
              "{\"prefix\":\"hub\",\"kind\":\"oci\",\"url\":\"https://registry-1.docker.io\"},"
              "{\"prefix\":\"ghcr.io\",\"kind\":\"oci\",\"url\":\"https://ghcr.io\"}]}");
    static const struct {
        int in; /* -1: what the name says */
        const char *name, *want;
    } cases[] = {
        {-1, "hub/alpine", "hub/library/alpine"},
        {-1, "hub/library/alpine", "hub/library/alpine"},
        {-1, "hub/org/app", "hub/org/app"},
        {-1, "HUB/Alpine", "HUB/library/Alpine"},
        {-1, "alpine", "alpine"},
        {-1, "hub", "hub"},
        {-1, "hubble/x", "hubble/x"},
        {-1, "hf/gpt2", "hf/gpt2"},
        {1, "alpine", "hub/library/alpine"},
        {1, "hub", "hub/library/hub"},
        {1, "hub/alpine", "hub/library/alpine"},
        {1, "ghcr.io/app", "hub/ghcr.io/app"},
        {2, "app", "ghcr.io/app"},
        {0, "Org/Name", "hf/Org/Name"},
    };
    char full[64];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct config_upstream *in = cases[i].in < 0 ? NULL : &c->upstreams[cases[i].in];
        cr_assert(config_full_name(c, in, cases[i].name, full, sizeof(full)));
        cr_expect_str_eq(full, cases[i].want, "%s: %s", cases[i].name, full);
    }
    const size_t need = sizeof("hub/library/alpine");
    cr_expect(config_full_name(c, &c->upstreams[1], "alpine", full, need));
    cr_expect_not(config_full_name(c, &c->upstreams[1], "alpine", full, need - 1));
    config_free(c);
}

Test(values, offline)
{
    struct config *c =
        parse("{\"upstreams\":[{\"prefix\":\"a\",\"offline\":true},{\"prefix\":\"b\"}]}");
    cr_assert(config_is_offline(c, &c->upstreams[0]));
    cr_assert_not(config_is_offline(c, &c->upstreams[1]));
    config_free(c);
    c = parse("{\"offline\":true,\"upstreams\":[{\"prefix\":\"a\"}]}");
    cr_assert(config_is_offline(c, &c->upstreams[0]));
    config_free(c);
}
