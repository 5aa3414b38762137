/* What packager 2 adds to the documents; test_modelpack.c has what both have. */
#include <criterion/criterion.h>
#include <string.h>

#include "model/modelpack.h"
#include "model/parsers.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static struct strbuf config, manifest;
static struct digest config_digest, manifest_digest;
static struct weights weights;
static struct modelpack_file files[2];

static const struct modelpack_model model = {
    .parameters = 134515008,
    .parameters_rule = "sum of the shapes",
    .context = 8192,
    .has_cache = true,
    .token_bytes = 24576,
    .window_token_bytes = 12288,
    .window = 128,
    .sequence_bytes = 4096,
    .cache_rule = "grouped-query attention",
};

static void add_file(size_t i, const char *path, uint64_t size)
{
    files[i] =
        (struct modelpack_file){.path = path, .size = size, .kind = modelpack_kind_of(path, size)};
    cr_assert_eq(digest_of(DIGEST_SHA256, path, strlen(path), &files[i].digest, NULL), 0);
}

static struct modelpack_input input(const char *card)
{
    add_file(0, "model.safetensors", 1000);
    add_file(1, "README.md", 10);
    weights = (struct weights){.format = WEIGHTS_SAFETENSORS};
    weights_count(&weights, "BF16", 2, 300, 600, NULL);
    weights_count(&weights, "F32", 1, 10, 40, NULL);
    return (struct modelpack_input){
        .repo_id = "o/m",
        .commit = COMMIT,
        .files = files,
        .n_files = 2,
        .weights = &weights,
        .model = &model,
        .card = card,
        .card_len = card ? strlen(card) : 0,
    };
}

static void build(const struct modelpack_input *in)
{
    struct error err = ERROR_INIT;
    strbuf_reset(&config);
    strbuf_reset(&manifest);
    cr_assert_eq(modelpack_build(in, &config, &config_digest, &manifest, &manifest_digest, &err), 0,
                 "%s", err.text);
}

static void done(void)
{
    strbuf_done(&config);
    strbuf_done(&manifest);
}

TestSuite(modelpack_2, .fini = done);

static void has(const struct strbuf *b, const char *text)
{
    cr_assert_not_null(strstr(strbuf_str(b), text), "no %s in %s", text, strbuf_str(b));
}

static void lacks(const struct strbuf *b, const char *text)
{
    cr_assert_null(strstr(strbuf_str(b), text), "%s in %s", text, strbuf_str(b));
}

Test(modelpack_2, the_card)
{
    struct modelpack_input in =
        input("---\nlicense: [apache-2.0, other]\nlicense_name: own\nlanguage: [en, zh, eng]\n"
              "pipeline_tag: image-text-to-text\ntags: [function-calling, reasoning]\n---\n");
    build(&in);
    has(&config, "{\"config\":{\"capabilities\":{\"inputTypes\":[\"image\",\"text\"],"
                 "\"languages\":[\"en\",\"zh\"],\"outputTypes\":[\"text\"],\"reasoning\":true,"
                 "\"toolUsage\":true},\"format\":\"safetensors\",\"paramSize\":\"134.5M\","
                 "\"precision\":\"bfloat16,float32\"},\"descriptor\":{\"licenses\":[\"Apache-2.0\","
                 "\"LicenseRef-own\"],\"name\":\"m\",");
}

Test(modelpack_2, what_schedulers_read)
{
    struct modelpack_input in = input(NULL);
    build(&in);
    has(&manifest, "\"org.weighbridge.hub.repository\":\"o/m\","
                   "\"org.weighbridge.model.context-length\":\"8192\","
                   "\"org.weighbridge.model.dtypes+json\":\"{\\\"BF16\\\":{\\\"tensors\\\":2,"
                   "\\\"elements\\\":300,\\\"bytes\\\":600},\\\"F32\\\":{\\\"tensors\\\":1,"
                   "\\\"elements\\\":10,\\\"bytes\\\":40}}\","
                   "\"org.weighbridge.model.kv-bytes-per-token\":\"36864\","
                   "\"org.weighbridge.model.kv-cache+json\":\"{\\\"type\\\":\\\"f16\\\","
                   "\\\"tokenBytes\\\":24576,\\\"windowTokenBytes\\\":12288,\\\"window\\\":128,"
                   "\\\"sequenceBytes\\\":4096,\\\"rule\\\":\\\"grouped-query attention\\\"}\","
                   "\"org.weighbridge.model.parameters\":\"134515008\","
                   "\"org.weighbridge.model.parameters-rule\":\"sum of the shapes\","
                   "\"org.weighbridge.model.tensor-bytes\":\"640\","
                   "\"org.weighbridge.model.tensors\":\"3\","
                   "\"org.weighbridge.packager\":\"2\"}}");
}

Test(modelpack_2, what_is_not_known_is_left_out)
{
    struct modelpack_input in = input("# no front matter\n");
    in.model = NULL;
    in.weights = NULL;
    build(&in);
    lacks(&manifest, "org.weighbridge.model.");
    lacks(&config, "capabilities");
    lacks(&config, "licenses");
    lacks(&config, "paramSize");
    lacks(&manifest, "uninspected");
}

Test(modelpack_2, a_card_that_can_not_be_read)
{
    struct modelpack_input in = input("---\nlicense: mit\n");
    in.config_json = "[]";
    in.config_json_len = 2;
    build(&in);
    has(&manifest,
        "\"org.weighbridge.uninspected.001\":\"README.md: its front matter at byte 4 has no "
        "end\",\"org.weighbridge.uninspected.002\":\"config.json: the configuration is "
        "no JSON object at byte 0\"");
    lacks(&config, "licenses");
}

Test(modelpack_2, numbers_that_python_writes)
{
    static const char text[] = "{\"model_type\":\"mamba2\",\"time_step_limit\":[0.0,Infinity]}";
    struct modelpack_input in = input(NULL);
    in.config_json = text;
    in.config_json_len = strlen(text);
    build(&in);
    has(&config, "\"family\":\"mamba2\"");
    lacks(&manifest, "uninspected");
    in.packager = 1;
    build(&in);
    has(&manifest, "config.json: it is not a JSON object");
}

Test(modelpack_2, packager_1_is_as_it_was)
{
    struct modelpack_input in = input("---\nlicense: mit\n---\n");
    in.packager = 1;
    build(&in);
    lacks(&config, "licenses");
    lacks(&manifest, "org.weighbridge.model.");
    has(&manifest, "\"org.weighbridge.packager\":\"1\"");
    in.packager = MODELPACK_PACKAGERS + 1;
    cr_assert_eq(modelpack_build(&in, &config, &config_digest, &manifest, &manifest_digest, NULL),
                 -1);
}

/* What packager 2 gives for this input, for ever. */
Test(modelpack_2, golden_digests)
{
    struct modelpack_input in = input("---\nlicense: mit\npipeline_tag: text-generation\n---\n");
    char text[DIGEST_TEXT_MAX];
    build(&in);
    cr_assert_str_eq(digest_format(&config_digest, text),
                     "sha256:3351e5251f8bccdcd5f8734f54ec7cd80e3f514708813102a4dbe953eeb6f87b");
    cr_assert_str_eq(digest_format(&manifest_digest, text),
                     "sha256:b5b7d8bdbc75ab1c231ea0d169af5e4ece5f8609e7415e76a2ecbea85b5d70ba");
}
