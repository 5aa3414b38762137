#include <criterion/criterion.h>

#include "model/pickle.h"
#include "tests/unit/model/memory_source.h"
#include "tests/unit/model/zip_builder.h"

#define FILES WB_SOURCE_DIR "/tests/unit/model/files/"

static int inspect(const void *data, size_t len, struct pickle_report *r, struct error *err)
{
    struct memory_source memory = {data, len, 0, 0};
    struct byte_source s = memory_source(&memory);
    int rc = pickle_inspect(&s, r, err);
    cr_expect_eq(rc < 0, err->code != ERR_NONE);
    return rc;
}

static void read_test_file(const char *path, struct strbuf *b)
{
    struct error err = ERROR_INIT;
    cr_assert_eq(fs_read_file(path, 16u << 20, b, &err), 0, "%s", err.text);
}

/* "dangerous os.system, allowed ..." */
static void describe(const struct pickle_report *r, struct strbuf *b)
{
    for (size_t i = 0; i < r->n_imports; i++)
        strbuf_printf(b, "%s%s %s.%s", i ? ", " : "", pickle_verdict_name(r->imports[i].verdict),
                      r->imports[i].module, r->imports[i].name);
}

#define EXPECT_IMPORTS(report, text)                                                               \
    do {                                                                                           \
        _cleanup_strbuf_ struct strbuf got_ = STRBUF_INIT;                                         \
        describe(report, &got_);                                                                   \
        cr_expect_str_eq(strbuf_str(&got_), text, "%s, not %s", strbuf_str(&got_), text);          \
    } while (0)

/* ---- the vectors ---- */

