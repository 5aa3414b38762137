/* The JSON of a Hub's own API: rows, pages, info objects, and what clients send. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/hub_json.h"

#define OID "0123456789abcdef0123456789abcdef01234567"
#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LFS_ROW "\"lfs\":{\"oid\":\"" SHA "\",\"size\":1234567,\"pointerSize\":132},"

static struct hub_listing listing;
static struct strbuf out;

static void set_up(void)
{
    listing = (struct hub_listing){0};
    out = STRBUF_INIT;
}

static void tear_down(void)
{
    free(listing.list.files);
    free(listing.folders);
    strbuf_done(&out);
}

TestSuite(hub_json, .init = set_up, .fini = tear_down, .timeout = 60);

/* In the order of their paths; those that end in .bin and .gguf are LFS files. */
static void has_files(const char *const *paths, size_t n)
{
    listing.list.files = calloc(n + 1, sizeof(*listing.list.files));
    listing.list.n = n;
    for (size_t i = 0; i < n; i++) {
        struct commit_file *f = &listing.list.files[i];
        *f = (struct commit_file){.path = paths[i], .size = 7, .git_oid = OID};
        if (strstr(paths[i], ".bin") || strstr(paths[i], ".gguf")) {
            f->size = 1234567;
            f->has_lfs = true;
            cr_assert_eq(digest_parse_hex(DIGEST_SHA256, SHA, &f->sha256, NULL), 0);
        }
    }
}

static void has_folders(const char *const *paths, size_t n)
{
    listing.folders = calloc(n + 1, sizeof(*listing.folders));
    listing.n_folders = n;
    for (size_t i = 0; i < n; i++)
        listing.folders[i] = (struct hub_folder){.path = paths[i], .git_oid = OID};
}

#define FILES(...)                                                                                 \
    has_files((const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *const[]){__VA_ARGS__})))
#define FOLDERS(...)                                                                               \
    has_folders((const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *const[]){__VA_ARGS__})))

/* `key` of every element of the array, with blanks between. */
static void expect_column(const char *key, const char *want)
{
    struct error err = ERROR_INIT;
    _cleanup_json_ struct json *root = NULL;
    _cleanup_strbuf_ struct strbuf got = STRBUF_INIT;
    cr_assert_eq(json_parse(strbuf_str(&out), out.len, &root, &err), 0, "%s", err.text);
    cr_assert(json_is_array(root));
    for (const struct json *j = json_first(root); j; j = json_next(j))
        strbuf_printf(&got, "%s%s", got.len ? " " : "", json_str(json_get(j, key)));
    cr_expect_str_eq(strbuf_str(&got), want, "\"%s\" instead of \"%s\"", strbuf_str(&got), want);
}

