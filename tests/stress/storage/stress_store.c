/* Eight threads read what four write, commit, import and remove, for a few seconds. Every answer
 * that a reader gets must be whole and right, whatever the writers do meanwhile. Also run under
 * ThreadSanitizer. WB_STRESS_SECONDS changes how long. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "storage/store.h"

#define READERS 8
#define WRITERS 4
#define ITEMS 16 /* a writer's own: blobs, manifests */
#define BLOB_SIZE (200 * 1024)
#define COMMIT "cccccccccccccccccccccccccccccccccccccccc"

static struct store *store;
static uint64_t deadline;
static _Atomic unsigned long reads, writes;

/* What item i of writer w consists of. */
static void blob_bytes(unsigned w, unsigned i, unsigned char *buf)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (w * ITEMS + i + 1);
    for (size_t at = 0; at < BLOB_SIZE; at += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(buf + at, &x, 8);
    }
}

static struct digest blob_digests[WRITERS][ITEMS];

static struct digest digest_of_string(const char *s)
{
    struct digest d;
    if (digest_of(DIGEST_SHA256, s, strlen(s), &d, NULL) < 0)
        abort();
    return d;
}

static void names(unsigned w, unsigned i, char repo[32], char manifest[32], char tag[16])
{
    snprintf(repo, 32, "hf/stress/repo%u", i % 3);
    snprintf(manifest, 32, "{\"manifest\":\"%u/%u\"}", w, i);
    snprintf(tag, 16, "t%u", i % 5);
}

static void write_blob(unsigned w, unsigned i, unsigned seed)
{
    struct error err = ERROR_INIT;
    struct blob_writer *bw = NULL;
    unsigned char *bytes = malloc(BLOB_SIZE);
    if (!bytes)
        abort();
    blob_bytes(w, i, bytes);
    if (writer_open(store, &blob_digests[w][i], BLOB_SIZE, &bw, &err) < 0) {
        CHECK(err.code == ERR_BUSY, "%s", err.text); /* another writer has its digest just now */
        free(bytes);
        return;
    }
    int r = 0;
    for (size_t at = writer_resumed(bw); r == 0 && at < BLOB_SIZE; at += 16384) {
        size_t n = BLOB_SIZE - at < 16384 ? BLOB_SIZE - at : 16384;
        r = writer_write(bw, bytes + at, n, at, &err);
        if (r == 0 && seed % 7 == 0 && at > BLOB_SIZE / 2)
            break; /* leave a partial */
    }
    CHECK(r == 0, "%s", err.text);
    if (seed % 7 != 0) {
        r = writer_commit(bw, BLOB_SIZE, &err);
        CHECK(r == 0, "%s", err.text);
    }
    writer_close(bw, true);
    free(bytes);
}

static void import_item(unsigned w, unsigned i)
{
    char repo[32], manifest[32], tag[16], small[32];
    struct error err = ERROR_INIT;
    struct digest config;
    names(w, i, repo, manifest, tag);
    snprintf(small, sizeof(small), "config %u/%u", w, i);
    int r = store_blob_put(store, small, strlen(small), &config, &err);
    CHECK(r == 0, "%s", err.text);
    const char *tags[] = {tag, COMMIT};
    struct import_link links[] = {{config, strlen(small), NULL},
                                  {blob_digests[w][i], BLOB_SIZE, "weights.bin"}};
    struct commit_file files[] = {{.path = "weights.bin", .size = BLOB_SIZE, .has_lfs = true}};
    struct import_record record = {.repository = repo,
                                   .upstream = "hf",
                                   .repo_id = "Stress/Repo",
                                   .commit = COMMIT,
                                   .tags = tags,
                                   .n_tags = 2,
                                   .manifest_digest = digest_of_string(manifest),
                                   .media_type = "application/json",
                                   .manifest = manifest,
                                   .manifest_len = strlen(manifest),
                                   .links = links,
                                   .n_links = 2,
                                   .files = files,
                                   .n_files = 1};
    r = store_commit_import(store, &record, &err);
    CHECK(r == 0, "%s", err.text);
}

static void remove_item(unsigned w, unsigned i, bool by_tag)
{
    char manifest[32], tag[16];
    struct error err = ERROR_INIT;
    struct reference ref = {.is_digest = !by_tag};
    char repo[32];
    names(w, i, repo, manifest, tag);
    snprintf(ref.repository, sizeof(ref.repository), "%s", repo);
    snprintf(ref.tag, sizeof(ref.tag), "%s", tag);
    ref.digest = digest_of_string(manifest);
    int r = store_remove(store, &ref, NULL, "test", &err);
    CHECK(r == 0 || err.code == ERR_NOT_FOUND, "%s", err.text);
}

static void *writer_main(void *arg)
{
    unsigned w = *(const unsigned *)arg, seed = w + 1;
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed), i = x / 16 % ITEMS, other = x / 256 % WRITERS;
        char repo[32], manifest[32], tag[16];
        names(w, i, repo, manifest, tag);
        switch (x % 8) {
        case 0:
        case 1:
        case 2:
            write_blob(x % 32 == 0 ? other : w, i, x / 1024);
            break;
        case 3:
        case 4:
            import_item(w, i);
            break;
        case 5:
            remove_item(other, i, x / 4096 % 2);
            break;
        case 6:
            store_tag_confirm(store, repo, tag);
            break;
        default:
            CHECK(store_mismatch_put(store, &blob_digests[w][i], clock_wall_s() + i % 2, NULL) == 0,
                  "mismatch");
            break;
        }
        atomic_fetch_add(&writes, 1);
    }
    return NULL;
}

