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
};

/* NULL: a local repository. */
struct hub *upstreams_hub_of(struct upstreams *u, const char *repository);
struct hub *upstreams_hub_named(struct upstreams *u, const char *prefix);

#endif
