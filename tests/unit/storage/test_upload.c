/* Upload sessions while the process lives. test_upload_crash.c has the others. */
#include "upload.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

TestSuite(upload, .init = dir_make, .fini = dir_remove, .timeout = 240);

Test(upload, from_begin_to_commit)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(3 * MIB + 7, 1, &d);
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    cr_assert(strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32);
    cr_assert(status_of(s, id) == 0);
    send_piece(s, id, bytes, 0, MIB);
    cr_assert(status_of(s, id) == MIB);
    send_piece(s, id, bytes, MIB, MIB + 7);
    struct store_stats st = stats_of(s);
    cr_assert(st.uploads == 1 && st.partial_bytes == 2 * MIB + 7 && st.partials == 0);
    cr_assert(!is_held(s, &d));
    struct upload *u = open_upload(s, id);
    cr_assert(upload_offset(u) == 2 * MIB + 7 && upload_size(u) == 2 * MIB + 7);
    write_range(u, bytes, 2 * MIB + 7, MIB);
    cr_assert(upload_offset(u) == 2 * MIB + 7 && upload_size(u) == 3 * MIB + 7);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, 3 * MIB + 7);
    assert_linked(s, REPO, &d);
    assert_gone(s, id);
    cr_assert(count_incoming() == 0);
    st = stats_of(s);
    cr_assert(st.uploads == 0 && st.partial_bytes == 0 && st.blobs == 1);
    cr_assert(st.blob_bytes == 3 * MIB + 7);
    store_close(s);
    free(bytes);
}

Test(upload, of_nothing)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("");
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    struct upload *u = open_upload(s, id);
    cr_assert(upload_write(u, "", 0, NULL) == 0);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, "", 0);
    store_close(s);
}

Test(upload, names_that_cannot_be)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1], long_name[400];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const char *const bad[] = {"", "Upper", "../x", long_name};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert(upload_begin(s, bad[i], DIGEST_SHA256, id, &err) == -1 &&
                  err.code == ERR_INVALID);
    cr_assert(upload_begin(s, REPO, DIGEST_NONE, id, &err) == -1 && err.code == ERR_UNSUPPORTED);
    begin(s, id);
    const char *const no_ids[] = {"", "x", "00000000000000000000000000000000",
                                  "../../../etc/passwd", long_name};
    for (size_t i = 0; i < ARRAY_LEN(no_ids); i++)
        assert_gone(s, no_ids[i]);
    cr_assert(stats_of(s).uploads == 1);
    store_close(s);
}

Test(upload, another_repository_does_not_see_it)
{
    struct store *s = open_store();
    struct upload *u = NULL;
    char id[UPLOAD_ID_LEN + 1];
    uint64_t offset;
    begin(s, id);
    send_piece(s, id, (const unsigned char *)"abc", 0, 3);
    cr_assert(upload_status(s, "team/other", id, &offset, NULL) == 0);
    cr_assert(upload_open(s, "team/other", id, &u, NULL) == 0);
    cr_assert(upload_cancel(s, "team/other", id, NULL) == 0);
    cr_assert(upload_status(s, "team", id, &offset, NULL) == 0);
    cr_assert(status_of(s, id) == 3);
    store_close(s);
}

/* What was not acknowledged does not count, unless the client asks what is there. */
Test(upload, a_request_that_broke_off)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(MIB, 2, &d);
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    send_piece(s, id, bytes, 0, 1000);
    struct upload *u = open_upload(s, id);
    write_range(u, (const unsigned char *)"wrong bytes", 0, 11);
    upload_close(u);
    cr_assert(stats_of(s).partial_bytes == 1011);
    u = open_upload(s, id);
    cr_assert(upload_offset(u) == 1000 && upload_size(u) == 1000);
    cr_assert(stats_of(s).partial_bytes == 1000);
    write_range(u, bytes, 1000, 500);
    upload_close(u);
    cr_assert(status_of(s, id) == 1500, "asking acknowledges");
    u = open_upload(s, id);
    cr_assert(upload_offset(u) == 1500);
    write_range(u, bytes, 1500, MIB - 1500);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, MIB);
    store_close(s);
    free(bytes);
}

