/* The JSON of a Hub's own API, out of what its mirror knows, and what clients ask for in queries
 * and bodies. Pure; thread-safe. Output goes to a strbuf, whose failure is for the caller to find.
 */
#ifndef WB_SERVER_HUB_JSON_H
#define WB_SERVER_HUB_JSON_H

#include "base/err.h"
#include "base/strbuf.h"
#include "upstream/hub_mirror.h"

/* ---- hub_form.c: queries and forms ------------------------------------------------------------
 */

/* The next `key=value` of a raw query or a form, both percent-decoded, into key and value. is_form:
 * '+' is a space. 1 found, 0 at the end, ERR_INVALID: a bad escape or a NUL. */
int form_next(const char **at, const char *end, bool is_form, struct strbuf *key,
              struct strbuf *value, struct error *err);

/* Decoded values, each behind the one before it, with its NUL. */
struct hub_words {
    struct strbuf text;
    size_t n;
};
void hub_words_done(struct hub_words *w);
/* NULL: the first one. The one behind the last is not to be asked for. */
const char *hub_words_next(const struct hub_words *w, const char *before);

struct hub_options {
    bool recursive, blobs, pull_requests; /* "true" and "1", in any case */
    bool is_expanded;                     /* expand=true */
    struct hub_words expand;              /* the values of expand= and expand[]= */
    uint64_t limit;                       /* UINT64_MAX = none */
    uint64_t page;                        /* p= */
    struct strbuf cursor;                 /* "" = none */
};
/* What any of the routes knows; the rest is ignored. ERR_INVALID. */
int hub_options_read(const char *query, struct hub_options *ret, struct error *err);
void hub_options_done(struct hub_options *o);

#define HUB_PATHS_MAX 1000u                  /* of one request, as at the Hub */
#define HUB_PATHS_BODY_MAX ((size_t)4 << 20) /* bytes: that many, and long ones */
/* The body of paths-info: a form, or JSON with "paths" an array or one string. Slashes at the ends
 * of a path are taken off. ERR_INVALID: what breaks the form, or too many paths. */
int hub_paths_read(const char *content_type, const char *body, size_t len, struct hub_words *ret,
                   struct error *err);

/* ---- hub_rows.c: files and folders ------------------------------------------------------------
 */

struct hub_page {
    const char *after; /* the last path of the page before this one; "" = none */
    uint64_t limit;
    const char *last; /* result: the last path of this page, when there are more behind it */
};
/* The rows of a folder ("" = the root), or of everything below it, sorted by path. False: there is
 * no such folder. */
bool hub_put_tree(struct strbuf *to, const struct hub_listing *l, const char *folder,
                  bool recursive, struct hub_page *page);
/* The same a piece at a time: the array of a long list is never in memory as a whole. The folder's
 * name and the listing have to stay. */
struct hub_walk {
    const struct hub_listing *l;
    const char *folder;
    size_t folder_len;
    bool recursive;
    size_t file, dir; /* the next ones: both are sorted, and are merged */
};
/* False: there is no such folder. after: as in struct hub_page. */
bool hub_walk_begin(struct hub_walk *w, const struct hub_listing *l, const char *folder,
                    bool recursive, const char *after);
/* Appends rows until there are `enough` bytes in `to`, with commas between them and behind whatever
 * stands there but a bracket. False: there are no more. */
bool hub_walk_rows(struct hub_walk *w, struct strbuf *to, size_t enough);
/* The rows of those paths that are there, in the order in which they were asked for. */
void hub_put_paths(struct strbuf *to, const struct hub_listing *l, const struct hub_words *paths);
/* Every file as {"rfilename"}, with size, blobId and lfs of each. */
void hub_put_siblings(struct strbuf *to, const struct hub_listing *l);
/* From the file *at on, as hub_walk_rows(). */
bool hub_put_some_siblings(struct strbuf *to, const struct hub_listing *l, size_t *at,
                           size_t enough);
/* {"rfilename","size","blobId","lfs"} with the name as llama.cpp before 2026 reads it, which finds
 * it with a regular expression: first, and with no more escapes than JSON needs. */
void hub_put_named_file(struct strbuf *to, const struct commit_file *f);

/* ---- hub_expand.c: parts of what the Hub said -------------------------------------------------
 */

/* The info object with `l`'s files as its siblings (NULL: as they are), and, unless `expand` has no
 * word, with _id, id and the members that it names alone. ERR_UPSTREAM: it is no object. */
int hub_put_info(struct strbuf *to, const char *info, size_t len, const struct hub_words *expand,
                 const struct hub_listing *l, struct error *err);
/* The same with an empty array for siblings, which belong at *ret_where; 0 = `expand` leaves them
 * out. */
int hub_put_info_around(struct strbuf *to, const char *info, size_t len,
                        const struct hub_words *expand, size_t *ret_where, struct error *err);
/* The first elements of an array, at most `limit`. ERR_UPSTREAM: it is none. */
int hub_put_first(struct strbuf *to, const char *array, size_t len, uint64_t limit,
                  struct error *err);

/* ---- hub_pick.c: which GGUF file a label means ------------------------------------------------
 */

struct hub_picked {
    const struct commit_file *model;     /* of a split set its first part */
    const struct commit_file *projector; /* NULL = none */
};
/* tag: "latest" (Q4_K_M, else Q8_0, else the first there is), a label in any case, the beginning of
 * one ("q4"), or a file's name. ERR_NOT_FOUND says which labels there are. */
int hub_pick_gguf(const struct hub_listing *l, const char *tag, struct hub_picked *ret,
                  struct error *err);

#endif
