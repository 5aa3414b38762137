/* What upstreams.c (manifests) and reader.c (blobs) share. */
#ifndef WB_UPSTREAM_UPSTREAMS_PRIVATE_H
#define WB_UPSTREAM_UPSTREAMS_PRIVATE_H

#include "upstream/hub.h"
#include "upstream/hub_mirror.h"
#include "upstream/import.h"
#include "upstream/mirror.h"
#include "upstream/small.h"
#include "upstream/upstreams.h"

struct upstreams {
    const struct config *config;
    struct store *store;
    struct importer *importer;
    struct transfers *transfers;
    struct smalls *smalls;
    /* hubs[i] (with hub_mirrors[i]) or mirrors[i] belongs to config->upstreams[i]; the other is
     * NULL
     */
    struct hub **hubs;
    struct hub_mirror **hub_mirrors;
    struct mirror **mirrors;
    size_t n;                   /* of those that are made */
    struct http_places *places; /* of all upstreams together */
    struct limiter *limiter;    /* of all upstreams; NULL = no limit */
    struct limiter **limiters;  /* limiters[i] belongs to config->upstreams[i]; NULL = none */
};

/* NULL: a local repository, or one of an upstream of the other kind. */
struct hub *upstreams_hub_of(struct upstreams *u, const char *repository);
struct mirror *upstreams_mirror_of(struct upstreams *u, const char *repository);
/* The upstream of that prefix, NULL when it is not (or no longer) configured. */
const struct config_upstream *upstreams_named(struct upstreams *u, const char *prefix);
struct hub *upstreams_hub(struct upstreams *u, const struct config_upstream *c);
struct mirror *upstreams_mirror(struct upstreams *u, const struct config_upstream *c);

/* Says in the answer that it is old, and why. */
void manifest_answer_stale(struct manifest_answer *a, uint64_t checked_at, const char *why);

/* What an upstream's downloads have to take from; NULL = no limit. */
struct limiter *upstreams_limiter_of(struct upstreams *u, const struct config_upstream *c);

#endif