/* The row must not promise more than what is left: synced is at 4 MiB before the cut. */
Test(upload, cut_below_what_was_synced)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(6 * MIB, 3, &d), *wrong = calloc(1, 6 * MIB);
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    send_piece(s, id, bytes, 0, 100);
    struct upload *u = open_upload(s, id);
    write_range(u, wrong, 0, 5 * MIB);
    upload_close(u);
    u = open_upload(s, id);
    cr_assert(upload_offset(u) == 100);
    write_range(u, bytes, 100, MIB);
    uint64_t offset;
    cr_assert(upload_ack(u, &offset, NULL) == 0 && offset == MIB + 100);
    upload_close(u);
    store_close(s);
    storage_boot_file = "/dev/null"; /* as after a power cut */
    s = open_store();
    cr_assert(status_of(s, id) == 100, "what was synced: %zu", (size_t)status_of(s, id));
    u = open_upload(s, id);
    write_range(u, bytes, 100, 6 * MIB - 100);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, 6 * MIB);
    store_close(s);
    free(bytes);
    free(wrong);
}

Test(upload, a_newer_request_takes_over)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("right bytes");
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1];
    uint64_t offset = 77;
    begin(s, id);
    struct upload *old[5], *new;
    for (size_t i = 0; i < ARRAY_LEN(old); i++)
        old[i] = open_upload(s, id);
    write_range(old[4], (const unsigned char *)"wrong", 0, 5);
    new = open_upload(s, id);
    cr_assert(upload_offset(new) == 0);
    cr_assert(upload_write(old[4], "xx", 2, &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(strstr(err.text, id), "%s", err.text);
    cr_assert(upload_write(old[4], "xx", 2, &err) == -1 && err.code == ERR_CONFLICT, "sticky");
    cr_assert(upload_ack(old[0], &offset, &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(upload_commit(old[1], &d, &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(upload_expect(old[2], 5, &err) == -1 && err.code == ERR_CONFLICT && offset == 77);
    write_range(new, (const unsigned char *)"right ", 0, 6);
    upload_close(old[4]);
    upload_close(old[0]);
    write_range(new, (const unsigned char *)"bytes", 0, 5);
    commit(new, &d);
    assert_blob(s, &d, "right bytes", 11);
    upload_close(old[1]);
    upload_close(new);
    cr_assert(upload_write(old[3], "xx", 2, &err) == -1 && err.code == ERR_CONFLICT);
    cr_assert(strstr(err.text, "ended"), "%s", err.text);
    upload_close(old[2]);
    upload_close(old[3]);
    upload_close(NULL);
    assert_blob(s, &d, "right bytes", 11);
    store_close(s);
}

Test(upload, a_mismatch_keeps_the_session)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("abcdef"), other = digest_of_text("other");
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1], text[DIGEST_TEXT_MAX];
    begin(s, id);
    send_piece(s, id, (const unsigned char *)"abc", 0, 3);
    struct upload *u = open_upload(s, id);
    write_range(u, (const unsigned char *)"xyz", 0, 3);
    cr_assert(upload_commit(u, &other, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
    cr_assert(strstr(err.text, digest_format(&other, text)), "%s", err.text);
    cr_assert(upload_offset(u) == 3 && upload_size(u) == 3 && status_of(s, id) == 3);
    cr_assert(!is_held(s, &other) && stats_of(s).partial_bytes == 3);
    /* the same hold can go on, and so can another one */
    write_range(u, (const unsigned char *)"de", 0, 2);
    cr_assert(upload_commit(u, &d, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
    write_range(u, (const unsigned char *)"def", 0, 3);
    uint64_t offset;
    cr_assert(upload_ack(u, &offset, NULL) == 0 && offset == 6);
    upload_close(u);
    u = open_upload(s, id);
    cr_assert(upload_commit(u, &other, &err) == -1 && err.code == ERR_DIGEST_MISMATCH);
    cr_assert(upload_size(u) == 6);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, "abcdef", 6);
    struct link l;
    cr_assert(store_link_get(s, REPO, &other, &l, NULL) == 0);
    store_close(s);
}

Test(upload, another_algorithm)
{
    static const enum digest_alg algs[] = {DIGEST_SHA256, DIGEST_SHA512};
    struct store *s = open_store();
    struct digest unused;
    unsigned char *bytes = make_bytes(MIB + 3, 5, &unused);
    for (size_t a = 0; a < 2; a++)
        for (size_t c = 0; c < 2; c++) {
            struct digest d, wrong;
            char id[UPLOAD_ID_LEN + 1];
            bytes[0] = (unsigned char)(2 * a + c);
            cr_assert(digest_of(algs[c], bytes, MIB + 3, &d, NULL) == 0);
            wrong = d;
            wrong.raw[digest_size(algs[c]) - 1] ^= 1;
            cr_assert(upload_begin(s, REPO, algs[a], id, NULL) == 0);
            send_piece(s, id, bytes, 0, MIB);
            struct upload *u = open_upload(s, id);
            write_range(u, bytes, MIB, 3);
            cr_assert(upload_commit(u, &wrong, NULL) == -1);
            write_range(u, bytes, MIB, 3);
            commit(u, &d);
            upload_close(u);
            assert_blob(s, &d, bytes, MIB + 3);
            assert_linked(s, REPO, &d);
        }
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    struct upload *u = open_upload(s, id);
    unused.alg = DIGEST_NONE;
    cr_assert(upload_commit(u, &unused, &err) == -1 && err.code == ERR_INVALID);
    upload_close(u);
    store_close(s);
    free(bytes);
}

Test(upload, of_a_blob_that_is_held)
{
    struct store *s = open_store();
    struct digest d = put_text(s, "the same");
    struct link l;
    cr_assert(store_link_get(s, REPO, &d, &l, NULL) == 0);
    char path[600];
    struct stat before, after;
    blob_path(&d, path, sizeof(path));
    cr_assert(stat(path, &before) == 0);
    push_text(s, REPO, "the same");
    cr_assert(stat(path, &after) == 0 && before.st_ino == after.st_ino, "stored once");
    assert_linked(s, REPO, &d);
    cr_assert(count_incoming() == 0);
    struct store_stats st = stats_of(s);
    cr_assert(st.blobs == 1 && st.blob_bytes == 8 && st.uploads == 0 && st.partial_bytes == 0);
    /* a row whose file somebody removed is not believed */
    cr_assert(unlink(path) == 0);
    push_text(s, "team/other", "the same");
    assert_blob(s, &d, "the same", 8);
    assert_linked(s, "team/other", &d);
    store_close(s);
}

Test(upload, survives_an_orderly_restart)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(6 * MIB, 7, &d);
    char id[UPLOAD_ID_LEN + 1], empty[UPLOAD_ID_LEN + 1];
    begin(s, id);
    begin(s, empty);
    send_piece(s, id, bytes, 0, 5 * MIB);
    for (int i = 0; i < 3; i++) {
        store_close(s);
        s = open_store();
        struct store_stats st = stats_of(s);
        cr_assert(st.uploads == 2 && st.partial_bytes == 5 * MIB && st.partials == 0);
        cr_assert(status_of(s, id) == 5 * MIB && status_of(s, empty) == 0);
    }
    struct upload *u = open_upload(s, id);
    write_range(u, bytes, 5 * MIB, MIB);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, 6 * MIB);
    cr_assert(upload_cancel(s, REPO, empty, NULL) == 1);
    cr_assert(count_incoming() == 0);
    store_close(s);
    s = open_store();
    assert_blob(s, &d, bytes, 6 * MIB);
    assert_linked(s, REPO, &d);
    cr_assert(stats_of(s).uploads == 0);
    store_close(s);
    free(bytes);
}

Test(upload, cancelled)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    struct upload *u = open_upload(s, id);
    write_range(u, (const unsigned char *)"abc", 0, 3);
    cr_assert(upload_cancel(s, REPO, id, NULL) == 1);
    cr_assert(upload_cancel(s, REPO, id, NULL) == 0);
    assert_gone(s, id);
    cr_assert(count_incoming() == 0);
    cr_assert(upload_write(u, "d", 1, &err) == -1 && err.code == ERR_CONFLICT);
    upload_close(u);
    struct store_stats st = stats_of(s);
    cr_assert(st.uploads == 0 && st.partial_bytes == 0);
    store_close(s);
    s = open_store();
    assert_gone(s, id);
    store_close(s);
}

static void age_file(const char *id, time_t seconds)
{
    char path[400];
    incoming_path(id, path, sizeof(path));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= seconds;
    cr_assert(utimensat(AT_FDCWD, path, (struct timespec[]){now, now}, 0) == 0);
}

static uint64_t expire(struct store *s, uint64_t idle_s, uint64_t *ret_bytes)
{
    struct error err = ERROR_INIT;
    uint64_t n = 99;
    cr_assert(uploads_expire(s, idle_s, &n, ret_bytes, &err) == 0, "%s", err.text);
    return n;
}

Test(upload, left_alone_for_too_long)
{
    struct store *s = open_store();
    char idle[UPLOAD_ID_LEN + 1], held[UPLOAD_ID_LEN + 1];
    uint64_t bytes = 99;
    begin(s, idle);
    begin(s, held);
    send_piece(s, idle, (const unsigned char *)"abc", 0, 3);
    struct upload *u = open_upload(s, held);
    cr_assert(expire(s, 1000, &bytes) == 0 && bytes == 0);
    cr_assert(expire(s, UINT64_MAX, &bytes) == 0);
    cr_assert(expire(s, 0, &bytes) == 1 && bytes == 3);
    assert_gone(s, idle);
    cr_assert(status_of(s, held) == 0 && count_incoming() == 1);
    write_range(u, (const unsigned char *)"abcd", 0, 4);
    upload_close(u);
    cr_assert(expire(s, 0, &bytes) == 1 && bytes == 4);
    cr_assert(count_incoming() == 0 && stats_of(s).uploads == 0);
    store_close(s);
    s = open_store();
    cr_assert(stats_of(s).uploads == 0);
    store_close(s);
}

Test(upload, left_alone_across_restarts)
{
    struct store *s = open_store();
    char young[UPLOAD_ID_LEN + 1], old[UPLOAD_ID_LEN + 1], future[UPLOAD_ID_LEN + 1];
    uint64_t bytes = 99;
    begin(s, young);
    begin(s, old);
    begin(s, future);
    store_close(s);
    age_file(young, 3000);
    age_file(old, 500L * 24 * 3600);
    age_file(future, -100000);
    for (int i = 0; i < 3; i++) { /* starting is no activity */
        s = open_store();
        cr_assert(expire(s, 600L * 24 * 3600, &bytes) == 0);
        if (i < 2)
            store_close(s);
    }
    cr_assert(expire(s, 4000, &bytes) == 1);
    assert_gone(s, old);
    cr_assert(expire(s, 2000, &bytes) == 1);
    assert_gone(s, young);
    cr_assert(expire(s, 2000, &bytes) == 0 && status_of(s, future) == 0);
    store_close(s);
}

Test(upload, no_more_than_the_limit)
{
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 1, .max_uploads = 2};
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    char id[3][UPLOAD_ID_LEN + 1];
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    begin(s, id[0]);
    begin(s, id[1]);
    cr_assert(upload_begin(s, REPO, DIGEST_SHA256, id[2], &err) == -1 && err.code == ERR_BUSY);
    cr_assert(strstr(err.text, "limits.uploads"), "%s", err.text);
    cr_assert(upload_cancel(s, REPO, id[0], NULL) == 1);
    begin(s, id[2]);
    store_close(s);
    o.max_uploads = 1; /* those that are there stay */
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    cr_assert(status_of(s, id[1]) == 0 && status_of(s, id[2]) == 0);
    cr_assert(upload_cancel(s, REPO, id[1], NULL) == 1);
    cr_assert(upload_begin(s, REPO, DIGEST_SHA256, id[0], &err) == -1 && err.code == ERR_BUSY);
    push_open(s, id[2], "abc");
    begin(s, id[0]);
    store_close(s);
}

/* Only one that is empty, that nobody holds, and that has been so for a while; the oldest first. */
Test(upload, an_abandoned_one_makes_room)
{
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 1, .max_uploads = 5};
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    char id[5][UPLOAD_ID_LEN + 1], more[UPLOAD_ID_LEN + 1];
    static const long ages[] = {3000, 100, 90, 120, 30};
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < 5; i++)
        begin(s, id[i]);
    send_piece(s, id[0], (const unsigned char *)"abc", 0, 3);
    store_close(s);
    for (size_t i = 0; i < 5; i++)
        age_file(id[i], ages[i]);
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    struct upload *u = open_upload(s, id[1]);
    begin(s, more);
    assert_gone(s, id[3]);
    cr_assert(stats_of(s).uploads == 5);
    begin(s, more);
    assert_gone(s, id[2]);
    cr_assert(upload_begin(s, REPO, DIGEST_SHA256, more, &err) == -1 && err.code == ERR_BUSY);
    cr_assert(status_of(s, id[0]) == 3 && status_of(s, id[4]) == 0, "bytes; too young");
    struct digest empty = digest_of_text("");
    commit(u, &empty);
    upload_close(u);
    cr_assert(stats_of(s).uploads == 4 && count_incoming() == 4);
    store_close(s);
}