static const struct {
    const char *file;
    enum pickle_verdict verdict;
    const char *imports;
} vectors[] = {
    {"bad_dotted_stackglobal.pkl", PICKLE_DANGEROUS, "dangerous builtins.eval.__call__"},
    {"bad_encrypted_flag.pt", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_functools_partial.pkl", PICKLE_DANGEROUS, "dangerous functools.partial"},
    {"bad_hidden_member.pt", PICKLE_DANGEROUS,
     "dangerous os.system, allowed collections.OrderedDict, allowed torch.FloatStorage, allowed "
     "torch._utils._rebuild_tensor_v2"},
    {"bad_hidden_pkl_member.pt", PICKLE_DANGEROUS,
     "dangerous os.system, allowed collections.OrderedDict, allowed torch.FloatStorage, allowed "
     "torch._utils._rebuild_tensor_v2"},
    {"bad_legacy.pt", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_obj.pkl", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_os_global.bin", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_os_global.pkl", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_os_global.pt", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_posix_p0.pkl", PICKLE_DANGEROUS, "dangerous posix.system"},
    {"bad_prefixed_zip.pt", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_submodule.pkl", PICKLE_DANGEROUS, "dangerous os.path.join"},
    {"bad_truncated_after_global.pkl", PICKLE_DANGEROUS, "dangerous os.system"},
    {"bad_two_datapkl.pt", PICKLE_DANGEROUS,
     "dangerous os.system, allowed collections.OrderedDict, allowed torch.FloatStorage, allowed "
     "torch._utils._rebuild_tensor_v2"},
    {"ok_torch.pt", PICKLE_ALLOWED,
     "allowed collections.OrderedDict, allowed torch.FloatStorage, allowed "
     "torch._utils._rebuild_tensor_v2"},
    {"ok_torch_deflate.pt", PICKLE_ALLOWED,
     "allowed collections.OrderedDict, allowed torch.FloatStorage, allowed "
     "torch._utils._rebuild_tensor_v2"},
    {"susp_rebuild_parameter.pt", PICKLE_EXTENDED,
     "extended torch._utils._rebuild_parameter, allowed collections.OrderedDict, allowed "
     "torch.FloatStorage"},
    {"susp_unknown_global.pkl", PICKLE_UNKNOWN, "unknown mypkg.models.Net"},
};

Test(pickle, vectors_have_their_verdicts)
{
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        char path[512];
        struct error err = ERROR_INIT;
        struct pickle_report r;
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        snprintf(path, sizeof(path), "%s/%s", WB_VECTORS, vectors[i].file);
        read_test_file(path, &b);
        cr_assert_eq(inspect(b.data, b.len, &r, &err), 0, "%s: %s", path, err.text);
        cr_expect_eq(r.verdict, vectors[i].verdict, "%s: %s", vectors[i].file,
                     pickle_verdict_name(r.verdict));
        EXPECT_IMPORTS(&r, vectors[i].imports);
        pickle_report_done(&r);
    }
}

Test(pickle, other_formats_are_told_apart)
{
    static const char *const files[] = {"safetensors_len_0x80.bin", "st_ok_meta.safetensors",
                                        "gg_ok_one.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[512];
        struct error err = ERROR_INIT;
        struct pickle_report r;
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        snprintf(path, sizeof(path), "%s/%s", WB_VECTORS, files[i]);
        read_test_file(path, &b);
        cr_expect_eq(inspect(b.data, b.len, &r, &err), -1);
        cr_expect_eq(err.code, ERR_INVALID);
        cr_expect(strstr(err.text, i < 2 ? "safetensors" : "GGUF"), "%s", err.text);
        pickle_report_done(&r);
    }
}

/* ---- what PyTorch itself wrote (tests/oracle/make_pickles.py) ---- */

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_reference(const char *file, const char *container, const char *tensors,
                            const char *types, const char *imports)
{
    char path[512];
    char *words[64];
    struct error err = ERROR_INIT;
    struct pickle_report r;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT, sums = STRBUF_INIT, names = STRBUF_INIT;
    snprintf(path, sizeof(path), FILES "%s", file);
    read_test_file(path, &b);
    cr_assert_eq(inspect(b.data, b.len, &r, &err), 0, "%s: %s", file, err.text);
    cr_expect_eq(r.container, strcmp(container, "zip") == 0 ? PICKLE_ZIP : PICKLE_LEGACY);
    cr_expect_leq(r.verdict, PICKLE_EXTENDED, "%s", file);
    cr_expect(r.tensors_known, "%s", file);
    cr_expect_not(r.broken, "%s: %s", file, r.broken_why);
    cr_expect_str_eq(r.warning, "", "%s: %s", file, r.warning);
    cr_expect_eq(r.n_tensors, strtoul(tensors, NULL, 10), "%s: %zu", file, r.n_tensors);
    for (size_t i = 0; i < r.weights.n_types; i++)
        strbuf_printf(&sums, "%s%s:%llu:%llu", i ? " " : "", r.weights.types[i].name,
                      (unsigned long long)r.weights.types[i].elements,
                      (unsigned long long)r.weights.types[i].bytes);
    cr_expect_str_eq(strbuf_str(&sums), types, "%s: %s", file, strbuf_str(&sums));
    cr_assert_lt(r.n_imports, ARRAY_LEN(words));
    for (size_t i = 0; i < r.n_imports; i++)
        cr_assert(asprintf(&words[i], "%s.%s", r.imports[i].module, r.imports[i].name) > 0);
    qsort(words, r.n_imports, sizeof(words[0]), compare_words);
    for (size_t i = 0; i < r.n_imports; i++) {
        strbuf_printf(&names, "%s%s", i ? " " : "", words[i]);
        free(words[i]);
    }
    cr_expect_str_eq(strbuf_str(&names), imports, "%s: %s", file, strbuf_str(&names));
    pickle_report_done(&r);
}

Test(pickle, agrees_with_pytorch)
{
    _cleanup_strbuf_ struct strbuf table = STRBUF_INIT;
    unsigned n = 0;
    read_test_file(FILES "pickles.tsv", &table);
    char *rest = table.data;
    strsep(&rest, "\n"); /* the head */
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        char *file = strsep(&line, "\t"), *container = strsep(&line, "\t");
        char *tensors = strsep(&line, "\t"), *types = strsep(&line, "\t");
        cr_assert(types && line);
        check_reference(file, container, tensors, types, line);
    }
    cr_assert_geq(n, 20);
}

Test(pickle, gives_each_tensor_its_name_shape_and_place)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    read_test_file(FILES "tied-zip-2.pt", &b);
    cr_assert_eq(inspect(b.data, b.len, &r, &err), 0, "%s", err.text);
    cr_assert_eq(r.n_tensors, 6);
    static const struct {
        const char *name;
        uint64_t elements, offset;
        size_t n_dims;
        bool alias;
    } expected[] = {
        {"a", 48, 0, 2, false},   {"b", 48, 0, 2, true},      {"c", 48, 0, 2, true},
        {"row", 16, 16, 2, true}, {"scalar", 1, 0, 0, false}, {"zero", 0, 0, 2, false},
    };
    for (size_t i = 0; i < r.n_tensors; i++) {
        const struct pickle_tensor *t = &r.tensors[i];
        cr_expect_str_eq(t->name, expected[i].name);
        cr_expect_str_eq(t->type, "F32");
        cr_expect_eq(t->elements, expected[i].elements, "%s", t->name);
        cr_expect_eq(t->storage_offset, expected[i].offset, "%s", t->name);
        cr_expect_eq(t->n_dims, expected[i].n_dims, "%s", t->name);
        cr_expect_eq(t->alias, expected[i].alias, "%s", t->name);
    }
    cr_expect(r.tensors[2].dims[0] == 8 && r.tensors[2].dims[1] == 6); /* transposed */
    pickle_report_done(&r);
}

/* ---- pickles by hand ---- */

struct by_hand {
    const char *what;
    const char *data;
    size_t len;
    enum pickle_verdict verdict;
    const char *imports;
    bool broken;
};
#define HAND(s) s, sizeof(s) - 1

