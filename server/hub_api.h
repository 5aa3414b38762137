/* Inside server/: what the files that serve a Hub's own API (server/hub_*.c) share.
 *
 * A handler is called when q->hub is parsed, its mirror found, its repository's name in
 * q->route.ref.repository (for the log), and the access rules have said yes. Answers have the form
 * that the Hub's clients read: X-Repo-Commit, {"error": "..."} with X-Error-Code and
 * X-Error-Message, nothing that leads to Xet. All runs on the connection's thread.
 */
#ifndef WB_SERVER_HUB_API_H
#define WB_SERVER_HUB_API_H

#include "server/hub_json.h"
#include "server/hub_route.h"
#include "server/request.h"
#include "upstream/hub_mirror.h"

/* ---- hub_request.c ----------------------------------------------------------------------------
 */

/* Whether this is a request for a manifest that is not meant for the registry API: of llama.cpp
 * before 2026, which had them from the Hub. */
bool hub_is_llama(const struct request *q);
/* Finds the mirror and the repository's name of q->hub, and asks the access rules. */
int hub_settle(struct request *q, struct hub_at *at, struct error *err);

/* After a failure: whether the revision is one with slashes that the client left as they are.
 * q->hub has it in full then; ask again. Asks the mirror, a few times at most. */
bool hub_read_longer(struct request *q, const struct hub_at *at);

/* ---- hub_reply.c ------------------------------------------------------------------------------
 */

/* What every answer of this API has (X-Repo-Commit as far as it is known, a Warning); sets the
 * log's cache= and warning. at: may be NULL. False: out of memory. r NULL is fine. */
bool hub_reply_put(struct request *q, struct MHD_Response *r, const struct hub_at *at);
/* Takes the JSON text's memory over, also on failure. total: X-Total-Count, 0 = none. */
enum MHD_Result hub_reply_json(struct request *q, const struct hub_at *at, struct strbuf *text,
                               uint64_t total);
/* The same of one that others may be sent as well; takes the reference over. */
enum MHD_Result hub_reply_text(struct request *q, const struct hub_at *at, struct hub_text *text);
/* An error in the Hub's shape; at: may be NULL. reply_error() does this for requests with q->hub.
 */
enum MHD_Result hub_reply_error(struct request *q, const struct hub_at *at,
                                const struct error *err);
/* One with a status of its own and no X-Error-Code. allow: of a 405, or NULL. */
enum MHD_Result hub_reply_refusal(struct request *q, unsigned status, const char *allow,
                                  const char *message);
/* The same with one more header (NULL = none). */
enum MHD_Result hub_reply_with(struct request *q, const struct hub_at *at, unsigned status,
                               const char *header, const char *value, const char *message);

/* For a handler that takes a body: collects it (at most max bytes, without a NUL counted), then
 * calls `then`, which answers and finds it with hub_body(). A body that can not be had is answered
 * here. */
enum MHD_Result hub_collect(struct request *q, size_t max, request_handler *then);
/* Valid until the answer is given. Never NULL inside `then`. */
const struct strbuf *hub_body(const struct request *q);

/* ---- hub_stream.c -----------------------------------------------------------------------------
 */

/* Whether answers about all of it are too long to be made in memory first. */
bool hub_is_long(const struct hub_listing *l);
/* Both take the listing over, also on failure, and write its rows while they are sent. */
enum MHD_Result hub_stream_tree(struct request *q, const struct hub_at *at,
                                struct hub_listing *files, const struct hub_walk *from);
/* around: the object that they are siblings in, taken over; where: how much of it is before them.
 */
enum MHD_Result hub_stream_siblings(struct request *q, const struct hub_at *at,
                                    struct hub_listing *files, struct strbuf *around, size_t where);

/* ---- handlers ---------------------------------------------------------------------------------
 */

enum MHD_Result hub_resolve_serve(struct request *q); /* hub_files.c */
enum MHD_Result hub_raw_serve(struct request *q);
enum MHD_Result hub_info_serve(struct request *q);
enum MHD_Result hub_tree_serve(struct request *q);
enum MHD_Result hub_paths_begin(struct request *q); /* POST, at the headers: hub_collect() */
enum MHD_Result hub_refs_serve(struct request *q);
enum MHD_Result hub_commits_serve(struct request *q);
enum MHD_Result hub_check_serve(struct request *q);
enum MHD_Result hub_whoami_serve(struct request *q);
enum MHD_Result hub_llama_serve(struct request *q); /* q->hub->path is the tag */

#endif
