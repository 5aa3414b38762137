/* What a process that is killed leaves behind. The store is opened in children only, or in the
 * parent when no child lives. */
#include "crash.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>

TestSuite(crash, .init = dir_make, .fini = dir_remove, .timeout = 3600);

/* ---- named points ---- */

static void do_put(struct store *s)
{
    struct digest d;
    store_blob_put(s, "small content", 13, &d, NULL);
}

static void do_writer(struct store *s, uint64_t size)
{
    struct digest d;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d);
    struct blob_writer *w = NULL;
    struct error err = ERROR_INIT;
    if (writer_open(s, &d, size, &w, &err) < 0)
        _exit(4);
    for (size_t at = (size_t)writer_resumed(w); at < 10 * MIB; at += 65536)
        if (writer_write(w, bytes + at, 65536, at, &err) < 0)
            _exit(5);
    /* the extent that was queued is written before this one is */
    if (store_mismatch_put(s, &d, 1, &err) < 0)
        _exit(6);
    writer_commit(w, 10 * MIB, &err);
}

static void do_writer_known(struct store *s)
{
    do_writer(s, 10 * MIB);
}

static void do_writer_unknown(struct store *s)
{
    do_writer(s, WRITER_SIZE_UNKNOWN);
}

static void do_gc(struct store *s)
{
    struct gc_result gc;
    store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL);
}

static const char *const points[] = {"put.written", "put.synced", "publish.renamed",
                                     "publish.synced", "commit.done"};

Test(crash, at_every_point_of_a_put)
{
    struct digest d = digest_of_text("small content");
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        run_killed(points[i], do_put);
        struct store *s = open_store();
        struct store_stats st;
        cr_assert(is_held(s, &d) == (i >= 2), "%s", points[i]);
        if (i >= 2)
            assert_blob(s, &d, "small content", 13);
        cr_assert(count_incoming() == 0, "%s", points[i]);
        cr_assert(store_stats(s, &st, NULL) == 0);
        cr_assert(st.partials == 0 && st.blobs == (i >= 2) && st.blob_bytes == (i >= 2 ? 13 : 0));
        store_close(s);
        clear_data();
    }
}

/* Of 10 MiB, a killed process leaves what it has written. After a power cut only what was synced is
 * believed, and ranges are refused: what is lost may have been given to a reader. */
static void writer_points(void (*fn)(struct store *s), bool power_cut)
{
    struct digest d;
    const size_t left = power_cut ? 8 * MIB : 10 * MIB;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d), *got = malloc(10 * MIB);
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        run_killed(points[i], fn);
        if (power_cut)
            storage_boot_file = "/dev/null";
        struct store *s = open_store();
        struct store_stats st;
        cr_assert(is_held(s, &d) == (i >= 2), "%s", points[i]);
        cr_assert((store_mismatch_left(s, &d, "any/repository") > 0) == (power_cut && i < 2), "%s",
                  points[i]);
        cr_assert(store_stats(s, &st, NULL) == 0);
        if (i < 2) {
            struct blob_writer *w = NULL;
            cr_assert(st.partials == 1 && st.partial_bytes == left);
            cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
            cr_assert(writer_resumed(w) == left, "%s: %zu", points[i], (size_t)writer_resumed(w));
            cr_assert(writer_read(w, 0, got, 10 * MIB, NULL) == (ssize_t)left);
            cr_assert(memcmp(got, bytes, left) == 0);
            cr_assert(writer_write(w, bytes + left, 10 * MIB - left, left, NULL) == 0);
            cr_assert(writer_commit(w, 10 * MIB, NULL) == 0);
            writer_close(w, true);
        }
        assert_blob(s, &d, bytes, 10 * MIB);
        cr_assert(store_stats(s, &st, NULL) == 0);
        cr_assert(st.partials == 0 && st.partial_bytes == 0 && st.blobs == 1);
        cr_assert(st.blob_bytes == 10 * MIB);
        cr_assert(count_incoming() == 0, "%s", points[i]);
        store_close(s);
        clear_data();
    }
    free(bytes);
    free(got);
}

Test(crash, at_every_point_of_a_writer)
{
    writer_points(do_writer_known, false);
}

Test(crash, of_the_power_at_every_point_of_a_writer)
{
    writer_points(do_writer_known, true);
}