static const struct by_hand by_hand[] = {
    {"two pickles, the second one bad",
     HAND("\x80\x02N.\x80\x02"
          "cos\nsystem\n."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"INST", HAND("(S'id'\nios\nsystem\n."), PICKLE_DANGEROUS, "dangerous os.system", false},
    {"the names through the memo",
     HAND("\x80\x04\x8c\x02os\x94\x8c\x06system\x94"
          "00h\0h\1\x93."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"the memo by text, as Python reads numbers",
     HAND("S'os'\np 0_1\n0S'system'\np+2\n0g1\ng2 \n\x93."), PICKLE_DANGEROUS,
     "dangerous os.system", false},
    {"a memo index that is far away",
     HAND("\x80\x04\x8c\x02osr\xff\xff\xff\xff"
          "0j\xff\xff\xff\xff\x8c\x06system\x93."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"MEMOIZE counts what is in the memo, not how often it was written",
     HAND("\x80\x04\x8c\x0b"
          "collectionsq\0q\0"
          "0\x8c\x02os\x94"
          "0\x8c\x06system\x94"
          "0h\1h\2\x93."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"a name that is computed", HAND("\x80\x04\x8c\x02osN\x85\x93."), PICKLE_DANGEROUS,
     "dangerous os.?", false},
    {"a module that is computed", HAND("\x80\x04N\x85\x8c\x06system\x93."), PICKLE_UNKNOWN,
     "unknown ?.?", false},
    {"a name with an escape", HAND("Vos\nV\\u0073ystem\n\x93."), PICKLE_DANGEROUS, "dangerous os.?",
     false},
    {"two strings on the stack, others in between taken away",
     HAND("\x80\x04\x8c\x02os\x8c\x06system\x8c\x01x0\x93."), PICKLE_DANGEROUS,
     "dangerous os.system", false},
    {"a mark that POP takes away", HAND("\x80\x04\x8c\x02os(0\x8c\x06system\x93."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"POP_MARK and DUP",
     HAND("\x80\x04\x8c\x02os(NN1\x8c\x06system2"
          "0\x93."),
     PICKLE_DANGEROUS, "dangerous os.system", false},
    {"extensions", HAND("\x80\x02\x82\x05\x83\x05\x01\x84\x05\x00\x01\x00."), PICKLE_UNKNOWN,
     "unknown ?.extension 261, unknown ?.extension 5, unknown ?.extension 65541", false},
    {"a name that goes through a module", HAND("\x80\x04\x8c\x05torch\x8c\x09os.system\x93."),
     PICKLE_DANGEROUS, "dangerous torch.os.system", false},
    {"a name that only starts like one", HAND("cosmetics\nsystem\n."), PICKLE_UNKNOWN,
     "unknown osmetics.system", false},
    {"names are exact", HAND("ccollections\nordereddict\n."), PICKLE_UNKNOWN,
     "unknown collections.ordereddict", false},
    {"blanks are part of a name", HAND("ccollections\nOrderedDict \n."), PICKLE_UNKNOWN,
     "unknown collections.OrderedDict ", false},
    {"a carriage return is, too", HAND("ccollections\r\nOrderedDict\r\n."), PICKLE_UNKNOWN,
     "unknown collections\r.OrderedDict\r", false},
    {"a name with a NUL", HAND("ccollections\nOrderedDict\0.x\n."), PICKLE_UNKNOWN,
     "unknown collections.?", false},
    {"a function that is changed",
     HAND("\x80\x02"
          "ctorch._utils\n_rebuild_tensor_v2\nN}U\x08__code__N"
          "s\x86"
          "b."),
     PICKLE_UNKNOWN, "unknown torch._utils._rebuild_tensor_v2", false},
    {"an import after the stack ran out",
     HAND("\x80\x02"
          "0cos\nsystem\n."),
     PICKLE_DANGEROUS, "dangerous os.system", true},
    {"nothing bad, but the stack ran out",
     HAND("\x80\x02"
          "0N."),
     PICKLE_UNREADABLE, "", true},
    {"a memo that was never written", HAND("\x80\x02h\5."), PICKLE_UNREADABLE, "", true},
    {"an unknown protocol", HAND("\x80\x09N."), PICKLE_UNREADABLE, "", true},
    {"no opcode", HAND("\x80\x02N\xff."), PICKLE_UNREADABLE, "", true},
    {"cut off", HAND("\x80\x02]q\0("), PICKLE_UNREADABLE, "", true},
    {"cut off in a line",
     HAND("\x80\x02"
          "ccollections\nOrderedDict\ncos\nsys"),
     PICKLE_UNREADABLE, "allowed collections.OrderedDict", true},
    {"rubbish behind", HAND("\x80\x02N.rubbish"), PICKLE_UNREADABLE, "", true},
    {"frames that lie", HAND("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), PICKLE_ALLOWED, "",
     false},
    {"a frame that ends within a line: Python reading a file sees os.system",
     HAND("\x80\x04\x95\x04\0\0\0\0\0\0\0"
          "cxxxos\nsystem\n."),
     PICKLE_UNKNOWN, "unknown xxxos.system", true},
    {"a frame that ends within an index of the memo",
     HAND("\x80\x04\x8c\x02osq\x02"
          "0\x8c\x0b"
          "collectionsq\x0c"
          "0\x95\2\0\0\0\0\0\0\0g12\n0."),
     PICKLE_UNREADABLE, "", true},
    {"a frame that is left for another one",
     HAND("\x80\x04\x95\x0f\0\0\0\0\0\0\0\x95\x0d\0\0\0\0\0\0\0X\x0c\0\0\0\0cos\nsystem\n."),
     PICKLE_UNREADABLE, "", true},
    {"frames one behind the other, and within each other",
     HAND("\x80\x04\x95\x0b\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0NN\x95\2\0\0\0\0\0\0\0N."),
     PICKLE_ALLOWED, "", false},
    {"buffers", HAND("\x80\x05\x97\x98\x96\1\0\0\0\0\0\0\0x0."), PICKLE_ALLOWED, "", false},
};

Test(pickle, by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        const struct by_hand *h = &by_hand[i];
        struct error err = ERROR_INIT;
        struct pickle_report r;
        int rc = inspect(h->data, h->len, &r, &err);
        if (h->verdict == PICKLE_UNREADABLE && rc < 0) { /* not even one pickle that is whole */
            cr_expect_eq(err.code, ERR_INVALID, "%s: %s", h->what, err.text);
            pickle_report_done(&r);
            continue;
        }
        cr_assert_eq(rc, 0, "%s: %s", h->what, err.text);
        cr_expect_eq(r.verdict, h->verdict, "%s: %s", h->what, pickle_verdict_name(r.verdict));
        cr_expect_eq(r.broken, h->broken, "%s: %s", h->what, r.broken_why);
        EXPECT_IMPORTS(&r, h->imports);
        pickle_report_done(&r);
    }
}

Test(pickle, says_what_is_called_and_where)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    const char data[] =
        "\x80\x02"
        "cos\nsystem\nX\x02\0\0\0id\x85R0cos\nsystem\n0ccollections\nOrderedDict\n.";
    cr_assert_eq(inspect(data, sizeof(data) - 1, &r, &err), 0, "%s", err.text);
    cr_assert_eq(r.n_imports, 2);
    cr_expect(r.imports[0].called && r.imports[0].count == 2 && r.imports[0].at == 2);
    cr_expect_not(r.imports[1].called);
    cr_expect_null(r.imports[0].member);
    pickle_report_done(&r);
}

/* ---- opcodes at random (tests/oracle/make_pickle_programs.py) ---- */

/* One of the imports is it, or a blank that may be, or what comes after some byte depends on the
 * loader, and the report says so. */
static bool covers(const struct pickle_report *r, const char *import)
{
    for (size_t i = 0; i < r->n_imports; i++) {
        char name[256];
        const struct pickle_import *m = &r->imports[i];
        snprintf(name, sizeof(name), "%s.%s", m->module, m->name);
        if (strcmp(name, import) == 0)
            return true;
        size_t len = strlen(m->module);
        if (strcmp(m->name, "?") == 0 &&
            (strcmp(m->module, "?") == 0 || strncmp(import, m->module, len) == 0))
            return true;
    }
    return r->broken && strstr(r->broken_why, "a frame ends");
}

Test(pickle, sees_every_import_that_python_makes)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf table = STRBUF_INIT, data = STRBUF_INIT;
    unsigned n = 0;
    read_test_file(FILES "programs.tsv", &table);
    read_test_file(FILES "programs.bin", &data);
    char *rest = table.data;
    strsep(&rest, "\n"); /* the head */
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
        struct pickle_report r;
        size_t at = strtoul(strsep(&line, "\t"), NULL, 10);
        size_t len = strtoul(strsep(&line, "\t"), NULL, 10);
        cr_assert(line && at <= data.len && len <= data.len - at);
        cr_assert_eq(inspect(data.data + at, len, &r, &err), 0, "program at %zu: %s", at, err.text);
        for (char *import; (import = strsep(&line, " "));)
            cr_expect(covers(&r, import), "program at %zu: %s is missing", at, import);
        pickle_report_done(&r);
    }
    cr_assert_geq(n, 500);
}

/* ---- lengths ---- */

Test(pickle, lengths_that_lie_cost_nothing)
{
    static const struct {
        const char *data;
        size_t len;
    } lies[] = {
        {HAND("\x80\x04\x8d\0\0\0\0\0\x01\0\0")},               /* BINUNICODE8 */
        {HAND("\x80\x04\x8e\0\0\0\0\0\x01\0\0")},               /* BINBYTES8 */
        {HAND("\x80\x05\x96\0\0\0\0\0\x01\0\0")},               /* BYTEARRAY8 */
        {HAND("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff")}, /* more than there can be */
        {HAND("\x80\x02X\xff\xff\xff\xff")},
        {HAND("\x80\x02T\xff\xff\xff\xff")}, /* negative */
        {HAND("\x80\x02\x8b\0\0\0\x80")},
    };
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        struct error err = ERROR_INIT;
        struct pickle_report r;
        struct memory_source memory = {lies[i].data, lies[i].len, 0, 0};
        struct byte_source s = {i < 3 ? 900000000u : lies[i].len + 9, memory_read, &memory};
        int rc = pickle_inspect(&s, &r, &err);
        cr_expect(rc < 0 ? err.code == ERR_INVALID : r.verdict == PICKLE_UNREADABLE, "%zu", i);
        cr_expect_lt(memory.bytes, 1u << 20);
        pickle_report_done(&r);
    }
}

Test(pickle, long_bytes_are_passed_unread)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    const char data[] = "\x80\x04"
                        "ccollections\nOrderedDict\n\x8e\0\0\0\0\0\x01\0\0";
    struct memory_source memory = {data, sizeof(data) - 1, 0, 0};
    struct byte_source s = {2000000000000u, memory_read, &memory}; /* 1 TB of bytes, then zeros */
    cr_assert_eq(pickle_inspect(&s, &r, &err), 0, "%s", err.text);
    cr_expect_eq(r.verdict, PICKLE_UNREADABLE);
    cr_expect(strstr(r.broken_why, "0x00 is no opcode"), "%s", r.broken_why);
    cr_expect_lt(memory.bytes, 1u << 20);
    pickle_report_done(&r);
}

