#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "upstream/http_private.h"

/* URLs are taken apart by the library that will connect to them, so that "whose host is this" can
 * not be answered in two ways (`https://hub@other/`, `https://hub\@other/`, `//other`, ...). */

static void free_url_p(CURLU **u)
{
    curl_url_cleanup(*u);
}
static void free_part_p(char **s)
{
    curl_free(*s);
}
#define _cleanup_url_ _cleanup_(free_url_p)
#define _cleanup_part_ _cleanup_(free_part_p)

static bool is_http(CURLU *u)
{
    _cleanup_part_ char *scheme = NULL;
    if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
        return false;
    return strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0;
}

static bool has_user(CURLU *u)
{
    _cleanup_part_ char *user = NULL, *password = NULL;
    return curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK ||
           curl_url_get(u, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK;
}

char *http_resolve_location(const char *base, const char *location)
{
    _cleanup_url_ CURLU *u = curl_url();
    if (!*location)
        return NULL;
    if (!u || curl_url_set(u, CURLUPART_URL, base, CURLU_PATH_AS_IS) != CURLUE_OK)
        return NULL;
    if (curl_url_set(u, CURLUPART_URL, location, CURLU_PATH_AS_IS) != CURLUE_OK)
        return NULL;
    if (!is_http(u) || has_user(u))
        return NULL;
    /* An absolute URL may be signed: it goes on byte for byte, without the fragment. */
    if (strncasecmp(location, "http://", 7) == 0 || strncasecmp(location, "https://", 8) == 0)
        return strndup(location, strcspn(location, "#"));
    _cleanup_part_ char *url = NULL;
    if (curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_URL, &url, 0) != CURLUE_OK)
        return NULL;
    return strdup(url);
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    _cleanup_part_ char *x = NULL, *y = NULL;
    return curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
           curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(x, y) == 0;
}

void http_location_done(struct http_location *l)
{
    free(l->url);
    free(l->bearer);
    free(l->authorization);
    *l = (struct http_location){0};
}

char *http_host(const char *url)
{
    _cleanup_url_ CURLU *u = curl_url();
    _cleanup_part_ char *host = NULL, *port = NULL;
    _cleanup_strbuf_ struct strbuf name = STRBUF_INIT;
    if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK || !is_http(u) ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK)
        return NULL;
    for (const char *p = host; *p; p++)
        strbuf_putc(&name, (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p));
    CURLUcode code = curl_url_get(u, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
    if (code == CURLUE_OK)
        strbuf_printf(&name, ":%s", port);
    else if (code != CURLUE_NO_PORT)
        return NULL;
    return strbuf_take(&name);
}

bool http_same_origin(const char *a, const char *b)
{
    _cleanup_url_ CURLU *x = curl_url();
    _cleanup_url_ CURLU *y = curl_url();
    if (!x || !y || curl_url_set(x, CURLUPART_URL, a, 0) != CURLUE_OK ||
        curl_url_set(y, CURLUPART_URL, b, 0) != CURLUE_OK)
        return false;
    return is_http(x) && same_part(x, y, CURLUPART_SCHEME) && same_part(x, y, CURLUPART_HOST) &&
           same_part(x, y, CURLUPART_PORT);
}

char *http_proxy_for(const struct http_pool *p, const char *url, struct error *err)
{
    _cleanup_url_ CURLU *u = curl_url();
    _cleanup_part_ char *host = NULL, *port = NULL;
    char *proxy = NULL;
    if (p->proxy_of && u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK && is_http(u) &&
        curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        size_t n = strlen(host);
        bool is_v6 = n > 1 && *host == '[' && host[n - 1] == ']';
        if (is_v6)
            host[n - 1] = '\0';
        int rc = p->proxy_of(strncasecmp(url, "https:", 6) == 0, host + is_v6,
                             (unsigned)strtoul(port, NULL, 10), &proxy, err);
        if (rc < 0) {
            if (err && err->code == ERR_INVALID) /* a variable; the request is fine */
                err->code = ERR_UPSTREAM;
            return NULL;
        }
        if (rc == 0)
            proxy = strdup("");
    } else {
        /* Nobody to ask, or no URL, which is found out soon. */
        proxy = strdup(p->proxy);
    }
    if (!proxy)
        err_set(err, ERR_NOMEM, "out of memory for a proxy's URL");
    return proxy;
}
