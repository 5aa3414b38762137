/* A scripted registry and its client, for tests of oci*.c. Header-only, as script_server.h. */
#ifndef WB_TESTS_OCI_WORLD_H
#define WB_TESTS_OCI_WORLD_H

#include <criterion/criterion.h>

#include "base/clock.h"
#include "model/oci_manifest.h"
#include "script_server.h"
#include "skewed_clock.h"
#include "upstream/oci_private.h"

#define NAME "team/app"
#define SECRET "s3cret-of-ours"
#define CHILD "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define MANIFEST                                                                                   \
    "{\"schemaVersion\":2,\"mediaType\":\"" OCI_IMAGE_TYPE "\",\"config\":{\"mediaType\":"         \
    "\"application/vnd.oci.image.config.v1+json\",\"digest\":\"" CHILD "\",\"size\":2},"           \
    "\"layers\":[]}"
#define UNKNOWN "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\"}]}"

/* ---- a registry and its client --------------------------------------------------------------- */

struct world {
    struct script *s;
    struct config_upstream c;
    struct oci *o;
    struct error err;
};

static inline struct world *world_at(struct config_upstream c, const char *path)
{
    struct world *w = calloc(1, sizeof(*w));
    cr_assert(w);
    w->s = script_start();
    w->c = c;
    w->c.prefix = (char *)"hub.test";
    w->c.url = strdup(script_url(w->s, path));
    w->c.stall_timeout_s = 30;
    cr_assert_eq(oci_new(&w->c, &w->o, &w->err), 0, "%s", w->err.text);
    return w;
}

static inline struct world *world(void)
{
    return world_at((struct config_upstream){.username = NULL}, "");
}

static inline void end(struct world *w)
{
    oci_free(w->o);
    script_stop(w->s);
    free(w->c.url);
    free(w);
}

static inline struct digest digest_at(const char *text)
{
    struct digest d;
    cr_assert_eq(digest_parse(text, &d, NULL), 0);
    return d;
}

static inline struct digest sha256_of(const char *text)
{
    struct digest d;
    cr_assert_eq(digest_of(DIGEST_SHA256, text, strlen(text), &d, NULL), 0);
    return d;
}

static inline int head(struct world *w, struct oci_head *ret)
{
    w->err = ERROR_INIT;
    return oci_head_manifest(w->o, NAME, "v1", NULL, 0, ret, &w->err);
}

static inline int get(struct world *w, struct manifest *ret)
{
    w->err = ERROR_INIT;
    return oci_get_manifest(w->o, NAME, "v1", NULL, 0, ret, &w->err);
}

static inline void expect(struct world *w, int rc, enum err_code code, const char *text)
{
    cr_assert_eq(rc, -1, "no error where \"%s\" was due", text);
    cr_assert_eq(w->err.code, code, "%s: %s", err_name(w->err.code), w->err.text);
    cr_assert(strstr(w->err.text, text), "\"%s\" is not in: %s", text, w->err.text);
    cr_assert_null(strstr(w->err.text, SECRET), "%s", w->err.text);
}

static inline void add_challenge(struct world *w, const char *method, const char *more)
{
    char match[32];
    snprintf(match, sizeof(match), "%s /v2/", method);
    script_reply(w->s, match, "{}",
                 "401 U\r\nWWW-Authenticate: Bearer realm=\"%s\",service=\"s\","
                 "scope=\"repository:team/app:pull\"%s",
                 script_url(w->s, "/token"), more);
}

#endif