/* ---- zip and tar ---- */

static const char evil[] = "\x80\x02"
                           "cos\nsystem\nX\x02\0\0\0id\x85R.";
static const char good[] = "\x80\x02"
                           "ccollections\nOrderedDict\n)R.";
static const char evil_text[] = "cos\nsystem\n(S'id'\ntR.";

static void check_zip(const char *what, const struct zip_builder *z, enum pickle_verdict verdict,
                      const char *member)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    cr_assert_eq(inspect(z->b.data, z->b.len, &r, &err), 0, "%s: %s", what, err.text);
    cr_expect_eq(r.verdict, verdict, "%s: %s", what, pickle_verdict_name(r.verdict));
    if (member) {
        cr_assert_gt(r.n_imports, 0, "%s", what);
        cr_expect_str_eq(r.imports[0].member, member, "%s", what);
    }
    pickle_report_done(&r);
}

Test(pickle, nothing_hides_in_a_zip)
{
    static const struct {
        const char *what, *name;
        const char *data;
        size_t len;
        struct zip_odd odd;
    } hidden[] = {
        {"among the storages", "m/data/7", HAND(evil), {0}},
        {"packed", "m/data/7", HAND(evil), {.deflate = true}},
        {"old protocol", "m/data/7", HAND(evil_text), {0}},
        {"in no directory", "m/x", HAND(evil), {.unlisted = true}},
        {"under another name", "m/version", HAND(evil), {.local_name = "m/data.pkl"}},
        {"encrypted, it says", "m/x.pkl", HAND(evil), {.flags = 1}},
        {"after the data", "m/x", HAND(evil), {.descriptor = true}},
    };
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        _cleanup_zip_builder_ struct zip_builder z = {0};
        zip_add(&z, "m/data.pkl", good, sizeof(good) - 1, (struct zip_odd){0});
        zip_add(&z, hidden[i].name, hidden[i].data, hidden[i].len, hidden[i].odd);
        zip_add(&z, "m/byteorder", "little", 6, (struct zip_odd){0});
        zip_end(&z, false);
        check_zip(hidden[i].what, &z, PICKLE_DANGEROUS, hidden[i].name);
    }
}

