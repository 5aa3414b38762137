/* What the files behind import.h share.
 *
 *     import.c          a tag from its name to a stored row: readings, aliases, conflicts
 *     import_names.c    how a tag can be read, and which ref a mistyped one resembles (pure)
 *     import_search.c   a manifest digest that nobody has, sought in the current refs
 *     import_build.c    one commit and one selection -> manifest, config blob, links, one commit
 *     import_read.c     the bytes that this takes, in parallel: small files
 *     import_header.c   and the headers of weight files
 *     import_sum.c      which weight files add up to one model (pure)
 *     import_current.c  whether what is stored is what a build would give now
 *     import_policy.c   what the policies let it take, and whose import it is
 *     import_memory.c   what is under way, what was not found, who asked us to wait
 */
#ifndef WB_UPSTREAM_IMPORT_PRIVATE_H
#define WB_UPSTREAM_IMPORT_PRIVATE_H

#include <pthread.h>

#include "model/modelpack.h"
#include "model/parameters.h"
#include "model/select.h"
#include "model/weights.h"
#include "upstream/import.h"

/* ---- import_names.c -------------------------------------------------------------------------- */

struct tag_reading {
    bool is_default;             /* the default branch; revision is empty */
    char revision[TAG_MAX + 16]; /* as the Hub is asked for it */
    char spelled[TAG_MAX + 1];   /* the part of the tag that stands for it */
    char quant[QUANT_LABEL_MAX]; /* canonical label; empty = the whole repository */
};

#define TAG_READINGS_MAX 4
/* How a tag can be read, in the order of import_tag(); returns how many, at least one. */
size_t tag_readings(const char *tag, struct tag_reading ret[static TAG_READINGS_MAX]);

/* How little a ref's name differs from what was asked for: 0 when they are the same but for case
 * and for what stands between letters and digits ("feature-x", "Feature/X", "feature__x"),
 * otherwise the edit distance of those forms; REF_FAR when they do not resemble each other. */
#define REF_FAR 1000u
unsigned ref_distance(const char *asked, const char *ref);

/* The text for a revision that does not exist. suffix is what follows the revision in the tag
 * ("--Q4_K_M"), repository what the client would pull from. */
void missing_revision_text(const char *repository, const char *asked, const char *suffix,
                           const struct hub_ref *refs, size_t n, char *buf, size_t size);

/* ---- import_memory.c ------------------------------------------------------------------------- */

struct flight;
struct flights {
    pthread_mutex_t lock; /* guards: first and every flight in the list */
    pthread_cond_t landed;
    struct flight *first;
};
int flights_init(struct flights *f, struct error *err);
void flights_done(struct flights *f);

struct outcome {
    struct import_result result;
    bool by_policy; /* failed because of what the commit has and our configuration says: asking the
                       Hub again will not change it */
};
typedef int (*flight_fn)(void *ctx, struct outcome *ret, struct error *err);
/* Runs fn unless one with the same key is running; then waits for that one. Either way gives fn's
 * result, error, and *ret, which is filled in on failure as well. err must not be NULL. */
int flight_run(struct flights *f, const char *key, flight_fn fn, void *ctx, struct outcome *ret,
               struct error *err);

#define NEGATIVES_MAX 4096
struct negative {
    uint64_t hash;
    char *key, *text; /* NULL: an empty place */
    uint64_t until_ms;
};
struct pause {
    struct pause *next;
    char *prefix;
    uint64_t until_ms;
    char text[512];
};
struct memory {
    pthread_mutex_t lock; /* guards: everything below */
    struct negative *negatives;
    size_t oldest;
    struct pause *pauses; /* one an upstream that ever said 429 */
};
int memory_init(struct memory *m, struct error *err);
void memory_done(struct memory *m);
/* -1 and ERR_NOT_FOUND when this key was not found a short while ago, or ERR_RATE_LIMITED when the
 * upstream asked us to wait and that time has not passed; 0 otherwise. */
int memory_check(struct memory *m, const char *prefix, const char *key, struct error *err);
/* Remembers a failure, when it is of a kind that is worth it: ERR_NOT_FOUND for ttl_s, and
 * ERR_RATE_LIMITED for as long as the upstream asked (5 minutes at most). */
void memory_note(struct memory *m, const char *prefix, const char *key, uint64_t ttl_s,
                 const struct error *failure);

/* ---- import_current.c ------------------------------------------------------------------------ */

