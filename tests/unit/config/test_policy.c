/* What policies let through, and what they say when they do not. */
#include "config_text.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "89abcdef0123456789abcdef0123456701234567"

Test(policy, values)
{
    struct config *c = parse("{\"policies\":[{\"repositories\":\"hf/Org/*\"},"
                             "{\"repositories\":\"**\",\"deny\":true,\"pinned_only\":true,"
                             "\"revisions\":[\"v*\",\"main\"],\"formats\":[\"safetensors\","
                             "\"gguf\",\"pickle\",\"onnx\",\"numpy\",\"other\"],"
                             "\"max_file\":9007199254740991}]}");
    cr_assert_eq(c->n_policies, 2);
    const struct config_policy *p = &c->policies[0];
    cr_assert_str_eq(p->repositories, "hf/Org/*");
    cr_assert(!p->deny && !p->pinned_only && p->max_file == 0);
    cr_assert(p->revisions.n == 0 && p->formats.n == 0);
    p = &c->policies[1];
    cr_assert(p->deny && p->pinned_only && p->max_file == 9007199254740991u);
    cr_assert(p->revisions.n == 2 && p->formats.n == 6);
    cr_assert_str_eq(p->revisions.items[1], "main");
    cr_assert_str_eq(p->formats.items[5], "other");
    config_free(c);
    c = parse("{\"policies\":[]}");
    cr_assert_eq(c->n_policies, 0);
    config_free(c);
    c = parse("{\"upstreams\":[{\"prefix\":\"hf\"}]}");
    cr_assert_eq(c->upstreams[0].credentials, CREDENTIALS_OWN);
    cr_assert_eq(c->upstreams[0].auth_ttl_s, 60);
    config_free(c);
    c = parse("{\"upstreams\":[{\"prefix\":\"hf\",\"credentials\":\"forward\","
              "\"auth_ttl\":\"1h\"}]}");
    cr_assert_eq(c->upstreams[0].credentials, CREDENTIALS_FORWARD);
    cr_assert_eq(c->upstreams[0].auth_ttl_s, 3600);
    config_free(c);
}

Test(policy, refusals)
{
    refused("{\"policies\":{}}", "policies: must be a list of objects");
    refused("{\"policies\":[{}]}", "policies[0]: has no \"repositories\"");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"formats\":[\"gguf\",\"GGUF\"]}]}",
            "policies[0].formats[1]: \"GGUF\" is not one of safetensors|gguf|pickle|onnx|numpy|");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"formats\":\"gguf\"}]}",
            "policies[0].formats: must be a list of strings");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"revisions\":[\"\"]}]}",
            "policies[0].revisions[0]: must not be empty");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"max_file\":-1}]}",
            "policies[0].max_file: must be a whole number from 0 to");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"deny\":\"yes\"}]}",
            "policies[0].deny: must be true or false");
    refused("{\"policies\":[{\"repositories\":\"hf/*\",\"revision\":[]}]}",
            "policies[0].revision: unknown key; did you mean \"revisions\"?");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"credentials\":\"mine\"}]}",
            "upstreams[0].credentials: \"mine\" is not one of own|forward");
    refused("{\"upstreams\":[{\"prefix\":\"a\",\"auth_ttl\":\"2h\"}]}",
            "upstreams[0].auth_ttl: must be from 0s to 3600s");
    static const char *const of_the_hub[] = {"\"credentials\":\"forward\"", "\"auth_ttl\":1",
                                             "\"token_files\":{}"};
    for (size_t i = 0; i < ARRAY_LEN(of_the_hub); i++) {
        char text[200];
        snprintf(text, sizeof(text),
                 "{\"upstreams\":[{\"prefix\":\"a\",\"kind\":\"oci\",\"url\":\"http://a\",%s}]}",
                 of_the_hub[i]);
        refused(text, "is for upstreams of the kind \"huggingface\"");
    }
}

