/* Keys of the rows. A key is built from parts; no part can run into the next, because names end
 * with a NUL (they have none themselves) and the algorithm byte of a digest says how long it is.
 * docs/on-disk-format.md has the table of them.
 */
#ifndef WB_STORAGE_KEYS_H
#define WB_STORAGE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "storage/lent.h"

#define KEY_MAX 511 /* LMDB's own limit */

struct key {
    size_t len;
    bool overflow; /* a part did not fit: no such row can exist */
    unsigned char data[KEY_MAX];
};

#define KEY_INIT ((struct key){.len = 0})

void key_put(struct key *k, const void *data, size_t len);
void key_put_text(struct key *k, const char *s); /* without the NUL: the last part of a key */
void key_put_name(struct key *k, const char *s); /* with the NUL */
void key_put_digest(struct key *k, const struct digest *d);

/* Reads a digest at the start of `data`; 0 when there is none, else the bytes it takes. */
size_t key_get_digest(const void *data, size_t len, struct digest *ret);

struct key key_of_digest(const struct digest *d);
/* repository: NULL = the row that is for everybody */
struct key key_of_mismatch(const struct digest *d, const struct name_id *repository);
struct key key_of_repository(const char *repository); /* prefix of its tags, links, manifests */
struct key key_of_tag(const char *repository, const char *tag);
struct key key_of_content(const char *repository, const struct digest *d); /* link, manifest */
/* uses: blob, then repository, then the manifest that needs it there */
struct key key_of_use(const struct digest *blob, const char *repository,
                      const struct digest *manifest);
struct key key_of_uses(const struct digest *blob, const char *repository); /* prefix */
/* Takes a key of `uses` apart; a hold has no manifest (alg NONE). *ret_repository points into the
 * key. False when it is no such key. */
bool key_get_use(const void *data, size_t len, struct digest *ret_blob, const char **ret_repository,
                 struct digest *ret_manifest);
/* repository, subject, then the manifest whose subject it is (NULL: the prefix of all) */
struct key key_of_referrer(const char *repository, const struct digest *subject,
                           const struct digest *manifest);
/* The same of what only an upstream told: behind the row of a manifest that is here. */
struct key key_of_told_referrer(const char *repository, const struct digest *subject,
                                const struct digest *manifest);
/* What follows the prefix of a subject: the manifest's digest, and who said it. */
bool key_get_referrer(const void *data, size_t len, struct digest *ret, bool *ret_told);
struct key key_of_history(const char *repository, const char *tag); /* prefix of the tag's events */
struct key key_of_event(const char *repository, const char *tag, uint64_t sequence);
bool key_get_sequence(const void *data, size_t len, const struct key *prefix, uint64_t *ret);

/* For qsort() and bsearch(): digests in the order of keys. */
int digest_order(const void *a, const void *b);

/* A commit's names may be longer together than a key can be, so the key is their hash (the row
 * repeats the names). Fails only when hashing does. */
int key_of_commit(const char *upstream, const char *repo_id, const char *commit, struct key *ret,
                  struct error *err);

/* ---- of the Hub's own API (storage/hub.h): what begins with the hash of an upstream and a name
 * --- */

/* A name, or what all rows of a repository begin with. Fails only when hashing does. */
int key_of_hub(const char *upstream, const char *name, struct key *ret, struct error *err);
/* Further parts. A document's name may be longer than a key can be. */
int key_of_document(const struct key *repository, const char *commit, const char *what,
                    struct key *ret, struct error *err);
struct key key_of_documents(const struct key *repository, const char *commit); /* prefix */
/* commit: the key of a repository with the commit behind it */
struct key key_of_hub_file(const struct key *commit, const struct digest *d);
struct key key_of_hub_use(const struct digest *d, const struct key *commit);

/* Keys that a scan picked, for a later step. strbuf_done(&l.data) frees it; running out of memory
 * shows in strbuf_failed(&l.data). */
struct key_list {
    struct strbuf data;
};
#define KEY_LIST_INIT ((struct key_list){.data = STRBUF_INIT})
static inline void key_list_done(struct key_list *l)
{
    strbuf_done(&l->data);
}
#define _cleanup_key_list_ _cleanup_(key_list_done)
void key_list_add(struct key_list *l, const void *data, size_t len);
/* The key at *pos (0 at first), which moves on; false at the end. */
bool key_list_next(const struct key_list *l, size_t *pos, struct key *ret);

#endif
