#include "storage/lent.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/strbuf.h"

bool name_id_of(const char *name, const char *second, struct name_id *ret)
{
    _cleanup_strbuf_ struct strbuf b = STRBUF_INIT;
    struct digest d;
    strbuf_put(&b, name, strlen(name) + 1);
    strbuf_put(&b, second, strlen(second) + 1);
    if (strbuf_failed(&b) || digest_of(DIGEST_SHA256, b.data, b.len, &d, NULL) < 0)
        return false;
    memcpy(ret->raw, d.raw, sizeof(ret->raw));
    return true;
}

bool name_id_equal(const struct name_id *a, const struct name_id *b)
{
    return memcmp(a->raw, b->raw, sizeof(a->raw)) == 0;
}

static void everybody(struct lent *l)
{
    *l = (struct lent){.all = true};
}

static void add(struct lent *l, const struct name_id *id)
{
    for (unsigned i = 0; i < l->n; i++)
        if (name_id_equal(&l->to[i], id))
            return;
    if (l->n == LENT_MAX)
        everybody(l);
    else
        l->to[l->n++] = *id;
}

void lent_add(struct lent *l, const char *repository)
{
    struct name_id id;
    if (l->all)
        return;
    if (name_id_of(repository, "", &id))
        add(l, &id);
    else
        everybody(l);
}

void lent_add_all(struct lent *l, const struct lent *others)
{
    if (others->all)
        everybody(l);
    for (unsigned i = 0; !l->all && i < others->n; i++)
        add(l, &others->to[i]);
}

bool lent_is_empty(const struct lent *l)
{
    return !l->all && !l->n;
}