struct config_entry {
    struct digest manifest, config; /* config: DIGEST_NONE = the manifest names none */
};
struct config_table {
    pthread_mutex_t lock;             /* guards: entries */
    struct config_entry entries[256]; /* by the first byte of the manifest's digest */
};
int config_table_init(struct config_table *t, struct error *err);
void config_table_done(struct config_table *t);

/* ---- what weight files say ------------------------------------------------------------------- */

/* Of one file, or of the files of one model. */
struct model_facts {
    struct weights weights;
    struct parameter_count parameters;
    struct modelpack_model cache; /* a GGUF's: its has_cache, context and what belongs to it */
};

/* ---- import_read.c --------------------------------------------------------------------------- */

/* Runs fn(ctx, 0 .. n-1), up to `width` at once, on threads that are joined before it returns. When
 * one fails no further ones are begun; the error is that of the lowest index that failed. */
int work_run(unsigned width, size_t n, int (*fn)(void *ctx, size_t i, struct error *err), void *ctx,
             struct error *err);

enum inspection { INSPECTION_NONE, INSPECTION_DONE, INSPECTION_FAILED };

/* One file whose bytes, or whose header's bytes, an import wants. */
struct want {
    struct commit_file *file;    /* sha256 is filled in when a small file was read */
    bool is_layer;               /* a small file: keep its bytes as a blob */
    bool is_config, is_card;     /* root config.json, root README.md: hand the bytes over in text */
    enum weights_format inspect; /* WEIGHTS_UNKNOWN = not a weight file that is parsed */
    /* results */
    bool learned; /* file->sha256 was not known before */
    bool has_text;
    struct strbuf text; /* has_text; may be empty */
    enum inspection inspection;
    struct model_facts *facts; /* INSPECTION_DONE */
    char reason[240];          /* INSPECTION_FAILED */
};
void wants_free(struct want *w, size_t n);

/* What config.json says of quantisation. It is the first thing that is read, and how a header is
 * counted waits for it. */
struct awaited_config {
    pthread_mutex_t lock; /* guards: there; what is below does not change once it is set */
    pthread_cond_t came;
    bool there;
    struct digest digest; /* of its text; NONE = there is none */
    struct quantization quantization;
};

struct reading {
    struct awaited_config *config;
    struct store *store;
    struct hub *hub;
    struct gate *big_headers;
    const char *repo_id, *commit;
    struct header_cache *cache; /* NULL outside of a search */
    struct want *wants;
    size_t n;
};
/* Both wait until config.json was read, or could not be. */
const struct quantization *reading_quantization(const struct reading *r);
const struct digest *reading_config(const struct reading *r);
/* Reads what every want asks for; a root config.json has to be the first. A header that breaks its
 * format's rules is an outcome, whatever keeps us from reading it a failure. */
int reading_run(struct reading *r, struct error *err);

/* ---- import_header.c ------------------------------------------------------------------------- */

#define HEADER_FIRST (64u << 10)     /* the first read of a weight file */
#define HEADER_SLACK (64u << 10)     /* read beyond what the parser surely needs */
#define HEADER_BUDGET (256ull << 20) /* a longer header is noted, not read */
#define HEADER_READS 256u     /* real ones take 20 at most; a hostile one could take thousands */
#define HEADER_BIG (8u << 20) /* above it one is read at a time, for the memory's sake */

/* How much of a file to have next: at least `need`, never more than HEADER_SLACK beyond it. */
uint64_t header_next(uint64_t need, uint64_t size);

/* Lets one thread through at a time. */
struct gate {
    pthread_mutex_t lock; /* guards: taken */
    pthread_cond_t left;
    bool taken;
};
int gate_init(struct gate *g, struct error *err);
void gate_done(struct gate *g);

/* Outcomes of weight headers by the file's digest, for the time of one search. */
struct header_cache;
int header_cache_new(struct header_cache **ret, struct error *err);
void header_cache_free(struct header_cache *c); /* NULL is fine */

/* One step over the beginning of a weight file: 0 settled (see want), 1 *ret_need bytes are needed,
 * -1. */
int header_inspect(const struct reading *r, struct want *w, const struct strbuf *prefix,
                   uint64_t *ret_need, struct error *err);
/* Settles a want as INSPECTION_FAILED. */
void header_finding(struct want *w, const char *reason);
/* Reads and inspects an LFS file's header; a root config.json in LFS whole. */
int header_read(const struct reading *r, struct want *w, struct error *err);
int header_read_text(const struct reading *r, struct want *w, struct error *err);
/* Appends a stored blob's bytes from to->len on. */
int header_copy(struct blob *blob, size_t len, struct strbuf *to, struct error *err);

