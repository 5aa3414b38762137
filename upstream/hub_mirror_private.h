/* What hub_mirror*.c share: names and pins, questions under way, file lists, documents. For them
 * and their tests, and for nobody else.
 *
 *     hub_mirror.c         a mirror, and what a client's question is about: name, id, revision,
 *                          policies, rights
 *     hub_mirror_pin.c     which commit that is, and when what is stored has to do
 *     hub_mirror_ask.c     asking the Hub, and bringing the store up to date with what it says
 *     hub_mirror_flight.c  questions under way: each is asked once
 *     hub_mirror_rows.c    file lists
 *     hub_mirror_cache.c   those in memory
 *     hub_mirror_text.c    long texts, while they are sent
 *     hub_mirror_file.c    files
 *     hub_mirror_info.c    info and refs
 *     hub_mirror_tree.c    expanded rows and history
 *     hub_mirror_json.c    what is changed in the Hub's own JSON (pure)
 */
#ifndef WB_UPSTREAM_HUB_MIRROR_PRIVATE_H
#define WB_UPSTREAM_HUB_MIRROR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "upstream/caller.h"
#include "upstream/hub_access.h"
#include "upstream/hub_mirror.h"
#include "upstream/hub_private.h"
#include "upstream/inquiry.h"
#include "upstream/notes.h"

/* Clients give up on a file when an answer has not begun 10 s after they asked (huggingface_hub's
 * HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT, unless the user sets others). */
#define HUB_FILE_PATIENCE_MS 8000u
#define HUB_LIST_PATIENCE_MS 2000u /* a HEAD waits so long for a list that answers all others */
#define HUB_DOCUMENT_MAX (64u << 20)
#define HUB_ROWS_CACHED 64u
#define HUB_ROWS_BYTES_MAX (128u << 20) /* of the lists in memory; a longer one is there alone */
#define HUB_NO_OID "0000000000000000000000000000000000000000"

/* ---- file lists (hub_mirror_rows.c, hub_mirror_cache.c) -------------------------------------- */

/* The files and folders of a commit; does not change any more. */
struct hub_rows {
    atomic_uint users;
    size_t bytes;             /* that it takes up, nearly */
    struct hub_rows *whole;   /* where some of it is hidden: the list that owns paths and folders */
    struct commit_files list; /* sorted by path */
    bool has_folders;         /* as the Hub has them; else as the paths name them, without ids */
    struct hub_folder *folders;
    size_t n_folders;
    char *folder_texts;
};
/* Takes list over, also on failure. folders: of hub_files_and_folders(), NULL = not known. */
int hub_rows_make(struct commit_files *list, const struct strbuf *folders, struct hub_rows **ret,
                  struct error *err);
struct hub_rows *hub_rows_ref(struct hub_rows *r);
void hub_rows_unref(struct hub_rows *r); /* NULL is fine */
static inline void hub_rows_unref_p(struct hub_rows **r)
{
    hub_rows_unref(*r);
}
#define _cleanup_hub_rows_ _cleanup_(hub_rows_unref_p)
const struct commit_file *hub_rows_file(const struct hub_rows *r, const char *path);
bool hub_rows_has_folder(const struct hub_rows *r, const char *folder);

/* What a list in memory is of. policies: what is hidden from it (NULL, NULL = nothing is). */
struct hub_rows_key {
    const char *id, *commit;
    const struct config_policy *policies[2];
    bool has_folders; /* of the list that something is hidden from */
};
struct hub_rows_load;
struct hub_rows_cache {
    pthread_mutex_t lock; /* guards: all below */
    pthread_cond_t loaded;
    struct hub_rows_load *loads; /* under way */
    uint64_t clock;
    size_t bytes;
    struct hub_rows_entry {
        struct hub_rows_key key; /* points into texts */
        char *texts;
        uint64_t used;
        size_t bytes;
        struct hub_rows *rows; /* NULL = the entry is free */
    } items[HUB_ROWS_CACHED];
};
int hub_rows_cache_init(struct hub_rows_cache *c, struct error *err);
void hub_rows_cache_done(struct hub_rows_cache *c);
void hub_rows_cache_put(struct hub_rows_cache *c, const char *id, const char *commit,
                        struct hub_rows *rows);
/* Lists of the commit go, and those that are being made are not kept. */
void hub_rows_cache_drop(struct hub_rows_cache *c, const char *commit);
/* The list in memory; else load() makes it, once for all who want it meanwhile, and it is kept.
 * load(): 1 and a list, 0 there is none, -1; then those who wait try for themselves. It must not
 * wait for anything but the disk. */
