/* Asking the upstream, and bringing the store up to date with what it says. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "upstream/mirror_private.h"

/* ---- what the upstream says is not there ----------------------------------------------------- */

int mirror_no_such(const struct mirror *m, const struct question *q, struct error *err)
{
    char digest[DIGEST_TEXT_MAX] = "";
    const char *prefix = m->config->prefix;
    if (q->digest.alg != DIGEST_NONE)
        digest_format(&q->digest, digest);
    switch (q->kind) {
    case ASK_TAG:
        return err_set(err, ERR_NOT_FOUND, "upstream %s has no tag %s of %s", prefix, q->tag,
                       q->name.name);
    case ASK_BLOB:
    case ASK_SIZE:
        return err_set(err, ERR_NOT_FOUND, "upstream %s has no blob %s in %s", prefix, digest,
                       q->name.name);
    case ASK_TAGS:
        return err_set(err, ERR_NOT_FOUND, "upstream %s has no repository %s", prefix,
                       q->name.name);
    case ASK_MANIFEST:
    case ASK_REFERRERS:
        break;
    }
    return err_set(err, ERR_NOT_FOUND, "upstream %s has no manifest %s in %s", prefix, digest,
                   q->name.name);
}

static bool is_our_disk(const struct error *err)
{
    return err->code == ERR_NO_SPACE || err->code == ERR_IO;
}

/* An answer that would be the same in a moment is not asked for again for a while. */
static int remember(struct mirror *m, const struct question *q, const struct outcome *o,
                    const struct error *err)
{
    char key[QUESTION_KEY_MAX];
    notes_put(&m->negatives, question_key(q, key), m->config->negative_ttl_s, err, o->is_gone);
    return -1;
}

/* rc is what asking gave, and not success: whether it is the upstream's word on what was asked for.
 */
static int judge(struct mirror *m, const struct question *q, int rc, struct outcome *ret,
                 struct error *err)
{
    if (rc == 0)
        mirror_no_such(m, q, err);
    ret->is_gone = err->code == ERR_NOT_FOUND || err->code == ERR_DENIED;
    return -1;
}

static int fail(struct mirror *m, const struct question *q, int rc, struct outcome *ret,
                struct error *err)
{
    judge(m, q, rc, ret, err);
    return ret->is_gone ? remember(m, q, ret, err) : -1;
}

/* ---- manifests ------------------------------------------------------------------------------- */

/* The blobs and children of a manifest. Layers that need not be distributed are left out: whether
 * the upstream has one is asked when somebody wants it. */
static struct push_need *needs_of(const struct oci_manifest *m, size_t *ret_n)
{
    struct push_need *needs = calloc(m->n_parts + 1, sizeof(*needs));
    size_t n = 0;
    for (size_t i = 0; needs && i < m->n_parts; i++) {
        const struct oci_descriptor *p = &m->parts[i];
        if (p->role == OCI_FOREIGN || p->digest.alg == DIGEST_NONE)
            continue;
        needs[n++] = (struct push_need){.kind = p->role == OCI_CHILD ? NEED_CHILD : NEED_BLOB,
                                        .digest = p->digest,
                                        .size = p->size};
    }
    *ret_n = n;
    return needs;
}

