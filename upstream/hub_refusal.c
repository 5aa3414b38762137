/* What the Hub's refusals mean, and what can be done about each. */
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "upstream/hub_private.h"

/* Where our own token comes from. */
static const char *token_from(const struct hub *h, const char *id)
{
    const struct config_token_file *f = hub_token_file_of(h, id);
    if (f)
        return f->file;
    return h->config->token_from ? h->config->token_from : "the configuration";
}

#define HOW_TO_GIVE_A_TOKEN "HF_TOKEN or upstreams[].token_file"
#define HOW_TO_LOG_IN "`hf auth login` or HF_TOKEN where the client runs"

int hub_no_repository(struct hub *h, const char *id, struct error *err)
{
    const char *token = hub_identity_of(h, id).token;
    static const char nowhere[] = "does not exist on the Hub, or it is private and";
    if (h->how.has_token)
        return err_set(err, ERR_NOT_FOUND, "%s/%s %s %s", h->config->prefix, id, nowhere,
                       token ? "the token that the client sent has no access to it"
                             : "the client sent no token (" HOW_TO_LOG_IN ")");
    if (token)
        return err_set(err, ERR_NOT_FOUND, "%s/%s %s the token from %s has no access to it",
                       h->config->prefix, id, nowhere, token_from(h, id));
    return err_set(err, ERR_NOT_FOUND, "%s/%s %s no token is configured (" HOW_TO_GIVE_A_TOKEN ")",
                   h->config->prefix, id, nowhere);
}

int hub_no_revision(struct hub *h, const char *id, const char *revision, struct error *err)
{
    return err_set(err, ERR_NOT_FOUND, "%s/%s has no revision %.255s", h->config->prefix, id,
                   revision ? revision : "main");
}

static int gated(struct hub *h, const char *id, struct error *err)
{
    const char *token = hub_identity_of(h, id).token;
    if (h->how.has_token && token)
        return err_set(err, ERR_DENIED,
                       "%s/%s is gated and the token that the client sent may not read it: accept "
                       "its terms on the Hub with that token's account, or use a token that may "
                       "read it (" HOW_TO_LOG_IN ")",
                       h->config->prefix, id);
    if (h->how.has_token)
        return err_set(err, ERR_UNAUTHORIZED,
                       "%s/%s is gated and the client sent no token: accept its terms on the Hub "
                       "and log in (" HOW_TO_LOG_IN ")",
                       h->config->prefix, id);
    if (token)
        return err_set(err, ERR_DENIED,
                       "%s/%s is gated and the token from %s may not read it: accept its terms on "
                       "the Hub with that token's account, or give weighbridge a token that may "
                       "read it (" HOW_TO_GIVE_A_TOKEN ")",
                       h->config->prefix, id, token_from(h, id));
    return err_set(
        err, ERR_UNAUTHORIZED,
        "%s/%s is gated and no token is configured: accept its terms on the Hub and give "
        "weighbridge a token that may read it (" HOW_TO_GIVE_A_TOKEN ")",
        h->config->prefix, id);
}

/* A 401 that is about no repository: of the credentials as such. */
static int unauthorized(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                        enum hub_missing *ret_missing, struct error *err)
{
    const char *token = hub_identity_of(h, q->id).token;
    struct error said = ERROR_INIT;
    http_status_error(a->r, a->url, &said);
    if (token && (strcasestr(said.text, "invalid credentials") ||
                  strcasestr(said.text, "invalid username or password")))
        *ret_missing = HUB_MISSING_TOKEN;
    /* The same words whatever was asked for. */
    if (h->how.has_token && *ret_missing == HUB_MISSING_TOKEN)
        return err_set(err, ERR_UNAUTHORIZED,
                       "%s: the token that the client sent was refused: the Hub does not know it "
                       "(" HOW_TO_LOG_IN ")",
                       h->config->prefix);
    if (h->how.has_token)
        return err_set(err, ERR_UNAUTHORIZED, "%.600s; %s (" HOW_TO_LOG_IN ")", said.text,
                       token ? "the token that the client sent was refused"
                             : "the client sent no token");
    if (token)
        return err_set(err, ERR_UNAUTHORIZED, "%.600s; the token from %s was refused", said.text,
                       token_from(h, q->id));
    return err_set(err, ERR_UNAUTHORIZED,
                   "%.600s; no token is configured (" HOW_TO_GIVE_A_TOKEN ")", said.text);
}

static enum hub_missing missing_of(const struct hub_question *q, const struct http_response *r)
{
    static const struct {
        const char *code;
        enum hub_missing missing;
    } codes[] = {
        {"RepoNotFound", HUB_MISSING_REPOSITORY},
        {"RevisionNotFound", HUB_MISSING_REVISION},
        {"EntryNotFound", HUB_MISSING_ENTRY},
        {"GatedRepo", HUB_MISSING_GATED},
    };
    const char *code = http_header(r, "X-Error-Code");
    for (size_t i = 0; q->id && code && i < ARRAY_LEN(codes); i++)
        if (strcmp(code, codes[i].code) == 0)
            return codes[i].missing;
    return HUB_MISSING_NONE;
}

/* What the status of an answer with that code can be; another one is of something else, a proxy in
 * between for one. */
static bool is_refusal(unsigned status)
{
    return status >= 400 && status < 500 && status != 429;
}

static int no_entry(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                    struct error *err)
{
    char where[512];
    if (q->path)
        return err_set(err, ERR_NOT_FOUND, "%s/%s has no file %.400s at %.255s", h->config->prefix,
                       q->id, q->path, q->revision ? q->revision : "main");
    return err_set(err, ERR_NOT_FOUND, "%s/%s has nothing at %s", h->config->prefix, q->id,
                   log_url(a->url, where, sizeof(where)));
}

int hub_refusal(struct hub *h, const struct hub_question *q, const struct hub_answer *a,
                enum hub_missing *ret_missing, struct error *err)
{
    unsigned status = http_status(a->r);
    *ret_missing = is_refusal(status) ? missing_of(q, a->r) : HUB_MISSING_NONE;
    switch (*ret_missing) {
    case HUB_MISSING_REPOSITORY:
        return hub_no_repository(h, q->id, err);
    case HUB_MISSING_REVISION:
        return hub_no_revision(h, q->id, q->revision, err);
    case HUB_MISSING_GATED:
        return gated(h, q->id, err);
    case HUB_MISSING_ENTRY:
        return no_entry(h, q, a, err);
    default:
        break;
    }
    if (status == 401)
        return unauthorized(h, q, a, ret_missing, err);
    return http_status_error(a->r, a->url, err);
}
