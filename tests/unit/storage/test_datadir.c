/* Who has the directory, and what is in it. */
#include "helper.h"

#include <lmdb.h>
#include <signal.h>

#include "base/fs.h"

TestSuite(datadir, .init = dir_make, .fini = dir_remove, .timeout = 240);

static int try_open(struct error *err)
{
    struct store *s = NULL;
    struct store_options o = {.dir = data_dir()};
    int r = store_open(&o, &s, err);
    store_close(s);
    return r;
}

Test(datadir, a_second_process_is_refused_by_name)
{
    int ready[2], done[2];
    char c = 'x';
    cr_assert(pipe(ready) == 0 && pipe(done) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(done[1]);
        struct store *s = open_store();
        if (write(ready[1], &c, 1) != 1 || read(done[0], &c, 1) != 0)
            _exit(1);
        store_close(s);
        _exit(0);
    }
    close(done[0]);
    cr_assert(read(ready[0], &c, 1) == 1);
    struct error err = ERROR_INIT;
    char pid_text[32];
    snprintf(pid_text, sizeof(pid_text), "process %d", (int)pid);
    cr_assert(try_open(&err) == -1);
    cr_assert(err.code == ERR_CONFLICT, "%s", err.text);
    cr_assert(strstr(err.text, pid_text) && strstr(err.text, data_dir()), "%s", err.text);
    close(done[1]);
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid && status == 0);
    cr_assert(try_open(&err) == 0, "%s", err.text);
}

Test(datadir, a_second_opening_in_one_process_is_refused)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    cr_assert(try_open(&err) == -1 && err.code == ERR_CONFLICT);
    put_text(s, "still works");
    store_close(s);
}

Test(datadir, a_killed_process_leaves_no_lock)
{
    pid_t pid = fork();
    if (pid == 0) {
        open_store();
        raise(SIGKILL);
    }
    cr_assert(waitpid(pid, NULL, 0) == pid);
    struct error err = ERROR_INIT;
    cr_assert(try_open(&err) == 0, "%s", err.text);
}

