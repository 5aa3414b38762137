/* A Hub on the loopback interface, its client and a store: where the stress programs of what is in
 * front of a Hub begin and end. Header-only: every program is one source file. */
#ifndef WB_TESTS_HUB_WORLD_H
#define WB_TESTS_HUB_WORLD_H

#include "loopback.h"
#include "storage/store.h"
#include "upstream/hub.h"

struct hub_world {
    char dir[40], url[64];
    struct loopback server;
    struct config_upstream config;
    struct store *store;
    struct hub *hub;
};

/* w is zeroed but for w->config, which gets what is the same in all of them. */
static inline void hub_world_begin(struct hub_world *w, void *(*serve)(void *fd))
{
    struct error err = ERROR_INIT;
    strcpy(w->dir, "/tmp/wb-stress-XXXXXX");
    CHECK(mkdtemp(w->dir), "no directory");
    loopback_start(&w->server, serve);
    snprintf(w->url, sizeof(w->url), "http://127.0.0.1:%u", w->server.port);
    w->config.prefix = (char *)"hf";
    w->config.url = w->url;
    w->config.max_connections = 8;
    w->config.stall_timeout_s = 30;
    w->config.breaker_failures = 1000000;
    struct store_options so = {.dir = w->dir};
    CHECK(store_open(&so, &w->store, &err) == 0, "%s", err.text);
    CHECK(hub_new(&w->config, &w->hub, &err) == 0, "%s", err.text);
}

static inline void hub_world_end(struct hub_world *w)
{
    hub_free(w->hub);
    store_close(w->store);
    loopback_stop(&w->server);
    remove_folder(w->dir);
}

/* n threads, each with its number from 1 on. */
static inline void run_threads(unsigned n, void *(*run)(void *number))
{
    pthread_t *threads = calloc(n, sizeof(*threads));
    CHECK(threads, "no memory");
    for (uintptr_t i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (void *)(i + 1)) == 0, "no thread");
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

#endif
