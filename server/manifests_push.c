/* PUT of a manifest: its body is collected within bounds, checked against the digest that the
 * client gave, read, and handed to storage, which stores all of it or nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "model/oci_manifest.h"
#include "server/names.h"
#include "server/request.h"

#define FIRST_BYTES 8192u                      /* most manifests are smaller */
#define MEMORY_MAX ((size_t)128 * 1024 * 1024) /* of all larger ones that are being received */
#define READ_MAX ((size_t)64 * 1024 * 1024)    /* for all that are being read and stored at once */
#define READ_FACTOR 7u                         /* of a manifest of nothing but short descriptors */
#define TAGS_MAX 100u                          /* "?tag=" of one push */
#define TAGS_LINE 512u                         /* of an answer's header */
#define MISSING_MAX 100u                       /* named in one answer */

struct push {
    char *body;
    size_t len, cap; /* counted in the server's pushed_memory, see counted() */
    size_t limit;    /* no body is longer than this */
    char (*tags)[TAG_MAX + 1];
    size_t n_tags;
};

/* ---- the body ---------------------------------------------------------------------------------
 */

static int too_large(const struct request *q, struct error *err)
{
    return err_set(err, ERR_TOO_LARGE,
                   "the manifest is larger than %" PRIu64
                   " bytes, which is what \"limits.manifest\" of this server allows",
                   q->server->config->max_manifest);
}

static size_t memory_max(const struct request *q)
{
    uint64_t one = q->server->config->max_manifest;
    return one > MEMORY_MAX ? (size_t)one : MEMORY_MAX;
}

/* The first bytes are everybody's without asking: large pushes that stall must not keep the small
 * ones out, which are most. */
static size_t counted(size_t cap)
{
    return cap > FIRST_BYTES ? cap - FIRST_BYTES : 0;
}

/* Counted as it comes, not as it was announced: a client that announces much and sends nothing
 * keeps nobody out. */
static int grow(struct request *q, struct push *p, size_t need, struct error *err)
{
    size_t cap = p->cap ? p->cap * 2 : FIRST_BYTES;
    if (cap < need)
        cap = need;
    if (cap > p->limit)
        cap = p->limit;
    size_t more = counted(cap) - counted(p->cap);
    if (more && atomic_fetch_add(&q->server->pushed_memory, more) + more > memory_max(q)) {
        atomic_fetch_sub(&q->server->pushed_memory, more);
        return err_set(err, ERR_BUSY,
                       "the manifests that are being pushed at this moment fill %zu MiB, the most "
                       "that this server spends on them",
                       memory_max(q) >> 20);
    }
    char *body = realloc(p->body, cap);
    if (!body) {
        atomic_fetch_sub(&q->server->pushed_memory, more);
        return err_set(err, ERR_NOMEM, "out of memory for a manifest");
    }
    p->body = body;
    p->cap = cap;
    return 0;
}

static void drop_body(struct server *s, struct push *p)
{
    atomic_fetch_sub(&s->pushed_memory, counted(p->cap));
    free(p->body);
    p->body = NULL;
    p->len = p->cap = 0;
}

/* After a failure what has come is of no use to anybody, and the client may take its time with the
 * rest. */
static int push_write(struct request *q, const void *data, size_t len, struct error *err)
{
    struct push *p = q->sink.ctx;
    int rc = 0;
    if (len > p->limit - p->len)
        rc = too_large(q, err);
    else if (len > p->cap - p->len)
        rc = grow(q, p, p->len + len, err);
    if (rc < 0) {
        drop_body(q->server, p);
        return -1;
    }
    if (len)
        memcpy(p->body + p->len, data, len);
    p->len += len;
    return 0;
}

/* ---- what it says ------------------------------------------------------------------------------
 */