struct beginner {
    struct store *s;
    int rc;
};

static void *begin_one(void *arg)
{
    struct beginner *b = arg;
    char id[UPLOAD_ID_LEN + 1];
    b->rc = upload_begin(b->s, REPO, DIGEST_SHA256, id, NULL);
    return NULL;
}

#define MANY 12

Test(upload, abandoned_ones_make_room_for_many_at_once)
{
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 1, .max_uploads = MANY};
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    char id[MANY][UPLOAD_ID_LEN + 1];
    struct beginner beginners[MANY];
    pthread_t threads[MANY];
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < MANY; i++)
        begin(s, id[i]);
    store_close(s);
    for (size_t i = 0; i < MANY; i++)
        age_file(id[i], 100);
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < MANY; i++) {
        beginners[i] = (struct beginner){.s = s};
        cr_assert(pthread_create(&threads[i], NULL, begin_one, &beginners[i]) == 0);
    }
    for (size_t i = 0; i < MANY; i++) {
        pthread_join(threads[i], NULL);
        cr_assert(beginners[i].rc == 0);
    }
    for (size_t i = 0; i < MANY; i++)
        assert_gone(s, id[i]);
    cr_assert(stats_of(s).uploads == MANY && count_incoming() == MANY);
    store_close(s);
}

