/* Questions to a registry, each asked once for all who want to know (upstream/inquiry.h): a client
 * waits for revalidate_timeout at most where something is known here, else for as long as it takes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "upstream/blame.h"
#include "upstream/mirror_private.h"

struct flight {
    struct inquiry base;
    struct mirror *mirror;
    struct question question;
    char key[QUESTION_KEY_MAX];
    int rc;
    struct outcome outcome;
    struct error error;
};

char *question_key(const struct question *q, char buf[static QUESTION_KEY_MAX])
{
    static const char kinds[] = {[ASK_TAG] = 't',  [ASK_MANIFEST] = 'm',  [ASK_BLOB] = 'b',
                                 [ASK_SIZE] = 's', [ASK_REFERRERS] = 'r', [ASK_TAGS] = 'l'};
    char digest[DIGEST_TEXT_MAX] = "";
    if (q->digest.alg != DIGEST_NONE)
        digest_format(&q->digest, digest);
    snprintf(buf, QUESTION_KEY_MAX, "%c %s %s%s", kinds[q->kind], q->name.full, q->tag, digest);
    return buf;
}

void question_copy(struct question *to, const struct question *from)
{
    *to = *from;
    to->name.name = to->name.full + (from->name.name - from->name.full);
}

void outcome_done(struct outcome *o)
{
    manifest_done(&o->manifest);
    *o = (struct outcome){0};
}

static int settle(const struct flight *x, struct outcome *ret, struct error *err)
{
    const struct manifest *m = &x->outcome.manifest;
    struct outcome o = x->outcome;
    o.manifest = (struct manifest){.digest = m->digest, .len = m->len};
    if (m->bytes) {
        o.manifest.bytes = malloc(m->len);
        o.manifest.media_type = strdup(m->media_type);
        if (!o.manifest.bytes || !o.manifest.media_type) {
            outcome_done(&o);
            return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu bytes", m->len);
        }
        memcpy(o.manifest.bytes, m->bytes, m->len);
    }
    *ret = o;
    if (x->rc < 0 && err)
        *err = x->error;
    return x->rc;
}

static int put(struct mirror *m, const struct question *q, struct outcome *ret, struct error *err)
{
    int rc = mirror_answer(m, q, ret, err);
    if (rc < 0)
        upstream_blame(err, m->config->prefix);
    return rc;
}

/* ---- one question under way ------------------------------------------------------------------ */

static struct flight *flight_of(struct inquiry *x)
{
    return (struct flight *)x; /* its first member */
}

/* Of a flight that there may not be yet. */
struct sought {
    struct mirror *mirror;
    const struct question *question;
    char key[QUESTION_KEY_MAX];
};

static bool is_same(const struct inquiry *x, const void *question)
{
    const struct sought *s = question;
    return strcmp(((const struct flight *)x)->key, s->key) == 0;
}

static struct inquiry *make(const void *question)
{
    const struct sought *s = question;
    struct flight *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->mirror = s->mirror;
    question_copy(&x->question, s->question);
    strcpy(x->key, s->key);
    return &x->base;
}

static void ask(struct inquiry *base)
{
    struct flight *x = flight_of(base);
    x->rc = put(x->mirror, &x->question, &x->outcome, &x->error);
}

static void flight_free(struct inquiry *base)
{
    struct flight *x = flight_of(base);
    outcome_done(&x->outcome);
    free(x);
}

const struct inquiry_kind mirror_questions = {
    .thread = "question", .is_same = is_same, .make = make, .ask = ask, .free = flight_free};

/* By itself, with its whole way in the header, a question is seen through. One for each length of
 * the way, so that a crowd behind a slow upstream does not become one in front of it. */
static int ask_alone(struct flight *x, const struct question *q, struct outcome *ret,
                     struct error *err)
{
    struct inquiry_table *t = &x->mirror->questions;
    x->base.alone_n = loop_get().n;
    inquiry_unlock(t);
    int rc = put(x->mirror, q, ret, err);
    inquiry_lock(t);
    return rc;
}

static int wait_for(struct flight *x, const struct question *q, uint64_t patience_ms,
                    struct outcome *ret, struct error *err)
{
    if (patience_ms) {
        if (inquiry_wait(&x->base, clock_monotonic_ms() + patience_ms, true, err) < 0)
            return -1;
    } else if (!inquiry_wait_long(&x->base)) {
        return ask_alone(x, q, ret, err);
    }
    return settle(x, ret, err);
}

int mirror_ask(struct mirror *m, const struct question *q, uint64_t patience_ms,
               struct outcome *ret, struct error *err)
{
    struct sought s = {.mirror = m, .question = q};
    bool is_mine;
    int rc = -1;
    if (loop_check(m->config->prefix, err) < 0)
        return -1;
    question_key(q, s.key);
    inquiry_lock(&m->questions);
    struct inquiry *x = inquiry_board(
        &m->questions, &s, patience_ms ? INQUIRY_BY_THREAD : INQUIRY_BY_CALLER, &is_mine, err);
    if (x && is_mine)
        inquiry_answer(x);
    if (x) {
        rc = wait_for(flight_of(x), q, patience_ms, ret, err);
        inquiry_leave(x);
    }
    inquiry_unlock(&m->questions);
    return rc;
}
