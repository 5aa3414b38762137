/* Stand-ins for upstream/ and storage/ behind a real server, and a client over a raw socket. They
 * define the very functions that server/ calls, so the linker takes nothing of the real folders. */
#ifndef WB_TESTS_SERVER_FAKES_H
#define WB_TESTS_SERVER_FAKES_H

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "server/server.h"
#include "upstream/warm.h"

#define REPO "local/model"
#define HELD_SIZE 5000u
#define COLD_SIZE (1024u * 1024)

struct fake_blob {
    struct digest digest;
    uint64_t size;
    char *data;
    int fd;               /* held: a file; -1 = cold */
    pthread_mutex_t lock; /* guards: have, failure, readers */
    pthread_cond_t more;
    uint64_t have;
    struct error failure;
    unsigned readers;
};

static struct fake_blob fake_held = {.fd = -1};
static struct fake_blob fake_cold = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
static struct fake_blob fake_empty = {.fd = -1};
static struct fake_blob fake_damaged = {.fd = -1}; /* its file is shorter than its row says */
static struct error fake_error;                    /* what upstreams_manifest and reader_open say */
static const char *fake_warning = "";
static const char fake_manifest[] = "{\"schemaVersion\":2}";
static atomic_uint fake_asked;          /* calls that would have gone to an upstream */
static struct reference fake_reference; /* what the last one of them was about */
static atomic_uint fake_removed;
static bool fake_failed;     /* for good, until a restart */
static bool fake_full;       /* the disk is below its floor */
static bool fake_unreadable; /* the metadata is */

static void fake_blob_init(struct fake_blob *b, uint64_t size, bool held, uint64_t seed)
{
    b->size = size;
    b->data = malloc(size + 1);
    for (uint64_t i = 0; i < size; i++)
        b->data[i] = (char)((i * 2654435761u + seed) >> 7);
    digest_of(DIGEST_SHA256, b->data, size, &b->digest, NULL);
    if (held) {
        b->fd = memfd_create("blob", MFD_CLOEXEC);
        if (write(b->fd, b->data, size) != (ssize_t)size)
            abort();
    }
    cond_init_monotonic(&b->more);
}

static void fake_init(void)
{
    fake_blob_init(&fake_held, HELD_SIZE, true, 1);
    fake_blob_init(&fake_cold, COLD_SIZE, false, 2);
    fake_blob_init(&fake_empty, 0, true, 3);
    fake_blob_init(&fake_damaged, HELD_SIZE, true, 4);
    if (ftruncate(fake_damaged.fd, HELD_SIZE - 1) < 0)
        abort();
}

static void fake_push_done(void);
static void fake_uploads_done(void);

static void fake_done(void)
{
    struct fake_blob *all[] = {&fake_held, &fake_cold, &fake_empty, &fake_damaged};
    for (unsigned i = 0; i < 4; i++) {
        free(all[i]->data);
        if (all[i]->fd >= 0)
            close(all[i]->fd);
    }
    fake_push_done();
    fake_uploads_done();
}

/* More of the cold blob has come. */
__attribute__((unused)) static void fake_grow(uint64_t have)
{
    pthread_mutex_lock(&fake_cold.lock);
    fake_cold.have = have;
    pthread_cond_broadcast(&fake_cold.more);
    pthread_mutex_unlock(&fake_cold.lock);
}

__attribute__((unused)) static void fake_fail(enum err_code code, const char *text)
{
    pthread_mutex_lock(&fake_cold.lock);
    err_set(&fake_cold.failure, code, "%s", text);
    pthread_cond_broadcast(&fake_cold.more);
    pthread_mutex_unlock(&fake_cold.lock);
}

static struct fake_blob *fake_find(const char *repository, const struct digest *d)
{
    struct fake_blob *all[] = {&fake_held, &fake_cold, &fake_empty, &fake_damaged};
    for (unsigned i = 0; i < 4 && strcmp(repository, REPO) == 0; i++)
        if (digest_equal(&all[i]->digest, d))
            return all[i];
    return NULL;
}

/* ---- upstream/ ------------------------------------------------------------------------------ */

struct reader {
    struct fake_blob *blob;
};

int upstreams_manifest(struct upstreams *u, const struct reference *r, struct manifest_answer *ret,
                       struct error *err)
{
    (void)u;
    atomic_fetch_add(&fake_asked, 1);
    fake_reference = *r;
    if (fake_error.code != ERR_NONE) {
        *err = fake_error;
        return -1;
    }
    if (strcmp(r->repository, REPO) != 0)
        return err_set(err, ERR_NOT_FOUND, "no manifest %s in %s", r->tag, r->repository);
    *ret = (struct manifest_answer){0};
    ret->manifest.media_type = strdup("application/vnd.oci.image.manifest.v1+json");
    ret->manifest.bytes = strdup(fake_manifest);
    ret->manifest.len = strlen(fake_manifest);
    digest_of(DIGEST_SHA256, fake_manifest, ret->manifest.len, &ret->manifest.digest, NULL);
    snprintf(ret->warning, sizeof(ret->warning), "%s", fake_warning);
    return 0;
}

