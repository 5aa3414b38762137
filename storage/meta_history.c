/* Tags, and what became of each over time. Whoever moves or removes a tag does it through here, so
 * that its history is written in the same transaction. The events of a tag are numbered; the oldest
 * gives way when there are TAG_HISTORY_MAX, and the collector drops the history of a tag that has
 * been gone for long. */
#include "storage/meta_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The history of a tag that is gone is of use for a year and a bit. */
#define KEPT_MS ((uint64_t)400 * 24 * 3600 * 1000)

uint64_t history_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

struct last_ctx {
    const struct key *prefix;
    uint64_t sequence;
    bool found;
};

static int visit_last(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    (void)v, (void)err;
    struct last_ctx *c = arg;
    c->found = key_get_sequence(k->mv_data, k->mv_size, c->prefix, &c->sequence);
    return c->found; /* a key that is none of ours is passed over */
}

static int event_add(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
                     const struct tag_event *event, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key prefix = key_of_history(repository, tag);
    struct last_ctx last = {.prefix = &prefix};
    if (db_each_back(m, txn, DB_HISTORY, &prefix, visit_last, &last, err) < 0)
        return -1;
    uint64_t sequence = last.found ? last.sequence + 1 : 0;
    struct key k = key_of_event(repository, tag, sequence);
    event_row_encode(&row, event);
    if (db_put(m, txn, DB_HISTORY, &k, &row, err) < 0)
        return -1;
    if (sequence < TAG_HISTORY_MAX)
        return 0;
    k = key_of_event(repository, tag, sequence - TAG_HISTORY_MAX);
    return db_delete(m, txn, DB_HISTORY, &k, err) < 0 ? -1 : 0;
}

int tag_write(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
              const struct tag *value, struct error *err)
{
    _cleanup_strbuf_ struct strbuf row = STRBUF_INIT;
    struct key k = key_of_tag(repository, tag);
    tag_row_encode(&row, value);
    return db_put(m, txn, DB_TAGS, &k, &row, err);
}

int tag_move(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
             const struct tag *value, const struct tag_cause *cause, struct error *err)
{
    struct key k = key_of_tag(repository, tag);
    struct tag old;
    MDB_val v;
    int r = db_view(m, txn, DB_TAGS, &k, &v, err);
    if (r < 0)
        return -1;
    bool is_same = r == 1 && tag_row_decode(v.mv_data, v.mv_size, &old, NULL) == 0 &&
                   digest_equal(&old.digest, &value->digest);
    if (tag_write(m, txn, repository, tag, value, err) < 0)
        return -1;
    if (is_same)
        return 0;
    struct tag_event event = {
        .at_ms = cause->at_ms, .digest = value->digest, .source = cause->source};
    memcpy(event.commit, value->commit, sizeof(event.commit));
    return event_add(m, txn, repository, tag, &event, err);
}

int tag_remove(struct meta *m, MDB_txn *txn, const char *repository, const char *tag,
               const struct tag_cause *cause, struct error *err)
{
    struct key k = key_of_tag(repository, tag);
    int r = db_delete(m, txn, DB_TAGS, &k, err);
    if (r <= 0)
        return r;
    struct tag_event event = {.at_ms = cause->at_ms, .source = cause->source};
    return event_add(m, txn, repository, tag, &event, err) < 0 ? -1 : 1;
}

/* ---- reading ---- */

struct events_ctx {
    const struct key *prefix;
    struct tag_event *events;
    size_t *sources; /* where each event's source begins in texts */
    size_t n, limit;
    struct strbuf texts;
};

static int visit_event(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct events_ctx *c = arg;
    struct tag_event e;
    uint64_t sequence;
    /* A damaged event is passed over: nothing could repair it, and the others are still right. */
    if (!key_get_sequence(k->mv_data, k->mv_size, c->prefix, &sequence) ||
        event_row_decode(v->mv_data, v->mv_size, &e, NULL) < 0)
        return 0;
    c->sources[c->n] = c->texts.len;
    strbuf_put(&c->texts, e.source, strlen(e.source) + 1);
    if (strbuf_failed(&c->texts))
        return err_set(err, ERR_NOMEM, "out of memory");
    c->events[c->n++] = e;
    return c->n == c->limit;
}

