/* The mirror of a Hub whose branches move while many clients ask for everything at once, and that
 * fails now and then: whatever a client is told belongs to the commit that it is told, and that one
 * is one that the branch has had. A plain program, so that it also runs under ThreadSanitizer. */
#include <inttypes.h>

#include "hub_world.h"
#include "upstream/hub_mirror_private.h"

#define REPOSITORIES 6u
#define CLIENTS 16u
#define ROUNDS 60u
#define MOVES_EVERY 7u /* infos and HEADs of a repository */

/* ---- the Hub: a commit's digits say which repository's and the how manyeth it is ------------- */

static atomic_uint requests, asked_of[REPOSITORIES];

static void commit_of(unsigned repository, unsigned n, char to[static 41])
{
    snprintf(to, 41, "%08x%032x", repository, n);
}

static void read_commit(const char *commit, unsigned *repository, unsigned *n)
{
    char first[9] = "";
    memcpy(first, commit, 8);
    *repository = (unsigned)strtoul(first, NULL, 16);
    *n = (unsigned)strtoul(commit + 32, NULL, 16);
}

static unsigned moves(unsigned repository)
{
    return atomic_load(&asked_of[repository]) / MOVES_EVERY;
}

static void put_info(struct strbuf *to, unsigned repository, const char *commit)
{
    strbuf_printf(to,
                  "{\"id\":\"o/m%u\",\"sha\":\"%s\",\"siblings\":[{\"rfilename\":\"%s.gguf\"},"
                  "{\"rfilename\":\"config.json\"}]}",
                  repository, commit, commit);
}

static void put_tree(struct strbuf *to, const char *commit)
{
    strbuf_printf(to,
                  "[{\"type\":\"file\",\"path\":\"%s.gguf\",\"oid\":\"%s\",\"size\":9,\"lfs\":{"
                  "\"oid\":\"%s%.24s\",\"size\":9,\"pointerSize\":130}},{\"type\":\"file\","
                  "\"path\":\"config.json\",\"oid\":\"%s\",\"size\":5}]",
                  commit, commit, commit, commit, commit);
}

static void put_head(struct strbuf *to, const char *commit)
{
    strbuf_printf(to,
                  "HTTP/1.1 200 OK\r\nX-Repo-Commit: %s\r\nETag: \"%s\"\r\nContent-Length: "
                  "5\r\n\r\n",
                  commit, commit);
}

static void put_json(struct strbuf *to, const struct strbuf *json)
{
    strbuf_printf(to, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", json->len,
                  strbuf_str(json));
}

/* Whichever commit the URL names, else where the branch is now. */
static void commit_meant(const char *url, const char *marker, unsigned repository,
                         char commit[static 41])
{
    const char *at = strstr(url, marker);
    char given[41] = "";
    if (at)
        snprintf(given, sizeof(given), "%.40s", at + strlen(marker));
    if (is_lower_hex(given, 40)) {
        memcpy(commit, given, 41);
        return;
    }
    commit_of(repository, atomic_fetch_add(&asked_of[repository], 1) / MOVES_EVERY, commit);
}

