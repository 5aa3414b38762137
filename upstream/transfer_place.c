/* Where the bytes are. The source gives a location; the location may redirect, for a while, to
 * another one. All connections of a transfer share both, and whoever finds them stale asks again
 * for everybody. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "upstream/transfer_private.h"

void aim_done(struct aim *a)
{
    free(a->url);
    free(a->base);
    free(a->authorization);
    *a = (struct aim){0};
}

/* Under x->lock. */
static bool copy_credential(const struct http_location *l, char **ret)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    if (!l->authorization && !l->bearer)
        return true;
    if (l->authorization)
        strbuf_puts(&b, l->authorization);
    else
        strbuf_printf(&b, "Bearer %s", l->bearer);
    *ret = strbuf_take(&b);
    return *ret != NULL;
}

int transfer_aim(struct transfer *x, struct aim *ret, struct error *err)
{
    struct aim a = {0};
    pthread_mutex_lock(&x->lock);
    a.number = x->location_number;
    a.direct = x->direct != NULL;
    a.url = strdup(x->direct ? x->direct : x->location.url);
    a.base = strdup(x->location.url);
    bool ok = a.url && a.base && copy_credential(&x->location, &a.authorization);
    pthread_mutex_unlock(&x->lock);
    if (!ok) {
        aim_done(&a);
        return err_set(err, ERR_NOMEM, "out of memory for a location");
    }
    *ret = a;
    return 0;
}

static bool is_https(const char *url)
{
    return strncasecmp(url, "https:", 6) == 0;
}

int transfer_follow(struct aim *a, const struct http_response *r, struct error *err)
{
    char shown[512];
    log_url(a->url, shown, sizeof(shown));
    const char *location = http_header(r, "Location");
    if (!location)
        return err_set(err, ERR_UPSTREAM, "%s answered %u without a Location", shown,
                       http_status(r));
    char *url = http_resolve_location(a->url, location);
    if (!url)
        return err_set(err, ERR_UPSTREAM, "%s redirects to what is no http or https URL", shown);
    if (is_https(a->url) && !is_https(url)) {
        free(url);
        return err_set(err, ERR_UPSTREAM, "%s redirects from https to http, which is refused",
                       shown);
    }
    free(a->url);
    a->url = url;
    return 0;
}

int transfer_challenge(struct transfer *x, struct aim *a, const struct http_response *r,
                       struct error *err)
{
    char *fresh = NULL;
    int rc = x->source.challenged(x->source.ctx, a->authorization, r, &fresh, err);
    if (rc <= 0)
        return rc;
    free(a->authorization);
    a->authorization = fresh;
    char *copy = strdup(fresh);
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory for a credential");
    pthread_mutex_lock(&x->lock);
    if (x->location_number == a->number) { /* for the next exchange, and for the others */
        free(x->location.bearer);
        free(x->location.authorization);
        x->location.bearer = NULL;
        x->location.authorization = TAKE_PTR(copy);
    }
    pthread_mutex_unlock(&x->lock);
    free(copy);
    return 1;
}

void transfer_accepted(struct transfer *x, const struct aim *a)
{
    if (x->source.accepted && a->authorization && http_same_origin(a->base, a->url))
        x->source.accepted(x->source.ctx, a->authorization);
}

void transfer_remember(struct transfer *x, const struct aim *a)
{
    if (a->direct || strcmp(a->url, a->base) == 0)
        return;
    char *direct = strdup(a->url);
    pthread_mutex_lock(&x->lock);
    if (x->location_number == a->number) {
        free(x->direct);
        x->direct = TAKE_PTR(direct);
    }
    pthread_mutex_unlock(&x->lock);
    free(direct);
}

unsigned transfer_location_number(struct transfer *x)
{
    pthread_mutex_lock(&x->lock);
    unsigned number = x->location_number;
    pthread_mutex_unlock(&x->lock);
    return number;
}

/* 1: the location is to be asked for, by us. */
static int claim_locating(struct transfer *x, unsigned number)
{
    pthread_mutex_lock(&x->lock);
    while (x->locating && !atomic_load(&x->halt))
        pthread_cond_wait(&x->cond, &x->lock);
    bool ours = x->location_number == number && !x->locating;
    if (ours && x->direct) {
        /* Only where it redirected to went stale. */
        free(TAKE_PTR(x->direct));
        x->location_number++;
        ours = false;
    }
    x->locating = x->locating || ours;
    pthread_mutex_unlock(&x->lock);
    return ours;
}

int transfer_relocate(struct transfer *x, unsigned number, struct error *err)
{
    if (!claim_locating(x, number))
        return 0;
    struct http_location l = {0};
    int rc = x->source.locate(x->source.ctx, &l, err);
    pthread_mutex_lock(&x->lock);
    if (rc == 0) {
        struct http_location old = x->location;
        x->location = l;
        l = old;
        x->location_number++;
    }
    x->locating = false;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
    http_location_done(&l);
    return rc;
}
