#include "storage/keys.h"

#include <string.h>

#include "base/strbuf.h"

void key_put(struct key *k, const void *data, size_t len)
{
    if (k->overflow || len > KEY_MAX - k->len) {
        k->overflow = true;
        return;
    }
    memcpy(k->data + k->len, data, len);
    k->len += len;
}

void key_put_text(struct key *k, const char *s)
{
    key_put(k, s, strlen(s));
}

void key_put_name(struct key *k, const char *s)
{
    key_put(k, s, strlen(s) + 1);
}

void key_put_digest(struct key *k, const struct digest *d)
{
    unsigned char alg = (unsigned char)d->alg;
    key_put(k, &alg, 1);
    key_put(k, d->raw, digest_size(d->alg));
}

size_t key_get_digest(const void *data, size_t len, struct digest *ret)
{
    const unsigned char *p = data;
    if (len == 0)
        return 0;
    size_t size = digest_size((enum digest_alg)p[0]);
    if (size == 0 || len - 1 < size)
        return 0;
    *ret = (struct digest){.alg = (enum digest_alg)p[0]};
    memcpy(ret->raw, p + 1, size);
    return size + 1;
}

struct key key_of_digest(const struct digest *d)
{
    struct key k = KEY_INIT;
    key_put_digest(&k, d);
    return k;
}

struct key key_of_mismatch(const struct digest *d, const struct name_id *repository)
{
    struct key k = key_of_digest(d);
    if (repository)
        key_put(&k, repository->raw, sizeof(repository->raw));
    return k;
}

struct key key_of_repository(const char *repository)
{
    struct key k = KEY_INIT;
    key_put_name(&k, repository);
    return k;
}

struct key key_of_tag(const char *repository, const char *tag)
{
    struct key k = key_of_repository(repository);
    key_put_text(&k, tag);
    return k;
}

struct key key_of_content(const char *repository, const struct digest *d)
{
    struct key k = key_of_repository(repository);
    key_put_digest(&k, d);
    return k;
}

struct key key_of_uses(const struct digest *blob, const char *repository)
{
    struct key k = key_of_digest(blob);
    key_put_name(&k, repository);
    return k;
}

struct key key_of_use(const struct digest *blob, const char *repository,
                      const struct digest *manifest)
{
    struct key k = key_of_uses(blob, repository);
    key_put_digest(&k, manifest);
    return k;
}

bool key_get_use(const void *data, size_t len, struct digest *ret_blob, const char **ret_repository,
                 struct digest *ret_manifest)
{
    const char *at = data;
    size_t n = key_get_digest(data, len, ret_blob);
    if (n == 0)
        return false;
    at += n;
    len -= n;
    const char *end = memchr(at, '\0', len);
    if (!end)
        return false;
    *ret_repository = at;
    len -= (size_t)(end + 1 - at);
    at = end + 1;
    *ret_manifest = (struct digest){.alg = DIGEST_NONE};
    if (len == 1 && *at == DIGEST_NONE)
        return true;
    return len > 0 && key_get_digest(at, len, ret_manifest) == len;
}

struct key key_of_referrer(const char *repository, const struct digest *subject,
                           const struct digest *manifest)
{
    struct key k = key_of_repository(repository);
    key_put_digest(&k, subject);
    if (manifest)
        key_put_digest(&k, manifest);
    return k;
}

#define TOLD 1 /* one byte behind the digest */

struct key key_of_told_referrer(const char *repository, const struct digest *subject,
                                const struct digest *manifest)
{
    struct key k = key_of_referrer(repository, subject, manifest);
    key_put(&k, (const unsigned char[]){TOLD}, 1);
    return k;
}

bool key_get_referrer(const void *data, size_t len, struct digest *ret, bool *ret_told)
{
    size_t n = key_get_digest(data, len, ret);
    if (n == 0)
        return false;
    *ret_told = len == n + 1 && ((const unsigned char *)data)[n] == TOLD;
    return len == n || *ret_told;
}

