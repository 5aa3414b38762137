/* What the kinds of sources implement. Internal to cli/source*.c. */
#ifndef WB_CLI_SOURCE_PRIVATE_H
#define WB_CLI_SOURCE_PRIVATE_H

#include "cli/source.h"
#include "upstream/http.h"

#define SOURCE_FILES_MAX 100000u
#define SOURCE_FIRST (64u << 10)    /* what is asked for of a file whose size is not known */
#define SOURCE_STEP_MIN (16u << 10) /* the window after a jump */
#define SOURCE_STEP_MAX (8u << 20)

struct source_ops {
    const char *kind;
    /* Makes `f->size` and whatever else it needs known. 1, 0 no such file, -1. */
    int (*open)(struct source *s, const char *path, struct source_file *f, struct error *err);
    /* Exactly len bytes, which lie inside the file. */
    int (*read)(struct source_file *f, uint64_t offset, void *buf, size_t len, struct error *err);
    void (*close)(struct source_file *f);
    void (*free)(struct source *s);
    struct source_reads (*reads)(const struct source *s); /* NULL: those counted in s->reads */
};

struct source {
    const struct source_ops *ops;
    char *text;                   /* owned */
    void *backend;                /* the kind's own; freed by ops->free */
    struct source_entry *entries; /* owned */
    size_t n, cap;
    bool is_one;
    char revision[140];
    char note[300];
    struct source_reads reads;
};

struct source_file {
    struct source *source;
    char *path; /* owned */
    uint64_t size;
    void *backend; /* the kind's own; freed by ops->close */
    struct strbuf prefix;
    struct strbuf window; /* [window_at, window_at + window.len) */
    uint64_t window_at;
    size_t step;
    struct byte_source bytes;
};

/* Adds an entry; sizes that are not known are UINT64_MAX. */
int source_add(struct source *s, const char *path, uint64_t size, struct error *err);
void source_sort(struct source *s);

/* The constructors: each takes the text without its scheme where it has one. */
int source_open_path(struct source *s, const char *path, struct error *err);
int source_open_url(struct source *s, const char *text, struct error *err);
int source_open_hub(struct source *s, const char *text, struct error *err);
int source_open_registry(struct source *s, const char *text, bool plain_http, struct error *err);
/* "host[:port]/name..." as it can not be a path's. */
bool source_is_reference(const char *text);

/* ---- files on the web (source_web.c) --------------------------------------------------------- */

/* One file that is read by Range. Redirects are followed; our credentials stay on their origin. */
struct web_file {
    struct http_pool *pool; /* borrowed */
    char *base;             /* owned; asked first */
    char *direct;           /* owned; where its redirects led */
    char *authorization;    /* owned; for base's origin */
    /* base answered 401 to `sent`: 1 and a new value, 0 no use (err says why), -1. May be NULL. */
    int (*challenged)(void *ctx, const char *sent, const struct http_response *r, char **ret,
                      struct error *err);
    void *ctx;
    bool has_size;
    uint64_t size;
    char etag[128]; /* strong, of the first answer; "" = none */
};
void web_file_done(struct web_file *w);
/* Reads the bytes from `first` on, at most len; unless the size is known, at first == 0 only: then
 * it is learnt. All of them that the file has, or failed. ERR_UNSUPPORTED: Range is ignored. */
int web_file_read(struct web_file *w, uint64_t first, size_t len, struct strbuf *to,
                  struct error *err);
/* read and close of a kind whose files' backend is a web_file from malloc(). */
int web_source_read(struct source_file *f, uint64_t offset, void *buf, size_t len,
                    struct error *err);
void web_source_close(struct source_file *f);

#endif
