/* What a pushed manifest says, and everything that is refused. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/resource.h>

#include "base/strbuf.h"
#include "model/oci_manifest.h"
#include "tests/unit/model/golden.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" HEX
#define DIGEST512 "sha512:" HEX HEX
#define DESCRIPTOR(type) "{\"mediaType\":\"" type "\",\"digest\":\"" DIGEST "\",\"size\":7}"
#define CONFIG "\"config\":" DESCRIPTOR("c/c")
#define LAYERS "\"layers\":[" DESCRIPTOR("l/l") "]"
#define V2 "\"schemaVersion\":2"
#define IMAGE(more) "{" V2 "," CONFIG "," LAYERS more "}"
#define INDEX(more) "{" V2 ",\"manifests\":[" DESCRIPTOR(OCI_IMAGE_TYPE) "]" more "}"

/* A copy of exactly these bytes, so that a sanitizer sees a read beyond them. */
static int parse_n(const char *type, const void *text, size_t len, struct oci_manifest *m,
                   struct error *err)
{
    _cleanup_free_ char *copy = malloc(len ? len : 1);
    cr_assert_not_null(copy);
    memcpy(copy, text, len);
    *err = ERROR_INIT;
    *m = (struct oci_manifest){0};
    int rc = oci_manifest_parse(type, copy, len, m, err);
    if (rc == 0)
        cr_assert(!m->annotations ||
                  (m->annotations >= copy && m->annotations + m->annotations_len <= copy + len));
    else
        cr_assert(err->code != ERR_NONE && err->text[0] && !strchr(err->text, '\n') && !m->parts &&
                  !m->storage);
    return rc;
}

static struct oci_manifest parse(const char *type, const char *text)
{
    struct oci_manifest m;
    struct error err;
    cr_assert_eq(parse_n(type, text, strlen(text), &m, &err), 0, "%s: %s", text, err.text);
    return m;
}

static void accepts(const char *type, const char *text)
{
    struct oci_manifest m = parse(type, text);
    oci_manifest_done(&m);
}

static void refused_as(enum err_code code, const char *type, const char *text, const char *want)
{
    struct oci_manifest m;
    struct error err;
    cr_assert_lt(parse_n(type, text, strlen(text), &m, &err), 0, "accepted: %s", text);
    cr_assert_eq(err.code, code, "%s: %s", text, err.text);
    cr_assert(strstr(err.text, want), "%s\n  gives  %s\n  wanted %s", text, err.text, want);
}

static void refused(const char *type, const char *text, const char *want)
{
    refused_as(ERR_INVALID, type, text, want);
}