void manifest_answer_done(struct manifest_answer *a)
{
    free(a->manifest.media_type);
    free(a->manifest.bytes);
    *a = (struct manifest_answer){0};
}

/* Nothing is warmed here: tests/e2e/test_warm.py does that. */
int warm_plan(struct upstreams *u, const struct reference *r, struct warm_plan *ret,
              struct error *err)
{
    (void)u, (void)r, (void)ret;
    return err_set(err, ERR_UNSUPPORTED, "no warming");
}

int warm_run(struct upstreams *u, const struct warm_plan *p, struct warm_progress *progress,
             const atomic_bool *halt, struct error *err)
{
    (void)u, (void)p, (void)progress, (void)halt;
    return err_set(err, ERR_UNSUPPORTED, "no warming");
}

void warm_plan_done(struct warm_plan *p)
{
    (void)p;
}

int reader_open(struct upstreams *u, const char *repository, const struct digest *d, uint64_t first,
                uint64_t end, struct reader **ret, struct error *err)
{
    struct fake_blob *b = fake_find(repository, d);
    (void)u;
    (void)first;
    (void)end;
    atomic_fetch_add(&fake_asked, 1);
    if (fake_error.code != ERR_NONE) {
        *err = fake_error;
        return -1;
    }
    if (!b)
        return err_set(err, ERR_NOT_FOUND, "no such blob in %s", repository);
    *ret = malloc(sizeof(**ret));
    (*ret)->blob = b;
    pthread_mutex_lock(&fake_cold.lock);
    b->readers++;
    pthread_mutex_unlock(&fake_cold.lock);
    return 0;
}

int reader_stat(struct upstreams *u, const char *repository, const struct digest *d,
                uint64_t *ret_size, struct error *err)
{
    struct fake_blob *b = fake_find(repository, d);
    (void)u;
    (void)err;
    if (b)
        *ret_size = b->size;
    return b != NULL;
}

int reader_no_blob(struct upstreams *u, const char *repository, const struct digest *d,
                   struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    (void)u;
    return err_set(err, ERR_NOT_FOUND, "%s has no %s", repository, digest_format(d, text));
}

uint64_t reader_size(const struct reader *r)
{
    return r->blob->size;
}

enum reader_kind reader_kind(const struct reader *r)
{
    return r->blob->fd >= 0 ? READER_HIT : READER_FILL;
}

int reader_fd(const struct reader *r)
{
    return r->blob->fd;
}

ssize_t reader_read(struct reader *r, uint64_t offset, void *buf, size_t len, unsigned wait_ms,
                    bool *ret_waiting, struct error *err)
{
    struct fake_blob *b = r->blob;
    uint64_t deadline = clock_monotonic_ms() + wait_ms;
    ssize_t n = -1;
    pthread_mutex_lock(&b->lock);
    while (b->have <= offset && b->failure.code == ERR_NONE &&
           cond_wait_until(&b->more, &b->lock, deadline))
        ;
    *ret_waiting = false;
    if (b->have > offset) {
        n = (ssize_t)(b->have - offset < len ? b->have - offset : len);
        memcpy(buf, b->data + offset, (size_t)n);
    } else if (b->failure.code != ERR_NONE) {
        *err = b->failure;
    } else {
        *ret_waiting = true;
        n = 0;
    }
    pthread_mutex_unlock(&b->lock);
    return n;
}

void reader_close(struct reader *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&fake_cold.lock);
    r->blob->readers--;
    pthread_mutex_unlock(&fake_cold.lock);
    free(r);
}

size_t upstreams_count(const struct upstreams *u)
{
    (void)u;
    return 1;
}

void upstreams_stats(struct upstreams *u, size_t i, struct upstream_stats *ret)
{
    (void)u;
    (void)i;
    *ret = (struct upstream_stats){.prefix = "hf", .bytes = 11, .requests = 22, .errors = 33};
}

unsigned upstreams_connections(struct upstreams *u)
{
    (void)u;
    return 9;
}

void upstreams_transfer_stats(struct upstreams *u, struct transfer_stats *ret)
{
    (void)u;
    *ret = (struct transfer_stats){.running = 1, .readers = 2, .mismatches = 44};
}

void upstreams_on_transfer_end(struct upstreams *u, transfer_ended_fn fn, void *ctx)
{
    (void)u;
    (void)fn;
    (void)ctx;
}

/* ---- storage/ ------------------------------------------------------------------------------- */

static const char *const fake_names[] = {"a", "b", "c.1", "d_2", "e"};

static int fake_list(const char *last, size_t limit, struct name_list *ret)
{
    *ret = (struct name_list){.names = calloc(ARRAY_LEN(fake_names), sizeof(char *))};
    for (unsigned i = 0; i < ARRAY_LEN(fake_names); i++) {
        if (last && strcmp(fake_names[i], last) <= 0)
            continue;
        if (ret->n == limit) {
            ret->more = true;
            break;
        }
        ret->names[ret->n++] = strdup(fake_names[i]);
    }
    return 0;
}

