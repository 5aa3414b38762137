/* Lists over pages: the tags of a repository, the referrers of a manifest. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "model/oci_manifest.h"
#include "upstream/oci_private.h"

#define TAGS_PAGE 1000u
#define REFERRERS_BYTES_MAX (32u << 20) /* texts of one list */

/* ---- pages ----------------------------------------------------------------------------------- */

/* One page's body: 0 go on, 1 enough, -1. */
typedef int (*page_fn)(void *ctx, const char *body, size_t len, struct error *err);

/* The next page: NULL without an error when there is none (*ret_failed tells). Pages are asked for
 * with our login, so they must stay on the registry. */
static char *next_page(struct oci *o, const struct oci_answer *a, bool *ret_failed,
                       struct error *err)
{
    _cleanup_free_ char *target = NULL;
    char where[512];
    *ret_failed = false;
    for (const char *v = http_header(a->r, "Link"); v && !target;
         v = http_header_next(a->r, "Link", v))
        target = http_link_next(v);
    if (!target)
        return NULL;
    *ret_failed = true;
    _cleanup_free_ char *url = http_resolve_location(a->url, target);
    if (!url || !http_same_origin(o->config->url, url)) {
        oci_broken(a, err, "names a next page that is not its own, on %s",
                   url ? log_url(url, where, sizeof(where)) : "something that is no URL");
        return NULL;
    }
    *ret_failed = false;
    return TAKE_PTR(url);
}

/* The pages that a list has had. Those with different URLs may still go on for ever, so their
 * number is bounded as well. */
struct pages {
    uint64_t hashes[OCI_LIST_PAGES_MAX];
    unsigned n;
};

/* -1 when it had this page before. FNV-1a: that two URLs of one list have the same hash does not
 * happen by accident, and who makes them spoils only its own list. */
