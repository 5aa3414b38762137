/* What public advisories and reports say of other readers of model files, one test for each, under
 * its number: none of it may be true here. */
#include <criterion/criterion.h>

#include "base/digest.h"
#include "model/oci_manifest.h"
#include "model/pickle.h"
#include "tests/unit/model/memory_source.h"
#include "tests/unit/model/prefix_check.h"
#include "tests/unit/model/zip_builder.h"

#define GGUF_STRING 8
#define GGUF_ARRAY 9

/* ---- GGUF by hand: version 3, little endian ---- */

struct file {
    struct strbuf b;
};
#define _cleanup_file_ _cleanup_(file_done)

static void file_done(struct file *f)
{
    strbuf_done(&f->b);
}

static void put(struct file *f, uint64_t value, unsigned n)
{
    zip_put_int(&f->b, value, n);
}

static void put_text(struct file *f, const char *s)
{
    put(f, strlen(s), 8);
    strbuf_puts(&f->b, s);
}

static void begin(struct file *f, uint64_t tensors, uint64_t keys)
{
    strbuf_puts(&f->b, "GGUF");
    put(f, 3, 4);
    put(f, tensors, 8);
    put(f, keys, 8);
}

static void put_tensor(struct file *f, const char *name, unsigned type, uint64_t ne0, uint64_t ne1,
                       uint64_t offset)
{
    put_text(f, name);
    put(f, 2, 4);
    put(f, ne0, 8);
    put(f, ne1, 8);
    put(f, type, 4);
    put(f, offset, 8);
}

static void put_zeros(struct file *f, size_t n)
{
    while (n--)
        strbuf_putc(&f->b, '\0');
}

static struct prefix_outcome last;

static void parse(enum weights_format format, const struct file *f)
{
    const char *wrong = prefix_check(format, f->b.data, f->b.len, f->b.len, 1, &last);
    cr_assert_null(wrong, "%s", wrong);
}

/* For the reason that is given, and not for another. */
static void refuses(const struct file *f, const char *why)
{
    parse(WEIGHTS_GGUF, f);
    cr_expect_lt(last.rc, 0);
    cr_expect(strstr(last.err.text, why), "%s, not %s", last.err.text, why);
}

static void refuses_counts(uint64_t tensors, uint64_t keys)
{
    _cleanup_file_ struct file f = {0};
    begin(&f, tensors, keys);
    put_zeros(&f, 200);
    refuses(&f, ", more than ");
}

static void refuses_string(uint64_t len)
{
    _cleanup_file_ struct file key = {0}, value = {0}, name = {0};
    begin(&key, 0, 1);
    put(&key, len, 8);
    put_zeros(&key, 200);
    refuses(&key, "a key at byte 32 takes");
    begin(&value, 0, 1);
    put_text(&value, "k");
    put(&value, GGUF_STRING, 4);
    put(&value, len, 8);
    put_zeros(&value, 200);
    refuses(&value, "a string at byte 45 takes");
    begin(&name, 1, 0);
    put(&name, len, 8);
    put_zeros(&name, 200);
    refuses(&name, "a tensor's name at byte 32 takes");
}

static void refuses_array(unsigned type, uint64_t n)
{
    _cleanup_file_ struct file f = {0};
    begin(&f, 0, 1);
    put_text(&f, "k");
    put(&f, GGUF_ARRAY, 4);
    put(&f, type, 4);
    put(&f, n, 8);
    put_zeros(&f, 200);
    refuses(&f, "an array of ");
}

static void refuses_tensor(unsigned type, uint64_t ne0, uint64_t ne1, const char *why)
{
    _cleanup_file_ struct file f = {0};
    begin(&f, 1, 0);
    put_tensor(&f, "a", type, ne0, ne1, 0);
    put_zeros(&f, 200);
    refuses(&f, why);
}

/* Talos 1912 to 1916: what is read from the file goes into a malloc(), times the size of something,
 * plus one. */
Test(advisories, cve_2024_21802_21825_21836_23496_23605_numbers_that_are_allocated)
{
    static const uint64_t huge[] = {1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 1};
    for (size_t i = 0; i < ARRAY_LEN(huge); i++) {
        refuses_counts(huge[i], 0);
        refuses_counts(0, huge[i]);
        refuses_string(huge[i]);
        for (unsigned type = 0; type <= 12; type++)
            refuses_array(type, huge[i]);
    }
    for (unsigned type = 0; type <= 12; type++)
        refuses_array(type, 1ull << 61);
}