Test(pickle, what_can_not_be_seen_in_a_zip_is_never_clean)
{
    static const struct {
        const char *what;
        struct zip_odd odd;
    } blind[] = {
        {"another method", {.method = 12}},
        {"no local header", {.headless = true}},
    };
    for (size_t i = 0; i < ARRAY_LEN(blind); i++) {
        _cleanup_zip_builder_ struct zip_builder z = {0};
        zip_add(&z, "m/data.pkl", good, sizeof(good) - 1, (struct zip_odd){0});
        zip_add(&z, "m/x", evil, sizeof(evil) - 1, blind[i].odd);
        zip_end(&z, false);
        check_zip(blind[i].what, &z, PICKLE_UNREADABLE, NULL);
    }
    _cleanup_zip_builder_ struct zip_builder z = {0};
    zip_add(&z, "m/data.pkl", "not one", 7, (struct zip_odd){0});
    zip_end(&z, false);
    check_zip("a data.pkl that is none", &z, PICKLE_UNREADABLE, NULL);
}

Test(pickle, numbers_and_texts_in_a_zip_are_no_finding)
{
    static const struct {
        const char *name;
        const char *data;
        size_t len;
    } harmless[] = {
        {"m/data/0", HAND("\x80\x03\0\0\x80?\0\0\x80?")},
        {"m/data/1", HAND("\x80\x02"
                          "c\xc3\xe9\n\xff\n\xff\xff")},
        {"m/vocab.txt", HAND("cat\ndog\nthe\n")},
        {"m/code/x.py", HAND("class X:\n  pass\n")},
        {"m/n", HAND("(.")},
    };
    _cleanup_zip_builder_ struct zip_builder z = {0};
    struct error err = ERROR_INIT;
    struct pickle_report r;
    zip_add(&z, "m/data.pkl", good, sizeof(good) - 1, (struct zip_odd){0});
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
        zip_add(&z, harmless[i].name, harmless[i].data, harmless[i].len, (struct zip_odd){0});
    zip_end(&z, false);
    cr_assert_eq(inspect(z.b.data, z.b.len, &r, &err), 0, "%s", err.text);
    EXPECT_IMPORTS(&r, "allowed collections.OrderedDict");
    cr_expect_eq(r.verdict, PICKLE_ALLOWED, "%s", r.broken_why);
    cr_expect(r.torchscript);
    cr_expect_eq(r.pickles, 1);
    pickle_report_done(&r);
}

Test(pickle, a_pickle_in_front_of_a_zip_is_seen)
{
    _cleanup_zip_builder_ struct zip_builder z = {0}, whole = {0};
    zip_add(&z, "m/data.pkl", good, sizeof(good) - 1, (struct zip_odd){0});
    zip_end(&z, false);
    strbuf_put(&whole.b, evil, sizeof(evil) - 1);
    strbuf_put(&whole.b, z.b.data, z.b.len);
    struct error err = ERROR_INIT;
    struct pickle_report r;
    cr_assert_eq(inspect(whole.b.data, whole.b.len, &r, &err), 0, "%s", err.text);
    cr_expect_eq(r.verdict, PICKLE_DANGEROUS);
    cr_expect_null(r.imports[0].member);
    pickle_report_done(&r);
}

