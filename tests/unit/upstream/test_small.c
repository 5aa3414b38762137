#include <criterion/criterion.h>

#include "base/clock.h"
#include "script_server.h"
#include "skewed_clock.h"
#include "upstream/small.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define FILE_A "GET /o/m/resolve/" COMMIT "/a "
#define SIZE 80000u
#define OPEN_END (SIZE - SMALL_WITHHELD)

static unsigned stall_s = 20;

struct world {
    char dir[64], url[64];
    struct script *s;
    struct store *store;
    struct config_upstream c;
    struct hub *h;
    struct smalls *t;
    char *data;
    struct commit_file file;
    struct error err;
    atomic_uint ended;
    struct error told;
};

static void on_end(void *ctx, const struct small_ended *what, const struct error *error)
{
    struct world *w = ctx;
    cr_assert_str_eq(what->upstream, "hf");
    cr_assert_str_eq(what->id, "o/m");
    cr_assert_str_eq(what->path, "a");
    w->told = error ? *error : ERROR_INIT;
    atomic_fetch_add(&w->ended, 1);
}

static void world_new(struct world *w, size_t size, unsigned floor)
{
    *w = (struct world){.s = script_start(), .data = malloc(size + 1)};
    strcpy(w->dir, "/tmp/test-small-XXXXXX");
    cr_assert(mkdtemp(w->dir));
    struct store_options so = {.dir = w->dir, .free_floor_percent = floor};
    cr_assert_eq(store_open(&so, &w->store, &w->err), 0, "%s", w->err.text);
    snprintf(w->url, sizeof(w->url), "%s", script_url(w->s, ""));
    w->c = (struct config_upstream){.prefix = (char *)"hf",
                                    .url = w->url,
                                    .retries = 1,
                                    .stall_timeout_s = stall_s,
                                    .breaker_failures = 1000};
    cr_assert_eq(hub_new(&w->c, &w->h, &w->err), 0, "%s", w->err.text);
    cr_assert_eq(smalls_new(w->store, &w->t, &w->err), 0);
    smalls_on_end(w->t, on_end, w);
    for (size_t i = 0; i < size; i++)
        w->data[i] = (char)(i * 31 + i / 251);
    w->file = (struct commit_file){.path = "a", .size = size};
    cr_assert_eq(git_blob_oid(w->data, size, w->file.git_oid, &w->err), 0);
}

static void world_free(struct world *w)
{
    char command[100];
    http_pool_cancel(hub_pool(w->h));
    smalls_stop(w->t);
    smalls_free(w->t);
    hub_free(w->h);
    store_close(w->store);
    script_stop(w->s);
    free(w->data);
    snprintf(command, sizeof(command), "rm -r %s", w->dir);
    cr_assert_eq(system(command), 0);
}

/* The first n bytes of the file, with one byte turned over if there is such a one. */
static struct script_step *serve(struct world *w, size_t n, size_t flip, enum script_after after)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_printf(&b, "HTTP/1.1 200 OK\r\nX-Repo-Commit: " COMMIT "\r\nContent-Length: %u\r\n\r\n",
                  (unsigned)w->file.size);
    size_t head = b.len;
    strbuf_put(&b, w->data, n);
    if (flip < n)
        b.data[head + flip] = (char)(b.data[head + flip] ^ 1);
    return script_add_bytes(w->s, FILE_A, b.data, b.len, after);
}

static struct small *join(struct world *w)
{
    const struct small_source from = {.hub = w->h, .id = "o/m", .commit = COMMIT, .file = &w->file};
    struct small *x = NULL;
    bool started;
    cr_assert_eq(small_join(w->t, &from, &x, &started, &w->err), 0, "%s", w->err.text);
    return x;
}

static int wait_end(struct world *w, struct small *x)
{
    uint64_t have = 0;
    int rc = small_wait(x, w->file.size ? w->file.size - 1 : 0, CLOCK_FOREVER, &have, &w->err);
    return rc > 0 && have == w->file.size ? 1 : rc < 0 ? -1 : 0;
}