int meta_tag_history(struct meta *m, const char *repository, const char *tag, size_t limit,
                     struct tag_history *ret, struct error *err)
{
    if (limit > TAG_HISTORY_MAX)
        limit = TAG_HISTORY_MAX;
    struct key prefix = key_of_history(repository, tag);
    _cleanup_free_ struct tag_event *events = calloc(limit + 1, sizeof(*events));
    _cleanup_free_ size_t *sources = calloc(limit + 1, sizeof(*sources));
    _cleanup_strbuf_ struct strbuf texts = STRBUF_INIT;
    _cleanup_txn_ MDB_txn *txn = NULL;
    if (!events || !sources)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (meta_read_begin(m, &txn, err) < 0)
        return -1;
    struct events_ctx c = {.prefix = &prefix, .events = events, .sources = sources, .limit = limit};
    int r = limit ? db_each_back(m, txn, DB_HISTORY, &prefix, visit_event, &c, err) : 0;
    texts = c.texts;
    if (r < 0)
        return -1;
    char *storage = strbuf_take(&texts);
    for (size_t i = 0; i < c.n; i++)
        events[i].source = storage + sources[i];
    *ret = (struct tag_history){.events = TAKE_PTR(events), .n = c.n, .storage = storage};
    return 0;
}

/* ---- collecting ---- */

struct sweep_ctx {
    struct meta *m;
    MDB_txn *txn;
    uint64_t now_ms;
    struct key tag;       /* of DB_TAGS: whose events these are */
    size_t group;         /* where its keys begin in `keys` */
    uint64_t newest;      /* of its events */
    struct key_list keys; /* of events to drop, then those of the tag being looked at */
};

/* The tag's events have all been seen: its keys stay in the list only if they are to go. */
static int end_group(struct sweep_ctx *c, struct error *err)
{
    if (c->tag.len == 0)
        return 0;
    int r = db_has(c->m, c->txn, DB_TAGS, &c->tag, err);
    if (r < 0)
        return -1;
    if (r == 1 || c->newest + KEPT_MS > c->now_ms)
        strbuf_truncate(&c->keys.data, c->group);
    c->group = c->keys.data.len;
    c->newest = 0;
    return 0;
}

static int visit_sweep(void *arg, const MDB_val *k, const MDB_val *v, struct error *err)
{
    struct sweep_ctx *c = arg;
    const char *at = k->mv_data;
    size_t repository = strnlen(at, k->mv_size) + 1;
    if (repository >= k->mv_size)
        return 0;
    struct key tag = KEY_INIT;
    key_put(&tag, at, repository + strnlen(at + repository, k->mv_size - repository));
    if (tag.len != c->tag.len || memcmp(tag.data, c->tag.data, tag.len) != 0) {
        if (end_group(c, err) < 0)
            return -1;
        c->tag = tag;
    }
    struct tag_event e;
    if (event_row_decode(v->mv_data, v->mv_size, &e, NULL) == 0 && e.at_ms > c->newest)
        c->newest = e.at_ms;
    key_list_add(&c->keys, k->mv_data, k->mv_size);
    return strbuf_failed(&c->keys.data) ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

int history_sweep(struct meta *m, MDB_txn *txn, uint64_t now_ms, struct error *err)
{
    struct sweep_ctx c = {
        .m = m, .txn = txn, .now_ms = now_ms, .tag = KEY_INIT, .keys = KEY_LIST_INIT};
    struct key all = KEY_INIT, k;
    int r = db_each(m, txn, DB_HISTORY, &all, NULL, visit_sweep, &c, err);
    if (r == 0)
        r = end_group(&c, err);
    for (size_t pos = 0; r == 0 && key_list_next(&c.keys, &pos, &k);)
        r = db_delete(m, txn, DB_HISTORY, &k, err) < 0 ? -1 : 0;
    key_list_done(&c.keys);
    return r;
}
