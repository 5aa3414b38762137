#include "model/oci_manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "model/json_scan.h"
#include "model/names.h"

/* A member of an object, as it stands in the text. Found by one pass over the object, read by a
 * second one: what the document is may be said behind what is in it. */
struct value {
    const unsigned char *text; /* NULL = the member is not there */
    size_t len;
    uint64_t at;
};

enum top_key {
    TOP_SCHEMA_VERSION,
    TOP_MEDIA_TYPE,
    TOP_ARTIFACT_TYPE,
    TOP_SUBJECT,
    TOP_ANNOTATIONS,
    TOP_CONFIG, /* from here on: what tells one kind of document from another */
    TOP_LAYERS,
    TOP_MANIFESTS,
    TOP_BLOBS,
    TOP_FS_LAYERS, /* Docker's schema 1 */
    TOP_KEYS,
};

static const char *const top_names[TOP_KEYS] = {
    "schemaVersion", "mediaType", "artifactType", "subject", "annotations",
    "config",        "layers",    "manifests",    "blobs",   "fsLayers"};

enum descriptor_key { DESCRIPTOR_MEDIA_TYPE, DESCRIPTOR_DIGEST, DESCRIPTOR_SIZE, DESCRIPTOR_KEYS };

static const char *const descriptor_names[DESCRIPTOR_KEYS] = {"mediaType", "digest", "size"};

#define BIT(key) (1u << (key))

static const struct kind {
    const char *type;
    unsigned keys; /* of those from TOP_CONFIG on: which it may have */
    enum top_key list;
    enum oci_role role; /* of the elements of the list */
    enum top_key required;
    bool has_version;
} kinds[] = {
    {OCI_IMAGE_TYPE, BIT(TOP_CONFIG) | BIT(TOP_LAYERS), TOP_LAYERS, OCI_LAYER, TOP_CONFIG, true},
    {OCI_INDEX_TYPE, BIT(TOP_MANIFESTS), TOP_MANIFESTS, OCI_CHILD, TOP_MANIFESTS, true},
    {OCI_ARTIFACT_TYPE, BIT(TOP_BLOBS), TOP_BLOBS, OCI_LAYER, TOP_ARTIFACT_TYPE, false},
    {DOCKER_IMAGE_TYPE, BIT(TOP_CONFIG) | BIT(TOP_LAYERS), TOP_LAYERS, OCI_LAYER, TOP_CONFIG, true},
    {DOCKER_LIST_TYPE, BIT(TOP_MANIFESTS), TOP_MANIFESTS, OCI_CHILD, TOP_MANIFESTS, true},
};

#define KNOWN_TYPES                                                                                \
    OCI_IMAGE_TYPE ", " OCI_INDEX_TYPE ", " DOCKER_IMAGE_TYPE ", " DOCKER_LIST_TYPE                \
                   " or " OCI_ARTIFACT_TYPE

struct parse {
    struct oci_manifest *m;
    char *storage_end;
    size_t cap; /* of m->parts */
};

void oci_manifest_done(struct oci_manifest *m)
{
    free(m->parts);
    free(m->storage);
    *m = (struct oci_manifest){0};
}

/* ---- types --------------------------------------------------------------------------------- */

static const struct kind *find_kind(const char *type, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strlen(kinds[i].type) == n && strncasecmp(kinds[i].type, type, n) == 0)
            return &kinds[i];
    return NULL;
}

/* Cuts the parameters and the white space around the type. */
static const char *bare_type(const char *content_type, size_t *ret_n)
{
    const char *type = content_type + strspn(content_type, " \t");
    size_t n = strcspn(type, ";");
    while (n > 0 && (type[n - 1] == ' ' || type[n - 1] == '\t'))
        n--;
    *ret_n = n;
    return type;
}

const char *oci_manifest_type(const char *content_type)
{
    size_t n;
    const char *type = bare_type(content_type ? content_type : "", &n);
    const struct kind *kind = find_kind(type, n);
    return kind ? kind->type : NULL;
}