Test(pickle, a_safetensors_header_that_is_a_pickle_as_well_is_seen)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    /* Its length is 0x5550280 as a number; as opcodes: PROTO 2, and a string of five bytes. */
    const char head[] = "\x80\x02U\x05\0\0\0\0{}cos\nsystem\n.";
    size_t size = 0x5550280 + 8;
    _cleanup_free_ char *whole = calloc(1, size);
    cr_assert_not_null(whole);
    memcpy(whole, head, sizeof(head) - 1);
    cr_assert_eq(inspect(whole, size, &r, &err), 0, "%s", err.text);
    EXPECT_IMPORTS(&r, "dangerous os.system");
    pickle_report_done(&r);
}

static void tar_add(struct strbuf *b, const char *name, const void *data, size_t len)
{
    char head[512] = "";
    unsigned sum = 0;
    snprintf(head, 100, "%s", name);
    snprintf(head + 124, 12, "%011zo", len);
    memset(head + 148, ' ', 8);
    for (size_t i = 0; i < sizeof(head); i++)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    strbuf_put(b, head, sizeof(head));
    strbuf_put(b, data, len);
    while (b->len % 512)
        strbuf_putc(b, '\0');
}

Test(pickle, looks_into_the_members_of_a_tar)
{
    for (int bad = 0; bad < 2; bad++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        struct error err = ERROR_INIT;
        struct pickle_report r;
        tar_add(&b, "sys_info", good, sizeof(good) - 1);
        tar_add(&b, bad ? "tensors" : "pickle", bad ? evil : good,
                bad ? sizeof(evil) - 1 : sizeof(good) - 1);
        strbuf_put(&b, (char[1024]){0}, 1024);
        cr_assert_eq(inspect(b.data, b.len, &r, &err), 0, "%s", err.text);
        cr_expect_eq(r.container, PICKLE_TAR);
        cr_expect_eq(r.verdict, bad ? PICKLE_DANGEROUS : PICKLE_ALLOWED, "%s", r.broken_why);
        cr_expect_str_eq(r.imports[0].member, bad ? "tensors" : "sys_info");
        cr_expect_not(r.tensors_known);
        pickle_report_done(&r);
    }
}

/* ---- archives within archives ---- */

/* Behind an inner archive, so that its end is not found as the outer one's. */
static const char far_away[70000];

static void put_evil_zip(struct zip_builder *z)
{
    zip_add(z, "m/data.pkl", evil, sizeof(evil) - 1, (struct zip_odd){0});
    zip_end(z, false);
}

static void wrap(struct zip_builder *z, const char *name, const struct zip_builder *inner)
{
    zip_add(z, name, inner->b.data, inner->b.len, (struct zip_odd){0});
    zip_add(z, "zeros", far_away, sizeof(far_away), (struct zip_odd){0});
    zip_end(z, false);
}

Test(pickle, looks_into_archives_within_archives)
{
    _cleanup_zip_builder_ struct zip_builder inner = {0}, outer = {0}, outermost = {0};
    _cleanup_strbuf_ struct strbuf tar = STRBUF_INIT;
    struct error err = ERROR_INIT;
    struct pickle_report r;
    put_evil_zip(&inner);
    wrap(&outer, "weights.pt", &inner);
    check_zip("a zip in a zip", &outer, PICKLE_DANGEROUS, "weights.pt/m/data.pkl");
    wrap(&outermost, "all.zip", &outer);
    check_zip("in a zip", &outermost, PICKLE_DANGEROUS, "all.zip/weights.pt/m/data.pkl");
    tar_add(&tar, "./weights.ckpt", inner.b.data, inner.b.len);
    tar_add(&tar, "./zeros", far_away, sizeof(far_away));
    strbuf_put(&tar, (char[1024]){0}, 1024);
    cr_assert_eq(inspect(tar.data, tar.len, &r, &err), 0, "%s", err.text);
    cr_expect_eq(r.verdict, PICKLE_DANGEROUS);
    cr_expect_eq(r.container, PICKLE_TAR);
    cr_expect_str_eq(r.imports[0].member, "./weights.ckpt/m/data.pkl");
    pickle_report_done(&r);
}

Test(pickle, archives_that_are_not_looked_into_are_never_clean)
{
    _cleanup_zip_builder_ struct zip_builder inner = {0}, outer = {0};
    put_evil_zip(&inner);
    zip_add(&outer, "weights.pt", inner.b.data, inner.b.len, (struct zip_odd){.deflate = true});
    zip_end(&outer, false);
    check_zip("packed", &outer, PICKLE_UNREADABLE, NULL);
    for (int deep = 0; deep < 5; deep++) {
        struct zip_builder next = {0};
        wrap(&next, "x.zip", &inner);
        zip_builder_done(&inner);
        inner = next;
    }
    check_zip("deep", &inner, PICKLE_UNREADABLE, NULL);
}

Test(pickle, members_over_each_other_do_not_cost_without_end)
{
    /* 3,000 entries for the same megabyte of opcodes */
    _cleanup_zip_builder_ struct zip_builder z = {0};
    struct error err = ERROR_INIT;
    struct pickle_report r;
    size_t len = 1u << 20;
    _cleanup_free_ char *ops = malloc(len);
    cr_assert_not_null(ops);
    memset(ops, 'N', len);
    memcpy(ops, "\x80\x02", 2);
    zip_add(&z, "m/data.pkl", ops, len, (struct zip_odd){0});
    _cleanup_strbuf_ struct strbuf entry = STRBUF_INIT;
    strbuf_put(&entry, z.directory.data, z.directory.len);
    for (unsigned i = 0; i < 3000; i++) {
        entry.data[46] = (char)('A' + i % 50);
        entry.data[47] = (char)('A' + i / 50);
        strbuf_put(&z.directory, entry.data, entry.len);
    }
    zip_end(&z, false);
    cr_expect_eq(inspect(z.b.data, z.b.len, &r, &err), -1);
    cr_expect_eq(err.code, ERR_TOO_LARGE, "%s", err.text);
    pickle_report_done(&r);
}

