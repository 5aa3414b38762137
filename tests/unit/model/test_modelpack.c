#include <criterion/criterion.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/modelpack_config.h"
#include "model/parsers.h"
#include "tests/unit/model/golden.h"

#define OUR_CONFIG_DIGEST "sha256:008c7fccb3085947fd8dbbeeb802b22025494e01db0a24dddececd80e3539d0c"
#define OUR_MANIFEST_DIGEST                                                                        \
    "sha256:8891fa75e65ef8a0f2584b766216c35d70342867e550eb238e143af722974e6b"
#define COMMIT "0000000000000000000000000000000000000000"

struct built {
    struct strbuf config, manifest;
    struct digest config_digest, manifest_digest;
};
#define _cleanup_built_ _cleanup_(built_done)

static void built_done(struct built *b)
{
    strbuf_done(&b->config);
    strbuf_done(&b->manifest);
}

static int build(const struct modelpack_input *in, struct built *b, struct error *err)
{
    return modelpack_build(in, &b->config, &b->config_digest, &b->manifest, &b->manifest_digest,
                           err);
}

static void must_build(const struct modelpack_input *in, struct built *b)
{
    struct error err = ERROR_INIT;
    *b = (struct built){0};
    cr_assert_eq(build(in, b, &err), 0, "%s", err.text);
}

static struct modelpack_file file(const char *path, uint64_t size, const char *hex)
{
    struct modelpack_file f = {path, size, {0}, modelpack_kind_of(path, size)};
    if (hex)
        cr_assert_eq(digest_parse_hex(DIGEST_SHA256, hex, &f.digest, NULL), 0);
    else
        cr_assert_eq(digest_of(DIGEST_SHA256, path, strlen(path), &f.digest, NULL), 0);
    return f;
}

static struct modelpack_file golden_files[3];
static struct weights golden_weights;

static struct modelpack_input golden_input(void)
{
    golden_files[0] =
        file("config.json", 23, "013e93c1cc397541961e670f84ea0d42784536cab4e9d3c5d5b13589f53ab684");
    golden_files[1] = file("tiny-F32.gguf", 224,
                           "4f1311d5941da14dcf4894ea8772f962a9d4b6a89b60e64fad1ee9fa69aedc70");
    golden_files[2] =
        file("README.md", 7, "da0f266deed7c2c66f4708aa801d1ecd4aa289d2ee87e9c4525b30c8cba9ac88");
    golden_weights = (struct weights){.format = WEIGHTS_GGUF, .architecture = "llama"};
    cr_assert_eq(weights_count(&golden_weights, "F32", 1, 8, 32, NULL), 0);
    return (struct modelpack_input){
        .packager = 1,
        .repo_id = "o/tiny",
        .commit = COMMIT,
        .files = golden_files,
        .n_files = 3,
        .weights = &golden_weights,
        .config_json = GOLDEN_CONFIG_JSON,
        .config_json_len = strlen(GOLDEN_CONFIG_JSON),
    };
}

/* The text between two marks of the document (the marks not included). */
static void between(const struct strbuf *b, const char *from, const char *to, struct strbuf *ret)
{
    const char *p = strstr(strbuf_str(b), from);
    cr_assert_not_null(p, "no %s in %s", from, strbuf_str(b));
    p += strlen(from);
    const char *end = strstr(p, to);
    cr_assert_not_null(end);
    strbuf_put(ret, p, (size_t)(end - p));
}

Test(modelpack, the_golden_documents)
{
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    _cleanup_strbuf_ struct strbuf layers = STRBUF_INIT, config = STRBUF_INIT;
    const char *vendor = ",\"vendor\":\"o\"";
    must_build(&in, &b);
    between(&b.manifest, "\"size\":498},", ",\"annotations\":{\"org.weighbridge", &layers);
    cr_assert_str_eq(strbuf_str(&layers), GOLDEN_LAYERS);
    char *at = strstr(b.config.data, vendor);
    cr_assert_not_null(at);
    strbuf_put(&config, b.config.data, (size_t)(at - b.config.data));
    strbuf_puts(&config, at + strlen(vendor));
    cr_assert_str_eq(strbuf_str(&config), GOLDEN_CONFIG);
}