static void expect_text(const char *want)
{
    cr_expect_str_eq(strbuf_str(&out), want, "\n%s\ninstead of\n%s", strbuf_str(&out), want);
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* In pieces it is the same. */
static void expect_pieces(const char *folder, bool recursive, size_t step)
{
    _cleanup_strbuf_ struct strbuf all = STRBUF_INIT;
    struct hub_walk w;
    cr_assert(hub_walk_begin(&w, &listing, folder, recursive, ""));
    strbuf_putc(&all, '[');
    while (hub_walk_rows(&w, &all, all.len + step))
        ;
    strbuf_putc(&all, ']');
    cr_expect_str_eq(strbuf_str(&all), strbuf_str(&out));
}

static bool tree(const char *folder, bool recursive)
{
    struct hub_page page = {.after = "", .limit = UINT64_MAX};
    strbuf_reset(&out);
    bool is_there = hub_put_tree(&out, &listing, folder, recursive, &page);
    cr_expect_null(page.last);
    if (is_there) {
        expect_pieces(folder, recursive, 1);
        expect_pieces(folder, recursive, 200);
    }
    return is_there;
}

Test(hub_json, rows_are_those_of_the_hub)
{
    FILES("a.bin", "d/b.txt");
    FOLDERS("d");
    cr_assert(tree("", true));
    expect_text("[{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":1234567," LFS_ROW
                "\"path\":\"a.bin\"},"
                "{\"type\":\"directory\",\"oid\":\"" OID "\",\"size\":0,\"path\":\"d\"},"
                "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":7,\"path\":\"d/b.txt\"}]");
}

Test(hub_json, a_folder_is_no_more_than_its_own)
{
    FILES("a", "d-x", "d.txt", "d/a", "d/e/f", "d/z", "d0", "e/f");
    FOLDERS("d", "d-y", "d/e", "d0x", "e");
    cr_assert(tree("", false));
    expect_column("path", "a d d-x d-y d.txt d0 d0x e");
    cr_assert(tree("", true));
    expect_column("path", "a d d-x d-y d.txt d/a d/e d/e/f d/z d0 d0x e e/f");
    cr_assert(tree("d", false));
    expect_column("path", "d/a d/e d/z");
    cr_assert(tree("d", true));
    expect_column("path", "d/a d/e d/e/f d/z");
    cr_assert(tree("d/e", true));
    expect_column("path", "d/e/f");
    cr_assert(tree("d-y", true));
    expect_column("path", "");
    expect_text("[]");
}

Test(hub_json, only_folders_have_a_tree)
{
    FILES("a", "d/b");
    FOLDERS("d");
    cr_expect_not(tree("a", false));
    cr_expect_not(tree("d/b", true));
    cr_expect_not(tree("d/", false));
    cr_expect_not(tree("dd", false));
    cr_expect_not(tree("additional_chat_templates", false));
}

Test(hub_json, a_repository_may_be_empty)
{
    cr_assert(tree("", true));
    expect_text("[]");
    cr_expect_not(tree("d", false));
}

Test(hub_json, names_are_escaped)
{
    FILES("a\"b \xc3\xa9.txt");
    cr_assert(tree("", false));
    cr_expect(strstr(strbuf_str(&out), "\"path\":\"a\\\"b \xc3\xa9.txt\""));
    expect_column("path", "a\"b \xc3\xa9.txt");
}

/* All pages of a folder, one after the other. */
static void expect_pages(const char *folder, bool recursive, uint64_t limit, const char *want)
{
    _cleanup_strbuf_ struct strbuf all = STRBUF_INIT;
    char after[64] = "";
    for (unsigned i = 0; i < 20; i++) {
        struct hub_page page = {.after = after, .limit = limit};
        struct error err = ERROR_INIT;
        _cleanup_json_ struct json *root = NULL;
        strbuf_reset(&out);
        cr_assert(hub_put_tree(&out, &listing, folder, recursive, &page));
        cr_assert_eq(json_parse(strbuf_str(&out), out.len, &root, &err), 0, "%s", err.text);
        for (const struct json *j = json_first(root); j; j = json_next(j))
            strbuf_printf(&all, "%s ", json_str(json_get(j, "path")));
        strbuf_puts(&all, "| ");
        if (!page.last)
            break;
        cr_assert_eq(json_length(root), limit);
        snprintf(after, sizeof(after), "%s", page.last);
    }
    cr_expect_str_eq(strbuf_str(&all), want, "\"%s\" instead of \"%s\"", strbuf_str(&all), want);
}

Test(hub_json, pages_have_every_row_once)
{
    FILES("a", "d-x", "d/a", "d/e/f", "d/z", "e/f");
    FOLDERS("d", "d/e", "e");
    expect_pages("", true, 4, "a d d-x d/a | d/e d/e/f d/z e | e/f | ");
    expect_pages("", true, 3, "a d d-x | d/a d/e d/e/f | d/z e e/f | ");
    expect_pages("", false, 1, "a | d | d-x | e | ");
    expect_pages("d", true, 2, "d/a d/e | d/e/f d/z | ");
    expect_pages("d", false, 3, "d/a d/e d/z | ");
}

Test(hub_json, a_page_may_begin_behind_everything)
{
    FILES("a", "d/a");
    FOLDERS("d");
    struct hub_page page = {.after = "zz", .limit = 5};
    cr_assert(hub_put_tree(&out, &listing, "", true, &page));
    expect_text("[]");
    page = (struct hub_page){.after = "d/zz", .limit = 5};
    strbuf_reset(&out);
    cr_assert(hub_put_tree(&out, &listing, "d", true, &page));
    expect_text("[]");
    cr_expect_null(page.last);
}

/* What is directly in the folder, or below it. */
static bool belongs(const char *path, const char *folder, bool recursive)
{
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) != 0 || path[n] != '/'))
        return false;
    return recursive || !strchr(path + n + (n > 0), '/');
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