typedef int (*hub_rows_loader)(void *ctx, struct hub_rows **ret, struct error *err);
int hub_rows_cache_get(struct hub_rows_cache *c, const struct hub_rows_key *k, hub_rows_loader load,
                       void *ctx, struct hub_rows **ret, struct error *err);
/* What is stored of a commit's list: 1, 0, -1. The second one neither looks into memory nor keeps
 * anything there. */
int hub_rows_stored(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                    struct error *err);
int hub_rows_read(struct hub_mirror *m, const char *id, const char *commit, struct hub_rows **ret,
                  struct error *err);

/* ---- long texts (hub_mirror_text.c) ---------------------------------------------------------- */

struct hub_texts {
    pthread_mutex_t lock; /* guards: first, and what is in the texts but the bytes of one made */
    pthread_cond_t made;
    struct hub_text *first; /* those that others may be sent, too */
};
int hub_texts_init(struct hub_texts *h, struct error *err);
void hub_texts_done(struct hub_texts *h); /* when no text is left */
/* The text of the key that somebody has; else make() appends it to `to`, once for all who want it
 * meanwhile. 1 and a text; what make() says: 0 it cannot be made so, -1; then those who wait try
 * for themselves. It must not wait for anything but the disk. */
typedef int (*hub_text_maker)(void *ctx, struct strbuf *to, struct error *err);
int hub_text_get(struct hub_texts *h, const char *key, hub_text_maker make, void *ctx,
                 struct hub_text **ret, struct error *err);
/* One that nobody else has; takes the bytes over. */
int hub_text_own(struct strbuf *text, struct hub_text **ret, struct error *err);

/* ---- questions (hub_mirror_ask.c, hub_mirror_flight.c) --------------------------------------- */

enum hub_task_kind {
    HUB_TASK_INFO,     /* name, revision; flag: what is stored is no answer */
    HUB_TASK_FILE,     /* name, revision, path */
    HUB_TASK_ROWS,     /* name = the id, revision = the commit */
    HUB_TASK_REFS,     /* name = the id; flag: pull requests, too */
    HUB_TASK_EXPANDED, /* name = the id, revision = the commit, path = the folder; flag: recursive
                        */
    HUB_TASK_COMMITS,  /* name = the id, revision = the commit */
    HUB_TASK_CHECK,    /* name = the id */
};
struct hub_task {
    enum hub_task_kind kind;
    const char *name, *revision, *path; /* "" where it has none */
    bool flag;
    bool is_held;  /* something is stored that would do */
    bool may_look; /* what came into the store meanwhile is an answer */
    bool forward;  /* token is sent instead of our own */
    const char *token;
};

/* What is known after a question. */
struct hub_result {
    int rc;
    struct error error;
    enum hub_missing missing;
    char id[REPOSITORY_MAX + 1];
    char commit[41];
    bool asked;            /* false: the store had it by then */
    struct strbuf text;    /* INFO, REFS, EXPANDED, COMMITS: the document as it is stored */
    struct hub_rows *rows; /* ROWS */
    bool has_file;         /* FILE: file is set, or is_absent */
    bool is_absent;
    struct hub_file file;
};
/* Answers on the calling thread, and stores it. What cannot be stored is an answer still. */
void hub_task_run(struct hub_mirror *m, const struct hub_task *t, struct hub_result *ret);
void hub_result_done(struct hub_result *r);
/* Whose credentials a task is asked with, as a part of keys: "own", "none", or the SHA-256 of the
 * caller's token. */
int hub_task_who(const struct hub_task *t, char ret[static DIGEST_TEXT_MAX], struct error *err);
/* The note of a negative answer: of a repository (revision "") or a revision. */
int hub_negative_key(const struct hub_task *t, const char *revision, struct strbuf *to,
                     struct error *err);

struct hub_flight;
extern const struct inquiry_kind hub_mirror_questions;

/* Has a question answered, once for all who ask it at the same time. ms: how long after its
 * beginning the caller leaves it to itself (0 = waits as long as it takes): ERR_TIMEOUT. With
 * gives_up, others need not find out any more that the Hub is slow. ERR_BUSY: too many. until_ms
 * (CLOCK_MONOTONIC) instead: the caller has nothing better, and needs an answer by then; where too
 * many are under way it asks itself, and waits for as long as that takes. 0 with any outcome of the
 * question itself; the result is borrowed until hub_flight_leave(). */
struct hub_patience {
    uint64_t ms;
    bool gives_up;
    uint64_t until_ms;
};
int hub_ask_once(struct hub_mirror *m, const struct hub_task *t, struct hub_patience patience,
                 struct hub_flight **ret, struct error *err);