Test(modelpack, a_bare_name_gives_the_golden_config_to_the_byte)
{
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    char text[DIGEST_TEXT_MAX];
    in.repo_id = "tiny";
    must_build(&in, &b);
    _cleanup_strbuf_ struct strbuf url = STRBUF_INIT;
    between(&b.config, "\"sourceURL\":\"", "\"", &url);
    cr_assert_str_eq(strbuf_str(&url), "https://huggingface.co/tiny");
    cr_assert_null(strstr(b.config.data, "vendor"));
    cr_assert_not_null(strstr(b.manifest.data, digest_format(&b.config_digest, text)));
}

/* Ours, whole: what packager 1 gives for this commit, for ever. */
Test(modelpack, our_own_golden_manifest)
{
    static const char head[] =
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
        "\"artifactType\":\"application/vnd.cncf.model.manifest.v1+json\","
        "\"config\":{\"mediaType\":\"application/vnd.cncf.model.config.v1+json\","
        "\"digest\":\"" OUR_CONFIG_DIGEST "\",\"size\":498},";
    static const char tail[] =
        ",\"annotations\":{"
        "\"org.weighbridge.hub.commit\":\"" COMMIT "\","
        "\"org.weighbridge.hub.repository\":\"o/tiny\","
        "\"org.weighbridge.packager\":\"1\","
        "\"org.weighbridge.selection\":\"F32\","
        "\"org.weighbridge.uninspected.001\":\"a.gguf: it is \\u003cshort\\u003e\","
        "\"org.weighbridge.uninspected.002\":\"b.gguf: \\ufffd\"}}";
    const struct modelpack_note notes[] = {{"b.gguf", "\xff"}, {"a.gguf", "it is <short>"}};
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    char text[DIGEST_TEXT_MAX];
    in.quant = "f32";
    in.notes = notes;
    in.n_notes = 2;
    must_build(&in, &b);
    _cleanup_strbuf_ struct strbuf expected = STRBUF_INIT;
    strbuf_printf(&expected, "%s%s%s", head, GOLDEN_LAYERS, tail);
    cr_assert_str_eq(b.manifest.data, strbuf_str(&expected));
    cr_assert_str_eq(digest_format(&b.config_digest, text), OUR_CONFIG_DIGEST);
    cr_assert_str_eq(digest_format(&b.manifest_digest, text), OUR_MANIFEST_DIGEST);
}

Test(modelpack, the_order_of_the_input_does_not_matter)
{
    static char paths[40][32];
    struct modelpack_file files[40];
    struct modelpack_note notes[3] = {{"x", "1"}, {"y", "2"}, {"x", "0"}};
    struct modelpack_input in = {.packager = 1,
                                 .repo_id = "a/b",
                                 .commit = COMMIT,
                                 .files = files,
                                 .n_files = 40,
                                 .notes = notes,
                                 .n_notes = 3};
    static const char *const extensions[] = {"gguf", "json", "md", "py"};
    _cleanup_built_ struct built first, again;
    unsigned seed = 1;
    for (int i = 0; i < 40; i++) {
        snprintf(paths[i], sizeof(paths[i]), "d%d/f%d.%s", i % 3, i, extensions[i % 4]);
        files[i] = file(paths[i], (uint64_t)i, NULL);
    }
    must_build(&in, &first);
    for (int round = 0; round < 20; round++) {
        for (int i = 39; i > 0; i--) {
            seed = seed * 1103515245 + 12345;
            unsigned k = (seed >> 16) % (unsigned)(i + 1);
            struct modelpack_file f = files[i];
            files[i] = files[k];
            files[k] = f;
        }
        struct modelpack_note note = notes[0];
        notes[0] = notes[round % 3];
        notes[round % 3] = note;
        must_build(&in, &again);
        cr_assert_str_eq(first.manifest.data, again.manifest.data);
        cr_assert_str_eq(first.config.data, again.config.data);
        cr_assert(digest_equal(&first.manifest_digest, &again.manifest_digest));
        built_done(&again);
    }
    again = (struct built){0};
}