enum { TREE_MAX = 64, NAME_SIZE = 16 };
struct names {
    char text[TREE_MAX][NAME_SIZE];
    size_t n;
};

static void add_name(struct names *l, const char *text, size_t len)
{
    char name[NAME_SIZE] = "";
    memcpy(name, text, len);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->text[i], name) == 0)
            return;
    cr_assert_lt(l->n, TREE_MAX);
    memcpy(l->text[l->n++], name, sizeof(name));
}

/* Names of bytes on both sides of '/', so that what is in a folder is not all that is sorted behind
 * it. */
static void make_names(unsigned *seed, struct names *files, struct names *folders)
{
    static const char *const parts[] = {"a", "b", "a-", "a0", "a.b", "-", "ab"};
    *files = *folders = (struct names){0};
    for (unsigned i = 0; i < 20; i++) {
        char path[NAME_SIZE] = "";
        unsigned depth = 1 + (unsigned)rand_r(seed) % 3;
        for (unsigned k = 0; k < depth; k++) {
            strcat(path, k ? "/" : "");
            strcat(path, parts[(unsigned)rand_r(seed) % ARRAY_LEN(parts)]);
        }
        strcat(path, "!"); /* no file is called as a folder */
        add_name(files, path, strlen(path));
        for (const char *p = path; (p = strchr(p, '/')); p++)
            add_name(folders, path, (size_t)(p - path));
    }
    qsort(files->text, files->n, NAME_SIZE, by_text);
    qsort(folders->text, folders->n, NAME_SIZE, by_text);
}

static void expect_folder(const struct names *all, const char *folder, bool recursive)
{
    _cleanup_strbuf_ struct strbuf want = STRBUF_INIT;
    for (size_t i = 0; i < all->n; i++)
        if (belongs(all->text[i], folder, recursive))
            strbuf_printf(&want, "%s%s", want.len ? " " : "", all->text[i]);
    cr_assert(tree(folder, recursive));
    expect_column("path", strbuf_str(&want));
}

Test(hub_json, every_folder_of_any_tree)
{
    unsigned seed = 1;
    for (unsigned round = 0; round < 200; round++) {
        struct names files, folders, all;
        const char *texts[TREE_MAX];
        make_names(&seed, &files, &folders);
        for (size_t i = 0; i < files.n; i++)
            texts[i] = files.text[i];
        has_files(texts, files.n);
        for (size_t i = 0; i < folders.n; i++)
            texts[i] = folders.text[i];
        has_folders(texts, folders.n);
        all = files;
        for (size_t i = 0; i < folders.n; i++)
            add_name(&all, folders.text[i], strlen(folders.text[i]));
        qsort(all.text, all.n, NAME_SIZE, by_text);
        for (unsigned recursive = 0; recursive < 2; recursive++) {
            expect_folder(&all, "", recursive);
            for (size_t i = 0; i < folders.n; i++)
                expect_folder(&all, folders.text[i], recursive);
        }
        free(listing.list.files);
        free(listing.folders);
        listing = (struct hub_listing){0};
    }
}

Test(hub_json, a_hundred_thousand_files_are_one_answer)
{
    enum { N = 100000 };
    static char paths[N][24];
    struct error err = ERROR_INIT;
    _cleanup_json_ struct json *root = NULL;
    listing.list.files = calloc(N, sizeof(*listing.list.files));
    listing.list.n = N;
    for (size_t i = 0; i < N; i++) {
        snprintf(paths[i], sizeof(paths[i]), "data/%08zu.txt", i);
        listing.list.files[i] = (struct commit_file){.path = paths[i], .size = i, .git_oid = OID};
    }
    FOLDERS("data");
    cr_assert(tree("", true));
    cr_assert_not(strbuf_failed(&out));
    cr_assert_eq(json_parse(strbuf_str(&out), out.len, &root, &err), 0, "%s", err.text);
    cr_expect_eq(json_length(root), N + 1);
    cr_assert(tree("data", false));
    cr_assert(tree("", false));
    expect_column("path", "data");
}

/* ---- some paths ------------------------------------------------------------------------------ */

static int read_paths(const char *type, const char *body, struct hub_words *w, struct error *err)
{
    *w = (struct hub_words){0};
    return hub_paths_read(type, body, strlen(body), w, err);
}