Test(upload, room_for_what_is_coming)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1], path[400];
    struct stat st;
    begin(s, id);
    incoming_path(id, path, sizeof(path));
    struct upload *u = open_upload(s, id);
    cr_assert(upload_expect(u, UINT64_MAX, &err) == -1 && err.code == ERR_TOO_LARGE);
    cr_assert(upload_expect(u, (uint64_t)1 << 60, &err) == -1 && err.code == ERR_NO_SPACE, "%s",
              err.text);
    cr_assert(strstr(err.text, "limits.free_percent"), "%s", err.text);
    cr_assert(upload_expect(u, 1000, &err) == 0);
    cr_assert(stat(path, &st) == 0 && st.st_blocks == 0, "not worth it");
    cr_assert(upload_expect(u, 8 * MIB, &err) == 0);
    cr_assert(stat(path, &st) == 0 && st.st_size == 0 && st.st_blocks >= 16384);
    write_range(u, (const unsigned char *)"abc", 0, 3);
    upload_close(u);
    cr_assert(stat(path, &st) == 0 && st.st_size == 3 && st.st_blocks <= 64, "given back");
    u = open_upload(s, id);
    cr_assert(upload_expect(u, 8 * MIB, &err) == 0);
    write_range(u, (const unsigned char *)"abc", 0, 3);
    struct digest d = digest_of_text("abc");
    commit(u, &d);
    upload_close(u);
    blob_path(&d, path, sizeof(path));
    cr_assert(stat(path, &st) == 0 && st.st_size == 3 && st.st_blocks <= 64);
    store_close(s);
}