static void write_file(const char *folder, const char *name, const struct strbuf *b)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    _cleanup_fclose_ FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(b->data, 1, b->len, f) == b->len);
}

/* By the schema and the rules of the specification, written down a second time in Python. */
Test(modelpack, the_documents_follow_the_specification)
{
    char folder[] = "/tmp/modelpack-XXXXXX", command[1024];
    const char *const json = "{\"model_type\":\"llama\",\"architectures\":[\"L\"],"
                             "\"quantization_config\":{\"quant_method\":\"gptq\"}}";
    struct weights w = {.format = WEIGHTS_SAFETENSORS};
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    if (system("python3 -c pass >/dev/null 2>&1") != 0)
        cr_skip("no python3");
    cr_assert_eq(weights_count(&w, "F16", 1, 123456789, 2, NULL), 0);
    cr_assert_eq(weights_count(&w, "I32", 1, 5, 2, NULL), 0);
    in.weights = &w;
    in.config_json = json;
    in.config_json_len = strlen(json);
    must_build(&in, &b);
    cr_assert_not_null(mkdtemp(folder));
    write_file(folder, "config.json", &b.config);
    write_file(folder, "manifest.json", &b.manifest);
    const char *script = WB_SOURCE_DIR "/tests/unit/model/check_schema.py";
    snprintf(command, sizeof(command), "python3 %s && python3 %s %s/*.json", script, script,
             folder);
    int rc = system(command);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(rc, 0);
}

/* ---- what the config says ---- */

struct expected {
    const char *architecture, *family, *format, *size, *precision, *quantization;
};

static void member_is(const struct json *object, const char *key, const char *expected)
{
    const char *text = json_str(json_get(object, key));
    cr_expect_eq(text == NULL, expected == NULL, "%s: %s, not %s", key, text ? text : "absent",
                 expected ? expected : "absent");
    if (text && expected)
        cr_expect_str_eq(text, expected);
}

static void says(const char *json, const struct weights *w, const char *quant,
                 struct expected expected)
{
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    _cleanup_json_ struct json *root = NULL;
    in.config_json = json;
    in.config_json_len = json ? strlen(json) : 0;
    in.weights = w;
    in.quant = quant;
    must_build(&in, &b);
    cr_assert_eq(json_parse(b.config.data, b.config.len, &root, NULL), 0);
    const struct json *config = json_get(root, "config");
    member_is(config, "architecture", expected.architecture);
    member_is(json_get(root, "descriptor"), "family", expected.family);
    member_is(config, "format", expected.format);
    member_is(config, "paramSize", expected.size);
    member_is(config, "precision", expected.precision);
    member_is(config, "quantization", expected.quantization);
}

static struct weights with_type(enum weights_format format, const char *type, uint64_t elements)
{
    struct weights w = {.format = format};
    cr_assert_eq(weights_count(&w, type, 1, elements, elements, NULL), 0);
    return w;
}

