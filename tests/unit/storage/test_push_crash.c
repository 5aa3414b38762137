/* What a push that is killed leaves: all of it or nothing, and all of it once it was acknowledged.
 */
#include "crash.h"
#include "push.h"

TestSuite(push_crash, .init = dir_make, .fini = dir_remove, .timeout = 3600);

#define TAGS 5

static const struct digest *subject_of_all(void)
{
    static struct digest d;
    d = digest_of_text("{subject}");
    return &d;
}

static void manifest_text(unsigned i, char buf[static 32])
{
    snprintf(buf, 32, "{manifest %u}", i);
}

static void push_number(struct store *s, unsigned i)
{
    char layer[32], text[32], tag[8];
    const char *tags[] = {tag};
    snprintf(layer, sizeof(layer), "layer %u", i);
    manifest_text(i, text);
    snprintf(tag, sizeof(tag), "t%u", i % TAGS);
    struct push_need need = need_of(layer);
    upload_text(s, LOCAL, layer);
    struct push_record r = record_of(LOCAL, text, &need, 1, tags);
    r.subject = subject_of_all();
    r.annotations = "{\"a\":\"b\"}";
    r.annotations_len = strlen(r.annotations);
    push_record_ok(s, &r);
}

static size_t count_referrers(struct store *s)
{
    struct error err = ERROR_INIT;
    struct referrer_list l;
    cr_assert(store_referrers(s, LOCAL, subject_of_all(), NULL, NULL, 100000, SIZE_MAX, &l, &err) ==
                  0,
              "%s", err.text);
    size_t n = l.n;
    referrer_list_done(&l);
    return n;
}

/* The manifest is there with everything or not at all; whether it is. */
static bool check_number(struct store *s, unsigned i)
{
    char layer[32], text[32];
    snprintf(layer, sizeof(layer), "layer %u", i);
    manifest_text(i, text);
    struct digest d = digest_of_text(text), blob = digest_of_text(layer);
    if (!has_manifest(s, LOCAL, &d))
        return false;
    cr_assert(has_link(s, LOCAL, &blob), "rule 3: %u", i);
    assert_blob(s, &blob, layer, strlen(layer));
    return true;
}

static void check_tag(struct store *s, const char *tag)
{
    struct error err = ERROR_INIT;
    struct digest at = tag_digest(s, LOCAL, tag);
    struct tag_history h;
    cr_assert(store_tag_history(s, LOCAL, tag, 1, &h, &err) == 0, "%s", err.text);
    if (at.alg == DIGEST_NONE)
        cr_assert(h.n == 0 || h.events[0].digest.alg == DIGEST_NONE);
    else
        cr_assert(h.n == 1 && digest_equal(&h.events[0].digest, &at),
                  "the newest event is where the tag is");
    cr_assert(at.alg == DIGEST_NONE || has_manifest(s, LOCAL, &at));
    tag_history_done(&h);
}

static void do_push(struct store *s)
{
    push_number(s, 7);
}

Test(push_crash, at_every_point)
{
    static const char *const points[] = {"push.rows", "push.done"};
    for (int i = 0; i < 2; i++) {
        run_killed(points[i], do_push);
        struct store *s = open_store();
        struct digest layer = digest_of_text("layer 7");
        cr_assert(check_number(s, 7) == (i == 1), "%s", points[i]);
        cr_assert(count_referrers(s) == (size_t)i);
        check_tag(s, "t2");
        cr_assert(has_link(s, LOCAL, &layer), "what was pushed before is still held");
        struct gc_result gc = collect(s, true, 100000);
        cr_assert(gc.blobs_removed == 0 && gc.blobs_held == (i == 0));
        push_number(s, 7);
        cr_assert(check_number(s, 7) && count_referrers(s) == 1);
        store_close(s);
        clear_data();
    }
}

static void child_work(int fd, unsigned from)
{
    struct error err = ERROR_INIT;
    struct store *s = open_store();
    for (unsigned i = from;; i++) {
        push_number(s, i);
        if (write(fd, &i, sizeof(i)) != sizeof(i))
            _exit(7);
        if (i % 4 == 3) { /* nothing is said of it: it may be there or not */
            char text[32];
            manifest_text(i - 2, text);
            struct digest d = digest_of_text(text);
            if (remove_digest(s, LOCAL, &d, &err) < 0)
                _exit(8);
        }
    }
}

/* Runs until so many pushes were acknowledged, then is killed somewhere; returns the next number.
 */
static unsigned one_life(unsigned from, unsigned pushes, unsigned extra_us)
{
    int fds[2];
    unsigned i, acknowledged = from;
    cr_assert(pipe(fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        child_work(fds[1], from);
    }
    close(fds[1]);
    while (read(fds[0], &i, sizeof(i)) == sizeof(i)) {
        cr_assert(i == acknowledged);
        acknowledged++;
        if (acknowledged - from == pushes) {
            usleep(extra_us); /* somewhere inside an operation; any moment is a good one */
            kill(pid, SIGKILL);
        }
    }
    close(fds[0]);
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "child failed: %x", status);
    return acknowledged;
}

Test(push_crash, random_kills)
{
    const char *env = getenv("WB_CRASH_ROUNDS"), *env_seed = getenv("WB_CRASH_SEED");
    unsigned rounds = env ? (unsigned)atoi(env) : 15;
    unsigned seed = env_seed ? (unsigned)atoi(env_seed) : (unsigned)clock_monotonic_us();
    fprintf(stderr, "random_kills: WB_CRASH_SEED=%u\n", seed);
    unsigned next = 0;
    for (unsigned round = 0; round < rounds; round++) {
        next = one_life(next, 1 + (unsigned)rand_r(&seed) % 30, (unsigned)rand_r(&seed) % 3000);
        struct store *s = open_store();
        size_t there = 0;
        for (unsigned i = 0; i < next + 2; i++) {
            bool is = check_number(s, i), may_be_gone = i % 4 == 1;
            there += is;
            cr_assert(is || may_be_gone || i >= next, "%u was acknowledged and is gone", i);
            cr_assert(!is || i <= next, "%u was never begun", i);
        }
        cr_assert(count_referrers(s) == there, "each manifest has its place, and no other");
        for (unsigned t = 0; t < TAGS; t++) {
            char tag[8];
            snprintf(tag, sizeof(tag), "t%u", t);
            check_tag(s, tag);
        }
        store_close(s);
    }
}
