/* What upstreams.c (manifests) and reader.c (blobs) share. */
#ifndef WB_UPSTREAM_UPSTREAMS_PRIVATE_H
#define WB_UPSTREAM_UPSTREAMS_PRIVATE_H

#include "upstream/hub.h"
#include "upstream/import.h"
#include "upstream/upstreams.h"

struct upstreams {
    const struct config *config;
    struct store *store;
    struct importer *importer;
    struct transfers *transfers;
    struct hub **hubs; /* hubs[i] belongs to config->upstreams[i] */
    size_t n_hubs;
    struct limiter *limiter;   /* of all upstreams; NULL = no limit */
    struct limiter **limiters; /* limiters[i] belongs to config->upstreams[i]; NULL = none */
};

/* NULL: a local repository. */
struct hub *upstreams_hub_of(struct upstreams *u, const char *repository);
struct hub *upstreams_hub_named(struct upstreams *u, const char *prefix);

/* What an upstream's downloads have to take from; NULL = no limit. */
struct limiter *upstreams_limiter_of(struct upstreams *u, const struct config_upstream *c);

#endif
