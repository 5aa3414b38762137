/* What hub*.c share: asking the endpoint, and reading its answers. Shared by hub*.c and their
 * tests, by nobody else.
 */
#ifndef WB_UPSTREAM_HUB_PRIVATE_H
#define WB_UPSTREAM_HUB_PRIVATE_H

#include "base/json.h"
#include "upstream/breaker.h"
#include "upstream/hub.h"

#define HUB_REDIRECTS_MAX 5u
#define HUB_JSON_MAX (64u << 20)       /* one answer */
#define HUB_TREE_JSON_MAX (512u << 20) /* all pages of one list */
#define HUB_TREE_PAGES_MAX 10000u
#define HUB_TREE_FILES_MAX 1000000u
#define HUB_REFS_MAX 100000u
#define HUB_METADATA_RETRIES 2u /* of a question that failed on the way, or got 502, 503, 504 */

struct hub {
    const struct config_upstream *config;
    struct http_pool *pool;
    struct hub_limits *limits;
    struct breaker *breaker;
    /* Of what is asked with a deadline. It shuts out its like alone: a Hub that is too slow for
     * them still serves whoever can wait. */
    struct breaker *impatient;

    bool is_borrowed; /* hub_as(): all above is another's */
    struct hub_asking how;
};

/* ---- the quotas of the Hub (hub_limits.c) ---------------------------------------------------- */

/* What the answers' RateLimit headers, and a 429, say of what is left, for each token that is sent
 * (and for none: then the Hub counts by address) and each of the Hub's buckets. Thread-safe. */
struct hub_limits;
enum hub_bucket { HUB_API, HUB_RESOLVERS, HUB_PAGES, HUB_BUCKETS };

/* A window of the Hub is 300 s long. Whoever asks for more is asked again after this. */
#define HUB_LIMIT_WAIT_MAX_S 900u
/* After a 429 that does not say how long. */
#define HUB_LIMIT_WAIT_S 5u

struct hub_limits *hub_limits_new(void);
void hub_limits_free(struct hub_limits *l);
/* In which bucket the Hub counts a request for this URL; base: the endpoint. */
enum hub_bucket hub_bucket_of(const char *base, const char *url);
/* One item of RateLimit (`"api";r=12;t=30`) or RateLimit-Policy (`"fixed
 * window";"api";q=500;w=300`) at text, which is moved behind it. False: it names none of the
 * buckets. A number that is not there, or is none, stays UINT64_MAX. */
struct hub_limit {
    enum hub_bucket bucket;
    uint64_t left, ends_s, quota;
};
bool hub_limit_parse(const char **text, struct hub_limit *ret);

/* A token, NULL = none, and whether it is one of our own, whose quota is never forgotten in favour
 * of those that clients bring. */
struct hub_identity {
    const char *token;
    bool is_ours;
};
/* Before a request: ERR_RATE_LIMITED with retry_after when none is left, or, of a `spare` one, few.
 */
int hub_limits_check(struct hub_limits *l, const struct hub_identity *who, enum hub_bucket bucket,
                     bool spare, uint64_t now_ms, const char *prefix, struct error *err);
void hub_limits_note(struct hub_limits *l, const struct hub_identity *who, enum hub_bucket bucket,
                     uint64_t now_ms, const struct http_response *r);

/* ---- asking (hub.c) -------------------------------------------------------------------------- */

struct hub_answer;

struct hub_question {
    const char *method;
    const char *url; /* on the endpoint's origin */
    const char *id;  /* the repository, for the token and error texts; NULL = none */
    const char *revision;
    const char *path; /* of a file, when it is a question for the resolve route */
    size_t max_body;
    const char *commit;   /* non-NULL: X-Repo-Commit must be this on every answer that has it */
    bool stop_at_linked;  /* an answer with X-Linked-Etag is final even when it redirects */
    bool foreign_is_fine; /* a redirect to another origin is an answer, not an error */

    /* Instead of max_body: the body of a 2xx as it comes. before: what came on the way to it. */
    int (*on_headers)(void *ctx, const struct http_response *r, const struct hub_answer *before,
                      struct error *err);
    int (*on_data)(void *ctx, const void *data, size_t len, struct error *err);
    void *ctx;
};

struct hub_answer {
    struct http_response *r;
    char *url;       /* that gave r */
    char *location;  /* of a redirect that was not followed, resolved; NULL = none */
    bool has_commit; /* some answer on the way named the commit ... */
    char commit[41]; /* ... this one; only of a question with a path */
    /* Of a question with a path: the repository of the last resolve URL, "" when that was none of
     * the same kind. */
    char id[REPOSITORY_MAX + 1];
};
void hub_answer_done(struct hub_answer *a);

/* Asks, following redirects within the endpoint's origin. 0 with any status. */
int hub_ask(struct hub *h, const struct hub_question *q, struct hub_answer *ret, struct error *err);
/* hub_ask() and hub_refusal() for everything but 200. missing may be NULL. */
int hub_ask_200(struct hub *h, const struct hub_question *q, struct hub_answer *ret,
                enum hub_missing *ret_missing, struct error *err);