static uint64_t allocated(const char *path)
{
    struct stat st;
    cr_assert(stat(path, &st) == 0);
    return (uint64_t)st.st_blocks * 512;
}

/* What is only announced does not take the disk from the others. */
Test(upload, announced_bytes_take_their_space_as_they_come)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d;
    unsigned char *bytes = make_bytes(130 * MIB, 5, &d);
    char id[UPLOAD_ID_LEN + 1], path[400];
    begin(s, id);
    incoming_path(id, path, sizeof(path));
    struct upload *u = open_upload(s, id);
    cr_assert(upload_expect(u, 130 * MIB, &err) == 0, "%s", err.text);
    cr_assert(allocated(path) >= 64 * MIB && allocated(path) < 65 * MIB);
    write_range(u, bytes, 0, 64 * MIB);
    cr_assert(allocated(path) < 65 * MIB);
    write_range(u, bytes, 64 * MIB, MIB);
    cr_assert(allocated(path) >= 128 * MIB && allocated(path) < 129 * MIB);
    write_range(u, bytes, 65 * MIB, 64 * MIB);
    cr_assert(allocated(path) >= 130 * MIB && allocated(path) < 131 * MIB,
              "no more than announced");
    write_range(u, bytes, 129 * MIB, MIB);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, 130 * MIB);
    store_close(s);
    free(bytes);
}