Test(oci_manifest, types)
{
    static const struct {
        const char *header, *want;
    } cases[] = {
        {OCI_IMAGE_TYPE, OCI_IMAGE_TYPE},
        {OCI_INDEX_TYPE, OCI_INDEX_TYPE},
        {OCI_ARTIFACT_TYPE, OCI_ARTIFACT_TYPE},
        {DOCKER_IMAGE_TYPE, DOCKER_IMAGE_TYPE},
        {DOCKER_LIST_TYPE, DOCKER_LIST_TYPE},
        {"Application/Vnd.OCI.image.index.V1+JSON", OCI_INDEX_TYPE},
        {" \t" OCI_IMAGE_TYPE "\t ; charset=utf-8", OCI_IMAGE_TYPE},
        {OCI_IMAGE_TYPE ";", OCI_IMAGE_TYPE},
        {OCI_IMAGE_TYPE "x", NULL},
        {OCI_IMAGE_TYPE " x", NULL},
        {"application/json", NULL},
        {"application/octet-stream", NULL},
        {"application/vnd.docker.distribution.manifest.v1+json", NULL},
        {"", NULL},
        {" ; ", NULL},
        {NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = oci_manifest_type(cases[i].header);
        if (cases[i].want)
            cr_assert_str_eq(got, cases[i].want);
        else
            cr_assert_null(got, "%s", cases[i].header);
    }
}

Test(oci_manifest, image)
{
    struct oci_manifest m = parse(
        OCI_IMAGE_TYPE "; charset=utf-8",
        "\t{\"layers\" :\n[" DESCRIPTOR(
            "l/1") ",{\"size\":9223372036854775807,\"urls\":[\"x\"],"
                   "\"digest\":\"" DIGEST512 "\",\"data\":\"e30=\",\"mediaType\":\"l\\u002f2\"}],"
                   "\"mediaType\":\"" OCI_IMAGE_TYPE "\", \"config\":" DESCRIPTOR(
                       "c/c") ",\"x\":{\"config\":[1]},"
                              "\"subject\":" DESCRIPTOR(
                                  OCI_INDEX_TYPE) ", \"annotations\": { \"a\":\"\\u00e9\", \"b\" : "
                                                  "\"\"} ," V2 "}\r\n");
    cr_assert_str_eq(m.media_type, OCI_IMAGE_TYPE);
    cr_assert_not(m.is_index);
    cr_assert_eq(m.n_parts, 3);
    cr_assert_eq(m.parts[0].role, OCI_CONFIG);
    cr_assert_str_eq(m.parts[0].media_type, "c/c");
    cr_assert_eq(m.parts[0].size, 7);
    cr_assert_eq(m.parts[1].role, OCI_LAYER);
    cr_assert_str_eq(m.parts[1].digest_text, DIGEST);
    cr_assert_eq(m.parts[1].digest.alg, DIGEST_SHA256);
    cr_assert_eq(m.parts[1].digest.raw[1], 0x23);
    cr_assert_str_eq(m.parts[2].media_type, "l/2");
    cr_assert_eq(m.parts[2].digest.alg, DIGEST_SHA512);
    cr_assert_eq(m.parts[2].size, INT64_MAX);
    cr_assert(m.has_subject);
    cr_assert_str_eq(m.subject.media_type, OCI_INDEX_TYPE);
    cr_assert_str_eq(m.subject.digest_text, DIGEST);
    cr_assert_str_eq(m.artifact_type, "c/c");
    cr_assert_eq(m.annotations_len, strlen("{ \"a\":\"\\u00e9\", \"b\" : \"\"}"));
    oci_manifest_done(&m);
    cr_assert(!m.parts && !m.storage);
    oci_manifest_done(&m);
}

Test(oci_manifest, golden_model_pack)
{
    struct oci_manifest m =
        parse(OCI_IMAGE_TYPE, "{" V2 "," CONFIG "," GOLDEN_LAYERS ",\"artifactType\":\"a/b\"}");
    cr_assert_eq(m.n_parts, 4);
    cr_assert_str_eq(m.parts[2].media_type, "application/vnd.cncf.model.weight.v1.raw");
    cr_assert_eq(m.parts[2].size, 224);
    cr_assert_str_eq(m.artifact_type, "a/b");
    cr_assert_null(m.annotations);
    oci_manifest_done(&m);
}

Test(oci_manifest, index_list_and_artifact)
{
    struct oci_manifest m =
        parse(OCI_INDEX_TYPE, INDEX(",\"artifactType\":\"a/b\",\"subject\":null"));
    cr_assert(m.is_index && !m.has_subject);
    cr_assert_eq(m.n_parts, 1);
    cr_assert_eq(m.parts[0].role, OCI_CHILD);
    cr_assert_str_eq(m.artifact_type, "a/b");
    oci_manifest_done(&m);
    m = parse(OCI_INDEX_TYPE, INDEX(""));
    cr_assert_str_eq(m.artifact_type, "");
    oci_manifest_done(&m);
    m = parse(DOCKER_LIST_TYPE, INDEX(",\"mediaType\":\"" DOCKER_LIST_TYPE "\""));
    cr_assert_str_eq(m.media_type, DOCKER_LIST_TYPE);
    cr_assert(m.is_index);
    oci_manifest_done(&m);
    m = parse(OCI_ARTIFACT_TYPE, "{\"artifactType\":\"a/b\",\"blobs\":[" DESCRIPTOR(
                                     "l/l") "],"
                                            "\"subject\":" DESCRIPTOR("s/s") "}");
    cr_assert_not(m.is_index);
    cr_assert_eq(m.n_parts, 1);
    cr_assert_eq(m.parts[0].role, OCI_LAYER);
    cr_assert_str_eq(m.artifact_type, "a/b");
    cr_assert(m.has_subject);
    oci_manifest_done(&m);
    accepts(OCI_ARTIFACT_TYPE, "{\"artifactType\":\"a/b\"}");
    m = parse(DOCKER_IMAGE_TYPE, IMAGE(""));
    cr_assert_str_eq(m.artifact_type, "c/c");
    oci_manifest_done(&m);
}

Test(oci_manifest, what_may_be_left_out)
{
    static const char *const images[] = {
        "{" V2 "," CONFIG "}",
        "{" V2 "," CONFIG ",\"layers\":[]}",
        "{" V2 "," CONFIG ",\"layers\":null}",
        IMAGE(",\"mediaType\":\"\""),
        IMAGE(",\"mediaType\":null,\"artifactType\":null,\"subject\":null,\"annotations\":null"),
        IMAGE(",\"artifactType\":\"\""),
        IMAGE(",\"annotations\":{}"),
        IMAGE(",\"Config2\":1,\"configs\":{},\"\":0,\"unknown\":1,\"unknown\":2"),
    };
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        struct oci_manifest m = parse(OCI_IMAGE_TYPE, images[i]);
        cr_assert(!m.has_subject);
        cr_assert_str_eq(m.artifact_type, "c/c");
        oci_manifest_done(&m);
    }
    accepts(OCI_INDEX_TYPE, "{" V2 ",\"manifests\":[]}");
    accepts(OCI_INDEX_TYPE, "{" V2 ",\"manifests\":null}");
    refused(OCI_INDEX_TYPE, "{" V2 "}", "\"manifests\" is missing");
    refused(OCI_IMAGE_TYPE, "{" V2 "," LAYERS "}", "\"config\" is missing");
    refused(OCI_IMAGE_TYPE, "{" V2 ",\"config\":null," LAYERS "}", "\"config\" is missing");
    refused(DOCKER_IMAGE_TYPE, "{" V2 "," LAYERS "}", "\"config\" is missing");
    refused(OCI_ARTIFACT_TYPE, "{\"blobs\":[]}", "\"artifactType\" is missing");
    refused(OCI_ARTIFACT_TYPE, "{\"artifactType\":\"\"}", "artifactType is empty");
    refused(OCI_IMAGE_TYPE, "{" CONFIG "}", "\"schemaVersion\" is missing; it must be 2");
    refused(OCI_IMAGE_TYPE, "{\"schemaVersion\":null," CONFIG "}", "schemaVersion");
    static const char *const versions[] = {"1", "3", "2.0", "2e0", "\"2\"", "-2", "[2]", "true"};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        char text[400];
        snprintf(text, sizeof(text), "{\"schemaVersion\":%s," CONFIG "}", versions[i]);
        refused(OCI_IMAGE_TYPE, text, "schemaVersion");
    }
}

