/* What the policies for a repository (policies[] of the configuration) let an import take, and
 * whose import it is where the caller's token is forwarded. */
#include "upstream/import_private.h"

#include <stdio.h>
#include <string.h>

#include "upstream/caller.h"
#include "upstream/hub_mirror_private.h"

/* The name that stands for the id under the upstream's prefix; an alias, or a name from before a
 * renaming, must not be a way around its policies. */
static void own_name(const struct hub *h, const char *id, char ret[static REPOSITORY_MAX + 1])
{
    char full[2 * REPOSITORY_MAX + 2];
    snprintf(full, sizeof(full), "%s/%s", hub_config(h)->prefix, id);
    if (!ascii_lower(full, ret, REPOSITORY_MAX + 1))
        *ret = '\0';
}

static int check_file(const struct build *b, const char *own, const struct select_file *f,
                      const char *format, uint64_t size, struct error *err)
{
    const struct config *c = b->importer->config;
    if (config_policy_check_file(c, b->repository, f->path, format, size, err) < 0)
        return -1;
    return config_policy_check_file(c, own, f->path, format, size, err);
}

/* Formats leave files out, as the pickle rule does; a size refuses. */
int policy_apply(const struct build *b, struct select_file *files, size_t n, struct error *err)
{
    char own[REPOSITORY_MAX + 1];
    struct error first = ERROR_INIT;
    size_t left = 0;
    own_name(b->hub, b->revision->id, own);
    for (size_t i = 0; i < n; i++) {
        struct error why = ERROR_INIT;
        const char *format = files[i].selected ? hub_format_word(files[i].path) : NULL;
        if (!format)
            continue;
        files[i].selected = check_file(b, own, &files[i], format, 0, &why) == 0;
        left += files[i].selected;
        if (!files[i].selected && first.code == ERR_NONE)
            first = why;
    }
    if (first.code != ERR_NONE && left == 0) {
        *err = first;
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (files[i].selected && check_file(b, own, &files[i], NULL, files[i].size, err) < 0)
            return -1;
    return 0;
}

int policy_check_revision(const struct asked *a, const char *revision, struct error *err)
{
    return config_policy_check(a->importer->config, a->reference->repository, revision, err);
}

int policy_check_id(const struct asked *a, const char *id, const char *revision, struct error *err)
{
    char own[REPOSITORY_MAX + 1];
    own_name(a->hub, id, own);
    return config_policy_check(a->importer->config, own, revision, err);
}

const char *caller_mark(const struct hub *h, char buf[static CALLER_MARK_MAX])
{
    const char *token = caller_token();
    struct digest d;
    buf[0] = '\0';
    if (hub_config(h)->credentials != CREDENTIALS_FORWARD)
        return buf;
    if (!token)
        return strcpy(buf, " -");
    if (digest_of(DIGEST_SHA256, token, strlen(token), &d, NULL) < 0)
        d = (struct digest){0};
    buf[0] = ' ';
    hex_format(d.raw, 32, buf + 1);
    return buf;
}

bool is_failure_for_all(const struct hub *h, const struct error *err)
{
    return err->code != ERR_RATE_LIMITED || hub_config(h)->credentials != CREDENTIALS_FORWARD;
}
