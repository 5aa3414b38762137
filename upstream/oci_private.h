/* What oci*.c share: asking the registry, and what its answers mean. For them and their tests, and
 * for nobody else.
 */
#ifndef WB_UPSTREAM_OCI_PRIVATE_H
#define WB_UPSTREAM_OCI_PRIVATE_H

#include <stdatomic.h>

#include "upstream/oci.h"
#include "upstream/oci_auth.h"

#define OCI_REDIRECTS_MAX 5u
#define OCI_RETRIES_MAX 1u /* of a question that failed on the way, or got 502, 503, 504 */
#define OCI_MANIFEST_MAX ((4u << 20) + (64u << 10))
#define OCI_LIST_PAGE_MAX (8u << 20) /* bytes of one page */
#define OCI_LIST_PAGES_MAX 1000u
#define OCI_LIST_ITEMS_MAX 10000u
#define OCI_LIST_TIME_MS 60000u

struct oci {
    const struct config_upstream *config;
    char *base;       /* what names are appended to: ".../v2/" or ".../v2/team/" */
    const char *path; /* in base, what stands before names in the registry: "team/" or "" */
    struct http_pool *pool;
    struct oci_auth *auth;
    struct breaker *breaker;
    atomic_uint_fast64_t refuted;
};

/* ---- asking (oci.c) -------------------------------------------------------------------------- */

struct oci_question {
    const char *method;
    const char *url; /* on the registry's own origin; NULL = out of memory */
    const char *name;
    const char *accept; /* NULL = any */
    const char *if_none_match;
    size_t max_body;
    uint64_t deadline_ms; /* 0 = as long as each step may take */
    /* Only the answer's header is wanted: of a GET one byte is asked for, and a server that sends
     * more is cut off. */
    bool only_header;
};

struct oci_answer {
    struct http_response *r;
    char *url;       /* that gave r */
    bool is_foreign; /* which is not the registry's own origin */
};
void oci_answer_done(struct oci_answer *a);
#define _cleanup_answer_ _cleanup_(oci_answer_done)

/* {base}{name}/{what}/{reference}; NULL when out of memory. Caller frees. */
char *oci_url(const struct oci *o, const char *name, const char *what, const char *reference);
/* "repository:NAME:pull" as the registry calls it; NULL when out of memory. Caller frees. */
char *oci_scope(const struct oci *o, const char *name);

/* Asks, logged in, redirected; 0 with any status but one that tells of a login that failed. */
int oci_ask(struct oci *o, const struct oci_question *q, struct oci_answer *ret, struct error *err);
/* The registry says that there is no such thing. */
bool oci_is_absent(const struct oci_answer *a);
/* An error answer that is recognisably a registry's own: errors as the distribution specification
 * has them in its body, or its header; and not a page for people. What a proxy on the way, or a web
 * server under a wrong URL, says of itself has neither. A HEAD's answer has no body, so ask with
 * GET. */
bool oci_is_own_word(const struct oci_answer *a);
/* Turns a status that is no success into an error. Returns -1. */
int oci_refusal(struct oci *o, const struct oci_answer *a, struct error *err);
/* err_set(ERR_UPSTREAM) with the answer's URL before the text. */
int oci_broken(const struct oci_answer *a, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An error of oci_auth.h's, as ours: a login that we have and that fails is an upstream that is
 * down. Returns -1. */
int oci_login_failed(struct oci *o, struct error *err);

/* Makes a text that may quote the upstream fit to be shown and logged: one line, and of the URLs in
 * it neither query nor user. */
void oci_clean_text(char *text);

/* ---- answers (oci_pull.c) -------------------------------------------------------------------- */

/* The digest in Docker-Content-Digest; alg NONE when there is none, or one of an algorithm that is
 * not held here. -1: it is no digest. */
int oci_answer_digest(const struct oci_answer *a, struct digest *ret, struct error *err);

/* ---- lists (oci_list.c) ---------------------------------------------------------------------- */

/* Referrers under construction, over several pages; the numbers are offsets into storage. */
struct oci_referrer {
    struct digest digest;
    uint64_t size;
    size_t media_type, artifact_type, annotations; /* the last may be SIZE_MAX: none */
};
struct oci_referrers_build {
    struct oci_referrer *items;
    size_t n, cap;
    bool more;
    struct strbuf storage;
};
void oci_referrers_build_done(struct oci_referrers_build *b);
/* Adds the descriptors of an index: 0, 1 when there are as many as are taken. ERR_UPSTREAM says
 * what is wrong with it. */
int oci_referrers_page(struct oci_referrers_build *b, const char *json, size_t len,
                       struct error *err);
/* Sorted by digest, without duplicates; hands the memory over. */
int oci_referrers_finish(struct oci_referrers_build *b, struct referrer_list *ret,
                         struct error *err);

#endif