Test(oci_manifest, what_it_is)
{
    static const char known[] = OCI_IMAGE_TYPE ", " OCI_INDEX_TYPE ", " DOCKER_IMAGE_TYPE
                                               ", " DOCKER_LIST_TYPE " or " OCI_ARTIFACT_TYPE;
    static const char *const none[] = {NULL, "", " ", " ; charset=utf-8"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        struct oci_manifest m = parse(none[i], IMAGE(",\"mediaType\":\"" OCI_IMAGE_TYPE "\""));
        cr_assert_str_eq(m.media_type, OCI_IMAGE_TYPE);
        oci_manifest_done(&m);
        refused(none[i], IMAGE(""), "send Content-Type (" OCI_IMAGE_TYPE ", ");
        refused_as(ERR_UNSUPPORTED, none[i], IMAGE(",\"mediaType\":\"a/b\""),
                   "the mediaType 'a/b' is no manifest's; known are ");
    }
    static const char *const other[] = {"application/octet-stream", "application/json; q=1",
                                        "application/x-www-form-urlencoded", "x"};
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        refused_as(ERR_UNSUPPORTED, other[i], IMAGE(",\"mediaType\":\"" OCI_IMAGE_TYPE "\""),
                   known);
        refused_as(ERR_UNSUPPORTED, other[i], IMAGE(""), "the Content-Type '");
    }
    static const char *const schema1[] = {
        "application/vnd.docker.distribution.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws"};
    for (size_t i = 0; i < ARRAY_LEN(schema1); i++)
        refused_as(ERR_UNSUPPORTED, schema1[i], "{\"schemaVersion\":1}", "Docker's schema 1");
    refused(OCI_IMAGE_TYPE, IMAGE(",\"mediaType\":\"" DOCKER_IMAGE_TYPE "\""),
            "mediaType is '" DOCKER_IMAGE_TYPE "', but it was sent as " OCI_IMAGE_TYPE);
    refused(OCI_IMAGE_TYPE, IMAGE(",\"mediaType\":\"Application/vnd.oci.image.manifest.v1+json\""),
            "they must agree");
    refused_as(ERR_UNSUPPORTED, NULL, IMAGE(",\"mediaType\":\"" OCI_IMAGE_TYPE "; x\""),
               "is no manifest's");
}

