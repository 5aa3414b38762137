#include "helper.h"

#include <dirent.h>
#include <pthread.h>

TestSuite(store, .init = dir_make, .fini = dir_remove, .timeout = 240);

Test(store, opens_empty_and_again)
{
    struct store *s = open_store();
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.blobs == 0 && st.blob_bytes == 0 && st.partials == 0 && st.repositories == 0);
    cr_assert(st.disk_total > 0);
    store_close(s);
    s = open_store();
    store_close(s);
    store_close(NULL);
}

Test(store, relative_directory_with_parents)
{
    cr_assert(chdir(test_dir) == 0);
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    struct store_options o = {.dir = "./a/b/c"};
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    put_text(s, "x");
    store_close(s);
}

Test(store, put_and_read_back)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "hello");
    struct digest again = put_text(s, "hello"), none = digest_of_text("nobody put this");
    cr_assert(digest_equal(&d, &again));
    assert_blob(s, &d, "hello", 5);
    cr_assert(!is_held(s, &none));
    struct blob *b = NULL;
    cr_assert(store_blob_open(s, &none, &b, NULL) == 0);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.blobs == 1 && st.blob_bytes == 5 && st.partials == 0);
    store_close(s);
    s = open_store();
    assert_blob(s, &d, "hello", 5);
    cr_assert(count_incoming() == 0);
    store_close(s);
}

Test(store, empty_blob)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "");
    assert_blob(s, &d, "", 0);
    store_close(s);
}

Test(store, files_are_read_only_and_folders_private)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "hello");
    char path[600];
    struct stat st;
    blob_path(&d, path, sizeof(path));
    cr_assert(stat(path, &st) == 0);
    cr_assert((st.st_mode & 07777) == 0440, "%o", st.st_mode);
    snprintf(path, sizeof(path), "%s/blobs/sha256", data_dir());
    cr_assert(stat(path, &st) == 0);
    cr_assert((st.st_mode & 0777 & ~0750) == 0);
    store_close(s);
}

Test(store, reading_bounds)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "0123456789");
    struct blob *b = NULL;
    char buf[32];
    cr_assert(store_blob_open(s, &d, &b, NULL) == 1);
    cr_assert(blob_fd(b) >= 0);
    cr_assert(blob_read(b, 10, buf, sizeof(buf), NULL) == 0);
    cr_assert(blob_read(b, UINT64_MAX, buf, sizeof(buf), NULL) == 0);
    cr_assert(blob_read(b, 8, buf, sizeof(buf), NULL) == 2);
    cr_assert(memcmp(buf, "89", 2) == 0);
    cr_assert(blob_read(b, 0, buf, 0, NULL) == 0);
    blob_close(b);
    blob_close(NULL);
    store_close(s);
}

Test(store, digest_without_algorithm_is_refused)
{
    struct store *s = open_store();
    struct digest d = {.alg = DIGEST_NONE};
    struct error err = ERROR_INIT;
    struct blob *b = NULL;
    struct blob_writer *w = NULL;
    cr_assert(store_blob_open(s, &d, &b, &err) == -1 && err.code == ERR_INVALID);
    cr_assert(writer_open(s, &d, 1, &w, &err) == -1 && err.code == ERR_INVALID);
    d.alg = (enum digest_alg)77;
    cr_assert(store_blob_open(s, &d, &b, &err) == -1 && err.code == ERR_INVALID);
    store_close(s);
}

Test(store, a_blob_whose_file_is_gone_is_not_held)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "hello");
    char path[600];
    struct blob *b = NULL;
    blob_path(&d, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    cr_assert(store_blob_open(s, &d, &b, NULL) == 0);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.blobs == 0 && st.blob_bytes == 0, "the row is fixed");
    put_text(s, "hello");
    assert_blob(s, &d, "hello", 5);
    store_close(s);
}

Test(store, a_cut_file_is_not_held_and_goes_with_gc)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "hello");
    char path[600];
    blob_path(&d, path, sizeof(path));
    cr_assert(chmod(path, 0640) == 0 && truncate(path, 3) == 0);
    cr_assert(!is_held(s, &d));
    cr_assert(!is_held(s, &d));
    struct gc_result gc;
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 3);
    cr_assert(access(path, F_OK) < 0);
    put_text(s, "hello");
    assert_blob(s, &d, "hello", 5);
    cr_assert(chmod(path, 0640) == 0 && truncate(path, 2) == 0);
    put_text(s, "hello"); /* written over what is wrong */
    assert_blob(s, &d, "hello", 5);
    store_close(s);
}

