/* The admin API: only for who is on this machine, and never for a web page that a browser on this
 * machine has open (a foreign Origin, or a Host that only a rebound DNS name would give). */
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/log.h"
#include "server/framing.h"
#include "server/request.h"
#include "upstream/hub_mirror.h"

static bool host_is_ours(const struct request *q)
{
    const char *listen = strstr(q->server->url, "://");
    return host_is_loopback(q->host) || (listen && strcasecmp(listen + 3, q->host) == 0);
}

/* Through a proxy on this machine everybody comes from this machine. */
static bool is_forwarded(const struct request *q)
{
    static const char *const headers[] = {"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
                                          "X-Real-IP", "Via"};
    for (unsigned i = 0; i < ARRAY_LEN(headers); i++)
        if (request_has_header(q, headers[i]))
            return true;
    return false;
}

int admin_check_caller(const struct request *q, struct error *err)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(q->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!info || !info->client_addr || !address_is_loopback(info->client_addr))
        return err_set(err, ERR_DENIED,
                       "the admin API answers only to this machine itself: run the command there");
    if (is_forwarded(q))
        return err_set(err, ERR_DENIED,
                       "the admin API does not answer through a proxy: run the command on this "
                       "machine, with the server's own address");
    if (request_has_header(q, "Origin"))
        return err_set(err, ERR_DENIED, "the admin API does not answer to web pages");
    if (!host_is_ours(q))
        return err_set(err, ERR_DENIED,
                       "the admin API is reached as localhost or by the listen address, not as "
                       "\"%.100s\"",
                       q->host);
    if (!config_access_allows(q->server->config, q->route.ref.repository, ACCESS_ADMIN))
        return err_set(err, ERR_DENIED, "no \"access\" rule allows \"admin\" on \"%s\"",
                       q->route.ref.repository);
    return 0;
}

/* Whichever Hub the commit is of: what is in memory of the same one of another is read again. */
static int remove_reference(const struct request *q, struct error *err)
{
    const struct config *c = q->server->config;
    const struct reference *r = &q->route.ref;
    if (store_hub_remove(q->server->store, r, "rm", err) < 0)
        return -1;
    for (size_t i = 0; i < c->n_upstreams && !r->is_digest; i++) {
        struct hub_mirror *hub = upstreams_hub_mirror(q->server->upstreams, c->upstreams[i].prefix);
        if (hub)
            hub_mirror_forget(hub, r->tag);
    }
    return 0;
}

enum MHD_Result admin_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    char reference[REFERENCE_TEXT_MAX], peer[64];
    if (admin_check_caller(q, &err) < 0 || remove_reference(q, &err) < 0)
        return reply_error(q, RESOURCE_MANIFEST, &err);
    reference_format(&q->route.ref, reference);
    peer_text(q, peer, sizeof(peer));
    log_event(LOG_INFO, "removed", LOG_S("req", q->id), LOG_S("reference", reference),
              LOG_S("peer", peer));
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_putc(&body, '{');
    json_put_key(&body, "removed");
    json_put_string(&body, reference);
    strbuf_puts(&body, "}\n");
    return reply_text(q, 200, "application/json", &body);
}
