/* Clients that share a few upload sessions: they send pieces, take each other over, break off, ask,
 * commit right and wrong digests, cancel and let expire, for a few seconds. What is committed must
 * be there and right at once; every failure must be one that the contract knows. Also run under
 * ThreadSanitizer. WB_STRESS_SECONDS changes how long. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "storage/store.h"

#define CLIENTS 10
#define SLOTS 12
#define ABANDONED 200
#define CONTENTS 24 /* fewer than there are commits, so that blobs are held already */
#define SIZE (300 * 1024)
#define REPOSITORY "stress/uploads"

static struct store *store;
static uint64_t deadline;
static _Atomic unsigned long commits, pieces, takeovers;

static struct {
    unsigned char bytes[SIZE];
    struct digest digest[2]; /* sha256, sha512 */
} contents[CONTENTS];

static struct slot {
    pthread_mutex_t lock;       /* guards: the rest */
    char id[UPLOAD_ID_LEN + 1]; /* empty: no session */
    unsigned content;
} slots[SLOTS];

static void make_contents(void)
{
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < CONTENTS; i++) {
        for (size_t at = 0; at < SIZE; at += 8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            memcpy(contents[i].bytes + at, &x, 8);
        }
        if (digest_of(DIGEST_SHA256, contents[i].bytes, SIZE, &contents[i].digest[0], NULL) < 0 ||
            digest_of(DIGEST_SHA512, contents[i].bytes, SIZE, &contents[i].digest[1], NULL) < 0)
            abort();
    }
}

/* The session of a slot, begun when there is none. */
static void pick(struct slot *slot, unsigned x, char id[static UPLOAD_ID_LEN + 1],
                 unsigned *ret_content)
{
    struct error err = ERROR_INIT;
    pthread_mutex_lock(&slot->lock);
    if (!slot->id[0]) {
        enum digest_alg alg = x % 3 ? DIGEST_SHA256 : DIGEST_SHA512;
        slot->content = x / 4 % CONTENTS;
        CHECK(upload_begin(store, REPOSITORY, alg, slot->id, &err) == 0, "%s", err.text);
    }
    memcpy(id, slot->id, UPLOAD_ID_LEN + 1);
    *ret_content = slot->content;
    pthread_mutex_unlock(&slot->lock);
}

static void forget(struct slot *slot, const char *id)
{
    pthread_mutex_lock(&slot->lock);
    if (strcmp(slot->id, id) == 0)
        slot->id[0] = '\0';
    pthread_mutex_unlock(&slot->lock);
}

static void check_blob(const struct digest *d, const unsigned char *want)
{
    static __thread unsigned char got[65536];
    struct error err = ERROR_INIT;
    struct blob *b = NULL;
    struct link l;
    int r = store_blob_open(store, d, &b, &err);
    CHECK(r == 1, "%s", err.text);
    if (r != 1)
        return;
    CHECK(blob_size(b) == SIZE, "size %zu", (size_t)blob_size(b));
    for (uint64_t at = 0; at < SIZE;) {
        ssize_t n = blob_read(b, at, got, sizeof(got), &err);
        CHECK(n > 0 && memcmp(got, want + at, (size_t)n) == 0, "bytes at %zu", (size_t)at);
        if (n <= 0)
            break;
        at += (uint64_t)n;
    }
    blob_close(b);
    r = store_link_get(store, REPOSITORY, d, &l, &err);
    CHECK(r == 1 && l.held, "%s", err.text);
    if (r == 1)
        link_done(&l);
}

/* Sends from where the session is up to `end`; false when somebody else has it by now. */
static bool send_up_to(struct upload *u, const unsigned char *bytes, uint64_t end, size_t step)
{
    struct error err = ERROR_INIT;
    for (uint64_t at = upload_size(u); at < end;) {
        size_t n = end - at < step ? (size_t)(end - at) : step;
        if (upload_write(u, bytes + at, n, &err) < 0) {
            CHECK(err.code == ERR_CONFLICT, "%s", err.text);
            atomic_fetch_add(&takeovers, 1);
            return false;
        }
        at += n;
        atomic_fetch_add(&pieces, 1);
    }
    return true;
}

static void commit(struct slot *slot, const char *id, struct upload *u, unsigned content,
                   unsigned x)
{
    struct error err = ERROR_INIT;
    struct digest d = contents[content].digest[x % 2];
    bool wrong = x / 2 % 8 == 0;
    if (wrong)
        d.raw[5] ^= 1;
    if (!send_up_to(u, contents[content].bytes, SIZE, 65536))
        return;
    int r = upload_commit(u, &d, &err);
    if (r == 0) {
        CHECK(!wrong, "a wrong digest was taken");
        atomic_fetch_add(&commits, 1);
        forget(slot, id);
        check_blob(&d, contents[content].bytes);
    } else if (wrong && err.code == ERR_DIGEST_MISMATCH) {
        CHECK(upload_size(u) == upload_offset(u), "cut back");
    } else {
        CHECK(err.code == ERR_CONFLICT, "%s", err.text);
    }
}

static void patch(struct upload *u, unsigned content, unsigned x)
{
    struct error err = ERROR_INIT;
    uint64_t from = upload_offset(u), offset = 0, end = from + x % 100000;
    if (end > SIZE)
        end = SIZE;
    if (x / 8 % 4 == 0 && upload_expect(u, (end - from) * 20, &err) < 0)
        CHECK(err.code == ERR_CONFLICT, "%s", err.text);
    if (!send_up_to(u, contents[content].bytes, end, 1 + x / 32 % 30000))
        return;
    if (x / 64 % 3 == 0)
        return; /* broken off */
    if (upload_ack(u, &offset, &err) < 0)
        CHECK(err.code == ERR_CONFLICT, "%s", err.text);
    else
        CHECK(offset == end, "%zu, not %zu", (size_t)offset, (size_t)end);
}