/* Whoever leaves the prefix out would believe that something is forbidden. */
Test(policy, one_that_matches_nothing)
{
    static const char *const bad[] = {"acme/*", "hf", "h", "hfx/*", "docker.io/*", "hg*"};
    static const char *const good[] = {"**",       "*/acme/*", "hf/*",          "HF/Acme/*", "h*",
                                       "[h]f/a/b", "?f/*",     "hf/datasets/*", "hf*"};
    char text[200];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(text, sizeof(text), "{\"policies\":[{\"repositories\":\"%s\"}]}", bad[i]);
        refused(text, "f.json:1: policies[0].repositories: ");
        refused(text, "their names begin with: \"hf/\"");
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        snprintf(text, sizeof(text), "{\"policies\":[{\"repositories\":\"%s\"}]}", good[i]);
        config_free(parse(text));
    }
    refused("{\"upstreams\":[],\"policies\":[{\"repositories\":\"**\"}]}", "(there is none)");
    refused("{\"upstreams\":[{\"prefix\":\"a/b\"},{\"prefix\":\"c\"}],"
            "\"policies\":[{\"repositories\":\"c/x\"},{\"repositories\":\"a/x\"}]}",
            "policies[1].repositories: \"a/x\" matches no repository of an upstream of the kind "
            "\"huggingface\"; their names begin with: \"a/b/\", \"c/\"");
}

static long index_of(const struct config *c, const char *repository)
{
    const struct config_policy *p = config_policy_of(c, repository);
    return p ? p - c->policies : -1;
}

Test(policy, the_first_that_matches)
{
    struct config *c = parse("{\"policies\":[{\"repositories\":\"hf/Acme/secret-*\"},"
                             "{\"repositories\":\"hf/acme/*\"},"
                             "{\"repositories\":\"HF/datasets/*\"},{\"repositories\":\"**\"}]}");
    cr_assert_eq(index_of(c, "hf/acme/secret-1"), 0, "in any case");
    cr_assert_eq(index_of(c, "hf/acme/open"), 1);
    cr_assert_eq(index_of(c, "hf/datasets/org/name"), 2);
    cr_assert_eq(index_of(c, "hf/gpt2"), 3);
    cr_assert_eq(index_of(c, "team/model"), -1, "not of a Hub");
    cr_assert_eq(index_of(c, "docker.io/library/redis"), -1);
    cr_assert_eq(index_of(c, "hfx/model"), -1);
    config_free(c);
    c = parse("{\"policies\":[{\"repositories\":\"hf/a/*\"}]}");
    cr_assert_eq(index_of(c, "hf/b/c"), -1, "none");
    cr_assert_eq(config_policy_check(c, "hf/b/c", "main", NULL), 0);
    cr_assert_eq(config_policy_check_file(c, "hf/b/c", "x.bin", "pickle", 1, NULL), 0);
    config_free(c);
    c = parse("{}");
    cr_assert_null(config_policy_of(c, "hf/b/c"));
    config_free(c);
}

static void allows(const struct config *c, const char *repository, const char *revision)
{
    struct error err = ERROR_INIT;
    cr_assert_eq(config_policy_check(c, repository, revision, &err), 0, "%s", err.text);
}

static void denies(const struct config *c, const char *repository, const char *revision,
                   const char *want)
{
    struct error err = ERROR_INIT;
    cr_assert_lt(config_policy_check(c, repository, revision, &err), 0, "%s", revision);
    cr_assert_eq(err.code, ERR_DENIED);
    cr_assert_str_eq(err.text, want);
}