static int unknown_type(const char *from, const char *type, size_t n, struct error *err)
{
    static const char schema1[] = "application/vnd.docker.distribution.manifest.v1+";
    char quoted[NAME_QUOTED_MAX];
    name_quote(type, n, quoted);
    if (n >= strlen(schema1) && strncasecmp(type, schema1, strlen(schema1)) == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "the %s %s is Docker's schema 1, which is not taken: push with a client "
                       "that writes schema 2 or OCI manifests",
                       from, quoted);
    return err_set(err, ERR_UNSUPPORTED, "the %s %s is no manifest's; known are " KNOWN_TYPES, from,
                   quoted);
}

/* ---- members of objects -------------------------------------------------------------------- */

#define NAME_MAX_RAW 96 /* the longest known name with every letter as \uXXXX, and more */

/* As encoding/json of Go compares the names of members: without regard to case, which for it makes
 * U+017F an s and U+212A a k. The result ends at a NUL, as the names of other readers may. */
static void fold(char *s)
{
    char *to = s;
    for (const char *p = s; *p;) {
        if (strncmp(p, "\xc5\xbf", 2) == 0) {
            *to++ = 's';
            p += 2;
        } else if (strncmp(p, "\xe2\x84\xaa", 3) == 0) {
            *to++ = 'k';
            p += 3;
        } else {
            *to++ = *p++;
        }
    }
    *to = '\0';
}

/* The place of a key among the names, -1 when it is none of them. False: it only looks like one. */
static bool find_name(const struct json_span *key, const char *const *names, int n, int *ret)
{
    char folded[NAME_MAX_RAW + 1];
    *ret = -1;
    if (key->len > NAME_MAX_RAW)
        return true;
    folded[json_span_decode(key, folded)] = '\0';
    fold(folded);
    for (int i = 0; i < n; i++) {
        if (strcasecmp(folded, names[i]) != 0)
            continue;
        *ret = i;
        return json_span_equals(key, names[i]);
    }
    return true;
}

/* Takes an object and notes where the members with these names stand. */
static int scan_members(struct json_scan *s, const char *what, const char *const *names, int n,
                        struct value *values, struct error *err)
{
    int more;
    if (json_scan_open(s, '{', what, err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(s, '}', first, what, err)) > 0; first = false) {
        struct json_span key;
        int i;
        if (json_scan_key(s, what, &key, err) < 0)
            return -1;
        if (!find_name(&key, names, n, &i))
            return err_set(err, ERR_INVALID,
                           "the key at byte %" PRIu64
                           " of %s is not \"%s\", but some readers would "
                           "take it for that",
                           key.at, what, names[i]);
        if (i >= 0 && values[i].text)
            return err_set(err, ERR_INVALID, "\"%s\" comes twice in %s, again at byte %" PRIu64,
                           names[i], what, key.at);
        json_scan_peek(s); /* over white space */
        struct value v = {.text = s->p, .at = json_scan_at(s)};
        if (json_scan_skip(s, err) < 0)
            return -1;
        v.len = (size_t)(s->p - v.text);
        if (i >= 0)
            values[i] = v;
    }
    return more;
}

/* Absent and null are the same, as they are to Go. */
static bool is_set(const struct value *v)
{
    return v->text && *v->text != 'n';
}

static void scan_value(struct json_scan *s, const struct value *v)
{
    json_scan_start(s, v->text, v->len, v->at);
    s->document = "the manifest";
}

static bool has_nul(const struct json_span *span)
{
    /* An escape in a checked string: every backslash begins one. */
    for (size_t i = 0; span->escaped && i + 1 < span->len; i++) {
        if (span->text[i] != '\\')
            continue;
        if (span->len - i >= 6 && memcmp(span->text + i, "\\u0000", 6) == 0)
            return true;
        i++;
    }
    return false;
}

static int take_span(struct json_scan *s, const char *what, struct json_span *ret,
                     struct error *err)
{
    if (json_scan_string(s, what, ret, err) < 0)
        return -1;
    if (has_nul(ret))
        return err_set(err, ERR_INVALID, "%s at byte %" PRIu64 " holds a NUL", what, ret->at);
    return 0;
}

