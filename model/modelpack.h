/* ModelPack documents (modelpack/model-spec: docs/spec.md, docs/config.md, docs/annotations.md):
 * the manifest and the config blob of an imported commit. Deterministic to the byte: compact JSON
 * in the order of the Go structs, Go's escapes, no time stamp. Pure; thread-safe. */
#ifndef WB_MODEL_MODELPACK_H
#define WB_MODEL_MODELPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "model/weights.h"

#define MODELPACK_MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define MODELPACK_ARTIFACT_TYPE "application/vnd.cncf.model.manifest.v1+json"
#define MODELPACK_CONFIG_TYPE "application/vnd.cncf.model.config.v1+json"

/* What the same commit gives must never change for one packager version; a new version is added
 * beside the old ones. Written into the annotation org.weighbridge.packager. */
#define MODELPACK_PACKAGER "2"
#define MODELPACK_PACKAGERS 2u /* 1 up to this one can be written */

enum modelpack_kind { /* in the order of the layers */
                      MODELPACK_WEIGHT_CONFIG,
                      MODELPACK_WEIGHT,
                      MODELPACK_CODE,
                      MODELPACK_DOC,
};

/* modctl's classification by the base name, then by size. */
enum modelpack_kind modelpack_kind_of(const char *path, uint64_t size);

struct modelpack_file {
    const char *path;
    uint64_t size;
    struct digest digest; /* sha256 of the file */
    enum modelpack_kind kind;
};

struct modelpack_note {
    const char *path; /* a weight file that could not be inspected */
    const char *reason;
};

/* What the weights and the configuration together say of the model; packager 2. */
struct modelpack_model {
    uint64_t parameters; /* by the rule (model/parameters.h); 0 = not known */
    char parameters_rule[120];
    uint64_t context; /* tokens; 0 = not known */
    bool has_cache;   /* what follows: of a 16 bit float cache (model/kv_cache.h) */
    uint64_t token_bytes, window_token_bytes, window, sequence_bytes;
    char cache_rule[200];
};

struct modelpack_input {
    unsigned packager;   /* 0 = the newest */
    const char *repo_id; /* "Org/Name" or "name", the Hub's own spelling */
    const char *commit;
    const char *quant; /* the selection's label, NULL = whole repository */
    const struct modelpack_file *files;
    size_t n_files;
    const struct weights
        *weights;            /* the sum over the selected weight files, NULL = nothing known */
    const char *config_json; /* text of the root config.json, NULL when there is none */
    size_t config_json_len;
    /* packager 2: */
    const struct modelpack_model *model; /* NULL = nothing known */
    const char *card;                    /* text of the root README.md, NULL when there is none */
    size_t card_len;
    const struct modelpack_note *notes;
    size_t n_notes;
};

/* Appends the config blob and gives its digest, then the manifest that names it (docs/modelpack.md
 * says what stands in them). Files and notes may come in any order. A config.json or a model card
 * that cannot be read fails nothing: what it would have said is left out, and a note says so.
 * ERR_TOO_LARGE: the manifest would be over 4 MiB, which clients refuse. ERR_INVALID: no files, a
 * path twice, or one that clients must not join to a folder of theirs. */
int modelpack_build(const struct modelpack_input *in, struct strbuf *ret_config,
                    struct digest *ret_config_digest, struct strbuf *ret_manifest,
                    struct digest *ret_manifest_digest, struct error *err);

#endif