Test(crash, at_every_point_of_a_writer_of_unknown_size)
{
    writer_points(do_writer_unknown, false);
}

Test(crash, in_the_middle_of_gc)
{
    static const char *const gc_points[] = {"gc.doomed", "gc.unlinked"};
    for (size_t i = 0; i < ARRAY_LEN(gc_points); i++) {
        struct store *s = open_store();
        struct digest d = put_text(s, "dead");
        char path[600];
        blob_path(&d, path, sizeof(path));
        store_close(s);
        run_killed(gc_points[i], do_gc);
        cr_assert((access(path, F_OK) == 0) == (i == 0));
        s = open_store();
        cr_assert(!is_held(s, &d));
        cr_assert(access(path, F_OK) < 0, "the next start removed it");
        store_close(s);
        s = open_store();
        put_text(s, "dead");
        store_close(s);
        s = open_store();
        cr_assert(is_held(s, &d), "what came back stays");
        store_close(s);
        clear_data();
    }
}

/* A renamed file is believed only with the size of its row. */
Test(crash, a_wrong_file_is_not_published)
{
    struct digest d = digest_of_text("small content");
    char path[600];
    blob_path(&d, path, sizeof(path));
    run_killed("publish.renamed", do_put);
    cr_assert(chmod(path, 0640) == 0 && truncate(path, 5) == 0);
    struct store *s = open_store();
    cr_assert(!is_held(s, &d));
    cr_assert(access(path, F_OK) < 0);
    store_close(s);
}

Test(crash, foreign_and_forgotten_files_in_incoming)
{
    struct store *s = open_store();
    store_close(s);
    char path[500];
    FILE *f;
    snprintf(path, sizeof(path), "%s/incoming/0123456789abcdef0123456789abcdef", data_dir());
    cr_assert((f = fopen(path, "w")));
    fclose(f);
    snprintf(path, sizeof(path), "%s/incoming/notes of the operator", data_dir());
    cr_assert((f = fopen(path, "w")));
    fclose(f);
    s = open_store();
    cr_assert(count_incoming() == 1, "ours without a row goes, another's stays");
    cr_assert(access(path, F_OK) == 0);
    store_close(s);
}

static void do_sourced(struct store *s)
{
    struct digest d;
    struct name_id source;
    struct lent lent = {0};
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d);
    struct blob_writer *w = NULL;
    lent_add(&lent, "reg.test/team/app");
    if (!name_id_of("reg.test", "team/app", &source) ||
        writer_open_from(s, &d, 10 * MIB, &source, &w, NULL) < 0 ||
        writer_write(w, bytes, 5 * MIB, 0, NULL) < 0)
        _exit(4);
    writer_set_lent(w, &lent);
    store_blob_put(s, "small content", 13, &d, NULL);
}

/* Who was lent bytes is known only of a download that came to an end. */
Test(crash, nobody_knows_who_was_lent_bytes)
{
    struct digest d;
    struct name_id own, other;
    struct blob_writer *w = NULL;
    free(make_bytes(10 * MIB, 9, &d));
    cr_assert(name_id_of("reg.test", "team/app", &own) && name_id_of("reg.test", "b", &other));
    run_killed("put.written", do_sourced);
    struct store *s = open_store();
    cr_assert(writer_open_from(s, &d, 10 * MIB, &own, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 5 * MIB && writer_lent(w)->all);
    writer_close(w, true);
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0);
    cr_assert(writer_open_from(s, &d, 10 * MIB, &other, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 0);
    cr_assert(store_mismatch_left(s, &d, "any/repository") > 0);
    writer_close(w, false);
    store_close(s);
}

struct piece {
    uint64_t at;
    size_t len;
};

/* Of the 10 MiB that make_bytes() makes of 9, in this order. */
static struct blob_writer *write_pieces(struct store *s, const struct piece *p, size_t n)
{
    struct digest d;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d);
    struct blob_writer *w = NULL;
    if (writer_open(s, &d, 10 * MIB, &w, NULL) < 0)
        _exit(4);
    for (size_t i = 0; i < n; i++)
        if (writer_write(w, bytes + p[i].at, p[i].len, p[i].at, NULL) < 0)
            _exit(4);
    free(bytes);
    return w;
}

