/* /healthz, /readyz, /metrics. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "server/request.h"

#ifndef WB_VERSION
#define WB_VERSION "unknown"
#endif

/* Not well is only what a restart helps against. */
enum MHD_Result health_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    bool has_failed = store_has_failed(q->server->store, &err);
    if (has_failed)
        strbuf_printf(&body, "%s\n", err.text);
    else
        strbuf_puts(&body, "ok\n");
    return reply_text(q, has_failed ? 503 : 200, "text/plain; charset=utf-8", &body);
}

/* After a write that failed at the wrong moment LMDB lets nobody read any more until a restart. */
static int check_metadata(struct store *s, struct error *err)
{
    _cleanup_(name_list_done) struct name_list list = {0};
    return store_repositories(s, NULL, 1, &list, err);
}

/* Degraded is still ready: what is held is served, and taking the replica out of rotation would
 * only move the load to others. */
enum MHD_Result ready_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    const char *status = "ready";
    bool is_out = true;
    if (atomic_load(&q->server->draining)) {
        status = "draining";
        err_set(&err, ERR_CANCELLED, "the server is shutting down");
    } else if (check_metadata(q->server->store, &err) < 0) {
        status = "failed";
    } else {
        is_out = false;
        if (store_has_room(q->server->store, 0, &err) < 0)
            status = "degraded";
    }
    _cleanup_strbuf_ struct strbuf body = STRBUF_INIT;
    strbuf_putc(&body, '{');
    json_put_key(&body, "status");
    json_put_string(&body, status);
    if (err.code != ERR_NONE) {
        json_put_key(&body, "reason");
        json_put_string(&body, err.text);
    }
    strbuf_puts(&body, "}\n");
    return reply_text(q, is_out ? 503 : 200, "application/json", &body);
}

static void simple(struct strbuf *to, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    metrics_family(to, name, type, help);
    metrics_sample(to, name, "", value);
}

static void write_upstreams(struct upstreams *u, struct strbuf *to)
{
    static const struct {
        const char *name, *type, *help;
    } families[] = {
        {"weighbridge_upstream_bytes_total", "counter", "Body bytes received from an upstream."},
        {"weighbridge_upstream_requests_total", "counter", "Requests sent to an upstream."},
        {"weighbridge_upstream_errors_total", "counter", "Requests to an upstream that failed."},
        {"weighbridge_upstream_left_alone", "gauge",
         "1 while a registry that failed is not asked, 0 otherwise."},
        {"weighbridge_upstream_refused_total", "counter",
         "Questions that were not put to a registry because it is left alone."},
    };
    for (unsigned f = 0; f < ARRAY_LEN(families); f++) {
        metrics_family(to, families[f].name, families[f].type, families[f].help);
        for (size_t i = 0; i < upstreams_count(u); i++) {
            struct upstream_stats s;
            _cleanup_strbuf_ struct strbuf labels = STRBUF_INIT;
            upstreams_stats(u, i, &s);
            const uint64_t values[] = {s.bytes, s.requests, s.errors,
                                       s.breaker.state == BREAKER_OPEN, s.breaker.refused};
            metrics_label(&labels, "upstream", s.prefix);
            metrics_sample(to, families[f].name, strbuf_str(&labels), values[f]);
        }
    }
}

static void write_transfers(struct upstreams *u, struct strbuf *to)
{
    struct transfer_stats t;
    upstreams_transfer_stats(u, &t);
    simple(to, "weighbridge_transfers_running", "gauge", "Downloads under way.", t.running);
    simple(to, "weighbridge_transfer_readers", "gauge", "Clients that read from a download.",
           t.readers);
    simple(to, "weighbridge_transfers_started_total", "counter", "Downloads begun.", t.started);
    simple(to, "weighbridge_transfers_completed_total", "counter",
           "Downloads whose digest matched and that are held now.", t.completed);
    simple(to, "weighbridge_transfers_failed_total", "counter", "Downloads that failed.", t.failed);
    simple(to, "weighbridge_transfers_uncached_total", "counter",
           "Downloads that could not be stored and were only passed through.", t.uncached);
    simple(to, "weighbridge_transfer_resumed_bytes_total", "counter",
           "Bytes taken over from partial downloads instead of asked for again.", t.resumed_bytes);
    simple(to, "weighbridge_verification_failures_total", "counter",
           "Blobs and manifests from upstreams that did not hash to their digest, and manifests "
           "that were not what they were said to be.",
           t.mismatches);
}

static int write_store(struct store *s, struct strbuf *to, struct error *err)
{
    struct store_stats st;
    if (store_stats(s, &st, err) < 0)
        return -1;
    simple(to, "weighbridge_store_blobs", "gauge", "Blobs held.", st.blobs);
    simple(to, "weighbridge_store_bytes", "gauge", "Bytes of the blobs held.", st.blob_bytes);
    simple(to, "weighbridge_store_partials", "gauge", "Unfinished downloads and uploads kept.",
           st.partials);
    simple(to, "weighbridge_store_partial_bytes", "gauge",
           "Bytes of unfinished downloads and uploads.", st.partial_bytes);
    simple(to, "weighbridge_store_uploads", "gauge", "Upload sessions that are open.", st.uploads);
    simple(to, "weighbridge_store_repositories", "gauge", "Repositories known.", st.repositories);
    simple(to, "weighbridge_store_manifests", "gauge", "Manifests held.", st.manifests);
    simple(to, "weighbridge_store_tags", "gauge", "Tags known.", st.tags);
    simple(to, "weighbridge_store_disk_free_bytes", "gauge",
           "Free bytes of the data directory's filesystem.", st.disk_free);
    simple(to, "weighbridge_store_disk_total_bytes", "gauge",
           "Size of the data directory's filesystem.", st.disk_total);
    return 0;
}

enum MHD_Result metrics_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    struct server *s = q->server;
    _cleanup_strbuf_ struct strbuf to = STRBUF_INIT;
    metrics_family(&to, "weighbridge_build_info", "gauge", "The running version, always 1.");
    metrics_sample(&to, "weighbridge_build_info", "version=\"" WB_VERSION "\"", 1);
    metrics_write_requests(s->metrics, &to);
    simple(&to, "weighbridge_clients", "gauge", "Open client connections.",
           atomic_load(&s->clients));
    simple(&to, "weighbridge_clients_max", "gauge", "The configured limits.clients.",
           s->config->max_clients);
    write_upstreams(s->upstreams, &to);
    simple(&to, "weighbridge_upstream_connections", "gauge",
           "Requests that run, to all upstreams together.", upstreams_connections(s->upstreams));
    simple(&to, "weighbridge_upstream_connections_max", "gauge",
           "The configured limits.upstream_connections.", s->config->max_upstream_connections);
    write_transfers(s->upstreams, &to);
    if (write_store(s->store, &to, &err) < 0)
        return reply_error(q, RESOURCE_NONE, &err);
    return reply_text(q, 200, "text/plain; version=0.0.4; charset=utf-8", &to);
}
