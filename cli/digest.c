/* The hashes by which the Hub and registries know a file, in one reading: this thread reads, and
 * each hash has a thread of its own, all at the pace of the slowest. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/ref.h"
#include "cli/cli.h"
#include "cli/escape.h"

#define FILES_MAX 4096
#define BLOCK ((size_t)1 << 20)
#define BLOCKS 8u
#define GIT_OID 20u

enum { SHA256, GIT, HASHES };

/* Blocks go round: block i is in slot i % BLOCKS until every hash has had it. */
struct ring {
    pthread_mutex_t lock; /* guards: filled, done, ended, failed, len */
    pthread_cond_t turned;
    uint64_t filled;       /* blocks that were read */
    uint64_t done[HASHES]; /* blocks that each hash has had */
    bool ended, failed;
    size_t len[BLOCKS];
    unsigned char *slots; /* owned; BLOCKS of BLOCK bytes */
};

struct worker {
    pthread_t thread;
    struct ring *ring;
    unsigned which;
    EVP_MD_CTX *ctx; /* owned */
};

struct digests {
    const char *path;
    uint64_t size;
    unsigned char sha256[32], git[GIT_OID];
};

static void *hash_blocks(void *arg)
{
    struct worker *w = arg;
    struct ring *r = w->ring;
    pthread_mutex_lock(&r->lock);
    for (uint64_t i = 0;; i++) {
        while (r->filled == i && !r->ended)
            pthread_cond_wait(&r->turned, &r->lock);
        if (r->filled == i)
            break;
        size_t n = r->len[i % BLOCKS];
        pthread_mutex_unlock(&r->lock);
        bool ok = EVP_DigestUpdate(w->ctx, r->slots + i % BLOCKS * BLOCK, n) == 1;
        pthread_mutex_lock(&r->lock);
        r->failed = r->failed || !ok;
        r->done[w->which] = i + 1;
        pthread_cond_broadcast(&r->turned);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* The slot for the next block, once every hash is done with what is in it. */
static unsigned char *next_slot(struct ring *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->filled - r->done[SHA256] == BLOCKS || r->filled - r->done[GIT] == BLOCKS)
        pthread_cond_wait(&r->turned, &r->lock);
    unsigned char *slot = r->slots + r->filled % BLOCKS * BLOCK;
    pthread_mutex_unlock(&r->lock);
    return slot;
}

static void hand_over(struct ring *r, size_t n, bool last)
{
    pthread_mutex_lock(&r->lock);
    if (n) {
        r->len[r->filled % BLOCKS] = n;
        r->filled++;
    }
    r->ended = r->ended || last;
    pthread_cond_broadcast(&r->turned);
    pthread_mutex_unlock(&r->lock);
}

/* Reads the whole file into the ring. It has to have the size that git's id begins with. */
static int read_blocks(struct ring *r, int fd, const char *path, uint64_t size, struct error *err)
{
    uint64_t at = 0;
    int rc = 0;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (size_t n = 1; rc == 0 && n;) {
        unsigned char *slot = next_slot(r);
        n = 0;
        while (n < BLOCK) {
            ssize_t got = read(fd, slot + n, BLOCK - n);
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                rc = err_errno(err, "read %s", path);
            if (got <= 0)
                break;
            n += (size_t)got;
        }
        at += n;
        hand_over(r, n, rc < 0 || n < BLOCK);
        if (n < BLOCK)
            break;
    }
    if (rc == 0 && at != size)
        rc = err_set(err, ERR_CONFLICT,
                     "%s changed while it was read: it had %" PRIu64 " bytes, then %" PRIu64, path,
                     size, at);
    return rc;
}

static int make_contexts(EVP_MD_CTX *ctx[static HASHES], uint64_t size, struct error *err)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %" PRIu64, size);
    for (unsigned i = 0; i < HASHES; i++)
        ctx[i] = EVP_MD_CTX_new();
    if (!ctx[SHA256] || !ctx[GIT] || EVP_DigestInit_ex(ctx[SHA256], EVP_sha256(), NULL) != 1 ||
        EVP_DigestInit_ex(ctx[GIT], EVP_sha1(), NULL) != 1 ||
        EVP_DigestUpdate(ctx[GIT], head, (size_t)n + 1) != 1)
        return err_set(err, ERR_NOMEM, "cannot set up the hashes");
    return 0;
}