/* What is written behind a hole is in the file's map. */
static void do_scattered(struct store *s)
{
    static const struct piece pieces[] = {{0, 5 * MIB}, {9 * MIB, 1000}};
    write_pieces(s, pieces, ARRAY_LEN(pieces));
    store_blob_put(s, "small content", 13, &(struct digest){0}, NULL);
}

Test(crash, with_holes)
{
    struct digest d;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d), got[1000];
    for (int power_cut = 0; power_cut < 2; power_cut++) {
        struct blob_writer *w = NULL;
        uint64_t first = 0, end = 0;
        run_killed("put.written", do_scattered);
        if (power_cut)
            storage_boot_file = "/dev/null";
        struct store *s = open_store();
        cr_assert((store_mismatch_left(s, &d, "any/repository") > 0) == power_cut,
                  "bytes of the last MiB may have been read");
        cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
        cr_assert(writer_resumed(w) == 5 * MIB, "%zu", (size_t)writer_resumed(w));
        cr_assert(writer_resumed_part(w, 0, &first, &end) == !power_cut);
        if (!power_cut) {
            cr_assert(first == 9 * MIB && end == first + 1000);
            cr_assert(writer_read(w, first, got, 1000, NULL) == 1000);
            cr_assert(memcmp(got, bytes + first, 1000) == 0);
        }
        writer_close(w, false);
        store_close(s);
        clear_data();
    }
    free(bytes);
}

/* Ends the download, and the test. */
static void commit_whole(struct store *s, struct blob_writer *w, const struct digest *d,
                         unsigned char *bytes)
{
    cr_assert(writer_commit(w, 10 * MIB, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, d, bytes, 10 * MIB);
    store_close(s);
    free(bytes);
}

/* A step of the synced extent takes what is behind a hole with it. */
static void do_scattered_and_synced(struct store *s)
{
    static const struct piece pieces[] = {{9 * MIB, 1000}, {0, 5 * MIB}, {8 * MIB, 1000}};
    write_pieces(s, pieces, ARRAY_LEN(pieces));
    store_blob_put(s, "small content", 13, &(struct digest){0}, NULL);
}

Test(crash, of_the_power_with_holes)
{
    struct digest d;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d);
    struct blob_writer *w = NULL;
    uint64_t first, end;
    run_killed("put.written", do_scattered_and_synced);
    storage_boot_file = "/dev/null";
    struct store *s = open_store();
    cr_assert(store_mismatch_left(s, &d, "any/repository") > 0);
    cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 5 * MIB);
    cr_assert(writer_resumed_part(w, 0, &first, &end));
    cr_assert(first == 9 * MIB && end == first + 1000 && !writer_resumed_part(w, 1, &first, &end));
    cr_assert(writer_write(w, bytes + 5 * MIB, 4 * MIB, 5 * MIB, NULL) == 0);
    cr_assert(writer_write(w, bytes + 9 * MIB, MIB, 9 * MIB, NULL) == 0);
    commit_whole(s, w, &d, bytes);
}

/* The newest map is then the one of the sync: it says what is there just as well. */
static void do_die_after_sync(struct store *s)
{
    static const struct piece pieces[] = {{9 * MIB, 1000}, {0, 5 * MIB}};
    write_pieces(s, pieces, ARRAY_LEN(pieces));
    store_blob_put(s, "small content", 13, &(struct digest){0}, NULL);
}

Test(crash, right_after_a_sync_with_holes)
{
    struct digest d;
    free(make_bytes(10 * MIB, 9, &d));
    for (int power_cut = 0; power_cut < 2; power_cut++) {
        struct blob_writer *w = NULL;
        uint64_t first = 0, end = 0;
        run_killed("put.written", do_die_after_sync);
        if (power_cut)
            storage_boot_file = "/dev/null";
        struct store *s = open_store();
        cr_assert((store_mismatch_left(s, &d, "any/repository") > 0) == power_cut,
                  "only the power takes what was written after it");
        cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
        cr_assert(writer_resumed(w) == 5 * MIB);
        cr_assert(writer_resumed_part(w, 0, &first, &end));
        cr_assert(first == 9 * MIB && end == first + 1000);
        writer_close(w, false);
        cr_assert((store_mismatch_left(s, &d, "any/repository") > 0) == power_cut);
        store_close(s);
        clear_data();
    }
}

