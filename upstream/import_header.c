/* The headers of weight files: read by Range as far as needed, understood, remembered in a search.
 */
#include "upstream/import_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "model/kv_cache.h"

#define CACHE_MAX 1024

/* ---- what headers said, for one search ------------------------------------------------------- */

struct cached {
    struct digest digest;
    enum weights_format format; /* that its name says: one digest can have two names */
    struct digest config;       /* of the config.json that it was understood with; NONE = without */
    enum inspection inspection;
    struct model_facts facts;
    char reason[240];
};

struct header_cache {
    pthread_mutex_t lock; /* guards: entries, n */
    struct cached *entries[CACHE_MAX];
    size_t n;
};

int header_cache_new(struct header_cache **ret, struct error *err)
{
    struct header_cache *c = calloc(1, sizeof(*c));
    if (!c || pthread_mutex_init(&c->lock, NULL)) {
        free(c);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *ret = c;
    return 0;
}

void header_cache_free(struct header_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        free(c->entries[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int set_facts(struct want *w, const struct model_facts *from, struct error *err)
{
    w->facts = malloc(sizeof(*w->facts));
    if (!w->facts)
        return err_set(err, ERR_NOMEM, "out of memory");
    *w->facts = *from;
    w->inspection = INSPECTION_DONE;
    return 0;
}

/* 1 when the outcome was there. */
static int cache_get(const struct reading *r, struct want *w, struct error *err)
{
    struct header_cache *c = r->cache;
    const struct cached *found = NULL;
    if (!c)
        return 0;
    const struct digest config = *reading_config(r);
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n && !found; i++)
        if (c->entries[i]->format == w->inspect &&
            digest_equal(&c->entries[i]->digest, &w->file->sha256) &&
            digest_equal(&c->entries[i]->config, &config))
            found = c->entries[i]; /* entries are never changed or removed */
    pthread_mutex_unlock(&c->lock);
    if (!found)
        return 0;
    if (found->inspection == INSPECTION_DONE)
        return set_facts(w, &found->facts, err) < 0 ? -1 : 1;
    w->inspection = found->inspection;
    memcpy(w->reason, found->reason, sizeof(w->reason));
    return 1;
}

/* Without memory, or when it is full, the header is only read once more. */
static void cache_put(const struct reading *r, const struct want *w)
{
    struct header_cache *c = r->cache;
    struct cached *e = c ? calloc(1, sizeof(*e)) : NULL;
    if (!e)
        return;
    e->digest = w->file->sha256;
    e->format = w->inspect;
    e->config = *reading_config(r);
    e->inspection = w->inspection;
    if (w->facts)
        e->facts = *w->facts;
    memcpy(e->reason, w->reason, sizeof(e->reason));
    pthread_mutex_lock(&c->lock);
    if (c->n < CACHE_MAX)
        c->entries[c->n++] = TAKE_PTR(e);
    pthread_mutex_unlock(&c->lock);
    free(e);
}

/* ---- one big header at a time ---------------------------------------------------------------- */

int gate_init(struct gate *g, struct error *err)
{
    *g = (struct gate){0};
    if (pthread_mutex_init(&g->lock, NULL))
        return err_set(err, ERR_NOMEM, "cannot make a lock");
    if (cond_init_monotonic(&g->left)) {
        pthread_mutex_destroy(&g->lock);
        return err_set(err, ERR_NOMEM, "cannot make a condition variable");
    }
    return 0;
}

void gate_done(struct gate *g)
{
    pthread_cond_destroy(&g->left);
    pthread_mutex_destroy(&g->lock);
}

/* Who is inside waits for nothing but the network, which a shutdown ends. */
static void gate_enter(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->taken)
        pthread_cond_wait(&g->left, &g->lock);
    g->taken = true;
    pthread_mutex_unlock(&g->lock);
}

static void gate_leave(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->taken = false;
    pthread_cond_signal(&g->left);
    pthread_mutex_unlock(&g->lock);
}

/* ---- headers --------------------------------------------------------------------------------- */

uint64_t header_next(uint64_t need, uint64_t size)
{
    return need < size && size - need > HEADER_SLACK ? need + HEADER_SLACK : size;
}

/* Whether a parser's failure says something about the file, and not about us. */
static bool is_finding(const struct error *e)
{
    return e->code == ERR_INVALID || e->code == ERR_TOO_LARGE || e->code == ERR_UNSUPPORTED;
}

/* The reason goes into the manifest: cut at a whole character, and nothing but the file decides
 * what it says. */
void header_finding(struct want *w, const char *reason)
{
    size_t n = 0, len = strlen(reason);
    while (n < len) {
        unsigned step = utf8_sequence((const unsigned char *)reason + n, len - n);
        if (step == 0 || n + step >= sizeof(w->reason))
            break;
        n += step;
    }
    memcpy(w->reason, reason, n);
    w->reason[n] = '\0';
    w->inspection = INSPECTION_FAILED;
}

/* Called only for headers that were found right as a whole. */
struct counting {
    const struct reading *reading;
    const struct quantization *quantization; /* NULL until a tensor has come */
    enum weights_format format;
    struct parameter_count parameters;
    struct shape_keys
        *keys; /* of a GGUF; NULL = none are wanted, or no shape can be made of them */
};

static int count_tensor(void *ctx, const struct tensor_info *t, struct error *err)
{
    struct counting *c = ctx;
    if (!c->quantization)
        c->quantization = reading_quantization(c->reading);
    return parameters_add(&c->parameters, c->quantization, c->format, t, err);
}

static int take_key(void *ctx, const struct metadata_info *m, struct error *err)
{
    struct counting *c = ctx;
    struct error e = ERROR_INIT;
    if (!c->keys || shape_keys_add(c->keys, m, &e) == 0)
        return 0;
    shape_keys_free(TAKE_PTR(c->keys));
    return e.code == ERR_NOMEM ? err_set(err, e.code, "%s", e.text) : 0;
}

/* A GGUF without a language model's keys, or with ones that make no sense, is no less a GGUF. */
static int read_shape(const struct counting *c, struct modelpack_model *ret, struct error *err)
{
    struct model_shape shape = {0};
    struct error e = ERROR_INIT;
    memset(ret, 0, sizeof(*ret));
    if (!c->keys)
        return 0;
    int rc = shape_from_gguf(c->keys, &shape, &e);
    if (rc == 0)
        facts_of_shape(&shape, ret);
    shape_done(&shape);
    return rc < 0 && e.code == ERR_NOMEM ? err_set(err, e.code, "%s", e.text) : 0;
}

static int visit(struct counting *c, const struct strbuf *prefix, uint64_t size,
                 struct model_facts *ret, uint64_t *ret_need, struct error *err)
{
    const struct weights_visitor visitor = {.metadata = take_key, .tensor = count_tensor, .ctx = c};
    int rc = weights_visit(c->format, strbuf_str(prefix), prefix->len, size, &visitor,
                           &ret->weights, ret_need, err);
    if (rc != PREFIX_DONE)
        return rc;
    ret->parameters = c->parameters;
    return read_shape(c, &ret->cache, err);
}

int header_inspect(const struct reading *r, struct want *w, const struct strbuf *prefix,
                   uint64_t *ret_need, struct error *err)
{
    uint64_t size = w->file->size, need = 0;
    struct model_facts facts;
    struct error e = ERROR_INIT;
    struct counting c = {.reading = r, .format = w->inspect};
    memset(&facts, 0, sizeof(facts));
    if (w->inspect == WEIGHTS_GGUF && shape_keys_new(&c.keys, err) < 0)
        return -1;
    int rc = visit(&c, prefix, size, &facts, &need, &e);
    shape_keys_free(c.keys);
    if (rc == PREFIX_DONE)
        return set_facts(w, &facts, err);
    if (rc < 0 && !is_finding(&e)) {
        if (err)
            *err = e;
        return -1;
    }
    if (rc < 0)
        header_finding(w, e.text);
    else if (need <= prefix->len || need > size)
        header_finding(w, "the file ends inside its header");
    else if (need > HEADER_BUDGET)
        header_finding(w, "the header is longer than 256 MiB");
    if (w->inspection == INSPECTION_FAILED)
        return 0;
    *ret_need = need;
    return 1;
}

/* More of a file's beginning: from our own copy when we hold it, else from the Hub. */
struct header_source {
    const struct reading *reading;
    const struct commit_file *file;
    struct blob *blob;
    struct http_location location;
};

int header_copy(struct blob *blob, size_t len, struct strbuf *to, struct error *err)
{
    while (len) {
        void *at = strbuf_reserve(to, len);
        if (!at)
            return err_set(err, ERR_NOMEM, "out of memory");
        ssize_t n = blob_read(blob, to->len, at, len, err);
        if (n < 0)
            return -1;
        if (n == 0)
            return err_set(err, ERR_INTERNAL, "the stored blob is shorter than its size");
        strbuf_advance(to, (size_t)n);
        len -= (size_t)n;
    }
    return 0;
}

static int source_read(struct header_source *s, size_t len, struct strbuf *to, struct error *err)
{
    const struct reading *r = s->reading;
    const struct commit_file *f = s->file;
    if (len == 0) /* an empty file: there is nothing to ask for */
        return 0;
    if (s->blob)
        return header_copy(s->blob, len, to, err);
    return hub_read_range(r->hub, r->repo_id, r->commit, f->path, &f->sha256, f->size, &s->location,
                          to->len, len, to, err);
}

static int source_open(struct header_source *s, struct error *err)
{
    const struct reading *r = s->reading;
    const struct commit_file *f = s->file;
    int rc = store_blob_open(r->store, &f->sha256, &s->blob, err);
    if (rc < 0)
        return -1;
    if (rc == 0) {
        s->blob = NULL;
        return hub_locate(r->hub, r->repo_id, r->commit, f->path, &f->sha256, f->size, &s->location,
                          err);
    }
    if (blob_size(s->blob) == f->size)
        return 0;
    return err_set(err, ERR_UPSTREAM,
                   "%s: the Hub says %llu bytes, but what has this sha256 has %llu", f->path,
                   (unsigned long long)f->size, (unsigned long long)blob_size(s->blob));
}

static void source_close(struct header_source *s)
{
    blob_close(s->blob);
    http_location_done(&s->location);
}
#define _cleanup_source_ _cleanup_(source_close)

static int other_bytes(const struct commit_file *f, const struct digest *got, struct error *err)
{
    char a[DIGEST_TEXT_MAX], b[DIGEST_TEXT_MAX];
    return err_set(err, ERR_DIGEST_MISMATCH, "the bytes hash to %s, the Hub's list says %s",
                   digest_format(got, a), digest_format(&f->sha256, b));
}

/* Makes sure that what was read is what the file has, as far as that can be known from its
 * beginning: a whole file by its digest, a header that broke a rule by reading it once more. One
 * corrupted answer must not become a manifest that no other server has. */
static int confirm(struct header_source *s, const struct want *w, struct strbuf *prefix,
                   struct error *err)
{
    const struct reading *r = s->reading;
    const struct commit_file *f = s->file;
    struct digest first, second;
    size_t len = prefix->len;
    bool whole = len == f->size;
    if (s->blob || (!whole && w->inspection != INSPECTION_FAILED))
        return 0;
    if (digest_of(DIGEST_SHA256, strbuf_str(prefix), len, &first, err) < 0)
        return -1;
    if (whole)
        return digest_equal(&first, &f->sha256) ? 0 : other_bytes(f, &first, err);
    strbuf_reset(prefix);
    http_location_done(&s->location);
    if (hub_locate(r->hub, r->repo_id, r->commit, f->path, &f->sha256, f->size, &s->location, err) <
            0 ||
        source_read(s, len, prefix, err) < 0 ||
        digest_of(DIGEST_SHA256, strbuf_str(prefix), prefix->len, &second, err) < 0)
        return -1;
    if (digest_equal(&first, &second))
        return 0;
    return err_set(err, ERR_UPSTREAM, "its first %zu bytes came twice and were not the same", len);
}

/* Reads on until the header is understood. */
static int read_on(struct header_source *source, struct want *w, struct strbuf *prefix,
                   struct error *err)
{
    uint64_t size = w->file->size, next = size < HEADER_FIRST ? size : HEADER_FIRST, need = 0;
    struct gate *gate = source->reading->big_headers;
    bool inside = false;
    unsigned reads = 0;
    int rc;
    do {
        if (next > HEADER_BIG && !inside) {
            gate_enter(gate);
            inside = true;
        }
        rc = source_read(source, (size_t)(next - prefix->len), prefix, err);
        if (rc == 0 && strbuf_failed(prefix))
            rc = err_set(err, ERR_NOMEM, "out of memory for a header of %llu bytes",
                         (unsigned long long)next);
        if (rc == 0)
            rc = header_inspect(source->reading, w, prefix, &need, err);
        next = header_next(need, size);
        if (rc > 0 &&
            ++reads == HEADER_READS) { /* the same for everybody: it follows from the bytes */
            header_finding(w, "the header gives itself away in pieces too small to read it by");
            rc = 0;
        }
    } while (rc > 0);
    if (rc == 0)
        rc = confirm(source, w, prefix, err);
    strbuf_done(prefix); /* before another big one begins */
    if (inside)
        gate_leave(gate);
    return rc;
}

int header_read(const struct reading *r, struct want *w, struct error *err)
{
    int rc = cache_get(r, w, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    _cleanup_source_ struct header_source source = {.reading = r, .file = w->file};
    _cleanup_strbuf_ struct strbuf prefix = STRBUF_INIT;
    if ((w->file->size > 0 && source_open(&source, err) < 0) ||
        read_on(&source, w, &prefix, err) < 0)
        return -1;
    cache_put(r, w);
    return 0;
}

/* A config.json that the repository keeps in LFS: whole, and only believed when it hashes to what
 * the list says. */
int header_read_text(const struct reading *r, struct want *w, struct error *err)
{
    const struct commit_file *f = w->file;
    _cleanup_source_ struct header_source source = {.reading = r, .file = f};
    _cleanup_strbuf_ struct strbuf bytes = STRBUF_INIT;
    struct digest digest;
    if (f->size > TEXT_MAX)
        return 0;
    if ((f->size > 0 && source_open(&source, err) < 0) ||
        source_read(&source, (size_t)f->size, &bytes, err) < 0 ||
        digest_of(DIGEST_SHA256, strbuf_str(&bytes), bytes.len, &digest, err) < 0)
        return -1;
    if (!digest_equal(&digest, &f->sha256))
        return other_bytes(f, &digest, err);
    w->has_text = true;
    w->text = bytes;
    bytes = STRBUF_INIT;
    return 0;
}
