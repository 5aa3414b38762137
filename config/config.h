/* config: one JSON file with comments, every key optional, every key also a WEIGHBRIDGE_...
 * variable, the common ones also flags. One table (config/table.c) drives the parser, `config
 * show`, --help and docs/config.md. Precedence: flag, environment, file, default.
 *
 * A struct config is immutable after config_load() and may be shared between threads.
 */
#ifndef WB_CONFIG_CONFIG_H
#define WB_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/strbuf.h"

enum upstream_kind { UPSTREAM_HUGGINGFACE, UPSTREAM_OCI };

/* What becomes of a tag that the upstream says is gone, or that we may not read any more. */
enum gone_policy { GONE_DROP, GONE_KEEP };

struct config_strings {
    char **items;
    size_t n;
};

struct config_alias {
    char *name; /* as clients write it, lower case, without the upstream's prefix */
    char *id;   /* the Hub's own spelling */
};

/* A token for some of a Hub's repositories. */
struct config_token_file {
    char *repositories; /* glob over names behind the prefix, in any case */
    char *file;
    char *token; /* secret; read at the start; NULL = anonymous ("none") */
};

/* upstreams[].credentials: whose rights count. */
enum credentials_mode { CREDENTIALS_OWN, CREDENTIALS_FORWARD };

struct config_upstream {
    char *prefix; /* "hf": the first part of repository names */
    enum upstream_kind kind;
    char *url;   /* scheme://host[:port][/path], no trailing slash */
    char *token; /* secret; NULL = anonymous. Resolved from token_file, HF_TOKEN, HF_TOKEN_PATH or
                    the Hub's own token file for the kind huggingface */
    char *token_from;            /* where the token came from, for `config show`; NULL = none */
    char *token_file;            /* as configured; NULL = not set */
    char *ca_file;               /* besides the system's; NULL = only those */
    char *client_cert;           /* for servers that ask for one; NULL = none */
    char *client_key;            /* NULL = in client_cert */
    char *proxy;                 /* for url; NULL = none. May hold a password: never log it */
    bool proxy_from_environment; /* for other URLs as well, each its own (config/proxy.h) */
    struct config_alias *aliases;
    size_t n_aliases;
    struct config_strings include, exclude; /* globs over file paths */
    bool allow_pickle;
    bool inspection_required; /* inspection: "required" instead of "best-effort" */
    uint64_t tag_ttl_s;       /* how long a resolved branch or tag is believed */
    uint64_t negative_ttl_s;  /* how long "no such ..." is believed */
    uint64_t connect_timeout_s, stall_timeout_s;
    unsigned retries;            /* of a broken transfer without progress */
    unsigned max_connections;    /* upstream requests at once */
    unsigned header_connections; /* weight headers and small files at once, within one import */
    unsigned search_limit;       /* commits tried for an unknown manifest digest */
    struct config_token_file *token_files; /* first match wins; else `token` */
    size_t n_token_files;
    enum credentials_mode credentials;
    uint64_t auth_ttl_s; /* how long it is believed that a caller's token opens a repository */

    /* both kinds */
    bool offline;                  /* nothing is asked of it: answers come from the store alone */
    uint64_t revalidate_timeout_s; /* a client waits so long for news of a tag that is here */
    uint64_t max_bytes_per_s;      /* of all its downloads together; 0 = no limit */
    unsigned connections_per_blob; /* ranged ones at once for one large blob, at most */
    unsigned breaker_failures;     /* in a row, until it is left alone for a while */

    /* kind oci */
    char *username;      /* NULL = as docker_config says, else anonymous */
    char *password;      /* secret: only from the environment; NULL = password_file */
    char *password_file; /* NULL = not set */
    char *docker_config; /* docker's config.json; NULL = not set */
    char *single_names;  /* put before names of one component ("library"); NULL = nothing is */
    struct config_strings hosts;        /* ?ns= values that mean this upstream, lower case; those of
                                           its url and prefix need not be among them */
    struct config_strings repositories; /* globs over names behind the prefix; empty = all */
    struct config_strings exclude_repositories;
    struct config_strings media_types; /* globs that configs and layers must match; empty = all */
    uint64_t max_blob;                 /* bytes; 0 = no limit */
    enum gone_policy on_gone;
};

enum access_action { ACCESS_PULL = 1, ACCESS_PUSH = 2, ACCESS_DELETE = 4, ACCESS_ADMIN = 8 };

struct config_access {
    char *repositories; /* glob; upper and lower case are the same, as in repository names */
    unsigned allow;     /* bits of enum access_action, for anonymous clients */
};

/* What may be had of repositories under a Hub's prefix, by whatever way. */
struct config_policy {
    char *repositories;              /* glob over whole names ("hf/org/...") in any case */
    bool deny;                       /* nothing */
    bool pinned_only;                /* only 40-hex commits are revisions */
    struct config_strings revisions; /* globs; only these; empty = all */
    struct config_strings formats;   /* of weight files: "safetensors", "gguf", "pickle", "onnx",
                                        "numpy", "other"; empty = all */
    uint64_t max_file;               /* bytes; 0 = no limit */
};

struct config_immutable {
    char *repositories; /* glob, in any case */
    char *tags;         /* glob; the case counts, as it does in tags */
};

