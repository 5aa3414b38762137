/* Many threads that need tokens of one registry: the same one at the same time, then each its own
 * until old ones are forgotten, while the password changes, then ones that run out all the time,
 * and at last a cancellation in the middle of it. For ThreadSanitizer; what it checks besides is
 * that threads that need the same token cause one exchange, and that nobody gets another's. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "tests/unit/upstream/script_server.h"
#include "upstream/http_private.h"
#include "upstream/oci_auth.h"

#define THREADS 12
#define ROUNDS 30
#define OWN_SCOPES 120 /* times THREADS: more than are remembered */
#define SHORT_LIVED_MS 2500u

struct worker {
    struct oci_auth *auth;
    pthread_barrier_t *together;
    const char *password_file;
    unsigned number;
    unsigned tokens, cancelled, wrong;
    pthread_t thread;
};

static struct http_response *answer_401(void)
{
    static const char *const lines[] = {
        "HTTP/1.1 401 U", "WWW-Authenticate: Bearer realm=\"/token\",service=\"s\"", ""};
    struct http_response *r = calloc(1, sizeof(*r));
    assert(r);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (http_response_line(r, lines[i], strlen(lines[i]), NULL) < 0)
            abort();
    return r;
}

/* A request to the registry: with what we have, and once more with what its 401 leads to. */
static void one_request(struct worker *w, const char *scope, const char *want)
{
    _cleanup_free_ char *header = NULL, *again = NULL;
    struct error err = ERROR_INIT;
    int rc = oci_auth_header(w->auth, scope, &header, &err);
    if (rc == 0 && !header) {
        _cleanup_response_ struct http_response *r = answer_401();
        rc = oci_auth_challenged(w->auth, scope, NULL, r, &again, &err) == 1 ? 0 : -1;
    }
    const char *got = header ? header : again;
    if (rc == 0 && got && strcmp(got, want) == 0)
        w->tokens++;
    else if (rc < 0 && err.code == ERR_CANCELLED)
        w->cancelled++;
    else
        fprintf(stderr, "%s: %s %s\n", scope, got ? got : "-", err.text), w->wrong++;
}

static void *same_scopes(void *ctx)
{
    struct worker *w = ctx;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char scope[32];
        snprintf(scope, sizeof(scope), "same:%u:pull", i);
        pthread_barrier_wait(w->together);
        one_request(w, scope, "Bearer same");
    }
    return NULL;
}

static void *own_scopes(void *ctx)
{
    struct worker *w = ctx;
    for (unsigned i = 0; i < OWN_SCOPES; i++) {
        char scope[32];
        snprintf(scope, sizeof(scope), "own:%u.%u:pull", w->number, i);
        if (w->number == 0) {
            FILE *f = fopen(w->password_file, "w");
            if (!f || fprintf(f, "password %u\n", i) < 0 || fclose(f) != 0)
                abort();
        }
        one_request(w, scope, "Bearer own");
        one_request(w, scope, "Bearer own");
    }
    return NULL;
}

static void *short_lived(void *ctx)
{
    struct worker *w = ctx;
    for (uint64_t end = clock_monotonic_ms() + SHORT_LIVED_MS; clock_monotonic_ms() < end;)
        one_request(w, w->number % 2 ? "short:a:pull" : "short:b:pull", "Bearer short");
    return NULL;
}

static void *until_cancelled(void *ctx)
{
    struct worker *w = ctx;
    for (unsigned i = 0; !w->cancelled && !w->wrong; i++) {
        char scope[32];
        snprintf(scope, sizeof(scope), "own:again.%u:pull", i);
        one_request(w, scope, "Bearer own");
    }
    return NULL;
}

static void start(struct worker *workers, void *(*body)(void *))
{
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, body, &workers[i]) != 0)
            abort();
}

static void join(struct worker *workers)
{
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static void token_step(struct script *s, const char *kind, unsigned life)
{
    char match[64], body[64], answer[160];
    snprintf(match, sizeof(match), "GET /token?service=s&scope=%s", kind);
    snprintf(body, sizeof(body), "{\"token\":\"%s\",\"expires_in\":%u}", kind, life);
    snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    script_add(s, match, answer, SCRIPT_KEEP)->forever = true;
}

static int fewer_than(const char *what, unsigned n, unsigned limit)
{
    printf("%s: %u exchanges\n", what, n);
    return n < limit ? 0 : 1;
}

static int run(struct script *s, struct http_pool *p, struct worker *workers)
{
    int bad = 0;
    start(workers, same_scopes);
    join(workers);
    unsigned n = script_count(s);
    bad += fewer_than("the same scopes", n, ROUNDS + 1);

    start(workers, own_scopes);
    join(workers);

    n = script_count(s);
    start(workers, short_lived);
    join(workers);
    /* two scopes, renewed after 0.9 s, and the threads may have begun late */
    bad += fewer_than("short-lived tokens", script_count(s) - n, 2 * (SHORT_LIVED_MS / 900 + 3));

    n = script_count(s);
    start(workers, until_cancelled);
    script_wait(s, n + 20);
    http_pool_cancel(p);
    join(workers);
    for (unsigned i = 0; i < THREADS; i++)
        bad += workers[i].wrong != 0 || workers[i].cancelled != 1 ||
               workers[i].tokens < ROUNDS + 2 * OWN_SCOPES;
    return bad;
}

int main(void)
{
    struct error err = ERROR_INIT;
    char folder[] = "/tmp/wb-stress-oci-auth-XXXXXX", path[64];
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/password", folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs("first", f) < 0 || fclose(f) != 0)
        return 1;

    struct script *s = script_start();
    struct http_pool *p = NULL;
    struct http_options h = {.max_connections = 4};
    struct oci_auth_options o = {.url = script_url(s, "/"), .username = "u", .password_file = path};
    struct oci_auth *a = NULL;
    token_step(s, "same", 300);
    token_step(s, "own", 300);
    token_step(s, "short", 1);
    if (http_pool_new(&h, &p, &err) < 0 || (o.pool = p, oci_auth_new(&o, &a, &err) < 0)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    pthread_barrier_t together;
    struct worker workers[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++)
        workers[i] =
            (struct worker){.auth = a, .together = &together, .password_file = path, .number = i};
    int bad = run(s, p, workers);
    pthread_barrier_destroy(&together);
    oci_auth_free(a);
    http_pool_free(p);
    script_stop(s);
    unlink(path);
    rmdir(folder);
    return bad ? 1 : 0;
}
