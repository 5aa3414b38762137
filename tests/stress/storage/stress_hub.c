/* Threads that serve, look up and forget the same commits of a Hub, for a few seconds. Whatever one
 * of them reads is whole, and at the end the collector takes what nobody keeps and nothing else.
 * Also run under ThreadSanitizer. WB_STRESS_SECONDS changes how long. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "storage/hub.h"
#include "storage/store.h"

#define THREADS 8
#define COMMITS 4
#define FILES 3
#define DOCUMENT_MAX (64 * 1024)

static struct store *store;
static uint64_t deadline;
static char commits[COMMITS][41];
static struct digest blobs[COMMITS][FILES];
static _Atomic unsigned long turns;

static void serve(unsigned c, unsigned x)
{
    struct error err = ERROR_INIT;
    struct commit_file files[FILES];
    char document[DOCUMENT_MAX], name[16];
    size_t len = 1 + x % (DOCUMENT_MAX - 1);
    memset(document, 'a' + (int)(x % 26), len);
    snprintf(name, sizeof(name), "org/n%u", x % 5);
    for (unsigned f = 0; f < FILES; f++) {
        files[f] = (struct commit_file){.path = "weights", .size = f, .sha256 = blobs[c][f]};
        CHECK(store_hub_keep(store, "hf", "Org/N", commits[c], &blobs[c][f], &err) == 0, "%s",
              err.text);
    }
    CHECK(store_hub_pin_put(store, "hf", name, "Org/N", "main", commits[c], &err) == 0, "%s",
          err.text);
    CHECK(store_hub_files_put(store, "hf", "Org/N", commits[c], files, FILES, &err) == 0, "%s",
          err.text);
    CHECK(store_hub_document_put(store, "hf", "Org/N", commits[c], "info", document, len, &err) ==
              0,
          "%s", err.text);
    CHECK(store_hub_object_put(store, "hf", "Org/N", commits[c], &blobs[c][0], &err) == 0, "%s",
          err.text);
}

static void look(unsigned c, unsigned x)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct hub_name n;
    struct hub_pin p;
    struct commit_files files;
    struct digest d;
    char name[16];
    snprintf(name, sizeof(name), "org/n%u", x % 5);
    int r = store_hub_name_get(store, "hf", name, &n, &err);
    CHECK(r == 0 || (r == 1 && strcmp(n.id, "Org/N") == 0), "%s", err.text);
    r = store_hub_pin_get(store, "hf", "Org/N", "main", &p, &err);
    CHECK(r == 0 || (r == 1 && strlen(p.commit) == 40), "%s", err.text);
    r = store_hub_document_get(store, "hf", "Org/N", commits[c], "info", &b, NULL, &err);
    CHECK(r == 0 || (r == 1 && b.len > 0), "%s", err.text);
    for (size_t i = 1; i < b.len; i++)
        CHECK(b.data[i] == b.data[0], "two documents in one");
    r = store_commit_files_get(store, "hf", "Org/N", commits[c], &files, &err);
    CHECK(r >= 0, "%s", err.text);
    if (r == 1) {
        CHECK(files.n == FILES && digest_equal(&files.files[1].sha256, &blobs[c][1]), "files");
        commit_files_done(&files);
    }
    r = store_hub_object_get(store, "hf", "Org/N", commits[c], &d, &err);
    CHECK(r == 0 || (r == 1 && digest_equal(&d, &blobs[c][0])), "%s", err.text);
}

/* Whether anything was stored of it. */
static bool forget(unsigned c)
{
    struct error err = ERROR_INIT;
    struct reference r = {.repository = "hf/org/n"};
    strcpy(r.tag, commits[c]);
    int rc = store_hub_remove(store, &r, "rm", &err);
    CHECK(rc == 0 || err.code == ERR_NOT_FOUND, "%s", err.text);
    return rc == 0;
}

static void *thread_main(void *arg)
{
    unsigned seed = *(const unsigned *)arg + 1;
    struct error err = ERROR_INIT;
    while (clock_monotonic_ms() < deadline) {
        unsigned x = (unsigned)rand_r(&seed), c = x / 16 % COMMITS;
        switch (x % 16) {
        case 0:
            forget(c);
            break;
        case 1:
            CHECK(store_hub_pin_drop(store, "hf", "Org/N", x / 64 % 2 ? "main" : NULL, &err) == 0,
                  "%s", err.text);
            break;
        case 2:
        case 3:
        case 4:
            serve(c, x / 64);
            break;
        default:
            look(c, x / 64);
            break;
        }
        atomic_fetch_add(&turns, 1);
    }
    return NULL;
}

static void prepare(void)
{
    for (unsigned c = 0; c < COMMITS; c++) {
        memset(commits[c], 'a' + (int)c, 40);
        for (unsigned f = 0; f < FILES; f++) {
            char text[32];
            snprintf(text, sizeof(text), "file %u of %u", f, c);
            if (store_blob_put(store, text, strlen(text), &blobs[c][f], NULL) < 0)
                abort();
        }
    }
}

static void check_after(void)
{
    struct error err = ERROR_INIT;
    struct gc_result gc;
    for (unsigned c = 0; c < COMMITS; c++)
        serve(c, c);
    CHECK(store_gc(store, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    CHECK(gc.blobs_removed == 0, "%zu", (size_t)gc.blobs_removed);
    for (unsigned c = 0; c < COMMITS; c++)
        CHECK(forget(c), "commit %u was not there", c);
    CHECK(store_gc(store, &(struct gc_options){.dry_run = false}, &gc, &err) == 0, "%s", err.text);
    CHECK(gc.blobs_removed == (uint64_t)COMMITS * FILES, "%zu", (size_t)gc.blobs_removed);
}

int main(void)
{
    char dir[] = "/tmp/wb-stress-XXXXXX";
    const struct store_options options = {.dir = dir, .free_floor_percent = 1};
    if (!open_new(dir, &options, &store))
        return 1;
    prepare();
    deadline = stress_end_ms();
    run_threads(THREADS, thread_main, 0, NULL);
    check_after();
    store_close(store);
    remove_folder(dir);
    printf("stress_hub: %lu turns, %lu wrong\n", turns, bad);
    return bad ? 1 : 0;
}