Test(store, an_open_blob_stays_readable_when_removed)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "hello");
    struct blob *b = NULL;
    struct gc_result gc;
    char buf[8];
    cr_assert(store_blob_open(s, &d, &b, NULL) == 1);
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, NULL) == 0);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 5);
    cr_assert(!is_held(s, &d));
    cr_assert(blob_read(b, 0, buf, sizeof(buf), NULL) == 5);
    blob_close(b);
    store_close(s);
}

Test(store, room)
{
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 0};
    cr_assert(store_open(&o, &s, &err) == 0);
    cr_assert(store_has_room(s, 1, &err) == 0, "%s", err.text);
    cr_assert(store_has_room(s, UINT64_MAX, &err) == -1);
    cr_assert(err.code == ERR_NO_SPACE && strstr(err.text, "limits.free_percent"), "%s", err.text);
    store_close(s);
    o.free_floor_percent = 100;
    cr_assert(store_open(&o, &s, &err) == 0);
    cr_assert(store_has_room(s, 0, &err) == -1 && err.code == ERR_NO_SPACE);
    store_close(s);
}

/* LMDB writes the page that ends a commit through a descriptor of its own. */
static int end_of_commits(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        char link[64], path[400] = "";
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof(path) - 1);
        if (n > 0 && strstr(path, "/meta/data.mdb") && (fcntl(fd, F_GETFL) & O_DSYNC))
            return fd;
    }
    return -1;
}

Test(store, a_write_that_fails_for_good)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = put_text(s, "before"), unused;
    uint64_t size;
    cr_assert(!store_has_failed(s, &err));
    int fd = end_of_commits(), full = open("/dev/full", O_RDWR);
    cr_assert(fd >= 0 && full >= 0 && dup2(full, fd) == fd);
    cr_assert(store_blob_put(s, "more", 4, &unused, &err) == -1);
    cr_assert(store_has_failed(s, &err) && err.code == ERR_IO && strstr(err.text, "restart"), "%s",
              err.text);
    cr_assert(store_blob_stat(s, &d, &size, &err) == -1, "nothing works any more");
    store_close(s);
    s = open_store();
    cr_assert(!store_has_failed(s, &err));
    assert_blob(s, &d, "before", 6);
    store_close(s);
}

Test(store, mismatches_are_remembered_and_run_out)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("a"), other = digest_of_text("b");
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0);
    cr_assert(store_mismatch_put(s, &d, clock_wall_s() + 600, NULL) == 0);
    cr_assert(store_mismatch_put(s, &other, clock_wall_s(), NULL) == 0);
    store_close(s);
    s = open_store();
    uint64_t left = store_mismatch_left(s, &d, "any/repository");
    cr_assert(left > 500 && left <= 600);
    cr_assert(store_mismatch_left(s, &other, "any/repository") == 0);
    /* noted when the clock was years ahead */
    cr_assert(store_mismatch_put(s, &d, clock_wall_s() + 100000000, NULL) == 0);
    left = store_mismatch_left(s, &d, "any/repository");
    cr_assert(left > 0 && left <= 3600);
    store_close(s);
}

Test(store, mismatches_of_some_repositories)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("a"), other = digest_of_text("b");
    struct lent to = {0};
    cr_assert(store_mismatch_put_to(s, &d, &to, clock_wall_s() + 600, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        lent_add(&to, "evil/x");
        lent_add(&to, "evil/y");
    }
    cr_assert(to.n == 2 && !to.all);
    cr_assert(store_mismatch_put_to(s, &d, &to, clock_wall_s() + 600, NULL) == 0);
    store_close(s);
    s = open_store();
    cr_assert(store_mismatch_left(s, &d, "evil/x") > 500);
    cr_assert(store_mismatch_left(s, &d, "evil/y") > 500);
    cr_assert(store_mismatch_left(s, &d, "evil/z") == 0);
    cr_assert(store_mismatch_left(s, &d, "team/app") == 0);
    cr_assert(store_mismatch_left(s, &other, "evil/x") == 0);
    /* noted when the clock was years ahead */
    cr_assert(store_mismatch_put_to(s, &d, &to, clock_wall_s() + 100000000, NULL) == 0);
    uint64_t left = store_mismatch_left(s, &d, "evil/x");
    cr_assert(left > 600 && left <= 3600);
    cr_assert(store_mismatch_left(s, &d, "team/app") == 0);
    /* ran out for one, and not for all */
    cr_assert(store_mismatch_put_to(s, &d, &to, clock_wall_s(), NULL) == 0);
    cr_assert(store_mismatch_left(s, &d, "evil/x") == 0);
    cr_assert(store_mismatch_put(s, &d, clock_wall_s() + 600, NULL) == 0);
    cr_assert(store_mismatch_left(s, &d, "evil/x") > 500);
    cr_assert(store_mismatch_left(s, &d, "team/app") > 500);
    store_close(s);
}

