/* Inside server/: one running server, one request, and how a handler answers. Not for other
 * folders: libmicrohttpd's types end here.
 *
 * A request lives from its request line (request_begin) to libmicrohttpd's "completed" call, which
 * writes its log line and counts it; both happen on the connection's own thread, so nothing in
 * struct request is locked. A handler answers exactly once, with one of the reply functions.
 */
#ifndef WB_SERVER_REQUEST_H
#define WB_SERVER_REQUEST_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "server/errors.h"
#include "server/framing.h"
#include "server/metrics.h"
#include "server/route.h"
#include "server/server.h"
#include "upstream/upstreams.h"

struct server {
    const struct config *config;
    struct store *store;
    struct upstreams *upstreams;
    struct metrics *metrics;
    struct MHD_Daemon *daemon;
    struct housekeeping *housekeeping;
    char url[128];
    int listen_fd;
    bool is_quiesced;             /* server_drain() and server_stop() have one caller */
    atomic_bool draining;         /* refuse, finish what runs, close connections after it */
    atomic_bool stopping;         /* cut what runs */
    uint64_t first_id;            /* of a request; random */
    atomic_uint_fast64_t begun;   /* requests so far */
    atomic_uint_fast64_t clients; /* open connections */
    atomic_uint large_buffers;    /* of bodies that are being received */
    atomic_size_t pushed_memory;  /* bytes of the manifests that are being received */
    atomic_size_t question_bytes; /* of bodies of questions to the Hub's API, likewise */
    pthread_mutex_t lock;         /* guards: active, pushes_read */
    pthread_cond_t idle;          /* active became 0 */
    uint64_t active;              /* requests between their headers and their end */
    pthread_cond_t pushes_less;   /* pushes_read shrank */
    size_t pushes_read;           /* memory set apart for manifests that are being read */

    pthread_mutex_t connections_lock; /* guards: connections */
    struct connection *connections;
    pthread_cond_t connections_stop; /* `stopping` was set */
    pthread_t connections_watch;
};

struct housekeeping;
struct request;

/* What becomes of the body of a request that wants one. Set by the handler that is called when the
 * headers are complete (struct body_sink is zero until then).
 *
 *     begin (headers) -> write* -> end (answers) -> release
 *
 * write() gets the body in pieces of 64 to 256 KiB, the last one shorter. After a failed one the
 * rest of the body is thrown away, or not waited for when there is much of it; end() is called all
 * the same, finds q->body_failed set and the reason in q->body_error, and must answer an error.
 * release() is called exactly once for every sink that was set, also when the client went away
 * before the end. All on the connection's thread. */
struct body_sink {
    int (*write)(struct request *q, const void *data, size_t len, struct error *err);
    enum MHD_Result (*end)(struct request *q);
    void (*release)(struct request *q);
    void *ctx;
};

/* When an answer is given decides how it gets to the client; reply.c sees to it, handlers need not
 * know. libmicrohttpd closes the connection behind an answer that is queued at the headers of a
 * request with a body, and takes none at all in the middle of one. */
enum request_phase {
    PHASE_HEADERS, /* held until a short body is through; else given at once, then linger() */
    PHASE_BODY,    /* written past the library, then linger() */
    PHASE_END,     /* the body is through, or there was none */
};

struct request {
    struct server *server;
    struct MHD_Connection *connection;
    char id[17];
    char *target;      /* path and query as they came, owned */
    const char *path;  /* inside target, without scheme and authority */
    const char *query; /* inside target, NULL = none */
    const char *method;
    char host[264]; /* what may be used to build absolute URLs; empty = none */
    bool is_head;
    bool is_active;  /* counted in server->active */
    bool must_close; /* the next bytes on this connection can not be trusted */
    uint64_t started_us;
    struct framing framing;
    enum request_phase phase;
    bool answers_now; /* the body is too long to be read for nothing, or waits for our leave */
    bool is_raw;      /* the answer was written past the library */
    struct MHD_Response *held; /* an answer that waits for the end of the body */
    unsigned held_status;
    const char *held_text; /* the body of `held`, inside it; NULL = not known */
    size_t held_len;
    struct body_sink sink;
    char *buffer; /* of the sink: collects what goes to write() */
    size_t buffer_len, buffer_size;
    bool has_large_buffer; /* counted in server->large_buffers */
    bool body_failed;
    struct error body_error;
    uint64_t received;  /* bytes of the body, for the log */
    uint64_t discarded; /* those of them that nobody wanted */
    struct route route;
    struct hub_route *hub; /* of a Hub's own API (server/hub_api.h), owned; NULL = it is not */
    /* What `?ns=` means (NULL = there is none), and how it was written. */
    const struct config_upstream *ns_upstream;
    char ns[264];