static void is_right(struct world *w, struct small *x)
{
    char *buf = malloc((size_t)w->file.size + 1);
    size_t at = 0;
    cr_assert_eq(wait_end(w, x), 1, "%s", w->err.text);
    for (ssize_t n; (n = small_read(x, at, buf + at, 7001, &w->err)) != 0; at += (size_t)n)
        cr_assert_gt(n, 0, "%s", w->err.text);
    cr_assert_eq(at, w->file.size);
    cr_assert_eq(memcmp(buf, w->data, at), 0);
    free(buf);
}

static void is_kept(struct world *w, struct digest *ret)
{
    uint64_t size;
    cr_assert_eq(store_hub_object_get(w->store, "hf", "o/m", w->file.git_oid, ret, &w->err), 1);
    cr_assert_eq(store_blob_stat(w->store, ret, &size, &w->err), 1);
    cr_assert_eq(size, w->file.size);
}

static void is_mismatch(struct world *w, struct small *x, const char *text)
{
    char c;
    cr_assert_eq(wait_end(w, x), -1);
    cr_assert_eq(w->err.code, ERR_DIGEST_MISMATCH, "%s", w->err.text);
    cr_assert(strstr(w->err.text, text), "%s", w->err.text);
    cr_assert_lt(small_read(x, 0, &c, 1, NULL), 0, "its readers are cut");
}

static struct small_stats stats_of(struct world *w)
{
    struct small_stats s;
    smalls_stats(w->t, &s);
    return s;
}

static int may_resume(struct world *w)
{
    return small_check_resume_held(w->store, "hf/o/m", "hf", "o/m", &w->file, &w->err);
}

Test(small, comes_and_is_kept)
{
    struct world w;
    struct digest d;
    world_new(&w, SIZE, 0);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    struct small *x = join(&w);
    is_right(&w, x);
    cr_assert_eq(small_wait_kept(x, CLOCK_FOREVER, &w.err), 1);
    small_unref(x);
    is_kept(&w, &d);
    cr_assert_eq(may_resume(&w), 0);
    cr_assert_eq(script_count(w.s), 1);
    world_free(&w);
    cr_assert(w.ended == 1 && w.told.code == ERR_NONE, "%s", w.told.text);
}

Test(small, withholds_its_end)
{
    struct world w;
    uint64_t have;
    char buf[SIZE];
    world_new(&w, SIZE, 0);
    serve(&w, SIZE - 1, SIZE, SCRIPT_STALL);
    struct small *x = join(&w);
    cr_assert_eq(small_wait(x, OPEN_END - 1, CLOCK_FOREVER, &have, &w.err), 1);
    cr_assert_eq(have, OPEN_END);
    cr_assert_eq(small_wait(x, OPEN_END, clock_monotonic_ms() + 50, &have, &w.err), 0);
    cr_assert_eq(small_wait_kept(x, 0, &w.err), 0);
    cr_assert_eq(small_read(x, 0, buf, SIZE, &w.err), OPEN_END);
    cr_assert_eq(memcmp(buf, w.data, OPEN_END), 0);
    cr_assert_eq(small_read(x, OPEN_END, buf, 1, &w.err), 0);
    cr_assert_lt(may_resume(&w), 0, "a crash at this moment takes the fetch, not the bytes");
    cr_assert_eq(small_check_resume(x, "hf/o/m", &w.err), 0, "who comes now reads the same bytes");
    http_pool_cancel(hub_pool(w.h));
    smalls_stop(w.t);
    cr_assert_eq(wait_end(&w, x), -1);
    cr_assert_eq(w.err.code, ERR_CANCELLED, "%s", w.err.text);
    small_unref(x);
    cr_assert_lt(may_resume(&w), 0, "what went out was never checked");
    world_free(&w);
}

Test(small, of_a_short_one_nothing_goes_out_unchecked)
{
    struct world w;
    uint64_t have;
    world_new(&w, SMALL_WITHHELD, 0);
    serve(&w, SMALL_WITHHELD - 1, SIZE, SCRIPT_CLOSE);
    serve(&w, SMALL_WITHHELD, 0, SCRIPT_KEEP);
    struct small *x = join(&w);
    cr_assert_eq(small_wait(x, 0, CLOCK_FOREVER, &have, &w.err), -1);
    is_mismatch(&w, x, w.file.git_oid);
    small_unref(x);
    cr_assert_eq(may_resume(&w), 0, "nobody has any of it");
    world_free(&w);
}

