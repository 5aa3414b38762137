/* Whose certificates are believed. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fs.h"
#include "upstream/http_private.h"

#define CA_FILE_MAX (8u << 20)
#define LOOK_EVERY_MS 1000u

static void ca_free(struct http_ca *ca)
{
    strbuf_done(&ca->pem);
    free(ca);
}

/* libcurl passes over a file that has none, and says later that a certificate is not to be trusted.
 */
static int check_certificate(const char *ca_file, const char *pem, size_t len, struct error *err)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (!bio)
        return err_set(err, ERR_NOMEM, "out of memory for ca_file");
    X509 *first = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
    bool found = first != NULL;
    X509_free(first);
    BIO_free(bio);
    ERR_clear_error();
    return found ? 0
                 : err_set(err, ERR_INVALID, "ca_file: %.300s holds no certificate in PEM form",
                           ca_file);
}

/* A mirror's private authority must not take the public ones away: the mirror may redirect to a
 * public CDN. libcurl takes one file, so both are put together here. */
static int read_both(const char *ca_file, struct strbuf *to, struct error *err)
{
    const char *system = curl_version_info(CURLVERSION_NOW)->cainfo;
    struct error why = ERROR_INIT;
    if (system && fs_read_file(system, CA_FILE_MAX, to, &why) < 0 && why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "%s", why.text);
    strbuf_putc(to, '\n');
    size_t ours = to->len;
    if (fs_read_file(ca_file, CA_FILE_MAX, to, err) < 0)
        return err_wrap(err, "ca_file");
    if (strbuf_failed(to))
        return err_set(err, ERR_NOMEM, "out of memory for ca_file");
    return check_certificate(ca_file, to->data + ours, to->len - ours, err);
}

int http_ca_read(const struct http_pool *p, struct http_ca **ret, struct error *err)
{
    struct http_ca *ca = calloc(1, sizeof(*ca));
    if (!ca)
        return err_set(err, ERR_NOMEM, "out of memory for ca_file");
    ca->refs = 1;
    /* Before it is read: what is written meanwhile is seen the next time. */
    if (stat(p->ca_file, &ca->was) < 0)
        ca->was = (struct stat){0};
    if (read_both(p->ca_file, &ca->pem, err) < 0) {
        ca_free(ca);
        return -1;
    }
    *ret = ca;
    return 0;
}

static bool is_another(const struct stat *a, const struct stat *b)
{
    return a->st_dev != b->st_dev || a->st_ino != b->st_ino || a->st_size != b->st_size ||
           a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

/* Under the lock. */
static struct http_ca *take(struct http_pool *p)
{
    p->ca->refs++;
    return p->ca;
}

struct http_ca *http_ca_take(struct http_pool *p)
{
    struct stat st;
    struct http_ca *newer = NULL;
    uint64_t now = clock_monotonic_ms();
    if (!p->ca_file)
        return NULL;
    pthread_mutex_lock(&p->lock);
    bool looks = now >= p->ca_looked_ms + LOOK_EVERY_MS;
    if (looks)
        p->ca_looked_ms = now;
    struct http_ca *ca = take(p);
    pthread_mutex_unlock(&p->lock);
    /* While it is being exchanged it may not be there, or be half of one; the old one does. */
    if (!looks || stat(p->ca_file, &st) < 0 || !is_another(&st, &ca->was) ||
        http_ca_read(p, &newer, NULL) < 0)
        return ca;
    http_ca_give(p, ca);
    pthread_mutex_lock(&p->lock);
    struct http_ca *old = p->ca;
    p->ca = newer;
    ca = take(p);
    pthread_mutex_unlock(&p->lock);
    http_ca_give(p, old);
    return ca;
}

void http_ca_give(struct http_pool *p, struct http_ca *ca)
{
    if (!ca)
        return;
    pthread_mutex_lock(&p->lock);
    bool last = --ca->refs == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        ca_free(ca);
}
