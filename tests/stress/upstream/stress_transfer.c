/* Transfers under load: many readers on few digests, from a server that cuts, flips a byte, ignores
 * ranges, and heals. No reader may ever complete wrong bytes; in the end every digest is held.
 * A plain program, so that it also runs under ThreadSanitizer. */
#include <inttypes.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "loopback.h"
#include "base/fs.h"
#include "upstream/transfer.h"

#define KINDS 6
#define OBJECTS (KINDS * 16)
#define READERS 24
#define ROUNDS 64

static const uint64_t kinds[KINDS] = {0, 1, 65536, 65537, 300001, 900000};

static uint64_t size_of(unsigned object)
{
    return kinds[object % KINDS] + (object % KINDS > 1 ? object / KINDS : 0);
}

static unsigned char byte_at(unsigned object, uint64_t offset)
{
    uint64_t v = (offset + 1) * 0x9e3779b97f4a7c15ull + object * 0x1000193u;
    return (unsigned char)(v >> 33);
}

/* ---- the upstream ------------------------------------------------------------------------- */

static struct loopback server;
static atomic_uint requests;
static atomic_bool healed;

/* Every third answer is bad in its own way until the upstream heals. */
static void answer(int fd, unsigned object, uint64_t first, uint64_t last, bool ranged)
{
    unsigned n = atomic_fetch_add(&requests, 1);
    bool bad = !atomic_load(&healed) && n % 3 == 0;
    unsigned how = n / 3 % 4;
    uint64_t size = size_of(object), flip = UINT64_MAX;
    if (bad && how == 2)
        ranged = false; /* ignores the range */
    if (!ranged) {
        first = 0;
        last = size - 1;
    }
    uint64_t until = last + 1;
    if (bad && how == 0)
        until = first + (until - first) / 2; /* cut */
    if (bad && how == 1 && size > 10)
        flip = size / 2;
    char head[300];
    if (bad && how == 3) {
        snprintf(head, sizeof(head), "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        send_all(fd, head, strlen(head));
        return;
    }
    if (ranged)
        snprintf(head, sizeof(head),
                 "HTTP/1.1 206 Partial\r\nContent-Length: %" PRIu64 "\r\nContent-Range: bytes "
                 "%" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\nConnection: close\r\n\r\n",
                 last + 1 - first, first, last, size);
    else
        snprintf(head, sizeof(head),
                 "HTTP/1.1 200 OK\r\nContent-Length: %" PRIu64 "\r\nConnection: close\r\n\r\n",
                 size);
    if (!send_all(fd, head, strlen(head)))
        return;
    static const size_t block = 20000;
    unsigned char *buf = malloc(block);
    for (uint64_t at = first; buf && at < until;) {
        size_t len = until - at < block ? (size_t)(until - at) : block;
        for (size_t i = 0; i < len; i++)
            buf[i] = (unsigned char)(byte_at(object, at + i) ^ (at + i == flip));
        if (!send_all(fd, buf, len))
            break;
        at += len;
    }
    free(buf);
}

static void *serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char request[4096];
    if (loopback_head(fd, request, sizeof(request))) {
        unsigned object = (unsigned)strtoul(request + strlen("GET /"), NULL, 10);
        const char *range = strcasestr(request, "\r\nRange: bytes=");
        CHECK(object < OBJECTS, "%s", request);
        uint64_t size = size_of(object), first = 0, last = size - 1;
        char *dash = NULL;
        if (range) {
            first = strtoull(range + strlen("\r\nRange: bytes="), &dash, 10);
            CHECK(*dash == '-' && first < size, "%s", request);
            if (dash[1] >= '0' && dash[1] <= '9')
                last = strtoull(dash + 1, NULL, 10);
            CHECK(first <= last, "%s", request);
            last = last < size ? last : size - 1;
        }
        answer(fd, object, first, last, range != NULL);
    }
    close(fd);
    return NULL;
}

/* ---- the readers -------------------------------------------------------------------------- */

static struct store *store;
static struct transfers *transfers;
static struct http_pool *pool;
static struct digest digests[OBJECTS];
static atomic_uint completed, cut;