Test(small, an_empty_one_needs_no_request)
{
    struct world w;
    struct digest d;
    world_new(&w, 0, 0);
    struct small *x = join(&w);
    cr_assert_eq(small_wait_kept(x, CLOCK_FOREVER, &w.err), 1, "%s", w.err.text);
    is_right(&w, x);
    small_unref(x);
    is_kept(&w, &d);
    cr_assert_eq(script_count(w.s), 0);
    world_free(&w);
}

Test(small, a_broken_connection_is_made_good)
{
    struct world w;
    struct digest d;
    world_new(&w, SIZE, 0);
    serve(&w, 12000, SIZE, SCRIPT_CLOSE);
    serve(&w, 100, SIZE, SCRIPT_RESET);
    script_reply(w.s, FILE_A, "", "503 Busy");
    script_reply(w.s, FILE_A, "", "503 Busy");
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    struct small *x = join(&w);
    w.c.retries = 4;
    is_right(&w, x);
    small_unref(x);
    is_kept(&w, &d);
    world_free(&w);
    cr_assert_eq(w.told.code, ERR_NONE, "%s", w.told.text);
}

Test(small, is_given_up_in_the_end)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 0;
    script_reply(w.s, FILE_A, "", "404 Not Found\r\nX-Error-Code: EntryNotFound");
    struct small *x = join(&w);
    cr_assert_eq(wait_end(&w, x), -1);
    cr_assert_eq(w.err.code, ERR_NOT_FOUND, "%s", w.err.text);
    small_unref(x);
    serve(&w, 12000, SIZE, SCRIPT_CLOSE);
    x = join(&w);
    cr_assert_eq(wait_end(&w, x), -1);
    cr_assert_eq(w.err.code, ERR_UPSTREAM, "%s", w.err.text);
    small_unref(x);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    x = join(&w);
    is_right(&w, x);
    small_unref(x);
    cr_assert_eq(stats_of(&w).failed, 2);
    cr_assert_eq(stats_of(&w).mismatches, 0);
    world_free(&w);
}

static struct small *join_until(struct world *w, uint64_t answer_by_ms)
{
    const struct small_source from = {
        .hub = w->h, .id = "o/m", .commit = COMMIT, .file = &w->file, .answer_by_ms = answer_by_ms};
    struct small *x = NULL;
    bool started;
    cr_assert_eq(small_join(w->t, &from, &x, &started, &w->err), 0, "%s", w->err.text);
    return x;
}

/* The script has no step for it: each question is answered 599. */
Test(small, is_given_up_in_time_for_a_status)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    struct small *x = join_until(&w, clock_monotonic_ms() + 10000);
    script_wait(w.s, 3); /* there is time */
    atomic_fetch_add(&skew_s, 10);
    unsigned n = script_count(w.s);
    cr_assert_lt(small_begin(x, CLOCK_FOREVER, &w.err), 0);
    cr_assert_eq(w.err.code, ERR_UPSTREAM, "%s", w.err.text);
    cr_assert(strstr(w.err.text, "599"), "%s", w.err.text);
    cr_assert_leq(script_count(w.s), n + 2, "one was under way, one was due");
    small_unref(x);
    world_free(&w);
}

Test(small, is_not_asked_for_when_the_answer_would_be_too_late)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    script_reply(w.s, FILE_A, "", "503 Service Unavailable\r\nRetry-After: 4");
    struct small *x = join_until(&w, clock_monotonic_ms() + 3000);
    cr_assert_lt(small_begin(x, CLOCK_FOREVER, &w.err), 0);
    cr_assert_eq(w.err.retry_after, 4, "%s", w.err.text);
    cr_assert_eq(script_count(w.s), 1);
    small_unref(x);
    world_free(&w);
}

