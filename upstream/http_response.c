#include "upstream/http_private.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

void http_response_free(struct http_response *r)
{
    if (!r)
        return;
    strbuf_done(&r->fields);
    strbuf_done(&r->body);
    free(r);
}

unsigned http_status(const struct http_response *r)
{
    return r->status;
}

const struct strbuf *http_body(const struct http_response *r)
{
    return &r->body;
}

/* The value of the first field of that name behind `after` (NULL: from the start). */
static const char *next_value(const struct http_response *r, const char *name, const char *after)
{
    const char *p = strbuf_str(&r->fields), *end = p + r->fields.len;
    if (after)
        p = after + strlen(after) + 1;
    while (p < end) {
        const char *value = p + strlen(p) + 1;
        if (strcasecmp(p, name) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

const char *http_header(const struct http_response *r, const char *name)
{
    return next_value(r, name, NULL);
}

const char *http_header_next(const struct http_response *r, const char *name, const char *previous)
{
    return next_value(r, name, previous);
}

bool http_parse_length(const char *text, uint64_t *ret)
{
    uint64_t n = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (n > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *ret = n;
    return true;
}

bool http_header_number(const struct http_response *r, const char *name, uint64_t *ret)
{
    const char *text = http_header(r, name);
    return text && http_parse_length(text, ret);
}

bool http_content_length(const struct http_response *r, uint64_t *ret)
{
    /* RFC 9112 6.3: a transfer coding overrides the length. */
    if (http_header(r, "Transfer-Encoding"))
        return false;
    return http_header_number(r, "Content-Length", ret);
}

/* Digits up to one of the bytes in `stop`; false when there are none. Moves *p behind the stop. */
static bool take_number(const char **p, char stop, uint64_t *ret)
{
    char digits[20];
    size_t n = strspn(*p, "0123456789");
    if (n == 0 || n >= sizeof(digits) || (*p)[n] != stop)
        return false;
    memcpy(digits, *p, n);
    digits[n] = '\0';
    *p += n + (stop != '\0');
    return http_parse_length(digits, ret);
}

bool http_parse_content_range(const char *text, uint64_t *ret_first, uint64_t *ret_last,
                              uint64_t *ret_size)
{
    uint64_t first, last, size;
    if (strncasecmp(text, "bytes ", 6) != 0)
        return false;
    const char *p = text + 6;
    if (!take_number(&p, '-', &first) || !take_number(&p, '/', &last) ||
        !take_number(&p, '\0', &size))
        return false;
    if (first > last || last >= size)
        return false;
    *ret_first = first;
    *ret_last = last;
    *ret_size = size;
    return true;
}

bool http_content_range(const struct http_response *r, uint64_t *ret_first, uint64_t *ret_last,
                        uint64_t *ret_size)
{
    const char *text = http_header(r, "Content-Range");
    return text && http_parse_content_range(text, ret_first, ret_last, ret_size);
}

/* The number of `;<key>=<digits>` within one list item, saturated; false when it has none. */
static bool item_number(const char *item, size_t len, char key, unsigned *ret)
{
    for (size_t i = 0; i + 2 < len; i++) {
        if (item[i] != ';')
            continue;
        size_t at = i + 1;
        while (at < len && item[at] == ' ')
            at++;
        if (at + 2 >= len || item[at] != key || item[at + 1] != '=')
            continue;
        unsigned n = 0;
        size_t digits = at + 2;
        for (at = digits; at < len && item[at] >= '0' && item[at] <= '9'; at++)
            if (n <= HTTP_RETRY_AFTER_MAX)
                n = n * 10 + (unsigned)(item[at] - '0');
        if (at == digits)
            return false;
        *ret = n;
        return true;
    }
    return false;
}

unsigned http_parse_rate_limit(const char *text)
{
    unsigned longest = 0;
    while (*text) {
        size_t len = strcspn(text, ",");
        unsigned left, wait;
        if (item_number(text, len, 'r', &left) && left == 0 && item_number(text, len, 't', &wait) &&
            wait > longest)
            longest = wait;
        text += len + (text[len] == ',');
    }
    return longest < HTTP_RETRY_AFTER_MAX ? longest : HTTP_RETRY_AFTER_MAX;
}

unsigned http_retry_after(const struct http_response *r)
{
    const char *text = http_header(r, "Retry-After");
    uint64_t seconds = 0;
    if (text && !http_parse_length(text, &seconds)) {
        time_t when = curl_getdate(text, NULL);
        uint64_t now = clock_wall_s();
        if (when > 0 && (uint64_t)when > now)
            seconds = (uint64_t)when - now;
    }
    if (seconds == 0 && (text = http_header(r, "RateLimit")))
        seconds = http_parse_rate_limit(text);
    unsigned longest = r->status == 429 ? HTTP_WAIT_LIMITED_MAX_S : HTTP_WAIT_FAILED_MAX_S;
    return seconds < longest ? (unsigned)seconds : longest;
}

/* `HTTP/1.1 200 OK` */
static int status_line(struct http_response *r, const char *line, size_t len, struct error *err)
{
    const char *space = memchr(line, ' ', len);
    const char *p = space ? space + 1 : line + len;
    if (line + len - p < 3 || p[0] < '1' || p[0] > '5' || p[1] < '0' || p[1] > '9' || p[2] < '0' ||
        p[2] > '9' || (line + len - p > 3 && p[3] != ' '))
        return err_set(err, ERR_UPSTREAM, "malformed status line \"%.*s\"",
                       (int)(len < 60 ? len : 60), line);
    r->status = (unsigned)(p[0] - '0') * 100 + (unsigned)(p[1] - '0') * 10 + (unsigned)(p[2] - '0');
    strbuf_reset(&r->fields);
    return 0;
}

/* At the end of the final answer's header: framing that two readers could understand differently
 * is refused. */
static int check_framing(const struct http_response *r, struct error *err)
{
    const char *first = http_header(r, "Content-Length");
    uint64_t length;
    if (first && !http_parse_length(first, &length))
        return err_set(err, ERR_UPSTREAM, "malformed Content-Length \"%.40s\"", first);
    for (const char *v = first; v; v = next_value(r, "Content-Length", v))
        if (strcmp(first, v) != 0)
            return err_set(err, ERR_UPSTREAM, "two Content-Lengths, %.40s and %.40s", first, v);
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int field_line(struct http_response *r, const char *line, size_t len, struct error *err)
{
    bool folded = is_blank(*line);
    const char *colon = memchr(line, ':', len);
    if (folded ? r->fields.len == 0 : !colon || colon == line)
        return 0; /* no field at all; nothing can be mistaken for it */
    const char *value = folded ? line : colon + 1;
    const char *end = line + len;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    if (folded) {
        strbuf_truncate(&r->fields, r->fields.len - 1);
        strbuf_putc(&r->fields, ' ');
    } else {
        const char *name_end = colon;
        while (name_end > line && is_blank(name_end[-1]))
            name_end--;
        strbuf_put(&r->fields, line, (size_t)(name_end - line));
        strbuf_putc(&r->fields, '\0');
    }
    strbuf_put(&r->fields, value, (size_t)(end - value));
    strbuf_putc(&r->fields, '\0');
    return strbuf_failed(&r->fields) ? err_set(err, ERR_NOMEM, "out of memory for a header") : 0;
}

int http_response_line(struct http_response *r, const char *line, size_t len, struct error *err)
{
    r->header_bytes += len;
    if (r->header_bytes > HTTP_HEADER_MAX)
        return err_set(err, ERR_UPSTREAM, "more than %u bytes of header", HTTP_HEADER_MAX);
    if (r->complete)
        return 0;
    while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
        len--;
    if (memchr(line, '\0', len))
        return err_set(err, ERR_UPSTREAM, "NUL byte in the header");
    if (len == 0) {
        if (r->status < 200)
            return 0;
        r->complete = true;
        return check_framing(r, err) < 0 ? -1 : 1;
    }
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
        return status_line(r, line, len, err);
    return field_line(r, line, len, err);
}

static void hide(struct strbuf *text, const char *secret, size_t len)
{
    char *p = text->data, *end = p + text->len;
    while (p && (p = memmem(p, (size_t)(end - p), secret, len)))
        for (size_t i = 0; i < len; i++)
            *p++ = '*';
}

void http_response_hide(struct http_response *r, const char *secret)
{
    size_t len = strlen(secret);
    /* Content and redirects must stay as they are. What is so short is no secret. */
    if (r->status < 400 || len < 4)
        return;
    hide(&r->fields, secret, len);
    hide(&r->body, secret, len);
}

void http_response_hide_authorization(struct http_response *r, const char *value)
{
    const char *space = strchr(value, ' ');
    const char *credential = space ? space + 1 : value;
    _cleanup_strbuf_ struct strbuf plain = STRBUF_INIT;
    http_response_hide(r, credential);
    if (strncasecmp(value, "Basic ", 6) != 0 ||
        !base64_decode(credential, strlen(credential), &plain))
        return;
    const char *colon = strchr(strbuf_str(&plain), ':');
    if (colon)
        http_response_hide(r, colon + 1);
}

/* The first error's text of a Hub body ({"error": "..."}) or an OCI one ({"errors": [{"code",
 * "message"}]}); "" when the body is neither. */
static void body_text(const struct http_response *r, char *to, size_t size)
{
    _cleanup_json_ struct json *root = NULL;
    to[0] = '\0';
    if (json_parse(strbuf_str(&r->body), r->body.len, &root, NULL) < 0)
        return;
    const char *text = json_str(json_get(root, "error"));
    const struct json *first = json_first(json_get(root, "errors"));
    if (!text)
        text = json_str(json_get(first, "message"));
    if (!text)
        text = json_str(json_get(first, "code"));
    if (text)
        snprintf(to, size, "%.300s", text);
}

static enum err_code code_of_status(unsigned status)
{
    switch (status) {
    case 401:
        return ERR_UNAUTHORIZED;
    case 403:
        return ERR_DENIED;
    case 404:
        return ERR_NOT_FOUND;
    case 429:
        return ERR_RATE_LIMITED;
    case 508:
        return ERR_LOOP;
    default:
        return ERR_UPSTREAM;
    }
}

int http_status_error(const struct http_response *r, const char *url, struct error *err)
{
    char where[512], said[304];
    log_url(url, where, sizeof(where));
    body_text(r, said, sizeof(said));
    const char *text = http_header(r, "X-Error-Message");
    const char *code = http_header(r, "X-Error-Code");
    if (!text || !*text)
        text = said;
    if (!*text && code)
        text = code;
    if (r->status == 508) /* each on the way quotes the next; this is what they all mean */
        text = "servers have each other for an upstream, in a circle; correct the url of one";
    unsigned wait = http_retry_after(r);
    if (wait)
        err_set(err, code_of_status(r->status), "%s answered %u%s%.300s, try again in %u s", where,
                r->status, *text ? ": " : "", text, wait);
    else
        err_set(err, code_of_status(r->status), "%s answered %u%s%.300s", where, r->status,
                *text ? ": " : "", text);
    if (err)
        err->retry_after = wait;
    return -1;
}
