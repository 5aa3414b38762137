/* Whether a Hub's repository may be pulled by registry names: policies, and the caller's rights. */
#include "upstream/hub_mirror.h"
#include "upstream/import_private.h"
#include "upstream/upstreams_private.h"

static const struct config_upstream *hub_upstream_of(struct upstreams *u, const char *repository)
{
    const struct config_upstream *c = config_upstream_of(u->config, repository);
    return c && c->kind == UPSTREAM_HUGGINGFACE ? c : NULL;
}

bool upstreams_is_forward(struct upstreams *u, const char *repository)
{
    const struct config_upstream *c = hub_upstream_of(u, repository);
    return c && c->credentials == CREDENTIALS_FORWARD;
}

/* The revision that a tag is read as: the first that the policies let through, as the others are
 * not tried by an import either. */
static const char *revision_of(const struct config *c, const char *repository,
                               const struct tag_reading *readings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!readings[i].is_default &&
            config_policy_check(c, repository, readings[i].revision, NULL) == 0)
            return readings[i].revision;
    return readings[0].revision;
}

int upstreams_may_pull(struct upstreams *u, const char *repository, const char *tag,
                       struct error *err)
{
    struct tag_reading readings[TAG_READINGS_MAX];
    const struct config_upstream *c = hub_upstream_of(u, repository);
    const char *revision = NULL;
    if (!c || (c->credentials == CREDENTIALS_OWN && !u->config->n_policies && !u->config->n_access))
        return 0;
    if (*tag)
        revision = revision_of(u->config, repository, readings, tag_readings(tag, readings));
    return hub_mirror_may_pull(upstreams_hub_mirror(u, c->prefix), repository, revision, err);
}
