#include "upstream/warm.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "model/oci_manifest.h"
#include "upstream/caller.h"
#include "upstream/import_private.h"
#include "upstream/upstreams_private.h"

#define AT_ONCE 4u /* so that warming never takes all of limits.transfers */
#define TRIES 3u
#define STEP_MS 1000u
#define STRIDE (16u << 20)
#define PAUSE_FIRST_MS 1000u
#define PAUSE_MAX_S 60u

void warm_plan_done(struct warm_plan *p)
{
    free(p->blobs);
    p->blobs = NULL;
    p->n_blobs = 0;
}

/* ---- the plan ------------------------------------------------------------------------------- */

struct planning {
    struct upstreams *upstreams;
    struct warm_plan *plan;
    struct digest manifests[WARM_MANIFESTS_MAX]; /* seen; those from `next` on are to be read */
    size_t n, next;
    size_t cap; /* of plan->blobs */
    size_t parts;
};

static int add_manifest(struct planning *p, const struct digest *d, struct error *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (digest_equal(&p->manifests[i], d))
            return 0;
    if (p->n == WARM_MANIFESTS_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "%s names more than %u manifests: warm those that you need by their digests",
                       p->plan->repository, WARM_MANIFESTS_MAX);
    p->manifests[p->n++] = *d;
    return 0;
}

static int add_blob(struct planning *p, const struct oci_descriptor *d, struct error *err)
{
    struct warm_plan *plan = p->plan;
    if (plan->n_blobs == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct warm_blob *more = reallocarray(plan->blobs, cap, sizeof(*more));
        if (!more)
            return err_set(err, ERR_NOMEM, "out of memory for %zu blobs", cap);
        plan->blobs = more;
        p->cap = cap;
    }
    plan->blobs[plan->n_blobs++] = (struct warm_blob){.digest = d->digest, .size = d->size};
    return 0;
}

static int add_parts(struct planning *p, const struct manifest *m, struct error *err)
{
    _cleanup_(oci_manifest_done) struct oci_manifest parsed = {0};
    int rc = oci_manifest_parse(m->media_type, m->bytes, m->len, &parsed, err);
    p->parts += parsed.n_parts;
    if (rc == 0 && p->parts > WARM_PARTS_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "what %s names has more than %u parts: warm the manifests that you need by "
                       "their digests",
                       p->plan->repository, WARM_PARTS_MAX);
    for (size_t i = 0; rc == 0 && i < parsed.n_parts; i++) {
        const struct oci_descriptor *d = &parsed.parts[i];
        if (d->role == OCI_FOREIGN || d->digest.alg == DIGEST_NONE)
            p->plan->left_out++;
        else
            rc = d->role == OCI_CHILD ? add_manifest(p, &d->digest, err) : add_blob(p, d, err);
    }
    return rc;
}

/* The manifests that were found and not read yet; what they name may be further ones. */
static int read_children(struct planning *p, struct error *err)
{
    while (p->next < p->n) {
        _cleanup_(manifest_answer_done) struct manifest_answer a = {0};
        struct reference r = {.is_digest = true, .digest = p->manifests[p->next]};
        char text[DIGEST_TEXT_MAX];
        memcpy(r.repository, p->plan->repository, sizeof(r.repository));
        memcpy(r.as_given, p->plan->repository, sizeof(r.as_given));
        if (upstreams_manifest(p->upstreams, &r, &a, err) < 0 || add_parts(p, &a.manifest, err) < 0)
            return err_wrap(err, "manifest %s of the index", digest_format(&r.digest, text));
        p->next++;
    }
    return 0;
}

static int by_digest(const void *a, const void *b)
{
    const struct digest *x = &((const struct warm_blob *)a)->digest;
    const struct digest *y = &((const struct warm_blob *)b)->digest;
    return x->alg != y->alg ? (x->alg < y->alg ? -1 : 1) : memcmp(x->raw, y->raw, sizeof(x->raw));
}

static int is_held(struct upstreams *u, const struct digest *d, struct error *err)
{
    struct blob *blob = NULL;
    int held = store_blob_open(u->store, d, &blob, err);
    if (held > 0)
        blob_close(blob);
    return held;
}

/* Each digest once, and what of it is here. */
static int weigh(struct planning *p, struct error *err)
{
    struct warm_plan *plan = p->plan;
    size_t n = 0;
    if (plan->n_blobs)
        qsort(plan->blobs, plan->n_blobs, sizeof(*plan->blobs), by_digest);
    for (size_t i = 0; i < plan->n_blobs; i++) {
        struct warm_blob *b = &plan->blobs[i];
        if (n && digest_equal(&plan->blobs[n - 1].digest, &b->digest))
            continue;
        int held = is_held(p->upstreams, &b->digest, err);
        if (held < 0)
            return -1;
        b->held = held > 0;
        if (__builtin_add_overflow(plan->bytes, b->size, &plan->bytes))
            return err_set(err, ERR_INVALID, "%s: the sizes of its blobs do not fit 64 bits",
                           plan->repository);
        plan->missing_bytes += b->held ? 0 : b->size;
        plan->blobs[n++] = *b;
    }
    plan->n_blobs = n;
    if (plan->missing_bytes && store_has_room(p->upstreams->store, plan->missing_bytes, err) < 0)
        return err_wrap(err, "%s needs %" PRIu64 " bytes that are not here", plan->repository,
                        plan->missing_bytes);
    return 0;
}

