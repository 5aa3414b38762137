/* An upstream's header, as lines, and the values that we read from it. The first line of the input
 * is a Location as well. */
#include <curl/curl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "upstream/hub_private.h"
#include "upstream/http_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void values(const struct http_response *r)
{
    uint64_t first, last, n;
    char hex[65];
    if (http_content_range(r, &first, &last, &n))
        require(first <= last && last < n && n <= INT64_MAX);
    if (http_content_length(r, &n))
        require(n <= INT64_MAX && !http_header(r, "Transfer-Encoding"));
    require(http_retry_after(r) <= HTTP_RETRY_AFTER_MAX);
    const char *etag = http_header(r, "ETag");
    if (etag && hub_etag_hex(etag, 64, hex))
        require(is_lower_hex(hex, 64));
    for (const char *v = http_header(r, "RateLimit"); v; v = http_header_next(r, "RateLimit", v))
        for (const char *p = v; *p;) {
            struct hub_limit limit;
            const char *item = p;
            if (hub_limit_parse(&p, &limit))
                require(limit.bucket < HUB_BUCKETS);
            require(p > item && p <= v + strlen(v));
        }
    for (const char *v = http_header(r, "Link"); v; v = http_header_next(r, "Link", v))
        free(http_link_next(v));
    struct error err = ERROR_INIT;
    require(http_status_error(r, "https://h/p?secret", &err) == -1 && err.code != ERR_NONE);
    require(!strpbrk(err.text, "\r\n"));
}

static void location(const char *text)
{
    static const char base[] = "https://hub.example/api/models/o/m?x=1";
    _cleanup_free_ char *url = http_resolve_location(base, text);
    if (!url)
        return;
    require(strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0);
    require(!strpbrk(url, "\r\n #"));
    /* resolving what was resolved changes nothing, and whose it is stays the same */
    _cleanup_free_ char *again = http_resolve_location(base, url);
    require(again && strcmp(url, again) == 0);
    char id[REPOSITORY_MAX + 1];
    if (hub_id_of_url("https://hub.example", url, id) > 0)
        require(hub_id_is_valid(id));
    require(hub_bucket_of("https://hub.example", url) < HUB_BUCKETS);
    if (http_same_origin(base, url)) {
        CURLU *u = curl_url();
        char *host = NULL;
        require(u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK);
        require(curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK);
        require(strcasecmp(host, "hub.example") == 0);
        curl_free(host);
        curl_url_cleanup(u);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_response *r = calloc(1, sizeof(*r));
    struct error err = ERROR_INIT;
    int rc = 0;
    if (!r)
        return 0;
    _cleanup_free_ char *first = strndup((const char *)data, size);
    if (first) {
        first[strcspn(first, "\r\n")] = '\0';
        location(first);
    }
    for (size_t at = 0; at < size && rc >= 0;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) + 1 - at : size - at;
        rc = http_response_line(r, (const char *)data + at, len, &err);
        at += len;
        if (rc == 1 && !strbuf_failed(&r->body))
            strbuf_put(&r->body, data + at, size - at);
    }
    require(rc >= 0 || err.code == ERR_UPSTREAM || err.code == ERR_NOMEM);
    if (rc >= 0)
        values(r);
    http_response_free(r);
    return 0;
}