static void expect_words(const char *type, const char *body, const char *want)
{
    struct error err = ERROR_INIT;
    _cleanup_(hub_words_done) struct hub_words w;
    _cleanup_strbuf_ struct strbuf got = STRBUF_INIT;
    const char *word = NULL;
    cr_assert_eq(read_paths(type, body, &w, &err), 0, "%s: %s", body, err.text);
    for (size_t i = 0; i < w.n; i++) {
        word = hub_words_next(&w, word);
        strbuf_printf(&got, "[%s]", word);
    }
    cr_expect_str_eq(strbuf_str(&got), want, "%s: %s instead of %s", body, strbuf_str(&got), want);
}

#define FORM "application/x-www-form-urlencoded"

Test(hub_json, paths_come_as_a_form)
{
    expect_words(FORM, "paths=a&paths=b%2Fc&expand=false", "[a][b/c]");
    expect_words(FORM, "paths=a+b%2B+%C3%A9", "[a b+ \xc3\xa9]");
    expect_words(FORM, "expand=True&paths=%2Fa%2F", "[a]");
    expect_words(FORM, "&&paths[]=a&paths%5B%5D=b&", "[a][b]");
    expect_words(FORM, "paths=&paths", "[][]");
    expect_words(FORM, "expand=False", "");
    expect_words(FORM, "", "");
    expect_words(NULL, "paths=a", "[a]");
}

Test(hub_json, paths_come_as_json)
{
    expect_words("application/json", "{\"paths\":[\"a\",\"b/c\"],\"expand\":true}", "[a][b/c]");
    expect_words("application/json; charset=utf-8", "{\"paths\":\"a+b/\"}", "[a+b]");
    expect_words("application/json", "{\"paths\":[]}", "");
    expect_words("application/json", "{}", "");
    expect_words(NULL, " {\"paths\":[\"a\"]}", "[a]");
}

Test(hub_json, bodies_that_are_refused)
{
    static const struct {
        const char *type, *body, *why;
    } cases[] = {
        {FORM, "paths=%", "hexadecimal"},
        {FORM, "paths=%4", "hexadecimal"},
        {FORM, "paths=%4g", "hexadecimal"},
        {FORM, "paths=a%00b", "NUL"},
        {"application/json", "", "the body"},
        {"application/json", "{\"paths\":[\"a\"]", "the body"},
        {"application/json", "[\"a\"]", "must be an object"},
        {"application/json", "{\"paths\":{\"a\":1}}", "array of strings"},
        {"application/json", "{\"paths\":null}", "array of strings"},
        {"application/json", "{\"paths\":[\"a\",1]}", "is no string"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = ERROR_INIT;
        struct hub_words w;
        cr_expect_eq(read_paths(cases[i].type, cases[i].body, &w, &err), -1, "%s", cases[i].body);
        cr_expect_eq(err.code, ERR_INVALID, "%s", cases[i].body);
        cr_expect(strstr(err.text, cases[i].why), "%s: %s", cases[i].body, err.text);
        cr_expect_null(w.text.data);
    }
}

Test(hub_json, a_thousand_paths_and_no_more)
{
    for (unsigned json = 0; json < 2; json++)
        for (unsigned n = HUB_PATHS_MAX; n <= HUB_PATHS_MAX + 1; n++) {
            struct error err = ERROR_INIT;
            _cleanup_(hub_words_done) struct hub_words w = {0};
            _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
            strbuf_puts(&body, json ? "{\"paths\":[\"0\"" : "paths=0");
            for (unsigned i = 1; i < n; i++)
                strbuf_printf(&body, json ? ",\"%u\"" : "&paths=%u", i);
            strbuf_puts(&body, json ? "]}" : "");
            int r = read_paths(json ? "application/json" : FORM, strbuf_str(&body), &w, &err);
            cr_expect_eq(r, n > HUB_PATHS_MAX ? -1 : 0, "%u: %s", n, err.text);
            cr_expect_eq(w.n, n > HUB_PATHS_MAX ? 0 : n);
        }
}

Test(hub_json, paths_that_are_not_there_are_left_out)
{
    FILES("a.bin", "d/b");
    FOLDERS("d");
    _cleanup_(hub_words_done) struct hub_words w;
    struct error err = ERROR_INIT;
    cr_assert_eq(read_paths(FORM, "paths=d%2Fb&paths=x&paths=&paths=d/&paths=a.bin&paths=d%2F%2Fb",
                            &w, &err),
                 0);
    hub_put_paths(&out, &listing, &w);
    expect_column("path", "d/b d a.bin");
    strbuf_reset(&out);
    hub_put_paths(&out, &listing, &(struct hub_words){0});
    expect_text("[]");
}

/* ---- queries --------------------------------------------------------------------------------- */

static struct hub_options options(const char *query)
{
    struct hub_options o = {0};
    struct error err = ERROR_INIT;
    cr_assert_eq(hub_options_read(query, &o, &err), 0, "%s: %s", query ? query : "", err.text);
    return o;
}

Test(hub_json, booleans_are_written_in_many_ways)
{
    static const char *const yes[] = {"recursive=true", "recursive=True", "recursive=TRUE",
                                      "recursive=1", "x=1&recursive=%54rue&recursivee=0"};
    static const char *const no[] = {"recursive=false",
                                     "recursive=False",
                                     "recursive=0",
                                     "recursive=",
                                     "recursive",
                                     "Recursive=true",
                                     ""};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        struct hub_options o = options(yes[i]);
        cr_expect(o.recursive, "%s", yes[i]);
        hub_options_done(&o);
    }
    for (size_t i = 0; i < ARRAY_LEN(no); i++) {
        struct hub_options o = options(no[i]);
        cr_expect_not(o.recursive, "%s", no[i]);
        hub_options_done(&o);
    }
    struct hub_options o = options("blobs=True&include_prs=1&expand=True&securityStatus=true");
    cr_expect(o.blobs && o.pull_requests && o.is_expanded && !o.recursive);
    cr_expect_eq(o.expand.n, 0);
    hub_options_done(&o);
}

