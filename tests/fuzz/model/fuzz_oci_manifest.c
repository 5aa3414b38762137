/* A pushed manifest: its first line is the Content-Type, the rest the document. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "model/oci_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_descriptor(const struct oci_descriptor *d)
{
    struct digest digest = {0};
    struct error err = ERROR_INIT;
    check(d->media_type && d->media_type[0] && d->size <= INT64_MAX);
    if (digest_parse(d->digest_text, &digest, &err) < 0)
        check(err.code == ERR_UNSUPPORTED && d->digest.alg == DIGEST_NONE);
    else
        check(digest_equal(&digest, &d->digest));
}

/* What the result promises; and what is taken is JSON to the other reader in the house, as far as
 * that goes: it is stricter about names that come twice, and about NUL. */
static void check_result(const struct oci_manifest *m, const char *type, const char *text,
                         size_t len)
{
    const char *named = oci_manifest_type(type);
    check(m->media_type && (!named || strcmp(named, m->media_type) == 0));
    check(m->is_index == (strcmp(m->media_type, OCI_INDEX_TYPE) == 0 ||
                          strcmp(m->media_type, DOCKER_LIST_TYPE) == 0));
    for (size_t i = 0; i < m->n_parts; i++) {
        check_descriptor(&m->parts[i]);
        check((m->parts[i].role == OCI_CHILD) == m->is_index);
        check(m->parts[i].role != OCI_CONFIG || i == 0);
    }
    if (m->has_subject)
        check_descriptor(&m->subject);
    check(m->artifact_type != NULL);
    if (m->annotations) {
        _cleanup_json_ struct json *j = NULL;
        struct error err = ERROR_INIT;
        check(m->annotations >= text && m->annotations + m->annotations_len <= text + len);
        check(json_parse(m->annotations, m->annotations_len, &j, &err) == 0 && json_is_object(j));
        for (const struct json *c = json_first(j); c; c = json_next(c))
            check(json_is_string(c));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    size_t n = line ? (size_t)(line - data) : 0, skip = line ? n + 1 : 0;
    _cleanup_free_ char *type = strndup((const char *)data, n);
    _cleanup_free_ char *text = malloc(size - skip ? size - skip : 1);
    struct oci_manifest m = {0};
    struct error err = ERROR_INIT;
    check(type && text);
    if (size > skip)
        memcpy(text, data + skip, size - skip);
    if (oci_manifest_parse(type, text, size - skip, &m, &err) < 0)
        check(err.code != ERR_NONE && err.text[0]);
    else
        check_result(&m, type, text, size - skip);
    oci_manifest_done(&m);
    return 0;
}