static int record(struct mirror *m, const struct question *q, const struct manifest *manifest,
                  const struct oci_manifest *parsed, struct error *err)
{
    char source[128];
    size_t n = 0;
    const char *tags[] = {q->tag};
    const struct origin origin = {
        .upstream = m->config->prefix, .repo_id = q->name.name, .commit = "", .path = ""};
    struct digest_list missing = {0};
    _cleanup_free_ struct push_need *needs = needs_of(parsed, &n);
    if (!needs)
        return err_set(err, ERR_NOMEM, "out of memory for a manifest");
    snprintf(source, sizeof(source), "pull %s", m->config->prefix);
    struct push_record r = {
        .repository = q->name.full,
        .is_mirror = true,
        .digest = manifest->digest,
        .media_type = manifest->media_type,
        .manifest = manifest->bytes,
        .len = manifest->len,
        .needs = needs,
        .n_needs = n,
        .origin = &origin,
        .subject = parsed->has_subject && parsed->subject.digest.alg != DIGEST_NONE
                       ? &parsed->subject.digest
                       : NULL,
        .artifact_type = parsed->artifact_type ? parsed->artifact_type : "",
        .annotations = parsed->annotations,
        .annotations_len = parsed->annotations_len,
        .tags = tags,
        .n_tags = q->kind == ASK_TAG,
        .source = source,
    };
    int rc = store_manifest_push(m->store, &r, &missing, err);
    digest_list_done(&missing);
    return rc;
}

/* Stores a manifest, with the tag that was asked for. */
static int keep(struct mirror *m, const struct question *q, const struct manifest *manifest,
                struct outcome *ret, struct error *err)
{
    struct oci_manifest parsed = {0};
    if (oci_manifest_parse(manifest->media_type, manifest->bytes, manifest->len, &parsed, err) < 0)
        return err_wrap(err, "upstream %s", m->config->prefix);
    int rc = mirror_check_parts(m->config, &q->name, &parsed, err) < 0
                 ? remember(m, q, ret, err)
                 : record(m, q, manifest, &parsed, err);
    oci_manifest_done(&parsed);
    if (rc == 0)
        ret->digest = manifest->digest;
    return rc;
}

/* The same, but whoever waits for it gets it also when it can not be stored. Takes it over. */
static int keep_or_pass(struct mirror *m, const struct question *q, struct manifest *manifest,
                        struct outcome *ret, struct error *err)
{
    int rc = keep(m, q, manifest, ret, err);
    if (rc < 0 && is_our_disk(err)) {
        *ret = (struct outcome){
            .is_unstored = true, .digest = manifest->digest, .manifest = *manifest};
        return 0;
    }
    manifest_done(manifest);
    return rc;
}