/* The holes are filled, the map has gone, and the file has no other name yet. */
static void do_commit_without_holes(struct store *s)
{
    static const struct piece pieces[] = {{5 * MIB, 5 * MIB}, {0, 5 * MIB}};
    writer_commit(write_pieces(s, pieces, ARRAY_LEN(pieces)), 10 * MIB, NULL);
}

Test(crash, in_a_commit_of_what_had_holes)
{
    struct digest d;
    unsigned char *bytes = make_bytes(10 * MIB, 9, &d);
    struct blob_writer *w = NULL;
    run_killed("put.synced", do_commit_without_holes);
    struct store *s = open_store();
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0, "nothing is lost");
    cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 10 * MIB, "%zu", (size_t)writer_resumed(w));
    commit_whole(s, w, &d, bytes);
}

/* All holes are filled, and there is more to come. */
static void do_fill_holes(struct store *s)
{
    static const struct piece pieces[] = {{MIB, MIB}, {0, MIB}};
    write_pieces(s, pieces, ARRAY_LEN(pieces));
    store_blob_put(s, "small content", 13, &(struct digest){0}, NULL);
}

Test(crash, with_holes_that_were_filled)
{
    struct digest d;
    struct blob_writer *w = NULL;
    free(make_bytes(10 * MIB, 9, &d));
    run_killed("put.written", do_fill_holes);
    struct store *s = open_store();
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0);
    cr_assert(writer_open(s, &d, 10 * MIB, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 2 * MIB, "%zu", (size_t)writer_resumed(w));
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0, "nothing is lost");
    writer_close(w, false);
    store_close(s);
}

/* A file that somebody removed under a running program is as lost as one that a crash took. */
Test(crash, a_partial_whose_file_is_gone)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(1000, 4, &d);
    struct blob_writer *w = NULL;
    char cmd[400];
    snprintf(cmd, sizeof(cmd), "rm %s/incoming/*", data_dir());
    for (int restart = 0; restart < 2; restart++) {
        cr_assert(writer_open(s, &d, 1000, &w, NULL) == 0);
        cr_assert(writer_resumed(w) == 0);
        cr_assert(writer_write(w, bytes, 800, 0, NULL) == 0);
        writer_close(w, true);
        cr_assert(store_mismatch_put(s, &d, 0, NULL) == 0);
        cr_assert(system(cmd) == 0);
        if (restart) {
            store_close(s);
            s = open_store();
        } else {
            cr_assert(store_mismatch_left(s, &d, "any/repository") == 0,
                      "kept, so nothing is lost");
            cr_assert(writer_open(s, &d, 1000, &w, NULL) == 0);
            writer_close(w, false);
        }
        cr_assert(store_mismatch_left(s, &d, "any/repository") > 0);
    }
    store_close(s);
    free(bytes);
}

Test(crash, an_extent_beyond_the_file_is_cut)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(1000, 4, &d);
    struct blob_writer *w = NULL;
    cr_assert(writer_open(s, &d, 1000, &w, NULL) == 0);
    cr_assert(writer_write(w, bytes, 800, 0, NULL) == 0);
    writer_close(w, true);
    store_close(s);
    char cmd[400];
    snprintf(cmd, sizeof(cmd), "truncate -s 300 %s/incoming/*", data_dir());
    cr_assert(system(cmd) == 0);
    for (int i = 0; i < 2; i++) {
        s = open_store();
        struct store_stats st;
        cr_assert(store_stats(s, &st, NULL) == 0);
        cr_assert(st.partials == 1 && st.partial_bytes == 300);
        store_close(s);
    }
    s = open_store();
    cr_assert(writer_open(s, &d, 1000, &w, NULL) == 0);
    cr_assert(writer_resumed(w) == 300);
    writer_close(w, false);
    store_close(s);
    free(bytes);
}

/* ---- random work, killed at random moments ---- */

enum state { ABSENT, THERE, MAYBE };

#define N 24
#define BIG (300 * 1024)

struct model {
    enum state put[N], big[N], manifest[N];
};

struct note { /* child to parent: 'b'egun or 'd'one */
    char when, op;
    unsigned char i;
};

