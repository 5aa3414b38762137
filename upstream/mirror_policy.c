/* What a mirrored name means, and what the operator lets through. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "upstream/mirror_private.h"

int mirror_name_of(const struct config_upstream *c, const char *repository, struct mirror_name *ret,
                   struct error *err)
{
    size_t prefix = strlen(c->prefix) + 1;
    if (strlen(repository) <= prefix)
        return err_set(err, ERR_INVALID, "%.255s names no repository of upstream %s", repository,
                       c->prefix);
    if (!config_full_name(NULL, c, repository, ret->full, sizeof(ret->full)))
        return err_set(err, ERR_INVALID, "%.255s is too long a name", repository);
    ret->name = ret->full + prefix;
    return 0;
}

static const char *find_glob(const struct config_strings *globs, const char *text)
{
    for (size_t i = 0; text && i < globs->n; i++)
        if (fnmatch(globs->items[i], text, 0) == 0)
            return globs->items[i];
    return NULL;
}

/* The name without what single_names put, or could have put, before it: NULL if it has none. */
static const char *short_name(const struct config_upstream *c, const char *name)
{
    size_t n = c->single_names ? strlen(c->single_names) : 0;
    if (n == 0 || strncmp(name, c->single_names, n) != 0 || name[n] != '/' ||
        strchr(name + n + 1, '/'))
        return NULL;
    return name + n + 1;
}

int mirror_check_repository(const struct config_upstream *c, const struct mirror_name *n,
                            struct error *err)
{
    const char *brief = short_name(c, n->name);
    const char *glob = find_glob(&c->exclude_repositories, n->name);
    if (!glob)
        glob = find_glob(&c->exclude_repositories, brief);
    if (glob)
        return err_set(err, ERR_DENIED,
                       "%s may not be pulled: exclude_repositories of upstream %s has \"%.100s\"",
                       n->full, c->prefix, glob);
    if (c->repositories.n && !find_glob(&c->repositories, n->name) &&
        !find_glob(&c->repositories, brief))
        return err_set(err, ERR_DENIED,
                       "%s may not be pulled: it is not among the repositories of upstream %s",
                       n->full, c->prefix);
    return 0;
}

int mirror_check_size(const struct config_upstream *c, const struct mirror_name *n,
                      const struct digest *d, uint64_t size, struct error *err)
{
    char text[DIGEST_TEXT_MAX];
    if (!c->max_blob || size <= c->max_blob)
        return 0;
    return err_set(err, ERR_TOO_LARGE,
                   "blob %s of %s has %" PRIu64 " bytes, and max_blob of upstream %s is %" PRIu64,
                   digest_format(d, text), n->full, size, c->prefix, c->max_blob);
}

int mirror_check_parts(const struct config_upstream *c, const struct mirror_name *n,
                       const struct oci_manifest *m, struct error *err)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct oci_descriptor *p = &m->parts[i];
        if (p->role == OCI_CHILD)
            continue;
        if (c->media_types.n && !find_glob(&c->media_types, p->media_type))
            return err_set(err, ERR_DENIED,
                           "the %s %.140s of %s is of the type %.100s, which is not among the "
                           "media_types of upstream %s",
                           p->role == OCI_CONFIG ? "config" : "layer", p->digest_text, n->full,
                           p->media_type, c->prefix);
        if (c->max_blob && p->size > c->max_blob)
            return err_set(err, ERR_TOO_LARGE,
                           "the %s %.140s of %s has %" PRIu64 " bytes, and max_blob of upstream %s "
                           "is %" PRIu64,
                           p->role == OCI_CONFIG ? "config" : "layer", p->digest_text, n->full,
                           p->size, c->prefix, c->max_blob);
    }
    return 0;
}