/* Runs the threads around the reading. */
static int run(struct ring *r, EVP_MD_CTX *ctx[static HASHES], int fd, const char *path,
               uint64_t size, struct error *err)
{
    struct worker workers[HASHES];
    unsigned running = 0;
    int rc = 0;
    for (; running < HASHES; running++) {
        workers[running] = (struct worker){.ring = r, .which = running, .ctx = ctx[running]};
        if (pthread_create(&workers[running].thread, NULL, hash_blocks, &workers[running]) != 0)
            break;
    }
    if (running == HASHES) {
        rc = read_blocks(r, fd, path, size, err);
    } else {
        rc = err_set(err, ERR_NOMEM, "cannot start a thread");
        hand_over(r, 0, true);
    }
    while (running--)
        pthread_join(workers[running].thread, NULL);
    return rc == 0 && r->failed ? err_set(err, ERR_INTERNAL, "a hash failed") : rc;
}

static int hash_fd(int fd, const char *path, struct digests *d, struct error *err)
{
    EVP_MD_CTX *ctx[HASHES] = {NULL};
    unsigned n = 0;
    struct ring r = {.lock = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};
    r.slots = malloc(BLOCKS * BLOCK);
    int rc = r.slots ? make_contexts(ctx, d->size, err)
                     : err_set(err, ERR_NOMEM, "out of memory for buffers");
    if (rc == 0)
        rc = run(&r, ctx, fd, path, d->size, err);
    if (rc == 0 && (EVP_DigestFinal_ex(ctx[SHA256], d->sha256, &n) != 1 ||
                    EVP_DigestFinal_ex(ctx[GIT], d->git, &n) != 1))
        rc = err_set(err, ERR_INTERNAL, "a hash failed");
    for (unsigned i = 0; i < HASHES; i++)
        EVP_MD_CTX_free(ctx[i]);
    free(r.slots);
    return rc;
}

