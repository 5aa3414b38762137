#include "server/framing.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/url.h"
#include "server/request.h"

struct seen {
    struct framing framing;
    unsigned hosts, lengths, codings;
    const char *host;
    const char *bad; /* NULL, or what is wrong */
};

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* RFC 9110 token. "Host :" and "Transfer-Encoding\t:" arrive here with the white space. */
static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_alnum(s[i]) && (!s[i] || !strchr("!#$%&'*+-.^_`|~", s[i])))
            return false;
    return n > 0;
}

/* libmicrohttpd glues a line that continues a header to the header's name, for which it moves the
 * name: "Content-Length: 5" continued by "0" arrives as "Content-Length0", and the body would be
 * read as the next request. A name that was not moved lies before its value, where they came. */
static bool is_continued(const char *key, size_t key_size, const char *value)
{
    const char *p = value;
    while (p > key && (p[-1] == ' ' || p[-1] == '\t'))
        p--;
    return p != key + key_size + 1; /* the colon */
}

static bool parse_length(const char *s, uint64_t *ret)
{
    uint64_t n = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || n > UINT64_MAX / 10 - 1)
            return false;
        n = n * 10 + (uint64_t)(*s - '0');
    }
    *ret = n;
    return true;
}

static enum MHD_Result look_at_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                      size_t key_size, const char *value, size_t value_size)
{
    struct seen *seen = cls;
    (void)kind;
    (void)value_size;
    if (!value || is_continued(key, key_size, value)) {
        seen->bad = "a header is continued on a second line";
    } else if (!is_token(key, key_size)) {
        seen->bad = "a header name has characters that are not allowed";
    } else if (strcasecmp(key, "Host") == 0) {
        seen->hosts++;
        seen->host = value;
    } else if (strcasecmp(key, "Content-Length") == 0) {
        seen->lengths++;
        seen->framing.has_length = true;
        if (!parse_length(value, &seen->framing.length))
            seen->bad = "Content-Length is not a number";
    } else if (strcasecmp(key, "Transfer-Encoding") == 0) {
        seen->codings++;
        seen->framing.chunked = true;
        if (strcasecmp(value, "chunked") != 0)
            seen->bad = "the only transfer coding that is read is \"chunked\"";
    }
    return MHD_YES;
}

bool host_is_valid(const char *host)
{
    const char *p = host;
    if (*p == '[') {
        size_t n = strspn(p + 1, "0123456789abcdefABCDEF:.");
        if (n == 0 || p[1 + n] != ']')
            return false;
        p += n + 2;
    } else {
        size_t n = 0;
        while (is_alnum(p[n]) || p[n] == '.' || p[n] == '-' || p[n] == '_')
            n++;
        if (n == 0)
            return false;
        p += n;
    }
    if (*p == ':') {
        size_t n = strspn(p + 1, "0123456789");
        if (n > 5)
            return false;
        p += n + 1;
    }
    return *p == '\0';
}

bool host_is_loopback(const char *host)
{
    char name[64];
    size_t n = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    const char *start = host[0] == '[' ? host + 1 : host;
    n -= (size_t)(start - host);
    if (!host_is_valid(host) || n >= sizeof(name))
        return false;
    memcpy(name, start, n);
    name[n] = '\0';
    return url_host_is_loopback(name);
}

/* "http://host/path?query" is a legal target of any request; the authority has to say what the Host
 * header says, else the two could be believed by different parties. */
static int split_target(struct request *q, const char *host, struct error *err)
{
    char *p = q->target;
    size_t scheme = strncasecmp(p, "http://", 7) == 0    ? 7
                    : strncasecmp(p, "https://", 8) == 0 ? 8
                                                         : 0;
    if (scheme) {
        size_t n = strcspn(p + scheme, "/?");
        if (!host || strlen(host) != n || strncasecmp(p + scheme, host, n) != 0)
            return err_set(err, ERR_INVALID,
                           "the request target names another host than the Host header");
        p += scheme + n;
    }
    char *query = strchr(p, '?');
    if (query) {
        *query = '\0';
        q->query = query + 1;
    }
    q->path = *p ? p : "/";
    return 0;
}

int framing_check(struct request *q, const char *version, struct framing *ret, struct error *err)
{
    struct seen seen = {0};
    bool is_1_1 = strcmp(version, "HTTP/1.1") == 0;
    if (!is_1_1 && strcmp(version, "HTTP/1.0") != 0)
        return err_set(err, ERR_INVALID, "the protocol is not HTTP/1.1 or HTTP/1.0");
    if (MHD_get_connection_values_n(q->connection, MHD_HEADER_KIND, look_at_header, &seen) < 0)
        return err_set(err, ERR_INVALID, "the headers can not be read");
    if (seen.bad)
        return err_set(err, ERR_INVALID, "%s", seen.bad);
    if (seen.codings && seen.lengths)
        return err_set(err, ERR_INVALID, "both Transfer-Encoding and Content-Length are given");
    if (seen.codings > 1 || seen.lengths > 1)
        return err_set(err, ERR_INVALID, "%s is given more than once",
                       seen.codings > 1 ? "Transfer-Encoding" : "Content-Length");
    if (seen.codings && !is_1_1)
        return err_set(err, ERR_INVALID, "HTTP/1.0 has no Transfer-Encoding");
    if (seen.hosts > 1 || (seen.hosts == 0 && is_1_1))
        return err_set(err, ERR_INVALID,
                       seen.hosts ? "Host is given more than once" : "the Host header is missing");
    if (seen.host && *seen.host && !host_is_valid(seen.host))
        return err_set(err, ERR_INVALID, "the Host header is not a host name or address");
    if (split_target(q, seen.host, err) < 0)
        return -1;
    if (seen.host && strlen(seen.host) >= sizeof(q->host))
        return err_set(err, ERR_INVALID, "the Host header is too long");
    if (seen.host)
        snprintf(q->host, sizeof(q->host), "%s", seen.host);
    *ret = seen.framing;
    return 0;
}