Test(pickle, counting_past_all_limits_ends_soon_and_hides_nothing)
{
    /* MEMOIZE, 14 million times; then an import out of an index that was written again */
    static const char head[] = "\x80\x04\x8c\x02osr\xff\xff\xff\xff";
    static const char tail[] = "0\x8c\x0b"
                               "collectionsr\xff\xff\xff\xff"
                               "0j\xff\xff\xff\xff\x8c\x06system\x93.";
    _cleanup_zip_builder_ struct zip_builder z = {0};
    size_t n = 14u << 20, len = n + sizeof(head) - 1 + sizeof(tail) - 1;
    _cleanup_free_ char *ops = malloc(len);
    cr_assert_not_null(ops);
    memcpy(ops, head, sizeof(head) - 1);
    memset(ops + sizeof(head) - 1, '\x94', n);
    memcpy(ops + sizeof(head) - 1 + n, tail, sizeof(tail) - 1);
    zip_add(&z, "m/data.pkl", ops, len, (struct zip_odd){.deflate = true});
    zip_end(&z, false);
    check_zip("a count without end", &z, PICKLE_UNKNOWN, NULL);
}

Test(pickle, objects_in_numpy_arrays_are_walked)
{
    static const char head[] = "{'descr':'|O','fortran_order':False,'shape':(1,)}\n";
    static const struct {
        const char *head, *pickle;
        size_t len;
        enum pickle_verdict verdict;
    } cases[] = {
        {head, HAND(evil), PICKLE_DANGEROUS},
        {head, HAND(good), PICKLE_ALLOWED},
        {"{'descr':'|' 'O'}", HAND(evil), PICKLE_UNREADABLE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        _cleanup_zip_builder_ struct zip_builder z = {0};
        strbuf_put(&b, "\x93NUMPY\1\0", 8);
        zip_put_int(&b, strlen(cases[i].head), 2);
        strbuf_puts(&b, cases[i].head);
        strbuf_put(&b, cases[i].pickle, cases[i].len);
        zip_add(&z, "x.npy", b.data, b.len, (struct zip_odd){.deflate = i % 2});
        zip_end(&z, false);
        check_zip(cases[i].head, &z, cases[i].verdict, NULL);
    }
}

/* ---- tensors ---- */

static void check_tensor(const char *what, const void *data, size_t len, bool known)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    cr_assert_eq(inspect(data, len, &r, &err), 0, "%s: %s", what, err.text);
    cr_expect_eq(r.tensors_known, known, "%s", what);
    cr_expect_eq(r.n_tensors, known ? 1 : 0, "%s", what);
    pickle_report_done(&r);
}

#define STORAGE(type, n)                                                                           \
    "(X\x07\0\0\0storagectorch\n" type "\nX\1\0\0\0"                                               \
    "0X\3\0\0\0"                                                                                   \
    "cpuK" n "tQ"