Test(hub_json, lists_and_numbers_of_a_query)
{
    struct hub_options o = options(
        "expand=sha&expand[]=likes&expand%5B%5D=%63onfig&expand%5b%5d=tags&limit=20&cursor=a%2Fb+c"
        "&p=3");
    static const char *const want[] = {"sha", "likes", "config", "tags"};
    const char *word = NULL;
    cr_assert_eq(o.expand.n, ARRAY_LEN(want));
    for (size_t i = 0; i < o.expand.n; i++) {
        word = hub_words_next(&o.expand, word);
        cr_expect_str_eq(word, want[i]);
    }
    cr_expect_not(o.is_expanded);
    cr_expect_eq(o.limit, 20);
    cr_expect_eq(o.page, 3);
    cr_expect_str_eq(strbuf_str(&o.cursor), "a/b+c");
    hub_options_done(&o);
    o = options(NULL);
    cr_expect_eq(o.limit, UINT64_MAX);
    cr_expect_eq(o.page, 0);
    cr_expect_str_eq(strbuf_str(&o.cursor), "");
    hub_options_done(&o);
    o = options("limit=99999999999999999999999");
    cr_expect_eq(o.limit, UINT64_MAX);
    hub_options_done(&o);
}

Test(hub_json, queries_that_are_refused)
{
    static const char *const bad[] = {"limit=0", "limit=-1", "limit=", "limit=1x",
                                      "p=x",     "a=%zz",    "%00=1",  "expand=%2"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct hub_options o = {.page = 77};
        struct error err = ERROR_INIT;
        cr_expect_eq(hub_options_read(bad[i], &o, &err), -1, "%s", bad[i]);
        cr_expect_eq(err.code, ERR_INVALID, "%s", bad[i]);
        cr_expect_eq(o.page, 77, "%s", bad[i]);
    }
}

/* ---- info ------------------------------------------------------------------------------------ */

static const char info[] =
    " {\"_id\":\"1\", \"id\" : \"org/m\",\"likes\":1.50e2,\"card\\u0044ata\":{\"a\":[1,{}]},"
    "\"siblings\":[{\"rfilename\":\"old\"}] , \"tags\":null,\"sha\":\"" OID "\"} ";

static int put_info(const char *text, const char *query, const struct hub_listing *l,
                    struct error *err)
{
    struct hub_options o = options(query);
    strbuf_reset(&out);
    int r = hub_put_info(&out, text, strlen(text), &o.expand, l, err);
    hub_options_done(&o);
    return r;
}