Test(policy, revisions)
{
    struct config *c =
        parse("{\"policies\":[{\"repositories\":\"hf/no/*\",\"deny\":true},"
              "{\"repositories\":\"hf/Acme/*\",\"pinned_only\":true},"
              "{\"repositories\":\"hf/one/*\",\"revisions\":[\"" COMMIT "\"]},"
              "{\"repositories\":\"hf/some/*\",\"revisions\":[\"main\",\"v*\",\"refs/pr/*\"]},"
              "{\"repositories\":\"hf/both/*\",\"pinned_only\":true,\"revisions\":[\"0*\"]}]}");
    denies(c, "hf/no/model", NULL,
           "hf/no/model: policies[0] (\"hf/no/*\") allows nothing: ask for another repository, or "
           "whoever runs this server for a policy that allows it");
    cr_assert_lt(config_policy_check(c, "hf/no/model", COMMIT, NULL), 0);

    denies(c, "hf/acme/model", "main",
           "hf/acme/model: policies[1] (\"hf/Acme/*\") allows only pinned revisions: ask for a "
           "40-hex commit instead of \"main\"");
    denies(c, "hf/acme/model", "",
           "hf/acme/model: policies[1] (\"hf/Acme/*\") allows only pinned revisions: ask for a "
           "40-hex commit instead of \"HEAD\"");
    cr_assert_lt(config_policy_check(c, "hf/acme/model", "0123456", NULL), 0, "a short one");
    cr_assert_lt(config_policy_check(c, "hf/acme/model", COMMIT "0", NULL), 0);
    allows(c, "hf/acme/model", COMMIT);
    allows(c, "hf/acme/model", NULL);

    denies(c, "hf/one/model", "main",
           "hf/one/model: policies[2] (\"hf/one/*\") allows no revision \"main\": ask for " COMMIT);
    cr_assert_lt(config_policy_check(c, "hf/one/model", OTHER, NULL), 0);
    allows(c, "hf/one/model", COMMIT);

    denies(c, "hf/some/model", "Main",
           "hf/some/model: policies[3] (\"hf/some/*\") allows no revision \"Main\": ask for main, "
           "v* or refs/pr/*");
    allows(c, "hf/some/model", "main");
    allows(c, "hf/some/model", "v1.2/x");
    allows(c, "hf/some/model", "refs/pr/7");
    cr_assert_lt(config_policy_check(c, "hf/some/model", COMMIT, NULL), 0);

    allows(c, "hf/both/model", COMMIT);
    cr_assert_lt(config_policy_check(c, "hf/both/model", OTHER, NULL), 0);
    cr_assert_lt(config_policy_check(c, "hf/both/model", "0", NULL), 0);
    allows(c, "team/model", "main");
    config_free(c);
}

static void check_file(const struct config *c, const char *path, const char *format, uint64_t size,
                       const char *want)
{
    struct error err = ERROR_INIT;
    int r = config_policy_check_file(c, "hf/org/model", path, format, size, &err);
    if (!want) {
        cr_assert_eq(r, 0, "%s", err.text);
        return;
    }
    cr_assert_lt(r, 0, "%s", path);
    cr_assert_eq(err.code, ERR_DENIED);
    cr_assert_str_eq(err.text, want);
}

Test(policy, files)
{
    struct config *c = parse("{\"policies\":[{\"repositories\":\"hf/*\","
                             "\"formats\":[\"safetensors\",\"gguf\"],\"max_file\":1000}]}");
    check_file(c, "a/model.safetensors", "safetensors", 1000, NULL);
    check_file(c, "config.json", NULL, 1000, NULL);
    check_file(
        c, "pytorch_model.bin", "pickle", 10,
        "hf/org/model: policies[0] (\"hf/*\") allows no weight file of the format pickle, as "
        "pytorch_model.bin is: ask for a file of the format safetensors or gguf");
    check_file(c, "w.h5", "other", 10,
               "hf/org/model: policies[0] (\"hf/*\") allows no weight file of the format other, as "
               "w.h5 is: ask for a file of the format safetensors or gguf");
    check_file(c, "a.md", NULL, 1001,
               "hf/org/model: policies[0] (\"hf/*\") allows no file over 1000 bytes, and a.md has "
               "1001: ask for a smaller one, or whoever runs this server for a larger max_file");
    config_free(c);
    c = parse("{\"policies\":[{\"repositories\":\"hf/*\",\"max_file\":0}]}");
    check_file(c, "model.bin", "pickle", UINT64_MAX, NULL);
    config_free(c);
    c = parse("{\"policies\":[{\"repositories\":\"hf/*\",\"deny\":true}]}");
    cr_assert_lt(config_policy_check_file(c, "hf/org/model", "x", NULL, 0, NULL), 0);
    config_free(c);
}

/* Whatever a client asks for, the text ends in time and begins with what matters. */
Test(policy, long_names)
{
    char text[60000] = "{\"policies\":[{\"repositories\":\"hf/*\",\"revisions\":[\"main\"";
    for (int i = 0; i < 200; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",\"branch-number-%d\"", i);
    strcat(text, "]}]}");
    struct config *c = parse(text);
    struct error err = ERROR_INIT;
    char revision[5000];
    memset(revision, 'r', sizeof(revision));
    revision[sizeof(revision) - 1] = '\0';
    cr_assert_lt(config_policy_check(c, "hf/org/model", revision, &err), 0);
    cr_assert(strstr(err.text, "policies[0] (\"hf/*\") allows no revision \"rrrr"), "%s", err.text);
    cr_assert(strstr(err.text, "ask for main, branch-number-0, "), "%s", err.text);
    cr_assert_str_eq(err.text + strlen(err.text) - 5, ", ...");
    config_free(c);
}