static const char *text_of(const char *kind, unsigned i)
{
    static char text[32];
    snprintf(text, sizeof(text), "%s %u", kind, i);
    return text;
}

static void tell(int fd, char when, char op, unsigned i)
{
    struct note n = {when, op, (unsigned char)i};
    if (write(fd, &n, sizeof(n)) != sizeof(n))
        _exit(7);
}

static void child_op(struct store *s, char op, unsigned i)
{
    struct error err = ERROR_INIT;
    struct digest d;
    int r = 0;
    if (op == 'P') {
        r = store_blob_put(s, text_of("blob", i), strlen(text_of("blob", i)), &d, &err);
    } else if (op == 'W') {
        unsigned char *bytes = make_bytes(BIG, 100 + i, &d);
        struct blob_writer *w = NULL;
        r = writer_open(s, &d, i & 1 ? BIG : WRITER_SIZE_UNKNOWN, &w, &err);
        for (size_t at = 0; r == 0 && at < BIG; at += 32768)
            r = writer_write(w, bytes + at, BIG - at < 32768 ? BIG - at : 32768, at, &err);
        if (r == 0)
            r = writer_commit(w, BIG, &err);
        writer_close(w, i & 2);
        free(bytes);
    } else if (op == 'I') {
        store_blob_put(s, text_of("blob", i), strlen(text_of("blob", i)), &d, &err);
        struct import_link links[] = {{d, strlen(text_of("blob", i)), NULL},
                                      {digest_of_text("weights"), 1000, "weights"}};
        r = import_one(s, i & 1 ? "hf/a/one" : "hf/a/two", COMMIT_A, NULL, text_of("manifest", i),
                       links, 2, &err);
    } else if (op == 'R') {
        struct reference ref = {.is_digest = true,
                                .digest = digest_of_text(text_of("manifest", i))};
        snprintf(ref.repository, sizeof(ref.repository), "%s", i & 1 ? "hf/a/one" : "hf/a/two");
        r = store_remove(s, &ref, NULL, "test", &err);
        if (r < 0 && err.code == ERR_NOT_FOUND)
            r = 0;
    } else {
        struct gc_result gc;
        r = store_gc(s, &(struct gc_options){.dry_run = false}, &gc, &err);
    }
    if (r < 0) {
        fprintf(stderr, "%c %u: %s\n", op, i, err.text);
        _exit(8);
    }
}

static void child_work(int fd, unsigned seed)
{
    struct store *s = open_store();
    for (;;) {
        unsigned x = (unsigned)rand_r(&seed);
        char op = x % 40 == 0 ? 'G' : "PPWIIR"[x / 40 % 6];
        unsigned i = x / 1000 % N;
        tell(fd, 'b', op, i);
        child_op(s, op, i);
        tell(fd, 'd', op, i);
    }
}

static void note_begun(struct model *m, char op, unsigned i)
{
    if ((op == 'P' || op == 'I') && m->put[i] == ABSENT)
        m->put[i] = MAYBE;
    if (op == 'W' && m->big[i] == ABSENT)
        m->big[i] = MAYBE;
    if ((op == 'I' && m->manifest[i] != THERE) || (op == 'R' && m->manifest[i] != ABSENT))
        m->manifest[i] = MAYBE;
    for (unsigned j = 0; op == 'G' && j < N; j++) {
        if (m->put[j] == THERE && m->manifest[j] != THERE)
            m->put[j] = MAYBE;
        if (m->big[j] == THERE)
            m->big[j] = MAYBE;
    }
}

static void note_done(struct model *m, char op, unsigned i)
{
    if (op == 'P' || op == 'I')
        m->put[i] = THERE;
    if (op == 'W')
        m->big[i] = THERE;
    if (op == 'I' || op == 'R')
        m->manifest[i] = op == 'I' ? THERE : ABSENT;
    for (unsigned j = 0; op == 'G' && j < N; j++) {
        m->big[j] = ABSENT;
        if (m->manifest[j] == ABSENT)
            m->put[j] = ABSENT;
    }
}

static void agree(enum state *want, bool is, const char *what, unsigned i)
{
    if (*want == MAYBE)
        *want = is ? THERE : ABSENT;
    cr_assert(is == (*want == THERE), "%s %u: %s", what, i, is ? "is there" : "was lost");
}

