/* Asking a running server over its admin API. */
#ifndef WB_CLI_ASK_H
#define WB_CLI_ASK_H

#include "base/err.h"
#include "base/json.h"
#include "base/strbuf.h"

#define DEFAULT_SERVER "http://127.0.0.1:5000"
/* What every command says of its --server. */
#define SERVER_OPTION_DOC "the running server (default: WEIGHBRIDGE_SERVER or " DEFAULT_SERVER ")"

/* The value of --server, else WEIGHBRIDGE_SERVER, else DEFAULT_SERVER. */
const char *ask_server(const char *option);

/* Sends one request to `path` (percent-encoded, with its query) and gives the body of a 200 answer,
 * which is JSON: parsed to *ret, and appended to `body` as it came unless that is NULL. Any other
 * answer is an error with the server's own words. */
int ask_json(const char *server, const char *method, const char *path, struct json **ret,
             struct strbuf *body, struct error *err);
/* The same for an answer that is many lines of JSON, given to on_line one by one as they come; a
 * negative return, with the error set, ends it. An answer that is cut short is an error. token:
 * sent as a Bearer token, NULL = none. */
int ask_lines(const char *server, const char *method, const char *path, const char *token,
              int (*on_line)(void *ctx, const struct json *line, struct error *err), void *ctx,
              struct error *err);
/* The answer was not what this program's own server would say. Returns -1. */
int ask_misunderstood(const char *server, struct error *err);

#endif
