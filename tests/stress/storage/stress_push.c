/* Clients that push, tag, mount and remove the same few things at once, readers that look at them,
 * for a few seconds. Whatever they do to each other, a manifest that is there has its links (rule
 * 3) and a push that saw its blobs does not lose them; the collector's rules are checked at the
 * end. Also run under ThreadSanitizer. WB_STRESS_SECONDS changes how long. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "storage/store.h"

#define CLIENTS 8
#define READERS 4
#define BLOBS 12
#define MANIFESTS 24
#define REPOSITORIES 3
#define TAGS 4
#define SCRATCH "team/scratch"

static struct store *store;
static uint64_t deadline;
static _Atomic unsigned long pushes, removals, mounts, reads;

static const char *const repositories[REPOSITORIES] = {"team/a", "team/a/b", "team/c"};

static struct digest digest_of_string(const char *s)
{
    struct digest d;
    if (digest_of(DIGEST_SHA256, s, strlen(s), &d, NULL) < 0)
        abort();
    return d;
}

static void blob_text(unsigned i, char buf[static 32])
{
    snprintf(buf, 32, "blob %u", i);
}

static void manifest_text(unsigned i, char buf[static 32])
{
    snprintf(buf, 32, "{\"manifest\":%u}", i);
}

/* Manifest i needs blobs i and i + 1. */
static struct digest need_digest(unsigned manifest, unsigned n)
{
    char text[32];
    blob_text((manifest + n) % BLOBS, text);
    return digest_of_string(text);
}

static void upload_blob(const char *repository, unsigned i)
{
    char text[32], id[UPLOAD_ID_LEN + 1];
    struct error err = ERROR_INIT;
    struct upload *u = NULL;
    blob_text(i, text);
    struct digest d = digest_of_string(text);
    int r = upload_begin(store, repository, DIGEST_SHA256, id, &err);
    CHECK(r == 0, "%s", err.text);
    if (r == 0 && (r = upload_open(store, repository, id, &u, &err)) == 1) {
        CHECK(upload_write(u, text, strlen(text), &err) == 0, "%s", err.text);
        CHECK(upload_commit(u, &d, &err) == 0, "%s", err.text);
    }
    CHECK(r == 1, "%s", err.text);
    upload_close(u);
}

/* As a client does it: look, upload or mount what is not there, push the manifest. Removals beside
 * it leave holds, so that what was seen is still there. */
static void push(unsigned i, unsigned repository, unsigned seed)
{
    const char *name = repositories[repository];
    struct push_need needs[2];
    char text[32], tag[8];
    const char *tags[] = {tag};
    struct error err = ERROR_INIT;
    for (unsigned n = 0; n < 2; n++) {
        unsigned blob = (i + n) % BLOBS;
        struct digest d = need_digest(i, n);
        struct link l;
        blob_text(blob, text);
        needs[n] = (struct push_need){NEED_BLOB, d, strlen(text)};
        int r = store_link_get(store, name, &d, &l, &err);
        CHECK(r >= 0, "%s", err.text);
        if (r == 1) {
            CHECK(l.held && l.size == strlen(text), "a link without its bytes");
            link_done(&l);
            continue;
        }
        r = seed % 2 ? store_blob_mount(store, name, &d, repositories[seed % REPOSITORIES], &err)
                     : 0;
        CHECK(r >= 0, "%s", err.text);
        atomic_fetch_add(&mounts, r == 1);
        if (r == 0)
            upload_blob(name, blob);
    }
    manifest_text(i, text);
    snprintf(tag, sizeof(tag), "t%u", seed / 8 % TAGS);
    struct digest subject = digest_of_string("{subject}");
    struct push_record record = {.repository = name,
                                 .digest = digest_of_string(text),
                                 .media_type = "application/vnd.oci.image.manifest.v1+json",
                                 .manifest = text,
                                 .len = strlen(text),
                                 .needs = needs,
                                 .n_needs = 2,
                                 .subject = i % 2 ? &subject : NULL,
                                 .artifact_type = "",
                                 .tags = tags,
                                 .n_tags = 1,
                                 .source = "push 10.0.0.7"};
    struct digest_list missing;
    int r = store_manifest_push(store, &record, &missing, &err);
    CHECK(r == 0, "%s", err.text);
    digest_list_done(&missing);
    atomic_fetch_add(&pushes, 1);
}

static void drop(unsigned i, unsigned repository, bool by_tag)
{
    char text[32];
    struct error err = ERROR_INIT;
    struct reference ref = {.is_digest = !by_tag};
    manifest_text(i, text);
    snprintf(ref.repository, sizeof(ref.repository), "%s", repositories[repository]);
    snprintf(ref.tag, sizeof(ref.tag), "t%u", i % TAGS);
    ref.digest = digest_of_string(text);
    int r = store_remove(store, &ref, NULL, "delete 10.0.0.7", &err);
    CHECK(r == 0 || err.code == ERR_NOT_FOUND, "%s", err.text);
    atomic_fetch_add(&removals, r == 0);
}

