#include "helper.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "storage/fault.h"

TestSuite(writer, .init = dir_make, .fini = dir_remove, .timeout = 240);

static struct blob_writer *open_writer(struct store *s, const struct digest *d, uint64_t size)
{
    struct error err = ERROR_INIT;
    struct blob_writer *w = NULL;
    cr_assert(writer_open(s, d, size, &w, &err) == 0, "%s", err.text);
    return w;
}

static void write_range(struct blob_writer *w, const unsigned char *bytes, size_t from, size_t to,
                        size_t step)
{
    struct error err = ERROR_INIT;
    for (size_t at = from; at < to; at += step) {
        size_t n = to - at < step ? to - at : step;
        cr_assert(writer_write(w, bytes + at, n, at, &err) == 0, "%s", err.text);
    }
}

Test(writer, write_read_commit)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d;
    size_t len = 20 * MIB + 17;
    unsigned char *bytes = make_bytes(len, 1, &d), buf[64];
    struct blob_writer *w = open_writer(s, &d, len), *second = NULL;
    cr_assert(writer_resumed(w) == 0);
    cr_assert(writer_open(s, &d, len, &second, &err) == -1 && err.code == ERR_BUSY, "%s", err.text);
    write_range(w, bytes, 0, len, 256 * 1024);
    cr_assert(writer_read(w, 5 * MIB, buf, sizeof(buf), NULL) == sizeof(buf));
    cr_assert(memcmp(buf, bytes + 5 * MIB, sizeof(buf)) == 0);
    cr_assert(writer_read(w, len, buf, sizeof(buf), NULL) == 0);
    cr_assert(writer_read(w, UINT64_MAX, buf, sizeof(buf), NULL) == 0);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 1 && st.partial_bytes == len && st.blobs == 0);
    cr_assert(!is_held(s, &d), "not before the commit");
    cr_assert(writer_commit(w, len, &err) == 0, "%s", err.text);
    cr_assert(is_held(s, &d));
    cr_assert(writer_read(w, 0, buf, sizeof(buf), NULL) == sizeof(buf), "also after the commit");
    cr_assert(memcmp(buf, bytes, sizeof(buf)) == 0);
    cr_assert(writer_write(w, "x", 1, 0, &err) == -1 && err.code == ERR_INTERNAL);
    cr_assert(writer_restart(w, &err) == -1 && err.code == ERR_INTERNAL);
    writer_close(w, false); /* a committed blob stays whatever keep says */
    writer_close(NULL, true);
    assert_blob(s, &d, bytes, len);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0 && st.blobs == 1 && st.blob_bytes == len);
    cr_assert(count_incoming() == 0);
    store_close(s);
    free(bytes);
}

Test(writer, unknown_size)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d;
    unsigned char *bytes = make_bytes(100000, 2, &d);
    struct blob_writer *w = open_writer(s, &d, WRITER_SIZE_UNKNOWN);
    write_range(w, bytes, 0, 100000, 4096);
    cr_assert(writer_commit(w, 99999, &err) == -1 && err.code == ERR_INTERNAL, "%s", err.text);
    cr_assert(writer_commit(w, 100000, &err) == 0, "%s", err.text);
    writer_close(w, true);
    assert_blob(s, &d, bytes, 100000);
    store_close(s);
    free(bytes);
}

