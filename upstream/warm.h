/* Warming: bringing everything that a reference needs before a client asks for it. The manifest, of
 * an index every manifest that it names, and their configs and layers, each once and through the
 * same transfers that clients' pulls use. Layers that need not be distributed are left out: they
 * pass through when somebody asks for them.
 */
#ifndef WB_UPSTREAM_WARM_H
#define WB_UPSTREAM_WARM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "upstream/upstreams.h"

#define WARM_MANIFESTS_MAX 1024u /* of one index, those below it included */
#define WARM_PARTS_MAX 262144u   /* that all these manifests name */

struct warm_blob {
    struct digest digest;
    uint64_t size; /* as the manifest says */
    bool held;
};

struct warm_plan {
    char repository[REPOSITORY_MAX + 1]; /* as the store calls it */
    struct digest manifest;              /* that the reference names now */
    size_t manifests;                    /* with the ones below it; all of them are held now */
    struct warm_blob *blobs;             /* each digest once */
    size_t n_blobs;
    size_t left_out;        /* layers that need not be distributed */
    uint64_t bytes;         /* of the blobs, those that are held included */
    uint64_t missing_bytes; /* of the others */
    char warning[WARNING_TEXT_MAX];
};

/* Fetches the manifests and says what is to come. ERR_NO_SPACE, with both numbers, when the disk
 * has no room for what is missing; ERR_TOO_LARGE: more than WARM_MANIFESTS_MAX manifests or
 * WARM_PARTS_MAX parts; the errors of upstreams_manifest(). Blocks as that does. warm_plan_done()
 * in any case. */
int warm_plan(struct upstreams *u, const struct reference *r, struct warm_plan *ret,
              struct error *err);
void warm_plan_done(struct warm_plan *p);

struct warm_progress {
    /* Called for every blob once it is held (b->held: it was before), one at a time. */
    void (*on_blob)(void *ctx, const struct warm_blob *b);
    void *ctx;
    atomic_uint_fast64_t bytes; /* that are here, of those that were missing; grows, and falls when
                                   a download has to begin anew */
};

/* Brings what is missing, a few blobs at a time. A blob that fails is tried three times in all
 * before the whole is given up, unless trying again can not help; what has been brought stays.
 * ERR_CANCELLED within a second or two of *halt. */
int warm_run(struct upstreams *u, const struct warm_plan *p, struct warm_progress *progress,
             const atomic_bool *halt, struct error *err);

#endif