Test(modelpack, facts_of_config_json)
{
    const struct weights st = {.format = WEIGHTS_SAFETENSORS};
    says("{}", &st, NULL, (struct expected){.format = "safetensors"});
    says("{\"model_type\":\"llama\",\"transformers_version\":\"4.1\"}", &st, NULL,
         (struct expected){
             .architecture = "transformer", .family = "llama", .format = "safetensors"});
    says("{\"architectures\":[\"X\"],\"text_config\":{\"model_type\":\"gemma3_text\"}}", &st, NULL,
         (struct expected){
             .architecture = "transformer", .family = "gemma3_text", .format = "safetensors"});
    says("{\"thinker_config\":{\"text_config\":{\"model_type\":\"q\"}},\"model_type\":7}", &st,
         NULL, (struct expected){.family = "q", .format = "safetensors"});
    says("{\"architectures\":[],\"model_type\":\"\"}", &st, NULL,
         (struct expected){.format = "safetensors"});
    says("{\"architectures\":[\"M\"],\"model_type\":\"mamba\"}", &st, NULL,
         (struct expected){.family = "mamba", .format = "safetensors"});
    says("{\"quantization_config\":{\"quant_method\":\"awq\"}}", &st, NULL,
         (struct expected){.format = "safetensors", .quantization = "awq"});
    says("{\"text_config\":{\"quantization_config\":{\"quant_method\":\"fp8\"}}}", &st, NULL,
         (struct expected){.format = "safetensors", .quantization = "fp8"});
    says(NULL, NULL, NULL, (struct expected){.format = "gguf"}); /* by the files' names */
}

Test(modelpack, facts_of_weights)
{
    struct weights st = with_type(WEIGHTS_SAFETENSORS, "BF16", 134515008);
    says(NULL, &st, NULL,
         (struct expected){.format = "safetensors", .size = "134.5M", .precision = "bfloat16"});
    cr_assert_eq(weights_count(&st, "F8_E8M0", 1, 10, 10, NULL), 0);
    cr_assert_eq(weights_count(&st, "I32", 1, 10, 40, NULL), 0);
    cr_assert_eq(weights_count(&st, "F32", 1, 10, 40, NULL), 0);
    says(NULL, &st, NULL,
         (struct expected){
             .format = "safetensors", .size = "134.5M", .precision = "bfloat16,float32,int32"});
    struct weights gguf = with_type(WEIGHTS_GGUF, "Q8_0", 7000000000);
    cr_assert_eq(weights_count(&gguf, "F32", 1, 10, 40, NULL), 0);
    strcpy(gguf.architecture, "qwen2");
    gguf.has_file_type = true;
    gguf.file_type = 7;
    says(NULL, &gguf, NULL,
         (struct expected){.architecture = "transformer",
                           .family = "qwen2",
                           .format = "gguf",
                           .size = "7.0B",
                           .quantization = "Q8_0"});
    says("{\"model_type\":\"x\"}", &gguf, "ud-q4_k_xl",
         (struct expected){.architecture = "transformer",
                           .family = "x",
                           .format = "gguf",
                           .size = "7.0B",
                           .quantization = "UD-Q4_K_XL"});
    struct weights mamba = with_type(WEIGHTS_GGUF, "F16", 5);
    strcpy(mamba.architecture, "mamba");
    mamba.has_file_type = true;
    mamba.file_type = 1;
    says(NULL, &mamba, "F16",
         (struct expected){.family = "mamba", .format = "gguf", .precision = "float16"});
}

Test(modelpack, a_broken_config_json_is_noted)
{
    const char *broken[] = {"{", "[]", "\xff", "{\"a\":1,\"a\":2}", "", "null"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct modelpack_input in = golden_input();
        _cleanup_built_ struct built b;
        in.config_json = broken[i];
        in.config_json_len = strlen(broken[i]);
        must_build(&in, &b);
        cr_assert_not_null(strstr(b.manifest.data, "\"org.weighbridge.uninspected.001\":"
                                                   "\"config.json: it is not a JSON object\""));
    }
}

Test(modelpack, parameters_are_rounded_half_up_to_one_decimal)
{
    static const struct {
        uint64_t n;
        const char *text;
    } table[] = {
        {0, ""},
        {999, ""},
        {1000, "1.0K"},
        {1049, "1.0K"},
        {1050, "1.1K"},
        {999949, "999.9K"},
        {999950, "1.0M"},
        {1000000, "1.0M"},
        {14067712, "14.1M"},
        {134515008, "134.5M"},
        {999949999, "999.9M"},
        {999950000, "1.0B"},
        {6738415616, "6.7B"},
        {999950000000, "1.0T"},
        {1000000000000, "1.0T"},
        {999949999999999, "999.9T"},
        {1000000000000000, "1.0Q"},
        {UINT64_MAX, "18446.7Q"},
    };
    char buf[MODELPACK_SIZE_MAX];
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        cr_expect_str_eq(modelpack_param_size(table[i].n, buf), table[i].text, "%s", buf);
}

