#include "upstream/callers.h"

#include <stdlib.h>
#include <string.h>

#include "upstream/blame.h"

int callers_init(struct callers *c, struct error *err)
{
    *c = (struct callers){0};
    return pthread_mutex_init(&c->lock, NULL) == 0 ? 0
                                                   : err_set(err, ERR_NOMEM, "cannot make a lock");
}

void callers_done(struct callers *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        explicit_bzero(c->tokens[i], strlen(c->tokens[i]));
        free(c->tokens[i]);
    }
    c->n = 0;
    pthread_mutex_destroy(&c->lock);
}

/* Lock held. */
static bool has(const struct callers *c, const char *token)
{
    for (unsigned i = 0; i < c->n; i++)
        if (strcmp(c->tokens[i], token) == 0)
            return true;
    return false;
}

void callers_add(struct callers *c, const char *token)
{
    token = token ? token : ""; /* as which it is sent to nobody */
    if (strlen(token) > CALLER_TOKEN_MAX)
        return;
    pthread_mutex_lock(&c->lock);
    if (c->n < CALLERS_MAX && !has(c, token)) {
        char *copy = strdup(token);
        if (copy) /* else the others have to do */
            c->tokens[c->n++] = copy;
    }
    pthread_mutex_unlock(&c->lock);
}

/* The first that was not refused; which one it is. */
static bool next_token(struct callers *c, unsigned *ret_i, char buf[static CALLER_TOKEN_MAX + 1])
{
    pthread_mutex_lock(&c->lock);
    unsigned i = c->refused;
    bool more = i < c->n;
    if (more)
        memcpy(buf, c->tokens[i], strlen(c->tokens[i]) + 1);
    pthread_mutex_unlock(&c->lock);
    *ret_i = i;
    return more;
}

static void note_refused(struct callers *c, unsigned i)
{
    pthread_mutex_lock(&c->lock);
    if (c->refused == i)
        c->refused = i + 1;
    pthread_mutex_unlock(&c->lock);
}

static int ask_as(struct hub *h, const struct hub_asking *how,
                  int (*ask)(void *ctx, struct hub *as, struct error *err), void *ctx,
                  struct error *err)
{
    struct hub *as = hub_as(h, how);
    if (!as)
        return err_set(err, ERR_NOMEM, "out of memory for a Hub client");
    int rc = ask(ctx, as, err);
    hub_free(as);
    return rc;
}

int callers_ask(struct callers *c, struct hub *h, uint64_t connect_by_ms,
                int (*ask)(void *ctx, struct hub *as, struct error *err), void *ctx,
                struct error *err)
{
    char token[CALLER_TOKEN_MAX + 1];
    struct hub_asking how = {.connect_by_ms = connect_by_ms};
    struct error why = ERROR_INIT;
    unsigned i;
    int rc = -1;
    if (hub_config(h)->credentials != CREDENTIALS_FORWARD)
        return ask_as(h, &how, ask, ctx, err);
    err_set(&why, ERR_UNAUTHORIZED, "every token that this was asked for with was refused");
    while (rc < 0 && next_token(c, &i, token)) {
        why = ERROR_INIT;
        how.has_token = true;
        how.token = *token ? token : NULL;
        rc = ask_as(h, &how, ask, ctx, &why);
        if (rc == 0 || !upstream_refuses(&why))
            break;
        note_refused(c, i);
    }
    explicit_bzero(token, sizeof(token));
    if (rc < 0 && err)
        *err = why;
    return rc;
}
