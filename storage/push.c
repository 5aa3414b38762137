/* Checks of what comes from outside, then one whole operation on the rows. */
#include "storage/push.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/fault.h"
#include "storage/store_private.h"

void digest_list_done(struct digest_list *l)
{
    free(l->items);
    *l = (struct digest_list){0};
}

void referrer_list_done(struct referrer_list *l)
{
    free(l->items);
    free(l->storage);
    *l = (struct referrer_list){0};
}

void tag_history_done(struct tag_history *h)
{
    free(h->events);
    free(h->storage);
    *h = (struct tag_history){0};
}

static int check_origin(const struct origin *o, struct error *err)
{
    if (!*o->upstream || strlen(o->upstream) > REPOSITORY_MAX || !*o->repo_id ||
        strlen(o->repo_id) > REPOSITORY_MAX)
        return err_set(err, ERR_INVALID,
                       "an upstream's name or repository id is empty or over %d bytes",
                       REPOSITORY_MAX);
    if (*o->commit || *o->path)
        return err_set(err, ERR_INTERNAL, "a registry's origin has neither a commit nor a path");
    return 0;
}

static int check_names(const struct push_record *r, struct error *err)
{
    if (r->origin && check_origin(r->origin, err) < 0)
        return -1;
    if (store_check_content(r->repository, &r->digest, err) < 0 ||
        (r->subject && store_check_digest(r->subject, err) < 0))
        return -1;
    for (size_t i = 0; i < r->n_tags; i++)
        if (store_check_tag(r->repository, r->tags[i], err) < 0)
            return -1;
    for (size_t i = 0; i < r->n_needs; i++)
        if (store_check_digest(&r->needs[i].digest, err) < 0)
            return -1;
    /* it becomes a C string */
    if (r->annotations && memchr(r->annotations, '\0', r->annotations_len))
        return err_set(err, ERR_INVALID, "the annotations have a zero byte in them");
    return 0;
}

static int check_bytes(const struct push_record *r, struct error *err)
{
    struct digest real;
    if (digest_of(r->digest.alg, r->manifest, r->len, &real, err) < 0)
        return -1;
    if (!digest_equal(&real, &r->digest))
        return err_set(err, ERR_INTERNAL, "a manifest pushed to %s does not hash to its digest",
                       r->repository);
    return 0;
}

int store_manifest_push(struct store *s, const struct push_record *r,
                        struct digest_list *ret_missing, struct error *err)
{
    *ret_missing = (struct digest_list){0};
    if (check_names(r, err) < 0 || check_bytes(r, err) < 0)
        return -1;
    /* The rows decide, in one transaction; but a row whose file is gone must not decide. */
    for (size_t i = 0; i < r->n_needs; i++) {
        uint64_t size;
        if (store_blob_stat(s, &r->needs[i].digest, &size, err) < 0)
            return -1;
    }
    if (meta_manifest_push(s->meta, r, ret_missing, err) < 0)
        return -1;
    fault_point("push.done");
    return 0;
}

int store_blob_unlink(struct store *s, const char *repository, const struct digest *d,
                      const struct tag_guard *guard, struct error *err)
{
    if (store_check_content(repository, d, err) < 0)
        return -1;
    return meta_blob_unlink(s->meta, repository, d, guard, err);
}

int store_blob_mount(struct store *s, const char *repository, const struct digest *d,
                     const char *from, struct error *err)
{
    uint64_t size;
    if (store_check_content(repository, d, err) < 0 || store_check_repository(from, err) < 0)
        return -1;
    int r = store_blob_stat(s, d, &size, err);
    return r <= 0 ? r : meta_blob_mount(s->meta, repository, d, from, err);
}

int store_blob_repositories(struct store *s, const struct digest *d, const char *last, size_t limit,
                            struct name_list *ret, struct error *err)
{
    if (store_check_digest(d, err) < 0 || (last && store_check_repository(last, err) < 0))
        return -1;
    return meta_blob_repositories(s->meta, d, last, limit, ret, err);
}

int store_link_record(struct store *s, const char *repository, const struct digest *d,
                      uint64_t size, const struct origin *origin, struct error *err)
{
    uint64_t held;
    if (store_check_content(repository, d, err) < 0 || check_origin(origin, err) < 0)
        return -1;
    /* As in a push: a row whose file is gone must not speak for its size. */
    if (store_blob_stat(s, d, &held, err) < 0)
        return -1;
    return meta_link_record(s->meta, repository, d, size, origin, err);
}

void store_link_proved(struct store *s, const char *repository, const struct digest *d)
{
    if (store_check_content(repository, d, NULL) == 0)
        meta_link_proved_later(s->meta, repository, d);
}

int store_link_resize(struct store *s, const char *repository, const struct digest *d,
                      uint64_t size, struct error *err)
{
    if (store_check_content(repository, d, err) < 0)
        return -1;
    return meta_link_resize(s->meta, repository, d, size, err);
}

int store_referrers_replace(struct store *s, const char *repository, const struct digest *subject,
                            const struct referrer *items, size_t n, struct error *err)
{
    if (store_check_content(repository, subject, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (store_check_digest(&items[i].digest, err) < 0)
            return -1;
    if (meta_referrers_replace(s->meta, repository, subject, items, n, err) < 0)
        return -1;
    fault_point("referrers.done");
    return 0;
}

int store_referrers(struct store *s, const char *repository, const struct digest *subject,
                    const char *artifact_type, const struct digest *last, size_t limit,
                    size_t max_bytes, struct referrer_list *ret, struct error *err)
{
    if (store_check_content(repository, subject, err) < 0 ||
        (last && store_check_digest(last, err) < 0))
        return -1;
    return meta_referrers(s->meta, repository, subject, artifact_type, last, limit, max_bytes, ret,
                          err);
}

int store_tag_history(struct store *s, const char *repository, const char *tag, size_t limit,
                      struct tag_history *ret, struct error *err)
{
    if (store_check_tag(repository, tag, err) < 0)
        return -1;
    return meta_tag_history(s->meta, repository, tag, limit, ret, err);
}
