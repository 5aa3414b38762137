/* Which repository it is that has an id. A name can be given to another one: the first is deleted
 * or renamed, and a new one is made. The Hub gives each repository an identity of its own, which
 * its info answers tell; the store keeps the last one that it told of an id, and with each commit
 * the repository that the Hub has said the commit is in. A commit of another repository than the
 * id's present one is not to be had by the rights to that one.
 *
 * Kept as the documents "identity" of the id and of the commit (storage/hub.h). Thread-safe.
 */
#ifndef WB_UPSTREAM_HUB_IDENTITY_H
#define WB_UPSTREAM_HUB_IDENTITY_H

#include "config/config.h"
#include "storage/store.h"
#include "upstream/hub.h"

#define HUB_IDENTITY_NONE "-" /* the Hub tells none: there is nothing to compare */

/* Of an id, or with a commit that commit's: 1; 0 not known, -1. */
int hub_identity_get(struct store *s, const char *upstream, const char *id, const char *commit,
                     char ret[static HUB_IDENTITY_MAX + 1], struct error *err);

/* The Hub has answered the question after `asked` (an id, or a name of one) with r, whose commit is
 * "" where it is no matter. Where an id turns out to be another repository's with `credentials:
 * forward`, its names, revisions, the documents about it as such and all that imports have stored
 * are forgotten; with `own` the identity stays as it is, for what is here was had by our own
 * rights. ret: of `asked`, never empty. -1: a change could not be stored, and nobody may be given
 * anything by this answer. */
int hub_identity_note(struct store *s, const struct config_upstream *u, const char *asked,
                      const struct hub_revision *r, char ret[static HUB_IDENTITY_MAX + 1],
                      struct error *err);

/* A name of the registry, of which row tells what imports stored, means `now` (which has been
 * noted): unless that is the same repository under another id, what they stored goes. */
int hub_identity_check_name(struct store *s, const struct config_upstream *u, const char *name,
                            const struct repository_row *row, const struct hub_revision *now,
                            struct error *err);

/* An import of this revision has just been stored under the name: ERR_UPSTREAM, and it is not there
 * any more, when its id is another repository's by now. */
int hub_identity_check_import(struct store *s, const struct config_upstream *u, const char *name,
                              const struct hub_revision *of, struct error *err);

/* The Hub said that the commit is in the repository of this name, which was this one or a later one
 * then. */
void hub_identity_confirm(struct store *s, const char *upstream, const char *id, const char *commit,
                          const char *identity);

#endif