static int check_digest(const struct request *q, const struct push *p, struct digest *ret,
                        struct error *err)
{
    const struct reference *ref = &q->route.ref;
    enum digest_alg alg = ref->is_digest ? ref->digest.alg : DIGEST_SHA256;
    char got[DIGEST_TEXT_MAX], want[DIGEST_TEXT_MAX];
    if (digest_of(alg, p->body ? p->body : "", p->len, ret, err) < 0)
        return -1;
    if (!ref->is_digest || digest_equal(ret, &ref->digest))
        return 0;
    return err_set(err, ERR_DIGEST_MISMATCH,
                   "the manifest hashes to %s, not to the %s that it was pushed as; nothing was "
                   "stored",
                   digest_format(ret, got), digest_format(&ref->digest, want));
}

static int read_manifest(const struct request *q, const struct push *p, struct oci_manifest *ret,
                         struct error *err)
{
    const char *type = request_header(q, "Content-Type");
    if (!type && request_has_header(q, "Content-Type"))
        return err_set(err, ERR_INVALID, "more than one Content-Type header");
    return oci_manifest_parse(type, p->body ? p->body : "", p->len, ret, err);
}

/* Blobs and manifests that are not here, as the client wrote their digests. */
struct missing {
    const char *names[MISSING_MAX];
    size_t n; /* may be more than are named */
    char (*text)[DIGEST_TEXT_MAX];
};

static void missing_done(struct missing *m)
{
    free(m->text);
}

static void add_missing(struct missing *m, const char *digest)
{
    if (m->n < MISSING_MAX)
        m->names[m->n] = digest;
    m->n++;
}

static int take_missing(struct missing *m, const struct digest_list *list, struct error *err)
{
    size_t n = list->n < MISSING_MAX ? list->n : MISSING_MAX;
    m->text = calloc(n ? n : 1, sizeof(*m->text));
    if (!m->text)
        return err_set(err, ERR_NOMEM, "out of memory for an answer");
    for (size_t i = 0; i < n; i++)
        add_missing(m, digest_format(&list->items[i], m->text[i]));
    m->n = list->n;
    return 0;
}

/* What the manifest needs. Parts of an algorithm that is not held here can not be here; those that
 * have to be are missing. */
static int collect_needs(const struct oci_manifest *m, struct push_need **ret, size_t *ret_n,
                         struct missing *missing, struct error *err)
{
    static const enum need_kind kinds[] = {
        [OCI_CONFIG] = NEED_BLOB,
        [OCI_LAYER] = NEED_BLOB,
        [OCI_FOREIGN] = NEED_OPTIONAL,
        [OCI_CHILD] = NEED_CHILD,
    };
    struct push_need *needs = calloc(m->n_parts ? m->n_parts : 1, sizeof(*needs));
    size_t n = 0;
    if (!needs)
        return err_set(err, ERR_NOMEM, "out of memory for the parts of a manifest");
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct oci_descriptor *part = &m->parts[i];
        enum need_kind kind = kinds[part->role];
        if (part->digest.alg != DIGEST_NONE)
            needs[n++] = (struct push_need){kind, part->digest, part->size};
        else if (kind != NEED_OPTIONAL)
            add_missing(missing, part->digest_text);
    }
    *ret = needs;
    *ret_n = n;
    return 0;
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void put_missing(struct strbuf *body, const struct request *q, const char *digest,
                        const char *message)
{
    json_put_separator(body);
    strbuf_putc(body, '{');
    json_put_key(body, "code");
    json_put_string(body, "MANIFEST_BLOB_UNKNOWN");
    json_put_key(body, "message");
    json_put_string(body, message);
    json_put_key(body, "detail");
    strbuf_putc(body, '{');
    if (digest) {
        json_put_key(body, "digest");
        json_put_string(body, digest);
    }
    json_put_key(body, "request");
    json_put_string(body, q->id);
    json_put_key(body, "error");
    json_put_string(body, err_name(ERR_NOT_FOUND));
    strbuf_puts(body, "}}");
}

/* 404, as the specification's table of endpoints has it: each client that is known prints the list
 * and none takes the status for a missing API. One entry a digest. */