int store_tags(struct store *s, const char *repository, const char *last, size_t limit,
               struct name_list *ret, struct error *err)
{
    (void)s;
    if (strcmp(repository, REPO) != 0)
        return err_set(err, ERR_NOT_FOUND, "no repository \"%s\"", repository);
    return fake_list(last, limit, ret);
}

static size_t fake_asked_names; /* at once, of the catalog */

int store_repositories(struct store *s, const char *last, size_t limit, struct name_list *ret,
                       struct error *err)
{
    (void)s;
    if (fake_unreadable)
        return err_set(err, ERR_IO, "check the disk and restart");
    fake_asked_names = limit;
    return fake_list(last, limit < 2 ? limit : 2, ret); /* small pages: the caller goes on */
}

void name_list_done(struct name_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    *l = (struct name_list){0};
}

int store_stats(struct store *s, struct store_stats *ret, struct error *err)
{
    (void)s;
    (void)err;
    *ret = (struct store_stats){.blobs = 5, .uploads = 3, .disk_free = 66};
    return 0;
}

bool store_has_failed(struct store *s, struct error *err)
{
    (void)s;
    if (fake_failed)
        err_set(err, ERR_IO, "a write failed: restart");
    return fake_failed;
}

int store_has_room(struct store *s, uint64_t bytes, struct error *err)
{
    (void)s;
    (void)bytes;
    return fake_full ? err_set(err, ERR_NO_SPACE, "free_floor_percent: 3%% is free") : 0;
}

#include "fakes_hub.h"
#include "fakes_push.h"
#include "fakes_uploads.h"

int upstreams_tags(struct upstreams *u, const char *repository, const char *last, size_t limit,
                   struct name_list *ret, char warning[static WARNING_TEXT_MAX], struct error *err)
{
    (void)u;
    snprintf(warning, WARNING_TEXT_MAX, "%s", fake_warning);
    return store_tags(NULL, repository, last, limit, ret, err);
}

int upstreams_referrers(struct upstreams *u, const char *repository, const struct digest *subject,
                        const struct referrers_query *q, struct referrer_list *ret,
                        char warning[static WARNING_TEXT_MAX], struct error *err)
{
    (void)u;
    snprintf(warning, WARNING_TEXT_MAX, "%s", fake_warning);
    return store_referrers(NULL, repository, subject, q->artifact_type, q->last, q->limit,
                           q->max_bytes, ret, err);
}

/* ---- a client ---------------------------------------------------------------------------------
 */

struct http_answer {
    int status;        /* 0 = none came */
    struct strbuf all; /* everything until the end of the connection */
    const char *body;
    size_t body_len;
    uint64_t content_length;
};

static unsigned url_port(const struct server *s)
{
    return (unsigned)atoi(strrchr(server_url(s), ':') + 1);
}

static int client_connect(unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void client_send(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        p += n;
        len -= (size_t)n;
    }
}

static void answer_done(struct http_answer *a)
{
    strbuf_done(&a->all);
}

/* The value of a header, "" when it is not there; for one use at a time in a thread. */
static const char *answer_header(const struct http_answer *a, const char *name)
{
    static _Thread_local char value[4096];
    size_t n = strlen(name);
    const char *end = a->body ? a->body : strbuf_str(&a->all);
    for (const char *p = strstr(strbuf_str(&a->all), "\r\n"); p && p + 2 < end;
         p = strstr(p + 2, "\r\n"))
        if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':') {
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(p + 4 + n, "\r"), p + 4 + n);
            return value;
        }
    return "";
}

static void answer_parse(struct http_answer *a)
{
    const char *text = strbuf_str(&a->all);
    const char *end = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.", 7) != 0 || !end)
        return;
    a->status = atoi(text + 9);
    a->body = end + 4;
    a->body_len = a->all.len - (size_t)(a->body - text);
    a->content_length = strtoull(answer_header(a, "Content-Length"), NULL, 10);
}

/* Reads until the server closes. */
static void answer_read(int fd, struct http_answer *a)
{
    for (;;) {
        char *to = strbuf_reserve(&a->all, 65536);
        ssize_t n = to ? recv(fd, to, 65536, 0) : -1;
        if (n <= 0)
            break;
        strbuf_advance(&a->all, (size_t)n);
    }
    answer_parse(a);
}

static void ask_raw(const struct server *s, const void *request, size_t len, struct http_answer *a)
{
    *a = (struct http_answer){0};
    int fd = client_connect(url_port(s));
    if (fd < 0)
        return;
    client_send(fd, request, len);
    answer_read(fd, a);
    close(fd);
}

/* headers: complete lines with their \r\n, or "". */
static void ask(const struct server *s, const char *method, const char *target, const char *headers,
                struct http_answer *a)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    strbuf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\n%s\r\n", method,
                  target, url_port(s), headers);
    ask_raw(s, strbuf_str(&b), b.len, a);
}

#endif