static int locate(void *ctx, struct http_location *ret, struct error *err)
{
    char url[100];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/%u", server.port, (unsigned)(uintptr_t)ctx);
    ret->url = strdup(url);
    ret->bearer = NULL;
    return ret->url ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int wait_for(struct transfer *x, uint64_t first, uint64_t at, uint64_t *have,
                    struct error *err)
{
    uint64_t deadline = clock_monotonic_ms() + 30000;
    return first ? transfer_wait_part(x, at, transfer_size(x), deadline, have, err)
                 : transfer_wait(x, at, TRANSFER_DONE, deadline, have, err);
}

/* One read, of the whole or from somewhere to the end; what comes must be right even where the end
 * never does. A mismatch makes it unreliable, which is why such a reader must not reach the end. */
static void read_whole(unsigned object)
{
    static const char *const repositories[] = {"a", "b", NULL};
    struct transfer_source source = {.upstream = "test",
                                     .repository = repositories[random() % 3],
                                     .pool = pool,
                                     .retries = 4,
                                     .locate = locate,
                                     .ctx = (void *)(uintptr_t)object,
                                     .alone = random() % 8 == 0};
    struct transfer *x = NULL;
    struct error err = ERROR_INIT;
    bool misled = random() % 16 == 0;
    uint64_t size = size_of(object) + misled, at = 0, have = 0;
    uint64_t first = size && random() % 3 == 0 ? (uint64_t)random() % size : 0;
    struct transfer_place place = {0};
    CHECK(transfer_join(transfers, &digests[object], size, &source, &x, &err) == 0, "%s", err.text);
    transfer_move(x, &place, at = first);
    if (first)
        transfer_hurry(x, first, size);
    char *buf = malloc(50000);
    uint64_t wrong = 0;
    CHECK(buf, "memory");
    for (;;) {
        int rc = wait_for(x, first, at, &have, &err);
        CHECK(rc != 0, "a transfer hung at %" PRIu64 " of %" PRIu64, at, size);
        if (rc < 0 || at == size)
            break;
        ssize_t n = first ? transfer_read_part(x, at, buf, 50000, &err)
                          : transfer_read(x, at, buf, 50000, &err);
        if (n < 0)
            break;
        CHECK(n > 0, "no bytes at %" PRIu64 " of %" PRIu64 " (%" PRIu64 ")", at, size, have);
        for (ssize_t i = 0; i < n; i++)
            wrong += (unsigned char)buf[i] != byte_at(object, at + (uint64_t)i);
        at += (uint64_t)n;
        transfer_move(x, &place, at);
        if (random() % 40 == 0)
            break; /* leaves early */
    }
    CHECK(at < size || !wrong, "%" PRIu64 " wrong bytes reached a complete reader", wrong);
    CHECK(at < size || !misled, "a wrong size was reached");
    CHECK(at <= size, "too many bytes");
    atomic_fetch_add(at == size ? &completed : &cut, 1);
    free(buf);
    transfer_leave(x, &place);
    transfer_unref(x);
}

static void *reader(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++)
        read_whole((me / 4 * 7 + i * 5) % OBJECTS);
    return NULL;
}

static void make_digests(void)
{
    for (unsigned o = 0; o < OBJECTS; o++) {
        struct error err;
        unsigned char *all = malloc(size_of(o) + 1);
        CHECK(all, "memory");
        for (uint64_t i = 0; i < size_of(o); i++)
            all[i] = byte_at(o, i);
        CHECK(digest_of(DIGEST_SHA256, all, size_of(o), &digests[o], &err) == 0, "%s", err.text);
        free(all);
    }
}

/* ---- the queue ---------------------------------------------------------------------------- */

static sem_t begun, go_on, ended;

/* Holds the only slot until it may go on. */
static int locate_later(void *ctx, struct http_location *ret, struct error *err)
{
    sem_post(&begun);
    sem_wait(&go_on);
    return locate(ctx, ret, err);
}

