/* Which bytes are here, and who brings which. Every byte of the file is in one of three states:
 * here (an extent), claimed by one running connection, or open. A byte that is here is never
 * written again, so that whoever was given it has what is hashed later. Everything is done under
 * the transfer's lock. */
#include <string.h>

#include "upstream/transfer_private.h"

#define SEGMENT_MIN (4ull << 20)
#define SEGMENT_MAX (32ull << 20)
/* A connection of its own costs the upstream a request: it brings at least this, and not so much
 * that the next one who is in a hurry has to wait for long. */
#define WANTED_MIN (256ull << 10)
#define WANTED_MAX (16ull << 20)
#define EXTENTS_MAX 1024u /* readers that jump about do not make the list longer */

/* ---- holes -------------------------------------------------------------------------------- */

static const struct fetch *holder_of(const struct transfer *x, uint64_t at)
{
    for (const struct fetch *f = x->fetches; f; f = f->next)
        if (f->at <= at && at < f->end)
            return f;
    return NULL;
}

static uint64_t next_claim(const struct transfer *x, uint64_t at)
{
    uint64_t next = UINT64_MAX;
    for (const struct fetch *f = x->fetches; f; f = f->next)
        if (f->at < f->end && f->at >= at && f->at < next)
            next = f->at;
    return next;
}

/* The first open bytes at or behind `at`; empty when there are none. */
static struct span open_from(const struct transfer *x, uint64_t at)
{
    for (;;) {
        uint64_t here = extents_end(&x->here, at);
        const struct fetch *f = holder_of(x, here);
        uint64_t past = f ? f->end : here;
        if (past == at)
            break;
        at = past;
    }
    if (at >= x->size)
        return (struct span){.first = x->size, .end = x->size};
    uint64_t end = x->size, extent = extents_next(&x->here, at), claim = next_claim(x, at);
    end = extent < end ? extent : end;
    end = claim < end ? claim : end;
    return (struct span){.first = at, .end = end};
}

/* Small enough that the last ones end at about the same time. */
static uint64_t segment_of(const struct transfer *x, uint64_t first)
{
    uint64_t n = (x->size - first) / (4 * (1 + (uint64_t)x->extras)) >> 20 << 20;
    return n < SEGMENT_MIN ? SEGMENT_MIN : n > SEGMENT_MAX ? SEGMENT_MAX : n;
}

/* ---- claims ------------------------------------------------------------------------------- */

static enum claim take(struct transfer *x, struct fetch *f, uint64_t first, uint64_t end)
{
    f->at = first;
    f->end = end;
    f->next = x->fetches;
    x->fetches = f;
    return CLAIM_SOME;
}

/* In order from the front. While there is only one connection it takes all it can. */
static enum claim claim_front(struct transfer *x, struct fetch *f)
{
    struct span s = open_from(x, x->through ? x->hashed : 0);
    if (s.first == s.end) {
        if (f->kind != FETCH_LEAD)
            return CLAIM_NONE;
        return x->fetches ? CLAIM_WAIT : CLAIM_ALL;
    }
    if (x->target > 1 && !x->single) {
        uint64_t n = segment_of(x, s.first);
        if (s.end - s.first > n)
            s.end = s.first + n;
    }
    return take(x, f, s.first, s.end);
}

uint64_t transfer_distance(const struct transfer *x, uint64_t at)
{
    if (extents_end(&x->here, at) > at)
        return 0;
    const struct fetch *f = holder_of(x, at);
    return f ? at - f->at : UINT64_MAX;
}

/* What a reader waits for, cut out of another connection's claim if need be. */
static bool claim_want(struct transfer *x, struct fetch *f, struct span want)
{
    uint64_t at = extents_end(&x->here, want.first);
    uint64_t distance = transfer_distance(x, at);
    if (at >= want.end || distance <= TRANSFER_NEAR)
        return false;
    uint64_t end = want.end > at + WANTED_MIN ? want.end : at + WANTED_MIN;
    end = end < at + WANTED_MAX ? end : at + WANTED_MAX;
    struct span open = open_from(x, at);
    for (struct fetch *other = x->fetches; other; other = other->next)
        if (other->at <= at && at < other->end) {
            open = (struct span){.first = at, .end = other->end};
            other->end = at; /* what is behind ours is open */
            break;
        }
    take(x, f, at, open.end < end ? open.end : end);
    return true;
}

static enum claim claim_wanted(struct transfer *x, struct fetch *f)
{
    while (x->n_wants) {
        struct span want = x->wants[0];
        memmove(x->wants, x->wants + 1, --x->n_wants * sizeof(x->wants[0]));
        if (x->here.n < EXTENTS_MAX && claim_want(x, f, want))
            return CLAIM_SOME;
    }
    return CLAIM_NONE;
}

enum claim transfer_claim(struct transfer *x, struct fetch *f)
{
    switch (f->kind) {
    case FETCH_WANTED:
        return claim_wanted(x, f);
    case FETCH_EXTRA:
        return x->single || 1u + x->extras > x->target ? CLAIM_NONE : claim_front(x, f);
    default:
        if (x->has_slot)
            return claim_front(x, f);
        return claim_wanted(x, f);
    }
}

void transfer_give_back(struct transfer *x)
{
    for (struct fetch *f = x->fetches; f; f = f->next) {
        struct span s = f->kind == FETCH_LEAD ? open_from(x, f->end) : (struct span){0};
        if (s.first == f->end && s.end > s.first)
            f->end = s.end;
    }
}

void transfer_unclaim(struct transfer *x, struct fetch *f)
{
    for (struct fetch **p = &x->fetches; *p; p = &(*p)->next)
        if (*p == f) {
            *p = f->next;
            break;
        }
    pthread_cond_broadcast(&x->cond);
}
