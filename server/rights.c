/* Who may pull what: this server's own rules, and for a Hub's repositories its policies and, where
 * the caller's token is forwarded, what the Hub says of the caller. */
#include "server/request.h"

int request_may_pull(const struct request *q, struct error *err)
{
    const struct reference *ref = &q->route.ref;
    if (request_may(q, ACCESS_PULL, err) < 0)
        return -1;
    return upstreams_may_pull(q->server->upstreams, ref->repository, ref->is_digest ? "" : ref->tag,
                              err);
}

bool request_may_pull_from(const struct request *q, const char *repository)
{
    return config_access_allows(q->server->config, repository, ACCESS_PULL) &&
           upstreams_may_pull(q->server->upstreams, repository, "", NULL) == 0;
}

bool request_may_see(const struct request *q, const char *repository)
{
    return config_access_allows(q->server->config, repository, ACCESS_PULL) &&
           !upstreams_is_forward(q->server->upstreams, repository) &&
           config_policy_check(q->server->config, repository, NULL, NULL) == 0;
}

bool request_is_challenged(const struct request *q, const struct error *err)
{
    return err->code == ERR_UNAUTHORIZED &&
           upstreams_is_forward(q->server->upstreams, q->route.ref.repository);
}
