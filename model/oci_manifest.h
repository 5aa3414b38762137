/* What a manifest says: the OCI image manifest and index (image-spec 1.1, "manifest.md",
 * "image-index.md"), the retired OCI artifact manifest, and Docker's schema 2 manifest and list.
 * A pure function over bytes that may be hostile; builds no tree, so memory is bounded by the
 * number of descriptors. Thread-safe.
 */
#ifndef WB_MODEL_OCI_MANIFEST_H
#define WB_MODEL_OCI_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

#define OCI_IMAGE_TYPE "application/vnd.oci.image.manifest.v1+json"
#define OCI_INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define OCI_ARTIFACT_TYPE "application/vnd.oci.artifact.manifest.v1+json"
#define DOCKER_IMAGE_TYPE "application/vnd.docker.distribution.manifest.v2+json"
#define DOCKER_LIST_TYPE "application/vnd.docker.distribution.manifest.list.v2+json"

enum oci_role {
    OCI_CONFIG,
    OCI_LAYER,   /* also the blobs of an artifact manifest */
    OCI_FOREIGN, /* a layer of a non-distributable (OCI) or foreign (Docker) type */
    OCI_CHILD,   /* a manifest of an index */
};

struct oci_descriptor {
    enum oci_role role;
    const char *media_type;
    struct digest digest; /* alg NONE: of an algorithm that is not held here */
    const char *digest_text;
    uint64_t size;
};

struct oci_manifest {
    const char *media_type; /* one of the types above */
    bool is_index;
    struct oci_descriptor *parts; /* in the order of the document, config first */
    size_t n_parts;
    bool has_subject;
    struct oci_descriptor subject;
    const char *artifact_type; /* its own, else an image's config type; "" = none */
    const char *annotations;   /* the object as it stands in the bytes (borrowed), NULL = none */
    size_t annotations_len;
    char *storage; /* backs the other strings */
};
void oci_manifest_done(struct oci_manifest *m);

/* The manifest type that a Content-Type header names, without its parameters and in any case; NULL
 * when it is none of the above. */
const char *oci_manifest_type(const char *content_type);

/* content_type: the header, NULL or "" when there is none (then the document's own mediaType
 * counts). `bytes` outlives the result.
 *
 * ERR_INVALID, with the byte or the key that is wrong: no JSON (RFC 8259, one object, UTF-8,
 * nesting up to 127), a mediaType other than the Content-Type, schemaVersion other than 2, a
 * document that reads as both an image and an index, a key that is there twice or that another
 * reader would take for a known one (Go matches them in any case), a descriptor without
 * mediaType, digest or size, a negative or fractional size, a malformed digest, annotations that
 * are no strings. ERR_UNSUPPORTED: a type that is no manifest's, or Docker's schema 1. */
int oci_manifest_parse(const char *content_type, const void *bytes, size_t len,
                       struct oci_manifest *ret, struct error *err);

#endif