    const struct route_method *does; /* NULL until the headers are complete */
    unsigned status;                 /* 0 until answered */
    uint64_t body_length;            /* of the answer, 0 for HEAD and 304 */
    uint64_t body_sent;              /* by a content reader */
    bool counts_body;                /* body_sent is meant: the body comes from a content reader */
    uint64_t acked_before;           /* bytes the peer had acknowledged when the answer began */
    const char *cache;               /* "hit", "fill", "join", "stale"; NULL = no such thing */
    char warning[WARNING_TEXT_MAX];  /* why it is "stale" */
    struct error error;              /* why it was refused or cut, for the log */
};

/* ---- request.c: libmicrohttpd's callbacks ------------------------------------------------------
 */

void *request_begin(void *cls, const char *target, struct MHD_Connection *c);
enum MHD_Result request_handle(void *cls, struct MHD_Connection *c, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **con_cls);
void request_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                       enum MHD_RequestTerminationCode code);

/* A request header; NULL when absent, or when it came more than once (then it says nothing). */
const char *request_header(const struct request *q, const char *name);
/* Whether it came at all, however often. */
bool request_has_header(const struct request *q, const char *name);
/* Whether the client's side of the connection is gone for good (a half-closed one still reads). */
bool request_client_gone(const struct request *q);
/* The answer is what is held, and the warning ("" = there is none) says why it is no more than
 * that.
 */
void request_is_stale(struct request *q, const char *warning);
/* The connection timeout counts time blocked in a handler: call this after every blocking wait. */
void request_reset_timeout(const struct request *q);
/* The access rules for the request's repository; answers nothing. ERR_DENIED with a text that names
 * the setting. */
int request_may(const struct request *q, enum access_action action, struct error *err);
/* Where clients reach us: external_url, else http:// and the request's own Host; "" when neither is
 * known. No trailing slash. For absolute Location headers. */
void request_base_url(const struct request *q, struct strbuf *to);
/* What keeps immutable tags where they are; valid as long as the server is. */
struct tag_guard request_tag_guard(const struct request *q);
/* "push 10.0.0.7": the verb and the peer, for the history of tags. */
void request_source(const struct request *q, const char *verb, char *buf, size_t size);

/* The socket, borrowed. */
int request_fd(const struct request *q);

/* ---- rights.c: who may pull what ----------------------------------------------------------------
 */

/* request_may() for ACCESS_PULL of the request's reference; of a Hub's repository also what the
 * policies and, where it is forwarded, the caller's token say. May ask the Hub. */
int request_may_pull(const struct request *q, struct error *err);
/* Another repository, to take something from. */
bool request_may_pull_from(const struct request *q, const char *repository);
/* Whether its name may be told, and nothing be asked for that. */
bool request_may_see(const struct request *q, const char *repository);
/* podman, skopeo and their like send a login to no registry whose /v2/ has not asked for one, and
 * come without one all the same when they have none. docker is left alone: without a login it would
 * not go on. ERR_UNAUTHORIZED: to be asked for. */
int request_check_login(const struct request *q, struct error *err);
/* The client lacks a token that would be forwarded, so that a challenge is of use to it. */
bool request_is_challenged(const struct request *q, const struct error *err);

/* ---- dispatch.c: which method of which route is served where ------------------------------------
 */

typedef enum MHD_Result request_handler(struct request *q);
struct route_method {
    enum route_kind kind;
    const char *method;
    request_handler *handle;
    bool takes_body; /* handle() is called at the headers; else when the body is through */
};
/* NULL: the route has no such method. */
const struct route_method *dispatch_find(enum route_kind kind, const char *method);
/* Answers for a path that is nothing, or a method that it has not. */
enum MHD_Result dispatch_refuse(struct request *q);

/* ---- body.c: bodies of requests -----------------------------------------------------------------
 */

/* One piece, as libmicrohttpd hands it out. MHD_NO: the connection ends (perhaps answered). */
enum MHD_Result body_piece(struct request *q, const char *data, size_t len);
/* Gives the sink what is collected: at the end of a body, and when it breaks off. */
void body_flush(struct request *q);
/* The sink and the buffer go. */
void body_release(struct request *q);

/* ---- linger.c: answers to clients that are still sending
 * -----------------------------------------
 */

/* Writes an answer to the socket, past libmicrohttpd, which must not have begun one. text NULL: the
 * body is not known, nothing is sent. Always MHD_NO: the connection ends behind it. */
enum MHD_Result answer_raw(struct request *q, unsigned status, struct MHD_Response *r,
                           const char *text, size_t len);
/* After an answer to a request whose body is still coming: says that nothing more will come from
 * here and throws away what does, for a few seconds. A socket that is closed with bytes unread
 * resets the connection, and the client would lose the answer. */
void linger(struct request *q);

/* ---- connections.c: who came, and who does not come to the point --------------------------------
 */

