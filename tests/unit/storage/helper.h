/* What the storage tests share. Each criterion test runs in a process of its own; a store is opened
 * in that process, or in a child of it, never in both. */
#ifndef WB_TESTS_STORAGE_HELPER_H
#define WB_TESTS_STORAGE_HELPER_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "storage/store.h"

#define UNUSED __attribute__((unused))
#define MIB ((size_t)1 << 20)
#define COMMIT_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define COMMIT_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char test_dir[256];

static UNUSED int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static UNUSED void dir_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(test_dir, sizeof(test_dir), "%s/wb-storage-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(test_dir));
}

static UNUSED void dir_remove(void)
{
    nftw(test_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static UNUSED const char *data_dir(void)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/data", test_dir);
    return path;
}

static UNUSED struct store *open_store(void)
{
    struct error err = ERROR_INIT;
    struct store *s = NULL;
    struct store_options o = {.dir = data_dir(), .free_floor_percent = 1};
    cr_assert(store_open(&o, &s, &err) == 0, "%s", err.text);
    return s;
}

static UNUSED struct digest digest_of_text(const char *text)
{
    struct digest d;
    cr_assert(digest_of(DIGEST_SHA256, text, strlen(text), &d, NULL) == 0);
    return d;
}

/* Bytes that differ from block to block, so that a hole or a shift is seen. */
static UNUSED void fill(unsigned char *p, size_t len, unsigned seed)
{
    uint64_t x = seed * 2654435761u + 88172645463325252u;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (unsigned char)x;
    }
}

static UNUSED unsigned char *make_bytes(size_t len, unsigned seed, struct digest *ret)
{
    unsigned char *p = malloc(len + 1);
    cr_assert(p);
    fill(p, len, seed);
    cr_assert(digest_of(DIGEST_SHA256, p, len, ret, NULL) == 0);
    return p;
}

static UNUSED struct digest put_text(struct store *s, const char *text)
{
    struct error err = ERROR_INIT;
    struct digest d;
    cr_assert(store_blob_put(s, text, strlen(text), &d, &err) == 0, "%s", err.text);
    return d;
}

static UNUSED void assert_blob(struct store *s, const struct digest *d, const void *data,
                               size_t len)
{
    struct error err = ERROR_INIT;
    struct blob *b = NULL;
    cr_assert(store_blob_open(s, d, &b, &err) == 1, "%s", err.text);
    cr_assert(blob_size(b) == len);
    char *got = malloc(len + 1);
    size_t at = 0;
    for (ssize_t n; (n = blob_read(b, at, got + at, len + 1 - at, &err)) > 0;)
        at += (size_t)n;
    cr_assert(at == len, "%zu of %zu: %s", at, len, err.text);
    cr_assert(memcmp(got, data, len) == 0);
    free(got);
    blob_close(b);
}

static UNUSED bool is_held(struct store *s, const struct digest *d)
{
    struct error err = ERROR_INIT;
    uint64_t size;
    int r = store_blob_stat(s, d, &size, &err);
    cr_assert(r >= 0, "%s", err.text);
    return r == 1;
}

static UNUSED void blob_path(const struct digest *d, char *buf, size_t size)
{
    char hex[DIGEST_TEXT_MAX];
    digest_format_hex(d, hex);
    snprintf(buf, size, "%s/blobs/%s/%.2s/%s", data_dir(), digest_alg_name(d->alg), hex, hex);
}

/* An import of one manifest (its text is `manifest`) with links given as text/path pairs. */
static UNUSED int import_one(struct store *s, const char *repository, const char *commit,
                             const char *tag, const char *manifest, const struct import_link *links,
                             size_t n_links, struct error *err)
{
    const char *tags[] = {commit, tag};
    struct import_record r = {.repository = repository,
                              .upstream = "hf",
                              .repo_id = "Org/Model",
                              .commit = commit,
                              .tags = tags,
                              .n_tags = tag ? 2 : 1,
                              .manifest_digest = digest_of_text(manifest),
                              .media_type = "application/vnd.oci.image.manifest.v1+json",
                              .manifest = manifest,
                              .manifest_len = strlen(manifest),
                              .links = links,
                              .n_links = n_links};
    return store_commit_import(s, &r, err);
}

static UNUSED unsigned count_incoming(void)
{
    char cmd[400], out[32] = "";
    snprintf(cmd, sizeof(cmd), "ls -A %s/incoming | wc -l", data_dir());
    FILE *f = popen(cmd, "r");
    cr_assert(f && fgets(out, sizeof(out), f));
    pclose(f);
    return (unsigned)atoi(out);
}

#endif
