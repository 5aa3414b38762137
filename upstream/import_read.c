/* The bytes that an import takes, a few at a time: small files here, headers in import_header.c. */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#include "storage/hub.h"

/* ---- a few threads over a list of jobs ------------------------------------------------------- */

struct work {
    int (*fn)(void *ctx, size_t i, struct error *err);
    void *ctx;
    size_t n;
    pthread_mutex_t lock; /* guards: next, failed, error */
    size_t next, failed;  /* failed: the lowest index that did, n when none has */
    struct error error;
};

static bool take_job(struct work *w, size_t *ret)
{
    pthread_mutex_lock(&w->lock);
    bool more = w->next < w->n && w->failed == w->n;
    if (more)
        *ret = w->next++;
    pthread_mutex_unlock(&w->lock);
    return more;
}

static void *work_thread(void *arg)
{
    struct work *w = arg;
    size_t i;
    while (take_job(w, &i)) {
        struct error error = ERROR_INIT;
        if (w->fn(w->ctx, i, &error) == 0)
            continue;
        pthread_mutex_lock(&w->lock);
        if (i < w->failed) {
            w->failed = i;
            w->error = error;
        }
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

int work_run(unsigned width, size_t n, int (*fn)(void *ctx, size_t i, struct error *err), void *ctx,
             struct error *err)
{
    struct work w = {.fn = fn, .ctx = ctx, .n = n, .failed = n};
    size_t helpers = n < width ? n : width, started = 0;
    helpers = helpers > 1 ? helpers - 1 : 0; /* this thread works as well */
    _cleanup_free_ pthread_t *threads = calloc(helpers ? helpers : 1, sizeof(*threads));
    if (!threads || pthread_mutex_init(&w.lock, NULL))
        return err_set(err, ERR_NOMEM, "out of memory");
    /* Fewer threads than wanted only take longer. */
    while (started < helpers && pthread_create(&threads[started], NULL, work_thread, &w) == 0)
        started++;
    work_thread(&w);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&w.lock);
    if (w.failed == n)
        return 0;
    *err = w.error;
    return -1;
}

/* ---- small files ----------------------------------------------------------------------------- */

/* 1 and the bytes when they were fetched before, for whatever commit or by whatever way. */
static int held_bytes(const struct reading *r, const struct commit_file *f, struct strbuf *to,
                      struct error *err)
{
    struct blob *blob = NULL;
    struct digest d = f->sha256;
    int rc = d.alg != DIGEST_NONE ? 1
                                  : store_hub_object_get(r->store, hub_config(r->hub)->prefix,
                                                         r->repo_id, f->git_oid, &d, err);
    if (rc > 0)
        rc = store_blob_open(r->store, &d, &blob, err);
    if (rc <= 0)
        return rc;
    rc = 0;
    if (blob_size(blob) == f->size) /* else not the file's length: ask the Hub instead */
        rc = header_copy(blob, (size_t)f->size, to, err) < 0 ? -1 : 1;
    blob_close(blob);
    return rc;
}

/* Kept for everybody who wants the file, by whatever way. A manifest needs only its layers kept. */
static int keep_bytes(const struct reading *r, const struct want *w, const struct strbuf *bytes,
                      struct digest *ret, struct error *err)
{
    const struct commit_file *f = w->file;
    const char *prefix = hub_config(r->hub)->prefix;
    struct error why = ERROR_INIT;
    if (store_blob_put(r->store, strbuf_str(bytes), bytes->len, ret, &why) == 0 &&
        store_hub_object_put(r->store, prefix, r->repo_id, f->git_oid, ret, &why) == 0)
        return 0;
    if (!w->is_layer)
        return digest_of(DIGEST_SHA256, strbuf_str(bytes), bytes->len, ret, err);
    *err = why;
    return -1;
}

static bool keeps_text(const struct want *w)
{
    return w->is_config || w->is_card;
}

static int read_small(const struct reading *r, struct want *w, struct error *err)
{
    struct commit_file *f = w->file;
    struct strbuf bytes = STRBUF_INIT;
    struct digest digest;
    int rc;
    if (w->is_layer && !keeps_text(w) && w->inspect == WEIGHTS_UNKNOWN &&
        f->sha256.alg != DIGEST_NONE) {
        uint64_t size;
        rc = store_blob_stat(r->store, &f->sha256, &size, err);
        if (rc < 0)
            return -1;
        if (rc > 0 && size == f->size)
            return 0;
    }
    rc = held_bytes(r, f, &bytes, err);
    if (rc == 0 && hub_small_file(r->hub, r->repo_id, r->commit, f, &bytes, err) < 0)
        rc = -1;
    if (rc > 0)
        rc = digest_of(DIGEST_SHA256, strbuf_str(&bytes), bytes.len, &digest, err);
    else if (rc == 0)
        rc = keep_bytes(r, w, &bytes, &digest, err);
    if (rc >= 0 && !digest_equal(&digest, &f->sha256)) {
        f->sha256 = digest; /* git's id has been checked: this is what the commit has */
        w->learned = true;
    }
    uint64_t need;
    if (rc >= 0 && w->inspect != WEIGHTS_UNKNOWN) {
        rc = header_inspect(r, w, &bytes, &need, err);
        if (rc > 0) /* the parser wants more than there is, with all bytes in its hands */
            header_finding(w, "the file ends inside its header");
    }
    w->has_text = rc >= 0 && keeps_text(w) && bytes.len <= TEXT_MAX;
    if (w->has_text)
        w->text = bytes;
    else
        strbuf_done(&bytes);
    return rc < 0 ? -1 : 0;
}

/* ---- config.json comes first ----------------------------------------------------------------- */

static int config_init(struct awaited_config *c, struct error *err)
{
    *c = (struct awaited_config){0};
    if (pthread_mutex_init(&c->lock, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    if (pthread_cond_init(&c->came, NULL)) {
        pthread_mutex_destroy(&c->lock);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    return 0;
}

static void config_done(struct awaited_config *c)
{
    quantization_done(&c->quantization);
    pthread_cond_destroy(&c->came);
    pthread_mutex_destroy(&c->lock);
}

/* w is NULL when there is none, or it could not be read. A config.json that says nothing one can
 * understand is as none. */
static int config_came(struct awaited_config *c, const struct want *w, struct error *err)
{
    struct quantization q = {0};
    struct digest digest = {0};
    struct error e = ERROR_INIT;
    int rc = 0;
    if (w && w->has_text) {
        rc = digest_of(DIGEST_SHA256, strbuf_str(&w->text), w->text.len, &digest, err);
        if (rc == 0 && quantization_read(strbuf_str(&w->text), w->text.len, &q, &e) < 0) {
            quantization_done(&q);
            q = (struct quantization){0};
            rc = e.code == ERR_NOMEM ? err_set(err, e.code, "%s", e.text) : 0;
        }
    }
    pthread_mutex_lock(&c->lock);
    c->quantization = q;
    c->digest = digest;
    c->there = true;
    pthread_cond_broadcast(&c->came);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* Whoever reads it was given it before anybody came here. */
static const struct awaited_config *config_wait(const struct reading *r)
{
    struct awaited_config *c = r->config;
    pthread_mutex_lock(&c->lock);
    while (!c->there)
        pthread_cond_wait(&c->came, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return c;
}

const struct quantization *reading_quantization(const struct reading *r)
{
    return &config_wait(r)->quantization;
}

const struct digest *reading_config(const struct reading *r)
{
    return &config_wait(r)->digest;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int read_want(const struct reading *r, struct want *w, struct error *err)
{
    if (!w->file->has_lfs)
        return read_small(r, w, err);
    if ((keeps_text(w) ? header_read_text(r, w, err) : header_read(r, w, err)) < 0)
        return err_wrap(err, "%s", w->file->path); /* the CDN's URL does not name it */
    return 0;
}

static int read_one(void *ctx, size_t i, struct error *err)
{
    struct reading *r = ctx;
    struct want *w = &r->wants[i];
    int rc = read_want(r, w, err);
    if (!w->is_config)
        return rc;
    return config_came(r->config, rc == 0 ? w : NULL, err) < 0 ? -1 : rc;
}

int reading_run(struct reading *r, struct error *err)
{
    unsigned width = hub_config(r->hub)->header_connections;
    struct awaited_config config;
    if (config_init(&config, err) < 0)
        return -1;
    r->config = &config;
    int rc = r->n && r->wants[0].is_config ? 0 : config_came(&config, NULL, err);
    if (rc == 0)
        rc = work_run(width ? width : 1, r->n, read_one, r, err);
    r->config = NULL;
    config_done(&config);
    return rc;
}

void wants_free(struct want *w, size_t n)
{
    for (size_t i = 0; w && i < n; i++) {
        strbuf_done(&w[i].text);
        free(w[i].facts);
    }
    free(w);
}
