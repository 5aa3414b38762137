#include "base/ref.h"

#include <stdio.h>
#include <string.h>

static bool is_lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* One path component from *p; moves *p behind it. */
static bool component(const char **p)
{
    const char *s = *p;
    if (!is_lower_alnum(*s))
        return false;
    for (;;) {
        while (is_lower_alnum(*s))
            s++;
        const char *separator = s;
        if (*s == '.') {
            s++;
        } else if (*s == '_') {
            s += s[1] == '_' ? 2 : 1;
        } else {
            while (*s == '-')
                s++;
        }
        if (s == separator)
            break;
        if (!is_lower_alnum(*s))
            return false;
    }
    *p = s;
    return true;
}

bool repository_is_valid(const char *name)
{
    if (strlen(name) > REPOSITORY_MAX)
        return false;
    const char *p = name;
    while (component(&p)) {
        if (*p == '\0')
            return true;
        if (*p++ != '/')
            return false;
    }
    return false;
}

bool tag_is_valid(const char *tag)
{
    size_t n = strlen(tag);
    if (n == 0 || n > TAG_MAX || tag[0] == '.' || tag[0] == '-')
        return false;
    for (const char *p = tag; *p; p++)
        if (!is_lower_alnum(*p) && !(*p >= 'A' && *p <= 'Z') && !strchr("._-", *p))
            return false;
    return true;
}

bool ascii_lower(const char *s, char *buf, size_t size)
{
    size_t n = strlen(s);
    if (n >= size)
        return false;
    for (size_t i = 0; i <= n; i++)
        buf[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] + ('a' - 'A') : s[i]);
    return true;
}

int reference_make(const char *repository, const char *tag_or_digest, struct reference *ret,
                   struct error *err)
{
    struct reference r = {0};
    if (!ascii_lower(repository, r.repository, sizeof(r.repository)) ||
        !repository_is_valid(r.repository))
        return err_set(err, ERR_INVALID, "\"%.200s\" is not a repository name", repository);
    memcpy(r.as_given, repository, strlen(repository) + 1);
    if (strchr(tag_or_digest, ':')) {
        r.is_digest = true;
        if (digest_parse(tag_or_digest, &r.digest, err) < 0)
            return -1;
    } else {
        if (!tag_is_valid(tag_or_digest))
            return err_set(err, ERR_INVALID,
                           "\"%.160s\" is not a tag (letters, digits, '_', '.', '-', at most 128)",
                           tag_or_digest);
        memcpy(r.tag, tag_or_digest, strlen(tag_or_digest) + 1);
    }
    *ret = r;
    return 0;
}

int reference_parse(const char *text, struct reference *ret, struct error *err)
{
    char name[REPOSITORY_MAX + 1];
    const char *rest = "latest";
    const char *at = strchr(text, '@');
    const char *slash = strrchr(text, '/');
    const char *colon = strchr(slash ? slash : text, ':');
    const char *end = at ? at : colon;
    size_t n = end ? (size_t)(end - text) : strlen(text);
    if (n > REPOSITORY_MAX)
        return err_set(err, ERR_INVALID, "the repository name in \"%.80s...\" is over %d bytes",
                       text, REPOSITORY_MAX);
    memcpy(name, text, n);
    name[n] = '\0';
    if (end)
        rest = end + 1;
    if (!at && strchr(rest, ':'))
        return err_set(err, ERR_INVALID, "\"%.160s\" is not a tag; a digest follows '@'", rest);
    if (at && !strchr(rest, ':'))
        return err_set(err, ERR_INVALID, "\"%.160s\" is not a digest (algorithm:hex)", rest);
    return reference_make(name, rest, ret, err);
}

char *reference_format(const struct reference *r, char buf[static REFERENCE_TEXT_MAX])
{
    char digest[DIGEST_TEXT_MAX];
    if (r->is_digest)
        snprintf(buf, REFERENCE_TEXT_MAX, "%s@%s", r->repository,
                 digest_format(&r->digest, digest));
    else
        snprintf(buf, REFERENCE_TEXT_MAX, "%s:%s", r->repository, r->tag);
    return buf;
}
