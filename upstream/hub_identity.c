#include "upstream/hub_identity.h"

#include <string.h>

#include "storage/hub.h"

#define WHAT "identity"

int hub_identity_get(struct store *s, const char *upstream, const char *id, const char *commit,
                     char ret[static HUB_IDENTITY_MAX + 1], struct error *err)
{
    _cleanup_strbuf_ struct strbuf text = STRBUF_INIT;
    *ret = '\0';
    int found = store_hub_document_get(s, upstream, id, commit, WHAT, &text, NULL, err);
    if (found != 1)
        return found;
    snprintf(ret, HUB_IDENTITY_MAX + 1, "%s", strbuf_str(&text));
    return *ret != '\0';
}

static int put(struct store *s, const char *upstream, const char *id, const char *commit,
               const char *identity, struct error *err)
{
    return store_hub_document_put(s, upstream, id, commit, WHAT, identity, strlen(identity), err);
}

void hub_identity_confirm(struct store *s, const char *upstream, const char *id, const char *commit,
                          const char *identity)
{
    char known[HUB_IDENTITY_MAX + 1];
    if (hub_identity_get(s, upstream, id, commit, known, NULL) >= 0 && strcmp(known, identity) != 0)
        put(s, upstream, id, commit, identity, NULL);
}

/* ---- a name that has changed hands ----------------------------------------------------------- */

#define SOURCE "another repository has the name"
#define PAGE 1000u

/* Names of the registry that imports have stored as this id's: aliases, and from before renames. */
static int vacate_imports(struct store *s, const char *upstream, const char *id, struct error *err)
{
    char last[REPOSITORY_MAX + 1];
    size_t n = strlen(upstream);
    snprintf(last, sizeof(last), "%s", upstream);
    for (bool more = true; more;) {
        struct name_list page = {0};
        int rc = store_repositories(s, last, PAGE, &page, err);
        more = rc == 0 && page.more;
        for (size_t i = 0; rc == 0 && i < page.n; i++) {
            struct repository_row row;
            const char *name = page.names[i];
            if (strncmp(name, upstream, n) != 0 || name[n] > '/') {
                more = false;
                break;
            }
            rc = store_repository_get(s, name, &row, err);
            if (rc == 1)
                rc = strcmp(row.upstream, upstream) == 0 && strcmp(row.repo_id, id) == 0
                         ? store_vacate(s, name, SOURCE, err)
                         : 0;
            snprintf(last, sizeof(last), "%s", name);
        }
        name_list_done(&page);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* In this order, so that a crash leaves nothing that could be given; and once more for imports that
 * came to their end meanwhile: those that come later look for themselves. What is stored of commits
 * has the identity that it is of. */
static int change(struct store *s, const char *upstream, const char *id, const char *identity,
                  struct error *err)
{
    if (vacate_imports(s, upstream, id, err) < 0 ||
        store_hub_pin_drop(s, upstream, id, NULL, err) < 0 ||
        put(s, upstream, id, "", identity, err) < 0)
        return -1;
    return vacate_imports(s, upstream, id, err);
}

/* ---- what the Hub says ----------------------------------------------------------------------- */

int hub_identity_note(struct store *s, const struct config_upstream *u, const char *asked,
                      const struct hub_revision *r, char ret[static HUB_IDENTITY_MAX + 1],
                      struct error *err)
{
    const char *const ids[] = {r->id, asked};
    *ret = '\0';
    for (size_t i = 0; i < 2; i++) {
        bool is_id = i == 0; /* a name that nothing is known of need not be one */
        char known[HUB_IDENTITY_MAX + 1];
        if (!is_id && strcmp(asked, r->id) == 0)
            break;
        int found = hub_identity_get(s, u->prefix, ids[i], "", known, err);
        if (found < 0)
            return -1;
        if (!found && !is_id)
            continue;
        const char *now = *r->identity ? r->identity : found ? known : HUB_IDENTITY_NONE;
        if (!found)
            put(s, u->prefix, ids[i], "", now, NULL);
        else if (strcmp(known, now) != 0 && u->credentials == CREDENTIALS_FORWARD &&
                 change(s, u->prefix, ids[i], now, err) < 0)
            return -1;
        if (*r->commit)
            hub_identity_confirm(s, u->prefix, ids[i], r->commit, now);
        strcpy(ret, now);
    }
    return 0;
}

int hub_identity_check_name(struct store *s, const struct config_upstream *u, const char *name,
                            const struct repository_row *row, const struct hub_revision *now,
                            struct error *err)
{
    char before[HUB_IDENTITY_MAX + 1], after[HUB_IDENTITY_MAX + 1];
    if (u->credentials != CREDENTIALS_FORWARD || strcmp(row->repo_id, now->id) == 0)
        return 0;
    int was = hub_identity_get(s, u->prefix, row->repo_id, "", before, err);
    int is = was < 0 ? -1 : hub_identity_get(s, u->prefix, now->id, "", after, err);
    if (is < 0)
        return -1;
    return was && is && strcmp(before, after) == 0 ? 0 : store_vacate(s, name, SOURCE, err);
}

int hub_identity_check_import(struct store *s, const struct config_upstream *u, const char *name,
                              const struct hub_revision *of, struct error *err)
{
    char now[HUB_IDENTITY_MAX + 1];
    if (u->credentials != CREDENTIALS_FORWARD || !*of->identity)
        return 0;
    int found = hub_identity_get(s, u->prefix, of->id, "", now, err);
    if (found != 1 || strcmp(now, of->identity) == 0)
        return found < 0 ? -1 : 0;
    if (store_vacate(s, name, SOURCE, err) < 0)
        return -1;
    return err_set(err, ERR_UPSTREAM, "the name %s/%s was given to another repository meanwhile",
                   u->prefix, of->id);
}