Test(oci_manifest, ambiguous)
{
    static const struct {
        const char *type, *text, *key;
    } cases[] = {
        {OCI_IMAGE_TYPE, IMAGE(",\"manifests\":[]"), "manifests"},
        {OCI_IMAGE_TYPE, IMAGE(",\"manifests\":null"), "manifests"},
        {OCI_IMAGE_TYPE, IMAGE(",\"blobs\":[]"), "blobs"},
        {OCI_IMAGE_TYPE, IMAGE(",\"fsLayers\":[]"), "fsLayers"},
        {DOCKER_IMAGE_TYPE, IMAGE(",\"manifests\":[]"), "manifests"},
        {OCI_INDEX_TYPE, INDEX(",\"layers\":[]"), "layers"},
        {OCI_INDEX_TYPE, INDEX("," CONFIG), "config"},
        {OCI_INDEX_TYPE, INDEX(",\"blobs\":1"), "blobs"},
        {DOCKER_LIST_TYPE, INDEX(",\"layers\":[]"), "layers"},
        {OCI_ARTIFACT_TYPE, "{\"artifactType\":\"a\",\"layers\":[]}", "layers"},
        {OCI_ARTIFACT_TYPE, "{\"artifactType\":\"a\",\"manifests\":[]}", "manifests"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char want[40];
        snprintf(want, sizeof(want), "a document with \"%s\" (at byte ", cases[i].key);
        refused_as(ERR_INVALID, cases[i].type, cases[i].text, want);
    }
}

Test(oci_manifest, keys_that_another_reader_would_take)
{
    static const char *const twice[] = {"schemaVersion", "mediaType",   "config",      "layers",
                                        "subject",       "annotations", "artifactType"};
    for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
        char text[900], want[60];
        snprintf(text, sizeof(text), IMAGE(",\"%s\":null,\"%s\":null"), twice[i], twice[i]);
        snprintf(want, sizeof(want), "\"%s\" comes twice in the manifest", twice[i]);
        refused(OCI_IMAGE_TYPE, text, want);
    }
    static const char *const alike[] = {
        "Layers",         "LAYERS",           "layer\\u017f",  "layer\xc5\xbf", "\\u004cayers",
        "l\\u0041yers",   "SchemaVersion",    "mediatype",     "Subject",       "\\u017fubject",
        "Manifests",      "manifest\xc5\xbf", "config\\u0000", "annotationS",   "fslayers",
        "layers\\u0000x", "artifacttype",     "Blobs",
    };
    for (size_t i = 0; i < ARRAY_LEN(alike); i++) {
        char text[900];
        snprintf(text, sizeof(text), IMAGE(",\"%s\":null"), alike[i]);
        refused(OCI_IMAGE_TYPE, text, "but some readers would take it for that");
    }
    accepts(OCI_IMAGE_TYPE, "{\"\\u0063onfig\":" DESCRIPTOR("c/c") "," V2 "}");
    accepts(OCI_IMAGE_TYPE, IMAGE(",\"layers \":1,\"\\u212aonfig\":1,\"la yers\":1,\"ayers\":1"));
    refused(OCI_IMAGE_TYPE,
            "{" V2 ",\"config\":{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\","
            "\"size\":1,\"Size\":2}}",
            "config: the key at byte");
    refused(OCI_IMAGE_TYPE,
            "{" V2 ",\"config\":{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\","
            "\"size\":1,\"digest\":\"x\"}}",
            "config: \"digest\" comes twice in a descriptor, again at byte");
    refused(OCI_IMAGE_TYPE,
            "{" V2 ",\"config\":{\"mediaType\":\"a\",\"dige\xc5\xbft\":\"" DIGEST "\",\"size\":1}}",
            "is not \"digest\"");
}