struct key key_of_history(const char *repository, const char *tag)
{
    struct key k = key_of_repository(repository);
    key_put_name(&k, tag);
    return k;
}

#define SEQUENCE_SIZE 8 /* highest byte first, so that keys sort by it */

struct key key_of_event(const char *repository, const char *tag, uint64_t sequence)
{
    struct key k = key_of_history(repository, tag);
    unsigned char raw[SEQUENCE_SIZE];
    for (int i = SEQUENCE_SIZE - 1; i >= 0; i--, sequence >>= 8)
        raw[i] = (unsigned char)sequence;
    key_put(&k, raw, sizeof(raw));
    return k;
}

bool key_get_sequence(const void *data, size_t len, const struct key *prefix, uint64_t *ret)
{
    const unsigned char *raw = (const unsigned char *)data + prefix->len;
    uint64_t n = 0;
    if (len != prefix->len + SEQUENCE_SIZE)
        return false;
    for (int i = 0; i < SEQUENCE_SIZE; i++)
        n = n << 8 | raw[i];
    *ret = n;
    return true;
}

int digest_order(const void *a, const void *b)
{
    const struct digest *x = a, *y = b;
    if (x->alg != y->alg)
        return x->alg < y->alg ? -1 : 1;
    return memcmp(x->raw, y->raw, digest_size(x->alg));
}

/* Appends the hash of the names, each with its NUL. */
static int put_hash(struct key *k, const char *const *names, size_t n, struct error *err)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct digest d;
    for (size_t i = 0; i < n; i++)
        strbuf_put(&b, names[i], strlen(names[i]) + 1);
    if (strbuf_failed(&b))
        return err_set(err, ERR_NOMEM, "out of memory");
    if (digest_of(DIGEST_SHA256, b.data, b.len, &d, err) < 0)
        return -1;
    key_put(k, d.raw, digest_size(d.alg));
    return 0;
}

int key_of_commit(const char *upstream, const char *repo_id, const char *commit, struct key *ret,
                  struct error *err)
{
    const char *names[] = {upstream, repo_id, commit};
    *ret = KEY_INIT;
    return put_hash(ret, names, ARRAY_LEN(names), err);
}

int key_of_hub(const char *upstream, const char *name, struct key *ret, struct error *err)
{
    const char *names[] = {upstream, name};
    *ret = KEY_INIT;
    return put_hash(ret, names, ARRAY_LEN(names), err);
}

struct key key_of_documents(const struct key *repository, const char *commit)
{
    struct key k = *repository;
    key_put_name(&k, commit);
    return k;
}

int key_of_document(const struct key *repository, const char *commit, const char *what,
                    struct key *ret, struct error *err)
{
    *ret = key_of_documents(repository, commit);
    return put_hash(ret, &what, 1, err);
}

struct key key_of_hub_file(const struct key *commit, const struct digest *d)
{
    struct key k = *commit;
    key_put_digest(&k, d);
    return k;
}

struct key key_of_hub_use(const struct digest *d, const struct key *commit)
{
    struct key k = key_of_digest(d);
    key_put(&k, commit->data, commit->len);
    return k;
}

void key_list_add(struct key_list *l, const void *data, size_t len)
{
    uint16_t n = (uint16_t)len; /* keys are at most KEY_MAX */
    strbuf_put(&l->data, &n, sizeof(n));
    strbuf_put(&l->data, data, len);
}

bool key_list_next(const struct key_list *l, size_t *pos, struct key *ret)
{
    uint16_t n;
    if (*pos >= l->data.len)
        return false;
    memcpy(&n, l->data.data + *pos, sizeof(n));
    *ret = KEY_INIT;
    key_put(ret, l->data.data + *pos + sizeof(n), n);
    *pos += sizeof(n) + n;
    return true;
}
