/* Who may pull what: this server's own rules, and for a Hub's repositories its policies and, where
 * the caller's token is forwarded, what the Hub says of the caller. */
#include <string.h>

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
           (q->route.kind == ROUTE_BASE ||
            upstreams_is_forward(q->server->upstreams, q->route.ref.repository));
}

static bool forwards_any(const struct config *c)
{
    for (size_t i = 0; i < c->n_upstreams; i++)
        if (c->upstreams[i].credentials == CREDENTIALS_FORWARD)
            return true;
    return false;
}

int request_check_login(const struct request *q, struct error *err)
{
    const char *agent = request_header(q, "User-Agent");
    if (!forwards_any(q->server->config) || request_has_header(q, "Authorization") ||
        (agent && strncmp(agent, "docker/", 7) == 0))
        return 0;
    return err_set(err, ERR_UNAUTHORIZED,
                   "log in with any name and a token of the Hub for the password to see what that "
                   "token may read; what is public needs no login");
}