Test(writer, sha512_and_empty)
{
    struct store *s = open_store();
    struct digest d;
    cr_assert(digest_of(DIGEST_SHA512, "hello", 5, &d, NULL) == 0);
    struct blob_writer *w = open_writer(s, &d, 5);
    write_range(w, (const unsigned char *)"hello", 0, 5, 2);
    cr_assert(writer_commit(w, 5, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, &d, "hello", 5);
    d = digest_of_text("");
    w = open_writer(s, &d, 0);
    cr_assert(writer_commit(w, 0, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, &d, "", 0);
    store_close(s);
}

Test(writer, nothing_is_written_beyond_a_known_size)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("0123456789");
    struct blob_writer *w = open_writer(s, &d, 10);
    cr_assert(writer_write(w, "0123456789A", 11, 0, &err) == -1 && err.code == ERR_INVALID);
    cr_assert(writer_write(w, "0", 1, 0, &err) == -1, "sticky");
    cr_assert(writer_commit(w, 10, &err) == -1 && err.code == ERR_INVALID);
    cr_assert(writer_restart(w, &err) == 0, "%s", err.text);
    cr_assert(writer_write(w, "0123456789", 10, 0, &err) == 0);
    cr_assert(writer_write(w, "", 0, 10, &err) == 0);
    cr_assert(writer_commit(w, 10, &err) == 0, "%s", err.text);
    writer_close(w, true);
    w = open_writer(s, &d, 10);
    cr_assert(writer_write(w, "0", 1, UINT64_MAX, &err) == -1 && err.code == ERR_INVALID);
    writer_close(w, false);
    assert_blob(s, &d, "0123456789", 10);
    store_close(s);
}

Test(writer, a_hole_is_never_published)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d;
    unsigned char *bytes = make_bytes(1000, 3, &d);
    struct blob_writer *w = open_writer(s, &d, 1000);
    write_range(w, bytes, 500, 600, 100);
    write_range(w, bytes, 900, 1000, 100);
    write_range(w, bytes, 700, 800, 100);
    write_range(w, bytes, 0, 500, 100);
    cr_assert(writer_commit(w, 1000, &err) == -1 && err.code == ERR_INTERNAL, "%s", err.text);
    cr_assert(strstr(err.text, "600 were written"), "%s", err.text);
    write_range(w, bytes, 600, 700, 100);
    write_range(w, bytes, 550, 950, 400); /* again, over all borders */
    cr_assert(writer_commit(w, 1000, &err) == 0, "%s", err.text);
    writer_close(w, true);
    assert_blob(s, &d, bytes, 1000);
    store_close(s);
    free(bytes);
}

Test(writer, ranges_in_any_order)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    size_t len = 1000;
    for (unsigned seed = 1; seed < 60; seed++) {
        struct digest d;
        unsigned char *bytes = make_bytes(len, seed, &d), order[100];
        srand(seed);
        for (unsigned char i = 0; i < 100; i++)
            order[i] = i;
        for (unsigned i = 99; i > 0; i--) {
            unsigned j = (unsigned)rand() % (i + 1);
            unsigned char t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        struct blob_writer *w = open_writer(s, &d, len);
        size_t extra = seed & 1 ? 7 : 0; /* overlaps */
        for (unsigned i = 0; i < 100; i++) {
            if (!extra)
                cr_assert(writer_commit(w, len, NULL) == -1, "there is a hole");
            size_t from = order[i] * 10u, to = from + 10 + extra < len ? from + 10 + extra : len;
            cr_assert(writer_write(w, bytes + from, to - from, from, &err) == 0, "%s", err.text);
        }
        cr_assert(writer_commit(w, len, &err) == 0, "%s", err.text);
        writer_close(w, true);
        assert_blob(s, &d, bytes, len);
        free(bytes);
    }
    store_close(s);
}

Test(writer, close_and_resume)
{
    struct store *s = open_store();
    struct digest d;
    size_t len = 3 * MIB;
    unsigned char *bytes = make_bytes(len, 5, &d), *got = malloc(len);
    struct blob_writer *w = open_writer(s, &d, len);
    cr_assert(store_missing(s, &d, len) == len);
    write_range(w, bytes, 0, MIB + 1000, 1000);
    writer_close(w, true);
    cr_assert(store_missing(s, &d, len) == len - MIB - 1000);
    cr_assert(store_missing(s, &d, len + 1) == len + 1);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 1);
    store_close(s);

    s = open_store();
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 1 && st.partial_bytes >= MIB + 1000);
    cr_assert(store_missing(s, &d, len) == len - st.partial_bytes);
    w = open_writer(s, &d, len);
    uint64_t have = writer_resumed(w);
    cr_assert(have == st.partial_bytes && have < 2 * MIB);
    cr_assert(writer_read(w, 0, got, len, NULL) == (ssize_t)have);
    cr_assert(memcmp(got, bytes, have) == 0);
    write_range(w, bytes, have, len, 65536);
    cr_assert(writer_commit(w, len, NULL) == 0);
    writer_close(w, false);
    assert_blob(s, &d, bytes, len);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0);
    store_close(s);
    free(bytes);
    free(got);
}

static void expect_parts(struct blob_writer *w, uint64_t length, const uint64_t *parts, size_t n)
{
    uint64_t first, end;
    cr_assert(writer_resumed(w) == length, "%zu", (size_t)writer_resumed(w));
    for (size_t i = 0; i < n; i++) {
        cr_assert(writer_resumed_part(w, i, &first, &end));
        cr_assert(first == parts[2 * i] && end == parts[2 * i + 1], "%zu: %zu-%zu", i,
                  (size_t)first, (size_t)end);
    }
    cr_assert(!writer_resumed_part(w, n, &first, &end));
}

