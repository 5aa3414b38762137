/* What is left of an upload session by a process that was killed, and by a machine that lost its
 * power (its next start believes only what was synced). */
#include "crash.h"
#include "upload.h"

#include <dirent.h>
#include <sys/resource.h>

TestSuite(upload_crash, .init = dir_make, .fini = dir_remove, .timeout = 240);

#define ACKED (5 * MIB) /* the first 4 MiB make a step of syncing */
#define WHOLE (7 * MIB)

static char id[UPLOAD_ID_LEN + 1];
static unsigned char *bytes;
static struct digest digest;

/* Begun and partly sent by an earlier process. */
static void prepare(void)
{
    if (!bytes)
        bytes = make_bytes(WHOLE, 21, &digest);
    struct store *s = open_store();
    begin(s, id);
    store_close(s);
}

static void do_all(struct store *s)
{
    uint64_t offset;
    struct upload *u = NULL;
    for (size_t at = 0; at < WHOLE; at += MIB) {
        if (upload_open(s, REPO, id, &u, NULL) != 1)
            _exit(4);
        if (at == ACKED)
            storage_fault = die_there;
        if (upload_write(u, bytes + at, MIB, NULL) < 0)
            _exit(5);
        if (at + MIB == WHOLE)
            break;
        if (upload_ack(u, &offset, NULL) < 0)
            _exit(6);
        upload_close(u);
        /* an extent that was queued is written before this is */
        if (store_mismatch_put(s, &digest, 1, NULL) < 0)
            _exit(7);
    }
    upload_commit(u, &digest, NULL);
}

/* The points before the eighth byte of ACKED are passed over: nobody dies on the way there. */
static void run_from_acked(const char *point)
{
    kill_at = point;
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s = open_store();
        do_all(s);
        _exit(3);
    }
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: status %x", point, status);
}

static void finish(struct store *s, size_t from)
{
    struct upload *u = open_upload(s, id);
    cr_assert(upload_offset(u) == from);
    write_range(u, bytes, from, WHOLE - from);
    commit(u, &digest);
    upload_close(u);
}

static void assert_complete(struct store *s)
{
    assert_blob(s, &digest, bytes, WHOLE);
    assert_linked(s, REPO, &digest);
    assert_gone(s, id);
    cr_assert(count_incoming() == 0);
    struct store_stats st = stats_of(s);
    cr_assert(st.uploads == 0 && st.partial_bytes == 0 && st.partials == 0);
    cr_assert(st.blobs == 1 && st.blob_bytes == WHOLE);
}

static const struct {
    const char *point;
    size_t left, left_on_disk; /* SIZE_MAX: it is the blob by then */
} points[] = {
    {"upload.written", ACKED + MIB, 4 * MIB}, {"upload.verified", WHOLE, 4 * MIB},
    {"upload.intent", WHOLE, 4 * MIB},        {"put.synced", WHOLE, 4 * MIB},
    {"publish.renamed", SIZE_MAX, SIZE_MAX},  {"publish.synced", SIZE_MAX, SIZE_MAX},
    {"upload.done", SIZE_MAX, SIZE_MAX},
};

static void at_every_point(bool power_cut)
{
    const char *boot = storage_boot_file;
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        size_t left = power_cut ? points[i].left_on_disk : points[i].left;
        storage_boot_file = boot;
        prepare();
        run_from_acked(points[i].point);
        if (power_cut)
            storage_boot_file = "/dev/null";
        struct store *s = open_store();
        if (left != SIZE_MAX) {
            cr_assert(!is_held(s, &digest), "%s", points[i].point);
            cr_assert(status_of(s, id) == left, "%s: %zu", points[i].point,
                      (size_t)status_of(s, id));
            cr_assert(stats_of(s).partial_bytes == left);
            /* and once more, now that what was left is settled */
            store_close(s);
            storage_boot_file = boot;
            s = open_store();
            cr_assert(status_of(s, id) <= left);
            finish(s, (size_t)status_of(s, id));
        }
        assert_complete(s);
        store_close(s);
        s = open_store();
        assert_complete(s);
        store_close(s);
        clear_data();
    }
}

Test(upload_crash, at_every_point)
{
    at_every_point(false);
}

Test(upload_crash, of_the_power_at_every_point)
{
    at_every_point(true);
}

static void do_begin(struct store *s)
{
    char unused[UPLOAD_ID_LEN + 1];
    upload_begin(s, REPO, DIGEST_SHA512, unused, NULL);
}

/* The only file in incoming/. */
static void find_id(void)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/incoming", data_dir());
    DIR *dir = opendir(path);
    cr_assert(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            snprintf(id, sizeof(id), "%.32s", e->d_name);
    closedir(dir);
}

