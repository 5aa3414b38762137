/* weighbridge serve: starts the layers from the bottom up, waits for a signal, and takes them down
 * again in the order that lets running answers finish. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "config/config.h"
#include "server/server.h"
#include "storage/store.h"
#include "upstream/upstreams.h"

/* A client connection may use a socket and a file; the rest is LMDB, logs, upstream connections. */
#define DESCRIPTORS_PER_CLIENT 2u
#define DESCRIPTORS_BESIDE 512u
/* Threads that read metadata beside those of clients and downloads: clients above the limit that
 * ask for metrics, imports, the writer. */
#define READERS_BESIDE 128u
/* Lists and documents of so many bytes are for a moment: their memory goes back to the system at
 * once. By itself the C library would take the first for a habit, and keep that of all threads. */
#define MEMORY_PIECE (1 << 20)

/* SIGTERM, SIGINT and SIGHUP are waited for in the main thread only; every thread made later
 * inherits the mask. A client that leaves must be an error of write(), not a signal. */
static void block_signals(sigset_t *set)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* Raises the soft limit to the hard one; what it is then. */
static uint64_t raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    if (limit.rlim_cur < limit.rlim_max) {
        rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
            limit.rlim_cur = soft;
    }
    return limit.rlim_cur;
}

static void warn_descriptors(const struct config *c, uint64_t limit)
{
    uint64_t wanted = (uint64_t)c->max_clients * DESCRIPTORS_PER_CLIENT + DESCRIPTORS_BESIDE;
    if (limit < wanted)
        log_event(LOG_WARN, "few_descriptors", LOG_N("limit", limit), LOG_N("wanted", wanted),
                  LOG_S("advice", "raise the open files limit or lower limits.clients"));
}

static int wait_signal(const sigset_t *set)
{
    int got = 0;
    while (sigwait(set, &got) != 0)
        ;
    return got;
}

/* Lets running answers finish for up to drain_s seconds, in slices, so that a second signal is seen
 * within one. True: nothing was left. */
static bool drain(struct server *server, uint64_t drain_s, const sigset_t *set)
{
    const struct timespec now = {0};
    uint64_t deadline = clock_monotonic_ms() + drain_s * 1000;
    do {
        if (server_drain(server, drain_s ? 1 : 0))
            return true;
        if (sigtimedwait(set, NULL, &now) > 0)
            return false;
    } while (clock_monotonic_ms() < deadline);
    return false;
}

struct running {
    struct store *store;
    struct upstreams *upstreams;
    struct server *server;
};

/* Upstreams stop before the server, so that no handler waits for one; they are freed behind it,
 * because its handlers hold them. */
static void stop(struct running *r)
{
    if (r->upstreams)
        upstreams_stop(r->upstreams);
    if (r->server)
        server_stop(r->server);
    if (r->upstreams)
        upstreams_free(r->upstreams);
    if (r->store)
        store_close(r->store);
    *r = (struct running){0};
}

static int start(const struct config *c, struct running *r, struct error *err)
{
    const struct store_options options = {
        .dir = c->data,
        .max_readers = c->max_clients + c->max_transfers + READERS_BESIDE,
        .free_floor_percent = c->free_floor_percent,
        .max_uploads = c->max_uploads,
    };
    /* Ahead of the store: what is refused anyway leaves no data directory behind. */
    if (config_check_access(c, err) < 0)
        return -1;
    if (store_open(&options, &r->store, err) < 0)
        return data_in_use(err, "stop it, or give this server a directory of its own (--data)");
    if (upstreams_new(c, r->store, &r->upstreams, err) < 0)
        return -1;
    return server_start(c, r->store, r->upstreams, &r->server, err);
}

/* Whoever started us reads the address from the first line of standard output. */
static int announce(const struct server *server, const struct config *c, struct error *err)
{
    if (printf("listening on %s\n", server_url(server)) < 0 || fflush(stdout) != 0)
        return err_errno(err, "standard output");
    log_event(LOG_INFO, "started", LOG_S("version", WB_VERSION), LOG_S("url", server_url(server)),
              LOG_S("data", c->data));
    return 0;
}

static int serve(const struct config *c, struct error *err)
{
    struct running r = {0};
    sigset_t set;
    block_signals(&set);
    uint64_t descriptors = raise_descriptors();
    if (start(c, &r, err) < 0 || announce(r.server, c, err) < 0) {
        stop(&r);
        return -1;
    }
    warn_descriptors(c, descriptors);
    int got = wait_signal(&set);
    log_event(LOG_INFO, "draining", LOG_S("signal", sigabbrev_np(got)),
              LOG_N("at_most_s", c->drain_s));
    bool finished = drain(r.server, c->drain_s, &set);
    stop(&r);
    log_event(LOG_INFO, "stopped", LOG_S("answers", finished ? "finished" : "cut"));
    return 0;
}

static int run_serve(const struct command *self, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct config_flags flags = {0};
    struct option_spec specs[CONFIG_OPTIONS];
    enum log_level level = LOG_INFO;
    int status;
    config_options(&flags, specs);
    if (options_parse(self, argc, argv, specs, CONFIG_OPTIONS, NULL, 0, &status) < 0)
        return status;
    mallopt(M_MMAP_THRESHOLD, MEMORY_PIECE);
    umask(027); /* what is cached with our credentials is not for everybody on this machine */
    _cleanup_config_ struct config *c = NULL;
    if (config_load(&flags, environ, &c, &err) < 0)
        return command_failed(&err);
    if (log_level_parse(c->log_level, &level))
        log_set_level(level);
    if (serve(c, &err) < 0)
        return command_failed(&err);
    return EXIT_OK;
}

const struct command command_serve = {
    "serve", "[options]", "Serves until SIGTERM, which lets running answers finish.", run_serve};
