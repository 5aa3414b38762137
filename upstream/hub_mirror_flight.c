/* Questions to a Hub, each asked once for all who want to know (upstream/inquiry.h). Whose token
 * goes with it is part of a question.
 */
#include <stdlib.h>
#include <string.h>

#include "upstream/blame.h"
#include "upstream/hub_mirror_private.h"

struct hub_flight {
    struct inquiry base;
    struct hub_mirror *mirror;
    struct hub_task task; /* points into key and token */
    char *key, *token;    /* owned */
    struct hub_result result;
};

/* The token's digest stands for it: a key is compared, and may be looked at in a debugger. */
int hub_task_who(const struct hub_task *t, char ret[static DIGEST_TEXT_MAX], struct error *err)
{
    struct digest d;
    strcpy(ret, t->forward ? "none" : "own");
    if (!t->forward || !t->token)
        return 0;
    if (digest_of(DIGEST_SHA256, t->token, strlen(t->token), &d, err) < 0)
        return -1;
    digest_format_hex(&d, ret);
    return 0;
}

/* "kind flag who" NUL name NUL revision NUL path NUL; the names are checked and have no NUL. */
static int key_of(const struct hub_task *t, struct strbuf *to, size_t at[static 3],
                  struct error *err)
{
    char who[DIGEST_TEXT_MAX];
    if (hub_task_who(t, who, err) < 0)
        return -1;
    strbuf_printf(to, "%u %d %d %s", (unsigned)t->kind, t->flag, t->is_held, who);
    const char *const texts[] = {t->name, t->revision, t->path};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        strbuf_putc(to, '\0');
        at[i] = to->len;
        strbuf_puts(to, texts[i]);
    }
    return strbuf_failed(to) ? err_set(err, ERR_NOMEM, "out of memory for a question to a Hub") : 0;
}

static struct hub_flight *flight_of(struct inquiry *x)
{
    return (struct hub_flight *)x; /* its first member */
}

static void flight_free(struct inquiry *base)
{
    struct hub_flight *x = flight_of(base);
    hub_result_done(&x->result);
    free(x->key);
    free(x->token);
    free(x);
}

/* Of a flight that there may not be yet. */
struct sought {
    struct hub_mirror *mirror;
    const struct hub_task *task;
    struct strbuf key;
    size_t at[3]; /* of its texts */
};

static struct inquiry *make(const void *question)
{
    const struct sought *s = question;
    const struct hub_task *t = s->task;
    struct hub_flight *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->key = malloc(s->key.len + 1);
    x->token = t->token ? strdup(t->token) : NULL;
    if (!x->key || (t->token && !x->token)) {
        flight_free(&x->base);
        return NULL;
    }
    memcpy(x->key, strbuf_str(&s->key), s->key.len + 1);
    x->mirror = s->mirror;
    x->task = *t;
    x->task.name = x->key + s->at[0];
    x->task.revision = x->key + s->at[1];
    x->task.path = x->key + s->at[2];
    x->task.token = x->token;
    return &x->base;
}

/* All of the key but its first text, which is compared as one, begins at the same places. */
static bool is_same(const struct inquiry *base, const void *question)
{
    const struct hub_flight *x = (const struct hub_flight *)base;
    const struct sought *s = question;
    const char *key = strbuf_str(&s->key);
    return strcmp(x->key, key) == 0 && strcmp(x->task.name, key + s->at[0]) == 0 &&
           strcmp(x->task.revision, key + s->at[1]) == 0 &&
           strcmp(x->task.path, key + s->at[2]) == 0;
}

static void ask(struct inquiry *base)
{
    struct hub_flight *x = flight_of(base);
    hub_task_run(x->mirror, &x->task, &x->result);
    if (x->result.rc < 0)
        upstream_blame(&x->result.error, x->mirror->config->prefix);
}

const struct inquiry_kind hub_mirror_questions = {
    .thread = "hub question", .is_same = is_same, .make = make, .ask = ask, .free = flight_free};

static int wait_for(struct hub_flight *x, struct hub_patience patience, struct error *err)
{
    if (patience.ms)
        return inquiry_wait(&x->base, x->base.begun_ms + patience.ms, patience.gives_up, err);
    if (patience.until_ms)
        return inquiry_wait(&x->base, patience.until_ms, false, err);
    if (inquiry_wait_long(&x->base))
        return 0;
    return err_set(err, ERR_LOOP,
                   "%s was asked for this through another server, which may wait for us",
                   x->mirror->config->prefix);
}

static int ask_once(const struct sought *s, struct hub_patience patience, struct hub_flight **ret,
                    struct error *err)
{
    struct inquiry_table *t = &s->mirror->questions;
    enum inquiry_by by = patience.ms         ? INQUIRY_BY_THREAD
                         : patience.until_ms ? INQUIRY_BY_ANYBODY
                                             : INQUIRY_BY_CALLER;
    bool is_mine;
    int rc = -1;
    inquiry_lock(t);
    struct inquiry *x = inquiry_board(t, s, by, &is_mine, err);
    if (x && is_mine)
        inquiry_answer(x);
    if (x)
        rc = wait_for(flight_of(x), patience, err);
    if (x && rc < 0)
        inquiry_leave(x);
    inquiry_unlock(t);
    if (rc == 0)
        *ret = flight_of(x);
    return rc;
}

int hub_ask_once(struct hub_mirror *m, const struct hub_task *t, struct hub_patience patience,
                 struct hub_flight **ret, struct error *err)
{
    struct sought s = {.mirror = m, .task = t, .key = STRBUF_INIT};
    int rc = loop_check(m->config->prefix, err);
    if (rc == 0)
        rc = key_of(t, &s.key, s.at, err);
    if (rc == 0)
        rc = ask_once(&s, patience, ret, err);
    strbuf_done(&s.key);
    return rc;
}

const struct hub_result *hub_flight_result(const struct hub_flight *x)
{
    return &x->result;
}

void hub_flight_leave(struct hub_flight *x)
{
    if (!x)
        return;
    struct inquiry_table *t = x->base.table;
    inquiry_lock(t);
    inquiry_leave(&x->base);
    inquiry_unlock(t);
}
