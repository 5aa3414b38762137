/* Where the files of a model are, for the commands that look into them: a file or folder of this
 * machine, a URL, a repository of the Hub at a commit, an artifact in a registry. All are read the
 * same way, a little at a time, and what it took is counted.
 *
 *     source_open(text, ...)                  one of the forms above
 *     source_files() / source_find(path)      what is there; source_file_open() to read one
 *     source_file_prefix() / source_file_bytes()
 *     source_file_close(), source_close()
 *
 * For one thread.
 */
#ifndef WB_CLI_SOURCE_H
#define WB_CLI_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "model/source.h"

struct source;
struct source_file;

struct source_options {
    bool plain_http; /* a registry without TLS */
};

/* ERR_NOT_FOUND, ERR_INVALID (no such form), and whatever the network says. */
int source_open(const char *text, const struct source_options *o, struct source **ret,
                struct error *err);
void source_close(struct source *s);
static inline void source_close_p(struct source **s)
{
    source_close(*s);
}
#define _cleanup_source_ _cleanup_(source_close_p)

/* "file", "folder", "url", "hub", "registry" */
const char *source_kind(const struct source *s);
/* As it was asked for. */
const char *source_text(const struct source *s);
/* The commit or manifest digest that it was resolved to; "" when there is none. */
const char *source_revision(const struct source *s);
/* What is odd about it; "" when nothing. */
const char *source_note(const struct source *s);

struct source_entry {
    char *path; /* below the source's root, with '/' */
    uint64_t size;
    bool has_size;
    char sha256[65]; /* where the source says it beforehand, else "" */
};
/* What was asked for: one file, or all there are, sorted by path. */
size_t source_files(const struct source *s, const struct source_entry **ret);
/* One file was asked for, and not whatever there is. */
bool source_is_one_file(const struct source *s);

/* Opens one of these, or another file beside them. 1, 0 no such file, -1. */
int source_file_open(struct source *s, const char *path, struct source_file **ret,
                     struct error *err);
void source_file_close(struct source_file *f);
static inline void source_file_close_p(struct source_file **f)
{
    source_file_close(*f);
}
#define _cleanup_source_file_ _cleanup_(source_file_close_p)
uint64_t source_file_size(const struct source_file *f);

/* The first bytes: `need` of them at least (or all that there are), and up to `slack` more where
 * that spares another request. Borrowed until the next call. */
int source_file_prefix(struct source_file *f, uint64_t need, uint64_t slack, const void **ret,
                       size_t *ret_have, struct error *err);
/* Gives back the memory of the prefix. */
void source_file_forget(struct source_file *f);
/* Any bytes; through a window that grows while it is read on. Borrowed until the file is closed. */
const struct byte_source *source_file_bytes(struct source_file *f);

/* A whole small file (a config.json) appended to `to`. 1, 0 no such file, -1; ERR_TOO_LARGE. */
int source_read(struct source *s, const char *path, size_t max, struct strbuf *to,
                struct error *err);

struct source_reads {
    uint64_t bytes, requests;
};
struct source_reads source_reads(const struct source *s);

#endif
