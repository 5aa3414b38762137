/* Uploads of several threads, killed at random moments, round after round in the same directory:
 * what was acknowledged is there, what was not is not taken for more than it is, and every session
 * can be gone on with. WB_CRASH_ROUNDS and WB_CRASH_SEED as in test_crash.c. */
#include "upload.h"

#include <pthread.h>
#include <signal.h>

TestSuite(upload_kills, .init = dir_make, .fini = dir_remove, .timeout = 3600);

#define THREADS 4
#define SLOTS 12 /* thread t works on those with slot % THREADS == t */
#define CONTENTS 10

/* What the parent knows of a session, and what the next child goes on with. */
static struct slot {
    char id[UPLOAD_ID_LEN + 1]; /* empty: none */
    unsigned content;
    uint64_t acked;
    char ending; /* 'c'ommit or 'x' (cancel) was begun; else 0 */
} slots[SLOTS];

static struct {
    unsigned char *bytes;
    size_t size;
    struct digest digest;
    bool committed;
} contents[CONTENTS];

struct note {  /* child to parent */
    char what; /* 'n'ew, 'a'cknowledged, 'c' and 'x' begun, 'd'one with ending */
    unsigned char slot;
    unsigned char content;
    char id[UPLOAD_ID_LEN + 1];
    uint64_t offset;
};

static int notes_fd;

static void tell(char what, unsigned slot)
{
    struct note n = {.what = what,
                     .slot = (unsigned char)slot,
                     .content = (unsigned char)slots[slot].content,
                     .offset = slots[slot].acked};
    memcpy(n.id, slots[slot].id, sizeof(n.id));
    if (write(notes_fd, &n, sizeof(n)) != sizeof(n)) /* short enough to be atomic */
        _exit(7);
}

static void must(bool ok, const char *what, const struct error *err)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, err->text);
    _exit(8);
}

static void send_some(struct store *s, unsigned i, unsigned x)
{
    struct slot *slot = &slots[i];
    struct error err = ERROR_INIT;
    struct upload *u = NULL;
    size_t size = contents[slot->content].size, n = 1 + x % (size / 3);
    must(upload_open(s, REPO, slot->id, &u, &err) == 1, "open", &err);
    size_t from = (size_t)upload_offset(u);
    must(from == slot->acked, "offset", &err);
    n = n < size - from ? n : size - from;
    for (size_t at = from; at < from + n; at += 50000) {
        size_t piece = from + n - at < 50000 ? from + n - at : 50000;
        must(upload_write(u, contents[slot->content].bytes + at, piece, &err) == 0, "write", &err);
    }
    if (x / 16 % 4) {
        must(upload_ack(u, &slot->acked, &err) == 0, "ack", &err);
        tell('a', i);
    }
    upload_close(u);
}

static void end_one(struct store *s, unsigned i, bool cancel)
{
    struct slot *slot = &slots[i];
    struct error err = ERROR_INIT;
    struct upload *u = NULL;
    tell(cancel ? 'x' : 'c', i);
    if (cancel) {
        must(upload_cancel(s, REPO, slot->id, &err) == 1, "cancel", &err);
    } else {
        must(upload_open(s, REPO, slot->id, &u, &err) == 1, "open", &err);
        size_t from = (size_t)upload_offset(u), size = contents[slot->content].size;
        must(upload_write(u, contents[slot->content].bytes + from, size - from, &err) == 0, "write",
             &err);
        must(upload_commit(u, &contents[slot->content].digest, &err) == 0, "commit", &err);
        upload_close(u);
    }
    tell('d', i);
    slot->id[0] = '\0';
}

struct worker {
    struct store *store;
    unsigned number, seed;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct error err = ERROR_INIT;
    for (;;) {
        unsigned x = (unsigned)rand_r(&w->seed);
        unsigned i = w->number + THREADS * (x % (SLOTS / THREADS));
        struct slot *slot = &slots[i];
        x /= 16;
        if (!slot->id[0]) {
            slot->content = x % CONTENTS;
            slot->acked = 0;
            must(upload_begin(w->store, REPO, x / 16 % 2 ? DIGEST_SHA256 : DIGEST_SHA512, slot->id,
                              &err) == 0,
                 "begin", &err);
            tell('n', i);
        } else if (x % 8 < 5) {
            send_some(w->store, i, x / 8);
        } else {
            end_one(w->store, i, x % 8 == 7);
        }
    }
    return NULL;
}

static void child_work(unsigned seed)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct store *s = open_store();
    for (unsigned t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.store = s, .number = t, .seed = seed + t};
        if (pthread_create(&threads[t], NULL, work, &workers[t]) != 0)
            _exit(9);
    }
    for (;;)
        pause();
}