Test(writer, close_and_resume_with_holes)
{
    struct store *s = open_store();
    struct digest d;
    const size_t len = 9 * MIB + 77;
    const uint64_t parts[] = {3 * MIB, 5 * MIB, 9 * MIB, len};
    unsigned char *bytes = make_bytes(len, 5, &d), *got = malloc(len);
    struct blob_writer *w = open_writer(s, &d, len);
    write_range(w, bytes, 3 * MIB, 4 * MIB, 65536);
    write_range(w, bytes, 9 * MIB, len, 65536);
    write_range(w, bytes, 4 * MIB, 5 * MIB, 65536);
    writer_close(w, true); /* nothing of it at the front */
    struct store_stats st;
    for (int i = 0; i < 3; i++) {
        if (i == 1) {
            store_close(s);
            s = open_store();
        } else if (i == 2) { /* what was synced outlives the machine */
            store_close(s);
            storage_boot_file = "/dev/null";
            s = open_store();
        }
        cr_assert(store_stats(s, &st, NULL) == 0 && st.partials == 1);
        cr_assert(st.partial_bytes == (i ? MIB : 0));
        w = open_writer(s, &d, len);
        expect_parts(w, i ? MIB : 0, parts, 2);
        write_range(w, bytes, 0, MIB, MIB);
        writer_close(w, true);
    }
    cr_assert(store_mismatch_left(s, &d, "any/repository") == 0, "nothing was lost");
    w = open_writer(s, &d, len);
    cr_assert(writer_read(w, 3 * MIB, got, 2 * MIB, NULL) == (ssize_t)(2 * MIB));
    cr_assert(memcmp(got, bytes + 3 * MIB, 2 * MIB) == 0);
    write_range(w, bytes, MIB, 3 * MIB, MIB);
    cr_assert(writer_commit(w, len, NULL) == -1, "there is a hole");
    write_range(w, bytes, 5 * MIB, 9 * MIB, MIB);
    cr_assert(writer_commit(w, len, NULL) == 0);
    writer_close(w, false);
    assert_blob(s, &d, bytes, len);
    cr_assert(store_stats(s, &st, NULL) == 0 && st.partials == 0 && st.partial_bytes == 0);
    cr_assert(count_incoming() == 0);
    store_close(s);
    free(bytes);
    free(got);
}