Test(oci_manifest, descriptors)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{}", "has no \"mediaType\""},
        {"{\"mediaType\":\"\",\"digest\":\"" DIGEST "\",\"size\":1}", "has no \"mediaType\""},
        {"{\"mediaType\":\"a\",\"size\":1}", "has no \"digest\""},
        {"{\"mediaType\":\"a\",\"digest\":null,\"size\":1}", "has no \"digest\""},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\"}", "has no \"size\""},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":null}", "has no \"size\""},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":-1}", "expected a whole number"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":1.0}", "plain whole number"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":1e3}", "plain whole number"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":\"1\"}",
         "a whole number in size"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":9223372036854775808}", "2^63-1"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":18446744073709551616}",
         "64 bits"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\",\"size\":01}", "wrong number"},
        {"{\"mediaType\":1,\"digest\":\"" DIGEST "\",\"size\":1}",
         "expected a string in mediaType"},
        {"{\"mediaType\":\"a\",\"digest\":[],\"size\":1}", "expected a string in digest"},
        {"{\"mediaType\":\"a\",\"digest\":\"\",\"size\":1}", "has no \"digest\""},
        {"{\"mediaType\":\"a\",\"digest\":\"sha256:12\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"SHA256:" HEX "\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "0\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"sha256:" HEX "\\n\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"nothing\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"x:\",\"size\":1}", "the digest at byte"},
        {"{\"mediaType\":\"a\",\"digest\":\"" DIGEST "\\u0000\",\"size\":1}", "holds a NUL"},
        {"{\"mediaType\":\"a\\u0000b\",\"digest\":\"" DIGEST "\",\"size\":1}", "holds a NUL"},
        {"null", "expected '{' in a descriptor"},
        {"[]", "expected '{' in a descriptor"},
        {"\"x\"", "expected '{' in a descriptor"},
        {"1", "expected '{' in a descriptor"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[900];
        snprintf(text, sizeof(text), "{" V2 "," CONFIG ",\"layers\":[" DESCRIPTOR("l/l") ",%s]}",
                 cases[i].text);
        refused(OCI_IMAGE_TYPE, text, cases[i].want);
        if (!strstr(cases[i].want, "wrong number"))
            refused(OCI_IMAGE_TYPE, text, "layers[1]: ");
    }
    static const char *const lists[] = {"{}", "1", "\"x\"", "true", "[[]]"};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        char text[900];
        snprintf(text, sizeof(text), "{" V2 "," CONFIG ",\"layers\":%s}", lists[i]);
        refused(OCI_IMAGE_TYPE, text, "layers");
        snprintf(text, sizeof(text), "{" V2 ",\"manifests\":%s}", lists[i]);
        refused(OCI_INDEX_TYPE, text, "manifests");
        snprintf(text, sizeof(text), IMAGE(",\"subject\":%s"), i == 0 ? "[{}]" : lists[i]);
        refused(OCI_IMAGE_TYPE, text, "subject: ");
    }
    refused(OCI_IMAGE_TYPE, "{" V2 ",\"config\":[]}", "config: ");
}

Test(oci_manifest, digests_of_other_algorithms)
{
    static const char *const digests[] = {"blake3:" HEX, "md5:" HEX, "a+b.c_d-e:A_=-z", "sha1:x"};
    for (size_t i = 0; i < ARRAY_LEN(digests); i++) {
        char text[500];
        snprintf(text, sizeof(text),
                 IMAGE(",\"subject\":{\"mediaType\":\"a\",\"digest\":\"%s\",\"size\":0}"),
                 digests[i]);
        struct oci_manifest m = parse(OCI_IMAGE_TYPE, text);
        cr_assert_eq(m.subject.digest.alg, DIGEST_NONE);
        cr_assert_str_eq(m.subject.digest_text, digests[i]);
        oci_manifest_done(&m);
    }
}