Test(store, too_many_repositories_are_all)
{
    struct lent to = {0}, more = {0};
    char name[40];
    for (unsigned i = 0; i < LENT_MAX; i++) {
        snprintf(name, sizeof(name), "team/%u", i);
        lent_add(&to, name);
        cr_assert(to.n == i + 1 && !to.all);
    }
    lent_add_all(&more, &to);
    lent_add_all(&more, &to);
    cr_assert(more.n == LENT_MAX && !more.all);
    lent_add(&more, "one/more");
    cr_assert(more.all && !more.n && !lent_is_empty(&more));
    lent_add(&more, "another/one");
    lent_add_all(&to, &more);
    cr_assert(to.all && !to.n);
}

static unsigned own_fds(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

Test(store, descriptors_do_not_leak)
{
    struct store *s = open_store();
    put_text(s, "warm up");
    unsigned before = own_fds();
    for (int i = 0; i < 20; i++) {
        char text[16];
        snprintf(text, sizeof(text), "blob %d", i);
        struct digest d = put_text(s, text);
        assert_blob(s, &d, text, strlen(text));
        struct blob_writer *w = NULL;
        d = digest_of_text(text);
        d.raw[0] ^= 1;
        cr_assert(writer_open(s, &d, 10, &w, NULL) == 0);
        writer_close(w, i & 1);
    }
    cr_assert(own_fds() == before);
    store_close(s);
    cr_assert(own_fds() < before);
}

/* ---- one batch, many fates ---- */

struct batch_thread {
    struct store *s;
    unsigned id, wrong;
    pthread_barrier_t *start;
};

static void *batch_main(void *arg)
{
    struct batch_thread *t = arg;
    struct digest md = digest_of_text("{m}"), none = digest_of_text("{none}");
    char tag[32];
    for (unsigned i = 0; i < 20; i++) {
        struct error err = ERROR_INIT;
        snprintf(tag, sizeof(tag), "t%u-%u", t->id, i);
        pthread_barrier_wait(t->start);
        if (t->id % 2) {
            if (store_tag_put(t->s, "hf/a/b", tag, &none, "", &err) != -1 ||
                err.code != ERR_NOT_FOUND || !strstr(err.text, tag))
                t->wrong++;
        } else if (store_tag_put(t->s, "hf/a/b", tag, &md, "", &err) != 0) {
            t->wrong++;
        }
    }
    return NULL;
}

Test(store, a_failing_write_does_not_harm_its_neighbours)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    cr_assert(import_one(s, "hf/a/b", COMMIT_A, NULL, "{m}", NULL, 0, &err) == 0, "%s", err.text);
    pthread_barrier_t start;
    pthread_t threads[8];
    struct batch_thread t[8];
    pthread_barrier_init(&start, NULL, 8);
    for (unsigned i = 0; i < 8; i++) {
        t[i] = (struct batch_thread){.s = s, .id = i, .start = &start};
        cr_assert(pthread_create(&threads[i], NULL, batch_main, &t[i]) == 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        cr_assert(t[i].wrong == 0, "thread %u", i);
    }
    struct name_list l;
    cr_assert(store_tags(s, "hf/a/b", NULL, 1000, &l, NULL) == 0);
    cr_assert(l.n == 81, "%zu", l.n);
    for (size_t i = 0; i < l.n; i++)
        cr_assert(l.names[i][0] == 'a' || (l.names[i][1] - '0') % 2 == 0, "%s", l.names[i]);
    name_list_done(&l);
    store_close(s);
}

Test(store, a_chdir_does_not_matter)
{
    cr_assert(chdir(test_dir) == 0);
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    struct store_options o = {.dir = "data"};
    struct store_stats st;
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    cr_assert(chdir("/") == 0);
    struct digest d = put_text(s, "x");
    assert_blob(s, &d, "x", 1);
    cr_assert(store_stats(s, &st, &err) == 0, "%s", err.text);
    store_close(s);
}
