/* DELETE of a tag, a manifest or a blob: the row goes, and with it what the client can see; bytes
 * go with a later collection. */
#include <stdio.h>

#include "server/request.h"

static enum MHD_Result refuse_all(struct request *q)
{
    return reply_refusal(
        q, 405, "UNSUPPORTED", q->route.kind == ROUTE_BLOB ? "GET, HEAD" : "GET, HEAD, PUT",
        "\"delete\" is \"deny\" in this server's configuration: nothing is deleted "
        "through the registry API");
}

/* NULL where no rule can hold: nothing has to be looked up then. */
static const struct tag_guard *guard_of(const struct request *q, struct tag_guard *guard)
{
    *guard = request_tag_guard(q);
    return config_has_immutable_tags(q->server->config, q->route.ref.repository) ? guard : NULL;
}

static int delete_manifest(struct request *q, struct error *err)
{
    char source[96];
    struct tag_guard guard;
    request_source(q, "delete", source, sizeof(source));
    return store_remove(q->server->store, &q->route.ref, guard_of(q, &guard), source, err);
}

/* A blob that an upstream has would be asked for again at once, or stay away for ever because its
 * manifest is held: what is removed there is the manifest. */
static int delete_blob(struct request *q, struct error *err)
{
    const struct reference *ref = &q->route.ref;
    _cleanup_(link_done) struct link link = {0};
    struct tag_guard guard;
    char digest[DIGEST_TEXT_MAX];
    int found = store_link_get(q->server->store, ref->repository, &ref->digest, &link, err);
    if (found < 0)
        return -1;
    digest_format(&ref->digest, digest);
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "%s has no blob %s", ref->repository, digest);
    if (link.has_origin)
        return err_set(err, ERR_DENIED,
                       "the blob %s of %s comes from an upstream and is fetched again when it is "
                       "wanted: delete the manifest that has it",
                       digest, ref->repository);
    return store_blob_unlink(q->server->store, ref->repository, &ref->digest, guard_of(q, &guard),
                             err);
}

enum MHD_Result deletes_serve(struct request *q)
{
    struct error err = ERROR_INIT;
    bool is_blob = q->route.kind == ROUTE_BLOB;
    if (q->server->config->delete_denied)
        return refuse_all(q);
    if (request_may(q, ACCESS_DELETE, &err) < 0 ||
        (is_blob ? delete_blob(q, &err) : delete_manifest(q, &err)) < 0)
        return reply_error(q, is_blob ? RESOURCE_BLOB : RESOURCE_MANIFEST, &err);
    return reply(q, 202, reply_empty(0));
}