static int count_page(struct pages *p, const char *url, struct error *err)
{
    uint64_t hash = 14695981039346656037ull;
    char where[512];
    for (const char *c = url; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    for (unsigned i = 0; i < p->n; i++)
        if (p->hashes[i] == hash)
            return err_set(
                err, ERR_UPSTREAM,
                "%s: its pages lead in a circle: page %u names one that was there before",
                log_url(url, where, sizeof(where)), p->n);
    if (p->n == OCI_LIST_PAGES_MAX)
        return err_set(err, ERR_UPSTREAM, "%s: more than %u pages",
                       log_url(url, where, sizeof(where)), OCI_LIST_PAGES_MAX);
    p->hashes[p->n++] = hash;
    return 0;
}

static int check_page(struct oci *o, const struct oci_answer *a, struct error *err)
{
    const char *type = http_header(a->r, "Content-Type");
    if (http_status(a->r) != 200)
        return oci_refusal(o, a, err);
    if (type && strncasecmp(type, "text/html", 9) == 0)
        return oci_broken(a, err, "answered with a page for people (%.60s)", type);
    if (http_body(a->r)->len == 0)
        return oci_broken(a, err, "answered 200 with nothing in it");
    return 0;
}

/* 1; 0: the first page is 404 (or 405, 501: no such API); -1. Takes the URL over. */
static int each_page(struct oci *o, const char *name, char *url, const char *accept, page_fn fn,
                     void *ctx, struct error *err)
{
    _cleanup_free_ char *at = url;
    struct pages pages = {.n = 0};
    struct oci_question q = {.method = "GET",
                             .name = name,
                             .accept = accept,
                             .max_body = OCI_LIST_PAGE_MAX,
                             .deadline_ms = clock_monotonic_ms() + OCI_LIST_TIME_MS};
    for (;;) {
        _cleanup_answer_ struct oci_answer a = {0};
        bool failed;
        if (at && count_page(&pages, at, err) < 0)
            return -1;
        q.url = at;
        if (oci_ask(o, &q, &a, err) < 0)
            return -1;
        unsigned status = http_status(a.r);
        if (pages.n == 1 && (oci_is_absent(&a) || status == 405 || status == 501))
            return 0;
        if (check_page(o, &a, err) < 0)
            return -1;
        int rc = fn(ctx, http_body(a.r)->data, http_body(a.r)->len, err);
        if (rc < 0) {
            char where[512];
            if (err)
                oci_clean_text(err->text);
            return err_wrap(err, "%s", log_url(a.url, where, sizeof(where)));
        }
        char *next = rc ? NULL : next_page(o, &a, &failed, err);
        if (!next)
            return !rc && failed ? -1 : 1;
        free(at);
        at = next;
    }
}

static int parse(const char *text, size_t len, struct json **ret, struct error *err)
{
    struct error why = ERROR_INIT;
    if (json_parse(text, len, ret, &why) == 0)
        return 0;
    return err_set(err, why.code == ERR_INVALID ? ERR_UPSTREAM : why.code, "%s", why.text);
}

/* ---- referrers ------------------------------------------------------------------------------- */

void oci_referrers_build_done(struct oci_referrers_build *b)
{
    free(b->items);
    strbuf_done(&b->storage);
    *b = (struct oci_referrers_build){0};
}

static size_t store_text(struct oci_referrers_build *b, const char *text)
{
    size_t at = b->storage.len;
    strbuf_put(&b->storage, text, strlen(text) + 1);
    return at;
}

/* The strings among the annotations, as an object again. */
static int store_annotations(struct oci_referrers_build *b, const struct json *j, size_t *ret,
                             struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    strbuf_putc(&text, '{');
    for (const struct json *a = json_first(j); a; a = json_next(a)) {
        if (!json_str(a))
            return err_set(err, ERR_UPSTREAM, "a descriptor's annotation is no string");
        json_put_key(&text, json_key(a));
        json_put_string(&text, json_str(a));
    }
    strbuf_putc(&text, '}');
    if (strbuf_failed(&text))
        return err_set(err, ERR_NOMEM, "out of memory for a list of referrers");
    *ret = store_text(b, strbuf_str(&text));
    return 0;
}

static bool is_type(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return n > 0 && n <= 255;
}

/* 1 added, 0 passed over (of an algorithm that is not held here), -1. */
static int add_referrer(struct oci_referrers_build *b, const struct json *j, struct error *err)
{
    struct oci_referrer r = {.annotations = SIZE_MAX};
    const char *type = json_str(json_get(j, "mediaType"));
    const char *digest = json_str(json_get(j, "digest"));
    const struct json *artifact = json_get(j, "artifactType");
    const struct json *annotations = json_get(j, "annotations");
    struct error why = ERROR_INIT;
    if (!is_type(type) || !digest || !json_u64(json_get(j, "size"), &r.size) ||
        (artifact && !json_str(artifact)) ||
        (annotations && !json_is_null(annotations) && !json_is_object(annotations)))
        return err_set(err, ERR_UPSTREAM, "a descriptor in it is none");
    if (digest_parse(digest, &r.digest, &why) < 0)
        return why.code == ERR_UNSUPPORTED
                   ? 0
                   : err_set(err, ERR_UPSTREAM, "a descriptor's digest is none");
    r.media_type = store_text(b, type);
    r.artifact_type = store_text(b, artifact ? json_str(artifact) : "");
    if (json_is_object(annotations) && json_first(annotations) &&
        store_annotations(b, annotations, &r.annotations, err) < 0)
        return -1;
    if (b->n == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 16;
        struct oci_referrer *items = reallocarray(b->items, cap, sizeof(*items));
        if (!items)
            return err_set(err, ERR_NOMEM, "out of memory for a list of referrers");
        b->items = items;
        b->cap = cap;
    }
    b->items[b->n++] = r;
    return 1;
}

int oci_referrers_page(struct oci_referrers_build *b, const char *json, size_t len,
                       struct error *err)
{
    _cleanup_json_ struct json *root = NULL;
    if (parse(json, len, &root, err) < 0)
        return -1;
    const struct json *manifests = json_get(root, "manifests");
    if (!json_is_object(root) || !(json_is_array(manifests) || json_is_null(manifests)))
        return err_set(err, ERR_UPSTREAM, "it is no index: no array \"manifests\"");
    for (const struct json *j = json_first(manifests); j; j = json_next(j)) {
        if (b->n == OCI_LIST_ITEMS_MAX || b->storage.len > REFERRERS_BYTES_MAX) {
            b->more = true;
            return 1;
        }
        if (add_referrer(b, j, err) < 0)
            return -1;
    }
    return strbuf_failed(&b->storage)
               ? err_set(err, ERR_NOMEM, "out of memory for a list of referrers")
               : 0;
}

static int by_digest(const void *a, const void *b)
{
    const struct referrer *x = a, *y = b;
    if (x->digest.alg != y->digest.alg)
        return x->digest.alg < y->digest.alg ? -1 : 1;
    return memcmp(x->digest.raw, y->digest.raw, sizeof(x->digest.raw));
}

int oci_referrers_finish(struct oci_referrers_build *b, struct referrer_list *ret,
                         struct error *err)
{
    struct referrer *items = calloc(b->n + 1, sizeof(*items));
    size_t n = 0;
    if (!items || strbuf_failed(&b->storage)) {
        free(items);
        return err_set(err, ERR_NOMEM, "out of memory for a list of referrers");
    }
    char *storage = strbuf_take(&b->storage);
    for (size_t i = 0; i < b->n; i++) {
        const struct oci_referrer *r = &b->items[i];
        items[i] = (struct referrer){
            .digest = r->digest,
            .size = r->size,
            .media_type = storage + r->media_type,
            .artifact_type = storage + r->artifact_type,
            .annotations = r->annotations == SIZE_MAX ? NULL : storage + r->annotations};
    }
    qsort(items, b->n, sizeof(*items), by_digest);
    for (size_t i = 0; i < b->n; i++)
        if (i == 0 || !digest_equal(&items[i].digest, &items[n - 1].digest))
            items[n++] = items[i];
    *ret = (struct referrer_list){.items = items, .n = n, .more = b->more, .storage = storage};
    return 0;
}

static int on_referrers(void *ctx, const char *body, size_t len, struct error *err)
{
    return oci_referrers_page(ctx, body, len, err);
}

/* "sha256-..." as the distribution specification makes it of a digest. */
static void fallback_tag(const struct digest *d, char tag[static DIGEST_TEXT_MAX])
{
    char hex[DIGEST_TEXT_MAX];
    snprintf(tag, DIGEST_TEXT_MAX, "%.32s-%.64s", digest_alg_name(d->alg),
             digest_format_hex(d, hex));
}

static int by_fallback_tag(struct oci *o, const char *name, const struct digest *subject,
                           struct oci_referrers_build *b, struct error *err)
{
    char tag[DIGEST_TEXT_MAX];
    struct manifest m = {0};
    fallback_tag(subject, tag);
    int rc = oci_confirm_manifest(o, name, tag, clock_monotonic_ms() + OCI_LIST_TIME_MS, &m, err);
    if (rc <= 0)
        return rc;
    rc = oci_referrers_page(b, m.bytes, m.len, err) < 0 ? -1 : 1;
    manifest_done(&m);
    return rc < 0 ? err_wrap(err, "upstream %s, %s:%s", o->config->prefix, name, tag) : 1;
}

int oci_referrers(struct oci *o, const char *name, const struct digest *subject,
                  struct referrer_list *ret, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    _cleanup_(oci_referrers_build_done) struct oci_referrers_build b = {0};
    char *url = oci_url(o, name, "referrers", digest_format(subject, text));
    int rc = each_page(o, name, url, OCI_INDEX_TYPE, on_referrers, &b, err);
    if (rc == 0)
        rc = by_fallback_tag(o, name, subject, &b, err);
    if (rc <= 0)
        return rc;
    return oci_referrers_finish(&b, ret, err) < 0 ? -1 : ret->n > 0;
}

/* ---- tags ------------------------------------------------------------------------------------ */

static int add_tag(struct name_list *l, const char *tag, struct error *err)
{
    char **names = l->names;
    if ((l->n & (l->n - 1)) == 0) { /* room runs out at the powers of two */
        names = reallocarray(l->names, l->n ? l->n * 2 : 1, sizeof(*names));
        if (!names)
            return err_set(err, ERR_NOMEM, "out of memory for a list of tags");
        l->names = names;
    }
    if (!(names[l->n] = strdup(tag)))
        return err_set(err, ERR_NOMEM, "out of memory for a list of tags");
    l->n++;
    return 0;
}

static int on_tags(void *ctx, const char *body, size_t len, struct error *err)
{
    struct name_list *l = ctx;
    _cleanup_json_ struct json *root = NULL;
    if (parse(body, len, &root, err) < 0)
        return -1;
    const struct json *tags = json_get(root, "tags");
    if (!json_is_object(root) || (tags && !json_is_array(tags) && !json_is_null(tags)))
        return err_set(err, ERR_UPSTREAM, "it is no list of tags");
    for (const struct json *j = json_first(tags); j; j = json_next(j)) {
        const char *tag = json_str(j);
        if (!tag || !tag_is_valid(tag)) /* nobody could ask for it */
            continue;
        if (l->n == OCI_LIST_ITEMS_MAX) {
            l->more = true;
            return 1;
        }
        if (add_tag(l, tag, err) < 0)
            return -1;
    }
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_tags(struct name_list *l)
{
    size_t n = 0;
    if (l->n)
        qsort(l->names, l->n, sizeof(*l->names), by_bytes);
    for (size_t i = 0; i < l->n; i++) {
        if (n && strcmp(l->names[n - 1], l->names[i]) == 0)
            free(l->names[i]);
        else
            l->names[n++] = l->names[i];
    }
    l->n = n;
}

int oci_tags(struct oci *o, const char *name, struct name_list *ret, struct error *err)
{
    struct name_list l = {0};
    char reference[32];
    snprintf(reference, sizeof(reference), "list?n=%u", TAGS_PAGE);
    int rc = each_page(o, name, oci_url(o, name, "tags", reference), "application/json", on_tags,
                       &l, err);
    if (rc <= 0) {
        name_list_done(&l);
        return rc;
    }
    sort_tags(&l);
    *ret = l;
    return 1;
}
