/* The table of every configuration key. It drives the parser, the environment variables, `config
 * show`, the flags' help and docs/config.md, so a key exists in all of them or in none.
 * Constant; thread-safe. */
#ifndef WB_CONFIG_TABLE_H
#define WB_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "config/config.h"

enum key_type {
    KEY_ADDRESS,  /* host:port -> listen_host, listen_port */
    KEY_TEXT,     /* char * */
    KEY_URL,      /* char *: http or https, no trailing slash */
    KEY_PROXY,    /* char *: a proxy's URL, or "none" (kept; resolved when all is read) */
    KEY_PREFIX,   /* char *: a repository name or the beginning of one */
    KEY_WORD,     /* char *: one of `choices` */
    KEY_INDEX,    /* bool or enum: which one of `choices` */
    KEY_BOOL,     /* bool */
    KEY_NUMBER,   /* unsigned or uint64_t: min..max */
    KEY_DURATION, /* uint64_t seconds: min..max */
    KEY_GLOBS,    /* struct config_strings */
    KEY_HOSTS,    /* struct config_strings: host[:port], lower case */
    KEY_WORDS,    /* struct config_strings: each one of `choices` */
    KEY_ALIASES,  /* struct config_upstream: aliases, n_aliases */
    KEY_TOKENS,   /* struct config_upstream: token_files, n_token_files */
    KEY_ACTIONS,  /* unsigned: bits of enum access_action */
    KEY_SECRET,   /* char *: only from the environment */
    KEY_LIST      /* a list of objects, see config_key_list() */
};

/* Where a key lives: which struct its offset is in. */
enum key_scope { SCOPE_ROOT, SCOPE_UPSTREAM, SCOPE_ACCESS, SCOPE_IMMUTABLE, SCOPE_POLICY };

/* Whether a key must be there, or makes sense only in some elements of its list. */
enum key_use { USE_OPTIONAL, USE_REQUIRED, USE_HUB, USE_OCI };

/* Where a list of objects lives. */
struct config_list {
    const char *path;       /* of its key */
    enum key_scope scope;   /* of the keys of its elements */
    size_t items, n;        /* offsets in struct config: of the array, of its length (size_t) */
    size_t size;            /* of one element */
    const char *when_empty; /* what no element means, where `[]` would mislead; NULL = just that */
};

struct config_key {
    const char *path; /* "log.level", "upstreams[].url" */
    enum key_type type;
    size_t offset, size;  /* of the field in its scope's struct; lists: size 0 */
    uint64_t min, max;    /* numbers and durations; texts: longest length in max */
    const char *fallback; /* the default, written as in an environment variable; NULL = not set */
    const char *choices;  /* "error|warn|info|debug" */
    const char *unit;     /* for the reference: "seconds", "%" ... */
    const char *flag;     /* "listen" for --listen; NULL = none */
    const char *doc;      /* one line */
    enum key_use use;
};

/* All keys in the order of documentation; a section's keys stand together. */
const struct config_key *config_keys(size_t *ret_n);
/* By whole path; NULL = no such key. */
const struct config_key *config_key_find(const char *path);
const struct config_key *config_key_of_flag(const char *flag);
enum key_scope config_key_scope(const struct config_key *key);
/* NULL: the key is no list of objects. */
const struct config_list *config_key_list(const struct config_key *key);
/* The path behind its list: "url" of "upstreams[].url". */
const char *config_key_name(const struct config_key *key);
/* Whether an upstream of this kind has the key. */
bool config_key_is_for(const struct config_key *key, enum upstream_kind kind);
/* Whether `path` is an object that holds keys ("log"). */
bool config_key_is_section(const char *path);

/* WEIGHBRIDGE_LOG_LEVEL, WEIGHBRIDGE_UPSTREAMS_HF_URL (prefix: the upstream's). Appends nothing and
 * returns false for a key that has no variable of its own. */
bool config_key_variable(const struct config_key *key, const char *prefix, struct strbuf *to);

/* The place of word among choices ("a|b|c"), -1 when it is none of them. */
int config_choice(const char *choices, const char *word);

/* Insertions, deletions, replacements and swaps of neighbours that lead from a to b, ignoring case.
 * Long words count as far away. */
unsigned edit_distance(const char *a, const char *b);
/* A distance at which `did you mean` still helps. */
bool edit_is_near(const char *word, unsigned distance);

#endif
