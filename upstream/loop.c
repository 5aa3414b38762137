#include "upstream/loop.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"

#define PRODUCT "weighbridge"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char own_id[LOOP_ID_LEN + 1];
static _Thread_local struct loop current;

/* Nobody gains by guessing it, so that the clock will do where there is no randomness. */
static void make_id(void)
{
    uint64_t n;
    if (getrandom(&n, sizeof(n), GRND_NONBLOCK) != sizeof(n))
        n = clock_monotonic_us() ^ ((uint64_t)getpid() << 40);
    snprintf(own_id, sizeof(own_id), "%016llx", (unsigned long long)n);
}

const char *loop_own_id(void)
{
    pthread_once(&once, make_id);
    return own_id;
}

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* The id in an entry of ours ("weighbridge; id=..."), NULL when it is another's. */
static const char *id_of(const char *entry, size_t len)
{
    const char *end = entry + len;
    if (len < strlen(PRODUCT) || strncasecmp(entry, PRODUCT, strlen(PRODUCT)) != 0)
        return NULL;
    const char *p = skip_blanks(entry + strlen(PRODUCT));
    if (*p != ';')
        return NULL;
    p = skip_blanks(p + 1);
    if (strncasecmp(p, "id=", 3) != 0)
        return NULL;
    p += 3;
    if (strspn(p, "0123456789abcdef") != LOOP_ID_LEN || p + LOOP_ID_LEN > end)
        return NULL;
    return skip_blanks(p + LOOP_ID_LEN) >= end ? p : NULL;
}

static void add_id(struct loop *l, const char *id)
{
    if (l->n == LOOP_SERVERS_MAX)
        memmove(l->ids[0], l->ids[1], sizeof(l->ids) - sizeof(l->ids[0]));
    else
        l->n++;
    memcpy(l->ids[l->n - 1], id, LOOP_ID_LEN);
    l->ids[l->n - 1][LOOP_ID_LEN] = '\0';
    if (memcmp(id, loop_own_id(), LOOP_ID_LEN) == 0)
        l->is_closed = true;
}

void loop_add(struct loop *l, const char *value)
{
    for (const char *p = skip_blanks(value); *p;) {
        size_t len = strcspn(p, ",");
        const char *id = id_of(p, len);
        if (id)
            add_id(l, id);
        p = skip_blanks(p + len + (p[len] == ','));
    }
}

void loop_set(const struct loop *l)
{
    current = l ? *l : (struct loop){0};
}

struct loop loop_get(void)
{
    return current;
}

const char *loop_value(const struct loop *l, char buf[static LOOP_VALUE_MAX])
{
    size_t used = 0;
    for (unsigned i = 0; i < l->n; i++)
        used += (size_t)snprintf(buf + used, LOOP_VALUE_MAX - used, PRODUCT "; id=%s, ", l->ids[i]);
    snprintf(buf + used, LOOP_VALUE_MAX - used, PRODUCT "; id=%s", loop_own_id());
    return buf;
}

int loop_check(const char *upstream, struct error *err)
{
    if (!current.is_closed)
        return 0;
    return err_set(err, ERR_LOOP,
                   "a request for this came back to the server that sent it: upstream %s leads, at "
                   "once or over other servers, to this very server; correct its url",
                   upstream);
}