static enum MHD_Result reply_missing(struct request *q, const struct missing *m, bool is_foreign)
{
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    char message[REPOSITORY_MAX + 512], digest[DIGEST_TEXT_MAX + 128];
    strbuf_puts(&body, "{\"errors\":[");
    for (size_t i = 0; i < m->n && i < MISSING_MAX; i++) {
        snprintf(digest, sizeof(digest), "%s", m->names[i]);
        snprintf(message, sizeof(message),
                 is_foreign ? "%s is referenced but can not be held here (only sha256 and sha512 "
                              "can): push \"%s\" with digests of those"
                            : "%s is referenced but not in this repository: push it to \"%s\" (or "
                              "mount it there) first, then the manifest",
                 digest, q->route.ref.repository);
        put_missing(&body, q, digest, message);
    }
    if (m->n > MISSING_MAX) {
        snprintf(message, sizeof(message), "and %zu more", m->n - MISSING_MAX);
        put_missing(&body, q, NULL, message);
    }
    strbuf_puts(&body, "]}\n");
    err_set(&q->error, ERR_NOT_FOUND, "%zu referenced digests are not here, the first is %.200s",
            m->n, m->names[0]);
    return reply_text(q, 404, "application/json", &body);
}

/* Several to a line: there are clients that take no answer with more than a hundred of them. */
static bool put_tags(struct MHD_Response *r, const struct push *p)
{
    _cleanup_strbuf_ struct strbuf line = STRBUF_INIT;
    bool ok = true;
    for (size_t i = 0; ok && i < p->n_tags; i++) {
        strbuf_printf(&line, "%s%s", line.len ? ", " : "", p->tags[i]);
        if (i + 1 < p->n_tags && line.len < TAGS_LINE)
            continue;
        ok = !strbuf_failed(&line) && reply_put(r, "OCI-Tag", strbuf_str(&line));
        strbuf_reset(&line);
    }
    return ok;
}

static enum MHD_Result reply_created(struct request *q, const struct push *p,
                                     const struct digest *digest, const struct oci_manifest *m)
{
    _cleanup_strbuf_ struct strbuf location = STRBUF_INIT;
    char text[DIGEST_TEXT_MAX], subject[DIGEST_TEXT_MAX];
    request_base_url(q, &location);
    strbuf_printf(&location, "/v2/%s/manifests/%s", q->route.name, digest_format(digest, text));
    names_put_ns(q, '?', &location);
    struct MHD_Response *r = strbuf_failed(&location) ? NULL : reply_empty(0);
    bool ok = reply_put(r, "Location", strbuf_str(&location)) &&
              reply_put(r, "Docker-Content-Digest", text);
    /* Without the header a client keeps the list itself, under a tag: right for a subject that no
     * question can name here. */
    if (m->has_subject && m->subject.digest.alg)
        ok = ok && reply_put(r, "OCI-Subject", digest_format(&m->subject.digest, subject));
    ok = ok && put_tags(r, p);
    if (r && !ok) {
        MHD_destroy_response(r);
        r = NULL;
    }
    q->route.ref.digest = *digest; /* for the log */
    return reply(q, 201, r);
}

/* ---- storing it --------------------------------------------------------------------------------
 */

/* A client that has pulled by this name from the default upstream was told that the blobs are
 * there, and does not push them. They are, if they were pulled from here; those that are not held
 * have to be pushed. */
static bool mount_absent(const struct request *q, const struct digest_list *absent)
{
    char from[REPOSITORY_MAX + 1];
    bool ok = absent->n > 0 && names_default(q, from) && request_may_pull_from(q, from);
    for (size_t i = 0; ok && i < absent->n; i++)
        ok = store_blob_mount(q->server->store, q->route.ref.repository, &absent->items[i], from,
                              NULL) == 1;
    return ok;
}