/* Another byte in each of the three places for a map. */
static void damage_maps(uint64_t start, unsigned byte)
{
    char path[500], name[400] = "";
    snprintf(path, sizeof(path), "%s/incoming", data_dir());
    DIR *dir = opendir(path);
    cr_assert(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
    closedir(dir);
    int fd = open(name, O_RDWR);
    cr_assert(fd >= 0);
    for (unsigned slot = 0; slot < 3; slot++) {
        unsigned char c;
        off_t at = (off_t)(start + slot * 65536u + byte);
        if (pread(fd, &c, 1, at) != 1)
            continue;
        c ^= (unsigned char)(1u << byte % 8);
        cr_assert(pwrite(fd, &c, 1, at) == 1);
    }
    close(fd);
}

/* Whatever a map looks like, no byte is believed that was not written. */
Test(writer, damaged_maps)
{
    struct digest d;
    const size_t len = 4 * MIB + 5;
    unsigned char *bytes = make_bytes(len, 5, &d);
    for (unsigned i = 0; i < 200; i++) {
        struct store *s = open_store();
        struct blob_writer *w = open_writer(s, &d, len);
        write_range(w, bytes, 0, MIB, MIB);
        write_range(w, bytes, 2 * MIB, 3 * MIB, MIB);
        writer_close(w, true);
        store_close(s);
        damage_maps(4 * MIB + 4096, i);
        s = open_store();
        w = open_writer(s, &d, len);
        uint64_t first, end;
        cr_assert(writer_resumed(w) == MIB);
        if (writer_resumed_part(w, 0, &first, &end))
            cr_assert(first == 2 * MIB && end == 3 * MIB &&
                      !writer_resumed_part(w, 1, &first, &end));
        writer_close(w, false);
        store_close(s);
    }
    free(bytes);
}

static struct blob_writer *open_from(struct store *s, const struct digest *d, uint64_t size,
                                     const char *repository)
{
    struct error err = ERROR_INIT;
    struct blob_writer *w = NULL;
    struct name_id source;
    cr_assert(name_id_of("reg.test", repository, &source));
    cr_assert(writer_open_from(s, d, size, &source, &w, &err) == 0, "%s", err.text);
    return w;
}

Test(writer, a_partial_of_another_source)
{
    struct store *s = open_store();
    struct digest d;
    struct lent lent = {0};
    unsigned char *bytes = make_bytes(3 * MIB, 5, &d);
    lent_add(&lent, "reg.test/evil/x");
    struct blob_writer *w = open_from(s, &d, 3 * MIB, "evil/x");
    cr_assert(lent_is_empty(writer_lent(w)));
    write_range(w, bytes, 0, MIB, MIB);
    write_range(w, bytes, 2 * MIB, 3 * MIB, MIB);
    writer_set_lent(w, &lent);
    writer_close(w, true);
    store_close(s);
    s = open_store();
    for (int i = 0; i < 2; i++) { /* its own goes on, and the list stays */
        w = open_from(s, &d, 3 * MIB, "evil/x");
        expect_parts(w, MIB, (uint64_t[]){2 * MIB, 3 * MIB}, 1);
        cr_assert(writer_lent(w)->n == 1 && !writer_lent(w)->all);
        writer_close(w, true);
    }
    cr_assert(store_mismatch_left(s, &d, "reg.test/evil/x") == 0);
    w = open_from(s, &d, 3 * MIB, "team/app");
    expect_parts(w, 0, NULL, 0);
    cr_assert(lent_is_empty(writer_lent(w)));
    cr_assert(store_mismatch_left(s, &d, "reg.test/evil/x") > 0);
    cr_assert(store_mismatch_left(s, &d, "reg.test/team/app") == 0);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0 && st.partials == 1 && st.partial_bytes == 0);
    write_range(w, bytes, 0, 3 * MIB, MIB);
    cr_assert(writer_commit(w, 3 * MIB, NULL) == 0);
    writer_close(w, false);
    assert_blob(s, &d, bytes, 3 * MIB);
    store_close(s);
    free(bytes);
}

/* As rows were before there were sources. */
Test(writer, a_partial_of_no_known_source)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(3 * MIB, 5, &d);
    struct blob_writer *w = open_writer(s, &d, 3 * MIB);
    write_range(w, bytes, 0, MIB, MIB);
    writer_close(w, true);
    w = open_from(s, &d, 3 * MIB, "team/app");
    expect_parts(w, MIB, NULL, 0);
    cr_assert(writer_lent(w)->all);
    writer_close(w, true);
    w = open_from(s, &d, 3 * MIB, "evil/x");
    expect_parts(w, 0, NULL, 0);
    cr_assert(store_mismatch_left(s, &d, "any/repository") > 0);
    writer_close(w, false);
    store_close(s);
    free(bytes);
}

Test(writer, a_partial_of_another_size)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(3 * MIB, 5, &d);
    struct blob_writer *w = open_writer(s, &d, 3 * MIB);
    write_range(w, bytes, 0, MIB, MIB);
    write_range(w, bytes, 2 * MIB, 3 * MIB, MIB);
    writer_close(w, true);
    w = open_writer(s, &d, 3 * MIB - 1);
    expect_parts(w, 0, NULL, 0);
    cr_assert(store_mismatch_left(s, &d, "any/repository") > 0);
    write_range(w, bytes, 0, 7, 7);
    writer_close(w, true);
    w = open_writer(s, &d, 3 * MIB);
    expect_parts(w, 7, NULL, 0);
    writer_close(w, false);
    store_close(s);
    free(bytes);
}

Test(writer, close_without_keep_removes)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(1000, 6, &d);
    struct blob_writer *w = open_writer(s, &d, 1000);
    write_range(w, bytes, 0, 500, 100);
    writer_close(w, false);
    cr_assert(count_incoming() == 0);
    w = open_writer(s, &d, 1000);
    cr_assert(writer_resumed(w) == 0);
    writer_close(w, true); /* nothing written: nothing to keep */
    cr_assert(count_incoming() == 0);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0);
    store_close(s);
    free(bytes);
}