int connections_start(struct server *s, struct error *err);
/* When the library has closed every connection. Sets `stopping`. */
void connections_stop(struct server *s);
void connection_notify(void *cls, struct MHD_Connection *c, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
/* This connection came when max_clients were there already, and they still are. */
bool connection_is_over_limit(const struct request *q);
/* A whole request is there and its answer begins; the answer has ended. */
void connection_answers(const struct request *q);
void connection_waits(struct MHD_Connection *c);
/* Bytes of a body came. Whoever brings BODY_PROGRESS_MIN of them within client_timeout is never
 * too slow. */
void connection_brings(const struct request *q, uint64_t bytes);
#define BODY_PROGRESS_MIN 1024u

/* ---- reply.c: answers ----------------------------------------------------------------------- */

/* Queues and lets go of the response (NULL = out of memory: the connection is closed). Call it
 * once, with q->body_length set. */
enum MHD_Result reply(struct request *q, unsigned status, struct MHD_Response *r);
/* Takes the text's memory over, also on failure. */
enum MHD_Result reply_text(struct request *q, unsigned status, const char *type,
                           struct strbuf *text);
/* The same, for an answer that may have to be given in the middle of a body: `text` is the answer's
 * body, inside r. */
enum MHD_Result reply_known(struct request *q, unsigned status, struct MHD_Response *r,
                            const char *text, size_t len);
/* Queues now what a handler made ready before. Lets go of it. */
enum MHD_Result reply_queue(struct request *q, unsigned status, struct MHD_Response *r);
/* An error as the table in errors.c has it; q->error keeps it for the log line. */
enum MHD_Result reply_error(struct request *q, enum resource about, const struct error *err);
/* An error with a status and code of its own. allow: the Allow header of a 405, or NULL. */
enum MHD_Result reply_refusal(struct request *q, unsigned status, const char *code,
                              const char *allow, const char *message);
/* No body, and the Content-Length of `length` bytes: what a GET would have had, for HEAD and 304.
 */
struct MHD_Response *reply_empty(uint64_t length);
struct MHD_Response *reply_from_text(struct strbuf *text);
/* Adds a header unless r is NULL. False when it could not (out of memory). */
bool reply_put(struct MHD_Response *r, const char *name, const char *value);

/* `Warning: 299 - "text"`, of an answer that is one all the same; "" = none. */
bool reply_put_warning(struct MHD_Response *r, const char *text);

/* ---- one file a resource ----------------------------------------------------------------------
 */

enum MHD_Result base_serve(struct request *q);
enum MHD_Result manifests_serve(struct request *q);
enum MHD_Result referrers_serve(struct request *q);
enum MHD_Result blobs_serve(struct request *q);
enum MHD_Result tags_serve(struct request *q);
enum MHD_Result catalog_serve(struct request *q);
enum MHD_Result health_serve(struct request *q);
enum MHD_Result ready_serve(struct request *q);
enum MHD_Result metrics_serve(struct request *q);
enum MHD_Result admin_serve(struct request *q);
/* Who may use the admin API: this machine, not through a proxy or from a web page, and where the
 * access rules allow it. ERR_DENIED, with what to do. */
int admin_check_caller(const struct request *q, struct error *err);

/* Writes. The first two are called when the headers are complete: they answer a refusal, or set
 * q->sink and return MHD_YES. The others are called when the (unwanted) body is through. */
enum MHD_Result uploads_begin(struct request *q);   /* POST, PATCH, PUT: uploads.c */
enum MHD_Result manifests_begin(struct request *q); /* PUT: manifests_push.c */
enum MHD_Result uploads_serve(struct request *q);   /* GET, HEAD (status), DELETE (cancel) */
enum MHD_Result deletes_serve(struct request *q);   /* DELETE of a manifest, tag or blob */
enum MHD_Result history_serve(struct request *q);   /* GET /admin/v1/history/NAME:TAG */
enum MHD_Result warm_serve(struct request *q);      /* POST /admin/v1/warm/REFERENCE */

/* ---- access_log.c ------------------------------------------------------------------------------
 */

void access_log_write(struct request *q, enum MHD_RequestTerminationCode code, uint64_t bytes);
void access_log_transfer(void *ctx, const char *upstream, const struct digest *d, uint64_t size,
                         uint64_t received, uint64_t ms, const struct error *error);
void access_log_small(void *ctx, const struct small_ended *what, const struct error *error);
/* The peer's address as text, without the port. */
void peer_text(const struct request *q, char *buf, size_t size);

/* ---- listen.c -----------------------------------------------------------------------------------
 */

/* A bound, listening, non-blocking socket and its URL ("http://[::1]:5000", the real port).
 * ERR_DENIED, ERR_IO as server_start(). */
int listen_open(const struct config *c, int *ret_fd, char *url, size_t url_size, struct error *err);
struct sockaddr;
bool address_is_loopback(const struct sockaddr *a);

#endif
