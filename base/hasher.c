/* Hashing, with OpenSSL. digest.c has what digests look like. */
#include "base/digest.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)256 * 1024)

/* A hasher's own thread. It has the block while len is not 0, the owner otherwise. */
struct helper {
    pthread_t thread;
    pthread_mutex_t lock; /* guards: len, stop, failed */
    pthread_cond_t turned;
    size_t len;
    bool stop, failed;
    EVP_MD_CTX *ctx;
    unsigned char block[BLOCK];
};

struct hasher {
    EVP_MD_CTX *ctx;
    enum digest_alg alg;
    bool failed; /* sticky: some bytes are not in it */
    struct helper *helper;
};

static atomic_uint helpers; /* in the process */

/* Looked up once: the library's own names for them look them up anew with every use. */
static const EVP_MD *known[DIGEST_SHA512 + 1];
static pthread_once_t known_once = PTHREAD_ONCE_INIT;

static void look_up(void)
{
    known[DIGEST_SHA256] = EVP_MD_fetch(NULL, "SHA256", NULL);
    known[DIGEST_SHA512] = EVP_MD_fetch(NULL, "SHA512", NULL);
}

static const EVP_MD *evp_of(enum digest_alg alg)
{
    pthread_once(&known_once, look_up);
    return (unsigned)alg < ARRAY_LEN(known) ? known[alg] : NULL;
}

int hasher_new(enum digest_alg alg, struct hasher **ret, struct error *err)
{
    const EVP_MD *md = evp_of(alg);
    if (!md)
        return err_set(err, ERR_UNSUPPORTED, "no such digest algorithm");
    struct hasher *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory for a hash");
    h->alg = alg;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, md, NULL) != 1) {
        hasher_free(h);
        return err_set(err, ERR_NOMEM, "cannot set up a %s hash", digest_alg_name(alg));
    }
    *ret = h;
    return 0;
}

void hasher_free(struct hasher *h)
{
    if (!h)
        return;
    hasher_join(h);
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

/* ---- on a thread of its own -------------------------------------------------------------------
 */

static void *help(void *arg)
{
    struct helper *p = arg;
    pthread_setname_np(pthread_self(), "hash");
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->len && !p->stop)
            pthread_cond_wait(&p->turned, &p->lock);
        if (!p->len)
            break;
        pthread_mutex_unlock(&p->lock);
        bool ok = EVP_DigestUpdate(p->ctx, p->block, p->len) == 1;
        pthread_mutex_lock(&p->lock);
        p->failed = p->failed || !ok;
        p->len = 0;
        pthread_cond_signal(&p->turned);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Until the block is the owner's. False: something that was fed could not be hashed. */
static bool settle(struct helper *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->len)
        pthread_cond_wait(&p->turned, &p->lock);
    bool ok = !p->failed;
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool hand_over(struct helper *p, const unsigned char *data, size_t len)
{
    for (size_t n; len; data += n, len -= n) {
        n = len < BLOCK ? len : BLOCK;
        if (!settle(p))
            return false;
        memcpy(p->block, data, n);
        pthread_mutex_lock(&p->lock);
        p->len = n;
        pthread_cond_signal(&p->turned);
        pthread_mutex_unlock(&p->lock);
    }
    return true;
}

/* One processor is the owners'. */
static bool take_processor(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return false;
    unsigned spare = (unsigned)CPU_COUNT(&set) - 1;
    if (atomic_fetch_add(&helpers, 1) < spare)
        return true;
    atomic_fetch_sub(&helpers, 1);
    return false;
}

static struct helper *start_helper(EVP_MD_CTX *ctx)
{
    struct helper *p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    p->len = 0;
    p->stop = p->failed = false;
    p->ctx = ctx;
    if (pthread_mutex_init(&p->lock, NULL) == 0) {
        if (pthread_cond_init(&p->turned, NULL) == 0) {
            if (pthread_create(&p->thread, NULL, help, p) == 0)
                return p;
            pthread_cond_destroy(&p->turned);
        }
        pthread_mutex_destroy(&p->lock);
    }
    free(p);
    return NULL;
}

void hasher_fork(struct hasher *h)
{
    if (h->helper || h->failed || !take_processor())
        return;
    h->helper = start_helper(h->ctx);
    if (!h->helper)
        atomic_fetch_sub(&helpers, 1);
}

void hasher_join(struct hasher *h)
{
    struct helper *p = h->helper;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true; /* after the block */
    pthread_cond_signal(&p->turned);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    h->failed = h->failed || p->failed;
    pthread_cond_destroy(&p->turned);
    pthread_mutex_destroy(&p->lock);
    free(p);
    h->helper = NULL;
    atomic_fetch_sub(&helpers, 1);
}

/* ---- feeding and reading ----------------------------------------------------------------------
 */

int hasher_update(struct hasher *h, const void *data, size_t len, struct error *err)
{
    if (!h->failed)
        h->failed =
            h->helper ? !hand_over(h->helper, data, len) : EVP_DigestUpdate(h->ctx, data, len) != 1;
    if (h->failed)
        return err_set(err, ERR_INTERNAL, "%s update failed", digest_alg_name(h->alg));
    return 0;
}

int hasher_peek(const struct hasher *h, struct digest *ret, struct error *err)
{
    if (h->failed || (h->helper && !settle(h->helper)))
        return err_set(err, ERR_INTERNAL, "%s update failed", digest_alg_name(h->alg));
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    struct digest d = {.alg = h->alg};
    unsigned n = 0;
    int ok = copy && EVP_MD_CTX_copy_ex(copy, h->ctx) == 1 &&
             EVP_DigestFinal_ex(copy, d.raw, &n) == 1 && n == digest_size(h->alg);
    EVP_MD_CTX_free(copy);
    if (!ok)
        return err_set(err, ERR_NOMEM, "cannot finish a %s hash", digest_alg_name(h->alg));
    *ret = d;
    return 0;
}

int digest_of(enum digest_alg alg, const void *data, size_t len, struct digest *ret,
              struct error *err)
{
    const EVP_MD *md = evp_of(alg);
    struct digest d = {.alg = alg};
    unsigned n = 0;
    if (!md)
        return err_set(err, ERR_UNSUPPORTED, "no such digest algorithm");
    if (EVP_Digest(data, len, d.raw, &n, md, NULL) != 1 || n != digest_size(alg))
        return err_set(err, ERR_NOMEM, "cannot compute a %s hash", digest_alg_name(alg));
    *ret = d;
    return 0;
}

int git_blob_oid(const void *data, size_t len, char ret[static GIT_OID_TEXT], struct error *err)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %zu", len);
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) == 1 &&
             EVP_DigestUpdate(ctx, head, (size_t)n + 1) == 1 &&
             EVP_DigestUpdate(ctx, data, len) == 1 && EVP_DigestFinal_ex(ctx, raw, &size) == 1 &&
             size == 20;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return err_set(err, ERR_NOMEM, "cannot compute a git object id");
    hex_format(raw, size, ret);
    return 0;
}