struct config {
    char *listen_host; /* "127.0.0.1", "::1", "0.0.0.0" */
    uint16_t listen_port;
    char *data;
    char *external_url; /* what Location headers start with; NULL = the request's own Host */
    char *log_level;
    unsigned max_clients;              /* connections; above it 503 + Retry-After */
    unsigned max_transfers;            /* downloads at once */
    unsigned max_upstream_connections; /* upstream requests at once, to all together */
    bool finish_abandoned;             /* a transfer that all readers left goes on */
    uint64_t drain_s;                  /* SIGTERM: how long running answers may take */
    char *default_upstream;    /* prefix that other names mean when they are not here; NULL = no */
    bool offline;              /* no upstream is asked anything */
    uint64_t max_bytes_per_s;  /* of all downloads together; 0 = no limit */
    bool delete_denied;        /* "delete": nothing is deleted through the registry API */
    unsigned max_uploads;      /* upload sessions at once; above it 503 */
    uint64_t uploads_expire_s; /* a session on which nothing moves for so long is dropped */
    uint64_t max_manifest;     /* bytes of a pushed manifest; above it 413 */
    struct config_immutable *immutable_tags;
    size_t n_immutable_tags;
    uint64_t client_timeout_s;   /* a client that moves no byte for so long is cut */
    unsigned free_floor_percent; /* of the data directory's filesystem */
    struct config_upstream *upstreams;
    size_t n_upstreams;
    struct config_access *access; /* first match wins; n 0 on loopback = anyone may do anything */
    size_t n_access;
    struct config_policy *policies; /* first match wins; none matches: everything may be had */
    size_t n_policies;
    struct config_origin *origins; /* where values came from, for `config show` */
    size_t n_origins;
};

/* Flags that the command line gave; NULL = not given. */
struct config_flags {
    const char *file; /* --config; NULL = WEIGHBRIDGE_CONFIG, else none */
    const char *listen, *data, *hub, *log_level, *external_url;
};

/* Loads, resolves secrets, validates. ERR_INVALID names the file, the line, the path of the key
 * (`upstreams[1].url`), what is wrong, and the nearest valid key for an unknown one. */
int config_load(const struct config_flags *flags, char **environ_, struct config **ret,
                struct error *err);
void config_free(struct config *c);
static inline void config_free_p(struct config **c)
{
    config_free(*c);
}
#define _cleanup_config_ _cleanup_(config_free_p)
/* Parses and validates a text as config_load() does a file, over the defaults: no environment, no
 * flags, and no other file is touched, so no token is resolved. `name` is for error texts. */
int config_parse_text(const char *name, const char *text, size_t len, struct config **ret,
                      struct error *err);

/* Effective values as JSON with comments that say where each came from; secrets are `"***"`. */
int config_show(const struct config *c, struct strbuf *to, struct error *err);
/* The reference text of every key, for docs/config.md (markdown) and `config reference`. */
void config_reference(struct strbuf *to);
/* One line for each flag of struct config_flags but --config, for `--help`. */
void config_flags_help(struct strbuf *to);

/* "90s", "5m", "1h", "2d" or whole seconds, as every duration is written. */
bool config_duration_parse(const char *text, uint64_t *ret_seconds);

/* Whether anonymous clients may do this to the repository. */
bool config_access_allows(const struct config *c, const char *repository,
                          enum access_action action);
/* Whether this tag, once it is there, must not be moved or removed by clients. Never one under an
 * upstream's prefix. */
bool config_tag_is_immutable(const struct config *c, const char *repository, const char *tag);
/* Whether a tag of the repository could be one. */
bool config_has_immutable_tags(const struct config *c, const char *repository);
/* The policy for a repository's whole name, NULL = none. */
const struct config_policy *config_policy_of(const struct config *c, const char *repository);
/* ERR_DENIED with a text that names the repository, the policy (policies[i]) and what it allows.
 * revision NULL: the repository as such (a digest). A revision as a client spelled it; a tag of the
 * registry API is one. */
int config_policy_check(const struct config *c, const char *repository, const char *revision,
                        struct error *err);
/* Whether a file of such a format word and size may be had: ERR_DENIED likewise. format NULL: it is
 * no weight file. */
int config_policy_check_file(const struct config *c, const char *repository, const char *path,
                             const char *format, uint64_t size, struct error *err);
/* ERR_DENIED: whoever reaches the address to listen on could do everything, because it is no
 * loopback address and there are no access rules. */
int config_check_access(const struct config *c, struct error *err);
/* The upstream that a registry's host name means (containerd's ?ns=): its url's host[:port], its
 * prefix, one of its hosts; Docker Hub's three names are one. NULL = none. Never an address. */
const struct config_upstream *config_upstream_of_host(const struct config *c, const char *host);
/* The one name of a repository, for the store, the rules and the logs, from what a client wrote (in
 * any case, which stays): the prefix of `in` goes before it unless it is there (NULL: it is of the
 * upstream that its own prefix says, if any), and that upstream's single_names before a name of one
 * part, so that docker.io/alpine is docker.io/library/alpine. c: may be NULL where `in` is given.
 * False: it does not fit. */
bool config_full_name(const struct config *c, const struct config_upstream *in, const char *name,
                      char *buf, size_t size);
/* Nothing may be asked of it. */
bool config_is_offline(const struct config *c, const struct config_upstream *u);
/* The upstream whose prefix starts this repository name (`prefix/...`), NULL = local. */
const struct config_upstream *config_upstream_of(const struct config *c, const char *repository);

#endif
