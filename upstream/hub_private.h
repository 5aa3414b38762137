/* What hub*.c share: asking the endpoint, and reading its answers. Shared by hub*.c and their
 * tests, by nobody else.
 */
#ifndef WB_UPSTREAM_HUB_PRIVATE_H
#define WB_UPSTREAM_HUB_PRIVATE_H

#include "base/json.h"
#include "upstream/hub.h"

#define HUB_REDIRECTS_MAX 5u
#define HUB_JSON_MAX (64u << 20)       /* one answer */
#define HUB_TREE_JSON_MAX (512u << 20) /* all pages of one list */
#define HUB_TREE_PAGES_MAX 10000u
#define HUB_TREE_FILES_MAX 1000000u
#define HUB_REFS_MAX 100000u
#define HUB_PATH_MAX 4096u
#define HUB_SMALL_FILE_MAX (64u << 20)
#define HUB_METADATA_RETRIES 2u /* of a question that failed on the way, or got 502, 503, 504 */

struct hub {
    const struct config_upstream *config;
    struct http_pool *pool;
};

/* ---- asking (hub.c) -------------------------------------------------------------------------- */

struct hub_question {
    const char *method;
    const char *url; /* on the endpoint's origin */
    const char *id;  /* the repository, for error texts */
    const char *revision;
    const char *path;
    size_t max_body;
    const char *commit;   /* non-NULL: X-Repo-Commit must be this on every answer that has it */
    bool stop_at_linked;  /* an answer with X-Linked-Etag is final even when it redirects */
    bool foreign_is_fine; /* a redirect to another origin is an answer, not an error */
};

struct hub_answer {
    struct http_response *r;
    char *url;       /* that gave r */
    char *location;  /* of a redirect that was not followed, resolved; NULL = none */
    bool has_commit; /* some answer on the way named the commit */
};
void hub_answer_done(struct hub_answer *a);

/* Asks, following redirects within the endpoint's origin. 0 with any status. */
int hub_ask(struct hub *h, const struct hub_question *q, struct hub_answer *ret, struct error *err);
/* Turns a status that is no success into an error that says what to do. Returns -1. */
int hub_refusal(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                enum hub_missing *ret_missing, struct error *err);
/* hub_ask() and hub_refusal() for everything but 200. */
int hub_ask_200(struct hub *h, const struct hub_question *q, struct hub_answer *ret,
                struct error *err);

/* {url}/{id}/resolve/{commit}/{path}; NULL when out of memory. Caller frees. */
char *hub_resolve_url(const struct hub *h, const char *id, const char *commit, const char *path);

/* The sha256 and size that the Hub has for an LFS file whose list entry does not say
 * (hub_locate.c).
 */
int hub_linked_digest(struct hub *h, const char *id, const char *commit, const char *path,
                      uint64_t size, struct digest *ret, struct error *err);

/* ---- reading answers (hub_parse.c) ----------------------------------------------------------- */

/* One or two parts of [A-Za-z0-9._-], no "..". */
bool hub_id_is_valid(const char *id);
/* What git allows in a ref's name, near enough to be safe in a URL. */
bool hub_revision_is_valid(const char *revision);
/* A relative path that stays below its root on every system: no empty, "." or ".." part, no
 * backslash, no control character. */
bool hub_path_is_valid(const char *path);

/* The hex digits of an entity tag: `"x"`, `W/"x"` and x alike, lower-cased. False when there are
 * not exactly n. buf holds n + 1 bytes. */
bool hub_etag_hex(const char *etag, size_t n, char *buf);

/* The parsers below set ERR_UPSTREAM for whatever is wrong with the text. */
int hub_parse_revision(const char *json, size_t len, struct hub_revision *ret, struct error *err);
int hub_parse_refs(const char *json, size_t len, bool pull_requests, struct hub_ref **ret,
                   size_t *ret_n, struct error *err);

/* A file list under construction, page by page. */
struct hub_tree {
    struct commit_file *files; /* path not set yet: it is at paths.data + offsets[i] */
    size_t *offsets;
    size_t n, cap;
    struct strbuf paths;
};
void hub_tree_done(struct hub_tree *t);
/* Adds a page's files. has_lfs with sha256 NONE: the entry's oid is masked or absent. */
int hub_tree_page(struct hub_tree *t, const char *json, size_t len, struct error *err);
/* Sorts, refuses duplicates, hands the memory over. */
int hub_tree_finish(struct hub_tree *t, struct commit_files *ret, struct error *err);

#endif