Test(writer, restart_forgets)
{
    struct store *s = open_store();
    struct digest d;
    unsigned char *bytes = make_bytes(8 * MIB, 7, &d), *wrong = calloc(1, 8 * MIB);
    struct blob_writer *w = open_writer(s, &d, 8 * MIB);
    write_range(w, wrong, 0, 6 * MIB, MIB);
    write_range(w, wrong, 7 * MIB, 8 * MIB, MIB);
    cr_assert(writer_restart(w, NULL) == 0);
    cr_assert(writer_resumed(w) == 0);
    char c;
    cr_assert(writer_read(w, 0, &c, 1, NULL) == 0);
    write_range(w, bytes, 0, 100, 100);
    writer_close(w, true);
    store_close(s);
    s = open_store();
    w = open_writer(s, &d, 8 * MIB);
    cr_assert(writer_resumed(w) == 100, "only what was written after the restart");
    write_range(w, bytes, 100, 8 * MIB, MIB);
    cr_assert(writer_commit(w, 8 * MIB, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, &d, bytes, 8 * MIB);
    store_close(s);
    free(bytes);
    free(wrong);
}

Test(writer, another_size_or_a_missing_file_starts_again)
{
    struct store *s = open_store();
    struct digest d = digest_of_text("some blob");
    struct blob_writer *w = open_writer(s, &d, 100);
    cr_assert(writer_write(w, "0123456789", 10, 0, NULL) == 0);
    writer_close(w, true);
    w = open_writer(s, &d, 9); /* smaller than what was there */
    cr_assert(writer_resumed(w) == 0);
    cr_assert(writer_write(w, "some blob", 9, 0, NULL) == 0);
    writer_close(w, true);
    char cmd[400];
    snprintf(cmd, sizeof(cmd), "rm %s/incoming/*", data_dir());
    cr_assert(system(cmd) == 0);
    w = open_writer(s, &d, 9);
    cr_assert(writer_resumed(w) == 0);
    cr_assert(writer_write(w, "some blob", 9, 0, NULL) == 0);
    cr_assert(writer_commit(w, 9, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, &d, "some blob", 9);
    struct store_stats st;
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0);
    store_close(s);
}

Test(writer, too_large_for_the_disk_is_said_at_once)
{
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("huge");
    struct blob_writer *w = NULL;
    cr_assert(writer_open(s, &d, (uint64_t)1 << 55, &w, &err) == -1);
    cr_assert(err.code == ERR_NO_SPACE || err.code == ERR_IO, "%s", err.text);
    cr_assert(writer_open(s, &d, UINT64_MAX - 1, &w, &err) == -1 && err.code == ERR_TOO_LARGE);
    cr_assert(count_incoming() == 0);
    w = open_writer(s, &d, 4);
    writer_close(w, false);
    store_close(s);
}

/* ---- a disk that is really full ---- */

static bool mount_small(void)
{
    cr_assert(mkdir(data_dir(), 0750) == 0);
    return mount("tmpfs", data_dir(), "tmpfs", 0, "size=7m") == 0;
}

static void fill_disk(const char *path)
{
    static char zeros[65536];
    FILE *f = fopen(path, "w");
    cr_assert(f);
    setvbuf(f, NULL, _IONBF, 0);
    while (fwrite(zeros, 1, sizeof(zeros), f) == sizeof(zeros))
        ;
    while (fwrite(zeros, 1, 1, f) == 1)
        ;
    fclose(f);
}

Test(writer, full_disk)
{
    if (!mount_small()) {
        cr_log_info("needs the right to mount a small tmpfs: skipped");
        return;
    }
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct digest d = digest_of_text("x"), small = put_text(s, "before");
    struct blob_writer *w = NULL;
    cr_assert(writer_open(s, &d, 64 * MIB, &w, &err) == -1 && err.code == ERR_NO_SPACE, "%s",
              err.text);
    w = open_writer(s, &d, WRITER_SIZE_UNKNOWN);
    static unsigned char block[65536];
    int r = 0;
    for (unsigned i = 0; r == 0 && i < 1000; i++)
        r = writer_write(w, block, sizeof(block), (uint64_t)i * sizeof(block), &err);
    cr_assert(r == -1 && err.code == ERR_NO_SPACE, "%s", err.text);
    cr_assert(writer_commit(w, 65536, &err) == -1 && err.code == ERR_NO_SPACE, "sticky");
    writer_close(w, false);
    put_text(s, "there is room again");

    char filler[400];
    snprintf(filler, sizeof(filler), "%s/filler", data_dir());
    fill_disk(filler);
    struct digest unused;
    int failures = 0;
    char text[32];
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), "no room for %d", i);
        if (store_blob_put(s, text, strlen(text), &unused, &err) < 0) {
            cr_assert(err.code == ERR_NO_SPACE, "%s: %s", err_name(err.code), err.text);
            failures++;
        }
    }
    cr_assert(failures > 0);
    assert_blob(s, &small, "before", 6);
    cr_assert(unlink(filler) == 0);
    struct digest after = put_text(s, "after");
    store_close(s);
    s = open_store();
    assert_blob(s, &small, "before", 6);
    assert_blob(s, &after, "after", 5);
    cr_assert(count_incoming() == 0);
    store_close(s);
    cr_assert(umount(data_dir()) == 0);
}