/* Rule 1, by reading everything. */
static int check_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    if (flag != FTW_F)
        return 0;
    struct digest want, real;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    cr_assert(digest_parse_hex(DIGEST_SHA256, path + ftw->base, &want, NULL) == 0, "%s", path);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    char *at = strbuf_reserve(&b, (size_t)st->st_size + 1);
    size_t n = fread(at, 1, (size_t)st->st_size + 1, f);
    fclose(f);
    cr_assert(digest_of(DIGEST_SHA256, at, n, &real, NULL) == 0);
    cr_assert(digest_equal(&want, &real), "%s does not hash to its name", path);
    return 0;
}

static void verify(struct model *m)
{
    struct store *s = open_store();
    for (unsigned i = 0; i < N; i++) {
        struct digest d = digest_of_text(text_of("blob", i)), md, big;
        agree(&m->put[i], is_held(s, &d), "blob", i);
        unsigned char *bytes = make_bytes(BIG, 100 + i, &big);
        agree(&m->big[i], is_held(s, &big), "big", i);
        if (m->big[i] == THERE)
            assert_blob(s, &big, bytes, BIG);
        free(bytes);
        const char *repo = i & 1 ? "hf/a/one" : "hf/a/two";
        md = digest_of_text(text_of("manifest", i));
        struct manifest man;
        struct error err = ERROR_INIT;
        int r = store_manifest_get(s, repo, &md, &man, &err);
        cr_assert(r >= 0, "%s", err.text);
        agree(&m->manifest[i], r == 1, "manifest", i);
        struct link l;
        if (r == 1) { /* rule 3 */
            manifest_done(&man);
            cr_assert(store_link_get(s, repo, &d, &l, NULL) == 1 && l.held, "manifest %u", i);
            link_done(&l);
        } else {
            cr_assert(store_link_get(s, repo, &d, &l, NULL) == 0, "link without manifest %u", i);
        }
    }
    struct store_stats st;
    uint64_t blobs = 0, bytes = 0;
    cr_assert(store_stats(s, &st, NULL) == 0);
    for (unsigned i = 0; i < N; i++) {
        blobs += (m->put[i] == THERE) + (m->big[i] == THERE);
        bytes +=
            (m->put[i] == THERE ? strlen(text_of("blob", i)) : 0) + (m->big[i] == THERE ? BIG : 0);
    }
    cr_assert(st.blobs == blobs && st.blob_bytes == bytes, "counters");
    cr_assert(count_incoming() == st.partials);
    store_close(s);
    char path[400];
    snprintf(path, sizeof(path), "%s/blobs", data_dir());
    nftw(path, check_file, 16, FTW_PHYS);
}

static unsigned one_round(struct model *m, unsigned *seed)
{
    int fds[2];
    cr_assert(pipe(fds) == 0);
    unsigned child_seed = (unsigned)rand_r(seed), live = 1 + (unsigned)rand_r(seed) % 120;
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        child_work(fds[1], child_seed);
    }
    close(fds[1]);
    struct note n;
    unsigned notes = 0;
    useconds_t extra = (useconds_t)rand_r(seed) % 3000;
    while (read(fds[0], &n, sizeof(n)) == sizeof(n)) {
        if (n.when == 'b')
            note_begun(m, n.op, n.i);
        else
            note_done(m, n.op, n.i);
        if (++notes == live) { /* somewhere inside an operation; any moment is a good one */
            usleep(extra);
            kill(pid, SIGKILL);
        }
    }
    close(fds[0]);
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "child failed: %x", status);
    return notes;
}

Test(crash, random_kills)
{
    const char *env = getenv("WB_CRASH_ROUNDS"), *env_seed = getenv("WB_CRASH_SEED");
    unsigned rounds = env ? (unsigned)atoi(env) : 20, notes = 0;
    unsigned seed = env_seed ? (unsigned)atoi(env_seed) : (unsigned)clock_monotonic_us();
    fprintf(stderr, "random_kills: WB_CRASH_SEED=%u\n", seed);
    struct model m = {0};
    for (unsigned i = 0; i < rounds; i++) {
        notes += one_round(&m, &seed);
        verify(&m);
    }
    cr_assert(notes >= rounds);
}