Test(small, goes_on_for_the_last_of_its_clients)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    uint64_t now = clock_monotonic_ms();
    struct small *last = join_until(&w, now + 600000), *first = join_until(&w, now + 1);
    script_wait(w.s, 3);
    cr_assert_lt(small_begin(first, now + 1, &w.err), 0, "who waits no longer is told");
    cr_assert(strstr(w.err.text, "599"), "%s", w.err.text);
    small_unref(first);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    cr_assert_eq(small_begin(last, now + 600000, &w.err), 0, "%s", w.err.text);
    is_right(&w, last);
    small_unref(last);
    world_free(&w);
}

Test(small, goes_on_for_a_client_that_can_wait)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    struct small *x = join(&w), *other = join_until(&w, 1);
    script_wait(w.s, 3);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    is_right(&w, x);
    small_unref(other);
    small_unref(x);
    world_free(&w);
}

Test(small, goes_on_when_an_answer_has_begun)
{
    struct world w;
    stall_s = 1;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    script_add(w.s, FILE_A, "", SCRIPT_STALL);
    struct small *x = join_until(&w, 1);
    cr_assert_eq(small_begin(x, 0, &w.err), 0, "it has not failed yet");
    script_wait(w.s, 3);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    is_right(&w, x);
    small_unref(x);
    world_free(&w);
}

Test(small, goes_on_when_bytes_have_come)
{
    struct world w;
    world_new(&w, SIZE, 0);
    w.c.retries = 100;
    serve(&w, 100, SIZE, SCRIPT_CLOSE);
    struct small *x = join_until(&w, 1);
    script_wait(w.s, 4);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    is_right(&w, x);
    small_unref(x);
    world_free(&w);
}

Test(small, wrong_bytes_end_short)
{
    struct world w;
    struct digest d;
    world_new(&w, SIZE, 0);
    serve(&w, SIZE, SIZE - 1, SCRIPT_KEEP);
    struct small *x = join(&w);
    is_mismatch(&w, x, w.file.git_oid);
    small_unref(x);
    cr_assert_eq(stats_of(&w).mismatches, 1);
    cr_assert_eq(store_hub_object_get(w.store, "hf", "o/m", w.file.git_oid, &d, &w.err), 0);

    world_free(&w);
}

Test(small, another_beginning_than_before_is_wrong)
{
    struct world w;
    struct digest d;
    uint64_t have;
    char c;
    world_new(&w, SIZE, 0);
    serve(&w, 12000, 5, SCRIPT_CLOSE);
    struct small *x = join(&w);
    cr_assert_eq(small_wait(x, 0, CLOCK_FOREVER, &have, &w.err), 1, "%s", w.err.text);
    cr_assert_eq(small_read(x, 0, &c, 1, &w.err), 1);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP); /* it waits 100 ms before it asks again */
    is_mismatch(&w, x, "other bytes");
    small_unref(x);

    /* Who has the wrong beginning gets no right end, also when it goes by its digest. */
    cr_assert_lt(may_resume(&w), 0);
    cr_assert(strstr(w.err.text, "hf/o/m: bytes of a "), "%s", w.err.text);
    script_reply(w.s, FILE_A, "", "503 Busy");
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    x = join(&w);
    is_right(&w, x);
    small_unref(x);
    is_kept(&w, &d);
    cr_assert_gt(store_mismatch_left(w.store, &d, "hf/o/m"), 0);
    world_free(&w);
}

Test(small, is_served_when_the_disk_is_full)
{
    struct world w;
    struct digest d;
    world_new(&w, SIZE, 100);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    struct small *x = join(&w);
    is_right(&w, x);
    cr_assert_eq(small_wait_kept(x, CLOCK_FOREVER, &w.err), -1);
    cr_assert_eq(w.err.code, ERR_NO_SPACE, "%s", w.err.text);
    small_unref(x);
    cr_assert_eq(stats_of(&w).uncached, 1);
    cr_assert_eq(store_hub_object_get(w.store, "hf", "o/m", w.file.git_oid, &d, &w.err), 0);
    world_free(&w);
    cr_assert_eq(w.told.code, ERR_NO_SPACE);
}