const struct hub_result *hub_flight_result(const struct hub_flight *x);
void hub_flight_leave(struct hub_flight *x); /* NULL is fine */
static inline void hub_flight_leave_p(struct hub_flight **x)
{
    hub_flight_leave(*x);
}
#define _cleanup_hub_flight_ _cleanup_(hub_flight_leave_p)

/* ---- the mirror itself ----------------------------------------------------------------------- */

struct hub_mirror {
    const struct config *all;
    const struct config_upstream *config;
    bool offline;
    struct store *store;
    struct hub *hub;
    struct hub_access *access;
    struct inquiry_table questions;
    struct notes negatives; /* what the Hub says does not exist */
    struct notes checked;   /* repositories that our own token opens */
    struct hub_rows_cache rows;
    struct hub_texts texts;
    /* guards: the store's answer to which commit a revision is, over its writes of it: of two that
     * come at the same time one counts */
    pthread_mutex_t settling;
};

/* One client's question on its way to an answer. */
struct hub_look {
    struct hub_mirror *m;
    struct hub_at *at;
    enum hub_kind kind;
    char name[REPOSITORY_MAX + 1];       /* with its kind, as the client spelled it */
    char id[REPOSITORY_MAX + 1];         /* with its kind; the name while no id is known */
    bool knows_id;                       /* the store has it */
    bool name_is_fresh;                  /* and it needs no asking */
    char asked_as[REPOSITORY_MAX + 1];   /* for the policies: "hf/org/name", lower case */
    char repository[REPOSITORY_MAX + 1]; /* the same of the id */
    char revision[HUB_REVISION_MAX + 1]; /* "main" for the default branch */
    bool is_default;                     /* the client did not say "main" */
    bool is_commit;
    bool is_about; /* no commit is told, nothing of one: what policies say of revisions is no matter
                    */
    enum hub_access_level level;
    bool forward;
    const char *token; /* the caller's; only with forward */
    bool has_pin, is_fresh;
    struct hub_pin pin;
    uint64_t until_ms; /* when the client needs an answer; 0 = it can wait */
};

/* Looks the name up and asks policies and rights. revision NULL: of the repository as such. */
int hub_look_begin(struct hub_mirror *m, const struct hub_query *q, bool with_revision,
                   enum hub_access_level level, struct hub_look *ret, struct hub_at *at,
                   struct error *err);
/* The id is this one; asks its policies. */
int hub_look_set_id(struct hub_look *l, const char *id, struct error *err);
/* Where no id is known, the name is one from here on: what is stored under it is for those alone
 * who may have that repository. */
int hub_look_is_id(struct hub_look *l, struct error *err);
/* ERR_DENIED: a policy hides the file. */
int hub_look_check_file(const struct hub_look *l, const char *path, uint64_t size,
                        struct error *err);
/* Whether the policies let this revision be asked for. */
bool hub_look_shows_revision(const struct hub_look *l, const char *revision);
/* Whether any policy could hide a file; *ret_sizes: whether one needs sizes. */
bool hub_look_hides(const struct hub_look *l, bool *ret_sizes);
/* The policies of both its names. */
void hub_look_policies(const struct hub_look *l, const struct config_policy *ret[static 2]);

/* A task about it, asked under the best name for that. */
struct hub_task hub_look_task(const struct hub_look *l, enum hub_task_kind kind,
                              const char *revision);
/* Asks. -1 also when the question failed: at->refused and err say how. held: what is stored would
 * do, so a client waits for revalidate_timeout at most. */
int hub_look_ask(struct hub_look *l, struct hub_task *t, bool held, struct hub_flight **ret,
                 struct error *err);
/* Whether what is stored is better than this failure (at->refused is of it, too). */
bool hub_look_may_be_stale(const struct hub_look *l, const struct error *err);
/* Says in the answer that it is old, and why; the first warning stays. */
void hub_look_stale(struct hub_look *l, uint64_t checked_at, const char *why);
/* err_set() and -1: nothing may be asked. */
int hub_look_is_offline(const struct hub_look *l, const char *what, struct error *err);
/* at->refused and -1. */
int hub_look_refuse(struct hub_look *l, enum hub_missing missing);
int hub_look_no_entry(struct hub_look *l, const char *path, struct error *err);

/* Finds l->pin (hub_mirror_pin.c), which costs no request. */
int hub_look_find_pin(struct hub_look *l, struct error *err);
/* Finds the commit, for at. path: when it has to be asked for, by way of this file; NULL = by way
 * of info. ret: the question that was asked for it, or NULL. With `credentials: forward` it is one
 * of the repository that has the id now, as far as the Hub gives identities. */