Test(hub_json, info_has_what_was_asked_for)
{
    struct error err = ERROR_INIT;
    cr_assert_eq(put_info(info, "", NULL, &err), 0, "%s", err.text);
    expect_text("{\"_id\":\"1\",\"id\":\"org/m\",\"likes\":1.50e2,"
                "\"card\\u0044ata\":{\"a\":[1,{}]},\"siblings\":[{\"rfilename\":\"old\"}],"
                "\"tags\":null,\"sha\":\"" OID "\"}");
    cr_assert_eq(put_info(info, "expand=sha&expand[]=tags&expand=nothing", NULL, &err), 0);
    expect_text("{\"_id\":\"1\",\"id\":\"org/m\",\"tags\":null,\"sha\":\"" OID "\"}");
    cr_assert_eq(put_info(info, "expand=cardData", NULL, &err), 0);
    expect_text("{\"_id\":\"1\",\"id\":\"org/m\",\"card\\u0044ata\":{\"a\":[1,{}]}}");
    cr_assert_eq(put_info(info, "expand=id", NULL, &err), 0);
    expect_text("{\"_id\":\"1\",\"id\":\"org/m\"}");
    cr_assert_eq(put_info("{}", "expand=sha", NULL, &err), 0);
    expect_text("{}");
}

Test(hub_json, siblings_have_their_blobs)
{
    struct error err = ERROR_INIT;
    FILES("a.bin", "b.txt");
    cr_assert_eq(put_info(info, "expand=siblings", &listing, &err), 0, "%s", err.text);
    expect_text("{\"_id\":\"1\",\"id\":\"org/m\",\"siblings\":["
                "{\"rfilename\":\"a.bin\",\"size\":1234567,\"blobId\":\"" OID
                "\",\"lfs\":{\"sha256\":\"" SHA "\",\"size\":1234567,\"pointerSize\":132}},"
                "{\"rfilename\":\"b.txt\",\"size\":7,\"blobId\":\"" OID "\"}]}");
    cr_assert_eq(put_info("{\"id\":\"m\"}", "", &listing, &err), 0);
    cr_expect(strstr(strbuf_str(&out), "{\"id\":\"m\",\"siblings\":[{\"rfilename\":\"a.bin\","));
    cr_assert_eq(put_info("{\"id\":\"m\"}", "expand=sha", &listing, &err), 0);
    expect_text("{\"id\":\"m\"}");
}

Test(hub_json, what_is_no_object_is_refused)
{
    static const char *const bad[] = {"", "[]", "{", "{\"a\":1", "{\"a\"}", "{\"a\":1}x", "null"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error err = ERROR_INIT;
        cr_expect_eq(put_info(bad[i], "", NULL, &err), -1, "%s", bad[i]);
        cr_expect_eq(err.code, ERR_UPSTREAM, "%s", bad[i]);
    }
}

Test(hub_json, the_first_of_a_list)
{
    static const char list[] = "[ {\"a\":1} ,[2,3], \"x,]\" ]";
    static const char *const want[] = {"[]", "[{\"a\":1}]", "[{\"a\":1},[2,3]]",
                                       "[{\"a\":1},[2,3],\"x,]\"]", "[{\"a\":1},[2,3],\"x,]\"]"};
    struct error err = ERROR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        strbuf_reset(&out);
        cr_assert_eq(hub_put_first(&out, list, strlen(list), i, &err), 0, "%s", err.text);
        expect_text(want[i]);
    }
    static const char *const bad[] = {"", "{}", "[1", "[1,]", "[1]2", "[1 2]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cr_expect_eq(hub_put_first(&out, bad[i], strlen(bad[i]), 9, &err), -1, "%s", bad[i]);
        cr_expect_eq(err.code, ERR_UPSTREAM);
    }
}

/* ---- llama.cpp ------------------------------------------------------------------------------- */

static void expect_pick(const char *tag, const char *model, const char *projector)
{
    struct error err = ERROR_INIT;
    struct hub_picked p = {0};
    cr_assert_eq(hub_pick_gguf(&listing, tag, &p, &err), 0, "%s: %s", tag, err.text);
    cr_expect_str_eq(p.model->path, model, "%s: %s instead of %s", tag, p.model->path, model);
    const char *got = p.projector ? p.projector->path : "";
    cr_expect_str_eq(got, projector, "%s: %s instead of %s", tag, got, projector);
}