/* A body without a length stops at the floor as well. */
Test(upload, the_floor_of_free_space)
{
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 100};
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1];
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    begin(s, id);
    struct upload *u = open_upload(s, id);
    cr_assert(upload_write(u, "abc", 3, &err) == -1 && err.code == ERR_NO_SPACE, "%s", err.text);
    cr_assert(upload_write(u, "abc", 3, &err) == -1 && err.code == ERR_NO_SPACE, "sticky");
    upload_close(u);
    cr_assert(status_of(s, id) == 0);
    store_close(s);
}

/* After a failed write the session is what was acknowledged. */
Test(upload, a_disk_that_refuses)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d;
    const size_t limit = 24 * MIB, len = 26 * MIB;
    unsigned char *bytes = make_bytes(len, 8, &d);
    struct rlimit was, now;
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(getrlimit(RLIMIT_FSIZE, &was) == 0);
    now = was;
    now.rlim_cur = limit;
    cr_assert(setrlimit(RLIMIT_FSIZE, &now) == 0);
    send_piece(s, id, bytes, 0, limit - 1000);
    struct upload *u = open_upload(s, id);
    uint64_t offset;
    cr_assert(upload_write(u, bytes + limit - 1000, 5000, &err) == -1 && err.code == ERR_IO);
    cr_assert(strstr(err.text, id), "%s", err.text);
    cr_assert(upload_ack(u, &offset, &err) == -1);
    cr_assert(upload_commit(u, &d, &err) == -1);
    upload_close(u);
    cr_assert(setrlimit(RLIMIT_FSIZE, &was) == 0);
    cr_assert(status_of(s, id) == limit - 1000);
    u = open_upload(s, id);
    write_range(u, bytes, limit - 1000, len - limit + 1000);
    commit(u, &d);
    upload_close(u);
    assert_blob(s, &d, bytes, len);
    store_close(s);
    free(bytes);
}

