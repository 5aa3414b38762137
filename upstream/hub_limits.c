/* The Hub counts requests in windows of five minutes and says in each answer what is left. Whoever
 * goes on when nothing is left gets 429s, which count as well. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "upstream/hub_private.h"

#define IDENTITIES_MAX 64u
#define SPARE_MIN 2u
#define SPARE_PART 20u /* of the quota: one of so many requests is kept for what is not held */
/* An answer that names an end later than this tells of the next window. */
#define SAME_WINDOW_MS 2000u

struct window {
    uint64_t left;  /* UINT64_MAX: not known */
    uint64_t quota; /* UINT64_MAX: not known */
    uint64_t until_ms;
};

struct identity {
    bool is_used, is_ours, is_anonymous;
    struct digest token; /* of the text; none may be kept here */
    uint64_t used_ms;
    struct window windows[HUB_BUCKETS];
};

struct hub_limits {
    pthread_mutex_t lock; /* guards: all below */
    struct identity identities[IDENTITIES_MAX];
};

static const char *const bucket_names[] = {
    [HUB_API] = "api", [HUB_RESOLVERS] = "resolvers", [HUB_PAGES] = "pages"};

struct hub_limits *hub_limits_new(void)
{
    struct hub_limits *l = calloc(1, sizeof(*l));
    if (l)
        pthread_mutex_init(&l->lock, NULL);
    return l;
}