static enum MHD_Result store_push(struct request *q, const struct push *p,
                                  const struct digest *digest, const struct oci_manifest *m)
{
    struct error err = ERROR_INIT;
    const struct reference *ref = &q->route.ref;
    _cleanup_(missing_done) struct missing missing = {0};
    _cleanup_(digest_list_done) struct digest_list absent = {0};
    _cleanup_free_ struct push_need *needs = NULL;
    const char *tags[TAGS_MAX + 1];
    size_t n_needs = 0, n_tags = 0;
    char source[96];

    if (collect_needs(m, &needs, &n_needs, &missing, &err) < 0)
        return reply_error(q, RESOURCE_PUSH, &err);
    if (missing.n)
        return reply_missing(q, &missing, true);
    if (!ref->is_digest)
        tags[n_tags++] = ref->tag;
    for (size_t i = 0; i < p->n_tags; i++)
        tags[n_tags++] = p->tags[i];
    request_source(q, "push", source, sizeof(source));
    struct tag_guard guard = request_tag_guard(q);
    const struct push_record record = {
        .repository = ref->repository,
        .is_mirror = config_upstream_of(q->server->config, ref->repository) != NULL,
        .digest = *digest,
        .media_type = m->media_type,
        .manifest = p->body,
        .len = p->len,
        .needs = needs,
        .n_needs = n_needs,
        .subject = m->has_subject && m->subject.digest.alg ? &m->subject.digest : NULL,
        .artifact_type = m->artifact_type,
        .annotations = m->annotations,
        .annotations_len = m->annotations_len,
        .tags = tags,
        .n_tags = n_tags,
        .guard = &guard,
        .source = source,
    };
    int r = store_manifest_push(q->server->store, &record, &absent, &err);
    if (r < 0 && err.code == ERR_NOT_FOUND && mount_absent(q, &absent)) {
        digest_list_done(&absent);
        err = ERROR_INIT;
        r = store_manifest_push(q->server->store, &record, &absent, &err);
    }
    if (r == 0)
        return reply_created(q, p, digest, m);
    if (err.code == ERR_NOT_FOUND && absent.n && take_missing(&missing, &absent, &err) == 0)
        return reply_missing(q, &missing, false);
    return reply_error(q, RESOURCE_PUSH, &err);
}

static int refuse_mirror(const struct request *q, const struct config_upstream *u,
                         struct error *err)
{
    const char *repository = q->route.ref.repository;
    return err_set(err, ERR_DENIED,
                   "\"%s\" mirrors an upstream (prefix \"%s\"): only manifests with a \"subject\" "
                   "(signatures, SBOMs) are pushed there, by digest and without tags; push to a "
                   "local name such as \"local/%s\"",
                   repository, u->prefix, repository + strlen(u->prefix) + 1);
}

/* A manifest of many parts takes several times its size, for as long as it is read and stored: so
 * many at once as fit, the others wait. Who has a place waits for no other push. A huge one counts
 * as half of the room, or it could wait for ever behind a stream of small ones. */
