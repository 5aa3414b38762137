/* Small files under load: many readers on few files, from a Hub that cuts, flips a byte, refuses,
 * and heals. No reader may ever complete wrong bytes; in the end every file is held. A plain
 * program, so that it also runs under ThreadSanitizer. */

#include "base/clock.h"
#include "hub_world.h"
#include "upstream/small.h"

#define FILES 12u
#define READERS 24u
#define ROUNDS 40u
#define SIZE_MAX_OF_FILE 150000u
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static const unsigned sizes[FILES / 2] = {1, 100, 65536, 65537, 40000, SIZE_MAX_OF_FILE};

static unsigned size_of(unsigned file)
{
    return sizes[file % (FILES / 2)];
}

static char byte_at(unsigned file, unsigned offset)
{
    return (char)(((offset + 1) * 2654435761u + file * 97) >> 24);
}

/* ---- the Hub ------------------------------------------------------------------------------- */

static atomic_uint requests;
static atomic_bool healed;

/* Every second answer is bad in its own way until it heals. */
static bool answer(int fd, unsigned file)
{
    unsigned n = atomic_fetch_add(&requests, 1), size = size_of(file);
    unsigned how = atomic_load(&healed) || n % 2 ? 4 : n / 2 % 4;
    char head[300], *body = malloc(size);
    for (unsigned i = 0; i < size; i++)
        body[i] = byte_at(file, i);
    if (how == 1)
        body[size / 2] = (char)(body[size / 2] ^ 1);
    if (how == 2)
        body[size - 1] = (char)(body[size - 1] ^ 1);
    snprintf(head, sizeof(head),
             "HTTP/1.1 %s\r\nX-Repo-Commit: " COMMIT "\r\nContent-Length: %u\r\n\r\n",
             how == 3 ? "503 Busy" : "200 OK", how == 3 ? 0 : size);
    bool ok = send_all(fd, head, strlen(head));
    if (ok && how != 3)
        ok = send_all(fd, body, how == 0 ? size / 2 : size);
    free(body);
    return ok && how != 0;
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char request[4096];
    while (loopback_head(fd, request, sizeof(request))) {
        const char *name = strstr(request, COMMIT "/f");
        if (!name || !answer(fd, (unsigned)strtoul(name + strlen(COMMIT "/f"), NULL, 10)))
            break;
    }
    close(fd);
    return NULL;
}

/* ---- readers ------------------------------------------------------------------------------- */

static struct smalls *smalls;
static struct hub *hub;
static struct commit_file files[FILES];
static char paths[FILES][8];
static atomic_uint completed, cut;

/* 1 all of it, 0 cut. */
static int read_file(unsigned file, unsigned seed)
{
    uint64_t answer_by_ms = seed % 4 ? 0 : clock_monotonic_ms() + seed % 60;
    const struct small_source from = {.hub = hub,
                                      .id = "o/m",
                                      .commit = COMMIT,
                                      .file = &files[file],
                                      .answer_by_ms = answer_by_ms};
    struct small *x;
    struct error err = ERROR_INIT;
    bool started;
    uint64_t at = 0, have;
    if (small_join(smalls, &from, &x, &started, &err) < 0) {
        CHECK(err.code == ERR_BUSY, "%s", err.text);
        return 0;
    }
    if (answer_by_ms && small_begin(x, answer_by_ms, &err) < 0) {
        small_unref(x);
        return 0;
    }
    uint64_t leaves_at = seed % 7 == 0 ? size_of(file) / 3 : UINT64_MAX, step = 1 + seed % 9000;
    char *got = malloc(size_of(file) + step);
    while (at < size_of(file) && at < leaves_at) {
        int rc = small_wait(x, at, clock_monotonic_ms() + 60000, &have, &err);
        CHECK(rc != 0, "nothing comes of file %u at %llu", file, (unsigned long long)at);
        ssize_t n = rc < 0 ? -1 : small_read(x, at, got + at, step, &err);
        if (n < 0)
            break;
        CHECK(n > 0, "an end at %llu of file %u", (unsigned long long)at, file);
        at += (uint64_t)n;
    }
    bool whole = at == size_of(file);
    for (unsigned i = 0; whole && i < size_of(file); i++)
        CHECK(got[i] == byte_at(file, i), "file %u is wrong at %u", file, i);
    free(got);
    small_unref(x);
    return whole;
}

static void *reader(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        seed = seed * 1103515245u + 12345u;
        if (read_file(seed / 65536 % FILES, seed / 256))
            atomic_fetch_add(&completed, 1);
        else
            atomic_fetch_add(&cut, 1);
    }
    return NULL;
}

static void make_files(void)
{
    char *data = malloc(SIZE_MAX_OF_FILE);
    for (unsigned f = 0; f < FILES; f++) {
        snprintf(paths[f], sizeof(paths[f]), "f%u", f);
        files[f] = (struct commit_file){.path = paths[f], .size = size_of(f)};
        for (unsigned i = 0; i < size_of(f); i++)
            data[i] = byte_at(f, i);
        CHECK(git_blob_oid(data, size_of(f), files[f].git_oid, NULL) == 0, "no object id");
    }
    free(data);
}

int main(void)
{
    struct hub_world w = {.config.retries = 2};
    struct error err = ERROR_INIT;
    hub_world_begin(&w, serve);
    hub = w.hub;
    CHECK(smalls_new(w.store, &smalls, &err) == 0, "%s", err.text);
    make_files();
    run_threads(READERS, reader);
    atomic_store(&healed, true);
    for (unsigned f = 0; f < FILES; f++) {
        struct digest d;
        while (store_hub_object_get(w.store, "hf", "o/m", files[f].git_oid, &d, &err) == 0)
            read_file(f, 1);
    }
    struct small_stats stats;
    smalls_stats(smalls, &stats);
    printf("%u whole, %u cut; %u requests, %llu fetches, %llu mismatches\n", completed, cut,
           requests, (unsigned long long)stats.started, (unsigned long long)stats.mismatches);
    CHECK(completed && stats.mismatches, "nothing was tried");
    http_pool_cancel(hub_pool(hub));
    smalls_stop(smalls);
    smalls_free(smalls);
    hub_world_end(&w);
    return 0;
}