static void take_note(const struct note *n)
{
    struct slot *slot = &slots[n->slot];
    if (n->what == 'd') {
        contents[n->content].committed |= slot->ending == 'c';
        *slot = (struct slot){.content = 0};
        return;
    }
    memcpy(slot->id, n->id, sizeof(slot->id));
    slot->content = n->content;
    slot->acked = n->offset;
    slot->ending = n->what == 'c' || n->what == 'x' ? n->what : 0;
}

static unsigned one_round(unsigned *seed)
{
    int fds[2];
    cr_assert(pipe(fds) == 0);
    unsigned child_seed = (unsigned)rand_r(seed), live = 1 + (unsigned)rand_r(seed) % 150;
    useconds_t extra = (useconds_t)rand_r(seed) % 5000;
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        notes_fd = fds[1];
        child_work(child_seed);
    }
    close(fds[1]);
    struct note n;
    unsigned notes = 0;
    while (read(fds[0], &n, sizeof(n)) == sizeof(n)) {
        take_note(&n);
        if (++notes == live) { /* any moment is a good one */
            usleep(extra);
            kill(pid, SIGKILL);
        }
    }
    close(fds[0]);
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "child failed: %x", status);
    return notes;
}

static void verify_slot(struct store *s, unsigned i, bool finish)
{
    struct slot *slot = &slots[i];
    uint64_t offset = 0;
    if (!slot->id[0])
        return;
    int r = upload_status(s, REPO, slot->id, &offset, NULL);
    if (r == 0) {
        cr_assert(slot->ending, "session %u was lost at %zu", i, (size_t)slot->acked);
        contents[slot->content].committed |= slot->ending == 'c';
        *slot = (struct slot){.content = 0};
        return;
    }
    cr_assert(r == 1 && offset >= slot->acked && offset <= contents[slot->content].size,
              "slot %u: %zu, acknowledged %zu", i, (size_t)offset, (size_t)slot->acked);
    slot->acked = offset;
    slot->ending = 0;
    if (!finish)
        return;
    struct upload *u = open_upload(s, slot->id);
    write_range(u, contents[slot->content].bytes, (size_t)offset,
                contents[slot->content].size - (size_t)offset);
    commit(u, &contents[slot->content].digest); /* which says that all before was right */
    upload_close(u);
    contents[slot->content].committed = true;
    *slot = (struct slot){.content = 0};
}

static void verify(unsigned round)
{
    struct store *s = open_store();
    unsigned known = 0, committed = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        verify_slot(s, i, (i + round) % 4 == 0);
        known += slots[i].id[0] != '\0';
    }
    for (unsigned i = 0; i < CONTENTS; i++) {
        cr_assert(is_held(s, &contents[i].digest) == contents[i].committed, "content %u", i);
        if (!contents[i].committed)
            continue;
        committed++;
        assert_blob(s, &contents[i].digest, contents[i].bytes, contents[i].size);
        assert_linked(s, REPO, &contents[i].digest);
    }
    struct store_stats st = stats_of(s);
    cr_assert(st.blobs == committed && st.uploads >= known && st.partials == 0);
    cr_assert(count_incoming() == st.uploads);
    if (round % 8 == 7) { /* those that nobody heard of, too */
        uint64_t n = 0, bytes = 0;
        cr_assert(uploads_expire(s, 0, &n, &bytes, NULL) == 0 && n == st.uploads);
        cr_assert(bytes == st.partial_bytes && count_incoming() == 0);
        memset(slots, 0, sizeof(slots));
    }
    store_close(s);
}

Test(upload_kills, random)
{
    const char *env = getenv("WB_CRASH_ROUNDS"), *env_seed = getenv("WB_CRASH_SEED");
    unsigned rounds = env ? (unsigned)atoi(env) : 20, notes = 0;
    unsigned seed = env_seed ? (unsigned)atoi(env_seed) : (unsigned)clock_monotonic_us();
    fprintf(stderr, "upload_kills: WB_CRASH_SEED=%u\n", seed);
    for (unsigned i = 0; i < CONTENTS; i++) {
        contents[i].size = i % 5 == 0 ? 5 * MIB + i : 60000 + 7001 * i;
        contents[i].bytes = make_bytes(contents[i].size, 300 + i, &contents[i].digest);
    }
    for (unsigned i = 0; i < rounds; i++) {
        notes += one_round(&seed);
        verify(i);
    }
    cr_assert(notes >= rounds);
    for (unsigned i = 0; i < CONTENTS; i++)
        free(contents[i].bytes);
}