static void hold(struct slot *slot, unsigned x)
{
    struct error err = ERROR_INIT;
    struct upload *u = NULL;
    char id[UPLOAD_ID_LEN + 1];
    unsigned content;
    pick(slot, x, id, &content);
    int r = upload_open(store, REPOSITORY, id, &u, &err);
    if (r == 0) {
        forget(slot, id);
        return;
    }
    if (r < 0) {
        CHECK(err.code == ERR_CONFLICT, "%s", err.text);
        return;
    }
    CHECK(upload_offset(u) <= SIZE && upload_size(u) == upload_offset(u), "offset");
    if (x / 1024 % 3 == 0)
        commit(slot, id, u, content, x);
    else
        patch(u, content, x);
    upload_close(u);
}

static void ask(struct slot *slot, unsigned x)
{
    struct error err = ERROR_INIT;
    struct store_stats st;
    char id[UPLOAD_ID_LEN + 1];
    unsigned content;
    uint64_t offset = 0;
    pick(slot, x, id, &content);
    int r = upload_status(store, REPOSITORY, id, &offset, &err);
    CHECK(r >= 0 && offset <= SIZE, "%zu %s", (size_t)offset, err.text);
    if (r == 0)
        forget(slot, id);
    CHECK(upload_status(store, "stress/other", id, &offset, &err) == 0, "another repository");
    CHECK(store_stats(store, &st, &err) == 0, "%s", err.text);
}

static void end(struct slot *slot, unsigned x)
{
    struct error err = ERROR_INIT;
    char id[UPLOAD_ID_LEN + 1];
    unsigned content;
    uint64_t n = 0, bytes = 0;
    if (x % 16 == 0) {
        CHECK(uploads_expire(store, x / 16 % 2, &n, &bytes, &err) == 0, "%s", err.text);
        return;
    }
    pick(slot, x, id, &content);
    CHECK(upload_cancel(store, REPOSITORY, id, &err) >= 0, "%s", err.text);
    forget(slot, id);
}

static void *client_main(void *arg)
{
    unsigned seed = *(const unsigned *)arg + 1;
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed), y = (unsigned)rand_r(&seed);
        struct slot *slot = &slots[x / 32 % SLOTS];
        switch (x % 32) {
        case 0:
            end(slot, y);
            break;
        case 1:
        case 2:
        case 3:
        case 4:
            ask(slot, y);
            break;
        default:
            hold(slot, y);
            break;
        }
    }
    return NULL;
}

/* As many sessions as may be, that nobody has touched for an hour: each begin has to make room. */
static int abandon_some(struct store_options *options, struct error *err)
{
    struct timespec old;
    clock_gettime(CLOCK_REALTIME, &old);
    old.tv_sec -= 3600;
    for (unsigned i = 0; i < ABANDONED; i++) {
        char id[UPLOAD_ID_LEN + 1], path[300];
        if (upload_begin(store, REPOSITORY, DIGEST_SHA256, id, err) < 0)
            return -1;
        snprintf(path, sizeof(path), "%s/incoming/%s", options->dir, id);
        if (utimensat(AT_FDCWD, path, (struct timespec[]){old, old}, 0) < 0)
            return err_errno(err, "%s", path);
    }
    store_close(store);
    options->max_uploads = ABANDONED;
    return store_open(options, &store, err);
}

/* A start finds the same sessions with the same bytes, and every one of them can be ended. */
static void check_after(const struct store_options *options)
{
    struct error err = ERROR_INIT;
    struct store_stats before, after;
    uint64_t n = 0, bytes = 0;
    CHECK(store_stats(store, &before, &err) == 0, "%s", err.text);
    store_close(store);
    if (store_open(options, &store, &err) < 0) {
        CHECK(false, "%s", err.text);
        return;
    }
    CHECK(store_stats(store, &after, &err) == 0, "%s", err.text);
    CHECK(before.uploads == after.uploads && before.partial_bytes == after.partial_bytes,
          "uploads %zu/%zu bytes %zu/%zu", (size_t)before.uploads, (size_t)after.uploads,
          (size_t)before.partial_bytes, (size_t)after.partial_bytes);
    CHECK(before.blobs == after.blobs && before.blob_bytes == after.blob_bytes, "blobs");
    CHECK(after.blob_bytes == after.blobs * SIZE, "bytes of blobs");
    CHECK(uploads_expire(store, 0, &n, &bytes, &err) == 0, "%s", err.text);
    CHECK(n == after.uploads && bytes == after.partial_bytes, "%zu expired", (size_t)n);
    CHECK(store_stats(store, &after, &err) == 0, "%s", err.text);
    CHECK(after.uploads == 0 && after.partial_bytes == 0, "nothing left");
    store_close(store);
}

int main(void)
{
    char dir[] = "/tmp/wb-stress-XXXXXX";
    struct store_options options = {.dir = dir, .free_floor_percent = 1};
    struct error err = ERROR_INIT;
    if (!open_new(dir, &options, &store))
        return 1;
    if (abandon_some(&options, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    make_contents();
    for (unsigned i = 0; i < SLOTS; i++)
        if (pthread_mutex_init(&slots[i].lock, NULL) != 0)
            return 1;
    deadline = stress_end_ms();
    run_threads(CLIENTS, client_main, 0, NULL);
    check_after(&options);
    remove_folder(dir);
    printf("stress_upload: %lu pieces, %lu commits, %lu taken over, %lu wrong\n", pieces, commits,
           takeovers, bad);
    return bad ? 1 : 0;
}
