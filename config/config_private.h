/* Shared inside config/ only: where a value was given, and the steps of config_load(). */
#ifndef WB_CONFIG_CONFIG_PRIVATE_H
#define WB_CONFIG_CONFIG_PRIVATE_H

#include "config/config.h"
#include "config/jsonc.h"
#include "config/table.h"
#include "config/url.h"

enum source_kind { SOURCE_FILE, SOURCE_VARIABLE, SOURCE_FLAG };

struct source {
    enum source_kind kind;
    const char *name; /* borrowed: "weighbridge.json", "WEIGHBRIDGE_LISTEN", "--listen" */
};

/* What is being looked at: for error texts and for `config show`. */
struct place {
    const struct source *source;
    unsigned line; /* of a file */
    const char *path;
};

/* ERR_INVALID with `FILE:LINE: path: ` or `VARIABLE: path: ` in front. Returns -1. */
int place_fail(const struct place *at, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Paths and where their values came from; a path that is absent has its default. */
struct config_origin {
    char *path;
    char *from; /* "weighbridge.json:12", "WEIGHBRIDGE_LISTEN", "--listen" */
};

/* NULL = default. */
const char *origin_get(const struct config *c, const char *path);
int origin_put(struct config *c, const char *path, const struct place *at, struct error *err);
/* Forgets everything that is said about an element of the list: "upstreams" -> "upstreams[...". */
void origin_drop_list(struct config *c, const char *list);

/* ---- values (value.c): one node into one field --------------------------------------------- */

/* base: the struct of the key's scope. What was in the field before is freed. */
int value_set(void *base, const struct config_key *key, const struct jsonc *node,
              const struct place *at, struct error *err);
/* The same from a text: a variable, a flag, or (at NULL) a default. */
int value_set_text(void *base, const struct config_key *key, const char *text,
                   const struct place *at, struct error *err);
/* Sets every key of the scope that has a default. */
int value_set_defaults(void *base, enum key_scope scope, struct error *err);
/* Frees what the keys of the scope own. */
void value_free_all(void *base, enum key_scope scope);

/* ---- documents (document.c): a parsed file or variable into the structs --------------------- */

int document_apply(struct config *c, const struct jsonc *root, const struct source *source,
                   struct error *err);
/* The value of a key of the type KEY_LIST. */
int document_apply_list(struct config *c, const struct config_key *key, const struct jsonc *list,
                        const struct place *at, struct error *err);
size_t list_length(const struct config *c, const struct config_list *list);
void *list_element(const struct config *c, const struct config_list *list, size_t index);
/* Frees the elements and leaves the list empty. */
void list_drop(struct config *c, const struct config_list *list);
/* Those that there are when nothing says otherwise: the Hub, and the large public registries. */
#define DEFAULT_UPSTREAMS 5
int document_default_upstreams(struct config *c, struct error *err);
/* What can only be judged when all is read: prefixes that clash. */
int document_check(const struct config *c, struct error *err);

/* ---- upstreams (upstreams.c) ---------------------------------------------------------------- */

/* When every key is in: what an upstream's kind demands, and what follows from it. */
int upstreams_settle(struct config *c, struct error *err);

/* ---- policies (policy.c) ----------------------------------------------------------------------
 */

/* A policy that could match nothing would seem to forbid something. */
int policies_check(const struct config *c, struct error *err);

/* ---- environment (environment.c, secrets.c, proxy.c) ---------------------------------------- */

/* The value of a variable, NULL when it is not there or empty. */
const char *environment_get(char **environ_, const char *name);
/* WEIGHBRIDGE_UPSTREAMS, WEIGHBRIDGE_ACCESS and the like, which replace the file's lists. */
int environment_apply_lists(struct config *c, char **environ_, struct error *err);
/* Every other variable; unknown ones are refused. */
int environment_apply_keys(struct config *c, char **environ_, struct error *err);

/* Finds each upstream's token; reads token files. */
int secrets_resolve(struct config *c, char **environ_, struct error *err);
/* The token or password that stands in the variable `name`; it replaces one from elsewhere. */
int secret_take(struct config *c, size_t upstream, const struct config_key *key, const char *value,
                const char *name, struct error *err);
/* Settles `proxy`: "none" and not set become NULL, the environment's is taken over. */
int proxies_resolve(struct config *c, char **environ_, struct error *err);

#endif