int warm_plan(struct upstreams *u, const struct reference *r, struct warm_plan *ret,
              struct error *err)
{
    _cleanup_(manifest_answer_done) struct manifest_answer a = {0};
    _cleanup_free_ struct planning *p = calloc(1, sizeof(*p));
    *ret = (struct warm_plan){0};
    if (!p)
        return err_set(err, ERR_NOMEM, "out of memory for a plan");
    *p = (struct planning){.upstreams = u, .plan = ret};
    if (upstreams_repository(u, r->repository, ret->repository, err) < 0 ||
        upstreams_manifest(u, r, &a, err) < 0)
        return -1;
    ret->manifest = a.manifest.digest;
    memcpy(ret->warning, a.warning, sizeof(ret->warning));
    if (add_manifest(p, &a.manifest.digest, err) < 0)
        return -1;
    p->next = 1;
    if (add_parts(p, &a.manifest, err) < 0 || read_children(p, err) < 0 || weigh(p, err) < 0)
        return -1;
    ret->manifests = p->n;
    return 0;
}

/* ---- the work ------------------------------------------------------------------------------- */

struct warming {
    struct upstreams *upstreams;
    const struct warm_plan *plan;
    struct warm_progress *progress;
    const atomic_bool *halt;
    const char *token;    /* of whom it is done for */
    pthread_mutex_t lock; /* guards: progress->on_blob */
};

static int halted(struct error *err)
{
    return err_set(err, ERR_CANCELLED, "warming was stopped");
}

/* Until it is committed. The bytes are not read: only how far they are. */
static int follow(struct warming *w, struct reader *r, uint64_t *counted, struct error *err)
{
    uint64_t size = reader_size(r);
    while (*counted < size) {
        uint64_t have = *counted;
        if (atomic_load(w->halt))
            return halted(err);
        /* Not for every buffer that comes: a second or some megabytes are soon enough. */
        uint64_t far = size - *counted > STRIDE ? *counted + STRIDE : size - 1;
        int rc = reader_wait(r, far, STEP_MS, &have, err);
        if (rc < 0 || (rc == 0 && reader_wait(r, *counted, 0, &have, err) < 0))
            return -1;
        atomic_fetch_add(&w->progress->bytes, have - *counted);
        *counted = have;
    }
    return 0;
}

static int bring(struct warming *w, const struct warm_blob *b, struct error *err)
{
    struct reader *r = NULL;
    uint64_t counted = 0;
    if (reader_open_until(w->upstreams, w->plan->repository, &b->digest, w->halt, &r, err) < 0)
        return -1;
    int rc = follow(w, r, &counted, err);
    reader_close(r);
    if (rc < 0)
        atomic_fetch_sub(&w->progress->bytes, counted);
    return rc;
}

/* Whether the same might go well a little later. */
static bool may_pass(const struct error *err)
{
    return err->code == ERR_UPSTREAM || err->code == ERR_TIMEOUT || err->code == ERR_BUSY ||
           err->code == ERR_DIGEST_MISMATCH || err->code == ERR_RATE_LIMITED;
}

static int pause_before(struct warming *w, unsigned attempt, const struct error *why,
                        struct error *err)
{
    uint64_t ms =
        why->retry_after ? why->retry_after * UINT64_C(1000) : (uint64_t)PAUSE_FIRST_MS << attempt;
    uint64_t until = clock_monotonic_ms() + ms;
    for (uint64_t now = clock_monotonic_ms(); now < until; now = clock_monotonic_ms()) {
        if (atomic_load(w->halt))
            return halted(err);
        uint64_t step = until - now < STEP_MS ? until - now : STEP_MS;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(step / 1000),
                                     .tv_nsec = (long)(step % 1000) * 1000000},
                  NULL);
    }
    return 0;
}

static int warm_one(void *ctx, size_t i, struct error *err)
{
    struct warming *w = ctx;
    struct warm_blob b = w->plan->blobs[i];
    char text[DIGEST_TEXT_MAX];
    if (caller_token() != w->token) /* a thread of its own */
        caller_set(w->token);
    for (unsigned attempt = 0; !b.held;) {
        struct error why = ERROR_INIT;
        if (atomic_load(w->halt))
            return halted(err);
        if (bring(w, &b, &why) == 0)
            break;
        /* A place among the downloads is only a matter of time. */
        attempt += why.code != ERR_BUSY;
        if (!may_pass(&why) || attempt == TRIES || why.retry_after > PAUSE_MAX_S) {
            *err = why;
            return err_wrap(err, "blob %s%s", digest_format(&b.digest, text),
                            attempt == TRIES ? ", tried three times" : "");
        }
        if (pause_before(w, attempt ? attempt - 1 : 0, &why, err) < 0)
            return -1;
    }
    pthread_mutex_lock(&w->lock);
    w->progress->on_blob(w->progress->ctx, &b);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

int warm_run(struct upstreams *u, const struct warm_plan *p, struct warm_progress *progress,
             const atomic_bool *halt, struct error *err)
{
    struct warming w = {
        .upstreams = u, .plan = p, .progress = progress, .halt = halt, .token = caller_token()};
    struct error e = ERROR_INIT;
    if (pthread_mutex_init(&w.lock, NULL))
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc = work_run(AT_ONCE, p->n_blobs, warm_one, &w, &e);
    pthread_mutex_destroy(&w.lock);
    if (rc < 0 && err)
        *err = e;
    return rc;
}