static void on_end(void *ctx, const char *upstream, const struct digest *d, uint64_t size,
                   uint64_t received, uint64_t ms, const struct error *error)
{
    (void)ctx, (void)upstream, (void)d, (void)size, (void)received, (void)ms;
    if (error && error->code == ERR_CANCELLED)
        sem_post(&ended);
}

static struct transfer *join_object(struct transfers *t, unsigned object,
                                    int (*where)(void *, struct http_location *, struct error *))
{
    struct transfer_source source = {
        .upstream = "test", .pool = pool, .locate = where, .ctx = (void *)(uintptr_t)object};
    struct transfer *x = NULL;
    struct error err = ERROR_INIT;
    CHECK(transfer_join(t, &digests[object], size_of(object), &source, &x, &err) == 0, "%s",
          err.text);
    return x;
}

/* Clients that come and go while the only slot is taken leave nothing behind; who has begun is
 * finished. */
static void leave_the_queue(void)
{
    struct transfers_options o = {.max_running = 1, .finish_abandoned = true};
    struct transfers *t = NULL;
    struct error err = ERROR_INIT;
    struct transfer_stats stats;
    uint64_t have;
    CHECK(transfers_new(store, &o, &t, &err) == 0, "%s", err.text);
    sem_init(&begun, 0, 0);
    sem_init(&go_on, 0, 0);
    sem_init(&ended, 0, 0);
    transfers_on_end(t, on_end, NULL);
    struct transfer *first = join_object(t, 5, locate_later);
    sem_wait(&begun);
    for (unsigned object = 6; object < OBJECTS; object++)
        transfer_unref(join_object(t, object, locate));
    for (unsigned object = 6; object < OBJECTS; object++)
        sem_wait(&ended);
    transfer_unref(first);
    struct transfer_source like = {.upstream = "test"};
    CHECK(transfer_find(t, &digests[5], size_of(5), &like, &first) == 1,
          "what has begun is finished");
    sem_post(&go_on);
    CHECK(transfer_wait(first, UINT64_MAX, TRANSFER_DONE, CLOCK_FOREVER, &have, &err) == 1, "%s",
          err.text);
    transfer_unref(first);
    transfers_stats(t, &stats);
    CHECK(stats.failed == OBJECTS - 6 && stats.readers == 0, "figures");
    transfers_free(t);
}

int main(void)
{
    char dir[] = "/tmp/stress-transfer-XXXXXX";
    struct error err = ERROR_INIT;
    CHECK(mkdtemp(dir), "mkdtemp");
    struct store_options so = {.dir = dir, .free_floor_percent = 0};
    struct transfers_options to = {.max_running = 4, .finish_abandoned = false};
    struct http_options ho = {.max_connections = 8, .connect_timeout_s = 5, .stall_timeout_s = 20};
    loopback_start(&server, serve_one);
    make_digests();
    CHECK(store_open(&so, &store, &err) == 0, "%s", err.text);
    CHECK(http_pool_new(&ho, &pool, &err) == 0, "%s", err.text);
    CHECK(transfers_new(store, &to, &transfers, &err) == 0, "%s", err.text);
    atomic_store(&healed, true);
    leave_the_queue();
    atomic_store(&healed, false);

    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, (void *)(uintptr_t)i) == 0, "thread");
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&healed, true);
    for (unsigned o = 0; o < OBJECTS; o++)
        for (unsigned tries = 0; tries < 400; tries++) {
            uint64_t size;
            if (store_blob_stat(store, &digests[o], &size, &err) > 0)
                break;
            CHECK(tries < 399, "object %u never came", o);
            read_whole(o);
        }
    struct transfer_stats stats;
    transfers_stats(transfers, &stats);
    printf("%u readers completed, %u were cut or left; %" PRIu64 " transfers, %" PRIu64
           " failed, %" PRIu64 " mismatches, %u requests\n",
           atomic_load(&completed), atomic_load(&cut), stats.started, stats.failed,
           stats.mismatches, atomic_load(&requests));
    CHECK(stats.readers == 0 && stats.mismatches > 0, "figures");
    transfers_stop(transfers);
    transfers_free(transfers);
    http_pool_free(pool);
    store_close(store);
    loopback_stop(&server);
    remove_folder(dir);
    return 0;
}