/* The same, where the product comes out small. */
Test(advisories, cve_2024_25664_25665_25666_25667_25668_products_that_come_out_small)
{
    for (uint64_t size = 2; size <= 256; size++) {
        uint64_t n = UINT64_MAX / size + 1;
        refuses_counts(n, 0);
        refuses_counts(0, n);
        refuses_string(n);
        refuses_array(GGUF_STRING, n);
        refuses_array(10, n);
    }
}

/* Every tensor's size is fine, and their sum is not. */
Test(advisories, cve_2025_53630_sums_that_wrap)
{
    _cleanup_file_ struct file f = {0};
    const uint64_t quarter = 1ull << 62;
    char name[8];
    begin(&f, 5, 0);
    for (unsigned i = 0; i < 5; i++) { /* of one byte an element */
        snprintf(name, sizeof(name), "t%u", i);
        put_tensor(&f, name, 24, quarter, 1, i * quarter);
    }
    put_zeros(&f, 200);
    refuses(&f, "tensor 't3': its end does not fit 64 bits");
}

/* The sum just fits, and no longer does with what is allocated besides. */
Test(advisories, cve_2026_27940_sums_that_wrap_with_an_overhead)
{
    _cleanup_file_ struct file f = {0};
    const uint64_t half = (1ull << 63) - 32;
    begin(&f, 2, 0);
    put_tensor(&f, "a", 24, half, 1, 0);
    put_tensor(&f, "b", 24, half, 1, half);
    put_zeros(&f, 200);
    refuses(&f, "tensor 'b' ends 18446744073709551552 bytes behind");
}

/* GHSA-96jg-mvhq-q7q7: the elements fit, their bytes do not. */
Test(advisories, cve_2026_33298_elements_times_their_size)
{
    const char why[] = "its size does not fit 64 bits", large[] = "are too large";
    refuses_tensor(0, 1ull << 62, 1, why);            /* F32 */
    refuses_tensor(28, 1ull << 60, 4, why);           /* F64 */
    refuses_tensor(8, 1ull << 32, 1ull << 31, large); /* Q8_0: 2^63 elements are negative */
    refuses_tensor(12, 1ull << 40, 1ull << 22, "it is cut short");
    refuses_tensor(0, 1024, (1ull << 54) + 1, large);
    refuses_tensor(0, 1024, (1ull << 52) + 1, why);
}

Test(advisories, llama_cpp_27203_a_product_that_wraps_to_nothing)
{
    refuses_tensor(0, INT64_MAX, 2, "are too large or negative");
    refuses_tensor(0, 1ull << 32, 1ull << 32, "are too large or negative");
    refuses_tensor(24, UINT64_MAX, 1, "are too large or negative");
}

Test(advisories, llama_cpp_24759_padding_that_wraps)
{
    refuses_tensor(0, (1ull << 62) - 1, 1, "its end does not fit 64 bits");
}

/* A tensor without elements was divided by; a key without a name was taken. */
Test(advisories, llama_cpp_24263_nothing_where_something_is_expected)
{
    _cleanup_file_ struct file none = {0}, key = {0};
    begin(&none, 1, 0);
    put_tensor(&none, "a", 12, 0, UINT32_MAX, 0);
    while (none.b.len % 32)
        put_zeros(&none, 1);
    parse(WEIGHTS_GGUF, &none);
    cr_expect_eq(last.rc, 0, "%s", last.err.text);
    cr_expect(last.w.tensors == 1 && last.w.parameters == 0 && last.w.tensor_bytes == 0);
    begin(&key, 0, 1);
    put_text(&key, "");
    put(&key, 0, 4);
    put_zeros(&key, 32);
    refuses(&key, "the name of key 0 at byte 24 has 0 bytes");
}

Test(advisories, llama_cpp_26318_an_alignment_of_another_type)
{
    for (unsigned type = 0; type <= 12; type++) {
        _cleanup_file_ struct file f = {0};
        if (type == 4 || type == GGUF_ARRAY)
            continue;
        begin(&f, 0, 1);
        put_text(&f, "general.alignment");
        put(&f, type, 4);
        if (type == GGUF_STRING)
            put_text(&f, "64");
        else
            put(&f, 64, type == 0 || type == 1 || type == 7 ? 1 : type < 4 ? 2 : type < 10 ? 4 : 8);
        refuses(&f, "general.alignment at byte 53 is of type");
    }
}

