/* Whom we are at a registry: what oci_auth.h's options lead to, read again when its file changes.
 *
 * A file that cannot be read any more, or is empty or broken because somebody is writing it, leaves
 * the last good credential in force, until the file is good again; if the registry then refuses
 * that one, oci_credentials_advice() tells about the file. Thread-safe, no lock held over I/O.
 */
#ifndef WB_UPSTREAM_OCI_CREDENTIALS_H
#define WB_UPSTREAM_OCI_CREDENTIALS_H

#include "base/err.h"
#include "base/strbuf.h"
#include "upstream/oci_auth.h"

/* All owned; all NULL = nobody, an anonymous client. */
struct oci_credential {
    char *username, *password; /* both or none */
    char *identity_token;      /* for the token server: an OAuth2 refresh token */
    char *registry_token;      /* for the registry, as it is */
};
void oci_credential_done(struct oci_credential *c);
#define _cleanup_credential_ _cleanup_(oci_credential_done)

struct oci_credentials;

/* Reads the file for the first time: a failure says which setting it is about. */
int oci_credentials_new(const struct oci_auth_options *o, struct oci_credentials **ret,
                        struct error *err);
void oci_credentials_free(struct oci_credentials *c);
/* A copy of what holds now. ERR_NOMEM only. */
int oci_credentials_get(struct oci_credentials *c, struct oci_credential *ret, struct error *err);
/* What to look at when the credential was refused: "check upstreams[].password_file (/run/...)". */
void oci_credentials_advice(struct oci_credentials *c, char *to, size_t size);

/* Appends "Basic ..." of user name and password. */
void oci_credential_basic(const char *username, const char *password, struct strbuf *to);

/* ---- docker's config.json (oci_docker_config.c) ---------------------------------------------- */

/* The credential of a host ("quay.io", "reg:5000") in the text of a config.json. 1: found; 0: it
 * has none, so we are anonymous there; -1: ERR_INVALID, or ERR_UNSUPPORTED when a helper program
 * keeps it. A host's key may have a scheme and /, /v1/ or /v2/ behind it, and Docker Hub any of its
 * names; the first one that holds something counts. */
int oci_docker_config_find(const char *text, size_t len, const char *host,
                           struct oci_credential *ret, struct error *err);

#endif