Test(small, has_bounds)
{
    struct world w;
    struct small *x;
    bool started;
    world_new(&w, SIZE, 0);
    struct commit_file big = {.path = "a", .size = HUB_SMALL_FILE_MAX + 1};
    struct small_source from = {.hub = w.h, .id = "o/m", .commit = COMMIT, .file = &big};
    cr_assert_lt(small_join(w.t, &from, &x, &started, &w.err), 0);
    cr_assert_eq(w.err.code, ERR_TOO_LARGE, "%s", w.err.text);

    /* Four of the largest fill the memory, until one of them is through. */
    struct small *held[SMALL_MEMORY_MAX / HUB_SMALL_FILE_MAX];
    script_add(w.s, "GET ",
               "HTTP/1.1 200 OK\r\nX-Repo-Commit: " COMMIT "\r\nContent-Length: 67108864\r\n\r\n",
               SCRIPT_STALL)
        ->forever = true;
    big.size = HUB_SMALL_FILE_MAX;
    for (unsigned i = 0; i < ARRAY_LEN(held); i++) {
        memset(big.git_oid, '0' + (int)i, 40);
        cr_assert_eq(small_join(w.t, &from, &held[i], &started, &w.err), 0, "%s", w.err.text);
        cr_assert(started);
    }
    from.file = &w.file;
    cr_assert_lt(small_join(w.t, &from, &x, &started, &w.err), 0);
    cr_assert(w.err.code == ERR_BUSY && w.err.retry_after == SMALL_BUSY_S, "%s", w.err.text);
    from.file = &big; /* who wants the same joins */
    cr_assert_eq(small_join(w.t, &from, &x, &started, &w.err), 0, "%s", w.err.text);
    cr_assert_not(started);
    cr_assert_eq(x, held[ARRAY_LEN(held) - 1]);
    small_unref(x);
    for (unsigned i = 0; i < ARRAY_LEN(held); i++)
        small_unref(held[i]);
    cr_assert_eq(stats_of(&w).running, ARRAY_LEN(held), "they go on without readers");
    world_free(&w);
}

struct reader_thread {
    struct world *w;
    struct small *x;
    pthread_t thread;
    bool right;
};

static void *read_all(void *ctx)
{
    struct reader_thread *r = ctx;
    char buf[SIZE];
    uint64_t at = 0, have;
    while (at < SIZE && small_wait(r->x, at, CLOCK_FOREVER, &have, NULL) > 0) {
        ssize_t n = small_read(r->x, at, buf + at, 1000, NULL);
        if (n <= 0)
            break;
        at += (uint64_t)n;
    }
    small_unref(r->x);
    r->right = at == SIZE && memcmp(buf, r->w->data, SIZE) == 0;
    return NULL;
}

Test(small, one_fetch_serves_all)
{
    struct world w;
    struct reader_thread readers[64];
    world_new(&w, SIZE, 0);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP)->forever = true;
    struct small *first = join(&w);
    const struct small_source from = {.hub = w.h, .id = "o/m", .commit = COMMIT, .file = &w.file};
    unsigned n = 0;
    for (; n < ARRAY_LEN(readers); n++) {
        bool started;
        readers[n] = (struct reader_thread){.w = &w};
        cr_assert_eq(small_join(w.t, &from, &readers[n].x, &started, &w.err), 0);
        cr_assert_eq(pthread_create(&readers[n].thread, NULL, read_all, &readers[n]), 0);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        cr_assert(readers[i].right);
    }
    small_unref(first);
    cr_assert_eq(script_count(w.s), 1);
    world_free(&w);
}

Test(small, what_is_kept_meanwhile_is_not_fetched_again)
{
    struct world w;
    world_new(&w, SIZE, 0);
    serve(&w, SIZE, SIZE, SCRIPT_KEEP);
    struct small *x = join(&w);
    is_right(&w, x);
    cr_assert_eq(small_wait_kept(x, CLOCK_FOREVER, &w.err), 1);
    small_unref(x);
    x = join(&w); /* of a reader who looked before that */
    is_right(&w, x);
    small_unref(x);
    cr_assert_eq(script_count(w.s), 1);
    world_free(&w);
}