Test(oci_manifest, foreign_layers)
{
    static const struct {
        const char *type;
        bool foreign;
    } cases[] = {
        {"application/vnd.oci.image.layer.nondistributable.v1.tar", true},
        {"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", true},
        {"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", true},
        {"application/vnd.oci.image.layer.nondistributable.v1.tarx", false},
        {"application/vnd.docker.image.rootfs.foreign.diff.tar", true},
        {"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", true},
        {"application/vnd.docker.image.rootfs.foreign.diff.tar.xz", false},
        {"application/vnd.docker.image.rootfs.diff.tar.gzip", false},
        {"application/vnd.oci.image.layer.v1.tar+gzip", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[600];
        snprintf(text, sizeof(text),
                 "{" V2 ",\"config\":{\"mediaType\":\"%s\",\"digest\":\"" DIGEST "\",\"size\":1},"
                 "\"layers\":[{\"mediaType\":\"%s\",\"digest\":\"" DIGEST "\",\"size\":1}]}",
                 cases[i].type, cases[i].type);
        struct oci_manifest m = parse(OCI_IMAGE_TYPE, text);
        cr_assert_eq(m.parts[0].role, OCI_CONFIG);
        cr_assert_eq(m.parts[1].role, cases[i].foreign ? OCI_FOREIGN : OCI_LAYER, "%s",
                     cases[i].type);
        oci_manifest_done(&m);
    }
}

Test(oci_manifest, annotations)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"[]", "expected '{' in annotations"},
        {"1", "expected '{' in annotations"},
        {"\"x\"", "expected '{' in annotations"},
        {"{\"a\":1}", "expected a string in an annotation"},
        {"{\"a\":null}", "expected a string in an annotation"},
        {"{\"a\":{}}", "expected a string in an annotation"},
        {"{\"a\":\"x\",\"b\":\"\",\"a\":\"y\"}", "the annotation 'a' comes twice"},
        {"{\"a\":\"x\",\"\\u0061\":\"x\"}", "the annotation 'a' comes twice"},
        {"{\"a\\u0000\":\"x\"}", "holds a NUL"},
        {"{\"a\":\"\\\\\\u0000\"}", "holds a NUL"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[600];
        snprintf(text, sizeof(text), IMAGE(",\"annotations\":%s"), cases[i].text);
        refused(OCI_IMAGE_TYPE, text, cases[i].want);
        snprintf(text, sizeof(text), INDEX(",\"annotations\":%s"), cases[i].text);
        refused(OCI_INDEX_TYPE, text, cases[i].want);
    }
    accepts(OCI_IMAGE_TYPE,
            IMAGE(",\"annotations\":{\"a\":\"\\\\u0000\",\"A\":\"\",\"\":\"x\",\"config\":\"\"}"));
    accepts(OCI_IMAGE_TYPE, IMAGE(",\"x\":\"\\u0000\",\"y\\u0000\":1"));
}

Test(oci_manifest, no_json)
{
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{}{}",
        "{},",
        "{,}",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "\xef\xbb\xbf{}",
        "{\"a\":1,}",
        "{\"a\":01}",
        "{\"a\":nul}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":1e999}",
        "{\"a\":NaN}",
        "// x\n{}",
        "{}x",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        refused(OCI_IMAGE_TYPE, texts[i], i == 0 ? "the manifest is empty" : "byte ");
    struct oci_manifest m;
    struct error err;
    cr_assert_lt(parse_n(OCI_IMAGE_TYPE, "{}\0", 3, &m, &err), 0);
    cr_assert_lt(parse_n(OCI_IMAGE_TYPE, "{\"a\0\":1}", 9, &m, &err), 0);
    refused(OCI_IMAGE_TYPE, "{", "where the manifest ends");
}

Test(oci_manifest, cut_at_every_byte)
{
    static const char *const texts[] = {
        IMAGE(",\"subject\":" DESCRIPTOR("s/s") ",\"annotations\":{\"a\":\"\\u00e9\xc3\xa9\"},"
                                                "\"x\":[1,-2.5e3,true,null,{\"y\":\"z\"}]"),
        INDEX(",\"annotations\":{\"a\":\"b\"}"),
    };
    static const char *const types[] = {OCI_IMAGE_TYPE, OCI_INDEX_TYPE};
    struct oci_manifest m;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        accepts(types[i], texts[i]);
        for (size_t n = 0; n < strlen(texts[i]); n++)
            cr_assert_lt(parse_n(types[i], texts[i], n, &m, &err), 0, "%zu bytes", n);
    }
}

