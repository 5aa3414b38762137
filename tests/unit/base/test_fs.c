#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fs.h"

static char dir[64];

static void setup(void)
{
    strcpy(dir, "/tmp/weighbridge-fs-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(fs, .init = setup, .fini = teardown);

static char *in(const char *name)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *data, size_t len)
{
    FILE *f = fopen(in(name), "w");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(data, 1, len, f), len);
    fclose(f);
}

Test(fs, a_whole_file_is_appended)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_puts(&b, "before ");
    put("f", "x\0y", 3);
    cr_assert_eq(fs_read_file(in("f"), 3, &b, NULL), 0);
    cr_assert_eq(b.len, 10);
    cr_assert_eq(memcmp(b.data, "before x\0y", 11), 0);
    put("empty", "", 0);
    cr_assert_eq(fs_read_file(in("empty"), 0, &b, NULL), 0);
    cr_assert_eq(b.len, 10);
}

Test(fs, a_file_over_the_limit_leaves_the_buffer_alone)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    _cleanup_free_ char *big = calloc(1, 200000);
    struct error err;
    put("f", big, 200000);
    strbuf_puts(&b, "kept");
    cr_assert_eq(fs_read_file(in("f"), 199999, &b, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    cr_assert_str_eq(b.data, "kept");
    cr_assert_eq(b.len, 4);
    cr_assert_eq(fs_read_file(in("f"), 200000, &b, &err), 0);
    cr_assert_eq(b.len, 200004);
}

Test(fs, missing_is_told_from_unreadable)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct error err;
    cr_assert_eq(fs_read_file(in("none"), 9, &b, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    put("f", "x", 1);
    cr_assert_eq(fs_read_file(in("f/g"), 9, &b, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(fs_read_file(dir, 9, &b, &err), -1);
    cr_assert_eq(err.code, ERR_IO);
    cr_assert_not_null(strstr(err.text, dir), "the text names the file");
}

Test(fs, folders_are_made_with_their_parents)
{
    struct stat st;
    umask(0);
    cr_assert_eq(fs_mkdir_p(in("a/b//c"), 0750, NULL), 0);
    cr_assert_eq(stat(in("a/b/c"), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0750);
    cr_assert_eq(fs_mkdir_p(in("a/b/c"), 0700, NULL), 0, "once more is fine");
    cr_assert_eq(fs_mkdir_p(in("a/b/c/"), 0700, NULL), 0);
    cr_assert_eq(fs_mkdir_p("/", 0700, NULL), 0);
    cr_assert_eq(chdir(dir), 0);
    cr_assert_eq(fs_mkdir_p("relative/x", 0700, NULL), 0);
    cr_assert_eq(stat(in("relative/x"), &st), 0);
}

Test(fs, folders_that_cannot_be_made)
{
    struct error err;
    put("file", "", 0);
    cr_assert_eq(fs_mkdir_p(in("file"), 0700, &err), -1);
    cr_assert_not_null(strstr(err.text, "not a directory"));
    cr_assert_eq(fs_mkdir_p(in("file/x"), 0700, &err), -1);
    cr_assert_eq(fs_mkdir_p("", 0700, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
}

Test(fs, a_folder_can_be_synced)
{
    struct error err;
    cr_assert_eq(fs_sync_dir(dir, &err), 0);
    cr_assert_eq(fs_sync_dir(in("none"), &err), -1);
    put("f", "", 0);
    cr_assert_eq(fs_sync_dir(in("f"), &err), -1);
}

Test(fs, pwrite_at_offsets)
{
    _cleanup_close_ int fd = open(in("f"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char buf[8] = "";
    struct error err;
    cr_assert_eq(fs_pwrite_all(fd, "hello", 5, 1u << 20, &err), 0);
    cr_assert_eq(pread(fd, buf, sizeof(buf), 1u << 20), 5);
    cr_assert_str_eq(buf, "hello");
    _cleanup_close_ int readonly = open(in("f"), O_RDONLY | O_CLOEXEC);
    cr_assert_eq(fs_pwrite_all(readonly, "x", 1, 0, &err), -1);
    cr_assert_eq(err.code, ERR_IO);
}

Test(fs, a_full_disk_is_no_space)
{
    _cleanup_close_ int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct error err;
    cr_assert_geq(full, 0);
    cr_assert_eq(fs_pwrite_all(full, "x", 1, 0, &err), -1);
    cr_assert_eq(err.code, ERR_NO_SPACE);
}

Test(fs, space_is_plausible)
{
    uint64_t left = 0, total = 0;
    struct error err;
    cr_assert_eq(fs_space(dir, &left, &total, &err), 0);
    cr_assert(total > 0 && left <= total);
    cr_assert_eq(fs_space(in("none"), &left, &total, &err), -1);
}

Test(fs, random_names)
{
    char a[129], b[129];
    struct error err;
    cr_assert_eq(random_hex(a, 64, &err), 0);
    cr_assert_eq(random_hex(b, 64, &err), 0);
    cr_assert(is_lower_hex(a, 128));
    cr_assert_str_neq(a, b);
    cr_assert_eq(random_hex(a, 65, &err), -1);
    cr_assert_eq(random_hex(a, 0, &err), 0);
    cr_assert_str_eq(a, "");
}