int hub_look_commit(struct hub_look *l, const char *path, struct hub_flight **ret,
                    struct error *err);
/* Whether the commit is, or has been since this server has known it, what a revision means that the
 * repository's policy allows by name: clients look a branch up once, and ask by its commit then. */
bool hub_commit_is_named(struct hub_mirror *m, const char *id, const char *repository,
                         const char *commit);
/* Notes for it that the revision means the commit. What cannot be stored costs the client an error
 * that says which revisions it may ask for. */
void hub_commit_note_name(struct hub_mirror *m, const char *id, const char *revision,
                          const char *commit);
/* The same as hub_commit_is_named() of what a registry's name is known to mean. */
bool hub_registry_commit_is_named(struct hub_mirror *m, const char *repository, const char *commit);
/* Something of the commit is stored: 1, 0, -1. */
int hub_mirror_knows_commit(struct hub_mirror *m, const char *id, const char *commit,
                            struct error *err);
bool hub_is_fresh(const struct hub_mirror *m, uint64_t checked_at);
/* A pin of this revision that is fresh, from wherever: 1, 0, -1. */
int hub_pin_find(struct hub_mirror *m, const char *id, const char *revision, struct hub_pin *ret,
                 bool *ret_fresh, struct error *err);

/* The list at at->commit: stored, or asked for. folders: with them. */
int hub_look_rows(struct hub_look *l, bool folders, struct hub_rows **ret, struct error *err);

#define HUB_WHAT_MAX (HUB_PATH_MAX + 32u)
/* The document's name. */
const char *hub_what_file(const char *path, char buf[static HUB_WHAT_MAX]);
const char *hub_what_expanded(const char *folder, bool recursive, char buf[static HUB_WHAT_MAX]);
const char *hub_what_refs(bool pull_requests);
/* What a HEAD of a file said, as a document. */
void hub_file_write(const struct hub_file *f, bool is_absent, struct strbuf *to);
bool hub_file_read(const char *text, struct hub_file *ret, bool *ret_absent);

/* The word of a policy's formats[] for a file's name, NULL = no weight file. */
const char *hub_format_word(const char *path);

/* ---- the Hub's own JSON (hub_mirror_json.c): pure -------------------------------------------- */

/* The functions below append to `to` and set ERR_UPSTREAM for a text that is not what it should be.
 */

/* The info object without what leads to Xet, sha = commit. */
int hub_json_info_clean(const char *json, size_t len, const char *commit, struct strbuf *to,
                        struct error *err);
/* An array of objects without what leads to Xet. */
int hub_json_rows_clean(const char *json, size_t len, struct strbuf *to, struct error *err);
/* Which file a sibling or a row is: false hides it. is_sibling: no size is known. */
typedef bool (*hub_json_shows)(void *ctx, const char *path, uint64_t size);
/* The info object without what tells a commit, or of its files. */
int hub_json_info_about(const char *json, size_t len, struct strbuf *to, struct error *err);
/* For who has asked for it: without the siblings that shows() hides (NULL = none); siblings: what
 * to put when there are none (NULL = nothing). One whose path is none that a client may take to its
 * disk, hub_path_is_valid(), makes the whole a broken answer, as it does the list of files: what
 * were left of it would look complete. */
int hub_json_info_filter(const char *json, size_t len, hub_json_shows shows, void *ctx,
                         const char *siblings, bool *ret_has_siblings, struct strbuf *to,
                         struct error *err);
/* The same of rows. */
int hub_json_rows_filter(const char *json, size_t len, hub_json_shows shows, void *ctx,
                         struct strbuf *to, struct error *err);
/* The refs object with the commit that `pinned` has for a revision in place of the Hub's, without
 * those that it hides, and with the arrays that clients need. revision "": it has no name. */
enum hub_ref_shown { HUB_REF_AS_IT_IS, HUB_REF_PINNED, HUB_REF_HIDDEN };
typedef enum hub_ref_shown (*hub_json_pinned)(void *ctx, const char *revision,
                                              char commit[static 41]);
int hub_json_refs(const char *json, size_t len, hub_json_pinned pinned, void *ctx,
                  struct strbuf *to, struct error *err);
/* The commit that a refs object has for a revision: 1, 0. */
int hub_json_ref(const char *json, size_t len, const char *revision, char commit[static 41]);
/* A member of an object that is true or not false and not null. */
bool hub_json_is_set(const char *json, size_t len, const char *key);
/* A member of an object that is there, and false. */
bool hub_json_is_false(const char *json, size_t len, const char *key);

#endif