static size_t reading_begin(struct server *s, const struct push *p)
{
    size_t n = p->len < READ_MAX / 2 / READ_FACTOR ? p->len * READ_FACTOR : READ_MAX / 2;
    pthread_mutex_lock(&s->lock);
    while (s->pushes_read + n > READ_MAX)
        cond_wait_until(&s->pushes_less, &s->lock, CLOCK_FOREVER);
    s->pushes_read += n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void reading_end(struct server *s, size_t n)
{
    pthread_mutex_lock(&s->lock);
    s->pushes_read -= n;
    pthread_cond_broadcast(&s->pushes_less);
    pthread_mutex_unlock(&s->lock);
}

static enum MHD_Result read_and_store(struct request *q)
{
    struct error err = ERROR_INIT;
    const struct push *p = q->sink.ctx;
    const struct config_upstream *u =
        config_upstream_of(q->server->config, q->route.ref.repository);
    _cleanup_(oci_manifest_done) struct oci_manifest m = {0};
    struct digest digest;
    if (check_digest(q, p, &digest, &err) < 0 || read_manifest(q, p, &m, &err) < 0)
        return reply_error(q, RESOURCE_PUSH, &err);
    /* One of an algorithm that is not held would be listed nowhere. */
    if (u && !(m.has_subject && m.subject.digest.alg)) {
        refuse_mirror(q, u, &err);
        return reply_error(q, RESOURCE_PUSH, &err);
    }
    return store_push(q, p, &digest, &m);
}

static enum MHD_Result push_end(struct request *q)
{
    if (q->body_failed)
        return reply_error(q, RESOURCE_PUSH, &q->body_error);
    size_t n = reading_begin(q->server, q->sink.ctx);
    enum MHD_Result r = read_and_store(q);
    reading_end(q->server, n);
    return r;
}

/* ---- the beginning -----------------------------------------------------------------------------
 */

static bool has_tag(const struct request *q, const struct push *p, const char *tag)
{
    if (!q->route.ref.is_digest && strcmp(q->route.ref.tag, tag) == 0)
        return true;
    for (size_t i = 0; i < p->n_tags; i++)
        if (strcmp(p->tags[i], tag) == 0)
            return true;
    return false;
}

/* The further tags: "?tag=a&tag=b". The specification has them for a push by digest; by tag they
 * can only mean the same. */
static int read_tags(const struct request *q, struct push *p, struct error *err)
{
    char tag[TAG_MAX + 64];
    for (unsigned i = 0;; i++) {
        int r = query_get_nth(q->query, "tag", i, tag, sizeof(tag), err);
        if (r <= 0)
            return r;
        if (i == TAGS_MAX)
            return err_set(err, ERR_INVALID,
                           "over %u tags in one push: send the others with a further push of the "
                           "same manifest",
                           TAGS_MAX);
        if (!tag_is_valid(tag))
            return err_set(err, ERR_INVALID,
                           "\"%.160s\" is not a tag (letters, digits, '_', '.', '-', at most 128)",
                           tag);
        if (has_tag(q, p, tag))
            continue;
        if (!p->tags)
            p->tags = malloc(TAGS_MAX * sizeof(*p->tags));
        if (!p->tags)
            return err_set(err, ERR_NOMEM, "out of memory for tags");
        snprintf(p->tags[p->n_tags++], TAG_MAX + 1, "%.128s", tag);
    }
}

/* What can be known from the headers. */
static int check_push(const struct request *q, const struct push *p, struct error *err)
{
    const struct reference *ref = &q->route.ref;
    const struct config *c = q->server->config;
    const struct config_upstream *u = config_upstream_of(c, ref->repository);
    if (request_may(q, ACCESS_PUSH, err) < 0)
        return -1;
    if (u && (!ref->is_digest || p->n_tags))
        return refuse_mirror(q, u, err);
    if (q->framing.has_length && q->framing.length > c->max_manifest)
        return too_large(q, err);
    return store_has_room(q->server->store, q->framing.length, err);
}

static void push_free(struct server *s, struct push *p)
{
    drop_body(s, p);
    free(p->tags);
    free(p);
}

static void push_release(struct request *q)
{
    push_free(q->server, q->sink.ctx);
}

static int begin(struct request *q, struct push **ret, struct error *err)
{
    uint64_t limit = q->server->config->max_manifest;
    struct push *p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ERR_NOMEM, "out of memory for a push");
    if (q->framing.has_length && q->framing.length < limit)
        limit = q->framing.length;
    p->limit = (size_t)limit;
    if (read_tags(q, p, err) == 0 && check_push(q, p, err) == 0) {
        *ret = p;
        return 0;
    }
    push_free(q->server, p);
    return -1;
}

enum MHD_Result manifests_begin(struct request *q)
{
    struct error err = ERROR_INIT;
    struct push *p = NULL;
    if (begin(q, &p, &err) == 0) {
        q->sink = (struct body_sink){push_write, push_end, push_release, p};
        return MHD_YES;
    }
    return reply_error(q, RESOURCE_PUSH, &err);
}

/* ---- shared ------------------------------------------------------------------------------------
 */

static bool is_immutable(void *ctx, const char *repository, const char *tag)
{
    const struct server *s = ctx;
    return config_tag_is_immutable(s->config, repository, tag);
}

struct tag_guard request_tag_guard(const struct request *q)
{
    return (struct tag_guard){is_immutable, q->server};
}