static void read_blob(const struct digest *d, const unsigned char *want)
{
    struct error err = ERROR_INIT;
    struct blob *b = NULL;
    unsigned char buf[4096];
    int r = store_blob_open(store, d, &b, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r != 1)
        return;
    CHECK(blob_size(b) == BLOB_SIZE, "size %zu", (size_t)blob_size(b));
    for (uint64_t at = 0; at < BLOB_SIZE; at += 50000) {
        ssize_t n = blob_read(b, at, buf, sizeof(buf), &err);
        CHECK(n > 0 && memcmp(buf, want + at, (size_t)n) == 0, "bytes at %zu", (size_t)at);
    }
    blob_close(b);
}

static void read_names(const char *repo)
{
    struct error err = ERROR_INIT;
    struct name_list l;
    struct store_stats st;
    int r = store_tags(store, repo, "t1", 3, &l, &err);
    CHECK(r == 0 || err.code == ERR_NOT_FOUND, "%s", err.text);
    if (r == 0) {
        for (size_t i = 1; i < l.n; i++)
            CHECK(strcmp(l.names[i - 1], l.names[i]) < 0, "order");
        name_list_done(&l);
    }
    CHECK(store_repositories(store, NULL, 10, &l, &err) == 0, "%s", err.text);
    name_list_done(&l);
    CHECK(store_stats(store, &st, &err) == 0, "%s", err.text);
}

/* The manifest and its links are there together or not at all. Between two reads of ours a writer
 * may remove both, so only what one read says is checked. */
static void read_item(unsigned w, unsigned i)
{
    char repo[32], manifest[32], tag[16];
    struct error err = ERROR_INIT;
    struct tag t;
    struct manifest m;
    struct link l;
    struct commit_files files;
    names(w, i, repo, manifest, tag);
    struct digest d = digest_of_string(manifest);
    int r = store_tag_get(store, repo, tag, &t, &err);
    CHECK(r == 0 || (r == 1 && strcmp(t.commit, COMMIT) == 0), "%s", err.text);
    r = store_manifest_get(store, repo, &d, &m, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r == 1) {
        CHECK(m.len == strlen(manifest) && memcmp(m.bytes, manifest, m.len) == 0, "manifest");
        manifest_done(&m);
    }
    r = store_link_get(store, repo, &blob_digests[w][i], &l, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r == 1) {
        CHECK(l.size == BLOB_SIZE && l.has_origin, "link");
        CHECK(strcmp(l.origin.path, "weights.bin") == 0, "origin");
        link_done(&l);
    }
    r = store_commit_files_get(store, "hf", "Stress/Repo", COMMIT, &files, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r == 1) {
        CHECK(files.n == 1 && files.files[0].size == BLOB_SIZE, "files");
        commit_files_done(&files);
    }
    store_mismatch_left(store, &blob_digests[w][i], "any/repository");
    read_names(repo);
}

static void *reader_main(void *arg)
{
    unsigned seed = *(const unsigned *)arg + 1000;
    unsigned char *want = malloc(BLOB_SIZE);
    if (!want)
        abort();
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed), w = x % WRITERS, i = x / 8 % ITEMS;
        blob_bytes(w, i, want);
        read_blob(&blob_digests[w][i], want);
        read_item(w, i);
        atomic_fetch_add(&reads, 1);
    }
    free(want);
    return NULL;
}

static void prepare(void)
{
    unsigned char *bytes = malloc(BLOB_SIZE);
    if (!bytes)
        abort();
    for (unsigned w = 0; w < WRITERS; w++)
        for (unsigned i = 0; i < ITEMS; i++) {
            blob_bytes(w, i, bytes);
            if (digest_of(DIGEST_SHA256, bytes, BLOB_SIZE, &blob_digests[w][i], NULL) < 0)
                abort();
        }
    free(bytes);
}

/* After the storm: a start settles it, nothing of the counting has drifted. */
static void check_after(const struct store_options *options)
{
    struct error err = ERROR_INIT;
    struct store_stats before, after;
    struct gc_result gc;
    CHECK(store_stats(store, &before, &err) == 0, "%s", err.text);
    store_close(store);
    if (store_open(options, &store, &err) < 0) {
        CHECK(false, "%s", err.text);
        return;
    }
    CHECK(store_stats(store, &after, &err) == 0, "%s", err.text);
    CHECK(before.blobs == after.blobs && before.blob_bytes == after.blob_bytes, "blobs");
    CHECK(before.partials == after.partials && before.partial_bytes == after.partial_bytes,
          "partials %zu/%zu bytes %zu/%zu", (size_t)before.partials, (size_t)after.partials,
          (size_t)before.partial_bytes, (size_t)after.partial_bytes);
    CHECK(store_gc(store, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    store_close(store);
}

int main(void)
{
    char dir[] = "/tmp/wb-stress-XXXXXX";
    const struct store_options options = {.dir = dir, .free_floor_percent = 1};
    if (!open_new(dir, &options, &store))
        return 1;
    prepare();
    deadline = stress_end_ms();
    run_threads(WRITERS, writer_main, READERS, reader_main);
    check_after(&options);
    remove_folder(dir);
    printf("stress_store: %lu reads, %lu writes, %lu wrong\n", reads, writes, bad);
    return bad ? 1 : 0;
}