static int hash_file(const char *path, struct digests *d, struct error *err)
{
    struct stat st;
    if (!path[0])
        return err_set(err, ERR_INVALID, "the name of a FILE is empty");
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
        err_errno(err, "%s", path);
        if (err && absent)
            err->code = ERR_NOT_FOUND;
        return -1;
    }
    if (!S_ISREG(st.st_mode)) /* git's id begins with the size */
        return err_set(err, ERR_INVALID, "%s is no regular file", path);
    d->path = path;
    d->size = (uint64_t)st.st_size;
    return hash_fd(fd, path, d, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_text(const struct digests *d)
{
    char sha256[65], git[41], size[GROUPED_MAX];
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    put_plain(&b, d->path, strlen(d->path));
    printf("%s\n  size    %s\n  sha256  %s\n  git     %s\n", strbuf_str(&b),
           format_grouped(d->size, size), hex_format(d->sha256, sizeof(d->sha256), sha256),
           hex_format(d->git, sizeof(d->git), git));
}

static void put_json(struct strbuf *b, const struct digests *d, const char *expected, bool as)
{
    char hex[65];
    json_put_separator(b);
    strbuf_puts(b, "{\"path\":");
    put_json_text(b, d->path, strlen(d->path));
    json_put_key(b, "size");
    json_put_u64(b, d->size);
    json_put_key(b, "sha256");
    json_put_string(b, hex_format(d->sha256, sizeof(d->sha256), hex));
    json_put_key(b, "git_oid");
    json_put_string(b, hex_format(d->git, sizeof(d->git), hex));
    if (expected) {
        json_put_key(b, "as_expected");
        strbuf_puts(b, as ? "true" : "false");
    }
    strbuf_putc(b, '}');
}

/* "sha256:" before it, upper case: as people paste it. False: neither of the two hashes. */
static bool read_expected(const char *text, char hex[static 65])
{
    static const char prefix[] = "sha256:";
    if (strncmp(text, prefix, strlen(prefix)) == 0) {
        text += strlen(prefix);
        if (strlen(text) != 64)
            return false;
    }
    return ascii_lower(text, hex, 65) && (is_lower_hex(hex, 64) || is_lower_hex(hex, 40));
}

static bool is_expected(const struct digests *d, const char *expected)
{
    char hex[65];
    if (strlen(expected) == 40)
        return strcmp(hex_format(d->git, sizeof(d->git), hex), expected) == 0;
    return strcmp(hex_format(d->sha256, sizeof(d->sha256), hex), expected) == 0;
}

/* Each file; what is wrong with one does not keep the others from being read. */
static int digest_all(const char *const *files, int n, const char *expected, struct strbuf *json)
{
    int status = EXIT_OK;
    for (int i = 0; i < n; i++) {
        struct digests d = {0};
        struct error err = ERROR_INIT;
        if (hash_file(files[i], &d, &err) < 0) {
            _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
            put_plain(&b, err.text, strlen(err.text));
            fprintf(stderr, "weighbridge: %s\n", strbuf_str(&b));
            bool missing = err.code == ERR_NOT_FOUND || err.code == ERR_INVALID;
            if (status != EXIT_USAGE)
                status = missing ? EXIT_USAGE : EXIT_FAILED;
            continue;
        }
        bool as = !expected || is_expected(&d, expected);
        if (json)
            put_json(json, &d, expected, as);
        else
            print_text(&d);
        if (!as) {
            char hex[65];
            bool git = strlen(expected) == 40;
            hex_format(git ? d.git : d.sha256, git ? sizeof(d.git) : sizeof(d.sha256), hex);
            _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
            put_plain(&b, d.path, strlen(d.path));
            fprintf(stderr, "weighbridge: %s: its %s is %s, expected was %s\n", strbuf_str(&b),
                    git ? "git object id" : "sha256", hex, expected);
            status = status ? status : EXIT_FAILED;
        }
    }
    return status;
}

static int run_digest(const struct command *self, int argc, char **argv)
{
    const char *expect = NULL;
    char expected[65];
    bool as_json = false;
    const struct option_spec specs[] = {
        {"expect", "SHA256",
         "what the file must have; exit status 1 when it has another one (a git "
         "object id is taken as well)",
         &expect, NULL},
        {"json", NULL, "prints JSON", NULL, &as_json},
    };
    _cleanup_free_ const char **files = calloc(FILES_MAX, sizeof(*files));
    _cleanup_strbuf_ struct strbuf json = STRBUF_INIT;
    int status;
    if (!files)
        return command_failed(&(struct error){.text = "out of memory"});
    int n = options_parse(self, argc, argv, specs, 2, files, FILES_MAX, &status);
    if (n < 0)
        return status;
    if (n == 0)
        return usage_error(self, "the FILE to hash is missing");
    if (expect && n > 1)
        return usage_error(self, "--expect is for one FILE");
    if (expect && !read_expected(expect, expected))
        return usage_error(self, "--expect takes the 64 hex digits of a sha256, or the 40 of a git "
                                 "object id");
    strbuf_puts(&json, "{\"files\":[");
    status = digest_all(files, n, expect ? expected : NULL, as_json ? &json : NULL);
    if (as_json) {
        if (strbuf_failed(&json))
            return command_failed(&(struct error){.text = "out of memory"});
        printf("%s]}\n", json.data);
    }
    int flushed = finish_output();
    return status ? status : flushed;
}

const struct command command_digest = {
    "digest", "FILE... [--expect SHA256] [--json]",
    "Prints the sha256 of files (the Hub's id of large files) and their git object id.",
    run_digest};