static void write_file(const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", data_dir(), name);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

Test(datadir, lost_metadata_is_not_taken_for_a_new_store)
{
    static const char *const leftovers[] = {NULL, ""};
    struct error err = ERROR_INIT;
    struct store *s = open_store();
    store_close(s);
    char path[400];
    snprintf(path, sizeof(path), "%s/meta/data.mdb", data_dir());
    cr_assert(unlink(path) == 0 && try_open(&err) == 0, "nothing was stored yet: %s", err.text);
    s = open_store();
    put_text(s, "a blob");
    store_close(s);
    for (size_t i = 0; i < 2; i++) {
        unlink(path);
        if (leftovers[i])
            write_file("meta/data.mdb", leftovers[i]);
        cr_assert(try_open(&err) == -1 && err.code == ERR_IO, "%s", err.text);
        cr_assert(strstr(err.text, path), "%s", err.text);
    }
}

Test(datadir, a_newer_format_is_refused_before_anything_is_read)
{
    struct error err = ERROR_INIT;
    cr_assert(try_open(&err) == 0);
    write_file("VERSION", "weighbridge data format 3\n");
    write_file("meta/data.mdb", "not for this program to look at");
    cr_assert(try_open(&err) == -1 && err.code == ERR_UNSUPPORTED, "%s", err.text);
    cr_assert(strstr(err.text, "format 3") && strstr(err.text, "format 2"), "%s", err.text);
    cr_assert(strstr(err.text, "newer"), "%s", err.text);
}

static void assert_version(const char *want)
{
    char path[400];
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    snprintf(path, sizeof(path), "%s/VERSION", data_dir());
    cr_assert(fs_read_file(path, 100, &text, NULL) == 0);
    cr_assert_str_eq(strbuf_str(&text), want);
    strbuf_puts(&text, "");
    snprintf(path, sizeof(path), "%s/VERSION.tmp", data_dir());
    cr_assert(access(path, F_OK) < 0);
}

/* What format 1 has is read as it is; what it would not know is written only behind the new
 * number. */
Test(datadir, an_older_format_is_raised)
{
    struct error err = ERROR_INIT;
    struct store *s = open_store();
    struct digest d = put_text(s, "from before");
    store_close(s);
    assert_version("weighbridge data format 2\n");
    write_file("VERSION", "weighbridge data format 1\n");
    s = open_store();
    assert_version("weighbridge data format 2\n");
    assert_blob(s, &d, "from before", 11);
    store_close(s);
    cr_assert(try_open(&err) == 0, "%s", err.text);
    assert_version("weighbridge data format 2\n");
}

/* A directory that is refused stays as it is. */
Test(datadir, an_older_format_without_metadata)
{
    char path[400];
    struct error err = ERROR_INIT;
    struct store *s = open_store();
    put_text(s, "a blob");
    store_close(s);
    write_file("VERSION", "weighbridge data format 1\n");
    snprintf(path, sizeof(path), "%s/meta/data.mdb", data_dir());
    cr_assert(unlink(path) == 0 && try_open(&err) == -1 && err.code == ERR_IO);
    assert_version("weighbridge data format 1\n");
}

Test(datadir, a_version_that_says_nothing_is_refused)
{
    static const char *const bad[] = {"",
                                      "weighbridge data format ",
                                      "weighbridge data format x\n",
                                      "weighbridge data format 0\n",
                                      "weighbridge data format -1\n",
                                      "weighbridge data format 1 \n",
                                      "weighbridge data format 1",
                                      "something else\n"};
    struct error err = ERROR_INIT;
    cr_assert(try_open(&err) == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_file("VERSION", bad[i]);
        cr_assert(try_open(&err) == -1 && err.code == ERR_UNSUPPORTED, "%zu %s", i, err.text);
    }
    char path[400];
    snprintf(path, sizeof(path), "%s/VERSION", data_dir());
    cr_assert(unlink(path) == 0);
    cr_assert(try_open(&err) == -1 && err.code == ERR_UNSUPPORTED && strstr(err.text, "missing"),
              "%s", err.text);
    write_file("VERSION", "weighbridge data format 1\n");
    cr_assert(try_open(&err) == 0, "%s", err.text);
}

Test(datadir, garbage_for_metadata_is_an_error)
{
    struct error err = ERROR_INIT;
    cr_assert(try_open(&err) == 0);
    char text[9000];
    memset(text, 'g', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    write_file("meta/data.mdb", text);
    cr_assert(try_open(&err) == -1 && err.code == ERR_IO, "%s", err.text);
    cr_assert(strstr(err.text, "damaged"), "%s", err.text);
}

Test(datadir, a_directory_that_cannot_be)
{
    struct error err = ERROR_INIT;
    struct store *s = NULL;
    struct store_options o = {.dir = "/proc/no/such/place"};
    cr_assert(store_open(&o, &s, &err) == -1 && err.text[0]);
    FILE *f = fopen(data_dir(), "w");
    fclose(f);
    cr_assert(try_open(&err) == -1 && strstr(err.text, data_dir()), "%s", err.text);
}

Test(datadir, works_under_an_address_space_limit)
{
#if !defined(__SANITIZE_ADDRESS__)
    pid_t pid = fork();
    if (pid == 0) {
        char cmd[64];
        snprintf(cmd, sizeof(cmd), "prlimit --pid %d --as=8589934592", (int)getpid());
        if (system(cmd) != 0)
            _exit(0); /* no prlimit here */
        struct store *s = open_store();
        put_text(s, "x");
        store_close(s);
        _exit(0);
    }
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid && status == 0);
#endif
}

/* LMDB reads its file through a map, and a missing page would kill the process (SIGBUS). */
Test(datadir, a_file_of_rows_that_was_cut_is_an_error)
{
    struct store *s = open_store();
    put_text(s, "something");
    store_close(s);
    char path[500];
    struct error err = ERROR_INIT;
    struct store_options o = {.dir = data_dir()};
    snprintf(path, sizeof(path), "%s/meta/data.mdb", data_dir());
    cr_assert(truncate(path, 8192) == 0); /* the two heads stay */
    cr_assert(store_open(&o, &s, &err) < 0);
    cr_assert(strstr(err.text, "the metadata is damaged"), "%s", err.text);
}

/* ---- damaged rows ---- */

static const char *const db_names[] = {"state",   "blobs",     "incoming", "links",
                                       "uses",    "manifests", "tags",     "repositories",
                                       "commits", "mismatches"};

static MDB_txn *begin(MDB_env **env)
{
    char path[400];
    MDB_txn *txn;
    snprintf(path, sizeof(path), "%s/meta", data_dir());
    cr_assert(mdb_env_create(env) == 0);
    mdb_env_set_maxdbs(*env, 16);
    mdb_env_set_mapsize(*env, (size_t)1 << 30);
    cr_assert(mdb_env_open(*env, path, MDB_NOTLS, 0640) == 0);
    cr_assert(mdb_txn_begin(*env, NULL, 0, &txn) == 0);
    return txn;
}

struct pair {
    MDB_val k, v;
};

static MDB_val copy_val(const MDB_val *v)
{
    MDB_val copy = {.mv_size = v->mv_size, .mv_data = malloc(v->mv_size + 64)};
    cr_assert(copy.mv_data);
    memcpy(copy.mv_data, v->mv_data, v->mv_size);
    return copy;
}

/* how: 0 empty, 1 cut by one, 2 random, 3 one bit flipped */
static void spoil(MDB_val *v, int how)
{
    unsigned char *bytes = v->mv_data;
    if (how == 0)
        v->mv_size = 0;
    else if (how == 1 && v->mv_size)
        v->mv_size--;
    else if (how == 2)
        for (size_t i = 0, n = v->mv_size = (size_t)rand() % 64; i < n; i++)
            bytes[i] = (unsigned char)rand();
    else if (how == 3 && v->mv_size)
        bytes[(size_t)rand() % v->mv_size] ^= (unsigned char)(1 << (rand() % 8));
}

/* Overwrites every value of a database. */
static void damage(const char *name, int how, unsigned seed)
{
    MDB_env *env;
    MDB_txn *txn = begin(&env);
    MDB_dbi dbi;
    MDB_cursor *c;
    MDB_val k, v;
    struct pair pairs[32];
    size_t n = 0;
    srand(seed);
    cr_assert(mdb_dbi_open(txn, name, 0, &dbi) == 0);
    cr_assert(mdb_cursor_open(txn, dbi, &c) == 0);
    for (int rc = mdb_cursor_get(c, &k, &v, MDB_FIRST); rc == 0 && n < 32;
         rc = mdb_cursor_get(c, &k, &v, MDB_NEXT))
        pairs[n++] = (struct pair){copy_val(&k), copy_val(&v)};
    mdb_cursor_close(c);
    for (size_t i = 0; i < n; i++) {
        spoil(&pairs[i].v, how);
        cr_assert(mdb_put(txn, dbi, &pairs[i].k, &pairs[i].v, 0) == 0);
        free(pairs[i].k.mv_data);
        free(pairs[i].v.mv_data);
    }
    cr_assert(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
}

static char upload_id[UPLOAD_ID_LEN + 1];

static void make_content(void)
{
    struct store *s = open_store();
    struct blob_writer *w = NULL;
    struct digest held = put_text(s, "held"), d = digest_of_text("partial");
    struct import_link links[] = {{held, 4, NULL}, {digest_of_text("w"), 9, "w"}};
    struct commit_file files[] = {{.path = "w", .size = 9}};
    const char *tags[] = {"main", COMMIT_A};
    struct import_record r = {.repository = "hf/a/b",
                              .upstream = "hf",
                              .repo_id = "A/b",
                              .commit = COMMIT_A,
                              .tags = tags,
                              .n_tags = 2,
                              .manifest_digest = digest_of_text("{m}"),
                              .media_type = "x",
                              .manifest = "{m}",
                              .manifest_len = 3,
                              .links = links,
                              .n_links = 2,
                              .files = files,
                              .n_files = 1};
    cr_assert(store_commit_import(s, &r, NULL) == 0);
    cr_assert(store_mismatch_put(s, &held, clock_wall_s() + 1000, NULL) == 0);
    cr_assert(writer_open(s, &d, 7, &w, NULL) == 0);
    cr_assert(writer_write(w, "part", 4, 0, NULL) == 0);
    writer_close(w, true);
    struct upload *u = NULL;
    uint64_t offset;
    cr_assert(upload_begin(s, "team/model", DIGEST_SHA256, upload_id, NULL) == 0);
    cr_assert(upload_open(s, "team/model", upload_id, &u, NULL) == 1);
    cr_assert(upload_write(u, "piece", 5, NULL) == 0 && upload_ack(u, &offset, NULL) == 0);
    upload_close(u);
    store_close(s);
}

static int checked(int r, struct error *err)
{
    if (r < 0) {
        cr_assert(err->code != ERR_NONE && err->text[0]);
        *err = ERROR_INIT;
    }
    return r;
}

/* A row that is not damaged may say anything; bytes that hash wrongly are never committed. */
static void use_upload(struct store *s)
{
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("pieces"), wrong = digest_of_text("wrong");
    struct upload *u = NULL;
    uint64_t offset = 0;
    int r = upload_status(s, "team/model", upload_id, &offset, &err);
    cr_assert(r >= 0 && offset <= 5);
    if (checked(upload_open(s, "team/model", upload_id, &u, &err), &err) != 1) {
        cr_assert(r == 0);
        return;
    }
    cr_assert(upload_commit(u, &wrong, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
    cr_assert(upload_write(u, "pieces" + offset, 6 - (size_t)offset, &err) == 0);
    cr_assert(upload_commit(u, &d, &err) == 0, "%s", err.text);
    upload_close(u);
    assert_blob(s, &d, "pieces", 6);
}

/* Everything may fail, nothing may crash, and what is answered must be right. */
static void use_all(struct store *s)
{
    struct error err = ERROR_INIT;
    struct digest held = digest_of_text("held"), m = digest_of_text("{m}");
    struct blob *b = NULL;
    struct link l;
    struct manifest man;
    struct tag t;
    struct name_list names;
    struct repository_row row;
    struct commit_files files;
    struct store_stats st;
    if (checked(store_blob_open(s, &held, &b, &err), &err) == 1) {
        cr_assert(blob_size(b) == 4);
        blob_close(b);
    }
    if (checked(store_link_get(s, "hf/a/b", &held, &l, &err), &err) == 1)
        link_done(&l);
    if (checked(store_manifest_get(s, "hf/a/b", &m, &man, &err), &err) == 1) {
        cr_assert(man.len == 3 && memcmp(man.bytes, "{m}", 3) == 0, "never wrong bytes");
        manifest_done(&man);
    }
    checked(store_tag_get(s, "hf/a/b", "main", &t, &err), &err);
    store_tag_confirm(s, "hf/a/b", "main");
    if (checked(store_tags(s, "hf/a/b", NULL, 9, &names, &err), &err) == 0)
        name_list_done(&names);
    if (checked(store_repositories(s, NULL, 9, &names, &err), &err) == 0)
        name_list_done(&names);
    checked(store_repository_get(s, "hf/a/b", &row, &err), &err);
    if (checked(store_commit_files_get(s, "hf", "A/b", COMMIT_A, &files, &err), &err) == 1)
        commit_files_done(&files);
    store_mismatch_left(s, &held, "any/repository");
    use_upload(s);
    checked(store_stats(s, &st, &err), &err);
}

/* Importing and putting again is what repairs. */
static void repair_all(struct store *s)
{
    struct error err = ERROR_INIT;
    struct gc_result gc;
    checked(store_gc(s, &(struct gc_options){.dry_run = true}, &gc, &err), &err);
    struct digest held = digest_of_text("held");
    struct blob_writer *w = NULL;
    cr_assert(writer_open(s, &held, 4, &w, &err) == 0, "%s", err.text);
    cr_assert(writer_write(w, "held", 4, 0, &err) == 0);
    cr_assert(writer_commit(w, 4, &err) == 0, "%s", err.text);
    writer_close(w, true);
    struct import_link links[] = {{held, 4, NULL}, {digest_of_text("w"), 9, "w"}};
    cr_assert(import_one(s, "hf/a/b", COMMIT_A, "main", "{m}", links, 2, &err) == 0, "%s",
              err.text);
    struct link l;
    struct manifest m;
    struct tag t;
    struct digest md = digest_of_text("{m}");
    cr_assert(store_link_get(s, "hf/a/b", &held, &l, &err) == 1 && l.held, "%s", err.text);
    link_done(&l);
    cr_assert(store_manifest_get(s, "hf/a/b", &md, &m, &err) == 1, "%s", err.text);
    manifest_done(&m);
    cr_assert(store_tag_get(s, "hf/a/b", "main", &t, &err) == 1, "%s", err.text);
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    cr_assert(is_held(s, &held));
}

Test(datadir, damaged_rows_give_errors)
{
    for (size_t db = 0; db < sizeof(db_names) / sizeof(db_names[0]); db++)
        for (int how = 0; how < 5; how++) {
            make_content();
            damage(db_names[db], how < 3 ? how : 3, (unsigned)(db * 10) + (unsigned)how);
            struct store *s = open_store();
            use_all(s);
            repair_all(s);
            store_close(s);
            char cmd[400];
            snprintf(cmd, sizeof(cmd), "rm -rf %s", data_dir());
            cr_assert(system(cmd) == 0);
        }
}

Test(datadir, a_damaged_manifest_can_be_removed)
{
    make_content();
    damage("manifests", 0, 1);
    damage("tags", 0, 1);
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest held = digest_of_text("held"), m = digest_of_text("{m}");
    struct manifest man;
    struct tag t;
    cr_assert(store_manifest_get(s, "hf/a/b", &m, &man, &err) == -1 && err.code == ERR_IO);
    cr_assert(strstr(err.text, "damaged") && strstr(err.text, "hf/a/b"), "%s", err.text);
    cr_assert(store_tag_get(s, "hf/a/b", "main", &t, &err) == -1 && err.code == ERR_IO);
    struct reference r = {.repository = "hf/a/b", .is_digest = true, .digest = m};
    cr_assert(store_remove(s, &r, NULL, "test", &err) == 0, "%s", err.text);
    struct store_stats st;
    struct link l;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.repositories == 0 && st.manifests == 0 && st.tags == 0);
    cr_assert(store_link_get(s, "hf/a/b", &held, &l, NULL) == 0);
    struct gc_result gc;
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.blobs_removed == 1);
    store_close(s);
}