static int fetch(struct mirror *m, const struct question *q, const struct digest *digest,
                 struct outcome *ret, struct error *err)
{
    struct manifest manifest = {0};
    int rc = digest ? oci_get_manifest(m->oci, q->name.name, NULL, digest, 0, &manifest, err)
                    : oci_get_tag(m->oci, q->name.name, q->tag, 0, &manifest, ret->stale, err);
    if (rc == 0 && digest && q->kind == ASK_TAG) /* it has moved on meanwhile */
        return fetch(m, q, NULL, ret, err);
    return rc <= 0 ? judge(m, q, rc, ret, err) : keep_or_pass(m, q, &manifest, ret, err);
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* A tag that was pushed, before there was an upstream of that prefix, is none of the upstream's. */
static bool is_local(struct mirror *m, const struct question *q)
{
    struct tag_history h = {0};
    if (store_tag_history(m->store, q->name.full, q->tag, 1, &h, NULL) < 0)
        return false;
    bool local = h.n && h.events[0].digest.alg != DIGEST_NONE &&
                 strncmp(h.events[0].source, "push ", 5) == 0;
    tag_history_done(&h);
    return local;
}

static void confirm(struct mirror *m, const struct question *q)
{
    char key[QUESTION_KEY_MAX];
    store_tag_confirm(m->store, q->name.full, q->tag);
    notes_put(&m->asked, question_key(q, key), m->config->tag_ttl_s, NULL, false);
}

/* The upstream has no such tag (any more). */
static int drop(struct mirror *m, const struct question *q, struct outcome *ret, struct error *err)
{
    struct reference r = {.is_digest = false};
    char source[128];
    strcpy(r.repository, q->name.full);
    strcpy(r.as_given, q->name.full);
    strcpy(r.tag, q->tag);
    snprintf(source, sizeof(source), "gone %s", m->config->prefix);
    struct error why = ERROR_INIT;
    if (store_remove(m->store, &r, NULL, source, &why) < 0 && why.code != ERR_NOT_FOUND) {
        ret->is_gone = false;
        *err = why;
    }
    return -1;
}

/* The tag names a manifest that is here already. */
static int move(struct mirror *m, const struct question *q, const struct tag *known,
                const struct manifest *held, struct outcome *ret, struct error *err)
{
    if (!known || !digest_equal(&known->digest, &held->digest))
        return keep(m, q, held, ret, err);
    if (!*ret->stale) /* else nobody has asked where it comes from */
        confirm(m, q);
    ret->digest = held->digest;
    return 0;
}

static int revalidate(struct mirror *m, const struct question *q, const struct tag *known,
                      struct outcome *ret, struct error *err)
{
    struct oci_head head = {0};
    struct manifest held = {0};
    int has = known ? store_manifest_get(m->store, q->name.full, &known->digest, &held, err) : 0;
    manifest_done(&held);
    if (has < 0)
        return -1;
    int rc =
        oci_head_manifest(m->oci, q->name.name, q->tag, has ? &known->digest : NULL, 0, &head, err);
    if (rc <= 0)
        return judge(m, q, rc, ret, err);
    memcpy(ret->stale, head.stale, sizeof(head.stale));
    if (head.digest.alg == DIGEST_NONE)
        return fetch(m, q, NULL, ret, err);
    has = store_manifest_get(m->store, q->name.full, &head.digest, &held, err);
    if (has == 0)
        return fetch(m, q, &head.digest, ret, err);
    rc = has < 0 ? -1 : move(m, q, known, &held, ret, err);
    manifest_done(&held);
    return rc;
}

/* The upstream says, as far as one can tell, that a tag that is here has gone. A proxy that broke,
 * or a url that leads elsewhere, says the same, so it is asked once more in a way that the two can
 * be told apart by. */
static int confirm_gone(struct mirror *m, const struct question *q, const struct tag *known,
                        struct outcome *ret, struct error *err)
{
    struct manifest manifest = {0};
    if (is_local(m, q)) {
        confirm(m, q);
        *ret = (struct outcome){.digest = known->digest};
        return 0;
    }
    if (m->config->on_gone == GONE_KEEP)
        return remember(m, q, ret, err);
    int rc = oci_confirm_manifest(m->oci, q->name.name, q->tag, 0, &manifest, err);
    if (rc > 0) /* some registries do not know HEAD */
        return keep_or_pass(m, q, &manifest, ret, err);
    judge(m, q, rc, ret, err);
    if (ret->is_gone || err->code == ERR_UPSTREAM)
        remember(m, q, ret, err);
    return ret->is_gone ? drop(m, q, ret, err) : -1;
}

static int answer_tag(struct mirror *m, const struct question *q, struct outcome *ret,
                      struct error *err)
{
    struct tag tag;
    struct repository_row row;
    int known = store_tag_get(m->store, q->name.full, q->tag, &tag, err);
    int here = known ? known : store_repository_get(m->store, q->name.full, &row, err);
    if (here < 0)
        return -1;
    /* Of a repository that is not here no manifest can be, so the first request gets it; else a
     * HEAD, which Docker Hub does not count, finds out whether it is here. */
    int rc = here ? revalidate(m, q, known ? &tag : NULL, ret, err) : fetch(m, q, NULL, ret, err);
    if (rc == 0 || !ret->is_gone)
        return rc;
    return known ? confirm_gone(m, q, &tag, ret, err) : remember(m, q, ret, err);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int answer_manifest(struct mirror *m, const struct question *q, struct outcome *ret,
                           struct error *err)
{
    int rc = fetch(m, q, &q->digest, ret, err);
    return rc < 0 && ret->is_gone ? remember(m, q, ret, err) : rc;
}

static int answer_blob(struct mirror *m, const struct question *q, struct outcome *ret,
                       struct error *err)
{
    uint64_t size = 0;
    const struct origin origin = {
        .upstream = m->config->prefix, .repo_id = q->name.name, .commit = "", .path = ""};
    int rc = oci_head_blob(m->oci, q->name.name, &q->digest, &size, err);
    if (rc <= 0)
        return fail(m, q, rc, ret, err);
    if (mirror_check_size(m->config, &q->name, &q->digest, size, err) < 0)
        return remember(m, q, ret, err);
    if (store_link_record(m->store, q->name.full, &q->digest, size, &origin, err) < 0) {
        *ret = (struct outcome){.is_unstored = is_our_disk(err), .size = size};
        return ret->is_unstored ? 0 : -1;
    }
    return 0;
}

/* What is known of a blob's size did not turn out: it was wrong, or what has been sent now is. */
static int answer_size(struct mirror *m, const struct question *q, struct outcome *ret,
                       struct error *err)
{
    int rc = oci_head_blob(m->oci, q->name.name, &q->digest, &ret->size, err);
    ret->is_gone = rc == 0;
    return rc > 0 ? 0 : rc < 0 ? -1 : mirror_no_such(m, q, err);
}

static int answer_referrers(struct mirror *m, const struct question *q, struct error *err)
{
    struct referrer_list list = {0};
    char key[QUESTION_KEY_MAX];
    int rc = oci_referrers(m->oci, q->name.name, &q->digest, &list, err);
    if (rc >= 0)
        rc = store_referrers_replace(m->store, q->name.full, &q->digest, list.items, list.n, err);
    referrer_list_done(&list);
    if (rc == 0)
        notes_put(&m->asked, question_key(q, key), m->config->tag_ttl_s, NULL, false);
    return rc;
}

static int answer_tags(struct mirror *m, const struct question *q, struct outcome *ret,
                       struct error *err)
{
    struct name_list list = {0};
    int rc = oci_tags(m->oci, q->name.name, &list, err);
    if (rc <= 0)
        return fail(m, q, rc, ret, err);
    tag_lists_put(&m->tag_lists, q->name.full, m->config->tag_ttl_s, &list);
    return 0;
}

/* What was asked for has come since the asker looked: it came too late for the flight that brought
 * it, and would make another. 1, 0, -1. */
static int is_here(struct mirror *m, const struct question *q, struct outcome *ret,
                   struct error *err)
{
    struct tag tag = {.digest = q->digest};
    struct link link = {0};
    struct manifest held = {0};
    int r = 0;
    if (q->kind == ASK_BLOB) {
        r = store_link_get(m->store, q->name.full, &q->digest, &link, err);
        if (r == 1 && link.claimed) /* who asks then wants it confirmed */
            r = 0;
        link_done(&link);
    } else if (q->kind == ASK_TAG) {
        r = store_tag_get(m->store, q->name.full, q->tag, &tag, err);
        if (r == 1 && !mirror_is_fresh(m, q, &tag))
            r = 0;
    }
    if (q->kind == ASK_MANIFEST || (q->kind == ASK_TAG && r == 1)) {
        r = store_manifest_get(m->store, q->name.full, &tag.digest, &held, err);
        manifest_done(&held);
    }
    if (r == 1)
        ret->digest = tag.digest;
    return r;
}

int mirror_answer(struct mirror *m, const struct question *q, struct outcome *ret,
                  struct error *err)
{
    int here = is_here(m, q, ret, err);
    if (here)
        return here < 0 ? -1 : 0;
    switch (q->kind) {
    case ASK_TAG:
        return answer_tag(m, q, ret, err);
    case ASK_MANIFEST:
        return answer_manifest(m, q, ret, err);
    case ASK_BLOB:
        return answer_blob(m, q, ret, err);
    case ASK_SIZE:
        return answer_size(m, q, ret, err);
    case ASK_REFERRERS:
        return answer_referrers(m, q, err);
    case ASK_TAGS:
        break;
    }
    return answer_tags(m, q, ret, err);
}