static void put_answer(struct strbuf *to, const char *request)
{
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    const char *name = strstr(request, "o/m");
    unsigned repository = name ? (unsigned)strtoul(name + 3, NULL, 10) % REPOSITORIES : 0;
    unsigned n = atomic_fetch_add(&requests, 1);
    char commit[41];
    if (n % 5 == 4) {
        strbuf_puts(to, "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n");
    } else if (strncmp(request, "HEAD ", 5) == 0) {
        commit_meant(request, "/resolve/", repository, commit);
        put_head(to, commit);
    } else if (strstr(request, "/tree/")) {
        commit_meant(request, "/tree/", repository, commit);
        put_tree(&json, commit);
        put_json(to, &json);
    } else if (strstr(request, "/refs")) {
        commit_of(repository, moves(repository), commit);
        strbuf_printf(&json,
                      "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\","
                      "\"targetCommit\":\"%s\"}]}",
                      commit);
        put_json(to, &json);
    } else {
        commit_meant(request, "/revision/", repository, commit);
        put_info(&json, repository, commit);
        put_json(to, &json);
    }
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char request[4096];
    while (loopback_head(fd, request, sizeof(request))) {
        _cleanup_strbuf_ struct strbuf to = STRBUF_INIT;
        put_answer(&to, request);
        if (send(fd, to.data, to.len, MSG_NOSIGNAL) != (ssize_t)to.len)
            break;
    }
    close(fd);
    return NULL;
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct hub_mirror *mirror;
static atomic_uint told, refused;

static void check_commit(unsigned repository, const struct hub_at *at)
{
    unsigned of, n;
    CHECK(is_lower_hex(at->commit, 40), "no commit: '%s'", at->commit);
    read_commit(at->commit, &of, &n);
    CHECK(of == repository && n <= moves(repository), "%s is none of repository %u", at->commit,
          repository);
}

static int ask_info(const struct hub_query *q, struct hub_at *at, struct error *err)
{
    _cleanup_hub_text_ struct hub_text *text = NULL;
    char wanted[128];
    size_t n;
    if (hub_mirror_info(mirror, q, &text, at, err) < 0)
        return -1;
    const char *json = hub_text_bytes(text, &n);
    snprintf(wanted, sizeof(wanted), "\"sha\":\"%s\"", at->commit);
    CHECK(strstr(json, wanted), "%s has not %s", json, wanted);
    snprintf(wanted, sizeof(wanted), "%s.gguf", at->commit);
    CHECK(strstr(json, wanted), "%s has not %s", json, wanted);
    return 0;
}

static int ask_list(const struct hub_query *q, struct hub_at *at, struct error *err)
{
    struct hub_listing l = {.rows = NULL};
    if (hub_mirror_list(mirror, q, &l, at, err) < 0)
        return -1;
    CHECK(l.list.n == 2 && strncmp(l.list.files[0].path, at->commit, 40) == 0,
          "%zu files of %s, the first is %s", l.list.n, at->commit, l.list.files[0].path);
    hub_listing_done(&l);
    return 0;
}

static int ask_file(const struct hub_query *q, struct hub_at *at, struct error *err)
{
    struct hub_file f;
    if (hub_mirror_file(mirror, q, "config.json", &f, at, err) < 0)
        return -1;
    CHECK(strcmp(f.etag, at->commit) == 0 && f.size == 5, "%s at %s", f.etag, at->commit);
    return 0;
}

static int ask_refs(const struct hub_query *q, struct hub_at *at, struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    if (hub_mirror_refs(mirror, q, false, &text, at, err) < 0)
        return -1;
    const char *commit = strstr(strbuf_str(&text), "\"targetCommit\":\"");
    CHECK(commit, "no commit in %s", strbuf_str(&text));
    snprintf(at->commit, sizeof(at->commit), "%.40s", commit + strlen("\"targetCommit\":\""));
    return 0;
}

static void *client(void *arg)
{
    static int (*const asks[])(const struct hub_query *q, struct hub_at *at,
                               struct error *err) = {ask_info, ask_list, ask_file, ask_refs};
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct hub_query q = {.kind = HUB_MODEL, .revision = "main"};
        struct hub_at at;
        struct error err = ERROR_INIT;
        seed = seed * 1103515245u + 12345u;
        unsigned repository = seed / 65536 % REPOSITORIES;
        snprintf(q.name, sizeof(q.name), "o/m%u", repository);
        if (seed / 1024 % 4 == 0) /* the beginning of its history */
            commit_of(repository, 0, q.revision);
        if (asks[seed / 4096 % ARRAY_LEN(asks)](&q, &at, &err) == 0) {
            check_commit(repository, &at);
            atomic_fetch_add(&told, 1);
        } else {
            CHECK(err.code == ERR_UPSTREAM || err.code == ERR_BUSY, "%s", err.text);
            atomic_fetch_add(&refused, 1);
        }
    }
    return NULL;
}

int main(void)
{
    struct hub_world w = {.config.revalidate_timeout_s = 2};
    struct config config = {.upstreams = &w.config, .n_upstreams = 1};
    struct error err = ERROR_INIT;
    hub_world_begin(&w, serve);
    CHECK(hub_mirror_new(&config, &w.config, w.store, w.hub, &mirror, &err) == 0, "%s", err.text);
    run_threads(CLIENTS, client);
    printf("%u told, %u refused; %u requests\n", told, refused, requests);
    CHECK(told > CLIENTS * ROUNDS / 2, "too little was told");
    http_pool_cancel(hub_pool(w.hub));
    hub_mirror_free(mirror);
    hub_world_end(&w);
    return 0;
}
