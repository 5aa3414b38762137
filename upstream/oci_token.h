/* One exchange of a credential for a token at a registry's token server (distribution spec, "Token
 * Authentication": GET and OAuth2 POST). For oci_auth.c, which keeps the tokens.
 */
#ifndef WB_UPSTREAM_OCI_TOKEN_H
#define WB_UPSTREAM_OCI_TOKEN_H

#include "upstream/http.h"
#include "upstream/oci_credentials.h"

#define OCI_TOKEN_ANSWER_MAX (64u << 10)
#define OCI_TOKEN_MAX (16u << 10)
#define OCI_TOKEN_LIFE_DEFAULT_S 60u
#define OCI_TOKEN_LIFE_MAX_S 86400u

struct oci_token_request {
    const char *realm;    /* an absolute URL */
    const char *service;  /* NULL = not given */
    const char *scope;    /* words with a space between them; NULL or "" = none */
    bool no_post;         /* the server is known not to take POST */
    uint64_t deadline_ms; /* monotonic; 0 = none */
};

struct oci_token {
    char *text; /* owned */
    uint64_t life_s;
};

/* An identity token is sent by POST; where the server does not take that (404, 405, or 401), by GET
 * with Basic like a password. 1: got one; it may grant less than was asked for. 0: the server was
 * asked and refused (400, 401, 403); *err says so without advice, ERR_UNAUTHORIZED. -1:
 * ERR_TIMEOUT, ERR_RATE_LIMITED, ERR_UPSTREAM (with retry_after), ERR_BUSY, ERR_CANCELLED. Nothing
 * that the server said gets into the text. *ret_no_post is set when it turns out. */
int oci_token_exchange(struct http_pool *p, const struct oci_token_request *q,
                       const struct oci_credential *c, struct oci_token *ret, bool *ret_no_post,
                       struct error *err);

/* Reads {"token" or "access_token", "expires_in"}. ERR_UPSTREAM when there is no token in it, or
 * one that no header can carry. */
int oci_token_parse(const char *text, size_t len, struct oci_token *ret, struct error *err);

#endif