Test(upload_crash, after_the_beginning)
{
    run_killed("upload.begun", do_begin);
    find_id();
    struct store *s = open_store();
    cr_assert(status_of(s, id) == 0);
    store_close(s);
    /* with the power the file's name may go, but not the row */
    char path[400];
    incoming_path(id, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    storage_boot_file = "/dev/null";
    s = open_store();
    cr_assert(status_of(s, id) == 0);
    push_open(s, id, "abc");
    struct digest d = digest_of_text("abc");
    assert_blob(s, &d, "abc", 3);
    store_close(s);
}

static void do_cancel(struct store *s)
{
    upload_cancel(s, REPO, id, NULL);
}

/* A file without a row was never promised to anybody, or is not wanted any more. */
Test(upload_crash, where_the_file_has_no_row)
{
    run_killed("upload.created", do_begin);
    cr_assert(count_incoming() == 1);
    struct store *s = open_store();
    cr_assert(count_incoming() == 0 && stats_of(s).uploads == 0);
    store_close(s);
    prepare();
    run_killed("upload.dropped", do_cancel);
    cr_assert(count_incoming() == 1);
    s = open_store();
    assert_gone(s, id);
    cr_assert(count_incoming() == 0 && stats_of(s).uploads == 0);
    store_close(s);
}

static void do_push_held(struct store *s)
{
    push_text(s, REPO, "held already");
}

Test(upload_crash, of_a_blob_that_was_held)
{
    static const char *const held_points[] = {"upload.written", "upload.linked", "upload.done"};
    for (int i = 0; i < 3; i++) {
        struct store *s = open_store();
        struct digest d = put_text(s, "held already");
        store_close(s);
        run_killed(held_points[i], do_push_held);
        s = open_store();
        struct link l;
        cr_assert(store_link_get(s, REPO, &d, &l, NULL) == (i > 0));
        if (i)
            link_done(&l);
        cr_assert(stats_of(s).uploads == (i == 0) && count_incoming() == (i == 0));
        store_close(s);
        clear_data();
    }
}

/* What a commit noted in the row is worth nothing once other bytes are sent. */
Test(upload_crash, other_bytes_after_a_commit_that_broke_off)
{
    struct digest other;
    unsigned char *others = make_bytes(WHOLE, 22, &other);
    prepare();
    run_from_acked("upload.intent");
    for (int i = 0; i < 2; i++) {
        struct store *s = open_store();
        struct upload *u = open_upload(s, id);
        if (i == 0) {
            struct error err = ERROR_INIT;
            cr_assert(upload_commit(u, &other, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
        } else {
            commit(u, &digest);
        }
        upload_close(u);
        store_close(s);
    }
    struct store *s = open_store();
    assert_complete(s);
    cr_assert(!is_held(s, &other));
    store_close(s);
    free(others);
}

/* Only a file of the row's size is believed to be the one that was renamed. */
Test(upload_crash, a_renamed_file_of_another_size)
{
    prepare();
    run_from_acked("publish.renamed");
    char path[600];
    blob_path(&digest, path, sizeof(path));
    cr_assert(chmod(path, 0640) == 0 && truncate(path, 5) == 0);
    struct store *s = open_store();
    cr_assert(!is_held(s, &digest) && access(path, F_OK) < 0);
    assert_gone(s, id);
    struct link l;
    cr_assert(store_link_get(s, REPO, &digest, &l, NULL) == 0);
    store_close(s);
}

/* ---- failures that a process survives ---- */

static void no_more_writing(const char *point)
{
    struct rlimit now = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    if (strcmp(point, "publish.synced") == 0)
        cr_assert(setrlimit(RLIMIT_FSIZE, &now) == 0);
}

/* The file has its name, but the rows could not be written: sending the commit again is enough. */
Test(upload_crash, rows_that_cannot_be_written)
{
    struct error err = ERROR_INIT;
    signal(SIGXFSZ, SIG_IGN);
    for (int how = 0; how < 3; how++) {
        prepare();
        struct store *s = open_store();
        struct upload *u = open_upload(s, id);
        write_range(u, bytes, 0, WHOLE);
        storage_fault = no_more_writing;
        cr_assert(upload_commit(u, &digest, &err) == -1, "%d", how);
        storage_fault = NULL;
        struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        cr_assert(setrlimit(RLIMIT_FSIZE, &all) == 0);
        upload_close(u);
        cr_assert(!is_held(s, &digest) && stats_of(s).uploads == 1);
        if (how == 0) {
            struct digest other = digest_of_text("other");
            cr_assert(status_of(s, id) == WHOLE);
            u = open_upload(s, id);
            cr_assert(upload_offset(u) == WHOLE);
            cr_assert(upload_commit(u, &other, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
            commit(u, &digest);
            upload_close(u);
            assert_complete(s);
        } else if (how == 1) {
            u = open_upload(s, id);
            cr_assert(upload_write(u, "x", 1, &err) == -1 && err.code == ERR_CONFLICT);
            upload_close(u);
            cr_assert(upload_cancel(s, REPO, id, &err) == 1, "%s", err.text);
            cr_assert(stats_of(s).uploads == 0 && stats_of(s).partial_bytes == 0);
        } else {
            store_close(s);
            s = open_store();
            assert_complete(s);
        }
        store_close(s);
        clear_data();
    }
}

/* Puts something that cannot be synced in the place of the session's descriptor. */
static void break_descriptor(const char *point)
{
    if (strcmp(point, "upload.verified") != 0)
        return;
    char link[64], target[600];
    int ends[2];
    cr_assert(pipe(ends) == 0);
    for (int fd = 3; fd < 100; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strstr(target, id))
            cr_assert(dup2(ends[0], fd) == fd);
    }
    close(ends[0]);
    close(ends[1]);
}

/* What was not synced before is not believed any more, not even when it seems to be there. */
Test(upload_crash, a_sync_that_fails)
{
    struct error err = ERROR_INIT;
    for (int restart = 0; restart < 2; restart++) {
        prepare();
        struct store *s = open_store();
        for (size_t at = 0; at < ACKED; at += MIB)
            send_piece(s, id, bytes, at, MIB);
        struct upload *u = open_upload(s, id);
        write_range(u, bytes, ACKED, WHOLE - ACKED);
        storage_fault = break_descriptor;
        cr_assert(upload_commit(u, &digest, &err) == -1 && err.code == ERR_IO, "%s", err.text);
        storage_fault = NULL;
        upload_close(u);
        cr_assert(status_of(s, id) == 4 * MIB);
        if (restart) {
            store_close(s);
            s = open_store();
            cr_assert(status_of(s, id) == 4 * MIB);
        }
        finish(s, 4 * MIB);
        assert_complete(s);
        store_close(s);
        clear_data();
    }
}