/* Each byte changed to others: whatever comes of it, nothing is read outside the copy. */
Test(oci_manifest, any_byte_wrong)
{
    static const char text[] = IMAGE(",\"annotations\":{\"a\":\"\\u00e9\"},\"x\":[1,-2.5e3]");
    static const char others[] = "\"\\{}[],:0-n\xc3\x00 ";
    char copy[sizeof(text)];
    for (size_t i = 0; i < strlen(text); i++) {
        for (size_t j = 0; j < sizeof(others) - 1; j++) {
            struct oci_manifest m;
            struct error err;
            strcpy(copy, text);
            copy[i] = others[j];
            if (parse_n(OCI_IMAGE_TYPE, copy, strlen(text), &m, &err) == 0)
                oci_manifest_done(&m);
        }
    }
}

static void put_many(struct strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        strbuf_puts(b, s);
}

Test(oci_manifest, depth)
{
    for (size_t depth = 126; depth <= 127; depth++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_puts(&b, "{" V2 "," CONFIG ",\"x\":");
        put_many(&b, "[", depth); /* inside the document's own object */
        put_many(&b, "]", depth);
        strbuf_puts(&b, "}");
        if (depth < 127)
            accepts(OCI_IMAGE_TYPE, b.data);
        else
            refused(OCI_IMAGE_TYPE, b.data, "nested deeper than 127");
    }
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "{\"x\":");
    put_many(&b, "[", 1u << 20);
    refused(OCI_IMAGE_TYPE, b.data, "nested deeper than 127");
    strbuf_reset(&b);
    strbuf_puts(&b, "{\"x\":");
    put_many(&b, "{\"\":", 1u << 20);
    refused(OCI_IMAGE_TYPE, b.data, "nested deeper than 127");
}

static long peak_kib(void)
{
    struct rusage usage;
    cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static double cpu_s(void)
{
    struct rusage usage;
    cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
}

/* 4 MiB of what makes a tree of gigabytes: taken in passing. */
Test(oci_manifest, much_of_nothing)
{
    static const char *const pieces[] = {"0,", "[],", "{},", "\"\",", "{\"a\":[{}]},", "null,"};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_puts(&b, "{" V2 "," CONFIG ",\"x\":[");
        put_many(&b, pieces[i], (4u << 20) / strlen(pieces[i]));
        strbuf_puts(&b, "0]}");
        cr_assert_not(strbuf_failed(&b));
        long before_kib = peak_kib();
        double before_s = cpu_s();
        struct oci_manifest m;
        struct error err;
        cr_assert_eq(oci_manifest_parse(OCI_IMAGE_TYPE, b.data, b.len, &m, &err), 0, "%s",
                     err.text);
        oci_manifest_done(&m);
        cr_assert_lt(peak_kib() - before_kib, 16 * 1024, "%s", pieces[i]);
        cr_assert_lt(cpu_s() - before_s, 10, "%s", pieces[i]);
    }
}

Test(oci_manifest, many_keys_and_parts)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "{" V2 "," CONFIG ",\"annotations\":{\"\":\"\"");
    for (unsigned i = 0; b.len < 2u << 20; i++)
        strbuf_printf(&b, ",\"%x\":\"\"", i);
    strbuf_puts(&b, "},\"layers\":[" DESCRIPTOR("l/l"));
    size_t n = 2;
    for (; b.len < 4u << 20; n++)
        strbuf_puts(&b, "," DESCRIPTOR("l/l"));
    strbuf_puts(&b, "]}");
    struct oci_manifest m = parse(OCI_IMAGE_TYPE, b.data);
    cr_assert_eq(m.n_parts, n);
    for (size_t i = 1; i < n; i++)
        cr_assert_str_eq(m.parts[i].digest_text, DIGEST);
    oci_manifest_done(&m);
}