#define TEXT_MAX (8u << 20) /* a config.json above this is not looked into */

/* ---- import_sum.c ---------------------------------------------------------------------------- */

struct sum_file {
    const char *path;
    const struct model_facts *facts; /* parsed */
};
/* The facts of the model that these weight files hold; sorts and shrinks the array. 1, 0 when
 * nothing can be said (no file counts, sums overflow), -1. */
struct model_shape;
/* What a manifest says of a model's shape: its context, and what a 16 bit cache takes. */
void facts_of_shape(const struct model_shape *shape, struct modelpack_model *ret);
int facts_sum(struct sum_file *files, size_t n, struct model_facts *ret, struct error *err);

/* ---- import_current.c, import_build.c -------------------------------------------------------- */

struct importer {
    const struct config *config;
    struct store *store;
    struct flights tags, builds, searches;
    struct gate big_headers;
    struct memory memory;
    struct config_table configs;
};

/* One commit, one selection, one repository name. */
struct build {
    struct importer *importer;
    struct hub *hub;
    const char *repository; /* lower case */
    const struct hub_revision *revision;
    const char *quant; /* canonical label, NULL = whole repository */
    const char *tag;   /* stored along with the commit's own tag; NULL = none */
    struct header_cache *cache;
};
/* The tag that every import stores for good: <commit> or <commit>--<QUANT>. */
#define COMMIT_TAG_MAX 80
void build_commit_tag(const struct build *b, char ret[static COMMIT_TAG_MAX]);
/* 1 and the result when the store has what a build would give now, 0 when not, -1. */
int build_find(const struct build *b, struct import_result *ret, struct error *err);
/* What an earlier packager version gave for this commit and selection: stored, without a tag, when
 * it is the manifest that is wanted. 1, 0 it is not, -1. */
int build_earlier(const struct build *b, const struct digest *wanted, struct outcome *ret,
                  struct error *err);
/* Imports, or shares the import that is under way, and leaves b->tag pointing at it. */
int build_run(const struct build *b, struct outcome *ret, struct error *err);
/* Sorts the list by path and says which files the selection takes; (*ret)[i] is list->files[i].
 * Caller frees *ret. */
int build_select(const struct build *b, struct commit_files *list, struct select_file **ret,
                 struct error *err);

/* ---- import.c -------------------------------------------------------------------------------- */

/* A repository as a client named it, and how the Hub is asked for it. */
struct asked {
    struct importer *importer;
    struct hub *hub;
    struct hub_mirror *mirror; /* of import_tag() */
    const struct reference *reference;
    const char *given;                /* as_given behind the upstream's prefix */
    char spelled[REPOSITORY_MAX + 1]; /* what the Hub is asked for */
    bool has_row;
    struct repository_row row;
};
int asked_init(struct asked *a, struct importer *i, struct hub *h, const struct reference *r,
               struct error *err);
/* hub_resolve() with the best spelling of the name that we know; refuses a Hub id that differs only
 * in case from the one that this repository already stands for. */
int asked_resolve(struct asked *a, const char *revision, struct hub_revision *ret,
                  enum hub_missing *ret_missing, struct error *err);

/* ---- import_policy.c ------------------------------------------------------------------------- */

/* Takes files of formats that the repository's policies do not allow off the selection. ERR_DENIED:
 * no weights are left, or a file is too large (the text names it). */
int policy_apply(const struct build *b, struct select_file *files, size_t n, struct error *err);
/* ERR_DENIED: the policies for the name, or for the Hub's own id, do not allow the revision. */
int policy_check_revision(const struct asked *a, const char *revision, struct error *err);
int policy_check_id(const struct asked *a, const char *id, const char *revision, struct error *err);
/* The revision of that name may be had: so may its commit, from now on. */
void policy_note_name(const struct asked *a, const struct hub_revision *revision, const char *name);
/* What sets the imports of one caller apart from those of others, who may see other repositories:
 * of its token's SHA-256; "" with `credentials: own`. */
#define CALLER_MARK_MAX 66
#define ASKED_KEY_MAX (REFERENCE_TEXT_MAX + CALLER_MARK_MAX)
const char *caller_mark(const struct hub *h, char buf[static CALLER_MARK_MAX]);
/* Whether the upstream would say the same to others: a caller's quota is its own. */
bool is_failure_for_all(const struct hub *h, const struct error *err);

#endif
