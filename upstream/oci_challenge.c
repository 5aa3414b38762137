#include "upstream/oci_challenge.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/strbuf.h"

#define VALUE_MAX 4096u

/* What is left of one header value, and the challenge that is being read. */
struct cursor {
    const char *p, *end;
    struct oci_challenge now;
    bool has_now;
};

static void challenge_done(struct oci_challenge *c)
{
    free(c->realm);
    free(c->service);
    free(c->scope);
    free(c->error);
    *c = (struct oci_challenge){0};
}

void oci_challenges_done(struct oci_challenges *c)
{
    for (size_t i = 0; i < c->n; i++)
        challenge_done(&c->items[i]);
    c->n = 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_token_char(char c)
{
    return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static void skip_blanks(struct cursor *k)
{
    while (k->p < k->end && is_blank(*k->p))
        k->p++;
}

static size_t token_length(const struct cursor *k)
{
    size_t n = 0;
    while (k->p + n < k->end && is_token_char(k->p[n]))
        n++;
    return n;
}

/* Ends the challenge being read: it is complete. */
static int keep(struct oci_challenges *c, struct cursor *k, struct error *err)
{
    struct oci_challenge *now = &k->now;
    if (!k->has_now)
        return 0;
    k->has_now = false;
    if (now->scheme == OCI_SCHEME_BEARER && (!now->realm || !*now->realm))
        now->scheme = OCI_SCHEME_OTHER; /* nobody to ask for a token */
    if (now->scheme == OCI_SCHEME_BASIC && !now->realm && !(now->realm = strdup(""))) {
        challenge_done(now);
        return err_set(err, ERR_NOMEM, "out of memory for a challenge");
    }
    if (c->n == OCI_CHALLENGES_MAX) {
        challenge_done(now);
        return 0;
    }
    c->items[c->n++] = *now;
    *now = (struct oci_challenge){0};
    return 0;
}

static enum oci_scheme scheme_of(const char *name, size_t len)
{
    if (len == 5 && strncasecmp(name, "Basic", 5) == 0)
        return OCI_SCHEME_BASIC;
    if (len == 6 && strncasecmp(name, "Bearer", 6) == 0)
        return OCI_SCHEME_BEARER;
    return OCI_SCHEME_OTHER;
}

/* The single opaque word that "Negotiate" and its like carry instead of parameters. */
static void skip_token68(struct cursor *k)
{
    const char *p = k->p;
    while (p < k->end && (is_alnum(*p) || strchr("-._~+/", *p)))
        p++;
    if (p == k->p)
        return;
    while (p < k->end && *p == '=')
        p++;
    while (p < k->end && is_blank(*p))
        p++;
    if (p == k->end || *p == ',')
        k->p = p;
}

/* 1: read; 0: malformed; -1: out of memory. */
static int quoted(struct cursor *k, struct strbuf *to)
{
    for (k->p++; k->p < k->end && *k->p != '"'; k->p++) {
        if (*k->p == '\\' && ++k->p == k->end)
            return 0;
        if (is_control(*k->p))
            return 0;
        strbuf_putc(to, *k->p);
    }
    if (k->p == k->end)
        return 0;
    k->p++;
    return strbuf_failed(to) ? -1 : 1;
}

/* Real servers leave out the quotes around URLs, so more than a token's bytes is taken. */
static int unquoted(struct cursor *k, struct strbuf *to)
{
    const char *start = k->p;
    while (k->p < k->end && !is_blank(*k->p) && *k->p != ',' && *k->p != '"' && !is_control(*k->p))
        k->p++;
    if (k->p == start)
        return 0;
    strbuf_put(to, start, (size_t)(k->p - start));
    return strbuf_failed(to) ? -1 : 1;
}

static char **slot(struct oci_challenge *c, const char *name, size_t len)
{
    const struct {
        const char *name;
        char **value;
    } known[] = {
        {"realm", &c->realm}, {"service", &c->service}, {"scope", &c->scope}, {"error", &c->error}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (len == strlen(known[i].name) && strncasecmp(name, known[i].name, len) == 0)
            return known[i].value;
    return NULL;
}

/* `=` and a value, which belongs to the parameter of that name. As quoted() returns. */
static int parameter(struct cursor *k, const char *name, size_t len)
{
    _cleanup_strbuf_ struct strbuf value = STRBUF_INIT;
    k->p++;
    skip_blanks(k);
    if (!k->has_now || k->p == k->end)
        return 0;
    int rc = *k->p == '"' ? quoted(k, &value) : unquoted(k, &value);
    if (rc <= 0)
        return rc;
    if (k->p < k->end && *k->p != ',' && !is_blank(*k->p))
        return 0;
    char **to = slot(&k->now, name, len);
    if (!to || *to) /* unknown, or said before: the first one counts */
        return 1;
    strbuf_put(&value, "", 0); /* an empty value is one too */
    *to = strbuf_take(&value);
    return *to ? 1 : -1;
}

/* A scheme's name, or one parameter of the scheme before. As quoted() returns. */
static int item(struct oci_challenges *c, struct cursor *k, struct error *err)
{
    const char *name = k->p;
    size_t len = token_length(k);
    k->p += len;
    bool spaced = k->p < k->end && is_blank(*k->p);
    skip_blanks(k);
    if (len && k->p < k->end && *k->p == '=')
        return parameter(k, name, len);
    if (keep(c, k, err) < 0)
        return -1;
    if (len == 0 || (!spaced && k->p < k->end && *k->p != ','))
        return 0;
    k->now.scheme = scheme_of(name, len);
    k->has_now = true;
    skip_token68(k);
    return 1;
}

int oci_challenges_add(struct oci_challenges *c, const char *value, struct error *err)
{
    size_t len = strnlen(value, VALUE_MAX + 1);
    bool cut = len > VALUE_MAX;
    struct cursor k = {.p = value, .end = value + (cut ? VALUE_MAX : len)};
    int rc = 1;
    while (rc == 1) {
        while (k.p < k.end && (is_blank(*k.p) || *k.p == ','))
            k.p++;
        if (k.p == k.end)
            break;
        rc = item(c, &k, err);
    }
    /* The last one may go on behind the limit: half a challenge is none. */
    if (rc == 1 && !cut)
        rc = keep(c, &k, err) < 0 ? -1 : 1;
    challenge_done(&k.now);
    return rc < 0 ? err_set(err, ERR_NOMEM, "out of memory for a challenge") : 0;
}

const struct oci_challenge *oci_challenge_best(const struct oci_challenges *c)
{
    static const enum oci_scheme order[] = {OCI_SCHEME_BEARER, OCI_SCHEME_BASIC};
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        for (size_t j = 0; j < c->n; j++)
            if (c->items[j].scheme == order[i])
                return &c->items[j];
    return NULL;
}
