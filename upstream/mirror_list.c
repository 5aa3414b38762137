/* Referrers and tags: the upstream's added to those that are here. */
#include <string.h>

#include "base/clock.h"
#include "upstream/mirror_private.h"

/* ---- referrers ------------------------------------------------------------------------------- */

/* A list that is here is soon answer enough; without one there is nothing better than to wait. */
static uint64_t patience_for(struct mirror *m, const struct question *q)
{
    struct referrer_list list = {0};
    int rc = store_referrers(m->store, q->name.full, &q->digest, NULL, NULL, 1, 4096, &list, NULL);
    bool here = rc == 0 && list.n > 0;
    referrer_list_done(&list);
    return here ? m->config->revalidate_timeout_s * 1000u : MIRROR_LIST_WAIT_MS;
}

void mirror_referrers(struct mirror *m, const char *repository, const struct digest *subject,
                      char *warning, size_t size)
{
    struct question q = {.kind = ASK_REFERRERS, .digest = *subject};
    _cleanup_outcome_ struct outcome outcome = {0};
    struct error err = ERROR_INIT;
    char key[QUESTION_KEY_MAX];
    *warning = '\0';
    if (mirror_name_of(m->config, repository, &q.name, &err) < 0)
        return;
    if (notes_get(&m->asked, question_key(&q, key), NULL, NULL))
        return;
    if (m->offline) {
        snprintf(warning, size,
                 "referrers of the upstream may be missing: %s is offline by "
                 "configuration",
                 m->config->prefix);
        return;
    }
    if (mirror_ask(m, &q, patience_for(m, &q), &outcome, &err) == 0)
        return;
    snprintf(warning, size, "referrers of the upstream may be missing: %.400s", err.text);
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* 1, 0 no such repository here, -1. */
static int stored_tags(struct mirror *m, const char *full, struct name_list *ret, struct error *err)
{
    struct error why = ERROR_INIT;
    if (store_tags(m->store, full, NULL, 100000, ret, &why) == 0)
        return 1;
    if (why.code == ERR_NOT_FOUND)
        return 0;
    if (err)
        *err = why;
    return -1;
}

/* Sees to it that there is a list of the upstream's as young as can be had: 1 there may be, 0 it
 * has no such repository, -1. */
static int refresh(struct mirror *m, const struct question *q, bool here, struct error *err)
{
    _cleanup_outcome_ struct outcome outcome = {0};
    char key[QUESTION_KEY_MAX];
    if (m->offline)
        return err_set(err, ERR_UPSTREAM, "%s is offline by configuration", m->config->prefix);
    if (notes_get(&m->negatives, question_key(q, key), err, NULL))
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    uint64_t patience = here ? m->config->revalidate_timeout_s * 1000u : MIRROR_LIST_WAIT_MS;
    if (mirror_ask(m, q, patience, &outcome, err) == 0)
        return 1;
    return outcome.is_gone && err->code == ERR_NOT_FOUND ? 0 : -1;
}

static int merge(struct mirror *m, const struct question *q, struct name_list *stored,
                 struct name_list *ret, bool *ret_fresh, struct error *err)
{
    struct name_list theirs = {0};
    *ret_fresh = false;
    int found = tag_lists_get(&m->tag_lists, q->name.full, &theirs, ret_fresh, err);
    if (found < 0)
        return -1;
    int rc = name_list_merge(stored, &theirs, ret, err);
    name_list_done(&theirs);
    return rc < 0 ? -1 : found;
}

int mirror_tags(struct mirror *m, const char *repository, struct name_list *ret, char *warning,
                size_t size, struct error *err)
{
    struct question q = {.kind = ASK_TAGS};
    struct name_list stored = {0}, list = {0};
    struct error why = ERROR_INIT;
    bool fresh;
    *warning = '\0';
    if (mirror_name_of(m->config, repository, &q.name, err) < 0 ||
        mirror_check_repository(m->config, &q.name, err) < 0)
        return -1;
    int here = stored_tags(m, q.name.full, &stored, err);
    if (here < 0)
        return -1;
    int rc = merge(m, &q, &stored, &list, &fresh, err);
    int known = rc;
    if (rc >= 0 && !fresh) {
        known = refresh(m, &q, here || rc, &why);
        name_list_done(&list);
        rc = merge(m, &q, &stored, &list, &fresh, err);
        if (known < 0)
            snprintf(warning, size, "tags of the upstream may be missing: %.400s", why.text);
    }
    name_list_done(&stored);
    if (rc < 0)
        return -1;
    if (here || rc > 0) {
        *ret = list;
        return 1;
    }
    name_list_done(&list);
    *warning = '\0';
    if (known == 0 || m->offline)
        return 0;
    if (err)
        *err = why;
    return -1;
}
