/* Stand-ins for storage/push.h: what a push hands over is kept to be looked at, and what is read
 * back is made up by rule. Part of fakes.h. */
#ifndef WB_TESTS_SERVER_FAKES_PUSH_H
#define WB_TESTS_SERVER_FAKES_PUSH_H

#include "storage/store.h"

#define MIRRORED "hf/org/model" /* has every fake blob, with an origin */

/* The last push, and how many there were. */
static struct {
    unsigned n;
    char repository[REPOSITORY_MAX + 1];
    bool is_mirror;
    struct digest digest;
    char media_type[128];
    char *bytes; /* freed by the next push */
    size_t len;
    struct push_need needs[8];
    size_t n_needs;
    bool has_subject;
    struct digest subject;
    char artifact_type[128], annotations[256];
    char tags[101][TAG_MAX + 1];
    size_t n_tags;
    char source[128];
} pushed;

static struct digest fake_missing[200]; /* what storage says is not there */
static size_t fake_n_missing;
static struct error fake_push_error;
static const char *fake_taken_tag;  /* points at another manifest already */
static unsigned fake_referrers;     /* how many there are of any digest */
static size_t fake_annotation_size; /* of each; 0 = none */
static struct digest fake_unlinked;
static bool fake_has_guard; /* for the last removal of a blob */
static char fake_removed_by[128];

static void fake_push_done(void)
{
    free(pushed.bytes);
    pushed.bytes = NULL;
}

static void keep_push(const struct push_record *r)
{
    free(pushed.bytes);
    memset(&pushed.repository, 0, sizeof(pushed) - offsetof(__typeof__(pushed), repository));
    pushed.n++;
    snprintf(pushed.repository, sizeof(pushed.repository), "%s", r->repository);
    pushed.is_mirror = r->is_mirror;
    pushed.digest = r->digest;
    snprintf(pushed.media_type, sizeof(pushed.media_type), "%s", r->media_type);
    pushed.bytes = malloc(r->len + 1);
    memcpy(pushed.bytes, r->manifest, r->len);
    pushed.len = r->len;
    pushed.n_needs = r->n_needs;
    for (size_t i = 0; i < r->n_needs && i < ARRAY_LEN(pushed.needs); i++)
        pushed.needs[i] = r->needs[i];
    pushed.has_subject = r->subject != NULL;
    if (r->subject)
        pushed.subject = *r->subject;
    snprintf(pushed.artifact_type, sizeof(pushed.artifact_type), "%s", r->artifact_type);
    if (r->annotations)
        snprintf(pushed.annotations, sizeof(pushed.annotations), "%.*s", (int)r->annotations_len,
                 r->annotations);
    pushed.n_tags = r->n_tags;
    for (size_t i = 0; i < r->n_tags; i++)
        snprintf(pushed.tags[i], TAG_MAX + 1, "%s", r->tags[i]);
    snprintf(pushed.source, sizeof(pushed.source), "%s", r->source);
}

int store_manifest_push(struct store *s, const struct push_record *r,
                        struct digest_list *ret_missing, struct error *err)
{
    (void)s;
    if (fake_push_error.code != ERR_NONE) {
        *err = fake_push_error;
        return -1;
    }
    if (fake_n_missing) {
        ret_missing->items = malloc(fake_n_missing * sizeof(struct digest));
        memcpy(ret_missing->items, fake_missing, fake_n_missing * sizeof(struct digest));
        ret_missing->n = fake_n_missing;
        return err_set(err, ERR_NOT_FOUND, "%zu needs are not here", fake_n_missing);
    }
    for (size_t i = 0; i < r->n_tags && fake_taken_tag; i++)
        if (strcmp(r->tags[i], fake_taken_tag) == 0 && r->guard &&
            r->guard->is_immutable(r->guard->ctx, r->repository, r->tags[i]))
            return err_set(err, ERR_CONFLICT, "%s (immutable_tags) points at sha256:1234",
                           r->tags[i]);
    keep_push(r);
    return 0;
}

void digest_list_done(struct digest_list *l)
{
    free(l->items);
    *l = (struct digest_list){0};
}

int store_link_get(struct store *s, const char *repository, const struct digest *d,
                   struct link *ret, struct error *err)
{
    (void)s, (void)err;
    bool is_mirror = strcmp(repository, MIRRORED) == 0;
    if (!is_mirror && !fake_find(repository, d))
        return 0;
    *ret = (struct link){.size = HELD_SIZE, .held = true, .has_origin = is_mirror};
    return 1;
}

void link_done(struct link *l)
{
    free(l->storage);
    *l = (struct link){0};
}

