/* Whether a caller may have what is held of a Hub's repository, where `credentials: forward` says
 * that the caller's own token decides: the Hub is asked, with that token and nobody else's, before
 * anything is told or given, also of what is here already.
 *
 * A verdict is believed for auth_ttl (a refusal for ACCESS_REFUSED_S at most) and belongs to the
 * token that it was given to: it is kept under the token's SHA-256, in memory only. One question
 * runs for a (token, repository, level), however many wait for it. When the Hub cannot be asked
 * (down, limiting, offline by configuration), the same caller's last positive verdict counts for
 * ACCESS_STALE_S, and everybody may have a repository of which the store has the Hub's word that it
 * is neither private nor gated: the document "info" of the repository as such (storage/hub.h),
 * unless the Hub has refused this caller since, or has kept the repository back from anybody at
 * all. Tokens are in no text.
 *
 * A verdict is about the repository that has the id. Where things are stored of the id, the Hub is
 * asked for its info with the caller's token as well, once in auth_ttl: a verdict counts only while
 * this caller has been told the identity that the store has (upstream/hub_identity.h). What is
 * stored of commits is given by hub_look_commit() (hub_mirror_private.h) only when they are in that
 * repository.
 *
 * With `credentials: own` the answer is always yes. Thread-safe; blocks within the Hub's limits.
 */
#ifndef WB_UPSTREAM_HUB_ACCESS_H
#define WB_UPSTREAM_HUB_ACCESS_H

#include "config/config.h"
#include "storage/store.h"
#include "upstream/hub.h"

#define ACCESS_REFUSED_S 10u
#define ACCESS_STALE_S 900u

struct hub_access;

/* config, upstream and store outlive it. */
int hub_access_new(const struct config *c, const struct config_upstream *u, struct store *s,
                   struct hub_access **ret, struct error *err);
/* No check may be running. NULL is fine. */
void hub_access_free(struct hub_access *a);

/* Whether anybody has to be asked at all. */
bool hub_access_is_forward(const struct hub_access *a);

enum hub_access_level {
    HUB_ACCESS_METADATA, /* info, file list, refs: a gated repository's are public */
    HUB_ACCESS_CONTENT,  /* its files; implies the metadata */
};

/* 0: this caller may. id: with its kind, or an alias; token: NULL = the caller sent none. The
 * refusals: ERR_UNAUTHORIZED (no token, or none that the Hub knows), ERR_DENIED (gated),
 * ERR_NOT_FOUND (private to this token, or not there at all), with *ret_missing (may be NULL) for
 * the Hub's own code; without a token a missing repository is ERR_UNAUTHORIZED and
 * HUB_MISSING_REPOSITORY, as the Hub itself does not tell the two apart. Else the Hub's failure
 * (ERR_UPSTREAM, ERR_TIMEOUT, ERR_RATE_LIMITED, ...). h is asked through hub_as(). */
int hub_access_check(struct hub_access *a, struct hub *h, const char *id,
                     enum hub_access_level level, const char *token, enum hub_missing *ret_missing,
                     struct error *err);

/* The Hub has just answered this caller's own question about the repository: spares the next
 * hub_access_check() its request. identity: as hub_identity_note() gave it; NULL: the answer does
 * not tell it. */
void hub_access_allowed(struct hub_access *a, const char *id, enum hub_access_level level,
                        const char *token, const char *identity);

/* Who the caller is, in the Hub's words (JSON, appended), kept like a verdict. ERR_UNAUTHORIZED and
 * HUB_MISSING_TOKEN. */
int hub_access_whoami(struct hub_access *a, struct hub *h, const char *token, struct strbuf *json,
                      enum hub_missing *ret_missing, struct error *err);

#endif