#define REBUILD(args)                                                                              \
    "\x80\x02"                                                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\n(" args "tR."

Test(pickle, tensors_that_are_not_plain_are_not_counted)
{
    static const struct {
        const char *what;
        const char *data;
        size_t len;
        bool known;
    } cases[] = {
        {"plain", HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\0K\2K\3\x86K\3K\1\x86")), true},
        {"beyond its storage",
         HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\1K\2K\3\x86K\3K\1\x86")), false},
        {"a stride beyond", HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\0K\2\x85K\6\x85")),
         false},
        {"negative", HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\0J\xff\xff\xff\xff\x85K\1\x85")),
         false},
        {"overflow",
         HAND(REBUILD(STORAGE(
             "FloatStorage",
             "\6") "K\0\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86K\1K\1\x86")),
         false},
        {"no storage", HAND(REBUILD("NK\0K\1\x85K\1\x85")), false},
        {"an unknown type", HAND(REBUILD(STORAGE("OddStorage", "\6") "K\0K\1\x85K\1\x85")), false},
        {"a stride too few", HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\0K\2K\3\x86K\3\x85")),
         false},
        {"broadcast: more elements than the storage",
         HAND(REBUILD(STORAGE("FloatStorage", "\6") "K\0K\x7f\x85K\0\x85")), true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_tensor(cases[i].what, cases[i].data, cases[i].len, cases[i].known);
}

Test(pickle, a_storage_with_two_types_is_not_understood)
{
    struct error err = ERROR_INIT;
    struct pickle_report r;
    const char data[] = "\x80\x02(" STORAGE("FloatStorage", "\6") STORAGE("LongStorage", "\3") "t.";
    cr_assert_eq(inspect(data, sizeof(data) - 1, &r, &err), 0, "%s", err.text);
    cr_expect_not(r.tensors_known);
    pickle_report_done(&r);
}

/* ---- files in bytes ---- */

#define LEGACY_HEAD                                                                                \
    "\x80\2\x8a\x0al\xfc\x9c"                                                                      \
    "F\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}."
#define LOADER "ctorch.storage\n_load_from_bytes\n"
/* Its storage: four floats. */
#define IN_BYTES                                                                                   \
    LEGACY_HEAD "\x80\2" STORAGE("FloatStorage", "\4") ".\x80\2]X\1\0\0\0"                         \
                                                       "0a."                                       \
                                                       "\4\0\0\0\0\0\0\0"                          \
                                                       "abcdabcdabcdabcd"

static void put_bytes(struct strbuf *b, const char *bytes, size_t len)
{
    strbuf_putc(b, 'B');
    zip_put_int(b, len, 4);
    strbuf_put(b, bytes, len);
}

Test(pickle, files_in_bytes_are_walked)
{
    static const char evil_in_bytes[] = LEGACY_HEAD "cos\nsystem\n(X\2\0\0\0idtR.";
    static const struct {
        const char *what;
        const char *before;
        size_t before_len;
        const char *after;
        size_t after_len;
        const char *bytes;
        size_t len;
        enum pickle_verdict verdict;
        bool known;
    } cases[] = {
        {"a tensor",
         HAND("\x80\3"
              "ctorch._utils\n_rebuild_tensor_v2\n(" LOADER),
         HAND("\x85RK\0K\4\x85K\1\x85tR."), HAND(IN_BYTES), PICKLE_EXTENDED, true},
        {"the loader twice", HAND("\x80\3" LOADER "q\1"), HAND("q\2\x85R0h\1h\2\x85R."),
         HAND(IN_BYTES), PICKLE_EXTENDED, true},
        {"evil", HAND("\x80\3" LOADER), HAND("\x85R."), HAND(evil_in_bytes), PICKLE_DANGEROUS,
         false},
        {"no file", HAND("\x80\3" LOADER), HAND("\x85R."), HAND("abc"), PICKLE_UNKNOWN, false},
        {"once more, with bytes that are computed", HAND("\x80\3" LOADER "q\1"),
         HAND("\x85R0h\1N\x85R."), HAND(IN_BYTES), PICKLE_UNKNOWN, false},
        {"never called", HAND("\x80\3" LOADER "0" LOADER), HAND("\x85R."), HAND(IN_BYTES),
         PICKLE_UNKNOWN, true},
        {"through another function",
         HAND("\x80\3"
              "ctorch._tensor\n_rebuild_from_type_v2\n(" LOADER "N"),
         HAND("\x85NtR."), HAND(IN_BYTES), PICKLE_UNKNOWN, false},
        {"changed", HAND("\x80\3" LOADER "Nb"), HAND("\x85R."), HAND(IN_BYTES), PICKLE_UNKNOWN,
         true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = ERROR_INIT;
        struct pickle_report r;
        _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
        strbuf_put(&b, cases[i].before, cases[i].before_len);
        put_bytes(&b, cases[i].bytes, cases[i].len);
        strbuf_put(&b, cases[i].after, cases[i].after_len);
        cr_assert_eq(inspect(b.data, b.len, &r, &err), 0, "%s: %s", cases[i].what, err.text);
        cr_expect_eq(r.verdict, cases[i].verdict, "%s: %s", cases[i].what,
                     pickle_verdict_name(r.verdict));
        cr_expect_eq(r.tensors_known, cases[i].known, "%s", cases[i].what);
        if (i == 0) {
            cr_assert_eq(r.n_tensors, 1);
            cr_expect_eq(r.weights.tensor_bytes, 16);
        }
        pickle_report_done(&r);
    }
}

/* ---- judgement ---- */

Test(pickle, judges_the_exact_pair)
{
    static const struct {
        const char *module, *name;
        enum pickle_verdict verdict;
    } cases[] = {
        {"torch._utils", "_rebuild_tensor_v2", PICKLE_ALLOWED},
        {"torch", "BFloat16Storage", PICKLE_ALLOWED},
        {"torch", "float8_e4m3fn", PICKLE_EXTENDED},
        {"torch.nn.parameter", "Parameter", PICKLE_EXTENDED},
        {"torch", "FloatStorage.__class__", PICKLE_UNKNOWN},
        {"torch", "", PICKLE_UNKNOWN},
        {"", "", PICKLE_UNKNOWN},
        {"torch", " ", PICKLE_UNKNOWN},
        {"torch", "FloatStorage HalfStorage", PICKLE_UNKNOWN},
        {"torch.storage", "_load_from_bytes", PICKLE_UNKNOWN},
        {"torch", "load", PICKLE_DANGEROUS},
        {"builtins", "__import__", PICKLE_DANGEROUS},
        {"__builtin__", "eval", PICKLE_DANGEROUS},
        {"builtins", "evaluate", PICKLE_UNKNOWN},
        {"subprocess", "Popen", PICKLE_DANGEROUS},
        {"importlib.machinery", "anything", PICKLE_DANGEROUS},
        {"importlib_metadata", "anything", PICKLE_UNKNOWN},
        {"numpy", "os.system", PICKLE_DANGEROUS},
        {"types", "CodeType", PICKLE_DANGEROUS},
        {"?", "?", PICKLE_UNKNOWN},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_eq(pickle_judge(cases[i].module, cases[i].name), cases[i].verdict, "%s.%s: %s",
                     cases[i].module, cases[i].name,
                     pickle_verdict_name(pickle_judge(cases[i].module, cases[i].name)));
}