int store_blob_unlink(struct store *s, const char *repository, const struct digest *d,
                      const struct tag_guard *guard, struct error *err)
{
    (void)s;
    fake_has_guard = guard != NULL;
    if (fake_taken_tag && guard && guard->is_immutable(guard->ctx, repository, fake_taken_tag))
        return err_set(err, ERR_CONFLICT, "%s is there (immutable_tags)", fake_taken_tag);
    fake_unlinked = *d;
    return 0;
}

static char fake_removed_from[REPOSITORY_MAX + 1]; /* or would have been, were it there */

int store_remove(struct store *s, const struct reference *r, const struct tag_guard *guard,
                 const char *source, struct error *err)
{
    (void)s;
    snprintf(fake_removed_from, sizeof(fake_removed_from), "%s", r->repository);
    if (strcmp(r->repository, REPO) != 0)
        return err_set(err, ERR_NOT_FOUND, "nothing to remove");
    const char *tag = r->is_digest ? fake_taken_tag : r->tag;
    if (tag && guard && guard->is_immutable(guard->ctx, r->repository, tag))
        return err_set(err, ERR_CONFLICT, "%s is there (immutable_tags)", tag);
    snprintf(fake_removed_by, sizeof(fake_removed_by), "%s", source);
    atomic_fetch_add(&fake_removed, 1);
    return 0;
}

int store_hub_remove(struct store *s, const struct reference *r, const char *source,
                     struct error *err)
{
    return store_remove(s, r, NULL, source, err);
}

/* The i-th referrer: its digest begins with i, so that they are in order; every third is a
 * signature. */
static struct digest fake_referrer_digest(unsigned i)
{
    struct digest d = {.alg = DIGEST_SHA256};
    d.raw[0] = (unsigned char)(i >> 8);
    d.raw[1] = (unsigned char)i;
    return d;
}

static const char *fake_referrer_type(unsigned i)
{
    return i % 3 == 0 ? "application/vnd.test.signature.v1+json" : i % 3 == 1 ? "text/<sbom>" : "";
}

int store_referrers(struct store *s, const char *repository, const struct digest *subject,
                    const char *artifact_type, const struct digest *last, size_t limit,
                    size_t max_bytes, struct referrer_list *ret, struct error *err)
{
    (void)s, (void)subject, (void)err;
    size_t texts = 0;
    *ret = (struct referrer_list){.items = calloc(limit ? limit : 1, sizeof(*ret->items))};
    if (fake_annotation_size) { /* {"k":"xxx"} */
        ret->storage = malloc(fake_annotation_size + 16);
        memset(ret->storage, 'x', fake_annotation_size + 16);
        memcpy(ret->storage, "{\"k\":\"", 6);
        memcpy(ret->storage + 6 + fake_annotation_size, "\"}", 3);
    }
    for (unsigned i = 0; i < fake_referrers && strcmp(repository, "no/such") != 0; i++) {
        struct digest d = fake_referrer_digest(i);
        if (artifact_type && strcmp(artifact_type, fake_referrer_type(i)) != 0)
            continue;
        if (last && memcmp(d.raw, last->raw, 32) <= 0)
            continue;
        texts += fake_annotation_size;
        if (ret->n == limit || (ret->n && texts > max_bytes)) {
            ret->more = true;
            break;
        }
        ret->items[ret->n++] = (struct referrer){.digest = d,
                                                 .size = 1000 + i,
                                                 .media_type = "application/x-test",
                                                 .artifact_type = fake_referrer_type(i),
                                                 .annotations = ret->storage};
    }
    return 0;
}

void referrer_list_done(struct referrer_list *l)
{
    free(l->items);
    free(l->storage);
    *l = (struct referrer_list){0};
}

/* Of the tag "v1": pushed, imported, removed. */
int store_tag_history(struct store *s, const char *repository, const char *tag, size_t limit,
                      struct tag_history *ret, struct error *err)
{
    (void)s, (void)err;
    *ret = (struct tag_history){0};
    if (strcmp(repository, REPO) != 0 || strcmp(tag, "v1") != 0)
        return 0;
    ret->events = calloc(3, sizeof(*ret->events));
    ret->events[0] = (struct tag_event){.at_ms = 1796036700123, .source = "delete 10.0.0.9"};
    ret->events[1] = (struct tag_event){.at_ms = 1796036600000,
                                        .digest = fake_referrer_digest(1),
                                        .commit = "0123456789012345678901234567890123456789",
                                        .source = "import hf Org/Name"};
    ret->events[2] = (struct tag_event){
        .at_ms = 0, .digest = fake_referrer_digest(2), .source = "push 10.0.0.7"};
    ret->n = limit < 3 ? limit : 3;
    return 0;
}

void tag_history_done(struct tag_history *h)
{
    free(h->events);
    free(h->storage);
    *h = (struct tag_history){0};
}

#endif