void hub_limits_free(struct hub_limits *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- what the Hub says ----------------------------------------------------------------------- */

/* The path of an http(s) URL. */
static const char *path_of(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? host + 3 + strcspn(host + 3, "/?#") : url;
}

enum hub_bucket hub_bucket_of(const char *base, const char *url)
{
    const char *prefix = path_of(base), *path = path_of(url);
    size_t n = strlen(prefix);
    if (strncmp(path, prefix, n) == 0 && path[n] == '/')
        path += n;
    if (strncmp(path, "/api/resolve-cache/", 19) == 0)
        return HUB_RESOLVERS;
    if (strncmp(path, "/api/", 5) == 0)
        return HUB_API;
    return strstr(path, "/resolve/") || strstr(path, "/raw/") ? HUB_RESOLVERS : HUB_PAGES;
}

/* A parameter, `r=12`: its number, when it is that one and nothing else. */
static void take_number(const char *parameter, size_t len, char key, uint64_t *ret)
{
    uint64_t n = 0;
    if (len < 3 || parameter[0] != key || parameter[1] != '=')
        return;
    for (size_t i = 2; i < len; i++) {
        if (parameter[i] < '0' || parameter[i] > '9' || n > UINT32_MAX)
            return;
        n = n * 10 + (uint64_t)(parameter[i] - '0');
    }
    *ret = n;
}

static bool take_bucket(const char *text, size_t len, enum hub_bucket *ret)
{
    for (unsigned b = 0; b < HUB_BUCKETS; b++) {
        size_t n = strlen(bucket_names[b]);
        if (len == n + 2 && text[0] == '"' && memcmp(text + 1, bucket_names[b], n) == 0 &&
            text[n + 1] == '"') {
            *ret = (enum hub_bucket)b;
            return true;
        }
    }
    return false;
}

bool hub_limit_parse(const char **text, struct hub_limit *ret)
{
    const char *p = *text;
    size_t item = strcspn(p, ",");
    bool is_known = false;
    struct hub_limit limit = {.left = UINT64_MAX, .ends_s = UINT64_MAX, .quota = UINT64_MAX};
    *text = p + item + (p[item] == ',');
    for (const char *end = p + item; p <= end;) {
        size_t n = strcspn(p, ";,"), len = n;
        const char *next = p + n + 1;
        for (; len && *p == ' '; len--)
            p++;
        while (len && p[len - 1] == ' ')
            len--;
        is_known = take_bucket(p, len, &limit.bucket) || is_known;
        take_number(p, len, 'r', &limit.left);
        take_number(p, len, 't', &limit.ends_s);
        take_number(p, len, 'q', &limit.quota);
        p = next;
    }
    if (is_known)
        *ret = limit;
    return is_known;
}

/* ---- what is known --------------------------------------------------------------------------- */

static bool is_it(const struct identity *i, const struct hub_identity *who, const struct digest *d)
{
    return i->is_used &&
           (who->token ? !i->is_anonymous && digest_equal(&i->token, d) : i->is_anonymous);
}

/* Whether a's place is rather given away than b's: clients' tokens, which may be any text, go
 * first, the one that was longest unused of those. */
static bool goes_before(const struct identity *a, const struct identity *b)
{
    if (a->is_used != b->is_used)
        return !a->is_used;
    if (a->is_ours != b->is_ours)
        return !a->is_ours;
    return a->used_ms < b->used_ms;
}

/* Lock held. NULL: nothing is known of it, and may_add is not set. */
static struct identity *find(struct hub_limits *l, const struct hub_identity *who,
                             const struct digest *d, bool may_add, uint64_t now_ms)
{
    struct identity *victim = &l->identities[0];
    for (unsigned i = 0; i < IDENTITIES_MAX; i++) {
        struct identity *x = &l->identities[i];
        if (is_it(x, who, d)) {
            x->used_ms = now_ms;
            return x;
        }
        if (goes_before(x, victim))
            victim = x;
    }
    if (!may_add)
        return NULL;
    *victim = (struct identity){.is_used = true,
                                .is_ours = who->is_ours || !who->token,
                                .is_anonymous = !who->token,
                                .used_ms = now_ms};
    if (who->token)
        victim->token = *d;
    for (unsigned b = 0; b < HUB_BUCKETS; b++)
        victim->windows[b] = (struct window){.left = UINT64_MAX, .quota = UINT64_MAX};
    return victim;
}

/* False when there is no way to know: then nothing is. */
static bool token_digest(const struct hub_identity *who, struct digest *ret)
{
    *ret = (struct digest){0};
    return !who->token || digest_of(DIGEST_SHA256, who->token, strlen(who->token), ret, NULL) == 0;
}

static uint64_t kept_for_others(const struct window *w)
{
    uint64_t part = w->quota == UINT64_MAX ? 0 : w->quota / SPARE_PART;
    return part > SPARE_MIN ? part : SPARE_MIN;
}

static const char *whose(const struct hub_identity *who)
{
    if (!who->token)
        return "without a token";
    return who->is_ours ? "with the configured token" : "with the client's token";
}

static int refuse(const struct hub_identity *who, enum hub_bucket bucket, const struct window *w,
                  uint64_t now_ms, const char *prefix, struct error *err)
{
    unsigned wait_s = (unsigned)((w->until_ms - now_ms + 999) / 1000);
    if (w->left == 0)
        err_set(err, ERR_RATE_LIMITED,
                "%s: no request of the kind \"%s\" is left %s; none is sent for the next %u s, "
                "until the Hub counts anew%s",
                prefix, bucket_names[bucket], whose(who), wait_s,
                who->token ? "" : " (an account's token has a larger quota)");
    else
        err_set(err, ERR_RATE_LIMITED,
                "%s: %" PRIu64 " requests of the kind \"%s\" are left %s for the next %u s; they "
                "are kept for what is not held here",
                prefix, w->left, bucket_names[bucket], whose(who), wait_s);
    if (err)
        err->retry_after = wait_s;
    return -1;
}

int hub_limits_check(struct hub_limits *l, const struct hub_identity *who, enum hub_bucket bucket,
                     bool spare, uint64_t now_ms, const char *prefix, struct error *err)
{
    struct digest d;
    struct window w = {.left = UINT64_MAX};
    if (!token_digest(who, &d))
        return 0;
    pthread_mutex_lock(&l->lock);
    const struct identity *i = find(l, who, &d, false, now_ms);
    if (i)
        w = i->windows[bucket];
    pthread_mutex_unlock(&l->lock);
    if (w.left == UINT64_MAX || now_ms >= w.until_ms || w.left > (spare ? kept_for_others(&w) : 0))
        return 0;
    return refuse(who, bucket, &w, now_ms, prefix, err);
}

static void note_left(struct window *w, uint64_t left, uint64_t wait_s, uint64_t now_ms)
{
    uint64_t until_ms =
        now_ms + (wait_s < HUB_LIMIT_WAIT_MAX_S ? wait_s : HUB_LIMIT_WAIT_MAX_S) * 1000;
    /* Answers overtake each other: within a window there is only ever less left. */
    bool is_same = now_ms < w->until_ms && until_ms <= w->until_ms + SAME_WINDOW_MS;
    if (is_same && (w->left < left || (w->left == left && w->until_ms > until_ms)))
        return;
    w->left = left;
    w->until_ms = until_ms;
}

/* Every item of every header of that name. */
static void note_header(struct identity *i, const struct http_response *r, const char *name,
                        uint64_t now_ms)
{
    for (const char *text = http_header(r, name); text; text = http_header_next(r, name, text)) {
        for (const char *p = text; *p;) {
            struct hub_limit limit;
            if (!hub_limit_parse(&p, &limit))
                continue;
            struct window *w = &i->windows[limit.bucket];
            if (limit.quota != UINT64_MAX)
                w->quota = limit.quota;
            if (limit.left != UINT64_MAX && limit.ends_s != UINT64_MAX)
                note_left(w, limit.left, limit.ends_s, now_ms);
        }
    }
}

void hub_limits_note(struct hub_limits *l, const struct hub_identity *who, enum hub_bucket bucket,
                     uint64_t now_ms, const struct http_response *r)
{
    struct digest d;
    bool is_limited = http_status(r) == 429;
    if ((!is_limited && !http_header(r, "RateLimit")) || !token_digest(who, &d))
        return;
    pthread_mutex_lock(&l->lock);
    struct identity *i = find(l, who, &d, true, now_ms);
    note_header(i, r, "RateLimit-Policy", now_ms);
    note_header(i, r, "RateLimit", now_ms);
    if (is_limited) {
        unsigned wait_s = http_retry_after(r);
        note_left(&i->windows[bucket], 0, wait_s ? wait_s : HUB_LIMIT_WAIT_S, now_ms);
    }
    pthread_mutex_unlock(&l->lock);
}
