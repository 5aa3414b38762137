/* POST to .../blobs/uploads/: begins a session, unless the blob is in the request, or is here
 * already and only has to be mounted. */
#include <string.h>

#include "server/names.h"
#include "server/uploads.h"

#define LOOK_AT_MAX 1024u /* repositories that are looked at for a blob with no `from` */
#define PAGE 128u

static int mount_from(struct request *q, const struct digest *d, const char *from,
                      struct error *err)
{
    char lower[REPOSITORY_MAX + 1];
    if (!names_beside(q, from, lower) || !request_may_pull_from(q, lower))
        return 0;
    return store_blob_mount(q->server->store, q->route.ref.repository, d, lower, err);
}

/* Among what the client may pull: another repository's blobs must not be known to it. */
static int mount_from_anywhere(struct request *q, const struct digest *d, struct error *err)
{
    struct store *s = q->server->store;
    const char *repository = q->route.ref.repository;
    char last[REPOSITORY_MAX + 1] = "";
    int r = request_may_pull_from(q, repository)
                ? store_blob_mount(s, repository, d, repository, err)
                : 0;
    bool more = true;
    for (unsigned looked = 0; r == 0 && more && looked < LOOK_AT_MAX;) {
        struct name_list l = {0};
        r = store_blob_repositories(s, d, *last ? last : NULL, PAGE, &l, err);
        for (size_t i = 0; r == 0 && i < l.n; i++)
            if (request_may_see(q, l.names[i]))
                r = store_blob_mount(s, repository, d, l.names[i], err);
        looked += (unsigned)l.n;
        more = l.more && l.n > 0 && ascii_lower(l.names[l.n - 1], last, sizeof(last));
        name_list_done(&l);
    }
    return r;
}

/* A mount that can not be is no error: the client pushes the blob instead. */
static bool is_mounted(struct request *q, struct digest *d)
{
    char text[2 * DIGEST_TEXT_MAX], from[REPOSITORY_MAX + 1];
    if (query_get(q->query, "mount", text, sizeof(text), NULL) != 1 ||
        digest_parse(text, d, NULL) < 0)
        return false;
    q->route.ref.digest = *d; /* for the log */
    int has_from = query_get(q->query, "from", from, sizeof(from), NULL);
    int r = has_from == 1   ? mount_from(q, d, from, &q->error)
            : has_from == 0 ? mount_from_anywhere(q, d, &q->error)
                            : 0;
    return r == 1; /* a failure is in the log line */
}

/* 1 and the algorithm that the client announced, 0 none. */
static int announced(const struct request *q, enum digest_alg *ret, struct error *err)
{
    static const enum digest_alg known[] = {DIGEST_SHA256, DIGEST_SHA512};
    char text[32];
    int r = query_get(q->query, "digest-algorithm", text, sizeof(text), err);
    if (r <= 0)
        return r;
    for (unsigned i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(text, digest_alg_name(known[i])) == 0) {
            *ret = known[i];
            return 1;
        }
    return err_set(err, ERR_UNSUPPORTED,
                   "the digest algorithm \"%s\" is not known here; sha256 and sha512 are", text);
}

/* ollama's client says which blob will come, sends nothing, and waits to be told where to put it.
 * The blob of no bytes is whole with that. */
static bool is_announcement(const struct request *q, const struct digest *d)
{
    struct digest nothing;
    return !q->framing.chunked && q->framing.length == 0 &&
           digest_of(d->alg, "", 0, &nothing, NULL) == 0 && !digest_equal(&nothing, d);
}

enum MHD_Result uploads_begin_session(struct request *q)
{
    struct error err = ERROR_INIT;
    struct digest d;
    char text[2 * DIGEST_TEXT_MAX], id[UPLOAD_ID_LEN + 1];
    enum digest_alg alg = DIGEST_SHA256;
    if (is_mounted(q, &d))
        return uploads_reply_created(q, &d);
    int whole = query_get(q->query, "digest", text, sizeof(text), &err);
    if (whole < 0 || (whole == 1 && digest_parse(text, &d, &err) < 0) ||
        announced(q, &alg, &err) < 0)
        return reply_error(q, RESOURCE_DIGEST, &err);
    if (whole == 1 && !is_announcement(q, &d))
        return uploads_begin_whole(q, &d);
    if (whole == 1)
        alg = d.alg;
    /* A body that nothing was said about is no part of the blob: the session starts empty. */
    if (store_has_room(q->server->store, 0, &err) < 0 ||
        upload_begin(q->server->store, q->route.ref.repository, alg, id, &err) < 0)
        return reply_error(q, RESOURCE_UPLOAD, &err);
    return uploads_reply_session(q, 202, id, 0);
}