Test(advisories, llama_cpp_15711_a_key_twice)
{
    _cleanup_file_ struct file f = {0};
    begin(&f, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&f, "general.alignment");
        put(&f, 4, 4);
        put(&f, 32u << i, 4);
    }
    refuses(&f, "key 'general.alignment' is there twice, again at byte 57");
}

/* "Bleeding Llama": the file ends before its tensors do, and what lies behind it in memory is
 * given away. */
Test(advisories, cve_2026_7482_tensors_beyond_the_end_of_the_file)
{
    static const unsigned types[] = {0, 1, 2, 8, 12, 14, 24, 28, 30, 39};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        refuses_tensor(types[i], 256, 4096, "it is cut short");
        refuses_tensor(types[i], 1024, 1u << 20, "it is cut short");
    }
    for (size_t short_of = 1; short_of <= 64; short_of++) {
        _cleanup_file_ struct file f = {0};
        begin(&f, 1, 0);
        put_tensor(&f, "a", 0, 16, 1, 0);
        while (f.b.len % 32)
            put_zeros(&f, 1);
        put_zeros(&f, 64 - short_of);
        refuses(&f, "it is cut short");
    }
}

/* ---- safetensors ---- */

static void safetensors(struct file *f, uint64_t n, const char *header, size_t data)
{
    put(f, n, 8);
    strbuf_puts(&f->b, header);
    put_zeros(f, data);
}

static void refuses_header(uint64_t n, const char *header, size_t data, const char *why)
{
    _cleanup_file_ struct file f = {0};
    safetensors(&f, n, header, data);
    parse(WEIGHTS_SAFETENSORS, &f);
    cr_expect_lt(last.rc, 0, "%s", header);
    cr_expect(strstr(last.err.text, why), "%s: %s, not %s", header, last.err.text, why);
}

#define ENTRY(name, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

/* Which of two tensors of one name is loaded depends on who reads. */
Test(advisories, safetensors_401_a_name_twice)
{
    static const char *const headers[] = {
        "{" ENTRY("a", 0, 4) "," ENTRY("a", 0, 4) "}",
        "{" ENTRY("a", 0, 4) "," ENTRY("a", 4, 8) "}",
        "{" ENTRY("a", 0, 4) "," ENTRY("\\u0061", 4, 8) "}",
    };
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        refuses_header(strlen(headers[i]), headers[i], 8, "tensor 'a' is there twice");
}

Test(advisories, safetensors_748_a_nul_in_a_name)
{
    static const char header[] = "{" ENTRY("a\\u0000x", 0, 4) "," ENTRY("a\\u0000y", 4, 8) "}";
    refuses_header(strlen(header), header, 8, "has a NUL in it");
}

/* More than one thing in the header, of which readers take one or the other. */
Test(advisories, safetensors_254_more_than_one_header)
{
    static const char *const headers[] = {"{}{}", "{}\"a\"", "{},{}", "[{}]"};
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        refuses_header(strlen(headers[i]), headers[i], 0, i == 3 ? "expected '{'" : "follows");
    refuses_header(44, "{\"__metadata__\":{},\"\\u005f_metadata__\":null}", 0,
                   "__metadata__ is there twice");
}

Test(advisories, go_huggingface_57_and_openasr_73_lengths_and_offsets)
{
    static const uint64_t lengths[] = {1ull << 63, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8,
                                       (1ull << 63) + 8};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        refuses_header(lengths[i], "{" ENTRY("a", 0, 4) "}", 4, "the header's length at byte 0 is");
    static const char *const headers[][2] = {
        {"{" ENTRY("a", -4, 0) "}", "a whole number in data_offsets"},
        {"{" ENTRY("a", 4, 0) "}", "do not follow"},
        {"{" ENTRY("a", 18446744073709551612, 0) "}", "do not follow"},
        {"{" ENTRY("a", 0, 18446744073709551616) "}", "does not fit 64 bits"},
        {"{" ENTRY("a", 0, 18446744073709551615) "}", "its shape takes 4 bytes"},
        {"{" ENTRY("a", 1000000, 1000004) "}", "do not follow"},
    };
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        refuses_header(strlen(headers[i][0]), headers[i][0], 4, headers[i][1]);
}