static void refused(const char *path, enum err_code code, const char *why)
{
    struct modelpack_input in = golden_input();
    struct built b = {0};
    struct error err = ERROR_INIT;
    golden_files[1].path = path;
    cr_assert_lt(build(&in, &b, &err), 0, "%s", path);
    cr_assert_eq(err.code, code);
    cr_assert_not_null(strstr(err.text, why), "%s: %s", path, err.text);
    cr_assert(!b.config.data && !b.manifest.data);
}

Test(modelpack, paths_that_no_client_should_join_are_refused)
{
    refused("config.json", ERR_INVALID, "config.json is there twice");
    refused("", ERR_INVALID, "empty");
    refused("/etc/passwd", ERR_INVALID, "leads out");
    refused("a/../../b", ERR_INVALID, "leads out");
    refused("..", ERR_INVALID, "leads out");
    refused("a/./b", ERR_INVALID, "leads out");
    refused("a//b", ERR_INVALID, "leads out");
    refused("a/", ERR_INVALID, "leads out");
    refused("a\\b", ERR_INVALID, "backslash");
    refused("a\nb", ERR_INVALID, "control");
    refused("a\xff", ERR_INVALID, "UTF-8");
}

Test(modelpack, no_files_and_no_digest)
{
    struct modelpack_input in = golden_input();
    struct built b = {0};
    struct error err = ERROR_INIT;
    golden_files[1].digest.alg = DIGEST_SHA512;
    cr_assert_lt(build(&in, &b, &err), 0);
    cr_assert_eq(err.code, ERR_INTERNAL);
    in.n_files = 0;
    cr_assert_lt(build(&in, &b, &err), 0);
    cr_assert_eq(err.code, ERR_INVALID);
}

Test(modelpack, paths_that_are_odd_and_legal)
{
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    golden_files[1].path = "a b/<\"&\xe2\x80\xa8>..json";
    must_build(&in, &b);
    cr_assert_not_null(strstr(b.manifest.data, "\"org.cncf.model.filepath\":"
                                               "\"a b/\\u003c\\\"\\u0026\\u2028\\u003e..json\""));
    cr_assert_not_null(strstr(b.manifest.data, "{\\\"name\\\":\\\"\\\\u003c\\\\\\\"\\\\u0026"));
}

Test(modelpack, a_manifest_that_clients_refuse)
{
    struct modelpack_input in = golden_input();
    struct built b = {0};
    struct error err = ERROR_INIT;
    const size_t n = 12000;
    _cleanup_free_ struct modelpack_file *files = calloc(n, sizeof(*files));
    _cleanup_free_ char(*paths)[16] = calloc(n, sizeof(*paths));
    for (size_t i = 0; i < n; i++) {
        snprintf(paths[i], sizeof(paths[i]), "f%zu.json", i);
        files[i] = file(paths[i], 1, NULL);
    }
    in.files = files;
    in.n_files = n;
    cr_assert_lt(build(&in, &b, &err), 0);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    cr_assert_not_null(strstr(err.text, "include and exclude"));
}

Test(modelpack, many_notes_are_counted)
{
    static struct modelpack_note notes[150];
    static char paths[150][16];
    struct modelpack_input in = golden_input();
    _cleanup_built_ struct built b;
    for (int i = 0; i < 150; i++) {
        snprintf(paths[i], sizeof(paths[i]), "f%03d", i);
        notes[i] = (struct modelpack_note){paths[i], "broken"};
    }
    in.notes = notes;
    in.n_notes = 150;
    must_build(&in, &b);
    cr_assert_not_null(strstr(b.manifest.data, "uninspected.100\":\"f099: broken\","
                                               "\"org.weighbridge.uninspected.more\":\"50\"}}"));
}