/* Content of several pages is written up to the last byte that fits, and that is a full disk, too.
 */
Test(writer, full_disk_in_the_middle_of_a_row)
{
    if (!mount_small()) {
        cr_log_info("needs the right to mount a small tmpfs: skipped");
        return;
    }
    struct store_options o = {.dir = data_dir()};
    struct store *s = NULL;
    struct error err = ERROR_INIT;
    struct digest_list missing;
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    cr_assert(store_has_room(s, 0, &err) == -1 && err.code == ERR_NO_SPACE, "with 0 %% as well");
    cr_assert(strstr(err.text, "16 MiB") && strstr(err.text, "limits.free_percent"), "%s",
              err.text);
    char *text = calloc(1, MIB + 1);
    memset(text, 'x', MIB - 500);
    struct push_record r = {.repository = "team/model",
                            .media_type = "application/vnd.oci.image.manifest.v1+json",
                            .manifest = text,
                            .len = MIB - 500,
                            .artifact_type = "",
                            .source = "test"};
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < 10; i++) {
        text[0] = (char)('a' + i);
        r.digest = digest_of_text(text);
        rc = store_manifest_push(s, &r, &missing, &err);
    }
    cr_assert(rc == -1 && err.code == ERR_NO_SPACE, "%s: %s", err_name(err.code), err.text);
    cr_assert(!store_has_failed(s, &err));
    free(text);
    store_close(s);
    cr_assert(umount(data_dir()) == 0);
}

