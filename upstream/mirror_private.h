/* What mirror*.c share: names and policies, questions under way, and what is remembered for a
 * while. For them and their tests, and for nobody else.
 */
#ifndef WB_UPSTREAM_MIRROR_PRIVATE_H
#define WB_UPSTREAM_MIRROR_PRIVATE_H

#include <pthread.h>

#include "model/oci_manifest.h"
#include "upstream/inquiry.h"
#include "upstream/mirror.h"
#include "upstream/notes.h"

#define LISTS_MAX 64u
#define MIRROR_LIST_WAIT_MS 30000u

/* ---- names and policies (mirror_policy.c): pure ---------------------------------------------- */

struct mirror_name {
    char full[REPOSITORY_MAX + 1]; /* what the store calls it: "docker.io/library/alpine" */
    const char *name;              /* in full, what the upstream calls it: "library/alpine" */
};
/* Both forms of a name, with the upstream's single_names or without, have the same full one.
 * ERR_INVALID: it is too long then, or has nothing behind the prefix. */
int mirror_name_of(const struct config_upstream *c, const char *repository, struct mirror_name *ret,
                   struct error *err);
/* ERR_DENIED names the setting. */
int mirror_check_repository(const struct config_upstream *c, const struct mirror_name *n,
                            struct error *err);
/* What a manifest would have us fetch: ERR_DENIED or ERR_TOO_LARGE name the setting, the descriptor
 * and the figures. */
int mirror_check_parts(const struct config_upstream *c, const struct mirror_name *n,
                       const struct oci_manifest *m, struct error *err);
int mirror_check_size(const struct config_upstream *c, const struct mirror_name *n,
                      const struct digest *d, uint64_t size, struct error *err);

/* ---- lists that are remembered for a while (mirror_notes.c) ---------------------------------- */

/* The upstream's lists of tags. */
struct tag_list {
    char *repository;
    uint64_t until_ms, used;
    struct name_list list;
};
struct tag_lists {
    pthread_mutex_t lock; /* guards: all below */
    uint64_t clock;
    struct tag_list items[LISTS_MAX];
};
void tag_lists_done(struct tag_lists *l);
/* Takes *list over. */
void tag_lists_put(struct tag_lists *l, const char *repository, uint64_t ttl_s,
                   struct name_list *list);
/* A copy: 1 and whether it still counts, 0 none, -1. */
int tag_lists_get(struct tag_lists *l, const char *repository, struct name_list *ret,
                  bool *ret_fresh, struct error *err);
/* Two sorted lists into one. */
int name_list_merge(const struct name_list *a, const struct name_list *b, struct name_list *ret,
                    struct error *err);

/* ---- questions (mirror_question.c) ----------------------------------------------------------- */

enum question_kind { ASK_TAG, ASK_MANIFEST, ASK_BLOB, ASK_SIZE, ASK_REFERRERS, ASK_TAGS };

struct question {
    enum question_kind kind;
    struct mirror_name name;
    char tag[TAG_MAX + 1]; /* ASK_TAG */
    struct digest digest;  /* of a manifest, a blob, a subject */
};
#define QUESTION_KEY_MAX (REPOSITORY_MAX + DIGEST_TEXT_MAX + TAG_MAX + 8)
char *question_key(const struct question *q, char buf[static QUESTION_KEY_MAX]);
/* The name points into its own struct. */
void question_copy(struct question *to, const struct question *from);

struct outcome {
    struct digest digest; /* ASK_TAG: what it names, which the store has now */
    bool is_gone;         /* an error that is the upstream's word on what was asked for */
    /* The disk is full or fails, so this is all there is of it. */
    bool is_unstored;
    char stale[OCI_STALE_MAX]; /* what the upstream says of its own upstream */
    struct manifest manifest;  /* owned */
    uint64_t size;             /* of a blob */
};
void outcome_done(struct outcome *o);
#define _cleanup_outcome_ _cleanup_(outcome_done)

extern const struct inquiry_kind mirror_questions;

/* Has a question answered, once for everybody who asks it at the same time. patience_ms: how long
 * the caller waits (0 = as long as it takes); the question goes on without it, in a thread of its
 * own. A caller with patience is not kept waiting while answers to others are late, nor when there
 * are too many questions: ERR_TIMEOUT, ERR_BUSY. */
int mirror_ask(struct mirror *m, const struct question *q, uint64_t patience_ms,
               struct outcome *ret, struct error *err);

/* ---- the mirror itself ----------------------------------------------------------------------- */

struct mirror {
    const struct config_upstream *config;
    bool offline;
    struct store *store;
    struct oci *oci;
    struct inquiry_table questions;
    struct notes negatives; /* by question */
    struct notes asked;     /* questions that need not be asked again for a while */
    struct tag_lists tag_lists;
};

/* Answers a question on the calling thread, and brings the store up to date (mirror_answer.c). */
int mirror_answer(struct mirror *m, const struct question *q, struct outcome *ret,
                  struct error *err);

/* Whether a tag is still believed. */
bool mirror_is_fresh(struct mirror *m, const struct question *q, const struct tag *tag);
/* ERR_NOT_FOUND: it is not here, and nothing is asked. */
int mirror_is_offline(const struct mirror *m, const char *what, struct error *err);
/* err_set() and -1 for what the upstream does not have. */
int mirror_no_such(const struct mirror *m, const struct question *q, struct error *err);
/* What was stored is better than this error. */
bool mirror_may_be_stale(const struct error *err);

#endif