/* ---- pickles ---- */

static int inspect(const struct strbuf *b, struct pickle_report *r, struct error *err)
{
    struct memory_source memory = {b->data, b->len, 0, 0};
    struct byte_source s = memory_source(&memory);
    return pickle_inspect(&s, r, err);
}

/* A length of 0x..0280 are the first two bytes of a pickle. */
Test(advisories, modelaudit_1612_a_safetensors_file_that_begins_like_a_pickle)
{
    for (unsigned protocol = 2; protocol <= 5; protocol++) {
        _cleanup_file_ struct file f = {0};
        struct pickle_report r;
        struct error err = ERROR_INIT;
        size_t n = 0x80 | protocol << 8;
        put(&f, n, 8);
        strbuf_puts(&f.b, "{" ENTRY("a", 0, 4) "}");
        while (f.b.len < 8 + n)
            strbuf_putc(&f.b, ' ');
        put_zeros(&f, 4);
        parse(WEIGHTS_SAFETENSORS, &f);
        cr_expect_eq(last.rc, 0, "%s", last.err.text);
        cr_expect_lt(inspect(&f.b, &r, &err), 0);
        cr_expect(strstr(err.text, "safetensors"), "%s", err.text);
        pickle_report_done(&r);
    }
}

static void expect_dangerous(const char *module, const char *name)
{
    _cleanup_strbuf_ struct strbuf global = STRBUF_INIT, stack = STRBUF_INIT;
    struct strbuf *forms[] = {&global, &stack};
    strbuf_printf(&global,
                  "\x80\x02"
                  "c%s\n%s\n(tR.",
                  module, name);
    strbuf_puts(&stack, "\x80\x04");
    for (int i = 0; i < 2; i++) {
        const char *text = i ? name : module;
        strbuf_printf(&stack, "\x8c%c%s\x94", (int)strlen(text), text);
    }
    strbuf_puts(&stack, "\x93)R.");
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct pickle_report r;
        struct error err = ERROR_INIT;
        cr_assert_eq(inspect(forms[i], &r, &err), 0, "%s.%s: %s", module, name, err.text);
        cr_expect_eq(r.verdict, PICKLE_DANGEROUS, "%s.%s: %s", module, name,
                     pickle_verdict_name(r.verdict));
        pickle_report_done(&r);
    }
}

Test(advisories, ghsa_46h3_79wf_xr6c_operator_under_its_other_name)
{
    static const char *const names[] = {"attrgetter", "itemgetter", "methodcaller"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        expect_dangerous("_operator", names[i]);
        expect_dangerous("operator", names[i]);
    }
}

Test(advisories, ghsa_9726_w42j_3qjr_files_and_urls_by_other_names)
{
    expect_dangerous("_io", "FileIO");
    expect_dangerous("io", "FileIO");
    expect_dangerous("urllib.request", "urlopen");
    expect_dangerous("urllib.request", "Request.full_url");
}