/* The one of token_files that says what our own token for it is; NULL = none. */
const struct config_token_file *hub_token_file_of(const struct hub *h, const char *id);
/* The id that the configuration gives a name, else the name. */
const char *hub_look_up_alias(const struct hub *h, const char *name);
/* Before anything is asked: whether the words can mean something there. ERR_NOT_FOUND. */
int hub_check_words(const struct hub *h, const char *id, const char *revision, bool any_kind,
                    enum hub_missing *ret_missing, struct error *err);
/* What is sent for a repository (NULL = none of them). */
struct hub_identity hub_identity_of(const struct hub *h, const char *id);
/* For who asks past hub_ask(), any host: ERR_TIMEOUT when the time for asking is over,
 * ERR_RATE_LIMITED when the URL is the Hub's own and no request is left. And what came. */
int hub_may_ask(struct hub *h, const char *id, const char *url, struct error *err);
void hub_asked(struct hub *h, const char *id, const char *url, const struct http_response *r);

/* Begins a URL: {url}/api/{models|datasets|spaces}/{id without its kind}. */
void hub_put_api_url(const struct hub *h, const char *id, struct strbuf *url);
/* {url}/{id}/resolve/{revision}/{path}, the revision as one segment; NULL when out of memory.
 * Caller frees. */
char *hub_resolve_url(const struct hub *h, const char *id, const char *revision, const char *path);

/* ---- refusals (hub_refusal.c) ---------------------------------------------------------------- */

/* Turns a status that is no success into an error that says what to do. Returns -1. */
int hub_refusal(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                enum hub_missing *ret_missing, struct error *err);
int hub_no_repository(struct hub *h, const char *id, struct error *err);
int hub_no_revision(struct hub *h, const char *id, const char *revision, struct error *err);

/* ---- lists over pages (hub_document.c) ------------------------------------------------------- */

/* Asks q and what its Link headers say follows, `what` in error texts. on_page gets each body. */
int hub_read_pages(struct hub *h, const struct hub_question *q, const char *what,
                   int (*on_page)(void *ctx, const struct hub_answer *a, struct error *err),
                   void *ctx, enum hub_missing *ret_missing, struct error *err);

/* ---- files (hub_locate.c) -------------------------------------------------------------------- */

/* The sha256 and size that the Hub has for an LFS file whose list entry does not say.
 */
int hub_linked_digest(struct hub *h, const char *id, const char *commit, const char *path,
                      uint64_t size, struct digest *ret, struct error *err);

/* ---- reading answers (hub_parse.c) ----------------------------------------------------------- */

/* "datasets/", "spaces/" or nothing, and one or two parts of [A-Za-z0-9._-], no "..". The first one
 * is no word that stands for a route of the Hub. */
bool hub_id_is_valid(const char *id);
/* Its kind, and in *ret_rest (may be NULL) the rest of it. */
enum hub_kind hub_id_kind(const char *id, const char **ret_rest);
/* The id of what the Hub itself calls `rest`; false when it is none. */
bool hub_id_make(enum hub_kind kind, const char *rest, char ret[static REPOSITORY_MAX + 1]);
/* The repository of {base}/{id}/resolve/...: 1; 0 when the URL has another form; -1 when it should
 * be one, and the id is none. */
int hub_id_of_url(const char *base, const char *url, char ret[static REPOSITORY_MAX + 1]);
/* What git allows in a ref's name, near enough to be safe in a URL. */
bool hub_revision_is_valid(const char *revision);
/* A relative path that stays below its root on every system: no empty, "." or ".." part, no
 * backslash, no control character. */
bool hub_path_is_valid(const char *path);

/* The hex digits of an entity tag: `"x"`, `W/"x"` and x alike, lower-cased. False when there are
 * not exactly n. buf holds n + 1 bytes. */
bool hub_etag_hex(const char *etag, size_t n, char *buf);

/* The parsers below set ERR_UPSTREAM for whatever is wrong with the text. */
int hub_parse_revision(enum hub_kind kind, const char *json, size_t len, struct hub_revision *ret,
                       struct error *err);
/* What is between the brackets of an array's text. */
int hub_array_inside(const char *json, size_t len, const char **ret, size_t *ret_len,
                     struct error *err);
int hub_parse_refs(const char *json, size_t len, bool pull_requests, struct hub_ref **ret,
                   size_t *ret_n, struct error *err);

/* A file list under construction, page by page. */
struct hub_tree {
    struct commit_file *files; /* path not set yet: it is at paths.data + offsets[i] */
    size_t *offsets;
    size_t n, cap;
    struct strbuf paths;
    struct strbuf *folders; /* path NUL oid NUL of each; NULL = nobody wants them */
    size_t n_folders;
};
void hub_tree_done(struct hub_tree *t);
/* Adds a page's files. has_lfs with sha256 NONE: the entry's oid is masked or absent. */
int hub_tree_page(struct hub_tree *t, const char *json, size_t len, struct error *err);
/* Sorts, refuses duplicates, hands the memory over. */
int hub_tree_finish(struct hub_tree *t, struct commit_files *ret, struct error *err);

#endif