Test(hub_json, a_label_says_which_file)
{
    FILES("README.md", "imatrix.gguf", "m-IQ2_XXS.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf",
          "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "m-UD-Q6_K.gguf",
          "mmproj-F16.gguf", "mmproj-Q8_0.gguf");
    expect_pick("latest", "m-Q4_K_M.gguf", "mmproj-F16.gguf");
    expect_pick("", "m-Q4_K_M.gguf", "mmproj-F16.gguf");
    expect_pick("q4_k_s", "m-Q4_K_S.gguf", "mmproj-F16.gguf");
    expect_pick("Q8_0", "m-Q8_0-00001-of-00002.gguf", "mmproj-Q8_0.gguf");
    expect_pick("Q6_K", "m-UD-Q6_K.gguf", "mmproj-F16.gguf");
    expect_pick("ud-q6_k", "m-UD-Q6_K.gguf", "mmproj-F16.gguf");
    expect_pick("q4", "m-Q4_K_M.gguf", "mmproj-F16.gguf");
    expect_pick("iq2", "m-IQ2_XXS.gguf", "mmproj-F16.gguf");
    expect_pick("M-q4_k_s.GGUF", "m-Q4_K_S.gguf", "mmproj-F16.gguf");
    struct error err = ERROR_INIT;
    struct hub_picked p;
    static const char *const absent[] = {"Q5_K_M", "q7", "mmproj-F16.gguf", "nonsense", "Q4_K_MX"};
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        cr_expect_eq(hub_pick_gguf(&listing, absent[i], &p, &err), -1, "%s", absent[i]);
        cr_expect_eq(err.code, ERR_NOT_FOUND);
        cr_expect(strstr(err.text, "IQ2_XXS, Q4_K_M, Q4_K_S, Q8_0, UD-Q6_K"), "%s: %s", absent[i],
                  err.text);
    }
}

Test(hub_json, without_the_usual_label_there_is_another)
{
    FILES("a-Q5_K_M.gguf", "a-Q8_0.gguf");
    expect_pick("latest", "a-Q8_0.gguf", "");
    free(listing.list.files);
    FILES("b-Q5_K_M.gguf", "b-Q6_K.gguf");
    expect_pick("latest", "b-Q5_K_M.gguf", "");
    free(listing.list.files);
    FILES("imatrix.gguf", "mmproj.gguf", "model.gguf");
    expect_pick("latest", "model.gguf", "mmproj.gguf");
    free(listing.list.files);
    FILES("imatrix.gguf", "model.safetensors");
    struct error err = ERROR_INIT;
    struct hub_picked p;
    cr_expect_eq(hub_pick_gguf(&listing, "latest", &p, &err), -1);
    cr_expect_eq(err.code, ERR_NOT_FOUND);
    cr_expect_str_eq(err.text, "no GGUF file is there");
    cr_expect_eq(hub_pick_gguf(&listing, "Q4_K_M", &p, &err), -1);
    cr_expect_eq(err.code, ERR_NOT_FOUND);
}

Test(hub_json, a_half_uploaded_set_is_no_answer)
{
    FILES("m-Q8_0-00002-of-00002.gguf");
    struct error err = ERROR_INIT;
    struct hub_picked p;
    cr_expect_eq(hub_pick_gguf(&listing, "Q8_0", &p, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
}

/* It looks for "ggufFile"[\s\S]*?"rfilename"\s*:\s*"([^"]+)" and takes what it finds as it is. */
Test(hub_json, a_name_for_a_regular_expression)
{
    FILES("q&a <1>.gguf", "say \"x\".gguf");
    hub_put_named_file(&out, &listing.list.files[0]);
    expect_text("{\"rfilename\":\"q&a <1>.gguf\",\"size\":1234567,\"blobId\":\"" OID
                "\",\"lfs\":{\"sha256\":\"" SHA "\",\"size\":1234567,\"pointerSize\":132}}");
    strbuf_reset(&out);
    hub_put_named_file(&out, &listing.list.files[1]);
    static const char begin[] = "{\"rfilename\":\"say \\\"x\\\".gguf\",";
    cr_expect_eq(strncmp(strbuf_str(&out), begin, strlen(begin)), 0);
}