Test(advisories, ghsa_9m3x_qqw2_h32h_functions_made_of_code)
{
    static const char *const names[] = {"_builtin_type", "_make_function",   "_function_setstate",
                                        "_make_cell",    "_make_empty_cell", "subimport"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        expect_dangerous("cloudpickle.cloudpickle", names[i]);
    expect_dangerous("types", "CodeType");
}

/* ... and those that were mended with it. */
Test(advisories, ghsa_m273_6v24_x4m4_modules_that_run_what_they_are_given)
{
    static const char *const pairs[][2] = {
        {"ctypes", "CDLL"},
        {"ctypes.util", "find_library"},
        {"numpy.f2py", "get_parameters"},
        {"numpy.f2py.crackfortran", "getlincoef"},
        {"numpy.testing._private.utils", "runstring"},
        {"distutils.file_util", "write_file"},
        {"pty", "spawn"},
        {"pydoc", "locate"},
        {"pydoc", "pipepager"},
        {"operator", "methodcaller"},
        {"asyncio.unix_events", "_UnixSubprocessTransport._start"},
        {"aiohttp.client", "ClientSession"},
        {"cProfile", "run"},
        {"profile", "Profile.run"},
        {"imaplib", "IMAP4_stream"},
        {"pkgutil", "resolve_name"},
        {"test.support.script_helper", "assert_python_ok"},
        {"uuid", "_get_command_stdout"},
        {"_osx_support", "_read_output"},
        {"_aix_support", "_read_cmd_output"},
        {"_pyrepl.pager", "pipe_pager"},
        {"logging", "FileHandler"},
        {"functools", "partial"},
        {"code", "InteractiveInterpreter.runcode"},
        {"doctest", "debug_script"},
        {"ensurepip", "_run_pip"},
        {"idlelib.pyshell", "ModifiedInterpreter.runcode"},
        {"idlelib.autocomplete", "AutoComplete.get_entity"},
        {"lib2to3.pgen2.pgen", "ParserGenerator.make_label"},
        {"torch._dynamo.guards", "GuardBuilder.get"},
        {"torch._inductor.codecache", "compile_file"},
        {"torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression"},
        {"torch.jit.unsupported_tensor_ops", "execWrapper"},
        {"torch.serialization", "load"},
        {"torch.utils._config_module", "ConfigModule.load_config"},
        {"torch.utils.bottleneck.__main__", "run_cprofile"},
        {"torch.utils.bottleneck.__main__", "run_autograd_prof"},
        {"torch.utils.collect_env", "run"},
        {"torch.utils.data.datapipes.utils.decoder", "basichandlers"},
        {"trace", "Trace.run"},
        {"bdb", "Bdb.run"},
        {"pip", "main"},
        {"runpy", "_run_code"},
        {"socket", "create_connection"},
        {"ssl", "get_server_certificate"},
        {"shutil", "rmtree"},
        {"sys", "exit"},
        {"timeit", "timeit"},
        {"venv", "create"},
        {"webbrowser", "open"},
        {"commands", "getoutput"},
        {"httplib", "HTTPSConnection"},
        {"requests.api", "get"},
        {"nt", "system"},
        {"posix", "system"},
        {"pickle", "loads"},
        {"_pickle", "loads"},
        {"pdb", "run"},
        {"builtins", "eval"},
        {"builtins", "getattr"},
        {"builtins", "breakpoint"},
        {"__builtin__", "apply"},
        {"importlib", "import_module"},
        {"marshal", "loads"},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        expect_dangerous(pairs[i][0], pairs[i][1]);
}

/* weights_only loads TorchScript all the same, and its code runs: a clean pickle is no promise. */
Test(advisories, cve_2025_32434_torchscript_is_told)
{
    _cleanup_(zip_builder_done) struct zip_builder z = {0};
    struct pickle_report r;
    struct error err = ERROR_INIT;
    zip_add(&z, "m/data.pkl", "\x80\x02N.", 4, (struct zip_odd){0});
    zip_add(&z, "m/code/__torch__.py", "x = 1\n", 6, (struct zip_odd){0});
    zip_add(&z, "m/constants.pkl", "\x80\x02).", 4, (struct zip_odd){0});
    zip_end(&z, false);
    cr_assert_eq(inspect(&z.b, &r, &err), 0, "%s", err.text);
    cr_expect(r.torchscript);
    pickle_report_done(&r);
}

/* ---- manifests ---- */

/* "Probllama": the digest of a manifest became a path. (CVE-2025-51471, a token for another host,
 * and ollama's 403 that became a blob are tests of the clients: upstream/test_oci_auth.c and
 * e2e/test_inspect.py.) */
Test(advisories, cve_2024_37032_a_digest_that_is_a_path)
{
    static const char *const digests[] = {
        "../../../../../../../etc/passwd",
        "sha256:../../../../etc/passwd",
        "sha256-../../../../etc/passwd",
        "sha256:..%2f..%2fetc%2fpasswd",
        "sha256:/etc/passwd",
        "/etc/passwd",
        "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/..",
        "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/../x",
        "x/../y:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (size_t i = 0; i < ARRAY_LEN(digests); i++) {
        _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
        struct oci_manifest m;
        struct digest d;
        struct error err = ERROR_INIT;
        strbuf_printf(&text,
                      "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"c/c\",\"digest\":\"%s\","
                      "\"size\":1},\"layers\":[]}",
                      digests[i]);
        cr_expect_lt(oci_manifest_parse("application/vnd.oci.image.manifest.v1+json", text.data,
                                        text.len, &m, &err),
                     0, "%s", digests[i]);
        cr_expect(strstr(err.text, "digest"), "%s", err.text);
        cr_expect_lt(digest_parse(digests[i], &d, &err), 0, "%s", digests[i]);
    }
}
