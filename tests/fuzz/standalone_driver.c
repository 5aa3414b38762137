/* Runs a fuzz target over files and folders given as arguments, so that the corpus is a regression
 * test for compilers without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned inputs;

static int run(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return 1;
    }
    if (S_ISDIR(st.st_mode)) {
        DIR *dir = opendir(path);
        int rc = !dir;
        for (struct dirent *e; dir && (e = readdir(dir));) {
            char child[4096];
            if (e->d_name[0] == '.')
                continue;
            snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
            rc |= run(child);
        }
        if (dir)
            closedir(dir);
        return rc;
    }
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct error err = ERROR_INIT;
    if (fs_read_file(path, 64u << 20, &b, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)strbuf_str(&b), b.len);
    inputs++;
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 0;
    for (int i = 1; i < argc; i++)
        rc |= run(argv[i]);
    printf("%u inputs\n", inputs);
    return rc || !inputs;
}
