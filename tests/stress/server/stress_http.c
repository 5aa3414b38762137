/* A whole server over stand-ins with many clients at once: held and growing blobs, whole and
 * ranged, clients that leave in the middle, lists, metrics, pushes, refused bodies; then a drain
 * and a stop while all of it runs. */
#include "../../unit/server/fakes.h"

#include <sched.h>

#include "base/log.h"

#define CLIENTS 12u
#define ROUNDS 3u

static struct server *server;
static atomic_bool stopping;
static atomic_uint wrong, answered;

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    atomic_fetch_add(&wrong, 1);
}

static void get(const char *path, const char *headers, const char *want, uint64_t len, int status)
{
    struct http_answer a;
    ask(server, "GET", path, headers, &a);
    if (a.status == status) {
        /* A stop may cut an answer short; what came is right all the same. */
        bool whole = a.body_len == len;
        check(whole || (atomic_load(&stopping) && a.body_len < len), "length");
        check(a.body_len <= len && memcmp(a.body, want, a.body_len) == 0, "bytes");
        atomic_fetch_add(&answered, 1);
    } else {
        check(atomic_load(&stopping), "status");
    }
    answer_done(&a);
}

/* Asks for the growing blob, reads a little and leaves. */
static void leave(const char *path)
{
    char text[512], some[1000];
    int fd = client_connect(url_port(server));
    if (fd < 0)
        return;
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);
    client_send(fd, text, (size_t)n);
    if (recv(fd, some, sizeof(some), 0) < 0)
        check(atomic_load(&stopping), "first bytes");
    close(fd);
}

static int send_request(const char *head, const char *body, size_t len, struct http_answer *a)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_printf(&b, "%s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                  head, len);
    strbuf_put(&b, body, len);
    ask_raw(server, strbuf_str(&b), b.len, a);
    return a->status;
}

/* A session, a piece, the end; all of it while there are too many sessions now and then. */
static void push(void)
{
    struct http_answer a;
    char head[512], digest[DIGEST_TEXT_MAX], path[256];
    int status = send_request("POST /v2/" REPO "/blobs/uploads/", "", 0, &a);
    check(status == 202 || status == 503 || atomic_load(&stopping), "POST");
    const char *location = strstr(answer_header(&a, "Location"), "/v2/");
    snprintf(path, sizeof(path), "%s", location ? location : "");
    answer_done(&a);
    if (status != 202)
        return;
    snprintf(head, sizeof(head), "PATCH %s", path);
    status = send_request(head, fake_cold.data, COLD_SIZE, &a);
    check(status == 202 || atomic_load(&stopping), "PATCH");
    answer_done(&a);
    snprintf(head, sizeof(head), "PUT %s?digest=%s", path,
             digest_format(&fake_cold.digest, digest));
    status = send_request(head, "", 0, &a);
    check(status == 201 || atomic_load(&stopping), "PUT");
    answer_done(&a);
    atomic_fetch_add(&answered, 1);
}

/* Longer than what is read for nothing: answered while it comes. */
static void push_nowhere(void)
{
    struct http_answer a;
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_put(&body, fake_cold.data, COLD_SIZE);
    strbuf_put(&body, fake_cold.data, COLD_SIZE);
    int status = send_request("PATCH /v2/" REPO "/blobs/uploads/none", body.data, body.len, &a);
    check(status == 404 || atomic_load(&stopping), "a refused body");
    answer_done(&a);
    atomic_fetch_add(&answered, 1);
}

static void *client(void *arg)
{
    unsigned number = *(const unsigned *)arg;
    char held[256], cold[256], digest[DIGEST_TEXT_MAX];
    snprintf(held, sizeof(held), "/v2/" REPO "/blobs/%s", digest_format(&fake_held.digest, digest));
    snprintf(cold, sizeof(cold), "/v2/" REPO "/blobs/%s", digest_format(&fake_cold.digest, digest));
    for (unsigned round = 0; round < ROUNDS || !atomic_load(&stopping); round++) {
        switch ((number + round) % 8) {
        case 0:
            get(cold, "", fake_cold.data, COLD_SIZE, 200);
            break;
        case 1:
            get(cold, "Range: bytes=-70000\r\n", fake_cold.data + COLD_SIZE - 70000, 70000, 206);
            break;
        case 2:
            get(held, "", fake_held.data, HELD_SIZE, 200);
            break;
        case 3:
            get(held, "Range: bytes=10-19\r\n", fake_held.data + 10, 10, 206);
            break;
        case 4:
            leave(cold);
            break;
        case 5:
            push();
            break;
        case 6:
            push_nowhere();
            break;
        default:
            get("/v2/" REPO "/manifests/x", "", fake_manifest, strlen(fake_manifest), 200);
            get("/healthz", "", "ok\n", 3, 200);
            break;
        }
    }
    return NULL;
}

static void *grow(void *arg)
{
    (void)arg;
    for (uint64_t have = 1; have < COLD_SIZE; have += 4099)
        fake_grow(have);
    fake_grow(COLD_SIZE);
    return NULL;
}

int main(void)
{
    static struct config_upstream upstream = {.prefix = "hf"};
    static struct config config = {.listen_host = "127.0.0.1",
                                   .max_clients = 100,
                                   .client_timeout_s = 30,
                                   .upstreams = &upstream,
                                   .n_upstreams = 1};
    struct error err = ERROR_INIT;
    pthread_t clients[CLIENTS], grower;
    unsigned numbers[CLIENTS];
    log_set_level(LOG_ERROR);
    fake_init();
    if (server_start(&config, NULL, NULL, &server, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        numbers[i] = i;
        if (pthread_create(&clients[i], NULL, client, &numbers[i]) != 0)
            return 1;
    }
    if (pthread_create(&grower, NULL, grow, NULL) != 0)
        return 1;
    pthread_join(grower, NULL);
    while (atomic_load(&answered) < CLIENTS * ROUNDS)
        sched_yield();
    atomic_store(&stopping, true);
    check(server_drain(server, 60), "the drain ends");
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    server_stop(server);
    check(atomic_load(&fake_uploads_held) == 0, "every upload was let go");
    check(fake_cold.readers == 0 && fake_held.readers == 0, "every reader was closed");
    fake_done();
    printf("%u answers, %u wrong\n", atomic_load(&answered), atomic_load(&wrong));
    return atomic_load(&wrong) != 0;
}