/* A string of its own; "" when it is absent. The storage is as long as the document, in which each
 * string that is kept takes two quotes more than its text. */
static int take_string(struct parse *p, const struct value *v, const char *what, const char **ret,
                       struct error *err)
{
    struct json_scan s;
    struct json_span span;
    *ret = "";
    if (!is_set(v))
        return 0;
    scan_value(&s, v);
    if (take_span(&s, what, &span, err) < 0)
        return -1;
    char *text = p->storage_end;
    size_t n = json_span_decode(&span, text);
    text[n] = '\0';
    p->storage_end += n + 1;
    *ret = text;
    return 0;
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* Layers that need not be where the manifest is. */
static bool is_foreign(const char *type)
{
    static const char oci[] = "application/vnd.oci.image.layer.nondistributable.v1.tar";
    static const char docker[] = "application/vnd.docker.image.rootfs.foreign.diff.tar";
    size_t n = strlen(oci);
    if (strncmp(type, oci, n) == 0)
        return type[n] == '\0' || type[n] == '+';
    n = strlen(docker);
    return strncmp(type, docker, n) == 0 && (type[n] == '\0' || strcmp(type + n, ".gzip") == 0);
}

static int take_size(const struct value *v, uint64_t *ret, struct error *err)
{
    struct json_scan s;
    scan_value(&s, v);
    if (json_scan_u64(&s, "size", ret, err) < 0)
        return -1;
    if (*ret > INT64_MAX)
        return err_set(err, ERR_INVALID, "the size at byte %" PRIu64 " is over 2^63-1", v->at);
    return 0;
}

static int take_descriptor(struct parse *p, struct json_scan *s, enum oci_role role,
                           struct oci_descriptor *ret, struct error *err)
{
    struct value values[DESCRIPTOR_KEYS] = {0};
    struct oci_descriptor d = {.role = role};
    struct error why = ERROR_INIT;
    uint64_t at = (json_scan_peek(s), json_scan_at(s));
    if (scan_members(s, "a descriptor", descriptor_names, DESCRIPTOR_KEYS, values, err) < 0 ||
        take_string(p, &values[DESCRIPTOR_MEDIA_TYPE], "mediaType", &d.media_type, err) < 0 ||
        take_string(p, &values[DESCRIPTOR_DIGEST], "digest", &d.digest_text, err) < 0)
        return -1;
    bool has_size = is_set(&values[DESCRIPTOR_SIZE]);
    if (!d.media_type[0] || !d.digest_text[0] || !has_size)
        return err_set(err, ERR_INVALID, "the descriptor at byte %" PRIu64 " has no \"%s\"", at,
                       !d.media_type[0]    ? "mediaType"
                       : !d.digest_text[0] ? "digest"
                                           : "size");
    if (take_size(&values[DESCRIPTOR_SIZE], &d.size, err) < 0)
        return -1;
    if (digest_parse(d.digest_text, &d.digest, &why) < 0 && why.code != ERR_UNSUPPORTED)
        return err_set(err, why.code, "the digest at byte %" PRIu64 ": %s",
                       values[DESCRIPTOR_DIGEST].at, why.text);
    if (role == OCI_LAYER && is_foreign(d.media_type))
        d.role = OCI_FOREIGN;
    *ret = d;
    return 0;
}

static int add_part(struct parse *p, const struct oci_descriptor *d, struct error *err)
{
    struct oci_manifest *m = p->m;
    if (m->n_parts == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 16;
        struct oci_descriptor *parts = reallocarray(m->parts, cap, sizeof(*parts));
        if (!parts)
            return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu parts", cap);
        m->parts = parts;
        p->cap = cap;
    }
    m->parts[m->n_parts++] = *d;
    return 0;
}

static int take_list(struct parse *p, const struct value *v, const char *name, enum oci_role role,
                     struct error *err)
{
    struct oci_descriptor d;
    struct json_scan s;
    int more;
    if (!is_set(v))
        return 0;
    scan_value(&s, v);
    if (json_scan_open(&s, '[', name, err) < 0)
        return -1;
    for (size_t i = 0; (more = json_scan_more(&s, ']', i == 0, name, err)) > 0; i++)
        if (take_descriptor(p, &s, role, &d, err) < 0 || add_part(p, &d, err) < 0)
            return err_wrap(err, "%s[%zu]", name, i);
    return more;
}

/* Its type stands in for an artifact type that is not there. */
static int take_config(struct parse *p, const struct value *v, struct error *err)
{
    struct oci_descriptor d;
    struct json_scan s;
    if (!is_set(v))
        return 0;
    scan_value(&s, v);
    if (take_descriptor(p, &s, OCI_CONFIG, &d, err) < 0 || add_part(p, &d, err) < 0)
        return err_wrap(err, "config");
    if (!p->m->artifact_type[0])
        p->m->artifact_type = d.media_type;
    return 0;
}

static int take_subject(struct parse *p, const struct value *v, struct error *err)
{
    struct json_scan s;
    if (!is_set(v))
        return 0;
    scan_value(&s, v);
    if (take_descriptor(p, &s, OCI_CHILD, &p->m->subject, err) < 0)
        return err_wrap(err, "subject");
    p->m->has_subject = true;
    return 0;
}

/* ---- the rest of the document -------------------------------------------------------------- */

/* One `"name": "text"`; the name's text, without escapes, goes to *text. */
static int take_annotation(struct json_scan *s, struct seen_names *seen, char **text,
                           struct error *err)
{
    struct json_span key, value;
    if (take_span(s, "the name of an annotation", &key, err) < 0 ||
        json_scan_expect(s, ':', "annotations", err) < 0 ||
        take_span(s, "an annotation", &value, err) < 0)
        return -1;
    struct name name = {.text = *text, .len = json_span_decode(&key, *text), .at = key.at};
    *text += name.len;
    return seen_names_add(seen, name, err);
}

static int take_annotations(struct oci_manifest *m, const struct value *v, struct error *err)
{
    _cleanup_names_ struct seen_names seen = {0};
    struct json_scan s;
    int more;
    if (!is_set(v))
        return 0;
    _cleanup_free_ char *names = malloc(v->len);
    char *end = names;
    if (!names)
        return err_set(err, ERR_NOMEM, "out of memory for annotations of %zu bytes", v->len);
    scan_value(&s, v);
    if (json_scan_open(&s, '{', "annotations", err) < 0)
        return -1;
    for (bool first = true; (more = json_scan_more(&s, '}', first, "annotations", err)) > 0;
         first = false)
        if (take_annotation(&s, &seen, &end, err) < 0)
            return -1;
    if (more < 0)
        return -1;
    const struct name *twice = seen_names_sort(&seen);
    char quoted[NAME_QUOTED_MAX];
    if (twice)
        return err_set(err, ERR_INVALID, "the annotation %s comes twice, again at byte %" PRIu64,
                       name_quote(twice->text, twice->len, quoted), twice->at);
    m->annotations = (const char *)v->text;
    m->annotations_len = v->len;
    return 0;
}

static int choose_kind(const char *content_type, const char *media_type, const struct kind **ret,
                       struct error *err)
{
    size_t n;
    const char *type = bare_type(content_type ? content_type : "", &n);
    const char *from = n ? "Content-Type" : "mediaType";
    if (n == 0) {
        type = media_type;
        n = strlen(media_type);
    }
    if (n == 0)
        return err_set(err, ERR_INVALID,
                       "it is not said what this manifest is: send Content-Type (" KNOWN_TYPES
                       "), or write it as mediaType");
    const struct kind *kind = find_kind(type, n);
    if (!kind)
        return unknown_type(from, type, n, err);
    if (media_type[0] && strcmp(media_type, kind->type) != 0) {
        char quoted[NAME_QUOTED_MAX];
        return err_set(err, ERR_INVALID,
                       "the document's mediaType is %s, but it was sent as %s: they must agree",
                       name_quote(media_type, strlen(media_type), quoted), kind->type);
    }
    *ret = kind;
    return 0;
}

/* What the document must have, and what would make it something else to another reader. */
static int check_members(const struct kind *kind, const struct value top[TOP_KEYS],
                         struct error *err)
{
    const struct value *version = &top[TOP_SCHEMA_VERSION];
    struct json_scan s;
    uint64_t number = 0;
    for (unsigned key = TOP_CONFIG; key < TOP_KEYS; key++)
        if (top[key].text && !(kind->keys & BIT(key)))
            return err_set(err, ERR_INVALID,
                           "a document with \"%s\" (at byte %" PRIu64 ") is ambiguous as %s",
                           top_names[key], top[key].at, kind->type);
    /* An empty list is legal, and nothing is what some writers make of it. */
    bool nothing_will_do = kind->required == TOP_MANIFESTS;
    if (nothing_will_do ? !top[kind->required].text : !is_set(&top[kind->required]))
        return err_set(err, ERR_INVALID, "\"%s\" is missing, which %s must have",
                       top_names[kind->required], kind->type);
    if (!kind->has_version)
        return 0;
    if (!is_set(version))
        return err_set(err, ERR_INVALID, "\"schemaVersion\" is missing; it must be 2");
    scan_value(&s, version);
    if (json_scan_u64(&s, "schemaVersion", &number, err) < 0)
        return -1;
    if (number != 2)
        return err_set(err, ERR_INVALID, "schemaVersion must be 2, not %" PRIu64, number);
    return 0;
}

static int take_document(const char *content_type, const struct value top[TOP_KEYS],
                         struct parse *p, struct error *err)
{
    struct oci_manifest *m = p->m;
    const struct kind *kind = NULL;
    const char *media_type;
    if (take_string(p, &top[TOP_MEDIA_TYPE], "mediaType", &media_type, err) < 0 ||
        choose_kind(content_type, media_type, &kind, err) < 0 ||
        check_members(kind, top, err) < 0 ||
        take_string(p, &top[TOP_ARTIFACT_TYPE], "artifactType", &m->artifact_type, err) < 0 ||
        take_config(p, &top[TOP_CONFIG], err) < 0 ||
        take_list(p, &top[kind->list], top_names[kind->list], kind->role, err) < 0 ||
        take_subject(p, &top[TOP_SUBJECT], err) < 0 ||
        take_annotations(m, &top[TOP_ANNOTATIONS], err) < 0)
        return -1;
    if (kind->required == TOP_ARTIFACT_TYPE && !m->artifact_type[0])
        return err_set(err, ERR_INVALID, "artifactType is empty, which %s must not have",
                       kind->type);
    m->media_type = kind->type;
    m->is_index = kind->role == OCI_CHILD;
    return 0;
}

static int check_utf8(const unsigned char *text, size_t len, struct error *err)
{
    for (size_t i = 0; i < len;) {
        unsigned step = utf8_sequence(text + i, len - i);
        if (step == 0)
            return err_set(err, ERR_INVALID, "the manifest is no UTF-8: byte %zu", i);
        i += step;
    }
    return 0;
}

int oci_manifest_parse(const char *content_type, const void *bytes, size_t len,
                       struct oci_manifest *ret, struct error *err)
{
    _cleanup_(oci_manifest_done) struct oci_manifest m = {.artifact_type = ""};
    struct value top[TOP_KEYS] = {0};
    struct json_scan s;
    if (len == 0)
        return err_set(err, ERR_INVALID, "the manifest is empty");
    if (check_utf8(bytes, len, err) < 0)
        return -1;
    scan_value(&s, &(struct value){bytes, len, 0});
    if (scan_members(&s, "the manifest", top_names, TOP_KEYS, top, err) < 0 ||
        json_scan_end(&s, err) < 0)
        return -1;
    m.storage = malloc(len);
    if (!m.storage)
        return err_set(err, ERR_NOMEM, "out of memory for a manifest of %zu bytes", len);
    struct parse p = {.m = &m, .storage_end = m.storage};
    if (take_document(content_type, top, &p, err) < 0)
        return -1;
    *ret = m;
    m = (struct oci_manifest){0};
    return 0;
}