/* The file was touched by somebody else: never a wrong blob. */
Test(upload, a_file_that_somebody_changed)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("abcdef"), cut = digest_of_text("abc");
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1], path[400];
    begin(s, id);
    incoming_path(id, path, sizeof(path));
    struct upload *u = open_upload(s, id);
    write_range(u, (const unsigned char *)"abcdef", 0, 6);
    cr_assert(truncate(path, 3) == 0);
    cr_assert(upload_commit(u, &d, &err) == -1 && err.code == ERR_IO, "%s", err.text);
    upload_close(u);
    cr_assert(status_of(s, id) == 6);
    u = open_upload(s, id);
    cr_assert(upload_offset(u) == 3, "what is there");
    commit(u, &cut);
    upload_close(u);
    assert_blob(s, &cut, "abc", 3);
    begin(s, id);
    incoming_path(id, path, sizeof(path));
    cr_assert(unlink(path) == 0);
    cr_assert(upload_open(s, REPO, id, &u, &err) == 0, "without its file it is gone");
    assert_gone(s, id);
    cr_assert(stats_of(s).uploads == 0);
    store_close(s);
}

Test(upload, gc_leaves_sessions_alone)
{
    struct store *s = open_store();
    struct gc_result gc;
    char id[UPLOAD_ID_LEN + 1];
    begin(s, id);
    send_piece(s, id, (const unsigned char *)"abc", 0, 3);
    cr_assert(store_gc(s, &(struct gc_options){.grace_s = 0}, &gc, NULL) == 0);
    cr_assert(gc.partials_removed == 0 && status_of(s, id) == 3);
    push_open(s, id, "def");
    struct digest d = digest_of_text("abcdef");
    assert_linked(s, REPO, &d);
    store_close(s);
}

/* ---- at once ---- */

static struct store *shared;
static char shared_ids[8][UPLOAD_ID_LEN + 1];

static void *commit_same(void *arg)
{
    const char *id = arg;
    struct digest d = digest_of_text("one blob");
    struct upload *u = open_upload(shared, id);
    write_range(u, (const unsigned char *)"one blob", 0, 8);
    commit(u, &d);
    upload_close(u);
    return NULL;
}

Test(upload, eight_commits_of_one_digest)
{
    shared = open_store();
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++)
        begin(shared, shared_ids[i]);
    for (size_t i = 0; i < 8; i++)
        cr_assert(pthread_create(&threads[i], NULL, commit_same, shared_ids[i]) == 0);
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    struct digest d = digest_of_text("one blob");
    assert_blob(shared, &d, "one blob", 8);
    struct store_stats st = stats_of(shared);
    cr_assert(st.blobs == 1 && st.blob_bytes == 8 && st.uploads == 0 && st.partial_bytes == 0);
    cr_assert(count_incoming() == 0);
    store_close(shared);
}

static _Atomic bool in_commit, may_go_on;

static void wait_at_rename(const char *point)
{
    if (strcmp(point, "publish.renamed") != 0)
        return;
    atomic_store(&in_commit, true);
    while (!atomic_load(&may_go_on))
        usleep(1000);
}

static void *open_late(void *arg)
{
    static int result;
    struct upload *u = NULL;
    result = upload_open(shared, REPO, arg, &u, NULL);
    upload_close(u);
    return &result;
}

/* A newer request waits for a commit, and finds the session gone. */
Test(upload, a_commit_is_waited_for)
{
    shared = open_store();
    storage_fault = wait_at_rename;
    pthread_t committer, opener;
    void *result;
    begin(shared, shared_ids[0]);
    cr_assert(pthread_create(&committer, NULL, commit_same, shared_ids[0]) == 0);
    while (!atomic_load(&in_commit))
        usleep(1000);
    cr_assert(pthread_create(&opener, NULL, open_late, shared_ids[0]) == 0);
    cr_assert(status_of(shared, shared_ids[0]) == 8, "asking does not wait");
    atomic_store(&may_go_on, true);
    pthread_join(committer, NULL);
    pthread_join(opener, &result);
    cr_assert(*(int *)result == 0);
    struct digest d = digest_of_text("one blob");
    assert_blob(shared, &d, "one blob", 8);
    store_close(shared);
}