/* A full disk does not stop a start, reading or collecting. */
Test(writer, full_disk_can_be_emptied)
{
    if (!mount_small()) {
        cr_log_info("needs the right to mount a small tmpfs: skipped");
        return;
    }
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct gc_result gc;
    struct digest keep = put_text(s, "keep"), d;
    struct import_link links[] = {{keep, 4, NULL}};
    unsigned char *bytes = make_bytes(600000, 1, &d);
    struct digest big;
    cr_assert(import_one(s, "hf/a/b", COMMIT_A, "main", "{m}", links, 1, &err) == 0, "%s",
              err.text);
    cr_assert(store_blob_put(s, bytes, 600000, &big, &err) == 0, "%s", err.text);
    store_close(s);
    char filler[400];
    snprintf(filler, sizeof(filler), "%s/filler", data_dir());
    fill_disk(filler);
    s = open_store();
    assert_blob(s, &keep, "keep", 4);
    cr_assert(store_gc(s, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    cr_assert(gc.blobs_removed == 1 && gc.bytes_removed == 600000);
    put_text(s, "there is room again");
    struct reference r = {
        .repository = "hf/a/b", .is_digest = true, .digest = digest_of_text("{m}")};
    cr_assert(store_remove(s, &r, NULL, "test", &err) == 0, "%s", err.text);
    store_close(s);
    cr_assert(umount(data_dir()) == 0);
    free(bytes);
}

/* ---- the row cannot be written after the rename ---- */

static void limit_files(rlim_t size)
{
    struct rlimit l;
    cr_assert(getrlimit(RLIMIT_FSIZE, &l) == 0);
    l.rlim_cur = size < l.rlim_max ? size : l.rlim_max;
    cr_assert(setrlimit(RLIMIT_FSIZE, &l) == 0);
}

/* LMDB cannot write a page behind the limit. */
static void limit_at_publish(const char *point)
{
    if (strcmp(point, "publish.synced") == 0)
        limit_files(1);
}

/* Nothing was acknowledged, and the next start finishes what is right. */
Test(writer, a_row_that_cannot_be_written_is_settled_by_the_next_start)
{
    signal(SIGXFSZ, SIG_IGN);
    storage_fault = limit_at_publish;
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct store_stats st;
    struct digest d, small;
    unsigned char *bytes = make_bytes(100000, 8, &d), buf[10];
    struct blob_writer *w = open_writer(s, &d, 100000);
    write_range(w, bytes, 0, 100000, 100000);
    cr_assert(writer_commit(w, 100000, &err) == -1 && err.code == ERR_IO, "%s", err.text);
    cr_assert(writer_commit(w, 100000, &err) == -1, "sticky");
    cr_assert(writer_read(w, 0, buf, sizeof(buf), NULL) == sizeof(buf));
    writer_close(w, false);
    cr_assert(!is_held(s, &d));
    limit_files(RLIM_INFINITY);
    cr_assert(store_blob_put(s, "small", 5, &small, &err) == -1 && err.code == ERR_IO);
    limit_files(RLIM_INFINITY);
    store_close(s);

    storage_fault = NULL;
    s = open_store();
    assert_blob(s, &d, bytes, 100000);
    small = digest_of_text("small");
    assert_blob(s, &small, "small", 5);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0 && st.blobs == 2);
    cr_assert(st.blob_bytes == 100005);
    cr_assert(count_incoming() == 0);
    store_close(s);
    free(bytes);
}

/* Opening does not wait for the row; no byte gets into a file that has none. */
Test(writer, a_row_that_cannot_be_written_fails_the_first_write)
{
    signal(SIGXFSZ, SIG_IGN);
    struct store *s = open_store();
    struct error err = ERROR_INIT;
    struct store_stats st;
    struct digest d;
    unsigned char *bytes = make_bytes(100000, 8, &d);
    limit_files(1);
    struct blob_writer *w = open_writer(s, &d, WRITER_SIZE_UNKNOWN);
    cr_assert(writer_write(w, "", 0, 0, &err) == -1 && err.code == ERR_IO, "%s", err.text);
    limit_files(RLIM_INFINITY);
    cr_assert(writer_write(w, bytes, 100000, 0, &err) == -1 && err.code == ERR_IO, "sticky");
    cr_assert(writer_commit(w, 0, &err) == -1 && err.code == ERR_IO, "sticky");
    writer_close(w, true);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0 && count_incoming() == 0);
    w = open_writer(s, &d, WRITER_SIZE_UNKNOWN);
    write_range(w, bytes, 0, 100000, 100000);
    cr_assert(writer_commit(w, 100000, &err) == 0, "%s", err.text);
    writer_close(w, false);
    assert_blob(s, &d, bytes, 100000);

    struct digest other = digest_of_text("other");
    limit_files(1);
    w = open_writer(s, &other, WRITER_SIZE_UNKNOWN);
    writer_close(w, false); /* nobody has asked how it went */
    w = open_writer(s, &other, WRITER_SIZE_UNKNOWN);
    cr_assert(writer_write(w, "", 0, 0, &err) == -1);
    limit_files(RLIM_INFINITY);
    cr_assert(writer_restart(w, &err) == 0, "%s", err.text);
    write_range(w, (const unsigned char *)"other", 0, 5, 5);
    cr_assert(writer_commit(w, 5, &err) == 0, "%s", err.text);
    writer_close(w, false);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0 && st.blobs == 2);
    store_close(s);
    free(bytes);
}

/* A commit that failed, without a restart: the digest can be written again. */
Test(writer, again_after_a_commit_that_failed)
{
    signal(SIGXFSZ, SIG_IGN);
    storage_fault = limit_at_publish;
    struct store *s = open_store();
    struct store_stats st;
    struct digest d;
    unsigned char *bytes = make_bytes(100000, 8, &d);
    struct blob_writer *w = open_writer(s, &d, WRITER_SIZE_UNKNOWN);
    write_range(w, bytes, 0, 100000, 100000);
    cr_assert(writer_commit(w, 100000, NULL) == -1);
    limit_files(RLIM_INFINITY);
    writer_close(w, true);
    storage_fault = NULL;
    w = open_writer(s, &d, 100000);
    cr_assert(writer_resumed(w) == 0);
    write_range(w, bytes, 0, 100000, 10000);
    cr_assert(writer_commit(w, 100000, NULL) == 0);
    writer_close(w, true);
    assert_blob(s, &d, bytes, 100000);
    cr_assert(store_stats(s, &st, NULL) == 0);
    cr_assert(st.partials == 0 && st.partial_bytes == 0 && st.blobs == 1);
    store_close(s);
    free(bytes);
}
