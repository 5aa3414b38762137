/* A Hub's client against scripted servers. Header-only: every test program is one source file. */
#ifndef WB_TESTS_HUB_ENV_H
#define WB_TESTS_HUB_ENV_H

#include <criterion/criterion.h>

#include "script_server.h"
#include "upstream/hub_private.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER_COMMIT "ffff456789abcdef0123456789abcdef01234567"
/* sha256 of "weights of a model" is not needed: nothing here hashes LFS content */
#define SHA "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define OTHER_SHA "ccccaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HELLO_OID "ce013625030ba8dba906f756967f9e9ca394464a" /* git hash-object of "hello\n" */
#define RESOLVE "/o/m/resolve/" COMMIT "/"
#define TREE "/api/models/o/m/tree/" COMMIT
#define INFO(id, sha) "{\"_id\":\"1\",\"id\":\"" id "\",\"sha\":\"" sha "\",\"private\":false}"
#define FILE_JSON(path, rest)                                                                      \
    "{\"type\":\"file\",\"path\":\"" path "\",\"oid\":\"" HELLO_OID "\"" rest "}"

struct env {
    struct script *hub, *cdn;
    struct config_upstream config;
    struct hub *h;
    struct error err;
    char url[64];
};

static inline struct env *env_new(const char *token, unsigned retries)
{
    struct env *e = calloc(1, sizeof(*e));
    e->hub = script_start();
    e->cdn = script_start();
    snprintf(e->url, sizeof(e->url), "%s", script_url(e->hub, ""));
    e->config = (struct config_upstream){.prefix = (char *)"hf",
                                         .url = e->url,
                                         .token = (char *)token,
                                         .token_from = (char *)"HF_TOKEN",
                                         .retries = retries,
                                         .stall_timeout_s = 20};
    cr_assert_eq(hub_new(&e->config, &e->h, &e->err), 0, "%s", e->err.text);
    return e;
}

static inline void env_free(struct env *e)
{
    hub_free(e->h);
    script_stop(e->hub);
    script_stop(e->cdn);
    free(e);
}

/* The last error, checked for secrets that must never be in one. */
static inline void failed(struct env *e, int rc, enum err_code code, const char *text)
{
    cr_assert(rc < 0, "no failure, wanted: %s", text);
    cr_assert_eq(e->err.code, code, "%s: %s", err_name(e->err.code), e->err.text);
    cr_assert(strstr(e->err.text, text), "%s, wanted: %s", e->err.text, text);
    cr_assert_null(strstr(e->err.text, "s3cret"), "%s", e->err.text);
    e->err = ERROR_INIT;
}

static inline void worked(struct env *e, int rc)
{
    cr_assert_eq(rc, 0, "%s", e->err.text);
}

#endif