/* In a repository of its own, where nobody checks what is linked: it comes and goes. */
static void mount_and_unlink(unsigned i, unsigned repository)
{
    struct error err = ERROR_INIT;
    struct digest d = need_digest(i, 0);
    int r = store_blob_mount(store, SCRATCH, &d, repositories[repository], &err);
    CHECK(r >= 0, "%s", err.text);
    atomic_fetch_add(&mounts, r == 1);
    if (r == 1 && i % 2) {
        r = store_blob_unlink(store, SCRATCH, &d, NULL, &err);
        CHECK(r == 0 || err.code == ERR_NOT_FOUND, "%s", err.text);
    }
}

static void *client_main(void *arg)
{
    unsigned seed = *(const unsigned *)arg + 1;
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed), i = x / 16 % MANIFESTS, r = x / 1024 % REPOSITORIES;
        if (x % 8 < 4)
            push(i, r, x / 4096);
        else if (x % 8 == 4)
            mount_and_unlink(i, r);
        else
            drop(i, r, x % 8 == 5);
    }
    return NULL;
}

/* Holds outlast the program, so a link that a manifest needs is there from its first push on. */
static void read_manifest(unsigned i, unsigned repository)
{
    char text[32];
    struct error err = ERROR_INIT;
    struct manifest m;
    struct link l;
    manifest_text(i, text);
    struct digest d = digest_of_string(text);
    int r = store_manifest_get(store, repositories[repository], &d, &m, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r != 1)
        return;
    CHECK(m.len == strlen(text) && memcmp(m.bytes, text, m.len) == 0, "bytes");
    manifest_done(&m);
    for (unsigned n = 0; n < 2; n++) {
        struct digest blob = need_digest(i, n);
        r = store_link_get(store, repositories[repository], &blob, &l, &err);
        CHECK(r == 1 && l.held, "manifest %u lost blob %u: %s", i, n, err.text);
        if (r == 1)
            link_done(&l);
    }
}

static void read_lists(unsigned i, unsigned repository)
{
    struct error err = ERROR_INIT;
    struct referrer_list l;
    struct tag_history h;
    struct name_list names;
    char tag[8];
    struct digest subject = digest_of_string("{subject}"), blob = need_digest(i, 0);
    snprintf(tag, sizeof(tag), "t%u", i % TAGS);
    int r =
        store_referrers(store, repositories[repository], &subject, NULL, NULL, 5, 4096, &l, &err);
    CHECK(r == 0, "%s", err.text);
    for (size_t n = 0; r == 0 && n < l.n; n++)
        CHECK(strstr(l.items[n].media_type, "manifest.v1"), "media type");
    if (r == 0)
        referrer_list_done(&l);
    r = store_tag_history(store, repositories[repository], tag, 50, &h, &err);
    CHECK(r == 0, "%s", err.text);
    for (size_t n = 1; r == 0 && n < h.n; n++)
        CHECK(h.events[n].digest.alg != h.events[n - 1].digest.alg ||
                  !digest_equal(&h.events[n].digest, &h.events[n - 1].digest),
              "an event that changed nothing");
    if (r == 0)
        tag_history_done(&h);
    r = store_blob_repositories(store, &blob, NULL, 10, &names, &err);
    CHECK(r == 0 && names.n <= REPOSITORIES + 1, "%s", err.text);
    if (r == 0)
        name_list_done(&names);
}

static void *reader_main(void *arg)
{
    unsigned seed = *(const unsigned *)arg + 1000;
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed);
        read_manifest(x / 16 % MANIFESTS, x / 1024 % REPOSITORIES);
        if (x % 8 == 0)
            read_lists(x / 16 % MANIFESTS, x / 1024 % REPOSITORIES);
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

static void check_end(void)
{
    struct error err = ERROR_INIT;
    struct gc_result gc;
    struct store_stats st;
    for (int round = 0; round < 2; round++) {
        /* a grace first, then none */
        struct gc_options o = {.grace_s = round ? 0 : 3600};
        CHECK(store_gc(store, &o, &gc, &err) == 0, "%s", err.text);
        CHECK(round || gc.blobs_removed == 0, "%zu", (size_t)gc.blobs_removed);
        for (unsigned i = 0; i < MANIFESTS * REPOSITORIES; i++)
            read_manifest(i % MANIFESTS, i / MANIFESTS);
    }
    for (unsigned i = 0; i < MANIFESTS; i++)
        for (unsigned r = 0; r < REPOSITORIES; r++)
            drop(i, r, false);
    CHECK(store_gc(store, &(struct gc_options){.grace_s = 0}, &gc, &err) == 0, "%s", err.text);
    CHECK(store_stats(store, &st, &err) == 0, "%s", err.text);
    CHECK(st.blobs == 0 && st.blob_bytes == 0 && st.manifests == 0 && st.tags == 0 &&
              st.repositories == 0,
          "something is left");
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof(dir), "%s/wb-push-XXXXXX", tmp ? tmp : "/tmp");
    const struct store_options options = {.dir = dir, .free_floor_percent = 1};
    if (!open_new(dir, &options, &store))
        return 1;
    deadline = stress_end_ms();
    run_threads(CLIENTS, client_main, READERS, reader_main);
    check_end();
    store_close(store);
    remove_folder(dir);
    printf("%lu pushes, %lu removals, %lu mounts, %lu reads, %lu bad\n", atomic_load(&pushes),
           atomic_load(&removals), atomic_load(&mounts), atomic_load(&reads), atomic_load(&bad));
    bool idle = !atomic_load(&pushes) || !atomic_load(&removals);
    return atomic_load(&bad) || idle ? 1 : 0;
}
